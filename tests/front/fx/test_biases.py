"""One form for a bias: a vector that is added to a product along the last axis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import fx, nn

from gsl import Subst, Workload, op, pat
from tests.helpers.nets import NetOfOne

X = torch.linspace(-1, 1, 20).reshape(5, 4)


def layer(function: Callable[..., Any]) -> nn.Module:
    torch.manual_seed(0)
    w, b = nn.Parameter(torch.linspace(-1, 2, 16).reshape(4, 4)), nn.Parameter(torch.linspace(0, 1, 4))
    return NetOfOne(function, w=w, b=b, linear=nn.Linear(4, 4), plain=nn.Linear(4, 4, bias=False)).eval()


BIASED: dict[str, Callable[..., Any]] = {
    "addmm": lambda m, x: torch.addmm(m.b, x, m.w),
    "mm": lambda m, x: torch.mm(x, m.w) + m.b,
    "the vector first": lambda m, x: m.b + x @ m.w,
    "in place": lambda m, x: (x @ m.w).add_(m.b),
    "linear": lambda m, x: F.linear(x, m.w, m.b),
    "linear without a bias": lambda m, x: F.linear(x, m.w) + m.b,
    "a module": lambda m, x: m.linear(x),
    "a module without a bias": lambda m, x: m.plain(x) + m.b,
    "batches": lambda m, x: torch.matmul(x[None], m.w) + m.b,
    "a computed vector": lambda m, x: x @ m.w + x.sum(0),
}
OTHERS: dict[str, Callable[..., Any]] = {
    "one element": lambda m, x: x @ m.w + m.b[:1],
    "another rank": lambda m, x: x @ m.w + m.b[None],
    "another dtype": lambda m, x: x @ m.w + m.b.double(),
    "a vector times a matrix": lambda m, x: x[0] @ m.w + m.b,
    "no product": lambda m, x: torch.tanh(x) + m.b,
    "a larger sum": lambda m, x: m.b @ m.w + x,
    "a factor": lambda m, x: torch.add(x @ m.w, m.b, alpha=2),
}
x, b = pat.Wildcard(), pat.Wildcard()
DOUBLED = Subst(biased := op.BiasAdd(x, b), biased.like(x, b + b), name="doubled")


def loaded(form: str, function: Callable[..., Any]) -> Workload:
    model = layer(function)
    if form == "traced":
        return Workload.from_fx(fx.symbolic_trace(model), (X,))
    exported = torch.export.export(model, (X,))
    return Workload.from_exported(exported.run_decompositions() if form == "decomposed" else exported)


@pytest.mark.sweep(3)
@pytest.mark.parametrize("form", ["exported", "decomposed", "traced"])
@pytest.mark.parametrize("name", BIASED)
def test_one_pattern_finds_all_biases(name: str, form: str) -> None:
    if (name, form) == ("batches", "decomposed"):
        return  # the product is reshaped before the sum
    old = loaded(form, BIASED[name])
    new = DOUBLED(old, fold_params=False)
    assert new.trace.count("doubled") == 1
    torch.testing.assert_close(new(X), expected(BIASED[name]), rtol=1e-5, atol=1e-5)


def expected(function: Callable[..., Any]) -> torch.Tensor:
    """The result with the bias twice."""
    model = layer(function)
    with torch.no_grad():
        if function is BIASED["a computed vector"]:
            return function(model, X) + X.sum(0)
        model.b.mul_(2)
        model.linear.bias.mul_(2)
        return function(model, X)


@pytest.mark.parametrize("form", ["exported", "traced"])
@pytest.mark.parametrize("name", OTHERS)
def test_other_sums_are_sums(name: str, form: str) -> None:
    counts = loaded(form, OTHERS[name]).op_counts()
    assert counts["add"] == 1
    assert "nn.bias_add" not in counts


def test_a_pattern_that_adds_to_a_product_gets_a_hint() -> None:
    rule = Subst(op.Matmul(x, pat.Wildcard()) + b, x, name="sum")
    explained = rule.explain(loaded("exported", BIASED["mm"]))
    assert "hint: a vector that is added along the last axis of a product is a bias, op.BiasAdd" in str(explained)
    assert "hint" not in str(rule.explain(loaded("exported", OTHERS["another rank"])))
    assert "hint" not in str(DOUBLED.explain(loaded("exported", OTHERS["no product"])))


def test_a_product_is_no_bias_of_itself() -> None:
    relu = op.ReLU(dense := op.Dense(x, b))
    again = dense.like(x, b)
    linear, value = nn.Linear(4, 4, bias=False), torch.ones(4)
    old = Workload.from_torch(nn.Sequential(linear, nn.ReLU()).eval(), (value,))
    new = Subst(relu, op.BiasAdd(again, again, axis=-1), name="twice")(old)
    assert new.op_counts() == {"nn.dense": 1, "add": 1}
    torch.testing.assert_close(new(value), 2 * linear(value))
