"""The Python examples of the README and the docs run as they stand."""

from __future__ import annotations

import re
import runpy
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import gsl
from gsl.cli import main

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "docs"))

import outputs  # noqa: E402
import pictures  # noqa: E402

PAGES = outputs.PAGES


def check(page: Path) -> None:
    """Run the examples of a page; AssertionError where one prints something else than the page shows."""
    for example, printed in outputs.run(page):
        mend = f"python docs/outputs.py {page.name}"
        assert outputs.agrees(example.output, printed), f"line {example.line} prints something else: {mend}\n{printed}"


@pytest.mark.sweep(8)
@pytest.mark.parametrize("page", [page for page in PAGES[1:] if [*outputs.examples(page)]], ids=lambda page: page.name)
def test_examples_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in outputs.needs(page):
        pytest.importorskip(module)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # what a page writes goes with the test
    check(page)


def test_the_readme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Its examples run, and then its commands, on the files that the examples write."""
    monkeypatch.chdir(tmp_path)
    readme = PAGES[0]
    check(readme)
    text = readme.read_text().replace("--budget 5", "--budget 1")
    commands = [line for line in text.splitlines() if line.startswith("gsl ")]
    codes = {line: main(shlex.split(line, comments=True)[1:]) for line in commands}
    # The answer is no where a rule does not fire, and may be where nothing pays.
    no = [line for line, code in codes.items() if code == 1 and " optimize " not in line]
    assert no == [line for line in commands if " explain " in line]
    assert max(codes.values()) == 1
    assert {"smaller.pt2", "change.svg"} <= {file.name for file in tmp_path.iterdir()}


def test_a_broken_example_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("text\n\n```python\nassert 1 + 1 == 3\n```\n")
    (example,) = outputs.examples(page)
    assert example.line == 4
    with pytest.raises(AssertionError):
        list(outputs.run(page))


@pytest.mark.parametrize(
    ("shown", "printed", "agree"),
    [
        ("", "", True),
        ("a\n", "a\n", True),
        ("a\n", "b\n", False),
        ("", "b\n", False),
        ("a\n", "", False),
        ("error 1.5e-07, 3 calls\n", "error 2.25e-06, 3 calls\n", True),
        ("error 1.5e-07, 3 calls\n", "error 1.5e-07, 4 calls\n", False),
        ("1.0e+00 1.50e-07  [0, 2]  ok\n", "1.0e+00 2.50e-08  [1, 2]  ok\n", True),
        ("float32[0, 2]\n", "float32[1, 2]\n", False),
        ("a\n…\nz\n", "a\nb\nc\nz\n", True),
        ("a\n…\nz\n", "a\nz\n", True),
        ("a\n…\nz\n", "a\nb\n", False),
        ("at … of\n", "at 0x77 of\n", True),
        ("at … of\n", "at 0x77\nof\n", False),
        ("(a|b)*\n", "a\n", False),
        ("(page.md:7) x\n", "(page.md:12) x\n", True),
        ("(page.py:7) x\n", "(page.py:12) x\n", False),
    ],
)
def test_what_a_page_shows_is_compared(shown: str, printed: str, agree: bool) -> None:
    assert outputs.agrees(shown, printed) is agree


def test_pages_are_written_with_what_their_examples_print(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```python\nx = 1\n```\n\n```python\nprint(x + 1)\n```\nend\n")
    once = outputs.updated(page)
    assert once == "```python\nx = 1\n```\n\n```python\nprint(x + 1)\n```\n\n```output\n2\n```\nend\n"
    page.write_text(once.replace("x = 1", "x = 2"))
    assert outputs.updated(page) == once.replace("x = 1", "x = 2").replace("\n2\n", "\n3\n")
    page.write_text(elided := once.replace("\n2\n", "\n…\n"))
    assert outputs.updated(page) == elided


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
    code = "\n".join(example.code for page in PAGES for example in outputs.examples(page))
    unnamed = [name for name in module.__all__ if module is not gsl and not re.search(rf"\b{name}\b", text)]
    without = [name for name in module.__all__ if name not in BUILT and not re.search(rf"\b{name}\b", code)]
    assert (unnamed, without) == ([], [])


@pytest.mark.parametrize("name", ["operators", "errors"])
def test_a_page_that_is_made_is_up_to_date(name: str) -> None:
    namespace: dict[str, Any] = runpy.run_path(str(ROOT / "docs" / f"{name}.py"))
    assert (ROOT / "docs" / f"{name}.md").read_text() == namespace["page"]()


def test_the_lists_of_operators_that_methods_cover_are_up_to_date() -> None:
    namespace: dict[str, Any] = runpy.run_path(str(ROOT / "docs" / "operators.py"))
    text = (ROOT / "docs" / "verification.md").read_text()
    assert namespace["with_methods"](text) == text, "run: python docs/operators.py"


def test_the_pictures_are_up_to_date_and_shown() -> None:
    made = dict(pictures.drawn())
    assert set(pictures.FOLDER.iterdir()) == set(made)
    for path, svg in made.items():
        assert pictures.texts(path.read_text()) == pictures.texts(svg), "run: python docs/pictures.py"
    pages = "\n".join(page.read_text() for page in PAGES)
    assert all(f"pictures/{path.name})" in pages for path in made)


def test_the_index_of_errors_is_complete() -> None:
    namespace: dict[str, Any] = runpy.run_path(str(ROOT / "docs" / "errors.py"))
    assert set(namespace["classes"]()) == {*namespace["EXAMPLES"], *namespace["WITHOUT"]}
    with pytest.raises(ValueError, match="nothing is wrong"):
        namespace["message"](namespace["Example"]("1 + 1", ""))


def test_links_between_pages_lead_to_pages() -> None:
    """In time for who writes a page; the site, which is built in the long tests, knows all that a link may lead to."""
    made = ROOT / "docs" / "rules.md"
    for page in (ROOT / "docs").rglob("*.md"):
        text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
        links = [(page.parent / link).resolve() for link in re.findall(r"\]\((?!\w+:|#)([^)#\s]+)", text)]
        inside = [link.is_relative_to(ROOT / "docs") or link.suffix == ".ipynb" for link in links]
        broken = [link for link, is_in in zip(links, inside) if not is_in or not (link.exists() or link == made)]
        assert not broken, page


@pytest.mark.long
def test_the_site_builds_with_no_other_warning_than_that_of_a_broken_page(tmp_path: Path) -> None:
    pages = tmp_path / "docs"
    shutil.copytree(ROOT / "docs", pages, ignore=shutil.ignore_patterns("_build", "_rules", "__pycache__"))
    for beside in ("benchmarks", "notebooks"):
        (tmp_path / beside).symlink_to(ROOT / beside)
    # One page with a broken link shows that warnings are told, and fail.
    (pages / "broken.md").write_text("---\norphan: true\n---\n\n# A page\n\n[nowhere](nowhere.md)\n")
    # Without pages of sources, of which there are many, and without the tree of all pages in each.
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", str(pages), str(tmp_path / "html")]
    command += ["-D", "extensions=myst_parser,sphinx.ext.autodoc", "-D", "html_theme=basic"]
    done = subprocess.run(command, capture_output=True, text=True)
    (warning,) = [line for line in done.stderr.splitlines() if "WARNING" in line or "ERROR" in line]
    assert done.returncode != 0
    assert f"{pages / 'broken.md'}:7" in warning
    assert "nowhere.md" in warning
    rules = (tmp_path / "html" / "rules.html").read_text()
    assert rules.count("source and target") >= 30
