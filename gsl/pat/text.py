"""A rule as text: its source and target line by line, with a name for every pattern."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from gsl.attr import ast
from gsl.attr.text import Shown
from gsl.pat.base import Pattern, walk
from gsl.pat.call import Call, Like, Tuple
from gsl.pat.choice import Match
from gsl.pat.leaf import Leaf
from gsl.pat.variadic import Instance, Variadic


def text(
    title: str, doc: str, source: Sequence[Pattern], target: Sequence[Pattern], where: Sequence[Any],
    options: Sequence[str] = (),
) -> str:  # fmt: skip
    """The text of a rule; without a target pattern, a function makes the target."""
    names = pattern_names(source, target)
    lines = [title, *(f"  {line}" for line in doc.splitlines() if line)]
    known = _lines(lines, "source", source, names, set())
    for condition in where:
        lines.append(f"  where {condition_text(condition, names)}")
    lines += [f"  with {', '.join(options)}"] if options else []
    if target:
        _lines(lines, "target", target, names, known)
    else:
        lines.append("  target made by a function")
    return "\n".join(lines)


def condition_text(condition: Any, names: Mapping[Pattern, str]) -> str:
    """The text of a condition: an expression, a constraint or a function."""
    if not hasattr(condition, "parts"):
        return getattr(condition, "__name__", repr(condition))
    shown = written(condition, names)
    return shown[1:-1] if isinstance(condition, ast.Binary) and shown.startswith("(") else shown


def pattern_names(source: Sequence[Pattern], target: Sequence[Pattern]) -> dict[Pattern, str]:
    """A name for every pattern but tuples, which are written out: ``x0`` for leaves, ``%0`` for others."""
    names: dict[Pattern, str] = {}
    counts = {"x": 0, "%": 0}
    for pattern in walk(*source, *target):
        if not isinstance(pattern, Tuple) or pattern in (*source, *target):
            letter = "x" if isinstance(pattern, Leaf) else "%"
            names[pattern] = f"{letter}{counts[letter]}"
            counts[letter] += 1
    return names


def _lines(
    lines: list[str], side: str, outputs: Sequence[Pattern], names: Mapping[Pattern, str], known: set[Pattern]
) -> set[Pattern]:
    """Write one side; patterns that are known from the other are not written again. Gives the others."""
    lines.append(f"  {side} {', '.join(names[output] for output in outputs)}")
    patterns = [pattern for pattern in walk(*outputs) if pattern not in known]
    lines += [f"    {names[pattern]} = {written(pattern, names)}" for pattern in patterns if pattern in names]
    return set(patterns)


def written(root: Shown, names: Mapping[Pattern, str]) -> str:
    """The text of a pattern or an expression, whole, in which other patterns stand by their names."""
    texts: list[str] = []
    stack: list[Any] = [root]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            texts.append(item)
        elif item is not root and isinstance(item, Pattern) and item in names:
            texts.append(names[item])
        else:
            stack.extend(reversed([*_parts(item, names)]))
    return "".join(texts)


def _parts(item: Shown, names: Mapping[Pattern, str]) -> Iterator[Any]:
    """The parts of an item; an item that refers to a pattern names it, and no argument is left out."""
    match item:
        case ast.Attribute(Instance()):
            yield from (item.pattern, f".{item.name}")
        case ast.Attribute():
            yield f"{_name(item.pattern, names)}.{item.name}"
        case ast.Chosen():
            yield from (f"Match({_name(item.alternative, names)}, (", *_listed(item.clauses), "))")
        case ast.Reduce("max" | "min" as function, ast.TupleOf(items), None):
            yield from (f"{function}(", *_listed(items), ")")
        case ast.Function():
            yield from (f"{item.name}(", *_listed(item.operands), ")")
        case ast.Literal(tuple() as value):
            yield repr(value)
        case ast.TupleOf():
            yield from ("(", *_listed(item.items), ",)" if len(item.items) == 1 else ")")
        case Match():
            yield from (f"Match({_name(item.alternative, names)}, (", *_listed(item.clauses), "))")
        case Variadic():
            yield from (f"{item.label}(", *_listed(_fields(item, names)), ")")
        case Instance():
            yield from (f"{_name(item.variadic, names)}({_name(item.template, names)}, ", item.number, ")")
        case Like():
            yield from (item.of, ".like(", *_listed(item.arguments()), ")")
        case Call() | Tuple():
            yield from (f"{item.label}(", *_listed(item.arguments()), ")")
        case _:
            yield from item.parts()


def _fields(pattern: Variadic, names: Mapping[Pattern, str]) -> Iterator[Any]:
    """The arguments of a variadic."""
    field, *length = pattern.arguments()
    yield field
    for name in ("templates", "first"):
        if parts := getattr(pattern, name):
            yield f"{name}=[{', '.join(_name(part, names) for part in parts)}]"
    if pattern.symbol is not None:
        yield f"index={pattern.symbol!r}"
    yield from (*length, *pattern.bounds())


def _listed(items: Iterable[Any]) -> Iterator[Any]:
    for number, item in enumerate(items):
        if number:
            yield ", "
        yield item


def _name(pattern: Any, names: Mapping[Pattern, str]) -> str:
    return names.get(pattern, repr(pattern))
