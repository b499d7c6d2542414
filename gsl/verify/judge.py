"""Verifying a rule: the verdict of a search for a counterexample."""

from __future__ import annotations

from dataclasses import fields, replace
from functools import cache, partial

from gsl.errors import check_number
from gsl.graph import Graph
from gsl.pat import Call, Fused, Module, OpClass, walk
from gsl.rewrite import Subst
from gsl.spec import OpSpec
from gsl.verify import models
from gsl.verify.choices import ATTEMPTS
from gsl.verify.corners import corners
from gsl.verify.counterexample import Shrinking, code, size_of, with_simple_values
from gsl.verify.instance import generate
from gsl.verify.mutate import Mutant, mutants_of, treats_alike
from gsl.verify.proved import with_proof
from gsl.verify.search import Compare, CounterexampleSearch, Outcome, one_thread, outcome
from gsl.verify.suggest import LEAST_PASSING, suggestions
from gsl.verify.verdict import MINIMUM, Counterexample, Mutants, Refuted, Suggestion, Supported, Unchecked, Verdict

MORE = 100
"""The largest number of instances that are evaluated after a counterexample, to tell failing instances from passing
ones; and the least number of those that test a condition."""
AGAIN = 50
"""The number of instances of another seed that test a condition."""
SOME = 20
"""The number of them after which is asked if more are needed."""
SMALL = 40
"""The number of instances among which the smallest counterexample is looked for."""
MORE_IN_VAIN = 2
"""A condition with which so many times as many instances are made in vain as without it is not tested further."""
CONDITIONS = 12
"""The number of conditions that are tried as the missing one."""
FEW_ATTEMPTS = 4
"""The number of attempts to generate an instance where there may be none."""
MANY_ATTEMPTS = 100
"""The number of attempts to generate an instance of which it is known that there are some."""
MORE_OFTEN = 5
"""A mutant without a condition gets so many times as many instances: those on which it matters may be rare."""
ALIKE = 30
"""The number of instances of a rule, and of a mutant, on which is asked if the two do the same."""
REFUSED_MORE = 0.005
"""A mutant of whose matches so much more are refused than of the rule's is stopped by the engine."""


def verify(
    rule: Subst,
    *,
    max_examples: int = 200,
    seed: int = 0,
    mutate: bool = False,
    suggest: bool = True,
    compare: Compare = models.compare,
    prove: bool = False,
) -> Verdict:
    """Look for an instance of a rule's source on which its two sides differ.

    ``max_examples`` are the instances that are evaluated. ``mutate`` also breaks the rule in small ways, and tells how
    many of the mistakes are found. ``suggest`` looks for the condition that a wrong rule lacks, when the verdict is
    first asked for it or printed. Equal seeds give equal verdicts. ``prove`` also looks for a proof, see
    :mod:`gsl.prove`. MissingSolverError without z3 for a proof, ContradictionError where a proof and a counterexample
    contradict. PatternError for a number of instances below 1.
    """
    check_number("max_examples", max_examples, "a number of instances", 1)
    check_number("seed", seed, "a whole number")
    with one_thread():
        verdict = _verdict(rule, max_examples, seed, compare, suggest)
        if mutate:
            verdict = replace(verdict, mutants=_mutants(rule, max_examples, seed, compare))
    if not prove:
        return verdict
    searched = partial(_searched, examples=max(MORE, max_examples), seed=seed, compare=compare)
    return with_proof(rule, verdict, searched if suggest else None)


def _searched(rule: Subst, examples: int, seed: int, compare: Compare) -> Verdict:
    """The verdict of a search alone."""
    with one_thread():
        return _judge(CounterexampleSearch(rule, compare, seed), examples)


