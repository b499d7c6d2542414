"""Rules made from rules: with further conditions, or with another target."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from gsl.attr import Expr
from gsl.attr.ast import Ast
from gsl.errors import DroppedAttributeWarning
from gsl.rewrite import Subst


def rebuilt(
    rule: Subst,
    *,
    target: Any = None,
    guards: Sequence[Ast] | None = None,
    more: Sequence[Any] = (),
    predicates: Sequence[Any] | None = None,
    source: Any = None,
    extern_use: Any = ...,
    name: str | None = None,
) -> Subst:
    """The rule with parts exchanged; ``more`` are conditions in addition. PatternError where it is not well-formed."""
    own = rule.source
    outputs = own.outputs if source is None else source
    if target is None:
        target = rule.target.callable or list(rule.target.outputs)
    where = [
        *map(Expr, own.guards if guards is None else guards),
        *(own.predicates if predicates is None else predicates),
        *own.constraints,
        *more,
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DroppedAttributeWarning)
        return Subst(
            list(outputs) if len(outputs) > 1 else outputs[0],
            target,
            where=where,
            name=rule.name if name is None else name,
            priority=rule.priority,
            extern_use=own.extern_use if extern_use is ... else extern_use,
            distinct=rule.plan.distinct,
            fuzzy=tuple(rule.plan.fuzzy),
        )
