"""Calls in place beside calls that take only a shape, and literals of exports, are read; shared memory is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from gsl import Workload
from tests.helpers.nets import Of


def exported(function: Callable[..., Any], *tensors: torch.Tensor) -> Workload:
    return Workload.from_torch(Of(function), tensors)


def lent(x: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
    y = x @ x
    y.masked_fill_(hidden.expand_as(y), -1.0)
    return y.exp()


def shared(x: torch.Tensor, hidden: torch.Tensor) -> Any:
    y = x @ x
    view = y.view(9)
    y.masked_fill_(hidden.expand_as(y), -1.0)
    return y.exp(), view.tanh()


def summed_over_one(x: torch.Tensor, hidden: torch.Tensor) -> Any:
    """An einsum of one tensor may be a view of it."""
    y = torch.einsum("ij->ji", x.exp())
    return y.mul_(2.0).tanh()


HIDDEN = torch.tensor([[True, False, False]])


def test_a_shape_that_is_lent_keeps_no_memory_alive() -> None:
    wl = exported(lent, torch.randn(3, 3), HIDDEN)
    assert wl.op_counts() == {"matmul": 1, "broadcast_to": 1, "where": 1, "exp": 1}


@pytest.mark.parametrize(("function", "call"), [(shared, "masked_fill_"), (summed_over_one, "mul_")])
def test_memory_that_is_shared_stays_opaque(function: Callable[..., Any], call: str) -> None:
    assert any(call in str(op) for op in exported(function, torch.randn(3, 3), HIDDEN).op_counts())


def test_an_einsum_of_two_tensors_makes_new_memory() -> None:
    wl = exported(lambda x, y: torch.einsum("ij,jk->ik", x, y).mul_(2.0), torch.randn(3, 3), torch.randn(3, 3))
    assert wl.op_counts() == {"einsum": 1, "multiply": 1}


def test_literals_of_exports_and_of_dynamo_are_read() -> None:
    wl = exported(lambda x: torch.where(x > 0, x, torch.tensor(-5.0)), torch.randn(3))
    assert all(isinstance(op, str) and "." not in op for op in wl.op_counts())

    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    graph.output(
        graph.call_function(torch.add, (x, graph.call_function(torch.tensor, (2.0,), {"dtype": torch.float32})))
    )
    found = Workload.from_fx(torch.fx.GraphModule(nn.Module(), graph), (torch.randn(3),))
    assert found.op_counts() == {"full": 1, "add": 1}


def test_detaching_anything_else_stops_gradients() -> None:
    wl = exported(lambda x: x.exp().detach_() * 2, torch.randn(3))
    assert any("detach_" in str(op) for op in wl.op_counts())
