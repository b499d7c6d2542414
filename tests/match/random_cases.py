"""Random small graphs and patterns, drawn by hypothesis."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from gsl import pat
from gsl.graph import Graph, Node
from gsl.pat import Pattern
from tests.helpers.graphs import Builder, graph

UNARY = ("nn.relu", "sigmoid", "tanh")
BINARY = ("add", "multiply", "maximum", "subtract")


@st.composite
def graphs(draw: st.DrawFn, *, most: int = 7) -> Graph:
    """A graph of tensors of one shape; some are packed into tuples and taken out again."""

    def make(b: Builder) -> list[Node]:
        tensors = [b.input("x", 4), b.param("w", 4)]
        for _ in range(draw(st.integers(1, most))):
            tensors.append(add_call(draw, b, tensors))
        used = {operand for node in b.nodes for operand in node.operands}
        ends = [node for node in tensors if node not in used]
        return [*ends, *([draw(st.sampled_from(tensors))] if draw(st.booleans()) else [])]

    return graph(make)


def add_call(draw: st.DrawFn, b: Builder, tensors: list[Node]) -> Node:
    """A call of some of the last tensors."""
    one = st.sampled_from(tensors[-5:])
    kind = draw(st.sampled_from(["unary", "binary", "binary", "binary", "scaled", "scaled", "literal", "tuple"]))
    if kind == "unary":
        return b.call(draw(st.sampled_from(UNARY)), draw(one))
    if kind == "binary":
        return b.call(draw(st.sampled_from(BINARY)), draw(one), draw(one))
    if kind == "scaled":
        return b.call("nn.leaky_relu", draw(one), alpha=float(draw(st.integers(0, 1))))
    if kind == "literal":
        return b.call("multiply", draw(one), draw(st.sampled_from([2, 3])))
    return b.get(b.tuple(draw(one), draw(one)), draw(st.integers(0, 1)))


class Patterns:
    """Draws patterns, of which some are used more than once."""

    def __init__(self, draw: st.DrawFn, *, negations: bool = True) -> None:
        self.draw = draw
        self.negations = negations
        self.leaves: list[Pattern] = [pat.Wildcard(), pat.Wildcard(), pat.Variable(), pat.Param(), pat.Const(2)]
        self.leaves += [pat.Wildcard(distinct=True), pat.Const()]
        self.calls: list[Pattern] = []
        self.scaled: list[Any] = []
        self.any_unary = pat.OneOf(*UNARY)

    def pattern(self, depth: int) -> Pattern:
        kinds = ["leaf", "unary", "binary", "binary", "scaled", "class", "alt", "and", "tuple", "again"]
        kind = self.draw(st.sampled_from(kinds + ["not"] * self.negations)) if depth else "leaf"
        if kind == "leaf" or (kind == "again" and not self.calls):
            return self.draw(st.sampled_from(self.leaves))
        if kind == "again":
            return self.draw(st.sampled_from(self.calls))
        if kind == "not":
            return pat.Not(self.pattern(depth - 1))
        if kind == "alt":
            return pat.Alt(self.pattern(depth - 1), self.pattern(depth - 1))
        if kind == "and":
            return pat.And(self.pattern(depth - 1), self.pattern(depth - 1))
        call = self.call(kind, depth - 1)
        self.calls.append(call)
        return call

    def call(self, kind: str, depth: int) -> Pattern:
        if kind == "unary":
            return pat.Call(self.draw(st.sampled_from(UNARY)), self.pattern(depth))
        if kind == "class":
            return pat.Call(self.any_unary, self.pattern(depth))
        if kind == "tuple":
            index = self.draw(st.sampled_from([None, 0, 1]))
            return pat.GetItem(pat.Tuple(self.pattern(depth), self.pattern(depth)), index)
        if kind == "scaled":
            guards = [None, 0.0, 1.0, *[other.alpha for other in self.scaled]]
            alpha = self.draw(st.sampled_from(guards))
            operand = self.pattern(depth)
            found = pat.Call("nn.leaky_relu", operand, **({} if alpha is None else {"alpha": alpha}))
            self.scaled.append(found)
            return found
        return pat.Call(self.draw(st.sampled_from(BINARY)), self.pattern(depth), self.pattern(depth))


@st.composite
def sources(draw: st.DrawFn, *, negations: bool = True) -> list[Pattern]:
    """The outputs of a source; whether they are connected is up to chance."""
    patterns = Patterns(draw, negations=negations)
    outputs = [patterns.pattern(3)]
    for _ in range(draw(st.integers(0, 2))):
        output = patterns.pattern(2)
        if output not in outputs and not isinstance(output, pat.Leaf):
            outputs.append(output)
    return outputs
