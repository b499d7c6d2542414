"""Modules as targets: what a factory makes of a match becomes a submodule of the traced graph."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import fx, nn

from gsl import Match, Subst, Workload, op, pat
from gsl.errors import PatternError, PatternTypeError, RewriteError

X, W = pat.Wildcard(), pat.Param()
CONV = op.Conv2D(X, W)


class ConvReLU(nn.Module):
    """A convolution and what follows it, as one module."""

    def __init__(self, weight: torch.Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight, requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(nn.functional.conv2d(x, self.weight))


def fuse(factory: Callable[[Match], Any]) -> Subst:
    return Subst(op.ReLU(CONV), pat.Module(factory, X), name="fuse")


def made(match: Match) -> nn.Module:
    return ConvReLU(match[W].attrs["value"])


def net() -> nn.Sequential:
    torch.manual_seed(0)
    convs = (nn.Conv2d(3, 4, 3, bias=False), nn.Conv2d(4, 2, 3, bias=False))
    return nn.Sequential(convs[0], nn.ReLU(), convs[1], nn.ReLU()).eval()


def traced() -> Workload:
    return Workload.from_fx(fx.symbolic_trace(net()), (torch.randn(1, 3, 8, 8),))


def test_a_match_becomes_a_module() -> None:
    before = traced()
    after = fuse(made)(before)
    before.compare(after).check()
    assert [node.op for node in after.mod.graph.nodes] == ["placeholder", "call_module", "call_module", "output"]
    assert [type(child) for child in after.mod.children()] == [ConvReLU, ConvReLU]
    assert set(after.mod.state_dict()) == {"ConvReLU.weight", "ConvReLU_1.weight"}
    after.mod.load_state_dict(after.mod.state_dict())


def test_a_factory_may_refuse() -> None:
    def large(match: Match) -> nn.Module | str:
        return made(match) if match[W].shape[0] > 2 else "too few filters"

    before = traced()
    after = fuse(large)(before)
    before.compare(after).check()
    assert len([node for node in after.mod.graph.nodes if node.op == "call_module"]) == 3
    assert "too few filters" in str(after.trace.refused[0])


def test_a_module_of_another_result_is_refused() -> None:
    after = fuse(lambda match: nn.Conv2d(match[X].shape[1], 1, 1))(traced())
    assert not after.trace.firings
    assert "but its replacement" in str(after.trace.refused[0])


def test_a_module_that_writes_to_its_operand_is_refused() -> None:
    for target in (pat.Module(lambda match: nn.ReLU(inplace=True), CONV), pat.Call(nn.ReLU, CONV, inplace=True)):
        after = Subst(op.ReLU(CONV), target, name="in place")(traced())
        assert not after.trace.firings
        assert "it writes to its operands" in str(after.trace.refused[0])


def test_what_is_no_module_is_an_error() -> None:
    before = traced()
    with pytest.raises(RewriteError, match=r"fuse .*returned 3 of type int, expected an nn.Module"):
        fuse(lambda match: 3)(before)


def test_an_exported_program_calls_no_modules() -> None:
    before = Workload.from_torch(net(), (torch.randn(1, 3, 8, 8),))
    after = fuse(made)(before)
    assert after.text() == before.text()
    assert len(after.trace.refused) == 2
    for refused in after.trace.refused:
        assert re.search(r"an exported program can't call the module .*ConvReLU; rewrite the GraphModule", str(refused))


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: pat.Module(3, X), PatternTypeError, "takes a function from the match to a module first, got 3"),
        (lambda: pat.Module(made), PatternTypeError, "takes the operands of the module behind the factory"),
        (lambda: Subst(pat.Module(made, X), X), PatternError, "belongs in a target"),
    ],
)
def test_what_a_module_target_needs(make: Callable[[], Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        make()
