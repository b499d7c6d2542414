"""Rules that compute an element-wise function once instead of several times."""

from __future__ import annotations

from gsl import attr, op, pat
from gsl.match import Match
from gsl.rules.common import RuleSides, fields, rule, same_dtype


@rule(extern_use=False)
def merge_element_wise() -> RuleSides:
    """concatenate(f(x), f(y)) = f(concatenate(x, y))

    For an element-wise f of one operand, with equal attributes. Operands of different dtypes would be promoted
    before f instead of after it. The results of f must have no other use, or f is computed twice.
    """
    x, y = pat.Wildcard(), pat.Wildcard()
    f = pat.OpWithTrait(op.Trait.ELEMENT_WISE)
    a, b = pat.Call(f, x), pat.Call(f, y)
    joined = op.Concatenate([a, b])
    return joined, a.like(joined.like([x, y])), same_dtype(x, y), pat.attr_eq(a, b)


@rule(priority=1, extern_use=False)
def merge_element_wise_variadic() -> RuleSides:
    """concatenate(f(x0), f(x1), …) = f(concatenate(x0, x1, …))

    As merge-element-wise, for any number of calls.
    """
    x, f = pat.Wildcard(), pat.OpWithTrait(op.Trait.ELEMENT_WISE)
    call = pat.Call(f, x)
    calls = pat.Variadic(call, templates=[call, x], min_len=2)
    joined = op.Concatenate(calls)
    dtypes = attr.Variadic(lambda i: calls(x, i).dtype == calls(x, 0).dtype, calls.length)

    def equal_attributes(match: Match) -> bool | str:
        first, *others = match.instances(calls, call)
        return all(other.attrs == first.attrs for other in others) or "the calls differ in their attributes"

    return joined, calls(call, 0).like(joined.like(fields(calls, x))), attr.all(dtypes), equal_attributes
