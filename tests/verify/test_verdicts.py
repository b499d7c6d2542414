"""Verdicts: when there is none, that they repeat, what mutation finds, and how a counterexample is drawn."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from itertools import count
from typing import Any

import numpy as np
import pytest
import torch

from gsl import Refuted, Subst, Supported, Unchecked, attr, attr_eq, op, pat
from gsl.errors import PatternError
from gsl.rules import MODULE_FUSION, RULES
from gsl.verify import Verdict, verify
from gsl.verify.models.algebra import run_program
from tests.verify.wrong import WRONG

x, y, w = pat.Wildcard(), pat.Wildcard(), pat.Param()


def never_typed() -> Subst:
    return Subst(op.Exp(op.Sum(x, axis=(0,), keepdims=False)), op.Exp(x))


def never_true() -> Subst:
    return Subst(op.ReLU(x), op.ReLU(x), where=[x.ndim == 2, x.ndim == 3])


def identity() -> Subst:
    relu = op.ReLU(x)
    return Subst(relu, relu)


def literal() -> Subst:
    numbers = np.array([1.0, 2.0], np.float32)
    return Subst(op.Tanh(x) * numbers, numbers * op.Tanh(x))


def native() -> Subst:
    return Subst(pat.Call(torch.special.erfcx, x), op.Exp(x))


def native_target() -> Subst:
    return Subst(op.ReLU(x), pat.Call(torch.ops.aten.hardswish.default, x))


def outlined() -> Subst:
    return Subst(op.ReLU(x), pat.Fused("group"))


def built() -> Subst:
    return Subst(op.ReLU(x), pat.Module(lambda match: torch.nn.ReLU(), x))


def refused() -> Subst:
    return Subst(op.ReLU(x), op.ReLU6(x), where=lambda match: "not on Sundays")


def without_values() -> Subst:
    """The logarithm of a negative number is no number anywhere."""
    return Subst(op.Log(-op.Exp(x)), op.Log(op.Negative(op.Exp(x)) * 2.0))


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (never_typed, "but its replacement"),
        (never_true, "no instance of the source could be made"),
        (identity, "the target is what was matched"),
        (native, "native to a framework"),
        (native_target, r"aten.hardswish.default(Wildcard) is native to a framework"),
        (outlined, "has no meaning of its own"),
        (built, "has no meaning of its own"),
        (refused, "not on Sundays"),
        pytest.param(without_values, "no finite values", marks=pytest.mark.long),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_unchecked(make: Callable[[], Subst], reason: str) -> None:
    found = make().verify(max_examples=40)
    assert isinstance(found, Unchecked), str(found)
    assert reason in found.reason
    assert reason in str(found)
    assert not found


def test_literal_tensors_of_numpy_are_understood() -> None:
    found = literal().verify(max_examples=40)
    assert isinstance(found, Supported), str(found)


def test_a_node_that_is_to_be_an_output_is_one() -> None:
    inner = op.Exp(x)
    rule = Subst(op.ReLU(inner), inner, where=[pat.IsOutput(inner)])
    found = rule.verify(max_examples=40)
    assert isinstance(found, Supported), str(found)
    wrong = Subst(op.ReLU(inner), op.ReLU(op.Exp(x) - 1.0), where=[pat.IsOutput(inner)])
    refuted = wrong.verify(max_examples=40)
    assert isinstance(refuted, Refuted), str(refuted)
    assert [node.op for node in refuted.counterexample.before.outputs] == ["nn.relu", "exp"]


def test_too_few_examples_support_nothing() -> None:
    found = RULES["copy-identity"].verify(max_examples=10)
    assert isinstance(found, Unchecked)
    assert found.reason == "max_examples=10 asks for fewer instances than support a rule, which are 20"


def test_an_alternative_that_no_graph_has_is_named() -> None:
    both = op.ReLU(x, ndim=2)
    either = pat.Alt(both & pat.Wildcard(ndim=3), op.ReLU6(x))
    found = Subst(op.ReLU(either), op.ReLU6(x), where=either.ndim >= 0).verify(max_examples=40)
    assert isinstance(found, Supported)
    assert any("ndim=3" in text for text in found.evidence.missing)
    assert "not generated: the alternative" in str(found)


# Subtle mistakes


def cast(x: Any, *dtypes: str) -> Any:
    for dtype in dtypes:
        x = op.Cast(x, dtype=dtype)
    return x


def first_axis(x: Any) -> Any:
    return op.Mean(x, axis=(0,), keepdims=False, exclude=False)


def last_axis(x: Any) -> Any:
    return op.Max(x, axis=(-1,), keepdims=False, exclude=False)


def square(x: Any, **attrs: Any) -> Any:
    return op.MaxPool2D(x, pool_size=(2, 2), padding=(0, 0, 0, 0), dilation=(1, 1), ceil_mode=False, layout="NCHW",
                        out_layout="", **attrs)  # fmt: skip


a, b = pat.Wildcard(dtype="uint8"), pat.Wildcard(dtype="uint8")
n, k, m = pat.Wildcard(dtype="int64"), pat.Wildcard(dtype="int64"), pat.Wildcard(dtype="int32")
byte, short, other = pat.Wildcard(dtype="int8"), pat.Wildcard(dtype="int16"), pat.Wildcard(dtype="int16")
p, q = pat.Wildcard(dtype="float32", ndim=2), pat.Wildcard(dtype="float32", ndim=2)
image = pat.Wildcard(dtype="float32", ndim=4)
inner = op.LeakyReLU(p)
leaky = op.LeakyReLU(inner)
turned = op.Transpose(image)
slope = op.LeakyReLU(p, alpha=leaky.alpha * inner.alpha)
queries, keys, values = (pat.Wildcard(dtype="float32", ndim=4) for _ in range(3))
causal = op.Attention(queries, keys, values, is_causal=True, enable_gqa=False)
grouped = op.Attention(queries, keys, values, scale=1.0, is_causal=False, enable_gqa=True)
padded = op.Pad(p, pad_mode="constant")
rectified = op.Pad(op.ReLU(p), pad_width=padded.pad_width, pad_value=padded.pad_value, pad_mode="constant")
halves = op.Split(p, indices_or_sections=2, axis=1)
of_rows = op.GroupNorm(p, num_groups=1)
strided = op.Conv2D(image, w, strides=(2, 2), padding=(0, 0, 0, 0), groups=1, data_layout="NCHW", out_layout="")
every_second = op.StridedSlice(image, begin=(0, 0), end=image.shape[2:], strides=(2, 2), axes=(2, 3))
few = op.ExpandDims(image, axis=2, num_newaxis=1)
many = op.BroadcastTo(few)
of_heads = [many.ndim == 5, *(many.shape[axis] == few.shape[axis] for axis in (0, 1, 3, 4))]
repeated = op.Reshape(many, newshape=many.shape[:1] + attr.Tuple(many.shape[1] * many.shape[2]) + many.shape[3:])


def groups(*, times: int, ndim: int | None = None) -> Any:
    """Attention with several heads of queries for each of keys and values, which are repeated along a new axis."""
    few = [pat.Wildcard(dtype="float32", ndim=ndim) for _ in range(2)]
    many = [op.BroadcastTo(op.ExpandDims(each, axis=times, num_newaxis=1)) for each in few]
    whole = [op.Reshape(each) for each in many]
    attention = op.Attention(queries, *whole, is_causal=False, enable_gqa=False, scale=1.0)
    fits = [few[0].shape[1] == few[1].shape[1]]
    for each, wide, flat in zip(few, many, whole):
        places = [axis + (axis >= times) for axis in range(4)]
        fits += [wide.ndim == 5, wide.shape[times] >= 2, flat.ndim == 4, flat.shape[1] == queries.shape[1]]
        fits += [each.shape[axis] == wide.shape[place] for axis, place in enumerate(places)]
        fits += [wide.shape[place] == flat.shape[axis] for axis, place in ((0, 0), (2, 3), (3, 4))]
    return attention, attention.like(queries, *few, enable_gqa=True), *fits


free, bits = pat.Wildcard(), pat.Wildcard()
total, more = (op.Sum(each, axis=(0,), keepdims=False, exclude=False) for each in (free, bits))
shifted = op.Softmax(p, axis=-1)
rooted = op.Sqrt(op.Exp(p))
infinite = op.Full(float("-inf"), shape=(1,), dtype="float32")


def without_rows(hidden: Any) -> Any:
    """Softmax with 0 in place of a row that is hidden."""
    return op.Where(hidden, 0.0, shifted)


def folded(*, joint: bool) -> Any:
    """Two folds of equal attributes, of one class of operators."""
    kind = pat.OneOf("sum", "max", joint=joint)
    one, other = pat.Call(kind, p, axis=(0,)), pat.Call(kind, q, axis=(0,))
    both = one.like(op.Concatenate([p, q], axis=1))
    return op.Concatenate([one, other], axis=0), both, p.shape[0] == q.shape[0], attr_eq(one, other)


WRONG_IN_FEW_CASES = {
    "a class of which each call may be another operator": folded(joint=False),
    "a difference of infinite numbers": (op.Where(op.IsNan(p - q), 0.0, p - q), p - q),
    "elements compared with themselves": (op.Where(op.NotEqual(p, p), 0.0, p), p),
    "an exponential that overflows": (op.Where(op.IsInf(op.Exp(p)), 0.0, op.Exp(p)), op.Exp(p)),
    "rows of minus infinity": (without_rows(op.All(op.Equal(p, float("-inf")), axis=(-1,), keepdims=True)), shifted),
    "rows of a filled tensor": (without_rows(op.Equal(op.Max(p, axis=(-1,), keepdims=True), infinite)), shifted),
    "numbers below a small one": (op.Where(op.Less(op.Abs(p), 1e-6), 0.0, p), p),
    "a rounded number that is equal to itself": (op.Abs(p), op.Where(op.Equal(rooted, rooted), rooted, 0.0)),
    "one number": (op.Where(op.Equal(p, 0.3), 0.0, p), p),
    "numbers beyond a large one": (op.Where(op.Less(p, 3.4e38), p, 0.0), p),
    "sums of bools": (total + more, op.Sum(free + bits, axis=(0,), keepdims=False, exclude=False),
                      free.shape == bits.shape, free.dtype == bits.dtype),
    "bytes that wrap": (op.Less(a + 1, b + 1), op.Less(a, b)),
    "bytes that are large": (op.Less(byte, 100), op.Equal(byte, byte)),
    "heads of keys and values behind each other": groups(times=1, ndim=4),
    "rows of heads behind each other": (repeated, op.Tile(image, reps=attr.Tuple(1, many.shape[2], 1, 1)), *of_heads),
    "int64 by way of int32": (cast(n, "int32", "int64"), n),
    "a sum of bytes that are cast": (cast(a + b, "int32"), cast(a, "int32") + cast(b, "int32")),
    "two slopes that may be negative": (leaky, slope),
    "a quotient and a remainder of another sign": (op.FloorDivide(n, k) * k + op.Mod(n, k), n, n.shape == k.shape),
    "a shift by rows": (op.Softmax(p + q, axis=1), op.Softmax(p, axis=1), q.shape[0] == 1, q.shape[1] == p.shape[1]),
    "means of unequal parts": (first_axis(op.Concatenate([p, q], axis=0)), (first_axis(p) + first_axis(q)) * 0.5),
    "a squeeze of axes that are longer than 1": (op.Squeeze(p, axis=(0,)),
                                                 op.Squeeze(op.Reverse(p, axis=(0,)), axis=(0,))),
    "a window of strided windows": (square(square(image, strides=(2, 2)), strides=(1, 1)),
                                    op.MaxPool2D(image, pool_size=(3, 3), strides=(2, 2))),
    "a permutation that is not its inverse": (op.Transpose(op.Exp(turned), axes=turned.axes), op.Exp(image)),
    "int32 by way of float32": (cast(m, "float32", "int32"), m),
    "one query that sees the first key only": (causal, causal.like(queries, keys, values, is_causal=False),
                                               queries.shape[2] == 1),
    "a padding that may be negative": (op.ReLU(padded), rectified),
    "a padding that may be a little negative": (op.ReLU(padded), rectified, padded.pad_value >= -1),
    "halves for pairs": (halves[0] + halves[1],
                         op.Sum(op.Reshape(p, newshape=attr.Tuple(p.shape[0], p.shape[1] // 2, 2)), axis=(2,))),
    "groups along any axis": (of_rows, op.LayerNorm(p, axis=(-1,), epsilon=of_rows.epsilon)),
    "one row of a strided window": (strided, strided.like(every_second, w, strides=(1, 1)),
                                    strided.kernel_size[0] == 1),
}  # fmt: skip
RIGHT_IN_ALL = {
    "a class of which all calls are one operator": folded(joint=True),
    "infinite numbers on both sides": (op.Where(op.IsNan(p - q), 0.0, p - q), op.Where(op.IsNan(q - p), 0.0, p - q)),
    "an infinite bound": (op.Maximum(p, float("-inf")), p),
    "sums of floats": (total + more, op.Sum(free + bits, axis=(0,), keepdims=False, exclude=False),
                       free.shape == bits.shape, attr.In(free.dtype, ("float32", "float64")), free.dtype == bits.dtype),
    "bytes that are equal": (op.Equal(a + 1, b + 1), op.Equal(a, b)),
    "products that wrap on both sides": (cast(cast(short, "int32") * cast(other, "int32"), "int16"), short * other),
    "each head of keys and values several times": groups(times=2, ndim=4),
    "each head of keys and values of any rank several times": groups(times=2),
    "each head several times": (repeated, op.Repeat(image, repeats=many.shape[2], axis=1), *of_heads),
    "int32 by way of int64": (cast(m, "int64", "int32"), m),
    "two slopes that are not negative": (leaky, slope, inner.alpha > 0, leaky.alpha > 0),
    "a quotient and its remainder": (op.FloorDivide(n, k) * k + op.FloorMod(n, k), n, n.shape == k.shape),
    "a shift by columns": (op.Softmax(p + q, axis=1), op.Softmax(p, axis=1), q.shape[1] == 1, q.shape[0] == p.shape[0]),
    "a squeeze of axes that a sum leaves": (op.Squeeze(op.Sum(p, axis=(0,), keepdims=True, exclude=False), axis=(0,)),
                                            op.Sum(p, axis=(0,), keepdims=False, exclude=False)),
    "a window of windows": (square(square(image, strides=(1, 1)), strides=(1, 1)),
                            op.MaxPool2D(image, pool_size=(3, 3))),
    "a permutation and its inverse": (op.Transpose(op.Exp(turned), axes=attr.Inverse(turned.axes)), op.Exp(image)),
    "int8 by way of float16": (cast(byte, "float16", "int8"), byte),
    "float32 by way of int64": (cast(n, "float32", "int64", "float32"), cast(n, "float32")),
    "the largest of rounded numbers": (last_axis(cast(n, "float32", "int64")), cast(last_axis(n), "float32", "int64")),
    "a cast of a sum": (cast(op.Sum(n, axis=(0,), keepdims=False, exclude=False), "float32"),
                        op.Sum(cast(n, "float32"), axis=(0,), keepdims=False, exclude=False), n.ndim == 1),
    "one key": (causal, causal.like(queries, keys, values, is_causal=False), keys.shape[2] == 1),
    "a padding that is not negative": (op.ReLU(padded), rectified, padded.pad_value >= 0),
    "halves": (halves[0] + halves[1],
               op.Sum(op.Reshape(p, newshape=attr.Tuple(p.shape[0], 2, p.shape[1] // 2)), axis=(1,))),
    "a strided pixel": (strided, strided.like(every_second, w, strides=(1, 1)), strided.kernel_size == (1, 1)),
}  # fmt: skip


@pytest.mark.parametrize("count", [0, -1, 2.5, True])
def test_a_number_of_instances_is_positive(count: Any) -> None:
    with pytest.raises(PatternError, match=f"max_examples= is a number of instances, 1 or more, got {count}"):
        identity().verify(max_examples=count)


@pytest.mark.sweep(8)
@pytest.mark.parametrize("name", [*WRONG_IN_FEW_CASES, *RIGHT_IN_ALL])
def test_subtle_mistakes(name: str) -> None:
    source, target, *where = WRONG_IN_FEW_CASES.get(name) or RIGHT_IN_ALL[name]
    found = verify(Subst(source, target, where=where), max_examples=40, suggest=False)
    assert isinstance(found, Refuted if name in WRONG_IN_FEW_CASES else Supported), str(found)


def test_one_factor_lacks_axes_of_size_1_of_the_other() -> None:
    product = op.Matmul(v := pat.Wildcard(dtype="float32"), w := pat.Wildcard(dtype="float32"), out_dtype="")
    mean = op.Mean(product, axis=(0,), keepdims=True, exclude=False)
    found = verify(Subst(mean, op.Matmul(v, mean.like(w), out_dtype="")), seed=5, suggest=False)
    assert isinstance(found, Refuted), str(found)


def test_numbers_in_reach_of_a_narrow_dtype_are_powers_of_two() -> None:
    found = verify(Subst(*WRONG_IN_FEW_CASES["int64 by way of int32"]), max_examples=40, suggest=False)
    assert isinstance(found, Refuted)
    inputs = found.counterexample.comparison.inputs
    assert inputs is not None
    assert {abs(int(value)) for value in inputs["x"].reshape(-1)} <= {0, 2**31, 2**32}


def test_what_the_engine_always_refuses_is_not_proved() -> None:
    pytest.importorskip("z3")
    whole = pat.Wildcard(dtype="int64", ndim=1)
    found = Subst(whole * pat.Const(2) / pat.Const(2), whole).verify(max_examples=20, prove=True)
    assert isinstance(found, Unchecked), str(found)
    assert found.unproved is not None
    assert "the engine refused each match" in found.unproved.reason


# The same again


@pytest.mark.sweep(3)
@pytest.mark.parametrize("name", ["composed in the wrong order", "scale through relu"])
def test_equal_seeds_give_equal_verdicts(name: str) -> None:
    first, second = (WRONG[name].make().verify(max_examples=60, seed=7) for _ in range(2))
    assert str(first).replace("wrong.py", "") == str(second).replace("wrong.py", "")
    assert isinstance(first, Refuted)
    assert isinstance(second, Refuted)
    assert first.counterexample.code == second.counterexample.code


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_examples": "200"}, "max_examples= is a number of instances, 1 or more, got '200'"),
        ({"max_examples": float("inf")}, "max_examples= is a number of instances, 1 or more, got inf"),
        ({"seed": None}, "seed= is a whole number, got None"),
    ],
)
def test_numbers_that_are_none(options: dict[str, Any], message: str) -> None:
    with pytest.raises(PatternError, match=message):
        RULES["parallel-two-dense"].verify(**options)


def test_other_seeds_try_other_instances() -> None:
    rule = RULES["parallel-two-dense"]
    assert str(rule.verify(max_examples=30, seed=1)) != str(rule.verify(max_examples=30, seed=2))


def state() -> tuple[Any, ...]:
    return random.getstate(), str(np.random.get_state()), torch.get_rng_state().tolist(), torch.get_num_threads()


def test_instances_warn_of_nothing() -> None:
    """The deviation of a single number, of which torch warns."""
    x = pat.Wildcard(ndim=1, dtype="float32")
    deviation = op.Std(x, axis=(0,), keepdims=False, exclude=False, unbiased=True)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        assert verify(Subst(deviation, deviation.like(op.Negative(x))), max_examples=40)
    assert not warned


def test_no_global_state_is_touched() -> None:
    random.seed(3)
    np.random.seed(3)
    torch.manual_seed(3)
    before = state()
    WRONG["exchanged operands"].make().verify(max_examples=30)
    assert state() == before


@pytest.mark.parametrize("side", [0, 1], ids=["source", "target"])
def test_a_lack_of_memory_is_no_difference(side: int, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = count()

    def run(program: Any, values: Any) -> Any:
        if next(runs) == 20 + side:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return run_program(program, values)

    monkeypatch.setattr("gsl.verify.models.methods.run_program", run)
    x = pat.Wildcard()
    with pytest.raises(torch.OutOfMemoryError):
        verify(Subst(op.ReLU(op.ReLU(x)), op.ReLU(x)), max_examples=40)


# Mutation


def test_mutants_of_a_right_rule_are_refuted() -> None:
    t1 = op.Transpose(x)
    t2 = op.Transpose(t1)
    rule = Subst(t2, op.Transpose(x, axes=attr.Map(t2.axes, lambda axis: t1.axes[axis])), name="compose")
    found = rule.verify(max_examples=40, mutate=True)
    assert isinstance(found, Supported)
    assert found.mutants is not None
    assert found.mutants.share is not None
    assert any("reversed axes" in name for name in found.mutants.refuted)
    assert "of the mutants refuted" in str(found)


@pytest.mark.long
def test_mutants_cover_operands_literals_guards_and_outputs() -> None:
    a, b = op.Exp(x - y), op.Tanh(x - y)
    rule = Subst([a, b], [op.Exp(x + y * -1.0), op.Tanh(x - y)], where=[x.dtype == "float32", y.dtype == "float32"])
    mutants = rule.verify(max_examples=40, mutate=True).mutants
    assert mutants is not None
    for what in ("the first two outputs exchanged", "another number", "operands exchanged", "log instead"):
        assert any(what in name for name in mutants.refuted), str(mutants)
    assert {name.partition(" (")[0] for name in mutants.unneeded} == {"without the condition"}
    names = [name for kind in vars(mutants).values() for name in kind]
    assert len(names) == len({*names})


@pytest.mark.long
def test_a_condition_that_is_left_out_is_tried_where_it_does_not_hold() -> None:
    c = pat.Const()
    scaled = op.ReLU(x * c)
    where = [attr.all([c.value > 0, c.value > -10]), x.dtype == "float32"]
    rule = Subst(scaled, op.ReLU(x) * c, where=where, name="scale")
    mutants = rule.verify(max_examples=60, mutate=True).mutants
    assert mutants is not None
    assert [name for name in mutants.refuted if "condition" in name] == ["without the condition (Const.value > 0)"]
    # What is less than -10 is not positive.
    assert mutants.equivalent == ("without the condition (Const.value > -10)",)
    assert mutants.unneeded == ("without the condition (Wildcard.dtype == 'float32')",)
    assert mutants.share == 1.0


def test_mistakes_that_change_nothing_are_counted_apart() -> None:
    t = op.Transpose(x, axes=(1, 0))
    rule = Subst(op.Transpose(t + y, axes=(1, 0)), x + op.Transpose(y, axes=(1, 0)), name="through")
    mutants = rule.verify(max_examples=30, mutate=True).mutants
    assert mutants is not None
    assert "reversed axes in transpose(Wildcard, axes=(1, 0))" in mutants.refuted
    swapped = Subst(op.Exp(x) + op.Exp(y), op.Exp(y) + op.Exp(x), name="swap")
    mutants = swapped.verify(max_examples=30, mutate=True).mutants
    assert mutants is not None
    assert mutants.equivalent == ("Wildcard and another exchanged",)


def test_mutants_of_a_rule_with_a_module_in_its_target() -> None:
    rule = next(rule for rule in MODULE_FUSION if rule.name == "linear-add-relu")
    assert isinstance(rule.verify(max_examples=10, mutate=True), Unchecked)


def test_without_mutation_nothing_is_said_of_it() -> None:
    assert RULES["copy-identity"].verify(max_examples=20).mutants is None


# Counterexamples


def test_values_are_made_simple() -> None:
    """The difference is shown on numbers that can be read."""
    found = WRONG["exchanged operands"].make().verify(max_examples=30)
    assert isinstance(found, Refuted)
    inputs = found.counterexample.comparison.inputs
    assert inputs is not None
    assert sorted(abs(float(value)) for tensor in inputs.values() for value in tensor.reshape(-1)) == [0.0, 1.0]
    first = {"axis": (0,), "keepdims": False, "exclude": False}
    sums = Subst(op.Sum(op.Exp(x), **first), op.Exp(op.Sum(x, **first)), name="sum")
    refuted = sums.verify(max_examples=30)
    assert isinstance(refuted, Refuted)
    inputs = refuted.counterexample.comparison.inputs
    assert inputs is not None
    assert all(float(value) in (0, 1, -1, 2, -2) for tensor in inputs.values() for value in tensor.reshape(-1))


def test_a_failing_instance_is_made_as_small_as_its_mistake_allows() -> None:
    """What fails for three columns or more is shown on three."""
    wide = Subst(op.ReLU(x), op.Abs(x), where=[x.shape[-1] >= 3, x.dtype == "float32"], name="wide")
    found = wide.verify(max_examples=30)
    assert isinstance(found, Refuted)
    (leaf, _) = found.counterexample.before.nodes
    assert leaf.shape == (3,)


def test_evidence_has_the_sizes_and_what_was_not_drawn() -> None:
    w = pat.Wildcard()
    conv = op.Conv2D(x, w, strides=(1, 1))
    evidence = Subst(op.ReLU(op.ReLU(conv)), op.ReLU(conv), name="twice").verify(max_examples=20).evidence
    assert evidence.sizes
    assert any(text.startswith("nn.conv2d.groups") for text in evidence.lacking)
    assert not any("strides" in text for text in evidence.lacking), "it is demanded"
    assert f"not generated: {evidence.lacking[0]}" in str(evidence)


# Drawings


def test_a_counterexample_is_drawn() -> None:
    found: Verdict = WRONG["exchanged operands"].make().verify(max_examples=30)
    assert isinstance(found, Refuted)
    svg = found.visualize().svg
    assert found.counterexample.visualize().svg == svg
    assert found._repr_html_().endswith(f"<div>{found.visualize()._repr_svg_()}</div>")
    for text in ("before", "after", "subtract", "differs: another value", "output 0"):
        assert f">{text}" in svg
