"""Instances that share no node: the nodes where further ones are looked for, so that none depends on another one."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Container, Iterable, Iterator
from operator import attrgetter

from gsl.graph import Node

WINDOW = 1000
"""The number of candidates that are looked at after a first instance, in graph order."""


class Dependents:
    """Candidates in graph order, and for each of them a set of bits: which of the next ones depend on it."""

    def __init__(self, nodes: Iterable[Node], effects: Iterable[Node]) -> None:
        self.nodes = sorted(nodes, key=_index)
        self.places = {node: place for place, node in enumerate(self.nodes)}
        self.indices = [node.index for node in self.nodes]
        self.barriers = sorted([node.index for node in effects])
        """The numbers of nodes with effects, across which nothing is joined."""
        self.above = self._above()
        """For each candidate its bits: bit *k* is the candidate *k* places after it."""

    def _above(self) -> list[int]:
        """One walk over all that is made of candidates, users first. Bits count from the place of a node."""
        last = self.indices[-1] if self.indices else -1
        known: dict[Node, tuple[int, int]] = {}
        stack = list(self.nodes)
        while stack:
            node = stack[-1]
            users = () if node in known else [user for user in node.users if user.index <= last]
            waiting = [user for user in users if user not in known]
            if waiting:
                stack += waiting
                continue
            stack.pop()
            if node not in known:
                own = self.places.get(node)
                place, bits = (bisect_left(self.indices, node.index), 0) if own is None else (own, 1)
                for above, more in map(known.__getitem__, users):
                    if more and 0 <= above - place <= WINDOW:
                        bits |= more << (above - place)
                known[node] = place, bits & (2 << WINDOW) - 1
        return [known[node][1] for node in self.nodes]

    def end(self, node: Node) -> int:
        """The place of the first candidate behind the next node with an effect."""
        number = bisect_left(self.barriers, node.index)
        return bisect_left(self.indices, self.barriers[number]) if number < len(self.barriers) else len(self.nodes)


class Apart:
    """The nodes that may be instances beside a first one, in graph order: none depends on one that was taken."""

    def __init__(
        self, dependents: Dependents, first: Node, outputs: Container[Node], blocked: Collection[Node]
    ) -> None:
        self.dependents = dependents
        self.outputs = outputs
        self.blocked = blocked
        self.place = dependents.places[first]
        self.low = self.high = first.index
        """The least and the greatest number of those that were taken."""
        self.taken: set[Node] = set()
        self.clean: set[Node] = set()
        """Nodes that depend on none that was taken."""
        self.free = (1 << max(0, min(dependents.end(first) - self.place, WINDOW + 1))) - 1
        """The candidates that may still be taken, as bits."""
        self.take(first)

    def take(self, node: Node) -> None:
        """Note that there is an instance at a node."""
        self.taken.add(node)
        self.high = node.index
        place = self.dependents.places[node]
        self.free &= ~(self.dependents.above[place] << (place - self.place))

    def __iter__(self) -> Iterator[Node]:
        while self.free:
            bit = self.free & -self.free
            self.free ^= bit
            node = self.dependents.nodes[self.place + bit.bit_length() - 1]
            if (node.users or node in self.outputs) and not (self.blocked and self._is_joined(node)):
                yield node

    def _is_joined(self, node: Node) -> bool:
        """True if a node may depend on one that was taken, or that one on it, by what was rewritten so far."""
        if node.index <= self.high:
            return True
        seen, work = {node}, [node]
        while work:
            below = work.pop()
            for other in (*below.operands, *below.deps):
                if other in self.taken:
                    return True
                if other.index >= self.low and other not in seen and other not in self.clean:
                    seen.add(other)
                    work.append(other)
        self.clean |= seen
        return False


_index = attrgetter("index")
