"""The links from a view to the native graph: its leaves, its readings with their nodes, and the native node of each."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from torch import fx
from torch._ops import OpOverload
from torch.nn import Module

from gsl.front.core.handle import Handle, NativeLeaf, Reading, Source
from gsl.front.core.load import Expansion
from gsl.front.fx import spellings
from gsl.front.fx.values import type_of_value
from gsl.front.tree import Canon
from gsl.graph import Node, Type

RULE: Final = "gsl"
"""The metadata key under which a new native node names the rule that made it, and the nodes that it replaces."""


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


def native_of(node: Node) -> fx.Node | None:
    """The native node whose value the view node is, or belongs to."""
    own: Any = node.native
    if own.__class__ is Handle:
        native: fx.Node = own.reading.native
        return native
    return next(iter(own.reads), None) if own.__class__ is FxLeaf else None


def native_index(whole: Node, index: int) -> int:
    """The native number of a field of a tuple, which a native call returns."""
    own: Any = whole.native
    places = own.reading.places if own.__class__ is Handle else None
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

    A new call has the place of the call that it replaces, as it has its stack trace.
    """
    native = native_of(node)
    stack = None if native is None else native.meta.get("nn_module_stack")
    if not stack:
        return ()
    *_, (path, _) = stack.values()
    # torch.compile writes a path as Python does: L['self'].layer[0]
    plain = re.sub(r"\[(['\"]?)(\w+)\1\]", r".\2", str(path))
    return tuple(name for name in re.sub(r"^L\.self\b", "", plain).split(".") if name)
