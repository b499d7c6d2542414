"""The parameters that the two programs of a rule share: its leaves, and the literals that have names."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, get_origin

from gsl.attr.ast import Literal
from gsl.errors import PatternError, nearest
from gsl.pat import Pattern
from gsl.programs.declared import Axis, DeclaredType, declared
from gsl.programs.source import RuleProgram

FREE: Final = "*"
"""The name of the axes of tensors of whose shape nothing is said: in one sample, all have the same."""
_FLOATS: Final = (0.8125, 0.3125, 0.4375, 0.6875, 0.5625, 0.1875)
_INTEGERS: Final = ((3, 5, 7, 4, 6), (0, 1), (1, 2))
"""Values of a literal that are tried: parts of one; sizes or numbers; axes; axes. Each literal starts with another."""
_DTYPES: Final = ("float32", "float64")
"""The dtypes of tensors of which none is said."""
_PLAIN: Final = (bool, int, float, str, type(None))


@dataclass(frozen=True, slots=True)
class RuleTensor:
    """A leaf of the rule."""

    name: str
    type: DeclaredType
    pattern: Pattern | None = None
    """The pattern that was given for it."""

    @property
    def axes(self) -> tuple[Axis, ...]:
        """The axes of its shape."""
        return (Axis(names=(FREE,), variadic=True),) if self.type.axes is None else self.type.axes

    def index(self, number: int) -> int:
        """The index into the shape of one of the axes: from the end for those behind one that is any number of them."""
        return number - len(self.axes) if any(axis.variadic for axis in self.axes[: number + 1]) else number

    @property
    def dtypes(self) -> tuple[str, ...]:
        """The dtypes that it has in samples: the usual one, and another one if it may be any of several."""
        allowed = self.type.dtypes or _DTYPES
        usual = tuple(dtype for dtype in _DTYPES if dtype in allowed)
        return usual or (("int64",) if "int64" in allowed else allowed[:2])


@dataclass(frozen=True, slots=True)
class RuleLiteral:
    """A literal or attribute that may vary."""

    name: str
    examples: tuple[tuple[Any, ...], ...]
    """Values with which the programs are traced, and others where these do not fit."""


def parameters(
    before: RuleProgram, after: RuleProgram, given: Mapping[str, Any]
) -> tuple[tuple[RuleTensor, ...], tuple[RuleLiteral, ...]]:
    """The leaves and the literals of a rule. PatternError where the two programs have others, or what is given fits
    none."""
    _check_equal(before, after)
    known = [*before.tensors, *before.literals]
    for name in given:
        if name not in known:
            raise PatternError(f"{name}= is no parameter of {before.title}: {nearest(name, known)}")
    tensors = [_tensor(name, before, after, given.get(name)) for name in before.tensors]
    literals = [_literal(name, before, after, given.get(name)) for name in before.literals]
    sizes = {size for tensor in tensors for axis in tensor.axes for size in axis.names}
    literals = [RuleLiteral(each.name, _INTEGERS[:1]) if each.name in sizes else each for each in literals]
    return tuple(tensors), tuple(literals)


def _check_equal(before: RuleProgram, after: RuleProgram) -> None:
    for what, own, other in (
        ("tensors", before.tensors, after.tensors), ("keyword-only literals", before.literals, after.literals)
    ):  # fmt: skip
        absent = [name for name in own if name not in other and name not in before.weights]
        extra = [name for name in other if name not in own]
        if absent or extra:
            raise PatternError(
                f"the parameters of the two programs are the rule's leaves, so both have the same; as {what}, "
                f"{before.title} has ({', '.join(own)}), and {after.title} has ({', '.join(other)})"
            )


def _tensor(name: str, before: RuleProgram, after: RuleProgram, given: Any) -> RuleTensor:
    said = {program.title: program.tensors.get(name) for program in (before, after)}
    known = {title: type for title, type in said.items() if type is not None}
    pattern, given = _split(given)
    if isinstance(given, str):
        if before.finished or after.finished:
            raise PatternError(
                f"{name}={given!r}: a finished graph says the shapes of its inputs itself; let it have symbolic sizes"
            )
        if name in before.weights:
            known = {}
        known["from_programs"] = declared(name, given)
    elif given is not None:
        raise PatternError(f"{name}={given!r}: expected a shape such as 'b n d', a pattern, or both, for a tensor")
    types = list(known.values())
    if not before.finished and not after.finished and any(not _agree(types[0], type) for type in types[1:]):
        listed = ", ".join(f"{type.text!r} ({title})" for title, type in known.items())
        raise PatternError(f"the shapes that are said of {name} contradict each other: {listed}")
    type = types[0] if types else DeclaredType()
    return RuleTensor(name, type if pattern is None else _demanded(name, pattern, type), pattern)


def _split(given: Any) -> tuple[Pattern | None, Any]:
    """The pattern that is given for a leaf, and what else is."""
    if isinstance(given, Pattern):
        return given, None
    if isinstance(given, tuple) and len(given) == 2 and isinstance(given[0], Pattern):
        return given
    return None, given


def _agree(left: DeclaredType, right: DeclaredType) -> bool:
    dtypes = not left.dtypes or not right.dtypes or left.dtypes == right.dtypes
    return dtypes and [axis.names for axis in left.axes or ()] == [axis.names for axis in right.axes or ()]


def _demanded(name: str, pattern: Pattern, type: DeclaredType) -> DeclaredType:
    """The type of a pattern's node, as far as the pattern tells."""
    guard = pattern.guard
    if guard is None:
        return type
    sizes = guard.shape if isinstance(guard.shape, tuple) else None
    if sizes is None and isinstance(guard.ndim, Literal):
        sizes = (None,) * guard.ndim.value
    if isinstance(guard.dtype, Literal):
        type = replace(type, dtypes=(guard.dtype.value,))
    if sizes is None or type.axes is not None:
        return type
    axes = tuple(
        Axis(size.value) if isinstance(size, Literal) else Axis(names=(f"_{name}_{place}",))
        for place, size in enumerate(sizes)
    )
    return replace(type, axes=axes)


