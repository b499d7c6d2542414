"""All operators in numpy: values and types of calls without a framework, and the oracle of the meanings in torch.

Each function takes the operands and the canonical attributes, without those that follow from the operands. The type of
a call of small tensors is that of its value on zeros. ``tests/spec/test_meaning.py`` compares all of this with the
meanings of the operators.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache, reduce
from itertools import product
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from gsl.graph import TensorType, TupleType, Type
from gsl.spec import TABLE
from gsl.spec.packed import ACTIVATIONS

Meaning = Callable[..., Any]
Operand = Type | bool | int | float
Window = tuple[int, ...]


# ---------------------------------------------------------------- dtypes


_OF_NUMBERS = {bool: np.dtype("bool"), int: np.dtype("int64"), float: np.dtype("float32")}


def _promote(one: np.dtype[Any], other: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype of both: a float is not made larger by an integer."""
    if (one.kind == "f") != (other.kind == "f"):
        return one if one.kind == "f" else other
    return np.promote_types(one, other)


def _kind(dtype: np.dtype[Any]) -> int:
    return {"b": 0, "i": 1, "u": 1, "f": 2}[dtype.kind]


def promoted(*operands: Any) -> tuple[Any, ...]:
    """The operands in the dtype of the result: that of a tensor goes before that of one without axes, and this before
    that of a number, unless it is of a lower kind (bools, integers, floats)."""
    arrays = [np.asarray(x) for x in operands]
    ranks: tuple[list[np.dtype[Any]], ...] = ([], [], [])
    for given, array in zip(operands, arrays):
        number = type(given) in _OF_NUMBERS
        ranks[2 if number else 0 if array.ndim else 1].append(_OF_NUMBERS[type(given)] if number else array.dtype)
    dtypes = [reduce(_promote, each) for each in ranks if each]
    dtype = reduce(lambda one, other: one if _kind(one) >= _kind(other) else _promote(one, other), dtypes)
    return tuple([array.astype(dtype) for array in arrays])


def _real(function: Meaning) -> Meaning:
    """A function whose result is a float, also of integers."""

    def real(*operands: Any, **attrs: Any) -> Any:
        operands = promoted(*operands)
        return function(*[x if x.dtype.kind == "f" else x.astype("float32") for x in operands], **attrs)

    return real


def _joined(function: Meaning) -> Meaning:
    return lambda *operands: function(*promoted(*operands))


def _rounded(function: Meaning) -> Meaning:
    return lambda x: function(x) if x.dtype.kind == "f" else x


# ---------------------------------------------------------------- making and moving


def _full(value: Any, *, shape: Any, dtype: str) -> Any:
    array = np.asarray(value)
    return np.full(shape, array.reshape(()), dtype or _OF_NUMBERS.get(type(value), array.dtype))


def _reshape_like(x: Any, y: Any, *, lhs_begin: int, lhs_end: Any, rhs_begin: int, rhs_end: Any) -> Any:
    before, after = x.shape[:lhs_begin], x.shape[slice(lhs_end, None)] if lhs_end is not None else ()
    return x.reshape(*before, *y.shape[rhs_begin:rhs_end], *after)


def _expand_dims(x: Any, *, axis: int, num_newaxis: int) -> Any:
    return np.expand_dims(x, tuple(range(axis, axis + num_newaxis)))


