"""Rules for random programs of square matrices, views of which parts are made anew, and what such programs compute."""

from __future__ import annotations

import random
from typing import Any, Final

import torch

from gsl import RuleSet, Subst, op, pat
from gsl.front.base import Program
from gsl.graph import INPUT, LEAVES, Graph

SIZE: Final = 3

X, Y = pat.Wildcard(), pat.Wildcard()
RULES: Final = RuleSet([
    Subst(op.ReLU(op.ReLU(X)), op.ReLU(X), name="relu twice"),
    Subst(op.Add(X, X), op.Multiply(X, 2.0), name="double"),
    Subst(op.Multiply(X, 1.0), X, name="one"),
    Subst(op.Negative(op.Negative(X)), X, name="negative twice"),
    Subst(op.Add(op.Negative(X), Y), op.Subtract(Y, X), name="subtract"),
    Subst(op.Dense(X, Y), op.Matmul(X, op.Transpose(Y, axes=(1, 0))), name="spelt out"),
    Subst(op.ReLU(op.Add(X, Y)), op.Maximum(op.Add(Y, X), 0.0), name="maximum"),
])  # fmt: skip


def made_anew(view: Graph, source: random.Random, share: float) -> Graph:
    """A copy of a view in which a rewrite seems to have made some of the canonical calls."""
    copy = view.copy()
    for node in copy.nodes:
        if isinstance(node.op, str) and node.op not in LEAVES and source.random() < share:
            node.native = None
    return copy


def values(program: Program) -> list[Any]:
    """What a program computes for some inputs, by the meanings of its view."""
    found: dict[Any, Any] = {}
    generator = torch.Generator().manual_seed(0)
    view = program.load()
    for node in view:
        if node.op == INPUT:
            found[node] = torch.randn(SIZE, SIZE, generator=generator)
        elif node.op in LEAVES:
            found[node] = node.attrs["value"]
        elif node.effect is None:
            found[node] = program.evaluate(node, [found[operand] for operand in node.operands])
    return [found[node] for node in view.outputs]
