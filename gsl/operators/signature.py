"""The parameters and the results of a function that is an operator's meaning."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gsl.errors import Location, PatternError, nearest
from gsl.programs.declared import annotated, hints_of
from gsl.spec import REQUIRED, AttrSpec
from gsl.spec import normalise as n
from gsl.spec.normalise import Normaliser


def _text(value: Any, types: Any = ()) -> str:
    if not isinstance(value, str):
        raise n.wrong(value, "a string")
    return value


def _reals(value: Any, types: Any = ()) -> tuple[float, ...]:
    return tuple(map(n.real, n.sequence(value)))


def _whole(value: Any, types: Any = ()) -> Any:
    """A whole number; also one that stands in arithmetic of floats, as Relax and ONNX write ``x + 3``."""
    return n.integer(int(value) if isinstance(value, float) and value.is_integer() else value)


@dataclass(frozen=True, slots=True)
class AttributeKind:
    """The type of an attribute: its canonical form, and the types that it may have in a schema of torch."""

    normalise: Normaliser
    schema: tuple[str, ...]


_KINDS: Final[Mapping[Any, AttributeKind]] = {
    float: AttributeKind(n.real, ("float", "number")),
    int: AttributeKind(_whole, ("int", "SymInt", "number")),
    bool: AttributeKind(n.flag, ("bool",)),
    str: AttributeKind(_text, ("str",)),
    tuple[int, ...]: AttributeKind(n.integers, ("int[]", "List[int]", "SymInt[]", "List[SymInt]")),
    tuple[float, ...]: AttributeKind(_reals, ("float[]", "List[float]")),
}
_LISTS: Final = {list[int]: tuple[int, ...], list[float]: tuple[float, ...]}
_WORDS: Final = {"float": float, "int": int, "bool": bool, "str": str}
_EXPECTED: Final = "float, int, bool, str, tuple[int, ...], tuple[float, ...], or one of these or None"


@dataclass(frozen=True, slots=True)
class Meaning:
    """A function that is the meaning of an operator, with what its annotations say."""

    function: Callable[..., Any]
    title: str
    """Its name, and where it was written."""
    tensors: tuple[str, ...]
    optional: int
    """The number of tensors at the end that may be left out."""
    attrs: Mapping[str, AttrSpec]
    schemas: Mapping[str, tuple[str, ...]]
    """The types in a schema of torch of all parameters, in order."""
    results: int
    is_tuple: bool
    hints: Mapping[str, Any]
    """The annotations."""


def meaning_of(name: str, function: Callable[..., Any]) -> Meaning:
    """The meaning of the operator of that name. PatternError with the place, what was expected, and the mend."""
    if not inspect.isfunction(function):
        raise PatternError(f"the meaning of an operator is a function of tensors, got {function!r}")
    code = function.__code__
    title = f"{name} ({Location(code.co_filename, code.co_firstlineno)})"
    hints = hints_of(function)
    tensors: list[str] = []
    optional = 0
    attrs: dict[str, AttrSpec] = {}
    schemas: dict[str, tuple[str, ...]] = {}
    for parameter in inspect.signature(function).parameters.values():
        own = parameter.name
        if parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
            raise PatternError(f"{title}: {parameter} stands for any number of parameters; write them out")
        if own not in hints:
            raise PatternError(
                f"{title}: the parameter {own} has no annotation: annotate tensors with Tensor, attributes with their "
                "types, and the result, too"
            )
        kind, may_be_none = _unwrapped(hints[own])
        if _is_tensor(own, kind):
            if parameter.kind is inspect.Parameter.KEYWORD_ONLY:
                raise PatternError(f"{title}: {own} is a tensor, so it is a positional parameter: put it before the *")
            if parameter.default not in (inspect.Parameter.empty, None):
                raise PatternError(f"{title}: the default of the tensor {own} can only be None")
            if may_be_none and parameter.default is inspect.Parameter.empty:
                raise PatternError(
                    f"{title}: the tensor {own} may be None, so it may be left out: give it the default None, "
                    f"{own}: Tensor | None = None"
                )
            if optional and parameter.default is not None:
                raise PatternError(f"{title}: the tensor {own} stands behind one that may be left out; put it before")
            optional += parameter.default is None
            tensors.append(own)
            schemas[own] = ("Tensor?", "Optional[Tensor]") if may_be_none else ("Tensor",)
            continue
        if parameter.kind is not inspect.Parameter.KEYWORD_ONLY:
            raise PatternError(
                f"{title}: {own} is annotated with {_named(hints[own])}, and a positional parameter is a tensor; "
                "attributes are keyword-only: put a * before them"
            )
        attrs[own], schemas[own] = _attribute(title, own, kind, may_be_none, parameter.default)
    if "return" not in hints:
        raise PatternError(f"{title}: the result has no annotation: -> Tensor, or -> tuple[Tensor, Tensor]")
    results, is_tuple = _results(title, hints["return"])
    return Meaning(function, title, tuple(tensors), optional, attrs, schemas, results, is_tuple, hints)


def _unwrapped(hint: Any) -> tuple[Any, bool]:
    """A type without ``| None``, and whether it was there."""
    if isinstance(hint, str):
        bare = hint.removesuffix("| None").strip()
        return bare, bare != hint
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        rest = [part for part in typing.get_args(hint) if part is not type(None)]
        return (rest[0], True) if len(rest) == 1 else (hint, False)
    return hint, False


def _is_tensor(parameter: str, hint: Any) -> bool:
    if isinstance(hint, str):
        return hint.rpartition(".")[2] == "Tensor" or annotated(parameter, hint) is not None
    is_torch = getattr(hint, "__name__", "") == "Tensor" and hint.__module__.startswith("torch")
    return is_torch or annotated(parameter, hint) is not None


def _attribute(title: str, name: str, kind: Any, may_be_none: bool, default: Any) -> tuple[AttrSpec, tuple[str, ...]]:
    kind = _WORDS.get(kind, kind) if isinstance(kind, str) else _LISTS.get(kind, kind)
    try:
        found = _KINDS.get(kind)
    except TypeError:
        found = None
    if found is None:
        raise PatternError(
            f"{title}: the attribute {name} is annotated with {_named(kind)}, which is no literal: expected {_EXPECTED}"
        )
    own = AttrSpec(REQUIRED, n.optional(found.normalise) if may_be_none else found.normalise)
    schema = found.schema
    if may_be_none:
        schema = tuple(text for each in schema for text in (f"{each}?", f"Optional[{each}]"))
    if default is inspect.Parameter.empty:
        return own, schema
    try:
        assert own.normalise is not None
        value = own.normalise(tuple(default) if isinstance(default, list) else default, ())
    except ValueError as error:
        raise PatternError(f"{title}: the default of {name} is no literal of its type: {error}") from None
    return AttrSpec(value, own.normalise), schema


def _results(title: str, hint: Any) -> tuple[int, bool]:
    if isinstance(hint, str):
        text = hint.removeprefix("typing.")
        if text.lower().startswith("tuple["):
            return len(text[6:-1].split(",")), True
        return 1, False
    if typing.get_origin(hint) is tuple:
        fields = typing.get_args(hint)
        if Ellipsis in fields or not all(_is_tensor("result", field) for field in fields):
            raise PatternError(f"{title}: it returns {_named(hint)}: expected Tensor, or a tuple of so many of them")
        return len(fields), True
    if not _is_tensor("result", hint):
        raise PatternError(f"{title}: it returns {_named(hint)}: expected Tensor, or a tuple of so many of them")
    return 1, False


def _named(hint: Any) -> str:
    return hint if isinstance(hint, str) else getattr(hint, "__name__", None) or str(hint)


def checked_name(name: Any) -> str:
    """The name of an operator. PatternError for one without a namespace."""
    space, colons, rest = str(name).partition("::")
    if not isinstance(name, str) or not colons or not all(map(str.isidentifier, (*space.split("."), *rest.split(".")))):
        raise PatternError(
            f"@gsl.operator({name!r}): expected a namespace and a name, as torch.library has them: 'vllm::rms_norm'"
        )
    return name


def checked_leaves(meaning: Meaning, given: Mapping[str, Any]) -> dict[str, Any]:
    """The declared shapes and values to try. PatternError for names that are no parameters."""
    for name, value in given.items():
        if name not in meaning.schemas:
            raise PatternError(
                f"{meaning.title}: {name}= is no parameter of the function: {nearest(name, meaning.schemas)}"
            )
        if name in meaning.tensors and not isinstance(value, str):
            raise PatternError(f"{meaning.title}: {name}={value!r}: expected a shape of named sizes, such as 'b n d'")
        if name in meaning.attrs:
            _checked_values(meaning, name, value)
    return dict(given)


def _checked_values(meaning: Meaning, name: str, values: Any) -> None:
    if not isinstance(values, (list, tuple)) or len(values) < 2:
        raise PatternError(
            f"{meaning.title}: {name}={values!r}: {name} is an attribute: expected a list of two or more values to try"
        )
    normalise = meaning.attrs[name].normalise
    assert normalise is not None
    for value in values:
        try:
            normalise(tuple(value) if isinstance(value, list) else value, ())
        except ValueError as error:
            raise PatternError(f"{meaning.title}: {name}={values!r}: {value!r} is no value of it: {error}") from None


def checked_writes(operator: str, given: str | Sequence[str]) -> tuple[str, ...]:
    """The names of the arguments that an operator writes. PatternError for what is no name, or stands there twice."""
    names = (given,) if isinstance(given, str) else tuple(given)
    for name in names:
        if not isinstance(name, str) or not name.isidentifier() or names.count(name) > 1:
            raise PatternError(
                f"@gsl.operator({operator!r}): mutates_args={given!r}: expected the names of the arguments that the "
                "operator writes, each once, such as ['out']"
            )
    return names
