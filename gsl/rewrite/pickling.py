"""Functions in rules that can't be pickled: another process would not find them, or others than are meant."""

from __future__ import annotations

from collections.abc import Iterator
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

from gsl.errors import PicklingError
from gsl.pat import Group, Module, Pattern, walk

if TYPE_CHECKING:
    from gsl.rewrite.subst import Subst


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


def _names(code: CodeType) -> Iterator[str]:
    """The global names that a function mentions, also in functions inside of it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _is_pattern(value: Any) -> bool:
    return isinstance(value, (Pattern, Group))
