"""The Python examples of the README and the docs run as they stand."""

from __future__ import annotations

import re
import runpy
import warnings
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(page: Path) -> list[tuple[int, str]]:
    """The Python blocks of a page, each with the line on which it starts."""
    text = page.read_text()
    found = re.finditer(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return [(text[: match.start(1)].count("\n"), match.group(1)) for match in found]


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=lambda page: page.name)
def test_examples_run(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
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


@pytest.mark.parametrize("name", ["operators", "errors"])
def test_a_page_that_is_made_is_up_to_date(name: str) -> None:
    namespace: dict[str, Any] = runpy.run_path(str(ROOT / "docs" / f"{name}.py"))
    assert (ROOT / "docs" / f"{name}.md").read_text() == namespace["page"]()


def test_the_index_of_errors_is_complete() -> None:
    namespace: dict[str, Any] = runpy.run_path(str(ROOT / "docs" / "errors.py"))
    assert set(namespace["classes"]()) == {*namespace["EXAMPLES"], *namespace["WITHOUT"]}
    with pytest.raises(ValueError, match="nothing is wrong"):
        namespace["message"](namespace["Example"]("1 + 1", ""))
