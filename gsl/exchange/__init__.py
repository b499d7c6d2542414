"""Rules of other systems: of their files, functions and patterns, as ordinary rules over canonical operators."""

from gsl.exchange.imported import ImportedRules
from gsl.exchange.inductor import from_inductor, from_inductor_pass
from gsl.exchange.rewriters import from_dpl, from_onnxscript
from gsl.exchange.subgraph import from_fx
from gsl.exchange.taso import rules_from_taso
from gsl.exchange.tensat import rules_from_tensat
from gsl.exchange.terms import Semantics

__all__ = [
    "ImportedRules", "Semantics", "from_dpl", "from_fx", "from_inductor", "from_inductor_pass", "from_onnxscript",
    "rules_from_taso", "rules_from_tensat",
]  # fmt: skip
