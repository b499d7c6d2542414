"""Splits into, and concatenations of, any number of tensors."""

from __future__ import annotations

from gsl.prove.family import Family, any_item
from gsl.prove.poly import EACH, MEMBER, PREFIX, Poly, operation, replaced
from gsl.prove.tensor import Calculation, Index, Tensor
from gsl.prove.terms import SumTerm
from gsl.prove.whole import number


def part_of(x: Tensor, axis: int, begin: Poly, size: Poly, step: int = 1) -> Tensor:
    """A part of a tensor along an axis."""

    def at(index: Index) -> SumTerm:
        return x.at((*index[:axis], index[axis] * step + begin, *index[axis + 1 :]))

    return Tensor((*x.shape[:axis], size, *x.shape[axis + 1 :]), x.dtype, at)


def split_at(calc: Calculation, x: Tensor, cuts: Family, axis: int) -> Family:
    """The parts of a tensor between cuts, of which the one before the first is 0, and that behind the last the end."""
    path, total = calc.path, x.shape[axis]

    def end(part: Poly) -> Poly:
        return path.reduce(number(cuts.at(part)))

    calc.same(end(Poly.of(-1)), Poly(), "the begin of the first part")
    calc.same(end(cuts.length), total, "the end of the last part")
    calc.must(
        (">=", any_item(path, Family(cuts.length, lambda part: end(part) - end(part - 1)))), "the cuts of a split"
    )

    def at(part: Poly) -> Tensor:
        begin, last = end(part - 1), end(part)
        path.facts.append((">=", total - last))  # as no part ends before the one in front of it
        return part_of(x, axis, begin, path.reduce(last - begin))

    return Family(cuts.length + 1, at)


def joined_family(calc: Calculation, parts: Family, axis: int) -> Tensor:
    """Any number of tensors one after the other along an axis."""
    path, first, sample = calc.path, parts.at(Poly()), any_item(calc.path, parts)

    def fits(part: Tensor) -> Tensor:
        if part.ndim != first.ndim:
            calc.refuse("tensors of different ranks are concatenated")
        for a in range(first.ndim):
            if a != axis:
                calc.same(first.shape[a], part.shape[a], "a concatenation")
        return part

    each = fits(sample).shape[axis]

    def at(index: Index) -> SumTerm:
        place = path.reduce(index[axis])
        for atom in sorted(place.atoms):
            if atom.operation == PREFIX and path.reduce(atom.operands[0]) == path.reduce(each):
                inside = place - Poly.of(atom)
                size = replaced(path.reduce(each), {EACH: atom.operands[1]})
                if path.quick((">=", inside)) and path.quick((">=", size - 1 - inside)):
                    return element(atom.operands[1], index, inside)
        part = operation(MEMBER, path.reduce(each), place)
        return element(part, index, place - path.prefix(each, part))

    def element(part: Poly, index: Index, inside: Poly) -> SumTerm:
        return fits(parts.at(part)).at((*index[:axis], inside, *index[axis + 1 :]))

    shape = (*first.shape[:axis], path.prefix(each, parts.length), *first.shape[axis + 1 :])
    return Tensor(shape, calc.dtype(first, sample), at)


def stacked_family(calc: Calculation, parts: Family, axis: int) -> Tensor:
    """Any number of tensors beside each other along a new axis."""
    first, sample = parts.at(Poly()), any_item(calc.path, parts)

    def fits(part: Tensor) -> Tensor:
        if part.ndim != first.ndim:
            calc.refuse("tensors of different ranks are stacked")
        for size, wanted in zip(part.shape, first.shape):
            calc.same(size, wanted, "a stack")
        return part

    def at(index: Index) -> SumTerm:
        return fits(parts.at(calc.path.reduce(index[axis]))).at((*index[:axis], *index[axis + 1 :]))

    fits(sample)
    return Tensor((*first.shape[:axis], parts.length, *first.shape[axis:]), calc.dtype(first, sample), at)
