"""The recorded spellings are those of the front ends, which are all run somewhere."""

from __future__ import annotations

import pytest

from gsl.spec import TABLE
from tests.conformance.front_ends import AVAILABLE, FRONT_ENDS, FrontEnd
from tests.conformance.record import RECORDED, recorded, spellings


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
