"""Spellings of normalisations and of pooling."""

from __future__ import annotations

from typing import Any, Final

from gsl.front.core.lower import Lower, adaptive, known
from gsl.front.onnx.spellings.linear import places
from gsl.front.onnx.spellings.reading import OnnxCall, OnnxLift, same, unread_unless
from gsl.front.onnx.spellings.writing import OnnxLowering, row
from gsl.front.tree import Canon
from gsl.spec import TABLE
from gsl.spec.meaning import infer

# ---------------------------------------------------------------- normalisations


def _by_channel(name: str, since: int = 0) -> Lower:
    """Batch, group and instance normalisation, for which the channels come second; ``others`` are mean and variance."""

    def write(
        w: OnnxLowering, data: Any, gamma: Any = None, beta: Any = None, *others: Any, axis: int, epsilon: float,
        center: bool, scale: bool, **groups: int,
    ) -> Any:  # fmt: skip
        affine = w.affine((w.shape_of(data)[axis],), gamma, beta, center, scale)
        order = [place for place in range(w.rank_of(data)) if place != axis]
        order.insert(1, axis)
        data = w.permute(data, order)
        made = w.call(name, data, *affine, *others, epsilon=float(epsilon), type=w.type_of(data), since=since, **groups)
        return w.permute(made, [order.index(place) for place in range(len(order))])

    return write


def _is_native(w: OnnxLowering, data: Any, axis: tuple[int, ...], *, since: int) -> bool:
    """True if there is a node that normalises over these axes: the last ones, and for onnxruntime no empty ones."""
    is_last = axis == tuple(range(axis[0], w.rank_of(data)))
    return is_last and w.opset >= since and 0 not in w.shape_of(data)[axis[0] :]


def _layer_norm(
    w: OnnxLowering, data: Any, gamma: Any = None, beta: Any = None, *, axis: tuple[int, ...], epsilon: float,
    center: bool, scale: bool,
) -> Any:  # fmt: skip
    rank, shape = w.rank_of(data), w.shape_of(data)
    gamma, beta = gamma if scale else None, beta if center else None
    if _is_native(w, data, axis, since=17):
        gamma = w.full(1, shape[axis[0] :], w.dtype) if gamma is None else gamma
        operands = (data, gamma) if beta is None else (data, gamma, beta)
        return w.call("LayerNormalization", *operands, axis=axis[0] - rank, epsilon=float(epsilon))
    data = w.widened(data)
    centred = w.write("subtract", data, w.write("mean", data, axis=axis, keepdims=True))
    result = _scaled(w, centred, gamma, axis, epsilon)
    result = result if beta is None else w.write("add", result, w.spread_out(w.widened(beta), rank, axis))
    return w.cast(result, w.dtype)


def _scaled(w: OnnxLowering, data: Any, weight: Any, axis: tuple[int, ...], epsilon: float) -> Any:
    """A tensor divided by its root mean square over some axes, times a weight: in the words of which onnxruntime makes
    one node when it opens a model."""
    mean = w.write("mean", w.write("power", data, 2.0), axis=axis, keepdims=True)
    result = w.write("divide", data, w.write("sqrt", w.write("add", mean, float(epsilon))))
    scale = None if weight is None else w.spread_out(w.widened(weight), w.rank_of(data), axis)
    return result if scale is None else w.write("multiply", result, scale)


def _read_last_axes(op: str) -> OnnxLift:
    """The reader of a normalisation over the last axes, whose shape the other operands have."""

    def read(r: OnnxCall) -> Canon:
        rank = r.type().ndim
        axes = tuple(range(r.attr("axis", -1) % rank, rank))
        shape = r.type().shape[axes[0] :]
        unread_unless(all(value is not None and r.type_of(value).shape == shape for value in r.inputs[1:]))
        return Canon(op, r.inputs, {"axis": axes, "epsilon": r.attr("epsilon", 1e-5)})

    return read


def _rms_norm(w: OnnxLowering, data: Any, weight: Any = None, *, axis: tuple[int, ...], epsilon: float) -> Any:
    shape, rank = w.shape_of(data), w.rank_of(data)
    if _is_native(w, data, axis, since=23):
        weight = w.full(1, shape[axis[0] :], w.dtype) if weight is None else weight
        return w.call("RMSNormalization", data, weight, axis=axis[0] - rank, epsilon=float(epsilon))
    return w.cast(_scaled(w, w.widened(data), weight, axis, epsilon), w.dtype)


def _read_group_norm(r: OnnxCall) -> Canon:
    # Up to version 20, there is a scale for each group.
    unread_unless(r.scope.opset >= 21)
    attrs = {"num_groups": r.attr("num_groups"), "axis": 1, "epsilon": r.attr("epsilon", 1e-5)}
    return Canon("nn.group_norm", r.inputs, attrs)


# ---------------------------------------------------------------- windows


