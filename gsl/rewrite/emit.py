"""Calls that were made before, and the steps of a target printed as a function that makes them again.

If a target has no steps but calls whose attributes are written out, nothing but the types of the operands tells what
becomes of them. So what the steps make is remembered, and a function makes it again. For ``op.Tanh(op.Sigmoid(x))`` it
is, with the names of objects in their place::

    def again(match, graph):
        calls = graph.formed.get(known) or known.calls_for(graph)
        _, _, n0, = match.bound
        if n0.op in NUMBERS: return None
        cn1 = calls.get((sigmoid, id(n0.type), ))
        if cn1 is None: return None
        …
        origin = Origin(rule, match.inner)
        n1 = Node(cn1[0], (n0, ), cn1[1], cn1[2], cn1[3])
        n1.index, n1.origin = -1, origin
        …
        return (n2, ), (n1, n2, )

There is one for each place of a printed search that finds matches, and one for all that are found otherwise. It gives
nothing where a call is not known yet, or where a number stands for a tensor: then the steps are taken.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import FunctionType
from typing import Any, Final

from gsl.attr.ast import Literal
from gsl.attr.evaluate import Names
from gsl.graph import CONST, Graph, Node, Op, Origin, Type
from gsl.graph.types import has_unknown
from gsl.match import Match, MatchSchema
from gsl.pat import Call, Like, OpClass, Pattern
from gsl.rewrite.build import Builder, Steps, needed
from gsl.rewrite.new import NUMBERS, is_stateless
from gsl.spec import OpSpec

Again = Callable[[Match, Graph], "tuple[tuple[Node, ...], tuple[Node, ...]] | None"]
"""The nodes of the outputs, and all nodes that were made, operands first; ``None`` if something is not known."""
Calls = dict[Any, tuple[Op, Mapping[str, Any], "Type | None", str, object]]
"""Calls by the addresses of types: operator, attributes, type, name, and what must not be freed lest another object
gets its address."""
MOST_CALLS: Final = 4096
"""The largest number of different calls that are remembered."""


class KnownCalls:
    """The calls of a target that were made before, and the functions that make them again."""

    def __init__(self, steps: Steps, outputs: Sequence[Pattern], calls: Sequence[Call | Like], rule: str) -> None:
        self.calls = calls
        """Their patterns, operands first."""
        self._target = steps, outputs, rule
        self._functions: dict[MatchSchema | None, Again] = {}
        self._everywhere: dict[Any, Calls] = {}
        """Those that are the same in all graphs whose types a mere function infers, and of which a mere function tells
        whether they can be written: by these functions. An object, as a method or a partial, may hold a graph."""

    @staticmethod
    def of(steps: Steps, outputs: Sequence[Pattern], rule: str) -> KnownCalls | None:
        """The calls of a target; ``None`` where a step is no call, or depends on more than types."""
        calls: dict[Call | Like, None] = {}
        for output in outputs:
            for pattern, make in steps.of(output):
                if isinstance(pattern, (Call, Like)) and make is not Builder.unmatched and _is_fixed(pattern, steps):
                    calls[pattern] = None
                elif make is not Builder.unmatched:
                    return None
        return KnownCalls(steps, outputs, list(calls), rule)

    def again(self, match: Match, graph: Graph) -> tuple[tuple[Node, ...], tuple[Node, ...]] | None:
        """The nodes of the outputs for a match, and all that were made; ``None`` if something is not known."""
        function = self._functions.get(match.schema)
        if function is None:
            steps, outputs, rule = self._target
            source = _Source(steps, match.schema)
            for pattern in self.calls:
                source.call(pattern)
            function = self._functions[match.schema] = source.function(outputs, rule, self)
        return function(match, graph)

    def remember(self, builder: Builder, graph: Graph) -> None:
        """Take note of the calls that were built for a match.

        The type of a call becomes the same object as that of an operand, or of an output that it may replace, if they
        are equal: types are compared at every match, and an object is equal to itself at once.
        """
        known = self.calls_for(graph)
        for pattern in self.calls:
            node = builder.nodes[pattern]
            near = [other.type for other in (*node.operands, *builder.match.outputs)]
            node.type = next((type for type in near if type == node.type), node.type)
            if has_unknown(node.type) or node.effect is not None:
                continue  # its sizes, or what it exchanges, are its own
            if is_stateless(node.op) and not any(operand.op in NUMBERS for operand in node.operands):
                if len(known) >= MOST_CALLS:
                    known.clear()
                kept: list[Any] = [operand.type for operand in node.operands]
                if isinstance(pattern, Like):
                    kept = [builder.nodes[pattern.of].attrs, *kept]
                    key = (pattern, node.op, *map(id, kept))
                else:
                    key = (pattern, *map(id, kept))
                known[key] = node.op, node.attrs, node.type, node.name, kept

    def calls_for(self, graph: Graph) -> Calls:
        """The calls that are known for a graph, which keeps them."""
        infer, writable = graph.infer, graph.writable
        if type(infer) is FunctionType and (writable is None or type(writable) is FunctionType):
            found = graph.formed[self] = self._everywhere.setdefault((infer, writable), {})
        else:
            found = graph.formed.setdefault(self, {})
        return found


def _is_fixed(pattern: Call | Like, steps: Steps) -> bool:
    """True if a call is always the same for operands of the same types: its attributes are written out, or those of a
    matched model, and no others can get lost."""
    if pattern.free_symbols:
        return False
    if isinstance(pattern, Like):
        return not pattern.attrs and pattern.of in steps.plan.known
    if isinstance(pattern.op, OpClass) or not all(isinstance(node, Literal) for node in pattern.attrs.values()):
        return False
    left_out = steps.free.get(pattern.op.name, ()) if isinstance(pattern.op, OpSpec) else ()
    return all(name in pattern.attrs for _, name in left_out)


@dataclass(frozen=True, slots=True)
class TargetRecipe:
    """The nodes that a target became for a match, to be made again where the nodes have the same attributes and types.

    Places are those of the bound nodes, and behind them those of the new ones.
    """

    nodes: tuple[tuple[Op, Mapping[str, Any], Type | None, str, tuple[int, ...]], ...]
    """The operator, attributes, type and name of each new node, and the places of its operands."""
    outputs: tuple[int, ...]
    """The places of the outputs."""
    kept: object
    """What must not be freed lest another object gets its address."""

    @staticmethod
    def of(new: Sequence[Node], created: Sequence[Node], bound: Sequence[Node]) -> TargetRecipe | None:
        """The recipe of new outputs; ``None`` where they are made of literals, or of nodes that are not bound."""
        places = {node: place for place, node in enumerate((*bound, *created))}
        if len(places) < len(bound) + len(created):
            return None  # which of the nodes that are one is meant can't be told
        for node in created:
            alone = node.op != CONST and is_stateless(node.op) and not node.deps and node.effect is None
            if not alone or has_unknown(node.type) or not places.keys() >= {*node.operands}:
                return None
        if not places.keys() >= {*new}:
            return None
        nodes = [(n.op, n.attrs, n.type, n.name, tuple([places[part] for part in n.operands])) for n in created]
        kept = [(node.attrs, node.type) for node in bound]
        return TargetRecipe(tuple(nodes), tuple([places[node] for node in new]), kept)

    def again(self, bound: Sequence[Node], origin: Origin) -> tuple[list[Node], tuple[Node, ...]]:
        """The outputs for a match with these nodes, and all new nodes, operands first."""
        found = list(bound)
        for op, attrs, type, name, operands in self.nodes:
            node = Node(op, tuple([found[place] for place in operands]), attrs, type, name)
            node.index, node.origin = -1, origin
            found.append(node)
        return [found[place] for place in self.outputs], tuple(found[len(bound) :])


class _Source:
    """The lines of one function."""

    def __init__(self, steps: Steps, schema: MatchSchema | None) -> None:
        self.steps = steps
        self.schema = schema
        self.names = Names()
        self.variables: dict[Pattern, str] = {}
        """The variables of nodes."""
        self.lookups: list[str] = []
        """The lines that look up matched nodes and known calls."""
        self.made: list[str] = []
        """The variables of new nodes, operands first."""
        self.makes: list[str] = []
        """The lines that make them."""

    def node(self, pattern: Pattern) -> str:
        """The variable of a pattern; what was matched is looked up."""
        name = self.variables.get(pattern)
        if name is None:
            name = self.variables[pattern] = f"n{len(self.variables)}"
            tests = [] if isinstance(pattern, Call) else [f"{name}.op in {self.names.of(NUMBERS)}"]
            if self.schema is None:
                tests[:0] = [] if self.steps.is_sure(pattern) else [f"{name} is None"]
                self.lookups.append(f"{name} = match.bindings.nodes.get({self.names.of(pattern)})")
            elif pattern not in self.schema.keys:
                tests = ["True"]
            if tests:
                self.lookups.append(f"if {' or '.join(tests)}: return None")
        return name

    def call(self, pattern: Call | Like) -> None:
        """Look up a call, and make it."""
        nodes = [self.node(operand) for operand in needed(pattern)]
        types = [f"c{node}[2]" if node in self.made else f"{node}.type" for node in nodes]
        key = [self.names.of(pattern), *[f"id({type})" for type in types]]
        if isinstance(pattern, Like):
            model = nodes.pop(0)
            key[1:2] = f"{model}.op", f"id({model}.attrs)"
        name = self.variables[pattern] = f"n{len(self.variables)}"
        self.lookups += [f"c{name} = calls.get({_row(key)})", f"if c{name} is None: return None"]
        self.made.append(name)
        self.makes.append(f"{name} = Node(c{name}[0], {_row(nodes)}, c{name}[1], c{name}[2], c{name}[3])")
        self.makes.append(f"{name}.index, {name}.origin = -1, origin")

    def function(self, outputs: Sequence[Pattern], rule: str, known: KnownCalls) -> Again:
        """The function, which returns the nodes of outputs."""
        results, made = _row([self.node(output) for output in outputs]), _row(self.made)
        bound = [self.variables.get(key, "_") for key in self.schema.keys] if self.schema is not None else []
        lines = [
            "def again(match, graph):",
            f"calls = graph.formed.get({self.names.of(known)}) or {self.names.of(known)}.calls_for(graph)",
            f"{', '.join(bound)}, = match.bound" if bound else "",
            *self.lookups,
            f"origin = Origin({rule!r}, match.inner)",
            *self.makes,
            f"new = {results}",
            f"return new, {'new' if results == made else made}",
        ]
        table = {**self.names.table, "Node": Node, "Origin": Origin}
        exec(compile("\n    ".join(lines), "<target>", "exec"), table)
        again: Again = table["again"]
        return again


def _row(items: Sequence[str]) -> str:
    """The source of a tuple."""
    return f"({''.join(f'{item}, ' for item in items)})"
