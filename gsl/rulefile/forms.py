"""The forms of a pattern: which operators are there, and what uses what, for every choice that the file leaves open.

An operator that is absent is skipped: what it is a child of gets its children.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Final

from gsl.rulefile.check import ordered
from gsl.rulefile.schema import Alternative, Entry, Operator

MOST: Final = 256
"""So many choices a pattern may leave open."""
_Choices = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Form:
    """A pattern without choices."""

    name: str
    """The name of the rule, and the choices that were made."""
    operators: tuple[Operator, ...]
    children: Mapping[str, tuple[str, ...]]
    """The users of each operator."""

    @property
    def sinks(self) -> tuple[str, ...]:
        """The operators without children, which are the outputs."""
        return tuple(operator.name for operator in self.operators if not self.children[operator.name])


def forms(entry: Entry) -> list[Form]:
    """The forms of a rule in the order in which they are tried.

    Patterns with more operators come first, then those that stand first; within a pattern earlier options come first,
    then forms with more operators. RuleFileError for a pattern with too many, or that has no end.
    """
    found: list[list[Form]] = []
    names: set[str] = set()
    for pattern in entry.patterns:
        alone = len(entry.patterns) == 1
        found.append(_forms(pattern, entry.name if alone else f"{entry.name} {pattern.key}", names))
    found.sort(key=lambda group: -max(len(form.operators) for form in group))
    return [form for group in found for form in group]


def _forms(pattern: Alternative, name: str, names: set[str]) -> list[Form]:
    order = ordered(pattern)
    optional = [operator.name for operator in pattern.operators if not operator.required]
    options = [(o.name, n) for o in pattern.operators for n, each in enumerate(o.children) if len(each) > 1]
    sizes = {operator.name: [len(each) for each in operator.children] for operator in pattern.operators}
    count = 2 ** len(optional) * math.prod(sizes[operator][n] for operator, n in options)
    if count > MOST:
        raise pattern.place.error(
            f"{name}: {len(optional)} operators with required: false and {len(options)} with match_first_option are "
            f"{count} forms of the pattern, at most {MOST} are allowed: split the rule"
        )
    found: dict[object, tuple[_Choices, Form]] = {}
    for taken in product(*(range(sizes[operator][n]) for operator, n in options)):
        choice = dict(zip(options, taken))
        for present in product((True, False), repeat=len(optional)):
            absent = {operator for operator, there in zip(optional, present) if not there}
            children = _children(order, choice, absent)
            operators = tuple(operator for operator in pattern.operators if operator.name in children)
            key = tuple((operator.name, children[operator.name]) for operator in operators)
            if key not in found:
                title = " ".join((name, *_words(pattern, children, choice)))
                while title in names:
                    title += "'"
                names.add(title)
                found[key] = taken, Form(title, operators, children)
    made = [form for _, form in sorted(found.values(), key=lambda item: (item[0], -len(item[1].operators)))]
    for form in made:
        _check_ends(form)
    return made


def _children(
    order: list[Operator], choice: Mapping[tuple[str, int], int], absent: set[str]
) -> dict[str, tuple[str, ...]]:
    """The users of every operator that is there: reachable from the root."""
    users: dict[str, tuple[str, ...]] = {}
    for operator in reversed(order):
        given = [
            options[choice.get((operator.name, number), 0)].text for number, options in enumerate(operator.children)
        ]
        users[operator.name] = tuple(dict.fromkeys(_present(given, users, absent)))
    found: dict[str, tuple[str, ...]] = {}
    work = [order[0].name]
    while work:
        name = work.pop()
        if name not in found:
            found[name] = users[name]
            work += users[name]
    return found


def _present(names: list[str], users: Mapping[str, tuple[str, ...]], absent: set[str]) -> Iterator[str]:
    for name in names:
        yield from users[name] if name in absent else (name,)


def _words(
    pattern: Alternative, children: Mapping[str, tuple[str, ...]], choice: Mapping[tuple[str, int], int]
) -> Iterator[str]:
    """What tells a form from others of its pattern."""
    by_name = {operator.name: operator for operator in pattern.operators}
    made = [(by_name[name].children[number], option) for (name, number), option in choice.items() if name in children]
    taken = [options[option].text for options, option in made]
    if taken:
        yield f"with {', '.join(taken)}"
    absent = [name for name, operator in by_name.items() if not operator.required and name not in children]
    if absent:
        yield f"without {', '.join(absent)}"


def _check_ends(form: Form) -> None:
    for operator in form.operators:
        if operator.multiple and operator.op_type.is_any and not form.children[operator.name]:
            raise operator.place.error(
                f"{form.name}: the pattern ends in {operator.name!r}, which is any number of any operators, so nothing "
                "tells where it stops: give it a child that is required"
            )
