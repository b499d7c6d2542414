"""Costs of models of ONNX, measured by onnxruntime, and what pays of rules."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import gsl
from gsl import Subst, Workload, op, pat
from gsl.cli import entry
from gsl.errors import WorkloadError
from gsl.front.base import Stepped
from tests.front.onnx.onnx_helpers import check, workload

pytest.importorskip("onnxruntime")

X = pat.Wildcard()
ONCE = Subst(op.Negative(op.Negative(X)), X, name="negative twice")
SLOWER = Subst(op.ReLU(X), op.Maximum(op.Abs(op.Abs(op.Exp(op.Tanh(X)))) * 0.0 + X, 0.0), name="slower")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GSL_CACHE", str(tmp_path / "cache"))


def many(count: int, shape: str = "float[n,256]") -> Workload:
    body = " ".join(f"a{n} = Neg({f'a{n - 1}' if n else 'x'})" for n in range(count))
    return workload(f"{body} m = MatMul(a{count - 1}, w) y = Relu(m)", f"{shape} x", f"{shape} y",
                    more="float[256,256] w = {" + ",".join(["0.01"] * 256 * 256) + "}")  # fmt: skip


def test_steps() -> None:
    wl = many(2, "float[4,256]")
    program = wl.program
    assert isinstance(program, Stepped)
    steps = program.steps(wl.graph)
    assert [step.nodes[-1].op for step in steps] == ["negative", "negative", "matmul", "nn.relu"]
    assert [step.weights for step in steps] == [0, 0, 256 * 256 * 4, 0]
    assert steps[0].key == steps[1].key != steps[3].key
    for copies in (1, 2):
        (found,) = {program.alone(steps[2:], copies=copies)().shape}  # type: ignore[attr-defined]
        assert found == (4, 256)


def test_costs_are_those_of_the_calls() -> None:
    wl = many(3, "float[64,256]")
    costs = wl.cost(threads=1)
    assert {row.name for row in costs.by("operator")} == {"negative", "matmul", "nn.relu"}
    assert costs.by("operator")[0].name == "matmul"
    assert not any(call.estimated for call in costs)
    known = Workload(wl.model).cost(threads=1)
    assert [call.value for call in known] == [call.value for call in costs]  # kept, and not measured again


def test_symbolic_sizes_are_those_of_the_example() -> None:
    wl = many(3)
    with pytest.raises(WorkloadError, match="no example is known"):
        wl.cost("analytic")
    small, large = (Workload.from_onnx(wl.model, [np.ones((n, 256), np.float32)]) for n in (1, 512))
    assert large.cost("analytic").total > small.cost("analytic").total
    assert large.cost(threads=1).total > small.cost(threads=1).total
    assert not any(call.estimated for call in large.cost(threads=1))
    assert ONCE(large).example_inputs is not None
    with pytest.raises(WorkloadError, match="should be float32"):
        wl.with_example_inputs([np.ones((1, 255), np.float32)])


def test_optimize(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    many(16).save(path)
    new, report = gsl.optimize(path, [np.ones((256, 256), np.float32)], rules=ONCE, budget=6, threads=1)
    assert report.taken, report.decision
    assert new.op_counts() == {"matmul": 1, "nn.relu": 1}
    assert new.model.graph.inputs[0].shape[0].value == "n"
    check(new.model)


def test_a_rule_that_does_not_pay_is_dropped() -> None:
    wl = many(2, "float[64,256]")
    new, report = gsl.optimize(wl, rules=SLOWER, budget=3, threads=1)
    assert not report.taken
    assert new.model is wl.model


def test_in_a_shell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    many(16).save(tmp_path / "model.onnx")
    rules = tmp_path / "mine.py"
    rules.write_text("from gsl import *\nx = pat.Wildcard()\n"
                     "once = Subst(op.Negative(op.Negative(x)), x, name='once')\n")  # fmt: skip
    model, out = str(tmp_path / "model.onnx"), tmp_path / "fast.onnx"
    apply = ["apply", str(rules), model, "-o", str(out), "--check", "--iterative"]
    assert entry.main([*apply, "--sizes", "n=3"]) == 0
    assert "agree" in capsys.readouterr().out
    out.unlink()
    assert entry.main(apply) != 0
    assert "symbolic" in capsys.readouterr().err
    optimize = ["optimize", model, "-o", str(out), "--rules", str(rules), "--budget", "6", "--threads", "1"]
    assert entry.main([*optimize, "--sizes", "n=256"]) == 0
    assert Workload.from_onnx(out).op_counts() == {"matmul": 1, "nn.relu": 1}
    with pytest.raises(SystemExit):
        entry.main([*apply, "--sizes", "n"])
    assert "as batch=2,length=16" in capsys.readouterr().err
