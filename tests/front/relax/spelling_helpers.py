"""A function of Relax as the table of spellings sees it, and many small functions compiled at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import tvm
from tvm import ir, relax

from gsl.front.relax.types import Dims, type_of
from gsl.front.tree import Canon, LiteralOperand
from gsl.graph import Dim, Type


class Variables:
    """A function as the table sees it: what is bound to its variables."""

    def __init__(self) -> None:
        self.dims = Dims()
        self.bound: dict[Any, Any] = {}

    def lookup(self, var: Any) -> Any | None:
        return self.bound.get(var)

    def is_used_once(self, var: Any) -> bool:
        return var in self.bound

    def type_of(self, expr: Any) -> Type | None:
        return type_of(expr, self.dims, self.lookup)

    def dim(self, prim: Any) -> Dim:
        return self.dims.dim(prim)

    def prim(self, dim: Dim) -> Any:
        return self.dims.prim(dim)

    @property
    def builder(self) -> Any:
        return relax.BlockBuilder()

    def bind(self, name: str, expr: Any) -> Any:
        """A variable that is bound to the expression."""
        expr = normalised(expr)
        var = relax.Var(name, expr.ty)
        self.bound[var] = expr
        return var


def normalised(expr: Any) -> Any:
    return relax.BlockBuilder().normalize(expr)


def var(name: str, *shape: Any, dtype: str = "float32") -> Any:
    return relax.Var(name, relax.TensorType(shape, dtype))


def dtype_name(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


class Functions:
    """Many functions, compiled at once: one for each expression."""

    def __init__(self) -> None:
        self.builder = relax.BlockBuilder()
        self.count = 0

    def add(self, params: list[Any], expr: Any) -> str:
        name = f"f{self.count}"
        self.count += 1
        with self.builder.function(name, params):
            self.builder.emit_func_output(self.builder.emit(expr))
        return name

    def build(self) -> Callable[..., Any]:
        # Compiled fast, since each function runs once.
        target = tvm.target.Target({"kind": "llvm", "opt-level": 0})
        machine = relax.VirtualMachine(relax.build(self.builder.get(), target=target), tvm.cpu())

        def run(name: str, *values: torch.Tensor) -> Any:
            return _from_tvm(machine[name](*[tvm.runtime.tensor(value.contiguous().numpy()) for value in values]))

        return run


def _from_tvm(value: Any) -> Any:
    if isinstance(value, tvm.runtime.Tensor):
        return torch.from_numpy(value.numpy().copy())
    return tuple(map(_from_tvm, value))


def assert_close(found: Any, expected: Any) -> None:
    if isinstance(expected, tuple):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_close(one, other)
        return
    tolerance = 2e-3 if expected.dtype == torch.float16 else 1e-5
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance, equal_nan=True)


def tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, tuple):
        return [tensor for item in value for tensor in tensors(item)]
    return [value] if isinstance(value, torch.Tensor) else []


def leaves(tree: Any) -> list[Any]:
    """The variables and calls of Relax in a reading."""
    if isinstance(tree, Canon):
        return [leaf for operand in tree.operands for leaf in leaves(operand)]
    return [] if isinstance(tree, (LiteralOperand, ir.GenericConst)) else [tree]
