"""Rewritten programs of Relay: they are well-typed, they compute the same, and what must not change does not."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relay

from gsl import RuleSet, Subst, Workload, op, pat
from gsl.errors import FrontEndError
from gsl.graph import Node
from tests.front.relay.helpers import FAST, body, exprs, loaded, module_of, ops, random, var, workload

X = var("x", 2, 3)
A, B = pat.Wildcard(), pat.Wildcard()
ONCE = Subst(op.ReLU(op.ReLU(A)), op.ReLU(A), name="once")


def twice(expr: Any) -> Any:
    return relay.nn.relu(relay.nn.relu(expr))


def typed(module: Any) -> Any:
    """The module, inferred anew: ill-typed ones are refused."""
    return relay.transform.InferType()(module)


# ---------------------------------------------------------------- control flow, functions, references


def test_what_decides_a_branch_is_rewritten_and_the_branches_are_not():
    condition = relay.less(relay.sum(twice(X)), relay.const(1.0))
    wl = loaded(module_of(relay.If(condition, twice(X), relay.tanh(X))))
    new = ONCE(wl)
    assert ops(new).count("nn.relu") == 3
    for x in (random(2, 3), -abs(random(2, 3))):
        assert np.array_equal(wl(x=x), new(x=x))


def test_a_number_that_a_dtype_has_as_infinity_is_not_written():
    wl = workload(relay.negative(var("h", 2, dtype="float16")), "h")
    new = Subst(op.Negative(A), op.Multiply(A, 90000.0), name="large")(wl)
    assert not new.trace.firings
    assert "90000.0 is no number of float16" in str(new.trace)


def test_a_branch_may_share_what_is_rewritten_outside():
    shared = twice(X)
    wl = workload(relay.If(var("c", dtype="bool"), relay.exp(shared), X) + shared, "x", "c")
    new = ONCE(wl)
    assert len(new.trace.firings) == 1
    for c in (True, False):
        values = {"x": random(2, 3), "c": np.array(c)}
        assert np.array_equal(wl(**values), new(**values))


def test_a_replaced_variable_is_replaced_in_branches_functions_and_lets():
    """The rule puts something else in the place of every use of x but its own."""
    inner = var("inner", 2, 3)
    name = var("name", 2, 3)
    parts = [
        relay.If(var("c", dtype="bool"), relay.exp(X), relay.tanh(X)),
        relay.Call(relay.Function([inner], inner + X), [relay.exp(X)]),
        relay.Let(name, relay.exp(X), name + X),
    ]
    wl = workload(parts[0] + parts[1] + parts[2], "x", "c")
    x = pat.Input(ndim=2)
    new = Subst(x, x * pat.Const(2.0), name="double")(wl)
    values = random(2, 3)
    for c in (True, False):
        assert np.allclose(new(x=values, c=np.array(c)), wl(x=2 * values, c=np.array(c)))


@pytest.mark.parametrize("rows", [2, relay.Any()], ids=["number", "unknown"])
def test_the_function_has_the_type_that_relay_finds(rows: Any):
    x, w = relay.var("x", shape=(rows, 3)), var("w", 4, 3)
    source = module_of(relay.Tuple([twice(relay.nn.dense(x, w)), relay.split(x, 3, axis=1).astuple()]), x, w)
    weight = pat.Variable()
    dense = op.Dense(A, weight)
    halved = Subst(op.ReLU(op.ReLU(dense)), dense.like(A, weight * pat.Const(0.5)), name="halved")
    new = halved(loaded(source, {"w": random(4, 3)})).mod["main"]
    assert [str(param.name_hint) for param in new.params] == ["x", "_param_1"]
    again = typed(tvm.IRModule.from_expr(relay.Function(new.params, new.body)))["main"]
    assert tvm.ir.structural_equal(new.checked_type, again.checked_type)
    assert tvm.ir.structural_equal(new.ret_type, again.ret_type)


def test_arguments_of_functions_are_rewritten():
    inner = var("inner", 2, 3)
    function = relay.Function([inner], twice(inner), relay.TensorType((2, 3)))
    f = relay.GlobalVar("f")
    module = tvm.IRModule({f: function, relay.GlobalVar("main"): relay.Function([X], f(twice(X)))})
    new = ONCE(loaded(module))
    assert body(new) == "%0 = nn.relu(%x);\n@f(%0)"
    tvm.ir.assert_structural_equal(new.mod["f"], typed(module)["f"])
    assert np.array_equal(new(random(2, 3)), np.maximum(random(2, 3), 0))
    unnamed = ONCE(loaded(module_of(relay.Call(function, [twice(X)]))))
    assert ops(unnamed) == ["nn.relu", "nn.relu", "nn.relu"]


def test_a_rule_can_call_a_function_of_the_module():
    inner = var("inner", 2, 3)
    f = relay.GlobalVar("f")
    function = relay.Function([inner], relay.exp(inner), relay.TensorType((2, 3)))
    module = tvm.IRModule({f: function, relay.GlobalVar("main"): relay.Function([X], relay.tanh(relay.exp(f(X))))})
    wl = loaded(module)
    new = Subst(op.Tanh(op.Exp(A)), pat.Call(f, op.Tanh(A)))(wl)
    assert body(new) == "%0 = @f(%x);\n%1 = tanh(%0);\n@f(%1)"
    assert np.allclose(new(random(2, 3)), np.exp(np.tanh(np.exp(random(2, 3)))))


@pytest.mark.parametrize("where", ["before", "after", "in a function"])
def test_a_program_with_references_stays_as_it_is(where: str):
    expr = relay.RefRead(relay.RefCreate(twice(X) if where == "before" else X))
    if where == "in a function":
        expr = relay.Call(relay.Function([], expr), [])
    wl = loaded(module_of(expr if where == "before" else twice(expr)))
    new = ONCE(wl)
    assert new.mod.same_as(wl.mod)
    assert not new.trace.firings
    assert np.array_equal(wl(random(2, 3)), np.maximum(random(2, 3), 0) if where == "before" else wl(random(2, 3)))


def test_random_operators_are_neither_replaced_nor_moved():
    key = relay.random.threefry_key(0)
    drawn = relay.TupleGetItem(relay.random.uniform(key, (2, 3)), 1)
    wl = loaded(module_of(twice(drawn) * twice(X)))
    anything = pat.Call(tvm.ir.Op.get("random.uniform"), A, B, pat.Wildcard())
    above = op.ReLU(op.ReLU(anything[1]))
    assert not Subst(above, op.Zeros(shape=(2, 3), dtype="float32"))(wl).trace.firings
    kept = Subst(above, op.ReLU(anything[1]))(wl)
    assert len(kept.trace.firings) == 1
    assert body(kept).count("random.uniform") == 1
    assert wl.compare(kept)
    new = ONCE(wl)
    assert len(new.trace.firings) == 2
    assert wl.compare(new)


# ---------------------------------------------------------------- sizes that are not known


def test_two_unknown_sizes_are_not_equal():
    """x + y has the size of the larger one; which that is depends on the run."""
    x, y = var("x", relay.Any(), 3), var("y", relay.Any(), 3)
    wl = workload(relay.nn.relu(x + y), "x", "y")
    wrong = Subst(op.ReLU(A + B), op.ReLU(A) + op.ReLU(B), where=A.shape == B.shape)
    assert not wrong(wl).trace.firings
    assert wrong(workload(relay.nn.relu(x + x))).trace.firings
    assert wl(x=random(1, 3), y=random(4, 3)).shape == (4, 3)


def test_what_keeps_an_unknown_size_is_rewritten():
    wl = workload(twice(var("x", relay.Any(), 3)))
    new = ONCE(wl)
    assert str(new.mod["main"].body.checked_type) == str(wl.mod["main"].body.checked_type)
    for rows in (0, 1, 5):
        assert np.array_equal(new(random(rows, 3)), wl(random(rows, 3)))
    assert wl.compare(new, [random(4, 3)])


def test_a_reshape_to_an_unknown_size_tells_nothing_wrong():
    x = var("x", relay.Any(), 4)
    wl = workload(relay.nn.relu(relay.reshape(x, (-1, 2))))
    assert wl.graph.outputs[0].shape[1] == 2
    assert wl.graph.outputs[0].shape[0] != wl.graph.nodes[0].shape[0]
    assert wl(random(3, 4)).shape == (6, 2)


# ---------------------------------------------------------------- what is kept


def test_inputs_stay_and_weights_that_nothing_uses_go():
    wl = workload(relay.nn.relu(X * var("w", 2, 3)) - var("z", 2, 3) * var("v", 2, 3), "x", "z")
    zero = Subst(op.ReLU(A * pat.Param()), A)
    new = zero(wl)
    assert list(new.params) == ["v"]
    none = Subst(A - B * pat.Param(), A)(new)
    assert list(none.params) == []
    assert list(none.inputs) == ["x", "z"]
    assert np.array_equal(none(x=random(2, 3), z=random(2, 3)), random(2, 3))


def test_new_weights_come_last_and_have_new_names():
    names = ("_param_1", "x", "a", "b", "c")
    _p, x, a, b, c = [var(name, 2, 3) for name in names]
    module = module_of((x + a + b) * (x - _p - c), _p, x, a, b, c)
    wl = loaded(module, {name: random(2, 3, seed=n) for n, name in enumerate(names) if name != "x"})
    w, v = pat.Param(), pat.Param()
    rules = RuleSet([Subst(A + w + v, A + (w + v), name="sum"), Subst(A - w - v, A - (w + v), name="difference")])
    new = rules(wl)
    assert [str(v.name_hint) for v in new.mod["main"].params] == ["x", "_param_2", "_param_3"]
    assert list(new.params) == ["_param_2", "_param_3"]
    assert wl.compare(new)


def test_places_in_the_source_are_kept_and_inherited():
    def span(line: int) -> Any:
        return relay.Span(relay.SourceName("model.py"), line, line, 0, 0)

    def call(name: str, *args: Any, line: int) -> Any:
        return relay.Call(tvm.ir.Op.get(name), list(args), None, None, span(line))

    inner = call("nn.relu", call("nn.relu", call("exp", X, line=1), line=2), line=3)
    new = ONCE(loaded(module_of(call("tanh", inner, line=4))))
    assert [expr.span.line for expr in exprs(new.mod["main"].body) if isinstance(expr, relay.Call)] == [1, 3, 4]


def test_attributes_of_the_function_and_other_functions_are_kept():
    helper = relay.GlobalVar("helper")
    module = module_of(twice(X)).clone()
    module["main"] = module["main"].with_attr("mine", 3)
    module[helper] = relay.Function([X], twice(X))
    module = module.with_attr("whole", tvm.runtime.String("four"))
    module = typed(module)
    new = ONCE(loaded(module))
    assert int(new.mod["main"].attrs["mine"]) == 3
    assert new.mod.attrs["whole"] == "four"
    assert new.mod["helper"].same_as(module["helper"])


def test_attributes_of_calls_are_kept_when_operands_change():
    wl = loaded(module_of(relay.sort(relay.nn.max_pool2d(twice(var("x", 1, 2, 8, 8)), (3, 3), ceil_mode=True), axis=2)))
    new = ONCE(wl)
    before, after = ([expr for expr in exprs(w.mod["main"].body) if isinstance(expr, relay.Call)] for w in (wl, new))
    for old, call in zip(before[2:], after[1:]):
        assert tvm.ir.structural_equal(old.attrs, call.attrs)


def test_a_native_operator_is_matched_and_built():
    sort = tvm.ir.Op.get("sort")
    wl = workload(relay.nn.relu(relay.sort(X, axis=0)))
    found = pat.Call(sort, A)
    new = Subst(op.ReLU(found), found.like(op.ReLU(A)))(wl)
    assert body(new) == "%0 = nn.relu(%x);\nsort(%0, axis=0)"
    built = Subst(op.ReLU(found), pat.Call(sort, op.ReLU(A), axis=0, is_ascend=True))(wl)
    assert tvm.ir.structural_equal(built.mod, new.mod)
    assert wl.compare(new)


@pytest.mark.parametrize("old", [
    relay.cumprod(X, axis=1, exclusive=True),
    relay.nn.dilate(X, [1, 2], 0.5),
    relay.scatter_nd(X, relay.const([[0, 1]]), relay.const([[1.0] * 3] * 2), "add"),
    relay.stft(X, 2, hop_length=1, window=relay.const([1.0, 1.0])),
], ids=["cumprod", "dilate", "scatter_nd", "stft"])  # fmt: skip
def test_a_call_of_an_operator_that_does_not_tell_its_attributes_is_built_like_another(old):
    """Relay ends the process over such a call without attributes."""
    others = [pat.Wildcard() for _ in old.args[1:]]
    found = pat.Call(old.op, A, *others)
    new = Subst(op.ReLU(found), found.like(op.ReLU(A), *others))(workload(relay.nn.relu(old)))
    assert new.trace.firings
    made = new.mod["main"].body
    assert made.op == old.op
    assert tvm.ir.structural_equal(made.attrs, old.attrs)


def test_a_new_call_of_an_operator_that_does_not_tell_its_attributes():
    cumprod = "cumprod"
    new = Subst(op.ReLU(A), pat.Call(cumprod, A, axis=1))(workload(relay.nn.relu(X)))
    assert body(new).startswith("cumprod(%x, axis=1")
    for given in ({}, {"axes": 1}, {"axis": "one"}):
        new = Subst(op.ReLU(A), pat.Call(cumprod, A, **given))(workload(relay.nn.relu(X)))
        assert not new.trace.firings
        assert "refused" in str(new.trace)
    new = Subst(op.ReLU(A), pat.Call(tvm.ir.Op.get("tan"), A, axis=1))(workload(relay.nn.relu(X)))
    assert "tan takes no attributes {'axis': 1}: it has none" in str(new.trace)


@pytest.mark.long
def test_no_operator_ends_the_process():
    """A call without attributes of each operator that does not tell of what class they are has a type, or is refused.
    """
    program = """
