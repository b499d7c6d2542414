"""Groups of instances that share no node, on the models of inductor's tests of its fusion of groups."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from gsl import Subst, Workload, attr, op, pat
from gsl.prove import Proof, prove
from gsl.verify import Refuted, Supported


def stacked(group: pat.Variadic, template: pat.Pattern) -> pat.Call:
    i = attr.Symbol()
    return op.Stack(pat.Variadic(group(template, i), index=i, length=group.length), axis=0)


def divided(whole: pat.Pattern, group: pat.Variadic) -> pat.Variadic:
    k = attr.Symbol()
    part = op.Split(whole, indices_or_sections=group.length, axis=0)[k]
    return pat.Variadic(op.Squeeze(part, axis=(0,)), index=k)


def batch_linear(*, biased: bool = True, least: int = 2, most: int | None = None) -> Subst:
    """x0 w0ᵀ + b0, x1 w1ᵀ + b1, … as a product of stacks."""
    x0, w0, b0 = pat.Wildcard(ndim=2), pat.Param(ndim=2), pat.Param(ndim=1)
    first = op.Dense(x0, w0)
    first_sum = op.BiasAdd(first, b0, axis=1)
    x, w, b = (pat.Wildcard(shape=p.shape, dtype=p.dtype) for p in (x0, w0, b0))
    dense = op.Dense(x, w, out_dtype=first.out_dtype)
    total = op.BiasAdd(dense, b, axis=1)
    if not biased:
        group = pat.Variadic(dense, [dense, x, w], [first, x0, w0], min_len=least, max_len=most)
        return Subst(group, divided(op.BatchMatmul(stacked(group, x), stacked(group, w)), group), name="batch linear")
    templates, firsts = [total, dense, x, w, b], [first_sum, first, x0, w0, b0]
    group = pat.Variadic(total, templates, firsts, min_len=least, max_len=most)
    product = op.BatchMatmul(stacked(group, x), stacked(group, w))
    whole = product + op.ExpandDims(stacked(group, b), axis=1)
    return Subst(group, divided(whole, group), extern_use=False, name="batch linear")


def batch_pointwise() -> Subst:
    """f(x0), f(x1), … for an element-wise f, as f of a stack."""
    f = pat.OneOf("nn.relu", "tanh", "sigmoid")
    x0 = pat.Wildcard()
    first = pat.Call(f, x0)
    x = pat.Wildcard(shape=x0.shape, dtype=x0.dtype)
    call = pat.Call(f, x)
    group = pat.Variadic(call, [call, x], [first, x0], min_len=2)
    return Subst(group, divided(first.like(stacked(group, x)), group), name="batch pointwise")


def batch_layer_norm() -> Subst:
    """Layer norms of equal shapes, as one without weights, whose result is scaled and shifted."""
    x0, g0, b0 = pat.Wildcard(ndim=2), pat.Param(ndim=1), pat.Param(ndim=1)
    first = op.LayerNorm(x0, g0, b0, axis=(1,))
    x, g, b = pat.Wildcard(shape=x0.shape, dtype=x0.dtype), pat.Param(ndim=1), pat.Param(ndim=1)
    norm = op.LayerNorm(x, g, b, axis=(1,), epsilon=first.epsilon)
    group = pat.Variadic(norm, [norm, x, g, b], [first, x0, g0, b0], min_len=2)
    plain = op.LayerNorm(stacked(group, x), axis=(2,), epsilon=first.epsilon)
    scale, shift = (op.ExpandDims(stacked(group, p), axis=1) for p in (g, b))
    return Subst(group, divided(plain * scale + shift, group), name="batch layer norm")


class Towers(nn.Module):
    """The parts of an input, each through a tower of layers, and joined again: inductor's ``MyModule`` and the like."""

    def __init__(self, make: Callable[[], nn.Module], number: int = 4, width: int = 10) -> None:
        super().__init__()
        self.width = width
        self.towers = nn.ModuleList(make() for _ in range(number))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = torch.split(x.tanh(), self.width, 1)
        return torch.cat([tower(part) for tower, part in zip(self.towers, parts)], 1)


def towers(make: Callable[[], nn.Module], number: int = 4) -> Workload:
    torch.manual_seed(0)
    return Workload.from_torch(Towers(make, number).eval(), (torch.randn(6, 10 * number),))


