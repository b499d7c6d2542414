"""The operators that tests of the core need, in numpy: values and types of calls without a framework.

Rows of arrays are small here, so the type of a call is that of its value on zeros. ``tests/helpers/test_plain.py``
compares all of this with the meanings of the operators.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from gsl.graph import TensorType, TupleType, Type

Meaning = Callable[..., Any]
Operand = Type | bool | int | float


def _sum(x: Any, *, axis: Any, keepdims: bool, exclude: bool) -> Any:
    axes = tuple(range(x.ndim)) if axis is None else axis
    if exclude:
        axes = tuple([each for each in range(x.ndim) if each not in axes])
    return x.sum(axis=axes, keepdims=keepdims)


def _split(x: Any, *, indices_or_sections: Any, axis: int) -> tuple[Any, ...]:
    return tuple(np.split(x, list(indices_or_sections) if isinstance(indices_or_sections, tuple)
                          else indices_or_sections, axis))  # fmt: skip


def _softmax(x: Any, *, axis: int) -> Any:
    power = np.exp(x - x.max(axis=axis, keepdims=True))
    return power / power.sum(axis=axis, keepdims=True)


def _conv2d(x: Any, w: Any, *, strides: Any, padding: Any, dilation: Any, groups: int, **layouts: Any) -> Any:
    assert (layouts["data_layout"], layouts["kernel_layout"], layouts["out_layout"]) == ("NCHW", "OIHW", "")
    assert not layouts["out_dtype"]
    top, left, bottom, right = padding
    x = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)))
    reach = tuple([(size - 1) * step + 1 for size, step in zip(w.shape[2:], dilation)])
    windows = sliding_window_view(x, reach, axis=(2, 3))
    windows = windows[:, :, :: strides[0], :: strides[1], :: dilation[0], :: dilation[1]]
    parts = zip(np.split(windows, groups, 1), np.split(w, groups), strict=True)
    return np.concatenate([np.einsum("nihwkl,oikl->nohw", part, kernel) for part, kernel in parts], 1)


def _dense(x: Any, w: Any, *, units: int, out_dtype: str) -> Any:
    assert not out_dtype
    return x @ w.T


def _matmul(x: Any, y: Any, *, out_dtype: str) -> Any:
    assert not out_dtype
    return x @ y


def _bias_add(x: Any, b: Any, *, axis: int) -> Any:
    return x + b.reshape([-1 if place == axis else 1 for place in range(x.ndim)])


def _layer_norm(x: Any, gamma: Any, beta: Any, *, axis: Any, epsilon: float, center: bool, scale: bool) -> Any:
    assert center and scale  # noqa: PT018
    shape = [size if place in axis else 1 for place, size in enumerate(x.shape)]
    less = x - x.mean(axis=axis, keepdims=True)
    return less / np.sqrt(x.var(axis=axis, keepdims=True) + epsilon) * gamma.reshape(shape) + beta.reshape(shape)


def _mean(x: Any, **which: Any) -> Any:
    total = _sum(x, **which)
    return total * np.asarray(total.size / x.size, total.dtype)


def _gelu(x: Any, *, approximate: str) -> Any:
    assert approximate == "none"
    return x * (1 + _ERF(x / math.sqrt(2))) / 2


def _pad(x: Any, *, pad_width: Any, pad_value: float, pad_mode: str) -> Any:
    assert pad_mode == "constant"
    return np.pad(x, pad_width, constant_values=pad_value)


def _batch_matmul(x: Any, y: Any, *, transpose_a: bool, transpose_b: bool, out_dtype: str) -> Any:
    assert not out_dtype
    return (x.swapaxes(1, 2) if transpose_a else x) @ (y.swapaxes(1, 2) if transpose_b else y)


def _divide(x: Any, y: Any) -> Any:
    found = np.true_divide(x, y)
    kinds = {np.asarray(each).dtype.kind for each in (x, y)}
    return found if "f" in kinds else found.astype("float32")


_ERF = np.vectorize(math.erf, otypes=["float32"])
PLAIN: Mapping[str, Meaning] = {
    "nn.relu": lambda x: np.maximum(x, 0), "nn.relu6": lambda x: np.clip(x, 0, 6), "tanh": np.tanh, "exp": np.exp,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)), "silu": lambda x: x / (1 + np.exp(-x)), "negative": np.negative,
    "nn.leaky_relu": lambda x, *, alpha: np.where(x < 0, x * alpha, x), "sin": np.sin, "cos": np.cos, "abs": np.abs,
    "sqrt": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x), "log": np.log, "erf": _ERF, "square": np.square,
    "reciprocal": np.reciprocal, "clip": lambda x, *, a_min, a_max: np.clip(x, a_min, a_max),
    "add": np.add, "subtract": np.subtract, "multiply": np.multiply, "divide": _divide, "maximum": np.maximum,
    "minimum": np.minimum, "floor_divide": np.floor_divide,
    "cast": lambda x, *, dtype: x.astype(dtype), "reshape": lambda x, *, newshape: x.reshape(newshape),
    "transpose": lambda x, *, axes: x.transpose(axes), "squeeze": lambda x, *, axis: x.squeeze(axis),
    "concatenate": lambda xs, *, axis: np.concatenate(xs, axis), "stack": lambda xs, *, axis: np.stack(xs, axis),
    "split": _split, "sum": _sum, "nn.softmax": _softmax, "nn.bias_add": _bias_add, "nn.conv2d": _conv2d,
    "nn.dense": _dense, "matmul": _matmul,
    "mean": _mean, "nn.layer_norm": _layer_norm, "gelu": _gelu, "nn.pad": _pad, "nn.batch_matmul": _batch_matmul,
    "zeros": lambda *, shape, dtype: np.zeros(shape, dtype), "zeros_like": np.zeros_like,
    "ones": lambda *, shape, dtype: np.ones(shape, dtype),
}  # fmt: skip
"""What each operator computes, from its operands and its attributes."""
DTYPES = frozenset(("float16", "float32", "float64", "int64", "int32", "bool"))


def evaluate(op: str, operands: Sequence[Any], attrs: Mapping[str, Any]) -> Any:
    """The value of a call on arrays and Python numbers."""
    with np.errstate(all="ignore"):
        return PLAIN[op](*operands, **attrs)


def infer(op: str, operands: Sequence[Operand | None], attrs: Mapping[str, Any]) -> Type | None:
    """The type of a call; ``None`` where this does not know it, as with symbolic sizes."""
    if op not in PLAIN or not all(map(_is_plain, operands)) or not _is_plain_value(tuple(attrs.values())):
        return None
    if any(isinstance(each, float) for each in operands) and not all(map(_is_floating, operands)):
        return None  # numpy and torch promote integers and a float differently
    return _infer(op, tuple([(type(each), each) for each in operands]), tuple(attrs.items()))


@lru_cache(maxsize=4096)
def _infer(op: str, operands: tuple[tuple[type, Operand], ...], attrs: tuple[tuple[str, Any], ...]) -> Type | None:
    try:
        found = evaluate(op, [_zeros(each) for _, each in operands], dict(attrs))
    except (AssertionError, TypeError, ValueError):
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


def _is_floating(operand: Operand | None) -> bool:
    return isinstance(operand, float) or (isinstance(operand, TensorType) and operand.dtype.startswith("float"))


def _is_plain_value(value: Any) -> bool:
    if type(value) is tuple:
        return all(map(_is_plain_value, value))
    return value is None or isinstance(value, (int, float, str))
