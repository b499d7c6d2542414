"""The value of an attribute expression for a match."""

from __future__ import annotations

import builtins
import operator
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from gsl.attr import ast
from gsl.attr.ast import Ast, Symbol
from gsl.errors import EvaluationError
from gsl.graph.dim import SymDim, compare


class Scope(Protocol):
    """What an expression can refer to: the attributes of matched nodes, and the alternatives taken."""

    def attribute(self, pattern: Any, name: str, symbols: dict[Symbol, Any]) -> Any:
        """The value of an attribute of what the pattern matched; EvaluationError if there is none."""

    def alternative(self, pattern: Any, symbols: dict[Symbol, Any]) -> int:
        """The number of the alternative that an ``Alt`` pattern matched."""


def same(left: Any, right: Any) -> bool:
    """Whether two values are equal: as in Python, but ``True`` is not ``1``, and a list is like a tuple.

    Raises UndecidableError for symbolic dimensions that are equal for some sizes only.
    """
    if isinstance(left, (tuple, list)) and isinstance(right, (tuple, list)):
        return len(left) == len(right) and all(same(a, b) for a, b in zip(left, right))
    if isinstance(left, SymDim) or isinstance(right, SymDim):
        if not all(isinstance(v, (int, SymDim)) and not isinstance(v, bool) for v in (left, right)):
            return False
        return compare("==", left, right)
    if isinstance(left, bool) is not isinstance(right, bool):
        return False
    equal = left == right
    if not isinstance(equal, bool):  # an array or a tensor
        return left.shape == right.shape and bool(equal.all()) if hasattr(right, "shape") else False
    return equal


def _comparison(name: str, function: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    def decide(left: Any, right: Any) -> bool:
        if isinstance(left, SymDim) or isinstance(right, SymDim):
            return compare(name, left, right)
        return function(left, right)

    return decide


def _extreme(function: Callable[..., Any], relation: str) -> Callable[[Any, Any], Any]:
    def choose(left: Any, right: Any) -> Any:
        if isinstance(left, SymDim) or isinstance(right, SymDim):
            return left if compare(relation, left, right) else right
        return function(left, right)

    return choose


def _boolean(value: Any, node: Ast) -> bool:
    if not isinstance(value, bool):
        raise EvaluationError(f"{node!r} is {value!r}, expected True or False")
    return value


BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "//": operator.floordiv,
    "%": operator.mod, "**": operator.pow, "==": same, "!=": lambda a, b: not same(a, b),
    "<": _comparison("<", operator.lt), "<=": _comparison("<=", operator.le),
    ">": _comparison(">", operator.gt), ">=": _comparison(">=", operator.ge),
    "max": _extreme(builtins.max, ">="), "min": _extreme(builtins.min, "<="),
}  # fmt: skip
"""The strict binary operators; ``&`` and ``|`` evaluate their right side only when it decides."""


def _contains(value: Any, sequence: Any) -> bool:
    if isinstance(sequence, str):
        return value in sequence
    return any(same(value, item) for item in sequence)


def _remap(source: str, target: str) -> tuple[int, ...]:
    if sorted(source) != sorted(target) or len(set(source)) != len(source) or not source.isalpha():
        raise ValueError(f"the layout {target!r} is not a permutation of {source!r}")
    return tuple(source.index(axis) for axis in target)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "len": len,
    "in": _contains,
    "reversed": lambda sequence: tuple(reversed(sequence)),
    "range": lambda *bounds: tuple(range(*bounds)),
    "zip": lambda *sequences: tuple(zip(*sequences)),
    "abs": abs,
    "all": lambda sequence: all(_boolean(item, ast.Literal(item)) for item in sequence),
    "any": lambda sequence: any(_boolean(item, ast.Literal(item)) for item in sequence),
    "layout_remap": _remap,
}


