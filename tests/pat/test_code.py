"""Rules as Python: the statements build the same rule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import gsl
from gsl import Subst, attr, op, pat, wildcard
from gsl.errors import PatternError
from gsl.graph import SymDim
from gsl.spec.natives import OnnxOp

x, y, w = wildcard(), pat.Variable(), pat.Param()
conv = op.Conv2D(x, w, strides=(2, 2))
alt = op.ReLU(x) | op.Sigmoid(x)
split = op.Split(x, indices_or_sections=2, axis=0)
half = pat.Const()
view = op.Reshape(x)

CONV = op.Conv2D(x, w)
w2, u = pat.Variable(), wildcard()
other = op.Conv2D(x, w2, groups=1, **pat.same_attr(CONV, ["strides", "padding"]))
branches = pat.Variadic(other, templates=[other, w2], first=[CONV, w], min_len=2)
apart = op.Dense(u, w2)
layers = pat.Variadic(apart, templates=[apart, u, w2], min_len=2, max_len=4)
I, J = attr.Symbol(), attr.Symbol("j")  # noqa: E741
parts = op.Split(x)
head = pat.GetItem(parts)
following = pat.GetItem(parts, head.index + I)
before, after = pat.Segment(), pat.Segment(max_len=3, greedy=True)
run = pat.Segment(following, templates=[following], first=[head], index=I, min_len=2)
joined = op.Concatenate(pat.Tuple(before, run, after), axis=parts.axis)
two = pat.Const(2.0)
link, ops = wildcard(), pat.OpWithTrait("element_wise", op.Trait.ACTIVATION)
chain = pat.Repeat(op.Exp(link), sole=False)

RULES: dict[str, Subst] = {
    "arithmetic": Subst((x + 1) * y - w / 2.0 @ x, -x),
    "attributes": Subst(conv, conv.like(x, w, padding=conv.padding), name="like"),
    "types": Subst(pat.Input(shape=(None, 4)) + pat.Wildcard(ndim=2, dtype="float32", distinct=True), pat.Const(1.0)),
    "literals": Subst(x * half, x / pat.Const(1 / half.value), where=half.value != 0),
    "fields": Subst(op.Concatenate(pat.Tuple(split[0], split[1]), axis=0), x),
    "outputs": Subst([op.ReLU(x), op.Sigmoid(x)], [op.Maximum(x, 0.0), op.Divide(1.0, 1.0 + op.Exp(-x))]),
    "alternatives": Subst(op.Negative(alt), pat.Match(alt, [op.Clip(-x, a_max=0.0), op.Sigmoid(x) * -1.0])),
    "conditions": Subst(op.ReLU(x), pat.Cond(x.shape[0] == 1, op.Clip(x, a_min=0.0), op.Maximum(x, 0.0))),
    "negations": Subst(op.Exp(op.Exp(x) & ~op.Tanh(wildcard())), op.Exp(x)),
    "expressions": Subst(
        view,
        op.Reshape(x, newshape=attr.Map(attr.Range(x.ndim), lambda i: x.shape[x.ndim - 1 - i])),
        where=(attr.Len(view.newshape) == x.ndim) & (attr.Reverse(view.newshape) == x.shape) & ~(x.shape[0] < 2),
    ),
    "folds": Subst(
        op.ReLU(x), op.Maximum(x, 0.0),
        where=(attr.Sum(x.shape) > attr.max(x.shape)) & attr.In(x.dtype, ("float32", "float64"))
        & (attr.Cond(x.ndim == 2, x.shape[1], 1) == attr.Variadic(lambda i: x.shape[i], x.ndim)[0])
        & (x.shape[0].max(3) == x.shape[1:][0]),
    ),
    "variadics": Subst(
        branches,
        pat.Variadic(
            op.Split(
                CONV.like(x, op.Concatenate(pat.Variadic(branches(w2, I), index=I, length=branches.length), axis=0)),
                indices_or_sections=attr.Variadic(
                    lambda k: attr.Sum(lambda n: branches(w2, n).shape[0], k + 1), branches.length - 1
                ),
                axis=1,
            )[J],
            index=J,
        ),
        where=CONV.groups == 1,
    ),
    "instances apart": Subst(layers, pat.Variadic(op.ReLU(layers(u, I)), index=I)),
    "segments": Subst(
        joined, joined.like(pat.Tuple(before, op.ReLU(x), pat.Segment(op.Exp(after(after.field, J)), index=J,
                                                                      length=after.length)))
    ),
    "first fields": Subst(
        op.Concatenate(pat.Tuple(pat.Segment(u, templates=[u], first=[op.Exp(x)], min_len=1)), axis=0), x
    ),
    "chains": Subst(x > pat.Repeat(op.ReLU(u), min=2, max=5, greedy=False), op.ReLU(x)),
    "users": Subst((op.ReLU(x).uniq() >> pat.is_op("exp")).used_by(y + op.Tanh(u).extern_use(False), 0), x + u),
    "outputs that are used": Subst(op.ReLU(x).is_output() > op.Exp(u), x + u),
    "attributes and demands of arithmetic": Subst(
        op.Matmul(x, y, out_dtype="float16") + op.Add(x, y, ndim=2), x * pat.Const(2.0, dtype="float16"),
    ),
    "literals with demands": Subst(x + pat.Const(2, dtype="int8"), x),
    "classes": Subst(pat.is_op(pat.OneOf("exp", op.Log)) > pat.Call(ops, pat.Call(ops, x)), x),
    "long chains": Subst(x > chain, x * chain.length, where=chain.length > 3),
    "a field at several places": Subst(
        op.ReLU(field := op.Split(x)[0]) + op.Exp(field), op.ReLU(field) * 1.0, where=field.shape[0] == 2,
    ),
    "demands": Subst(
        op.ReLU(pat.GetItem(op.Split(x), 0, ndim=2)) + pat.Alt(op.Exp(y), op.Tanh(y), ndim=2), op.ReLU(y),
    ),
    "attributes of any call": Subst(op.Sum(x).has_attr(keepdims=True) + pat.is_op("max").has_attr(axis=(0,)), x),
    "values": Subst(op.ReLU(positive := pat.Variable(values="positive")), positive),
    "infinities": Subst(
        op.Where(x, pat.Const(float("-inf")), pat.Const(float("inf"))), op.Where(x, pat.Const(float("nan")), 0.0)
    ),
    "choices of attributes": Subst(
        op.Exp(alt), op.Clip(alt, a_min=0.0, a_max=attr.Match(alt, [1.0, 2.0])),
        where=attr.In((x.ndim, 2), ((2, 2), (3, 2))),
    ),
    "indexed tuples": Subst(
        view, op.Reshape(x, newshape=x.shape[::-1]),
        where=(attr.Const((1, 2, 3))[x.ndim] == 2) & (attr.ReduceTuple("+", x.shape[1:], x.ndim) < 9)
        & (attr.ReduceTuple("max", x.shape) == attr.Variadic(lambda i: i + 1)[3]),
    ),
    "an index in an index": Subst(
        view, x,
        where=attr.Sum(attr.Map(attr.Range(x.ndim), lambda i: attr.Sum(lambda j: x.shape[i] * j, i))) == x.ndim,
    ),
    "greedy segments": Subst(
        op.Concatenate(pat.Tuple(pat.Segment(greedy=True), pat.Segment(w, templates=[w], greedy=False), x), axis=0), x
    ),
    "segments of fields with demands": Subst(
        op.Concatenate(pat.Tuple(*[pat.Segment(each, templates=[each]) for each in (
            pat.Wildcard(ndim=2), pat.Wildcard(distinct=True), pat.Variable())], x), axis=0), x,
    ),
    "two chains": Subst(x + pat.Repeat(op.ReLU(u), min=2) * pat.Repeat(op.Exp(w), max=3), x),
    "operators that are not meant": Subst(
        pat.Call(pat.NoneOf("exp"), x) + pat.Call(pat.AnyOp(), x) + pat.Call(pat.OpName("mine"), x), x
    ),
    "numbers on both sides": Subst(pat.Const(2) * pat.Const(3), pat.Const(6)),
    "a number at two places": Subst(x * two + y * two, (x + y) * two),
    "parts that are read": Subst(
        op.ReLU(op.Exp(CONV)), op.Clip(CONV.like(x, w), a_max=(x.ndim + 1).max(3)), where=CONV.groups == 1
    ),
    "used alike": Subst((op.ReLU(x) > op.Exp(op.ReLU(y))).used_by(op.Tanh(u), 0), u),
    "arguments": Subst(op.ReLU(x), op.Maximum(x, 0.0), priority=3, extern_use=False, distinct=True, doc="two\nlines"),
}  # fmt: skip


@pytest.mark.parametrize("name", RULES)
def test_the_text_builds_the_same_rule(name: str) -> None:
    rule = RULES[name]
    names: dict[str, Any] = {each: getattr(gsl, each) for each in ("Subst", "attr", "op", "pat")}
    exec(rule.to_python("again"), names)
    again = names["again"]
    assert body(again) == body(rule)
    assert again.priority == rule.priority
    assert again.name == rule.name or rule.name.startswith("rule at ")
    assert (again.source.extern_use, again.plan.distinct) == (rule.source.extern_use, rule.plan.distinct)
    assert again.to_python("again") == rule.to_python("again")


def body(rule: Subst) -> str:
    """The text of a rule without its name, which tells a line of the file."""
    return str(rule).partition("\n")[2]


def test_the_text_of_a_rule_has_its_options() -> None:
    rule = Subst(op.ReLU(x) + y, x + y, extern_use=False, distinct=True, fuzzy="cast", doc="first\n\nlast")
    assert body(rule).startswith("  first\n  last\n  source ")
    assert str(Subst(op.Exp(x), x, name="less", approximate=True)).startswith("less (approximate)\n")
    assert str(Subst(op.Exp(x), x, name="same")).startswith("same\n")
    assert "  with extern_use=False, distinct=True, fuzzy=('cast',)\n" in str(rule)


def test_the_text_of_a_rule_tells_what_its_variadics_repeat() -> None:
    each, first = op.ReLU(w), op.ReLU(x)
    found = pat.Variadic(each, templates=[each, w], first=[first, x], min_len=2, max_len=3)
    rule = Subst(found, pat.Variadic(found(each, 1).like(found(w, I)), index=I), where=found(w, 0).ndim == 2)
    assert body(rule) == """\
  source %2
    x0 = Param
    %0 = nn.relu(x0)
    x1 = Wildcard
    %1 = nn.relu(x1)
    %2 = Variadic(%0, templates=[%0, x0], first=[%1, x1], min_len=2, max_len=3)
  where %2(x0, 0).ndim == 2
  target %5
    %3 = %2(x0, i)
    %4 = %2(%0, 1).like(%3)
    %5 = Variadic(%4, index=i)"""


def test_the_text_of_a_rule_names_tuples_that_are_outputs_and_tells_all_conditions() -> None:
    relu = op.ReLU(x)
    conditions = [relu.uniq(), ~(x.ndim == 2), (attr.max(x.ndim, 2) > 1) | (y.ndim > 1), attr.In(x.ndim, (1, 2))]
    conditions.append(attr.Variadic(lambda i: x.shape[i] == 1, 2)[0])
    assert body(Subst(pat.Tuple(relu, y), pat.Tuple(y, op.Exp(x)), where=conditions)) == """\
  source %1
    x0 = Wildcard
    %0 = nn.relu(x0)
    x1 = Variable
    %1 = Tuple(%0, x1)
  where nn.relu(Wildcard).uniq()
  where ~(x0.ndim == 2)
  where (max(x0.ndim, 2) > 1) | (x1.ndim > 1)
  where In(x0.ndim, (1, 2))
  where ((x0.shape[i] == 1) for i in Range(2))[0]
  target %3
    %2 = exp(x0)
    %3 = Tuple(x1, %2)"""


def test_no_parentheses_stand_around_a_whole_condition() -> None:
    rule = Subst(op.ReLU(x), x * 1.0, where=[(x.ndim == 2) & attr.In(x.dtype, ("int8", "uint8")), x.shape != (1, 2)])
    assert "where=[(x.ndim == 2) & attr.In(x.dtype, ('int8', 'uint8')), x.shape != (1, 2)]," in rule.to_python()
    quoted = Subst(op.ReLU(x), x * 1.0, where=[(x.dtype == "a)") & (x.dtype == "(b")])
    assert "where=[(x.dtype == 'a)') & (x.dtype == '(b')]" in quoted.to_python()


def test_the_text_of_a_rule_tells_the_length_of_a_new_variadic() -> None:
    assert "%4 = Variadic(%3, index=i, length=%2.length)" in str(RULES["variadics"])


def test_segments_of_any_fields_are_written_without_them() -> None:
    more = pat.Segment()
    rule = Subst(op.Concatenate(pat.Tuple(more, x, x), axis=0), op.Concatenate(pat.Tuple(more, x), axis=0))
    assert rule.to_python() == (
        "segment = pat.Segment()\nx = pat.Wildcard()\nsource = op.Concatenate(pat.Tuple(segment, x, x), axis=0)\n"
        "target = op.Concatenate(pat.Tuple(segment, x), axis=0)\nrule = Subst(source, target)"
    )


def test_the_text_reads_like_what_is_written_by_hand() -> None:
    assert RULES["literals"].to_python() == (
        "x = pat.Wildcard()\nx2 = pat.Const()\nsource = x * x2\ntarget = x / pat.Const(1 / x2.value)\n"
        "rule = Subst(source, target, where=[x2.value != 0])"
    )


@pytest.mark.torch
def test_an_overload_that_is_a_default_gives_no_name() -> None:
    import torch

    relu = pat.Call(torch.ops.aten.relu.default, w)
    text = Subst(relu + relu, w).to_python()
    assert text.startswith("target = pat.Param()\ny = pat.Call('aten::relu.default', target)\n")


@pytest.mark.torch
def test_a_device_is_made_of_its_name() -> None:
    import torch

    made = pat.Call("aten::zeros.default", size=(2,), device=torch.device("cuda:1"))
    text = Subst(made + w, w).to_python()
    assert text.startswith("import torch\n")
    assert "pat.Call('aten::zeros.default', size=(2,), device=torch.device('cuda:1'))" in text


@pytest.mark.parametrize("name", ["my rule", "class", "", "1"])
def test_a_rule_is_held_by_a_variable(name: str) -> None:
    with pytest.raises(PatternError, match=f"the name of the variable that holds the rule, got {name!r}"):
        RULES["literals"].to_python(name)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Subst(op.ReLU(x), lambda match: x), "a function as its target"),
        (lambda: Subst(op.ReLU(x), op.Exp(x), where=lambda match: True), "only expressions can"),
        (lambda: Subst(op.Add(first := op.ReLU(x), then := op.ReLU(y)), x, where=pat.attr_eq(first, then)),
         "only expressions can"),
        (lambda: Subst(pat.is_op(pat.OneOf(print)) > x, x), "it is a class by hand"),
        (lambda: Subst(pat.is_op(pat.OpClass("mine", frozenset(("exp",)))) > x, x), "mine can't be written as Python"),
        (lambda: Subst(x * [1.0, 2.0], x), "an array can't be written as Python"),
        (lambda: Subst(pat.Call(print, x), x), "it has no name by which it is found"),
        (lambda: Subst(pat.Call(OnnxOp("Scale", "mine"), x), x), "it has no name by which it is found"),
        (lambda: Subst(pat.Call(OnnxOp("Scale"), x, by=SymDim("n")), x), "n can't be written as Python"),
    ],
)
def test_what_has_no_text(make: Callable[[], Subst], message: str) -> None:
    with pytest.raises(PatternError, match=message):
        make().to_python()
