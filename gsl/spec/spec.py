"""Declarations of operators: operands, attributes, traits, and the meaning in torch.

A declaration is plain data and the same for every framework. How a framework spells the operator is a table in
that framework's front end.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from gsl.graph.types import SymDim, TensorType, TupleType, Type
from gsl.spec.examples import Example

# ---------------------------------------------------------------- values as keys


_PLAIN = frozenset((int, str, type(None)))


def exact(value: Any) -> Hashable:
    """A key that only an equal value of the same types has: it tells True, 1 and 1.0 apart, and 0.0 and -0.0.

    TypeError for what is not known to be a value that never changes.
    """
    kind = type(value)
    if kind in _PLAIN:
        return value  # type: ignore[no-any-return]
    if kind is tuple:
        return value if _PLAIN.issuperset(map(type, value)) else tuple(map(exact, value))
    if kind is float:
        return (kind, repr(value))
    if kind is list:
        return (kind, *map(exact, value))
    if kind is bool or kind is SymDim or kind is TensorType or kind is TupleType:
        return (kind, value)
    raise TypeError(f"{value!r} of type {kind.__name__} is no key")


# ---------------------------------------------------------------- declarations


Types = tuple[Type | None, ...]
"""The types of a call's operands, ``None`` where a type is not known."""


class Trait(enum.Flag):
    """Properties of operators by which a pattern can select them."""

    NONE = 0
    ELEMENT_WISE = enum.auto()
    """Each element of the result depends on the elements at the same place of the operands only."""
    BROADCASTING = enum.auto()
    """The operands are broadcast against each other."""
    COMMUTATIVE = enum.auto()
    """The first two operands may be exchanged."""
    REDUCTION = enum.auto()
    """Some axes of the operand are reduced to one element."""
    LAYOUT = enum.auto()
    """The result has the elements of the operand, moved."""
    ACTIVATION = enum.auto()
    """An element-wise function of one operand that neural networks use as an activation."""


MOST_COMPLETED: Final = 4096
"""The largest number of answers that an operator keeps."""


class _Required:
    """The default of an attribute that has none."""

    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED: Final = _Required()


class Calculus(Protocol):
    """The language of decompositions: ``o("add", x, y)`` is the value of a call, whatever stands for values."""

    def __call__(self, op: str, *operands: Any, **attrs: Any) -> Any:
        """The value of a call. All attributes are given that have no derivation."""

    def shape(self, value: Any) -> tuple[Any, ...]:
        """The shape of a value; ValueError where it is not known."""


@dataclass(frozen=True, slots=True)
class AttrSpec:
    """One attribute of an operator."""

    default: Any = REQUIRED
    normalise: Callable[[Any, Types], Any] | None = None
    """The canonical form of a value, given the types of the operands (which may be unknown). Raises ValueError for
    a value that has no meaning. Idempotent. Lists become tuples before it is called."""
    derive: Callable[[Mapping[str, Any], Types], Any] | None = None
    """The value of an attribute that follows from the operands (``kernel_size``, ``units``), or ``None`` when the types
    are not known. A target never needs to give it, and building a call recomputes it."""
    candidates: tuple[Any, ...] = ()
    """The values that verification tries, the simplest first; empty for the default, or where they depend on shapes."""


