"""Readings that are kept for calls alike: what they give is what each call by itself would give."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import fx, nn

from gsl import Subst, Workload, op, pat
from gsl.front.fx import effects
from gsl.front.fx.signatures import key_of_call
from gsl.front.fx.values import Values
from gsl.graph import Graph

WIDTH = 4


def widened(x: torch.Tensor) -> torch.Tensor:
    """A function whose result depends on a global."""
    return x.new_zeros(WIDTH)


fx.wrap("widened")


class Repeated(nn.Module):
    """The same operators several times, with other constants, types, and in place."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for dim in (0, 1, 0, 1):
            x = torch.softmax(x, dim).transpose(0, 1) * 2.0 + torch.softmax(x, dim).sum(dim, keepdim=True)
        y = x.double()
        y.add_(1)
        return torch.softmax(y, 0) * True + torch.softmax(y, 0) * 1


def described(graph: Graph) -> list[Any]:
    """All that a view says of its nodes."""
    place = {node: number for number, node in enumerate(graph.nodes)}
    return [
        (node.name, node.op, [place[operand] for operand in node.operands], dict(node.attrs), node.type, node.effect)
        for node in graph.nodes
        if node.op not in ("param", "const")
    ]


@pytest.mark.parametrize("example", [torch.randn(3, 3), torch.randn(2, 2).half()], ids=["float32", "float16"])
def test_kept_readings_are_those_of_each_call(example: torch.Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    program = torch.export.export(Repeated(), (example,))
    kept = [described(Workload.from_exported(program).graph) for _ in range(2)]
    monkeypatch.setattr(effects, "_SHARED", {})
    monkeypatch.setattr(effects, "_MOST_SHARED", 0)  # so that each is forgotten at the next one
    assert kept == [described(Workload.from_exported(program).graph)] * 2


def test_constants_that_are_equal_but_of_other_types_are_told_apart() -> None:
    class Scaled(nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return torch.add(x, 1), torch.add(x, 1.0), torch.add(x, True)

    x = torch.arange(3)
    old = Workload.from_torch(Scaled(), (x,))
    assert [str(node.type) for node in old.graph if node.op == "add"] == ["int64[3]", "float32[3]", "int64[3]"]
    assert all(map(torch.equal, old(x), Scaled()(x)))


@pytest.mark.parametrize("order", ["xx xy yx yy", "xy xx yx", "yx yy xx xy"])
@pytest.mark.parametrize("bias", [False, True])
def test_linear_layers_of_one_tensor_and_of_two_are_told_apart(order: str, bias: bool) -> None:
    """A decomposed export transposes the weight in a call of its own, and both calls are read as one."""

    class Products(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
            pairs = [({"x": x, "y": y}[left], {"x": x, "y": y}[right]) for left, right in order.split()]
            return tuple([torch.addmm(y[0], a, b.t()) if bias else a @ b.t() for a, b in pairs])

    program = torch.export.export(Products(), (torch.randn(3, 3), torch.randn(3, 3))).run_decompositions()
    layers = [node for node in Workload.from_exported(program).graph if node.op == "nn.dense"]
    assert ["".join(operand.name for operand in node.operands) for node in layers] == order.split()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (lambda x, y: (x, x), lambda x, y: (x, y)),
        (lambda x, y: (x, y, x), lambda x, y: (x, y, y)),
        (lambda x, y: (x, [y]), lambda x, y: ([x, y],)),
        (lambda x, y: ([x, [1], 2],), lambda x, y: ([x, [1, 2]],)),
        (lambda x, y: (x, 0.0), lambda x, y: (x, -0.0)),
        (lambda x, y: (x, 1), lambda x, y: (x, True)),
        (lambda x, y: (x, "dim", 1), lambda x, y: (x, {"dim": 1})),
    ],
)
def test_calls_that_are_not_alike_have_other_keys(one: Callable[..., Any], other: Callable[..., Any]) -> None:
    graph, values = fx.Graph(), Values()
    x, y = graph.placeholder("x"), graph.placeholder("y")

    def key(arguments: tuple[Any, ...]) -> Any:
        *args, last = arguments
        kwargs = last if isinstance(last, dict) else {}
        node = graph.call_function(torch.add, tuple(args) if kwargs else arguments, kwargs)
        return key_of_call(node, values)[0]

    assert key(one(x, y)) != key(other(x, y))
    assert key(one(x, y)) == key(one(y, x))
    values.known[x] = torch.empty(2)
    values.types.clear()
    assert key(one(x, x)) != key(one(y, y))


def test_the_type_of_a_python_function_is_not_kept_between_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    def rewritten(function: Callable[..., Any]) -> str:
        x = pat.Wildcard()
        rule = Subst(op.Sum(op.ReLU(x)), op.Sum(pat.Call(function, x)), name="widened")
        module = fx.symbolic_trace(type("Summed", (nn.Module,), {"forward": lambda self, x: torch.relu(x).sum()})())
        new = rule(Workload.from_fx(module, (torch.randn(3),)))
        (call,) = (node for node in new.graph if node.opaque)
        return str(call.type)

    assert rewritten(widened) == "float32[4]"
    monkeypatch.setattr(f"{__name__}.WIDTH", 6)
    assert rewritten(widened) == "float32[6]"
