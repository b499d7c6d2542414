"""The rules for a CPU and for lower precisions: where they fire, what they write, and that it is right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from gsl import RuleSet, Supported, Workload
from gsl.graph import Node, SymDim
from gsl.rules import APPROXIMATE, BOOK, CPU, OPTIMISING
from gsl.rules.approximate import BFLOAT16, INT8
from tests.rules.cases_layout import B
from tests.rules.harness import Build, View, build, largest_error, shown


def layer(
    *, conv: bool = False, bias: bool = False, add: tuple[int, ...] | bool = False, then: str = "",
    dtype: str = "float32", matmul: bool = False, used: bool = False, batch: int | SymDim = 2, **attrs: Any,
) -> View:  # fmt: skip
    """A dense layer or a convolution, and what follows it."""

    def view(b: Build) -> list[Node]:
        if conv:
            x, w = b.input("x", batch, 4, 6, 6, dtype=dtype), b.param("w", 8, 4, 3, 3, dtype=dtype)
            y = b.call("nn.conv2d", x, w, **attrs)
        else:
            x = b.input("x", batch, 3, 4, dtype=dtype)
            w = b.param("w", 4, 8, dtype=dtype) if matmul else b.param("w", 8, 4, dtype=dtype)
            y = b.call("matmul" if matmul else "nn.dense", x, w)
        first = y
        if bias:
            y = b.call("nn.bias_add", y, b.param("b", 8, dtype=dtype), axis=1 if conv else 2)
        if add:
            shape: Any = y.shape if add is True else add
            y = b.call("add", b.input("y", *shape, dtype=dtype), y)
        if then:
            name, _, approximate = then.partition(":")
            y = b.call(name, y, approximate=approximate) if approximate else b.call(name, y)
        return [y, *([b.call("exp", first)] if used else [])]

    return view


def signals(*, groups: int = 2, bias: bool = False, then: str = "", dtype: str = "float32", **attrs: Any) -> View:
    """A convolution of signals, and what follows it."""

    def view(b: Build) -> list[Node]:
        x, w = b.input("x", 2, 4, 9, dtype=dtype), b.param("w", 8, 4 // groups, 3, dtype=dtype)
        y = b.call("nn.conv1d", x, w, groups=groups, **attrs)
        if bias:
            y = b.call("nn.bias_add", y, b.param("b", 8, dtype=dtype), axis=1)
        return [b.call(then, y) if then else y]

    return view


FIRES: list[tuple[str, View, str]] = [
    ("pack-dense", layer(), "packed.dense(%x, %w)"),
    ("pack-dense", layer(matmul=True), "packed.dense(%x, %transpose)"),
    ("pack-dense", layer(batch=B), "packed.dense(%x, %w)"),
    ("pack-dense-bias", layer(bias=True), "packed.dense(%x, %w, %b)"),
    ("pack-dense-add", layer(add=True), "packed.dense_add(%x, %w, %y)"),
    ("pack-dense-add", layer(add=True, bias=True, matmul=True), "packed.dense_add(%x, %transpose, %y, %b)"),
    ("pack-dense-activation", layer(then="nn.relu"), "packed.dense(%x, %w, activation='relu')"),
    ("pack-dense-activation", layer(then="gelu:tanh", bias=True), "packed.dense(%x, %w, %b, activation='gelu_tanh')"),
    ("pack-dense-activation", layer(then="gelu", batch=B), "packed.dense(%x, %w, activation='gelu')"),
    ("pack-conv", layer(conv=True), "packed.conv2d(%x, %w)"),
    ("pack-conv-bias", layer(conv=True, bias=True, padding=(1, 0, 2, 1), strides=2),
     "packed.conv2d(%x, %w, %b, strides=(2, 2), padding=(1, 0, 2, 1))"),
    ("pack-conv-add", layer(conv=True, add=True, bias=True), "packed.conv2d_add(%x, %w, %y, %b)"),
    ("pack-conv-activation", layer(conv=True, then="silu"), "packed.conv2d(%x, %w, activation='silu')"),
    ("pack-conv-activation", layer(conv=True, then="nn.relu6", bias=True),
     "packed.conv2d(%x, %w, %b, activation='relu6')"),
    ("pack-conv-add-relu", layer(conv=True, add=True, then="nn.relu"),
     "packed.conv2d_add(%x, %w, %y, activation='relu')"),
    ("pack-conv1d", signals(padding=(2, 1)),
     "packed.conv2d(%expand_dims, %expand_dims_1, padding=(0, 2, 0, 1), groups=2)"),
    ("pack-conv1d-bias", signals(groups=4, bias=True, strides=2, dilation=3),
     "packed.conv2d(%expand_dims, %expand_dims_1, %b, strides=(1, 2), dilation=(1, 3), groups=4)"),
    ("pack-conv1d-activation", signals(bias=True, then="silu"),
     "packed.conv2d(%expand_dims, %expand_dims_1, %b, groups=2, activation='silu')"),
    ("int8-dense", layer(matmul=True), "packed.dense(%x, %transpose, precision='int8')"),
    ("int8-dense-bias", layer(bias=True), "packed.dense(%x, %w, %b, precision='int8')"),
    ("int8-conv", layer(conv=True, dilation=2), "packed.conv2d(%x, %w, dilation=(2, 2), precision='int8')"),
    ("int8-conv-bias", layer(conv=True, bias=True), "packed.conv2d(%x, %w, %b, precision='int8')"),
]  # fmt: skip
REFUSES: list[tuple[str, View]] = [
    ("pack-conv1d", signals(dtype="float64")),
    ("pack-conv1d-bias", signals(bias=True, dtype="float64")),
    ("pack-conv1d-activation", signals(then="silu", dtype="float64")),
    ("pack-conv1d", signals(groups=1)),
    *((rule.name, layer(conv="conv" in rule.name, bias="bias" in rule.name, add="add" in rule.name,
                        then="nn.relu" if rule.name.endswith(("activation", "relu")) else "", dtype="float64"))
      for rule in CPU if "conv1d" not in rule.name),
    ("pack-dense-bias", layer(bias=True, used=True)),
    ("pack-dense-add", layer(add=(3, 1, 3, 8))),
    ("pack-dense-add", layer(add=(3, 8))),
    ("pack-dense-activation", layer(then="nn.relu", used=True)),
    ("pack-dense-activation", layer(then="exp")),
    ("pack-conv-add", layer(conv=True, add=(1, 8, 1, 1))),
    ("pack-conv", layer(conv=True, out_layout="NHWC")),
]  # fmt: skip
ALL = CPU + APPROXIMATE


@pytest.mark.parametrize(("name", "view", "call"), FIRES)
def test_it_fires(name: str, view: View, call: str) -> None:
    before = build(view)
    after = ALL[name](before)
    assert call in shown(after)
    if not any(isinstance(size, SymDim) for node in before.nodes for size in node.shape or ()):
        assert largest_error(before, after) <= 1  # the meaning knows no precision


@pytest.mark.parametrize(("name", "view"), REFUSES)
def test_it_does_not_fire(name: str, view: View) -> None:
    before = build(view)
    assert shown(ALL[name](before)) == shown(before)


def test_the_largest_rule_goes_first() -> None:
    for view, count in ((layer(bias=True, add=True), 1), (layer(conv=True, bias=True, add=True, then="nn.relu"), 1)):
        after = CPU(build(view))
        assert sum(1 for node in after.nodes if isinstance(node.op, str) and "packed" in node.op) == count
        assert len([node for node in after.nodes if node.operands]) == count


@pytest.mark.parametrize("lower", [INT8, BFLOAT16])
def test_a_lower_precision_keeps_what_was_joined(lower: RuleSet) -> None:
    before = CPU(build(layer(bias=True, then="silu")))
    after = lower(before)
    precision = "int8" if lower is INT8 else "bfloat16"
    assert f"packed.dense(%x, %w, %b, activation='silu', precision='{precision}')" in shown(after)
    assert shown(lower(after)) == shown(after)
    adding = lower(CPU(build(layer(conv=True, add=True, then="nn.relu"))))
    assert f"packed.conv2d_add(%x, %w, %y, activation='relu', precision='{precision}')" in shown(adding)


@pytest.mark.sweep(3)
@pytest.mark.parametrize("rule", [*CPU, *INT8], ids=lambda rule: rule.name)
def test_it_is_supported(rule: Any) -> None:
    verdict = rule.verify(max_examples=60)
    assert isinstance(verdict, Supported), str(verdict)
    assert verdict.evidence.unmatched == 0
    assert not verdict.evidence.missing


def test_the_sets_are_documented_and_no_part_of_the_book() -> None:
    for rule in ALL:
        algebra, blank, *where = rule.doc.splitlines()
        assert " = " in algebra
        assert blank == ""
        assert where
        assert rule not in BOOK
        assert rule.approximate == (rule in APPROXIMATE)
    assert str(APPROXIMATE["int8-dense"]).startswith("int8-dense (approximate)\n")


# Programs of torch


def mlp() -> tuple[nn.Module, torch.Tensor]:
    return nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 16)), torch.randn(2, 5, 32)


class Residual(nn.Module):
    """Convolutions with a shortcut; what follows them looks at how they lie in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.norm, self.head = nn.BatchNorm2d(8), nn.Linear(8 * 16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.first(x))
        y = torch.relu(self.norm(self.second(y)) + y)
        y = nn.functional.max_pool2d(y, 2)
        return self.head(y.view(y.shape[0], -1))  # type: ignore[no-any-return]


