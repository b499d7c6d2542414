"""Models of ONNX as programs of GSL."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence, Set
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from gsl.errors import FrontEndError, PicklingError
from gsl.front.base import Extended, ProgramStep
from gsl.front.onnx import run
from gsl.front.onnx.bodies import with_bodies, with_functions
from gsl.front.onnx.files import checked, deserialised, in_memory, opened, reason_of, save
from gsl.front.onnx.infer import evaluate
from gsl.front.onnx.load import OnnxLoader, targets, weights_of, why_unread
from gsl.front.onnx.outline import may_have
from gsl.front.onnx.spellings import OnnxTarget
from gsl.front.onnx.steps import OnnxSteps
from gsl.front.onnx.store import OnnxStorer, try_call
from gsl.front.onnx.types import OnnxTypes
from gsl.front.onnx.wide import in_float64, wide
from gsl.graph import Below, Graph, Node, SymDim, TensorType, Type
from gsl.spec import DeclaredSpec


class OnnxProgram(Extended):
    """The main graph of an ``onnx_ir.Model``, with its weights. The graphs in its nodes are programs of their own."""

    casts_inputs = True
    fuses = True
    """onnxruntime computes element-wise calls together with the call before them."""
    kept = "the model stays: ONNX would write what the rules made in the words that are there"
    """The reason why :meth:`store` gives this program again."""

    def __init__(
        self, model: ir.Model, example_inputs: Sequence[Any] | None = None, taken: Set[str] | None = None
    ) -> None:
        self._model = model
        self.example_inputs = example_inputs
        """Inputs in order, from which symbolic sizes have their numbers where costs are measured."""
        self._taken = taken
        """The names around the graph, which new things in it must not have; ``None`` for the graph of a whole model."""
        self._is_flat = False
        """True if it is known that the model has no functions and no graphs in nodes."""

    def with_example_inputs(self, values: Sequence[Any]) -> OnnxProgram:
        """This program with other example inputs, in order."""
        return OnnxProgram(self._model, values, self._taken).with_operators(self.operators)

    def __reduce__(self) -> tuple[Any, ...]:
        try:
            saved = ir.to_proto(in_memory(self._model)).SerializeToString()
        except Exception as error:
            raise PicklingError(f"the model can't be written as one message: {reason_of(error)}") from error
        return _restored, (saved, self.example_inputs, self._taken, dict(self.operators))

    @property
    def native(self) -> ir.Model:
        """The model."""
        return self._model

    module = native

    @cached_property
    def inputs(self) -> Mapping[str, Type | None]:
        """The names of the inputs in order, with their types."""
        weights, types = weights_of(self._model), OnnxTypes()
        return {value.name or "": types.of(value) for value in self._model.graph.inputs if value.name not in weights}

    @cached_property
    def params(self) -> Mapping[str, Any]:
        """The weights by name, as tensors of ``onnx_ir``."""
        return {name: value.const_value for name, value in weights_of(self._model).items()}

    def load(self, *, check: bool = False) -> Graph:
        """A fresh view of the main graph; FrontEndError for a model that has to be checked and is not sound."""
        loader = OnnxLoader(self._model, self.operators)
        graph = loader.load_checked() if check else loader.load()
        self._is_flat = check and loader.is_flat
        inputs = [(value, loader.type_of(value)) for value in self._model.graph.inputs]
        graph.writable = partial(try_call, self._model, OnnxTarget(loader.opset, inputs))
        graph.targets = targets
        return graph

    def why_unread(self) -> Callable[[Node], str]:
        """A function that tells why an opaque node of a view has no canonical reading."""
        return why_unread

    def may_have(self, fits: Callable[[Below], bool]) -> bool:
        """False if nothing fits in the view, nor in that of a graph within nodes or of a function."""
        return may_have(self._model, self.operators, fits)

    def store(self, graph: Graph) -> OnnxProgram:
        """The program of a rewritten view of this one. FrontEndError if it can't be expressed."""
        new = OnnxStorer(graph, self._model, self._name_of, self._taken or frozenset()).store()
        return self if new is None else self._with(new)

    def _with(self, model: ir.Model) -> OnnxProgram:
        return OnnxProgram(model, self.example_inputs, self._taken).with_operators(self.operators)

    def update(self, graph: Graph) -> None:
        """Write a rewritten view into the model itself. FrontEndError if it can't be expressed; the model is then as it
        was."""
        self.changed_by(graph)

    def changed_by(self, graph: Graph) -> bool:
        """The same; True if that changes the model."""
        storer = OnnxStorer(graph, self._model, self._name_of, self._taken or frozenset(), in_place=True)
        if storer.store() is None:
            return False
        self._is_flat = self._is_flat and not storer.changes.makes_graphs
        for name in ("inputs", "params", "_symbols", "_steps"):
            self.__dict__.pop(name, None)
        return True

    def inside(self, change: Callable[[str, OnnxProgram], OnnxProgram], *, in_place: bool = False) -> OnnxProgram:
        """A program, in place this one, in which each graph of a node, and each function of the model that is no group,
        is what ``change`` makes of it, told its name and its program.

        Values from around a graph are inputs of its program, and weights where they are weights. The inputs of a
        function have the types that all its calls agree on.
        """
        if self._is_flat:
            return self

        def changed(name: str, model: ir.Model, taken: Set[str]) -> ir.Model:
            return change(name, OnnxProgram(model, taken=taken).with_operators(self.operators)).native

        new = with_bodies(self._model, changed, in_place=in_place)
        if self._taken is None:
            new = with_functions(new, changed, in_place=in_place)
        return self if new is self._model else self._with(new)

    def _name_of(self, size: Any) -> str | None:
        """The name of a symbolic size."""
        return self._symbols.get(size)

    @cached_property
    def _symbols(self) -> Mapping[Any, str]:
        """The names of the symbolic sizes."""
        types = OnnxTypes()
        for value in chain(self._model.graph.inputs, *[node.outputs for node in self._model.graph]):
            types.of(value)
        return types.names

    def build(self, **options: Any) -> Callable[..., Any]:
        """A callable that takes the inputs in order and returns numpy arrays; the options are those of
        :func:`gsl.front.onnx.run.session`."""
        model = self._model
        call = run.session(model, **options)
        names = [value.name for value in model.graph.inputs]
        fed = [names.index(name) for name in self.inputs]
        return call if fed == list(range(len(names))) else lambda *values: call(
            *[values[fed.index(place)] if place in fed else None for place in range(len(names))]
        )  # fmt: skip

    def wide(self, value: Any) -> Any:
        """A tensor of narrower floats in float64; any other value as it is."""
        return wide(value)

    def in_float64(self) -> Callable[..., Any]:
        """A callable that takes wide inputs in order, and computes with doubles only; in the reference evaluator where
        onnxruntime has no kernel for them."""
        program = self._with(in_float64(self._model))

        def call(*values: Any) -> Any:
            try:
                return program.build(log_severity_level=4)(*values)
            except Exception:  # it lacks some kernel, or is not installed
                return program.build(runtime="reference")(*values)

        return call

    def steps(self, graph: Graph) -> Sequence[ProgramStep]:
        """The nodes that compute, in order; ``graph`` is an unchanged view."""
        return self._steps.steps(graph)

    def alone(self, steps: Sequence[ProgramStep], *, copies: int = 1) -> Callable[[], object]:
        """A function that makes these calls and no others, on operands made for it."""
        return self._steps.alone(steps, copies)

    @cached_property
    def _steps(self) -> OnnxSteps:
        sizes: dict[Any, int] = {}
        for type, value in zip(self.inputs.values(), self.example_inputs or ()):
            if isinstance(type, TensorType):
                sizes.update((size.expr, int(number)) for size, number in zip(type.shape, np.shape(value))
                             if isinstance(size, SymDim))  # fmt: skip
        return OnnxSteps(self._model, sizes)

    def save(self, path: Path) -> None:
        """Save the model: whole, or not at all."""
        save(self._model, path)

    def evaluate(self, node: Node, operands: Sequence[Any]) -> Any:
        """The value of a call node on torch tensors."""
        return evaluate(self._model, node, operands)


