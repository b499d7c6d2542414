"""Wrong rules are refuted, each with the smallest counterexample, a program that shows it, and what the rule lacks."""

from __future__ import annotations

import contextlib
import io
import pickle
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from gsl import Refuted, Subst, Supported, attr, is_op, op, pat
from gsl.match import Match
from gsl.verify import Suggestion, Verdict, models, verify
from gsl.verify.models import Comparison, OutputComparison
from gsl.verify.mutate import rebuilt
from gsl.verify.suggest import legend, names_of
from tests.verify.wrong import WRONG, padded_twice

EXAMPLES = 100


@pytest.fixture(scope="module")
def verdicts() -> dict[str, Verdict]:
    return {}


def verdict(name: str, verdicts: dict[str, Verdict]) -> Refuted:
    """The verdict on a wrong rule, which is computed once."""
    if name not in verdicts:
        verdicts[name] = WRONG[name].make().verify(max_examples=EXAMPLES, seed=2)
    found = verdicts[name]
    assert isinstance(found, Refuted), str(found)
    return found


@pytest.mark.sweep(4)
@pytest.mark.parametrize("name", WRONG)
def test_it_is_refuted(name: str, verdicts: dict[str, Verdict]) -> None:
    found = verdict(name, verdicts)
    example = found.counterexample
    assert example.kind == WRONG[name].kind, str(found)
    assert not found
    # Smaller than what the first failing instance tends to be: dimensions of 1 and 2 mostly, hardly a node too many.
    assert len(example.before.nodes) <= 6
    assert all(size <= 4 for node in example.before.nodes for size in node.shape or ())
    told = replace(found, missing=None)  # a condition takes long to find, and others look at it
    for text in (str(told), told._repr_html_()):
        assert "before" in text
        assert "after" in text


@pytest.mark.sweep(2)
@pytest.mark.parametrize("name", WRONG)
def test_the_program_shows_the_difference(name: str, verdicts: dict[str, Verdict]) -> None:
    program = verdict(name, verdicts).counterexample.code
    assert "gsl" not in program
    with pytest.raises(AssertionError), contextlib.redirect_stdout(io.StringIO()) as shown:
        exec(program, {})
    assert "output 0 of the source" in shown.getvalue()


@pytest.mark.long
def test_the_program_runs_alone(verdicts: dict[str, Verdict]) -> None:
    program = verdict("exchanged operands", verdicts).counterexample.code
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "AssertionError" in done.stderr
    assert "of the source" in done.stdout


def test_a_condition_is_looked_for_when_it_is_asked_for() -> None:
    compared = []

    def compare(before: Any, after: Any, *, seed: int) -> Comparison:
        compared.append(seed)
        return models.compare(before, after, seed=seed)

    found = verify(WRONG["scale through relu"].make(), max_examples=EXAMPLES, compare=compare)
    assert isinstance(found, Refuted)
    refuted = len(compared)
    again = pickle.loads(pickle.dumps(found))  # what is sent is complete
    assert len(compared) > 2 * refuted
    asked = len(compared)
    assert found.suggestion is not None
    assert again.suggestion.text == found.suggestion.text
    assert "c.value > 0" in again.suggestion.text
    assert str(again) == str(found)
    assert len(compared) == asked


@pytest.mark.sweep(4)
@pytest.mark.parametrize("name", WRONG)
def test_the_missing_condition_is_suggested(name: str, verdicts: dict[str, Verdict]) -> None:
    found = verdict(name, verdicts)
    wanted = WRONG[name].condition
    if wanted is None:
        assert found.suggestion is None, str(found.suggestion)
        return
    assert found.suggestion is not None
    assert wanted in found.suggestion.text
    assert isinstance(found.suggestion.verdict, Supported)
    assert f"where={found.suggestion.text}" in str(found)


def attention_of(*where: Callable[[Any], Any]) -> Subst:
    """Attention with a mask that is added, on conditions on the mask."""
    q, k, v, mask = (pat.Wildcard() for _ in range(4))
    scores = op.Matmul(q, op.Transpose(k, axes=(0, 1, 3, 2))) + mask
    target = op.Attention(q, k, v, mask, scale=1.0)
    conditions = [condition(mask) for condition in where]
    return Subst(op.Matmul(op.Softmax(scores, axis=-1), v), target, where=conditions, name="attention")


