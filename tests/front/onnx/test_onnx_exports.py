"""Exports of torch modules: they are read whole, compared with the modules, and rewritten."""

from __future__ import annotations

import functools
import logging
import math
import warnings

import pytest
import torch
from torch import nn

from gsl import Workload, rules
from tests.front.onnx.onnx_helpers import bytes_of, check, nodes

pytest.importorskip("onnxscript")

X = torch.linspace(-1, 1, 2 * 6 * 16).reshape(2, 6, 16)


class Written(nn.Module):
    """A block of a transformer of which norm, attention and activation are written out."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 16)
        self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 16)
        self.scale, self.shift = nn.Parameter(torch.rand(16)), nn.Parameter(torch.rand(16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        centred = x - x.mean(-1, keepdim=True)
        y = centred / torch.sqrt((centred * centred).mean(-1, keepdim=True) + 1e-5) * self.scale + self.shift
        q, k, v = (
            part.view(*x.shape[:2], 4, 4).transpose(1, 2) for part in self.qkv(y).split(16, -1)
        )  # fmt: skip
        scores = q @ k.transpose(-1, -2) / math.sqrt(4)
        mixed = (torch.softmax(scores, -1) @ v).transpose(1, 2).reshape(x.shape)
        x = x + self.out(mixed)
        h = self.up(x)
        return x + self.down(h * 0.5 * (1 + torch.erf(h / math.sqrt(2))))


@functools.cache
def exported(opset: int, dynamic: bool = False) -> Workload:
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            shapes = ({0: "batch", 1: "length"},) if dynamic else None
            made = torch.onnx.export(
                Written().eval(), (X,), dynamo=True, opset_version=opset, dynamic_shapes=shapes, verbose=False
            )
    finally:
        logging.disable(logging.NOTSET)
    return Workload.from_onnx(made)


@pytest.mark.sweep(3)
@pytest.mark.parametrize(("opset", "dynamic"), [(18, False), (23, True)])
def test_idioms(opset: int, dynamic: bool) -> None:
    wl = exported(opset, dynamic)
    before = bytes_of(wl.model)
    source = Workload.from_torch(Written().eval(), (X,))
    assert "nn.attention" not in wl.op_counts()
    new = rules.IDIOMS(wl, iterative=True)
    fired = {firing.rule for firing in new.trace.firings}
    assert {"attention", "layer-norm-centre", "layer-norm-shift", "gelu-erf"} <= fired
    check(new.model)
    assert bytes_of(wl.model) == before
    for subject in (wl, new):
        source.compare(subject, inputs=[X], rtol=1e-4, atol=1e-5).check()
    if opset >= 23:
        found = nodes(new.model)
        assert [found.count(op) for op in ("Attention", "LayerNormalization", "Gelu")] == [1, 1, 1]
        assert [str(node.type.shape[0]) for node in new.graph.outputs] == ["batch"]  # type: ignore[union-attr]
        wl.compare(new, sizes={"batch": 3, "length": 5}, rtol=1e-4, atol=1e-5).check()


def test_only_what_computes_sizes_is_left() -> None:
    unread = {str(node.op) for node in exported(23, True).graph if node.opaque}
    assert unread <= {"onnx::Shape"}


def test_the_comparison_can_fail() -> None:
    wl = exported(18)
    other = Written().eval()
    with torch.no_grad():
        other.scale += 1e-2
    assert not Workload.from_torch(other, (X,)).compare(wl, inputs=[X], rtol=1e-4, atol=1e-5)
