"""The whole rule book on models of many architectures: it comes to an end, and the numbers stay equal."""

from __future__ import annotations

from typing import Any

import pytest

from gsl import RuleSet, Workload
from gsl.rules import BOOK, OPTIMISING, RULES
from tests.helpers.book import EVERY_RULE
from tests.helpers.models import decomposed, exported

NAMES = (
    "resnet", "mobilenet_v2", "convnext", "vit", "swin", "bert", "gpt2", "llama", "t5_encoder", "whisper_encoder",
    "mixtral", "albert", "distilbert", "segformer",
)  # fmt: skip

EXPECTED: dict[str, set[str]] = {
    "resnet": {"conv-batch-norm"},
    "mobilenet_v2": {"conv-batch-norm"},
    "convnext": {"lower-layer-norm"},
    "vit": {"parallel-dense-bias-variadic", "dropout-identity", "lower-layer-norm"},
    "swin": {"parallel-dense-bias-variadic", "dropout-identity"},
    "bert": {"parallel-dense-bias-variadic", "dropout-identity"},
    "gpt2": {"dropout-identity", "lower-layer-norm"},
    "llama": {"parallel-dense-variadic"},
    "t5_encoder": {"parallel-dense-variadic", "dropout-identity"},
    "whisper_encoder": {"qkv-without-key-bias", "dropout-identity"},
    "mixtral": {"parallel-dense-variadic"},
}
"""Rules that fire on a model as exported."""


@pytest.mark.sweep(3)
@pytest.mark.parametrize("name", NAMES)
def test_exported(name: str) -> None:
    old = Workload(exported(name), name=name)
    new = EVERY_RULE(old, iterative=True)
    fired = {firing.rule for firing in new.trace.firings}
    assert EXPECTED.get(name, set()) <= fired
    assert "nn.dropout" not in new.op_counts()
    old.compare(new).check()
    assert new.trace.count() > 0
    # Nothing is left to do.
    assert EVERY_RULE(new, iterative=True).trace.count() == 0


@pytest.mark.sweep(6)
@pytest.mark.parametrize("name", NAMES)
def test_decomposed(name: str) -> None:
    old = Workload(decomposed(name), name=name)
    new = EVERY_RULE(old, iterative=True)
    old.compare(new).check()


@pytest.mark.sweep(3)
@pytest.mark.parametrize("name", NAMES)
def test_the_book_never_enlarges_a_program(name: str) -> None:
    never_enlarged(Workload(exported(name), name=name))


@pytest.mark.sweep(6)
@pytest.mark.parametrize("name", NAMES)
def test_the_book_never_enlarges_a_decomposed_program(name: str) -> None:
    never_enlarged(Workload(decomposed(name), name=name))


def never_enlarged(old: Workload) -> None:
    new = BOOK(old, iterative=True)
    assert calls(new) <= calls(old)
    old.compare(new).check()


def calls(wl: Workload) -> int:
    """How many calls of torch there are."""
    return sum(node.op == "call_function" for node in wl.exported.graph.nodes)


@pytest.mark.sweep(3)
@pytest.mark.parametrize("name", NAMES)
def test_optimised_as_a_module(name: str) -> None:
    """The module of the program, with the rules that only save work."""
    module: Any = exported(name).module(check_guards=False)
    old = Workload.from_fx(module, exported(name).example_inputs[0], name=name)
    new = RuleSet(OPTIMISING)(old, iterative=True)
    assert {firing.rule for firing in new.trace.firings} <= set(RULES)
    assert sum(new.op_counts().values()) <= sum(old.op_counts().values())
    old.compare(new).check()
