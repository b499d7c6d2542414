"""Proofs: rules of the book, none of the wrong ones, and what a proof says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from gsl import Proved, Refuted, Subst, Supported, attr, attr_eq, op, pat
from gsl.prove import NoProof, Proof, prove, solver
from gsl.rules import IDIOMS, RULES
from gsl.verify import ContradictionError, verify
from gsl.verify.mutate import rebuilt
from tests.verify.wrong import WRONG, padded_twice
from tests.verify.wrong_rules import VARIANTS

pytestmark = pytest.mark.filterwarnings("ignore::gsl.errors.DroppedAttributeWarning")
QUICK = (
    "transpose-transpose", "reshape-reshape", "reshape-identity", "cast-identity", "dropout-identity", "copy-identity",
    "split-concat", "bias-add-add", "conv-shortcut-add", "dense-batch-norm", "parallel-two-dense",
    "parallel-two-dense-bias", "qkv-without-key-bias", "dispatch-tuple", "split-concat-variadic",
    "parallel-dense-variadic", "parallel-dense-bias-variadic", "parallel-conv-variadic",
)  # fmt: skip
"""The rules of the book of which the proof takes a few seconds at most; benchmarks/verification.py goes through all."""


@pytest.mark.sweep(3)
@pytest.mark.parametrize("name", QUICK)
def test_rules_of_the_book_are_proved(name: str) -> None:
    found = prove(RULES[name])
    assert isinstance(found, Proof), str(found)



def test_a_number_broadcasts_nothing() -> None:
    plain, x = {"axis": (0,), "keepdims": False, "exclude": False}, pat.Wildcard(ndim=2)
    found = prove(Subst(op.Sum(x * 2.0, **plain), op.Sum(x, **plain) * 2.0, name="sum"))
    assert isinstance(found, Proof), str(found)


LONGER = ("rms-norm", "layer-norm-variance", "group-norm-affine")
IDIOM_NAMES = ("softmax-exp", *(pytest.param(name, marks=pytest.mark.long) for name in LONGER))


@pytest.mark.parametrize("name", IDIOM_NAMES)
def test_idioms_are_proved(name: str) -> None:
    (rule,) = [rule for rule in IDIOMS if rule.name == name]
    found = prove(rule)
    assert isinstance(found, Proof), str(found)


def attention(scale: float | None, dtype: str | None = "float32") -> Subst:
    """Attention that is written out without a scale."""
    q, k, v = (pat.Wildcard(ndim=4) for _ in range(3))
    mask = pat.Wildcard(shape=(None, None, q.shape[2], k.shape[2]), dtype=dtype)
    scores = op.Matmul(q, op.Transpose(k, axes=(0, 1, 3, 2)), out_dtype="") + mask
    source = op.Matmul(op.Softmax(scores, axis=-1), v, out_dtype="")
    return Subst(source, op.Attention(q, k, v, mask, scale=scale), name="attention")


def scaled_attention(power: float) -> Subst:
    """Attention with a power of the size of its heads as scale."""
    def written_out(q: Any, k: Any, v: Any) -> Any:
        return torch.softmax(q @ k.transpose(-2, -1) * q.shape[-1] ** power, -1) @ v

    def in_one_call(q: Any, k: Any, v: Any) -> Any:
        return torch.nn.functional.scaled_dot_product_attention(q, k, v)

    return Subst.from_programs(written_out, in_one_call, q="b h n d", k="b h m d", v="b h m e", name=f"power {power}")


def einsum(equation: str, target: Callable[[pat.Wildcard, pat.Wildcard], pat.Pattern], **of: Any) -> Subst:
    x = pat.Wildcard(ndim=2)
    y = pat.Wildcard(shape=x.shape, **of)
    return Subst(op.Einsum([x, y], equation=equation), target(x, y), name=equation)


def slices(first: int, cut: int) -> Subst:
    """A tensor that is cut in two and put together."""
    x = pat.Wildcard(shape=(None, 5))
    parts = [op.StridedSlice(x, begin=(begin,), end=(end,), strides=(1,), axes=(1,))
             for begin, end in ((0, 2), (cut, 5))]  # fmt: skip
    return Subst(op.Concatenate([parts[first], parts[1 - first]], axis=1), x, name="slices")


def first_four(**options: Any) -> Subst:
    x = pat.Wildcard(ndim=1)
    first = op.StridedSlice(op.ReLU(x), begin=(0,), end=(4,), strides=(1,), axes=(0,))
    where = options.get("where", lambda x: x.ndim == 1)(x)
    return Subst(first, op.ReLU(first.like(x)), where=where, name="the first four")


def sum_of_others(*, exclude: bool) -> Subst:
    """A sum along all axes but one, of which the matched call names the others."""
    x = pat.Wildcard(ndim=2)
    total = op.Sum(x, axis=(0,), exclude=True, keepdims=False)
    after = op.Sum(op.Negative(x), axis=total.axis, exclude=exclude, keepdims=False)
    return Subst(op.Negative(total), after, where=x.shape[0] == x.shape[1], name="sum of others")


def norm_of_groups(groups: int) -> Subst:
    x, gamma, beta = pat.Wildcard(ndim=3), pat.Wildcard(), pat.Wildcard()
    whole = op.GroupNorm(x, gamma, beta, num_groups=groups, axis=1, center=True, scale=True)
    rows = [op.Reshape(w, newshape=(x.shape[1], 1)) for w in (gamma, beta)]
    plain = op.LayerNorm(x, axis=(1, 2), epsilon=whole.epsilon, center=False, scale=False)
    return Subst(whole, plain * rows[0] + rows[1], name="one group")


def logarithm_of_sum(keepdims: bool) -> Subst:
    x = pat.Wildcard(ndim=2)
    total = op.Sum(op.Exp(x), axis=(1,), keepdims=keepdims, exclude=False)
    return Subst(op.Log(total), op.LogSumExp(x, axis=(1,), keepdims=keepdims, exclude=False), name="logarithm of a sum")


@pytest.mark.parametrize("rule", [
    attention(1.0), scaled_attention(-0.5),
    einsum("ij,ij->i", lambda x, y: op.Sum(x * y, axis=(1,), keepdims=False, exclude=False)),
    einsum("ij,kj->ik", lambda x, y: op.Matmul(x, op.Transpose(y, axes=(1, 0)), out_dtype="")),
    Subst(op.Power(r := pat.Wildcard(), -0.5), op.Rsqrt(r), name="a power"), slices(0, 2),
    first_four(where=lambda x: x.shape[0] >= 4), sum_of_others(exclude=False), norm_of_groups(1),
    logarithm_of_sum(True),
], ids=lambda rule: rule.name)  # fmt: skip
def test_definitions_by_other_operators_are_proved(rule: Subst) -> None:
    found = prove(rule)
    assert isinstance(found, Proof), str(found)


@pytest.mark.sweep(4)
@pytest.mark.parametrize("name", [*VARIANTS, *WRONG])
def test_no_wrong_rule_is_proved(name: str) -> None:
    rule = VARIANTS[name].rule() if name in VARIANTS else WRONG[name].make()
    found = prove(rule, seconds=1.5)
    assert isinstance(found, NoProof), str(found)


def relu_scaled(factor: float) -> Subst:
    x = pat.Wildcard()
    return Subst(op.ReLU(x * factor), op.ReLU(x) * factor, name="relu scaled")


def undefined() -> Subst:
    x, y = pat.Wildcard(), pat.Wildcard()
    return Subst(op.Exp(x + y), op.Exp(x + y) * (y / y), name="a quotient that is not there")


def half_of_another_axis() -> Subst:
    x = pat.Wildcard(ndim=2)
    half = op.Split(x, indices_or_sections=2, axis=1)[0]
    return Subst(half, op.Split(x, indices_or_sections=(x.shape[0] // 2,), axis=1)[0], name="half of another axis")


def cast_of_result(make: Callable[[pat.Wildcard], pat.Pattern], dtype: str, wide: str) -> Subst:
    """A cast to the operand's dtype, which is not that of the result."""
    result = make(pat.Wildcard(dtype=dtype, ndim=1))
    return Subst(op.Cast(op.Cast(result, dtype=dtype), dtype=wide), result, name=f"a cast to {dtype}")


