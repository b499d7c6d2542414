"""Real architectures, narrow, with random weights, exported; and the rule book that is applied to them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from benchmarks.peers import native
from benchmarks.peers.native import aten
from benchmarks.terms import Literal, Rule
from demo.models import ConvBN, settle

WIDTH = 32
HEADS = 4
LAYERS = 12


class Bottleneck(nn.Module):
    """A residual block of three convolutions (He et al., "Deep residual learning", 2016, figure 5)."""

    def __init__(self, cin: int, mid: int, stride: int) -> None:
        super().__init__()
        self.first = ConvBN(cin, mid, 1)
        self.second = ConvBN(mid, mid, 3, padding=1, stride=stride)
        self.third = nn.Sequential(nn.Conv2d(mid, 4 * mid, 1, bias=False), nn.BatchNorm2d(4 * mid))
        self.shortcut: nn.Module = nn.Identity()
        if stride > 1 or cin != 4 * mid:
            self.shortcut = nn.Sequential(
                nn.Conv2d(cin, 4 * mid, 1, stride=stride, bias=False), nn.BatchNorm2d(4 * mid)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.third(self.second(self.first(x))) + self.shortcut(x))


class ResNet50(nn.Module):
    """ResNet-50 (same source, table 1) with a width of one's own."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        blocks: list[nn.Module] = [ConvBN(3, width, 7, stride=2, padding=3), nn.MaxPool2d(3, 2, 1)]
        channels = width
        for stage, count in enumerate((3, 4, 6, 3)):
            for number in range(count):
                mid = width * 2**stage
                blocks.append(Bottleneck(channels, mid, 2 if stage and not number else 1))
                channels = 4 * mid
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.head(self.blocks(x))
        return result


def bert() -> nn.Module:
    """BERT with twelve narrow layers."""
    import transformers

    config = transformers.BertConfig(
        hidden_size=WIDTH, intermediate_size=2 * WIDTH, num_hidden_layers=LAYERS, num_attention_heads=HEADS,
        vocab_size=100,
    )  # fmt: skip
    return settle(transformers.BertModel(config))


def decoder() -> nn.Module:
    """A decoder of twelve narrow layers like Llama's."""
    import transformers

    config = transformers.LlamaConfig(
        hidden_size=WIDTH, intermediate_size=2 * WIDTH, num_hidden_layers=LAYERS, num_attention_heads=HEADS,
        num_key_value_heads=HEADS // 2, vocab_size=100, use_cache=False,
    )  # fmt: skip
    return settle(transformers.LlamaForCausalLM(config))


@dataclass(frozen=True)
class Model:
    """A model and its input."""

    name: str
    make: Callable[[], nn.Module]
    inputs: Callable[[], tuple[torch.Tensor, ...]]


def _tokens() -> tuple[torch.Tensor, ...]:
    return (torch.arange(8)[None],)


MODELS = (
    Model("ResNet-50", lambda: settle(ResNet50()), lambda: (torch.rand(1, 3, 64, 64),)),
    Model("BERT", bert, _tokens),
    Model("decoder of 12 layers", decoder, _tokens),
)


@dataclass(frozen=True)
class Exported:
    """An exported graph with the values of all its placeholders."""

    module: torch.fx.GraphModule
    inputs: list[Any]


def exported(model: Model) -> Exported:
    """The graph of a model, with its weights as inputs, as ``torch.export`` gives it."""
    torch.manual_seed(0)
    module, inputs = model.make(), model.inputs()
    program = torch.export.export(module, inputs)
    values = {**program.state_dict, **program.constants}
    fed = iter(inputs)
    own = [next(fed) if spec.target is None else values[spec.target] for spec in program.graph_signature.input_specs]
    return Exported(program.graph_module, own)


def _norm(x: Any) -> tuple[Any, ...]:
    return (aten.batch_norm.default, x, "scale", "shift", "mean", "variance", *map(Literal, (False, 0.1, 1e-5, False)))


def _linear(x: Any, *more: Any) -> tuple[Any, ...]:
    return (aten.linear.default, x, "weight", *more)


def _square_root(x: str, epsilon: float) -> tuple[Any, ...]:
    square = (aten.mean.dim, (aten.pow.Tensor_Scalar, x, Literal(2)), Literal([-1]), Literal(True))
    return (aten.rsqrt.default, (aten.add.Tensor, square, Literal(epsilon)))


def _layer_norm(x: Any) -> tuple[Any, ...]:
    return (aten.layer_norm.default, x, Literal([WIDTH]), "scale", "shift", Literal(1e-12), Literal(False))


def book() -> list[Rule]:
    """Twenty rules; of two that overlap in these models, the larger comes first."""
    relu, add, mul, tanh, neg = (getattr(aten, name) for name in ("relu", "add", "mul", "tanh", "neg"))
    conv = (aten.conv2d.default, "x", "weight")
    dropped = (aten.dropout.default, _linear("x", "bias"), Literal(0.1), Literal(False))
    sigmoid = (aten.sigmoid.default, "x")
    sources: dict[str, Any] = {
        "conv_norm_relu": (relu.default, _norm(conv)),
        "conv_norm": _norm(conv),
        "norm_relu": (relu.default, _norm("x")),
        "add_relu": (relu.default, (add.Tensor, "x", "y")),
        "linear_dropout_add_norm": _layer_norm((add.Tensor, dropped, "y")),
        "linear_dropout_add": (add.Tensor, dropped, "y"),
        "linear_gelu": (aten.gelu.default, _linear("x", "bias")),
        "linear_tanh": (tanh.default, _linear("x", "bias")),
        "linear_relu": (relu.default, _linear("x", "bias")),
        "rms": (mul.Tensor, "x", _square_root("x", 1e-6)),
        "rms_of_other_epsilon": (mul.Tensor, "x", _square_root("x", 1e-3)),
        "gated": (mul.Tensor, (aten.silu.default, _linear("x")), "y"),
        "two_products": (add.Tensor, (mul.Tensor, "x", "y"), (mul.Tensor, "z", "u")),
        "swish": (mul.Tensor, "x", sigmoid),
        "negated_twice": (neg.default, (neg.default, "x")),
        "tanh_of_sum": (tanh.default, (add.Tensor, "x", "y")),
        "root_of_sum": (aten.rsqrt.default, (add.Tensor, "x", "y")),
        "sum_of_negated": (add.Tensor, "x", (neg.default, "y")),
        "relu_of_product": (relu.default, (mul.Tensor, "x", "y")),
        "gelu_of_sum": (aten.gelu.default, (add.Tensor, "x", "y")),
    }
    shapes: dict[str, Callable[..., torch.Tensor]] = {
        "conv": native.convolution, "linear": native.linear_layer, "norm": native.like_first,
    }
    return [
        Rule(f"book_{name}", source, None if name == "gated" else shapes.get(name.split("_")[0], native.broadcast))
        for name, source in sources.items()
    ]
