"""Kinds of matches: matches of one rule at calls that have the same cost, so that they cannot be told from each
other."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from gsl.draw import hide_defaults
from gsl.graph import CONST, PARAM, Node, TensorType, op_name
from gsl.graph.text import attribute_texts, is_scalar, value_text
from gsl.match import Match
from gsl.rewrite import Subst
from gsl.rewrite.trace import identity


@dataclass(frozen=True, slots=True)
class Kind:
    """A rule, and the calls that it matched: their operators, attributes and types."""

    rule: str
    calls: str
    shape: str = field(compare=False, default="")
    """The type of the result and the weights, for people."""

    def __str__(self) -> str:
        return f"{self.rule} at {self.shape}"


def kind_of(rule: Subst, match: Match) -> Kind:
    """The kind of a match."""
    inner, outputs = set(match.inner), set(match.outputs)
    nodes = sorted(inner, key=lambda node: node.index)
    return Kind(rule.name, "; ".join(_call(node, inner, outputs) for node in nodes), _shape(match, nodes))


def _call(node: Node, inner: set[Node], outputs: set[Node]) -> str:
    args = [*map(_operand, node.operands), *attribute_texts(node, hide=hide_defaults)]
    kept = "" if node in outputs or inner.issuperset(node.users) else " used elsewhere"
    return f"{op_name(node.op)}({', '.join(args)}){kept}"


def _operand(node: Node) -> str:
    if is_scalar(node):
        return value_text(node.attrs["value"])
    return f"weight {node.type}" if node.op in (PARAM, CONST) else str(node.type)


def _shape(match: Match, nodes: Iterable[Node]) -> str:
    operands = dict.fromkeys(operand for node in nodes for operand in node.operands)
    weights = [str(list(o.type.shape)) for o in operands if o.op == PARAM and isinstance(o.type, TensorType)]
    result = ", ".join(str(output.type) for output in match.outputs[:3])
    large = [text for text in weights if "," in text][:3]
    return f"{result} by weights {', '.join(large)}" if large else result


@dataclass(frozen=True, slots=True)
class Choice:
    """The matches that are rewritten: those of rules that are not left out, of kinds that are not left out.

    Of rules that are approximate, the kinds that were chosen; ``None`` for all.
    """

    rules_out: frozenset[str] = frozenset()
    kinds_out: frozenset[Kind] = frozenset()
    approximate: frozenset[Kind] | None = frozenset()

    def without_rules(self, names: Iterable[str]) -> Choice:
        """This choice without some rules."""
        return Choice(self.rules_out.union(names), self.kinds_out, self.approximate)

    def without(self, kind: Kind) -> Choice:
        """This choice without a kind."""
        return Choice(self.rules_out, self.kinds_out | {kind}, self.approximate)

    def with_rule(self, name: str) -> Choice:
        """This choice with a rule that was left out, and all its kinds."""
        kinds = frozenset(kind for kind in self.kinds_out if kind.rule != name)
        return Choice(self.rules_out - {name}, kinds, self.approximate)

    def approximating(self, kinds: Iterable[Kind] | None) -> Choice:
        """This choice with these approximate kinds, and no others."""
        return Choice(self.rules_out, self.kinds_out, None if kinds is None else frozenset(kinds))

    def refused(self, rule: Subst, kind: Kind) -> str | None:
        """The reason why a match is not rewritten; ``None`` if it is."""
        if rule.name in self.rules_out or kind in self.kinds_out:
            return "it does not pay here"
        if rule.approximate and self.approximate is not None and kind not in self.approximate:
            return "it is approximate, and not within the tolerance"
        return None


class Seen:
    """The kinds of the matches that were looked at, by rule and match."""

    def __init__(self, choice: Choice) -> None:
        self.choice = choice
        self._kinds: dict[tuple[str, object], Kind] = {}

    def condition(self, rule: Subst) -> Callable[[Match], bool | str]:
        """The condition that a match of a rule is one of those that are chosen."""

        def chosen(match: Match) -> bool | str:
            kind = kind_of(rule, match)
            self._kinds[rule.name, identity(match)] = kind
            return self.choice.refused(rule, kind) or True

        return chosen

    def __getitem__(self, firing: tuple[str, object]) -> Kind:
        return self._kinds[firing]
