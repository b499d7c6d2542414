"""Instances of templates, found by functions that are written for a rule.

Such a function (a ``Body``) gives the instances at one node, each as a tuple of nodes. The functions below put
instances together in the order of the search: chains of them, the fields of a tuple, the members of a group. A list
that is given is extended and cut afterwards; a caller that keeps it copies it.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from operator import attrgetter, itemgetter
from typing import Any

from gsl.graph import Node
from gsl.match.apart import Apart
from gsl.match.engine import MatchSearch
from gsl.match.matchers import CallMatcher
from gsl.match.result import Match
from gsl.match.uses import RepeatMatcher, computed
from gsl.pat import Pattern, Segment

FoundInstance = tuple[Node, ...]
InstancesAt = Callable[[Node], Iterable[FoundInstance]]
"""The instances at a node; the first node of an instance is that one. A tuple if there is one at most at any node."""
NumberedBody = Callable[[Node, int], Iterable[FoundInstance]]
"""The same of an instance with a number."""
Own = Callable[[FoundInstance], tuple[Node, ...]]
"""The nodes of an instance that no other pattern may have."""
OwnOfAll = Callable[[Iterable[FoundInstance]], Iterable[Node]]
"""Those of several instances."""
MOST_KEPT = 5_000
"""The largest number of instances for which keys are kept."""


def chains_down(
    matcher: RepeatMatcher, body: InstancesAt, head: int, joint: Sequence[int], outputs: Container[Node], last: Node
) -> Iterator[list[FoundInstance]]:
    """The chains that end at a node, numbered from there.

    ``head`` is the place of an instance's first node; at the places of ``joint`` all have the same operators.
    """
    sole = matcher.pattern.sole

    def more(instance: FoundInstance) -> Iterable[FoundInstance]:
        return (found for below in computed(instance[head], outputs, sole=sole) for found in body(below))

    return _chains(matcher, body(last), more, joint)


def chains_up(
    matcher: RepeatMatcher, body: InstancesAt, head: int, joint: Sequence[int], outputs: Container[Node],
    search: MatchSearch, first: Node,
) -> Iterator[list[FoundInstance]]:  # fmt: skip
    """The chains that begin at a node, numbered from there. In the name of the search, users are looked up."""
    sole, is_one_node = matcher.pattern.sole, isinstance(matcher.inner, CallMatcher)

    def more(instance: FoundInstance) -> Iterator[FoundInstance]:
        last = instance[0]
        users = last.users if is_one_node else list(matcher.firsts(search, last.users))
        for user in sorted(users, key=_index) if len(users) > 1 else users:
            for found in body(user):
                operands = found[head].operands
                is_sole = sole and len(operands) == 1 and operands[0] is last
                if is_sole or last in computed(found[head], outputs, sole=sole):
                    yield found

    return _chains(matcher, body(first), more, joint)


def _chains(
    matcher: RepeatMatcher, first: Iterable[FoundInstance], more: Callable[[FoundInstance], Iterable[FoundInstance]],
    joint: Sequence[int],
) -> Iterator[list[FoundInstance]]:  # fmt: skip
    """Chains of any length, depth first: each one before or after those that it begins."""
    shortest, longest, is_greedy = matcher.pattern.min, matcher.pattern.max, matcher.pattern.greedy
    links: list[FoundInstance] = []
    ways = [iter(first)]
    while ways:
        link = next(ways[-1], None)
        if link is not None:
            if joint and links and any(link[place].op != links[0][place].op for place in joint):
                continue
            links.append(link)
            if not is_greedy and len(links) >= shortest:
                yield links
            ways.append(iter(()) if len(links) == longest else iter(more(link)))
        else:
            ways.pop()
            if links:
                if is_greedy and len(links) >= shortest:
                    yield links
                links.pop()


def fields(
    body: NumberedBody, nodes: Sequence[Node], first: int, taken: set[Node], own: Own
) -> Iterator[list[FoundInstance]]:
    """An instance at each of some nodes, of which the operators are nodes of their own: in all ways."""
    if not nodes:
        yield []
        return
    links: list[FoundInstance] = []
    ways = [iter(body(nodes[0], first))]
    while ways:
        link = next(ways[-1], None)
        if link is None:
            ways.pop()
        elif taken.isdisjoint(own(link)):
            links.append(link)
            taken.update(own(link))
            if len(links) < len(nodes):
                ways.append(iter(body(nodes[len(links)], first + len(links))))
                continue
            yield links
        else:
            continue
        if links:
            taken.difference_update(own(links.pop()))


def stretches(
    segment: Segment, body: NumberedBody, nodes: Sequence[Node], first: int, is_last: bool, taken: set[Node], own: Own
) -> Iterator[list[FoundInstance]]:
    """The instances at some nodes in a row, in all ways and of all lengths, in the order that a segment prefers.

    ``first`` is the number of the instance at the first node; a segment that is the last one takes all nodes.
    """
    longest = len(nodes) if segment.max_len is None else min(len(nodes), segment.max_len - first)
    least = len(nodes) if is_last else segment.min_len - first
    links: list[FoundInstance] = []
    ways: list[Iterator[FoundInstance]] = []
    link: FoundInstance | None = ()
    while True:
        if link is not None:
            if not segment.greedy and least <= len(links) <= longest:
                yield links
            at_end = len(links) >= longest
            ways.append(iter(() if at_end else body(nodes[len(links)], first + len(links))))
        else:
            ways.pop()
            if segment.greedy and least <= len(links) <= longest:
                yield links
            if not ways:
                return
            taken.difference_update(own(links.pop()))
        link = next((way for way in ways[-1] if taken.isdisjoint(own(way))), None)
        if link is not None:
            taken.update(own(link))
            links.append(link)


def members(
    body: NumberedBody, nodes: Iterable[Node], taken: set[Node], own: Own, most: int | None
) -> list[FoundInstance]:
    """Beside one, the first instance at each of some nodes that has one whose operators are nodes of their own.

    ``most`` is the largest number of instances, with that one.
    """
    found: list[FoundInstance] = []
    for node in nodes:
        if len(found) + 1 == most:
            break
        if node not in taken:
            for link in body(node, len(found) + 1):
                mine = own(link)
                if taken.isdisjoint(mine):
                    taken.update(mine)
                    found.append(link)
                    if isinstance(nodes, Apart):
                        nodes.take(node)
                    break
    return found


def not_before(nodes: Iterable[Node], node: Node) -> list[Node]:
    """The nodes among these that do not come before a node in the graph."""
    return [other for other in nodes if other.index >= node.index]


def own_nodes(places: Sequence[int]) -> Own:
    """A function that gives the nodes at some places of an instance."""
    if len(places) > 1:
        return itemgetter(*places)
    return itemgetter(slice(places[0], places[0] + 1) if places else slice(0))  # a tuple, too


def own_of_all(places: Sequence[int]) -> OwnOfAll:
    """A function that gives the nodes at some places of all instances."""
    if len(places) == 1:
        return partial(map, itemgetter(places[0]))
    own = own_nodes(places)
    return lambda links: chain.from_iterable(map(own, links))


class Keys:
    """The keys under which the templates of numbered instances are bound: made for the longest list so far, and
    kept."""

    def __init__(self, templates: Sequence[Pattern], first: int) -> None:
        self.templates = tuple(templates)
        self.first = first
        """The number of the first instance."""
        self._made: tuple[Any, ...] = ()

    def later(self, links: Sequence[FoundInstance]) -> Callable[[], Iterable[tuple[Any, Node]]]:
        """A function for the nodes to which the templates are bound; the list may change meanwhile."""
        return partial(self.bound, links[:])

    def bound(self, links: Sequence[FoundInstance]) -> Iterable[tuple[Any, Node]]:
        """The keys of the templates, and the nodes to which they are bound."""
        keys = self._made
        if len(keys) < len(links) * len(self.templates):
            number = max(len(links), MOST_KEPT if len(links) > MOST_KEPT // 2 else 2 * len(links))
            keys = tuple([(p, (i,)) for i in range(self.first, self.first + number) for p in self.templates])
            if number <= MOST_KEPT:
                self._made = keys
        return zip(keys, chain.from_iterable(links))


def free(
    ways: Iterable[tuple[Node, ...]], taken: Container[Node], before: Container[Node], blocked: Container[Node]
) -> list[tuple[Node, ...]]:
    """Those of some ways on which each node that is skipped was skipped before, or is nobody's."""
    return [way for way in ways if all(n in before or (n not in taken and n not in blocked) for n in way)]


def with_skipped(match: Match, skipped: dict[Node, bool]) -> Match:
    """A match, and the nodes that it skips."""
    match.bindings.skipped.update(skipped)
    return match


_index = attrgetter("index")
