"""What each construct of a source matches and does not match, case by case."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from gsl import Subst, attr, attr_eq, op, pat
from gsl.errors import PatternError
from gsl.graph import Graph, Node
from gsl.match import Match, MatchSearch, Plan, candidates
from gsl.match.plan import PAYS
from gsl.pat import Pattern
from tests.helpers.graphs import Builder, graph
from tests.helpers.tensors import full, tensor
from tests.rewrite.checks import rewritten


def names(view: Graph, outputs: Any, **options: Any) -> list[tuple[str, ...]]:
    """The outputs of all matches, by name: those that searches find, and functions too."""
    rule = Subst(outputs, lambda match: list(match.outputs), **options)
    found = [tuple(node.name for node in match.outputs) for match in rule.match(view)]
    for start in rule.plan.starts():
        start.finder(PAYS)
    assert found == [tuple(node.name for node in match.outputs) for match in rule.match(view)]
    return found


def first(view: Graph, outputs: Any) -> Match:
    return next(Plan(outputs if isinstance(outputs, list) else [outputs]).matches(view))


def layers(b: Builder) -> Node:
    """relu(leaky_relu(x)) + tanh(leaky_relu(y))"""
    x, y = b.input("x", 4), b.input("y", 4)
    left = b.call("nn.relu", b.call("nn.leaky_relu", x, alpha=0.5))
    return b.call("add", left, b.call("tanh", b.call("nn.leaky_relu", y, alpha=0.25)))


w, v = pat.Wildcard(), pat.Wildcard()
half = op.LeakyReLU(w, alpha=0.5)
free = op.LeakyReLU(w)
other = op.LeakyReLU(v)
same_class = pat.OneOf("nn.relu", "tanh")


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        # alternatives
        pytest.param(op.ReLU(free) | op.Tanh(free), [("relu",), ("tanh",)], id="both alternatives"),
        pytest.param(op.ReLU(op.Tanh(w) | op.Tanh(v) | free), [("relu",)], id="the last alternative"),
        pytest.param(op.ReLU(pat.Alt(op.Tanh(w), half | free)), [("relu",), ("relu",)], id="nested alternatives"),
        pytest.param(op.Tanh(half | op.ReLU(w)), [], id="the guard of an alternative fails"),
        pytest.param(op.ReLU(half | op.ReLU(w)), [("relu",)], id="the guard of an alternative holds"),
        # guards that refer to others
        pytest.param(op.ReLU(free) + op.Tanh(op.LeakyReLU(v, alpha=free.alpha / 2)), [("add",)], id="forward"),
        pytest.param(op.ReLU(op.LeakyReLU(w, alpha=other.alpha * 2)) + op.Tanh(other), [("add",)], id="backward"),
        pytest.param(op.ReLU(op.LeakyReLU(w, alpha=other.alpha)) + op.Tanh(other), [], id="backward, not equal"),
        pytest.param(
            op.ReLU(op.LeakyReLU(w, alpha=other.alpha) | free) + op.Tanh(other), [("add",)], id="of another alternative"
        ),
        pytest.param(
            op.ReLU(op.Exp(~op.LeakyReLU(w, alpha=other.alpha)) | free) + op.Tanh(other),
            [("add",)],
            id="in a negation in another alternative",
        ),
        # operator classes
        pytest.param(pat.Call(same_class, w), [("relu",), ("tanh",)], id="a class"),
        pytest.param(pat.Call(same_class, w) + pat.Call(same_class, v), [], id="one class object is one operator"),
        pytest.param(
            pat.Call(same_class, w) + pat.Call(pat.OneOf("nn.relu", "tanh"), v),
            [("add",), ("add",)],
            id="two class objects",
        ),
        pytest.param(
            pat.Call(pat.NoneOf("nn.relu", "tanh", "add"), w), [("leaky_relu",), ("leaky_relu_1",)], id="none of"
        ),
        pytest.param(pat.Call(pat.AnyOp(), w, v), [("add",), ("add",)], id="any operator of two operands"),
        pytest.param(
            pat.Call(pat.OneOf("subtract", "add"), op.Tanh(w), op.ReLU(v)), [("add",)], id="either order, if it may be"
        ),
        # both, and not
        pytest.param(op.ReLU(w) & pat.Wildcard(shape=(4,)), [("relu",)], id="and"),
        pytest.param(op.ReLU(w).has_shape((5,)), [], id="and, another shape"),
        pytest.param(op.ReLU(~op.Tanh(w)), [("relu",)], id="not"),
        pytest.param(op.ReLU(~op.LeakyReLU(w)), [], id="not, but it is"),
        pytest.param(op.ReLU(~op.LeakyReLU(w, alpha=0.25)), [("relu",)], id="not with that attribute"),
        pytest.param(op.ReLU(~~op.LeakyReLU(w)), [("relu",)], id="not not"),
        # whatever the operands
        pytest.param(op.ReLU(pat.is_op("nn.leaky_relu")), [("relu",)], id="operands left open"),
        # types
        pytest.param(op.ReLU(w, shape=(None,), dtype="float32", ndim=1), [("relu",)], id="type"),
        pytest.param(op.ReLU(w, ndim=2), [], id="ndim"),
        pytest.param(op.ReLU(w, dtype="float16"), [], id="dtype"),
        pytest.param(op.ReLU(w, shape=(w.shape[0],)), [("relu",)], id="a size that is another's"),
    ],
)
def test_constructs(source: Pattern, expected: list[tuple[str, ...]]) -> None:
    assert names(graph(layers), source) == expected


def test_a_negation_is_about_nodes_that_are_bound_too() -> None:
    view = graph(lambda b: b.call("subtract", tanh := b.call("tanh", b.input("x", 4)), tanh))
    assert names(view, op.Subtract(op.Tanh(w), pat.Wildcard())) == [("subtract",)]
    assert names(view, op.Subtract(op.Tanh(w), ~op.Tanh(v))) == []


@pytest.mark.parametrize(("operand", "is_match"), [("x", False), ("y", True)])
def test_a_negated_pattern_that_is_an_output_is_that_node(operand: str, is_match: bool) -> None:
    def make(b: Builder) -> list[Node]:
        x, tops = b.input("x", 4), {"y": b.call("tanh", b.input("y", 4))}
        tops["x"] = b.call("tanh", x)
        return [b.call("subtract", b.call("nn.relu", tops[operand]), x), tops["x"]]

    tanh = op.Tanh(w)
    assert bool(names(graph(make), [op.Subtract(op.ReLU(~tanh), w), tanh])) is is_match


@pytest.mark.parametrize(("fields", "alpha", "is_match"), [(2, 2.0, False), (2, 3.0, True), (3, 2.0, True)])
def test_a_negation_that_reads_a_number_of_instances(fields: int, alpha: float, is_match: bool) -> None:
    def make(b: Builder) -> Node:
        joined = b.call("concatenate", b.tuple(*[b.input("x", 4) for _ in range(fields)]), axis=0)
        return b.call("nn.relu", b.call("nn.leaky_relu", joined, alpha=alpha))

    every = pat.Variadic(w, templates=[w])
    negated = op.LeakyReLU(op.Concatenate(every), alpha=every.length * 1.0)
    assert bool(names(graph(make), op.ReLU(~negated))) is is_match


@pytest.mark.parametrize(("alpha", "is_match"), [(0.5, False), (0.25, True)])
def test_a_negation_in_an_instance_that_reads_another_part_of_it(alpha: float, is_match: bool) -> None:
    one = op.LeakyReLU(w)
    total = op.Subtract(one, no := ~(two := op.LeakyReLU(v, alpha=one.alpha)))
    every = pat.Variadic(total, templates=[total, one, w, no, two, v])

    def make(b: Builder) -> Node:
        leaky = [b.call("nn.leaky_relu", b.input("x", 4), alpha=each) for each in (0.5, alpha)]
        return b.tuple(b.tuple(b.call("subtract", *leaky)))

    assert bool(names(graph(make), pat.Tuple(every))) is is_match


@pytest.mark.parametrize(("operand", "beside", "is_match"), [("x", "y", False), ("x", "x", True), ("y", "x", False)])
def test_a_distinct_leaf_in_a_negation(operand: str, beside: str, is_match: bool) -> None:
    """No other pattern may be the leaf's node, those outside of the negation included."""

    def make(b: Builder) -> Node:
        leaves = {name: b.input(name, 4) for name in ("x", "y")}
        return b.tuple(b.call("nn.relu", b.call("exp", leaves[operand])), leaves[beside])

    negated = op.Exp(pat.Wildcard(distinct=True))
    assert bool(names(graph(make), pat.Tuple(op.ReLU(~negated), v))) is is_match


