"""Rewritten functions: what is new stands where the old was, and everything else stays."""

from __future__ import annotations

import pickle
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
import tvm
from tvm import relax, te
from tvm.script import ir as I
from tvm.script import relax as R

import gsl.relax
from gsl import RuleSet, Subst, Workload, op, pat
from gsl.errors import FrontEndError, PatternError, UntypedWarning
from gsl.front.relax import from_module
from gsl.graph import CONST, PARAM, Graph, Node, TensorType
from gsl.rules import IDIOMS
from tests.front.relax.relax_helpers import Mixed, Net, bindings, exported, function, lines, normed, tensor
from tests.helpers.book import EVERY_RULE

X, Y, Z, W = pat.Wildcard(), pat.Wildcard(), pat.Wildcard(), pat.Param()
DOUBLE = Subst(op.Add(X, X), op.Multiply(X, 2.0), name="double")
RELU_TWICE = Subst(op.ReLU(op.ReLU(X)), op.ReLU(X), name="relu twice")


def rewritten(rule: Any, module: Any, **options: Any) -> Any:
    """The module after a rule that has to fire."""
    new = rule(Workload.from_relax(module), **options)
    assert new.trace.firings, new.trace
    relax.analysis.well_formed(new.mod)
    return new.mod


def chain(*names: str) -> Any:
    """``relu``, ``exp``, … of an input, one after the other in one block."""

    def body(builder: Any, x: Any) -> Any:
        for name in names:
            x = builder.emit(getattr(relax.op.nn if name == "relu" else relax.op, name)(x))
        return x

    return function([tensor("x", 2)], body)


def test_what_is_new_stands_where_the_old_was() -> None:
    module = chain("exp", "relu", "relu", "sin")
    new = rewritten(RELU_TWICE, module)
    assert lines(new) == ["lv = exp(x)", "relu = nn.relu(lv)", "lv3 = sin(relu)", "gv = lv3"]
    assert bindings(new)[0].same_as(bindings(module)[0])
    assert bindings(new)[-1].same_as(bindings(module)[-1])
    assert isinstance(bindings(new)[1].var, relax.DataflowVar)
    assert len(new["main"].body.blocks) == 1


def test_the_original_is_as_it_was() -> None:
    module = chain("relu", "relu")
    text = module.script()
    rewritten(RELU_TWICE, module)
    assert module.script() == text


def test_a_module_with_its_params_again() -> None:
    """Constants of the function are among the params."""

    def body(builder: Any, x: Any, w: Any) -> Any:
        return builder.emit(relax.op.add(builder.emit(relax.op.multiply(x, w)), relax.const(np.ones(2, "float32"))))

    old = Workload.from_relax(function([tensor("x", 2), tensor("w", 2)], body), {"w": np.full(2, 3, "float32")})
    assert len(old.params) == 2
    old.compare(Workload.from_relax(old.mod, old.params)).check()
    (constant,) = old.params.keys() - {"w"}
    with pytest.raises(FrontEndError, match=f"there is no parameter '{constant}'"):
        Workload.from_relax(old.mod, {**old.params, constant: np.zeros(2, "float32")})


