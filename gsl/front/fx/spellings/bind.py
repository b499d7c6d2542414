"""Names for the arguments of a native call: signatures, and the calls bound to them."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from torch._ops import OpOverload

from gsl.front.tree import unmet
from gsl.graph import SymDim, TensorType, Type
from gsl.spec.natives import schema_of
from gsl.spec.normalise import is_number

TypeOf = Callable[[Any], "Type | None"]

ALIASES: Final = {
    "self": "input", "x": "input", "a": "input", "tensor1": "input", "axis": "dim", "keepdims": "keepdim",
    "tensor2": "other", "mat2": "other", "vec": "other", "exponent": "other", "b": "other", "tensor": "other",
    "min_val": "min", "max_val": "max", "axis0": "dim0", "axis1": "dim1",
    "split_size_or_sections": "split_size", "split_sizes": "split_size", "train": "training", "attn_bias": "attn_mask",
    "group": "num_groups", "padding": "pad", "size": "shape", "indices": "input",
}  # fmt: skip
"""The other names under which torch takes the same argument."""


class FxUnreadError(Exception):
    """The call has no exact canonical reading. Never leaves this package."""


def unread_unless(condition: object) -> None:
    """Give the reading up unless the condition holds."""
    if not condition:
        raise FxUnreadError


@dataclass(frozen=True, slots=True)
class FxSignature:
    """The parameters of a native call, written ``"input weight bias=None stride=1 *size"``.

    A parameter without a default is required; ``*name`` takes the remaining positional arguments, or one sequence;
    those behind a bare ``*`` are given by name only.
    """

    names: tuple[str, ...]
    positional: int
    defaults: Mapping[str, Any]
    rest: str | None

    @staticmethod
    def parse(text: str) -> FxSignature:
        names: list[str] = []
        defaults: dict[str, Any] = {}
        rest = positional = None
        for word in text.split():
            name, has_default, default = word.partition("=")
            if name == "*":
                positional = len(names) if positional is None else positional
                continue
            if name.startswith("*"):
                rest = name = name[1:]
            names.append(name)
            if has_default:
                defaults[name] = ast.literal_eval(default)
        return FxSignature(tuple(names), len(names) if positional is None else positional, defaults, rest)

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any] | None:
        """The value of every parameter, or ``None`` if the arguments don't fit."""
        values: dict[str, Any] = {}
        for position, name in enumerate(self.names[: self.positional]):
            if position >= len(args):
                break
            if name == self.rest:
                one = len(args) == position + 1 and isinstance(args[position], (list, tuple))
                values[name] = args[position] if one else tuple(args[position:])
                args = args[: position + 1]
            else:
                values[name] = args[position]
        if len(args) > self.positional:
            return None
        return self._finish(values, kwargs)

    def bind_schema(
        self, target: OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> dict[str, Any] | None:
        """The same for an operator that tells its own parameters; those not named here must have their defaults."""
        values: dict[str, Any] = {}
        kwargs = dict(kwargs)
        for position, parameter in enumerate(schema_of(target)):
            name = parameter.name
            if position < len(args):
                value = args[position]
            elif name in kwargs:
                value = kwargs.pop(name)
            elif parameter.has_default:
                known = name if name in self.names else ALIASES.get(name, name)
                if known in self.names:
                    values[known] = parameter.default
                continue
            else:
                return None
            known = name if name in self.names else ALIASES.get(name, name)
            if known in self.names:
                values[known] = value
            elif not parameter.has_default or not _same(parameter.default, value):
                return None
        return None if kwargs else self._finish(values, {})

    def _finish(self, values: dict[str, Any], kwargs: Mapping[str, Any]) -> dict[str, Any] | None:
        for name, value in kwargs.items():
            known = name if name in self.names else ALIASES.get(name, name)
            if known not in self.names or known in values:
                return None
            values[known] = value
        for name in self.names:
            if name not in values:
                if name not in self.defaults:
                    return None
                values[name] = self.defaults[name]
        return values


def _same(default: Any, value: Any) -> bool:
    return type(default) is type(value) and bool(default == value)


class BoundCall:
    """A native call with named arguments: ``c.input``, ``c.dim``."""

    __slots__ = ("_values", "target", "type_of")

    def __init__(self, target: Any, values: Mapping[str, Any], type_of: TypeOf) -> None:
        self.target = target
        self.type_of = type_of
        self._values = values

    def __getattr__(self, name: str) -> Any:
        try:
            return self._values[name]
        except KeyError:
            raise AttributeError(name) from None

    @property
    def in_place(self) -> bool:
        """True for a spelling with an underscore behind its name."""
        name = self.target._opname if isinstance(self.target, OpOverload) else self.target
        return str(name if isinstance(name, str) else getattr(name, "__name__", "")).endswith("_")

    def tensor_type(self, value: Any) -> TensorType | None:
        """The type of an operand, if it is known to be a tensor."""
        found = self.type_of(value)
        return found if isinstance(found, TensorType) else None

    def typed(self, value: Any) -> TensorType:
        """The type of an operand that the reading depends on."""
        found = self.tensor_type(value)
        if found is None:
            raise FxUnreadError
        return found

    def dtype_of(self, value: Any) -> str:
        return self.typed(value).dtype

    def ndim(self, value: Any) -> int:
        return self.typed(value).ndim


class Watched(BoundCall):
    """A call that remembers at which arguments its reader looked."""

    __slots__ = ("_seen",)

    def __init__(self, target: Any, values: Mapping[str, Any], type_of: TypeOf) -> None:
        super().__init__(target, values, type_of)
        self._seen: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        value = self._seen[name] = super().__getattr__(name)
        return value

    def reason(self, error: FxUnreadError) -> str:
        """The reason why the reading was given up: the arguments, and the condition that they do not meet."""
        given = ", ".join(f"{name}={self._shown(value)}" for name, value in self._seen.items())
        return f"no reading with {given}{unmet(error)}"

    def _shown(self, value: Any) -> str:
        literal = all(map(is_number, value)) if isinstance(value, (list, tuple)) else is_number(value) or value is None
        kind = None if literal else self.type_of(value)
        return repr(value) if kind is None else str(kind)


def is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def is_dim(value: Any) -> bool:
    """True for a size: an int or a symbolic dimension."""
    return is_int(value) or isinstance(value, SymDim)


def integer(value: Any) -> int:
    """An attribute that must be known: an int, or a sequence of one."""
    if isinstance(value, (list, tuple)) and len(value) == 1:
        value = value[0]
    if not is_int(value):
        raise FxUnreadError
    return int(value)


def integers(value: Any) -> tuple[int, ...]:
    """An attribute that is an int or a sequence of ints."""
    values = tuple(value) if isinstance(value, (list, tuple)) else (value,)
    unread_unless(all(map(is_int, values)))
    return values


def dims(value: Any) -> tuple[Any, ...]:
    """A shape: ints and symbolic dimensions."""
    values = tuple(value) if isinstance(value, (list, tuple)) else (value,)
    unread_unless(all(is_dim(v) for v in values))
    return values


def number(value: Any) -> int | float:
    if not is_number(value):
        raise FxUnreadError
    return value  # type: ignore[no-any-return]


def real(value: Any) -> float:
    return float(number(value))


def flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise FxUnreadError
    return value


def per_axis(value: Any, rank: int) -> tuple[int, ...]:
    """A number per spatial axis, where torch takes one for all."""
    values = integers(value)
    values = values * rank if len(values) == 1 else values
    unread_unless(len(values) == rank)
    return values


def axis(value: Any, ndim: int) -> int:
    """A non-negative axis."""
    position = integer(value)
    unread_unless(-max(ndim, 1) <= position < max(ndim, 1))
    return position % max(ndim, 1)
