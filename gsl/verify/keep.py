"""Verdicts that are kept from one process to the next, so that only what has changed is verified again."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from gsl.cost.store import Store
from gsl.errors import PatternError
from gsl.prove import NoProof, Proof
from gsl.rewrite import RuleSet, Subst
from gsl.rewrite.fingerprint import fingerprint
from gsl.verify.proved import Proved
from gsl.verify.verdict import MINIMUM, Evidence, Mutants, Supported, Unchecked, Verdict

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
        if not _is_own(path):
            raise PatternError(f"keep: expected the name of a file of verdicts, or a new one; {path} is another file")
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
            text = repr((type(verdict).__name__, asdict(verdict)))
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


def _is_own(path: Path) -> bool:
    """True if there is no such file, or an empty one, or one of a :class:`Store`."""
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
