"""Building rules: what is refused, with which words, and where."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from typing import Any

import pytest

from gsl import RuleSet, Subst, attr, is_op, op, pat
from gsl.errors import DroppedAttributeWarning, PatternError, RewriteError
from tests.helpers.graphs import graph

X, Y, W = pat.Wildcard(), pat.Wildcard(), pat.Variable()
CONV = op.Conv2D(X, W)
ALT = pat.Alt(op.ReLU(X), op.Tanh(X))
FIELD = op.Conv2D(X, W)
GROUP = pat.Variadic(FIELD, templates=[FIELD, W])
RELU = op.ReLU(X)
I = attr.Symbol("k")  # noqa: E741


def rule(src: Any, tgt: Any, **options: Any) -> Subst:
    return Subst(src, tgt, name="my rule", **options)


OWN = pat.OneOf("exp", "tanh", joint=False)

REFUSED: list[tuple[str, Callable[[], Any], list[str]]] = [
    ("leaf that the source lacks", lambda: rule(RELU, op.Exp(Y)), ["Wildcard", "not part of the source"]),
    ("leaf of the source's kind", lambda: rule(RELU, op.Add(X, pat.Variable())), ["Variable", "not part of"]),
    ("constant without a value", lambda: rule(RELU, op.Add(X, pat.Const())), ["Const", "not part of the source"]),
    ("fewer targets", lambda: rule([RELU, op.Exp(X)], X), ["source has 2 outputs, the target 1"]),
    ("more targets", lambda: rule(RELU, [X, X]), ["source has 1 outputs, the target 2"]),
    ("no source", lambda: rule([], []), ["at least one pattern"]),
    ("source twice", lambda: rule([RELU, RELU], [X, X]), ["stands twice"]),
    ("source that is no pattern", lambda: rule("nn.relu", X), ["'nn.relu' of type str"]),
    ("target that is no pattern", lambda: rule(RELU, "x"), ["'x' of type str"]),
    ("source that is an operator", lambda: rule(op.ReLU, X), ["got op.ReLU of type", "a call of it is op.ReLU(…)"]),
    ("target that is an operator", lambda: rule(RELU, op.Tanh), ["got op.Tanh of type", "a call of it is op.Tanh(…)"]),
    ("source that is a function", lambda: rule(abs, X), ["function abs", "Subst.from_programs(before, after)"]),
    ("target that is a class", lambda: rule(RELU, dict), ["<class 'dict'> of type type", "Subst.from_programs"]),
    ("target that is a rule", lambda: rule(RELU, rule(RELU, X)), ["a target is made of patterns, got <Subst my rule"]),
    ("condition that is a class", lambda: rule(RELU, X, where=dict), ["functions of the match, got <class 'dict'>"]),
    ("condition that is an operator", lambda: rule(RELU, X, where=op.Tanh), ["functions of the match, got op.Tanh"]),
    ("condition that is a function of numbers", lambda: rule(RELU, X, where=[abs]), ["got <built-in function abs>"]),
    ("condition that is a rule set", lambda: rule(RELU, X, where=RuleSet([rule(RELU, X)])), ["of type RuleSet"]),
    ("like what the source lacks", lambda: rule(RELU, Y.like(X)), ["Wildcard", "not part of the source"]),
    ("like a call of what the source lacks", lambda: rule(RELU, op.Tanh(Y).like(X)), ["not part of the source"]),
    ("not connected", lambda: rule([RELU, op.Exp(Y)], [X, Y]), ["not connected", "share a node"]),
    ("instances that may be anything", lambda: rule(pat.Variadic(X, templates=[X]), pat.Variadic(X)),
     ["share no pattern, and Wildcard may be any node", "demand an operator of each"]),
    ("required attribute", lambda: rule(RELU, op.Reshape(X)), ["reshape", "'newshape'", "required"]),
    ("several required attributes", lambda: rule(RELU, op.Full(1.0)), ["full", "'shape'", "required"]),
    ("clause in the source", lambda: rule(pat.Match(ALT, [X, X]), X), ["Match belongs in a target", "pat.Alt"]),
    ("condition in the source", lambda: rule(pat.Cond(True, RELU, X), X), ["Cond belongs in a target", "where="]),
    ("like in the source", lambda: rule(CONV.like(X, W), X), ["nn.conv2d.like", "belongs in a target"]),
    ("like inside the source", lambda: rule(op.ReLU(CONV.like(X, W)), X), ["Like belongs in a target"]),
    ("group in the source", lambda: rule(pat.Alt(X, pat.Fused("g")), X), ["Fused belongs in a target"]),
    ("instance in the source", lambda: rule(op.ReLU(GROUP(FIELD, 0)), X), ["Instance belongs in a target"]),
    ("alternative in the target", lambda: rule(RELU, X | op.Exp(X)), ["can't be built in a target", "pat.Match"]),
    ("negation in the target", lambda: rule(RELU, op.Exp(~X)), ["~Wildcard can't be built in a target"]),
    ("match on an alternative elsewhere", lambda: rule(RELU, pat.Match(ALT, [X, X])), ["not part of the source"]),
    ("bare template", lambda: rule(GROUP, pat.Variadic(op.ReLU(FIELD))), ["is a template", "variadic(pattern, index)"]),
    (
        "target's attribute refers to a template",
        lambda: rule(op.Concatenate(GROUP, axis=0), op.Reshape(X, newshape=FIELD.shape)),
        ["nn.conv2d", "a template", "variadic(pattern, index)"],
    ),
    (
        "condition refers to a template",
        lambda: rule(op.Concatenate(GROUP, axis=0), X, where=FIELD.groups == 1),
        ["nn.conv2d", "a template", "variadic(pattern, index)"],
    ),
    ("instance of another variadic", lambda: rule(RELU, GROUP(FIELD, 0)), ["not part of the source"]),
    ("variadic for one", lambda: rule(GROUP, X), ["give one pat.Variadic"]),
    ("variadic among others", lambda: rule([GROUP, op.ReLU(X)], [X, X]), ["only output of a source"]),
    ("relation beside a variadic", lambda: rule(GROUP, GROUP, where=X.used_by(is_op("exp"))),
     ["Wildcard > exp stands beside a variadic output", "inside of the field"]),
    ("variadic without length in the target", lambda: rule(RELU, op.Concatenate(pat.Variadic(X), axis=0)), ["length="]),
    ("field without an index in the target", lambda: rule(RELU, pat.GetItem(op.Split(X, indices_or_sections=2))),
     ["needs an index"]),
    ("guard refers elsewhere", lambda: rule(op.Conv2D(X, W, strides=CONV.strides), X), ["conv2d.strides", "not part"]),
    ("dtype refers elsewhere", lambda: rule(op.ReLU(pat.Wildcard(dtype=Y.dtype)), X), ["Wildcard.dtype", "not part"]),
    ("size refers elsewhere", lambda: rule(op.ReLU(pat.Input(shape=(None, Y.ndim))), X), ["Wildcard.ndim", "not part"]),
    ("literal refers elsewhere", lambda: rule(X + pat.Const(Y.ndim), X), ["Wildcard.ndim", "not part"]),
    ("demand on a literal refers elsewhere", lambda: rule(X + pat.Const(ndim=Y.ndim), X), ["ndim", "not part"]),
    ("demand on a field refers elsewhere", lambda: rule(pat.GetItem(X, 0, ndim=Y.ndim), X), ["ndim", "not part"]),
    ("length refers elsewhere", lambda: rule(op.Concatenate(pat.Variadic(X, length=Y.ndim)), X), ["ndim", "not part"]),
    ("segment as an output", lambda: rule(pat.Segment(), X), ["stands for several fields", "pat.Tuple("]),
    ("segment as an operand", lambda: rule(op.ReLU(pat.Segment()), X), ["stands for several fields", "pat.Tuple("]),
    ("condition refers elsewhere", lambda: rule(RELU, X, where=Y.ndim == 2), ["Wildcard.ndim", "not part"]),
    ("target's attribute refers elsewhere", lambda: rule(RELU, op.Reshape(X, newshape=Y.shape)), ["the source lacks"]),
    ("condition that is a pattern", lambda: rule(RELU, X, where=Y), ["where= takes", "Wildcard"]),
    ("condition that is a bool", lambda: rule(RELU, X, where=True), ["where= takes", "True of type bool"]),
    ("condition that is a number", lambda: rule(RELU, X, where=X.ndim - 1), ["where=", "- 1) is neither"]),
    ("leaf of a negation in the target", lambda: rule(op.Exp(~op.ReLU(X)), X), ["Wildcard", "of a negation only"]),
    ("call of a negation in the target", lambda: rule(X + ~RELU, RELU), ["nn.relu(Wildcard)", "of a negation only"]),
    ("condition on a negation", lambda: rule(Y + ~RELU, Y, where=X.ndim == 1), ["where=", "inside of the ~"]),
    ("group's attribute refers elsewhere", lambda: rule(RELU, pat.Fused("g", n=Y.ndim)), ["Wildcard", "source lacks"]),
    ("demand in the target", lambda: rule(RELU, op.Tanh(X, dtype="float64")),
     ["tanh(Wildcard, dtype='float64') is new", "leave out dtype", "op.Cast"]),
    ("demand inside the target", lambda: rule(RELU, op.Exp(op.Tanh(X, shape=(7, 7), ndim=2))),
     ["is new", "leave out shape and ndim"]),
    ("demand by a method in the target", lambda: rule(RELU, op.Exp(X).has_shape((2,))), ["is new", "leave out shape"]),
    ("demand on a field in the target", lambda: rule(RELU, pat.GetItem(op.Split(X, indices_or_sections=2), 0, ndim=1)),
     ["is new", "leave out ndim"]),
    ("shape of a literal in the target", lambda: rule(RELU, X + pat.Const(1.0, shape=(2,))), ["leave out shape"]),
    ("source that is any node", lambda: rule(X, RELU), ["the source Wildcard is any node at all", "where="]),
    ("class of operators that each node has its own of", lambda: rule(pat.Call(OWN, X), pat.Call(OWN, op.Exp(X))),
     ["OneOf('exp', 'tanh', joint=False)", "an operator of its own", "like(…)"]),
    ("tuple without a length in the target", lambda: rule(RELU, op.Reshape(X, newshape=attr.Variadic(lambda k: k + 1))),
     ["((i + 1) for i in ?) has no length", "attr.Variadic(…, length)"]),
    ("tuple without a length in an expression of the target",
     lambda: rule(RELU, pat.Cond(X.shape == attr.Variadic(lambda k: 1), X, RELU)), ["has no length"]),
    ("class without an operator", lambda: rule(RELU, pat.Call(pat.OneOf("exp", "tanh"), X)), ["no matched operator"]),
]  # fmt: skip


@pytest.mark.parametrize(("make", "texts"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_refused(make: Callable[[], Any], texts: list[str]) -> None:
    with pytest.raises(PatternError) as caught:
        make()
    for text in texts:
        assert text in str(caught.value)
    here = [f"test_rules.py:{number}" for number in range(18, 200)]
    assert any(place in str(caught.value) for place in here)


@pytest.mark.parametrize(
    "make",
    [
        lambda: rule(op.ReLU(X), op.Exp(Y)),
        lambda: rule([op.ReLU(X), op.Exp(Y)], [X, Y]),
        lambda: rule(op.ReLU(X), op.Reshape(X)),
    ],
)
def test_a_message_names_the_rule_and_its_place(make: Callable[[], Any]) -> None:
    with pytest.raises(PatternError) as caught:
        make()
    line = inspect.getsourcelines(rule)[1] + 1
    assert str(caught.value).startswith(f"my rule (test_rules.py:{line}): ")


def test_a_rule_without_a_name_has_its_place() -> None:
    assert "test_rules.py:" in Subst(RELU, X).name
    assert repr(Subst(RELU, X, name="a")) == "<Subst a>"


@pytest.mark.parametrize(
    "make",
    [
        lambda: rule(op.Add(RELU, I), X),
        lambda: rule(op.Conv2D(X, W, strides=(I, I)), X),
        lambda: rule(RELU, op.Reshape(X, newshape=(I,))),
        lambda: rule(RELU, X, where=I == 1),
        lambda: rule(GROUP, pat.Variadic(GROUP(FIELD, I))),
        lambda: rule(RELU, op.Concatenate(pat.Variadic(op.Mean(X, axis=I), length=2), axis=0)),
    ],
    ids=["operand", "guard", "target", "where", "target variadic without index", "inner variadic without index"],
)
def test_an_unbound_symbol_is_refused(make: Callable[[], Any]) -> None:
    with pytest.raises(PatternError, match="symbol k is not bound"):
        make()


def test_a_demand_in_a_target_that_a_function_makes() -> None:
    view = graph(lambda b: b.call("nn.relu", b.input("x", 2)))
    with pytest.raises(RewriteError, match="is new, so nothing can be demanded of its type"):
        Subst(RELU, lambda match: op.Tanh(X, dtype="float64")).apply(view)
    new, _ = Subst(RELU, lambda match: op.Maximum(X, pat.Const(0.0, dtype="float32"))).apply(view)
    assert "maximum" in str(new), "the dtype of a literal is what it is made of"


def test_a_failed_construction_leaves_patterns_usable() -> None:
    x = pat.Wildcard()
    relu = op.ReLU(x)
    with pytest.raises(PatternError):
        Subst(relu, pat.Wildcard())
    Subst(relu, x)


# Attributes that a target forgets


def warned(make: Callable[[], Any]) -> list[str]:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        make()
    return [str(w.message) for w in found if issubclass(w.category, DroppedAttributeWarning)]


def test_a_dropped_attribute_is_named_with_the_mend() -> None:
    (message,) = warned(lambda: rule(op.Conv2D(X, W, strides=(1, 1)), op.Conv2D(X, op.ReLU(W), strides=(1, 1))))
    assert "my rule (test_rules.py:" in message
    assert "leaves 'padding', 'dilation', 'groups'" in message
    assert "'strides'" not in message
    assert "nn.conv2d" in message
    assert "like(…)" in message


def test_the_warning_points_to_the_rule() -> None:
    with pytest.warns(DroppedAttributeWarning) as found:
        Subst(op.Softmax(op.ReLU(X)), op.Softmax(X))
    assert found[0].filename == __file__


@pytest.mark.parametrize(
    "make",
    [
        lambda: rule(op.ReLU(CONV), CONV.like(op.ReLU(X), W)),
        lambda: rule(op.Softmax(RELU, axis=1), op.Softmax(X, axis=1)),
        lambda: rule(RELU, op.Softmax(X)),
        lambda: (lambda soft: rule(soft, op.Softmax(X, axis=soft.axis)))(op.Softmax(RELU)),
        lambda: (lambda soft: rule(op.ReLU(soft), soft))(op.Softmax(X)),
        lambda: rule(op.ReLU(op.Exp(X)), op.Exp(op.ReLU(X))),
    ],
    ids=["like", "given", "new operator", "copied", "the matched call", "no attributes"],
)
def test_no_warning(make: Callable[[], Any]) -> None:
    assert not warned(make)


def test_sets_of_rules() -> None:
    with pytest.raises(PatternError, match="made of Subst, got Wildcard"):
        RuleSet([X])  # type: ignore[list-item]
    with pytest.raises(PatternError, match=r"'larges'.*'largest'"):
        RuleSet([], strategy="larges")
