"""Groups of instances that share nothing, in every framework."""

from __future__ import annotations

import pytest

from gsl import Workload
from gsl.graph import Node
from tests.conformance.front_ends import AVAILABLE, FrontEnd
from tests.conformance.programs import program_of
from tests.match.test_apart import batched
from tests.rules.harness import Build, build


def layers(b: Build) -> list[Node]:
    """Two towers of two layers each, and a layer of another size."""
    tops = [b.input("x", 2, 3), b.input("y", 2, 3)]
    for level in range(2):
        tops = [b.call("nn.relu", b.call("nn.dense", x, b.param(f"w{level}{i}", 3, 3))) for i, x in enumerate(tops)]
    return [*tops, b.call("nn.dense", tops[0], b.param("w", 4, 3))]


@pytest.mark.parametrize("front_end", AVAILABLE, ids=lambda front_end: front_end.name)
def test_layers_of_different_inputs(front_end: FrontEnd) -> None:
    before = Workload(program_of(build(layers), front_end))
    after = batched()(before)
    assert [len(firing.replaced) for firing in after.trace.firings] == [2, 2]
    assert after.op_counts()["nn.dense"] == 1
    before.compare(after, rtol=1e-10).check()