def test_an_alternative_is_chosen_anew_when_the_rest_fails() -> None:
    shared = pat.Wildcard()
    inner = op.ReLU(shared) | op.ReLU(op.Tanh(shared))

    def make(b: Builder) -> Node:
        x = b.input("x", 4)
        return b.call("subtract", b.call("nn.relu", b.call("tanh", x)), x)

    source = inner - shared
    match = first(graph(make), source)
    assert match.bindings.chosen[inner] == 1
    assert match[shared].name == "x"


def test_a_condition_on_the_whole_match_makes_the_search_go_on() -> None:
    x, y = pat.Wildcard(), pat.Wildcard()
    view = graph(lambda b: b.call("add", b.input("x", 4), b.input("y", 1)))
    assert [m[x].name for m in Subst(x + y, x + y, where=x.shape[0] == 1).match(view)] == ["y"]


@pytest.mark.parametrize(
    ("demand", "shape", "dtype", "is_match"),
    [
        ({"shape": (w.shape[0] + 1, None)}, (5, 2), "float32", True),
        ({"shape": (w.shape[0] + 1, None)}, (4, 2), "float32", False),
        ({"shape": w.shape}, (4, 2), "float32", True),
        ({"shape": w.shape}, (5, 2), "float32", False),
        ({"ndim": w.ndim}, (3, 3), "float32", True),
        ({"ndim": w.ndim}, (3, 3, 3), "float32", False),
        ({"dtype": w.dtype}, (3,), "float32", True),
        ({"dtype": w.dtype}, (3,), "float16", False),
    ],
)
def test_types_that_depend_on_another_one(
    demand: dict[str, Any], shape: tuple[int, ...], dtype: str, is_match: bool
) -> None:
    view = graph(lambda b: b.tuple(b.input("x", 4, 2), b.input("y", *shape, dtype=dtype)))
    assert bool(names(view, pat.Tuple(w, pat.Wildcard(**demand)))) is is_match


