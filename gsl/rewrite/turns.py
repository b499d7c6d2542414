"""Sets of rules that take turns until none of them fires."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import TypeVar

from gsl.errors import PatternError, located
from gsl.graph import Graph
from gsl.rewrite.apply import Run, limit_of, on_subject
from gsl.rewrite.fold import Evaluate
from gsl.rewrite.loop import Watch
from gsl.rewrite.ruleset import RuleSet
from gsl.rewrite.subst import Subst
from gsl.rewrite.trace import Trace

Subject = TypeVar("Subject")


def alternate(
    turns: Iterable[Subst | RuleSet],
    subject: Subject,
    *,
    max_steps: int | None = None,
    fold_params: bool = True,
    new_name: str | None = None,
) -> Subject:
    """A new workload (or graph view) in which rules took turns; the given one is unchanged.

    In every step each of the ``turns``, a rule or a set of rules, makes one pass, in order and with its own strategy.
    It ends when nothing fires in a whole step, or after ``max_steps`` steps; without that number, FixpointError where
    there is no end. All that happened is one trace, with a round for each pass.
    """
    sets = [turn if isinstance(turn, RuleSet) else RuleSet([turn]) for turn in turns]
    rules = _by_name(sets)
    if max_steps is not None and (isinstance(max_steps, bool) or not isinstance(max_steps, int) or max_steps < 1):
        raise PatternError(located(f"alternate: max_steps is a number of steps, 1 or more, got {max_steps!r}"))

    def work(graph: Graph, evaluate: Evaluate | None, own: bool) -> tuple[Graph, Trace]:
        for rule in rules.values():
            rule.plan.check(graph)
        trace = Trace(rules=rules, iterative=True, tidy=any(turn.tidy for turn in sets))
        run = Run(graph, trace, evaluate if fold_params else None)
        run.start()
        limit = limit_of(graph) if max_steps is None else None
        watch: Watch | None = None
        steps = 0
        while max_steps is None or steps < max_steps:
            steps += 1
            if not _step(run, sets, limit):
                break
            if max_steps is None:
                watch = watch or Watch(graph)
                watch.check(run.graph, run.trace)
        return run.done()

    return on_subject(subject, work, new_name)


def _step(run: Run, sets: Iterable[RuleSet], limit: int | None) -> bool:
    """Let each of the sets make a pass; whether any rule fired."""
    run.trace.refused.clear()  # what is refused in the end is what counts
    fired = [run.round(rules.strategy, limit, rules) for rules in sets]
    return any(fired)


def _by_name(sets: Iterable[RuleSet]) -> dict[str, Subst]:
    """The rules of all sets; PatternError where two have one name, or there is none."""
    rules: dict[str, Subst] = {}
    for rule in chain.from_iterable(sets):
        other = rules.setdefault(rule.name, rule)
        if other is not rule:
            raise PatternError(
                located(f"two rules are named {rule.name!r}: {other.title} and {rule.title}; rename one")
            )
    if not rules:
        raise PatternError(located("alternate: expected rules that take turns, got none"))
    return rules
