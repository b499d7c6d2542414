"""Types of single calls of a view."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tvm import ir, relax

from gsl.errors import FrontEndError, is_exhaustion
from gsl.front.core import infer as core
from gsl.front.core.handle import is_literal
from gsl.front.core.opaque import body_of
from gsl.front.relax import spellings
from gsl.front.relax.blocks import has_type
from gsl.front.relax.groups import check_attributes
from gsl.front.relax.load import Loaded
from gsl.front.relax.opaque import Caller
from gsl.front.relax.types import Dims, to_relax, type_of
from gsl.graph import INPUT, LEAVES, TUPLE, Node, Op, Type, is_call, op_name
from gsl.graph.node import Replaced
from gsl.graph.subgraph import Subgraph, call_type
from gsl.spec import OperatorName
from gsl.spec.meaning import has_symbols, symbols_in
from gsl.spec.spec import exact


class Infer:
    """Computes the types of new calls in one view, and in rewrites of it; ValueError if one is ill-typed."""

    def __init__(self, caller: Caller, dims: Dims) -> None:
        self.caller = caller
        self.dims = dims
        self.loaded: Loaded | None = None
        """The links between the view and its function."""

    def __call__(self, op: Op, operands: tuple[Node, ...], attrs: Mapping[str, Any]) -> Type | None:
        return core.infer(op, operands, attrs, self._opaque)

    def writable(self, op: Op, operands: tuple[Node, ...], attrs: Mapping[str, Any]) -> None:
        """Raise ValueError or FrontEndError if Relax can't express a new call, by writing it on variables of the types
        of its operands. Of calls whose sizes are all numbers it is remembered for other programs."""
        types = tuple([operand.type for operand in operands])
        if isinstance(op, Subgraph):
            check_attributes(op, attrs)
        if isinstance(op, Subgraph) or self.loaded is None or None in types:
            return
        if isinstance(op, OperatorName):
            for node in body_of(Node(op, operands, attrs)).nodes:
                if is_call(node):
                    self.writable(node.op, node.operands, node.attrs)
            return
        if not isinstance(op, str):
            self.caller.call(op, [_stand_in(operand, self.dims) for operand in operands], attrs)
            return
        scope = self.loaded.scope
        try:
            key: Any = (op, *map(exact, map(core.known, operands)), *map(exact, attrs.items()))
            if key in scope.shared.writable:
                return
        except TypeError:
            key = None
        expr = spellings.write(op, attrs, tuple([_stand_in_of(operand, self.dims) for operand in operands]), scope)
        if has_symbols(types) or has_symbols(dict(attrs)):
            wanted = self(op, operands, attrs)
            if wanted is not None and not has_type(expr, to_relax(wanted, self.dims)):
                raise ValueError(f"TVM can't prove that its type is {wanted}")
        elif key is not None:
            scope.shared.writable.add(key)

    def admits(self, replacement: Replaced) -> None:
        """FrontEndError for a group that lacks a size, and for a tensor made of no other one where tensors lie on
        virtual devices: nothing tells its own."""
        has_devices = self.loaded is not None and self.loaded.scope.has_devices
        for node in replacement.created:
            if isinstance(node.op, Subgraph):
                self._check_sizes(node, node.op)
            elif has_devices and node.op not in LEAVES and all(map(is_literal, node.operands)):
                raise FrontEndError(f"a new tensor has no virtual device; let {op_name(node.op)} take another one")

    def _check_sizes(self, node: Node, group: Subgraph) -> None:
        """FrontEndError for a group with a size that is made of variables which are no sizes of its operands: its
        function takes them from there."""
        sizes = symbols_in(tuple([inner.type for inner in group.body.nodes]))
        given = symbols_in(tuple([operand.type for operand in node.operands]))
        own = {size.expr for size in given if isinstance(self.dims.prim(size), ir.Var)}
        unknown = sorted({str(name) for size in sizes for name in size.expr.free_symbols - own})
        if unknown:
            raise FrontEndError(f"no operand of the group {group.name} has the size {', '.join(unknown)} as its own")

    def _opaque(self, op: Op, operands: tuple[Node, ...], attrs: Mapping[str, Any]) -> Type | None:
        """The type that Relax gives to an opaque call; ``None`` where it can't tell."""
        if isinstance(op, Subgraph):
            return _of_group(op, operands)
        if any(operand.type is None for operand in operands):
            return None
        try:
            stand_ins = [_stand_in(operand, self.dims) for operand in operands]
            call = self.caller.call(op, stand_ins, attrs)
        except FrontEndError:
            return None
        try:
            builder = relax.BlockBuilder() if self.loaded is None else self.loaded.scope.builder
            call = builder.normalize(call)
        except Exception as error:
            if is_exhaustion(error):
                raise
            # Whatever else Relax raises, the call is ill-typed.
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise ValueError(f"{op_name(op)}: {reason}") from None
        return type_of(call, self.dims, lambda var: None)


def _of_group(group: Subgraph, operands: tuple[Node, ...]) -> Type | None:
    """The type of a call of an outlined group, which takes operands of one type only."""
    if any(operand.type is None for operand in operands):
        return None
    wanted = [node.type for node in group.body.nodes if node.op == INPUT]
    if wanted != [operand.type for operand in operands]:
        raise ValueError(f"{group.name}: takes {', '.join(map(str, wanted))}")
    return call_type(group.body)


def _stand_in_of(operand: Node, dims: Dims) -> Any:
    """The stand-in for an operand where a call is spelled: a variable, a number, or a tuple of those."""
    if operand.op == TUPLE:
        return tuple([_stand_in_of(item, dims) for item in operand.operands])
    return operand.attrs["value"] if is_literal(operand) else _stand_in(operand, dims)


def _stand_in(operand: Node, dims: Dims) -> Any:
    """A variable of the type of an operand, or the constant that a number is."""
    if is_literal(operand):
        return relax.const(operand.attrs["value"], operand.dtype)
    return relax.Var("x", to_relax(operand.type, dims))
