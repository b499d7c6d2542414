"""Several threads apply the same rules at once: what each gets is what one thread alone gets."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

from gsl import RuleSet, Subst, Workload, op, pat
from gsl.fx import Pass
from gsl.graph import Graph
from gsl.rewrite.apply import apply
from tests.helpers.graphs import Builder, graph

THREADS = 4
FEW = 2
"""How many threads work on TVM, whose imports take long."""


@pytest.fixture(autouse=True)
def often() -> Iterator[None]:
    """Let threads take turns after every few instructions."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


def at_once(work: Callable[[int], Any], threads: int = THREADS) -> list[Any]:
    """What a function gives in several threads that start together, or the error that it raises."""
    results: list[Any] = [None] * threads
    start = threading.Barrier(threads)

    def run(number: int) -> None:
        start.wait()
        try:
            results[number] = work(number)
        except Exception as error:
            results[number] = error

    started = [threading.Thread(target=run, args=(number,)) for number in range(threads)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
    return results


def rules() -> RuleSet:
    """New rules, of which nothing has been compiled yet: of several starts, with guards, choices and groups."""
    x, y = pat.Wildcard(), pat.Wildcard()
    relu, leaky = op.ReLU(x), op.LeakyReLU(x)
    either = op.ReLU(op.ReLU(x)) | op.ReLU(op.Abs(x))
    return RuleSet([
        Subst(either, pat.Match(either, [op.ReLU(x), op.Abs(x)]), name="either"),
        Subst(op.Tanh(leaky) + y, y - op.Negative(op.Tanh(leaky.like(x))), name="guarded", where=leaky.alpha > 0.2),
        Subst([relu, op.Tanh(x) * relu], [op.Maximum(x, 0.0), op.Tanh(x) * op.Maximum(x, 0.0)], name="two"),
        Subst(op.Negative(op.Negative(x)), x, name="negative twice"),
        Subst(pat.Repeat(op.Negative(pat.Wildcard()), 2), lambda match: match.outputs, name="never",
              where=lambda match: "no"),
        Subst(op.Sigmoid(~op.ReLU(pat.Wildcard()) & x), op.Divide(1.0, op.Exp(op.Negative(x)) + 1.0), name="sigmoid"),
    ])  # fmt: skip


def view(number: int) -> Graph:
    def make(b: Builder) -> Any:
        value = b.input("x", 4)
        other = b.input("y", 4)
        for step in range(30 + number):
            leaky = b.call("tanh", b.call("nn.leaky_relu", value, alpha=0.1 * (step % 5)))
            relu = b.call("nn.relu", b.call("nn.relu", value))
            value = b.call("multiply", b.call("add", leaky, other), b.call("negative", b.call("negative", relu)))
            other = b.call("sigmoid", b.call("nn.relu", other) if step % 3 else other)
        return [value, other]

    return graph(make)


def outcome(rule_set: RuleSet, subject: Graph) -> tuple[str, str]:
    new, trace = apply(list(rule_set), subject, strategy=rule_set.strategy, iterative=True)
    return str(new), str(trace)


@pytest.mark.sweep(2)
@pytest.mark.parametrize("same", [True, False])
def test_new_rules_on_views(same: bool) -> None:
    """Searches are compiled, functions written, tables filled while all threads need them."""
    for _ in range(6):
        shared = rules()
        views = [view(0 if same else number) for number in range(THREADS)]
        if same:
            views = views[:1] * THREADS
        found = at_once(lambda number, shared=shared, views=views: outcome(shared, views[number]))  # type: ignore[misc]
        expected = [outcome(rules(), view(0 if same else number)) for number in range(THREADS)]
        # The places of rules are told alike, because they are built in the same lines.
        assert found == expected


def test_everything_that_is_asked_of_a_rule() -> None:
    """Matches, explanations, texts, drawings and fingerprints, of a rule and a view that are new to all."""
    for _ in range(6):
        shared, subject = rules(), view(2)

        def work(number: int, shared: RuleSet = shared, subject: Graph = subject) -> Any:
            asked: list[Callable[[], Any]] = [
                lambda: [rule.name for rule, _ in shared.match(subject)],
                lambda: str(shared.explain(subject)),
                lambda: [str(rule) for rule in shared],
                lambda: outcome(shared, subject),
                lambda: str(subject),
                lambda: shared["two"].visualize().svg,
            ]
            places = [(number + step) % len(asked) for step in range(len(asked))]
            answers = {place: asked[place]() for place in places}
            return sorted(answers.items())

        found = at_once(work)
        assert all(isinstance(result, list) for result in found), found
        assert all(result == found[0] for result in found)


class Model(nn.Module):
    def __init__(self, number: int = 0) -> None:
        super().__init__()
        self.number = number
        self.linear = nn.Linear(4, 4)
        self.weight = nn.Parameter(torch.ones(4))

    def forward(self, x: torch.Tensor) -> Any:
        for step in range(4 + self.number):
            y = torch.tanh(nn.functional.leaky_relu(x, 0.1 * (step + 1))) + x
            x = self.linear(torch.relu(torch.relu(y))) * torch.sigmoid(x) * self.weight * 2.0
        return x, torch.neg(-x)


def workload(number: int, form: str) -> Workload:
    torch.manual_seed(number)
    model, inputs = Model(number).eval(), (torch.randn(3, 4),)
    if form == "traced":
        return Workload.from_fx(torch.fx.symbolic_trace(model), inputs)
    return Workload.from_exported(torch.export.export(model, inputs))


@pytest.mark.sweep(2)
@pytest.mark.parametrize("same", [True, False])
@pytest.mark.parametrize("form", ["traced", "exported"])
def test_workloads_of_torch(form: str, same: bool) -> None:
    expected = [str(rules()(workload(0 if same else number, form), iterative=True)) for number in range(THREADS)]
    for _ in range(2):
        shared = rules()
        old = [workload(0 if same else number, form) for number in range(1 if same else THREADS)] * THREADS

        def work(number: int, shared: RuleSet = shared, old: list[Workload] = old) -> Any:
            new = shared(old[number], iterative=True)
            old[number].compare(new).check()
            return str(new)

        assert at_once(work) == expected


def test_one_pass_in_place_on_modules_of_several_threads() -> None:
    expected = []
    for number in range(THREADS):
        alone = torch.fx.symbolic_trace(Model(number).eval())
        Pass(rules(), iterative=True)(alone)
        expected.append(alone.code)
    for _ in range(2):
        shared = Pass(rules(), iterative=True)
        modules = [torch.fx.symbolic_trace(Model(number).eval()) for number in range(THREADS)]
        found = at_once(lambda number, shared=shared, modules=modules: shared(modules[number]))  # type: ignore[misc]
        assert found == [None] * THREADS
        assert [module.code for module in modules] == expected
        assert len(shared.traces) == THREADS


@pytest.mark.sweep(3)
@pytest.mark.parametrize("same", [True, False])
def test_workloads_of_relax(same: bool) -> None:
    relax = pytest.importorskip("tvm.relax")
    from tvm.relax.frontend.torch import from_exported_program

    def load(number: int) -> Workload:
        torch.manual_seed(number)
        exported = torch.export.export(Model(number).eval(), (torch.randn(3, 4),))
        return Workload.from_relax(from_exported_program(exported))

    expected = [str(rules()(load(0 if same else number), iterative=True)) for number in range(FEW)]
    for _ in range(1 if same else 2):
        shared = rules()
        old = [load(number) for number in range(1 if same else FEW)] * FEW

        def work(number: int, shared: RuleSet = shared, old: list[Workload] = old) -> Any:
            new = shared(old[number], iterative=True)
            relax.analysis.well_formed(new.mod)
            return str(new)

        assert at_once(work, FEW) == expected


def test_what_the_threads_give_is_compared() -> None:
    """A rule set that remembers the last graph gives other threads the wrong one."""

    views = [view(number) for number in range(THREADS)]
    latest: list[Graph] = []
    written = threading.Barrier(THREADS)

    def work(number: int) -> str:
        latest[:] = [views[number]]
        written.wait()
        return str(latest[0])

    assert at_once(work) != [str(each) for each in views]


def test_rules_built_in_several_threads() -> None:
    expected = [str(rule) for rule in rules()]
    for _ in range(5):
        assert at_once(lambda number: [str(rule) for rule in rules()]) == [expected] * THREADS
