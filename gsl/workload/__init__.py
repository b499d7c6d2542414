"""A program for users: run it, compare it with another one, draw it."""

from gsl.workload.compare import TOLERANCES, Compared, Report, Tolerance
from gsl.workload.workload import Workload

__all__ = ["TOLERANCES", "Compared", "Report", "Tolerance", "Workload"]