def _verdict(rule: Subst, max_examples: int, seed: int, compare: Compare, suggest: bool) -> Verdict:
    """The verdict on a rule, with the smallest counterexample, and where to find the missing condition."""
    search = CounterexampleSearch(rule, compare, seed)
    verdict = _judge(search, max_examples)
    if isinstance(verdict, Refuted):
        search.compare = _on_tensors(compare)
        _more(search, SMALL)
        missing = cache(partial(_missing, search, max_examples, compare)) if suggest else None
        verdict = replace(verdict, counterexample=_least(search), missing=missing)
    if isinstance(verdict, Supported):
        verdict = replace(verdict, evidence=replace(verdict.evidence, at_corners=partial(corners, search)))
    return verdict


def _missing(search: CounterexampleSearch, max_examples: int, compare: Compare) -> Suggestion | None:
    """The condition that the refuted rule of a search lacks."""
    with one_thread():
        _contrast(search, min(MORE, max_examples))
        return _suggestion(search, max(MORE, max_examples), compare)


def _judge(search: CounterexampleSearch, max_examples: int, attempts: int = ATTEMPTS) -> Verdict:
    """The verdict of a search, with the first counterexample as it was found."""
    rule = search.rule
    outlined = () if rule.target.callable is not None else tuple(walk(*rule.target.outputs))
    calls = (p for p in (*rule.plan.patterns, *outlined) if isinstance(p, Call))
    native = next((p for p in calls if not isinstance(p.op, (OpSpec, OpClass))), None)
    if native is not None:
        reason = (
            f"{native!r} is native to a framework, and has no meaning from which instances can be computed; "
            "gsl.operator declares what it computes"
        )
        return Unchecked(rule.name, search.evidence(), reason=reason)
    for pattern in outlined:
        if pattern not in rule.plan.known and isinstance(pattern, (Fused, Module)):
            reason = f"{pattern!r} in the target has no meaning of its own, with which the source could be compared"
            return Unchecked(rule.name, search.evidence(), reason=reason)
    search.run(max_examples, until_different=True, attempts=attempts)
    _rare(search, min(MINIMUM, max_examples))
    if search.different and rule.approximate:
        reason = "it is approximate, and its two sides differ; gsl.optimize measures by how much they do in a program"
        return Unchecked(rule.name, search.evidence(), reason=reason)
    if search.different:
        found, _ = search.different[0]
        return Refuted(rule.name, search.evidence(), counterexample=_counterexample(found, search.seed, ""))
    if search.evaluated < MINIMUM:
        return Unchecked(rule.name, search.evidence(), reason=_reason(search, max_examples))
    return Supported(rule.name, search.evidence())


def _rare(search: CounterexampleSearch, wanted: int) -> None:
    """Look longer for instances if there are some, and too few were found."""
    if 0 < search.evaluated < wanted and not search.different:
        search.run(wanted - search.evaluated, until_different=True, attempts=MANY_ATTEMPTS)


def _reason(search: CounterexampleSearch, max_examples: int) -> str:
    """The reason why too little could be evaluated."""
    counts = search.counts
    if search.evaluated >= max_examples:
        return f"max_examples={max_examples} asks for fewer instances than support a rule, which are {MINIMUM}"
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
    least = Shrinking(
        tape,
        lambda choices: generate(search.rule, choices),
        lambda graph: outcome(search.rule, graph, search.compare, search.seed),
        first,
    ).run()
    least = with_simple_values(least)
    assert least.after is not None
    return _counterexample(least, search.seed, code(least.before, least.after, least.comparison.inputs))


def _on_tensors(compare: Compare) -> Compare:
    """A comparison by real tensors only, which costs a third: enough to tell failing instances from passing ones."""
    return partial(models.compare, exact=False) if compare is models.compare else compare


def _counterexample(found: Outcome, seed: int, program: str) -> Counterexample:
    assert found.after is not None
    return Counterexample(found.before, found.after, found.comparison, program, seed)


def _more(search: CounterexampleSearch, examples: int = SOME) -> None:
    """Evaluate some more instances: the smallest of those that fail is often smaller than the first one."""
    search.run(examples, until_different=False, attempts=FEW_ATTEMPTS)


def _contrast(search: CounterexampleSearch, most: int) -> None:
    """Evaluate more instances, until enough fail and enough pass to tell them apart, or hardly any passes."""
    for _ in range(SMALL, most, SOME):
        few = min(len(search.different), len(search.equal))
        if few >= SOME or (search.evaluated >= 2 * SOME and len(search.equal) < LEAST_PASSING):
            return
        _more(search)


