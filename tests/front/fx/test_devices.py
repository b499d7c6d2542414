"""New tensors lie where the calls do that they take the place of, and no rewrite moves one to another device.

The second device is ``meta``, where torch refuses to compute with tensors of the CPU, as any device does.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import fx, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.export.passes import move_to_device_pass
from torch.fx.experimental.proxy_tensor import make_fx

import gsl
from gsl import RuleSet, Subst, Workload, op, pat
from gsl.errors import FrontEndError, NotRewrittenWarning
from gsl.front.fx.values import device_of
from gsl.fx import Pass
from gsl.match import masks
from gsl.match.literals import equal_literal
from gsl.rules import IDIOMS, NORMAL
from tests.helpers.book import EVERY_RULE
from tests.helpers.compiled import fresh
from tests.helpers.nets import Net

X, Y, W = pat.Wildcard(), pat.Wildcard(), pat.Param()
CPU, META = torch.device("cpu"), torch.device("meta")


@pytest.fixture(autouse=True)
def _alone() -> Iterator[None]:
    with fresh():
        yield


def meta(*shape: int) -> torch.Tensor:
    return torch.ones(shape, device=META)


class OneOrTwo(Net):
    """A function of the module itself and two tensors, or one."""

    def forward(self, x: Any, y: Any = None) -> Any:
        return self.function(self, x) if y is None else self.function(self, x, y)


def module(function: Callable[..., Any], **parts: Any) -> nn.Module:
    return OneOrTwo(function, **parts).eval()


def loaded(form: str, model: nn.Module, *inputs: torch.Tensor) -> Workload:
    if form == "exported":
        return Workload.from_torch(model, inputs)
    if form == "decomposed":
        return Workload.from_exported(torch.export.export(model, inputs).run_decompositions())
    concrete = None if len(inputs) == 2 else {"y": None}
    return Workload.from_fx(fx.symbolic_trace(model, concrete_args=concrete), inputs)


def results(workload: Workload, *inputs: torch.Tensor) -> set[torch.device]:
    """The devices of the results, if torch runs the program at all."""
    return {leaf.device for leaf in torch.utils._pytree.tree_leaves(workload(*inputs))}


# ---------------------------------------------------------------- the rule book

IMAGE, ROWS = (2, 4, 8, 8), (2, 4)
LAYERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    # a kernel of zeros and ones is added to the weight
    "conv-shortcut-add": (
        lambda: module(lambda self, x: self.conv(x) + x, conv=nn.Conv2d(4, 4, 3, padding=1, bias=False)),
        IMAGE,
    ),
    # zeros stand for the bias of the keys
    "qkv-without-key-bias": (
        lambda: module(
            lambda self, x: (self.q(x), self.k(x), self.v(x)),
            q=nn.Linear(4, 4), k=nn.Linear(4, 4, bias=False), v=nn.Linear(4, 4),
        ),
        ROWS,
    ),
    # ones and zeros stand for the weight and the bias that the norm has not
    "conv-batch-norm": (
        lambda: module(lambda self, x: self.n(self.c(x)), c=nn.Conv2d(4, 4, 1), n=nn.BatchNorm2d(4, affine=False)),
        IMAGE,
    ),
}  # fmt: skip


@pytest.mark.parametrize("fold", [True, False], ids=["folded", "in the graph"])
@pytest.mark.parametrize("form", ["exported", "traced"])
@pytest.mark.parametrize("rule", LAYERS)
def test_rules_that_make_tensors(rule: str, form: str, fold: bool) -> None:
    make, shape = LAYERS[rule]
    old = loaded(form, make().to(META), meta(*shape))
    new = EVERY_RULE(old, iterative=True, fold_params=fold)
    # In the graph, the zeros for the bias are added by a call of their own, which goes again.
    also = {"sum-from-zero": 1} if rule == "conv-batch-norm" and not fold else {}
    assert new.trace.summary() == {rule: 1, **also}
    assert {value.device for value in new.params.values()} == {META}
    assert results(new, meta(*shape)) == {META}


@pytest.mark.parametrize(("by_columns", "device", "copies"), [(True, META, 1), (False, META, 0), (True, CPU, 0)])
def test_a_mask_gets_dense_rows_on_an_accelerator(by_columns: bool, device: torch.device, copies: int) -> None:
    """There, torch has no kernel of attention for others, such as those of a table of positions."""
    model = module(lambda self, x, y: torch.softmax(x @ x.mT + (y.permute(2, 0, 1) if by_columns else y), -1) @ x)
    shape = (5, 5, 2) if by_columns else (2, 5, 5)
    old = Workload.from_torch(model, (torch.ones(3, 2, 5, 4, device=device), torch.ones(shape, device=device)))
    new = IDIOMS(NORMAL(old, iterative=True), iterative=True)
    assert new.op_counts()["nn.attention"] == 1
    clones = [node for node in new.exported.graph.nodes if node.target is torch.ops.aten.clone.default]
    assert len(clones) == copies
    assert all(node.kwargs == {"memory_format": torch.contiguous_format} for node in clones)
    for workload in (new, Workload.from_exported(new.exported)):
        again = NORMAL(workload, iterative=True)
        assert again.trace.count() == 0
        assert sum("lies row by row" in refused.reason for refused in again.trace.refused) == copies


LOWEST = torch.finfo(torch.float32).min
SAFE, UNSAFE = True, False
MASKS: dict[str, tuple[Callable[..., Any], torch.dtype, bool]] = {
    "unknown": (lambda self, m: m, torch.float32, UNSAFE),
    "half": (lambda self, m: m, torch.float16, SAFE),
    "minus infinity": (lambda self, m: torch.where(m, 0.0, -torch.inf), torch.bool, SAFE),
    "low": (lambda self, m: torch.where(m, 0.0, -1e30), torch.bool, SAFE),
    "lowest": (lambda self, m: torch.where(m, 0.0, LOWEST), torch.bool, UNSAFE),
    "lowest twice": (lambda self, m: torch.where(m, 0.0, -9e37) + torch.where(m.mT, 0.0, -9e37), torch.bool, UNSAFE),
    "bounded": (lambda self, m: m.clamp(min=-1e4).mT.reshape(2, 5, 5) + 1.0, torch.float32, SAFE),
    "bounded from above": (lambda self, m: m.clamp(max=0.0), torch.float32, UNSAFE),
    "the larger": (lambda self, m: torch.maximum(m, m.clamp(min=-1.0)), torch.float32, SAFE),
    "numbers": (lambda self, m: torch.ones_like(m, dtype=torch.float32) + m, torch.int64, SAFE),
    "computed": (lambda self, m: torch.tanh(m) * LOWEST, torch.float32, UNSAFE),
    "chosen": (lambda self, m: torch.zeros_like(m)[:, [0, 1, 2, 3, 4]], torch.float32, SAFE),
}


@pytest.mark.parametrize("decomposed", [False, True], ids=["exported", "decomposed"])
@pytest.mark.parametrize("device", [CPU, META], ids=str)
@pytest.mark.parametrize("name", MASKS)
def test_a_new_mask_has_no_number_that_an_accelerator_takes_for_minus_infinity(
    name: str, device: torch.device, decomposed: bool
) -> None:
    """Kernels multiply it by log2(e), and give zeros for a row whose places are all hidden by minus infinity."""
    make, dtype, is_safe = MASKS[name]
    model = module(lambda self, x, m: torch.softmax(x @ x.mT + make(self, m), -1) @ x)
    x = torch.ones(2, 5, 4, device=device, dtype=torch.float16 if dtype is torch.float16 else torch.float32)
    old = loaded("decomposed" if decomposed else "exported", model, x, torch.ones(2, 5, 5, device=device, dtype=dtype))
    new = IDIOMS(NORMAL(old, iterative=True), iterative=True)
    assert new.op_counts()["nn.attention"] == 1
    raised = [node for node in new.exported.graph.nodes if node.args[1:] == (masks.LOWEST,)]
    assert len(raised) == (device == META and not is_safe)
    found = op.Attention(X, Y, Y, mask := pat.Wildcard())
    again = Subst(found, found.like(X + X, Y, Y, mask), name="again")(new)
    assert again.trace.count() == 1  # what has been raised is not raised once more
    assert sum(node.args[1:] == (masks.LOWEST,) for node in again.exported.graph.nodes) == len(raised)


def test_a_mask_of_several_layers_is_raised_once() -> None:
    def form(self: Any, x: torch.Tensor, m: torch.Tensor) -> Any:
        for _ in range(3):
            x = torch.softmax(x @ x.mT + m, -1) @ x
        return x

    new = IDIOMS(NORMAL(Workload.from_torch(module(form), (meta(2, 5, 4), meta(2, 5, 5))), iterative=True))
    assert new.op_counts()["nn.attention"] == 3
    assert sum(node.args[1:] == (masks.LOWEST,) for node in new.exported.graph.nodes) == 1


def test_a_mask_that_was_raised_hides_the_same_places() -> None:
    model = module(lambda self, x, m: torch.softmax(x @ x.mT + m, -1) @ x)
    old = Workload.from_torch(model, (meta(2, 5, 4), meta(2, 5, 5)))
    graph = IDIOMS(NORMAL(old, iterative=True), iterative=True).exported.graph
    _, mask, *calls, _, _ = graph.nodes
    known: dict[Any, Any] = {mask: torch.tensor([0.5, -1e30, LOWEST, -torch.inf, torch.inf, torch.nan])}
    for node in calls:
        known[node] = node.target(*[known.get(arg, arg) for arg in node.args])
    expected = torch.tensor([0.5, -1e30, masks.LOWEST, -torch.inf, torch.inf, torch.nan])
    torch.testing.assert_close(known[calls[-1]], expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("devices", [(META, META), (META, CPU)], ids=["on one device", "on two"])
def test_a_number_in_a_tensor_of_the_device_is_a_number(devices: tuple[torch.device, torch.device]) -> None:
    """As decompositions write the number of ``masked_fill``; but two tensors of one number on two devices are two."""

    def form(self: Any, x: torch.Tensor) -> Any:
        first, last = (torch.scalar_tensor(2.0, device=device) for device in devices)
        return torch.sigmoid(x) * first, torch.tanh(last)

    number = partial(op.Full, shape=(), dtype="float32")
    twice = Subst(op.Sigmoid(X) * number(2.0), op.Tanh(X) * number(3.0), name="twice")
    old = Workload.from_torch(module(form), (meta(2, 3),))
    new = twice(old)
    assert new.trace.count("twice") == (devices[1] is META)
    with torch.no_grad():
        found = new.exported.module()(meta(2, 3))
    assert [value.device for value in found] == [META, devices[1]]


def test_filled_tensors_are_read_beside_numbers_of_other_devices() -> None:
    """And in graphs without types, unless they name another device."""

    def form(self: Any, x: torch.Tensor) -> Any:
        return x * torch.full((3,), 2.0) + torch.full((), 3.0), torch.tanh(torch.scalar_tensor(1.0, device=META))

    old = Workload.from_torch(module(form), (torch.ones(2, 3),))
    assert (old.op_counts()["full"], old.op_counts()["aten.scalar_tensor.default"]) == (2, 1)
    graph = fx.Graph()
    x = graph.placeholder("x")
    for options in ({}, {"device": "meta"}):
        x = graph.call_function(torch.add, (x, graph.call_function(torch.full, ((), 2.0), options)))
    graph.output(x)
    counts = Workload.from_fx(fx.GraphModule(nn.Module(), graph)).op_counts()
    assert (counts["full"], sum(counts.values())) == (1, 4)


class Elsewhere:
    """Integers that lie on a device of which NumPy reads nothing."""

    shape, dtype = (2,), torch.int64

    def cpu(self) -> torch.Tensor:
        return torch.tensor([3, 3])

    def __array__(self, *_: Any) -> Any:
        raise TypeError("can't convert device type tensor to numpy")


def test_integers_of_another_device_are_compared() -> None:
    assert equal_literal(3, Elsewhere())
    assert not equal_literal(2, Elsewhere())


@pytest.mark.sweep(4)
@pytest.mark.parametrize("rule", LAYERS)
def test_rules_that_make_tensors_in_compiled_models(rule: str) -> None:
    make, shape = LAYERS[rule]
    backend = gsl.torch_backend(EVERY_RULE, then="eager")
    with torch.no_grad():
        found = torch.compile(make().to(META), backend=backend)(meta(*shape))
    assert backend.traces[0].summary() == {rule: 1}
    assert {leaf.device for leaf in torch.utils._pytree.tree_leaves(found)} == {META}


# ---------------------------------------------------------------- literals and new tensors

CREATE = Subst(
    op.Sigmoid(X),
    op.Tanh(X) + op.Zeros(shape=(3,)) + op.Ones(shape=(3,)) + op.Full(2.0, shape=(3,)) + op.Arange(stop=3.0)
    + pat.Const(np.array([1.0, 2.0, 3.0], np.float32)) + pat.Const(torch.ones(3)),
    name="create",
)  # fmt: skip
SIGMOID = module(lambda self, x: torch.sigmoid(x) + 1)


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("form", ["exported", "decomposed", "traced"])
def test_what_a_target_creates(form: str, device: str) -> None:
    old = loaded(form, SIGMOID, torch.ones(2, 3, device=device))
    new = CREATE(old)
    assert results(new, torch.ones(2, 3, device=device)) == {torch.device(device)}
    if device == "cpu":
        expected = torch.tanh(torch.ones(2, 3)) + torch.arange(3.0) * 2 + 6
        torch.testing.assert_close(new(torch.ones(2, 3)), expected)


def test_what_a_target_creates_in_place() -> None:
    for device in ("cpu", "meta"):
        traced = make_fx(SIGMOID, tracing_mode="fake")(torch.ones(2, 3, device=device))
        Pass(CREATE)(traced)
        assert traced(torch.ones(2, 3, device=device)).device.type == device


def test_a_group_creates_where_it_stands() -> None:
    group = Subst(op.ReLU(X + op.Zeros(shape=(3,))), pat.Fused("group"), name="group")
    rules = RuleSet([Subst(op.Sigmoid(X), op.ReLU(X + op.Zeros(shape=(3,))), name="zeros"), group])
    for form in ("exported", "traced"):
        new = rules(loaded(form, SIGMOID, meta(2, 3)), iterative=True)
        assert new.trace.summary() == {"zeros": 1, "group": 1}
        assert results(new, meta(2, 3)) == {META}
        assert results(new.inline(), meta(2, 3)) == {META}


def test_a_default_device_does_not_count() -> None:
    old = {form: loaded(form, SIGMOID, torch.ones(2, 3)) for form in ("exported", "traced")}
    torch.set_default_device(META)
    try:
        for each in old.values():
            new = CREATE(each)
            assert results(new, torch.ones(2, 3, device="cpu")) == {torch.device("cpu")}
            assert each.random_inputs()[0].device == torch.device("cpu")
            each.compare(each).check()
        assert CREATE.verify().__class__.__name__ == "Refuted"
    finally:
        torch.set_default_device(None)


def test_programs_that_torch_moves() -> None:
    def form(self: Any, x: torch.Tensor) -> Any:
        y = torch.sigmoid(self.c(x))
        return y + torch.arange(8, device=x.device), y * torch.full((8,), 2.0, device=x.device)

    exported = torch.export.export(module(form, c=nn.Conv2d(4, 4, 1)), (torch.ones(IMAGE),))
    rule = Subst(op.Sigmoid(X), op.Sigmoid(X) + op.Zeros(shape=(8,)), name="zeros")
    first = Workload.from_exported(move_to_device_pass(rule(Workload.from_exported(exported)).exported, "meta"))
    assert results(first, meta(*IMAGE)) == {META}
    moved = Workload.from_exported(move_to_device_pass(exported, "meta"))
    last = rule(moved)
    assert last.trace.count("zeros") == 1
    assert results(last, meta(*IMAGE)) == {META}
    assert moved.random_inputs()[0].device == META


@pytest.mark.long
@pytest.mark.parametrize("target", ["post_grad_custom_pre_pass", "pre_grad_custom_pass"])
def test_a_pass_of_inductor_creates_tensors(target: str) -> None:
    rule = Subst(op.Sigmoid(X), op.Tanh(X) + op.Full(2.0, shape=(3,)) + op.Arange(stop=3.0), name="create")
    fusing = Pass(rule)
    with torch.no_grad():
        found = torch.compile(SIGMOID, options={target: fusing})(torch.ones(2, 3))
    assert fusing.traces[0].summary() == {"create": 1}
    torch.testing.assert_close(found, torch.tanh(torch.ones(2, 3)) + torch.arange(3.0) + 3)


GPU = torch.device("cuda", 0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("decomposed", [False, True])
def test_a_program_of_a_gpu_creates_there(decomposed: bool, dtype: torch.dtype) -> None:
    mode = FakeTensorMode(allow_non_fake_inputs=True)

    def on_gpu(value: torch.Tensor) -> torch.Tensor:
        return FakeTensor(mode, torch.empty_like(value, device=META), GPU)

    model = LAYERS["conv-shortcut-add"][0]().to(dtype)
    conv = model.conv
    conv.weight = nn.Parameter(on_gpu(conv.weight.detach()), requires_grad=False)
    with torch.no_grad():
        exported = torch.export.export(model, (on_gpu(torch.ones(IMAGE, dtype=dtype)),))
        program = exported.run_decompositions() if decomposed else exported
        new = EVERY_RULE(Workload.from_exported(program), fold_params=False)
    nodes = [node for node in new.exported.graph.nodes if node.op == "call_function"]
    assert {(node.meta["val"].device, node.meta["val"].dtype) for node in nodes} == {(GPU, dtype)}
    created = {node.target: node.kwargs for node in nodes if "device" in node.kwargs}
    wanted = {"dtype": dtype, "device": GPU}
    assert created == {torch.ops.aten.zeros.default: wanted, torch.ops.aten.ones.default: wanted}


# ---------------------------------------------------------------- several devices

UNCAST = Subst(op.Cast(X, dtype="float32"), X, name="uncast")
SECOND = Subst(X - Y, Y, name="second")
UNIT = Subst(op.Abs(op.Abs(X)), op.Abs(X), name="unit")
RESHAPED = Subst(X * Y, X * op.Reshape(Y, newshape=(1,)), name="reshaped")
TAKEN = Subst(op.Take(X, Y + 1, axis=0), op.Take(X, Y + 1, axis=0) + op.Ones(shape=(3,)), name="taken")


@pytest.mark.parametrize("form", ["exported", "traced"])
def test_a_cast_to_the_type_of_a_tensor_elsewhere_is_more_than_a_cast(form: str) -> None:
    model = module(lambda self, x, y: x.type_as(y) + y)
    same = UNCAST(loaded(form, model, meta(3), meta(3)))
    other = UNCAST(loaded(form, model, torch.ones(3), meta(3)))
    assert (same.trace.count("uncast"), other.trace.count("uncast")) == (1, 0)
    assert results(other, torch.ones(3), meta(3)) == {META}


@pytest.mark.parametrize(
    "move",
    [lambda y: y.to("meta"), lambda y: y.to(META, torch.float32), lambda y: y.to(device=META, dtype=torch.float32)],
    ids=["device", "device and dtype", "by name"],
)
@pytest.mark.parametrize("form", ["exported", "decomposed", "traced"])
def test_a_move_is_more_than_a_cast(form: str, move: Callable[[torch.Tensor], torch.Tensor]) -> None:
    model = module(lambda self, x: move(x * 2) * 2)
    same = UNCAST(loaded(form, model, meta(3)))
    other = UNCAST(loaded(form, model, torch.ones(3)))
    assert (same.trace.count("uncast"), other.trace.count("uncast")) == (int(form != "decomposed"), 0)
    assert results(other, torch.ones(3)) == {META}


REFUSED: dict[str, tuple[Subst, Callable[..., Any], tuple[torch.Tensor, torch.Tensor], str]] = {
    "a number becomes a tensor": (
        RESHAPED, lambda self, x, y: x * y, (meta(2, 3), torch.ones(())),
        r"the new multiply takes tensors on meta and cpu, .*; let the rule match on one device",
    ),
    "an operand of a call": (
        SECOND, lambda self, x, y: (x - y) * 2, (meta(3).sum(), torch.ones(())),
        r"%sub(_tensor)? is on meta, and its replacement on cpu",
    ),
    "an output": (
        SECOND, lambda self, x, y: x - y, (meta(3).sum(), torch.ones(())),
        r"%sub(_tensor)? is on meta, and its replacement on cpu",
    ),
    "a new tensor between two devices": (
        TAKEN, lambda self, x, y: x[y + 1], (meta(5, 3), torch.tensor([1, 2])),
        r"taken: %ones: a new tensor takes the place of calls on cpu and meta, so there is no one device for it",
    ),
}  # fmt: skip


@pytest.mark.parametrize("form", ["exported", "traced"])
@pytest.mark.parametrize("case", REFUSED)
def test_rules_across_devices_are_refused_and_others_go_on(case: str, form: str) -> None:
    rule, function, inputs, message = REFUSED[case]
    beside = module(lambda self, x, y: (function(self, x, y), torch.abs(torch.abs(x))))
    old = loaded(form, beside, *inputs)
    before = str(old.mod.graph)
    new = RuleSet([rule, UNIT])(old, fold_params=False)
    assert re.search(message, str(new.trace))
    assert new.trace.summary() == {"unit": 1}
    assert str(old.mod.graph) == before


@pytest.mark.parametrize("case", REFUSED)
def test_rules_across_devices_are_refused_in_place(case: str) -> None:
    rule, function, inputs, _ = REFUSED[case]
    traced = make_fx(lambda x, y: function(None, x, y), tracing_mode="fake")(*inputs)
    before = str(traced.graph)
    Pass(rule)(traced)
    assert str(traced.graph) == before


@pytest.mark.parametrize("form", ["exported", "traced"])
@pytest.mark.parametrize("together", [False, True])
def test_a_target_takes_nothing_to_another_device(form: str, together: bool) -> None:
    """Of a graph on one device, that is seen when the new calls are written."""
    moved = pat.Call(torch.ops.aten._to_copy.default, X, device=META)
    rule = Subst(op.ReLU(X), X + moved if together else moved, name="moves")
    old = loaded(form, module(lambda self, x: torch.tanh(torch.relu(x))), torch.randn(3))
    before = str(old.mod.graph)
    told = "moves: .*: a new call takes tensors on cpu and meta" if together else "was on cpu, and is on meta after"
    with pytest.raises(FrontEndError, match=told):
        rule(old)
    assert str(old.mod.graph) == before


def test_compiled_models_go_on_as_they_were() -> None:
    rule, function, inputs, _ = REFUSED["a number becomes a tensor"]
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error", NotRewrittenWarning)
        found = torch.compile(module(function), backend=gsl.torch_backend(rule, then="eager"))(*inputs)
    assert found.device == META


def test_parts_of_one_device_each_are_rewritten() -> None:
    def form(self: Any, x: torch.Tensor) -> Any:
        return torch.sigmoid(x) + 1, self.second(torch.sigmoid(x.to(META)))

    for kind in ("exported", "traced"):
        model = module(form, second=nn.Linear(3, 3, device=META))
        new = CREATE(loaded(kind, model, torch.ones(2, 3)))
        assert new.trace.count("create") == 2
        assert [leaf.device.type for leaf in new(torch.ones(2, 3))] == ["cpu", "meta"]


def test_a_fake_tensor_lies_where_it_does_while_another_thread_runs_it() -> None:
    old = loaded("exported", module(lambda self, x: x + x), torch.ones(3))
    (value,) = [node.meta["val"] for node in old.exported.graph.nodes if node.op == "call_function"]
    # As in_kernel_invocation_manager of torch does for the time of a call on meta tensors.
    value.fake_mode.in_kernel_invocation = True
    assert value.device == META
    assert device_of(value) == old.random_inputs()[0].device == torch.device("cpu")


# ---------------------------------------------------------------- inputs and results


def test_arrays_go_where_the_input_is() -> None:
    for form in ("exported", "traced"):
        old = loaded(form, module(lambda self, x: self.l(x), l=nn.Linear(4, 3, device=META)), meta(2, 4))
        assert old(np.ones((2, 4), np.float32)).device == META
        assert old.random_inputs()[0].device == META
    untyped = Workload.from_fx(fx.symbolic_trace(nn.Linear(4, 3, device=META)))
    assert untyped(np.ones((2, 4), np.float32)).device == META


def test_random_inputs_without_an_example_go_where_the_inputs_are() -> None:
    traced = make_fx(lambda x, y: (x + 1, y * 2), tracing_mode="fake")(torch.ones(3), meta(4))
    assert [value.device.type for value in Workload.from_fx(traced).random_inputs()] == ["cpu", "meta"]


def test_a_result_on_another_device_is_a_difference() -> None:
    first = loaded("traced", module(lambda self, x: x + 1), torch.ones(3))
    second = loaded("traced", module(lambda self, x: (x + 1).to(META)), torch.ones(3))
    report = first.compare(second)
    assert {row.reason for row in report.outputs} == {"device: expected cpu, found meta"}


def test_all_generators_are_seeded_and_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    states, seeds = {0: torch.tensor([1]), 1: torch.tensor([2])}, []

    def seed_all(number: int) -> None:
        seeds.append(number)
        states.update({0: torch.tensor([9]), 1: torch.tensor([9])})

    gpu = {
        "is_initialized": lambda: True, "device_count": lambda: 2, "manual_seed_all": seed_all,
        "get_rng_state": states.__getitem__, "set_rng_state": lambda state, device: states.update({device: state}),
        "_is_in_bad_fork": lambda: False,
    }  # fmt: skip
    old = loaded("traced", SIGMOID, torch.ones(2, 3))
    for name, function in gpu.items():
        monkeypatch.setattr(torch.cuda, name, function)
    old.compare(old, torch.ones(2, 3), seed=5).check()
    assert seeds == [5, 5]
    assert states == {0: torch.tensor([1]), 1: torch.tensor([2])}


def test_models_of_one_device_are_stored_without_a_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        EVERY_RULE(loaded("exported", LAYERS["conv-shortcut-add"][0](), torch.ones(IMAGE)))
