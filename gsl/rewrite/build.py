"""Building a target: its patterns become steps once, and the steps make the nodes of each match.

A step is a pattern with the method that makes its node; operands come first. ``op.Tanh(op.Sigmoid(x))``, where ``x`` is
matched, has two: a call of sigmoid, then one of tanh. What a match decides has steps of its own, which are taken when
they are asked for: the branch of a ``pat.Cond``, each instance of a ``pat.Variadic``, a new node whose type an
expression reads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Any

from gsl.attr.ast import Ast, Literal, Symbol
from gsl.attr.evaluate import Evaluator
from gsl.errors import EvaluationError, PatternError, PatternTypeError
from gsl.graph import CONST, GETITEM, TUPLE, Graph, Node, Op, Origin
from gsl.graph.subgraph import Subgraph, call_type, outlined
from gsl.match import Match, Plan
from gsl.match.bindings import MatchScope, reader
from gsl.pat import (
    And,
    Call,
    Cond,
    Const,
    Exactly,
    Fused,
    GetItem,
    Instance,
    Like,
    Module,
    OpClass,
    Pattern,
    Repeat,
    Segment,
    Tuple,
    Variadic,
)
from gsl.pat import Match as MatchClause
from gsl.rewrite.check import Refusal
from gsl.rewrite.new import NewNodes, check_writable
from gsl.spec import TABLE, OpSpec, spec_of
from gsl.spec.meaning import has_symbols

Symbols = dict[Symbol, Any]
FreeAttrs = Mapping[str, tuple[tuple[Call, str], ...]]
"""The source calls of every operator, each with an attribute that the source leaves free."""
Make = Callable[["Builder", Any, Symbols], Node]
"""A method that makes the node of a pattern."""
Step = tuple[Pattern, Make]


class Steps:
    """The steps of a target, for each pattern that is asked for: operands first, none for what every match binds."""

    def __init__(self, plan: Plan, free: FreeAttrs) -> None:
        self.plan = plan
        self.free = free
        self._found: dict[Pattern, tuple[Step, ...]] = {}

    def of(self, pattern: Pattern) -> tuple[Step, ...]:
        """The steps that make the node of a pattern."""
        steps = self._found.get(pattern)
        if steps is None:
            steps = self._found[pattern] = self._listed(pattern)
        return steps

    def _listed(self, root: Pattern) -> tuple[Step, ...]:
        known = self.plan.known
        steps: dict[Pattern, Make] = {} if root not in known else {root: Builder.unmatched}
        work = [root]
        while work:  # without recursion: a target may be deep
            pattern = work[-1]
            operands = () if pattern in known else needed(pattern)
            for operand in operands:
                if operand in known and not self.is_sure(operand):
                    steps.setdefault(operand, Builder.unmatched)
            below = [operand for operand in operands if operand not in steps and operand not in known]
            if below:
                work += reversed(below)
                continue
            work.pop()
            if pattern not in known:
                check_demands(pattern)
                steps.setdefault(pattern, _WAYS.get(type(pattern), Builder.unknown))
        return tuple(steps.items())

    def is_sure(self, pattern: Pattern) -> bool:
        """True if every match binds a pattern to one node."""
        return pattern in self.plan.sure and pattern is not self.plan.variadic


class Builder:
    """The nodes of a target for one match. Those that it makes are not part of the graph until they are spliced in.

    Its methods raise Refusal where a match can't be rewritten.
    """

    def __init__(self, steps: Steps, match: Match, graph: Graph, rule: str) -> None:
        self.match = match
        self.steps = steps
        self.nodes: dict[Any, Node] = dict(match.bindings.nodes)
        """The nodes that are matched or made by now; of a pattern with free symbols, for their values."""
        self.new = NewNodes(graph, Origin(rule, match.inner))
        self._dropped: dict[Call, dict[str, list[Any]]] = {}

    def node(self, pattern: Pattern, symbols: Symbols) -> Node:
        """The node of a target pattern: the matched one, or a new one."""
        nodes, key = self.nodes, _key(pattern, symbols) if pattern.free_symbols else pattern
        if key not in nodes:
            for part, make in self.steps.of(pattern):
                place = _key(part, symbols) if part.free_symbols else part
                if place not in nodes:
                    nodes[place] = make(self, part, symbols)
        return nodes[key]

    def instances(self, pattern: Variadic, length: int | None, symbols: Symbols) -> list[Node]:
        """The instances of a target variadic, as many as its length tells (or as are wanted)."""
        if pattern.count is not None:
            length = self.value(pattern.count, symbols)
        if not isinstance(length, int) or isinstance(length, bool) or length < 0:
            raise Refusal(f"the length of {pattern!r} is {length!r}, expected a number of instances")
        symbol = pattern.symbol if pattern.symbol is not None else Symbol()
        return [
            self.node(pattern.first_field if number == 0 else pattern.field, {**symbols, symbol: number})
            for number in range(length)
        ]

    def fused(self, pattern: Fused) -> list[Node]:
        """The nodes that stand for the outputs of the match after it was outlined: a call of it, or the fields of
        one."""
        match = self.match
        for node in match.inner:
            if node.deps or has_symbols(dict(node.attrs)):
                raise Refusal(f"%{node.name} depends on sizes that are known at run time only, so it can't be outlined")
        covered = set(match.inner)
        leaf = next((output for output in match.outputs if output not in covered), None)
        if leaf is not None:
            raise Refusal(f"%{leaf.name} is an output of the rule, but nothing that it computes")
        attrs = {name: self.value(node, {}) for name, node in pattern.attrs.items()}
        body, operands = outlined(match.inner, match.outputs, self.new.graph)
        group = Subgraph(pattern.name, body)
        check_writable(self.new.graph, group, operands, attrs)
        call = self.new.node(group, operands, attrs, call_type(body))
        if len(match.outputs) == 1:
            return [call]
        return [self.new.field(call, index) for index in range(len(match.outputs))]

    def value(self, node: Ast, symbols: Symbols) -> Any:
        """The value of an expression."""
        if isinstance(node, Literal):
            return node.value
        try:
            return Evaluator(_TargetScope(self), symbols).value(node)
        except EvaluationError as error:
            raise Refusal(f"{node!r} can't be computed: {error}") from error

    # ---------------------------------------------------------------- what steps do

    def unmatched(self, pattern: Pattern, symbols: Symbols) -> Node:
        """The refusal of a pattern of the source that the match does not bind."""
        raise Refusal(f"{pattern!r} is part of an alternative that was not matched")

    def unknown(self, pattern: Pattern, symbols: Symbols) -> Node:
        """The refusal of a pattern that can only be matched, and is not part of the source."""
        raise Refusal(f"{pattern!r} was not matched")

    def exactly(self, pattern: Exactly, symbols: Symbols) -> Node:
        """The given node."""
        return pattern.node

    def instance(self, pattern: Instance, symbols: Symbols) -> Node:
        """The matched instance of a variadic."""
        number = self.value(pattern.number, symbols)
        try:
            node = self.match.bindings.instance(pattern.variadic, pattern.template, number, ())
        except EvaluationError as error:
            raise Refusal(str(error)) from error
        if node is None:
            raise Refusal(f"{pattern!r} was not matched")
        return node

    def call(self, pattern: Call, symbols: Symbols) -> Node:
        """A new call."""
        operands = self._operands(pattern.operands or (), symbols)
        attrs = {name: self.value(node, symbols) for name, node in pattern.attrs.items()}
        op: OpSpec | Op = pattern.op
        if isinstance(op, OpClass):
            found = self.match.operators[op]
            op = TABLE[found] if isinstance(found, str) else found
        return self.new.call(op, operands, attrs, self._lost(pattern, op))

    def like(self, pattern: Like, symbols: Symbols) -> Node:
        """A new call that has the operator and the other attributes of a model."""
        model, *operands = self._operands((pattern.of, *pattern.operands), symbols)
        spec = spec_of(model.op)
        if spec is None and model.op in (CONST, TUPLE, GETITEM, "input", "param"):
            raise Refusal(f"{pattern.of!r} matched {model!r}, which is not a call, so nothing can be built like it")
        attrs = model.attrs
        if pattern.attrs:
            attrs = {**attrs, **{name: self.value(node, symbols) for name, node in pattern.attrs.items()}}
        return self.new.call(spec if spec is not None else model.op, operands, attrs)

    def module(self, pattern: Module, symbols: Symbols) -> Node:
        """A call of a new module."""
        operands = self._operands(pattern.operands, symbols)
        module = pattern.factory(self.match)
        if isinstance(module, str):
            raise Refusal(module)
        if not callable(getattr(module, "forward", None)):
            raise PatternTypeError(
                f"{pattern.location}: the factory of {pattern!r} returned {module!r} of type {type(module).__name__}, "
                "expected an nn.Module, or the reason for refusing as a string"
            )
        kind: Any = type(module)
        return self.new.call(kind, operands, {"module": module})

    def const(self, pattern: Const, symbols: Symbols) -> Node:
        """A literal: a number, or a tensor where it has a shape or a dtype."""
        value = self.value(pattern.literal, symbols) if isinstance(pattern.literal, Ast) else pattern.literal
        dtype = None if pattern.guard is None or pattern.guard.dtype is None else (
            self.value(pattern.guard.dtype, symbols)
        )  # fmt: skip
        if hasattr(value, "shape") or dtype is not None:
            return self.new.tensor(value, dtype)
        if not isinstance(value, (bool, int, float)):
            raise Refusal(f"the literal {pattern!r} is {value!r}, expected a number")
        return self.new.number(value)

    def make_tuple(self, pattern: Tuple, symbols: Symbols) -> Node:
        """A new tuple."""
        return self.new.tuple([node for item in pattern.items for node in self._fields(item, symbols)])

    def _fields(self, item: Pattern, symbols: Symbols) -> Sequence[Node]:
        """The fields of a new tuple for which a pattern stands."""
        if not isinstance(item, Segment):
            return self._operands((item,), symbols)
        if item not in self.steps.plan.known:
            return self.instances(item, None, symbols)
        try:
            return self.match.instances(item, item.field)
        except EvaluationError as error:
            raise Refusal(str(error)) from error

    def field(self, pattern: GetItem, symbols: Symbols) -> Node:
        """A field of a tuple."""
        assert pattern.number is not None
        (whole,) = self._operands((pattern.tuple,), symbols)
        return self.new.field(whole, self.value(pattern.number, symbols))

    def branch(self, pattern: Cond, symbols: Symbols) -> Node:
        """The node of the branch that a condition chooses."""
        chosen = self.value(pattern.predicate, symbols)
        if not isinstance(chosen, bool):
            raise Refusal(f"the condition {pattern.predicate!r} is {chosen!r}, expected True or False")
        return self.node(pattern.then if chosen else pattern.otherwise, symbols)

    def clause(self, pattern: MatchClause, symbols: Symbols) -> Node:
        """The node of the clause for the alternative that was matched."""
        number = self.match.bindings.chosen.get(pattern.alternative)
        if number is None:
            raise Refusal(f"{pattern.alternative!r} was not matched")
        return self.node(pattern.clauses[number], symbols)

    def variadic(self, pattern: Variadic, symbols: Symbols) -> Node:
        """A new tuple of instances."""
        return self.new.tuple(self.instances(pattern, None, symbols))

    def _operands(self, patterns: Sequence[Pattern], symbols: Symbols) -> tuple[Node, ...]:
        """The nodes of patterns that were matched or made before."""
        nodes = self.nodes
        return tuple([nodes[_key(pattern, symbols) if pattern.free_symbols else pattern] for pattern in patterns])

    def _lost(self, pattern: Call, op: OpSpec | Op) -> Mapping[str, list[Any]]:
        """The values that the matched calls of this operator have for the attributes that source and target leave
        out."""
        if not isinstance(op, OpSpec) or not (free := self.steps.free.get(op.name)):
            return {}
        known = self._dropped.get(pattern)
        if known is None:
            known = self._dropped[pattern] = {}
            for source, name in free:
                if name not in pattern.attrs:
                    nodes = self.match.bindings.all_of(source)
                    found = [node.attrs[name] for node in nodes if node.op == op.name and name in node.attrs]
                    known[name] = [*known.get(name, ()), *(value for value, _ in groupby(found))]
        return known


_WAYS: Mapping[type[Pattern], Make] = {
    Exactly: Builder.exactly, Instance: Builder.instance, Call: Builder.call, Like: Builder.like,
    Module: Builder.module, Const: Builder.const, Tuple: Builder.make_tuple, GetItem: Builder.field,
    Cond: Builder.branch, MatchClause: Builder.clause, Variadic: Builder.variadic,
}  # fmt: skip


def _key(pattern: Pattern, symbols: Symbols) -> Any:
    return (pattern, *[(symbol, symbols.get(symbol)) for symbol in pattern.free_symbols])


def check_demands(pattern: Pattern) -> None:
    """Raise PatternError for a new node of which a type is demanded: it has the type that follows from its operator."""
    guard = pattern.both[1].guard if isinstance(pattern, And) else pattern.guard
    names = [demand.name for demand in guard.keywords()] if guard is not None else []
    if isinstance(pattern, Const) and "dtype" in names:
        names.remove("dtype")  # which is what a literal is made of, and no demand
    if names:
        raise PatternError(
            f"{pattern.location}: {pattern!r} is new, so nothing can be demanded of its type, which follows from its "
            f"operands and attributes: leave out {' and '.join(names)}, or convert it, with op.Cast, op.Reshape or "
            "op.BroadcastTo"
        )


def needed(pattern: Pattern) -> Sequence[Pattern]:
    """The patterns that are built in any case before the pattern itself."""
    match pattern:
        case Call():
            return pattern.operands or ()
        case Module():
            return pattern.operands
        case Like():
            return (pattern.of, *pattern.operands)
        case Tuple():
            return [item for item in pattern.items if not isinstance(item, Segment)]
        case GetItem():
            return (pattern.tuple,)
    return ()


class _TargetScope(MatchScope):
    """Lets expressions also read attributes of the nodes that the target has built."""

    def __init__(self, builder: Builder) -> None:
        super().__init__(builder.match.bindings, ())
        self.builder = builder

    def attribute(self, pattern: Pattern, name: str, symbols: Symbols) -> Any:
        if isinstance(pattern, (Variadic, Repeat)) and name == "length":
            return super().attribute(pattern, name, symbols)
        return reader(pattern, name)(self.builder.node(pattern, symbols), name)

    def alternative(self, pattern: Pattern, symbols: Symbols) -> int:
        return super().alternative(pattern, {})
