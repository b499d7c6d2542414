"""Reading of native calls through the table of spellings."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any, Final

import torch
from torch import fx
from torch._ops import OpOverload

from gsl.front.fx import spellings
from gsl.front.fx.handle import FxLeaves
from gsl.front.fx.values import Values, device_of, dim_of, keeps_elements
from gsl.front.tree import NOT_COVERED, Canon
from gsl.graph import CONST, PARAM, SymDim, TensorType

CALLS: Final = ("call_function", "call_method", "call_module")


class FxReader:
    """The readings of the calls of one native graph, each made once."""

    def __init__(self, leaves: FxLeaves, values: Values) -> None:
        self.leaves = leaves
        self.root = leaves.root
        self.values = values
        self._read: dict[fx.Node, Canon | None] = {}
        self._numbers: set[torch.device | None] | None = None
        """The devices of the tensors without axes that the graph makes of numbers."""

    def module(self, node: fx.Node) -> torch.nn.Module:
        """The module that a ``call_module`` calls."""
        return self.root.get_submodule(str(node.target))

    def read(self, node: fx.Node) -> Canon | None:
        """The canonical reading of a call, or ``None``."""
        if node not in self._read:
            self._read[node] = self._read_call(node)
        return self._read[node]

    def why_unread(self, node: fx.Node) -> str:
        """The reason why a call has no canonical reading that the view could show."""
        if self.is_elsewhere(node):
            return "its result may lie on another device than its operand"
        if node.op == "call_module":
            kind = type(self.module(node)).__name__
            return f"the module {kind}, as it is set up, is not known by a canonical operator"
        unknown = [each for each in node.all_input_nodes if isinstance(self.values.value(each), torch.SymFloat)]
        if unknown:
            return (
                f"%{unknown[0].name} is a number that is known at run time only; torch.compile(dynamic=True) hands on "
                "numbers of a model as inputs, unless torch._dynamo.config.specialize_float is True"
            )
        if self.read(node) is not None:
            return NOT_COVERED
        return spellings.why_unread(node.target, *self.arguments(node), self.values.of)

    def is_elsewhere(self, node: fx.Node) -> bool:
        """True for a call whose result may lie on another device than a canonical operator would put it."""
        if node.target not in PLACING:
            return False
        if node.target in _NUMBERS:
            return self._is_another_number(node)
        devices = [device_of(self.values.value(each)) for each in (node, *node.all_input_nodes)]
        if node.target in _BY_TENSOR:
            found = set(devices[1:])
        elif node.target in _LIKE_FIRST:
            if not any(isinstance(each, (torch.device, str)) for each in (*node.args, *node.kwargs.values())):
                return False
            found = set(devices[:2])
        else:
            found = {devices[0], torch.get_default_device()}
        return None in found or len(found) > 1

    def _is_another_number(self, node: fx.Node) -> bool:
        """True for a number in a tensor without axes on another device than usual, if the graph makes some on several.
        """
        value = self.values.value(node)
        if not isinstance(value, torch.Tensor):
            return str(node.kwargs.get("device") or "cpu") != "cpu"
        if self._numbers is None:
            values = [self.values.value(each) for each in node.graph.nodes if each.target in _NUMBERS]
            self._numbers = {device_of(each) for each in values if isinstance(each, torch.Tensor) and each.ndim == 0}
        return value.ndim == 0 and len(self._numbers) > 1 and device_of(value) != torch.get_default_device()

    def _read_call(self, node: fx.Node) -> Canon | None:
        if self.is_elsewhere(node):
            return None
        args, kwargs = self.arguments(node)
        if node.op == "call_module":
            return spellings.read_module(self.module(node), args, kwargs, self.values.of)
        if self.detaches_literal(node) or keeps_elements(node, self.values.value):
            return Canon("copy", (node.args[0],))
        canon = spellings.read(node.target, args, kwargs, self.values.of)
        if canon is not None and canon.op == "add" and self.adds_bias(node):
            # The product has more axes than the vector.
            operands = sorted(canon.operands, key=lambda each: -getattr(self.values.of(each), "ndim", 0))
            if all(isinstance(each, fx.Node) for each in operands):
                return Canon("nn.bias_add", tuple(operands), {"axis": -1})
        return canon

    def is_literal(self, node: fx.Node) -> bool:
        """True for a call that only makes a tensor of the program's own literal, or weight without a gradient, out of
        it."""
        leaf = lifted(node)
        if leaf is None or leaf.op not in ("placeholder", "get_attr") or self.leaves.kind(leaf) not in (PARAM, CONST):
            return False
        return not getattr(self.leaves.leaf(leaf).value, "requires_grad", False)

    def detaches_literal(self, node: fx.Node) -> bool:
        """True for a call that detaches a literal, which has no gradient anyway."""
        return node.target in _DETACHES and self.is_literal(node)

    def adds_bias(self, node: fx.Node) -> bool:
        """True for a call that adds a vector to a product of matrices, along its last axis."""
        operands = node.all_input_nodes
        if node.target not in _ADDS or len(operands) != 2:
            return False
        kinds = [self.values.type(operand) for operand in operands]
        pair = sorted(zip(kinds, operands), key=lambda each: isinstance(each[0], TensorType) and each[0].ndim == 1)
        (product, call), (vector, _) = pair
        if not isinstance(product, TensorType) or not isinstance(vector, TensorType) or vector.ndim != 1:
            return False
        fits = product.ndim > 1 and product.shape[-1:] == vector.shape and product.dtype == vector.dtype
        return fits and call.op in CALLS and self.read_op(call) in ("matmul", "nn.dense")

    def read_op(self, node: fx.Node) -> str | None:
        """The operator of the canonical reading of a call, or ``None``."""
        canon = self.read(node)
        return None if canon is None else canon.op

    def read_fields(self, node: fx.Node) -> Mapping[int, Canon] | None:
        """The canonical readings of the fields of a call with several results, or ``None``."""
        if node.op == "call_module":
            return None
        args, kwargs = self.arguments(node)
        return spellings.read_fields(node.target, args, kwargs, self.values.of)

    def feeds_product(self, node: fx.Node) -> bool:
        """True for the operand of nothing but a product that may be a linear layer."""
        return len(node.users) == 1 and next(iter(node.users)).target in _PRODUCTS

    def read_layer(self, node: fx.Node) -> tuple[fx.Node, Canon] | None:
        """The product for which alone a call transposes a weight, and its reading as a linear layer of that weight.

        So linear layers are decomposed. ``None`` if the call is anything else.
        """
        weight = node.args[0] if node.args else None
        if not self.feeds_product(node) or not isinstance(weight, fx.Node):
            return None
        user = next(iter(node.users))
        kind = self.values.type(weight)
        if weight.op not in ("placeholder", "get_attr") or not isinstance(kind, TensorType) or kind.ndim != 2:
            return None
        canon, product = self.read(node), self.read(user)
        if canon is None or canon.op != "transpose" or product is None:
            return None
        axes = canon.attrs["axes"]
        layer = _as_layer(product, node, weight) if axes is None or [axis % 2 for axis in axes] == [1, 0] else None
        return None if layer is None else (user, layer)

    def arguments(self, node: fx.Node) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of a call, in which nodes that are symbolic sizes are replaced by dimensions."""
        untyped = [arg for arg in node.all_input_nodes if self.values.types[arg] is None]  # as sizes are
        sizes = {arg: size for arg in untyped if (size := self.size(arg)) is not None}
        if not sizes:
            return node.args, node.kwargs
        replace: Any = lambda arg: sizes.get(arg, arg)  # noqa: E731 (torch's type for this has no room for dimensions)
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), replace)
        return args, kwargs

    def size(self, node: fx.Node) -> SymDim | int | tuple[SymDim | int, ...] | None:
        """The dimension that a node computes, if it is a symbolic size, or all those of a shape."""
        value = self.values.value(node)
        if isinstance(value, torch.Size):
            return tuple([dim_of(size) for size in value])
        return dim_of(value) if isinstance(value, torch.SymInt) else None


