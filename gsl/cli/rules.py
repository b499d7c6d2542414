"""The rules that are named on the command line."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import shlex
import sys
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any

from gsl.cli.command import Terminal, UsageError
from gsl.errors import GSLError, MissingPackageError, nearest
from gsl.exchange import rules_from_taso, rules_from_tensat
from gsl.rewrite import RuleSet, Subst
from gsl.rulefile import read_file
from gsl.rulefile import rules_of as fusion_rules

HELP = """\
a file of Python code, whose rules and rule sets are found by themselves; a dotted module; a file of fusion rules
(.yaml); or one of TASO (.pb) or TENSAT (.txt). After a colon the names of some of its rules or rule sets, with commas
between: rules.py:swish,conv-add"""

_WHERE = ": a rule is a Subst, or in a RuleSet or list, at module level"

NamedRules = list[tuple[str, Subst]]
"""Rules with the variables that hold them, or a list or set with them; a rule may stand there several times."""


@dataclass(frozen=True)
class FoundRules:
    """The contents of a file or module: its rules, and its rule sets by their variables."""

    rules: NamedRules
    sets: Mapping[str, RuleSet] = field(default_factory=dict)
    module: ModuleType | None = None

    @property
    def names(self) -> set[str]:
        """The names of the rules, and of the variables that hold them."""
        return {name for variable, rule in self.rules for name in (rule.name, variable) if name}

    def with_late(self, names: Iterable[str]) -> FoundRules:
        """These, and what the module makes only when it is asked for it by one of these names."""
        there = {*vars(self.module), *(rule.name for _, rule in self.rules)} if self.module else {*names}
        late = _collected({name: getattr(self.module, name, None) for name in names if name not in there})
        return FoundRules([*self.rules, *late.rules], {**self.sets, **late.sets}, self.module)


@dataclass(frozen=True)
class RuleSelection:
    """The rules that were named on the command line, each once, and the rule sets that were named with them.

    All rule sets of a place count as named if nothing of it is named.
    """

    rules: tuple[Subst, ...]
    sets: Mapping[str, RuleSet]

    def rule_set(self, strategy: str | None, max_steps: int | None = None) -> RuleSet:
        """The rules as one set, in the order and with the strategy of the rule set that has them all, if one does.

        Rules of several rule sets have the strategy that these agree on. UsageError if they don't, and none is given.
        """
        whole = [held for held in self.sets.values() if all(rule in held for rule in self.rules)]
        asked = whole[:1] or list(self.sets.values())
        if strategy is None:
            strategies = {held.strategy for held in asked} or {"priority"}
            if len(strategies) > 1:
                listed = ", ".join(f"{name} ({held.strategy})" for name, held in self.sets.items())
                raise UsageError(f"the rule sets {listed} differ in their strategies: name one, or give --strategy")
            (strategy,) = strategies
        if max_steps is None:
            max_steps = whole[0].max_steps if whole else None
        rules = [rule for rule in whole[0] if rule in self.rules] if whole else self.rules
        self.check_names()
        return RuleSet(rules, strategy=strategy, max_steps=max_steps)

    def check_names(self) -> None:
        """UsageError where two of the rules have one name."""
        known: dict[str, Subst] = {}
        for rule in self.rules:
            other = known.setdefault(rule.name, rule)
            if other is not rule:
                raise UsageError(
                    f"two rules are named {rule.name!r}, at {other.location} and at {rule.location}: rename one, or "
                    "choose one by its variable"
                )


def selection(sources: Sequence[str], terminal: Terminal) -> RuleSelection:
    """The rules of all sources in their order. UsageError for a source that can't be found or read."""
    rules: dict[Subst, None] = {}
    sets: dict[str, RuleSet] = {}
    read: dict[str, FoundRules] = {}
    for source in sources:
        place, parts = _split(source)
        if place not in read:  # each file is run once, so that its rules are the same ones
            read[place] = _read(place, terminal)
        found = read[place].with_late([part.strip() for part in parts])
        if not found.rules:
            raise UsageError(f"{place} has no rules{_WHERE if READERS.get(Path(place).suffix, _file) is _file else ''}")
        names = _joined(parts, found.names)
        rules.update(dict.fromkeys(_chosen(found, names, place)))
        sets |= {f"{place}:{name}": held for name, held in found.sets.items() if not names or name in names}
    return RuleSelection(tuple(rules), sets)


