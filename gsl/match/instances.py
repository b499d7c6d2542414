"""Instances of templates, found by functions that are written for a rule.

Such a function (a ``Body``) gives the instances at one node, each as a tuple of nodes; where there are alternatives,
the last item tells which nodes these are (:class:`Layout`). The functions below put instances together in the order of
the search: chains of them, the fields of a tuple, the members of a group. A list that is given is extended and cut
afterwards; a caller that keeps it copies it. So is a set of the nodes that instances have taken.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from operator import attrgetter, itemgetter
from types import MappingProxyType
from typing import Any, Final

from gsl.graph import Node, Op
from gsl.match.engine import MatchSearch
from gsl.match.many import Apart, RepeatMatcher, computed
from gsl.match.matchers import CallMatcher
from gsl.match.result import Match
from gsl.pat import OpClass, Pattern, Segment

FoundInstance = tuple[Any, ...]
InstancesAt = Callable[[Node], Iterable[FoundInstance]]
"""The instances at a node; the first node of an instance is that one. A tuple if there is one at most at any node."""
NumberedBody = Callable[[Node, int], Iterable[FoundInstance]]
"""The same of an instance with a number."""
Own = Callable[[FoundInstance], tuple[Node, ...]]
"""The nodes of an instance that no other pattern may have."""
MOST_KEPT = 5_000
"""The largest number of instances for which keys are kept."""


def chains_down(
    matcher: RepeatMatcher, body: InstancesAt, layout: Layout | Layouts, taken: set[Node] | None,
    outputs: Container[Node], last: Node,
) -> Iterator[list[FoundInstance]]:  # fmt: skip
    """The chains that end at a node, numbered from there. Where a set is given, instances must be apart."""
    sole, head = matcher.pattern.sole, layout.head

    def more(instance: FoundInstance) -> Iterable[FoundInstance]:
        return (found for below in computed(head(instance), outputs, sole=sole) for found in body(below))

    return _chains(matcher, body(last), more, layout, taken)


def chains_up(
    matcher: RepeatMatcher, body: InstancesAt, layout: Layout | Layouts, taken: set[Node] | None,
    outputs: Container[Node], search: MatchSearch, first: Node,
) -> Iterator[list[FoundInstance]]:  # fmt: skip
    """The chains that begin at a node, numbered from there. In the name of the search, users are looked up."""
    sole, head, is_one_node = matcher.pattern.sole, layout.head, isinstance(matcher.inner, CallMatcher)

    def follows(found: FoundInstance, last: Node) -> bool:
        operands = head(found).operands
        is_sole = sole and len(operands) == 1 and operands[0] is last
        return is_sole or last in computed(head(found), outputs, sole=sole)

    def more(instance: FoundInstance) -> Iterable[FoundInstance]:
        last = instance[0]
        users = last.users if is_one_node else list(matcher.firsts(search, last.users))
        if len(users) == 1:
            (user,) = users
            found = body(user)
            if found.__class__ is tuple:  # no generator is kept for each node of a chain
                return found if not found or follows(found[0], last) else ()
        return (found for user in sorted(users, key=_index) for found in body(user) if follows(found, last))

    return _chains(matcher, body(first), more, layout, taken)


def _chains(
    matcher: RepeatMatcher, first: Iterable[FoundInstance], more: Callable[[FoundInstance], Iterable[FoundInstance]],
    layout: Layout | Layouts, taken: set[Node] | None,
) -> Iterator[list[FoundInstance]]:  # fmt: skip
    """Chains of any length, depth first: each one before or after those that it begins."""
    own, joint = layout.own, bool(layout.joint)
    shortest, longest, is_greedy = matcher.pattern.min, matcher.pattern.max, matcher.pattern.greedy
    links: list[FoundInstance] = []
    ways = [iter(first)]
    while ways:
        link = next(ways[-1], None)
        while link is not None:
            if (joint and layout.differs(link, links)) or not (taken is None or taken.isdisjoint(own(link))):
                link = next(ways[-1], None)
                continue
            links.append(link)
            if taken is not None:
                taken.update(own(link))
            if not is_greedy and len(links) >= shortest:
                yield links
            found: Any = () if len(links) == longest else more(link)
            is_sole = found.__class__ is tuple  # of one or none, the usual case: no iterator is kept for it
            ways.append(_NOTHING if is_sole else iter(found))
            link = (found[0] if found else None) if is_sole else next(ways[-1], None)
        ways.pop()
        if links:
            if is_greedy and len(links) >= shortest:
                yield links
            link = links.pop()
            if taken is not None:
                taken.difference_update(own(link))


_NOTHING: Final[Iterator[Any]] = iter(())


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


class Layout:
    """The roles of the nodes of an instance: the patterns that are bound to them, and the choices of alternatives."""

    def __init__(
        self, templates: Sequence[Pattern], own: Sequence[int] = (), head: int = 0, first: int = 0,
        chosen: Mapping[Pattern, int] = MappingProxyType({}), joint: Mapping[OpClass, int] = MappingProxyType({}),
    ) -> None:  # fmt: skip
        self.templates = tuple(templates)
        self.joint = joint
        """The places of calls of a class of which all calls in a match have the same operator."""
        self.chosen = chosen
        self.first = first
        """The number of the first instance."""
        self.head_place = head
        """The place of the node from which a chain goes on downward."""
        self.head = itemgetter(head)
        self.own = _items(own)
        """The nodes of operators, which no other pattern may have."""
        self.own_of_all = partial(map, itemgetter(own[0])) if len(own) == 1 else self._own_of_all
        self._made: tuple[Any, ...] = ()

    def differs(self, link: FoundInstance, links: Sequence[FoundInstance]) -> bool:
        """True if an operator of an instance is not the one that all instances of a chain have."""
        return bool(links) and any(link[place].op != links[0][place].op for place in self.joint.values())

    def _own_of_all(self, links: Iterable[FoundInstance]) -> Iterable[Node]:
        return chain.from_iterable(map(self.own, links))

    def later(self, links: Sequence[FoundInstance]) -> Callable[[], Iterable[tuple[Any, Node]]]:
        """A function for the nodes to which the templates are bound; the list may change meanwhile."""
        return partial(self.bound, links[:])

    def bound(self, links: Sequence[FoundInstance]) -> Iterable[tuple[Any, Node]]:
        """The keys of the templates, and the nodes to which they are bound. Keys are made for the longest list so far,
        and kept."""
        keys = self._made
        if len(keys) < len(links) * len(self.templates):
            number = max(len(links), MOST_KEPT if len(links) > MOST_KEPT // 2 else 2 * len(links))
            keys = tuple([(p, (i,)) for i in range(self.first, self.first + number) for p in self.templates])
            if number <= MOST_KEPT:
                self._made = keys
        return zip(keys, chain.from_iterable(links))


class Layouts:
    """The layouts of instances of alternatives: each instance has its own one as its last item."""

    def __init__(self, layouts: Sequence[Layout], first: int) -> None:
        self.first = first
        """The number of the first instance."""
        self.joint = tuple(dict.fromkeys(op for layout in layouts for op in layout.joint))
        """The classes of which all calls in a match have the same operator. Not each instance has such a call."""

    def head(self, link: FoundInstance) -> Node:
        """The node from which a chain goes on downward."""
        found: Node = link[-1].head(link)
        return found

    def own(self, link: FoundInstance) -> tuple[Node, ...]:
        """The nodes of operators in an instance."""
        found: tuple[Node, ...] = link[-1].own(link)
        return found

    def differs(self, link: FoundInstance, links: Sequence[FoundInstance]) -> bool:
        """True if an operator of an instance is not the one that all instances of a chain have."""
        for op, place in link[-1].joint.items():
            known = next((other[other[-1].joint[op]] for other in reversed(links) if op in other[-1].joint), None)
            if known is not None and known.op != link[place].op:
                return True
        return False

    def operators(self, links: Iterable[FoundInstance]) -> dict[OpClass, Op]:
        """The operators of the classes of which there are calls."""
        found: dict[OpClass, Op] = {}
        for link in links:
            for op, place in link[-1].joint.items():
                found.setdefault(op, link[place].op)
        return found

    def own_of_all(self, links: Iterable[FoundInstance]) -> Iterable[Node]:
        """The same of several instances."""
        return chain.from_iterable(map(self.own, links))

    def later(self, links: Sequence[FoundInstance]) -> Callable[[], Iterable[tuple[Any, Node]]]:
        """A function for the nodes to which the templates are bound; the list may change meanwhile."""
        return partial(self.bound, links[:])

    def bound(self, links: Sequence[FoundInstance]) -> Iterable[tuple[Any, Node]]:
        """The keys of the templates, and the nodes to which they are bound."""
        for number, link in enumerate(links, self.first):
            for template, node in zip(link[-1].templates, link):
                yield (template, (number,)), node

    def chosen(self, links: Sequence[FoundInstance]) -> Iterator[tuple[Any, int]]:
        """The keys of the alternatives, and the numbers of the choices."""
        for number, link in enumerate(links, self.first):
            for alternative, choice in link[-1].chosen.items():
                yield (alternative, (number,)), choice


def _items(places: Sequence[int]) -> Own:
    """A function that gives the items at some places."""
    if len(places) > 1:
        return itemgetter(*places)
    return itemgetter(slice(places[0], places[0] + 1) if places else slice(0))  # a tuple, too


def free(
    ways: Iterable[tuple[Node, ...]], taken: Container[Node], before: Container[Node], blocked: Container[Node]
) -> list[tuple[Node, ...]]:
    """The ways among some on which each node that is skipped was skipped before, or is nobody's."""
    return [way for way in ways if all(n in before or (n not in taken and n not in blocked) for n in way)]


def with_skipped(match: Match, skipped: dict[Node, bool]) -> Match:
    """A match, and the nodes that it skips."""
    new = Match(match.plan, match.bindings, match.operators)
    new.bindings.skipped.update(skipped)
    new.outputs, new.inner = match.outputs, match.inner
    return new


_index = attrgetter("index")
