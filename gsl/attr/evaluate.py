"""The value of an attribute expression: computed for a match, and as Python source for code generated from a rule."""

from __future__ import annotations

import builtins
import operator
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, reduce
from typing import Any, Protocol

from gsl.attr import ast
from gsl.attr.ast import Ast, Symbol
from gsl.attr.text import short
from gsl.errors import EvaluationError, UndecidableError
from gsl.graph.types import SymDim, compare


class AttrScope(Protocol):
    """The values that an expression can refer to: the attributes of matched nodes, and the alternatives taken."""

    def attribute(self, pattern: Any, name: str, symbols: dict[Symbol, Any]) -> Any:
        """The value of an attribute of the node that the pattern matched; EvaluationError if there is none."""

    def alternative(self, pattern: Any, symbols: dict[Symbol, Any]) -> int:
        """The number of the alternative that an ``Alt`` pattern matched."""


def same(left: Any, right: Any) -> bool:
    """True if two values are equal: as in Python, but ``True`` is not ``1``, and a list is like a tuple.

    Raises UndecidableError for symbolic dimensions that are equal for some sizes only.
    """
    if isinstance(left, (tuple, list)) and isinstance(right, (tuple, list)):
        return len(left) == len(right) and not _some(zip(left, right), False)
    if isinstance(left, SymDim) or isinstance(right, SymDim):
        if not all(isinstance(v, (int, SymDim)) and not isinstance(v, bool) for v in (left, right)):
            return False
        return compare("==", left, right)
    if isinstance(left, bool) is not isinstance(right, bool):
        return False
    if getattr(left, "shape", ()) != getattr(right, "shape", ()):
        return False
    equal = left == right
    return bool(equal.all()) if hasattr(equal, "all") else bool(equal)  # arrays and tensors compare item by item


def _some(pairs: Iterable[tuple[Any, Any]], equal: bool) -> bool:
    """True if some pair is equal (or some is not). One pair that decides is enough, whatever the others are."""
    undecided: UndecidableError | None = None
    for left, right in pairs:
        try:
            if same(left, right) is equal:
                return True
        except UndecidableError as error:
            undecided = error
    if undecided is not None:
        raise undecided
    return False


def _comparison(name: str, function: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    def decide(left: Any, right: Any) -> bool:
        if isinstance(left, SymDim) or isinstance(right, SymDim):
            return compare(name, left, right)
        return function(left, right)

    return decide


def _extreme(function: Callable[..., Any], relation: str) -> Callable[[Any, Any], Any]:
    def choose(left: Any, right: Any) -> Any:
        if isinstance(left, SymDim) or isinstance(right, SymDim):
            try:
                return left if compare(relation, left, right) else right
            except UndecidableError:  # of 1 and s, the other way tells
                return right if compare(relation, right, left) else left
        return function(left, right)

    return choose


def boolean(value: Any) -> bool:
    """The value, if it is True or False; TypeError for any other."""
    if not isinstance(value, bool):
        raise TypeError(f"expected True or False, found {short(value)}")
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
    return _some(((value, item) for item in sequence), True)


def _remap(source: str, target: str) -> tuple[int, ...]:
    if sorted(source) != sorted(target) or len(set(source)) != len(source) or not source.isalpha():
        raise ValueError(f"the layout {target!r} is not a permutation of {source!r}")
    return tuple(source.index(axis) for axis in target)


def _inverse(permutation: Sequence[int]) -> tuple[int, ...]:
    if sorted(permutation) != list(range(len(permutation))):
        raise ValueError(f"{short(permutation)} is not a permutation of the numbers from 0 on")
    return tuple(map(list(permutation).index, range(len(permutation))))


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "Len": len,
    "In": _contains,
    "Inverse": _inverse,
    "Reverse": lambda sequence: tuple(reversed(sequence)),
    "Range": lambda *bounds: tuple(range(*bounds)),
    "Zip": lambda *sequences: tuple(zip(*sequences)),
    "LayoutRemap": _remap,
    "abs": abs,
    "all": lambda sequence: all(boolean(item) for item in sequence),
    "any": lambda sequence: any(boolean(item) for item in sequence),
}
_FOLDS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "*": operator.mul,
    "max": BINARY["max"],
    "min": BINARY["min"],
    "&": lambda left, right: boolean(left) and boolean(right),
    "|": lambda left, right: boolean(left) or boolean(right),
}
_DEEP = 20
"""The depth from which on expressions are evaluated bottom-up."""
_UNIT: dict[str, Any] = {"+": 0, "*": 1, "&": True, "|": False}
REDUCIBLE = frozenset(_FOLDS)


