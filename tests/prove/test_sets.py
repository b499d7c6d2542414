"""Proofs of rules of other systems; benchmarks/verification.py goes through the whole sets."""

from __future__ import annotations

import pytest

from benchmarks.xla_rules import rules
from gsl.prove import Proof, prove
from tests.exchange.test_sets import taso, with_files

pytestmark = pytest.mark.filterwarnings("ignore::gsl.errors.DroppedAttributeWarning")
XLA = rules()


def test_there_are_as_many_as_are_claimed() -> None:
    assert len(XLA) >= 115


@pytest.mark.parametrize("name", list(XLA)[::8])
def test_rewrites_of_xla_are_proved(name: str) -> None:
    found = prove(XLA[name])
    assert isinstance(found, Proof), str(found)


@with_files
@pytest.mark.parametrize("name", ["taso-0", "taso-16", "taso-77", "taso-94", "taso-119"])
def test_rules_of_taso_are_proved(name: str) -> None:
    found = prove(taso()[name])
    assert isinstance(found, Proof), str(found)


@with_files
@pytest.mark.parametrize("name", ["taso-98", "taso-128"])
def test_a_false_rule_of_taso_is_not(name: str) -> None:
    assert not isinstance(prove(taso()[name]), Proof)
