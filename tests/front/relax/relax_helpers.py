"""Small Relax modules, and what two of them differ in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import tvm
from torch import nn
from tvm import relax
from tvm.relax.frontend.torch import from_exported_program
from tvm.script import ir as I
from tvm.script import relax as R


def difference(old: Any, new: Any) -> str:
    """In what two modules differ, with variables told apart by where they stand; nothing if they don't."""
    try:
        tvm.ir.assert_structural_equal(old, new)
    except ValueError as error:
        return str(error)
    return ""


def bindings(module: Any, function: str = "main") -> list[Any]:
    """The bindings of a function in order."""
    return [binding for block in module[function].body.blocks for binding in block.bindings]


def lines(module: Any, function: str = "main") -> list[str]:
    """The bindings of a function as text without types: ``lv = relax.add(x, y)``."""
    return [f"{binding.var.name} = {_text(binding.value)}" for binding in bindings(module, function)]


def _text(value: Any) -> str:
    match value:
        case relax.Call():
            name = getattr(value.op, "name", None) or getattr(value.op, "name_hint", None) or str(value.op)
            return f"{name.removeprefix('relax.')}({', '.join(map(_text, value.args))})"
        case relax.Tuple():
            return f"({', '.join(map(_text, value.fields))})"
        case relax.TupleGetItem():
            return f"{_text(value.tuple_value)}[{value.index}]"
        case relax.Var():
            return str(value.name)
        case tvm.ir.GenericConst():
            return "const" if value.value.shape else str(value.value.numpy())
        case relax.ShapeExpr():
            return str(list(value.values))
    return type(value).__name__


def function(params: Sequence[Any], body: Callable[..., Any], *, dataflow: bool = True) -> Any:
    """A module whose ``main`` takes the variables and returns what ``body(builder, *variables)`` gives."""
    builder = relax.BlockBuilder()
    with builder.function("main", list(params)):
        if dataflow:
            with builder.dataflow():
                result = builder.emit_output(body(builder, *params))
        else:
            result = body(builder, *params)
        builder.emit_func_output(result)
    return builder.get()


def tensor(name: str, *shape: Any, dtype: str = "float32") -> Any:
    """A variable that is a tensor."""
    return relax.Var(name, relax.TensorType(list(shape), dtype))


class Net(nn.Module):
    """A convolution with batch norm, and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.bn = nn.BatchNorm2d(4)
        self.fc = nn.Linear(4, 2)
        with torch.no_grad():
            self.bn.running_mean.uniform_(-0.2, 0.2)
            self.bn.running_var.uniform_(0.5, 1.5)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = torch.relu(self.bn(self.conv(x))).mean((2, 3)) * 2.0
        return self.fc(y), y


def exported(model: nn.Module, *args: torch.Tensor, **options: Any) -> tuple[Any, Any]:
    """A model as an exported program, and as a Relax module."""
    program = torch.export.export(model.eval(), args)
    return program, from_exported_program(program, **options)


def normed(*fields: int) -> Any:
    """A batch norm for inference, as an importer writes it that binds all its fields, of which some are returned."""
    mean, var = (relax.const(np.full(3, value, "float32")) for value in (0.5, 2.0))

    def body(builder: Any, x: Any) -> Any:
        twice = builder.emit(relax.op.nn.relu(builder.emit(relax.op.nn.relu(x))))
        norm = builder.emit(relax.op.nn.batch_norm(twice, var, mean, mean, var, axis=1, training=False))
        found = {index: builder.emit(relax.TupleGetItem(norm, index)) for index in (1, 0, 2)}
        return builder.emit(relax.Tuple([builder.emit(relax.op.exp(found[index])) for index in fields]))

    return function([tensor("x", 2, 3)], body)


@I.ir_module
class Mixed:
    """Several functions and blocks, branches, packed calls, checks."""

    @R.function
    def helper(x: R.Tensor((4, 4), "float32")) -> R.Tensor((4, 4), "float32"):
        return R.nn.relu(x)

    @R.function(pure=False)
    def main(x: R.Tensor((4, 4), "float32"), c: R.Tensor((), "bool"), s: R.Tensor(("n", 4), "float32")):
        with R.dataflow():
            a = R.add(x, x)
            b = R.multiply(a, R.const(2.0))
            R.output(b)
        R.print(b, format="{}")
        if c:
            z = R.add(b, x)
            y = R.nn.relu(z)
        else:
            y = R.nn.gelu(b)
        cls = Mixed
        h = cls.helper(y)
        k = R.call_packed("test.packed", h, ty_args=R.Tensor((4, 4), "float32"))
        m = R.call_dps_packed("test.dps", (h, k), out_ty=R.Tensor((4, 4), "float32"))
        t = R.shape_of(s)
        q = R.match_cast(k, R.Tensor((4, 4), "float32"))
        e = R.reshape(s, t)
        return (m, (q, e))
