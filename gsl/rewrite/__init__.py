"""Rewriting: rules, their targets, the checks before a graph is changed, and folding of weights."""

from gsl.rewrite.apply import Firing, Refused, Trace
from gsl.rewrite.ruleset import RuleSet
from gsl.rewrite.subst import Subst

__all__ = ["Firing", "Refused", "RuleSet", "Subst", "Trace"]
