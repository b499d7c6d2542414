"""What the view of a program of Relay holds, and that what is not rewritten comes back as the same expressions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relay

from gsl import Subst, Workload, op, pat
from gsl.errors import FrontEndError
from gsl.front.relay import from_module
from gsl.graph import LEAVES, Effect
from tests.front.relay.helpers import body, exprs, loaded, module_of, random, var, workload

X = var("x", 2, 3)


def once() -> Subst:
    """relu(relu(x)) = relu(x)"""
    a = pat.Wildcard()
    return Subst(op.ReLU(op.ReLU(a)), op.ReLU(a), name="once")


def twice(expr: Any) -> Any:
    return relay.nn.relu(relay.nn.relu(expr))


def batch_norm() -> Any:
    return relay.nn.batch_norm(var("x", 1, 2, 4, 4), *[var(name, 2) for name in ("gamma", "beta", "mean", "var")])


def conditional() -> Any:
    return relay.If(var("c", dtype="bool"), relay.exp(X), relay.tanh(X))


def closure() -> Any:
    inner = var("inner", 2, 3)
    return relay.Call(relay.Function([inner], relay.exp(inner) + X), [relay.tanh(X)])


def bound() -> Any:
    name = var("name", 2, 3)
    return relay.Let(name, relay.exp(X), name + name)


def matched() -> Any:
    return relay.TupleGetItem(relay.split(relay.concatenate([X, relay.exp(X)], 1), 2, 1).astuple(), 1)


def read() -> Any:
    return relay.RefRead(relay.RefCreate(relay.exp(X)))


PROGRAMS: dict[str, Callable[[], Any]] = {
    "a variable": lambda: X,
    "a constant": lambda: relay.const([1.0, 2.0]),
    "a call": lambda: relay.exp(X),
    "an unknown operator": lambda: relay.sort(relay.exp(X), axis=1),
    "a tuple": lambda: relay.Tuple([X, relay.exp(X), X]),
    "tuples in a tuple": lambda: relay.Tuple([relay.Tuple([X, relay.exp(X)]), relay.Tuple([])]),
    "a split": matched,
    "all of a split": lambda: relay.split(X, 3, 1).astuple(),
    "batch norm": lambda: batch_norm()[0],
    "all of a batch norm": lambda: batch_norm().astuple(),
    "numbers": lambda: relay.maximum(X * relay.const(2.0), relay.const(0.5)) + relay.const(np.float32(1e-5)),
    "a convolution": lambda: relay.nn.conv2d(var("x", 1, 4, 8, 8), var("w", 6, 2, 3, 3), padding=(1, 0), groups=2),
    "a bias": lambda: relay.nn.bias_add(relay.nn.dense(X, var("w", 4, 3)), var("b", 4)),
    "a conditional": conditional,
    "a closure": closure,
    "a let": bound,
    "a reference": read,
    "an unknown size": lambda: relay.nn.relu(var("x", relay.Any(), 3) + var("y", 1, 3)),
    "a symbolic size": lambda: relay.exp(relay.var("x", relay.TensorType((tvm.tir.Var("n", "int64"), 3)))),
    "integers": lambda: relay.take(var("w", 5, 3), var("i", 2, dtype="int32"), axis=0),
    "strings of layouts": lambda: relay.layout_transform(var("x", 1, 4, 8, 8), "NCHW", "NCHW4c"),
    "random numbers": lambda: relay.random.uniform(relay.random.threefry_key(0), (2, 3)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_untouched_comes_back_as_it_was(name: str):
    module = module_of(PROGRAMS[name]())
    wl = loaded(module)
    stored = wl.replace(wl.graph.copy())
    assert stored.mod.same_as(module)
    assert stored.native.same_as(module)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_module_without_types_is_not_changed(name: str):
    expr = PROGRAMS[name]()
    module = tvm.IRModule.from_expr(relay.Function(relay.analysis.free_vars(expr), expr))
    before = str(module)
    wl = loaded(module)
    assert wl.replace(wl.graph.copy()).mod.same_as(module)
    assert str(module) == before


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name not in ("a constant", "a reference")])
def test_a_rewrite_beside_it_keeps_every_expression(name: str):
    """The program and a relu of a relu are returned together; the relus are rewritten, and nothing else."""
    expr = PROGRAMS[name]()
    other = twice(var("other", 2, 2))
    module = module_of(relay.Tuple([expr, other]))
    new = once()(loaded(module))
    kept, changed = new.mod["main"].body.fields
    assert kept.same_as(module["main"].body.fields[0])
    assert len(exprs(changed)) == 3  # a variable, an operator, a call


@pytest.mark.parametrize(
    "name", ["a call", "an unknown operator", "a tuple", "a split", "numbers", "a conditional", "a let"]
)
def test_a_rewrite_before_it_rebuilds_it(name: str):
    """What uses the variable x is given a relu of a relu for it, which is rewritten."""
    function = module_of(PROGRAMS[name]())["main"]
    x = next(v for v in function.params if v.name_hint == "x")
    with_two, with_one = (
        module_of(relay.bind(function.body, {x: value}), *function.params) for value in (twice(x), relay.nn.relu(x))
    )
    new = once()(loaded(with_two))
    if name in ("a let", "a conditional"):  # what is inside them stays as it is
        assert tvm.ir.structural_equal(new.mod, with_two)
    else:
        tvm.ir.assert_structural_equal(new.mod, relay.transform.InferType()(with_one))


VIEWS = {
    "numbers": """\
