"""A folder with rules and a model, and the command run in it."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from gsl.cli import main

RULES = """\
from gsl import *

x, w = pat.Wildcard(), pat.Wildcard()
swish = Subst(x * op.Sigmoid(x), op.SiLU(x), name="to silu", doc="x sigmoid(x) = silu(x)", priority=2)
refused = Subst(op.ReLU(x), op.Sum(x, axis=1), name="refused")
wrong = Subst(op.ReLU(x), op.ReLU6(x * 100.0), name="wrong")
idle = Subst(op.Erf(x), op.Tanh(x), name="idle")
near = Subst(x * op.Tanh(x), x, name="near")
dense = op.Dense(x, w)
folds = Subst(op.ReLU(dense), op.ReLU(dense.like(x, w * 2.0)) * 0.5, name="folds")
right = RuleSet([swish, idle])
again = RuleSet([Subst(op.ReLU(x), op.ReLU(op.ReLU(x)), name="grows")])
"""
FUSION = """\
tail:
  heuristic: FAST
  pattern:
    product: {op_type: linear, child: skip}
    skip:    {op_type: add, required: false, child: relu}
    relu:    {op_type: relu}
"""
TENSAT = "(ewadd ?x (ewadd ?y ?z))=>(ewadd (ewadd ?x ?y) ?z)\n"
Run = Callable[..., tuple[int, str, str]]


class Gate(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(4, 8), nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.up(x)
        return self.down(h * torch.sigmoid(h)).relu()


@pytest.fixture(scope="session")
def saved() -> bytes:
    """A small program, as torch.export.save writes it."""
    torch.manual_seed(0)
    stream = io.BytesIO()
    torch.export.save(torch.export.export(Gate().eval(), (torch.randn(2, 4),)), stream)
    return stream.getvalue()


@pytest.fixture
def here(tmp_path: Path, saved: bytes, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with rules and a model, which is the current one."""
    for name, text in {"mine.py": RULES, "fusion.yaml": FUSION, "theirs.txt": TENSAT}.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "model.pt2").write_bytes(saved)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def gsl(capfd: pytest.CaptureFixture[str]) -> Run:
    """What the command returns, and what it prints to either stream."""

    def run(*arguments: object) -> tuple[int, str, str]:
        code = main([*map(str, arguments)])
        out, err = capfd.readouterr()
        return code, out, err

    return run
