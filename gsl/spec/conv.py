"""Convolutions and transposed convolutions in one to three dimensions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from gsl.spec import examples as e
from gsl.spec import normalise as n
from gsl.spec.examples import Example, call
from gsl.spec.normalise import padded, permuted, spatial
from gsl.spec.spec import AttrSpec, OpSpec, Types


def _convolution(count: int, transposed: bool) -> Callable[..., Any]:
    plain, kernel = "NC" + spatial(count), ("IO" if transposed else "OI") + spatial(count)

    def meaning(
        torch: Any, data: Any, weight: Any, strides: tuple[int, ...], padding: tuple[int, ...],
        dilation: tuple[int, ...], groups: int, data_layout: str, kernel_layout: str, out_layout: str, out_dtype: str,
        output_padding: tuple[int, ...] = (),
    ) -> Any:  # fmt: skip
        data, weight = permuted(data, data_layout, plain), permuted(weight, kernel_layout, kernel)
        if out_dtype:
            data, weight = data.to(getattr(torch, out_dtype)), weight.to(getattr(torch, out_dtype))
        before, after = padding[:count], padding[count:]
        if transposed:
            both = tuple(map(min, before, after))
            convolve = getattr(torch.nn.functional, f"conv_transpose{count}d")
            result = convolve(data, weight, None, strides, both, output_padding, groups, dilation)
            # Padding crops the result; torch takes off the same on both sides.
            rest = [*map(int.__sub__, both, before), *map(int.__sub__, both, after)]
            result = padded(torch, result, tuple(rest)) if any(rest) else result
        else:
            if before != after:
                data, before = padded(torch, data, padding), (0,) * count
            convolve = getattr(torch.nn.functional, f"conv{count}d")
            result = convolve(data, weight, None, strides, before, dilation, groups)
        return permuted(result, plain, out_layout or data_layout)

    return meaning


def _channels(attrs: Mapping[str, Any], types: Types) -> Any:
    """The number of channels of the result."""
    weight = n.shape_of(types, 1)
    if weight is None or len(weight) != len(attrs["kernel_layout"]):
        return None
    out = weight[attrs["kernel_layout"].index("O")]
    # The kernel of a transposed convolution has the output channels of one group.
    return out * attrs["groups"] if "output_padding" in attrs else out


def _kernel_size(attrs: Mapping[str, Any], types: Types) -> Any:
    """The sizes of the spatial axes of the kernel."""
    weight, layout = n.shape_of(types, 1), attrs["kernel_layout"]
    if weight is None or len(weight) != len(layout):
        return None
    return tuple([weight[layout.index(letter)] for letter in spatial(len(layout) - 2)])


def _batch(attrs: Mapping[str, Any], rank: int) -> Mapping[int, int]:
    layout = attrs["data_layout"]
    return {layout.index("N"): (attrs["out_layout"] or layout).index("N")} if rank == len(layout) else {}


def _attrs(count: int, transposed: bool) -> dict[str, AttrSpec]:
    letters = spatial(count)
    kernel = ("IO" if transposed else "OI") + letters
    output_padding = {"output_padding": AttrSpec((0,) * count, n.per_axis(count, least=0))} if transposed else {}
    return {
        "strides": AttrSpec((1,) * count, n.per_axis(count)),
        "padding": AttrSpec((0,) * 2 * count, n.padding(count)),
        **output_padding,
        "dilation": AttrSpec((1,) * count, n.per_axis(count)),
        "groups": AttrSpec(1, n.positive),
        "channels": AttrSpec(derive=_channels),
        "kernel_size": AttrSpec(derive=_kernel_size),
        "data_layout": AttrSpec("NC" + letters, n.layout("NC" + letters)),
        "kernel_layout": AttrSpec(kernel, n.layout(kernel)),
        "out_layout": AttrSpec("", n.layout_or_same("NC" + letters)),
        "out_dtype": AttrSpec("", n.product_dtype),
    }


def _declare(count: int, transposed: bool, *examples: Example) -> OpSpec:
    """The kernel is (O, I / groups, ...), that of a transposed convolution (I, O / groups, ...)."""
    return OpSpec(
        f"nn.conv{count}d" + "_transpose" * transposed,
        f"Conv{count}D" + "Transpose" * transposed,
        ("data", "weight"),
        _convolution(count, transposed),
        _attrs(count, transposed),
        joint=n.same_out_layout("data_layout"),
        aliases=(f"conv_transpose{count}d",) if transposed else (),
        carried=_batch,
        examples=examples,
    )


_HALVES = e.rand(2, 4, 7, 6, dtype="float16"), e.rand(6, 4, 3, 2, dtype="float16")

OPS: tuple[OpSpec, ...] = (
    _declare(
        1,
        False,
        call(e.SIGNAL, e.rand(6, 4, 3), strides=2, padding=1),
        call(e.SIGNAL, e.rand(6, 4, 3), padding=(2, 0)),
    ),
    _declare(
        2,
        False,
        call(e.IMAGE, e.KERNEL, padding=(1, 2)),
        call(e.IMAGE, e.KERNEL, padding=(1, 2, 3, 0)),
        call(e.IMAGE, e.rand(6, 2, 3, 2), groups=2, dilation=(2, 1)),
        call(e.NHWC, e.rand(3, 2, 4, 6), data_layout="NHWC", kernel_layout="HWIO"),
        call(e.NHWC, e.KERNEL, data_layout="NHWC", out_layout="NCHW"),
        call(*_HALVES, out_dtype="float32"),
    ),
    _declare(
        3,
        False,
        call(e.IMAGE3, e.rand(2, 4, 3, 3, 2), strides=(1, 2, 1), padding=(1, 0, 0, 0, 1, 0)),
        call(e.IMAGE3, e.rand(2, 4, 3, 3, 2)),
    ),
    _declare(1, True, call(e.SIGNAL, e.rand(4, 3, 3), strides=2, output_padding=1)),
    _declare(
        2,
        True,
        call(e.IMAGE, e.rand(4, 3, 3, 2), strides=2, padding=(1, 0), output_padding=(1, 0)),
        call(e.IMAGE, e.rand(4, 3, 3, 2), strides=2, padding=(2, 0, 1, 1), groups=2),
        call(e.NHWC, e.rand(3, 4, 3, 2), data_layout="NHWC", kernel_layout="OIHW"),
    ),
    _declare(3, True, call(e.IMAGE3, e.rand(4, 2, 2, 2, 2), dilation=2)),
)

CONVOLUTIONS: Final = tuple(spec.name for spec in OPS)
