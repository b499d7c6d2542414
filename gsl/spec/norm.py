"""Normalisations, as they are in inference."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gsl.spec import examples as e
from gsl.spec import normalise as n
from gsl.spec.examples import call
from gsl.spec.spec import REQUIRED, AttrSpec, Calculus, OpSpec

_CHANNELS = AttrSpec(1, n.axis())
_LAST_AXES = AttrSpec((-1,), n.last_axes)
_EPSILON = AttrSpec(1e-5, n.real, candidates=(1e-5, 0.001, 0.5))
_CENTER_SCALE = {"center": n.switch(True), "scale": n.switch(True)}
"""The flags for adding beta and for multiplying by gamma; where one is false, the operand is not used."""


def _by_channel(norm: Callable[..., Any]) -> Callable[..., Any]:
    """A normalisation ``norm(F, data, weight, bias, epsilon, *statistics, **attrs)`` whose channels are on an axis."""

    def meaning(
        torch: Any, data: Any, gamma: Any = None, beta: Any = None, *statistics: Any, axis: int, epsilon: float,
        center: bool, scale: bool, **attrs: Any,
    ) -> Any:  # fmt: skip
        weight, bias = gamma if scale else None, beta if center else None
        first = data.movedim(axis, 1)
        return norm(torch.nn.functional, first, weight, bias, epsilon, *statistics, **attrs).movedim(1, axis)

    return meaning


def _with_last(data: Any, axes: tuple[int, ...], function: Callable[[Any, Any], Any]) -> Any:
    """``function(data, shape)`` over some axes, which it wants to be the last ones and of that shape."""
    last = tuple(range(data.dim() - len(axes), data.dim()))
    if axes == last:
        return function(data, data.shape[axes[0] :])
    moved = data.movedim(axes, last)
    return function(moved, moved.shape[last[0] :]).movedim(last, axes)


def _layer_norm(
    torch: Any,
    data: Any,
    gamma: Any = None,
    beta: Any = None,
    *,
    axis: tuple[int, ...],
    epsilon: float,
    center: bool,
    scale: bool,
) -> Any:
    weight, bias = gamma if scale else None, beta if center else None
    return _with_last(data, axis, lambda x, shape: torch.nn.functional.layer_norm(x, shape, weight, bias, epsilon))


def _rms_norm(torch: Any, data: Any, weight: Any = None, *, axis: tuple[int, ...], epsilon: float) -> Any:
    return _with_last(data, axis, lambda x, shape: torch.nn.functional.rms_norm(x, shape, weight, epsilon))


def _l2_normalize(torch: Any, data: Any, eps: float, axis: tuple[int, ...]) -> Any:
    norm = (data * data).sum(axis, keepdim=True) if axis else data * data
    return data / torch.sqrt(torch.clamp(norm, min=eps))


def _by_squares(o: Calculus, data: Any, eps: float, axis: tuple[int, ...]) -> Any:
    squares = o("square", data)
    norm = o("sum", squares, axis=axis, keepdims=True, exclude=False) if axis else squares
    return o("divide", data, o("sqrt", o("maximum", norm, eps)))


_AFFINE: Mapping[str, AttrSpec] = {"axis": _CHANNELS, "epsilon": _EPSILON, **_CENTER_SCALE}

_CHANNEL = e.GAMMA, e.BETA, e.MEAN, e.VAR
_LARGE = e.rand(2, 3, 4, dtype="float16", low=-500.0, high=500.0)
"""Numbers whose squares no half can hold."""

OPS: tuple[OpSpec, ...] = (
    # One result; the moving averages are operands only.
    OpSpec(
        "nn.batch_norm",
        "BatchNorm",
        ("data", "gamma", "beta", "moving_mean", "moving_var"),
        _by_channel(lambda F, x, w, b, eps, mean, var: F.batch_norm(x, mean, var, w, b, training=False, eps=eps)),
        _AFFINE,
        examples=(
            call(e.IMAGE, *_CHANNEL),
            call(e.NHWC, *_CHANNEL, axis=-1, epsilon=0.1),
            call(e.IMAGE, *_CHANNEL, center=False, scale=False),
        ),
        torch_names="native_batch_norm _native_batch_norm_legit_no_training",
    ),
    # ``axis`` is the tuple of the normalised axes (one axis stands for itself); gamma and beta have their sizes.
    OpSpec(
        "nn.layer_norm",
        "LayerNorm",
        ("data", "gamma", "beta"),
        _layer_norm,
        {"axis": _LAST_AXES, "epsilon": _EPSILON, **_CENTER_SCALE},
        optional=2,
        examples=(
            call(e.X, e.GAMMA, e.BETA),
            call(e.X, e.unit(3), e.rand(3), axis=1, epsilon=0.1),
            call(e.X, e.unit(3, 4), axis=(-2, -1)),
            call(e.X, axis=(0, 2)),
            call(e.X, e.GAMMA, e.BETA, scale=False),
            call(_LARGE, e.unit(2, 4, dtype="float16"), e.rand(2, 4, dtype="float16"), axis=(0, 2)),
        ),
        torch_names="native_layer_norm",
    ),
    OpSpec(
        "nn.rms_norm",
        "RMSNorm",
        ("data", "weight"),
        _rms_norm,
        {"axis": _LAST_AXES, "epsilon": _EPSILON},
        optional=1,
        examples=(call(e.X, e.GAMMA), call(e.X, axis=(1, 2), epsilon=0.1), call(_LARGE, axis=(0, 2))),
    ),
    OpSpec(
        "nn.group_norm",
        "GroupNorm",
        ("data", "gamma", "beta"),
        _by_channel(lambda F, x, w, b, eps, num_groups: F.group_norm(x, num_groups, w, b, eps)),
        {"num_groups": AttrSpec(REQUIRED, n.positive), **_AFFINE},
        optional=2,
        examples=(call(e.IMAGE, e.GAMMA, e.BETA, num_groups=2), call(e.NHWC, num_groups=1, axis=3)),
        torch_names="native_group_norm",
    ),
    OpSpec(
        "nn.instance_norm",
        "InstanceNorm",
        ("data", "gamma", "beta"),
        _by_channel(lambda F, x, w, b, eps: F.instance_norm(x, weight=w, bias=b, eps=eps)),
        _AFFINE,
        optional=2,
        examples=(call(e.IMAGE, e.GAMMA, e.BETA), call(e.NHWC, axis=-1)),
        torch_names="_native_batch_norm_legit",
    ),
    # data / sqrt(max(sum of squares, eps)): eps is the square of that of torch.nn.functional.normalize.
    OpSpec(
        "nn.l2_normalize",
        "L2Normalize",
        ("data",),
        _l2_normalize,
        {"eps": AttrSpec(REQUIRED, n.real, candidates=(1e-12, 0.01)), "axis": AttrSpec(None, n.axes)},
        examples=(call(e.X, eps=1e-6, axis=1), call(e.X, eps=1e6)),
        decompose=_by_squares,
        torch_names="normalize",
    ),
)
