"""Each rule with a mistake in it is refuted, with a program that shows it, and what the rule lacks."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterable
from typing import Any

import pytest

from gsl import Refuted, Subst, Supported
from gsl.rules import APPROXIMATE, CPU, GPU, IDIOMS, NORMAL, RULES
from gsl.verify import Verdict, verify
from gsl.verify.models import Comparison, OutputComparison
from gsl.verify.mutate import rebuilt
from tests.verify.wrong_rules import VARIANTS
from tests.verify.wrong_rules.table import EXACT_HALVES, KNOWN, lacking

FIRST = sorted({variant.of: name for name, variant in reversed(VARIANTS.items())}.values())
"""A variant of each rule."""
SOME = FIRST[::3]
"""What ``make test`` looks at: a variant of every third rule."""


def each(names: Iterable[str]) -> list[Any]:
    return [pytest.param(name, marks=() if name in SOME else pytest.mark.long) for name in names]


Verdicts = dict[str, tuple[Subst, Verdict]]


@pytest.fixture(scope="module")
def verdicts() -> Verdicts:
    return {}


def verdict(name: str, verdicts: Verdicts) -> tuple[Subst, Refuted]:
    """A variant with the verdict on it, which is computed once."""
    if name not in verdicts:
        rule, variant = VARIANTS[name].rule(), VARIANTS[name]
        # That there is no condition takes the longest to find: all of them are tried.
        suggest = bool(variant.condition) or (variant.condition is None and name in SOME)
        verdicts[name] = rule, verify(rule, max_examples=variant.examples, seed=variant.seed, suggest=suggest)
    rule, found = verdicts[name]
    assert isinstance(found, Refuted), str(found)
    return rule, found


def test_every_rule_has_a_variant() -> None:
    missing = [f"{name}: add one to {' or '.join(files)}" for name, files in lacking(VARIANTS.values()).items()]
    assert not missing, "no wrong variant of\n" + "\n".join(missing)


def test_a_rule_without_a_variant_is_named_with_the_file_of_its_neighbours() -> None:
    some = [variant for variant in VARIANTS.values() if variant.of not in ("add-zero", "attention", "int8-conv")]
    folder = "tests/verify/wrong_rules"
    assert lacking(some) == {
        "add-zero": [f"{folder}/normal.py"], "attention": [f"{folder}/attention.py"],
        "int8-conv": [f"{folder}/packed.py"],
    }  # fmt: skip
    sets = (NORMAL, IDIOMS, EXACT_HALVES, CPU, GPU, APPROXIMATE)
    assert {rule.name for rules in sets for rule in rules} | {*RULES} == {*KNOWN}
    assert lacking([])["gelu-erf"] == [folder]


@pytest.mark.sweep(12)
@pytest.mark.parametrize("name", each(VARIANTS))
def test_it_is_refuted(name: str, verdicts: Verdicts) -> None:
    (_, found), variant = verdict(name, verdicts), VARIANTS[name]
    assert found.counterexample.kind in variant.kinds, str(found)
    # Smaller than what the first failing instance tends to be.
    assert all(size <= 6 for node in found.counterexample.before.nodes for size in node.shape or ())
    if variant.condition is None:
        assert found.suggestion is None, str(found)
    elif variant.condition:
        assert found.suggestion is not None, str(found)
        assert variant.condition in found.suggestion.text
    if name in SOME:
        shows_the_difference(found.counterexample.code)


def test_fields_of_one_type_are_told_apart_on_any_seed() -> None:
    rule = VARIANTS["dispatch-tuple: always the first field"].rule()
    assert all(isinstance(verify(rule, max_examples=60, seed=seed, suggest=False), Refuted) for seed in (3, 4, 6))


def shows_the_difference(program: str) -> None:
    assert "gsl" not in program
    with pytest.raises(AssertionError), contextlib.redirect_stdout(io.StringIO()) as shown:
        exec(program, {})
    assert "output 0 of the source" in shown.getvalue()


@pytest.mark.sweep(6)
@pytest.mark.parametrize("name", each([name for name in FIRST if VARIANTS[name].condition][::3]))
def test_the_suggested_condition_is_the_missing_one(name: str, verdicts: Verdicts) -> None:
    """On other instances than those by which it was found."""
    rule, found = verdict(name, verdicts)
    if found.suggestion is not None:
        guarded = rebuilt(rule, more=[found.suggestion.condition])
        assert isinstance(guarded.verify(max_examples=40, seed=1), Supported), str(found.suggestion)


def always_equal(before: object, after: object, *, seed: int) -> Comparison:
    return Comparison((OutputComparison((0,), "float64", True, 1),), None)


@pytest.mark.parametrize("name", each(list(VARIANTS)[::10]))
def test_it_is_the_comparison_that_refutes(name: str) -> None:
    variant = VARIANTS[name]
    assert isinstance(verify(variant.rule(), max_examples=variant.examples, compare=always_equal), Supported)
