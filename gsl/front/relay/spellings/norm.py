"""Normalisations."""

from __future__ import annotations

from typing import Any, Final

from tvm import relay

from gsl.front.relay.spellings.activation import last
from gsl.front.relay.spellings.table import (
    FLOATS,
    RelayCall,
    RelayLift,
    RelayLowering,
    RelayRow,
    check,
    const,
    is_default,
    same,
)
from gsl.front.tree import Canon


def _options(w: RelayLowering, *skipped: str) -> dict[str, Any]:
    return {name: w[name] for name in w.attrs if name not in skipped and not is_default(w.op, name, w[name])}


def _of_floats(op: str) -> RelayLift:
    identity = same(op)

    def read(r: RelayCall) -> Canon:
        check(r.type().dtype in FLOATS)
        return identity(r)

    return read


def _axis(w: RelayLowering, default: int) -> dict[str, int]:
    """The axis of the channels, if it is not Relay's default."""
    axis = last(w["axis"], w.type().ndim) if w["axis"] != default else default
    return {} if axis == default else {"axis": axis}


def _batch_norm(w: RelayLowering) -> Any:
    dtype = w.type().dtype
    operands = [w.expr(place, dtype) for place in range(5)]
    return relay.nn.batch_norm(*operands, **_axis(w, 1), **_options(w, "axis"))[0]


def _affine(w: RelayLowering, size: int) -> tuple[Any, Any, dict[str, Any]]:
    """Gamma and beta, and the flags for them: a tensor that is not there is not used."""
    dtype = w.type().dtype
    options = _options(w, "axis", "num_groups")
    unused = relay.ones((size,), dtype)
    found = []
    for place, name in ((1, "scale"), (2, "center")):
        if place < len(w.operands):
            found.append(w.expr(place, dtype))
        else:
            options[name] = False
            found.append(unused)
    return found[0], found[1], options


def _read_layer_norm(r: RelayCall) -> Canon:
    canon = _of_floats("nn.layer_norm")(r)
    return Canon(canon.op, canon.operands, {**canon.attrs, "axis": (r["axis"],)})


def _layer_norm(w: RelayLowering) -> Any:
    axes = w["axis"]
    if len(axes) > 1:
        return _normalised(w, axes)
    gamma, beta, options = _affine(w, w.known([w.type().shape[axes[0]]])[0])
    axis = last(axes[0], w.type().ndim)
    return relay.nn.layer_norm(w.x, gamma, beta, **({} if axis == -1 else {"axis": axis}), **options)


def _normalised(w: RelayLowering, axes: tuple[int, ...]) -> Any:
    """The normalisation over several axes."""
    dtype = w.type().dtype
    centred = w.x - relay.mean(w.x, axes, keepdims=True)
    variance = relay.mean(centred * centred, axes, keepdims=True)
    result = centred / relay.sqrt(variance + const(w["epsilon"], dtype))
    if len(w.operands) > 1 and w["scale"]:
        result = result * _along(w, 1, axes)
    if len(w.operands) > 2 and w["center"]:
        result = result + _along(w, 2, axes)
    return result


def _along(w: RelayLowering, position: int, axes: tuple[int, ...]) -> Any:
    """A weight with the sizes of some axes of the operand, in the places of those."""
    ndim = w.type().ndim
    weight = w.expr(position, w.type().dtype)
    if axes == tuple(range(ndim - len(axes), ndim)):
        return weight
    shape = w.known(w.type().shape)
    return relay.reshape(weight, [shape[axis] if axis in axes else 1 for axis in range(ndim)])


def _rms_norm(w: RelayLowering) -> Any:
    axes, dtype = w["axis"], w.type().dtype
    squares = relay.mean(w.x * w.x, axes, keepdims=True)
    result = w.x * relay.rsqrt(squares + const(w["epsilon"], dtype))
    return result * _along(w, 1, axes) if len(w.operands) > 1 else result


def _channels(w: RelayLowering) -> int:
    return w.known([w.type().shape[w["axis"]]])[0]


def _read_group_norm(r: RelayCall) -> Canon:
    """Relay's kernel takes the second axis for the channels, whatever the attribute says."""
    check(r["axis"] == 1)
    return _of_floats("nn.group_norm")(r)


def _group_norm(w: RelayLowering) -> Any:
    gamma, beta, options = _affine(w, _channels(w))
    axis, axes = w["axis"], list(range(w.type().ndim))
    if axis == 1:
        return relay.nn.group_norm(w.x, gamma, beta, w["num_groups"], **options)
    axes.insert(1, axes.pop(axis))
    moved = relay.nn.group_norm(relay.transpose(w.x, axes), gamma, beta, w["num_groups"], **options)
    return relay.transpose(moved, [axes.index(place) for place in range(len(axes))])


def _instance_norm(w: RelayLowering) -> Any:
    gamma, beta, options = _affine(w, _channels(w))
    return relay.nn.instance_norm(w.x, gamma, beta, **_axis(w, 1), **options)


def _l2_normalize(w: RelayLowering) -> Any:
    axes = w["axis"]
    if axes:
        return relay.nn.l2_normalize(w.x, w["eps"], list(axes))
    bounded = relay.maximum(w.x * w.x, const(w["eps"], w.type().dtype))
    return w.x / relay.sqrt(bounded)


def _read_l2_normalize(r: RelayCall) -> Canon:
    """Without axes, over all of them; Relay can't compile an empty list of axes."""
    check(r["axis"] != ())
    return _of_floats("nn.l2_normalize")(r)


ROWS: Final = (
    # Relay's has the moving averages as further results.
    RelayRow("nn.batch_norm", _batch_norm, fields={("nn.batch_norm", 0): _of_floats("nn.batch_norm")}),
    RelayRow("nn.layer_norm", _layer_norm, {"nn.layer_norm": _read_layer_norm}),
    RelayRow("nn.rms_norm", _rms_norm),
    RelayRow("nn.group_norm", _group_norm, {"nn.group_norm": _read_group_norm}),
    RelayRow("nn.instance_norm", _instance_norm, {"nn.instance_norm": _of_floats("nn.instance_norm")}),
    RelayRow("nn.l2_normalize", _l2_normalize, {"nn.l2_normalize": _read_l2_normalize}),
)
