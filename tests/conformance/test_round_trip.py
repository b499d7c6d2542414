"""A view that nothing was done to is stored as the program that it was loaded from, node by node."""

from __future__ import annotations

import pytest

from tests.conformance.front_ends import AVAILABLE, FrontEnd
from tests.conformance.operators import view
from tests.conformance.programs import program_of
from tests.conformance.test_rule_book import each
from tests.helpers.examples import CALLS
from tests.rules.harness import Fires, build
from tests.rules.test_rules import FIRES

EACH = pytest.mark.parametrize("front_end", AVAILABLE, ids=lambda front_end: front_end.name)


@pytest.mark.sweep(3)
@EACH
@pytest.mark.parametrize("family", CALLS)
def test_operators(family: str, front_end: FrontEnd) -> None:
    rows = [call for call in CALLS[family] if not front_end.refuses(call.op, call.label)]
    if not rows:
        pytest.skip(f"{front_end.name} has none of them")
    program = program_of(view(rows)[0], front_end)
    again = program.store(program.load())
    assert not front_end.differences(program.native, again.native)


@pytest.mark.sweep(4)
@pytest.mark.parametrize(("case", "front_end"), each(FIRES))
def test_cases_of_the_rule_book(case: Fires, front_end: FrontEnd) -> None:
    program = program_of(build(case.view), front_end)
    assert not front_end.differences(program.native, program.store(program.load()).native)


@EACH
def test_the_comparison_can_fail(front_end: FrontEnd) -> None:
    one, other = (program_of(view([call])[0], front_end) for call in CALLS["math"][:2])
    assert front_end.differences(one.native, other.native)