def one_rule(source: str, terminal: Terminal) -> Subst:
    """The only rule of a source. UsageError if it has several."""
    rules = selection([source], terminal).rules
    if len(rules) > 1:
        place = _split(source)[0]
        if all(rule.name == rules[0].name for rule in rules):
            raise UsageError(f"{source} has {len(rules)} rules of one name; name the variable of the one that is meant")
        example = shlex.quote(f"{place}:{rules[0].name}")
        raise UsageError(f"{source} has {len(rules)} rules; name the one that is meant, as in {example}")
    return rules[0]


def _split(source: str) -> tuple[str, list[str]]:
    """The place, and the parts between commas after the colon behind a file, or after the last one, unless it is part
    of a path."""
    if ":" not in source or os.path.isfile(source):
        return source, []
    colons = [at for at, letter in enumerate(source) if letter == ":"]
    at = next((at for at in colons if os.path.isfile(source[:at])), colons[-1])
    place, names = source[:at], source[at + 1 :]
    if not names.strip(", ") or not place:
        raise UsageError(f"{source!r}: names of rules stand after the colon, as in {place or 'rules.py'}:swish")
    return place, names.split(",")


def _joined(parts: Sequence[str], known: Collection[str]) -> list[str]:
    """The names that stand between commas; one that is known, and has commas itself, goes before its parts, with or
    without spaces at the commas."""
    known_as = {_without_spaces(name): name for name in sorted(known)} | {name: name for name in known}
    names = []
    while parts:
        for length in range(len(parts), 0, -1):
            name = ",".join(parts[:length]).strip()
            found = known_as.get(name) or known_as.get(_without_spaces(name))
            if found:
                break
        names.append(found or name)
        parts = parts[length:]
    return [name for name in names if name]


def _without_spaces(name: str) -> str:
    """A name without spaces beside its commas."""
    return ",".join(map(str.strip, name.split(",")))


def _chosen(found: FoundRules, names: list[str], place: str) -> Iterator[Subst]:
    """The rules of these names or variables; all of them if none is given."""
    if not names:
        yield from (rule for _, rule in found.rules)
    for name in names:
        matching = [rule for variable, rule in found.rules if name in (rule.name, variable)]
        if not matching:
            raise UsageError(f"{place} has no rule {name!r}: {nearest(name, found.names)}")
        yield from matching


def _read(place: str, terminal: Terminal) -> FoundRules:
    """The rules of a file or module. Its output and its warnings go to the stream for errors."""
    read = _reader(place)
    with warnings.catch_warnings(record=True) as caught, contextlib.redirect_stdout(terminal.err):
        warnings.simplefilter("default")
        try:
            rules = read(place)
        except (UsageError, MissingPackageError):
            raise
        except GSLError as error:
            raise UsageError(_placed(place, str(error))) from error
        except OSError as error:
            raise UsageError(f"{place} can't be read: {error.strerror or error}") from error
        except SystemExit as error:
            line = _line(place, error)
            raise UsageError(f"{place}: {line}it ends the process, but should only define rules") from error
        except Exception as error:
            raise UsageError(f"{place}: {_line(place, error)}{type(error).__name__}: {error}") from error
    for warning in caught:
        terminal.warn(warning.message)
    return rules


