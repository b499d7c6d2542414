"""Rewrites that would give wrong graphs are refused, and what is loaded is never changed."""

from __future__ import annotations

import copy
import sys
import threading
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import fx, nn

from gsl import RuleSet, Subst, Workload, op, pat, torch_backend
from gsl.rules import IDIOMS
from tests.helpers.book import EVERY_RULE
from tests.helpers.compiled import Recorder
from tests.helpers.nets import NetOfOne

X = pat.Wildcard()
COPY = Subst(X + 0, X)
TRIPLE = Subst(X * 2.0 * 3.0, X * 6.0)
RELUS = Subst(op.ReLU(op.ReLU(X)), op.ReLU(X))


class Tracer(fx.Tracer):
    proxy_buffer_attributes = True

    def __init__(self, leaf: type[nn.Module] | None = None) -> None:
        super().__init__()
        self.leaf = leaf

    def is_leaf_module(self, m: nn.Module, qualname: str) -> bool:
        return isinstance(m, self.leaf) if self.leaf else super().is_leaf_module(m, qualname)


def traced(module: nn.Module, leaf: type[nn.Module] | None = None) -> fx.GraphModule:
    return fx.GraphModule(module, Tracer(leaf).trace(module))


def functional(module: nn.Module, *inputs: Any) -> Workload:
    return Workload.from_exported(torch.export.export(module, inputs).run_decompositions())


def agree(old: Workload, new: Workload) -> bool:
    report = old.compare(new)
    assert report, report
    return True


# ---------------------------------------------------------------- what is written back at the end


def test_an_output_does_not_become_a_buffer_that_is_updated() -> None:
    def forward(self: Any, x: torch.Tensor) -> Any:
        old = self.n.clone()
        self.n.add_(1)
        return old, x * 1.0

    old = functional(NetOfOne(forward, n=torch.ones(3)), torch.randn(3))
    assert agree(old, EVERY_RULE(old))


def test_a_view_of_an_output_does_not_become_one_of_an_updated_buffer() -> None:
    def forward(self: Any, x: torch.Tensor) -> Any:
        old = (self.n + 0).reshape(3, 2).transpose(0, 1)
        self.n.add_(1)
        return old, x * 1.0

    old = functional(NetOfOne(forward, n=torch.ones(2, 3)), torch.randn(3))
    assert agree(old, COPY(old))


@pytest.mark.parametrize("load", ["exported", "traced"])
def test_an_output_does_not_become_a_buffer_that_is_changed_in_place(load: str) -> None:
    """The next run would change what the one before has returned."""

    def forward(self: Any, x: torch.Tensor) -> Any:
        self.n.add_(x)
        return self.n * 1.0, self.n.clone().reshape(3), (self.n / 1)[:2], torch.relu(torch.relu(x))

    net, x = NetOfOne(forward, n=torch.zeros(3)), torch.ones(3)
    old = Workload.from_torch(net, (x,)) if load == "exported" else Workload.from_fx(traced(net), (x,))
    new = EVERY_RULE(old)
    run = new.exported.module() if load == "exported" else new.mod
    first = run(x)
    run(x)
    for found, wanted in zip(first, (x, x, x[:2], x), strict=True):
        assert torch.equal(found, wanted)
    assert "changed in place by each run" in str(new.trace)


def test_an_output_does_not_become_what_is_written_to_a_buffer() -> None:
    """Torch returns the buffer itself where one node is both, and the next run would change that."""

    def forward(self: Any, x: torch.Tensor) -> Any:
        total = self.n + x
        self.n.add_(x)
        return total, self.n * 1.0

    old = functional(NetOfOne(forward, n=torch.zeros(3)), torch.ones(3))
    run = EVERY_RULE(old).exported.module()
    first = run(torch.ones(3))
    run(torch.ones(3))
    assert all(torch.equal(found, torch.ones(3)) for found in first)