@pytest.mark.parametrize(("axes", "is_match"), [((1, 0), True), ((-1, -2), True), ((0, 1), False), ((-1, 5), False)])
def test_an_expression_for_an_attribute_in_any_form(axes: tuple[int, ...], is_match: bool) -> None:
    view = graph(lambda b: b.call("transpose", b.input("x", 2, 3), axes=(1, 0)))
    assert bool(names(view, op.Transpose(w, axes=attr.Map(axes, lambda axis: axis + w.ndim - 2)))) is is_match


def test_an_attribute_in_another_form_where_calls_share_their_attributes() -> None:
    view = graph(lambda b: [b.call("nn.softmax", b.input("x", *[4] * rank), axis=1) for rank in (2, 3)])
    view.outputs[1].attrs = view.outputs[0].attrs
    assert names(view, op.Softmax(w, axis=-1)) == [("softmax",)]


def test_a_leaf_tells_its_type_where_its_node_has_attributes_of_such_names() -> None:
    def view_as(value: Any, shape: Any) -> Any:
        return value.reshape(shape)

    view = graph(lambda b: b.call("nn.relu", b.call(view_as, b.input("x", 4), shape=(-1, 2))))
    assert names(view, op.ReLU(w), where=w.shape[0] == 4) == [("relu",)]
    call = pat.Call(view_as, w)
    assert names(view, op.ReLU(call), where=call.shape[0] == -1) == [("relu",)]


@pytest.mark.parametrize(
    ("second", "plain", "all_leaves", "one"), [("relu", True, True, False), ("x", True, False, False)]
)
def test_leaves_that_are_distinct_from_other_leaves_or_from_all_patterns(
    second: str, plain: bool, all_leaves: bool, one: bool
) -> None:
    def make(b: Builder) -> Node:
        relu = b.call("nn.relu", x := b.input("x", 4))
        return b.tuple(relu, relu if second == "relu" else x)

    assert bool(names(graph(make), pat.Tuple(op.ReLU(w), v))) is plain
    assert bool(names(graph(make), pat.Tuple(op.ReLU(w), v), distinct=True)) is all_leaves
    assert bool(names(graph(make), pat.Tuple(op.ReLU(w), pat.Wildcard(distinct=True)))) is one


def test_a_distinct_leaf_of_instances_is_another_node_in_each() -> None:
    leaf = pat.Wildcard(distinct=True)
    every = pat.Variadic(leaf, templates=[leaf])
    view = graph(lambda b: [b.tuple(b.tuple(x := b.input("x", 4), b.input("y", 4))), b.tuple(b.tuple(x, x))])
    assert names(view, pat.Tuple(every)) == [("tuple_1",)]


@pytest.mark.parametrize(("index", "expected"), [(0, 1), (1, 1), (-1, 1), (-2, 1), (2, 0), (None, 2)])
def test_fields_of_a_tuple(index: int | None, expected: int) -> None:
    def make(b: Builder) -> list[Node]:
        both = b.tuple(b.input("x", 4), b.input("y", 4))
        return [b.get(both, 0), b.get(both, 1)]

    assert len(names(graph(make), pat.GetItem(pat.Wildcard(), index))) == expected


@pytest.mark.parametrize(("rank", "is_match"), [(1, False), (2, True)])
def test_a_field_whose_number_is_an_expression(rank: int, is_match: bool) -> None:
    view = graph(lambda b: b.call("exp", b.get(b.tuple(b.input("x", 4), b.input("y", *[4] * rank)), 1)))
    assert bool(names(view, op.Exp(pat.GetItem(pat.Tuple(w, v), v.ndim - 1)))) is is_match


def test_a_field_from_the_end_of_a_tuple_without_a_type() -> None:
    def make(b: Builder) -> Node:
        both = b.tuple(b.input("x", 4), b.input("y", 4))
        field, both.type = b.get(both, 1), None
        return field

    assert names(graph(make), pat.GetItem(pat.Wildcard(), 1)) == [("get",)]
    assert names(graph(make), pat.GetItem(pat.Wildcard(), -1)) == []