def _literal(name: str, before: RuleProgram, after: RuleProgram, given: Any) -> RuleLiteral:
    if isinstance(given, (list, tuple)) and len(given) > 1 and all(map(_is_plain, given)):
        return RuleLiteral(name, (tuple(given),))
    if given is not None:
        raise PatternError(
            f"{name}={given!r}: {name} is a keyword-only parameter of {before.title}, so it is a literal: expected a "
            "list of two or more values to try, such as [3, 5]; a tensor is a positional parameter"
        )
    for program in (before, after):
        default = program.literals[name]
        kind = default if isinstance(default, type) else type(default)
        word = default if isinstance(default, str) else kind.__name__
        if default is inspect.Parameter.empty:
            continue
        if kind is bool or word == "bool":
            return RuleLiteral(name, ((False, True),))
        if kind is float or word == "float":
            return RuleLiteral(name, (_FLOATS,))
        if kind is int or word == "int":
            return RuleLiteral(name, _INTEGERS)
        example = _example(default)
        if example is not None:
            raise PatternError(
                f"{program.title}: the values of {name} are not known: give some to try, as {name}=[{example}]"
            )
        if default is not None and not _is_plain(default):
            raise PatternError(
                f"{program.title}: the keyword-only parameter {name} is {default!r}, which is no literal: expected a "
                "number, a string, None or a tuple of these; a tensor is a positional parameter"
            )
        if isinstance(default, str) and program.finished is False and default not in ("float", "int", "bool"):
            raise PatternError(
                f"{program.title}: the values of {name} are not known: give some to try, as {name}=[{default!r}, …]"
            )
    return RuleLiteral(name, (_FLOATS, *_INTEGERS))


def _example(hint: Any) -> str | None:
    """The values to try that a message shows for a type of which there is no list of them, ``None`` for all else."""
    if hint in (str, "str"):
        return "'relu', 'silu'"
    is_tuple = hint is tuple or get_origin(hint) is tuple or (isinstance(hint, str) and hint.startswith("tuple"))
    return "(1, 1), (2, 3)" if is_tuple else None


def _is_plain(value: Any) -> bool:
    return isinstance(value, _PLAIN) or (isinstance(value, (tuple, list)) and all(map(_is_plain, value)))


def shape_words(tensors: Sequence[RuleTensor]) -> str:
    """The shapes as they were given, for messages."""
    said = [f"{tensor.name}={tensor.type.text!r}" for tensor in tensors if tensor.type.axes is not None]
    free = [tensor.name for tensor in tensors if tensor.type.axes is None]
    words = ", ".join(said) or "nothing is said of shapes"
    return words if not free or not said else f"{words}; nothing is said of {', '.join(free)}"
