"""Nodes of views that several tests of imported rules build, and what a rule makes of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from gsl import Subst
from gsl.graph import PARAM, Node, TensorType
from tests.helpers import tensors
from tests.helpers.firing import Make, flat, inputs_of
from tests.helpers.graphs import Builder, graph, run


def conv(b: Builder, x: Node, w: Node, **attrs: Any) -> Node:
    """A convolution with *same* padding at stride 1, unless another is given."""
    assert w.shape is not None
    (kh, kw) = w.shape[2:]
    same = (kh // 2, kw // 2, (kh - 1) // 2, (kw - 1) // 2)
    return b.call("nn.conv2d", x, w, **{"padding": same, **attrs})


def tensor(b: Builder, value: Any, kind: str = PARAM) -> Node:
    """A parameter or literal of that value."""
    made = tensors.tensor(value, "float32")
    return b._add(Node(kind, (), {"value": made}, TensorType(tuple(made.shape), "float32"), name="value"))


def identity(channels: int, *size: int) -> np.ndarray:
    """The kernel that takes each channel to itself, as *same* padding places it."""
    kernel = np.zeros((channels, channels, *size))
    for channel in range(channels):
        kernel[channel, channel, size[0] // 2, size[1] // 2] = 1
    return kernel


def same_of(n: int, k: int, s: int) -> tuple[int, int]:
    """Before and after, of *same* padding with the odd element before."""
    total = max(-(-n // s) * s - s + k - n, 0)
    return (total + 1) // 2, total // 2


def pool(
    b: Builder, kind: str, x: Node, size: tuple[int, int], strides: tuple[int, int], mode: int, **attrs: Any
) -> Node:
    assert x.shape is not None
    (top, bottom), (left, right) = (same_of(n, k, s) for n, k, s in zip(x.shape[2:], size, strides))
    padding = (top, left, bottom, right) if mode == 0 else (0, 0, 0, 0)
    return b.call(f"nn.{kind}_pool2d", x, pool_size=size, strides=strides, padding=padding, **attrs)


def concat(b: Builder, axis: int, *items: Node) -> Node:
    return b.call("concatenate", b.tuple(*items), axis=axis)


def holds(subst: Subst, make: Make) -> bool | None:
    """Whether what a rule makes of a view has the same values; ``None`` if it does not fire."""
    new, trace = subst.apply(graph(make))
    if not trace.count():
        return None
    old = graph(make)
    inputs = inputs_of(old)
    pairs = zip(flat(run(old, inputs)), flat(run(new, inputs)), strict=True)
    return all(tensors.is_close(a, b) for a, b in pairs)
