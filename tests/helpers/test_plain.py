"""The operators in numpy mean what the operators of GSL mean."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from gsl.spec import TABLE
from gsl.spec.meaning import evaluate, infer
from tests.helpers import plain
from tests.helpers.plain import PLAIN
from tests.spec.test_meaning import ROWS

KNOWN = [row[:3] for row in ROWS if row[0] in PLAIN]


def in_numpy(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(in_numpy, value))
    return value.numpy() if isinstance(value, torch.Tensor) else value


def type_of(value: Any) -> Any:
    if isinstance(value, tuple):
        return plain.TupleType(tuple(map(type_of, value)))
    if isinstance(value, torch.Tensor):
        return plain.TensorType(tuple(value.shape), str(value.dtype).removeprefix("torch."))
    return value


def test_all_are_compared() -> None:
    assert {op for op, *_ in KNOWN} == set(PLAIN)


@pytest.mark.parametrize(("op", "operands", "given"), KNOWN, ids=[f"{op}-{attrs}" for op, _, attrs in KNOWN])
def test_values_and_types(op: str, operands: tuple[Any, ...], given: dict[str, Any]) -> None:
    types = tuple(map(type_of, operands))
    attrs = TABLE[op].complete(given, tuple([None if isinstance(t, (bool, int, float)) else t for t in types]))
    found = plain.infer(op, types, attrs)
    if found is None:
        return
    assert found == infer(TABLE[op], types, attrs)
    mine, right = plain.evaluate(op, in_numpy(operands), attrs), evaluate(TABLE[op], operands, attrs)
    pairs = zip(mine, right, strict=True) if isinstance(right, tuple) else [(mine, right)]
    for one, other in pairs:
        np.testing.assert_allclose(np.asarray(one), other.numpy(), rtol=1e-4, atol=1e-5)


def test_what_is_not_known_has_no_type() -> None:
    assert plain.infer("nn.gelu", (plain.TensorType((2,), "float32"),), {}) is None
    assert plain.infer("add", (plain.TensorType((2,), "float32"), plain.TensorType((3,), "float32")), {}) is None


def test_most_rows_have_a_type() -> None:
    typed = [op for op, operands, given in KNOWN if plain.infer(
        op, tuple(map(type_of, operands)),
        TABLE[op].complete(given, tuple([None if isinstance(t, (bool, int, float)) else t
                                         for t in map(type_of, operands)]))) is not None]  # fmt: skip
    assert set(typed) == set(PLAIN)
