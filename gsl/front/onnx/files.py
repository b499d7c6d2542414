"""Models as files: opened with care, and saved whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import onnx
import onnx_ir as ir

from gsl.errors import FrontEndError
from gsl.front.onnx import groups, opaque
from gsl.front.onnx.copying import copied
from gsl.front.onnx.types import DTYPES, data_of
from gsl.place import why_unwritable

OLDEST: Final = 13
"""The first version of ONNX's operators that is read: before it, axes and bounds were attributes, and softmax was
another function."""
WHOLE: Final = 1 << 30
"""The number of bytes of weights up to which a model is one file."""


def opened(path: Path) -> ir.Model:
    """The model of a file; external data stay in their files. FrontEndError for a file that holds none."""
    if not path.is_file():
        raise FrontEndError(f"{path}: {'this is no file' if path.exists() else 'there is no such file'}")
    try:
        model = deserialised(onnx.load(path, load_external_data=False))
    except Exception as error:
        # Whatever protobuf, onnx and onnx_ir find wrong in what should be a model.
        raise FrontEndError(f"{path}: it holds no model of ONNX: {reason_of(error)}") from error
    for tensor in _tensors(model):
        if isinstance(tensor, ir.ExternalTensor):
            tensor.base_dir = path.parent
            _check_external(path, tensor)
    return model


def deserialised(proto: onnx.ModelProto) -> ir.Model:
    """The model of a message. FrontEndError for one without a graph, or in which onnx_ir would take the last of two
    things of one name or leave something out, and for a tensor whose shape or dtype is none, or does not fit its data.
    """
    if not proto.HasField("graph"):
        raise FrontEndError("the model has no graph")
    if proto.training_info:
        raise FrontEndError("the model has training_info, which onnx_ir does not keep: clear that field first")
    _refuse_twice("functions", [(each.domain, each.name, each.overload) for each in proto.functions])
    graphs = [proto.graph]
    for graph in graphs:  # the list grows while it is read
        _refuse_twice("initialisers", [tensor.name for tensor in graph.initializer])
        if graph.sparse_initializer:
            raise FrontEndError(f"the initialiser {graph.sparse_initializer[0].values.name!r} is sparse, which onnx_ir "
                                "does not keep: make it dense first")  # fmt: skip
        graphs += [attr.g for node in graph.node for attr in node.attribute if attr.HasField("g")]
    model = ir.serde.deserialize_model(proto)
    for tensor in _tensors(model):
        if tensor is not None and (tensor.dtype == ir.DataType.UNDEFINED or min(tensor.shape.numpy(), default=0) < 0):
            raise FrontEndError(f"the tensor {tensor.name!r} has the dtype {tensor.dtype} and the shape {tensor.shape}")
        if isinstance(tensor, ir.serde.TensorProtoTensor) and tensor.dtype in DTYPES:
            data_of(tensor, tensor.name)
    return model


def _refuse_twice(what: str, names: Sequence[Any]) -> None:
    """FrontEndError if a name stands there twice."""
    for name, count in Counter(names).items() if len(set(names)) < len(names) else ():
        if count > 1:
            raise FrontEndError(f"the model has two {what} of the name {name!r}")


def reason_of(error: BaseException) -> str:
    """The first line of the error that others were raised for."""
    while error.__cause__ is not None:
        error = error.__cause__
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def _tensors(model: ir.Model) -> Iterator[Any]:
    """All tensors of a model: initialisers, and attributes, at any depth."""
    for graph in _graphs(model):
        for value in graph.initializers.values():
            yield value.const_value
        for node in graph:
            for attr in _tensor_attributes(node):
                yield attr.value


def _graphs(model: ir.Model) -> Iterator[ir.Graph]:
    """All graphs of a model: the main one, those of functions, and those in nodes."""
    for graph in (model.graph, *(function.graph for function in model.functions.values())):
        yield graph
        yield from graph.subgraphs()


def _tensor_attributes(node: ir.Node) -> list[ir.Attr]:
    """The attributes of a node that are tensors."""
    attrs = node.attributes.data.values()
    return [attr for attr in attrs if attr.type == ir.AttributeType.TENSOR and not attr.is_ref()]


def _check_external(path: Path, tensor: ir.ExternalTensor) -> None:
    """FrontEndError unless the file of a tensor lies beside the model, and is as long as it has to be."""
    place = f"{path}: the tensor {tensor.name!r} lies in {str(tensor.location)!r}"
    folder = path.parent.resolve()
    file = (folder / str(tensor.location)).resolve()
    if not file.is_relative_to(folder):
        raise FrontEndError(f"{place}, which is outside of the folder of the model")
    if not file.is_file():
        raise FrontEndError(f"{place}, and there is no such file")
    offset, size = tensor.offset or 0, tensor.length if tensor.length is not None else tensor.nbytes
    if offset < 0 or size < tensor.nbytes or offset + size > file.stat().st_size:
        raise FrontEndError(f"{place} from {offset} on, where {tensor.nbytes} bytes of it are not to be found")


def checked(model: ir.Model) -> ir.Model:
    """The model, of which every name stands for one thing that is computed before it is used. FrontEndError for another
    one, for functions that call themselves, and for a version of ONNX's operators that is not read."""
    check_version(model)
    _check_graph(model.graph, set())
    for function in model.functions.values():
        _check_graph(function.graph, set())
    groups.callers_first(model.functions)
    return model