def images() -> tuple[nn.Module, torch.Tensor]:
    return Residual(), torch.randn(2, 3, 8, 8)


class Signals(nn.Module):
    """Convolutions of signals, one channel at a time, between layers on these, as conformers have them."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 8), nn.Linear(8, 6)
        self.each, self.norm = nn.Conv1d(8, 8, 5, padding=2, groups=8), nn.BatchNorm1d(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(self.each(self.first(x).transpose(1, 2)))
        return x + self.second(nn.functional.silu(y).transpose(1, 2))  # type: ignore[no-any-return]


def sound() -> tuple[nn.Module, torch.Tensor]:
    return Signals(), torch.randn(2, 9, 6)


@pytest.mark.parametrize("make", [mlp, images, sound])
@pytest.mark.parametrize("rules", [CPU, INT8, BFLOAT16])
def test_programs(make: Callable[[], tuple[nn.Module, torch.Tensor]], rules: RuleSet) -> None:
    torch.manual_seed(0)
    model, x = make()
    wl = RuleSet(OPTIMISING)(Workload.from_torch(model.eval(), (x,)), iterative=True)
    new = rules(wl, iterative=True)
    assert new.trace.count()
    program, expected = new.exported.module(), model(x)
    with torch.no_grad():
        for _ in range(3):  # packed from the second run on
            found = program(x)
            assert (found - expected).abs().max() <= (1e-5 if rules is CPU else 0.05) * expected.abs().max()
    again = Workload.from_exported(new.exported)
    assert again.op_counts() == new.op_counts()
    assert rules(again, iterative=True).trace.count() == 0


def test_weights_stay_plain_and_gradients_flow() -> None:
    model, x = mlp()
    new = CPU(Workload.from_torch(model, (x,)))
    assert {name: tuple(value.shape) for name, value in new.exported.state_dict.items()} == {
        name: tuple(value.shape) for name, value in model.state_dict().items()
    }
    program = new.exported.module()
    program(x).sum().backward()
    model(x).sum().backward()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(program.get_parameter(name).grad, parameter.grad)
