"""Rules of torch.fx.subgraph_rewriter: they rewrite what ``replace_pattern`` rewrites, and more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn
from torch.fx.subgraph_rewriter import replace_pattern, replace_pattern_with_filters

from gsl import Workload
from gsl.errors import ExchangeError
from gsl.exchange import from_fx
from tests.helpers.nets import Of


def swish(x: Tensor) -> Tensor:
    return x * torch.sigmoid(x)


def silu(input: Tensor) -> Tensor:
    return F.silu(input)


def linear(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.relu(F.linear(x, w, b))


def clamped(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return torch.clamp(F.linear(x, w, b), min=0)


def conv(x: Tensor, w: Tensor) -> Tensor:
    return F.relu(F.conv2d(x, w, padding=1))


def conv_clamped(x: Tensor, w: Tensor) -> Tensor:
    return F.conv2d(x, w, padding=1).clamp(min=0)


def stacked(a: Tensor, b: Tensor) -> Tensor:
    return torch.stack([a, b]).sum()


def summed(a: Tensor, b: Tensor) -> Tensor:
    return a.sum() + b.sum()


def both(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.exp(), x.exp().sum()


def both_softmax(x: Tensor) -> tuple[Tensor, Tensor]:
    y = torch.exp(x)
    return y, y.sum()


CASES = {
    "swish": (swish, silu, ((3, 4),)),
    "linear": (linear, clamped, ((2, 3), (4, 3), (4,))),
    "linear of three axes": (linear, clamped, ((5, 2, 3), (4, 3), (4,))),
    "conv": (conv, conv_clamped, ((1, 3, 8, 8), (4, 3, 3, 3))),
    "stack": (stacked, summed, ((3, 4), (3, 4))),
}


@pytest.mark.sweep(2)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("form", ["functions", "graph modules", "graphs"])
def test_a_rule_rewrites_what_replace_pattern_rewrites(case: str, form: str) -> None:
    pattern, replacement, shapes = CASES[case]
    inputs = tuple(torch.randn(shape) for shape in shapes)
    module = fx.symbolic_trace(pattern)
    wl = Workload.from_fx(module, inputs)
    given = [pattern, replacement]
    if form != "functions":
        given = [fx.symbolic_trace(each) for each in given]
    if form == "graphs":
        given = [each.graph for each in given]
    rule = from_fx(*given, name=case)
    new = rule(wl)
    wl.compare(new).check()
    assert new.trace.count(case) == len(replace_pattern(fx.symbolic_trace(pattern), *given)) == 1
    exported = Workload.from_torch(Of(pattern), inputs)
    assert rule(exported).trace.count(case) == 1


@pytest.mark.filterwarnings("ignore::gsl.errors.UntypedWarning")
def test_a_rule_needs_no_types() -> None:
    wl = Workload.from_fx(fx.symbolic_trace(conv))
    assert from_fx(conv, conv_clamped)(wl).op_counts() == {"nn.conv2d": 1, "clip": 1}


def test_a_rule_finds_operands_in_the_other_order() -> None:
    def other(x: Tensor) -> Tensor:
        return x.sigmoid() * x

    module = fx.symbolic_trace(other)
    assert from_fx(swish, silu)(Workload.from_fx(module, (torch.randn(2),))).op_counts() == {"silu": 1}
    assert not replace_pattern(module, swish, silu)


def test_a_module_is_a_pattern() -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(3, 4)

        def forward(self, x: Tensor) -> Tensor:
            return F.relu(self.inner(x))

    class Clamped(Block):
        def forward(self, x: Tensor) -> Tensor:
            return self.inner(x).clamp(min=0)

    rule = from_fx(Block(), Clamped(), x="*b 3", name="block")
    wl = Workload.from_torch(Block(), (torch.randn(2, 3),))
    assert rule(wl).op_counts()["clip"] == 1


def test_several_outputs() -> None:
    rule = from_fx(both, both_softmax, name="both")
    wl = Workload.from_torch(Of(both), (torch.randn(3),))
    assert wl.op_counts()["exp"] == 2
    assert rule(wl).op_counts()["exp"] == 1


# Filters


def two(x: Tensor, y: Tensor) -> Tensor:
    return swish(x) + swish(y)


def test_a_filter_is_asked_about_nodes_of_the_graph() -> None:
    module = fx.symbolic_trace(two)

    def only_x(match: Any, graph: fx.Graph, pattern: fx.Graph) -> bool:
        assert graph is module.graph or graph.owning_module is not module
        (placeholder,) = pattern.find_nodes(op="placeholder")
        assert match.nodes_map[placeholder] is match.placeholder_nodes[0]
        assert match.nodes_map[match.anchors[0]] is match.returning_nodes[0]
        return bool(match.placeholder_nodes[0].name == "x")

    rule = from_fx(swish, silu, match_filters=[only_x], name="swish")
    wl = Workload.from_fx(module, (torch.randn(2), torch.randn(2)))
    assert rule(wl).trace.count("swish") == 1
    assert "only_x is false" in str(rule.explain(wl))
    theirs = fx.symbolic_trace(two)
    assert len(replace_pattern_with_filters(theirs, swish, silu, [only_x])) == 1


def test_a_filter_that_reads_more_refuses_with_the_reason() -> None:
    def deep(match: Any, graph: fx.Graph, pattern: fx.Graph) -> bool:
        return all(match.nodes_map[node] for node in pattern.nodes)

    rule = from_fx(swish, silu, match_filters=[deep], name="swish")
    wl = Workload.from_fx(fx.symbolic_trace(two))
    assert rule(wl).trace.count("swish") == 0
    assert "deep reads what a match does not have here" in str(rule.explain(wl))


# Errors


def flattened(x: Tensor) -> Tensor:
    return x.view(x.shape[0], 12).relu()


def unused(x: Tensor, y: Tensor) -> Tensor:
    return x.relu()


def branches(x: Tensor) -> Tensor:
    return x.relu() if x.sum() > 0 else x


@pytest.mark.parametrize(
    ("pattern", "replacement", "message"),
    [
        (flattened, flattened, "nothing is said of the shape of x, and none that was tried fits"),
        (unused, two, "two (test_subgraph.py:"),
        (branches, silu, "the function looks at the value of a tensor"),
        (swish, two, "before swish (test_subgraph.py:"),
    ],
)
def test_what_can_not_be_taken_over(pattern: Callable[..., Any], replacement: Any, message: str) -> None:
    with pytest.raises(ExchangeError) as error:
        from_fx(pattern, replacement)
    assert message in str(error.value)


def test_a_parameter_that_is_a_list_is_told_in_few_words() -> None:
    with pytest.raises(ExchangeError) as error:
        from_fx(lambda xs: torch.cat(xs).relu(), lambda xs: torch.cat(xs))
    assert "as in f(x, y): torch.cat([x, y])" in str(error.value)
    assert "shape" not in str(error.value)


@pytest.mark.parametrize("given", [3, torch.relu, None])
def test_what_has_no_parameters_is_told(given: Any) -> None:
    with pytest.raises(ExchangeError, match="a program is a function in Python, a module or a graph, got "):
        from_fx(given, silu)


def test_results_by_name_are_not_taken_by_their_order() -> None:
    def named(x: Tensor) -> Any:
        return {"a": torch.relu(x), "b": torch.tanh(x)}

    def turned(x: Tensor) -> Any:
        return {"b": torch.tanh(x), "a": torch.relu(x)}

    with pytest.raises(ExchangeError, match="returns a tensor or a tuple of tensors, but found a dict"):
        from_fx(named, turned)


def test_options_that_no_rule_has_and_filters_that_are_no_functions() -> None:
    with pytest.raises(ExchangeError, match="y= is no parameter of before swish"):
        from_fx(swish, silu, y="b n")
    with pytest.raises(ExchangeError, match="match_filters= is a list of functions of a match, got 3 among them"):
        from_fx(swish, silu, match_filters=[3])  # type: ignore[list-item]