class Evaluator:
    """Evaluates expressions in one scope, each shared closed sub-expression once."""

    def __init__(self, scope: Scope, symbols: dict[Symbol, Any] | None = None) -> None:
        self.scope = scope
        self.symbols = {} if symbols is None else symbols
        self._memo: dict[int, tuple[Ast, Any]] = {}

    def value(self, node: Ast) -> Any:
        """The value of the expression; EvaluationError if it has none."""
        if isinstance(node, ast.Literal):
            return node.value
        if node.symbols:
            return self._evaluate(node)
        known = self._memo.get(id(node))
        if known is None:
            known = self._memo[id(node)] = (node, self._evaluate(node))
        return known[1]

    def _evaluate(self, node: Ast) -> Any:
        try:
            return self._step(node)
        except (TypeError, ValueError, IndexError, ZeroDivisionError, KeyError, OverflowError) as error:
            raise EvaluationError(f"{node!r} has no value: {error}") from error

    def _step(self, node: Ast) -> Any:
        value = self.value
        match node:
            case ast.Attribute(pattern, name):
                return self.scope.attribute(pattern, name, self.symbols)
            case ast.Symbol():
                if node not in self.symbols:
                    raise EvaluationError(f"the symbol {node!r} is not bound here")
                return self.symbols[node]
            case ast.TupleOf(items):
                return tuple([value(item) for item in items])
            case ast.Binary("&", left, right):
                return _boolean(value(left), left) and _boolean(value(right), right)
            case ast.Binary("|", left, right):
                return _boolean(value(left), left) or _boolean(value(right), right)
            case ast.Binary(symbol, left, right):
                return BINARY[symbol](value(left), value(right))
            case ast.Unary("~", operand):
                return not _boolean(value(operand), operand)
            case ast.Unary(_, operand):
                return -value(operand)
            case ast.Item(sequence, index):
                return value(sequence)[value(index)]
            case ast.Slice(sequence, start, stop, step):
                return value(sequence)[slice(value(start), value(stop), value(step))]
            case ast.Function(name, operands):
                return FUNCTIONS[name](*[value(operand) for operand in operands])
            case ast.Conditional(condition, then, otherwise):
                return value(then if _boolean(value(condition), condition) else otherwise)
            case ast.Chosen(alternative, clauses):
                return value(clauses[self.scope.alternative(alternative, self.symbols)])
            case ast.Each():
                return self.each(node, None)
            case ast.Reduce(symbol, sequence, initial):
                return self._reduce(symbol, value(sequence), initial, node)
        raise EvaluationError(f"{node!r} is not an attribute expression")

    def each(self, node: ast.Each, length: int | None) -> tuple[Any, ...]:
        """The values of an ``Each``, whose length may be taken from what it is compared with."""
        if node.over is not None:
            items: Sequence[Any] = self.value(node.over)
        elif node.length is not None:
            items = range(self.value(node.length))
        elif length is not None:
            items = range(length)
        else:
            raise EvaluationError(f"{node!r} has no length: give length=…")
        outer = self.symbols
        try:
            result = []
            for item in items:
                self.symbols = {**outer, node.symbol: item}
                result.append(self.value(node.body))
            return tuple(result)
        finally:
            self.symbols = outer

    def _reduce(self, symbol: str, items: Sequence[Any], initial: Ast | None, node: Ast) -> Any:
        if initial is not None:
            result = self.value(initial)
        elif items:
            result, items = items[0], items[1:]
        elif symbol in _UNIT:
            result = _UNIT[symbol]
        else:
            raise EvaluationError(f"{node!r} reduces nothing, and {symbol!r} has no neutral element: give init=…")
        for item in items:
            if symbol in "&|":
                result = (_boolean(result, node) and item) if symbol == "&" else (_boolean(result, node) or item)
            else:
                result = BINARY[symbol](result, item)
        return result

    def equals(self, node: Ast, actual: Any) -> tuple[bool, Any]:
        """Whether the expression equals a value, and the expression's value."""
        if isinstance(node, ast.Each) and node.length is None and node.over is None:
            expected: Any = self.each(node, len(actual)) if isinstance(actual, (tuple, list)) else None
        else:
            expected = self.value(node)
        return same(expected, actual), expected


_UNIT: dict[str, Any] = {"+": 0, "*": 1, "&": True, "|": False}
REDUCIBLE = frozenset(("+", "*", "&", "|", "max", "min"))
