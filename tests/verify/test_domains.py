"""Domains of values: drawn by verification, used by proofs, checked or assumed where a rule is applied."""

from __future__ import annotations

import pickle
from math import inf
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gsl import Subst, Workload, attr, op, pat
from gsl.errors import PatternError
from gsl.pat.typed import Domain
from gsl.prove import Proof, prove
from gsl.verify import Refuted, Supported

torch = pytest.importorskip("torch")

ENDS = st.none() | st.integers(-20, 20)
DOMAINS = st.sampled_from(["positive", "nonnegative", "nonzero"]) | st.builds(
    range, st.integers(-9, 0), st.integers(1, 9), st.integers(1, 4)
) | st.tuples(ENDS, ENDS).filter(lambda e: e != (None, None) and (None in e or e[0] <= e[1]))  # fmt: skip


@given(DOMAINS, st.lists(st.floats(-1000, 1000, width=32), min_size=1))
def test_numbers_are_mapped_into_the_domain(given: Any, numbers: list[float]) -> None:
    domain = Domain.of(given)
    mapped = domain.mapped(torch.tensor(numbers, dtype=torch.float64))
    assert domain.has(mapped).all()
    assert domain.outside(mapped) is None
    assert eval(f"Domain.of({domain!r})") == domain == Domain.of(domain)


@pytest.mark.parametrize("dtype", ["int8", "int64"])
@pytest.mark.parametrize("values", ["nonnegative", (5, None), (None, -7), range(0, 200, 3)])
def test_whole_numbers_of_a_domain_are_those_of_the_dtype(dtype: str, values: Any) -> None:
    x = pat.Wildcard(dtype=dtype, ndim=1, values=values)
    domain = Domain.of(values)
    low, high = (None if abs(end) == inf else int(end) for end in (domain.low, domain.high))
    same = Subst(op.Clip(x, a_min=low, a_max=high if dtype == "int64" else min(high or 127, 127)), x)
    assert isinstance(found := same.verify(max_examples=60), Supported), str(found)


def test_a_part_of_a_domain() -> None:
    assert Domain.of("positive").within(-128, 127) == Domain(0, 127, nonzero=True)
    assert Domain.of(range(-200, 200, 7)).within(-128, 127) == Domain(-123, 127, step=7)
    assert Domain.of(range(300, 400)).within(-128, 127) == Domain.of(range(300, 400))


def test_what_is_outside() -> None:
    assert Domain.of("positive").outside(torch.tensor([1.0, 0.0, -2.0])) == 0.0
    assert Domain.of("nonzero").outside(-3) is None
    assert Domain.of((0, 1)).outside(torch.tensor([0.0, 0.5, 1.0])) is None
    assert Domain.of((None, 1)).outside(1.5) == 1.5
    assert Domain.of(range(1, 9, 2)).outside(torch.tensor([1, 7, 4])) == 4
    assert Domain.of("nonnegative").outside(float("nan")) is not None


@pytest.mark.parametrize("wrong", ["large", (3, 1), (None, None), range(0), 5, (0, 1, 2), (False, 1)])
def test_what_is_no_domain(wrong: Any) -> None:
    with pytest.raises(PatternError, match="values= takes 'positive'"):
        pat.Wildcard(values=wrong)


def scale(values: Any, leaf: Any = pat.Wildcard) -> Subst:
    x, s = pat.Wildcard(dtype="float32"), leaf(dtype="float32", values=values)
    return Subst(op.ReLU(x * s), op.ReLU(x) * s, name="scale")


@pytest.mark.parametrize("values", ["positive", "nonnegative", (0, 1), range(5)])
def test_a_rule_that_holds_on_a_domain(values: Any) -> None:
    assert isinstance(scale(values).verify(max_examples=30), Supported)
    assert isinstance(prove(scale(values)), Proof)


@pytest.mark.parametrize("values", ["nonzero", (-1, 1), range(-1, 2), None])
def test_a_rule_that_does_not(values: Any) -> None:
    verdict = scale(values).verify(max_examples=30)
    assert isinstance(verdict, Refuted)
    if values is not None:
        domain = Domain.of(values)
        inputs = verdict.counterexample.comparison.inputs
        assert inputs is not None
        assert any(domain.outside(value) is None for value in inputs.values())
    assert not isinstance(prove(scale(values)), Proof)


