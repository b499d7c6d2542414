"""The tiers of tests: what stands in the quick one, and that no framework can be imported there."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests import tiers
from tests.tiers import ROOT, TIERS, NoFrameworks, may_hold, tier

pytest_plugins = "pytester"

CORE = ("attr", "graph", "match", "pat", "use")
"""The folders of tests whose modules need no framework."""


def modules(*folders: str) -> Iterator[Path]:
    for folder in folders:
        yield from sorted((ROOT / "tests" / folder).rglob("test_*.py"))


@pytest.mark.parametrize("path", [*modules(*CORE)], ids=lambda path: path.stem)
def test_the_core_is_tested_without_a_framework(path: Path) -> None:
    needs = path.name in ("test_unused_fields.py",)  # fields of a call of torch
    mend = "mark the tests that need torch, and import it there"
    assert (tier(path) == "torch") == needs, f"{path.name} imports torch: {mend}"


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ("match/test_cases.py", "quick"), ("test_imports.py", "quick"), ("front/nodes/test_nodes.py", "quick"),
        ("spec/test_meaning.py", "torch"), ("test_workload.py", "torch"), ("cli/test_rule_files.py", "torch"),
        ("rewrite/test_views.py", "torch"), ("test_docs.py", "torch"), ("front/relax/test_spellings.py", "relax"),
        ("cost/test_relax.py", "relax"), ("front/relay/test_notebook.py", "relax"),
    ],
)  # fmt: skip
def test_where_a_module_belongs(place: str, expected: str) -> None:
    """Where its imports put it, those of its helpers and of its ``conftest.py`` included."""
    path = ROOT / "tests" / place
    assert tier(path) == expected
    assert may_hold(path, expected)


def test_most_modules_that_need_no_framework_are_quick() -> None:
    assert sum(tier(path) == "quick" for path in modules(".")) >= 45


def test_a_module_with_marked_tests_has_tests_of_several_tiers() -> None:
    path = ROOT / "tests" / "test_draw.py"
    assert [wanted for wanted in TIERS if may_hold(path, wanted)] == ["quick", "torch", "long"]


def test_importing_a_framework_is_an_error() -> None:
    finder = NoFrameworks()
    for name in ("torch", "tvm.relax", "transformers"):
        with pytest.raises(ImportError, match="the quick tests import no framework"):
            finder.find_spec(name, None)
    assert finder.find_spec("numpy", None) is None


@pytest.mark.slow
def test_a_quick_test_that_imports_torch_fails(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text("from tests.conftest import *\n")
    (tmp_path / "test_one.py").write_text("def test_it():\n    import torch\n\ndef test_other():\n    import numpy\n")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--tier", "quick", "--rootdir", str(tmp_path)]
    done = subprocess.run([*command, str(tmp_path)], capture_output=True, text=True, cwd=ROOT)
    assert "1 failed, 1 passed" in done.stdout, done.stdout
    assert "and torch is one" in done.stdout


def test_laws_look_at_fewer_cases() -> None:
    assert tiers.examples(600) == (600 if tiers.chosen == "long" else 100)


class Case:
    """A test as pytest collects it, with its name and its marks."""

    path = ROOT / "tests" / "test_imports.py"

    def __init__(self, name: str, **marks: int) -> None:
        self.nodeid = name
        self.marks = {mark: SimpleNamespace(args=(value,)) for mark, value in marks.items()}

    def get_closest_marker(self, name: str) -> SimpleNamespace | None:
        return self.marks.get(name)

    def add_marker(self, name: str) -> None:
        self.marks[name] = SimpleNamespace(args=())


def test_the_rest_of_a_sweep_is_long() -> None:
    """Which cases are usual follows from their parameters, whatever else there is; the first one always is."""
    cases: list[Any] = [Case(f"test_it[{number}]", sweep=3) for number in range(300)]
    alone: list[Any] = [Case(case.nodeid, sweep=3) for case in cases]
    tiers.thin(cases)
    for case in alone:
        tiers.thin([case])
    usual = [case.nodeid for case in cases if tiers.runs(case, None)]
    assert usual[0] == "test_it[0]"
    assert 70 < len(usual) < 130
    assert all(tiers.runs(case, "long") != tiers.runs(case, None) for case in cases)
    assert all(tiers.runs(case, None) for case in alone)
    fewer: list[Any] = [Case(case.nodeid, sweep=3) for case in cases[::2]]
    tiers.thin(fewer)
    assert {case.nodeid for case in fewer if tiers.runs(case, None)} <= {*usual}


def test_a_law_is_usual_and_long() -> None:
    law: Any = Case("test_it", law=0)
    assert tiers.runs(law, "long")
    assert tiers.runs(law, None)


NO_CASES = """
import pytest

@pytest.mark.sweep(3)
@pytest.mark.parametrize("front_end", [])
def test_it(front_end): pass
"""


@pytest.mark.filterwarnings("ignore::pytest.PytestUnknownMarkWarning")
def test_a_test_without_cases_is_of_the_tier_of_its_module(pytester: pytest.Pytester) -> None:
    """It is collected where no front end of those that it is for is there."""
    pytester.makeini("[pytest]\naddopts = -p no:unraisableexception")  # which has Python's collector run five times
    items = pytester.getitems(NO_CASES)
    tiers.thin(items)
    assert [[wanted for wanted in (None, *TIERS) if tiers.runs(item, wanted)] for item in items] == [[None, "quick"]]
