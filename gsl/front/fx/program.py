"""Traced and exported torch programs as programs of GSL."""

from __future__ import annotations

import contextlib
import copy
import inspect
import io
import pickle
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import torch
import torch.utils._pytree as pytree
from torch import fx
from torch._ops import HigherOrderOperator, OpOverload
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

from gsl.errors import FrontEndError, PicklingError
from gsl.front.base import Extended, Program, ProgramStep, Unchangeable
from gsl.front.core.wide import wide
from gsl.front.fx.builder import GraphBuilder, InPlace, give_code
from gsl.front.fx.callers import is_compiled, is_for_autograd, viewed_results
from gsl.front.fx.custom import declared_targets
from gsl.front.fx.decompose import Decompositions, decompose
from gsl.front.fx.devices import Admits, Devices
from gsl.front.fx.effects import exchanges
from gsl.front.fx.handle import ExportedLeaves, FxLeaves, gives_view, module_path, nodes_in, shares, targets
from gsl.front.fx.infer import evaluate, infer
from gsl.front.fx.load import FxLoader
from gsl.front.fx.parameters import (
    ExportedParameterStore,
    InPlaceParameterStore,
    ModuleParameterStore,
    unlifted,
)
from gsl.front.fx.regions import regions, takes
from gsl.front.fx.run import in_float64, runnable, structured
from gsl.front.fx.spellings.table import Dialect
from gsl.front.fx.steps import FxSteps
from gsl.front.fx.store import FxStorer
from gsl.front.fx.values import UNKNOWN, Values, device_of, propagate
from gsl.front.fx.write import in_aten, in_exports, in_functions
from gsl.graph import Graph, Node, Type
from gsl.graph.node import Writable
from gsl.pause import paused_collector, uninterrupted
from gsl.spec import DeclaredSpec

FxOwn = TypeVar("FxOwn", bound="FxProgram")
ModuleOwn = TypeVar("ModuleOwn", bound="GraphModuleProgram")

_STORING = threading.RLock()
"""The lock for storing a view: programs that come of one another share a fake mode, which is not made for several
threads."""


class FxProgram(Extended, ABC):
    """A graph of torch in a module with all that it refers to."""

    casts_inputs = False
    fuses = False
    _root: fx.GraphModule
    """The module with the graph."""
    _values: Values
    _devices: Devices
    _examples: Sequence[Any] | None

    @property
    @abstractmethod
    def native(self) -> Any:
        """The graph as it was handed in, or its like, after a rewrite."""

    @abstractmethod
    def _inputs(self) -> Sequence[fx.Node]:
        """The placeholders of the user's inputs, in order."""

    @abstractmethod
    def _leaves(self) -> FxLeaves:
        """The weights and literal tensors of the graph."""

    @property
    @abstractmethod
    def _writable(self) -> Writable:
        """The check of new calls."""

    @property
    def inputs(self) -> Mapping[str, Type | None]:
        """The names of the user's inputs in order, with their types where known."""
        return {node.name: self._values.type(node) for node in self._inputs()}

    @property
    def input_devices(self) -> Mapping[str, torch.device]:
        """The devices of the user's inputs, where known."""
        found = {node.name: self._values.value(node) for node in self._inputs()}
        return {name: device for name, value in found.items() if (device := device_of(value)) is not None}

    @property
    def example_inputs(self) -> Sequence[Any] | None:
        return self._examples

    def load(self) -> Graph:
        """A fresh view of the graph, which knows which nodes can be written."""
        loader = self._loader()
        if self.operators:
            loader.declared = declared_targets(self.operators)
        graph = loader.load()
        graph.writable = self._writable
        graph.admits = Admits(self._root.graph, self._values, self._devices, loader.reader.forms)
        graph.exchanges = exchanges
        graph.gives_view, graph.targets = gives_view, targets
        return graph

    def _loader(self) -> FxLoader:
        return FxLoader(self._root.graph, self._leaves(), self._values, infer)

    def why_unread(self) -> Callable[[Node], str | None]:
        """A function that tells why an opaque node of a view has no canonical reading."""
        loader = self._loader()
        loader.load()
        return loader.why_unread

    def scope(self, node: Node) -> tuple[str, ...]:
        """The names of the modules that a node is part of."""
        return module_path(node)

    @property
    @abstractmethod
    def module(self) -> fx.GraphModule:
        """The program as a module with its weights."""

    def wide(self, value: Any) -> Any:
        """A tensor of narrower floats in float64; any other value as it is."""
        return wide(value)

    def in_float64(self) -> Callable[..., Any]:
        """A callable that takes wide inputs in order, and computes with wide tensors only."""
        return in_float64(self.module)

    def steps(self, graph: Graph) -> Sequence[ProgramStep]:
        """The calls that compute, in order."""
        return self._steps().steps(graph)

    def alone(self, steps: Sequence[ProgramStep], *, copies: int = 1) -> Callable[[], object]:
        """A function that makes these calls and no others."""
        return self._steps().alone(steps, copies)

    def alone_compiled(self, steps: Sequence[ProgramStep], *, copies: int = 1) -> Callable[[], object]:
        """A function that runs what inductor makes of some of the calls."""
        return self._steps().alone(steps, copies, compiles=True)

    def _steps(self) -> FxSteps:
        return FxSteps(self._root, self._root.graph, self._leaves(), self._values)

    def evaluate(self, node: Node, operands: Sequence[Any]) -> Any:
        """The value of a call node on tensors."""
        return evaluate(self._root, node, operands, self._devices)

    def __deepcopy__(self: FxOwn, memo: dict[int, Any]) -> FxOwn:
        """A program of its own, with weights of its own."""
        native, examples = copy.deepcopy((self.native, self._examples), memo)
        for old, new in zip(self._root.graph.nodes, native.graph.nodes):
            if new.name != old.name:  # torch renames what is called as a function of Python is
                new.name = old.name
        return type(self)(native, examples).with_operators(self.operators)  # type: ignore[call-arg]

    def __reduce__(self) -> tuple[Any, ...]:
        try:
            saved = self._saved()
        except Exception as error:
            raise PicklingError(f"torch can't save the {type(self.native).__name__}: {error}") from error
        return _restored, (type(self), saved, self._examples, dict(self.operators))

    @abstractmethod
    def _saved(self) -> bytes:
        """The native graph as torch saves it."""

    @staticmethod
    @abstractmethod
    def _loaded(saved: bytes) -> Any:
        """The native graph that was saved."""


