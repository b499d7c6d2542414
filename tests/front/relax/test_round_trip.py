"""What a rewrite does not touch comes back as it was, to the object."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import tvm
from tvm import relax
from tvm.relax.expr import _update_type

from gsl import Workload
from gsl.front.relax import from_module
from tests.front.relax.relax_helpers import Mixed, Net, exported, function, normed, tensor


def symbolic() -> Any:
    """Sizes that are variables, and a product of them."""
    n, m = tvm.tirx.Var("n", "int64"), tvm.tirx.Var("m", "int64")
    return function(
        [tensor("x", n, m), tensor("w", m, 8)],
        lambda b, x, w: b.emit(relax.op.reshape(b.emit(relax.op.matmul(x, w)), (n * 8,))),
    )


def dynamic() -> Any:
    """Sizes that are computed: sums, products, quotients."""
    n = tvm.tirx.Var("n", "int64")
    return function(
        [tensor("x", n, 4), tensor("y", n + 1, 4)],
        lambda b, x, y: b.emit(relax.op.reshape(b.emit(relax.op.concat((x, y), 0)), (4, n * 2 + 1))),
    )


def aliases() -> Any:
    """Variables bound to variables, in a block and after it, of which one is not used."""

    def body(b: Any, x: Any) -> Any:
        same = b.emit(relax.op.nn.relu(x))
        for _ in range(2):
            same = relax_alias(b, same)
        b.emit(relax.op.nn.relu(x))
        return same

    return function([tensor("x", 2)], body, dataflow=False)


def relax_alias(builder: Any, var: Any) -> Any:
    name = relax.Var("alias", var.ty)
    builder.emit_normalized(relax.VarBinding(name, var))
    return name


def checked_field() -> Any:
    """A field of a norm that is checked as it is taken."""
    x, c = tensor("x", 2, 3), tensor("c", 3)
    call = relax.BlockBuilder().normalize(relax.op.nn.batch_norm(x, c, c, c, c, axis=1, training=False))
    norm, y = relax.Var("norm", call.ty), tensor("y", 2, 3)
    cast = relax.MatchCast(y, relax.TupleGetItem(norm, 0), y.ty)
    body = relax.SeqExpr([relax.BindingBlock([relax.VarBinding(norm, call), cast])], y)
    _update_type(body, y.ty)
    return tvm.IRModule({"main": relax.Function([x, c], body, y.ty, True).with_attr("global_symbol", "main")})


def tuples() -> Any:
    """Nested tuples that are taken apart and returned."""

    def body(b: Any, x: Any, y: Any) -> Any:
        pair = b.emit(relax.Tuple([x, b.emit(relax.op.add(x, y))]))
        first = b.emit(relax.TupleGetItem(pair, 0))
        parts = b.emit(relax.op.split(first, 2, 0))
        return relax.Tuple([relax.Tuple([pair, parts]), first])

    return function([tensor("x", 2, 2), tensor("y", 2, 2)], body)


def renamed_result() -> Any:
    """The result is a tuple that is bound, of a variable which is bound to a variable."""

    def body(b: Any, x: Any) -> Any:
        return b.emit(relax.Tuple([relax_alias(b, x), b.emit(relax.op.nn.relu(x))]))

    return function([tensor("x", 2)], body, dataflow=False)


def early_result() -> Any:
    """The result is put together before the last effect, and has a part twice."""
    builder = relax.BlockBuilder()
    x = tensor("x", 2)
    with builder.function("main", [x], pure=False):
        with builder.dataflow():
            y = builder.emit_output(relax.op.exp(x))
            pair = builder.emit_output(relax.Tuple([x, y]))
        builder.emit(relax.op.print(y, format="{}"))
        builder.emit_func_output(relax.Tuple([pair, pair]))
    return builder.get()


def closure() -> Any:
    """A function within the function."""

    def body(b: Any, x: Any) -> Any:
        y = relax.Var("y", relax.TensorType((2,)))
        inner = relax.Var("r", relax.TensorType((2,)))
        block = relax.BindingBlock([relax.VarBinding(inner, b.normalize(relax.op.add(y, x)))])
        local = b.emit(relax.Function([y], relax.SeqExpr([block], inner), relax.TensorType((2,))))
        return b.emit(relax.Call(local, [x]))

    return function([tensor("x", 2)], body, dataflow=False)


def in_place() -> Any:
    return function([tensor("x", 2)], lambda b, x: b.emit(
        relax.op.call_inplace_packed("test.in_place", x, inplace_indices=[0], ty_args=relax.TensorType((2,)))
    ), dataflow=False)  # fmt: skip


MODULES: dict[str, Callable[[], Any]] = {
    "a network": lambda: exported(Net(), torch.randn(2, 3, 5, 5))[1],
    "a network with its weights as parameters": lambda: exported(
        Net(), torch.randn(2, 3, 5, 5), keep_params_as_input=True
    )[1],
    "functions, branches, packed calls": lambda: Mixed,
    "symbolic sizes": symbolic,
    "computed sizes": dynamic,
    "aliases": aliases,
    "tuples": tuples,
    "a renamed value in a tuple that is returned": renamed_result,
    "a result that is put together early": early_result,
    "a closure": closure,
    "a call in place": in_place,
    "a norm": lambda: normed(0),
    "a norm and an average": lambda: normed(0, 2),
    "an average": lambda: normed(1),
    "no field": normed,
    "a field that is checked": checked_field,
    "an input returned": lambda: function([tensor("x", 2)], lambda b, x: x, dataflow=False),
    "a constant returned": lambda: function([tensor("x", 2)], lambda b, x: relax.const(1.0), dataflow=False),
    "nothing returned": lambda: function([tensor("x", 2)], lambda b, x: relax.Tuple([]), dataflow=False),
    "a shape returned": lambda: function(
        [tensor("x", 2)], lambda b, x: relax.Tuple([relax.ShapeExpr([2, 3]), x]), dataflow=False
    ),
}


@pytest.mark.parametrize("name", MODULES)
def test_a_module_comes_back(name: str) -> None:
    module = MODULES[name]()
    program = from_module(module)
    stored = program.store(program.load())
    assert stored.module.same_as(module)
    assert stored.module["main"].same_as(module["main"])  # every block and binding came back as the same object


def test_the_view_of_a_network() -> None:
    _, module = exported(Net(), torch.randn(2, 3, 5, 5))
    assert Workload.from_relax(module).text() == """\
