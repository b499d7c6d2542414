"""Workloads of Relay as their users meet them: inputs, outputs, building, comparing, drawing, folding."""

from __future__ import annotations

import copy
import pickle
import re
from typing import Any

import numpy as np
import pytest
import torch
import tvm
from tvm import relay

from gsl import RuleSet, Subst, Workload, attr, op, pat
from gsl.errors import FrontEndError, MissingPackageError, PatternError, WorkloadError
from gsl.front.relay import from_expr
from tests.front.relay.helpers import loaded, module_of, ops, random, var, workload

X = var("x", 2, 3)
A = pat.Wildcard()
ONCE = Subst(op.ReLU(op.ReLU(A)), op.ReLU(A), name="once")


def twice(expr: Any) -> Any:
    return relay.nn.relu(relay.nn.relu(expr))


# ---------------------------------------------------------------- inputs and outputs


@pytest.mark.parametrize(
    "value",
    [
        random(2, 3),
        random(2, 3).astype("float64"),
        torch.from_numpy(random(2, 3)),
        tvm.nd.array(random(2, 3)),
        np.asfortranarray(random(2, 3)),
        torch.from_numpy(random(3, 2).reshape(2, 3).T.copy()).T,
    ],
    ids=["numpy", "float64", "torch", "tvm", "by columns", "transposed"],
)
def test_inputs_of_several_kinds(value: Any):
    wl = workload(relay.exp(X))
    expected = np.exp(np.asarray(value.numpy() if hasattr(value, "numpy") else value, dtype="float32"))
    assert np.allclose(wl(value), expected)
    assert np.allclose(wl(x=value), expected)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((), "no value for the input 'x'"),
        ((random(2, 4),), r"should be float32\[2, 3\], but is float32\[2, 4\]"),
        ((random(2, 3).astype("int32"),), "convert it to float32 first"),
        ((random(2, 3), random(2, 3)), "takes 1 input"),
    ],
)
def test_inputs_that_do_not_fit(args: Any, message: str):
    with pytest.raises(WorkloadError, match=message):
        workload(relay.exp(X))(*args)


@pytest.mark.parametrize("executor", ["graph", "vm", "debug"])
def test_results_are_arrays_in_the_tuples_of_the_program(executor: str):
    parts = relay.split(X, 3, 1)
    wl = workload(relay.Tuple([relay.exp(X), relay.Tuple([parts[0], relay.Tuple([parts[2]])]), X]))
    wl.build(executor=executor)
    first, (second, (third,)), last = wl(random(2, 3))
    assert all(isinstance(part, np.ndarray) for part in (first, second, third, last))
    assert [part.shape for part in (first, second, third, last)] == [(2, 3), (2, 1), (2, 1), (2, 3)]
    assert np.array_equal(last, random(2, 3))
    assert np.array_equal(third, random(2, 3)[:, 2:])


def test_results_are_not_overwritten_by_the_next_run():
    wl = workload(relay.exp(X))
    first = wl(random(2, 3))
    copy = first.copy()
    wl(random(2, 3, seed=1))
    assert np.array_equal(first, copy)


def test_integer_inputs_stay_integers():
    indices = var("i", 2, dtype="int32")
    wl = workload(twice(relay.take(var("w", 5, 3), indices, axis=0)), "i")
    new = ONCE(wl)
    assert new.mod["main"].params[1].checked_type.dtype == "int32"
    i = np.array([4, 0], "int32")
    assert np.array_equal(new(i), np.maximum(wl.params["w"].numpy()[i], 0))
    assert wl.compare(new)


@pytest.mark.parametrize("dtype", ["float64", "float16", "int8", "int64"])
def test_a_rewrite_keeps_the_dtype(dtype: str):
    x, w = var("x", 2, 3, dtype=dtype), var("w", 2, 3, dtype=dtype)
    wl = workload(twice(x + w + w))
    v = pat.Param()
    new = RuleSet([ONCE, Subst(A + v + v, A + (v + v), name="sum")])(wl)
    assert ops(new) == ["add", "nn.relu"]
    assert str(new.params["_param_1"].dtype) == dtype
    assert wl(np.ones((2, 3), dtype)).dtype == dtype
    assert wl.compare(new)


def test_an_unused_input_is_fed_all_the_same():
    wl = loaded(module_of(relay.exp(X), X, var("unused", 7)))
    assert np.allclose(wl(random(2, 3), random(7)), np.exp(random(2, 3)))


def test_an_unknown_size_is_that_of_the_input():
    wl = workload(twice(var("x", relay.Any(), 3)))
    assert wl(random(5, 3)).shape == (5, 3)
    assert [value.shape for value in wl.random_inputs(sizes={"any0": 4})] == [(4, 3)]


