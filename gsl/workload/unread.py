"""The calls of a program that have no canonical reading."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gsl.graph import Graph, Node, op_name
from gsl.graph.subgraph import Subgraph
from gsl.graph.text import node_names


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
    entries = [UnreadCalls(op, why, tuple(each)) for (op, why), each in found.items()]
    return UnreadReport(tuple(sorted(entries, key=lambda each: (-len(each.names), each.op))), total)
