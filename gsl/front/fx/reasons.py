"""The reasons why calls have no canonical reading."""

from __future__ import annotations

from gsl.front.fx import spellings
from gsl.front.fx.handle import native_of
from gsl.front.fx.load import FxLoader
from gsl.front.tree import NOT_COVERED
from gsl.graph import Node


class FxReasons:
    """Tells the reasons for the opaque nodes of a view, which a loader of the same program loads once more."""

    def __init__(self, loader: FxLoader) -> None:
        loader.load()
        self.loader = loader

    def __call__(self, node: Node) -> str | None:
        """The reason for one node; ``None`` for one that computes no tensor."""
        native, loader = native_of(node), self.loader
        if native is None:
            return ""
        if not loader.values.is_tensor(native) and native.users:
            return None
        if native in loader.mutations.visible:
            return "it changes an operand in place, which other calls can see"
        if native in loader.mutations.exposed:
            return "its result may be changed in place by another call"
        reader = loader.reader
        if reader.is_elsewhere(native):
            return "its result may lie on another device than its operand"
        args, kwargs = reader.arguments(native)
        if native.op == "call_module":
            kind = type(reader.module(native)).__name__
            return f"the module {kind}, as it is set up, is not known by a canonical operator"
        if reader.read(native) is not None:
            return NOT_COVERED
        return spellings.why_unread(native.target, args, kwargs, loader.values.of)
