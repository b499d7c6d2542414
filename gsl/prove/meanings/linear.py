"""Products, convolutions, reductions, poolings and normalisations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from gsl.prove.meanings.elementwise import ElementMeaning, each, picked, root
from gsl.prove.meanings.layout import moved, reshaped
from gsl.prove.normal import TermAlgebra
from gsl.prove.poly import Poly, Relation, Unproved, dtype_code, number, product
from gsl.prove.tensor import Calculation, Family, Index, Tensor, real
from gsl.prove.terms import SumTerm, constant
from gsl.spec.normalise import spatial

# ---------------------------------------------------------------- products


def demand_rank(calc: Calculation, x: Tensor, ndim: int, least: bool = False) -> None:
    """Demand a rank of an operand."""
    if x.ndim != ndim and not (least and x.ndim > ndim):
        calc.refuse(f"a tensor of {x.ndim} axes where {ndim} are needed")


def result_dtype(calc: Calculation, out_dtype: Any, *operands: Tensor) -> Poly:
    """The dtype of a product."""
    if isinstance(out_dtype, str):
        return calc.dtype(*operands) if not out_dtype else dtype_code(out_dtype)
    return calc.path.operate("code", number(out_dtype), *(operand.dtype for operand in operands))


def matmul(calc: Calculation, a: Tensor, b: Tensor, out_dtype: Any = "") -> Tensor:
    """The product of matrices, of which the other axes are broadcast."""
    demand_rank(calc, a, 1, least=True)
    demand_rank(calc, b, 1, least=True)
    row, column = a.ndim > 1, b.ndim > 1
    calc.same(a.shape[-1], b.shape[-2 if column else 0], "a product of matrices")
    left, right = a.shape[:-2], b.shape[:-2]
    batch = each(calc, lambda *_: constant(0), _plain(a, left), _plain(b, right)).shape
    shape = (*batch, *([a.shape[-2]] if row else []), *([b.shape[-1]] if column else []))

    def at(index: Index) -> SumTerm:
        (r,) = calc.index([a.shape[-1]])
        outer = index[: len(batch)]
        p = Poly.of(r)
        x = a.at((*picked(calc, left, outer), *([index[len(batch)]] if row else []), p))
        y = b.at((*picked(calc, right, outer), p, *([index[-1]] if column else [])))
        return calc.algebra.total((r,), calc.algebra.times(x, y))

    return Tensor(tuple(shape), result_dtype(calc, out_dtype, a, b), at)


def _plain(x: Tensor, shape: Sequence[Poly]) -> Tensor:
    return Tensor(tuple(shape), x.dtype, lambda index: constant(0))


def _dense(calc: Calculation, x: Tensor, w: Tensor, out_dtype: Any) -> Tensor:
    demand_rank(calc, w, 2)
    demand_rank(calc, x, 1, least=True)
    return matmul(calc, x, moved(w, (1, 0)), out_dtype)


def _batch_matmul(
    calc: Calculation, a: Tensor, b: Tensor, out_dtype: Any, transpose_a: bool, transpose_b: bool
) -> Tensor:
    demand_rank(calc, a, 3)
    demand_rank(calc, b, 3)
    a = moved(a, (0, 2, 1)) if transpose_a else a
    return matmul(calc, a, moved(b, (0, 2, 1)) if transpose_b else b, out_dtype)


def _einsum(calc: Calculation, parts: tuple[Tensor, ...] | Family, equation: str) -> Tensor:
    """The sum of products, over the letters that the result lacks."""
    inputs, arrow, output = equation.partition("->")
    if isinstance(parts, Family) or not arrow or "." in equation:
        raise Unproved("an equation of any number of operands or axes, or without an arrow")
    words = inputs.split(",")
    if len(words) != len(parts):
        calc.refuse(f"{len(parts)} operands of {equation}")
    places: dict[str, list[Poly]] = {}
    for word, part in zip(words, parts):
        demand_rank(calc, part, len(word))
        for letter, size in zip(word, part.shape):
            if word.count(letter) > 1:
                raise Unproved("a diagonal of an operand of einsum")
            places.setdefault(letter, []).append(size)
    sizes = {letter: calc.path.broadcast(own, given=calc.given) for letter, own in places.items()}
    summed = [letter for letter in sizes if letter not in output]

    def at(index: Index) -> SumTerm:
        r = calc.index([sizes[letter] for letter in summed])
        place = dict(zip(output, index)) | dict(zip(summed, map(Poly.of, r)))
        found = constant(1)
        for word, part in zip(words, parts):
            own = tuple(calc.path.pick(size, place[letter]) for letter, size in zip(word, part.shape))
            found = calc.algebra.times(found, part.at(own))
        return calc.algebra.total(r, found)

    return Tensor(tuple(sizes[letter] for letter in output), calc.dtype(*parts), at)


def _attention(
    calc: Calculation, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, *, scale: Any,
    is_causal: bool, enable_gqa: bool,
) -> Tensor:  # fmt: skip
    """``softmax(query key^T scale + mask) value``."""
    algebra, masked = calc.algebra, mask is not None and _is_of_bools(calc, mask)
    for x in (query, key, value):
        demand_rank(calc, x, 3 if enable_gqa else 2, least=True)
    if enable_gqa:
        key, value = (_for_heads(calc, x, query.shape[-3]) for x in (key, value))
    calc.same(key.shape[-2], value.shape[-2], "the keys and values of attention")
    size = algebra.number(query.shape[-1])
    factor = algebra.inverse(root(algebra, size)) if scale is None else real(scale)
    scores = matmul(calc, query, moved(key, (*range(key.ndim - 2), key.ndim - 1, key.ndim - 2)))
    scores = replace(scores, at=_scaled(calc, scores, factor))
    if mask is not None and not masked:
        scores = each(calc, algebra.add, scores, mask)
    powers = each(calc, lambda x: algebra.apply("exp", x), scores)
    if mask is not None and masked:
        powers = each(calc, algebra.times, powers, mask)
    if is_causal:
        powers = replace(powers, at=_lower_triangle(calc, powers))
    sums = _sums(calc, powers, (powers.ndim - 1,))
    return matmul(calc, each(calc, lambda x, total: algebra.times(x, algebra.inverse(total)), powers, sums), value)


def _for_heads(calc: Calculation, x: Tensor, heads: Poly) -> Tensor:
    """Keys or values, each head of which is that of as many heads of queries."""
    each_head = _part(calc, heads, x.shape[-3], "the heads of attention")

    def at(index: Index) -> SumTerm:
        return x.at((*index[:-3], calc.path.quotient(index[-3], each_head), *index[-2:]))

    return replace(x, shape=(*x.shape[:-3], heads, *x.shape[-2:]), at=at, flat=None)


def _is_of_bools(calc: Calculation, mask: Tensor) -> bool:
    """Whether a mask says what takes part, and is not added; where its dtype is not known, both are cases."""
    return calc.path.decide(("==", mask.dtype - dtype_code("bool")))


def _scaled(calc: Calculation, x: Tensor, factor: SumTerm) -> Callable[[Index], SumTerm]:
    return lambda index: calc.algebra.times(x.at(index), factor)


def _lower_triangle(calc: Calculation, x: Tensor) -> Callable[[Index], SumTerm]:
    return lambda index: calc.algebra.where([(">=", index[-2] - index[-1])], x.at(index))


def _bias_add(calc: Calculation, x: Tensor, bias: Tensor, axis: int) -> Tensor:
    demand_rank(calc, bias, 1)
    demand_rank(calc, x, axis + 1, least=True)
    calc.same(x.shape[axis], bias.shape[0], "a bias")

    def at(index: Index) -> SumTerm:
        return calc.algebra.add(x.at(index), bias.at((index[axis],)))

    return Tensor(x.shape, calc.dtype(x, bias), at)


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
        each_group = _part(calc, outputs, g, "the output channels of a group")
        places = _windows(calc, x.shape[2:], w.shape[2:], strides, padding, dilation)

        def at(index: Index) -> SumTerm:
            n, o, *at_ = index
            c, *k = calc.index([inputs, *w.shape[2:]])
            spots, guards = _seen(at_, k, x.shape[2:], strides, padding, dilation)
            group = Poly() if g.number == 1 else calc.path.quotient(o, each_group)
            channel = group * inputs + Poly.of(c)
            algebra = calc.algebra
            factors = algebra.times(x.at((n, channel, *spots)), w.at((o, Poly.of(c), *map(Poly.of, k))))
            return algebra.total((c, *k), algebra.where(guards, factors))

        result = Tensor((x.shape[0], outputs, *places), dtype, at)
        return _laid_out(result, "NC" + letters, out_layout or data_layout)

    return meaning


def _part(calc: Calculation, whole: Poly, count: Poly, what: str) -> Poly:
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
        each_group = _part(calc, x.shape[1], g, "the input channels of a group")
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
            factors = algebra.times(x.at((n, channel, *map(Poly.of, spots))), kernel)
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
            value = x.at((n, c, *spots))
            if kind == "max":
                return algebra.fold("max", k, guards, value)
            total = algebra.total(k, algebra.where(guards, value))
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
        result = _reduction(kind)(calc, x, axes, True, False)
        return _laid_out(result, layout, out_layout or layout)

    return meaning


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


def _sums(calc: Calculation, x: Tensor, axes: Sequence[int]) -> Tensor:
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


def _reduction(name: str) -> ElementMeaning:
    def meaning(
        calc: Calculation, x: Tensor, axis: Any, keepdims: bool, exclude: bool, unbiased: bool = False
    ) -> Tensor:
        algebra = calc.algebra
        axes = tuple(range(x.ndim)) if axis is None or not x.ndim else axis  # the axis 0 of a number is none
        if exclude:
            axes = tuple(a for a in range(x.ndim) if a not in axes)

        def fold(r: Any, element: Callable[..., SumTerm]) -> SumTerm:
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
                case "std":
                    return root(algebra, _variance(calc, r, element, unbiased))
            return algebra.fold(name, r, (), element(places))

        result = reduced(calc, x, axes, keepdims, fold)
        return result if name in ("max", "min") else replace(result, dtype=calc.dtype(x, of=name))

    return meaning


def _softmax(share: Callable[[TermAlgebra, SumTerm, SumTerm], SumTerm]) -> ElementMeaning:
    """A function of an element, and of the sum of the exponentials along its axis."""

    def meaning(calc: Calculation, x: Tensor, axis: int) -> Tensor:
        algebra = calc.algebra

        def at(index: Index) -> SumTerm:
            r = calc.index(x.shape[axis : axis + 1])
            value = algebra.apply("exp", x.at((*index[:axis], *map(Poly.of, r), *index[axis + 1 :])))
            return share(algebra, x.at(index), algebra.total(r, value))

        return Tensor(x.shape, x.dtype, at)

    return meaning


# ---------------------------------------------------------------- normalisations


def _batch_norm(
    calc: Calculation, x: Tensor, gamma: Tensor, beta: Tensor, mean: Tensor, var: Tensor, axis: int, epsilon: Any,
    center: bool, scale: bool,
) -> Tensor:  # fmt: skip
    demand_rank(calc, x, max(axis + 1, 2), least=True)
    for operand in (gamma, beta, mean, var):
        demand_rank(calc, operand, 1)
        calc.same(operand.shape[0], x.shape[axis], "the channels of a normalisation")
    algebra = calc.algebra

    def at(index: Index) -> SumTerm:
        c = (index[axis],)
        factor = algebra.inverse(root(algebra, algebra.add(var.at(c), real(epsilon))))
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
        return algebra.times(value, algebra.inverse(root(algebra, algebra.add(square.at(own), real(epsilon)))))

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
    channels = _part(calc, x.shape[axis], groups, "the channels of a group")
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
    sums = _sums(calc, squares, axis)

    def normal(value: SumTerm, total: SumTerm) -> SumTerm:
        return algebra.times(value, algebra.inverse(root(algebra, algebra.apply("max", total, real(eps)))))

    return each(calc, normal, x, sums)


MEANINGS: dict[str, ElementMeaning] = {
    "matmul": matmul,
    "einsum": _einsum,
    "nn.attention": _attention,
    "nn.group_norm": _group_norm,
    "nn.instance_norm": _instance_norm,
    "nn.l2_normalize": _l2_normalize,
    "nn.dense": _dense,
    "nn.batch_matmul": _batch_matmul,
    "nn.bias_add": _bias_add,
    "nn.softmax": _softmax(lambda algebra, x, total: algebra.times(algebra.apply("exp", x), algebra.inverse(total))),
    "nn.log_softmax": _softmax(lambda algebra, x, total: algebra.add(x, algebra.negative(algebra.apply("log", total)))),
    "nn.batch_norm": _batch_norm,
    "nn.layer_norm": _layer_norm,
    "nn.rms_norm": _rms_norm,
    **{f"nn.conv{count}d": _conv(count) for count in (1, 2, 3)},
    **{f"nn.conv{count}d_transpose": _conv_transpose(count) for count in (1, 2, 3)},
    **{f"nn.{kind}_pool{count}d": _pool(count, kind) for kind in ("max", "avg") for count in (1, 2, 3)},
    **{f"nn.global_{kind}_pool{count}d": _global_pool(count, kind) for kind in ("max", "avg") for count in (1, 2, 3)},
    **{name: _reduction(name) for name in ("sum", "mean", "max", "min", "variance", "std", "prod", "logsumexp")},
}
