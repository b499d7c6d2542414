"""The layers: what may import what, and what importing GSL loads."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "gsl"
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
LAYERS = [*re.findall(r"^\| `gsl/(\w+)(?:/|\.py)` \| ", PAGE, re.MULTILINE), "__main__"]
"""From the lowest; each may import those before it. The page on the architecture has them in a table."""
LATE = {"gsl.pat.base", "gsl.rewrite.trace"}
"""Modules whose functions import from their own package what needs them: patterns' operators build patterns, and
traces are replayed by what makes them."""
UPWARD = {
    "gsl.rewrite.subst": ("programs", "verify"), "gsl.rewrite.ruleset": ("rulefile", "verify"),
    "gsl.workload.workload": ("cost",),
}  # fmt: skip
"""Modules with methods that import from higher layers what they are short for: ``rule.verify()``."""


def modules() -> dict[str, Path]:
    """Every module of GSL by its full name."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        found[".".join(("gsl", *(parts[:-1] if parts[-1] == "__init__" else parts)))] = path
    return found


MODULES = modules()


@cache
def imports(name: str, *, late: bool = False) -> tuple[str, ...]:
    """The modules of GSL that a module imports when it is loaded; ``late``: those that its functions import instead.

    What stands under ``if TYPE_CHECKING:`` is never imported.
    """
    return tuple([other for node, inside in statements(name) if inside is late for other in _imported(node)])


@cache
def statements(name: str) -> tuple[tuple[ast.AST, bool], ...]:
    """The import statements of a module, each with whether it stands in a function."""
    return tuple(_statements(ast.parse(MODULES[name].read_text(encoding="utf-8")), False))


def _statements(parent: ast.AST, inside: bool) -> Iterator[tuple[ast.AST, bool]]:
    for node in ast.iter_child_nodes(parent):
        if isinstance(node, ast.expr):
            continue  # there is no statement in it
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield node, inside
        yield from _statements(node, inside or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)))


def _imported(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names if alias.name in MODULES)
    elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module in MODULES:
        for alias in node.names:
            inner = f"{node.module}.{alias.name}"
            yield inner if inner in MODULES else str(node.module)


def layer(name: str) -> str:
    """The layer of a module: the package or module under ``gsl`` that it belongs to."""
    return name.split(".")[1] if "." in name else ""


def allowed(importer: str, imported: str) -> bool:
    """Whether the layer table lets one module import the other."""
    above, below = layer(importer), layer(imported)
    if above == below:
        return True
    if not below:
        return False  # gsl itself imports everything, so nothing in it may import gsl
    if not above:
        return True
    return LAYERS.index(below) < LAYERS.index(above)


def test_every_module_is_in_a_layer() -> None:
    found = {layer(name) for name in MODULES} - {""}
    assert found <= set(LAYERS)


@pytest.mark.parametrize("own", sorted({layer(name) for name in MODULES}))
def test_modules_import_only_from_lower_layers(own: str) -> None:
    wrong = [f"{name} imports {other}" for name in MODULES if layer(name) == own for other in not_allowed(name)]
    assert not wrong, "\n".join(wrong)


def not_allowed(name: str) -> list[str]:
    """What a module imports and may not."""
    late = [other for other in imports(name, late=True) if layer(other) not in UPWARD.get(name, ())]
    return [other for other in (*imports(name), *late) if not allowed(name, other)]


def test_the_rule_can_fail() -> None:
    assert not allowed("gsl.graph.node", "gsl.attr.ast")
    assert not allowed("gsl.pat.base", "gsl.match.plan")
    assert not allowed("gsl.pat.base", "gsl")
    assert not allowed("gsl.draw", "gsl.match.result")
    assert allowed("gsl.match.plan", "gsl.pat.base")
    assert allowed("gsl.workload.workload", "gsl.draw")
    assert cycle({"a": ["b"], "b": ["c"], "c": ["a"]})
    assert not cycle({"a": ["b", "c"], "b": ["c"], "c": []})


def cycle(graph: dict[str, list[str]]) -> list[str]:
    """A cycle of a graph of modules; empty if there is none."""
    done: set[str] = set()

    def visit(name: str, path: list[str]) -> list[str]:
        if name in path:
            return path[path.index(name) :]
        if name in done:
            return []
        done.add(name)
        return next((found for other in graph.get(name, []) if (found := visit(other, [*path, name]))), [])

    return next((found for name in graph if (found := visit(name, []))), [])


def packages() -> list[str]:
    """The layers that are packages, with the packages in them."""
    return sorted(name for name, path in MODULES.items() if path.name == "__init__.py" and name != "gsl")


