"""Types and values of single calls of a view."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import tvm
from tvm import relay

from gsl.errors import FrontEndError
from gsl.front.core import infer as core
from gsl.front.core.handle import is_literal
from gsl.front.relay import opaque
from gsl.front.relay.run import compiled
from gsl.front.relay.types import RelayTypes, infer_local, native_type
from gsl.front.tvm.tensors import as_operand, to_tvm
from gsl.graph import CONST, Node, Op, Type, op_name
from gsl.graph.subgraph import Subgraph
from gsl.spec.meaning import has_symbols


def infer(module: Any, op: Op, operands: tuple[Node, ...], attrs: Mapping[str, Any]) -> Type | None:
    """The type of a call, or ``None`` if it does not follow. ValueError if the call is ill-typed.

    ``module`` has the functions that are called by name.
    """
    return core.infer(op, operands, attrs, partial(_infer_opaque, module))


def inferred(op: Op, operands: tuple[Node, ...], attrs: Mapping[str, Any]) -> Type | None:
    """The same as :func:`infer`, but ``None`` also for a call whose type depends on sizes that are not known."""
    try:
        return infer(None, op, operands, attrs)
    except ValueError:
        if has_symbols(tuple([operand.type for operand in operands])):
            return None
        raise


def _infer_opaque(module: Any, op: Op, operands: tuple[Node, ...], attrs: Mapping[str, Any]) -> Type | None:
    """The type that Relay finds for an opaque call; ``None`` where it has no type for an operand, and for a group."""
    if isinstance(op, Subgraph):
        return None
    types = [native_type(operand.type) for operand in operands]
    if any(type is None for type in types):
        return None
    stand_ins = [
        # Relay may take a shape from a literal.
        relay.Constant(to_tvm(operand.attrs["value"])) if operand.op == CONST and not is_literal(operand)
        else relay.Var(f"x{number}", type)
        for number, (operand, type) in enumerate(zip(operands, types))
    ]  # fmt: skip
    try:
        call = opaque.call(module, op, stand_ins, attrs)
    except FrontEndError as error:
        raise ValueError(str(error)) from None
    for part in stand_ins:
        infer_local(part)
    return RelayTypes().of(infer_local(call))


def evaluate(module: Any, node: Node, operands: Sequence[Any]) -> Any:
    """The value of a call on torch tensors and Python numbers."""
    return core.evaluate(node, operands, partial(map, as_operand), partial(_run, module))


def _run(module: Any, node: Node, values: Sequence[Any]) -> Any:
    """The value of an opaque call, by TVM."""
    types = [native_type(operand.type) for operand in node.operands]
    if any(not isinstance(type, relay.TensorType) for type in types):
        raise FrontEndError(f"{node.name}: Relay computes {op_name(node.op)} for operands of known types only")
    variables = [relay.Var(f"x{number}", type) for number, type in enumerate(types)]
    function = relay.Function(variables, opaque.call(module, node.op, variables, node.attrs))
    functions = {var: body for var, body in module.functions.items() if var.name_hint != "main"}
    whole = relay.transform.InferType()(tvm.IRModule({**functions, relay.GlobalVar("main"): function}))
    return as_operand(compiled(whole, {}, [str(var.name_hint) for var in variables])(*values))
