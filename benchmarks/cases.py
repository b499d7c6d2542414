"""What is rewritten: graphs of growing size, each with one rule in the form that every system takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.export.graph_signature import InputKind
from torch.fx.experimental.proxy_tensor import make_fx

from gsl import Subst, op, pat

aten = torch.ops.aten
Inputs = tuple[torch.Tensor, ...]
Built = tuple[fx.GraphModule, Inputs]


@dataclass(frozen=True)
class Case:
    """A rule, as GSL and as functions that the others trace, and the graphs on which it is applied."""

    name: str
    sizes: tuple[int, ...]
    build: Callable[[int], Built]
    """A graph of about so many nodes, and inputs for it."""
    rule: Subst
    pattern: Callable[..., Any]
    replacement: Callable[..., Any]
    arguments: Inputs
    """Arguments with which the two functions can be traced."""
    by_hand: Callable[[fx.GraphModule], None]


def vectors(count: int) -> Inputs:
    """Vectors in double precision, so that a chain of thousands of roundings stays comparable."""
    generator = torch.Generator().manual_seed(0)
    return tuple(torch.rand(8, dtype=torch.float64, generator=generator) for _ in range(count))


# A chain of multiply, add, relu: relu(x * w + b) = relu(addcmul(b, x, w)). A third of the nodes goes.


def affine(x: Any, w: Any, b: Any) -> Any:
    """A link of the chain, as it stands in the graph."""
    return aten.relu.default(aten.add.Tensor(aten.mul.Tensor(x, w), b))


def affine_fused(x: Any, w: Any, b: Any) -> Any:
    """What replaces it."""
    return aten.relu.default(aten.addcmul.default(b, x, w))


def chain(size: int) -> Built:
    """A chain of about ``size`` nodes."""

    def links(x: Any, w: Any, b: Any) -> Any:
        for _ in range(size // 3):
            x = affine(x, w, b)
        return x

    x, w, b = vectors(3)
    inputs = (x, 1 - w * 1e-4, b - 0.5)  # the factors are near one, so that no link is forgotten by those after it
    return make_fx(links, tracing_mode="fake")(*inputs), inputs


def affine_rule() -> Subst:
    """The rule of the chain."""
    x, w, b = pat.Wildcard(), pat.Wildcard(), pat.Wildcard()
    return Subst(op.ReLU(x * w + b), op.ReLU(pat.Call(aten.addcmul.default, b, x, w)), name="relu-addcmul")


def affine_by_hand(module: fx.GraphModule) -> None:
    """The same as a pass written for this one pattern."""
    graph = module.graph
    for relu in list(graph.find_nodes(op="call_function", target=aten.relu.default)):
        add = relu.args[0]
        if add.target is not aten.add.Tensor or len(add.users) > 1:
            continue
        product, b = add.args
        if product.target is not aten.mul.Tensor or len(product.users) > 1:
            continue
        with graph.inserting_before(relu):
            relu.args = (graph.call_function(aten.addcmul.default, (b, *product.args)),)
        graph.erase_node(add)
        graph.erase_node(product)


# A Llama-like decoder whose silu torch.export took apart: x * sigmoid(x) = silu(x). Few matches among many nodes.


def swish(x: Any) -> Any:
    """What ``silu`` is decomposed into."""
    return aten.mul.Tensor(x, aten.sigmoid.default(x))


def silu(x: Any) -> Any:
    """What replaces it."""
    return aten.silu.default(x)


def decoder(size: int) -> Built:
    """The decomposed export of a narrow decoder of about ``size`` nodes, with its weights as inputs."""
    import transformers

    config = transformers.LlamaConfig(
        hidden_size=32, intermediate_size=64, num_hidden_layers=max(1, (size - 70) // 120), num_attention_heads=4,
        num_key_value_heads=2, vocab_size=100, use_cache=False,
    )  # fmt: skip
    torch.manual_seed(0)
    tokens = torch.arange(8)[None]
    program = torch.export.export(transformers.LlamaForCausalLM(config).eval(), (tokens,)).run_decompositions()
    values = {**program.state_dict, **program.constants}
    specs = program.graph_signature.input_specs
    inputs = tuple(tokens if spec.kind is InputKind.USER_INPUT else values[spec.target] for spec in specs)
    return program.graph_module, inputs


def swish_rule() -> Subst:
    """The rule of the decoder."""
    x = pat.Wildcard()
    return Subst(x * op.Sigmoid(x), op.SiLU(x), name="silu")


def swish_by_hand(module: fx.GraphModule) -> None:
    """The same as a pass written for this one pattern; unlike GSL, in one order of the operands."""
    graph = module.graph
    for product in list(graph.find_nodes(op="call_function", target=aten.mul.Tensor)):
        x, sigmoid = product.args
        if not isinstance(sigmoid, fx.Node) or sigmoid.target is not aten.sigmoid.default or sigmoid.args[0] is not x:
            continue
        with graph.inserting_before(product):
            product.replace_all_uses_with(graph.call_function(aten.silu.default, (x,)))
        graph.erase_node(product)
        if not sigmoid.users:
            graph.erase_node(sigmoid)


def cases() -> tuple[Case, ...]:
    """The cases, in the order in which they are reported."""
    return (
        Case("chain", (100, 1_000, 10_000), chain, affine_rule(), affine, affine_fused, vectors(3), affine_by_hand),
        Case("decoder", (200, 1_000, 5_000), decoder, swish_rule(), swish, silu, vectors(1), swish_by_hand),
    )
