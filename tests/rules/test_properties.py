"""Random attributes: wherever a rule fires, the numbers stay equal."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch

from gsl.rules import RULES
from tests.rules.cases_layout import casts, joined, nested, rejoined, reshapes, transposes
from tests.rules.cases_norm import batch_norm, layer_norm, normed, scaled
from tests.rules.cases_parallel import convs, dense
from tests.rules.cases_sums import added_number, biased, shortcut, sum_of_convs
from tests.rules.harness import View, build, largest_error, run, shown

TRIALS = 50

Draw = random.Random


def convolution(draw: Draw, count: int, channels: int, same: bool = False) -> tuple[dict[str, Any], list[int]]:
    """Random attributes of a convolution and the sizes of its kernel; ``same`` makes it likely to keep the shape."""
    kernel = [draw.choice((1, 2, 3)) for _ in range(count)]
    dilation = [draw.choice((1, 1, 2)) for _ in range(count)]
    strides = [draw.choice((1, 1, 1, 2)) for _ in range(count)]
    padding = [draw.choice((0, 1, 2)) for _ in range(2 * count)]
    if same or draw.random() < 0.5:
        before = [(k - 1) * d // 2 for k, d in zip(kernel, dilation)]
        padding = before + [(k - 1) * d - p for k, d, p in zip(kernel, dilation, before)]
    groups = draw.choice([1, 1, 1, *(g for g in (2, channels) if channels % g == 0)])
    return dict(strides=strides, dilation=dilation, padding=padding, groups=groups), kernel


def image(draw: Draw, count: int, channels: int) -> list[int]:
    return [draw.choice((1, 2)), channels, *(draw.choice((3, 4, 5)) for _ in range(count))]


def some_convs(draw: Draw) -> View:
    count, channels = draw.choice((1, 2, 2, 3)), draw.choice((2, 4))
    attrs, kernel = convolution(draw, count, channels)
    groups, each, kernels = attrs["groups"], [], []
    for _ in range(draw.choice((2, 3))):
        own, other = ({}, kernel) if draw.random() < 0.7 else convolution(draw, count, channels)
        each.append(own)
        kernels.append((draw.choice((1, 2, 3)) * groups, channels // own.get("groups", groups), *other))
    biased = draw.random() < 0.4
    return convs(*kernels, x=image(draw, count, channels), op=f"nn.conv{count}d", each=each, bias=biased, **attrs)


def expandable_convs(draw: Draw) -> View:
    count = draw.choice((1, 2))
    small = [draw.choice((1, 2, 3)) for _ in range(count)]
    grow = [draw.choice((0, 1, 2)) for _ in range(count)]
    before = [draw.randint(0, g) for g in grow]
    padding = [draw.choice((0, 1)) for _ in range(2 * count)]
    more = before + [g - b for g, b in zip(grow, before)]
    if draw.random() < 0.2:
        draw.shuffle(more)
    sizes = small, [k + g for k, g in zip(small, grow)]
    paddings = padding, [p + m for p, m in zip(padding, more)]
    for axis in range(count):
        if draw.random() < 0.3:  # on this axis the first kernel is the larger one
            for (first, second), at in ((sizes, axis), (paddings, axis), (paddings, count + axis)):
                first[at], second[at] = second[at], first[at]
    return convs((2, 3, *sizes[0]), (1, 3, *sizes[1]), x=image(draw, count, 3), op=f"nn.conv{count}d",
                 each=[{"padding": each} for each in paddings],
                 strides=draw.choice((1, 2)), dilation=draw.choice((1, 1, 1, 2)))  # fmt: skip


def two_convs(draw: Draw, inputs: int) -> View:
    count, channels = draw.choice((1, 2, 3)), draw.choice((2, 4))
    attrs, kernel = convolution(draw, count, channels)
    x, out = image(draw, count, channels), draw.choice((1, 2)) * attrs["groups"]
    more = channels if inputs == 1 or attrs["groups"] > 1 else draw.choice((1, 3))
    y = None if inputs == 1 else [draw.choice((1, x[0])), more, *x[2:]]
    second = {} if draw.random() < 0.7 else {draw.choice(("strides", "padding", "dilation")): 1}
    v = (out, channels // attrs["groups"], *kernel)
    w = (draw.choice((out, out, attrs["groups"])), more // attrs["groups"], *kernel)
    return sum_of_convs(x, y, v, w, op=f"nn.conv{count}d", second=second, **attrs)


def some_shortcut(draw: Draw) -> View:
    count, channels = draw.choice((1, 2, 3)), draw.choice((1, 2, 4))
    attrs, kernel = convolution(draw, count, channels, same=True)
    if draw.random() < 0.5:
        attrs.update(groups=1, strides=1)
    out = draw.choice((channels, channels, attrs["groups"]))
    w = (out, channels // attrs["groups"], *kernel)
    return shortcut(image(draw, count, channels), w, op=f"nn.conv{count}d", **attrs)


def some_scaled(draw: Draw, bias: bool) -> View:
    count, channels = draw.choice((1, 2, 3)), draw.choice((2, 4))
    attrs, kernel = convolution(draw, count, channels)
    out = draw.choice((1, 2)) * attrs["groups"]
    shapes = [0.5, -2.0, (), (out,), (1,) * count, (out, *[1] * count), (1, out, *[1] * count), (1,) * (count + 2)]
    return scaled(draw.choice([*shapes, *shapes[5:7] * 3]), image(draw, count, channels),
                  (out, channels // attrs["groups"], *kernel), f"nn.conv{count}d", bias=bias,
                  literal=draw.random() < 0.3, swapped=draw.random() < 0.5, **attrs)  # fmt: skip


def some_normed(draw: Draw, transposed: bool) -> View:
    count, channels = draw.choice((1, 2, 3)), draw.choice((2, 4))
    attrs, kernel = convolution(draw, count, channels)
    groups, out = attrs["groups"], draw.choice((1, 2, 3))
    w = (channels, out, *kernel) if transposed else (out * groups, channels // groups, *kernel)
    norm = {"scale": draw.random() < 0.7, "center": draw.random() < 0.7, "epsilon": draw.choice((1e-5, 0.1))}
    return normed(f"nn.conv{count}d" + "_transpose" * transposed, image(draw, count, channels), w,
                  bias=draw.random() < 0.5, axis=draw.choice((1, 1, 1, 2)), norm=norm,
                  literal=draw.random() < 0.3, **attrs)  # fmt: skip


def some_dense(draw: Draw) -> View:
    count = draw.choice((2, 3, 4))
    x = [draw.choice((1, 2, 3)) for _ in range(draw.choice((1, 2, 3)))]
    units, every = [draw.choice((1, 2, 3)) for _ in range(count)], draw.random() < 0.5
    return dense(*units, x=(*x, 3), bias=[every or draw.random() < 0.6 for _ in range(count)],
                 axis=draw.choice((-1, -1, 1)), others=draw.choice((0, 0, 1)))  # fmt: skip


def some_dense_norm(draw: Draw) -> View:
    x = [draw.choice((2, 3)) for _ in range(draw.choice((1, 2)))]
    norm = {"scale": draw.random() < 0.7, "center": draw.random() < 0.7}
    axis, units = draw.choice((1, len(x))), draw.choice((2, 3))
    return normed("nn.dense", (*x, 4), (units, 4), bias=draw.random() < 0.5, axis=axis, norm=norm)


def some_biases(draw: Draw) -> View:
    x = [draw.choice((1, 2)) for _ in range(draw.choice((2, 3)))]
    y = x if draw.random() < 0.6 else [draw.choice((1, size)) for size in x][draw.choice((0, 1)) :]
    axis = draw.randrange(len(x))
    other = axis if draw.random() < 0.6 and axis < len(y) else draw.randrange(len(y))
    return biased(x, y, axis, other)


def some_norm(draw: Draw) -> View:
    shape = [draw.choice((1, 2, 3)) for _ in range(draw.choice((2, 3, 4)))]
    return batch_norm(*shape, axis=draw.randrange(1, len(shape)), scale=draw.random() < 0.7, center=draw.random() < 0.7)


def some_layer_norm(draw: Draw) -> View:
    shape = [draw.choice((2, 3)) for _ in range(draw.choice((1, 2, 3, 4)))]
    axes = sorted(draw.sample(range(len(shape)), draw.randint(1, len(shape))))
    return layer_norm(*shape, axis=axes, weights=draw.choice((0, 1, 2)), scale=draw.random() < 0.7,
                      center=draw.random() < 0.7)  # fmt: skip


def some_transposes(draw: Draw) -> View:
    return transposes(*(tuple(draw.sample(range(3), 3)) for _ in range(2)))


def some_reshapes(draw: Draw) -> View:
    shapes = ((2, 3, 4), (6, 4), (-1,), (4, -1), (2, 12), (2, 3, 2, 2), (0, -1), (-2,), (-3, -2), (24,))
    return reshapes((2, 3, 4), *draw.sample(shapes, draw.choice((1, 2, 3))))


def some_rejoined(draw: Draw) -> View:
    sections: Any = draw.choice((2, 3, 6, (1, 3), (0, 2), (5,), (6,)))
    count = sections if isinstance(sections, int) else len(sections) + 1
    fields = list(range(count)) if draw.random() < 0.6 else [draw.randrange(count) for _ in range(draw.randint(1, 3))]
    return rejoined(*fields, sections=sections, axis=1, other=draw.choice((1, 1, 1, 0)))


def some_joined(draw: Draw) -> View:
    name = draw.choice(("exp", "nn.relu", "gelu", "nn.leaky_relu", "nn.softmax", "isnan"))
    attrs = {"nn.leaky_relu": {"alpha": draw.choice((0.01, 0.5))}}.get(name, {})
    ops = [name, *(name if draw.random() < 0.9 else "tanh" for _ in range(draw.choice((1, 2))))]
    return joined(*ops, dtypes=[draw.choice(("float64", "float64", "float32")) for _ in ops], **attrs)


FAMILIES: dict[str, tuple[Callable[[Draw], View], tuple[str, ...]]] = {
    "transposes": (some_transposes, ("transpose-transpose",)),
    "reshapes": (some_reshapes, ("reshape-reshape", "reshape-identity")),
    "rejoined": (some_rejoined, ("split-concat", "split-concat-variadic")),
    "nested": (lambda draw: nested(*draw.choices(range(3), k=2), axis=draw.choice((0, 1)), other=draw.choice((0, 1))),
               ("concat-concat",)),
    "joined": (some_joined, ("merge-element-wise", "merge-element-wise-variadic")),
    "sums with numbers": (lambda draw: added_number(draw.choice((0, 0.0, 1)), draw.choice(("float32", "int64"))),
                          ("sum-from-zero",)),
    "biases": (some_biases, ("bias-add-add",)),
    "one input": (lambda draw: two_convs(draw, 1), ("diamond-conv-add",)),
    "two inputs": (lambda draw: two_convs(draw, 2), ("two-conv-add",)),
    "shortcut": (some_shortcut, ("conv-shortcut-add",)),
    "scaled": (lambda draw: some_scaled(draw, bias=False), ("conv-multiply",)),
    "scaled with bias": (lambda draw: some_scaled(draw, bias=True), ("conv-bias-multiply",)),
    "conv norm": (lambda draw: some_normed(draw, transposed=False), ("conv-batch-norm", "lower-batch-norm")),
    "conv transpose norm": (lambda draw: some_normed(draw, transposed=True), ("conv-transpose-batch-norm",)),
    "dense norm": (some_dense_norm, ("dense-batch-norm",)),
    "convs": (some_convs, ("parallel-two-conv", "parallel-conv-variadic", "parallel-conv-bias-variadic",
                           "parallel-group-conv-variadic")),
    "expandable convs": (expandable_convs, ("parallel-conv-expand-kernels",)),
    "dense": (some_dense, ("parallel-two-dense", "parallel-two-dense-bias", "parallel-dense-variadic",
                           "parallel-dense-bias-variadic", "qkv-without-key-bias")),
    "batch norm": (some_norm, ("lower-batch-norm",)),
    "layer norm": (some_layer_norm, ("lower-layer-norm",)),
}  # fmt: skip


@pytest.mark.sweep(2)
@pytest.mark.parametrize("family", FAMILIES)
def test_numbers_stay_equal_wherever_a_rule_fires(family: str) -> None:
    make, names = FAMILIES[family]
    fired = dict.fromkeys(names, 0)
    for seed in range(TRIALS):
        try:
            before = build(make(random.Random(f"{family} {seed}")))
        except ValueError:  # no such call: the window is larger than the image, …
            continue
        for name in names:
            after = RULES[name](before)
            if shown(after) != shown(before):
                fired[name] += 1
                assert largest_error(before, after) <= 1, f"{name}, seed {seed}:\n{before}\n{after}"
    assert all(fired.values()), fired


DTYPES = ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64")


def extremes(dtype: str) -> torch.Tensor:
    """Values of a dtype that a narrower one can't hold."""
    kind = getattr(torch, dtype)
    if dtype == "bool":
        return torch.tensor([False, True])
    if kind.is_floating_point:
        info = torch.finfo(kind)
        numbers = [0.0, -0.0, 1.0, -1.5, 300.7, info.max, info.min, info.tiny, info.eps, 1 + info.eps]
        return torch.tensor([*numbers, float("inf"), float("nan")], dtype=torch.float64).to(kind)
    bounds = torch.iinfo(kind)
    numbers = {0, 1, bounds.max, bounds.min, bounds.max // 3, max(bounds.min, -1), bounds.max - 1}
    return torch.tensor(sorted(numbers), dtype=kind)


def test_casts_keep_every_value() -> None:
    fired = 0
    for dtypes in itertools.product(DTYPES, repeat=3):
        before = build(casts(*dtypes))
        after = RULES["cast-cast"](before)
        if shown(after) != shown(before):
            fired += 1
            fed = {"x": extremes(dtypes[0])}
            (a,), (b,) = run(before, fed), run(after, fed)
            assert a.dtype == b.dtype
            assert torch.equal(a.isnan(), b.isnan()), dtypes
            assert torch.equal(a.nan_to_num(), b.nan_to_num()), dtypes
    assert fired > 100
