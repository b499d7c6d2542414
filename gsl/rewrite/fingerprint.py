"""Rules in other processes: a text that tells them from others, and functions that can't be pickled."""

from __future__ import annotations

import builtins
import enum
import functools
import hashlib
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, Final

import gsl.errors
from gsl.errors import PicklingError
from gsl.op import Operator
from gsl.pat import Group, Module, Pattern, walk
from gsl.spec import DeclaredSpec, OpSpec

if TYPE_CHECKING:
    from gsl.rewrite.ruleset import RuleSet
    from gsl.rewrite.subst import Subst


_PLAIN: Final = (bool, int, float, complex, str, bytes, type(None), type(...))
_SKIPPED: Final = frozenset(("location", "free_symbols", "symbols", "depth", "__weakref__"))
"""Fields that have no effect on the results of a rule, or that follow from others."""


def fingerprint(rules: RuleSet, *more: Any) -> str | None:
    """The fingerprint of rules and of what else counts with them, equal in every process; ``None`` where a function
    uses an object that has no text of its own."""
    hasher = hashlib.sha256()
    try:
        parts = _parts([rules.strategy, rules.max_steps, [_of_rule(rule) for rule in rules], *more])
        for part in (sys.version, _own_sources(), *parts):
            hasher.update(part.encode() + b"\0")
    except _NoText:
        return None
    return hasher.hexdigest()


class _NoText(Exception):
    """A value has no text that would be the same in another process."""


def _of_rule(rule: Subst) -> list[Any]:
    """All values on which the work of a rule depends."""
    source, plan = rule.source, rule.plan
    conditions = [source.guards, source.constraints, source.predicates, source.extern_use]
    options = [rule.name, rule.priority, rule.inference_only, rule.approximate, plan.distinct, plan.fuzzy]
    return [options, source.outputs, conditions, rule.target.outputs, rule.target.callable]


def _parts(root: Any) -> Iterator[str]:
    """The text of a value, part by part: each object once, with the numbers of those that it refers to."""
    numbers: dict[int, int] = {}
    pending: list[Any] = []

    def refer(value: Any) -> str:
        if type(value) in _PLAIN:
            return repr(value)
        if id(value) not in numbers:
            numbers[id(value)] = len(numbers)
            pending.append(value)
        return f"#{numbers[id(value)]}"

    refer(root)
    kept: list[Any] = []
    while len(kept) < len(pending):
        value = pending[len(kept)]
        kept.append(value)
        head, fields = _described(value)
        yield f"{head}({', '.join([refer(field) for field in fields])})"


def _described(value: Any) -> tuple[str, list[Any]]:
    """The kind of a value as text, and its parts."""
    match value:
        case tuple() | list():
            return type(value).__name__, list(value)
        case Mapping():
            return "mapping", [item for pair in value.items() for item in pair]
        case frozenset() | set():
            if not all(type(item) in _PLAIN for item in value):
                raise _NoText(value)
            return "set", sorted(map(repr, value))
        case range() | slice():
            return repr(value), []
        case enum.Enum():
            return str(value), []
        case Operator():
            return "operator", [value.spec]
        case DeclaredSpec():
            return f"operator {value.name}", [value.native.meaning, value.leaves, value.traits]
        case OpSpec():
            return f"operator {value.name}", []
        case ModuleType():
            return f"module {value.__name__}", [getattr(value, "__version__", None)]
        case type() | BuiltinFunctionType():
            return f"{value.__module__}.{value.__qualname__}", []
        case FunctionType():
            return "function", _function(value)
        case CodeType():
            return "code", [value.co_code, value.co_names, value.co_varnames, value.co_consts]
        case functools.partial():
            return "partial", [value.func, value.args, value.keywords]
    return _object(value)


def _object(value: Any) -> tuple[str, list[Any]]:
    """A value of GSL's own by its fields; of any other, one that torch knows by name."""
    kind = type(value)
    if kind.__module__.partition(".")[0] != "gsl":
        if kind.__module__.partition(".")[0] == "torch" and "object at 0x" not in repr(value) and not _has_data(value):
            return f"{kind.__qualname__} {value}", []
        raise _NoText(value)
    names = [name for base in kind.__mro__ for name in getattr(base, "__slots__", ()) if name not in _SKIPPED]
    names += [name for name in getattr(value, "__dict__", ()) if name not in _SKIPPED]
    fields = [item for name in names for item in (name, _field(value, name))]
    return f"{kind.__module__}.{kind.__qualname__}", fields


def _field(value: Any, name: str) -> Any:
    try:
        return object.__getattribute__(value, name)
    except AttributeError:
        return None


def _has_data(value: Any) -> bool:
    return hasattr(value, "data_ptr")


def _function(function: FunctionType) -> list[Any]:
    """The code of a function, its file, and the values that it takes from outside."""
    path = Path(function.__code__.co_filename)
    package = function.__module__.partition(".")[0]
    if package == "torch":
        return [function.__module__, function.__qualname__]
    cells = [cell.cell_contents for cell in function.__closure__ or ()]
    if package == "gsl":  # of which all files count
        return [function.__module__, function.__qualname__, function.__defaults__, function.__kwdefaults__, cells]
    names = [name for name in _names(function.__code__) if name in function.__globals__ and not hasattr(builtins, name)]
    outside = [item for name in names for item in (name, function.__globals__[name])]
    text = _text(path) if path.is_file() else ""
    defaults = [function.__defaults__, function.__kwdefaults__]
    return [function.__qualname__, function.__code__, defaults, cells, outside, text]


def _names(code: CodeType) -> list[str]:
    """The names to which a function, and those within it, refer, in order."""
    found = dict.fromkeys(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found.update(dict.fromkeys(_names(constant)))
    return list(found)


@functools.lru_cache(maxsize=256)
def _text(path: Path) -> str:
    """A hash of a file's contents."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


@functools.lru_cache(maxsize=1)
def _own_sources() -> str:
    """A text that tells this version of GSL from others, made from all its files."""
    root = Path(gsl.errors.__file__).parent
    return " ".join(_text(path) for path in sorted(root.rglob("*.py")))


def check(rule: Subst) -> None:
    """Raise PicklingError for a rule with a function that can't go along."""
    for function in _functions(rule):
        if not isinstance(function, FunctionType):
            continue  # an object, which says itself what of it is pickled
        if "<" in function.__qualname__:
            raise PicklingError(
                f"{rule.title} can't be pickled: {function.__qualname__} has no name by which another process finds "
                "it; define it with a name at the top of a module"
            )
        used = next((name for name in _names(function.__code__) if _is_pattern(function.__globals__.get(name))), None)
        if used is not None:
            raise PicklingError(
                f"{rule.title} can't be pickled: {function.__qualname__} uses the pattern {used} of its module, which "
                f"is another object in another process; hand it over, as functools.partial(…, {used}={used})"
            )


def _functions(rule: Subst) -> Iterator[Any]:
    yield from rule.source.predicates
    if rule.target.callable is not None:
        yield rule.target.callable
    yield from (pattern.factory for pattern in walk(*rule.target.outputs) if isinstance(pattern, Module))


def _is_pattern(value: Any) -> bool:
    return isinstance(value, (Pattern, Group))