def chosen_by(size: Callable[[pat.Const], Any]) -> Subst:
    x, c = pat.Wildcard(ndim=1), pat.Const(ndim=0)
    return Subst(x * c, pat.Cond(x.shape[0] == size(c), op.Negative(x), x * c), name="a size and another number")


def defined(function: Callable[[pat.Wildcard, pat.Wildcard], pat.Pattern]) -> Subst:
    """A target that takes more of a function that has no value somewhere."""
    x, y = pat.Wildcard(), pat.Wildcard()
    source = op.FloorDivide(op.Exp(x), y)
    return Subst(source, source + function(x, y) * 0.0, name="undefined", where=x.shape == y.shape)


def half_of(half: Callable[[pat.Wildcard], pat.Pattern]) -> Subst:
    """Half of what may be integers, added to floats, with the half as a tensor of the integers' dtype."""
    x, y = pat.Wildcard(), pat.Wildcard(dtype="float32")
    return Subst(y + x * 0.5, y + x * half(x), where=x.shape == y.shape, name="no half of a dtype")


def padded_with_half() -> Subst:
    x, y = pat.Wildcard(ndim=1, dtype="int64"), pat.Wildcard(ndim=1, dtype="float32")
    pad = op.Pad(x, pad_value=0.5, pad_width=((1, 1),), pad_mode="constant")
    return Subst(y + pad, y + (pad.like(x - 0.5, pad_value=0.0) + 0.5), name="padded with a half")


def cast_to_that_of_a_comparison() -> Subst:
    x, y = pat.Wildcard(dtype="float32"), pat.Wildcard(dtype="float32")
    less = op.Less(x, y)
    other = op.Cast(op.Cast(x, dtype=less.dtype), dtype="float32")
    return Subst(op.Where(less, op.Exp(x), y), op.Where(less, op.Exp(other), y), where=x.shape == y.shape, name="bools")


def quotient_of_a_part(target: Callable[[pat.Pattern, pat.Wildcard], pat.Pattern]) -> Subst:
    """A quotient of which the source takes the first two elements, between others."""
    x, y = pat.Wildcard(shape=(4,)), pat.Wildcard(shape=(4,))
    first = op.StridedSlice(x / y, begin=(0,), end=(2,), strides=(1,), axes=(0,))
    pad = op.Pad(first, pad_value=0.0, pad_width=((0, 2),), pad_mode="constant")
    return Subst(pad, target(pad.like(first.like(x)), y), name="a quotient of a part")


def taken_elsewhere(source: Callable[[pat.Pattern, pat.Wildcard], Any]) -> Subst:
    """A target that takes a logarithm where its source has a value without it."""
    x, y = pat.Wildcard(shape=(4,), dtype="float32"), pat.Wildcard(shape=(4,), dtype="float32")
    log = op.Log(x)
    first, *others = outputs if isinstance(outputs := source(log, y), list) else [outputs]
    return Subst([first, *others], [first + log * 0.0, *others], name="a logarithm elsewhere")


def taken_of_others(other: Callable[[pat.Pattern], pat.Pattern]) -> Subst:
    """A target each element of which has no value where another one of the source has none."""
    log = op.Log(pat.Wildcard(shape=(2, 2), dtype="float32"))
    return Subst(log, log + other(log) * 0.0, name="a logarithm of others")


