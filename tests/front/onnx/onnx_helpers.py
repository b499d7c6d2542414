"""Small models of ONNX, written as text."""

from __future__ import annotations

from typing import Any

import onnx
import onnx_ir as ir

from gsl import Workload
from gsl.graph import LEAVES, Below, Graph, op_name


def model(body: str, inputs: str = "float[2,3] x", outputs: str = "float[2,3] y", *, opset: int = 22, more: str = "",
          others: str = "") -> ir.Model:  # fmt: skip
    """The model of a graph: its nodes as text, with initialisers and types of values in ``more``."""
    text = f"""<ir_version: 10, opset_import: ["" : {opset}{others}]>
main ({inputs}) => ({outputs}) {f"<{more}>" if more else ""} {{ {body} }}"""
    return ir.serde.deserialize_model(onnx.parser.parse_model(text))


def workload(*args: Any, **kwargs: Any) -> Workload:
    return Workload(model(*args, **kwargs))


def bytes_of(native: ir.Model) -> bytes:
    return ir.to_proto(native).SerializeToString(deterministic=True)


def check(native: ir.Model) -> None:
    """What the checker and the shape inference of onnx demand of a model."""
    onnx.checker.check_model(ir.to_proto(native), full_check=True)


def nodes(native: ir.Model) -> list[str]:
    return [node.op_type for node in native.graph]


def anew(wl: Workload) -> Workload:
    """The program, in which all canonical calls are written anew."""
    view = wl.program.load()
    for node in view:
        if isinstance(node.op, str) and node.op not in LEAVES:
            node.native = None
    return Workload(wl.program.store(view))


def views(wl: Workload) -> list[Graph]:
    """The view, and those of the graphs within nodes and of functions."""
    return [wl.graph, *(inner.graph for inner in wl.inside.values())]


def told(wl: Workload) -> Below:
    """What the names in a model tell of all its views; nothing if it has groups."""
    found: list[Below] = [{}]
    wl.program.may_have(lambda below: bool(found.append(below)))  # type: ignore[attr-defined, func-returns-value]
    return found[-1]


def untold(wl: Workload) -> list[str]:
    """The nodes of views of whose operator, or that of an operand, the names in the model do not tell."""
    below = told(wl)
    return [
        f"%{node.name} = {op_name(node.op)}({', '.join([op_name(operand.op) for operand in node.operands])})"
        for view in views(wl) for node in view
        if node.op not in below or not below[node.op] >= {operand.op for operand in node.operands}
    ]  # fmt: skip
