"""A rule's source, compiled: from which nodes a search may start."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from gsl.attr.ast import Ast
from gsl.errors import PatternError
from gsl.graph import Graph, Node, Op
from gsl.match.engine import Search
from gsl.match.guard import references
from gsl.match.matchers import CallMatcher
from gsl.match.result import Match
from gsl.match.start import Start
from gsl.pat import (
    Alt,
    And,
    Call,
    Cond,
    Constraint,
    Exactly,
    GetItem,
    Instance,
    Leaf,
    Like,
    Pattern,
    Repeat,
    Seq,
    Tuple,
    Use,
    Variadic,
    walk,
)
from gsl.pat import Match as MatchClause


class Plan:
    """The compiled source of a rule.

    ``where`` are conditions on the whole match; ``distinct`` demands that no two leaves are the same node. Raises
    PatternError for a source that can't be matched: target-only patterns, parts that are not connected, an expression
    that refers to something else.
    """

    def __init__(
        self,
        outputs: Sequence[Pattern],
        where: Sequence[Ast] = (),
        *,
        constraints: Sequence[Constraint] = (),
        distinct: bool = False,
        extern_use: bool | None = None,
        fuzzy: Sequence[Op] = (),
    ) -> None:
        self.outputs = tuple(outputs)
        self.where = tuple(where)
        self.distinct = distinct
        self.extern_use = extern_use
        self.fuzzy = frozenset(fuzzy)
        related = [pattern for c in constraints if isinstance(c, Use) for pattern in c.patterns()]
        self.patterns = tuple(walk(*outputs, *related))
        self.constraints = dict.fromkeys(
            (*constraints, *(c for pattern in self.patterns if isinstance(pattern, Seq) for c in pattern.constraints))
        )
        self.known = frozenset(self.patterns)
        self.variadic = outputs[0] if len(outputs) == 1 and isinstance(outputs[0], Variadic) else None
        self.scopes = _scopes(self.patterns)
        self.identity = _identity(self.patterns)
        """For the parts of an ``&``: what they have in common, because they are one node."""
        self.sure = dict.fromkeys(_sure((*self.outputs, *related)))
        """The patterns that every match binds exactly once; operators before leaves, outputs first."""
        self.required = (*self.outputs, *related)
        """What a search must bind."""
        self.relations = tuple(c for c in constraints if isinstance(c, Use))
        """The use relations that hold in every match, and that no sequence checks."""
        inside = [c for p in self.sure if isinstance(p, Seq) for c in p.constraints if isinstance(c, Use)]
        self.ways = (*self.relations, *inside)
        """The use relations that lead from one sure pattern to another."""
        self._check()
        self._starts: dict[Pattern, Start] = {}
        operators = [p for p in self.sure if isinstance(p, (Call, GetItem, Tuple))]
        others = [p for p in self.sure if not isinstance(p, Leaf)]
        self.anchors = operators or others or list(self.sure)
        """The patterns from which a search can start."""
        self.start(self.anchors[0])

    def _check(self) -> None:
        for pattern in self.patterns:
            if isinstance(pattern, (Cond, MatchClause, Like, Instance, Exactly)):
                raise PatternError(
                    f"{pattern.location}: {type(pattern).__name__} belongs in a target, it can't be matched; "
                    "in a source use pat.Alt or where="
                )
            if isinstance(pattern, Variadic) and pattern in self.outputs and self.variadic is None:
                raise PatternError(f"{pattern.location}: a variadic must be the only output of a source")
            inside = (*self.scopes.get(pattern, ()), pattern)
            for child in pattern.children():
                self._check_scopes(child, inside)
            for node in pattern.expressions():
                self._check_expression(node, pattern)
        for node in self.where:
            self._check_expression(node, None)
        for constraint in self.constraints:
            for pattern in constraint.patterns():
                if pattern not in self.known:
                    raise PatternError(f"{pattern.location}: {constraint!r}: {pattern!r} is not part of the source")
        for pattern in self.outputs:
            self._check_scopes(pattern, ())
        if self.variadic is not None:
            shared = [p for p in walk(self.variadic.field) if p not in self.scopes and not isinstance(p, Variadic)]
            if not shared:
                raise PatternError(
                    f"{self.variadic.location}: the instances of a variadic output must share a pattern that is not "
                    "a template, or they would be unrelated"
                )

    def _check_expression(self, node: Ast, owner: Pattern | None) -> None:
        place = owner.location if owner is not None else "where="
        for used in references(node):
            if used not in self.known and not isinstance(used, Instance):
                raise PatternError(f"{place}: {node!r} refers to {used!r}, which is not part of the source")
            self._check_scopes(used, self.scopes.get(owner, ()) if owner is not None else (), f"{place}: {node!r}: ")

    def _check_scopes(self, pattern: Pattern, around: Sequence[Pattern], place: str = "") -> None:
        """Refuse a template where it is not known which instance is meant."""
        scopes = self.scopes.get(pattern, ())
        if scopes != tuple(around[: len(scopes)]):
            raise PatternError(
                f"{place or f'{pattern.location}: '}{pattern!r} is a template, of which there are many, and is used "
                "outside of its variadic: say which one as variadic(pattern, index)"
            )

    def start(self, anchor: Pattern) -> Start:
        """The compiled search from an anchor."""
        found = self._starts.get(anchor)
        if found is None:
            found = self._starts[anchor] = Start(self, anchor)
        return found

    def anchor(self, by_op: Mapping[Op, list[Node]]) -> tuple[Pattern, list[Node]]:
        """The pattern with the fewest nodes that it might be, and these nodes in graph order."""
        best: tuple[Pattern, list[Node]] | None = None
        for pattern in self.anchors:
            nodes = self.possible(pattern, by_op)
            if best is None or len(nodes) < len(best[1]):
                best = pattern, nodes
            if not nodes:
                break
        assert best is not None
        return best

    def possible(self, anchor: Pattern, by_op: Mapping[Op, list[Node]]) -> list[Node]:
        """The nodes of the operators that a pattern might be, in graph order; of a variadic output, its first field."""
        matchers = self.start(self.anchors[0]).matchers
        matcher = matchers[anchor if self.variadic is None else self.variadic.first_field]
        if isinstance(matcher, CallMatcher) and matcher.ops is not None and len(matcher.ops) == 1:
            (op,) = matcher.ops
            return by_op.get(op, [])
        nodes = [node for group in by_op.values() if matcher.plausible(group[0]) for node in group]
        nodes.sort(key=lambda node: node.index)
        return nodes

    def matches(self, graph: Graph, *, blocked: Collection[Node] = (), search: Search | None = None) -> Iterator[Match]:
        """All matches, ordered by their anchor's place in the graph. Of the groups of a variadic: those that differ."""
        anchor, nodes = self.anchor(graph.by_op())
        start = self.start(anchor)
        search = Search(self, blocked, set(graph.outputs)) if search is None else search
        grouped: set[Node] = set()
        for node in nodes:
            if node not in blocked and node not in grouped:
                for match in start.search(node, blocked, search):
                    if self.variadic is not None:
                        grouped.update(match.outputs)
                    yield match


