"""Attribute expressions: ``conv.strides``, ``w.shape[2] + 1``, and the functions to build more of them.

Python's operators build expressions from attributes of patterns; the functions here build what Python has no
operator for. An expression is evaluated for a match: as a guard in a source, as a value in a target.
"""

from __future__ import annotations

import operator as _operator
from collections.abc import Callable, Sequence
from typing import Any

from gsl.attr import ast as _ast
from gsl.attr.evaluate import REDUCIBLE as _REDUCIBLE
from gsl.attr.expr import Expr, to_ast, to_condition
from gsl.errors import PatternError, PatternTypeError, nearest

__all__ = [
    "Cond", "Const", "Expr", "In", "Inverse", "LayoutRemap", "Len", "Map", "Match", "Range", "ReduceIndexed",
    "ReduceTuple", "Reverse", "Sum", "Symbol", "Tuple", "Variadic", "Zip", "abs", "all", "any", "max", "min", "prod",
]  # fmt: skip

Body = Callable[[Expr], Any] | Expr
"""The value for every index: a function of the index, or an expression in the symbol ``index``."""


def Const(value: Any) -> Expr:
    """A literal. ``Const(None)`` is the value ``None``, where leaving an attribute out means any value."""
    return Expr(to_ast(value))


def Symbol(name: str = "i") -> Expr:
    """A fresh variable, to be bound as the ``index`` of a variadic pattern, a Variadic or a reduction."""
    return Expr(_ast.Symbol(name))


def Range(start: Any, stop: Any = None, step: Any = None) -> Expr:
    """The tuple of the integers of Python's ``range`` with the same arguments."""
    if stop is None and step is not None:
        raise PatternError.here("attr.Range: a step needs start and stop, as for Python's range")
    bounds = (start,) if stop is None else (start, stop) if step is None else (start, stop, step)
    return _function("Range", *bounds)


def Tuple(*items: Any) -> Expr:
    """The tuple of the given values."""
    return Expr(to_ast(items))


def Len(sequence: Any) -> Expr:
    """The number of items."""
    return _function("Len", sequence)


def In(value: Any, sequence: Any) -> Expr:
    """True if a tuple has the value among its items, or a string contains it."""
    return _function("In", value, sequence)


def Reverse(sequence: Any) -> Expr:
    """The tuple in reverse order."""
    return _function("Reverse", sequence)


def Inverse(permutation: Any) -> Expr:
    """The permutation that undoes another: of ``axes`` of a transpose, those of the transpose back."""
    return _function("Inverse", permutation)


def Zip(*sequences: Any) -> Expr:
    """The tuple of tuples of corresponding items, as long as the shortest; a single list of tuples is accepted."""
    if len(sequences) == 1 and isinstance(sequences[0], (list, tuple)):
        sequences = tuple(sequences[0])
    return _function("Zip", *sequences)


def LayoutRemap(source: Any, target: Any) -> Expr:
    """The positions of the axes of the layout ``target`` in ``source``; no value unless they are permutations."""
    return _function("LayoutRemap", source, target)


def Cond(condition: Any, then: Any, otherwise: Any) -> Expr:
    """``then`` if the condition is true, else ``otherwise``; only the chosen side is evaluated."""
    return Expr(_ast.Conditional(to_condition(condition, "attr.Cond"), to_ast(then), to_ast(otherwise)))


def Match(alternative: Any, clauses: Sequence[Any]) -> Expr:
    """The clause for the alternative that the pattern ``alternative`` (an ``Alt``) matched."""
    choices = getattr(alternative, "choices", None)
    if not isinstance(choices, tuple):
        raise PatternTypeError.here(f"attr.Match: expected an Alt pattern, got {alternative!r}")
    if len(choices) != len(clauses):
        raise PatternError.here(f"attr.Match: expected {len(choices)} clauses, one per alternative, got {len(clauses)}")
    return Expr(_ast.Chosen(alternative, tuple(to_ast(clause) for clause in clauses)))