def _layout_transform(x: Any, *, src_layout: str, dst_layout: str) -> Any:
    """Each element of the result from its place in the operand."""
    source, target = ([(letter, int(size or 1)) for size, letter in re.findall(r"(\d*)([A-Za-z])", layout)]
                      for layout in (src_layout, dst_layout))  # fmt: skip
    whole = {letter: size * dict(source).get(letter.lower(), 1)
             for (letter, _), size in zip(source, x.shape) if letter.isupper()}  # fmt: skip
    inner = dict(target)
    shape = [whole[letter] // inner.get(letter.lower(), 1) if letter.isupper() else size for letter, size in target]
    places = dict.fromkeys(whole, 0)
    for (letter, _), index in zip(target, np.indices(shape)):
        places[letter.upper()] += index * inner.get(letter.lower(), 1) if letter.isupper() else index
    split = dict(source)
    return x[tuple([
        places[letter] // split.get(letter.lower(), 1) if letter.isupper() else places[letter.upper()] % size
        for letter, size in source
    ])]  # fmt: skip


def _padded(x: Any, widths: Sequence[tuple[int, int]], value: Any = 0, mode: str = "constant") -> Any:
    """With axes made longer, or shorter where a width is negative."""
    x = x[tuple([slice(max(0, -low), x.shape[axis] - max(0, -high)) for axis, (low, high) in enumerate(widths)])]
    more = [(max(0, low), max(0, high)) for low, high in widths]
    return np.pad(x, more, constant_values=value) if mode == "constant" else np.pad(x, more, mode)  # type: ignore[call-overload]


def _strided_slice(x: Any, *, begin: Any, end: Any, strides: Any, axes: Any) -> Any:
    cuts = [slice(None)] * x.ndim
    for axis, *cut in zip(axes, begin, end, strides):
        cuts[axis] = slice(*cut)
    return x[tuple(cuts)]


def _part(x: Any, shape: Sequence[int], axis: int) -> Any:
    """The first elements on all axes but one."""
    return x[tuple([slice(None) if place == axis else slice(size) for place, size in enumerate(shape)])]


def _scatter(x: Any, places: Any, updates: Any, *, axis: int) -> Any:
    x = x.copy()
    updates = updates[tuple(map(slice, places.shape))]
    np.put_along_axis(_part(x, places.shape, axis), places, updates, axis)
    return x


def _matrix_set_diag(x: Any, diagonal: Any, *, k: tuple[int, int], align: str) -> Any:
    x, (lowest, highest) = x.copy(), k
    diagonal = diagonal if lowest != highest else diagonal[..., None, :]
    for row, offset in enumerate(range(highest, lowest - 1, -1)):
        places = [(i, i + offset) for i in range(x.shape[-2]) if 0 <= i + offset < x.shape[-1]]
        first = diagonal.shape[-1] - len(places) if align.split("_")[offset < 0] == "RIGHT" else 0
        for number, (i, j) in enumerate(places):
            x[..., i, j] = diagonal[..., row, first + number]
    return x


# ---------------------------------------------------------------- reductions


def _reduction(function: Meaning) -> Meaning:
    def reduced(x: Any, *, axis: Any, keepdims: bool, exclude: bool, **attrs: Any) -> Any:
        axes = tuple(range(x.ndim)) if axis is None else axis
        if exclude:
            axes = tuple([each for each in range(x.ndim) if each not in axes])
        return function(x, axis=axes, keepdims=keepdims, **attrs)

    return reduced


def _mean(x: Any, *, axis: Any, keepdims: bool) -> Any:
    total = np.sum(x, axis=axis, keepdims=keepdims)
    return total * np.asarray(total.size / x.size, total.dtype)


def _variance(x: Any, *, axis: Any, keepdims: bool, unbiased: bool) -> Any:
    return np.var(x, axis=axis, ddof=int(unbiased), keepdims=keepdims)


def _index(function: Meaning) -> Meaning:
    def index(x: Any, *, axis: Any, keepdims: bool) -> Any:
        last = np.moveaxis(x, axis, range(x.ndim - len(axis), x.ndim))
        found = function(last.reshape(*last.shape[: x.ndim - len(axis)], -1), -1)
        return np.expand_dims(found, axis) if keepdims else found

    return index


def _cumsum(x: Any, *, axis: Any, dtype: str, exclusive: bool) -> Any:
    x, axis = (x.reshape(-1), 0) if axis is None else (x, axis)
    wanted = dtype or ("int64" if x.dtype.kind in "biu" else x.dtype)
    return np.cumsum(x, axis, wanted) - (x if exclusive else np.zeros((), "bool")).astype(wanted)


# ---------------------------------------------------------------- products


def _as(x: Any, dtype: str) -> Any:
    return x.astype(dtype) if dtype else x


def _batch_matmul(x: Any, y: Any, *, transpose_a: bool, transpose_b: bool, out_dtype: str) -> Any:
    x, y = _as(x, out_dtype), _as(y, out_dtype)
    return (x.swapaxes(1, 2) if transpose_a else x) @ (y.swapaxes(1, 2) if transpose_b else y)


def _along(values: Any, rank: int, axis: int) -> Any:
    """The elements of a vector along an axis."""
    return values.reshape([-1 if place == axis else 1 for place in range(rank)])


def _attention(
    q: Any, k: Any, v: Any, mask: Any = None, *, scale: Any, is_causal: bool, enable_gqa: bool
) -> Any:
    if enable_gqa:
        k, v = (np.repeat(x, q.shape[-3] // x.shape[-3], -3) for x in (k, v))
    scores = q @ k.swapaxes(-1, -2) * np.asarray(q.shape[-1] ** -0.5 if scale is None else scale, q.dtype)
    if is_causal:
        mask = np.tri(*scores.shape[-2:], dtype="bool")
    if mask is not None:
        scores = np.where(mask, scores, -np.inf).astype(q.dtype) if mask.dtype == bool else scores + mask
    most = scores.max(-1, keepdims=True)
    power = np.exp(scores - np.where(np.isfinite(most), most, 0).astype(q.dtype))
    total = power.sum(-1, keepdims=True)
    return power / np.where(total == 0, 1, total).astype(q.dtype) @ v


# ---------------------------------------------------------------- windows


def _turned(x: Any, source: str, target: str) -> Any:
    return x.transpose([source.index(letter) for letter in target])


def _plain_layout(layout: str, first: str = "NC") -> str:
    return first + "DHW"[5 - len(layout) :]


def _windows(x: Any, size: Window, strides: Window, dilation: Window) -> Any:
    """The windows of the last axes, each axis of them after those that count them."""
    first = x.ndim - len(size)
    reach = tuple([(length - 1) * step + 1 for length, step in zip(size, dilation)])
    found = sliding_window_view(x, reach, axis=tuple(range(first, x.ndim)))
    steps = [slice(None, None, step) for step in (*strides, *dilation)]
    return found[(slice(None),) * first + tuple(steps)]


def _pairs(padding: Window) -> list[tuple[int, int]]:
    count = len(padding) // 2
    return [(0, 0), (0, 0), *zip(padding[:count], padding[count:])]


def _correlated(x: Any, w: Any, strides: Window, dilation: Window, groups: int) -> Any:
    parts = [
        np.tensordot(_windows(part, w.shape[2:], strides, dilation), kernel, (
            [1, *range(x.ndim, 2 * x.ndim - 2)], [*range(1, x.ndim)]))
        for part, kernel in zip(np.split(x, groups, 1), np.split(w, groups), strict=True)
    ]  # fmt: skip
    return np.moveaxis(np.concatenate(parts, -1), -1, 1)


def _conv(
    x: Any, w: Any, *, strides: Window, padding: Window, dilation: Window, groups: int, data_layout: str,
    kernel_layout: str, out_layout: str, out_dtype: str,
) -> Any:  # fmt: skip
    plain = _plain_layout(data_layout)
    x, w = _turned(x, data_layout, plain), _turned(w, kernel_layout, _plain_layout(kernel_layout, "OI"))
    found = _correlated(_padded(_as(x, out_dtype), _pairs(padding)), _as(w, out_dtype), strides, dilation, groups)
    return _turned(found, plain, out_layout or data_layout)


def _conv_transpose(
    x: Any, w: Any, *, strides: Window, padding: Window, output_padding: Window, dilation: Window, groups: int,
    data_layout: str, kernel_layout: str, out_layout: str, out_dtype: str,
) -> Any:  # fmt: skip
    """A convolution of the operand with zeros between its elements, with the kernel in reverse."""
    plain, count = _plain_layout(data_layout), len(strides)
    x = _as(_turned(x, data_layout, plain), out_dtype)
    w = _as(_turned(w, kernel_layout, _plain_layout(kernel_layout, "IO")), out_dtype)
    apart = np.zeros((*x.shape[:2], *[(n - 1) * step + 1 for n, step in zip(x.shape[2:], strides)]), x.dtype)
    apart[(slice(None), slice(None), *[slice(None, None, step) for step in strides])] = x
    reach = [(n - 1) * step for n, step in zip(w.shape[2:], dilation)]
    widths = [(far - low, far - high + more)
              for far, low, high, more in zip(reach, padding[:count], padding[count:], output_padding)]  # fmt: skip
    w = np.flip(w, tuple(range(2, w.ndim)))
    w = np.concatenate([part.swapaxes(0, 1) for part in np.split(w, groups)])
    found = _correlated(_padded(apart, [(0, 0), (0, 0), *widths]), w, (1,) * count, dilation, groups)
    return _turned(found, plain, out_layout or data_layout)


def _pool(function: Meaning) -> Meaning:
    """A pooling ``function(x, **attrs)`` of a tensor with its spatial axes last."""

    def pool(x: Any, *, layout: str, out_layout: str, **attrs: Any) -> Any:
        plain = _plain_layout(layout)
        return _turned(function(_turned(x, layout, plain), **attrs), plain, out_layout or layout)

    return pool


def _covered(x: Any, size: Window, strides: Window, dilation: Window, padding: Window, ceil: bool) -> list[Any]:
    """The widths of padding, with those for a last window that is not whole, which begins in what it pads."""
    pairs = _pairs(padding)
    for axis, (length, step, apart) in enumerate(zip(size, strides, dilation), 2):
        low, high = pairs[axis]
        over = x.shape[axis] + low + high - (length - 1) * apart - 1
        steps = -(-over // step) if ceil else over // step
        if steps * step >= x.shape[axis] + low:
            steps -= 1
        pairs[axis] = (low, high + max(0, steps * step - over))
    return pairs


def _max_pool(x: Any, *, pool_size: Window, strides: Window, dilation: Window, padding: Window, ceil_mode: bool) -> Any:
    least = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
    wide = _padded(x, _covered(x, pool_size, strides, dilation, padding, ceil_mode), least)
    return _windows(wide, pool_size, strides, dilation).max(tuple(range(x.ndim, 2 * x.ndim - 2)))


def _avg_pool(
    x: Any, *, pool_size: Window, strides: Window, dilation: Window, padding: Window, ceil_mode: bool,
    count_include_pad: bool,
) -> Any:  # fmt: skip
    widths = _covered(x, pool_size, strides, dilation, padding, ceil_mode)
    inside = np.ones_like(x)
    if count_include_pad:
        inside = _padded(inside, _pairs(padding), 1)
        rest = [(0, high - own) for (_, high), (_, own) in zip(widths, _pairs(padding))]
    counted = _padded(inside, rest if count_include_pad else widths)
    sums = [_windows(each, pool_size, strides, dilation).sum(tuple(range(x.ndim, 2 * x.ndim - 2)))
            for each in (_padded(x, widths), counted)]  # fmt: skip
    return sums[0] / sums[1]


def _adaptive(function: Meaning) -> Meaning:
    def pool(x: Any, *, output_size: Any) -> Any:
        for axis, wanted in enumerate(output_size, 2):
            size = x.shape[axis]
            edges = [(i * size // wanted, -(-(i + 1) * size // wanted)) for i in range(wanted or 0)]
            if wanted is not None:
                x = np.stack([function(x.take(range(*edge), axis), axis=axis) for edge in edges], axis)
        return x

    return pool


def _global(function: Meaning) -> Meaning:
    return lambda x: function(x, axis=tuple(range(2, x.ndim)), keepdims=True)


# ---------------------------------------------------------------- normalisations and activations


def _normal(x: Any, axes: Any, epsilon: float) -> Any:
    less = x - x.mean(axis=axes, keepdims=True)
    return less / np.sqrt(x.var(axis=axes, keepdims=True) + np.asarray(epsilon, x.dtype))


def _affine(x: Any, gamma: Any, beta: Any, shape: Sequence[int], scale: bool, center: bool) -> Any:
    x = x * gamma.reshape(shape) if scale and gamma is not None else x
    return x + beta.reshape(shape) if center and beta is not None else x


def _channel(x: Any, axis: int) -> list[int]:
    return [-1 if place == axis else 1 for place in range(x.ndim)]


def _batch_norm(
    x: Any, gamma: Any, beta: Any, mean: Any, var: Any, *, axis: int, epsilon: float, center: bool, scale: bool
) -> Any:
    mean, var = mean.reshape(_channel(x, axis)), var.reshape(_channel(x, axis))
    return _affine((x - mean) / np.sqrt(var + epsilon), gamma, beta, _channel(x, axis), scale, center)


def _in_float32(norm: Meaning) -> Meaning:
    """A norm of which halves are computed in float32, and rounded once."""

    def wide(x: Any, *others: Any, **attrs: Any) -> Any:
        if x.dtype != np.float16:
            return norm(x, *others, **attrs)
        given = [None if each is None else each.astype(np.float32) for each in (x, *others)]
        return norm(*given, **attrs).astype(x.dtype)

    return wide


@_in_float32
def _layer_norm(
    x: Any, gamma: Any = None, beta: Any = None, *, axis: Any, epsilon: float, center: bool, scale: bool
) -> Any:
    shape = [size if place in axis else 1 for place, size in enumerate(x.shape)]
    return _affine(_normal(x, axis, epsilon), gamma, beta, shape, scale, center)


@_in_float32
def _rms_norm(x: Any, weight: Any = None, *, axis: Any, epsilon: float) -> Any:
    shape = [size if place in axis else 1 for place, size in enumerate(x.shape)]
    found = x / np.sqrt(np.square(x).mean(axis=axis, keepdims=True) + np.asarray(epsilon, x.dtype))
    return _affine(found, weight, None, shape, scale=True, center=False)


def _group_norm(
    x: Any, gamma: Any = None, beta: Any = None, *, num_groups: int, axis: int, epsilon: float, center: bool,
    scale: bool,
) -> Any:  # fmt: skip
    """The channels are the second axis, when they have been moved there."""
    second = np.moveaxis(x, axis, 1)
    parts = [_normal(part, tuple(range(1, x.ndim)), epsilon) for part in np.split(second, num_groups, 1)]
    found = np.moveaxis(np.concatenate(parts, 1), 1, axis)
    return _affine(found, gamma, beta, _channel(x, axis), scale, center)


def _instance_norm(x: Any, gamma: Any = None, beta: Any = None, *, axis: int, **attrs: Any) -> Any:
    return _group_norm(x, gamma, beta, num_groups=x.shape[axis], axis=axis, **attrs)


def _l2_normalize(x: Any, *, eps: float, axis: Any) -> Any:
    axes = tuple(range(x.ndim)) if axis is None else axis
    return x / np.sqrt(np.maximum(np.square(x).sum(axis=axes, keepdims=True), np.asarray(eps, x.dtype)))


def _prelu(x: Any, alpha: Any, *, axis: int) -> Any:
    alpha = alpha if alpha.ndim != 1 or alpha.size == 1 else _along(alpha, x.ndim, axis)
    return np.where(x > 0, x, x * alpha)


def _gelu(x: Any, *, approximate: str) -> Any:
    if approximate == "tanh":
        return x * (1 + np.tanh((2 / math.pi) ** 0.5 * (x + 0.044715 * x**3))) / 2
    return x * (1 + _ERF(x / math.sqrt(2)).astype(x.dtype)) / 2


def _elu(x: Any, alpha: float) -> Any:
    return np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))


def _softplus(x: Any, *, beta: float, threshold: float) -> Any:
    return np.where(beta * x > threshold, x, np.log1p(np.exp(np.minimum(beta * x, threshold))) / beta).astype(x.dtype)


def _softmax(x: Any, *, axis: int) -> Any:
    power = np.exp(x - x.max(axis=axis, keepdims=True))
    return power / power.sum(axis=axis, keepdims=True)


def _log_softmax(x: Any, *, axis: int) -> Any:
    return x - np.logaddexp.reduce(x, axis=axis, keepdims=True)


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def _hard(x: Any) -> Any:
    return np.clip(x + 3, 0, 6) / 6


_ERF = np.vectorize(math.erf, otypes=["float64"])


# ---------------------------------------------------------------- kernels


def _activated(x: Any, name: str) -> Any:
    if name == "none":
        return x
    op, attrs = ACTIVATIONS[name]
    return PLAIN[op](x, **attrs)


def _packed_dense(x: Any, w: Any, b: Any = None, *, activation: str, precision: str, addend: Any = 0) -> Any:
    return _activated(x @ w.T + addend + (0 if b is None else b), activation)


def _packed_conv2d(
    x: Any, w: Any, b: Any = None, *, activation: str, precision: str, addend: Any = 0, **window: Any
) -> Any:
    plain = {"data_layout": "NCHW", "kernel_layout": "OIHW", "out_layout": "", "out_dtype": ""}
    return _activated(_conv(x, w, **window, **plain) + addend + (0 if b is None else _along(b, 4, 1)), activation)


def _topk(x: Any, *, k: int, axis: int, largest: bool, sorted: bool) -> Any:
    """In order, which is one of the orders that may be wanted."""
    places = np.argsort(-x if largest else x, axis=axis, kind="stable").take(range(k), axis)
    return np.take_along_axis(x, places, axis), places


def _with_addend(function: Meaning) -> Meaning:
    return lambda x, w, addend, b=None, **attrs: function(x, w, b, addend=addend, **attrs)


# ---------------------------------------------------------------- the table


def _each(functions: Mapping[str, Meaning], wrap: Callable[[Meaning], Meaning]) -> Iterator[tuple[str, Meaning]]:
    for name, function in functions.items():
        yield name, wrap(function)


def _pools() -> Iterator[tuple[str, Meaning]]:
    for count, (kind, function, window) in product(
        (1, 2, 3), (("max", np.max, _max_pool), ("avg", np.mean, _avg_pool))
    ):
        yield f"nn.{kind}_pool{count}d", _pool(window)
        yield f"nn.adaptive_{kind}_pool{count}d", _pool(_adaptive(function))
        yield f"nn.global_{kind}_pool{count}d", _pool(_global(function))


PLAIN: Mapping[str, Meaning] = {
    **dict(_each({
        "exp": np.exp, "expm1": np.expm1, "log": np.log, "log2": np.log2, "log10": np.log10, "log1p": np.log1p,
        "sqrt": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x), "reciprocal": np.reciprocal,
        "erf": lambda x: _ERF(x).astype(x.dtype), "sin": np.sin, "cos": np.cos, "tan": np.tan, "asin": np.arcsin,
        "acos": np.arccos, "atan": np.arctan, "sinh": np.sinh, "cosh": np.cosh, "asinh": np.arcsinh,
        "acosh": np.arccosh, "atanh": np.arctanh, "tanh": np.tanh, "sigmoid": _sigmoid, "divide": np.true_divide,
        "atan2": np.arctan2,
        "elu": lambda x, *, alpha: _elu(x, alpha).astype(x.dtype), "gelu": _gelu, "silu": lambda x: x * _sigmoid(x),
        "selu": lambda x: (1.0507009873554805 * _elu(x, 1.6732632423543772)).astype(x.dtype),
        "mish": lambda x: x * np.tanh(np.log1p(np.exp(x))), "softplus": _softplus,
        "hardswish": lambda x: x * _hard(x), "hardsigmoid": _hard,
        "nn.leaky_relu": lambda x, *, alpha: np.where(x < 0, x * alpha, x),
        "logsumexp": _reduction(lambda x, **axes: np.logaddexp.reduce(x, **axes)),
    }, _real)),
    **dict(_each({
        "add": np.add, "subtract": np.subtract, "multiply": np.multiply, "floor_divide": np.floor_divide,
        "floor_mod": np.remainder, "mod": np.fmod, "power": np.power, "left_shift": np.left_shift,
        "right_shift": np.right_shift, "maximum": np.maximum, "minimum": np.minimum, "equal": np.equal,
        "not_equal": np.not_equal, "less": np.less, "less_equal": np.less_equal, "greater": np.greater,
        "greater_equal": np.greater_equal, "bitwise_and": np.bitwise_and, "bitwise_or": np.bitwise_or,
        "bitwise_xor": np.bitwise_xor,
    }, _joined)),
    **dict(_each({"floor": np.floor, "ceil": np.ceil, "round": np.round, "trunc": np.trunc}, _rounded)),
    "negative": np.negative, "abs": np.abs, "sign": np.sign, "copy": lambda x: x, "square": np.square,
    "isnan": np.isnan, "isinf": np.isinf, "isfinite": np.isfinite, "logical_and": np.logical_and,
    "logical_or": np.logical_or, "logical_xor": np.logical_xor, "logical_not": np.logical_not,
    "bitwise_not": np.bitwise_not, "where": lambda c, x, y: np.where(c, *promoted(x, y)),
    "clip": lambda x, *, a_min, a_max: reduce(
        lambda value, bound: bound[0](*promoted(value, bound[1])),
        [(f, bound) for f, bound in ((np.maximum, a_min), (np.minimum, a_max)) if bound is not None], x),
    "cast": lambda x, *, dtype: np.asarray(x).astype(dtype),
    "zeros": lambda *, shape, dtype: np.zeros(shape, dtype), "ones": lambda *, shape, dtype: np.ones(shape, dtype),
    "full": _full, "zeros_like": np.zeros_like, "ones_like": np.ones_like,
    "full_like": lambda x, value: np.full(x.shape, np.asarray(value).reshape(()), x.dtype),
    "arange": lambda *, start, stop, step, dtype: np.arange(start, stop, step, dtype),
    "concatenate": lambda xs, *, axis: np.concatenate(promoted(*xs), axis),
    "stack": lambda xs, *, axis: np.stack(promoted(*xs), axis),
    "topk": _topk,
    "split": lambda x, *, indices_or_sections, axis: tuple(np.split(x, indices_or_sections, axis)),
    "reshape": lambda x, *, newshape: x.reshape(newshape), "reshape_like": _reshape_like,
    "transpose": lambda x, *, axes: x.transpose(axes), "expand_dims": _expand_dims,
    "squeeze": lambda x, *, axis: x.squeeze(axis), "reverse": lambda x, *, axis: np.flip(x, axis),
    "layout_transform": _layout_transform, "broadcast_to": lambda x, *, shape: np.broadcast_to(x, shape),
    "repeat": lambda x, *, repeats, axis: np.repeat(x, repeats, axis), "tile": lambda x, *, reps: np.tile(x, reps),
    "nn.pad": lambda x, *, pad_width, pad_value, pad_mode: _padded(x, pad_width, pad_value, pad_mode),
    "strided_slice": _strided_slice, "take": lambda x, places, *, axis: np.take(x, places, axis),
    "gather": lambda x, places, *, axis: np.take_along_axis(_part(x, places.shape, axis), places, axis),
    "scatter": _scatter, "matrix_set_diag": _matrix_set_diag,
    "trilu": lambda x, *, k, upper: np.triu(x, k) if upper else np.tril(x, k),
    **dict(_each({
        "sum": np.sum, "mean": _mean, "max": np.max, "min": np.min, "prod": np.prod, "all": np.all, "any": np.any,
        "variance": _variance, "std": lambda x, **attrs: np.sqrt(_variance(x, **attrs)), "argmax": _index(np.argmax),
        "argmin": _index(np.argmin),
    }, _reduction)),
    "cumsum": _cumsum,
    "matmul": lambda x, y, *, out_dtype: _as(x, out_dtype) @ _as(y, out_dtype), "nn.batch_matmul": _batch_matmul,
    "nn.dense": lambda x, w, *, out_dtype: _as(x, out_dtype) @ _as(w, out_dtype).T,
    "nn.bias_add": lambda x, b, *, axis: x + _along(b, x.ndim, axis),
    "einsum": lambda xs, *, equation: np.einsum(equation, *xs), "nn.attention": _attention,
    **{f"nn.conv{count}d": _conv for count in (1, 2, 3)},
    **{f"nn.conv{count}d_transpose": _conv_transpose for count in (1, 2, 3)},
    **dict(_pools()),
    "nn.batch_norm": _batch_norm, "nn.layer_norm": _layer_norm, "nn.rms_norm": _rms_norm,
    "nn.group_norm": _group_norm, "nn.instance_norm": _instance_norm, "nn.l2_normalize": _l2_normalize,
    "nn.relu": lambda x: np.maximum(x, 0), "nn.relu6": lambda x: np.clip(x, 0, 6), "nn.prelu": _prelu,
    "nn.softmax": _softmax, "nn.log_softmax": _log_softmax, "nn.dropout": lambda x, *, rate: x,
    "packed.dense": _packed_dense, "packed.dense_add": _with_addend(_packed_dense),
    "packed.conv2d": _packed_conv2d, "packed.conv2d_add": _with_addend(_packed_conv2d),
}  # fmt: skip
"""The function that each operator computes, of its operands and its attributes."""
DTYPES = frozenset(("float16", "float32", "float64", "int64", "int32", "int8", "bool"))


def evaluate(op: str, operands: Sequence[Any], attrs: Mapping[str, Any]) -> Any:
    """The value of a call on arrays and Python numbers, of canonical attributes."""
    specs = TABLE[op].attrs
    with np.errstate(all="ignore"):
        return PLAIN[op](*operands, **{name: value for name, value in attrs.items() if specs[name].derive is None})


def infer(op: str, operands: Sequence[Operand | None], attrs: Mapping[str, Any]) -> Type | None:
    """The type of a call; ``None`` where this does not know it, as with symbolic sizes."""
    if op not in PLAIN or not all(map(_is_plain, operands)) or not _is_plain_value(tuple(attrs.values())):
        return None
    return _infer(op, tuple([(type(each), each) for each in operands]), tuple(attrs.items()))


@lru_cache(maxsize=4096)
def _infer(op: str, operands: tuple[tuple[type, Operand], ...], attrs: tuple[tuple[str, Any], ...]) -> Type | None:
    try:
        found = evaluate(op, [_zeros(each) for _, each in operands], dict(attrs))
    except (TypeError, ValueError, IndexError):
        return None
    return type_of(found)


def type_of(value: Any) -> Type:
    """The type of an array, or of a tuple of them."""
    if isinstance(value, tuple):
        return TupleType(tuple(map(type_of, value)))
    return TensorType(tuple(value.shape), str(value.dtype))


def _zeros(operand: Operand) -> Any:
    if isinstance(operand, TupleType):
        return tuple(map(_zeros, operand.fields))  # type: ignore[arg-type]
    return np.zeros(operand.shape, operand.dtype) if isinstance(operand, TensorType) else operand


def _is_plain(operand: Operand | None) -> bool:
    if isinstance(operand, TupleType):
        return all(map(_is_plain, operand.fields))
    if isinstance(operand, TensorType):
        return operand.dtype in DTYPES and _is_plain_value(operand.shape)
    return isinstance(operand, (bool, int, float))


def _is_plain_value(value: Any) -> bool:
    if type(value) is tuple:
        return all(map(_is_plain_value, value))
    return value is None or isinstance(value, (int, float, str))
