"""What is told about calls that have no canonical reading."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from gsl import Subst, Workload, op, pat
from gsl.cli import main


class Strange(nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        rows = x.new_zeros(3, 4)
        rows[0].fill_(1)
        return F.pad(x, (1, -1)), torch.special.erfinv(x), torch.special.erfinv(x + rows), x.to("meta")


@pytest.fixture(scope="module")
def strange() -> Workload:
    return Workload.from_torch(Strange(), (torch.rand(3, 4),))


def test_unread_calls_have_their_reasons(strange: Workload) -> None:
    found = strange.unread()
    assert len(found) == 7
    first = next(iter(found))
    assert (first.op, len(first.names)) == ("aten.special_erfinv.default", 2)
    assert first.reason == "no canonical operator is spelled so"
    reasons = {each.op: each.reason for each in found}
    assert "pad=[1, -1]" in reasons["aten.pad.default"]
    assert "has to meet: len(widths) % 2 == 0" in reasons["aten.pad.default"]
    assert reasons["aten.fill_.Scalar"] == "it changes an operand in place, which other calls can see"
    assert reasons["aten.select.int"] == "its result may be changed in place by another call"
    assert reasons["aten.to.dtype_layout"] == "its result may lie on another device than its operand"
    assert str(found).startswith("7 of 8 calls have no canonical reading")


def test_explanations_tell_why_a_call_in_the_way_is_unread() -> None:
    wl = Workload.from_torch(PaddedAndCut(), (torch.rand(3, 4),))
    x = pat.Wildcard()
    explained = Subst(op.ReLU(op.Pad(x)), op.ReLU(x)).explain(wl)
    assert "hint: %pad has no canonical reading: " in str(explained)
    assert "pad=[1, -1]" in explained.hint
    native = Subst(op.ReLU(pat.Call(torch.ops.aten.special_erfinv.default, x)), op.ReLU(x))
    assert not native.explain(wl).hint


class PaddedAndCut(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(F.pad(x, (1, -1))) + F.pad(x.erfinv(), (1, 0))[:, 1:]


def test_sizes_are_not_unread() -> None:
    batch = torch.export.Dim("batch", min=2)
    exported = torch.export.export(Doubled(), (torch.rand(3, 4),), dynamic_shapes=({0: batch},))
    found = Workload.from_exported(exported).unread()
    assert "sym_size" in str(exported.graph)
    assert (len(found), str(found)) == (0, "0 of 2 calls have no canonical reading")


class Doubled(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x * 2).reshape(x.shape[0] * 4)


def test_unread_calls_in_a_shell(strange: Workload, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "strange.pt2"
    torch.export.save(strange.exported, path)
    assert main(["unread", str(path)]) == 1
    assert "aten.special_erfinv.default" in capsys.readouterr().out
    assert main(["unread", str(path), "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["calls"] == 8
    assert {"op": "aten.special_erfinv.default", "names": ["special_erfinv", "special_erfinv_1"],
            "reason": "no canonical operator is spelled so"} in told["unread"]  # fmt: skip


def test_unread_calls_of_relax_have_their_reasons() -> None:
    from tvm.script import ir as I
    from tvm.script import relax as R

    @I.ir_module
    class Module:
        @R.function
        def main(  # type: ignore[no-untyped-def]
            x: R.Tensor((2, 3, 4), "float32"), w: R.Tensor((4,), "float32"), u: R.Tensor(ndim=2, dtype="float32")
        ):
            with R.dataflow():
                a = R.nn.relu(u)
                b = R.cumprod(x, axis=0)
                c = R.nn.layer_norm(x, w, w, axes=[-1], center=False)
                _sizes = R.shape_of(u)
                gv = (a, b, c)
                R.output(gv)
            return gv

    found = Workload.from_relax(Module).unread()
    reasons = {each.op: each.reason for each in found}
    assert reasons["relax.nn.relu"] == "the shape or dtype of u is not known"
    assert reasons["relax.cumprod"] == "no canonical operator is spelled so"
    assert "no reading with float32[2, 3, 4], float32[4], float32[4], axes=(-1,)" in reasons["relax.nn.layer_norm"]
    assert "has to meet: center and scale" in reasons["relax.nn.layer_norm"]
    assert "relax.shape_of" not in reasons
