"""All rules together: they come to an end, and the numbers stay equal."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from gsl import RuleSet, rules
from gsl.graph import Node
from gsl.rules import OPTIMISING
from tests.helpers.book import EVERY_RULE
from tests.rules.harness import Build, View, build, largest_error, shown


def residual(b: Build) -> Node:
    """Two residual blocks with batch norms, and a shortcut without."""
    x = b.input("x", 2, 4, 6, 6)
    for i in range(2):
        y = b.call("nn.conv2d", x, b.param(f"v{i}", 4, 4, 3, 3), padding=1)
        y = b.call("nn.relu", b.norm(y, 4))
        y = b.norm(b.bias(b.call("nn.conv2d", y, b.param(f"w{i}", 4, 4, 3, 3), padding=1), f"b{i}"), 4)
        x = b.call("nn.relu", b.call("add", x, y))
    return b.call("add", b.call("nn.conv2d", x, b.param("s", 4, 4, 3, 3), padding=1), x)


def inception(b: Build) -> Node:
    """Branches with kernels of several sizes, activated and concatenated."""
    x = b.input("x", 2, 3, 6, 6)
    branches = []
    for i, (kernel, padding) in enumerate(((1, 0), (1, 0), (3, 1), (3, 1), (5, 2))):
        y = b.call("nn.conv2d", x, b.param(f"w{i}", 2, 3, kernel, kernel), padding=padding)
        branches.append(b.call("nn.relu", b.call("multiply", y, b.param(f"c{i}", 2, 1, 1)) if i % 2 else y))
    joined = b.call("concatenate", b.tuple(*branches), axis=1)
    return b.norm(b.call("nn.conv2d", joined, b.param("last", 4, 10, 1, 1)), 4)


def transformer(b: Build) -> Node:
    """A layer with attention, layer norms and a gated product."""
    x = b.input("x", 2, 5, 8)
    y = b.call("nn.layer_norm", x, b.param("g0", 8), b.param("h0", 8))
    heads = []
    for name in "qkv":
        part = b.bias(b.call("nn.dense", y, b.param(f"w{name}", 8, 8)), f"b{name}", 2)
        heads.append(b.call("transpose", b.call("reshape", part, newshape=(2, 5, 2, 4)), axes=(0, 2, 1, 3)))
    z = b.call("transpose", b.call("nn.attention", *heads), axes=(0, 2, 1, 3))
    z = b.call("nn.dense", b.call("reshape", z, newshape=(2, 5, 8)), b.param("wo", 8, 8))
    x = b.call("add", x, b.bias(z, "bo", 2))
    y = b.call("nn.layer_norm", x, b.param("g1", 8), b.param("h1", 8))
    gate, up = (b.call("nn.dense", y, b.param(name, 12, 8)) for name in ("gate", "up"))
    down = b.call("nn.dense", b.call("multiply", b.call("silu", gate), up), b.param("down", 8, 12))
    return b.call("add", x, down)


def sums(b: Build) -> Node:
    """Sums of convolutions with biases, of one and of two inputs."""
    x, y = b.input("x", 2, 3, 5, 5), b.input("y", 2, 2, 5, 5)
    terms = [
        b.bias(b.call("nn.conv2d", data, b.param(f"w{i}", 4, data.shape[1], 3, 3), padding=1), f"b{i}")
        for i, data in enumerate((x, x, y, y))
        if data.shape is not None
    ]
    total = terms[0]
    for term in terms[1:]:
        total = b.call("add", total, term)
    return total


def moves(b: Build) -> Node:
    """Casts, transposes, reshapes and splits one after the other."""
    x = b.input("x", 4, 6, dtype="float32")
    for _ in range(3):
        x = b.call("transpose", b.call("cast", b.call("cast", x, dtype="float64"), dtype="float32"))
        x = b.call("reshape", b.call("reshape", x, newshape=(2, 12)), newshape=(6, 4))
        parts = b.call("split", x, indices_or_sections=2, axis=1)
        x = b.call("concatenate", b.tuple(*(b.call("exp", b.get(parts, i)) for i in range(2))), axis=1)
        x = b.call("transpose", b.call("sigmoid", x))
    return x


SHAPE = (2, 4, 5, 5)


def some_graph(seed: int) -> View:
    """A random graph of calls that keep one shape, with two outputs."""

    def view(b: Build) -> list[Node]:
        draw = random.Random(seed)
        pool = [b.input("x", *SHAPE), b.input("y", *SHAPE)]

        def pick() -> Node:
            return draw.choice(pool[-4:])

        def conv(data: Node, kernel: int, groups: int = 1) -> Node:
            w = b.param(f"w{len(b.nodes)}", 4, 4 // groups, kernel, kernel)
            return b.call("nn.conv2d", data, w, padding=kernel // 2, groups=groups)

        def halves(data: Node) -> Node:
            parts = b.call("split", data, indices_or_sections=2, axis=1)
            fields = [b.get(parts, i) for i in draw.sample((0, 1), 2)]
            return b.call("concatenate", b.tuple(*(b.call("tanh", field) for field in fields)), axis=1)

        def there_and_back(data: Node) -> Node:
            return b.call("transpose", b.call("transpose", data, axes=(0, 2, 3, 1)), axes=(0, 3, 1, 2))

        def flat(data: Node) -> Node:
            return b.call("reshape", b.call("reshape", data, newshape=(2, -1)), newshape=SHAPE)

        makes: list[Callable[[], Node]] = [
            lambda: conv(pick(), 3), lambda: conv(pick(), 3), lambda: conv(pick(), 1), lambda: conv(pick(), 3, 2),
            lambda: b.norm(pick(), 4), lambda: b.bias(pick(), f"b{len(b.nodes)}"), lambda: b.call("nn.relu", pick()),
            lambda: b.call("add", pick(), pick()), lambda: b.call("add", pick(), pick()),
            lambda: b.call("multiply", pick(), b.tensor(4, 1, 1)), lambda: b.call("multiply", pick(), 0.5),
            lambda: halves(pick()), lambda: there_and_back(pick()), lambda: flat(pick()),
        ]  # fmt: skip
        for _ in range(14):
            pool.append(draw.choice(makes)())
        return [b.call("tanh", pool[-1]), b.call("tanh", pool[-2])]

    return view


VIEWS = {view.__name__: view for view in (residual, inception, transformer, sums, moves)}
VIEWS |= {f"random {seed}": some_graph(seed) for seed in range(20)}


@pytest.mark.parametrize("name", VIEWS)
def test_the_book_comes_to_an_end(name: str) -> None:
    before = build(VIEWS[name])
    after = EVERY_RULE(before, iterative=True)
    assert shown(EVERY_RULE(after, iterative=True)) == shown(after)
    assert largest_error(before, after) <= 10


@pytest.mark.parametrize("strategy", ["largest", "first"])
def test_the_order_of_rules_does_not_matter_for_the_numbers(strategy: str) -> None:
    for name in ("residual", "inception", "transformer", "sums", "moves"):
        before = build(VIEWS[name])
        after = RuleSet(EVERY_RULE, strategy=strategy)(before, iterative=True)
        assert largest_error(before, after) <= 10


def test_what_the_book_makes_of_a_residual_network() -> None:
    counts = {op: len(nodes) for op, nodes in RuleSet(OPTIMISING)(build(residual), iterative=True).by_op().items()}
    assert counts["nn.conv2d"] == 5
    assert "nn.batch_norm" not in counts


def test_what_the_book_makes_of_a_transformer() -> None:
    counts = {op: len(nodes) for op, nodes in RuleSet(OPTIMISING)(build(transformer), iterative=True).by_op().items()}
    assert counts["nn.dense"] == 4  # projections, their output, gate and up, down
    assert counts["nn.bias_add"] == 2
    assert counts["nn.layer_norm"] == 2


def test_a_set_that_is_not_there_is_told_by_the_names_of_those_that_are() -> None:
    with pytest.raises(AttributeError, match=r"'NOTHERE': known are APPROXIMATE, BOOK, [A-Z_, ]*$") as error:
        rules.NOTHERE
    assert "__" not in str(error.value)
