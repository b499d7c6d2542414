"""Canonical forms of attribute values: the building blocks of declarations.

A normaliser takes a value and the types of the operands, any of which may be unknown. It raises ValueError saying
what was expected and what was found.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from string import ascii_letters
from typing import Any, Final

from gsl.graph.types import Dim, SymDim, TensorType, TupleType, dtype_name
from gsl.spec.spec import AttrSpec, Types

Normaliser = Callable[[Any, Types], Any]
RankOf = Callable[[Types], "int | None"]

DTYPES: Final = frozenset(
    (
        "bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float16", "bfloat16",
        "float32", "float64", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "complex32",
        "complex64", "complex128",
    )
)  # fmt: skip


def wrong(value: Any, expected: str) -> ValueError:
    """The error of a value that has no canonical form."""
    return ValueError(f"expected {expected}, found {value!r}")


# Operand types


def tensor(types: Types, index: int = 0) -> TensorType | None:
    """The type of an operand, where it is known to be a tensor."""
    found = types[index] if index < len(types) else None
    return found if isinstance(found, TensorType) else None


def is_number(value: Any) -> bool:
    """True for a number of Python, which is no tensor."""
    return isinstance(value, (bool, int, float))


def shape_of(types: Types, index: int = 0) -> tuple[Dim, ...] | None:
    """The shape of an operand, where it is known."""
    found = tensor(types, index)
    return None if found is None else found.shape


def rank(types: Types, index: int = 0) -> int | None:
    """The rank of an operand, where it is known."""
    found = tensor(types, index)
    return None if found is None else found.ndim


def field_rank(types: Types) -> int | None:
    """The rank of the first tensor of known type in the tuple operand."""
    found = types[0] if types else None
    if isinstance(found, TupleType):
        return next((field.ndim for field in found.fields if isinstance(field, TensorType)), None)
    return None


def one_more(rank_of: RankOf) -> RankOf:
    """The rank of a result with a new axis."""

    def result(types: Types) -> int | None:
        found = rank_of(types)
        return None if found is None else found + 1

    return result


# Scalars


def integer(value: Any, types: Types = ()) -> int:
    """An int; a bool is none."""
    if not isinstance(value, (bool, str)):
        try:
            return operator.index(value)
        except TypeError:
            pass
    raise wrong(value, "an integer")


def positive(value: Any, types: Types = ()) -> int:
    """A positive int."""
    if integer(value) <= 0:
        raise wrong(value, "a positive integer")
    return integer(value)


def dimension(value: Any, types: Types = ()) -> Dim:
    """An int or a symbolic dimension."""
    return value if isinstance(value, SymDim) else integer(value)


def real(value: Any, types: Types = ()) -> float:
    """A float, also from an int."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise wrong(value, "a number")
    return float(value)


def number(value: Any, types: Types = ()) -> bool | int | float:
    """A Python number that keeps its type, except that one which meets a floating-point tensor is a float."""
    if not isinstance(value, (bool, int, float)):
        raise wrong(value, "a number")
    data = tensor(types)
    return float(value) if data is not None and "float" in data.dtype else value


def fill(value: Any, types: Types = ()) -> bool | int | float:
    """A Python number that is put into a tensor: a float in one of floats, and an int in one of integers."""
    found, data = number(value, types), tensor(types)
    is_whole = isinstance(found, float) and found.is_integer()
    return int(found) if is_whole and data is not None and "int" in data.dtype else found


def bound(value: Any, types: Types = ()) -> Dim | float:
    """A number or a symbolic dimension."""
    return value if isinstance(value, float) else dimension(value)


def flag(value: Any, types: Types = ()) -> bool:
    """True or False, and nothing that is merely equal to them."""
    if not isinstance(value, bool):
        raise wrong(value, "True or False")
    return value


def dtype(value: Any, types: Types = ()) -> str:
    """The name of a dtype, also from a dtype object of torch or numpy."""
    name = dtype_name(value)
    if name not in DTYPES:
        raise wrong(value, "a dtype")
    return name


def dtype_or_same(value: Any, types: Types = ()) -> str:
    """The name of a dtype, or "" for the one that follows from the operands."""
    return "" if value is None or value == "" else dtype(value)


