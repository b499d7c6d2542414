"""The normal form: exports and decomposed exports of a model become one program, whatever the order of the rules."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Hashable, Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gsl import RuleSet, Subst, Supported, Workload, op, pat
from gsl.graph import LEAVES, Graph, Node
from gsl.rewrite.cse import frozen
from gsl.rules import NORMAL, RULES
from tests.helpers.models import MODELS
from tests.helpers.nets import Net
from tests.rules.harness import Build, build, largest_error, shown
from tests.verify.wrong_rules.table import UNDRAWN

NUMBERS_AS_TENSORS = {"full", "zeros", "ones"}
"""What torch makes of numbers when it decomposes."""
NEW = [rule for rule in NORMAL if rule.name not in RULES and rule.name not in UNDRAWN]


def workloads(name: str) -> tuple[Workload, Workload]:
    """A model as it is exported, and decomposed."""
    torch.manual_seed(0)
    module, example = MODELS[name]()
    module.model.set_attn_implementation("eager")
    exported = torch.export.export(module.eval(), (example,))
    return Workload.from_exported(exported), Workload.from_exported(exported.run_decompositions())


def calls(wl: Workload) -> Counter[str]:
    return Counter({op: n for op, n in wl.op_counts().items() if op not in NUMBERS_AS_TENSORS and "aten" not in op})


def structure(graph: Graph) -> Hashable:
    """What a graph computes, whatever its nodes are named and in which order they are listed."""
    places: dict[Node, int] = {}
    lines: list[Hashable] = []
    stack = list(reversed(graph.outputs))
    while stack:
        node = stack[-1]
        waiting = [operand for operand in node.operands if operand not in places]
        if node in places or waiting:
            stack += reversed(waiting) if node not in places else []
            if node in places:
                stack.pop()
            continue
        stack.pop()
        places[node] = len(places)
        label = node.name if node.op in LEAVES and node.op != "const" else ""
        lines.append((str(node.op), label, frozen(node.attrs), tuple(places[operand] for operand in node.operands)))
    return tuple(lines), tuple(places[output] for output in graph.outputs)


def shuffled(seed: int) -> RuleSet:
    rules = list(NORMAL)
    random.Random(seed).shuffle(rules)
    return RuleSet(rules, tidy=True)


@pytest.mark.sweep(3)
@pytest.mark.parametrize("name", ["bert", "t5_encoder", "vit"])
def test_exports_and_decomposed_exports_become_one_program(name: str) -> None:
    exported, decomposed = workloads(name)
    assert calls(exported) != calls(decomposed)
    forms = [NORMAL(wl, iterative=True) for wl in (exported, decomposed)]
    assert calls(forms[0]) == calls(forms[1])
    for before, after in zip((exported, decomposed), forms):
        before.compare(after).check()
        assert len(after.graph) < len(before.graph)
        assert NORMAL(after, iterative=True).trace.count() == 0
        normal = structure(NORMAL(before.graph, iterative=True))
        for seed in range(5):
            assert structure(shuffled(seed)(before.graph, iterative=True)) == normal


class Turned(torch.nn.Module):
    """A linear layer of a tensor that is transposed, which torch decomposes into a product with the weight repeated."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.layer(x.transpose(0, 1)))


