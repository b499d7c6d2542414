"""Tensors of torch, numpy and TVM as each other: values and dtypes stay, whatever their place in memory."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
import tvm

from gsl.front.tvm.tensors import known_dtype, to_numpy, to_torch, to_tvm

DTYPES = (
    "float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "int64", "int32", "int16", "int8",
    "uint8", "bool",
)  # fmt: skip


def values(dtype: str) -> torch.Tensor:
    return torch.tensor([0.0, 1.0, 2.0, 4.0, 0.0, 1.0]).to(getattr(torch, dtype))


def same(found: Any, wanted: torch.Tensor) -> bool:
    return found.dtype == wanted.dtype and torch.equal(found.float(), wanted.float())


@pytest.mark.parametrize("dtype", DTYPES)
def test_dtypes_of_tensors(dtype: str) -> None:
    whole = values(dtype)
    # Aligned, not aligned, with strides, without elements, without axes.
    for tensor in (whole, whole[1:], whole[::2], whole[:0], whole[1]):
        native = to_tvm(tensor)
        assert isinstance(native, tvm.runtime.Tensor)
        assert str(native.dtype) == dtype
        assert tuple(native.shape) == tuple(tensor.shape)
        assert same(to_torch(native), tensor)


@pytest.mark.parametrize("dtype", DTYPES)
def test_dtypes_of_arrays(dtype: str) -> None:
    wanted = values(dtype)
    array = wanted.float().numpy().astype(getattr(ml_dtypes, dtype, None) or dtype)
    assert array.dtype.name == dtype
    assert same(to_torch(array), wanted)
    assert str(to_tvm(array).dtype) == dtype
    for source in (wanted, to_tvm(wanted)):
        back = to_numpy(source)
        assert back.dtype == array.dtype
        assert np.array_equal(back.astype("float32"), array.astype("float32"))


def test_an_array_that_can_not_be_written_to() -> None:
    array = np.arange(3.0)
    array.flags.writeable = False
    found = to_torch(array)
    found[0] = 5.0
    assert array[0] == 0.0


def test_results_of_several_tensors() -> None:
    pair = to_numpy((to_tvm(torch.ones(2)), [to_tvm(torch.zeros(1, dtype=torch.int64))]))
    assert pair[0].dtype == np.float32
    assert pair[1][0].dtype == np.int64
    assert to_numpy(tvm.runtime.ShapeTuple([2, 3])) == (2, 3)


@pytest.mark.parametrize("dtype", ["float8_e3m4", "float4_e2m1fn"])
def test_a_dtype_that_torch_does_not_have(dtype: str) -> None:
    assert not known_dtype(dtype)
    assert not known_dtype("int4")  # torch has the name alone
    array = np.array([1.0, 2.0]).astype(getattr(ml_dtypes, dtype))
    back = to_numpy(to_tvm(array))
    assert back.dtype == array.dtype
    assert np.array_equal(back, array)
