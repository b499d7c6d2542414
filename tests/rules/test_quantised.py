"""Programs as PT2E quantises them: what the rules remove and join, that it is right, and that it is saved."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import gsl
import gsl.kernels
from gsl import Refuted, RuleSet, Subst, Supported, Workload, op, pat
from gsl.kernels.operator import entries
from gsl.operators import quantised as q
from gsl.rules import QUANTISED
from gsl.rules.packed import activated, by_activation
from gsl.spec.packed import ACTIVATIONS
from gsl.verify import verify
from tests.helpers.tensors import randn

quantized = torch.ops.quantized_decomposed
BYTE = (0.02, 128, 0, 255, torch.uint8)
SEVEN_BITS = (0.04, 64, 0, 127, torch.uint8)
WIDE = (0.2, 100, 0, 255, torch.uint8)
CALL = {"linear": "gsl::quantised_linear", "conv": "gsl::quantised_conv2d"}


def fake(x: Tensor, scheme: Any = BYTE, other: Any = None) -> Tensor:
    small = quantized.quantize_per_tensor(x, *scheme)
    found: Tensor = quantized.dequantize_per_tensor(small, *(other or scheme))
    return found


def dynamic(x: Tensor) -> Tensor:
    """Quantised by a scale that is found at run time, as PT2E's dynamic scheme has it."""
    scale, zero = quantized.choose_qparams.tensor(x, 0, 255, 1e-6, torch.uint8)
    small = quantized.quantize_per_tensor.tensor(x, scale, zero, 0, 255, torch.uint8)
    found: Tensor = quantized.dequantize_per_tensor.tensor(small, scale, zero, 0, 255, torch.uint8)
    return found


class Layer(nn.Module):
    """A layer of quantised weights, as PT2E leaves it in a graph."""

    def __init__(self, run: Callable[..., Any], *shape: int, zero: int = 0) -> None:
        super().__init__()
        made = torch.Generator().manual_seed(0)
        self.run = run
        self.register_buffer("weight", torch.randint(-127, 128, shape, dtype=torch.int8, generator=made))
        self.register_buffer("scales", torch.rand(shape[0], generator=made) * 0.01 + 0.001)
        self.register_buffer("zeros", torch.full((shape[0],), zero))
        self.bias = nn.Parameter(torch.randn(shape[0], generator=made))

    def forward(self, x: Tensor) -> Any:
        weight = quantized.dequantize_per_channel(self.weight, self.scales, self.zeros, 0, -127, 127, torch.int8)
        return self.run(x, weight, self.bias)


def of(model: nn.Module | Callable[..., Any], *example: Tensor) -> Workload:
    class Whole(nn.Module):
        def forward(self, *inputs: Tensor) -> Any:
            return model(*inputs)

    return Workload.from_torch(model.eval() if isinstance(model, nn.Module) else Whole(), example)


