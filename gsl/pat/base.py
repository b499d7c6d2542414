"""The base of all patterns: identity, typed attributes, and Python's operators as calls.

What the operators build is defined in modules that need this one, so they are imported when an operator is used:
the one place in GSL where modules refer to each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from gsl.attr import Expr
from gsl.attr.ast import Ast, Attribute, Literal, Symbol
from gsl.attr.expr import to_ast
from gsl.attr.text import listed, render
from gsl.errors import PatternError, PatternTypeError, UnknownAttributeError, caller, located, nearest
from gsl.graph import SymDim
from gsl.spec import normalise

if TYPE_CHECKING:
    from gsl.pat.call import Call, GetItem, Like
    from gsl.pat.choice import Alt, And, Not
    from gsl.pat.use import Group, Seq

TENSOR = ("shape", "dtype", "ndim")


@dataclass(frozen=True, slots=True)
class Named:
    """A keyword and its value, as they are written in a call."""

    name: str
    value: Any

    def parts(self) -> Iterator[Any]:
        """The text in parts."""
        yield f"{self.name}="
        yield self.value


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class TypeGuard:
    """What a pattern demands of the type of its node; ``None`` where it demands nothing."""

    shape: Ast | tuple[Ast | None, ...] | None = None
    dtype: Ast | None = None
    ndim: Ast | None = None

    @staticmethod
    def of(shape: Any = None, dtype: Any = None, ndim: Any = None) -> TypeGuard | None:
        """The guard of the keywords ``shape=``, ``dtype=``, ``ndim=``; ``None`` if none is given.

        Raises PatternError for what is no shape, no dtype or no number of dimensions.
        """
        if shape is None and dtype is None and ndim is None:
            return None
        return TypeGuard(
            None if shape is None else _shape(shape),
            None if dtype is None else _dtype(dtype),
            None if ndim is None else _size("ndim", ndim),
        )

    def expressions(self) -> Iterator[Ast]:
        """The expressions that the guard is made of."""
        if isinstance(self.shape, tuple):
            yield from (size for size in self.shape if size is not None)
        elif self.shape is not None:
            yield self.shape
        yield from (part for part in (self.dtype, self.ndim) if part is not None)

    def keywords(self) -> Iterator[Named]:
        """The demands as they are written."""
        for name in TENSOR:
            value = getattr(self, name)
            if isinstance(value, tuple):
                value = Sizes(value)
            if value is not None:
                yield Named(name, value)

    def parts(self) -> Iterator[Any]:
        """The text of the guard in parts."""
        return listed(self.keywords())

    def __repr__(self) -> str:
        return render(self)


@dataclass(frozen=True, slots=True)
class Sizes:
    """A shape as it is written."""

    sizes: tuple[Ast | None, ...]

    def parts(self) -> Iterator[Any]:
        """The text in parts."""
        yield "("
        yield from listed("None" if size is None else size for size in self.sizes)
        yield ",)" if len(self.sizes) == 1 else ")"


def _shape(shape: Any) -> Ast | tuple[Ast | None, ...]:
    if isinstance(shape, (tuple, list)):
        return tuple(None if size is None else _size(f"shape[{axis}]", size) for axis, size in enumerate(shape))
    if isinstance(shape, Expr):
        return shape.ast
    raise PatternError(
        located(f"shape= takes a tuple with a number, an expression or None for each dimension, got {shape!r}")
    )


def _size(what: str, size: Any) -> Ast:
    node = to_ast(size)
    if isinstance(node, Literal) and not isinstance(node.value, SymDim):
        value = node.value
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise PatternError(located(f"{what} is a number of at least 0, or an expression; got {size!r}"))
    return node


def _dtype(dtype: Any) -> Ast:
    node = to_ast(dtype)
    if not isinstance(node, Literal):
        return node
    try:
        return Literal(normalise.dtype(node.value))
    except ValueError as error:
        raise PatternError(located(f"dtype= takes the name of a dtype: {error}")) from None


class Pattern:
    """A pattern: an immutable value, compared by identity.

    The same object twice means the same graph node. Reading a name that is not a method gives an attribute
    expression: ``conv.strides``, ``x.shape``.
    """

    __slots__ = ("free_symbols", "guard", "location")
    __array_ufunc__ = None  # so that `array + pattern` asks the pattern
    free_symbols: frozenset[Symbol]
    """The symbols on which it depends which node the pattern is."""

    def __init__(self, guard: TypeGuard | None = None, **fields: Any) -> None:
        put = object.__setattr__
        put(self, "guard", guard)
        put(self, "location", caller())
        for name, value in fields.items():
            put(self, name, value)
        put(self, "free_symbols", self._depends())

    guard: TypeGuard | None

    def _depends(self) -> frozenset[Symbol]:
        own = frozenset[Symbol]().union(*(node.symbols for node in self.expressions()))
        return own.union(*(child.free_symbols for child in self.children()))

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise PatternTypeError(located(f"patterns are immutable: can't set {name!r} of {self.label}"))

    def __delattr__(self, name: str) -> NoReturn:
        raise PatternTypeError(located(f"patterns are immutable: can't delete {name!r} of {self.label}"))

    def __copy__(self) -> Pattern:
        return self

    def __deepcopy__(self, memo: Any) -> Pattern:
        return self

    @property
    def label(self) -> str:
        """How messages call the pattern where they don't write it out."""
        return type(self).__name__

    def arguments(self) -> Iterator[Any]:
        """What stands in the parentheses of the pattern's text."""
        yield from self.children()
        if self.guard is not None:
            yield from self.guard.keywords()

    def parts(self) -> Iterator[Any]:
        """The text of the pattern in parts, see :mod:`gsl.attr.text`."""
        arguments = list(self.arguments())
        yield self.label
        if arguments:
            yield "("
            yield from listed(arguments)
            yield ")"

    def __repr__(self) -> str:
        return render(self)

    def same_node(self) -> Iterator[Pattern]:
        """The patterns that this one is made of and that are the same node as it."""
        return iter(())

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
        check_names(self.label, (name,), self.readable())
        return Expr(Attribute(self, name))

    def has_shape(self, shape: Any) -> And:
        """This pattern, for nodes of that shape; ``None`` in it stands for any dimension."""
        from gsl.pat.leaf import Wildcard

        return self & Wildcard(shape=shape)

    def has_dtype(self, dtype: Any) -> And:
        """This pattern, for nodes of that dtype."""
        from gsl.pat.leaf import Wildcard

        return self & Wildcard(dtype=dtype)

    def like(self, *operands: Any, **attrs: Any) -> Like:
        """In a target: a new call with the operator and all attributes of the matched one, except those given."""
        from gsl.pat.call import Like

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

    def used_by(self, user: Any, index: int | None = None) -> Seq:
        """This node is an operand of ``user``: at ``index``, or anywhere. Written ``a > b`` or ``a ^ b``."""
        from gsl.pat.use import relate

        return relate(self, user, index)

    def only_used_by(self, user: Any, index: int | None = None) -> Seq:
        """This node is an operand of ``user``, and neither another node nor a graph output uses it: ``a >> b``."""
        from gsl.pat.use import relate

        return relate(self, user, index, only=True)

    def fork_to(self, *users: Any) -> Group:
        """This node is used by each of the users."""
        from gsl.pat.use import fork

        return fork(self, *users)

    def attr_eq(self, *others: Any, names: Any = None) -> Group:
        """Corresponding operators of this pattern and the others have equal attributes."""
        from gsl.pat.use import attr_eq

        return attr_eq(self, *others, names=names)

    def uniq(self) -> Seq:
        """This node has exactly one user."""
        from gsl.pat.use import Seq, Unique, constraints_of, head, tail

        return Seq(head(self), tail(self), (*constraints_of(self), Unique(tail(self))))

    def extern_use(self, used: bool) -> Seq:
        """This node is used outside the match (``True``), or is not."""
        from gsl.pat.use import ExternUse, Seq, constraints_of, head, tail

        return Seq(head(self), tail(self), (*constraints_of(self), ExternUse(tail(self), used)))

    def same_shape_as(self, other: Pattern) -> Pattern:
        """This pattern, for nodes of the shape of another pattern's node."""
        return self.has_shape(other.shape)

    def __gt__(self, user: Any) -> Seq:
        return self.used_by(user)

    def __xor__(self, user: Any) -> Seq:
        return self.used_by(user)

    def __rshift__(self, user: Any) -> Seq:
        return self.only_used_by(user)

    def __or__(self, other: Any) -> Alt:
        from gsl.pat.choice import Alt

        return Alt(self, other)

    def __and__(self, other: Any) -> And:
        from gsl.pat.choice import And

        return And(self, other)

    def __invert__(self) -> Not:
        from gsl.pat.choice import Not

        return Not(self)

    def __getitem__(self, index: Any) -> GetItem:
        from gsl.pat.call import GetItem

        return GetItem(self, index)

    def __bool__(self) -> NoReturn:
        raise PatternTypeError(
            located(f"a pattern ({self.label}) has no truth value: combine patterns with & | ~ (not and, or, not)")
        )

    def __iter__(self) -> NoReturn:
        raise PatternTypeError(
            located(
                f"a pattern ({self.label}) can't be iterated or unpacked: how many fields there are is known at a "
                "match only; write p[0], p[1], or pat.Variadic"
            )
        )

    def __contains__(self, item: object) -> NoReturn:
        raise PatternTypeError(
            located(f"'in' is not defined for patterns ({self.label}): pat.walk(p) gives what p is made of")
        )

    def __len__(self) -> NoReturn:
        raise PatternTypeError(located(f"a pattern ({self.label}) has no length before a match"))


def _call(op: str, *operands: Any) -> Call:
    from gsl.pat.call import Call

    return Call(op, *operands)


def check_names(owner: str, names: Iterable[str], known: frozenset[str] | None) -> None:
    """Raise UnknownAttributeError for the first name that is not among the known attributes (``None``: all are)."""
    for name in names:
        if known is not None and name not in known:
            raise UnknownAttributeError(located(f"{owner} has no attribute {name!r}: {nearest(name, known)}"))


def same_attr(pattern: Pattern, names: Sequence[str]) -> dict[str, Expr]:
    """The dictionary ``{name: pattern.name}``, to be passed on with ``**``."""
    return {name: getattr(pattern, name) for name in names}


def walk(*roots: Pattern) -> Iterator[Pattern]:
    """Every pattern that the roots are made of, each once, operands before users."""
    done: set[Pattern] = set()
    stack: list[tuple[Pattern, Iterator[Pattern]]] = []
    for root in roots:
        if root not in done:
            stack.append((root, root.children()))
            done.add(root)
        while stack:
            pattern, children = stack[-1]
            for child in children:
                if child not in done:
                    done.add(child)
                    stack.append((child, child.children()))
                    break
            else:
                stack.pop()
                yield pattern
