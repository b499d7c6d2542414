"""The command, on a module of Relay that TVM saved."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import relay

from gsl import Workload
from gsl.cli import main

RULES = """
from gsl import *

x = pat.Wildcard()
half = Subst(op.Sigmoid(x), op.Tanh(x * 0.5) * 0.5 + 0.5, name="half", doc="the sigmoid by the tangent")
wrong = Subst(op.Sigmoid(x), op.Tanh(x), name="wrong")
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with rules and a model, which is the current one."""
    x = relay.var("x", shape=(2, 3))
    module = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([x], x * relay.sigmoid(x))))
    (tmp_path / "model.json").write_text(tvm.ir.save_json(module))
    (tmp_path / "mine.py").write_text(RULES)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_saved_module_is_matched_rewritten_and_drawn(here: Path) -> None:
    assert main(["match", "mine.py:half", "model.json"]) == 0
    assert main(["apply", "mine.py:half", "model.json", "-o", "new.json", "--check"]) == 0
    assert main(["draw", "new.json", "-o", "new.dot"]) == 0
    old, new = (Workload.from_relay(tvm.ir.load_json((here / name).read_text())) for name in ("model.json", "new.json"))
    assert "sigmoid" in old.op_counts()
    assert "sigmoid" not in new.op_counts()
    data = np.ones((2, 3), "float32")
    np.testing.assert_allclose(new(data), old(data), rtol=1e-6)


def test_a_result_that_differs_is_not_written(here: Path) -> None:
    assert main(["apply", "mine.py:wrong", "model.json", "-o", "new.json", "--check"]) == 1
    assert not (here / "new.json").exists()


def test_a_damaged_module_is_told(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "model.json").write_text((here / "model.json").read_text()[:200])
    assert main(["match", "mine.py:half", "model.json"]) == 2
    assert "model.json" in capsys.readouterr().err
