"""Graphs that are attributes of nodes: conditions on them, and rules that rewrite them."""

from __future__ import annotations

from typing import Any

from gsl.attr import Expr
from gsl.attr.ast import Literal
from gsl.attr.evaluate import Evaluator
from gsl.attr.text import short
from gsl.errors import EvaluationError, PatternError, PatternTypeError, RewriteError, located
from gsl.graph import Graph, Node
from gsl.match import Match
from gsl.match.bindings import MatchScope
from gsl.pat import AnyOp, Group, Like, Pattern, is_op
from gsl.pat.variadic import references
from gsl.rewrite.ruleset import RuleSet
from gsl.rewrite.subst import Subst


class Within:
    """A condition of a rule, for ``where=``: a graph that is an attribute of a matched node matches a pattern itself.

    ``attribute`` is that attribute (``layer.weight``), whose value is a workload or a graph view; ``src``, ``where``,
    ``extern_use`` and ``distinct`` are those of a rule. With several matches, the first one in the order of the graph
    counts; :meth:`of` gives it to the target.
    """

    def __init__(
        self,
        attribute: Expr,
        src: Pattern | Group | list[Any],
        *,
        where: Any = (),
        extern_use: bool | None = None,
        distinct: bool = False,
    ) -> None:
        if not isinstance(attribute, Expr):
            raise PatternTypeError(
                located(f"Within takes an attribute of a pattern first, as layer.weight, got {attribute!r}")
            )
        self.attribute = attribute.ast
        self.rule = Subst(
            src, _keep, where=where, extern_use=extern_use, distinct=distinct, name=f"within {self.attribute!r}"
        )

    def __repr__(self) -> str:
        return f"Within({self.attribute!r}, {', '.join(map(repr, self.rule.source.outputs))})"

    def __call__(self, match: Match) -> bool | str:
        """True if the condition holds for a match of the outer rule; the reason if it does not."""
        unknown = next((p for p in references(self.attribute) if p not in match.plan.known), None)
        if unknown is not None:
            raise PatternError(f"{self!r} refers to {unknown!r}, which is not part of the source of the rule")
        try:
            graph = self._graph(match)
        except EvaluationError as error:
            return str(error)
        return True if self._first(graph) is not None else f"{self.attribute!r} has no match of the pattern in {self!r}"

    def of(self, match: Match) -> Match:
        """The match inside, for a match of the outer rule. RewriteError if there is none."""
        if not isinstance(match, Match):
            raise RewriteError(f"{self!r}: of(…) takes the match of the rule, got {match!r}")
        try:
            found = self._first(self._graph(match))
        except EvaluationError as error:
            raise RewriteError(f"{self!r}: {error}") from error
        if found is None:
            raise RewriteError(f"{self!r} does not hold for {match!r}: is it among the conditions of the rule?")
        return found

    def _graph(self, match: Match) -> Graph:
        value = Evaluator(MatchScope(match.bindings, ())).value(self.attribute)
        graph = _graph_of(value)
        if graph is None:
            raise EvaluationError(
                f"{self.attribute!r} is {short(value)} of type {type(value).__name__}, expected a workload or a graph "
                "view"
            )
        return graph

    def _first(self, graph: Graph) -> Match | None:
        return next(self.rule.match(graph), None)


def inside(rules: Subst | RuleSet, *attributes: str, name: str | None = None) -> Subst:
    """The rule that applies rules to the graphs inside of nodes: one pass in each attribute that is a graph.

    ``attributes`` are the names of those that are rewritten; without any, all whose value is a workload or a graph
    view. A node in which something fired is replaced by one that has the rewritten graphs.
    """
    if not isinstance(rules, (Subst, RuleSet)):
        raise PatternTypeError(
            located(f"inside takes a rule or a RuleSet, got {rules!r} of type {type(rules).__name__}")
        )
    node = is_op(AnyOp())

    def has_work(match: Match) -> bool | str:
        found = _graphs(match[node], attributes)
        if any(True for value in found.values() for _ in rules.match(value)):
            return True
        return f"nothing matches in {', '.join(found)}" if found else "it has no graph inside"

    def rewritten(match: Match) -> Like | Node:
        changed = {}
        for attribute, value in _graphs(match[node], attributes).items():
            new, fired = _apply(rules, value)
            if fired:
                changed[attribute] = Literal(new)
        return node.like(*match[node].operands, **changed) if changed else match[node]

    own = rules.name if isinstance(rules, Subst) else ", ".join(rule.name for rule in rules)
    return Subst(node, rewritten, where=has_work, name=name if name is not None else f"inside: {own}")


def _keep(match: Match) -> tuple[Node, ...]:
    """The target of a rule that is only matched."""
    return match.outputs


def _graph_of(value: Any) -> Graph | None:
    """The view that a value is, or that it has if it is a workload."""
    graph = value if isinstance(value, Graph) else getattr(value, "graph", None)
    return graph if isinstance(graph, Graph) else None


def _graphs(node: Node, attributes: tuple[str, ...]) -> dict[str, Any]:
    """The attributes of a node that are graphs: those named, or all."""
    return {
        name: value
        for name, value in node.attrs.items()
        if (not attributes or name in attributes) and _graph_of(value) is not None
    }


def _apply(rules: Subst | RuleSet, value: Any) -> tuple[Any, bool]:
    """A rewritten graph of the same kind, and whether anything fired."""
    if isinstance(value, Graph):
        graph, trace = rules.apply(value)
        return graph, bool(trace.firings)
    new = rules(value)
    return new, bool(new.trace.firings)
