"""The table of spellings: what is written means what the operator means, and what is read means what the call does."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from gsl.front.fx import spellings
from gsl.front.fx.tree import Canon, Literal, Native, Weight
from gsl.graph import TensorType, TupleType, Type
from gsl.spec import TABLE
from gsl.spec.meaning import evaluate

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
        case Leaf() | Literal():
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
    return tree


def same(found: Any, expected: Any, tolerance: float = 1e-5) -> None:
    if isinstance(expected, (tuple, list)):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            same(one, other, tolerance)
        return
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance, equal_nan=True)


def T(*shape: int, dtype: torch.dtype = torch.float32, low: float = -2.0, high: float = 2.0) -> torch.Tensor:
    """A tensor with reproducible elements."""
    generator = torch.Generator().manual_seed(sum(shape) * 31 + len(shape))
    values = torch.rand(shape, generator=generator, dtype=torch.float64) * (high - low) + low
    return (values > 0) if dtype == torch.bool else values.to(dtype)


def I(*shape: int, high: int = 5) -> torch.Tensor:
    return T(*shape, low=0, high=high).long()


# ---------------------------------------------------------------- writing


@dataclass
class Write:
    """A canonical call; ``once`` where the aten dialect writes it as one call that reads back."""

    op: str
    operands: tuple[Any, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.op + "".join(f"-{k}={v}" for k, v in self.attrs.items())


X = T(2, 3, 8, 8)
POSITIVE = T(2, 3, low=0.5, high=2.0)
BIG = T(2, 3, low=1.5, high=3.0)
WHOLE = I(2, 3) + 1
UNARY = [op for op, spec in TABLE.items() if spec.operands == ("data",) and not spec.attrs]


def _unary_operand(op: str) -> torch.Tensor:
    if op in ("bitwise_not",):
        return WHOLE
    if op in ("acos", "asin", "atanh"):
        return T(2, 3, low=-0.9, high=0.9)
    return BIG if op == "acosh" else POSITIVE if op.startswith(("log", "sqrt", "rsqrt")) else T(2, 3)


BINARY = [op for op, spec in TABLE.items() if spec.operands == ("lhs", "rhs")]
INTEGER = ("left_shift", "right_shift", "bitwise_and", "bitwise_or", "bitwise_xor")


def _binary_cases() -> list[Write]:
    cases = []
    for op in BINARY:
        x, y = (WHOLE, I(3) + 1) if op in INTEGER else (POSITIVE, T(3, low=0.5, high=2))
        number: Any = 2 if op in INTEGER else 1.5
        cases += [Write(op, (x, y)), Write(op, (x, number)), Write(op, (number, x)), Write(op, (WHOLE, 2))]
        cases += [Write(op, (2, WHOLE))]
        if op not in INTEGER:
            cases += [Write(op, (WHOLE, 1.5)), Write(op, (1.5, WHOLE)), Write(op, (T(2, dtype=torch.float16), 1.5))]
        if op in ("logical_and", "maximum", "equal", "bitwise_or", "add", "multiply"):
            cases.append(Write(op, (T(2, 3, dtype=torch.bool), True)))
    return cases


def _conv_cases() -> list[Write]:
    cases = []
    for n, letters in ((1, "W"), (2, "HW"), (3, "DHW")):
        x, w = T(2, 4, *(7,) * n), T(6, 4, *(3,) * n)
        grouped = T(6, 2, *(3,) * n)
        op = f"nn.conv{n}d"
        cases += [
            Write(op, (x, w)),
            Write(op, (x, w), {"strides": 2, "padding": 1}),
            Write(op, (x, grouped), {"groups": 2, "dilation": 2, "padding": (1,) * n + (2,) * n}),
            Write(op, (x.movedim(1, -1), w), {"data_layout": "N" + letters + "C"}),
            Write(op, (x, w.movedim(0, -1)), {"kernel_layout": "I" + letters + "O", "out_layout": "N" + letters + "C"}),
            Write(op, (x, w), {"out_dtype": "float64"}),
        ]
        op, w = f"nn.conv{n}d_transpose", T(4, 3, *(3,) * n)
        cases += [
            Write(op, (x, w)),
            Write(op, (x, w), {"strides": 2, "padding": 1, "output_padding": 1, "groups": 2}),
            Write(op, (x, w), {"padding": (1,) * n + (2,) * n}),
            Write(op, (x.movedim(1, -1), w), {"data_layout": "N" + letters + "C", "dilation": 2}),
        ]
    return cases


def _pool_cases() -> list[Write]:
    cases = []
    for n, letters in ((1, "W"), (2, "HW"), (3, "DHW")):
        x = T(2, 4, *(7,) * n)
        for kind in ("max", "avg"):
            op = f"nn.{kind}_pool{n}d"
            cases += [
                Write(op, (x,), {"pool_size": 2}),
                Write(op, (x,), {"pool_size": 3, "strides": 2, "padding": 1, "ceil_mode": True}),
                Write(op, (x,), {"pool_size": 2, "strides": 2, "padding": (0,) * n + (1,) * n}),
                Write(op, (x.movedim(1, -1),), {"pool_size": 2, "strides": 2, "layout": "N" + letters + "C"}),
                Write(f"nn.adaptive_{kind}_pool{n}d", (x,), {"output_size": 1}),
                Write(f"nn.adaptive_{kind}_pool{n}d", (x,), {"output_size": (None,) + (2,) * (n - 1)}),
                Write(f"nn.adaptive_{kind}_pool{n}d", (x.movedim(1, -1),), {"output_size": 2, "layout": "N" + letters + "C"}),
                Write(f"nn.global_{kind}_pool{n}d", (x,), {}),
                Write(f"nn.global_{kind}_pool{n}d", (x.movedim(1, -1),), {"layout": "N" + letters + "C"}),
            ]
        cases += [
            Write(f"nn.max_pool{n}d", (x,), {"pool_size": 2, "dilation": 2}),
            Write(f"nn.avg_pool{n}d", (x,), {"pool_size": 2, "padding": 1, "count_include_pad": True}),
            Write(f"nn.avg_pool{n}d", (x,), {"pool_size": 2, "ceil_mode": True, "strides": 2, "count_include_pad": True}),
            Write(f"nn.avg_pool{n}d", (x,), {"pool_size": 2, "padding": (1,) * n + (0,) * n, "count_include_pad": True}),
        ]
    return cases


def _reduction_cases() -> list[Write]:
    cases = []
    for op in ("sum", "mean", "max", "min", "prod", "all", "any", "variance", "std", "logsumexp", "argmax", "argmin"):
        x = T(2, 3, 4)
        for axis in (None, 1, (0, 2), (0, 1, 2)):
            cases += [Write(op, (x,), {"axis": axis}), Write(op, (x,), {"axis": axis, "keepdims": True})]
        cases += [Write(op, (x,), {"axis": 1, "exclude": True})]
        if op not in ("variance", "std", "argmax", "argmin"):
            cases += [Write(op, (x,), {"axis": ()})]
        if op not in ("mean", "variance", "std", "logsumexp"):
            cases += [Write(op, (I(2, 3),), {"axis": 0})]
    cases += [Write(op, (X,), {"axis": (2, 3), "unbiased": True}) for op in ("variance", "std")]
    return cases


def _norm_cases() -> list[Write]:
    gamma, beta, average, var = T(3), T(3) + 1, T(3) / 2, T(3, low=0.5)
    cases = [
        Write("nn.batch_norm", (X, gamma, beta, average, var), {"epsilon": 1e-3}),
        Write("nn.batch_norm", (X, gamma, beta, average, var), {"scale": False, "center": False}),
        Write("nn.batch_norm", (X.movedim(1, -1), gamma, beta, average, var), {"axis": 3}),
        Write("nn.layer_norm", (X, T(8), T(8) + 1), {}),
        Write("nn.layer_norm", (X, T(8), T(8) + 1), {"center": False}),
        Write("nn.layer_norm", (X,), {"axis": (-2, -1), "epsilon": 1e-6}),
        Write("nn.layer_norm", (X, T(3), T(3)), {"axis": 1}),
        Write("nn.rms_norm", (X, T(8)), {}),
        Write("nn.rms_norm", (X,), {"axis": (1,), "epsilon": 1e-6}),
        Write("nn.l2_normalize", (X,), {"eps": 1e-10, "axis": 1}),
        Write("nn.l2_normalize", (X,), {"eps": 1e-4, "axis": (1, 2)}),
        Write("nn.l2_normalize", (X,), {"eps": 1e-4, "axis": ()}),
        Write("nn.group_norm", (T(2, 4, 5), T(4), T(4)), {"num_groups": 2}),
        Write("nn.group_norm", (T(2, 5, 4), T(4), T(4)), {"num_groups": 2, "axis": 2, "scale": False}),
        Write("nn.group_norm", (T(2, 4, 5),), {"num_groups": 2, "epsilon": 1e-3}),
        Write("nn.instance_norm", (X, gamma, beta)),
        Write("nn.instance_norm", (X.movedim(1, -1),), {"axis": 3}),
    ]
    return cases


WRITES = [
    *(Write(op, (_unary_operand(op),)) for op in UNARY),
    *_binary_cases(),
    *_conv_cases(),
    *_pool_cases(),
    *_reduction_cases(),
    *_norm_cases(),
    Write("where", (T(2, 3, dtype=torch.bool), T(2, 3), T(3))),
    Write("where", (T(2, 3, dtype=torch.bool), T(2, 3), 2.0)),
    Write("where", (T(2, 3, dtype=torch.bool), 0, T(2, 3))),
    Write("where", (T(2, 3, dtype=torch.bool), 1.0, 0.0)),
    Write("clip", (T(2, 3),), {"a_min": -1.0, "a_max": 1.0}),
    Write("clip", (T(2, 3),), {"a_min": 0}),
    Write("clip", (WHOLE,), {"a_max": 2.5}),
    Write("cast", (T(2, 3),), {"dtype": "int32"}),
    Write("cast", (WHOLE,), {"dtype": "bool"}),
    Write("nn.leaky_relu", (T(2, 3),), {"alpha": 0.2}),
    Write("nn.leaky_relu", (T(2, 3),)),
    Write("elu", (T(2, 3),), {"alpha": 0.5}),
    Write("gelu", (T(2, 3),), {"approximate": "tanh"}),
    Write("gelu", (T(2, 3),)),
    Write("softplus", (T(2, 3),), {"beta": 2.0, "threshold": 1.0}),
    Write("softplus", (T(2, 3),)),
    Write("nn.prelu", (X, T(3))),
    Write("nn.prelu", (X, T(1)), {"axis": 3}),
    Write("nn.prelu", (X, T(8)), {"axis": 2}),
    Write("nn.softmax", (X,)),
    Write("nn.log_softmax", (X,), {"axis": 1}),
    Write("nn.dropout", (X,), {"rate": 0.1}),
    Write("matmul", (T(2, 3, 4), T(4, 5))),
    Write("matmul", (T(3, 4), T(4, 5)), {"out_dtype": "float64"}),
    Write("matmul", (T(4), T(4))),
    Write("nn.batch_matmul", (T(2, 3, 4), T(2, 5, 4))),
    Write("nn.batch_matmul", (T(2, 4, 3), T(2, 4, 5)), {"transpose_a": True, "transpose_b": False}),
    Write("nn.dense", (T(2, 3, 4), T(5, 4))),
    Write("nn.bias_add", (T(2, 3), T(3)), {"axis": -1}),
    Write("nn.bias_add", (X, T(3))),
    Write("einsum", ((T(2, 3), T(3, 4)),), {"equation": "ij,jk->ik"}),
    Write("nn.attention", (T(2, 2, 4, 8), T(2, 2, 5, 8), T(2, 2, 5, 8))),
    Write("nn.attention", (T(2, 2, 4, 8), T(2, 2, 5, 8), T(2, 2, 5, 8), T(4, 5))),
    Write("nn.attention", (T(2, 2, 4, 8), T(2, 2, 5, 8), T(2, 2, 5, 8), T(4, 5, dtype=torch.bool)), {"scale": 0.3}),
    Write("nn.attention", (T(2, 4, 4, 8), T(2, 2, 4, 8), T(2, 2, 4, 8)), {"is_causal": True, "enable_gqa": True}),
    Write("concatenate", ((T(2, 3), T(4, 3)),)),
    Write("concatenate", ((T(2, 3), T(2, 1)),), {"axis": -1}),
    Write("stack", ((T(2, 3), T(2, 3)),), {"axis": 1}),
    Write("split", (T(2, 6),), {"indices_or_sections": 3, "axis": 1}),
    Write("split", (T(2, 6),), {"indices_or_sections": (1, 4), "axis": 1}),
    Write("split", (T(2, 6),), {"indices_or_sections": (4,), "axis": 1}),
    Write("reshape", (X,), {"newshape": (0, -1)}),
    Write("reshape", (X,), {"newshape": (6, 64)}),
    Write("reshape_like", (X, T(6, 64))),
    Write("reshape_like", (T(6, 64), T(2, 3)), {"lhs_begin": 0, "lhs_end": 1}),
    Write("transpose", (X,)),
    Write("transpose", (X,), {"axes": (0, 2, 3, 1)}),
    Write("expand_dims", (T(2, 3),), {"axis": 1}),
    Write("expand_dims", (T(2, 3),), {"axis": -1, "num_newaxis": 2}),
    Write("squeeze", (T(1, 2, 1),)),
    Write("squeeze", (T(1, 2, 1),), {"axis": 0}),
    Write("squeeze", (T(1, 2, 1),), {"axis": 1}),
    Write("reverse", (X,), {"axis": 1}),
    Write("reverse", (X,), {"axis": (1, 3)}),
    Write("layout_transform", (X,), {"src_layout": "NCHW", "dst_layout": "NHWC"}),
    Write("layout_transform", (T(2, 8, 3, 3),), {"src_layout": "NCHW", "dst_layout": "NCHW4c"}),
    Write("layout_transform", (T(2, 2, 3, 3, 4),), {"src_layout": "NCHW4c", "dst_layout": "NHWC"}),
    Write("layout_transform", (T(2, 2, 3, 3, 4),), {"src_layout": "NCHW4c", "dst_layout": "NHWC2c"}),
    Write("broadcast_to", (T(2, 1),), {"shape": (3, 2, 4)}),
    Write("broadcast_to", (T(2, 1),), {"shape": (-1, 4)}),
    Write("repeat", (T(2, 3),), {"repeats": 2, "axis": 1}),
    Write("repeat", (T(2, 3),), {"repeats": 2}),
    Write("tile", (T(2, 3),), {"reps": (2, 1, 2)}),
    Write("tile", (T(2, 3),), {"reps": (2,)}),
    Write("nn.pad", (X,), {"pad_width": ((0, 0), (0, 0), (1, 2), (0, 3))}),
    Write("nn.pad", (X,), {"pad_width": ((0, 1), (0, 0), (1, 2), (0, 3)), "pad_value": 2.0}),
    *(
        Write("nn.pad", (x,), {"pad_width": widths, "pad_mode": mode})
        for mode in ("edge", "reflect")
        for x, widths in (
            (X, ((0, 0), (0, 0), (1, 2), (0, 3))),
            (X, ((0, 0), (2, 0), (0, 0), (0, 0))),
            (X, ((1, 1), (0, 0), (0, 2), (0, 0))),
            (T(4, 5), ((1, 2), (3, 1))),
        )
    ),
    Write("strided_slice", (X,), {"begin": (0, 1), "end": (1, 3)}),
    Write("strided_slice", (X,), {"begin": (1, 0), "end": (7, 8), "strides": (2, 3), "axes": (3, 2)}),
    Write("strided_slice", (X,), {"begin": (-3,), "end": (None,), "axes": (-1,)}),
    Write("strided_slice", (X,), {"begin": (None,), "end": (None,), "strides": (-2,), "axes": (3,)}),
    Write("strided_slice", (X,), {"begin": (6,), "end": (1,), "strides": (-2,), "axes": (3,)}),
    Write("strided_slice", (X,), {"begin": (0,), "end": (2,)}),
    Write("take", (T(5, 3), I(2, 4)), {"axis": 0}),
    Write("take", (T(2, 5, 3), I(2, 4)), {"axis": 1}),
    Write("take", (T(2, 5), I(4, high=10))),
    Write("take", (T(2, 5), I(4).to(torch.uint8)), {"axis": 1}),
    Write("take", (T(2, 5), -1), {"axis": 1}),
    Write("gather", (T(5, 3), I(2, 3)), {"axis": 0}),
    Write("scatter", (T(5, 3), torch.tensor([[0, 1, 2]]), T(1, 3)), {"axis": 0}),
    Write("matrix_set_diag", (T(2, 4, 5), T(2, 4))),
    Write("matrix_set_diag", (T(2, 4, 5), T(2, 3)), {"k": 2}),
    *(
        Write("matrix_set_diag", (T(2, 4, 5), T(2, 4, 4)), {"k": (-2, 1), "align": align})
        for align in ("RIGHT_LEFT", "LEFT_RIGHT", "LEFT_LEFT", "RIGHT_RIGHT")
    ),
    Write("trilu", (T(4, 5),)),
    Write("trilu", (T(4, 5),), {"k": -1, "upper": False}),
    Write("zeros", (), {"shape": (2, 3)}),
    Write("ones", (), {"shape": (2, 3), "dtype": "int64"}),
    Write("full", (2.0,), {"shape": (2, 3)}),
    Write("full", (2,), {"shape": (2, 3), "dtype": "float32"}),
    Write("full", (T(1),), {"shape": (2, 3)}),
    Write("full", (T(1),), {"shape": (2, 3), "dtype": "float64"}),
    Write("full_like", (T(2, 3), 2)),
    Write("full_like", (T(2, 3), T(1, dtype=torch.float64))),
    Write("arange", (), {"stop": 5}),
    Write("arange", (), {"start": 1, "stop": 4, "step": 0.5}),
    Write("arange", (), {"start": 1, "stop": 4, "dtype": "int32"}),
    Write("cumsum", (T(2, 3),), {"axis": 1}),
    Write("cumsum", (I(2, 3),), {"axis": 0, "dtype": "float32", "exclusive": True}),
    Write("cumsum", (T(2, 3),)),
]


def complete(case: Write) -> dict[str, Any]:
    return TABLE[case.op].complete(case.attrs, tuple(map(type_of_value, case.operands)))


@pytest.mark.parametrize("dialect", ["torch", "aten"])
@pytest.mark.parametrize("case", WRITES, ids=str)
def test_what_is_written_means_the_operator(case: Write, dialect: str) -> None:
    attrs = complete(case)
    tree = spellings.write(case.op, attrs, leaves(case.operands), type_of, dialect)
    same(run(tree), evaluate(TABLE[case.op], case.operands, attrs))
    if dialect == "aten":
        assert all("aten" in str(native.target) or native.target is operator.getitem for native in natives(tree))
    if not any(isinstance(native, Native) for arg in (tree.args, tree.kwargs.values()) for native in flat(arg)):
        back = spellings.read(tree.target, tree.args, tree.kwargs, type_of)
        assert back is not None, tree
        assert isinstance(back, Canon)
        same(mean(back), evaluate(TABLE[case.op], case.operands, attrs))


def natives(tree: Any) -> list[Native]:
    return [tree, *(n for part in flat((tree.args, tree.kwargs)) for n in natives(part))] if isinstance(tree, Native) else []


def flat(value: Any) -> list[Any]:
    if isinstance(value, dict):
        value = value.values()
    if isinstance(value, (list, tuple)) or hasattr(value, "__next__") or type(value).__name__ == "dict_values":
        return [leaf for item in value for leaf in flat(item)]
    return [value]


def test_every_operator_is_written() -> None:
    assert {case.op for case in WRITES} == set(TABLE)
