"""The sugar of attribute expressions: Python's operators build the syntax tree."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from gsl.attr import ast
from gsl.attr.ast import Ast
from gsl.attr.text import short
from gsl.errors import PatternTypeError
from gsl.graph.types import SymDim

ExprMethod = Callable[["Expr", Any], "Expr"]


def _operator(name: str) -> tuple[ExprMethod, ExprMethod]:
    """The methods of an operator of Python: for an expression on its left, and for one on its right only."""
    return lambda self, other: binary(name, self, other), lambda self, other: binary(name, other, self)


class Expr:
    """An attribute expression; its operators build larger expressions.

    It has no truth value, is not iterable and not hashable, because each of these would be silently wrong.
    """

    __slots__ = ("ast",)
    __hash__ = None  # type: ignore[assignment]
    __array_ufunc__ = None  # so that a number of numpy asks the expression

    ast: Ast

    def __init__(self, node: Ast) -> None:
        object.__setattr__(self, "ast", node)

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise PatternTypeError.here(f"attribute expressions are immutable: can't set {name!r} of {self!r}")

    def __copy__(self) -> Expr:
        return self

    def __deepcopy__(self, memo: Any) -> Expr:
        return self

    def __reduce__(self) -> tuple[type[Expr], tuple[Ast]]:
        return Expr, (self.ast,)

    def __repr__(self) -> str:
        return repr(self.ast)

    __add__, __radd__ = _operator("+")
    __sub__, __rsub__ = _operator("-")
    __mul__, __rmul__ = _operator("*")
    __truediv__, __rtruediv__ = _operator("/")
    __floordiv__, __rfloordiv__ = _operator("//")
    __mod__, __rmod__ = _operator("%")
    __pow__, __rpow__ = _operator("**")
    __and__, __rand__ = _operator("&")
    __or__, __ror__ = _operator("|")
    __lt__, __gt__ = _operator("<")[0], _operator(">")[0]
    __le__, __ge__ = _operator("<=")[0], _operator(">=")[0]

    def __eq__(self, other: object) -> Expr:  # type: ignore[override]
        return binary("==", self, other)

    def __ne__(self, other: object) -> Expr:  # type: ignore[override]
        return binary("!=", self, other)

    def __neg__(self) -> Expr:
        return Expr(ast.Unary("-", self.ast))

    def __invert__(self) -> Expr:
        return Expr(ast.Unary("~", to_condition(self, "what stands after ~")))

    def __abs__(self) -> Expr:
        return Expr(ast.Function("abs", (self.ast,)))

    def __getitem__(self, index: Any) -> Expr:
        if isinstance(index, slice):
            parts = (to_ast(part) for part in (index.start, index.stop, index.step))
            return Expr(ast.Slice(self.ast, *parts))
        return Expr(ast.Item(self.ast, to_ast(index)))

    def max(self, other: Any) -> Expr:
        """The larger of two values."""
        return binary("max", self, other)

    def min(self, other: Any) -> Expr:
        """The smaller of two values."""
        return binary("min", self, other)

    def __bool__(self) -> NoReturn:
        raise PatternTypeError.here(
            f"the attribute expression {self!r} has no truth value before a match: combine conditions with & | ~ "
            "(not and, or, not), chain comparisons as (a < b) & (b < c), and hand them to Subst(…, where=…)"
        )

    def __iter__(self) -> NoReturn:
        raise PatternTypeError.here(
            f"the attribute expression {self!r} can't be iterated or unpacked before a match: index it, "
            "or use attr.Map, attr.Variadic or attr.Len"
        )

    def __contains__(self, item: object) -> NoReturn:
        raise PatternTypeError.here(f"'in' is decided before a match: write attr.In(value, {self!r})")

    def __len__(self) -> NoReturn:
        raise PatternTypeError.here(f"the length of {self!r} is not known before a match: write attr.Len(…)")

    def __array_function__(self, function: Any, *_: Any) -> NoReturn:
        raise PatternTypeError.here(
            f"numpy's {function.__name__} has no value of {self!r} before a match: write an expression, such as "
            "attr.prod, attr.Sum, attr.max, attr.Tuple, or a function of the match, in where= or as the target"
        )

    def _no_number(self, *_: Any) -> NoReturn:
        raise PatternTypeError.here(
            f"the attribute expression {self!r} is no number before a match: compute with it as it is (a // b rounds "
            "down, -(-a // b) up), write attr.Range(…) in place of range(…) and attr.Tuple(…)[i] in place of (…)[i], "
            "or write a function of the match, in where= or as the target"
        )

    __int__ = __float__ = __complex__ = __index__ = __round__ = __trunc__ = _no_number

    def __format__(self, spec: str) -> str:
        if spec:
            raise PatternTypeError.here(
                f"the attribute expression {self!r} has no value before a match that could be written as {spec!r}: "
                "leave the format out to see the expression, or write a function of the match, in where= or as the "
                "target"
            )
        return repr(self)


def binary(operator: str, left: Any, right: Any) -> Expr:
    """The expression ``left operator right``."""
    if operator in "&|":
        return Expr(ast.Binary(operator, *(to_condition(side, f"a side of {operator}") for side in (left, right))))
    return Expr(ast.Binary(operator, to_ast(left), to_ast(right)))


_OF_TORCH = frozenset(("torch", kind) for kind in ("device", "dtype", "layout", "memory_format", "qscheme"))
"""The types of torch whose values are attributes, as their names."""


def to_ast(value: Any) -> Ast:
    """The syntax tree of a value given in a pattern: an expression, or a literal (lists become tuples).

    Raises PatternTypeError for a value that can't be an attribute.
    """
    if isinstance(value, Expr):
        return value.ast
    if isinstance(value, Ast):
        return value
    if isinstance(value, (tuple, list)):
        items = tuple(to_ast(item) for item in value)
        if all(isinstance(item, ast.Literal) for item in items):
            return ast.Literal(tuple(item.value for item in items))  # type: ignore[attr-defined]
        return ast.TupleOf(items)
    if hasattr(value, "item") and getattr(value, "shape", None) == ():  # a number of numpy or torch
        value = value.item()
    if value is None or isinstance(value, (bool, int, float, complex, str, SymDim)):
        return ast.Literal(value)
    if (type(value).__module__, type(value).__name__) in _OF_TORCH:  # torch.float32, torch.channels_last
        return ast.Literal(str(value).removeprefix("torch."))
    if isinstance(value, type) and value.__module__ == "numpy":  # numpy.float32
        return ast.Literal(value.__name__)
    raise PatternTypeError.here(
        f"{short(value)} of type {type(value).__name__} can't be an attribute: expected None, a bool, a number, a "
        "string, a tuple or list of these, or an attribute expression (of a pattern p: p.shape)"
    )


def to_condition(value: Any, owner: str) -> Ast:
    """The syntax tree of the condition of ``owner``, an expression that is true or false.

    Raises PatternTypeError for one that is known to be neither.
    """
    condition = to_ast(value)
    if not _may_be_true(condition):
        raise PatternTypeError.here(
            f"{owner}: the condition {short(value)} is neither true nor false: expected an attribute expression "
            "(of a pattern p: p.ndim == 2), True or False"
        )
    return condition


def _may_be_true(node: Ast) -> bool:
    """False for an expression whose value is known to be no bool, whatever it reads of a match."""
    match node:
        case ast.Literal(value):
            return isinstance(value, bool)
        case ast.Attribute(_, name):
            return name not in ("shape", "dtype", "ndim")
        case ast.Binary(operator) | ast.Reduce(operator) | ast.Unary(operator):
            return operator in ("==", "!=", "<", "<=", ">", ">=", "&", "|", "~", "max", "min")
        case ast.Function(name):
            return name in ("In", "all", "any")
        case ast.Conditional(_, ast.Literal(then), ast.Literal(otherwise)):
            return isinstance(then, bool) or isinstance(otherwise, bool)
        case ast.Item(ast.Attribute(_, "shape" | "dtype")):
            return False
    return not isinstance(node, (ast.TupleOf, ast.Slice, ast.Each))
