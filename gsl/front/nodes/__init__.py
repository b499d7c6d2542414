"""The front end for graphs of any Python objects: layers, tasks, terms."""

from gsl.front.nodes.program import Access, Attributes, NodesProgram, Operands, OperatorOf, Rebuild

__all__ = ["Access", "Attributes", "NodesProgram", "Operands", "OperatorOf", "Rebuild"]
