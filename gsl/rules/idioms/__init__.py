"""Idioms: the function of one operator, written out with others."""

from __future__ import annotations

from gsl.rewrite import RuleSet
from gsl.rules.idioms import activations, attention, norms
from gsl.rules.normal import NORMAL

IDIOMS = NORMAL + RuleSet([*attention.RULES, *norms.RULES, *activations.RULES])
"""The rules of the normal form, and those that recognise idioms in it."""
