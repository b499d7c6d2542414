"""The graphs of ``If``, ``Loop`` and ``Scan`` are rewritten as graphs of their own."""

from __future__ import annotations

import numpy as np
import pytest

from gsl import RuleSet, Subst, Workload, op, pat
from gsl.errors import PatternTypeError
from gsl.onnx import Pass
from tests.front.onnx.onnx_helpers import bytes_of, check, workload

pytest.importorskip("onnxruntime")

X = pat.Wildcard()
SILU = Subst(X * op.Sigmoid(X), op.SiLU(X) * 1.0, name="silu")
TWICE = Subst(op.Negative(op.Negative(X)), X, name="twice")
RULES = RuleSet([SILU, TWICE])

BRANCHES = """
    h = Relu (x)
    y = If (c) <then_branch = one () => (float[2,3] u) { t = Mul (h, w) s = Sigmoid (t) u = Mul (t, s) },
                else_branch = other () => (float[2,3] v) { p = Neg (h) q = Neg (p) v = Exp (q) }>"""
NESTED = """
    y = If (c) <then_branch = one () => (float[2,3] u) {
        k = Exp (x)
        u = If (c) <then_branch = two () => (float[2,3] r) { a = Neg (k) b = Neg (a) r = Add (b, x) },
                    else_branch = three () => (float[2,3] s) { s = Identity (k) }> },
                else_branch = four () => (float[2,3] v) { v = Abs (x) }>"""
LOOP = """
    n = Constant <value_int: int = 3> ()
    y = Loop (n, , x) <body = step (int64 i, bool more, float[2,3] state) => (bool on, float[2,3] next) {
        on = Identity (more)
        p = Neg (state) q = Neg (p) g = Mul (q, w) next = Tanh (g) }>"""
GIVEN = {"inputs": "float[2,3] x, bool c", "more": "float[3] w = {1, 2, 3}"}


def fed(condition: bool) -> list[object]:
    return [np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3), np.array(condition)]


@pytest.mark.parametrize(("body", "fired"), [
    (BRANCHES, {"silu": 1, "twice": 1}), (NESTED, {"twice": 1}), (LOOP, {"twice": 1}),
])  # fmt: skip
def test_rules_work_inside(body: str, fired: dict[str, int]) -> None:
    wl = workload(body, **GIVEN)
    before = bytes_of(wl.model)
    new = RULES(wl)
    assert new.trace.summary() == fired
    assert new.trace.count() == sum(fired.values())
    check(new.model)
    for condition in (True, False):
        wl.compare(new, inputs=fed(condition)[: len(wl.inputs)]).check()
    assert bytes_of(wl.model) == before
    assert bytes_of(new.trace.replay(wl).model) == bytes_of(new.model)
    again = Workload(new.model)
    assert again.program.store(again.program.load()).native is new.model


@pytest.mark.parametrize("body", [BRANCHES, NESTED, LOOP])
def test_a_pass_works_inside(body: str) -> None:
    """As rules do that make a new model; what loses its last user in there goes."""
    native, step = workload(body, **GIVEN).model, Pass(RULES)
    new = RULES(workload(body, **GIVEN))
    assert step(native).modified
    assert bytes_of(native) == bytes_of(new.model)
    assert [len(value.uses()) for node in native.graph.all_nodes() for value in node.outputs] == [
        len(value.uses()) for node in new.model.graph.all_nodes() for value in node.outputs
    ]
    assert step.traces[0].summary() == new.trace.summary()
    assert not Pass(TWICE)(native).modified


def test_a_look_inside() -> None:
    wl = workload(NESTED, **GIVEN)
    parts = wl.inside
    inner = "y.then_branch/u.then_branch"
    assert list(parts) == ["y.then_branch", inner, "y.then_branch/u.else_branch", "y.else_branch"]
    assert [name for name, part in parts.items() if list(TWICE.match(part))] == [inner]
    assert TWICE.explain(parts[inner])
    assert wl.program.inside(lambda name, program: program) is wl.program


