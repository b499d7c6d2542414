"""Operators of torch that the rules of ``gsl.rules.CPU``, ``GPU`` and ``APPROXIMATE`` write.

``import gsl.kernels`` registers them; a saved program that calls them needs it before it is loaded. They take plain
weights, so they can be saved, moved and differentiated. On a CPU without gradients, the second call with the same
weight packs it, in whichever way is fastest on this machine for this shape; the packed form is kept while the weight
lives and does not change. On a GPU without gradients, one kernel computes as much of a call as there is one for.

``gsl::linear(x, weight, bias=None, addend=None, *, activation="none", precision="float32")``
    activation(x weightᵀ + bias + addend)
``gsl::conv2d(x, weight, bias=None, addend=None, stride, padding, dilation, groups, *, activation, precision)``
    The same of a convolution. The result lies in memory with the channels last.

Those of numbers in eight bits are in :mod:`gsl.kernels.quantised`.
"""

from __future__ import annotations

from gsl.kernels import gpu
from gsl.kernels.layers import CONV2D, LINEAR
from gsl.kernels.operator import choices, clear
from gsl.kernels.quantised import (
    DEQUANTISED,
    DEQUANTISED_DYNAMIC,
    QUANTISED,
    QUANTISED_CONV2D,
    QUANTISED_CONV2D_DYNAMIC,
    QUANTISED_DYNAMIC,
    QUANTISED_LINEAR,
    QUANTISED_LINEAR_DYNAMIC,
)

__all__ = [
    "CONV2D", "DEQUANTISED", "DEQUANTISED_DYNAMIC", "LINEAR", "QUANTISED", "QUANTISED_CONV2D",
    "QUANTISED_CONV2D_DYNAMIC", "QUANTISED_DYNAMIC", "QUANTISED_LINEAR", "QUANTISED_LINEAR_DYNAMIC",
    "choices", "clear", "gpu",
]  # fmt: skip
