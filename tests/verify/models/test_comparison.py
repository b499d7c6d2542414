"""What a comparison says: kinds of differences, reasons, chances, confirmation, inputs, and how much it runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from gsl.graph import INPUT, Graph
from gsl.verify.models import Comparison, OutputComparison, compare
from gsl.verify.models.definitions import UncoveredCall
from gsl.verify.models.draws import KINDS, DrawnLeaves
from gsl.verify.models.field import Q
from gsl.verify.models.integers import LARGEST, Integers, widest
from gsl.verify.models.methods import by_exact_models, by_field, by_integers
from gsl.verify.models.program import literal_tensor, program_of, rational
from tests.helpers.graphs import graph, run
from tests.verify.models.views import Make, view


def compared(leaves: str, left: Make, right: Make, seed: int = 0) -> Comparison:
    return compare(view(leaves, left), view(leaves, right), seed=seed)


def only(found: Comparison) -> OutputComparison:
    (output,) = found.outputs
    return output


# Kinds of differences


@pytest.mark.parametrize(
    ("leaves", "left", "right", "kind"),
    [
        ("x 2 3", lambda o, x: o.sum(x, axis=1), lambda o, x: o.sum(x, axis=0), "type"),
        ("x 2 3", lambda o, x: o.cast(x, dtype="int32"), lambda o, x: o.cast(x, dtype="int64"), "type"),
        ("x 2 3", lambda o, x: x, lambda o, x: o.add(x, 1.0), "value"),
        ("x 40", lambda o, x: o.abs(x), lambda o, x: o.square(o.sqrt(x)), "undefined"),
        ("x 40", lambda o, x: x, lambda o, x: o.multiply(o.divide(x, x), x), "undefined"),
        ("x 40, y 40", lambda o, x, y: o.divide(x, y), lambda o, x, y: o.divide(o.exp(o.log(x)), y), "undefined"),
        ("x 40", lambda o, x: o.power(x, 3.0), lambda o, x: o.exp(o.multiply(o.log(x), 3.0)), "undefined"),
        ("x 40", lambda o, x: o.where(o.equal(x, 0.0), 0.0, o.divide(1.0, x)), lambda o, x: o.divide(1.0, x),
         "not finite"),
        ("x 5 3, i 4 int64", lambda o, x, i: o.take(x, i, axis=0),
         lambda o, x, i: o.take(x, o.add(i, 9), axis=0), "undefined"),
    ],
)  # fmt: skip
def test_kinds(leaves: str, left: Make, right: Make, kind: str) -> None:
    kinds = set()
    for seed in range(6):
        found = compared(leaves, left, right, seed)
        assert not found.equal
        assert found.compared
        kinds.add(only(found).kind)
        assert (found.inputs is None) == (kind == "type")
    assert kind in kinds


def test_where_the_source_is_not_defined_nothing_is_asked() -> None:
    found = compared("x 40", lambda o, x: o.sqrt(x), lambda o, x: o.sqrt(o.abs(x)))
    assert found.equal
    assert found.compared
    nowhere = compared("x 4", lambda o, x: o.sqrt(o.subtract(-1.0, o.abs(x))), lambda o, x: x)
    assert nowhere.equal
    assert not nowhere.compared, "no element of the source has a value"


def test_the_inputs_of_a_difference_reproduce_it() -> None:
    leaves = "x 2 3, y 2 3, m 2 3 bool"
    left = view(leaves, lambda o, x, y, m: o.where(m, o.subtract(x, y), x))
    right = view(leaves, lambda o, x, y, m: o.where(m, o.subtract(y, x), x))
    found = compare(left, right, seed=5)
    output = only(found)
    assert found.inputs is not None
    assert output.index is not None
    assert {name: str(x.dtype) for name, x in found.inputs.items()} == {
        "x": "torch.float64", "y": "torch.float64", "m": "torch.bool"}  # fmt: skip
    (a,), (b,) = (run(side, found.inputs) for side in (left, right))
    assert repr(a[output.index].item()) == output.expected
    assert repr(b[output.index].item()) == output.found


def test_a_domain_of_one_use_does_not_hide_another() -> None:
    found = [
        compared("x 9", lambda o, x: (o.sqrt(x), o.erf(o.abs(x))), lambda o, x: (o.sqrt(x), o.erf(x)), seed)
        for seed in range(5)
    ]
    assert any(not comparison.equal for comparison in found)


def test_outputs_have_verdicts_of_their_own() -> None:
    found = compared(
        "x 2 4",
        lambda o, x: (o.add(x, x), o.exp(o.negative(x)), o.split(x, indices_or_sections=2, axis=1), o.max(o.exp(x))),
        lambda o, x: (o.multiply(x, 2.0), o.divide(1.0, o.exp(x)), o.split(x, indices_or_sections=(2,), axis=1),
                      o.exp(o.max(x))),
    )  # fmt: skip
    assert found.equal
    assert [(o.path, o.method) for o in found.outputs] == [
        ((0,), "integers"), ((1,), "field"), ((2, 0), "integers"), ((2, 1), "integers"), ((3,), "float64")
    ]  # fmt: skip
    assert found.outputs[1].reason == "integers: exp"
    assert found.outputs[4].reason == "integers: exp; field: max"
    assert found.chance == 1.0


def test_one_differing_output_does_not_condemn_the_others() -> None:
    found = compared("x 2 4", lambda o, x: (o.add(x, 1.0), o.negative(x)), lambda o, x: (o.add(x, 1.0), x))
    assert [output.equal for output in found.outputs] == [True, False]


def test_the_same_seed_finds_the_same() -> None:
    pair = [view("x 3 3", lambda o, x, axis=axis: o.nn_softmax(x, axis=axis)) for axis in (0, 1)]
    one, other = (compare(*pair, seed=9) for _ in range(2))
    assert one.outputs == other.outputs
    assert one.inputs is not None
    assert other.inputs is not None
    assert torch.equal(one.inputs["x"], other.inputs["x"])


def test_what_only_rounding_makes_undefined_is_no_difference() -> None:
    """The square of a root, less the number, is a few units off 0 on either side, where another root ends."""
    def zero(o: Any, x: Any) -> Any:
        return o.subtract(o.square(o.sqrt(x)), x)

    found = compared("x 60", lambda o, x: o.exp(zero(o, x)), lambda o, x: o.exp(o.sqrt(zero(o, x))))
    assert found.equal
    certain = compared("x 60", lambda o, x: o.exp(zero(o, x)), lambda o, x: o.exp(o.sqrt(o.subtract(zero(o, x), 1.0))))
    assert not certain.equal


def test_equal_numbers_are_no_difference_where_one_comes_from_an_infinite_one() -> None:
    """Of x / 0 ** -0.5 there is no bound, and it is the 0 that x * 0 ** 0.5 is."""
    for seed in range(3, 6):
        found = compared("x 60 1, y 60 4, z 60 4", lambda o, x, y, z: o.divide(x, o.power(y, z)),
                         lambda o, x, y, z: o.multiply(x, o.power(y, o.negative(z))), seed)  # fmt: skip
        assert found.equal


@pytest.mark.parametrize(
    "make",
    [
        lambda o, x, y: o.greater(y, x),
        lambda o, x, y: o.floor(y),
        lambda o, x, y: o.where(o.equal(x, y), x, 9.0),
        lambda o, x, y: o.cast(y, dtype="int32"),
        lambda o, x, y: o.argmax(o.stack(o.tuple(x, y), axis=0), axis=0),
        lambda o, x, y: o.take(x, o.argmax(o.stack(o.tuple(x, y), axis=0), axis=0), axis=0),
        lambda o, x, y: o.any(o.less(y, x)),
    ],
)
def test_decisions_within_the_rounding_errors_are_no_differences(make: Make) -> None:
    """Thirds that are added up to x in another order, and decisions about the sum."""
    def thirds(o: Any, x: Any, turned: bool) -> Any:
        third, sixth = (o.exp(o.log(o.divide(x, by))) for by in (3.0, 6.0))
        parts = [third, third, sixth, sixth]
        total = parts.pop(0 if turned else 2)
        for part in parts:
            total = o.add(total, part)
        return total

    for seed in range(3):
        found = compared("x 30", lambda o, x: make(o, x, thirds(o, x, False)),
                         lambda o, x: make(o, x, thirds(o, x, True)), seed)  # fmt: skip
        assert found.equal, found


# Chance


def test_the_chance_of_polynomials_is_bounded_by_degree_over_range() -> None:
    found = compared("x 3, y 3", lambda o, x, y: o.multiply(x, o.add(x, y)),
                     lambda o, x, y: o.add(o.square(x), o.multiply(y, x)))  # fmt: skip
    # Degree 2 on three draws, of which that with ties says 2 / 3, the others 2 / (2 * 2**20 + 1).
    assert found.chance == pytest.approx(2 / 3 * (2 / (2**21 + 1)) ** 2)


def test_the_chance_of_rational_functions_is_bounded_by_degree_over_q() -> None:
    found = compared("x 3, y 3, z 3", lambda o, x, y, z: o.add(o.divide(x, z), o.divide(y, z)),
                     lambda o, x, y, z: o.divide(o.add(x, y), z))  # fmt: skip
    # (x z + y z) / z**2 against (x + y) / z: the difference has degree 3, the denominators 2 and 1; two draws.
    assert found.chance == pytest.approx(((3 + 3) / Q) ** 2)


@pytest.mark.parametrize(
    ("leaves", "make", "bounded"),
    [
        ("x 2 3", lambda o, x: o.nn_softmax(x), True),
        ("x 2 3", lambda o, x: o.gelu(x), False),
        ("x 2 3", lambda o, x: o.erf(o.square(x)), False),
        ("x 2 3", lambda o, x: o.floor(o.divide(x, 3.0)), False),
        ("x 2 3", lambda o, x: o.sigmoid(o.multiply(x, 2.0)), True),
        ("x 2 3", lambda o, x: o.exp(o.square(x)), False),
        ("x 2 3", lambda o, x: o.nn_relu(x), False),
        ("x 2 3", lambda o, x: o.log(x), False),
        ("x 2 3, y 2 3", lambda o, x, y: o.atan2(x, y), True),
    ],
)
def test_where_a_chance_is_known(leaves: str, make: Make, bounded: bool) -> None:
    assert (compared(leaves, make, make).chance < 1e-3) == bounded


def test_a_small_range_is_told_apart_as_often_as_the_bound_says() -> None:
    """x (x - 1) (x + 1) is 0 on all of {-1, 0, 1}: the bound on so few numbers is 1, and the wide draws differ."""
    found = compared("x 1", lambda o, x: o.multiply(o.multiply(x, o.subtract(x, 1.0)), o.add(x, 1.0)),
                     lambda o, x: o.zeros_like(x))  # fmt: skip
    assert not found.equal
    assert only(found).method == "integers"


# The limits of the integers


def test_numbers_beyond_float64_are_refused() -> None:
    model = Integers(2**20)
    x = model.leaf(torch.full((4,), 2.0**20, dtype=torch.float64))
    square = model("multiply", x, x)
    assert (square.coefficient, square.degree) == (1, 2)
    with pytest.raises(UncoveredCall, match="beyond"):
        model("multiply", square, x)
    with pytest.raises(UncoveredCall, match="beyond"):
        model("sum", model("multiply", square, 2.0**10), axis=(0,), keepdims=False, exclude=False)
    assert widest({1: 1, 2: 72}) == 2**20
    assert widest({1: 1, 3: 72}) == 2**15
    assert 72 * widest({3: 72}) ** 3 <= LARGEST < 72 * (2 * widest({3: 72})) ** 3


def test_what_is_too_large_for_the_integers_is_left_to_the_field() -> None:
    def power(o: Any, x: Any, times: int) -> Any:
        for _ in range(times):
            x = o.square(x)
        return x

    found = compared("x 2 2", lambda o, x: power(o, x, 6), lambda o, x: power(o, x, 6))
    assert only(found).method == "field"
    assert "beyond 2**52" in only(found).reason
    ordered = compared("x 2 2", lambda o, x: o.nn_relu(power(o, x, 6)), lambda o, x: power(o, x, 6))
    assert ordered.equal


def test_sums_that_float64_would_round_are_exact() -> None:
    """(x + c) - c is not x in float64 for a large c; the integers refuse it, the field knows better."""
    large = 2.0**60
    found = compared("x 3", lambda o, x: o.subtract(o.add(x, large), large), lambda o, x: x)
    assert found.equal
    assert only(found).method == "field"


# Confirmation


def verdicts(leaves: str, left: Make, right: Make) -> tuple[list[Any], list[Any]]:
    first, second = (program_of(view(leaves, make)) for make in (left, right))
    rng = np.random.default_rng(0)
    both = DrawnLeaves(first, second)
    return by_integers(first, second, both, rng), by_field(first, second, both, rng)


def test_a_difference_of_the_model_alone_is_not_reported() -> None:
    """Order among residues does not respect sums: no real tensors tell these apart."""
    def left(o: Any, x: Any, y: Any) -> Any:
        return o.nn_relu(o.add(o.exp(x), o.exp(y)))

    def right(o: Any, x: Any, y: Any) -> Any:
        return o.add(o.exp(x), o.exp(y))

    _, (of_field,) = verdicts("x 9, y 9", left, right)
    assert of_field.differs
    found = compared("x 9, y 9", left, right)
    assert found.equal
    assert found.inputs is None
    assert found.unconfirmed == 1
    assert (only(found).method, only(found).chance) == ("float64", 1.0)
    assert only(found).reason == "field: a difference that no real tensors have"


def test_agreement_of_the_model_alone_is_not_enough() -> None:
    """Roots are multiplicative in the field, but the root of a product of negatives has no factors."""
    def left(o: Any, x: Any, y: Any) -> Any:
        return o.sqrt(o.multiply(x, y))

    def right(o: Any, x: Any, y: Any) -> Any:
        return o.multiply(o.sqrt(x), o.sqrt(y))

    _, (of_field,) = verdicts("x 9, y 9", left, right)
    assert of_field.draws == 2
    assert not of_field.differs

    def shifted(make: Any) -> Any:
        return lambda o, x, y: make(o, o.subtract(x, 0.5), o.subtract(y, 0.5))

    found = compared("x 9, y 9", shifted(left), shifted(right))
    assert not found.equal
    assert only(found).kind == "undefined"


def test_exact_models_alone_tell_apart_what_they_cover() -> None:
    (whole,), (residues,) = verdicts("x 2 3", lambda o, x: o.sum(x), lambda o, x: o.mean(x))
    assert whole.differs
    assert residues.differs
    assert whole.inputs is not None


# Literals, integers, and what is refused


def test_literals_are_their_shortest_decimals() -> None:
    assert rational(0.1) == rational(1) / 10
    assert literal_tensor(torch.tensor([0.1, 1e-5])).tolist() == [0.1, 1e-5]
    with pytest.raises(ValueError, match="rational"):
        rational(float("inf"))
    found = compare(graph(lambda b: b.call("multiply", b.input("x", 3), b.const(torch.full((3,), 0.1)))),
                    graph(lambda b: b.call("multiply", b.input("x", 3), 0.1)), seed=0)  # fmt: skip
    assert (found.equal, only(found).method) == (True, "integers")


def test_integers_wrap_around_as_torch_does() -> None:
    found = compared("i 8 int8", lambda o, i: o.multiply(o.multiply(i, 64), 4), lambda o, i: o.multiply(i, 0))
    assert (found.equal, only(found).method) == (True, "integers")


@pytest.mark.parametrize(("value", "method"), [(2.5, "integers"), (3, "integers"), (float("inf"), "float64")])
def test_an_output_may_be_a_literal(value: Any, method: str) -> None:
    def literal(number: Any) -> Any:
        return lambda o, x: (x, o.const(number))

    found = compared("x 2", literal(value), literal(value))
    assert found.equal
    assert found.outputs[1].method == method
    assert found.compared == (value != float("inf"))
    if found.compared:
        assert [o.equal for o in compared("x 2", literal(value), literal(value + 1)).outputs] == [True, False]


def test_infinite_literals_are_left_to_float64() -> None:
    found = compared("x 3 3, m 3 3 bool", lambda o, x, m: o.nn_softmax(o.where(m, x, float("-inf"))),
                     lambda o, x, m: o.nn_softmax(o.where(o.logical_not(m), float("-inf"), x)))  # fmt: skip
    assert found.equal
    assert only(found).method == "float64"


def test_indices_are_drawn_within_their_axis_also_through_layouts() -> None:
    program = program_of(view("x 2 3, i 4 int64", lambda o, x, i: o.take(x, o.reshape(i, newshape=(2, 2)), axis=0)))
    leaves = DrawnLeaves(program, program)
    rng = np.random.default_rng(0)
    drawn = torch.stack([leaves.draw(rng, kind)["i"] for kind in KINDS for _ in range(20)])
    assert set(drawn.reshape(-1).tolist()) == {-2, -1, 0, 1}


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [("type", "known types"), ("op", "canonical operators"), ("size", "known sizes")],
)
def test_graphs_without_values_are_refused(spoil: str, reason: str) -> None:
    def spoiled() -> Graph:
        found = view("x 2", lambda o, x: o.nn_relu(x))
        call = found.outputs[0]
        if spoil == "type":
            call.type = None
        elif spoil == "op":
            call.op = torch.relu
        else:
            next(node for node in found if node.op == INPUT).type = None
        return found

    with pytest.raises(ValueError, match=reason):
        compare(spoiled(), spoiled(), seed=0)


def test_torch_is_left_as_it_was() -> None:
    before = torch.get_num_threads(), torch.is_grad_enabled()
    compared("x 2", lambda o, x: o.exp(x), lambda o, x: o.exp(x))
    assert (torch.get_num_threads(), torch.is_grad_enabled()) == before


class CountedCalls(TorchDispatchMode):
    """Counts the calls of torch."""

    count = 0

    def __torch_dispatch__(
        self, call: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.count += 1
        return call(*args, **kwargs or {})


def test_a_comparison_makes_few_calls() -> None:
    def make(o: Any, x: Any, w: Any, b: Any) -> Any:
        return o.nn_max_pool2d(o.nn_relu(o.nn_bias_add(o.nn_conv2d(x, w, padding=1), b)), pool_size=2)

    pair = [view("x 1 2 5 5, w 3 2 3 3, b 3", make) for _ in range(2)]
    for seed in range(12):
        with CountedCalls() as calls:
            assert compare(*pair, seed=seed).equal
        assert 0 < calls.count < 300


def test_the_strongest_model_is_asked_first() -> None:
    first = program_of(view("x 2", lambda o, x: (o.square(x), o.exp(x), o.max(o.exp(x)))))
    rng = np.random.default_rng(0)
    found = by_exact_models(first, first, DrawnLeaves(first, first), rng)
    assert [verdict.method for verdict in found] == ["integers", "field", "float64"]
