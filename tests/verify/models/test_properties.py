"""The exact models on random programs, against Python's own rational numbers; and no rule of the book is refuted."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gsl.graph import Graph, Node, SymDim
from gsl.verify.models import compare
from gsl.verify.models.definitions import UncoveredCall
from gsl.verify.models.field import Field, P
from gsl.verify.models.integers import Exact, Integers
from gsl.verify.models.program import program_of
from tests.rules.test_rules import FIRES, RULES, build
from tests.verify.models.views import Call, view

Steps = Sequence[tuple[str, int, int, Fraction]]
"""The operator of each step, the numbers of its operands, and a literal."""

# Each operator on square matrices: as a call, and on numpy arrays of Fractions.
POLYNOMIAL: dict[str, tuple[Any, Any]] = {
    "add": (lambda o, x, y, c: o.add(x, y), lambda x, y, c: x + y),
    "subtract": (lambda o, x, y, c: o.subtract(x, y), lambda x, y, c: x - y),
    "multiply": (lambda o, x, y, c: o.multiply(x, y), lambda x, y, c: x * y),
    "matmul": (lambda o, x, y, c: o.matmul(x, y), lambda x, y, c: x.dot(y)),
    "scale": (lambda o, x, y, c: o.multiply(x, float(c)), lambda x, y, c: x * c),
    "shift": (lambda o, x, y, c: o.subtract(float(c), x), lambda x, y, c: c - x),
    "transpose": (lambda o, x, y, c: o.transpose(x), lambda x, y, c: x.T),
    "mean": (lambda o, x, y, c: o.subtract(x, o.mean(x, axis=0, keepdims=True)),
             lambda x, y, c: x - x.sum(axis=0, keepdims=True) * Fraction(1, 2)),
}  # fmt: skip
ORDERED: dict[str, tuple[Any, Any]] = {
    "relu": (lambda o, x, y, c: o.nn_relu(x), lambda x, y, c: np.where(x > 0, x, Fraction(0))),
    "maximum": (lambda o, x, y, c: o.maximum(x, y), lambda x, y, c: np.where(x > y, x, y)),
    "clip": (lambda o, x, y, c: o.clip(x, a_max=float(c)), lambda x, y, c: np.where(x > c, c, x)),
    "floor": (lambda o, x, y, c: o.floor(x), lambda x, y, c: np.vectorize(lambda f: Fraction(f // 1), otypes="O")(x)),
    "round": (lambda o, x, y, c: o.round(x), lambda x, y, c: np.vectorize(lambda f: Fraction(round(f)), otypes="O")(x)),
    "where": (lambda o, x, y, c: o.where(o.less(x, y), x, o.abs(y)), lambda x, y, c: np.where(x < y, x, abs(y))),
    "max": (lambda o, x, y, c: o.add(y, o.max(x, axis=1, keepdims=True)),
            lambda x, y, c: y + np.maximum(x[:, :1], x[:, 1:])),
}  # fmt: skip
BOTH = {**POLYNOMIAL, **ORDERED}
LITERALS = tuple(map(Fraction, ("1/2", "-3/4", "1/10", "2", "-7/5")))


def programs(ops: Sequence[str]) -> st.SearchStrategy[list[tuple[str, int, int, Fraction]]]:
    step = st.tuples(st.sampled_from(sorted(ops)), st.integers(0, 9), st.integers(0, 9), st.sampled_from(LITERALS))
    return st.lists(step, min_size=1, max_size=6)


def graph_of(steps: Steps) -> Graph:
    def make(o: Call, *leaves: Node) -> Node:
        values = list(leaves)
        for op, i, j, c in steps:
            values.append(BOTH[op][0](o, values[i % len(values)], values[j % len(values)], c))
        return values[-1]

    return view("x 2 2, y 2 2", make)


def rationals_of(steps: Steps, leaves: Sequence[Any]) -> Any:
    values = [np.vectorize(Fraction, otypes="O")(leaf) for leaf in leaves]
    for op, i, j, c in steps:
        values.append(BOTH[op][1](values[i % len(values)], values[j % len(values)], c))
    return values[-1]


leaves = st.lists(st.integers(-6, 6), min_size=8, max_size=8).map(lambda v: np.array(v).reshape(2, 2, 2))


@settings(max_examples=150)
@given(programs(list(BOTH)), leaves)
def test_integers_are_rational_numbers(steps: Steps, numbers: Any) -> None:
    model = Integers(6)
    drawn = {name: model.leaf(torch.from_numpy(x.astype(float))) for name, x in zip("xy", numbers)}
    (found,) = model.outputs(program_of(graph_of(steps)), drawn)
    if isinstance(found, UncoveredCall):
        assert "beyond" in str(found)
        return
    assert isinstance(found, Exact)
    expected = rationals_of(steps, numbers).reshape(-1).tolist()
    assert [Fraction(int(n), found.denominator) for n in found.numerators.reshape(-1).tolist()] == expected


@settings(max_examples=100)
@given(programs(list(POLYNOMIAL)), leaves)
def test_residues_are_those_of_rational_numbers(steps: Steps, numbers: Any) -> None:
    field = Field(0)
    drawn = {name: field.lift(torch.from_numpy(x)) for name, x in zip("xy", numbers)}
    (found,) = field.outputs(program_of(graph_of(steps)), drawn)
    expected = rationals_of(steps, numbers).reshape(-1).tolist()
    assert found.p.reshape(-1).tolist() == [f.numerator * pow(f.denominator, -1, P) % P for f in expected]


def test_the_oracle_tells_programs_apart() -> None:
    numbers = np.arange(-4, 4).reshape(2, 2, 2)
    half = Fraction(1, 2)
    for one, other in (("floor", "round"), ("add", "subtract"), ("matmul", "multiply")):
        a, b = (rationals_of([("scale", 0, 0, half), (op, 2, 1, half)], numbers) for op in (one, other))
        assert (a != b).any()


@settings(max_examples=60)
@given(programs(list(BOTH)), st.integers(0, 1000))
def test_a_program_equals_itself_and_not_its_double(steps: Steps, seed: int) -> None:
    found = compare(graph_of(steps), graph_of([*steps, ("scale", len(steps) + 1, 0, Fraction(2))]), seed=seed)
    assert compare(graph_of(steps), graph_of(steps), seed=seed).equal
    if found.equal:
        # Whatever the leaves are, it is 0.
        assert not rationals_of(steps, np.arange(-4, 4).reshape(2, 2, 2)).any()


CASES = [case for case in FIRES if case.label != "no elements"]


@pytest.mark.sweep(4)
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.rule}: {case.label}")
def test_no_rule_of_the_book_is_refuted(case: Any) -> None:
    before = build(case.view)
    if any(isinstance(size, SymDim) for node in before.nodes for size in node.shape or ()):
        with pytest.raises(ValueError, match="known sizes"):
            compare(before, before, seed=0)
        return
    found = compare(before, RULES[case.rule](before), seed=0)
    assert found.equal, found
    assert found.compared
    assert found.unconfirmed == 0
    assert {output.method for output in found.outputs} <= {"integers", "field"} or "float16" in str(before)