# ---------------------------------------------------------------- construction


def test_the_constructors():
    expr = relay.nn.dense(X, var("w", 4, 3))
    module = module_of(expr)
    params = {"w": random(4, 3)}
    workloads = [
        Workload(module, params),
        Workload(module, params={"w": tvm.nd.array(params["w"])}),
        Workload.from_relay(module, {"w": torch.from_numpy(params["w"])}),
        Workload.from_relay(module["main"], params),
    ]
    for wl in workloads:
        assert list(wl.inputs) == ["x"]
        assert np.allclose(wl(random(2, 3)), random(2, 3) @ params["w"].T, atol=1e-5)
    assert list(Workload(module).inputs) == ["x", "w"]
    assert list(Workload.from_expr(module["main"], {"x"}).params) == ["w"]


def test_random_weights_depend_on_the_seed_alone():
    expr = relay.nn.dense(X, var("w", 4, 3)) + relay.cast(var("i", 4, dtype="int32"), "float32")

    def values(seed: int) -> list[Any]:
        return [value.numpy() for value in Workload(from_expr(expr, ["x"], seed=seed)).params.values()]

    for same, again, other in zip(values(0), values(0), values(1)):
        assert np.array_equal(same, again)
        assert not np.array_equal(same, other)


def test_from_expr_names_what_it_does_not_find():
    with pytest.raises(FrontEndError, match="no variable 'y'; known are x"):
        from_expr(relay.exp(X), {"y"})
    with pytest.raises(FrontEndError, match="of which there is no random value"):
        from_expr(relay.exp(var("y", relay.Any())) + relay.const(1.0), ())


# ---------------------------------------------------------------- building


OPTIONS: list[dict[str, Any]] = [{}, {"target": "llvm", "opt_level": 3}, {"executor": "vm"}, {"executor": "debug"}]


@pytest.mark.parametrize("options", OPTIONS)
def test_options_of_building(options: dict[str, Any]):
    wl = workload(relay.nn.dense(twice(X), var("w", 4, 3)))
    assert wl.build(**options) is wl
    expected = np.maximum(random(2, 3), 0) @ wl.params["w"].numpy().T
    assert np.allclose(wl(random(2, 3)), expected, atol=1e-5)


def test_the_pass_context_of_the_caller_counts():
    seen: list[int] = []

    @tvm.instrument.pass_instrument
    class Levels:
        def __init__(self, levels: list[int]) -> None:
            self.levels = levels

        def run_before_pass(self, module: Any, info: Any) -> None:
            self.levels.append(int(tvm.transform.PassContext.current().opt_level))

    config = {"relay.backend.use_auto_scheduler": False}
    with tvm.transform.PassContext(opt_level=3, instruments=[Levels(seen)], config=config):
        workload(relay.exp(X)).build()
    assert set(seen) == {3}


def test_what_can_not_be_built():
    with pytest.raises(FrontEndError, match="executor='fast': there are 'graph', 'vm', 'debug'"):
        workload(relay.exp(X)).build(executor="fast")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"target": "nonsense"}, 'Target kind "nonsense" is not defined'),
        ({"nonsense": 1}, "Invalid config option 'nonsense'"),
        ({"opt_level": "high"}, "PassContext"),
    ],
)
def test_what_tvm_does_not_take(options: dict[str, Any], reason: str):
    with pytest.raises(FrontEndError, match="TVM does not take what build was given: .*" + re.escape(reason)):
        workload(relay.exp(X)).build(**options)


def test_relax_needs_a_newer_tvm():
    with pytest.raises(MissingPackageError, match=r"need a TVM of version 0\.27 or newer; .*Workload\.from_relay"):
        Workload.from_relax(workload(relay.exp(X)).mod)


# ---------------------------------------------------------------- what rules and reports do


def test_comparing_finds_a_difference():
    wl = workload(relay.Tuple([relay.exp(X), relay.tanh(X)]))
    wrong = Subst(op.Tanh(A), op.Sigmoid(A))(wl)
    report = wl.compare(wrong)
    assert not report
    assert [row.passed for row in report.outputs] == [True, False]
    assert wl.compare(wl)


def test_a_drawing_of_all_kinds_of_expressions():
    inner = var("inner", 2, 3)
    called = relay.Call(relay.Function([inner], relay.exp(inner)), [relay.nn.relu(X)])
    wl = workload(relay.Tuple([called, relay.If(var("c", dtype="bool"), X, called), relay.sort(X)]), "x", "c")
    text = wl.visualize().svg
    for label in ("Function", "If", "sort", "nn.relu"):
        assert label in text