@pytest.mark.parametrize("whole", [pat.Tuple(w), pat.Tuple(pat.Segment()), pat.Variadic(w, [w])])
def test_a_call_that_has_several_results_is_no_tuple(whole: Pattern) -> None:
    view = graph(lambda b: b.get(b.call("split", b.input("x", 4), indices_or_sections=2, axis=0), 0))
    assert names(view, pat.GetItem(pat.Wildcard(), 0)) == [("get",)]
    assert names(view, pat.GetItem(whole, 0)) == []


def test_a_template_has_no_segments() -> None:
    joined = op.Concatenate(fields := pat.Tuple(pat.Segment(), w), axis=0)
    with pytest.raises(PatternError, match="is a template, so it can't have segments"):
        Plan([op.Concatenate(pat.Variadic(joined, templates=[joined, fields]), axis=0)])


def first_part(value: Any, length: int) -> Any:
    return value[:length]


@pytest.mark.parametrize("calls", [1, 200])  # of 200, most are tried by the function that is printed
def test_an_attribute_with_the_name_of_a_count(calls: int) -> None:
    """Of a variadic, ``length`` is the number of instances; of a call, it is an attribute like any other."""
    view = graph(lambda b: [b.call(first_part, b.input(f"x{i}", 4), length=2 + i % 2) for i in range(calls)])
    call = pat.Call(first_part, w)
    long = Subst(call, op.LeakyReLU(w, alpha=call.length * 1.0), where=call.length == 2)
    new, trace = rewritten(long, view, numbers=False)
    assert trace.count() == (calls + 1) // 2
    assert {node.attrs.get("alpha") for node in new.outputs[::2]} == {2.0}


@pytest.mark.parametrize(("given", "is_match"), [(2, True), (3, False), (None, False)])
@pytest.mark.parametrize("names_of", ["length", None])
def test_equal_attributes_where_a_call_may_lack_one(names_of: str | None, given: int | None, is_match: bool) -> None:
    def make(b: Builder) -> Node:
        left = b.call(first_part, b.input("x", 4), length=2)
        more = {} if given is None else {"length": given}
        return b.call("add", b.call("exp", left), b.call(first_part, b.input("y", 4), **more))

    left, right = pat.Call(first_part, w), pat.Call(first_part, v)
    condition = attr_eq(left, right, **({"names": names_of} if names_of else {}))
    assert bool(names(graph(make), op.Exp(left) + right, where=condition)) is is_match


def test_equal_attributes_where_operators_stand_in_alternatives() -> None:
    """Those that the first pattern has in a match must be in the other one, too."""
    either = [op.LeakyReLU(leaf) | op.Exp(leaf) for leaf in (w, v)]

    def found(*ops: str) -> bool:
        view = graph(lambda b: b.call("subtract", *[b.call(name, b.input("x", 4)) for name in ops]))
        return bool(names(view, op.Subtract(*either), where=attr_eq(*either)))

    assert found("nn.leaky_relu", "nn.leaky_relu")
    assert found("exp", "exp")
    assert not found("nn.leaky_relu", "exp")


def test_attributes_are_those_of_the_operator_and_no_others() -> None:
    view = graph(lambda b: b.call("nn.relu", b.input("x", 4)))
    call = pat.Call(pat.AnyOp(), w)
    assert names(view, call, where=call.ndim >= 0) == [("relu",)]
    assert names(view, call, where=call.index >= 0) == []  # which the nodes of a view have


def test_nodes_that_may_be_skipped_stand_between_a_tuple_and_its_fields_too() -> None:
    def make(b: Builder) -> Node:
        left = b.call("transpose", b.call("nn.relu", b.input("x", 4, 4)), axes=(1, 0))
        return b.call("concatenate", b.tuple(left, b.call("tanh", b.input("y", 4, 4))), axis=0)

    joined = op.Concatenate(pat.Tuple(op.ReLU(w), op.Tanh(v)), axis=0)
    assert names(graph(make), joined, fuzzy=("transpose",)) == [("concatenate",)]
    assert names(graph(make), joined) == []


def test_a_node_without_operands_that_may_be_skipped() -> None:
    def made() -> None: ...

    view = graph(lambda b: b.call("nn.relu", b.call(made)))
    assert names(view, op.ReLU(op.Tanh(w)), fuzzy=(made,)) == []


def test_nodes_that_may_be_skipped_stand_between_a_field_and_its_tuple_too() -> None:
    def barrier(value: Any) -> Any:
        return value

    def make(b: Builder) -> Node:
        both = b.call(barrier, b.tuple(b.input("x", 4), b.input("y", 4)))
        both.type = both.operands[0].type
        return b.get(both, 0)

    assert names(graph(make), pat.GetItem(pat.Tuple(w, v), 0), fuzzy=(barrier,)) == [("get",)]


def test_alternatives_that_share_an_operand() -> None:
    x = pat.Wildcard()
    outputs = [op.ReLU(x) | op.Tanh(x), op.Sigmoid(x) | op.Exp(x)]
    view = graph(lambda b: [b.call("tanh", x := b.input("x", 4)), b.call("exp", x)])
    assert names(view, outputs) == [("tanh", "exp")]


