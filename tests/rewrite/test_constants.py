"""Numbers and literal tensors in targets: a number is not a tensor, and every dtype of torch can be written."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from gsl import Subst, Workload, op, pat
from gsl.graph import CONST
from tests.helpers.graphs import graph
from tests.rewrite.checks import rewritten

x = pat.Wildcard()
relu = op.ReLU(x)


class One(torch.nn.Module):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, a: Any) -> Any:
        return self.function(a)


class Two(One):
    def forward(self, a: Any, b: Any) -> Any:
        return self.function(a, b)


def workload(how: str, function: Any, *inputs: Any) -> Workload:
    model = One(function) if len(inputs) == 1 else Two(function)
    if how == "export":
        return Workload.from_torch(model, inputs)
    return Workload.from_fx(torch.fx.symbolic_trace(model), inputs)


SCALARS = {
    "promotes": (lambda z, y: y + z * 0, (torch.tensor(3), torch.tensor(4, dtype=torch.int32)), 0),
    "an output": (lambda z: z * 0, (torch.tensor(3),), 0),
    "a float": (lambda z: z * 0, (torch.tensor(3.0),), 0),
    "stack": (lambda z, y: torch.stack([z * 0, y]), (torch.tensor(3), torch.tensor(4)), 0),
    "reshape": (lambda z: (z * 0).reshape(1, 1), (torch.tensor(3),), 0),
    "where": (lambda z, c: torch.where(c, z * 0, 1.5), (torch.tensor(3.0).double(), torch.tensor(True)), 0.0),
    "opaque": (lambda z: torch.special.erfcx(z * 0), (torch.tensor(3.0),), 0.0),
}


@pytest.mark.parametrize("how", ["export", "trace"])
@pytest.mark.parametrize("case", SCALARS)
def test_a_number_in_the_place_of_a_tensor_becomes_one(case: str, how: str) -> None:
    function, inputs, value = SCALARS[case]
    wl = workload(how, function, *inputs)
    new = Subst(x * 0, pat.Const(value))(wl)
    assert new.trace.count() == 1, new.trace
    wl.compare(new).check()
    assert isinstance(new(*inputs), torch.Tensor)


def test_the_fields_of_a_tuple_become_tensors_too() -> None:
    wl = workload("trace", torch.unbind, torch.randn(2))
    new = Subst(pat.Call(torch.unbind, x), pat.Tuple(pat.Const(1.0), pat.Const(2)))(wl)
    assert new.trace.count() == 1, new.trace
    assert [(type(v), v.dtype, float(v)) for v in new(torch.randn(2))] == [
        (torch.Tensor, torch.float32, 1.0), (torch.Tensor, torch.float32, 2.0)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("dtype", "value"),
    [("int64", 0.5), ("uint8", 256), ("uint8", -1), ("int8", 128), ("int8", -129), ("bool", 1), ("float32", True)],
)
def test_a_number_that_the_dtype_does_not_have_is_refused(dtype: str, value: float) -> None:
    view = graph(lambda b: b.call("cast", b.input("x"), dtype=dtype))
    _, trace = rewritten(Subst(op.Cast(x), pat.Const(value)), view, numbers=False)
    assert trace.count() == 0
    assert f"the number {value!r} can't replace %cast, which is {dtype}[]" in str(trace.refused[0])


@pytest.mark.parametrize(
    ("dtype", "value"),
    [("uint8", 0), ("uint8", 255), ("int8", -128), ("int8", 127), ("bool", False), ("float16", 3), ("float16", 0.5)],
)
def test_a_number_that_the_dtype_has(dtype: str, value: float) -> None:
    view = graph(lambda b: b.call("cast", b.input("x"), dtype=dtype))
    new, trace = rewritten(Subst(op.Cast(x), pat.Const(value)), view, numbers=False)
    assert trace.count() == 1, trace
    assert f"full({value!r}, shape=(), dtype='{dtype}')" in str(new)


def test_a_number_for_a_tensor_of_no_known_type_is_refused() -> None:
    wl = Workload(torch.fx.symbolic_trace(One(lambda a: a * 0)))
    new = Subst(x * 0, pat.Const(0))(wl)
    assert new.trace.count() == 0
    assert "has no known dtype: write pat.Const(0, dtype=…)" in str(new.trace.refused[0])


def test_a_number_that_was_a_number_stays_one() -> None:
    two = pat.Const(2)
    view = graph(lambda b: b.call("add", b.input("x", 4), 2))
    new, trace = rewritten(Subst(x + two, x + pat.Const(3)), view, numbers=False)
    assert trace.count() == 1
    assert [node.attrs["value"] for node in new if node.op == CONST] == [3]


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        (op.Concatenate(pat.Tuple(x, pat.Const(0.0)), axis=0), "takes tensors, but got the number 0.0 among them"),
        (op.Stack(pat.Tuple(x, pat.Const(0)), axis=0), "takes tensors, but got the number 0 among them"),
        (op.Reshape(pat.Const(0.0), newshape=()), "the new reshape takes a tensor, but got only numbers"),
        (pat.Const(1.0) + pat.Const(2.0), "the new add takes a tensor, but got only numbers"),
        (pat.Call(torch.special.erfcx, pat.Const(0.0)), "is not well-formed"),
    ],
)
def test_a_number_where_a_call_takes_a_tensor_is_refused(target: Any, reason: str) -> None:
    new = Subst(relu, target)(workload("trace", torch.relu, torch.tensor(3.0)))
    assert new.trace.count() == 0
    assert reason in str(new.trace.refused[0])


@pytest.mark.parametrize("how", ["export", "trace"])
@pytest.mark.parametrize("value", [0.0, [0.0, 0.25, 0.5], torch.tensor([0.0, 0.25, 0.5])])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64"])
def test_a_literal_of_any_dtype(dtype: str, value: Any, how: str) -> None:
    wl = workload(how, torch.relu, torch.randn(3).to(getattr(torch, dtype)))
    new = Subst(relu, op.Maximum(x, pat.Const(value, dtype=dtype)))(wl)
    assert new.trace.count() == 1, new.trace
    (given,) = wl.random_inputs()
    expected = torch.maximum(given, torch.as_tensor(value, dtype=given.dtype))
    assert torch.equal(new(given), expected)
