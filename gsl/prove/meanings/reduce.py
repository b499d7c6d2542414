"""Reductions and normalisations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from gsl.prove.meanings.elementwise import ElementMeaning, each, quotient, root
from gsl.prove.meanings.layout import along, demand_rank, reshaped, shared_out
from gsl.prove.normal import ARGMAX, INFINITE, NOTHING, UNDEFINED, TermAlgebra
from gsl.prove.poly import Poly, Unproved, dtype_code, number, product
from gsl.prove.tensor import Calculation, Index, Tensor, real
from gsl.prove.terms import SumTerm

# ---------------------------------------------------------------- reductions


def reduced(
    calc: Calculation, x: Tensor, axes: Sequence[int], keepdims: bool,
    fold: Callable[[Any, Callable[..., SumTerm]], SumTerm],
) -> Tensor:  # fmt: skip
    """The results of a fold of the elements along some axes."""
    demand_rank(calc, x, max(axes, default=-1) + 1, least=True)
    kept = [a for a in range(x.ndim) if a not in axes]

    def at(index: Index) -> SumTerm:
        r = calc.index([x.shape[a] for a in axes])
        outer = dict(zip(kept, [index[a] for a in kept] if keepdims else index))

        def element(values: Sequence[Poly]) -> SumTerm:
            return x.at(tuple(outer[a] if a in outer else values[list(axes).index(a)] for a in range(x.ndim)))

        return fold(r, element)

    shape = tuple(Poly.of(1) if a in axes else size for a, size in enumerate(x.shape) if keepdims or a not in axes)
    return Tensor(shape, x.dtype, at)


def sums_along(calc: Calculation, x: Tensor, axes: Sequence[int]) -> Tensor:
    """The sums along axes, which are kept."""
    return reduced(calc, x, axes, True, lambda r, element: calc.algebra.total(r, element(list(map(Poly.of, r)))))


def mean_of(calc: Calculation, r: Any, value: SumTerm) -> SumTerm:
    """The mean of what indices run over."""
    algebra = calc.algebra
    count = algebra.number(product(calc.path.size(atom) for atom in r))
    return algebra.times(algebra.total(r, value), algebra.inverse(count))


def _variance(calc: Calculation, r: Any, element: Callable[..., SumTerm], unbiased: bool) -> SumTerm:
    algebra, path = calc.algebra, calc.path
    own = [path.index(path.size(atom), "r") for atom in r]
    mean = mean_of(calc, own, element(list(map(Poly.of, own))))
    centred = algebra.add(element(list(map(Poly.of, r))), algebra.negative(mean))
    total = algebra.total(r, algebra.power(centred, 2))
    count = algebra.number(product(map(path.size, r)) - int(unbiased))
    return algebra.times(total, algebra.inverse(count))


_PROPAGATING = ("sum", "mean", "avg", "variance", "std")
"""The reductions whose results are infinite, or no numbers, where one of the elements is."""
_PLACES = ("argmax", "argmin")


def reduction(name: str) -> ElementMeaning:
    def meaning(
        calc: Calculation, x: Tensor, axis: Any, keepdims: bool, exclude: bool, unbiased: bool = False
    ) -> Tensor:
        algebra = calc.algebra
        axes = tuple(range(x.ndim)) if axis is None or not x.ndim else axis  # the axis 0 of a number is none
        if exclude:
            axes = tuple(a for a in range(x.ndim) if a not in axes)

        if name in _PLACES and len(axes) != 1:
            raise Unproved("a place along several axes")
        hides = NOTHING if name in _PROPAGATING else INFINITE if name in ("max", "min", "logsumexp") else UNDEFINED

        def fold(r: Any, element: Callable[..., SumTerm]) -> SumTerm:
            return algebra.settled(lambda: folded(r, element), hides) if hides else folded(r, element)

        def folded(r: Any, element: Callable[..., SumTerm]) -> SumTerm:
            places = list(map(Poly.of, r))
            match name:
                case "sum":
                    return algebra.total(r, element(places))
                case "mean" | "avg":
                    return mean_of(calc, r, element(places))
                case "max":
                    return algebra.fold("max", r, (), element(places))
                case "min":
                    return algebra.negative(algebra.fold("max", r, (), algebra.negative(element(places))))
                case "logsumexp":
                    powers = algebra.apply("exp", element(places))
                    return algebra.apply("log", algebra.total(r, powers), partial=True)
                case "variance":
                    return _variance(calc, r, element, unbiased)
                case "argmax" | "argmin":
                    value = element(places)
                    return algebra.fold(ARGMAX, r, (), value if name == "argmax" else algebra.negative(value))
                case "std":
                    return root(algebra, _variance(calc, r, element, unbiased))
            return algebra.fold(name, r, (), element(places))

        result = reduced(calc, x, axes, keepdims, fold)
        if name in _PLACES:
            return replace(result, dtype=dtype_code("int64"))
        return result if name in ("max", "min") else replace(result, dtype=calc.dtype(x, of=name))

    return meaning


def _cumsum(calc: Calculation, x: Tensor, axis: int | None, dtype: Any, exclusive: bool) -> Tensor:
    """The sums of the elements up to each place of an axis, with that there or without it."""
    if dtype != "":
        raise Unproved("a cumulative sum in a dtype of its own")
    x, axis = along(calc, x, axis)
    algebra = calc.algebra

    def at(index: Index) -> SumTerm:
        (r,), own = calc.index([x.shape[axis]]), x.at(index)  # where it is left out, it is taken, and subtracted
        before = [(">=", index[axis] - Poly.of(r) - 1)]
        with algebra.under(before):
            others = x.at((*index[:axis], Poly.of(r), *index[axis + 1 :]))
        total = algebra.total((r,), algebra.where(before, others))
        return total if exclusive else algebra.add(total, own)

    return Tensor(x.shape, calc.dtype(x, of="cumsum"), at)


def _softmax(share: Callable[[TermAlgebra, SumTerm, SumTerm], SumTerm]) -> ElementMeaning:
    """A function of an element, and of the sum of the exponentials along its axis."""

    def meaning(calc: Calculation, x: Tensor, axis: int) -> Tensor:
        algebra = calc.algebra

        def at(index: Index) -> SumTerm:
            r = calc.index(x.shape[axis : axis + 1])

            def value() -> SumTerm:
                power = algebra.apply("exp", x.at((*index[:axis], *map(Poly.of, r), *index[axis + 1 :])))
                return share(algebra, x.at(index), algebra.total(r, power))

            return algebra.settled(value)

        return Tensor(x.shape, x.dtype, at)

    return meaning


# ---------------------------------------------------------------- normalisations


def _batch_norm(
    calc: Calculation, x: Tensor, gamma: Tensor, beta: Tensor, mean: Tensor, var: Tensor, axis: int, epsilon: Any,
    center: bool, scale: bool,
) -> Tensor:  # fmt: skip
    demand_rank(calc, x, max(axis + 1, 2), least=True)
    used = (mean, var, *([gamma] if scale else []), *([beta] if center else []))
    for operand in used:  # the others may have any shape
        demand_rank(calc, operand, 1)
        calc.same(operand.shape[0], x.shape[axis], "the channels of a normalisation")
    algebra = calc.algebra

    def at(index: Index) -> SumTerm:
        c = (index[axis],)
        factor = algebra.inverse_of(lambda: root(algebra, algebra.add(var.at(c), real(epsilon))))
        return algebra.times(algebra.add(x.at(index), algebra.negative(mean.at(c))), factor)

    return _affine(calc, Tensor(x.shape, x.dtype, at), (axis,), gamma if scale else None, beta if center else None)


def _over_axes(calc: Calculation, x: Tensor, axes: Sequence[int], epsilon: Any, centred: bool) -> Tensor:
    """A tensor divided by the root of its mean square along axes, with the mean subtracted or not."""
    algebra = calc.algebra

    def fold(r: Any, element: Callable[..., SumTerm]) -> SumTerm:
        if centred:
            return _variance(calc, r, element, False)
        return mean_of(calc, r, algebra.power(element(list(map(Poly.of, r))), 2))

    square = reduced(calc, x, axes, True, fold)
    means = reduced(calc, x, axes, True, lambda r, element: mean_of(calc, r, element(list(map(Poly.of, r)))))

    def at(index: Index) -> SumTerm:
        own = tuple(Poly() if a in axes else p for a, p in enumerate(index))
        value = algebra.add(x.at(index), algebra.negative(means.at(own))) if centred else x.at(index)
        size = algebra.inverse_of(lambda: root(algebra, algebra.add(square.at(own), real(epsilon))))
        return algebra.times(value, size)

    return Tensor(x.shape, x.dtype, at)


def _affine(calc: Calculation, x: Tensor, axes: Sequence[int], gamma: Tensor | None, beta: Tensor | None) -> Tensor:
    for operand in (gamma, beta):
        if operand is not None:
            demand_rank(calc, operand, len(axes))
            for size, axis in zip(operand.shape, axes):
                calc.same(size, x.shape[axis], "the weight of a normalisation")

    def at(index: Index) -> SumTerm:
        own = tuple(index[a] for a in axes)
        value = x.at(index) if gamma is None else calc.algebra.times(x.at(index), gamma.at(own))
        return value if beta is None else calc.algebra.add(value, beta.at(own))

    return Tensor(x.shape, x.dtype, at)


def _layer_norm(
    calc: Calculation, x: Tensor, gamma: Tensor | None = None, beta: Tensor | None = None, *, axis: Any, epsilon: Any,
    center: bool, scale: bool,
) -> Tensor:  # fmt: skip
    return _affine(calc, _over_axes(calc, x, axis, epsilon, True), axis, gamma if scale else None,
                   beta if center else None)  # fmt: skip


def _rms_norm(calc: Calculation, x: Tensor, weight: Tensor | None = None, *, axis: Any, epsilon: Any) -> Tensor:
    return _affine(calc, _over_axes(calc, x, axis, epsilon, False), axis, weight, None)


def _group_norm(
    calc: Calculation, x: Tensor, gamma: Tensor | None = None, beta: Tensor | None = None, *, num_groups: Any,
    axis: int, epsilon: Any, center: bool, scale: bool,
) -> Tensor:  # fmt: skip
    demand_rank(calc, x, max(axis + 1, 2), least=True)
    if axis == 0:
        raise Unproved("a normalisation of groups with the batch behind the channels")
    groups = number(num_groups)
    channels = shared_out(calc, x.shape[axis], groups, "the channels of a group")
    grouped = reshaped(calc, x, (*x.shape[:axis], groups, channels, *x.shape[axis + 1 :]))
    normal = _over_axes(calc, grouped, [a for a in range(1, grouped.ndim) if a != axis], epsilon, True)
    back = reshaped(calc, normal, x.shape)
    return _affine(calc, back, (axis,), gamma if scale else None, beta if center else None)


def _instance_norm(
    calc: Calculation, x: Tensor, gamma: Tensor | None = None, beta: Tensor | None = None, *, axis: int, epsilon: Any,
    center: bool, scale: bool,
) -> Tensor:  # fmt: skip
    demand_rank(calc, x, max(axis + 1, 3), least=True)
    if axis == 0:
        raise Unproved("a normalisation of instances with the batch behind the channels")
    normal = _over_axes(calc, x, [a for a in range(1, x.ndim) if a != axis], epsilon, True)
    return _affine(calc, normal, (axis,), gamma if scale else None, beta if center else None)


def _l2_normalize(calc: Calculation, x: Tensor, eps: Any, axis: Sequence[int]) -> Tensor:
    algebra = calc.algebra
    squares = each(calc, lambda value: algebra.power(value, 2), x)
    sums = sums_along(calc, squares, axis if x.ndim else ())  # the axis 0 of a number is none
    return quotient(calc, x, each(calc, lambda total: root(algebra, algebra.apply("max", total, real(eps))), sums))


MEANINGS: dict[str, ElementMeaning] = {
    "cumsum": _cumsum,
    "nn.group_norm": _group_norm,
    "nn.instance_norm": _instance_norm,
    "nn.l2_normalize": _l2_normalize,
    "nn.softmax": _softmax(lambda algebra, x, total: algebra.times(algebra.apply("exp", x), algebra.inverse(total))),
    "nn.log_softmax": _softmax(lambda algebra, x, total: algebra.add(x, algebra.negative(algebra.apply("log", total)))),
    "nn.batch_norm": _batch_norm,
    "nn.layer_norm": _layer_norm,
    "nn.rms_norm": _rms_norm,
    **{name: reduction(name) for name in ("sum", "mean", "max", "min", "variance", "std", "prod", "logsumexp")},
    **{name: reduction(name) for name in _PLACES},
}