X, IMAGE = randn(4, 32, seed=0), randn(2, 4, 9, 9, seed=1)
LAST = IMAGE.contiguous(memory_format=torch.channels_last)
LAYERS: dict[str, tuple[Layer, Tensor, int, int]] = {
    # with the calls that quantise, and that dequantise, beside the layer
    "linear": (Layer(lambda x, w, b: F.linear(fake(x), w), 16, 32), X, 1, 0),
    "linear bias": (Layer(lambda x, w, b: F.linear(fake(x), w, b), 16, 32), torch.randn(2, 3, 32), 1, 0),
    "linear relu": (Layer(lambda x, w, b: F.linear(fake(x, SEVEN_BITS), w).relu(), 16, 32), X, 1, 0),
    "linear bias relu": (Layer(lambda x, w, b: F.linear(fake(x), w, b).relu(), 16, 32), X, 1, 0),
    "linear sum": (Layer(lambda x, w, b: F.linear(fake(x), w, b) + x, 32, 32), X, 1, 0),
    "linear quantised": (Layer(lambda x, w, b: fake(F.linear(fake(x), w), WIDE), 16, 32), X, 1, 1),
    "linear sum quantised": (Layer(lambda x, w, b: fake(F.linear(fake(x), w, b) + fake(x), WIDE), 32, 32), X, 1, 1),
    "linear quantised in seven bits": (Layer(lambda x, w, b: fake(F.linear(fake(x), w), SEVEN_BITS), 16, 32), X, 2, 1),
    "linear sum with a row": (Layer(lambda x, w, b: F.linear(fake(x), w, b) + x[:1], 32, 32), X, 1, 0),
    "linear dynamic": (Layer(lambda x, w, b: F.linear(dynamic(x), w, b).relu() + 1, 16, 32), X, 1, 0),
    "conv": (Layer(lambda x, w, b: F.conv2d(fake(x), w, padding=1), 8, 4, 3, 3), IMAGE, 1, 0),
    "conv bias": (Layer(lambda x, w, b: F.conv2d(fake(x), w, b, 2, (0, 1)), 8, 4, 3, 3), IMAGE, 1, 0),
    "conv relu": (Layer(lambda x, w, b: F.conv2d(fake(x), w, groups=4).relu(), 8, 1, 3, 3), IMAGE, 1, 0),
    "conv bias relu": (Layer(lambda x, w, b: F.conv2d(fake(x), w, b, dilation=2).relu(), 8, 4, 3, 3), IMAGE, 1, 0),
    "conv sum relu quantised": (
        Layer(lambda x, w, b: fake((x + F.conv2d(fake(x), w, b, padding=1)).relu(), WIDE), 4, 4, 3, 3), IMAGE, 2, 1,
    ),
    "conv dynamic": (Layer(lambda x, w, b: F.conv2d(dynamic(x), w, b), 8, 4, 3, 3), IMAGE, 1, 0),
    "linear gelu quantised": (Layer(lambda x, w, b: fake(F.gelu(F.linear(fake(x), w, b)), WIDE), 16, 32), X, 1, 1),
    "linear sum silu": (Layer(lambda x, w, b: F.silu(F.linear(fake(x), w, b) + x), 32, 32), X, 1, 0),
    "linear of a vector": (Layer(lambda x, w, b: fake(F.linear(fake(x), w, b).relu(), WIDE), 16, 32), X[0], 1, 1),
    "conv relu6 quantised": (
        Layer(lambda x, w, b: fake(F.relu6(F.conv2d(fake(x), w, b, groups=4)), WIDE), 8, 1, 3, 3), LAST, 1, 1,
    ),
    "conv hardswish quantised": (Layer(lambda x, w, b: fake(F.hardswish(F.conv2d(fake(x), w)), WIDE), 8, 4, 1, 1),
                                 IMAGE, 1, 1),
    "conv hardsigmoid": (Layer(lambda x, w, b: F.hardsigmoid(F.conv2d(fake(x), w, b)), 8, 4, 1, 1), LAST, 1, 0),
    "conv dynamic relu6": (Layer(lambda x, w, b: F.relu6(F.conv2d(dynamic(x), w, b)), 8, 4, 3, 3), IMAGE, 1, 0),
    "linear zeros": (Layer(lambda x, w, b: F.linear(fake(x), w), 16, 32, zero=3), X, 1, 0),
}  # fmt: skip


@pytest.mark.sweep(3)
@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_is_one_quantised_call(name: str, tmp_path: Path) -> None:
    model, x, quantise, dequantise = LAYERS[name]
    wl = of(model, x)
    new = QUANTISED(wl, iterative=True)
    counts = Counter({each.replace("_dynamic", "").replace(".tensor", ""): n for each, n in new.op_counts().items()})
    assert counts[CALL[name.partition(" ")[0]]] == 1
    assert counts["gsl::quantised"] == quantise
    assert counts["gsl::dequantised"] == dequantise
    assert not {"nn.dense", "nn.conv2d", "nn.bias_add", *(op for op, _ in ACTIVATIONS.values())} & set(counts)
    wl.compare(new).check()
    torch.export.save(new.exported, tmp_path / "program.pt2")
    again = torch.export.load(tmp_path / "program.pt2").module()
    with torch.no_grad():
        expected = model(x)
        for run in (again, new.build()):
            for _ in range(3):  # the second call packs the weight
                torch.testing.assert_close(run(x), expected, rtol=1e-5, atol=1e-5)


