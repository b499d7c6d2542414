"""Guards as Python source, and the bindings at the place where they are asked."""

from __future__ import annotations

from collections.abc import Collection, Container
from typing import TYPE_CHECKING, Any, NoReturn

from gsl.attr.compile import NO_VALUE, Uncovered, source
from gsl.errors import EvaluationError
from gsl.graph import Node
from gsl.match.bindings import read
from gsl.match.conditions import Value
from gsl.match.constraints import OneUser, Output, UsedOutside
from gsl.match.engine import Search
from gsl.match.guard import Guard
from gsl.match.instances import all_of
from gsl.match.source import Bound, Writer
from gsl.pat import Instance, Pattern, Repeat, Variadic

if TYPE_CHECKING:
    from gsl.match.plan import Plan


def write_guard(out: Writer, plan: Plan, guard: Guard, bound: Bound) -> None:
    """Write the test that a guard holds."""
    if guard.owner is not None and not _may_be_bound(plan, guard.owner, bound):
        return  # it is part of an alternative that was not taken
    if type(guard) in (Guard, Value):
        mark = out.mark()
        try:
            symbols = {each.symbol for each in plan.scopes.get(guard.owner, ())} if guard.owner is not None else set()
            _expression(out, guard, bound, bound.number if symbols >= guard.expected.symbols else None)
            return
        except Uncovered:
            out.back(mark)
    if not isinstance(guard, (OneUser, Output, UsedOutside)) or not _uses(out, guard, bound):
        _ask(out, plan, guard, bound)


def _may_be_bound(plan: Plan, owner: Pattern, bound: Bound) -> bool:
    """True if a pattern is bound, or is a template that may have instances."""
    around = plan.scopes.get(owner)
    return owner in bound.nodes or owner in bound.many or (around is not None and around[0] in bound.many)


def _expression(out: Writer, guard: Guard, bound: Bound, number: str | None) -> None:
    """Test that the expression is true, or equals the value of the node. An index stands for a number."""
    of = out.names.of

    def attribute(pattern: Any, name: str) -> str:
        if isinstance(pattern, (Variadic, Repeat)) and name == "length":
            return f"{of(_unbound)}({of(pattern)})" if pattern not in bound.many else bound.many[pattern].length
        if isinstance(pattern, Instance):
            raise Uncovered
        var = bound.nodes.get(pattern)
        return f"{of(_unbound)}({of(pattern)})" if var is None else f"{of(read)}({var}, {name!r})"

    value = source(guard.expected, out.names, attribute, bound.chosen.get, number)
    if guard.actual is None:
        out.attempt(f"value = {value}", errors=of(NO_VALUE))
        out.fail_if("value is not True")
        return
    assert guard.owner is not None
    if isinstance(guard.owner, Variadic):
        raise Uncovered  # it has a number of instances where it is no node
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
        case UsedOutside() if bound.many:
            return False
        case UsedOutside():
            taken = f"({''.join(f'{each}, ' for each in bound.taken.values())})"
            ends = [bound.nodes[output] for output in guard.outputs if output in bound.nodes]
            for each in (var,) if var else bound.taken.values():
                if var or each not in ends:
                    rest = [end for end in ends if end not in bound.above[each]] if not var else []
                    others = "".join(f" and {each} is not {end}" for end in rest)
                    used = f"{out.names.of(is_used_outside)}({each}, outputs, {taken})"
                    if not bound.above[each].isdisjoint(bound.taken.values()):  # so its only user is part of the match
                        used = f"((len({each}.users) > 1 or {each} in outputs) and {used})"
                    out.fail_if(f"{'not ' if guard.used else ''}{used}{others}")
    return True


def is_used_outside(node: Node, outputs: Container[Node], taken: Collection[Node]) -> bool:
    """True if a node is an output of the graph, or has a user that is not part of the match."""
    for user in node.users:
        if user not in taken:
            return True
    return node in outputs


def _ask(out: Writer, plan: Plan, guard: Guard, bound: Bound) -> None:
    """The guard itself decides, of a search that has bound as much."""
    of = out.names.of
    taken = "".join(f"{var}: ({of(identity)}, ()), " for identity, var in bound.taken.items())
    for many in bound.many.values():
        taken += f"**{of(dict.fromkeys)}({of(all_of)}({many.var}, {of(many.own)}), (None, ())), "
    given = ", ".join(f"{{{table}}}" for table in (*tables(out, plan, bound), taken))
    path = "()" if bound.number is None else f"({bound.number},)"
    out.fail_if(f"not {of(guard)}.check({of(_state)}({of(plan)}, outputs, blocked, {given}), {path})")


def tables(out: Writer, plan: Plan, bound: Bound) -> tuple[str, str, str, str, str]:
    """The bindings as the items of tables: nodes, choices, operators, counts and heads."""
    of = out.names.of
    path = f"({bound.number or 0},)"
    nodes = [f"{f'({of(p)}, {path})' if p in plan.scopes else of(p)}: {var}, " for p, var in bound.nodes.items()]
    for many in reversed(bound.many.values()):
        nodes.insert(many.place, f"**{of(many.keys.bind)}({many.var}), ")
    chosen = "".join(f"{of(alt)}: {number}, " for alt, number in bound.chosen.items())
    operators = "".join(f"{of(op)}: {var}.op, " for op, var in bound.operators.items())
    counts = "".join(f"({of(p)}, ()): {many.length}, " for p, many in bound.many.items())
    heads = "".join(f"({of(p)}, ()): {var}, " for p, var in bound.heads.items())
    return "".join(nodes), chosen, operators, counts, heads


def _state(
    plan: Plan, outputs: Container[Node], blocked: Collection[Node], nodes: dict[Any, Node], chosen: dict[Any, int],
    operators: dict[Any, Any], counts: dict[Any, int], heads: dict[Any, Node], taken: dict[Node, Any],
) -> Search:  # fmt: skip
    search = Search(plan, outputs, blocked)
    bindings = search.bindings
    bindings.nodes, bindings.chosen, bindings.counts, bindings.heads = nodes, chosen, counts, heads
    search.operators, search.taken = operators, taken
    return search
