"""Generated source: its lines and names, and the guards in it."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn

from gsl.attr.evaluate import NO_VALUE, Names, NotCompiled, source
from gsl.errors import EvaluationError
from gsl.graph import Node, Op
from gsl.match.bindings import AttrPath, reader
from gsl.match.engine import SKIPPED, MatchSearch, UseLists
from gsl.match.guard import Distinct, Equal, Guard, LiteralValue, OneUser, Output, UsedOutside
from gsl.match.instances import Layout, Layouts
from gsl.match.source import CheckedSource
from gsl.pat import Instance, Pattern, Repeat, Variadic

if TYPE_CHECKING:
    from gsl.match.emit import Emitter


MOST_LINES = 400
"""The largest number of lines of a function. Alternatives write the lines that follow them once for each choice."""
MOST_LOOPS = 12
"""The largest number of loops inside each other; Python allows 20 blocks."""


@dataclass(frozen=True, slots=True)
class Many:
    """The instances of a chain or of a variadic: the variable of a list, of a tuple of nodes for each instance."""

    pattern: Repeat | Variadic
    var: str
    layout: Layout | Layouts
    """The roles of their nodes. Instances before the first of these have variables of their own."""
    ops: frozenset[Op] | None
    """The operators that their own nodes may have, ``None`` where they can't be enumerated."""
    places: tuple[int, int, int]
    """The number of patterns that were bound before, of alternatives that were chosen, and of classes that stood for
    one operator."""
    taken: str | None = None
    """The variable of a set of their own nodes, where there is one."""

    @property
    def length(self) -> str:
        """The number of all instances."""
        return f"(len({self.var}) + {self.layout.first})" if self.layout.first else f"len({self.var})"


class TakenNeeded(Exception):
    """Raised where a node may be one of the instances of a pattern, of which no set is kept."""

    def __init__(self, pattern: Repeat | Variadic) -> None:
        super().__init__()
        self.pattern = pattern