def test_a_number_that_is_a_parameter() -> None:
    """As TVM imports a model of ONNX with ``keep_params_in_input=True``; another value of the same type tells apart."""

    def body(builder: Any, x: Any, half: Any, one: Any, root: Any, two: Any) -> Any:
        emit, o = builder.emit, relax.op
        for factor in (half, two):
            inner = emit(o.add(emit(o.erf(emit(o.divide(x, root)))), one))
            x = emit(o.multiply(emit(o.multiply(x, factor)), inner))
        return emit(o.multiply(x, half))

    numbers = {"half": 0.5, "one": 1.0, "root": 2**0.5, "two": 2.0}
    values = {name: np.float32(value) for name, value in numbers.items()}
    module = function([tensor("x", 3, 4), *map(tensor, values)], body)
    wl = Workload.from_relax(module, values)
    assert RELU_TWICE(wl).mod.same_as(module)
    new = IDIOMS(wl)
    assert new.op_counts()["gelu"] == 1
    assert lines(new.mod)[-3:] == ["lv9 = multiply(lv8, lv7)", "lv10 = multiply(lv9, half)", "gv = lv10"]
    assert list(new.params) == list(values)
    wl.compare(new).check()
    assert not IDIOMS(Workload.from_relax(module)).trace.firings


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x * torch.clamp(x + 3, 0, 6) / 6,
        lambda x: torch.relu(1 - torch.exp(x)) * -0.5 + torch.relu(x),
    ],
    ids=["hardswish", "elu"],
)
def test_what_is_written_as_its_parts_is_not_written_again(function: Any) -> None:
    class Module(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return function(x)  # type: ignore[no-any-return]

    once = IDIOMS(Workload.from_relax(exported(Module(), torch.ones(2, 3, 4))[1]), iterative=True)
    wl = Workload.from_relax(once.mod)
    again = IDIOMS(wl, iterative=True)
    assert not again.trace.firings, again.trace
    assert again.mod.same_as(once.mod)
    assert "Relax would write what the rules made in the words that are there" in str(again.trace)


def test_a_new_output_is_visible() -> None:
    new = rewritten(RELU_TWICE, chain("relu", "relu"))
    assert lines(new) == ["relu = nn.relu(x)"]
    assert not isinstance(new["main"].body.body, relax.DataflowVar)


def test_other_functions_blocks_branches_and_effects_stay() -> None:
    new = rewritten(DOUBLE, Mixed)
    assert lines(new)[0] == "multiply = multiply(x, 2.0)"
    for before, after in list(zip(bindings(Mixed), bindings(new)))[2:]:
        assert before.same_as(after)
    assert new["helper"].same_as(Mixed["helper"])
    assert {var.name_hint for var in new.functions} == {"main", "helper"}
    kinds = [type(block) for block in new["main"].body.blocks]
    assert kinds == [relax.DataflowBlock, relax.BindingBlock]


def test_a_variable_that_a_branch_uses_is_replaced_within() -> None:
    rule = Subst(op.Multiply(X, pat.Const(2.0)), op.Add(X, X), name="sum")
    new = rewritten(rule, Mixed)
    condition = next(binding.value for binding in bindings(new) if isinstance(binding.value, relax.If))
    names = {var.name for var in relax.analysis.free_vars(condition)}
    assert "b" not in {binding.var.name for binding in bindings(new)}
    assert names == {"c", "x", "add"}


def test_a_second_block_sees_what_the_first_computes_anew() -> None:
    """The replaced variable was visible, so that which replaces it is too."""
    builder = relax.BlockBuilder()
    x = tensor("x", 2)
    with builder.function("main", [x], pure=False):
        with builder.dataflow():
            a = builder.emit_output(builder.emit(relax.op.nn.relu(builder.emit(relax.op.nn.relu(x)))))
        builder.emit(relax.op.print(a, format="{}"))
        with builder.dataflow():
            b = builder.emit_output(relax.op.exp(a))
        builder.emit_func_output(b)
    new = rewritten(RELU_TWICE, builder.get())
    assert lines(new) == ["relu = nn.relu(x)", "gv1 = print(StringImm, relu)", "gv2 = exp(relu)"]
    assert [len(block.bindings) for block in new["main"].body.blocks] == [1, 1, 1]


def test_an_inner_variable_that_becomes_the_output_gets_a_visible_name() -> None:
    rule = Subst(op.Negative(op.Negative(X)), X, name="negative twice")
    new = rewritten(rule, chain("exp", "negative", "negative"))
    assert lines(new)[0] == "lv = exp(x)"
    assert not isinstance(new["main"].body.body, relax.DataflowVar)


def test_an_input_that_becomes_the_output() -> None:
    rule = Subst(op.Negative(op.Negative(X)), X, name="negative twice")
    new = rewritten(rule, chain("negative", "negative"))
    assert new["main"].body.body.same_as(new["main"].params[0])
    assert lines(new) == []


def test_a_function_without_a_block_gets_one() -> None:
    module = function([tensor("x", 2)], lambda b, x: x, dataflow=False)
    program = from_module(module)
    view = program.load()
    exp = Node("exp", (view.outputs[0],), {}, view.outputs[0].type, name="made")
    new = program.store(Graph([*view.nodes, exp], [exp], view.infer)).module
    assert lines(new) == ["made = exp(x)"]
    assert isinstance(new["main"].body.blocks[0], relax.DataflowBlock)


def test_source_locations_are_inherited() -> None:
    new = rewritten(DOUBLE, Mixed)
    assert bindings(Mixed)[0].value.span is not None
    assert bindings(new)[0].value.span.same_as(bindings(Mixed)[0].value.span)
    assert bindings(new)[0].span.same_as(bindings(Mixed)[0].value.span)


def test_fields_of_the_result_are_replaced_in_its_tuple() -> None:
    def body(b: Any, x: Any) -> Any:
        y = b.emit(relax.op.nn.relu(b.emit(relax.op.nn.relu(x))))
        return relax.Tuple([y, relax.Tuple([x, y])])

    new = rewritten(RELU_TWICE, function([tensor("x", 2)], body))
    assert lines(new) == ["relu = nn.relu(x)", "gv = (relu, (x, relu))"]


# What readings see through


def linear(b: Any, x: Any, w: Any) -> Any:
    return b.emit(relax.op.matmul(x, b.emit(relax.op.permute_dims(w))))


def test_a_linear_layer_keeps_its_transposed_weight() -> None:
    module = function([tensor("x", 2, 3), tensor("w", 4, 3)], lambda b, x, w: linear(
        b, b.emit(relax.op.nn.relu(b.emit(relax.op.nn.relu(x)))), w
    ))  # fmt: skip
    assert "nn.dense(%lv1, %w)" in Workload.from_relax(module).text()
    new = rewritten(RELU_TWICE, module)
    assert lines(new) == ["relu = nn.relu(x)", "lv2 = permute_dims(w)", "lv3 = matmul(relu, lv2)", "gv = lv3"]
    assert bindings(new)[1].same_as(bindings(module)[2])


def test_a_new_weight_of_a_linear_layer_goes_through_the_transposition() -> None:
    rule = Subst(op.Dense(X, op.Negative(W)), op.Dense(X, op.Multiply(W, -1.0)), name="minus")
    module = function(
        [tensor("x", 2, 3)],
        lambda b, x: linear(b, x, b.emit(relax.op.negative(relax.const(np.ones((4, 3), "float32"))))),
    )
    new = rewritten(rule, module)
    assert [line.partition(" = ")[2] for line in lines(new)][:2] in (
        ["permute_dims(const)", "matmul(x, dense_permute_dims)"], ["permute_dims(const)", "matmul(x, lv1)"]
    )  # fmt: skip


def test_a_transposition_that_others_use_stays_for_them() -> None:
    def body(b: Any, x: Any, w: Any) -> Any:
        turned = b.emit(relax.op.permute_dims(w))
        return b.emit(relax.op.add(b.emit(relax.op.matmul(x, turned)), b.emit(relax.op.nn.relu(turned))))

    module = function([tensor("x", 3, 3), tensor("w", 3, 3)], body)
    text = Workload.from_relax(module).text()
    assert "transpose(%w" in text
    assert "nn.dense(%x, %w)" in text
    rule = Subst(op.Dense(X, Y), op.Dense(Y, X), name="turned around")
    assert [line.partition(" = ")[2] for line in lines(rewritten(rule, module))][:1] == ["permute_dims(w)"]


def test_batch_norm_keeps_its_call_and_its_field() -> None:
    _, module = exported(Net(), torch.randn(1, 3, 4, 4))
    rule = Subst(op.BiasAdd(X, W), op.Add(X, op.ExpandDims(W, axis=1, num_newaxis=2)), name="bias as a sum")
    new = rewritten(rule, module, fold_params=False)
    norm = [line for line in lines(new) if "batch_norm" in line]
    assert norm == ["lv3 = nn.batch_norm(add, const, const, const, const)"]
    assert "lv4 = lv3[0]" in lines(new)


@pytest.mark.parametrize(("fields", "is_read"), [((0,), True), ((0, 2), False), ((1,), False)])
def test_fields_that_nobody_uses_stay_with_their_call(fields: tuple[int, ...], is_read: bool) -> None:
    wl = Workload(normed(*fields))
    new = RELU_TWICE(wl)
    assert lines(new.mod)[:5] == [
        "relu = nn.relu(x)", "lv2 = nn.batch_norm(relu, const, const, const, const)",
        "lv3 = lv2[1]", "lv4 = lv2[0]", "lv5 = lv2[2]",
    ]  # fmt: skip
    wl.compare(new).check()
    replaced = Subst(op.BatchNorm(X, *[pat.Param() for _ in range(4)]), op.Negative(X), name="replaced")(wl)
    assert ("lv2[" not in str(lines(replaced.mod))) == is_read


# Weights


def test_folded_weights_become_constants() -> None:
    _, module = exported(Net(), torch.randn(1, 3, 4, 4))
    wl = Workload.from_relax(module)
    new = EVERY_RULE(wl, iterative=True)
    assert "nn.batch_norm" not in new.op_counts()
    assert wl.compare(new).check()
    assert len(new.mod["main"].params) == 1


def test_folded_weights_become_parameters_where_weights_are_parameters() -> None:
    _, module = exported(Net(), torch.randn(1, 3, 4, 4), keep_params_as_input=True)
    module, params = relax.frontend.detach_params(module)
    wl = Workload.from_relax(module, params)
    assert list(wl.inputs) == ["x"]
    new = EVERY_RULE(wl, iterative=True)
    names = [var.name for var in new.mod["main"].params]
    assert names[0] == "x"
    assert "p_conv_weight" not in names  # it went into the folded one, which is named after it
    assert any(name.startswith("p_conv_weight_") for name in names)
    assert set(names[1:]) <= set(new.params)
    assert int(new.mod["main"].attrs["num_input"]) == 1
    assert wl.compare(new).check()


def test_a_weight_of_symbolic_size_is_not_folded() -> None:
    """Its size is that of an input, which a value does not tell."""
    n = tvm.tirx.Var("n", "int64")
    module = function([tensor("x", 2, n), tensor("w", n)], lambda b, x, w: b.emit(
        relax.op.multiply(b.emit(relax.op.negative(x)), w)
    ))  # fmt: skip
    wl = Workload.from_relax(module, {"w": np.ones(3, "float32")})
    new = Subst(op.Multiply(op.Negative(X), W), op.Multiply(X, op.Negative(W)), name="sign of the weight")(wl)
    assert lines(new.mod)[:2] == ["negative = negative(w)", "multiply = multiply(x, negative)"]
    wl.compare(new, inputs=[np.ones((2, 3), "float32")]).check()


def test_a_function_that_another_one_calls_keeps_its_parameters() -> None:
    builder = relax.BlockBuilder()
    x, w = tensor("x", 2), tensor("w", 2)
    with builder.function("main", [x, w]):
        builder.emit_func_output(builder.emit(relax.op.add(x, builder.emit(relax.op.negative(w)))))
    callee = builder.get().get_global_var("main")
    y = tensor("y", 2)
    with builder.function("outer", [y]):
        builder.emit_func_output(builder.emit(relax.Call(callee, [y, y])))
    wl = Workload.from_relax(builder.get(), {"w": np.ones(2, "float32")})
    rule = Subst(op.Add(X, op.Negative(W)), op.Subtract(X, op.Multiply(W, 1.0)), name="difference")
    new = rule(wl)
    assert new.trace.firings
    assert [var.name for var in new.mod["main"].params] == ["x", "w"]
    relax.analysis.well_formed(new.mod)


def test_a_function_that_another_one_calls_does_not_come_to_return_its_input() -> None:
    """The caller may write to the result in place, and read the input afterwards."""
    builder = relax.BlockBuilder()
    x, y = tensor("x", 2), tensor("y", 2)
    with builder.function("helper", [x]):
        builder.emit_func_output(builder.emit(relax.op.maximum(x, x)))
    helper = builder.get().get_global_var("helper")
    with builder.function("main", [y]):
        result = builder.emit(relax.Call(helper, [y]))
        builder.emit(relax.op.call_inplace_packed("test.add_one", result, inplace_indices=[0], ty_args=x.ty))
        builder.emit_func_output(y)
    rule = Subst(op.Maximum(X, X), X, name="once")
    new = rule(Workload(from_module(builder.get(), function="helper")))
    assert lines(new.mod, "helper") == ["gv = maximum(x, x)"]
    assert "must not share memory with %x" in str(new.trace)


def test_tied_weights_stay_tied() -> None:
    weight = relax.const(np.ones((3, 3), "float32"))
    module = function([tensor("x", 3, 3)], lambda b, x: b.emit(
        relax.op.matmul(b.emit(relax.op.matmul(x, weight)), weight)
    ))  # fmt: skip
    assert [node.op for node in Workload.from_relax(module).graph].count("param") == 1


# Numbers


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "bool", "bfloat16"])
def test_a_constant_without_axes_is_a_number(dtype: str) -> None:
    combine = relax.op.logical_and if dtype == "bool" else relax.op.multiply
    module = function([tensor("x", 2, dtype=dtype)], lambda b, x: b.emit(combine(x, relax.const(1, dtype))))
    (number,) = [node for node in Workload.from_relax(module).graph if node.op == CONST]
    assert number.attrs["value"] == 1
    assert isinstance(number.attrs["value"], (bool, int, float))
    assert from_module(module).load().outputs[0].dtype == dtype


