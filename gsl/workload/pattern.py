"""The pattern of a part of a program: the source of a rule, as one reads it off a graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gsl import pat
from gsl.draw import hide_defaults
from gsl.errors import PatternError, WorkloadError, nearest
from gsl.graph import Effect, Graph, Node, op_name
from gsl.graph.text import is_scalar, node_names
from gsl.pat import Pattern
from gsl.pat.code import statements
from gsl.spec import spec_of
from gsl.walk import postorder


@dataclass(frozen=True, slots=True)
class PartPattern:
    """The pattern of a part of a program; prints as the statements that build it, after ``from gsl import *``."""

    source: Pattern | list[Pattern]
    """What a rule takes as its source: the pattern of the output, or the list of those of several."""
    nodes: Mapping[str, Pattern]
    """The patterns by the names of the nodes from which they were made."""

    def __getitem__(self, name: str) -> Pattern:
        if name not in self.nodes:
            raise WorkloadError(f"the pattern has no node {name!r}: {nearest(name, self.nodes)}")
        return self.nodes[name]

    def __str__(self) -> str:
        outputs = self.source if isinstance(self.source, list) else [self.source]
        inside = (pat.Const, pat.GetItem, pat.Tuple)
        named = {name: found for name, found in self.nodes.items() if not isinstance(found, inside)}
        return statements(outputs, named)


def pattern_of(who: str, graph: Graph, outputs: Sequence[str | Node], inputs: Sequence[str | Node]) -> PartPattern:
    """The pattern of the nodes of a view from ``inputs``, which stand for any tensors, to ``outputs``.

    ``who`` names the workload in messages. WorkloadError for a node that the view does not have, an input on which no
    output depends, and a call that no rule may replace.
    """
    if not outputs:
        raise WorkloadError(f"{who}: a pattern ends with one node at least; outputs= names none")
    names = node_names(graph)
    ends = [_node(who, names, output) for output in outputs]
    begins = {_node(who, names, each) for each in inputs}
    made: dict[Node, Pattern] = {}
    for node in postorder(ends, lambda node: () if node in begins else node.operands):
        try:
            operands = [made[operand] for operand in node.operands if operand in made]
            made[node] = pat.Wildcard() if node in begins else _pattern(node, operands)
        except PatternError as error:
            raise WorkloadError(
                f"{who}: %{names[node]} ({op_name(node.op)}) can't stand in a source, {error}; begin after it: name it "
                "among the inputs"
            ) from None
    for node in ends:
        if isinstance(made[node], pat.Leaf):
            raise WorkloadError(f"{who}: a pattern ends with a call, and %{names[node]} is none within it")
    for node in begins - made.keys():
        raise WorkloadError(f"{who}: nothing leads from the input %{names[node]} to an output of the pattern")
    found = [made[node] for node in ends]
    return PartPattern(found[0] if len(found) == 1 else found, {names[node]: each for node, each in made.items()})


def _node(who: str, names: Mapping[Node, str], given: str | Node) -> Node:
    """The node of a view, given itself or by its name as the view's text has it."""
    if isinstance(given, Node):
        if given not in names:
            raise WorkloadError(f"the node {given} is not in the view of {who}; take it from wl.graph")
        return given
    known = {name: node for node, name in names.items()}
    found = known.get(given.removeprefix("%"))
    if found is None:
        raise WorkloadError(f"{who} has no node {given!r}: {nearest(given, known)}")
    return found


def _pattern(node: Node, operands: Sequence[Pattern]) -> Pattern:
    """The pattern of a node. PatternError for one that can't stand in a source."""
    if node.effect in (Effect.MUTATES, Effect.OTHER):
        raise PatternError("because it has an effect, so no rule may replace it")
    match node.op:
        case "input":
            return pat.Wildcard()
        case "param":
            return pat.Param()
        case "const":
            return pat.Const(node.attrs["value"]) if is_scalar(node) else pat.Const(ndim=node.ndim)
        case "tuple":
            return pat.Tuple(*operands)
        case "getitem":
            return operands[0][node.attrs["index"]]
    given = {name: value for name, value in node.attrs.items() if not hide_defaults(node, name, value)}
    attrs = {name: value for name, value in given.items() if _is_literal(value) or (value is None and node.opaque)}
    return pat.Call(spec_of(node.op) or node.op, *operands, **attrs)


def _is_literal(value: Any) -> bool:
    """True for an attribute that a pattern can demand as it is: no symbolic size, operand or graph."""
    if isinstance(value, tuple):
        return all(map(_is_literal, value))
    return isinstance(value, (bool, int, float, complex, str)) or type(value).__module__ == "torch"