def test_buffers_that_are_exchanged_are_not_written_to_each_other() -> None:
    def forward(self: Any, x: torch.Tensor) -> Any:
        a, b = self.m + 0, self.n + 0
        self.n.copy_(a)
        self.m.copy_(b)
        return x * 1

    old = functional(NetOfOne(forward, n=torch.ones(3), m=torch.zeros(3)), torch.randn(3))
    assert agree(old, COPY(old))


def test_an_output_does_not_become_an_input_that_is_updated() -> None:
    def forward(self: Any, x: torch.Tensor) -> Any:
        old = x + 0
        x.mul_(2)
        return old

    old = functional(NetOfOne(forward), torch.randn(3))
    assert agree(old, COPY(old))


def test_an_updated_buffer_may_be_read_and_keep_its_own_value() -> None:
    def forward(self: Any, x: torch.Tensor) -> Any:
        y = (self.n + 0) * x
        self.n.add_(0)
        return y

    old = functional(NetOfOne(forward, n=torch.ones(3)), torch.randn(3))
    new = COPY(old)
    assert "add" not in new.op_counts()
    assert agree(old, new)


def test_an_updated_buffer_does_not_get_a_view_of_itself() -> None:
    """Its elements would be overwritten before they are read."""

    def forward(self: Any, x: torch.Tensor) -> Any:
        self.n.copy_(self.n.t() + 0)
        return x * 1

    old = functional(NetOfOne(forward, n=torch.arange(4.0).reshape(2, 2)), torch.randn(3))
    assert agree(old, COPY(old))


def test_a_comparison_restores_parameters_that_are_updated() -> None:
    def forward(self: Any, x: torch.Tensor) -> Any:
        self.w.add_(1)
        return x * self.w

    old = functional(NetOfOne(forward, w=nn.Parameter(torch.ones(3), requires_grad=False)), torch.randn(3))
    assert agree(old, old)
    assert old.params["w"].tolist() == [1, 1, 1]


# ---------------------------------------------------------------- shared and hidden state


def test_loading_changes_no_weights() -> None:
    def forward(self: Any, x: torch.Tensor) -> Any:
        self.n.add_(1)
        return self.bn(x) + self.n

    module = NetOfOne(forward, n=torch.zeros(3), bn=nn.BatchNorm1d(3)).train()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    workload = Workload.from_fx(traced(module), (torch.randn(4, 3),))
    assert workload.graph.outputs[0].shape == (4, 3)
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())


def test_tied_weights_stay_tied_while_loading() -> None:
    module = NetOfOne(lambda self, x: self.b(self.a(x)), a=nn.Linear(3, 3), b=nn.Linear(3, 3))
    module.b.weight = module.a.weight
    workload = Workload.from_fx(traced(module), (torch.randn(2, 3),))
    assert len({id(node.attrs["value"]) for node in workload.graph if node.op == "param"}) == 3


@pytest.mark.parametrize("name", ["running_mean", "num_batches_tracked"])
def test_the_statistics_of_a_called_module_are_not_constant(name: str) -> None:
    def forward(self: Any, x: torch.Tensor) -> Any:
        y = self.bn(x)
        return y, getattr(self.bn, name) * 2.0 * 3.0

    module = NetOfOne(forward, bn=nn.BatchNorm1d(3)).train()
    old = Workload.from_fx(traced(module), (torch.randn(8, 3),))
    assert agree(old, TRIPLE(old))


def test_a_weight_that_a_called_module_scales_is_not_constant_elsewhere() -> None:
    embedding, dense = nn.Embedding(3, 4, max_norm=0.1), nn.Linear(4, 3, bias=False)
    dense.weight = embedding.weight
    module = NetOfOne(lambda self, x: (self.e(x), self.d.weight * 2.0 * 3.0), e=embedding, d=dense)
    old = Workload.from_fx(traced(module), (torch.tensor([0, 1]),))
    assert agree(old, TRIPLE(old))


