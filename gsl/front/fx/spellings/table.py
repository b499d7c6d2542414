"""The parts of spellings: rows of the table, native calls as trees, weights of modules, and operands."""

from __future__ import annotations

import builtins
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import torch
import torch.nn.functional as F

from gsl.front.fx.spellings.bind import BoundCall, FxSignature, TypeOf, unread_unless
from gsl.front.tree import Canon
from gsl.graph import SymDim, TensorType, TupleType, types
from gsl.spec.normalise import is_number


@dataclass(frozen=True, slots=True, eq=False)
class Weight:
    """A parameter or buffer of the module that is called, by its name there (``"weight"``)."""

    name: str


@dataclass(frozen=True, slots=True, eq=False)
class Native:
    """A native call: ``target(*args, **kwargs)``, or a method call where ``target`` is a name. Arguments may contain
    Natives, at any depth of lists and tuples, symbolic dimensions, and whatever stands for an operand."""

    target: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = field(default_factory=dict)


Dialect = Literal["aten", "torch"]
FxLift = Callable[[BoundCall], Canon]
"""Reads a bound call, or raises UnreadError."""

_SPACES: Final = {
    "torch": torch,
    "F": F,
    "operator": operator,
    "builtins": builtins,
    "special": torch.special,
    "linalg": torch.linalg,
}


@dataclass(frozen=True, slots=True)
class FxRow:
    """Native calls that are spelled with the same parameters and read in the same way, and the operator that ``write``
    writes, if there is one. An operator without spellings is only written.

    ``spellings`` are words like ``torch.relu``, ``F.relu``, ``.relu`` (a method), ``operator.add``,
    ``aten.relu.default``, ``gsl.linear.default``, ``aten.mT`` (a packet). With ``inplace``, each
    name with an underscore behind it belongs to the row too.
    """

    spellings: str = ""
    signature: str = ""
    read: FxLift | None = None
    inplace: bool = False
    op: str = ""
    write: FxLower | None = None

    def targets(self) -> list[Any]:
        """The targets of the spellings that this version of torch has."""
        found: list[Any] = []
        for word in self.spellings.split():
            for spelling in (word, _in_place(word)) if self.inplace else (word,):
                target = resolve(spelling)
                if target is not None and target not in found:
                    found.append(target)
        return found


def words(names: str, overloads: str = "default", suffix: str = "") -> str:
    """The spellings of names as functions of torch, methods and aten overloads; with a suffix, of in-place calls."""
    found = [f"torch.{n}{suffix} .{n}{suffix}" for n in names.split()]
    return " ".join(found + [f"aten.{n}{suffix}.{o}" for n in names.split() for o in overloads.split()])


def _in_place(word: str) -> str:
    if word.startswith("aten."):
        _, name, overload = word.split(".")
        return f"aten.{name}_.{overload}"
    return word + "_"


def resolve(spelling: str) -> Any:
    """The object that a spelling names; ``None`` where this version of torch has no such object."""
    space, _, name = spelling.partition(".")
    if not space:
        return name if hasattr(torch.Tensor, name) else None
    if space in ("aten", "prims", "gsl"):
        name, _, overload = name.partition(".")
        packet = getattr(getattr(torch.ops, space), name, None)
        return getattr(packet, overload, None) if overload else packet
    return getattr(_SPACES[space], name, None)


FxIndex = Mapping[Any, Sequence[tuple[FxSignature, FxLift]]]


def by_target(rows: Iterable[FxRow]) -> FxIndex:
    """The rows by target. A target may have several, which are tried in order."""
    table: dict[Any, list[tuple[FxSignature, FxLift]]] = {}
    for row in rows:
        signature = FxSignature.parse(row.signature)
        for target in row.targets():
            assert row.read is not None
            table.setdefault(target, []).append((signature, row.read))
    return table


@dataclass(frozen=True, slots=True)
class Site:
    """A canonical call that is to be written: ``s.attrs`` and its operands, with their types."""

    op: str
    attrs: Mapping[str, Any]
    operands: tuple[Any, ...]
    type_of: TypeOf

    def __getitem__(self, name: str) -> Any:
        return self.attrs[name]

    @property
    def x(self) -> Any:
        """The first operand."""
        return self.operands[0]

    def type(self, position: int = 0) -> TensorType | None:
        found = self.type_of(self.operands[position])
        return found if isinstance(found, TensorType) else None

    def known(self, position: int = 0) -> TensorType:
        """The type of an operand that the writing depends on."""
        found = self.type(position)
        if found is None:
            raise ValueError(f"{self.op}: the type of operand {position} must be known to write it in torch")
        return found


FxLower = Callable[[Site], Any]
"""Writes a call as torch and ``torch.nn.functional`` calls; the aten dialect is made from them."""


