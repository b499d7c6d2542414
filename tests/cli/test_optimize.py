"""``gsl optimize``: what it writes and prints, and what it returns."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import nn

from gsl import Workload
from gsl.cost import Timing
from tests.cli.conftest import Run

FAST, SLOW = Timing((1.0, 1.0, 1.0)), Timing((2.0, 2.0, 2.0))


class Waste(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(9):
            x = torch.relu(x)
        return x


@pytest.fixture
def waste(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model that does one thing again and again, and a rule that knows it."""
    torch.export.save(torch.export.export(Waste(), (torch.randn(64, 64),)), here / "waste.pt2")
    (here / "once.py").write_text(
        "from gsl import *\nx = pat.Wildcard()\nonce = Subst(op.ReLU(op.ReLU(x)), op.ReLU(x), name='once')\n"
    )
    monkeypatch.setattr("gsl.cost.optimization.in_turns", lambda *_: [SLOW, FAST])
    monkeypatch.setenv("GSL_CACHE", str(here / "cache"))
    return here


def test_a_faster_model_is_written(waste: Path, gsl: Run) -> None:
    code, out, err = gsl("optimize", "waste.pt2", "-o", "fast.pt2", "--rules", "once.py", "--report", "report.html")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].split() == ["rule", "shape", "times", "gain", "verdict", "why"]
    assert lines[1].startswith("once  float32[64, 64]  8      +")
    assert lines[-2:] == ["2.00 times faster", "wrote fast.pt2 and report.html"]
    new = Workload(torch.export.load("fast.pt2"))
    assert new.op_counts() == {"nn.relu": 1}
    Workload(torch.export.load("waste.pt2")).compare(new).check()
    page = (waste / "report.html").read_text()
    assert page.startswith("<!doctype html>")
    assert page.count("<svg") == 1
    assert 'class="bar after"' in page
    assert "http" not in page.replace("http://www.w3.org/", ""), "it needs nothing from elsewhere"


def test_json(waste: Path, gsl: Run) -> None:
    code, out, _ = gsl("optimize", "waste.pt2", "-o", "fast.pt2", "--rules", "once.py", "--json", "--threads", 1)
    found = json.loads(out)
    assert (code, found["taken"], found["speedup"], found["threads"]) == (0, True, 2.0, 1)
    assert found["written"] == ["fast.pt2"]
    assert [(row["rule"], row["verdict"]) for row in found["rules"]] == [("once", "kept")]
    assert "costs" not in found
    again = json.loads(gsl("optimize", "waste.pt2", "-o", "fast.pt2", "--rules", "once.py", "--json", "-v")[1])
    assert all("nn.relu" in again["costs"][side] for side in ("before", "after"))


def test_what_gains_nothing_is_not_written(waste: Path, gsl: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gsl.cost.optimization.in_turns", lambda *_: [FAST, FAST])
    code, out, _ = gsl("optimize", "waste.pt2", "-o", "fast.pt2", "--rules", "once.py", "-v", "--report", "why.html")
    assert code == 1
    assert "the new program is not faster as a whole" in out
    assert "before: " in out
    assert not (waste / "fast.pt2").exists()
    assert "not faster as a whole" in (waste / "why.html").read_text()
    assert gsl("optimize", "waste.pt2", "-o", "fast.pt2", "--rules", "mine.py:idle")[0] == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--report", "report.txt"], "report.txt: the name of a report ends in .html"),
        (["--report", "none/report.html"], "there is no folder none"),
        (["--rules", "once.py:twice"], "once.py has no rule 'twice'"),
        (["--rules", "once.py", "--tolerance", "0.1"], "--tolerance allows approximate rules, and none of these is"),
        (["-o", "fast.onnx"], "give a name that ends in .pt2"),
    ],
)
def test_what_can_not_be_used(arguments: list[str], message: str, waste: Path, gsl: Run) -> None:
    code, _, err = gsl("optimize", "waste.pt2", "-o", "fast.pt2", *arguments)
    assert code == 2
    assert message in err


@pytest.mark.parametrize(("command", "option", "value"), [
    *[("optimize", "--budget", value) for value in ("0", "nan", "inf", "x")], ("optimize", "--tolerance", "2"),
    *[("optimize", "--threads", value) for value in ("0", "1.5", "2000000000")], ("apply", "--max-steps", "0"),
    ("apply", "--jobs", "0"), ("match", "--limit", "0"), ("match", "--limit", "9" * 30), ("explain", "--nearest", "-1"),
])  # fmt: skip
def test_numbers_that_do_not_fit(
    command: str, option: str, value: str, gsl: Run, capfd: pytest.CaptureFixture[str]
) -> None:
    output = ["-o", "fast.pt2"] if command in ("optimize", "apply") else []
    with pytest.raises(SystemExit) as stopped:
        gsl(command, *["mine.py"] * (command != "optimize"), "waste.pt2", *output, f"{option}={value}")
    assert stopped.value.code == 2
    assert f"argument {option}: expected a" in capfd.readouterr().err
