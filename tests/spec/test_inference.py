"""The types of calls: with symbolic sizes, ill-typed, unknown, and large."""

from __future__ import annotations

import re
import time
from typing import Any
from unittest import TestCase

import pytest
import sympy

from gsl.graph import SymDim, TensorType, TupleType
from gsl.spec import find, meaning
from gsl.spec.meaning import evaluate, from_torch, infer

pytestmark = pytest.mark.torch
B, S = (SymDim(sympy.Symbol(name, positive=True, integer=True)) for name in ("b", "s"))
LAST = SymDim(64 - sympy.Max(0, 64 - S.expr))


def f32(*shape: Any) -> TensorType:
    return TensorType(shape, "float32")


def type_of(name: str, operands: tuple[Any, ...], attrs: dict[str, Any]) -> Any:
    spec = find(name)
    assert spec is not None
    return infer(spec, operands, attrs)


SYMBOLIC: list[tuple[str, tuple[Any, ...], dict[str, Any], Any]] = [
    ("conv2d", (f32(B, 3, 8, 8), f32(4, 3, 3, 3)), {"padding": 1}, f32(B, 4, 8, 8)),
    (
        "conv2d",
        (f32(B, 3, S, 8), f32(4, 3, 3, 3)),
        {"padding": 1, "strides": 2},
        f32(B, 4, (S - 1) // 2 + 1, 4),
    ),
    (
        "packed.conv2d_add",
        (f32(B, 3, 8, 8), f32(4, 3, 3, 3), f32(B, 4, 8, 8), f32(4)),
        {"padding": (1, 1, 1, 1), "activation": "relu"},
        f32(B, 4, 8, 8),
    ),
    ("packed.dense_add", (f32(B, S, 8), f32(5, 8), f32(B, S, 5)), {"activation": "gelu"}, f32(B, S, 5)),
    ("max_pool2d", (f32(B, 3, S // 2, 8),), {"pool_size": 2}, f32(B, 3, S // 2 - 1, 7)),
    ("matmul", (f32(B, S, 8), f32(8, 5)), {}, f32(B, S, 5)),
    ("dense", (f32(B, S, 8), f32(5, 8)), {}, f32(B, S, 5)),
    ("reshape", (f32(B, S, 8),), {"newshape": (0, -1, 2)}, f32(B, S * 4, 2)),
    ("reshape", (f32(B, S * 4),), {"newshape": (B, S, -1)}, f32(B, S, 4)),
    ("concatenate", (TupleType((f32(B, S), f32(B, 5))),), {"axis": 1}, f32(B, S + 5)),
    ("split", (f32(B, S * 2),), {"indices_or_sections": 2, "axis": 1}, TupleType((f32(B, S), f32(B, S)))),
    ("strided_slice", (f32(B, S),), {"begin": (1,), "end": (-1,), "axes": (1,)}, f32(B, S - 2)),
    ("add", (f32(B, S), f32(B, 1)), {}, f32(B, S)),
    ("add", (f32(B + S), f32(S + B)), {}, f32(B + S)),
    ("add", (f32(B // 2), f32(B // 2)), {}, f32(B // 2)),
    ("multiply", (f32(B, 4), 2), {}, f32(B, 4)),
    # at most 64 places, as a slice of so many has them
    ("transpose", (f32(B, LAST),), {"axes": (1, 0)}, f32(LAST, B)),
    ("concatenate", (TupleType((f32(B, LAST), f32(B, 1))),), {"axis": 1}, f32(B, LAST + 1)),
    ("attention", (f32(B, 4, S, 8),) * 3, {"is_causal": True}, f32(B, 4, S, 8)),
    ("softmax", (f32(B, S),), {}, f32(B, S)),
    ("layer_norm", (f32(B, S, 8), f32(8), f32(8)), {}, f32(B, S, 8)),
    ("repeat", (f32(B, S),), {"repeats": 3, "axis": 1}, f32(B, S * 3)),
    ("arange", (), {"stop": S}, TensorType((S,), "int64")),
    ("broadcast_to", (f32(1, 4),), {"shape": (B, -1)}, f32(B, 4)),
    ("adaptive_avg_pool2d", (f32(B, 4, S, S),), {"output_size": 1}, f32(B, 4, 1, 1)),
]


@pytest.mark.parametrize(("name", "operands", "attrs", "expected"), SYMBOLIC)
def test_symbolic_sizes(name: str, operands: tuple[Any, ...], attrs: dict[str, Any], expected: Any) -> None:
    assert type_of(name, operands, attrs) == expected


ILL_TYPED: list[tuple[str, tuple[Any, ...], dict[str, Any], str]] = [
    (
        "add",
        (f32(2, 3), f32(2, 4)),
        {},
        "add: Attempting to broadcast a dimension of length 4 at -1! Mismatching argument at index 1 had",
    ),
    ("add", (f32(B, S), f32(B, 5)), {}, "add: The size of tensor a (s) must match the size of tensor b (5)"),
    ("add", (f32(B), f32(S)), {}, "add: The size of tensor a (b) must match the size of tensor b (s)"),
    ("matmul", (f32(2, 3), f32(2, 3)), {}, "matmul: "),
    ("dense", (f32(2, 3), f32(3)), {}, "nn.dense: expected a weight of 2 dimensions, found 1"),
    ("bias_add", (f32(2, 3), f32(1, 3)), {}, "nn.bias_add: expected a bias of 1 dimension, found 2"),
    ("bias_add", (f32(2, 3), f32(1)), {}, "nn.bias_add: expected a bias of 3 elements, found 1"),
    ("batch_matmul", (f32(2, 3), f32(2, 3)), {}, "nn.batch_matmul: expected operands of 3 dimensions, found 2 and 2"),
    (
        "conv2d",
        (f32(3, 8, 8), f32(4, 3, 3, 3)),
        {},
        "nn.conv2d: expected a tensor of layout NCHW, found 3 dimensions",
    ),
    ("softmax", (f32(2, 3),), {"axis": 5}, "nn.softmax: axis: expected an axis between -2 and 1, found 5"),
    ("softmax", (f32(2, 3),), {"dim": 1}, "nn.softmax has no attribute 'dim'"),
    ("add", (f32(2),), {}, "add: "),
    ("reshape", (f32(B, S),), {"newshape": (-1, 8)}, "reshape: "),
    (
        "strided_slice",
        (f32(B, S),),
        {"begin": (0,), "end": (5,), "axes": (1,)},
        "strided_slice: the type depends on the sizes at run time: s >= 5",
    ),
]


@pytest.mark.parametrize(("name", "operands", "attrs", "text"), ILL_TYPED)
def test_ill_typed(name: str, operands: tuple[Any, ...], attrs: dict[str, Any], text: str) -> None:
    for _ in range(2):
        silent = TestCase().assertNoLogs("torch._subclasses.fake_tensor", "WARNING")
        with silent, pytest.raises(ValueError, match=re.escape(text)) as caught:
            type_of(name, operands, attrs)
        message = str(caught.value)
        assert message.startswith(text)
        assert len(message) > len(name) + 2
        assert "\n" not in message


@pytest.mark.parametrize("operands", [(None, f32(2)), (f32(2), None), (2, None)])
def test_an_unknown_operand_has_no_known_result(operands: tuple[Any, ...]) -> None:
    assert type_of("add", operands, {}) is None


def test_an_unknown_field_has_no_known_result() -> None:
    assert type_of("concatenate", (TupleType((f32(2), None)),), {"axis": 0}) is None


def test_numbers_promote_by_their_kind() -> None:
    ints = TensorType((3,), "int32")
    found = [type_of("multiply", (ints, number), {}).dtype for number in (True, 1, 1.0)]
    assert found == ["int32", "int32", "float32"]
    assert type_of("maximum", (TensorType((3,), "float16"), 1.0), {}).dtype == "float16"


def test_attributes_that_are_equal_but_of_another_type_are_told_apart() -> None:
    assert type_of("arange", (), {"stop": 4}).dtype == "int64"
    assert type_of("arange", (), {"stop": 4.0}).dtype == "float32"
    assert type_of("sum", (f32(2),), {"keepdims": True}) == f32(1)
    with pytest.raises(ValueError, match="expected True or False, found 1"):
        type_of("sum", (f32(2),), {"keepdims": 1})


def test_an_attribute_may_be_a_list() -> None:
    assert type_of("sum", (f32(2, 3),), {"axis": [0]}) == f32(3)


def test_nothing_is_allocated_and_repeated_calls_are_fast() -> None:
    huge = f32(10**6, 10**6)
    assert type_of("add", (huge, huge), {}) == huge
    assert type_of("ones", (), {"shape": (10**6, 10**6)}) == huge
    start = time.process_time()
    for _ in range(100):
        type_of("add", (huge, huge), {})
    assert time.process_time() - start < 1


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(), RecursionError(), KeyboardInterrupt(),
        RuntimeError("[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory"),
    ],
    ids=["memory", "stack", "interrupt", "allocator"],
)  # fmt: skip
@pytest.mark.parametrize("size", [7, B], ids=["known", "symbolic"])
def test_what_the_process_lacks_is_not_said_of_a_call(error: BaseException, size: Any) -> None:
    def fail(*_: object) -> Any:
        raise error

    meaning._infer_cached.cache_clear()  # type: ignore[attr-defined]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(meaning, "_run", fail)
        with pytest.raises(type(error)):
            type_of("matmul", (f32(size, 5), f32(5, 3)), {})
    assert type_of("matmul", (f32(size, 5), f32(5, 3)), {}) == f32(size, 3)


def test_the_division_of_torch_is_that_of_sympy() -> None:
    from torch.utils._sympy.functions import FloorDiv, Mod

    n = sympy.Symbol("s77", positive=True, integer=True)
    assert from_torch(FloorDiv(n - 1, 2) + 1, {n: B.expr}) == (B - 1) // 2 + 1
    assert from_torch(Mod(n, 3), {n: B.expr}) == B % 3
    assert from_torch(n - n + 3) == 3


def test_a_symbolic_size_has_no_value() -> None:
    spec = find("zeros")
    assert spec is not None
    with pytest.raises(ValueError, match=r"^zeros: a value needs known sizes, found \{'shape': \(b, 2\)\}$"):
        evaluate(spec, (), {"shape": (B, 2), "dtype": "int8"})
