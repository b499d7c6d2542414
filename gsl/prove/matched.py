"""Nodes of a match whose values are expressions of indices, and what a rule asks of its match."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from gsl.attr.ast import Ast, Attribute, Binary, Chosen, Function, TupleOf
from gsl.pat import Call, Leaf, Like, Pattern, walk
from gsl.pat import Match as MatchClause
from gsl.pat.variadic import parts
from gsl.prove.relation import Unproved
from gsl.prove.tensor import Calculation, DType, Tensor, Value
from gsl.rewrite import Subst
from gsl.spec import OpSpec, Trait


@dataclass(eq=False)
class Matched:
    """A node of a match: like :class:`gsl.graph.Node` to expressions, with a value that is an expression of indices."""

    calc: Calculation
    op: Any
    value: Value
    operands: tuple[Matched, ...] = ()
    attrs: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""

    @property
    def shape(self) -> Any:
        """The sizes, as expressions read them."""
        return None if not isinstance(self.value, Tensor) else tuple(map(self.calc.whole, self.value.shape))

    @property
    def ndim(self) -> Any:
        """The rank."""
        return None if not isinstance(self.value, Tensor) else self.value.ndim

    @property
    def dtype(self) -> Any:
        """The dtype, of which its code is known."""
        return None if not isinstance(self.value, Tensor) else DType(self.value.dtype, self.calc.path)


def tensor_of(node: Matched) -> Tensor:
    """The tensor that a node is. Unproved for a tuple."""
    if not isinstance(node.value, Tensor):
        raise Unproved("a tuple in a tuple")
    return node.value


def all_of(condition: Ast) -> Iterator[Ast]:
    """The conditions of which a condition is the conjunction."""
    match condition:
        case Binary("&", left, right):
            yield from all_of(left)
            yield from all_of(right)
        case Function("all", (TupleOf(items),)):
            for item in items:
                yield from all_of(item)
        case _:
            yield condition


def any_rank(rule: Subst) -> bool:
    """True if a rule computes element by element with one tensor, so that it is the same for each rank."""
    patterns = [*rule.plan.patterns, *walk(*rule.target.outputs)]
    leaves = {p for p in rule.plan.patterns if isinstance(p, Leaf)}
    calls = [p for p in patterns if not isinstance(p, Leaf)]
    each = all(
        (isinstance(p, Call) and isinstance(p.op, OpSpec) and Trait.ELEMENT_WISE in p.op.traits
         and len(p.operands or ()) == 1) or isinstance(p, Like) for p in calls
    )  # fmt: skip
    read = (part for p in patterns for e in p.expressions() for part in parts(e))
    sized = any(isinstance(part, Attribute) and part.name in ("shape", "ndim", "axis")
                for part in (*read, *(q for e in rule.plan.where for q in parts(e))))  # fmt: skip
    return each and not sized and len(leaves) == 1 and all(p.guard is None or p.guard.shape is p.guard.ndim is None
                                                           for p in patterns)  # fmt: skip


def asked(rule: Subst) -> set[Pattern]:
    """The patterns of which a rule asks which alternative was matched, or which literal."""
    target = list(walk(*rule.target.outputs))
    found: set[Pattern] = {p.alternative for p in target if isinstance(p, MatchClause)}
    expressions = [*rule.plan.where, *(e for p in (*rule.plan.patterns, *target) for e in p.expressions())]
    for part in (part for expression in expressions for part in parts(expression)):
        if isinstance(part, Chosen):
            found.add(part.alternative)
        elif isinstance(part, Attribute) and part.name == "value":
            found.add(part.pattern)
    uses = Counter(child for p in dict.fromkeys((*rule.plan.patterns, *target)) for child in p.children())
    found |= {p for p in uses if uses[p] > 1 and isinstance(p, Leaf)}
    return found | {p for p in (*rule.plan.outputs, *rule.target.outputs) if isinstance(p, Leaf)}
