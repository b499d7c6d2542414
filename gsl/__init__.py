"""GSL, the Graph Substitution Language.

A rule is a source pattern, a target pattern and the conditions between them::

    from gsl import *

    x = pat.Wildcard()
    twice = Subst(op.ReLU(op.ReLU(x)), op.ReLU(x))
    new = twice(Workload.from_torch(model, (example,)))
"""

from gsl import attr, errors, op, pat
from gsl.match import Match
from gsl.op import Trait
from gsl.pat import (
    NonLeafExternUse,
    attr_eq,
    dup,
    fork_to,
    is_const,
    is_op,
    is_tuple,
    is_tuple_get_item,
    is_var,
    make,
    wildcard,
)
from gsl.rewrite import RuleSet, Subst, Trace
from gsl.workload import Workload

__all__ = [
    "Match", "NonLeafExternUse", "RuleSet", "Subst", "Trace", "Trait", "Workload", "attr", "attr_eq", "dup", "errors",
    "fork_to", "is_const", "is_op", "is_tuple", "is_tuple_get_item", "is_var", "make", "op", "pat", "wildcard",
]  # fmt: skip
