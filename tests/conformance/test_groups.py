"""Outlined groups in every framework: they are stored, run, come back, and can be put back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gsl import Subst, Workload, op, pat
from gsl.graph import Node
from tests.conformance.front_ends import AVAILABLE, FrontEnd
from tests.conformance.programs import plain, program_of
from tests.rules.harness import Build, build

EACH = pytest.mark.parametrize("front_end", AVAILABLE, ids=lambda front_end: front_end.name)

X, Y = pat.Wildcard(), pat.Wildcard()
RELU = op.ReLU(X + Y)


def one_output(b: Build) -> list[Node]:
    x = b.input("x", 2, 3)
    return [b.call("exp", b.call("nn.relu", b.call("add", x, b.param("w", 2, 3)))), b.call("cos", x)]


def numbers_inside(b: Build) -> Node:
    return b.call("exp", b.call("sin", b.call("multiply", b.input("x", 2, 3), b.const(2.5))))


def tuples_inside(b: Build) -> Node:
    x, y = b.input("x", 2, 3), b.input("y", 2, 3)
    return b.call("exp", b.call("sin", b.call("concatenate", b.tuple(x, y), axis=1)))


def branches(b: Build) -> Node:
    shared = b.call("nn.relu", b.call("add", b.input("x", 2, 3), b.input("y", 2, 3)))
    return b.call("multiply", b.call("cos", shared), b.call("sin", shared))


def several(b: Build) -> Node:
    x = b.input("x", 2, 3)
    parts = [b.call("sin", b.call("multiply", x, b.param(f"w{i}", 2, 3))) for i in range(3)]
    return b.call("concatenate", b.tuple(*parts), axis=1)


JOINED = op.Concatenate(pat.Tuple(X, Y), axis=1)
PRODUCT = X * Y
SINE = op.Sin(PRODUCT)
FIELDS = op.Concatenate(pat.Variadic(SINE, templates=[SINE, PRODUCT, Y], min_len=2), axis=1)
MINE = Subst(RELU, pat.Fused("mine.add_relu", level=2, sizes=(1, 2)), name="mine")

CASES: dict[str, tuple[Callable[[Build], Any], Subst, tuple[str, dict[str, Any]]]] = {
    "one output": (one_output, MINE, ("mine.add_relu", {"level": 2, "sizes": (1, 2)})),
    "numbers": (numbers_inside, Subst(op.Sin(X * 2.5), pat.Fused("scaled", scale=2.5)), ("scaled", {"scale": 2.5})),
    "tuples": (tuples_inside, Subst(op.Sin(JOINED), pat.Fused("joined", on=True)), ("joined", {"on": True})),
    "several outputs": (
        branches, Subst([op.Cos(RELU), op.Sin(RELU)], pat.Fused("two", kind="pair")), ("two", {"kind": "pair"}),
    ),
    "variadic": (several, Subst(FIELDS, pat.Fused("many", level=1)), ("many", {"level": 1})),
}  # fmt: skip


@pytest.mark.sweep(2)
@EACH
@pytest.mark.parametrize("case", CASES)
def test_a_group(case: str, front_end: FrontEnd) -> None:
    view, rule, wanted = CASES[case]
    before = Workload(program_of(build(view), front_end))
    after = rule(before, fold_params=False)
    (group,) = after.groups().values()
    assert (group.name, dict(group.attrs)) == wanted
    before.compare(after, rtol=1e-10).check()
    # What was stored is the whole truth: a new program of it shows the same, and is stored as it was.
    again = front_end.program(after.native)
    assert [(g.name, dict(g.attrs)) for g in Workload(again).groups().values()] == [(group.name, dict(group.attrs))]
    assert not front_end.differences(after.native, after.program.store(after.program.load()).native)
    back = after.inline(group.name)
    assert not back.groups()
    assert plain(back.graph) == plain(before.graph)
    before.compare(back, rtol=1e-10).check()


@EACH
def test_rules_go_on_around_a_group(front_end: FrontEnd) -> None:
    before = Workload(program_of(build(one_output), front_end))
    fused = MINE(before, fold_params=False)
    after = Subst(op.Exp(X), op.Expm1(X) + 1.0, name="exp")(fused)
    assert [group.name for group in after.groups().values()] == ["mine.add_relu"]
    before.compare(after, rtol=1e-10).check()


@EACH
def test_two_groups_of_one_name(front_end: FrontEnd) -> None:
    before = Workload(program_of(build(one_output), front_end))
    fused = MINE(before, fold_params=False)
    both = Subst(op.Cos(X), pat.Fused("mine.add_relu"), name="cos")(fused)
    assert [group.name for group in both.groups().values()] == ["mine.add_relu"] * 2
    first = next(iter(both.groups()))
    assert len(both.inline(first).groups()) == 1
    assert plain(both.inline("mine.add_relu").graph) == plain(before.graph)
