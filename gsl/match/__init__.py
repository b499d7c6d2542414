"""Matching: a rule's plan, the search, and its results."""

from gsl.match.engine import Search
from gsl.match.miss import Miss
from gsl.match.plan import Plan
from gsl.match.result import Match
from gsl.match.start import Start

__all__ = ["Match", "Miss", "Plan", "Search", "Start"]
