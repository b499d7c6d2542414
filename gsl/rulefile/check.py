"""What makes the operators of a pattern a graph that can be matched."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gsl.errors import nearest
from gsl.rulefile.schema import Alternative, Operator, Word


def check(pattern: Alternative) -> None:
    """Raise RuleFileError, with the place, for operators that don't make a graph with one root."""
    by_name = {operator.name: operator for operator in pattern.operators}
    for operator in pattern.operators:
        _check_children(operator, by_name)
    order = ordered(pattern)
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


def words(operator: Operator) -> Iterator[Word]:
    """The names of all children, options among them."""
    for options in operator.children:
        yield from options


def _check_children(operator: Operator, by_name: Mapping[str, Operator]) -> None:
    seen: set[str] = set()
    for options in operator.children:
        for word in options:
            child = by_name.get(word.text)
            if child is None:
                raise word.place.error(
                    f"{operator.name!r} has a child {word.text!r}, which is no operator of the pattern: "
                    f"{nearest(word.text, by_name)}"
                )
            if child is operator:
                raise word.place.error(f"{operator.name!r} is its own child")
            if word.text in seen:
                raise word.place.error(f"{word.text!r} stands twice among the children of {operator.name!r}")
            seen.add(word.text)
            if len(options) > 1 and not child.required:
                raise word.place.error(
                    f"{word.text!r} is an option of match_first_option, of which one must match, and has required: "
                    "false: give it one of the two"
                )


def ordered(pattern: Alternative) -> list[Operator]:
    """The operators, each before its children. RuleFileError for a cycle."""
    by_name = {operator.name: operator for operator in pattern.operators}
    done: dict[str, None] = {}
    for start in pattern.operators:
        path: dict[str, Iterator[Word]] = {} if start.name in done else {start.name: words(start)}
        while path:
            name = next(reversed(path))
            word = next(path[name], None)
            if word is None:
                del path[name]
                done[name] = None
            elif word.text in path:
                around = [*path][[*path].index(word.text) :]
                raise word.place.error(f"a cycle: {' -> '.join([*around, word.text])}")
            elif word.text not in done:
                path[word.text] = words(by_name[word.text])
    return [by_name[name] for name in reversed(done)]
