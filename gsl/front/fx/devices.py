"""The devices of new tensors.

Rules know nothing of devices. A tensor that they make without operands, by a literal tensor or an operator that fills a
new one, is put on the device of the calls that it replaces.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import torch
from torch import fx

from gsl.errors import FrontEndError
from gsl.front.core.handle import is_literal, origins
from gsl.front.fx.handle import RULE, FxLeaf
from gsl.front.fx.values import Values, device_of
from gsl.graph import CONST, Node

_CREATORS: Final = frozenset(("arange", "full", "ones", "zeros"))


def is_created(node: Node) -> bool:
    """True for a call that makes a tensor out of attributes and numbers."""
    return node.op in _CREATORS and all(map(is_literal, node.operands))


def is_placed(node: Node) -> bool:
    """False for a literal tensor that no native node reads: it comes from a rule, or stands for what a call leaves
    out."""
    return node.op != CONST or isinstance(node.native, FxLeaf) or not hasattr(node.attrs["value"], "shape")


class Devices:
    """The devices of the tensors of a native graph, as far as its values or its weights tell."""

    def __init__(self, graph: fx.Graph, values: Values, weights: Callable[[], Iterable[Any]]) -> None:
        self.graph = graph
        self.values = values
        self.weights = weights

    def of(self, node: Node) -> torch.device | None:
        """The device for a literal or a creating call; ``None`` if nothing tells.

        FrontEndError for one that takes the place of calls on several devices.
        """
        found = self._around(node)
        if len(found) > 1:
            rule = "" if node.origin is None else f"{node.origin.rule}: "
            raise FrontEndError(
                f"{rule}%{node.name}: a new tensor takes the place of calls on {_listed(found)}, so there is no one "
                "device for it; let the rule match on one device, or make the tensor like an operand (op.ZerosLike, …)"
            )
        return found[0] if found else self._only

    def place(self, value: torch.Tensor, node: Node) -> torch.Tensor:
        """The value of such a node where it belongs."""
        device = self.of(node)
        return value if device is None or value.device == device else value.to(device)

    def _around(self, node: Node) -> list[torch.device]:
        """The devices of the native calls for which a view node stands, or whose place it takes."""
        return list(dict.fromkeys([device for part in origins(node) for device in self._at(part)]))

    def _at(self, part: Node) -> Iterator[torch.device]:
        value = self.values.value(part.native.reading.native)
        yield from devices(value)
        if not any(True for _ in tensors(value)):
            for operand in part.operands:
                if isinstance(operand.native, FxLeaf):
                    yield from devices(operand.native.value)

    @functools.cached_property
    def _only(self) -> torch.device | None:
        """The device of all that the graph has, if there is but one."""
        values = [self.values.value(node) for node in self.graph.nodes]
        found = {device for value in (*values, *self.weights()) for device in devices(value)}
        return found.pop() if len(found) == 1 else None


def tensors(value: Any) -> Iterator[torch.Tensor]:
    """A tensor, or those of a tuple."""
    for item in value if isinstance(value, (tuple, list)) else (value,):
        if isinstance(item, torch.Tensor):
            yield item


def devices(value: Any) -> Iterator[torch.device]:
    """The devices of a tensor, or of those of a tuple. Tensors without axes count as numbers, which lie anywhere."""
    return (device for item in tensors(value) if item.ndim and (device := device_of(item)) is not None)


def check_same(node: fx.Node, before: Any, after: Any) -> None:
    """Raise FrontEndError if an operand of a call, or an output, would lie on another device than it did."""
    old, new = device_of(before), device_of(after)
    if old is not None and new is not None and old != new:
        raise FrontEndError(
            f"{node.format_node()}: an argument was on {old}, and is on {new} after the rewrite; "
            "rules that take away what moves a tensor to another device can't be applied"
        )


def check_joint(node: fx.Node, operands: Iterable[Any], error: Exception) -> None:
    """Raise FrontEndError if a new call failed on fake tensors because they lie on several devices."""
    found = {device_of(item): None for operand in operands for item in tensors(operand)}
    if len(found) > 1 and "device" in str(error):
        rule = f"{node.meta[RULE]['rule']}: " if RULE in node.meta else ""
        raise FrontEndError(
            f"{rule}{node.format_node()}: a new call takes tensors on {_listed(found)}, which torch does not compute "
            "with at once; let the rule match on one device"
        ) from error


def _listed(found: Iterable[torch.device | None]) -> str:
    return " and ".join(map(str, found))
