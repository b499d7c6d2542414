"""Nodes of a match whose values are expressions of indices, the first instance of a variadic, and what a rule
asks of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any

from gsl.attr.ast import Ast, Attribute, Chosen, Literal
from gsl.attr.evaluate import same
from gsl.pat import Call, Const, Leaf, Like, Pattern, Variadic, walk
from gsl.pat import Match as MatchClause
from gsl.pat.typed import TENSOR
from gsl.pat.variadic import parts
from gsl.prove.path import Path
from gsl.prove.poly import Poly, Unproved, Whole, difference
from gsl.prove.tensor import Calculation, DType, Real, Tensor, Value
from gsl.rewrite import Subst
from gsl.spec import OpSpec, Trait

if TYPE_CHECKING:
    from gsl.prove.source import SourceSide


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


def fits(side: SourceSide, variadic: Variadic) -> None:
    """Show that what stands in the place of the templates in the first instance is an instance of them, too.

    Unproved if it may not be one.
    """
    first = dict(zip(variadic.templates, variadic.first))
    nodes = side.bindings.nodes
    nodes.update({(template, (Poly(),)): nodes[other] for template, other in first.items()})
    with side.instance((Poly(),)):
        for template, other in first.items():
            node = nodes[other]
            if isinstance(template, Call) and isinstance(other, Call):
                wanted = [first.get(operand, operand) for operand in template.operands or ()]
                if template.op is not other.op or wanted != list(other.operands or ()):
                    raise Unproved("the first instance may be another one than its template")
                demands = [(name, node.attrs[name]) for name in template.attrs if name in node.attrs]
                pairs = [(template.attrs[name], value) for name, value in demands]
            elif isinstance(template, Leaf) and isinstance(other, Leaf):
                literal = template.literal if isinstance(template, Const) else None
                pairs = [] if literal is None else [(literal, node.attrs.get("value"))]
            else:
                raise Unproved("the first instance may be another one than its template")
            guard, own = template.guard, other.guard
            if guard is not None and guard.values not in (None, own and own.values):
                raise Unproved("the first instance may have other values")
            if guard is not None and isinstance(guard.shape, tuple) and len(guard.shape) != node.ndim:
                raise Unproved("the first instance may have another rank")
            for expression, value in chain(pairs, guarded(template, node)):
                if not surely_equal(side.path, side.evaluated(expression), value):
                    raise Unproved(f"the first instance may not satisfy {expression!r}")
    for template in first:
        del nodes[template, (Poly(),)]


def guarded(pattern: Pattern, node: Matched) -> Iterator[tuple[Ast, Any]]:
    """The demands of a pattern on the type of a node, each with what it is; that on the rank goes before the sizes."""
    guard = pattern.guard
    if guard is not None and isinstance(guard.shape, tuple):
        yield Literal(len(guard.shape)), node.ndim
        yield from ((size, own) for size, own in zip(guard.shape, node.shape) if size is not None)
    for name in TENSOR if guard is not None else ():
        wanted = getattr(guard, name)
        if isinstance(wanted, Ast):
            yield wanted, getattr(node, name)


def surely_equal(path: Path, left: Any, right: Any) -> bool:
    """True if two values are known to be equal."""
    if isinstance(left, (tuple, list)) and isinstance(right, (tuple, list)):
        return len(left) == len(right) and all(surely_equal(path, a, b) for a, b in zip(left, right))
    if isinstance(left, Whole) or isinstance(right, Whole):
        rest = difference(left, right)
        return rest is not None and path.holds(("==", rest))
    return not isinstance(left, Real) and not isinstance(right, Real) and same(left, right)
