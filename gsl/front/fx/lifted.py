"""The weights of an exported program: placeholders, with entries in the signature and the state dict."""

from __future__ import annotations

import copy
import dataclasses
from typing import TYPE_CHECKING, Any

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
from gsl.front.fx.home import as_parameter, clone, unique
from gsl.graph import PARAM, Node

if TYPE_CHECKING:
    from gsl.front.fx.write import Writer

_PREFIX = {InputKind.PARAMETER: "p_", InputKind.BUFFER: "b_", InputKind.CONSTANT_TENSOR: "c_"}


class ExportedHome:
    """The weights and constants that a rewritten exported program adds to the old one.

    A new weight is a ``Parameter`` that requires no gradient if it is floating, else a persistent buffer; a new
    literal tensor is a constant of the program.
    """

    def __init__(self, old: ExportedProgram) -> None:
        self.old = old
        self.state: dict[str, Any] = dict(old.state_dict)
        self.constants: dict[str, Any] = dict(old.constants)
        self._added: dict[str, InputSpec] = {}
        self._kinds = {spec.arg.name: spec.kind for spec in old.graph_signature.input_specs}
        self._last: dict[InputKind, fx.Node] = {}
        """The last placeholder before those of the next kind, for each kind of a new weight."""
        self._root = old.graph_module

    def read(self, node: Node, writer: Writer) -> fx.Node:
        tensor = value = writer.tensor(node)
        if node.op == PARAM:
            value = as_parameter(value)
            kind = InputKind.PARAMETER if isinstance(value, torch.nn.Parameter) else InputKind.BUFFER
        else:
            kind = InputKind.CONSTANT_TENSOR
        target = unique(node.name or "weight", lambda name: name in self.state or name in self.constants)
        (self.constants if kind is InputKind.CONSTANT_TENSOR else self.state)[target] = value
        new = self._placeholder(kind, writer.name(_PREFIX[kind] + target.replace(".", "_")), writer.draft.graph)
        writer.fakes.set(new, writer.fakes.of_tensor(tensor))
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

    @property
    def training(self) -> bool:
        return False

    def add_module(self, module: torch.nn.Module, name: str) -> str:
        raise FrontEndError(
            f"{name}: an exported program can't call the module {type(module).__name__}; "
            f"rewrite the GraphModule of .module() instead, or use functions"
        )

    def add_graph(self, module: fx.GraphModule, name: str) -> str:
        if self._root is self.old.graph_module:
            self._root = clone(self._root)
        name = unique(name, lambda name: hasattr(self._root, name))
        self._root.add_module(name, module)
        return name

    def finish(self, graph: fx.Graph, renamed: dict[str, str]) -> ExportedProgram:
        """The new program. ``renamed`` tells the new names of values whose native node was replaced."""
        inputs = self._inputs(graph)
        outputs = self._outputs(graph)
        return ExportedProgram(
            root=self._root,
            graph=graph,
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
        used_before = {node.name for node in self.old.graph.nodes if node.op == "placeholder" and node.users}
        specs = {spec.arg.name: spec for spec in self.old.graph_signature.input_specs} | self._added
        result: list[InputSpec] = []
        removed: list[InputSpec] = []
        for node in list(graph.nodes):
            if node.op != "placeholder":
                continue
            spec = specs[node.name]
            if spec.kind in _PREFIX and not node.users and node.name in used_before and not self._is_written_to(spec):
                graph.erase_node(node)
                removed.append(spec)
            else:
                result.append(copy.deepcopy(spec))
        self._forget(removed, {spec.target for spec in result})
        return result

    def _is_written_to(self, spec: InputSpec) -> bool:
        signature = self.old.graph_signature
        mutated = {*signature.buffers_to_mutate.values(), *signature.parameters_to_mutate.values()}
        return spec.target in mutated

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
            spec = copy.deepcopy(spec)
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


def _copied(entry: ModuleCallEntry) -> ModuleCallEntry:
    """A copy of an entry whose names can be changed."""
    signature = entry.signature
    if signature is not None:
        inputs, outputs = ([copy.copy(a) for a in side] for side in (signature.inputs, signature.outputs))
        signature = dataclasses.replace(signature, inputs=inputs, outputs=outputs)
    return dataclasses.replace(entry, signature=signature)