%x: float32[2, 3] = input
%multiply: float32[2, 3] = multiply(%x, 2.0)
%maximum: float32[2, 3] = maximum(%multiply, 0.5)
%add: float32[2, 3] = add(%maximum, 1e-05)
return %add""",
    "a split": """\
%x: float32[2, 3] = input
%exp: float32[2, 3] = exp(%x)
%concatenate: float32[2, 6] = concatenate((%x, %exp), axis=1)
%split: (float32[2, 3], float32[2, 3]) = split(%concatenate, indices_or_sections=(3,), axis=1)
return %split[1]""",
    "batch norm": """\
%x: float32[1, 2, 4, 4] = input
%gamma: float32[2] = input
%beta: float32[2] = input
%mean: float32[2] = input
%var: float32[2] = input
%batch_norm: float32[1, 2, 4, 4] = nn.batch_norm(%x, %gamma, %beta, %mean, %var)
return %batch_norm""",
    "an unknown operator": """\
%x: float32[2, 3] = input
%exp: float32[2, 3] = exp(%x)
%sort: float32[2, 3] = sort(%exp, axis=1, is_ascend=True, dtype='')
return %sort""",
    "a conditional": """\
%c: bool[] = input
%x: float32[2, 3] = input
%if: float32[2, 3] = tvm.relay.expr.If(%c) with %x
return %if""",
    "a let": """\
%x: float32[2, 3] = input
%let: float32[2, 3] = tvm.relay.expr.Let() with %x
return %let""",
    "a closure": """\
%x: float32[2, 3] = input
%tanh: float32[2, 3] = tanh(%x)
%function: float32[2, 3] = tvm.relay.function.Function(%tanh, function=Function) with %x
return %function""",
    "a reference": """\
%x: float32[2, 3] = input
%refread: float32[2, 3] = tvm.relay.expr.RefRead() with %x !impure
return %refread""",
    "tuples in a tuple": """\
%x: float32[2, 3] = input
%exp: float32[2, 3] = exp(%x)
return %x, %exp""",
    "an unknown size": """\
%x: float32[any0, 3] = input
%y: float32[1, 3] = input
%add: float32[any0, 3] = add(%x, %y)
%relu: float32[any0, 3] = nn.relu(%add)
return %relu""",
    "a symbolic size": """\