@pytest.mark.sweep(3)
@pytest.mark.parametrize("package", packages())
def test_modules_of_a_package_do_not_import_each_other_in_a_circle(package: str) -> None:
    inside = [name for name in MODULES if name.startswith(package + ".")]
    graph = {name: [other for other in imports(name) if other in inside and other != name] for name in inside}
    assert not cycle(graph)
    # Nor may a package be asked by what it is made of.
    assert not [name for name in inside if package in imports(name)]


# Rooms


class Room(NamedTuple):
    """A row of the table of rooms."""

    package: str
    name: str
    modules: tuple[str, ...]
    """The names of its modules; a star stands for any end."""
    touches: frozenset[str]
    """The rooms of its package that it imports from."""

    def has(self, module: str) -> bool:
        return any(fnmatchcase(module, f"gsl.{self.package}.{name}") for name in self.modules)


ROW = re.compile(r"^\| (\w+): ([\w ]+) \| (.*?) \| .*? \|(.*)\|$", re.MULTILINE)
ROOMS = [
    Room(package, name, tuple(re.findall(r"`([^`]+)`", modules)), frozenset(re.findall(r"\w[\w ]*\w", touches)))
    for package, name, modules, touches in ROW.findall(PAGE)
]
MANY = 13
"""So many modules are too many for one room."""


@cache
def room(module: str) -> Room | None:
    """The room of a module: the first one that has it."""
    return next((each for each in ROOMS if each.has(module)), None)


def neighbours(own: Room) -> set[str]:
    """The rooms of the same package that the modules of a room import from."""
    found = {room(other) for name in MODULES if room(name) == own for other in imports(name)}
    return {other.name for other in found if other is not None and other.package == own.package and other != own}


@pytest.mark.parametrize("own", ROOMS, ids=lambda own: f"{own.package}: {own.name}")
def test_a_room_imports_from_the_rooms_that_the_page_names(own: Room) -> None:
    assert neighbours(own) == own.touches
    above = [each.name for each in ROOMS[: ROOMS.index(own)] if each.package == own.package]
    assert own.touches <= set(above)
    assert all(any(fnmatchcase(name, f"gsl.{own.package}.{each}") for name in MODULES) for each in own.modules)


def test_what_a_room_imports_is_seen() -> None:
    plan, bindings = room("gsl.match.plan"), room("gsl.match.bindings")
    assert plan is not None
    assert bindings is not None
    assert neighbours(plan) >= {"run", "result"}
    assert neighbours(bindings) == set()
    assert room("gsl.match.nowhere") is None


def test_large_packages_have_rooms_for_all_their_modules() -> None:
    inside = {top: [name for name in MODULES if name.startswith(f"gsl.{top}.")] for top in LAYERS}
    divided = {each.package for each in ROOMS}
    assert divided >= {top for top, names in inside.items() if len(names) >= MANY}
    homeless = [name for top in divided for name in inside[top] if room(name) is None]
    assert not homeless, f"docs/architecture.md names no room for {', '.join(homeless)}"


def test_only_known_modules_import_their_own_package_late() -> None:
    late = {
        name
        for name in MODULES
        for other in imports(name, late=True)
        if layer(other) == layer(name) in ("errors", "attr", "spec", "pat", "op", "match", "rewrite")
    }
    assert late <= LATE


# What is loaded


def loaded(statement: str) -> list[str]:
    """The packages that a statement loads in a new process."""
    code = f"import json, sys\n{statement}\nprint(json.dumps(sorted({{name.split('.')[0] for name in sys.modules}})))"
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=True)
    names: list[str] = json.loads(done.stdout)
    return names


@pytest.mark.parametrize(
    "statement",
    [
        "import gsl",
        "from gsl import *; conv = op.Conv2D(pat.Wildcard(), pat.Param(shape=(None, 3, 1, 1)), groups=1); "
        "Subst(op.ReLU(conv), conv, where=conv.strides[0] == 1)",
    ],
    ids=["import", "a rule"],
)
def test_importing_is_light(statement: str) -> None:
    assert not {"torch", "tvm", "sympy", "numpy", "pygraphviz", "rich"} & set(loaded(statement))


def test_what_torch_is_not_needed_for_does_not_import_it() -> None:
    assert "torch" not in loaded("import gsl.front, gsl.spec, gsl.workload")


def test_without_torch_the_mend_is_told() -> None:
    loaded(
        "sys.modules['torch'] = None\n"
        "import gsl.rules\n"
        "from gsl import *\n"
        "for make in (Workload.from_torch, Workload.from_fx, Workload.from_exported):\n"
        "    try: make(None)\n"
        "    except ImportError as error:\n"
        "        assert isinstance(error, errors.MissingPackageError) and 'pip install torch' in str(error), error\n"
        "    else: raise AssertionError(make)"
    )
