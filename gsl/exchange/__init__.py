"""Rules of other systems: read from their files, as ordinary rules over canonical operators."""

from gsl.exchange.imported import ImportedRules
from gsl.exchange.taso import rules_from_taso
from gsl.exchange.tensat import rules_from_tensat
from gsl.exchange.terms import Semantics

__all__ = ["ImportedRules", "Semantics", "rules_from_taso", "rules_from_tensat"]
