"""The common part of the formats: a rule as two graphs of operators, before it is a pattern.

Both formats are read into terms whose operators have TENSAT's names and parameters; the meaning of a term is in
:mod:`gsl.exchange.operators`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

VARIABLE = "?"
"""The operator of a term that stands for any tensor (or, as the second operand of ``smul``, for any number)."""

Param = int | str
"""The value of a parameter: a number, or the name of a variable of the rule (``?p``)."""


@dataclass(frozen=True, slots=True)
class Signature:
    """The signature of an operator, as it stands in parentheses: its parameters in order, then its operands."""

    params: tuple[str, ...]
    operands: int
    at_least: bool = False
    """True if there may be more operands than that."""


SIGNATURES: dict[str, Signature] = {
    "matmul": Signature(("act",), 2),
    "conv2d": Signature(("stride_h", "stride_w", "pad", "act"), 2),
    "ewadd": Signature((), 2),
    "ewmul": Signature((), 2),
    "smul": Signature((), 2),
    "relu": Signature((), 1),
    "sigmoid": Signature((), 1),
    "tanh": Signature((), 1),
    "transpose": Signature((), 1),
    "concat": Signature(("axis", "ndim"), 2, at_least=True),
    "split": Signature(("axis",), 1),
    "enlarge": Signature(("kernel_h", "kernel_w"), 1),
    "enlarge_like": Signature((), 2),
    "poolavg": Signature(("kernel_h", "kernel_w", "stride_h", "stride_w", "pad"), 1),
    "poolmax": Signature(("kernel_h", "kernel_w", "stride_h", "stride_w", "pad"), 1),
    "merge_gconv": Signature(("count",), 1),
    "Iconv": Signature(("kernel_h", "kernel_w"), 0),
    "Imatmul": Signature((), 0),
    "Iewmul": Signature((), 0),
    "Cpool": Signature(("kernel_h", "kernel_w"), 0),
}
CONSTANTS = frozenset(("Iconv", "Imatmul", "Iewmul", "Cpool"))
"""Tensors that take their shape from the context."""
ACTIVATIONS = ("", "sigmoid", "relu", "tanh")
"""The activation of an ``act``, by its number."""
COMMUTATIVE = frozenset(("ewadd", "ewmul"))
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


class Term:
    """An operator with its operands and parameters. Compared by identity: one term is one node of a graph."""

    __slots__ = ("op", "operands", "params", "place")

    def __init__(self, op: str, operands: Iterable[Term], params: dict[str, Any], place: str) -> None:
        self.op = op
        self.operands = tuple(operands)
        self.params = params
        self.place = place
        """The place of the term in the file, for messages."""

    def __repr__(self) -> str:
        return f"<{self.op} at {self.place}>"


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule as it was read: for every output the term that is replaced, and the term that replaces it."""

    name: str
    place: str
    source: tuple[Term, ...]
    target: tuple[Term, ...]

    def __str__(self) -> str:
        """The algebra as s-expressions."""
        return "\n".join(f"{text(old)} => {text(new)}" for old, new in zip(self.source, self.target))


def walk(*roots: Term) -> Iterator[Term]:
    """Every term that the roots are made of, each once, operands before users."""
    done: set[Term] = set()
    stack = [(root, False) for root in reversed(roots)]
    while stack:
        term, ready = stack.pop()
        if ready:
            yield term
        elif term not in done:
            done.add(term)
            stack.append((term, True))
            stack.extend((operand, False) for operand in reversed(term.operands))


def text(term: Term) -> str:
    """The term as an s-expression."""
    written: list[str] = []
    work: list[Term | str] = [term]
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


def _param(value: Param) -> str:
    return f"?{value}" if isinstance(value, str) else str(value)


def is_trivial(rule: Rule) -> bool:
    """True if both sides are one graph, when activations are operators of their own and sums have no order."""
    numbers: dict[Any, int] = {}
    of: dict[Term, int] = {}

    def number(*key: Any) -> int:
        return numbers.setdefault(key, len(numbers))

    for term in walk(*rule.source, *rule.target):
        operands = [of[operand] for operand in term.operands]
        if term.op in COMMUTATIVE:
            operands.sort()
        params = {name: value for name, value in term.params.items() if name != "act"}
        of[term] = number(term.op, *operands, repr(sorted(params.items(), key=repr)))
        act = term.params.get("act", 0)
        if isinstance(act, str):
            of[term] = number("act", of[term], act)
        elif act:
            of[term] = number(ACTIVATIONS[act], of[term], repr([]))
    return all(of[old] == of[new] for old, new in zip(rule.source, rule.target))
