"""The result of a verification: a counterexample, evidence, or a reason why it can't tell."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from gsl import draw
from gsl.graph import CONST, Graph, Node
from gsl.graph.text import text
from gsl.prove import NoProof
from gsl.verify.draft import infer
from gsl.verify.models import Comparison, FailureKind

MINIMUM = 20
"""No rule is supported by fewer evaluated instances."""
MOST_VALUES = 12
"""The largest number of lines of values in a drawing of a counterexample."""
_KINDS: Mapping[str, str] = {
    "value": "another value", "type": "another shape or dtype",
    "undefined": "the target is undefined where the source is defined",
    "not finite": "the target is not finite where the source is",
}  # fmt: skip


Corners = Mapping[str, tuple[int, str]]
"""For each corner, the number of instances that were compared there, and the first difference, if there is one."""


@dataclass(frozen=True)
class Evidence:
    """The evidence for a rule: the cases that were tried, and those that were not."""

    seed: int
    generated: int
    """The number of instances of the source that were made."""
    fired: int
    """On how many of them the rule fired."""
    evaluated: int
    """On how many of those the two sides were compared."""
    distinct: int
    """The number of evaluated instances that differ in more than the values of their leaves."""
    methods: Mapping[str, Mapping[str, int]]
    """The number of times that each output was compared, by method."""
    ranks: tuple[int, ...]
    """The ranks of the leaves."""
    sizes: tuple[int, ...]
    """The sizes of the axes of the leaves."""
    dtypes: tuple[str, ...]
    attributes: Mapping[str, tuple[Any, ...]]
    """The values of each attribute of an operator of the source."""
    covered: tuple[str, ...]
    """The alternatives, lengths and operators that were part of evaluated instances."""
    missing: tuple[str, ...]
    """The alternatives, lengths and operators that were not part of evaluated instances."""
    lacking: tuple[str, ...]
    """The attributes with the numbers in them that no instance had, of those that are drawn where none is demanded."""
    undrawn: Mapping[str, tuple[str, ...]]
    """The dtypes that a leaf had on no instance while the others had another, for each leaf of which no dtype is
    demanded."""
    refused: Mapping[str, int]
    """The reasons why the rule did not fire on an instance that it matches, and how often."""
    unmatched: int
    """The number of instances that the rule did not match: those are not counted as instances of the source."""
    failed: Mapping[str, int]
    """The constraints that could not be satisfied when an instance was made, and how often."""
    given: tuple[float, ...]
    """The numbers that a condition gives, from which all other numbers are assumed to be far."""
    chance: float | None
    """A bound on the probability that an output is equal by chance, where there is one; ``None`` if there is none."""
    at_corners: Corners | Callable[[], Corners] = field(default_factory=dict, repr=False, compare=False)
    """The findings at corners, or a function that makes them."""

    @cached_property
    def corners(self) -> Corners:
        """Of a supported rule, what it does at corners of which the verdict says nothing (:mod:`gsl.verify.corners`):
        the number of instances that were compared there, and the first difference, if there is one. It is found when it
        is first asked for."""
        return self.at_corners() if callable(self.at_corners) else self.at_corners

    def __getstate__(self) -> dict[str, Any]:
        """The fields, with what is told of corners itself."""
        return {**vars(self), "at_corners": self.corners}

    def __str__(self) -> str:
        lines = [
            f"{self.evaluated} instances evaluated ({self.distinct} distinct), {self.fired} rewritten, "
            f"{self.generated} made; seed {self.seed}"
        ]
        for output, methods in self.methods.items():
            lines.append(f"{output}: " + ", ".join(f"{count} by {name}" for name, count in methods.items()))
        if self.ranks:
            lines.append(f"ranks {_ranges(self.ranks)}; sizes {_ranges(self.sizes)}; {', '.join(self.dtypes)}")
        lines += [f"{name}: {_some(values)}" for name, values in self.attributes.items()]
        lines += [f"covered: {what}" for what in self.covered[:40]]
        if len(self.covered) > 40:
            lines.append(f"covered: and {len(self.covered) - 40} more")
        lines += [f"not generated: {what}" for what in self.missing]
        lines += [f"not generated: {what}" for what in self.lacking]
        if self.given:
            lines.append(f"assumed: other numbers are far from {_some(self.given)}")
        for leaf, dtypes in self.undrawn.items():
            lines.append(f"not generated: {leaf} with a dtype of its own: {', '.join(dtypes)}")
        lines += [f"refused {count} times: {reason}" for reason, count in list(self.refused.items())[:3]]
        for corner, (count, difference) in self.corners.items():
            if difference or not count:
                lines.append(f"differs on {corner}: {difference}" if difference else f"not compared on {corner}")
        if self.chance is not None:
            lines.append(f"chance agreement of an output compared in a prime field: at most {self.chance:.2g}")
        return "\n".join(lines)


def _ranges(numbers: tuple[int, ...]) -> str:
    """Numbers in ascending order, those that follow each other as from the first to the last."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] + 1 == number:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs)


