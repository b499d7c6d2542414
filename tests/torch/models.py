"""Small models, and what is compiled with which back end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import gsl
from gsl import RuleSet, Subst, op, pat

X = pat.Wildcard()
RELUS = Subst(op.ReLU(op.ReLU(X)), op.ReLU(X), name="relus")
TRIPLE = Subst(X * 2.0 * 3.0, X * 6.0, name="triple")
SMALL = RuleSet([RELUS, TRIPLE])


class Branches(nn.Module):
    """A convolution with a batch norm, and linear layers of one input."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.query, self.key, self.value = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 6)
        with torch.no_grad():
            self.norm.running_mean.normal_()
            self.norm.running_var.uniform_(0.5, 2)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = self.norm(self.conv(x)).mean((2, 3))
        return self.query(y), self.key(y), self.value(y)


def equal(found: Any, expected: Any, **options: Any) -> None:
    """Fail unless the tensors of two results agree."""
    torch.testing.assert_close(found, expected, **options)


def gradients(call: Callable[..., Any], module: nn.Module, *inputs: Any) -> dict[str, torch.Tensor]:
    """The gradients of the squares of all outputs."""
    module.zero_grad()
    outputs = call(*inputs)
    leaves = [leaf for leaf in torch.utils._pytree.tree_leaves(outputs) if isinstance(leaf, torch.Tensor)]
    sum(leaf.square().sum() for leaf in leaves).backward()  # type: ignore[union-attr]
    return {name: part.grad for name, part in module.named_parameters() if part.grad is not None}


def compiled(module: Any, rules: Any, then: Any = "eager", **options: Any) -> tuple[Any, Any]:
    """A module compiled with rules, and the back end."""
    dynamic = options.pop("dynamic", None)
    backend = gsl.torch_backend(rules, then, **options)
    return torch.compile(module, backend=backend, dynamic=dynamic), backend
