"""The contents of a file of fusion rules, each with its place in the file, and the forms of a pattern.

The forms are its operators and their users, for every choice that the file leaves open. An operator that is absent is
skipped: its parent gets its children. An entry that stands for one of its options is that option, and its children are
children of the option.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Final

from gsl.errors import RuleFileError, nearest


@dataclass(frozen=True, slots=True)
class FilePlace:
    """A place in a file; lines and columns are counted from 1."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"

    def error(self, problem: str) -> RuleFileError:
        """The error of a problem at this place."""
        return RuleFileError(f"{self}: {problem}")


@dataclass(frozen=True, slots=True)
class Word:
    """A name in the file; words are equal if they read the same."""

    text: str
    place: FilePlace = field(compare=False)

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class OpType:
    """The operators that a node may have: those of the names, or, ``inverted``, all others."""

    names: tuple[Word, ...]
    inverted: bool = False

    @property
    def is_any(self) -> bool:
        """True if every operator will do, which is written as a dot."""
        return self.inverted and not self.names


ANY: Final = OpType((), inverted=True)


@dataclass(frozen=True, slots=True)
class FileOperator:
    """One operator of a pattern, and its users."""

    name: str
    op_type: OpType
    children: tuple[tuple[Word, ...], ...] = ()
    """The users. Of each the names of its options, of which there is one where the file gives no choice."""
    required: bool = True
    multiple: bool = False
    place: FilePlace = field(compare=False, kw_only=True)

    @property
    def choices(self) -> tuple[tuple[Word, ...], ...]:
        """All that it names: of each the options."""
        return self.children


@dataclass(frozen=True, slots=True)
class OptionalOperators:
    """An entry without an operator of its own, which stands for the first of its options that leads to a match."""

    name: str
    options: tuple[Word, ...]
    children: tuple[tuple[Word, ...], ...] = ()
    """The users of the option, besides its own."""
    required: bool = True
    place: FilePlace = field(compare=False, kw_only=True)

    @property
    def choices(self) -> tuple[tuple[Word, ...], ...]:
        """All that it names: its options, then of each child the options."""
        return (self.options, *self.children)


@dataclass(frozen=True, slots=True)
class Alternative:
    """One pattern of a rule: its operators, in the order of the file. The first one need not be the root."""

    key: str
    """Under which key it stands: ``pattern``, ``pattern1``, …"""
    operators: tuple[FileOperator | OptionalOperators, ...]
    place: FilePlace = field(compare=False)


@dataclass(frozen=True, slots=True)
class Entry:
    """One rule of a file."""

    name: str
    patterns: tuple[Alternative, ...]
    priority: int = 0
    heuristic: str | None = None
    place: FilePlace = field(compare=False, kw_only=True)


# ---------------------------------------------------------------- checks


def check(pattern: Alternative) -> None:
    """Raise RuleFileError, with the place, for operators that don't make a graph with one root."""
    by_name = {operator.name: operator for operator in pattern.operators}
    for operator in pattern.operators:
        _check_names(operator, by_name)
    order = ordered(pattern)
    for operator in pattern.operators:
        _check_distinct(operator, by_name)
    children = {word.text for operator in pattern.operators for word in words(operator)}
    root, *others = (operator for operator in order if operator.name not in children)
    if others:
        first, second = sorted((root, others[0]), key=lambda operator: (operator.place.line, operator.place.column))
        raise second.place.error(
            f"two roots: neither {first.name!r} nor {second.name!r} is the child of an operator; a pattern is what "
            "grows from one operator"
        )
    if not root.required:
        raise root.place.error(
            f"{root.name!r} is the root of the pattern, so it can't be absent: leave out required, or write the rule "
            "without it as another pattern"
        )


def words(operator: FileOperator | OptionalOperators) -> Iterator[Word]:
    """The names of all children, options among them."""
    for options in operator.choices:
        yield from options


