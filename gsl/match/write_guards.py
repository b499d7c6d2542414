"""Guards as Python source."""

from __future__ import annotations

from collections.abc import Collection, Container
from typing import TYPE_CHECKING, Any, NoReturn

from gsl.attr.compile import NO_VALUE, Uncovered, source
from gsl.errors import EvaluationError
from gsl.graph import Node
from gsl.match.conditions import Value
from gsl.match.constraints import OneUser, Output, UsedOutside
from gsl.match.engine import Search
from gsl.match.guard import Guard, read
from gsl.match.source import Bound, Writer
from gsl.pat import Instance, Pattern, Repeat, Variadic

if TYPE_CHECKING:
    from gsl.match.plan import Plan


def write_guard(out: Writer, plan: Plan, guard: Guard, bound: Bound) -> None:
    """Write the test that a guard holds."""
    if guard.owner is not None and guard.owner not in bound.nodes:
        return  # it is part of an alternative that was not taken
    if type(guard) in (Guard, Value):
        mark = out.mark()
        try:
            _expression(out, guard, bound)
            return
        except Uncovered:
            out.back(mark)
    if not isinstance(guard, (OneUser, Output, UsedOutside)) or not _uses(out, guard, bound):
        _ask(out, plan, guard, bound)


def _expression(out: Writer, guard: Guard, bound: Bound) -> None:
    """The expression is true, or equals what the node has."""
    of = out.names.of

    def attribute(pattern: Any, name: str) -> str:
        if isinstance(pattern, (Instance, Variadic, Repeat)):
            raise Uncovered
        var = bound.nodes.get(pattern)
        return f"{of(_unbound)}({of(pattern)})" if var is None else f"{of(read)}({var}, {name!r})"

    value = source(guard.expected, out.names, attribute, bound.chosen.get)
    if guard.actual is None:
        out.attempt(f"value = {value}", errors=of(NO_VALUE))
        out.fail_if("value is not True")
        return
    assert guard.owner is not None
    var = bound.nodes[guard.owner]
    out.attempt(f"actual = {of(guard.actual)}(None, {var}, ())", f"value = {value}", errors=of(NO_VALUE))
    out.fail_if(f"not {of(guard)}.fits(value, actual, {var})")


def _unbound(pattern: Pattern) -> NoReturn:
    raise EvaluationError(f"{pattern!r} was not matched")


def _uses(out: Writer, guard: OneUser | Output | UsedOutside, bound: Bound) -> bool:
    """A guard on the users of nodes; false if it is not written as source."""
    if guard.pattern is not None and guard.pattern not in bound.nodes:
        return True
    var = bound.nodes[guard.pattern] if guard.pattern is not None else ""
    match guard:
        case OneUser():
            out.fail_if(f"len({var}.users) + ({var} in outputs) != 1")
        case Output():
            out.fail_if(f"{var} not in outputs")
        case UsedOutside():
            taken = f"({''.join(f'{each}, ' for each in bound.taken.values())})"
            ends = [bound.nodes[output] for output in guard.outputs if output in bound.nodes]
            for each in (var,) if var else bound.taken.values():
                if var or each not in ends:
                    rest = [end for end in ends if end not in bound.above[each]] if not var else []
                    others = "".join(f" and {each} is not {end}" for end in rest)
                    used = f"{out.names.of(is_used_outside)}({each}, outputs, {taken})"
                    out.fail_if(f"{'not ' if guard.used else ''}{used}{others}")
    return True


def is_used_outside(node: Node, outputs: Container[Node], taken: Collection[Node]) -> bool:
    """Whether a node is an output of the graph, or has a user that is not part of the match."""
    for user in node.users:
        if user not in taken:
            return True
    return node in outputs


def _ask(out: Writer, plan: Plan, guard: Guard, bound: Bound) -> None:
    """The guard itself decides, of a search that has bound as much."""
    of = out.names.of
    nodes = ", ".join(f"{of(pattern)}: {var}" for pattern, var in bound.nodes.items())
    chosen = ", ".join(f"{of(alt)}: {number}" for alt, number in bound.chosen.items())
    taken = ", ".join(f"{var}: ({of(identity)}, ())" for identity, var in bound.taken.items())
    operators = ", ".join(f"{of(op)}: {var}.op" for op, var in bound.operators.items())
    state = f"{{{nodes}}}, {{{chosen}}}, {{{taken}}}, {{{operators}}}"
    out.fail_if(f"not {of(guard)}.check({of(_state)}({of(plan)}, outputs, blocked, {state}), ())")


def _state(
    plan: Plan, outputs: Container[Node], blocked: Collection[Node], nodes: dict[Any, Node], chosen: dict[Any, int],
    taken: dict[Node, Any], operators: dict[Any, Any],
) -> Search:  # fmt: skip
    search = Search(plan, outputs, blocked)
    search.bindings.nodes, search.bindings.chosen, search.taken, search.operators = nodes, chosen, taken, operators
    return search
