"""Types and values of single calls of a view, and the types that a model does not declare."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import onnx
import onnx_ir as ir

from gsl.errors import FrontEndError, is_exhaustion, nearest
from gsl.front.core import infer as core
from gsl.front.core.handle import is_literal
from gsl.front.onnx import opaque
from gsl.front.onnx.copying import beside
from gsl.front.onnx.run import session
from gsl.front.onnx.types import DTYPES, NameOf, annotate, array_to_torch, number, to_onnx
from gsl.graph import Node, Op, SymDim, TensorType, TupleType, Type, op_name
from gsl.graph.subgraph import Subgraph
from gsl.graph.types import unknown_size
from gsl.spec.natives import OnnxOp

LARGE = 1024
"""The number of elements from which a weight is not looked at when types are inferred."""


def infer(model: ir.Model, op: Op, operands: tuple[Node, ...], attrs: Mapping[str, Any]) -> Type | None:
    """The type of a call, or ``None`` if it does not follow. ValueError if the call is ill-typed.

    ``model`` has the versions of the operators, and the functions.
    """
    return core.infer(op, operands, attrs, partial(_infer_opaque, model))


def declared_types(model: ir.Model) -> Mapping[str, tuple[Any, Any]]:
    """Types and shapes of values by name, as ONNX infers them.

    Large weights are not looked at: for ONNX, they are inputs.
    """
    graph = model.graph
    small: list[ir.Value] = []
    large = list(graph.inputs)
    for value in graph.initializers.values():
        tensor = value.const_value
        is_large = tensor is not None and tensor.size > LARGE and value.type is not None and value.shape is not None
        (large if is_large else small).append(value)
    seen = ir.GraphView(list(dict.fromkeys(large)), graph.outputs, nodes=graph, initializers=small, name=graph.name,
                        opset_imports=graph.opset_imports)  # fmt: skip
    return _inferred(ir.Model(seen, ir_version=model.ir_version or 10, functions=list(model.functions.values())))  # type: ignore[arg-type]


def _inferred(model: ir.Model) -> Mapping[str, tuple[Any, Any]]:
    """Types and shapes of values by name, as ONNX infers them; none if it can't."""
    try:
        graph = onnx.shape_inference.infer_shapes(ir.to_proto(model), data_prop=True).graph
        found = {
            info.name: (
                ir.serde.deserialize_type_proto_for_type(info.type),
                ir.serde.deserialize_type_proto_for_shape(info.type),
            )
            for info in (*graph.value_info, *graph.output)
        }
    except Exception as error:
        if is_exhaustion(error):
            raise
        # Whatever else onnx finds wrong: then there are no types.
        return {}
    # For attention on three axes, onnx 1.23 takes a last size that is not known for 0.
    for name in [name for node in graph.node if node.op_type == "Attention" for name in node.output if name in found]:
        type, shape = found[name]
        found[name] = type, shape and ir.Shape([None if size == 0 else size for size in shape])
    return found


# ---------------------------------------------------------------- single calls


def _infer_opaque(model: ir.Model, op: Op, operands: tuple[Node, ...], attrs: Mapping[str, Any]) -> Type | None:
    """The type that ONNX infers for an opaque call, with sizes that are unknown; ``None`` where it has none."""
    if isinstance(op, Subgraph) or any(not isinstance(operand.type, TensorType) for operand in operands):
        return None
    if isinstance(op, OnnxOp) and not attrs and not is_known(model, op):
        return None
    names: dict[SymDim, str] = {}
    outputs = _fewest_outputs(model, op)
    try:
        alone = _alone(
            model, op, operands, attrs, outputs or 1, lambda size: names.setdefault(size, f"gsl_{len(names)}")
        )
        if outputs is not None:
            _check(alone)
        type, shape = _inferred(alone).get("y0", (None, None))
    except FrontEndError as error:
        raise ValueError(str(error)) from None
    if not isinstance(type, ir.TensorType) or type.dtype not in DTYPES or shape is None:
        return None
    sizes = {name: size for size, name in names.items()}
    dims = [size if isinstance(size, int) else sizes.get(size.value) or unknown_size() for size in shape.dims]
    return TensorType(tuple(dims), DTYPES[type.dtype])


