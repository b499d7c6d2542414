"""The same networks on all front ends: they agree, before the rule book and after it, and for every size."""

from __future__ import annotations

from typing import Any

import pytest
import sympy
import torch

from gsl import Workload
from gsl.graph import PARAM, Graph, Node
from gsl.workload.compare import flatten, plain_tensor
from tests.conformance.front_ends import AVAILABLE, FX, FrontEnd
from tests.conformance.programs import plain, program_of, single, with_sizes, write
from tests.helpers.book import EVERY_RULE
from tests.rules.cases_layout import B, S
from tests.rules.harness import Build, build, inputs, run
from tests.rules.test_book import VIEWS

OTHERS = pytest.mark.parametrize("front_end", AVAILABLE[1:], ids=lambda front_end: front_end.name)
NETWORKS = ("residual", "inception", "transformer", "sums")


def workload(view: Graph, front_end: FrontEnd) -> Workload:
    return Workload(program_of(view, front_end), name=front_end.name)


@pytest.mark.sweep(3)
@OTHERS
@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_is_the_same_on_two_front_ends(name: str, front_end: FrontEnd) -> None:
    view, rtol = build(VIEWS[name]), 1e-9
    if name in front_end.listed("single"):
        view, rtol = single(view), 3e-5
    if name in front_end.listed("coarse"):
        rtol = 1e-6
    one, other = workload(view, FX), workload(view, front_end)
    one.compare(other, rtol=rtol).check()
    one.compare(EVERY_RULE(other, iterative=True), rtol=rtol).check()


@pytest.mark.sweep(4)
@OTHERS
def test_another_weight_is_found(front_end: FrontEnd) -> None:
    view = build(VIEWS["residual"])
    one = workload(view, FX)
    weight = next(node for node in view.nodes if node.op == PARAM)
    weight.attrs = {"value": weight.attrs["value"] + 1e-4}
    assert not one.compare(workload(view, front_end), rtol=1e-10)


def dynamic(b: Build, size: Any = S) -> list[Node]:
    """A network for images of some size, or any, in batches of any size."""
    x = b.input("x", B, 3, size, size)
    y = b.norm(b.bias(b.call("nn.conv2d", x, b.param("w", 4, 3, 3, 3), padding=1), "b"), 4)
    flat = b.call("reshape", b.call("nn.relu", y), newshape=(B, 4, -1))
    return [y, b.call("nn.dense", b.call("mean", flat, axis=2), b.param("v", 5, 4))]


SYMBOLIC = [front_end for front_end in AVAILABLE if front_end.symbolic]


@pytest.mark.sweep(3)
@pytest.mark.parametrize("front_end", SYMBOLIC, ids=lambda front_end: front_end.name)
def test_a_network_of_symbolic_sizes(front_end: FrontEnd) -> None:
    hand_made = build(dynamic if front_end.repeated else lambda b: dynamic(b, 6))
    program, view = write(hand_made, front_end)
    before = Workload(program)
    assert plain(before.graph) == plain(view)
    assert not front_end.differences(program.native, program.store(program.load()).native)
    after = EVERY_RULE(before, iterative=True)
    assert "nn.batch_norm" in before.op_counts()
    assert "nn.batch_norm" not in after.op_counts()
    assert after.inputs == before.inputs
    for batch, size in ((2, 5), (3, 8)) if front_end.repeated else ((2, 6), (5, 6)):
        fed = inputs(hand_made, {"b": batch, "s": size})
        expected = run(with_sizes(hand_made, {B.expr: sympy.Integer(batch), S.expr: sympy.Integer(size)}), fed)
        for subject in (before, after):
            found = [plain_tensor(value) for _, value in flatten(subject(*fed.values()))]
            for ours, theirs in zip(found, expected, strict=True):
                torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-10)
