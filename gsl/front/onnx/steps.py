"""The nodes of a model one by one: the facts on which the time of each depends, and runs of some of them alone."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import onnx_ir as ir

from gsl.errors import FrontEndError
from gsl.front.base import ProgramStep
from gsl.front.core.handle import shown
from gsl.front.onnx import opaque, run
from gsl.front.onnx.copying import Copies, beside, copied_node
from gsl.front.onnx.files import version_of
from gsl.front.onnx.load import OnnxLoader, is_alias, is_constant, node_of
from gsl.front.onnx.spellings.reading import SMALL
from gsl.front.onnx.types import annotate, const_tensor
from gsl.graph import Graph, SymDim, TensorType, Type


class OnnxSteps:
    """The nodes of the main graph of a model; ``sizes`` are numbers for symbolic sizes."""

    def __init__(self, model: ir.Model, sizes: Mapping[Any, int]) -> None:
        self.model = model
        self.sizes = sizes
        self.scope = OnnxLoader(model)
        self.scope.load()

    def steps(self, view: Graph) -> list[ProgramStep]:
        """The nodes that compute, with the nodes of a view that they stand for."""
        found = shown(view, lambda reading: map(node_of, (reading.native, *reading.through)))
        return [
            ProgramStep(node.name or node.op_type, tuple(found.get(node, ())), self._key(node), self._bytes(node), node)
            for node in self.model.graph
            if not is_constant(node) and not is_alias(node)
        ]

    def alone(self, steps: Sequence[ProgramStep], copies: int) -> Callable[[], object]:
        """A function that runs some of the nodes by onnxruntime, with the threads that torch has. FrontEndError where
        an operand can't be made up."""
        nodes = [step.native for step in steps]
        if any(True for node in nodes for _ in opaque.bodies(node)):
            raise FrontEndError(f"{steps[-1].name}: what a node with graphs in it takes depends on what it computes")
        calls = []
        for seed in range(copies):
            region = self._region(nodes)
            fed = [self._made_up(value, seed) for value in region.graph.inputs]
            calls.append(partial(run.session(region, runtime="onnxruntime"), *fed))
        if copies == 1:
            return calls[0]
        turns = itertools.cycle(calls)
        return lambda: next(turns)()

    def _region(self, nodes: Sequence[ir.Node]) -> ir.Model:
        """A model of these nodes alone: values from elsewhere are inputs, and weights are weights."""
        made = Copies()
        copies = [copied_node(node, made) for node in nodes]
        for old, new in made.items():
            annotate(new, self._type(old))
            new.const_value = self._weight(old) if new.producer() is None else None
        around = [value for value in made.values() if value.producer() is None]
        inputs = [value for value in around if value.const_value is None]
        weights = [value for value in around if value.const_value is not None]
        ends = [made[value] for node in nodes for value in node.outputs if self._is_end(value, nodes)]
        graph = ir.Graph(inputs, ends, nodes=copies, initializers=weights, name="alone",
                         opset_imports=dict(self.model.graph.opset_imports))  # fmt: skip
        return beside(self.model, graph)

    def _is_end(self, value: ir.Value, nodes: Sequence[ir.Node]) -> bool:
        """True if something else than these nodes uses a value."""
        users = [use.node for use in value.uses()]
        return value.is_graph_output() or (not users and value.index() == 0) or any(user not in nodes for user in users)

    def _weight(self, value: ir.Value) -> Any:
        """The tensor of a weight or literal; ``None`` for any other value."""
        if value.name in self.scope.weights or is_constant(value.producer()):
            return const_tensor(value)
        return None

    def _type(self, value: ir.Value) -> Type | None:
        """The type of a value, with numbers for symbolic sizes where they are known."""
        type = self.scope.type_of(value)
        if not isinstance(type, TensorType):
            return type
        return TensorType(tuple(map(self._number, type.shape)), type.dtype)

    def _number(self, size: Any) -> Any:
        found = size.expr.subs(self.sizes) if isinstance(size, SymDim) else size
        return int(found) if getattr(found, "is_Integer", True) else size

    def _made_up(self, value: ir.Value, seed: int) -> Any:
        """An array for an input: floats at random, integers that are valid indices."""
        if value.shape is None or value.dtype is None or not value.shape.is_static():
            raise FrontEndError(f"{value.name}: an operand of unknown size can't be made up: give example inputs")
        shape, dtype = value.shape.numpy(), value.dtype.numpy()
        if str(value.dtype).lower() in ("float", "double", "float16", "bfloat16"):
            return np.random.default_rng(seed).standard_normal(shape).astype(dtype)
        return np.full(shape, dtype == np.bool_, dtype)

    def _key(self, node: ir.Node) -> str:
        """The text of a node: its operator, its operands by their types, its attributes."""
        import onnxruntime

        version = version_of(self.model, node.domain) or 0
        args = [self._argument(value) for value in node.inputs]
        args += [f"{name}={_text(attr)}" for name, attr in node.attributes.items()]
        return f"{opaque.target_of(node)}:{version}({', '.join(args)}) onnxruntime {onnxruntime.__version__}"

    def _argument(self, value: ir.Value | None) -> str:
        tensor = None if value is None else self._weight(value)
        if value is None or tensor is None:
            return "" if value is None else str(self._type(value))
        few = f" {zlib.crc32(tensor.tobytes())}" if tensor.nbytes <= SMALL else ""
        return f"weight {tensor.dtype}{list(tensor.shape)}{few}"

    def _bytes(self, node: ir.Node) -> int:
        """The number of bytes of weights that a node reads."""
        tensors = [self._weight(value) for value in node.inputs if value is not None]
        return sum(tensor.nbytes for tensor in tensors if tensor is not None)


def _text(attr: Any) -> str:
    if attr.is_ref():
        return f"@{attr.ref_attr_name}"
    return str(zlib.crc32(attr.value.tobytes())) if attr.type == ir.AttributeType.TENSOR else str(attr.value)
