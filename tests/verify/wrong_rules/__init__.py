"""The rules with a mistake in each of them: variants that look right, and are refuted.

A variant is a function that returns the sides and conditions of a rule, as in the rule book; its first line says what
is wrong with it.
"""

from tests.verify.wrong_rules import attention, fold, idioms, layout, normal, norms, packed, parallel, sums
from tests.verify.wrong_rules.table import VARIANTS, Variant

__all__ = [
    "VARIANTS", "Variant", "attention", "fold", "idioms", "layout", "normal", "norms", "packed", "parallel", "sums",
]  # fmt: skip
