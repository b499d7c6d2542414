"""What is written for chains and variadics finds what the search finds, in the same order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cache
from itertools import islice
from random import Random
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gsl import attr, is_op, op, pat
from gsl.errors import PatternError
from gsl.graph import Graph, Node
from gsl.match import Plan, UseLists, emit, emit_instances, instances
from gsl.pat import Pattern
from tests.helpers.graphs import Builder, graph
from tests.match.test_compile import both_ways, is_written
from tests.match.test_complete import QUICK
from tests.tiers import examples

UNARY = ("nn.relu", "tanh")
Made = tuple[list[Pattern], dict[str, Any]]
"""The outputs of a source, and the options of its plan."""


@cache
def rows(seed: int, number: int = 60) -> Graph:
    """Rather a row of calls than a tree; some are fields of a tuple that is concatenated."""
    random = Random(seed)

    def make(b: Builder) -> list[Node]:
        leaves = [b.input("x", 4), b.param("w", 4)]
        nodes = [leaves[0]]

        def one() -> Node:
            return random.choice([*nodes[-3:], *nodes[-1:] * 6])

        kinds = [*["nn.relu"] * 10, "tanh", "tanh", "exp", *["nn.leaky_relu", "bias", "join"] * 2, "sum"]
        while len(b.nodes) < number:
            kind = random.choice(kinds)
            if kind == "nn.leaky_relu":
                nodes.append(b.call(kind, one(), alpha=float(random.choice([0, 1]))))
            elif kind in ("sum", "bias"):
                both = random.sample([one(), random.choice([one()] if kind == "sum" else leaves)], 2)
                nodes.append(b.call(random.choice(["add", "subtract"]), *both))
            elif kind == "join":
                nodes.append(fork(b, random, one()))
            else:
                nodes.append(b.call(kind, one()))
        return [nodes[-1], *random.sample(nodes, 2)]

    return graph(make)


def fork(b: Builder, random: Random, top: Node) -> Node:
    """The sum of two of some calls of one node, which are also concatenated, or its halves put together again."""
    if random.random() < 0.1:
        halves = b.call("split", top, indices_or_sections=2, axis=0)
        return b.call("concatenate", b.tuple(*[b.get(halves, number) for number in range(2)]), axis=0)
    parts = [b.call(random.choice(UNARY), top) for _ in range(random.choice([1, 2, 3]))]
    if random.random() < 0.5:
        parts = [b.call("nn.relu", part) for part in parts]
    if random.random() < 0.5:
        sums = [b.call("add", top, b.param("w", 4)) for _ in range(3)]
        scaled = [b.call("nn.leaky_relu", top, alpha=float(number)) for number in range(3)]
        parts = random.choice([sums, scaled, [*parts, *sums]])
    b.call("concatenate", b.tuple(*parts), axis=0)
    return b.call("add", parts[0], parts[-1])


def graphs() -> st.SearchStrategy[Graph]:
    return st.integers(0, 9).map(rows)


def link(draw: st.DrawFn, outside: list[Any]) -> Pattern:
    """What is repeated."""
    leaf = draw(st.sampled_from([pat.Wildcard(), pat.Wildcard(), pat.Param()]))
    x, unary = pat.Wildcard(), pat.OneOf(*UNARY, "exp", "nn.leaky_relu")
    scaled: Any = is_op("nn.leaky_relu")
    alphas = [0.0, 1.0, *[other.alpha for other in outside]]
    made: list[Callable[[], Pattern]] = [
        *[lambda: op.ReLU(x)] * 4,
        lambda: pat.Call(unary, x),
        lambda: pat.Call(pat.OneOf(*UNARY, "exp", joint=False), x),
        lambda: is_op(pat.OneOf(*UNARY, "nn.leaky_relu", "add")),
        lambda: is_op(pat.AnyOp()),
        lambda: is_op("nn.relu").uniq(),
        lambda: is_op("tanh").extern_use(draw(st.booleans())),
        lambda: op.LeakyReLU(x, alpha=draw(st.sampled_from(alphas))),
        lambda: pat.Call("add", x, leaf),
        lambda: pat.Call("subtract", x, leaf),
        lambda: pat.Call("add", leaf, leaf),
        lambda: is_op(unary) > is_op(unary),
        lambda: is_op("nn.relu") >> is_op(unary),
        lambda: pat.Call("add", x, leaf) >> is_op("nn.relu"),
        *[lambda: is_op("nn.relu") | is_op("tanh")] * 2,
        lambda: op.ReLU(x) | (is_op("tanh") > is_op(unary)),
        lambda: (is_op("tanh") | is_op("nn.relu").uniq()) > (is_op("exp") | op.ReLU(leaf) | is_op("nn.relu")),
        lambda: op.Add(op.ReLU(x), leaf) | is_op(pat.OneOf("tanh", "exp", joint=False)),
        lambda: op.ReLU(op.Tanh(x) | op.ReLU(leaf)),
        lambda: is_op(unary) & is_op("nn.relu"),
        lambda: scaled > pat.Call("nn.leaky_relu", x, alpha=scaled.alpha),
        lambda: op.ReLU(pat.Wildcard(distinct=True)),
        lambda: op.ReLU(op.Tanh(x)),
        lambda: pat.Call("nn.relu", ~op.Tanh(x)),
        lambda: op.Exp(x) | pat.Call(unary, pat.Wildcard()),
        lambda: op.Tanh(chain(draw, outside)),
    ]
    return draw(st.sampled_from(made))()


def chain(draw: st.DrawFn, outside: list[Any]) -> pat.Repeat:
    least = draw(st.sampled_from([1, 1, 2]))
    most = draw(st.sampled_from([None, None, least, least + 1]))
    is_greedy, is_sole = draw(st.booleans()), draw(st.sampled_from([True, True, False]))
    return pat.Repeat(link(draw, outside), least, most, greedy=is_greedy, sole=is_sole)


@st.composite
def chains(draw: st.DrawFn) -> Made:
    """A chain, or two, with what stands around it."""
    outside: list[Any] = []
    scaled = is_op("nn.leaky_relu")
    befores = [None, None, None, pat.Wildcard(), pat.Wildcard(), is_op("exp"), scaled, is_op("nn.relu")]
    before = draw(st.sampled_from(befores))
    outside += [scaled] if before is scaled else []
    first = chain(draw, outside)
    ends: list[Callable[[Pattern], Pattern]] = [
        lambda below: below, lambda below: below, op.Tanh, op.ReLU, op.Exp,
        lambda below: below > is_op("tanh"), lambda below: below >> is_op("exp"),
        lambda below: pat.Call("add", below, chain(draw, outside)), lambda below: below + pat.Wildcard(),
        lambda below: below | op.Exp(pat.Wildcard()), lambda below: op.LeakyReLU(below, alpha=first.length - 1),
    ]  # fmt: skip
    output = draw(st.sampled_from(ends))(first)
    relations: list[Any] = []
    if before is not None:
        relations.append(before > first if draw(st.booleans()) else before >> first)
        if draw(st.integers(0, 4)) == 0:
            relations.append(before > chain(draw, outside))
    where = draw(st.sampled_from([(), (), ((first.length > 1).ast,), ((first.ndim == 1).ast,)]))
    constraints = tuple(c for each in relations for c in each.constraints)
    return [output], {"where": where, "constraints": constraints, **extras(draw)}


def extras(draw: st.DrawFn) -> dict[str, Any]:
    return {"distinct": draw(st.sampled_from([False, False, True])),
            "extern_use": draw(st.sampled_from([None, None, None, False, True])),
            "fuzzy": draw(st.sampled_from([*[()] * 8, ("exp",), ("tanh", "nn.leaky_relu")]))}  # fmt: skip


@st.composite
def variadics(draw: st.DrawFn) -> Made:
    """A group of calls that share a node, or the fields of a tuple."""
    shared = draw(st.sampled_from([pat.Wildcard(), op.ReLU(pat.Wildcard()), is_op("add"), is_op("exp")]))
    own, index = draw(st.sampled_from([pat.Wildcard(), pat.Param()])), attr.Symbol()
    scaled: Any = pat.Call("nn.leaky_relu", shared)
    unary = pat.OneOf(*UNARY)
    inner = op.Tanh(shared)
    fields: list[tuple[Pattern, list[Pattern]]] = [
        (relu := op.ReLU(shared), [relu]),
        (call := pat.Call(unary, shared), [call]),
        (call := pat.Call(pat.OpWithTrait(op.Trait.ELEMENT_WISE), shared), [call]),
        (total := pat.Call("add", shared, own), [total, own]),
        (less := pat.Call("subtract", shared, own), [less, own]),
        (outer := op.ReLU(inner), [outer, inner]),
        (outer := pat.Call("add", inner, own), [outer, inner, own]),
        (outer := pat.Call("add", op.Exp(shared), own), [outer, own]),
        (call := pat.Call(unary, own), [call, own]),
        (own, [own]),
        (scaled, [scaled]),
        (call := op.LeakyReLU(shared, alpha=index * 1.0), [call]),
        (call := op.LeakyReLU(shared, alpha=attr.Sum(attr.Tuple(index, 0.0))), [call]),
        (part := pat.GetItem(shared, index), [part]),
        (part := pat.GetItem(pat.Variadic(own, [own])), [part]),
        (either := (one := op.ReLU(shared)) | (two := op.Tanh(shared)), [either, one, two]),
        (outer := op.ReLU(either := (one := op.Exp(shared)) | (two := op.Tanh(shared))), [outer, either, one, two]),
        (outer := (two := op.Add(inner, own)) | (one := op.ReLU(shared)), [outer, one, two, inner, own]),
        (both := (one := op.ReLU(shared)) & (two := pat.Call(unary, shared)), [both, one, two]),
        (row := pat.Repeat(one := op.ReLU(two := pat.Wildcard())), [row, one, two]),
    ]
    field, templates = draw(st.sampled_from(fields))
    options: dict[str, Any] = {"min_len": draw(st.sampled_from([0, 0, 1, 2, 3])), "index": index}
    if field is scaled and draw(st.booleans()):
        head: Any = pat.Call("nn.leaky_relu", shared)
        field = pat.Call("nn.leaky_relu", shared, alpha=head.alpha)
        templates, options["first"] = [field], [head]
    if draw(st.integers(0, 3)) == 0:
        options["length"] = draw(st.integers(1, 3))
    variadic = pat.Variadic(field, templates, **options)
    conditions = [(variadic.length > 1).ast, (variadic(field, 0).ndim == 1).ast,
                  attr.all(attr.Variadic(lambda i: variadic(field, i).ndim == 1, variadic.length)).ast]  # fmt: skip
    where = tuple(draw(st.sets(st.sampled_from(conditions), max_size=1)))
    outputs: list[Pattern] = [variadic]
    if draw(st.booleans()):
        outputs = [op.Concatenate(variadic)]
        outputs += draw(st.sampled_from([[], [], [op.Tanh(shared)], [op.Exp(shared)]]))
    return outputs, {"where": where, **extras(draw)}


def made(strategy: Callable[[], st.SearchStrategy[Made]]) -> st.SearchStrategy[Plan]:
    """The plans of random sources; what is no source is left out."""

    @st.composite
    def plans(draw: st.DrawFn) -> Plan:
        try:
            outputs, options = draw(strategy())
            return Plan(outputs, **options)
        except PatternError:
            assume(False)
            raise

    return plans()


@pytest.mark.law
@pytest.mark.parametrize("strategy", [chains, variadics])
def test_random_sources(strategy: Any) -> None:
    """They agree, are written, and match often enough."""
    counts, starts = Counter[str](), Counter[bool]()

    @settings(QUICK, max_examples=examples(400))  # of 200, a sample may be too far from the mean
    @given(made(strategy), graphs())
    def law(plan: Plan, view: Graph) -> None:
        both_ways(plan, view, counts)
        starts[is_written(plan.start(plan.anchors[0]))] += 1

    law()
    assert starts[True] > starts[False]
    assert counts["none"] > examples(400)
    assert counts["one"] > examples(40)
    assert counts["several"] > examples(8) or strategy is variadics


x, y, w = pat.Wildcard(), pat.Wildcard(), pat.Param()
relu, tanh, exp, total = op.ReLU(x), op.Tanh(x), op.Exp(x), op.Add(x, w)
unary, lower = pat.OneOf(*UNARY), pat.OneOf(*UNARY)
scaled, index = is_op("nn.leaky_relu"), attr.Symbol()
relus = pat.Repeat(op.ReLU(y))
top, below = op.Tanh(x), op.ReLU(op.Exp(x))
group = pat.Variadic(relu, [relu])
late = pat.Variadic(below, [below])
either = (one := op.ReLU(x)) | (two := op.Tanh(x))
CASES: dict[str, tuple[Pattern, dict[str, Any]]] = {
    "from the last node": (pat.Repeat(relu), {}),
    "below a call": (op.Tanh(pat.Repeat(relu)), {}),
    "from the first node": (is_op("exp") > pat.Repeat(relu), {}),
    "short ones first": (pat.Repeat(relu, greedy=False), {}),
    "of some length": (pat.Repeat(relu, 2, 3), {}),
    "nodes with other operands": (pat.Repeat(is_op(pat.AnyOp()), sole=False), {}),
    "one operator for all": (pat.Repeat(pat.Call(unary, x)), {}),
    "one operator for all upper calls, and one for all lower": (pat.Repeat(is_op(lower) > is_op(unary)), {}),
    "an operator for each": (pat.Repeat(pat.Call(pat.OneOf(*UNARY, joint=False), x)), {}),
    "either order": (pat.Repeat(op.Add(x, y)), {}),
    "sequences": (pat.Repeat(is_op("nn.relu") > is_op(unary)), {}),
    "no other users": (pat.Repeat(relu.uniq()), {}),
    "other users": (pat.Repeat(relu.extern_use(True)), {}),
    "the number of nodes": (op.Tanh(relus), {"where": ((relus.length == 2).ast,)}),
    "an attribute of a node around": (scaled > (links := pat.Repeat(op.LeakyReLU(y, alpha=scaled.alpha))), {}),
    "equal leaves in one node": (pat.Repeat(op.Add(x, x)), {}),
    "different leaves": (pat.Repeat(relu), {"distinct": True}),
    "no node above another": (pat.Repeat(op.ReLU(~op.Tanh(x))), {}),
    "no pair of nodes": (pat.Repeat(op.ReLU(~op.Tanh(op.ReLU(y)))), {}),
    "a group of no pairs": (pat.Variadic(call := op.Add(x, other := ~(no := op.Tanh(y))), [call, other, no, y]), {}),
    "fields that are no others": (op.Concatenate(pat.Variadic(free := ~(no := op.Tanh(y)), [free, no, y])), {}),
    "a group": (group, {}),
    "a group of calls of two": (late, {}),
    "a group with leaves of its own": (pat.Variadic(total, [total, w]), {}),
    "a group of one operator": (pat.Variadic(call := pat.Call(unary, x), [call]), {}),
    "a group of at least two": (pat.Variadic(relu, [relu], min_len=2), {}),
    "a group with another first one": (pat.Variadic(relu, [relu], [top]), {}),
    "a group of some length": (pat.Variadic(relu, [relu], length=2), {}),
    "a condition on instances": (group, {"where": ((group(relu, 0).ndim == 1).ast,)}),
    "the number of a member": (pat.Variadic(call := op.LeakyReLU(x, alpha=index * 0.0), [call], index=index), {}),
    "the number of a field": (op.Concatenate(pat.Variadic(part := pat.GetItem(x, index), [part], index=index)), {}),
    "a number that is asked for": (op.Concatenate(pat.Variadic(
        call := op.LeakyReLU(x, alpha=attr.Sum(attr.Tuple(index, 0.0))), [call], index=index)), {}),
    "a group that is used elsewhere": (pat.Variadic(below, [below]), {"extern_use": True}),
    "fields": (op.Concatenate(pat.Variadic(relu, [relu])), {}),
    "fields that share nothing": (op.Concatenate(pat.Variadic(relu, [relu, x])), {}),
    "fields in either order": (op.Concatenate(pat.Variadic(both := op.Add(x, y), [both, y])), {}),
    "fields of one operator": (op.Concatenate(pat.Variadic(call := pat.Call(unary, x), [call, x])), {}),
    "at least one field": (op.Concatenate(pat.Variadic(call := pat.Call(unary, x), [call], min_len=1)), {}),
    "two segments of one operator": (op.Concatenate(pat.Tuple(
        pat.Segment(relu, [relu]), pat.Segment(second := op.ReLU(y), [second, y]))), {}),
    "a segment": (op.Concatenate(pat.Tuple(pat.Segment(relu, [relu]), pat.Segment())), {}),
    "alternatives": (pat.Repeat(op.ReLU(x) | op.Tanh(x)), {}),
    "alternatives above": (is_op("exp") > pat.Repeat(op.ReLU(x) | op.Tanh(x)), {}),
    "alternatives of one node and two": (pat.Repeat(op.Tanh(x) | (is_op("nn.relu") > is_op("nn.relu"))), {}),
    "alternatives in a group": (pat.Variadic(either, [either, one, two]), {}),
    "alternatives of fields": (op.Concatenate(pat.Variadic(either, [either, one, two])), {}),
    "a choice in a condition": (pat.Repeat(op.LeakyReLU(either, alpha=attr.Match(either, (0.0, 1.0)))), {}),
    "both of two": (pat.Repeat(op.ReLU(x) & is_op(unary)), {}),
    "calls beside the chain": (pat.Repeat(op.ReLU(op.Tanh(x))), {}),
    "two chains of one operator": (op.Add(pat.Repeat(relu), relus), {}),
    "a call of the chain's operator": (op.Add(pat.Repeat(op.ReLU(y)), op.ReLU(w | x)), {}),
    "a class in an alternative": (pat.Repeat(op.Exp(x) | pat.Call(unary, x)), {}),
    "a class in an alternative of calls": (op.Exp(pat.Repeat(op.LeakyReLU(op.ReLU(x)) | is_op(unary))), {}),
    "a class in an alternative, and above": (pat.Call(unary, pat.Repeat(op.Exp(y) | is_op(unary))), {}),
    "a class in an alternative, upward": (is_op("exp") > pat.Repeat(op.LeakyReLU(y) | is_op(unary)), {}),
    "as many fields": (op.Concatenate(pat.Variadic(relu, [relu, x], length=2)), {}),
}
SEGMENTS = [
    lambda a, b, rest: [x, a, *rest, pat.Segment()],
    lambda a, b, rest: [pat.Segment(), a, *rest, b, pat.Segment(min_len=1)],
    lambda a, b, rest: [a, *rest],
    lambda a, b, rest: [pat.Segment(), *rest, b],
]


@st.composite
def divided(draw: st.DrawFn) -> tuple[Plan, Graph]:
    """A tuple with segments, and calls of which some are of their kinds."""
    call, other = op.ReLU(x), op.Add(y, w)
    options = {"min_len": draw(st.integers(0, 2)), "greedy": draw(st.sampled_from([None, True, False]))}
    first = pat.Segment(call, [call], max_len=draw(st.sampled_from([None, 2, 3])), **options)
    second = pat.Segment(other, [other, y, w], min_len=draw(st.integers(0, 1)))
    rest = [pat.Wildcard() for _ in range(draw(st.integers(0, 2)))]
    items = draw(st.sampled_from(SEGMENTS))(first, second, rest)
    kinds = draw(st.lists(st.sampled_from(["nn.relu", "nn.relu", "add", "tanh"]), max_size=6))

    def make(b: Builder) -> Node:
        data, weight = b.input("x", 4), b.param("w", 4)
        calls = [b.call(kind, data, *[weight] * (kind == "add")) for kind in kinds]
        return b.call("concatenate", b.tuple(data, *calls), axis=0)

    return Plan([op.Concatenate(pat.Tuple(*items))]), graph(make)


@pytest.mark.long
@pytest.mark.law
def test_segments() -> None:
    """Every way to divide the fields of a tuple, in the same order."""
    counts = Counter[str]()

    @settings(QUICK, max_examples=examples(300))
    @given(divided())
    def law(case: tuple[Plan, Graph]) -> None:
        plan, view = case
        assert all(is_written(plan.start(anchor)) for anchor in plan.anchors)
        both_ways(plan, view, counts)

    law()
    assert counts["one"] > 0 < counts["several"]


IN_PART: dict[str, tuple[Pattern, dict[str, Any]]] = {
    "a class in an alternative, and beside": (op.Add(pat.Repeat(op.Exp(y) | is_op(unary)), is_op(unary)), {}),
    "operators that may be skipped": (pat.Repeat(relu), {"fuzzy": ("cast",)}),
    "skipped between the nodes": (op.Tanh(pat.Repeat(relu)), {"fuzzy": ("nn.leaky_relu", "exp")}),
    "skipped from the first node on": (is_op("exp") > pat.Repeat(relu), {"fuzzy": ("nn.leaky_relu", "tanh")}),
    "skipped in a group": (group, {"fuzzy": ("nn.leaky_relu", "nn.relu")}),
    "skipped in fields": (op.Concatenate(pat.Variadic(relu, [relu])), {"fuzzy": ("nn.leaky_relu", "nn.relu")}),
    "a chain of chains": (op.Tanh(pat.Repeat(op.Exp(pat.Repeat(relu)) | op.Tanh(y))), {}),
    "a field of chains": (op.Concatenate(pat.Variadic(row := pat.Repeat(relu), [row, relu, x])), {}),
    "a group of chains": (pat.Variadic(end := op.Tanh(row := pat.Repeat(relu)), [end, row, relu, x]), {}),
}
"""Sources of which a search finds some instances."""


def plan_of(case: tuple[Pattern, dict[str, Any]]) -> Plan:
    output, options = case
    constraints = output.constraints if isinstance(output, pat.Seq) else ()
    return Plan([output], **{"constraints": constraints, **options})


@pytest.mark.parametrize("name", CASES)
def test_every_construct(name: str) -> None:
    plan, counts = plan_of(CASES[name]), Counter[str]()
    assert is_written(plan.start(plan.anchors[0]))
    both_ways(plan, rows(0, 600), counts)
    assert counts["none"] > 0
    assert counts["one"] + counts["several"] > 0


@pytest.mark.parametrize("name", IN_PART)
def test_what_is_written_in_part(name: str) -> None:
    plan, counts = plan_of(IN_PART[name]), Counter[str]()
    assert not is_written(plan.start(plan.anchors[0]))
    both_ways(plan, rows(0, 600), counts)
    assert counts["none"] > 0
    assert counts["one"] + counts["several"] > 0


@pytest.mark.parametrize(
    ("name", "case"),
    [("_chains", "either order"), ("_chains", "from the first node"), ("fields", "fields"), ("members", "a group"),
     ("stretches", "a segment"), ("onward", "a chain of chains")],
)  # fmt: skip
def test_the_comparison_can_fail(name: str, case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = next(module for module in (emit_instances, instances, emit) if hasattr(module, name))
    right = getattr(module, name)

    def wrong(*given: Any) -> Any:
        found = right(*given)
        return found[1:] if isinstance(found, list) else islice(found, 1, None)

    monkeypatch.setattr(module, name, wrong)
    with pytest.raises(AssertionError):
        both_ways(plan_of({**CASES, **IN_PART}[case]), rows(0, 600))


def test_the_comparison_with_a_row_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emit_instances.RowWriter, "result", lambda self, value: self.line("links += links"))
    with pytest.raises(AssertionError):
        both_ways(plan_of(CASES["from the last node"]), rows(0, 600))


def chain_of(number: int) -> Graph:
    """``tanh`` of so many relus of ``exp``."""

    def make(b: Builder) -> Node:
        node = b.call("exp", b.input("x", 4))
        for _ in range(number):
            node = b.call("nn.relu", node)
        return b.call("tanh", node)

    return graph(make)


def test_a_long_chain_is_no_deep_recursion() -> None:
    view = chain_of(20_000)
    relus = pat.Repeat(op.ReLU(pat.Wildcard()))
    for plan in (plan_of((op.Tanh(relus), {})), plan_of((is_op("exp") > relus, {}))):
        start = plan.start(plan.anchors[0])
        assert is_written(start)
        node = view.nodes[-1] if plan.anchors[0] is plan.outputs[0] else view.nodes[1]
        match = next(iter(start.function(node, view.ends(), (), UseLists())))
        assert list(match.chain(relus)) == view.nodes[2:-1]


def test_a_search_of_many_steps_is_written_for_the_next_one() -> None:
    rule = Plan([op.Tanh(pat.Repeat(op.ReLU(pat.Wildcard())))])
    start = rule.start(rule.anchors[0])
    view = chain_of(200)
    assert start.finder(1) == start._search
    assert len(list(rule.matches(view))) == 200
    assert start.finder(1) is start.function


@pytest.mark.parametrize("nodes", [0, 100])
def test_an_attribute_may_be_the_length_of_the_chain_below(nodes: int) -> None:
    def make(b: Builder) -> Node:
        node = b.input("x", 4)
        for _ in range(3):
            node = b.call("nn.relu", node)
        return b.call("nn.leaky_relu", node, alpha=2.0)

    relus = pat.Repeat(op.ReLU(pat.Wildcard()))
    rule = Plan([op.LeakyReLU(relus, alpha=relus.length * 1.0)])
    view = graph(make)
    rule.start(rule.anchors[0]).finder(nodes)
    (match,) = rule.matches(view)
    assert match.chain(relus) == tuple(view.nodes[2:4])
