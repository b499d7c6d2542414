"""Sound rules on random graphs: the numbers stay, the graph stays well-formed, and the text is the same each time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gsl import RuleSet, Subst, op, pat
from gsl.graph import Effect, Graph, Node
from gsl.rewrite.check import Checker
from tests.helpers.graphs import Builder, graph, run
from tests.helpers.tensors import is_close
from tests.match.random_cases import add_call, graphs
from tests.rewrite.checks import corrupted, faults, random_inputs, rewritten, same_numbers
from tests.tiers import examples

x, y, z = pat.Wildcard(), pat.Wildcard(), pat.Wildcard()
relu, leaky = op.ReLU(x), op.LeakyReLU(x)
field = pat.Tuple(x, y)
chosen = pat.Alt(op.ReLU(op.ReLU(x)), op.ReLU(op.LeakyReLU(x, alpha=1.0)))

SOUND = [
    Subst(x + y, y + x, name="swap"),
    Subst(x * 2, x + x, name="double"),
    Subst(op.ReLU(op.ReLU(x)), op.ReLU(x), name="relu twice"),
    Subst(op.LeakyReLU(x, alpha=1.0), x, name="identity"),
    Subst(op.LeakyReLU(x, alpha=0.0), op.ReLU(x), name="leaky to relu"),
    Subst(op.Maximum(x, x), x, name="maximum of one"),
    Subst(field[0], x, name="first field"),
    Subst(field[1], y, name="second field"),
    Subst((x + y) + z, x + (y + z), name="associate"),
    Subst(x * y + x * z, x * (y + z), name="factor"),
    Subst([op.ReLU(x), op.Tanh(x)], [op.Maximum(x, x * 0), op.Tanh(x)], name="two outputs"),
    Subst([relu, op.Tanh(relu)], [op.Maximum(x, x * 0), op.Tanh(op.Maximum(x, x * 0))], name="one inside the other"),
    Subst([op.ReLU(x), x + y], [op.ReLU(x), y + x], name="beside each other"),
    Subst(chosen, pat.Match(chosen, [op.ReLU(x), op.ReLU(x)]), name="alternatives"),
    Subst(op.Subtract(x, y), lambda match: x + y * -1, name="function"),
    Subst(op.Tanh(leaky) + y, y + op.Tanh(leaky.like(x)), name="like"),
    Subst(op.Sigmoid(~op.ReLU(pat.Wildcard()) & x), op.Sigmoid(x) * 1, name="not after relu"),
]
QUICK = settings(max_examples=examples(150), suppress_health_check=list(HealthCheck))


@pytest.mark.law
@QUICK
@given(graphs(most=12), st.lists(st.sampled_from(SOUND), min_size=1, max_size=4, unique=True), st.data())
def test_sound_rules_keep_the_numbers(view: Graph, rules: list[Subst], data: st.DataObject) -> None:
    rule_set = RuleSet(rules, strategy=data.draw(st.sampled_from(["priority", "largest", "first"])))
    new, trace = rewritten(rule_set, view)
    again, same_trace = rewritten(rule_set, view)
    assert str(again) == str(new)
    assert str(same_trace) == str(trace)


ENDING = [rule for rule in SOUND if rule.name in {
    "double", "relu twice", "identity", "leaky to relu", "maximum of one", "first field", "second field",
    "alternatives",
}]  # fmt: skip


@pytest.mark.law
@QUICK
@given(graphs(most=12), st.lists(st.sampled_from(ENDING), min_size=1, unique=True))
def test_at_a_fixed_point_nothing_matches(view: Graph, rules: list[Subst]) -> None:
    new, _ = rewritten(RuleSet(rules), view, iterative=True)
    for rule in rules:
        assert rewritten(rule, new)[1].count() == 0


@pytest.mark.long
def test_the_random_graphs_make_every_rule_fire() -> None:
    fired: set[str] = set()

    @settings(QUICK, max_examples=400)
    @given(graphs(most=12))
    def collect(view: Graph) -> None:
        for rule in SOUND:
            if rule.name not in fired and rewritten(rule, view, numbers=False)[1].count():
                fired.add(rule.name)

    collect()
    assert len(fired) >= len(SOUND) - 3, {rule.name for rule in SOUND} - fired


# The oracles can fail.


def small() -> Graph:
    return graph(lambda b: b.call("add", b.call("nn.relu", b.input("x", 4)), b.call("tanh", b.nodes[0])))


def forget_user(nodes: Mapping[str, Node], view: Graph) -> None:
    nodes["relu"].drop_user(nodes["add"])


def wrong_order(nodes: Mapping[str, Node], view: Graph) -> None:
    view.nodes.reverse()


def stale_user(nodes: Mapping[str, Node], view: Graph) -> None:
    nodes["relu"].add_user(nodes["tanh"])


def lost_operand(nodes: Mapping[str, Node], view: Graph) -> None:
    view.nodes.remove(nodes["relu"])


def lost_output(nodes: Mapping[str, Node], view: Graph) -> None:
    view.outputs.append(Node("nn.relu", name="ghost"))


def twice(nodes: Mapping[str, Node], view: Graph) -> None:
    view.nodes.append(nodes["add"])


@pytest.mark.parametrize("spoil", [forget_user, wrong_order, stale_user, lost_operand, lost_output, twice])
def test_the_check_of_views_finds_what_is_wrong(spoil: Callable[[Mapping[str, Node], Graph], None]) -> None:
    assert faults(small()) == []
    assert faults(corrupted(small(), spoil))


def test_the_comparison_of_numbers_finds_an_unsound_rule() -> None:
    rule: Any = Subst(op.ReLU(x), op.Sigmoid(x))
    assert not same_numbers(small(), rule(small()))


# Graphs that change tensors in place. They are run as they stand, so that a read on the wrong side of a change shows.


def bump(tensor: Any) -> Any:
    tensor += 1
    return tensor


@st.composite
def impure(draw: st.DrawFn) -> Graph:
    def make(b: Builder) -> list[Node]:
        tensors = [b.input("x", 4), b.input("w", 4)]
        for _ in range(draw(st.integers(2, 10))):
            if draw(st.integers(0, 3)) == 0:
                tensors.append(b.call(bump, draw(st.sampled_from(tensors)), effect=Effect.MUTATES))
            elif draw(st.integers(0, 4)) == 0:
                tensors.append(b.call("reshape", draw(st.sampled_from(tensors)), newshape=(4,)))
            elif draw(st.booleans()):
                tensors.append(b.call("add", draw(st.sampled_from(tensors[-3:])), draw(st.sampled_from(tensors))))
            else:
                tensors.append(add_call(draw, b, tensors))
        return tensors[2:]

    return graph(make)


ASSOCIATE, IDENTITY = (next(rule for rule in SOUND if rule.name == name) for name in ("associate", "identity"))
VIEWS = [
    Subst(op.Reshape(x, newshape=(4,)), x, name="no reshape"),
    Subst(op.Reshape(op.Reshape(x, newshape=(4,)), newshape=(4,)), op.Reshape(x, newshape=(4,)), name="one reshape"),
    Subst(op.Reshape(x, newshape=(4,)), x * 1, name="a copy"),
    Subst(op.ReLU(x), op.Reshape(op.ReLU(x), newshape=(4,)), name="a view"),
]


def outcome(view: Graph) -> list[Any]:
    """The outputs and the inputs after a run."""
    inputs = random_inputs(view)
    return [*run(view, inputs), *inputs.values()]


def is_kept(view: Graph, new: Graph) -> bool:
    return all(map(is_close, outcome(view), outcome(new)))


@pytest.mark.law
@settings(QUICK, max_examples=examples(400))
@given(impure(), st.lists(st.sampled_from([*SOUND, *VIEWS]), min_size=1, max_size=4, unique=True))
def test_sound_rules_keep_what_is_changed_in_place(view: Graph, rules: list[Subst]) -> None:
    new, _ = rewritten(RuleSet(rules), view, numbers=False)
    assert [node.name for node in new if node.effect] == [node.name for node in view if node.effect]
    assert is_kept(view, new)


@pytest.mark.parametrize("check", ["_moves", "_aliases"])
@pytest.mark.slow
def test_without_a_check_something_is_lost(check: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Checker, check, lambda *_: None)
    kept: list[bool] = []

    @settings(QUICK, max_examples=400)
    @given(impure())
    def collect(view: Graph) -> None:
        for rule in [ASSOCIATE, IDENTITY, *VIEWS] if all(kept) else []:
            kept.append(is_kept(view, rewritten(rule, view, numbers=False)[0]))

    collect()
    assert not all(kept)


def test_a_run_shows_a_read_on_the_wrong_side_of_a_change() -> None:
    def make(late: bool) -> Graph:
        def build(b: Builder) -> list[Node]:
            data = b.input("x", 4)
            steps = [lambda: b.call("nn.relu", data), lambda: b.call(bump, data, effect=Effect.MUTATES)]
            made = [step() for step in (reversed(steps) if late else steps)]
            return made[::-1] if late else made

        return graph(build)

    assert is_kept(make(False), make(False))
    assert not is_kept(make(False), make(True))
