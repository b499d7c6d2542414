"""Tidying up after a pass: common subexpressions, calls that nothing uses, and fields of tuples in sight."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Mapping
from operator import attrgetter
from typing import Any, Final

from gsl.graph import CONST, GETITEM, INPUT, LEAVES, PARAM, TUPLE, Effect, Graph, Node, UnreadWeight
from gsl.graph.splice import Replacement, Splicer
from gsl.rewrite.check import becomes_written, changed, may_be_view, may_be_view_in, shown

CROWD: Final = 16
"""The largest number of users of an operand among which an equal call is looked for."""


def drop_unused(graph: Graph) -> int:
    """Take the calls that nothing uses out of a graph, with the nodes that only they used; the number of calls that
    went.

    Inputs, and calls with effects, stay.
    """
    splicer = Splicer(graph)
    splicer.drop([node for node in graph.nodes if node.op not in LEAVES])
    if splicer.dead:
        graph.reorder([node for node in graph.nodes if node not in splicer.dead])
    return _calls(splicer.dead)


def take_fields(graph: Graph) -> None:
    """Let each field of a tuple that a rewrite made be the value from which the tuple was made.

    Else the field would hide that value from the next pass, and the tuple would count as its user.
    """
    if TUPLE not in graph.by_op():
        return
    splicer = Splicer(graph)
    for node in graph.by_op().get(GETITEM, ()):
        whole = node.operands[0]
        if whole.op == TUPLE and (whole.origin is not None or node.redirects is not None):
            splicer.apply(Replacement([node], [whole.operands[node.attrs["index"]]]), [node])
    splicer.finish()


def eliminate_common(graph: Graph, *, all: bool = False) -> int:
    """Let one call stand for all that have its operator, operands, attributes and type; how many went.

    Of two equal calls, at least one was made by a rewrite or got other operands by one, unless ``all`` is true: calls
    that the program itself computes twice stay. So do calls with effects, opaque ones, what reads memory that is
    changed in place, and calls with one between them that may enter or leave a mode, as that without gradients. Weights
    count as equal if they are one tensor, numbers if they have one value and type.
    """
    if not any(isinstance(op, str) for op in graph.by_op().keys() - LEAVES):
        return 0  # opaque calls only
    unsteady = _unsteady(graph)
    splicer = Splicer(graph)
    found: dict[Hashable, Node] = {}
    values: dict[Node, Hashable] = {}
    keys: dict[int, Hashable] = {}
    for node in graph.nodes:
        if node.op in (PARAM, CONST):
            values[node] = frozen(node.attrs)
        if node.effect is Effect.OTHER:
            found.clear()
        if node.op in (PARAM, CONST, INPUT) or node in splicer.dead or not _is_pure(node, unsteady):
            continue
        operands = tuple([values.get(operand, operand) for operand in node.operands])
        try:
            first = found.setdefault(call_key(node, operands, keys), node)
        except TypeError:  # an attribute that has no hash
            continue
        if first is not node and (all or _is_touched(first) or _is_touched(node)) and not _apart(splicer, first, node):
            splicer.apply(Replacement([node], [first]), [node])
    splicer.finish()
    return _calls(splicer.dead)


def share_near(splicer: Splicer, touched: Iterable[Node]) -> int:
    """As :func:`eliminate_common`, for equal calls of which one was touched since the last time, in a graph whose nodes
    are not in order and whose memory nothing changes."""
    keys: dict[int, Hashable] = {}
    waiting = deque(sorted([node for node in touched if isinstance(node.op, str)], key=attrgetter("index")))
    gone = 0
    while waiting:
        node = waiting.popleft()
        other = None if node in splicer.dead else equal_to(node, keys)
        if other is not None and not _apart(splicer, other, node):
            first, second = (other, node) if other.index <= node.index else (node, other)
            waiting.extend(second.users)
            splicer.apply(Replacement([second], [first]), [second])
            gone += 1
    return gone


def _apart(splicer: Splicer, one: Node, other: Node) -> bool:
    """True if outputs show both calls, and who gets these may change one of them in place, or the next run does."""
    if becomes_written(one, other, splicer.outputs, splicer.graph.written):
        return True
    if splicer.graph.shares is None:
        return False
    is_view = may_be_view_in(splicer.graph)
    return all([*shown(node, splicer.outputs, is_view)] for node in (one, other))


def equal_to(node: Node, keys: dict[int, Hashable]) -> Node | None:
    """Another call that is equal to a node, looked for among the users of the operand that has the fewest."""
    if not _is_pure(node, set()):
        return None
    used = [operand.users for operand in node.operands if operand.op != CONST]  # a number is an operand of one call
    users = min(used, key=len, default=())
    if len(users) < 2 or len(users) > CROWD:
        return None
    alike = [user for user in users if user.op == node.op and user is not node]
    try:
        own = call_key(node, _values(node), keys) if alike else None
        alike = [user for user in alike if _is_pure(user, set())]
        return next((user for user in alike if call_key(user, _values(user), keys) == own), None)
    except TypeError:  # an attribute that has no hash
        return None


def _values(node: Node) -> tuple[Hashable, ...]:
    leaves = (PARAM, CONST)
    return tuple([frozen(each.attrs) if each.op in leaves else each for each in node.operands])


def call_key(node: Node, operands: tuple[Hashable, ...], keys: dict[int, Hashable]) -> tuple[Hashable, ...]:
    """All that tells a call from others; ``keys`` are the attributes of mappings that were seen before."""
    attrs = keys.get(id(node.attrs))
    if attrs is None:  # equal calls have one mapping, often
        attrs = keys[id(node.attrs)] = frozen(node.attrs)
    return node.op, operands, attrs, node.type, node.deps


def _calls(nodes: Iterable[Node]) -> int:
    """The number of nodes that are neither weights nor numbers."""
    return sum(node.op not in (PARAM, CONST) for node in nodes)


def frozen(value: Any) -> Hashable:
    """An attribute as a key: equal only for values of one type; a tensor is equal to itself only."""
    match value:
        case tuple() | list():
            return ("sequence", *map(frozen, value))
        case UnreadWeight():
            return ("tensor", id(value))
        case Mapping():
            return ("mapping", *((key, frozen(item)) for key, item in value.items()))
        case slice():
            return ("slice", frozen(value.start), frozen(value.stop), frozen(value.step))
        case float() | complex():
            return (type(value), repr(value))  # tells 0.0 from -0.0, and nan is itself
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return ("tensor", id(value))
    return (type(value), value)


def _is_touched(node: Node) -> bool:
    return node.origin is not None or node.redirects is not None


def _is_pure(node: Node, unsteady: set[Node]) -> bool:
    if node.effect is not None or node.opaque or node in unsteady:
        return False
    return not unsteady or unsteady.isdisjoint(node.operands)


def _unsteady(graph: Graph) -> set[Node]:
    """The nodes whose memory may be changed in place, and the views of it."""
    found = set(changed(graph))
    if found:
        for node in graph.nodes:
            if may_be_view(node) and not found.isdisjoint(node.operands):
                found.add(node)
    return found
