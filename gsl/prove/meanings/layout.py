"""Operators that move elements."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from gsl.prove.meanings.elementwise import ElementMeaning, held, picked
from gsl.prove.poly import EACH, MEMBER, PREFIX, Poly, Relation, Unproved, number, operation, product, replaced
from gsl.prove.tensor import Calculation, Family, Index, Tensor, any_item, element_at, flat_place, real
from gsl.prove.terms import SumTerm


def demand_rank(calc: Calculation, x: Tensor, ndim: int, least: bool = False) -> None:
    """Demand a rank of an operand."""
    if x.ndim != ndim and not (least and x.ndim > ndim):
        calc.refuse(f"a tensor of {x.ndim} axes where {ndim} are needed")


def shared_out(calc: Calculation, whole: Poly, count: Poly, what: str) -> Poly:
    """A number divided by another one, which divides it."""
    if count.number == 1:
        return whole
    found = calc.path.quotient(whole, count)
    if found * count != calc.path.reduce(whole):
        if calc.given:
            part = calc.path.variable("part").poly
            calc.path.assume(("==", whole - part * count))
            return calc.path.reduce(part)
        calc.same(found * count, whole, what)
    return found


def moved(x: Tensor, axes: Sequence[int]) -> Tensor:
    """A tensor with other axes first: axis ``i`` of the result is axis ``axes[i]``."""

    def at(index: Index) -> SumTerm:
        return x.at(tuple(index[axes.index(axis)] for axis in range(x.ndim)))

    return x if list(axes) == list(range(x.ndim)) else Tensor(tuple(x.shape[axis] for axis in axes), x.dtype, at)


def reshaped(calc: Calculation, x: Tensor, shape: tuple[Poly, ...]) -> Tensor:
    """The elements of a tensor in row-major order, in another shape."""
    calc.same(product(x.shape), product(shape), "a reshape")

    def flat(place: Poly) -> SumTerm:
        return element_at(calc, x, place)

    return Tensor(shape, x.dtype, lambda index: flat(flat_place(index, shape)), flat)


def _expand_dims(calc: Calculation, x: Tensor, axis: int, num_newaxis: int) -> Tensor:
    if not isinstance(num_newaxis, int):
        raise Unproved("a number of axes that is not known")
    shape = (*x.shape[:axis], *[Poly.of(1)] * num_newaxis, *x.shape[axis:])
    return Tensor(shape, x.dtype, lambda i: x.at((*i[:axis], *i[axis + num_newaxis :])), x.flat)


def _squeeze(calc: Calculation, x: Tensor, axis: tuple[int, ...]) -> Tensor:
    kept = [a for a in range(x.ndim) if a not in axis]

    def at(index: Index) -> SumTerm:
        return x.at(tuple(index[kept.index(a)] if a in kept else Poly() for a in range(x.ndim)))

    return Tensor(tuple(x.shape[a] for a in kept), x.dtype, at, x.flat)


def _broadcast_to(calc: Calculation, x: Tensor, shape: Any) -> Tensor:
    sizes = tuple(map(number, shape))
    if len(sizes) < x.ndim:
        calc.refuse("a tensor is broadcast to fewer axes")
    for own, wanted in zip(x.shape, sizes[len(sizes) - x.ndim :]):
        found = calc.path.broadcast([own, wanted], given=calc.given)
        calc.same(found, wanted, "an axis that is broadcast")
    return Tensor(sizes, x.dtype, lambda index: x.at(picked(calc, x.shape, index)))


def _beside(calc: Calculation, first: Tensor, part: Tensor, axis: int) -> Tensor:
    """A tensor that is joined with another one along an axis: of its sizes on all other axes."""
    if part.ndim != first.ndim:
        calc.refuse("tensors of different ranks are concatenated")
    for a in range(first.ndim):
        if a != axis:
            calc.same(first.shape[a], part.shape[a], "a concatenation")
    return part


def joined(calc: Calculation, parts: Sequence[Tensor], axis: int) -> Tensor:
    """Tensors one after the other along an axis."""
    first = parts[0]
    for part in parts[1:]:
        _beside(calc, first, part, axis)
    total = Poly()
    for part in parts:
        total += part.shape[axis]

    def at(index: Index) -> SumTerm:
        found, before, place = [], Poly(), index[axis]
        for number_, part in enumerate(parts):
            inside: list[Relation] = []
            if number_:
                inside.append((">=", place - before))
            if number_ < len(parts) - 1:
                inside.append((">=", before + part.shape[axis] - 1 - place))
            if all(calc.path.quick(guard) is not False for guard in inside):
                own = (*index[:axis], place - before, *index[axis + 1 :])
                with calc.algebra.under(inside):
                    found.append(calc.algebra.where(inside, part.at(own)))
            before += part.shape[axis]
        return calc.algebra.add(*found)

    shape = (*first.shape[:axis], calc.path.reduce(total), *first.shape[axis + 1 :])
    return Tensor(shape, calc.dtype(*parts), at)


def _concatenate(calc: Calculation, parts: tuple[Tensor, ...] | Family, axis: int) -> Tensor:
    return joined_family(calc, parts, axis) if isinstance(parts, Family) else joined(calc, parts, axis)


def _stack(calc: Calculation, parts: tuple[Tensor, ...] | Family, axis: int) -> Tensor:
    if isinstance(parts, Family):
        return stacked_family(calc, parts, axis)
    wide = [_expand_dims(calc, part, axis, 1) for part in parts]
    return joined(calc, wide, axis)


def _split(calc: Calculation, x: Tensor, indices_or_sections: Any, axis: int) -> tuple[Tensor, ...] | Family:
    if isinstance(indices_or_sections, Family):
        return split_at(calc, x, indices_or_sections, axis)
    edges = [Poly(), *map(number, indices_or_sections), x.shape[axis]]
    for before, after in pairwise(edges):
        calc.must((">=", after - before), "the cuts of a split")
    return tuple(part_of(x, axis, before, calc.path.reduce(after - before)) for before, after in pairwise(edges))


def padded(calc: Calculation, x: Tensor, widths: Sequence[tuple[Poly, Poly]], value: SumTerm) -> Tensor:
    """A tensor among copies of a number; elements are left out where a width is negative."""
    shape = tuple(calc.path.reduce(size + low + high) for size, (low, high) in zip(x.shape, widths, strict=True))
    for size in shape:
        calc.must((">=", size - 1), "a padding that leaves something")

    def at(index: Index) -> SumTerm:
        inside: list[Relation] = []
        for p, size, (low, high) in zip(index, x.shape, widths):
            inside += [(">=", p - low)] if low.number != 0 else []
            inside += [(">=", low + size - 1 - p)] if high.number != 0 else []
        with calc.algebra.under(inside):
            own = x.at(tuple(p - low for p, (low, _) in zip(index, widths)))
        held = calc.algebra.where(inside, calc.algebra.add(own, calc.algebra.negative(value)))
        return calc.algebra.add(value, held)

    return Tensor(shape, x.dtype, at)


def _pad(calc: Calculation, x: Tensor, pad_width: Any, pad_value: Any, pad_mode: str) -> Tensor:
    if pad_mode != "constant":
        raise Unproved(f"a padding of mode {pad_mode}")
    widths = [(number(low), number(high)) for low, high in pad_width]
    return padded(calc, x, widths, held(calc, real(pad_value), x.dtype))


def _set_diagonal(calc: Calculation, x: Tensor, diagonal: Tensor, k: Any, align: str) -> Tensor:
    if k != (0, 0) or x.ndim != 2 or diagonal.ndim != 1:
        raise Unproved("the diagonals of more than a matrix")
    calc.path.require(("==", x.shape[0] - x.shape[1]), "the diagonal of a square")
    calc.same(x.shape[0], diagonal.shape[0], "a diagonal")
    algebra = calc.algebra

    def at(index: Index) -> SumTerm:
        row, column = index
        change = algebra.add(diagonal.at((row,)), algebra.negative(x.at(index)))
        return algebra.add(x.at(index), algebra.where([("==", row - column)], change))

    return Tensor(x.shape, calc.dtype(x, diagonal), at)


def _strided_slice(calc: Calculation, x: Tensor, begin: Any, end: Any, strides: Any, axes: Any) -> Tensor:
    """A part of a tensor. Unproved where its begin and end may lie outside of it, where slices are cut."""
    if strides is None or len(strides) == 1:
        strides = (strides or (1,)) * len(begin)
    axes = range(len(begin)) if axes is None else axes
    for axis, first, last, step in zip(axes, map(number, begin), map(number, end), strides, strict=True):
        if not isinstance(step, int) or step < 1:
            raise Unproved("a slice with a step that is not a positive number")
        for room in (first, last - first, x.shape[axis] - last):
            calc.path.require((">=", room), "a slice within its axis")
        x = part_of(x, axis, first, calc.path.reduce(calc.path.quotient(last - first + step - 1, Poly.of(step))), step)
    return x


def _reverse(calc: Calculation, x: Tensor, axis: tuple[int, ...]) -> Tensor:
    def at(index: Index) -> SumTerm:
        return x.at(tuple(x.shape[a] - 1 - p if a in axis else p for a, p in enumerate(index)))

    return Tensor(x.shape, x.dtype, at)


def _repeat(calc: Calculation, x: Tensor, repeats: Any, axis: int | None) -> Tensor:
    """Each element several times, one after the other."""
    x, axis = along(calc, x, axis)
    count = number(repeats)

    def at(index: Index) -> SumTerm:
        return x.at((*index[:axis], calc.path.quotient(index[axis], count), *index[axis + 1 :]))

    return Tensor((*x.shape[:axis], calc.path.reduce(x.shape[axis] * count), *x.shape[axis + 1 :]), x.dtype, at)


def along(calc: Calculation, x: Tensor, axis: int | None) -> tuple[Tensor, int]:
    """A tensor and one of its axes; without one, its elements in one row, and the axis of that."""
    if axis is None:
        return reshaped(calc, x, (calc.path.reduce(product(x.shape)),)), 0
    demand_rank(calc, x, axis + 1, least=True)
    return x, axis


def _tile(calc: Calculation, x: Tensor, reps: Any) -> Tensor:
    """The whole tensor several times along each axis."""
    counts = tuple(map(number, reps if isinstance(reps, tuple) else (reps,)))
    counts = (Poly.of(1),) * (x.ndim - len(counts)) + counts
    own = (Poly.of(1),) * (len(counts) - x.ndim) + x.shape

    def at(index: Index) -> SumTerm:
        places = (calc.path.remainder(p, size) for p, size in zip(index, own))
        return x.at(tuple(places)[len(own) - x.ndim :])

    return Tensor(tuple(calc.path.reduce(size * count) for size, count in zip(own, counts)), x.dtype, at)


def _trilu(calc: Calculation, x: Tensor, k: Any, upper: bool) -> Tensor:
    """The elements on one side of a diagonal, and zeros on the other one."""
    demand_rank(calc, x, 2, least=True)

    def at(index: Index) -> SumTerm:
        right = index[-1] - index[-2] - number(k)
        inside = [(">=", right if upper else -right)]
        with calc.algebra.under(inside):
            return calc.algebra.where(inside, x.at(index))

    return Tensor(x.shape, x.dtype, at)


def newshape(calc: Calculation, x: Tensor, value: Any) -> tuple[Any, ...]:
    """The shape that Relay's codes ask for."""
    codes, source = list(value) if isinstance(value, (tuple, list)) else [value], list(x.shape)
    shape: list[Poly | None] = []
    while codes:
        code = codes.pop(0)
        if not isinstance(code, int) or code > 0:
            shape.append(number(code))
            source[:1] = []
        elif code == -1:
            shape.append(None)
            source[:1] = []
        elif code == -2:
            shape += source
            source = []
        elif not source or (code == -3 and len(source) < 2):
            calc.refuse("a reshape of a tensor of too few axes")
        elif code == 0:
            shape.append(source.pop(0))
        elif code == -3:
            shape.append(source.pop(0) * source.pop(0))
        else:
            whole, left, right = source.pop(0), codes.pop(0), codes.pop(0)
            if left == -1 and right == -1:
                calc.refuse("a reshape with two open sizes")
            known = number(right if left == -1 else left)
            other = calc.path.quotient(whole, known)
            calc.same(other * known, whole, "a reshape")
            shape += [other, known] if left == -1 else [known, other if right == -1 else number(right)]
    if None in shape:
        place = shape.index(None)
        rest = product(size for size in shape if size is not None)
        if shape.count(None) > 1:
            calc.refuse("a reshape with two open sizes")
        shape[place] = calc.path.quotient(product(x.shape), rest)
    return tuple(calc.whole(size) for size in shape if size is not None)