def folded(node: ast.Reduce, items: Iterable[Any], start: tuple[Any, ...]) -> Any:
    """The fold of items by the operator of an expression, from the one that is given to start with, if one is."""
    values = (*start, *items)
    if node.operator in _UNIT and (not values or node.operator in "&|"):
        values = (_UNIT[node.operator], *values)
    if not values:
        raise EvaluationError(f"{node!r} reduces nothing, and {node.operator!r} has no neutral element: give init=…")
    return reduce(_FOLDS[node.operator], values)


class Evaluator:
    """Evaluates expressions in one scope, each shared sub-expression once for the same values of its symbols."""

    def __init__(self, scope: AttrScope, symbols: dict[Symbol, Any] | None = None) -> None:
        self.scope = scope
        self.symbols = {} if symbols is None else symbols
        self._closed: dict[int, tuple[Ast, Any]] = {}
        self._open: dict[int, tuple[Ast, Any]] = {}
        """Values of expressions with free symbols, for the present values of these."""
        self._running: dict[int, tuple[Ast, list[Any]]] = {}
        """The values of folds over the first indices."""

    def value(self, node: Ast) -> Any:
        """The value of the expression; EvaluationError if it has none."""
        if type(node) is ast.Literal:
            return node.value
        memo = self._open if node.symbols else self._closed
        known = memo.get(id(node))
        if known is None:
            if node.depth > _DEEP:
                self._evaluate_parts(node)
            known = memo[id(node)] = (node, self._evaluate(node))
        return known[1]

    def _memo(self, node: Ast) -> dict[int, tuple[Ast, Any]]:
        return self._open if node.symbols else self._closed

    def _evaluate_parts(self, node: Ast) -> None:
        """Evaluate the parts of a deep expression bottom-up, so that a long chain is no deep recursion."""
        stack = [(node, node.strict())]
        entered = {id(node)}
        while stack:
            part, inner = stack[-1]
            for child in inner:
                if id(child) not in entered and id(child) not in self._memo(child):
                    entered.add(id(child))
                    stack.append((child, child.strict()))
                    break
            else:
                stack.pop()
                if stack:
                    self.value(part)

    def _evaluate(self, node: Ast) -> Any:
        try:
            return _STEPS[type(node)](self, node)
        except RecursionError:  # of the caller's stack, which tells nothing of the expression
            raise
        except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
            is_symbolic = isinstance(error, TypeError) and SymDim.__name__ in str(error)
            reason = "it needs sizes that only a run tells" if is_symbolic else error
            raise EvaluationError(f"{node!r} has no value: {reason}{self._found(node)}") from error

    def _found(self, node: Ast) -> str:
        """The values of the parts of an expression, for a message."""
        found: dict[str, None] = {}
        for part in node.children():
            if not isinstance(part, ast.Literal):
                try:
                    found[f"{part!r} is {short(self.value(part))}"] = None
                except EvaluationError:
                    continue
        return f" ({', '.join(found)})" if found else ""

    def each(self, node: ast.Each, length: int | None) -> tuple[Any, ...]:
        """The values of an ``Each``, whose length may be taken from the value that it is compared with."""
        if node.over is not None:
            items: Sequence[Any] = self.value(node.over)
        elif node.length is not None:
            items = range(self.value(node.length))
        elif length is not None:
            items = range(length)
        else:
            raise EvaluationError(f"{node!r} has no length: give length=…")
        return tuple(self._values(node, items))

    def _values(self, node: ast.Each, items: Sequence[Any]) -> list[Any]:
        """The values of the body of an ``Each`` for these of its symbol."""
        outer = self.symbols, self._open
        try:
            result = []
            for item in items:
                self.symbols, self._open = {**outer[0], node.symbol: item}, {}
                result.append(self.value(node.body))
            return result
        finally:
            self.symbols, self._open = outer

    def _prefix(self, node: ast.Reduce) -> Any:
        """The fold over so many first indices of a body without other symbols, which goes on from that over fewer of
        them; ``None`` for any other fold."""
        each = node.sequence
        if node.initial is not None or node.operator in "&|" or not isinstance(each, ast.Each) or each.length is None:
            return None
        count = self.value(each.length) if each.body.symbols <= {each.symbol} else None
        if type(count) is not int or count < 1:
            return None
        _, found = self._running.setdefault(id(node), (node, []))
        for item in self._values(each, range(len(found), count)):
            found.append(_FOLDS[node.operator](found[-1], item) if found else item)
        return found[count - 1]

    def reduce(self, node: ast.Reduce) -> Any:
        """The value of a ``Reduce``."""
        found = self._prefix(node)
        if found is not None:
            return found
        start = () if node.initial is None else (self.value(node.initial),)
        return folded(node, self.value(node.sequence), start)

    def equals(self, node: Ast, actual: Any) -> tuple[bool, Any]:
        """A pair: true if the expression equals a value, and the expression's value."""
        if isinstance(node, ast.Each) and node.length is None and node.over is None:
            if not isinstance(actual, (tuple, list)):
                raise EvaluationError(f"{node!r} is a tuple, found {short(actual)}")
            expected: Any = self.each(node, len(actual))
        else:
            expected = self.value(node)
        return same(expected, actual), expected