def Variadic(body: Body, length: Any = None, *, index: Expr | None = None) -> Expr:
    """The tuple of ``body`` for the indices ``0 … length-1``.

    Without a length it is a guard of a source, which compares field by field with a value of any length.
    """
    symbol, node = _bind(body, index)
    return Expr(_ast.Each(symbol, node, None if length is None else to_ast(length)))


def Map(sequence: Any, body: Body, *, index: Expr | None = None) -> Expr:
    """The tuple of ``body`` for every item."""
    symbol, node = _bind(body, index)
    return Expr(_ast.Each(symbol, node, None, to_ast(sequence)))


_OPERATORS: dict[Any, str] = {
    _operator.add: "+", _operator.mul: "*", _operator.and_: "&", _operator.or_: "|", max: "max", min: "min",
}  # fmt: skip


def _reducer(operator: Any) -> str:
    name = _OPERATORS.get(operator, operator)
    if name not in _REDUCIBLE:
        raise PatternError.here(f"can't reduce with {operator!r}: {nearest(str(operator), _REDUCIBLE)}")
    return str(name)


def ReduceIndexed(operator: Any, body: Body, length: Any, init: Any = None, *, index: Expr | None = None) -> Expr:
    """The fold of ``body`` over the indices ``0 … length-1``.

    ``operator`` is one of ``+ * & | max min`` as a string, or ``operator.add`` and so on. Without ``init``, an empty
    fold gives the neutral element, and ``max`` and ``min`` of nothing have no value.
    """
    return ReduceTuple(operator, Variadic(body, length, index=index), init)


def ReduceTuple(operator: Any, sequence: Any, init: Any = None) -> Expr:
    """The fold of the items of a tuple; operators as for :func:`ReduceIndexed`."""
    return Expr(_ast.Reduce(_reducer(operator), to_ast(sequence), None if init is None else to_ast(init)))


def Sum(body: Any, length: Any = None, *, index: Expr | None = None) -> Expr:
    """The sum of a tuple, or of ``body`` over the indices ``0 … length-1``."""
    return ReduceTuple("+", body if length is None else Variadic(body, length, index=index))


def prod(sequence: Any) -> Expr:
    """The product of the items; 1 for none."""
    return ReduceTuple("*", sequence)


def max(*values: Any) -> Expr:
    """The largest of the values, or of the items of a single tuple."""
    return _extreme("max", values)


def min(*values: Any) -> Expr:
    """The smallest of the values, or of the items of a single tuple."""
    return _extreme("min", values)


def all(sequence: Any) -> Expr:
    """True if every item is true."""
    return _function("all", sequence)


def any(sequence: Any) -> Expr:
    """True if some item is true."""
    return _function("any", sequence)


def abs(value: Any) -> Expr:
    """The absolute value."""
    return _function("abs", value)


def _function(name: str, *operands: Any) -> Expr:
    return Expr(_ast.Function(name, tuple(to_ast(operand) for operand in operands)))


def _extreme(name: str, values: tuple[Any, ...]) -> Expr:
    if not values:
        raise PatternError.here(f"attr.{name} takes one tuple or several values, got nothing")
    return ReduceTuple(name, values[0] if len(values) == 1 else values)


def _bind(body: Body, index: Expr | None) -> tuple[_ast.Symbol, _ast.Ast]:
    if index is None:
        if not callable(body):
            raise PatternError.here(
                "expected a function of the index or item, or index=<attr.Symbol()> with an expression in it; "
                f"got {body!r}"
            )
        index = Symbol()
    symbol = index.ast if isinstance(index, Expr) else None
    if not isinstance(symbol, _ast.Symbol):
        raise PatternTypeError.here(f"index= takes an attr.Symbol(), got {index!r}")
    return symbol, to_ast(body(index) if callable(body) else body)