class GraphModuleProgram(FxProgram):
    """A ``torch.fx.GraphModule``: traced, or handed to a back end by ``torch.compile``, or of ``make_fx``."""

    is_of_scan = False
    """True for the graph that a ``scan`` runs."""

    def __init__(
        self, module: fx.GraphModule, example_inputs: Sequence[Any] | None = None, values: Values | None = None
    ) -> None:
        self._root = self._module = module
        self._is_compiled = True
        """True if the code of the module is that of its graph. After a rewrite it is compiled when asked for."""
        self._placeholders = module.graph.find_nodes(op="placeholder")
        self._examples = None if example_inputs is None else self._in_order(example_inputs)
        self._values = values or self._find_values()
        self._devices = Devices(module.graph, self._values, lambda: (*module.parameters(), *module.buffers()))

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
        values.forget_reshaped(calls)
        return values

    @property
    def native(self) -> fx.GraphModule:
        return self.module

    @property
    def module(self) -> fx.GraphModule:
        with _STORING:
            if not self._is_compiled:
                self._module.recompile()
                self._is_compiled = True
        return self._module

    @property
    def params(self) -> Mapping[str, Any]:
        """The parameters and buffers by name."""
        module = self._module
        return {
            **dict(module.named_parameters(remove_duplicate=False)),
            **dict(module.named_buffers(remove_duplicate=False)),
        }

    def _inputs(self) -> Sequence[fx.Node]:
        return self._placeholders

    def _leaves(self) -> FxLeaves:
        return FxLeaves(self._module)

    @property
    def _is_called_by_torch(self) -> bool:
        """True if what follows in torch may change the results in place, or view them by strides."""
        return is_compiled(self._module) or is_for_autograd(self._module)

    def load(self) -> Graph:
        """A fresh view of the graph, which knows which nodes can be written."""
        graph = super().load()
        if self.is_of_scan and isinstance(graph.admits, Admits):
            graph.admits.alone = frozenset(nodes_in(self._module.graph.output_node().args))
        if self._is_called_by_torch:
            graph.shares = shares(self._values)
            if isinstance(graph.admits, Admits):
                graph.admits.viewed = viewed_results(self._module.graph, self._values)
        return graph

    @property
    def _writable(self) -> Writable:
        return in_aten if dialect_of(self._module.graph) == "aten" else in_functions

    @paused_collector
    def store(self: ModuleOwn, graph: Graph) -> ModuleOwn:
        """The program of a rewritten view of this one. FrontEndError if it can't be expressed."""
        native = self._module.graph
        with _STORING:
            parameters = ModuleParameterStore(self._module)
            builder = GraphBuilder(native)
            storer = FxStorer(graph, native, self._values, self._devices, parameters, dialect_of(native), builder)
            storer.store()
            builder.graph.lint()
            new = type(self)(parameters.finish(builder.graph), self._examples, storer.writer.fakes.values)
            new._is_compiled = False
            new.operators, new.is_of_scan = self.operators, self.is_of_scan
            return new

    def takes(self, new: GraphModuleProgram) -> bool:
        """True if torch is known to take a rewritten graph in the place of this one, within a call; see
        :func:`gsl.front.fx.regions.takes`."""
        return takes(self._module, self._values, new._module, new._values)

    @uninterrupted
    @paused_collector
    def update(self, graph: Graph, table: Decompositions | None = None) -> None:
        """Write a rewritten view of this program into its own module, in place; see :meth:`Program.update`.

        New calls are decomposed by the table, if one is given. The code of the module is not compiled
        anew: call ``module.recompile()`` before it runs. Values of attributes that are not used any more are deleted,
        except from modules that others may hold too.
        """
        native = self._module.graph
        with _STORING:
            with InPlace(native) as builder:
                parameters = InPlaceParameterStore(self._module, builder.note)
                storer = FxStorer(graph, native, self._values, self._devices, parameters, dialect_of(native), builder)
                storer.store()
                self._check_updated()
                decomposed = [] if table is None else decompose(builder.new_nodes(), table, builder.note)
                dead = builder.finish(storer.new)
            for node in reversed(decomposed):
                native.erase_node(node)
            parameters.forget(dead)
            self._values.forget(dead)

    def _check_updated(self) -> None:
        """Raise FrontEndError if the module is not one of its kind any more."""

    def _saved(self) -> bytes:
        if self._examples is None and any(self._values.value(node) is not UNKNOWN for node in self._placeholders):
            raise PicklingError(
                "the metadata that has its types would be left out; make the workload with example inputs: "
                "Workload.from_fx(module, (x,))"
            )
        saved = pickle.dumps(self.module)
        graphs = [part.graph for part in self.module.modules() if isinstance(part, fx.GraphModule)]
        targets = [node.target for graph in graphs for node in graph.nodes]
        called = [target for target in targets if isinstance(target, HigherOrderOperator)]
        if called:  # torch traces a module anew when it loads it, and not all of these can be traced
            try:
                pickle.loads(saved)
            except Exception as error:
                raise PicklingError(
                    f"torch could not load it again, because it calls {called[0]} ({error}); write groups as their "
                    "calls before (.inline()), or save an exported program"
                ) from error
        return saved

    @staticmethod
    def _loaded(saved: bytes) -> Any:
        return pickle.loads(saved)

    def build(self, *, backend: Any = None, **options: Any) -> Callable[..., Any]:
        """The module as a callable that takes the inputs in order; ``backend`` is one of ``torch.compile``."""
        call = compiled(self.module, backend, options)
        info = getattr(self._module.graph._codegen, "pytree_info", None)
        return call if info is None else structured(call, info.in_spec)


