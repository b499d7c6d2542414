"""Writing canonical calls as native ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from gsl.front.fx.spellings import packed, write_math, write_nn, write_shape
from gsl.front.fx.spellings.bind import TypeOf
from gsl.front.fx.spellings.lower import lower
from gsl.front.fx.spellings.table import Dialect, Site, Writer
from gsl.front.fx.tree import Native

WRITERS: Final[Mapping[str, Writer]] = {
    **write_math.WRITERS, **write_shape.WRITERS, **write_nn.WRITERS, **packed.WRITERS,
}  # fmt: skip

BIASED: Final = frozenset(["nn.dense", *(f"nn.conv{n}d{kind}" for n in (1, 2, 3) for kind in ("", "_transpose"))])
"""The operators whose native call takes a bias."""


def write(op: str, attrs: Mapping[str, Any], operands: Sequence[Any], type_of: TypeOf, dialect: Dialect) -> Native:
    """A canonical call, with all its attributes, as a tree of native calls.

    A tuple operand is a Python tuple of operands. ValueError: what torch needs to know is not known.
    """
    return _written(WRITERS[op], Site(op, attrs, tuple(operands), type_of), dialect)


def write_biased(
    op: str, attrs: Mapping[str, Any], operands: Sequence[Any], type_of: TypeOf, dialect: Dialect
) -> Native:
    """A convolution or dense layer together with the bias of its channels, which is the last operand.

    Also a ``matmul`` of matrices and a bias of its last axis.
    """
    if op not in BIASED and op != "matmul":
        raise ValueError(f"{op} takes no bias")
    return _written(write_nn.biased, Site(op, attrs, tuple(operands), type_of), dialect)


def _written(writer: Writer, site: Site, dialect: Dialect) -> Native:
    tree = writer(site)
    result = lower(tree) if dialect == "aten" else tree
    assert isinstance(result, Native)
    return result
