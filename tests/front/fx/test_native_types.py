"""Native calls in targets have types, so that what replaces what is checked, and the next match sees them."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import nn

from gsl import Subst, Workload, op, pat

x, w, b = pat.Wildcard(), pat.Param(ndim=2), pat.Param(ndim=1)
BIASED = op.BiasAdd(op.Dense(x, w), b)
ROWS = {"input": {0: torch.export.Dim("rows", min=2, max=9)}}


def layers() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8)).eval()


def seen(wl: Workload, source: pat.Pattern, make: Any) -> list[Any]:
    """The shapes of ``x`` at each match of a rule, of which one target is the input of the next match."""
    shapes: list[Any] = []

    def target(match: Any) -> pat.Pattern:
        shapes.append(match[x].shape)
        made: pat.Pattern = make()
        return made

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Subst(source, target, name="native")(wl)
    return shapes


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="needs mkldnn")
def test_packed_weights() -> None:
    """What packs a weight has no form for tensors without data."""
    mkldnn = torch.ops.mkldnn

    def packed() -> pat.Pattern:
        weight = pat.Call(mkldnn._reorder_linear_weight.default, w)
        return pat.Call(mkldnn._linear_pointwise.default, x, weight, b, attr="none", scalars=(), algorithm="")

    wl = Workload.from_torch(layers(), (torch.randn(2, 8),))
    assert seen(wl, BIASED, packed) == [(2, 8), (2, 8)]


def test_symbolic_sizes() -> None:
    wl = Workload.from_torch(layers(), (torch.randn(3, 8),), dynamic_shapes=ROWS)
    aten = torch.ops.aten

    def own() -> pat.Pattern:
        return pat.Call(aten.linear.default, x, pat.Call(aten.cummax.default, w, dim=0)[0], b)

    found = seen(wl, BIASED, own)
    assert len(found) == 2
    assert found[0] == found[1]
    assert found[0][1] == 8


def test_another_type_is_refused() -> None:
    wl = Workload.from_torch(layers(), (torch.randn(3, 8),), dynamic_shapes=ROWS)
    rule = Subst(BIASED, pat.Call(torch.ops.aten.mv.default, x, b), name="vector")
    new = rule(wl)
    assert not new.trace.firings
    assert "but its replacement" in str(new.trace)
