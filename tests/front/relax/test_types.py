"""Types of expressions of Relax."""

from __future__ import annotations

from typing import Any

import pytest
from tvm import relax
from tvm.script import relax as R

from gsl.front.relax.types import Dims, to_relax, type_of
from gsl.graph import TensorType, TupleType

PAIR = relax.Var("pair", relax.TupleType([relax.TensorType([2], "float32"), relax.TensorType([3], "int32")]))
UNKNOWN = relax.Var("unknown", relax.AnyType())
SECOND = TensorType((3,), "int32")


@pytest.mark.parametrize(("whole", "index", "expected"), [
    (PAIR, 1, SECOND),
    (relax.Tuple([UNKNOWN, PAIR]), 1, TupleType((TensorType((2,), "float32"), SECOND))),
    (relax.TupleGetItem(relax.Tuple([UNKNOWN, PAIR]), 1), 1, SECOND),
    (relax.Tuple([UNKNOWN, PAIR]), 0, None),
    (UNKNOWN, 0, None),
])  # fmt: skip
def test_fields_that_have_no_type_of_their_own(whole: Any, index: int, expected: Any) -> None:
    """What is written takes fields before Relax has said what they are."""
    assert type_of(relax.TupleGetItem(whole, index), Dims(), lambda var: None) == expected


def test_types_of_relax_and_of_the_view() -> None:
    wanted = relax.TupleType([relax.TensorType([2], "float32")])
    for given in (wanted, R.Tuple(R.Tensor((2,), "float32")), TupleType((TensorType((2,), "float32"),)),
                  [R.Tensor((2,), "float32")], (TensorType((2,), "float32"),)):  # fmt: skip
        assert to_relax(given, Dims()) == wanted
    with pytest.raises(ValueError, match="expected a type"):
        to_relax("float32", Dims())
