"""All rows of the table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gsl.front.relay.spellings.activation import ROWS as ACTIVATION
from gsl.front.relay.spellings.conv import ROWS as CONV
from gsl.front.relay.spellings.create import ROWS as CREATE
from gsl.front.relay.spellings.elementwise import ROWS as ELEMENTWISE
from gsl.front.relay.spellings.index import ROWS as INDEX
from gsl.front.relay.spellings.linear import ROWS as LINEAR
from gsl.front.relay.spellings.norm import ROWS as NORM
from gsl.front.relay.spellings.pool import ROWS as POOL
from gsl.front.relay.spellings.reduce import ROWS as REDUCE
from gsl.front.relay.spellings.shape import ROWS as SHAPE
from gsl.front.relay.spellings.table import Row

_ALL: Final = (*ELEMENTWISE, *ACTIVATION, *LINEAR, *CONV, *POOL, *NORM, *SHAPE, *INDEX, *REDUCE, *CREATE)

ROWS: Final[Mapping[str, Row]] = {row.op: row for row in _ALL}
"""The rows by canonical operator."""
