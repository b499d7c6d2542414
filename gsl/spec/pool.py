"""Pooling in one to three dimensions: windows, adaptive, global."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gsl.spec import examples as e
from gsl.spec import normalise as n
from gsl.spec.examples import Example, call
from gsl.spec.normalise import padded, permuted, spatial
from gsl.spec.spec import REQUIRED, AttrSpec, Calculus, OpSpec, Types

_EXAMPLES: Mapping[str, tuple[Example, ...]] = {
    "nn.max_pool1d": (call(e.SIGNAL, pool_size=3, strides=2),),
    "nn.max_pool2d": (
        call(e.IMAGE, pool_size=2),
        call(e.IMAGE, pool_size=3, strides=2, padding=1),
        call(e.rand(2, 4, 7, 6, low=-11.0, high=-7.0), pool_size=3, padding=(0, 1, 2, 0)),
        call(e.NHWC, pool_size=3, strides=2, ceil_mode=True, layout="NHWC"),
        call(e.IMAGE, pool_size=2, dilation=2),
    ),
    "nn.max_pool3d": (call(e.IMAGE3, pool_size=(5, 6, 4)),),
    "nn.avg_pool1d": (call(e.SIGNAL, pool_size=3, strides=3),),
    "nn.avg_pool2d": (
        call(e.IMAGE, pool_size=3, padding=1, count_include_pad=True),
        call(e.IMAGE, pool_size=3, padding=1),
        call(e.IMAGE, pool_size=3, padding=(0, 1, 2, 0)),
        call(e.IMAGE, pool_size=3, padding=(2, 0, 0, 1), count_include_pad=True),
    ),
    "nn.avg_pool3d": (call(e.IMAGE3, pool_size=(5, 6, 4)),),
    "nn.adaptive_max_pool1d": (call(e.SIGNAL, output_size=3),),
    "nn.adaptive_max_pool2d": (call(e.IMAGE, output_size=(None, 2)),),
    "nn.adaptive_max_pool3d": (call(e.IMAGE3, output_size=1),),
    "nn.adaptive_avg_pool1d": (call(e.SIGNAL, output_size=(3,)),),
    "nn.adaptive_avg_pool2d": (call(e.NHWC, output_size=(1, 1), layout="NHWC"), call(e.IMAGE, output_size=1)),
    "nn.adaptive_avg_pool3d": (call(e.IMAGE3, output_size=(1, 6, 4)),),
    "nn.global_max_pool1d": (call(e.SIGNAL),),
    "nn.global_max_pool2d": (call(e.IMAGE, out_layout="NHWC"), call(e.IMAGE)),
    "nn.global_max_pool3d": (call(e.IMAGE3),),
    "nn.global_avg_pool1d": (call(e.SIGNAL),),
    "nn.global_avg_pool2d": (call(e.NHWC, layout="NHWC"), call(e.IMAGE)),
    "nn.global_avg_pool3d": (call(e.IMAGE3),),
}


def _layouts(count: int) -> dict[str, AttrSpec]:
    letters = "NC" + spatial(count)
    return {"layout": AttrSpec(letters, n.layout(letters)), "out_layout": AttrSpec("", n.layout_or_same(letters))}


def _pool(
    count: int,
    name: str,
    cls: str,
    pool: Callable[..., Any],
    attrs: dict[str, AttrSpec],
    **options: Any,
) -> OpSpec:
    """A pooling ``pool(torch, data, **attrs)`` of a tensor whose spatial axes are the last ones; ``options`` are fields
    of the declaration."""
    plain = "NC" + spatial(count)

    def meaning(torch: Any, data: Any, layout: str, out_layout: str, **rest: Any) -> Any:
        result = pool(torch, permuted(data, layout, plain), **rest)
        return permuted(result, plain, out_layout or layout)

    return OpSpec(
        name,
        cls,
        ("data",),
        meaning,
        {**attrs, **_layouts(count)},
        joint=n.same_out_layout("layout"),
        examples=_EXAMPLES[name],
        **options,
    )


def _fits(both: tuple[int, ...], after: tuple[int, ...], size: tuple[int, ...]) -> bool:
    """True if torch's pooling takes the padding: the same on both sides, and half the window at most."""
    return both == after and all(2 * p <= s for p, s in zip(both, size, strict=True))


def _max_pool(count: int) -> Callable[..., Any]:
    def pool(
        torch: Any,
        data: Any,
        pool_size: tuple[int, ...],
        strides: tuple[int, ...],
        dilation: tuple[int, ...],
        padding: tuple[int, ...],
        ceil_mode: bool,
    ) -> Any:
        both = padding[:count]
        if not _fits(both, padding[count:], pool_size):
            least = float("-inf") if data.dtype.is_floating_point else torch.iinfo(data.dtype).min
            data, both = padded(torch, data, padding, least), (0,) * count
        function = getattr(torch.nn.functional, f"max_pool{count}d")
        return function(data, pool_size, strides, both, dilation, ceil_mode)

    return pool