import tvm
from tvm import relay
from gsl.front.relay.types import infer
from gsl.graph import INPUT, Node, TensorType

module = tvm.IRModule.from_expr(relay.nn.relu(relay.var("x", shape=(2, 4))))
others = ("tl.", "tir.", "relax.")
names = [str(name) for name in tvm.ir.Op.list_op_names() if not str(name).startswith(others)]
done = 0
for name in names:
    for count in () if tvm.ir.Op.get(name).attrs_type_key else (1, 2, 3):
        operands = tuple([Node(INPUT, type=TensorType((2, 4), "float32"), name="x") for _ in range(count)])
        try:
            infer(module, tvm.ir.Op.get(name), operands, {})
        except ValueError:
            pass
        done += 1
print(done)
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr[-500:]
    assert int(run.stdout) > 300


def layer(rows: Any, name: str) -> Any:
    """A dense layer of the rows of a tensor of three axes."""
    return relay.reshape(relay.nn.dense(rows, var(name, 5, 4)), (2, 3, 5))


def test_new_dense_layers_share_the_rows_of_a_tensor():
    rows = relay.reshape(var("x", 2, 3, 4), (6, 4))
    wl = workload(relay.Tuple([layer(rows, "u"), relay.exp(layer(rows, "v")), relay.exp(layer(rows, "w"))]))
    dense = op.Dense(A, B)
    new = Subst(op.Exp(dense), op.Tanh(dense.like(A, op.Negative(B))))(wl, fold_params=False)
    assert len(new.trace.firings) == 2
    assert ops(new).count("reshape") == 1 + 3
    assert new.op_counts() == {"nn.dense": 3, "negative": 2, "tanh": 2}
    for seed in range(2):
        x = random(2, 3, 4, seed=seed)
        assert np.allclose(new(x)[0], wl(x)[0])


