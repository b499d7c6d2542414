"""Rewritten view to native graph: what is untouched is copied, the rest is written with the table of spellings."""

from __future__ import annotations

from collections import deque
from typing import Any

from torch import fx

from gsl.errors import FrontEndError
from gsl.front.fx.handle import Handle, Leaf, Reading, handle_of, is_literal, is_tensor_leaf, native_of
from gsl.front.fx.home import Home
from gsl.front.fx.load import arguments
from gsl.front.fx.plan import Arguments, is_written, plan, stands_for
from gsl.front.fx.spellings.table import Dialect
from gsl.front.fx.values import Values
from gsl.front.fx.write import Writer
from gsl.graph import GETITEM, INPUT, TUPLE, Graph, Node


class Storer:
    """Builds the native graph of one rewritten view."""

    def __init__(self, graph: Graph, native: fx.Graph, values: Values, home: Home, dialect: Dialect) -> None:
        self.graph = graph
        self.native = native
        self.order = {node: index for index, node in enumerate(native.nodes)}
        self._check()
        self.plan = plan(graph, native)
        self.copies: dict[fx.Node, fx.Node] = {}
        """The new native node of each old one that was copied."""
        self.results: dict[Node, Any] = {}
        """The native value of each view node that has one: a native node, or a Python tuple of those."""
        self.calls = {r.call: mapping for r, mapping in self.plan.kept.items() if r.call is not None}
        # What has no view node is copied on the way, where it stood; placeholders stay whether they are used or not.
        kept = {reading.node for reading in self.plan.kept}
        pending = {node for node in native.nodes if node.op == "placeholder" and node not in kept} | self.plan.hidden
        self.pending = deque(sorted(pending, key=self.order.__getitem__))
        self.placeholders = deque(node for node in native.nodes if node.op == "placeholder")
        # A name that goes out of use is not given to another value: the module hierarchy speaks of values by name.
        reserved = {node.name for node in native.nodes}
        self.writer = Writer(self.value, native, values, home, dialect, reserved)
        self.new = self.writer.graph

    def store(self) -> None:
        """Fill the new graph."""
        for node in self.graph.nodes:
            handle = handle_of(node)
            if handle is not None and handle.is_root and handle.reading in self.plan.kept:
                self._flush(self.order[handle.reading.node])
                self._keep(node, handle.reading)
            elif is_written(node, self.plan):
                self._write(node)
        self._flush(len(self.order))
        self._output()
        self.new.lint()

    def renamed(self) -> dict[str, str]:
        """The new names of values whose native node was replaced, as far as something still uses them."""
        names: dict[str, str] = {}
        for node in self.graph.nodes:
            for old, new in (node.redirects or {}).items():
                native, result = native_of(old), self.results.get(new)
                if native is not None and isinstance(result, fx.Node):
                    names[native.name] = result.name
        return names

    def _check(self) -> None:
        for node in self.graph.nodes:
            handle = handle_of(node)
            if handle is not None and handle.reading.node not in self.order:
                raise FrontEndError(
                    f"{node.name}: the view was not loaded from this program of torch; store takes a view that load() "
                    "of the same program made"
                )
            if node.op == INPUT and node.native is None:
                raise FrontEndError(
                    f"{node.name}: a rewrite can't add an input to a program of torch; add it to the module and load it"
                )

    # ------------------------------------------------------------ what is kept

    def _flush(self, before: int) -> None:
        """Copy the waiting nodes that stood before that place, as far as their arguments exist."""
        late: list[fx.Node] = []
        while self.pending and self.order[self.pending[0]] < before:
            node = self.pending.popleft()
            if self._is_ready(node):
                self._copy(node, self.calls.get(node, {}))
            else:
                late.append(node)
        self.pending.extendleft(reversed(late))

    def _is_ready(self, node: fx.Node) -> bool:
        mapping = self.calls.get(node, {})
        return all(
            arg in self.copies or (arg in mapping and self._has_value(mapping[arg])) for arg in node.all_input_nodes
        )

    def _has_value(self, view: Node) -> bool:
        if view.op == TUPLE and view not in self.results:
            return all(self._has_value(operand) for operand in view.operands)
        return view in self.results or is_literal(view) or is_tensor_leaf(view)

    def _keep(self, node: Node, reading: Reading) -> None:
        mapping = self.plan.kept[reading]
        if node.op == GETITEM and reading.call is None:
            fields = self._argument(reading.node.args[0], mapping)  # type: ignore[arg-type]
            if isinstance(fields, tuple):
                self.results[node] = fields[node.attrs["index"]]
                return
        if reading.call is not None:
            self._copy(reading.call, mapping)
        self.results[node] = self._copy(reading.node, mapping)

    def _copy(self, node: fx.Node, mapping: Arguments) -> fx.Node:
        if node not in self.copies:
            self.copies[node] = self.writer.copy(node, lambda argument: self._argument(argument, mapping))
        return self.copies[node]

    def _argument(self, argument: fx.Node, mapping: Arguments) -> Any:
        """What an argument of an old native node is in the new graph."""
        view = mapping.get(argument)
        if argument in self.copies and (view is None or stands_for(view, argument)):
            return self.copies[argument]
        if view is None:
            raise FrontEndError(f"{argument.format_node()}: is used by a call that is kept, but was removed")
        return self.value(view)

    # ------------------------------------------------------------ what is new

    def value(self, view: Node) -> Any:
        """The native value of a view node: a native node, a Python scalar, or a tuple of those."""
        if view in self.results:
            return self.results[view]
        if is_literal(view):
            return view.attrs["value"]
        if view.op == TUPLE:
            return tuple([self.value(operand) for operand in view.operands])
        if not is_tensor_leaf(view):
            raise FrontEndError(
                f"{view.name}: is used before it is computed, or was removed from the graph, so that what uses it "
                "can't be written in torch"
            )
        reads = view.native.reads if isinstance(view.native, Leaf) else ()
        for native in reads:
            if native in self.copies:
                return self.copies[native]
        self.results[view] = self.writer.weight(view)
        return self.results[view]

    def _write(self, node: Node) -> None:
        # No call comes before a placeholder.
        while self.placeholders:
            self._copy(self.placeholders.popleft(), {})
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
        self.copies[old] = self.writer.copy(old, lambda argument: self._argument(argument, {argument: next(views)}))
