"""Ten thousand matches: linear, and without recursion."""

from __future__ import annotations

import time

import pytest

from gsl import Subst, op, pat
from gsl.graph import INPUT, Graph, Node, TensorType
from tests.helpers.graphs import infer_type
from tests.rewrite.checks import faults

x = pat.Wildcard()
leaky = op.LeakyReLU(x)
TRIPLE = Subst(op.ReLU(op.Tanh(leaky)), leaky.like(op.Sigmoid(x)), name="triple")


def chain(number: int) -> Graph:
    """``relu(tanh(leaky_relu(…)))``, that many times over."""
    kind = TensorType((4,), "float32")
    nodes = [Node(INPUT, (), {}, kind, name="x")]
    for _ in range(number):
        for name, attrs in (("nn.leaky_relu", {"alpha": 0.5}), ("tanh", {}), ("nn.relu", {})):
            nodes.append(Node(name, (nodes[-1],), attrs, kind, name=name))
    return Graph(nodes, [nodes[-1]], infer_type)


def wide(number: int) -> Graph:
    """That many triples of one input, each an output."""
    kind = TensorType((4,), "float32")
    nodes = [Node(INPUT, (), {}, kind, name="x")]
    for _ in range(number):
        operand = nodes[0]
        for name, attrs in (("nn.leaky_relu", {"alpha": 0.5}), ("tanh", {}), ("nn.relu", {})):
            operand = Node(name, (operand,), attrs, kind, name=name)
            nodes.append(operand)
    return Graph(nodes, [node for node in nodes if node.op == "nn.relu"], infer_type)


def seconds(view: Graph) -> float:
    start = time.process_time()
    new, trace = TRIPLE.apply(view)
    taken = time.process_time() - start
    assert trace.count() == (len(view) - 1) // 3
    assert len(new) == 1 + 2 * trace.count()
    assert faults(new) == []
    return taken


@pytest.mark.long
@pytest.mark.parametrize("make", [chain, wide])
def test_time_is_linear_in_the_matches(make: object) -> None:
    assert callable(make)
    seconds(make(100))
    small, large = (min(seconds(make(number)) for _ in range(2)) for number in (1000, 10_000))
    assert large < 10 * small * 3


def test_a_group_of_two_thousand() -> None:
    every = op.ReLU(x)
    group = pat.Variadic(every, templates=[every], min_len=2)
    kind = TensorType((4,), "float32")
    nodes = [Node(INPUT, (), {}, kind, name="x")]
    nodes += [Node("nn.relu", (nodes[0],), {}, kind, name="r") for _ in range(2000)]
    view = Graph(nodes, nodes[1:], infer_type)
    new, trace = Subst(group, pat.Variadic(op.Maximum(x, 0.0), templates=[]), name="all").apply(view)
    assert trace.count() == 1
    assert len(new) == 3
    assert faults(new) == []
