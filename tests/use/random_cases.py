"""Random sources made of use relations and operands, drawn by hypothesis."""

from __future__ import annotations

from typing import Any

from hypothesis import assume
from hypothesis import strategies as st

from gsl import attr_eq, fork_to, is_op, pat, wildcard
from gsl.errors import PatternError
from gsl.graph import Graph, Node
from gsl.pat import Pattern
from tests.helpers.graphs import Builder, graph
from tests.use.brute import Case

UNARY = ("nn.relu", "tanh")
BINARY = ("add", "subtract")


@st.composite
def graphs(draw: st.DrawFn, *, casts: bool = False) -> Graph:
    """A graph of a few operators, with casts between them; or of fewer, with one in three operands cast."""

    def make(b: Builder) -> list[Node]:
        nodes = [b.input("x", 4)]

        def operand() -> Node:
            node = draw(st.sampled_from(nodes[-3:]))
            return b.call("cast", node, dtype="float32") if casts and draw(st.integers(0, 2)) == 0 else node

        for _ in range(draw(st.integers(2, 4 if casts else 6))):
            kind = draw(st.sampled_from([*UNARY, *UNARY, *BINARY, "cast", "cast", "nn.leaky_relu"]))
            if kind == "cast":
                nodes.append(b.call("cast", operand(), dtype="float32"))
            elif kind == "nn.leaky_relu":
                nodes.append(b.call(kind, operand(), alpha=float(draw(st.integers(0, 1)))))
            else:
                nodes.append(b.call(kind, *[operand() for _ in range(2 if kind in BINARY else 1)]))
        used = {operand for node in b.nodes for operand in node.operands}
        ends = [node for node in nodes if node not in used]
        return [*ends, *draw(st.sets(st.sampled_from([n for n in nodes if n not in ends] or nodes), max_size=1))]

    return graph(make)


class Patterns:
    """Draws patterns; each may be used again."""

    def __init__(self, draw: st.DrawFn, *, repeats: bool = True) -> None:
        self.draw = draw
        self.repeats = repeats
        self.made: list[Pattern] = []
        self.unary = pat.OneOf(*UNARY)

    def one(self, depth: int) -> Pattern:
        if self.made and self.draw(st.integers(0, 4)) == 0:
            return self.draw(st.sampled_from(self.made))
        kinds = ["any", "any", "free", "class", "leaf", "scaled"]
        if depth:
            kinds += ["call", "call", *["use", "only"] * 3, "index", "uniq", "extern", "alt", "and", "not", "maybe"]
            kinds += ["repeat"] * self.repeats
        made = self.make(self.draw(st.sampled_from(kinds)), depth - 1)
        self.made.append(made)
        return made

    def make(self, kind: str, depth: int) -> Pattern:
        draw, one = self.draw, self.one
        match kind:
            case "free":
                return is_op(draw(st.sampled_from([*UNARY, *BINARY])))
            case "any":
                return is_op(pat.OneOf(*UNARY, *BINARY, "nn.leaky_relu"))
            case "class":
                return is_op(self.unary)
            case "scaled":
                return is_op("nn.leaky_relu")
            case "leaf":
                return draw(st.sampled_from([wildcard(), wildcard(), pat.Input()]))
            case "call":
                if draw(st.booleans()):
                    return pat.Call(draw(st.sampled_from(UNARY)), one(depth))
                return pat.Call(draw(st.sampled_from(BINARY)), one(depth), one(depth))
            case "use":
                return one(depth) > one(depth)
            case "only":
                return one(depth) >> one(depth)
            case "index":
                return one(depth).used_by(one(depth), draw(st.integers(0, 1)))
            case "uniq":
                return one(depth).uniq()
            case "extern":
                return one(depth).extern_use(draw(st.booleans()))
            case "alt":
                return one(depth) | one(depth)
            case "and":
                return one(depth) & one(depth)
            case "not":
                return ~one(depth)
            case "maybe":
                base = one(depth)
                return pat.Maybe(is_op(draw(st.sampled_from(UNARY)))(base), on=base)
        least = draw(st.integers(1, 2))
        most = draw(st.sampled_from([None, least, least + 1]))
        return pat.Repeat(self.template(), least, most, greedy=draw(st.booleans()))

    def template(self) -> Pattern:
        """What is repeated, which is not shared with anything."""
        inner = Patterns(self.draw, repeats=False)
        return inner.one(1)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """A source, its conditions and a graph; whether the source is connected is up to chance."""
    patterns = Patterns(draw)
    try:
        return source(draw, patterns)
    except PatternError:
        assume(False)
        raise


def source(draw: st.DrawFn, patterns: Patterns) -> Case:
    fuzzy = frozenset(draw(st.sampled_from([(), ("cast",)])))
    if fuzzy and draw(st.booleans()):  # nodes are skipped between a call and its user alone
        outputs = [patterns.make(draw(st.sampled_from(["use", "only"])), draw(st.integers(0, 1)))]
    else:
        outputs = [patterns.one(2)]
    if draw(st.integers(0, 3)) == 0:
        outputs.append(patterns.one(1))
    conditions: list[Any] = []
    for _ in range(draw(st.sampled_from([0, 0, 1, 1, 2]))):
        kind = draw(st.sampled_from(["use", "only", "fork", "equal", "uniq", "extern"]))
        known = st.sampled_from(list(pat.walk(*outputs)))
        if kind == "fork":
            conditions.append(fork_to(*draw(st.sampled_from([outputs, [draw(known), patterns.one(0)]]))))
        elif kind == "equal":
            calls = [p for p in pat.walk(*outputs) if isinstance(p, pat.Call) and p.operands is None]
            conditions.append(attr_eq(*draw(st.permutations(calls))[:2]))
        elif kind in ("use", "only"):
            sides = draw(st.permutations([draw(known), patterns.one(0)]))
            conditions.append(sides[0] > sides[1] if kind == "use" else sides[0] >> sides[1])
        else:
            conditions.append(draw(known).uniq() if kind == "uniq" else draw(known).extern_use(draw(st.booleans())))
    constraints = tuple(c for condition in conditions for c in condition.constraints)
    extern_use = draw(st.sampled_from([None, None, None, None, False, True]))
    return Case(tuple(outputs), constraints, draw(graphs(casts=bool(fuzzy))), fuzzy, extern_use)