%x: float32[2, 3, 5, 5] = input
%lv_weight: float32[4, 3, 3, 3] = param
%lv: float32[2, 4, 5, 5] = nn.conv2d(%x, %lv_weight, padding=(1, 1, 1, 1))
%lv2_bias: float32[4] = param
%lv2: float32[2, 4, 5, 5] = nn.bias_add(%lv, %lv2_bias)
%lv4_gamma: float32[4] = param
%lv4_beta: float32[4] = param
%lv4_moving_mean: float32[4] = param
%lv4_moving_var: float32[4] = param
%lv4: float32[2, 4, 5, 5] = nn.batch_norm(%lv2, %lv4_gamma, %lv4_beta, %lv4_moving_mean, %lv4_moving_var)
%lv5: float32[2, 4, 5, 5] = nn.relu(%lv4)
%lv6: float32[2, 4] = mean(%lv5, axis=(2, 3))
%lv7: float32[2, 4] = multiply(%lv6, 2.0)
%lv9_weight: float32[2, 4] = param
%lv9: float32[2, 2] = nn.dense(%lv7, %lv9_weight)
%lv10_bias: float32[2] = param
%lv10: float32[2, 2] = nn.bias_add(%lv9, %lv10_bias)
return %lv10, %lv7"""


def test_the_view_of_functions_branches_and_packed_calls() -> None:
    assert Workload.from_relax(Mixed).text() == """\
%x: float32[4, 4] = input
%c: bool[] = input
%s: float32[n, 4] = input
%a: float32[4, 4] = add(%x, %x)
%b: float32[4, 4] = multiply(%a, 2.0)
%_: () = relax.print(%b, vals='{}') !observes
%y: float32[4, 4] = tvm.relax.expr.If(%c, %b, %x)
%h: float32[4, 4] = helper(%y)
%k: float32[4, 4] = test.packed(%h, out_ty=float32[4, 4]) !impure
%m: float32[4, 4] = test.dps(%h, %k, call='call_dps_packed', out_ty=float32[4, 4])
%t = relax.shape_of(%s)
%q: float32[4, 4] = tvm.relax.expr.MatchCast(%k, ty=float32[4, 4]) !observes
%e: float32[n, 4] = relax.reshape(%s, shape=t) with %t
return %m, %q, %e"""


def test_sizes_are_symbols_of_the_program() -> None:
    assert [str(type) for type in Workload.from_relax(dynamic()).inputs.values()] == [
        "float32[n, 4]", "float32[n + 1, 4]"
    ]  # fmt: skip
    program = from_module(dynamic())
    assert str(program.load().outputs[0].type) == "float32[4, 2*n + 1]"


def test_weights_share_memory_with_the_module() -> None:
    value = tvm.runtime.tensor(torch.arange(64.0).reshape(8, 8).numpy())
    module = function([tensor("x", 8, 8)], lambda b, x: b.emit(relax.op.add(x, relax.const(value))))
    program = from_module(module)
    (weight,) = program.params.values()
    node = next(node for node in program.load() if node.op == "param")
    assert weight.same_as(bindings_constant(module))
    assert node.attrs["value"].data_ptr() == torch.from_dlpack(weight).data_ptr()


def bindings_constant(module: Any) -> Any:
    return module["main"].body.blocks[0].bindings[0].value.args[1].value


def test_variables_of_one_name_are_told_apart() -> None:
    n, other = tvm.tirx.Var("n", "int64"), tvm.tirx.Var("n", "int64")
    module = function(
        [tensor("x", n), tensor("y", other)], lambda b, x, y: b.emit(relax.op.concat((x, y), 0))
    )
    program = from_module(module)
    types = list(program.inputs.values())
    assert types[0] != types[1]
    assert str(program.load().outputs[0].type) == "float32[n + n_1]"
    assert program.store(program.load()).module.same_as(module)
