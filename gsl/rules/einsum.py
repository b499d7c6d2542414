"""The rule that writes an einsum of two tensors as a product."""

from __future__ import annotations

from collections.abc import Sequence

from gsl import op, pat
from gsl.graph import Dim
from gsl.match import Match
from gsl.rules.common import RuleSides, rule


@rule()
def einsum_product() -> RuleSides:
    """einsum(ibnd, jbnd → bnij) = transpose(a) transpose(b)

    For two tensors of which each index is in one of them and the result, in both, or in all three: axes that only one
    side has become rows or columns, axes of both are summed over, axes of all three are leading ones. There are some of
    each but the last; several of a kind are put together by a reshape. Dots stand for as many axes as the shape of
    their tensor tells.
    """
    a, b = pat.Wildcard(), pat.Wildcard()
    whole = op.Einsum(pat.Tuple(a, b))

    def is_product(match: Match) -> bool | str:
        equation = match[whole].attrs["equation"]
        first, second = match[a].shape, match[b].shape
        if first is None or second is None:
            return "the shapes of the operands are not known"
        left, right, result = terms(equation, len(first), len(second))
        known = {*left, *right}
        if any(len({*term}) < len(term) for term in (left, right, result)):
            return f"{equation} has diagonals"
        if any((index in left) + (index in right) + (index in result) < 2 for index in known):
            return f"{equation} sums over one tensor alone"
        if not ({*left} - {*right} and {*right} - {*left} and known - {*result}):
            return f"{equation} has no rows, no columns or nothing to sum over"
        sizes: dict[str, Dim] = {}
        for term, shape in ((left, first), (right, second)):
            for index, size in zip(term, shape, strict=True):
                if sizes.setdefault(index, size) != size:
                    return f"{equation} broadcasts {index}"
        return True

    def product(match: Match) -> pat.Pattern:
        first_shape, second_shape = match[a].shape or (), match[b].shape or ()
        left, right, result = terms(match[whole].attrs["equation"], len(first_shape), len(second_shape))
        sizes = dict(zip((*left, *right), (*first_shape, *second_shape)))
        lead = [index for index in left if index in right and index in result]
        rows = [index for index in left if index not in right]
        columns = [index for index in right if index not in left]
        summed = [index for index in left if index in right and index not in result]
        first = _matrices(a, left, (lead, rows, summed), sizes)
        second = _matrices(b, right, (lead, summed, columns), sizes)
        found: pat.Pattern = op.Matmul(first, second)
        order = [*lead, *rows, *columns]
        if len(rows) != 1 or len(columns) != 1:
            found = op.Reshape(found, newshape=tuple(sizes[index] for index in order))
        return _transposed(found, order, result)

    return whole, product, is_product


def terms(equation: str, first: int, second: int) -> tuple[list[str], list[str], list[str]]:
    """The indices of both operands, of which the ranks are given, and of the result; those of dots are numbers.

    The last axes of the dots of both operands are one, as torch broadcasts them.
    """
    operands, _, result = equation.partition("->")
    left, _, right = operands.partition(",")
    dots = [rank - len(term) + 3 if "." in term else 0 for rank, term in ((first, left), (second, right))]
    return _indices(left, dots[0]), _indices(right, dots[1]), _indices(result, max(dots))


def _indices(term: str, dots: int) -> list[str]:
    before, found, after = term.partition("...")
    return [*before, *[str(-axis) for axis in range(dots, 0, -1) if found], *after]


def _matrices(
    x: pat.Pattern, indices: Sequence[str], parts: Sequence[Sequence[str]], sizes: dict[str, Dim]
) -> pat.Pattern:
    """The tensor with its axes in the order of the parts, of which each but the first is one axis."""
    lead, *others = parts
    found = _transposed(x, indices, [index for part in parts for index in part])
    if all(len(part) == 1 for part in others):
        return found
    shape: list[Dim] = [sizes[index] for index in lead]
    for part in others:
        size: Dim = 1
        for index in part:
            size = size * sizes[index]
        shape.append(size)
    return op.Reshape(found, newshape=tuple(shape))


def _transposed(x: pat.Pattern, indices: Sequence[str], wanted: Sequence[str]) -> pat.Pattern:
    """The tensor with its axes in the wanted order."""
    if list(indices) == list(wanted):
        return x
    return op.Transpose(x, axes=tuple(list(indices).index(index) for index in wanted))