def test_an_output_that_only_one_alternative_holds() -> None:
    x = pat.Wildcard()
    relu = op.ReLU(x)
    outputs = [relu | op.Tanh(x), relu]
    view = graph(lambda b: [b.call("tanh", x := b.input("x", 4)), b.call("nn.relu", x)])
    assert set(names(view, outputs)) == {("tanh", "relu"), ("relu", "relu")}


@pytest.mark.parametrize(
    ("wanted", "literal", "is_match"),
    [
        (0.1, tensor(0.1), True),
        (0.1, 0.1, True),
        (0.1, full((2, 3), 0.1), True),
        (0.1, tensor([0.1, 0.2]), False),
        (2, 2.0, True),
        (2.0, 2, True),
        (2, full((3,), 2), True),
        (2.5, full((3,), 2), False),
        (300, full((3,), 44, "uint8"), False),
        (True, 1, False),
        (1, True, False),
        (True, True, True),
        (True, tensor([True, True]), True),
        (1, tensor([True]), False),
        (True, tensor([1]), False),
        (float("-inf"), full((3,), float("-inf")), True),
        (float("nan"), full((3,), float("nan")), False),
        ([1.0, 2.0], tensor([1.0, 2.0]), True),
        ([1.0, 2.0], tensor([1.0, 3.0]), False),
        ([1.0], tensor([1.0, 1.0]), False),
        (0.1, full((2,), 0.1, "float16"), True),
        (2 + 0j, full((2,), 2.0), False),
        (tensor(2.0), 2, True),
        (tensor(3.0), 2, False),
        (tensor([2.0]), 2, False),
        (tensor(2.0), full((2,), 2.0), False),
        ([2.0, 2.0], full((2, 2), 2.0), False),
        (None, full((2,), 1.0), True),
        (None, 3, True),
    ],
)
def test_literals(wanted: Any, literal: Any, is_match: bool) -> None:
    view = graph(lambda b: b.const(literal))
    assert bool(names(view, pat.Const(wanted))) is is_match


@pytest.mark.parametrize(
    ("dtype", "name", "wanted", "is_match"),
    [
        ("float32", "multiply", 1.41421356, True),
        ("float16", "multiply", 1.41421356, True),
        ("float32", "multiply", 1.414214, False),
        ("float64", "multiply", 1.41421356, False),
        ("float64", "multiply", math.sqrt(2), True),
        ("float32", "full", 1.41421356, False),
    ],
)
def test_a_float_of_the_graph_that_is_used_in_single_precision(
    dtype: str, name: str, wanted: float, is_match: bool
) -> None:
    def make(b: Builder) -> Node:
        if name == "full":
            return b.call("full", math.sqrt(2), shape=(4,), dtype=dtype)
        return b.call(name, b.input("x", 4, dtype=dtype), math.sqrt(2))

    assert bool(names(graph(make), pat.Const(wanted))) is is_match


@pytest.mark.parametrize(("wanted", "actual"), [(1e300, 1e301), (1e-60, 1e-70)])
def test_floats_that_single_precision_lacks(wanted: float, actual: float) -> None:
    view = graph(lambda b: b.call("multiply", b.input("x", 4), actual))
    assert names(view, pat.Const(wanted)) == []
    assert names(view, pat.Const(actual)) == [("const",)]


def test_a_float_of_the_graph_whose_use_is_not_known() -> None:
    opaque = graph(lambda b: b.call(first_part, b.input("x", 4), 1.41421356))
    untyped = graph(lambda b: b.call("multiply", b.input("x", 4), 1.41421356))
    untyped.outputs[0].type = None
    assert names(opaque, pat.Const(math.sqrt(2))) == names(untyped, pat.Const(math.sqrt(2))) == []


@pytest.mark.parametrize(
    ("shape", "literal", "is_match"),
    [
        ((3, 4), (3, 1), True), ((3, 4), (4,), True), ((1, 4), (1, 1), True),
        ((1, 4), (3, 1), False), ((4,), (1, 4), False), ((), (1,), False),
    ],
)  # fmt: skip
def test_a_tensor_that_broadcasts_others_is_no_number(
    shape: tuple[int, ...], literal: tuple[int, ...], is_match: bool
) -> None:
    """A sum over its axes would be the sum of more elements."""
    x = pat.Wildcard()
    for wanted in (2.0, pat.Const(attr.Len(x.shape[:0]) + 2.0)):
        view = graph(lambda b: b.call("multiply", b.input("x", *shape), b.const(full(literal, 2.0))))
        assert bool(names(view, x * wanted)) is is_match
    chosen = graph(lambda b: b.call("where", b.input("c", 3, 1), b.input("x", 1, 4), b.const(full((3, 4), 2.0))))
    assert names(chosen, op.Where(pat.Wildcard(), x, 2.0))


@pytest.mark.torch
def test_a_literal_of_a_type_that_numpy_lacks() -> None:
    import torch

    view = graph(lambda b: b.const(torch.ones(2, dtype=torch.bfloat16)))
    assert names(view, pat.Const(1))
    assert not names(view, pat.Const(2))


