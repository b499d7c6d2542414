"""Outlined groups in Relax: the functions that TVM's own fusion makes, which its pipeline for code generators takes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import relax, tirx
from tvm.relax.dpl import is_op, wildcard

from gsl import Subst, Workload, op, pat
from tests.front.relax.relax_helpers import difference, function, lines, tensor

X, Y, W = pat.Wildcard(), pat.Wildcard(), pat.Wildcard()
SUM = X + W
RELU = op.ReLU(SUM)
WEIGHT = relax.const(np.linspace(-1, 1, 12, dtype="float32").reshape(3, 4))


def fuse(name: str = "dnnl.add_relu", **attrs: Any) -> Subst:
    return Subst(RELU, pat.Fused(name, **attrs), name="fuse")


def module() -> Any:
    """A sum with a constant, a relu, and what comes behind it."""
    return function([tensor("x", 3, 4)], lambda b, x: b.emit(relax.op.exp(
        b.emit(relax.op.nn.relu(b.emit(relax.op.add(x, WEIGHT)))))))  # fmt: skip


def groups_of(module: Any) -> list[Any]:
    return [f for var, f in module.functions.items() if var.name_hint != "main"]


@pytest.mark.parametrize("codegen", [None, "dnnl"])
def test_a_group_is_what_tvm_makes(codegen: str | None) -> None:
    before = Workload(module())
    after = fuse(**({"codegen": codegen} if codegen else {}))(before)
    pattern = is_op("relax.nn.relu")(is_op("relax.add")(wildcard(), wildcard()))
    fuse_ops = relax.transform.FuseOpsByPattern(
        [("dnnl.add_relu", pattern)], bind_constants=True, annotate_codegen=codegen is not None
    )
    wanted, found = fuse_ops(module()), after.native
    ((own,), (theirs,)) = groups_of(found), groups_of(wanted)
    assert not difference(*[f.with_attr("global_symbol", "same") for f in (own, theirs)])
    name = "fused_dnnl_add_relu" + (f"_{codegen}" if codegen else "")
    assert [str(line) for line in lines(found)] == [f"add_relu = {name}(x)", "lv2 = exp(add_relu)", "gv = lv2"]
    assert len(lines(wanted)) == len(lines(found))
    before.compare(after).check()
    # The groups of TVM are read as well.
    theirs = Workload(wanted)
    assert [(g.name, dict(g.attrs)) for g in theirs.groups().values()] == [
        (g.name, dict(g.attrs)) for g in after.groups().values()
    ]
    before.compare(theirs).check()


@pytest.mark.parametrize("attrs", [
    {}, {"codegen": "dnnl"}, {"level": 2, "scale": 0.5, "on": True, "none": None, "sizes": (1, (2, "a"))},
])  # fmt: skip
def test_a_group_comes_back_and_is_put_back(attrs: dict[str, Any]) -> None:
    before = Workload(module())
    after = fuse(**attrs)(before)
    (group,) = after.groups().values()
    assert (group.name, dict(group.attrs)) == ("dnnl.add_relu", attrs)
    assert type(group.attrs.get("on", True)) is bool
    assert not difference(after.native, after.program.store(after.graph.copy()).native)
    again = after.inline("dnnl.add_relu")
    assert [var.name_hint for var in again.native.functions] == ["main"]
    assert again.op_counts() == before.op_counts()
    before.compare(again).check()


def test_a_code_generator_is_asked_for_the_group() -> None:
    seen: list[Any] = []

    def generate(functions: Any, options: Any, names: Any) -> list[Any]:
        seen.extend(functions)
        raise ValueError("seen")

    after = fuse("gsltest.add_relu", codegen="gsltest")(Workload(module())).native
    with pytest.raises(Exception, match=r"relax\.ext\.gsltest"):
        relax.transform.RunCodegen()(after)
    tvm_ffi.register_global_func("relax.ext.gsltest", generate, override=True)
    try:
        with pytest.raises(ValueError, match="seen"):
            relax.transform.RunCodegen()(after)
    finally:
        tvm_ffi.registry.remove_global_func("relax.ext.gsltest")
    assert [str(f.attrs["global_symbol"]) for f in seen] == ["fused_gsltest_add_relu_gsltest"]


def test_composite_functions_are_merged_for_a_code_generator() -> None:
    after = fuse()(Workload(module()))
    merged = relax.transform.MergeCompositeFunctions()(after.native)
    (made,) = groups_of(merged)
    assert str(made.attrs["Codegen"]) == "dnnl"
    wl = Workload(merged)
    assert [dict(group.attrs) for group in wl.groups().values()] == [{"codegen": "dnnl"}]
    after.compare(wl).check()


def test_weights_of_the_function_are_passed() -> None:
    source = function([tensor("x", 3, 4), tensor("w", 3, 4)], lambda b, x, w: b.emit(relax.op.nn.relu(
        b.emit(relax.op.add(x, w)))))  # fmt: skip
    before = Workload.from_relax(source, {"w": WEIGHT.value})
    after = fuse()(before)
    assert lines(after.native)[0] == "add_relu = fused_dnnl_add_relu(x, w)"
    before.compare(after).check()
    before.compare(after.inline()).check()


def test_several_outputs_and_equal_groups() -> None:
    def body(b: Any, x: Any, y: Any) -> Any:
        first = b.emit(relax.op.nn.relu(b.emit(relax.op.add(x, y))))
        second = b.emit(relax.op.nn.relu(b.emit(relax.op.add(y, x))))
        return b.emit(relax.op.multiply(b.emit(relax.op.exp(first)), second))

    before = Workload(function([tensor("x", 3, 4), tensor("y", 3, 4)], body))
    both = fuse()(before)
    # Equal groups have one function.
    assert len(both.groups()) == 2
    assert len(groups_of(both.native)) == 1
    before.compare(both).check()
    one = both.inline(next(iter(both.groups())))
    assert len(one.groups()) == len(groups_of(one.native)) == 1
    rule = Subst([op.Exp(RELU), RELU], pat.Fused("two"), name="two")
    before = Workload(function([tensor("x", 3, 4), tensor("y", 3, 4)], _pair))
    after = rule(before)
    (group,) = groups_of(after.native)
    assert isinstance(group.ret_ty, tvm.ir.TupleType)
    before.compare(after).check()
    before.compare(after.inline()).check()


UNLIKE: list[tuple[Any, Any, int]] = [
    # attributes of what is inside, numbers that become part of it, the order of its operands, types
    (op.Exp(op.Softmax(X)), lambda b, x, w, t: [R.exp(b.emit(R.nn.softmax(x, axis))) for axis in (0, 1, 0)], 2),
    (op.Exp(X * W), lambda b, x, w, t: [R.exp(b.emit(R.multiply(x, number(n)))) for n in (2.0, 3.0, 2.0)], 2),
    (op.Exp(X - W), lambda b, x, w, t: [R.exp(b.emit(R.subtract(*pair))) for pair in ((x, w), (w, x), (x, x))], 2),
    (op.Exp(X + pat.Variable()), lambda b, x, w, t: [R.exp(b.emit(R.add(*pair))) for pair in ((x, w), (w, x))], 1),
    (op.Exp(op.Tanh(X)), lambda b, x, w, t: [R.exp(b.emit(R.tanh(each))) for each in (x, t, w)], 2),
    (RELU, lambda b, x, w, t: [R.nn.relu(b.emit(R.add(x, c))) for c in (WEIGHT, OTHER, WEIGHT)], 2),
]
R = relax.op
OTHER = relax.const(np.full((3, 4), 2, dtype="float32"))


def number(value: float) -> Any:
    return relax.const(value, "float32")


@pytest.mark.parametrize(("source", "calls", "functions"), UNLIKE)
def test_groups_share_a_function_only_if_they_compute_the_same(source: Any, calls: Any, functions: int) -> None:
    def body(b: Any, *params: Any) -> Any:
        return b.emit(relax.Tuple([b.emit(call) for _ in range(2) for call in calls(b, *params)]))

    params = [tensor("x", 3, 4), tensor("w", 3, 4), tensor("t", 5)]
    before = Workload.from_relax(function(params, body), {"w": WEIGHT.value})
    for _ in range(2):  # also when functions of the first time are known
        after = Subst(source, pat.Fused("group"), name="group")(before, fold_params=False)
        assert len(after.groups()) == len(before.graph.outputs[0].operands)
        assert len(groups_of(after.native)) == functions
        before.compare(after).check()


def _pair(b: Any, x: Any, y: Any) -> Any:
    shared = b.emit(relax.op.nn.relu(b.emit(relax.op.add(x, y))))
    return b.emit(relax.op.multiply(b.emit(relax.op.exp(shared)), shared))


def test_sizes_with_names() -> None:
    n = tirx.Var("n", "int64")
    source = function([tensor("x", n, 4)], lambda b, x: b.emit(relax.op.exp(
        b.emit(relax.op.nn.relu(b.emit(relax.op.add(x, x)))))))  # fmt: skip
    before = Workload(source)
    after = fuse()(before)
    assert len(after.groups()) == 1
    feed = (np.linspace(-1, 1, 20, dtype="float32").reshape(5, 4),)
    before.compare(after, inputs=feed).check()
    before.compare(after.inline(), inputs=feed).check()


def test_a_size_that_no_operand_has_alone() -> None:
    """The function of a group takes sizes from its operands: of 2 n, it would not know n. Others are rewritten."""
    n = tirx.Var("n", "int64")

    def body(b: Any, x: Any) -> Any:
        first = b.emit(relax.op.nn.relu(b.emit(relax.op.add(x, x))))
        both = b.emit(relax.op.concat([first, first], 0))
        return b.emit(relax.op.nn.relu(b.emit(relax.op.add(both, both))))

    after = fuse()(Workload(function([tensor("x", n, 4)], body)))
    assert len(after.groups()) == 1
    assert "no operand of the group dnnl.add_relu has the size n as its own" in str(after.trace)


def test_a_group_of_weights_is_folded() -> None:
    source = function([tensor("x", 3, 4)], lambda b, x: b.emit(relax.op.multiply(x, b.emit(relax.op.nn.relu(
        b.emit(relax.op.add(WEIGHT, WEIGHT)))))))  # fmt: skip
    before = Workload(source)
    after = fuse()(before)
    before.compare(after).check()


@pytest.mark.parametrize(("attrs", "message"), [
    ({"codegen": 3}, "codegen=3 of a group must be the name of a code generator"),
    ({"f": 1j}, "the attribute f=1j of a group must be made of numbers, strings"),
])  # fmt: skip
def test_attributes_that_cannot_be_written(attrs: dict[str, Any], message: str) -> None:
    after = fuse(**attrs)(Workload(module()))
    assert not after.groups()
    assert all(message in refused.reason for refused in after.trace.refused)
    assert after.trace.refused


def local(inner: Any, *, swapped: bool = False) -> Any:
    """A module whose ``main`` calls a function for a code generator: one that calls a local function."""
    params = [tensor("x", 2), tensor("y", 2)]
    outer = [tensor("x", 2), tensor("y", 2)]
    x, y = params
    block = relax.BindingBlock([relax.VarBinding(tensor("sum", 2), relax.BlockBuilder().normalize(relax.op.add(x, y)))])
    body = relax.BlockBuilder().normalize(relax.SeqExpr([block], block.bindings[0].var))
    local = inner(relax.Function(params, body, is_pure=True))
    var = relax.Var("local", local.ty)
    call = relax.BlockBuilder().normalize(relax.Call(var, outer[::-1] if swapped else outer))
    output = tensor("output", 2)
    block = relax.BindingBlock([relax.VarBinding(var, local), relax.VarBinding(output, call)])
    body = relax.BlockBuilder().normalize(relax.SeqExpr([block], output))
    function = relax.Function(outer, body, is_pure=True).with_attr("Codegen", "mine").with_attr("global_symbol", "f")
    builder = relax.BlockBuilder()
    called, args = builder.add_func(function, "f"), [tensor("a", 2), tensor("b", 2)]
    with builder.function("main", args):
        builder.emit_func_output(builder.emit(relax.Call(called, args)))
    return builder.get()


def test_what_only_looks_like_a_group() -> None:
    def group(function: Any) -> Any:
        return function.with_attr("Composite", "mine.add")

    assert list(Workload(local(group)).groups())
    for module in (local(lambda f: f), local(lambda f: f.with_attr("other", "mine.add")), local(group, swapped=True)):
        assert not Workload(module).groups()


def attention(b: Any, q: Any, k: Any, v: Any) -> Any:
    return b.emit(relax.op.nn.attention(b.emit(relax.op.nn.relu(b.emit(relax.op.nn.relu(q)))), k, v))


ATTENTION = op.Attention(op.Transpose(X), op.Transpose(Y), op.Transpose(W))


def attended() -> Any:
    return function([tensor(name, 2, 16, 4, 8) for name in "qkv"], attention)


def test_a_group_of_an_attention_is_the_one_call() -> None:
    """In the view the call has transpositions, because Relax has the heads on another axis."""
    rule = Subst(op.Transpose(ATTENTION), pat.Fused("mine.attention"), name="attention")
    before = Workload(attended())
    after = rule(before)
    assert [text.split(" = ")[1] for text in lines(after.mod, "fused_mine_attention")] == ["nn.attention(lv1, k, v)"]
    assert "permute_dims" not in after.mod.script()
    before.compare(after).check()


def test_an_attention_of_transpositions_has_no_others_beside_them() -> None:
    """Its operands and its result have the places of the sequence first; Relax wants them after the batch."""

    def body(b: Any, q: Any, k: Any, v: Any) -> Any:
        q, k, v = (b.emit(relax.op.permute_dims(x, [1, 2, 0, 3])) for x in (q, k, v))
        scores = b.emit(relax.op.matmul(q, b.emit(relax.op.permute_dims(k, [0, 1, 3, 2]))))
        weighted = b.emit(relax.op.matmul(b.emit(relax.op.nn.softmax(scores)), v))
        return b.emit(relax.op.permute_dims(weighted, [2, 0, 1, 3]))

    before = Workload(function([tensor(name, 5, 2, 3, 8) for name in "qkv"], body))
    product = op.Matmul(op.Softmax(op.Matmul(X, op.Transpose(Y, axes=(0, 1, 3, 2))), axis=-1), W)
    after = Subst(product, op.Attention(X, Y, W, scale=1.0), name="attention")(before)
    assert [text.split(" = ")[1] for text in lines(after.mod)][:5] == [
        "permute_dims(q)", "permute_dims(k)", "permute_dims(v)",
        "nn.attention(attention_permute_dims, attention_permute_dims_1, attention_permute_dims_2)",
        "permute_dims(attention_attention)",
    ]  # fmt: skip
    assert after.mod.script().count("axes=[1, 0, 2, 3]") == 4
    before.compare(after).check()


def test_an_attention_that_is_written_anew_leaves_no_transpositions() -> None:
    before = Workload(attended())
    turned, relu = op.Transpose(X, axes=(0, 2, 1, 3)), op.ReLU(op.ReLU(X))
    inner = op.Attention(op.Transpose(relu, axes=(0, 2, 1, 3)), Y, W)
    moved = Subst(inner, inner.like(op.ReLU(turned), Y, W), name="moved")
    after = moved(before)
    assert [text.split(" = ")[1] for text in lines(after.mod)] == [
        "permute_dims(q)", "nn.relu(transpose)", "permute_dims(relu)", "nn.attention(attention_permute_dims, k, v)",
        "attention_attention",
    ]  # fmt: skip
    before.compare(after).check()
