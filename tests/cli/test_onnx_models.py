"""The command on models of ONNX."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx.external_data_helper import set_external_data

from gsl import Workload
from tests.cli.conftest import Run

TEXT = """<ir_version: 10, opset_import: ["" : 22]>
main (float[2,4] x) => (float[2,4] y) <float[4,4] w = {1,0,0,0, 0,1,0,0, 0,0,1,0, 0,0,0,2}>
{ a = MatMul(x, w) s = Sigmoid(a) y = Mul(a, s) }"""


@pytest.fixture
def model(here: Path) -> Path:
    (here / "model.onnx").write_bytes(onnx.parser.parse_model(TEXT).SerializeToString())
    return here


def test_apply(model: Path, gsl: Run) -> None:
    code, out, err = gsl("apply", "mine.py:to silu", "model.onnx", "-o", "new.onnx", "--check")
    assert (code, err) == (0, "")
    assert "wrote new.onnx" in out
    new = Workload.from_onnx(model / "new.onnx")
    assert new.op_counts() == {"matmul": 1, "multiply": 1, "sigmoid": 1}
    assert {path.name for path in model.iterdir()} >= {"model.onnx", "new.onnx"}
    code, _, err = gsl("apply", "mine.py:to silu", "model.onnx", "-o", "new.pt2")
    assert code == 2
    assert "ends in .onnx" in err


def test_matches_in_branches_and_of_operators_that_rules_declare(model: Path, gsl: Run) -> None:
    text = TEXT[: TEXT.index("main")] + """main (float[2,4] x, bool c) => (float[2,4] y) {
        y = If (c) <then_branch = one () => (float[2,4] u) { s = Sigmoid(x) u = Mul(x, s) },
                    else_branch = two () => (float[2,4] v) { v = Abs(x) }> }"""
    (model / "branches.onnx").write_bytes(onnx.parser.parse_model(text).SerializeToString())
    for rules in ("mine.py:to silu", "gsl.rules.ort:ORT"):
        code, out, err = gsl("match", rules, "branches.onnx")
        assert (code, err) == (0, "")
        assert "%y.then_branch/u" in out
    code, out, err = gsl("explain", "mine.py:to silu", "branches.onnx", "--json")
    assert (code, err) == (1, "")
    explained = json.loads(out)["inside"]["y.then_branch"]
    assert explained["matches"] == 1
    assert "in the words that are there" in explained["refused"][0]["reason"]
    assert gsl("draw", "branches.onnx", "-o", "branch.dot", "--inside", "y.else_branch")[0] == 0
    drawn = (model / "branch.dot").read_text()
    assert "abs" in drawn
    assert "sigmoid" not in drawn
    code, _, err = gsl("draw", "branches.onnx", "-o", "branch.dot", "--inside", "y")
    assert code == 2
    assert "those that it has: y.then_branch, y.else_branch" in err


def test_sizes_without_numbers_and_modules_that_there_are_not(model: Path, gsl: Run) -> None:
    symbolic = TEXT.replace("float[2,4] x", "float[N,4] x")
    assert symbolic != TEXT
    (model / "symbolic.onnx").write_bytes(onnx.parser.parse_model(symbolic).SerializeToString())
    code, _, err = gsl("apply", "mine.py:to silu", "symbolic.onnx", "-o", "new.onnx", "--check")
    assert code == 2
    assert "is symbolic; give it" in err
    assert "--sizes N=4" in err
    code, _, err = gsl("draw", "model.onnx", "-o", "model.dot", "--expand", "nope")
    assert (code, err) == (2, "gsl: error: expand: there is no module 'nope'; there are none\n")


def test_weights_in_another_file(model: Path, gsl: Run) -> None:
    proto = onnx.parser.parse_model(TEXT)
    (weight,) = proto.graph.initializer
    values = np.eye(4, dtype=np.float32)
    weight.ClearField("float_data")
    weight.raw_data = b""
    set_external_data(weight, "weights.bin")
    weight.ClearField("raw_data")
    (model / "weights.bin").write_bytes(values.tobytes())
    (model / "model.onnx").write_bytes(proto.SerializeToString())
    code, out, err = gsl("apply", "mine.py:to silu", "model.onnx", "-o", "new.onnx", "--check")
    assert (code, err) == (0, "")
    assert "new.data" in out
    onnx.checker.check_model(str(model / "new.onnx"))
    Workload.from_onnx(model / "model.onnx").compare(Workload.from_onnx(model / "new.onnx")).check()


def test_the_other_commands(model: Path, gsl: Run) -> None:
    code, out, _ = gsl("match", "mine.py:to silu", "model.onnx", "--json")
    assert code == 0
    assert json.loads(out)["rules"][0]["complete"]
    assert gsl("explain", "mine.py:near", "model.onnx")[0] == 1
    assert gsl("draw", "model.onnx", "-o", "graph.dot", "--rules", "mine.py:to silu")[0] == 0
    assert "matmul" in (model / "graph.dot").read_text()
    code, out, _ = gsl("unread", "model.onnx")
    assert (code, out) == (0, "0 of 3 calls have no canonical reading\n")


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"PK no model", "it holds no model of ONNX"),
        (onnx.parser.parse_model(TEXT.replace("Sigmoid(a)", "Sigmoid(y)")).SerializeToString(), "uses 'y' before"),
        (onnx.parser.parse_model(TEXT.replace(": 22", ": 9")).SerializeToString(), "version 9 of ONNX's operators"),
    ],
)
def test_what_is_refused(content: bytes, text: str, model: Path, gsl: Run) -> None:
    (model / "broken.onnx").write_bytes(content)
    code, out, err = gsl("match", "mine.py:to silu", "broken.onnx")
    assert (code, out) == (2, "")
    assert err.startswith("gsl: error: broken.onnx can't be read as a model of onnx.save: ")
    assert text in err
    assert err.count("\n") == 1
    assert gsl("match", "mine.py:to silu", "model.onnx", "--params", "weights.npz")[0] == 2