def _check_names(
    operator: FileOperator | OptionalOperators, by_name: Mapping[str, FileOperator | OptionalOperators]
) -> None:
    for number, options in enumerate(operator.choices):
        stands = isinstance(operator, OptionalOperators) and number == 0
        kind = "option" if stands else "child"
        for word in options:
            child = by_name.get(word.text)
            if child is None:
                raise word.place.error(
                    f"{operator.name!r} has {'an' if stands else 'a'} {kind} {word.text!r}, which is no operator of "
                    f"the pattern: {nearest(word.text, by_name)}"
                )
            if child is operator:
                raise word.place.error(f"{operator.name!r} is its own {kind}")
            if (stands or len(options) > 1) and not child.required:
                raise word.place.error(
                    f"{word.text!r} is an option of match_first_option, of which one must match, and has required: "
                    "false: give it one of the two"
                )


def _check_distinct(
    operator: FileOperator | OptionalOperators, by_name: Mapping[str, FileOperator | OptionalOperators]
) -> None:
    what = "options and children" if isinstance(operator, OptionalOperators) else "children"
    seen: set[str] = set()
    for word in words(operator):
        for name in _meant(word.text, by_name):
            if name in seen:
                through = "" if name == word.text else f", here as an option of {word.text!r}"
                raise word.place.error(f"{name!r} stands twice among the {what} of {operator.name!r}{through}")
            seen.add(name)


def _meant(name: str, by_name: Mapping[str, FileOperator | OptionalOperators]) -> Iterator[str]:
    """The operators that a name may stand for."""
    work = [name]
    while work:
        operator = by_name[work.pop()]
        if isinstance(operator, OptionalOperators):
            work += [word.text for word in reversed(operator.options)]
        else:
            yield operator.name


def ordered(pattern: Alternative) -> list[FileOperator | OptionalOperators]:
    """The operators, each before its children, a choice before its options and these before its children.

    RuleFileError for a cycle.
    """
    by_name = {operator.name: operator for operator in pattern.operators}
    below: dict[str, Sequence[Word]] = {operator.name: [*words(operator)] for operator in pattern.operators}
    for name in _sorted(below):
        operator = by_name[name]
        if isinstance(operator, OptionalOperators):
            children = below[name][len(operator.options) :]
            for option in operator.options:
                below[option.text] = [*below[option.text], *children]
    why = "; the children of an entry without op_type are children of its options"
    return [by_name[name] for name in _sorted(below, why)]


def _sorted(below: Mapping[str, Sequence[Word]], why: str = "") -> list[str]:
    """The names, each before those below it, of which the first come first. RuleFileError for a cycle."""
    done: dict[str, None] = {}
    named = {word.text for some in below.values() for word in some}
    for start in sorted(below, key=named.__contains__):  # from the roots
        path: dict[str, Iterator[Word]] = {} if start in done else {start: reversed(below[start])}
        while path:
            name = next(reversed(path))
            word = next(path[name], None)
            if word is None:
                del path[name]
                done[name] = None
            elif word.text in path:
                around = [*path][[*path].index(word.text) :]
                raise word.place.error(f"a cycle: {' -> '.join([*around, word.text])}{why}")
            elif word.text not in done:
                path[word.text] = reversed(below[word.text])
    return [*reversed(done)]


# ---------------------------------------------------------------- forms


MOST: Final = 256
"""So many choices a pattern may leave open."""
_Choices = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PatternForm:
    """A pattern without choices."""

    name: str
    """The name of the rule, and the choices that were made."""
    operators: tuple[FileOperator, ...]
    children: Mapping[str, tuple[str, ...]]
    """The users of each operator."""
    stands: Mapping[str, str]
    """The operator that each entry without one stands for."""

    @property
    def sinks(self) -> tuple[str, ...]:
        """The operators without children, which are the outputs."""
        return tuple(operator.name for operator in self.operators if not self.children[operator.name])


def forms(entry: Entry) -> list[PatternForm]:
    """The forms of a rule in the order in which they are tried.

    Patterns with more operators come first, then those that stand first; within a pattern earlier options come first,
    and a choice before those that it leads to, then forms with more operators. RuleFileError for a pattern with too
    many, or that has no end.
    """
    found: list[list[PatternForm]] = []
    names: set[str] = set()
    for pattern in entry.patterns:
        alone = len(entry.patterns) == 1
        found.append(_forms(pattern, entry.name if alone else f"{entry.name} {pattern.key}", names))
    found.sort(key=lambda group: -max(len(form.operators) for form in group))
    return [form for group in found for form in group]