@pytest.mark.long
def test_a_leaf_that_alone_has_another_dtype_refutes() -> None:
    """A boolean mask is added as 0 and 1, while attention leaves out what it forbids."""
    found = attention_of().verify()
    assert isinstance(found, Refuted), str(found)
    assert [node.dtype for node in found.counterexample.before.nodes].count("bool") == 1
    assert found.suggestion is not None
    assert ".dtype, ('float32', 'float64'" in found.suggestion.text
    assert isinstance(attention_of(lambda mask: mask.dtype != "bool").verify(max_examples=80), Supported)


def test_one_of_two_conditions_is_suggested_and_which_wildcards_are_meant() -> None:
    x, y = pat.Wildcard(ndim=1, dtype="float32"), pat.Wildcard(ndim=1, dtype="float32")
    found = verify(Subst(op.Sum(x * y, axis=(0,)), op.Sum(x, axis=(0,)) * op.Sum(y, axis=(0,))), max_examples=60)
    assert isinstance(found, Refuted)
    assert found.suggestion is not None
    assert found.suggestion.text == "(x.shape[0] == 1) | (x1.shape[0] == 1)"
    assert "x is Wildcard(dtype='float32', ndim=1)" in str(found.suggestion)
    assert ", operand 1 of multiply" in found.suggestion.names["x1"]


def test_patterns_of_one_line_have_names_of_their_own() -> None:
    a = op.Transpose(pat.Wildcard()); b = op.Transpose(a)  # noqa: E702
    c = op.Transpose(b)
    names = names_of(Subst(c, c))
    assert names[c] == "c"
    assert {"a", "b"}.isdisjoint(names.values())


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.long), pytest.param(3, marks=pytest.mark.long)])
def test_two_conditions_that_only_together_tell_are_suggested(seed: int) -> None:
    """A positive factor, and no integers of 8 bits, which wrap: neither of these alone is enough."""
    rule = WRONG["scale through relu"].make()
    found = rule.verify(seed=seed)
    assert isinstance(found, Refuted)
    assert found.suggestion is not None
    assert "c.value > 0) & (" in found.suggestion.text
    assert "dtype" in found.suggestion.text
    adopted = rebuilt(rule, more=[found.suggestion.condition]).verify(seed=seed)
    assert adopted.title == found.suggestion.verdict.title == "supported by 200 instances", str(adopted)


@pytest.mark.parametrize("seed", range(5, 8))
def test_tensors_of_one_element_are_enough_to_see_integers_wrap(seed: int) -> None:
    x, c = pat.Wildcard(ndim=0, dtype="int8"), pat.Const(ndim=0)
    rule = Subst(op.ReLU(x * c), op.ReLU(x) * c, where=c.value > 0)
    assert isinstance(verify(rule, max_examples=5, seed=seed, suggest=False), Refuted)


def clamped(value: float, *, given: bool) -> Subst:
    """A bound below which a condition lets no number be, or which it gives itself."""
    x, low = pat.Wildcard(dtype="float32"), pat.Const(ndim=0)

    def is_low(match: Match) -> bool:
        return bool(match[low].attrs["value"] == value)

    if given:
        is_low.values = {low: lambda shape: np.full(shape, value)}  # type: ignore[attr-defined]
    return Subst(op.Maximum(x, low), x, where=[is_low] if given else [low.value == value])


def test_other_numbers_are_far_from_one_that_a_condition_gives() -> None:
    found = verify(clamped(-1e30, given=True), max_examples=40)
    assert isinstance(found, Supported)
    assert "assumed: other numbers are far from -1e+30" in str(found)
    assert isinstance(verify(clamped(-1e30, given=False), max_examples=40, suggest=False), Refuted)


def even_power() -> Subst:
    x, k = pat.Wildcard(dtype="float32"), pat.Const(ndim=0)
    return Subst(op.Power(op.Negative(x), k), op.Power(x, k))


