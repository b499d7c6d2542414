"""Prints how the house is built: how large it is, what one rewrite passes through, and what stands in it twice.

    python tools/house.py            all, with a profile of one rewrite (needs torch and transformers)
    python tools/house.py --cheap    what can be read from the source

Lines are those of the files; a function is a ``def``, whatever it stands in.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from statistics import median
from types import FrameType
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "gsl"
FRONT_ENDS = ("fx", "relax", "relay")
Function = ast.FunctionDef | ast.AsyncFunctionDef


class Row(NamedTuple):
    """A line of the table."""

    what: str
    today: str


@cache
def files() -> tuple[Path, ...]:
    return tuple(sorted(PACKAGE.rglob("*.py")))


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def module(path: Path) -> str:
    """The full name of a module."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def functions() -> Iterator[tuple[Path, Function]]:
    for path in files():
        for node in ast.walk(tree(path)):
            if isinstance(node, Function):
                yield path, node


def length(function: Function) -> int:
    return (function.end_lineno or function.lineno) - function.lineno + 1


# What is read from the source


def size() -> Iterator[Row]:
    counts = {path: lines(path) for path in files()}
    yield Row("lines and files of gsl/", f"{sum(counts.values()):,} in {len(counts)}")
    longest = max(counts, key=lambda path: counts[path])
    yield Row("longest file", f"{counts[longest]}: {longest.relative_to(ROOT)}")
    spans = {length(function): (path, function.name) for path, function in functions()}
    path, name = spans[max(spans)]
    found = [length(function) for _, function in functions()]
    yield Row("functions, their median length", f"{len(found):,}, {median(found):g} lines")
    yield Row("longest function", f"{max(spans)}: {name} in {path.relative_to(ROOT)}")


def shared() -> Row:
    """The lines of ``gsl/front`` that all tensor front ends import, and all that there are."""
    named = {module(path): path for path in files()}
    reached = [reach([name for name in named if name.startswith(f"gsl.front.{front}")], named) for front in FRONT_ENDS]
    together = set.intersection(*reached)
    inside = {name for name in named if name.startswith("gsl.front") and not name.startswith("gsl.front.nodes")}
    of = sum(lines(named[name]) for name in inside)
    return Row("lines that the tensor front ends share", f"{sum(lines(named[n]) for n in inside & together)} of {of:,}")


def reach(names: Sequence[str], named: Mapping[str, Path]) -> set[str]:
    """The modules that some modules import, and those that these import."""
    work, found = list(names), set(names)
    while work:
        new = imported(work.pop(), named) - found
        found |= new
        work += new
    return found


def imported(name: str, named: Mapping[str, Path]) -> set[str]:
    found = set[str]()
    for node in ast.walk(tree(named[name])):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *[f"{node.module}.{alias.name}" for alias in node.names]}
    return found & named.keys()


def repeated() -> dict[str, list[str]]:
    """The classes and aliases of types that several modules define under one name, each with the modules."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in files():
        for name in defined(tree(path)):
            found[name].append(module(path))
    return {name: modules for name, modules in sorted(found.items()) if len(modules) > 1}


def defined(top: ast.Module) -> set[str]:
    """The names of classes, and what is written like them and is neither a constant nor a type variable."""
    found = {node.name for node in top.body if isinstance(node, ast.ClassDef)}
    found |= {name for node in top.body for name in assigned(node) if not name.isupper()}
    return {name for name in found if name[0].isupper()}


def assigned(node: ast.stmt) -> Iterator[str]:
    targets = [*getattr(node, "targets", ()), getattr(node, "target", None)]
    value = getattr(node, "value", None)
    if isinstance(value, ast.Call) and ast.unparse(value.func) == "TypeVar":
        return
    yield from (target.id for target in targets if isinstance(target, ast.Name))


def packages() -> Iterator[Row]:
    counts = Counter(path.relative_to(PACKAGE).parts[0] for path in files() if path.parent != PACKAGE)
    sizes = Counter[str]()
    for path in files():
        if path.parent != PACKAGE:
            sizes[path.relative_to(PACKAGE).parts[0]] += lines(path)
    for name, count in counts.most_common():
        yield Row(f"gsl/{name}/", f"{count} modules, {sizes[name]:,} lines")


# What one rewrite passes through


def passed(work: Callable[[], Any]) -> set[tuple[str, str, int]]:
    """The functions of GSL that a piece of work calls, by file, name and line."""
    found: set[tuple[str, str, int]] = set()

    def note(frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(str(PACKAGE)) and code.co_name != "<module>":
            found.add((code.co_filename, code.co_name, code.co_firstlineno))

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return found


def rewrite(model: Any, example: Any) -> None:
    """One rule on one exported model, from the module to the comparison."""
    from gsl import Workload
    from gsl.rules import RULES

    old = Workload.from_torch(model, (example,))
    new = RULES["conv-batch-norm"](old)
    assert new.trace.firings
    old.compare(new).check()


def journey() -> Row:
    """The functions that the second of two rewrites passes through: the first one imports what it needs, and fills
    tables."""
    from tests.helpers.models import MODELS

    model, example = MODELS["resnet"]()
    rewrite(model.eval(), example)
    found = passed(lambda: rewrite(model, example))
    passed_files = {Path(file) for file, _, _ in found}
    named = sum(not name.startswith("<") for _, name, _ in found)
    what = "files (and their lines), functions (and those with a name) that conv-batch-norm on a ResNet passes through"
    return Row(what, f"{len(passed_files)} ({sum(map(lines, passed_files)):,}), {len(found)} ({named})")


# The table


def rows(*, cheap: bool) -> Iterator[Row]:
    yield from size()
    if not cheap:
        yield journey()
    yield shared()
    names = repeated()
    yield Row("classes and types of one name in several modules", str(len(names)))
    yield from packages()


def main(arguments: Sequence[str]) -> None:
    sys.path.insert(0, str(ROOT))
    print("| | today |\n| --- | ---: |")
    for row in rows(cheap="--cheap" in arguments):
        print(f"| {row.what} | {row.today} |")
    print("\nOne name, several modules:")
    for name, modules in repeated().items():
        print(f"  {name}: {', '.join(modules)}")


if __name__ == "__main__":
    main(sys.argv[1:])
