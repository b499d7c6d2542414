"""The modules of the model that nodes of a graph were traced from."""

from __future__ import annotations

import re

from gsl.front.fx.handle import native_of
from gsl.graph import Node


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
