"""The operators as classes: ``op.Conv2D(x, w, strides=(1, 1))`` is a call pattern.

There is one class for every declaration in :mod:`gsl.spec`, named as in TVM Relay's API.
"""

from __future__ import annotations

import typing as _typing  # `op.Any` is an operator

from gsl.errors import UnknownAttributeError, located, nearest
from gsl.pat import Call
from gsl.spec import REQUIRED, TABLE, OpSpec, Trait

__all__ = ["Operator", "Trait"]


class Operator:
    """An operator of the vocabulary; calling it with operands and attributes builds a call pattern."""

    def __init__(self, spec: OpSpec) -> None:
        self.spec = spec
        self.__name__ = spec.cls
        attrs = (name if a.default is REQUIRED else f"{name}={a.default!r}" for name, a in spec.attrs.items())
        self.__doc__ = f"{spec.name}({', '.join((*spec.operands, *attrs))})"

    def __call__(self, *operands: _typing.Any, **attrs: _typing.Any) -> Call:
        return Call(self.spec, *operands, **attrs)

    def __repr__(self) -> str:
        return f"op.{self.spec.cls}"

    def __reduce__(self) -> str | tuple[_typing.Any, ...]:
        return self.spec.cls


_CLASSES = {spec.cls: Operator(spec) for spec in TABLE.values()}
_OF_TORCH: _typing.Final = {
    "bmm": "BatchMatmul", "cat": "Concatenate", "div": "Divide", "embedding": "Take", "expand": "BroadcastTo",
    "linear": "Dense", "mm": "Matmul", "mul": "Multiply", "neg": "Negative", "permute": "Transpose", "pow": "Power",
    "sub": "Subtract", "to": "Cast", "unsqueeze": "ExpandDims", "view": "Reshape",
}  # fmt: skip
"""Operators by their names in torch that are like no name of theirs here."""


def __getattr__(name: str) -> Operator:
    if name in _CLASSES:
        return _CLASSES[name]
    if name.startswith("__"):
        raise AttributeError(name)
    meant = _OF_TORCH.get(name.lower())
    end = nearest(name, _CLASSES) if meant is None else f"did you mean {meant!r}?"
    raise UnknownAttributeError(located(f"gsl.op has no operator {name!r}: {end} (docs/operators.md lists them)"))


def __dir__() -> list[str]:
    return sorted([*_CLASSES, *__all__])
