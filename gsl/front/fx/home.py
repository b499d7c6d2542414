"""The weights and submodules of a native program, and the way in which those of a rewritten program are added.

Nothing of the old program is changed: modules on the way to a change are copied shallowly, tensors are shared.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from torch import fx

from gsl.front.fx.handle import Leaf
from gsl.front.fx.leaves import LITERAL_PREFIX, attribute
from gsl.graph import PARAM, Node

if TYPE_CHECKING:
    from gsl.front.fx.write import Writer


class Home(Protocol):
    """The weights of the program that is being built."""

    def read(self, node: Node, writer: Writer) -> fx.Node:
        """A native node that reads the tensor of a param or const; registers the tensor if it is new."""

    @property
    def training(self) -> bool:
        """True if the program is for training."""

    def add_module(self, module: torch.nn.Module, name: str) -> str:
        """Register a new submodule; its path."""

    def add_graph(self, module: fx.GraphModule, name: str) -> str:
        """Register the graph of an outlined group; its path."""


class ModuleHome:
    """The weights of a ``GraphModule``: attributes of it and of its submodules.

    A new weight is a ``Parameter`` if it is floating, else a buffer; a new literal tensor is a buffer. A parameter
    made here requires no gradient, since it was computed from others.
    """

    def __init__(self, old: fx.GraphModule) -> None:
        self.old = old
        self.new = clone(old)
        self._own: set[str] = {""}
        """The paths of the modules that belong to the new program alone."""

    def read(self, node: Node, writer: Writer) -> fx.Node:
        if isinstance(node.native, Leaf):
            path = node.native.name
        else:
            path = self._add(node, writer)
        new = writer.add("get_attr", path, (), {}, writer.name(path.replace(".", "_")))
        writer.fakes.set(new, writer.fakes.of_tensor(attribute(self.new, path)))
        return new

    def _add(self, node: Node, writer: Writer) -> str:
        wanted = node.name if node.op == PARAM else f"{LITERAL_PREFIX}{node.name}"
        name = unique(writer.name(wanted), lambda name: hasattr(self.new, name))
        value = writer.tensor(node)
        if node.op == PARAM and isinstance(parameter := as_parameter(value), torch.nn.Parameter):
            self.new.register_parameter(name, parameter)
        else:
            self.new.register_buffer(name, value)
        writer.draft.note(lambda: delattr(self.new, name))
        return name

    @property
    def training(self) -> bool:
        return self.new.training

    def add_module(self, module: torch.nn.Module, name: str) -> str:
        name = unique(name, lambda name: hasattr(self.new, name))
        self.new.add_module(name, module)
        return name

    def add_graph(self, module: fx.GraphModule, name: str) -> str:
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


class OwnHome(ModuleHome):
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


def as_tensor(value: Any) -> Any:
    """A numpy array as a tensor of the CPU with memory of its own; anything else as it is."""
    return torch.tensor(value, device="cpu") if isinstance(value, (np.ndarray, np.generic)) else value


def as_parameter(value: Any) -> Any:
    """A floating tensor as a parameter that shares its memory; any other tensor as it is."""
    if isinstance(value, torch.nn.Parameter) or not (value.is_floating_point() or value.is_complex()):
        return value
    return torch.nn.Parameter(value, requires_grad=False)


def unique(name: str, taken: Any) -> str:
    """The name, with a number behind it if it is taken."""
    result, number = name, 0
    while taken(result):
        number += 1
        result = f"{name}_{number}"
    return result


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
    new = fx.GraphModule.__new__(type(old))
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


