"""Growth of the engine's time with the graph, from 1,000 to 100,000 operators."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from benchmarks.measure import Different, Job, Meter, Row, duration, exponent
from benchmarks.parts.views import ViewBuilder
from benchmarks.section import Goal, Section
from gsl import Subst, op, pat
from gsl.graph import Graph
from gsl.rewrite import Trace

SIZES = (1_000, 3_000, 10_000, 30_000, 100_000)
BOUND = 1.1
BRANCHES = 10
"""The number of branches of each group."""


@dataclass(frozen=True)
class Family:
    """Graphs of any size, and a rule with the number of its matches."""

    name: str
    what: str
    build: Callable[[int], Graph]
    rule: Subst
    matches: Callable[[int], int]
    """The number of firings on a graph of so many operators."""


def chain(count: int) -> Graph:
    """Exponentials, tangents and relus in a row."""
    builder = ViewBuilder()
    value = builder.input("x")
    for _ in range(count // 3):
        for name in ("exp", "tanh", "nn.relu"):
            value = builder.call(name, value)
    return builder.graph(value)


def wide(count: int) -> Graph:
    """The same three of one input side by side, each an output."""
    builder = ViewBuilder()
    x = builder.input("x")
    ends = []
    for _ in range(count // 3):
        value = x
        for name in ("exp", "tanh", "nn.relu"):
            value = builder.call(name, value)
        ends.append(value)
    return builder.graph(*ends)


def diamonds(count: int) -> Graph:
    """One exponential, two functions of it, and their sum, in a row."""
    builder = ViewBuilder()
    value = builder.input("x")
    for _ in range(count // 4):
        top = builder.call("exp", value)
        value = builder.call("add", builder.call("tanh", top), builder.call("nn.relu", top))
    return builder.graph(value)


def branches(count: int) -> Graph:
    """An exponential with ten relus of it, and their sums, in a row."""
    builder = ViewBuilder()
    value = builder.input("x")
    for _ in range(count // (2 * BRANCHES)):
        top = builder.call("exp", value)
        ends = [builder.call("nn.relu", top) for _ in range(BRANCHES)]
        value = ends[0]
        for end in ends[1:]:
            value = builder.call("add", value, end)
    return builder.graph(value)


def one_fork(count: int) -> Graph:
    """One exponential with all the relus."""
    builder = ViewBuilder()
    top = builder.call("exp", builder.input("x"))
    return builder.graph(*[builder.call("nn.relu", top) for _ in range(count - 1)])


def families() -> tuple[Family, ...]:
    """The families of graphs, each with its rule."""
    x = pat.Wildcard()
    row = Subst(op.ReLU(op.Tanh(op.Exp(x))), op.Sigmoid(x), name="row")
    top = op.Exp(x)
    diamond = Subst(op.Tanh(top) + op.ReLU(top), op.Sigmoid(x), name="diamond")
    both = op.Exp(x)
    pair = Subst([op.Tanh(both), op.ReLU(both)], [op.Sigmoid(x), op.Abs(x)], name="pair")
    shared = op.Exp(x)
    relu = op.ReLU(shared)
    each = pat.Variadic(relu, templates=[relu], min_len=2)
    group = Subst(each, pat.Variadic(op.Maximum(shared, 0.0), templates=[]), name="branches")
    return (
        Family("chain", "three operators in a row, a rule for the three", chain, row, lambda n: n // 3),
        Family("wide", "the same side by side, of one input", wide, row, lambda n: n // 3),
        Family("diamonds", "a rule for diamonds of four operators, in a row", diamonds, diamond, lambda n: n // 4),
        Family("several outputs", "a rule of two outputs in the diamonds", diamonds, pair, lambda n: n // 4),
        Family(
            "branches", "a variadic rule for groups of ten branches", branches, group, lambda n: n // (2 * BRANCHES)
        ),
        Family("one fork", "the same rule for one group of all operators", one_fork, group, lambda n: 1),
    )


def job(family: Family, view: Graph, size: int) -> Job:
    """One pass over a view, and the check of how often the rule fired."""

    def check(result: tuple[Graph, Trace]) -> None:
        found = result[1].count()
        if found != family.matches(size):
            raise Different(f"{found} rewrites, expected {family.matches(size)}")

    return Job(lambda: family.rule.apply(view), check)


def run(meter: Meter, largest: int) -> Section:
    """All families at all sizes."""
    every = families()
    rows = []
    for size in SIZES:
        if size <= largest:
            systems = {}
            for family in every:
                view = family.build(size)
                systems[family.name] = lambda family=family, view=view, size=size: job(family, view, size)
            rows.append(meter.measure(f"growth, {size:,}", size, systems, "growth, "))
    section = Section("Growth")
    section.add("One pass of GSL's engine. " + "; ".join(f"*{family.name}*: {family.what}" for family in every) + ".")
    head = ["graph", *(f"{row.size:,}" for row in rows), "exponent", "worst step"]
    slopes = {family.name: exponent(rows, family.name) for family in every}
    lines = []
    for family in every:
        steps = [exponent(pair, family.name) for pair in pairwise(rows)]
        known = [step for step in steps if step is not None]
        lines.append(
            [family.name, *(_shown(row, family.name) for row in rows), _number(slopes[family.name]),
             _number(max(known, default=None))]
        )  # fmt: skip
    section.table(head, lines)
    section.rows += rows
    section.add("*exponent*: of all sizes, by least squares of the logarithms; *worst step*: between two sizes.")
    worst = max(((slope, name) for name, slope in slopes.items() if slope is not None), default=None)
    section.goals.append(
        Goal(
            f"growth, {SIZES[0]:,} to {rows[-1].size if rows else SIZES[0]:,} operators",
            f"exponent at most {BOUND}",
            "not measured" if worst is None else f"at most {worst[0]:.2f} ({worst[1]})",
            None if worst is None else worst[0] <= BOUND,
        )
    )
    return section


def _shown(row: Row, name: str) -> str:
    seconds = row.seconds(name)
    return str(row.cells.get(name, "–")) if seconds is None else duration(seconds)


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"
