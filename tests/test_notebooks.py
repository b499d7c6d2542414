"""The notebooks run from top to bottom, in a fresh kernel, and are stored without outputs."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError

NOTEBOOKS = sorted((Path(__file__).resolve().parent.parent / "notebooks").glob("*.ipynb"))
SECONDS = 120
"""The time limit of one cell."""


def execute(notebook: nbformat.NotebookNode, *, seconds: int = SECONDS) -> None:
    """Run all cells; raises for the first one that fails or takes too long."""
    NotebookClient(notebook, timeout=seconds, kernel_name="python3").execute()


def test_there_are_notebooks() -> None:
    names = ["first_rule", "fusion", "three_frameworks", "use_style", "verify"]
    assert [path.name for path in NOTEBOOKS] == [f"{name}.ipynb" for name in names]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_it_runs_and_shows_drawings(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    execute(notebook)
    shown = [output.data for cell in notebook.cells for output in cell.get("outputs", ()) if "data" in output]
    assert any("image/svg+xml" in data or "<svg" in data.get("text/html", "") for data in shown)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_it_says_first_what_it_needs(path: Path) -> None:
    first = nbformat.read(path, as_version=4).cells[0]
    assert first.cell_type == "markdown"
    assert first.source.startswith("# ")
    assert "pip install" in first.source


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_it_is_stored_without_outputs(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert not [cell.id for cell in code if cell.outputs or cell.execution_count is not None]
    assert notebook.metadata.kernelspec.name == "python3"


def test_a_failing_cell_is_found() -> None:
    cells = [nbformat.v4.new_code_cell(source) for source in ("x = 1", "assert x == 2")]
    with pytest.raises(CellExecutionError, match="assert x == 2"):
        execute(nbformat.v4.new_notebook(cells=cells))


def test_a_cell_that_does_not_end_is_found() -> None:
    cell = nbformat.v4.new_code_cell("while True: pass")
    with pytest.raises(CellTimeoutError):
        execute(nbformat.v4.new_notebook(cells=[cell]), seconds=2)
