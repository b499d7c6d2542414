"""The checks before a match is rewritten, so that no rewrite breaks a graph."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Final

from gsl.errors import FrontEndError
from gsl.graph import GETITEM, INPUT, LEAVES, PARAM, TUPLE, Effect, Graph, Node, TensorType, Type, op_name
from gsl.graph.splice import Replacement, closes_cycle, is_new
from gsl.graph.types import is_unknown
from gsl.match import Match
from gsl.spec import Trait, spec_of
from gsl.spec.natives import written_operands
from gsl.walk import reached

# ---------------------------------------------------------------- refusals


class Refusal(Exception):
    """The reason why a match is not rewritten."""


# ---------------------------------------------------------------- effects


_SOMETIMES_VIEWS: Final = frozenset(
    (TUPLE, GETITEM, "broadcast_to", "cast", "einsum", "nn.dropout", "split", "strided_slice", "take")
)
"""The operators whose result may share the memory of an operand, besides operators that only move elements."""


_SOMETIMES_ITSELF: Final = frozenset(("cast", "copy", "nn.dropout"))
"""The operators whose result may be the operand itself, and no other tensor in its memory."""


STEADY: Final = (Effect.RANDOM, Effect.OBSERVES, Effect.EXCHANGES)
"""The effects that change no tensor."""


def may_be_view(node: Node) -> bool:
    """True if the value may be, or hold, the memory of an operand."""
    spec = spec_of(node.op)
    may_be = node.op in _SOMETIMES_VIEWS or node.opaque or (spec is not None and Trait.LAYOUT in spec.traits)
    return may_be and not _copies(node)


def _copies(node: Node) -> bool:
    """True for a call that is certain to return new memory."""
    match node.op:
        case "reverse":
            return True
        case "einsum":  # of one tensor, it may only move elements
            return node.operands[0].op == TUPLE and len(node.operands[0].operands) > 1
        case "cast":
            type = node.operands[0].type
            return isinstance(type, TensorType) and type.dtype != node.attrs["dtype"]
        case "take":  # at one place, it may be a part of the operand; natively, a window on it
            places = node.operands[1].type
            return node.native is None and isinstance(places, TensorType) and places.ndim > 0
    return False


def may_be_view_in(graph: Graph) -> Callable[[Node], bool]:
    """As :func:`may_be_view`, of the calls of a graph of which the front end knows how they are written natively."""
    gives_view = graph.gives_view
    if gives_view is None:
        return may_be_view
    # A native copy may be one only where its operand does not lie as wanted.
    return lambda node: (may_be_view(node) or (node.op == "copy" and node.native is not None)) and gives_view(node)


def seen_through(
    nodes: Iterable[Node],
    within: Collection[Node] | None = None,
    *,
    is_view: Callable[[Node], bool] = may_be_view,
    shares: Callable[[Node, Node], bool] | None = None,
) -> dict[Node, None]:
    """The nodes, and those whose memory they may share because they are views of it; no further than from new nodes
    and those ``within``, if these are given, and where a node ``shares`` the memory of its operand."""

    def seen(node: Node) -> Iterable[Node]:
        is_followed = within is None or node in within or is_new(node)
        operands = node.operands if is_followed and is_view(node) else ()
        return operands if shares is None else [operand for operand in operands if shares(node, operand)]

    return dict.fromkeys(reached(nodes, seen))


def shown(
    node: Node, outputs: Mapping[Node, Sequence[int]], is_view: Callable[[Node], bool] = may_be_view
) -> Iterator[int]:
    """The places of the outputs that are the value of a node, or may be views of it."""
    for value in reached([node], lambda node: filter(is_view, node.users)):
        yield from outputs.get(value, ())


def becomes_written(
    one: Node, other: Node, outputs: Mapping[Node, Sequence[int]], written: Mapping[Node, int | None]
) -> bool:
    """True if one node for both makes an output what is written to an input at the end: who runs it gets the input."""
    ends = set(written.values())
    places = [set(outputs.get(node, ())) for node in (one, other)]
    is_written = [not ends.isdisjoint(each) for each in places]
    return all(places) and is_written[0] != is_written[1]


def changed(graph: Graph) -> dict[Node, int]:
    """The nodes whose memory may be changed, each with the place of the last call that may do so."""
    last: dict[Node, int] = {}
    for node in graph.nodes:
        if node.effect not in (None, *STEADY):
            seen = seen_through(_changed_by(node))
            if any(each.op == INPUT for each in seen):  # two inputs may be one tensor, or parts of one
                seen.update(dict.fromkeys(graph.by_op()[INPUT]))
            last.update(dict.fromkeys(seen, node.index))
    return last


def _changed_by(node: Node) -> Sequence[Node]:
    """The operands that a call may change."""
    places = written_operands(node.op, len(node.operands)) if node.effect is Effect.MUTATES else None
    return node.operands if places is None else [node.operands[place] for place in places]


# ---------------------------------------------------------------- checks


class Checker:
    """The checks for one pass over a graph; ``outputs`` are the graph's outputs by then, with their places."""

    def __init__(self, graph: Graph, outputs: Mapping[Node, Sequence[int]]) -> None:
        self.outputs = outputs
        self.written = graph.written
        self.typed = graph.typed
        self.admits = graph.admits
        self.graph = graph
        self.is_view = may_be_view_in(graph)
        self.untyped: str | None = None
        """The first replacement whose type could not be checked, because a type is not known, and why."""

    @cached_property
    def effects(self) -> list[Node]:
        """The nodes with effects. Rewrites move nothing across these, so they keep their numbers during the pass."""
        return [node for node in self.graph.nodes if node.effect is not None]

    @cached_property
    def lasting(self) -> list[Node]:
        """The nodes whose effects last."""
        return [node for node in self.effects if node.effect not in STEADY]

    @cached_property
    def changed(self) -> dict[Node, int]:
        """The nodes whose memory may be changed, see :func:`gsl.rewrite.check.changed`."""
        return changed(self.graph) if self.lasting else {}

    @cached_property
    def last_change(self) -> int:
        """The place of the last call that may change memory."""
        return max(self.changed.values(), default=-1)

    def before(self, match: Match) -> None:
        """Refuse a match that covers nodes with effects that last."""
        _ = self.changed  # looked for before anything is rewritten
        for node in match.inner:
            if node.effect not in (None, *STEADY):
                raise Refusal(_stays(node))

    def after(self, replacement: Replacement, inner: Sequence[Node]) -> None:
        """Refuse a replacement of another type, one that drops or moves effects or closes a cycle, and an exchange of
        places."""
        for old, new in zip(replacement.old, replacement.new):
            if old.type is None or new.type is None:
                if self.typed and old is not new:
                    self.untyped = self.untyped or _unchecked(old, new)
            elif old.type is new.type or old.type == new.type:
                pass
            elif is_new(new) and _may_be(old.type, new.type):
                self.untyped = self.untyped or _unchecked(old, new)
                new.type = old.type
            else:
                raise Refusal(f"%{old.name} is {old.type}, but its replacement {new!r} is {new.type}")
            if new.index >= 0 and new is not old and _is_replaced(new, replacement):
                raise Refusal(f"%{new.name} would replace %{old.name}, but is itself replaced")
        if self.effects:
            covered = inner or replacement.old  # a leaf covers nothing
            places = [node.index for node in covered]
            _drops(replacement, inner)
            self._moves(replacement, min(places), max(places), covered)
            if self.last_change > min(places):
                self._aliases(replacement, min(places))
            if self.changed:
                self._outlives(replacement)
        if self.written:
            self._written(replacement)
        if self.admits is not None:
            try:
                self.admits(replacement)
            except FrontEndError as error:
                raise Refusal(str(error)) from error
        if self.graph.shares is not None:
            self._returned(replacement, inner or replacement.old)
        if closes_cycle(replacement):
            names = ", ".join(f"%{node.name}" for node in replacement.old)
            raise Refusal(f"would create a cycle: what stands for {names} would depend on itself")

    def _moves(self, replacement: Replacement, low: int, last: int, covered: Sequence[Node]) -> None:
        """Refuse a rewrite that would move a read of a tensor across a change of it, or reorder effects.

        The nodes that a match covers, from ``low`` to ``last``, are computed anew where its last node stands, so a
        change of other memory than theirs may stand between them. With several outputs, or with operands that stand
        behind what is replaced, other nodes may change places too.
        """
        high = max([node.index for node in replacement.used], default=last)
        several = len(replacement.old) > 1 or high > last
        effects = self.effects if several else self.lasting
        first = bisect_left(effects, low, key=_index)
        for node in effects[first : bisect_right(effects, max(last, high), key=_index)]:
            if node in covered:  # an exchange, which is replaced, or what the replacement uses
                continue
            if not several and self._is_apart(node, covered, replacement.used):
                continue
            assert node.effect is not None
            raise Refusal(
                f"%{node.name} has an effect ({node.effect.value}) and stands between the matched nodes, "
                "which would be moved across it"
            )

    def _is_apart(self, call: Node, covered: Sequence[Node], used: Iterable[Node]) -> bool:
        """True if a call changes other memory than covered nodes before it, or what else the replacement uses, read."""
        if call.effect is not Effect.MUTATES:
            return False
        operands = {operand for node in covered for operand in node.operands}
        before = [node for node in covered if node.index < call.index]
        others = [node for node in used if node not in operands and node not in covered]
        read = [*before, *(operand for node in before for operand in node.operands), *others]
        seen, written = (seen_through(nodes, is_view=self.is_view) for nodes in (read, _changed_by(call)))
        both_given = all(any(map(_is_given, nodes)) for nodes in (seen, written))  # two of them may be one tensor
        return not both_given and written.keys().isdisjoint(seen)

    def _aliases(self, replacement: Replacement, low: int) -> None:
        """Refuse a view in the place of a copy, or the other way round, where its memory is changed later."""
        for old, new in zip(replacement.old, replacement.new):
            fresh = is_new(new) and not self.is_view(new) and not self.is_view(old) and old.op not in LEAVES
            if new is not old and not fresh:
                seen = seen_through((old, new), is_view=self.is_view)
                node = next((node for node in seen if self.changed.get(node, -1) > low), None)
                if node is not None:
                    call = self.lasting[bisect_left(self.lasting, self.changed[node], key=_index)]
                    raise Refusal(
                        f"%{node.name} may be changed in place later, by %{call.name}, so it matters whether "
                        f"%{old.name} shares its memory"
                    )

    def _outlives(self, replacement: Replacement) -> None:
        """Refuse an output that would come to share the memory of an input or a weight that the graph changes: the next
        run would change that output."""
        for old, new in zip(replacement.old, replacement.new):
            if new is old or not set(shown(old, self.outputs)):
                continue
            before = seen_through((old,))
            for node in seen_through((new,)):
                if node.op in LEAVES and node in self.changed and node not in before:
                    raise Refusal(
                        f"%{node.name} is changed in place by each run, so no output that is made of %{old.name} may "
                        "come to share its memory"
                    )

    def _written(self, replacement: Replacement) -> None:
        """Refuse a view of an input that is overwritten at the end where an output would show that."""
        for old, new in zip(replacement.old, replacement.new):
            if new is old:
                continue
            if becomes_written(old, new, self.outputs, self.written):
                raise Refusal(
                    f"one of %{old.name} and %{new.name} is written to an input at the end, and the other is returned"
                )
            for node in seen_through((new,)):
                if node in self.written and any(
                    place != self.written[node] or new is not node for place in shown(old, self.outputs)
                ):
                    raise Refusal(
                        f"%{node.name} is overwritten at the end, so no output that is made of %{old.name} may share "
                        "its memory"
                    )

    def _returned(self, replacement: Replacement, inner: Sequence[Node]) -> None:
        """Refuse an output that would come to share the memory of an input, a weight or another output, or be it."""
        is_view = self.is_view
        shared = any(not is_new(new) or is_view(new) for new in replacement.new)
        if not shared and len(replacement.new) == 1:
            return
        within = frozenset(inner) if shared else ()
        taken: dict[Node, Node] = {}
        for old, new in zip(replacement.old, replacement.new):
            other = taken.setdefault(new, old)
            before = seen_through((old,), within, is_view=is_view, shares=self.graph.shares) if within else ()
            seen = seen_through((new,), within, is_view=is_view)
            more = [node for node in seen if node not in before and not is_new(node)]
            places = self._given(old) if more or other is not old else set()
            if places and other is not old and self._given(other):
                raise Refusal(_returns(old, other))
            for node in seen_through(more, is_view=is_view) if places else ():
                if node.op in (INPUT, PARAM) or self._given(node) - places:
                    raise Refusal(_returns(old, node))
        for old, new in zip(replacement.old, replacement.new):
            is_given = new.op in (INPUT, PARAM) or self._returns(new)
            if new is not old and is_given and old.op not in _SOMETIMES_ITSELF and self._returns(old):
                raise Refusal(
                    f"%{old.name} is returned, where its shape may be changed in place, so it must not be %{new.name} "
                    "itself"
                )

    def _given(self, node: Node) -> set[int]:
        """The places of the outputs that show a node, without those that are only written to inputs."""
        return set(shown(node, self.outputs, self.is_view)).difference(self.written.values())

    def _returns(self, node: Node) -> bool:
        """True if a node is an output itself, not only one that is written to an input."""
        return not set(self.outputs.get(node, ())) <= set(self.written.values())

    def applied(self, replacement: Replacement) -> None:
        """Note a rewrite: tensors that were changed in place are now changed in another place, and new exchanges have
        places of their own."""
        for node in replacement.created:
            if node.effect is not None:  # new nodes nearly never have one
                self._place(replacement)
                break
        if self.changed:
            for old, new in zip(replacement.old, replacement.new):
                if old in self.changed:
                    self.changed[new] = self.changed[old]

    def _place(self, replacement: Replacement) -> None:
        """Give the new exchanges places among the nodes with effects."""
        made = [node for node in replacement.created if node.effect is Effect.EXCHANGES]
        if made:
            _put(replacement)
            for node in made:
                insort(self.effects, node, key=_index)