def _window(kind: str, count: int) -> Lower:
    def write(
        w: OnnxLowering, data: Any, layout: str, out_layout: str, pool_size: Any, strides: Any, dilation: Any,
        padding: Any, ceil_mode: bool, count_include_pad: bool = False,
    ) -> Any:  # fmt: skip
        plain, data, result = w.channels_first(data, layout, out_layout or layout)
        if ceil_mode:
            sizes, wanted = w.sizes_of(data)[2:], known(result.shape[2:])
            reach = [(n - 1) * s + d * (k - 1) + 1 for n, s, d, k in zip(wanted, strides, dilation, pool_size)]
            beyond = [r - x - a - b for r, x, a, b in zip(reach, sizes, padding[:count], padding[count:])]
            if kind == "avg" and count_include_pad and max(beyond) > 0:
                raise ValueError("ceil_mode with count_include_pad means something else in ONNX")
            if kind == "max":
                # The same windows, in words on which all versions agree.
                padding = [*padding[:count], *(max(b + a, 0) for b, a in zip(beyond, padding[count:]))]
                ceil_mode = False
        attrs: dict[str, Any] = {"kernel_shape": list(pool_size), "strides": list(strides), "pads": list(padding)}
        if ceil_mode:
            attrs["ceil_mode"] = 1
        if set(dilation) != {1}:
            attrs |= {"dilations": list(dilation), "since": 19 if kind == "avg" else 0}
        if kind == "avg":
            attrs["count_include_pad"] = int(count_include_pad)
        made = w.call("MaxPool" if kind == "max" else "AveragePool", data, type=result, **attrs)
        return w.layout(made, plain, out_layout or layout)

    return write


def _read_window(kind: str) -> OnnxLift:
    def read(r: OnnxCall) -> Canon:
        size = r.attr("kernel_shape")
        count = len(size)
        unread_unless(1 <= count <= 3 and r.type().ndim == count + 2)
        ceil = bool(r.attr("ceil_mode", 0))
        given = {"pool_size": size, "ceil_mode": ceil, **places(r, size)}
        op = f"nn.{kind}_pool{count}d"
        if kind == "avg":
            given["count_include_pad"] = bool(r.attr("count_include_pad", 0))
        if ceil:
            # Versions of ONNX and torch do not agree on the last windows, unless they fit.
            down = infer(TABLE[op], [r.type()], {**given, "ceil_mode": False})
            unread_unless(down == infer(TABLE[op], [r.type()], given))
        return Canon(op, (r.x,), given)

    return read


def _global(name: str) -> Lower:
    def write(w: OnnxLowering, data: Any, layout: str, out_layout: str) -> Any:
        plain, data, result = w.channels_first(data, layout, out_layout or layout)
        return w.layout(w.call(name, data, type=result), plain, out_layout or layout)

    return write


def _read_global(kind: str) -> OnnxLift:
    def read(r: OnnxCall) -> Canon:
        unread_unless(3 <= r.type().ndim <= 5)
        return Canon(f"nn.global_{kind}_pool{r.type().ndim - 2}d", (r.x,))

    return read


def _adaptive(kind: str) -> Lower:
    def write(w: OnnxLowering, data: Any, layout: str, out_layout: str, output_size: Any) -> Any:
        made = adaptive(w, "max" if kind == "max" else "mean", data, layout, output_size)
        return w.layout(made, layout, out_layout or layout)

    return write


_COUNTS: Final = (1, 2, 3)
_FIRST: Final = {"axis": 1, "epsilon": 1e-5}

ROWS: Final = (
    row("nn.batch_norm", "BatchNormalization", _by_channel("BatchNormalization"),
        same("nn.batch_norm", _FIRST, {"training_mode": 0}, epsilon="epsilon")),
    row("nn.layer_norm", "LayerNormalization", _layer_norm, _read_last_axes("nn.layer_norm")),
    row("nn.rms_norm", "RMSNormalization", _rms_norm, _read_last_axes("nn.rms_norm")),
    row("", "SimplifiedLayerNormalization", read=_read_last_axes("nn.rms_norm"),
        also=("nn.rms_norm",)),  # onnxruntime's name for it
    row("nn.group_norm", "GroupNormalization", _by_channel("GroupNormalization", since=21), _read_group_norm),
    row("nn.instance_norm", "InstanceNormalization", _by_channel("InstanceNormalization"),
        same("nn.instance_norm", _FIRST, epsilon="epsilon")),
    *(row(f"nn.{kind}_pool{n}d", "", _window(kind, n)) for kind in ("max", "avg") for n in _COUNTS),
    *(row(f"nn.adaptive_{kind}_pool{n}d", "", _adaptive(kind)) for kind in ("max", "avg") for n in _COUNTS),
    *(row(f"nn.global_avg_pool{n}d", "", _global("GlobalAveragePool")) for n in _COUNTS),
    *(row(f"nn.global_max_pool{n}d", "", _global("GlobalMaxPool")) for n in _COUNTS),
    *(row("", name, read=_read_window(kind), also=tuple([f"nn.{kind}_pool{n}d" for n in _COUNTS]))
      for kind, name in (("max", "MaxPool"), ("avg", "AveragePool"))),
    *(row("", name, read=_read_global(kind), also=tuple([f"nn.global_{kind}_pool{n}d" for n in _COUNTS]))
      for kind, name in (("max", "GlobalMaxPool"), ("avg", "GlobalAveragePool"))),
)  # fmt: skip
