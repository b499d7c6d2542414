"""Idioms that are written out in any of their spellings are recognised, and what only looks like them is not."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers as hf
from torch import Tensor, nn
from torch.export import ExportedProgram

from gsl import Subst, Supported, Workload
from gsl.rules import IDIOMS, NORMAL, RULES
from gsl.rules.idioms import attention
from tests.helpers import models
from tests.helpers.models import text

OWN = [rule for rule in IDIOMS if rule not in NORMAL and rule not in attention.RULES]
Function = Callable[..., Any]
K = math.sqrt(2 / math.pi)


def mean_square(x: Tensor, axis: Any = -1) -> Tensor:
    return x.pow(2).mean(axis, keepdim=True)


def centred(x: Tensor, axis: Any = -1) -> Tensor:
    return x - x.mean(axis, keepdim=True)


def variance(x: Tensor, **options: Any) -> Tensor:
    return x.var(-1, keepdim=True, **options)


def layer_norm_of_both(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """As inductor decomposes it."""
    spread, mean = torch.var_mean(x, -1, keepdim=True, correction=0)
    return (x - mean) * torch.rsqrt(spread + 1e-5) * w + b


RMS: dict[str, Function] = {
    "rsqrt": lambda x, w: w * (x * torch.rsqrt(mean_square(x) + 1e-6)),
    "sqrt": lambda x, w: x / torch.sqrt(mean_square(x) + 1e-6) * w,
    "power of -1/2": lambda x, w: x * torch.pow(mean_square(x) + 1e-6, -0.5) * w,
    "power of 1/2": lambda x, w: w * (x / (mean_square(x) + 1e-6) ** 0.5),
    "1 / sqrt": lambda x, w: x * (1 / torch.sqrt((x * x).mean(-1, True) + 1e-6)) * w,
    "1 + w": lambda x, w: x.float() * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * (1.0 + w),
    "weight first": lambda x, w: w * x * torch.rsqrt(mean_square(x) + 1e-6),
    "weighted root": lambda x, w: x * (w * torch.rsqrt(mean_square(x) + 1e-6)),
    "with casts": lambda x, w: w * (x.to(torch.float32) * torch.rsqrt(mean_square(x.float()) + 1e-6)).to(x.dtype),
}
LAYER: dict[str, Function] = {
    "mean of squares": lambda x, w, b: centred(x) * torch.rsqrt(mean_square(centred(x)) + 1e-5) * w + b,
    "var": lambda x, w, b: b + w * (centred(x) / torch.sqrt(variance(x, unbiased=False) + 1e-5)),
    "correction": lambda x, w, b: centred(x) * torch.rsqrt(variance(x, correction=0) + 1e-5) * w + b,
    "var_mean": layer_norm_of_both,
    "mean once": lambda x, w, b: (lambda c: c / torch.sqrt((c * c).mean(-1, keepdim=True) + 1e-5))(centred(x)) * w + b,
}
GELU: dict[str, Function] = {
    "x 0.5 f": lambda x: x * 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0))),
    "0.5 x f": lambda x: 0.5 * x * (1 + torch.erf(x / math.sqrt(2))),
    "0.5 (x f)": lambda x: 0.5 * (x * (1.0 + torch.erf(x * math.sqrt(0.5)))),
    "x (0.5 f)": lambda x: x * (0.5 * (torch.erf(x * (1 / math.sqrt(2))) + 1)),
    "x f / 2": lambda x: x * (1.0 + torch.erf(x * 0.7071067811865475)) / 2,
}
GELU_TANH: dict[str, Function] = {
    "power": lambda x: 0.5 * x * (1.0 + torch.tanh(K * (x + 0.044715 * torch.pow(x, 3.0)))),
    "x x x": lambda x: x * 0.5 * (1.0 + torch.tanh(K * (x + 0.044715 * x * x * x))),
    "(x x x)": lambda x: 0.5 * x * (1 + torch.tanh(K * (x + 0.044715 * (x * x * x)))),
    "fast": lambda x: 0.5 * x * (1.0 + torch.tanh(x * 0.7978845608028654 * (1.0 + 0.044715 * x * x))),
    "square": lambda x: 0.5 * (x * (1 + torch.tanh(K * (x * (1 + 0.044715 * x**2))))),
}
SILU: dict[str, Function] = {
    "sigmoid": lambda x: torch.sigmoid(x) * x,
    "exp": lambda x: x / (1 + torch.exp(-x)),
    "reciprocal": lambda x: x * (1 / (1 + torch.exp(-x))),
}
SOFTMAX: dict[str, Function] = {
    "shifted": lambda x: (lambda e: e / e.sum(-1, keepdim=True))(torch.exp(x - x.amax(-1, keepdim=True))),
    "plain": lambda x: x.exp() / x.exp().sum(1, keepdim=True),
    "rescaled": lambda x: rescaled(x, 32),
    "rescaled by a number below 0": lambda x: rescaled(x, -7),
}


def rescaled(x: Tensor, by: float) -> Tensor:
    """The softmax of CogView, which keeps scores of halves small."""
    small = x / by
    return ((small - small.amax(-1).unsqueeze(-1)) * by).softmax(-1)


OTHERS: dict[str, tuple[Function, str]] = {
    "mish": (lambda x: x * torch.tanh(nn.functional.softplus(x)), "mish"),
    "mish, written out": (lambda x: x * torch.tanh(torch.where(x > 20, x, torch.log1p(x.exp()))), "mish"),
    "softplus": (lambda x: torch.where(x > 20, x, torch.log(1 + x.exp())), "softplus"),
    "softplus, scaled": (lambda x: torch.where(x * 2.5 > 9, x, torch.log1p((x * 2.5).exp()) / 2.5), "softplus"),
    "relu": (lambda x: x.clamp(min=0), "nn.relu"),
    "relu, largest": (lambda x: torch.maximum(torch.tensor(0.0), x), "nn.relu"),
    "hardsigmoid": (lambda x: nn.functional.relu6(x + 3) / 6, "hardsigmoid"),
    "hardsigmoid, factor": (lambda x: (1 / 6) * torch.clamp(3 + x, 0, 6), "hardsigmoid"),
    "hardsigmoid, between 0 and 1": (lambda x: (x / 6 + 0.5).clamp(0, 1), "hardsigmoid"),
    "hardswish": (lambda x: x * torch.clamp(x + 3, 0, 6) / 6, "hardswish"),
    "hardswish, in two steps": (lambda x: x * torch.clamp(x + 3, min=0).clamp(max=6) / 6, "hardswish"),
    "hardswish, factor": (lambda x: nn.functional.relu6(x + 3) * x * (1 / 6), "hardswish"),
    "hardswish, of hardsigmoid": (lambda x: nn.functional.hardsigmoid(x) * x, "hardswish"),
    "hardswish, between 0 and 1": (lambda x: x * (x * (1 / 6) + 0.5).clamp(0, 1), "hardswish"),
    "leaky relu": (lambda x: torch.where(x >= 0, x, 1.5 * x), "nn.leaky_relu"),
    "leaky relu, the larger one": (lambda x: torch.maximum(0.2 * x, x), "nn.leaky_relu"),
    "elu": (lambda x: torch.relu(1 - torch.exp(x)) * -0.5 + torch.relu(x), "elu"),
    "selu": (lambda x: 1.0507009873554805 * (-1.6732632423543772 * torch.relu(1 - x.exp()) + torch.relu(x)), "selu"),
    "log-softmax": (lambda x: x - torch.logsumexp(x, -1, keepdim=True), "nn.log_softmax"),
}


def group_norm(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    grouped = x.reshape(2, 3, -1)
    normed = centred(grouped) / torch.sqrt(variance(grouped, unbiased=False) + 1e-5)
    return normed.reshape(x.shape) * w + b


def frozen_batch_norm(x: Tensor, w: Tensor, b: Tensor, mean: Tensor, var: Tensor) -> Tensor:
    scale = w * (var.abs() + 1e-5).rsqrt()
    return x * scale + (b - mean * scale)


def workload(function: Function, *shapes: tuple[int, ...], dtype: torch.dtype = torch.float32) -> Workload:
    class Module(nn.Module):
        def forward(self, *inputs: Tensor) -> Any:
            return function(*inputs)

    generator = torch.Generator().manual_seed(0)
    return Workload.from_torch(Module(), tuple(torch.randn(s, generator=generator).to(dtype) for s in shapes))


def becomes(wl: Workload, ops: set[str]) -> None:
    new = IDIOMS(wl, iterative=True)
    assert set(new.op_counts()) == ops, f"{wl}\n{new}"
    assert IDIOMS(new, iterative=True).trace.count() == 0
    wl.compare(new).check()


@pytest.mark.parametrize("name", RMS)
def test_rms_norm(name: str) -> None:
    becomes(workload(RMS[name], (2, 5, 8), (8,)), {"nn.rms_norm"} | ({"add"} if name == "1 + w" else set()))


@pytest.mark.parametrize("name", LAYER)
def test_layer_norm(name: str) -> None:
    becomes(workload(LAYER[name], (2, 5, 8), (8,), (8,)), {"nn.layer_norm"})


def test_group_norm() -> None:
    becomes(workload(group_norm, (2, 6, 4, 4), (6, 1, 1), (6, 1, 1)), {"nn.group_norm", "reshape"})


@pytest.mark.parametrize("channels", [(6, 1, 1), (1, 6, 1, 1)])
def test_batch_norm(channels: tuple[int, ...]) -> None:
    weights = [channels] * 4
    becomes(workload(frozen_batch_norm, (2, 6, 4, 5), *weights), {"nn.batch_norm", "reshape", "abs"})
    becomes(workload(frozen_batch_norm, (2, 4, 5, 6), *[(6,)] * 4), {"abs", "add", "multiply", "rsqrt", "subtract"})


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("affine", [False, True])
def test_decomposed_instance_norm(batch: int, affine: bool) -> None:
    norm = nn.InstanceNorm2d(3, affine=affine)
    if affine:
        nn.init.normal_(norm.weight), nn.init.normal_(norm.bias)
    exported = torch.export.export(norm, (torch.randn(batch, 3, 4, 5),)).run_decompositions()
    assert "aten.instance_norm" not in str(exported.graph)
    becomes(Workload.from_exported(exported), {"nn.instance_norm"})


@pytest.mark.parametrize(
    ("function", "op"),
    [
        *(pytest.param(f, "gelu", id=f"gelu: {name}") for name, f in (GELU | GELU_TANH).items()),
        *(pytest.param(f, "silu", id=f"silu: {name}") for name, f in SILU.items()),
        *(pytest.param(f, "nn.softmax", id=f"softmax: {name}") for name, f in SOFTMAX.items()),
        *(pytest.param(f, op, id=name) for name, (f, op) in OTHERS.items()),
    ],
)
def test_activation(function: Function, op: str) -> None:
    becomes(workload(function, (3, 4)), {op})


@pytest.mark.parametrize("name", GELU_TANH)
def test_the_constants_of_relax_are_those_of_the_rules(name: str) -> None:
    """Relax keeps the numbers in single precision."""
    from tvm.relax.frontend.torch import from_exported_program

    wl = Workload.from_relax(from_exported_program(workload(GELU_TANH[name], (3, 4)).exported))
    assert "0.7978846)" in str(wl)
    becomes(wl, {"gelu"})


@pytest.mark.parametrize(
    ("module", "op"),
    [(nn.Hardsigmoid(), "hardsigmoid"), (nn.Hardswish(), "hardswish"), (nn.SELU(), "selu"), (nn.PReLU(), "nn.prelu"),
     (nn.PReLU(6, 0.3), "nn.prelu")],
    ids=str,
)  # fmt: skip
def test_decomposed_activation(module: nn.Module, op: str) -> None:
    example = (torch.linspace(-5, 5, 2 * 6 * 4).reshape(2, 6, 4),)
    exported = torch.export.export(module.eval(), example).run_decompositions()
    assert op not in Workload(exported).op_counts()
    becomes(Workload(exported), {op})


@pytest.mark.parametrize("shape", [(4,), (1, 1, 4), (2, 1, 1), (2, 6, 1)])
def test_slopes_that_are_not_those_of_channels(shape: tuple[int, ...]) -> None:
    wl = workload(lambda x, w: torch.where(x > 0, x, w * x), (2, 6, 4), shape)
    assert "nn.prelu" not in IDIOMS(wl, iterative=True).op_counts()


SOFT: dict[str, tuple[Function, str]] = {
    "mish": (nn.functional.mish, "mish"),
    "softplus": (nn.functional.softplus, "softplus"),
    "softplus with a threshold": (lambda x: nn.functional.softplus(x, 2.5, 1.5), "softplus"),
    "softplus of a number below 0": (lambda x: nn.functional.softplus(x, -2.0, 1.5), "softplus"),
}


@pytest.mark.parametrize("name", SOFT)
def test_decomposed_softplus_is_found(name: str) -> None:
    function, op = SOFT[name]
    exported = workload(lambda x: function(4 * x), (3, 40)).exported.run_decompositions()
    becomes(Workload(exported), {"multiply", op})


@pytest.mark.parametrize("name", SOFT)
def test_softplus_as_tvm_imports_it_is_found(name: str) -> None:
    from tvm.relax.frontend.torch import from_exported_program

    function, op = SOFT[name]
    old = Workload.from_relax(from_exported_program(workload(lambda x: function(4 * x), (3, 40)).exported))
    assert "softplus" not in old.op_counts()
    new = IDIOMS(old, iterative=True)
    assert set(new.op_counts()) == {"multiply", "softplus"} | ({"tanh"} if op == "mish" else set())
    old.compare(new).check()


@pytest.mark.parametrize("function", [
    lambda x: torch.where(x > 2, x, torch.log(2 + x.exp())),
    lambda x: torch.where(x > 2, x + 1, torch.log1p(x.exp())),
    lambda x: torch.where(x < 2, x, torch.log1p(x.exp())),
    lambda x: torch.where(2 * x > 2, x, torch.log1p((2 * x).exp()) / 3),
    lambda x: torch.where(2 * x > 2, x, torch.log1p((2 * x).exp())),
    lambda x: torch.where(x > 2, x, torch.log1p((2 * x).exp()) / 2),
])  # fmt: skip
def test_what_looks_like_softplus(function: Function) -> None:
    assert "softplus" not in IDIOMS(workload(function, (3, 40)), iterative=True).op_counts()


IN_ONNX = """<ir_version: 10, opset_import: ["" : 22]> net (float[3, 4] x) => (float[3, 4] y) { y = %s (x) }"""


@pytest.mark.parametrize("spelling", ["Elu <alpha = 0.7>", "Elu", "Selu"])
def test_elu_as_tvm_imports_it_from_onnx(spelling: str) -> None:
    """Relax has an operator for SELU, and none for ELU, which is written as it was."""
    import onnx
    from tvm.relax.frontend.onnx import from_onnx

    wl = Workload.from_relax(from_onnx(onnx.parser.parse_model(IN_ONNX % spelling)))
    new = IDIOMS(wl, iterative=True)
    assert set(new.trace.summary()) == {"selu-elu" if spelling == "Selu" else "elu-relu"}
    assert new.op_counts() == ({"selu": 1} if spelling == "Selu" else wl.op_counts())
    wl.compare(new).check()


def test_gelu_is_told_from_its_approximation() -> None:
    for name, functions in (("none", GELU), ("tanh", GELU_TANH)):
        for function in functions.values():
            (node,) = IDIOMS(workload(function, (3,)), iterative=True).graph.by_op()["gelu"]
            assert node.attrs["approximate"] == name


def test_statistics_of_halves_stay_those_of_float32() -> None:
    wl = workload(lambda x: (x.float() * torch.rsqrt(mean_square(x.float()) + 1e-6)).to(x.dtype), (2, 8),
                  dtype=torch.bfloat16)  # fmt: skip
    new = IDIOMS(wl, iterative=True)
    (norm,) = new.graph.by_op()["nn.rms_norm"]
    assert norm.dtype == "float32"
    assert new.op_counts()["cast"] == 2
    wl.compare(new).check()


LOOKS_LIKE: dict[str, Function] = {
    "epsilon outside the root": lambda x: x / (torch.sqrt(mean_square(x)) + 1e-6),
    "another axis": lambda x: x * torch.rsqrt(mean_square(x, 0) + 1e-6),
    "the square of something else": lambda x: x * torch.rsqrt(mean_square(x + 1) + 1e-6),
    "sum for mean": lambda x: x * torch.rsqrt(x.pow(2).sum(-1, keepdim=True) + 1e-6),
    "cube for square": lambda x: x * torch.rsqrt(x.pow(3).mean(-1, keepdim=True).abs() + 1e-6),
    "unbiased variance": lambda x: centred(x) * torch.rsqrt(variance(x) + 1e-5),
    "the mean of another axis": lambda x: centred(x, 0) * torch.rsqrt(variance(x, unbiased=False) + 1e-5),
    "another constant": lambda x: 0.5 * x * (1 + torch.erf(x / 1.5)),
    "no half": lambda x: x * (1 + torch.erf(x / math.sqrt(2))),
    "another factor": lambda x: 0.5 * x * (1 + torch.tanh(K * (x + 0.05 * x.pow(3)))),
    "the larger one by more than 1": lambda x: torch.maximum(x, 1.5 * x),
    "the smaller one": lambda x: torch.minimum(x, 0.5 * x),
    "leaky where it is positive": lambda x: torch.where(x > 0, 0.2 * x, x),
    "leaky below another number": lambda x: torch.where(x > 1, x, 0.2 * x),
    "another shift": lambda x: nn.functional.relu6(x + 2) / 6,
    "elu of something else": lambda x: torch.relu(x + 1) + torch.relu(1 - x.exp()) * -1.0,
    "no finite alpha": lambda x: torch.relu(x) + torch.relu(1 - x.exp()) * math.inf,
    "quick gelu": lambda x: x * torch.sigmoid(1.702 * x),
    "the sigmoid of something else": lambda x: (x + 1) * torch.sigmoid(x),
    "the sum of another axis": lambda x: x.exp() / x.exp().sum(0, keepdim=True).sum(-1, keepdim=True),
}


@pytest.mark.parametrize("name", LOOKS_LIKE)
def test_it_only_looks_like_an_idiom(name: str) -> None:
    wl = workload(LOOKS_LIKE[name], (4, 4))
    new = IDIOMS(wl, iterative=True)
    assert not {rule.name for rule in OWN} & set(new.trace.summary())
    wl.compare(new).check()


@pytest.mark.sweep(6)
@pytest.mark.parametrize("rule", OWN, ids=lambda rule: rule.name)
def test_it_is_supported(rule: Subst) -> None:
    found = rule.verify(max_examples=100 if rule.name.startswith("group") else 30)
    assert isinstance(found, Supported), str(found)


def test_the_rules_are_documented() -> None:
    for rule in IDIOMS:
        if rule.name not in RULES:
            algebra, blank, *where = rule.doc.splitlines()
            assert (" = " in algebra, blank, bool(where)) == (True, "", True), rule.name


KV = {"num_key_value_heads": 1, "head_dim": 8}
COUNTS = {
    "llama": {"nn.rms_norm": 3, "silu": 1}, "gemma": {"nn.rms_norm": 3, "gelu": 1},
    "cohere": {"nn.layer_norm": 2, "silu": 1}, "t5_encoder": {"nn.rms_norm": 3},
    "gpt2": {"nn.layer_norm": 3, "gelu": 1},
}  # fmt: skip
"""Norms and activations of models of one layer."""
OTHERS = {"gemma": text(hf.GemmaConfig, hf.GemmaModel, **KV), "cohere": text(hf.CohereConfig, hf.CohereModel, **KV)}
"""The models that no other tests have."""
WRITTEN_OUT = {"rsqrt", "sqrt", "square", "power", "erf", "tanh", "sigmoid", "exp", "mean"}


def exported_and_decomposed(name: str) -> tuple[ExportedProgram, ExportedProgram]:
    if name not in OTHERS:
        return models.exported(name), models.decomposed(name)
    module, example = OTHERS[name]()
    exported = torch.export.export(module.eval(), (example,))
    return exported, exported.run_decompositions()


@pytest.mark.sweep(8)
@pytest.mark.parametrize("name", COUNTS)
def test_all_norms_and_activations_of_a_model_are_found(name: str) -> None:
    for program in exported_and_decomposed(name):
        wl = Workload.from_exported(program)
        new = IDIOMS(wl, iterative=True)
        assert {op: n for op, n in new.op_counts().items() if op in ("silu", "gelu") or "norm" in op} == COUNTS[name]
        assert not WRITTEN_OUT & set(new.op_counts())
        wl.compare(new).check()


