"""Fields of tuples that targets make: what they stand for is matched in the next pass, and used by nobody else."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from gsl import RuleSet, Subst, Workload, op, pat
from gsl.graph import Node
from tests.helpers.graphs import Builder, graph
from tests.rewrite.checks import ops, rewritten

a, b, x = pat.Wildcard(), pat.Wildcard(), pat.Wildcard()
UNWRAP = Subst(
    op.Split(op.Concatenate([a, b], axis=0), indices_or_sections=2, axis=0), pat.Tuple(a, b),
    where=a.shape == b.shape, name="unwrap",
)  # fmt: skip
TWICE = Subst(x + x, x * 2.0, name="twice")


class Joined(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        fields = torch.cat([a, b]).split(4)
        return fields[1] + (a + fields[0])


def workload(way: str) -> Workload:
    values = torch.randn(4), torch.randn(4)
    if way == "traced":
        return Workload.from_fx(torch.fx.symbolic_trace(Joined()), values)
    exported = Workload.from_torch(Joined(), values)
    if way == "exported":
        return exported
    from tvm.relax.frontend.torch import from_exported_program

    return Workload.from_relax(from_exported_program(exported.exported))


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("way", ["exported", "traced", "relax"])
def test_rules_fire_until_none_fires(way: str, order: int) -> None:
    rules, old = RuleSet([UNWRAP, TWICE][::order]), workload(way)
    new = rules(old, iterative=True)
    assert new.trace.summary() == {"unwrap": 1, "twice": 1}
    assert rules(new, iterative=True).trace.summary() == {}
    assert new.op_counts() == {"multiply": 1, "add": 1}
    old.compare(new).check()


def test_a_field_of_a_tuple_of_the_program_that_replaced_another_one() -> None:
    def make(b: Builder) -> Node:
        left, right = b.input("l", 4), b.input("r", 4)
        halves = b.call("split", b.call("concatenate", b.tuple(left, right), axis=0), indices_or_sections=2, axis=0)
        return b.call("add", b.get(halves, 0), left)

    both = pat.Tuple(x, a)
    split = op.Split(op.Concatenate(both, axis=0), indices_or_sections=2, axis=0)
    unwrap = Subst(split, both, where=x.shape == a.shape, name="unwrap")
    new, trace = rewritten(RuleSet([unwrap, TWICE]), graph(make), iterative=True)
    assert trace.summary() == {"unwrap": 1, "twice": 1}
    assert ops(new) == ["multiply"]


def nested_splits() -> Subst:
    """A split of a field of a split as one split, whose fields are put together again."""
    outer = op.Split(x)
    field = outer[None]
    inner = op.Split(field, axis=outer.axis)

    def cuts(split: Any) -> list[int]:
        axis, parts = split.attrs["axis"], split.attrs["indices_or_sections"]
        size = split.args[0].shape[axis]
        return [size // parts * k for k in range(parts + 1)] if isinstance(parts, int) else [0, *parts, size]

    def target(match: Any) -> list[pat.Pattern]:
        axis, k = match[outer].attrs["axis"], match[field].attrs["index"]
        coarse, fine = cuts(match[outer]), cuts(match[inner])
        all_cuts = [*coarse[: k + 1], *[coarse[k] + cut for cut in fine[1:-1]], *coarse[k + 1 :]]
        merged = op.Split(x, indices_or_sections=tuple(all_cuts[1:-1]), axis=axis)
        more = len(fine) - 2
        own = op.StridedSlice(x, begin=(coarse[k],), end=(coarse[k + 1],), axes=(axis,))
        before, after = [merged[j] for j in range(k)], [merged[j + more] for j in range(k + 1, len(coarse) - 1)]
        return [pat.Tuple(*before, own, *after), pat.Tuple(*[merged[k + j] for j in range(more + 1)])]

    return Subst([outer, inner], target, where=[field >> inner], name="nested splits")


def test_tuple_is_no_user_of_its_fields() -> None:
    class Splits(nn.Module):
        def forward(self, v: torch.Tensor) -> list[torch.Tensor]:
            return [part.relu() for half in torch.split(v, 2, 1) for part in torch.split(half, 1, 1)]

    rule, old = nested_splits(), Workload.from_torch(Splits(), (torch.randn(2, 8),))
    new = rule(old, iterative=True)
    assert new.op_counts()["split"] == 1
    assert not rule.explain(new)
    old.compare(new).check()
