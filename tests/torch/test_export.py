"""``torch.export``: a program in, a program out, saved, loaded and run again."""

from __future__ import annotations

import io
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.export import Dim, ExportedProgram

from gsl import RuleSet, Subst, Workload, op
from gsl.rules import IDIOMS, NORMAL, OPTIMISING, RULES
from tests.helpers.book import EVERY_RULE
from tests.helpers.nets import NetOfOne
from tests.torch.models import SMALL, Branches, X, equal

IMAGES = torch.randn(2, 3, 8, 8)
ALL = RuleSet(OPTIMISING)


def saved_and_loaded(exported: ExportedProgram) -> ExportedProgram:
    buffer = io.BytesIO()
    torch.export.save(exported, buffer)
    buffer.seek(0)
    return torch.export.load(buffer)


@pytest.mark.parametrize("decomposed", [False, True])
def test_a_rewritten_program_is_saved_and_runs_again(decomposed: bool) -> None:
    module = Branches().eval()
    exported = torch.export.export(module, (IMAGES,))
    if decomposed:
        exported = exported.run_decompositions()
    new = EVERY_RULE(Workload.from_exported(exported), iterative=True)
    again = saved_and_loaded(new.exported)
    equal(again.module()(IMAGES), module(IMAGES))
    assert set(again.state_dict) == set(new.exported.state_dict)
    assert new.trace.count() >= 1
    other = Workload.from_exported(again)
    assert other.text() == new.text()
    assert EVERY_RULE(other, iterative=True).trace.count() == 0


def test_weights_are_folded_and_unused_ones_gone() -> None:
    module = Branches().eval()
    old = Workload.from_torch(module, (IMAGES,))
    new = EVERY_RULE(old, iterative=True)
    again = saved_and_loaded(new.exported)
    assert sorted(again.state_dict) == [
        "conv.weight_multiply", "norm.bias_add", "norm.num_batches_tracked", "query.bias_concatenate",
        "query.weight_concatenate",
    ]  # fmt: skip
    assert set(old.exported.state_dict) == set(module.state_dict()), "the old program keeps its weights"


def test_a_decomposed_linear_layer_is_one() -> None:
    def forward(self: Any, x: torch.Tensor) -> Any:
        return self.left(x), self.right(x), self.plain(x) * 2.0, x @ self.plain.weight.t() * 3.0

    inputs = torch.randn(2, 4)
    plain = nn.Linear(4, 3, bias=False)
    module = NetOfOne(forward, left=nn.Linear(4, 3), right=nn.Linear(4, 5), plain=plain)
    exported = torch.export.export(module, (inputs,)).run_decompositions()
    old = Workload.from_exported(exported)
    assert (old.op_counts()["nn.dense"], old.op_counts()["matmul"]) == (4, 0)
    new = RuleSet([RULES["parallel-dense-bias-variadic"], RULES["parallel-dense-variadic"]])(old)
    assert new.trace.summary() == {"parallel-dense-bias-variadic": 1, "parallel-dense-variadic": 1}
    equal(saved_and_loaded(new.exported).module()(inputs), module(inputs))


def test_a_kept_linear_layer_takes_what_its_input_has_become() -> None:
    parts = {"w": torch.randn(3, 4), "b": torch.ones(3)}
    module = NetOfOne(lambda self, x: F.linear(torch.relu(torch.relu(x)), self.w, self.b), **parts)
    inputs = torch.randn(2, 4)
    exported = torch.export.export(module, (inputs,)).run_decompositions()
    new = SMALL(Workload.from_exported(exported))
    equal(new.exported.module()(inputs), module(inputs))
    targets = [node.target for node in new.exported.graph.nodes]
    assert torch.ops.aten.addmm.default in targets
    assert torch.ops.aten.linear.default not in targets


@pytest.mark.parametrize("decomposed", [False, True])
def test_constraints_of_sizes_are_kept(decomposed: bool) -> None:
    module = Branches().eval()
    batch, height = Dim("batch", min=2, max=16), Dim("height", min=5, max=64)
    exported = torch.export.export(module, (IMAGES,), dynamic_shapes=({0: batch, 2: height},))
    if decomposed:
        exported = exported.run_decompositions()
    new = ALL(Workload.from_exported(exported), iterative=True)
    again = saved_and_loaded(new.exported)
    assert str(again.range_constraints) == str(exported.range_constraints)
    if not decomposed:
        assert new.trace.count("conv-batch-norm") == 1
    for inputs in (torch.randn(3, 3, 8, 8), torch.randn(16, 3, 33, 8)):
        equal(again.module()(inputs), module(inputs))
    for checked in (again.module(), new.mod):
        with pytest.raises(Exception, match=r"batch|shape|size|16"):
            checked(torch.randn(17, 3, 8, 8))


@pytest.mark.parametrize("decomposed", [False, True])
def test_buffers_that_a_program_changes_are_kept(decomposed: bool) -> None:
    def counting(self: Any, x: torch.Tensor) -> torch.Tensor:
        self.count.add_(1)
        return torch.relu(torch.relu(x)) * 2.0 * 3.0 + self.count

    exported = torch.export.export(NetOfOne(counting, count=torch.zeros(())), (torch.ones(2),))
    if decomposed:
        exported = exported.run_decompositions()
    new = SMALL(Workload.from_exported(exported))
    assert new.trace.count() == 2
    again = saved_and_loaded(new.exported).module()
    found = [again(torch.ones(2)).tolist() for _ in range(3)]
    assert found == [[7.0, 7.0], [8.0, 8.0], [9.0, 9.0]]


