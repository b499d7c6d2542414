"""The base of all patterns: identity, typed attributes, and Python's operators as calls.

What the operators build is defined in modules that need this one, so they are imported when an operator is used:
the one place in GSL where modules refer to each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NoReturn

from gsl.attr import Expr
from gsl.attr.ast import Ast, Attribute, Symbol
from gsl.attr.text import listed, render
from gsl.errors import PatternTypeError, UnknownAttributeError, caller, checked, nearest
from gsl.pat.typed import TENSOR, TypeGuard
from gsl.spec import TABLE, DeclaredSpec, OperatorName, OpSpec
from gsl.walk import postorder

if TYPE_CHECKING:
    from gsl.pat.call import Call, GetItem, Like
    from gsl.pat.choice import Alt, And, Not
    from gsl.pat.use import Group, Seq

PatternMethod = Callable[["Pattern", Any], "Call"]


def _operator(name: str) -> tuple[PatternMethod, PatternMethod]:
    """The methods of an operator of Python: for a pattern on its left, and for one on its right only."""
    return lambda self, other: _call(name, self, other), lambda self, other: _call(name, other, self)


def _refused(symbol: str, instead: str) -> Callable[..., NoReturn]:
    """The method of an operator or a function of Python that builds no call."""

    def refuse(self: Pattern, *others: Any) -> NoReturn:
        raise PatternTypeError.here(f"{symbol} builds no call of patterns: write {instead}")

    return refuse


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
        raise PatternTypeError.here(f"patterns are immutable: can't set {name!r} of {self.label}")

    def __delattr__(self, name: str) -> NoReturn:
        raise PatternTypeError.here(f"patterns are immutable: can't delete {name!r} of {self.label}")

    def __copy__(self) -> Pattern:
        return self

    def __deepcopy__(self, memo: Any) -> Pattern:
        return self

    def __getstate__(self) -> dict[str, Any]:
        return state_of(self)

    def __setstate__(self, state: dict[str, Any]) -> None:
        restore(self, state)

    def __array_function__(self, function: Any, *_: Any) -> NoReturn:
        raise PatternTypeError.here(
            f"numpy's {function.__name__} can't compute with a pattern ({self!r}): write a call of a class of gsl.op"
        )

    @property
    def label(self) -> str:
        """The name of the pattern in messages that don't write it out."""
        return type(self).__name__

    def arguments(self) -> Iterator[Any]:
        """The arguments in the parentheses of the pattern's text."""
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

    @property
    def operator(self) -> Any:
        """The operator that a node of the pattern has in any case; ``None`` where the pattern does not tell."""
        return None

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
        return self._of_type("shape", shape)

    def has_dtype(self, dtype: Any) -> And:
        """This pattern, for nodes of that dtype."""
        return self._of_type("dtype", dtype)

    def has_ndim(self, ndim: Any) -> And:
        """This pattern, for nodes of that number of dimensions."""
        return self._of_type("ndim", ndim)

    def _of_type(self, name: str, value: Any) -> And:
        from gsl.pat.leaf import Wildcard

        if value is None:
            raise PatternTypeError.here(f"has_{name} takes what is demanded, got None; where any will do, leave it out")
        return self & Wildcard(**{name: value})

    def like(self, *operands: Any, **attrs: Any) -> Like:
        """A new call, in a target, with the operator and all attributes of the matched one, except those given."""
        from gsl.pat.call import Like

        return Like(self, operands, attrs)

    __add__, __radd__ = _operator("add")
    __sub__, __rsub__ = _operator("subtract")
    __mul__, __rmul__ = _operator("multiply")
    __truediv__, __rtruediv__ = _operator("divide")
    __matmul__, __rmatmul__ = _operator("matmul")

    __pow__ = __rpow__ = _refused("**", "op.Power(a, b)")
    __mod__ = __rmod__ = _refused("%", "op.FloorMod(a, b)")
    __floordiv__ = __rfloordiv__ = _refused("//", "op.FloorDivide(a, b)")
    __abs__ = _refused("abs", "op.Abs(a)")
    __round__ = _refused("round", "op.Round(a)")

    def __neg__(self) -> Call:
        return _call("negative", self)

    @checked(PatternTypeError)
    def used_by(self, user: Any, index: int | None = None) -> Seq:
        """This node is an operand of ``user``: at ``index``, or anywhere. Written ``a > b`` or ``a ^ b``."""
        from gsl.pat.use import relate

        return relate(self, user, index)

    @checked(PatternTypeError)
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
        """This node has exactly one user; to be an output of the graph counts as one."""
        from gsl.pat.use import Unique, constrained

        return constrained(self, Unique)

    def extern_use(self, used: bool) -> Seq:
        """This node is used outside the match (``True``), or is not; to be an output of the graph counts as a use."""
        from gsl.pat.use import ExternUse, constrained

        if not isinstance(used, bool):
            raise PatternTypeError.here(f"extern_use takes True or False, got {used!r}")
        return constrained(self, ExternUse, used)

    def is_output(self) -> Seq:
        """This node is an output of the graph; others may use it too."""
        from gsl.pat.use import IsOutput, constrained

        return constrained(self, IsOutput)

    @checked(PatternTypeError)
    def has_attr(self, attrs: Mapping[str, Any] | None = None, **named: Any) -> And:
        """This pattern, for calls with these attributes."""
        from gsl.pat.call import Call
        from gsl.pat.opclass import AnyOp

        return self & Call._free(self.operator or AnyOp(), {**(attrs or {}), **named})

    @checked(PatternTypeError)
    def optional(self, make: Callable[[Pattern], Pattern]) -> Alt:
        """The pattern that ``make`` builds on this one, or this one alone: ``conv.optional(is_op("nn.relu"))``."""
        from gsl.pat.variadic import Maybe

        return Maybe(make(self), on=self)

    @checked(PatternTypeError)
    def same_shape_as(self, other: Pattern) -> Pattern:
        """This pattern, for nodes of the shape of another pattern's node."""
        return self.has_shape(other.shape)

    def __gt__(self, user: Any) -> Seq:
        return self.used_by(user)

    def __lt__(self, other: Any) -> NoReturn:
        from gsl.pat.use import refuse_less

        refuse_less(self, other)

    def __xor__(self, user: Any) -> Seq:
        return self.used_by(user)

    def __rxor__(self, operand: Any) -> Seq:
        from gsl.pat.use import relate

        return relate(operand, self)

    def __rshift__(self, user: Any) -> Seq:
        return self.only_used_by(user)

    def __rrshift__(self, operand: Any) -> Seq:
        from gsl.pat.use import relate

        return relate(operand, self, only=True)

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
        raise PatternTypeError.here(
            f"a pattern ({self.label}) has no truth value: combine patterns with & | ~ (not and, or, not); "
            "of relations write (a > b) > c or a ^ b ^ c, not a > b > c, which Python takes apart"
        )

    def __iter__(self) -> NoReturn:
        raise PatternTypeError.here(
            f"a pattern ({self.label}) can't be iterated or unpacked: how many fields there are is known at a "
            "match only; write p[0], p[1], or pat.Variadic"
        )

    def __contains__(self, item: object) -> NoReturn:
        raise PatternTypeError.here(
            f"'in' is not defined for patterns ({self.label}): pat.walk(p) gives what p is made of"
        )

    def __len__(self) -> NoReturn:
        raise PatternTypeError.here(f"a pattern ({self.label}) has no length before a match")


