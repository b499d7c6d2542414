"""The meaning of every operator of the formats: rules that fire, and compute what was there before."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from gsl import Subst, Workload
from gsl.graph import CONST, Node
from tests.exchange.nodes import concat, conv, identity, pool, same_of, tensor
from tests.helpers.firing import Make, fire, ops
from tests.helpers.graphs import Builder

ACTIVATIONS = ["", "sigmoid", "nn.relu", "tanh"]


@pytest.mark.parametrize("act", range(4))
def test_an_activation_follows_its_product(rule: Callable[..., Subst], act: int) -> None:
    subst = rule(f"(matmul {act} ?x (matmul 0 ?y ?z))=>(matmul {act} (matmul 0 ?x ?y) ?z)")

    def make(b: Builder) -> Node:
        product = b.call("matmul", b.input("x", 2, 3), b.call("matmul", b.input("y", 3, 4), b.input("z", 4, 5)))
        return b.call(ACTIVATIONS[act], product) if act else product

    assert ops(fire(subst, make, times=1)) == ["matmul", "matmul", *[ACTIVATIONS[act]] * bool(act)]


@pytest.mark.parametrize("act", range(4))
def test_a_variable_activation_is_the_same_on_both_sides(rule: Callable[..., Subst], act: int) -> None:
    subst = rule("(concat 1 4 (conv2d 1 1 0 ?a ?x ?v) (conv2d 1 1 0 ?a ?x ?w))=>"
                 "(conv2d 1 1 0 ?a ?x (concat 0 4 ?v ?w))")  # fmt: skip

    def make(b: Builder, other: int = act) -> Node:
        x = b.input("x", 1, 2, 4, 4)
        parts = [conv(b, x, b.param("w", count, 2, 3, 3)) for count in (2, 3)]
        for place, number in enumerate((act, other)):
            if number:
                parts[place] = b.call(ACTIVATIONS[number], parts[place])
        return concat(b, 1, *parts)

    assert ops(fire(subst, make, times=1)).count("nn.conv2d") == 1
    fire(subst, lambda b: make(b, 1 + act % 3 if act else 2), times=0)


@pytest.mark.parametrize(("strides", "mode", "kernel"), [
    ((1, 1), 0, (3, 3)), ((2, 2), 0, (3, 3)), ((2, 1), 0, (2, 3)), ((1, 1), 1, (3, 3)), ((2, 2), 1, (1, 2)),
    ((3, 2), 0, (2, 4)),
])  # fmt: skip
def test_variable_strides_and_padding(
    rule: Callable[..., Subst], strides: tuple[int, int], mode: int, kernel: tuple[int, int]
) -> None:
    subst = rule("(conv2d ?sh ?sw ?p 0 ?x (ewadd ?v ?w))=>"
                 "(ewadd (conv2d ?sh ?sw ?p 0 ?x ?v) (conv2d ?sh ?sw ?p 0 ?x ?w))")  # fmt: skip

    def make(b: Builder, off: int = 0) -> Node:
        kernels = b.call("add", b.input("v", 3, 2, *kernel), b.input("w", 3, 2, *kernel))
        (top, bottom), (left, right) = (same_of(n, k, s) for n, k, s in zip((7, 8), kernel, strides))
        padding = (top, left, bottom, right) if mode == 0 else (0, 0, 0, 0)
        padding = (padding[0] + off, *padding[1:])
        return b.call("nn.conv2d", b.input("x", 1, 2, 7, 8), kernels, strides=strides, padding=padding)

    assert ops(fire(subst, make, times=1)).count("nn.conv2d") == 2
    fire(subst, lambda b: make(b, 3), times=0)


def test_padding_is_a_demand(rule: Callable[..., Subst]) -> None:
    subst = rule("(conv2d 1 1 0 0 ?x (ewadd ?v ?w))=>(ewadd (conv2d 1 1 0 0 ?x ?v) (conv2d 1 1 0 0 ?x ?w))")

    def make(b: Builder, **attrs: Any) -> Node:
        kernel = b.call("add", b.input("v", 3, 2, 2, 2), b.input("w", 3, 2, 2, 2))
        return conv(b, b.input("x", 1, 2, 5, 5), kernel, **attrs)

    fire(subst, make, times=1)
    for attrs in ({"padding": (0, 0, 1, 1)}, {"padding": 0}, {"strides": 2}, {"padding": 1, "dilation": 2}):
        fire(subst, lambda b, attrs=attrs: make(b, **attrs), times=0)
    high = rule("(conv2d 1 1 0 0 ?x (ewadd ?v ?w))=>(ewadd (conv2d 1 1 0 0 ?x ?v) (conv2d 1 1 0 0 ?x ?w))",
                odd_padding="high")  # fmt: skip
    fire(high, lambda b: make(b, padding=(0, 0, 1, 1)), times=1)


CASES: dict[str, tuple[Sequence[str], Make, dict[str, Any]]] = {
    "smul": (
        ["(smul (matmul 0 ?x ?y) ?w)=>(matmul 0 ?x (smul ?y ?w))"],
        lambda b: b.call("multiply", b.call("matmul", b.input("x", 2, 3), b.input("y", 3, 4)), tensor(b, 0.5)), {},
    ),
    "smul by a number": (
        ["(smul (ewadd ?x ?y) ?w)=>(ewadd (smul ?x ?w) (smul ?y ?w))"],
        lambda b: b.call("multiply", b.call("add", b.input("x", 2), b.input("y", 2)), 0.5), {},
    ),
    "transpose": (
        ["(transpose (matmul 0 ?x ?y))=>(matmul 0 (transpose ?y) (transpose ?x))"],
        lambda b: b.call("transpose", b.call("matmul", b.input("x", 2, 3), b.input("y", 3, 4))), {},
    ),
    "transposed axes": (
        ["(relu (transpose ?x 2_0_1))=>(transpose (relu ?x) 2_0_1)"],
        lambda b: b.call("nn.relu", b.call("transpose", b.input("x", 2, 3, 4), axes=(2, 0, 1))), {},
    ),
    "sigmoid and tanh": (
        ["(concat 0 1 (sigmoid (tanh ?x)) (sigmoid (tanh ?y)))=>(sigmoid (tanh (concat 0 1 ?x ?y)))"],
        lambda b: concat(b, 0, *[b.call("sigmoid", b.call("tanh", b.input(n, 3))) for n in "xy"]), {},
    ),
    "three operands": (
        ["(relu (concat 1 2 ?x ?y ?z))=>(concat 1 2 (relu ?x) (relu ?y) (relu ?z))"],
        lambda b: b.call("nn.relu", concat(b, 1, *[b.input(n, 2, k) for k, n in enumerate("xyz", 1)])), {},
    ),
    "split of a concat": (
        ["(split_1 (split ?a (concat ?a ?n ?x ?y)))=>?y"],
        lambda b: b.get(b.call("split", concat(b, 1, b.input("x", 2, 3), b.input("y", 2, 4)), axis=1,
                               indices_or_sections=(3,)), 1), {},
    ),
    "concat of a split": (
        ["(concat ?a 2 (relu (split_0 (split ?a ?x))) (relu (split_1 (split ?a ?x))))=>(relu ?x)"],
        lambda b: _concat_of_split(b), {},
    ),
    "split at the same place": (
        ["(relu (split_0 (split 1 ?x)))=>(split_0 (split 1 (relu ?x)))"],
        lambda b: b.call("nn.relu", b.get(b.call("split", b.input("x", 2, 5), axis=1, indices_or_sections=(2,)), 0)),
        {},
    ),
    "enlarge": (
        ["(concat 1 4 (conv2d 1 1 0 0 ?x ?v) (conv2d 1 1 0 0 ?x (enlarge 3 3 ?w)))=>"
         "(conv2d 1 1 0 0 ?x (concat 0 4 ?v (enlarge 3 3 ?w)))"],
        lambda b: _enlarged(b), {},
    ),
    "poolavg": (
        ["(concat 1 4 (poolavg 3 2 2 1 0 ?x) (poolavg 3 2 2 1 0 ?y))=>(poolavg 3 2 2 1 0 (concat 1 4 ?x ?y))"],
        lambda b: concat(b, 1, *[pool(b, "avg", b.input(n, 1, 2, 6, 5), (3, 2), (2, 1), 0) for n in "xy"]), {},
    ),
    "poolmax of any size": (
        ["(concat 0 4 (poolmax ?h ?w ?s ?t ?p ?x) (poolmax ?h ?w ?s ?t ?p ?y))=>"
         "(poolmax ?h ?w ?s ?t ?p (concat 0 4 ?x ?y))"],
        lambda b: concat(b, 0, *[pool(b, "max", b.input(n, 1, 2, 6, 5), (3, 2), (2, 2), 0) for n in "xy"]), {},
    ),
    "Iewmul": (
        ["(ewmul ?x Iewmul)=>?x"], lambda b: b.call("multiply", b.input("x", 2, 3), tensor(b, np.ones((2, 3)))), {},
    ),
    "to Iewmul": (
        ["(ewadd ?x ?y)=>(ewadd (ewmul ?x Iewmul) ?y)"],
        lambda b: b.call("add", b.input("x", 2, 3), b.input("y", 2, 3)), {},
    ),
    "Imatmul": (
        ["(matmul 0 ?x (Imatmul))=>?x"], lambda b: b.call("matmul", b.input("x", 2, 3), tensor(b, np.eye(3))), {},
    ),
    "Imatmul on the left": (
        ["(matmul 0 Imatmul ?x)=>?x"], lambda b: b.call("matmul", tensor(b, np.eye(2), CONST), b.input("x", 2, 3)), {},
    ),
    "to Imatmul": (
        ["(relu ?x)=>(relu (matmul 0 (matmul 0 Imatmul ?x) Imatmul))"],
        lambda b: b.call("nn.relu", b.input("x", 2, 3)), {},
    ),
    "Iconv": (
        ["(conv2d 1 1 0 0 ?x (Iconv 3))=>?x"],
        lambda b: conv(b, b.input("x", 1, 3, 4, 4), tensor(b, identity(3, 3, 3))), {},
    ),
    "Iconv of even size": (
        ["(conv2d 1 1 0 2 ?x (Iconv 2 4))=>(relu ?x)"],
        lambda b: b.call("nn.relu", conv(b, b.input("x", 1, 3, 4, 4), tensor(b, identity(3, 2, 4)))), {},
    ),
    "to Iconv": (
        ["(relu (tanh ?x))=>(relu (conv2d 1 1 0 3 ?x (Iconv 2)))"],
        lambda b: b.call("nn.relu", b.call("tanh", b.input("x", 1, 3, 4, 4))), {},
    ),
    "Cpool": (
        ["(conv2d 2 2 1 0 ?x (Cpool 2 3))=>(poolavg 2 3 2 2 1 ?x)"],
        lambda b: b.call("nn.conv2d", b.input("x", 1, 3, 6, 6), tensor(b, np.full((3, 1, 2, 3), 1 / 6)), strides=2,
                         groups=3), {"groups": True},
    ),
    "dense Cpool": (
        ["(conv2d 1 1 1 0 ?x (Cpool 2 2))=>(poolavg 2 2 1 1 1 ?x)"],
        lambda b: b.call("nn.conv2d", b.input("x", 1, 2, 4, 4),
                         tensor(b, np.eye(2)[:, :, None, None] * np.full((1, 1, 2, 2), 0.25))), {},
    ),
    "to Cpool": (
        ["(poolavg 2 3 2 2 1 ?x)=>(conv2d 2 2 1 0 ?x (Cpool 2 3))"],
        lambda b: pool(b, "avg", b.input("x", 1, 3, 6, 6), (2, 3), (2, 2), 1), {},
    ),
    "to dense Cpool": (
        ["(poolavg 3 3 1 1 0 ?x)=>(conv2d 1 1 0 0 ?x (Cpool 3 3))"],
        lambda b: pool(b, "avg", b.input("x", 1, 3, 6, 6), (3, 3), (1, 1), 0, count_include_pad=True),
        {"average_kernel": "dense", "count_include_pad": True},
    ),
    "merge_gconv": (
        ["(conv2d 1 1 0 0 ?x ?w)=>(conv2d 1 1 0 0 ?x (merge_gconv 2 ?w))"],
        lambda b: conv(b, b.input("x", 1, 8, 4, 4), b.input("w", 12, 2, 3, 3), groups=4), {"groups": True},
    ),
    "two outputs": (
        ["(matmul 0 ?x ?v)=>(split_0 (split 1 (matmul 0 ?x (concat 1 2 ?v ?w))))",
         "(matmul 0 ?x ?w)=>(split_1 (split 1 (matmul 0 ?x (concat 1 2 ?v ?w))))"],
        lambda b: _two_products(b), {},
    ),
    "a split of a transposed concat": (
        ["(matmul 0 ?x ?v)=>(transpose (split_0 (split 0 (transpose (matmul 0 ?x (concat 1 2 ?v ?w))))))",
         "(matmul 0 ?x ?w)=>(transpose (split_1 (split 0 (transpose (matmul 0 ?x (concat 1 2 ?v ?w))))))"],
        lambda b: _two_products(b), {},
    ),
    "a split of a sum": (
        ["(ewadd (concat 1 2 ?v ?w) (concat 1 2 ?x ?y))=>"
         "(concat 1 2 (split_0 (split 1 (ewadd (concat 1 2 ?x ?y) (concat 1 2 ?v ?w))))"
         " (split_1 (split 1 (ewadd (concat 1 2 ?x ?y) (concat 1 2 ?v ?w)))))"],
        lambda b: b.call("add", concat(b, 1, b.input("v", 2, 1), b.input("w", 2, 3)),
                         concat(b, 1, b.input("x", 2, 1), b.input("y", 2, 3))), {},
    ),
}  # fmt: skip


def _concat_of_split(b: Builder) -> Node:
    parts = b.call("split", b.input("x", 2, 5), indices_or_sections=(2,), axis=1)
    return concat(b, 1, *[b.call("nn.relu", b.get(parts, index)) for index in (0, 1)])


def _enlarged(b: Builder) -> Node:
    x = b.input("x", 1, 2, 4, 4)
    widths = ((0, 0), (0, 0), (1, 1), (0, 1))
    small = b.call("nn.pad", b.input("w", 3, 2, 1, 2), pad_width=widths)
    return concat(b, 1, conv(b, x, b.input("v", 2, 2, 3, 3)), conv(b, x, small))


def _two_products(b: Builder) -> list[Node]:
    x = b.input("x", 2, 3)
    return [b.call("matmul", x, b.input(name, 3, size)) for name, size in (("v", 2), ("w", 4))]


@pytest.mark.parametrize("name", CASES)
def test_rules_fire_and_keep_the_values(rule: Callable[..., Subst], name: str) -> None:
    lines, make, choices = CASES[name]
    fire(rule(*lines, **choices), make, times=1)


class Branches(nn.Module):
    """Two convolutions of one image, joined, with an activation on top."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Conv2d(4, 2, 3, padding=1, bias=False)
        self.b = nn.Conv2d(4, 3, 3, padding=1, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([self.a(x), self.b(x)], 1).relu()


def test_an_imported_rule_on_a_torch_model(rule: Callable[..., Subst]) -> None:
    merge = rule("(concat 1 4 (conv2d 1 1 0 0 ?x ?v) (conv2d 1 1 0 0 ?x ?w))=>(conv2d 1 1 0 0 ?x (concat 0 4 ?v ?w))")
    old = Workload.from_torch(Branches(), (torch.randn(1, 4, 6, 6),))
    new = merge(old)
    assert new.op_counts() == {"nn.conv2d": 1, "nn.relu": 1}  # the joined kernels are folded
    old.compare(new).check()
