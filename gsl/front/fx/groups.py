"""Outlined groups in torch: a submodule that is a graph of its own, and the call of it.

A ``GraphModule`` calls the submodule like any other. An exported program may not call modules; there the call is
``invoke_subgraph``, torch's operator for that, which always returns a tuple. The name and the attributes of a group
stand in the metadata of its call, in torch's place for what users add (``custom``), which is saved with an exported
program.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from typing import Any, Final

import torch
from torch import fx

from gsl.errors import FrontEndError
from gsl.front.fx.handle import attribute
from gsl.graph import Node, op_name

KEY: Final = "gsl_group"
"""The metadata key under which a call names its group."""

INVOKE: Final = torch.ops.higher_order.invoke_subgraph


def is_group(node: fx.Node) -> bool:
    """True for the call of an outlined group."""
    return KEY in (node.meta.get("custom") or {})


def module_of(node: fx.Node, root: torch.nn.Module) -> fx.GraphModule | None:
    """The graph of an outlined group that a native node calls; ``None`` if it does anything else."""
    if not is_group(node) or not (node.op == "call_module" or node.target is INVOKE):
        return None
    path = node.target if node.op == "call_module" else node.all_input_nodes[0].target
    module: Any = attribute(root, str(path))
    return module if isinstance(module, fx.GraphModule) else None


def operands_of(node: fx.Node) -> tuple[fx.Node, ...]:
    """The native operands of a call of an outlined group."""
    args = node.args if node.op == "call_module" else node.args[2:]
    return tuple([arg for arg in args if isinstance(arg, fx.Node)])


def label_of(node: fx.Node) -> tuple[str, dict[str, Any]]:
    """The name and the attributes of the group that a native node calls."""
    label = node.meta["custom"][KEY]
    return label["name"], {name: _value(value) for name, value in label["attrs"].items()}


def label(node: Node) -> dict[str, Any]:
    """The metadata of the call of a group. FrontEndError for attributes that can't be saved."""
    for name, value in node.attrs.items():
        if not _is_plain(value):
            raise FrontEndError(
                f"{node.name}: the attribute {name}={value!r} of a group must be made of numbers, "
                "strings, None, lists and mappings of strings"
            )
    return {KEY: {"name": op_name(node.op), "attrs": {name: _listed(value) for name, value in node.attrs.items()}}}


def _is_plain(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and _is_plain(item) for key, item in value.items())
    if isinstance(value, (tuple, list)):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, (bool, int, float, str))


def _listed(value: Any) -> Any:
    """A value with lists for tuples, as it comes back from a saved program."""
    if isinstance(value, Mapping):
        return {key: _listed(item) for key, item in value.items()}
    return [_listed(item) for item in value] if isinstance(value, (tuple, list)) else value


def _value(value: Any) -> Any:
    """A stored value as an attribute of the view, where lists are tuples."""
    if isinstance(value, Mapping):
        return {key: _value(item) for key, item in value.items()}
    return tuple([_value(item) for item in value]) if isinstance(value, (tuple, list)) else value


def are_fields(users: Iterable[fx.Node]) -> bool:
    """True if nothing but fields of a tuple is used."""
    return all(user.target is operator.getitem for user in users)
