"""Spellings of convolutions and transposed convolutions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tvm import relax

from gsl.front.core.lower import Lower
from gsl.front.relax.spellings.reading import RelaxLift, RelaxScope, dtype_name, ints
from gsl.front.relax.spellings.writing import RelaxLowering
from gsl.front.tree import Canon
from gsl.spec.normalise import spatial

OPS: Final = tuple(f"nn.conv{count}d{suffix}" for count in (1, 2, 3) for suffix in ("", "_transpose"))


def _convolution(op: str) -> Lower:
    function = getattr(relax.op.nn, op.removeprefix("nn."))
    letters = "NC" + spatial(int(op[7]))
    transposed = op.endswith("_transpose")
    kernel = ("IO" if transposed else "OI") + letters[2:]

    def write(
        w: RelaxLowering,
        data: Any,
        weight: Any,
        data_layout: str,
        kernel_layout: str,
        out_layout: str,
        out_dtype: str,
        **rest: Any,
    ) -> Any:
        own = data_layout
        if transposed or data_layout not in (letters, "N" + letters[2:] + "C"):
            # What Relax can't lower in other layouts is written in the usual one.
            data, own = w.layout(data, data_layout, letters), letters
        if transposed or len(letters) == 3:
            weight, kernel_layout = w.layout(weight, kernel_layout, kernel), kernel
        if transposed and out_dtype:
            data, weight, out_dtype = w.cast(data, out_dtype), w.cast(weight, out_dtype), ""
        rest = {name: list(value) if isinstance(value, tuple) else value for name, value in rest.items()}
        layouts = {"data_layout": own, "kernel_layout": kernel_layout}
        result = w.call(function, data, weight, **rest, **layouts, out_dtype=out_dtype or None)
        return w.layout(result, own, out_layout or data_layout)

    return write


def _read(op: str) -> RelaxLift:
    def read(call: Any, scope: RelaxScope) -> Canon:
        attrs = call.attrs
        given = {name: ints(getattr(attrs, name)) for name in ("strides", "padding", "dilation")}
        if op.endswith("_transpose"):
            given["output_padding"] = ints(attrs.output_padding)
        layouts = {name: str(getattr(attrs, name)) for name in ("data_layout", "kernel_layout", "out_layout")}
        others = {"groups": int(attrs.groups), "out_dtype": dtype_name(attrs.out_dtype)}
        return Canon(op, tuple(call.args), {**given, **layouts, **others})

    return read


WRITE: Final[Mapping[str, Lower]] = {op: _convolution(op) for op in OPS}

READ: Final[Mapping[str, RelaxLift]] = {f"relax.{op}": _read(op) for op in OPS}