def chosen_positive(log: pat.Pattern, y: pat.Wildcard) -> pat.Pattern:
    return op.Where(op.Greater(log.operands[0], 0.0), log, y)


def one_case_right(other: pat.Pattern, **options: Any) -> Subst:
    """A rule that is right for one of the alternatives, and wrong for the other one."""
    either = pat.Alt(op.ReLU(pat.Wildcard()), other)
    return Subst(op.Abs(either), either, name="right in one case", **options)


def by_a_size() -> Subst:
    x, c = pat.Wildcard(ndim=2), pat.Const(ndim=0)
    return one_case_right(op.Sum(x, axis=(0,)) * c, where=c.value == x.shape[1])


def sums(names: Any) -> Subst:
    """Two transposed tensors, of which the one may be transposed in another way."""
    a, b = op.Transpose(pat.Wildcard(ndim=2)), op.Transpose(pat.Wildcard(ndim=2))
    equal = attr_eq(a, b, names=names)
    return Subst(a + b, a.like(a.operands[0] + b.operands[0]), where=equal, name="attributes that may differ")


def folded(*, joint: bool) -> Subst:
    """Two folds of equal attributes, which may be of two operators."""
    kind = pat.OneOf("sum", "max", joint=joint)
    x = pat.Wildcard(ndim=2)
    y = pat.Wildcard(shape=(x.shape[0], None))
    a, b = pat.Call(kind, x, axis=(0,)), pat.Call(kind, y, axis=(0,))
    both = op.Concatenate([x, y], axis=1)
    return Subst(op.Concatenate([a, b], axis=0), a.like(both), where=attr_eq(a, b), name="two operators")


def by_another_kind_of_number() -> Subst:
    x = pat.Wildcard(ndim=1)
    return one_case_right(op.Negative(x), where=x.shape[0] == attr.Const(2.0))


def scaled(first: pat.Const, other: pat.Const, **options: Any) -> Subst:
    """ReLUs of any number of products with numbers, of which only the first is known to be positive, or none is."""
    x, i = pat.Wildcard(ndim=2), attr.Symbol()
    products = x * first, x * other
    one, each = map(op.ReLU, products)
    relus = pat.Variadic(each, templates=[each, products[1], other], first=[one, products[0], first])
    return Subst(relus, pat.Variadic(op.ReLU(x) * relus(other, i), index=i), name="scaled", **options)


def first_positive_by_condition() -> Subst:
    first = pat.Const(ndim=0)
    return scaled(first, pat.Const(ndim=0), where=first.value > 0)


def squeezed(**of: Any) -> Subst:
    """An axis that is reversed: a squeeze leaves one of another size than 1 alone."""
    x = pat.Wildcard(ndim=2, **of)
    return Subst(op.Squeeze(x, axis=(0,)), op.Squeeze(op.Reverse(x, axis=(0,)), axis=(0,)), name="squeezed")


def first_rows_of_more() -> Subst:
    """A slice of another tensor: of two rows, the first two are all, of which a slice says nothing."""
    x = pat.Wildcard(ndim=2)
    y = pat.Wildcard(shape=(None, x.shape[1]))
    rows = op.StridedSlice(x, begin=(0,), end=(2,), strides=(1,), axes=(0,))

    def total(of: pat.Pattern) -> pat.Pattern:
        return op.Sum(of, axis=(0,), keepdims=False, exclude=False) * op.Sum(y, axis=(0,), keepdims=False)

    more = rows.like(op.Concatenate([x, y], axis=0))
    return Subst(total(rows), total(more), where=x.shape[0] >= 2, name="first rows of more")


def masked_attention() -> Subst:
    """Attention of bools that is written out: 0 / 0 where nothing takes part, and attention is 0 there."""
    q, k, v = (pat.Wildcard(ndim=2, dtype="float32") for _ in range(3))
    mask = pat.Wildcard(shape=(q.shape[0], k.shape[0]), dtype="bool")
    powers = op.Exp(op.Matmul(q, op.Transpose(k, axes=(1, 0)), out_dtype="")) * op.Cast(mask, dtype="float32")
    total = op.Sum(powers, axis=(-1,), keepdims=True, exclude=False)
    whole = op.Attention(q, k, v, mask, scale=1.0, is_causal=False, enable_gqa=False)
    return Subst(whole, op.Matmul(powers / total, v, out_dtype=""), name="masked attention")


def sum_of_bools() -> Subst:
    """The sum of two bools is one of them, and not 2."""
    x = pat.Wildcard(dtype="bool", ndim=1)
    y = pat.Wildcard(dtype="bool", shape=x.shape)
    parts = (op.Cast(each, dtype="float32") for each in (x, y))
    return Subst(op.Cast(x + y, dtype="float32"), op.Add(*parts), name="a sum of bools")


def normalised(*, gamma: int) -> pat.Pattern:
    """A normalisation that has no use for its weight, which may have any size."""
    x, weight, others = pat.Wildcard(shape=(2, 3)), pat.Wildcard(shape=(gamma,)), [pat.Wildcard() for _ in range(3)]
    return op.BatchNorm(x, weight, *others, axis=1, center=False, scale=False)


