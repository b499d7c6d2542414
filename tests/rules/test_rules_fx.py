"""Every rule on a small module that torch exports or traces: it fires, weights are folded, and outputs agree."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from gsl import Workload
from gsl.rules import RULES
from tests.helpers.book import EVERY_RULE
from tests.helpers.nets import Net

Function = Callable[..., Any]


def conv(out: int, kernel: int, size: int = 4, **options: Any) -> nn.Conv2d:
    return nn.Conv2d(size, out, kernel, **{"bias": False, **options})


def settled(norm: nn.Module) -> nn.Module:
    """A batch norm with statistics of its own."""
    for name, value in norm.named_buffers():
        if value.is_floating_point():
            value.copy_(torch.rand_like(value) + 0.5 * (name == "running_var"))
    for value in norm.parameters():
        nn.init.normal_(value)
    return norm


def heads(net: Any, x: torch.Tensor) -> torch.Tensor:
    q, k, v = (layer(x).unflatten(-1, (2, -1)).transpose(1, 2) for layer in (net.q, net.k, net.v))
    return nn.functional.scaled_dot_product_attention(q, k, v)


def linears(**bias: bool) -> dict[str, nn.Module]:
    return {name: nn.Linear(8, 8, bias=has) for name, has in bias.items()}


IMAGE, TOKENS = (2, 4, 6, 6), (2, 5, 8)

MODULES: dict[str, tuple[Function, dict[str, Any], tuple[tuple[int, ...], ...]]] = {
    "transpose-transpose": (lambda net, x: x.permute(0, 2, 3, 1).permute(0, 2, 1, 3), {}, (IMAGE,)),
    "reshape-reshape": (lambda net, x: x.reshape(2, -1).reshape(8, 36), {}, (IMAGE,)),
    "reshape-identity": (lambda net, x: x.exp().reshape(2, 4, 6, 6).exp(), {}, (IMAGE,)),
    "cast-cast": (lambda net, x: x.double().half(), {}, (IMAGE,)),
    "cast-identity": (lambda net, x: x.exp().to(torch.float32).exp(), {}, (IMAGE,)),
    "dropout-identity": (lambda net, x: net.a(net.d(x)), {"d": nn.Dropout(0.2), "a": nn.Linear(6, 3)}, (IMAGE,)),
    "copy-identity": (lambda net, x: x.transpose(1, 2).contiguous().view(2, -1), {}, (IMAGE,)),
    "split-concat": (lambda net, x: torch.cat(x.exp().split([1, 3], 1), 1), {}, (IMAGE,)),
    "split-concat-variadic": (lambda net, x: torch.cat(x.exp().chunk(4, 1), 1), {}, (IMAGE,)),
    "concat-concat": (lambda net, x, y: torch.cat([y, torch.cat([x, y], 1)], 1), {}, (IMAGE, IMAGE)),
    "merge-element-wise": (lambda net, x, y: torch.cat((x.relu(), y.relu()), 1), {}, (IMAGE, IMAGE)),
    "merge-element-wise-variadic": (
        lambda net, x, y: torch.cat((x.tanh(), y.tanh(), (x * y).tanh())), {}, (IMAGE, IMAGE)),
    "sum-from-zero": (lambda net, x, y: sum([x.exp(), y.exp()]), {}, (IMAGE, IMAGE)),
    "bias-add-add": (
        lambda net, x, y: net.a(x) + net.b(y),
        {"a": conv(3, 3, bias=True), "b": conv(3, 3, bias=True)}, (IMAGE, IMAGE)),
    "diamond-conv-add": (lambda net, x: net.a(x) + net.b(x), {"a": conv(3, 3), "b": conv(3, 3)}, (IMAGE,)),
    "two-conv-add": (lambda net, x, y: net.a(x) + net.b(y), {"a": conv(3, 3), "b": conv(3, 3)}, (IMAGE, IMAGE)),
    "conv-shortcut-add": (lambda net, x: net.a(x) + x, {"a": conv(4, 3, padding=1)}, (IMAGE,)),
    "conv-multiply": (
        lambda net, x: net.a(x) * net.c, {"a": conv(3, 3), "c": nn.Parameter(torch.randn(3, 1, 1))}, (IMAGE,)),
    "conv-bias-multiply": (lambda net, x: 0.5 * net.a(x), {"a": conv(3, 3, bias=True)}, (IMAGE,)),
    "conv-batch-norm": (
        lambda net, x: net.n(net.a(x)), {"a": conv(6, 3, groups=2, bias=True), "n": settled(nn.BatchNorm2d(6))},
        (IMAGE,)),
    "conv-transpose-batch-norm": (
        lambda net, x: net.n(net.a(x)),
        {"a": nn.ConvTranspose2d(4, 6, 3, 2, groups=2), "n": settled(nn.BatchNorm2d(6))}, (IMAGE,)),
    "dense-batch-norm": (
        lambda net, x: net.n(net.a(x)), {"a": nn.Linear(8, 6), "n": settled(nn.BatchNorm1d(6))}, ((5, 8),)),
    "parallel-two-conv": (lambda net, x: (net.a(x), net.b(x)), {"a": conv(3, 3), "b": conv(2, 3)}, (IMAGE,)),
    "parallel-conv-variadic": (
        lambda net, x: (net.a(x), net.b(x), net.c(x)), {"a": conv(3, 3), "b": conv(2, 3), "c": conv(1, 3)}, (IMAGE,)),
    "parallel-conv-bias-variadic": (
        lambda net, x: (net.a(x), net.b(x)), {"a": conv(3, 3, bias=True), "b": conv(2, 3, bias=True)}, (IMAGE,)),
    "parallel-conv-expand-kernels": (
        lambda net, x: (net.a(x), net.b(x)), {"a": conv(3, 1), "b": conv(2, 3, padding=1)}, (IMAGE,)),
    "parallel-group-conv-variadic": (
        lambda net, x: (net.a(x), net.b(x)), {"a": conv(4, 3, groups=2), "b": conv(2, 3, groups=2)}, (IMAGE,)),
    "parallel-two-dense": (lambda net, x: net.a(x) * net.b(x), linears(a=False, b=False), (TOKENS,)),
    "parallel-two-dense-bias": (lambda net, x: net.a(x) * net.b(x), linears(a=True, b=True), (TOKENS,)),
    "parallel-dense-variadic": (heads, linears(q=False, k=False, v=False), (TOKENS,)),
    "parallel-dense-bias-variadic": (heads, linears(q=True, k=True, v=True), (TOKENS,)),
    "qkv-without-key-bias": (heads, linears(q=True, k=False, v=True), (TOKENS,)),
    "lower-batch-norm": (lambda net, x: net.n(x), {"n": settled(nn.BatchNorm2d(4))}, (IMAGE,)),
    "lower-layer-norm": (lambda net, x: net.n(x), {"n": settled(nn.LayerNorm(8))}, (TOKENS,)),
}  # fmt: skip

def workload(name: str) -> Workload:
    torch.manual_seed(0)
    function, layers, shapes = MODULES[name]
    inputs = tuple(torch.randn(shape) for shape in shapes)
    return Workload.from_torch(Net(function, **layers).eval(), inputs, name=name)


@pytest.mark.sweep(3)
@pytest.mark.parametrize("name", MODULES)
def test_fires_on_an_exported_module(name: str) -> None:
    before = workload(name)
    after = RULES[name](before)
    assert after.text() != before.text()
    before.compare(after).check()


FOLDED = [name for name in MODULES if name.startswith(("conv-", "parallel-", "qkv", "dense", "two", "diamond"))]


@pytest.mark.parametrize("name", FOLDED)
def test_what_depends_on_weights_only_is_folded(name: str) -> None:
    counts = RULES[name](workload(name)).op_counts()
    made = {"multiply", "rsqrt", "negative", "zeros", "ones", "matrix_set_diag", "nn.pad"}
    if name not in ("two-conv-add", "parallel-two-dense", "parallel-two-dense-bias"):
        assert not made & set(counts), counts
    assert counts["concatenate"] == (name == "two-conv-add")


def test_the_others_have_no_module() -> None:
    """What torch exports has no fields of tuples that are made in the graph."""
    assert set(RULES) - set(MODULES) == {"dispatch-tuple"}


@pytest.mark.sweep(3)
@pytest.mark.parametrize("name", MODULES)
def test_the_book_on_an_exported_module(name: str) -> None:
    before = workload(name)
    before.compare(EVERY_RULE(before, iterative=True)).check()
