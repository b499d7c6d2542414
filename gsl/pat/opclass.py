"""Operator classes: predicates on operators, used as the ``op`` of a call pattern.

The same class object used twice in a rule means the same operator; used in a target it is the matched one. A class that
is not ``joint`` has no such operator: each of its nodes has any.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gsl.errors import PatternError, PatternTypeError, checked, nearest
from gsl.graph import Op, op_name
from gsl.graph.node import CONST, GETITEM, INPUT, PARAM, TUPLE
from gsl.pat.base import restore, state_of
from gsl.spec import TABLE, DeclaredSpec, OperatorName, OpSpec, Trait, find
from gsl.spec.natives import OnnxOp, OpName, TVMFunction, is_of_tvm, overload_of, same_function

_KINDS = frozenset((CONST, GETITEM, INPUT, PARAM, TUPLE))


def resolve(op: Any) -> OpSpec | Op:
    """The declaration of an operator given by name, declaration or class of ``gsl.op``; else the native target.

    Raises PatternError for a name that is not known.
    """
    spec = getattr(op, "spec", op)  # a class of gsl.op holds its declaration
    if isinstance(spec, OpSpec):
        return spec
    if isinstance(op, str):
        found = find(op)
        if found is None and ("::" in op or (is_of_tvm(op) and find(op.removeprefix("relax.")) is None)):
            try:
                return overload_of(op)  # type: ignore[no-any-return]
            except LookupError as error:
                raise PatternError.here(str(error)) from None
        if found is None:
            raise PatternError.here(
                f"unknown operator {op!r}: {nearest(op, TABLE)}; a native function is given itself, and an operator "
                f"of a layer graph that is a string as pat.OpName({op!r})"
            )
        return found
    if callable(op) or isinstance(op, (OnnxOp, OpName, TVMFunction)) or type(op).__module__.startswith("tvm."):
        target: Op = overload_of(op)
        return target
    raise PatternError.here(
        f"expected an operator (its name, a class of gsl.op, an operator class such as pat.OneOf, or a native "
        f"function), got {op!r} of type {type(op).__name__}"
    )


def key(op: Any) -> Op:
    """The value of ``Node.op`` for an operator given in any way."""
    found = resolve(op)
    return found.name if isinstance(found, OpSpec) else found


def declared_operators(patterns: Iterable[Any], more: Iterable[Op]) -> tuple[DeclaredSpec, ...]:
    """The operators that users declared, among those that patterns name and some more."""
    found: dict[str, DeclaredSpec] = {}
    for op in (*(pattern.operator for pattern in patterns), *more):
        for each in op.canonical if isinstance(op, OpClass) else (op,):
            spec = each.spec if isinstance(each, OperatorName) else each
            if isinstance(spec, DeclaredSpec):
                found[spec.name] = spec
    return tuple(found.values())


class OpClass:
    """A set of operators.

    A match has one operator for the class, wherever it is used; with ``joint=False`` each node has its own.
    """

    __slots__ = ("given", "joint", "label")

    def __init__(self, label: str, members: frozenset[Op] | None, *, joint: bool = True) -> None:
        self.label = label
        self.given = members
        self.joint = joint
        """True if a match has one operator for the class."""

    @property
    def members(self) -> frozenset[Op] | None:
        """The operators, where they can be enumerated; ``None`` where only :meth:`accepts` knows."""
        return self.given

    @property
    def canonical(self) -> frozenset[str]:
        """The canonical operators among the members."""
        return frozenset(member for member in self.members or () if isinstance(member, str))

    def __repr__(self) -> str:
        return self.label

    def __getstate__(self) -> dict[str, Any]:
        return state_of(self)

    def __setstate__(self, state: dict[str, Any]) -> None:
        restore(self, state)

    def accepts(self, op: Op) -> bool:
        """True if the operator belongs to the class; leaves and tuples are no operators."""
        return op not in _KINDS if self.members is None else op in self.members

    def attributes(self) -> frozenset[str] | None:
        """The attributes that some operator of the class has; ``None`` if that can't be known."""
        if self.members is None:
            return None
        names: set[str] = set()
        for op in self.members:
            if not isinstance(op, str):
                return None
            names.update(TABLE[op].attrs)
        return frozenset(names)

    def declared(self, count: int | None, attributes: Iterable[str]) -> list[str]:
        """The operators of the class with a declaration that take so many operands, or any if that is ``None``, and
        have these attributes: the canonical ones in the order of the table, then those of users."""
        own = sorted(member for member in self.canonical if isinstance(member, OperatorName))
        return [
            name
            for name in (*TABLE, *own)
            if (TABLE[name].operands if count is None else TABLE[name].takes(count))
            and all(attribute in TABLE[name].attrs for attribute in attributes)
            and self.accepts(name)
        ]


class AnyOp(OpClass):
    """Every operator."""

    __slots__ = ()

    @checked(PatternTypeError)
    def __init__(self, *, joint: bool = True) -> None:
        super().__init__(_text("AnyOp", "", joint), None, joint=joint)


class OneOf(OpClass):
    """The given operators."""

    __slots__ = ()

    @checked(PatternTypeError)
    def __init__(self, *ops: Any, joint: bool = True) -> None:
        members = frozenset(member for op in _flat(ops) for member in _same(key(op)))
        if not members:
            raise PatternError.here("pat.OneOf: expected at least one operator")
        super().__init__(_text("OneOf", _names(ops), joint), members, joint=joint)


class NoneOf(OpClass):
    """Every operator but the given ones."""

    __slots__ = ("excluded",)

    @checked(PatternTypeError)
    def __init__(self, *ops: Any, joint: bool = True) -> None:
        super().__init__(_text("NoneOf", _names(ops), joint), None, joint=joint)
        self.excluded = frozenset(member for op in _flat(ops) for member in _same(key(op)))

    def accepts(self, op: Op) -> bool:
        return op not in _KINDS and op not in self.excluded


class OpWithTrait(OpClass):
    """The operators that have all the given traits (``op.Trait.ELEMENT_WISE``, or its name)."""

    __slots__ = ()

    @checked(PatternTypeError)
    def __init__(self, *traits: Trait | str, joint: bool = True) -> None:
        wanted = Trait.NONE
        for trait in traits:
            if isinstance(trait, str):
                if trait.upper() not in Trait.__members__:
                    names = [name.lower() for name in Trait.__members__]
                    raise PatternError.here(f"unknown trait {trait!r}: {nearest(trait.lower(), names)}")
                trait = Trait[trait.upper()]
            wanted |= trait
        if not wanted:
            raise PatternError.here("pat.OpWithTrait: expected at least one trait")
        members = frozenset(name for name, spec in TABLE.items() if wanted in spec.traits)
        named = [str(trait.name).lower() for trait in Trait if trait and trait in wanted]
        super().__init__(_text("OpWithTrait", ", ".join(map(repr, named)), joint), members, joint=joint)


def _text(name: str, arguments: str, joint: bool) -> str:
    """A class as it is written."""
    written = [part for part in (arguments, "" if joint else "joint=False") if part]
    return f"{name}({', '.join(written)})"


def _same(op: Op) -> frozenset[Op]:
    return frozenset((op,)) if isinstance(op, str) else same_function(op)


def _flat(ops: Iterable[Any]) -> Iterable[Any]:
    for op in ops:
        if isinstance(op, (list, tuple)):
            yield from op
        else:
            yield op


def _names(ops: Iterable[Any]) -> str:
    found = (op if isinstance(op, str) else key(op) for op in _flat(ops))
    return ", ".join(repr(op) if isinstance(op, str) else op_name(op) for op in found)
