"""Rewriting: rules, their targets, the checks before a graph is changed, and folding of weights."""

from gsl.rewrite.nested import Within, inside
from gsl.rewrite.ruleset import RuleSet, alternate
from gsl.rewrite.subst import Subst
from gsl.rewrite.trace import Firing, Refused, Summary, Trace

__all__ = ["Firing", "Refused", "RuleSet", "Subst", "Summary", "Trace", "Within", "alternate", "inside"]
