"""The notebook on frameworks, where Relay is: its cells as a script, as that environment has no kernel."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

NOTEBOOK = Path(__file__).resolve().parents[3] / "notebooks" / "frameworks.ipynb"


def test_it_shows_relay(capsys: pytest.CaptureFixture[str]) -> None:
    cells = [cell for cell in json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]
    namespace: dict[str, Any] = {"__name__": "notebook"}
    for cell in cells:
        exec(compile("".join(cell["source"]), cell["id"], "exec"), namespace)
    assert "Relay" in namespace["results"]
    assert "--- Relay: IRModule" in capsys.readouterr().out
    drawing = namespace["workloads"]["Relay"].before_after(namespace["results"]["Relay"])
    # Both calls of the convolution are new, and coloured, on the right side.
    assert drawing.svg.count(">1</text>") == 3 + 2 + 1
