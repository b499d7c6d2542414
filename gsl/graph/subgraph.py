"""Outlined groups: a part of a view as an operator of its own, and the view with such calls put back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property

from gsl.graph.node import CONST, GETITEM, INPUT, TUPLE, Graph, Node, Origin
from gsl.graph.splice import Replacement, Splicer, new_node
from gsl.graph.types import TupleType, Type
from gsl.walk import reached


class Subgraph:
    """The operator of an outlined group: a name, and the graph that a call of it computes.

    The body has one input for each operand of the call, in order. A call with one output has its value; one with
    several has a tuple of them. Two groups are never equal, even if their bodies are.
    """

    def __init__(self, name: str, body: Graph | Callable[[], Graph]) -> None:
        self.name = name
        self._body = body

    @cached_property
    def body(self) -> Graph:
        """The graph that a call computes."""
        return self._body if isinstance(self._body, Graph) else self._body()

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"<Subgraph {self.name}>"


def outlined(nodes: Iterable[Node], outputs: Sequence[Node], graph: Graph) -> tuple[Graph, tuple[Node, ...]]:
    """The graph that computes the outputs with the given nodes, and the operands that it takes from elsewhere.

    Numbers, and tuples made only to be handed over, belong to it. Nodes that no output needs are left out. The nodes of
    the body have the native handles and the names of those that they stand for.
    """
    inside = set(nodes)

    def is_inner(node: Node) -> bool:
        return node in inside or node.op == TUPLE or _is_number(node)

    found = list(reached(reversed(outputs), lambda node: reversed(node.operands) if is_inner(node) else ()))
    operands = [node for node in found if not is_inner(node)]
    made = {node: Node(INPUT, type=node.type, name=node.name) for node in operands}
    for node in sorted(filter(is_inner, found), key=lambda node: node.index):
        made[node] = Node(
            node.op, tuple([made[operand] for operand in node.operands]), node.attrs, node.type,
            name=node.name, native=node.native,
        )  # fmt: skip
    body = Graph(made.values(), [made[output] for output in outputs], graph.infer, graph.canonical)
    return body, tuple(operands)


def call_type(body: Graph) -> Type | None:
    """The type of a call of an outlined group."""
    types = tuple([output.type for output in body.outputs])
    return types[0] if len(types) == 1 else TupleType(types)


def inline(graph: Graph, calls: Iterable[Node]) -> Graph:
    """A copy of a view in which these calls of outlined groups are replaced by their bodies."""
    return with_bodies(graph, {call: call.op.body for call in calls if isinstance(call.op, Subgraph)})


def with_bodies(graph: Graph, bodies: Mapping[Node, Graph]) -> Graph:
    """A copy of a view in which these calls are replaced by what they compute, each with an input for each operand."""
    new = graph.copy()
    splicer = Splicer(new)
    for call, body in [(copy, bodies[old]) for old, copy in zip(graph.nodes, list(new.nodes)) if old in bodies]:
        origin = Origin(f"inline {call.op}", (call,))
        made = _instantiated(call, body, origin)
        old = [call]
        if len(made) > 1:
            fields = [user for user in call.users if user.op == GETITEM]
            whole = new_node(Node(TUPLE, tuple(made), type=call.type, name=call.name), origin)
            made = [made[field.attrs["index"]] for field in fields]
            old = fields
            if not fields or len(fields) < len(call.users) or call in new.outputs:
                old, made = [*fields, call], [*made, whole]
        splicer.apply(Replacement(old, made), dict.fromkeys((*old, call)))
    splicer.finish()
    return new


def _instantiated(call: Node, body: Graph, origin: Origin) -> list[Node]:
    """New nodes that compute the outputs of a call's body from its operands."""
    made = dict(zip([node for node in body.nodes if node.op == INPUT], call.operands))
    for node in body.nodes:
        if node not in made:
            operands = tuple([made[operand] for operand in node.operands])
            made[node] = new_node(Node(node.op, operands, node.attrs, node.type, name=node.name), origin)
    return [made[output] for output in body.outputs]


def _is_number(node: Node) -> bool:
    return node.op == CONST and not hasattr(node.attrs["value"], "shape")
