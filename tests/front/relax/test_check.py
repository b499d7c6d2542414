"""What is checked of a new function: its structure everywhere, types where they may have changed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm import ir, relax, tirx
from tvm.relax.expr import _update_type
from tvm.relax.global_info import VDevice

from gsl import RuleSet, Subst, Workload, op, pat
from gsl.errors import FrontEndError
from gsl.front.relax import blocks as checking
from gsl.front.relax.blocks import check
from gsl.front.relax.types import Shared
from tests.front.relax.relax_helpers import function, tensor

X = pat.Wildcard()
FILLING = 20
"""So many bindings stand in a function that a single call among them is checked by itself."""


def made(name: str, arg: Any, size: int) -> Any:
    """A call of an operator, with the type of a tensor of that size whether or not it has it."""
    call = ir.Call(ir.Op.get(f"relax.{name}"), [arg])
    _update_type(call, relax.TensorType([size], "float32"))
    return call


def module_with(call: Any, x: Any) -> Any:
    """A module whose function has some good calls, and then this one."""
    bindings, last = [], x
    for number in range(FILLING):
        var = relax.Var(f"lv{number}", relax.TensorType([4], "float32"))
        bindings.append(relax.VarBinding(var, made("exp", last, 4)))
        last = var
    result = relax.Var("result", call.ty)
    bindings.append(relax.VarBinding(result, call))
    body = relax.SeqExpr([relax.BindingBlock(bindings)], result)
    _update_type(body, result.ty)
    return ir.IRModule({"main": relax.Function([x], body, result.ty, True).with_attr("global_symbol", "main")})


def test_a_good_function_passes() -> None:
    x = tensor("x", 4)
    good = made("tanh", x, 4)
    for fresh in (None, [], [good]):
        check(module_with(good, x), module_with(good, x)["main"], fresh)


@pytest.mark.parametrize("alone", [True, False])
def test_a_call_with_a_wrong_type_is_found(alone: bool) -> None:
    x = tensor("x", 4)
    wrong = made("tanh", x, 5)
    module = module_with(wrong, x)
    with pytest.raises(TypeError, match="tanh"):
        check(module, module["main"], [wrong] if alone else None)


@pytest.mark.parametrize(
    ("arg", "reason"),
    [(relax.Var("y", relax.TensorType([4], "float32")), "y is not defined"), (None, "not in ANF")],
    ids=["unknown", "nested"],
)
def test_a_wrong_structure_is_found_without_types(arg: Any, reason: str) -> None:
    x = tensor("x", 4)
    wrong = made("tanh", made("exp", x, 4) if arg is None else arg, 4)
    module = module_with(wrong, x)
    with pytest.raises(ValueError, match=reason):
        check(module, module["main"], [])


def impure(*, dataflow: bool) -> Any:
    """A pure function that calls one of which nothing tells that it is pure, as the importer of ONNX writes it."""
    n = tirx.Var("n", "int64")

    def body(builder: Any, x: Any, sizes: Any) -> Any:
        kind = relax.ShapeType(ndim=1)
        shape = builder.emit(relax.Call(relax.ExternFunc("vm.builtin.tensor_to_shape"), [sizes], ty_args=[kind]))
        builder.match_cast(shape, relax.ShapeType([n]))
        y = builder.emit(relax.op.broadcast_to(x, relax.ShapeExpr([n])))
        return builder.emit(relax.op.nn.relu(builder.emit(relax.op.nn.relu(y))))

    module = function([tensor("x", 1), tensor("sizes", 1, dtype="int64")], body, dataflow=dataflow)
    assert not relax.analysis.check_well_formed(module)
    return module


@pytest.mark.parametrize("dataflow", [True, False])
def test_effects_may_stay_where_they_were(dataflow: bool) -> None:
    rule = Subst(op.ReLU(op.ReLU(X)), op.ReLU(X), name="relu twice")
    wl = Workload(impure(dataflow=dataflow))
    new = rule(wl)
    assert new.trace.firings
    wl.compare(new, inputs=[np.float32([2]), np.int64([3])]).check()


def test_wrong_functions_are_found_beside_effects() -> None:
    x = tensor("x", 4)
    before = impure(dataflow=True)
    wrong = module_with(made("tanh", relax.Var("y", relax.TensorType([4], "float32")), 4), x)["main"]
    module = ir.IRModule({"main": before["main"], "wrong": wrong.with_attr("global_symbol", "wrong")})
    with pytest.raises(ValueError, match="y is not defined"):
        check(module, module["wrong"], [], before)


def calls_checked_alone(rule: Subst, module: Any, monkeypatch: pytest.MonkeyPatch) -> int | None:
    """How many calls are checked by themselves after a rewrite; ``None`` if none are, but all where they stand, or none
    at all."""
    seen: list[Any] = []
    monkeypatch.setattr(checking, "_alone", lambda module, calls: seen.append(list(calls)))
    new = rule(Workload.from_relax(module))
    assert new.trace.firings
    return len(seen[0]) if seen else None


def chain(x: Any, count: int) -> Any:
    def body(b: Any, x: Any) -> Any:
        for _ in range(count):
            x = b.emit(relax.op.nn.relu(b.emit(relax.op.exp(x))))
        return x

    return function([x], body)


@pytest.fixture
def nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """No function was rewritten before."""
    monkeypatch.setattr(Shared, "latest", Shared())


@pytest.mark.usefixtures("nothing_known")
def test_equal_calls_are_checked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    x = pat.Wildcard()
    rule = Subst(op.ReLU(op.Exp(x)), op.Sigmoid(op.Tanh(x)), name="two for two")
    assert calls_checked_alone(rule, chain(tensor("x", 4), 20), monkeypatch) == 2
    group = Subst(op.ReLU(op.Exp(x)), pat.Fused("group"), name="group")
    assert calls_checked_alone(group, chain(tensor("x", 4), 20), monkeypatch) == 1


@pytest.mark.usefixtures("nothing_known")
def test_several_groups_are_checked_alone() -> None:
    x = pat.Wildcard()

    def body(b: Any, x: Any) -> Any:
        for _ in range(10):
            x = b.emit(relax.op.tanh(b.emit(relax.op.sigmoid(b.emit(relax.op.nn.relu(b.emit(relax.op.exp(x))))))))
        return x

    groups = RuleSet([
        Subst(op.ReLU(op.Exp(x)), pat.Fused("one", codegen="some"), name="one"),
        Subst(op.Tanh(op.Sigmoid(x)), pat.Fused("other", codegen="some"), name="other"),
    ])
    new = groups(Workload.from_relax(function([tensor("x", 4)], body)))
    relax.analysis.well_formed(new.mod)
    assert [name for name in new.op_counts().elements() if name in ("one", "other")] == ["one"] * 10 + ["other"] * 10


@pytest.mark.usefixtures("nothing_known")
def test_what_was_checked_in_one_module_is_not_checked_in_others(monkeypatch: pytest.MonkeyPatch) -> None:
    x = pat.Wildcard()
    rule = Subst(op.ReLU(op.Exp(x)), op.Sqrt(op.Sin(x)), name="rule")

    def fail(*args: Any, **options: Any) -> None:
        raise ValueError("ill-formed")

    wl = Workload.from_relax(chain(tensor("x", 3), 20))
    with monkeypatch.context() as failing:
        failing.setattr(relax.analysis, "well_formed", fail)
        with pytest.raises(FrontEndError, match="ill-formed"):
            rule(wl)
    for expected in (2, None):
        with monkeypatch.context() as once:
            assert calls_checked_alone(rule, chain(tensor("x", 3), 20), once) == expected


@pytest.mark.parametrize("inside", [True, False])
def test_a_wrong_type_of_a_group_is_found(inside: bool) -> None:
    x, y = tensor("x", 4), tensor("y", 4)
    own = module_with(made("tanh", y, 5 if inside else 4), y)["main"].without_attr("global_symbol")
    var = ir.GlobalVar("group")
    _update_type(var, own.ty)
    group = ir.Call(var, [x])
    _update_type(group, tensor("x", 5).ty)
    module = ir.IRModule({**dict(module_with(group, x).functions.items()), var: own})
    with pytest.raises((TypeError, ValueError), match="tanh" if inside else "group"):
        check(module, module["main"], [group])


def test_types_that_the_view_does_not_show_in_full_are_checked_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    x = pat.Wildcard()
    rule = Subst(op.ReLU(op.Exp(x)), op.Sigmoid(op.Tanh(x)), name="two for two")
    device = relax.Var("x", relax.TensorType([4], "float32", VDevice("llvm")))
    assert calls_checked_alone(rule, chain(device, 20), monkeypatch) is None
    size = relax.Var("x", relax.TensorType([tirx.Var("n", "int64")], "float32"))
    assert calls_checked_alone(rule, chain(size, 20), monkeypatch) is None