class ExportProgram(FxProgram, Unchangeable):
    """A ``torch.export.ExportedProgram``, as exported or decomposed."""

    def __init__(self, exported: ExportedProgram, example_inputs: Sequence[Any] | None = None) -> None:
        self._exported, self._root = exported, exported.graph_module
        self._values = Values()
        self._devices = Devices(
            exported.graph, self._values, lambda: (*exported.state_dict.values(), *exported.constants.values())
        )
        self._module: fx.GraphModule | None = None
        self._examples = example_inputs
        if example_inputs is None and exported.example_inputs is not None:
            self._examples = tuple(pytree.tree_leaves(exported.example_inputs))
        elif example_inputs is not None and len(example_inputs) != len(self.inputs):
            self._examples = tuple(pytree.tree_leaves(tuple(example_inputs)))

    @property
    def native(self) -> ExportedProgram:
        with _STORING, contextlib.suppress(SyntaxError):  # it has objects without a name; torch warned when it was made
            give_code(self._exported.graph_module)
        return self._exported

    @property
    @paused_collector
    def module(self) -> fx.GraphModule:
        """The program as a module with its weights."""
        with _STORING:
            if self._module is None:
                self._module = unlifted(self._exported)
        return self._module

    def _inputs(self) -> Sequence[fx.Node]:
        specs = self._exported.graph_signature.input_specs
        user = {spec.arg.name for spec in specs if spec.kind == InputKind.USER_INPUT}
        return [node for node, spec in zip(self._exported.graph.find_nodes(op="placeholder"), specs)
                if spec.arg.name in user]  # fmt: skip

    @property
    def params(self) -> Mapping[str, Any]:
        """The parameters, buffers and constants by name."""
        constants = self._exported.constants
        return {
            **self._exported.state_dict,
            **{name: value for name, value in constants.items() if isinstance(value, torch.Tensor)},
        }

    @property
    def size_ranges(self) -> Mapping[str, tuple[int, int | None]]:
        """The least and the largest value of symbolic sizes for which the program was exported."""
        ranges = self._exported.range_constraints.items()
        return {str(symbol): (int(found.lower), int(found.upper) if found.upper.is_Integer else None)
                for symbol, found in ranges if found.lower.is_Integer}  # fmt: skip

    def _leaves(self) -> FxLeaves:
        return ExportedLeaves(self._exported)

    @property
    def _writable(self) -> Writable:
        return in_exports

    @paused_collector
    def store(self, graph: Graph) -> ExportProgram:
        """The program of a rewritten view of this one. FrontEndError if it can't be expressed."""
        with _STORING:
            parameters = ExportedParameterStore(self._exported)
            builder = GraphBuilder(self._exported.graph)
            storer = FxStorer(graph, self._exported.graph, self._values, self._devices, parameters, "aten", builder)
            storer.store()
            try:
                exported = parameters.finish(builder.graph, storer.renamed())
            except FrontEndError:
                raise
            except Exception as error:
                raise FrontEndError(f"torch.export does not accept the rewritten program: {error}") from error
            return ExportProgram(exported, self._examples).with_operators(self.operators)

    def inside(self, change: Callable[[str, RegionProgram], RegionProgram]) -> ExportProgram:
        """A program in which each graph within a call is what ``change`` makes of it, told its path and its program."""
        changed = _changed_inside(self, change)
        return _with_inside(self.store(self.load()), changed) if changed else self

    def _saved(self) -> bytes:
        file = io.BytesIO()
        torch.export.save(self.native, file)
        return file.getvalue()

    @staticmethod
    def _loaded(saved: bytes) -> Any:
        return torch.export.load(io.BytesIO(saved))

    def build(self, *, backend: Any = None, **options: Any) -> Callable[..., Any]:
        """The program as a callable that takes the inputs in order; ``backend`` is one of ``torch.compile``."""
        spec = self._exported.call_spec.in_spec
        if backend is None and not options:
            return runnable(self.module, spec)
        return structured(compiled(self.module, backend, options), spec)


