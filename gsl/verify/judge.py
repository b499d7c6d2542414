"""Verifying a rule: the verdict of a search for a counterexample."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from gsl.pat import Call, OpClass
from gsl.rewrite import Subst
from gsl.spec import OpSpec
from gsl.verify import models
from gsl.verify.instance import generate
from gsl.verify.mutate import mutants_of
from gsl.verify.outcome import Outcome
from gsl.verify.reproduce import code
from gsl.verify.search import ATTEMPTS, Compare, Search, one_thread
from gsl.verify.shrink import hypothesis, smallest
from gsl.verify.suggest import suggestions
from gsl.verify.verdict import MINIMUM, Counterexample, Mutants, Refuted, Suggestion, Supported, Unchecked, Verdict

MORE = 100
"""So many more instances are evaluated after a counterexample, to see what tells them apart."""
CONDITIONS = 6
"""So many conditions are tried as the missing one."""
MUTANT_EXAMPLES = 60
MUTANT_ATTEMPTS = 4
"""So many instances of a mutant are evaluated, with so many attempts for each."""


def verify(
    rule: Subst, *, max_examples: int = 200, seed: int = 0, mutate: bool = False, compare: Compare = models.compare
) -> Verdict:
    """Look for an instance of a rule's source on which its two sides differ.

    ``max_examples`` are the instances that are evaluated. ``mutate`` also breaks the rule in small ways, and tells how
    many of the mistakes are found. Equal seeds give equal verdicts. MissingHypothesisError without hypothesis.
    """
    hypothesis()
    with one_thread():
        verdict = _verdict(rule, max_examples, seed, compare)
        if mutate:
            verdict = replace(verdict, mutants=_mutants(rule, seed, compare))
    return verdict


def verify_all(
    rules: Iterable[Subst], *, max_examples: int = 200, seed: int = 0, mutate: bool = False
) -> dict[str, Verdict]:
    """The verdicts on the rules of a set, by name."""
    return {rule.name: verify(rule, max_examples=max_examples, seed=seed, mutate=mutate) for rule in rules}


def _verdict(rule: Subst, max_examples: int, seed: int, compare: Compare) -> Verdict:
    """The verdict on a rule, with the smallest counterexample and the missing condition."""
    search = Search(rule, compare, seed)
    verdict = _judge(search, max_examples)
    if isinstance(verdict, Refuted):
        verdict = replace(verdict, counterexample=_least(search), suggestion=_suggestion(search, max_examples))
    return verdict


def _judge(search: Search, max_examples: int, attempts: int = ATTEMPTS) -> Verdict:
    """The verdict of a search, with the first counterexample as it was found."""
    rule = search.rule
    natives = (p for p in rule.plan.patterns if isinstance(p, Call) and not isinstance(p.op, (OpSpec, OpClass)))
    native = next(natives, None)
    if native is not None:
        reason = f"{native!r} is native to a framework, and has no meaning from which instances can be computed"
        return Unchecked(rule.name, search.evidence(), reason=reason)
    search.run(max_examples, until_different=True, attempts=attempts)
    if search.different:
        found, _ = search.different[0]
        return Refuted(rule.name, search.evidence(), counterexample=_counterexample(found, search.seed, ""))
    if search.evaluated < MINIMUM:
        return Unchecked(rule.name, search.evidence(), reason=_reason(search))
    return Supported(rule.name, search.evidence())


def _reason(search: Search) -> str:
    """Why too little could be evaluated."""
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


def _least(search: Search) -> Counterexample:
    """The smallest counterexample that is found from the first one, with a program that shows it."""
    first, tape = search.different[0]
    least = smallest(tape, lambda choices: generate(search.rule, choices), search.attempt, first)
    assert least.after is not None
    return _counterexample(least, search.seed, code(least.before, least.after, least.comparison.inputs))


def _counterexample(found: Outcome, seed: int, program: str) -> Counterexample:
    assert found.after is not None
    return Counterexample(found.before, found.after, found.comparison, program, seed)


def _suggestion(search: Search, max_examples: int) -> Suggestion | None:
    """The weakest condition that tells failing from passing instances and makes the rule supported.

    A rule that still fails with a condition gives further failing instances, which the next one has to exclude.
    """
    search.run(min(MORE, max_examples), until_different=False)
    failing = [found.before for found, _ in search.different]
    passing = list(search.equal)
    tried: set[str] = set()
    while len(tried) < CONDITIONS:
        new = (found for found in suggestions(search.rule, failing, passing) if found[2] not in tried)
        guarded, condition, text, names = next(new, (None, None, "", {}))
        if guarded is None:
            return None
        tried.add(text)
        inner = Search(guarded, search.compare, search.seed)
        verdict = _judge(inner, max_examples)
        if isinstance(verdict, Supported):
            return Suggestion(condition, text, names, verdict)
        failing += [found.before for found, _ in inner.different]
        passing += inner.equal
    return None


def _mutants(rule: Subst, seed: int, compare: Compare) -> Mutants:
    refuted: list[str] = []
    survived: list[str] = []
    unbuildable: list[str] = []
    for name, mutant in mutants_of(rule):
        verdict = None if mutant is None else _judge(Search(mutant, compare, seed), MUTANT_EXAMPLES, MUTANT_ATTEMPTS)
        kind = unbuildable if verdict is None or isinstance(verdict, Unchecked) else survived if verdict else refuted
        kind.append(name)
    return Mutants(tuple(refuted), tuple(survived), tuple(unbuildable))