@pytest.mark.parametrize("rule", [
    one_case_right(op.Negative(op.Cast(pat.Wildcard(dtype="float8_e4m3fn"), dtype="float32"))),
    by_another_kind_of_number(), sums([]), folded(joint=False),
    scaled(pat.Const(ndim=0, values="positive"), pat.Const(ndim=0)), first_positive_by_condition(),
    scaled(pat.Const(ndim=0), pat.Const(2.0)), squeezed(), masked_attention(), first_rows_of_more(),
    sum_of_others(exclude=True), sum_of_bools(),
    one_case_right(op.Negative(op.L2Normalize(pat.Wildcard(ndim=0), eps=0.1, axis=(0,)))),
    one_case_right(op.Negative(normalised(gamma=2))), one_case_right(-op.BroadcastTo(pat.Wildcard(ndim=5))),
    one_case_right(-op.BroadcastTo(pat.Wildcard(ndim=2), shape=(-1, 4))),
    one_case_right(-op.MatrixSetDiag(pat.Wildcard(shape=(2, 3)), pat.Wildcard(), k=(0, 0), align="LEFT_RIGHT")),
    one_case_right(op.Negative(op.Max(pat.Wildcard(ndim=0), axis=(0,)))),
    one_case_right(op.Reshape(r := pat.Wildcard(ndim=2), newshape=(-1, r.shape[0] - 1))),
    one_case_right(op.Split(v := pat.Wildcard(ndim=2), indices_or_sections=v.shape[0] - 1, axis=0)[0]),
    Subst(op.Exp(a := pat.Wildcard()), op.Exp(a) + 1.0 / (a + 1.0) * 0.0, name="a sum that may be 0"),
    attention(None), scaled_attention(0.5), attention(1.0, None), attention(1.0, "bool"), slices(1, 2), slices(0, 3),
    first_four(),
    norm_of_groups(2), einsum("ij,ij->i", lambda x, y: op.Sum(x * y, axis=(0,), keepdims=False, exclude=False)),
    einsum("ij,ji->ij", lambda x, y: x * y), einsum("ij,ij->k", lambda x, y: x), einsum("ij,ij->ii", lambda x, y: x),
    by_a_size(), relu_scaled(-1.0), undefined(), half_of_another_axis(), padded_twice(),
    cast_of_result(op.Exp, "int16", "float32"), cast_of_result(lambda x: x / x, "int16", "float32"),
    cast_of_result(lambda x: op.Sum(x, axis=(0,)), "uint8", "int64"),
    half_of(lambda x: op.Full(0.5, shape=x.shape, dtype=x.dtype)), half_of(lambda x: pat.Const(0.5, dtype=x.dtype)),
    taken_elsewhere(chosen_positive), taken_elsewhere(lambda log, y: op.Power(log, 0) * y),
    taken_elsewhere(lambda log, y: op.Where(op.Less(log, y), log.operands[0], y)),
    taken_elsewhere(lambda log, y: [op.Exp(log.operands[0]) + y, op.Sum(log, axis=(0,))]),
    taken_elsewhere(lambda log, y: op.OnesLike(log) + y),
    taken_of_others(lambda log: op.Sum(log, axis=(0, 1), keepdims=True, exclude=False)),
    taken_of_others(lambda log: op.Max(log, axis=(0,), keepdims=True, exclude=False)),
    taken_of_others(lambda log: op.Transpose(log, axes=(1, 0))),
    taken_of_others(lambda log: op.Matmul(log, log, out_dtype="")),
    padded_with_half(), cast_to_that_of_a_comparison(), quotient_of_a_part(lambda part, y: part / y),
    Subst(1.0 / ((n := pat.Wildcard()) * 0.0), 1.0 / (0.0 * n), name="no value"),
    chosen_by(lambda c: 2.0), chosen_by(lambda c: c.value),
    defined(lambda x, y: op.FloorDivide(y, op.Exp(x))), defined(lambda x, y: op.Asin(op.Exp(x) + 2.0)),
    Subst(op.Sqrt(op.Square(x := pat.Wildcard())), x, name="a sign that is lost"),
    Subst(op.Matmul(y := pat.Wildcard(ndim=2), z := pat.Wildcard(ndim=2)), op.Matmul(z, y), name="exchanged"),
    Subst(op.Mean(s := pat.Wildcard(ndim=2), axis=(0,)), op.Sum(s, axis=(0,)), name="not divided"),
    Subst(op.ReLU(op.Exp(u := pat.Wildcard())), op.Exp(u), name="a sign that stands between", fuzzy="negative"),
    Subst(op.Max(t := pat.Wildcard(ndim=2), axis=(0,)), op.Max(t, axis=(1,)), name="another axis",
          where=t.shape[0] == t.shape[1]),
], ids=lambda rule: rule.name)  # fmt: skip
def test_further_wrong_rules_are_not_proved(rule: Subst) -> None:
    assert isinstance(prove(rule), NoProof)


def test_what_is_said_of_all_instances_is_used() -> None:
    found = prove(scaled(pat.Const(ndim=0, values="positive"), pat.Const(ndim=0, values="positive")))
    assert isinstance(found, Proof), str(found)
    assert isinstance(prove(scaled(pat.Const(2.0), pat.Const(2.0))), Proof)


def test_a_squeeze_of_an_axis_of_size_1_is_proved() -> None:
    found = prove(squeezed(shape=(1, None)))
    assert isinstance(found, Proof), str(found)


def test_an_axis_that_is_not_broadcast_is_known() -> None:
    wide = op.BroadcastTo(x := pat.Wildcard(ndim=2), shape=(3, -1, 4))
    found = prove(Subst(op.ReLU(wide), wide.like(op.ReLU(x)), name="wide"))
    assert isinstance(found, Proof), str(found)


def test_a_squeeze_of_an_axis_that_few_ranks_have_is_proved() -> None:
    x = pat.Wildcard()
    found = prove(Subst(op.Squeeze(op.Negative(x), axis=(1,)), op.Negative(op.Squeeze(x, axis=(1,)))))
    assert isinstance(found, Proof), str(found)


def test_a_choice_that_the_source_makes_too_is_proved() -> None:
    x, y = pat.Wildcard(shape=(4,), dtype="float32"), pat.Wildcard(shape=(4,), dtype="float32")
    before, after = (op.Where(op.Greater(x, y), value, y) for value in (op.Log(x) * y, y * op.Log(x)))
    found = prove(Subst(op.Exp(before), op.Exp(after)))
    assert isinstance(found, Proof), str(found)


