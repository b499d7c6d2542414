"""Reading native calls as canonical ones."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, Final

from torch import nn
from torch._ops import OpOverload

from gsl.front.fx.spellings.bind import BoundCall, FxSignature, FxUnreadError, TypeOf, Watched
from gsl.front.fx.spellings.families import FAMILIES
from gsl.front.fx.spellings.modules import ROWS as MODULES
from gsl.front.fx.spellings.modules import is_plain
from gsl.front.fx.spellings.table import FxIndex, FxLift, index
from gsl.front.fx.tree import Weight
from gsl.front.tree import NO_SPELLING, Canon
from gsl.graph import TUPLE, TensorType, Type
from gsl.modules import FUSION_OF, Fusion

CALLS: Final[FxIndex] = index(itertools.chain.from_iterable(family.ROWS for family in FAMILIES))
FIELDS: Final[FxIndex] = index(itertools.chain.from_iterable(getattr(family, "FIELDS", ()) for family in FAMILIES))


def read(target: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], type_of: TypeOf) -> Canon | None:
    """The canonical reading of a call of a function, an operator overload or (by name) a method.

    An in-place spelling is read as the functional call. ``None``: there is no exact reading.
    """
    return _first(CALLS, target, args, kwargs, type_of)


def read_fields(
    target: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], type_of: TypeOf
) -> dict[int, Canon] | None:
    """The canonical readings of single fields of a call with several results: of the first, or of all in a tuple."""
    found = _first(FIELDS, target, args, kwargs, type_of)
    if found is None:
        return None
    return dict(enumerate(found.operands)) if found.op == TUPLE else {0: found}


def why_unread(target: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], type_of: TypeOf) -> str:
    """The reason why a call has no reading: the test that fails in the row that comes furthest."""
    rows = [*_rows(CALLS, target), *_rows(FIELDS, target)]
    if not rows:
        return NO_SPELLING
    reasons = ["it has an argument of which nothing is known here, or lacks one"]
    for signature, reader in rows:
        values = _bound(signature, target, args, kwargs)
        if values is None:
            continue
        call = Watched(target, values, type_of)
        try:
            reader(call)
        except FxUnreadError as error:
            reasons.append(call.reason(error))
        else:
            reasons.append("not all of its results that are used have a reading")
    return reasons[-1]


def has_fields(target: Any) -> bool:
    """True if single fields of a call with several results may have readings."""
    try:
        return target in FIELDS
    except TypeError:
        return False


def read_module(module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], type_of: TypeOf) -> Canon | None:
    """The canonical reading of a module's call. ``Weight("weight")`` in it stands for ``module.weight``."""
    fusion = FUSION_OF.get(type(module), Fusion(type(module)))
    row = MODULES.get(fusion.base)
    if row is None or len(args) + len(kwargs) != 1 + fusion.adds or (fusion.adds and kwargs) or not is_plain(module):
        return None
    operand, *others = (*args, *kwargs.values())
    function, parameters = row.call(module)

    def typed(value: Any) -> Type | None:
        if isinstance(value, Weight):
            weight = getattr(module, value.name)
            return TensorType(tuple(weight.shape), str(weight.dtype).removeprefix("torch."))
        return type_of(value)

    return _followed(fusion, read(function, (operand,), parameters, typed), others)


def _followed(fusion: Fusion, canon: Canon | None, others: Sequence[Any]) -> Canon | None:
    """The reading of a fused module, of which the plain one reads as ``canon``."""
    if canon is None:
        return None
    if fusion.adds:
        canon = Canon("add", (canon, *others))
    return canon if fusion.activation is None else Canon(f"nn.{fusion.activation}", (canon,))


def read_any_module(
    kind: type[nn.Module], operands: tuple[Any, ...], attributes: Mapping[str, Any], type_of: TypeOf
) -> Canon | None:
    """The canonical reading of a call of a module of a class in inference, as far as it is the same for all of them."""
    fusion = FUSION_OF.get(kind, Fusion(kind))
    row = MODULES.get(fusion.base)
    if row is None or (fusion.adds and len(operands) != 2):
        return None
    function, parameters = row.any_call(attributes)
    own = operands[:1] if fusion.adds else operands
    return _followed(fusion, read(function, own, parameters, type_of), operands[1:])


def _first(
    table: FxIndex, target: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], type_of: TypeOf
) -> Canon | None:
    for signature, reader in _rows(table, target):
        found = _read(signature, reader, target, args, kwargs, type_of)
        if found is not None:
            return found
    return None


def _rows(table: FxIndex, target: Any) -> Sequence[tuple[FxSignature, FxLift]]:
    try:
        return table.get(target, ())
    except TypeError:
        return ()


def _bound(
    signature: FxSignature, target: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> dict[str, Any] | None:
    if isinstance(target, OpOverload):
        return signature.bind_schema(target, args, kwargs)
    return signature.bind(args, kwargs)


def _read(
    signature: FxSignature,
    reader: FxLift,
    target: Any,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    type_of: TypeOf,
) -> Canon | None:
    values = _bound(signature, target, args, kwargs)
    if values is None:
        return None
    try:
        return reader(BoundCall(target, values, type_of))
    except FxUnreadError:
        return None
