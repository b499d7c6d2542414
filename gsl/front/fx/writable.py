"""The limits of torch: a rewrite that torch can't express is refused before anything is changed."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, Final

import torch
from torch import fx

from gsl.errors import FrontEndError
from gsl.front.core.handle import handle_of
from gsl.front.fx.devices import Devices, is_created, tensors
from gsl.front.fx.handle import FxLeaf, native_of
from gsl.front.fx.signatures import FxCallSignature
from gsl.front.fx.spellings.effects import is_by_strides
from gsl.front.fx.values import Values, device_of
from gsl.front.fx.write import spelled, stand_in
from gsl.graph import TUPLE, Node, Op, op_name
from gsl.graph.node import Replaced
from gsl.graph.subgraph import Subgraph

_PRODUCTS: Final = frozenset(("matmul", "nn.dense", "nn.batch_matmul"))
"""Calls whose results lie alike in memory however their operands do."""


def in_functions(op: Op, operands: tuple[Node, ...], attrs: Mapping[str, Any]) -> None:
    """Raise an error if a new call can't be written in a graph of functions, methods and modules."""
    if not isinstance(op, (Subgraph, type)):
        spelled(op, tuple(map(stand_in, operands)), attrs, "torch")


def in_aten(op: Op, operands: tuple[Node, ...], attrs: Mapping[str, Any]) -> None:
    """Raise an error if a new call can't be written in a graph of operators of aten."""
    if not isinstance(op, (Subgraph, type)):
        spelled(op, tuple(map(stand_in, operands)), attrs, "aten")


def in_exports(op: Op, operands: tuple[Node, ...], attrs: Mapping[str, Any]) -> None:
    """Raise an error if a new call can't be written in an exported program."""
    if isinstance(op, type):
        raise FrontEndError(
            f"an exported program can't call the module {op_name(op)}; rewrite the GraphModule of .module() instead, "
            "or use functions"
        )
    in_aten(op, operands, attrs)


class Admits:
    """Refuses new nodes in the places of old ones for reasons that types do not tell: devices, and how tensors lie in
    memory."""

    def __init__(
        self, native: fx.Graph, values: Values, places: Devices, forms: Mapping[fx.Node, FxCallSignature | None]
    ) -> None:
        self.native = native
        self.values = values
        self.places = places
        self.forms = forms

    @functools.cached_property
    def one_device(self) -> bool:
        """True if all tensors whose device is known lie on one device."""
        forms = self.forms.get
        telling = [node for node in self.native.nodes if (form := forms(node)) is None or not form.stays]
        values = map(self.values.value, telling)
        return len({device_of(item) for value in (*values, *self.places.weights()) for item in tensors(value)}) <= 1

    @functools.cached_property
    def strided(self) -> frozenset[fx.Node]:
        """The native calls that read their operands by strides."""
        forms = self.forms.get
        return frozenset(
            node for node in self.native.nodes
            if ((form := forms(node)) is None and is_by_strides(node)) or (form is not None and form.by_strides)
        )  # fmt: skip

    def __call__(self, replaced: Replaced) -> None:
        if self.strided:
            for old, new in zip(replaced.old, replaced.new):
                if new is not old:
                    self._check_strides(old)
        if not self.one_device:
            self._check_devices(replaced)

    def _check_strides(self, old: Node) -> None:
        """Refuse to replace what is read by strides further down."""
        found, work = {old}, [old]
        while work:
            for user in work.pop().users:
                native = native_of(user) if handle_of(user) is not None else None
                if native in self.strided:
                    raise FrontEndError(
                        f"%{user.name} reads its operand by strides, which may not be the same when %{old.name} is "
                        "replaced"
                    )
                if user not in found and user.op not in _PRODUCTS:
                    found.add(user)
                    work.append(user)

    def _check_devices(self, replaced: Replaced) -> None:
        known: dict[Node, torch.device | None] = {}
        for node in replaced.created:
            known[node] = self._joint(node, known)
        for old, new in zip(replaced.old, replaced.new):
            if new is old:
                continue
            before, after = self._of(old, known), self._of(new, known)
            if before is not None and after is not None and before != after:
                raise FrontEndError(
                    f"%{old.name} is on {before}, and its replacement on {after}; rules that take away what moves a "
                    "tensor to another device can't be applied"
                )

    def _joint(self, node: Node, known: Mapping[Node, torch.device | None]) -> torch.device | None:
        """The device of a new node. FrontEndError if it has operands on several, but for numbers in tensors."""
        if is_created(node):
            return self.places.of(node)
        if node.op == "take":  # which takes indices of the CPU for a tensor elsewhere
            return self._of(node.operands[0], known)
        numbers, found = dict[torch.device, None](), dict[torch.device, None]()
        for operand in node.operands:
            device = self._of(operand, known)
            if device is not None:
                (found if operand.ndim else numbers)[device] = None
        if len(found) > 1 and node.op != TUPLE:
            where = " and ".join(map(str, found))
            raise FrontEndError(
                f"the new {op_name(node.op)} takes tensors on {where}, which torch does not compute with at once; let "
                "the rule match on one device"
            )
        return next(iter(found or numbers), None)

    def _of(self, node: Node, known: Mapping[Node, torch.device | None]) -> torch.device | None:
        """The device of a node; ``None`` where it has none of its own, or it is not known."""
        if node in known:
            return known[node]
        native = native_of(node) if handle_of(node) is not None else None
        if isinstance(node.native, FxLeaf):
            value = node.native.value
        elif native is not None:
            value = self.values.value(native)
        else:
            return None
        return next(map(device_of, tensors(value)), None)
