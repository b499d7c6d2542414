"""The operators for which each model has values, as data: of floats, and as far as their attributes allow it."""

from __future__ import annotations

from typing import Final

from gsl.spec import TABLE
from gsl.verify.models.definitions import DEFINITIONS
from gsl.verify.models.field import Field
from gsl.verify.models.integers import Integers

NATIVE: Final = frozenset(("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not", "left_shift", "right_shift"))
"""Operators that take no floats. All models compute integers and booleans as torch does."""

INTEGERS: Final = frozenset(Integers.rules) | {
    "negative", "square", "mean", "variance", "prod", "nn.relu6", "nn.leaky_relu", "nn.prelu", "hardsigmoid",
    "hardswish", *(f"nn.global_avg_pool{n}d" for n in (1, 2, 3)),
}  # fmt: skip
"""Operators that are exact over the integers and the rationals."""

FIELD: Final = frozenset(Field.rules) | frozenset(DEFINITIONS)
"""Operators that have values in the prime field."""

FLOAT64: Final = frozenset(TABLE)
"""All operators have values, and bounds on their rounding errors, on real tensors."""