def _reshape_like(
    calc: Calculation, x: Tensor, like: Tensor, lhs_begin: Any, lhs_end: Any, rhs_begin: Any, rhs_end: Any
) -> Tensor:
    begin, end, _ = slice(lhs_begin, lhs_end).indices(x.ndim)
    return reshaped(calc, x, (*x.shape[:begin], *like.shape[slice(rhs_begin, rhs_end)], *x.shape[end:]))


MEANINGS: dict[str, ElementMeaning] = {
    "transpose": lambda calc, x, axes: moved(x, axes),
    "reshape": lambda calc, x, newshape: reshaped(calc, x, tuple(map(number, newshape))),
    "reshape_like": _reshape_like,
    "expand_dims": _expand_dims,
    "squeeze": _squeeze,
    "broadcast_to": _broadcast_to,
    "concatenate": _concatenate,
    "stack": _stack,
    "split": _split,
    "nn.pad": _pad,
    "strided_slice": _strided_slice,
    "matrix_set_diag": _set_diagonal,
    "reverse": _reverse,
    "repeat": _repeat,
    "tile": _tile,
    "trilu": _trilu,
}


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

    each = _beside(calc, first, sample, axis).shape[axis]

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
        return _beside(calc, first, parts.at(part), axis).at((*index[:axis], inside, *index[axis + 1 :]))

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
