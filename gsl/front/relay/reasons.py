"""The reasons why calls have no canonical reading."""

from __future__ import annotations

from tvm import ir, relay

from gsl.front.relay import spellings
from gsl.front.relay.handle import native_of
from gsl.front.relay.load import RelayLoader
from gsl.front.relay.types import checked_type
from gsl.front.tree import NO_SPELLING, NOT_COVERED, given_up
from gsl.graph import Node


class RelayReasons:
    """Tells the reasons for the opaque nodes of a view, which a loader of the same program loads once more."""

    def __init__(self, loader: RelayLoader) -> None:
        loader.load()
        self.loader = loader

    def __call__(self, node: Node) -> str | None:
        """The reason for one node; ``None`` for one that computes no tensor."""
        expr = native_of(node)
        if expr is None:
            return ""
        if not isinstance(checked_type(expr), (relay.TensorType, relay.TupleType)):
            return None
        name = str(expr.op.name) if isinstance(expr, relay.Call) and isinstance(expr.op, ir.Op) else ""
        reader = spellings.CALLS.get(name)
        if reader is None:
            return NO_SPELLING
        try:
            reader(spellings.RelayCall(expr, self.loader))
        except (spellings.RelayUnreadError, ValueError) as error:
            return given_up(node, error)
        return NOT_COVERED
