"""Commands on many models: a result for each, failures that stop no other, and what is returned."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from gsl import Subst, Workload
from gsl.cli import models
from tests.cli.conftest import Run
from tests.helpers.interrupts import default_handler  # noqa: F401


@pytest.fixture
def zoo(here: Path) -> Path:
    """A folder of two models and a broken one, with a file that is no model."""
    folder = here / "zoo"
    folder.mkdir()
    for name in ("b.pt2", "a.pt2"):
        (folder / name).write_bytes((here / "model.pt2").read_bytes())
    (folder / "broken.pt2").write_bytes(b"no archive")
    (folder / "notes.txt").write_text("")
    return folder


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_folder(jobs: int, zoo: Path, gsl: Run) -> None:
    code, out, err = gsl("apply", "mine.py:swish,refused", "zoo", "model.pt2", "-o", "new", "--jobs", jobs)
    assert (code, err) == (2, "")
    (head, first, second, broken, last, _, total) = out.splitlines()
    assert head.split() == ["model", "fired", "before", "after", "result"]
    assert first.split() == ["zoo/a.pt2", "1", "7", "6", "wrote", "new/a.pt2"]
    assert second.split() == ["zoo/b.pt2", "1", "7", "6", "wrote", "new/b.pt2"]
    assert broken.split(maxsplit=1)[1].strip().startswith("error: zoo/broken.pt2 is not an archive that torch")
    assert last.split() == ["model.pt2", "1", "7", "6", "wrote", "new/model.pt2"]
    assert total == "4 models: 3 written, 1 failed"
    assert files(Path("new")) == ["a.pt2", "b.pt2", "model.pt2"]
    assert models.read(Path("new/a.pt2")).op_counts()["silu"] == 1


def test_the_status_is_the_highest(zoo: Path, gsl: Run) -> None:
    (zoo / "broken.pt2").unlink()
    assert gsl("apply", "mine.py:swish", "zoo", "-o", "new")[0] == 0
    code, out, _ = gsl("apply", "mine.py:idle", "zoo", "-o", "none", "--must-fire")
    assert (code, out.splitlines()[-1]) == (1, "2 models: 2 not written")
    assert files(Path("none")) == []
    code, out, _ = gsl("apply", "mine.py:again", "zoo", "-o", "none", "--iterative")
    assert (code, out.splitlines()[-1]) == (3, "2 models: 2 failed")
    assert "error: no end after" in out


def test_json_and_text_of_each(zoo: Path, gsl: Run) -> None:
    code, out, _ = gsl("apply", "mine.py:swish", "zoo", "-o", "new", "--check", "--json")
    first, second, broken = json.loads(out)["models"]
    assert code == 2
    assert (first["model"], first["status"], first["check"]["passed"]) == ("zoo/a.pt2", 0, True)
    assert second["calls"] == {"before": 7, "after": 6}
    assert (broken["status"], "is not an archive" in broken["error"]) == (2, True)
    _, out, _ = gsl("apply", "mine.py:swish", "zoo", "-o", "new", "-v")
    assert out.count("to silu: %mul -> %silu") == 2


@pytest.mark.parametrize("jobs", [1, 2])
def test_matches(jobs: int, zoo: Path, gsl: Run) -> None:
    (zoo / "broken.pt2").unlink()
    code, out, err = gsl("match", "mine.py:swish,idle", "zoo", "--jobs", jobs)
    assert (code, err) == (0, "")
    assert [line.split() for line in out.splitlines()] == [
        ["model", "rules", "matches", "which", "rules"], ["zoo/a.pt2", "1", "1", "to", "silu"],
        ["zoo/b.pt2", "1", "1", "to", "silu"], [], ["2", "models:", "2", "matched"],
    ]  # fmt: skip
    code, out, _ = gsl("match", "mine.py:idle", "zoo", "--json")
    assert (code, [found["rules"] for found in json.loads(out)["models"]]) == (
        1, [[{"rule": "idle", "matches": [], "complete": True}]] * 2
    )  # fmt: skip


def test_a_process_that_dies_fails_alone(zoo: Path, gsl: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    known = models.FORMATS[".pt2"]

    def crash(path: Path, values: object) -> Workload:
        if path.name == "broken.pt2":
            os.kill(os.getpid(), signal.SIGKILL)
        return known.read(path, None)

    monkeypatch.setitem(models.FORMATS, ".pt2", replace(known, read=crash))
    code, out, _ = gsl("apply", "mine.py:swish", "zoo", "-o", "new", "--jobs", "2")
    assert (code, out.splitlines()[-1]) == (3, "3 models: 2 written, 1 failed")
    assert "error: its process ended with status -9" in out
    assert files(Path("new")) == ["a.pt2", "b.pt2"]


@pytest.mark.usefixtures("default_handler")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_what_is_ended_leaves_nothing_half_written(
    number: signal.Signals, zoo: Path, gsl: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An interrupt comes to all processes, as Ctrl-C does; the command that is terminated ends those it started."""

    def ended(workload: Workload, path: Path, with_values: bool) -> list[Path]:
        path.write_bytes(b"half")
        if path.name == "a.pt2":
            for process in (os.getpid(), os.getppid()) if number == signal.SIGINT else (os.getppid(),):
                os.kill(process, number)
        time.sleep(60)
        return [path]

    (zoo / "broken.pt2").unlink()
    monkeypatch.setitem(models.FORMATS, ".pt2", replace(models.FORMATS[".pt2"], write=ended))
    apply = ("apply", "mine.py:swish", "zoo", "-o", "new", "--jobs", "2")
    if number == signal.SIGINT:
        assert gsl(*apply) == (130, "", "gsl: interrupted\n")
    else:
        with pytest.raises(SystemExit, match="143"):
            gsl(*apply)
    assert (files(Path("new")), multiprocessing.active_children()) == ([], [])


