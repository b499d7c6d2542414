"""What is out of the ordinary either works or is refused with a clear error."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import fx, nn

from gsl import RuleSet, Subst, Workload, op, pat
from gsl.errors import FrontEndError, PatternError, PatternTypeError, UntypedWarning, WorkloadError
from gsl.fx import Pass
from gsl.rules import RULES
from tests.helpers.book import EVERY_RULE
from tests.helpers.nets import NetOfOne
from tests.torch.models import RELUS, SMALL, TRIPLE, Branches, X, compiled, equal


def twice(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(torch.relu(x))


def rewritten(module: nn.Module, inputs: Any, rules: RuleSet | Subst) -> dict[str, int]:
    """What fires in the exported and in the traced module, both compared with the original."""
    counts: dict[str, int] = {}
    for old in (
        Workload.from_exported(torch.export.export(module, (inputs,))),
        Workload.from_fx(fx.symbolic_trace(module), (inputs,)),
    ):
        new = rules(old, iterative=True)
        old.compare(new).check()
        counts = dict(new.trace.summary())
    return counts


# ---------------------------------------------------------------- dtypes and layouts

INPUTS: dict[str, Callable[[], torch.Tensor]] = {
    "float64": lambda: torch.randn(3, 4, dtype=torch.float64),
    "float16": lambda: torch.randn(3, 4).half(),
    "bfloat16": lambda: torch.randn(3, 4).bfloat16(),
    "int8": lambda: torch.randint(-5, 5, (3, 4), dtype=torch.int8),
    "zero rows": lambda: torch.randn(0, 4),
    "zero columns": lambda: torch.randn(3, 0),
    "zero dimensions": lambda: torch.randn(()),
    "not contiguous": lambda: torch.randn(4, 3).t(),
    "strided": lambda: torch.randn(6, 8)[::2, ::2],
}


@pytest.mark.parametrize("form", INPUTS)
def test_inputs_of_any_dtype_and_size(form: str) -> None:
    assert rewritten(NetOfOne(lambda self, x: twice(x)), INPUTS[form](), RULES_AND_RELUS)["relus"] == 1


RULES_AND_RELUS = RuleSet([RELUS, TRIPLE, *EVERY_RULE])


def test_complex_numbers() -> None:
    module = NetOfOne(lambda self, x: x * 2.0 * 3.0 @ self.w, w=torch.randn(4, 4, dtype=torch.complex64))
    assert rewritten(module, torch.randn(3, 4, dtype=torch.complex64), RULES_AND_RELUS) == {"triple": 1}


def test_floats_of_eight_bits() -> None:
    def form(self: Any, x: torch.Tensor) -> torch.Tensor:
        return twice(x.to(torch.float32)) * self.w.to(torch.float32)

    module = NetOfOne(form, w=torch.randn(3).to(torch.float8_e4m3fn))
    assert rewritten(module, torch.randn(3).to(torch.float8_e4m3fn), RULES_AND_RELUS)["relus"] == 1


def test_quantised_tensors() -> None:
    def form(self: Any, x: torch.Tensor) -> torch.Tensor:
        return twice(torch.dequantize(torch.quantize_per_tensor(x, 0.1, 0, torch.quint8))) + self.w.dequantize()

    weight = torch.quantize_per_tensor(torch.randn(3), 0.1, 0, torch.quint8)
    module = NetOfOne(form, w=weight)
    old = Workload.from_fx(fx.symbolic_trace(module), (torch.randn(3),))
    new = RELUS(old)
    old.compare(new).check()
    assert new.trace.count() == 1


def test_sparse_weights_are_kept_and_computed_with() -> None:
    v, w = pat.Param(), pat.Param()
    sums = Subst(op.Matmul(v, X) + op.Matmul(w, X), op.Matmul(v + w, X), name="sums")
    parts = {"v": torch.eye(3).to_sparse(), "w": torch.eye(3).to_sparse()}
    module = NetOfOne(lambda self, x: twice(torch.mm(self.v, x) + torch.mm(self.w, x)), **parts)
    old = Workload.from_fx(fx.symbolic_trace(module), (torch.randn(3, 2),))
    new = RuleSet([RELUS, sums])(old)
    old.compare(new).check()
    assert new.trace.summary() == {"relus": 1, "sums": 1}
    assert [value.layout for value in new.params.values()] == [torch.sparse_coo]


def test_sparse_literals_equal_no_number() -> None:
    class Literal(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self._tensor_constant0 = torch.eye(3).to_sparse()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.mm(self._tensor_constant0, x)

    one = Subst(op.Matmul(pat.Const(1.0), X), X, name="one")
    old = Workload.from_fx(fx.symbolic_trace(Literal()), (torch.randn(3, 2),))
    assert not one(old).trace.firings


def test_sparse_inputs() -> None:
    old = Workload.from_torch(NetOfOne(lambda self, x: twice(x.to_dense())), (torch.eye(3).to_sparse(),))
    new = RELUS(old)
    old.compare(new).check()
    assert new.trace.count() == 1


def test_nested_tensors_have_no_types() -> None:
    rows = torch.nested.nested_tensor([torch.randn(2, 3), torch.randn(4, 3)], layout=torch.jagged)
    module = NetOfOne(lambda self, x: twice(x))
    call, _ = compiled(module, RELUS)
    equal(call(rows).values(), module(rows).values())
    old = Workload.from_fx(fx.symbolic_trace(module), (rows,))
    with pytest.warns(UntypedWarning):
        new = RELUS(old)
    equal(new.mod(rows).values(), module(rows).values())
    with pytest.raises(WorkloadError, match="a nested tensor, which is not compared"):
        old.compare(new)


# ---------------------------------------------------------------- devices


class Layers(nn.Module):
    def __init__(self, left: str = "cpu", right: str = "cpu") -> None:
        super().__init__()
        self.left = nn.Linear(4, 3, bias=False, device=left)
        self.right = nn.Linear(4, 3, bias=False, device=right)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.left(x) + self.right(x)


def test_models_without_data_are_rewritten() -> None:
    old = Workload.from_torch(Layers("meta", "meta"), (torch.randn(2, 4, device="meta"),))
    new = EVERY_RULE(old)
    assert new.trace.count("parallel-dense-variadic") == 1
    assert {value.device.type for value in new.params.values()} == {"meta"}
    with pytest.raises(WorkloadError, match="on the device meta, so it has no values to compare"):
        old.compare(new)


def test_weights_on_different_devices_are_not_folded_into_one() -> None:
    traced = fx.symbolic_trace(Layers("meta", "cpu"))
    old = Workload.from_fx(traced)
    before = old.text()
    v, w = pat.Param(), pat.Param()
    sums = Subst(op.Dense(X, v) + op.Dense(X, w), op.Dense(X, v + w), name="sums")
    new = sums(old)
    assert {str(refused).partition(", which")[0] for refused in new.trace.refused} == {
        f"sums refused at %add: the new add takes tensors on {where}" for where in ("meta and cpu", "cpu and meta")
    }
    assert (new.text(), old.text()) == (before, before)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_models_on_a_gpu() -> None:
    module, inputs = Branches().eval().cuda(), torch.randn(2, 3, 8, 8, device="cuda")
    old = Workload.from_torch(module, (inputs,))
    new = EVERY_RULE(old, iterative=True)
    old.compare(new, rtol=1e-3, atol=1e-4).check()
    assert {value.device.type for value in new.params.values()} == {"cuda"}
    call, _ = compiled(module, EVERY_RULE, "aot_eager", fold_params=True)
    with torch.no_grad():
        equal(call(inputs), module(inputs), rtol=1e-3, atol=1e-4)


# ---------------------------------------------------------------- weights


def test_weights_that_are_not_contiguous() -> None:
    parts = {"w": nn.Parameter(torch.randn(4, 3).t()), "v": nn.Parameter(torch.randn(3, 8)[:, ::2])}
    module = NetOfOne(lambda self, x: (F.linear(x, self.w), F.linear(x, self.v)), **parts)
    assert rewritten(module, torch.randn(2, 4), EVERY_RULE) == {"parallel-dense-variadic": 1}


class Tied(nn.Module):
    """Two convolutions of one weight, of which one is normalised."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(2, 2, 1, bias=False), nn.Conv2d(2, 2, 1, bias=False)
        self.second.weight = self.first.weight
        self.norm = nn.BatchNorm2d(2)
        self.norm.running_var.uniform_(2, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.first(x)) + self.second(torch.relu(x))


