"""The rule book on one page: ``from rules import BOOK`` in this repository, ``from gsl.rules import BOOK`` anywhere."""

from typing import Any

import gsl.rules
from gsl.rules import APPROXIMATE as APPROXIMATE
from gsl.rules import BOOK as BOOK
from gsl.rules import CPU as CPU
from gsl.rules import FAMILIES as FAMILIES
from gsl.rules import GPU as GPU
from gsl.rules import HALVES as HALVES
from gsl.rules import IDIOMS as IDIOMS
from gsl.rules import LOWERING as LOWERING
from gsl.rules import MODULE_FUSION as MODULE_FUSION
from gsl.rules import NORMAL as NORMAL
from gsl.rules import OPTIMISING as OPTIMISING
from gsl.rules import PARALLEL as PARALLEL
from gsl.rules import RULES as RULES


def __getattr__(name: str) -> Any:
    """``ORT`` and ``QUANTISED``, which need torch."""
    return getattr(gsl.rules, name)
