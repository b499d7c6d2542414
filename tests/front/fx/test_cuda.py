"""Models on a GPU, where there is one. What is told without one is in ``test_devices.py``."""

from __future__ import annotations

import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import fx, nn
from torch.export.passes import move_to_device_pass

import gsl
from gsl import RuleSet, Subst, Workload, op, pat, rules
from gsl.cost.machine import captured
from gsl.errors import NotRewrittenWarning, WorkloadError
from gsl.fx import Pass
from tests.helpers.book import EVERY_RULE
from tests.helpers.compiled import fresh

GPU = torch.device("cuda", 0)
CPU = torch.device("cpu")

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

X, Y = pat.Wildcard(), pat.Wildcard()
CREATE = Subst(
    op.Sigmoid(X),
    op.Tanh(X) + op.Zeros(shape=(4,)) + op.Ones(shape=(4,)) + op.Full(2.0, shape=(4,)) + op.Arange(stop=4.0)
    + pat.Const(np.array([1.0, 2.0, 3.0, 4.0], np.float32)) + pat.Const(torch.ones(4)),
    name="create",
)  # fmt: skip
TRIPLE = Subst(X * 2.0 * 3.0, X * 6.0, name="triple")
TOLERANCE = {
    torch.float32: {"rtol": 1e-4, "atol": 1e-5},
    torch.float16: {"rtol": 1e-2, "atol": 1e-2},
    torch.bfloat16: {"rtol": 5e-2, "atol": 5e-2},
}
"""Kernels are chosen anew for the shapes of a rewritten graph, and sum in other orders."""


@pytest.fixture(autouse=True)
def _alone() -> Iterator[None]:
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.manual_seed(0)
    with fresh():
        yield
    torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


class Vision(nn.Module):
    """Convolutions with norms, a shortcut, and linear layers of one input."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.block, self.plain = nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8, affine=False)
        self.mix = nn.Conv2d(8, 8, 1)
        self.query, self.key, self.value = nn.Linear(8, 4), nn.Linear(8, 4, bias=False), nn.Linear(8, 4)
        for norm in (self.norm, self.plain):
            nn.init.normal_(norm.running_mean)
            nn.init.uniform_(norm.running_var, 0.5, 2)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = torch.relu(self.norm(self.stem(x)))
        y = torch.relu(self.block(y) + y)
        y = self.plain(self.mix(y)).mean((2, 3)) + torch.arange(8, device=x.device, dtype=x.dtype)
        return self.query(y), self.key(y), self.value(y)


class Text(nn.Module):
    """Attention with a mask that is made on the device."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(16, 16) for _ in range(3))
        self.norm, self.out = nn.LayerNorm(16), nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(x)
        q, k, v = (layer(y).unflatten(-1, (2, 8)).transpose(1, 2) for layer in (self.query, self.key, self.value))
        mask = torch.ones((x.shape[1], x.shape[1]), dtype=torch.bool, device=x.device).tril()
        return x + self.out(F.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2).flatten(2))


MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "vision": (Vision, (2, 3, 8, 8)),
    "text": (Text, (2, 5, 16)),
}


