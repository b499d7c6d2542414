"""The front end for graphs of any Python objects: layers, tasks, terms."""

from gsl.front.nodes.access import Access, Attributes, Operands, OperatorOf, Rebuild
from gsl.front.nodes.program import NodesProgram

__all__ = ["Access", "Attributes", "NodesProgram", "Operands", "OperatorOf", "Rebuild"]
