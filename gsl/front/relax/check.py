"""Checks that a new function is well-formed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from tvm import ir, relax
from tvm.relax.expr import _update_type
from tvm.sym import Analyzer

from gsl.front.relax.function import replaced
from gsl.front.relax.objects import VARIABLES

_MANY: Final = 8
"""One call in a function of its own takes so much longer to check than in the one where it stands."""


def check(module: Any, function: Any, fresh: Sequence[Any] | None) -> None:
    """Raise TVM's error unless a module with this new function is well-formed.

    To derive the types of all calls once more takes nearly all the time of TVM's check. So that is done for ``fresh``
    alone, if given: calls such that every new one has the operator, attributes and types of one of them, where all
    others have those that they had before. All else is checked everywhere.
    """
    bindings = sum([len(block.bindings) for block in function.body.blocks])
    calls = None if fresh is None or len(fresh) * _MANY > bindings else _alone(fresh)
    relax.analysis.well_formed(module, check_ty=calls is None)
    if calls is not None:
        relax.analysis.well_formed(calls)


def has_type(expr: Any, wanted: Any) -> bool:
    """True if TVM can prove that an expression has a type, for all sizes."""
    if isinstance(expr, relax.Tuple):
        return all(map(has_type, expr.fields, wanted.fields))
    return _is_same(expr.ty, wanted, Analyzer())


def _is_same(found: Any, wanted: Any, analyzer: Any) -> bool:
    if isinstance(found, ir.TupleType):
        return all(_is_same(one, other, analyzer) for one, other in zip(found.fields, wanted.fields))
    if not isinstance(found, relax.TensorType) or found.shape is None:
        return True
    return all(analyzer.can_prove_equal(a, b) for a, b in zip(found.shape.values, wanted.shape.values))


def _alone(calls: Sequence[Any]) -> Any | None:
    """A function of nothing but these calls; ``None`` if they call other functions."""
    params: list[Any] = []
    bindings: list[Any] = []
    for expr in calls:
        if type(expr) is not ir.Call or type(expr.op) is not ir.Op or relax.analysis.all_global_vars(expr):
            return None
        instead = {var: relax.Var(var.name, var.ty) for var in relax.analysis.free_vars(expr) if type(var) in VARIABLES}
        params += instead.values()
        bindings.append(relax.VarBinding(relax.Var("call", expr.ty), replaced(expr, instead)))
    result = relax.Tuple([])
    body = relax.SeqExpr([relax.BindingBlock(bindings)], result)
    _update_type(body, result.ty)
    return relax.Function(params, body, result.ty, is_pure=False)
