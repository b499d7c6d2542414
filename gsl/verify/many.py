"""Many rules verified: one after the other, or at once in other processes."""

from __future__ import annotations

import multiprocessing
import pickle
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from pathlib import Path

from gsl.errors import GSLError, PatternError
from gsl.rewrite import Subst
from gsl.verify.judge import verify
from gsl.verify.keep import Kept
from gsl.verify.models import compare
from gsl.verify.search import CounterexampleSearch
from gsl.verify.verdict import Refuted, Unchecked, Verdict


def verify_all(
    rules: Iterable[Subst], *, max_examples: int = 200, seed: int = 0, mutate: bool = False, prove: bool = False,
    jobs: int = 1, executor: Executor | None = None, keep: str | Path | None = None,
) -> dict[str, Verdict]:  # fmt: skip
    """The verdicts on the rules of a set, by name; see :func:`verdicts`."""
    rules = tuple(rules)
    found = verdicts(
        rules, max_examples=max_examples, seed=seed, mutate=mutate, prove=prove, jobs=jobs, executor=executor,
        keep=keep,
    )  # fmt: skip
    return {rule.name: verdict for rule, verdict in zip(rules, found)}


def verdicts(
    rules: Iterable[Subst], *, max_examples: int = 200, seed: int = 0, mutate: bool = False, prove: bool = False,
    jobs: int = 1, executor: Executor | None = None, keep: str | Path | None = None,
) -> Iterator[Verdict]:  # fmt: skip
    """The verdict on each rule, in order, as soon as it is known. They do not depend on where they are computed.

    With ``jobs``, so many processes work on them. An ``executor`` is one of other processes or machines, with the
    ``submit`` of :mod:`concurrent.futures`; GSL has to be installed there. The rules go there by pickle. One that has a
    function that can't be pickled is verified here. With ``keep``, the name of a file, verdicts are taken from there
    as long as neither the rule nor GSL, torch or an option has changed, and new ones are written to it; refuted rules
    are always verified anew. PatternError for a number of jobs below 1, and for a file of something else.
    """
    if jobs < 1:
        raise PatternError(f"jobs: expected a positive number, found {jobs!r}")
    options = {"max_examples": max_examples, "seed": seed, "mutate": mutate, "prove": prove}
    rules = tuple(rules)
    if keep is None:
        yield from _found(rules, options, jobs, executor)
        return
    kept = Kept(Path(keep), options)
    known = {rule: kept.get(rule) for rule in rules}
    new = _found(tuple(rule for rule in rules if known[rule] is None), options, jobs, executor)
    for rule in rules:
        verdict = known[rule]
        if verdict is None:
            verdict = next(new)
            kept.put(rule, verdict)
        yield verdict


def _found(
    rules: tuple[Subst, ...], options: dict[str, int], jobs: int, executor: Executor | None
) -> Iterator[Verdict]:
    if executor is not None:
        yield from _elsewhere(rules, executor, options)
    elif jobs > 1:
        methods = multiprocessing.get_all_start_methods()
        context = multiprocessing.get_context("fork" if "fork" in methods else None)
        with ProcessPoolExecutor(jobs, context) as own:
            yield from _elsewhere(rules, own, options)
    else:
        for rule in rules:
            yield _verdict(rule, options)


def _elsewhere(rules: tuple[Subst, ...], executor: Executor, options: dict[str, int]) -> Iterator[Verdict]:
    futures = [None if (sent := _pickled(rule)) is None else executor.submit(_verify, sent, options) for rule in rules]
    for rule, future in zip(rules, futures):
        yield _verdict(rule, options) if future is None else pickle.loads(future.result())


def _verify(rule: bytes, options: dict[str, int]) -> bytes:
    return pickle.dumps(_verdict(pickle.loads(rule), options))


def _verdict(rule: Subst, options: dict[str, int]) -> Verdict:
    """The verdict on a rule: unchecked where that fails, which stops no other rule."""
    try:
        verdict = verify(rule, **options)  # type: ignore[arg-type]
        if isinstance(verdict, Refuted):
            _ = verdict.suggestion  # a mistake in looking for it belongs to this rule
        return verdict
    except (GSLError, ImportError):
        raise
    except Exception as error:
        reason = f"a mistake in GSL, please report it: {type(error).__name__}: {error}"
        return Unchecked(rule.name, CounterexampleSearch(rule, compare, options["seed"]).evidence(), reason=reason)


def _pickled(rule: Subst) -> bytes | None:
    """The rule as bytes; ``None`` where it can't be pickled."""
    try:
        return pickle.dumps(rule)
    except (pickle.PicklingError, AttributeError, TypeError):
        return None
