"""The graphs that operators of higher order run, and the values that they feed to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from torch import fx
from torch._ops import HigherOrderOperator


class BodyCall(NamedTuple):
    """A call that runs graphs, all of them on the same inputs: what is carried, then rows, then what is whole."""

    bodies: Sequence[Any]
    """The nodes that stand for the graphs."""
    carried: Sequence[Any] = ()
    """The values of the first run. Later ones get what the run before returned first."""
    rows: Sequence[Any] = ()
    """Tensors of which each run gets one row."""
    whole: Sequence[Any] = ()

    @property
    def fed(self) -> tuple[Any, ...]:
        """The values that are fed to the inputs of each graph, in order."""
        return (*self.carried, *self.rows, *self.whole)

    def graphs(self, root: Any) -> dict[str, fx.GraphModule]:
        """The graphs by their paths in the module that has the call."""
        paths = [str(body.target) for body in self.bodies if isinstance(body, fx.Node)]
        found = {path: getattr(root, path, None) for path in paths}
        return {path: graph for path, graph in found.items() if isinstance(graph, fx.GraphModule)}


_CALLS: Final[Mapping[str, Callable[..., BodyCall]]] = {
    "cond": lambda _, true, false, whole: BodyCall((true, false), whole=whole),
    "invoke_subgraph": lambda body, _, *whole: BodyCall((body,), whole=whole),
    "tag_activation_checkpoint": lambda body, *whole: BodyCall((body,), whole=whole),
    "wrap": lambda body, *whole: BodyCall((body,), whole=whole),
    "wrap_with_set_grad_enabled": lambda _, body, *whole: BodyCall((body,), whole=whole),
    "while_loop": lambda test, body, carried, whole: BodyCall((test, body), carried, (), whole),
    "while_loop_stack_output": lambda test, body, carried, whole: BodyCall((test, body), carried, (), whole),
    "scan": lambda body, carried, rows, whole: BodyCall((body,), carried, rows, whole),
    "map_impl": lambda body, rows, whole: BodyCall((body,), (), rows, whole),
    "associative_scan": lambda body, rows, whole: BodyCall((body,), (), (*rows, *rows), whole),
}
"""The calls of these operators, by their arguments in order. They compute what their graphs compute, and do nothing
else."""


def body_call(node: fx.Node, root: Any) -> BodyCall | None:
    """The reading of a call in a module that runs graphs; ``None`` for any other call, and for one with other arguments
    than torch's tracers write."""
    if not isinstance(node.target, HigherOrderOperator) or str(node.target) not in _CALLS:
        return None
    try:
        call = _CALLS[str(node.target)](*node.args)
        inputs = len(call.fed)
    except TypeError:
        return None
    graphs = call.graphs(root)
    if len(graphs) < len(set(call.bodies)):
        return None
    return call if all(len(graph.graph.find_nodes(op="placeholder")) == inputs for graph in graphs.values()) else None
