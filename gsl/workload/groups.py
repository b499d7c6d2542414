"""The groups of a program, and its calls that have no canonical reading."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from gsl.draw import hide_defaults
from gsl.errors import WorkloadError
from gsl.graph import Graph, Node, op_name
from gsl.graph.subgraph import Subgraph, inline
from gsl.graph.text import node_names, text


@dataclass(frozen=True, slots=True)
class OutlinedGroup:
    """A part of a program that a rule outlined with ``pat.Fused``: its name, its attributes, and its body."""

    name: str
    attrs: Mapping[str, Any]
    body: Graph

    def __str__(self) -> str:
        given = "".join(f", {name}={value!r}" for name, value in self.attrs.items())
        lines = text(self.body, hide=hide_defaults).splitlines()
        return "\n".join([f"group {self.name}{given}", *(f"  {line}" for line in lines)])


def groups(graph: Graph) -> Mapping[str, OutlinedGroup]:
    """The groups in a view by the names of their calls, in order."""
    found = {}
    names = node_names(graph)
    for node in graph:
        if isinstance(node.op, Subgraph):
            found[names[node]] = OutlinedGroup(node.op.name, MappingProxyType(dict(node.attrs)), node.op.body)
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


@dataclass(frozen=True, slots=True)
class UnreadCalls:
    """Calls of one operator that are not read, for the same reason."""

    op: str
    reason: str
    names: tuple[str, ...]
    """The names of the calls in the view."""


@dataclass(frozen=True, slots=True)
class UnreadReport:
    """The calls of a program that no rule on canonical operators sees; made to be printed."""

    calls: tuple[UnreadCalls, ...]
    """The most frequent first."""
    total: int
    """The number of calls of the program, those that are read included."""

    def __len__(self) -> int:
        return sum(len(each.names) for each in self.calls)

    def __iter__(self) -> Iterator[UnreadCalls]:
        return iter(self.calls)

    def __str__(self) -> str:
        lines = [f"{len(self)} of {self.total} calls have no canonical reading"]
        for each in self.calls:
            times = f"{len(each.names)} x " if len(each.names) > 1 else ""
            more = ", …" if len(each.names) > 3 else ""
            lines.append(f"  {times}{each.op}: {', '.join('%' + name for name in each.names[:3])}{more}")
            if each.reason:
                lines.append(f"    {each.reason}")
        return "\n".join(lines)


def unread(graph: Graph, calls: list[Node], reason: Callable[[Node], str | None]) -> UnreadReport:
    """The calls of a view without a canonical reading; ``reason`` tells why; ``None``: it computes no tensor."""
    names = node_names(graph)
    found: dict[tuple[str, str], list[str]] = {}
    total = 0
    for node in calls:
        why = reason(node) if node.opaque and not isinstance(node.op, Subgraph) else ""
        total += why is not None
        if why is not None and node.opaque and not isinstance(node.op, Subgraph):
            found.setdefault((op_name(node.op), why), []).append(names[node])
    return _report(found, total)


def _report(found: Mapping[tuple[str, str], list[str]], total: int) -> UnreadReport:
    entries = [UnreadCalls(op, why, tuple(each)) for (op, why), each in found.items()]
    return UnreadReport(tuple(sorted(entries, key=lambda each: (-len(each.names), each.op))), total)


def joined(reports: Mapping[str, UnreadReport]) -> UnreadReport:
    """One report of several graphs; the names of calls have those of their graphs in front."""
    found: dict[tuple[str, str], list[str]] = {}
    for graph, report in reports.items():
        for each in report:
            found.setdefault((each.op, each.reason), []).extend(f"{graph}{name}" for name in each.names)
    return _report(found, sum(report.total for report in reports.values()))
