"""tinygrad: chains of UOps with operators in the same roles and with as many operands, and ``graph_rewrite``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tinygrad.dtype import dtypes
from tinygrad.uop import Ops
from tinygrad.uop.ops import PatternMatcher, UOp, UPat, graph_rewrite

from benchmarks.measure import Job, System
from benchmarks.terms import Rule, Terms, Tree, operators, read, require_same

OPERATORS: dict[str, Any] = {
    "conv": Ops.MUL,
    "batch_norm": Ops.CUSTOMI,
    "relu": Ops.SQRT,
    "exp": Ops.EXP2,
    "log": Ops.LOG2,
    "sin": Ops.SIN,
    "abs": Ops.TRUNC,
    "sqrt": Ops.SQRT,
    "neg": Ops.NEG,
    "tanh": Ops.RECIPROCAL,
    "add": Ops.ADD,
    "erf": Ops.CONTIGUOUS,
    "floor": Ops.DETACH,
    "ceil": Ops.CONTIGUOUS_BACKWARD,
    "sigmoid": Ops.COPY,
}
"""The operators in the roles of those of terms; some of torch's are none in tinygrad."""


def can_express(rules: Sequence[Rule], terms: Terms) -> bool:
    """True if there is an operator for each role."""
    names = {name for rule in rules for name in operators(rule.source)} | {name for name, _ in terms.calls}
    return names <= OPERATORS.keys()


def graph_of(terms: Terms) -> UOp:
    """The graph, under one sink."""
    values = [UOp(Ops.NOOP, dtypes.float32, (), arg=name) for name in terms.inputs]
    for name, operands in terms.calls:
        arg = "batch_norm" if name == "batch_norm" else None
        values.append(UOp(OPERATORS[name], dtypes.float32, tuple([values[operand] for operand in operands]), arg))
    return UOp(Ops.SINK, dtypes.void, tuple([values[output] for output in terms.outputs]))


def _pattern(tree: Tree) -> UPat:
    if isinstance(tree, str):
        return UPat(name=tree)
    return UPat(OPERATORS[tree[0]], src=tuple(_pattern(operand) for operand in tree[1:]))


def _replacement(rule: Rule) -> Callable[..., UOp]:
    """A function with the leaves as its parameters, because tinygrad looks at their names."""
    names = ", ".join(rule.leaves)
    scope = {"UOp": UOp, "op": Ops.CUSTOM, "dtype": dtypes.float32, "name": rule.name}
    made: Callable[..., UOp] = eval(f"lambda {names}: UOp(op, dtype, ({names},), name)", scope)
    return made


def terms_of(sink: UOp, inputs: Sequence[str], labels: dict[Any, str]) -> Terms:
    """The terms of a graph."""
    nodes = list(sink.toposort())
    leaves = {node.arg: node for node in nodes if node.op is Ops.NOOP}
    calls = [
        (node, node.arg if node.op is Ops.CUSTOM else labels[node.op], node.src)
        for node in nodes
        if node.op not in (Ops.NOOP, Ops.SINK)
    ]
    return read([(name, leaves.get(name, name)) for name in inputs], calls, sink.src)


def graph_rewriting(terms: Terms, rules: Sequence[Rule], expected: Terms) -> System:
    """``graph_rewrite`` with compiled patterns, which are warmed up before."""
    matcher = PatternMatcher([(_pattern(rule.source), _replacement(rule)) for rule in rules])
    used = {name for name, _ in terms.calls}
    labels = {OPERATORS[name]: name for name in used}
    graph_rewrite(graph_of(terms), matcher)

    def prepare() -> Job:
        graph = graph_of(terms)
        return Job(
            lambda: graph_rewrite(graph, matcher),
            lambda result: require_same(terms_of(result, terms.inputs, labels), expected),
        )

    return prepare


def alternatives(depth: int) -> Callable[[], bool]:
    """The search for nested alternatives, two of one operator each, above an operator that is not there."""
    value = UOp(Ops.SIN, dtypes.float32, (UOp(Ops.NOOP, dtypes.float32, (), arg="x"),))
    pattern = UPat(Ops.SQRT)
    for _ in range(depth):
        value = UOp(Ops.EXP2, dtypes.float32, (value,))
        pattern = UPat.any(UPat(Ops.EXP2, src=(pattern,)), UPat(Ops.EXP2, src=(pattern,)))  # type: ignore[no-untyped-call]
    root = UOp(Ops.TRUNC, dtypes.float32, (value,))
    matcher = PatternMatcher([(UPat(Ops.TRUNC, src=(pattern,)), _found)])
    matcher.rewrite(root)
    return lambda: matcher.rewrite(root) is not None


def _found() -> UOp:
    """The target of a pattern of which only counts whether it is found."""
    return UOp(Ops.NOOP)
