"""All rules of the rule book as one set, those too that pay only somewhere."""

from __future__ import annotations

from gsl import RuleSet
from gsl.rules import RULES

EVERY_RULE = RuleSet(RULES.values())
