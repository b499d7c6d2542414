"""Types and numbers of what front ends read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import sympy

from gsl.front.core.infer import inferred, number_of, refined
from gsl.graph import CONST, GETITEM, Node, SymDim, TensorType, TupleType, Type

N = SymDim(sympy.Symbol("n", positive=True, integer=True))


def floats(*shape: Any) -> TensorType:
    return TensorType(shape, "float32")


@pytest.mark.parametrize(
    ("known", "meant", "expected"),
    [
        (floats(2, 3), floats(2, 3), floats(2, 3)),
        (floats(N, 3), floats(2, N), floats(2, 3)),
        (floats(2, 3), floats(2, 4), None),
        (floats(2, 3), floats(2), None),
        (floats(2), TensorType((2,), "int64"), None),
        (floats(2), None, None),
        (TupleType((floats(N), floats(3))), TupleType((floats(2), floats(3))), TupleType((floats(2), floats(3)))),
        (TupleType((floats(2), floats(3))), TupleType((floats(2), floats(4))), None),
        (TupleType((floats(2),)), TupleType((floats(2), floats(3))), None),
        (TupleType((floats(2),)), floats(2), None),
    ],
)
def test_unknown_sizes_are_taken_from_the_meaning_that_does_not_contradict(
    known: Type, meant: Type | None, expected: Type | None
) -> None:
    assert refined(known, meant) == expected


@pytest.mark.parametrize(
    ("array", "expected"),
    [(np.array(3), 3), (np.array(True), True), (np.float32(0.1), 0.1), (np.float64(0.1), 0.1),
     (np.finfo(np.float32).max, float(np.finfo(np.float32).max)), (np.array([3]), None), (np.array(1j), None)],
)  # fmt: skip
def test_the_number_that_an_array_is(array: Any, expected: Any) -> None:
    found = number_of(array)
    assert (type(found), found) == (type(expected), expected)


def test_the_type_of_a_field() -> None:
    def field(whole: Type | None, index: int) -> Type | None:
        return inferred(GETITEM, (Node(CONST, type=whole),), {"index": index})

    both = TupleType((floats(2), floats(3)))
    assert [field(both, index) for index in (0, 1, -1, -2)] == [floats(2), floats(3), floats(3), floats(2)]
    assert field(None, 0) is None
    for whole, index in ((both, 2), (both, -3), (floats(2), 0)):
        with pytest.raises(ValueError, match="has no field"):
            field(whole, index)
