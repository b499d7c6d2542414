"""What a program costs on this machine, and what rules are worth there."""

from gsl.cost.model import Analytic, Measured, Model, OfNodes, cost, model_of
from gsl.cost.store import Store
from gsl.cost.table import Cost, Costs, Row

__all__ = ["Analytic", "Cost", "Costs", "Measured", "Model", "OfNodes", "Row", "Store", "cost", "model_of"]
