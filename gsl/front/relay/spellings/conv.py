"""Convolutions and transposed convolutions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from tvm import relay

from gsl.front.relay.spellings.table import RelayCall, RelayLowering, RelayRow, const, is_default
from gsl.front.tree import Canon

_NAMES: Final = ("strides", "padding", "output_padding", "dilation", "groups", "data_layout", "kernel_layout",
                 "out_layout")  # fmt: skip


def relaid(x: Any, source: str, target: str) -> Any:
    """A tensor of one layout in another with the same letters."""
    return x if source == target else relay.transpose(x, [source.index(letter) for letter in target])


def _read(r: RelayCall, op: str) -> Canon:
    attrs = {name: r[name] for name in _NAMES if name in r.attrs}
    sizes = for_all_axes(attrs, ("strides", "padding", "output_padding", "dilation"))
    return Canon(op, r.operands, {**attrs, **sizes, "out_dtype": r.out_dtype})


def for_all_axes(attrs: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Some attributes, where they are given: one number counts for all axes."""
    found = {name: attrs[name] for name in names if name in attrs}
    return {name: sizes[0] if len(sizes) == 1 else sizes for name, sizes in found.items()}


def _options(w: RelayLowering, data_layout: str, kernel_layout: str) -> dict[str, Any]:
    """The attributes for Relay that are not the default ones, with these layouts."""
    layouts = {"data_layout": data_layout, "kernel_layout": kernel_layout}
    own = {name: layout for name, layout in layouts.items() if not is_default(w.op, name, layout)}
    return {**w.options("out_layout", "out_dtype", *layouts), **own}


def _conv(count: int) -> RelayRow:
    op = f"nn.conv{count}d"
    function = getattr(relay.nn, f"conv{count}d")
    letters = "DHW"[-count:]

    def write(w: RelayLowering) -> Any:
        data_layout, kernel_layout = _kernels(w, letters)
        data, weight, options = w.products()
        options.update(_options(w, data_layout, kernel_layout))
        data = relaid(data, w["data_layout"], data_layout)
        if count == 1 and w["groups"] > 1:
            options.update(_derived(w, w["kernel_layout"], 1))
        result = function(data, relaid(weight, w["kernel_layout"], kernel_layout), **options)
        return relaid(result, data_layout, w["out_layout"] or w["data_layout"])

    return RelayRow(op, write, {op: lambda r: _read(r, op)})


def _derived(w: RelayLowering, layout: str, times: int) -> dict[str, Any]:
    """The attributes that Relay infers from the weight, for the calls with groups for which it infers them wrongly."""
    sizes = dict(zip(layout, w.shape(1)))
    return {"channels": sizes["O"] * times, "kernel_size": tuple([sizes[s] for s in "DHW" if s in sizes])}


def _kernels(w: RelayLowering, letters: str) -> tuple[str, str]:
    """The layouts of data and kernel, of those that Relay's kernels take, that are next to the wanted ones."""
    if w["data_layout"] != f"N{letters}C":
        return f"NC{letters}", f"OI{letters}"
    kernel = w.type(1).shape[w["kernel_layout"].index("O")]
    if w["groups"] == 1:
        return f"N{letters}C", f"{letters}IO"
    if letters == "HW":
        is_depthwise = w["groups"] == kernel == w.type(0).shape[-1]
        return "NHWC", "HWOI" if is_depthwise else "HWIO"
    return f"NC{letters}", f"OI{letters}"


def _conv_transpose(count: int) -> RelayRow:
    op = f"nn.conv{count}d_transpose"
    function = getattr(relay.nn, f"conv{count}d_transpose")
    letters = "DHW"[-count:]
    data_layout, kernel_layout = f"NC{letters}", f"IO{letters}"

    def write(w: RelayLowering) -> Any:
        data, weight, options = w.products()
        options.update(_options(w, data_layout, kernel_layout))
        data, weight = relaid(data, w["data_layout"], data_layout), relaid(weight, w["kernel_layout"], kernel_layout)
        if set(w["dilation"]) == {1} and (w["groups"] == 1 or count == 2):
            if w["groups"] > 1:
                options.update(_derived(w, w["kernel_layout"], w["groups"]))
            result = function(data, weight, **options)
        else:
            result = _as_conv(w, data, weight, letters, options)
        return relaid(result, data_layout, w["out_layout"] or w["data_layout"])

    return RelayRow(op, write, {op: lambda r: _read(r, op)})


def _as_conv(w: RelayLowering, data: Any, weight: Any, letters: str, options: dict[str, Any]) -> Any:
    """A transposed convolution as one of the operand with zeros between its elements and around it."""
    count, groups = len(letters), w["groups"]
    sizes = w.shape(1)
    kernel = dict(zip(w["kernel_layout"], sizes))
    channels = kernel["I"] // groups
    # From (groups x I, O, ...) to (groups x O, I, ...), turned around.
    if groups > 1:
        spatial = [kernel[letter] for letter in letters]
        order = [0, 2, 1, *range(3, 3 + count)]
        weight = relay.transpose(relay.reshape(weight, [groups, channels, kernel["O"], *spatial]), order)
        weight = relay.reshape(weight, [groups * kernel["O"], channels, *spatial])
    else:
        weight = relay.transpose(weight, [1, 0, *range(2, 2 + count)])
    for axis in range(2, 2 + count):
        weight = relay.reverse(weight, axis)
    if max(w["strides"]) > 1:
        data = relay.nn.dilate(data, [1, 1, *w["strides"]])
    before, after = w["padding"][:count], w["padding"][count:]
    reach = [(kernel[letter] - 1) * step for letter, step in zip(letters, w["dilation"])]
    pads = [(r - b, r - a + o) for r, b, a, o in zip(reach, before, after, w["output_padding"])]
    data = padded(data, [(0, 0), (0, 0), *pads], w.type().dtype)
    rest: dict[str, Any] = {name: options[name] for name in ("dilation", "groups", "out_dtype") if name in options}
    if count == 1 and groups > 1:
        rest.update(_derived(w, w["kernel_layout"], groups))
    return getattr(relay.nn, f"conv{count}d")(data, weight, **rest)


def sliced(
    x: Any, axes: Sequence[int], begin: Sequence[int], end: Sequence[int], strides: Sequence[int] | None = None
) -> Any:
    """A slice of some axes. Relay takes as many strides as axes, and the first axes if none are named."""
    steps = [1] * len(axes) if strides is None else list(strides)
    options: dict[str, Any] = {} if set(steps) == {1} else {"strides": steps}
    if list(axes) != list(range(len(axes))):
        options = {"strides": steps, "axes": axes}
    return relay.strided_slice(x, begin, end, **options)


def padded(x: Any, widths: list[tuple[int, int]], dtype: str, value: bool | int | float = 0) -> Any:
    """A tensor padded with a number, or cropped where a width is negative."""
    if any(width < 0 for pair in widths for width in pair):
        axes = [axis for axis, pair in enumerate(widths) if min(pair) < 0]
        begin = [max(0, -widths[axis][0]) for axis in axes]
        # Relay takes places from the end as Python does; this one is the end itself.
        end = [widths[axis][1] if widths[axis][1] < 0 else 2**31 - 1 for axis in axes]
        x = sliced(x, axes, begin, end)
        widths = [(max(0, before), max(0, after)) for before, after in widths]
    if any(width for pair in widths for width in pair):
        x = relay.nn.pad(x, widths, const(value, dtype))
    return x


ROWS: Final = (*map(_conv, (1, 2, 3)), *map(_conv_transpose, (1, 2, 3)))
