"""The outlined groups of a program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from gsl.draw import hide_defaults
from gsl.errors import WorkloadError
from gsl.graph import Graph
from gsl.graph.subgraph import Subgraph, inline
from gsl.graph.text import node_names, text


@dataclass(frozen=True, slots=True)
class Group:
    """A part of a program that a rule outlined with ``pat.Fused``: its name, its attributes, and its body."""

    name: str
    attrs: Mapping[str, Any]
    body: Graph

    def __str__(self) -> str:
        given = "".join(f", {name}={value!r}" for name, value in self.attrs.items())
        lines = text(self.body, hide=hide_defaults).splitlines()
        return "\n".join([f"group {self.name}{given}", *(f"  {line}" for line in lines)])


def groups(graph: Graph) -> Mapping[str, Group]:
    """The groups in a view by the names of their calls, in order."""
    found = {}
    names = node_names(graph)
    for node in graph:
        if isinstance(node.op, Subgraph):
            found[names[node]] = Group(node.op.name, MappingProxyType(dict(node.attrs)), node.op.body)
    return MappingProxyType(found)


def inlined(who: str, graph: Graph, name: str | None) -> Graph:
    """A copy of a view without the groups of that name, or the call of that name; without a name, without any.

    ``who`` names the workload in messages. WorkloadError if there is no such group.
    """
    names = node_names(graph)
    calls = [node for node in graph if isinstance(node.op, Subgraph)]
    wanted = [node for node in calls if name is None or name in (names[node], str(node.op))]
    if name is not None and not wanted:
        known = ", ".join(f"{names[node]} ({node.op})" for node in calls) or "none"
        raise WorkloadError(f"{who} has no group {name!r}; its groups are: {known}")
    return inline(graph, wanted)
