"""Whatever a new user hands in: it works, or the error says what was expected, what was found, and the mend."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import fx, nn

from gsl import Workload
from gsl.errors import FrontEndError, RewriteError
from tests.helpers.book import EVERY_RULE

X = torch.randn(2, 4)
IMAGE = torch.randn(1, 3, 6, 6)


def linear() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 4), nn.ReLU()).eval()


@pytest.mark.parametrize(("make", "message"), [
    (lambda: Workload.from_torch(torch.relu, (X,)), r"expected a torch\.nn\.Module.*forward of a torch\.nn\.Module"),
    (lambda: Workload.from_torch(nn.ReLU, (X,)), r"expected a torch\.nn\.Module, but got ReLU; .*ReLU\(…\)"),
    (lambda: Workload.from_torch(torch.export.export(linear(), (X,)), (X,)), r"Workload\.from_exported"),
    (lambda: Workload.from_fx(linear()), r"expected a torch\.fx\.GraphModule, but got Sequential; export"),
    (lambda: Workload.from_exported(linear()), r"expected a torch\.export\.ExportedProgram, but got Sequential"),
    (lambda: Workload.from_exported(fx.symbolic_trace(linear())), r"Workload\.from_fx"),
    (lambda: Workload(linear()), r"but got Sequential; export a module"),
    (lambda: Workload(3), r"no front end understands"),
    (lambda: Workload.from_fx(fx.symbolic_trace(linear()), (X, X)), r"expected 1 example inputs"),
])  # fmt: skip
def test_sources(make: Any, message: str) -> None:
    with pytest.raises(FrontEndError, match=message):
        make()


def test_a_rule_is_applied_to_a_workload() -> None:
    for subject in (linear(), fx.symbolic_trace(linear())):
        with pytest.raises(RewriteError, match=r"but got .*; make a workload with Workload\.from_torch"):
            EVERY_RULE(subject)


def test_one_example_input() -> None:
    assert Workload.from_fx(fx.symbolic_trace(linear()), X).op_counts()["nn.dense"] == 1


class Tied(nn.Module):
    """Two convolutions with one weight, of which one is normalised."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(3, 3, 3, bias=False), nn.Conv2d(3, 3, 3, bias=False)
        self.b.weight = self.a.weight
        self.n = nn.BatchNorm2d(3)
        self.n.running_var.uniform_(1, 2)

    def forward(self, x: torch.Tensor) -> Any:
        return self.n(self.a(x)), self.b(x + 1)


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(3))
        self.line = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count.add_(1)
        return self.line(x) * self.count


class Copies(nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        return x.clone(), x.contiguous(), x


class Complex(nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        return (x @ x.mT).abs(), torch.fft.fft(x).real, x * 1j


class Nested(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.line, self.drop = nn.Linear(4, 4), nn.Dropout()

    def forward(self, x: torch.Tensor, *, scale: torch.Tensor) -> Any:
        y = self.drop(self.line(x)) * scale
        return {"y": y, "z": (y + 1, [y * 2, None])}


class Tokens(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(10, 4)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.table(ids)


def net(*layers: nn.Module) -> nn.Module:
    return nn.Sequential(*layers)


MODELS: dict[str, tuple[nn.Module, tuple[torch.Tensor, ...], dict[str, Any]]] = {
    "tied weights": (Tied().eval(), (IMAGE,), {}),
    "training": (Tied().train(), (IMAGE,), {}),
    "dropout in training": (net(nn.Linear(4, 4), nn.Dropout(), nn.Linear(4, 4)).train(), (X,), {}),
    "no-ops": (net(nn.Linear(4, 4), nn.Identity(), nn.Dropout(), nn.ReLU()).eval(), (X,), {}),
    "buffer": (Counting().eval(), (X,), {}),
    "no parameters": (Copies().eval(), (X,), {}),
    "complex": (Complex().eval(), (torch.randn(2, 4, dtype=torch.complex64),), {}),
    "nested results and keywords": (Nested().eval(), (X,), {"scale": torch.tensor(2.0)}),
    "integers": (Tokens().eval(), (torch.tensor([1, 2]),), {}),
    "bfloat16": (net(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()).eval().bfloat16(), (IMAGE.bfloat16(),), {}),
    "half": (net(nn.Linear(4, 4), nn.LayerNorm(4), nn.Dropout()).eval().half(), (X.half(),), {}),
}


@pytest.mark.sweep(3)
@pytest.mark.parametrize("form", ["exported", "traced"])
@pytest.mark.parametrize("name", MODELS)
def test_models(name: str, form: str) -> None:
    model, args, kwargs = MODELS[name]
    if form == "exported":
        old = Workload.from_torch(model, args, kwargs)
    else:
        old = Workload.from_fx(fx.symbolic_trace(model), (*args, *kwargs.values()))
    state = {key: value.clone() for key, value in model.state_dict().items()}
    new = EVERY_RULE(old, iterative=True)
    old.compare(new).check()
    for key, value in model.state_dict().items():
        torch.testing.assert_close(value, state[key], rtol=0, atol=0)
    counts = new.op_counts()
    assert not {"nn.dropout", "copy"} & set(counts)


def test_folding_one_of_tied_weights_leaves_the_other() -> None:
    model, args, _ = MODELS["tied weights"]
    new = EVERY_RULE(Workload.from_torch(model, args), iterative=True)
    assert new.trace.count("conv-batch-norm") == 1
    kernels = [node.operands[1].attrs["value"] for node in new.graph if node.op == "nn.conv2d"]
    assert any(torch.equal(kernel, model.a.weight) for kernel in kernels)  # type: ignore[union-attr, arg-type]
    assert not all(torch.equal(kernel, model.a.weight) for kernel in kernels)  # type: ignore[union-attr, arg-type]
