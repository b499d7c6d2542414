"""Convolutions and poolings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gsl.prove.meanings.elementwise import ElementMeaning
from gsl.prove.meanings.layout import demand_rank, moved, shared_out
from gsl.prove.meanings.linear import result_dtype
from gsl.prove.meanings.reduce import reduction
from gsl.prove.poly import Poly, Relation, Unproved, number, product
from gsl.prove.tensor import Calculation, Index, Tensor
from gsl.prove.terms import SumTerm, constant
from gsl.spec.normalise import spatial

# ---------------------------------------------------------------- convolutions


def _permuted(calc: Calculation, x: Tensor, source: str, target: str) -> Tensor:
    demand_rank(calc, x, len(source))
    return _laid_out(x, source, target)


def _windows(
    calc: Calculation, sizes: Sequence[Poly], window: Sequence[Poly], strides: Any, padding: Any, dilation: Any
) -> list[Poly]:
    """The number of places of a window on each axis."""
    count, found = len(sizes), []
    for axis in range(count):
        room = sizes[axis] + number(padding[axis]) + number(padding[count + axis])
        room = room - number(dilation[axis]) * (window[axis] - 1) - 1
        calc.must((">=", room), "a window that fits")
        found.append(calc.path.reduce(calc.path.quotient(room, number(strides[axis])) + 1))
    return found


def _seen(
    places: Sequence[Poly], inside: Sequence[Any], sizes: Sequence[Poly], strides: Any, padding: Any, dilation: Any
) -> tuple[list[Poly], list[Relation]]:
    """The spots of an operand that a window sees at a place of the result, and the conditions that they are in it."""
    spots = [
        p * number(s) + Poly.of(r) * number(d) - number(b)
        for p, r, s, d, b in zip(places, inside, strides, dilation, padding)
    ]
    guards: list[Relation] = []
    for spot, size in zip(spots, sizes):
        guards += [(">=", spot), (">=", size - 1 - spot)]
    return spots, guards


def _laid_out(x: Tensor, plain: str, layout: str) -> Tensor:
    """A tensor of one layout in another one."""
    return moved(x, [plain.index(letter) for letter in layout])


def _conv(count: int) -> ElementMeaning:
    letters = spatial(count)

    def meaning(
        calc: Calculation, x: Tensor, w: Tensor, strides: Any, padding: Any, dilation: Any, groups: Any,
        data_layout: str, kernel_layout: str, out_layout: str, out_dtype: Any,
    ) -> Tensor:  # fmt: skip
        dtype = result_dtype(calc, out_dtype, x, w)
        x, w = _permuted(calc, x, data_layout, "NC" + letters), _permuted(calc, w, kernel_layout, "OI" + letters)
        g, inputs, outputs = number(groups), w.shape[1], w.shape[0]
        calc.same(x.shape[1], inputs * g, "the channels of a convolution")
        each_group = shared_out(calc, outputs, g, "the output channels of a group")
        places = _windows(calc, x.shape[2:], w.shape[2:], strides, padding, dilation)

        def at(index: Index) -> SumTerm:
            n, o, *at_ = index
            c, *k = calc.index([inputs, *w.shape[2:]])
            spots, guards = _seen(at_, k, x.shape[2:], strides, padding, dilation)
            group = Poly() if g.number == 1 else calc.path.quotient(o, each_group)
            channel = group * inputs + Poly.of(c)
            algebra = calc.algebra
            with algebra.under(guards):
                own = x.at((n, channel, *spots))
            factors = algebra.times(own, w.at((o, Poly.of(c), *map(Poly.of, k))))
            return algebra.total((c, *k), algebra.where(guards, factors))

        result = Tensor((x.shape[0], outputs, *places), dtype, at)
        return _laid_out(result, "NC" + letters, out_layout or data_layout)

    return meaning


def _conv_transpose(count: int) -> ElementMeaning:
    letters = spatial(count)

    def meaning(
        calc: Calculation, x: Tensor, w: Tensor, strides: Any, padding: Any, output_padding: Any, dilation: Any,
        groups: Any, data_layout: str, kernel_layout: str, out_layout: str, out_dtype: Any,
    ) -> Tensor:  # fmt: skip
        dtype = result_dtype(calc, out_dtype, x, w)
        x, w = _permuted(calc, x, data_layout, "NC" + letters), _permuted(calc, w, kernel_layout, "IO" + letters)
        g, outputs = number(groups), w.shape[1]
        calc.same(x.shape[1], w.shape[0], "the channels of a convolution")
        each_group = shared_out(calc, x.shape[1], g, "the input channels of a group")
        places = []
        for axis in range(count):
            size = (x.shape[2 + axis] - 1) * number(strides[axis]) + number(dilation[axis]) * (w.shape[2 + axis] - 1)
            size = size + number(output_padding[axis]) + 1 - number(padding[axis]) - number(padding[count + axis])
            calc.must((">=", size - 1), "a result that is not empty")
            places.append(calc.path.reduce(size))

        def at(index: Index) -> SumTerm:
            n, o, *at_ = index
            c, *rest = calc.index([each_group, *x.shape[2:], *w.shape[2:]])
            spots, k = rest[:count], rest[count:]
            guards: list[Relation] = [
                ("==", p + number(b) - Poly.of(s) * number(stride) - Poly.of(r) * number(d))
                for p, s, r, stride, d, b in zip(at_, spots, k, strides, dilation, padding)
            ]
            group = calc.path.quotient(o, outputs)
            channel, algebra = group * each_group + Poly.of(c), calc.algebra
            kernel = w.at((channel, o - group * outputs, *map(Poly.of, k)))
            with algebra.under(guards):
                own = x.at((n, channel, *map(Poly.of, spots)))
            factors = algebra.times(own, kernel)
            return algebra.total((c, *rest), algebra.where(guards, factors))

        result = Tensor((x.shape[0], calc.path.reduce(outputs * g), *places), dtype, at)
        return _laid_out(result, "NC" + letters, out_layout or data_layout)

    return meaning


# ---------------------------------------------------------------- poolings


def _pool(count: int, kind: str) -> ElementMeaning:
    letters = spatial(count)

    def meaning(
        calc: Calculation, x: Tensor, pool_size: Any, strides: Any, dilation: Any, padding: Any, ceil_mode: bool,
        layout: str, out_layout: str, count_include_pad: bool = True,
    ) -> Tensor:  # fmt: skip
        if ceil_mode is not False:
            raise Unproved("a pooling with ceil_mode")
        x, window = _permuted(calc, x, layout, "NC" + letters), list(map(number, pool_size))
        places = _windows(calc, x.shape[2:], window, strides, padding, dilation)
        algebra = calc.algebra

        def at(index: Index) -> SumTerm:
            n, c, *at_ = index
            k = calc.index(window)
            spots, guards = _seen(at_, k, x.shape[2:], strides, padding, dilation)

            def element() -> SumTerm:
                with algebra.under(guards):
                    return x.at((n, c, *spots))

            if kind == "max":
                return algebra.settled(lambda: algebra.fold("max", k, guards, element()))
            total = algebra.total(k, algebra.where(guards, element()))
            if count_include_pad:
                return algebra.times(total, algebra.inverse(algebra.number(product(window))))
            seen = algebra.total(k, algebra.where(guards, constant(1)))
            return algebra.times(total, algebra.inverse(seen))

        result = Tensor((*x.shape[:2], *places), x.dtype, at)
        return _laid_out(result, "NC" + letters, out_layout or layout)

    return meaning


def _global_pool(count: int, kind: str) -> ElementMeaning:
    def meaning(calc: Calculation, x: Tensor, layout: str, out_layout: str) -> Tensor:
        demand_rank(calc, x, 2 + count)
        axes = tuple(a for a, letter in enumerate(layout) if letter not in "NC")
        result = reduction(kind)(calc, x, axes, True, False)
        return _laid_out(result, layout, out_layout or layout)

    return meaning


MEANINGS: dict[str, ElementMeaning] = {
    **{f"nn.conv{count}d": _conv(count) for count in (1, 2, 3)},
    **{f"nn.conv{count}d_transpose": _conv_transpose(count) for count in (1, 2, 3)},
    **{f"nn.{kind}_pool{count}d": _pool(count, kind) for kind in ("max", "avg") for count in (1, 2, 3)},
    **{f"nn.global_{kind}_pool{count}d": _global_pool(count, kind) for kind in ("max", "avg") for count in (1, 2, 3)},
}