def test_explaining_a_rule_that_does_not_match():
    wl = workload(relay.nn.relu(relay.exp(X)))
    assert "exp" in str(ONCE.explain(wl))


def test_a_native_operator_that_is_shown_by_a_canonical_one():
    wl = workload(relay.nn.relu(relay.exp(X)))
    with pytest.raises(PatternError, match=r"matches nothing.*write op\.Exp\(x\)"):
        Subst(pat.Call(tvm.ir.Op.get("exp"), A), A)(wl)


def test_rules_until_nothing_changes():
    expr = X
    for _ in range(5):
        expr = relay.nn.relu(expr)
    new = RuleSet([ONCE])(workload(expr), iterative=True)
    assert ops(new) == ["nn.relu"]


def test_a_flag_is_a_truth_value():
    sort = pat.Call(tvm.ir.Op.get("sort"), A)
    rule = Subst(op.ReLU(sort), sort.like(op.ReLU(A)), where=sort.is_ascend)
    assert rule(workload(relay.nn.relu(relay.sort(X)))).trace.firings
    assert not rule(workload(relay.nn.relu(relay.sort(X, is_ascend=False)))).trace.firings


def test_an_attribute_that_is_none_is_not_any_value():
    x = var("x", 2, 3, 4)
    transposed = op.Transpose(A, axes=attr.Const(None))
    assert not Subst(op.ReLU(transposed), transposed.like(op.ReLU(A)))(
        workload(relay.nn.relu(relay.transpose(x, (1, 0, 2))))
    ).trace.firings


def test_fields_of_what_was_matched_can_be_used():
    split = op.Split(A)
    wl = workload(relay.nn.relu(relay.split(X, 3, 1)[1]))
    new = Subst(op.ReLU(split[1]), op.Exp(split[2]))(wl)
    assert np.allclose(new(random(2, 3)), np.exp(random(2, 3)[:, 2:]))


W = pat.Param()
THIRDS = op.Split(W, indices_or_sections=3, axis=1)
FOLDED: dict[str, tuple[Any, tuple[int, ...], str]] = {
    "a padding value": (op.Pad(W, pad_width=((1, 1), (0, 0)), pad_value=5.0), (4, 3), "float32"),
    "a padding mode": (op.Pad(W, pad_width=((0, 0), (1, 1)), pad_mode="reflect"), (2, 5), "float32"),
    "a transposed product": (op.Matmul(op.Transpose(W, axes=(1, 0)), W), (3, 3), "float32"),
    "integers": (op.FloorDivide(W, pat.Const(2)), (2, 3), "int32"),
    "fields": (op.Concatenate([THIRDS[2], THIRDS[0]], axis=1), (2, 2), "float32"),
}


@pytest.mark.parametrize("name", FOLDED)
def test_what_is_folded_is_what_would_be_computed(name: str):
    target, shape, dtype = FOLDED[name]
    x, w = var("x", *shape, dtype=dtype), var("w", 2, 3, dtype=dtype)
    wl = loaded(module_of(x + relay.max(w)), {"w": (10 * random(2, 3)).astype(dtype)})
    rule = Subst(A + op.Max(W), A + target)
    folded, computed = rule(wl), rule(wl, fold_params=False)
    assert ops(folded) == ["add"]
    assert list(folded.params) == ["_param_1"]
    assert list(computed.params) == ["w"]
    assert computed.compare(folded)


@pytest.mark.parametrize("way", ["deepcopy", "pickle"])
def test_a_copy_is_a_workload_of_its_own(way: str):
    wl = loaded(module_of(twice(X * var("w", 2, 3)) + relay.const(2.0)), {"w": random(2, 3)})
    for each in (wl, ONCE(wl)):
        new = copy.deepcopy(each) if way == "deepcopy" else pickle.loads(pickle.dumps(each))
        assert (new.name, new.text()) == (each.name, each.text())
        assert tvm.ir.structural_equal(new.mod, each.mod)
        assert each.compare(new)


def test_the_reason_is_told_where_tvm_prints_a_program_behind_it():
    v, p, c = var("v", 2, 3), var("p", 2, 3), relay.var("c", shape=(), dtype="bool")
    inner = relay.Let(v, X, relay.nn.relu(v + relay.Call(relay.Function([p], relay.exp(p)), [X])))
    both = inner + inner
    wl = loaded(module_of(relay.Tuple([relay.If(c, relay.negative(both), relay.negative(inner)), both])))
    with pytest.raises(FrontEndError, match=r"the program for .*: InternalError: Check failed: \(WellFormed"):
        wl.build()