def test_attributes_and_operators_that_are_equal_are_used() -> None:
    for rule in (sums(None), folded(joint=True)):
        assert isinstance(prove(rule), Proof), rule.name


def test_powers_of_a_number() -> None:
    x, c = pat.Wildcard(), pat.Const(ndim=0)
    for source, factor in ((x / c, c.value**-1), ((x * c) * c, c.value**2), ((x / c) / c, c.value**-2)):
        found = prove(Subst(source, x * pat.Const(factor), name="power"))
        assert isinstance(found, Proof), str(found)
    assert isinstance(prove(Subst((x * c) * c, x * pat.Const(c.value**3), name="cube")), NoProof)
    assert isinstance(prove(Subst(x * c, x * pat.Const(c.value**99), name="high")), NoProof)


def test_a_tensor_of_nothing_may_have_any_shape() -> None:
    zeros = op.Zeros()
    assert isinstance(prove(Subst(op.Negative(zeros), zeros)), Proof)
    assert isinstance(prove(Subst(zeros, op.Ones(shape=zeros.shape, dtype=zeros.dtype))), NoProof)


def test_a_condition_on_an_alternative_that_is_not_matched_is_not_used() -> None:
    c = pat.Const()
    rule = one_case_right(op.Abs(pat.Wildcard()) * c, where=c.value > 0)
    assert isinstance(prove(rule), Proof)
    assert isinstance(prove(one_case_right(op.Abs(pat.Wildcard()) * c)), NoProof)


def parts(axis: int, cut: int, field: int) -> Subst:
    """The parts of a tensor split at the ends of others; of a sum of these, where all is as it should be."""
    x, w0, i = pat.Wildcard(ndim=2), pat.Param(), attr.Symbol()
    first = op.Dense(x, w0)
    w = pat.Param()
    dense = op.Dense(x, w, out_dtype=first.out_dtype)
    layers = pat.Variadic(dense, templates=[dense, w], first=[first, w0], min_len=2)
    j = attr.Symbol()
    weight = op.Concatenate(pat.Variadic(layers(w, j), index=j, length=layers.length), axis=axis)
    ends = attr.Variadic(lambda k: attr.Sum(lambda n: layers(w, n).shape[0], k + cut), layers.length - 1)
    split = op.Split(first.like(x, weight), indices_or_sections=ends, axis=-1)
    return Subst(layers, pat.Variadic(split[i + field] if field else split[i], index=i), name="parts")


def test_any_number_of_instances() -> None:
    found = prove(parts(0, 1, 0))
    assert isinstance(found, Proof), str(found)
    assert "w[k, i2, r]" in str(found)


@pytest.mark.parametrize(("axis", "cut", "field"), [(1, 1, 0), (0, 0, 0), (0, 2, 0), (0, 1, 1)])
def test_a_mistake_in_any_number_of_instances_is_not_proved(axis: int, cut: int, field: int) -> None:
    assert isinstance(prove(parts(axis, cut, field)), NoProof)


@pytest.mark.parametrize(("function", "proved"), [(op.Abs, True), (op.Log, False)])
def test_a_function_of_all_instances_is_not_taken_in_each(function: Callable[..., pat.Pattern], proved: bool) -> None:
    x, i, j = pat.Wildcard(shape=(2,), dtype="float32"), attr.Symbol(), attr.Symbol()
    log = op.Log(x)
    logs = pat.Variadic(log, templates=[log, x], min_len=2)
    stack = op.Stack(pat.Variadic(function(logs(x, j)), index=j, length=logs.length), axis=0)
    total = op.Sum(stack, axis=(0,), keepdims=False, exclude=False)
    found = prove(Subst(logs, pat.Variadic(op.Log(logs(x, i)) + total * 0.0, index=i), name="all instances"))
    assert isinstance(found, Proof) is proved, str(found)


def test_a_first_instance_that_is_another_one_is_not_proved() -> None:
    x, w0, w, i = pat.Wildcard(ndim=2), pat.Param(), pat.Param(dtype="float32"), attr.Symbol()
    first = op.Dense(x, w0)
    dense = op.Dense(x, w, out_dtype=first.out_dtype)
    layers = pat.Variadic(dense, templates=[dense, w], first=[first, w0], min_len=2)
    found = prove(Subst(layers, pat.Variadic(layers(dense, i), index=i), name="of another dtype"))
    assert isinstance(found, NoProof)
    assert "the first instance may not satisfy" in found.reason


def test_what_is_not_covered_is_told() -> None:
    """The target is the source for one new axis and for two of them."""
    wide = op.ExpandDims(pat.Wildcard(ndim=1), axis=0)
    found = prove(Subst(wide, wide + pat.Const((wide.num_newaxis - 1) * (wide.num_newaxis - 2)), name="new axes"))
    assert isinstance(found, Proof)
    assert "assumed: where a number of new axes is open, it is 1 or 2" in str(found)


def test_a_first_instance_of_other_operands_is_not_proved() -> None:
    x, w0, w, i = pat.Wildcard(ndim=1), pat.Param(ndim=1), pat.Param(ndim=1), attr.Symbol()
    first, each = op.Subtract(x, w0), op.Subtract(w, x)
    parts = pat.Variadic(each, templates=[each, w], first=[first, w0], min_len=2)
    found = prove(Subst(parts, pat.Variadic(op.Negative(x - parts(w, i)), index=i), name="the other way round"))
    assert isinstance(found, NoProof)
    assert "the first instance may be another one" in found.reason


def test_a_maximum_of_a_multiple_of_maxima_keeps_the_factor() -> None:
    x = pat.Wildcard(ndim=2)
    plain = {"keepdims": False, "exclude": False}
    rows, all_of = op.Max(x, axis=(1,), **plain), op.Max(x, axis=(0, 1), **plain)
    doubled = op.Max(rows * 2.0, axis=(0,), **plain)
    assert isinstance(prove(Subst(doubled, all_of, name="not doubled")), NoProof)
    found = prove(Subst(op.Max(rows, axis=(0,), **plain), all_of, name="twice"))
    assert isinstance(found, Proof), str(found)


