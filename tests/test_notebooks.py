"""The notebooks run from top to bottom, in a fresh kernel, and store what their cells show."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient.exceptions import CellExecutionError, CellTimeoutError

sys.path.append(str(Path(__file__).resolve().parent.parent / "docs"))

import notebooks

NOTEBOOKS = sorted(notebooks.FOLDER.glob("*.ipynb"))


def test_there_are_notebooks() -> None:
    names = ["custom", "faster", "first_rule", "frameworks", "fusion", "use_style", "verify"]
    assert [path.name for path in NOTEBOOKS] == [f"{name}.ipynb" for name in names]


def hurried(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """A copy in which cells whose times are not compared have two seconds for them."""
    new = nbformat.from_dict(notebook)
    for cell in new.cells:
        if "varies" in cell.metadata.get("tags", ()):
            cell.source = re.sub(r"\bbudget=\d+", "budget=2", cell.source)
    return new


def test_only_cells_that_vary_are_hurried() -> None:
    notebook = notebook_of("optimize(wl, budget=10, threads=1)", "optimize(wl, budget=10)")
    notebook.cells[0].metadata["tags"] = ["varies"]
    sources = [cell.source for cell in hurried(notebook).cells]
    assert sources == ["optimize(wl, budget=2, threads=1)", "optimize(wl, budget=10)"]
    assert notebook.cells[0].source == "optimize(wl, budget=10, threads=1)"


EACH = [
    pytest.param(path, id=path.name, marks=() if path.stem == "first_rule" else pytest.mark.long) for path in NOTEBOOKS
]
"""Of which one is usual; pages of the docs have examples of what the others show."""


@pytest.mark.parametrize("path", EACH)
def test_it_runs_and_shows_what_it_stores(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # what a notebook writes goes with the test
    stored = nbformat.read(path, as_version=4)
    made = notebooks.executed(hurried(stored))
    shown = [output.data for cell in made.cells for output in cell.get("outputs", ()) if "data" in output]
    assert any("image/svg+xml" in data or "<svg" in data.get("text/html", "") for data in shown)
    assert not notebooks.differences(stored, made), f"run: python docs/notebooks.py {path.name}"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_it_says_first_what_it_needs(path: Path) -> None:
    first = nbformat.read(path, as_version=4).cells[0]
    assert first.cell_type == "markdown"
    assert first.source.startswith("# ")
    assert "pip install" in first.source


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_it_is_stored_as_it_was_run(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == [*range(1, len(code) + 1)]
    assert notebook.metadata.kernelspec.name == "python3"


def notebook_of(*sources: str) -> nbformat.NotebookNode:
    return nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources])


def test_what_is_stored_is_compared() -> None:
    """One kernel runs all, a row for each notebook; what is printed in parts is one text."""
    drawing = "class Drawn:\n    def _repr_svg_(self): return '<svg width=\"{}\"><text>{}</text></svg>'\nDrawn()"
    rows = [(1.5, "a", 3, "conv"), (1.25, "a", 4, "conv"), (1.5, "b", 3, "conv"), (1.5, "a", 3, "relu")]
    printing = "import time\nprint('{}', flush=True)\ntime.sleep(0.2)\nprint({})"
    sources = [text for n, word, *drawn in rows for text in (printing.format(word, n), drawing.format(*drawn))]
    cells = notebooks.executed(notebook_of(*sources)).cells
    assert [output.text for output in cells[0].outputs] == ["a\n1.5\n"]
    stored, same, text, picture = (nbformat.v4.new_notebook(cells=cells[at : at + 2]) for at in range(0, 8, 2))
    assert all(cell.outputs for cell in cells)
    assert notebooks.differences(stored, same) == []
    assert len(notebooks.differences(stored, text)) == len(notebooks.differences(stored, picture)) == 1
    assert "relu" in notebooks.differences(stored, picture)[0]
    stored.cells[0].metadata["tags"] = ["varies"]
    assert notebooks.differences(stored, text) == []


def test_a_failing_cell_is_found() -> None:
    with pytest.raises(CellExecutionError, match="assert x == 2"):
        notebooks.executed(notebook_of("x = 1", "assert x == 2"))


@pytest.mark.long
def test_a_cell_that_does_not_end_is_found() -> None:
    with pytest.raises(CellTimeoutError):
        notebooks.executed(notebook_of("while True: pass"), seconds=1)
