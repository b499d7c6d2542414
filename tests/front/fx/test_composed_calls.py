"""Calls that are read as several canonical ones: what they compute, and what becomes of them when a part changes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import example, given
from hypothesis import strategies as st
from torch import fx, nn

from gsl import RuleSet, Subst, Workload, op, pat
from gsl.front.fx.spellings.index import nearest_places
from gsl.spec import TABLE

X = torch.linspace(-1, 1, 48).reshape(2, 4, 6)
ROWS, COLUMNS = torch.tensor([[0], [-1]]), torch.tensor([3, -4, 0])
IMAGE = torch.linspace(-1, 1, 128).reshape(1, 2, 8, 8)

CALLS: dict[str, tuple[Callable[[torch.Tensor], Any], torch.Tensor]] = {
    "unbind": (lambda x: [part * 2 for part in x.unbind(1)], X),
    "unbind, some": (lambda x: x.unbind(-1)[2] + x.unbind(0)[1][:, 0].sum(), X),
    "index": (lambda x: x[ROWS, COLUMNS], X),
    "index of later axes": (lambda x: x[:, ROWS, COLUMNS], X),
    "index of axes apart": (lambda x: x[ROWS, :, COLUMNS], X),
    "roll": (lambda x: torch.roll(x, (1, -2), (0, 2)), X),
    "diff": (lambda x: torch.diff(x, dim=1, prepend=x[:, :1]), X),
    "norm": (lambda x: F.normalize(x, dim=-1) + torch.linalg.vector_norm(x, 1), X),
    "addcmul": (lambda x: torch.addcmul(x, x, x, value=2.0), X),
    "windows": (lambda x: x.unfold(1, 2, 2), X),
    "new": (lambda x: x + x.new_ones(6) + x.new_full((1,), 2) - x.new_zeros((2, 1, 1)), X),
    "like": (lambda x: x + torch.ones_like(x, device="cpu", dtype=torch.float32), X),
    "shuffles": (lambda x: F.pixel_shuffle(F.channel_shuffle(F.pixel_unshuffle(x, 2), 4), 2), IMAGE),
    "glu": (F.glu, X),
    "columns": (lambda x: F.unfold(x, 3, padding=1, stride=2), IMAGE),
    "nearest": (lambda x: F.interpolate(x, scale_factor=2), IMAGE),
    "nearest, smaller": (lambda x: F.interpolate(F.interpolate(x, scale_factor=0.5), size=(1, 2)), IMAGE),
    "moves": (lambda x: x.to("cpu").double().to(x) * 2, X),
}


def program(name: str) -> tuple[nn.Module, torch.Tensor]:
    function, value = CALLS[name]

    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return function(torch.relu(x))

    return Model(), value


def opaque(workload: Workload) -> list[str]:
    """The calls of a workload that have no canonical reading."""
    calls = [node for node in workload.graph.nodes if node.operands or node.native is not None]
    return [str(node.op) for node in calls if node.opaque]


x, y = pat.Wildcard(), pat.Wildcard()
PRODUCER = Subst(op.ReLU(x), op.Maximum(x, 0.0), name="producer")
PARTS = RuleSet([
    PRODUCER,
    Subst(taken := op.Take(x, y), taken.like(x, op.Add(y, 0)), where=y.dtype == "int64", name="take"),
    Subst(op.Square(x), x * x, name="square"),
    Subst(op.Subtract(x, y), x + -y, name="subtract"),
    Subst(op.Ones(shape=(6,)), op.Full(1.0, shape=(6,)), name="ones"),
])  # fmt: skip


@pytest.mark.sweep(2)
@pytest.mark.parametrize("rules", [PRODUCER, PARTS], ids=["producer", "parts"])
@pytest.mark.parametrize("name", CALLS)
def test_exported_calls_are_read_and_rewritten(name: str, rules: Any) -> None:
    model, value = program(name)
    old = Workload.from_torch(model, (value,))
    assert opaque(old) == []
    new = rules(old)
    assert new.trace.firings
    old.compare(new).check()


@pytest.mark.parametrize("name", ["unbind, some", "index", "roll", "diff", "addcmul", "new", "columns"])
def test_traced_calls_are_rewritten(name: str) -> None:
    model, value = program(name)
    old = Workload.from_fx(fx.symbolic_trace(model), (value,))
    new = PARTS(old)
    assert new.trace.count("producer") == 1
    old.compare(new).check()


def test_fields_of_one_call_that_come_to_differ() -> None:
    def function(x: torch.Tensor) -> Any:
        parts = torch.relu(x).unbind(0)
        return torch.tanh(parts[0]), torch.sigmoid(parts[1])

    old = Workload.from_fx(fx.symbolic_trace(function), (X,))
    rule = Subst(op.Tanh(op.Take(op.ReLU(x), 0, axis=0)), op.Tanh(op.Take(op.Maximum(x, 0.0), 0, axis=0)), name="one")
    new = rule(old)
    assert new.trace.count("one") == 1
    old.compare(new).check()
    assert [str(node.target) for node in new.mod.graph.nodes].count("unbind") == 1


@pytest.mark.parametrize(
    ("function", "unread"),
    [
        (lambda x: torch.stack(torch.relu(x).unbind(-1)[::-1]), 2),
        (lambda x: torch.relu(x).unbind(-1)[-1] * x.max(-1)[-2], 0),
        (lambda x: torch.relu(x).chunk(2, -1)[-1] * 2, 0),
    ],
)  # fmt: skip
def test_fields_from_the_end_and_several_at_once(function: Any, unread: int) -> None:
    old = Workload.from_fx(fx.symbolic_trace(function), (X,))
    assert len(opaque(old)) == unread
    new = PRODUCER(old)
    assert new.trace.count() == 1
    old.compare(new).check()


def test_a_field_is_changed_under_another_number() -> None:
    def function(x: torch.Tensor) -> Any:
        fields = torch.ops.aten.topk.default(x, 2)
        before = torch.relu(fields[0])
        fields[-2].neg_()
        return torch.tanh(before)

    old = Workload.from_fx(fx.symbolic_trace(function), (X,))
    later = Subst(op.Tanh(op.ReLU(x)), op.Tanh(op.Maximum(x, 0.0)), name="later")
    old.compare(later(old)).check()


@given(
    st.integers(1, 60), st.integers(1, 100), st.booleans(),
    st.sampled_from([torch.float32, torch.float64, torch.bfloat16]),
)  # fmt: skip
@example(55, 56, True, torch.float32)
@example(49, 99, True, torch.float32)
@example(30, 58, True, torch.float32)
def test_a_resized_image_has_the_elements_that_torch_finds(
    size: int, count: int, is_given: bool, dtype: torch.dtype
) -> None:
    scale = count / size if is_given else None
    count = math.floor(size * scale) if scale is not None else count
    places = nearest_places(size, count, scale)
    data = torch.arange(size, dtype=dtype)[None, None, :, None]
    for each in (data, data.expand(1, 4, size, 4).to(memory_format=torch.channels_last)):
        found = torch.ops.aten.upsample_nearest2d(each, [count, each.shape[3]], scale, None)[0, 0, :, 0]
        assert places is None or found.tolist() == places
    if scale is None and (size % count == 0 or (count % size == 0 and count < 40)):
        assert places is not None


def test_every_reading_is_of_the_vocabulary() -> None:
    for name in CALLS:
        model, value = program(name)
        counts = Workload.from_torch(model, (value,)).op_counts()
        assert all(op in TABLE or op in ("tuple", "getitem") for op in counts), name