def test_weights_are_packed_where_there_is_a_kernel() -> None:
    gsl.kernels.clear()
    model, x, *_ = LAYERS["linear bias relu"]
    run = QUANTISED(of(model, x)).exported.module()
    with torch.no_grad():
        for _ in range(3):
            run(x)
    packed = [entry for entry in entries() if entry]
    assert len(packed) == (torch._C._has_mkldnn and torch.cpu._is_vnni_supported())


class Network(nn.Module):
    """A network as ``torchao`` quantises it (0.18, with the quantiser for x86): what two layers read is dequantised for
    each of them, and results are quantised where a layer reads them."""

    def __init__(self) -> None:
        super().__init__()
        self.first = Layer(lambda x, w, b: F.conv2d(x, w, b, padding=1).relu(), 8, 4, 3, 3)
        self.second = Layer(lambda x, w, b: F.conv2d(x, w, b, padding=1), 8, 8, 3, 3)
        self.third = Layer(lambda x, w, b: F.linear(x, w, b).relu(), 16, 8)
        self.last = Layer(lambda x, w, b: F.linear(x, w, b), 16, 16)

    def forward(self, x: Tensor) -> Any:
        small = quantized.quantize_per_tensor(self.first(fake(x)), *WIDE)
        inner, outer = quantized.dequantize_per_tensor(small, *WIDE), quantized.dequantize_per_tensor(small, *WIDE)
        pooled = F.max_pool2d((self.second(inner) + outer).relu(), 2).mean((2, 3))
        return self.last(fake(self.third(fake(pooled, WIDE)), WIDE))


def test_a_network_of_torchao() -> None:
    wl = of(Network(), IMAGE)
    new = QUANTISED(wl, iterative=True)
    assert new.op_counts() == {
        "gsl::quantised_conv2d": 2, "gsl::quantised_linear": 2, "nn.max_pool2d": 1, "mean": 1,
        "gsl::quantised": 2, "gsl::dequantised": 1,
    }  # fmt: skip
    assert [node.attrs["out_scale"] for node in new.graph.nodes if node.op in CALL.values()] == [0.2, None, 0.2, None]
    wl.compare(new).check()


def test_a_weight_that_is_quantised_in_the_graph_is_folded() -> None:
    scheme = (0, -127, 127, torch.int8)

    class Own(Layer):
        def forward(self, x: Tensor) -> Any:
            small = quantized.quantize_per_channel(self.weight, self.scales, self.zeros, *scheme)
            weight = quantized.dequantize_per_channel(small, self.scales, self.zeros, *scheme)
            return self.run(x, weight, self.bias)

    model = Own(lambda x, w, b: F.linear(fake(x), w, b), 16, 32)
    model.weight = torch.randn(16, 32)
    wl = of(model, X)
    new = QUANTISED(wl, iterative=True)
    assert new.op_counts() == {"gsl::quantised": 1, "gsl::quantised_linear": 1}
    assert {tensor.dtype for tensor in new.params.values() if tensor.dim() == 2} == {torch.int8}
    wl.compare(new).check()


