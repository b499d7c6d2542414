"""Control flow and other operators that run graphs of their own: rewritten inside where that is safe, else kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch._higher_order_ops import while_loop
from torch._higher_order_ops.map import map as map_rows
from torch.utils.checkpoint import checkpoint

from gsl import RuleSet, Subst, Workload, op, pat
from gsl.rules import RULES
from tests.helpers.compiled import Recorder
from tests.helpers.nets import NetOfOne
from tests.torch.models import SMALL, Branches, X, compiled, equal, gradients


def twice(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(torch.relu(x))


def conditional(self: Any, x: torch.Tensor) -> torch.Tensor:
    return torch.cond(x.sum() > 0, lambda x: twice(x), lambda x: x * 2.0 * 3.0, (twice(x + 1),))


def loop(self: Any, x: torch.Tensor) -> torch.Tensor:
    return while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, twice(x) * 0.5), (torch.tensor(0), twice(x)))[1]


def rows(self: Any, x: torch.Tensor) -> torch.Tensor:
    return map_rows(lambda row: twice(row), twice(x))


@torch.compiler.nested_compile_region
def region(x: torch.Tensor) -> torch.Tensor:
    return twice(x) * 2.0 * 3.0


def nested(self: Any, x: torch.Tensor) -> torch.Tensor:
    return twice(region(x)) + region(x + 1)


FORMS = {"cond": conditional, "while_loop": loop, "map": rows, "invoke_subgraph": nested}


@pytest.mark.sweep(2)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("decomposed", [False, True])
def test_exported_programs_have_the_numbers_of_the_model(form: str, decomposed: bool) -> None:
    exported = torch.export.export(NetOfOne(FORMS[form]), (torch.randn(3, 4),))
    if decomposed:
        exported = exported.run_decompositions()
    old = Workload.from_exported(exported)
    text = str(exported)
    new = SMALL(old, iterative=True)
    assert new.trace.count("relus") >= 1
    for inputs in (torch.ones(3, 4), -torch.ones(3, 4)):
        old.compare(new, (inputs,)).check()
    assert str(exported) == text
    assert SMALL(new, iterative=True).trace.count() == 0


def test_exported_programs_are_rewritten_inside_branches_and_regions(tmp_path: Path) -> None:
    for form, rules in (("cond", {"relus": 2, "triple": 1}), ("invoke_subgraph", {"relus": 3, "triple": 2})):
        old = Workload.from_torch(NetOfOne(FORMS[form]), (torch.ones(3, 4),))
        new = SMALL(old, iterative=True)
        assert {rule: new.trace.count(rule) for rule in rules} == rules, form
        assert new.trace.inside.keys() <= old.inside.keys()
        assert str(new.trace.replay(old).exported) == str(new.exported)
        torch.export.save(new.exported, tmp_path / "new.pt2")
        for inputs in (torch.ones(3, 4), -torch.ones(3, 4)):
            equal(torch.export.load(tmp_path / "new.pt2").module()(inputs), old.mod(inputs))


def test_a_branch_of_an_exported_program_is_kept_where_torch_would_not_take_the_other() -> None:
    def shared(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = torch.relu(x.t())
        return y, x.clone()

    def form(self: Any, x: torch.Tensor) -> Any:
        return torch.cond(x.sum() > 0, shared, lambda x: (torch.sigmoid(x.t()), x * 2.0), (x,))

    old = Workload.from_torch(NetOfOne(form), (torch.ones(3, 4),))
    layout = Subst(op.ReLU(op.Transpose(X)), op.Maximum(op.Zeros(shape=(4, 3)), op.Transpose(X)), name="layout")
    literal = Subst(op.ReLU(op.Transpose(X)), op.Transpose(op.Maximum(X, np.zeros(4, "float32"))), name="literal")
    for rule in (layout, literal, RULES["copy-identity"]):
        new = rule(old)
        assert new.trace.count() == 0, rule.name
        for inputs in (torch.ones(3, 4), -torch.ones(3, 4)):
            old.compare(new, (inputs,)).check()


def test_branches_within_branches_and_sizes_that_vary() -> None:
    def inner(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.amax() > 1, twice, lambda x: x * 2.0 * 3.0, (x,))

    def form(self: Any, x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, inner, lambda x: torch.sigmoid(x), (x,))

    rows = torch.export.Dim("rows", min=2, max=64)
    exported = torch.export.export(NetOfOne(form), (torch.randn(3, 4),), dynamic_shapes=(({0: rows},)))
    old = Workload.from_exported(exported)
    new = SMALL(old, iterative=True)
    assert list(old.inside) == [
        "true_graph_0", "true_graph_0/true_graph_0", "true_graph_0/false_graph_0", "false_graph_0",
    ]  # fmt: skip
    assert str(new.trace) == """\
