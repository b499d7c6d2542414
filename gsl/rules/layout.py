"""Rules for operators that move elements, or don't change them at all."""

from __future__ import annotations

from gsl import attr, op, pat
from gsl.rules.common import RuleSides, rule


@rule(priority=1)
def transpose_transpose() -> RuleSides:
    """transpose(transpose(x, p), q) = transpose(x, q∘p), and x where q∘p is the identity

    Axis i of the result is axis p[q[i]] of x. Everywhere.
    """
    x = pat.Wildcard()
    inner = op.Transpose(x)
    outer = op.Transpose(inner)
    axes = attr.Map(outer.axes, lambda i: inner.axes[i])
    return outer, pat.Cond(axes == attr.Range(x.ndim), x, outer.like(x, axes=axes))


@rule(priority=1)
def reshape_reshape() -> RuleSides:
    """reshape(reshape(x, s), t) = reshape(x, t)

    Where t is the shape itself: Relay's codes and an open -1 refer to the tensor in between.
    """
    x = pat.Wildcard()
    inner = op.Reshape(x)
    outer = op.Reshape(inner)
    return outer, outer.like(x), outer.newshape == outer.shape


@rule(priority=2)
def reshape_identity() -> RuleSides:
    """reshape(x, shape of x) = x

    Symbolic sizes must be the same expressions.
    """
    x = pat.Wildcard()
    return op.Reshape(x, shape=x.shape), x


@rule(priority=1, extern_use=False)
def concat_concat() -> RuleSides:
    """concatenate(…, concatenate(x, y, …), …) = concatenate(…, x, y, …, …)

    Along one axis, where both have one dtype: what is less precise would be rounded in between.
    """
    before, parts, after = pat.Segment(), pat.Segment(), pat.Segment()
    inner = op.Concatenate(pat.Tuple(parts))
    outer = op.Concatenate(pat.Tuple(before, inner, after), axis=inner.axis)
    return outer, outer.like(pat.Tuple(before, parts, after)), inner.dtype == outer.dtype


_FLOATS = {"float16": ("float32", "float64"), "bfloat16": ("float32", "float64"), "float32": ("float64",)}
_INTS = {
    "uint8": ("int16", "int32", "int64"), "int8": ("int16", "int32", "int64"), "int16": ("int32", "int64"),
    "int32": ("int64",), "bool": ("uint8", "int8", "int16", "int32", "int64"),
}  # fmt: skip
_EXACT = {
    "bool": ("float16", "bfloat16", "float32", "float64"), "uint8": ("float16", "bfloat16", "float32", "float64"),
    "int8": ("float16", "bfloat16", "float32", "float64"), "int16": ("float32", "float64"), "int32": ("float64",),
}  # fmt: skip
TO_FLOAT = tuple((a, b) for table in (_FLOATS, _EXACT) for a, wider in table.items() for b in wider)
TO_INT = tuple((a, b) for a, wider in _INTS.items() for b in wider)
"""The casts to floats and to integers that keep every value."""


@rule(priority=1)
def cast_cast() -> RuleSides:
    """cast(cast(x, a), b) = cast(x, b)

    Where a holds every value of x's dtype: a wider float, a wider integer, or a float with enough bits for the
    integer. From a float on to an integer only x would decide what happens beyond its range, so b must be a float
    then.
    """
    x = pat.Wildcard()
    inner = op.Cast(x)
    outer = op.Cast(inner)
    step = attr.Tuple(x.dtype, inner.dtype)
    to_float = attr.In(step, TO_FLOAT) & attr.In(outer.dtype, ("float16", "bfloat16", "float32", "float64"))
    return outer, outer.like(x), attr.In(step, TO_INT) | to_float


@rule(priority=2)
def cast_identity() -> RuleSides:
    """cast(x, dtype of x) = x

    Everywhere.
    """
    x = pat.Wildcard()
    return op.Cast(x, dtype=x.dtype), x


@rule(priority=2)
def dropout_identity() -> RuleSides:
    """dropout(x) = x

    Everywhere: a dropout that is switched on draws at random, and is no nn.dropout.
    """
    x = pat.Wildcard()
    return op.Dropout(x), x


@rule(priority=2)
def copy_identity() -> RuleSides:
    """copy(x) = x

    Everywhere: a copy of memory that is changed in place later is refused.
    """
    x = pat.Wildcard()
    return op.Copy(x), x


@rule()
def dispatch_tuple() -> RuleSides:
    """(x0, x1, …)[i] = xi

    Everywhere.
    """
    x = pat.Wildcard()
    whole = pat.Variadic(x, templates=[x])
    field = pat.GetItem(whole)
    return field, whole(x, field.index)


@rule()
def split_concat() -> RuleSides:
    """concatenate(split(x)[0], split(x)[1]) = x

    Where the split has no third field, and both have one axis.
    """
    x = pat.Wildcard()
    split = op.Split(x)
    joined = op.Concatenate([split[0], split[1]], axis=split.axis)
    return joined, x, (split.indices_or_sections == 2) | (attr.Len(split.indices_or_sections) == 1)


@rule()
def split_concat_variadic() -> RuleSides:
    """concatenate(split(x)[0], split(x)[1], …) = x

    Where the concatenation has all the fields in their order, and both have one axis.
    """
    x, i = pat.Wildcard(), attr.Symbol()
    split = op.Split(x)
    field = pat.GetItem(split, i)
    whole = pat.Variadic(field, templates=[field], index=i, min_len=1)
    sections = split.indices_or_sections
    complete = (sections == whole.length) | (attr.Len(sections) + 1 == whole.length)
    return op.Concatenate(whole, axis=split.axis), x, complete
