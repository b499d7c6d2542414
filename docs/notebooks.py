"""Runs the notebooks and stores what their cells show, and tells where one stores something else."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from outputs import agrees

FOLDER = Path(__file__).resolve().parent.parent / "notebooks"
SECONDS = 120
"""The time limit of one cell."""
_MARKUP = re.compile(r"<style.*?</style>|<[^>]*>", re.DOTALL)


def executed(notebook: nbformat.NotebookNode, *, seconds: int = SECONDS) -> nbformat.NotebookNode:
    """A copy of a notebook after all its cells have run; raises for the first one that fails or takes too long.

    What is written to the standard error is left out: warnings of other packages, with paths of the machine.
    """
    new = nbformat.from_dict(notebook)
    NotebookClient(new, timeout=seconds, kernel_name="python3", record_timing=False).execute()
    new.metadata.pop("language_info", None)
    for cell in new.cells:
        if cell.cell_type == "code":
            cell.outputs = _joined(output for output in cell.outputs if output.get("name") != "stderr")
    return new


def _joined(outputs: Iterable[nbformat.NotebookNode]) -> list[nbformat.NotebookNode]:
    """The outputs of a cell, with printed texts that follow each other as one: a kernel cuts them by time."""
    joined: list[nbformat.NotebookNode] = []
    for output in outputs:
        if joined and output.output_type == "stream" == joined[-1].output_type:
            joined[-1].text += output.text
        else:
            joined.append(output)
    return joined


def differences(stored: nbformat.NotebookNode, made: nbformat.NotebookNode) -> list[str]:
    """The cells of a notebook that store something else than what they show when they run.

    Texts are compared, of drawings, too: where things stand in one depends on the fonts of the machine. Cells with the
    tag ``varies`` show times, which differ.
    """
    return [
        f"cell {old.id} stores\n{shown(old)}\nbut shows\n{shown(new)}"
        for old, new in zip(stored.cells, made.cells)
        if old.cell_type == "code"
        and "varies" not in old.metadata.get("tags", ())
        and not agrees(shown(old), shown(new))
    ]


def shown(cell: nbformat.NotebookNode) -> str:
    """The texts that a cell shows, with the kind of each."""
    lines: list[str] = []
    for output in cell.outputs:
        if output.output_type == "stream":
            lines += [f"{output.name}:", *output.text.splitlines()]
            continue
        for kind, data in sorted(output.data.items()):
            text = _MARKUP.sub(" ", data) if "svg" in kind or "html" in kind else data
            lines += [f"{kind}:", *filter(None, map(str.strip, text.splitlines()))]
    return "".join(f"{line.rstrip()}\n" for line in lines)


def main(names: list[str]) -> None:
    """Run the notebooks of these names, or all, and store what has changed."""
    if unknown := {*names} - {path.name for path in FOLDER.glob("*.ipynb")}:
        raise SystemExit(f"no such notebook, by its name alone: {', '.join(sorted(unknown))}")
    for path in sorted(FOLDER.glob("*.ipynb")):
        if names and path.name not in names:
            continue
        stored = nbformat.read(path, as_version=4)
        made = executed(stored)
        ran = all(cell.execution_count for cell in stored.cells if cell.cell_type == "code")
        if not ran or differences(stored, made):
            nbformat.write(made, path)


if __name__ == "__main__":
    main(sys.argv[1:])
