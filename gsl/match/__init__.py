"""Matching: a rule's plan, the search, and its results."""

from gsl.match.engine import Miss, Search
from gsl.match.plan import Plan
from gsl.match.result import Match

__all__ = ["Match", "Miss", "Plan", "Search"]
