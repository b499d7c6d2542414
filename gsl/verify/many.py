"""Many rules verified, one after the other or at once in other processes, and verdicts that are kept from one process
to the next, so that only what has changed is verified again."""

from __future__ import annotations

import ast
import multiprocessing
import pickle
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from dataclasses import asdict, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from gsl.cache import Store
from gsl.errors import GSLError, PatternError, is_exhaustion
from gsl.pause import ENDING, let_end, starting
from gsl.prove import NoProof, Proof
from gsl.rewrite import RuleSet, Subst
from gsl.rewrite.fingerprint import fingerprint
from gsl.verify.judge import verify
from gsl.verify.models import compare
from gsl.verify.proved import Proved
from gsl.verify.search import CounterexampleSearch
from gsl.verify.verdict import MINIMUM, Evidence, Mutants, Refuted, Supported, Unchecked, Verdict

_KEPT: Mapping[str, type[Verdict]] = {kind.__name__: kind for kind in (Proved, Supported, Unchecked)}
"""The verdicts that are kept. A refuted rule is verified again: it has to be mended anyway."""
_HEADER = b"SQLite format 3\0"
_PARTS: Mapping[str, type[Any]] = {"evidence": Evidence, "mutants": Mutants, "unproved": NoProof, "proof": Proof}


class Kept:
    """The verdicts in a file, by what they depend on: the rule, its options, and the versions of GSL, Python, torch and
    z3.

    A file that can't be read or written is no error: rules are then verified again. One that something else has
    written is: PatternError, and it stays as it is. Whoever can write the file can say anything of a rule.
    """

    def __init__(self, path: Path, options: Mapping[str, Any]) -> None:
        if path.is_dir() or not may_keep(path):
            other = "a folder" if path.is_dir() else "another file"
            raise PatternError(f"keep: expected the name of a file of verdicts, or a new one; {path} is {other}")
        self._seed = options["seed"]
        self._store = Store(path)
        self._around = [*sorted(options.items()), *((name, _version(name)) for name in ("torch", "z3-solver"))]

    def get(self, rule: Subst) -> Verdict | None:
        """The verdict on a rule; ``None`` where it is not known."""
        key = self._key(rule)
        found = None if key is None else _read(self._store.get(*key))
        return found if found is not None and self._is_of(rule, found) else None

    def put(self, rule: Subst, verdict: Verdict) -> None:
        """Keep the verdict on a rule, unless it is refuted, or refers to an object that has no text of its own."""
        key = self._key(rule)
        if key is not None and type(verdict) in _KEPT.values():
            evidence = replace(verdict.evidence, at_corners=verdict.evidence.corners)
            text = repr((type(verdict).__name__, asdict(replace(verdict, evidence=evidence))))
            if _read(text) is not None:
                self._store.put(text, *key)

    def _is_of(self, rule: Subst, verdict: Verdict) -> bool:
        """True if a verdict is one that :func:`verify` could have given on a rule."""
        enough = isinstance(verdict, Unchecked) or verdict.evidence.evaluated >= MINIMUM
        return verdict.rule == rule.name and verdict.evidence.seed == self._seed and enough

    def _key(self, rule: Subst) -> tuple[object, ...] | None:
        own = fingerprint(RuleSet([rule]))
        return None if own is None else ("verdict", own, *self._around)


def _read(text: Any) -> Verdict | None:
    """The verdict that a text tells of, ``None`` where it tells of none."""
    try:
        name, fields = ast.literal_eval(text)
        parts = {key: None if fields[key] is None else kind(**fields[key])
                 for key, kind in _PARTS.items() if key in fields}  # fmt: skip
        found = _KEPT[name](**{**fields, **parts})
        return found if str(found) else None
    except (ValueError, TypeError, KeyError, AttributeError, SyntaxError, RecursionError, MemoryError):
        return None


def may_keep(path: Path) -> bool:
    """True if verdicts can be kept there: there is no such file, or an empty one, or one of a :class:`Store`."""
    try:
        with path.open("rb") as file:
            return file.read(len(_HEADER)) in (b"", _HEADER)
    except OSError:
        return True


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


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
        yield from _elsewhere(rules, executor.submit, options)
    elif jobs > 1:
        methods = multiprocessing.get_all_start_methods()
        context = multiprocessing.get_context("fork" if "fork" in methods else None)
        own = ProcessPoolExecutor(jobs, context, _end_by_signals)
        try:
            yield from _elsewhere(rules, starting(own.submit), options)
        finally:
            own.shutdown(cancel_futures=True)
    else:
        for rule in rules:
            yield _verdict(rule, options)


def _end_by_signals() -> None:
    """Have an interrupt (Ctrl-C), which comes to all processes, and SIGTERM end this one at once."""
    for number in ENDING:
        signal.signal(number, signal.SIG_DFL)
    let_end()


def _elsewhere(
    rules: tuple[Subst, ...], submit: Callable[..., Future[bytes]], options: dict[str, int]
) -> Iterator[Verdict]:
    futures = [None if (sent := _pickled(rule)) is None else submit(_verify, sent, options) for rule in rules]
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
        if is_exhaustion(error):
            raise
        reason = f"a mistake in GSL, please report it: {type(error).__name__}: {error}"
        return Unchecked(rule.name, CounterexampleSearch(rule, compare, options["seed"]).evidence(), reason=reason)


def _pickled(rule: Subst) -> bytes | None:
    """The rule as bytes; ``None`` where it can't be pickled."""
    try:
        return pickle.dumps(rule)
    except (pickle.PicklingError, AttributeError, TypeError):
        return None
