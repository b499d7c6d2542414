"""The way from a rewritten view to a native graph: untouched nodes are kept, the rest is written with the table of
spellings."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

from torch import fx

from gsl.errors import FrontEndError
from gsl.front.core.handle import Arguments, Handle, handle_of, intact, is_literal, is_tensor_leaf
from gsl.front.fx.devices import Devices
from gsl.front.fx.draft import GraphBuilder
from gsl.front.fx.fakes import Fakes, MetadataFields
from gsl.front.fx.handle import FxLeaf, FxReading, native_of
from gsl.front.fx.home import FxParameterStore
from gsl.front.fx.load import arguments
from gsl.front.fx.plan import is_written, plan, stands_for
from gsl.front.fx.spellings.table import Dialect
from gsl.front.fx.values import Values
from gsl.front.fx.write import FxWriter
from gsl.graph import GETITEM, INPUT, TUPLE, Graph, Node


class FxStorer:
    """Writes one rewritten view of a native graph."""

    def __init__(
        self,
        graph: Graph,
        native: fx.Graph,
        values: Values,
        devices: Devices,
        home: FxParameterStore,
        dialect: Dialect,
        draft: GraphBuilder,
    ) -> None:
        self.graph = graph
        self.native = native
        self.draft = draft
        self.order = draft.order
        self.placeholders = deque(native.find_nodes(op="placeholder"))
        """The placeholders that do not stand yet before everything that is written."""
        self.plan = plan(graph, self.order, self.order[self.placeholders[-1]] if self.placeholders else -1)
        self.is_in_place = draft.graph is native
        self.kept: dict[fx.Node, fx.Node] = {}
        """The counterpart of each old native node that is kept."""
        self.results: dict[Node, Any] = {}
        """The native value of each view node that has one: a native node, or a Python tuple of those."""
        waiting = {*self.placeholders, *self.plan.hidden} - self.plan.kept.keys()
        if self.is_in_place:
            self.kept = dict(self.plan.staying)
            self.kept.update({node: node for node in waiting if not node._input_nodes})
            waiting.difference_update(self.kept)
            self.placeholders = deque(list(self.placeholders)[-1:])
        # What has no view node is kept where it stood; placeholders stay whether they are used or not.
        self.pending = deque(sorted(waiting, key=self.order.__getitem__))
        self.waiting: dict[fx.Node, list[fx.Node]] = {}
        """The nodes that wait for an argument that does not exist yet, by that argument."""
        fakes = Fakes(values, values if self.is_in_place else Values(), MetadataFields.of(self.order, values))
        self.writer = FxWriter(self.value, draft, fakes, home, dialect, devices)

    def store(self) -> None:
        """Write the view to the draft."""
        for node in self._changed() if self.is_in_place else self.graph.nodes:
            handle = handle_of(node)
            if handle is not None and handle.is_root and handle.reading.native in self.plan.kept:
                self._flush(self.order[handle.reading.native])
                self._keep(node, handle.reading)
            elif is_written(node, self.plan):
                self._write(node)
        self._flush(len(self.order))
        self._output()
        self.writer.close()

    def _changed(self) -> Iterator[Node]:
        """The view nodes for which there is something to do in the old graph, each when its turn has come."""
        staying, passed = list(self.plan.staying), 0
        for node, before in self.plan.steps:
            if before > passed:
                self._flush(self.order[staying[before - 1]])
                self.draft.catch_up(staying[before - 1])
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
                for native in (handle.reading.native, handle.reading.call):
                    if native in self.kept and not self.draft.has_passed(native):
                        del self.kept[native]
        return nodes

    def renamed(self) -> dict[str, str]:
        """The new names of values whose native node was replaced, as far as something still uses them."""
        names: dict[str, str] = {}
        for node in self.graph.nodes:
            for old, new in (node.redirects or {}).items():
                native, result = native_of(old), self.results.get(new)
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
            if arg not in self.kept and not (arg in mapping and self._has_value(mapping[arg])):
                return arg
        return None

    def _becomes(self, old: fx.Node, new: fx.Node) -> fx.Node:
        """Note the counterpart of an old native node, for which others may wait."""
        self.kept[old] = new
        if self.waiting and old in self.waiting:
            self.pending.extendleft(reversed(self.waiting.pop(old)))
        return new

    def _has_value(self, view: Node) -> bool:
        if view.op == TUPLE and view not in self.results:
            return all(self._has_value(operand) for operand in view.operands)
        return view in self.results or is_literal(view) or is_tensor_leaf(view)

    def _keep(self, node: Node, reading: FxReading) -> None:
        mapping = self.plan.kept[reading.native]
        if mapping is None:
            found = self._keep_as_it_is(reading)
            if found is not None:
                self.results[node] = found
                return
            alike = intact(node, ())
            assert alike is not None
            _, mapping = alike
        if node.op == GETITEM and reading.call is None:
            fields = self._argument(reading.native.args[0], mapping)
            if isinstance(fields, tuple):
                self.results[node] = fields[node.attrs["index"]]
                return
        if reading.call is not None:
            self._keep_native(reading.call, mapping)
        self.results[node] = self._keep_native(reading.native, mapping)

    def _keep_as_it_is(self, reading: FxReading) -> fx.Node | None:
        """Keep a native call whose arguments were kept as they are; ``None`` if some were not."""
        if reading.call is not None and reading.call not in self.kept:
            call = self.writer.keep_as_it_is(reading.call, self.kept)
            if call is None:
                return None
            self._becomes(reading.call, call)
        found = self.kept.get(reading.native)
        if found is None:
            found = self.writer.keep_as_it_is(reading.native, self.kept)
            if found is not None:
                self._becomes(reading.native, found)
        return found

    def _keep_native(self, node: fx.Node, mapping: Arguments | None) -> fx.Node:
        if node not in self.kept:
            known = mapping or {}
            self._becomes(node, self.writer.keep(node, lambda argument: self._argument(argument, known)))
        return self.kept[node]

    def _argument(self, argument: fx.Node, mapping: Arguments) -> Any:
        """The new value of an argument of an old native node."""
        view = mapping.get(argument)
        if argument in self.kept and (view is None or stands_for(view, argument)):
            return self.kept[argument]
        if view is None:
            raise FrontEndError(f"{argument.format_node()}: is used by a call that is kept, but was removed")
        return self.value(view)

    # ------------------------------------------------------------ what is new

    def value(self, view: Node) -> Any:
        """The native value of a view node: a native node, a Python scalar, or a tuple of those."""
        if view in self.results:
            return self.results[view]
        own = view.native
        if own.__class__ is Handle and own.reading.native in self.kept and own.is_root:
            return self.kept[own.reading.native]
        if is_literal(view):
            return view.attrs["value"]
        if view.op == TUPLE:
            return tuple([self.value(operand) for operand in view.operands])
        if not is_tensor_leaf(view):
            raise FrontEndError(
                f"{view.name}: is used before it is computed, or was removed from the graph, so that what uses it "
                "can't be written in torch"
            )
        self.results[view] = self._weight(view)
        return self.results[view]

    def _weight(self, view: Node) -> fx.Node:
        """A native node that reads a weight or a literal tensor: an old one if there is one, else a new one."""
        reads = view.native.reads if isinstance(view.native, FxLeaf) else {}
        for native in reads:
            if native in self.kept and self.draft.has_passed(native):
                return self.kept[native]
        for native in reads:
            return self._becomes(native, self.writer.fetch(native))
        return self.writer.weight(view)

    def _write(self, node: Node) -> None:
        # No call comes before a placeholder.
        while self.placeholders:
            placeholder = self.placeholders.popleft()
            self._keep_native(placeholder, None)
            self.draft.catch_up(placeholder)
        call = self.plan.joined.get(node)
        if node.op == GETITEM:
            fields = self.value(node.operands[0])
            if isinstance(fields, tuple):
                self.results[node] = fields[node.attrs["index"]]
                return
        if isinstance(node.native, Handle) and not (node.users or node.effect or node in self.graph.outputs):
            # Part of a reading that fell apart, which nobody needs.
            return
        self.results[node] = self.writer.write(node, call)

    def _output(self) -> None:
        old = next(node for node in reversed(self.native.nodes) if node.op == "output")
        before = arguments(old)
        if len(before) != len(self.graph.outputs):
            raise FrontEndError(
                f"the program of torch has {len(before)} outputs, and the rewritten view {len(self.graph.outputs)}; "
                "a rewrite replaces outputs one by one"
            )
        views = iter(self.graph.outputs)
        self.kept[old] = self.writer.keep(old, lambda argument: self._argument(argument, {argument: next(views)}))
