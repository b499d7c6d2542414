"""Twenty models by both exporters of torch, in several opsets: they come back, are written anew, and are rewritten."""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import onnx
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from gsl import Workload, rules
from tests.front.onnx.onnx_helpers import anew, bytes_of, check

pytest.importorskip("onnxscript")
pytest.importorskip("onnxruntime")

Call = Callable[..., Any]


class Of(nn.Module):
    """A function as a module, with the layers that it uses."""

    def __init__(self, call: Call, *layers: nn.Module) -> None:
        super().__init__()
        self.call, self.layers = call, nn.ModuleList(layers)

    def forward(self, *given: torch.Tensor) -> Any:
        return self.call(*given, *self.layers)


ROWS, IMAGE, LONG = (2, 5, 8), (2, 4, 8, 8), (2, 4, 12)


def convolutions() -> nn.Module:
    one, other = nn.Conv2d(4, 8, 3, padding=1), nn.Conv2d(8, 4, 1)
    return nn.Sequential(one, nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), other)


def depthwise() -> nn.Module:
    return nn.Sequential(nn.Conv2d(4, 4, 3, groups=4, padding="same"), nn.ReLU6(), nn.Conv2d(4, 8, 1), nn.Hardswish())


def up() -> nn.Module:
    return nn.Sequential(nn.ConvTranspose2d(4, 8, 2, stride=2), nn.PixelShuffle(2), nn.LeakyReLU(0.1))


def residual(x: torch.Tensor, one: nn.Module, other: nn.Module) -> torch.Tensor:
    return F.relu(other(F.relu(one(x))) + x)


def squeeze(x: torch.Tensor, down: nn.Module, back: nn.Module) -> torch.Tensor:
    return x * torch.sigmoid(back(F.relu(down(x.mean((2, 3)))))).unsqueeze(-1).unsqueeze(-1)


def attention(x: torch.Tensor, qkv: nn.Module) -> torch.Tensor:
    q, k, v = (part.unflatten(-1, (2, 4)).transpose(1, 2) for part in qkv(x).chunk(3, -1))
    return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)


def rotary(x: torch.Tensor) -> torch.Tensor:
    angle = torch.outer(torch.arange(5.0), torch.pow(10.0, -torch.arange(4.0) / 4)).repeat(1, 2)
    one, other = x.chunk(2, -1)
    return x * angle.cos() + torch.cat([-other, one], -1) * angle.sin()


MODELS: Final[dict[str, tuple[Call, tuple[int, ...]]]] = {
    "perceptron": (lambda: nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8), nn.Tanh()), ROWS),
    "convolutions": (convolutions, IMAGE),
    "depthwise": (depthwise, IMAGE),
    "up": (up, IMAGE),
    "residual": (lambda: Of(residual, nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)), IMAGE),
    "squeeze and excite": (lambda: Of(squeeze, nn.Linear(4, 2), nn.Linear(2, 4)), IMAGE),
    "one axis": (lambda: nn.Sequential(nn.Conv1d(4, 6, 3, dilation=2), nn.SiLU(), nn.AvgPool1d(2)), LONG),
    "pools": (lambda: Of(lambda x: F.adaptive_avg_pool2d(x, 1) + F.max_pool2d(x, 8)), IMAGE),
    "group norm": (lambda: nn.Sequential(nn.GroupNorm(2, 4), nn.Mish()), IMAGE),
    "instance norm": (lambda: nn.Sequential(nn.InstanceNorm2d(4, affine=True), nn.PReLU(4)), IMAGE),
    "layer norm": (lambda: nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 8), nn.ELU()), ROWS),
    "attention": (lambda: Of(attention, nn.Linear(8, 24)), ROWS),
    "encoder": (lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), ROWS),
    "rotary": (lambda: Of(rotary), ROWS),
    "recurrent": (lambda: Of(lambda x, layer: layer(x)[0], nn.GRU(8, 4, batch_first=True)), ROWS),
    "gated": (lambda: Of(lambda x, a, b: F.silu(a(x)) * b(x), nn.Linear(8, 16), nn.Linear(8, 16, bias=False)), ROWS),
    "products": (lambda: Of(lambda x: torch.einsum("bij,bkj->bik", x, x) @ x), ROWS),
    "pieces": (lambda: Of(lambda x: torch.cat([x[:, 1:], x[:, :1].flip(1)], 1).permute(0, 2, 1).reshape(2, -1)), ROWS),
    "choices": (lambda: Of(lambda x: (torch.where(x > 0, x, -x).clamp(0.1, 0.9), x.argmax(-1), x.amax((0, 1)))), ROWS),
    "statistics": (lambda: Of(lambda x: (x - x.mean(-1, True)) / (x.var(-1, keepdim=True) + 1e-5).sqrt()), ROWS),
}  # fmt: skip
OLD: Final = (13, 15, 17)
"""The opsets of the old exporter, in turn."""
NEW: Final = (18, 20, 21, 23)
"""The opsets of the new one."""
UNKNOWN: Final = {(OLD, "encoder")}
"""What an exporter of torch can't write."""
LONG: Final = pytest.mark.long
CASES = [
    pytest.param(name, opset, opset >= NEW[0], id=f"{name}, opset {opset}", marks=() if place % every == 0 else LONG)
    for opsets, every in ((OLD, 1), (NEW, 5)) for place, name in enumerate(MODELS) if (opsets, name) not in UNKNOWN
    for opset in [opsets[place % len(opsets)]]
]  # fmt: skip
"""By the new exporter, which is slow, a fifth of the models; the others in the long tests."""


@contextmanager
def quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(logging.NOTSET)


def made(name: str) -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    make, shape = MODELS[name]
    return make().eval(), torch.rand(*shape) - 0.5


def exported(module: nn.Module, x: torch.Tensor, opset: int, new: bool) -> Workload:
    """A module as an exporter of torch writes it for ONNX: the new one, or that by tracing."""
    file = io.BytesIO()
    with quiet():
        program = torch.onnx.export(module, (x,), None if new else file, dynamo=new, opset_version=opset, verbose=False)
    return Workload.from_onnx(program.model if program is not None else onnx.load_from_string(file.getvalue()))


@pytest.mark.sweep(2)
@pytest.mark.parametrize(("name", "opset", "new"), CASES)
def test_a_round_trip(name: str, opset: int, new: bool) -> None:
    module, x = made(name)
    wl = exported(module, x, opset, new)
    assert wl.model.opset_imports[""] == opset
    before = bytes_of(wl.model)
    assert wl.program.store(wl.program.load()).native is wl.model
    with torch.no_grad():
        wanted = module(x)
    for subject in (wl, anew(wl), rules.BOOK(wl, iterative=True), rules.IDIOMS(wl, iterative=True)):
        check(subject.model)
        close(subject.program.build()(x.numpy()), wanted)
    assert bytes_of(wl.model) == before


def close(found: Any, wanted: Any) -> None:
    found, wanted = (value if isinstance(value, tuple) else (value,) for value in (found, wanted))
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(torch.from_numpy(one), other, rtol=1e-4, atol=1e-5)


def test_other_numbers_are_told() -> None:
    module, x = made("perceptron")
    wl = exported(module, x, 17, False)
    with pytest.raises(AssertionError):
        close(wl.program.build()(x.numpy()), module(x + 0.01).detach())
