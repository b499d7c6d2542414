"""The source of a rule: what it consists of, and what is no source."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property

from gsl import pat
from gsl.attr.ast import Ast, Literal
from gsl.errors import PatternError
from gsl.graph import Graph, Op
from gsl.pat import Pattern
from gsl.pat.use import tail
from gsl.pat.variadic import check_segments, is_open, references
from gsl.spec import OperatorName, OpSpec
from gsl.spec.natives import same_function
from gsl.walk import reached


class CheckedSource:
    """The known facts about the source of a rule before it is compiled.

    ``where`` are conditions on the whole match; ``distinct`` demands that no two leaves are the same node. Raises
    PatternError for what is no source: target-only patterns, an expression that refers to something else.
    """

    def __init__(
        self,
        outputs: Sequence[Pattern],
        where: Sequence[Ast] = (),
        *,
        constraints: Sequence[pat.Constraint] = (),
        distinct: bool = False,
        extern_use: bool | None = None,
        fuzzy: Sequence[Op] = (),
    ) -> None:
        self.outputs = tuple(outputs)
        self.where = tuple(where)
        self.distinct = distinct
        self.extern_use = extern_use
        self.fuzzy = frozenset(fuzzy)
        related = [pattern for c in constraints if isinstance(c, pat.Use) for pattern in c.patterns()]
        self.patterns = tuple(pat.walk(*outputs, *related))
        self.given = tuple(dict.fromkeys(constraints))
        """The constraints that hold in every match; those of a sequence hold where it is bound."""
        self.known = frozenset(self.patterns)
        self.bindable = frozenset(_bindable((*outputs, *related)))
        """The patterns that a match can bind: those that are not part of a negation only."""
        self.variadic = outputs[0] if len(outputs) == 1 and isinstance(outputs[0], pat.Variadic) else None
        check_segments(self.patterns, (*outputs, *related))
        self._check_places()
        self.scopes = _scopes(self.patterns)
        self.identity = _identity(self.patterns)
        """For the parts of an ``&``: their common pattern, because they are one node."""
        self.sure = dict.fromkeys(_sure((*self.outputs, *related)))
        """The patterns that every match binds exactly once; operators before leaves, outputs first."""
        self.required = (*self.outputs, *related)
        """The patterns that a search must bind."""
        self.relations = tuple(c for c in constraints if isinstance(c, pat.Use))
        """The use relations that hold in every match, and that no sequence checks."""
        inside = [c for p in self.sure if isinstance(p, pat.Seq) for c in p.constraints if isinstance(c, pat.Use)]
        self.ways = (*self.relations, *inside)
        """The use relations that lead from one sure pattern to another."""
        self.domains = {p: p.guard.values for p in self.patterns if p.guard is not None and p.guard.values is not None}
        """The patterns of which the values are demanded to be of a domain."""
        calls = [p for p in self.patterns if isinstance(p, pat.Call)]
        self.natives = [p for p in calls if not isinstance(p.op, (OpSpec, pat.OpClass))]
        self._check()
    def _check(self) -> None:
        for pattern in self.patterns:
            if isinstance(pattern, (pat.Cond, pat.Match, pat.Like, pat.Instance, pat.Exactly, pat.Fused, pat.Module)):
                raise PatternError(
                    f"{pattern.location}: {type(pattern).__name__} belongs in a target, it can't be matched; "
                    "in a source use pat.Alt or where="
                )
            if is_open(pattern) and pattern in self.scopes:
                raise PatternError(f"{pattern.location}: {pattern!r} is a template, so it can't have segments")
            if isinstance(pattern, pat.Variadic) and pattern in self.outputs and self.variadic is None:
                raise PatternError(f"{pattern.location}: a variadic must be the only output of a source")
            inside = (*self.scopes.get(pattern, ()), pattern)
            for child in pattern.children():
                self._check_scopes(child, inside)
            for node in pattern.expressions():
                self._check_expression(node, pattern)
        for node in self.where:
            self._check_expression(node, None)
            for used in references(node):
                if used in self.known - self.bindable:
                    raise PatternError(f"where=: {node!r} refers to {used!r}, which is {_NEGATED}")
        for constraint in self.given:
            for pattern in constraint.patterns():
                place = f"{pattern.location}: {constraint!r}: "
                if pattern not in self.known:
                    raise PatternError(f"{place}{pattern!r} is not part of the source, nor related to it in where=")
                if pattern not in self.bindable:
                    raise PatternError(f"{place}{pattern!r} is {_NEGATED}")
                self._check_scopes(pattern, (), place)
        for pattern in self.outputs:
            self._check_scopes(pattern, ())
        if self.variadic is not None:
            if self.relations:
                use = self.relations[0]
                raise PatternError(
                    f"{use.user.location}: {use!r} stands beside a variadic output: write it inside of the field, "
                    "where a sequence stands for its last pattern"
                )
            field, operators = self.variadic.field, (pat.Alt, pat.And, pat.Call, pat.GetItem, pat.Tuple)
            if not self.variadic.shared and not isinstance(tail(field), operators):
                raise PatternError(
                    f"{self.variadic.location}: the instances of a variadic output share no pattern, and {field!r} may "
                    "be any node: let them share a pattern that is not a template, or demand an operator of each"
                )

    def _check_places(self) -> None:
        """Refuse a segment that stands at two places: each would be as many fields as the other, and the same."""
        seen: set[Pattern] = set()
        for item in (item for p in self.patterns if isinstance(p, pat.Tuple) for item in p.items):
            if isinstance(item, pat.Segment) and item in seen:
                raise PatternError(f"{item.location}: {item!r} stands at two places of the source: use two segments")
            seen.add(item)

    def _check_expression(self, node: Ast, owner: Pattern | None) -> None:
        place = owner.location if owner is not None else "where="
        for used in references(node):
            if used not in self.known and not isinstance(used, pat.Instance):
                raise PatternError(f"{place}: {node!r} refers to {used!r}, which is not part of the source")
            self._check_scopes(used, self.scopes.get(owner, ()) if owner is not None else (), f"{place}: {node!r}: ")

    def _check_scopes(self, pattern: Pattern, around: Sequence[Pattern], place: str = "") -> None:
        """Refuse a template where it is not known which instance is meant."""
        scopes = self.scopes.get(pattern, ())
        if scopes != tuple(around[: len(scopes)]):
            where = (
                "chain: refer to the pat.Repeat, which stands for its last node, or to match.chain(repeat)"
                if isinstance(scopes[-1], pat.Repeat)
                else "variadic: say which one as variadic(pattern, index)"
            )
            raise PatternError(
                f"{place or f'{pattern.location}: '}{pattern!r} is a template, of which there are many, and is used "
                f"outside of its {where}"
            )

    def check(self, graph: Graph) -> None:
        """Raise PatternError for a pattern that no node of a graph of this kind can match.

        That is a call of a native target which the graph shows by a canonical operator, and what demands a type where
        there are none.
        """
        typed = None if graph.typed else next((p for p in self.patterns if p.guard is not None), None)
        if typed is not None:
            raise PatternError(
                f"{typed.location}: {typed!r} demands a type, but the nodes of this graph have none; an attribute of "
                "that name is compared in where=, as p.shape == …"
            )
        if graph.canonical is None or not self.natives:
            return
        present = {op for op in graph.by_op() if not isinstance(op, str)}
        declared = [op.spec for op in graph.by_op() if isinstance(op, OperatorName)]
        for pattern in self.natives:
            if present.isdisjoint(same_function(pattern.op)):
                spec = next((spec for spec in declared if pattern.op in spec.native.targets()), None)
                if spec is not None:
                    raise PatternError(
                        f"{pattern.location}: {pattern!r} matches nothing: the graph shows such a call by the operator "
                        f"that was declared for it; write {spec.cls}(…)"
                    )
                literals = {name: node.value for name, node in pattern.attrs.items() if isinstance(node, Literal)}
                count = None if pattern.operands is None else len(pattern.operands)
                shown = graph.canonical(pattern.op, count, literals)
                if shown is not None:
                    raise PatternError(
                        f"{pattern.location}: {pattern!r} matches nothing: the graph shows such a call by its "
                        f"canonical operator; write {shown}"
                    )

    def _check_alternatives(self) -> None:
        """Refuse an alternative that leaves an output without a connection, so that it could never be taken."""
        for alternative in self.patterns:
            if isinstance(alternative, pat.Alt) and alternative in self.sure:
                for choice in alternative.choices:
                    connected = self._connected(alternative, choice)
                    lost = next((pattern for pattern in self.required if pattern not in connected), None)
                    if lost is not None:
                        raise PatternError(
                            f"{choice.location}: the alternative {choice!r} of {alternative!r} can never be taken: "
                            f"it shares no node with {lost!r}, as the others do"
                        )

    def _connected(self, alternative: pat.Alt, choice: Pattern) -> set[Pattern]:
        """The patterns that are connected with the alternative in any way, when that choice of it is taken."""

        def children(pattern: Pattern) -> Iterable[Pattern]:
            return [choice] if pattern is alternative else pattern.children()

        start: list[Pattern] = [alternative]
        beside: dict[Pattern, list[Pattern]] = {}
        pairs = [(pattern, child) for pattern in reached(self.required, children) for child in children(pattern)]
        for user, operand in (*pairs, *((use.user, use.operand) for use in self.relations)):
            beside.setdefault(operand, []).append(user)
            beside.setdefault(user, []).append(operand)
        return set(reached(start, lambda pattern: beside.get(pattern, ())))

    @cached_property
    def height(self) -> int:
        """The largest number of operators on a way down through a match; chains count as one."""
        heights: dict[Pattern, int] = {}
        for pattern in self.patterns:  # operands first
            own = isinstance(pattern, (pat.Call, pat.GetItem, pat.Tuple))
            heights[pattern] = own + max((heights.get(child, 0) for child in pattern.children()), default=0)
        return max(heights.values())

    @cached_property
    def reads_uses(self) -> bool:
        """True if it may count for a match which users a node lacks."""
        constrained = self.given or any(isinstance(p, pat.Seq) and p.constraints for p in self.patterns)
        return self.extern_use is not None or bool(constrained or self.fuzzy) or self.variadic is not None


def _scopes(patterns: Sequence[Pattern]) -> dict[Pattern, tuple[pat.Variadic | pat.Repeat, ...]]:
    """The variadics of which a template has instances, outermost first, for each template."""
    scopes: dict[Pattern, tuple[pat.Variadic | pat.Repeat, ...]] = {}
    for variadic in reversed(patterns):  # users first, so that an outer variadic comes before an inner one
        if isinstance(variadic, (pat.Variadic, pat.Repeat)):
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
        if isinstance(pattern, pat.And) or (isinstance(pattern, (pat.Alt, pat.Seq)) and pattern in conjunct):
            for part in pattern.same_node():
                conjunct.add(part)
                if find(part) is not find(pattern):
                    parent[find(part)] = find(pattern)
    return {pattern: find(pattern) for pattern in parent}


_NEGATED = "part of a negation only: say it there, inside of the ~"


def _bindable(roots: Sequence[Pattern]) -> Iterator[Pattern]:
    """The patterns that a match can bind: those outside of negations."""
    return reached(roots, lambda pattern: () if isinstance(pattern, pat.Not) else pattern.children())


def _sure(outputs: Sequence[Pattern]) -> Iterator[Pattern]:
    """The patterns outside of alternatives, negations and variadics; operators before leaves, outputs first."""
    def always(pattern: Pattern) -> Iterator[Pattern]:
        if isinstance(pattern, (pat.Call, pat.Tuple, pat.GetItem, pat.And, pat.Seq)):
            yield from (child for child in reversed(list(pattern.children())) if not isinstance(child, pat.Segment))

    found = list(reached(reversed(outputs), always))
    yield from (pattern for pattern in found if isinstance(pattern, (pat.Call, pat.GetItem, pat.Tuple)))
    yield from (pattern for pattern in found if not isinstance(pattern, (pat.Call, pat.GetItem, pat.Tuple)))