@pytest.mark.parametrize("shape", [(2, 5, 4), (2, 5, 3, 4)])
def test_a_linear_layer_of_a_transposed_tensor_is_one(shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    example = (torch.randn(shape),)
    program = torch.export.export(Turned(), example, dynamic_shapes=({0: torch.export.Dim("n", min=2)},))
    before = Workload.from_exported(program.run_decompositions())
    assert before.op_counts()["nn.dense"] == 0
    after = NORMAL(before, iterative=True)
    assert calls(after) == calls(NORMAL(Workload.from_exported(program), iterative=True))
    assert after.op_counts()["nn.dense"] == 1
    before.compare(after, example).check()


class Einsum(torch.nn.Module):
    """A linear layer that is written as an einsum, which torch decomposes into a product of batches of one."""

    def __init__(self, equation: str, *shape: int) -> None:
        super().__init__()
        self.equation = equation
        self.weight = torch.nn.Parameter(torch.randn(shape))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(torch.einsum(self.equation, x, self.weight))


@pytest.mark.parametrize(
    ("equation", "shape"), [("bnd,de->bne", (4, 6)), ("bnd,ed->bne", (6, 4)), ("bnd,hde->bhne", (2, 4, 3))]
)
def test_a_linear_layer_as_an_einsum_is_a_product_with_a_matrix(equation: str, shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    example = (torch.randn(2, 5, 4),)
    program = torch.export.export(Einsum(equation, *shape), example)
    before = Workload.from_exported(program.run_decompositions())
    after = NORMAL(before, iterative=True)
    assert calls(after) == calls(NORMAL(Workload.from_exported(program), iterative=True))
    before.compare(after, example).check()


@pytest.mark.parametrize("equation", ["bij,bjk->bik", "nxy, nyz -> nxz", "aij,ajk"])
def test_letters_of_an_einsum_are_those_of_a_rule_or_others(equation: str) -> None:
    class Within(torch.nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return torch.einsum(equation, x, y).relu()

    x, y = pat.Wildcard(), pat.Wildcard()
    rule = Subst(op.Einsum(pat.Tuple(x, y), equation="bij,bjk->bik"), op.Matmul(x, y), name="einsum")
    before = Workload.from_torch(Within(), (torch.randn(2, 3, 4), torch.randn(2, 4, 5)))
    if "->" in equation:
        assert rule(before).op_counts() == {"matmul": 1, "nn.relu": 1}
        before.compare(rule(before)).check()
    else:
        assert not rule(before).trace.count()  # the sum over a has no index a in its result


def test_torch_works_on_the_bits_of_bools() -> None:
    """So they are read in torch and Relax; ONNX has logical operators for them, and others for bits."""

    class Within(torch.nn.Module):
        def forward(self, x: torch.Tensor, n: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return ~(x > 0) & (x < 1) | (x > 3) ^ (x > 2), ~(n & 3)

    example = (torch.linspace(-4, 4, 6), torch.arange(6))
    before = Workload.from_torch(Within(), example)
    after = NORMAL(before, iterative=True)
    logical = {"logical_not": 1, "logical_and": 1, "logical_or": 1, "logical_xor": 1}
    assert after.op_counts() == logical | {"greater": 3, "less": 1, "bitwise_and": 1, "bitwise_not": 1}
    before.compare(after, example).check()


@pytest.mark.parametrize(("shape", "found"), [((6, 1, 1), 1), ((1, 6, 1, 1), 1), ((1, 1, 6), 0), ((2, 6, 1, 1), 0)])
def test_a_weight_of_the_channels_is_the_bias_of_a_convolution(shape: tuple[int, ...], found: int) -> None:
    class Shifted(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = torch.nn.Conv2d(3, 6, 3, bias=False)
            self.shift = torch.nn.Parameter(torch.randn(shape))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.conv(x) + self.shift

    before = Workload.from_torch(Shifted(), (torch.randn(2, 3, 8, 8),))
    after = NORMAL(before, iterative=True)
    assert after.op_counts()["nn.bias_add"] == found
    before.compare(after).check()


Make = Callable[[Build, Node, random.Random], Node]


def moved(b: Build, x: Node, draw: random.Random) -> Node:
    axes = list(range(len(x.shape or ())))
    draw.shuffle(axes)
    return b.call("transpose", x, axes=tuple(axes))


def reshaped(b: Build, x: Node, draw: random.Random) -> Node:
    shapes = [(2, 3, 4, 5), (6, 4, 5), (6, 20), (2, 12, 5), (2, 3, 20), (24, 5), (120,), (1, 6, 20), (2, 3, 1, 20)]
    return b.call("reshape", x, newshape=draw.choice(shapes))


def flat_product(b: Build, x: Node, draw: random.Random) -> Node:
    """A linear layer of matrices that are flattened before and taken apart after it, as torch decomposes it."""
    size = draw.choice((4, 5, 20))
    rows = b.call("reshape", x, newshape=(120 // size, size))
    y = b.call("nn.dense", rows, b.param(f"w{len(b.nodes)}", size, size))
    y = b.bias(y, f"b{len(b.nodes)}") if draw.random() < 0.5 else y
    return b.call("reshape", y, newshape=x.shape) if draw.random() < 0.7 else y


def batched_product(b: Build, x: Node, draw: random.Random) -> Node:
    """A product of four axes, as torch decomposes it."""
    heads = b.call("reshape", x, newshape=(2, 3, 4, 5))
    left = b.call("reshape", b.call("broadcast_to", heads, shape=(2, 3, 4, 5)), newshape=(6, 4, 5))
    right = b.call("transpose", heads, axes=(0, 1, 3, 2))
    product = b.call("matmul", left, b.call("reshape", b.call("copy", right), newshape=(6, 5, 4)))
    square = b.call("reshape", product, newshape=(2, 3, 4, 4))
    return b.call("reshape", b.call("matmul", b.call("nn.softmax", square), heads), newshape=x.shape)


def axes_of_one(b: Build, x: Node, draw: random.Random) -> Node:
    x = b.call("expand_dims", x, axis=draw.randrange(len(x.shape or ()) + 1))
    return x if len(x.shape or ()) < 6 and draw.random() < 0.3 else b.call("squeeze", x)


def nothing(b: Build, x: Node, draw: random.Random) -> Node:
    makes: list[Callable[[], Node]] = [
        lambda: b.call("copy", x), lambda: b.call("nn.dropout", x), lambda: b.call("cast", x, dtype="float64"),
        lambda: b.call("multiply", x, 1), lambda: b.call("divide", x, 1.0), lambda: b.call("subtract", x, 0),
        lambda: b.call("broadcast_to", x, shape=x.shape),
    ]  # fmt: skip
    return draw.choice(makes)()


def bounded(b: Build, x: Node, draw: random.Random) -> Node:
    below = b.call("clip", x, a_min=-0.5)
    return b.call("clip", below, a_max=0.5)


def squared(b: Build, x: Node, draw: random.Random) -> Node:
    return b.call("power", x, 2) if draw.random() < 0.5 else b.call("multiply", x, x)


MAKES: tuple[Make, ...] = (
    moved, reshaped, reshaped, flat_product, flat_product, batched_product, axes_of_one, nothing, nothing, squared,
    bounded,
    lambda b, x, draw: b.call("tanh", x), lambda b, x, draw: b.call("add", x, x),
)  # fmt: skip


def program(seed: int) -> Graph:
    """A random program of what exports are full of; some calls are made twice, and some are not used."""

    def view(b: Build) -> Sequence[Node]:
        draw = random.Random(seed)
        pool = [b.input("x", 2, 3, 4, 5)]
        for _ in range(12):
            pool.append(draw.choice(MAKES)(b, draw.choice(pool[-2:]), draw))
        return [b.call("tanh", pool[-1]), b.call("sigmoid", pool[-2])]

    return build(view)


@settings(max_examples=60)
@given(st.integers(0, 10**6), st.integers(0, 10**6))
def test_no_order_of_the_rules_changes_the_normal_form(seed: int, order: int) -> None:
    before = program(seed)
    after = NORMAL(before, iterative=True)
    assert structure(shuffled(order)(before, iterative=True)) == structure(after), f"{before}\n{after}"
    assert shown(NORMAL(after, iterative=True)) == shown(after)
    assert largest_error(before, after) <= 10


def test_the_comparison_of_orders_can_fail() -> None:
    x = pat.Wildcard()
    left = Subst(op.Tanh(op.Sigmoid(x)), op.Tanh(x), name="left")
    right = Subst(op.Sigmoid(op.Tanh(x)), op.Sigmoid(x), name="right")

    def view(b: Build) -> Node:
        return b.call("tanh", b.call("sigmoid", b.call("tanh", b.input("x", 3))))

    results = {structure(RuleSet(rules)(build(view))) for rules in ([left, right], [right, left])}
    assert len(results) == 2


@pytest.mark.sweep(6)
@pytest.mark.parametrize("rule", NEW, ids=lambda rule: rule.name)
def test_it_is_supported(rule: Subst) -> None:
    found = rule.verify(max_examples=60)
    assert isinstance(found, Supported), str(found)
    assert found.evidence.evaluated >= 30


@pytest.mark.parametrize(("end", "count"), [(4, 0), (3, 1)])
def test_a_slice_of_the_whole_is_gone(end: int, count: int) -> None:
    """Its places are none: a slice names just the axes that it does not take whole."""

    def slices(b: Build) -> Node:
        return b.call("tanh", b.call("strided_slice", b.input("x", 4), begin=(0,), end=(end,)))

    assert Counter(node.op for node in NORMAL(build(slices)).nodes)["strided_slice"] == count


class Lending(torch.nn.Module):
    """A product that also lends its shape to another tensor, as the relative positions of SAM have it."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        product = x @ x
        return torch.relu(product) + y.reshape_as(product)


LENT = (torch.randn(4, 4), torch.arange(16.0).reshape(2, 8))


def test_a_choice_that_is_known_is_gone() -> None:
    """Unless what is chosen has another shape or dtype than the choice."""
    ones, some = torch.ones(3, 3, dtype=torch.bool), torch.eye(3, dtype=torch.bool)

    def function(self: Net, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            torch.where(self.ones, x, y), torch.where(self.none, x, y), torch.where(self.some, x, y),
            torch.where(self.none, x, y[0]), torch.where(self.ones, x, y.double()), torch.where(self.ones[0, 0], x, y),
        )  # fmt: skip

    model = Net(function, ones=ones, none=~ones, some=some)
    old = Workload.from_torch(model, (torch.randn(3, 3), torch.randn(3, 3)))
    new = NORMAL(old, iterative=True)
    assert new.trace.summary() == {"where-true": 1, "where-false": 1}
    old.compare(new).check()


def test_a_tensor_that_lends_its_shape_is_not_used_for_it() -> None:
    before = Workload.from_torch(Lending(), LENT)
    x = pat.Wildcard()
    alone = Subst(op.ReLU(op.Matmul(x, x)), op.Tanh(op.Matmul(x, x)), extern_use=False)
    assert not list(alone.match(before))
    after = NORMAL(before, iterative=True)
    assert after.trace.count("lent-shape") == 1
    assert list(alone.match(after))
    assert "reshape_as" not in str(after.exported.graph)
    before.compare(after).check()


def test_a_lent_shape_of_the_transposed_tensor_has_other_numbers() -> None:
    """A wrong variant; no instance of a shape that is lent can be drawn."""
    x = pat.Wildcard(ndim=2)
    out = op.Reshape(x)
    turned = op.Reshape(op.Transpose(x, axes=(1, 0)), newshape=out.shape)
    wrong = Subst(out, turned, where=lambda match: bool(match[out].deps))
    before = Workload.from_torch(Lending(), LENT)
    after = wrong(before)
    assert len(after.trace.firings) == 1
    assert not before.compare(after).passed


def test_a_lent_shape_with_a_symbolic_size_stays() -> None:
    sizes = {0: torch.export.Dim("n", min=2, max=64)}
    given = (torch.randn(6, 4), torch.randn(6, 2, 2))

    class Rows(torch.nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return x.tanh() + y.reshape_as(x)

    program = torch.export.export(Rows(), given, dynamic_shapes=(sizes, sizes))
    after = NORMAL(Workload.from_exported(program), iterative=True)
    assert after.trace.count("lent-shape") == 0
    other = (torch.randn(9, 4), torch.randn(9, 2, 2))
    torch.testing.assert_close(after.exported.module()(*other), Rows()(*other))


@pytest.mark.parametrize(
    ("total", "count"),
    [
        (lambda x: x.sum(1) / 5, 1),
        (lambda x: x.sum(-1, keepdim=True) / x.shape[-1], 1),
        (lambda x: x.sum(0) * (1 / 3), 1),
        (lambda x: x.sum(0) * (1 / 5), 0),
        (lambda x: x.sum((0, 1)) / 15, 0),
        (lambda x: x.sum(2) / 2, 0),
    ],
)
def test_a_sum_over_the_number_of_elements_is_a_mean(
    total: Callable[[torch.Tensor], torch.Tensor], count: int
) -> None:
    class Total(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return total(x)

    for sizes in ((3, 5, 7), (3, 5, 0)):
        before = Workload.from_torch(Total(), (torch.randn(sizes),))
        after = NORMAL(before, iterative=True)
        assert after.trace.count("sum-mean") == (count if sizes[-1] else count * (before.graph.outputs[0].ndim < 3))
