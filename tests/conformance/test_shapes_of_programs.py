"""Programs of every outward shape: tuples, several outputs, unused inputs, shared weights."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from gsl import Subst, Workload, op, pat
from gsl.graph import PARAM, Node
from gsl.rules import RULES
from gsl.workload.compare import flatten, plain_tensor
from tests.conformance.front_ends import AVAILABLE, FrontEnd
from tests.conformance.programs import plain, program_of
from tests.rules.harness import Build, build, inputs, run

EACH = pytest.mark.parametrize("front_end", AVAILABLE, ids=lambda front_end: front_end.name)

X = pat.Wildcard()
RULE = Subst(op.Sin(op.Negative(X)), op.Negative(op.Sin(X)), name="sin-of-negative")


def turned(b: Build, x: Node) -> Node:
    """Where the rule fires."""
    return b.call("sin", b.call("negative", x))


def several_outputs(b: Build) -> list[Node]:
    x = b.input("x", 2, 3)
    return [turned(b, x), b.call("cos", x), b.call("sum", x, axis=1)]


def one_node_as_two_outputs(b: Build) -> list[Node]:
    y = turned(b, b.input("x", 2, 3))
    return [y, b.call("cos", y), y]


def an_input_as_output(b: Build) -> list[Node]:
    x, y = b.input("x", 2, 3), b.input("y", 2, 3)
    return [turned(b, x), y, x]


def an_unused_input(b: Build) -> Node:
    b.input("first", 4)
    x = b.input("x", 2, 3)
    b.input("last", 2, 3)
    return turned(b, x)


def a_weight_as_output(b: Build) -> list[Node]:
    w = b.param("w", 2, 3)
    return [turned(b, b.call("add", b.input("x", 2, 3), w)), w]


def fields_of_a_split(b: Build) -> list[Node]:
    parts = b.call("split", b.input("x", 2, 6), indices_or_sections=(1, 3), axis=1)
    first, second, third = (b.get(parts, i) for i in range(3))
    joined = b.call("concatenate", b.tuple(third, turned(b, first), third), axis=1)
    return [joined, second]


def nothing_but_weights(b: Build) -> list[Node]:
    return [turned(b, b.param("w", 2, 3)), b.call("exp", b.input("x", 2))]


def a_long_chain(b: Build) -> Node:
    x = turned(b, b.input("x", 2, 3))
    for _ in range(300):
        x = b.call("cos", x)
    return x


PROGRAMS: dict[str, Callable[[Build], Node | list[Node]]] = {
    make.__name__: make
    for make in (
        several_outputs, one_node_as_two_outputs, an_input_as_output, an_unused_input, a_weight_as_output,
        fields_of_a_split, nothing_but_weights, a_long_chain,
    )
}  # fmt: skip


def values(workload: Workload, fed: dict[str, torch.Tensor]) -> list[torch.Tensor]:
    return [plain_tensor(value) for _, value in flatten(workload(*fed.values()))]


@pytest.mark.sweep(5)
@EACH
@pytest.mark.parametrize("name", PROGRAMS)
def test_runs_comes_back_and_is_rewritten(name: str, front_end: FrontEnd) -> None:
    view = build(PROGRAMS[name])
    before = Workload(program_of(view, front_end))
    assert list(before.inputs) == [node.name for node in view.nodes if node.op == "input"]
    assert plain(before.graph) == plain(view)
    again = before.program.store(before.program.load())
    assert not front_end.differences(before.native, again.native)
    after = RULE(before, fold_params=False)
    assert len(after.trace.firings) == 1
    assert list(after.inputs) == list(before.inputs)
    assert plain(after.graph) == plain(RULE(view))
    fed = inputs(view)
    expected = run(view, fed)
    for workload in (before, after):
        for found, value in zip(values(workload, fed), expected, strict=True):
            torch.testing.assert_close(found, value, rtol=1e-10, atol=1e-12)


def shared_weight(b: Build) -> list[Node]:
    w = b.param("w", 4, 3, 3, 3)
    first = b.call("nn.conv2d", b.input("x", 2, 3, 5, 6), w, padding=1)
    scaled = b.call("multiply", first, b.param("c", 4, 1, 1))
    return [scaled, b.call("nn.conv2d", b.input("y", 1, 3, 4, 4), w)]


@EACH
def test_folding_a_shared_weight_leaves_its_other_use_alone(front_end: FrontEnd) -> None:
    before = Workload(program_of(build(shared_weight), front_end))
    native = {name: plain_tensor(value).clone() for name, value in before.params.items()}
    after = RULES["conv-multiply"](before)
    assert "multiply" not in after.op_counts()
    assert len([node for node in after.graph.nodes if node.op == PARAM]) == 2
    before.compare(after, rtol=1e-10).check()
    for name, value in before.params.items():
        assert torch.equal(plain_tensor(value), native[name])