def product_dtype(value: Any, types: Types = ()) -> str:
    """The dtype of a product: the name of one, or "" for that of the operands, as far as that is known."""
    name = dtype_or_same(value)
    return "" if types and all(isinstance(t, TensorType) and t.dtype == name for t in types) else name


def optional(convert: Normaliser) -> Normaliser:
    """The same normaliser, with ``None`` allowed."""
    return lambda value, types: None if value is None else convert(value, types)


def one_of(*words: str) -> Normaliser:
    """One of some words."""

    def convert(value: Any, types: Types) -> str:
        if not isinstance(value, str) or value not in words:
            raise wrong(value, f"one of {', '.join(map(repr, words))}")
        return value

    return convert


def equation(value: Any, types: Types = ()) -> str:
    """An equation of einsum with its result, without spaces, whose indices are called a, b, c, … as they come.

    A result that is left out has the indices that stand once, in alphabetical order. Where there are large and small
    letters, libraries differ in that order, and the equation stays as it is.
    """
    if not isinstance(value, str):
        raise wrong(value, "an equation like 'ij,jk->ik'")
    text = value.replace(" ", "")
    operands, arrow, result = text.partition("->")
    indices = operands.replace(",", "").replace("...", "")
    if not (indices.isascii() and indices.isalpha()):
        return text
    if not arrow:
        if not (indices.islower() or indices.isupper()):
            return text
        dots = "..." if "..." in operands else ""
        result = dots + "".join(sorted(index for index in indices if indices.count(index) == 1))
    names = dict(zip(dict.fromkeys(indices), ascii_letters))
    return "".join(names.get(sign, sign) for sign in f"{operands}->{result}")


# Attributes of a few values


def switch(default: bool) -> AttrSpec:
    """An attribute that is True or False."""
    return AttrSpec(default, flag, candidates=(default, not default))


def word(*words: str) -> AttrSpec:
    """An attribute that is one of some words, the first one by default."""
    return AttrSpec(words[0], one_of(*words), candidates=words)


# Tuples


def sequence(value: Any, expected: str = "a tuple") -> tuple[Any, ...]:
    """A tuple, also from a list."""
    if not isinstance(value, (tuple, list)):
        raise wrong(value, expected)
    return tuple(value)


def integers(value: Any, types: Types = (), expected: str = "an integer or a tuple of integers") -> tuple[int, ...]:
    """A tuple of ints, also from one int."""
    items = value if isinstance(value, (tuple, list)) else (value,)
    try:
        return tuple(map(integer, items))
    except ValueError:
        raise wrong(value, expected) from None


def per_axis(count: int, least: int = 1) -> Normaliser:
    """One int for each of ``count`` spatial axes, also from one for all."""
    expected = f"an integer of at least {least} or a tuple of {count} of them"

    def convert(value: Any, types: Types) -> tuple[int, ...]:
        items = integers(value, types, expected)
        if len(items) == 1 and count > 1 and not isinstance(value, (tuple, list)):
            items = items * count
        if len(items) != count or min(items) < least:
            raise wrong(value, expected)
        return items

    return convert


def padding(count: int) -> Normaliser:
    """Padding of ``count`` spatial axes: that before each of them, then that after each of them.

    Also from one int for all, or one for each axis (both sides).
    """
    expected = "a non-negative integer or a tuple of " + ("1 or 2" if count == 1 else f"{count} or {2 * count}")

    def convert(value: Any, types: Types) -> tuple[int, ...]:
        items = integers(value, types, expected)
        if not isinstance(value, (tuple, list)):
            items = items * count
        if len(items) == count:
            items = items * 2
        if len(items) != 2 * count or min(items) < 0:
            raise wrong(value, expected)
        return items

    return convert


def shape(value: Any, types: Types = ()) -> tuple[Dim, ...]:
    """A shape: non-negative ints and symbolic dimensions, also from one of them."""
    items = value if isinstance(value, (tuple, list)) else (value,)
    try:
        dims = tuple(map(dimension, items))
    except ValueError:
        raise wrong(value, "a shape") from None
    if any(isinstance(d, int) and d < 0 for d in dims):
        raise wrong(value, "a shape")
    return dims


# Axes


