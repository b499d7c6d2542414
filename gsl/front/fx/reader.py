"""Reads native calls through the table of spellings, and tells what they do besides computing a value."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping
from typing import Any, Final

import torch
from torch import fx
from torch._ops import HigherOrderOperator, OpOverload, OpOverloadPacket
from torch.ao.quantization.stubs import DeQuantStub, QuantStub

from gsl.front.fx import spellings
from gsl.front.fx.tree import Weight
from gsl.front.fx.values import Values, dim_of
from gsl.front.tree import Canon
from gsl.graph import Effect, SymDim
from gsl.spec import TABLE, Trait

CALLS: Final = ("call_function", "call_method", "call_module")

_MAY_RETURN_AN_OPERAND: Final = frozenset(
    ("broadcast_to", "cast", "getitem", "nn.dropout", "split", "strided_slice", "take", "tuple")
)
"""Canonical operators that torch may carry out without copying, besides those that only move elements."""

_PURE_PACKAGES: Final = ("torch", "_operator", "operator", "math", "builtins", "einops")
_IMPURE_BUILTINS: Final = frozenset((print, setattr, delattr, input, exec, eval, open, next))


class Reader:
    """The readings of the calls of one native graph, each made once."""

    def __init__(self, root: torch.nn.Module, values: Values) -> None:
        self.root = root
        self.values = values
        self._read: dict[fx.Node, Canon | None] = {}

    def module(self, node: fx.Node) -> torch.nn.Module:
        """The module that a ``call_module`` calls."""
        return self.root.get_submodule(str(node.target))

    def read(self, node: fx.Node) -> Canon | None:
        """The canonical reading of a call, or ``None``."""
        if node not in self._read:
            self._read[node] = self._read_call(node)
        return self._read[node]

    def _read_call(self, node: fx.Node) -> Canon | None:
        args, kwargs = self.arguments(node)
        if node.op == "call_module":
            return spellings.read_module(self.module(node), args, kwargs, self.values.of)
        return spellings.read(node.target, args, kwargs, self.values.of)

    def read_fields(self, node: fx.Node) -> Mapping[int, Canon] | None:
        """The canonical readings of the fields of a call with several results, or ``None``."""
        if node.op != "call_function":
            return None
        args, kwargs = self.arguments(node)
        return spellings.read_fields(node.target, args, kwargs, self.values.of)

    def arguments(self, node: fx.Node) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of a call, in which nodes that are symbolic sizes are replaced by dimensions."""
        sizes = {arg: size for arg in node.all_input_nodes if (size := self.size(arg)) is not None}
        if not sizes:
            return node.args, node.kwargs
        replace: Any = lambda arg: sizes.get(arg, arg)  # noqa: E731 (torch's type for this has no room for dimensions)
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), replace)
        return args, kwargs

    def size(self, node: fx.Node) -> SymDim | int | None:
        """The dimension that a node computes, if it is a symbolic size."""
        value = self.values.value(node)
        return dim_of(value) if isinstance(value, torch.SymInt) else None

    # ------------------------------------------------------------ effects

    def mutated(self, node: fx.Node) -> tuple[fx.Node, ...]:
        """The native operands that a call changes in place."""
        if node.op == "call_module":
            inplace = any(getattr(part, "inplace", False) is True for part in self.module(node).modules())
            return tuple(node.all_input_nodes[:1]) if inplace and not self._keeps_values(node) else ()
        if node.op not in CALLS:
            return ()
        positions = spellings.mutated(node.target, node.args, node.kwargs)
        if not positions or self._keeps_values(node):
            return ()
        found: list[fx.Node] = []

        def collect(argument: fx.Node) -> fx.Node:
            found.append(argument)
            return argument

        values = (*node.args, *node.kwargs.values())
        fx.node.map_arg([values[position] for position in positions], collect)
        return tuple(found)

    def mutated_weights(self, node: fx.Node) -> Iterator[torch.Tensor]:
        """The tensors of a called module that the call may change."""
        if node.op == "call_module":
            module = self.module(node)
            if self.is_unknown(node):
                yield from module.parameters()
                yield from module.buffers()
            yield from spellings.mutated_weights(module)

    def is_unknown(self, node: fx.Node) -> bool:
        """True for a call of foreign code, which may change whatever it can reach."""
        if node.op == "call_module":
            return self.read(node) is None and not all(map(_is_understood, self.module(node).modules()))
        return node.op == "call_function" and not isinstance(
            node.target, OpOverload | OpOverloadPacket | HigherOrderOperator
        ) and not _known_pure(node.target) and node.target not in _SIDE_EFFECTS

    def _keeps_values(self, node: fx.Node) -> bool:
        """True for a dropout that is switched off: its in-place form has nothing to do."""
        canon = self.read(node)
        return canon is not None and canon.op == "nn.dropout"

    @staticmethod
    def is_assertion(node: fx.Node) -> bool:
        """True for a call that only makes sure of sizes or metadata, as ``torch.export`` adds them.

        It has no view node: it stays where it is as long as there is what it speaks of, and is in nobody's way.
        """
        return node.target in _ASSERTIONS and not node.users

    def effect(self, node: fx.Node) -> Effect | None:
        """What a call does besides computing its value and changing its operands."""
        target = node.target
        if node.op == "call_module":
            return self._module_effect(node)
        if spellings.is_random(target, node.args, node.kwargs):
            return Effect.RANDOM
        if node.op == "call_method":
            return None
        if isinstance(target, HigherOrderOperator) or target in _SIDE_EFFECTS:
            return Effect.OTHER
        if isinstance(target, OpOverload | OpOverloadPacket):
            return Effect.OTHER if _is_check(target) or node.is_impure(impure_random=False) else None
        return Effect.OTHER if not _known_pure(target) or node.is_impure(impure_random=False) else None

    def _module_effect(self, node: fx.Node) -> Effect | None:
        module = self.module(node)
        if self.is_unknown(node):
            return Effect.OTHER
        is_random, mutates = spellings.is_random_module(module), spellings.mutates_module(module)
        if is_random:
            return Effect.OTHER if mutates else Effect.RANDOM
        if self.read(node) is not None:
            return None
        if mutates:
            return Effect.MUTATES
        return Effect.OTHER if node.is_impure() else None

    def aliases(self, node: fx.Node) -> tuple[fx.Node, ...]:
        """The native operands with which a call's result may share memory."""
        if node.op not in CALLS or self.is_fresh(node):
            return ()
        if (mutated := self.mutated(node)) and self.read(node) is not None:
            return mutated
        if isinstance(node.target, OpOverload) and not spellings.is_view(node.target):
            return ()
        return tuple(node.all_input_nodes)

    def hands_on(self, node: fx.Node) -> bool:
        """True for a call of a module that returns its operand itself, as ``nn.Identity`` does."""
        canon = self.read(node) if node.op == "call_module" else None
        return canon is not None and canon.op == "copy" and isinstance(node.args[0] if node.args else None, fx.Node)

    def is_fresh(self, node: fx.Node) -> bool:
        """True if a call is certain to return new memory."""
        if node.op not in CALLS or self.mutated(node):
            return False
        canon = self.read(node)
        if canon is None:
            return _is_new_field(node) or (isinstance(node.target, OpOverload) and not spellings.is_view(node.target))
        if canon.op in _MAY_RETURN_AN_OPERAND or canon.op not in TABLE:
            return False
        if canon.op == "copy" and node.op == "call_module":
            return False
        spec = TABLE[canon.op]
        if Trait.LAYOUT in spec.traits or spec.fields:
            return False
        return node.op == "call_module" or not spellings.is_view(node.target)