def test_a_float_is_the_shortest_that_is_rounded_to_it() -> None:
    module = function([tensor("x", 2)], lambda b, x: b.emit(relax.op.multiply(x, relax.const(0.1, "float32"))))
    rule = Subst(op.Multiply(X, pat.Const(0.1)), op.Divide(X, 10.0), name="tenth")
    assert lines(rewritten(rule, module))[0] == "divide = divide(x, 10.0)"


def test_a_constant_without_axes_that_would_change_the_type_is_a_tensor() -> None:
    value = relax.const(2.0, "float32")
    module = function([tensor("x", dtype="float32")], lambda b, x: b.emit(relax.op.add(value, value)))
    (literal,) = [node for node in Workload.from_relax(module).graph if node.op == CONST]
    assert hasattr(literal.attrs["value"], "shape")


def test_tensors_of_a_dtype_that_torch_does_not_have_stay_as_they_are() -> None:
    dtype = "float8_e3m4"
    ones = np.ones(2, ml_dtypes.float8_e3m4)
    w, x = tensor("w", 2, dtype=dtype), tensor("x", 2)

    def body(builder: Any, w: Any, x: Any) -> Any:
        constant = relax.const(ones, dtype)
        same, one = builder.emit(constant), relax.const(ones[0], dtype)
        casts = [builder.emit(relax.op.astype(value, "float32")) for value in (w, constant, same, one)]
        total = builder.emit(relax.op.add(*casts[:2]))
        total = builder.emit(relax.op.add(total, builder.emit(relax.op.add(*casts[2:]))))
        both = builder.emit(relax.Tuple([builder.emit(relax.op.add(x, x)), constant]))
        return builder.emit(relax.op.multiply(total, builder.emit(relax.TupleGetItem(both, 0))))

    wl = Workload.from_relax(function([w, x], body), {"w": ones})
    assert list(wl.inputs) == ["x"]
    assert "the shape or dtype of w is not known" in str(wl.unread())
    assert "the shape or dtype of a constant is not known" in str(wl.unread())
    new = DOUBLE(wl)
    assert new.trace.firings
    wl.compare(new).check()
    wl.compare(pickle.loads(pickle.dumps(new))).check()


