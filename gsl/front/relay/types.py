"""The types of Relay's expressions as types of the view, and those of single calls of a view."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache, partial
from typing import Any, Final

import tvm
from tvm import relay, tir
from tvm.ir import diagnostics

from gsl.errors import FrontEndError
from gsl.front.core import infer as core
from gsl.front.core.handle import is_literal
from gsl.front.relay import opaque
from gsl.front.relay.spellings.table import items
from gsl.front.tvm.tensors import to_tvm
from gsl.graph import CONST, Dim, Node, Op, SymDim, TensorType, TupleType, Type
from gsl.graph.subgraph import Subgraph
from gsl.spec.meaning import has_symbols

KnownTypes = dict[int, tuple[TensorType, Any]]
"""Types without unknown sizes, by the addresses of those of Relay, which are kept beside them."""


class RelayTypes:
    """Types of the view from those of Relay.

    A size that Relay does not know (``relay.Any``) becomes a symbol of its own wherever it occurs: that two unknown
    sizes are equal is never assumed. A variable in a shape is one symbol. Symbols are numbered as they are met.
    """

    def __init__(self, known: KnownTypes | None = None) -> None:
        self._variables: dict[tir.Var, SymDim] = {}
        self._names: set[str] = set()
        self._known: KnownTypes = {} if known is None else known

    def of(self, type: Any) -> Type | None:
        """The type; ``None`` for a type without a counterpart in the view: functions, references, data types."""
        match type:
            case relay.TensorType():
                known = self._known.get(type.handle.value)
                if known is not None:
                    return known[0]
                sizes = tuple([self.dim(size) for size in items(type.shape)])
                found = TensorType(sizes, str(type.dtype))
                if all(isinstance(size, int) for size in sizes):
                    self._known[type.handle.value] = found, type
                return found
            case relay.TupleType():
                return TupleType(tuple([self.of(field) for field in items(type.fields)]))
        return None

    def dim(self, size: Any) -> Dim:
        """A size of a shape."""
        match size:
            case tir.IntImm():
                return int(size.value)
            case tir.Var():
                if size not in self._variables:
                    self._variables[size] = self._symbol(str(size.name))
                return self._variables[size]
        # An unknown size, or arithmetic with some, of which nothing is concluded either.
        return self._symbol("any")

    def _symbol(self, name: str) -> SymDim:
        import sympy

        unique, number = name, 0
        while unique in self._names or (number == 0 and name == "any"):
            unique, number = f"{name}{number}", number + 1
        self._names.add(unique)
        # A size may be zero.
        return SymDim(sympy.Symbol(unique, integer=True, nonnegative=True))


def checked_type(expr: relay.Expr) -> Any:
    """The type that Relay's type inference found for an expression; ``None`` if it has not run."""
    try:
        return expr.checked_type
    except ValueError:
        return None


def is_static(type: Any) -> bool:
    """True if all the sizes of a type of Relay are numbers."""
    match type:
        case relay.TensorType():
            return all(isinstance(size, tir.IntImm) for size in type.shape)
        case relay.TupleType():
            return all(map(is_static, type.fields))
    return False


def native_type(type: Type | None, unknown: bool = False) -> Any:
    """The type of Relay for one of the view; ``None`` if there is none.

    There is none for one with symbols, unless sizes may be ``unknown``.
    """
    match type:
        case TensorType():
            if not unknown and has_symbols(type):
                return None
            sizes = [size if isinstance(size, int) else relay.Any() for size in type.shape]
            return relay.TensorType(sizes, type.dtype)
        case TupleType():
            fields = [native_type(field, unknown) for field in type.fields]
            return None if any(field is None for field in fields) else relay.TupleType(fields)
    return None


@lru_cache(maxsize=4096)
def stand_in(number: int, type: Type | None) -> relay.Var | None:
    """A variable for the operand of that number of a new call that is tried; its own type is inferred once.

    ``None`` for a type that Relay does not have.
    """
    native = native_type(type, unknown=True)
    if native is None:
        return None
    var = relay.Var(f"x{number}", native)
    infer_local(var)
    return var


def infer_local(expr: relay.Expr) -> Any:
    """Relay's type of an expression whose parts have types; it is noted in the expression.

    Raises ValueError with Relay's reason if it is ill-typed.
    """
    with diagnosed():
        return relay.transform.InferTypeLocal(expr)


@contextmanager
def diagnosed() -> Iterator[None]:
    """Errors of TVM become ValueErrors with the reason, which Relay would print on the error stream instead."""
    with _RENDERING:
        _MESSAGES.clear()
        tvm.register_func("diagnostics.OverrideRenderer", _MADE, override=True)
        try:
            yield
        except tvm.TVMError as error:
            lines = _MESSAGES[:1] or [line.strip() for line in str(error).splitlines() if line.strip()][-1:]
            raise ValueError(lines[0] if lines else type(error).__name__) from None
        finally:
            diagnostics.override_renderer(None)


_RENDERING: Final = threading.RLock()
"""The lock for collecting errors, because TVM has one renderer for all threads."""
_MESSAGES: Final[list[str]] = []
"""The errors since the last renderer was set."""
_RENDERER: Final = diagnostics.DiagnosticRenderer(
    lambda context: _MESSAGES.extend(str(diagnostic.message) for diagnostic in context.diagnostics)
)
_MADE: Final = tvm.runtime.convert(lambda: _RENDERER)
"""The function by which TVM asks for a renderer, at each type inference."""


# ---------------------------------------------------------------- calls


def infer(module: Any, op: Op, operands: tuple[Node, ...], attrs: Mapping[str, Any]) -> Type | None:
    """The type of a call, or ``None`` if it does not follow. ValueError if the call is ill-typed.

    ``module`` has the functions that are called by name.
    """
    return core.infer(op, operands, attrs, partial(_infer_opaque, module))


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
