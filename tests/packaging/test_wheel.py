"""The wheel, in an environment of its own that has the core dependencies alone, and with more of them."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from dataclasses import dataclass
from email.message import Message
from email.parser import Parser
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent.parent.parent
SOURCES = ("gsl", "pyproject.toml", "README.md", "LICENSE")
SITE = Path(sysconfig.get_path("purelib"))
RULE = """\
from gsl import *
x = pat.Wildcard()
rule = Subst(x * op.Sigmoid(x), op.SiLU(x), name="silu")
"""


@dataclass(frozen=True)
class Environment:
    """An environment with the wheel in it, and nothing of this one but what is named."""

    folder: Path

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment in its folder."""
        program = self.folder / "bin" / command[0]
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "COVERAGE"))}
        return subprocess.run(
            [str(program), *command[1:]], capture_output=True, text=True, cwd=self.folder, env=kept, check=False
        )

    def printed(self, *command: str) -> str:
        """What a program prints that succeeds."""
        done = self.run(*command)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def lend(self, *names: str) -> None:
        """Let distributions that are installed here be seen there, without copying them."""
        for name in names:
            found = metadata.distribution(name)
            tops = {Path(file).parts[0] for file in found.files or ()} - {"..", "bin", "__pycache__"}
            for top in tops:
                link = self.site / top
                if not link.exists():
                    link.symlink_to(found.locate_file(top))  # type: ignore[arg-type]

    @property
    def site(self) -> Path:
        (found,) = self.folder.glob("lib/python*/site-packages")
        return found


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy of what belongs to it, because setuptools leaves files beside the sources."""
    folder = tmp_path_factory.mktemp("build")
    (folder / "source").mkdir()
    for name in SOURCES:
        source = ROOT / name
        copy = shutil.copytree if source.is_dir() else shutil.copy
        copy(source, folder / "source" / name)
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "--no-index", "-w"]
    done = subprocess.run([*command, folder, folder / "source"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (found,) = folder.glob("*.whl")
    return found


def environment(wheel: Path, folder: Path) -> Environment:
    """A new environment with the wheel alone."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python")]
    install = [*pip, "install", "-q", "--no-deps", "--no-index", "--no-compile", str(wheel)]
    subprocess.run(install, check=True, capture_output=True)
    (folder / "mine.py").write_text(RULE)
    return Environment(folder)


