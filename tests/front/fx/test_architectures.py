"""Exact round trips of many architectures: as exported, decomposed, and as modules."""

from __future__ import annotations

import functools
import io
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final

import pytest
import torch
from fx_helpers import Attention, ConvNet, Stateful, differences
from torch import nn
from torch.export import ExportedProgram

from gsl.front import fx
from gsl.graph import LEAVES, Graph, Node, op_name
from tests.helpers import models
from tests.helpers.models import MODELS

ARCHITECTURES: Final[Mapping[str, Callable[[], tuple[nn.Module, torch.Tensor]]]] = {
    **MODELS,
    "attention": lambda: (Attention(), torch.randn(2, 6, 8)),
    "conv_net": lambda: (ConvNet(), torch.randn(2, 3, 8, 8)),
    "stateful": lambda: (Stateful(), torch.arange(6)),
}


@functools.cache
def exported(name: str) -> tuple[ExportedProgram, torch.Tensor]:
    if name in MODELS:
        found = models.exported(name)
        assert found.example_inputs is not None
        return found, found.example_inputs[0][0]
    torch.manual_seed(0)
    model, value = ARCHITECTURES[name]()
    return torch.export.export(model.eval(), (value,)), value


@functools.cache
def decomposed(name: str) -> ExportedProgram:
    return models.decomposed(name) if name in MODELS else exported(name)[0].run_decompositions()


def check(program: Any, value: torch.Tensor) -> Any:
    """Load and store, compare both programs, and their results on an input."""
    before = program.load()
    stored = program.store(before.copy())
    assert differences(program.native, stored.native) == []
    # A second load finds the same view.
    assert str(stored.load()) == str(before)
    return stored


def results(program: Any, value: torch.Tensor) -> list[Any]:
    state = {name: tensor.detach().clone() for name, tensor in program.params.items()}
    with torch.no_grad():
        found = torch.utils._pytree.tree_leaves(program.build()(value))
        for name, tensor in program.params.items():
            tensor.copy_(state[name])
    return found


def same_results(old: Any, new: Any, value: torch.Tensor) -> None:
    for a, b in zip(results(old, value), results(new, value), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)


@pytest.mark.sweep(3)
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_exported(name: str) -> None:
    ep, value = exported(name)
    program = fx.from_exported(ep)
    same_results(program, check(program, value), value)


@pytest.mark.sweep(6)
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_decomposed(name: str) -> None:
    _, value = exported(name)
    check(fx.from_exported(decomposed(name)), value)


@pytest.mark.sweep(3)
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_module(name: str) -> None:
    ep, value = exported(name)
    program = fx.from_graph_module(ep.module(check_guards=False), [value])
    check(program, value)


def made_anew(view: Graph) -> Graph:
    """A copy of a view in which a rewrite seems to have made every canonical call."""
    copy = view.copy()
    for node in copy.nodes:
        if isinstance(node.op, str) and node.op not in LEAVES:
            node.native = None
    return copy


FORMS: Final[Mapping[str, Callable[[str], Any]]] = {
    "exported": lambda name: fx.from_exported(exported(name)[0]),
    "decomposed": lambda name: fx.from_exported(decomposed(name)),
    "module": lambda name: fx.from_graph_module(exported(name)[0].module(check_guards=False), [exported(name)[1]]),
}
AS_MODULES: Final = ("conv_net", "attention", "stateful", "swin", "bert", "llama")
"""A module of an exported program has the calls of the program: a few of them tell."""
MADE_ANEW: Final = [
    pytest.param(name, form, marks=() if form == "exported" or name in AS_MODULES else pytest.mark.long)
    for name in ARCHITECTURES for form in FORMS if form != "module" or name in AS_MODULES
]  # fmt: skip


@pytest.mark.sweep(3)
@pytest.mark.parametrize(("name", "form"), MADE_ANEW)
def test_every_call_made_anew(name: str, form: str) -> None:
    """All canonical calls are written instead of copied: the results and the view are the same."""
    _, value = exported(name)
    program = FORMS[form](name)
    view = program.load()
    stored = program.store(made_anew(view))
    for a, b in zip(results(program, value), results(stored, value), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
    assert Counter(map(op_of, stored.load().nodes)) == Counter(map(op_of, view.nodes))


def op_of(node: Node) -> str:
    return op_name(node.op)


DYNAMIC: Final = {"attention": (0, 1), "conv_net": (0,), "bert": (1,), "gpt2": (1,), "vit": (0,)}


@pytest.mark.sweep(12)
@pytest.mark.parametrize("name", DYNAMIC)
def test_symbolic_sizes_made_anew(name: str) -> None:
    """The same with symbolic sizes; the new program is saved, decomposed, and run at other sizes."""
    model, value = ARCHITECTURES[name]()
    axes = DYNAMIC[name]
    if 0 in axes:
        value = torch.cat([value, value])
    sizes = dict.fromkeys(axes, torch.export.Dim.DYNAMIC)
    program = fx.from_exported(torch.export.export(model.eval(), (value,), dynamic_shapes=(sizes,)))
    check(program, value)
    stored = program.store(made_anew(program.load()))
    buffer = io.BytesIO()
    torch.export.save(stored.native, buffer)
    buffer.seek(0)
    loaded = fx.from_exported(torch.export.load(buffer))
    decomposed = fx.from_exported(stored.native.run_decompositions())
    check(decomposed, value)
    for axis in axes:
        value = torch.cat([value, value], dim=axis)
    for other in (stored, loaded, decomposed):
        for a, b in zip(results(program, value), results(other, value), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
