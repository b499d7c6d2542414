"""Attribute expressions as Python source, for code that is generated from a rule.

The source has the value that :class:`gsl.attr.evaluate.Evaluator` gives. Where an expression has no value it raises one
of ``NO_VALUE``. Not every expression is written as source: one that counts (``Each``, ``Reduce``), or that is so large
that shared parts would be evaluated again and again, is left to the evaluator.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gsl.attr import ast
from gsl.attr.ast import Ast
from gsl.attr.evaluate import BINARY, FUNCTIONS, boolean, same
from gsl.errors import EvaluationError

NO_VALUE = (EvaluationError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""The errors that the source of an expression raises when there is no value."""
MOST = 40
"""The largest number of parts of an expression that is written as source."""
_PYTHON = ("+", "-", "*", "/", "//", "%", "**")
"""The operators that are Python's own."""


class NotCompiled(Exception):
    """Raised for an expression that is not written as source."""


class Names:
    """The names under which generated code finds the objects that it refers to."""

    def __init__(self) -> None:
        self.table: dict[str, Any] = {}
        self._known: dict[int, str] = {}

    def of(self, value: Any) -> str:
        """The source of a value: its text if that is exact, or else a name for the object."""
        if value is None or type(value) in (bool, int, str):
            return repr(value)
        name = self._known.get(id(value))
        if name is None:
            name = self._known[id(value)] = f"_{len(self.table)}"
            self.table[name] = value
        return name


def source(
    node: Ast, names: Names, attribute: Callable[[Any, str], str], choice: Callable[[Any], int | None],
    number: str | None = None,
) -> str:  # fmt: skip
    """The source of an expression; Uncovered if there is none.

    ``attribute`` gives the source of an attribute of a pattern, ``choice`` the number of the choice that an alternative
    has taken, if that is known; ``number`` is the source of the number for which an index stands, if it does.
    """
    left = MOST

    def write(node: Ast) -> str:
        nonlocal left
        left -= 1
        if left < 0:
            raise NotCompiled
        match node:
            case ast.Literal(value):
                return names.of(value)
            case ast.Attribute(pattern, name):
                return attribute(pattern, name)
            case ast.TupleOf(items):
                return f"({''.join(f'{write(item)}, ' for item in items)})"
            case ast.Binary("&" | "|" as symbol, a, b):
                word = "and" if symbol == "&" else "or"
                return f"({names.of(boolean)}({write(a)}) {word} {names.of(boolean)}({write(b)}))"
            case ast.Binary("==" | "!=" as symbol, a, b):
                return f"({'' if symbol == '==' else 'not '}{names.of(same)}({write(a)}, {write(b)}))"
            case ast.Binary(symbol, a, b):
                if symbol in _PYTHON:
                    return f"({write(a)} {symbol} {write(b)})"
                return f"{names.of(BINARY[symbol])}({write(a)}, {write(b)})"
            case ast.Unary("~", operand):
                return f"(not {names.of(boolean)}({write(operand)}))"
            case ast.Unary(_, operand):
                return f"(-{write(operand)})"
            case ast.Item(sequence, index) if not isinstance(sequence, ast.Literal):
                return f"{write(sequence)}[{write(index)}]"
            case ast.Function(name, operands):
                return f"{names.of(FUNCTIONS[name])}({', '.join(map(write, operands))})"
            case ast.Conditional(condition, then, otherwise):
                return f"({write(then)} if {names.of(boolean)}({write(condition)}) else {write(otherwise)})"
            case ast.Chosen(alternative, clauses):
                chosen = choice(alternative)
                if chosen is not None:
                    return write(clauses[chosen])
            case ast.Symbol() if number is not None:
                return number
        raise NotCompiled

    return write(node)
