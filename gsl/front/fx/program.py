"""Traced and exported torch programs as programs of GSL."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import fx
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

from gsl.errors import FrontEndError
from gsl.front.base import Program
from gsl.front.fx.home import ModuleHome
from gsl.front.fx.infer import evaluate, infer
from gsl.front.fx.leaves import ExportedLeaves, ModuleLeaves
from gsl.front.fx.lifted import ExportedHome
from gsl.front.fx.load import Loader
from gsl.front.fx.spellings.table import Dialect
from gsl.front.fx.store import Storer
from gsl.front.fx.values import UNKNOWN, Values, propagate
from gsl.graph import Graph, Node, Type

_STORING = threading.RLock()
"""Held while a view is stored: the programs that come of one another share a fake mode, which is not made for
several threads."""


class GraphModuleProgram:
    """A ``torch.fx.GraphModule``: traced, or handed to a back end by ``torch.compile``, or of ``make_fx``."""

    casts_inputs = False

    def __init__(
        self, module: fx.GraphModule, example_inputs: Sequence[Any] | None = None, values: Values | None = None
    ) -> None:
        self._module = module
        self._placeholders = [node for node in module.graph.nodes if node.op == "placeholder"]
        self._examples = None if example_inputs is None else self._in_order(example_inputs)
        self._values = values or self._find_values()

    def _in_order(self, inputs: Sequence[Any]) -> tuple[Any, ...]:
        """The inputs one by one, as the placeholders take them."""
        defaults = [node.args for node in self._placeholders[len(inputs):]]
        if len(inputs) <= len(self._placeholders) and all(defaults):
            return (*inputs, *(args[0] for args in defaults))
        leaves = pytree.tree_leaves(tuple(inputs))
        if len(leaves) != len(self._placeholders):
            raise FrontEndError(
                f"expected {len(self._placeholders)} example inputs "
                f"({', '.join(node.name for node in self._placeholders)}), but {len(inputs)} were given"
            )
        return tuple(leaves)

    def _find_values(self) -> Values:
        values = Values()
        calls = [node for node in self._module.graph.nodes if node.op not in ("output", "get_attr")]
        if self._examples is not None and any(values.value(node) is UNKNOWN for node in calls):
            values = Values(propagate(self._module, self._examples))
        return values

    @property
    def native(self) -> fx.GraphModule:
        return self._module

    @property
    def module(self) -> fx.GraphModule:
        return self._module

    @property
    def inputs(self) -> Mapping[str, Type | None]:
        """The names of the inputs in order, with their types where known."""
        return {node.name: self._values.type(node) for node in self._placeholders}

    @property
    def params(self) -> Mapping[str, Any]:
        """The parameters and buffers by name."""
        module = self._module
        return {
            **dict(module.named_parameters(remove_duplicate=False)),
            **dict(module.named_buffers(remove_duplicate=False)),
        }

    @property
    def example_inputs(self) -> Sequence[Any] | None:
        return self._examples

    def load(self) -> Graph:
        """A fresh view of the graph."""
        graph = self._module.graph
        return Loader(self._module, graph, ModuleLeaves(self._module), self._values, infer).load()

    def store(self, graph: Graph) -> GraphModuleProgram:
        """The program of a rewritten view of this one. FrontEndError if it can't be expressed."""
        native = self._module.graph
        with _STORING:
            home = ModuleHome(self._module)
            storer = Storer(graph, native, self._values, home, dialect_of(native))
            storer.store()
            module = home.finish(storer.new)
            return GraphModuleProgram(module, self._examples, storer.writer.fakes.values)

    def build(self, *, backend: Any = None, **options: Any) -> Callable[..., Any]:
        """The module as a callable that takes the inputs in order; ``backend`` is one of ``torch.compile``."""
        call = compiled(self._module, backend, options)
        info = getattr(self._module.graph._codegen, "pytree_info", None)
        return call if info is None else structured(call, info.in_spec)

    def evaluate(self, node: Node, operands: Sequence[Any]) -> Any:
        """The value of a call node on tensors."""
        return evaluate(self._module, node, operands)


