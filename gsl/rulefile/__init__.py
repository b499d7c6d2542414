"""Operator fusion rules in YAML: a file, read with the place of everything in it, becomes rules that make groups."""

from gsl.rulefile.build import FusionMatch, FusionRule, Heuristic, rules_of
from gsl.rulefile.reader import read_file, read_text, to_yaml

__all__ = ["FusionMatch", "FusionRule", "Heuristic", "read_file", "read_text", "rules_of", "to_yaml"]
