"""The view of a match that checks and handlers of inductor's pattern matcher are given."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx
from torch._guards import detect_fake_mode
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from gsl.attr.evaluate import Evaluator
from gsl.front.fx.handle import native_of
from gsl.graph import Node, TensorType
from gsl.match import Match
from gsl.match.bindings import MatchScope
from gsl.pat import Const
from gsl.programs.source import PythonProgram

RuleLeaves = Mapping[str, Any]
"""The leaves and literals of a rule by the names of parameters."""


class InductorMatch:
    """A match as ``extra_check`` reads it: what was searched, with the types and literals of the match.

    ``kwargs`` has for each parameter a node or a number. ``nodes`` are the calls that inductor makes of the search
    function with these types, in a graph of its own; each has its ``target``, ``args`` and ``meta["val"]``. A parameter
    has the ``meta`` of the node of the user's graph, where there is one.
    """

    def __init__(self, search: PythonProgram, leaves: RuleLeaves, match: Match) -> None:
        tensors: dict[str, torch.Tensor] = {}
        literals: dict[str, Any] = {}
        natives: dict[str, fx.Node | None] = {}
        for name, leaf in leaves.items():
            if name in search.tensors:
                node = match[leaf]
                natives[name], tensors[name] = native_of(node), _fake(name, node)
            else:
                value = leaf.value if isinstance(leaf, Const) else leaf
                literals[name] = Evaluator(MatchScope(match.bindings, ())).value(value.ast)
        mode = detect_fake_mode(list(tensors.values())) or FakeTensorMode(allow_non_fake_inputs=True)
        with mode:
            values = [value if isinstance(value, FakeTensor) else torch.empty_like(value, device="cpu")
                      for value in tensors.values()]  # fmt: skip
            self.graph: fx.Graph = traced_by_inductor(lambda *given: search.function(*given, **literals), values).graph
        inputs = self.graph.find_nodes(op="placeholder")
        for node, (name, native) in zip(inputs, natives.items()):
            node.meta = {**(native.meta if native is not None else {}), **node.meta}
            node.name = name
        self.kwargs: dict[str, Any] = {**dict(zip(natives, inputs)), **literals}
        self.args: list[Any] = []
        self.nodes: list[fx.Node] = [node for node in self.graph.nodes if node.op not in ("placeholder", "output")]

    def output_nodes(self) -> list[Any]:
        """The nodes of what is returned."""
        found = self.graph.output_node().args[0]
        return list(found) if isinstance(found, (list, tuple)) else [found]

    def output_node(self) -> Any:
        """The node of the first thing that is returned."""
        return self.output_nodes()[0]


def checked(check: Callable[[Any], Any], search: PythonProgram, leaves: RuleLeaves) -> Callable[[Match], bool | str]:
    """The condition that asks a check of inductor about a match."""

    def extra_check(match: Match) -> bool | str:
        try:
            verdict = check(InductorMatch(search, leaves, match))
        except UnknownTypeError as error:
            return str(error)
        except (AttributeError, KeyError, TypeError) as error:
            return f"extra_check reads what a match does not have here: {type(error).__name__}: {error}"
        return bool(verdict) or f"{getattr(check, '__name__', 'extra_check')} is false"

    return extra_check


class UnknownTypeError(Exception):
    """The reason why a match can't be shown to a check."""


def _fake(name: str, node: Node) -> torch.Tensor:
    """A tensor with the type of a node, that of the user's graph where there is one."""
    native = native_of(node)
    value = None if native is None else native.meta.get("val")
    if isinstance(value, torch.Tensor):
        return value
    if not isinstance(node.type, TensorType) or not all(isinstance(size, int) for size in node.type.shape):
        raise UnknownTypeError(f"extra_check needs the type of {name} in numbers, and %{node.name} is {node.type}")
    shape = [size for size in node.type.shape if isinstance(size, int)]
    return torch.empty(shape, dtype=getattr(torch, node.type.dtype), device="meta")


def traced_by_inductor(function: Callable[..., Any], tensors: Sequence[torch.Tensor]) -> torch.fx.GraphModule:
    """The calls that inductor makes of a function for inference."""
    from torch._inductor.pattern_matcher import fwd_only

    return fwd_only(function, tensors)
