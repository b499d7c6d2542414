"""Operators that users declare: names that bring their declarations with them, so that no table has to hold them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final

from gsl.errors import PicklingError
from gsl.graph.node import Graph
from gsl.spec.spec import OpSpec, Types


class OperatorName(str):
    """The name of an operator that a user declared, with its declaration.

    It is the operator of the nodes that call it. Names of two declarations are never equal, so that two programs may
    mean different things by one name; a text that is the same is equal to both.
    """

    __slots__ = ("spec",)
    spec: DeclaredSpec

    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other or (type(other) is str and str.__eq__(self, other))

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __str__(self) -> str:
        return self

    def __deepcopy__(self, memo: Any) -> OperatorName:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return _named, self.spec.place()


@dataclass(frozen=True, slots=True, eq=False)
class DeclaredSpec(OpSpec):
    """The declaration of a user's operator: its meaning is a function of the user's."""

    home: tuple[str, str] = ("", "")
    """The module in which it is declared, and its name there."""
    leaves: Mapping[str, Any] = field(default_factory=dict)
    """The shapes of its operands and the values of its attributes, as far as they are said."""
    shapes: Mapping[str, Any] = field(default_factory=dict)
    """The types of its operands as far as they are said, each a ``gsl.programs.declared.DeclaredType``."""
    traced: Callable[[Types, Mapping[str, Any]], Graph] | None = None
    """The graph of the meaning for operands of these types. FrontEndError or PatternError where it has none."""
    native: Any = None
    """The operator of ``torch.library``, see :class:`gsl.front.fx.custom.TorchOperator`."""

    def __post_init__(self) -> None:
        if type(self.name) is not OperatorName:
            name = OperatorName(self.name)
            name.spec = self
            object.__setattr__(self, "name", name)

    def body(self, types: Types, attrs: Mapping[str, Any]) -> Graph:
        """The graph that a call computes, with an input for each operand, which must not be changed.

        FrontEndError or PatternError where the meaning can't be traced with these types.
        """
        assert self.traced is not None
        return self.traced(types, {name: attrs[name] for name in self.attrs if name in attrs})

    def place(self) -> tuple[str, str]:
        """The module and the name by which another process finds the operator. PicklingError where it does not."""
        module, name = self.home
        if "<" in name or module == "__main__":
            raise PicklingError(
                f"the operator {self.cls} ({str.__str__(self.name)}) can't be pickled: it has no name by which another "
                "process finds it; declare it at the top of a module"
            )
        return self.home

    def __deepcopy__(self, memo: Any) -> DeclaredSpec:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return _declared, self.place()


def _declared(module: str, name: str) -> DeclaredSpec:
    """The declaration of the operator that stands in a module under a name."""
    import importlib

    found: DeclaredSpec = getattr(importlib.import_module(module), name).spec
    return found


def _named(module: str, name: str) -> str:
    """The name of that operator."""
    return _declared(module, name).name


class Vocabulary(dict[str, OpSpec]):
    """Declarations by canonical name, where the name of a user's operator has its own with it."""

    __slots__ = ()

    def __missing__(self, name: Any) -> OpSpec:
        if type(name) is OperatorName:
            return name.spec
        raise KeyError(name)

    def __contains__(self, name: object) -> bool:
        return dict.__contains__(self, name) or type(name) is OperatorName

    def get(self, name: Any, default: Any = None) -> Any:
        """The declaration of that name, or the default."""
        found = dict.get(self, name)
        if found is not None:
            return found
        return name.spec if type(name) is OperatorName else default


# ---------------------------------------------------------------- calls in a meaning

_INSIDE: Final[ContextVar[bool]] = ContextVar("_INSIDE", default=False)


def computed(function: Callable[..., Any]) -> Callable[..., Any]:
    """A meaning in which calls of other users' operators are their meanings: they may have no kernel here."""

    def run(*operands: Any, **attrs: Any) -> Any:
        token = _INSIDE.set(True)
        try:
            return function(*operands, **attrs)
        finally:
            _INSIDE.reset(token)

    return run


def is_inside_meaning() -> bool:
    """True while the values or the types of a meaning are computed."""
    return _INSIDE.get()


# ---------------------------------------------------------------- calls while a program is traced

_CALLED: Final[ContextVar[dict[str, DeclaredSpec] | None]] = ContextVar("_CALLED", default=None)


@contextmanager
def noted_calls() -> Iterator[dict[str, DeclaredSpec]]:
    """The declarations of users' operators that are called on tensors within the block, by name."""
    calls: dict[str, DeclaredSpec] = {}
    token = _CALLED.set(calls)
    try:
        yield calls
    finally:
        _CALLED.reset(token)


def is_noting_calls() -> bool:
    """True within a block of :func:`noted_calls`."""
    return _CALLED.get() is not None


def note_call(spec: DeclaredSpec) -> bool:
    """Note a call for the program that is being traced; False if none is."""
    calls = _CALLED.get()
    if calls is None:
        return False
    calls[spec.name] = spec
    return True
