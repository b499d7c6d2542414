"""The interface of a front end: a native graph as a program that can be loaded, stored and run."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol, TypeVar, runtime_checkable

from gsl.errors import FrontEndError
from gsl.graph import Below, Graph, Node, Type
from gsl.spec import DeclaredSpec


class Program(Protocol):
    """A native graph together with the front end that understands it. Only :meth:`update` changes one."""

    @property
    def native(self) -> Any:
        """The graph in the framework's own form, as it was handed in (or its like, after a rewrite)."""

    @property
    def module(self) -> Any:
        """The graph as something that prints and runs in the framework: a ``GraphModule``, an ``IRModule``."""

    @property
    def inputs(self) -> Mapping[str, Type | None]:
        """The names of the user's inputs in order, with their types where known."""

    @property
    def params(self) -> Mapping[str, Any]:
        """The weights by name, as native tensors."""

    @property
    def example_inputs(self) -> Sequence[Any] | None:
        """The inputs that the program was made with, if it was."""

    @property
    def casts_inputs(self) -> bool:
        """True if an array of numpy, whose floats are float64 by default, is converted to the dtype of the input.

        TVM converts what it is fed, torch refuses it.
        """

    def load(self) -> Graph:
        """A fresh view of the graph."""

    def store(self, graph: Graph) -> Program:
        """The program of a rewritten view of this one. Untouched nodes come back as they were.

        Raises FrontEndError when the view holds something that the framework can't express; this program is
        unchanged in any case.
        """

    def update(self, graph: Graph) -> None:
        """Write a rewritten view of this program into the native graph from which it was loaded, in place.

        Only what changed is touched: dead nodes go, new ones stand next to where they belong. Views that were loaded
        before are void. Raises FrontEndError for what can't be written, and for a program that can't be changed in
        place; the native graph is then as it was.
        """

    def build(self, **options: Any) -> Any:
        """A callable that takes the inputs in order and returns the outputs."""

    def evaluate(self, node: Node, operands: Sequence[Any]) -> Any:
        """The value of a call node on native tensors; used to fold parameters."""


@runtime_checkable
class Scoped(Protocol):
    """An optional interface of a program: it knows the modules of its model, by which a large graph is drawn."""

    def scope(self, node: Node) -> tuple[str, ...]:
        """The names of the modules that a node of a view is part of, from the outermost one; none where unknown."""


@runtime_checkable
class Explained(Protocol):
    """An optional interface of a program: it tells why calls have no canonical reading."""

    def why_unread(self) -> Callable[[Node], str | None]:
        """A function that tells the reason for an opaque node of a view of the program, ``None`` for one that computes
        a size or another value that is no tensor."""


@runtime_checkable
class Placed(Protocol):
    """An optional interface of a program: it knows the devices of its inputs."""

    @property
    def input_devices(self) -> Mapping[str, Any]:
        """The devices of inputs by name, as torch has them, where known."""


@runtime_checkable
class Widened(Protocol):
    """An optional interface of a program: it runs in float64, which tells rounding errors from other ones."""

    def wide(self, value: Any) -> Any:
        """A tensor of narrower floats in float64, of narrower complex numbers in complex128; any other value as it is.
        """

    def in_float64(self) -> Callable[..., Any]:
        """A callable as that of :meth:`Program.build`, which takes wide inputs, and computes with wide tensors only.

        It, or the call, raises whatever the framework raises where a kernel does not take float64.
        """


@runtime_checkable
class Ranged(Protocol):
    """An optional interface of a program: it knows for which sizes it was made."""

    @property
    def size_ranges(self) -> Mapping[str, tuple[int, int | None]]:
        """The least and the largest value of symbolic sizes by name, ``None`` without a largest one."""


@runtime_checkable
class Hinted(Protocol):
    """An optional interface of a program: it knows which numbers its symbolic sizes had when it was made."""

    @property
    def size_hints(self) -> Mapping[str, int]:
        """These numbers by the names of symbols, as far as they are known."""


@runtime_checkable
class Outlined(Protocol):
    """An optional interface of a program: a look at the names of its native calls tells what no view of it has, so that
    none is made for rules that can't match."""

    def may_have(self, fits: Callable[[Below], bool]) -> bool:
        """False if nothing fits in the view, nor in that of a graph within calls.

        ``fits`` is asked of some of the calls first, in the end of all.
        """


@dataclass(frozen=True, slots=True, eq=False)
class ProgramStep:
    """One native call of a program, as it is made when the program runs."""

    name: str
    """The name in the native graph."""
    nodes: tuple[Node, ...]
    """The nodes of a view that the call computes, operands before their users; none where no view shows it."""
    key: str
    """A text of everything that the time depends on, besides the machine: the function, its arguments, their types and
    layouts."""
    weights: int
    """The number of bytes of weights that it reads."""
    native: Any


@runtime_checkable
class Stepped(Protocol):
    """An optional interface of a program: its native calls are known one by one, and can be run alone."""

    @property
    def fuses(self) -> bool:
        """True if the program is run by something that makes one loop of several calls."""

    def steps(self, graph: Graph) -> Sequence[ProgramStep]:
        """The calls that compute, in order; ``graph`` is an unchanged view that :meth:`load` made."""

    def alone(self, steps: Sequence[ProgramStep], *, copies: int = 1) -> Callable[[], object]:
        """A function that makes these calls and no others, on weights as they are and on other operands made for it.

        With ``copies``, each run takes other operands and weights than the one before, so many of them in turns.
        Raises FrontEndError where that is not possible.
        """


@runtime_checkable
class Compilable(Stepped, Protocol):
    """An optional interface of a program: a compiler can make code of some of its calls."""

    def alone_compiled(self, steps: Sequence[ProgramStep], *, copies: int = 1) -> Callable[[], object]:
        """A function as that of :meth:`Stepped.alone`, for which the calls were compiled."""


Told = TypeVar("Told", bound="Extended")


class Extended:
    """A program that may be told of operators that its users declare, of which it then reads and writes calls."""

    operators: Mapping[str, DeclaredSpec] = MappingProxyType({})
    """The operators by their names as text."""

    def with_operators(self: Told, operators: Mapping[str, DeclaredSpec]) -> Told:
        """This program with more operators; one of a known name takes the place of that one."""
        if not operators:
            return self
        new = copy.copy(self)
        new.operators = {**self.operators, **{str.__str__(name): spec for name, spec in operators.items()}}
        return new

    def __copy__(self: Told) -> Told:
        """A program that shares everything with this one."""
        new = object.__new__(type(self))
        vars(new).update(vars(self))
        return new


class Unchangeable:
    """A program whose native graph can't be changed in place."""

    def update(self, graph: Graph) -> None:
        """FrontEndError: there is no way to do so."""
        native = getattr(self, "native", self)
        raise FrontEndError(
            f"a {type(native).__name__} can't be changed in place; apply the rules to the workload, or use store: "
            "both give a new program"
        )