def _suggestion(search: CounterexampleSearch, examples: int, compare: Compare) -> Suggestion | None:
    """The weakest condition that tells failing from passing instances and makes the rule supported.

    A rule that still fails with a condition gives further failing instances, which the next one has to exclude.
    Passing ones are those of the rule without any, on which the weakest condition holds most often.
    """
    failing = [found.before for found, _ in search.different]
    tried: set[str] = set()
    while len(tried) < CONDITIONS:
        new = (found for found in suggestions(search.rule, failing, search.equal) if found[2] not in tried)
        guarded, condition, text, names = next(new, (None, None, "", {}))
        if guarded is None:
            return None
        tried.add(text)
        verdict = _confirmed(search, compare, guarded, examples, failing)
        if verdict is not None:
            return Suggestion(condition, text, names, verdict)
    return None


def _confirmed(
    search: CounterexampleSearch, compare: Compare, guarded: Subst, examples: int, failing: list[Graph]
) -> Supported | None:
    """The verdict on the rule with a condition, if it is supported: by the instances by which the rule that has it is
    verified, and by some of another seed.

    Failing instances that are found on the way are added to the others.
    """
    inner = CounterexampleSearch(guarded, compare, search.seed)
    # A target that is wrong itself has the type of the source in few cases, and in fewer still with a condition; one
    # that hardly an instance satisfies tells little.
    inner.most_in_vain = MORE_IN_VAIN * max(1.0, search.in_vain / max(1, search.evaluated))
    again = CounterexampleSearch(guarded, search.compare, search.seed + 1)
    verdict = _judge(inner, examples)
    stands = isinstance(verdict, Supported) and not inner.is_vain
    stands = stands and isinstance(_judge(again, AGAIN), Supported)
    failing += [found.before for searched in (inner, again) for found, _ in searched.different]
    return verdict if stands and isinstance(verdict, Supported) else None


def _mutants(rule: Subst, max_examples: int, seed: int, compare: Compare) -> Mutants:
    own = CounterexampleSearch(rule, compare, seed)
    _judge(own, min(MORE, max_examples), FEW_ATTEMPTS)
    found: dict[str, list[str]] = {kind.name: [] for kind in fields(Mutants)}
    for mutant in mutants_of(rule):
        found[_kind(mutant, own, max_examples)].append(mutant.name)
    return Mutants(**{kind: tuple(names) for kind, names in found.items()})


def _kind(mutant: Mutant, own: CounterexampleSearch, max_examples: int) -> str:
    """The field of :class:`Mutants` that tells of a mutant."""
    if mutant.rule is None:
        return "unbuildable"
    if mutant.added is not None:  # where it differs from the rule
        search = CounterexampleSearch(mutant.added, own.compare, own.seed)
        search.run(MORE_OFTEN * max_examples, until_different=True, attempts=FEW_ATTEMPTS)
        _rare(search, min(MINIMUM, max_examples))
        if search.different:
            return "refuted"
        if search.evaluated:
            return "unneeded" if search.evaluated >= MINIMUM else "survived"
        return "refused" if search.counts["refused"] else "equivalent"
    search = CounterexampleSearch(mutant.rule, own.compare, own.seed)
    verdict = _judge(search, max_examples, FEW_ATTEMPTS)
    if isinstance(verdict, Refuted):
        return "refuted"
    if treats_alike(own.rule, mutant.rule, [*own.equal[:ALIKE], *search.equal[:ALIKE]]):
        return "equivalent"
    if isinstance(verdict, Unchecked):
        return "unbuildable"
    return "refused" if _refused_share(search) > _refused_share(own) + REFUSED_MORE else "survived"


def _refused_share(search: CounterexampleSearch) -> float:
    """The share of the matches of a rule that the checks of the engine refuse."""
    return search.refusals / max(1, search.refusals + search.evaluated + search.counts["fired"])