# Hand-made views


def test_a_view_with_new_nodes_weights_and_outputs() -> None:
    module = function([tensor("x", 2, 3)], lambda b, x: b.emit(relax.op.zeros((2, 3), "float32")))
    program = from_module(module)
    view = program.load()
    x = view.nodes[0]
    f23 = TensorType((2, 3), "float32")
    weight = Node(PARAM, (), {"value": torch.full((2, 3), 3.0)}, f23, name="weight")
    literal = Node(CONST, (), {"value": np.float32([1, 2, 3])}, TensorType((3,), "float32"), name="literal")
    number = Node(CONST, (), {"value": 2.0}, TensorType((), "float32"), name="number")
    add = Node("add", (x, weight), {}, f23, name="add")
    scaled = Node("multiply", (add, number), {}, f23, name="scaled")
    result = Node("subtract", (scaled, literal), {}, f23, name="result")
    new = program.store(Graph([x, weight, literal, number, add, scaled, result], [result], view.infer))
    first, *others = lines(new.module)
    assert first == "add = add(x, const)"
    assert others == ["scaled = multiply(add, 2.0)", "result = subtract(scaled, const)"]
    found = new.build()(np.ones((2, 3), "float32"))
    np.testing.assert_allclose(found, np.full((2, 3), 8.0) - [1, 2, 3])