def _fewest_outputs(model: ir.Model, op: Op) -> int | None:
    """The smallest number of outputs of one of ONNX's own operators; ``None`` for any other. ValueError if the version
    of the model has none of its name."""
    if not isinstance(op, OnnxOp) or op.domain not in ("", "ai.onnx"):
        return None
    if (op.domain, op.name, op.overload) in model.functions:
        return None
    version = model.opset_imports.get("") or onnx.defs.onnx_opset_version()
    try:
        return max(onnx.defs.get_schema(op.name, version, "").min_output, 1)
    except onnx.defs.SchemaError:
        raise ValueError(f"version {version} of ONNX's operators has no {op.name}{_since(op.name, version)}") from None


def _since(name: str, version: int) -> str:
    """The version with which an operator came that one lacks, or the names of others that it has, as text."""
    schemas = [schema for schema in onnx.defs.get_all_schemas_with_history() if not schema.domain]
    own = [schema.since_version for schema in schemas if schema.name == name]
    if own and min(own) > version:
        return f", which came with version {min(own)}"
    known = {schema.name for schema in schemas if schema.since_version <= version and schema.name != name}
    return f": {nearest(name, known)}"


def _check(call: ir.Model) -> None:
    """ValueError for a model of one call that ONNX does not take: of operands, attributes or types that its operator
    does not have."""
    kinds = {attr.type for node in call.graph for attr in node.attributes.values()}
    if not kinds.isdisjoint((ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)):
        return  # these may use values of the graph around the call
    proto = ir.to_proto(call)
    context = onnx.checker.C.CheckerContext()
    context.ir_version = proto.ir_version
    context.opset_imports = {each.domain: each.version for each in proto.opset_import}
    try:
        onnx.checker.check_node(proto.graph.node[0], context)
        onnx.shape_inference.infer_shapes(proto, check_type=True, strict_mode=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        raise ValueError(f"ONNX does not take the call: {lines[0]}") from None


def is_known(model: ir.Model, op: OnnxOp) -> bool:
    """True if ONNX may tell the types of an operator's calls: it has a schema, or is a function of the model."""
    is_function = (op.domain, op.name, op.overload) in model.functions
    return is_function or op.domain in ("", "ai.onnx") or onnx.defs.has(op.name, op.domain)


def _alone(
    model: ir.Model, op: Any, operands: Sequence[Node], attrs: Mapping[str, Any], outputs: int,
    name_of: NameOf = lambda size: None,
) -> ir.Model:  # fmt: skip
    """A model of one call, on inputs of the types of the operands, with names for symbolic sizes; numbers and literals
    are initialisers."""
    values, fed, written = [], [], []
    for place, operand in enumerate(operands):
        value = ir.Value(name=f"x{place}")
        annotate(value, operand.type, name_of)
        values.append(value)
        if is_literal(operand):
            value.const_value = to_onnx(number(operand.attrs["value"], operand.dtype or "float32"), value.name)
            written.append(value)
        else:
            fed.append(value)
    inputs, attributes = opaque.arguments(op, values, attrs)
    node = ir.Node(op.domain, op.name, inputs, attributes, overload=op.overload, num_outputs=outputs)
    for place, value in enumerate(node.outputs):
        value.name = f"y{place}"
    graph = ir.Graph(fed, node.outputs, nodes=[node], initializers=written, name="call",
                     opset_imports=dict(model.opset_imports))  # fmt: skip
    return beside(model, graph)


def evaluate(model: ir.Model, node: Node, operands: Sequence[Any]) -> Any:
    """The value of a call on torch tensors and Python numbers."""
    return core.evaluate(node, operands, partial(map, _operand), partial(_run, model))


def _operand(value: Any) -> Any:
    return value if isinstance(value, (bool, int, float, tuple)) or hasattr(value, "detach") else array_to_torch(value)


def _run(model: ir.Model, node: Node, values: Sequence[Any]) -> Any:
    """The value of an opaque call, by whatever runs models here."""
    if any(not isinstance(operand.type, TensorType) for operand in node.operands) or node.deps:
        raise FrontEndError(f"{node.name}: ONNX computes {op_name(node.op)} for operands of known types only")
    outputs = len(node.type.fields) if isinstance(node.type, TupleType) else 1
    alone = _alone(model, node.op, node.operands, node.attrs, outputs)
    fed = [value for operand, value in zip(node.operands, values) if not is_literal(operand)]
    found = session(alone)(*fed)
    return tuple(map(array_to_torch, found)) if isinstance(found, tuple) else array_to_torch(found)


__all__ = ["declared_types", "evaluate", "infer", "is_known"]
