"""The graph view that all front ends load into and store from."""

from gsl.graph.node import (
    CONST,
    GETITEM,
    INPUT,
    LEAVES,
    PARAM,
    TUPLE,
    Below,
    Effect,
    Graph,
    Inference,
    Node,
    Op,
    Origin,
    UnreadWeight,
    by_operator,
    is_call,
    op_name,
)
from gsl.graph.types import Dim, SymDim, TensorType, TupleType, Type, dtype_name

__all__ = [
    "CONST", "GETITEM", "INPUT", "LEAVES", "PARAM", "TUPLE", "Below", "Dim", "Effect", "Graph", "Inference", "Node",
    "Op", "Origin", "SymDim", "TensorType", "TupleType", "Type", "UnreadWeight",
    "by_operator", "dtype_name", "is_call", "op_name",
]