def test_folding_a_tied_weight_does_not_change_the_other() -> None:
    module = Tied().eval()
    before = copy.deepcopy(module.state_dict())
    inputs = torch.randn(1, 2, 3, 3)
    assert rewritten(module, inputs, RuleSet([RULES["conv-batch-norm"]])) == {"conv-batch-norm": 1}
    equal(module.state_dict(), before, rtol=0, atol=0)
    call, _ = compiled(module, RULES["conv-batch-norm"], fold_params=True)
    with torch.no_grad():
        equal(call(inputs), module(inputs))
        module.first.weight.mul_(2)
        equal(call(inputs), module(inputs))
    traced = fx.symbolic_trace(module)
    Pass(RULES["conv-batch-norm"])(traced)
    with torch.no_grad():
        equal(traced(inputs), module(inputs))


def test_models_in_training_mode() -> None:
    module = nn.Sequential(nn.Conv2d(2, 2, 1), nn.BatchNorm2d(2), nn.Dropout(0.5), nn.ReLU(), nn.ReLU()).train()
    assert rewritten(module, torch.randn(2, 2, 3, 3), RULES_AND_RELUS) == {"relus": 1}


# ---------------------------------------------------------------- odd graphs


def test_graphs_without_calls() -> None:
    for function in (lambda self, x: x, lambda self, x: None, lambda self, x: (1, 2.5, x, [x])):
        old = Workload.from_fx(fx.symbolic_trace(NetOfOne(function)), (torch.ones(2),))
        new = EVERY_RULE(old, iterative=True)
        assert not new.trace.firings
        assert str(new(torch.ones(2))) == str(old(torch.ones(2)))
    call, _ = compiled(NetOfOne(lambda self, x: x), EVERY_RULE)
    equal(call(torch.ones(2)), torch.ones(2))


