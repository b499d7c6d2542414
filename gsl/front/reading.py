"""Readings: the small trees of view nodes as which front ends show native calls, and why there is none of a call."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable
from typing import Any, Final

from gsl.graph import Node

NO_SPELLING: Final = "no canonical operator is spelled so"
NOT_COVERED: Final = "the canonical operator does not cover it: an operand is no tensor, or an attribute has no meaning"
"""Reasons why a call has no canonical reading."""


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


def unmet(error: Exception) -> str:
    """The condition of a reader, as it is written there, that ended the reading of a call; "" where none is written."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.name not in ("unread_unless", "check")]
    condition = re.fullmatch(r"(?:unread_unless|check)\((.*)\)", frames[-1].line or "")
    return f"; it has to meet: {condition[1]}" if condition else ""


def given_up(node: Node, error: Exception) -> str:
    """The reason why the reading of a call was given up: its operands and attributes, and what they do not meet."""
    given = [*(str(operand.type) for operand in node.operands), *(f"{name}={v!r}" for name, v in node.attrs.items())]
    return f"no reading with {', '.join(given)}{unmet(error)}"