def _avg_pool(count: int) -> Callable[..., Any]:
    def pool(
        torch: Any,
        data: Any,
        pool_size: tuple[int, ...],
        strides: tuple[int, ...],
        dilation: tuple[int, ...],
        padding: tuple[int, ...],
        ceil_mode: bool,
        count_include_pad: bool,
    ) -> Any:
        function = getattr(torch.nn.functional, f"avg_pool{count}d")
        both = padding[:count]
        if _fits(both, padding[count:], pool_size):
            return function(data, pool_size, strides, both, ceil_mode, count_include_pad)
        zero = (0,) * count
        result = function(padded(torch, data, padding), pool_size, strides, zero, ceil_mode, True)
        if count_include_pad:
            return result
        # The share of each window that is not padding.
        inside = padded(torch, torch.ones_like(data[:1, :1]), padding)
        return result / function(inside, pool_size, strides, zero, ceil_mode, True)

    return pool


def _undilated(count: int) -> Callable[[Any, Types], tuple[int, ...]]:
    convert = n.per_axis(count)

    def only_one(value: Any, types: Types) -> tuple[int, ...]:
        if set(convert(value, types)) != {1}:
            raise n.wrong(value, "1, since average pooling has no dilation")
        return (1,) * count

    return only_one


def _window(count: int, kind: str) -> OpSpec:
    attrs = {
        "pool_size": AttrSpec(REQUIRED, n.per_axis(count)),
        "strides": AttrSpec((1,) * count, n.per_axis(count)),
        "dilation": AttrSpec((1,) * count, n.per_axis(count) if kind == "max" else _undilated(count)),
        "padding": AttrSpec((0,) * 2 * count, n.padding(count)),
        "ceil_mode": n.switch(False),
    }
    if kind == "max":
        names = f"max_pool{count}d_with_indices"
        return _pool(count, f"nn.max_pool{count}d", f"MaxPool{count}D", _max_pool(count), attrs, torch_names=names)
    attrs["count_include_pad"] = n.switch(False)
    return _pool(count, f"nn.avg_pool{count}d", f"AvgPool{count}D", _avg_pool(count), attrs)


def _output_size(count: int) -> Callable[[Any, Types], tuple[int | None, ...]]:
    """A size for each spatial axis, also from one for all; ``None`` keeps the axis as it is."""

    def convert(value: Any, types: Types) -> tuple[int | None, ...]:
        items = value if isinstance(value, (tuple, list)) else (value,) * count
        if len(items) != count:
            raise n.wrong(value, f"a positive integer or a tuple of {count}")
        return tuple([None if item is None else n.positive(item) for item in items])

    return convert


def _adaptive(count: int, kind: str) -> OpSpec:
    def pool(torch: Any, data: Any, output_size: tuple[int | None, ...]) -> Any:
        size = [s if wanted is None else wanted for s, wanted in zip(data.shape[2:], output_size, strict=True)]
        return getattr(torch.nn.functional, f"adaptive_{kind}_pool{count}d")(data, size)

    attrs = {"output_size": AttrSpec(REQUIRED, _output_size(count))}
    name, cls = f"adaptive_{kind}_pool{count}d", f"Adaptive{kind.title()}Pool{count}D"
    names = f"{name}_with_indices" if kind == "max" else f"_{name}"
    return _pool(count, f"nn.{name}", cls, pool, attrs, torch_names=names)


def _global(count: int, kind: str) -> OpSpec:
    axes = tuple(range(2, 2 + count))

    def pool(torch: Any, data: Any) -> Any:
        return (torch.amax if kind == "max" else torch.mean)(data, axes, keepdim=True)

    def decompose(o: Calculus, data: Any, layout: str, out_layout: str) -> Any:
        places = tuple([axis for axis, letter in enumerate(layout) if letter not in "NC"])
        result = o("max" if kind == "max" else "mean", data, axis=places, keepdims=True, exclude=False)
        if not out_layout:
            return result
        return o("transpose", result, axes=tuple([layout.index(letter) for letter in out_layout]))

    name, cls = f"nn.global_{kind}_pool{count}d", f"Global{kind.title()}Pool{count}D"
    return _pool(count, name, cls, pool, {}, decompose=decompose)


# nn.max_pool2d, nn.adaptive_avg_pool1d, nn.global_max_pool3d and so on.
OPS: tuple[OpSpec, ...] = tuple(
    declare(count, kind) for declare in (_window, _adaptive, _global) for kind in ("max", "avg") for count in (1, 2, 3)
)