def test_graphs_without_inputs_and_without_an_output() -> None:
    graph = fx.Graph()
    with pytest.raises(FrontEndError, match="the graph has no output node"):
        Workload.from_fx(fx.GraphModule(nn.Module(), graph))
    graph.output(())
    assert EVERY_RULE(Workload.from_fx(fx.GraphModule(nn.Module(), graph), ()))() == ()


def chain(length: int) -> fx.GraphModule:
    graph = fx.Graph()
    node = graph.placeholder("x")
    for _ in range(length):
        node = graph.call_function(torch.sigmoid, (node,))
    node = graph.call_function(torch.relu, (graph.call_function(torch.relu, (node,)),))
    graph.output(node)
    return fx.GraphModule(nn.Module(), graph)


@pytest.mark.long
def test_graphs_of_fifty_thousand_nodes() -> None:
    def seconds(length: int) -> float:
        module = chain(length)
        start = time.process_time()
        pass_ = Pass(RELUS)
        with pytest.warns(UserWarning, match="no type"):
            pass_(module.graph)
        assert pass_.traces[0].count() == 1
        assert len(module.graph.nodes) == length + 3
        return time.process_time() - start

    small = seconds(5_000)
    assert seconds(50_000) < 40 * small, "the time is proportional to the nodes"


# ---------------------------------------------------------------- threads


def test_threads_apply_one_rule_set_at_once() -> None:
    x, w, v = pat.Wildcard(), pat.Param(), pat.Param()
    rules = RuleSet([Subst(op.ReLU(op.ReLU(x)), op.ReLU(x), name="new"), *RULES.values()])
    sums = Subst(op.Dense(x, v) + op.Dense(x, w), op.Dense(x, v + w), name="sums", priority=9)
    rules = RuleSet([sums, *rules])
    module = NetOfOne(lambda self, x: twice(self.layers(x)), layers=Layers())
    workload = Workload.from_torch(module, (torch.randn(2, 4),))
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: rules(workload, iterative=True), range(16)))
    assert {new.text() for new in found} == {found[0].text()}
    assert found[0].trace.summary() == {"sums": 1, "new": 1}
    for new in found[:2]:
        workload.compare(new).check()


def test_threads_use_one_pass_on_graphs_of_their_own() -> None:
    pass_ = Pass(SMALL)
    modules = [fx.symbolic_trace(NetOfOne(lambda self, x: twice(x) * 2.0 * 3.0)) for _ in range(16)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(pass_, modules))
    assert [len(module.graph.nodes) for module in modules] == [4] * 16
    assert [trace.count() for trace in pass_.traces] == [2] * 16


@pytest.mark.parametrize(
    "given", [nn.ReLU(), nn.ReLU, torch.relu, F.relu, torch.ops.aten.relu.default, fx.symbolic_trace(nn.ReLU())]
)
def test_what_is_of_torch_is_no_function_of_the_match(given: Any) -> None:
    x = pat.Wildcard()
    with pytest.raises(PatternError, match=r"a target is made of patterns, got .*Subst.from_programs"):
        Subst(op.ReLU(op.ReLU(x)), given)
    with pytest.raises(PatternTypeError, match="where= takes attribute expressions, use relations and functions"):
        Subst(op.ReLU(op.ReLU(x)), op.ReLU(x), where=given)
    with pytest.raises(PatternTypeError, match="can't be an operand"):
        op.Add(x, given)
