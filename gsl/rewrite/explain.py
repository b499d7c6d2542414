"""Why a rule does not match a graph, or is refused where it does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gsl.draw import pre
from gsl.graph import Graph, Node
from gsl.match import Miss, Search
from gsl.pat import Call
from gsl.rewrite.build import Refusal
from gsl.rewrite.passes import Pass
from gsl.rewrite.trace import Refused, Trace

if TYPE_CHECKING:
    from gsl.match import Start
    from gsl.rewrite.subst import Subst

MAX_MATCHES = 1000
"""How many matches are looked at."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """What became of the attempts to match a rule; made to be printed."""

    rule: str
    patterns: int
    """How many patterns the source is made of."""
    matches: int
    """How many matches there are, refused ones included."""
    refused: tuple[Refused, ...]
    absent: tuple[str, ...]
    """The operators of the source of which the graph has no call."""
    nearest: tuple[Miss, ...]
    """Where the partial matches that came furthest failed, the furthest first; empty when the rule matches."""

    def __bool__(self) -> bool:
        return self.matches > len(self.refused)

    def __str__(self) -> str:
        refused = ", each of them refused" if 0 < self.matches == len(self.refused) else ""
        lines = [f"{self.rule}: {_count(self.matches, 'match', 'matches')}{refused}"]
        lines += [f"  refused at {', '.join('%' + name for name in r.at)}: {r.reason}" for r in self.refused]
        if self.absent:
            lines.append(f"  the graph has no call of {', '.join(self.absent)}")
        for number, miss in enumerate(self.nearest, 1):
            lines.append(f"  {number}. {miss.bound} of {_count(self.patterns, 'pattern', 'patterns')} matched, then")
            if miss.pattern is not None:
                lines.append(f"     {miss.pattern!r} ({miss.pattern.location})")
            if miss.node is not None:
                lines.append(f"     at %{miss.node.name}")
            lines.append(f"     {miss.reason}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return pre(str(self))


def _count(number: int, one: str, many: str) -> str:
    return f"{number or 'no'} {one if number == 1 or number == 0 else many}"


def explain(rule: Subst, graph: Graph, nearest: int) -> Explanation:
    """Look for matches, why they are refused, and where there is none, for the partial matches that came furthest."""
    by_op = graph.by_op()
    plan = rule.plan
    plan.check(graph)
    nodes = {anchor: plan.possible(anchor, by_op) for anchor in plan.anchors}
    absent = tuple(dict.fromkeys(p.label for p in plan.anchors if isinstance(p, Call) and not nodes[p]))
    present = [p for p in plan.anchors if nodes[p]]
    if not present:
        return Explanation(rule.title, len(plan.patterns), 0, (), absent, ())
    anchor = min(present, key=lambda p: len(nodes[p]))
    matches, refused, misses = _search(rule, graph, plan.start(anchor), nodes[anchor])
    misses = [] if matches else sorted(misses, key=lambda miss: -miss.bound)[:nearest]
    return Explanation(rule.title, len(plan.patterns), matches, tuple(refused), absent, tuple(misses))


def _search(rule: Subst, graph: Graph, start: Start, nodes: list[Node]) -> tuple[int, list[Refused], list[Miss]]:
    """The number of matches, the refused ones, and for each node without a match how far the best attempt came."""
    checks = Pass(graph, [rule], "priority", Trace())
    refused: list[Refused] = []
    misses: list[Miss] = []
    matches = 0
    furthest: Miss | None = None

    def note(miss: Miss) -> None:
        nonlocal furthest
        if furthest is None or miss.bound > furthest.bound:
            furthest = miss

    search = Search(rule.plan, checks.splicer.outputs)
    search.on_miss = note
    for node in nodes:
        furthest, before = None, matches
        for match in start.matches(node, search):
            matches += 1
            try:
                rule.admit(match)
                checks.prepare(rule, match)
            except Refusal as refusal:
                refused.append(Refused.of(rule.name, match, refusal))
            if matches == MAX_MATCHES:
                return matches, refused, misses
        if furthest is not None and matches == before:
            misses.append(furthest)
    return matches, refused, misses
