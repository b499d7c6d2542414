"""Verdicts: when there is none, that they repeat, what mutation finds, and what is told when a package is missing."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from gsl import Refuted, Subst, Supported, Unchecked, attr, op, pat
from gsl.rules import MODULE_FUSION, RULES
from gsl.verify import Verdict
from gsl.verify.shrink import MissingHypothesisError
from tests.verify.wrong import WRONG

x, y, w = pat.Wildcard(), pat.Wildcard(), pat.Param()


def never_typed() -> Subst:
    return Subst(op.Exp(op.Sum(x, axis=(0,), keepdims=False)), op.Exp(x))


def never_true() -> Subst:
    return Subst(op.ReLU(x), op.ReLU(x), where=[x.ndim == 2, x.ndim == 3])


def identity() -> Subst:
    relu = op.ReLU(x)
    return Subst(relu, relu)


def literal() -> Subst:
    numbers = np.array([1.0, 2.0], np.float32)
    return Subst(op.Tanh(x) * numbers, numbers * op.Tanh(x))


def native() -> Subst:
    return Subst(pat.Call(torch.special.erfcx, x), op.Exp(x))


def outlined() -> Subst:
    return Subst(op.ReLU(x), pat.Fused("group"))


def built() -> Subst:
    return Subst(op.ReLU(x), pat.Module(lambda match: torch.nn.ReLU(), x))


def refused() -> Subst:
    return Subst(op.ReLU(x), op.ReLU6(x), where=lambda match: "not on Sundays")


def without_values() -> Subst:
    """The logarithm of a negative number is no number anywhere."""
    return Subst(op.Log(-op.Exp(x)), op.Log(op.Negative(op.Exp(x)) * 2.0))


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (never_typed, "but its replacement"),
        (never_true, "no instance of the source could be made"),
        (identity, "the target is what was matched"),
        (native, "native to a framework"),
        (outlined, "has no meaning of its own"),
        (built, "has no meaning of its own"),
        (refused, "not on Sundays"),
        (without_values, "no finite values"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_unchecked(make: Callable[[], Subst], reason: str) -> None:
    found = make().verify(max_examples=40)
    assert isinstance(found, Unchecked), str(found)
    assert reason in found.reason
    assert reason in str(found)
    assert not found


def test_literal_tensors_of_numpy_are_understood() -> None:
    found = literal().verify(max_examples=40)
    assert isinstance(found, Supported), str(found)


def test_a_node_that_is_to_be_an_output_is_one() -> None:
    inner = op.Exp(x)
    rule = Subst(op.ReLU(inner), inner, where=[pat.IsOutput(inner)])
    found = rule.verify(max_examples=40)
    assert isinstance(found, Supported), str(found)
    wrong = Subst(op.ReLU(inner), op.ReLU(op.Exp(x) - 1.0), where=[pat.IsOutput(inner)])
    refuted = wrong.verify(max_examples=40)
    assert isinstance(refuted, Refuted), str(refuted)
    assert [node.op for node in refuted.counterexample.before.outputs] == ["nn.relu", "exp"]


def test_too_few_examples_support_nothing() -> None:
    found = RULES["copy-identity"].verify(max_examples=10)
    assert isinstance(found, Unchecked)
    assert "20 are needed" in found.reason


def test_an_alternative_that_no_graph_has_is_named() -> None:
    both = op.ReLU(x, ndim=2)
    either = pat.Alt(both & pat.Wildcard(ndim=3), op.ReLU6(x))
    found = Subst(op.ReLU(either), op.ReLU6(x), where=either.ndim >= 0).verify(max_examples=40)
    assert isinstance(found, Supported)
    assert any("ndim=3" in text for text in found.evidence.missing)
    assert "not generated: the alternative" in str(found)


# The same again


@pytest.mark.parametrize("name", ["composed in the wrong order", "scale through relu"])
def test_equal_seeds_give_equal_verdicts(name: str) -> None:
    first, second = (WRONG[name].make().verify(max_examples=60, seed=7) for _ in range(2))
    assert str(first).replace("wrong.py", "") == str(second).replace("wrong.py", "")
    assert isinstance(first, Refuted)
    assert isinstance(second, Refuted)
    assert first.counterexample.code == second.counterexample.code


def test_other_seeds_try_other_instances() -> None:
    rule = RULES["parallel-two-dense"]
    assert str(rule.verify(max_examples=30, seed=1)) != str(rule.verify(max_examples=30, seed=2))


def state() -> tuple[Any, ...]:
    return random.getstate(), str(np.random.get_state()), torch.get_rng_state().tolist(), torch.get_num_threads()


def test_no_global_state_is_touched() -> None:
    random.seed(3)
    np.random.seed(3)
    torch.manual_seed(3)
    before = state()
    WRONG["exchanged operands"].make().verify(max_examples=30)
    assert state() == before


# Mutation


def test_mutants_of_a_right_rule_are_refuted() -> None:
    t1 = op.Transpose(x)
    t2 = op.Transpose(t1)
    rule = Subst(t2, op.Transpose(x, axes=attr.Map(t2.axes, lambda axis: t1.axes[axis])), name="compose")
    found = rule.verify(max_examples=40, mutate=True)
    assert isinstance(found, Supported)
    assert found.mutants is not None
    assert found.mutants.share is not None
    assert any("reversed axes" in name for name in found.mutants.refuted)
    assert "of the mutants refuted" in str(found)


def test_mutants_cover_operands_literals_guards_and_outputs() -> None:
    a, b = op.Exp(x - y), op.Tanh(x - y)
    rule = Subst([a, b], [op.Exp(x + y * -1.0), op.Tanh(x - y)], where=[x.dtype == "float32", y.dtype == "float32"])
    mutants = rule.verify(max_examples=40, mutate=True).mutants
    assert mutants is not None
    for what in ("the first two outputs exchanged", "another number", "operands exchanged", "log instead"):
        assert any(what in name for name in mutants.refuted), str(mutants)
    assert any("without the condition" in name for name in (*mutants.refuted, *mutants.survived))


def test_mutants_of_a_rule_with_a_module_in_its_target() -> None:
    rule = next(rule for rule in MODULE_FUSION if rule.name == "linear-add-relu")
    assert isinstance(rule.verify(max_examples=10, mutate=True), Unchecked)


def test_without_mutation_nothing_is_said_of_it() -> None:
    assert RULES["copy-identity"].verify(max_examples=20).mutants is None


# Packages


def test_without_hypothesis_the_mend_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hypothesis", None)
    with pytest.raises(MissingHypothesisError, match=r"pip install 'gsl\[verify\]'"):
        RULES["copy-identity"].verify()


def test_a_counterexample_is_drawn() -> None:
    found: Verdict = WRONG["exchanged operands"].make().verify(max_examples=30)
    assert isinstance(found, Refuted)
    svg = found.visualize().svg
    assert found.counterexample.visualize().svg == svg
    assert found._repr_html_().endswith(f"<div>{found.visualize()._repr_svg_()}</div>")
    for text in ("before", "after", "subtract", "differs: another value", "output 0"):
        assert f">{text}" in svg
