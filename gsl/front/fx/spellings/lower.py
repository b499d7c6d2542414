"""The aten operators that torch's functions stand for, as exported graphs call them."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Final, cast

import torch
import torch.nn.functional as F
from torch._ops import HigherOrderOperator, OpOverload

from gsl.errors import FrontEndError
from gsl.front.fx.spellings.table import Native
from gsl.graph import SymDim, op_name
from gsl.spec import natives
from gsl.spec.normalise import is_number

aten = torch.ops.aten


def lower(tree: Any, done: dict[Native, Any] | None = None) -> Any:
    """The tree with every torch call in it replaced by aten calls. Shared subtrees stay shared."""
    done = {} if done is None else done
    match tree:
        case Native():
            if tree not in done:
                args = tuple([lower(arg, done) for arg in tree.args])
                kwargs = {name: lower(arg, done) for name, arg in tree.kwargs.items()}
                done[tree] = _lowered(tree.target, args, kwargs)
            return done[tree]
        case list():
            return [lower(item, done) for item in tree]
        case tuple():
            return tuple([lower(item, done) for item in tree])
    return tree


def lowered(call: Native) -> Native:
    """A call of a function or method that someone named, as an exported program may hold it.

    FrontEndError where there is no such operator.
    """
    target: Any = getattr(torch.Tensor, call.target, None) if isinstance(call.target, str) else call.target
    if isinstance(target, (OpOverload, HigherOrderOperator)) or target is operator.getitem:
        return call
    native = _fitting(_overloads(target), call.args, call.kwargs)
    if native is not None:
        return native
    if target in _RULES:
        return cast(Native, lower(call))
    raise FrontEndError(
        f"an exported program calls aten operators, and {op_name(target)} is none (for these arguments); "
        f"build it of aten operators (torch.ops.aten…), or rewrite the GraphModule of .module() instead"
    )


_NO_TENSORS: Final = (
    int, float, complex, str, SymDim, torch.dtype, torch.device, torch.layout, torch.memory_format,
)  # fmt: skip


def _fits(kind: str, value: Any) -> bool:
    """True if a value may be an argument of the type of a schema."""
    if value is None:
        return kind.startswith("Optional")
    is_list = isinstance(value, (list, tuple))
    return ("List" in kind) is is_list and (is_list or ("Tensor" in kind) is not isinstance(value, _NO_TENSORS))


_overloads: Final = cache(natives.overloads)


def _fitting(overloads: Sequence[OpOverload], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Native | None:
    """The call of the first overload that takes these arguments."""
    for overload in overloads:
        try:
            native = bound(overload, args, kwargs)
        except TypeError:
            continue
        kinds = {parameter.name: parameter.kind for parameter in natives.schema_of(overload)}
        if all(map(_fits, kinds.values(), native.args)) and all(
            _fits(kinds[name], value) for name, value in native.kwargs.items()
        ):
            return native
    return None


def _lowered(target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if isinstance(target, OpOverload):
        return Native(target, args, kwargs)
    rule = _RULES.get(target)
    if callable(rule) and not isinstance(rule, OpOverload):
        return rule(*args, **kwargs)
    if isinstance(rule, OpOverload):
        return bound(rule, args, kwargs)
    overloads = _overloads(target) or (getattr(aten, target.__name__).default,)
    return _fitting(overloads, args, kwargs) or bound(overloads[0], args, kwargs)


def bound(overload: OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Native:
    """A call as export writes it: by position as far as possible, lists for tuples, no defaults at the end."""
    positional: list[Any] = []
    named: dict[str, Any] = {}
    parameters = natives.schema_of(overload)
    if len(args) > sum(not parameter.kwarg_only for parameter in parameters):
        raise TypeError(f"{overload}: {len(args)} arguments are too many")
    given = dict(zip([parameter.name for parameter in parameters], args, strict=False))
    given.update({name if name != "input" else "self": value for name, value in kwargs.items()})
    last = 0
    for parameter in parameters:
        name = parameter.name
        present = name in given
        if not present and not parameter.has_default:
            raise TypeError(f"{overload}: the argument {name!r} is missing")
        value = given.pop(name) if present else parameter.default
        value = list(value) if isinstance(value, (tuple, list)) else value
        differs = not parameter.has_default or present
        if parameter.kwarg_only:
            if differs:
                named[name] = value
            continue
        positional.append(_as_list(value) if "List[int]" in parameter.kind else value)
        if differs:
            last = len(positional)
    if given:
        raise TypeError(f"{overload}: no arguments {list(given)}")
    return Native(overload, tuple(positional[:last]), named)


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, int) and not isinstance(value, bool) else value


def _binary(name: str, overload: str = "Tensor", *, scalar: str = "", reverse: Any = None) -> Callable[..., Native]:
    """A binary operator: with a number on the right the overload ``scalar``, with one on the left the result of
    ``reverse``."""
    packet = getattr(aten, name)

    def write(left: Any, right: Any) -> Native:
        if is_number(left):
            if reverse is None:
                raise TypeError(f"aten.{name} takes no number on the left")
            result = reverse(left, right)
            assert isinstance(result, Native)
            return result
        chosen = scalar if scalar and is_number(right) else overload
        return Native(getattr(packet, chosen), (left, right))

    return write


def _of(name: str, overload: str, *, swap: bool = False) -> Callable[[Any, Any], Native]:
    target = getattr(getattr(aten, name), overload)
    return lambda left, right: Native(target, (right, left) if swap else (left, right))


def _over(left: Any, right: Any) -> Native:
    """A number divided by a tensor, as torch does it."""
    return Native(aten.mul.Tensor, (Native(aten.reciprocal.default, (right,)), left))


def _to(x: Any, dtype: torch.dtype) -> Native:
    return Native(aten._to_copy.default, (x,), {"dtype": dtype})


def _split(x: Any, size: Any, dim: int = 0) -> Native:
    if isinstance(size, (list, tuple)):
        return bound(aten.split_with_sizes.default, (x, size, dim), {})
    return bound(aten.split.Tensor, (x, size, dim), {})


def _einsum(equation: str, *operands: Any) -> Native:
    if len(operands) == 1 and not isinstance(operands[0], Native):
        return Native(aten.einsum.default, (equation, [operands[0]]))
    return Native(aten.einsum.default, (equation, list(operands)))


def _getitem(x: Any, index: Any) -> Any:
    """Slices axis by axis, and a tensor of indices."""
    if index is ...:
        return Native(aten.alias.default, (x,))
    items = index if isinstance(index, tuple) else (index,)
    axis = 0
    for item in items:
        if isinstance(item, slice):
            if item != slice(None):
                x = bound(aten.slice.Tensor, (x, axis, *_slice(item)), {})
            axis += 1
        elif isinstance(item, int):
            x = Native(aten.select.int, (x, axis, item))
        else:
            x = Native(aten.index.Tensor, (x, [None] * axis + [item]))
            axis += 1
    return x


_END: Final = 2**63 - 1


def _slice(item: slice) -> tuple[Any, ...]:
    start = 0 if item.start is None else item.start
    stop = _END if item.stop is None else item.stop
    return (start, stop) if item.step is None else (start, stop, item.step)


def _batch_norm(x: Any, mean: Any, var: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Native:
    return Native(aten.batch_norm.default, (x, weight, bias, mean, var, False, 0.1, eps, False))


def _instance_norm(x: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Native:
    return Native(aten.instance_norm.default, (x, weight, bias, None, None, True, 0.1, eps, False))


def _normalize(x: Any, dim: Any = 1, eps: float = 1e-12) -> Native:
    axes = [dim] if isinstance(dim, int) else list(dim)
    norm = Native(aten.linalg_vector_norm.default, (x, 2, axes, True))
    return Native(aten.div.Tensor, (x, Native(aten.clamp_min.default, (norm, eps))))


def _dropout(x: Any, p: float = 0.5, training: bool = True) -> Native:
    return Native(aten.dropout.default, (x, p, training))


def _adaptive_pool(kind: str, rank: int) -> Callable[..., Native]:
    """One for the maximum returns the places of the maxima, too."""
    overload = getattr(aten, f"adaptive_{kind}_pool{rank}d").default

    def write(x: Any, size: Any) -> Native:
        found = bound(overload, (x, [size] * rank if isinstance(size, int) else size), {})
        return Native(operator.getitem, (found, 0)) if kind == "max" else found

    return write


def _attribute(x: Any, name: str) -> Native:
    if name != "T":
        raise TypeError(f"no operator for the attribute {name!r}")
    return Native(aten.numpy_T.default, (x,))


_COMPARISONS: Final = {
    operator.eq: ("eq", "eq"), operator.ne: ("ne", "ne"), operator.lt: ("lt", "gt"), operator.gt: ("gt", "lt"),
    operator.le: ("le", "ge"), operator.ge: ("ge", "le"),
}  # fmt: skip
_BITWISE: Final = {
    operator.and_: "bitwise_and", operator.or_: "bitwise_or", operator.xor: "bitwise_xor",
}  # fmt: skip
_SHIFTS: Final = {operator.lshift: "bitwise_left_shift", operator.rshift: "bitwise_right_shift"}

_RULES: Final[Mapping[Any, Any]] = {
    operator.add: _binary("add", reverse=_of("add", "Tensor", swap=True)),
    operator.sub: _binary("sub", reverse=_of("rsub", "Scalar", swap=True)),
    operator.mul: _binary("mul", reverse=_of("mul", "Tensor", swap=True)),
    operator.truediv: _binary("div", reverse=_over),
    operator.floordiv: _binary("floor_divide", "default", reverse=_of("floor_divide", "default")),
    operator.mod: _binary("remainder", scalar="Scalar", reverse=_of("remainder", "Scalar_Tensor")),
    operator.pow: _binary("pow", "Tensor_Tensor", scalar="Tensor_Scalar", reverse=_of("pow", "Scalar")),
    **{
        op: _binary(name, scalar="Scalar", reverse=_of(other, "Scalar", swap=True))
        for op, (name, other) in _COMPARISONS.items()
    },
    **{op: _binary(name, scalar="Scalar", reverse=_of(name, "Scalar_Tensor")) for op, name in _BITWISE.items()},
    **{
        op: _binary(name, scalar="Tensor_Scalar", reverse=_of(name, "Scalar_Tensor"))
        for op, name in _SHIFTS.items()
    },
    operator.getitem: _getitem,
    getattr: _attribute,
    "to": _to,
    torch.split: _split,
    torch.einsum: _einsum,
    torch.broadcast_to: aten.expand.default,
    F.softmax: aten.softmax.int,
    F.log_softmax: aten.log_softmax.int,
    F.batch_norm: _batch_norm,
    F.instance_norm: _instance_norm,
    F.normalize: _normalize,
    F.dropout: _dropout,
    **{getattr(F, f"max_pool{n}d"): getattr(aten, f"max_pool{n}d").default for n in (1, 2, 3)},
    **{
        getattr(F, f"adaptive_{kind}_pool{n}d"): _adaptive_pool(kind, n) for n in (1, 2, 3) for kind in ("avg", "max")
    },
}
"""The lowerings of functions that are not the overload of the operator of the same name whose schema fits."""
