"""Calls and other expressions without a canonical reading: their form in the view, and the way back."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import tvm
from tvm import relay, tir
from tvm.ir import Op

from gsl.errors import FrontEndError, nearest
from gsl.front.relay.spellings.table import names_of
from gsl.graph import Effect, op_name
from gsl.graph import Op as ViewOp
from gsl.spec.natives import TVMFunction, tvm_function

COMPOSITE: Final = "Composite"
"""The attribute with the name of an outlined group, as ``relay.transform.MergeComposite`` sets it."""

PATTERN: Final = "PartitionedFromPattern"
"""The attribute in which it notes the operators of a group."""

_IMPURE: Final = (relay.RefCreate, relay.RefRead, relay.RefWrite)


@dataclass(frozen=True, slots=True)
class RelayOpaque:
    """An expression as an opaque node shows it."""

    op: ViewOp
    """The ``tvm.ir.Op`` or the function of the module that is called; for anything else, the class of the expression,
    or of the function that is called."""
    attrs: Mapping[str, Any]
    effect: Effect | None = None


def describe(expr: Any) -> RelayOpaque:
    """The operator, attributes and effect of an expression."""
    kind: Any = type(expr)
    if not isinstance(expr, relay.Call):
        return RelayOpaque(kind, {})
    callee = expr.op
    if isinstance(callee, Op):
        return RelayOpaque(callee, attributes(expr.attrs), effect_of(callee))
    if isinstance(callee, relay.GlobalVar):
        return RelayOpaque(tvm_function(callee), {})
    if isinstance(callee, relay.Function):
        return RelayOpaque(relay.Function, {"function": callee, **attributes(callee.attrs)})
    return RelayOpaque(relay.Call, {})


def is_group(callee: Any) -> bool:
    """True for a function that is an outlined group."""
    return isinstance(callee, relay.Function) and callee.attrs is not None and COMPOSITE in names_of(callee.attrs)


def pattern_of(body: Any) -> str:
    """The operators of a group, as ``relay.transform.MergeComposite`` notes them."""
    found: list[str] = []

    def visit(expr: Any) -> None:
        match expr:
            case relay.Call() if isinstance(expr.op, Op):
                found.append(f"{expr.op.name}_")
            case relay.Tuple():
                found.append("Tuple_")
            case relay.TupleGetItem():
                found.append(f"TupleGetItem{expr.index}_")

    relay.analysis.post_order_visit(body, visit)
    return "".join(found)


def name_of(op: ViewOp) -> str:
    """A name for a node: the last part of the operator's or function's own, or the kind of the expression."""
    name = getattr(op, "name", None)
    return str(name).rpartition(".")[2].rpartition("::")[2] if name else getattr(op, "__name__", "call").lower()


def attributes(attrs: Any) -> dict[str, Any]:
    """The attributes of an operator or function as Python values."""
    if attrs is None:
        return {}
    flags = _flags(attrs) if isinstance(attrs, tvm.ir.Attrs) and not isinstance(attrs, tvm.ir.DictAttrs) else ()
    values = {name: python_value(attrs[name]) for name in names_of(attrs)}
    return {name: bool(value) if name in flags else value for name, value in values.items()}


def _flags(attrs: Any) -> frozenset[str]:
    """The names of the attributes that are declared as truth values; they arrive as numbers."""
    fields = attrs.list_field_info()
    return frozenset(str(field.name) for field in fields if str(field.type_info).startswith("bool"))


def python_value(value: Any) -> Any:
    """A number, text or sequence of TVM as Python's own; anything else as it is."""
    match value:
        case tir.IntImm():
            return bool(value.value) if value.dtype == "bool" else int(value.value)
        case tir.FloatImm():
            return float(value.value)
        case tir.StringImm():
            return str(value.value)
        case str():
            return str(value)
        case tvm.ir.Array() | list():
            return tuple(map(python_value, value))
    return value


def effect_of(op: Op) -> Effect | None:
    """The effect of a call of an operator besides computing its value."""
    if op.name.startswith("random.") or op.name == "nn.dropout":
        return Effect.RANDOM
    return Effect.OTHER if op.get_attr("TOpIsStateful") else None


