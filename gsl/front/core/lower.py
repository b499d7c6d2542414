"""The lowering of canonical calls to native ones whose values have types, as ONNX and Relax have them."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final, Generic, Protocol, TypeVar

import numpy as np
import torch

from gsl.front.tree import compose
from gsl.graph import Dim, SymDim, TensorType, TupleType, Type, dtype_name
from gsl.spec import TABLE
from gsl.spec.meaning import Operand, infer
from gsl.spec.normalise import is_number, spatial

Lower = Callable[..., Any]
"""``writer(w, *operands, **attrs)`` with a Lowering ``w``, and canonical attributes without the derived ones."""


class LoweringTarget(Protocol):
    """The program into which calls are written."""

    def type_of(self, value: Any, /) -> Type | None:
        """The type of a native value, ``None`` where its shape or dtype is not known."""


LoweringT = TypeVar("LoweringT", bound=LoweringTarget)


class Lowering(Generic[LoweringT]):
    """The writing of one canonical call: its type, the types of native values, and other calls as parts of it.

    A front end adds the means to make native calls.
    """

    framework: ClassVar[str]
    """Its name in messages."""

    def __init__(self, writers: Mapping[str, Lower], target: LoweringT, result: Type) -> None:
        self.writers = writers
        self.target = target
        self.result = result

    @abstractmethod
    def permute(self, value: Any, axes: Sequence[int]) -> Any:
        """The axes in another order."""

    @abstractmethod
    def full(self, value: bool | int | float, shape: Sequence[Dim], dtype: str) -> Any:
        """A tensor filled with a number."""

    @abstractmethod
    def cast(self, value: Any, dtype: str) -> Any:
        """A tensor or a number as a tensor of that dtype."""

    @abstractmethod
    def reshape(self, value: Any, shape: Sequence[Dim]) -> Any:
        """The same elements with another shape."""

    @abstractmethod
    def tensor(self, value: Any, dtype: str) -> Any:
        """An array of numpy as a tensor."""

    @property
    def shape(self) -> tuple[Dim, ...]:
        """The shape of the result."""
        assert isinstance(self.result, TensorType)
        return self.result.shape

    @property
    def dtype(self) -> str:
        """The dtype of the result."""
        assert isinstance(self.result, TensorType)
        return self.result.dtype

    def type_of(self, value: Any) -> TensorType:
        """The type of a value that is a tensor. ValueError where it is not known."""
        found = self.target.type_of(value)
        if not isinstance(found, TensorType):
            raise ValueError(f"expected a tensor of known type, found {found}")
        return found

    def shape_of(self, value: Any) -> tuple[Dim, ...]:
        return self.type_of(value).shape

    def sizes_of(self, value: Any) -> tuple[int, ...]:
        """The shape of a tensor all of whose sizes are known. ValueError for another one."""
        return known(self.shape_of(value))

    def rank_of(self, value: Any) -> int:
        return self.type_of(value).ndim

    def dtype_of(self, value: Any) -> str:
        return self.type_of(value).dtype

    def widened(self, value: Any) -> Any:
        """A tensor of halves in float32, in which kernels of norms compute; any other one as it is."""
        return self.cast(value, "float32") if self.dtype_of(value) in ("float16", "bfloat16") else value

    def common(self, x: Any, y: Any) -> str:
        """The dtype in which torch computes with two tensors or numbers."""
        return promoted(*[value if is_number(value) else self.type_of(value) for value in (x, y)])

    def layout(self, value: Any, source: str, target: str) -> Any:
        """A tensor of one layout in another one of the same letters."""
        return self.permute(value, [source.index(letter) for letter in target])

    def transposed(self, value: Any) -> Any:
        """A tensor with its last two axes exchanged."""
        rank = self.rank_of(value)
        return self.permute(value, [*range(rank - 2), rank - 1, rank - 2])

    def affine(self, shape: Sequence[Dim], gamma: Any, beta: Any, center: bool, scale: bool) -> tuple[Any, Any]:
        """Gamma and beta of a normalisation, of that shape, also where there is none."""
        if gamma is None or not scale:
            gamma = self.full(1, shape, self.dtype)
        if beta is None or not center:
            beta = self.full(0, shape, self.dtype)
        return gamma, beta

    def spread_out(self, weight: Any, rank: int, axes: Sequence[int]) -> Any:
        """A weight of some axes, to be broadcast along the others of a tensor of that rank."""
        if tuple(axes) == tuple(range(rank - len(axes), rank)):
            return weight
        sizes = iter(self.shape_of(weight))
        return self.reshape(weight, [next(sizes) if place in axes else 1 for place in range(rank)])

    def write(self, op: str, *operands: Any, **attrs: Any) -> Any:
        """Another canonical call as part of this one."""
        return lower(type(self), self.writers, op, attrs, operands, self.target)


def lower(
    kind: type[Lowering[LoweringT]], writers: Mapping[str, Lower], op: str, attrs: Mapping[str, Any],
    operands: Sequence[Any], target: LoweringT,
) -> Any:  # fmt: skip
    """The native value of a canonical call, of just the type that its declaration gives it.

    ValueError with the reason where the framework can't say it.
    """
    spec = TABLE[op]
    types = [type_or_number(operand, target) for operand in operands[: len(spec.operands)]]
    own = completed(op, attrs, types)
    result = infer(spec, types, attrs)
    if result is None:
        raise ValueError(
            f"{op}: the types of the operands have to be known, found {', '.join(map(str, types))}; results of "
            "operators that gsl.operator declares have types"
        )
    try:
        if op in writers:
            value = writers[op](kind(writers, target, result), *operands, **own)
        else:
            value = compose(
                op, own, operands, lambda op, attrs, parts, _: lower(kind, writers, op, attrs, parts, target),
                target.type_of,
            )  # fmt: skip
    except ValueError as error:
        raise ValueError(str(error) if str(error).startswith(f"{op}:") else f"{op}: {error}") from None
    found = type_or_number(value, target)
    if found != result:
        raise ValueError(f"{op}: {kind.framework} gives it the type {found}, not {result}")
    return value


def completed(op: str, attrs: Mapping[str, Any], types: Sequence[Operand]) -> Mapping[str, Any]:
    """The attributes of a call on operands of these types, or numbers: all but the derived ones, in canonical form.

    ValueError for an attribute that the operator does not have, or for a bad value.
    """
    spec = TABLE[op]
    known = tuple([None if is_number(found) else found for found in types])
    try:
        return spec.own(spec.complete(spec.own(attrs), known))  # type: ignore[arg-type]
    except KeyError as error:
        raise ValueError(f"{op} has no attribute {error.args[0]!r}") from None


def promoted(*operands: Operand) -> str:
    """The dtype that torch gives two tensors of these types, or numbers, when they meet. ValueError where a type is not
    known."""
    values: list[Any] = []
    for found in operands:
        if not is_number(found) and not isinstance(found, TensorType):
            raise ValueError(f"expected an operand of known type, found {found}")
        shape = (1,) * found.ndim if isinstance(found, TensorType) else ()
        values.append(torch.empty(shape, dtype=getattr(torch, found.dtype), device="meta")
                      if isinstance(found, TensorType) else found)  # fmt: skip
    return dtype_name(torch.result_type(*values))


def type_or_number(operand: Any, target: LoweringTarget) -> Operand:
    """The type of an operand, or the number that it is."""
    if is_number(operand):
        value: Operand = operand
        return value
    if isinstance(operand, (tuple, list)):
        return TupleType(tuple([target.type_of(field) for field in operand]))
    return target.type_of(operand)


def known(shape: Sequence[Dim]) -> tuple[int, ...]:
    """Sizes that are all numbers. ValueError for others."""
    if any(isinstance(size, SymDim) for size in shape):
        raise ValueError(f"the sizes have to be known, found {tuple(shape)}")
    return tuple([int(size) for size in shape])  # type: ignore[arg-type]


# ---------------------------------------------------------------- calls that several frameworks lack


def _log1p(w: Lowering[Any], x: Any) -> Any:
    """log(u) x / (u - 1) for u = 1 + x, which is precise near 0."""
    x = w.cast(x, w.dtype)
    u = w.write("add", x, 1.0)
    log = w.write("log", u)
    precise = w.write("multiply", log, w.write("divide", x, w.write("subtract", u, 1.0)))
    finite = w.write("where", w.write("isinf", u), log, precise)
    return w.write("where", w.write("equal", u, 1.0), x, finite)


def _elu(w: Lowering[Any], x: Any, alpha: float) -> Any:
    """x where it is positive, alpha expm1(x) elsewhere."""
    negative = w.write("multiply", w.write("expm1", w.write("minimum", x, 0.0)), alpha)
    return w.write("where", w.write("greater", x, 0.0), x, negative)


def _expm1(w: Lowering[Any], x: Any) -> Any:
    """(exp(x) + 1) tanh(x / 2), which is precise near 0."""
    x = w.cast(x, w.dtype)
    half = w.write("tanh", w.write("multiply", x, 0.5))
    return w.write("multiply", half, w.write("add", w.write("exp", x), 1.0))


def _gelu(w: Lowering[Any], x: Any, approximate: str) -> Any:
    if approximate == "none":
        inner = w.write("erf", w.write("multiply", x, math.sqrt(0.5)))
    else:
        cube = w.write("multiply", w.write("multiply", w.write("multiply", x, x), x), 0.044715)
        inner = w.write("tanh", w.write("multiply", w.write("add", x, cube), math.sqrt(2 / math.pi)))
    return w.write("multiply", w.write("multiply", x, 0.5), w.write("add", inner, 1.0))


def _softplus(w: Lowering[Any], x: Any, beta: float, threshold: float) -> Any:
    """log(1 + exp(beta x)) / beta, and x itself where beta x exceeds the threshold."""
    scaled = x if beta == 1 else w.write("multiply", x, beta)
    soft = w.write("log1p", w.write("exp", scaled))
    soft = soft if beta == 1 else w.write("divide", soft, beta)
    return w.write("where", w.write("greater", scaled, threshold), x, soft)


def floor_mod_of_floats(w: Lowering[Any], x: Any, y: Any) -> Any:
    """By way of the remainder of the other sign, which is exact."""
    rest = w.write("mod", x, y)
    signs_differ = w.write("less", w.write("multiply", w.write("sign", rest), w.write("sign", y)), 0.0)
    return w.write("where", signs_differ, w.write("add", rest, y), rest)


def _matrix_set_diag(w: Lowering[Any], data: Any, diagonal: Any, k: tuple[int, int], align: str) -> Any:
    """The element for every place of the matrix, looked up in the diagonals, where it is on one of them."""
    rows, columns = w.sizes_of(data)[-2:]
    width = w.sizes_of(diagonal)[-1]
    upper, lower = align.split("_")
    row, column = np.indices((rows, columns))
    on_diagonal, places = np.zeros((rows, columns), dtype=bool), np.zeros((rows, columns), dtype=np.int64)
    for nth, offset in enumerate(range(k[1], k[0] - 1, -1)):
        here = column - row == offset
        side = upper if offset >= 0 else lower
        start = width - int(here.sum()) if side == "RIGHT" and k[0] != k[1] else 0
        on_diagonal |= here
        places[here] = (nth * width + start + np.minimum(row, column))[here]
    if k[0] != k[1]:
        diagonal = w.reshape(diagonal, (*w.shape_of(diagonal)[:-2], (k[1] - k[0] + 1) * width))
    taken = w.write("take", diagonal, w.tensor(places, "int64"), axis=w.rank_of(diagonal) - 1)
    return w.write("where", w.tensor(on_diagonal, "bool"), w.cast(taken, w.dtype), data)


def adaptive(w: Lowering[Any], reduction: str, data: Any, layout: str, sizes: Sequence[int | None]) -> Any:
    """The mean or the maximum of each window of an axis, one axis after the other; ``None``: the axis stays."""
    for letter, wanted in zip(spatial(len(sizes)), sizes, strict=True):
        axis = layout.index(letter)
        if wanted is None or w.shape_of(data)[axis] == wanted:
            continue
        size = w.sizes_of(data)[axis]
        windows = [(size * i // wanted, -(-size * (i + 1) // wanted)) for i in range(wanted)]
        pieces = [data if (low, high) == (0, size) else
                  w.write("strided_slice", data, begin=(low,), end=(high,), axes=(axis,))
                  for low, high in windows]  # fmt: skip
        parts = [w.write(reduction, piece, axis=(axis,), keepdims=True) for piece in pieces]
        data = w.write("concatenate", tuple(parts), axis=axis) if len(parts) > 1 else parts[0]
    return data


def all_heads(w: Lowering[Any], query: Any, *shared: Any) -> list[Any]:
    """Keys and values, of which some heads of the queries share one, with one for each."""
    heads = w.sizes_of(query)[-3]
    return [w.write("repeat", x, repeats=heads // w.sizes_of(x)[-3], axis=w.rank_of(x) - 3) for x in shared]


def attention(w: Lowering[Any], query: Any, key: Any, value: Any, mask: Any, scale: float | None, causal: bool) -> Any:
    """Attention as products and a softmax, for as many heads of keys and values as of queries."""
    if scale is None:
        scale = w.sizes_of(query)[-1] ** -0.5
    scores = w.write("matmul", query, w.transposed(key))
    scores = scores if scale == 1 else w.write("multiply", scores, float(scale))
    if causal:
        keep = w.write("trilu", w.full(True, w.shape_of(scores)[-2:], "bool"), upper=False)
        scores = w.write("where", keep, scores, float("-inf"))
    if mask is not None and w.dtype_of(mask) == "bool":
        scores = w.write("where", mask, scores, float("-inf"))
    elif mask is not None:
        scores = w.write("add", scores, mask)
    return w.write("matmul", w.write("nn.softmax", scores, axis=-1), value)


def index_of_several(w: Lowering[Any], op: str, data: Any, axis: Sequence[int]) -> Any:
    """The index among the elements of several axes, in row-major order."""
    kept = [place for place in range(w.rank_of(data)) if place not in axis]
    size = math.prod(w.sizes_of(data)[place] for place in axis)
    moved = w.permute(data, [*kept, *axis])
    flat = w.reshape(moved, (*w.shape_of(moved)[: len(kept)], size))
    return w.reshape(w.write(op, flat, axis=(len(kept),), keepdims=False), w.shape)


def _logsumexp(w: Lowering[Any], data: Any, axis: tuple[int, ...], keepdims: bool, exclude: bool) -> Any:
    """The logarithm of a sum that does not overflow: with the largest element taken out."""
    data = w.cast(data, w.dtype)
    most = w.write("max", data, axis=axis, keepdims=True)
    most = w.write("where", w.write("isinf", most), 0.0, most)
    sums = w.write("sum", w.write("exp", w.write("subtract", data, most)), axis=axis, keepdims=True)
    result = w.write("add", w.write("log", sums), most)
    return result if keepdims or not axis else w.write("squeeze", result, axis=axis)


def _rms_norm(w: Lowering[Any], data: Any, weight: Any = None, *, axis: tuple[int, ...], epsilon: float) -> Any:
    data = w.widened(data)
    squares = w.write("mean", w.write("square", data), axis=axis, keepdims=True)
    result = w.write("multiply", data, w.write("rsqrt", w.write("add", squares, epsilon)))
    if weight is not None:
        result = w.write("multiply", result, w.spread_out(w.widened(weight), w.rank_of(data), axis))
    return w.cast(result, w.dtype)


def _batch_matmul(w: Lowering[Any], a: Any, b: Any, out_dtype: str, transpose_a: bool, transpose_b: bool) -> Any:
    a, b = w.transposed(a) if transpose_a else a, w.transposed(b) if transpose_b else b
    return w.write("matmul", a, b, out_dtype=out_dtype)


LOWERED: Final[Mapping[str, Lower]] = {
    "elu": _elu,
    "expm1": _expm1,
    "gelu": _gelu,
    "log1p": _log1p,
    "log2": lambda w, x: w.write("multiply", w.write("log", x), 1 / math.log(2)),
    "log10": lambda w, x: w.write("multiply", w.write("log", x), 1 / math.log(10)),
    "logsumexp": _logsumexp,
    "matrix_set_diag": _matrix_set_diag,
    "mish": lambda w, x: w.write("multiply", x, w.write("tanh", w.write("softplus", x))),
    "nn.batch_matmul": _batch_matmul,
    "nn.rms_norm": _rms_norm,
    "selu": lambda w, x: w.write("multiply", w.write("elu", x, alpha=1.6732632423543772), 1.0507009873554805),
    "softplus": _softplus,
}
"""Writers for frameworks that have no such operators."""
