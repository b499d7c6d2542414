"""The names under which a rule may speak of an operator of torch, and arguments that calls leave out."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from gsl import Subst, Workload, op, pat
from gsl.errors import PatternError

aten = torch.ops.aten
X = torch.linspace(-1, 1, 12).reshape(3, 4)


@torch.library.custom_op("gsl_tests::doubled", mutates_args=())
def doubled(x: torch.Tensor, factor: float = 2.0) -> torch.Tensor:
    return x * factor


@doubled.register_fake
def _(x: torch.Tensor, factor: float = 2.0) -> torch.Tensor:
    return torch.empty_like(x)


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        return torch.nansum(x, 1), doubled(x), torch.special.erfinv(x)


@pytest.fixture(scope="module")
def old() -> Workload:
    return Workload.from_torch(Model(), (X,))


x = pat.Wildcard()


@pytest.mark.parametrize(
    "name",
    [doubled, torch.ops.gsl_tests.doubled, torch.ops.gsl_tests.doubled.default, "gsl_tests::doubled",
     "gsl_tests::doubled.default"],
    ids=["definition", "packet", "overload", "name", "name of the overload"],
)  # fmt: skip
def test_an_operator_of_torch_under_all_its_names(name: Any, old: Workload) -> None:
    assert len(list(Subst(pat.Call(name, x), x, name="found").match(old))) == 1
    new = Subst(op.Tanh(x), pat.Call(name, x), name="built")(Workload.from_torch(nn.Tanh(), (X,)))
    torch.testing.assert_close(new(X), 2 * X)


@pytest.mark.parametrize("name", [aten.special_erfinv, "aten::special_erfinv", torch.special.erfinv], ids=str)
def test_packets_of_aten(name: Any, old: Workload) -> None:
    assert len(list(Subst(pat.Call(name, x), x, name="found").match(old))) == 1


def test_an_unknown_name_is_an_error() -> None:
    with pytest.raises(PatternError, match="torch has no operator 'gsl_tests::tripled'; the module that defines it"):
        pat.Call("gsl_tests::tripled", x)


def matches(old: Workload, where: Any = None, **attrs: Any) -> int:
    source = pat.Call(aten.nansum.default, x, **attrs)
    conditions = () if where is None else (where(source),)
    return len(list(Subst(source, x, where=conditions, name="sum").match(old)))


def test_arguments_that_are_left_out_have_their_defaults(old: Workload) -> None:
    assert matches(old, keepdim=False) == matches(old, dim=(1,), keepdim=False) == matches(old, dtype=None) == 1
    assert matches(old, keepdim=True) == matches(old, dim=(0,)) == matches(old, dtype=torch.float64) == 0
    assert matches(old, lambda call: call.keepdim == False) == 1  # noqa: E712
    assert matches(old, lambda call: call.keepdim == True) == 0  # noqa: E712
