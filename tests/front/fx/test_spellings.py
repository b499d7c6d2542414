"""The table of spellings: what is written means what the operator means, and what is read means what the call does."""

from __future__ import annotations

import functools
import inspect
import math
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._ops import OpOverload

from gsl import modules
from gsl.front.fx import spellings
from gsl.front.fx.spellings import FAMILIES, effects
from gsl.front.fx.spellings.bind import ALIASES, FxSignature
from gsl.front.fx.spellings.table import FxRow, Native, Weight, resolve
from gsl.front.tree import Canon, LiteralOperand
from gsl.graph import TensorType, TupleType, Type
from gsl.spec import TABLE
from gsl.spec.meaning import evaluate
from tests.helpers.corners import CORNERS
from tests.helpers.examples import EVERY_CALL, ExampleCall

aten = torch.ops.aten


class Leaf:
    """What stands for an operand: a tensor that nothing can look into."""

    def __init__(self, value: Any) -> None:
        self.value = value


def type_of_value(value: Any) -> Type | None:
    if isinstance(value, torch.Tensor):
        return TensorType(tuple(value.shape), str(value.dtype).removeprefix("torch."))
    if isinstance(value, (tuple, list)):
        return TupleType(tuple(map(type_of_value, value)))
    return None


def type_of(operand: Any) -> Type | None:
    if isinstance(operand, (tuple, list)):
        return TupleType(tuple(map(type_of, operand)))
    return type_of_value(operand.value) if isinstance(operand, Leaf) else None


def untyped(operand: Any) -> None:
    return None


def leaves(value: Any) -> Any:
    """The same value with a leaf for every tensor."""
    if isinstance(value, torch.Tensor):
        return Leaf(value)
    if isinstance(value, (tuple, list)):
        return type(value)(map(leaves, value))
    return {k: leaves(v) for k, v in value.items()} if isinstance(value, dict) else value


def run(tree: Any) -> Any:
    """The value of a tree of native calls."""
    match tree:
        case Native():
            args, kwargs = [run(arg) for arg in tree.args], {k: run(v) for k, v in tree.kwargs.items()}
            if isinstance(tree.target, str):
                return getattr(args[0], tree.target)(*args[1:], **kwargs)
            return tree.target(*args, **kwargs)
        case Leaf():
            return tree.value
        case tuple() | list():
            return type(tree)(map(run, tree))
        case slice():
            return slice(run(tree.start), run(tree.stop), run(tree.step))
    return tree


def mean(tree: Any, module: nn.Module | None = None) -> Any:
    """The value of a tree of canonical calls, by the meanings of the operators."""
    match tree:
        case Canon("tuple", operands):
            return tuple(mean(x, module) for x in operands)
        case Canon("getitem", (operand,), attrs):
            return mean(operand, module)[attrs["index"]]
        case Canon(op, operands, attrs):
            return evaluate(TABLE[op], [mean(x, module) for x in operands], attrs)
        case Leaf() | LiteralOperand():
            return tree.value
        case Weight():
            return getattr(module, tree.name)
    return tree


def show(tree: Any, typed: bool = True) -> Any:
    """A tree of canonical calls with complete attributes, to compare and to print."""
    match tree:
        case Canon("tuple" | "getitem", operands, attrs):
            return (tree.op, tuple(show(x) for x in operands), dict(attrs))
        case Canon(op, operands, attrs):
            types = tuple(type_of_value(mean(x)) for x in operands) if typed else (None,) * len(operands)
            full = TABLE[op].complete(attrs, types)
            return (op, tuple(show(x, typed) for x in operands), full)
        case LiteralOperand(torch.Tensor() as value):
            return value.tolist()
    return tree


def same(found: Any, expected: Any, tolerance: float = 1e-5) -> None:
    if isinstance(expected, (tuple, list)):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            same(one, other, tolerance)
        return
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance, equal_nan=True)


@functools.cache
def T(*shape: int, dtype: torch.dtype = torch.float32, low: float = -2.0, high: float = 2.0) -> torch.Tensor:
    """A tensor with reproducible elements."""
    generator = torch.Generator().manual_seed(sum(shape) * 31 + len(shape))
    values = torch.rand(shape, generator=generator, dtype=torch.float64) * (high - low) + low
    return (values > 0) if dtype == torch.bool else values.to(dtype)


@functools.cache
def N(*shape: int, high: int = 5) -> torch.Tensor:
    return T(*shape, low=0, high=high).long()


# ---------------------------------------------------------------- writing


UNREAD_AGAIN = {
    "nn.layer_norm(scale=False)", "nn.pad(pad_width=((0, 0), (-1, 2), (1, -1)))",
    "nn.pad(pad_width=((-1, 0), (1, -2), (0, -1)), pad_value=0.5)", "reshape(newshape=(3, 0))", "reverse(axis=())",
}  # fmt: skip
"""The calls that are written as one call of torch, which is not read: it might mean something else."""
OF_TENSORS = ("add", "cast")
"""Of numbers alone, they are no calls of torch."""
WRITES = [*EVERY_CALL, *CORNERS]


def complete(case: ExampleCall) -> dict[str, Any]:
    return TABLE[case.op].complete(case.attrs, tuple(map(type_of_value, case.operands)))


@pytest.mark.sweep(4)
@pytest.mark.parametrize("dialect", ["torch", "aten"])
@pytest.mark.parametrize("case", WRITES, ids=str)
def test_what_is_written_means_the_operator(case: ExampleCall, dialect: str) -> None:
    attrs = complete(case)
    if case.operands and all(isinstance(operand, (int, float)) for operand in case.operands) and case.op in OF_TENSORS:
        with pytest.raises(ValueError, match=f"{case.op}: expected a tensor"):
            spellings.write(case.op, attrs, case.operands, type_of, dialect)
        return
    tree = spellings.write(case.op, attrs, leaves(case.operands), type_of, dialect)
    same(run(tree), evaluate(TABLE[case.op], case.operands, attrs), case.tolerance)
    if dialect == "aten":
        own = ("aten.", "gsl.")
        assert all(str(native.target).startswith(own) or native.target is operator.getitem for native in natives(tree))
    if case.op == "strided_slice" and not attrs["axes"]:
        return
    if not any(isinstance(native, Native) for arg in (tree.args, tree.kwargs.values()) for native in flat(arg)):
        back = spellings.read(tree.target, tree.args, tree.kwargs, type_of)
        assert (back is None) == (case.label in UNREAD_AGAIN), tree
        if back is None:
            return
        assert isinstance(back, Canon)
        same(mean(back), evaluate(TABLE[case.op], case.operands, attrs))


def natives(tree: Any) -> list[Native]:
    return (
        [tree, *(n for part in flat((tree.args, tree.kwargs)) for n in natives(part))]
        if isinstance(tree, Native)
        else []
    )


def flat(value: Any) -> list[Any]:
    if isinstance(value, dict):
        value = value.values()
    if isinstance(value, (list, tuple)) or hasattr(value, "__next__") or type(value).__name__ == "dict_values":
        return [leaf for item in value for leaf in flat(item)]
    return [value]


# ---------------------------------------------------------------- reading


@dataclass
class C:
    """A native call of a function, an operator or (by name) a method."""

    target: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def __str__(self) -> str:
        kind = "." if isinstance(self.target, str) else "aten." if "aten" in str(self.target) else ""
        name = self.target if isinstance(self.target, str) else getattr(self.target, "__name__", str(self.target))
        return f"{kind}{name}({', '.join([str(len(self.args)), *self.kwargs])})"


def c(target: Any, *args: Any, **kwargs: Any) -> C:
    return C(target, args, kwargs)


def native(call: C) -> Any:
    """The value of the call itself, on copies that it may change."""
    args, kwargs = torch.utils._pytree.tree_map(
        lambda x: x.clone() if isinstance(x, torch.Tensor) else x, (call.args, call.kwargs)
    )
    return (
        getattr(args[0], call.target)(*args[1:], **kwargs)
        if isinstance(call.target, str)
        else call.target(*args, **kwargs)
    )