def check_version(model: ir.Model) -> None:
    """FrontEndError for a version of ONNX's operators that is not read."""
    version, newest = version_of(model), onnx.defs.onnx_opset_version()
    if version is not None and not OLDEST <= version <= newest:
        raise FrontEndError(
            f"the model has version {version} of ONNX's operators; those from {OLDEST} to {newest} are read. "
            "onnx.version_converter.convert_version changes it"
        )
    if version is None and any(node.domain == "" for node in model.graph):
        raise FrontEndError("the model does not tell the version of ONNX's operators: opset_import lacks the domain ''")


def version_of(model: ir.Model, domain: str = "") -> int | None:
    """The version of a domain's operators that a model uses; ``None`` if it does not tell. ONNX's own domain has two
    names."""
    imports = model.opset_imports
    return imports.get(domain, None if domain else imports.get("ai.onnx"))


def _check_graph(graph: ir.Graph, known: set[Any]) -> None:
    """FrontEndError unless all that a graph uses, and the graphs in it, is known or computed before; it is known then.
    """
    own = [*graph.inputs, *graph.initializers.values()]
    known.update(own, [None])
    for node in graph:
        if not known.issuperset(node.inputs):
            used = next(value.name for value in node.inputs if value is not None and value not in known)
            raise FrontEndError(
                f"the node {node.name or node.op_type!r} uses {used!r} before it is computed (the TopologicalSortPass "
                "of onnx_ir.passes.common puts nodes in order), or nothing computes it"
            )
        if node.attributes.data:
            for body in opaque.bodies(node):
                _check_graph(body, known)
        outputs = node.outputs
        known.update(outputs)
        own += outputs
    _refuse_twice("values", [value.name for value in dict.fromkeys(own) if value.name])
    for value in graph.outputs:
        if value not in known:
            raise FrontEndError(f"the model has the output {value.name!r}, which nothing computes")


def in_memory(model: ir.Model) -> ir.Model:
    """A copy of the model without references to files: its tensors are those files, as they are mapped to memory."""
    copy = copied(model)
    for graph in _graphs(copy):
        for value in graph.initializers.values():
            value.const_value = _mapped(value.const_value)
        for node in graph:
            for attr in _tensor_attributes(node):
                if isinstance(attr.value, ir.ExternalTensor):
                    node.attributes.add(ir.AttrTensor(attr.name, _mapped(attr.value), doc_string=attr.doc_string))
    return copy


def _mapped(tensor: Any) -> Any:
    """A tensor, which lies in no file."""
    if not isinstance(tensor, ir.ExternalTensor):
        return tensor
    return ir.Tensor(tensor.numpy(), dtype=tensor.dtype, name=tensor.name)


def save(model: ir.Model, path: Path) -> None:
    """Save a model: whole, or not at all. Weights that lie in other files, and large ones, go to a file beside it,
    whose name ends in ``.data``.

    FrontEndError if that is not possible; a file that was there is then as it was.
    """
    reason = why_unwritable(path)
    if reason is not None:
        raise FrontEndError(f"{path}: the model can't be saved: {reason}")
    path = path.resolve()  # what a link leads to is replaced, not the link
    tensors = [tensor for tensor in _tensors(model) if tensor is not None]
    apart = any(isinstance(tensor, ir.ExternalTensor) for tensor in tensors)
    data = path.with_suffix(".data").name if apart or sum(tensor.nbytes for tensor in tensors) > WHOLE else None
    try:
        with tempfile.TemporaryDirectory(prefix=".gsl_", dir=path.parent) as folder:
            ir.save(in_memory(model), Path(folder) / path.name, external_data=data)
            for name in (data, path.name):  # the model last: it names the other file
                if name is not None and (Path(folder) / name).exists():
                    os.replace(Path(folder) / name, path.parent / name)
    except FrontEndError:
        raise
    except Exception as error:
        raise FrontEndError(f"{path}: the model can't be saved: {reason_of(error)}") from error
