"""Operators defined by others: a model that knows the others knows these, too.

Those of the declarations (``decompose``) can be computed as they stand. Those here hold for real numbers, and need not
be computed so: ``exp`` and ``log`` overflow, and digits cancel.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

from gsl.spec import TABLE, packed
from gsl.spec.spec import Calculus
from gsl.verify.kinds import MAX_POOLS


class UncoveredCall(Exception):
    """A model does not cover a call; the text says why."""


Definition = Callable[..., Any]


def total(o: Calculus, x: Any, axes: tuple[int, ...]) -> Any:
    """The sum over axes, which are kept."""
    return o("sum", x, axis=axes, keepdims=True, exclude=False)


def average(o: Calculus, x: Any, axes: tuple[int, ...], less: int = 0) -> Any:
    """The mean over axes, which are kept; of ``less`` elements fewer than there are."""
    count = math.prod([(o.shape(x) or (1,))[axis] for axis in axes]) - less  # a number has one axis
    if count <= 0:
        raise UncoveredCall("a mean of no elements is not a number")
    return o("divide", total(o, x, axes), count)


def reshaped(o: Calculus, x: Any, shape: tuple[int, ...]) -> Any:
    return o("reshape", x, newshape=shape)


def along(o: Calculus, x: Any, rank: int, axis: int) -> Any:
    """A vector as a tensor of that rank with its elements along an axis."""
    return reshaped(o, x, tuple([o.shape(x)[0] if place == axis else 1 for place in range(rank)]))


def _without(o: Calculus, x: Any, axes: tuple[int, ...], keepdims: bool) -> Any:
    """A result whose reduced axes were kept, as the reduction gives it."""
    if keepdims:
        return x
    return reshaped(o, x, tuple([size for axis, size in enumerate(o.shape(x)) if axis not in axes]))


# Reductions


def _mean(o: Calculus, x: Any, axis: tuple[int, ...], keepdims: bool, exclude: bool) -> Any:
    return _without(o, average(o, x, axis), axis, keepdims) if axis else x


def _variance(o: Calculus, x: Any, axis: tuple[int, ...], keepdims: bool, exclude: bool, unbiased: bool) -> Any:
    if not axis:
        raise UncoveredCall("a variance over no axes")
    centred = o("subtract", x, average(o, x, axis))
    return _without(o, average(o, o("square", centred), axis, int(unbiased)), axis, keepdims)


def _logsumexp(o: Calculus, x: Any, axis: tuple[int, ...], keepdims: bool, exclude: bool) -> Any:
    return _without(o, o("log", total(o, o("exp", x), axis)), axis, keepdims) if axis else x


def _prod(o: Calculus, x: Any, axis: tuple[int, ...], keepdims: bool, exclude: bool) -> Any:
    """Factor by factor."""
    for place in axis:
        parts = [
            o("strided_slice", x, begin=(i,), end=(i + 1,), strides=(1,), axes=(place,))
            for i in range(o.shape(x)[place])
        ]
        if not parts:
            raise UncoveredCall("a product of no elements")
        x = parts[0]
        for part in parts[1:]:
            x = o("multiply", x, part)
    return _without(o, x, axis, keepdims)


# Functions


def _sigmoid(o: Calculus, x: Any) -> Any:
    return o("divide", 1, o("add", o("exp", o("negative", x)), 1))


def _tanh(o: Calculus, x: Any) -> Any:
    return o("subtract", 1, o("divide", 2, o("add", o("exp", o("multiply", x, 2)), 1)))


def _elu(o: Calculus, x: Any, alpha: float) -> Any:
    return o("where", o("greater", x, 0), x, o("multiply", o("expm1", x), alpha))


def _selu(o: Calculus, x: Any) -> Any:
    return o("multiply", _elu(o, x, 1.6732632423543772), 1.0507009873554805)


def _softplus(o: Calculus, x: Any, beta: float, threshold: float) -> Any:
    # Where beta x exceeds 20, the logarithm is beta x in all digits of float32.
    if threshold < 20:
        raise UncoveredCall("softplus with a threshold below 20")
    return o("divide", o("log1p", o("exp", o("multiply", x, beta))), beta)


def _gelu(o: Calculus, x: Any, approximate: str) -> Any:
    if approximate == "none":
        inner = o("erf", o("multiply", x, 0.7071067811865476))
    else:
        cube = o("multiply", o("square", x), x)
        inner = o("tanh", o("multiply", o("add", x, o("multiply", cube, 0.044715)), 0.7978845608028654))
    return o("multiply", o("multiply", x, 0.5), o("add", inner, 1))


def _leaky_relu(o: Calculus, x: Any, alpha: float) -> Any:
    return o("where", o("greater", x, 0), x, o("multiply", x, alpha))


def _prelu(o: Calculus, x: Any, alpha: Any, axis: int) -> Any:
    if len(o.shape(alpha)) == 1:
        rank = len(o.shape(x))
        alpha = reshaped(o, alpha, (-1, *[1] * (rank - 1 - axis)))
    return o("where", o("greater", x, 0), x, o("multiply", alpha, x))


def _softmax(o: Calculus, x: Any, axis: int) -> Any:
    powers = o("exp", x)
    return o("divide", powers, total(o, powers, (axis,))) if o.shape(x) else o("divide", powers, powers)


def _log_softmax(o: Calculus, x: Any, axis: int) -> Any:
    powers = o("exp", x)
    return o("subtract", x, o("log", total(o, powers, (axis,)) if o.shape(x) else powers))


def _halved(function: str) -> Definition:
    """``(exp(x) ± exp(-x)) / 2``."""
    return lambda o, x: o("divide", o(function, o("exp", x), o("exp", o("negative", x))), 2)


# Normalisations


def _affine(o: Calculus, x: Any, gamma: Any, beta: Any, center: bool, scale: bool, axis: int) -> Any:
    rank = len(o.shape(x))
    if scale and gamma is not None:
        x = o("multiply", x, along(o, gamma, rank, axis))
    return o("add", x, along(o, beta, rank, axis)) if center and beta is not None else x


def _batch_norm(
    o: Calculus,
    x: Any,
    gamma: Any,
    beta: Any,
    mean: Any,
    var: Any,
    axis: int,
    epsilon: float,
    center: bool,
    scale: bool,
) -> Any:
    rank = len(o.shape(x))
    x = _shifted(o, x, along(o, mean, rank, axis), along(o, o("rsqrt", o("add", var, epsilon)), rank, axis))
    return _affine(o, x, gamma, beta, center, scale, axis)


def _shifted(o: Calculus, x: Any, mean: Any, factor: Any) -> Any:
    """``(x - mean) factor`` as kernels compute it that join the factor with gamma: with larger rounding errors."""
    return o("subtract", o("multiply", x, factor), o("multiply", mean, factor))


def _normal(o: Calculus, x: Any, axes: tuple[int, ...], epsilon: float) -> Any:
    mean = average(o, x, axes)
    squares = o("square", o("subtract", x, mean))
    return _shifted(o, x, mean, o("rsqrt", o("add", average(o, squares, axes), epsilon)))


def _spread(o: Calculus, weight: Any, rank: int, axes: tuple[int, ...]) -> Any:
    """A weight of the normalised axes as a tensor of that rank."""
    sizes = dict(zip(axes, o.shape(weight)))
    return reshaped(o, weight, tuple([sizes.get(axis, 1) for axis in range(rank)]))


def _layer_norm(
    o: Calculus, x: Any, gamma: Any = None, beta: Any = None, *, axis: tuple[int, ...], epsilon: float, center: bool,
    scale: bool,
) -> Any:  # fmt: skip
    result, rank = _normal(o, x, axis, epsilon), len(o.shape(x))
    if scale and gamma is not None:
        result = o("multiply", result, _spread(o, gamma, rank, axis))
    return o("add", result, _spread(o, beta, rank, axis)) if center and beta is not None else result


def _rms_norm(o: Calculus, x: Any, weight: Any = None, *, axis: tuple[int, ...], epsilon: float) -> Any:
    result = o("multiply", x, o("rsqrt", o("add", average(o, o("square", x), axis), epsilon)))
    return result if weight is None else o("multiply", result, _spread(o, weight, len(o.shape(x)), axis))


def _batch_first(o: Calculus, norm: Definition, x: Any, gamma: Any, beta: Any, **attrs: Any) -> Any:
    """The normalisation of a tensor whose channels are on the axis 0, and its batch on the axis 1."""
    turned = (1, 0, *range(2, len(o.shape(x))))
    result = norm(o, o("transpose", x, axes=turned), gamma, beta, axis=1, **attrs)
    return o("transpose", result, axes=turned)


def _group_norm(
    o: Calculus, x: Any, gamma: Any = None, beta: Any = None, *, num_groups: int, axis: int, epsilon: float,
    center: bool, scale: bool,
) -> Any:  # fmt: skip
    if axis == 0:
        given = {"num_groups": num_groups, "epsilon": epsilon, "center": center, "scale": scale}
        return _batch_first(o, _group_norm, x, gamma, beta, **given)
    shape = o.shape(x)
    grouped = reshaped(o, x, (*shape[:axis], num_groups, shape[axis] // num_groups, *shape[axis + 1 :]))
    axes = tuple([place for place in range(1, len(shape) + 1) if place != axis])
    # The axis of the groups has moved all axes from it on by one; the axis 0 is that of the batch.
    result = reshaped(o, _normal(o, grouped, axes, epsilon), shape)
    return _affine(o, result, gamma, beta, center, scale, axis)


def _instance_norm(
    o: Calculus, x: Any, gamma: Any = None, beta: Any = None, *, axis: int, epsilon: float, center: bool, scale: bool
) -> Any:
    if axis == 0:
        return _batch_first(o, _instance_norm, x, gamma, beta, epsilon=epsilon, center=center, scale=scale)
    axes = tuple([place for place in range(1, len(o.shape(x))) if place != axis])
    return _affine(o, _normal(o, x, axes, epsilon), gamma, beta, center, scale, axis)


# Attention


def _attention(
    o: Calculus, query: Any, key: Any, value: Any, mask: Any = None, *, scale: float | None, is_causal: bool,
    enable_gqa: bool,
) -> Any:  # fmt: skip
    import torch

    shape = o.shape(query)
    if enable_gqa:
        heads = len(shape) - 3
        key, value = (o("repeat", x, repeats=shape[heads] // o.shape(x)[heads], axis=heads) for x in (key, value))
    rank = len(o.shape(key))
    turned = o("transpose", key, axes=(*range(rank - 2), rank - 1, rank - 2))
    scores = o("matmul", query, turned, out_dtype="")
    scores = o("multiply", scores, 1 / math.sqrt(shape[-1]) if scale is None else scale)
    kept = torch.ones(o.shape(scores)[-2:], dtype=torch.bool).tril() if is_causal else None
    if isinstance(mask, torch.Tensor) and mask.dtype == torch.bool:
        kept = mask
    elif mask is not None:
        scores = o("add", scores, mask)
    powers = o("exp", scores)
    if kept is not None:
        powers = o("where", kept, powers, 0)
    weights = o("divide", powers, total(o, powers, (len(o.shape(powers)) - 1,)))
    return o("matmul", weights, value, out_dtype="")


DEFINITIONS: Final[Mapping[str, Definition]] = {
    **{op: spec.decompose for op, spec in TABLE.items() if spec.decompose is not None and op not in MAX_POOLS},
    **packed.DEFINITIONS,
    "mean": _mean,
    "variance": _variance,
    "logsumexp": _logsumexp,
    "prod": _prod,
    "negative": lambda o, x: o("subtract", 0, x),
    "rsqrt": lambda o, x: o("divide", 1, o("sqrt", x)),
    "expm1": lambda o, x: o("subtract", o("exp", x), 1),
    "log1p": lambda o, x: o("log", o("add", x, 1)),
    "log2": lambda o, x: o("divide", o("log", x), o("log", 2)),
    "log10": lambda o, x: o("divide", o("log", x), o("log", 10)),
    "sinh": _halved("subtract"),
    "cosh": _halved("add"),
    "tan": lambda o, x: o("divide", o("sin", x), o("cos", x)),
    "sigmoid": _sigmoid,
    "tanh": _tanh,
    "mish": lambda o, x: o("multiply", x, o("tanh", o("softplus", x, beta=1.0, threshold=20.0))),
    "elu": _elu,
    "selu": _selu,
    "softplus": _softplus,
    "gelu": _gelu,
    "nn.leaky_relu": _leaky_relu,
    "nn.prelu": _prelu,
    "nn.softmax": _softmax,
    "nn.log_softmax": _log_softmax,
    "nn.batch_norm": _batch_norm,
    "nn.layer_norm": _layer_norm,
    "nn.rms_norm": _rms_norm,
    "nn.group_norm": _group_norm,
    "nn.instance_norm": _instance_norm,
    "nn.attention": _attention,
}
