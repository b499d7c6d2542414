"""The links from a view to the native graph: its weights and literal tensors, with the native nodes that read them;
its readings with their nodes; and the native node of each node."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from torch import fx
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, InputSpec, OutputKind
from torch.nn import Module

from gsl.front.core.handle import Handle, NativeLeaf, Reading, Single, Source
from gsl.front.core.load import Expansion
from gsl.front.fx import spellings
from gsl.front.fx.spellings.effects import is_view
from gsl.front.fx.values import Values, tensors, type_of_value
from gsl.front.tree import Canon
from gsl.graph import CONST, INPUT, PARAM, Node, Type

RULE: Final = "gsl"
"""The metadata key under which a new native node names the rule that made it, and the nodes that it replaces."""

UNTOLD: Final = "gsl_untold_layout"
"""The metadata key of native nodes of which a rewrite could not tell how they lie in memory: their values may lie
otherwise."""


@dataclass(frozen=True, slots=True, eq=False)
class FxLeaf(NativeLeaf):
    """A weight or a literal tensor of the native program. All native nodes that read the tensor share one leaf."""

    name: str
    """Its name in the state dict (the path of the attribute, in a ``GraphModule``)."""
    value: Any
    reads: dict[Any, None] = field(default_factory=dict)
    """The placeholder, or the ``get_attr`` nodes in order, that stand for it natively; filled while loading."""


class FxReading(Reading):
    """The reading of one native node, or of two together."""

    __slots__ = ("call", "overwrites", "places")

    def __init__(
        self, native: fx.Node, size: int = 1, call: fx.Node | None = None, overwrites: tuple[fx.Node, ...] = ()
    ) -> None:
        self.native = native
        self.size = size
        self.call = call
        """The native call with several results of which ``native`` is the ``getitem``; it has no view node of its own.
        """
        self.overwrites = overwrites
        """The native operand that the call overwrites in place, where no other node can notice it, and what that is a
        view of, in turn."""
        self.places: tuple[int, ...] | None = None
        """The native numbers of the fields of a tuple, where they are others than in the view."""


class FxSingle(Single):
    """The handle of a view node that alone makes up the reading of one native node, as nearly all do; it is that
    reading, too."""

    __slots__ = ()

    call: Final = None
    overwrites: Final = ()
    places: Final = None


def nodes_in(arguments: Any) -> list[fx.Node]:
    """All references to native nodes among arguments, in order and with repetitions."""
    found: list[fx.Node] = []

    def collect(argument: fx.Node) -> fx.Node:
        found.append(argument)
        return argument

    fx.node.map_arg(arguments, collect)
    return found


def calls_of(graph: fx.Graph, targets: Iterable[Any]) -> list[fx.Node]:
    """The calls of some functions, without a look at the others."""
    return [node for each in targets for node in graph.find_nodes(op="call_function", target=each, sort=False)]


def native_of(node: Node) -> fx.Node | None:
    """The native node whose value the view node is, or belongs to."""
    own: Any = node.native
    native: fx.Node
    if own.__class__ is FxSingle:  # as nearly always
        native = own.native
        return native
    if own.__class__ is Handle:
        native = own.reading.native
        return native
    return next(iter(own.reads), None) if own.__class__ is FxLeaf else None


def targets(node: Node) -> Iterator[Any]:
    """The functions of torch whose calls a view node stands for."""
    own: Any = node.native
    if isinstance(own, Handle):
        yield from (call.target for call in (own.reading.native, own.reading.call) if call is not None)


def native_index(whole: Node, index: int) -> int:
    """The native number of a field of a tuple, which a native call returns."""
    own: Any = whole.native
    places = own.reading.places if isinstance(own, Handle) else None
    return index if places is None else places[index]


def called(native: fx.Node) -> Module | None:
    """The module that a native node calls; ``None`` for a node that calls none."""
    root = native.graph.owning_module
    return None if root is None or native.op != "call_module" else root.get_submodule(str(native.target))


def in_training(native: fx.Node) -> bool:
    """True for the call of a module in training mode, and for any other call by one."""
    if isinstance(native.target, OpOverload):
        # Operators are told by their arguments how to work.
        return False
    module = called(native) or native.graph.owning_module
    return module is not None and module.training


class FxExpansion(Expansion):
    """The view nodes of one canonical reading, of whose operands no types need be known."""

    def operands(self, canon: Canon, type: Type | None) -> list[tuple[Node, Source]]:
        # A bias does not change the type.
        types = (type if canon.op == "nn.bias_add" else None, *[None] * len(canon.operands))
        return list(map(self.operand, canon.operands, types))

    def type(self, op: Any, operands: tuple[Node, ...], attrs: Mapping[str, Any]) -> Type | None:
        return None if any(operand.type is None for operand in operands) else super().type(op, operands, attrs)

    def type_of(self, value: Any) -> Type | None:
        return type_of_value(value)

    def own_name(self, op: Any) -> str:
        return "nobias" if op in spellings.BIASED else super().own_name(op)


# ---------------------------------------------------------------- modules of the model


def module_path(node: Node) -> tuple[str, ...]:
    """The names of the modules that a node of a view is part of, from the outermost one; none where torch kept none.

    A new call has the place of the call that it replaces, or of the module around all those that it replaces.
    """
    native = native_of(node)
    stack = None if native is None else native.meta.get("nn_module_stack")
    if not stack:
        return ()
    *_, (path, _) = stack.values()
    # torch.compile writes a path as Python does: L['self'].layer[0]
    plain = re.sub(r"\[(['\"]?)(\w+)\1\]", r".\2", str(path))
    return tuple(name for name in re.sub(r"^L\.self\b", "", plain).split(".") if name)


LITERAL_PREFIX: Final = "_tensor_constant_"
_LITERAL_NAME: Final = re.compile(r"_?(lifted_)?(lifted_tensor|tensor_constant)(_\w*|\d*)$")
"""Names under which tracers, ``torch.export`` and GSL keep tensors that are literals of the program."""


class FxLeaves:
    """The kinds of the placeholders and attributes of a native graph, and its leaves: those of a ``GraphModule`` are
    attributes of the module and its submodules, one leaf per tensor."""

    def __init__(self, root: torch.nn.Module) -> None:
        self.root = root
        self._by_tensor: dict[int, FxLeaf] = {}
        self._owners: dict[str, Any] = {"": root}
        """The owners of the attributes that were read so far, by path: mostly modules, each with several attributes."""
        self.written: Mapping[str, int | None] = {}
        """The names of the placeholders that are overwritten at the end, each with the number of the output that is
        written to it; ``None`` for one that only shares memory with such a placeholder."""

    def kind(self, node: fx.Node) -> str | None:
        """``"input"``, ``"param"`` or ``"const"``; ``None`` for an attribute that is no tensor."""
        if node.op == "placeholder":
            return INPUT
        owner, name = self._place(node)
        if not isinstance(getattr(owner, name), torch.Tensor):
            return None
        registered = name in owner._parameters or name in owner._buffers
        return PARAM if registered and not _LITERAL_NAME.match(name) else CONST

    def leaf(self, node: fx.Node) -> FxLeaf:
        """The leaf of a weight or literal tensor."""
        return self.of_module(str(node.target), getattr(*self._place(node)))

    def _place(self, node: fx.Node) -> tuple[Any, str]:
        """The owner of the attribute that a node reads, and the name of the attribute there."""
        path, _, name = str(node.target).rpartition(".")
        if path not in self._owners:
            self._owners[path] = attribute(self.root, path)
        return self._owners[path], name

    def of_module(self, path: str, value: Any) -> FxLeaf:
        """The leaf of a weight of a called module."""
        return self._by_tensor.setdefault(id(value), FxLeaf(path, value))

    def memory(self, node: fx.Node) -> Hashable:
        """A key of the memory of a placeholder or attribute: equal for tensors that share their memory."""
        if node.op == "placeholder":
            return node
        value = getattr(*self._place(node))
        return memory(value) if isinstance(value, torch.Tensor) else str(node.target)


class ExportedLeaves(FxLeaves):
    """The leaves of an exported program: its placeholders, by the signature."""

    def __init__(self, exported: ExportedProgram) -> None:
        super().__init__(exported.graph_module)
        self.exported = exported
        signature = exported.graph_signature
        self._specs: dict[str, InputSpec] = {spec.arg.name: spec for spec in signature.input_specs}
        self.written = self._find_written()

    def kind(self, node: fx.Node) -> str | None:
        if node.op == "get_attr":
            return None
        spec = self._specs.get(node.name)
        # A buffer that the program updates has no fixed value: to the view it is one more input.
        return INPUT if spec is None or node.name in self.written else _KINDS.get(spec.kind, INPUT)

    def leaf(self, node: fx.Node) -> FxLeaf:
        return FxLeaf(str(self._specs[node.name].target), self._tensor(self._specs[node.name]))

    def _tensor(self, spec: InputSpec) -> Any:
        """The tensor of a weight or literal; ``None`` for anything else."""
        if spec.kind not in _KINDS:
            return None
        name, state = str(spec.target), self.exported.state_dict
        return state[name] if name in state else self.exported.constants[name]

    def memory(self, node: fx.Node) -> Hashable:
        spec = self._specs.get(node.name) if node.op == "placeholder" else None
        value = None if spec is None else self._tensor(spec)
        return memory(value) if isinstance(value, torch.Tensor) else node

    def _find_written(self) -> Mapping[str, int | None]:
        (results,) = next(node for node in reversed(self.exported.graph.nodes) if node.op == "output").args
        outputs = zip(self.exported.graph_signature.output_specs, results)
        # The outputs of the view are those that are no constants.
        values = [spec for spec, result in outputs if isinstance(result, fx.Node)]
        own = {(_WRITES[s.kind], s.target): place for place, s in enumerate(values) if s.kind in _WRITES}
        if not own:
            return {}
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


_KINDS: Final = {InputKind.PARAMETER: PARAM, InputKind.BUFFER: PARAM, InputKind.CONSTANT_TENSOR: CONST}

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
    return {memory(item) for item in tensors(value)}


def shares(values: Values) -> Callable[[Node, Node], bool]:
    """A function that tells if a node may have memory in common with its operand: always, unless the values that torch
    knows of both have none."""

    def memories(node: Node) -> set[Hashable]:
        own: Any = node.native
        if isinstance(own, FxLeaf):
            return _memories(own.value)
        return _memories(values.value(own.reading.native)) if isinstance(own, Handle) and own.is_root else set()

    def may_share(node: Node, operand: Node) -> bool:
        one, other = memories(node), memories(operand)
        return not (one and other) or not one.isdisjoint(other)

    return may_share


def gives_view(node: Node) -> bool:
    """True if what a call gives may be memory of its operands, however these lie; it is no view of any if the function
    that it calls never gives one."""
    own: Any = node.native
    if own is None:
        return not node.opaque or is_view(node.op)
    native = own.reading.native if isinstance(own, Handle) and own.is_root else None
    if native is None or native.op not in ("call_function", "call_method"):
        return True
    is_known = not node.opaque or isinstance(native.target, OpOverload)
    return not is_known or is_view(native.target)


def attribute(root: torch.nn.Module, path: str) -> Any:
    """The value of an attribute by its dotted path."""
    value: Any = root
    for part in path.split(".") if path else ():
        value = getattr(value, part)
    return value
