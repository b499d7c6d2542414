"""Guards: conditions that a search asks as soon as their patterns are bound; equality of literals."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from gsl.attr import ast
from gsl.attr.ast import Ast
from gsl.attr.evaluate import Evaluator, same
from gsl.errors import EvaluationError, UndecidableError
from gsl.graph import CONST, PARAM, Node, TensorType
from gsl.match.bindings import AttrPath, MatchScope
from gsl.pat import Pattern, Variadic
from gsl.pat.variadic import references
from gsl.spec import TABLE, Trait

if TYPE_CHECKING:
    from gsl.match.engine import MatchSearch


AT_MOST_SINGLE: Final = frozenset(("float32", "float16", "bfloat16"))
"""The dtypes with which frameworks compute in single precision, or in a lower one."""


def decidedly_same(left: Any, right: Any) -> bool:
    """True if two values are equal, whatever the symbolic sizes."""
    try:
        return same(left, right)
    except UndecidableError:
        return False


def known_value(node: Node) -> Any:
    """The numbers of a weight or a literal; ``None`` where they are not known, as those of a weight without data."""
    value = node.attrs.get("value") if node.op in (PARAM, CONST) else None
    if value is None or not hasattr(value, "shape"):
        return value if isinstance(value, (bool, int, float)) else None
    odd = (str(value.dtype), str(getattr(value, "layout", "")), str(getattr(value, "device", "")), type(value).__name__)
    return None if any(word in " ".join(odd) for word in _NOT_COMPARED) else value


_NOT_COMPARED: Final = ("complex", "float8", "sparse", "qint", "quint", "meta", "FakeTensor")
"""The words that tell tensors whose elements are not compared with numbers: by dtype, layout, device, and class."""


def equal_literal(wanted: Any, actual: Any) -> bool:
    """True if a literal of the graph is the wanted one: by value, in the graph's dtype; a bool is no number.

    A wanted number equals a tensor that is filled with it.
    """
    if not hasattr(actual, "shape"):
        if hasattr(wanted, "shape"):
            wanted = wanted.item() if tuple(wanted.shape) == () else None
        return isinstance(wanted, bool) is isinstance(actual, bool) and bool(wanted == actual)
    if str(getattr(actual, "layout", "torch.strided")) != "torch.strided" or getattr(actual, "is_quantized", False):
        return False  # sparse and quantised tensors are not compared
    import numpy

    values = numpy.asarray(wanted)
    kind = str(actual.dtype).removeprefix("torch.")
    if values.shape not in ((), tuple(actual.shape)) or (values.dtype == bool) is not (kind == "bool"):
        return False
    if hasattr(wanted, "shape") and values.shape != tuple(actual.shape):
        return False  # an array is a tensor of that shape; only a number stands for any
    if "int" in kind:
        return numpy.array_equal(numpy.broadcast_to(values, tuple(actual.shape)), numpy.asarray(actual))
    if values.dtype.kind not in "biuf":
        return False
    filled = actual.new_tensor(values) if hasattr(actual, "new_tensor") else values.astype(actual.dtype)
    return bool((actual == filled).all())


def equal_in_single(wanted: Any, node: Node) -> bool:
    """True if a literal of the graph is the wanted float in single precision, and arithmetic in that is all its use.

    So the square root of two in double precision is a constant of float32, which has nine decimals.
    """
    actual = node.attrs["value"]
    if type(wanted) is not float or type(actual) is not float or not math.isclose(wanted, actual, rel_tol=1e-6):
        return False
    import numpy

    return bool(numpy.float32(wanted) == numpy.float32(actual)) and all(map(_is_single, node.users))


def _is_single(node: Node) -> bool:
    """True for element-wise arithmetic in single precision at most."""
    spec = TABLE.get(node.op) if isinstance(node.op, str) else None
    known = isinstance(node.type, TensorType) and node.type.dtype in AT_MOST_SINGLE
    return known and spec is not None and Trait.BROADCASTING in spec.traits


class Guard:
    """One condition: of a pattern (its *owner*), or of the whole match."""

    __slots__ = ("actual", "expected", "owner", "what")

    def __init__(
        self,
        owner: Pattern | None,
        what: str,
        expected: Ast,
        actual: Callable[[MatchSearch, Any, AttrPath], Any] | None,
    ) -> None:
        self.owner = owner
        self.what = what
        self.expected = expected
        self.actual = actual
        """The value that the expression must equal; without it, the expression must be true."""

    def __repr__(self) -> str:
        return f"{self.what} == {self.expected!r}" if self.actual is not None else repr(self.expected)

    def references(self) -> Iterator[Pattern]:
        """The patterns that must be bound."""
        return references(self.expected)

    def check(self, search: MatchSearch, path: AttrPath) -> bool:
        """True if the condition holds, or if its owner is part of an alternative that was not taken."""
        owner = self.owner
        node = None
        if owner is not None:
            node = search.bindings.get(owner, path)
            if node is None and not (isinstance(owner, Variadic) and (owner, path) in search.bindings.counts):
                return True
        evaluator = Evaluator(MatchScope(search.bindings, path), search.bindings.symbols(owner, path))
        actual: Any = None
        try:
            if self.actual is None:
                actual = evaluator.value(self.expected)
                holds, expected = actual is True, self.expected
                if not holds and search.on_miss is not None:
                    actual = _sides(evaluator, self.expected, actual)
            else:
                actual = self.actual(search, node, path)
                holds, expected = self.compare(evaluator, actual, node)
        except (EvaluationError, ValueError) as error:
            search.miss(owner, node, self.what, self.expected, error)
            return False
        if not holds:
            search.miss(owner, node, self.what, expected, actual)
        return holds

    def fits(self, expected: Any, actual: Any, node: Node) -> bool:
        """True if a node has the expected value, also if that is written in another form."""
        try:
            return same(expected, actual) or same(canonical(node, {self.what: expected})[self.what], actual)
        except (EvaluationError, ValueError):
            return False

    def compare(self, evaluator: Evaluator, actual: Any, node: Node | None) -> tuple[bool, Any]:
        """A pair: true if a value is the expected one, and the expected value."""
        holds, expected = evaluator.equals(self.expected, actual)
        if not holds and node is not None:
            expected = canonical(node, {self.what: expected})[self.what]
            holds = same(expected, actual)
        return holds, expected


def _sides(evaluator: Evaluator, node: Ast, value: Any) -> Any:
    """The two sides of a comparison that does not hold, as text; for any other condition, its value."""
    if isinstance(node, ast.Binary) and node.operator in ("==", "!=", "<", "<=", ">", ">="):
        return f"{evaluator.value(node.left)!r} {node.operator} {evaluator.value(node.right)!r}"
    return value


def canonical(node: Node, given: Mapping[str, Any]) -> Mapping[str, Any]:
    """The canonical form of some attributes of a call, given its others; ValueError if there is none.

    They are completed together, because the form of one may depend on another (a split's sections on its axis).
    """
    spec = TABLE.get(node.op) if isinstance(node.op, str) else None
    if spec is None or any(name not in spec.attrs for name in given):
        return given
    types = tuple([operand.type for operand in node.operands])
    others = spec.own(node.attrs)
    full = spec.complete({**others, **{n: v for n, v in given.items() if n in others}}, types)
    return {name: full[name] if name in others else spec.normalise(name, given[name], types) for name in given}
