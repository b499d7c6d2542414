"""Changing a view: replacing nodes, refusing what would close a cycle, and tidying up afterwards."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from gsl.graph.node import Graph, Node, Origin


class Replacement:
    """Nodes of a graph (the outputs of a match) and what is to stand for them."""

    __slots__ = ("created", "new", "old")

    def __init__(self, old: Sequence[Node], new: Sequence[Node]) -> None:
        self.old = tuple(old)
        self.new = tuple(new)
        self.created = tuple(_created(new))
        """The nodes that are not in the graph yet, operands first."""


def _created(roots: Iterable[Node]) -> Iterator[Node]:
    done: set[Node] = set()
    stack = [(root, iter(root.operands)) for root in roots][::-1]
    while stack:
        node, operands = stack[-1]
        if node in done or not is_new(node):
            stack.pop()
            continue
        for operand in operands:
            if operand not in done and is_new(operand):
                stack.append((operand, iter(operand.operands)))
                break
        else:
            stack.pop()
            done.add(node)
            yield node


def is_new(node: Node) -> bool:
    """Whether a node was made by a rewrite and is not part of the graph yet."""
    return node.index < 0


def new_node(node: Node, origin: Origin) -> Node:
    """Mark a freshly made node as not yet part of a graph."""
    node.index = -1
    node.origin = origin
    return node


def closes_cycle(replacement: Replacement) -> bool:
    """Whether some new output would depend on itself.

    Output ``j`` depends on output ``k`` when an existing node that the new ``j`` uses is computed from the old ``k``.
    The search back from those nodes ends at the topological number of the first old output.
    """
    old = {node: number for number, node in enumerate(replacement.old)}
    low = min(node.index for node in old)
    edges: list[set[int]] = []
    for root in replacement.new:
        reached: set[int] = set()
        made = list(_created([root]))
        frontier = [operand for node in made for operand in node.operands if not is_new(operand)]
        if not made:
            frontier.append(root)
        # An old output that the target itself uses stays alive, so the search goes on to what it is computed from.
        kept = set(frontier)
        seen: set[Node] = set()
        while frontier:
            node = frontier.pop()
            if node in seen or node.index < low:
                continue
            seen.add(node)
            if node in old and node not in kept:
                reached.add(old[node])
                continue
            frontier.extend(node.operands)
            frontier.extend(node.deps)
        edges.append(reached)
    return _cyclic(edges)


def _cyclic(edges: list[set[int]]) -> bool:
    alive = set(range(len(edges)))
    while True:
        free = {node for node in alive if not edges[node] & alive}
        if not free:
            return bool(alive)
        alive -= free


class Splicer:
    """Applies replacements to a graph, and puts its list of nodes in order at the end."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._instead: dict[Node, list[Node]] = {}
        self._suspects: list[Node] = []

    def apply(self, replacement: Replacement, matched: Iterable[Node]) -> None:
        """Put the new nodes in the place of the old ones; ``matched`` are the nodes that this may leave unused."""
        created = set(replacement.created)
        for node in replacement.created:
            node.index = max((operand.index for operand in node.operands), default=0)
            for operand in node.operands:
                operand.users[node] = None
        for old, new in zip(replacement.old, replacement.new):
            if new is old:
                continue
            for user in list(old.users):
                if user not in created:
                    user.redirect(old, new)
            self.graph.outputs = [new if node is old else node for node in self.graph.outputs]
            self._instead.setdefault(old, []).append(new)
        for new in replacement.new:
            _lift(new)
        self._suspects.extend(matched)

    def finish(self) -> None:
        """Remove what the replacements left unused, and restore a topological order near the old one."""
        graph = self.graph
        dead = self._dead()
        order: list[Node] = []
        done: set[Node] = set(dead)
        for node in graph.nodes:
            for root in [node, *self._instead.get(node, ())]:
                _emit(root, done, order)
        for node in graph.outputs:
            _emit(node, done, order)
        graph.nodes = order
        for index, node in enumerate(order):
            node.index = index
        self._instead.clear()
        self._suspects.clear()

    def _dead(self) -> set[Node]:
        kept = set(self.graph.outputs)
        dead: set[Node] = set()
        work = self._suspects[::-1]
        while work:
            node = work.pop()
            if node in dead or node.users or node in kept or node.effect is not None or node.op == "input":
                continue
            dead.add(node)
            for operand in (*node.operands, *node.deps):
                operand.users.pop(node, None)
                work.append(operand)
        return dead


def _lift(start: Node) -> None:
    """Raise the topological numbers of users until none is below that of an operand."""
    work = [start]
    while work:
        node = work.pop()
        for user in node.users:
            if user.index < node.index:
                user.index = node.index
                work.append(user)


def _emit(root: Node, done: set[Node], order: list[Node]) -> None:
    if root in done:
        return
    stack: list[tuple[Node, Iterator[Node]]] = [(root, iter((*root.operands, *root.deps)))]
    done.add(root)
    while stack:
        node, operands = stack[-1]
        for operand in operands:
            if operand not in done:
                done.add(operand)
                stack.append((operand, iter((*operand.operands, *operand.deps))))
                break
        else:
            stack.pop()
            order.append(node)