@pytest.mark.parametrize("what", ["another program", "an input", "an operator"])
def test_what_cannot_be_stored_leaves_the_program_as_it_was(what: str) -> None:
    program = from_module(chain("exp"))
    view = program.load()
    y = view.outputs[0]
    made = {
        "another program": lambda: from_module(chain("exp")).load(),
        "an input": lambda: Graph([*view.nodes, Node("input", name="more")], view.outputs, view.infer),
        "an operator": lambda: Graph(
            [*view.nodes, n := Node("nn.nothing", (y,), {}, y.type, name="n")], [n], view.infer
        ),
    }[what]()
    with pytest.raises(FrontEndError, match="Relax function 'main'"):
        program.store(made)
    assert program.store(program.load()).module.same_as(program.module)


# Opaque calls


def test_a_native_operator_is_matched_and_made() -> None:
    sort = tvm.ir.Op.get("relax.sort")
    module = chain("exp")
    made = rewritten(Subst(op.Exp(X), pat.Call(sort, X, axis=-1, descending=True), name="sorted"), module)
    assert lines(made) == ["sort = sort(x)"]
    assert bool(bindings(made)[0].value.attrs.descending)
    back = Subst(pat.Call("relax.sort", X, descending=True), op.Exp(X), name="unsorted")
    assert "exp(x)" in lines(rewritten(back, made))[0]
    with pytest.raises(PatternError, match=r"TVM has no operator 'relax.sorted': did you mean 'relax.sort'"):
        pat.Call("relax.sorted", X)


BUCKETIZE, MEDIAN = [tvm.ir.Op.get(f"relax.{name}") for name in ("bucketize", "median")]


@pytest.mark.parametrize(("target", "expected"), [
    (pat.Call(BUCKETIZE, X, Y), "relax.bucketize(%x, %y, out_int32=False, right=False)"),
    (pat.Call(BUCKETIZE, X, Y, right=True), "relax.bucketize(%x, %y, out_int32=False, right=True)"),
    (pat.Call(BUCKETIZE, X, Y, left=True), "relax.bucketize has no attribute 'left': "),
    (pat.Call(BUCKETIZE, X, Y, right=(1,)), "relax.bucketize can't have the attributes {'right': (1,)}: "),
    (pat.Call(tvm.ir.Op.get("relax.outer"), X, Y, axis=1), "relax.outer has no attribute 'axis'"),
])  # fmt: skip
def test_attributes_of_operators_that_do_not_declare_them(target: Any, expected: str) -> None:
    """TVM ends the process over a call of such an operator without attributes."""
    def body(b: Any, x: Any, y: Any) -> Any:
        return b.emit(relax.op.astype(relax.op.subtract(x, relax.op.max(y)), "int64"))

    wl = Workload(function([tensor("x", 6), tensor("y", 3)], body))
    new = Subst(op.Cast(op.Subtract(X, op.Max(Y)), dtype="int64"), target, name="made")(wl)
    assert expected in str(new) + str(new.trace)
    assert ("no attribute" in expected or "can't" in expected) == (new.mod is wl.mod)


@pytest.mark.parametrize("target", ["aten::relu", torch.relu])
def test_a_call_of_what_is_none_of_relax_is_refused(target: Any) -> None:
    new = Subst(op.ReLU(op.ReLU(X)), pat.Call(target, X), name="foreign")(Workload(chain("relu", "relu")))
    (refused,) = new.trace.refused
    assert refused.reason.endswith("is no operator and no function of Relax")