def _scopes(patterns: Sequence[Pattern]) -> dict[Pattern, tuple[Variadic | Repeat, ...]]:
    """For every pattern that is a template: the variadics of which it has instances, outermost first."""
    scopes: dict[Pattern, tuple[Variadic | Repeat, ...]] = {}
    for variadic in reversed(patterns):  # users first, so that an outer variadic comes before an inner one
        if isinstance(variadic, (Variadic, Repeat)):
            outer = scopes.get(variadic, ())
            for template in variadic.templates:
                scopes[template] = (*outer, variadic)
    return scopes


def _identity(patterns: Sequence[Pattern]) -> dict[Pattern, Pattern]:
    """A representative for each set of patterns that are parts, and alternatives, of the same conjunctions."""
    parent: dict[Pattern, Pattern] = {}

    def find(pattern: Pattern) -> Pattern:
        while pattern in parent:
            pattern = parent[pattern]
        return pattern

    conjunct: set[Pattern] = set()
    for pattern in reversed(patterns):
        if isinstance(pattern, And) or (isinstance(pattern, (Alt, Seq)) and pattern in conjunct):
            for part in pattern.same_node():
                conjunct.add(part)
                if find(part) is not find(pattern):
                    parent[find(part)] = find(pattern)
    return {pattern: find(pattern) for pattern in parent}


def _sure(outputs: Sequence[Pattern]) -> Iterator[Pattern]:
    """The patterns outside of alternatives, negations and variadics; operators before leaves, outputs first."""
    found: dict[Pattern, None] = {}
    work = list(outputs)[::-1]
    while work:
        pattern = work.pop()
        if pattern in found:
            continue
        found[pattern] = None
        if isinstance(pattern, (Call, Tuple, GetItem, And, Seq)):
            work.extend(reversed(list(pattern.children())))
    yield from (pattern for pattern in found if isinstance(pattern, (Call, GetItem, Tuple)))
    yield from (pattern for pattern in found if not isinstance(pattern, (Call, GetItem, Tuple)))