def test_new_dense_layers_in_a_row_read_as_such():
    rows = relay.reshape(var("x", 2, 3, 4), (6, 4))
    wl = workload(relay.exp(relay.reshape(relay.nn.dense(rows, var("w", 4, 4)), (2, 3, 4))))
    dense = op.Dense(A, B)
    new = Subst(op.Exp(dense), dense.like(dense.like(A, B), B))(wl)
    assert new.op_counts() == {"nn.dense": 2}
    assert ops(new).count("reshape") == 4
    # The two between the layers are one that changes nothing.
    simple = relay.transform.SimplifyExpr()(new.mod)
    assert ops(loaded(simple, new.params)).count("reshape") == 3


def test_an_operator_that_is_opaque_is_folded():
    wl = workload(relay.nn.relu(X + relay.sort(var("w", 2, 3), axis=0)))
    w = pat.Call(tvm.ir.Op.get("sort"), pat.Param())
    new = Subst(op.ReLU(A + w), A + w.like(w.operands[0], axis=1))(wl)
    assert ops(new) == ["add"]
    assert np.allclose(new.params["_param_1"].numpy(), np.sort(wl.params["w"].numpy(), axis=1))


def test_an_ill_typed_native_call_is_refused():
    wl = workload(relay.nn.relu(X))
    new = Subst(op.ReLU(A), pat.Call(tvm.ir.Op.get("reshape"), A, newshape=(7,)))(wl)
    assert not new.trace.firings
    assert "not compatible" in str(new.trace)


