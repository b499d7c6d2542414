"""The families of operators, each with the rows that read native calls as them, and the writers of theirs."""

from __future__ import annotations

from typing import Any, Final

from gsl.front.fx.spellings import (
    activation,
    conv,
    create,
    elementwise,
    index,
    linear,
    norm,
    packed,
    pad,
    pool,
    reduce,
    shape,
)

FAMILIES: Final[tuple[Any, ...]] = (
    elementwise, activation, linear, conv, pool, norm, shape, pad, index, reduce, create, packed,
)  # fmt: skip
"""Modules with ``ROWS`` and ``WRITERS``, and ``FIELDS`` where calls have several results."""
