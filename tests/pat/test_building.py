"""Building patterns: what is refused, with which words, and where."""

from __future__ import annotations

import copy
import inspect
import math
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gsl import RuleSet, Subst, attr, is_op, op, pat
from gsl.attr.ast import Literal
from gsl.errors import PatternError, PatternTypeError, UnknownAttributeError
from gsl.pat.typed import Domain
from gsl.spec import TABLE, OpSpec
from tests.helpers.graphs import Builder, graph
from tests.helpers.tensors import tensor

X, W = pat.Wildcard(), pat.Variable()
NUMBER = attr.Symbol()
PLACE = op.Take(X, pat.Const(NUMBER))
CONV = op.Conv2D(X, W)
SPLIT = op.Split(X, indices_or_sections=2)
ALT = pat.Alt(X, CONV)
TEMPLATE = op.ReLU(W)
GROUP = pat.Variadic(TEMPLATE, templates=[TEMPLATE])
Nested = op.Add(TEMPLATE, X)

REFUSED: list[tuple[str, Callable[[], Any], type[Exception], list[str]]] = [
    ("unknown operator", lambda: pat.Call("nn.conv2", X), ValueError, ["'nn.conv2'", "'nn.conv2d'", "native function"]),
    ("unknown class", lambda: op.Conv2d(X, W), AttributeError, ["'Conv2d'", "'Conv2D'"]),
    ("class as torch names it", lambda: op.Cat(X), AttributeError, ["'Cat'", "did you mean 'Concatenate'?"]),
    ("operator that is a pattern", lambda: pat.Call(X, X), ValueError, ["expected an operator", "Wildcard"]),
    ("operator that is a number", lambda: pat.Call(3, X), ValueError, ["expected an operator", "got 3 of type int"]),
    ("unknown attribute given", lambda: op.Conv2D(X, W, stride=(1, 1)), AttributeError, ["nn.conv2d", "'strides'"]),
    ("unknown attribute read", lambda: CONV.stride, AttributeError, ["has no attribute 'stride'", "'strides'"]),
    ("attribute of a wildcard", lambda: X.strides, AttributeError, ["Wildcard has", "known are dtype, ndim, shape"]),
    ("method of a tensor", lambda: X.sqrt(), AttributeError, ["Wildcard has no attribute 'sqrt'", "op.Sqrt(…)"]),
    ("attribute as torch names it", lambda: op.Mean(X, dim=1), AttributeError, ["did you mean 'axis'?"]),
    ("attribute of a tuple", lambda: pat.Tuple(X).shape, AttributeError, ["Tuple has no attribute", "there are none"]),
    ("shape of several tensors", lambda: SPLIT.shape, AttributeError, ["split has no attribute 'shape'"]),
    ("attribute of a class of operators", lambda: pat.Call(pat.OneOf("relu", "nn.conv2d"), X).stride, AttributeError,
     ["OneOf('relu', 'nn.conv2d')", "'strides'"]),
    ("attribute given to a class of operators", lambda: pat.Call(pat.OpWithTrait("activation"), X, alfa=1),
     AttributeError, ["OpWithTrait('activation')", "'alfa'", "'alpha'"]),
    ("operands", lambda: op.Conv2D(X), ValueError, ["takes 2 operands (data, weight), got 1"]),
    ("a bias", lambda: op.Dense(X, X, X), ValueError, ["got 3; a bias is a call of its own: op.BiasAdd(…, bias)"]),
    ("operands by keyword", lambda: op.Dense(X, weight=X), ValueError, ["got 1, and by keyword weight: operands are"]),
    ("attributes by position", lambda: op.Arange(0, 4), ValueError, ["takes 0 operands, got 2; ", "keyword: start"]),
    ("no operands", lambda: op.ReLU(), ValueError, ["got 0; is_op('nn.relu'), which is not called, has any operands"]),
    ("no operands of a class", lambda: pat.Call(pat.OpWithTrait("element_wise")), ValueError, ["has any operands"]),
    ("too many operands", lambda: op.ReLU(X, X), ValueError, ["nn.relu takes 1 operand (data), got 2"]),
    ("operands of a class", lambda: pat.Call(pat.OneOf("relu", "tanh"), X, X), ValueError, ["takes 2 operands"]),
    ("string operand", lambda: op.ReLU("x"), TypeError, ["'x' of type str can't be an operand"]),
    ("None operand", lambda: op.ReLU(None), TypeError, ["None of type NoneType can't be an operand"]),
    ("operator as operand", lambda: op.ReLU(op.ReLU), TypeError, ["op.ReLU", "can't be an operand"]),
    ("attribute that is an object", lambda: op.Conv2D(X, W, strides=object()), TypeError, ["can't be an attribute"]),
    ("attribute that is a pattern", lambda: op.Reshape(X, newshape=W), TypeError, ["Variable", "p.shape"]),
    ("attribute without meaning", lambda: op.Conv2D(X, W, groups="two"), ValueError, ["nn.conv2d: groups", "'two'"]),
    ("unknown dtype of a cast", lambda: op.Cast(X, dtype="flaot32"), ValueError, ["cast: dtype", "'flaot32'"]),
    ("unknown dtype", lambda: pat.Variable(dtype="flaot32"), ValueError, ["dtype=", "'flaot32'"]),
    ("shape that is a number", lambda: pat.Wildcard(shape=3), ValueError, ["shape= takes a tuple", "got 3"]),
    ("shape with a string", lambda: pat.Wildcard(shape=(1, "a")), ValueError, ["shape[1]", "'a'"]),
    ("negative dimension", lambda: X.has_shape((-1, 2)), ValueError, ["shape[0]", "-1"]),
    ("ndim that is True", lambda: pat.Wildcard(ndim=True), ValueError, ["ndim", "True"]),
    ("field that a tuple lacks", lambda: pat.Tuple(X, W)[2], ValueError, ["no field 2 of Tuple(", "has 2"]),
    ("field before the first", lambda: pat.is_tuple_get_item(pat.Tuple(X), -2), ValueError, ["no field -2", "has 1"]),
    ("field of a tensor", lambda: CONV[0], ValueError, ["nn.conv2d has a single tensor", "op.StridedSlice"]),
    ("GetItem of a tensor", lambda: pat.GetItem(CONV, 0), ValueError, ["nn.conv2d has a single tensor"]),
    ("slice of fields", lambda: SPLIT[0:1], TypeError, ["slice(0, 1, None)"]),
    ("named field of any node", lambda: X["mean"], ValueError, ["Wildcard has no result of the name 'mean'"]),
    ("named field of an operator without names", lambda: SPLIT["mean"], ValueError, ["split has no result of"]),
    ("index that is True", lambda: SPLIT[True], TypeError, ["got True"]),
    ("one alternative", lambda: pat.Alt(X), ValueError, ["two alternatives or more, got 1"]),
    ("clauses", lambda: pat.Match(ALT, [X]), ValueError, ["expected 2 clauses", "got 1"]),
    ("match without alternative", lambda: pat.Match(X, [X]), TypeError, ["expected an Alt", "Wildcard"]),  # type: ignore[arg-type]
    ("condition that is a string", lambda: pat.Cond("a", X, W), TypeError, ["pat.Cond", "'a'", "neither true nor"]),
    ("condition that is a number", lambda: pat.Cond(attr.Const(1), X, W), TypeError, ["pat.Cond", "1", "neither true"]),
    ("transposed by numpy", lambda: np.transpose(X), TypeError, ["numpy's transpose", "(Wildcard)", "gsl.op"]),
    ("truth", lambda: bool(X), TypeError, ["a pattern (Wildcard) has no truth value", "& | ~"]),
    ("and", lambda: X and W, TypeError, ["no truth value"]),
    ("iteration", lambda: list(CONV), TypeError, ["can't be iterated", "pat.Variadic"]),
    ("unpacking", lambda: (lambda a, b: 0)(*SPLIT), TypeError, ["split", "p[0], p[1]"]),
    ("in", lambda: X in CONV, TypeError, ["'in'", "nn.conv2d"]),
    ("len", lambda: len(pat.Tuple(X, X)), TypeError, ["no length"]),
    ("setting", lambda: setattr(CONV, "strides", (1, 1)), TypeError, ["immutable", "'strides'", "nn.conv2d"]),
    ("deleting", lambda: delattr(CONV, "op"), TypeError, ["immutable", "'op'"]),
    ("leaf with a name", lambda: pat.Wildcard("x"), TypeError, ["pat.Wildcard takes no name", "'x'"]),  # type: ignore[call-arg]
    ("constant that is a string", lambda: pat.Const("a"), TypeError, ["pat.Const", "'a'"]),
    ("constant of strings", lambda: pat.Const(["a"]), TypeError, ["pat.Const", "expected numbers"]),
    ("ragged constant", lambda: pat.Const([[1], [1, 2]]), TypeError, ["pat.Const", "[[1], [1, 2]]"]),
    ("unknown trait", lambda: pat.OpWithTrait("elementwise"), ValueError, ["'elementwise'", "'element_wise'"]),
    ("no trait", lambda: pat.OpWithTrait(), ValueError, ["at least one trait"]),
    ("no operator", lambda: pat.OneOf(), ValueError, ["at least one operator"]),
    ("unknown operator in a class", lambda: pat.OneOf("relu", "silo"), ValueError, ["'silo'", "did you mean"]),
    ("field is no template", lambda: pat.Variadic(TEMPLATE, templates=[W]), ValueError, ["field nn.relu", "templates"]),
    ("template is not in the field", lambda: pat.Variadic(TEMPLATE, templates=[TEMPLATE, X]), ValueError,
     ["template Wildcard", "does not occur in the field nn.relu(Variable)"]),
    ("template that is no pattern", lambda: pat.Variadic(TEMPLATE, templates=[TEMPLATE, "w"]), ValueError, ["'w'"]),  # type: ignore[list-item]
    ("template that is variadic", lambda: pat.Variadic(op.Concatenate(GROUP), templates=[GROUP]), ValueError,
     ["can't be a Variadic"]),
    ("template twice", lambda: pat.Variadic(TEMPLATE, templates=[TEMPLATE, TEMPLATE]), ValueError, ["stands twice"]),
    ("templates without a list", lambda: pat.Variadic(TEMPLATE, templates=TEMPLATE), TypeError, ["templates=", "list"]),  # type: ignore[arg-type]
    ("shared over template", lambda: pat.Variadic(op.Tanh(Nested), templates=[TEMPLATE]), ValueError, ["must be"]),
    ("shared between templates", lambda: (lambda top: pat.Variadic(top, templates=[top, W]))(op.Tanh(TEMPLATE)),
     ValueError, ["nn.relu(Variable) is shared by all instances", "make it a template too"]),
    ("shared, with the number of an instance", lambda: pat.Variadic(PLACE, [PLACE], index=NUMBER), ValueError,
     ["Const(i) is shared by all instances, but asks for their number i", "make it a template too"]),
    ("lengths of first", lambda: pat.Variadic(TEMPLATE, [TEMPLATE, W], [X]), ValueError, ["2 templates, got 1"]),
    ("first contains a template", lambda: pat.Variadic(TEMPLATE, [TEMPLATE, W], [op.Tanh(W), X]), ValueError,
     ["first instance tanh(Variable) can't contain the template Variable"]),
    ("min_len", lambda: pat.Variadic(TEMPLATE, [TEMPLATE], min_len=-1), ValueError, ["min_len=", "-1"]),
    ("index that is no symbol", lambda: pat.Variadic(TEMPLATE, [TEMPLATE], index=3), TypeError, ["attr.Symbol()", "3"]),  # type: ignore[arg-type]
    ("instance of another pattern", lambda: GROUP(X, 0), ValueError, ["Wildcard is not one of the templates"]),
    ("instance by name", lambda: GROUP(TEMPLATE, "0"), TypeError, ["number of an instance", "'0'"]),
    ("attribute of a variadic", lambda: GROUP.strides, AttributeError, ["known are length"]),
    ("attribute of an instance", lambda: GROUP(TEMPLATE, 0).strides, AttributeError, ["instance 0 of nn.relu"]),
    ("attribute of the first alternative", lambda: (CONV | TEMPLATE).strides, AttributeError, ["Alt has", "'strides'"]),
    ("attribute of the last alternative", lambda: (TEMPLATE | CONV).strides, AttributeError, ["Alt has", "'strides'"]),
    ("attribute of no alternative", lambda: (is_op(math.gcd) | CONV).stride, AttributeError, ["Alt has", "'strides'"]),
    ("like: operands of one of both", lambda: (CONV & X).like(X), ValueError, ["nn.conv2d takes 2 operands", "got 1"]),
    ("like: operands of the other", lambda: (X & CONV).like(X), ValueError, ["nn.conv2d takes 2 operands", "got 1"]),
    ("attribute of a sequence", lambda: (X > CONV).stride, AttributeError, ["nn.conv2d has no", "'strides'"]),
    ("attribute of a chain", lambda: pat.Repeat(is_op("exp")).lenght, AttributeError, ["Repeat has no", "'length'"]),
    ("operands twice", lambda: CONV(X, W), ValueError, ["nn.conv2d(Wildcard, Variable) has operands already"]),
    ("instance by a truth value", lambda: GROUP(TEMPLATE, True), TypeError, ["number of an instance", "got True"]),
    ("max_len below min_len", lambda: pat.Variadic(TEMPLATE, min_len=3, max_len=2), ValueError, ["from 3 on, got 2"]),
    ("max_len of none", lambda: pat.Variadic(TEMPLATE, max_len=0), ValueError, ["max_len= takes a number from 1 on"]),
    ("max_len that is True", lambda: pat.Variadic(TEMPLATE, max_len=True), ValueError, ["max_len=", "got True"]),
    ("group without a name", lambda: pat.Fused(""), TypeError, ["pat.Fused takes the name of the group first, got ''"]),
    ("module of a pattern", lambda: pat.Module(CONV, W), TypeError, ["pat.Module takes a function", "got nn.conv2d("]),
    ("call of an operator that is left out", lambda: op.ReLU(op.Tanh), TypeError, ["a call of it is op.Tanh(…)"]),
    ("name as operand", lambda: op.ReLU(X) | "tanh", TypeError, ["a call of an operator by its name is is_op('tanh')"]),
    ("text for a function", lambda: pat.Call(math.gcd, X, "a"), TypeError, ["given by keyword, as name='a'"]),
    ("argument of a leaf", lambda: pat.Wildcard(shpe=(1,)), TypeError, ["pat.Wildcard", "'shpe'", "'shape'"]),  # type: ignore[call-arg]
    ("values that are none", lambda: pat.Param(values=(2, 1)), ValueError, ["values= takes", "got (2, 1)"]),
    ("values without an end", lambda: pat.Param(values=(None, None)), ValueError, ["an end that may be None"]),
    ("two numbers of dimensions", lambda: pat.Param(shape=(1, 2), ndim=3), ValueError, ["2 dimensions", "ndim= is 3"]),
    ("argument of a variadic", lambda: pat.Variadic(TEMPLATE, template=[]), TypeError, ["Variadic", "'templates'?"]),  # type: ignore[call-arg]
    ("argument of a chain", lambda: pat.Repeat(is_op("exp"), mim=2), TypeError, ["Repeat has", "'min'"]),  # type: ignore[call-arg]
    ("argument of a literal", lambda: pat.Const(1, dtyp="int8"), TypeError, ["Const has no", "'dtype'?"]),  # type: ignore[call-arg]
    ("argument of a field", lambda: pat.GetItem(SPLIT, indx=1), TypeError, ["GetItem has no", "'index'"]),  # type: ignore[call-arg]
    ("argument of a use", lambda: X.used_by(CONV, indx=1), TypeError, ["used_by has no", "'index'?"]),  # type: ignore[call-arg]
    ("argument of a rule", lambda: Subst(CONV, X, wher=[]), TypeError, ["Subst has no", "'where'?"]),  # type: ignore[call-arg]
    ("argument of a set", lambda: RuleSet([], stratgy="first"), TypeError, ["RuleSet has", "'strategy'?"]),  # type: ignore[call-arg]
    ("demand of nothing", lambda: X.has_dtype(None), TypeError, ["has_dtype", "got None"]),
    ("one name for a list", lambda: pat.same_attr(CONV, "strides"), TypeError, ["names=", "write ['strides']"]),
    ("power", lambda: X**2, TypeError, ["** builds no call", "op.Power(a, b)"]),  # type: ignore[operator]
    ("remainder", lambda: 7 % X, TypeError, ["% builds no call", "op.FloorMod(a, b)"]),  # type: ignore[operator]
    ("whole quotient", lambda: X // W, TypeError, ["// builds no call", "op.FloorDivide(a, b)"]),  # type: ignore[operator]
    ("absolute value", lambda: abs(X), TypeError, ["abs builds no call", "op.Abs(a)"]),
    ("rounding", lambda: round(X), TypeError, ["round builds no call", "op.Round(a)"]),
    ("like: attribute", lambda: CONV.like(X, W, stride=(1, 1)), AttributeError, ["nn.conv2d.like", "'strides'"]),
    ("like: type is no attribute", lambda: CONV.like(X, W, shape=(1,)), AttributeError, ["nn.conv2d.like", "'shape'"]),
    ("like: operands", lambda: CONV.like(X), ValueError, ["nn.conv2d takes 2 operands", "got 1"]),
    ("like: attribute of a wildcard", lambda: X.like(strides=(1, 1)), AttributeError, ["Wildcard.like", "'strides'"]),
]  # fmt: skip


def test_names_of_torch_lead_to_operators() -> None:
    for theirs, own in op._OF_TORCH.items():
        with pytest.raises(UnknownAttributeError, match=f"did you mean '{own}'"):
            getattr(op, theirs)
        assert str(getattr(op, own)) == f"op.{own}"



@pytest.mark.parametrize(("make", "kind", "texts"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_refused(make: Callable[[], Any], kind: type[Exception], texts: list[str]) -> None:
    with pytest.raises(PatternError) as caught:
        make()
    assert isinstance(caught.value, kind)
    for text in texts:
        assert text in str(caught.value)
    lines, first = inspect.getsourcelines(make)
    assert any(str(caught.value).startswith(f"test_building.py:{first + i}: ") for i in range(len(lines)))


def test_errors_are_of_the_builtin_kinds_too() -> None:
    assert issubclass(PatternTypeError, (TypeError, PatternError))
    assert issubclass(UnknownAttributeError, (AttributeError, PatternError))
    assert not hasattr(X, "strides")
    assert hasattr(CONV, "strides")


# Values


def test_copies_are_the_same_object() -> None:
    for pattern in (X, CONV, GROUP, GROUP(TEMPLATE, 0), ALT, CONV.like(X, W)):
        assert copy.copy(pattern) is pattern
        assert copy.deepcopy([pattern])[0] is pattern


def test_equality_and_hash_are_identity() -> None:
    assert pat.Wildcard() != X
    assert len({X, pat.Wildcard(), X}) == 2
    assert op.ReLU(X) != op.ReLU(X)


def test_attributes_of_a_call_can_not_be_changed() -> None:
    conv = op.Conv2D(X, W, groups=1)
    with pytest.raises(TypeError):
        conv.attrs["groups"] = Literal(2)  # type: ignore[index]


def test_a_pattern_serves_many_rules_and_threads() -> None:
    x = pat.Wildcard()
    inner = op.ReLU(x)
    rules = [Subst(op.ReLU(inner), inner), Subst(op.Exp(inner), op.Tanh(inner)), Subst(op.Tanh(inner), x)]
    view = graph(lambda b: b.call("nn.relu", b.call("nn.relu", b.input("x", 2))))
    found: list[int] = []

    def work() -> None:
        for _ in range(20):
            found.append(len(rules[0](view)) * 100 + sum(len(list(rule.match(view))) for rule in rules))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [201] * 80


# Python's operators


@pytest.mark.parametrize(
    ("call", "name"),
    [(X + W, "add"), (X - W, "subtract"), (X * W, "multiply"), (X / W, "divide"), (X @ W, "matmul")],
)
def test_operators_are_calls(call: pat.Call, name: str) -> None:
    assert isinstance(call.op, OpSpec)
    assert call.op.name == name
    assert call.operands == (X, W)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (X + 1, "add(Wildcard, Const(1))"),
        (1 + X, "add(Const(1), Wildcard)"),
        (2.5 - X, "subtract(Const(2.5), Wildcard)"),
        (2 * X, "multiply(Const(2), Wildcard)"),
        (1 / X, "divide(Const(1), Wildcard)"),
        (-X, "negative(Wildcard)"),
        (X + [1.0, 2.0], "add(Wildcard, Const(<float64[2]>))"),
        ([1, 2] + X, "add(Const(<int64[2]>), Wildcard)"),
        (np.ones((2, 3)) + X, "add(Const(<float64[2, 3]>), Wildcard)"),
        (X + np.ones(2), "add(Wildcard, Const(<float64[2]>))"),
        (np.float32(2) * X, "multiply(Const(2.0), Wildcard)"),
        (tensor([1.0, 1.0]) + X, "add(Const(<float32[2]>), Wildcard)"),
        (X @ np.eye(2), "matmul(Wildcard, Const(<float64[2, 2]>))"),
        (np.eye(2) @ X, "matmul(Const(<float64[2, 2]>), Wildcard)"),
        (X * CONV.groups, "multiply(Wildcard, Const(nn.conv2d.groups))"),
        (X + True, "add(Wildcard, Const(True))"),
    ],
)
def test_numbers_and_arrays_are_constants(call: pat.Call, text: str) -> None:
    assert repr(call) == text


def test_a_list_of_patterns_is_a_tuple() -> None:
    call = op.Concatenate([X, W, 1.0], axis=1)
    assert call.operands is not None
    assert isinstance(call.operands[0], pat.Tuple)
    assert repr(call) == "concatenate(Tuple(Wildcard, Variable, Const(1.0)), axis=1)"


# Operators and classes of them


@pytest.mark.parametrize("spelling", ["nn.conv2d", "conv2d", "Conv2D", op.Conv2D, TABLE["nn.conv2d"]])
def test_spellings_of_an_operator(spelling: Any) -> None:
    assert pat.Call(spelling, X, W).op is TABLE["nn.conv2d"]


def test_a_native_function_is_an_opaque_operator() -> None:
    call = pat.Call(math.gcd, X, W, 3, anything=1)
    assert call.op is math.gcd
    assert repr(call) == "math.gcd(Wildcard, Variable, Const(3), anything=1)"
    for one in (call, CONV & call, call & CONV, pat.Repeat(call), pat.Call(pat.OneOf("relu", math.gcd), X)):
        assert repr(one.whatever) == f"{one.label}.whatever"  # known at a match only


def test_the_classes_of_op() -> None:
    assert "Conv2D" in dir(op)
    assert dir(op) == sorted(dir(op))
    assert len(dir(op)) == len(TABLE) + 2
    assert repr(op.Conv2D) == "op.Conv2D"
    assert op.Conv2D.__doc__ is not None
    assert op.Conv2D.__doc__.startswith("nn.conv2d(data, weight, strides=(1, 1)")
    assert "newshape" in str(op.Reshape.__doc__)
    assert "newshape=" not in str(op.Reshape.__doc__)  # required
    with pytest.raises(ImportError):
        exec("from gsl.op import Nope")


def test_every_operator_has_its_class() -> None:
    for spec in TABLE.values():
        call = getattr(op, spec.cls)(*[X for _ in spec.operands])
        assert call.label == spec.name
        for name in spec.attrs:
            assert repr(getattr(call, name)) == f"{spec.name}.{name}", "a field of patterns hides an attribute"


def test_defaults_are_accepted_as_attributes() -> None:
    from gsl.spec import REQUIRED

    for spec in TABLE.values():
        given = {name: a.default for name, a in spec.attrs.items() if a.default is not REQUIRED and a.derive is None}
        getattr(op, spec.cls)(*[X for _ in spec.operands], **given)


def test_classes_of_operators() -> None:
    relu = pat.OneOf("relu", op.Tanh, ["silu"])
    assert [relu.accepts(name) for name in ("nn.relu", "tanh", "silu", "exp")] == [True, True, True, False]
    other = pat.NoneOf("relu")
    assert [other.accepts(name) for name in ("nn.relu", "tanh", "input", "tuple")] == [False, True, False, False]
    assert pat.AnyOp().accepts(math.gcd)
    assert not pat.AnyOp().accepts("param")
    both = pat.OpWithTrait("element_wise", "broadcasting")
    assert both.accepts("add")
    assert not both.accepts("nn.relu")
    assert pat.OpWithTrait(op.Trait.ELEMENT_WISE | op.Trait.BROADCASTING).members == both.members
    assert repr(both) == "OpWithTrait('element_wise', 'broadcasting')"
    assert repr(pat.NoneOf("relu", op.Tanh)) == "NoneOf('relu', 'tanh')"


def test_classes_of_which_each_node_has_its_own_operator() -> None:
    for made in (pat.AnyOp, lambda joint: pat.OneOf("relu", joint=joint), lambda joint: pat.NoneOf("relu", joint=joint),
                 lambda joint: pat.OpWithTrait("activation", joint=joint)):  # fmt: skip
        assert made(joint=True).joint
        assert not made(joint=False).joint
        assert "joint=False)" in repr(made(joint=False))
        assert "joint" not in repr(made(joint=True))


def test_a_dtype_of_a_class_of_operators_is_that_of_the_result() -> None:
    call = pat.Call(pat.OpWithTrait("element_wise"), X, dtype="float16")  # cast has an attribute of that name
    assert call.guard is not None
    assert not call.attrs
    assert pat.Call(pat.OneOf("zeros", "ones"), shape=(2,)).attrs  # here all have it
    assert op.Cast(X, dtype="float16").attrs


@pytest.mark.torch
def test_arguments_of_a_native_call_are_its_own() -> None:
    """Whatever they are called; demands on types have methods."""
    import torch

    for target in (torch.nansum, torch.ops.aten.nansum.default, pat.OneOf(torch.nansum, torch.cumprod)):
        call = pat.Call(target, X, dtype=torch.float64)  # type: ignore[arg-type]
        assert call.guard is None
        assert call.attrs["dtype"].value is torch.float64  # type: ignore[attr-defined]
        assert repr(pat.is_op(target)(X, dtype=torch.float64)) == repr(call)  # type: ignore[arg-type]
        assert repr(call.has_dtype("float64")).endswith(" & Wildcard(dtype='float64'))")


@pytest.mark.torch
def test_a_demand_that_is_no_argument_of_a_native_call() -> None:
    import torch

    for target in (torch.erfinv, torch.ops.aten.erfinv.default):
        with pytest.raises(PatternError, match=r"erfinv.* has no argument 'shape'; .* is written \.has_shape\(…\)"):
            pat.Call(target, X, shape=(2,))


@pytest.mark.torch
def test_an_argument_that_an_operator_of_torch_lacks() -> None:
    import torch

    with pytest.raises(UnknownAttributeError, match=r"nansum\.default has no argument 'dims': did you mean 'dim'"):
        pat.Call(torch.ops.aten.nansum.default, X, dims=[0])
    assert "axis=0" in repr(pat.Call(torch.sum, X, axis=0))  # an argument of the function alone


@pytest.mark.torch
def test_a_native_operand_that_is_no_tensor_is_named() -> None:
    import torch

    scatter = torch.ops._c10d_functional.reduce_scatter_tensor.default
    with pytest.raises(PatternTypeError, match=r"'sum' is no operand.*given by keyword, as reduce_op='sum'"):
        pat.Call(scatter, X, "sum", 2)
    with pytest.raises(PatternTypeError, match=r"None is no operand.*given by keyword, as min=None"):
        pat.Call(torch.clamp, X, None)
    with pytest.raises(PatternTypeError, match=r"None is no operand.*given by keyword, as arg1=None"):
        pat.Call("onnx::Resize", X, None, W)


# Demands on types


def test_demands_on_types() -> None:
    assert repr(X.has_shape((1, None))) == "(Wildcard & Wildcard(shape=(1, None)))"
    assert repr(X.has_dtype("float16")) == "(Wildcard & Wildcard(dtype='float16'))"
    assert repr(pat.Variable(dtype=np.float32)) == "Variable(dtype='float32')"
    assert X.has_shape((1,)).has_dtype("int8").label == "Wildcard"
    assert repr(CONV.has_shape((1,)).strides) == "nn.conv2d.strides"


RELU = op.ReLU(X)


@pytest.mark.parametrize(
    ("pattern", "fires"),
    [
        (RELU.has_shape((1, 3)), True), (RELU.has_shape((1, None)), True), (RELU.has_shape((None,)), False),
        (op.ReLU(X, shape=(1, None)), True), (op.ReLU(X, ndim=2), True), (op.ReLU(X, ndim=3), False),
        (RELU.has_dtype("float16"), False), (RELU.has_dtype("float32"), True), (op.ReLU(X.has_dtype("float32")), True),
        (op.ReLU(X.has_shape((1, 4))), False), (op.ReLU(pat.Variable(shape=(1, 4))), False),
        (op.ReLU(pat.Variable(shape=(1, 3))), True), (op.ReLU(pat.Wildcard(shape=(1, 1 + attr.Const(2)))), True),
        (op.ReLU(X, shape=X.shape), True), (op.ReLU(X, shape=X.shape + (1,)), False),
    ],
)  # fmt: skip
def test_demands_on_types_guard(pattern: pat.Pattern, fires: bool) -> None:
    view = graph(lambda b: b.call("nn.relu", b.input("x", 1, 3)))
    zeros = op.Zeros(shape=(1, 3), dtype="float32")
    assert bool(list(Subst(pattern, zeros).match(view))) is fires


@pytest.mark.parametrize(
    ("values", "words"),
    [("nonzero", "nonzero"), ((0, 1), "in [0, 1]"), (range(3), "in range(0, 3)"), ((0, None), "nonnegative")],
)
def test_demands_on_values_in_words(values: Any, words: str) -> None:
    assert Domain.of(values).words == words


def test_same_attr() -> None:
    same = pat.same_attr(CONV, ["strides", "padding"])
    assert repr(same) == "{'strides': nn.conv2d.strides, 'padding': nn.conv2d.padding}"
    assert set(op.Conv2D(X, W, **same).attrs) == {"strides", "padding"}
    with pytest.raises(UnknownAttributeError, match="strides"):
        pat.same_attr(CONV, ["stride"])


def test_symbols_on_which_a_pattern_depends() -> None:
    i = attr.Symbol()
    instance = GROUP(TEMPLATE, i)
    assert instance.free_symbols == {i.ast}
    assert op.ReLU(instance).shape.ast.symbols == {i.ast}
    assert CONV.like(X, W, groups=i).free_symbols == {i.ast}
    assert op.Exp(X).free_symbols == frozenset()
    assert instance.like(X).free_symbols == {i.ast}
    assert pat.Variadic(op.ReLU(instance), index=i, length=3).free_symbols == frozenset()
    assert pat.Variadic(op.ReLU(instance), index=attr.Symbol(), length=3).free_symbols == {i.ast}


# Text


def deep(levels: int) -> pat.Pattern:
    pattern: pat.Pattern = X
    for _ in range(levels):
        pattern = pattern + pattern
    return pattern


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (X, "Wildcard"),
        (pat.Variable(shape=(1, None), dtype="float32", ndim=2), "Variable(shape=(1, None), dtype='float32', ndim=2)"),
        (pat.Wildcard(shape=X.shape, distinct=True), "Wildcard(shape=Wildcard.shape, distinct=True)"),
        (op.Add(op.Conv2D(X, W, strides=(1, 1)), 1), "add(nn.conv2d(Wildcard, Variable, strides=(1, 1)), Const(1))"),
        (op.Zeros(shape=(2,), dtype="float32"), "zeros(shape=(2,), dtype='float32')"),
        (pat.Call(pat.OneOf("relu", "silu"), X), "OneOf('relu', 'silu')(Wildcard)"),
        (SPLIT[1], "split(Wildcard, indices_or_sections=2)[1]"),
        (pat.GetItem(X), "Wildcard[]"),
        (pat.GetItem(X, ndim=2), "GetItem(Wildcard, ndim=2)"),
        (pat.Tuple(X, W), "Tuple(Wildcard, Variable)"),
        (X | W | 1.5, "((Wildcard | Variable) | Const(1.5))"),
        (pat.Alt([X, W]), "(Wildcard | Variable)"),
        (~X & CONV, "(~Wildcard & nn.conv2d(Wildcard, Variable))"),
        (pat.Cond(CONV.groups == 1, X, W), "Cond((nn.conv2d.groups == 1), Wildcard, Variable)"),
        (pat.Match(ALT, [X, W]), "Match(Alt, Wildcard, Variable)"),
        (CONV.like(W, X, groups=2), "nn.conv2d.like(Variable, Wildcard, groups=2)"),
        (GROUP, "Variadic(nn.relu(Variable), templates=[nn.relu])"),
        (
            pat.Variadic(TEMPLATE, [TEMPLATE, W], [SPLIT, X], attr.Symbol(), 3),
            "Variadic(nn.relu(Variable), templates=[nn.relu, Variable], first=[split, Wildcard], index=i, length=3)",
        ),
        (pat.Variadic(TEMPLATE, length=GROUP.length), "Variadic(nn.relu(Variable), length=Variadic.length)"),
        (pat.Variadic(TEMPLATE, min_len=2, max_len=3), "Variadic(nn.relu(Variable), min_len=2, max_len=3)"),
        (pat.Segment(min_len=1), "Segment(Wildcard, min_len=1, greedy=False)"),
        (pat.Repeat(TEMPLATE, 2, greedy=False, sole=False),
         "Repeat(nn.relu(Variable), min=2, greedy=False, sole=False)"),
        (GROUP(TEMPLATE, 1), "instance 1 of nn.relu"),
        (pat.Wildcard(shape=(2,)), "Wildcard(shape=(2,))"),
        (pat.Param(values="positive", distinct=True), "Param(values='positive', distinct=True)"),
        (pat.Param(values=(None, 1.5)), "Param(values=(None, 1.5))"),
        (pat.Param(values=range(1, 9, 3)), "Param(values=range(1, 8, 3))"),
        (pat.Param(values=range(4, -1, -1)), "Param(values=range(0, 5))"),
        (pat.Fused("group", kind="a"), "Fused('group', kind='a')"),
        (pat.Module(deep, X, W), "Module(deep, Wildcard, Variable)"),
        (pat.Const(), "Const"),
        (pat.Const(1, "float16"), "Const(1, dtype='float16')"),
        (pat.Const(np.zeros((3, 4), np.float32)), "Const(<float32[3, 4]>)"),
        (pat.Tuple(*[X] * 20), "Tuple(" + "Wildcard, " * 8 + "…)"),
    ],
)
def test_repr_reads_like_the_source(pattern: pat.Pattern, text: str) -> None:
    assert repr(pattern) == text


def test_huge_patterns_are_cut_and_cheap() -> None:
    assert len(repr(deep(60))) < 600
    long: pat.Pattern = X
    for _ in range(5000):
        long = op.ReLU(long)
    assert repr(long) == "nn.relu(" * 6 + "…" + ")" * 6
    assert len(list(pat.walk(long))) == 5001


def test_a_node_of_a_graph_prints_by_name() -> None:
    assert repr(pat.to_pattern(Builder().input("x", 1))) == "Exactly(%x)"
