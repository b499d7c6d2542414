"""What is told in one line about files that can't be used or written, and about models without inputs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from gsl import Workload
from gsl.cli import main
from gsl.errors import FrontEndError

DEFINES = """\
import torch

@torch.library.custom_op("gsl_elsewhere::doubled", mutates_args=())
def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2

@doubled.register_fake
def _(x):
    return torch.empty_like(x)
"""
SAVES = """
import definitions, torch
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(definitions.doubled(x))
torch.export.save(torch.export.export(Model(), (torch.ones(3),)), "model.pt2")
"""


def last_line(capsys: pytest.CaptureFixture[str]) -> str:
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1, lines
    return lines[0]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.pt2"
    torch.export.save(torch.export.export(nn.ReLU(), (torch.ones(3),)), path)
    return path


def test_an_operator_that_another_module_defines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "definitions.py").write_text(DEFINES)
    subprocess.run([sys.executable, "-c", SAVES], cwd=tmp_path, check=True, capture_output=True)
    assert main(["unread", str(tmp_path / "model.pt2")]) == 2
    assert last_line(capsys).endswith(
        "model.pt2 needs the operator gsl_elsewhere::doubled: give --import with the module that defines it"
    )


def test_a_name_that_is_too_long(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["apply", "rules:BOOK", str(model), "-o", str(tmp_path / f"{'n' * 300}.pt2")]) == 2
    assert last_line(capsys).endswith("… can't be written: File name too long")
    assert main(["apply", "rules:BOOK", f"{'n' * 300}.pt2", "-o", str(tmp_path / "new.pt2")]) == 2
    assert "can't be read: File name too long" in last_line(capsys)


def test_a_full_disk(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any) -> None:
        raise RuntimeError("PytorchStreamWriter failed writing file data/0: file write failed\nand more")

    monkeypatch.setattr(torch.export, "save", fails)
    assert main(["apply", "rules:BOOK", str(model), "-o", str(tmp_path / "new.pt2")]) == 2
    assert "new.pt2 can't be written: torch could not write the whole file: Pytorch" in last_line(capsys)
    assert [path.name for path in tmp_path.iterdir()] == ["model.pt2"]


def test_a_model_without_example_inputs() -> None:
    with pytest.raises(FrontEndError, match=r"ReLU can't be called with these example inputs: missing .*'input'; give"):
        Workload.from_torch(nn.ReLU())
