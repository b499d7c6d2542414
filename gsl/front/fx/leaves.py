"""The weights and literal tensors of a native program: which native nodes read them, and under which names."""

from __future__ import annotations

import re
from typing import Any, Final, Protocol

import torch
from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, InputSpec

from gsl.front.fx.handle import Leaf
from gsl.graph import CONST, INPUT, PARAM

LITERAL_PREFIX: Final = "_tensor_constant_"
_LITERAL_NAME: Final = re.compile(r"_?(lifted_)?(lifted_tensor|tensor_constant)(_\w*|\d*)$")
"""Names under which tracers, ``torch.export`` and GSL keep tensors that are literals of the program."""


class Leaves(Protocol):
    """Tells what the placeholders and attributes of a native graph are."""

    def kind(self, node: fx.Node) -> str | None:
        """``"input"``, ``"param"`` or ``"const"``; ``None`` for an attribute that is no tensor."""

    def leaf(self, node: fx.Node) -> Leaf:
        """The leaf of a weight or literal tensor."""

    def of_module(self, path: str, value: Any) -> Leaf:
        """The leaf of a weight of a called module."""


class ModuleLeaves:
    """The leaves of a ``GraphModule``: attributes of the module and its submodules, one leaf per tensor."""

    def __init__(self, root: torch.nn.Module) -> None:
        self.root = root
        self._by_tensor: dict[int, Leaf] = {}

    def kind(self, node: fx.Node) -> str | None:
        if node.op == "placeholder":
            return INPUT
        value = attribute(self.root, str(node.target))
        if not isinstance(value, torch.Tensor):
            return None
        *prefix, name = str(node.target).split(".")
        owner = attribute(self.root, ".".join(prefix))
        registered = name in owner._parameters or name in owner._buffers
        return PARAM if registered and not _LITERAL_NAME.match(name) else CONST

    def leaf(self, node: fx.Node) -> Leaf:
        path = str(node.target)
        return self.of_module(path, attribute(self.root, path))

    def of_module(self, path: str, value: Any) -> Leaf:
        return self._by_tensor.setdefault(id(value), Leaf(path, value))


class ExportedLeaves:
    """The leaves of an exported program: its placeholders, by the signature."""

    def __init__(self, exported: ExportedProgram) -> None:
        self.exported = exported
        signature = exported.graph_signature
        self._specs: dict[str, InputSpec] = {spec.arg.name: spec for spec in signature.input_specs}
        self._mutated = {*signature.buffers_to_mutate.values(), *signature.parameters_to_mutate.values()}

    def kind(self, node: fx.Node) -> str | None:
        if node.op == "get_attr":
            return None
        spec = self._specs.get(node.name)
        # A buffer that the program updates has no fixed value: to the view it is one more input.
        if spec is None or spec.target in self._mutated:
            return INPUT
        match spec.kind:
            case InputKind.PARAMETER | InputKind.BUFFER:
                return PARAM
            case InputKind.CONSTANT_TENSOR:
                return CONST
        return INPUT

    def leaf(self, node: fx.Node) -> Leaf:
        name = str(self._specs[node.name].target)
        state = self.exported.state_dict
        return Leaf(name, state[name] if name in state else self.exported.constants[name])

    def of_module(self, path: str, value: Any) -> Leaf:
        raise AssertionError("an exported program calls no modules")


def attribute(root: torch.nn.Module, path: str) -> Any:
    """The value of an attribute by its dotted path."""
    value: Any = root
    for part in path.split(".") if path else ():
        value = getattr(value, part)
    return value
