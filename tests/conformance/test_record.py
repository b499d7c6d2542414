"""The recorded spellings are those of the front ends."""

from __future__ import annotations

import pytest

from gsl.spec import TABLE
from tests.conformance.front_ends import AVAILABLE, FrontEnd
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