@dataclass(frozen=True, slots=True, repr=False)
class OpSpec:
    """The declaration of one operator."""

    name: str
    """Canonical name: TVM's (``nn.conv2d``), or torch's where TVM has none."""
    cls: str
    """The name of its class in ``gsl.op`` (``Conv2D``)."""
    operands: tuple[str, ...]
    meaning: Callable[..., Any]
    """``meaning(torch, *operands, **attrs)``: the operator on torch tensors, in canonical attributes, the derived ones
    left out."""
    attrs: Mapping[str, AttrSpec] = field(default_factory=dict)
    optional: int = 0
    """The number of operands at the end that may be left out."""
    traits: Trait = Trait.NONE
    fields: bool = False
    """True when the result is a tuple."""
    aliases: tuple[str, ...] = ()
    torch_names: str = ""
    """The names of torch's functions, beside its own ones, by which rule files know it. One function may be several
    operators, as ``clamp_min`` is."""
    joint: Callable[[Mapping[str, Any], Types], Mapping[str, Any]] | None = None
    """The canonical form of attributes that depend on each other (``axis`` and ``exclude``), given each of them in its
    own canonical form. Idempotent."""
    examples: tuple[Example, ...] = field(default=(), compare=False)
    """Calls on which everything that is said of the operator is tried, the plainest ones too."""
    decompose: Callable[..., Any] | None = field(default=None, compare=False)
    """``decompose(o, *operands, **attrs)``: the operator by others, in a :class:`Calculus`, up to rounding. A front end
    that has no spelling of the operator writes this, and the models of the verifier compute it."""
    carried: Callable[[Mapping[str, Any], int], Mapping[int, int]] | None = field(default=None, compare=False)
    """The axes of a first operand of that rank whose sizes are carried to the result and do nothing else, each with the
    axis of the result. Whatever they are, the call is well-typed or not, and the other sizes are the same. There may be
    more such axes."""
    _completed: dict[Any, dict[str, Any]] = field(default_factory=dict, init=False, compare=False)
    """The answers of :meth:`complete`."""

    def __repr__(self) -> str:
        return f"OpSpec({self.name!r})"

    @property
    def commutative(self) -> bool:
        return Trait.COMMUTATIVE in self.traits

    @property
    def arity(self) -> str:
        """The accepted numbers of operands, in words."""
        most = len(self.operands)
        return f"{most - self.optional} to {most}" if self.optional else str(most)

    def takes(self, count: int) -> bool:
        """True if a call may have so many operands."""
        return len(self.operands) - self.optional <= count <= len(self.operands)

    @property
    def own_attrs(self) -> dict[str, AttrSpec]:
        """The attributes that do not follow from others or from the operands."""
        return {name: attr for name, attr in self.attrs.items() if attr.derive is None}

    def normalise(self, name: str, value: Any, types: Types) -> Any:
        """The canonical form of one attribute's value; ValueError if it has none."""
        if isinstance(value, list):
            value = tuple(value)
        convert = self.attrs[name].normalise
        if convert is None:
            return value
        try:
            return convert(value, types)
        except ValueError as error:
            raise ValueError(f"{self.name}: {name}: {error}") from None

    def own(self, attrs: Mapping[str, Any]) -> dict[str, Any]:
        """The attributes among these that do not follow from others or from the operands."""
        return {name: value for name, value in attrs.items() if name not in self.attrs or not self.attrs[name].derive}

    def complete(self, given: Mapping[str, Any], types: Types) -> dict[str, Any]:
        """All attributes in canonical form: the given ones, the defaults and the derived ones.

        Equal calls share the answer, which must not be changed. Raises ValueError for a required attribute that is
        missing, KeyError for one that does not exist.
        """
        try:
            key = (tuple(given), tuple([exact(value) for value in given.values()]), types)
            known = self._completed.get(key)
        except TypeError:
            return self._complete(given, types)
        if known is None:
            if len(self._completed) >= MOST_COMPLETED:
                self._completed.clear()
            known = self._completed[key] = self._complete(given, types)
        return known

    def _complete(self, given: Mapping[str, Any], types: Types) -> dict[str, Any]:
        for name in given:
            if name not in self.attrs:
                raise KeyError(name)
        full: dict[str, Any] = {}
        for name, spec in self.attrs.items():
            if spec.derive is not None:
                continue
            value = given.get(name, spec.default)
            if value is REQUIRED:
                raise ValueError(f"{self.name}: the attribute {name!r} is required")
            full[name] = self.normalise(name, value, types)
        if self.joint is not None:
            full = dict(self.joint(full, types))
        for name, spec in self.attrs.items():
            if spec.derive is not None:
                full[name] = spec.derive(full, types)
        return full