def _is_given(node: Node) -> bool:
    """True for a tensor that the graph is given."""
    return node.op in LEAVES and not isinstance(node.attrs.get("value"), (bool, int, float, complex))


def reused(replacement: Replacement, inner: Iterable[Node]) -> set[Node]:
    """The covered nodes from which the new ones are computed."""
    covered = set(inner)
    roots = covered.intersection(replacement.used)  # none, nearly always
    return set(reached(roots, lambda node: covered.intersection(node.operands))) if roots else roots


def _put(replacement: Replacement) -> None:
    """Put each new node where the first of the replaced ones stood whose replacement needs it, and not lower."""
    left = set(replacement.created)
    for old, new in sorted(zip(replacement.old, replacement.new), key=lambda pair: pair[0].index):
        needed = set(reached(left & {new}, lambda node: left & set(node.operands)))
        for node in needed:
            node.index = max(node.index, old.index)
        left.difference_update(needed)


def _drops(replacement: Replacement, inner: Sequence[Node]) -> None:
    """Refuse a replacement that does not use what a match covers of calls that draw numbers or look at values."""
    steady = [node for node in inner if node.effect in (Effect.RANDOM, Effect.OBSERVES)]
    if steady:
        used = reused(replacement, inner)
        for node in steady:
            if node not in used:
                raise Refusal(f"{_stays(node)}; the target may use it, but not replace it")


