"""Operators that make tensors of nothing but attributes, or in the likeness of another tensor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gsl.spec import examples as e
from gsl.spec import normalise as n
from gsl.spec.examples import Example, call
from gsl.spec.spec import REQUIRED, AttrSpec, OpSpec, Types

_SHAPE = AttrSpec(REQUIRED, n.shape)
_FLOAT32 = AttrSpec("float32", n.dtype)


def _filled(torch: Any, value: Any, shape: Any, dtype: Any) -> Any:
    """A tensor filled with a number or a tensor of one element, in its own dtype if none is given."""
    if isinstance(value, (bool, int, float)):
        return torch.full(shape, value, dtype=dtype)
    return value.reshape(()).to(dtype or value.dtype).expand(shape).clone()


def _full(torch: Any, fill_value: Any, shape: Any, dtype: str) -> Any:
    return _filled(torch, fill_value, shape, getattr(torch, dtype) if dtype else None)


def _arange_dtype(attrs: Mapping[str, Any], types: Types) -> Mapping[str, Any]:
    """Without a dtype, ints count in int64 and floats in float32."""
    bounds = (attrs["start"], attrs["stop"], attrs["step"])
    own = "float32" if any(isinstance(bound, float) for bound in bounds) else "int64"
    return {**attrs, "dtype": attrs["dtype"] or own}


def _arange(torch: Any, start: Any, stop: Any, step: Any, dtype: str) -> Any:
    return torch.arange(start, stop, step, dtype=getattr(torch, dtype))


def _constant(name: str, example: Example) -> OpSpec:
    """A function of ``torch`` that makes a tensor of one number."""
    return OpSpec(
        name, name.title(), (), lambda torch, shape, dtype: getattr(torch, name)(shape, dtype=getattr(torch, dtype)),
        {"shape": _SHAPE, "dtype": _FLOAT32}, examples=(example,), torch_names=f"new_{name}",
    )  # fmt: skip


OPS: tuple[OpSpec, ...] = (
    _constant("zeros", call(shape=(2, 3))),
    _constant("ones", call(shape=3, dtype="int64")),
    # The value is an operand, a number or a tensor of one element; dtype "" is its own.
    OpSpec(
        "full",
        "Full",
        ("fill_value",),
        _full,
        {"shape": _SHAPE, "dtype": AttrSpec("", n.dtype_or_same)},
        examples=(call(2.5, shape=(1, 2)), call(e.exactly([3], "int64"), shape=2, dtype="int8")),
        torch_names="scalar_tensor new_full",
    ),
    OpSpec("zeros_like", "ZerosLike", ("data",), lambda torch, x: torch.zeros_like(x), examples=(call(e.I32),)),
    OpSpec("ones_like", "OnesLike", ("data",), lambda torch, x: torch.ones_like(x), examples=(call(e.X),)),
    OpSpec(
        "full_like",
        "FullLike",
        ("data", "fill_value"),
        lambda torch, x, value: _filled(torch, value, x.shape, x.dtype),
        examples=(call(e.I32, 4.0), call(e.X, e.exactly(4, "int64"))),
    ),
    # The dtype "" is int64 or float32, as the bounds are.
    OpSpec(
        "arange",
        "Arange",
        (),
        _arange,
        {
            "start": AttrSpec(0, n.bound),
            "stop": AttrSpec(REQUIRED, n.bound),
            "step": AttrSpec(1, n.bound),
            "dtype": AttrSpec("", n.dtype_or_same),
        },
        joint=_arange_dtype,
        examples=(
            call(stop=4), call(start=1, stop=2.5, step=0.5), call(start=3, stop=0, step=-2, dtype="float32"),
        ),
        torch_names="iota",
    ),
)
