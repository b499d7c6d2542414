"""Module fusion: every entry of its table on traced modules, and what must stay as it is."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import fx, nn

from gsl import Workload, modules
from gsl.rules import MODULE_FUSION
from tests.rules.cases_modules import (
    ACTIVATIONS,
    ADDITIONS,
    IMAGE,
    LAYERS,
    NORMS,
    RESULT,
    SIDES,
    Function,
    Net,
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
from tests.rules.test_rules_fx import settled


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


# ---------------------------------------------------------------- the table

Case = tuple[str, str, str | None, str | None, bool, str | None]


def cases() -> Iterator[Case]:
    """Every layer with everything that may follow it, in every spelling, and with the sides of additions changed."""
    for kind, followers in itertools.product(LAYERS, ("100", "001", "010", "101", "110", "011", "111")):
        norms, additions, activations = (present == "1" for present in followers)
        yield from itertools.product(
            [kind],
            ["-".join(itertools.compress(("bn", "add", "relu"), (norms, additions, activations)))],
            NORMS if norms else [None],
            ADDITIONS if additions else [None],
            SIDES if additions else [False],
            ACTIVATIONS if activations else [None],
        )


def model(kind: str, which: str | None, addition: str | None, swapped: bool, activation: str | None) -> Net:
    """The module of a case."""

    def first(net: Any, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = net.layer(x)
        return result if which is None else net.norm(result)

    def last(net: Any, result: torch.Tensor) -> torch.Tensor:
        return result if activation is None else ACTIVATIONS[activation][1](net, result)

    def alone(net: Any, x: torch.Tensor) -> torch.Tensor:
        return last(net, first(net, x))

    def added(net: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        result = first(net, x)
        operands = (y, result) if swapped else (result, y)
        return last(net, ADDITIONS[str(addition)](net, *operands))

    layers = {} if which is None else {"norm": norm(kind, which)}
    # Half of the cases have a layer without a bias.
    function = alone if addition is None else added
    return net(function, layer=layer(kind, bias=which is None or not swapped), **layers)


def case_id(case: Case) -> str:
    return " ".join([*case[:2], *(str(part) for part in case[2:] if part)])


@pytest.mark.sweep(8)
@pytest.mark.parametrize("case", cases(), ids=case_id)
def test_the_table(case: Case) -> None:
    kind, followers, which, addition, swapped, activation = case
    module = model(kind, which, addition, swapped, activation)
    x = random(*LAYERS[kind][2])
    inputs = (x,) if addition is None else (x, random(*module.layer(x).shape))
    before = traced(module, *inputs)
    after = MODULE_FUSION(before)
    assert [firing.rule for firing in after.trace.firings] == [f"{kind}-{followers}"]

    start, end = LAYERS[kind][3]
    middle = ("Add" if addition else "") + (ACTIVATIONS[activation][0] if activation else "")
    name = f"{start}{middle}{end}"
    result: Any = after.mod
    # Nothing of what was absorbed is left, neither in forward nor as a submodule.
    assert calls(result) == [name]
    assert [(path, type(child).__name__) for path, child in result.named_modules() if path] == [(name, name)]
    assert set(result.state_dict()) == {f"{name}.weight", f"{name}.bias"}
    assert type(result.get_submodule(name)) in modules.FUSION_OF
    equal(result(*inputs), module(*inputs))
    assert not result.get_submodule(name).training


def test_the_table_is_whole() -> None:
    assert len(list(cases())) == 500
    assert {rule.name for rule in MODULE_FUSION} == {f"{kind}-{followers}" for kind, followers, *_ in cases()}
    assert len(modules.FUSIONS) == 4 * 2 * 3
    assert all(kind.__name__ in vars(modules) or kind.__module__.startswith("torch.") for kind in modules.FUSION_OF)


OPTIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "grouped": ("conv2d", {"groups": 2}),
    "depthwise": ("conv2d", {"groups": 4, "out_channels": 8}),
    "dilated": ("conv2d", {"dilation": 2}),
    "strided": ("conv2d", {"stride": (2, 1)}),
    "padded": ("conv2d", {"padding": (1, 2)}),
    "same": ("conv2d", {"padding": "same"}),
    "valid": ("conv2d", {"padding": "valid"}),
    "transposed grouped": ("conv-transpose2d", {"groups": 2}),
    "transposed strided": ("conv-transpose2d", {"stride": 3, "output_padding": 1, "padding": 1, "dilation": 2}),
    "cubes": ("conv3d", {"stride": (1, 2, 1), "padding": (1, 0, 1), "groups": 2}),
}


@pytest.mark.filterwarnings("ignore:Using padding='same'")
@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("bias", [False, True])
def test_a_layer_keeps_its_options(option: str, bias: bool) -> None:
    kind, options = OPTIONS[option]
    out = options.get("out_channels", 6)
    shape = LAYERS[kind][2]
    conv = LAYERS[kind][0](4, **{"out_channels": out, "kernel_size": 2, "bias": bias, **options})
    module = net(
        lambda net, x: net.relu6(net.norm(net.conv(x))), conv=conv, norm=settled(LAYERS[kind][1](out))
    )
    result = fused(module, random(*shape))
    (made,) = result.children()
    assert type(made).__name__ == "{}ReLU6{}".format(*LAYERS[kind][3])
    names = ["in_channels", "out_channels", "kernel_size", "stride", "dilation", "groups", "output_padding"]
    assert [getattr(made, name) for name in names] == [getattr(conv, name) for name in names]
    # Without a batch norm, a layer without a bias has none afterwards.
    plain = fused(net(lambda net, x: net.relu(net.conv(x)), conv=conv), random(*shape))
    assert {key.rpartition(".")[2] for key in plain.state_dict()} == ({"weight", "bias"} if bias else {"weight"})


def test_functions_are_fused_like_modules() -> None:
    class Functions(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.kernel = nn.Parameter(torch.randn(6, 4, 3, 3))
            self.register_buffer("shift", torch.randn(6))

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return F.conv2d(x, self.kernel, self.shift, padding=1).add(y).relu_()

    result = fused(Functions().eval(), random(2, 4, 5, 5), random(2, 6, 5, 5))
    assert calls(result) == ["ConvAddReLU2d"]
    assert set(result.state_dict()) == {"ConvAddReLU2d.weight", "ConvAddReLU2d.bias"}


def test_modules_that_do_nothing_are_in_nobodys_way() -> None:
    module = net(
        lambda net, x: net.last(net.relu(net.idle(net.layer(x)))), layer=layer("conv2d"), idle=nn.Identity(),
        last=nn.Identity(),
    )  # fmt: skip
    assert calls(fused(module, random(2, 4, 5, 5))) == ["ConvReLU2d"]


def test_one_functional_module_may_activate_too() -> None:
    module = net(lambda net, x, y: net.plus.add_relu(net.layer(x), y), layer=layer("conv2d"))
    assert calls(fused(module, random(2, 4, 5, 5), random(2, 6, 4, 4))) == ["ConvAddReLU2d"]


def test_double_precision_is_kept() -> None:
    module = net(lambda net, x: net.norm(net.layer(x)), layer=layer("conv2d"), norm=norm("conv2d")).double()
    x = random(2, 4, 5, 5).double()
    torch.testing.assert_close(fused(module, x)(x), module(x), rtol=1e-12, atol=1e-12)


# ---------------------------------------------------------------- what stays as it is


STAYS: dict[str, tuple[Function, dict[str, nn.Module], tuple[tuple[int, ...], ...], list[str], str]] = {
    "a convolution that is used elsewhere": (
        lambda net, x: (net.relu(h := net.a(x)), h), two(), (IMAGE,), ["Conv2d", "ReLU"], ""),
    "a batch norm that is used elsewhere": (
        lambda net, x: (net.relu(h := net.norm(net.a(x))), h), two(), (IMAGE,), ["Conv2d", "ReLU"], ""),
    "a convolution before the batch norm that is used elsewhere": (
        lambda net, x: (net.norm(h := net.a(x)), h), two(), (IMAGE,), ["Conv2d", "BatchNorm2d"], ""),
    "a copy that is used elsewhere": (
        lambda net, x: (net.relu(h := net.idle(net.a(x))), h), {**two(), "idle": nn.Identity()}, (IMAGE,),
        ["Conv2d", "Identity", "ReLU"], ""),
    "an addition that broadcasts the result": (
        lambda net, x, y: net.a(x) + y, two(), (IMAGE, (3, 2, 6, 4, 4)), ["Conv2d", "add"], "expected equal types"),
    "an addition that broadcasts the other operand": (
        lambda net, x, y: net.a(x) + y, two(), (IMAGE, (6, 1, 1)), ["Conv2d", "add"], "expected equal types"),
    "an addition of a number": (
        lambda net, x: net.a(x) + 1.0, two(), (IMAGE,), ["Conv2d", "add"], "expected equal types"),
    "an addition of another dtype": (
        lambda net, x, y: net.a(x) + y.double(), two(), (IMAGE, RESULT), ["Conv2d", "double", "add"],
        "expected equal types"),
    "an addition of a multiple": (
        lambda net, x, y: torch.add(y, net.a(x), alpha=2), two(), (IMAGE, RESULT), ["Conv2d", "add"], ""),
    "an addition of the result to itself": (
        lambda net, x: (lambda h: h + h)(net.a(x)), two(), (IMAGE,), ["Conv2d", "add"], "to itself"),
    "a subtraction": (lambda net, x, y: net.a(x) - y, two(), (IMAGE, RESULT), ["Conv2d", "sub"], ""),
    "padding that is no zeros": (
        lambda net, x: net.relu(net.a(x)), two(padding=1, padding_mode="reflect"), (IMAGE,), ["Conv2d", "ReLU"], ""),
    "a batch norm without running statistics": (
        lambda net, x: net.free(net.a(x)), {**two(), "free": nn.BatchNorm2d(6, track_running_stats=False)}, (IMAGE,),
        ["Conv2d", "BatchNorm2d"], "has no running statistics"),
    "a batch norm of another axis than the features": (
        lambda net, x: net.tokens(net.a(x)), {**two("linear"), "tokens": settled(nn.BatchNorm1d(3))}, ((2, 3, 4),),
        ["Linear", "BatchNorm1d"], "normalises another axis"),
    "a batch norm of halves": (
        lambda net, x: net.norm(net.a(x)), {name: part.to(torch.bfloat16) for name, part in two().items()},
        (IMAGE,), ["Conv2d", "BatchNorm2d"], "expected all float32 or all float64"),
    "another activation": (
        lambda net, x: net.other(net.a(x)), {**two(), "other": nn.SiLU()}, (IMAGE,), ["Conv2d", "SiLU"], ""),
    "an activation of an input": (lambda net, x: net.a(net.relu(x)), two(), (IMAGE,), ["ReLU", "Conv2d"], ""),
    "a layer with a hook": (
        lambda net, x: net.relu(net.hooked(x)), {"hooked": layer("conv2d")}, (IMAGE,), ["Conv2d", "ReLU"], ""),
    "a weight that is computed": (
        lambda net, x: net.relu(F.conv2d(x, net.a.weight * 2)), two(), (IMAGE,), ["mul", "conv2d", "ReLU"], ""),
}  # fmt: skip
STAYS["a layer with a hook"][1]["hooked"].register_forward_hook(lambda module, operands, result: -result)


@pytest.mark.parametrize("label", STAYS)
def test_what_stays(label: str) -> None:
    function, layers, shapes, expected, reason = STAYS[label]
    module = net(function, **layers)
    dtype = next(iter(module.parameters())).dtype
    before = traced(module, *(random(*shape).to(dtype) for shape in shapes))
    after = MODULE_FUSION(before)
    assert calls(after.mod) == expected
    if label != "a batch norm that is used elsewhere":
        assert not after.trace.firings
    refusals = [str(refused) for refused in after.trace.refused]
    assert any(reason in refusal for refusal in refusals) if reason else not refusals


TRAINED: dict[str, tuple[Function, str]] = {
    "relu": (lambda net, x, y: net.relu(net.a(x)), "conv2d-relu"),
    "function": (lambda net, x, y: F.relu6(net.a(x)), "conv2d-relu"),
    "bn": (lambda net, x, y: net.norm(net.a(x)), "conv2d-bn"),
    "bn-relu": (lambda net, x, y: net.relu(net.norm(net.a(x))), "conv2d-bn-relu"),
    "add": (lambda net, x, y: net.a(x) + y, "conv2d-add"),
    "bn-add": (lambda net, x, y: net.norm(net.a(x)) + y, "conv2d-bn-add"),
    "add-relu": (lambda net, x, y: F.relu(net.a(x) + y), "conv2d-add-relu"),
    "bn-add-relu": (lambda net, x, y: F.relu(net.norm(net.a(x)) + y), "conv2d-bn-add-relu"),
}


@pytest.mark.parametrize("label", TRAINED)
def test_in_training_mode_nothing_is_fused(label: str) -> None:
    function, rule = TRAINED[label]
    before = traced(net(function, **two()).train(), random(*IMAGE), random(*RESULT))
    after = MODULE_FUSION(before)
    assert not after.trace.firings
    assert calls(after.mod) == calls(before.mod)
    refused = next(str(refused) for refused in after.trace.refused if refused.rule == rule)
    assert "is in training mode: call eval() on the module first" in refused


def test_one_layer_in_training_mode_is_left_out() -> None:
    module = net(lambda net, x: (net.relu(net.a(x)), net.relu(net.b(x))), **two())
    module.b.train()
    assert calls(fused(module, random(*IMAGE))) == ["ConvReLU2d", "Conv2d", "ReLU"]


def test_without_types_nothing_is_guessed() -> None:
    module = net(lambda net, x, y: F.relu(net.a(x)) + net.norm(net.b(y)), **two())
    with pytest.warns(UserWarning, match="has no type"):
        after = MODULE_FUSION(Workload.from_fx(fx.symbolic_trace(module)))
    assert calls(after.mod) == ["ConvReLU2d", "Conv2d", "add"]
    assert any("give example inputs" in str(refused) for refused in after.trace.refused)


def test_an_exported_program_calls_no_modules() -> None:
    before = Workload.from_torch(net(lambda net, x: net.relu(net.a(x)), **two()), (random(*IMAGE),))
    after = MODULE_FUSION(before)
    assert after.text() == before.text()
    reasons = [str(refused) for refused in after.trace.refused if "an exported program can't call" in str(refused)]
    assert len(reasons) == 1
    assert "ConvReLU2d; rewrite the GraphModule" in reasons[0]


@pytest.mark.relax
def test_graphs_that_call_no_modules_are_refused() -> None:
    from tvm.relax.frontend.torch import from_exported_program

    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()).eval()
    wl = Workload.from_relax(from_exported_program(torch.export.export(model, (torch.randn(1, 3, 8, 8),))))
    after = MODULE_FUSION(wl)
    assert after.op_counts() == wl.op_counts()
    assert {refused.reason for refused in after.trace.refused} == {"modules are called by traced graphs of torch only"}