def test_the_trace_tells_the_graph() -> None:
    assert str(RULES(workload(BRANCHES, **GIVEN)).trace) == (
        "in y.then_branch\n  silu: %u -> %multiply\nin y.else_branch\n  twice: %q -> %h"
    )


def test_what_no_rule_touches_is_the_very_same() -> None:
    wl = workload(BRANCHES, **GIVEN)
    assert Subst(op.Cos(X), op.Sin(X), name="none")(wl).model is wl.model
    one = Subst(op.Exp(X), op.Expm1(X) + 1.0, name="exp")(wl)
    then, other = (attr.as_graph() for attr in one.model.graph[1].attributes.values())
    assert [node.op_type for node in then] == ["Mul", "Sigmoid", "Mul"]
    assert "Exp" in [node.op_type for node in other]
    assert [value.name for value in other.outputs] == ["v"]


def test_a_value_from_around_can_be_the_result() -> None:
    """A graph can't hand out a value from around it, so that there is a node that does."""
    wl = workload(BRANCHES.replace("v = Exp (q)", "v = Identity (q)"), **GIVEN)
    new = TWICE(wl)
    check(new.model)
    wl.compare(new, inputs=fed(False)).check()


def test_weights_from_around_are_weights() -> None:
    w = pat.Param()
    rule = Subst(X * w, X * (w * 2.0) * 0.5, name="double")
    wl = workload(BRANCHES, **GIVEN)
    new = rule(wl)
    check(new.model)
    assert new.trace.count() == 1
    wl.compare(new, inputs=fed(True)).check()


def test_a_constant_from_around_is_known() -> None:
    body = """
    n = Constant <value: tensor = int64[2] {3, 2}> ()
    y = If (c) <then_branch = one () => (float[3,2] u) { a = Neg (x) b = Neg (a) u = Reshape (b, n) },
                else_branch = other () => (float[3,2] v) { v = Reshape (x, n) }>"""
    wl = workload(body, "float[2,3] x, bool c", "float[3,2] y")
    before = bytes_of(wl.model)
    new = (Subst(op.Reshape(X), op.Reshape(op.Abs(X), newshape=(3, 2)), name="abs"))(wl)
    assert new.trace.count() == 2
    check(new.model)
    assert bytes_of(wl.model) == before
    twice = TWICE(wl)
    check(twice.model)
    wl.compare(twice, inputs=fed(True)).check()


def test_rules_meet_around_and_inside() -> None:
    """A value that a graph uses is replaced around it, and the graph is rewritten, too."""
    wl = workload(BRANCHES.replace("h = Relu (x)", "e = Neg (x) f = Neg (e) h = Relu (f)"), **GIVEN)
    new = RULES(wl)
    assert new.trace.summary() == {"silu": 1, "twice": 2}
    check(new.model)
    for condition in (True, False):
        wl.compare(new, inputs=fed(condition)).check()


def test_reports_look_inside() -> None:
    wl = workload(BRANCHES.replace("Exp", "Hardmax").replace("Relu", "Hardmax"), **GIVEN)
    report = wl.unread()
    assert [(each.op, each.names) for each in report] == [
        ("onnx::Hardmax", ("h", "y.else_branch/v")), ("onnx::If", ("y",)),
    ]  # fmt: skip
    assert report.total == 8
    explanation = TWICE.explain(wl)
    assert explanation
    assert explanation.matches == 0
    assert {name: part.matches for name, part in explanation.inside.items()} == {"y.then_branch": 0, "y.else_branch": 1}
    assert str(explanation).splitlines()[-2] == "in y.else_branch"
    assert str(explanation).endswith(": 1 match")
    assert not Subst(op.Exp(op.Exp(X)), X, name="absent").explain(wl)


def test_an_option_that_the_pass_lacks_is_an_error() -> None:
    with pytest.raises(PatternTypeError, match="Pass has no argument 'iteratve': did you mean 'iterative'"):
        Pass([], iteratve=True)  # type: ignore[call-arg]
