"""Small models of ONNX, written as text."""

from __future__ import annotations

from typing import Any

import onnx
import onnx_ir as ir

from gsl import Workload
from gsl.graph import LEAVES


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