def test_a_literal_that_is_an_expression() -> None:
    x = pat.Wildcard()
    for literal, expected in ((4, [("multiply",)]), (full((1,), 4.0), [("multiply",)]), (3, [])):
        view = graph(lambda b: b.call("multiply", b.input("x", 4), b.const(literal)))  # noqa: B023
        assert names(view, x * pat.Const(x.shape[0])) == expected
    view = graph(lambda b: b.call("multiply", b.input("x", 4), tensor([4.0] * 4)))
    assert names(view, x * pat.Const(x.shape)) == []
    view = graph(lambda b: b.call("multiply", b.input("x", 2), 1.41421356))
    assert names(view, x * pat.Const(x.shape[0] ** 0.5)) == [("multiply",)]


# Tuples of any length.

item, index = pat.Wildcard(), attr.Symbol()


def concatenated(number: int) -> Callable[[Builder], Node]:
    """A tuple of the leaky_relu of x with alpha 0, 1, … 8, 0, …, as the only field of another tuple."""

    def make(b: Builder) -> Node:
        x = b.input("x", 4)
        return b.tuple(b.tuple(*[b.call("nn.leaky_relu", x, alpha=float(i % 9)) for i in range(number)]))

    return make


@pytest.mark.parametrize("number", [0, 1, 2, 1000])
def test_a_variadic_tuple(number: int) -> None:
    template = op.LeakyReLU(item)
    every = pat.Variadic(template, templates=[template, item])
    match = first(graph(concatenated(number)), pat.Tuple(every))
    assert match.length(every) == number
    assert [node.attrs["alpha"] for node in match.instances(every, template)] == [i % 9 for i in range(number)]
    assert {node.name for node in match.instances(every, item)} <= {"x"}


def shared_by_all(kind: type[pat.Variadic] = pat.Variadic) -> pat.Variadic:
    template = op.LeakyReLU(item)
    return kind(template, templates=[template])


def by_index(step: int) -> Pattern:
    template = op.LeakyReLU(item, alpha=index * step)
    return pat.Variadic(template, templates=[template, item], index=index)


def with_first(alpha: float) -> Pattern:
    head, template = op.LeakyReLU(item, alpha=alpha), op.LeakyReLU(item)
    return pat.Variadic(template, templates=[template], first=[head])


def with_own_first(alpha: float) -> Pattern:
    head, template = op.LeakyReLU(start := pat.Wildcard(), alpha=alpha), op.LeakyReLU(item)
    return pat.Variadic(template, templates=[template, item], first=[head, start])


def with_length(length: Any, least: int = 0, most: int | None = None) -> Pattern:
    template = op.LeakyReLU(item)
    return pat.Variadic(template, templates=[template, item], length=length, min_len=least, max_len=most)


@pytest.mark.parametrize(
    ("source", "is_match"),
    [
        pytest.param(shared_by_all(), True, id="shared operand"),
        pytest.param(by_index(1), True, id="guard with the index"),
        pytest.param(by_index(2), False, id="guard with the index, wrong"),
        pytest.param(with_first(0.0), True, id="first"),
        pytest.param(with_first(1.0), False, id="first, wrong"),
        pytest.param(with_own_first(0.0), True, id="first with leaves of its own"),
        pytest.param(with_own_first(1.0), False, id="first with leaves of its own, wrong"),
        pytest.param(with_length(3), True, id="length"),
        pytest.param(with_length(4), False, id="length, wrong"),
        pytest.param(with_length(None, 3), True, id="min_len"),
        pytest.param(with_length(None, 4), False, id="min_len, too few"),
        pytest.param(with_length(None, 0, 3), True, id="max_len"),
        pytest.param(with_length(None, 0, 2), False, id="max_len, too many"),
    ],
)
def test_conditions_on_a_variadic(source: Pattern, is_match: bool) -> None:
    assert bool(names(graph(concatenated(3)), pat.Tuple(source))) is is_match


@pytest.mark.parametrize(("alphas", "is_match"), [((1.0, 1.0), True), ((0.0, 1.0), False), ((1.0, 0.0), False)])
def test_an_attribute_of_every_instance_is_checked(alphas: tuple[float, ...], is_match: bool) -> None:
    template = op.LeakyReLU(item, alpha=item.ndim)
    every = pat.Variadic(template, templates=[template, item])
    view = graph(lambda b: b.tuple(b.tuple(*[b.call("nn.leaky_relu", b.input("x", 4), alpha=a) for a in alphas])))
    assert bool(names(view, pat.Tuple(every))) is is_match


