"""The lowering of element-wise operators, reductions and new tensors."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any, Final

import torch
import torch.nn.functional as F

from gsl.front.fx.spellings.bind import is_number
from gsl.front.fx.spellings.elementwise import BINARY, UNARY, dtype_of
from gsl.front.fx.spellings.table import Site, Writer, call, options
from gsl.front.fx.tree import Native

# ---------------------------------------------------------------- element-wise


def _unary(op: str) -> Writer:
    target = getattr(torch, UNARY[op].split()[0])
    return lambda s: call(target, s.x)


def _operator(target: Callable[..., Any]) -> Writer:
    """A Python operator, which takes numbers on either side."""

    def write(s: Site) -> Native:
        if all(map(is_number, s.operands)):
            raise ValueError(f"{s.op}: expected a tensor among the operands, found {s.operands}")
        return call(target, *s.operands)

    return write


def as_tensor(s: Site, position: int, like: int) -> Any:
    """An operand; a number as a tensor of the shape of another operand, and of the dtype that the number asks for."""
    value = s.operands[position]
    if not is_number(value):
        return value
    found = s.type(like)
    if found is None:
        return call(torch.full_like, s.operands[like], value)
    dtype = torch.result_type(torch.empty((1,), dtype=dtype_of(found.dtype)), value)
    kwargs = {} if dtype == dtype_of(found.dtype) else {"dtype": dtype}
    return call(torch.full_like, s.operands[like], value, **kwargs)


def _tensors(target: Callable[..., Any]) -> Writer:
    """A function of torch that takes tensors only."""
    return lambda s: call(target, as_tensor(s, 0, 1), as_tensor(s, 1, 0))


def _number_last(target: Callable[..., Any]) -> Writer:
    """A function of torch whose second argument may be a number."""
    return lambda s: call(target, as_tensor(s, 0, 1), s.operands[1])


def _bounded(target: Callable[..., Any], bound: str) -> Writer:
    """``maximum``, which for a number is a clamp."""

    def write(s: Site) -> Native:
        numbers = [x for x in s.operands if is_number(x)]
        tensors = [x for x in s.operands if not is_number(x)]
        if len(numbers) == 1 and not isinstance(numbers[0], bool):
            return call(torch.clamp, tensors[0], **{bound: numbers[0]})
        return call(target, as_tensor(s, 0, 1), as_tensor(s, 1, 0))

    return write


def _clip(s: Site) -> Native:
    return call(torch.clamp, s.x, **options(min=(s["a_min"], None), max=(s["a_max"], None)))


def _cast(s: Site) -> Native:
    return call("to", s.x, dtype_of(s["dtype"]))


_ELEMENTWISE: Final[Mapping[str, Writer]] = {
    **{op: _unary(op) for op in UNARY},
    **{op: _operator(getattr(operator, python)) for op, (_, _, python) in BINARY.items() if python},
    "add": _operator(operator.add),
    "subtract": _operator(operator.sub),
    "divide": _operator(operator.truediv),
    "power": _operator(operator.pow),
    "mod": _number_last(torch.fmod),
    "atan2": _tensors(torch.atan2),
    "maximum": _bounded(torch.maximum, "min"),
    "minimum": _bounded(torch.minimum, "max"),
    "logical_and": _tensors(torch.logical_and),
    "logical_or": _tensors(torch.logical_or),
    "logical_xor": _tensors(torch.logical_xor),
    "where": lambda s: call(torch.where, *s.operands),
    "clip": _clip,
    "cast": _cast,
    "nn.relu": lambda s: call(torch.relu, s.x),
    "nn.relu6": lambda s: call(F.relu6, s.x),
    "nn.leaky_relu": lambda s: call(F.leaky_relu, s.x, **options(negative_slope=(s["alpha"], 0.01))),
    "elu": lambda s: call(F.elu, s.x, **options(alpha=(s["alpha"], 1.0))),
    "selu": lambda s: call(F.selu, s.x),
    "gelu": lambda s: call(F.gelu, s.x, **options(approximate=(s["approximate"], "none"))),
    "silu": lambda s: call(F.silu, s.x),
    "mish": lambda s: call(F.mish, s.x),
    "hardswish": lambda s: call(F.hardswish, s.x),
    "hardsigmoid": lambda s: call(F.hardsigmoid, s.x),
    "softplus": lambda s: call(F.softplus, s.x, **options(beta=(s["beta"], 1.0), threshold=(s["threshold"], 20.0))),
}

# ---------------------------------------------------------------- reductions


def _axes(s: Site) -> tuple[int, ...] | None:
    """The reduced axes; ``None`` is all of them."""
    if s["exclude"]:
        s.known()
    axis: tuple[int, ...] | None = s["axis"]
    found = s.type()
    if axis is not None and found is not None and not s["keepdims"] and len(axis) == max(found.ndim, 1):
        return None
    return axis


def _reduction(target: Callable[..., Any], **fixed: Any) -> Writer:
    """A reduction of torch that takes any number of axes."""

    def write(s: Site) -> Native:
        axes = _axes(s)
        if axes == ():
            # Torch takes no axes for all of them.
            return call(target, call(torch.unsqueeze, s.x, -1), dim=-1, **fixed)
        if axes is None and not s["keepdims"]:
            return call(target, s.x, **fixed)
        dim: Any = s["axis"]
        if dim is not None and len(dim) == 1:
            dim = dim[0]
        return call(target, s.x, dim=dim, **fixed, **options(keepdim=(s["keepdims"], False)))

    return write


def _with_axes(target: Callable[..., Any]) -> Writer:
    """A reduction of torch that wants to be told its axes."""

    def write(s: Site) -> Native:
        axes = _axes(s)
        if axes == ():
            return call(target, call(torch.unsqueeze, s.x, -1), dim=-1)
        if axes is None:
            axes = tuple(range(s.known().ndim)) or (-1,)
        dim = axes[0] if len(axes) == 1 else axes
        return call(target, s.x, dim=dim, **options(keepdim=(s["keepdims"], False)))

    return write


def _deviation(target: Callable[..., Any]) -> Writer:
    return lambda s: _reduction(target, correction=int(s["unbiased"]))(s)


def _prod(s: Site) -> Native:
    """Torch multiplies over one axis, or over all."""
    axes = _axes(s)
    if axes is None and not s["keepdims"]:
        return call(torch.prod, s.x)
    if axes == ():
        return call(torch.prod, call(torch.unsqueeze, s.x, -1), dim=-1)
    result: Any = s.x
    for axis in sorted(axes if axes is not None else range(s.known().ndim), reverse=True):
        result = call(torch.prod, result, dim=axis, **options(keepdim=(s["keepdims"], False)))
    assert isinstance(result, Native)
    return result


def _arg(target: Callable[..., Any]) -> Writer:
    """Torch searches one axis, or all of them; several become one."""

    def write(s: Site) -> Native:
        axes = _axes(s)
        if axes is None and not s["keepdims"]:
            return call(target, s.x)
        if axes == ():
            return call(target, call(torch.unsqueeze, s.x, -1), dim=-1)
        if axes is not None and len(axes) == 1:
            return call(target, s.x, dim=axes[0], **options(keepdim=(s["keepdims"], False)))
        ndim = s.known().ndim
        axes = tuple(range(ndim)) if axes is None else axes
        kept = [axis for axis in range(ndim) if axis not in axes]
        result = call(target, call(torch.flatten, call(torch.permute, s.x, (*kept, *axes)), len(kept)), dim=-1)
        for axis in axes if s["keepdims"] else ():
            result = call(torch.unsqueeze, result, axis)
        return result

    return write


def _cumsum(s: Site) -> Native:
    flat = s["axis"] is None
    x = call(torch.reshape, s.x, (-1,)) if flat else s.x
    dtype = dtype_of(s["dtype"]) if s["dtype"] else None
    result = call(torch.cumsum, x, dim=0 if flat else s["axis"], **options(dtype=(dtype, None)))
    return call(operator.sub, result, x) if s["exclusive"] else result


_REDUCTIONS: Final[Mapping[str, Writer]] = {
    "sum": _reduction(torch.sum),
    "mean": _reduction(torch.mean),
    "max": _reduction(torch.amax),
    "min": _reduction(torch.amin),
    "all": _reduction(torch.all),
    "any": _reduction(torch.any),
    "prod": _prod,
    "variance": _deviation(torch.var),
    "std": _deviation(torch.std),
    "logsumexp": _with_axes(torch.logsumexp),
    "argmax": _arg(torch.argmax),
    "argmin": _arg(torch.argmin),
    "cumsum": _cumsum,
}

# ---------------------------------------------------------------- new tensors


def _scalar(s: Site, position: int) -> Native:
    """A tensor of one element as one of no axes."""
    return call(torch.reshape, s.operands[position], ())


def _full(s: Site) -> Native:
    dtype = dtype_of(s["dtype"]) if s["dtype"] else None
    if is_number(s.x):
        return call(torch.full, s["shape"], s.x, **options(dtype=(dtype, None)))
    value = _scalar(s, 0)
    return call(torch.clone, call(torch.broadcast_to, value if dtype is None else call("to", value, dtype), s["shape"]))


def _full_like(s: Site) -> Native:
    if is_number(s.operands[1]):
        return call(torch.full_like, s.x, s.operands[1])
    return call(torch.fill, s.x, _scalar(s, 1))


_CREATION: Final[Mapping[str, Writer]] = {
    "zeros": lambda s: call(torch.zeros, s["shape"], dtype=dtype_of(s["dtype"])),
    "ones": lambda s: call(torch.ones, s["shape"], dtype=dtype_of(s["dtype"])),
    "full": _full,
    "zeros_like": lambda s: call(torch.zeros_like, s.x),
    "ones_like": lambda s: call(torch.ones_like, s.x),
    "full_like": _full_like,
    "arange": lambda s: call(torch.arange, s["start"], s["stop"], s["step"], dtype=dtype_of(s["dtype"])),
}

WRITERS: Final[Mapping[str, Writer]] = {
    "copy": lambda s: call(torch.clone, s.x), **_ELEMENTWISE, **_REDUCTIONS, **_CREATION,
}  # fmt: skip