class TracedProgram(GraphModuleProgram):
    """A ``torch.fx.GraphModule`` of a user's, with the graphs within its calls."""

    def inside(self: ModuleOwn, change: Callable[[str, RegionProgram], RegionProgram]) -> ModuleOwn:
        """A program in which each graph within a call is what ``change`` makes of it, told its path and its program."""
        changed = _changed_inside(self, change)
        return _with_inside(super().store(self.load()), changed) if changed else self


class RegionProgram(TracedProgram):
    """A graph within a call, as a branch of ``torch.cond`` or the body of a loop.

    What it is fed are inputs. A rewrite that torch would not take is not made: results in another layout of memory
    than what is around them was exported for, and tensors of its own, which can't be saved.
    """

    kept = "the graph is kept: its results would lie otherwise in memory, or it would hold tensors of its own"
    """The reason why :meth:`store` gives this program again."""

    @property
    def _is_called_by_torch(self) -> bool:
        return True  # a branch, or a body, may not return what it is fed

    def store(self, graph: Graph) -> RegionProgram:
        """The program of a rewritten view of this one; this one itself, if torch would not take the other."""
        new = super().store(graph)
        return new if self.takes(new) and new.params.keys() <= self.params.keys() else self


def _restored(
    kind: type[FxOwn], saved: bytes, examples: Sequence[Any] | None, operators: Mapping[str, DeclaredSpec]
) -> FxOwn:
    """The program that was pickled."""
    return kind(kind._loaded(saved), examples).with_operators(operators)  # type: ignore[call-arg]


