"""The parts of a rewritten view that are still as they were in the function, and the parts that have to be written
anew."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from gsl.front.core.handle import Arguments, Handle, NativeLeaf, Reading, Single, handle_of, intact
from gsl.front.relax.function import RelaxFunction
from gsl.front.relax.load import Fields, Loaded, parts_of
from gsl.graph import INPUT, Graph, Node


class RelaxPlan:
    """The way in which each node of a rewritten view gets into the new function: its binding stays, or is written anew.
    """

    def __init__(self, graph: Graph, loaded: Loaded) -> None:
        self.graph = graph
        self.loaded = loaded
        self.function: RelaxFunction = loaded.function
        self.outputs = set(graph.outputs)
        self.kept: dict[Reading | Single, Arguments] = {}
        """The readings whose bindings stay, with the new values of their variables."""
        self.hidden: dict[int, Arguments] = {}
        """The numbers of the bindings without a view node that stay too, with the same."""
        self.inner: set[Node] = set()
        """View nodes that are part of a binding that stays."""
        self.shared: dict[int, Arguments] = {}
        """The visible bindings that stay, by their numbers, with the new values of their variables."""
        for node in graph.nodes:
            if node.native is not None:
                self._decide(node)
        self._keep_names()

    @cached_property
    def _alive(self) -> dict[int, Node]:
        """The nodes of the view that was loaded, as far as they are still there, by the addresses of their handles."""
        return {id(node.native): node for node in self.graph.nodes if isinstance(node.native, (Handle, NativeLeaf))}

    def _decide(self, node: Node) -> None:
        """Keep the binding of a node if it is as it was loaded, but for other operands."""
        handle = handle_of(node)
        if handle is None or not handle.is_root or node.op == INPUT:
            return
        found = intact(node, self.outputs)
        if found is None:
            return
        tree, arguments = found
        reading = handle.reading
        if reading.through and not self._sees_through(reading, arguments):
            return
        self.kept[reading] = self.shared[self.function.place[reading.native]] = arguments
        if len(tree) > 1:
            self.inner.update(tree[1:])

    def _own(self, place: int, arguments: Arguments) -> Arguments:
        """The new values of the variables of one binding."""
        return {var: arguments[var] for var in self.function.uses(place) if var in arguments}

    def _sees_through(self, reading: Reading, arguments: Arguments) -> bool:
        """Keep the bindings that a reading sees through; False if others need them with other operands."""
        needed = {place: self._own(place, arguments) for place in reading.through}
        for place, own in needed.items():
            if place in self.shared:
                if self._own(place, self.shared[place]) != own:
                    return False
            elif self.hidden.get(place, own) != own or self._is_visible(place):
                return False
        self.hidden.update({place: own for place, own in needed.items() if place not in self.shared})
        return True

    def _is_visible(self, place: int) -> bool:
        handle = self.loaded.shown(self.function.vars[place])
        return handle is not None and id(handle) in self._alive

    def _keep_names(self) -> None:
        """Keep the bindings that only give a value another name, where a kept binding or the result uses that name, or
        nothing does."""
        aliases = self.loaded.aliases
        if not aliases:
            return
        kept = (*self.kept.values(), *self.hidden.values())
        work = [var for arguments in kept for var, node in arguments.items()
                if var in aliases and stands_for(node, var, self.loaded)]  # fmt: skip
        work += self.function.used_by_result
        tuples = [part.var for part in parts_of(self.loaded.result) if isinstance(part, Fields)]
        work += [var for each in tuples if each is not None for var in self.function.uses(self.function.place[each])]
        work += self.function.unused(aliases)
        while work:
            var = work.pop()
            place = self.function.place.get(var)
            if place is None or place in self.hidden or var not in aliases:
                continue
            node = self._alive.get(id(self.loaded.shown(var)))
            if node is not None:
                self.hidden[place] = dict.fromkeys(self.function.uses(place), node)
                work.extend(self.function.uses(place))


def stands_for(node: Node, var: Any, loaded: Loaded) -> bool:
    """True if the view node is (still) the value of that variable."""
    return node.native is not None and node.native is loaded.shown(var)