def call(module: Any, op: Any, operands: Sequence[Any], attrs: Mapping[str, Any]) -> Any:
    """The call of a native target that a rule asks for. FrontEndError if it can't be made."""
    if op is relay.Function and isinstance(attrs.get("function"), relay.Function):
        return relay.Call(attrs["function"], list(operands))
    if isinstance(op, relay.Function):
        return relay.Call(op, list(operands))
    if isinstance(op, (relay.GlobalVar, TVMFunction)):
        return relay.Call(_global(module, op_name(op)), list(operands))
    if op is relay.Call:
        return relay.Call(operands[0], list(operands[1:]))
    if not isinstance(op, Op):
        raise FrontEndError(f"{op_name(op)}: in Relay, a rule can make calls of an Op, a GlobalVar or a Function only")
    try:
        return relay.Call(op, list(operands), _attributes_of(module, op, operands, attrs))
    except (tvm.TVMError, AttributeError, TypeError, ValueError) as error:
        reason = str(error).strip().splitlines()[-1]
        raise FrontEndError(f"Relay's {op.name} takes no attributes {dict(attrs)}: {reason}") from error


def _attributes_of(module: Any, op: Op, operands: Sequence[Any], given: Mapping[str, Any]) -> Any:
    """The attributes of a new call; ``None`` for an operator that has none.

    Some operators do not tell of what class theirs are, and Relay ends the process over a call without them: they are
    found as those of an example.
    """
    if op.attrs_type_key:
        return tvm.ir.make_node(op.attrs_type_key, **given)
    function = function_of(op)
    try:
        made = _example(op, operands, function(*operands, **given))
        return made.attrs
    except (tvm.TVMError, AttributeError, TypeError, ValueError):
        # The function names the attributes in another way.
        made = _call_in(module, op) or _example(op, operands, function(*operands))
    if made.attrs is None and given:
        raise ValueError("it has none")
    return None if made.attrs is None else tvm.ir.make_node(_type_key(made.attrs), **given)


def function_of(op: Op) -> Callable[..., Any]:
    """The function of Relay that makes calls of an operator. AttributeError if there is none of its name."""
    found: Callable[..., Any] = functools.reduce(getattr, op.name.split("."), relay)
    return found


def _example(op: Op, operands: Sequence[Any], made: Any) -> Any:
    """The call that a function of Relay made, if it is a call of the operator with just these operands."""
    call = made.astuple() if isinstance(made, relay.expr.TupleWrapper) else made
    same = isinstance(call, relay.Call) and call.op == op and len(call.args) == len(operands)
    if not same or not all(a.same_as(b) for a, b in zip(call.args, operands)):
        raise ValueError(f"relay.{op.name} makes another call")
    return call


def _call_in(module: Any, op: Op) -> Any:
    """A call of an operator in the function ``@main`` of a module; ``None`` if there is none."""
    found: list[Any] = []
    relay.analysis.post_order_visit(
        module["main"], lambda expr: found.append(expr) if isinstance(expr, relay.Call) and expr.op == op else None
    )
    return found[0] if found else None


def _type_key(attrs: Any) -> str:
    """The name under which TVM knows the class of attributes."""
    saved = json.loads(tvm.ir.save_json(attrs))
    return str(saved["nodes"][saved["root"]]["type_key"])


def _global(module: Any, name: str) -> Any:
    found = next((var for var in module.get_global_vars() if str(var.name_hint) == name), None)
    if found is None:
        names = [str(var.name_hint) for var in module.get_global_vars()]
        raise FrontEndError(f"the module of Relay has no function @{name}; {nearest(name, names)}")
    return found


def is_impure(module: Any, body: Any) -> bool:
    """True if an expression, or a function that it may call, creates, reads or writes references."""
    done: set[str] = set()
    work = [body]
    found = False

    def visit(expr: Any) -> None:
        nonlocal found
        if isinstance(expr, _IMPURE):
            found = True
        elif isinstance(expr, relay.GlobalVar) and expr.name_hint not in done:
            done.add(expr.name_hint)
            function = module.functions.get(expr)
            if isinstance(function, relay.Function):
                work.append(function)

    while work and not found:
        relay.analysis.post_order_visit(work.pop(), visit)
    return found