@pytest.fixture
def at_fork() -> Iterator[list[Callable[[], object]]]:
    """Functions that this process calls once, after it was copied."""
    calls: list[Callable[[], object]] = []
    os.register_at_fork(after_in_parent=lambda: calls and calls.pop()())
    yield calls
    calls.clear()


@pytest.mark.usefixtures("default_handler")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("command", ["apply", "verify"])
def test_a_signal_is_not_lost_while_a_process_is_copied(
    command: str, number: signal.Signals, zoo: Path, gsl: Run, at_fork: list[Callable[[], object]]
) -> None:
    rest = ("mine.py:swish", "zoo", "-o", "new") if command == "apply" else ("mine.py:swish,idle,near,folds",)
    at_fork.append(lambda: os.kill(os.getpid(), number))
    with pytest.raises(SystemExit, match="143") if number == signal.SIGTERM else nullcontext():
        assert gsl(command, *rest, "--jobs", "2") == (130, "", "gsl: interrupted\n")
    assert multiprocessing.active_children() == []


@pytest.mark.usefixtures("default_handler")
@pytest.mark.parametrize(("command", "told"), [
    ("apply", "its process ended with status 143"), ("verify", "terminated abruptly"),
])  # fmt: skip
@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the new process may run at once")
def test_a_signal_that_comes_to_a_process_before_it_runs_ends_it(
    command: str, told: str, zoo: Path, gsl: Run, at_fork: list[Callable[[], object]]
) -> None:
    def end() -> None:
        started = Path(f"/proc/self/task/{threading.get_native_id()}/children").read_text().split()
        os.kill(int(started[-1]), signal.SIGTERM)

    rest = ("mine.py:swish", "zoo", "-o", "new") if command == "apply" else ("mine.py:swish,idle,near,folds",)
    at_fork.append(end)
    processors = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(processors)})  # so that the new process waits for this one
    try:
        status, out, err = gsl(command, *rest, "--jobs", "2")
    finally:
        os.sched_setaffinity(0, processors)
    assert status != 0
    assert told in out + err


def test_verification_that_is_terminated_ends_its_processes(
    here: Path, gsl: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ended(rule: Subst, **options: object) -> None:
        if rule.name == "to silu":
            os.kill(os.getppid(), signal.SIGTERM)
        time.sleep(60)

    monkeypatch.setattr("gsl.verify.many.verify", ended)
    with pytest.raises(SystemExit, match="143"):
        gsl("verify", "mine.py:swish,idle,near,folds", "--jobs", "2")
    assert multiprocessing.active_children() == []


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["zoo", "-o", "new.pt2"], "new.pt2: the results of many models are put into a folder; give its name"),
        (["zoo", "-o", "mine.py"], "mine.py can't be the folder of the results: File exists"),
        (["zoo", "-o", "no/new"], "no/new can't be the folder of the results: No such file or directory"),
        (["empty", "-o", "new"], "empty has no model: the name of one ends in .pt2 (torch.export.save) or "),
        (["zoo", "zoo/../zoo/a.pt2", "-o", "new"],
         "zoo/a.pt2 and zoo/../zoo/a.pt2 would both be written as new/a.pt2; rename one"),
        (["zoo", "-o", "new", "--params", "w.npz"],
         "--params has the values of one model, and several models are given"),
    ],
)  # fmt: skip
def test_usage_errors(arguments: list[str], text: str, zoo: Path, gsl: Run) -> None:
    Path("empty").mkdir()
    code, out, err = gsl("apply", "mine.py", *arguments)
    assert (code, out) == (2, "")
    assert err.startswith(f"gsl: error: {text}")
    assert not list(Path().glob("new/*"))


def test_the_graphs_of_many_models_are_printed(zoo: Path, gsl: Run) -> None:
    code, out, _ = gsl("match", "mine.py:swish", "zoo/a.pt2", "zoo/b.pt2", "--graph")
    assert code == 0
    assert out.count("return %relu") == 2
    assert out.index("zoo/a.pt2\n\n%up.weight") < out.index("zoo/b.pt2\n\n%up.weight")