@pytest.mark.parametrize("load", [Workload.from_torch, lambda m, a: Workload.from_fx(traced(m), a)])
@pytest.mark.parametrize("other", [lambda b: b[:2], lambda b: b.data[1:]])
def test_a_change_is_seen_through_another_tensor_of_the_same_memory(load: Any, other: Any) -> None:
    def forward(self: Any, x: torch.Tensor) -> Any:
        self.a.add_(1)
        return x + self.b * 2.0 * 3.0

    buffer, x = torch.ones(3), torch.randn(2)
    module = NetOfOne(forward, a=buffer, b=other(buffer))
    old = load(module, (x,))
    assert agree(old, TRIPLE(old))


class Increment(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.add_(1).sum()


class Double(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


def test_an_unknown_module_may_change_its_operand() -> None:
    def forward(self: Any, x: torch.Tensor) -> Any:
        y = x * 1.0
        a = y.relu()
        k = self.inner(y)
        return a.relu(), k

    old = Workload.from_fx(traced(NetOfOne(forward, inner=Increment()).eval(), Increment), (torch.randn(3),))
    assert agree(old, RELUS(old))


def test_an_unknown_module_may_change_a_weight() -> None:
    def forward(self: Any, x: torch.Tensor) -> Any:
        k = self.inner(self.n)
        return x + self.n * 2.0 * 3.0, k

    old = Workload.from_fx(traced(NetOfOne(forward, inner=Increment(), n=torch.ones(3)), Increment), (torch.randn(3),))
    assert agree(old, TRIPLE(old))


def test_a_field_of_a_call_is_known_although_its_memory_may_be_changed() -> None:
    def forward(self: Any, x: torch.Tensor) -> Any:
        best = x.max(0)[0]
        known = best.to(torch.bool)
        ranks = best.sort(0)[1]
        known.fill_(True)
        return ranks, known, x * 2.0 * 3.0

    old = Workload.from_torch(NetOfOne(forward), (torch.randn(2, 4),))
    new = TRIPLE(old)
    assert new.trace.count() == 1
    assert agree(old, new)


@pytest.mark.parametrize("reshape", [lambda a: a.t_(), lambda a: a.unsqueeze_(0), lambda a: torch.ops.aten.t_(a)])
@pytest.mark.parametrize("load", [Workload.from_fx, lambda graph, _: Workload.from_fx(graph)])
def test_a_tensor_whose_shape_is_changed_later_has_another_one_before(reshape: Any, load: Any) -> None:
    def forward(self: Any, x: torch.Tensor) -> Any:
        y = x * 2.0
        total = y.sum() * 2.0 * 3.0
        reshape(y)
        return total, y

    recorder = Recorder()
    torch.compile(NetOfOne(forward), backend=recorder)(torch.randn(2, 3))
    by_columns = Subst(op.Sum(X), op.Mean(X) * X.shape[0] * X.shape[1], where=X.shape[1] == 2)
    for graph in (*recorder.graphs, traced(NetOfOne(forward))):
        old = load(graph, (torch.randn(2, 3),))
        assert TRIPLE(old).trace.count() == 1
        assert by_columns(TRIPLE(old)).trace.count() == by_columns(old).trace.count() == 0


def test_a_graph_without_effects_is_looked_into() -> None:
    inner = fx.symbolic_trace(Double())
    module = NetOfOne(lambda self, x: self.inner(x.relu()).relu(), inner=inner).eval()
    workload = Workload.from_fx(traced(module, fx.GraphModule), (torch.randn(3),))
    assert all(node.effect is None for node in workload.graph)
    module = NetOfOne(lambda self, x: self.inner(x.relu()), inner=fx.symbolic_trace(Increment())).eval()
    workload = Workload.from_fx(traced(module, fx.GraphModule), (torch.randn(3),))
    assert any(node.effect is not None for node in workload.graph)


def test_a_region_without_gradients_has_the_effects_of_its_calls() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(3))

        def forward(self, x: torch.Tensor, *, write: bool = False) -> torch.Tensor:
            with torch.no_grad():
                y = x.sin()
                if write:
                    self.count.add_(1)
            return y + x.cos() * self.count

    def effects(write: bool) -> set[Any]:
        with torch.enable_grad():
            exported = torch.export.export(Model(), (torch.randn(3),), {"write": write})
        workload = Workload.from_exported(exported)
        assert "wrap_with_set_grad_enabled" in str(exported.graph), "the region is there"
        return {node.effect for node in workload.graph} - {None}

    assert effects(False) == set()
    assert effects(True), "what the region writes is told"


# ---------------------------------------------------------------- autocast


def test_a_region_of_autocast_is_left_as_it_is() -> None:
    def forward(self: Any, x: torch.Tensor) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.a(x).float()
        return y.relu().relu()

    recorder = Recorder()
    with torch.no_grad():
        torch.compile(NetOfOne(forward, a=nn.Linear(4, 4, bias=False)), backend=recorder)(torch.randn(2, 4))
    old = Workload.from_fx(recorder.graphs[0], recorder.inputs[0])
    w = pat.Wildcard()
    assert agree(old, Subst(op.Cast(op.Dense(X, w), dtype="float32"), op.Dense(X, w))(old))
    new = RELUS(old)
    assert agree(old, new)
    assert len(new.trace.firings) == 1


@pytest.mark.parametrize("form", ["exported", "traced"])
def test_the_autocast_of_who_rewrites_does_not_count(form: str) -> None:
    def layers(self: Any, x: torch.Tensor) -> torch.Tensor:
        return self.b(self.a(x))

    v, w = pat.Param(), pat.Param()
    joined = Subst(op.Dense(op.Dense(X, v), w), op.Dense(X, op.Matmul(w, v)), name="joined")
    module = NetOfOne(layers, a=nn.Linear(5, 4, bias=False), b=nn.Linear(4, 3, bias=False))
    inputs = (torch.randn(2, 5),)
    old = Workload.from_torch(module, inputs) if form == "exported" else Workload.from_fx(
        fx.symbolic_trace(module), inputs
    )  # fmt: skip
    with torch.autocast("cpu", dtype=torch.bfloat16):
        new = joined(old)
    assert new.trace.count("joined") == 1
    assert agree(old, new)
    assert {value.dtype for value in new.params.values()} == {torch.float32}


def shifted(self: Any, x: torch.Tensor) -> torch.Tensor:
    """Attention whose mask is filled behind its scores, as torchvision's Swin transformers have it."""
    q, k, v = self.l(x).chunk(3, -1)
    scores = (q * 0.5) @ k.mT
    places = x.new_zeros(6)
    for number, part in enumerate((slice(-2), slice(-2, -1), slice(-1, None))):
        places[part] = number
    mask = places.unsqueeze(0) - places.unsqueeze(1)
    return (scores + mask.masked_fill(mask != 0, -100.0)).softmax(-1) @ v


def overwritten(self: Any, x: torch.Tensor) -> torch.Tensor:
    """A mask is filled there, and the queries behind the scores."""
    q, k, v = (x + 1).chunk(3, -1)
    scores = q @ k.mT
    mask = x.new_zeros(6, 6)
    mask[0] = -1.0
    q[:, 0] = 3.0
    return (scores + mask).softmax(-1) @ v + q


@pytest.mark.parametrize(("function", "count"), [(shifted, 1), (overwritten, 0)])
def test_attention_is_found_across_a_change_of_other_memory(function: Any, count: int) -> None:
    old = Workload.from_torch(NetOfOne(function, l=nn.Linear(12, 12)), (torch.randn(2, 6, 12),))
    new = IDIOMS(old, iterative=True)
    assert new.op_counts()["nn.attention"] == count
    assert agree(old, new)


def counted(self: Any, x: torch.Tensor) -> Any:
    """Statistics are read before a module updates them, and it is told nothing of them."""
    before = self.norm.running_mean * 2.0
    return self.norm(torch.exp(x)), before * 3.0


def counted_within(self: Any, x: torch.Tensor) -> Any:
    """The module also changes its operand in place, which is read before."""
    before, data = self.inner[1].running_mean * 2.0, torch.exp(x)
    return self.inner(data), before * 3.0, data


def named(self: Any, x: torch.Tensor) -> Any:
    """The tensor that is written is named behind the other one."""
    data, other = torch.exp(x), torch.exp(x + 1)
    before = data * 2.0
    torch.ops.aten.copy_.default(src=other, self=data)
    return before * 3.0, other


def set_to(self: Any, x: torch.Tensor) -> Any:
    """A tensor lies in the memory of another one from then on."""
    data, other = torch.exp(x), torch.exp(x + 1)
    other.set_(data)
    before = data * 2.0
    other.add_(1.0)
    return before * 3.0, data * 1.0


def not_set_to(self: Any, x: torch.Tensor) -> Any:
    """It does not."""
    data, other = torch.exp(x), torch.exp(x + 1)
    before = data * 2.0
    other.add_(1.0)
    return before * 3.0, data * 1.0


@pytest.mark.parametrize(
    ("function", "count"), [(counted, 0), (counted_within, 0), (named, 0), (set_to, 0), (not_set_to, 1)]
)
@pytest.mark.parametrize("typed", [False, True])
def test_a_read_stays_before_a_change_that_no_operand_tells(function: Any, count: int, typed: bool) -> None:
    inner = nn.Sequential(nn.ReLU(inplace=True), nn.BatchNorm1d(3))
    module, x = traced(NetOfOne(function, norm=nn.BatchNorm1d(3), inner=inner).train()), torch.randn(4, 3)
    wanted = copy.deepcopy(module)(x)
    new = TRIPLE(Workload.from_fx(module, *([(x,)] if typed else [])))
    assert new.trace.count() == count
    torch.testing.assert_close(new.mod(x), wanted)


def increased(self: Any, x: torch.Tensor) -> Any:
    """What a change reads, but does not write, is read before, too."""
    data, before = torch.exp(x), x * 2.0
    other = data + 1.0
    data.view(-1).add_(x)
    return before * 3.0, data, other


def with_changed_input(self: Any, x: torch.Tensor) -> Any:
    """What is read before the change is computed, and numbers."""
    before = torch.exp(x) * 2.0
    x.add_(1.0)
    return before * 3.0


@pytest.mark.parametrize("function", [increased, with_changed_input])
def test_what_a_change_does_not_write_is_not_changed(function: Any) -> None:
    old = Workload.from_torch(NetOfOne(function), (torch.randn(3),))
    new = TRIPLE(old)
    assert new.trace.count() == 1
    assert agree(old, new)


def increased_within(self: Any, x: torch.Tensor) -> Any:
    """A change whose result is used, of a tensor that was read before through another one."""
    data = torch.exp(x)
    before = data * 3.0
    return torch.ops.aten.add_.Tensor(data.view(-1), x) * 2.0, data, before


@pytest.mark.parametrize("load", [Workload.from_torch, lambda m, a: Workload.from_fx(traced(m), a)])
def test_no_rule_takes_a_change_away(load: Any) -> None:
    y = pat.Wildcard()
    old = load(NetOfOne(increased_within), (torch.randn(3),))
    change = pat.Call(torch.ops.aten.add_.Tensor, X, y)
    for rule in (Subst(change, X + y), Subst(change * 2.0, (X + y) * 2.0)):
        new = rule(old)
        (refused,) = new.trace.refused
        assert refused.reason.endswith("has an effect (mutates), so it must stay as it is")
        assert agree(old, new)


def test_inputs_may_overlap() -> None:
    """Torch hands on two parts of one tensor as two inputs."""

    def function(x: torch.Tensor, y: torch.Tensor) -> Any:
        before, copied = y * 2.0 * 3.0, y + 0
        x.add_(1.0)
        return before, y * 2.0 * 3.0, copied * 0.5

    def run(function: Any) -> list[torch.Tensor]:
        data = torch.arange(5.0)
        return [data, *function(data[1:], data[:-1])]

    backend = torch_backend([TRIPLE, COPY], "eager", iterative=True)
    for found, wanted in zip(run(torch.compile(function, backend=backend)), run(function), strict=True):
        assert torch.equal(found, wanted)
    assert backend.traces[0].count() == 2


@pytest.mark.parametrize("second", [False, True])
def test_a_view_that_torch_gets_is_not_the_tensor_itself(second: bool) -> None:
    """Its shape may be changed in place behind the graph."""

    def function(x: torch.Tensor) -> Any:
        whole = torch.sin(x) if second else x
        view = whole.reshape(x.shape)
        torch._dynamo.graph_break()
        view.unsqueeze_(0)
        return view, whole

    same = Subst(op.Reshape(X), X, where=lambda match: match.outputs[0].type == match[X].type, name="same")
    backend = torch_backend(same, "eager")
    found, wanted = (run(torch.ones(2, 3)) for run in (torch.compile(function, backend=backend), function))
    assert [each.shape for each in found] == [each.shape for each in wanted]
    assert "must not be" in str(backend.traces[0])


@pytest.mark.parametrize("name", ["copy", "equal"])
@pytest.mark.parametrize("typed", [False, True])
def test_a_tensor_whose_flag_is_set_is_no_other_one(name: str, typed: bool) -> None:
    """What gradients it gets is told of the one, and not of the other."""

    def function(self: Any, x: torch.Tensor) -> Any:
        made = x + 0 if name == "copy" else x * 2.0 * 3.0
        other = x * 2.0 * 3.0
        made.requires_grad_()
        return made, other

    module = traced(NetOfOne(function))
    new = RuleSet([COPY, TRIPLE])(Workload.from_fx(module, *([(torch.ones(3),)] if typed else [])), iterative=True)
    x = torch.ones(3)
    assert [each.requires_grad for each in (*new.mod(x), x)] == [True, False, False]


# ---------------------------------------------------------------- storing


def test_a_name_that_goes_out_of_use_is_not_given_to_another_value() -> None:
    inner = NetOfOne(lambda self, x: torch.relu(torch.relu(self.l(x))), l=nn.Linear(3, 3))
    other = NetOfOne(lambda self, x: torch.relu(torch.relu(self.l(x))), l=nn.Linear(3, 3))
    module, x = NetOfOne(lambda self, x: self.j(self.i(x)), i=inner, j=other), torch.randn(2, 3)
    exported = torch.export.export(module, (x,), preserve_module_call_signature=("i", "j"))
    new = RELUS(Workload.from_exported(exported))
    assert torch.allclose(torch.export.unflatten(new.exported)(x), module(x))


def test_the_calls_within_a_new_call_get_no_name_that_is_taken() -> None:
    old = Workload.from_torch(NetOfOne(lambda self, x: (torch.sigmoid(x), torch.relu(x))), (torch.randn(2, 3),))
    first, second = (Subst(source(X), op.L2Normalize(X, axis=1, eps=1e-6)) for source in (op.ReLU, op.Sigmoid))
    new = second(first(old))
    assert len(new.exported.graph.find_nodes(op="call_function", target=torch.ops.aten.clamp_min.default)) == 2


def test_a_weight_that_a_called_module_needs_is_kept() -> None:
    module = NetOfOne(lambda self, i: F.linear(self.e(i), self.e.weight * 2.0 * 3.0), e=nn.Embedding(5, 4))
    old = Workload.from_fx(fx.symbolic_trace(module), (torch.tensor([[1, 2]]),))
    assert agree(old, TRIPLE(old))


@pytest.mark.parametrize("load", [Workload.from_torch, lambda m, a: Workload.from_fx(traced(m), a)])
@pytest.mark.parametrize(
    "value", [pat.Const([1.0, 1.0, 1.0]), pat.Const(np.ones(3, "float32")), pat.Const(1.0, dtype="float32")]
)
def test_a_numpy_array_is_stored_as_a_tensor(load: Any, value: Any) -> None:
    old = load(NetOfOne(lambda self, x: x + 1.0), (torch.randn(2, 3),))
    new = Subst(X + 1.0, X + value)(old)
    assert agree(old, new)
    assert all(isinstance(tensor, torch.Tensor) for tensor in new.params.values())


def test_a_half_precision_constant_is_stored() -> None:
    old = Workload.from_torch(NetOfOne(lambda self, x: x + 1.0), (torch.randn(3).half(),))
    assert agree(old, Subst(X + 1.0, X + pat.Const(1.0, dtype="float16"))(old))


def test_several_threads_rewrite_the_same_workload() -> None:
    def forward(self: Any, x: torch.Tensor) -> Any:
        for _ in range(30):
            x = (x * 2.0 * 3.0).sin()
        return x

    old = Workload.from_torch(NetOfOne(forward), (torch.randn(3),))
    results: list[Any] = []

    def work() -> None:
        try:
            results.append(TRIPLE(old))
        except Exception as error:
            results.append(error)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert all(isinstance(result, Workload) for result in results), results
    assert agree(old, results[-1])


@pytest.mark.parametrize("dim", [None, 1, (0, 1)])
def test_an_axis_of_a_symbolic_size_goes_where_it_is_1_at_run_time(dim: Any) -> None:
    def forward(self: Any, x: torch.Tensor) -> Any:
        return (x.squeeze() if dim is None else x.squeeze(dim)) * 1.0

    columns = torch.export.Dim("columns", min=1, max=8)
    example = torch.randn(1, 3)
    old = Workload.from_exported(torch.export.export(NetOfOne(forward), (example,), dynamic_shapes=({1: columns},)))
    new = EVERY_RULE(old)
    for size in (1, 2):
        x = torch.randn(1, size)
        torch.testing.assert_close(new.exported.module()(x), old.exported.module()(x))


def test_a_size_is_computed_of_a_multiple_of_it() -> None:
    module = NetOfOne(lambda self, x: x.relu())
    rows, columns = torch.export.Dim("rows", min=2, max=99), torch.export.Dim("columns", min=2, max=99)
    shapes = {"x": {0: 2 * rows, 1: columns}}
    old = Workload.from_torch(module, (torch.randn(8, 6),), dynamic_shapes=shapes)

    def flat(match: Any) -> Any:
        a, b = match.outputs[0].shape
        return op.Reshape(op.Reshape(op.ReLU(match[X]), newshape=(a * b,)), newshape=(a, b))

    new = Subst(op.ReLU(X), flat)(old)
    assert old.compare(new, (torch.randn(8, 6),))
    assert old.compare(new, (torch.randn(10, 3),))


def test_functions_that_make_tensors_have_no_effect_where_no_type_is_known() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    for function, args in ((torch.hann_window, (4,)), (torch.linspace, (0, 1, 4)), (torch.ones, (4,))):
        made = graph.call_function(torch.relu, (graph.call_function(function, args),))
        x = graph.call_function(torch.add, (x, made))
    enter = graph.call_function(torch.autograd.grad_mode._enter_inference_mode, (True,))
    graph.call_function(torch.autograd.grad_mode._exit_inference_mode, (enter,))
    graph.output(x)
    view = Workload.from_fx(fx.GraphModule({}, graph)).graph
    assert [node.name for node in view.nodes if node.effect is not None] == [
        "_enter_inference_mode", "_exit_inference_mode",
    ]  # fmt: skip
