"""What is known of the numbers of a mask of attention is true of its values."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gsl import Workload
from gsl.graph import Node
from gsl.match import masks
from gsl.match.masks import LOWEST, is_too_low, may_hide_rows
from tests.helpers.nets import Net

INF = math.inf
CAUSAL = torch.full((3, 3), -INF).triu(1)
MASKS: dict[str, tuple[Callable[[torch.nn.Module, torch.Tensor], torch.Tensor], torch.dtype, bool]] = {
    "an input": (lambda s, m: m, torch.float32, True),
    "an input of halves": (lambda s, m: m.float(), torch.float16, True),
    "truth values": (lambda s, m: m, torch.bool, True),
    "whole numbers": (lambda s, m: (1 - m.float()) * -1e9, torch.int64, False),
    "a low number": (lambda s, m: torch.where(m, 0.0, -1e9), torch.bool, False),
    "minus infinity": (lambda s, m: torch.where(m, 0.0, -INF), torch.bool, True),
    "a product with it": (lambda s, m: m.float() * -INF, torch.bool, True),
    "a weight": (lambda s, m: s.causal.clone(), torch.bool, False),
    "a weight with a hidden row": (lambda s, m: s.row.clone(), torch.bool, True),
    "a turned weight": (lambda s, m: s.column.mT.clone(), torch.bool, True),
    "a weight and a number": (lambda s, m: s.causal + torch.where(m, 0.0, -1e9), torch.bool, False),
    "a weight and minus infinity": (lambda s, m: s.causal + torch.where(m, 0.0, -INF), torch.bool, True),
    "two weights": (lambda s, m: s.causal + s.causal.mT, torch.bool, True),
    "a broadcast weight": (lambda s, m: s.causal.expand(2, 3, 3).clone(), torch.bool, False),
    "a part of a weight": (lambda s, m: s.causal[:, 2:].clone(), torch.bool, True),
    "a larger one": (lambda s, m: torch.maximum(m, torch.zeros_like(m) - 5), torch.float32, False),
    "a bound": (lambda s, m: m.clamp(min=-5), torch.float32, False),
    "scores": (lambda s, m: m @ m, torch.float32, False),
    "a logarithm": (lambda s, m: m.log(), torch.float32, True),
}


def mask_of(name: str) -> Node:
    function, dtype, _ = MASKS[name]
    row, column = CAUSAL.clone(), CAUSAL.clone()
    row[1] = column[:, 1] = -INF
    model = Net(function, causal=CAUSAL, row=row, column=column)
    wl = Workload.from_torch(model, (torch.ones(3, 3, dtype=dtype),))
    (mask,) = wl.graph.outputs
    return mask


@pytest.mark.parametrize("name", MASKS)
def test_rows_that_a_mask_may_hide(name: str) -> None:
    assert may_hide_rows(mask_of(name)) == MASKS[name][2]


def test_no_weight_is_read_of_which_the_result_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = torch.nn.Conv1d(3, 3, 1)
    wl = Workload.from_torch(Net(lambda self, m: self.layer(m).exp(), layer=layer), (torch.ones(1, 3, 3),))
    monkeypatch.setattr(masks, "known_value", lambda node: pytest.fail(f"{node} is read"))
    assert may_hide_rows(wl.graph.outputs[0])
    assert is_too_low(wl.graph.outputs[0])


VALUES = st.lists(st.sampled_from([1.0, -9e37, torch.finfo(torch.float32).min, -INF, -INF]), min_size=9, max_size=9) | (
    st.lists(st.sampled_from([0.0, -1e9, -9e37, -INF, INF]), min_size=9, max_size=9)
)
STEPS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "sum": lambda x, y: x + y,
    "choice": lambda x, y: torch.where(x < 0, y, x),
    "bound": lambda x, y: x.clamp(min=-1e30),
    "part": lambda x, y: x[:, 1:],
    "turn": lambda x, y: x.mT,
    "rows": lambda x, y: x[[0, 0, 1]],
    "larger": lambda x, y: torch.maximum(x, y),
    "row": lambda x, y: x.reshape(1, 3, 3).expand(2, 3, 3).clone(),
    "shape": lambda x, y: x.reshape(9, 1).clone(),
    "side": lambda x, y: torch.cat([x, y], -1),
    "difference": lambda x, y: x - y,
    "negative": lambda x, y: -x,
    "product": lambda x, y: x * y,
    "no bound": lambda x, y: x.clamp(min=-INF),
    "both bounds": lambda x, y: x.clamp(-1.0, -5.0),
    "raised": lambda x, y: torch.where(x == -INF, x, x.clamp(min=-1e30)),
}


@pytest.mark.sweep(4)
@pytest.mark.parametrize("step", STEPS)
@settings(max_examples=50)
@given(x=VALUES, y=VALUES)
def test_what_is_known_of_weights_holds(step: str, x: list[float], y: list[float]) -> None:
    first, last = (torch.tensor(values).reshape(3, 3) for values in (x, y))
    model = Net(lambda self, z: STEPS[step](self.x, self.y) * 1.0 + z, x=first, y=last)
    mask = Workload.from_torch(model, (torch.ones(()),)).graph.outputs[0].operands[0].operands[0]
    found = STEPS[step](first, last)
    if not may_hide_rows(mask):
        assert not (found == -INF).all(-1).any()
    if not is_too_low(mask):
        assert not ((found < LOWEST) & (found > -INF)).any()
