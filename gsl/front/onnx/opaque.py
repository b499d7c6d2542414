"""Calls without a canonical reading: their form in the view, and the way back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import onnx_ir as ir

from gsl.errors import FrontEndError
from gsl.front.core.opaque import decoded, positional
from gsl.front.onnx.types import const_tensor, value_of
from gsl.graph import Effect, op_name
from gsl.spec.natives import OnnxOp

_RANDOM: Final = frozenset((
    "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial", "Bernoulli",
))  # fmt: skip


_GRAPHS: Final = (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)


def target_of(node: ir.Node) -> OnnxOp:
    """The operator of a node."""
    return OnnxOp(node.op_type, node.domain, node.overload)


def target_named(name: str) -> OnnxOp:
    """The operator of ONNX that a user's operator stands for; a dot behind the name of that tells forms of it apart.

    FrontEndError if the name is in none of ONNX's domains.
    """
    domain, _, rest = str.__str__(name).partition("::")
    if "." not in domain:
        raise FrontEndError(f"{name}: domains of ONNX have a dot in their names, as com.microsoft has")
    return OnnxOp(rest.partition(".")[0], domain)


def attributes(node: ir.Node) -> dict[str, Any]:
    """The attributes of a node as Python values; ``arg1=None`` for an operand that is left out before others."""
    found = {name: attr if attr.is_ref() else value_of(attr) for name, attr in node.attributes.items()}
    return {**found, **{f"arg{place}": None for place, value in enumerate(node.inputs) if value is None}}


def bodies(node: ir.Node) -> Iterable[ir.Graph]:
    """The graphs among the attributes of a node."""
    attributes = node.attributes.data  # of the mapping itself, Python asks the length by a call
    return graphs(attributes.values()) if attributes else ()


def graphs(attrs: Iterable[ir.Attr]) -> Iterator[ir.Graph]:
    """The graphs among some attributes."""
    for attr in attrs:
        kind = attr.type
        if kind in _GRAPHS and not attr.is_ref():
            yield from attr.as_graphs() if kind == ir.AttributeType.GRAPHS else (attr.as_graph(),)


def nested(node: ir.Node) -> Iterator[ir.Node]:
    """The nodes of the graphs among the attributes of a node, at any depth."""
    for body in bodies(node):
        yield from body.all_nodes()


def captured(bodies: Sequence[ir.Graph]) -> tuple[ir.Value, ...]:
    """The values from around some graphs that they use, each once."""
    inner = {graph for body in bodies for graph in (body, *body.subgraphs())}
    used = [value for body in bodies for part in body.all_nodes() for value in part.inputs if value is not None]
    used += [value for body in bodies for value in body.outputs]
    return tuple(dict.fromkeys([value for value in used if value.graph not in inner]))


def redirect(node: ir.Node, instead: Mapping[Any, ir.Value | None]) -> None:
    """Let a node use other values, or none."""
    for place, value in enumerate(node.inputs):
        if value in instead:
            node.replace_input_with(place, instead[value])


def detach(node: ir.Node) -> None:
    """Let a node use nothing any more."""
    redirect(node, dict.fromkeys(node.inputs))


def replace(graph: ir.Graph, instead: Mapping[ir.Value, ir.Value]) -> None:
    """Let a graph, and those in it, use other values."""
    for part in graph.all_nodes():
        redirect(part, instead)
    for inner in (graph, *graph.subgraphs()):
        for place, value in enumerate(inner.outputs):
            if value in instead:
                inner.outputs[place] = instead[value]


def effect_of(node: ir.Node) -> Effect | None:
    """The effect of a call besides computing its value: random numbers, also in a graph among its attributes."""
    return Effect.RANDOM if _draws(node) or (node.attributes.data and any(map(_draws, nested(node)))) else None


def _draws(node: ir.Node) -> bool:
    """True for a node that draws random numbers; a dropout is one if it may drop something."""
    op = node.op_type
    if op != "Dropout" or len(node.inputs) < 3 or (training := node.inputs[2]) is None:
        return op in _RANDOM
    tensor = None if training.is_graph_input() else const_tensor(training)
    return tensor is None or bool(tensor.numpy().any())


def arguments(op: Any, operands: Sequence[Any], attrs: Mapping[str, Any]) -> tuple[list[Any], list[ir.Attr]]:
    """The inputs and attributes of a call that a rule asks for. FrontEndError if it can't be made."""
    if not isinstance(op, OnnxOp):
        raise FrontEndError(f"{op_name(op)}: in ONNX, a rule can make calls of an OnnxOp only")
    if not attrs:
        return list(operands), []
    left, given = decoded(op, operands, attrs)
    inputs = positional((), left, given)
    own = {name: value for name, value in given.items() if value is not None and not isinstance(value, ir.Attr)}
    refs = [value for value in given.values() if isinstance(value, ir.Attr)]
    try:
        return inputs, [*ir.convenience.convert_attributes(own), *refs]
    except (TypeError, ValueError) as error:
        raise FrontEndError(f"{op}: ONNX has no such attributes: {error}") from error
