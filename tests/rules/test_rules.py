"""Every rule fires where it should, with the expected result and equal numbers, and nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest

from gsl import Subst, op, pat
from gsl.graph import SymDim
from gsl.rules import BOOK, FAMILIES, LOWERING, OPTIMISING, PARALLEL, RULES
from tests.rules import cases_layout, cases_norm, cases_parallel, cases_sums
from tests.rules.harness import Build, Fires, Refuses, build, largest_error, shown

TABLES = (cases_layout, cases_sums, cases_norm, cases_parallel)
FIRES: list[Fires] = [case for table in TABLES for case in table.FIRES]
REFUSES: list[Refuses] = [case for table in TABLES for case in table.REFUSES]


def _id(case: Fires | Refuses) -> str:
    return f"{case.rule}: {case.label}"


@pytest.mark.parametrize("case", FIRES, ids=_id)
def test_fires(case: Fires) -> None:
    before = build(case.view)
    text = shown(before)
    assert sum(1 for _ in RULES[case.rule].match(before)) >= 1
    after = RULES[case.rule](before)
    assert shown(before) == text
    assert shown(after) != text
    if case.golden is not None:
        assert shown(after) == case.golden
    if not any(isinstance(size, SymDim) for node in before.nodes for size in node.shape or ()):
        assert largest_error(before, after) <= 1


@pytest.mark.parametrize("case", REFUSES, ids=_id)
def test_does_not_fire(case: Refuses) -> None:
    before = build(case.view)
    assert shown(RULES[case.rule](before)) == shown(before)


def test_the_tables_cover_every_rule() -> None:
    assert {case.rule for case in FIRES if case.golden is not None} == set(RULES)
    assert {case.rule for case in REFUSES} == set(RULES)
    assert len(FIRES) == len({_id(case) for case in FIRES})
    assert len(REFUSES) == len({_id(case) for case in REFUSES})


def test_the_rules_are_documented_and_in_families() -> None:
    for name, rule in RULES.items():
        algebra, blank, *where = rule.doc.splitlines()
        assert rule.name == name
        assert " = " in algebra
        assert blank == ""
        assert where
    assert {rule for family in FAMILIES.values() for rule in family} == set(RULES.values())
    assert set(BOOK) | set(PARALLEL) | set(LOWERING) == set(RULES.values())
    assert len(BOOK) + len(PARALLEL) + len(LOWERING) == len(RULES)
    assert set(BOOK) < set(OPTIMISING)
    assert set(OPTIMISING) < set(RULES.values())


def test_the_patterns_tell_where_they_are_written() -> None:
    files = {output.location.file for rule in RULES.values() for output in rule.source.outputs}
    assert {Path(file).parent.name for file in files} == {"rules"}


def test_the_numbers_can_tell_a_wrong_rule() -> None:
    x, y = pat.Wildcard(), pat.Wildcard()
    wrong = Subst(op.Exp(x + y), op.Exp(x) + op.Exp(y), name="exp-of-sum")

    def view(b: Build) -> object:
        return b.call("exp", b.call("add", b.input("x", 2, 3), b.input("y", 2, 3)))

    before = build(view)
    assert largest_error(before, wrong(before)) > 1e6
