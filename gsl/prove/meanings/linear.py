"""Products, bias and attention."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from gsl.prove.meanings.elementwise import ElementMeaning, each, picked, root
from gsl.prove.meanings.layout import demand_rank, moved, shared_out
from gsl.prove.meanings.reduce import sums_along
from gsl.prove.normal import INFINITE
from gsl.prove.poly import Poly, Unproved, dtype_code, number
from gsl.prove.tensor import Calculation, Family, Index, Tensor, real
from gsl.prove.terms import SumTerm, constant


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
    if len(set(output)) < len(output) or not places.keys() >= set(output):
        calc.refuse(f"the result of {equation}")
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
    scores = each(calc, lambda x: algebra.times(x, factor), scores)
    if mask is not None and not masked:
        scores = each(calc, algebra.add, scores, mask)
    powers = each(calc, lambda x: algebra.apply("exp", x), scores, hides=INFINITE)
    if mask is not None and masked:
        powers = each(calc, algebra.times, powers, mask)
    if is_causal:
        powers = replace(powers, at=_lower_triangle(calc, powers))
    sums = sums_along(calc, powers, (powers.ndim - 1,))

    def share(x: SumTerm, total: SumTerm) -> SumTerm:
        # Of a row of which nothing takes part, the result is 0, not 0 / 0.
        return algebra.apply("share", x, total) if masked else algebra.times(x, algebra.inverse(total))

    return matmul(calc, each(calc, share, powers, sums, hides=INFINITE), value)


def _for_heads(calc: Calculation, x: Tensor, heads: Poly) -> Tensor:
    """Keys or values, each head of which is that of as many heads of queries."""
    each_head = shared_out(calc, heads, x.shape[-3], "the heads of attention")

    def at(index: Index) -> SumTerm:
        return x.at((*index[:-3], calc.path.quotient(index[-3], each_head), *index[-2:]))

    return replace(x, shape=(*x.shape[:-3], heads, *x.shape[-2:]), at=at, flat=None)


def _is_of_bools(calc: Calculation, mask: Tensor) -> bool:
    """True for a mask that says what takes part, and is not added; where its dtype is not known, both are cases."""
    return calc.path.decide(("==", mask.dtype - dtype_code("bool")))


def _lower_triangle(calc: Calculation, x: Tensor) -> Callable[[Index], SumTerm]:
    def at(index: Index) -> SumTerm:
        below = [(">=", index[-2] - index[-1])]
        with calc.algebra.under(below):
            return calc.algebra.where(below, x.at(index))

    return at


def _bias_add(calc: Calculation, x: Tensor, bias: Tensor, axis: int) -> Tensor:
    demand_rank(calc, bias, 1)
    demand_rank(calc, x, axis + 1, least=True)
    calc.same(x.shape[axis], bias.shape[0], "a bias")

    def at(index: Index) -> SumTerm:
        return calc.algebra.add(x.at(index), bias.at((index[axis],)))

    return Tensor(x.shape, calc.dtype(x, bias), at)


MEANINGS: dict[str, ElementMeaning] = {
    "matmul": matmul,
    "einsum": _einsum,
    "nn.attention": _attention,
    "nn.dense": _dense,
    "nn.batch_matmul": _batch_matmul,
    "nn.bias_add": _bias_add,
}