def _symbol(evaluator: Evaluator, node: Any) -> Any:
    if node not in evaluator.symbols:
        raise EvaluationError(
            f"the symbol {node!r} is not bound here: give it as index= of a variadic, or use a function"
        )
    return evaluator.symbols[node]


def _binary(evaluator: Evaluator, node: Any) -> Any:
    left = evaluator.value(node.left)
    if node.operator == "&":
        return boolean(left) and boolean(evaluator.value(node.right))
    if node.operator == "|":
        return boolean(left) or boolean(evaluator.value(node.right))
    return BINARY[node.operator](left, evaluator.value(node.right))


def _unary(evaluator: Evaluator, node: Any) -> Any:
    operand = evaluator.value(node.operand)
    return not boolean(operand) if node.operator == "~" else -operand


def _slice(evaluator: Evaluator, node: Any) -> Any:
    value = evaluator.value
    return value(node.sequence)[slice(value(node.start), value(node.stop), value(node.step))]


def _chosen(evaluator: Evaluator, node: Any) -> Any:
    return evaluator.value(node.clauses[evaluator.scope.alternative(node.alternative, evaluator.symbols)])


_STEPS: dict[type[Ast], Callable[[Evaluator, Any], Any]] = {
    ast.Attribute: lambda e, node: e.scope.attribute(node.pattern, node.name, e.symbols),
    ast.Symbol: _symbol,
    ast.TupleOf: lambda e, node: tuple([e.value(item) for item in node.items]),
    ast.Binary: _binary,
    ast.Unary: _unary,
    ast.Item: lambda e, node: e.value(node.sequence)[e.value(node.index)],
    ast.Slice: _slice,
    ast.Function: lambda e, node: FUNCTIONS[node.name](*[e.value(operand) for operand in node.operands]),
    ast.Conditional: lambda e, node: e.value(node.then if boolean(e.value(node.condition)) else node.otherwise),
    ast.Chosen: _chosen,
    ast.Each: lambda e, node: e.each(node, None),
    ast.Reduce: lambda e, node: e.reduce(node),
}
"""The evaluation of each kind of expression from the values of its parts."""


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
    number: str | None = None, most: int = MOST,
) -> str:  # fmt: skip
    """The source of an expression; NotCompiled if there is none, or if it has more parts than ``most``.

    ``attribute`` gives the source of an attribute of a pattern, ``choice`` the number of the choice that an alternative
    has taken, if that is known; ``number`` is the source of the number for which an index stands, if it does.
    """
    left = most
    bound: dict[Symbol, str] = {}

    def write(node: Ast) -> str:
        nonlocal left, bound
        left -= 1
        if left < 0:
            raise NotCompiled
        match node:
            case ast.Literal(value):
                return names.of(value)
            case ast.Attribute(pattern, name) if node.symbols.isdisjoint(bound):
                return attribute(pattern, name)
            case ast.Each(symbol, body, None, over) if over is not None:
                items, outside, item = write(over), bound, f"item{len(bound)}"
                bound = {**outside, symbol: item}
                values, bound = write(body), outside
                return f"tuple([{values} for {item} in {items}])"
            case ast.Reduce(_, sequence, initial):
                start = "()" if initial is None else f"({write(initial)},)"
                return f"{names.of(folded)}({names.of(node)}, {write(sequence)}, {start})"
            case ast.Symbol() if node in bound:
                return bound[node]
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
            case ast.Slice(sequence, start, stop, step) if not isinstance(sequence, ast.Literal):
                return f"{write(sequence)}[{write(start)}:{write(stop)}:{write(step)}]"
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


@lru_cache(maxsize=4096)
def _function(node: Ast) -> Callable[[AttrScope, dict[Symbol, Any]], Any] | None:
    names = Names()

    def attribute(pattern: Any, name: str) -> str:
        return f"read({names.of(pattern)}, {name!r}, symbols)"

    try:
        text = source(node, names, attribute, lambda alternative: None, most=5 * MOST)
    except NotCompiled:
        return None
    exec(f"def value(scope, symbols):\n    read = scope.attribute\n    return {text}", names.table)
    found: Callable[[AttrScope, dict[Symbol, Any]], Any] = names.table["value"]
    return found


def evaluated(node: Ast, scope: AttrScope, symbols: dict[Symbol, Any]) -> Any:
    """The value of an expression that is evaluated often; one of :data:`NO_VALUE` if it has none."""
    function = _function(node)
    return Evaluator(scope, symbols).value(node) if function is None else function(scope, symbols)
