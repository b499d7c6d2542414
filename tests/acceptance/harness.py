"""Programs of torch in all the forms in which they are loaded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx, nn

from gsl import Workload
from tests.helpers.nets import Net

FORMS = ("exported", "decomposed", "traced", "untyped", "compiled")
"""As exported, decomposed, traced with example inputs and without, and as ``torch.compile`` hands it to a back end."""


def signature(count: int) -> type[Net]:
    """A class of nets with so many inputs, named x, y, z: tracers and exports take the names from the signature."""
    names = ", ".join("xyz"[:count])
    space: dict[str, Any] = {"Net": Net}
    exec(f"class Named(Net):\n    def forward(self, {names}):\n        return self.function(self, {names})", space)
    return space["Named"]  # type: ignore[no-any-return]


def net(function: Callable[..., Any], count: int = 1, **layers: Any) -> nn.Module:
    """A module in inference."""
    return signature(count)(function, **layers).eval()


def workload(model: nn.Module, inputs: tuple[torch.Tensor, ...], form: str = "exported") -> Workload:
    """The workload of a module in one of the forms."""
    if form == "exported":
        return Workload.from_torch(model, inputs)
    if form == "decomposed":
        return Workload(torch.export.export(model, inputs).run_decompositions())
    if form == "compiled":
        return compiled(model, inputs)
    traced = fx.symbolic_trace(model)
    return Workload.from_fx(traced, inputs if form == "traced" else None)


def compiled(model: nn.Module, inputs: tuple[torch.Tensor, ...]) -> Workload:
    """The workload of the graph that ``torch.compile`` makes of a module."""
    found: list[Workload] = []

    def backend(gm: fx.GraphModule, example_inputs: list[Any]) -> Any:
        found.append(Workload.from_fx(gm, example_inputs))
        return gm

    torch._dynamo.reset()
    with torch.no_grad():
        torch.compile(model, backend=backend)(*inputs)
    (workload,) = found
    return workload


def agree(old: Workload, new: Workload, inputs: tuple[torch.Tensor, ...] | None = None) -> None:
    """The numbers of both are equal; a workload without types needs the inputs."""
    old.compare(new, inputs).check()
