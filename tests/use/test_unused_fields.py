"""Fields of a call with several results that nothing uses: they are no users, and come back as they were."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from gsl import Subst, Workload, op, pat

x = pat.Wildcard()
split = op.Split(x)
joined = op.Concatenate([split[0], split[1]], axis=1)
rows = op.StridedSlice(x, begin=(0,), end=(4,), axes=(1,))


class Parts(nn.Module):
    """Of three fields of a split one is not used."""

    def forward(self, v: torch.Tensor) -> torch.Tensor:
        a, b, _ = torch.split(v, 2, 1)
        return torch.cat([a, b], 1)


def workload(way: str) -> Workload:
    value = torch.randn(2, 6)
    if way == "traced":
        return Workload.from_fx(torch.fx.symbolic_trace(Parts()), (value,))
    if way == "exported":
        return Workload.from_torch(Parts(), (value,))
    from tvm import relax

    builder, v = relax.BlockBuilder(), relax.Var("v", relax.TensorType([2, 6], "float32"))
    with builder.function("main", [v]):
        with builder.dataflow():
            whole = builder.emit(relax.op.split(v, 3, 1))
            a, b, _ = (builder.emit(relax.TupleGetItem(whole, index)) for index in range(3))
            result = builder.emit_output(relax.op.concat([a, b], 1))
        builder.emit_func_output(result)
    return Workload.from_relax(builder.get())


def lines(wl: Workload) -> list[str]:
    text: Any = wl.mod.code if hasattr(wl.mod, "code") else wl.mod.script()
    return [line for line in text.splitlines() if "[2]" in line]


WAYS = ("exported", "traced", "relax")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("options", [{}, {"extern_use": False}], ids=["any use", "no use outside"])
def test_fields_that_nothing_uses_do_not_count(way: str, options: Any) -> None:
    rule, old = Subst(joined, rows, **options), workload(way)
    new = rule(old)
    assert new.op_counts() == {"strided_slice": 1}
    assert lines(old)
    assert not lines(new)
    old.compare(new).check()


def test_the_only_field_that_is_used() -> None:
    class First(nn.Module):
        def forward(self, v: torch.Tensor) -> torch.Tensor:
            return torch.split(v, 2, 1)[0].relu()

    old = Workload.from_torch(First(), (torch.randn(2, 6),))
    field = split[0]
    for source in (split.uniq() > field, split >> field):
        assert len(list(Subst(source, lambda match: list(match.outputs)).match(old))) == 1


@pytest.mark.parametrize("way", WAYS)
def test_what_stays_keeps_its_unused_fields(way: str) -> None:
    old = workload(way)
    new = Subst(joined, op.Concatenate([split[1], split[0]], axis=1), name="turned")(old)
    assert len(lines(old)) == len(lines(new)) == 1
