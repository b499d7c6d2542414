"""The base of all patterns: identity, typed attributes, and Python's operators as calls."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from gsl.attr import Expr
from gsl.attr.ast import Ast, Attribute, Symbol
from gsl.attr.expr import to_ast
from gsl.errors import PatternTypeError, UnknownAttributeError, caller, nearest

if TYPE_CHECKING:
    from gsl.pat.nodes import Alt, And, Call, GetItem, Like, Not

TENSOR = ("shape", "dtype", "ndim")


@dataclass(frozen=True, slots=True, eq=False)
class TypeGuard:
    """What a pattern demands of the type of its node; ``None`` where it demands nothing."""

    shape: Ast | tuple[Ast | None, ...] | None = None
    dtype: Ast | None = None
    ndim: Ast | None = None

    @staticmethod
    def of(shape: Any, dtype: Any, ndim: Any) -> TypeGuard | None:
        """The guard of the keywords ``shape=``, ``dtype=``, ``ndim=``; ``None`` if none is given."""
        if shape is None and dtype is None and ndim is None:
            return None
        form: Ast | tuple[Ast | None, ...] | None = None
        if isinstance(shape, (tuple, list)):
            form = tuple(None if size is None else to_ast(size) for size in shape)
        elif shape is not None:
            form = to_ast(shape)
        return TypeGuard(form, None if dtype is None else to_ast(dtype), None if ndim is None else to_ast(ndim))

    def expressions(self) -> Iterator[Ast]:
        """The expressions that the guard is made of."""
        if isinstance(self.shape, tuple):
            yield from (size for size in self.shape if size is not None)
        elif self.shape is not None:
            yield self.shape
        yield from (part for part in (self.dtype, self.ndim) if part is not None)


class Pattern:
    """A pattern: an immutable value, compared by identity.

    The same object twice means the same graph node. Reading a name that is not a method gives an attribute
    expression: ``conv.strides``, ``x.shape``.
    """

    __slots__ = ("guard", "location")
    __array_ufunc__ = None  # so that `array + pattern` asks the pattern

    def __init__(self, guard: TypeGuard | None = None, **fields: Any) -> None:
        put = object.__setattr__
        put(self, "guard", guard)
        put(self, "location", caller())
        for name, value in fields.items():
            put(self, name, value)

    guard: TypeGuard | None

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise PatternTypeError(f"patterns are immutable: can't set {name!r} of {self.label}")

    def __delattr__(self, name: str) -> NoReturn:
        raise PatternTypeError(f"patterns are immutable: can't delete {name!r} of {self.label}")

    def __copy__(self) -> Pattern:
        return self

    def __deepcopy__(self, memo: Any) -> Pattern:
        return self

    @property
    def label(self) -> str:
        """How messages call the pattern."""
        return type(self).__name__

    def __repr__(self) -> str:
        return self.label

    @property
    def free_symbols(self) -> frozenset[Symbol]:
        """The symbols on which it depends which node the pattern is."""
        return frozenset()

    def children(self) -> Iterator[Pattern]:
        """The patterns that this one is made of."""
        return iter(())

    def expressions(self) -> Iterator[Ast]:
        """The attribute expressions in this pattern, not those of its children."""
        if self.guard is not None:
            yield from self.guard.expressions()

    def readable(self) -> frozenset[str] | None:
        """The attributes that can be read; ``None`` if that is only known of the matched node."""
        return frozenset(TENSOR)

    def __getattr__(self, name: str) -> Expr:
        if name.startswith("_"):
            raise AttributeError(name)
        known = self.readable()
        if known is not None and name not in known:
            raise UnknownAttributeError(f"{self.label} has no attribute {name!r}: {nearest(name, known)}")
        return Expr(Attribute(self, name))

    def constrained(self, guard: TypeGuard) -> Pattern:
        """A new pattern like this one with a further demand on its type."""
        from gsl.pat.nodes import And, Wildcard

        return And(self, Wildcard._of(guard))

    def has_shape(self, shape: Any) -> Pattern:
        """This pattern, for nodes of that shape; ``None`` in it stands for any dimension."""
        return self.constrained(TypeGuard.of(shape, None, None) or TypeGuard())

    def has_dtype(self, dtype: Any) -> Pattern:
        """This pattern, for nodes of that dtype."""
        return self.constrained(TypeGuard.of(None, dtype, None) or TypeGuard())

    def like(self, *operands: Any, **attrs: Any) -> Like:
        """In a target: a new call with the operator and all attributes of the matched one, except those given."""
        from gsl.pat.nodes import Like

        return Like(self, operands, attrs)

    def __add__(self, other: Any) -> Call:
        return _call("add", self, other)

    def __radd__(self, other: Any) -> Call:
        return _call("add", other, self)

    def __sub__(self, other: Any) -> Call:
        return _call("subtract", self, other)

    def __rsub__(self, other: Any) -> Call:
        return _call("subtract", other, self)

    def __mul__(self, other: Any) -> Call:
        return _call("multiply", self, other)

    def __rmul__(self, other: Any) -> Call:
        return _call("multiply", other, self)

    def __truediv__(self, other: Any) -> Call:
        return _call("divide", self, other)

    def __rtruediv__(self, other: Any) -> Call:
        return _call("divide", other, self)

    def __matmul__(self, other: Any) -> Call:
        return _call("matmul", self, other)

    def __rmatmul__(self, other: Any) -> Call:
        return _call("matmul", other, self)

    def __neg__(self) -> Call:
        return _call("negative", self)

    def __or__(self, other: Any) -> Alt:
        from gsl.pat.nodes import Alt

        return Alt(self, other)

    def __and__(self, other: Any) -> And:
        from gsl.pat.nodes import And

        return And(self, other)

    def __invert__(self) -> Not:
        from gsl.pat.nodes import Not

        return Not(self)

    def __getitem__(self, index: Any) -> GetItem:
        from gsl.pat.nodes import GetItem

        return GetItem(self, index)

    def __bool__(self) -> NoReturn:
        raise PatternTypeError(
            f"a pattern ({self.label}) has no truth value: combine patterns with & | ~ (not and, or, not)"
        )

    def __iter__(self) -> NoReturn:
        raise PatternTypeError(
            f"a pattern ({self.label}) can't be iterated or unpacked: how many fields there are is known at a match "
            "only; write p[0], p[1], or pat.Variadic"
        )

    def __contains__(self, item: object) -> NoReturn:
        raise PatternTypeError(f"'in' is not defined for patterns ({self.label})")

    def __len__(self) -> NoReturn:
        raise PatternTypeError(f"a pattern ({self.label}) has no length before a match")


def _call(op: str, *operands: Any) -> Call:
    from gsl.pat.nodes import Call

    return Call(op, *operands)

