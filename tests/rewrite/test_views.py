"""Which view a rewrite works on, and that nothing of it stays."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gsl import RuleSet, Subst, Workload, op, pat
from gsl.errors import RewriteError
from gsl.graph import Graph, Node

torch = pytest.importorskip("torch")
fx = torch.fx
x = pat.Wildcard()
RELUS = Subst(op.ReLU(op.ReLU(x)), op.ReLU(x), name="relus")
TANH = Subst(op.Tanh(x), op.Sigmoid(x), name="tanh")


def model(y: Any) -> Any:
    return torch.tanh(torch.relu(torch.relu(y)))


def workload() -> Workload:
    return Workload.from_fx(fx.symbolic_trace(model), example_inputs=(torch.ones(2),))


class Loads:
    """Counts how often a program is loaded."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, program: Any) -> None:
        self.number = 0
        load = program.load

        def counted() -> Graph:
            self.number += 1
            return load()  # type: ignore[no-any-return]

        monkeypatch.setattr(program, "load", counted)


def test_a_workload_is_as_it_was_whoever_rewrites_its_view() -> None:
    untouched, rewritten = workload(), workload()
    new = RELUS(rewritten)
    assert new.trace.count() == 1
    assert str(rewritten.graph) == str(untouched.graph)
    assert str(RELUS(rewritten).graph) == str(new.graph) != str(rewritten.graph)


def test_a_view_that_was_seen_is_not_changed() -> None:
    wl = workload()
    view = wl.graph
    before = str(view), [list(node.users) for node in view]
    RELUS(wl)
    assert wl.graph is view
    assert (str(view), [list(node.users) for node in view]) == before


def test_a_view_is_loaded_at_most_once_more_than_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    wl = workload()
    loads = Loads(monkeypatch, wl.program)
    for _ in range(5):
        RELUS(wl)
        TANH(wl)
    assert loads.number == 2
    assert wl.graph is wl.graph
    assert loads.number == 2


def test_a_rewrite_that_fails_leaves_the_workload_as_it_was() -> None:
    def fail(match: Any) -> Any:
        raise KeyError("nothing")

    wl = workload()
    with pytest.raises(RewriteError, match="no target"):
        RuleSet([RELUS, Subst(op.Tanh(x), fail, name="fails")])(wl)
    assert str(wl.graph) == str(workload().graph)


@pytest.fixture
def without_collector() -> Iterator[None]:
    """Python's collector rests, and from now on it knows nothing of what there is already."""
    gc.collect(1)
    gc.freeze()  # for good: what is thawed is gone through again in each full collection
    gc.disable()
    yield
    gc.enable()


def nodes() -> int:
    """How many nodes of views were made in this test, and are there."""
    return sum(issubclass(type(each), Node) for each in gc.get_objects())


def in_place() -> Callable[[], Any]:
    from gsl.fx import Pass

    module, rules = fx.symbolic_trace(model), Pass([RELUS, TANH])
    return lambda: rules(module)


def of_torch() -> Callable[[], Any]:
    module = fx.symbolic_trace(model)
    return lambda: RuleSet([RELUS, TANH])(Workload.from_fx(module, example_inputs=(torch.ones(2),)))


def of_relax(rules: RuleSet | None = None) -> Callable[[], Any]:
    pytest.importorskip("tvm")
    from tvm import relax

    from tests.front.relax.relax_helpers import function, tensor

    def body(builder: Any, y: Any) -> Any:
        for operator in (relax.op.nn.relu, relax.op.nn.relu, relax.op.tanh):
            y = builder.emit(operator(y))
        return y

    module = function([tensor("x", 2, 3)], body)
    rules = rules or RuleSet([RELUS, TANH])
    return lambda: rules(Workload.from_relax(module)).mod


@pytest.mark.sweep(2)
@pytest.mark.parametrize("make", [in_place, of_torch, of_relax])
@pytest.mark.filterwarnings("ignore::gsl.errors.UntypedWarning")
def test_what_a_rewrite_needs_is_freed_without_the_collector(
    make: Callable[[], Callable[[], Any]], without_collector: None
) -> None:
    rewrite = make()
    before = nodes()
    kept = rewrite()
    assert nodes() == before
    del kept


def test_groups_in_relax_leave_one_body_and_no_view(without_collector: None) -> None:
    rewrite = of_relax(RuleSet([Subst(op.ReLU(op.ReLU(x)), pat.Fused("twice"), name="twice")]))
    before = nodes()
    kept = rewrite()
    assert nodes() == before + 3
    del kept


def test_users_that_stay_keep_a_view_from_being_freed(without_collector: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Graph, "release", lambda self: None)
    rewrite = of_torch()
    before = nodes()
    rewrite()
    assert nodes() > before
