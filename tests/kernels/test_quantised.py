"""Quantised layers of gsl.kernels: by oneDNN, with all that can follow them, as by their formula."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from gsl.kernels.operator import ACTIVATIONS
from gsl.kernels.quantised import QUANTISED_CONV2D, QUANTISED_LINEAR, quantised_conv2d, quantised_linear

WINDOW = {"stride": [2, 1], "padding": [1, 0], "dilation": [1, 2], "groups": 2}
SCHEME = {"scale": 0.02, "zero_point": 120}
LAYERS: dict[str, tuple[Any, Any, tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "linear": (QUANTISED_LINEAR, quantised_linear, (2, 3, 32), (16, 32), {}),
    "vector": (QUANTISED_LINEAR, quantised_linear, (32,), (16, 32), {}),
    "conv": (QUANTISED_CONV2D, quantised_conv2d, (2, 8, 9, 7), (16, 4, 3, 3), WINDOW),
}
ADDENDS: dict[str, Any] = {
    "nothing": (None, {}),
    "floats": (torch.float32, {}),
    "bytes": (torch.uint8, {"other_scale": 0.03, "other_zero": 100}),
}


def numbers(*shape: int, dtype: Any = torch.uint8) -> Tensor:
    return torch.randn(shape) if dtype == torch.float32 else torch.randint(0, 120, shape).to(dtype)


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("added", ADDENDS)
@pytest.mark.parametrize("out", [None, 0.05])
def test_what_follows_a_layer(layer: str, activation: str, added: str, out: float | None) -> None:
    """Results in eight bits differ by one at most, where a number lies between two."""
    run, formula, shape, weight_shape, window = LAYERS[layer]
    dtype, end = ADDENDS[added]
    how = {**SCHEME, **window, **end, "activation": activation, **({"out_scale": out, "out_zero": 30} if out else {})}
    weight, scales = numbers(*weight_shape, dtype=torch.int8) - 60, torch.rand(16) * 0.01
    for bias in (torch.randn(16), None):
        operands = numbers(*shape), weight, scales, torch.zeros(16, dtype=torch.long), bias
        expected = formula(*operands, **how)
        other = None if dtype is None else numbers(*expected.shape, dtype=dtype)
        before = None if other is None else other.clone()
        expected = formula(*operands, other, **how)
        for _ in range(2):  # the second call packs the weight
            found = run(*operands, other, **how)
        assert found.dtype == (torch.float32 if out is None else torch.uint8)
        assert (found.float() - expected.float()).abs().max() <= (1e-5 if out is None else 1)
        assert other is None or torch.equal(other, before)
        assert layer != "conv" or found.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("layer", LAYERS)
def test_an_addend_of_another_shape(layer: str) -> None:
    """The kernels of oneDNN would write beyond its memory."""
    run, formula, shape, weight_shape, window = LAYERS[layer]
    weight = numbers(*weight_shape, dtype=torch.int8), torch.rand(16) * 0.01, torch.zeros(16, dtype=torch.long)
    operands, how = (numbers(*shape), *weight, None), {**SCHEME, **window}
    for other in (torch.randn(16, 1, 1) if layer == "conv" else torch.randn(16), torch.randn(1)):
        for _ in range(3):
            torch.testing.assert_close(run(*operands, other, **how), formula(*operands, other, **how))


def test_products_are_of_whole_numbers_whatever_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    if not torch._C._has_mkldnn or not torch.cpu._is_vnni_supported():
        pytest.skip("no kernel of whole numbers")
    monkeypatch.setattr("gsl.kernels.quantised._weight", None)  # only the formula dequantises it
    for run, _, shape, weight_shape, window in LAYERS.values():
        weight = numbers(*weight_shape, dtype=torch.int8), torch.ones(16), torch.zeros(16, dtype=torch.long)
        with pytest.raises(TypeError):
            run(numbers(*shape), *weight, **SCHEME, **window)
        for activation in ACTIVATIONS:
            run(numbers(*shape), *weight, **SCHEME, **window, activation=activation)
