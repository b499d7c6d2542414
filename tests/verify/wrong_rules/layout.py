"""Wrong variants of the rules for layouts and for element-wise functions."""

from __future__ import annotations

from collections.abc import Callable

from gsl import attr, op, pat
from gsl.rules.common import RuleSides, precise, same_dtype
from tests.verify.wrong_rules.table import wrong


@wrong("transpose-transpose", condition="inner.axes == outer.axes")
def _() -> RuleSides:
    """the permutations composed the other way round"""
    x = pat.Wildcard()
    inner = op.Transpose(x)
    outer = op.Transpose(inner)
    return outer, outer.like(x, axes=attr.Map(inner.axes, lambda i: outer.axes[i]))


@wrong("transpose-transpose", condition="")
def _() -> RuleSides:
    """two transpositions taken for none"""
    x = pat.Wildcard()
    return op.Transpose(op.Transpose(x)), x


@wrong("reshape-reshape", condition="transpose.axes == attr.Range(")
def _() -> RuleSides:
    """a transposition in between, whose order is ignored"""
    x = pat.Wildcard()
    outer = op.Reshape(op.Transpose(x))
    return outer, outer.like(x), outer.newshape == outer.shape


@wrong("reshape-identity", condition="transpose.axes == attr.Range(")
def _() -> RuleSides:
    """any transposition that keeps the shape"""
    x = pat.Wildcard()
    return op.Transpose(x, shape=x.shape), x


@wrong("cast-cast", condition="")
def _() -> RuleSides:
    """any dtype in between"""
    x = pat.Wildcard()
    inner = op.Cast(x)
    outer = op.Cast(inner)
    return outer, outer.like(x)


@wrong("cast-identity")
def _() -> RuleSides:
    """a narrower dtype and back"""
    x = pat.Wildcard()
    narrow = op.Cast(x, dtype="float16")
    return op.Cast(narrow, dtype=x.dtype), x, attr.In(x.dtype, ("float32", "float64"))


@wrong("dropout-identity")
def _() -> RuleSides:
    """scaled by what is kept"""
    x = pat.Wildcard()
    dropout = op.Dropout(x)
    return dropout, x * (1 - dropout.rate), precise(x)


@wrong("copy-identity")
def _() -> RuleSides:
    """a rounding taken for a copy"""
    x = pat.Wildcard()
    return op.Round(x), x


@wrong("dispatch-tuple", condition="whole.length == 1")
def _() -> RuleSides:
    """always the first field"""
    x = pat.Wildcard()
    whole = pat.Variadic(x, templates=[x])
    return pat.GetItem(whole), whole(x, 0)


@wrong("dispatch-tuple", condition="whole.length == 1")
def _() -> RuleSides:
    """counted from the end"""
    x = pat.Wildcard()
    whole = pat.Variadic(x, templates=[x])
    field = pat.GetItem(whole)
    return field, whole(x, whole.length - 1 - field.index)


@wrong("split-concat")
def _() -> RuleSides:
    """the fields in reverse order"""
    x = pat.Wildcard()
    split = op.Split(x)
    joined = op.Concatenate([split[1], split[0]], axis=split.axis)
    return joined, x, (split.indices_or_sections == 2) | (attr.Len(split.indices_or_sections) == 1)


@wrong("split-concat-variadic", condition="")
def _() -> RuleSides:
    """the fields in any order"""
    x = pat.Wildcard()
    split = op.Split(x)
    field = pat.GetItem(split)
    whole = pat.Variadic(field, templates=[field], min_len=1)
    sections = split.indices_or_sections
    complete = (sections == whole.length) | (attr.Len(sections) + 1 == whole.length)
    return op.Concatenate(whole, axis=split.axis), x, complete


@wrong("concat-concat", condition="inner.shape == outer.shape")
def _() -> RuleSides:
    """the parts at the end"""
    before, parts, after = pat.Segment(), pat.Segment(), pat.Segment()
    inner = op.Concatenate(pat.Tuple(parts))
    outer = op.Concatenate(pat.Tuple(before, inner, after), axis=inner.axis)
    return outer, outer.like(pat.Tuple(before, after, parts)), inner.dtype == outer.dtype


# Element-wise functions


def merged(*where: Callable[[pat.Pattern, pat.Pattern, pat.Pattern, pat.Pattern], object]) -> RuleSides:
    x, y = pat.Wildcard(), pat.Wildcard()
    f = pat.OpWithTrait(op.Trait.ELEMENT_WISE)
    a, b = pat.Call(f, x), pat.Call(f, y)
    joined = op.Concatenate([a, b])
    return joined, a.like(joined.like([x, y])), *(condition(x, y, a, b) for condition in where)


@wrong("merge-element-wise", condition="")
def _() -> RuleSides:
    """unequal attributes"""
    return merged(lambda x, y, a, b: same_dtype(x, y))


@wrong("merge-element-wise", condition="", examples=200)
def _() -> RuleSides:
    """unequal dtypes, promoted before the function"""
    return merged(lambda x, y, a, b: pat.attr_eq(a, b))


@wrong("merge-element-wise")
def _() -> RuleSides:
    """the operands exchanged"""
    x, y = pat.Wildcard(), pat.Wildcard()
    f = pat.OpWithTrait(op.Trait.ELEMENT_WISE)
    a, b = pat.Call(f, x), pat.Call(f, y)
    joined = op.Concatenate([a, b])
    return joined, a.like(joined.like([y, x])), same_dtype(x, y), pat.attr_eq(a, b)


@wrong("merge-element-wise")
def _() -> RuleSides:
    """two functions taken for one"""
    x, y = pat.Wildcard(), pat.Wildcard()
    a, b = pat.Call(pat.OneOf("sigmoid", "tanh"), x), pat.Call(pat.OneOf("sigmoid", "tanh"), y)
    joined = op.Concatenate([a, b])
    return joined, a.like(joined.like([x, y])), same_dtype(x, y)


def merged_variadic(field: Callable[[pat.Variadic, attr.Expr], attr.Expr]) -> RuleSides:
    x, i, j = pat.Wildcard(), attr.Symbol(), attr.Symbol()
    call = op.LeakyReLU(x)
    calls = pat.Variadic(call, templates=[call, x], min_len=2)
    joined = op.Concatenate(calls)
    operands = pat.Variadic(calls(x, field(calls, i)), index=i, length=calls.length)
    dtypes = attr.Variadic(calls(x, j).dtype == calls(x, 0).dtype, calls.length, index=j)
    return joined, calls(call, 0).like(joined.like(operands)), attr.all(dtypes)


@wrong("merge-element-wise-variadic", condition=".alpha == ")
def _() -> RuleSides:
    """the attributes of the first"""
    return merged_variadic(lambda calls, i: i)


@wrong("merge-element-wise-variadic")
def _() -> RuleSides:
    """the operands in reverse order"""
    return merged_variadic(lambda calls, i: calls.length - 1 - i)