class ExportProgram:
    """A ``torch.export.ExportedProgram``, as exported or decomposed."""

    casts_inputs = False

    def __init__(self, exported: ExportedProgram, example_inputs: Sequence[Any] | None = None) -> None:
        self._exported = exported
        self._values = Values()
        self._module: fx.GraphModule | None = None
        self._examples = example_inputs
        if example_inputs is None and exported.example_inputs is not None:
            self._examples = tuple(_flat(exported.example_inputs))
        elif example_inputs is not None and len(example_inputs) != len(self.inputs):
            self._examples = tuple(_flat(tuple(example_inputs)))

    @property
    def native(self) -> ExportedProgram:
        return self._exported

    @property
    def module(self) -> fx.GraphModule:
        """The program as a module with its weights."""
        if self._module is None:
            self._module = self._exported.module()
        return self._module

    @property
    def inputs(self) -> Mapping[str, Type | None]:
        """The names of the user's inputs in order, with their types where known."""
        specs = self._exported.graph_signature.input_specs
        user = {spec.arg.name for spec in specs if spec.kind == InputKind.USER_INPUT}
        nodes = [node for node in self._exported.graph.nodes if node.op == "placeholder"]
        return {
            node.name: self._values.type(node) for node, spec in zip(nodes, specs) if spec.arg.name in user
        }

    @property
    def params(self) -> Mapping[str, Any]:
        """The parameters, buffers and constants by name."""
        constants = self._exported.constants
        return {
            **self._exported.state_dict,
            **{name: value for name, value in constants.items() if isinstance(value, torch.Tensor)},
        }

    @property
    def example_inputs(self) -> Sequence[Any] | None:
        return self._examples

    def load(self) -> Graph:
        """A fresh view of the graph."""
        exported = self._exported
        return Loader(exported.graph_module, exported.graph, ExportedLeaves(exported), self._values, infer).load()

    def store(self, graph: Graph) -> ExportProgram:
        """The program of a rewritten view of this one. FrontEndError if it can't be expressed."""
        with _STORING:
            home = ExportedHome(self._exported)
            storer = Storer(graph, self._exported.graph, self._values, home, "aten")
            storer.store()
            renamed = storer.renamed()
            try:
                exported = home.finish(storer.new, renamed)
            except FrontEndError:
                raise
            except Exception as error:
                raise FrontEndError(f"torch.export does not accept the rewritten program: {error}") from error
            return ExportProgram(exported, self._examples)

    def build(self, *, backend: Any = None, **options: Any) -> Callable[..., Any]:
        """The program as a callable that takes the inputs in order; ``backend`` is one of ``torch.compile``."""
        return structured(compiled(self.module, backend, options), self._exported.call_spec.in_spec)

    def evaluate(self, node: Node, operands: Sequence[Any]) -> Any:
        """The value of a call node on tensors."""
        return evaluate(self._exported.graph_module, node, operands)


def from_graph_module(module: fx.GraphModule, example_inputs: Sequence[Any] | None = None) -> GraphModuleProgram:
    """The program of a ``GraphModule``. With example inputs in order, or with fake values in its metadata, every node
    has a type."""
    if not isinstance(module, fx.GraphModule):
        raise _unexpected(module, "a torch.fx.GraphModule")
    if isinstance(example_inputs, torch.Tensor):
        example_inputs = (example_inputs,)
    return GraphModuleProgram(module, example_inputs)


def from_exported(exported: ExportedProgram, example_inputs: Sequence[Any] | None = None) -> ExportProgram:
    """The program of an exported program; the example inputs are those of the export unless given."""
    if not isinstance(exported, ExportedProgram):
        raise _unexpected(exported, "a torch.export.ExportedProgram")
    if isinstance(example_inputs, torch.Tensor):
        example_inputs = (example_inputs,)
    return ExportProgram(exported, example_inputs)


def from_model(
    model: torch.nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
) -> ExportProgram:
    """The program of a module, by ``torch.export``."""
    if not isinstance(model, torch.nn.Module):
        raise _unexpected(model, "a torch.nn.Module")
    return from_exported(torch.export.export(model, args, dict(kwargs or {}), dynamic_shapes=dynamic_shapes))


def program(source: Any) -> Program:
    """The program of a native graph. FrontEndError for anything else."""
    match source:
        case ExportedProgram():
            return from_exported(source)
        case fx.GraphModule():
            return from_graph_module(source)
    raise _unexpected(source, "a torch.fx.GraphModule or a torch.export.ExportedProgram")


def _unexpected(source: Any, expected: str) -> FrontEndError:
    """The error for a source of another kind than a constructor takes, with what to do instead."""
    match source:
        case ExportedProgram():
            mend = "load it with Workload.from_exported"
        case fx.GraphModule():
            mend = "load it with Workload.from_fx"
        case torch.nn.Module():
            mend = (
                "export a module with torch.export.export (Workload.from_torch does it), or trace it with "
                "torch.fx.symbolic_trace"
            )
        case type() if issubclass(source, torch.nn.Module):
            mend = f"make a module of it: {source.__name__}(…)"
        case _ if callable(source):
            mend = "call the function in the forward of a torch.nn.Module"
        case _:
            mend = "make it of a torch.nn.Module"
    name = source.__name__ if isinstance(source, type) else type(source).__name__
    return FrontEndError(f"expected {expected}, but got {name}; {mend}")


def dialect_of(graph: fx.Graph) -> Dialect:
    """``"aten"`` for a graph of operator overloads, ``"torch"`` for one of functions, methods and modules."""
    return "aten" if any(isinstance(node.target, OpOverload) for node in graph.nodes) else "torch"


def compiled(module: torch.nn.Module, backend: Any, options: Mapping[str, Any]) -> Callable[..., Any]:
    """The module, or what ``torch.compile`` makes of it where a back end or options are given."""
    if backend is None and not options:
        return module
    compiled: Callable[..., Any] = torch.compile(module, backend=backend or "inductor", **options)
    return compiled


def structured(call: Callable[..., Any], spec: pytree.TreeSpec) -> Callable[..., Any]:
    """A callable that takes the leaves of the arguments in order."""

    def flat(*leaves: Any) -> Any:
        if len(leaves) != spec.num_leaves:
            return call(*leaves)
        arguments = pytree.tree_unflatten(list(leaves), spec)
        if isinstance(arguments, tuple) and len(arguments) == 2 and isinstance(arguments[1], dict):
            return call(*arguments[0], **arguments[1])
        return call(*arguments)

    return flat


def _flat(arguments: tuple[Any, ...]) -> list[Any]:
    return pytree.tree_leaves(arguments)
