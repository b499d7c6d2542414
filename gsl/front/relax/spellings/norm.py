"""Spellings of normalisations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tvm import relax

from gsl.front.core.lower import Lower
from gsl.front.relax.spellings.reading import FieldReader, RelaxLift, RelaxScope, ints, tensor_type, unread_unless
from gsl.front.relax.spellings.writing import RelaxLowering
from gsl.front.tree import Canon

N = relax.op.nn

# ---------------------------------------------------------------- batch normalisation


def _batch_norm(
    w: RelaxLowering, *operands: Any, axis: int, epsilon: float, center: bool, scale: bool
) -> Any:
    result = w.call(N.batch_norm, *operands, axis, epsilon, center, scale, training=False)
    return w.field(result, 0)


def _read_batch_norm(call: Any, index: int, scope: RelaxScope) -> Canon:
    """The normalised data, or an average, which inference leaves as it is."""
    attrs = call.attrs
    unread_unless(not attrs.training)
    if index > 0:
        return Canon("copy", (call.args[2 + index],))
    given = {"axis": int(attrs.axis), "epsilon": float(attrs.epsilon)}
    flags = {"center": bool(attrs.center), "scale": bool(attrs.scale)}
    return Canon("nn.batch_norm", tuple(call.args), {**given, **flags})


# ---------------------------------------------------------------- gamma and beta


def _layer_norm(
    w: RelaxLowering,
    data: Any,
    gamma: Any = None,
    beta: Any = None,
    *,
    axis: tuple[int, ...],
    epsilon: float,
    center: bool,
    scale: bool,
) -> Any:
    shape = tuple([w.shape_of(data)[place] for place in axis])
    return w.call(N.layer_norm, data, *w.affine(shape, gamma, beta, center, scale), list(axis), epsilon)


def _rms_norm(w: RelaxLowering, data: Any, weight: Any = None, *, axis: tuple[int, ...], epsilon: float) -> Any:
    shape, rank = w.shape_of(data), w.rank_of(data)
    if axis[0] > 0 and axis == tuple(range(axis[0], rank)):
        if weight is None:
            weight = w.full(1, shape[axis[0] :], w.dtype)
        return w.call(N.rms_norm, data, weight, list(axis), epsilon)
    # Relax can't lower its own operator for other axes, nor for all of them.
    squares = w.write("mean", w.write("square", data), axis=axis, keepdims=True)
    result = w.write("multiply", data, w.write("rsqrt", w.write("add", squares, epsilon)))
    if weight is None:
        return result
    return w.write("multiply", result, w.reshape(weight, [shape[a] if a in axis else 1 for a in range(rank)]))


def _by_channel(name: str) -> Lower:
    """Group and instance normalisation, over all axes but those of the batch and the channels."""

    def write(
        w: RelaxLowering,
        data: Any,
        gamma: Any = None,
        beta: Any = None,
        *,
        axis: int,
        epsilon: float,
        center: bool,
        scale: bool,
        **groups: int,
    ) -> Any:
        affine = w.affine((w.shape_of(data)[axis],), gamma, beta, center, scale)
        axes = _spatial(w.rank_of(data), axis)
        return w.call(getattr(N, name), data, *affine, *groups.values(), axis, axes, epsilon)

    return write


def _spatial(rank: int, channel: int) -> list[int]:
    """All axes but that of the channels, and the first one of the others, which is that of the batch."""
    return [place for place in range(rank) if place != channel][1:]


# ---------------------------------------------------------------- reading


def _axes(call: Any, scope: RelaxScope) -> tuple[int, ...]:
    """The normalised axes. Unread if they are not in the order of those of the data."""
    rank = tensor_type(call.args[0], scope).ndim
    axes = tuple([axis % rank for axis in ints(call.attrs.axes)])
    unread_unless(list(axes) == sorted(set(axes)))
    return axes


def _read_affine(op: str, **others: str) -> RelaxLift:
    def read(call: Any, scope: RelaxScope) -> Canon:
        attrs = call.attrs
        # Relax declares these flags, and its lowering does not heed them.
        unread_unless(bool(attrs.center) and bool(attrs.scale))
        axes = _axes(call, scope)
        given: dict[str, Any] = {"epsilon": float(attrs.epsilon)}
        if op == "nn.layer_norm":
            given["axis"] = axes
        else:
            shape = tensor_type(call.args[0], scope).shape
            channel = int(attrs.channel_axis) % len(shape)
            batch = 0 if channel else 1
            # A batch of one may be normalised over as well.
            kept = [axis for axis in axes if axis != batch or shape[batch] != 1]
            unread_unless(kept == _spatial(len(shape), channel))
            given["axis"] = channel
        return Canon(op, tuple(call.args), {**given, **{own: int(getattr(attrs, own)) for own in others}})

    return read


def _read_rms_norm(call: Any, scope: RelaxScope) -> Canon:
    attrs = {"axis": _axes(call, scope), "epsilon": float(call.attrs.epsilon)}
    return Canon("nn.rms_norm", tuple(call.args), attrs)


WRITE: Final[Mapping[str, Lower]] = {
    "nn.batch_norm": _batch_norm,
    "nn.layer_norm": _layer_norm,
    "nn.rms_norm": _rms_norm,
    "nn.group_norm": _by_channel("group_norm"),
    "nn.instance_norm": _by_channel("instance_norm"),
}

READ: Final[Mapping[str, RelaxLift]] = {
    "relax.nn.layer_norm": _read_affine("nn.layer_norm"),
    "relax.nn.group_norm": _read_affine("nn.group_norm", num_groups="num_groups"),
    "relax.nn.instance_norm": _read_affine("nn.instance_norm"),
    "relax.nn.rms_norm": _read_rms_norm,
}

FIELDS: Final[Mapping[str, FieldReader]] = {"relax.nn.batch_norm": _read_batch_norm}
