"""The way from a rewritten view to a native graph: untouched nodes are kept, the rest is written with the table of
spellings."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

from torch import fx

from gsl.errors import FrontEndError
from gsl.front.core.handle import Arguments, Handle, handle_of, intact, origins
from gsl.front.core.store import Storer
from gsl.front.fx.builder import GraphBuilder
from gsl.front.fx.devices import Devices
from gsl.front.fx.fakes import Fakes, MetadataFields
from gsl.front.fx.handle import FxLeaf, FxReading, native_index, native_of, nodes_in
from gsl.front.fx.parameters import FxParameterStore
from gsl.front.fx.plan import plan, stands_for
from gsl.front.fx.spellings.table import Dialect
from gsl.front.fx.values import Values
from gsl.front.fx.write import FxWriter
from gsl.graph import GETITEM, INPUT, Graph, Node


class FxStorer(Storer):
    """Writes one rewritten view of a native graph. A tuple of native nodes is a value, too."""

    framework = "torch"

    def __init__(
        self,
        graph: Graph,
        native: fx.Graph,
        values: Values,
        devices: Devices,
        parameters: FxParameterStore,
        dialect: Dialect,
        builder: GraphBuilder,
    ) -> None:
        super().__init__(graph)
        self.native = native
        self.builder = builder
        self.order = builder.order
        self.placeholders = deque(native.find_nodes(op="placeholder"))
        """The placeholders that do not stand yet before everything that is written."""
        self.plan = plan(graph, native, self.order, self.order[self.placeholders[-1]] if self.placeholders else -1)
        self.is_in_place = builder.graph is native
        self.inner = self.plan.inner
        self.new: dict[fx.Node, fx.Node] = {}
        """The counterpart of each old native node that is kept."""
        waiting = {*self.placeholders, *self.plan.hidden} - self.plan.kept.keys()
        if self.is_in_place:
            self.new = dict(self.plan.staying)
            self.new.update({node: node for node in waiting if not node._input_nodes})
            waiting.difference_update(self.new)
            self.placeholders = deque(list(self.placeholders)[-1:])
        # What has no view node is kept where it stood; placeholders stay whether they are used or not.
        self.pending = deque(sorted(waiting, key=self.order.__getitem__))
        self.waiting: dict[fx.Node, list[fx.Node]] = {}
        """The nodes that wait for an argument that does not exist yet, by that argument."""
        fakes = Fakes(values, values if self.is_in_place else Values(), MetadataFields.of(native, values))
        self.writer = FxWriter(self.value, builder, fakes, parameters, dialect, devices)

    def store(self) -> None:
        """Write the view to the builder."""
        self.store_nodes(self._changed() if self.is_in_place else self.graph.nodes)
        self._flush(len(self.order))
        self._output()
        self.writer.close()

    def _changed(self) -> Iterator[Node]:
        """The view nodes for which there is something to do in the old graph, each when its turn has come."""
        staying, passed = list(self.plan.staying), 0
        for node, before in self.plan.steps:
            if before > passed:
                self._flush(self.order[staying[before - 1]])
                self.builder.catch_up(staying[before - 1])
                self.writer.sizes.note(staying[passed:before])
                passed = before
            yield node
            if self.writer.fakes.have_spread:
                yield from self._all_behind(node)
                break

    def _all_behind(self, node: Node) -> list[Node]:
        """All view nodes behind one whose native call has another memory layout now: their layouts may have changed,
        too."""
        nodes = self.graph.nodes[self.graph.nodes.index(node) + 1:]
        for later in nodes:
            handle = handle_of(later)
            if handle is not None and handle.is_root and later.op != INPUT:
                self.values.pop(later, None)
                for native in (handle.reading.native, handle.reading.call):
                    if native in self.new and not self.builder.has_passed(native):
                        del self.new[native]
        return nodes

    def renamed(self) -> dict[str, str]:
        """The new names of values whose native node was replaced, as far as something still uses them."""
        names: dict[str, str] = {}
        for node in self.graph.nodes:
            for old, new in (node.redirects or {}).items():
                native, result = native_of(old), self.values.get(new)
                if native is not None and isinstance(result, fx.Node):
                    names[native.name] = result.name
        return names

    # ------------------------------------------------------------ what is kept

    def _flush(self, before: int) -> None:
        """Keep the waiting nodes that stood before that place, as far as their arguments exist."""
        while self.pending and self.order[self.pending[0]] < before:
            node = self.pending.popleft()
            missing = self._missing(node)
            if missing is None:
                self._keep_native(node, self.plan.calls.get(node))
            else:
                self.waiting.setdefault(missing, []).append(node)

    def _missing(self, node: fx.Node) -> fx.Node | None:
        """An argument of a waiting node that does not exist yet."""
        mapping = self.plan.calls.get(node) or {}
        for arg in node.all_input_nodes:
            if arg not in self.new and not (arg in mapping and self.has_value(mapping[arg])):
                return arg
        return None

    def _becomes(self, old: fx.Node, new: fx.Node) -> fx.Node:
        """Note the counterpart of an old native node, for which others may wait."""
        self.new[old] = new
        if self.waiting and old in self.waiting:
            self.pending.extendleft(reversed(self.waiting.pop(old)))
        return new

    def is_kept(self, reading: FxReading) -> bool:
        return reading.native in self.plan.kept

    def keep(self, node: Node, reading: FxReading) -> Any:
        self._flush(self.order[reading.native])
        mapping = self.plan.kept[reading.native]
        if mapping is None:
            found = self._keep_as_it_is(reading)
            if found is not None:
                return found
            alike = intact(node, ())
            assert alike is not None
            _, mapping = alike
        if node.op == GETITEM and reading.call is None:
            fields = self._argument(reading.native.args[0], mapping)
            if isinstance(fields, tuple):
                return fields[node.attrs["index"]]
            if native_index(node.operands[0], node.attrs["index"]) != reading.native.args[1]:
                return self.write(node)
        if reading.call is not None:
            self._keep_native(reading.call, mapping)
        return self._keep_native(reading.native, mapping)

    def _keep_as_it_is(self, reading: FxReading) -> fx.Node | None:
        """Keep a native call whose arguments were kept as they are; ``None`` if some were not."""
        if reading.call is not None and reading.call not in self.new:
            call = self.writer.keep_as_it_is(reading.call, self.new)
            if call is None:
                return None
            self._becomes(reading.call, call)
        found = self.new.get(reading.native)
        if found is None:
            found = self.writer.keep_as_it_is(reading.native, self.new)
            if found is not None:
                self._becomes(reading.native, found)
        return found

    def _keep_native(self, node: fx.Node, mapping: Arguments | None) -> fx.Node:
        if node not in self.new:
            known = mapping or {}
            self._becomes(node, self.writer.keep(node, lambda argument: self._argument(argument, known)))
        return self.new[node]

    def _argument(self, argument: fx.Node, mapping: Arguments) -> Any:
        """The new value of an argument of an old native node."""
        view = mapping.get(argument)
        if argument in self.new and (view is None or stands_for(view, argument)):
            return self.new[argument]
        if view is None:
            raise FrontEndError(f"{argument.format_node()}: is used by a call that is kept, but was removed")
        return self.value(view)

    # ------------------------------------------------------------ what is new

    def value(self, node: Node) -> Any:
        known = self.values.get(node)
        if known is not None:
            return known
        own = node.native
        if isinstance(own, Handle):
            reading = own.reading
            found = self.new.get(reading.native)
            if found is not None and own.slot == reading.size - 1:
                self.values[node] = found
                return found
        return super().value(node)

    def weight(self, node: Node) -> fx.Node:
        """A native node that reads a weight or a literal tensor: an old one if there is one, else a new one."""
        reads = node.native.reads if isinstance(node.native, FxLeaf) else {}
        for native in reads:
            if native in self.new and self.builder.has_passed(native):
                return self.new[native]
        for native in reads:
            return self._becomes(native, self.writer.fetch(native))
        return self.writer.parameters.read(node, self.writer)

    def write(self, node: Node) -> Any:
        # No call comes before a placeholder.
        while self.placeholders:
            placeholder = self.placeholders.popleft()
            self._keep_native(placeholder, None)
            self.builder.catch_up(placeholder)
        if self.pending and (places := [self.order[native] for native in map(native_of, origins(node)) if native]):
            self._flush(min(places))  # else the calls of a module would be cut in two
        return self.writer.write(node, self.plan.joined.get(node))

    def _output(self) -> None:
        old = next(node for node in reversed(self.native.nodes) if node.op == "output")
        before = nodes_in(old.args)
        self.check_outputs(len(before))
        views = iter(self.graph.outputs)
        self.new[old] = self.writer.keep(old, lambda argument: self._argument(argument, {argument: next(views)}))
