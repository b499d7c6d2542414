"""The forms of calls: those that differ in nothing but their operands are loaded alike, which is found out once."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import tvm
from tvm import relay

from gsl.front.core.handle import Handle
from gsl.front.core.load import Rows, recorded
from gsl.graph import Node
from gsl.spec.meaning import has_symbols


class _Attributes:
    """The attributes of a call as a key."""

    # TVM's comparison takes floats for equal that are less than 1e-9 apart; its hash tells them apart by their bits.

    __slots__ = ("attrs", "hash")

    def __init__(self, attrs: Any) -> None:
        self.attrs = attrs
        self.hash = int(tvm.ir.structural_hash(attrs))

    def __hash__(self) -> int:
        return self.hash

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Attributes):
            return NotImplemented
        return self.hash == other.hash and bool(tvm.ir.structural_equal(self.attrs, other.attrs))


class RelaySignatures:
    """The forms of the calls of one function.

    What computes the operands is not part of a key: that a reading does not look at it has to be made sure before.
    """

    def __init__(self) -> None:
        self._forms: dict[Hashable, Rows] = {}

    def key(self, call: relay.Call, name: str, operands: Sequence[Any], views: Sequence[Node], index: int) -> Hashable:
        """A key of all on which the loading of a call of an operator depends, or of its field of that index (-1 for the
        call); ``None`` where there is no such key."""
        if any(isinstance(operand, relay.Constant) for operand in operands):
            return None
        places = [operand.handle.value for operand in operands]
        same = tuple(map(places.index, places)) if len(set(places)) < len(places) else None
        attrs = call.attrs
        return name, index, None if attrs is None else _Attributes(attrs), same, tuple([view.type for view in views])

    def known(self, key: Hashable) -> Rows | None:
        """The form that was noted under a key."""
        return None if key is None else self._forms.get(key)

    def note(
        self, key: Hashable, nodes: Sequence[Node], operands: Sequence[Any], views: Sequence[Node],
        through: tuple[Any, ...],
    ) -> None:  # fmt: skip
        """Note the nodes as which a call was loaded, if they are a reading of its operands alone, through just these
        other expressions, and of known types."""
        root = nodes[-1]
        if key is None or root.deps or not isinstance(root.native, Handle) or root.native.reading.through != through:
            return
        if any(node.type is None or has_symbols(node.type) for node in (*views, *nodes)):
            return  # every size that is not known is a symbol of its own
        sources = [node.native.sources for node in nodes if isinstance(node.native, Handle)]
        try:
            self._forms[key] = recorded(nodes, sources, "", operands)
        except KeyError:
            return


__all__ = ["RelaySignatures"]
