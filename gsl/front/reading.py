"""Readings: the small trees of view nodes as which front ends show native calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gsl.graph import Node


def whole(root: Node, handle_of: Callable[[Node], Any], leaf: type | tuple[type, ...] = ()) -> list[Node] | None:
    """All view nodes of the reading of which a node is the root, if the tree is as it was loaded.

    A handle has the ``reading`` of its node, its ``slot`` in it, and the ``sources`` of its operands and deps: an
    int is the slot of another node of the tree. An operand with a source of the class ``leaf`` must have that as its
    handle.
    """
    tree = [root]
    # The list grows while it is read: it ends up with all nodes of the reading.
    for node in tree:
        own = handle_of(node)
        operands = (*node.operands, *node.deps)
        if own is None or len(own.sources) != len(operands):
            return None
        for source, operand in zip(own.sources, operands):
            if isinstance(source, int):
                inner = handle_of(operand)
                if inner is None or inner.reading is not own.reading or inner.slot != source:
                    return None
                tree.append(operand)
            elif isinstance(source, leaf) and operand.native is not source:
                return None
    return tree
