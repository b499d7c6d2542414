"""The front page of the README, on every form in which torch has a graph."""

from __future__ import annotations

import io
import warnings
from typing import Any

import pytest
import torch
from torch import fx, nn
from torch.export import ExportedProgram

from gsl import *
from gsl.errors import UntypedWarning
from gsl.graph import SymDim
from tests.acceptance.harness import workload

x = pat.Wildcard(); w1 = pat.Variable(); w2 = pat.Variable(shape=w1.shape)  # noqa: E702
conv1 = op.Conv2D(x, w1)
conv2 = op.Conv2D(x, w2, **pat.same_attr(conv1, ["strides", "padding", "dilation", "groups"]))
subst = Subst(conv1 + conv2, op.Conv2D(x, w1 + w2, **pat.same_attr(conv1, ["strides", "padding", "dilation", "groups"])))  # noqa: E501

example = torch.randn(2, 3, 8, 8)
data = torch.randn(2, 3, 8, 8)


class Branches(nn.Module):
    """Two convolutions of one input, and something before and behind them."""

    def __init__(self) -> None:
        super().__init__()
        self.left = nn.Conv2d(3, 4, 3, padding=1, bias=False)
        self.right = nn.Conv2d(3, 4, 3, padding=1, bias=False)
        self.head = nn.Linear(4, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.tanh(x)
        return self.head(torch.relu(self.left(y) + self.right(y)).mean((2, 3)))


def convolutions(gm: Any) -> int:
    """The convolutions that a GraphModule calls."""
    modules = dict(gm.named_modules())
    return sum(
        "conv" in str(node.target) if node.op != "call_module" else isinstance(modules[node.target], nn.Conv2d)
        for node in gm.graph.nodes
        if node.op in ("call_function", "call_method", "call_module")
    )


@pytest.mark.parametrize("form", ["exported", "decomposed", "traced", "untyped", "compiled"])
def test_front_page(form: str) -> None:
    model = Branches().eval()
    wl = workload(model, (example,), form)
    before = wl.text()
    if form == "untyped":
        with pytest.warns(UserWarning, match="type"):
            new = subst(wl)
        # Without example inputs there are shapes of weights only, which is all that the rule reads.
        assert new.trace.count() == 1
    else:
        new = subst(wl)
    assert wl.text() == before
    assert convolutions(wl.mod) == 2
    assert isinstance(new.mod, fx.GraphModule)
    assert convolutions(new.mod) == 1
    assert "conv" in str(new.mod.code)
    new.build()
    if form == "compiled":
        # The weights are inputs of the graph.
        wl.compare(new).check()
        return
    with torch.no_grad():
        torch.testing.assert_close(new(x=data), model(data), rtol=1e-4, atol=1e-5)
    wl.compare(new, (data,)).check()


@pytest.mark.parametrize("decomposed", [False, True])
def test_an_exported_program_comes_back(decomposed: bool) -> None:
    """With its signature, parameter names and values in the metadata; it is saved, loaded and run again."""
    model = Branches().eval()
    ep = torch.export.export(model, (example,))
    wl = Workload.from_exported(ep.run_decompositions() if decomposed else ep)
    new = subst(wl)
    back = new.exported
    assert isinstance(back, ExportedProgram)
    assert isinstance(wl.exported, ExportedProgram)
    names = set(back.state_dict)
    assert {"head.weight", "head.bias"} < names
    assert not {"left.weight", "right.weight"} & names
    assert len(names) == 3
    assert set(wl.exported.state_dict) == set(model.state_dict())
    assert back.graph_signature.user_inputs == wl.exported.graph_signature.user_inputs
    assert len(back.graph_signature.user_outputs) == 1
    for node in back.graph.nodes:
        assert node.op == "output" or node.meta.get("val") is not None, node
    made = [node for node in back.graph.nodes if "gsl" in node.meta and node.op == "call_function"]
    assert made
    assert all(node.meta["gsl"]["rule"] == subst.name for node in made)
    buffer = io.BytesIO()
    torch.export.save(back, buffer)
    buffer.seek(0)
    loaded = torch.export.load(buffer)
    with torch.no_grad():
        torch.testing.assert_close(loaded.module()(data), model(data), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(
            back.run_decompositions().module()(data), model(data), rtol=1e-4, atol=1e-5
        )
    wl.compare(Workload(loaded)).check()


@pytest.mark.parametrize("decomposed", [False, True])
def test_dynamic_sizes_stay_symbolic(decomposed: bool) -> None:
    model = Branches().eval()
    batch = torch.export.Dim("batch", min=2, max=64)
    height = torch.export.Dim("height", min=4, max=64)
    ep = torch.export.export(model, (example,), dynamic_shapes=({0: batch, 2: height},))
    wl = Workload(ep.run_decompositions() if decomposed else ep)
    new = subst(wl)
    assert convolutions(new.mod) == 1
    (conv,) = (node for node in new.graph if node.op == "nn.conv2d")
    assert conv.shape is not None
    assert isinstance(conv.shape[0], SymDim)
    assert isinstance(conv.shape[2], SymDim)
    assert conv.shape[1] == 4
    assert conv.shape[3] == 8
    assert new.exported.range_constraints == wl.exported.range_constraints
    for size in ((2, 3, 8, 8), (5, 3, 4, 8), (17, 3, 31, 8)):
        value = torch.randn(size)
        with torch.no_grad():
            torch.testing.assert_close(new(x=value), model(value), rtol=1e-4, atol=1e-5)
    buffer = io.BytesIO()
    torch.export.save(new.exported, buffer)
    buffer.seek(0)
    value = torch.randn(7, 3, 6, 8)
    with torch.no_grad():
        torch.testing.assert_close(torch.export.load(buffer).module()(value), model(value), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dynamic", [False, True])
def test_as_a_back_end_of_torch_compile(dynamic: bool) -> None:
    """The graph and example inputs that torch.compile hands over are all that is needed."""
    model = Branches().eval()
    seen: list[Workload] = []

    def backend(gm: fx.GraphModule, example_inputs: list[Any]) -> Any:
        new = subst(Workload.from_fx(gm, example_inputs))
        seen.append(new)
        return new.mod

    torch._dynamo.reset()
    fast = torch.compile(model, backend=backend, dynamic=dynamic)
    with torch.no_grad():
        for batch in (2, 3, 5):
            value = torch.randn(batch, 3, 8, 8)
            torch.testing.assert_close(fast(value), model(value), rtol=1e-4, atol=1e-5)
    assert seen
    assert all(convolutions(new.mod) == 1 for new in seen)


def test_with_gradients_as_a_back_end() -> None:
    """A rewrite of the forward graph that makes no new weights ahead of time keeps the gradients."""
    model = nn.Sequential(nn.Linear(4, 4), nn.SiLU())
    y = pat.Wildcard()
    lower = Subst(op.SiLU(y), y * op.Sigmoid(y))

    def backend(gm: fx.GraphModule, example_inputs: list[Any]) -> Any:
        return lower(Workload.from_fx(gm, example_inputs), fold_params=False).mod

    torch._dynamo.reset()
    value = torch.randn(3, 4)
    torch.compile(model, backend=backend)(value).sum().backward()
    found = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    model.zero_grad()
    model(value).sum().backward()
    for a, b in zip(found, (p.grad for p in model.parameters()), strict=True):
        torch.testing.assert_close(a, b)


def test_untyped_graphs_say_what_is_not_checked() -> None:
    model = Branches().eval()
    with warnings.catch_warnings():
        warnings.simplefilter("error", UntypedWarning)
        subst(workload(model, (example,), "traced"))
    with pytest.warns(UntypedWarning, match="example inputs"):
        subst(workload(model, (example,), "untyped"))
