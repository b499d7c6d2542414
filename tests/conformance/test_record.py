"""The recorded spellings are those of the front ends, which are all run somewhere."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gsl.graph import INPUT
from gsl.spec import TABLE
from tests.conformance.front_ends import AVAILABLE, FRONT_ENDS, FrontEnd
from tests.conformance.programs import program_of
from tests.conformance.record import RECORDED, recorded, spellings
from tests.helpers.graphs import graph


@pytest.mark.parametrize(
    "front_end", [f for f in AVAILABLE if f.name in RECORDED], ids=lambda front_end: front_end.name
)
def test_the_record_is_up_to_date(front_end: FrontEnd) -> None:
    """If not: run ``python -m tests.conformance.record`` and then ``python docs/operators.py``."""
    assert recorded()[front_end.name] == spellings(front_end)


def test_the_record_is_complete() -> None:
    found = recorded()
    assert set(found) == set(RECORDED)
    for entries in found.values():
        assert set(entries) == set(TABLE)


@pytest.mark.parametrize("front_end", FRONT_ENDS, ids=lambda front_end: front_end.name)
def test_the_front_end_is_available(front_end: FrontEnd) -> None:
    """TVM has either Relax or Relay, so that no environment runs the suite on all front ends."""
    if front_end.unavailable:
        pytest.skip(front_end.unavailable)


def test_a_front_end_for_tvm_is_available() -> None:
    assert {front_end.name for front_end in AVAILABLE} - {"fx", "exported"}


@pytest.mark.parametrize("front_end", AVAILABLE, ids=lambda front_end: front_end.name)
def test_a_front_end_may_have_a_few_operators(front_end: FrontEnd) -> None:
    first = replace(front_end, few=frozenset({"nn.relu", "add"}))
    assert first.has(["add", "nn.relu", INPUT])
    assert not first.has(["add", "nn.conv2d"])
    assert first.refuses("nn.conv2d", "nn.conv2d")
    view = graph(lambda b: b.call("nn.relu", b.input("x", 4)))
    assert str(program_of(view, first).load()) == str(program_of(view, front_end).load())
    with pytest.raises(pytest.skip.Exception, match=r"has no operators but add, nn\.relu"):
        program_of(graph(lambda b: b.call("tanh", b.input("x", 4))), first)
