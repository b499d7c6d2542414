"""The rules that are named on the command line."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gsl.cli.command import UsageError
from gsl.cli.terminal import Terminal
from gsl.errors import GSLError, nearest
from gsl.exchange import rules_from_taso, rules_from_tensat
from gsl.rewrite import RuleSet, Subst
from gsl.rulefile import read_file
from gsl.rulefile import rules_of as fusion_rules

HELP = """\
a file of Python code, whose rules and rule sets are found by themselves; a dotted module; a file of fusion rules
(.yaml); or one of TASO (.pb) or TENSAT (.txt). After a colon the names of some of its rules or rule sets, with commas
between: rules.py:swish,conv-add"""

_WHERE = ": a rule is a Subst, or in a RuleSet or list, at module level"

Named = list[tuple[str, Subst]]
"""Rules with the variables that hold them, or a list or set with them; a rule may stand there several times."""


def rules_of(sources: list[str], terminal: Terminal) -> list[Subst]:
    """The rules of all sources, each once, in their order. UsageError for what can't be found or read."""
    found: dict[Subst, None] = {}
    for source in sources:
        place, names = _split(source)
        rules = _read(place, terminal)
        if not rules:
            raise UsageError(f"{place} has no rules{_WHERE if READERS.get(Path(place).suffix, _file) is _file else ''}")
        found.update(dict.fromkeys(_chosen(rules, names, place)))
    return list(found)


def _split(source: str) -> tuple[str, list[str]]:
    """The place and the names after the last colon, unless it is part of a path."""
    place, colon, names = source.rpartition(":")
    if not colon or Path(source).is_file():
        return source, []
    chosen = [name.strip() for name in names.split(",") if name.strip()]
    if not chosen:
        raise UsageError(f"{source!r}: names of rules stand after the colon, as in {place or 'rules.py'}:swish")
    return place, chosen


def _chosen(rules: Named, names: list[str], place: str) -> Iterator[Subst]:
    """The rules of these names or variables; all of them if none is given."""
    if not names:
        yield from (rule for _, rule in rules)
    for name in names:
        matching = [rule for variable, rule in rules if name in (rule.name, variable)]
        if not matching:
            known = {rule.name for _, rule in rules}
            raise UsageError(f"{place} has no rule {name!r}: {nearest(name, known)}")
        yield from matching


def _read(place: str, terminal: Terminal) -> Named:
    """The rules of a file or module, with its warnings on the stream for errors."""
    path = Path(place)
    if path.is_file():
        read = READERS.get(path.suffix)
        if read is None:
            raise UsageError(f"{place}: rules are read from files that end in {', '.join(READERS)}")
    elif path.suffix in READERS or os.sep in place:
        raise UsageError(f"there is no file {place}")
    else:
        read = _module
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        try:
            rules = read(place)
        except UsageError:
            raise
        except GSLError as error:
            raise UsageError(f"{place}: {error}") from error
        except Exception as error:
            raise UsageError(f"{place}: {_line(place, error)}{type(error).__name__}: {error}") from error
    for warning in caught:
        terminal.complain(f"warning: {warning.message}")
    return rules


def _line(place: str, error: BaseException) -> str:
    """The last line of a file that a traceback goes through."""
    step, line = error.__traceback__, 0
    while step is not None:
        if os.path.abspath(step.tb_frame.f_code.co_filename) == os.path.abspath(place):
            line = step.tb_lineno
        step = step.tb_next
    return f"line {line}: " if line else ""


# Python


def _file(place: str) -> Named:
    """The rules of a file of Python code."""
    name = f"rules of {Path(place).name}"
    spec = importlib.util.spec_from_file_location(name, place)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # what a dataclass, for one, looks up
    with _importable(os.path.dirname(os.path.abspath(place)), os.getcwd()):
        spec.loader.exec_module(module)
    return _collected(vars(module))


def _module(place: str) -> Named:
    """The rules of a module that can be imported from here."""
    if not all(part.isidentifier() for part in place.split(".")):
        raise UsageError(f"there is no file {place}")
    with _importable(os.getcwd()):
        try:
            module = importlib.import_module(place)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{place}.".startswith(f"{error.name}."):
                raise
            raise UsageError(f"there is neither a file nor a module {place}") from None
    return _collected(vars(module))


@contextmanager
def _importable(*folders: str) -> Iterator[None]:
    """While it lasts, modules of these folders can be imported, as those beside a script can."""
    before = list(sys.path)
    sys.path[:0] = folders
    try:
        yield
    finally:
        sys.path[:] = before


def _collected(variables: Mapping[str, Any]) -> Named:
    """The rules in variables of a module: rules, rule sets, and lists, tuples and dictionaries of them."""
    found: Named = []
    for variable, value in variables.items():
        items: Iterable[Any] = (value,)
        if isinstance(value, (dict, list, tuple, RuleSet)):
            items = value.values() if isinstance(value, dict) else value
        found += [(variable, item) for item in items if isinstance(item, Subst)]
    return found


def _fusion(place: str) -> Named:
    """The forms of the rules of a file of fusion rules, by the names that the rules have there."""
    return [(rule.entry.name, rule) for rule in fusion_rules(read_file(place))]


READERS: Mapping[str, Callable[[str], Named]] = {
    ".py": _file,
    ".pb": lambda place: [("", rule) for rule in rules_from_taso(place)],
    ".txt": lambda place: [("", rule) for rule in rules_from_tensat(place)],
    ".yaml": _fusion,
    ".yml": _fusion,
}
"""What reads a file, by how its name ends."""
