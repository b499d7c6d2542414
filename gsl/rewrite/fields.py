"""Fields of tuples that rewriting made: each of them is the value itself."""

from __future__ import annotations

from gsl.graph import GETITEM, TUPLE, Graph
from gsl.graph.splice import Replacement, Splicer


def take_fields(graph: Graph) -> None:
    """Let each field of a tuple that a rewrite made be the value from which the tuple was made.

    Else the field would hide that value from the next pass, and the tuple would count as its user.
    """
    if not any(node.op == TUPLE for node in graph.nodes):
        return
    splicer = Splicer(graph)
    for node in graph.by_op().get(GETITEM, ()):
        whole = node.operands[0]
        if whole.op == TUPLE and (whole.origin is not None or node.redirects is not None):
            splicer.apply(Replacement([node], [whole.operands[node.attrs["index"]]]), [node])
    splicer.finish()
