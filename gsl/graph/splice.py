"""Changes of a view: replacing nodes, refusing replacements that would close a cycle, and tidying up afterwards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import cached_property

from gsl.graph.node import FEW, INPUT, Effect, Graph, Node, Op, Origin, redirect_all, short_name
from gsl.walk import postorder


class Replacement:
    """Nodes of a graph (the outputs of a match) and the nodes that are to stand for them."""

    __slots__ = ("created", "new", "old", "used")

    def __init__(
        self, old: Sequence[Node], new: Sequence[Node], created: tuple[Node, ...] | None = None
    ) -> None:
        self.old = tuple(old)
        self.new = new = tuple(new)
        self.created = created = created_for(new) if created is None else created
        """The nodes that are not in the graph yet, operands first. They are looked for unless they are given."""
        self.used: Sequence[Node]
        """The nodes of the graph that the new ones are made from."""
        if not created:
            self.used = new
        elif created == new and len(new) == 1:
            self.used = new[0].operands
        else:
            used = [operand for node in created for operand in node.operands if operand.index >= 0]
            self.used = [*used, *[node for node in new if node.index >= 0]]


def created_for(roots: Sequence[Node]) -> tuple[Node, ...]:
    """The new nodes among some nodes and all that they are made from, operands first."""
    return tuple(postorder(filter(is_new, roots), lambda node: filter(is_new, node.operands)))


def is_new(node: Node) -> bool:
    """True if a node was made by a rewrite and is not part of the graph yet."""
    return node.index < 0


def new_node(node: Node, origin: Origin) -> Node:
    """Mark a freshly made node as not yet part of a graph."""
    node.index = -1
    node.origin = origin
    return node


def closes_cycle(replacement: Replacement) -> bool:
    """True if some new output would depend on itself.

    Then a node of the graph that the new ones are made from depends on a user of an old output, and has a number
    between theirs. Where none can, nothing is walked; else such a way is looked for from both ends in turns.
    """
    old = replacement.old
    low = old[0].index if len(old) == 1 else min([node.index for node in old])
    for node in replacement.used:
        if node.index >= low and (node.operands or node.deps):
            break
    else:  # as nearly always
        return False
    made_from = [node for node in replacement.used if node.index >= low and (node.operands or node.deps)]
    high = max([node.index for node in made_from])
    users = [user for old in replacement.old for user in old.users if user.index <= high]
    below, above = dict.fromkeys(made_from), dict.fromkeys(users)
    if _is_first_done(
        _follow(below, lambda node: [other for other in _needs(node) if other.index >= low]),
        _follow(above, lambda node: [other for other in node.users if other.index <= high]),
    ):
        apart = below.keys().isdisjoint(users)
    else:
        apart = above.keys().isdisjoint(made_from)
    return not apart and _depends_on_itself(replacement, low)


def _needs(node: Node) -> tuple[Node, ...]:
    return (*node.operands, *node.deps) if node.deps else node.operands


def _follow(found: dict[Node, None], near: Callable[[Node], Iterable[Node]]) -> Iterator[None]:
    """Add to some nodes all that is near to one of them, and so on; stops at every step."""
    work = list(found)
    while work:
        for other in near(work.pop()):
            if other not in found:
                found[other] = None
                work.append(other)
            yield


def _is_first_done(first: Iterator[None], second: Iterator[None]) -> bool:
    """Let two searches take steps in turns until one of them is done; whether it is the first one."""
    return all(next(second, first) is not first for _ in first)


def _depends_on_itself(replacement: Replacement, low: int) -> bool:
    """True if some new output would depend on itself.

    This walks the graph as it would be: a node of the graph that uses an old output uses the new one instead, while
    the new nodes use what they were built from. A cycle holds a user of an old output, so what comes before the
    first old output, at the number ``low``, is not looked at.
    """
    instead = dict(zip(replacement.old, replacement.new))

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


_SEVERAL = Node("several")
"""Stands for nodes that have one name."""


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
        """The nodes that the replacements left unused."""
        self.size = len(graph)
        """The number of nodes that the graph has with these replacements."""
        self._numbers: dict[str, int] = {}
        """The last number that was put behind each name."""
        self._short_names: dict[Op, str] = {}
        self._instead: dict[Node, tuple[Node, ...]] = {}

    def apply(self, replacement: Replacement, matched: Collection[Node]) -> None:
        """Put the new nodes in the place of the old ones, and drop those of the matched ones that are then unused."""
        created: Collection[Node] = replacement.created
        if len(created) > FEW:
            created = dict.fromkeys(created)
        self.size += len(created)
        for node in created:
            high = 0
            for operand in node.operands:
                users = operand.users
                if users.__class__ is dict:  # as in add_user, of which there are very many calls
                    users[node] = None
                elif not users:
                    operand.users = (node,)
                else:
                    operand.add_user(node)
                if operand.index > high:
                    high = operand.index
            node.index = high
        moved: list[tuple[Node, tuple[Node, ...]]] = []
        for old, new in zip(replacement.old, replacement.new):
            if new is not old:
                high, taken = new.index, self._link(old, new, created)
                for user in taken:
                    if user.index < high:
                        moved.append((new, taken))
                        break
        for new, taken in moved:
            _put_in_order(new, taken)
        self.drop(matched, covers=True)
        for new in replacement.new:
            if not new.users and new in created:
                self.drop((new,))
        dead, touched = self.dead, self.graph.touched
        for node in created:
            if node not in dead:
                self._name(node)
                if touched is not None:
                    touched[node] = None
        if touched is not None:  # of what was matched, what stays may be part of another match
            for node in matched:
                if node not in dead:
                    touched[node] = None

    def _link(self, old: Node, new: Node, created: Collection[Node]) -> tuple[Node, ...]:
        """Let users and outputs have a new node instead of an old one; these users, without those among the created.
        """
        users, touched = old.users, self.graph.touched
        taken = tuple(users)  # of a tuple, that is the same one
        old.users = ()
        for user in users if created else ():
            if user in created:
                taken = tuple([user for user in users if user not in created])
                old.users = tuple([user for user in users if user in created])
                break
        if taken:
            redirect_all(taken, old, new)
            if touched is not None:
                for user in taken:
                    touched[user] = None
            new.add_users(taken)
        positions = self.outputs.pop(old, None)
        if positions:
            self.outputs.setdefault(new, []).extend(positions)
        self._instead[old] = (*self._instead.get(old, ()), new)
        return taken

    @cached_property
    def names(self) -> dict[str, Node]:
        """The node of each name, or one that never dies if there are several."""
        nodes = self.graph.nodes
        found = {node.name: node for node in nodes}
        if len(found) < len(nodes):
            numbers = Counter([node.name for node in nodes])
            found.update(dict.fromkeys([name for name in numbers if numbers[name] > 1], _SEVERAL))
        return found

    def _name(self, node: Node) -> None:
        """Give a name to a new node that no other node of the graph has: the wanted one, or that with a number behind
        it."""
        names, dead = self.names, self.dead
        name = wanted = node.name or self._short_name(node.op)
        holder = names.get(name)
        if holder is not None and holder not in dead:
            number = self._numbers.get(wanted, 0)
            while holder is not None and holder not in dead:
                number += 1
                name = f"{wanted}_{number}"
                holder = names.get(name)
            self._numbers[wanted] = number
        names[name] = node
        node.name = name

    def _short_name(self, op: Op) -> str:
        """The name of an operator after which nodes are called, found once."""
        found = self._short_names.get(op)
        if found is None:
            found = self._short_names[op] = short_name(op)
        return found

    def finish(self) -> None:
        """Restore a topological order near the old one, without dead nodes."""
        graph = self.graph
        if not self._instead:
            return
        for node, positions in self.outputs.items():
            for position in positions:
                graph.outputs[position] = node
        order: list[Node] = []
        done = set(self.dead)
        for node in graph.nodes:
            if node not in done:
                _emit(node, done, order)
            if node in self._instead:
                roots = list(self._instead[node])
                for root in roots:  # grows: what stands for it may have been replaced in turn
                    if root not in done:
                        _emit(root, done, order)
                    if root in self.dead:
                        roots += self._instead.pop(root, ())
        graph.reorder(order)
        self._instead.clear()

    def drop(self, suspects: Collection[Node], *, covers: bool = False) -> None:
        """Take nodes that nothing uses out of the graph, and the nodes that only they used.

        Calls with effects stay, but for exchanges among the suspects where a match ``covers`` them.
        """
        dead, outputs, held = self.dead, self.outputs, self.graph.held
        touched, less_used = self.graph.touched, self.graph.less_used
        work = [*suspects]
        work.reverse()
        while work:
            node = work.pop()
            if node.users or node in dead or node in outputs or node.op == INPUT or node in held:
                continue
            if node.effect is not None and not (covers and node.effect is Effect.EXCHANGES and node in suspects):
                continue
            dead.add(node)
            self.size -= 1
            if touched is not None:
                touched.pop(node, None)
            for operand in node.operands if not node.deps else _needs(node):
                if less_used is not None:
                    less_used[operand] = None
                users = operand.users
                if users.__class__ is dict:  # as in drop_user, of which there are very many calls
                    users.pop(node, None)
                elif users == (node,):
                    operand.users = ()
                else:
                    operand.drop_user(node)
                if not operand.users:
                    work.append(operand)


def _put_in_order(new: Node, users: tuple[Node, ...]) -> None:
    """Change topological numbers so that a node's is not above those of users that it got.

    Either the nodes from which it is made get the lowest number of the users, or the nodes made from the users get its
    number. Both ways are explored in turns, and the one with fewer nodes is taken.
    """
    high = new.index
    low = users[0].index if len(users) == 1 else min([user.index for user in users])
    if low >= high:
        return
    below, above = {new: None}, dict.fromkeys([user for user in users if user.index < high])
    if _is_first_done(
        _follow(below, lambda node: [other for other in _needs(node) if other.index > low]),
        _follow(above, lambda node: [other for other in node.users if other.index < high]),
    ):
        for node in below:
            node.index = low
    else:
        for node in above:
            node.index = high


def _emit(root: Node, done: set[Node], order: list[Node]) -> None:
    """Append a node to the order, after the operands that are not in it yet."""
    done.add(root)
    if not root.deps and done.issuperset(root.operands):  # as nearly always: nothing has to be walked
        order.append(root)
        return
    stack: list[tuple[Node, Iterator[Node]]] = [(root, iter((*root.operands, *root.deps)))]
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
