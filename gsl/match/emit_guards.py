"""Guards as Python source."""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn

from gsl.attr.compile import NO_VALUE, NotCompiled, source
from gsl.errors import EvaluationError
from gsl.graph import Node
from gsl.match.bindings import AttrPath, read
from gsl.match.conditions import LiteralValue
from gsl.match.constraints import OneUser, Output, UsedOutside
from gsl.match.engine import SKIPPED, MatchSearch
from gsl.match.guard import Guard
from gsl.match.instances import all_of
from gsl.pat import Instance, Pattern, Repeat, Variadic

if TYPE_CHECKING:
    from gsl.match.emit import Emitter
    from gsl.match.plan import Plan


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
    if not isinstance(guard, (OneUser, Output, UsedOutside)) or not _uses(emitter, guard, path):
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
        return f"{of(_unbound)}({of(pattern)})" if var is None else f"{of(read)}({var}, {name!r})"

    around = emitter.plan.scopes.get(guard.owner, ()) if guard.owner is not None else ()
    is_numbered = path and {each.symbol for each in around} >= guard.expected.symbols
    number = str(path[-1]) if is_numbered else None
    value = source(guard.expected, out.names, attribute, bindings.chosen.get, number)
    if guard.actual is None:
        out.attempt(f"value = {value}", errors=of(NO_VALUE))
        out.fail_if("value is not True")
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
    of = emitter.of
    taken = "".join(f"{var}: ({of(owner[0])}, ()), " for var, owner in emitter.taken.items())
    for many in emitter.many.values():
        taken += f"**{of(dict.fromkeys)}({of(all_of)}({many.var}, {of(many.own)}), (None, ())), "
    given = ", ".join(f"{{{table}}}" for table in (*emitter.tables(), taken))
    if emitter.bindings.skipped:
        given += f", {emitter.skipped()}"
    numbers = "".join(f"{number}, " for number in path)
    state = f"{of(_state)}({of(emitter.plan)}, outputs, blocked, {given})"
    emitter.out.fail_if(f"not {of(guard)}.check({state}, ({numbers}))")


def _state(
    plan: Plan, outputs: Container[Node], blocked: Collection[Node], nodes: dict[Any, Node], chosen: dict[Any, int],
    operators: dict[Any, Any], counts: dict[Any, int], heads: dict[Any, Node], taken: dict[Node, Any],
    skipped: Mapping[Node, bool] = MappingProxyType({}),
) -> MatchSearch:  # fmt: skip
    search = MatchSearch(plan, outputs, blocked)
    bindings = search.bindings
    bindings.nodes, bindings.chosen, bindings.counts, bindings.heads = nodes, chosen, counts, heads
    bindings.skipped.update(skipped)
    search.operators, search.taken = operators, {**taken, **dict.fromkeys(skipped, SKIPPED)}
    return search