_BY_TENSOR: Final = ("type_as", torch.Tensor.type_as, torch.ops.aten.type_as.default)
"""Casts to the type, and the device, of another tensor."""

_LIKE_FIRST: Final = (
    "to", torch.Tensor.to, torch.ops.aten.to.device, torch.ops.aten.to.dtype_layout, torch.ops.aten._to_copy.default,
    torch.zeros_like, torch.ones_like, torch.full_like, torch.ops.aten.zeros_like.default,
    torch.ops.aten.ones_like.default, torch.ops.aten.full_like.default,
)  # fmt: skip
"""Calls that may name another device than that of their operand."""

_NEW: Final = (
    *(f"new_{name}" for name in ("zeros", "ones", "full")), torch.ops.aten.new_zeros.default,
    torch.ops.aten.new_ones.default, torch.ops.aten.new_full.default,
)  # fmt: skip
"""Calls that make a tensor on the device of another one."""

_NUMBERS: Final = (
    torch.scalar_tensor, torch.ops.aten.scalar_tensor.default, torch.full, torch.ops.aten.full.default, torch.tensor,
)  # fmt: skip
"""Calls that make a tensor of a number."""

PLACING: Final = frozenset((*_BY_TENSOR, *_LIKE_FIRST, *_NEW, *_NUMBERS))

_ADDS: Final = frozenset(
    (
        operator.add, operator.iadd, torch.add, "add", "add_", "__add__", torch.ops.aten.add.Tensor,
        torch.ops.aten.add_.Tensor,
    )
)  # fmt: skip

_LIFTS: Final = (torch.ops.aten.lift_fresh_copy.default, torch.ops.aten.lift_fresh.default)
_DETACHES: Final = (torch.ops.aten.detach_.default, torch.ops.aten.detach.default)
LIFTING: Final = (*_LIFTS, *_DETACHES)
"""Calls that lift a tensor, or detach what was lifted."""

LOOKING_AROUND: Final = frozenset(
    id(target) if isinstance(target, OpOverload) else target
    for target in (*PLACING, *_ADDS, *_DETACHES, torch.ops.aten.as_strided.default)
)
"""Calls whose reading depends on more than the types of their operands: operators of torch by their addresses, because
their hashes take long."""


def lifted(node: fx.Node) -> fx.Node | None:
    """The operand of a lift, of a call that lifts it or detaches the result; ``None`` for any other call."""
    while node.target in _DETACHES and node.args and isinstance(node.args[0], fx.Node):
        node = node.args[0]
    operand = node.args[0] if node.target in _LIFTS and node.args else None
    return operand if isinstance(operand, fx.Node) else None


_PRODUCTS: Final = (torch.ops.aten.mm.default, torch.ops.aten.addmm.default)


def _as_layer(canon: Canon, transposed: fx.Node, weight: fx.Node) -> Canon | None:
    """The reading of a product as a linear layer; ``None`` if it has the transposed weight in another place."""
    if canon.op == "matmul":
        data, factor = canon.operands
        return None if data is transposed or factor is not transposed else Canon("nn.dense", (data, weight))
    if transposed in canon.operands:
        return None
    operands = [_as_layer(part, transposed, weight) if isinstance(part, Canon) else part for part in canon.operands]
    return None if None in operands else Canon(canon.op, tuple(operands), canon.attrs)
