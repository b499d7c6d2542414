"""Names of operators tell which rules can't match in a model: then none of its nodes is read."""

from __future__ import annotations

from typing import Any

import pytest

from gsl import RuleSet, Subst, Workload, op, pat, rules
from gsl.errors import PatternError
from gsl.front.onnx import OnnxProgram, load, spellings
from gsl.onnx import Pass
from gsl.operators import ort
from tests.front.onnx import test_onnx_bodies as bodies
from tests.front.onnx import test_onnx_functions as functions
from tests.front.onnx.onnx_helpers import bytes_of, told, untold, views, workload

X, Y = pat.Wildcard(), pat.Wildcard()
NEVER = Subst(op.Exp(op.Log(X)), X, name="never")
WEIGHTS = "float[3,3] w = {1, 2, 3, 4, 5, 6, 7, 8, 9}, float[3] b = {1, 2, 3}, float two = {2}, int64[1] one = {1}"

MODELS: dict[str, tuple[Any, ...]] = {
    "several calls": ("g = Gemm <transA: int = 1, alpha: float = 0.5, beta: float = 2.0> (x, x, s) "
                      "h = HardSigmoid (g) y = Max (h, g, two)", "float[2,3] x, float[3,3] s", "float[3,3] y"),
    "read through": ("t = Transpose <perm: ints = [1, 0]> (v) m = MatMul (x, t) r = Reshape (f, one) a = Add (m, b) "
                     "q = Sqrt (a) y = Reciprocal (q)", "float[2,3] x, float[3,3] v, float[1,1] f"),
    "from inputs": ("r = Reshape (f, shape) m = MatMul (x, w) a = Add (m, r) e = Equal (a, x) n = Not (e) "
                    "y = Where (n, a, x)", "float[2,3] x, float[3,1] f"),
    "joined": ("p = Unsqueeze (x, one) q = Unsqueeze (x, one) c = Concat <axis: int = 1> (p, q) "
               "y = ReduceL2 <keepdims: int = 0> (c, one)",),
    "several results": ("s, t = Split <axis: int = 0> (x) u, v = Split <axis: int = 0> (s, ones) d = Add (u, t) "
                        "i, j = TopK (d, one) y = Add (i, x)", "float[2,3] x, int64[2] ones"),
    "several results that are not read": ("q, s, z = DynamicQuantizeLinear (x) y = Sqrt (s)",
                                          "float[2,3] x", "float[] y"),
}  # fmt: skip
INSIDE = {"branches": bodies.BRANCHES, "nested": bodies.NESTED, "loop": bodies.LOOP}


def made(name: str) -> Workload:
    if name == "functions":
        return functions.workload()
    if name in INSIDE:
        return workload(INSIDE[name], **bodies.GIVEN)
    return workload(*MODELS[name], more=f"{WEIGHTS}, int64[1] shape = {{3}}")


@pytest.fixture
def unread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no view be made."""
    monkeypatch.setattr(OnnxProgram, "load", lambda *args, **kwargs: pytest.fail("a view was made"))


@pytest.mark.parametrize("name", [*MODELS, *INSIDE, "functions"])
def test_names_tell_of_all_views(name: str) -> None:
    wl = made(name)
    assert told(wl)
    assert not untold(wl)
    for rule in rules.BOOK + rules.IDIOMS:
        may = rule.plan.may_match(told(wl))
        assert may or not any(True for view in views(wl) for _ in rule.plan.matches(view)), rule.name


def test_what_a_row_does_not_tell_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "FORMS", {})
    monkeypatch.setitem(spellings.READINGS, "Add", (frozenset(("add",)), frozenset()))
    assert made("from inputs").op_counts()["onnx::Add"] == 1
    monkeypatch.setitem(spellings.THROUGH, "MatMul", frozenset())
    assert made("read through").op_counts()["matmul"] == 1


def test_calls_of_a_users_operator_are_told() -> None:
    text = "a = com.microsoft.BiasGelu(x, b) y = com.microsoft.QuickGelu<alpha: float = 1.5>(a)"
    wl = workload(text, more=WEIGHTS, others=', "com.microsoft" : 1').with_operators(ort.bias_gelu, ort.quick_gelu)
    assert {"com.microsoft::BiasGelu", "com.microsoft::QuickGelu"} <= wl.op_counts().keys()
    assert not untold(wl)
    assert Subst(ort.quick_gelu(ort.bias_gelu(X, Y)), X).plan.may_match(told(wl))
    assert not Subst(ort.bias_gelu(ort.quick_gelu(X), Y), X).plan.may_match(told(wl))


def test_of_groups_nothing_is_told() -> None:
    wl = Subst(op.ReLU(op.Abs(X)), pat.Fused("both"), name="fuse")(workload("a = Abs(x) y = Relu(a)"))
    assert wl.groups()
    assert not told(wl)
    assert not NEVER(wl).trace.count()


@pytest.mark.usefixtures("unread")
@pytest.mark.parametrize("name", [*MODELS, *INSIDE, "functions"])
def test_what_no_rule_can_match_is_not_read(name: str) -> None:
    wl = made(name)
    before, step = bytes_of(wl.model), Pass(NEVER, iterative=True)
    new = NEVER(wl, new_name="again")
    assert new.program is wl.program
    assert (new.name, str(new.trace), dict(new.trace.summary())) == ("again", "no rule fired", {})
    assert not step(wl.model).modified
    assert str(step.traces[0]) == "no rule fired"
    assert bytes_of(wl.model) == before


@pytest.mark.parametrize("iterative", [False, True])
def test_the_trace_is_that_of_a_view(iterative: bool) -> None:
    wl, step = made("several calls"), Pass(NEVER, iterative=iterative, fold_params=False)
    step(wl.model)
    _, trace = NEVER.apply(wl.graph, iterative=iterative)
    assert NEVER(wl, iterative=iterative, fold_params=False).trace == step.traces[0] == trace


def test_a_tidy_set_is_applied() -> None:
    wl = workload("a = Exp(x) b = Exp(x) y = Add(a, b)")
    assert RuleSet([NEVER], tidy=True)(wl).trace.shared == 1
    assert Pass(RuleSet([NEVER], tidy=True))(wl.model).modified


@pytest.mark.usefixtures("unread")
def test_a_wrong_number_of_steps_is_refused() -> None:
    with pytest.raises(PatternError, match="max_steps"):
        NEVER(made("joined"), iterative=True, max_steps=0)
