"""``gsl verify``: what it prints, what it returns, and how it fails."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from gsl.cli import main
from gsl.cli.command import Terminal

ROOT = Path(__file__).resolve().parent.parent.parent
RULES = """\
from gsl import *

x, y = pat.Wildcard(), pat.Wildcard()
swish = Subst(x * op.Sigmoid(x), op.SiLU(x), name="silu")
turned = Subst(x - y, y - x, name="turned")
sundays = Subst(op.ReLU(x), op.ReLU6(x), where=lambda match: "not on Sundays", name="sundays")
"""
TENSAT = (
    "(matmul 0 (matmul 0 ?x ?y) ?z)=>(matmul 0 ?x (matmul 0 ?y ?z))\n"
    "(relu (conv2d 1 1 0 0 ?x ?w))=>(conv2d 1 1 0 2 ?x ?w)\n"
)
FEW = ["--max-examples", "30"]


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(RULES)
    return path


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    """What the command returns, and what it prints to either stream."""
    code = main(["verify", *map(str, arguments)])
    out, err = capsys.readouterr()
    return code, out, err


def test_the_verdicts_are_printed(rules: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, rules, *FEW)
    assert (code, err) == (1, "")
    table, details = out.split("\n\n", 1)
    assert re.sub(r"\b\d{3}\b", "N", table) == (
        "supported  silu     by 30 instances\n"
        "refuted    turned   another value\n"
        "unchecked  sundays  0 instances could be evaluated, 20 are needed; N were refused, most often (N) because "
        "not on Sundays"
    )
    assert details.startswith("turned: refuted (another value)\n  another value: output 0 ")
    assert "  before:\n" in details
    assert details.endswith("\n\n3 rules: 1 supported, 1 refuted, 1 unchecked\n")
    assert "import torch" not in out


@pytest.mark.parametrize(
    ("names", "options", "code", "last"),
    [
        (":silu", [], 0, "1 rule: 1 supported"),
        (":swish", [], 0, "1 rule: 1 supported"),
        (":silu,turned", [], 1, "2 rules: 1 supported, 1 refuted"),
        (":sundays", [], 0, "1 rule: 1 unchecked"),
        (":sundays", ["--fail-on", "unchecked"], 1, "1 rule: 1 unchecked"),
        (":silu", ["--fail-on", "unchecked"], 0, "1 rule: 1 supported"),
    ],
)
def test_rules_are_chosen_by_name(
    names: str, options: list[str], code: int, last: str, rules: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found, out, _ = run(capsys, f"{rules}{names}", *FEW, *options)
    assert found == code
    assert out.splitlines()[-1] == last


def test_evidence_and_programs_are_printed_on_request(rules: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, f"{rules}:silu,turned", *FEW, "-v", "--mutate")
    assert "silu: supported by 30 instances\n  30 instances evaluated" in out
    assert "\nimport torch\n" in out
    assert "of the mutants refuted" in out.split("\n\n")[0]


def test_json(rules: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, rules, *FEW, "--seed", 3, "--json")
    found = json.loads(out)
    assert code == 1
    assert [found[name] for name in ("max_examples", "seed", "supported", "refuted", "unchecked")] == [30, 3, 1, 1, 1]
    silu, turned, sundays = found["rules"]
    assert (silu["rule"], silu["verdict"], silu["evaluated"]) == ("silu", "supported", 30)
    assert turned["counterexample"]["kind"] == "value"
    with pytest.raises(AssertionError):
        exec(turned["counterexample"]["code"], {})
    assert sundays["reason"].endswith("not on Sundays")


def test_equal_seeds_print_the_same(rules: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = (run(capsys, rules, *FEW, "--seed", 5) for _ in range(2))
    assert first == second


def test_proofs(rules: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("z3")
    code, out, _ = run(capsys, f"{rules}:silu,turned", *FEW, "--prove")
    assert code == 1
    assert out.splitlines()[0] == "proved   silu    in 5 cases"
    assert out.splitlines()[-1] == "2 rules: 1 proved, 1 refuted"
    _, out, _ = run(capsys, f"{rules}:silu", *FEW, "--prove", "-v")
    assert "  assumed: numbers are real" in out
    _, out, _ = run(capsys, f"{rules}:silu,turned", *FEW, "--prove", "--json")
    silu, turned = json.loads(out)["rules"]
    assert silu["proof"].startswith("silu: proved in 5 cases")
    assert turned["unproved"].startswith("output 0 is ")


def test_verdicts_are_kept(rules: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, again = (run(capsys, rules, *FEW, "--keep", tmp_path / "kept") for _ in range(2))
    assert first == again
    assert (tmp_path / "kept").is_file()


def test_rules_of_other_systems(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "theirs.txt"
    path.write_text(TENSAT)
    code, out, err = run(capsys, path, *FEW)
    assert code == 0
    assert out.startswith("supported  tensat-1  by 30 instances\n")
    assert err.startswith("gsl: warning: 1 of the 2 rules of theirs.txt are not imported (tensat-2)")


def test_a_module_and_a_file_together(rules: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "rules:copy-identity", f"{rules}:silu", *FEW)
    assert code == 0
    table = ["supported  copy-identity  by 30 instances", "supported  silu           by 30 instances"]
    assert out.splitlines()[:2] == table


def test_a_rule_is_found_once_wherever_it_stands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "sets.py"
    path.write_text(
        "from gsl import *\nx = pat.Wildcard()\none = Subst(op.Copy(x), x, name='one')\n"
        "some = [one, Subst(op.Dropout(x), x, name='two')]\nmore = RuleSet(some)\nby_name = {'one': one}\n"
    )
    _, out, _ = run(capsys, path, *FEW)
    assert out.splitlines()[-1] == "2 rules: 2 supported"
    _, out, _ = run(capsys, path, f"{path}:two", *FEW)
    assert out.splitlines()[-1] == "2 rules: 2 supported"


def test_modules_beside_a_file_can_be_imported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "leaves_of_mine.py").write_text("from gsl import pat\nx = pat.Wildcard()\n")
    path = tmp_path / "user.py"
    path.write_text("from gsl import *\nfrom leaves_of_mine import x\nrule = Subst(op.Copy(x), x, name='copy')\n")
    before = list(sys.path)
    assert run(capsys, path, *FEW)[0] == 0
    assert sys.path == before


# Failures


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["{rules}:sliu"], "{rules} has no rule 'sliu': did you mean 'silu'?"),
        (["{rules}:"], "'{rules}:': names of rules stand after the colon, as in {rules}:swish"),
        (["nowhere.py"], "there is no file nowhere.py"),
        (["no/where"], "there is no file no/where"),
        (["gsl.nowhere"], "there is neither a file nor a module gsl.nowhere"),
        (["gsl.errors"], "gsl.errors has no rules: a rule is a Subst, or in a RuleSet or list, at module level"),
        ([":swish"], "':swish': names of rules stand after the colon, as in rules.py:swish"),
        (["{rules}", "--keep", "."], ". is a folder; give the name of a file in it"),
        (["{rules}", "--keep", "{rules}/kept"], "{rules}/kept can't be written: Not a directory"),
        (["{rules}", "--keep", "{rules}"], "--keep: {rules} is no file of verdicts; give another name"),
    ],
)
def test_usage_errors(arguments: list[str], text: str, rules: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, *(argument.format(rules=rules) for argument in arguments))
    assert (code, out) == (2, "")
    assert err == f"gsl: error: {text.format(rules=rules)}\n"


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        ("rules.md", "# Rules", "rules are read from files that end in .py, .pb, .txt"),
        ("syntax.py", "x = (", "SyntaxError: '(' was never closed (syntax.py, line 1) (--traceback shows where)"),
        ("name.py", "x = 1\ny = z", "line 2: NameError: name 'z' is not defined (--traceback shows where)"),
        ("rule.py", "from gsl import *\nx = op.RelU", "rule.py:2: gsl.op has no operator 'RelU': did you mean 'ReLU'"),
        ("rules.txt", "(relu (tnah ?x))=>?x", "line 1, column 8: "),
        ("rules.pb", "nonsense", "rules.pb"),
    ],
)
def test_files_that_cannot_be_read(
    name: str, content: str, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / name
    path.write_text(content)
    code, out, err = run(capsys, path)
    assert (code, out) == (2, "")
    assert err.startswith(f"gsl: error: {path}:")
    assert text in err
    assert err.count("\n") == 1


def test_a_traceback_is_shown_on_request(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "name.py"
    path.write_text("y = z")
    code, _, err = run(capsys, path, "--traceback")
    assert code == 2
    assert "Traceback (most recent call last)" in err
    assert err.splitlines()[-1] == f"gsl: error: {path}: line 1: NameError: name 'z' is not defined"


def test_a_rule_that_fails_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "fails.py"
    path.write_text(
        "from gsl import *\nx = pat.Wildcard()\n"
        "rule = Subst(op.Exp(x), op.Exp(x + 0.0), where=lambda match: 1 / 0, name='fails')\n"
    )
    code, out, err = run(capsys, path)
    assert (code, err) == (0, "")
    assert "fails" in out
    assert "ZeroDivisionError" in out


@pytest.mark.parametrize("arguments", [[], ["verify"], ["verfy"], ["verify", "rules", "--fail-on", "doubt"]])
def test_what_the_parser_refuses(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2
    assert "usage: gsl" in capsys.readouterr().err


# Terminals


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_colours_and_a_bar() -> None:
    pytest.importorskip("rich")
    out, err = Screen(), Screen()
    terminal = Terminal.of(out, err)
    assert list(terminal.progress([1, 2, 3], 3, "verifying")) == [1, 2, 3]
    terminal.table([("refuted", "turned", "another value", "")])
    assert "verifying" in err.getvalue()
    assert "refuted" in out.getvalue()
    assert out.getvalue().split() == ["refuted", "turned", "another", "value"] or "\x1b[" in out.getvalue()


def test_without_rich_the_text_is_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rich.progress", None)
    out, err = Screen(), Screen()
    terminal = Terminal.of(out, err)
    assert list(terminal.progress([1, 2], 2, "verifying")) == [1, 2]
    terminal.table([("refuted", "turned", "another value", ""), ("supported", "x", "", "")])
    assert out.getvalue() == "refuted    turned  another value\nsupported  x\n"
    assert err.getvalue() == ""


@pytest.mark.long
def test_as_a_process(rules: Path) -> None:
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "gsl", "verify", f"{rules.name}:turned", *FEW]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=rules.parent, env=env)
    assert done.returncode == 1, done.stderr
    assert done.stdout.startswith("refuted  turned  another value\n")
    assert done.stderr == ""
