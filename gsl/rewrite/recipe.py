"""A target as a Python function, written for targets that build the same calls for every match.

For ``op.Tanh(op.Sigmoid(x))`` it is, with the names of objects in their place::

    def build(match, graph, builder):
        nodes = match.bindings.nodes
        formed = …
        origin = Origin(rule, match.inner)
        n1 = nodes[x]
        key = (sigmoid, id(n1.type), )
        known = formed.get(key)
        if known is None or n1.op in NUMBERS:
            n2 = kept(builder(match, graph).new_call(Sigmoid, (n1, ), {}), formed, key, None, match)
        else:
            n2 = Node(known[0], (n1, ), known[1], known[2])
            n2.name, n2.index, n2.origin = known[3], -1, origin
        …
        return [n3], (n2, n3, )

:meth:`gsl.rewrite.build.Builder.build` is the reference. It also builds what depends on the match, and is not written:
alternatives, conditions, instances of variadics, and expressions that read attributes of what the target builds. What
is written but not the same for equal operands (attributes that are computed) is asked of it, too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from types import FunctionType
from typing import Any

from gsl.attr.ast import Literal
from gsl.attr.compile import Names
from gsl.graph import Graph, Node, Origin
from gsl.match import Match
from gsl.pat import Call, Const, GetItem, Like, OpClass, Pattern, Tuple
from gsl.pat.reads import references
from gsl.rewrite.build import Builder, Free, needed, not_matched
from gsl.rewrite.calls import NUMBERS, is_stateless
from gsl.spec import OpSpec

MakeBuilder = Callable[[Match, Graph], Builder]
Build = Callable[[Match, Graph, MakeBuilder], "tuple[list[Node], tuple[Node, ...] | None]"]
"""The nodes of the outputs, and all nodes that were made, operands first, if that is known. Raises Refusal."""
MOST_CALLS = 4096
"""The largest number of different calls that are remembered."""


def written(
    outputs: Sequence[Pattern], known: Collection[Pattern], sure: Collection[Pattern], scopes: Collection[Pattern],
    rule: str, free: Free,
) -> Build | None:  # fmt: skip
    """The function of a target, which makes nodes in the reference's order; ``None`` if the reference has to do it.

    ``known`` are the patterns of the source, ``sure`` those that every match binds, ``scopes`` the templates among
    them.
    """
    writer = _Writer(known, sure, rule, free)
    for output in outputs:
        work = [output]
        while work:
            pattern = work[-1]
            writer.look_up(pattern)
            if pattern in writer.variables:
                work.pop()
                continue
            if pattern in scopes or not _is_plain(pattern, known, scopes):
                return None
            operands = needed(pattern)
            for operand in operands:
                writer.look_up(operand)
            below = [operand for operand in operands if operand not in writer.variables]
            if below:
                work += reversed(below)
                continue
            work.pop()
            writer.make(pattern, [writer.variables[operand] for operand in operands])
    if any(pattern in scopes for pattern in writer.variables):
        return None
    return writer.function(outputs)


def _is_plain(pattern: Pattern, known: Collection[Pattern], scopes: Collection[Pattern]) -> bool:
    """True if a pattern is built in the same way for every match, from matched patterns."""
    if pattern.guard is not None or pattern.free_symbols or type(pattern) not in (Call, Like, Tuple, GetItem, Const):
        return False
    return all(used in known and used not in scopes for node in pattern.expressions() for used in references(node))


class _Writer:
    """Writes the lines of one function."""

    def __init__(self, known: Collection[Pattern], sure: Collection[Pattern], rule: str, free: Free) -> None:
        self.known = known
        self.sure = sure
        self.free = free
        self.variables: dict[Pattern, str] = {}
        """The variable of each pattern that is matched or made by now."""
        self.made: list[str] = []
        """The variables of new nodes, operands first."""
        self.all_made = True
        """True if these are all new nodes, and are new in any case."""
        self.numbers: set[str] = set()
        """The variables whose nodes may be numbers."""
        self.names = Names()
        of = self.names.of
        self.lines = [
            "nodes = match.bindings.nodes",
            f"formed = {of(_formed)}({of({})}, graph)",
            f"origin = {of(Origin)}({rule!r}, match.inner)",
        ]

    def line(self, text: str) -> None:
        self.lines.append(text)

    def variable(self, pattern: Pattern) -> str:
        name = self.variables[pattern] = f"n{len(self.variables)}"
        return name

    def look_up(self, pattern: Pattern) -> None:
        """Have a variable for the node of a pattern of the source."""
        if pattern in self.variables or pattern not in self.known:
            return
        of, var = self.names.of, self.variable(pattern)
        if pattern in self.sure:
            self.line(f"{var} = nodes[{of(pattern)}]")
        else:
            self.line(f"{var} = nodes.get({of(pattern)})")
            self.line(f"if {var} is None: raise {of(not_matched)}({of(pattern)})")
        if not isinstance(pattern, Call):
            self.numbers.add(var)

    def make(self, pattern: Pattern, operands: list[str]) -> None:
        """Make the node of a pattern of the target."""
        of, var, builder = self.names.of, self.variable(pattern), "builder(match, graph)"
        match pattern:
            case Call():
                values = self._values(pattern)
                if values is None:
                    self.line(f"{var} = {builder}.call({of(pattern)}, {_row(operands)}, {{}})")
                else:
                    new_call = f"new_call({of(pattern.op)}, {_row(operands)}, {of(values)})"
                    self.call(pattern, var, operands, new_call, None)
                self.made.append(var)
            case Like():
                model, *rest = operands
                if pattern.attrs or model in self.made:
                    self.all_made &= model not in self.made  # a model that is made is no operand
                    self.line(f"{var} = {builder}.like({of(pattern)}, {model}, {_row(rest)}, {{}})")
                else:
                    self.call(pattern, var, rest, f"like({of(pattern)}, {model}, {_row(rest)}, {{}})", model)
                self.made.append(var)
            case Tuple():
                self.line(f"{var} = {builder}.tuple({_row(operands)})")
                self.made.append(var)
                self.numbers.add(var)
            case GetItem():
                index = f"{builder}.value({of(pattern.number)}, {{}})"
                self.line(f"{var} = {builder}.getitem({operands[0]}, {index})")
                self.all_made = False
                self.numbers.add(var)
            case Const():
                self.line(f"{var} = {builder}.const({of(pattern)}, {{}})")
                self.all_made = False
                self.numbers.add(var)

    def call(self, pattern: Pattern, var: str, operands: list[str], slow: str, model: str | None) -> None:
        """Make a call as an equal one was made before, if one was, or else by a method of the builder.

        Calls are equal if the types of their operands have the same addresses, and so have the attributes of the model,
        if there is one. Numbers are told apart by more than their types.
        """
        of = self.names.of
        addresses = [f"id({operand}.type)" for operand in operands]
        tests = [f"{operand}.op in {of(NUMBERS)}" for operand in dict.fromkeys(operands) if operand in self.numbers]
        if model is not None:
            addresses.append(f"id({model}.attrs)")
            tests.insert(0, f"known[0] != {model}.op")
        self.line(f"key = {_row([of(pattern), *addresses])}")
        self.line("known = formed.get(key)")
        self.line(f"if {' or '.join(['known is None', *tests])}:")
        self.line(f"    {var} = {of(_kept)}(builder(match, graph).{slow}, formed, key, {model}, match)")
        self.line("else:")
        self.line(f"    {var} = {of(Node)}(known[0], {_row(operands)}, known[1], known[2])")
        self.line(f"    {var}.name, {var}.index, {var}.origin = known[3], -1, origin")

    def _values(self, pattern: Call) -> dict[str, Any] | None:
        """The attributes of a call, if they are written out and no others can get lost."""
        op = pattern.op
        if isinstance(op, OpClass):
            return None
        values = {name: node.value for name, node in pattern.attrs.items() if isinstance(node, Literal)}
        left_out = self.free.get(op.name, ()) if isinstance(op, OpSpec) else ()
        if len(values) < len(pattern.attrs) or not all(name in values for _, name in left_out):
            return None
        return values

    def function(self, outputs: Sequence[Pattern]) -> Build:
        """The function."""
        results = []
        for number, output in enumerate(outputs):
            var = self.variables[output]
            if var in self.numbers:  # it may not be one where a tensor was
                self.all_made = False
                var = f"builder(match, graph).instead(match.outputs[{number}], {var})"
            results.append(var)
        self.line(f"return [{', '.join(results)}], {_row(self.made) if self.all_made else None}")
        table = dict(self.names.table)
        exec(compile("\n    ".join(["def build(match, graph, builder):", *self.lines]), "<target>", "exec"), table)
        build: Build = table["build"]
        return build


def _row(items: Sequence[str]) -> str:
    """The source of a tuple."""
    return f"({''.join(f'{item}, ' for item in items)})"


def _formed(own: dict[Any, dict[Any, Any]], graph: Graph) -> dict[Any, Any]:
    """The calls that are known for a graph. Those whose types a mere function infers, and of which a mere function
    tells whether they can be written, are the same for all graphs."""
    infer, writable = graph.infer, graph.writable
    if type(infer) is not FunctionType or (writable is not None and type(writable) is not FunctionType):
        return graph.formed
    formed = own.get((infer, writable))
    if formed is None:
        formed = own[infer, writable] = {}
    return formed


def _kept(node: Node, formed: dict[Any, Any], key: Any, model: Node | None, match: Match) -> Node:
    """A new call, after taking note of it for the calls that are equal to it.

    Its type is the same object as that of an operand or of what it may replace, if they are equal: types are compared
    at every match, and an object is equal to itself at once.
    """
    known = [near.type for near in (*node.operands, *match.outputs)]
    node.type = next((type for type in known if type == node.type), node.type)
    if is_stateless(node.op) and not any(operand.op in NUMBERS for operand in node.operands):
        if len(formed) >= MOST_CALLS:
            formed.clear()
        kept = [operand.type for operand in node.operands], model and model.attrs
        formed[key] = node.op, node.attrs, node.type, node.name, kept
    return node