@pytest.mark.parametrize(
    ("whole", "fields", "number"),
    [
        (shared_by_all(), 0, 1),
        (pat.Tuple(w, pat.Segment()), 1, 1),
        (pat.Tuple(pat.Segment(min_len=2)), 1, 0),
        (pat.Tuple(pat.Segment(max_len=2)), 2, 1),
        (pat.Tuple(pat.Segment(max_len=2)), 3, 0),
        (pat.Tuple(pat.Segment(), w), 0, 0),
        (pat.Tuple(pat.Segment(), w), 3, 1),
        (pat.Tuple(pat.Segment(), w, pat.Segment()), 3, 3),
        (pat.Tuple(pat.Segment(min_len=1), pat.Segment(min_len=1)), 4, 3),
        (pat.Tuple(pat.Segment(length=1), pat.Segment()), 3, 1),
        (pat.Tuple(pat.Segment(length=1)) | w, 3, 1),
        (pat.Tuple(shared_by_all(pat.Segment)), 2, 1),
        (pat.Tuple(shared_by_all(pat.Segment), w), 1, 1),
        (pat.Tuple(shared_by_all(pat.Segment), shared_by_all(pat.Segment)), 2, 3),
    ],
)
def test_ways_to_divide_the_fields_of_a_tuple(whole: Pattern, fields: int, number: int) -> None:
    assert len(names(graph(concatenated(fields)), pat.Tuple(whole))) == number


def test_instances_with_different_operands_are_not_shared() -> None:
    view = graph(lambda b: b.tuple(b.tuple(b.call("nn.relu", b.input("x", 4)), b.call("nn.relu", b.input("y", 4)))))
    template = op.ReLU(item)
    assert names(view, pat.Tuple(pat.Variadic(template, templates=[template, item])))
    assert not names(view, pat.Tuple(pat.Variadic(template, templates=[template])))


@pytest.mark.parametrize("kind", [pat.Variadic, pat.Segment])
def test_instances_have_operators_of_their_own(kind: type[pat.Variadic]) -> None:
    both = op.Add(w, v)
    every = kind(both, templates=[both, w, v])
    whole = pat.Tuple(every if kind is pat.Variadic else pat.Tuple(every))

    def sums(b: Builder, number: int) -> list[Node]:
        x, y = b.input("x", 4), b.input("y", 4)
        return [b.call("add", x, y) for _ in range(number)]

    assert len(names(graph(lambda b: b.tuple(b.tuple(*sums(b, 2)))), whole)) == 4  # each in either order
    assert names(graph(lambda b: b.tuple(b.tuple(*sums(b, 1) * 2))), whole) == []


def test_a_guard_of_a_template_may_refer_to_what_is_bound_later() -> None:
    last = op.Tanh(pat.Wildcard())
    template = op.LeakyReLU(item, alpha=last.shape[0] - 4)

    def make(b: Builder) -> Node:
        x = b.input("x", 4)
        y = b.tuple(b.call("nn.leaky_relu", x, alpha=0.0), b.call("nn.leaky_relu", x, alpha=0.0))
        return b.call("subtract", b.call("concatenate", y, axis=0), b.call("tanh", b.input("y", 8)))

    every = pat.Variadic(template, templates=[template])
    assert not names(graph(make), op.Concatenate(every) - last)
    last = op.Tanh(pat.Wildcard())
    template = op.LeakyReLU(item, alpha=last.shape[0] - 8)
    every = pat.Variadic(template, templates=[template])
    assert names(graph(make), op.Concatenate(every) - last)


def test_a_guard_on_what_an_empty_variadic_does_not_bind_fails() -> None:
    shared = op.ReLU(pat.Wildcard())
    template = op.Tanh(shared)
    every = pat.Variadic(template, templates=[template])
    view = graph(lambda b: b.call("nn.leaky_relu", b.get(b.tuple(b.tuple(), b.input("x", 4)), 1), alpha=1.0))
    whole = op.LeakyReLU(pat.Tuple(every, pat.Wildcard())[1], alpha=shared.ndim)
    assert not names(view, whole)


def test_a_template_is_used_inside_its_variadic_only() -> None:
    template = op.ReLU(pat.Wildcard())
    every = pat.Variadic(template, templates=[template])
    with pytest.raises(PatternError, match="is a template, of which there are many"):
        Plan([pat.Tuple(every, op.Tanh(template))])
    with pytest.raises(PatternError, match="is a template, of which there are many"):
        Plan([every], where=[(template.ndim == 1).ast])


# Groups: a variadic as the output.


def heads(*names: str) -> Callable[[Builder], list[Node]]:
    """Some unary operators of one input, of which ``wide`` ones have another shape."""

    def make(b: Builder) -> list[Node]:
        x = b.input("x", 4, 4)
        return [b.call("nn.dense", x, b.param(f"w_{name}", int(name[1:]), 4)) for name in names]

    return make


def test_a_group_takes_all_instances_in_graph_order() -> None:
    x, weight = pat.Wildcard(), pat.Param()
    dense = op.Dense(x, weight)
    group = pat.Variadic(dense, templates=[dense, weight], min_len=2)
    assert names(graph(heads("a4", "b4", "c4")), group) == [("dense", "dense_1", "dense_2")]
    assert names(graph(heads("a4")), group) == []


