"""What functions of other systems make of a match, as targets."""

from __future__ import annotations

from collections.abc import Mapping

from gsl import pat
from gsl.attr.ast import Literal
from gsl.graph import CONST, GETITEM, PARAM, TUPLE, Node
from gsl.pat import Pattern
from gsl.spec import TABLE


def made_of(node: Node, patterns: Mapping[Node, Pattern]) -> Pattern:
    """The target of a node of a view, on those of its operands."""
    operands = [patterns[operand] for operand in node.operands]
    if node.op in (PARAM, CONST):
        return pat.Const(node.attrs["value"])
    if node.op == TUPLE:
        return pat.Tuple(*operands)
    if node.op == GETITEM:
        return operands[0][node.attrs["index"]]
    spec = TABLE.get(node.op) if isinstance(node.op, str) else None
    if spec is None:
        return pat.Call(node.op, *operands, **{name: Literal(value) for name, value in node.attrs.items()})
    return pat.Call(spec, *operands, **spec.own(node.attrs))
