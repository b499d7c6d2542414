"""Small programs of Relay, and comparing them."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import tvm
from tvm import relay

from gsl import Workload
from gsl.front.relay import from_expr, from_module

FAST = {"opt_level": 0}
"""How programs are compiled here: quickly."""


def var(name: str, *shape: Any, dtype: str = "float32") -> relay.Var:
    return relay.var(name, shape=shape, dtype=dtype)


def module_of(body: Any, *variables: Any, **kwargs: Any) -> Any:
    """The module of an expression, with types. Without variables, those that are free in it."""
    function = relay.Function(list(variables) or relay.analysis.free_vars(body), body, **kwargs)
    return relay.transform.InferType()(tvm.IRModule.from_expr(function))


def workload(body: Any, *inputs: str, seed: int = 0) -> Workload:
    """The workload of an expression; all variables but the inputs are weights."""
    return Workload(from_expr(body, inputs or ("x",), seed=seed))


def loaded(module: Any, params: Any = None) -> Workload:
    return Workload(from_module(module, params))


def random(*shape: int, dtype: str = "float32", seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def without_types(module: Any) -> str:
    """A module, or a function of one, as Relay prints it, without the types beside the expressions."""
    return re.sub(r" /\* ty=.*?\*/", "", str(module)).strip()


def body(wl: Workload) -> str:
    """The lines of the main function."""
    return "\n".join(line.strip() for line in without_types(wl.mod["main"]).splitlines()[1:-1])


def exprs(body: Any) -> list[Any]:
    """The expressions of a body, in order."""
    found: list[Any] = []
    relay.analysis.post_order_visit(body, found.append)
    return found


def ops(wl: Workload) -> list[str]:
    """The names of the operators that the native program calls, in order."""
    calls = [expr for expr in exprs(wl.mod["main"].body) if isinstance(expr, relay.Call)]
    return [call.op.name for call in calls if isinstance(call.op, tvm.ir.Op)]
