"""The script that measures the house."""

from __future__ import annotations

import ast
import runpy
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def house() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "tools" / "house.py"))


@pytest.mark.long
def test_the_table(house: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    house["main"](["--cheap"])
    told = capsys.readouterr().out
    count = len([*(ROOT / "gsl").rglob("*.py")])
    assert told.startswith("| | today |\n")
    assert f" in {count} |" in told
    assert "| gsl/match/ | " in told
    assert "| lines that the tensor front ends share | " in told


@pytest.mark.long
def test_names_of_types(house: dict[str, Any]) -> None:
    text = "class One: pass\nTwo = int\nThree: object = str\nFOUR = 4\nfive = 5\nclass _Six: pass\nT = 7"
    top = ast.parse(f"{text}\nEight = TypeVar('Eight')")
    assert house["defined"](top) == {"One", "Two", "Three"}
    assert all(len(modules) > 1 for modules in house["repeated"]().values())


def test_what_work_passes_through(house: dict[str, Any]) -> None:
    from gsl import op, pat

    found = house["passed"](lambda: op.ReLU(pat.Wildcard()))
    names = {(Path(file).name, name) for file, name, _ in found}
    assert ("leaf.py", "__init__") in names or any(file == "opclass.py" for file, _ in names)
    assert house["passed"](lambda: None) == set()