def test_what_relay_can_not_express_leaves_the_workload_as_it_was():
    wl = workload(twice(X))
    before = str(wl.mod)
    graph = wl.graph.copy()
    graph.outputs[0] = Node("input", type=graph.outputs[0].type, name="new")
    with pytest.raises(FrontEndError):
        wl.replace(graph)
    assert str(wl.mod) == before
    assert wl.replace(wl.graph.copy()).mod.same_as(wl.mod)


@pytest.mark.parametrize("value", [2**63, (1, -(2**63) - 1), "a\0b", 1j])
def test_an_attribute_that_relay_would_cut_is_refused(value: Any) -> None:
    wl = workload(relay.nn.relu(X))
    new = Subst(op.ReLU(A), pat.Fused("mine.relu", level=value))(wl)
    (refused,) = new.trace.refused
    assert "mine.relu: Relay can't hold the attribute level=" in refused.reason
    assert not new.groups()
    (group,) = Subst(op.ReLU(A), pat.Fused("mine.relu", level=2**63 - 1))(wl).groups().values()
    assert dict(group.attrs) == {"level": 2**63 - 1}



def test_a_group_is_outlined_as_a_composite_function():
    wl = workload(relay.exp(relay.nn.relu(X + var("w", 2, 3))))
    new = Subst(op.ReLU(A + B), pat.Fused("mine.add_relu", level=2))(wl)
    assert body(new) == """\
%1 = fn (%x1: Tensor[(2, 3), float32], %w1: Tensor[(2, 3), float32], Composite="mine.add_relu", \
PartitionedFromPattern="add_nn.relu_", level=2) \
-> Tensor[(2, 3), float32] {
%0 = add(%x1, %w1);
nn.relu(%0)
};
%2 = %1(%x, %w);
exp(%2)"""
    assert wl.compare(new)
    again = loaded(new.mod, new.params)
    assert [str(node.op) for node in again.graph if node.op not in ("input", "param")] == ["mine.add_relu", "exp"]
    assert wl.compare(again.inline())