def middle_of_a_reversed_vector() -> Subst:
    x = pat.Wildcard(ndim=1, dtype="float32")
    part = op.StridedSlice(x, strides=(1,), axes=(0,))
    same_part = op.StridedSlice(op.Reverse(x, axis=0), begin=part.begin, end=part.end, strides=(1,), axes=(0,))
    return Subst(op.Reverse(part, axis=0), same_part)


def mean_of_both_halves() -> Subst:
    x = pat.Wildcard(ndim=1, dtype="float32")
    size = x.shape[0]
    halves = [op.StridedSlice(x, begin=(begin,), end=(end,), strides=(1,), axes=(0,))
              for begin, end in ((0, (size + 1) // 2), (size // 2, size))]  # fmt: skip
    whole = op.Mean(x, axis=(0,), keepdims=False, exclude=False)
    left, right = (whole.like(half) for half in halves)
    return Subst(whole, (left + right) * 0.5)


def leaky_maximum() -> Subst:
    x = pat.Wildcard(dtype="float32")
    leaky = op.LeakyReLU(x)
    return Subst(leaky, op.Maximum(x, x * leaky.alpha))


def rectified_padding() -> Subst:
    x = pat.Wildcard(dtype="float32")
    padded = op.Pad(x, pad_mode="constant")
    return Subst(op.ReLU(padded), padded.like(op.ReLU(x)))


def permuted_back() -> Subst:
    x = pat.Wildcard()
    inner = op.Transpose(x)
    outer = op.Transpose(inner)
    return Subst(outer, x)


def softmax_of_two() -> Subst:
    """A softmax of two numbers is a sigmoid of their difference, and one of more numbers is not."""
    x = pat.Wildcard(ndim=2, dtype="float32")
    soft = op.Softmax(x, axis=1)
    first = op.StridedSlice(soft, begin=(0,), end=(1,), strides=(1,), axes=(1,))
    other = op.StridedSlice(x, begin=(1,), end=(2,), strides=(1,), axes=(1,))
    return Subst(first, op.Sigmoid(first.like(x) - other), where=x.shape[1] >= 2)


def chosen_rows() -> Subst:
    """Rows that a product of matrices chooses: none where there is no such row, where a lookup is an error."""
    x = pat.Wildcard(ndim=2, dtype="float32")
    places = pat.Wildcard(ndim=1, dtype="int64", values=range(2))
    rows = op.Arange(start=0, stop=x.shape[0], step=1, dtype="int64")
    chosen = op.Cast(op.Equal(op.ExpandDims(places, axis=1, num_newaxis=1), rows), dtype="float32")
    return Subst(op.Matmul(chosen, x, out_dtype=""), op.Take(x, places, axis=0))


@pytest.mark.sweep(4)
@pytest.mark.sweep(6)
@pytest.mark.parametrize(("make", "conditions"), [
    (softmax_of_two, ["x.shape[1] == 2"]), (chosen_rows, ["rows.shape[0] >= 2", "x.shape[0] >= 2", "rows.stop >= 2"]),
    (even_power, ["c.value % 2 == 0", "k.value % 2 == 0"]),
    (middle_of_a_reversed_vector,
     ["part.begin[0] + part.end[0] == x.shape[0]", "2 * part.begin[0] + part.shape[0] == x.shape[0]"]),
    (mean_of_both_halves, ["x.shape[0] % 2 == 0", "(x.shape[0] % 2 == 0) | (x.shape[0] == 1)"]),
    (leaky_maximum, ["leaky.alpha <= 1"]),
    (rectified_padding, ["padded.pad_value >= 0"]),
    (permuted_back, ["outer.axes == attr.Inverse(inner.axes)", "inner.axes == attr.Inverse(outer.axes)"]),
])  # fmt: skip
def test_conditions_on_numbers_are_suggested(make: Callable[[], Subst], conditions: list[str]) -> None:
    found = verify(make(), max_examples=60)
    assert isinstance(found, Refuted)
    assert found.suggestion is not None
    assert found.suggestion.text in conditions


@pytest.mark.long
def test_a_rule_that_is_refused_at_odd_sizes_gets_its_condition() -> None:
    """An unsigned number that is negated wraps before its product has a wider dtype."""
    def rotated(x: Any, c: Any, s: Any) -> Any:
        half = x.shape[-1] // 2
        return x * c + torch.cat([-x[..., half:], x[..., :half]], -1) * s

    def in_halves(x: Any, c: Any, s: Any) -> Any:
        half = x.shape[-1] // 2
        left = x[..., :half] * c[..., :half] - x[..., half:] * s[..., :half]
        return torch.cat([left, x[..., half:] * c[..., half:] + x[..., :half] * s[..., half:]], -1)

    found = verify(Subst.from_programs(rotated, in_halves, x="b h n d", c="n d", s="n d"))
    assert isinstance(found, Refuted)
    assert found.suggestion is not None
    assert ".dtype" in found.suggestion.text


@pytest.mark.long
def test_a_target_that_is_wrong_itself_gets_no_condition() -> None:
    x, w = pat.Wildcard(ndim=2), pat.Wildcard(ndim=2)
    turned = op.Matmul(op.Transpose(w, axes=(1, 0)), op.Transpose(x, axes=(1, 0)), out_dtype="")
    found = verify(Subst(op.Matmul(x, w, out_dtype=""), turned, name="turned"), max_examples=60)
    assert isinstance(found, Refuted)
    assert found.suggestion is None, str(found.suggestion)


def always_equal(before: object, after: object, *, seed: int) -> Comparison:
    return Comparison((OutputComparison((0,), "float64", True, 1),), None)


@pytest.mark.parametrize("name", WRONG)
def test_it_is_the_comparison_that_refutes(name: str) -> None:
    assert isinstance(verify(WRONG[name].make(), max_examples=20, compare=always_equal), Supported)


def cast_twice(first: str, second: str, third: str) -> Subst:
    x = pat.Wildcard(dtype=first)
    return Subst(op.Cast(op.Cast(x, dtype=second), dtype=third), op.Cast(x, dtype=third))


def indices_from_the_end() -> Subst:
    x, i = pat.Wildcard(dtype="float32"), pat.Wildcard(dtype="int64")
    end = op.Subtract(x.shape[0] - 1, i)
    return Subst(op.Take(op.Reverse(x, axis=(0,)), i, axis=0), op.Take(x, end, axis=0))


def clipped_integers() -> Subst:
    x = pat.Wildcard(dtype="int64")
    return Subst(op.Clip(x, a_min=-100, a_max=100), x)


def clipped_twice() -> Subst:
    """Right where the two ranges have a number in common."""
    x, none = pat.Wildcard(dtype="float32"), attr.Const(None)
    inner = op.Clip(x)
    outer = op.Clip(inner)
    low, high = attr.max(inner.a_min, outer.a_min), attr.min(inner.a_max, outer.a_max)
    bounds = (inner.a_min, inner.a_max, outer.a_min, outer.a_max)
    return Subst(outer, op.Clip(x, a_min=low, a_max=high), where=[bound != none for bound in bounds])


def counted_backwards() -> Subst:
    """Right for steps of one."""
    numbers = op.Arange(dtype="int64")
    turned = op.Arange(start=numbers.stop - 1, stop=numbers.start - 1, step=-1 * numbers.step, dtype="int64")
    return Subst(op.Reverse(numbers, axis=(0,)), turned)


def few_diagonals() -> Subst:
    """Right up to the diagonal next to the main one."""
    upper = op.Trilu(x := pat.Wildcard(ndim=2), upper=True)
    return Subst(upper, upper.like(x, k=attr.min(upper.k, 1)))


def main_diagonal() -> Subst:
    data, diagonal = pat.Wildcard(ndim=2), pat.Wildcard()
    written = op.MatrixSetDiag(data, diagonal, align="RIGHT_LEFT")
    return Subst(written, op.MatrixSetDiag(data, diagonal, k=(0, 0)), where=written.k[1] >= 0)


def mask_of_other_places() -> Subst:
    q, k, v = (pat.Wildcard(ndim=4, dtype="float32") for _ in range(3))
    mask = pat.Wildcard(ndim=4, dtype="float32")
    attention = op.Attention(q, k, v, mask, enable_gqa=False)
    return Subst(attention, attention.like(q, k, v, op.Reverse(mask, axis=(0,))))


def sign_of_a_zero() -> Subst:
    x, y = pat.Wildcard(dtype="float32"), pat.Wildcard(dtype="float32")
    return Subst(op.Atan2(x * 0.0, y), op.Atan2(op.ZerosLike(x), y))


def quotient_of_zeros() -> Subst:
    """The factor has no value where the numbers are equal."""
    x, y = pat.Wildcard(dtype="float32"), pat.Wildcard(dtype="float32")
    return Subst(x + y, op.Log(op.Exp(x) * op.Exp(y)) / (x - y) * (x - y))


def variance_of_one() -> Subst:
    """What is added makes many columns of one."""
    x, y = pat.Wildcard(ndim=2, dtype="float32"), pat.Wildcard(ndim=1, dtype="float32")
    spread = op.Variance(x + y)
    return Subst(spread, spread.like(x), where=[spread.unbiased, x.shape[1] == 1, spread.axis == (1,)])


def softmax_of_what_is_infinite() -> Subst:
    """The logarithm of 0 is no number once it is taken from itself."""
    log = op.Log(pat.Wildcard(dtype="float32"))
    weights = op.Softmax(log)
    return Subst(weights, weights.like(log + (log - log)))


def over(function: Callable[..., pat.Call], x: Any, axis: tuple[int, ...], *, keepdims: bool = False) -> pat.Call:
    """A reduction over axes."""
    return function(x, axis=axis, keepdims=keepdims, exclude=False)


def spread_of_positive_numbers() -> Subst:
    """Wrong where numbers are equal, which rounding could make them seem."""
    x = pat.Wildcard(dtype="float32", ndim=2, values="positive")
    spread = op.Variance(x, axis=(0,), keepdims=False)
    return Subst(op.Sign(spread), op.OnesLike(spread), where=x.shape[0] > 1)


def least_below_the_mean() -> Subst:
    x = pat.Wildcard(dtype="float32", ndim=2, values="positive")
    least, mean = over(op.Min, x, (1,)), over(op.Mean, x, (1,))
    return Subst(op.Less(least, mean), op.Ones(shape=least.shape, dtype="bool"), where=x.shape[1] > 2)


def product_of_a_sum(operator: Callable[..., pat.Call]) -> Subst:
    """Wrong where the result is wider than the bytes, which wrap before they are multiplied."""
    x, y, w = (pat.Wildcard(dtype="int8") for _ in range(3))
    product = operator(x + y, w)
    return Subst(product, product.like(x, w) + product.like(y, w), where=x.shape == y.shape)


def sums_in_a_dtype() -> Subst:
    """Wrong for sums of floats in integers."""
    sums = op.Cumsum(pat.Wildcard(dtype="float32") * 0.5)
    return Subst(sums, sums.like(sums.operands[0].operands[0]) * 0.5)


def sums_of_all_elements() -> Subst:
    """Wrong where no axis is given, so that all elements are in one row."""
    sums = op.Cumsum(pat.Wildcard(dtype="float32", ndim=2), dtype="", exclusive=False)
    turned = op.Reverse(op.Cumsum(op.Reshape(sums.operands[0], newshape=(-1,)), axis=0), axis=(0,))
    return Subst(sums, turned, where=sums.ndim == 1)


def other_begins() -> Subst:
    """Wrong for slices of both axes that begin at different places."""
    part = op.StridedSlice(x := pat.Wildcard(dtype="float32", ndim=2))
    begin = part.begin[1], part.begin[0]
    end = [place + size for place, size in zip(begin, (part.shape[0], part.shape[1]))]
    other = part.like(x, begin=attr.Tuple(*begin), end=attr.Tuple(*end))
    return Subst(part, other, where=[part.axes == (0, 1), part.strides == (1, 1)])


@pytest.mark.parametrize(
    "make",
    [
        *(partial(product_of_a_sum, operator) for operator in (op.Matmul, op.Dense, op.BatchMatmul, op.Conv1D)),
        sums_in_a_dtype, sums_of_all_elements, other_begins,
        partial(cast_twice, "int64", "float64", "int64"),  # beyond 2**53
        partial(cast_twice, "int64", "float16", "float32"),  # beyond 2**11
        partial(cast_twice, "int64", "int32", "bool"),  # 2**32
        partial(cast_twice, "float64", "float32", "int64"),  # next to 1
        indices_from_the_end, leaky_maximum, clipped_integers, padded_twice, clipped_twice, counted_backwards,
        few_diagonals, main_diagonal, mask_of_other_places, sign_of_a_zero, quotient_of_zeros, variance_of_one,
        spread_of_positive_numbers, least_below_the_mean, softmax_of_what_is_infinite,
    ],
)  # fmt: skip
def test_a_mistake_on_few_numbers_is_found(make: Callable[[], Subst]) -> None:
    assert isinstance(verify(make(), suggest=False), Refuted)


def matrix_beside_an_expansion() -> Subst:
    """The expansion has a rank that the matrix has not."""
    x, y = pat.Wildcard(shape=(2, 2), dtype="float32"), pat.Wildcard()
    expanded = [op.ExpandDims(each, axis=axis, num_newaxis=1) for each, axis in ((y, 2), (x, 1))]
    return Subst(op.Minimum(x, expanded[0]), op.Minimum(x, expanded[1]))


def total_beside_a_transpose() -> Subst:
    turned = op.Transpose(x := pat.Wildcard(ndim=2, dtype="float32"))
    return Subst(op.Minimum(over(op.Sum, x, (0, 1)), turned), turned)


def row_beside_columns() -> Subst:
    """Right for a row alone."""
    x = pat.Wildcard(ndim=2)
    columns = op.ExpandDims(x, axis=2, num_newaxis=1)
    return Subst(op.Minimum(over(op.Sum, x, (0,), keepdims=True), columns), op.Minimum(x, columns))


def sum_before_a_product() -> Subst:
    """Wrong where the second factor alone has a batch, of as many matrices as the first one has rows."""
    a, b = pat.Wildcard(dtype="float32"), pat.Wildcard(dtype="float32")
    product = op.Matmul(a, b, out_dtype="")
    return Subst(over(op.Sum, product, (0,)), op.Matmul(over(op.Sum, a, (0,)), b, out_dtype=""))


def first_of_a_vector() -> Subst:
    """The axis of a vector, counted from the end."""
    x = pat.Wildcard(shape=(4,), dtype="float32")
    first = op.StridedSlice(x, begin=(0,), end=(1,), strides=(1,), axes=(-1,))
    return Subst(first, first.like(op.Abs(x), axes=(-1,)))


def reshape_of_a_sum() -> Subst:
    """Wrong where the sizes change places, and the second operand fits both shapes."""
    x, y = pat.Wildcard(), pat.Wildcard()
    reshaped = op.Reshape(x + y)
    return Subst(reshaped, reshaped.like(x) + y)


@pytest.mark.sweep(2)
@pytest.mark.parametrize("make", [
    matrix_beside_an_expansion, total_beside_a_transpose, row_beside_columns, sum_before_a_product, first_of_a_vector,
    attention_of, reshape_of_a_sum,
])  # fmt: skip
def test_a_mistake_in_few_shapes_or_dtypes_is_found(make: Callable[[], Subst]) -> None:
    for seed in (3, 4, 7):
        assert isinstance(verify(make(), seed=seed, suggest=False), Refuted), seed


def halves_between_casts(make: Callable[[Any], Any], dtype: str = "float16") -> tuple[Any, Any]:
    """A function in float32 with its result in another dtype, and the same function of what is cast before."""
    x = pat.Wildcard(dtype="float32")
    return op.Cast(make(x), dtype=dtype), make(op.Cast(x, dtype=dtype))


def in_float32(make: Callable[[Any], Any], dtype: str = "float16") -> tuple[Any, Any]:
    """A function in float32 between two casts, and the function alone."""
    x = pat.Wildcard(dtype=dtype)
    return op.Cast(make(op.Cast(x, dtype="float32")), dtype=dtype), make(x)


@pytest.mark.sweep(12)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("function", [op.Exp, op.Softmax, op.RMSNorm, op.ReLU, lambda x: op.Tanh(x) * 3.0])
def test_only_outputs_have_the_rounding_of_their_dtype(function: Callable[[Any], Any], dtype: str) -> None:
    source, target = in_float32(function, dtype)
    assert isinstance(verify(Subst(source, target), max_examples=40), Supported)
    assert isinstance(verify(Subst(source, target * 1.0001), max_examples=40, suggest=False), Refuted)
    used_again = Subst(op.Cast(source, dtype="float32"), op.Cast(target, dtype="float32"))
    rounds_before = Subst(*halves_between_casts(function, dtype))
    expected = Supported if function is op.ReLU else Refuted
    assert isinstance(verify(used_again, max_examples=40, suggest=False), expected)
    assert isinstance(verify(rounds_before, max_examples=40, suggest=False), expected)


@pytest.mark.sweep(3)
@pytest.mark.parametrize("ask", [op.IsNan, op.IsInf, lambda x: op.LogicalNot(op.IsFinite(x))])
def test_leaves_are_not_finite_where_the_source_asks_if_they_are(ask: Callable[[Any], Any]) -> None:
    x, y = pat.Wildcard(dtype="float32", ndim=1), pat.Wildcard(dtype="float32", ndim=1)
    both = op.Concatenate([x, y], axis=0)
    source = op.Where(ask(both), 0.0, both)
    found = Subst(source, both).verify()
    assert isinstance(found, Refuted)
    with pytest.raises(AssertionError, match="not close"):
        exec(found.counterexample.code, {})
    parts = [op.Where(ask(part), 0.0, part) for part in (x, y)]
    assert isinstance(Subst(source, op.Concatenate(parts, axis=0)).verify(), Supported)


@pytest.mark.sweep(4)
@pytest.mark.parametrize("apply", [op.BitwiseAnd, op.BitwiseXor, op.LeftShift])
def test_bits_of_numbers_that_are_rounded_are_compared(apply: Callable[[Any, Any], Any]) -> None:
    x = pat.Wildcard(dtype="int64", ndim=2)

    def rounded(x: Any) -> Any:
        return op.Cast(op.Round(op.Cast(x, dtype="float32") * 0.5), dtype="int64")

    assert isinstance(verify(Subst(apply(rounded(x), 1), rounded(apply(x, 1))), suggest=False), Refuted)


def in_float32_between_casts(x: Any, y: Any) -> Any:
    return op.Cast(op.Cast(x, dtype="float32") * op.Cast(y, dtype="float32"), dtype="float16")


def through_halves(between: Callable[[Any], Any], product: Callable[[Any, Any], Any]) -> tuple[Any, Any]:
    """A product of a tensor in float32 that is cast to halves, and the product in float32, cast then."""
    x, y = pat.Wildcard(dtype="float32"), pat.Wildcard(dtype="float16")
    in_halves = product(between(op.Cast(x, dtype="float16")), y)
    return in_halves, op.Cast(product(between(x), op.Cast(y, dtype="float32")), dtype="float16")


@pytest.mark.parametrize("between", [lambda x: x, partial(op.Dropout, rate=0.5)], ids=["alone", "moved"])
def test_a_factor_may_keep_the_digits_that_a_cast_takes(between: Callable[[Any], Any]) -> None:
    in_halves, in_floats = through_halves(between, partial(op.Matmul, out_dtype=""))
    assert isinstance(verify(Subst(in_halves, in_floats), max_examples=40), Supported)
    assert isinstance(verify(Subst(in_halves, in_floats * 1.01), max_examples=40, suggest=False), Refuted)
    assert isinstance(verify(Subst(in_floats, in_halves), max_examples=40, suggest=False), Refuted)


@pytest.mark.parametrize(
    ("between", "product"),
    [
        (lambda x: x, in_float32_between_casts),
        (partial(op.Dropout, rate=0.5), in_float32_between_casts),
        (op.Exp, partial(op.Matmul, out_dtype="")),
    ],
    ids=["read in float32", "moved and read in float32", "read by exp"],
)
def test_the_digits_that_a_cast_takes_stay_away_elsewhere(
    between: Callable[[Any], Any], product: Callable[[Any, Any], Any]
) -> None:
    in_halves, in_floats = through_halves(between, product)
    assert isinstance(verify(Subst(in_halves, in_floats), max_examples=40, suggest=False), Refuted)


@pytest.mark.parametrize("dtypes", [("int32", "float64", "int32"), ("uint8", "float16", "int64")])
def test_casts_that_keep_all_numbers(dtypes: tuple[str, str, str]) -> None:
    assert isinstance(verify(cast_twice(*dtypes), max_examples=40), Supported)


def test_a_factor_of_bools_has_bounds() -> None:
    x, mask = pat.Wildcard(dtype="float32"), pat.Wildcard(dtype="bool")
    product = op.Dense(op.Exp(x), mask, out_dtype="float32")
    assert isinstance(verify(Subst(product, product.like(op.Exp(x) * 3.0, mask) / 3.0), max_examples=40), Supported)
    assert isinstance(verify(Subst(product, product.like(x, mask)), max_examples=40, suggest=False), Refuted)


def test_the_variable_of_a_rule_is_no_name_of_its_source() -> None:
    x, a = pat.Wildcard(ndim=0, dtype="float32"), pat.Param(ndim=0, dtype="float32")
    wrong = Subst(op.ReLU(x * a), op.ReLU(x) * a)
    assert "wrong" not in names_of(wrong).values()


def test_a_suggestion_tells_the_names_that_it_has() -> None:
    x, a = pat.Wildcard(), pat.Param()
    mul = x * a
    rule = Subst(op.ReLU(mul), op.ReLU(x) * a, where=a.ndim == 0)
    names = legend(rule, names_of(rule))
    told = Suggestion(None, "attr.In(mul.dtype, ('float32',)) & (mul.a == 1)", names, rule.verify(max_examples=1))
    assert [line.split()[0] for line in str(told).splitlines()[1:-1]] == ["mul"]


def test_integers_that_wrap_are_excluded_by_their_dtype() -> None:
    """A maximum taken before the factor of 0.5: of bytes the difference wraps."""
    x, half = pat.Wildcard(), pat.Const(0.5)
    scaled = x * half
    most = op.Max(scaled, keepdims=True)
    rule = Subst(scaled - most, (x - op.Max(x, axis=most.axis, keepdims=True)) * half, name="mul softmax")
    found = rule.verify(max_examples=80)
    assert isinstance(found, Refuted)
    assert found.suggestion is not None
    assert found.suggestion.text == 'x.dtype != "uint8"'


def test_products_of_whole_numbers_that_come_from_comparisons() -> None:
    """A one-hot product has rows of zeros for places out of range, of which a lookup has no value."""
    places, table = pat.Wildcard(dtype="int64", ndim=1), pat.Wildcard(ndim=2)
    rows = op.Arange(start=0, stop=table.shape[0], step=1)
    one_hot = op.Cast(op.Equal(op.ExpandDims(places, axis=1), rows), dtype=table.dtype)
    found = verify(Subst(op.Matmul(one_hot, table), op.Take(table, places, axis=0)), max_examples=60)
    assert isinstance(found, Refuted)
    x, y = pat.Wildcard(dtype="float32", ndim=2), pat.Wildcard(dtype="int8", ndim=2)
    sides = [op.Matmul(op.Cast(op.Greater(x, bound), dtype="int8"), y) for bound in (0.5, 0.25)]
    assert isinstance(verify(Subst(*sides), max_examples=60), Refuted)


def test_a_call_may_use_the_one_before_it_twice() -> None:
    """A chain of additions as one sum, by a target that forgets ``s + s``; and a relation whose user has one operand
    twice."""
    adds = pat.Repeat(op.Add(pat.Wildcard(), pat.Wildcard()), min=2)

    def summed(match: Match) -> Any:
        first, *rest = match.chain(adds)
        parts = [*first.args]
        for before, node in zip([first, *rest], rest):
            parts += [operand for operand in node.args if operand is not before]
        return op.Sum(op.Stack(parts, axis=0), axis=(0,))

    def alike(match: Match) -> bool | str:
        types = {operand.type for node in match.chain(adds) for operand in node.args}
        return len(types) == 1 or "operands of several types"

    found = verify(Subst(adds, summed, where=alike), max_examples=200)
    assert isinstance(found, Refuted), str(found)
    relu, add = is_op("nn.relu"), is_op("add")

    def other(match: Match) -> Any:
        parts = dict.fromkeys(match[add].args)
        return op.Tanh(match[relu]) if len(parts) == 1 else op.Add(*reversed(parts))

    assert isinstance(verify(Subst(relu > add, other), max_examples=200), Refuted)
