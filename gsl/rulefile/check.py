"""The checks that the operators of a pattern form a graph that can be matched."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from gsl.errors import nearest
from gsl.rulefile.schema import Alternative, Choice, Operator, Word


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


def words(operator: Operator | Choice) -> Iterator[Word]:
    """The names of all children, options among them."""
    for options in operator.choices:
        yield from options


def _check_names(operator: Operator | Choice, by_name: Mapping[str, Operator | Choice]) -> None:
    for number, options in enumerate(operator.choices):
        stands = isinstance(operator, Choice) and number == 0
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


def _check_distinct(operator: Operator | Choice, by_name: Mapping[str, Operator | Choice]) -> None:
    what = "options and children" if isinstance(operator, Choice) else "children"
    seen: set[str] = set()
    for word in words(operator):
        for name in _meant(word.text, by_name):
            if name in seen:
                through = "" if name == word.text else f", here as an option of {word.text!r}"
                raise word.place.error(f"{name!r} stands twice among the {what} of {operator.name!r}{through}")
            seen.add(name)


def _meant(name: str, by_name: Mapping[str, Operator | Choice]) -> Iterator[str]:
    """The operators that a name may stand for."""
    work = [name]
    while work:
        operator = by_name[work.pop()]
        if isinstance(operator, Choice):
            work += [word.text for word in reversed(operator.options)]
        else:
            yield operator.name


def ordered(pattern: Alternative) -> list[Operator | Choice]:
    """The operators, each before its children, a choice before its options and these before its children.

    RuleFileError for a cycle.
    """
    by_name = {operator.name: operator for operator in pattern.operators}
    below: dict[str, Sequence[Word]] = {operator.name: [*words(operator)] for operator in pattern.operators}
    for name in _sorted(below):
        operator = by_name[name]
        if isinstance(operator, Choice):
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