def test_a_group_for_a_code_generator_is_what_relay_partitions():
    rule = Subst(op.ReLU(A + B), pat.Fused("mine.add_relu", codegen="mine", level=2))
    wl = workload(relay.exp(relay.nn.relu(relay.nn.relu(X + var("w", 2, 3)) + X)))
    new = rule(wl)
    text = body(new)
    assert text.count('Primitive=1, Compiler="mine", global_symbol="gsl_mine_mine_add_relu_') == 2
    assert text.count('Composite="mine.add_relu"') == 2
    assert len(set(re.findall('global_symbol="([^"]*)"', text))) == 2
    assert wl.compare(new)
    again = loaded(new.mod, new.params)
    assert [dict(node.attrs) for node in again.graph if str(node.op) == "mine.add_relu"] == [
        {"codegen": "mine", "level": 2}
    ] * 2
    assert "Compiler" not in str(again.inline().mod)
    assert wl.compare(again.inline())


def test_a_code_generator_is_asked_for_the_group():
    seen = []

    @tvm.register_func("relay.ext.gsltest", override=True)
    def generate(function):
        seen.append(str(function.attrs["global_symbol"]))
        raise ValueError("asked")

    new = Subst(op.ReLU(A + B), pat.Fused("mine.add_relu", codegen="gsltest"))(
        workload(relay.exp(relay.nn.relu(X + var("w", 2, 3))))
    )
    with pytest.raises(Exception, match="asked"):
        relay.build(new.mod, target="llvm", params=dict(new.params))
    assert seen == ["gsl_gsltest_mine_add_relu_0"]


@pytest.mark.parametrize("codegen", ["", 3])
def test_a_code_generator_has_a_name(codegen):
    wl = workload(relay.nn.relu(X + var("w", 2, 3)))
    with pytest.raises(FrontEndError, match="code generator"):
        Subst(op.ReLU(A + B), pat.Fused("mine.add_relu", codegen=codegen))(wl)


def test_groups_that_relay_itself_has_merged_are_seen():
    from tvm.relay.dataflow_pattern import is_op, wildcard

    module = module_of(relay.exp(relay.nn.relu(X + X)))
    table = [("its.group", is_op("nn.relu")(is_op("add")(wildcard(), wildcard())))]
    merged = relay.transform.MergeComposite(table)(module)
    wl = loaded(merged)
    assert [group.name for group in wl.groups().values()] == ["its.group"]
    assert wl.inline().compare(loaded(module))


