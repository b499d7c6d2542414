"""GSL, the Graph Substitution Language.

A rule is a source pattern, a target pattern and the conditions between them::

    from gsl import *

    x = pat.Wildcard()
    twice = Subst(op.ReLU(op.ReLU(x)), op.ReLU(x))
    new = twice(Workload.from_torch(model, (example,)))
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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
from gsl.rewrite import RuleSet, Subst, Trace, Within, alternate, inside
from gsl.workload import Workload

if TYPE_CHECKING:
    from gsl.exchange import rules_from_taso, rules_from_tensat
    from gsl.fx import torch_backend as torch_backend
    from gsl.operators import operator as operator
    from gsl.verify import Proved, Refuted, Supported, Unchecked

__all__ = [
    "Match", "NonLeafExternUse", "Proved", "Refuted", "RuleSet", "Subst", "Supported", "Trace", "Trait", "Unchecked",
    "Within", "Workload", "alternate", "attr", "attr_eq", "dup", "errors", "fork_to", "inside", "is_const", "is_op",
    "is_tuple", "is_tuple_get_item", "is_var", "make", "op", "pat", "rules_from_taso", "rules_from_tensat", "wildcard",
]  # fmt: skip
_LATE = {
    "rules_from_taso": "gsl.exchange", "rules_from_tensat": "gsl.exchange",
    "operator": "gsl.operators", "optimize": "gsl.cost", "torch_backend": "gsl.fx",
    "Proved": "gsl.verify", "Refuted": "gsl.verify", "Supported": "gsl.verify", "Unchecked": "gsl.verify",
}  # fmt: skip
"""The names that are loaded when they are asked for, and their modules."""
_MODULES = ("cost", "exchange", "fx", "modules", "onnx", "relax", "rules", "verify")
"""The modules that are loaded so."""


def __getattr__(name: str) -> Any:
    import importlib

    if name in _MODULES:
        return importlib.import_module(f"gsl.{name}")
    if name not in _LATE:
        known = [*__all__, *_LATE, *_MODULES]
        raise AttributeError(f"module 'gsl' has no attribute {name!r}: {errors.nearest(name, known)}")
    return getattr(importlib.import_module(_LATE[name]), name)
