"""What must hold before a match is rewritten, so that no rewrite breaks a graph."""

from __future__ import annotations

from collections.abc import Sequence

from gsl.graph import Effect, Graph, Node
from gsl.graph.splice import Replacement, closes_cycle
from gsl.match import Match
from gsl.rewrite.target import Refusal


class Checker:
    """The checks for one pass over a graph."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.outputs = set(graph.outputs)
        self.effects = [node for node in graph.nodes if node.effect is not None]
        self.untyped = False
        """Set when equal types could not be checked, because a type is not known."""

    def before(self, match: Match, extern_use: bool | None) -> None:
        """Refuse a match for what it covers: effects, and uses from outside if the rule forbids them."""
        inner = match.inner
        for node in inner:
            if node.effect is not None:
                raise Refusal(f"%{node.name} has an effect ({node.effect.value}), so it must stay as it is")
        self._moves(inner, len(match.outputs) > 1)
        if extern_use is False:
            covered = set(inner)
            for node in covered.difference(match.outputs):
                for user in node.users:
                    if user not in covered:
                        raise Refusal(f"%{node.name} is also used outside the match, by %{user.name}")
                if node in self.graph.outputs:
                    raise Refusal(f"%{node.name} is also an output of the graph")

    def _moves(self, inner: Sequence[Node], several: bool) -> None:
        """Refuse what would move a read of a tensor across a change of it, or reorder effects.

        What a match covers is computed anew where its last node stands. With several outputs, nodes between the
        first and the last may change places too.
        """
        if not self.effects:
            return
        low = min(node.index for node in inner)
        high = max(node.index for node in inner)
        for node in self.effects:
            if low <= node.index <= high and (several or node.effect is not Effect.RANDOM):
                assert node.effect is not None
                raise Refusal(
                    f"%{node.name} has an effect ({node.effect.value}) and stands between the matched nodes, "
                    "which would be moved across it"
                )

    def after(self, replacement: Replacement) -> None:
        """Refuse a replacement of another type, one that closes a cycle, and outputs that exchange places."""
        for old, new in zip(replacement.old, replacement.new):
            if old.type is None or new.type is None:
                self.untyped = self.untyped or old is not new
            elif old.type != new.type:
                raise Refusal(f"%{old.name} is {old.type}, but its replacement {new!r} is {new.type}")
            if new is not old and new in replacement.old and replacement.new[replacement.old.index(new)] is not new:
                raise Refusal(f"%{new.name} would replace %{old.name}, but is itself replaced")
        if len(replacement.old) > 1 and closes_cycle(replacement):
            names = ", ".join(f"%{node.name}" for node in replacement.old)
            raise Refusal(f"would create a cycle: the new nodes for {names} would depend on each other")
