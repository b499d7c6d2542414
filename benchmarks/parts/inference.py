"""Run times of the rewritten models of the demo, next to those of torch's own ways."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.fx.experimental.optimization import fuse
from torch.utils import _pytree as pytree

from benchmarks.measure import Different, Meter, in_turns
from benchmarks.section import Goal, Section
from demo.models import MODELS, Model
from gsl import RuleSet, Workload
from gsl.rules import BOOK, OPTIMISING

RUNS = 9
BEFORE, BY_BOOK, AFTER = "exported", "exported, by `BOOK`", "exported, by `OPTIMISING`"
FUSED, COMPILED = "`fuse` of torch.fx", "`torch.compile`"
COMPILED_AFTER = "by `OPTIMISING`, then `torch.compile`"
TOLERANCE = 2e-3
"""By how much an output may differ, relative to the largest number in it."""
NOISE = 0.98
"""The least factor by which a form is as fast as the export that is not slower: the rest is noise."""
Call = Callable[[], Any]


def callables(model: Model) -> dict[str, Call | str]:
    """The model in all its forms, ready to run; a text says why a form is missing."""
    torch.manual_seed(0)
    torch._dynamo.reset()
    module, inputs = model.make(), model.inputs()
    old = Workload.from_torch(module, inputs, name=model.name)
    eager = old.exported.module()
    by_book, rewritten = (rules(old, iterative=True).exported.module() for rules in (BOOK, RuleSet(OPTIMISING)))
    return {
        BEFORE: lambda: eager(*inputs),
        BY_BOOK: lambda: by_book(*inputs),
        AFTER: lambda: rewritten(*inputs),
        FUSED: _fused(module, inputs),
        COMPILED: _compiled(module, inputs),
        COMPILED_AFTER: _compiled(rewritten, inputs),
    }


def _fused(module: torch.nn.Module, inputs: Any) -> Call | str:
    if not any(isinstance(part, torch.nn.BatchNorm2d) for part in module.modules()):
        return "no batch norms"
    try:
        result = fuse(module)
    except Exception as error:
        return f"can't be traced ({type(error).__name__})"
    return lambda: result(*inputs)


def _compiled(module: torch.nn.Module, inputs: Any) -> Call | str:
    compiled = torch.compile(module)
    try:
        compiled(*inputs)
    except Exception as error:
        return f"fails ({type(error).__name__})"
    return lambda: compiled(*inputs)


def require_close(name: str, found: Any, expected: Any) -> None:
    """Raise Different unless the outputs are close; of a mapping or a record, those in order."""
    for new, old in zip(_tensors(found), _tensors(expected), strict=True):
        bound = TOLERANCE * float(old.abs().max()) + 1e-6
        if float((new - old).abs().max()) > bound:
            raise Different(f"{name}: the outputs differ by {(new - old).abs().max():.1e}, allowed are {bound:.1e}")


def _tensors(result: Any) -> list[torch.Tensor]:
    values = list(result.values()) if isinstance(result, Mapping) else result
    return [leaf for leaf in pytree.tree_leaves(values) if isinstance(leaf, torch.Tensor)]


def measure(model: Model) -> dict[str, float | str]:
    """The median milliseconds of the forms of a model, which run in turn."""
    with torch.no_grad():
        calls = callables(model)
        ready = {name: call for name, call in calls.items() if not isinstance(call, str)}
        expected = ready[BEFORE]()
        for name, call in ready.items():
            require_close(f"{model.name}, {name}", call(), expected)
        taken = in_turns(ready, RUNS)
    found: dict[str, float | str] = {name: call for name, call in calls.items() if isinstance(call, str)}
    return found | {name: statistics.median(times) for name, times in taken.items()}


def run(meter: Meter, largest: int) -> Section:
    """All models of the demo."""
    section = Section("Rewritten models")
    names = (BEFORE, BY_BOOK, AFTER, FUSED, COMPILED, COMPILED_AFTER)
    lines = []
    gains: list[tuple[float, str]] = []
    for model in MODELS:
        found = measure(model)
        print(f"{model.name}: {found}", flush=True)
        gains.append((float(found[BEFORE]) / float(found[BY_BOOK]), model.name))
        lines.append([model.name, *(_shown(found[name], found[BEFORE]) for name in names)])
    section.table(["model", *names], lines)
    least, slowest = min(gains)
    section.goals.append(
        Goal(f"`BOOK`, {len(gains)} models", "never slower than the export",
             f"at least {least:.2f} × as fast ({slowest})", least >= NOISE)
    )  # fmt: skip
    section.add(
        f"""Milliseconds of one inference (wall time, median of {RUNS}, the forms in turn, {torch.get_num_threads()}
        threads), and how many times that of the export it is. `BOOK` and `OPTIMISING` are rule sets of GSL, applied
        until none of their rules fires. `torch.fx.experimental.optimization.fuse` folds batch norms into convolutions.
        All outputs were compared."""
    )
    return section


def _shown(value: float | str, base: float | str) -> str:
    if isinstance(value, str) or isinstance(base, str):
        return str(value)
    return f"{value:.1f}" if value is base else f"{value:.1f} ({value / base:.2f} ×)"
