"""The command as such: its help, its versions, what it returns, and what it gives shells to complete it."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

from gsl.cli import main
from gsl.cli.command import Command
from gsl.cli.completion import SHELLS, commands_of
from gsl.cli.entry import COMMANDS, parser
from tests.cli.conftest import RULES, Run

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = ROOT / "docs" / "cli.md"
MODEL = """<ir_version: 10, opset_import: ["" : 22]>
net (float[batch,length] x) => (float[batch,length] y) { gate = Sigmoid(x) y = Mul(x, gate) }"""
"""A model of ONNX with symbolic sizes."""


def usages(text: str) -> list[list[str]]:
    """The commands in a text, each as its words; comments and output are left out."""
    lines = [line.partition(" > ")[0].strip().removeprefix("$ ") for line in text.splitlines()]
    return [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("gsl ")]


@pytest.fixture
def everything(here: Path) -> Path:
    """A folder with all files that the examples name."""
    (here / "mine.py").write_text(RULES.replace('"idle"', '"conv-add"'))
    (here / "module.json").write_bytes((Path(__file__).parent / "data" / "dense.json").read_bytes())
    (here / "models").mkdir()
    shutil.copy(here / "model.pt2", here / "models")
    onnx.save(onnx.parser.parse_model(MODEL), here / "model.onnx")
    np.savez(here / "weights.npz", w=np.arange(12, dtype="float32").reshape(4, 3) / 10)
    return here


def test_the_help_shows_all_commands(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["--help"])
    assert stopped.value.code == 0
    out = capsys.readouterr().out
    assert all(f"  {command.name}" in out and command.summary in out for command in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_the_help_of_a_command(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([command.name, "--help"])
    out = capsys.readouterr().out
    assert command.examples.splitlines()[-1] in out
    if command.name != "completion":
        assert "returns: 0" in out
    if command.name not in ("completion", "unread", "pattern"):
        assert "is code, and is run" in " ".join(out.split())


@pytest.mark.sweep(2)
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_the_examples_of_the_help_run(command: Command, everything: Path, gsl: Run) -> None:
    examples = usages(command.examples)
    assert examples
    for arguments in examples:
        few = ["--max-examples", "30"] if command.name == "verify" else []
        code, _, err = gsl(*arguments, *few)
        assert code in (0, 1), err


def test_the_versions(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["--version"])
    assert stopped.value.code == 0
    assert re.fullmatch(r"gsl \d+\.\d+.*\ntorch \d.*\napache-tvm \S.*\nonnx \S.*\n", capsys.readouterr().out)


def test_interrupted(here: Path, gsl: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "slow.py").write_text("raise KeyboardInterrupt")
    assert gsl("list", "slow.py") == (130, "", "gsl: interrupted\n")


@pytest.mark.sweep(8)
@pytest.mark.parametrize(
    ("command", "status"),
    [
        ("list rules rules rules -v | true", (0, 141)), ("--version | true", (0, 141)),
        ("verify --help | true", (0, 141)),
        ("list rules > /dev/full", (3,)), ("--version > /dev/full", (3,)), ("--version >&-", (0,)),
        ("list rules >&-", (0,)), ("list nowhere.py 2>&-", (2,)),
    ],
)  # fmt: skip
def test_output_that_nobody_reads(command: str, status: tuple[int, ...]) -> None:
    command = f"{sys.executable} -m gsl {command}; echo ${{PIPESTATUS[0]}}"
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    env.pop("PYTHONUNBUFFERED", None)
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, env=env, check=True)
    assert int(done.stdout) in status
    told = "gsl: error: [Errno 28] No space left on device (--traceback shows where)\n"
    assert done.stderr == (told if status == (3,) else "")


@pytest.mark.parametrize(("command", "other"), [
    ("apply mine.py model.onnx -o new.onnx --sizes batch=2,length=3", "--check"),
    ("apply mine.py:swish model.pt2 -o new.pt2 --max-steps 7", "--iterative"),
    ("draw model.pt2 -o new.dot --rules mine.py:swish --iterative", "--after"),
    ("draw model.pt2 -o new.dot --after", "--rules mine.py:swish"),
])  # fmt: skip
def test_an_option_that_needs_another_one(command: str, other: str, everything: Path, gsl: Run) -> None:
    code, out, err = gsl(*command.split())
    assert (code, out) == (2, "")
    assert other.split()[0] in err
    assert gsl(*command.split(), *other.split())[0] == 0


# Completion


@pytest.mark.parametrize("shell", SHELLS)
def test_every_command_and_option_is_completed(shell: str, gsl: Run) -> None:
    code, script, _ = gsl("completion", shell)
    assert code == 0
    for command in commands_of(parser()):
        assert command.name in script
        for option in command.options:
            for name in option.names:
                assert (name.lstrip("-") if shell == "fish" else name) in script


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["gsl", "ex"], ["explain"]),
        (["gsl", "apply", "--str"], ["--strategy"]),
        (["gsl", "apply", "--strategy", "l"], ["largest", "last"]),
        (["gsl", "verify", "--fail-on", ""], ["refuted", "unchecked"]),
        (["gsl", "match", "mi"], ["mine.py"]),
        (["gsl", "completion", "z"], ["zsh"]),
        (["gsl", "match", "--limit", ""], [""]),
        (["gsl", "draw", "--rules", "fu"], ["fusion.yaml"]),
        (["gsl", "match", "mine.py", "a mo"], ["a model.pt2"]),
    ],
)
def test_bash_completes(words: list[str], offered: list[str], here: Path, gsl: Run) -> None:
    bash = shutil.which("bash")
    assert bash is not None
    (here / "a model.pt2").touch()
    (here / "gsl.bash").write_text(gsl("completion", "bash")[1])
    line = " ".join(shlex.quote(word) for word in words)
    script = (
        f"source ./gsl.bash; COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _gsl; "
        'printf "%s\\n" "${COMPREPLY[@]}"; complete -p gsl >&2'
    )
    done = subprocess.run([bash, "--norc", "-c", script], capture_output=True, text=True, check=True)
    assert sorted(done.stdout.splitlines()) == offered
    assert "-F _gsl gsl" in done.stderr


# The page


def blocks(language: str) -> list[str]:
    """The blocks of the page in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)


def test_the_sessions_of_the_page(tmp_path: Path, gsl: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every command prints what stands below it; dots stand for anything."""
    monkeypatch.chdir(tmp_path)
    rules, model = blocks("py")
    Path("mine.py").write_text(rules)
    exec(compile(model, "model", "exec"), {"__name__": "example"})
    for session in re.split(r"^\$ ", "".join(blocks("console")), flags=re.MULTILINE)[1:]:
        line, _, expected = session.partition("\n")
        (arguments,) = usages(line)
        _, out, err = gsl(*arguments)
        wanted = re.escape(expected.strip()).replace("…", ".*")
        assert re.fullmatch(wanted, f"{out}{err}".strip(), re.DOTALL), f"{line}\n{out}{err}"


def test_the_page_names_every_command_and_option() -> None:
    page = PAGE.read_text()
    for command in commands_of(parser()):
        assert f"`gsl {command.name}" in page
        for option in command.options:
            assert any(name in page for name in option.names), (command.name, option)