def _is_new_field(node: fx.Node) -> bool:
    """True for the only ``getitem`` of its field of a call that returns several new tensors."""
    call = node.args[0] if node.target is operator.getitem else None
    if not isinstance(call, fx.Node) or not isinstance(call.target, OpOverload) or spellings.is_view(call.target):
        return False
    if len(call.target._schema.returns) < 2:
        return False
    others = [user for user in call.users if user is not node]
    return all(user.target is operator.getitem and user.args[1] != node.args[1] for user in others)


def weight(module: torch.nn.Module, name: Weight) -> Any:
    """The tensor of a module that a reading refers to."""
    value: Any = module
    for part in name.name.split("."):
        value = getattr(value, part)
    return value


_ASSERTIONS: Final = frozenset(
    overload
    for name in ("_assert_tensor_metadata", "_assert_scalar", "sym_constrain_range", "sym_constrain_range_for_size")
    for overload in [getattr(getattr(torch.ops.aten, name, None), "default", None)]
    if overload is not None
)


def _side_effects() -> frozenset[Any]:
    from torch.fx.node import _side_effectful_functions

    return frozenset(_side_effectful_functions) | _IMPURE_BUILTINS


_SIDE_EFFECTS: Final = _side_effects()


def _is_check(target: Any) -> bool:
    """True for an overload that returns nothing: it is called for its effect."""
    return isinstance(target, OpOverload) and not target._schema.returns


def _is_understood(module: torch.nn.Module) -> bool:
    """True for a module of torch's own, and for a graph of calls without effects; others may do anything."""
    if type(module) in (QuantStub, DeQuantStub):
        # They mark places; what observers do there is done by hooks.
        return spellings.is_plain(module)
    if not isinstance(module, fx.GraphModule):
        return type(module).__module__.startswith("torch.nn.modules.")
    reader = Reader(module, Values())
    calls = [node for node in module.graph.nodes if node.op in CALLS]
    return not any(reader.mutated(node) or reader.effect(node) for node in calls)


def _known_pure(target: Any) -> bool:
    """True for functions of packages whose functions have no effects that torch does not tell."""
    module = getattr(target, "__module__", None) or type(target).__module__
    return module.partition(".")[0] in _PURE_PACKAGES
