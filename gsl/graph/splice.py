"""Changing a view: replacing nodes, refusing what would close a cycle, and tidying up afterwards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from gsl.graph.node import INPUT, Graph, Node, Origin, op_name


class Replacement:
    """Nodes of a graph (the outputs of a match) and what is to stand for them."""

    __slots__ = ("created", "new", "old")

    def __init__(self, old: Sequence[Node], new: Sequence[Node]) -> None:
        self.old = tuple(old)
        self.new = tuple(new)
        self.created = tuple(_created(new))
        """The nodes that are not in the graph yet, operands first."""

    def used(self) -> Iterator[Node]:
        """The nodes of the graph that the new ones are made from."""
        for node in self.created:
            yield from (operand for operand in node.operands if not is_new(operand))
        yield from (node for node in self.new if not is_new(node))


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

    This walks the graph as it would be: a node of the graph that uses an old output uses the new one instead, while
    the new nodes use what they were built from. A cycle holds a user of an old output, so what comes before the
    first old output is not looked at.
    """
    instead = dict(zip(replacement.old, replacement.new))
    low = min(node.index for node in replacement.old)

    def operands(node: Node) -> Iterator[Node]:
        if is_new(node):
            return iter(node.operands)
        if node.index < low:
            return iter(())
        return iter([instead.get(operand, operand) for operand in (*node.operands, *node.deps)])

    open_: set[Node] = set()
    done: set[Node] = set()
    for root in replacement.new:
        stack = [(root, operands(root))] if root not in done else []
        open_.update(node for node, _ in stack)
        while stack:
            node, rest = stack[-1]
            for operand in rest:
                if operand in open_:
                    return True
                if operand not in done:
                    open_.add(operand)
                    stack.append((operand, operands(operand)))
                    break
            else:
                stack.pop()
                open_.remove(node)
                done.add(node)
    return False


class Splicer:
    """Applies replacements to a graph, and puts its list of nodes in order at the end.

    New nodes get names that no other node of the graph has by then.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.outputs: dict[Node, list[int]] = {}
        """The outputs of the graph, each with the positions at which it is one."""
        for position, node in enumerate(graph.outputs):
            self.outputs.setdefault(node, []).append(position)
        self.dead: set[Node] = set()
        """What the replacements left unused."""
        self._names = Counter([node.name for node in graph.nodes])
        self._numbers: dict[str, int] = {}
        """For each name: the last number that was put behind it."""
        self._instead: dict[Node, list[Node]] = {}

    def apply(self, replacement: Replacement, matched: Iterable[Node]) -> None:
        """Put the new nodes in the place of the old ones, and drop those of the matched ones that are then unused."""
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
            positions = self.outputs.pop(old, ())
            if positions:
                self.outputs.setdefault(new, []).extend(positions)
            self._instead.setdefault(old, []).append(new)
        for new in replacement.new:
            _lift(new)
        self._names.subtract(
            [n.name for n in self._drop([*matched, *reversed(replacement.created)]) if n not in created]
        )
        for node in replacement.created:
            if node not in self.dead:
                node.name = self._name(node.name or op_name(node.op).rpartition(".")[2])

    def _name(self, wanted: str) -> str:
        """The name, with a number behind it if another node of the graph has it."""
        name = wanted
        while self._names[name] > 0:
            self._numbers[wanted] = number = self._numbers.get(wanted, 0) + 1
            name = f"{wanted}_{number}"
        self._names[name] = 1
        return name

    def finish(self) -> None:
        """Restore a topological order near the old one, without what is dead."""
        graph = self.graph
        for node, positions in self.outputs.items():
            for position in positions:
                graph.outputs[position] = node
        order: list[Node] = []
        done = set(self.dead)
        for node in graph.nodes:
            for root in [node, *self._instead.get(node, ())]:
                _emit(root, done, order)
        graph.nodes = order
        for index, node in enumerate(order):
            node.index = index
        self._instead.clear()

    def _drop(self, suspects: list[Node]) -> list[Node]:
        """Take nodes that nothing uses out of the graph, and what only they used; all that went."""
        work = suspects[::-1]
        dropped: list[Node] = []
        while work:
            node = work.pop()
            if node.users or node in self.dead or node in self.outputs or node.effect is not None or node.op == INPUT:
                continue
            self.dead.add(node)
            dropped.append(node)
            for operand in (*node.operands, *node.deps):
                operand.users.pop(node, None)
                work.append(operand)
        return dropped


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
    """Append a node to the order, after the operands that are not in it yet."""
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