def leaves(value: Any) -> list[torch.Tensor]:
    return [leaf for leaf in torch.utils._pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def devices(value: Any) -> set[torch.device]:
    return {leaf.device for leaf in leaves(value)}


def made(name: str, dtype: torch.dtype = torch.float32) -> tuple[nn.Module, torch.Tensor]:
    make, shape = MODELS[name]
    return make().eval().to(GPU, dtype), torch.randn(shape, device=GPU, dtype=dtype)


def loaded(form: str, model: nn.Module, *inputs: torch.Tensor) -> Workload:
    if form == "traced":
        return Workload.from_fx(fx.symbolic_trace(model), inputs)
    exported = torch.export.export(model, inputs)
    return Workload.from_exported(exported.run_decompositions() if form == "decomposed" else exported)


class Sigmoid(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid(x) + 1


# ---------------------------------------------------------------- workloads


@pytest.mark.parametrize("fold", [True, False], ids=["folded", "in the graph"])
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("form", ["exported", "decomposed", "traced"])
@pytest.mark.parametrize("name", MODELS)
def test_the_rule_book(name: str, form: str, dtype: torch.dtype, fold: bool) -> None:
    model, inputs = made(name, dtype)
    old = loaded(form, model, inputs)
    new = EVERY_RULE(old, iterative=True, fold_params=fold)
    old.compare(new, **TOLERANCE[dtype]).check()
    assert {value.device for value in new.params.values()} == {GPU}
    assert {value.dtype for value in new.params.values()} <= {dtype, torch.int64}
    assert devices(new(inputs)) == {GPU}
    assert devices(new.random_inputs()) == {GPU}
    if dtype == torch.float32 and form != "decomposed":
        assert len(new.trace.firings) > 0


@pytest.mark.parametrize("form", ["exported", "decomposed", "traced"])
def test_what_a_target_creates(form: str) -> None:
    inputs = torch.randn(2, 4, device=GPU)
    new = CREATE(loaded(form, Sigmoid(), inputs))
    assert new.trace.count("create") == 1
    torch.testing.assert_close(new(inputs), torch.tanh(inputs) + torch.arange(4, device=GPU) * 2 + 6)


@pytest.mark.parametrize("form", ["exported", "traced"])
def test_arrays_of_numpy_go_to_the_device(form: str) -> None:
    model, inputs = made("text")
    old = loaded(form, model, inputs)
    torch.testing.assert_close(old(inputs.cpu().numpy()), old(inputs))


def test_random_operators_draw_the_same_and_generators_are_restored() -> None:
    class Noise(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2.0 * 3.0 + torch.rand(4, device=GPU) + F.dropout(x, 0.5, training=True)

    old = Workload.from_fx(fx.symbolic_trace(Noise()), (torch.randn(2, 4, device=GPU),))
    before = torch.cuda.get_rng_state(), torch.get_rng_state()
    old.compare(TRIPLE(old)).check()
    assert torch.equal(torch.cuda.get_rng_state(), before[0])
    assert torch.equal(torch.get_rng_state(), before[1])


def test_a_default_device() -> None:
    model, inputs = made("vision")
    torch.set_default_device(GPU)
    try:
        old = loaded("exported", model, inputs)
        new = EVERY_RULE(old, iterative=True)
        old.compare(new, **TOLERANCE[torch.float32]).check()
        assert TRIPLE.verify(max_examples=40)
    finally:
        torch.set_default_device(None)


# ---------------------------------------------------------------- several devices


class Halves(nn.Module):
    """A part on the CPU, and one on the GPU."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4, device=GPU)
        self.scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = torch.sigmoid(self.first(x))
        z = torch.sigmoid(self.second(y.to(GPU)))
        return y, z, z * self.scale, y.type_as(z) + z


@pytest.mark.parametrize("form", ["exported", "traced"])
def test_parts_on_two_devices(form: str) -> None:
    inputs = torch.randn(2, 4)
    old = loaded(form, Halves(), inputs)
    uncast = Subst(op.Cast(X, dtype="float32"), X, name="uncast")
    new = RuleSet([*EVERY_RULE, CREATE, uncast])(old)
    assert new.trace.count("create") == 2
    assert [leaf.device for leaf in leaves(new(inputs))] == [leaf.device for leaf in leaves(old(inputs))]
    reshaped = Subst(X * Y, X * op.Reshape(Y, newshape=(1,)), name="reshaped", where=[Y.ndim == 0])
    trace = reshaped(old).trace
    assert trace.count() == 0
    assert any("let the rule match on one device" in refused.reason for refused in trace.refused)


@pytest.mark.parametrize("rewritten_first", [True, False])
@pytest.mark.parametrize("name", MODELS)
def test_programs_that_torch_moves(name: str, rewritten_first: bool) -> None:
    make, shape = MODELS[name]
    model, inputs = make().eval(), torch.randn(shape)
    program = torch.export.export(model, (inputs,))
    if rewritten_first:
        program = EVERY_RULE(Workload.from_exported(program), iterative=True).exported
    moved = Workload.from_exported(move_to_device_pass(program, str(GPU)))
    new = moved if rewritten_first else EVERY_RULE(moved, iterative=True)
    found = new(inputs.to(GPU))
    assert devices(found) == {GPU}
    torch.testing.assert_close([leaf.cpu() for leaf in leaves(found)], leaves(model(inputs)), rtol=1e-3, atol=1e-4)


# ---------------------------------------------------------------- torch.compile


@pytest.mark.parametrize("options", [{}, {"fold_params": True, "iterative": True}, {"check": True}], ids=str)
@pytest.mark.parametrize("then", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("name", MODELS)
def test_compiled_models(name: str, then: str, options: dict[str, Any]) -> None:
    model, inputs = made(name)
    backend = gsl.torch_backend(EVERY_RULE, then=then, **options)
    call = torch.compile(model, backend=backend)
    with torch.no_grad():
        for data in (inputs, inputs * 2):
            torch.testing.assert_close(call(data), model(data), rtol=1e-3, atol=1e-4)
        for weight in model.parameters():
            weight.mul_(1.5)
        torch.testing.assert_close(call(inputs), model(inputs), rtol=1e-3, atol=1e-4)
    assert len(backend.traces[0].firings) > 0


def test_gradients_of_compiled_models() -> None:
    model, inputs = made("text")
    backend = gsl.torch_backend(EVERY_RULE)
    torch.compile(model, backend=backend)(inputs).square().sum().backward()
    found = [weight.grad.clone() for weight in model.parameters()]
    model.zero_grad()
    model(inputs).square().sum().backward()
    torch.testing.assert_close(found, [weight.grad for weight in model.parameters()], rtol=1e-3, atol=1e-3)
    assert len(backend.traces[0].firings) > 0


@pytest.mark.parametrize("mode", ["reduce-overhead", "max-autotune-no-cudagraphs"])
@pytest.mark.parametrize("fold", [True, False])
def test_modes_of_inductor(mode: str, fold: bool) -> None:
    model, inputs = made("vision")
    call = torch.compile(model, backend=gsl.torch_backend(EVERY_RULE, fold_params=fold), mode=mode)
    with torch.no_grad():
        for _ in range(4):
            torch.testing.assert_close(call(inputs), model(inputs), rtol=1e-3, atol=1e-4)
        model.stem.weight.mul_(2)
        torch.testing.assert_close(call(inputs), model(inputs), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("text", "pre_grad_custom_pass"),
        *((name, f"joint_custom_{when}_pass") for name in MODELS for when in ("pre", "post")),
        *((name, f"post_grad_custom_{when}_pass") for name in MODELS for when in ("pre", "post")),
    ],
)
def test_passes_of_inductor(name: str, place: str) -> None:
    model, inputs = made(name)
    fusing = Pass(EVERY_RULE)
    call = torch.compile(model, options={place: fusing})
    with torch.no_grad():
        torch.testing.assert_close(call(inputs), model(inputs), rtol=1e-3, atol=1e-4)
    assert fusing.traces


def test_a_pass_of_inductor_creates_tensors() -> None:
    rule = Subst(op.Sigmoid(X), op.Tanh(X) + op.Full(2.0, shape=(4,)) + op.Arange(stop=4.0), name="create")
    fusing, inputs = Pass(rule), torch.randn(2, 4, device=GPU)
    with torch.no_grad():
        found = torch.compile(Sigmoid(), options={"post_grad_custom_pre_pass": fusing})(inputs)
    assert fusing.traces[0].count("create") == 1
    torch.testing.assert_close(found, torch.tanh(inputs) + torch.arange(4, device=GPU) + 3)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_autocast(dtype: torch.dtype) -> None:
    class Inside(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = Text()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.autocast("cuda", dtype):
                y = self.model(x)
            return y.float() * 2.0 * 3.0

    model, inputs = Inside().eval().to(GPU), torch.randn(2, 5, 16, device=GPU)
    backend = gsl.torch_backend([*EVERY_RULE, TRIPLE], then="eager")
    with torch.no_grad():
        torch.testing.assert_close(torch.compile(model, backend=backend)(inputs), model(inputs), **TOLERANCE[dtype])
    assert backend.traces[0].count("triple") == 1
    torch._dynamo.reset()
    whole = model.model
    with torch.no_grad(), torch.autocast("cuda", dtype):
        with pytest.warns(NotRewrittenWarning, match=r"runs under torch\.autocast"):
            found = torch.compile(whole, backend=gsl.torch_backend(EVERY_RULE, then="eager"))(inputs)
        torch.testing.assert_close(found, whole(inputs), **TOLERANCE[dtype])


# ---------------------------------------------------------------- costs


class Wide(nn.Module):
    """Layers that take longer than their launches."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.out = nn.Conv2d(64, 64, 3, padding=1), nn.BatchNorm2d(64), nn.Linear(64, 1024)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(self.conv(x))
        for _ in range(10):
            y = torch.relu(y)
        return self.out(y.permute(0, 2, 3, 1))


def wide(device: torch.device) -> Workload:
    return loaded("exported", Wide().eval().to(device), torch.randn(8, 64, 64, 64, device=device))


@pytest.mark.parametrize("model", ["measured", "kernels", "analytic"])
def test_costs_are_those_of_the_device(model: str) -> None:
    costs, others = wide(GPU).cost(model), wide(CPU).cost("measured" if model == "kernels" else model)
    assert not any(call.estimated for call in costs.calls)
    assert 0 < costs.total < others.total
    assert [call.op for call in costs.calls] == [call.op for call in others.calls]


def test_what_pays_on_the_device() -> None:
    wl = wide(GPU)
    once = Subst(op.ReLU(op.ReLU(X)), op.ReLU(X), name="once")
    new, report = gsl.optimize(wl, rules=[once, *EVERY_RULE], budget=20)
    assert report.kept, report.decision
    assert new.trace.count("once") > 0
    wl.compare(new, **TOLERANCE[torch.float32]).check()
    assert {value.device for value in new.params.values()} == {GPU}


class Small(nn.Module):
    """Layers that take less than their launches."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(*[nn.Linear(64, 64) for _ in range(10)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x


def test_kernels_cost_less_than_calls() -> None:
    wl = loaded("exported", Small().eval().to(GPU), torch.randn(4, 64, device=GPU))
    kernels, calls = wl.cost("kernels"), wl.cost("measured")
    assert not any(call.estimated for call in kernels.calls)
    assert 0 < kernels.total < calls.total
    new, report = gsl.optimize(wl, rules=rules.GPU, cost="kernels", budget=10)
    assert report.taken, str(report)
    assert report.decision.endswith("times faster in a CUDA graph")
    wl.compare(new, **TOLERANCE[torch.float32]).check()


def test_what_a_captured_call_reads_is_held() -> None:
    call = partial(torch.add, torch.ones(1 << 20, device=GPU), 1.0)
    held = weakref.ref(call.args[0])
    replay = captured(call, 3)
    del call
    assert held() is not None
    replay()
    del replay
    assert held() is None


class Reads(nn.Module):
    """Reads a number from the device in the middle."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[x > 0].relu().relu().sum()


def test_what_waits_for_the_device_is_no_cuda_graph() -> None:
    wl = loaded("exported", Reads().to(GPU), torch.randn(4, 64, device=GPU))
    once = Subst(op.ReLU(op.ReLU(X)), op.ReLU(X), name="once")
    with pytest.raises(WorkloadError, match=r"can't be timed: .* CUDA graph .*use cost='measured'"):
        gsl.optimize(wl, rules=once, cost="kernels", budget=10)
    assert any(call.estimated for call in wl.cost("kernels").calls)
    new, report = gsl.optimize(wl, rules=once, budget=10)
    wl.compare(new).check()
    assert report.trials
    small = loaded("exported", Small().eval().to(GPU), torch.randn(4, 64, device=GPU))  # random numbers are drawn
    assert gsl.optimize(small, rules=rules.GPU, cost="kernels", budget=5).report.before is not None


def test_rules_for_the_device_are_tried_there() -> None:
    wl = wide(GPU)
    new, report = gsl.optimize(wl, budget=10)
    tried = {trial.rule for trial in report.trials}
    assert not any(rule.startswith("pack") for rule in tried)
    assert any(rule.startswith("fuse-conv") for rule in tried)
    wl.compare(new, **TOLERANCE[torch.float32]).check()
    assert devices(new.random_inputs()) == {GPU}


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("name", MODELS)
def test_rules_for_a_gpu(name: str, dtype: torch.dtype) -> None:
    model, inputs = made(name, dtype)
    old = loaded("exported", model, inputs)
    new = old
    for stage in (rules.NORMAL, rules.HALVES, EVERY_RULE, rules.GPU):
        new = stage(new, iterative=True)
    old.compare(new, **TOLERANCE[dtype]).check()
    program = new.exported.module()
    for _ in range(3):  # weights are packed at the second run
        found = program(inputs)
    torch.testing.assert_close(leaves(found), leaves(model(inputs)), **TOLERANCE[dtype])
    assert new.op_counts()["packed.conv2d"] > 0 or name == "text"
    compiled = torch.compile(model, backend=gsl.torch_backend(rules.GPU, then="eager"))
    with torch.no_grad():
        torch.testing.assert_close(leaves(compiled(inputs)), leaves(model(inputs)), **TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("way", ["added", "chosen"])
def test_a_row_whose_places_are_all_hidden(way: str, dtype: torch.dtype) -> None:
    """It has equal weights in the program, and in torch's kernels only if the number that hides them is not too low."""
    lowest = torch.finfo(dtype).min

    class Masked(nn.Module):
        def forward(self, x: torch.Tensor, visible: torch.Tensor) -> torch.Tensor:
            scores = x @ x.mT
            added = torch.where(visible, 0.0, lowest).to(x.dtype) if way == "added" else None
            return torch.softmax(torch.where(visible, scores, lowest) if added is None else scores + added, -1) @ x

    visible = torch.rand(2, 1, 16, 16, device=GPU) > 0.3
    visible[0, :, :3] = False
    old = loaded("exported", Masked(), torch.randn(2, 4, 16, 8, device=GPU, dtype=dtype), visible)
    for start in (old, Workload.from_exported(old.exported.run_decompositions(), old.example_inputs)):
        new = rules.IDIOMS(start, iterative=True)
        assert new.op_counts()["nn.attention"] == 1
        old.compare(new, inputs=old.example_inputs, **TOLERANCE[dtype]).check()


def test_numbers_in_tensors_are_found() -> None:
    class Counted(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + torch.tensor(2, device=GPU) - torch.tensor([2, 2], device=GPU)

    old = loaded("exported", Counted(), torch.arange(8, device=GPU).reshape(4, 2))
    new = Subst(X + 2 - 2, X, name="gone")(old)
    assert new.trace.count() == 1
    old.compare(new).check()


# ---------------------------------------------------------------- files


def test_files_and_drawings(tmp_path: Path) -> None:
    model, inputs = made("vision")
    before, after = tmp_path / "before.pt2", tmp_path / "after.pt2"
    torch.export.save(torch.export.export(model, (inputs,)), before)
    for arguments in (
        ["apply", "rules:BOOK", str(before), "-o", str(after), "--iterative"],
        ["match", "rules:BOOK", str(before)],
        ["explain", "rules:conv-batch-norm", str(before)],
    ):
        done = subprocess.run([sys.executable, "-m", "gsl", *arguments], capture_output=True, text=True, check=False)
        assert done.returncode in (0, 1), done.stderr
    new = Workload.from_exported(torch.export.load(after))
    assert {value.device for value in new.params.values()} == {GPU}
    torch.testing.assert_close(leaves(new(inputs)), leaves(model(inputs)), rtol=1e-3, atol=1e-4)
    old = Workload.from_exported(torch.export.load(before))
    pytest.importorskip("pygraphviz")
    old.before_after(EVERY_RULE(old), tmp_path / "change.svg")
    assert (tmp_path / "change.svg").stat().st_size > 0
