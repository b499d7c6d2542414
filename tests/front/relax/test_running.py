"""Relax workloads: made from modules and expressions, run on the virtual machine, compared with other front ends."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import tvm
from torch import nn
from tvm import relax, topi

from gsl import Subst, Workload, op, pat
from gsl.errors import FrontEndError, WorkloadError
from gsl.front.relax.program import RelaxProgram
from gsl.graph import Node, TensorType
from tests.front.relax.relax_helpers import Net, exported, function, lines, tensor
from tests.helpers.book import EVERY_RULE

X = pat.Wildcard()


@pytest.fixture(scope="module")
def net() -> tuple[Any, Any, torch.Tensor]:
    x = torch.randn(2, 3, 5, 5, generator=torch.Generator().manual_seed(0))
    return (*exported(Net(), x), x)


def sums() -> Any:
    return function([tensor("x", 2, 3), tensor("y", 2, 3)], lambda b, x, y: relax.Tuple([
        b.emit(relax.op.add(x, y)), relax.Tuple([b.emit(relax.op.subtract(x, y))])
    ]))  # fmt: skip


# Making


def test_a_workload_of_a_module(net: Any) -> None:
    _, module, _ = net
    for wl in (Workload(module), Workload.from_relax(module, function="main", name="net")):
        assert wl.mod.same_as(module)
        assert list(wl.inputs) == ["x"]
        assert all(isinstance(value, tvm.runtime.Tensor) for value in wl.params.values())


def test_weights_are_given_by_name_or_as_detached() -> None:
    _, whole = exported(Net(), torch.zeros(1, 3, 4, 4), keep_params_as_input=True)
    module, params = relax.frontend.detach_params(whole)
    names = [var.name for var in module["main"].params][1:]
    by_name = dict(zip(names, params["main"]))
    for given in (params, by_name, {name: value.numpy() for name, value in by_name.items()}):
        wl = Workload.from_relax(module, given)
        assert list(wl.inputs) == ["x"]
        assert set(names) <= set(wl.params)
    assert list(Workload(module, by_name).inputs) == ["x"]
    assert list(Workload(module).inputs) == ["x", *names]


@pytest.mark.parametrize(
    ("params", "part"),
    [
        ({"wight": np.ones(2)}, "no parameter 'wight' for the value in params; did you mean 'weight'"),
        ({"weight": np.ones(3, "float32")}, "'weight' should be .*, but its value is float32\\[3\\]"),
        ({"weight": np.ones(2)}, "'weight' should be .*, but its value is float64\\[2\\]"),
        ([np.ones(2)], "expected params as a mapping"),
        ({"wight": [np.ones(2, "float32")]}, "no parameter 'wight' for the value in params; did you mean 'weight'"),
        ({"weight": [1.0, 1.0]}, "the weight 'weight' is of type list, expected a tensor"),
        ({"weight": 5}, "the weight 'weight' is of type int, expected a tensor"),
        ({"weight": np.array(["a", "b"])}, "the weight 'weight' is an array of <U1, expected a tensor"),
        ({"main": [np.ones(2, "float32")] * 3}, "there are 2 parameters, but 3 values in params"),
    ],
)
def test_weights_that_do_not_fit(params: Any, part: str) -> None:
    module = function([tensor("x", 2), tensor("weight", 2)], lambda b, x, w: b.emit(relax.op.add(x, w)))
    with pytest.raises(FrontEndError, match=part):
        Workload.from_relax(module, params)


def test_the_function_is_named_where_there_are_several() -> None:
    builder = relax.BlockBuilder()
    for name in ("one", "two"):
        x = tensor("x", 2)
        with builder.function(name, [x]):
            builder.emit_func_output(builder.emit(relax.op.exp(x)))
    module = builder.get()
    with pytest.raises(FrontEndError, match="several Relax functions, and none is called main: one, two"):
        Workload.from_relax(module)
    with pytest.raises(FrontEndError, match="no Relax function 'tow': did you mean 'two'"):
        Workload.from_relax(module, function="tow")
    wl = Workload.from_relax(module, function="two")
    np.testing.assert_allclose(wl(np.zeros(2)), np.ones(2))
    new = Subst(op.Exp(X), op.Sin(X), name="sine")(wl)
    assert lines(new.mod, "two") == ["sin = sin(x)"]
    assert new.mod["one"].same_as(module["one"])
    np.testing.assert_allclose(new(np.zeros(2)), np.zeros(2))


def test_what_is_no_relax_module() -> None:
    with pytest.raises(FrontEndError, match="but got a int"):
        Workload.from_relax(3)
    with pytest.raises(FrontEndError, match="no Relax function"):
        Workload.from_relax(tvm.IRModule({}))


@pytest.mark.parametrize(
    ("make", "part"),
    [
        (lambda: tvm.ir.Op.get("relax.nn.relu"), "relax.nn.relu computes nothing by itself; call it on variables"),
        (lambda: tvm.ir.GlobalVar("f"), "f computes nothing by itself"),
        (lambda: relax.op.matmul(tensor("x", 2, 3), tensor("y", 2, 3)), "can't make a function .* reduction length"),
    ],
    ids=["operator", "function", "ill-typed"],
)
def test_what_is_no_expression(make: Any, part: str) -> None:
    with pytest.raises(FrontEndError, match=part):
        Workload.from_expr(make())


def test_two_parameters_of_one_name() -> None:
    """The inputs are called as in the view; a value by name would be that of either."""
    expr = relax.op.subtract(tensor("x", 2), tensor("x", 2))
    wl = Workload.from_expr(expr)
    assert list(wl.inputs) == [node.name for node in wl.graph if node.op == "input"] == ["x", "x_1"]
    np.testing.assert_array_equal(wl(np.ones(2, "float32"), x_1=np.zeros(2, "float32")), np.ones(2))
    for make in (
        lambda: Workload.from_relax(wl.mod, {"x": np.ones(2, "float32")}),
        lambda: Workload.from_expr(expr, []),
    ):
        with pytest.raises(FrontEndError, match="several parameters are called 'x'; give them names of their own"):
            make()


def test_an_expression_with_random_weights() -> None:
    x, w = tensor("x", 2, 3), tensor("w", 4, 3)
    expr = relax.op.nn.relu(relax.op.matmul(x, relax.op.permute_dims(w)))
    wl = Workload.from_expr(expr, {"x"})
    assert list(wl.inputs) == ["x"]
    assert list(wl.params) == ["w"]
    assert "nn.dense(%x, %w)" in wl.text()
    again, other = Workload.from_expr(expr, {"x"}), Workload.from_expr(expr, {"x"}, seed=7)
    assert np.array_equal(wl.params["w"].numpy(), again.params["w"].numpy())
    assert not np.array_equal(wl.params["w"].numpy(), other.params["w"].numpy())
    given = np.ones((2, 3), "float32")
    np.testing.assert_allclose(wl(given), np.maximum(given @ wl.params["w"].numpy().T, 0), rtol=1e-5)


def test_all_variables_of_an_expression_or_function_are_inputs_unless_told() -> None:
    x, y = tensor("x", 2), tensor("y", 2)
    assert list(Workload.from_expr(relax.op.add(x, y)).inputs) == ["x", "y"]
    assert list(Workload.from_expr(sums()["main"], "y").inputs) == ["y"]
    with pytest.raises(FrontEndError, match="no variable 'z'"):
        Workload.from_expr(relax.op.add(x, y), {"z"})
    n = tvm.tirx.Var("n", "int64")
    with pytest.raises(FrontEndError, match="symbolic sizes; name it among the inputs"):
        Workload.from_expr(relax.op.add(x, tensor("w", n)), {"x"})
    with pytest.raises(FrontEndError, match="expression of Relax or Relay"):
        Workload.from_expr(3)


# Running


def test_a_run_returns_numpy_arrays_in_the_structure_of_the_result() -> None:
    wl = Workload.from_relax(sums()).build()
    x, y = np.full((2, 3), 5.0, "float32"), np.full((2, 3), 2.0, "float32")
    first, (second,) = wl(x, y=y)
    assert type(first) is type(second) is np.ndarray
    assert (first == 7).all()
    assert (second == 3).all()


def test_inputs_are_of_numpy_torch_or_tvm() -> None:
    wl = Workload.from_relax(sums())
    x = np.arange(6.0).reshape(2, 3)
    for y in (x, x.astype("float32"), torch.tensor(x).float(), tvm.runtime.tensor(x.astype("float32"))):
        assert (wl(y, x)[0] == 2 * x).all()
    assert (wl(torch.ones(3, 2).t(), x)[0] == x + 1).all()
    with pytest.raises(WorkloadError, match="the input 'x' should be float32\\[2, 3\\], but is float64"):
        wl(torch.tensor(x), x)
    with pytest.raises(WorkloadError, match="the input 'x' should be float32\\[2, 3\\], but is int64"):
        wl(x.astype("int64"), x)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "bool", "int8", "float8_e4m3fn"])
def test_other_dtypes(dtype: str) -> None:
    module = function([tensor("x", 2, dtype=dtype)], lambda b, x: b.emit(relax.op.reshape(x, (1, 2))))
    wl = Workload.from_relax(module)
    x = torch.tensor([0, 1]).to(getattr(torch, dtype))
    assert str(wl(x).dtype) == dtype
    assert wl.compare(wl, inputs=[x]).check()


def test_symbolic_sizes_are_given_for_random_inputs() -> None:
    n = tvm.tirx.Var("n", "int64")
    wl = Workload.from_relax(function([tensor("x", n, 2)], lambda b, x: b.emit(relax.op.exp(x))))
    (x,) = wl.random_inputs(sizes={"n": 3})
    assert wl(x).shape == (3, 2)


def test_tvm_says_what_it_cannot_compile() -> None:
    wl = Workload.from_relax(sums())
    with pytest.raises(FrontEndError, match="TVM can't compile 'main' for nonsense"):
        wl.build(target="nonsense")
    by_variable = function([tensor("x", 2, 3)], lambda b, x: b.emit(relax.op.reshape(x, b.emit(relax.op.shape_of(x)))))
    with pytest.raises(FrontEndError, match=r"TVM can't compile 'main' for .*: AssertionError"):
        Workload.from_relax(by_variable).build()


# Comparing


def test_the_same_model_on_two_front_ends(net: Any) -> None:
    program, module, x = net
    torch_wl, relax_wl = Workload.from_exported(program, name="torch"), Workload.from_relax(module, name="relax")
    assert torch_wl.compare(relax_wl).check()
    assert relax_wl.compare(torch_wl, inputs=[x]).check()
    assert torch_wl.compare(EVERY_RULE(relax_wl, iterative=True)).check()


def test_a_comparison_across_front_ends_can_fail(net: Any) -> None:
    program, module, _ = net
    rule = Subst(op.Multiply(X, 2.0), op.Multiply(X, 2.001), name="wrong")
    report = Workload.from_exported(program).compare(rule(Workload.from_relax(module)))
    assert not report
    half = Subst(op.Add(X, X), op.Cast(op.Add(X, X), dtype="float32"), name="unused")
    assert not half(Workload.from_relax(module)).trace.firings


def test_outputs_of_other_dtypes_differ() -> None:
    class Sum(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + x

    wl = Workload.from_torch(Sum(), torch.ones(2))
    module = function([tensor("x", 2)], lambda b, x: b.emit(relax.op.astype(relax.op.add(x, x), "float64")))
    report = wl.compare(Workload.from_relax(module))
    assert "dtype: expected float32[2], found float64[2]" in str(report)


def test_outputs_with_names_are_compared_by_position() -> None:
    class Named(nn.Module):
        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"sum": x + x, "zero": x - x}

    x = torch.ones(2)
    program, module = exported(Named(), x)
    report = Workload.from_exported(program).compare(Workload.from_relax(module)).check()
    assert {output.name for output in report.outputs} == {"sum", "zero"}


# Values ahead of time


def test_opaque_calls_of_weights_are_computed() -> None:
    weight = relax.const(np.float32([3, 1, 2]))
    module = function([tensor("x", 3)], lambda b, x: b.emit(relax.op.add(x, relax.op.negative(weight))))
    sort = pat.Call(tvm.ir.Op.get("relax.sort"), X, axis=-1, descending=False)
    new = Subst(op.Negative(X), sort, name="sorted")(Workload.from_relax(module))
    assert lines(new.mod)[0] == "lv1 = add(x, const)"
    np.testing.assert_allclose(new(np.zeros(3)), [1, 2, 3])


def test_calls_with_effects_are_not_computed() -> None:
    from gsl.front.relax import from_module
    from gsl.graph import Effect

    node = Node(tvm.ir.Op.get("relax.sort"), effect=Effect.OTHER, type=TensorType((2,), "float32"), name="n")
    with pytest.raises(FrontEndError, match="has effects"):
        from_module(sums()).evaluate(node, [torch.ones(2)])


# Copying


@pytest.mark.parametrize("way", ["deepcopy", "pickle"])
def test_a_copy_is_a_workload_of_its_own(way: str) -> None:
    size = tvm.tirx.Var("n", "int64")
    params = [tensor("x", size, 3), tensor("w", 3), tensor("unused", 3, dtype="bfloat16")]
    module = function(params, lambda b, x, w, unused: b.emit(relax.op.negative(b.emit(relax.op.negative(
        b.emit(relax.op.add(b.emit(relax.op.multiply(x, w)), relax.const(np.arange(3, dtype="float32"))))
    )))))  # fmt: skip
    values = {"w": np.array([1, 2, 3], "float32"), "unused": torch.ones(3, dtype=torch.bfloat16)}
    wl = Workload.from_relax(module, values)
    x = np.ones((2, 3), "float32")
    for each in (wl, Subst(op.Negative(op.Negative(X)), X, name="negative twice")(wl)):
        new = copy.deepcopy(each) if way == "deepcopy" else pickle.loads(pickle.dumps(each))
        assert (new.name, new.text()) == (each.name, each.text())
        tvm.ir.assert_structural_equal(new.mod, each.mod)
        np.testing.assert_allclose(new(x), each(x))


# In float64


def product(step: Callable[[Any, Any], Any]) -> Workload:
    """A product in float16, whose terms TVM adds up in float16, too."""
    weight = tensor("w", 8192, 8, dtype="float16")
    module = function([tensor("x", 8, 8192, dtype="float16"), weight], lambda b, x, w: b.emit(step(x, w)))
    return Workload.from_relax(module, {"w": np.random.default_rng(0).standard_normal((8192, 8)).astype("float16")})


def in_halves(x: Any, w: Any) -> Any:
    parts, rows = relax.op.split(x, 2, 1), relax.op.split(w, 2, 0)
    return relax.op.add(*[relax.op.matmul(parts[half], rows[half], out_dtype="float16") for half in range(2)])


def test_rounding_of_a_long_product_passes_as_float64_shows_it() -> None:
    whole, halves = product(relax.op.matmul), product(in_halves)
    off = product(lambda x, w: relax.op.multiply(relax.const(1.02, "float16"), relax.op.matmul(x, w)))
    assert "ok (by rounding: " in str(whole.compare(halves))
    assert not whole.compare(halves, rtol=2.5e-3)
    (row,) = whole.compare(off).outputs
    assert not row.passed
    assert "by rounding" not in row.reason


def in_float64(wl: Workload, value: Any) -> Any:
    assert isinstance(wl.program, RelaxProgram)
    return wl.program.in_float64()(wl.program.wide(value))


@pytest.mark.parametrize("make", [
    lambda x: relax.op.astype(relax.op.astype(x, "float16"), "float32"),
    lambda x: relax.op.subtract(x, relax.op.full((2, 3), relax.const(0.0, "float32"), "float32")),
    lambda x: relax.op.concat(relax.op.split(relax.op.astype(x, "bfloat16"), 3, 1), 1),
    lambda x: relax.op.cumsum(relax.op.astype(x, "float16"), 0, dtype="float32", exclusive=False),
], ids=["casts", "constants", "tuples", "attributes"])  # fmt: skip
def test_all_narrow_floats_are_wide(make: Callable[[Any], Any]) -> None:
    x = np.linspace(-2, 2, 6, dtype="float32").reshape(2, 3)
    module = function([tensor("x", 2, 3)], lambda b, x: b.emit(make(x)))
    found = in_float64(Workload(module), x)
    assert found.dtype == np.float64
    assert np.array_equal(found, x.astype("f8").cumsum(0) if "cumsum" in str(module) else x)


def test_a_layer_norm_in_float64() -> None:
    draw = torch.Generator().manual_seed(0)
    x, g, b = [torch.randn(*shape, generator=draw) for shape in ((4, 5, 6), (5, 6), (5, 6))]
    params = [tensor("x", 4, 5, 6), tensor("g", 5, 6), tensor("b", 5, 6)]
    norm = function(params, lambda bb, *args: bb.emit(relax.op.nn.layer_norm(*args, axes=[-2, -1], epsilon=1e-3)))
    expected = torch.nn.functional.layer_norm(x.double(), (5, 6), g.double(), b.double(), eps=1e-3)
    found = in_float64(Workload.from_relax(norm, {"g": g, "b": b}), x)
    np.testing.assert_allclose(found, expected, rtol=1e-13)


def test_a_kernel_of_one_dtype_is_not_run_in_float64() -> None:
    module = function([tensor("x", 2, 3)], lambda b, x: b.emit_te(lambda t: topi.add(t, t), x))
    wl = Workload(module)
    assert wl.in_float64({"x": np.zeros((2, 3), "float32")}, 0) == []