def test_a_proof_is_the_same_after_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the number of calls that are open nor what the solver was asked before has a part in it."""
    monkeypatch.setattr(solver, "EFFORT", 20_000)

    def below(depth: int) -> str:
        return below(depth - 1) if depth else str(prove(RULES["parallel-group-conv-variadic"]))

    first = below(0)
    for name in QUICK[:4]:
        prove(RULES[name])
    assert below(300) == first
    assert "nest too deep" not in first


def test_what_is_divided_by_in_the_source_may_be_in_the_target() -> None:
    x, y, z = pat.Wildcard(), pat.Wildcard(), pat.Wildcard()
    fits = (x.shape == y.shape) & (y.shape == z.shape)
    assert isinstance(prove(Subst(x / z + y / z, (x + y) / z, where=fits)), Proof)


@pytest.mark.torch
def test_a_logarithm_of_other_elements_is_refuted() -> None:
    rule = taken_of_others(lambda log: op.Max(log, axis=(0,), keepdims=True, exclude=False))
    found = rule.verify(max_examples=60, prove=True)
    assert isinstance(found, Refuted)
    assert found.counterexample.kind == "undefined"


def test_what_is_divided_by_at_all_places_may_be_at_one() -> None:
    x, y = pat.Wildcard(shape=(2, 3)), pat.Wildcard(shape=(2, 3))
    total = op.Sum(op.Log(x), axis=(1,), keepdims=True, exclude=False)
    found = prove(Subst(y + total, y + total + op.Log(x) * 0.0, name="one of all"))
    assert isinstance(found, Proof), str(found)
    other = op.Sum(op.Log(x), axis=(0,), keepdims=True, exclude=False)
    assert isinstance(prove(Subst(y + other, y + other + total * 0.0, name="others of all")), NoProof)


HiddenSides = Callable[[Any, Any], tuple[pat.Pattern, pat.Pattern]]


def hidden(sides: HiddenSides) -> Subst:
    """A rule of which an operator of the source may make a finite number of an infinite one, or of none."""
    x = pat.Wildcard(ndim=1, dtype="float32")
    return Subst(*sides(x, pat.Wildcard(shape=x.shape, dtype="float32")), name="hidden")


def convolved(*, flipped: bool) -> Subst:
    """A transposed convolution as a convolution with a kernel that is turned round, or is not."""
    x, w = pat.Wildcard(ndim=3), pat.Wildcard(shape=(None, None, 3))
    plain = {"dilation": (1,), "groups": 1, "data_layout": "NCW", "out_layout": "", "out_dtype": ""}
    source = op.Conv1DTranspose(
        x, w, strides=(1,), padding=(0, 0), output_padding=(0,), kernel_layout="IOW", **plain
    )  # fmt: skip
    kernel = op.Transpose(w, axes=(1, 0, 2))
    kernel = op.Reverse(kernel, axis=(2,)) if flipped else kernel
    return Subst(source, op.Conv1D(x, kernel, strides=(1,), padding=(2, 2), kernel_layout="OIW", **plain))


def reversed_rows(*which: int) -> Subst:
    """A product of matrices, of which some have the axis that is summed over from its end."""
    x, y = pat.Wildcard(ndim=2), pat.Wildcard(ndim=2)
    sides = [op.Reverse(each, axis=(1 - place,)) if place in which else each for place, each in enumerate((x, y))]
    return Subst(op.Matmul(*sides, out_dtype=""), op.Matmul(x, y, out_dtype=""))


def test_a_sum_from_the_end_is_one_from_the_begin() -> None:
    for rule in (convolved(flipped=True), reversed_rows(0, 1)):
        assert isinstance(found := prove(rule), Proof), str(found)
    for rule in (convolved(flipped=False), reversed_rows(0)):
        assert isinstance(prove(rule), NoProof)


@pytest.mark.parametrize("sides", [
    lambda x, y: (op.Less(x, y), op.Greater(y, x)), lambda x, y: (op.GreaterEqual(x, y), op.LessEqual(y, x)),
    lambda x, y: (op.Equal(x, y), op.Equal(y, x)), lambda x, y: (op.LogicalAnd(x, y), op.LogicalAnd(y, x)),
    lambda x, y: (op.Maximum(x, x * 0.1), op.Maximum(x * 0.1, x)),
])  # fmt: skip
def test_operands_that_may_be_exchanged(sides: HiddenSides) -> None:
    found = prove(hidden(sides))
    assert isinstance(found, Proof), str(found)


@pytest.mark.parametrize("sides", [
    lambda x, y: (op.Less(x, y), op.Less(y, x)), lambda x, y: (op.Less(x, y), op.GreaterEqual(y, x)),
    lambda x, y: (op.FloorMod(x, y), op.FloorMod(y, x)), lambda x, y: (op.LogicalAnd(x, y), op.LogicalOr(y, x)),
    lambda x, y: (op.Maximum(x, x * 0.1), x), lambda x, y: (op.Atan2(x, y), op.Atan2(y, x)),
])  # fmt: skip
def test_operands_that_may_not_be_exchanged(sides: HiddenSides) -> None:
    assert isinstance(prove(hidden(sides)), NoProof)


def test_sizes_are_symbolic() -> None:
    x, w, v = pat.Wildcard(ndim=2), pat.Wildcard(ndim=2), pat.Wildcard(ndim=2)
    rule = Subst(op.Matmul(op.Matmul(x, w), v), op.Matmul(x, op.Matmul(w, v)), name="associative")
    found = prove(rule)
    assert isinstance(found, Proof)
    assert found.cases == 1
    text = str(found)
    assert "associative: proved in 1 case" in text
    assert "assumed: numbers are real" in text
    assert "let x.1 == x2.0" in text
    assert "Σ{r" in text


def test_the_lacking_condition_is_told() -> None:
    x, w = pat.Wildcard(ndim=2), pat.Wildcard(ndim=2)
    product = op.Matmul(x, w)
    found = prove(Subst(product, op.Dense(x, w, out_dtype=product.out_dtype)))
    assert isinstance(found, NoProof)
    assert found.lacking == "x.1 == x2.1"


@pytest.mark.torch
def test_the_condition_that_a_proof_lacks_is_suggested() -> None:
    x = pat.Wildcard(ndim=2, dtype="float32")
    y = pat.Wildcard(ndim=2, dtype="float32")
    rule = Subst(op.Sum(op.Concatenate([x, y], axis=0), axis=(0,)), op.Sum(x + y, axis=(0,)), name="a broadcast sum")
    found = verify(rule, max_examples=40, prove=True)
    assert isinstance(found, Refuted)
    assert found.suggestion is not None
    assert found.suggestion.text == "x.shape[0] == y.shape[0]"
    assert isinstance(found.suggestion.verdict, Proved)
    assert isinstance(prove(rebuilt(rule, more=[found.suggestion.condition])), Proof)


@pytest.mark.torch
def test_verify_tells_what_is_proved() -> None:
    proved = RULES["copy-identity"].verify(max_examples=30, prove=True)
    assert isinstance(proved, Proved)
    assert proved
    assert proved.title == "proved in 1 case"
    x = pat.Wildcard()
    supported = Subst(op.Floor(op.Floor(x)), op.Floor(x)).verify(max_examples=30, prove=True)
    assert isinstance(supported, Supported)
    assert supported.unproved is not None
    assert "no proof: " in str(supported)


@pytest.mark.torch
def test_sides_that_nest_too_deep_are_no_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    def deep(rule: Subst, path: object) -> tuple[str, ...]:
        return deep(rule, path)

    monkeypatch.setattr("gsl.prove.proof._case", deep)
    x = pat.Wildcard()
    found = prove(Subst(op.ReLU(op.ReLU(x)), op.ReLU(x), name="twice"))
    assert isinstance(found, NoProof)
    assert "nest too deep" in str(found)


def test_a_refuted_rule_that_is_proved_is_an_alarm(monkeypatch: pytest.MonkeyPatch) -> None:
    x = pat.Wildcard(dtype="float64")
    rule = Subst(op.ReLU(x * -1.0), op.ReLU(x) * -1.0, name="relu scaled")
    assert isinstance(verify(rule, max_examples=40, prove=True), Refuted)
    monkeypatch.setattr("gsl.verify.proved.prove", lambda rule: Proof(rule.name, 1, (), ()))
    with pytest.raises(ContradictionError, match="is proved, and has a counterexample"):
        verify(rule, max_examples=40, prove=True)


@pytest.mark.torch
def test_integers_that_wrap_refute_what_holds_for_real_numbers() -> None:
    x, y = pat.Wildcard(dtype="int64", ndim=1), pat.Wildcard(dtype="uint8", ndim=1)
    found = Subst(x + -y, x - y, name="a negation of uint8").verify(max_examples=40, prove=True)
    assert isinstance(found, Refuted)
    assert found.unproved is not None
    assert "it holds for real numbers" in found.unproved.reason


def test_infinite_numbers_refute_what_holds_for_real_numbers() -> None:
    """A quotient is taken of 0 on both sides, and the source is 0 where that is minus infinity."""
    x, y = pat.Wildcard(dtype="float32"), pat.Wildcard(dtype="float32", values="nonnegative")
    found = Subst(op.ReLU(x / y), op.ReLU(x) / y, name="a quotient").verify(max_examples=100, prove=True)
    assert isinstance(found, Refuted)
    assert found.unproved is not None
    assert "not seen to be equal" in found.unproved.reason


def clipped(x: pat.Pattern) -> pat.Pattern:
    return op.Clip(x, a_min=-1.0, a_max=1.0)


def nothing(x: pat.Pattern) -> pat.Pattern:
    """0 as a real number, and no number where x is infinite."""
    return x - x


@pytest.mark.parametrize("sides", [
    lambda x, y: (clipped(op.Log(x)), clipped(op.Log(x) + op.Log(x) * 0.0)),
    lambda x, y: (clipped(op.Log(x)), clipped(op.Log(x)) + op.Log(x) * 0.0),
    lambda x, y: (op.Tanh(1.0 / x), op.Tanh(1.0 / x) + op.ReLU(1.0 / x) * 0.0),
    lambda x, y: (op.Greater(1.0 / x, 5.0), op.Greater(1.0 / x + nothing(1.0 / x), 5.0)),
    lambda x, y: (op.Greater(op.Sqrt(x) * 0.0, -1.0), op.Greater(x * 0.0, -1.0)),
    lambda x, y: (op.Maximum(op.Log(x), y), op.Maximum(op.Log(x) + nothing(op.Log(x)), y)),
    lambda x, y: (1.0 / (1.0 / x), 1.0 / (2.0 / x - 1.0 / x)),
    lambda x, y: (y * op.Power(op.Log(x), -2.0), y * op.Power(op.Log(x) + nothing(op.Log(x)), -2.0)),
    lambda x, y: (op.Exp(op.Log(x)), op.Exp(1.0 / (1.0 / op.Log(x) + 0.0))),
    lambda x, y: (y / op.Sqrt(1.0 / x), y / op.Sqrt(2.0 / x - 1.0 / x)),
    lambda x, y: (op.Tanh((x + y) / y), op.Tanh(x / y + y / y)),
    lambda x, y: (op.ReLU(y / (x * x)), op.ReLU(y) / (x * x)),
    lambda x, y: (op.Exp(-1.0 / (x * x)), op.Exp(-2.0 / (x * x)) * op.Exp(1.0 / (x * x))),
    lambda x, y: (op.Softmax(op.Log(x), axis=0), op.Softmax(op.Log(x) + nothing(op.Log(x)), axis=0)),
    lambda x, y: (op.Max(op.Log(x), axis=(0,)), op.Max(op.Log(x) + nothing(op.Log(x)), axis=(0,))),
])  # fmt: skip
def test_what_hides_infinite_numbers_is_not_proved_by_laws_of_real_ones(sides: HiddenSides) -> None:
    assert isinstance(prove(hidden(sides)), NoProof)


@pytest.mark.parametrize("sides", [
    lambda x, y: (clipped(op.Log(x) * y + 1.0), clipped(1.0 + y * op.Log(x))),
    lambda x, y: (x / (x / y), (x * y) / x),
    lambda x, y: (op.Tanh(1.0 / (x * y)), op.Tanh((1.0 / y) * (1.0 / x))),
    lambda x, y: (op.ReLU(op.Rsqrt(x) * y), op.ReLU(y / op.Sqrt(x))),
    lambda x, y: (op.ReLU(op.Sum((x + y) / x, axis=(0,))) * y, y * op.ReLU(op.Sum((y + x) / x, axis=(0,)))),
    lambda x, y: (op.Exp(op.Log(x)), x),
    lambda x, y: (op.Tanh(op.Softmax(x + 1.0, axis=0)), op.Tanh(op.Softmax(x, axis=0))),
])  # fmt: skip
def test_what_is_right_for_infinite_numbers_is_proved(sides: HiddenSides) -> None:
    found = prove(hidden(sides))
    assert isinstance(found, Proof), str(found)


def test_fields_that_are_one_node_are_read() -> None:
    x = pat.Wildcard(dtype="float32", ndim=1)
    stacked = op.Stack(pat.Variadic(x, min_len=1), axis=0)
    total, mean = (reduce(stacked, axis=(0,), keepdims=False, exclude=False) for reduce in (op.Sum, op.Mean))
    assert isinstance(prove(Subst(total, mean * 3.0)), NoProof)
    assert isinstance(prove(Subst(op.Exp(total) * op.Exp(mean), op.Exp(total + mean))), Proof)


def test_a_source_that_never_matches_is_not_proved() -> None:
    x = pat.Wildcard(ndim=2)
    assert isinstance(prove(Subst(op.Exp(x), op.Log(x), where=x.shape[0] == x.shape[0] + 1)), NoProof)


@pytest.mark.parametrize(
    ("dtype", "where", "proved"),
    [("complex64", None, False), (None, "complex128", False), ("float32", None, True), (None, "float64", True),
     (None, None, True)],
)
def test_laws_of_real_numbers_prove_nothing_of_complex_ones(dtype: Any, where: Any, proved: bool) -> None:
    """The logarithm of exp(4i) is not 4i."""
    x = pat.Wildcard() if dtype is None else pat.Wildcard(dtype=dtype)
    rule = Subst(op.Log(op.Exp(x)), x, where=[] if where is None else x.dtype == where, name="log of exp")
    found = prove(rule)
    assert isinstance(found, Proof) == proved, str(found)
    assert proved or "complex" in str(found)


def test_a_slice_that_a_rank_does_not_have_is_no_proof() -> None:
    x, y = pat.Wildcard(dtype="float32"), pat.Wildcard(dtype="float32")
    found = prove(Subst(x + y, op.StridedSlice(x, begin=(0,), end=(1,), strides=(1,), axes=(0,)) + y))
    assert isinstance(found, NoProof)
    assert "at most 0 places" in found.reason


@pytest.mark.parametrize("call", [
    lambda pair: op.Reshape(pair, newshape=(-1,)), lambda pair: op.Squeeze(pair, axis=(0,)),
    lambda pair: op.BroadcastTo(pair, shape=(2, 2)), lambda pair: op.Sum(pair, axis=(0,)),
])  # fmt: skip
def test_a_call_of_a_tuple_is_no_proof(call: Callable[[pat.Pattern], pat.Pattern]) -> None:
    pair = pat.Tuple(x := pat.Wildcard(ndim=2), pat.Wildcard(ndim=2))
    assert "of what is no tensor" in str(prove(Subst(op.ReLU(call(pair)), op.ReLU(x), name="a tuple")))


@pytest.mark.parametrize("attrs", [
    {"begin": (0,), "end": (1,), "axes": (0,)}, {"begin": (0,), "end": (1,), "strides": (1,)},
], ids=["strides", "axes"])  # fmt: skip
def test_a_slice_of_which_something_is_left_free_is_no_proof(attrs: Any) -> None:
    x = pat.Wildcard(ndim=2)
    assert isinstance(prove(Subst(op.ReLU(op.StridedSlice(x, **attrs)), op.ReLU(x), name="a part")), NoProof)


def test_a_split_along_an_axis_that_a_rank_does_not_have_is_no_proof() -> None:
    x = pat.Wildcard(dtype="float32")
    found = prove(Subst(op.Copy(x), op.Split(x, indices_or_sections=1, axis=0)[0], name="a whole"))
    assert isinstance(found, NoProof)
    assert "an axis that its operand lacks" in found.reason


def test_attributes_of_a_norm_may_be_free() -> None:
    x, *weights = pat.Wildcard(ndim=2), pat.Wildcard(), pat.Wildcard()
    groups = op.GroupNorm(x, *weights, axis=1, epsilon=0.1, center=False, scale=False)
    for norm, others in ((op.L2Normalize(x, eps=0.1), []), (groups, weights)):
        found = prove(Subst(op.Negative(norm), norm.like(op.Negative(x), *others), name="a minus"))
        assert isinstance(found, Proof), str(found)
