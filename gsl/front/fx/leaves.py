"""The weights and literal tensors of a native program: which native nodes read them, and under which names."""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping
from typing import Any, Final, Protocol

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, InputSpec, OutputKind

from gsl.front.fx.handle import FxLeaf
from gsl.graph import CONST, INPUT, PARAM

LITERAL_PREFIX: Final = "_tensor_constant_"
_LITERAL_NAME: Final = re.compile(r"_?(lifted_)?(lifted_tensor|tensor_constant)(_\w*|\d*)$")
"""Names under which tracers, ``torch.export`` and GSL keep tensors that are literals of the program."""


class FxLeaves(Protocol):
    """Tells the kinds of the placeholders and attributes of a native graph."""

    def kind(self, node: fx.Node) -> str | None:
        """``"input"``, ``"param"`` or ``"const"``; ``None`` for an attribute that is no tensor."""

    def leaf(self, node: fx.Node) -> FxLeaf:
        """The leaf of a weight or literal tensor."""

    def of_module(self, path: str, value: Any) -> FxLeaf:
        """The leaf of a weight of a called module."""

    def memory(self, node: fx.Node) -> Hashable:
        """A key of the memory of a placeholder or attribute: equal for tensors that share their memory."""

    def written(self) -> Mapping[str, int | None]:
        """The names of the placeholders that are overwritten at the end, each with the number of the output that is
        written to it; ``None`` for one that only shares memory with such a placeholder."""


class ModuleLeaves:
    """The leaves of a ``GraphModule``: attributes of the module and its submodules, one leaf per tensor."""

    def __init__(self, root: torch.nn.Module) -> None:
        self.root = root
        self._by_tensor: dict[int, FxLeaf] = {}
        self._owners: dict[str, Any] = {"": root}
        """The owners of the attributes that were read so far, by path: mostly modules, each with several attributes."""

    def kind(self, node: fx.Node) -> str | None:
        if node.op == "placeholder":
            return INPUT
        owner, name = self._place(node)
        if not isinstance(getattr(owner, name), torch.Tensor):
            return None
        registered = name in owner._parameters or name in owner._buffers
        return PARAM if registered and not _LITERAL_NAME.match(name) else CONST

    def leaf(self, node: fx.Node) -> FxLeaf:
        return self.of_module(str(node.target), getattr(*self._place(node)))

    def _place(self, node: fx.Node) -> tuple[Any, str]:
        """The owner of the attribute that a node reads, and the name of the attribute there."""
        path, _, name = str(node.target).rpartition(".")
        if path not in self._owners:
            self._owners[path] = attribute(self.root, path)
        return self._owners[path], name

    def of_module(self, path: str, value: Any) -> FxLeaf:
        return self._by_tensor.setdefault(id(value), FxLeaf(path, value))

    def memory(self, node: fx.Node) -> Hashable:
        if node.op == "placeholder":
            return node
        value = getattr(*self._place(node))
        return memory(value) if isinstance(value, torch.Tensor) else str(node.target)

    def written(self) -> Mapping[str, int | None]:
        return {}


class ExportedLeaves:
    """The leaves of an exported program: its placeholders, by the signature."""

    def __init__(self, exported: ExportedProgram) -> None:
        self.exported = exported
        signature = exported.graph_signature
        self._specs: dict[str, InputSpec] = {spec.arg.name: spec for spec in signature.input_specs}
        self._written = self._find_written()

    def kind(self, node: fx.Node) -> str | None:
        if node.op == "get_attr":
            return None
        spec = self._specs.get(node.name)
        # A buffer that the program updates has no fixed value: to the view it is one more input.
        if spec is None or node.name in self._written:
            return INPUT
        match spec.kind:
            case InputKind.PARAMETER | InputKind.BUFFER:
                return PARAM
            case InputKind.CONSTANT_TENSOR:
                return CONST
        return INPUT

    def leaf(self, node: fx.Node) -> FxLeaf:
        return FxLeaf(str(self._specs[node.name].target), self._tensor(self._specs[node.name]))

    def _tensor(self, spec: InputSpec) -> Any:
        """The tensor of a weight or literal; ``None`` for anything else."""
        if spec.kind not in (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR):
            return None
        name, state = str(spec.target), self.exported.state_dict
        return state[name] if name in state else self.exported.constants[name]

    def memory(self, node: fx.Node) -> Hashable:
        spec = self._specs.get(node.name) if node.op == "placeholder" else None
        value = None if spec is None else self._tensor(spec)
        return memory(value) if isinstance(value, torch.Tensor) else node

    def written(self) -> Mapping[str, int | None]:
        return self._written

    def _find_written(self) -> Mapping[str, int | None]:
        """See :meth:`written`."""
        (results,) = next(node for node in reversed(self.exported.graph.nodes) if node.op == "output").args
        outputs = zip(self.exported.graph_signature.output_specs, results)
        # The outputs of the view are those that are no constants.
        values = [spec for spec, result in outputs if isinstance(result, fx.Node)]
        own = {(_WRITES[s.kind], s.target): place for place, s in enumerate(values) if s.kind in _WRITES}
        written: dict[str, int | None] = {}
        touched: set[Hashable] = set()
        for name, entry in self._specs.items():
            key = name if entry.kind == InputKind.USER_INPUT else entry.target
            if (entry.kind, key) in own:
                written[name] = own[entry.kind, key]
                touched.update(_memories(self._tensor(entry)))
        for name, entry in self._specs.items():
            if name not in written and not touched.isdisjoint(_memories(self._tensor(entry))):
                written[name] = None
        return written

    def of_module(self, path: str, value: Any) -> FxLeaf:
        raise AssertionError("an exported program calls no modules")


_WRITES: Final = {
    OutputKind.BUFFER_MUTATION: InputKind.BUFFER,
    OutputKind.PARAMETER_MUTATION: InputKind.PARAMETER,
    OutputKind.USER_INPUT_MUTATION: InputKind.USER_INPUT,
}


def memory(value: torch.Tensor) -> Hashable:
    """A key of the memory of a tensor: equal for two tensors that are views of the same memory."""
    try:
        storage = value.untyped_storage()
        # Tensors without data are told by the object that stands for their memory.
        address = 0 if isinstance(value, FakeTensor) or value.device.type == "meta" else storage.data_ptr()
        return ("address", str(value.device), address) if address else ("storage", storage._cdata)
    except (NotImplementedError, RuntimeError):
        return "tensor", id(value)


def _memories(value: Any) -> set[Hashable]:
    return {memory(value)} if isinstance(value, torch.Tensor) else set()


def attribute(root: torch.nn.Module, path: str) -> Any:
    """The value of an attribute by its dotted path."""
    value: Any = root
    for part in path.split(".") if path else ():
        value = getattr(value, part)
    return value
