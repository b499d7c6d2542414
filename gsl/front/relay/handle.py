"""The link from a view node to the native program: its expression, and the sources of its operands."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final, TypeVar

from tvm import relay
from tvm.ir import Op
from tvm.runtime import Object

from gsl.front.core.handle import Handle, NativeLeaf, Single
from gsl.front.core.store import FreeNames
from gsl.front.relay.spellings.table import items
from gsl.front.tvm import operands_first
from gsl.graph import Node

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True, eq=False)
class RelayLeaf(NativeLeaf):
    """A variable of the function, or a constant."""

    expr: Any


class FrozenReading(Single):
    """The handle of an expression that must stay as it is, with all that is in it. Its sources are variables."""

    __slots__ = ()


def native_of(node: Node) -> Any:
    """The expression whose value the view node is, or belongs to; ``None`` for a new node."""
    match node.native:
        case Handle():
            return node.native.reading.native
        case RelayLeaf():
            return node.native.expr
    return None


class ByExpression(MutableMapping[Any, Value]):
    """A mapping from expressions, which are told by their addresses: TVM would be called for each of their hashes."""

    __slots__ = ("_found",)

    def __init__(self) -> None:
        self._found: dict[int, tuple[Any, Value]] = {}
        """The expressions stay, so that no other one gets their address."""

    def __getitem__(self, expr: Any) -> Value:
        return self._found[expr.handle.value][1]

    def __setitem__(self, expr: Any, value: Value) -> None:
        self._found[expr.handle.value] = expr, value

    def __delitem__(self, expr: Any) -> None:
        del self._found[expr.handle.value]

    def __contains__(self, expr: object) -> bool:
        return isinstance(expr, Object) and expr.handle.value in self._found

    def __iter__(self) -> Iterator[Any]:
        return iter([expr for expr, _ in self._found.values()])

    def __len__(self) -> int:
        return len(self._found)


def parts(expr: Any) -> tuple[Any, ...]:
    """The expressions that are certain to be computed where this one is, in order; none for a leaf.

    Relay shares what occurs several times, so these make a DAG. The contents of a branch, a ``let`` or a function are
    not part of it.
    """
    match expr:
        case relay.Call():
            callee = expr.op
            return items(expr.args) if _is_target(callee) else (callee, *items(expr.args))
        case relay.Tuple():
            return items(expr.fields)
        case relay.TupleGetItem():
            return (expr.tuple_value,)
        case relay.If():
            return (expr.cond,)
    return ()


class KnownParts:
    """:func:`parts`, of which those of each expression are read once."""

    __slots__ = ("_found",)

    def __init__(self) -> None:
        self._found = ByExpression[tuple[Any, ...]]()

    def __call__(self, expr: Any) -> tuple[Any, ...]:
        try:
            return self._found[expr]
        except KeyError:
            found = self._found[expr] = parts(expr)
            return found


def _is_target(callee: Any) -> bool:
    """True for an expression that a call names without computing it: an operator, a function, a constructor."""
    return isinstance(callee, (Op, relay.GlobalVar, relay.Function)) or not isinstance(callee, relay.Expr)


def rebuilt(expr: Any, instead: Mapping[Any, Any], span: Any = None, infer: bool = False) -> Any:
    """The expression with other parts, and all else as it was; the very same one if there is nothing to change.

    ``span`` is the place in the source for an expression that has none. It keeps its type, if it has one, unless that
    is to be inferred anew because the parts may have other types.
    """
    old = parts(expr)
    new = [instead.get(part, part) for part in old]
    if all(a.same_as(b) for a, b in zip(old, new)) and (span is None or expr.span is not None):
        return expr
    span = expr.span if expr.span is not None else span
    match expr:
        case relay.If():
            return relay.If(new[0], expr.true_branch, expr.false_branch, span)
        case relay.Call() if _is_target(expr.op):
            if not infer:
                return with_parts(expr, new, span)
            # What an operator's types are follows from its operands; a function may be given its own.
            return relay.Call(expr.op, new, expr.attrs, None if isinstance(expr.op, Op) else expr.type_args, span)
        case relay.Call():
            if infer:
                return relay.Call(new[0], new[1:], expr.attrs, expr.type_args, span)
            return relay.expr.CallWithFields(expr, new[0], new[1:], None, None, None, span)
        case relay.Tuple():
            return relay.Tuple(new, span) if infer else with_parts(expr, new, span)
        case relay.TupleGetItem():
            return relay.TupleGetItem(new[0], expr.index, span) if infer else with_parts(expr, new, span)
    return expr


def with_parts(expr: Any, new: Sequence[Any], span: Any) -> Any:
    """A tuple, a field of one, or a call whose operator is no part of it, with other parts, at a place in the source;
    all else is as it was, its type too."""
    match expr:
        case relay.Call():
            return relay.expr.CallWithFields(expr, None, new, None, None, None, span)
        case relay.Tuple():
            return relay.expr.TupleWithFields(expr, new, None, span)
    return relay.expr.TupleGetItemWithFields(expr, new[0], None, None, span)


def bound(expr: Any, values: Mapping[Any, Any]) -> Any:
    """The expression with these values for variables that it uses where :func:`parts` does not look."""
    variables = {var: values[var] for var in hidden_variables(expr) if var in values}
    if not variables:
        return expr
    match expr:
        case relay.Call():
            return relay.Call(relay.bind(expr.op, variables), expr.args, expr.attrs, expr.type_args, expr.span)
        case relay.If():
            branches = [relay.bind(branch, variables) for branch in (expr.true_branch, expr.false_branch)]
            return relay.If(expr.cond, *branches, expr.span)
    return relay.bind(expr, variables)


def hidden_variables(expr: Any) -> tuple[Any, ...]:
    """The variables that an expression uses where :func:`parts` does not look: in a branch, a function, a ``let``."""
    match expr:
        case relay.Call():
            hidden: tuple[Any, ...] = (expr.op,) if isinstance(expr.op, relay.Function) else ()
        case relay.If():
            hidden = (expr.true_branch, expr.false_branch)
        case relay.Var() | relay.Constant() | relay.Tuple() | relay.TupleGetItem():
            hidden = ()
        case _:
            hidden = (expr,)
    return tuple(dict.fromkeys([var for part in hidden for var in relay.analysis.free_vars(part)]))


def in_order(roots: Iterable[Any], below: Callable[[Any], Sequence[Any]] = parts) -> Iterator[Any]:
    """The expressions of which some are made, each once, after those that it is made of."""
    return operands_first(roots, below, _ADDRESS)


_ADDRESS: Final = attrgetter("handle.value")


def output_exprs(body: Any) -> list[Any]:
    """The outputs of a function: the fields of a tuple that it returns, at any depth, or what it returns."""
    outputs: list[Any] = []
    stack = [body]
    while stack:
        expr = stack.pop()
        if isinstance(expr, relay.Tuple):
            stack.extend(reversed(expr.fields))
        else:
            outputs.append(expr)
    return outputs


def unique_names(function: Any) -> list[str]:
    """The names of a function's variables, in which those that share one are numbered."""
    hints = [str(var.name_hint) for var in items(function.params)]
    first = {hint: place for place, hint in reversed([*enumerate(hints)])}
    names = FreeNames(first)
    return [hint if first[hint] == place else names.free(hint) for place, hint in enumerate(hints)]