in true_graph_0
  in true_graph_0
    relus: %relu_1 -> %relu
  in false_graph_0
    triple: %mul_1 -> %multiply"""
    for inputs in (torch.ones(7, 4), torch.full((7, 4), 2.0), -torch.ones(7, 4)):
        equal(new.mod(inputs), old.mod(inputs))


def test_a_branch_that_is_kept_is_rewritten_within_its_own_branches() -> None:
    def inner(x: torch.Tensor) -> torch.Tensor:
        y = torch.cond(x.amax() > 1, lambda x: torch.relu(torch.relu(x.t())), lambda x: torch.sigmoid(x.t()), (x,))
        return torch.relu(torch.relu(y * 2.0))

    def form(self: Any, x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, inner, lambda x: torch.sigmoid(x.t()), (x,))

    exported = torch.export.export(NetOfOne(form), (torch.ones(3, 4),))
    old = Workload.from_exported(exported)
    text = str(exported)
    relus = Subst(op.ReLU(op.ReLU(X)), op.ReLU(X), name="relus")
    layout = Subst(op.ReLU(op.ReLU(X * 2.0)), op.Maximum(op.Zeros(shape=(4, 3)), X * 2.0), name="layout", priority=1)
    new = RuleSet([relus, layout])(old)
    assert str(new.trace) == """\
in true_graph_0
  layout refused at %relu_1: the graph is kept: its results would lie otherwise in memory, or it would hold tensors of \
its own
  in true_graph_0
    relus: %relu_1 -> %relu"""
    (refused,) = layout.explain(old).inside["true_graph_0"].refused
    assert str(refused) in str(new.trace)
    assert str(exported) == text
    for inputs in (torch.ones(3, 4), torch.full((3, 4), 2.0), -torch.ones(3, 4)):
        equal(new.mod(inputs), old.mod(inputs))


@pytest.mark.sweep(2)
@pytest.mark.parametrize("then", ["eager", "aot_eager"])
@pytest.mark.parametrize("form", FORMS)
def test_compiled_models_give_the_numbers_of_the_model(form: str, then: str) -> None:
    module = NetOfOne(FORMS[form])
    call, backend = compiled(module, SMALL, then, iterative=True)
    for inputs in (torch.ones(3, 4), -torch.ones(3, 4)):
        equal(call(inputs), module(inputs))
    assert sum(trace.count("relus") for trace in backend.traces) >= 1


def test_branches_and_regions_are_rewritten_inside() -> None:
    for form, rules in (("cond", {"relus": 2, "triple": 1}), ("invoke_subgraph", {"relus": 2, "triple": 1})):
        call, backend = compiled(NetOfOne(FORMS[form]), SMALL, iterative=True)
        call(torch.ones(3, 4))
        found = {rule: sum(trace.count(rule) for trace in backend.traces) for rule in rules}
        assert found == rules, form


def test_a_branch_whose_result_would_lie_otherwise_in_memory_is_kept() -> None:
    def form(self: Any, x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda x: torch.relu(x.t()), lambda x: torch.sigmoid(x.t()), (x,))

    late = Subst(op.ReLU(op.Transpose(X)), op.Transpose(op.ReLU(X)), name="late")
    swapped = Subst(op.ReLU(op.Transpose(X)), op.Maximum(op.ReLU(op.Transpose(X)), op.Zeros(shape=(4, 3))), name="row")
    for rule in (late, swapped):
        for then in ("eager", "aot_eager"):
            module = NetOfOne(form)
            call, _ = compiled(module, rule, then)
            for inputs in (torch.ones(3, 4), -torch.ones(3, 4)):
                equal(call(inputs), module(inputs))


@pytest.mark.parametrize("shared", ["input", "output"])
def test_a_branch_whose_result_would_share_memory_is_kept(shared: str) -> None:
    def branch(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = torch.relu(x)
        return y, x.clone() if shared == "input" else y.clone()

    def form(self: Any, x: torch.Tensor) -> Any:
        return torch.cond(x.sum() > 0, branch, lambda x: (x * 2.0, torch.sigmoid(x)), (x,))

    module = NetOfOne(form)
    call, _ = compiled(module, RULES["copy-identity"], "aot_eager")
    for inputs in (torch.ones(3, 4), -torch.ones(3, 4)):
        equal(call(inputs), module(inputs))


def test_checkpointed_layers_learn_as_the_model_does() -> None:
    class Checkpointed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Branches().eval()

        def forward(self, x: torch.Tensor) -> Any:
            return checkpoint(self.inner, x, use_reentrant=False)

    v, w, a, b = (pat.Param() for _ in range(4))
    first, second = op.Dense(X, v), op.Dense(X, w)
    left, right = op.BiasAdd(first, a, axis=1), op.BiasAdd(second, b, axis=1)
    # A rule that only fires where weights are known to be weights.
    swap = Subst([left, right], [left.like(first.like(X, v + 0), a), right.like(second.like(X, w), b)], name="swap")
    module, inputs = Checkpointed().eval(), torch.randn(2, 3, 8, 8)
    recorder = Recorder()
    call, backend = compiled(module, swap, recorder)
    expected = gradients(module, module, inputs)
    equal(gradients(call, module, inputs), expected, rtol=1e-4, atol=1e-5)
    assert sum(trace.count("swap") for trace in backend.traces) == 1
    call, _ = compiled(module, swap, "aot_eager")
    equal(gradients(call, module, inputs), expected, rtol=1e-4, atol=1e-5)