def place(value: Any, ndim: int | None) -> int:
    """A non-negative axis of a tensor of that rank; of one of unknown rank, the axis as it is."""
    found = integer(value)
    if ndim is None:
        return found
    # Like torch, a scalar counts as having one axis.
    ndim = max(ndim, 1)
    if not -ndim <= found < ndim:
        raise wrong(value, f"an axis between {-ndim} and {ndim - 1}")
    return found % ndim


def places(value: Any, ndim: int | None) -> tuple[int, ...]:
    """Non-negative, distinct axes in the given order, also from one axis."""
    found = tuple(place(item, ndim) for item in integers(value))
    if len(set(found)) != len(found):
        raise wrong(value, "distinct axes")
    return found


def axis(rank_of: RankOf = rank) -> Normaliser:
    """An axis of the first operand, or of a tensor of the rank that is computed from the operands."""
    return lambda value, types: place(value, rank_of(types))


def axes(value: Any, types: Types) -> tuple[int, ...] | None:
    """A set of axes in ascending order, where ``None`` is all of them."""
    ndim = rank(types)
    if value is None:
        return None if ndim is None else tuple(range(ndim))
    found = places(value, ndim)
    return tuple(sorted(found)) if ndim is not None else found


def some_axes(value: Any, types: Types) -> tuple[int, ...]:
    """A set of axes in ascending order, also from one axis."""
    return axes(integers(value), types) or ()


def last_axes(value: Any, types: Types) -> tuple[int, ...]:
    """The axes over which a layer is normalised, also from one axis."""
    found = axes(value, types)
    if not found:
        raise wrong(value, "an axis or a tuple of axes")
    return found


def permutation(value: Any, types: Types) -> tuple[int, ...] | None:
    """A permutation of the axes, where ``None`` reverses them."""
    ndim = rank(types)
    if value is None:
        return None if ndim is None else tuple(reversed(range(ndim)))
    found = places(value, ndim)
    if ndim is not None and len(found) != ndim:
        raise wrong(value, f"a permutation of {ndim} axes")
    return found


# Layouts


def layout(letters: str) -> Normaliser:
    """A layout with just these letters, in any order."""

    def convert(value: Any, types: Types) -> str:
        if not isinstance(value, str) or sorted(value) != sorted(letters):
            raise wrong(value, f"a layout like {letters!r}")
        return value

    return convert


def layout_or_same(letters: str) -> Normaliser:
    """A layout with just these letters, or "" for that of the operand."""
    convert = layout(letters)
    return lambda value, types: "" if value is None or value == "" else convert(value, types)


def same_out_layout(name: str) -> Callable[[Mapping[str, Any], Types], Mapping[str, Any]]:
    """The joint form of two layouts: ``out_layout`` is "" when it is that of the operand."""

    def joint(attrs: Mapping[str, Any], types: Types) -> Mapping[str, Any]:
        return {**attrs, "out_layout": ""} if attrs["out_layout"] == attrs[name] else attrs

    return joint


def permuted(tensor: Any, source: str, target: str) -> Any:
    """A tensor of one layout in another with the same letters. ValueError if it has another rank."""
    if tensor.dim() != len(source):
        raise ValueError(f"expected a tensor of layout {source}, found {tensor.dim()} dimensions")
    return tensor if source == target else tensor.permute([source.index(letter) for letter in target])


def spatial(count: int) -> str:
    """The letters of the last ``count`` spatial axes: ``"HW"`` for two."""
    return "DHW"[-count:]


def padded(torch: Any, tensor: Any, padding: tuple[int, ...], value: float = 0.0) -> Any:
    """A tensor with its last axes padded; ``padding`` is that before each of them, then that after each."""
    count = len(padding) // 2
    if any(isinstance(size, torch.SymInt) for size in tensor.shape):
        # Only a type is asked for, and torch's kernel asks for the numbers.
        sizes = list(tensor.shape)
        for axis in range(count):
            sizes[len(sizes) - count + axis] += padding[axis] + padding[count + axis]
        return tensor.new_empty(sizes)
    pairs = [side for axis in reversed(range(count)) for side in (padding[axis], padding[count + axis])]
    return torch.nn.functional.pad(tensor, pairs, value=value)