def _forms(pattern: Alternative, name: str, names: set[str]) -> list[PatternForm]:
    order = ordered(pattern)
    optional = [operator.name for operator in pattern.operators if not operator.required]
    options = [(operator.name, n) for operator in order for n, each in enumerate(operator.choices) if len(each) > 1]
    sizes = {operator.name: [len(each) for each in operator.choices] for operator in pattern.operators}
    count = 2 ** len(optional) * math.prod(sizes[operator][n] for operator, n in options)
    if count > MOST:
        raise pattern.place.error(
            f"{name}: {len(optional)} operators with required: false and {len(options)} with match_first_option are "
            f"{count} forms of the pattern, at most {MOST} are allowed: split the rule"
        )
    found: dict[object, tuple[_Choices, PatternForm]] = {}
    for taken in product(*(range(sizes[operator][n]) for operator, n in options)):
        choice = dict(zip(options, taken))
        for present in product((True, False), repeat=len(optional)):
            absent = {operator for operator, there in zip(optional, present) if not there}
            children, stands = _children(order, choice, absent)
            operators = tuple(o for o in pattern.operators if isinstance(o, FileOperator) and o.name in children)
            key = tuple((operator.name, children[operator.name]) for operator in operators)
            if key not in found:
                named = {*children, *stands}
                title = " ".join((name, *_words(pattern, named, choice)))
                while title in names:
                    title += "'"
                names.add(title)
                # Where what has a choice is absent, the form comes after those with any of the options.
                rank = tuple(n if operator in named else MOST for (operator, _), n in choice.items())
                found[key] = rank, PatternForm(title, operators, children, stands)
    made = [form for _, form in sorted(found.values(), key=lambda item: (item[0], -len(item[1].operators)))]
    for form in made:
        _check_ends(form)
    return made


def _children(
    order: list[FileOperator | OptionalOperators], choice: Mapping[tuple[str, int], int], absent: set[str]
) -> tuple[dict[str, tuple[str, ...]], dict[str, str]]:
    """The users of every operator that is there, reachable from the root; the operator of each entry without one."""
    users: dict[str, tuple[str, ...]] = {}
    option: dict[str, str] = {}
    meant: dict[str, str] = {}
    for operator in reversed(order):
        name = operator.name
        given = [options[choice.get((name, number), 0)].text for number, options in enumerate(operator.choices)]
        if isinstance(operator, OptionalOperators):
            option[name] = given.pop(0)
        meant[name] = meant[option[name]] if name in option else name
        users[name] = tuple(dict.fromkeys(_present(given, users, absent)))
    there = {order[0].name}
    children: dict[str, dict[str, None]] = {}
    for name in (operator.name for operator in order):
        if name in there:
            there.update((option.get(name, name), *users[name]))
            children.setdefault(meant[name], {}).update((meant[user], None) for user in users[name])
    stands = {name: meant[name] for name in option if name in there}
    return {name: tuple(found) for name, found in children.items()}, stands


def _present(names: list[str], users: Mapping[str, tuple[str, ...]], absent: set[str]) -> Iterator[str]:
    for name in names:
        yield from users[name] if name in absent else (name,)


def _words(pattern: Alternative, there: Collection[str], choice: Mapping[tuple[str, int], int]) -> Iterator[str]:
    """The words that tell a form from others of its pattern."""
    by_name = {operator.name: operator for operator in pattern.operators}
    made = [(by_name[name].choices[number], option) for (name, number), option in choice.items() if name in there]
    taken = [options[option].text for options, option in made]
    if taken:
        yield f"with {', '.join(taken)}"
    absent = [name for name, operator in by_name.items() if not operator.required and name not in there]
    if absent:
        yield f"without {', '.join(absent)}"


def _check_ends(form: PatternForm) -> None:
    for operator in form.operators:
        if operator.multiple and operator.op_type.is_any and not form.children[operator.name]:
            raise operator.place.error(
                f"{form.name}: the pattern ends in {operator.name!r}, which is any number of any operators, so nothing "
                "tells where it stops: give it a child that is required"
            )