class Once:
    """Leaves for tensors, one for each, so that readings can be compared."""

    def __init__(self) -> None:
        self.leaves: dict[int, Leaf] = {}

    def of(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return self.leaves.setdefault(id(value), Leaf(value))
        if isinstance(value, slice):
            return value
        if isinstance(value, (tuple, list)):
            return type(value)(map(self.of, value))
        return {k: self.of(v) for k, v in value.items()} if isinstance(value, dict) else value


def read(call: C, once: Once, types: Callable[[Any], Any] = type_of) -> Canon | None:
    return spellings.read(call.target, once.of(call.args), once.of(call.kwargs), types)


x, y, w, b, v = T(2, 3), T(2, 3) + 1, T(5, 3), T(5), T(3)
even = T(2, 4, 4, 6)
img, kernel, kbias, channel, spread = T(2, 4, 7, 7), T(6, 4, 3, 3), T(6), T(4), T(4) ** 2
single = img[:1]
ints, mask, idx = N(2, 3) + 1, T(2, 3, dtype=torch.bool), N(2, 4)
table, batch1, batch2, square = T(5, 3), T(2, 3, 4), T(2, 4, 5), T(4, 4)
q, k, val = T(2, 2, 4, 8), T(2, 2, 5, 8), T(2, 2, 5, 8)
below = N(3, 1, high=3) - 2
one, near, long, half = T(1, 2, 3), N(4, high=3), T(2, 3, 4), T(2, 3, dtype=torch.float16)

SAME: dict[str, list[C]] = {
    "nn.relu": [
        c(torch.relu, x), c(F.relu, x), c(F.relu, input=x), c(F.relu, x, True), c(F.relu, x, inplace=True),
        c("relu", x),
        c("relu_", x), c(torch.relu_, x), c(aten.relu.default, x), c(aten.relu_.default, x), c(F.relu_, x),
    ],
    "relu6": [c(F.relu6, x), c(F.hardtanh, x, 0.0, 6.0), c(aten.hardtanh.default, x, 0, 6), c(aten.relu6.default, x)],
    "leaky": [
        c(F.leaky_relu, x, 0.1), c(F.leaky_relu, x, negative_slope=0.1, inplace=True),
        c(aten.leaky_relu.default, x, 0.1),
        c(aten.leaky_relu_.default, x, 0.1),
    ],
    "gelu": [
        c(F.gelu, x), c(F.gelu, x, approximate="none"), c(aten.gelu.default, x),
        c(aten.gelu.default, x, approximate="none"),
    ],
    "gelu tanh": [c(F.gelu, x, approximate="tanh"), c(aten.gelu.default, x, approximate="tanh")],
    "elu": [c(F.elu, x, 0.5), c(F.elu, x, alpha=0.5, inplace=False), c(aten.elu.default, x, 0.5)],
    "scaled elu": [c(aten.elu.default, x, 0.5, 2.0), c(aten.elu.default, x, alpha=0.5, scale=2.0, input_scale=1)],
    "silu": [c(F.silu, x), c(F.silu, x, inplace=True), c(aten.silu.default, x), c(aten.silu_.default, x)],
    "hardswish": [c(F.hardswish, x), c(aten.hardswish.default, x), c(aten.hardswish_.default, x)],
    "softplus": [c(F.softplus, x, 2), c(F.softplus, x, beta=2, threshold=20), c(aten.softplus.default, x, 2.0)],
    "sigmoid": [c(torch.sigmoid, x), c(F.sigmoid, x), c("sigmoid", x), c(aten.sigmoid.default, x), c("sigmoid_", x)],
    "abs": [c(torch.abs, x), c(operator.abs, x), c("abs", x), c(aten.abs.default, x)],
    "negative": [c(torch.neg, x), c(operator.neg, x), c("neg", x), c(torch.negative, x), c(aten.neg.default, x)],
    "int sqrt": [c(torch.sqrt, ints), c("sqrt", ints), c(aten.sqrt.default, ints)],
    "add": [
        c(torch.add, x, y), c(operator.add, x, y), c("add", x, y), c("add_", x, y), c(operator.iadd, x, y),
        c(torch.add, x, other=y), c(torch.add, input=x, other=y), c(torch.add, x, y, alpha=1), c(aten.add.Tensor, x, y),
        c(aten.add_.Tensor, x, y),
    ],
    "add scalar": [
        c(torch.add, x, 2), c(operator.add, x, 2), c("add", x, 2), c(aten.add.Tensor, x, 2), c(aten.add.Scalar, x, 2),
    ],
    "add alpha": [c(torch.add, x, y, alpha=2), c("add", x, y, alpha=2), c(aten.add.Tensor, x, y, alpha=2)],
    "sub": [
        c(torch.sub, x, y), c(operator.sub, x, y), c("sub", x, y), c(torch.subtract, x, y), c(aten.sub.Tensor, x, y),
        c(torch.rsub, y, x), c(aten.rsub.Tensor, y, x), c(operator.isub, x, y),
    ],
    "rsub": [c(operator.sub, 2.0, x), c(torch.rsub, x, 2.0), c(aten.rsub.Scalar, x, 2.0)],
    "mul": [
        c(torch.mul, x, y), c(operator.mul, x, y), c("mul", x, y), c(torch.multiply, x, y), c(aten.mul.Tensor, x, y),
    ],
    "outer": [
        c(torch.outer, b, v), c("outer", b, v), c(torch.ger, b, v), c(aten.outer.default, b, v),
        c(aten.ger.default, b, v),
    ],
    "mul promotes": [c(torch.mul, half, x), c("mul", half, x), c(aten.mul.Tensor, half, x)],
    "div": [
        c(torch.div, x, y), c(operator.truediv, x, y), c("div", x, y), c(torch.true_divide, x, y),
        c(aten.div.Tensor, x, y),
        c(torch.div, x, y, rounding_mode=None), c("div_", x, y),
    ],
    "int div": [c(torch.div, ints, 2), c(operator.truediv, ints, 2), c(aten.div.Tensor, ints, 2)],
    "floor div": [
        c(torch.floor_divide, x, y), c(operator.floordiv, x, y), c(torch.div, x, y, rounding_mode="floor"),
        c(aten.div.Tensor_mode, x, y, rounding_mode="floor"), c(aten.floor_divide.default, x, y),
    ],
    "trunc div": [c(torch.div, x, y, rounding_mode="trunc"), c("div", x, y, rounding_mode="trunc")],
    "floor mod": [
        c(torch.remainder, x, 2), c(operator.mod, x, 2), c("remainder", x, 2), c(aten.remainder.Scalar, x, 2),
    ],
    "mod": [c(torch.fmod, x, 2), c("fmod", x, 2), c(aten.fmod.Scalar, x, 2)],
    "power": [c(torch.pow, x, 2), c(operator.pow, x, 2), c("pow", x, exponent=2), c(aten.pow.Tensor_Scalar, x, 2)],
    "power base": [c(torch.pow, 2, x), c(operator.pow, 2, x), c(aten.pow.Scalar, 2, x)],
    "square": [c(torch.square, x), c("square", x), c(aten.square.default, x)],
    "less": [c(torch.lt, x, 0), c(operator.lt, x, 0), c("less", x, 0), c(aten.lt.Scalar, x, 0)],
    "and": [c(torch.bitwise_and, mask, mask), c(operator.and_, mask, mask), c(aten.__and__.Tensor, mask, mask)],
    "maximum": [c(torch.maximum, x, y), c(torch.max, x, y), c("max", x, y), c(aten.maximum.default, x, y)],
    "clip": [
        c(torch.clamp, x, -1, 1), c("clamp", x, min=-1, max=1), c(torch.clip, x, -1.0, 1.0),
        c(aten.clamp.default, x, -1, 1),
        c(F.hardtanh, x), c(aten.hardtanh.default, x), c("clamp_", x, -1, 1),
    ],
    "clip min": [
        c("clamp", x, min=0.5), c(torch.clamp, x, 0.5), c(torch.clamp_min, x, 0.5), c(aten.clamp_min.default, x, 0.5),
    ],
    "clip int": [c(torch.clamp, ints, 0, 2.5), c(aten.clamp.default, ints, 0, 2.5)],
    "cast": [
        c("to", x, torch.int64), c("long", x), c("type", x, torch.int64), c("type_as", x, ints),
        c(aten.to.dtype, x, torch.int64),
        c(aten._to_copy.default, x, dtype=torch.int64), c("to", x, dtype=torch.int64, non_blocking=True),
        c(torch.ops.prims.convert_element_type.default, x, torch.int64), c("to", x, "cpu", torch.int64),
        c(aten.to.device, x, torch.device("cpu"), torch.int64), c("to", x, torch.device("cpu"), dtype=torch.int64),
        c(aten.to.dtype_layout, x, dtype=torch.int64, layout=torch.strided, device=torch.device("cpu")),
    ],
    "where": [c(torch.where, mask, x, y), c("where", x, mask, y), c(aten.where.self, mask, x, y)],
    "masked fill": [
        c(torch.masked_fill, x, mask, -9.0), c("masked_fill", x, mask, value=-9.0), c("masked_fill_", x, mask, -9.0),
        c(aten.masked_fill.Scalar, x, mask, -9.0), c(torch.where, mask, -9.0, x),
    ],
    "softmax": [
        c(torch.softmax, x, -1), c(F.softmax, x, dim=-1), c("softmax", x, dim=1), c(aten.softmax.int, x, -1),
        c(aten._softmax.default, x, 1, False), c(F.softmax, x, -1, 3), c(F.softmax, x, dim=-1, dtype=torch.float32),
    ],
    "softmax cast": [c(F.softmax, half, dim=-1, dtype=torch.float32), c(torch.softmax, half, 1, torch.float32)],
    "linear": [
        c(F.linear, x, w, b), c(F.linear, x, w, bias=b), c(F.linear, input=x, weight=w, bias=b),
        c(aten.linear.default, x, w, b),
    ],
    "linear no bias": [c(F.linear, x, w), c(F.linear, x, w, None), c(aten.linear.default, x, w)],
    "matmul": [
        c(torch.matmul, batch1, batch2), c(operator.matmul, batch1, batch2), c(torch.bmm, batch1, batch2),
        c("matmul", batch1, batch2),
        c("bmm", batch1, batch2), c("bmm", batch1, mat2=batch2), c(aten.bmm.default, batch1, batch2),
        c(aten.matmul.default, batch1, batch2),
    ],
    "addmm": [c(torch.addmm, T(4), square, square), c(aten.addmm.default, T(4), square, square)],
    "addmv": [c(torch.addmv, T(5), w, v), c("addmv", T(5), w, v), c(aten.addmv.default, T(5), w, v)],
    "addmm scaled": [c(torch.addmm, v[:1], x, x.T.clone(), beta=2, alpha=3)],
    "baddbmm alone": [c(torch.baddbmm, T(2, 3, 5) * math.nan, batch1, batch2, beta=0, alpha=0.5)],
    "baddbmm": [c(torch.baddbmm, T(2, 3, 5), batch1, batch2), c(aten.baddbmm.default, T(2, 3, 5), batch1, batch2)],
    "baddbmm that adds nothing": [c(torch.baddbmm, T(2, 3, 5), batch1, batch2, beta=0, alpha=3)],
    "conv": [
        c(F.conv2d, img, kernel, kbias, 2, 1), c(F.conv2d, img, kernel, kbias, stride=(2, 2), padding=(1, 1)),
        c(torch.conv2d, img, kernel, bias=kbias, stride=2, padding=1, dilation=1, groups=1),
        c(aten.conv2d.default, img, kernel, kbias, [2, 2], [1, 1]),
        c(aten.convolution.default, img, kernel, kbias, [2, 2], [1, 1], [1, 1], False, [0, 0], 1),
    ],
    "conv same": [
        c(F.conv2d, img, kernel, padding="same"), c(F.conv2d, img, kernel, None, 1, 1),
        c(aten.conv2d.padding, img, kernel, None, [1, 1], "same"),
    ],
    "conv same even": [c(F.conv2d, img, T(6, 4, 4, 2), padding="same", dilation=(1, 2))],
    "conv valid": [c(F.conv2d, img, kernel, padding="valid"), c(F.conv2d, img, kernel)],
    "conv1d": [c(F.conv1d, T(2, 4, 7), T(6, 4, 3), None, 1, 1), c(torch.conv1d, T(2, 4, 7), T(6, 4, 3), padding=1)],
    "conv transpose": [
        c(F.conv_transpose2d, img, T(4, 2, 3, 3), None, 2, 1, 1, 2),
        c(aten.conv_transpose2d.input, img, T(4, 2, 3, 3), None, [2, 2], [1, 1], [1, 1], 2),
        c(aten.convolution.default, img, T(4, 2, 3, 3), None, [2, 2], [1, 1], [1, 1], True, [1, 1], 2),
    ],
    "max pool": [
        c(F.max_pool2d, img, 2), c(F.max_pool2d, img, (2, 2), stride=2), c(torch.max_pool2d, img, 2),
        c(aten.max_pool2d.default, img, [2, 2]),
        c(aten.max_pool2d.default, img, [2, 2], [2, 2]),
    ],
    "avg pool": [
        c(F.avg_pool2d, img, 3, 2, 1), c(aten.avg_pool2d.default, img, [3, 3], [2, 2], [1, 1]),
        c(F.avg_pool2d, img, 3, stride=2, padding=1, count_include_pad=True),
    ],
    "adaptive": [
        c(F.adaptive_avg_pool2d, img, 1), c(F.adaptive_avg_pool2d, img, (1, 1)),
        c(aten.adaptive_avg_pool2d.default, img, [1, 1]),
        c(aten._adaptive_avg_pool2d.default, img, [1, 1]),
    ],
    "adaptive none": [c(F.adaptive_avg_pool2d, img, (None, 2)), c(F.adaptive_avg_pool2d, img, (7, 2))],
    "batch norm": [
        c(F.batch_norm, img, channel, spread, channel, channel),
        c(F.batch_norm, img, channel, spread, weight=channel, bias=channel, eps=1e-5),
        c(aten.batch_norm.default, img, channel, channel, channel, spread, False, 0.1, 1e-5, True),
    ],
    "layer norm": [
        c(F.layer_norm, x, (3,), v, v), c(F.layer_norm, x, [3], weight=v, bias=v, eps=1e-5),
        c(torch.layer_norm, x, (3,), v, v), c(aten.layer_norm.default, x, [3], v, v),
    ],
    "layer norm plain": [c(F.layer_norm, x, (2, 3)), c(aten.layer_norm.default, x, [2, 3])],
    "rms norm": [c(F.rms_norm, x, (3,), v, 1e-6), c(aten.rms_norm.default, x, [3], v, 1e-6)],
    "rms norm eps": [c(F.rms_norm, x, (3,)), c(aten.rms_norm.default, x, [3])],
    "group norm": [
        c(F.group_norm, img, 2, channel, channel), c(torch.group_norm, img, 2, channel, channel),
        c(aten.group_norm.default, img, 2, channel, channel),
    ],
    "instance norm": [c(F.instance_norm, img), c(F.instance_norm, img, None, None, None, None, True)],
    "instance norm of one": [
        c(F.instance_norm, single, weight=channel, bias=channel),
        c(F.batch_norm, single, None, None, channel, channel, True),
        c(aten.batch_norm.default, single, channel, channel, None, None, True, 0.1, 1e-5, True),
    ],
    "normalize": [c(F.normalize, x), c(F.normalize, x, p=2, dim=-1, eps=1e-12)],
    "copy": [
        c(torch.clone, x), c("clone", x), c(aten.clone.default, x), c("contiguous", x), c(aten.alias.default, x),
        c(torch.clone, x, memory_format=torch.contiguous_format), c(aten.contiguous.default, x),
        c(aten.clone.default, x, memory_format=torch.preserve_format), c(aten.lift_fresh_copy.default, x),
    ],
    "dropout": [
        c(F.dropout, x, 0.1, False), c(F.dropout, x, p=0.1, training=False), c(torch.dropout, x, 0.1, False),
        c(aten.dropout.default, x, 0.1, False),
    ],
    "attention": [
        c(F.scaled_dot_product_attention, q, k, val), c(aten.scaled_dot_product_attention.default, q, k, val),
    ],
    "attention mask": [
        c(F.scaled_dot_product_attention, q, k, val, T(4, 5), scale=0.5),
        c(aten.scaled_dot_product_attention.default, q, k, val, T(4, 5), scale=0.5),
    ],
    "reshape": [
        c("view", x, 3, 2), c("view", x, (3, 2)), c("view", x, -1, 2), c("reshape", x, [3, 2]),
        c(torch.reshape, x, (3, 2)), c(aten.view.default, x, [3, -1]),
        c(aten._unsafe_view.default, x, [3, 2]), c(aten.reshape.default, x, [3, 2]), c("view_as", x, T(3, 2)),
    ],
    "flatten": [
        c(torch.flatten, img, 1), c("flatten", img, start_dim=1), c("view", img, 2, -1),
        c(aten.flatten.using_ints, img, 1), c("reshape", img, 2, 4 * 49),
    ],
    "flatten all": [c(torch.flatten, img), c("ravel", img), c("reshape", img, -1)],
    "unflatten": [
        c(torch.unflatten, table, 0, (5, -1)), c("unflatten", table, 0, (5, 1)),
        c(aten.unflatten.int, table, 0, [5, 1]),
    ],
    "transpose": [
        c(torch.transpose, long, 1, 2), c("transpose", long, -2, -1), c("permute", long, 0, 2, 1),
        c("permute", long, (0, 2, 1)), c(torch.permute, long, (0, 2, 1)),
        c("swapaxes", long, 1, 2), c(aten.transpose.int, long, 1, 2), c(aten.permute.default, long, [0, 2, 1]),
        c(getattr, long, "mT"), c(aten.mT.default, long), c(aten.mT, long), c("movedim", long, 1, 2),
        c(aten.moveaxis.int, long, 1, 2),
        c(aten.swapaxes.default, long, 1, 2), c(aten.swapdims.default, long, -1, -2),
        c(torch.swapaxes, long, axis0=1, axis1=2),
        c(torch.movedim, long, (2, 1), (1, 2)),
    ],
    "T": [c(aten.numpy_T.default, long), c(aten.numpy_T, long), c("permute", long, 2, 1, 0)],
    "view as": [c("view_as", one, x), c("reshape_as", one, x), c(aten.view_as.default, one, x),
                c(aten.reshape_as.default, one, x), c("view", one, 2, 3)],
    "t": [c("t", x), c(torch.t, x), c(getattr, x, "T"), c(aten.t.default, x), c("transpose", x, 0, 1)],
    "unsqueeze": [
        c("unsqueeze", x, 1), c(torch.unsqueeze, x, dim=-2), c(aten.unsqueeze.default, x, 1),
        c(operator.getitem, x, (slice(None), None)),
    ],
    "squeeze": [
        c("squeeze", one, 0), c("squeeze", one), c(torch.squeeze, one, dim=(0,)), c(aten.squeeze.dim, one, 0),
        c(aten.squeeze.dims, one, [0]),
    ],
    "expand": [
        c("expand", v, 2, -1), c("expand", v, (2, 3)), c("expand_as", v, x), c(torch.broadcast_to, v, (2, 3)),
        c(aten.expand.default, v, [2, -1]),
    ],
    "cat": [
        c(torch.cat, (x, y), 1), c(torch.cat, [x, y], dim=-1), c(torch.concat, (x, y), dim=1),
        c(aten.concat.default, [x, y], 1), c(aten.concatenate.default, [x, y], 1),
        c(aten.cat.default, [x, y], 1),
    ],
    "stack": [c(torch.stack, (x, y)), c(torch.stack, [x, y], dim=0), c(aten.stack.default, [x, y])],
    "split": [
        c(torch.split, table, 2), c("split", table, [2, 2, 1]), c(torch.chunk, table, 3), c("chunk", table, 3, dim=0),
        c(aten.split.Tensor, table, 2),
        c(aten.split_with_sizes.default, table, [2, 2, 1]), c("tensor_split", table, (2, 4)),
        c(torch.tensor_split, table, 3), c(torch.split, table, split_size_or_sections=2),
    ],
    "tile": [c("repeat", x, 2, 1), c("repeat", x, (2, 1)), c(torch.tile, x, (2, 1)), c(aten.repeat.default, x, [2, 1])],
    "repeat": [
        c(torch.repeat_interleave, x, 2, 1), c("repeat_interleave", x, 2, dim=1),
        c(aten.repeat_interleave.self_int, x, 2, 1), c(aten.repeat_interleave.self_int, x, 2, 1, output_size=6),
    ],
    "flip": [c(torch.flip, x, (0, 1)), c("flip", x, 0, 1), c("flip", x, [0, 1]), c(aten.flip.default, x, [0, 1])],
    "einsum": [
        c(torch.einsum, "ij,kj->ik", x, w), c(torch.einsum, "ij,kj->ik", [x, w]),
        c(aten.einsum.default, "ij,kj->ik", [x, w]),
    ],
    "tensordot": [
        c(torch.tensordot, x, w, ([1], [1])), c(torch.tensordot, x, w, ((-1,), (-1,))),
        c(aten.tensordot.default, x, w, [1], [-1]),
    ],
    "tensordot of neighbours": [c(torch.tensordot, x, v, 1), c(aten.tensordot.default, x, v, [1], [0])],
    "pad": [
        c(F.pad, x, (1, 2)), c(F.pad, x, (1, 2), "constant", 0.0), c(aten.constant_pad_nd.default, x, [1, 2]),
        c(aten.pad.default, x, [1, 2]),
    ],
    "pad reflect": [
        c(F.pad, img, (1, 2, 0, 1), mode="reflect"), c(aten.reflection_pad2d.default, img, [1, 2, 0, 1]),
        c(aten.pad.default, img, [1, 2, 0, 1], "reflect"),
    ],
    "pad edge": [c(F.pad, img, (1, 2, 0, 0), mode="replicate"), c(aten.replication_pad2d.default, img, [1, 2, 0, 0])],
    "slice": [
        c(operator.getitem, x, (slice(None), slice(1, None))), c(operator.getitem, x, (..., slice(1, 3))),
        c(aten.slice.Tensor, x, 1, 1, 2**63 - 1),
        c(aten.slice.Tensor, x, -1, 1), c(torch.narrow, x, 1, 1, 2), c("narrow", x, -1, 1, 2),
        c(operator.getitem, x, (slice(None), slice(-2, None))),
    ],
    "select": [
        c(operator.getitem, x, 1), c(torch.select, x, 0, 1), c("select", x, 0, index=1), c(aten.select.int, x, 0, 1),
        c(operator.getitem, x, (1, ...)),
    ],
    "getitem": [c(operator.getitem, img, (slice(None, None, 2), 1, None, ..., -1))],
    "getitem ints": [c(operator.getitem, img, (None, 1, slice(2, 3), None, 0))],
    "take": [
        c(F.embedding, idx, table), c(F.embedding, idx, weight=table, padding_idx=1), c(torch.embedding, table, idx),
        c(aten.embedding.default, table, idx),
        c(aten.embedding.default, table, idx, 1), c(operator.getitem, table, idx), c(aten.index.Tensor, table, [idx]),
        c(operator.getitem, table, (idx, slice(None))),
    ],
    "index": [
        c(aten.index.Tensor, batch1, [N(4, high=2), below]),
        c(operator.getitem, batch1, (N(4, high=2), below)),
    ],
    "index of later axes": [
        c(aten.index.Tensor, img, [None, N(4, high=4), N(3, 1, high=7)]),
        c(aten._unsafe_index.Tensor, img, [None, N(4, high=4), N(3, 1, high=7)]),
    ],
    "index of axes apart": [c(aten.index.Tensor, img, [None, N(4, high=4), None, N(3, 1, high=7)])],
    "roll": [c(torch.roll, long, (1, -2), (0, 2)), c("roll", long, (1, -2), dims=(0, -1)),
             c(aten.roll.default, long, [1, 2], [0, 2])],
    "unfold": [c("unfold", long, 1, 2, 1), c(aten.unfold.default, long, -2, 2, 1)],
    "im2col": [c(F.unfold, img, (3, 2), 2, (1, 0), stride=(2, 1)),
               c(aten.im2col.default, img, [3, 2], [2, 2], [1, 0], [2, 1])],
    "upsample": [c(aten.upsample_nearest2d.vec, img, [14, 21], None),
                 c(aten.upsample_nearest2d.vec, img, None, [2.0, 3.0])],
    "resizing": [c(aten.upsample_nearest2d.vec, img, [10, 14], None)],
    "resizing to less": [c(aten.upsample_nearest2d.vec, img, [1, 3], None)],
    "resizing by factors": [c(aten.upsample_nearest2d.vec, img, None, [0.25, 1.5])],
    "pixel shuffle": [c(torch.pixel_shuffle, img, 2), c(aten.pixel_shuffle.default, img, 2)],
    "pixel unshuffle": [c(torch.pixel_unshuffle, even, 2), c(aten.pixel_unshuffle.default, even, 2)],
    "channel shuffle": [c(torch.channel_shuffle, img, 2), c(aten.channel_shuffle.default, img, 2)],
    "glu": [c(F.glu, img, 1), c(aten.glu.default, img, -3)],
    "addcmul": [c(torch.addcmul, x, y, v), c("addcmul", x, y, v), c(aten.addcmul.default, x, y, v, value=1),
                c("addcmul_", x, y, v)],
    "addcdiv": [c(torch.addcdiv, x, y, v, value=0.5), c(aten.addcdiv.default, x, y, v, value=0.5)],
    "diff": [c(torch.diff, x), c("diff", x, 1, 1), c(aten.diff.default, x)],
    "diff twice": [c(torch.diff, long, 2, 1, one.new_ones(2, 1, 4), long)],
    "norm": [c(aten.linalg_vector_norm.default, long, order, [-1], True) for order in (2, 2.0)],
    "norm 1": [c(aten.linalg_vector_norm.default, long, 1)],
    "new": [
        c("new_ones", x, 2, 3), c("new_ones", ints, (2, 3), dtype=torch.float32),
        c(aten.new_ones.default, x, [2, 3]),
    ],
    "new full": [c("new_full", ints, (2,), 2.5), c(aten.new_full.default, ints, [2], 2.5)],
    "take axis": [c(aten.index.Tensor, long, [None, near]), c(operator.getitem, long, (slice(None), near))],
    "index select": [
        c(torch.index_select, table, 1, N(2, high=3)), c("index_select", table, -1, N(2, high=3)),
        c(aten.index_select.default, table, 1, N(2, high=3)),
    ],
    "gather": [c(torch.gather, table, 1, N(5, 2, high=3)), c("gather", table, dim=-1, index=N(5, 2, high=3))],
    "topk": [c(torch.topk, table, 2), c("topk", table, k=2, dim=1), c(aten.topk.default, table, 2, -1, True, True)],
    "smallest": [c("topk", table, k=1, dim=0, largest=False, sorted=False), c(torch.topk, table, 1, 0, False, False)],
    "scatter": [c("scatter", table, 0, N(1, 3), x), c(torch.scatter, table, 0, N(1, 3), src=x)],
    "tril": [c(torch.tril, square), c("tril", square, diagonal=0), c(aten.tril.default, square), c("tril_", square)],
    "triu": [c(torch.triu, square, 1), c("triu", square, diagonal=1), c(aten.triu.default, square, 1)],
    "set diag": [c(torch.diagonal_scatter, square, T(4)), c(aten.diagonal_scatter.default, square, T(4), 0, -2, -1)],
    "sum": [
        c(torch.sum, x, 1), c("sum", x, dim=-1), c("sum", x, axis=1), c(torch.sum, x, (1,)),
        c(aten.sum.dim_IntList, x, [-1]),
    ],
    "sum all": [
        c(torch.sum, x), c("sum", x), c(torch.sum, x, dim=(0, 1)), c(aten.sum.default, x), c(torch.sum, x, dim=[]),
    ],
    "sum bool": [c(torch.sum, mask), c("sum", mask), c(aten.sum.default, mask)],
    "sum dtype": [
        c(torch.sum, ints, dtype=torch.float32), c("sum", ints, dtype=torch.float32),
        c(aten.sum.default, ints, dtype=torch.float32),
    ],
    "sum in few bits": [
        c(torch.sum, ints, 1, dtype=torch.int8), c(aten.sum.dim_IntList, ints, [1], dtype=torch.int8),
    ],
    "product in few bits": [
        c(torch.prod, ints, 1, dtype=torch.int32), c(aten.prod.dim_int, ints, 1, dtype=torch.int32),
    ],
    "sum of truth values": [c(torch.sum, x, 1, dtype=torch.bool), c("sum", x, 1, dtype=torch.bool)],
    "mean": [
        c(torch.mean, x, 1, True), c("mean", x, dim=1, keepdim=True), c("mean", x, -1, keepdims=True),
        c(aten.mean.dim, x, [-1], True),
    ],
    "max": [
        c(torch.max, x), c("max", x), c(torch.amax, x), c("amax", x, dim=()), c(aten.max.default, x),
        c(aten.amax.default, x),
    ],
    "amin": [c(torch.amin, x, 1), c("amin", x, (1,)), c(aten.amin.default, x, [-1])],
    "all": [c(torch.all, mask), c("all", mask), c(aten.all.default, mask)],
    "any": [c(torch.any, x, 1), c("any", x, dim=-1), c(aten.any.dim, x, 1)],
    "prod": [c(torch.prod, ints, 0), c("prod", ints, dim=0), c(aten.prod.dim_int, ints, 0)],
    "argmax": [c(torch.argmax, x, 1), c("argmax", x, dim=-1), c(aten.argmax.default, x, 1)],
    "argmax all": [c(torch.argmax, x), c("argmax", x, None), c(aten.argmax.default, x)],
    "var": [
        c(torch.var, x, 1, False), c("var", x, dim=1, unbiased=False), c(torch.var, x, 1, correction=0),
        c(aten.var.correction, x, [1], correction=0),
    ],
    "std": [
        c(torch.std, x), c("std", x), c(aten.std.correction, x), c(aten.std.correction, x, correction=1),
        c(aten.std.default, x, True),
    ],
    "logsumexp": [c(torch.logsumexp, x, 1), c("logsumexp", x, dim=(1,)), c(aten.logsumexp.default, x, [1])],
    "cumsum": [c(torch.cumsum, ints, 1), c("cumsum", ints, dim=-1), c(aten.cumsum.default, ints, 1)],
    "zeros": [
        c(torch.zeros, 2, 3), c(torch.zeros, (2, 3)), c(torch.zeros, size=(2, 3), dtype=torch.float32),
        c(aten.zeros.default, [2, 3]),
    ],
    "full": [
        c(torch.full, (2, 3), 2), c(aten.full.default, [2, 3], 2), c(torch.full, (2, 3), fill_value=2, device="cpu"),
    ],
    "full like": [c(torch.full_like, x, 2), c(aten.full_like.default, x, 2, pin_memory=False)],
    "zeros like": [c(torch.zeros_like, x), c(aten.zeros_like.default, x)],
    "arange": [
        c(torch.arange, 5), c(torch.arange, 0, 5), c(torch.arange, 0, 5, 1), c(torch.arange, end=5),
        c(torch.arange, start=0, end=5), c(aten.arange.default, 5), c(aten.arange.start, 0, 5),
        c(aten.arange.start_step, 0, 5, 1),
    ],
    "iota": [
        c(torch.arange, 3, 11, 2, dtype=torch.int64), c(aten.arange.start_step, 3, 11, 2, dtype=torch.int64),
        c(torch.ops.prims.iota.default, 4, start=3, step=2, dtype=torch.int64, device="cpu", requires_grad=False),
    ],
    "arange float": [c(torch.arange, 1, 2, 0.25), c(aten.arange.start_step, 1, 2, 0.25)],
}  # fmt: skip


@pytest.mark.sweep(3)
@pytest.mark.parametrize("name", SAME)
def test_all_spellings_of_a_call_read_alike(name: str) -> None:
    once = Once()
    readings = [read(call, once) for call in SAME[name]]
    for call, reading in zip(SAME[name], readings, strict=True):
        assert reading is not None, str(call)
        same(mean(reading), native(call))
        assert show(reading) == show(readings[0]), str(call)


def variants(call: C) -> list[C]:
    """The same call of operands of other dtypes and ranks, and with other numbers."""
    values, spec = torch.utils._pytree.tree_flatten((list(call.args), call.kwargs))
    places = [i for i, v in enumerate(values) if isinstance(v, torch.Tensor) and v.dtype == torch.float32]
    found: list[list[Any]] = []

    def change(chosen: list[int], to: Callable[[Any], Any]) -> None:
        found.append([to(v) if i in chosen else v for i, v in enumerate(values)])

    groups = [places, *([place] for place in places)] if places else []
    for dtype in (torch.int64, torch.int32, torch.float16, torch.bfloat16, torch.float64, torch.bool):
        for chosen in groups:
            change(chosen, lambda v, dtype=dtype: v > 0 if dtype == torch.bool else v.to(dtype))
    for chosen in groups:
        change(chosen, lambda v: v.flatten()[0].clone())
        change(chosen, lambda v: v.flatten()[0].double())
        change(chosen, lambda v: v[None])
        change(chosen, lambda v: v[0].clone() if v.ndim else v)
    for place, value in enumerate(values):
        if type(value) in (int, float):
            for other in (0, -1, 1, 2, 0.5, -2.0, True):
                change([place], lambda v, other=other: other)
    calls = [torch.utils._pytree.tree_unflatten(new, spec) for new in found]
    return [C(call.target, tuple(args), kwargs) for args, kwargs in calls]


@pytest.mark.sweep(3)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", SAME)
def test_a_reading_is_exact_for_whatever_torch_accepts(name: str) -> None:
    for call in [variant for original in SAME[name] for variant in variants(original)]:
        if isinstance(call.target, str) and not isinstance(call.args[0], torch.Tensor):
            continue
        try:
            expected = native(call)
        except (
            RuntimeError,
            ValueError,
            TypeError,
            IndexError,
            NotImplementedError,
            ZeroDivisionError,
            AssertionError,
        ):
            continue
        canon = read(call, Once())
        if canon is None:
            continue
        try:
            found = mean(canon)
        except (ValueError, RuntimeError):
            # Ill-formed attributes: whoever completes them gives the reading up.
            continue
        tensors = torch.utils._pytree.tree_leaves((call.args, call.kwargs))
        narrow = any(getattr(v, "dtype", None) in (torch.float16, torch.bfloat16) for v in tensors)
        same(found, expected, 2e-2 if narrow else 1e-5)


def words() -> list[tuple[FxRow, str]]:
    families = [getattr(family, kind, ()) for family in FAMILIES for kind in ("ROWS", "FIELDS")]
    return [(row, word) for rows in families for row in rows for word in row.spellings.split()]


def test_spellings_in_the_table_exist() -> None:
    # What is made by rule need not have an overload, a namespace or an in-place variant of its own.
    by_rule = re.compile(
        r".*_(\.\w+)?|aten\.conv_transpose.*|aten\._adaptive_avg_pool1d.*|torch\.(avg_pool|adaptive_\w+_pool)[23]d"
    )
    missing = [word for _, word in words() if resolve(word) is None and not by_rule.fullmatch(word)]
    assert missing == []


def test_rows_have_the_parameters_of_the_functions() -> None:
    for row, word in words():
        target, signature = resolve(word), FxSignature.parse(row.signature)
        if isinstance(target, OpOverload):
            names = [
                a.name if a.name in signature.names else ALIASES.get(a.name, a.name) for a in target._schema.arguments
            ]
            assert [n for n in signature.names if n not in names and n not in signature.defaults] == [], word
        elif (
            word.startswith("F.") and inspect.isfunction(target) and "args" not in inspect.signature(target).parameters
        ):
            parameters = inspect.signature(target).parameters
            names = [n if n in signature.names else ALIASES.get(n, n) for n in parameters]
            assert names == list(signature.names)[: len(names)], word
            defaults = [p.default for p in parameters.values()]
            assert [signature.defaults.get(n, inspect.Parameter.empty) for n in names] == defaults, word


@pytest.mark.parametrize("call", [
    c(F.softmax, x), c(F.dropout, x), c(F.dropout, x, 0.5, True), c(aten.dropout.default, x, 0.5, True),
    c(F.batch_norm, img, channel, channel, channel, channel, True), c(F.batch_norm, img, None, None, training=True),
    c(F.batch_norm, single, channel, channel, training=True), c(torch.sum, x, 1, out=x),
    c(torch.add, x, y, out=x), c(F.glu, img.half(), 1),
    c(aten.upsample_nearest2d.vec, torch.randn(1, 2, 2, 4), [58, 8], None),
    c(aten.upsample_nearest2d.vec, img, None, [2.0, 1.1]),
    c("view", x, torch.int32), c("to", x, y), c(aten.to.dtype_layout, x, layout=torch.sparse_coo),
    c(aten.to.device, x, torch.device("cpu"), torch.int64, False, True),
    c("type", x, "torch.IntTensor"),
    c(torch.add, ints, ints, alpha=1.5), c("add_", half, x), c(operator.iadd, ints, x),
    c("eq_", x, y), c("mul_", half, x), c(F.embedding, idx, table, max_norm=1.0),
    c(F.embedding, idx, table, scale_grad_by_freq=True),
    c(F.pad, img, (1, 1), mode="circular"), c(F.pad, x, (-1, 0)), c(F.avg_pool2d, img, 2, divisor_override=3),
    c(F.max_pool2d, img, 2, return_indices=True),
    c(F.normalize, x, p=1), c(F.normalize, half), c(F.instance_norm, img, channel, channel),
    c(F.scaled_dot_product_attention, q, k, val, None, 0.1),
    c(torch.div, ints, 2, rounding_mode="trunc"), c(torch.div, x, y, rounding_mode="up"),
    c(torch.var, x, correction=2), c(torch.var, x, False),
    c(F.conv2d, img[0], kernel), c(F.max_pool2d, img[0], 2), c(F.linear, x, v), c(operator.add, (1, 2), (3,)),
    c(operator.getitem, (x, y), 0), c(operator.getitem, x, mask),
    c(operator.getitem, x, (slice(None), [0, 1])), c(torch.all, mask, dim=()), c(torch.std, x, dim=[]),
    c(torch.unbind, x), c("contiguous", x, memory_format=torch.channels_last),
    c(aten.clone.default, x, memory_format=torch.channels_last), c("detach", x), c(torch.rand, 2),
    c("masked_fill", ints, mask, 0.5), c("masked_fill", mask, mask, 2),
    c(torch.where, mask), c(torch.max, x, 1), c("sort", x),
    c(torch.zeros, 2, device="meta"), c(torch.zeros, 2, requires_grad=True),
    c(F.conv2d, img, kernel, padding="same", stride=2),
    c(torch.tensor_split, table, torch.tensor([1])), c(torch.repeat_interleave, x, idx),
    c(torch.reshape, torch.empty(0, 3), (0, 3)), c(aten.to.dtype, x, torch.int32, False, True),
    c(print, x), c(len, [x]), c(torch.einsum, x, [0, 1], [1, 0]), c(F.gelu, x, approximate="other"),
    c("transpose_", x, 0, 1), c(aten.relu.out, x, out=y), c("float", x, torch.channels_last),
], ids=str)  # fmt: skip
def test_what_has_no_exact_reading_is_not_read(call: C) -> None:
    assert read(call, Once()) is None


UNTYPED_READ = [
    c(torch.relu, x), c(F.conv2d, img, kernel, kbias, 2, 1), c(operator.add, x, y), c("flatten", img, 1), c("t", x),
    c("permute", long, 0, 2, 1), c(F.layer_norm, x, (3,), v, v), c(torch.cat, [x, y], 1), c(F.linear, x, w, b),
    c(operator.matmul, x, x), c("view", x, -1, 2), c("squeeze", x), c("expand", v, 2, -1), c(torch.sum, x, 1),
]  # fmt: skip
UNTYPED_UNREAD = [
    c("transpose", x, 0, 1), c("chunk", x, 3), c(operator.getitem, x, 0), c("add_", x, y), c("type_as", x, y),
    c(operator.getitem, table, idx), c(F.conv2d, img, kernel, padding="same"), c(F.pad, x, (1, 1)),
    c("masked_fill", x, mask, -9.0), c(F.layer_norm, x, (3,), None, v), c(F.rms_norm, x, (3,)), c(getattr, x, "mT"),
]  # fmt: skip


@pytest.mark.parametrize("call", UNTYPED_READ, ids=str)
def test_without_types_what_does_not_depend_on_them_is_read(call: C) -> None:
    assert read(call, Once(), untyped) is not None


@pytest.mark.parametrize("call", UNTYPED_UNREAD, ids=str)
def test_without_types_nothing_is_guessed(call: C) -> None:
    assert read(call, Once(), untyped) is None


def test_a_product_that_is_added_to_nothing_is_a_product() -> None:
    call = c(torch.addmm, T(4) * math.nan, square, square, beta=0)
    found = read(call, Once())
    assert found is not None
    assert found.op == "matmul"
    same(mean(found), native(call))


FIELDS = [
    c(aten._native_batch_norm_legit_no_training.default, img, channel, channel, channel, spread, 0.1, 1e-5),
    c(aten._native_batch_norm_legit.no_stats, img[:1], channel, channel, True, 0.1, 1e-5),
    c(aten._native_batch_norm_legit.no_stats, img[:1], None, None, True, 0.1, 1e-5),
    c(aten.native_layer_norm.default, x, [3], v, v, 1e-5),
    c(aten.native_layer_norm.default, x, [3], None, None, 1e-5),
    c(aten.native_group_norm.default, img, channel, channel, 2, 4, 49, 2, 1e-5),
    c(aten.native_dropout.default, x, 0.5, False),
    c(aten.max_pool2d_with_indices.default, img, [2, 2], [2, 2]),
    c(F.max_pool2d_with_indices, img, 2),
    c(torch.max, x, 1),
    c("min", x, 1, True),
    c(aten.max.dim, x, 1, True),
    c(aten._scaled_dot_product_flash_attention_for_cpu.default, q, k, val),
    c(aten.adaptive_max_pool2d.default, img, [2, 2]),
    c(torch.var_mean, x, 1, False), c(aten.var_mean.correction, x, [1], correction=0, keepdim=True),
    c(aten.var_mean.dim, x, [0], False), c(torch.std_mean, x), c(aten.std_mean.correction, x, [-1], correction=1.0),
    c(torch.unbind, long), c("unbind", long, -2), c(aten.unbind.int, long, 1),
]  # fmt: skip


@pytest.mark.parametrize("call", FIELDS, ids=str)
def test_single_results_of_several_are_read(call: C) -> None:
    once = Once()
    assert read(call, once) is None
    fields = spellings.read_fields(call.target, once.of(call.args), once.of(call.kwargs), type_of)
    assert fields is not None
    for place, reading in fields.items():
        same(mean(reading), native(call)[place])


@pytest.mark.parametrize("name", ["fused_attention_overrideable", "efficient_attention"])
def test_attention_for_other_devices_has_its_mask(name: str) -> None:
    operands = tuple([object() for _ in range(4)])
    more = (False,) if name == "efficient_attention" else ()
    target = getattr(torch.ops.aten, f"_scaled_dot_product_{name}").default
    fields = spellings.read_fields(target, (*operands, *more), {}, lambda value: None)
    assert fields is not None
    assert fields[0].operands == operands


def test_batch_norm_without_weights_gets_literal_ones_and_zeros() -> None:
    reading = read(c(F.batch_norm, img, channel, spread), Once())
    assert reading is not None
    assert isinstance(reading.operands[1], LiteralOperand)
    same(mean(reading), F.batch_norm(img, channel, spread))
    halves = read(c(F.batch_norm, img.half(), channel, spread), Once())
    assert halves is not None
    assert [each.value.dtype for each in halves.operands[1:3]] == [channel.dtype] * 2, "torch wants them to be alike"


# ---------------------------------------------------------------- modules

MODULES: list[tuple[nn.Module, torch.Tensor, str]] = [
    (nn.Linear(3, 5), x, "nn.bias_add"), (nn.Linear(3, 5, bias=False), x, "nn.dense"),
    (nn.Conv2d(4, 6, 3, 2, 1, groups=2), img, "nn.bias_add"),
    (nn.Conv2d(4, 6, (4, 2), padding="same", bias=False), img, "nn.conv2d"),
    (nn.Conv1d(3, 2, 3), long, "nn.bias_add"),
    (nn.ConvTranspose2d(4, 2, 3, 2, 1, 1, bias=False), img, "nn.conv2d_transpose"),
    (nn.BatchNorm2d(4), img, "nn.batch_norm"), (nn.BatchNorm2d(4, affine=False), img, "nn.batch_norm"),
    (nn.BatchNorm1d(3), long, "nn.batch_norm"), (nn.BatchNorm3d(4), img[None].transpose(1, 2), "nn.batch_norm"),
    (nn.SyncBatchNorm(4), img, "nn.batch_norm"), (nn.SyncBatchNorm(3, affine=False), long, "nn.batch_norm"),
    (nn.LayerNorm(3), x, "nn.layer_norm"), (nn.LayerNorm((2, 3), elementwise_affine=False), x, "nn.layer_norm"),
    (nn.LayerNorm(3, bias=False), x, "nn.layer_norm"),
    (nn.RMSNorm(3), x, "nn.rms_norm"), (nn.GroupNorm(2, 4), img, "nn.group_norm"),
    (nn.PixelShuffle(2), img, "reshape"), (nn.PixelUnshuffle(7), img, "reshape"), (nn.GLU(1), img, "multiply"),
    (nn.ChannelShuffle(2), img, "reshape"), (nn.InstanceNorm2d(4), img, "nn.instance_norm"),
    (nn.InstanceNorm2d(4, affine=True), img, "nn.instance_norm"), (nn.Embedding(5, 3), idx, "take"),
    (nn.Dropout(), x, "nn.dropout"), (nn.ReLU(), x, "nn.relu"),
    (nn.ReLU(inplace=True), x, "nn.relu"), (nn.ReLU6(), x, "nn.relu6"), (nn.LeakyReLU(0.2), x, "nn.leaky_relu"),
    (nn.PReLU(4), img, "nn.prelu"), (nn.ELU(0.5), x, "elu"),
    (nn.SELU(), x, "selu"), (nn.GELU("tanh"), x, "gelu"), (nn.SiLU(), x, "silu"), (nn.Mish(), x, "mish"),
    (nn.Sigmoid(), x, "sigmoid"), (nn.Tanh(), x, "tanh"),
    (nn.Hardswish(), x, "hardswish"), (nn.Hardsigmoid(), x, "hardsigmoid"), (nn.Hardtanh(-2, 2), x, "clip"),
    (nn.Softplus(2), x, "softplus"),
    (nn.Softmax(-1), x, "nn.softmax"), (nn.LogSoftmax(1), x, "nn.log_softmax"),
    (nn.MaxPool2d(3, 2, 1), img, "nn.max_pool2d"), (nn.MaxPool1d(2), long, "nn.max_pool1d"),
    (nn.AvgPool2d(2, count_include_pad=False), img, "nn.avg_pool2d"), (nn.AvgPool1d(2), long, "nn.avg_pool1d"),
    (nn.AdaptiveAvgPool2d(1), img, "nn.adaptive_avg_pool2d"),
    (nn.AdaptiveAvgPool2d((None, 2)), img, "nn.adaptive_avg_pool2d"),
    (nn.AdaptiveMaxPool1d(2), long, "nn.adaptive_max_pool1d"), (nn.Flatten(), img, "reshape"),
    (nn.Unflatten(1, (2, 2)), img, "reshape"), (nn.ZeroPad2d(1), img, "nn.pad"),
    (nn.ConstantPad1d((1, 0), 2.0), long, "nn.pad"),
]  # fmt: skip


@pytest.mark.parametrize(("module", "operand", "op"), MODULES, ids=lambda value: str(value)[:40])
def test_modules_read_as_the_functions_they_call(module: nn.Module, operand: torch.Tensor, op: str) -> None:
    module.eval()
    reading = spellings.read_module(module, (Leaf(operand),), {}, type_of)
    assert reading is not None
    assert reading.op == op
    with torch.no_grad():
        same(mean(reading, module), module(operand.clone()))


FUSED: list[tuple[nn.Module, tuple[torch.Tensor, ...], list[str]]] = [
    (modules.LinearReLU(3, 5), (x,), ["nn.relu", "nn.bias_add", "nn.dense"]),
    (modules.ConvReLU62d(4, 6, 3, padding="same", bias=False), (img,), ["nn.relu6", "nn.conv2d"]),
    (modules.ConvAdd2d(4, 4, 1), (img, img), ["add", "nn.bias_add", "nn.conv2d"]),
    (modules.ConvTransposeAddReLU2d(4, 4, 1), (img, img), ["nn.relu", "add", "nn.bias_add", "nn.conv2d_transpose"]),
]  # fmt: skip


@pytest.mark.parametrize(("module", "operands", "ops"), FUSED, ids=lambda value: type(value).__name__)
def test_fused_modules_read_as_all_that_they_compute(
    module: nn.Module, operands: tuple[torch.Tensor, ...], ops: list[str]
) -> None:
    reading = spellings.read_module(module, tuple(map(Leaf, operands)), {}, type_of)
    found, part = [], reading
    while isinstance(part, Canon):
        found.append(part.op)
        part = part.operands[0]
    assert found == ops
    with torch.no_grad():
        same(mean(reading, module), module(*operands))
    # Neither more nor fewer operands are understood, nor operands by name where there are two.
    assert spellings.read_module(module, (*map(Leaf, operands), Leaf(img)), {}, type_of) is None
    assert spellings.read_module(module, (), {"input": Leaf(img), "other": Leaf(img)}, type_of) is None


class Doubled(nn.ReLU):
    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return 2 * super().forward(input)


def hooked() -> nn.Module:
    module = nn.ReLU()
    module.register_forward_hook(lambda module, args, result: result + 1)
    return module


def patched() -> nn.Module:
    module = nn.ReLU()
    module.forward = lambda x: x  # type: ignore[method-assign]
    return module


class Louder(modules.ConvReLU2d):
    def forward(self, input: torch.Tensor, other: Any = None) -> torch.Tensor:
        return 2 * super().forward(input)


UNREAD_MODULES = [
    Louder(4, 6, 3), modules.ConvAdd2d(4, 4, 1), modules.ConvReLU2d(4, 6, 3, padding=1, padding_mode="reflect"),
    nn.Dropout(), nn.BatchNorm2d(4), nn.Conv2d(4, 6, 3, padding=1, padding_mode="circular").eval(), Doubled(),
    nn.SyncBatchNorm(4), hooked(), patched(), nn.BatchNorm2d(4, track_running_stats=False).eval(),
    nn.InstanceNorm2d(4, track_running_stats=True).eval(), nn.Embedding(5, 3, max_norm=1.0),
    nn.MaxPool2d(2, return_indices=True), nn.MultiheadAttention(4, 2).eval(),
    nn.Softmax(), nn.utils.parametrizations.weight_norm(nn.Conv2d(4, 6, 3)), nn.AvgPool2d(2, divisor_override=3),
    nn.Sequential(nn.ReLU()), nn.CircularPad2d(1),
]  # fmt: skip


@pytest.mark.parametrize("module", UNREAD_MODULES, ids=lambda m: type(m).__name__)
def test_modules_that_do_more_than_their_function_are_not_read(module: nn.Module) -> None:
    assert spellings.read_module(module, (Leaf(img),), {}, type_of) is None
    assert spellings.read_module(nn.ConvTranspose2d(4, 2, 3), (Leaf(img), [9, 9]), {}, type_of) is None


# ---------------------------------------------------------------- biases


@pytest.mark.parametrize("dialect", ["torch", "aten"])
@pytest.mark.parametrize(
    ("op", "operands", "attrs", "axis"),
    [
        ("nn.conv2d", (img, kernel, kbias), {"strides": 2, "padding": 1}, 1),
        ("nn.conv2d", (img, kernel, kbias), {"padding": (0, 1, 1, 2)}, 1),
        ("nn.conv2d", (img.movedim(1, 3), kernel, kbias), {"data_layout": "NHWC"}, 3),
        ("nn.conv2d_transpose", (img, T(4, 2, 3, 3), T(2)), {"strides": 2}, 1),
        ("nn.dense", (x, w, b), {}, 1),
        ("nn.dense", (x, w, b), {"out_dtype": "float16"}, 1),
        ("nn.conv2d", (img, kernel, kbias), {"out_dtype": "float64", "out_layout": "NHWC"}, 3),
        ("matmul", (x, T(3, 5), b), {}, 1),
    ],
)
def test_a_bias_is_joined(op: str, operands: tuple[Any, ...], attrs: dict[str, Any], axis: int, dialect: Any) -> None:
    full = TABLE[op].complete(attrs, tuple(map(type_of_value, operands[:2])))
    tree = spellings.write_biased(op, full, leaves(operands), type_of, dialect)
    plain = evaluate(TABLE[op], operands[:2], full)
    same(run(tree), evaluate(TABLE["nn.bias_add"], (plain, operands[2]), {"axis": axis}))


# ---------------------------------------------------------------- effects

MUTATING = [
    (c("add_", x, 1), 0), (c(operator.iadd, x, y), 0), (c(operator.setitem, x, 0, y), 0), (c(F.relu, x, True), 0),
    (c(F.relu, x, inplace=True), 0), (c(torch.relu_, x), 0),
    (c(torch.add, x, y, out=w), 2), (c(aten.add_.Tensor, x, y), 0), (c(aten.copy_.default, x, y), 0),
    (c(aten.add.out, x, y, out=w), 2), (c(aten.index_put_.default, x, [idx], y), 0),
    (c(F.batch_norm, img, channel, channel, training=True), 1),
    (c(aten.batch_norm.default, img, v, v, channel, channel, True, 0.1, 1e-5, False), 3), (c("__iadd__", x, y), 0),
    (c(F.embedding, idx, table, max_norm=1.0), 1),
    (c(aten._native_batch_norm_legit.default, img, v, v, channel, channel, True, 0.1, 1e-5), 3),
    (c(torch.native_batch_norm, img, v, v, channel, channel, True, 0.1, 1e-5), 3),
    (c(F.relu, x), None), (c(torch.relu, x), None), (c("add", x, 1), None), (c("__add__", x, 1), None),
    (c(operator.add, x, y), None), (c(F.relu, x, inplace=False), None),
    (c(F.batch_norm, img, channel, channel), None), (c(aten.add.Tensor, x, y), None),
    (c(aten.batch_norm.default, img, v, v, channel, channel, False, 0.1, 1e-5, False), None),
    (c("__invert__", x), None), (c(operator.getitem, x, 0), None), (c(F.embedding, idx, table), None),
    (c(torch.cat, [x, y]), None), (c("requires_grad_", x), 0),
    (c(F.instance_norm, img, channel, channel), 1), (c(F.instance_norm, img), None),
    (c(F.batch_norm, single, None, None, training=True), None),
    (c(torch.add, x, y, out=None), None),
]  # fmt: skip


@pytest.mark.parametrize(("call", "place"), MUTATING, ids=str)
def test_what_changes_an_operand(call: C, place: int | None) -> None:
    assert next(iter(effects.mutated(call.target, call.args, call.kwargs)), None) == place


RANDOM = [
    (c(F.dropout, x), True), (c(F.dropout, x, 0.5, True), True), (c(F.dropout, x, training=False), False),
    (c(F.dropout2d, x, 0.5, False), False), (c(torch.rand, 2), True),
    (c(torch.randn_like, x), True), (c("normal_", x), True), (c(torch.bernoulli, x), True),
    (c("bernoulli_", x, 0.5), True), (c(torch.multinomial, x, 2), True),
    (c(aten.dropout.default, x, 0.5, True), True), (c(aten.dropout.default, x, 0.5, False), False),
    (c(aten.rand.default, [2]), True), (c(aten.native_dropout.default, x, 0.5, True), True),
    (c(aten.bernoulli.p, x, 0.5), True), (c(aten.randn_like.default, x), True), (c(aten.add.Tensor, x, y), False),
    (c(torch.add, x, y), False), (c("add", x, y), False),
    (c(F.scaled_dot_product_attention, q, k, val), False),
    (c(F.scaled_dot_product_attention, q, k, val, None, 0.5), True), (c(F.gumbel_softmax, x), True),
    (c(aten.scaled_dot_product_attention.default, q, k, val), False),
    (c(aten.scaled_dot_product_attention.default, q, k, val, None, 0.1), True),
    (c(aten._scaled_dot_product_flash_attention_for_cpu.default, q, k, val), False), (c(F.rrelu, x), False),
    (c(F.rrelu, x, training=True), True), (c(torch.dropout, x, 0.5, True), True),
    (c(torch.dropout, x, 0.5, False), False), (c(F.alpha_dropout, x), False), (c(torch.arange, 3), False),
    (c(torch.randperm, 3), True), (c("uniform_", x), True), (c(torch.svd_lowrank, x), True),
    (c(torch.pca_lowrank, x), True), (c(torch.lstm, x, (q, k), (y,), True, 1, 0.5, True, False, False), True),
    (c(torch.lstm, x, (q, k), (y,), True, 1, 0.5, False, False, False), False),
    (c(torch.gru, x, q, (y,), True, 1, 0.5, True, False, False), True),
    (c(torch.gru, x, q, (y,), True, 1, 0.5, False, False, False), False),
    (c(torch.gru, x, q, (y,), True, 1, 0.0, True, False, False), False), (c(torch.gru_cell, x, y, q, k), False),
]  # fmt: skip


@pytest.mark.parametrize(("call", "random"), RANDOM, ids=str)
def test_what_draws_at_random(call: C, random: bool) -> None:
    assert effects.is_random(call.target, call.args, call.kwargs) == random


def test_modules_with_effects() -> None:
    assert effects.mutates_module(nn.ReLU(inplace=True))
    assert effects.mutates_module(nn.Sequential(nn.ReLU(inplace=True)))
    assert effects.mutates_module(nn.BatchNorm1d(3))
    assert not effects.mutates_module(nn.BatchNorm1d(3).eval())
    assert not effects.mutates_module(nn.ReLU())
    assert effects.is_random_module(nn.Dropout())
    assert not effects.is_random_module(nn.Dropout().eval())


VIEWS = [
    c("view", x, 6), c(torch.reshape, x, (6,)), c("t", x), c("permute", x, 1, 0), c("expand", x, 2, 3),
    c("squeeze", x), c("chunk", x, 1), c(torch.split, x, 2), c("detach", x),
    c("contiguous", x), c(torch.flatten, x), c("unbind", x), c(operator.getitem, x, 0), c("to", x, torch.float32),
    c("float", x), c(getattr, x, "T"), c(torch.broadcast_to, x, (2, 3)),
    c(aten.view.default, x, [6]), c(aten.slice.Tensor, x), c(aten.alias.default, x), c(aten.reshape.default, x, [6]),
    c(aten.split.Tensor, x, 1), c(aten.t.default, x),
    c(aten.to.dtype, x, torch.float32), c(aten.dropout.default, x, 0.5, False), c(F.dropout, x, 0.5, False),
    c(torch.einsum, "ij->ji", x), c(torch.movedim, x, 0, 1), c("type_as", x, y),
    c(F.pixel_shuffle, T(1, 1, 2, 2), 1), c(torch.atleast_2d, x), c(torch.real, x), c("unfold", x, 0, 1, 1),
    c(torch.diagonal, x), c(aten.expand.default, x, [2, 3]),
    c(torch.meshgrid, v, v), c(aten.contiguous.default, x), c(aten.flatten.using_ints, x),
    c(aten.einsum.default, "ij->ji", [x]), c(aten.type_as.default, x, y), c("positive", x),
    c(operator.pos, x),
]  # fmt: skip


@pytest.mark.parametrize("call", VIEWS, ids=str)
def test_what_may_share_memory(call: C) -> None:
    assert effects.is_view(call.target)


def shares(result: Any, operands: Any) -> bool:
    pointers = {
        t.untyped_storage().data_ptr() for t in torch.utils._pytree.tree_leaves(operands) if isinstance(t, torch.Tensor)
    }
    return any(
        t.untyped_storage().data_ptr() in pointers
        for t in torch.utils._pytree.tree_leaves(result)
        if isinstance(t, torch.Tensor)
    )


@pytest.mark.parametrize("name", SAME)
def test_no_call_shares_memory_without_being_known_to(name: str) -> None:
    for call in SAME[name]:
        args, kwargs = torch.utils._pytree.tree_map(
            lambda x: x.clone() if isinstance(x, torch.Tensor) else x, (call.args, call.kwargs)
        )
        result = (
            getattr(args[0], call.target)(*args[1:], **kwargs)
            if isinstance(call.target, str)
            else call.target(*args, **kwargs)
        )
        if not effects.mutated(call.target, call.args, call.kwargs) and shares(result, (args, kwargs)):
            assert effects.is_view(call.target), str(call)