def _some(values: tuple[Any, ...]) -> str:
    shown = ", ".join(repr(value) for value in values[:6])
    return shown if len(values) <= 6 else f"{shown} and {len(values) - 6} more"


@dataclass(frozen=True, eq=False)
class Counterexample:
    """An instance on which the two sides differ, as small as one was found."""

    before: Graph
    after: Graph
    comparison: Comparison
    code: str
    """A program in torch alone that runs both sides, prints them, and raises where they differ."""
    seed: int

    def __getstate__(self) -> dict[str, Any]:
        """The fields, with the graphs as rows of their nodes: each stands alone, and belongs to no native graph."""
        return {**vars(self), "before": _rows(self.before), "after": _rows(self.after)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            object.__setattr__(self, name, _graph(value) if name in ("before", "after") else value)

    @property
    def difference(self) -> Any:
        """The first output that differs: its kind, and its first differing element with both values."""
        return next(output for output in self.comparison.outputs if not output.equal)

    @property
    def kind(self) -> FailureKind:
        """``"value"``, ``"type"``, ``"undefined"`` or ``"not finite"``."""
        return self.difference.kind  # type: ignore[no-any-return]

    def __str__(self) -> str:
        found = self.difference
        place = "" if found.index is None else f" at {found.index}"
        output = ".".join(map(str, found.path))
        lines = [
            f"{_KINDS.get(found.kind, found.kind)}: output {output}{place} is {found.expected} before and "
            f"{found.found} after",
            "before:", *_indented(self.before), "after:", *_indented(self.after),
        ]  # fmt: skip
        lines += [f"  {name} = {value}" for name, value in _values(self)]
        return "\n".join(lines)

    def visualize(self, path: str | Path | None = None) -> draw.Drawing:
        """A drawing of both sides, and where they differ, also written to ``path`` (.svg, .png, .pdf or .dot)."""
        return draw.saved(_drawn(self), path)

    def _repr_svg_(self) -> str | None:
        return self.visualize()._repr_svg_()


_Rows = tuple[tuple[Any, ...], tuple[int, ...]]
"""The nodes of a graph, with the places of their operands, and the places of its outputs."""


def _rows(graph: Graph) -> _Rows:
    places = {node: place for place, node in enumerate(graph.nodes)}
    rows = [
        (node.op, tuple([places[operand] for operand in node.operands]), dict(node.attrs), node.type, node.name)
        for node in graph.nodes
    ]
    return tuple(rows), tuple([places[output] for output in graph.outputs])


def _graph(rows: _Rows) -> Graph:
    nodes: list[Node] = []
    for op, operands, attrs, kind, name in rows[0]:
        nodes.append(Node(op, tuple([nodes[place] for place in operands]), attrs, kind, name=name))
    return Graph(nodes, [nodes[place] for place in rows[1]], infer)


def _drawn(example: Counterexample) -> draw.Drawing:
    """Both sides with their types and the values of their leaves; calls that are computed differently are marked."""
    found = example.difference
    title = _KINDS.get(found.kind, found.kind)
    place = "" if found.index is None else f" at {list(found.index)}"
    where = f"output {'.'.join(map(str, found.path))}{place}"
    sides = (("before", example.before, found.expected), ("after", example.after, found.found))
    panels = []
    for side, graph, value in sides:
        output = graph.outputs[found.path[0]]
        paint = {output: draw.Paint("#ffffff", draw.FAILED, 2.5, draw.Mark("≠", draw.FAILED))}
        lines = tuple(draw.wrapped(f"{where}: {value}", 60))
        panels.append(draw.Panel(side, draw.diagram(graph, draw.Options(depth="all"), paint), lines))
    legend = ((draw.Style("#ffffff", draw.FAILED, 2.5), draw.Mark("≠", draw.FAILED), f"differs: {title}"),)
    notes = [line for name, value in _values(example) for line in draw.wrapped(f"{name} = {value}", 110)]
    return draw.Drawing(draw.Figure("counterexample", tuple(panels), legend, tuple(notes[:MOST_VALUES])))


def _values(example: Counterexample) -> list[tuple[str, Any]]:
    """The values of the leaves on which the two sides differ, by name."""
    literals = {node.name: node.attrs["value"] for node in example.before.nodes if node.op == CONST and node.shape}
    values = {**(example.comparison.inputs or {}), **literals}
    return [(name, value.tolist() if hasattr(value, "tolist") else value) for name, value in values.items()]


def _indented(graph: Graph) -> list[str]:
    return [f"  {line}" for line in text(graph, hide=draw.hide_defaults).splitlines()]


@dataclass(frozen=True, eq=False)
class Suggestion:
    """A missing side condition: the rule with it, and the verdict on that rule."""

    condition: Any
    """The condition as an attribute expression, to be given in ``where=`` (in a verdict of another process, one about
    its copies of the patterns)."""
    text: str
    """The condition as it would be written, with names for patterns."""
    names: Mapping[str, str]
    """The patterns for which the names in the text stand."""
    verdict: Verdict

    def __str__(self) -> str:
        lines = [f"where={self.text}"]
        told = [name for name in self.names if re.search(rf"(?<!\.)\b{name}\b", self.text)]
        lines += [f"  {name} is {self.names[name]}" for name in told]
        lines.append(f"  with it: {self.verdict.title}")
        return "\n".join(lines)


@dataclass(frozen=True, eq=False)
class Mutants:
    """The number of small mistakes in a rule that are found: a measure of the evidence."""

    refuted: tuple[str, ...]
    survived: tuple[str, ...]
    """The mistakes that were not found. Some of them may be none."""
    unbuildable: tuple[str, ...]
    """The mistakes that give no rule, or one that never fires: the checks of the engine find those."""
    refused: tuple[str, ...] = ()
    """The mistakes that were not found where the rule fires, while the engine refuses more of its matches than before:
    most of them are mistakes of type, which are stopped at the match."""
    equivalent: tuple[str, ...] = ()
    """The mistakes that are none: the rule does the same with them on every instance that was made, or a condition that
    was left out holds on all of them."""
    unneeded: tuple[str, ...] = ()
    """The conditions without which the rule is supported, too, by instances on which they do not hold."""

    @property
    def share(self) -> float | None:
        """The share of the mutants that were refuted, among those that were compared; ``None`` if there were none."""
        total = len(self.refuted) + len(self.survived)
        return len(self.refuted) / total if total else None

    def __str__(self) -> str:
        share = "no mutant could be compared" if self.share is None else f"{self.share:.0%} of the mutants refuted"
        apart = (
            (self.unbuildable, "can't be built or never fire"), (self.refused, "are refused where they matter"),
            (self.equivalent, "change nothing"), (self.unneeded, "leave out what is not needed"),
        )  # fmt: skip
        compared = f"{len(self.refuted)} of {len(self.refuted) + len(self.survived)}"
        lines = [f"{share} ({'; '.join([compared, *(f'{len(names)} {what}' for names, what in apart)])})"]
        lines += [f"  survived: {name}" for name in self.survived]
        return "\n".join(lines)


@dataclass(frozen=True, eq=False)
class Verdict:
    """The result of verifying a rule; true only if the rule is supported."""

    rule: str
    evidence: Evidence
    mutants: Mutants | None = field(default=None, kw_only=True)
    unproved: NoProof | None = field(default=None, kw_only=True)
    """The reason why there is no proof, where one was looked for."""

    def __bool__(self) -> bool:
        return False

    @property
    def title(self) -> str:
        """The verdict in one line."""
        raise NotImplementedError

    def details(self) -> list[str]:
        """The lines below the title."""
        return str(self.evidence).splitlines()

    def __str__(self) -> str:
        lines = [f"{self.rule}: {self.title}", *(f"  {line}" for line in self.details())]
        if self.mutants is not None:
            lines += [f"  {line}" for line in str(self.mutants).splitlines()]
        if self.unproved is not None:
            lines.append(f"  no proof: {self.unproved.reason}")
            lines += [f"    lacking: {self.unproved.lacking}"] if self.unproved.lacking else []
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"<{self.rule}: {self.title}>"

    def _repr_html_(self) -> str:
        return draw.pre(str(self))


@dataclass(frozen=True, eq=False, repr=False)
class Supported(Verdict):
    """No instance was found on which the two sides differ."""

    def __bool__(self) -> bool:
        return True

    @property
    def title(self) -> str:
        return f"supported by {self.evidence.evaluated} instances"


@dataclass(frozen=True, eq=False, repr=False)
class Refuted(Verdict):
    """There is an instance on which the two sides differ."""

    counterexample: Counterexample = field(kw_only=True)
    missing: Suggestion | Callable[[], Suggestion | None] | None = field(default=None, kw_only=True)
    """The suggestion, or a function that finds it."""

    @cached_property
    def suggestion(self) -> Suggestion | None:
        """The condition that the rule lacks, if one is found. It is looked for when it is first asked for."""
        return self.missing() if callable(self.missing) else self.missing

    def __getstate__(self) -> dict[str, Any]:
        """The fields, with the suggestion itself."""
        return {**vars(self), "missing": self.suggestion}

    @property
    def title(self) -> str:
        return f"refuted ({_KINDS.get(self.counterexample.kind, self.counterexample.kind)})"

    def details(self) -> list[str]:
        lines = str(self.counterexample).splitlines()
        if self.suggestion is not None:
            lines += ["missing condition:", *(f"  {line}" for line in str(self.suggestion).splitlines())]
        return lines

    def visualize(self, path: str | Path | None = None) -> draw.Drawing:
        """The drawing of the counterexample."""
        return self.counterexample.visualize(path)

    def _repr_html_(self) -> str:
        return draw.page(self.visualize, str(self))


@dataclass(frozen=True, eq=False, repr=False)
class Unchecked(Verdict):
    """Too little could be evaluated to tell."""

    reason: str = field(kw_only=True)

    @property
    def title(self) -> str:
        return f"unchecked: {self.reason}"
