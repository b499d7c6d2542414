"""The link from a view node to the native graph: the fx node that it is part of, and the sources of its operands."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Final

from torch import fx
from torch._ops import OpOverload
from torch.nn import Module

from gsl.front.core.handle import Handle, NativeLeaf, Reading
from gsl.graph import Node

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
