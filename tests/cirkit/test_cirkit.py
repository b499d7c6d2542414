"""cirkit's optimisation rules, written in GSL, against cirkit's own optimiser on real circuits."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from cirkit.backend.torch.circuits import TorchCircuit
from cirkit.backend.torch.compiler import TorchCompiler, _optimize_circuit
from cirkit.backend.torch.layers.optimized import TorchCPTLayer

from gsl import RuleSet, Workload, alternate
from tests.cirkit import rules
from tests.cirkit.cases import CASES, STATES, chain, image, modulus, output_within, power
from tests.cirkit.circuits import Item, circuit, torch_circuit
from tests.cirkit.same import rows

STEPS = 5
"""After how many steps cirkit's compiler stops."""


@pytest.fixture(autouse=True)
def _exact() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(0)
    yield
    torch.set_default_dtype(torch.float32)


def compiled(symbolic: Any, semiring: str = "sum-product") -> tuple[TorchCompiler, TorchCircuit, Any]:
    """A compiled circuit that nothing has optimised yet, and an input for it."""
    compiler = TorchCompiler(semiring)
    made = compiler.compile_pipeline(symbolic)
    if not made.scope:
        return compiler, made, None
    size = max(made.scope) + 1
    real = any(type(layer).__name__ == "TorchGaussianLayer" for layer in made.layers)
    return compiler, made, torch.randn(4, size) if real else torch.randint(STATES, (4, size))


def optimised(compiler: TorchCompiler, source: TorchCircuit) -> tuple[Workload, TorchCircuit]:
    """A circuit to which the rules of GSL were applied, as cirkit's compiler applies its own."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        new = alternate(rules.turns(), circuit(source, compiler), max_steps=STEPS)
    return new, torch_circuit(new.native, source)


def case(name: str) -> tuple[TorchCompiler, TorchCircuit, Any]:
    """A circuit of the table, compiled."""
    semiring, make = CASES[name]
    return compiled(make(), semiring)


@pytest.mark.parametrize("name", CASES)
def test_layers_and_outputs_are_those_of_cirkit(name: str) -> None:
    compiler, source, x = case(name)
    before, expected = rows(source), source(x)
    _, ours = optimised(compiler, source)
    assert rows(source) == before  # rules leave the circuit as it was, cirkit changes it
    theirs = _optimize_circuit(compiler, source, max_opt_steps=STEPS)
    assert rows(ours) == rows(theirs)
    close(ours(x), expected)
    close(ours(x), theirs(x))


def close(found: torch.Tensor, expected: torch.Tensor) -> None:
    """Fail unless numbers are equal up to rounding. They may be tiny, so their difference says nothing by itself."""
    assert bool(expected.abs().min() > 0)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=0.0)


def test_a_layer_that_is_an_output_stays() -> None:
    """Cirkit's own optimiser looks at the users of a layer only, and loses this one."""
    compiler, source, x = compiled(output_within())
    expected = source(x)
    _, ours = optimised(compiler, source)
    assert rows(ours) == rows(source)
    assert rows(_optimize_circuit(compiler, source)) != rows(ours)
    close(ours(x), expected)


def test_complex_weights() -> None:
    compiler, source, x = compiled(modulus(), "complex-lse-sum")
    expected = source(x)
    _, ours = optimised(compiler, source)
    assert rows(ours) == rows(_optimize_circuit(compiler, source))
    close(ours(x).exp(), expected.exp())


@pytest.mark.parametrize(
    ("name", "fired"),
    [
        ("cp, quad tree", {"candecomp"}),
        ("square, tucker", {"dense", "tucker"}),
        ("cube", {"dense", "tensordot"}),
        ("square, cp", {"parameters", "dense"}),
        ("5 sums", {"sum_collapse", "candecomp"}),
    ],
)
def test_the_table_reaches_every_rule(name: str, fired: set[str]) -> None:
    compiler, source, _ = case(name)
    assert set(optimised(compiler, source)[0].trace.summary()) == fired


@pytest.mark.parametrize(
    ("name", "rule"),
    [("exp of log of softmax", "log_softmax"), ("outer product along 1, sum over 1", "sum_of_outer_product")],
)
def test_the_table_reaches_every_rule_of_parameters(name: str, rule: str) -> None:
    compiler, source, _ = case(name)
    graphs = [value for node in circuit(source, compiler).graph for value in node.attrs.values()]
    assert any(any(rules.parameters()[rule].match(graph)) for graph in graphs if isinstance(graph, Workload))


def test_the_compiler_makes_the_same_layers() -> None:
    symbolic = image("quad-tree-2", "tucker", "embedding", size=2)
    compiler, source, _ = compiled(power(symbolic, 2))
    theirs = TorchCompiler(optimize=True).compile_pipeline(power(symbolic, 2))
    assert rows(optimised(compiler, source)[1], weights=False) == rows(theirs, weights=False)


@pytest.mark.parametrize("strategy", ["largest", "first"])
def test_the_strategy_matters(strategy: str) -> None:
    """Rows of another choice of matches differ, so the comparison can fail."""
    compiler, source, x = compiled(chain(2))
    turns = [RuleSet(turn, strategy=strategy) if isinstance(turn, RuleSet) else turn for turn in rules.turns()]
    ours = torch_circuit(alternate(turns, circuit(source, compiler), max_steps=STEPS).native, source)
    close(ours(x), source(x))
    assert rows(ours) != rows(_optimize_circuit(compiler, source))


def test_layers_that_no_rule_touches_are_the_same_objects() -> None:
    compiler, source, _ = compiled(image("quad-graph", "cp", size=3))
    _, ours = optimised(compiler, source)
    made = {layer for layer in ours.layers if layer not in set(source.layers)}
    assert {type(layer) for layer in made} == {TorchCPTLayer}
    weights = {parameter for layer in source.layers for parameter in layer.parameters()}
    assert {parameter for layer in ours.layers for parameter in layer.parameters()} == weights


def test_without_a_number_of_steps_nothing_fires_in_the_end() -> None:
    compiler, source, x = compiled(chain(7))
    new = alternate(rules.turns(), circuit(source, compiler))
    assert not any(rule.explain(new) for turn in rules.turns()[1:] for rule in turn)
    close(torch_circuit(new.native, source)(x), source(x))


def test_a_workload_of_a_circuit_runs_and_compares() -> None:
    compiler, source, x = compiled(image("quad-tree-2", "tucker", size=2))
    wl = circuit(source, compiler)
    new = alternate(rules.turns(), wl, max_steps=STEPS)
    close(new(x), source(x).detach())
    assert wl.compare(new, [x]).passed
    root = new.native[0]
    assert not wl.compare(circuit(torch_circuit([Item(root.module, root.inputs[::-1])], source), compiler), [x]).passed
