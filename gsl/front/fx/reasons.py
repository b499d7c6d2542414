"""Messages about calls of torch: why one has no canonical reading, and which canonical operators show it."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from itertools import product
from typing import TYPE_CHECKING, Any, Final

from torch import nn

from gsl.front.core.opaque import pattern_of
from gsl.front.fx import spellings
from gsl.front.fx.handle import native_of
from gsl.front.fx.opaque import method_name
from gsl.front.fx.spellings.table import Weight
from gsl.front.tree import NOT_COVERED, Canon
from gsl.graph import Node, Op, TensorType, Type

if TYPE_CHECKING:
    from gsl.front.fx.load import FxLoader


class FxReasons:
    """Tells the reasons for the opaque nodes of a view, which a loader of the same program loads once more."""

    def __init__(self, loader: FxLoader) -> None:
        loader.load()
        self.loader = loader

    def __call__(self, node: Node) -> str | None:
        """The reason for one node; ``None`` for one that computes no tensor."""
        native, loader = native_of(node), self.loader
        if native is None:
            return ""
        if not loader.values.is_tensor(native) and native.users:
            return None
        if native in loader.mutations.visible:
            return "it changes an operand in place, which other calls can see"
        if native in loader.mutations.exposed:
            return "its result may be changed in place by another call"
        reader = loader.reader
        if reader.is_elsewhere(native):
            return "its result may lie on another device than its operand"
        args, kwargs = reader.arguments(native)
        if native.op == "call_module":
            kind = type(reader.module(native)).__name__
            return f"the module {kind}, as it is set up, is not known by a canonical operator"
        if reader.read(native) is not None:
            return NOT_COVERED
        return spellings.why_unread(native.target, args, kwargs, loader.values.of)


_TYPES: Final[tuple[Type | None, ...]] = (
    None, *(TensorType((2,) * rank, dtype) for dtype in ("float32", "int64") for rank in (4, 2)),
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