def test_functions_are_matched_by_their_names() -> None:
    rule = Subst(pat.Call(relax.ExternFunc("test.dps"), X, Y), op.Add(X, Y), name="dps")
    assert "add = add(h, k)" in lines(rewritten(rule, Mixed))
    rule = Subst(pat.Call(tvm.ir.GlobalVar("helper"), X), op.ReLU(X), name="helper")
    assert list(rule.match(Workload.from_relax(Mixed)))


def test_a_function_of_the_module_is_called() -> None:
    builder = relax.BlockBuilder(tvm.IRModule({"helper": Mixed["helper"]}))
    x = tensor("x", 4, 4)
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(relax.op.add(x, x)))
    rule = Subst(op.Add(X, X), pat.Call(Mixed.get_global_var("helper"), X), name="call")
    assert lines(rewritten(rule, builder.get())) == ["helper = helper(x)"]


def test_a_function_that_calls_itself_shares_memory_with_its_caller() -> None:
    @I.ir_module
    class Again:
        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            cls = Again
            with R.dataflow():
                y = R.tanh(x)
                z: R.Tensor((4,), "float32") = cls.main(y)
                R.output(z)
            return z

    assert from_module(Again).load().shares is not None
    assert from_module(chain("tanh")).load().shares is None


def test_operators_that_the_view_shows_otherwise_are_told() -> None:
    rule = Subst(pat.Call(tvm.ir.Op.get("relax.nn.relu"), X), X)
    with pytest.raises(ValueError, match=r"op\.ReLU\(x\)"):
        rule(Workload.from_relax(chain("relu")))


# Sizes and depth


def test_a_symbolic_module_is_rewritten_with_its_sizes() -> None:
    n = tvm.tirx.Var("n", "int64")

    def body(b: Any, x: Any) -> Any:
        flat = b.emit(relax.op.reshape(x, (n * 4,)))
        return b.emit(relax.op.reshape(flat, (2, n * 2)))

    module = function([tensor("x", n, 4)], body)
    inner = op.Reshape(X)
    outer = op.Reshape(inner)
    new = rewritten(Subst(outer, op.Reshape(X, newshape=outer.newshape), name="reshape twice"), module)
    assert lines(new)[0] == "reshape = reshape(x, [T.int64(2), n * T.int64(2)])"


def test_a_size_that_is_bound_to_a_variable_stays() -> None:
    """The shape of a new call may be told by it, whatever becomes of the call by which it was told before."""
    n, m = tvm.tirx.Var("n", "int64"), relax.Var("m", tvm.ir.PrimType("int64"))

    def body(builder: Any, x: Any) -> Any:
        builder.emit_normalized(relax.VarBinding(m, n * 2))
        y = builder.emit(relax.op.full((m,), relax.const(2.0), "float32"))
        return builder.emit(relax.op.divide(y, y))

    rule = Subst(op.Divide(X, X), op.Ones(shape=X.shape, dtype="float32"), name="one")
    new = rewritten(rule, function([tensor("x", n)], body, dataflow=False))
    assert lines(new) == ["m = Mul", "ones = ones([m])"]


def test_no_tensor_is_made_without_a_virtual_device() -> None:
    """Equal ones would be shared by calls on several devices, and a result would lose its own."""
    x, y = (relax.Var(name, relax.TensorType([2], "float32", vdevice=relax.VDevice("llvm", n)))
            for n, name in enumerate("xy"))  # fmt: skip

    def body(b: Any, x: Any, y: Any) -> Any:
        return b.emit(relax.Tuple([b.emit(relax.op.add(x, x)), *[b.emit(relax.op.subtract(z, z)) for z in (x, y)]]))

    wl = Workload.from_relax(function([x, y], body))
    zero = Subst(op.Subtract(X, X), op.Zeros(shape=X.shape, dtype="float32"), name="zero")
    new = RuleSet([zero, DOUBLE])(wl)
    assert lines(new.mod)[:3] == ["multiply = multiply(x, 2.0)", "lv1 = subtract(x, x)", "lv2 = subtract(y, y)"]
    assert "a new tensor has no virtual device" in str(new.trace)


def test_deep_functions() -> None:
    def body(b: Any, x: Any) -> Any:
        y = x
        for _ in range(2000):
            y = b.emit(relax.op.nn.relu(b.emit(relax.op.add(y, x))))
        return y

    module = function([tensor("x", 2)], body)
    wl = Workload.from_relax(module)
    assert wl.program.store(wl.program.load()).module.same_as(module)
    rule = Subst(op.ReLU(op.Add(X, Y)), op.Maximum(op.Add(X, Y), 0.0), name="maximum")
    new = rule(wl)
    assert len(new.trace.firings) == 2000
    assert len(bindings(new.mod)) == 4000