x, n, p, u = (pat.Wildcard(dtype="float32", ndim=1, values=v) for v in (None, "nonzero", "positive", (0, 1)))
c = pat.Const()
LAWS = {
    "quotient": Subst((n * n) / n, n),
    "clip": Subst(op.Clip(u, a_min=0, a_max=1), u),
    "root": Subst(op.Sqrt(p * p), p),
    "magnitude": Subst(op.Abs(p * x), p * op.Abs(x)),
    "root of a square": Subst(op.Sqrt(x * x), op.Abs(x)),
    "logarithm": Subst(op.Log(p * p), op.Log(p) * 2),
    "sign": Subst(op.Sign(p), op.OnesLike(p)),
    "literal": Subst(op.ReLU(x * c), op.ReLU(x) * c, where=c.value > 0),
}
NO_LAWS = {
    "quotient": Subst((x * x) / x, x),
    "clip": Subst(op.Clip(u, a_min=0, a_max=0.5), u),
    "root": Subst(op.Sqrt(n * n), n),
    "logarithm": Subst(op.Log(x * n), op.Log(x) + op.Log(n)),
    "literal": Subst(op.ReLU(x * c), op.ReLU(x) * c, where=c.value != 0),
}


@pytest.mark.parametrize("name", LAWS)
def test_proofs_use_domains(name: str) -> None:
    assert isinstance(found := prove(LAWS[name]), Proof), found


@pytest.mark.parametrize("name", NO_LAWS)
def test_nothing_wrong_is_proved(name: str) -> None:
    assert not isinstance(prove(NO_LAWS[name]), Proof)


class Scaled(torch.nn.Module):
    def __init__(self, *numbers: float) -> None:
        super().__init__()
        self.w = torch.nn.Parameter(torch.tensor(numbers))

    def forward(self, a: Any) -> Any:
        return torch.relu(a * self.w)


def test_weights_are_checked_and_other_tensors_assumed() -> None:
    good, bad = (Workload.from_torch(Scaled(1.0, last), (torch.randn(3, 2),)) for last in (2.0, -2.0))
    rule = scale("positive", pat.Param)
    new = rule(good)
    assert new.trace.count() == 1
    assert "assumed" not in str(new.trace)
    good.compare(new).check()
    assert rule(bad).trace.count() == 0
    assert "values: expected 'positive', found -2.0" in str(rule.explain(bad))
    assumed = scale((0, 1), pat.Input)(good).trace
    assert "(assumed: %a is in [0, 1])" in str(assumed)
    assert assumed.firings[0].assumed == ("%a is in [0, 1]",)


def test_literals_are_checked() -> None:
    class Model(torch.nn.Module):
        def forward(self, a: Any) -> Any:
            return torch.relu(a * 3.0) + torch.relu(a * -3.0)

    trace = scale_by_literal()(Workload.from_torch(Model(), (torch.randn(2),))).trace
    assert trace.count() == 1
    assert not trace.firings[0].assumed


def scale_by_literal() -> Subst:
    a, s = pat.Wildcard(), pat.Const(values="positive")
    return Subst(op.ReLU(a * s), op.ReLU(a) * s)


def test_a_rule_with_values_can_be_written_and_sent() -> None:
    rule = scale((0, 1))
    assert "values=(0, 1)" in str(rule)
    assert "pat.Wildcard(dtype='float32', values=(0, 1))" in rule.to_python()
    assert str(pickle.loads(pickle.dumps(rule))) == str(rule)


def test_inverse_permutations() -> None:
    data = pat.Wildcard()
    inner = op.Transpose(data)
    back = Subst(op.Transpose(inner, axes=attr.Inverse(inner.axes)), data, name="back")
    assert isinstance(back.verify(max_examples=30), Supported)
    assert isinstance(prove(back), Proof)
    assert isinstance(Subst(op.Transpose(inner, axes=inner.axes), data).verify(max_examples=60), Refuted)
