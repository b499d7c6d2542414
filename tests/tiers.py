"""Tiers of tests: of the core, which needs no framework; of torch; of Relax; long ones.

``pytest --tier quick`` runs the test modules that import no framework, and makes it an error to import one. ``--tier
torch`` runs what needs torch and not TVM, ``--tier relax`` what needs TVM. A module belongs where its imports put it,
those of what it imports from here included; a single test that needs more than its module is marked. ``--tier long``
runs what is marked as long, of which ``pytest`` without a tier runs none: the rest of each sweep, and each law with all
its random cases. A case of a sweep that is named alone (``pytest FILE::TEST[CASE]``) always runs.
"""

from __future__ import annotations

import re
import sys
import zlib
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parent.parent
TIERS: Final = ("quick", "torch", "relax", "long")
FRAMEWORKS: Final = {
    "torch": "torch", "transformers": "torch", "onnxscript": "torch", "onnx": "torch",
    "onnx_ir": "torch", "onnxruntime": "torch", "tvm": "relax", "tvm_ffi": "relax",
}  # fmt: skip
"""The packages that are no part of the core, each with the tier of what imports it."""
HERE: Final = {"gsl", "tests", "rules", "benchmarks", "demo"}
"""The packages of this repository."""
LATE: Final = {
    "tests/front/relay": "relax", "tests/conformance": "torch", "tests/verify": "torch", "tests/packaging": "torch",
    "tests/test_docs.py": "torch", "tests/test_notebooks.py": "torch", "tests/prove/test_normal.py": "torch",
    "tests/prove/test_proofs.py": "torch", "tests/prove/test_sets.py": "torch", "tests/prove/test_order.py": "torch",
    "tests/prove/test_moved.py": "torch",
}  # fmt: skip
"""What imports no framework when it is loaded, and runs what does, or takes long (proofs); with its tier."""

MARKS: Final = {"long": "long", "relax": "relax", "torch": "torch", "slow": "torch"}
"""The marks of tests that are of another tier than their module, each with that tier."""
chosen: str | None = None
"""The tier that runs; None for all tests but the long ones."""
_IMPORT: Final = re.compile(
    r"^(?:from\s+([\w.]+)\s+import\s+(\([^)]*\)|[^\n]*)|import\s+([\w.]+)"
    r"|\w+ = pytest\.importorskip\(\"([\w.]+)\"\))",
    re.MULTILINE,
)


@cache
def imports(path: Path) -> tuple[frozenset[str], frozenset[Path]]:
    """What a file imports when it is loaded: the tiers of the frameworks, and the files of this repository."""
    names: set[str] = set()
    for source, members, plain, asked in _IMPORT.findall(path.read_text(encoding="utf-8")):
        names.add(source or plain or asked)
        names |= {f"{source}.{name}" for name in re.findall(r"(\w+)(?:\s+as\s+\w+)?", members) if source}
    found = {FRAMEWORKS[name.partition(".")[0]] for name in names if name.partition(".")[0] in FRAMEWORKS}
    return frozenset(found), frozenset(file for name in names for file in files(name, path.parent))


@cache
def files(name: str, beside: Path) -> tuple[Path, ...]:
    """The files that importing a module of this repository runs."""
    parts = name.split(".")
    if parts[0] in HERE:
        folders = [ROOT.joinpath(*parts[:number]) for number in range(1, len(parts) + 1)]
        candidates = [path for folder in folders for path in (folder / "__init__.py", folder.with_suffix(".py"))]
    else:
        candidates = [beside / f"{parts[0]}.py"]
    return tuple(filter(Path.is_file, candidates))


@cache
def frameworks(path: Path) -> frozenset[str]:
    """The tiers of the frameworks that a test module needs, by what it imports, and what that imports."""
    work = [path, *(folder / "conftest.py" for folder in path.parents if (folder / "conftest.py").is_file())]
    found, seen = set[str](), set(work)
    while work:
        own, others = imports(work.pop())
        found |= own
        work += others - seen
        seen |= others
    return frozenset(found)


def tier(path: Path) -> str:
    """The tier of a test module."""
    found = frameworks(path)
    if "relax" in found:
        return "relax"
    late = [tier for place, tier in LATE.items() if path.is_relative_to(ROOT / place)]
    return late[0] if late else "torch" if found else "quick"


def of_test(item: pytest.Item) -> str:
    """The tier of a test: that of its mark, of the front end that it is for, or of its module."""
    marked = [mark for mark in MARKS if item.get_closest_marker(mark)]
    if marked:
        return MARKS[marked[0]]
    params = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
    if front_end := getattr(params.get("front_end"), "word", None):  # a test without cases has no front end here
        return "torch" if front_end == "torch" else "relax"
    return tier(item.path)


def thin(items: Iterable[pytest.Item]) -> None:
    """Mark as long all cases of a sweep but the first one and one in so many, which their parameters decide.

    Several tests of the same models look at the same ones of them, which are exported once in a process.
    """
    begun = set[str]()
    for item in items:
        sweep, (test, _, case) = item.get_closest_marker("sweep"), item.nodeid.partition("[")
        if sweep and test in begun and zlib.crc32(case.encode()) % sweep.args[0]:
            item.add_marker("long")
        begun.add(test)


def runs(item: pytest.Item, wanted: str | None) -> bool:
    """Whether a test runs in a tier; without one, all do but the long ones."""
    if wanted == "long" and item.get_closest_marker("law"):
        return True
    return of_test(item) == wanted if wanted is not None else item.get_closest_marker("long") is None


@cache
def may_hold(path: Path, wanted: str) -> bool:
    """Whether a test module may hold tests of a tier."""
    marks = [f"mark.{mark}" for mark, tier in MARKS.items() if tier == wanted]
    marks += ["mark.sweep", "mark.law"] * (wanted == "long")
    return (
        tier(path) == wanted
        or (wanted != "quick" and path.is_relative_to(ROOT / "tests" / "conformance"))
        or any(mark in path.read_text(encoding="utf-8") for mark in marks)
    )


class NoFrameworks(MetaPathFinder):
    """Makes it an error to import a framework."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name.partition(".")[0] in FRAMEWORKS:
            raise ImportError(f"the quick tests import no framework, and {name} is one: tests/tiers.py tells more")
        return None


def without_frameworks() -> None:
    """From now on, importing one is an error."""
    sys.meta_path.insert(0, NoFrameworks())


def has_frameworks() -> bool:
    return not any(isinstance(finder, NoFrameworks) for finder in sys.meta_path)


def examples(number: int) -> int:
    """How many random cases a law looks at, of so many: all in the long tests, a sixth in the others."""
    return number if chosen == "long" else number // 6
