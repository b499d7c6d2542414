"""Writing canonical calls as native ones."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import torch

from gsl.front.fx.spellings.bind import TypeOf
from gsl.front.fx.spellings.families import FAMILIES
from gsl.front.fx.spellings.lower import lower
from gsl.front.fx.spellings.table import Dialect, FxLower, Site, call
from gsl.front.fx.tree import Native
from gsl.front.tree import compose

WRITERS: Final[Mapping[str, FxLower]] = {op: write for family in FAMILIES for op, write in family.WRITERS.items()}

BIASED: Final = frozenset(["nn.dense", *(f"nn.conv{n}d{kind}" for n in (1, 2, 3) for kind in ("", "_transpose"))])
"""The operators whose native call takes a bias."""


def write(op: str, attrs: Mapping[str, Any], operands: Sequence[Any], type_of: TypeOf, dialect: Dialect) -> Native:
    """A canonical call, with all its attributes, as a tree of native calls.

    A tuple operand is a Python tuple of operands. ValueError: what torch needs to know is not known.
    """
    return _written(WRITERS.get(op, _composed), Site(op, attrs, tuple(operands), type_of), dialect)


def _composed(s: Site) -> Any:
    """A call that torch lacks, as others."""

    def write(op: str, attrs: Mapping[str, Any], operands: Sequence[Any], type_of: TypeOf) -> Any:
        return WRITERS.get(op, _composed)(Site(op, attrs, tuple(operands), type_of))

    return compose(s.op, s.attrs, s.operands, write, s.type_of)


def write_biased(
    op: str, attrs: Mapping[str, Any], operands: Sequence[Any], type_of: TypeOf, dialect: Dialect
) -> Native:
    """A convolution or dense layer together with the bias of its channels, which is the last operand.

    Also a ``matmul`` of matrices and a bias of its last axis.
    """
    if op not in BIASED and op != "matmul":
        raise ValueError(f"{op} takes no bias")
    return _written(_biased, Site(op, attrs, tuple(operands), type_of), dialect)


def _biased(s: Site) -> Native:
    """A convolution, dense layer or matrix product and the bias of its channels, which is the last operand."""
    if s.op == "matmul" and not s["out_dtype"]:
        a, b, bias = s.operands
        return call(torch.addmm, bias, a, b)
    if not s["out_dtype"]:
        joined = WRITERS[s.op](s)
        assert isinstance(joined, Native)
        return joined
    # Torch wants a bias of the same dtype as the operands; added afterwards, it promotes as it should.
    layout = s.attrs.get("out_layout") or s.attrs.get("data_layout") or "C"
    behind = len(layout) - 1 - layout.index("C")
    bias = call(torch.reshape, s.operands[-1], (-1, *(1,) * behind)) if behind else s.operands[-1]
    return call(operator.add, WRITERS[s.op](replace(s, operands=s.operands[:-1])), bias)


def _written(writer: FxLower, site: Site, dialect: Dialect) -> Native:
    tree = writer(site)
    result = lower(tree) if dialect == "aten" else tree
    assert isinstance(result, Native)
    return result
