"""The Python examples of the README and the docs run as they stand."""

from __future__ import annotations

import re
import runpy
import shutil
import subprocess
import sys
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import gsl

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(page: Path) -> list[tuple[int, str]]:
    """The Python blocks of a page, each with the line on which it starts."""
    text = page.read_text()
    found = re.finditer(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return [(text[: match.start(1)].count("\n"), match.group(1)) for match in found]


def needs(page: Path) -> list[str]:
    """The modules without which the examples of a page can't be run, as its first line names them."""
    found = re.match(r"<!-- needs: (.*) -->", page.read_text())
    return found.group(1).split(", ") if found else []


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=lambda page: page.name)
def test_examples_run(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for module in needs(page):
        pytest.importorskip(module)
    namespace: dict[str, object] = {"__name__": "example"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for line, code in blocks(page):
            exec(compile("\n" * line + code, str(page), "exec"), namespace)
    capsys.readouterr()


def test_a_broken_example_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("text\n\n```python\nassert 1 + 1 == 3\n```\n")
    ((line, code),) = blocks(page)
    assert line == 3
    with pytest.raises(AssertionError):
        exec(compile(code, str(page), "exec"), {})


BUILT = {
    "And", "AttrEqual", "Constraint", "Exactly", "Expr", "ExternUse", "GetItem", "Group", "Instance", "IsOutput",
    "Leaf", "Like", "Match", "Not", "OpClass", "Pattern", "Seq", "Trace", "TypeGuard", "Unique", "Use",
    "has_head", "to_pattern", "walk",
}  # fmt: skip
"""The names of what others make, and of what is for tools."""


@pytest.mark.parametrize("module", [gsl, gsl.pat, gsl.attr], ids=lambda module: module.__name__)
def test_the_reference_has_an_example_of_each_construct(module: ModuleType) -> None:
    language = ROOT / "docs" / "language.md"
    text = language.read_text()
    code = "\n".join(code for page in PAGES for _, code in blocks(page))
    unnamed = [name for name in module.__all__ if module is not gsl and not re.search(rf"\b{name}\b", text)]
    without = [name for name in module.__all__ if name not in BUILT and not re.search(rf"\b{name}\b", code)]
    assert (unnamed, without) == ([], [])


@pytest.mark.parametrize("name", ["operators", "errors"])
def test_a_page_that_is_made_is_up_to_date(name: str) -> None:
    namespace: dict[str, Any] = runpy.run_path(str(ROOT / "docs" / f"{name}.py"))
    assert (ROOT / "docs" / f"{name}.md").read_text() == namespace["page"]()


def test_the_index_of_errors_is_complete() -> None:
    namespace: dict[str, Any] = runpy.run_path(str(ROOT / "docs" / "errors.py"))
    assert set(namespace["classes"]()) == {*namespace["EXAMPLES"], *namespace["WITHOUT"]}
    with pytest.raises(ValueError, match="nothing is wrong"):
        namespace["message"](namespace["Example"]("1 + 1", ""))


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    pages = tmp_path / "docs"
    shutil.copytree(ROOT / "docs", pages, ignore=shutil.ignore_patterns("_build", "_rules", "__pycache__"))
    for beside in ("benchmarks", "notebooks"):
        (tmp_path / beside).symlink_to(ROOT / beside)
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", str(pages), str(tmp_path / "html")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    rules = (tmp_path / "html" / "rules.html").read_text()
    assert rules.count("source and target") >= 30
    (pages / "broken.md").write_text("# A page\n\n[nowhere](nowhere.md)\n")
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode != 0
    assert "nowhere.md" in done.stderr