def _call(op: str, *operands: Any) -> Call:
    from gsl.pat.call import Call

    return Call(op, *operands)


_OF_TORCH: Final = {"dim": "axis", "dims": "axes", "p": "rate"}
"""Attributes by their names in torch that are like no name of theirs here."""


def check_names(owner: str, names: Iterable[str], known: frozenset[str] | None) -> None:
    """Raise UnknownAttributeError for the first name that is not among the known attributes (``None``: all are)."""
    for name in names:
        if known is not None and name not in known:
            meant = _OF_TORCH.get(name)
            end = f"did you mean {meant!r}?" if meant in known else nearest(name, known)
            made = next((spec.cls for spec in TABLE.values() if spec.name.rpartition(".")[2] == name), None)
            call = "" if made is None else f"; the call is written op.{made}(…)"
            raise UnknownAttributeError.here(f"{owner} has no attribute {name!r}: {end}{call}")


@checked(PatternTypeError)
def same_attr(pattern: Pattern, names: Sequence[str]) -> dict[str, Expr]:
    """The dictionary ``{name: pattern.name}``, to be passed on with ``**``."""
    if isinstance(names, str):
        raise PatternTypeError.here(f"names= of same_attr is a list of names, got {names!r}: write [{names!r}]")
    return {name: getattr(pattern, name) for name in names}


def walk(*roots: Pattern) -> Iterator[Pattern]:
    """Every pattern that the roots are made of, each once, operands before users."""
    return postorder(roots, lambda pattern: pattern.children())


# ---------------------------------------------------------------- pickling, also of classes of operators


@dataclass(frozen=True, slots=True)
class _Declared:
    """The declaration of an operator, by its name."""

    name: str


@dataclass(frozen=True, slots=True)
class _Overload:
    """An overload of an operator of torch, which can't be pickled itself, by its names."""

    namespace: str
    name: str
    overload: str


def state_of(item: Any) -> dict[str, Any]:
    """The fields of an object, as they are pickled."""
    names = [name for kind in reversed(type(item).__mro__) for name in getattr(kind, "__slots__", ())]
    found = {name: getattr(item, name) for name in names} | getattr(item, "__dict__", {})
    return {name: packed(value) for name, value in found.items()}


def restore(item: Any, state: Mapping[str, Any]) -> None:
    """Fill the fields of a new object."""
    for name, value in state.items():
        object.__setattr__(item, name, unpacked(value))


def packed(value: Any) -> Any:
    """A value in a form that can be pickled."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, frozenset):
        return frozenset(map(packed, value))
    if isinstance(value, DeclaredSpec):
        return value.name  # which is pickled by its place
    if isinstance(value, OpSpec):
        return _Declared(value.name)
    if type(value).__name__ == "OpOverload":
        namespace, _, name = value._schema.name.partition("::")
        return _Overload(namespace, name, value._overloadname)
    return value


def unpacked(value: Any) -> Any:
    """The value that was packed."""
    if isinstance(value, dict):
        return MappingProxyType(value)
    if isinstance(value, frozenset):
        return frozenset(map(unpacked, value))
    if isinstance(value, OperatorName):
        return value.spec
    if isinstance(value, _Declared):
        return TABLE[value.name]
    if isinstance(value, _Overload):
        import torch

        return getattr(getattr(getattr(torch.ops, value.namespace), value.name), value.overload)
    return value