@pytest.fixture(scope="module")
def core(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """An environment with the core dependencies, and what these need."""
    made = environment(wheel, tmp_path_factory.mktemp("core"))
    made.lend("numpy", "sympy", "mpmath")
    return made


@pytest.fixture(scope="module")
def about(wheel: Path) -> Message:
    """What the wheel says about itself."""
    with zipfile.ZipFile(wheel) as opened:
        (name,) = (name for name in opened.namelist() if name.endswith(".dist-info/METADATA"))
        return Parser().parsestr(opened.read(name).decode())


# What is in it


def test_everything_is_in_the_wheel(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as opened:
        names = set(opened.namelist())
    sources = {str(path.relative_to(ROOT)) for path in (ROOT / "gsl").rglob("*.py")}
    assert {name for name in names if ".dist-info/" not in name} == {*sources, "gsl/py.typed"}
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_what_the_wheel_says(about: Message) -> None:
    assert (about["Name"], about["License-Expression"]) == ("gsl", "Apache-2.0")
    assert about["License-File"] == "LICENSE"
    assert about["Requires-Python"] == ">=3.10"
    assert {*about.get_all("Provides-Extra", [])} >= {"torch", "tvm", "viz", "yaml", "verify", "cli", "bench", "dev"}
    versions = {line.rpartition(" ")[2] for line in about.get_all("Classifier", []) if " 3." in line}
    assert {"3.10", "3.11", "3.12", "3.13"} <= versions
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"\n## {about['Version']}" in changes


def test_the_core_is_small(about: Message) -> None:
    required = [Requirement(line) for line in about.get_all("Requires-Dist", [])]
    assert {need.name for need in required if need.marker is None} == {"numpy", "sympy"}


def test_the_tested_versions_are_in_the_ranges(about: Message) -> None:
    """What the tests are run with is allowed, and whatever is required has a version that the tests are run with."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = dict(line.split("==") for line in lines if "==" in line)
    for line in about.get_all("Requires-Dist", []):
        need = Requirement(line)
        assert need.specifier, f"{need} has no lower bound"
        assert need.name in pinned, f"{need} is in no line of constraints.txt"
        assert need.specifier.contains(pinned[need.name]), f"{need}, but {pinned[need.name]} is tested"


# With the core dependencies alone


def test_a_rule_is_written_without_a_framework(core: Environment) -> None:
    assert core.printed("python", "-c", f"{RULE}print(rule)").startswith("silu\n  source %1\n    x0 = Wildcard\n")
    missing = "import importlib.util as u; print([n for n in ('torch', 'tvm', 'yaml', 'rich') if u.find_spec(n)])"
    assert core.printed("python", "-c", missing) == "[]\n"


@pytest.mark.sweep(3)
@pytest.mark.parametrize(
    ("command", "text"),
    [
        (["gsl", "--help"], "Rewrite a model in a file by rules."),
        (["gsl", "apply", "--help"], "gsl apply rules:BOOK model.pt2 -o smaller.pt2"),
        (["gsl", "--version"], "torch is not installed"),
        (["gsl", "list", "rules:BOOK"], "conv-batch-norm"),
        (["gsl", "list", "mine.py", "-v"], "%1 = multiply(x0, %0)"),
        (["gsl", "completion", "bash"], "complete -o filenames -F _gsl gsl"),
        (["python", "-m", "gsl", "list", "mine.py", "--json"], '"rule": "silu"'),
    ],
)
def test_the_command_without_a_framework(command: list[str], text: str, core: Environment) -> None:
    assert text in core.printed(*command)


@pytest.mark.sweep(3)
@pytest.mark.parametrize(
    ("command", "mend"),
    [
        (["verify", "mine.py"], "pip install"),
        (["match", "mine.py", "model.pt2"], "needs torch: pip install torch"),
        (["apply", "mine.py", "model.json", "-o", "new.json"], "pip install apache-tvm"),
        (["list", "fusion.yaml"], "pip install pyyaml"),
    ],
)
def test_what_is_missing_is_told(command: list[str], mend: str, core: Environment) -> None:
    (core.folder / "model.pt2").write_bytes(b"PK")
    (core.folder / "model.json").write_text('{"root_index": 0, "nodes": []}')
    (core.folder / "fusion.yaml").write_text("r: {pattern: {a: {op_type: relu}}}\n")
    done = core.run("gsl", *command)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert mend in done.stderr
    assert done.stderr.startswith("gsl: error: ")
    assert done.stderr.count("\n") == 1


def test_what_a_part_needs_is_told(core: Environment) -> None:
    parts = {
        "rule.verify()": "torch", "import gsl.fx": "torch", "gsl.rules.ORT": "torch", "gsl.optimize(None)": "torch",
        "Subst.from_programs(lambda x: x + 0, lambda x: x)": "torch", "Workload.from_relax(None)": "torch",
        "import gsl.relax": "tvm", "import gsl.onnx": "onnx_ir", "Workload.from_onnx('m.onnx')": "onnx",
    }  # fmt: skip
    told = "import gsl, gsl.rules\nfor part in " + repr([*parts]) + """:
    try:
        exec(part)
    except errors.GSLError as error:
        print(error)"""
    lines = core.printed("python", "-c", RULE + told).splitlines()
    assert [line.partition(", which is not installed: pip install ")[0] for line in lines] == [
        f"this needs the package {package}" for package in parts.values()
    ]


@pytest.mark.long
def test_the_types_are_seen(core: Environment) -> None:
    """A program that uses the wheel is checked against its types, which are strict."""
    program = core.folder / "typed.py"
    program.write_text(f"{RULE}from gsl.rules import BOOK\nreveal_type(rule)\nreveal_type(BOOK)\nrule.nme\n")
    if importlib.util.find_spec("mypy") is None:
        pytest.fail("mypy is part of what the tests need")
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "--ignore-missing-imports"]
    python = ["--python-executable", str(core.folder / "bin" / "python"), "--cache-dir", str(core.folder / "cache")]
    done = subprocess.run(
        [*command, *python, str(program)], capture_output=True, text=True, cwd=core.folder, check=False
    )
    assert 'Revealed type is "gsl.rewrite.subst.Subst"' in done.stdout
    assert 'Revealed type is "gsl.rewrite.ruleset.RuleSet"' in done.stdout
    assert '"Subst" has no attribute "nme"' in done.stdout
    assert done.stdout.endswith("Found 1 error in 1 file (checked 1 source file)\n")


# With torch


@pytest.mark.long
def test_a_new_user(wheel: Path, tmp_path: Path) -> None:
    """From the wheel to a checked result, with everything that is installed here."""
    made = environment(wheel, tmp_path)
    (made.site / "more.pth").write_text(f"{SITE}\n")
    import torch

    gate = type("Gate", (torch.nn.Module,), {"forward": lambda self, x: x * torch.sigmoid(x)})()
    torch.export.save(torch.export.export(gate, (torch.randn(2, 3),)), tmp_path / "model.pt2")
    assert str(tmp_path) in made.printed("python", "-c", "import gsl; print(gsl.__file__)")
    assert made.printed("gsl", "apply", "mine.py", "model.pt2", "-o", "new.pt2", "--check").endswith("wrote new.pt2\n")
    assert made.printed("gsl", "verify", "mine.py", "--max-examples", "20").startswith("supported  silu")
