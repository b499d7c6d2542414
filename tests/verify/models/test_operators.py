"""Every operator in every model: against its own meaning, and the models against each other."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gsl.spec import TABLE
from gsl.verify import kinds
from gsl.verify.kinds import NATIVE
from gsl.verify.models import compare
from gsl.verify.models.algebra import run_program
from gsl.verify.models.bounds import Bounds, Rounded, error_of, value_of, within
from gsl.verify.models.definitions import UncoveredCall
from gsl.verify.models.draws import KINDS, DrawnLeaves
from gsl.verify.models.field import EVEN, FIELD, ODD, UNINTERPRETED, Field, P, Residues
from gsl.verify.models.integers import INTEGERS, LARGEST, Exact, Integers
from gsl.verify.models.program import StraightLineProgram, program_of
from tests.helpers.examples import EVERY_CALL
from tests.verify.models.views import of_call

VIEWS = [(call.op, of_call(call)) for call in EVERY_CALL]
each = pytest.mark.parametrize(("op", "graph"), VIEWS, ids=[call.label for call in EVERY_CALL])


def prepared(graph: Any) -> tuple[StraightLineProgram, DrawnLeaves, np.random.Generator]:
    program = program_of(graph)
    return program, DrawnLeaves(program, program), np.random.default_rng(1)


def test_the_tables_cover_the_vocabulary() -> None:
    assert set(TABLE) == INTEGERS | FIELD | NATIVE


def test_the_tables_of_the_page_are_up_to_date() -> None:
    """If not: run ``python docs/operators.py``."""
    page = (Path(__file__).resolve().parents[3] / "docs" / "verification.md").read_text()
    _, _, lists = page.partition("## Operators that each method covers")
    found = [set(re.findall(r"`([^`]+)`", paragraph)) for paragraph in lists.split("\n\n") if "`" in paragraph]
    assert found == [INTEGERS & FIELD, INTEGERS - FIELD, FIELD - INTEGERS, NATIVE]


@pytest.mark.sweep(4)
@each
def test_every_call_equals_itself(op: str, graph: Any) -> None:
    found = compare(graph, graph, seed=3)
    assert found.equal
    assert found.compared
    assert found.unconfirmed == 0
    assert found.inputs is None
    for output in found.outputs:
        assert output.elements > 0
        # Only literals divide and are exponents among the integers, and products of many factors are too large.
        if op in INTEGERS | NATIVE and op not in ("divide", "power", "prod"):
            assert (output.method, output.reason) == ("integers", "")
        elif op != "softplus":
            assert (output.method in ("integers", "field"), "field" in output.reason) == (True, False)


@pytest.mark.sweep(4)
@each
def test_the_bounds_hold_for_the_real_kernels(op: str, graph: Any) -> None:
    program, leaves, rng = prepared(graph)
    compared = 0
    for kind in KINDS:
        values = leaves.draw(rng, kind)
        try:
            expected = run_program(program, values)
        except RuntimeError:
            assert op in ("floor_divide", "floor_mod", "mod"), "nothing else raises, these by 0"
            continue
        for x, y in zip(expected, Bounds().outputs(program, values)):
            assert not isinstance(y, UncoveredCall), y
            assert value_of(y).shape == x.shape
            fine = within(x, value_of(y), y, None)
            finite = x.isfinite() if x.is_floating_point() else torch.ones_like(fine)
            assert bool((fine | ~finite).all())
            error = error_of(y)
            if error is not None and x.is_floating_point():
                # The bound is one of rounding errors, and not just large.
                small = error <= 1e-9 * (1 + x.abs())
                compared += int((small & finite).sum())
            else:
                compared += x.numel()
    assert compared > 0


@pytest.mark.sweep(4)
@each
def test_integers_are_what_torch_computes(op: str, graph: Any) -> None:
    program, leaves, rng = prepared(graph)
    for limit in (2, 9):
        model = Integers(limit)
        drawn = leaves.draw_rationals(rng, limit, sides=limit > 2)
        inner = {name: model.leaf(*x) if x[0].is_floating_point() else x[0] for name, x in drawn.items()}
        values = {name: x / over if x.is_floating_point() else x for name, (x, over) in drawn.items()}
        found = model.outputs(program, inner)
        if any(isinstance(y, UncoveredCall) for y in found):
            assert op not in INTEGERS or op in ("divide", "power")
            continue
        for x, y in zip(run_program(program, values), found):
            if not isinstance(y, Exact):
                assert torch.equal(x, y)
                continue
            numbers = y.numerators[~y.numerators.isnan()]
            assert torch.equal(numbers, numbers.round())
            assert float(numbers.abs().max()) <= y.coefficient * limit**y.degree <= LARGEST
            torch.testing.assert_close(y.numerators / y.denominator, x, rtol=1e-14, atol=0, equal_nan=True)


POLYNOMIAL = INTEGERS & FIELD - kinds.ORDER - {"nn.leaky_relu", "nn.prelu", "nn.relu6", "hardsigmoid", "hardswish"}


def residues(value: Exact, modulus: int = P) -> Any:
    """The residues of rational numbers."""
    inverse = pow(value.denominator, -1, modulus)
    numbers = [int(n) * inverse % modulus for n in value.numerators.reshape(-1).tolist()]
    return torch.tensor(numbers, dtype=torch.float64)


@pytest.mark.sweep(4)
@pytest.mark.parametrize(("op", "graph"), [(op, graph) for op, graph in VIEWS if op in POLYNOMIAL])
def test_the_field_is_a_homomorphic_image_of_the_rationals(op: str, graph: Any) -> None:
    """Reducing the rational result is computing with reduced leaves."""
    program, leaves, rng = prepared(graph)
    values = {name: x for name, (x, _) in leaves.draw_rationals(rng, 9, False).items()}
    whole, field = Integers(9), Field(0)
    exact = whole.outputs(program, {n: whole.leaf(x) if x.is_floating_point() else x for n, x in values.items()})
    found = field.outputs(program, {n: field.lift(x) if x.is_floating_point() else x for n, x in values.items()})
    for x, y in zip(exact, found):
        if isinstance(x, UncoveredCall):
            assert op in ("divide", "power")
        elif isinstance(x, Exact):
            assert isinstance(y, Residues)
            assert torch.equal(y.p.reshape(-1), residues(x))
            assert torch.equal(y.q.reshape(-1), residues(x, (P - 1) // 2))
        else:
            assert torch.equal(x, y)


@pytest.mark.sweep(4)
@pytest.mark.parametrize(("op", "graph"), [(op, graph) for op, graph in VIEWS if op in FIELD])
def test_the_field_has_values_for_what_it_covers(op: str, graph: Any) -> None:
    program, leaves, rng = prepared(graph)
    values = {name: x for name, (x, _) in leaves.draw_rationals(rng, 1000, False).items()}
    field = Field(0)
    lifted = {n: field.lift(x + 1001) if x.is_floating_point() else x for n, x in values.items()}
    for y in field.outputs(program, lifted):
        if isinstance(y, UncoveredCall):
            assert (op, str(y)) in (("softplus", "softplus with a threshold below 20"),
                                    ("cast", "a cast of floats to integers"))  # fmt: skip
        elif isinstance(y, Residues):
            for part, modulus in ((y.p, P), (y.q, (P - 1) // 2)):
                assert part is None or bool(((part >= 0) & (part < modulus) & (part == part.round())).all())


def test_quotients_in_the_field_are_those_of_the_rationals() -> None:
    field = Field(0)
    rng = np.random.default_rng(2)
    a, b, c = (rng.integers(1, 9, 6) for _ in range(3))
    x, y, z = (field.lift(torch.from_numpy(v)) for v in (a, b, c))
    found = field("add", field("divide", x, y), field("reciprocal", field("subtract", z, 0.5)))
    expected = [Fraction(int(i), int(j)) + 1 / (Fraction(int(k)) - Fraction(1, 2)) for i, j, k in zip(a, b, c)]
    assert found.p.tolist() == [f.numerator * pow(f.denominator, -1, P) % P for f in expected]


def test_signs_in_the_field_are_those_of_small_rationals() -> None:
    field = Field(0)
    for number in (1, 2, 6, 0.5, 0.1, 0.01, 1e-5, 7.5, 37):
        assert float(field.sign(number)) == 1
        assert float(field.sign(-number)) == -1
    assert float(field.sign(0)) == 0
    assert math.isclose(float((field.sign(torch.arange(1, P, 7919)) > 0).double().mean()), 0.5, abs_tol=0.1)


def test_uninterpreted_functions_are_functions() -> None:
    assert not (UNINTERPRETED & ODD) | (ODD & EVEN)
    field = Field(0)
    x = field.lift(torch.tensor([5, 7, 5]))
    one, other = field("erf", x), field("sin", x)
    assert one.p[0] == one.p[2] != one.p[1]
    assert bool((one.p != other.p).all())
    assert torch.equal(field("erf", field("negative", x)).p, field("negative", one).p)
    assert torch.equal(field("cos", field("negative", x)).p, field("cos", x).p)


def test_a_bound_that_is_too_small_is_seen() -> None:
    x = torch.tensor([1.0, 2.0], dtype=torch.float64)
    assert not bool(within(x, x + 1e-9, Rounded(x, torch.full((2,), 1e-10)), None).any())
    assert bool(within(x, x + 1e-11, Rounded(x, torch.full((2,), 1e-10)), None).all())


def test_exponentials_that_vanish_in_the_analysis_alone_are_not_certain() -> None:
    x = torch.tensor([-500.0, -782.0], dtype=torch.float64)
    soft = torch.softmax(x, 0)
    found = Bounds()("nn.softmax", Rounded(x, torch.zeros(2)), axis=0)
    assert bool((soft > 0).all())
    assert bool(within(soft, soft * (1 + 1e-12), found, None)[1])
