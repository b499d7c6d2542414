"""Loops: their bodies are rewritten as graphs of their own where that is safe, and tell what they change."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch._higher_order_ops import scan, while_loop
from torch._higher_order_ops.associative_scan import associative_scan_op
from torch._higher_order_ops.map import map as map_rows
from torch._higher_order_ops.while_loop import while_loop_op
from torch.fx.experimental.proxy_tensor import make_fx

from gsl import Subst, Workload, op, pat
from gsl.front.fx import regions
from gsl.graph import INPUT, PARAM, Effect
from gsl.rules import RULES
from tests.helpers.compiled import Recorder
from tests.helpers.nets import NetOfOne
from tests.torch.models import RELUS, SMALL, X, compiled, equal


def relus(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(torch.relu(x))


def while_(self: Any, x: torch.Tensor) -> torch.Tensor:
    start = (torch.tensor(0), x.sum(1))
    return while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, relus(self.layer(y)) * 2.0 * 3.0), start)[1]


def mapped(self: Any, x: torch.Tensor) -> torch.Tensor:
    return map_rows(lambda row: relus(self.layer(row)) * 2.0 * 3.0, x)


def recurrent(self: Any, x: torch.Tensor, dim: int = 0) -> Any:
    def step(state: torch.Tensor, row: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        state = relus(self.layer(row) + state)
        return state, state * 2.0 * 3.0

    return scan(step, torch.zeros(x.shape[1 - dim], 4), x, dim=dim)


def batch_first(self: Any, x: torch.Tensor) -> Any:
    return recurrent(self, x, dim=1)


def nested(self: Any, x: torch.Tensor) -> torch.Tensor:
    def body(i: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return i + 1, scan(lambda state, row: (state + row, relus(state) * 2.0 * 3.0), y[0] * 0.5, y)[1]

    return while_loop(lambda i, y: i < 3, body, (torch.tensor(0), x))[1]


FORMS: dict[str, Callable[..., Any]] = {
    "while_loop": while_, "map": mapped, "scan": recurrent, "batch_first": batch_first, "nested": nested,
}  # fmt: skip
INPUTS = (torch.randn(3, 5, 4), -torch.ones(3, 5, 4))


def model(form: Callable[..., Any]) -> NetOfOne:
    torch.manual_seed(0)
    return NetOfOne(form, layer=nn.Linear(4, 4)).eval()


@pytest.mark.sweep(12)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("decomposed", [False, True])
def test_bodies_of_exported_loops_are_rewritten(form: str, decomposed: bool, tmp_path: Path) -> None:
    exported = torch.export.export(model(FORMS[form]), INPUTS[:1])
    if decomposed:
        exported = exported.run_decompositions()
    text = str(exported)
    old = Workload.from_exported(exported)
    new = SMALL(old)
    assert (new.trace.count("relus"), new.trace.count("triple")) == (1, 1)
    assert str(new.trace.replay(old).exported) == str(new.exported)
    assert SMALL(new).trace.count() == 0
    assert str(exported) == text
    torch.export.save(new.exported, tmp_path / "new.pt2")
    loaded = torch.export.load(tmp_path / "new.pt2")
    for inputs in INPUTS:
        old.compare(new, (inputs,)).check()
        for again in (new.exported.run_decompositions(), loaded, loaded.run_decompositions()):
            equal(again.module()(inputs), old.mod(inputs))


@pytest.mark.sweep(2)
@pytest.mark.parametrize("form", FORMS)
def test_bodies_of_traced_loops_are_rewritten(form: str) -> None:
    module = torch.export.export(model(FORMS[form]), INPUTS[:1]).module(check_guards=False)
    with torch.no_grad():  # with gradients, what is between the calls is returned, too
        again = make_fx(module)(INPUTS[0])
    for traced in (module, again):
        old = Workload.from_fx(traced, INPUTS[:1])
        new = SMALL(old)
        assert (new.trace.count("relus"), new.trace.count("triple")) == (1, 1)
        for inputs in INPUTS:
            old.compare(new, (inputs,)).check()


@pytest.mark.sweep(4)
@pytest.mark.parametrize("then", ["eager", "aot_eager"])
@pytest.mark.parametrize("form", FORMS)
def test_bodies_of_compiled_loops_are_rewritten(form: str, then: str) -> None:
    module = model(FORMS[form])
    with torch.no_grad():
        call, backend = compiled(module, SMALL, then)
        for inputs in INPUTS:
            equal(call(inputs), module(inputs))
    found = [sum(trace.count(rule) for trace in backend.traces) for rule in ("relus", "triple")]
    assert found == ([0, 0] if form == "nested" else [1, 1]), "a back end looks one graph deep"


def test_sizes_may_vary() -> None:
    batch, steps = torch.export.Dim("batch", min=2, max=64), torch.export.Dim("steps", min=2, max=64)

    def form(self: Any, x: torch.Tensor) -> Any:
        return scan(lambda state, row: (relus(self.layer(row) + state), state * 2.0 * 3.0), x[:, 0] * 1.5, x, dim=1)

    exported = torch.export.export(model(form), INPUTS[:1], dynamic_shapes=(({0: batch, 1: steps},)))
    old = Workload.from_exported(exported)
    new = SMALL(old)
    assert (new.trace.count("relus"), new.trace.count("triple")) == (1, 1)
    for inputs in (torch.randn(2, 7, 4), torch.randn(9, 3, 4)):
        equal(new.mod(inputs), old.mod(inputs))


# ---------------------------------------------------------------- what stays


def test_a_weight_that_a_loop_begins_with_is_no_weight_in_its_body() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.start, self.scale = nn.Parameter(torch.ones(5, 4)), nn.Parameter(torch.ones(5, 4))

        def forward(self, x: torch.Tensor) -> Any:
            def step(state: torch.Tensor, row: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
                return torch.relu(state) + row, torch.relu(self.scale) * row

            return scan(step, self.start, x)

    with torch.no_grad():
        weight = pat.Param()
        call, backend = compiled(Model(), Subst(op.ReLU(weight), op.Maximum(weight, 0.0), name="weight"))
        equal(call(INPUTS[0]), Model()(INPUTS[0]))
    assert sum(trace.count() for trace in backend.traces) == 1, "of the scale only"


def test_a_row_that_lies_otherwise_than_torch_traced_it_is_not_viewed() -> None:
    def dense(self: Any, x: torch.Tensor) -> torch.Tensor:
        return map_rows(lambda row: relus(row.clone(memory_format=torch.contiguous_format).view(-1)), x.mT)

    old = Workload.from_torch(model(dense), INPUTS[:1])
    rule = RULES["copy-identity"]
    for rules, kept in ((rule, True), (RELUS, False)):
        new = rules(old)
        assert (new.trace.count() == 0) == kept
        for exported in (new.exported, new.exported.run_decompositions()):
            equal(exported.module()(INPUTS[0]), old.mod(INPUTS[0]))
    (refused,) = rule.explain(old).inside["body_graph_0"].refused
    assert "the graph is kept" in str(refused)
    call, _ = compiled(model(dense), rule, "aot_eager")
    equal(call(INPUTS[0]), old.mod(INPUTS[0]))


def test_the_layouts_of_rows_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    def dense(self: Any, x: torch.Tensor) -> torch.Tensor:
        return map_rows(lambda row: row.clone(memory_format=torch.contiguous_format).view(-1) * 2.0, x.mT)

    old = Workload.from_torch(model(dense), INPUTS[:1])
    monkeypatch.setattr(regions, "_as_they_lie", lambda graphs, call, values: dict.fromkeys(graphs))
    with pytest.raises(RuntimeError, match="view size is not compatible"):
        RULES["copy-identity"](old).mod(INPUTS[0])


def test_a_body_stays_whose_results_lie_otherwise_than_what_it_begins_with() -> None:
    def turned(x: torch.Tensor) -> Any:
        def body(i: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return i + 1, relus(y.contiguous())

        return while_loop_op(lambda i, y: i < 3, body, (torch.tensor(0), x[0].t()), ())

    old = Workload.from_fx(make_fx(turned)(INPUTS[0]), INPUTS[:1])
    assert "while_loop" in str(old.native.graph)
    assert not old.inside
    assert RELUS(old).trace.count() == 0


def test_a_body_returns_no_memory_of_what_it_is_fed() -> None:
    def copies(self: Any, x: torch.Tensor) -> Any:
        def body(i: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return i + 1, z.clone(), torch.relu(z).clone()

        return while_loop(lambda i, y, z: i < 3, body, (torch.tensor(0), x, x + 1))[1:]

    for decomposed in (False, True):
        exported = torch.export.export(model(copies), INPUTS[:1])
        old = Workload.from_exported(exported.run_decompositions() if decomposed else exported)
        new = RULES["copy-identity"](old)
        (trace,) = new.trace.inside.values()
        assert trace.count() == 1, "the copy of a fresh result"
        equal(new.exported.run_decompositions().module()(INPUTS[0]), old.mod(INPUTS[0]))


def copied(self: Any, x: torch.Tensor) -> Any:
    def step(state: torch.Tensor, row: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        state = torch.tanh(relus(self.layer(row)) + state)
        return state.clone(), state * torch.sigmoid(state) * 2.0 * 3.0

    return scan(step, torch.zeros(5, 4), x)


def test_no_result_of_a_scan_comes_to_be_used_elsewhere() -> None:
    """Torch would keep it for the gradients, too, and refuse that."""
    net = model(copied)
    fast, backend = compiled(net, [RULES["copy-identity"], *SMALL], then="aot_eager")
    found, wanted = (
        torch.autograd.grad(sum(result.sum() for result in each(INPUTS[0])), [net.layer.bias]) for each in (fast, net)
    )
    equal(found, wanted)
    assert dict(backend.traces[1].summary()) == {"relus": 1, "triple": 1}
    assert "torch wants for itself" in str(backend.traces[1])


def test_the_graph_of_an_associative_scan_stays() -> None:
    def scanned(x: torch.Tensor) -> Any:
        return associative_scan_op(lambda a, b: (relus(a + b),), [x], ())

    old = Workload.from_fx(make_fx(scanned)(INPUTS[0]), INPUTS[:1])
    assert "associative_scan" in str(old.native.graph)
    assert not old.inside
    assert all(node.effect is None for node in old.graph)
    assert RELUS(old).trace.count() == 0


# ---------------------------------------------------------------- effects


def test_a_loop_that_changes_nothing_hinders_no_match() -> None:
    for form in FORMS.values():
        def around(self: Any, x: torch.Tensor, form: Any = form) -> Any:
            y = x * 2.0
            z = form(self, y)
            return y * 3.0, z

        exported = torch.export.export(NetOfOne(around, layer=nn.Linear(4, 4)).eval(), INPUTS[:1])
        old = Workload.from_exported(exported)
        assert {node.effect for node in old.graph} == {None}
        twice = X * 2.0
        new = Subst([twice, twice * 3.0], [X * 2.0, X * 6.0], name="both")(old)
        assert len(new.trace.firings) == 1
        old.compare(new).check()


def test_a_loop_has_the_effects_of_its_body() -> None:
    def dropped(self: Any, x: torch.Tensor) -> torch.Tensor:
        return map_rows(lambda row: torch.dropout(row, 0.5, train=True), x)

    def in_place(self: Any, x: torch.Tensor) -> torch.Tensor:
        return map_rows(lambda row: (row + 1).relu_(), x)

    def effects(form: Callable[..., Any]) -> set[Effect]:
        exported = torch.export.export(model(form), INPUTS[:1])
        return {node.effect for node in Workload.from_exported(exported).graph if node.effect is not None}

    assert effects(dropped) == {Effect.RANDOM}
    assert effects(in_place) == set()


def test_a_loop_tells_which_of_its_operands_it_changes() -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.ones(4))
            self.register_buffer("other", torch.ones(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            def body(i: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
                self.count.add_(1)
                return i + 1, relus(y + self.count + self.other)

            return while_loop(lambda i, y: i < 3, body, (torch.tensor(0), x))[1] + self.count * 2.0 * 3.0

    with torch.no_grad():
        recorder = Recorder()
        call, backend = compiled(Counting(), SMALL, recorder, fold_params=True)
        expected = Counting()
        for _ in range(2):
            equal(call(INPUTS[0]), expected(INPUTS[0]))
    (workload, *_) = backend.graphs
    (loop,) = [node for node in workload.graph if node.effect is not None]
    assert loop.effect is Effect.MUTATES
    kinds = {node.name: node.op for node in workload.graph}
    assert {kinds[name] for name in kinds if "count" in name} == {INPUT}, "no weight, as it changes"
    assert {kinds[name] for name in kinds if "other" in name} == {PARAM}
    assert sum(trace.count("relus") for trace in backend.traces) == 1


def test_each_call_of_a_graph_has_its_own_effects() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.no_grad():
                y = x + self.count
            z = y.cos()
            with torch.no_grad():
                self.count.add_(x)
            return y + z

    with torch.enable_grad():
        exported = torch.export.export(Twice(), (torch.randn(3),))
    view = Workload.from_exported(exported).graph
    effects = [node.effect for node in view if str(node.op) == "wrap_with_set_grad_enabled"]
    assert effects == [None, Effect.MUTATES]
