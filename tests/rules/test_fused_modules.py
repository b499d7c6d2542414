"""What module fusion makes: whole blocks, modules that load, copy and pickle, and their quantisation."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.ao.quantization.quantize_fx
import torch.nn.functional as F
from torch import nn
from torch.ao.nn.quantized import FloatFunctional
from torch.ao.quantization import DeQuantStub, QuantStub

from gsl import Workload, modules
from gsl.rules import MODULE_FUSION
from tests.rules.cases_modules import (
    IMAGE,
    LAYERS,
    RESULT,
    Inverted,
    Residual,
    calls,
    equal,
    fused,
    layer,
    net,
    norm,
    random,
    traced,
    two,
)


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


# ---------------------------------------------------------------- whole blocks


@pytest.mark.parametrize("plus", [None, FloatFunctional()], ids=["+=", "functional"])
def test_residual_blocks(plus: nn.Module | None) -> None:
    blocks = nn.Sequential(Residual(4, 4, 1, plus), Residual(4, 6, 2, plus), Residual(6, 6, 1, plus)).eval()
    result = fused(blocks, random(1, 4, 8, 8))
    first, changed = ["ConvReLU2d", "ConvAddReLU2d"], ["Conv2d", "ConvReLU2d", "ConvAddReLU2d"]
    assert sorted(calls(result)) == sorted([*first, *changed, *first])
    assert not any(isinstance(part, (nn.BatchNorm2d, nn.ReLU, nn.Identity)) for part in result.modules())


def test_inverted_residual_blocks() -> None:
    before = traced(nn.Sequential(Inverted(4, 2), Inverted(4, 3)).eval(), random(1, 4, 6, 6))
    after = MODULE_FUSION(before)
    assert calls(after.mod) == 2 * ["ConvReLU62d", "ConvReLU62d", "ConvAdd2d"]
    before.compare(after).check()
    # It is the weights that make them equal.
    nn.init.ones_(after.mod.get_submodule("ConvAdd2d").bias)
    assert not before.compare(after).passed


def test_an_addition_of_two_convolutions_takes_one_of_them() -> None:
    module = net(lambda net, x, y: net.relu(net.norm(net.a(x)) + net.b(y)), **two())
    assert calls(fused(module, random(*IMAGE), random(*IMAGE))) == ["Conv2d", "ConvAddReLU2d"]


def test_weights_that_two_layers_share_stay_those_of_the_other() -> None:
    layers = two()
    layers["b"].weight = layers["a"].weight
    module = net(lambda net, x: (net.relu(net.norm(net.a(x))), net.b(x)), **layers)
    kept = layers["a"].weight.detach().clone()
    result = fused(module, random(*IMAGE))
    assert calls(result) == ["ConvReLU2d", "Conv2d"]
    torch.testing.assert_close(result.get_submodule("b").weight, kept, rtol=0, atol=0)
    assert not torch.equal(result.get_submodule("ConvReLU2d").weight, kept)
    # Nor are the module's own weights others than before.
    torch.testing.assert_close(module.a.weight, kept, rtol=0, atol=0)


def test_one_layer_that_is_called_twice_is_fused_twice() -> None:
    module = net(lambda net, x: (net.relu(net.norm(net.a(x))), net.relu6(net.a(-x))), **two())
    result = fused(module, random(*IMAGE))
    assert calls(result) == ["ConvReLU2d", "neg", "ConvReLU62d"]
    # What is not folded is still the same parameter.
    assert result.get_submodule("ConvReLU62d").weight is module.a.weight


# ---------------------------------------------------------------- what becomes of the result


def block() -> tuple[nn.Module, torch.Tensor]:
    return nn.Sequential(Residual(4, 6, 2), Inverted(6, 2)).eval(), random(1, 4, 8, 8)


def test_the_state_dict_is_loadable() -> None:
    module, x = block()
    result = fused(module, x)
    other = copy.deepcopy(result)
    for parameter in other.parameters():
        nn.init.zeros_(parameter)
    assert not torch.equal(other(x), result(x))
    other.load_state_dict(result.state_dict(), strict=True)
    torch.testing.assert_close(other(x), result(x), rtol=0, atol=0)


def test_the_result_can_be_pickled() -> None:
    module, x = block()
    result = fused(module, x)
    torch.testing.assert_close(pickle.loads(pickle.dumps(result))(x), result(x), rtol=0, atol=0)
    file = io.BytesIO()
    torch.save(result, file)
    file.seek(0)
    torch.testing.assert_close(torch.load(file, weights_only=False)(x), result(x), rtol=0, atol=0)


@pytest.mark.parametrize("kind", list(modules.FUSION_OF), ids=lambda kind: kind.__name__)
def test_each_module_computes_what_it_says(kind: Any) -> None:
    fusion = modules.FUSION_OF[kind]
    made = kind(*((4, 6) if issubclass(kind, nn.Linear) else (4, 6, 2)))
    x = random(*next(shape for layer, _, shape, _ in LAYERS.values() if issubclass(kind, layer)))  # type: ignore[arg-type]
    plain = fusion.base.forward(made, x)
    y = random(*plain.shape)
    expected = plain + y if fusion.adds else plain
    expected = {"relu": F.relu, "relu6": F.relu6, None: lambda x: x}[fusion.activation](expected)
    torch.testing.assert_close(made(x, y) if fusion.adds else made(x), expected, rtol=0, atol=0)
    again = pickle.loads(pickle.dumps(made))
    assert type(again) is kind
    assert list(again.state_dict()) == ["weight", "bias"]


def test_fused_modules_are_read_as_what_they_compute() -> None:
    module, x = block()
    result = fused(module, x)
    loaded = Workload.from_fx(result, (x,))
    assert {str(node.op) for node in loaded.graph.nodes} == {
        "input", "param", "nn.conv2d", "nn.bias_add", "add", "nn.relu", "nn.relu6",
    }  # fmt: skip
    # What is one module already is not made one again.
    again = MODULE_FUSION(loaded, iterative=True)
    assert not again.trace.firings
    assert {refused.reason.split(" ", 1)[1] for refused in again.trace.refused} == {
        "is one module already", "is one module with another layer already",
    }  # fmt: skip


def test_what_is_fused_in_part_is_fused_further() -> None:
    module = net(
        lambda net, x, y: (net.relu(net.sum(x, y)), net.active(x) + y),
        sum=modules.ConvAdd2d(4, 6, 2), active=modules.ConvReLU2d(4, 6, 2),
    )  # fmt: skip
    assert calls(fused(module, random(*IMAGE), random(*RESULT))) == ["ConvAddReLU2d", "ConvReLU2d", "add"]


def test_a_fused_module_that_does_something_else_is_not_read() -> None:
    class Louder(modules.ConvReLU2d):
        pass

    hooked = modules.ConvReLU2d(4, 6, 2)
    hooked.register_forward_hook(lambda module, operands, result: 2 * result)
    for made in (Louder(4, 6, 2), hooked, modules.ConvReLU2d(4, 6, 2, padding=1, padding_mode="circular")):
        loaded = traced(net(lambda net, x: net.made(x), made=made), random(*IMAGE))
        assert [node.op for node in loaded.graph.nodes if node.opaque] == [type(made)]


def test_nothing_is_drawn_at_random() -> None:
    module, x = block()
    before = traced(module, x)
    state = torch.get_rng_state()
    MODULE_FUSION(before)
    assert torch.equal(torch.get_rng_state(), state)


# ---------------------------------------------------------------- quantisation


class Stubbed(nn.Module):
    """A layer and what follows it between the stubs of a quantised part; both inputs are quantised."""

    def __init__(self) -> None:
        super().__init__()
        self.quant, self.other, self.dequant = QuantStub(), QuantStub(), DeQuantStub()
        self.conv, self.norm, self.relu = layer("conv2d"), norm("conv2d"), nn.ReLU()
        self.plus = FloatFunctional()

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        result = self.norm(self.conv(self.quant(x)))
        return self.dequant(self.relu(self.plus.add(result, self.other(y))))


STUBBED = ["QuantStub", "QuantStub", "ConvAddReLU2d", "DeQuantStub"]


def test_stubs_stay_in_place() -> None:
    result = fused(Stubbed().eval(), random(*IMAGE), random(*RESULT))
    assert calls(result) == STUBBED
    assert [str(node.target) for node in result.graph.nodes if node.op == "call_module"] == [
        "quant", "other", "ConvAddReLU2d", "dequant",
    ]  # fmt: skip


def test_what_an_observer_sees_stays_in_order() -> None:
    module, seen = Stubbed().eval(), []
    module.other.register_forward_hook(lambda module, operands, result: seen.append(result))
    before = traced(module, *(inputs := (random(*IMAGE), random(*RESULT))))
    after = MODULE_FUSION(before)
    assert calls(after.mod) == ["QuantStub", "Conv2d", "QuantStub", "add", "Identity", "ReLU", "DeQuantStub"]
    assert any("stands between the matched nodes" in str(refused) for refused in after.trace.refused)
    equal(after.mod(*inputs), module(*inputs))
    assert len(seen) >= 2


@pytest.mark.filterwarnings("ignore")
def test_a_plain_convolution_is_quantised_module_by_module() -> None:
    class Plain(Stubbed):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.dequant(self.norm(self.conv(self.quant(x))))

    x = random(*IMAGE)
    result = fused(Plain().eval(), x)
    expected = result(x)
    result.qconfig = torch.ao.quantization.default_qconfig
    torch.ao.quantization.prepare(result, inplace=True)
    assert hasattr(result.get_submodule("Conv2d"), "activation_post_process")
    result(x)
    torch.ao.quantization.convert(result, inplace=True)
    assert type(result.get_submodule("Conv2d")) is torch.ao.nn.quantized.Conv2d
    assert (result(x) - expected).abs().max() < 0.05 * expected.abs().max()


QUANTISED: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], list[str]]] = {
    "conv2d": (
        lambda: net(lambda net, x: net.relu(net.norm(net.a(x))), **two()), IMAGE,
        ["quantize_per_tensor", "conv2d_relu", "dequantize"]),
    "linear": (
        lambda: net(lambda net, x: net.relu(net.a(x)), a=nn.Linear(4, 6)), (2, 4),
        ["quantize_per_tensor", "linear_relu", "dequantize"]),
    "residual": (
        lambda: Residual(4, 4, 1).eval(), IMAGE,
        ["quantize_per_tensor", "conv2d_relu", "conv2d", "add_relu", "dequantize"]),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("label", QUANTISED)
def test_fused_modules_are_quantised_as_graphs(label: str) -> None:
    make, shape, expected = QUANTISED[label]
    x = random(*shape)
    result = fused(make(), x)
    mapping = torch.ao.quantization.get_default_qconfig_mapping("fbgemm")
    prepared = torch.ao.quantization.quantize_fx.prepare_fx(result, mapping, (x,))
    prepared(x)
    quantised = torch.ao.quantization.quantize_fx.convert_fx(prepared)
    assert calls(quantised) == expected
    assert (quantised(x) - result(x)).abs().max() < 0.1 * result(x).abs().max()
