"""Spellings of normalisations and of pooling."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gsl.front.core.lower import Lower, adaptive, known
from gsl.front.onnx.spellings.linear import same_padding
from gsl.front.onnx.spellings.reading import OnnxCall, OnnxLift, same, unread_unless
from gsl.front.onnx.spellings.writing import OnnxLowering
from gsl.front.tree import Canon
from gsl.graph import TensorType
from gsl.spec import TABLE
from gsl.spec.meaning import infer
from gsl.spec.normalise import spatial

# ---------------------------------------------------------------- normalisations


def _first(w: OnnxLowering, data: Any, axis: int) -> tuple[Any, TensorType]:
    """The data with the axis of the channels after the first one, and their type."""
    order = _order(w.rank_of(data), axis)
    data = w.permute(data, order)
    return data, w.type_of(data)


def _order(rank: int, axis: int) -> list[int]:
    others = [place for place in range(rank) if place != axis]
    return [others[0], axis, *others[1:]] if others else [axis]


def _back(w: OnnxLowering, made: Any, axis: int) -> Any:
    order = _order(w.rank_of(made), axis)
    return w.permute(made, [order.index(place) for place in range(len(order))])


def _batch_norm(
    w: OnnxLowering, data: Any, gamma: Any, beta: Any, mean: Any, var: Any, axis: int, epsilon: float, center: bool,
    scale: bool,
) -> Any:  # fmt: skip
    gamma, beta = w.affine(w.shape_of(mean), gamma, beta, center, scale)
    data, type = _first(w, data, axis)
    made = w.call("BatchNormalization", data, gamma, beta, mean, var, epsilon=float(epsilon), type=type)
    return _back(w, made, axis)


def _layer_norm(
    w: OnnxLowering, data: Any, gamma: Any = None, beta: Any = None, *, axis: tuple[int, ...], epsilon: float,
    center: bool, scale: bool,
) -> Any:  # fmt: skip
    rank, shape = w.rank_of(data), w.shape_of(data)
    gamma, beta = gamma if scale else None, beta if center else None
    if w.opset >= 17 and axis == tuple(range(axis[0], rank)):
        gamma = w.full(1, shape[axis[0] :], w.dtype) if gamma is None else gamma
        operands = (data, gamma) if beta is None else (data, gamma, beta)
        return w.call("LayerNormalization", *operands, axis=axis[0] - rank, epsilon=float(epsilon))
    # Older versions have none, and none has other axes than the last ones.
    centred = w.write("subtract", data, w.write("mean", data, axis=axis, keepdims=True))
    result = _scaled(w, centred, gamma, axis, epsilon)
    return result if beta is None else w.write("add", result, _wide(w, beta, rank, axis))


def _scaled(w: OnnxLowering, data: Any, weight: Any, axis: tuple[int, ...], epsilon: float) -> Any:
    """A tensor divided by its root mean square over some axes, times a weight: in the words of which onnxruntime makes
    one node when it opens a model."""
    mean = w.write("mean", w.write("power", data, 2.0), axis=axis, keepdims=True)
    result = w.write("divide", data, w.write("sqrt", w.write("add", mean, float(epsilon))))
    return result if weight is None else w.write("multiply", result, _wide(w, weight, w.rank_of(data), axis))


def _wide(w: OnnxLowering, weight: Any, rank: int, axis: tuple[int, ...]) -> Any:
    """A weight of some axes in a form that is broadcast along the others."""
    if axis == tuple(range(rank - len(axis), rank)):
        return weight
    sizes = iter(w.shape_of(weight))
    return w.reshape(weight, [next(sizes) if place in axis else 1 for place in range(rank)])


def _last_axes(r: OnnxCall) -> tuple[int, ...]:
    """The axes that a node normalises over; Unread where the other operands have other shapes."""
    rank = r.type().ndim
    axes = tuple(range(r.attr("axis", -1) % rank, rank))
    shape = tuple([r.type().shape[axis] for axis in axes])
    unread_unless(all(r.type(place).shape == shape for place in range(1, len(r.inputs))))
    return axes


def _read_layer_norm(r: OnnxCall) -> Canon:
    unread_unless(all(value is not None for value in r.inputs))
    return Canon("nn.layer_norm", r.inputs, {"axis": _last_axes(r), "epsilon": r.attr("epsilon", 1e-5)})


def _rms_norm(w: OnnxLowering, data: Any, weight: Any = None, *, axis: tuple[int, ...], epsilon: float) -> Any:
    shape, rank = w.shape_of(data), w.rank_of(data)
    if w.opset >= 23 and axis == tuple(range(axis[0], rank)):
        weight = w.full(1, shape[axis[0] :], w.dtype) if weight is None else weight
        return w.call("RMSNormalization", data, weight, axis=axis[0] - rank, epsilon=float(epsilon))
    return _scaled(w, data, weight, axis, epsilon)


def _read_rms_norm(r: OnnxCall) -> Canon:
    return Canon("nn.rms_norm", r.inputs, {"axis": _last_axes(r), "epsilon": r.attr("epsilon", 1e-5)})


def _by_channel(name: str, since: int = 0) -> Lower:
    """Group and instance normalisation, over all axes but those of the batch and the channels."""

    def write(
        w: OnnxLowering, data: Any, gamma: Any = None, beta: Any = None, *, axis: int, epsilon: float, center: bool,
        scale: bool, **groups: int,
    ) -> Any:  # fmt: skip
        affine = w.affine((w.shape_of(data)[axis],), gamma, beta, center, scale)
        data, type = _first(w, data, axis)
        made = w.call(name, data, *affine, epsilon=float(epsilon), type=type, since=since, **groups)
        return _back(w, made, axis)

    return write


def _read_group_norm(r: OnnxCall) -> Canon:
    # Up to version 20, there is a scale for each group.
    unread_unless(r.scope.opset >= 21)
    attrs = {"num_groups": r.attr("num_groups"), "axis": 1, "epsilon": r.attr("epsilon", 1e-5)}
    return Canon("nn.group_norm", r.inputs, attrs)


# ---------------------------------------------------------------- windows


def _window(kind: str, count: int) -> Lower:
    plain = "NC" + spatial(count)

    def write(
        w: OnnxLowering, data: Any, layout: str, out_layout: str, pool_size: Any, strides: Any, dilation: Any,
        padding: Any, ceil_mode: bool, count_include_pad: bool = False,
    ) -> Any:  # fmt: skip
        data = w.layout(data, layout, plain)
        result = w.type_of_result([(out_layout or layout).index(letter) for letter in plain])
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
        ones, ceil = (1,) * count, bool(r.attr("ceil_mode", 0))
        given: dict[str, Any] = {"pool_size": size, "strides": r.attr("strides", ones), "ceil_mode": ceil}
        given |= {"dilation": r.attr("dilations", ones), "padding": r.attr("pads", ones[:0] or (0,) * 2 * count)}
        if (auto := r.attr("auto_pad", "NOTSET")) != "NOTSET":
            sizes = (r.sizes(0, 2), size, given["strides"], given["dilation"])
            given["padding"] = (0,) * 2 * count if auto == "VALID" else same_padding(*sizes, auto == "SAME_UPPER")
        op = f"nn.{kind}_pool{count}d"
        if kind == "avg":
            given["count_include_pad"] = bool(r.attr("count_include_pad", 0))
        if ceil:
            # Versions of ONNX and torch do not agree on the last windows, unless they fit.
            down = infer(TABLE[op], [r.type()], {**given, "ceil_mode": False})
            unread_unless(down == infer(TABLE[op], [r.type()], given))
        return Canon(op, (r.x,), given)

    return read


def _global(name: str, count: int) -> Lower:
    plain = "NC" + spatial(count)

    def write(w: OnnxLowering, data: Any, layout: str, out_layout: str) -> Any:
        data = w.layout(data, layout, plain)
        result = w.type_of_result([(out_layout or layout).index(letter) for letter in plain])
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

WRITE: Final[Mapping[str, Lower]] = {
    "nn.batch_norm": _batch_norm,
    "nn.layer_norm": _layer_norm,
    "nn.rms_norm": _rms_norm,
    "nn.group_norm": _by_channel("GroupNormalization", since=21),
    "nn.instance_norm": _by_channel("InstanceNormalization"),
    **{f"nn.{kind}_pool{n}d": _window(kind, n) for kind in ("max", "avg") for n in _COUNTS},
    **{f"nn.adaptive_{kind}_pool{n}d": _adaptive(kind) for kind in ("max", "avg") for n in _COUNTS},
    **{f"nn.global_avg_pool{n}d": _global("GlobalAveragePool", n) for n in _COUNTS},
    **{f"nn.global_max_pool{n}d": _global("GlobalMaxPool", n) for n in _COUNTS},
}

_FIRST: Final = {"axis": 1, "epsilon": 1e-5}

READ: Final[Mapping[str, OnnxLift]] = {
    "BatchNormalization": same("nn.batch_norm", _FIRST, {"training_mode": 0}, epsilon="epsilon"),
    "LayerNormalization": _read_layer_norm,
    "RMSNormalization": _read_rms_norm,
    "SimplifiedLayerNormalization": _read_rms_norm,  # onnxruntime's name for it
    "GroupNormalization": _read_group_norm,
    "InstanceNormalization": same("nn.instance_norm", _FIRST, epsilon="epsilon"),
    "MaxPool": _read_window("max"),
    "AveragePool": _read_window("avg"),
    "GlobalAveragePool": _read_global("avg"),
    "GlobalMaxPool": _read_global("max"),
}
