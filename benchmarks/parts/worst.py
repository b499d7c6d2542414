"""The worst cases of the literature: symmetry, many users of one node, deep alternatives, long chains."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import fx
from torch._inductor import pattern_matcher as inductor

from benchmarks.measure import Different, Job, Meter, System, duration
from benchmarks.parts.views import ViewBuilder
from benchmarks.peers import absent
from benchmarks.peers.native import aten
from benchmarks.section import Goal, Section, goal_of_ratios, times
from gsl import Subst, op, pat
from gsl.graph import Graph
from gsl.match import MatchSearch

RELUS = 12
PARTS = 5
USERS = 2_000
DEPTH = 10
LENGTH = 2_000
GSL, INDUCTOR, NETWORKX = "GSL", "inductor's matcher", "networkx"
TINYGRAD, ONNX, HAND = "tinygrad", "onnxscript's rewriter", "FX by hand"
Forks = Sequence[Sequence[str]]
"""For each user of one node, the operators from it on."""


@dataclass(frozen=True)
class Case:
    """A pattern on a graph: whether it matches, and the systems that look for it."""

    name: str
    what: str
    size: int
    view: Graph
    rule: Subst
    found: bool
    peers: dict[str, Callable[[], bool] | str]


def fork_case(name: str, what: str, users: Forks, pattern: Forks, found: bool) -> Case:
    """Users of one input, and a pattern of some."""
    builder = ViewBuilder()
    x = builder.input("x")
    ends = []
    for names in users:
        value = x
        for each in names:
            value = builder.call(each, value)
        ends.append(value)
    leaf = pat.Wildcard()
    sources = [_made(names, leaf, lambda each, value: pat.Call(each, value)) for names in pattern]
    rule = Subst(sources, lambda match: list(match.outputs), name=name)
    size = sum(map(len, users))
    peers: dict[str, Callable[[], bool] | str] = {
        INDUCTOR: _inductor_fork(users, pattern),
        NETWORKX: _networkx_fork(users, pattern) if importlib.util.find_spec("networkx") else "is not installed",
    }
    return Case(name, what, size, builder.graph(*ends), rule, found, peers)


def _made(names: Sequence[str], start: Any, call: Callable[[str, Any], Any]) -> Any:
    for name in names:
        start = call(name, start)
    return start


TARGETS = {"nn.relu": aten.relu.default, "tanh": aten.tanh.default, "abs": aten.abs.default}


def _inductor_fork(users: Forks, pattern: Forks) -> Callable[[], bool]:
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.output(tuple(_made(names, x, lambda each, value: graph.call_function(TARGETS[each], (value,)))
                       for names in users))  # fmt: skip
    leaf = inductor.KeywordArg("x")
    parts = [
        _made(names, leaf, lambda each, value: inductor.CallFunction(TARGETS[each], value))
        for names in pattern
    ]
    whole = inductor.MultiOutputPattern(parts)
    root = TARGETS[pattern[0][-1]]

    def search() -> bool:
        return any(inductor.is_match(whole.match(node)) for node in graph.find_nodes(op="call_function", target=root))

    return search


def _networkx_fork(users: Forks, pattern: Forks) -> Callable[[], bool]:
    import networkx

    def made(forks: Forks, root: str) -> Any:
        graph = networkx.DiGraph()
        graph.add_node(0, op=root)
        for names in forks:
            last = 0
            for name in names:
                graph.add_node(len(graph), op=name)
                graph.add_edge(last, len(graph) - 1)
                last = len(graph) - 1
        return graph

    large, small = made(users, "input"), made(pattern, "input")

    def search() -> bool:
        same = networkx.algorithms.isomorphism.categorical_node_match("op", None)
        matcher = networkx.algorithms.isomorphism.DiGraphMatcher(large, small, node_match=same)
        return next(matcher.subgraph_monomorphisms_iter(), None) is not None

    return search


def alternatives() -> Case:
    """Alternatives of one operator at every level of a chain, of which none leads to a match."""
    builder = ViewBuilder()
    value = builder.call("sin", builder.input("x"))
    pattern: pat.Pattern = op.Sqrt(pat.Wildcard())
    for _ in range(DEPTH):
        value = builder.call("exp", value)
        pattern = op.Exp(pattern) | op.Exp(pattern)
    value = builder.call("sqrt", value)
    rule = Subst(op.Abs(pattern), lambda match: list(match.outputs), name="alternatives")
    view = builder.graph(builder.call("abs", value), builder.call("abs", value.operands[0]))
    peers: dict[str, Callable[[], bool] | str] = {TINYGRAD: absent("tinygrad") or _tinygrad_alternatives()}
    what = f"{DEPTH} nested alternatives, two calls of one operator each, above an operator that is not there: no match"
    return Case("deep alternatives", what, DEPTH + 4, view, rule, False, peers)


def _tinygrad_alternatives() -> Callable[[], bool]:
    from benchmarks.peers import tiny

    return tiny.alternatives(DEPTH)


def long_chain() -> Case:
    """A chain of relus between two others, matched as a whole."""
    builder = ViewBuilder()
    value = builder.call("exp", builder.input("x"))
    graph = fx.Graph()
    native = graph.call_function(aten.exp.default, (graph.placeholder("x"),))
    for _ in range(LENGTH):
        value = builder.call("nn.relu", value)
        native = graph.call_function(aten.relu.default, (native,))
    graph.output(graph.call_function(aten.tanh.default, (native,)))
    x = pat.Wildcard()
    links = pat.Repeat(pat.Call("nn.relu", pat.Wildcard()))
    first, last = op.Exp(x), op.Tanh(links)
    rule = Subst([last], lambda match: list(match.outputs), name="long chain", where=[first > links])

    def by_hand() -> bool:
        for end in graph.find_nodes(op="call_function", target=aten.tanh.default):
            node = end.args[0]
            while node.target is aten.relu.default:
                node = node.args[0]
            if node.target is aten.exp.default:
                return True
        return False

    view = builder.graph(builder.call("tanh", value))
    what = f"`exp`, {LENGTH:,} relus as one `pat.Repeat`, and `tanh`; the peers have no such pattern"
    return Case("long chain", what, LENGTH + 2, view, rule, True, {HAND: by_hand})


def cases() -> list[Case]:
    """All cases."""
    relu, tanh, user = ("nn.relu",), ("tanh",), ("nn.relu", "abs")
    return [
        fork_case("equal relus", f"{PARTS} outputs, relus of one node, among {RELUS} relus", [relu] * RELUS,
                  [relu] * PARTS, True),
        fork_case("many users", f"two relus and one tanh of a node with {USERS:,} users, of which the last is the tanh",
                  [*[relu] * (USERS - 1), tanh], [tanh, relu, relu], True),
        fork_case("many users, no match", f"a relu with an `abs`, and a tanh, of a node with {USERS:,} users: the only "
                  "`abs` is elsewhere", [*[relu] * (USERS - 2), tanh, ("tanh", "abs")], [tanh, user], False),
        alternatives(),
        long_chain(),
    ]  # fmt: skip


def job(name: str, search: Callable[[], bool], found: bool) -> Job:
    """One search, and the check of what it says."""

    def check(result: bool) -> None:
        if result is not found:
            raise Different(f"{name}: the pattern is {'' if result else 'not '}found")

    return Job(search, check, least=0.02)


def first_match(case: Case) -> bool:
    """True if GSL finds a match."""
    return next(case.rule.match(case.view), None) is not None


def run(meter: Meter, largest: int) -> Section:
    """All cases, each on the systems that can express it."""
    section = Section("Worst cases")
    section.add("The time until the first match is found, or until it is known that there is none. Searches change "
                "nothing, so short ones are repeated for 20 ms, and the mean counts.")
    lines, met = [], []
    for case in cases():
        systems: dict[str, System | str] = {GSL: partial(job, case.name, partial(first_match, case), case.found)}
        for name, search in case.peers.items():
            systems[name] = search if isinstance(search, str) else partial(job, case.name, search, case.found)
        row = meter.measure(case.name, case.size, systems)
        section.rows.append(row)
        counted = MatchSearch(case.rule.plan, set(case.view.outputs))
        next(case.rule.plan.matches(case.view, search=counted), None)
        peers = {name: s for name in case.peers if (s := row.seconds(name)) is not None}
        best = min(peers, key=peers.__getitem__, default=None)
        own = row.seconds(GSL)
        ratio = own / peers[best] if best and own else None
        if ratio is not None and best != HAND:
            met.append((ratio, case.name, best))
        others = "; ".join(f"{name}: {_shown(s)}" for name, s in peers.items() if name != best)
        fastest = f"{best}: {_shown(peers[best])}" if best else "–"
        factor = "–" if ratio is None else times(ratio)
        lines.append([case.name, f"{counted.steps:,}", _shown(own), fastest, factor, others or "–"])
        section.add(f"*{case.name}*: {case.what}.")
    section.table(["case", "steps of the search", GSL, "best peer", "GSL takes", "others"], lines)
    section.add(
        """A step is one comparison of a pattern with a node, as the simple search counts them. inductor's patterns
        have several outputs, but find at most one match from each node; networkx (`DiGraphMatcher`) compares the
        names of operators alone."""
    )
    worst, chain = max(met, default=None), section.rows[-1].ratio(GSL, HAND)
    section.goals.append(
        Goal(
            "the worst cases of the literature",
            "bounded, and no slower than the best peer",
            "not measured" if worst is None else f"at most {times(worst[0])} {worst[2]} ({worst[1]})",
            None if worst is None else worst[0] <= 1,
        )
    )
    section.sharper.append(
        goal_of_ratios(f"a chain as one `pat.Repeat`, {LENGTH:,} long", "at most 1 × FX by hand", [(HAND, chain, 1.0)])
    )
    return section


def _shown(seconds: float | None) -> str:
    return "–" if seconds is None else duration(seconds)
