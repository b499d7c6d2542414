"""The normal form of a computation is its value; and what is taken for equal has equal values."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import hypothesis.strategies as st
import numpy
from hypothesis import given, settings

from gsl.prove.equal import equal
from gsl.prove.normal import TermAlgebra
from gsl.prove.path import Path
from gsl.prove.poly import IntAtom, Poly, operation
from gsl.prove.terms import SumTerm, Term, constant
from tests.prove.numbers import Numbers, whole

SIZE = 3
PLACES = st.sampled_from(["i", "i+1", "2-i", "r", "2-r"])
TREES = st.recursive(
    st.one_of(st.integers(-2, 2), st.tuples(st.just("a"), PLACES), st.tuples(st.just("b"), PLACES)),
    lambda inner: st.one_of(
        st.tuples(st.sampled_from(["+", "*"]), inner, inner),
        st.tuples(st.sampled_from(["max0", "square", "sum", "largest"]), inner),
        st.tuples(st.just("where"), st.integers(0, 3), inner),
    ),
    max_leaves=6,
)
LEAVES = {name: numpy.random.default_rng(seed).integers(-3, 4, 4).astype(float) for seed, name in enumerate("ab")}


class Both:
    """A computation as a normal form, and by numbers."""

    def __init__(self) -> None:
        self.path = Path([], {}, float("inf"))
        self.algebra = TermAlgebra(self.path)
        self.i = self.path.index(Poly.of(SIZE), "i")

    def form(self, tree: Any, r: Poly) -> SumTerm:
        """The normal form; ``r`` is the index that is summed over."""
        a = self.algebra
        if isinstance(tree, int):
            return constant(tree)
        match tree[0]:
            case "a" | "b":
                i = Poly.of(self.i)
                places = {"i": i, "i+1": i + 1, "2-i": -i + 2, "r": r, "2-r": -r + 2}
                return a.element(tree[0], (places[tree[1]],))
            case "+":
                return a.add(self.form(tree[1], r), self.form(tree[2], r))
            case "*":
                return a.times(self.form(tree[1], r), self.form(tree[2], r))
            case "max0":
                return a.apply("max", self.form(tree[1], r), constant(0))
            case "square":
                return a.power(self.form(tree[1], r), 2)
            case "where":
                return a.where([(">=", r + Poly.of(self.i) - tree[1])], self.form(tree[2], r))
        inner = self.path.index(Poly.of(SIZE), "r")
        body = self.form(tree[1], Poly.of(inner))
        return a.total((inner,), body) if tree[0] == "sum" else a.fold("max", (inner,), (), body)

    def value(self, tree: Any, i: int, r: int) -> float:
        """The number."""
        if isinstance(tree, int):
            return tree
        match tree[0]:
            case "a" | "b":
                return float(LEAVES[tree[0]][{"i": i, "i+1": i + 1, "2-i": 2 - i, "r": r, "2-r": 2 - r}[tree[1]]])
            case "+":
                return self.value(tree[1], i, r) + self.value(tree[2], i, r)
            case "*":
                return self.value(tree[1], i, r) * self.value(tree[2], i, r)
            case "max0":
                return max(self.value(tree[1], i, r), 0)
            case "square":
                return self.value(tree[1], i, r) ** 2
            case "where":
                return self.value(tree[2], i, r) if r + i >= tree[1] else 0
        found = [self.value(tree[1], i, inner) for inner in range(SIZE)]
        return sum(found) if tree[0] == "sum" else max(found)


@given(TREES)
@settings(max_examples=120)
def test_the_normal_form_is_the_value(tree: Any) -> None:
    both = Both()
    form = both.form(tree, Poly.of(0))
    for i in range(SIZE):
        assert abs(Numbers(LEAVES).sum(form, {both.i: i}) - both.value(tree, i, 0)) < 1e-6


@given(TREES, TREES)
@settings(max_examples=80)
def test_what_is_equal_has_equal_values(left: Any, right: Any) -> None:
    both = Both()
    forms = both.form(left, Poly.of(0)), both.form(right, Poly.of(0))
    if equal(both.algebra, *forms):
        for i in range(SIZE):
            assert abs(both.value(left, i, 0) - both.value(right, i, 0)) < 1e-6


def test_a_wrong_sum_is_noticed() -> None:
    both = Both()
    form = both.form(("sum", ("a", "r")), Poly.of(0))
    assert not equal(both.algebra, form, both.form(("sum", ("a", "i")), Poly.of(0)))
    assert Numbers(LEAVES).sum(form, {both.i: 0}) == LEAVES["a"][:SIZE].sum()


ATOMS = [IntAtom(name, least=1) for name in "mn"]
POLYS = st.recursive(
    st.one_of(st.integers(-3, 3).map(Poly.of), st.sampled_from(ATOMS).map(Poly.of)),
    lambda inner: st.one_of(st.tuples(inner, inner).map(lambda p: p[0] + p[1]),
                            st.tuples(inner, inner).map(lambda p: p[0] * p[1])),
    max_leaves=5,
)  # fmt: skip


@given(POLYS, POLYS, st.sampled_from([1, 2, "m", "mn"]))
@settings(max_examples=150)
def test_operations_keep_their_values(p: Poly, q: Poly, by: Any) -> None:
    path = Path([], {}, float("inf"))
    m, n = map(Poly.of, ATOMS)
    divisor = {"m": m, "mn": m * n, 1: Poly.of(1), 2: Poly.of(2)}[by]
    pairs = [
        (path.quotient(p, divisor), operation("quotient", p, divisor)),
        (path.quotient(path.quotient(p, divisor) + q, Poly.of(2)),
         operation("quotient", operation("quotient", p, divisor) + q, Poly.of(2))),
        (path.extreme("max", p, q), operation("max", p, q)),
        (path.extreme("min", p, q), operation("min", p, q)),
    ]  # fmt: skip
    for sizes in itertools.product((1, 2, 5), repeat=2):
        values = dict(zip(ATOMS, sizes))
        for found, wanted in pairs:
            assert whole(found, values) == whole(wanted, values)
        if path.at_least(p):
            assert whole(p, values) >= 0
        if path.entails((">=", p)):
            assert whole(p, values) >= 0


def test_a_sum_of_ones_is_no_constant() -> None:
    path = Path([], {}, float("inf"))
    index = path.index(path.variable("n").poly)
    assert SumTerm((Term(Fraction(1), bound=(index,)),)).constant is None
    assert SumTerm((Term(Fraction(1), guards=frozenset([(">=", Poly.of(index) - 1)])),)).constant is None
    assert SumTerm((Term(Fraction(3)),)).constant == 3
