"""The meaning of operators as expressions of indices: what :attr:`OpSpec.meaning` is to tensors of numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gsl.prove.meanings import elementwise, layout, linear, reduce, window
from gsl.prove.poly import Unproved
from gsl.prove.tensor import Calculation, Tensor, Value
from gsl.spec import LISTS, TABLE, Trait

MEANINGS = {**elementwise.MEANINGS, **layout.MEANINGS, **linear.MEANINGS, **reduce.MEANINGS, **window.MEANINGS}
"""The meanings by canonical operator."""


def known(name: str) -> bool:
    """True if an operator has a meaning here."""
    return name in MEANINGS or Trait.ELEMENT_WISE in TABLE[name].traits


def call(calc: Calculation, name: str, operands: tuple[Any, ...], attrs: Mapping[str, Any]) -> Value:
    """The result of a call. Unproved for an operator without a meaning here; what it demands, see Calculation.must."""
    for operand in operands:
        wants_tuple = name in LISTS
        if isinstance(operand, Tensor) is wants_tuple:
            raise Unproved(f"{name} of what is no {'tuple' if wants_tuple else 'tensor'}")
    own = TABLE[name].own(attrs)
    if name in MEANINGS:
        try:
            found: Value = MEANINGS[name](calc, *operands, **own)
        except IndexError:
            calc.refuse(f"an axis that an operand of {name} lacks")
        return found
    if Trait.ELEMENT_WISE in TABLE[name].traits and "axis" not in own:
        return elementwise.opaque(calc, name, *operands, **own)
    raise Unproved(f"{name} has no meaning as an expression of indices")
