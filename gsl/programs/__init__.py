"""Rules of two programs: functions, modules or finished graphs, of which one becomes the source, one the target."""

from gsl.programs.rule import rule_from_programs

__all__ = ["rule_from_programs"]
