"""Operators of users in Relax: composite functions, written and read back."""

from __future__ import annotations

import pytest
from tvm import IRModule, relax
from tvm.script import relax as R

from gsl import Subst, Workload, op, pat
from tests.operators.declared import gated, rms_norm, shifted, turned


@pytest.fixture(scope="module")
def module() -> IRModule:
    builder = relax.BlockBuilder()
    x, w = relax.Var("x", R.Tensor((3, 8), "float32")), relax.Var("w", R.Tensor((8,), "float32"))
    with builder.function("main", [x, w]):
        with builder.dataflow():
            a = builder.emit(relax.op.nn.relu(x))
            mean = builder.emit(relax.op.mean(relax.op.power(a, relax.const(2.0)), axis=[-1], keepdims=True))
            root = builder.emit(relax.op.rsqrt(relax.op.add(mean, relax.const(1e-5))))
            result = builder.emit_output(relax.op.multiply(relax.op.multiply(a, root), w))
        builder.emit_func_output(result)
    return builder.get()


def test_a_call_is_a_composite_function(module: IRModule) -> None:
    wl = Workload.from_relax(module)
    new = rms_norm.recognise()(wl)
    assert "gsl_tests::rms_norm(%lv, %w, eps=1e-05)" in new.text()
    (group,) = [f for f in new.mod.functions.values() if f.attrs is not None and "Composite" in f.attrs]
    assert str(group.attrs["Composite"]) == "gsl_tests::rms_norm"
    assert float(group.attrs["gsl.eps"]) == 1e-5
    wl.compare(new).check()


def test_it_is_read_back(module: IRModule) -> None:
    wl = Workload.from_relax(module)
    new = Workload.from_relax(rms_norm.recognise()(wl).mod)
    assert all(node.op != "gsl_tests::rms_norm" for node in new.graph)  # a group
    assert any(node.op == "gsl_tests::rms_norm" for node in new.with_operators(rms_norm).graph)
    back = rms_norm.lower()(new)
    assert [node.op for node in back.graph] == [node.op for node in wl.graph]
    wl.compare(back).check()


def test_all_kinds_of_attributes_come_back(module: IRModule) -> None:
    x = pat.Wildcard()
    for mode in ("relu", "sigmoid"):
        rule = Subst(op.ReLU(x), gated(x, mode=mode), name="gate")
        new = rule(Workload.from_relax(module))
        again = Workload.from_relax(new.mod).with_operators(gated)
        (node,) = [node for node in again.graph if node.op == "gsl_tests::gated"]
        assert node.attrs == {"mode": mode}


def test_a_meaning_may_have_fields_and_tuples(module: IRModule) -> None:
    """The halves of a tensor, as rotary embeddings turn them."""
    x = pat.Wildcard()
    wl = Workload.from_relax(module)
    new = Subst(op.ReLU(x), turned(x), where=x.shape[-1] % 2 == 0, name="turn")(wl)
    assert "gsl_tests::turned(%x)" in new.text()
    back = turned.lower()(Workload.from_relax(new.mod))
    assert {"split", "concatenate"} < set(back.op_counts())
    new.compare(back).check()


@pytest.mark.parametrize(("number", "zero"), [(3.0, 3), (2.5, None)])
def test_a_whole_number_is_found_in_arithmetic_of_floats(number: float, zero: int | None) -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", R.Tensor((3, 8), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            total = builder.emit(relax.op.add(x, relax.const(number)))
            result = builder.emit_output(relax.op.tanh(total))
        builder.emit_func_output(result)
    wl = Workload.from_relax(builder.get())
    new = shifted.recognise()(wl)
    found = [node.attrs["zero"] for node in new.graph if node.op == "gsl_tests::shifted"]
    assert found == ([] if zero is None else [zero])
    assert all(isinstance(value, int) for value in found)
    if found:
        wl.compare(new).check()