def call(target: Any, *args: Any, **kwargs: Any) -> Native:
    return Native(target, args, kwargs)


def options(**given: tuple[Any, Any]) -> dict[str, Any]:
    """The keyword arguments of which the value is not the default: ``name=(value, default)``."""
    return {name: value for name, (value, default) in given.items() if value != default}


# ---------------------------------------------------------------- operands of calls that are read

_NOT_OPERANDS: Final = (
    str, bytes, list, tuple, dict, set, slice, complex, torch.dtype, torch.device, torch.layout, torch.Size, SymDim,
    type(None), type(...),
)  # fmt: skip

_FLOATS: Final = frozenset(("float16", "bfloat16", "float32", "float64"))


def operand(c: BoundCall, value: Any) -> Any:
    """An argument that may stand for a tensor or a number."""
    unread_unless(not isinstance(value, _NOT_OPERANDS) and not isinstance(c.type_of(value), TupleType))
    return value


def tensor(c: BoundCall, value: Any) -> Any:
    """An argument that may stand for a tensor."""
    unread_unless(not is_number(value))
    return operand(c, value)


def renamed(op: str, operands: str = "input", **attrs: tuple[str, Callable[[Any], Any]]) -> FxLift:
    """Reads a call as an operator on these parameters; each attribute is a parameter in its canonical form."""

    def read(c: BoundCall) -> Canon:
        found = tuple([tensor(c, getattr(c, name)) for name in operands.split()])
        return Canon(op, found, {attr: form(getattr(c, name)) for attr, (name, form) in attrs.items()})

    return read


def row(
    op: str, spellings: str, signature: str, *, read: FxLift | None = None, write: FxLower | None = None,
    inplace: bool = False, operands: str = "input", **attrs: tuple[str, Callable[[Any], Any]],
) -> FxRow:  # fmt: skip
    """The row of an operator in both directions. Unless ``read`` says otherwise, it is read as :func:`renamed`; unless
    ``write`` does, it is written as a call of the first spelling, without attributes that have the default value."""
    target, defaults = resolve(spellings.split()[0]), FxSignature.parse(signature).defaults if attrs else {}

    def plain(s: Site) -> Native:
        given = {name: (s[attr], defaults[name]) for attr, (name, _) in attrs.items()}
        return call(target, *s.operands, **options(**given))

    return FxRow(spellings, signature, read or renamed(op, operands, **attrs), inplace, op, write or plain)


def is_floating(c: BoundCall, value: Any) -> bool:
    """True if the operand is known to have a real floating-point dtype (or is a Python float)."""
    if is_number(value):
        return isinstance(value, float)
    found = c.tensor_type(value)
    return found is not None and found.dtype in _FLOATS


def dtype_name(value: Any) -> str:
    """The name of a dtype among the arguments of a call."""
    unread_unless(isinstance(value, torch.dtype))
    return types.dtype_name(value)


def dtype_of(name: str) -> torch.dtype:
    dtype = getattr(torch, name)
    assert isinstance(dtype, torch.dtype)
    return dtype


# ---------------------------------------------------------------- operands of calls that are written

SPATIAL: Final = "DHW"
"""The spatial axes; the last ones of them are those of fewer dimensions."""


def in_dtype(s: Site, *operands: Any) -> tuple[Any, ...]:
    """The operands in the dtype that the result is to have."""
    if not s["out_dtype"]:
        return operands
    return tuple(call("to", x, dtype_of(s["out_dtype"])) for x in operands)


def permuted(x: Any, axes: Sequence[int]) -> Any:
    return x if list(axes) == sorted(axes) else call(torch.permute, x, tuple(axes))


def relaid(x: Any, source: str, target: str) -> Any:
    """A tensor of one layout in another with the same letters."""
    return permuted(x, [source.index(letter) for letter in target])


def laid_out(result: Native, source: str, target: str) -> Native:
    found = relaid(result, source, target)
    assert isinstance(found, Native)
    return found


def pads(pairs: Sequence[tuple[int, int]]) -> tuple[int, ...]:
    """Torch's widths: from the last axis on, up to the first one that is padded."""
    widths = [width for pair in reversed(pairs) for width in pair]
    while len(widths) > 2 and widths[-2:] == [0, 0]:
        del widths[-2:]
    return tuple(widths)


def padded(x: Any, padding: Sequence[int], value: float = 0.0) -> Native:
    """The operand with its last axes padded: that before each, then that after each. Negative widths crop."""
    rank = len(padding) // 2
    pairs = [(padding[i], padding[rank + i]) for i in range(rank)]
    return call(F.pad, x, pads(pairs), **options(value=(value, 0.0)))
