"""The table of the wrong variants of rules."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from gsl import Subst
from gsl.errors import DroppedAttributeWarning
from gsl.rules import APPROXIMATE, CPU, GPU, HALVES, IDIOMS, NORMAL, RULES
from gsl.rules.common import RuleSides

EXACT_HALVES = [rule for rule in HALVES if rule.name.startswith("rms-norm")]
"""The rules for half precision that round no weights."""
KNOWN = {rule.name: rule for rule in (*RULES.values(), *NORMAL, *IDIOMS, *EXACT_HALVES, *CPU, *GPU, *APPROXIMATE)}
"""The rules that have variants: those of the book, and of the sets beside it."""

UNDRAWN = {"lent-shape": "tests/rules/test_normal.py"}
"""Rules of which no instance can be drawn, with the file that shows that a wrong variant has other numbers."""


@dataclass(frozen=True)
class Variant:
    """A rule of the book with a mistake."""

    of: str
    sides: Callable[[], RuleSides]
    kinds: tuple[str, ...]
    """The kinds that its counterexample may have."""
    condition: str | None
    """A part of the text of the condition that is suggested; empty where several would do and none is looked for,
    ``None`` where none does."""
    examples: int
    """How many instances may be evaluated until one shows the mistake."""
    seed: int

    @property
    def fault(self) -> str:
        """What is wrong with it."""
        return (inspect.getdoc(self.sides) or "").partition("\n")[0]

    def rule(self) -> Subst:
        """The rule, used where that of the book is."""
        source, target, *where = self.sides()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DroppedAttributeWarning)
            extern_use = KNOWN[self.of].source.extern_use
            return Subst(source, target, where=where, name=f"{self.of}, {self.fault}", extern_use=extern_use)


def lacking(variants: Collection[Variant]) -> dict[str, list[str]]:
    """The rules of which none is a variant, each with the files of those of the other rules of its module."""
    files: dict[str, dict[str, None]] = {}
    for variant in variants:
        own = files.setdefault(home(variant.of), {})
        own[f"tests/verify/wrong_rules/{Path(inspect.getfile(variant.sides)).name}"] = None
    have = {variant.of for variant in variants} | {*UNDRAWN}
    return {name: list(files.get(home(name), ["tests/verify/wrong_rules"])) for name in KNOWN if name not in have}


def home(name: str) -> str:
    """The module of a rule; empty for one of a loop."""
    return getattr(KNOWN[name], "home", ("",))[0]


VARIANTS: dict[str, Variant] = {}
"""The variants by rule and fault."""


def wrong(
    of: str, *, kinds: tuple[str, ...] = ("value",), condition: str | None = None, examples: int = 60,
    seed: int = 0,
) -> Callable[[Callable[[], RuleSides]], None]:
    """Put a variant of a rule into the table."""

    def add(sides: Callable[[], RuleSides]) -> None:
        variant = Variant(of, sides, kinds, condition, examples, seed)
        name = f"{of}: {variant.fault}"
        assert of in KNOWN, of
        assert name not in VARIANTS, name
        VARIANTS[name] = variant

    return add