def test_inputs_and_outputs_keep_their_structure() -> None:
    def structured(self: Any, x: Any) -> Any:
        return {"sum": torch.relu(torch.relu(x["a"])) + x["b"][0], "rest": [x["b"][1], None, 3]}

    inputs = {"a": torch.randn(2), "b": (torch.randn(2), torch.randn(1))}
    module = NetOfOne(structured)
    new = SMALL(Workload.from_exported(torch.export.export(module, (inputs,))))
    equal(saved_and_loaded(new.exported).module()(inputs), module(inputs))
    assert new.trace.count("relus") == 1


def test_a_program_for_training_learns_after_the_rewrite() -> None:
    module = Branches().train()
    exported = torch.export.export(module, (IMAGES,))
    rules = [RULES["parallel-dense-bias-variadic"]]
    new = RuleSet(rules)(Workload.from_exported(exported), fold_params=False)
    trained = new.exported.module()
    sum(output.square().sum() for output in trained(IMAGES)).backward()
    expected = torch.export.export(module, (IMAGES,)).module()
    sum(output.square().sum() for output in expected(IMAGES)).backward()
    found = {name: part.grad for name, part in trained.named_parameters()}
    equal(found, {name: part.grad for name, part in expected.named_parameters()}, rtol=1e-4, atol=1e-5)


def test_an_output_may_become_an_input() -> None:
    copy = Subst(op.Add(X, 0), X, name="copy")
    module = NetOfOne(lambda self, x: (x + 0, x * 2))
    new = copy(Workload.from_torch(module, (torch.ones(2),)))
    equal(saved_and_loaded(new.exported).module()(torch.ones(2)), module(torch.ones(2)))
    assert new.trace.count() == 1


def test_calls_that_are_replaced_twice_leave_their_module_to_the_last_ones() -> None:
    """Two unsqueezes become a reshape each, and these become one."""
    inner = nn.Sequential(NetOfOne(lambda self, a: torch.relu(a.unsqueeze(0).unsqueeze(0))))
    new = NORMAL(Workload.from_torch(inner, (IMAGES,)), iterative=True)
    assert new.op_counts() == {"reshape": 1, "nn.relu": 1}
    equal(torch.export.unflatten(new.exported)(IMAGES), inner(IMAGES))


def test_a_call_that_replaces_those_of_several_modules_is_part_of_the_one_around_them() -> None:
    module = Branches().eval()
    new = ALL(Workload.from_torch(nn.Sequential(module), (IMAGES,)))
    assert new.trace.count("parallel-dense-bias-variadic")
    (merged,) = [node for node in new.graph.nodes if node.op == "nn.dense"]
    assert new.program.scope(merged) == ("0",)
    equal(torch.export.unflatten(new.exported)(IMAGES), module(IMAGES))


class Norm(nn.Module):
    """A norm in float32, as of models for halves."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = x.to(torch.float32)
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * wide.to(x.dtype)


class Layer(nn.Module):
    """Three linear layers behind a norm, with a view of a mask that the module around makes."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = Norm()
        self.query, self.key, self.value = (nn.Linear(8, 8, bias=False) for _ in range(3))
        self.D = nn.Parameter(torch.randn(6))

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        normed = self.norm(x)
        query, key, value = self.query(normed), self.key(normed), self.value(normed)
        scores = torch.tanh(query) @ key.transpose(1, 2) + mask.view(2, 1, 6)
        return scores @ value * self.D[None, :, None]


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Layer(), Layer()])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mask = (x.mean(-1) * 2.0).view(1, 2, 6)
        for layer in self.layers:
            x = layer(x, mask)
        return x


def entered(exported: ExportedProgram) -> list[str]:
    """The modules that the calls of a program enter, in order."""
    stacks = [stack for node in exported.graph.nodes if (stack := node.meta.get("nn_module_stack"))]
    return [name for before, stack in zip([{}, *stacks], stacks) for name in stack if name not in before]


def test_the_calls_of_a_module_still_follow_each_other() -> None:
    """Merged layers stand behind the assertions of the norm before them, and the view of a mask in the layer that asks
    for it first."""
    module, x = Layers(), torch.randn(2, 6, 8)
    new = NORMAL(Workload.from_torch(module, (x,)), iterative=True)
    new = EVERY_RULE(RuleSet(IDIOMS)(new, iterative=True), iterative=True)
    assert new.trace.count("parallel-dense-variadic") == 2
    assert len(entered(new.exported)) == len({*entered(new.exported)})
    equal(torch.export.unflatten(new.exported)(x), module(x))


def test_a_new_weight_stands_in_the_module_of_the_old_one() -> None:
    """Torch writes the names of placeholders in small letters."""
    module, x = Layers(), torch.randn(2, 6, 8)
    new = NORMAL(Workload.from_torch(module, (x,)), iterative=True)
    assert "layers.1.D_reshape" in new.exported.state_dict
    names = [node.name for node in new.exported.graph.find_nodes(op="placeholder")]
    assert names == [name.lower() for name in names]
    again = torch.export.unflatten(new.exported)
    assert not [node for node in again.graph.nodes if node.op == "get_attr"]
    equal(again(x), module(x))