def test_equal_dynamic_data_are_quantised_once() -> None:
    def branches(x: Tensor, w: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        scale, zero = quantized.choose_qparams.tensor(x, 0, 255, 1e-6, torch.uint8)
        small = [quantized.quantize_per_tensor.tensor(x, scale, zero, 0, 255, torch.uint8) for _ in range(2)]
        data = [quantized.dequantize_per_tensor.tensor(each, scale, zero, 0, 255, torch.uint8) for each in small]
        return F.linear(data[0], w, b), data[1]

    wl = of(Layer(branches, 16, 32), X)
    new = QUANTISED(wl, iterative=True)
    assert new.op_counts()["gsl::quantised_dynamic"] == 1
    assert new.op_counts()["gsl::quantised_linear_dynamic"] == 1
    wl.compare(new).check()


def test_optimize_tries_the_rules_on_quantised_programs_only() -> None:
    model, x, *_ = LAYERS["linear bias relu"]
    for program, known in ((of(model, x), True), (of(torch.nn.Linear(32, 16), x), False)):
        new, report = gsl.optimize(program, budget=1, threads=1)
        assert ("quantised-dense" in str(report)) == known
        program.compare(new).check()


def test_optimize_takes_a_step_of_a_quantised_layer_for_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gsl.cost.optimization.is_faster", lambda new, old: True)
    x = pat.Wildcard()
    near_zero = Subst(op.Sin(x), x, name="sin near zero")  # it stands for a rounding
    wl = of(Layer(lambda x, w, _: (F.linear(fake(x), w) * 0.03).sin(), 16, 32), X)
    with_layers = (QUANTISED, RuleSet([near_zero]))
    for rules, tolerance, taken in ((with_layers, None, True), (with_layers, 1e-5, False), (near_zero, None, False)):
        report = gsl.optimize(
            wl, rules=rules, cost=lambda node: 9.0 if node.op == "sin" else 1.0, tolerance=tolerance
        ).report
        assert report.taken == taken, str(report)
        assert 1e-4 < report.error < 2e-2, str(report)


def test_a_result_with_other_uses_is_not_quantised_in_the_call() -> None:
    def both(x: Tensor, w: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        y = F.linear(fake(x), w, b)
        return y, fake(y, WIDE)

    wl = of(Layer(both, 16, 32), X)
    new = QUANTISED(wl, iterative=True)
    assert new.op_counts()["gsl::quantised_linear"] == 1
    assert new.op_counts()["gsl::quantised"] == 2
    wl.compare(new).check()


SIGNED = (0.03, -7, -128, 127, torch.int8)


@pytest.mark.parametrize("scheme", [BYTE, SEVEN_BITS, WIDE, SIGNED], ids=["byte", "seven bits", "wide", "signed"])
def test_kernels_compute_what_the_functions_do(scheme: Any) -> None:
    scale, zero, *rest = scheme
    tensors = (torch.tensor([scale], dtype=torch.float64), torch.tensor([zero]))
    between_two = (torch.arange(-300, 300) + 0.5) * scale
    for x in (LAST * 9, between_two, torch.tensor([torch.inf, -torch.inf, 1e30, -0.0]), LAST[:, ::2], X[0, 0], X[:0]):
        small = quantized.quantize_per_tensor(x, *scheme)
        back = quantized.dequantize_per_tensor(small, *scheme)
        found = [(torch.ops.gsl.quantised(x, *scheme), torch.ops.gsl.quantised_dynamic(x, *tensors, *rest)),
                 (torch.ops.gsl.dequantised(small, *scheme), torch.ops.gsl.dequantised_dynamic(small, *tensors, *rest))]
        for expected, results in zip((small, back), found, strict=True):
            for result in results:
                assert torch.equal(result, expected)
                assert (result.dtype, result.stride()) == (expected.dtype, expected.stride())


@pytest.mark.long
@pytest.mark.slow
def test_numbers_are_those_of_torchs_lowering() -> None:
    """Inductor makes quantised calls of the same graph where its constants are frozen."""
    import torch._inductor.config as config

    wl = of(Network(), IMAGE)
    run = QUANTISED(wl, iterative=True).exported.module()
    with torch.no_grad(), config.patch(freezing=True):
        theirs = torch.compile(wl.exported.module())(IMAGE)
        for _ in range(2):
            torch.testing.assert_close(run(IMAGE), theirs, rtol=1e-5, atol=1e-5)


ONCE: dict[str, tuple[Callable[[Tensor], Any], int]] = {
    "again": (lambda x: fake(fake(x)), 2),
    "again in seven bits": (lambda x: fake(fake(x, SEVEN_BITS), SEVEN_BITS), 2),
    "again by another scheme": (lambda x: fake(fake(x), SEVEN_BITS), 4),
    "back by another scheme": (lambda x: fake(fake(x, BYTE, (0.04, *BYTE[1:])), BYTE), 4),
    "twice": (lambda x: (fake(x) + 1, fake(x) * 2), 4),
    "three times": (lambda x: (fake(x).relu(), fake(x).sin(), fake(x).cos()), 5),
    "twice by two schemes": (lambda x: (fake(x), fake(x, SEVEN_BITS)), 4),
}


@pytest.mark.parametrize("name", ONCE)
def test_what_is_quantised_twice(name: str) -> None:
    function, count = ONCE[name]
    wl = of(function, X)
    new = QUANTISED(wl, iterative=True)
    assert sum(new.op_counts().values()) == count
    wl.compare(new, rtol=0, atol=0).check()


def test_all_numbers_of_the_dtype_or_none() -> None:
    def again(x: Tensor, scheme: Any) -> Tensor:
        found: Tensor = quantized.quantize_per_tensor(quantized.dequantize_per_tensor(x, *scheme), *scheme)
        return found

    every = torch.arange(256).to(torch.uint8)
    for scheme, count in ((BYTE, 0), (SEVEN_BITS, 2)):
        new = QUANTISED(of(lambda x, scheme=scheme: again(x, scheme), every), iterative=True)
        assert sum(new.op_counts().values()) == count
        assert torch.equal(new(every), again(every, scheme))


MOVES: dict[str, Callable[[Tensor], Tensor]] = {
    "reshape": lambda x: x.flatten(1),
    "transpose": lambda x: x.transpose(1, 3),
    "concatenate": lambda x: torch.cat([x, fake(F.relu(x)), fake(x.flip(1))], 2),
}


@pytest.mark.parametrize("name", MOVES)
def test_elements_that_only_move_do_so_quantised(name: str) -> None:
    wl = of(lambda x: fake(MOVES[name](fake(x))), IMAGE)
    new = QUANTISED(wl, iterative=True)
    types = {node.op: node.dtype for node in new.graph.nodes}
    assert types[name] == "uint8"
    assert new.op_counts()["gsl::dequantised"] == (2 if name == "concatenate" else 1)
    wl.compare(new, rtol=0, atol=0).check()


def test_elements_that_move_are_quantised_anew_by_another_scheme() -> None:
    for scheme, other in ((BYTE, WIDE), (SEVEN_BITS, SEVEN_BITS)):
        moved = of(lambda x, scheme=scheme, other=other: fake(fake(x, scheme).flatten(1), other), IMAGE)
        new = QUANTISED(moved, iterative=True)
        assert new.op_counts() == {"gsl::quantised": 2, "gsl::dequantised": 2, "reshape": 1}


def test_a_weight_that_is_reshaped_stays() -> None:
    def by_columns(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        return F.linear(fake(x), w.reshape(16, 32))

    wl = of(Layer(by_columns, 32, 16), X)
    assert "gsl::quantised_linear" not in QUANTISED(wl, iterative=True).op_counts()


VERIFIED = [
    *(rule for rule in QUANTISED if not any(each in rule.name for each in ("conv", "dynamic-dense", "onnx"))),
    *(QUANTISED[f"quantised-{name}"] for name in ("conv", "conv-bias-quantised", "dynamic-dense", "dynamic-conv-sum")),
]
"""Of rules that differ by their layer only, a few; those for calls of ONNX are not verified."""


@pytest.mark.sweep(24)
@pytest.mark.parametrize("rule", VERIFIED, ids=lambda rule: rule.name)
def test_a_rule_holds(rule: Subst) -> None:
    assert isinstance(rule.verify(max_examples=20), Supported)


def without_the_zero() -> Subst:
    x, w = pat.Wildcard(dtype="uint8"), pat.Param(dtype="int8")
    scales, zeros = pat.Param(dtype="float32"), pat.Param()
    data = q.dequantise(x)
    product = op.Dense(data, q.dequantise_channels(w, scales, zeros, axis=0), out_dtype="")
    return Subst(product, q.quantised_linear(x, w, scales, zeros, scale=data.scale, zero_point=0))


def a_second_activation() -> Subst:
    operands = [pat.Wildcard() for _ in range(4)]
    call = q.quantised_linear(*operands, activation="relu", out_scale=None)
    f = activated(call)
    return Subst(f, by_activation(f, lambda name: call.like(*operands, activation=name)))


@pytest.mark.parametrize("wrong", [without_the_zero, a_second_activation])
def test_a_wrong_rule_is_refuted(wrong: Callable[[], Subst]) -> None:
    assert isinstance(verify(wrong(), max_examples=60, suggest=False), Refuted)
