"""Proofs by the laws of order and logic: right rules, each beside a near one that is wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from gsl import Subst, op, pat
from gsl.prove import NoProof, Proof, prove

Side = Callable[..., pat.Pattern]
Pair = tuple[Side, Side, Side]
PLAIN: Mapping[str, Any] = {"keepdims": False, "exclude": False}
KEPT: Mapping[str, Any] = {"keepdims": True, "exclude": False}
POOL: Mapping[str, Any] = {
    "pool_size": (3,), "strides": (1,), "padding": (1, 1), "ceil_mode": False, "layout": "NCW", "out_layout": "",
}  # fmt: skip


def rule(sides: tuple[Side, Side], **of: Any) -> Subst:
    """A rule of as many tensors of equal shapes as its sides take."""
    first = pat.Wildcard(**{"ndim": 1, "dtype": "float32", **of})
    others = [pat.Wildcard(**{"ndim": 1, "dtype": "float32", **of}) for _ in range(sides[0].__code__.co_argcount - 1)]
    leaves = [first, *others]
    return Subst(*(side(*leaves) for side in sides), where=[first.shape == other.shape for other in others])


def told(pair: Pair, **of: Any) -> None:
    """Check that the second side is proved to be the first one, and the third one is not."""
    found = prove(rule(pair[:2], **of))
    assert isinstance(found, Proof), str(found)
    wrong = prove(rule((pair[0], pair[2]), **of))
    assert isinstance(wrong, NoProof), str(wrong)


def pool(x: pat.Pattern, **of: Any) -> pat.Pattern:
    return op.MaxPool1D(x, **{"dilation": (1,), **POOL, **of})


def largest(x: pat.Pattern) -> pat.Pattern:
    return op.Max(x, axis=(1,), **PLAIN)


def smallest(x: pat.Pattern) -> pat.Pattern:
    return op.Min(x, axis=(1,), **PLAIN)


def clip(x: pat.Pattern, low: float, high: float) -> pat.Pattern:
    return op.Clip(x, a_min=low, a_max=high)


def place(x: pat.Pattern) -> pat.Pattern:
    return op.Argmax(x, axis=(1,), **PLAIN)


LATTICE: Mapping[str, Pair] = {
    "clip of clip": (lambda x: clip(clip(x, -1, 2), 0, 3), lambda x: clip(x, 0, 2), lambda x: clip(x, 0, 3)),
    "relu of clip": (lambda x: op.ReLU(clip(x, -1, 2)), lambda x: clip(x, 0, 2), lambda x: clip(x, -1, 2)),
    "bounds in order": (lambda x: op.Maximum(op.Minimum(x, 2.0), 1.0), lambda x: op.Minimum(op.Maximum(x, 1.0), 2.0),
                        lambda x: op.Minimum(op.Maximum(x, 2.0), 1.0)),
    "magnitude": (lambda x: op.Maximum(x, -x), lambda x: op.Abs(x), lambda x: op.ReLU(x)),
    "parts of a magnitude": (lambda x: op.ReLU(x) + op.ReLU(-x), lambda x: op.Abs(x), lambda x: x),
    "parts of a number": (lambda x: op.ReLU(x) - op.ReLU(-x), lambda x: op.Copy(x), lambda x: op.Abs(x)),
    "what relu takes away": (lambda x: x - op.ReLU(x), lambda x: op.Minimum(x, 0.0), lambda x: op.Maximum(x, 0.0)),
    "leaky": (lambda x: op.Maximum(x, x * 0.1), lambda x: op.LeakyReLU(x, alpha=0.1),
              lambda x: op.LeakyReLU(x, alpha=0.2)),
    "largest with a sum": (lambda x, y, z: op.Maximum(x - z, y - z), lambda x, y, z: op.Maximum(x, y) - z,
                           lambda x, y, z: op.Maximum(x, y) + z),
    "absorption": (lambda x, y: op.Maximum(x, op.Minimum(x, y)) + y, lambda x, y: x + y, lambda x, y: y + y),
    "distribution": (lambda x, y, z: op.Maximum(x, op.Minimum(y, z)),
                     lambda x, y, z: op.Minimum(op.Maximum(x, y), op.Maximum(x, z)),
                     lambda x, y, z: op.Minimum(op.Maximum(x, y), op.Maximum(y, z))),
    "both of two": (lambda x, y: op.Maximum(x, y) + op.Minimum(x, y), lambda x, y: x + y, lambda x, y: x + x),
    "distance": (lambda x, y: op.Maximum(x, y) - op.Minimum(x, y), lambda x, y: op.Abs(y - x), lambda x, y: x - y),
    "a function that rises": (lambda x, y: op.Exp(op.Maximum(x, y)), lambda x, y: op.Maximum(op.Exp(x), op.Exp(y)),
                              lambda x, y: op.Minimum(op.Exp(x), op.Exp(y))),
    "an odd one": (lambda x, y: op.Tanh(op.Minimum(x, y)), lambda x, y: op.Minimum(op.Tanh(x), op.Tanh(y)),
                   lambda x, y: op.Minimum(op.Tanh(x), op.Erf(y))),
    "one of a quotient": (lambda x, y: op.Sigmoid(op.Maximum(x, y)),
                          lambda x, y: op.Maximum(op.Sigmoid(x), op.Sigmoid(y)),
                          lambda x, y: op.Maximum(op.Sigmoid(-x), op.Sigmoid(y))),
    "one that is 0 at 0": (lambda x: op.Floor(op.ReLU(x)), lambda x: op.ReLU(op.Floor(x)),
                           lambda x: op.ReLU(op.Ceil(x))),
    "one that is 1 at 0": (lambda x: op.Exp(op.ReLU(x)), lambda x: op.Maximum(op.Exp(x), 1.0),
                           lambda x: op.ReLU(op.Exp(x))),
    "one that does not rise": (lambda x, y: op.Cos(op.Maximum(x, y)) + x, lambda x, y: x + op.Cos(op.Maximum(y, x)),
                               lambda x, y: x + op.Maximum(op.Cos(x), op.Cos(y))),
    "a comparison": (lambda x, y: op.Less(x - y, 0.0), lambda x, y: op.Less(x, y), lambda x, y: op.LessEqual(x, y)),
    "the other one": (lambda x, y: op.LogicalNot(op.Less(x, y)), lambda x, y: op.GreaterEqual(x, y),
                      lambda x, y: op.Greater(x, y)),
    "not equal": (lambda x, y: op.LogicalNot(op.Equal(x, y)), lambda x, y: op.NotEqual(x, y),
                  lambda x, y: op.Less(x, y)),
    "the larger one": (lambda x, y: op.Where(op.Less(x, y), y, x), lambda x, y: op.Maximum(x, y),
                       lambda x, y: op.Minimum(x, y)),
    "relu written out": (lambda x: op.Where(op.Greater(x, 0.0), x, 0.0), lambda x: op.ReLU(x), lambda x: op.Abs(x)),
    "a sign": (lambda x: op.Where(op.Less(x, 0.0), -1.0, op.Sign(x)), lambda x: op.Sign(x), lambda x: -op.Sign(x)),
    "a choice the other way": (lambda c, x, y: op.Where(op.LogicalNot(op.Less(c, 0.0)), x, y),
                               lambda c, x, y: op.Where(op.Less(c, 0.0), y, x),
                               lambda c, x, y: op.Where(op.Less(c, 0.0), x, y)),
    "no choice": (lambda c, x: op.Where(op.Less(c, 0.0), x, x), lambda c, x: op.Copy(x), lambda c, x: op.Copy(c)),
    "a choice of a choice": (lambda c, x, y: op.Where(op.Less(c, 0.0), op.Where(op.Less(c, 1.0), x, y), y),
                             lambda c, x, y: op.Where(op.Less(c, 0.0), x, y),
                             lambda c, x, y: op.Where(op.Less(c, 1.0), x, y)),
    "a function of a choice": (lambda c, x, y: op.Sin(op.Where(op.Less(c, 0.0), x, y)),
                               lambda c, x, y: op.Where(op.Less(c, 0.0), op.Sin(x), op.Sin(y)),
                               lambda c, x, y: op.Where(op.Less(c, 0.0), op.Sin(x), op.Cos(y))),
    "a logarithm that is chosen": (lambda c, x, y: op.Where(op.LogicalNot(op.Less(c, 0.0)), op.Log(x), y),
                                   lambda c, x, y: op.Where(op.Less(c, 0.0), y, op.Log(x)),
                                   lambda c, x, y: op.Where(op.Less(c, 0.0), y, op.Log(x)) + op.Log(x) * 0.0),
}  # fmt: skip
"""A side, one that is equal to it, and one that is not."""
LOGIC: Mapping[str, Pair] = {
    "not and": (lambda x, y: op.LogicalNot(op.LogicalAnd(x, y)),
                lambda x, y: op.LogicalOr(op.LogicalNot(x), op.LogicalNot(y)),
                lambda x, y: op.LogicalAnd(op.LogicalNot(x), op.LogicalNot(y))),
    "not or": (lambda x, y: op.LogicalNot(op.LogicalOr(x, y)),
               lambda x, y: op.LogicalAnd(op.LogicalNot(x), op.LogicalNot(y)),
               lambda x, y: op.LogicalOr(op.LogicalNot(x), op.LogicalNot(y))),
    "absorbed": (lambda x, y: op.LogicalOr(y, op.LogicalAnd(x, op.LogicalOr(x, y))), lambda x, y: op.LogicalOr(x, y),
                 lambda x, y: op.LogicalAnd(x, y)),
    "distributed": (lambda x, y, z: op.LogicalAnd(x, op.LogicalOr(y, z)),
                    lambda x, y, z: op.LogicalOr(op.LogicalAnd(x, y), op.LogicalAnd(x, z)),
                    lambda x, y, z: op.LogicalAnd(op.LogicalOr(x, y), op.LogicalOr(x, z))),
    "one of two": (lambda x, y: op.LogicalXor(x, y),
                   lambda x, y: op.LogicalAnd(op.LogicalOr(x, y), op.LogicalNot(op.LogicalAnd(x, y))),
                   lambda x, y: op.LogicalOr(x, y)),
}  # fmt: skip
TWICE: Pair = (
    lambda x: op.LogicalNot(op.LogicalNot(x)), lambda x: op.Copy(x), lambda x: op.LogicalNot(x))  # fmt: skip
FOLDS: Mapping[str, Pair] = {
    "plus a number": (lambda x: largest(x + 1.0), lambda x: largest(x) + 1.0, lambda x: largest(x)),
    "times one": (lambda x: smallest(x * 2.0), lambda x: smallest(x) * 2.0, lambda x: smallest(x) * 3.0),
    "times a negative one": (lambda x: largest(x * -2.0), lambda x: smallest(x) * -2.0, lambda x: largest(x) * -2.0),
    "of two": (lambda x, y: largest(op.Maximum(x, y)), lambda x, y: op.Maximum(largest(x), largest(y)),
               lambda x, y: op.Minimum(largest(x), largest(y))),
    "of the smaller of two": (lambda x, y: smallest(op.Minimum(x, y)),
                              lambda x, y: op.Minimum(smallest(x), smallest(y)),
                              lambda x, y: op.Minimum(largest(x), smallest(y))),
    "relu": (lambda x: op.ReLU(largest(x)), lambda x: largest(op.ReLU(x)), lambda x: largest(op.Abs(x))),
    "clipped": (lambda x: clip(smallest(x), -1, 1), lambda x: smallest(clip(x, -1, 1)),
                lambda x: smallest(clip(x, 0, 1))),
    "a function": (lambda x: op.Exp(smallest(x)), lambda x: smallest(op.Exp(x)), lambda x: largest(op.Exp(x))),
    "a quotient": (lambda x: op.Sigmoid(largest(x)), lambda x: largest(op.Sigmoid(x)),
                   lambda x: smallest(op.Sigmoid(x))),
    "a power": (lambda x: largest(op.Square(op.Exp(x))), lambda x: largest(op.Exp(x) * op.Exp(x)),
                lambda x: op.Exp(largest(x))),
    "a product of zeros": (lambda x: op.Prod(x * 0.0, axis=(1,), **PLAIN) + largest(x),
                           lambda x: largest(x) + op.Prod(0.0 * x, axis=(1,), **PLAIN), lambda x: smallest(x)),
    "a square": (lambda x: op.Square(largest(op.Abs(x))), lambda x: op.Abs(op.Square(largest(op.Abs(x)))),
                 lambda x: largest(op.Square(x) * x)),
    "from the end": (lambda x: largest(op.Reverse(x, axis=(1,))), lambda x: largest(x), lambda x: smallest(x)),
    "a product": (lambda x, y: op.Prod(x * y, axis=(1,), **PLAIN),
                  lambda x, y: op.Prod(x, axis=(1,), **PLAIN) * op.Prod(y, axis=(1,), **PLAIN),
                  lambda x, y: op.Prod(x, axis=(1,), **PLAIN) + op.Prod(y, axis=(1,), **PLAIN)),
    "the place": (lambda x: place(op.Tanh(x) * 2.0 + 1.0), lambda x: place(x), lambda x: place(-x)),
    "the place in a softmax": (lambda x: place(op.Softmax(x, axis=1)), lambda x: place(x),
                               lambda x: place(op.Square(x))),
    "the place of the smallest": (lambda x: op.Argmin(-x, axis=(1,), **PLAIN), lambda x: place(x),
                                  lambda x: op.Argmin(x, axis=(1,), **PLAIN)),
    "the place of rounded ones": (lambda x: place(op.Floor(x)) + 1, lambda x: 1 + place(op.Floor(x)),
                                  lambda x: place(x) + 1),
    "the place from the end": (lambda x: place(op.Reverse(x, axis=(1,))) + 1,
                               lambda x: 1 + place(op.Reverse(x, axis=(1,))), lambda x: place(x) + 1),
    "the place of places": (lambda x: op.Argmax(place(x), axis=(0,), **PLAIN),
                            lambda x: op.Argmax(op.Argmin(-x, axis=(1,), **PLAIN), axis=(0,), **PLAIN),
                            lambda x: op.Argmax(op.Reshape(x, newshape=(-1,)), axis=(0,), **PLAIN)),
    "logarithm of a sum": (lambda x: op.LogSumExp(x + 1.0, axis=(1,), **PLAIN),
                           lambda x: op.LogSumExp(x, axis=(1,), **PLAIN) + 1.0,
                           lambda x: op.LogSumExp(x, axis=(1,), **PLAIN)),
    "logarithm of a softmax": (lambda x: op.Log(op.Softmax(x, axis=1)), lambda x: op.LogSoftmax(x, axis=1),
                               lambda x: op.LogSoftmax(x, axis=0)),
    "logarithm of a sum with a shift": (
        lambda x: op.Log(op.Sum(op.Exp(x - (most := op.Max(x, axis=(1,), **KEPT))), axis=(1,), **KEPT)) + most,
        lambda x: op.LogSumExp(x, axis=(1,), **KEPT), lambda x: op.LogSumExp(x, axis=(1,), **KEPT) * 2.0),
    "logarithm of a quotient": (lambda x: op.Log(op.Exp(x) / (op.Exp(x) + 1.0)), lambda x: x - op.Log(op.Exp(x) + 1.0),
                                lambda x: x - op.Log(op.Exp(x) + 2.0)),
}  # fmt: skip
POOLED: Mapping[str, Pair] = {
    "relu": (lambda x: op.ReLU(pool(x)), lambda x: pool(op.ReLU(x)), lambda x: pool(op.Abs(x))),
    "clipped": (lambda x: clip(pool(x), -1, 1), lambda x: pool(clip(x, -1, 1)), lambda x: pool(clip(x, 0, 1))),
    "a number": (lambda x: pool(x * 2.0) + 1.0, lambda x: pool(x * 2.0 + 1.0), lambda x: pool(x * 2.0) + 2.0),
    "a negative one": (lambda x: pool(x * 2.0), lambda x: pool(x) * 2.0, lambda x: pool(x * -2.0) * -1.0),
}


@pytest.mark.parametrize("name", LATTICE)
def test_order(name: str) -> None:
    told(LATTICE[name])


@pytest.mark.parametrize("dtype", ["bool", "float32"])
@pytest.mark.parametrize("name", LOGIC)
def test_logic(name: str, dtype: str) -> None:
    told(LOGIC[name], dtype=dtype)


def test_twice_not_is_nothing_for_bools_only() -> None:
    told(TWICE, dtype="bool")
    sides = (lambda x: op.LogicalNot(op.LogicalNot(x)) * 1.0, lambda x: x * 1.0)
    assert isinstance(prove(rule(sides, dtype="bool")), Proof)
    assert isinstance(prove(rule(sides)), NoProof)


@pytest.mark.parametrize("name", FOLDS)
def test_folds(name: str) -> None:
    told(FOLDS[name], ndim=2)


@pytest.mark.parametrize("name", POOLED)
def test_pools(name: str) -> None:
    told(POOLED[name], ndim=3)


PADDED: tuple[Mapping[str, Any], ...] = (
    {"pool_size": (1,), "padding": (0, 1)}, {"pool_size": (2,), "padding": (1, 1), "dilation": (2,)},
    {"padding": (3, 0)},
)  # fmt: skip
"""Windows of which some see nothing but padding."""


@pytest.mark.parametrize("window", PADDED)
@pytest.mark.parametrize("sides", [
    (lambda p, x: op.ReLU(p(x)), lambda p, x: p(op.ReLU(x))),
    (lambda p, x: op.Exp(p(x)), lambda p, x: op.Exp(p(x)) + p(x) * 0.0),
    (lambda p, x: op.Exp(p(x)), lambda p, x: op.Exp(p(x) * 2.0) / op.Exp(p(x))),
    (lambda p, x: op.Tanh(p(x)), lambda p, x: op.Tanh(p(x)) + (p(x) - p(x))),
])  # fmt: skip
def test_a_window_that_sees_only_padding_is_infinite(sides: tuple[Side, Side], window: Mapping[str, Any]) -> None:
    def of(chosen: Mapping[str, Any]) -> Proof | NoProof:
        x = pat.Wildcard(ndim=3, dtype="float32")
        return prove(Subst(*(side(lambda value: pool(value, **chosen), x) for side in sides)))

    assert isinstance(of(window), NoProof)
    assert isinstance(found := of({}), Proof), str(found)


@pytest.mark.parametrize("proved", [True, False])
def test_windows_of_any_size(proved: bool) -> None:
    x = pat.Wildcard(ndim=3, dtype="float32")
    whole = op.MaxPool1D(x, dilation=(1,), ceil_mode=False)
    fits = [whole.padding[0] < whole.pool_size[0], whole.padding[1] < whole.pool_size[0]]
    found = prove(Subst(op.ReLU(whole), whole.like(op.ReLU(x)), where=fits if proved else fits[:1]))
    assert isinstance(found, Proof) is proved, str(found)


def test_a_window_without_padding_sees_something() -> None:
    x = pat.Wildcard(ndim=3, dtype="float32")
    whole = op.MaxPool1D(x, padding=(0, 0), ceil_mode=False)
    assert isinstance(found := prove(Subst(op.ReLU(whole), whole.like(op.ReLU(x)))), Proof), str(found)


def test_what_may_be_infinite_has_no_order() -> None:
    for sides in (
        (lambda x: op.Maximum(op.Log(x), -op.Log(x)), lambda x: op.Abs(op.Log(x))),
        (lambda x: op.Tanh(op.Log(x)), lambda x: op.Tanh(op.ReLU(op.Log(x)) - op.ReLU(-op.Log(x)))),
        (lambda x: op.Less(op.Log(x), op.Log(x) + 1.0), lambda x: op.OnesLike(op.Less(x, x))),
    ):
        assert isinstance(prove(rule(sides)), NoProof)


def test_places_along_several_axes_are_not_read() -> None:
    x = pat.Wildcard(ndim=2, dtype="float32")
    both = op.Argmax(x, axis=(0, 1), **PLAIN)
    found = prove(Subst(both, op.Argmax(op.Transpose(x, axes=(1, 0)), axis=(0, 1), **PLAIN)))
    assert isinstance(found, NoProof)
    assert "along several axes" in found.reason


def of_positive(source: Side, target: Side, values: Any = "positive") -> Proof | NoProof:
    """The proof of a rule of a tensor and of one of such numbers."""
    x = pat.Wildcard(ndim=1, dtype="float32")
    y = pat.Wildcard(ndim=1, dtype="float32", values=values)
    return prove(Subst(source(x, y), target(x, y), where=x.shape == y.shape))


def test_powers_and_logarithms() -> None:
    assert isinstance(of_positive(lambda x, y: x + op.Exp(op.Log(y) * 2.0), lambda x, y: x + y * y), Proof)
    assert isinstance(of_positive(lambda x, y: x + op.Exp(op.Log(y) * 0.5), lambda x, y: x + y), NoProof)
    assert isinstance(of_positive(lambda x, y: x + op.Log(op.Exp(y) * 0.5), lambda x, y: x + y), NoProof)
    assert isinstance(of_positive(lambda x, y: x + op.Log(y * y), lambda x, y: x + op.Log(y) * 2.0), Proof)
    assert isinstance(of_positive(lambda x, y: y + op.Log(x * x), lambda x, y: y + op.Log(x) * 2.0), NoProof)


def test_negative_numbers_may_be_divided_by() -> None:
    assert isinstance(of_positive(lambda x, y: x + y, lambda x, y: (x / y) * y + y, (-2, -1)), Proof)
    assert isinstance(of_positive(lambda x, y: x + y, lambda x, y: (x / y) * y + y, (-2, 1)), NoProof)
    both = (lambda x, y: x + y, lambda x, y: x / (y * op.Exp(x)) * (y * op.Exp(x)) + y)
    assert isinstance(of_positive(*both, (-2, -1)), Proof)
    assert isinstance(of_positive(*both, (-2, 1)), NoProof)


def test_bounds_of_leaves_are_used() -> None:
    assert isinstance(of_positive(lambda x, y: x + clip(y, 0, 2), lambda x, y: x + y, (0, 1)), Proof)
    assert isinstance(of_positive(lambda x, y: x + clip(y, 0, 2), lambda x, y: x + y, (0, 3)), NoProof)
    assert isinstance(of_positive(lambda x, y: x + clip(y, 0, 2), lambda x, y: x + y, (-1, 1)), NoProof)
    assert isinstance(of_positive(lambda x, y: x * op.Sign(y + 1.0), lambda x, y: x + y * 0.0, (0, 1)), Proof)


def test_a_bool_is_no_other_number_than_1() -> None:
    x = pat.Wildcard(ndim=1, dtype="float32")

    def plus(value: float) -> pat.Pattern:
        return x + op.Cast(op.Full(value, shape=x.shape, dtype="bool"), dtype="float32")

    assert isinstance(prove(Subst(x + 1.0, plus(1.0))), Proof)
    assert isinstance(prove(Subst(x + 2.0, plus(2.0))), NoProof)


def test_a_product_of_sums_is_no_product_of_its_factors() -> None:
    told((lambda x, y: op.Prod(op.Sum(x * y, axis=(1,), **PLAIN), axis=(0,), **PLAIN),
          lambda x, y: op.Prod(op.Einsum([x, y], equation="ij,ij->i"), axis=(0,), **PLAIN),
          lambda x, y: op.Prod(op.Sum(x, axis=(1,), **PLAIN), axis=(0,), **PLAIN) * op.Prod(
              op.Sum(y, axis=(1,), **PLAIN), axis=(0,), **PLAIN)), ndim=2)  # fmt: skip
