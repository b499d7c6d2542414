"""The costs of programs on this machine, and the rules that pay there."""

from gsl.cache import Store
from gsl.cost.backtrack import Backtrack, Walk
from gsl.cost.greedy import Greedy
from gsl.cost.model import Analytic, Measured, Model, OfNodes, cost, model_of
from gsl.cost.optimization import optimize
from gsl.cost.report import Optimized, OptimizeReport
from gsl.cost.space import Candidate, Choice, Clock, Found, Kind, Search, Space, Trial
from gsl.cost.table import Cost, Costs, Row
from gsl.cost.whole import Timing

__all__ = [
    "Analytic", "Backtrack", "Candidate", "Choice", "Clock", "Cost", "Costs", "Found", "Greedy", "Kind", "Measured",
    "Model", "OfNodes", "OptimizeReport", "Optimized", "Row", "Search", "Space", "Store", "Timing", "Trial", "Walk",
    "cost", "model_of", "optimize",
]  # fmt: skip