@pytest.mark.parametrize("out", [R.Tensor((2, 3), "float32"), relax.TensorType((2, 3), "float32")])
def test_the_type_of_a_new_call_is_given_as_tvm_writes_it(out: Any) -> None:
    called = pat.Call(relax.ExternFunc("mine"), X, call="call_dps_packed", out_ty=out)
    old = function([tensor("x", 2, 3)], lambda b, x: b.emit(relax.op.nn.relu(x)))
    new = Subst(op.ReLU(X), called)(Workload(old))
    assert new.trace.firings
    assert "R.call_dps_packed(\"mine\", (x,), out_ty=R.Tensor((2, 3), dtype=\"float32\"))" in new.mod.script()


def lowered(*, planned: bool) -> Any:
    """``exp(x + x)`` with the buffers that its calls write to."""
    module = function([tensor("x", 2, 3)], lambda b, x: b.emit(relax.op.exp(b.emit(relax.op.add(x, x)))))
    names = ["LegalizeOps", "ToNonDataflow", "RemovePurityChecking", "CallTIRRewrite"]
    passes = [getattr(relax.transform, name)() for name in names]
    return tvm.transform.Sequential([*passes, relax.transform.StaticPlanBlockMemory()] if planned else passes)(module)


def test_a_buffer_that_calls_write_to_stays_as_it_is() -> None:
    wl = Workload(lowered(planned=False))
    buffer = pat.Call(tvm.ir.Op.get("relax.builtin.alloc_tensor"))
    assert len(list(Subst(buffer, buffer.like()).match(wl))) == 2
    for target in (buffer.like(), op.Zeros(shape=(2, 3))):
        new = Subst(buffer, target)(wl)
        assert not new.trace.firings
        assert "effect" in str(new.trace)


