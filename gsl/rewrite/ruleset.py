"""Sets of rules that are applied together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from gsl.errors import PatternError, nearest
from gsl.graph import Graph
from gsl.rewrite.apply import Trace, apply, rewrite
from gsl.rewrite.subst import Subst

Subject = TypeVar("Subject")
STRATEGIES = ("priority", "largest", "first")


class RuleSet:
    """Rules that are applied in one go.

    Where matches overlap, ``strategy`` decides: ``"priority"`` takes rules of higher priority first, and earlier
    ones before later ones; ``"largest"`` takes the match that covers most nodes; ``"first"`` the one whose first
    output comes first in the graph.
    """

    def __init__(self, rules: Iterable[Subst], *, strategy: str = "priority", max_steps: int | None = None) -> None:
        self.rules = tuple(rules)
        for rule in self.rules:
            if not isinstance(rule, Subst):
                raise PatternError(f"a RuleSet is made of Subst, got {rule!r} of type {type(rule).__name__}")
        if strategy not in STRATEGIES:
            raise PatternError(f"unknown strategy {strategy!r}: {nearest(strategy, STRATEGIES)}")
        self.strategy = strategy
        self.max_steps = max_steps

    def __repr__(self) -> str:
        return f"<RuleSet of {len(self.rules)} rules, {self.strategy}>"

    def __len__(self) -> int:
        return len(self.rules)

    def __iter__(self) -> Iterator[Subst]:
        return iter(self.rules)

    def __call__(
        self,
        subject: Subject,
        *,
        iterative: bool = False,
        max_steps: int | None = None,
        fold_params: bool = True,
        new_name: str | None = None,
    ) -> Subject:
        """A new workload in which the rules have been applied: one pass, or until nothing matches."""
        return rewrite(
            self.rules,
            subject,
            strategy=self.strategy,
            iterative=iterative,
            max_steps=self.max_steps if max_steps is None else max_steps,
            fold_params=fold_params,
            new_name=new_name,
        )

    def apply(self, graph: Graph, *, iterative: bool = False, max_steps: int | None = None) -> tuple[Graph, Trace]:
        """A rewritten copy of a graph view, and what was done. A workload keeps the latter as its ``trace``."""
        return apply(
            self.rules,
            graph,
            strategy=self.strategy,
            iterative=iterative,
            max_steps=self.max_steps if max_steps is None else max_steps,
        )
