"""The rules for programs in half precision: where they fire, and that numbers stay what they were, up to rounding."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

from gsl import Refuted, Supported, Workload
from gsl.graph import Node
from gsl.rules import HALVES, IDIOMS, NORMAL, RULES
from tests.rules.harness import Build, View, build, shown

DTYPES = ("float16", "bfloat16")


def rms(*, dtype: str = "bfloat16", inside: str = "float32", outside: str | None = None, scale: str = "") -> View:
    """A norm between two casts, and a product with a weight."""

    def view(b: Build) -> list[Node]:
        x = b.call("cast", b.input("x", 2, 3, 8, dtype=dtype), dtype=inside)
        y = b.call("cast", b.call("nn.rms_norm", x, epsilon=1e-6), dtype=outside or dtype)
        return [b.call("multiply", b.param("w", 8, dtype=scale), y) if scale else y]

    return view


REFUSES: list[tuple[str, View]] = [
    ("rms-norm-of-halves", rms(dtype="float32", inside="float64")),
    ("rms-norm-of-halves", rms(outside="float16")),
    ("rms-norm-of-halves-scale", rms(scale="float32")),
]


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_norm_with_a_weight_is_one_call(dtype: str) -> None:
    assert "nn.rms_norm(%x, epsilon=1e-06)" in shown(HALVES["rms-norm-of-halves"](build(rms(dtype=dtype))))
    after = HALVES(build(rms(dtype=dtype, scale=dtype)), iterative=True)
    assert "nn.rms_norm(%x, %w, epsilon=1e-06)" in shown(after)
    assert [node.op for node in after.nodes if node.operands] == ["nn.rms_norm"]


@pytest.mark.parametrize(("name", "view"), REFUSES)
def test_it_does_not_fire(name: str, view: View) -> None:
    before = build(view)
    assert shown(HALVES[name](before)) == shown(before)


class Norm(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.rms_norm(x.float(), (64,), eps=1e-6).to(x.dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_norm_is_the_same_to_the_last_bit(dtype: str) -> None:
    for scale in (1e-3, 1.0, 300.0):
        x = (torch.randn(50, 64) * scale).to(getattr(torch, dtype))
        old = Workload.from_torch(Norm(), (x,))
        new = HALVES["rms-norm-of-halves"](old)
        assert new.op_counts() == {"nn.rms_norm": 1}
        assert torch.equal(new(x), old(x))


@pytest.mark.parametrize(
    ("name", "verdict"),
    [
        ("rms-norm-of-halves", Supported), ("rms-norm-of-halves-scale", Supported),
        ("conv-batch-norm-of-halves", Refuted), ("dense-batch-norm-of-halves", Refuted),
    ],
)  # fmt: skip
def test_what_a_verifier_says(name: str, verdict: type) -> None:
    """Weights that are folded are rounded."""
    assert isinstance(HALVES[name].verify(max_examples=40), verdict)


class Promoted(nn.Module):
    """The norm of T5: a product of halves and statistics in float32."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x * torch.rsqrt(x.to(torch.float32).pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * y.to(self.weight.dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_norm_that_is_written_out_with_a_product_that_promotes(dtype: str) -> None:
    own = getattr(torch, dtype)
    x = torch.randn(10, 64).to(own)
    old = Workload.from_torch(Promoted().to(own), (x,))
    new = IDIOMS(NORMAL(old, iterative=True), iterative=True)
    assert new.op_counts() == {"cast": 2, "nn.rms_norm": 1, "multiply": 1}
    assert torch.equal(new(x), old(x))
    new = HALVES(new, iterative=True)
    assert new.op_counts() == {"nn.rms_norm": 1}
    old.compare(new, rtol=torch.finfo(own).eps, atol=0.0).check()


class Normed(nn.Module):
    """Products with batch norms behind them."""

    def __init__(self, bias: bool) -> None:
        super().__init__()
        self.conv, self.after = nn.Conv2d(3, 8, 3, bias=bias), nn.BatchNorm2d(8)
        self.dense, self.last = nn.Linear(8, 6, bias=bias), nn.BatchNorm1d(6, affine=bias)
        for norm in (self.after, self.last):
            nn.init.normal_(norm.running_mean)
            nn.init.uniform_(norm.running_var, 0.5, 2)

    def forward(self, x: torch.Tensor) -> Any:
        return self.last(self.dense(self.after(self.conv(x)).mean((2, 3))))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("statistics", ["as the data", "float32"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_batch_norms_are_folded_in_float32(dtype: str, statistics: str, bias: bool) -> None:
    torch.manual_seed(0)
    own, model = getattr(torch, dtype), Normed(bias).eval()
    model.to(own)
    if statistics == "float32":
        model.after.float()
        model.last.float()
    x = torch.randn(16, 3, 8, 8).to(own)
    old = Workload.from_torch(model, (x,))
    new = HALVES(old)
    assert {firing.rule for firing in new.trace.firings} == {
        "conv-batch-norm-of-halves", "dense-batch-norm-of-halves"
    }  # fmt: skip
    assert "nn.batch_norm" not in new.op_counts()
    exact = copy.deepcopy(model).double()(x.double()).detach()
    errors = [(found(x).double() - exact).abs().max() for found in (old, new)]
    assert errors[1] < 2 * errors[0]
    assert {value.dtype for value in new.params.values() if value.is_floating_point()} == {own}
    assert RULES["conv-batch-norm"](old).trace.count() == 0