def test_guards_of_a_group_relative_to_the_first() -> None:
    x, weight, head = pat.Wildcard(), pat.Param(), pat.Param()
    leader = op.Dense(x, head)
    follower = op.Dense(x, weight, shape=leader.shape)
    group = pat.Variadic(follower, templates=[follower, weight], first=[leader, head], min_len=2)
    view = graph(heads("a4", "b8", "c4", "d8", "e3"))
    assert names(view, group) == [("dense", "dense_2"), ("dense_1", "dense_3")]


def test_a_group_through_several_levels() -> None:
    x, weight, bias = pat.Wildcard(), pat.Param(), pat.Param()
    dense = op.Dense(x, weight)
    biased = op.BiasAdd(dense, bias)

    def make(b: Builder) -> list[Node]:
        x = b.input("x", 4, 4)
        made = [b.call("nn.dense", x, b.param(f"w{i}", 4, 4)) for i in range(4)]
        return [b.call("nn.bias_add", node, b.param("b", 4)) for node in made[:3]] + made[3:]

    group = pat.Variadic(biased, templates=[biased, dense, weight, bias])
    assert names(graph(make), group) == [("bias_add", "bias_add_1", "bias_add_2")]


def test_a_group_that_is_used_by_its_outputs_only() -> None:
    inner = op.Exp(w)
    outer = op.ReLU(inner)
    group = pat.Variadic(outer, templates=[outer, inner])

    def make(b: Builder, *more: int) -> list[Node]:
        made = [b.call("exp", b.nodes[0] if b.nodes else b.input("x", 4)) for _ in range(2)]
        return [*[b.call("nn.relu", each) for each in made], *[made[number] for number in more]]

    assert names(graph(make), group, extern_use=False) == [("relu", "relu_1")]
    assert names(graph(lambda b: make(b, 1)), group, extern_use=False) == []


def test_members_of_a_group_have_operators_of_their_own() -> None:
    inner = op.Exp(w)
    outer = op.ReLU(inner)
    group = pat.Variadic(outer, templates=[outer, inner])

    def make(b: Builder) -> list[Node]:
        x = b.input("x", 4)
        one, two = b.call("exp", x), b.call("exp", x)
        return [b.call("nn.relu", each) for each in (one, two, two, one)]

    assert names(graph(make), group) == [("relu", "relu_1"), ("relu_2", "relu_3")]


# Depth, anchors, and what a search costs.


def test_a_chain_of_ten_thousand() -> None:
    def make(b: Builder) -> Node:
        nodes = [Node("input", (), {}, b.input("x", 4).type, name="x")]
        for number in range(10_000):
            nodes.append(Node("nn.relu", (nodes[-1],), {}, nodes[0].type, name=f"r{number}"))
        b.nodes = nodes
        return nodes[-1]

    view = graph(make)
    pattern: Pattern = pat.Input()
    for _ in range(10_000):
        pattern = op.ReLU(pattern)
    plan = Plan([pattern])
    search = MatchSearch(plan, view.outputs)
    assert [match[pattern].name for match in plan.start(pattern).matches(view.outputs[0], search)] == ["r9999"]
    assert search.steps <= 10_010


def many(number: int, rare: int) -> Graph:
    return graph(
        lambda b: [
            x := b.input("x", 4),
            *[b.call("nn.relu", x) for _ in range(number)],
            *[b.call("tanh", b.call("nn.relu", x)) for _ in range(rare)],
        ]
    )


def test_the_search_starts_at_the_rarest_operator() -> None:
    source = op.Tanh(op.ReLU(pat.Wildcard()))
    (found,) = candidates([Plan([source])], many(5, 2).by_op())
    assert found.start.anchor is source
    assert len(found.nodes) == 2


def test_a_rule_whose_operator_does_not_occur_costs_nothing() -> None:
    plan = Plan([op.Sigmoid(op.ReLU(pat.Wildcard()))])
    search = MatchSearch(plan, ())
    assert list(plan.matches(many(50, 2), search=search)) == []
    assert search.steps == 0


def test_five_outputs_over_twelve_equal_calls() -> None:
    x = pat.Wildcard()
    plan = Plan([op.ReLU(x) for _ in range(5)])
    view = graph(lambda b: [b.call("nn.relu", b.input("x", 4) if not b.nodes else b.nodes[0]) for _ in range(12)])
    search = MatchSearch(plan, view.outputs)
    match = next(plan.matches(view, search=search))
    assert len(set(match.outputs)) == 5
    assert search.steps < 40


@pytest.mark.parametrize("number", [500, 2000])
def test_many_users_of_one_node_cost_linear_time(number: int) -> None:
    x = pat.Wildcard()
    plan = Plan([op.ReLU(x), op.Tanh(x)])
    view = graph(lambda b: [b.call("tanh", b.input("x", 4)), *[b.call("nn.relu", b.nodes[0]) for _ in range(number)]])
    search = MatchSearch(plan, view.outputs)
    assert len(list(plan.matches(view, search=search))) == number
    assert search.steps < 5 * number