@I.ir_module
class WritesInABranch:
    @R.function
    def main(a: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32"), c: R.Tensor((), "bool")):
        b = R.exp(a)
        s = R.add(b, y)
        if c:
            r = R.call_inplace_packed("test.add_one", b, inplace_indices=[0], ty_args=R.Tensor((4,), "float32"))
        else:
            r = R.negative(b)
        return R.multiply(s, r)


@I.ir_module
class WritesInAFunction:
    @R.function(private=True)
    def inner(b: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        return R.call_inplace_packed("test.add_one", b, inplace_indices=[0], ty_args=R.Tensor((4,), "float32"))

    @R.function(private=True)
    def outer(b: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        r: R.Tensor((4,), "float32") = WritesInAFunction.inner(b)
        return r

    @R.function
    def main(a: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32")):
        b = R.exp(a)
        s = R.add(b, y)
        r: R.Tensor((4,), "float32") = WritesInAFunction.outer(b)
        return R.multiply(s, r)


@I.ir_module
class WritesInALocalFunction:
    @R.function
    def main(a: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32")):
        @R.function
        def inner(b: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            return R.call_inplace_packed("test.add_one", b, inplace_indices=[0], ty_args=R.Tensor((4,), "float32"))

        b = R.exp(a)
        s = R.add(b, y)
        r: R.Tensor((4,), "float32") = inner(b)
        return R.multiply(s, r)


@pytest.mark.parametrize("module", [WritesInABranch, WritesInAFunction, WritesInALocalFunction])
def test_no_read_moves_across_what_writes_within(module: Any) -> None:
    """For TVM, such a branch or function is pure."""
    distribute = Subst((X + Y) * Z, X * Z + Y * Z, name="distribute")
    new = distribute(Workload(module))
    assert new.mod.same_as(module)
    assert "%r has an effect (mutates) and stands between the matched nodes" in str(new.trace)


def test_a_module_whose_memory_is_planned_is_refused() -> None:
    with pytest.raises(FrontEndError, match=r"planned memory.* before StaticPlanBlockMemory"):
        RELU_TWICE(Workload(lowered(planned=True)))


def plus_one() -> Any:
    """A function of TIR."""
    x = te.placeholder((2,), name="x")
    return te.create_prim_func([x, te.compute((2,), lambda i: x[i] + 1.0)]).with_attr("global_symbol", "plus_one")


@pytest.mark.parametrize("brought", [plus_one(), chain("relu", "exp")["main"]], ids=["tir", "relax"])
def test_a_target_brings_a_function_along(brought: Any) -> None:
    """The functions of a module share it."""
    name = str(brought.attrs["global_symbol"])
    out = {} if isinstance(brought, relax.Function) else {"out_ty": relax.TensorType((2,), "float32")}
    rule = Subst(op.Sin(X), pat.Call(brought, X, **out), name="bring")
    module = chain("sin", "sin", "sin")
    other = chain("sin")["main"].with_attr("global_symbol", "other")
    new = gsl.relax.Pass(rule)(tvm.IRModule({**dict(module.functions.items()), "other": other}))
    (var,) = [var for var in new.functions if var.name_hint not in ("main", "other")]
    assert var.name_hint == (name if name != "main" else "main_1")
    assert new[var].attrs is None or "global_symbol" not in new[var].attrs
    assert new.script().count(f"cls.{var.name_hint}") == 4
    x = np.array([0.5, -0.5], dtype="float32")
    wanted = x + 3 if name == "plus_one" else np.exp(np.exp(np.exp(np.maximum(x, 0))))
    assert np.allclose(Workload(new)(x), wanted)


def test_a_function_of_the_module_itself_is_brought_along_as_another() -> None:
    module = chain("sin", "relu")
    new = rewritten(Subst(op.Sin(X), pat.Call(module["main"], X), name="again"), module)
    assert lines(new, "main_1") == lines(module)


def test_a_function_that_is_brought_along_is_folded() -> None:
    rule = Subst(op.Sin(X), pat.Call(plus_one(), X, out_ty=relax.TensorType((2,), "float32")), name="bring")
    weight = relax.const(np.array([1.0, 2.0], dtype="float32"))
    module = function([tensor("x", 2)], lambda b, x: b.emit(relax.op.add(x, b.emit(relax.op.sin(weight)))))
    new = rule(Workload(module))
    assert lines(new.mod)[0] == "lv1 = add(x, const)"
    assert np.allclose(new(np.zeros(2, dtype="float32")), [2.0, 3.0])


def test_a_number_that_a_dtype_has_as_infinity_is_not_written() -> None:
    # Torch multiplies with the number itself, so that the product of a small one is finite.
    module = function([tensor("x", 2, dtype="float16")], lambda builder, x: builder.emit(relax.op.negative(x)))
    new = Subst(op.Negative(X), op.Multiply(X, 90000.0), name="large")(Workload.from_relax(module))
    assert not new.trace.firings
    assert "90000.0 is no number of float16" in str(new.trace)
    assert new.mod.same_as(module)


def test_a_call_of_an_unknown_shape_is_shown() -> None:
    some = relax.TensorType(dtype="float32", ndim=2)
    module = function([tensor("x", 2, 3)], lambda b, x: b.emit(relax.op.call_pure_packed("f", x, ty_args=[some])))
    assert "f(%x, call='call_pure_packed', out_ty=" in str(Workload.from_relax(module).graph)


def test_callers_of_a_function_need_not_know_more_of_its_result() -> None:
    some = relax.TensorType(dtype="float32", ndim=2)
    x, y = tensor("x", 2, 3), tensor("y", 2, 3)
    builder = relax.BlockBuilder()
    with builder.function("helper", [x]):
        builder.emit_func_output(builder.emit(relax.op.call_pure_packed("unknown", x, ty_args=[some])))
    with builder.function("main", [y]):
        builder.emit_func_output(builder.emit(relax.Call(builder.get().get_global_var("helper"), [y])))
    module = builder.get()
    exp = Subst(pat.Call(relax.ExternFunc("unknown"), X), op.Exp(X), name="exp")
    with pytest.warns(UntypedWarning):
        new = gsl.relax.Pass(exp)(module)
    relax.analysis.well_formed(new)
    assert new["helper"].ret_ty == some
    assert new["main"].same_as(module["main"])
    assert lines(new, "helper") == ["exp = exp(x)", "result = exp"]
    value = np.ones((2, 3), dtype="float32")
    np.testing.assert_allclose(Workload.from_relax(new).build()(value), np.exp(value), rtol=1e-5)
    with pytest.warns(UntypedWarning):  # without callers, more is known
        new = gsl.relax.Pass(exp)(tvm.IRModule({"helper": module["helper"]}))
    assert new["helper"].ret_ty == x.ty
    assert lines(new, "helper") == ["exp = exp(x)"]


def test_what_is_returned_has_one_name() -> None:
    drop = Subst(op.Exp(X), X, name="drop")
    assert lines(rewritten(drop, chain("sin", "exp"))) == ["lv = sin(x)"]

    def body(b: Any, x: Any) -> Any:
        y = b.emit(relax.op.sin(x))
        return relax.Tuple([b.emit(relax.op.exp(y)), b.emit(relax.op.tanh(y))])

    new = rewritten(Subst(op.Exp(X), op.Cos(X)), function([tensor("x", 2)], body))
    assert lines(new) == ["lv = sin(x)", "cos = cos(lv)", "lv2 = tanh(lv)", "gv = (cos, lv2)"]
    assert [type(binding.var) for binding in bindings(new)] == [relax.DataflowVar] * 3 + [relax.Var]


def test_a_rule_takes_constants_and_parameters_with_values_for_weights() -> None:
    rule = Subst(op.ReLU(X + W), op.Exp(X + W), name="exp")

    def body(b: Any, x: Any, w: Any) -> Any:
        return b.emit(relax.op.nn.relu(b.emit(relax.op.add(x, w))))

    x, w, value = tensor("x", 2, 3), tensor("w", 3), np.ones(3, dtype="float32")
    given = Workload.from_relax(function([x, w], body), {"w": value})
    bound = Workload.from_relax(function([x], lambda b, x: body(b, x, relax.const(value))))
    for wl in (given, bound):
        assert rule(wl).op_counts() == {"add": 1, "exp": 1}
    assert not rule(Workload.from_relax(function([x, w], body))).trace.firings
