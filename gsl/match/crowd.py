"""The users of nodes that have many, kept in order, so that not every step up looks at all of them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from operator import attrgetter
from types import MappingProxyType
from typing import Final

from gsl.graph import Node, Op

MANY = 16
"""The number of users from which on they are kept here."""
NOTHING: Final[Mapping[Op, list[Node]]] = MappingProxyType({})


class Crowds:
    """For nodes with many users, those of some operators in graph order, without the users that were rewritten before
    them.

    For one graph, while nothing but a pass changes it: ``blocked`` grows from call to call.
    """

    def __init__(self, by_op: Mapping[Op, list[Node]] = NOTHING) -> None:
        self._by_op = by_op
        """The nodes of each operator in graph order, if they are known."""
        self._users: dict[Node, dict[frozenset[Op] | None, list[Node]]] = {}
        self._first: dict[tuple[Node, frozenset[Op] | None], int] = {}
        """The number of nodes at the beginning of a list that are no users, or are blocked."""

    def above(self, node: Node, ops: frozenset[Op] | None, blocked: Collection[Node]) -> Iterator[Node]:
        """The users that have one of the operators (``None``: any) and are not blocked."""
        known = self._users.setdefault(node, {})
        users = known.get(ops)
        if users is None:
            users = known[ops] = self._among(node, ops)
            self._first[node, ops] = 0
        first = self._first[node, ops]
        while first < len(users) and (users[first] in blocked or users[first] not in node.users):
            first += 1
        self._first[node, ops] = first
        for number in range(first, len(users)):
            user = users[number]
            if user not in blocked and user in node.users:
                yield user

    def _among(self, node: Node, ops: frozenset[Op] | None) -> list[Node]:
        """Nodes in graph order, among which are all users that have one of the operators."""
        if ops is not None and len(ops) == 1:
            (op,) = ops
            nodes = self._by_op.get(op)
            if nodes is not None and len(nodes) <= 2 * len(node.users):
                return nodes
        found = [user for user in node.users if ops is None or user.op in ops]
        return sorted(found, key=attrgetter("index"))

    def forget(self, node: Node) -> None:
        """Look at the users of a node anew: it has got others."""
        self._users.pop(node, None)
