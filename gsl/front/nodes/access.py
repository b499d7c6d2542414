"""The user's functions that read and make the objects of a graph. Their results are checked here."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import is_
from types import FunctionType, MappingProxyType
from typing import Any, Final

from gsl.errors import FrontEndError, PicklingError
from gsl.graph import Op, op_name
from gsl.spec.natives import OpName

Operands = Callable[[Any], Iterable[Any]]
"""The objects that an object takes its inputs from, in order."""
Attributes = Callable[[Any], Mapping[str, Any]]
"""The configuration of an object by name."""
OperatorOf = Callable[[Any], Op]
"""A function that gives the kind of operation of an object: its class, a function, or a string, which patterns know as
an ``OpName``."""
Rebuild = Callable[[Op, Sequence[Any], Mapping[str, Any], Any], Any]
"""A new object from an operator, operands and attributes, and from the object that it stands for with other operands
(``None`` for one that a rule made)."""


NONE: Final[Mapping[str, Any]] = MappingProxyType({})
"""The attributes of objects of which none are known."""


def no_attributes(_: Any) -> Mapping[str, Any]:
    """The attributes of such an object."""
    return NONE


@dataclass(frozen=True)
class Access:
    """The functions by which the objects of a graph are read, made and run. FrontEndError for a task without a
    function."""

    operands: Operands
    attrs: Attributes = no_attributes
    op: OperatorOf = type
    rebuild: Rebuild | None = None
    run: Callable[..., Any] | None = None

    def __post_init__(self) -> None:
        for name in ("operands", "attrs", "op", "rebuild", "run"):
            value = getattr(self, name)
            if not callable(value) and not (value is None and name in ("rebuild", "run")):
                raise FrontEndError(f"{name}= takes a function, got {value!r} of type {type(value).__name__}")

    def __deepcopy__(self, memo: dict[int, Any]) -> Access:
        return Access(**copy.deepcopy(self.__dict__, memo))

    def __reduce__(self) -> tuple[Any, ...]:
        for name, value in self.__dict__.items():
            if isinstance(value, FunctionType) and "<" in value.__qualname__:
                raise PicklingError(
                    f"a graph of objects can't be pickled: {name}={value.__qualname__} has no name by which another "
                    "process finds it; define it with a name at the top of a module"
                )
        return Access, tuple(self.__dict__.values())

    def operands_of(self, item: Any) -> tuple[Any, ...]:
        """The operands of an object."""
        found = self._ask("operands", self.operands, item)
        known = type(found) in (tuple, list)  # which is quick to see, and usual
        if not known and (isinstance(found, (str, Mapping)) or not isinstance(found, Iterable)):
            raise FrontEndError(
                f"operands({shown(item)}) gives {found!r} of type {type(found).__name__}, expected a sequence of "
                "objects"
            )
        operands = tuple(found)
        for operand in operands:
            if operand is None:
                place = [each is None for each in operands].index(True)
                raise FrontEndError(f"operands({shown(item)}) gives None as operand {place}: leave it out")
        return operands

    def attrs_of(self, item: Any) -> Mapping[str, Any]:
        """The attributes of an object."""
        if self.attrs is no_attributes:
            return NONE
        found = self._ask("attrs", self.attrs, item)
        if not isinstance(found, (dict, Mapping)) or not all(isinstance(name, str) for name in found):
            raise FrontEndError(
                f"attrs({shown(item)}) gives {found!r} of type {type(found).__name__}, expected a mapping from names "
                "to values"
            )
        return dict(found)

    def op_of(self, item: Any) -> Op:
        """The operator of an object."""
        op = self._ask("op", self.op, item)
        if isinstance(op, str):
            return OpName(op)
        if not callable(op) or not isinstance(op, Hashable):
            raise FrontEndError(
                f"op({shown(item)}) gives {op!r} of type {type(op).__name__}, expected a class, a function or a "
                "string, as which patterns know the operator"
            )
        return op

    def make(self, op: Op, operands: Sequence[Any], attrs: Mapping[str, Any], old: Any) -> Any:
        """A new object, which has that operator and these operands."""
        if self.rebuild is None:
            raise _rebuilding(op, ": the graph can only be matched; give rebuild= to Workload.from_nodes")
        try:
            made = self.rebuild(op.name if isinstance(op, OpName) else op, operands, dict(attrs), old)
        except Exception as error:
            raise _rebuilding(op, f" failed: {type(error).__name__}: {error}") from error
        if made is None:
            raise _rebuilding(op, " gives None, expected the new object")
        if made is old:
            raise _rebuilding(
                op, " gives the old object, of which the graph before the rewrite is made: give a new one"
            )
        kind = self.op_of(made)
        if kind != op:
            raise _rebuilding(op, f" gives {shown(made)}, whose operator is {op_name(kind)}")
        found = self.operands_of(made)
        if len(found) != len(operands) or not all(map(is_, found, operands)):
            raise _rebuilding(
                op, f" gives {shown(made)}, whose operands are {_list(found)}; expected {_list(operands)}, the objects "
                "that it was given"
            )  # fmt: skip
        self.attrs_of(made)
        return made

    def inputs(self) -> tuple[str, ...]:
        """The names of the inputs on which the graph is run: the parameters of ``run`` after the first, which is the
        outputs."""
        if self.run is None:
            return ()
        parameters = list(inspect.signature(self.run).parameters.values())
        if not parameters:
            raise FrontEndError("run= is a function of the outputs, and then of the inputs, but it takes nothing")
        for parameter in parameters:
            if parameter.kind not in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
                raise FrontEndError(
                    f"run= is a function of the outputs, and then of the inputs, each by a name: {parameter} is none"
                )
        return tuple(parameter.name for parameter in parameters[1:])

    def _ask(self, name: str, function: Callable[[Any], Any], item: Any) -> Any:
        try:
            return function(item)
        except Exception as error:
            raise FrontEndError(f"{name}({shown(item)}) failed: {type(error).__name__}: {error}") from error


def _rebuilding(op: Op, problem: str) -> FrontEndError:
    return FrontEndError(f"rebuild of a {op_name(op)}{problem}")


def shown(item: Any) -> str:
    """An object in a message: by its class if its text is long."""
    text = repr(item)
    return text if len(text) <= 60 and "\n" not in text else f"<{type(item).__qualname__}>"


def _list(items: Sequence[Any]) -> str:
    return f"[{', '.join(map(shown, items))}]"
