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
    assert [path.name for path in NOTEBOOKS] == ["first_rule.ipynb", "fusion.ipynb", "use_style.ipynb", "verify.ipynb"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_it_runs(path: Path) -> None:
    execute(nbformat.read(path, as_version=4))


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