class SearchWriter:
    """A function in two parts: tests in a row, and from the first choice on a generator, in which choices are loops."""

    def __init__(self, parameters: Sequence[str], name: str = "find", names: Names | None = None) -> None:
        self.names = Names() if names is None else names
        self.name = name
        self.is_generator = False
        self._lines = [f"def {name}({', '.join(parameters)}):"]
        self._others: list[SearchWriter] = []
        self._variables = list(parameters)
        self._depth = 1
        """The number of loops around a line, and the function."""
        self._inside = 0
        """The number of other blocks around it."""
        self._number = 0

    def other(self, parameters: Sequence[str], kind: type[SearchWriter] | None = None) -> SearchWriter:
        """A function beside this one."""
        other = (kind or SearchWriter)(parameters, f"{self.name}_{len(self._others)}", self.names)
        other._number = self._number
        self._others.append(other)
        return other

    def variable(self) -> str:
        """A new variable."""
        self._number += 1
        name = f"n{self._number}"
        if not self.is_generator:
            self._variables.append(name)
        return name

    @property
    def is_long(self) -> bool:
        """True if the function has as many lines as it may have."""
        return len(self._lines) > MOST_LINES

    def line(self, text: str) -> None:
        """Write a line."""
        self._lines.append("    " * (self._depth + self._inside) + text)

    def mark(self) -> tuple[int, int, int, int, bool, int]:
        """The place that is reached: lines, functions beside this one, variables of the first part, and blocks."""
        lengths = (len(self._lines), len(self._others), len(self._variables))
        return *lengths, self._depth, self.is_generator, self._inside

    def back(self, mark: tuple[int, int, int, int, bool, int]) -> None:
        """Forget what was written since."""
        lines, others, variables, self._depth, self.is_generator, self._inside = mark
        del self._lines[lines:], self._others[others:], self._variables[variables:]

    @property
    def miss(self) -> str:
        """The statement for a test that fails."""
        return "return ()" if not self.is_generator else "return" if self._depth == 1 else "continue"

    def fail_if(self, condition: str, word: str = "if") -> None:
        """Go on with the innermost choice if a condition holds."""
        self.line(f"{word} {condition}: {self.miss}")

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Put the lines that are written meanwhile below a head; the block is no choice."""
        self.line(head)
        self._inside += 1
        yield
        self._inside -= 1

    def result(self, value: str) -> None:
        """Give a value, and go on with the innermost choice, if there is one."""
        self.line(f"yield {value}" if self.is_generator else f"return ({value},)")

    def results(self, values: str) -> None:
        """Give several values, and go on."""
        self.line(f"{'yield from' if self.is_generator else 'return'} {values}")

    def attempt(self, *lines: str, errors: str) -> None:
        """Write lines; an error in them is a failed test."""
        self.line("try:")
        for text in lines:
            self.line(f"    {text}")
        self.line(f"except {errors}: {self.miss}")

    @contextmanager
    def loop(self, over: str, number: int = 1) -> Iterator[list[str]]:
        """A choice: a loop around the lines that are written meanwhile. Gives its variables."""
        if not self.is_generator:
            rest = f"{self.name}_choices({', '.join(self._variables)})"
            self.line(f"return {rest}")
            self._lines += ["", f"def {rest}:"]
            self.is_generator = True
        if self._depth > MOST_LOOPS:
            raise NotCompiled
        new = [self.variable() for _ in range(number)]
        self.line(f"for {', '.join(new)} in {over}:")
        self._depth += 1
        yield new
        self._depth -= 1

    def function(self) -> Any:
        """The function."""
        table = dict(self.names.table)
        exec(compile(self.text(), "<search>", "exec"), table)
        return table["find"]

    def text(self) -> str:
        """The source of the function, and of those beside it."""
        return "\n".join(self._lines) + "\n" + "".join(f"\n{other.text()}" for other in self._others)


class RowWriter(SearchWriter):
    """A function that goes from node to node in one loop, ``this`` by ``this``, until a test fails: without choices."""

    def __init__(self, parameters: Sequence[str], name: str, names: Names) -> None:
        super().__init__(parameters, name, names)
        self.line("links = []")
        self.line("while True:")
        self._inside = 1

    @property
    def miss(self) -> str:
        return "break"

    def result(self, value: str) -> None:
        self.line(f"links.append({value})")

    def loop(self, over: str, number: int = 1) -> NoReturn:
        raise NotCompiled

    def end(self) -> None:
        """End the loop."""
        self._inside = 0


def guard_source(emitter: Emitter, guard: Guard, path: AttrPath) -> None:
    """Write the test that a guard holds."""
    if guard.owner is not None and not _may_be_bound(emitter, guard.owner, path):
        return  # it is part of an alternative that was not taken
    if type(guard) in (Guard, LiteralValue):
        mark = emitter.out.mark()
        try:
            _expression(emitter, guard, path)
            return
        except NotCompiled:
            emitter.out.back(mark)
    match guard:
        case OneUser() | Output() | UsedOutside() if _uses(emitter, guard, path):
            return
        case Distinct() if _distinct(emitter, guard, path):
            return
        case Equal() if _equal(emitter, guard, path):
            return
    _ask(emitter, guard, path)


def _may_be_bound(emitter: Emitter, owner: Pattern, path: AttrPath) -> bool:
    """True if a pattern is bound, or is a template that may have instances."""
    around = emitter.plan.scopes.get(owner)
    is_bound = emitter.bindings.get(owner, path) is not None
    return is_bound or owner in emitter.many or (around is not None and around[0] in emitter.many)


def _expression(emitter: Emitter, guard: Guard, path: AttrPath) -> None:
    """Test that the expression is true, or equals the value of the node. An index stands for a number."""
    of, out, bindings = emitter.of, emitter.out, emitter.bindings

    def attribute(pattern: Any, name: str) -> str:
        if isinstance(pattern, (Variadic, Repeat)) and name == "length":
            return f"{of(_unbound)}({of(pattern)})" if pattern not in emitter.many else emitter.many[pattern].length
        if isinstance(pattern, Instance):
            raise NotCompiled
        var = bindings.get(pattern, path)
        return f"{of(_unbound)}({of(pattern)})" if var is None else f"{of(reader(pattern, name))}({var}, {name!r})"

    def choice(alternative: Any) -> int | None:
        return bindings.chosen.get(bindings.key(alternative, path))

    around = emitter.plan.scopes.get(guard.owner, ()) if guard.owner is not None else ()
    is_numbered = path and {each.symbol for each in around} >= guard.expected.symbols
    number = str(path[-1]) if is_numbered else None
    value = source(guard.expected, out.names, attribute, choice, number)
    if guard.actual is None:
        out.attempt(f"value = {value}", errors=of(NO_VALUE))
        out.fail_if(f"value is not True and {of(guard)}.denies(value)")
        return
    assert guard.owner is not None
    if isinstance(guard.owner, Variadic):
        raise NotCompiled  # it has a number of instances where it is no node
    var = bindings.node(guard.owner, path)
    out.attempt(f"actual = {of(guard.actual)}(None, {var}, ())", f"value = {value}", errors=of(NO_VALUE))
    out.fail_if(f"not {of(guard)}.fits(value, actual, {var})")


def _unbound(pattern: Pattern) -> NoReturn:
    raise EvaluationError(f"{pattern!r} was not matched")


def _uses(emitter: Emitter, guard: OneUser | Output | UsedOutside, path: AttrPath) -> bool:
    """A guard on the users of nodes; false if it is not written as source."""
    var = "" if guard.pattern is None else emitter.bindings.get(guard.pattern, path)
    if var is None:
        return True
    match guard:
        case OneUser():
            emitter.out.fail_if(f"len({var}.users) + ({var} in outputs) != 1")
        case Output():
            emitter.out.fail_if(f"{var} not in outputs")
        case UsedOutside() if emitter.many or emitter.bindings.skipped:
            return False
        case UsedOutside():
            _used_outside(emitter, guard, var, path)
    return True


def _distinct(emitter: Emitter, guard: Distinct, path: AttrPath) -> bool:
    """The leaf has a node of its own; false if that is not written as source."""
    nodes = emitter.bindings.nodes
    if path or emitter.many or any(isinstance(key, tuple) for key in nodes):
        return False
    for pattern, var in nodes.items():
        if pattern is not guard.owner and guard.counts(pattern):
            emitter.out.fail_if(f"{nodes[guard.owner]} is {var}")
    return True


def _equal(emitter: Emitter, guard: Equal, path: AttrPath) -> bool:
    """Two calls have equal attributes; false if that is not written as source."""
    if path or not emitter.plan.scopes.keys().isdisjoint(guard.references()):
        return False
    left, right = (emitter.bindings.get(pattern, path) for pattern in (guard.constraint.left, guard.constraint.right))
    if left is not None:
        differ = "True" if right is None else f"{emitter.of(guard)}.difference({left}, {right}) is not None"
        emitter.out.fail_if(differ)
    return True


def _used_outside(emitter: Emitter, guard: UsedOutside, var: str, path: AttrPath) -> None:
    """A node, or without one each inner node, is used outside the match, or is not."""
    out, all_taken, above = emitter.out, emitter.taken.keys(), emitter.above
    taken = f"({''.join(f'{each}, ' for each in all_taken)})"
    ends = [end for output in guard.outputs if (end := emitter.bindings.get(output, path)) is not None]
    for each in (var,) if var else all_taken:
        if var or each not in ends:
            rest = [end for end in ends if end not in above[each]] if not var else []
            others = "".join(f" and {each} is not {end}" for end in rest)
            used = f"{out.names.of(is_used_outside)}({each}, outputs, {taken})"
            if not above[each].isdisjoint(all_taken):  # so its only user is part of the match
                used = f"((len({each}.users) > 1 or {each} in outputs) and {used})"
            out.fail_if(f"{'not ' if guard.used else ''}{used}{others}")


def is_used_outside(node: Node, outputs: Container[Node], taken: Collection[Node]) -> bool:
    """True if a node is an output of the graph, or has a user that is not part of the match."""
    for user in node.users:
        if user not in taken:
            return True
    return node in outputs


def _ask(emitter: Emitter, guard: Guard, path: AttrPath) -> None:
    """The guard itself decides, of a search that has bound as much."""
    emitter.out.fail_if(f"not {emitter.of(guard)}.check({state(emitter)}, {path_source(path)})")


def state(emitter: Emitter) -> str:
    """A search that has bound as much as what is printed."""
    of = emitter.of
    taken = "".join(f"{var}: ({of(owner[0])}, {path_source(owner[1])}), " for var, owner in emitter.taken.items())
    for many in emitter.many.values():
        taken += f"**{of(dict.fromkeys)}({of(many.layout.own_of_all)}({many.var}), (None, ())), "
    related = "".join(f"({of(use)}, {path_source(path)}): True, " for use, path in emitter.related)
    given = ", ".join(f"{{{table}}}" for table in (*emitter.tables(), taken, related))
    if emitter.bindings.skipped:
        given += f", {emitter.skipped()}"
    return f"{of(_state)}({of(emitter.plan)}, outputs, blocked, use_lists, {given})"


def path_source(path: AttrPath) -> str:
    """The source of a path."""
    return f"({''.join(f'{number}, ' for number in path)})"


def _state(
    plan: CheckedSource, outputs: Container[Node], blocked: Collection[Node], use_lists: UseLists,
    nodes: dict[Any, Node], chosen: dict[Any, int], operators: dict[Any, Any], counts: dict[Any, int],
    heads: dict[Any, Node], taken: dict[Node, Any], related: dict[Any, bool],
    skipped: Mapping[Node, bool] = MappingProxyType({}),
) -> MatchSearch:  # fmt: skip
    search = MatchSearch(plan, outputs, blocked, use_lists)
    bindings = search.bindings
    bindings.nodes, bindings.chosen, bindings.counts, bindings.heads = nodes, chosen, counts, heads
    bindings.skipped.update(skipped)
    search.operators, search.related = operators, related
    search.taken = {**taken, **dict.fromkeys(skipped, SKIPPED)}
    return search
