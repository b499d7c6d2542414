"""The common part of the formats: a rule as two graphs of operators, before it is a pattern.

Both formats are read into terms whose operators have TENSAT's names and parameters; the meaning of a term is in
:mod:`gsl.exchange.operators`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any

from gsl.errors import PatternError, nearest
from gsl.pat import Pattern
from gsl.walk import postorder

VARIABLE = "?"
"""The operator of a term that stands for any tensor (or, as the second operand of ``smul``, for any number)."""

TermParam = int | str
"""The value of a parameter: a number, or the name of a variable of the rule (``?p``)."""


@dataclass(frozen=True, slots=True)
class TermSignature:
    """The signature of an operator, as it stands in parentheses: its parameters in order, then its operands."""

    params: tuple[str, ...]
    operands: int
    at_least: bool = False
    """True if there may be more operands than that."""


SIGNATURES: dict[str, TermSignature] = {
    "matmul": TermSignature(("act",), 2),
    "conv2d": TermSignature(("stride_h", "stride_w", "pad", "act"), 2),
    "ewadd": TermSignature((), 2),
    "ewmul": TermSignature((), 2),
    "smul": TermSignature((), 2),
    "relu": TermSignature((), 1),
    "sigmoid": TermSignature((), 1),
    "tanh": TermSignature((), 1),
    "transpose": TermSignature((), 1),
    "concat": TermSignature(("axis", "ndim"), 2, at_least=True),
    "split": TermSignature(("axis",), 1),
    "enlarge": TermSignature(("kernel_h", "kernel_w"), 1),
    "enlarge_like": TermSignature((), 2),
    "poolavg": TermSignature(("kernel_h", "kernel_w", "stride_h", "stride_w", "pad"), 1),
    "poolmax": TermSignature(("kernel_h", "kernel_w", "stride_h", "stride_w", "pad"), 1),
    "merge_gconv": TermSignature(("count",), 1),
    "Iconv": TermSignature(("kernel_h", "kernel_w"), 0),
    "Imatmul": TermSignature((), 0),
    "Iewmul": TermSignature((), 0),
    "Cpool": TermSignature(("kernel_h", "kernel_w"), 0),
}
CONSTANTS = frozenset(("Iconv", "Imatmul", "Iewmul", "Cpool"))
"""Tensors that take their shape from the context."""
ACTIVATIONS = ("", "sigmoid", "relu", "tanh")
"""The activation of an ``act``, by its number."""
ELEMENT_WISE = frozenset(("ewadd", "ewmul"))
OPEN = "open"
"""The operator of a term whose meaning only the caller can tell; its parameter ``name`` is that of the operator."""
FIELD = "field"
"""One of the results of a ``split``; its parameter ``index`` tells which."""


_LEAST = dict.fromkeys(("stride_h", "stride_w", "kernel_h", "kernel_w", "count", "ndim"), 1)
_LARGEST = {"act": len(ACTIVATIONS) - 1, "pad": 1}


def problem(params: Mapping[str, Any]) -> str | None:
    """The fault in the parameters of an operator; ``None`` if there is none."""
    for name, value in params.items():
        least, largest = _LEAST.get(name, 0), _LARGEST.get(name)
        if isinstance(value, int) and (value < least or (largest is not None and value > largest)):
            return f"{name} is {f'at least {least}' if largest is None else f'{least} to {largest}'}, found {value}"
    axis, ndim = params.get("axis"), params.get("ndim")
    if isinstance(axis, int) and isinstance(ndim, int) and axis >= ndim:
        return f"axis is less than ndim, found {axis} and {ndim}"
    return None


class RuleTerm:
    """An operator with its operands and parameters. Compared by identity: one term is one node of a graph."""

    __slots__ = ("op", "operands", "params", "place")

    def __init__(self, op: str, operands: Iterable[RuleTerm], params: dict[str, Any], place: str) -> None:
        self.op = op
        self.operands = tuple(operands)
        self.params = params
        self.place = place
        """The place of the term in the file, for messages."""

    def __repr__(self) -> str:
        return f"<{self.op} at {self.place}>"


@dataclass(frozen=True, slots=True)
class TermRule:
    """A rule as it was read: for every output the term that is replaced, and the term that replaces it."""

    name: str
    place: str
    source: tuple[RuleTerm, ...]
    target: tuple[RuleTerm, ...]

    def __str__(self) -> str:
        """The algebra as s-expressions."""
        return "\n".join(f"{text(old)} => {text(new)}" for old, new in zip(self.source, self.target))


def walk(*roots: RuleTerm) -> Iterator[RuleTerm]:
    """Every term that the roots are made of, each once, operands before users."""
    return postorder(roots, lambda term: term.operands)


def text(term: RuleTerm) -> str:
    """The term as an s-expression."""
    written: list[str] = []
    work: list[RuleTerm | str] = [term]
    while work:
        item = work.pop()
        if isinstance(item, str):
            written.append(item)
        elif item.op == VARIABLE:
            written.append(f"?{item.params['name']}")
        else:
            if item.op == FIELD:
                head = [f"split_{item.params['index']}"]
            elif item.op == OPEN:
                head = [item.params["name"], *(str(value) for value in item.params["arguments"].values())]
            else:
                head = [item.op, *(_param(item.params[name]) for name in SIGNATURES[item.op].params)]
            written.append("(" + " ".join(head))
            work.append(")")
            for operand in reversed(item.operands):
                work += [operand, " "]
    return "".join(written)


def _param(value: TermParam) -> str:
    return f"?{value}" if isinstance(value, str) else str(value)


def is_trivial(rule: TermRule) -> bool:
    """True if both sides are one graph, when activations are operators of their own and sums have no order."""
    numbers: dict[Any, int] = {}
    of: dict[RuleTerm, int] = {}

    def number(*key: Any) -> int:
        return numbers.setdefault(key, len(numbers))

    for term in walk(*rule.source, *rule.target):
        operands = [of[operand] for operand in term.operands]
        if term.op in ELEMENT_WISE:
            operands.sort()
        params = {name: value for name, value in term.params.items() if name != "act"}
        of[term] = number(term.op, *operands, repr(sorted(params.items(), key=repr)))
        act = term.params.get("act", 0)
        if isinstance(act, str):
            of[term] = number("act", of[term], act)
        elif act:
            of[term] = number(ACTIVATIONS[act], of[term], repr([]))
    return all(of[old] == of[new] for old, new in zip(rule.source, rule.target))


# ---------------------------------------------------------------- choices of the caller


TermMeaning = Callable[[tuple[Pattern, ...], Mapping[Any, int]], Pattern]
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
    operators: Mapping[str, TermMeaning] = field(default_factory=lambda: MappingProxyType({}))
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