%x: float32[n, 3] = input
%exp: float32[n, 3] = exp(%x)
return %exp""",
}


@pytest.mark.parametrize("name", VIEWS)
def test_the_view(name: str):
    assert loaded(module_of(PROGRAMS[name]())).text() == VIEWS[name]


def test_the_inputs_and_the_weights():
    x, w, unused = var("x", 2, 3), var("w", 4, 3), var("unused", 7)
    module = module_of(relay.nn.dense(x, w), w, unused, x)
    wl = loaded(module, {"w": random(4, 3), "no such variable": random(1)})
    assert list(wl.inputs) == ["unused", "x"]
    assert list(wl.params) == ["w"]
    assert [(node.op, node.name) for node in wl.graph] == [
        ("param", "w"), ("input", "unused"), ("input", "x"), ("nn.dense", "dense")
    ]  # fmt: skip


def test_a_constant_with_axes_is_a_weight():
    import torch

    wl = loaded(module_of(relay.nn.dense(X, relay.const(random(4, 3)))))
    (const,) = [node for node in wl.graph if node.op == "param"]
    assert torch.equal(const.attrs["value"], torch.from_numpy(random(4, 3)))


def test_a_rule_takes_constants_and_variables_with_values_for_weights():
    found = pat.Wildcard() + pat.Param()
    rule = Subst(op.ReLU(found), op.Exp(found))
    weight = random(3)
    variable, constant = relay.var("w", shape=(3,)), relay.const(weight)
    workloads = [
        loaded(module_of(relay.nn.relu(X + variable), X, variable), {"w": weight}),
        loaded(module_of(relay.nn.relu(X + constant), X)),
    ]
    for wl in workloads:
        assert rule(wl).op_counts() == {"add": 1, "exp": 1}
    number = Subst(op.ReLU(pat.Wildcard() + (pat.Const() | pat.Param())), lambda match: list(match.outputs))
    for value in (relay.const(1.0), constant, relay.const(random(1))):
        assert len(list(number.match(loaded(module_of(relay.nn.relu(X + value), X))))) == 1


def test_random_numbers_are_an_effect():
    wl = loaded(module_of(PROGRAMS["random numbers"]()))
    assert {node.effect for node in wl.graph if node.op not in LEAVES} == {Effect.RANDOM}


def test_variables_that_share_a_name_are_told_apart():
    first, second = var("x", 2, 3), var("x", 2, 3)
    module = tvm.IRModule.from_expr(relay.Function([first, second], twice(first) - second))
    wl = loaded(module)
    assert list(wl.inputs) == ["x", "x_1"]
    a, b = random(2, 3), random(2, 3, seed=1)
    assert np.allclose(wl(a, b), np.maximum(a, 0) - b)
    new = once()(wl)
    assert np.allclose(new(x=a, x_1=b), np.maximum(a, 0) - b)
    assert [str(v.name_hint) for v in new.mod["main"].params] == ["x", "x"]


ERRORS = {
    "no main": (lambda: tvm.IRModule(), "no function @main"),
    "not of Relay": (lambda: 3, "expected an IRModule of Relay, but got a int"),
    "ill-typed": (lambda: relay.Function([X], relay.nn.dense(X, relay.const(random(2)))), "Relay finds no types"),
    "no variable": (lambda: relay.Function([], X), "uses %x, which is not among its variables"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_what_is_no_program(name: str):
    make, message = ERRORS[name]
    with pytest.raises(FrontEndError, match=message):
        Workload(from_module(make())).graph


def test_a_weight_of_another_type():
    message = r"'w' should be Tensor\[\(4, 3\), float32\], but is Tensor\[\(4, 2\), float32\]"
    with pytest.raises(FrontEndError, match=message):
        loaded(module_of(relay.nn.dense(X, var("w", 4, 3))), {"w": random(4, 2)}).graph


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"v": random(4, 3)}, "there is no parameter 'v' for the value in params; known are w, x"),
        ({"w": random(4, 3), "x2": random(2, 3)}, "there is no parameter 'x2' .* did you mean 'x'"),
        ({"w": [random(4, 3)]}, "the weight 'w' is of type list, expected a tensor"),
        ({"w": None}, "the weight 'w' is of type NoneType, expected a tensor"),
        ({"w": np.array("w")}, "the weight 'w' is an array of <U1, expected a tensor"),
        ([random(4, 3)], "expected params as a mapping of names to tensors, but got a list"),
    ],
)
def test_weights_that_do_not_fit(params: Any, message: str):
    with pytest.raises(FrontEndError, match=message):
        Workload.from_relay(module_of(relay.nn.dense(X, var("w", 4, 3))), params)


def test_a_program_is_shown_by_its_body():
    assert body(once()(workload(twice(X)))) == "nn.relu(%x)"


def test_unread_calls_have_their_reasons():
    x = var("x", 2, 3, 4)
    update = relay.scatter_elements(x, relay.const(np.zeros((2, 3, 4), "int32")), x, 1, "add")
    found = workload(relay.Tuple([relay.sort(x), relay.exp(x), update]), "x").unread()
    reasons = {each.op: each.reason for each in found}
    assert reasons["sort"] == "no canonical operator is spelled so"
    assert "no reading with float32[2, 3, 4], int32[2, 3, 4], float32[2, 3, 4], axis=1" in reasons["scatter_elements"]
    assert 'has to meet: reduction == "update"' in reasons["scatter_elements"]
    assert (len(found), found.total) == (2, 3)
