"""Leaves: patterns that stand for a node without regard to its computation."""

from __future__ import annotations

import numbers
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from gsl.attr import Expr
from gsl.attr.ast import Ast
from gsl.attr.expr import to_ast
from gsl.attr.text import short
from gsl.errors import PatternTypeError, checked, nearest
from gsl.graph import CONST, INPUT, PARAM, Node, Op
from gsl.graph.text import value_text
from gsl.pat.base import Pattern
from gsl.pat.typed import TENSOR, TypeGuard


class Leaf(Pattern):
    """A variable of the rule. Leaves may coincide unless they are ``distinct``.

    ``values`` are the numbers that it may have (:class:`gsl.pat.typed.Domain`): those of weights and literals are
    checked, of others it is assumed, which the trace says.
    """

    __slots__ = ("distinct",)
    distinct: bool
    kinds: frozenset[Op] | None = None
    """The kinds of node that match; ``None`` for all."""

    def __init__(
        self, *, shape: Any = None, dtype: Any = None, ndim: Any = None, values: Any = None, distinct: bool = False,
        **fields: Any,
    ) -> None:  # fmt: skip
        super().__init__(TypeGuard.of(shape, dtype, ndim, values), distinct=distinct, **fields)

    def arguments(self) -> Iterator[Any]:
        yield from super().arguments()
        if self.distinct:
            yield "distinct=True"


_ARGUMENTS = (*TENSOR, "values", "distinct")


# No class of patterns that can be written is a subclass of another: Python would ask the right side of ``a > b`` first.


class _Free(Leaf):
    __slots__ = ()

    if not TYPE_CHECKING:  # which sees that there are none

        def __new__(cls, *names: Any, **fields: Any) -> Any:
            if names:
                raise PatternTypeError.here(
                    f"pat.{cls.__name__} takes no name and no operand, got {names[0]!r}: the variable that holds it is "
                    f"its name, and its arguments are {', '.join(f'{known}=' for known in _ARGUMENTS)}"
                )
            for name in fields:
                if name not in _ARGUMENTS:
                    raise PatternTypeError.here(
                        f"pat.{cls.__name__} has no argument {name!r}: {nearest(name, _ARGUMENTS)}"
                    )
            return super().__new__(cls)

    def __init__(
        self, *, shape: Any = None, dtype: Any = None, ndim: Any = None, values: Any = None, distinct: bool = False
    ) -> None:
        super().__init__(shape=shape, dtype=dtype, ndim=ndim, values=values, distinct=distinct)


class Wildcard(_Free):
    """Any node."""

    __slots__ = ()


class Variable(_Free):
    """An input or a parameter; in ``shape=`` a ``None`` stands for any dimension."""

    __slots__ = ()
    kinds = frozenset((INPUT, PARAM))


class Input(_Free):
    """An input, fed at run time."""

    __slots__ = ()
    kinds = frozenset((INPUT,))


class Param(_Free):
    """A parameter, whose value is known."""

    __slots__ = ()
    kinds = frozenset((PARAM,))


class Const(Leaf):
    """A literal, equal to ``value`` if that is given (a number, an array, or an attribute expression).

    Numbers compare by value in the graph's dtype: a float of arithmetic in float32, float16 or bfloat16 in single
    precision, so that ``pat.Const(2 ** 0.5)`` is the 1.4142135 of a Relax module; a factor or a divisor of halves also
    as a half, 1.4140625. They match a tensor that is filled with them, where that broadcasts no other operand. In a
    target it is a new literal; ``dtype`` makes it a tensor of that dtype.
    """

    __slots__ = ("literal",)
    kinds = frozenset((CONST,))
    literal: Any
    """``None``, an Ast, or an array."""

    @checked(PatternTypeError)
    def __init__(
        self, value: Any = None, dtype: Any = None, *, shape: Any = None, ndim: Any = None, values: Any = None,
        distinct: bool = False,
    ) -> None:  # fmt: skip
        literal = _literal(value)
        super().__init__(shape=shape, dtype=dtype, ndim=ndim, values=values, distinct=distinct, literal=literal)

    def arguments(self) -> Iterator[Any]:
        if isinstance(self.literal, Ast):
            yield self.literal
        elif self.literal is not None:
            yield value_text(self.literal)
        yield from super().arguments()

    @property
    def label(self) -> str:
        return "Const" if self.literal is None else f"Const({value_text(self.literal)})"

    def parts(self) -> Iterator[Any]:
        yield "Const"
        yield from list(super().parts())[1:]

    def readable(self) -> frozenset[str]:
        return frozenset((*TENSOR, "value"))

    def expressions(self) -> Iterator[Ast]:
        yield from super().expressions()
        if isinstance(self.literal, Ast):
            yield self.literal


def _literal(value: Any) -> Any:
    if value is None:
        return None
    if isinstance(value, (Expr, numbers.Number)):
        return to_ast(value)
    if isinstance(value, (list, tuple)):
        import numpy

        try:
            value = numpy.asarray(value)
        except ValueError as error:
            raise PatternTypeError.here(f"pat.Const: {short(value)} is no array: {error}") from None
        if value.dtype.kind not in "biufc":
            raise PatternTypeError.here(f"pat.Const: expected numbers, got an array of {value.dtype}")
    if not hasattr(value, "__array__"):
        raise PatternTypeError.here(f"pat.Const: expected a number, an array or an expression, got {value!r}")
    return value


class Exactly(Pattern):
    """A given node of the graph, in a target made by a callable."""

    __slots__ = ("node",)
    node: Node

    def __init__(self, node: Node) -> None:
        super().__init__(node=node)

    def arguments(self) -> Iterator[Any]:
        yield value_text(self.node)