def test_a_group_is_what_relay_makes_and_its_pipeline_takes_it():
    from tvm.relay.dataflow_pattern import is_op, wildcard

    module = module_of(relay.exp(relay.nn.relu(X + var("w", 2, 3))))
    table = [("mine.add_relu", is_op("nn.relu")(is_op("add")(wildcard(), wildcard())))]
    theirs = relay.transform.InferType()(relay.transform.MergeComposite(table)(module))
    ours = Subst(op.ReLU(A + B), pat.Fused("mine.add_relu"))(loaded(module)).mod
    tvm.ir.assert_structural_equal(relay.transform.InferType()(ours)["main"].body, theirs["main"].body, True)
    parts = ours
    for step in (relay.transform.AnnotateTarget("mine"), relay.transform.PartitionGraph()):
        parts = step(parts)
    (made,) = [function for name, function in parts.functions.items() if name.name_hint != "main"]
    assert str(made.attrs["Compiler"]) == "mine"
    assert 'Composite="mine.add_relu"' in str(made)


# ---------------------------------------------------------------- large programs


def test_a_deep_program():
    expr = X
    for number in range(3000):
        expr = relay.exp(expr) if number == 1000 else relay.nn.relu(expr) if number % 2 else relay.tanh(expr)
    wl = workload(expr)
    new = Subst(op.Exp(A), op.ReLU(op.Exp(A)))(wl)
    assert len(exprs(new.mod["main"].body)) == len(exprs(wl.mod["main"].body)) + 1
    assert wl.replace(wl.graph.copy()).mod.same_as(wl.mod)


def test_a_wide_program_that_is_shared_throughout():
    """Every sum has the one before twice: there are 2⁴⁰ paths through it."""
    expr = twice(X)
    for _ in range(40):
        expr = expr * relay.const(0.5) + expr * relay.const(0.5)
    wl = workload(expr)
    new = ONCE(wl)
    assert len(exprs(new.mod["main"].body)) == len(exprs(wl.mod["main"].body)) - 1
    new.build(**FAST)
    assert np.allclose(new(random(2, 3)), np.maximum(random(2, 3), 0))


def test_rules_made_for_one_front_end_hold_for_the_other():
    import torch

    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.relu(torch.relu(torch.exp(x)))

    on_torch = Workload.from_torch(Model(), (torch.randn(2, 3),))
    on_relay = workload(twice(relay.exp(X)))
    assert ONCE(on_relay).op_counts() == ONCE(on_torch).op_counts() == {"exp": 1, "nn.relu": 1}
    assert on_relay.compare(on_torch)
    assert ONCE(on_torch).compare(ONCE(on_relay))


# ---------------------------------------------------------------- native calls


def test_arguments_of_a_native_call_that_are_named_like_types():
    size = tvm.ir.Op.get("ndarray_size")
    wl = workload(relay.ndarray_size(X, dtype="int64"), "x")
    source = pat.Call(size, A, dtype="int64")
    assert len(list(Subst(source, A).match(wl))) == 1
    assert not list(Subst(pat.Call(size, A, dtype="int32"), A).match(wl))
    new = Subst(source, pat.Call(size, op.Exp(A), dtype="int64"))(wl)
    assert len(new.trace.firings) == 1
    assert int(new(x=random(2, 3))) == 6

    collapse = tvm.ir.Op.get("collapse_sum_to")
    wl = workload(relay.collapse_sum_to(X, (1, 3)), "x")
    assert len(list(Subst(pat.Call(collapse, A, B, shape=(1, 3)), A).match(wl))) == 1
    assert not list(Subst(pat.Call(collapse, A, B, shape=(2, 3)), A).match(wl))


@pytest.mark.parametrize("named", [{}, {"shape": (1, 4)}])
def test_a_native_call_whose_type_follows_from_a_literal_tensor(named):
    alike, to = tvm.ir.Op.get("collapse_sum_like"), tvm.ir.Op.get("collapse_sum_to")
    wl = workload(relay.collapse_sum_like(var("x", 2, 4, 4), var("y", 1, 4)), "x", "y")
    new = Subst(pat.Call(alike, A, B), pat.Call(to, A, pat.Const((1, 4), dtype="int32"), **named))(wl)
    assert ops(new) == ["collapse_sum_to"]
    assert new.graph.outputs[0].type == wl.graph.outputs[0].type
    assert wl.compare(new)
    other = Subst(pat.Call(alike, A, B), pat.Call(to, A, pat.Const((4, 4), dtype="int32")))(wl)
    assert "but its replacement" in str(other.trace)
    assert not other.trace.firings
