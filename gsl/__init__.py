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
from gsl.rewrite import Trace, RuleSet, Subst
from gsl.workload import Workload

__all__ = ["Match", "Trace", "RuleSet", "Subst", "Trait", "Workload", "attr", "errors", "op", "pat"]