def _reader(place: str) -> Callable[[str], FoundRules]:
    """The function that reads a file or module. UsageError if there is no such file or module, or no function that
    reads it."""
    if os.path.isfile(place):
        read = READERS.get(Path(place).suffix)
        if read is None:
            raise UsageError(f"{place}: rules are read from files that end in {', '.join(READERS)}")
        return read
    if Path(place).suffix in READERS or os.sep in place or not place:
        raise UsageError(_no_file(place))
    return _module


def _no_file(place: str) -> str:
    """The message about a place where no file is."""
    if not place:
        return "expected a file or a module of rules, found an empty text"
    if os.path.isdir(place):
        return f"{place} is a folder; give the name of a file in it"
    return f"there is no file {place}"


def _placed(place: str, message: str) -> str:
    """A message with the place before it; one that starts with the name of the file says it once."""
    for start in (place, os.path.basename(place)):
        if message.startswith(f"{start}:"):
            return place + message.removeprefix(start)
    return f"{place}: {message}"


def _line(place: str, error: BaseException) -> str:
    """The last line of a file that a traceback goes through."""
    step, line = error.__traceback__, 0
    while step is not None:
        if os.path.abspath(step.tb_frame.f_code.co_filename) == os.path.abspath(place):
            line = step.tb_lineno
        step = step.tb_next
    return f"line {line}: " if line else ""


# Python


def _file(place: str) -> FoundRules:
    """The rules of a file of Python code."""
    name = f"rules of {Path(place).name}"
    spec = importlib.util.spec_from_file_location(name, place)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # what a dataclass, for one, looks up
    with importable(os.path.dirname(os.path.abspath(place)), os.getcwd()):
        spec.loader.exec_module(module)
    return _collected(vars(module))


def _module(place: str) -> FoundRules:
    """The rules of a module that can be imported from here; ``rules`` is the rule book if no such module is here."""
    if not all(part.isidentifier() for part in place.split(".")):
        raise UsageError(_no_file(place))
    with importable(os.getcwd()):
        try:
            module: ModuleType | None = importlib.import_module(place)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{place}.".startswith(f"{error.name}."):
                raise
            module = None
    if module is None or _is_folder(module):  # a folder of rule files, say, is a module to Python
        if place != "rules":
            raise UsageError(_no_file(place) if module else f"there is neither a file nor a module {place}")
        module = importlib.import_module("gsl.rules")
    return replace(_collected(vars(module)), module=module)


def _is_folder(module: ModuleType) -> bool:
    """True for a folder without code of its own, which Python imports as a module."""
    return getattr(module, "__file__", None) is None and hasattr(module, "__path__")


@contextlib.contextmanager
def importable(*folders: str) -> Iterator[None]:
    """A context in which modules of these folders can be imported, as those beside a script can."""
    before = list(sys.path)
    sys.path[:0] = folders
    try:
        yield
    finally:
        sys.path[:] = before


def _collected(variables: Mapping[str, Any]) -> FoundRules:
    """The rules in variables of a module: rules, rule sets, and lists, tuples and dictionaries of them."""
    found: NamedRules = []
    for variable, value in variables.items():
        items: Iterable[Any] = (value,)
        if isinstance(value, (dict, list, tuple, RuleSet)):
            items = value.values() if isinstance(value, dict) else value
        found += [(variable, item) for item in items if isinstance(item, Subst)]
    return FoundRules(found, {name: value for name, value in variables.items() if isinstance(value, RuleSet)})


def _fusion(place: str) -> FoundRules:
    """The forms of the rules of a file of fusion rules, by the names that the rules have there."""
    return FoundRules([(rule.entry.name, rule) for rule in fusion_rules(read_file(place))])


READERS: Mapping[str, Callable[[str], FoundRules]] = {
    ".py": _file,
    ".pb": lambda place: FoundRules([("", rule) for rule in rules_from_taso(place)]),
    ".txt": lambda place: FoundRules([("", rule) for rule in rules_from_tensat(place)]),
    ".yaml": _fusion,
    ".yml": _fusion,
}
"""The function that reads a file, by the file's suffix."""
