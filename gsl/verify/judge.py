"""Verifying a rule: the verdict of a search for a counterexample."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from gsl.graph import Graph
from gsl.pat import Call, Fused, Module, OpClass, walk
from gsl.rewrite import Subst
from gsl.spec import OpSpec
from gsl.verify import models
from gsl.verify.instance import generate
from gsl.verify.mutate import mutants_of
from gsl.verify.reproduce import code
from gsl.verify.search import ATTEMPTS, Compare, CounterexampleSearch, Outcome, one_thread
from gsl.verify.shrink import hypothesis, size_of, smallest
from gsl.verify.suggest import suggestions
from gsl.verify.verdict import MINIMUM, Counterexample, Mutants, Refuted, Suggestion, Supported, Unchecked, Verdict

MORE = 100
"""The number of instances that are evaluated after a counterexample, to tell failing instances from passing ones; and
of those of each of two seeds, to test a condition."""
CONDITIONS = 6
"""The number of conditions that are tried as the missing one."""
MUTANT_EXAMPLES = 60
MUTANT_ATTEMPTS = 4
"""The number of instances of a mutant that are evaluated, and of attempts for each."""
REFUSED_MORE = 0.02
"""A mutant that is refused on a larger share of its instances than the rule, by this much, is stopped by the engine."""


def verify(
    rule: Subst,
    *,
    max_examples: int = 200,
    seed: int = 0,
    mutate: bool = False,
    suggest: bool = True,
    compare: Compare = models.compare,
) -> Verdict:
    """Look for an instance of a rule's source on which its two sides differ.

    ``max_examples`` are the instances that are evaluated. ``mutate`` also breaks the rule in small ways, and tells how
    many of the mistakes are found. ``suggest`` looks for the condition that a wrong rule lacks. Equal seeds give equal
    verdicts. MissingHypothesisError without hypothesis.
    """
    hypothesis()
    with one_thread():
        verdict = _verdict(rule, max_examples, seed, compare, suggest)
        if mutate:
            verdict = replace(verdict, mutants=_mutants(rule, seed, compare))
    return verdict


def verify_all(
    rules: Iterable[Subst], *, max_examples: int = 200, seed: int = 0, mutate: bool = False
) -> dict[str, Verdict]:
    """The verdicts on the rules of a set, by name."""
    return {rule.name: verify(rule, max_examples=max_examples, seed=seed, mutate=mutate) for rule in rules}


def _verdict(rule: Subst, max_examples: int, seed: int, compare: Compare, suggest: bool) -> Verdict:
    """The verdict on a rule, with the smallest counterexample and the missing condition."""
    search = CounterexampleSearch(rule, compare, seed)
    verdict = _judge(search, max_examples)
    if isinstance(verdict, Refuted):
        search.run(min(MORE, max_examples), until_different=False)
        suggestion = _suggestion(search) if suggest else None
        verdict = replace(verdict, counterexample=_least(search), suggestion=suggestion)
    return verdict


def _judge(search: CounterexampleSearch, max_examples: int, attempts: int = ATTEMPTS) -> Verdict:
    """The verdict of a search, with the first counterexample as it was found."""
    rule = search.rule
    natives = (p for p in rule.plan.patterns if isinstance(p, Call) and not isinstance(p.op, (OpSpec, OpClass)))
    native = next(natives, None)
    if native is not None:
        reason = f"{native!r} is native to a framework, and has no meaning from which instances can be computed"
        return Unchecked(rule.name, search.evidence(), reason=reason)
    outlined = () if rule.target.callable is not None else walk(*rule.target.outputs)
    for pattern in outlined:
        if pattern not in rule.plan.known and isinstance(pattern, (Fused, Module)):
            reason = f"{pattern!r} in the target has no meaning of its own, with which the source could be compared"
            return Unchecked(rule.name, search.evidence(), reason=reason)
    search.run(max_examples, until_different=True, attempts=attempts)
    if search.different and rule.approximate:
        reason = "it is approximate, and its two sides differ; gsl.optimize measures by how much they do in a program"
        return Unchecked(rule.name, search.evidence(), reason=reason)
    if search.different:
        found, _ = search.different[0]
        return Refuted(rule.name, search.evidence(), counterexample=_counterexample(found, search.seed, ""))
    if search.evaluated < MINIMUM:
        return Unchecked(rule.name, search.evidence(), reason=_reason(search))
    return Supported(rule.name, search.evidence())


def _reason(search: CounterexampleSearch) -> str:
    """The reason why too little could be evaluated."""
    counts = search.counts
    few = f"{search.evaluated} instances could be evaluated, {MINIMUM} are needed"
    if counts["refused"] and counts["refused"] >= counts["fired"]:
        why, times = search.refused.most_common(1)[0]
        return f"{few}; {counts['refused']} were refused, most often ({times}) because {why}"
    if counts["fired"]:
        why, times = search.without.most_common(1)[0]
        return f"{few}; {counts['fired']} could not be compared, most often ({times}) because {why}"
    if counts["unmatched"]:
        return f"{few}; {counts['unmatched']} graphs were made that the rule does not match"
    why, times = search.failed.most_common(1)[0] if search.failed else ("nothing was tried", 0)
    return f"{few}; no instance of the source could be made, most often ({times}) because {why}"


def _least(search: CounterexampleSearch) -> Counterexample:
    """The smallest counterexample that is found from the ones that are known, with a program that shows it."""
    first, tape = min(search.different, key=lambda found: size_of(found[0]))
    least = smallest(tape, lambda choices: generate(search.rule, choices), search.attempt, first)
    assert least.after is not None
    return _counterexample(least, search.seed, code(least.before, least.after, least.comparison.inputs))


def _counterexample(found: Outcome, seed: int, program: str) -> Counterexample:
    assert found.after is not None
    return Counterexample(found.before, found.after, found.comparison, program, seed)


def _suggestion(search: CounterexampleSearch) -> Suggestion | None:
    """The weakest condition that tells failing from passing instances and makes the rule supported.

    A rule that still fails with a condition gives further failing instances, which the next one has to exclude.
    """
    failing = [found.before for found, _ in search.different]
    passing = list(search.equal)
    tried: set[str] = set()
    while len(tried) < CONDITIONS:
        new = (found for found in suggestions(search.rule, failing, passing) if found[2] not in tried)
        guarded, condition, text, names = next(new, (None, None, "", {}))
        if guarded is None:
            return None
        tried.add(text)
        verdict = _confirmed(search, guarded, failing, passing)
        if verdict is not None:
            return Suggestion(condition, text, names, verdict)
    return None


def _confirmed(
    search: CounterexampleSearch, guarded: Subst, failing: list[Graph], passing: list[Graph]
) -> Supported | None:
    """The verdict on the rule with a condition, if it is supported, by instances of another seed as well.

    Instances that are found on the way are added to the failing and the passing ones.
    """
    inner = CounterexampleSearch(guarded, search.compare, search.seed)
    again = CounterexampleSearch(guarded, search.compare, search.seed + 1)
    verdict = _judge(inner, MORE)
    confirmed = isinstance(verdict, Supported) and isinstance(_judge(again, MORE), Supported)
    for searched in (inner, again):
        failing += [found.before for found, _ in searched.different]
        passing += searched.equal
    return verdict if confirmed and isinstance(verdict, Supported) else None


def _mutants(rule: Subst, seed: int, compare: Compare) -> Mutants:
    own = CounterexampleSearch(rule, compare, seed)
    _judge(own, MUTANT_EXAMPLES, MUTANT_ATTEMPTS)
    found: dict[str, list[str]] = {"refuted": [], "survived": [], "unbuildable": [], "refused": []}
    for name, mutant in mutants_of(rule):
        kind = "unbuildable"
        if mutant is not None:
            search = CounterexampleSearch(mutant, compare, seed)
            verdict = _judge(search, MUTANT_EXAMPLES, MUTANT_ATTEMPTS)
            if isinstance(verdict, Refuted):
                kind = "refuted"
            elif isinstance(verdict, Supported):
                kind = "refused" if _refused_share(search) > _refused_share(own) + REFUSED_MORE else "survived"
        found[kind].append(name)
    return Mutants(**{kind: tuple(names) for kind, names in found.items()})


def _refused_share(search: CounterexampleSearch) -> float:
    """The share of the instances matched by a rule on which the checks of the engine refuse it."""
    refused = search.counts["refused"]
    return refused / max(1, refused + search.evaluated + search.counts["fired"])
