"""Calls without a canonical form: they pass through untouched, and those with effects stay where they are."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from gsl import Subst, Workload, op, pat
from gsl.front.base import Program
from gsl.graph import Graph, Node
from tests.conformance.front_ends import AVAILABLE, FrontEnd, Native
from tests.conformance.programs import program_of
from tests.rules.harness import Build, build

EACH = pytest.mark.parametrize("front_end", AVAILABLE, ids=lambda front_end: front_end.name)
IMPURE = pytest.mark.parametrize("front_end", [f for f in AVAILABLE if f.impure], ids=lambda front_end: front_end.name)

X = pat.Wildcard()
TURNED = Subst(op.Sin(op.Negative(X)), op.Negative(op.Sin(X)), name="sin-of-negative")


def call(b: Build, native: Native, data: Node) -> Node:
    return b.call(native.target, data, **native.attrs)


def between(native: Native) -> Graph:
    """A native call between two places where the rule fires."""

    def view(b: Build) -> Node:
        first = b.call("sin", b.call("negative", b.input("x", 2, 3)))
        return b.call("sin", b.call("negative", call(b, native, first)))

    return build(view)


def natives(program: Program) -> Counter[Any]:
    """How often each native target is called, with its attributes."""
    nodes = [node for node in program.load().nodes if node.opaque]
    return Counter((node.op, tuple(sorted((name, str(value)) for name, value in node.attrs.items()))) for node in nodes)


@EACH
def test_an_unknown_call_passes_through(front_end: FrontEnd) -> None:
    before = Workload(program_of(between(front_end.opaque), front_end))
    assert natives(before.program).total() == 1
    after = TURNED(before)
    assert len(after.trace.firings) == 2
    assert natives(after.program) == natives(before.program)
    assert [node.op for node in after.graph.nodes if isinstance(node.op, str)] == [
        "input", "sin", "negative", "sin", "negative"
    ]  # fmt: skip
    before.compare(after, rtol=1e-10).check()


@EACH
def test_an_unknown_call_is_matched_by_its_target(front_end: FrontEnd) -> None:
    """It is found as the view shows it, and a rule may put it somewhere else."""
    before = Workload(program_of(between(front_end.opaque), front_end))
    (target,) = {node.op for node in before.graph.nodes if node.opaque}
    attrs = front_end.opaque.attrs
    moved = Subst(op.Sin(op.Negative(pat.Call(target, X))), pat.Call(target, op.Cos(X), **attrs), name="moved")
    after = moved(before)
    assert len(after.trace.firings) == 1
    assert natives(after.program) == natives(before.program)
    assert after.op_counts()["negative"] == 1


@IMPURE
def test_a_call_with_an_effect_is_neither_dropped_nor_doubled(front_end: FrontEnd) -> None:
    assert front_end.impure is not None

    def view(b: Build) -> Node:
        assert front_end.impure is not None
        x = b.input("x", 2, 3)
        used = call(b, front_end.impure, b.call("abs", x))
        call(b, front_end.impure, b.call("cos", x))
        return b.call("sin", b.call("negative", used))

    before = Workload(program_of(build(view), front_end))
    effects = [node.name for node in before.graph.nodes if node.effect]
    assert len(effects) == 2
    after = TURNED(before)
    assert len(after.trace.firings) == 1
    assert natives(after.program) == natives(before.program)
    assert [node.operands[0].op for node in after.graph.nodes if node.effect] == ["abs", "cos"]
    before.compare(after, rtol=1e-10).check()


@IMPURE
def test_a_rule_that_would_drop_an_effect_is_refused(front_end: FrontEnd) -> None:
    assert front_end.impure is not None
    before = Workload(program_of(between(front_end.impure), front_end))
    (target,) = {node.op for node in before.graph.nodes if node.effect}
    after = Subst(pat.Call(target, X), X, name="dropped")(before)
    assert not after.trace.firings
    assert "effect" in str(after.trace.refused)
    assert natives(after.program) == natives(before.program)
