"""The rules that are used unless others are given."""

from __future__ import annotations

from collections.abc import Iterable

from gsl.errors import WorkloadError
from gsl.rewrite import RuleSet, Subst

RulesOrSets = Subst | RuleSet | Iterable[Subst | RuleSet]

STAGES = ("NORMAL", "IDIOMS", "OPTIMISING", "CPU", "APPROXIMATE")
"""The rule sets of the book in the order in which they are applied; rules for processors are not for other devices."""


def default_rules(*, on_cpu: bool) -> tuple[RuleSet, ...]:
    """The stages of the rule book for a device."""
    import gsl.rules as book

    sets = [getattr(book, name) for name in STAGES if on_cpu or name not in ("CPU", "APPROXIMATE")]
    return stages_of([rules if isinstance(rules, RuleSet) else RuleSet(rules) for rules in sets])


def stages_of(rules: RulesOrSets) -> tuple[RuleSet, ...]:
    """Rules as stages: a rule, or rules in one list, are one stage; of several sets, each is one.

    WorkloadError for what is neither, and for two rules of one name.
    """
    if isinstance(rules, Subst):
        return (RuleSet([rules]),)
    if isinstance(rules, RuleSet):
        return (rules,)
    items = list(rules) if isinstance(rules, Iterable) else [rules]
    for item in items:
        if not isinstance(item, (Subst, RuleSet)):
            raise WorkloadError(
                "rules= takes a rule, a RuleSet, a list of rules, or a list of RuleSets that are applied one after the "
                f"other; got {item!r} of type {type(item).__name__}"
            )
    plain = [item for item in items if isinstance(item, Subst)]
    if len(plain) == len(items):
        found: tuple[RuleSet, ...] = (RuleSet(plain),) if plain else ()
    else:
        found = tuple(item if isinstance(item, RuleSet) else RuleSet([item]) for item in items)
    by_name: dict[str, Subst] = {}
    for rule in (rule for stage in found for rule in stage):
        other = by_name.setdefault(rule.name, rule)
        if other is not rule:
            raise WorkloadError(f"two rules are named {rule.name!r}: {other.title} and {rule.title}; rename one")
    return found
