"""Calls without a canonical operator: their operands and attributes, the native call made of them again, and the
canonical operators that show such a call to users who look for it under its own name."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Final

import torch
from torch import fx, nn
from torch._ops import OpOverload, OpOverloadPacket

from gsl.front.core.opaque import decoded, pattern_of, positional
from gsl.front.fx import spellings
from gsl.front.fx.spellings.table import Native, Weight
from gsl.front.tree import Canon, Computed, Slot
from gsl.graph import Op, TensorType, Type
from gsl.spec import natives


@dataclass(frozen=True, slots=True)
class TensorMethod:
    """The operator of a call of a method that ``torch.Tensor`` does not have."""

    name: str

    def __str__(self) -> str:
        return f"method:{self.name}"


@dataclass(frozen=True, slots=True)
class FxOpaque:
    """An opaque call as the view shows it, with native nodes as operands."""

    operands: tuple[fx.Node, ...]
    deps: tuple[fx.Node, ...]
    attrs: Mapping[str, Any]


def operator_of(node: fx.Node, root: torch.nn.Module) -> Any:
    """The operator under which the view shows a native call."""
    if node.op == "call_module":
        return type(root.get_submodule(str(node.target)))
    if node.op == "call_method":
        return getattr(torch.Tensor, str(node.target), None) or TensorMethod(str(node.target))
    if isinstance(node.target, OpOverloadPacket) and len(node.target.overloads()) == 1:  # type: ignore[no-untyped-call]
        return natives.overload_of(node.target)
    return node.target


def describe(
    names: Sequence[str],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    is_tensor: Callable[[fx.Node], bool],
    natives: Sequence[fx.Node],
) -> FxOpaque:
    """The operands and attributes of a call, of whose positional parameters these are the names.

    ``natives`` are all nodes to which the native call refers.

    Nodes that are arguments by position are operands without further mention; any others are mentioned by a Slot.
    """
    operands: list[fx.Node] = []

    def slot(node: fx.Node) -> Slot:
        operands.append(node)
        return Slot(len(operands) - 1)

    def encode(value: Any) -> Any:
        match value:
            case fx.Node():
                return slot(value) if is_tensor(value) else Computed(value.name)
            case list() | tuple():
                return tuple([encode(item) for item in value])
            case slice():
                return slice(encode(value.start), encode(value.stop), encode(value.step))
            case dict():
                return {key: encode(item) for key, item in value.items()}
        return value

    attrs: dict[str, Any] = {}
    for position, value in enumerate(args):
        if isinstance(value, fx.Node) and is_tensor(value):
            operands.append(value)
        else:
            attrs[names[position] if position < len(names) else f"arg{position}"] = encode(value)
    for name, value in kwargs.items():
        attrs[name] = encode(value)
    seen = set(operands)
    return FxOpaque(tuple(operands), tuple(node for node in natives if node not in seen), attrs)


@functools.lru_cache(maxsize=4096)
def parameters(target: Any) -> tuple[str, ...]:
    """The names of a target's positional parameters, as far as they are known."""
    if isinstance(target, OpOverload):
        return tuple(parameter.name for parameter in natives.schema_of(target) if not parameter.kwarg_only)
    if isinstance(target, str | TensorMethod):
        return ()
    try:
        signature = inspect.signature(target)
    except (TypeError, ValueError):
        return natives.parameters(target)
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return tuple(p.name for p in signature.parameters.values() if p.kind in kinds)


def native_call(target: Any, operands: Sequence[Any], attrs: Mapping[str, Any]) -> Native:
    """The native call with these operands and attributes. FrontEndError for a value that is computed at run time."""
    if not attrs:
        return _named(target, tuple(operands), {})
    rest, given = decoded(target, operands, attrs)
    args = positional(parameters(target), rest, given)
    return _named(target, tuple(args), given)


def _named(target: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Native:
    """A native call, of a method by its name."""
    if isinstance(target, OpOverload):
        return Native(target, args, kwargs)
    method = target.name if isinstance(target, TensorMethod) else method_name(target)
    return Native(method or target, args, kwargs)


def method_name(target: Any) -> str | None:
    """The name of a method of ``torch.Tensor`` that is given by its descriptor."""
    name = getattr(target, "__name__", None)
    if name is None or isinstance(target, type):
        return None
    is_method = inspect.ismethoddescriptor(target) or getattr(target, "__qualname__", "").startswith("Tensor.")
    return name if is_method and getattr(torch.Tensor, name, None) is target else None


def constructor_arguments(module: torch.nn.Module) -> dict[str, Any]:
    """The attributes that a module declares as constants; for torch's modules, those its constructor takes."""
    names = getattr(module, "__constants__", ())
    return {name: getattr(module, name) for name in names if hasattr(module, name)}


_TYPES: Final[tuple[Type | None, ...]] = (
    None, *(TensorType((4,) * rank, dtype) for dtype in ("float32", "int64") for rank in (4, 2)),
)  # fmt: skip
"""The types that are assumed of the operands in turn: some readings depend on their rank or dtype."""


class _Operand:
    """Stands for a tensor."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __str__(self) -> str:
        return "xyzuvw"[self.number] if self.number < 6 else f"x{self.number}"


def canonical(op: Op, operands: int | None, attrs: Mapping[str, Any]) -> str | None:
    """The pattern of the canonical operators as which a call of the native target is loaded, as far as that can be
    told from the number of operands and some attributes; ``None`` if it is loaded as it is."""

    def read(count: int, kind: tuple[Type | None, bool]) -> Canon | None:
        type, is_list = kind
        each = tuple(map(_Operand, range(count)))
        given: tuple[Any, ...] = (list(each),) if is_list else each

        def type_of(value: Any) -> Type | None:
            return type if isinstance(value, _Operand) else None

        if inspect.isclass(op):
            return spellings.read_any_module(op, given, attrs, type_of) if issubclass(op, nn.Module) else None
        return spellings.read(method_name(op) or op, given, attrs, type_of)

    # The operands of some calls are given as one list.
    return pattern_of((1, 2, 3) if operands is None else (operands,), product(_TYPES, (False, True)), read, _text)


def _text(value: Any) -> str:
    if isinstance(value, Weight):
        return "pat.Param()"
    return str(value) if isinstance(value, _Operand) else repr(value)
