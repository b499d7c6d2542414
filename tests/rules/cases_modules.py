"""Layers, and blocks of them, for the tests of module fusion."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx, nn
from torch.ao.nn.quantized import FloatFunctional
from torch.ao.quantization import DeQuantStub, QuantStub

from gsl import Workload, modules
from gsl.rules import MODULE_FUSION
from tests.helpers.nets import Net, NetOfOne
from tests.rules.test_rules_fx import settled

Function = Callable[..., Any]


class NetOfTwo(Net):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
        return self.function(self, x, y)


class Leaves(fx.Tracer):
    """Calls stubs and fused modules as they are."""

    def is_leaf_module(self, m: nn.Module, qualified_name: str) -> bool:
        return isinstance(m, (QuantStub, DeQuantStub, modules.FusedModule)) or super().is_leaf_module(m, qualified_name)


LAYERS: dict[str, tuple[Callable[..., nn.Module], type[nn.Module], tuple[int, ...], tuple[str, str]]] = {
    "conv2d": (nn.Conv2d, nn.BatchNorm2d, (2, 4, 5, 5), ("Conv", "2d")),
    "conv-transpose2d": (nn.ConvTranspose2d, nn.BatchNorm2d, (2, 4, 3, 3), ("ConvTranspose", "2d")),
    "conv3d": (nn.Conv3d, nn.BatchNorm3d, (2, 4, 3, 3, 3), ("Conv", "3d")),
    "linear": (nn.Linear, nn.BatchNorm1d, (2, 4), ("Linear", "")),
}
"""For each kind: its module, its batch norm, the shape of its input, and how the names of fused ones begin and end."""

ADDITIONS: dict[str, Function] = {
    "+": lambda net, a, b: a + b,
    "torch.add": lambda net, a, b: torch.add(a, b),
    "functional": lambda net, a, b: net.plus.add(a, b),
}
ACTIVATIONS: dict[str, tuple[str, Function]] = {
    "ReLU": ("ReLU", lambda net, a: net.relu(a)),
    "ReLU in place": ("ReLU", lambda net, a: net.relu_in_place(a)),
    "F.relu": ("ReLU", lambda net, a: F.relu(a)),
    "ReLU6": ("ReLU6", lambda net, a: net.relu6(a)),
    "F.relu6": ("ReLU6", lambda net, a: F.relu6(a)),
}
NORMS = ("own", "sync")
SIDES = (False, True)


def layer(kind: str, **options: Any) -> nn.Module:
    """A layer of a kind, from 4 channels to 6."""
    return LAYERS[kind][0](4, 6, **({} if kind == "linear" else {"kernel_size": 2}), **options)


def norm(kind: str, which: str = "own") -> nn.Module:
    return settled(LAYERS[kind][1](6) if which == "own" else nn.SyncBatchNorm(6))


def net(function: Function, **layers: nn.Module) -> Net:
    """A module in eval mode that has besides its layers what an addition or activation may call."""
    more = {
        "plus": FloatFunctional(), "relu": nn.ReLU(), "relu_in_place": nn.ReLU(inplace=True), "relu6": nn.ReLU6(),
    }  # fmt: skip
    kind = NetOfOne if len(inspect.signature(function).parameters) == 2 else NetOfTwo
    return kind(function, **{**more, **layers}).eval()


def random(*shape: int) -> torch.Tensor:
    """Values far enough from 0 and 6 on both sides for activations to matter."""
    return 4 * torch.randn(shape)


def traced(module: nn.Module, *inputs: torch.Tensor) -> Workload:
    return Workload.from_fx(fx.GraphModule(module, Leaves().trace(module)), inputs)


def fused(module: nn.Module, *inputs: torch.Tensor) -> fx.GraphModule:
    """The module after fusion, which computes the same."""
    result = MODULE_FUSION(traced(module, *inputs)).mod
    assert isinstance(result, fx.GraphModule)
    equal(result(*inputs), module(*inputs))
    return result


def equal(found: Any, expected: Any) -> None:
    """Check that two results are the same numbers, but for what folding rounds off."""
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def calls(module: fx.GraphModule) -> list[str]:
    """What a graph module calls, in order: the classes of modules, the names of functions."""
    return [
        type(module.get_submodule(str(node.target))).__name__ if node.op == "call_module" else (
            getattr(node.target, "__name__", str(node.target))
        )
        for node in module.graph.nodes
        if node.op.startswith("call_")
    ]  # fmt: skip


def two(kind: str = "conv2d", **options: Any) -> dict[str, nn.Module]:
    return {"a": layer(kind, **options), "b": layer(kind, **options), "norm": norm(kind)}


IMAGE, RESULT = (2, 4, 5, 5), (2, 6, 4, 4)


class Residual(nn.Module):
    """The basic block of a ResNet, with a convolution beside it where the shape changes."""

    def __init__(self, size: int, out: int, stride: int, plus: nn.Module | None = None) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(size, out, 3, stride, 1, bias=False), settled(nn.BatchNorm2d(out))
        self.conv2, self.bn2 = nn.Conv2d(out, out, 3, 1, 1, bias=False), settled(nn.BatchNorm2d(out))
        self.relu = nn.ReLU(inplace=True)
        self.downsample: nn.Module | None = None
        if stride != 1 or size != out:
            self.downsample = nn.Sequential(nn.Conv2d(size, out, 1, stride, bias=False), settled(nn.BatchNorm2d(out)))
        self.plus = plus

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        identity = x if self.downsample is None else self.downsample(x)
        out = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        if self.plus is None:
            out += identity
        else:
            out = self.plus.add(out, identity)
        return self.relu(out)


class Inverted(nn.Module):
    """The block of a MobileNet: expanded, filtered channel by channel, and projected, with ReLU6."""

    def __init__(self, size: int, factor: int) -> None:
        super().__init__()

        def part(size: int, out: int, kernel: int, groups: int = 1) -> list[nn.Module]:
            conv = nn.Conv2d(size, out, kernel, padding=kernel // 2, groups=groups, bias=False)
            return [conv, settled(nn.BatchNorm2d(out)), nn.ReLU6(inplace=True)]

        wide = size * factor
        self.conv = nn.Sequential(*part(size, wide, 1), *part(wide, wide, 3, wide), *part(wide, size, 1)[:2])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.conv(x)
