"""Traces: what they tell, and that repeating them gives the same graph again, or a clear error."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from demo.models import Inception, settle
from gsl import RuleSet, Subst, Workload, op, pat
from gsl.errors import ReplayError
from gsl.graph import Graph, Node, TensorType
from gsl.rewrite import Trace
from gsl.rewrite.trace import Firings, Summary, names
from gsl.rules import OPTIMISING
from tests.helpers.book import EVERY_RULE
from tests.helpers.graphs import Builder, graph
from tests.match.random_cases import graphs
from tests.rewrite.checks import corrupted, rewritten
from tests.rewrite.test_properties import ENDING, QUICK, SOUND
from tests.rules.test_book import VIEWS, build

x, y = pat.Wildcard(), pat.Wildcard()
TWICE = Subst(op.ReLU(op.ReLU(x)), op.ReLU(x), name="twice")
LEAKY = Subst(op.LeakyReLU(x, alpha=0.0), op.ReLU(x), name="leaky")
RULES = RuleSet([LEAKY, TWICE])


def chain(relus: int, *, alpha: float = 0.0) -> Graph:
    def make(b: Builder) -> Node:
        node = b.input("x", 4)
        for _ in range(relus):
            node = b.call("nn.relu", node)
        return b.call("nn.leaky_relu", node, alpha=alpha)

    return graph(make)


# What it tells.


def test_a_trace_of_rounds() -> None:
    _, trace = rewritten(RULES, chain(4), iterative=True)
    assert str(trace) == (
        "round 1\n"
        "  leaky: %leaky_relu -> %relu_4\n"
        "  twice: %relu_1 -> %relu\n"
        "  twice: %relu_3 -> %relu_5\n"
        "round 2\n"
        "  twice: %relu_5 -> %relu\n"
        "round 3\n"
        "  twice: %relu_4 -> %relu"
    )
    assert trace.summary() == {"leaky": 1, "twice": 4}
    assert str(trace.summary()) == "leaky  1\ntwice  4"
    assert (trace.count("twice"), trace.count("other"), trace.count()) == (4, 0, 5)


def test_a_trace_with_those_of_graphs_within_calls() -> None:
    _, trace = rewritten(RULES, chain(1))
    for name in ("then", "otherwise"):
        trace.inside[name] = rewritten(RULES, chain(4))[1]
    assert trace.summary() == {"leaky": 3, "twice": 4}
    assert (trace.count("twice"), trace.count()) == (4, 7)
    lines = ["leaky: %leaky_relu -> %relu_1", "in then", "  leaky: %leaky_relu -> %relu_4"]
    assert str(trace).splitlines()[:3] == lines
    assert names("abcdefgh") == "%a, %b, %c, %d, %e, %f, %g, %h"
    assert names("abcdefghi") == "%a, %b, %c, %d, %e, %f, %g, %h, … (9 in all)"
    assert str(Summary({"a": 12, "longer": 3})) == "a       12\nlonger   3"


def test_firings_are_a_sequence() -> None:
    many = chain(300)  # so many that the search is a function, whose matches are kept as rows
    _, trace = rewritten(RULES, many)
    _, other = rewritten(RULES, chain(298))
    assert trace.firings[-1].rule == "twice"
    assert trace.firings[1:3] == list(trace.firings)[1:3]
    assert trace.firings == list(trace.firings) == pickle.loads(pickle.dumps(trace.firings))
    assert trace.firings != other.firings
    assert all(firing.replaced[0] in firing.covered == firing.match[0][:2] for firing in trace.firings[1:])


def test_a_trace_of_nothing() -> None:
    _, trace = rewritten(TWICE, chain(1))
    assert (str(trace), str(trace.summary())) == ("no rule fired", "no rule fired")


def test_a_long_trace_is_cut() -> None:
    _, trace = rewritten(Subst(op.ReLU(x), op.Maximum(x, 0.0), name="each"), chain(100))
    lines = str(trace).splitlines()
    assert len(lines) == 61
    assert lines[-1] == "… and 40 more firings"
    assert len(trace.text().splitlines()) == 100
    assert trace.text(limit=99).splitlines()[-1] == "… and 1 more firing"


def test_names_are_those_of_the_new_graph() -> None:
    """New nodes have names of their own, also where one pass makes many of one kind."""
    new, trace = rewritten(Subst(op.ReLU(x), op.Maximum(x, 0.0), name="each"), chain(3))
    assert [firing.by for firing in trace.firings] == [("maximum",), ("maximum_1",), ("maximum_2",)]
    names = [node.name for node in new]
    assert len(set(names)) == len(names)
    assert {"maximum", "maximum_1", "maximum_2"} <= set(names)
    for line in ("%maximum: ", "%maximum_1: ", "%maximum_2: "):
        assert line in str(new)


# Replay.


def replayed(trace: Trace, view: Graph, new: Graph) -> None:
    assert str(trace.replay(view)) == str(new)
    text = str(view)
    trace.replay(view, steps=trace.count() // 2)
    assert str(trace.replay(view, steps=0)) == str(view) == text
    assert str(trace.replay(view, steps=trace.count())) == str(new)


@pytest.mark.parametrize("name", VIEWS)
def test_the_book_replayed(name: str) -> None:
    view = build(VIEWS[name])
    new, trace = EVERY_RULE.apply(view, iterative=True)
    replayed(trace, build(VIEWS[name]), new)


@pytest.mark.sweep(3)
@pytest.mark.law
@pytest.mark.parametrize("strategy", ["priority", "largest", "first"])
@pytest.mark.parametrize("iterative", [False, True])
@QUICK
@given(graphs(most=12), st.data())
def test_random_runs_replayed(strategy: str, iterative: bool, view: Graph, data: st.DataObject) -> None:
    rules = data.draw(st.lists(st.sampled_from(ENDING if iterative else SOUND), min_size=1, max_size=4, unique=True))
    new, trace = RuleSet(rules, strategy=strategy).apply(view, iterative=iterative)
    replayed(trace, view, new)


def test_every_step_is_a_graph_of_its_own() -> None:
    view = chain(4)
    _, trace = RULES.apply(view, iterative=True)
    texts = [str(trace.replay(view, steps=steps)) for steps in range(trace.count() + 1)]
    assert len(set(texts)) == len(texts)
    for steps, text in enumerate(texts):
        assert text.count("= nn.relu") + text.count("= nn.leaky_relu") == 5 - max(0, steps - 1)


def test_the_match_is_the_recorded_one() -> None:
    """Both operands match both ways round; a rule that looks at its match takes the second way."""
    seen: list[Node] = []

    def second(match: Mapping[object, Node]) -> bool:
        seen.append(match[x])
        return len(seen) % 2 == 0

    view = graph(lambda b: b.call("add", b.input("a", 4), b.input("b", 4)))
    rule = Subst(x + y, op.Subtract(x, op.Negative(y)), name="r", where=second)
    new, trace = rule.apply(view)
    assert "subtract(%b" in str(new)
    assert str(trace.replay(view)) == str(new)


def rename(nodes: Mapping[str, Node], view: Graph) -> None:
    nodes["leaky_relu"].name = "other"


def other_attribute(nodes: Mapping[str, Node], view: Graph) -> None:
    nodes["leaky_relu"].attrs = {"alpha": 0.5}


def other_operand(nodes: Mapping[str, Node], view: Graph) -> None:
    nodes["leaky_relu"].redirect(nodes["relu"], nodes["x"])


def other_operator(nodes: Mapping[str, Node], view: Graph) -> None:
    nodes["relu"].op = "tanh"


def other_type(nodes: Mapping[str, Node], view: Graph) -> None:
    nodes["leaky_relu"].type = TensorType((5,), "float32")


@pytest.mark.parametrize(
    ("spoil", "text"),
    [
        (rename, r"step 1 of 2 \(leaky: %leaky_relu -> %relu_1; round 1\) does not apply: there is no node %leaky"),
        (other_attribute, "step 1 of 2 .* there is no match from %leaky_relu.*0.0.*0.5"),
        (other_operand, "step 1 of 2 .* from %leaky_relu, the rule matches other nodes than it did"),
        (other_operator, "step 2 of 2 .*round 2.* there is no match from %relu_1 at %relu: "),
        (other_type, r"step 1 of 2 .* it is refused: %leaky_relu is float32\[5\]"),
    ],
)
def test_a_graph_that_differs(spoil: Callable[[Mapping[str, Node], Graph], None], text: str) -> None:
    view = chain(1)
    _, trace = RULES.apply(view, iterative=True)
    assert trace.count() == 2
    spoilt = corrupted(view, spoil)
    before = str(spoilt)
    with pytest.raises(ReplayError, match=text):
        trace.replay(spoilt)
    assert str(spoilt) == before


def test_a_condition_that_does_not_hold_when_it_is_repeated() -> None:
    rule = Subst(op.LeakyReLU(x), op.Exp(x), where=x.shape[0] == 4)
    trace = rule.apply(chain(0))[1]
    other = graph(lambda b: b.call("nn.leaky_relu", b.input("x", 5), alpha=0.0))
    with pytest.raises(ReplayError, match=r"from %leaky_relu: where: expected \(Wildcard.shape\[0\] == 4\), found 5"):
        trace.replay(other)


@pytest.mark.parametrize("fires", [True, False])
def test_what_went_in_the_same_round_is_not_rewritten_once_more(fires: bool) -> None:
    """Because it was rewritten, or because nothing uses it any more."""
    first = Subst(op.Subtract(x, x), op.Zeros(shape=(4,), dtype="float32"), name="first", priority=1)
    rules = RuleSet([first, Subst(op.Tanh(x), op.Sigmoid(x), name="second")])

    def make(b: Builder, used: bool) -> list[Node]:
        inner = b.call("tanh", b.input("x", 4))
        return [b.call("subtract", inner, inner), *[inner] * used]

    trace = rules.apply(graph(lambda b: make(b, True)))[1]
    if fires:
        trace.firings = Firings([*trace.firings, trace.firings[-1]])
    with pytest.raises(ReplayError, match=f"step {2 + fires} of {2 + fires} .*: %tanh has gone in the same round"):
        trace.replay(graph(lambda b: make(b, fires)))


def test_steps_that_there_are_not() -> None:
    _, trace = RULES.apply(chain(1), iterative=True)
    for steps in (-1, 3):
        with pytest.raises(ReplayError, match=rf"steps={steps}: the trace has 2 firings"):
            trace.replay(chain(1), steps=steps)


# Workloads.


def branches() -> Workload:
    torch.manual_seed(0)
    return Workload.from_torch(settle(Inception(8, 4, (4, 6), (2, 4), 4)), torch.randn(1, 8, 6, 6))


def bert() -> Workload:
    import transformers

    torch.manual_seed(0)
    config = transformers.BertConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, vocab_size=50, use_cache=False
    )
    return Workload.from_torch(transformers.BertModel(config).eval(), torch.randint(0, 50, (1, 8)))


@pytest.mark.sweep(3)
@pytest.mark.parametrize("make", [branches, bert])
def test_workloads_replayed(make: Callable[[], Workload]) -> None:
    before = make()
    after = RuleSet(OPTIMISING)(before, iterative=True)
    again = after.trace.replay(make())
    assert again.text() == after.text()
    assert str(again.trace.firings) == str(after.trace.firings)
    assert (again.trace.folded, again.trace.shared) == (after.trace.folded, after.trace.shared)
    after.compare(again, rtol=0, atol=0).check()
    for steps in (0, 1, after.trace.count() // 2):
        part = after.trace.replay(before, steps=steps)
        assert part.trace.count() == steps
        before.compare(part).check()


def test_batch_norms_fold_and_then_branches_merge_in_one_call() -> None:
    before = branches()
    after = RuleSet(OPTIMISING)(before, iterative=True)
    assert after.trace.summary() == {
        "merge-element-wise-variadic": 1, "conv-batch-norm": 6, "parallel-conv-bias-variadic": 1,
    }  # fmt: skip
    assert {firing.rule: firing.round for firing in after.trace.firings} == {
        "conv-batch-norm": 1, "merge-element-wise-variadic": 1, "parallel-conv-bias-variadic": 2,
    }  # fmt: skip
    assert before.op_counts()["nn.conv2d"] == 6
    assert after.op_counts()["nn.conv2d"] == 4
    weights = [name for name in after.params if "num_batches" not in name]
    assert len(weights) == 4 + 4  # what was folded on the way is gone
    assert "one.conv.weight_concatenate" in weights  # not weight_multiply_concatenate
    before.compare(after).check()
    unfolded = RuleSet(OPTIMISING)(before, iterative=True, fold_params=False)
    assert unfolded.trace.count("parallel-conv-variadic") == 0


def test_folding_on_the_way_needs_a_workload() -> None:
    before = branches()
    trace = RuleSet(OPTIMISING)(before, iterative=True).trace
    with pytest.raises(ReplayError, match="replay the trace on a workload"):
        trace.replay(before.graph)
