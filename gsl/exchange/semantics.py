"""The choices that the formats leave open, and that the caller makes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any

from gsl.errors import PatternError, nearest
from gsl.pat import Pattern

Meaning = Callable[[tuple[Pattern, ...], Mapping[Any, int]], Pattern]
"""The pattern of an operator, given its operands and its parameters (by TASO's key, or by their position)."""

_CHOICES: dict[str, tuple[Any, ...]] = {
    "groups": (False, True),
    "broadcasting": (False, True),
    "kernels": ("any", "stored"),
    "odd_padding": ("low", "high"),
    "enlarge": ("centre", "low", "high"),
    "count_include_pad": (False, True),
    "average_kernel": ("depthwise", "dense"),
}


@dataclass(frozen=True, slots=True)
class Semantics:
    """The meaning of operators where a file of rules leaves it open. The defaults are the careful reading.

    Raises PatternError for a choice that does not exist.
    """

    groups: bool = False
    """True if a convolution of a source may have several groups. Those of targets have as many as their operands imply:
    input channels / channels of the weight."""
    broadcasting: bool = False
    """True if ``ewadd`` and ``ewmul`` take operands of different shapes, and ``matmul`` batches of different sizes."""
    kernels: str = "any"
    """The treatment of a kernel size that is stored with a convolution: it is demanded (``"stored"``) or not, as in
    TASO's loader (``"any"``)."""
    odd_padding: str = "low"
    """The side that gets the odd element of *same* padding: ``"low"`` (top and left) or ``"high"``."""
    enlarge: str = "centre"
    """The place of an enlarged kernel in the zeros: ``"centre"`` keeps the element that *same* padding puts on each
    place; ``"low"`` and ``"high"`` pad both sides alike and put the odd element there."""
    count_include_pad: bool = False
    """True if average pooling counts the padding."""
    average_kernel: str = "depthwise"
    """The form of ``Cpool`` in a target: one channel with a group for each channel, or ``"dense"`` with one group."""
    operators: Mapping[str, Meaning] = field(default_factory=lambda: MappingProxyType({}))
    """The meaning of further operators by their name in the file (``"DROPOUT"``): a function of the operands' patterns
    and of the parameters. It goes before the meaning that an operator has here."""

    def __post_init__(self) -> None:
        for name, allowed in _CHOICES.items():
            value = getattr(self, name)
            if not any(value is choice or (isinstance(choice, str) and value == choice) for choice in allowed):
                raise PatternError(f"{name}: expected one of {', '.join(map(repr, allowed))}, found {value!r}")

    @staticmethod
    def of(choices: Mapping[str, Any]) -> Semantics:
        """The semantics of some choices by name, and the defaults."""
        known = [spec.name for spec in fields(Semantics)]
        for name in choices:
            if name not in known:
                raise PatternError(f"there is no choice {name!r}: {nearest(name, known)}")
        return Semantics(**choices)