def from_onnx(source: Any, *, check: bool = True) -> OnnxProgram:
    """The program of an ``onnx_ir.Model``, an ``onnx.ModelProto``, a file of one, or what ``torch.onnx.export`` makes.

    The tensors of a file that has external data stay in their files. FrontEndError for anything else, and for a file
    that is none of a model. Without ``check``, a model in memory may be unsound until it is loaded.
    """
    if isinstance(source, OnnxProgram):
        return source
    if isinstance(source, (str, os.PathLike)):
        return OnnxProgram(checked(opened(Path(source))))
    if type(source).__name__ == "ONNXProgram":
        source = source.model
    if type(source).__name__ == "ModelProto":
        try:
            source = deserialised(source)
        except Exception as error:
            raise FrontEndError(f"the ModelProto can't be read: {reason_of(error)}") from error
    if not isinstance(source, ir.Model):
        raise FrontEndError(
            f"expected an onnx_ir.Model, an onnx.ModelProto or the path of a model of ONNX, found a "
            f"{type(source).__name__}"
        )
    return OnnxProgram(checked(source) if check else source)


def _restored(
    saved: bytes, example_inputs: Sequence[Any] | None, taken: Set[str] | None, operators: Mapping[str, DeclaredSpec]
) -> OnnxProgram:
    """The program that was pickled."""
    model = deserialised(onnx.load_from_string(saved))
    return OnnxProgram(model, example_inputs, taken).with_operators(operators)


def program(source: Any) -> OnnxProgram:
    """The program of a model, as it is in memory. FrontEndError for anything else."""
    if isinstance(source, (str, os.PathLike)):
        raise FrontEndError(f"expected a model of ONNX, found a {type(source).__name__}; from_onnx opens files")
    return from_onnx(source)
