"""Imported rules are verified: those that docs/exchange.md calls false are refuted, and the others are supported."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gsl import Refuted, Subst, Supported
from gsl.verify import Verdict, verify
from tests.exchange.test_sets import ALLOWS, FALSE, READINGS, taso, with_files

TRUE = ("taso-1", "taso-4", "taso-9", "taso-32", "taso-53", "taso-60", "taso-73", "taso-84", "taso-116", "taso-132")
"""Some of those that are true: products, convolutions, sums, concatenations, splits."""


@pytest.mark.sweep(4)
@with_files
@pytest.mark.parametrize("name", FALSE)
def test_what_is_false_is_refuted(name: str) -> None:
    found = verify(taso(ALLOWS[FALSE[name].cells[0]])[name], suggest=False)
    assert isinstance(found, Refuted), str(found)
    assert found.counterexample.kind == "value"
    assert len(found.counterexample.before.nodes) <= 10
    assert all(size <= 6 for node in found.counterexample.before.nodes for size in node.shape or ())


@pytest.mark.sweep(2)
@with_files
@pytest.mark.parametrize("name", TRUE)
def test_what_is_true_is_supported(name: str) -> None:
    found = verify(taso(READINGS[0])[name], max_examples=40)
    assert isinstance(found, Supported), str(found)
    assert found.evidence.evaluated == 40
    assert name not in FALSE or FALSE[name].cells[0] != "always"


@pytest.mark.long
def test_the_missing_condition_is_suggested(rule: Callable[..., Subst]) -> None:
    line = "(conv2d 1 1 0 0 (ewadd ?x ?y) ?w)=>(ewadd (conv2d 1 1 0 0 ?x ?w) (conv2d 1 1 0 0 ?y ?w))"
    found = rule(line, broadcasting=True).verify(max_examples=60, seed=1)
    assert isinstance(found, Refuted), str(found)
    assert found.suggestion is not None
    assert "shape" in found.suggestion.text


@pytest.mark.parametrize(("line", "verdict"), [
    ("(matmul 0 (matmul 0 ?x ?y) (matmul 0 ?z ?w))=>(matmul 0 (matmul 0 ?x (matmul 0 ?y ?z)) ?w)", Supported),
    ("(conv2d 1 1 0 0 ?x ?w)=>(conv2d 1 1 0 2 ?x ?w)", Refuted),
    ("(conv2d 2 2 0 0 ?x ?w)=>(conv2d 2 2 0 0 ?x (enlarge 3 3 ?w))", Refuted),
    ("(poolavg 3 3 1 1 0 ?x)=>(relu (poolavg 3 3 1 1 0 ?x))", Refuted),
    ("(poolmax 2 2 2 2 1 (relu ?x))=>(relu (poolmax 2 2 2 2 1 ?x))", Supported),
    ("(matmul 0 ?x ?y)=>(matmul 0 ?y ?x)", Refuted),
])  # fmt: skip
def test_a_rule_gets_its_verdict(rule: Callable[..., Subst], line: str, verdict: type[Verdict]) -> None:
    found = verify(rule(line), max_examples=60, suggest=False)
    assert isinstance(found, verdict), str(found)


@pytest.mark.sweep(3)
@pytest.mark.parametrize(("line", "choices", "verdict"), [
    ("(conv2d 1 1 0 2 ?x (Iconv 3 3))=>(relu ?x)", {}, Supported),
    ("(conv2d 1 1 0 0 ?x (Iconv 2 3))=>?x", {"groups": True, "odd_padding": "high"}, Supported),
    ("(conv2d 1 1 0 0 ?x (Iconv 3 3))=>(relu ?x)", {}, Refuted),
    ("(conv2d 1 1 1 0 ?x (Cpool 2 3))=>(poolavg 2 3 1 1 1 ?x)", {"groups": True}, Supported),
    ("(conv2d 1 1 0 0 ?x (Cpool 3 3))=>(poolavg 3 3 1 1 0 ?x)", {}, Refuted),  # the padding is not counted
    ("(conv2d 1 1 0 0 ?x (Cpool 3 3))=>(poolavg 3 3 1 1 0 ?x)", {"count_include_pad": True}, Supported),
    ("(matmul 0 Imatmul ?x)=>?x", {}, Supported),
    ("(matmul 0 ?x Imatmul)=>(transpose ?x)", {}, Refuted),
    ("(relu (ewmul Iewmul ?x))=>(relu ?x)", {}, Supported),
])  # fmt: skip
def test_constants_in_a_source_are_drawn_as_what_they_are(
    rule: Callable[..., Subst], line: str, choices: dict[str, object], verdict: type[Verdict]
) -> None:
    found = verify(rule(line, **choices), max_examples=40, suggest=False)
    assert isinstance(found, verdict), str(found)