@pytest.mark.parametrize(
    ("rule", "make", "call", "fired", "left"),
    [
        (batch_linear(), lambda: nn.Linear(10, 8), "nn.bias_add", 1, 0),
        (batch_linear(biased=False), lambda: nn.Linear(10, 8, bias=False), "nn.dense", 1, 0),
        (batch_linear(), lambda: nn.Sequential(nn.Linear(10, 10), nn.ReLU(), nn.Linear(10, 10)), "nn.bias_add", 2, 0),
        (batch_pointwise(), nn.ReLU, "nn.relu", 1, 1),
        (batch_pointwise(), nn.Sigmoid, "sigmoid", 1, 1),
        (batch_pointwise(), lambda: nn.Sequential(nn.Sigmoid(), nn.ReLU()), "sigmoid", 2, 1),
        (batch_layer_norm(), lambda: nn.LayerNorm(10), "nn.layer_norm", 1, 1),
    ],
    ids=["linear", "no bias", "two layers", "relu", "sigmoid", "both", "layer norm"],
)
def test_towers(rule: Subst, make: Callable[[], nn.Module], call: str, fired: int, left: int) -> None:
    old = towers(make)
    new = rule(old)
    assert new.trace.count() == fired
    assert not new.trace.refused
    assert new.op_counts().get(call, 0) == left
    old.compare(new).check()


def test_the_numbers_of_layers() -> None:
    old = towers(lambda: nn.Linear(10, 8), 5)
    assert batch_linear(least=6)(old).trace.count() == 0
    new = batch_linear(most=2)(old)
    assert [len(firing.replaced) for firing in new.trace.firings] == [2, 2]
    old.compare(new).check()


def test_sizes_divide_the_layers() -> None:
    sizes = iter((8, 9, 8, 9, 7))
    old = towers(lambda: nn.Linear(10, next(sizes)), 5)
    new = batch_linear()(old)
    assert new.trace.count() == 2
    assert new.op_counts()["nn.dense"] == 1
    old.compare(new).check()


class Recurrent(nn.Module):
    """Layers of which some use the results of others."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(6, 6) for _ in range(4))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        a, b, c, d = self.layers
        first = a(x)
        return d(c(first.relu()) + b(y)) * first


def test_layers_that_depend_on_each_other_stay_apart() -> None:
    old = Workload.from_torch(Recurrent().eval(), (torch.randn(3, 6), torch.randn(3, 6)))
    new = batch_linear()(old)
    assert [firing.replaced for firing in new.trace.firings] == [("linear", "linear_2")]
    assert not new.trace.refused
    old.compare(new).check()


def test_one_layer_that_does_not_fit_does_not_stop_the_others() -> None:
    """The second one is used without its bias, too."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(6, 6) for _ in range(3))

        def forward(self, *x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            plain = nn.functional.linear(x[1], self.layers[1].weight)  # type: ignore[arg-type]
            return self.layers[0](x[0]), plain + self.layers[1].bias, plain, self.layers[2](x[2])

    old = Workload.from_torch(Model(), tuple(torch.randn(3, 6) for _ in range(3)))
    new = batch_linear()(old)
    assert [len(firing.replaced) for firing in new.trace.firings] == [2]
    assert new.op_counts()["nn.dense"] == 1
    old.compare(new).check()


@pytest.mark.long
def test_the_rules_are_verified() -> None:
    assert isinstance(batch_linear(biased=False).verify(max_examples=150), Supported)
    assert isinstance(batch_pointwise().verify(max_examples=40), Supported)
    assert isinstance(prove(batch_linear(biased=False)), Proof)


@pytest.mark.parametrize("order", [lambda k, n: n - 1 - k, lambda k, n: 0 * k], ids=["turned", "the first one"])
def test_wrong_rules_are_refuted(order: Callable[[Any, Any], Any]) -> None:
    x0 = pat.Wildcard()
    x, k = pat.Wildcard(shape=x0.shape, dtype=x0.dtype), attr.Symbol()
    first, call = op.Tanh(x0), op.Tanh(x)
    group = pat.Variadic(call, [call, x], [first, x0], min_len=2)
    whole = op.Split(op.Tanh(stacked(group, x)), indices_or_sections=group.length, axis=0)
    part = op.Squeeze(whole[order(k, group.length)], axis=(0,))
    assert isinstance(Subst(group, pat.Variadic(part, index=k)).verify(max_examples=60), Refuted)
