"""The table of the wrong variants of rules."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from dataclasses import dataclass

from gsl import Subst
from gsl.errors import DroppedAttributeWarning
from gsl.rules import CPU, IDIOMS, RULES
from gsl.rules.approximate import INT8
from gsl.rules.common import Sides

KNOWN = {rule.name: rule for rule in (*RULES.values(), *CPU, *INT8, *IDIOMS)}
"""The rules that may have variants: those of the book, and of the sets beside it."""


@dataclass(frozen=True)
class Variant:
    """A rule of the book with a mistake."""

    of: str
    sides: Callable[[], Sides]
    kinds: tuple[str, ...]
    """The kinds that its counterexample may have."""
    condition: str | None
    """A part of the text of the condition that is suggested; empty where several would do and none is looked for,
    ``None`` where none does."""
    examples: int
    """How many instances may be evaluated until one shows the mistake."""

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


VARIANTS: dict[str, Variant] = {}
"""The variants by rule and fault."""


def wrong(
    of: str, *, kinds: tuple[str, ...] = ("value",), condition: str | None = None, examples: int = 60
) -> Callable[[Callable[[], Sides]], None]:
    """Put a variant of a rule into the table."""

    def add(sides: Callable[[], Sides]) -> None:
        variant = Variant(of, sides, kinds, condition, examples)
        name = f"{of}: {variant.fault}"
        assert of in KNOWN, of
        assert name not in VARIANTS, name
        VARIANTS[name] = variant

    return add
