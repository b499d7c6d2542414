"""The weights and submodules of a native program, and the way in which those of a rewritten program are added.

Nothing of the old program is changed: modules on the way to a change are copied shallowly, tensors are shared.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch
from torch import fx
from torch.export import ExportedProgram, ModuleCallEntry
from torch.export.graph_signature import (
    ConstantArgument,
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputSpec,
    TensorArgument,
)

from gsl.errors import FrontEndError
from gsl.front.core.store import unique
from gsl.front.fx.builder import codeless, give_code
from gsl.front.fx.handle import LITERAL_PREFIX, FxLeaf, attribute
from gsl.graph import PARAM, Node

if TYPE_CHECKING:
    from gsl.front.fx.write import FxWriter


class ModuleParameterStore:
    """The weights of a ``GraphModule``: attributes of it and of its submodules.

    A new weight is a ``Parameter`` if it is floating, else a buffer; a new literal tensor is a buffer. A parameter
    made here requires no gradient, since it was computed from others.
    """

    def __init__(self, old: fx.GraphModule) -> None:
        self.old = old
        self.new = clone(old)
        self._own: set[str] = {""}
        """The paths of the modules that belong to the new program alone."""

    def read(self, node: Node, writer: FxWriter) -> fx.Node:
        """A native node that reads the tensor of a param or const; registers the tensor if it is new."""
        if isinstance(node.native, FxLeaf):
            path = node.native.name
        else:
            path = self._add(node, writer)
        new = writer.add("get_attr", path, (), {}, writer.name(path.replace(".", "_")))
        writer.fakes.set(new, *writer.fakes.of_tensor(attribute(self.new, path)))
        return new

    def _add(self, node: Node, writer: FxWriter) -> str:
        wanted = node.name if node.op == PARAM else f"{LITERAL_PREFIX}{node.name}"
        name = unique(writer.name(wanted), lambda name: hasattr(self.new, name))
        value = writer.tensor(node)
        if node.op == PARAM and isinstance(parameter := as_parameter(value), torch.nn.Parameter):
            self.new.register_parameter(name, parameter)
        else:
            self.new.register_buffer(name, value)
        writer.builder.note(lambda: delattr(self.new, name))
        return name

    @property
    def training(self) -> bool:
        """True if the program is for training."""
        return self.new.training

    def add_module(self, module: torch.nn.Module, name: str) -> str:
        """Register a new submodule; its path."""
        name = unique(name, lambda name: hasattr(self.new, name))
        self.new.add_module(name, module)
        return name

    def add_graph(self, module: fx.GraphModule, name: str, is_taken: Callable[[str], bool]) -> str:
        """Register the graph of an outlined group; its path. ``is_taken`` tells the names of values."""
        return self.add_module(module, name)

    def finish(self, graph: fx.Graph) -> fx.GraphModule:
        """The new module, without what only the replaced part of the old graph used. Its code is not compiled yet."""
        graph._codegen = copy.copy(self.old.graph._codegen)
        self._clean(_targets(self.old.graph.nodes), _targets(graph.nodes))
        self.new._graph = graph
        graph.owning_module = self.new
        return self.new

    def _clean(self, before: Mapping[str, str], after: Mapping[str, str]) -> None:
        """Delete the weights and modules that were used before and are not used any more."""
        inside: dict[str, list[str]] = {}
        for path in after:
            for outer in _prefixes(path):
                inside.setdefault(outer, []).append(path.removeprefix(f"{outer}."))
        gone: set[str] = set()
        for path in before:
            holders = tuple(_prefixes(path))
            if path in after or not gone.isdisjoint(holders) or not self._may_change(path):
                continue
            if any(after.get(module) == "call_module" for module in holders):
                continue
            if path not in inside:
                self._delete(path)
                gone.add(path)
            elif before[path] == "call_module":
                self._hollow(path, inside[path])
                gone.add(path)

    def _may_change(self, path: str) -> bool:
        """True if the value at a path may be deleted from the module that holds it."""
        return True

    def _delete(self, path: str) -> None:
        """Delete an attribute, and the bare containers that this leaves empty."""
        owner, _, name = path.rpartition(".")
        module = self._writable(owner)
        delattr(module, name)
        while owner and _is_empty(module):
            owner, _, name = owner.rpartition(".")
            module = self._writable(owner)
            delattr(module, name)

    def _hollow(self, path: str, inside: list[str]) -> None:
        """Put a bare module that holds only these attributes in the place of one that is not called any more."""
        owner, _, name = path.rpartition(".")
        old, holder = attribute(self.old, path), torch.nn.Module()
        for inner in inside:
            *prefix, last = inner.split(".")
            place = holder
            for part in prefix:
                if part not in place._modules:
                    place.add_module(part, torch.nn.Module())
                place = place.get_submodule(part)
            value = attribute(old, inner)
            if isinstance(value, torch.Tensor) and not isinstance(value, torch.nn.Parameter):
                place.register_buffer(last, value)
            else:
                setattr(place, last, value)
        self._writable(owner)._modules[name] = holder

    def _writable(self, path: str) -> Any:
        """The module at a path of the new program, made its own so that it may be changed."""
        done, module = "", self.new
        for name in path.split(".") if path else ():
            done = f"{done}.{name}" if done else name
            if done not in self._own:
                module._modules[name] = _shallow(module._modules[name])
                self._own.add(done)
            module = module._modules[name]  # type: ignore[assignment]
        return module


class InPlaceParameterStore(ModuleParameterStore):
    """The weights of a ``GraphModule`` that is changed itself.

    Modules that others may hold too are not changed: only the ``GraphModule``, and the bare containers within it.
    """

    def __init__(self, module: fx.GraphModule, note: Callable[[Callable[[], object]], object]) -> None:
        self.old = self.new = module
        self._note = note
        """Takes a function that undoes a change."""

    def add_module(self, module: torch.nn.Module, name: str) -> str:
        path = super().add_module(module, name)
        self._note(lambda: delattr(self.new, path))
        return path

    def forget(self, dead: Iterable[fx.Node]) -> None:
        """Delete the weights and modules to which only deleted nodes referred."""
        if before := _targets(dead):
            graph = self.new.graph
            self._clean(before, _targets([*graph.find_nodes(op="get_attr"), *graph.find_nodes(op="call_module")]))

    def _may_change(self, path: str) -> bool:
        module: Any = self.new
        for name in path.split(".")[:-1]:
            module = module._modules.get(name)
            if type(module) is not torch.nn.Module:
                return False
        return True

    def _writable(self, path: str) -> Any:
        return attribute(self.new, path)


def from_numpy(value: Any) -> Any:
    """A numpy array as a tensor of the CPU with memory of its own; anything else as it is."""
    return torch.tensor(value, device="cpu") if isinstance(value, (np.ndarray, np.generic)) else value


def as_parameter(value: Any) -> Any:
    """A floating tensor as a parameter that shares its memory; any other tensor as it is."""
    if isinstance(value, torch.nn.Parameter) or not (value.is_floating_point() or value.is_complex()):
        return value
    return torch.nn.Parameter(value, requires_grad=False)


def _targets(nodes: Iterable[fx.Node]) -> dict[str, str]:
    """The attributes and submodules to which nodes refer, with the kind of the last reference."""
    return {str(node.target): node.op for node in nodes if node.op in ("get_attr", "call_module")}


def _prefixes(path: str) -> Iterator[str]:
    """The paths of the modules that hold the value at a path, the nearest first."""
    while "." in path:
        path, _, _ = path.rpartition(".")
        yield path


def clone(old: fx.GraphModule) -> fx.GraphModule:
    """A module of the same class and with the same attributes, whose containers can be changed independently."""
    new: fx.GraphModule = fx.GraphModule.__new__(type(old))
    vars(new).update(vars(old))
    type(new).__name__ = type(old).__name__
    _separate(new)
    return new


def _shallow(module: Any) -> Any:
    if isinstance(module, fx.GraphModule):
        new = clone(module)
        new.graph = module.graph
        return new
    new = copy.copy(module)
    _separate(new)
    return new


def _separate(module: Any) -> None:
    """Give a module its own containers of parameters, buffers, submodules, metadata and hooks."""
    for name, value in list(vars(module).items()):
        if name in ("_parameters", "_buffers", "_modules", "meta") or name.endswith("hooks"):
            if isinstance(value, (dict, list)):
                vars(module)[name] = copy.copy(value)
        elif name == "_non_persistent_buffers_set":
            vars(module)[name] = set(value)


def _is_empty(module: Any) -> bool:
    bare = type(module) in (torch.nn.Module, torch.nn.Sequential, torch.nn.ModuleList, torch.nn.ModuleDict)
    return bare and not (module._parameters or module._buffers or module._modules)


# ---------------------------------------------------------------- weights of an exported program


_OF_MODULE: Final = ("_in_spec", "_out_spec", "_guards_fn")
"""The attributes that torch gives the module of an exported program."""
_PREFIX = {InputKind.PARAMETER: "p_", InputKind.BUFFER: "b_", InputKind.CONSTANT_TENSOR: "c_"}


class ExportedParameterStore:
    """The weights and constants that a rewritten exported program adds to the old one.

    A new weight is a ``Parameter`` that requires no gradient if it is floating, else a persistent buffer; a new
    literal tensor is a constant of the program.
    """

    training = False

    def __init__(self, old: ExportedProgram) -> None:
        self.old = old
        self.state: dict[str, Any] = dict(old.state_dict)
        self.constants: dict[str, Any] = dict(old.constants)
        self._added: dict[str, InputSpec] = {}
        self._kinds = {spec.arg.name: spec.kind for spec in old.graph_signature.input_specs}
        self._last: dict[InputKind, fx.Node] = {}
        """The last placeholder before those of the next kind, for each kind of a new weight."""
        self._root = old.graph_module

    def read(self, node: Node, writer: FxWriter) -> fx.Node:
        tensor = value = writer.tensor(node)
        if node.op == PARAM:
            value = as_parameter(value)
            kind = InputKind.PARAMETER if isinstance(value, torch.nn.Parameter) else InputKind.BUFFER
        else:
            kind = InputKind.CONSTANT_TENSOR
        wanted = node.name or "weight" if node.op == PARAM else f"{LITERAL_PREFIX}{node.name}"
        target = unique(wanted, lambda name: name in self.state or name in self.constants)
        (self.constants if kind is InputKind.CONSTANT_TENSOR else self.state)[target] = value
        name = _PREFIX[kind] + target.replace(".", "_").lower()  # the names of placeholders are small letters for torch
        new = self._placeholder(kind, writer.name(name), writer.builder.graph)
        writer.fakes.set(new, *writer.fakes.of_tensor(tensor))
        persistent = True if kind is InputKind.BUFFER else None
        self._added[new.name] = InputSpec(kind, TensorArgument(new.name), target, persistent)
        return new

    def _placeholder(self, kind: InputKind, name: str, graph: fx.Graph) -> fx.Node:
        """A new placeholder behind those of its kind, and before the user's inputs."""
        before = [InputKind.TOKEN, InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR]
        allowed = before[: before.index(kind) + 1]
        last = self._last.get(kind)
        node = next(iter(graph.nodes), None) if last is None else last.next
        while node is not None and node.op == "placeholder" and self._kinds.get(node.name) in allowed:
            last, node = node, node.next
        first = next(iter(graph.nodes), None)
        if last is not None:
            place = graph.inserting_after(last)
        else:
            place = graph.inserting_before(first)
        with place:
            new = graph.create_node("placeholder", name, name=name)
        self._kinds[new.name] = kind
        self._last[kind] = new
        return new

    def add_module(self, module: torch.nn.Module, name: str) -> str:
        raise FrontEndError(
            f"{name}: an exported program can't call the module {type(module).__name__}; "
            f"rewrite the GraphModule of .module() instead, or use functions"
        )

    def add_graph(self, module: fx.GraphModule, name: str, is_taken: Callable[[str], bool]) -> str:
        if self._root is self.old.graph_module:
            self._root = clone(self._root)
        # A program that is loaded from a file has the graph under a value of this name, and .module() of a program has
        # the weights by theirs.
        weights = {path.partition(".")[0] for path in (*self.state, *self.constants)}
        name = unique(
            name, lambda name: name in weights or name in _OF_MODULE or is_taken(name) or hasattr(self._root, name)
        )
        self._root.add_module(name, module)
        return name

    def finish(self, graph: fx.Graph, renamed: dict[str, str]) -> ExportedProgram:
        """The new program. ``renamed`` tells the new names of values whose native node was replaced."""
        inputs = self._inputs(graph)
        outputs = self._outputs(graph)
        return ExportedProgram(
            root=self._root,
            graph=codeless(graph),
            graph_signature=ExportGraphSignature(inputs, outputs),
            state_dict=self.state,
            range_constraints=copy.copy(self.old.range_constraints),
            module_call_graph=self._module_calls(graph, renamed),
            example_inputs=self.old.example_inputs,
            constants=self.constants,
            verifiers=self.old.verifiers,
        )

    def _inputs(self, graph: fx.Graph) -> list[InputSpec]:
        """The specs of the placeholders; weights that lost their last user are removed with theirs."""
        signature = self.old.graph_signature
        specs = {spec.arg.name: spec for spec in signature.input_specs} | self._added
        lost = self._used(self.old.graph, specs) - self._used(graph, specs)
        written = {*signature.buffers_to_mutate.values(), *signature.parameters_to_mutate.values()}
        result: list[InputSpec] = []
        removed: list[InputSpec] = []
        for node in graph.find_nodes(op="placeholder"):
            spec = specs[node.name]
            is_weight = spec.kind in _PREFIX and spec.target not in written
            if is_weight and self._tensor(spec) in lost:
                graph.erase_node(node)
                removed.append(spec)
            else:
                result.append(dataclasses.replace(spec, arg=copy.copy(spec.arg)))
        self._forget(removed, {spec.target for spec in result})
        return result

    def _used(self, graph: fx.Graph, specs: Mapping[str, InputSpec]) -> set[Hashable]:
        """The tensors of the placeholders that have users; of tied weights, an export reads one."""
        return {self._tensor(specs[node.name]) for node in graph.find_nodes(op="placeholder") if node.users}

    def _tensor(self, spec: InputSpec) -> Hashable:
        """A key of the tensor of a placeholder, which tied weights share."""
        return id(self.state[spec.target]) if spec.target in self.state else spec.arg.name

    def _forget(self, removed: list[InputSpec], used: set[str | None]) -> None:
        """Drop the tensors of removed placeholders, unless they are used under another name."""
        alive = {id(store[name]) for store in (self.state, self.constants) for name in store if name in used}
        for spec in removed:
            for store in (self.state, self.constants):
                if spec.target in store and spec.target not in used and id(store[spec.target]) not in alive:
                    del store[spec.target]

    def _outputs(self, graph: fx.Graph) -> list[OutputSpec]:
        (results,) = next(node for node in reversed(graph.nodes) if node.op == "output").args
        specs: list[OutputSpec] = []
        for spec, result in zip(self.old.graph_signature.output_specs, results):
            spec = dataclasses.replace(spec, arg=copy.copy(spec.arg))
            if isinstance(result, fx.Node):
                if isinstance(spec.arg, ConstantArgument):
                    raise FrontEndError(f"{result.name}: takes the place of an output that was a constant")
                spec.arg.name = result.name
            elif not isinstance(spec.arg, ConstantArgument):
                raise FrontEndError(f"{spec.arg.name}: an output of an exported program can't become {result!r}")
            specs.append(spec)
        return specs

    def _module_calls(self, graph: fx.Graph, renamed: dict[str, str]) -> list[ModuleCallEntry]:
        """The module hierarchy, with the names of values that were replaced; a module whose border is gone has none."""
        names = {node.name for node in graph.nodes}
        entries = [_copied(entry) for entry in self.old.module_call_graph]
        for entry in entries:
            if entry.signature is None:
                continue
            arguments = [*entry.signature.inputs, *entry.signature.outputs]
            for argument in arguments:
                if argument.name in renamed:
                    argument.name = renamed[argument.name]
            if any(argument.name and argument.name not in names for argument in arguments):
                entry.signature = None
        return entries


FxParameterStore = ModuleParameterStore | ExportedParameterStore
"""The weights of a program that is being built."""


def unlifted(exported: ExportedProgram) -> fx.GraphModule:
    """The module of ``exported.module()``, in two thirds of its time: torch compiles the modules on the way, too."""
    source, root = copy.copy(exported), clone(exported.graph_module)
    root._graph = codeless(copy.copy(exported.graph))
    source._graph_module = root
    return give_code(source.module())


def _copied(entry: ModuleCallEntry) -> ModuleCallEntry:
    """A copy of an entry whose names can be changed."""
    signature = entry.signature
    if signature is not None:
        inputs, outputs = ([copy.copy(a) for a in side] for side in (signature.inputs, signature.outputs))
        signature = dataclasses.replace(signature, inputs=inputs, outputs=outputs)
    return dataclasses.replace(entry, signature=signature)