def _stays(node: Node) -> str:
    """Why a call may not be replaced."""
    assert node.effect is not None
    return f"%{node.name} has an effect ({node.effect.value}), so it must stay as it is"


def _returns(old: Node, node: Node) -> str:
    """Why an output may not share the memory of a node."""
    return f"%{old.name} is returned, where it may be changed in place, so it must not share memory with %{node.name}"


def _may_be(type: Type, found: Type) -> bool:
    """True if a new type is the given one but for sizes that are unknown."""
    if not isinstance(type, TensorType) or not isinstance(found, TensorType):
        return False
    alike = type.dtype == found.dtype and type.ndim == found.ndim
    return alike and all(a == b or is_unknown(b) for a, b in zip(type.shape, found.shape))


def _unchecked(old: Node, new: Node) -> str:
    """Why it could not be checked that a replacement has the type of what it replaces, and what to do."""
    if old.type is None:
        return (f"%{old.name} has no type, so it was not checked that what replaces it has the same one: give example "
                "inputs when loading, or declare the type in the model")  # fmt: skip
    unknown = "type" if new.type is None else "shape"
    return (f"the {unknown} of {op_name(new.op)} does not follow from its operands, so it was not checked that it is "
            f"that of %{old.name}, {old.type}, which it replaces")  # fmt: skip


def _is_replaced(node: Node, replacement: Replacement) -> bool:
    """True if another node is to stand for one of the old nodes."""
    return any(old is node and new is not node for old, new in zip(replacement.old, replacement.new))


def _index(node: Node) -> int:
    return node.index