def _changed_inside(
    program: FxProgram, change: Callable[[str, RegionProgram], RegionProgram]
) -> dict[str, fx.GraphModule]:
    """The graphs within calls of a program that a function changes, by their paths."""
    root = program._root
    if not any(isinstance(module, fx.GraphModule) for module in root.children()):
        return {}
    found = regions(root, program._values)
    bodies = {path: RegionProgram(region.module, values=region.values) for path, region in found.items()}
    for path, body in bodies.items():
        body.is_of_scan = found[path].is_of_scan
    return {
        path: new.module for path, body in bodies.items()
        if (new := change(path, own := body.with_operators(program.operators))) is not own
    }  # fmt: skip


def _with_inside(program: FxOwn, changed: Mapping[str, fx.GraphModule]) -> FxOwn:
    """A new program with other graphs within its calls."""
    program._root._modules.update(changed)
    return program


def from_graph_module(
    module: fx.GraphModule, example_inputs: Sequence[Any] | torch.Tensor | None = None
) -> TracedProgram:
    """The program of a ``GraphModule``. With example inputs in order, or with fake values in its metadata, every node
    has a type."""
    if not isinstance(module, fx.GraphModule):
        raise _unexpected(module, "a torch.fx.GraphModule")
    if not any(node.op == "output" for node in reversed(module.graph.nodes)):
        raise FrontEndError("the graph has no output node: end it with graph.output(…), of () if nothing is returned")
    if isinstance(example_inputs, torch.Tensor):
        example_inputs = (example_inputs,)
    return TracedProgram(module, example_inputs)


def from_exported(
    exported: ExportedProgram, example_inputs: Sequence[Any] | torch.Tensor | None = None
) -> ExportProgram:
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
    model = getattr(model, "_orig_mod", model)  # that of torch.compile
    if not isinstance(model, torch.nn.Module) or isinstance(model, torch.jit.ScriptModule):
        raise _unexpected(model, "a torch.nn.Module")
    try:
        inspect.signature(model.forward).bind(*args, **(kwargs or {}))
    except TypeError as error:
        raise FrontEndError(
            f"{type(model).__name__} can't be called with these example inputs: {error}; give those with which it is "
            "traced, in order: Workload.from_torch(model, (x,))"
        ) from None
    args, kwargs = _told_apart(model, (args, dict(kwargs or {})))
    try:
        exported = torch.export.export(model, args, kwargs, dynamic_shapes=dynamic_shapes)
    except Exception as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
        raise FrontEndError(
            f"torch.export can't export {type(model).__name__} with these example inputs: {reason}; give those with "
            "which it runs, or export it and use Workload.from_exported"
        ) from error
    return from_exported(exported)


def _told_apart(model: torch.nn.Module, inputs: Any) -> Any:
    """These inputs, where no tensor is given twice or belongs to the model: ``torch.export`` takes one tensor for one
    input, so that the program would read another input, or another weight, than the model does."""
    seen = {id(tensor) for tensor in (*model.parameters(), *model.buffers())}

    def alone(tensor: torch.Tensor) -> torch.Tensor:
        if id(tensor) in seen:
            return tensor.detach().requires_grad_(tensor.requires_grad)
        seen.add(id(tensor))
        return tensor

    return pytree.tree_map_only(torch.Tensor, alone, inputs)


def program(source: Any) -> Program:
    """The program of a native graph. FrontEndError for anything else."""
    match source:
        case ExportedProgram():
            return from_exported(source)
        case fx.GraphModule():
            return from_graph_module(source)
    raise _unexpected(source, "a torch.fx.GraphModule or a torch.export.ExportedProgram")


def _unexpected(source: Any, expected: str) -> FrontEndError:
    """The error for a source of another kind than a constructor takes, with a hint at the right constructor."""
    match source:
        case ExportedProgram():
            mend = "load it with Workload.from_exported"
        case fx.GraphModule():
            mend = "load it with Workload.from_fx"
        case torch.jit.ScriptModule():
            mend = "take the module from which it was compiled, as torch.export takes no compiled one"
        case str():
            mend = "load the file first: Workload.from_exported(torch.export.load(path))"
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
    for node in reversed(graph.nodes):  # the placeholders stand at the beginning
        if isinstance(node.target, OpOverload):
            return "aten"
    return "torch"


def compiled(module: torch.nn.Module, backend: Any, options: Mapping[str, Any]) -> Callable[..., Any]:
    """The module, or the result of ``torch.compile`` on it where a back end or options are given."""
    if backend is None and not options:
        return module
    compiled: Callable[..., Any] = torch.compile(module, backend=backend or "inductor", **options)
    return compiled
