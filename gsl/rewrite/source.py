"""The source of a rule and its conditions, as the user gives them, sorted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gsl.attr import Expr
from gsl.attr.ast import Ast
from gsl.errors import PatternError, PatternTypeError, located
from gsl.match import Match
from gsl.pat import Constraint, Fused, Group, Like, Module, NonLeafExternUse, Pattern, Seq, Wildcard
from gsl.pat.use import check_unique

Predicate = Callable[[Match], "bool | str"]


@dataclass(frozen=True)
class Source:
    """The outputs of a source, and the conditions by their kinds."""

    outputs: tuple[Pattern, ...]
    guards: tuple[Ast, ...]
    predicates: tuple[Predicate, ...]
    constraints: tuple[Constraint, ...]
    extern_use: bool | None

    @staticmethod
    def of(src: Any, where: Any, extern_use: bool | None) -> Source:
        """Sort the arguments of a rule. Raises PatternTypeError or PatternError for an argument that has no place in
        one."""
        groups = [item for item in _items(src, Group) if isinstance(item, Group)]
        outputs = [p for item in _items(src, Group) for p in (item.members if isinstance(item, Group) else (item,))]
        _check_outputs(outputs)
        conditions = _items(where, (Group, Constraint, Expr))
        constraints: dict[Constraint, None] = {c: None for group in groups for c in group.constraints}
        guards: list[Ast] = []
        predicates: list[Predicate] = []
        for condition in conditions:
            if isinstance(condition, Expr):
                guards.append(condition.ast)
            elif isinstance(condition, Constraint):
                constraints[condition] = None
            elif isinstance(condition, (Seq, Group)):
                constraints.update(dict.fromkeys(condition.constraints))
            elif callable(condition) and not isinstance(condition, Pattern):
                predicates.append(condition)
            else:
                raise PatternTypeError(
                    located(
                        "where= takes attribute expressions, use relations and functions of the match, got "
                        f"{condition!r} of type {type(condition).__name__}"
                    )
                )
        check_unique(*outputs, *constraints)
        for constraint in constraints:
            if isinstance(constraint, NonLeafExternUse):
                extern_use = constraint.used
        if not guards and not predicates and not constraints and _is_bare(outputs):
            raise PatternError(
                located(f"the source {outputs[0]!r} is any node at all: demand something of it, or give a condition, "
                        "as where=…")
            )  # fmt: skip
        kept = tuple(c for c in constraints if not isinstance(c, NonLeafExternUse))
        return Source(tuple(outputs), tuple(guards), tuple(predicates), kept, extern_use)


def _items(value: Any, single: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) and not isinstance(value, single) else [value]


def _is_bare(outputs: Sequence[Pattern]) -> bool:
    """True if a source is a single wildcard without demands."""
    return len(outputs) == 1 and isinstance(outputs[0], Wildcard) and outputs[0].guard is None


def _check_outputs(outputs: Sequence[Any]) -> None:
    for pattern in outputs:
        if not isinstance(pattern, Pattern):
            raise PatternTypeError(
                located(f"a source is made of patterns, got {pattern!r} of type {type(pattern).__name__}")
            )
        if isinstance(pattern, (Fused, Like, Module)):
            raise PatternError(located(f"{pattern!r} belongs in a target"))
    if not outputs:
        raise PatternError(located("a source needs at least one pattern"))
    if len(set(outputs)) < len(outputs):
        raise PatternError(located("a pattern stands twice among the outputs of the source"))
