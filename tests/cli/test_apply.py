"""``gsl apply``: what it writes and prints, what it returns, and how it fails."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from gsl import Workload
from gsl.cli import ir_modules, main, models


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    """What the command returns, and what it prints to either stream."""
    code = main(["apply", *map(str, arguments)])
    out, err = capsys.readouterr()
    return code, out, err


def load(path: str) -> Workload:
    return Workload(torch.export.load(path))


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} - {"__pycache__"}  # of rules in Python


def test_rules_of_python(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "mine.py:swish,refused,idle", "model.pt2", "-o", "new.pt2", "--check", "-v")
    assert (code, err) == (0, "")
    assert out == """\
rule     fired  refused
to silu  1      0
refused  0      1

to silu: %mul -> %silu
refused refused at %relu: %relu is float32[2, 4], but its replacement <sum: sum> is float32[2]

1 of 3 rules fired, 1 time in all; 7 calls before, 6 after
model and new agree on 2 outputs of 2 runs
wrote new.pt2
"""
    assert load("new.pt2").op_counts()["silu"] == 1
    load("model.pt2").compare(load("new.pt2")).check()
    assert files(here) == {"mine.py", "fusion.yaml", "theirs.txt", "model.pt2", "new.pt2"}


@pytest.mark.parametrize(
    ("rules", "fired"),
    [
        ("mine.py:right", {"to silu": 1, "idle": 0}),
        ("mine.py:right,wrong", {"to silu": 1, "idle": 0, "wrong": 1}),
        ("fusion.yaml", {"tail": 1, "tail without skip": 0}),
        ("fusion.yaml:tail without skip", {"tail without skip": 1}),
        ("theirs.txt", {"tensat-1": 0}),
        ("rules:copy-identity", {"copy-identity": 0}),
    ],
)
def test_where_rules_come_from(
    rules: str, fired: dict[str, int], here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(capsys, rules, "model.pt2", "-o", "new.pt2", "--json")
    assert (code, err) == (0, "")
    counted = {row["rule"]: row["fired"] for row in json.loads(out)["rules"]}
    assert list(counted) == list(fired)
    assert sum(counted.values()) == sum(fired.values())


def test_groups_of_a_file_of_fusion_rules(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "fusion.yaml:tail", "model.pt2", "-o", "new.pt2", "--check")
    assert code == 0
    assert "\n\ngroup  made\ntail   1\n\n1 of 2 rules fired, 1 time in all" in out
    (group,) = load("new.pt2").groups().values()
    assert (group.name, dict(group.attrs)) == ("tail", {"priority": 0, "heuristic": "FAST"})
    # What a model has already is not counted.
    code, out, _ = run(capsys, "fusion.yaml", "new.pt2", "-o", "newer.pt2", "--json")
    assert (code, json.loads(out)["groups"]) == (0, {})
    assert len(load("newer.pt2").groups()) == 1


def test_a_result_that_differs_is_not_written(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = files(here)
    code, out, err = run(capsys, "mine.py:wrong", "model.pt2", "-o", "new.pt2", "--check")
    assert (code, err) == (1, "")
    assert "model and new differ in 2 of 2 outputs of 2 runs; introduced by step 1 of 1: wrong" in out
    assert out.endswith("nothing was written, because the result differs from the model\n")
    assert files(here) == before
    code, out, _ = run(capsys, "mine.py:wrong", "model.pt2", "-o", "new.pt2", "--check", "--json")
    found = json.loads(out)
    assert (code, found["check"]["passed"], found["written"]) == (1, False, [])
    # Without --check, nobody looks.
    assert run(capsys, "mine.py:wrong", "model.pt2", "-o", "new.pt2")[0] == 0


def test_json(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "mine.py:swish,refused,folds", "model.pt2", "-o", "new.pt2", "--check", "--json")
    found = json.loads(out)
    assert code == 0
    assert [(row["rule"], row["fired"]) for row in found["rules"]] == [("to silu", 1), ("refused", 0), ("folds", 0)]
    (refusal,) = found["rules"][1]["refused"]
    assert refusal["at"] == ["relu"]
    assert "its replacement" in refusal["reason"]
    assert (found["groups"], found["calls"], found["folded"]) == ({}, {"before": 7, "after": 6}, 0)
    assert (found["check"]["passed"], found["written"]) == (True, ["new.pt2"])


def test_until_nothing_matches(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "mine.py:again", "model.pt2", "-o", "new.pt2", "--iterative")
    assert code == 3
    assert err.startswith("gsl: error: ")
    assert err.count("\n") == 1
    assert not (here / "new.pt2").exists()
    code, _, err = run(capsys, "mine.py:again", "model.pt2", "-o", "new.pt2", "--iterative", "--max-steps", "7")
    assert (code, "7" in err) == (3, True)
    assert run(capsys, "mine.py:again", "model.pt2", "-o", "new.pt2")[0] == 0
    assert load("new.pt2").op_counts()["nn.relu"] == 2


def test_no_rule_fires(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "mine.py:idle", "model.pt2", "-o", "new.pt2")
    assert code == 0
    assert out == "no rule fired, of 1; 7 calls before, 7 after\nwrote new.pt2, the model as it was\n"
    assert str(load("new.pt2")) == str(load("model.pt2"))


# The file that is written


def test_the_model_itself_may_be_replaced(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "link.pt2").symlink_to("model.pt2")
    assert run(capsys, "mine.py:swish", "model.pt2", "-o", "link.pt2")[0] == 0
    assert (here / "link.pt2").is_symlink()
    assert load("model.pt2").op_counts()["silu"] == 1


def test_a_failure_while_writing_leaves_the_old_file(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "new.pt2").write_text("old")
    before = files(here)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    code, out, err = run(capsys, "mine.py:swish", "model.pt2", "-o", "new.pt2")
    assert (code, out) == (2, "")
    assert "No space left on device" in err
    assert (here / "new.pt2").read_text() == "old"
    assert files(here) == before


def test_the_file_has_the_usual_permissions(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(capsys, "mine.py:swish", "model.pt2", "-o", "new.pt2")
    assert (here / "new.pt2").stat().st_mode == (here / "mine.py").stat().st_mode
    (here / "new.pt2").chmod(0o600)
    run(capsys, "mine.py:swish", "model.pt2", "-o", "new.pt2")
    assert (here / "new.pt2").stat().st_mode & 0o777 == 0o600


# Failures


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["mine.py", "none.pt2", "-o", "new.pt2"], "there is no file none.pt2"),
        (["mine.py", "mine.py", "-o", "new.pt2"], "mine.py: the name of a model ends in .pt2 (torch.export.save) or "
         ".json (tvm.ir.save_json) or .onnx (onnx.save)"),
        (["mine.py", "model.pt2", "-o", "new.pth"], "new.pth: the name of a model ends in .pt2 (torch.export.save) "
         "or .json (tvm.ir.save_json) or .onnx (onnx.save)"),
        (["mine.py", "model.pt2", "-o", "new.json"], "new.json: a model is written as it was read: give a name that "
         "ends in .pt2"),
        (["mine.py", "model.pt2", "-o", "no/new.pt2"], "there is no folder no"),
        (["mine.py", "model.pt2", "-o", "folder.pt2"], "folder.pt2 is a folder"),
        (["mine.py", "nowhere.pt2", "-o", "new"], "there is no file nowhere.pt2"),
        (["bad.yaml", "model.pt2", "-o", "new.pt2"], "bad.yaml:3:31: 'a' has a child 'bb'"),
        (["mine.py:swsh", "model.pt2", "-o", "new.pt2"], "mine.py has no rule 'swsh': "),
        (["mine.py", "model.pt2", "-o", "new.pt2", "--params", "w.npz"], "there is no file w.npz"),
        (["mine.py", "model.pt2", "-o", "new.pt2", "--params", "values.npz"],
         "model.pt2 has its weights, so it takes no --params"),
        (["mine.py", "model.pt2", "-o", "new.pt2", "--params", "mine.py"],
         "mine.py is not an archive of arrays that numpy.savez wrote, or only a part of one: File is not a zip file"),
    ],
)  # fmt: skip
def test_usage_errors(arguments: list[str], text: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "folder.pt2").mkdir()
    (here / "bad.yaml").write_text("r:\n  pattern:\n    a: {op_type: relu, child: bb}\n    b: {op_type: tanh}\n")
    np.savez(here / "values.npz", w=np.ones(2))
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (2, "")
    assert err.startswith(f"gsl: error: {text}")
    assert err.count("\n") == 1
    assert not (here / "new.pt2").exists()


# TVM


@pytest.fixture
def module(here: Path) -> Path:
    (here / "module.json").write_bytes((Path(__file__).parent / "data" / "dense.json").read_bytes())
    np.savez(here / "weights.npz", w=np.arange(12, dtype="float32").reshape(4, 3) / 10)
    return here


def test_a_module_of_tvm(module: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["mine.py:folds", "module.json", "--params", "weights.npz", "-o", "new.json", "--check"]
    code, out, err = run(capsys, *arguments)
    if ir_modules.cannot_save():
        # Some versions of TVM crash; then there must be no output, and a line that says so.
        assert (code, out) == (2, "")
        assert "crashes when it saves a module" in err
        assert not (module / "new.json").exists()
        return
    assert code == 0, err
    assert out.endswith("wrote new.npz and new.json\n")
    old = models.read(module / "module.json", module / "weights.npz")
    new = models.read(module / "new.json", module / "new.npz")
    assert list(old.inputs) == list(new.inputs)
    old.compare(new).check()
    assert new.op_counts()["nn.relu"] == 1
    (value,) = np.load(module / "new.npz").values()
    assert np.allclose(np.sort(value.flat), np.arange(12) / 5)


# The command as such


@pytest.mark.long
def test_as_a_process(here: Path) -> None:
    root = Path(__file__).resolve().parent.parent.parent
    env = {**os.environ, "PYTHONPATH": str(root)}
    command = [sys.executable, "-m", "gsl", "apply", "mine.py:swish", "model.pt2", "-o", "new.pt2", "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("wrote new.pt2\n")
    assert done.stderr == ""
