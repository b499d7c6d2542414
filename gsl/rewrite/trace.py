"""The record of the work of rules on a graph: it can be read, counted, and repeated on an equal graph."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar, overload

from gsl.draw import pre
from gsl.graph import Node
from gsl.match import Match, MatchSchema
from gsl.match.literals import known_value

if TYPE_CHECKING:
    from gsl.rewrite.subst import Subst

Subject = TypeVar("Subject")
MAX_LINES = 60
"""The largest number of firings, and of refused matches, that a printed trace shows."""


@dataclass(frozen=True, slots=True)
class Firing:
    """One application of a rule: its pass, its place, the nodes that it replaced, and the new ones. Nodes are told by
    their names then."""

    rule: str
    replaced: tuple[str, ...]
    by: tuple[str, ...]
    kept: tuple[str, ...]
    """Covered nodes that stay alive because they are used elsewhere too, so that their work is done twice."""
    round: int = 1
    """The pass in which it fired, counted from 1."""
    at: str = ""
    """The node at which the search started."""
    match: tuple[Any, ...] = field(default=(), repr=False)
    """The identity of the match among those from that node."""
    covered: tuple[str, ...] = field(default=(), repr=False, compare=False)
    """All nodes that matched, leaves excepted."""
    made: tuple[str, ...] = field(default=(), repr=False, compare=False)
    """All nodes that were made, those included that are inside of the result."""
    assumed: tuple[str, ...] = field(default=(), repr=False, compare=False)
    """The demands on values (``values=``) of nodes whose values are not known."""

    def __str__(self) -> str:
        kept = f" (kept, as used elsewhere: {names(self.kept)})" if self.kept else ""
        assumed = f" (assumed: {', '.join(self.assumed)})" if self.assumed else ""
        return f"{self.rule}: {names(self.replaced)} -> {names(self.by)}{kept}{assumed}"


class Firings(Sequence[Firing]):
    """The firings of a trace, in order. There are very many, so each is kept as a row of names, which becomes a Firing
    when it is read."""

    def __init__(self, firings: Iterable[Firing] = ()) -> None:
        self._rows: list[Any] = list(firings)

    def note(self, match: Match, *others: Any) -> None:
        """Note that a match was rewritten; the others are the rule, what stands for the outputs, the kept nodes, the
        round, the node at which the search started, the nodes that were made, and the assumptions."""
        if match.schema is not None:
            self._rows.append((match.schema, names_of(match.bound), *others))
            return
        rule, by, kept, number, at, made, assumed = others
        old, inner = names_of(match.outputs), names_of(match.inner)
        self._rows.append(Firing(rule, old, by, kept, number, at, identity(match), inner, made, assumed))

    @staticmethod
    def _read(row: Any) -> Firing:
        if isinstance(row, Firing):
            return row
        schema, bound, rule, by, kept, number, at, made, assumed = row
        old = tuple([bound[place] for place in schema.outputs])
        covered = tuple(dict.fromkeys([bound[place] for place in schema.inner]))
        return Firing(rule, old, by, kept, number, at, _identity(schema, bound), covered, made, assumed)

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Firing]:
        return map(self._read, self._rows)

    @overload
    def __getitem__(self, place: int) -> Firing: ...
    @overload
    def __getitem__(self, place: slice) -> list[Firing]: ...
    def __getitem__(self, place: int | slice) -> Firing | list[Firing]:
        found = self._rows[place]
        return [self._read(row) for row in found] if isinstance(place, slice) else self._read(found)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, (Firings, list)) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[type[Firings], tuple[list[Firing]]]:
        return Firings, (list(self),)

    def __repr__(self) -> str:
        return repr(list(self))


@dataclass(frozen=True, slots=True)
class Refused:
    """A match that was not rewritten, and why."""

    rule: str
    at: tuple[str, ...]
    reason: str

    @staticmethod
    def of(rule: str, match: Match, reason: object) -> Refused:
        """The record that a match of a rule was refused."""
        return Refused(rule, tuple(output.name for output in match.outputs), str(reason))

    def __str__(self) -> str:
        return f"{self.rule} refused at {names(self.at)}: {self.reason}"


class Summary(dict[str, int]):
    """The number of firings of each rule; prints as a table."""

    def __str__(self) -> str:
        if not self:
            return "no rule fired"
        wide, digits = max(map(len, self)), len(str(max(self.values())))
        return "\n".join(f"{rule:<{wide}}  {count:>{digits}}" for rule, count in self.items())


@dataclass
class Trace:
    """The record of an application of rules: the firings in order, and the matches that were refused in the end."""

    firings: Firings = field(default_factory=Firings)
    refused: list[Refused] = field(default_factory=list)
    folded: int = 0
    """The number of calls that were computed ahead of time, because they depend on weights only."""
    shared: int = 0
    """The number of calls that went between the rounds, because they were equal to others."""
    unused: int = 0
    """The number of calls that went because nothing uses them."""
    rules: Mapping[str, Subst] = field(default_factory=dict, repr=False)
    """The rules that were applied, by name."""
    iterative: bool = field(default=False, repr=False)
    """True if calls were shared between rounds."""
    tidy: bool = field(default=False, repr=False)
    """True if all equal calls were shared, and unused calls went, before the first round and after each."""
    folds: bool = field(default=False, repr=False)
    """True if weights were folded after each round; otherwise after the last one, if any were."""

    near: dict[int, bool] = field(default_factory=dict, repr=False)
    """The rounds that looked near to what the one before changed, each with whether the graph was put in order after
    it."""
    inside: dict[str, Trace] = field(default_factory=dict, repr=False)
    """The records of the graphs within calls in which rules fired, by the names of these graphs."""

    def refuse(self, reason: str) -> None:
        """Let all firings be refused matches: the program stays as it is."""
        self.refused += [Refused(firing.rule, firing.replaced, reason) for firing in self.firings]
        self.firings = Firings()

    def count(self, rule: str | None = None) -> int:
        """The number of firings of a rule (of all rules without a name), in the graphs within calls, too."""
        own = len(self.firings) if rule is None else sum(firing.rule == rule for firing in self.firings)
        return own + sum(trace.count(rule) for trace in self.inside.values())

    def summary(self) -> Summary:
        """The number of firings of each rule that fired, in the order of the rules."""
        counts = dict.fromkeys(self.rules, 0)
        for firing in self.firings:
            counts[firing.rule] = counts.get(firing.rule, 0) + 1
        for trace in self.inside.values():
            for rule, count in trace.summary().items():
                counts[rule] = counts.get(rule, 0) + count
        return Summary({rule: count for rule, count in counts.items() if count})

    def replay(self, subject: Subject, *, steps: int | None = None) -> Subject:
        """A new workload (or view) in which the same firings were repeated in order, or the first ``steps`` of them.

        Nothing is searched for elsewhere: on an equal graph (with equal names) the result is the same. Raises
        ReplayError, which names the first step that does not apply, on a graph that differs.
        """
        from gsl.rewrite.apply import replay

        return replay(self, subject, steps)

    def text(self, *, limit: int | None = None) -> str:
        """All that happened, a line each; with several rounds, a line before each. ``limit`` cuts long lists."""
        lines: list[str] = []
        rounds = self.firings[-1].round if self.firings else 0
        shown = self.firings[:limit]
        for number, firings in groupby(shown, key=lambda firing: firing.round):
            lines += [f"round {number}"] if rounds > 1 else []
            lines += [f"{'  ' * (rounds > 1)}{firing}" for firing in firings]
        lines += rest(len(self.firings) - len(shown), "firing")
        lines += map(str, islice(self.refused, limit))
        lines += rest(0 if limit is None else len(self.refused) - limit, "refused match", "es")
        for name, trace in self.inside.items():
            lines += [f"in {name}", *(f"  {line}" for line in trace.text(limit=limit).splitlines())]
        return "\n".join(lines) or "no rule fired"

    def __str__(self) -> str:
        return self.text(limit=MAX_LINES)

    def _repr_html_(self) -> str:
        return pre(str(self))


def names(found: Sequence[str], most: int = 8) -> str:
    """Names of nodes as they are printed; of many, the first ones and their number."""
    shown = ", ".join("%" + name for name in found[:most])
    return shown if len(found) <= most else f"{shown}, … ({len(found)} in all)"


def rest(number: int, what: str, plural: str = "s") -> list[str]:
    """The line that tells how many more there are than were printed; none if there are none."""
    return [f"… and {number} more {what}{plural * (number > 1)}"] if number > 0 else []


def names_of(nodes: Sequence[Node]) -> tuple[str, ...]:
    """The names of nodes, by which a trace tells them."""
    return tuple(map(_name, nodes))


def assumptions(match: Match) -> tuple[str, ...]:
    """The demands of a match on values that are not known."""
    found: dict[str, None] = {}
    for key, node in match.bindings.nodes.items():
        domain = match.plan.domains.get(key[0] if isinstance(key, tuple) else key)
        if domain is not None and known_value(node) is None:
            found[f"%{node.name} is {domain.words}"] = None
    return tuple(found)


def identity(match: Match) -> tuple[Any, ...]:
    """The identity of a match among those of its rule: the names of the nodes that it binds, and the choices that it
    made."""
    if match.schema is not None:
        return _identity(match.schema, names_of(match.bound))
    bindings = match.bindings
    bound = names_of(tuple(bindings.nodes.values()))
    skipped = names_of(tuple(bindings.skipped)) if bindings.skipped else ()
    chosen = tuple(bindings.chosen.values()) if bindings.chosen else ()
    counts = tuple(bindings.counts.values()) if bindings.counts else ()
    return bound, skipped, chosen, counts


def _identity(schema: MatchSchema, bound: tuple[str, ...]) -> tuple[Any, ...]:
    return bound, (), tuple(schema.chosen.values()), ()


_name = attrgetter("name")
