"""The checklist of the first GSL, section 3: patterns. Tests are named after the trials that showed a fault there."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from gsl import Subst, attr, op, pat
from gsl.errors import PatternError
from gsl.graph import Node
from tests.helpers.firing import Make, fire, ops
from tests.helpers.graphs import Builder, graph
from tests.helpers.tensors import full, tensor

X, Y, Z = pat.Wildcard(), pat.Wildcard(), pat.Wildcard()


def matches(source: pat.Pattern | Sequence[pat.Pattern], make: Make, **options: Any) -> int:
    """How often a source matches."""
    outputs = list(source) if isinstance(source, (list, tuple)) else [source]
    target = [op.Zeros(shape=(1,), dtype="float32") for _ in outputs]
    return len(list(Subst(outputs, target, **options).match(graph(make))))


# Identity


def test_the_same_object_is_the_same_node() -> None:
    relu = op.ReLU(X)
    assert matches(relu + relu, lambda b: (lambda r: b.call("add", r, r))(b.call("nn.relu", b.input("x", 2)))) == 1
    assert matches(relu + relu, two_relus) == 0


def two_relus(b: Builder) -> Node:
    x = b.input("x", 2)
    return b.call("add", b.call("nn.relu", x), b.call("nn.relu", x))


def test_injective_same() -> None:
    """f(a) · f(b) finds f(x) · f(x): leaves may coincide, different operators are different nodes."""
    assert matches(op.ReLU(X) + op.ReLU(Y), two_relus) == 2  # either order
    assert matches(op.ReLU(X) + op.ReLU(X), two_relus) == 2
    assert matches(op.ReLU(X) + op.ReLU(Y), two_relus, distinct=True) == 0
    assert matches(op.ReLU(X) + op.ReLU(pat.Wildcard(distinct=True)), two_relus) == 0
    one = lambda b: (lambda r: b.call("add", r, r))(b.call("nn.relu", b.input("x", 2)))  # noqa: E731
    assert matches(op.ReLU(X) + op.ReLU(Y), one) == 0


def test_noninjective_rollback() -> None:
    """A leaf that was bound again on the way to a failure keeps its first binding."""
    source = pat.Call("subtract", X + 1.0, (op.Exp(X) + Y) | (op.Tanh(X) + Y))

    def make(b: Builder) -> Node:
        x = b.input("x", 2)
        return b.call(
            "subtract", b.call("add", x, 1.0), b.call("add", b.call("tanh", x), b.call("exp", b.input("y", 2)))
        )

    assert matches(source, make) == 1


def test_structurally_equal_but_distinct_nodes_are_distinct() -> None:
    relu = op.ReLU(X)

    def make(b: Builder) -> Node:
        x = b.input("x", 2)
        return b.call("multiply", b.call("tanh", b.call("nn.relu", x)), b.call("nn.relu", x))

    assert matches(op.Tanh(relu) * relu, make) == 0


# Operators of Python, literals


def test_operators_of_python() -> None:
    def make(b: Builder) -> Node:
        x, y = b.input("x", 2, 2), b.input("y", 2, 2)
        difference = b.call("subtract", b.call("multiply", x, y), b.call("divide", x, y))
        return b.call("negative", b.call("matmul", b.call("add", difference, x), y))

    assert matches(-((X * Y - X / Y + X) @ Y), make) == 1
    assert matches(-((X * Y - Y / X + X) @ Y), make) == 0


def test_conv_mul_swapped() -> None:
    """Operands of commutative operators match in either order, and of others in the written one."""
    conv = op.Conv2D(X, Y)
    for order in (0, 1):
        fires = Subst(conv * Z, conv.like(X, Y * Z))

        def make(b: Builder, order: int = order) -> Node:
            c = b.call("nn.conv2d", b.input("x", 1, 2, 4, 4), b.param("w", 3, 2, 1, 1))
            k = b.const(2.0)
            return b.call("multiply", *((c, k) if order else (k, c)))

        fire(fires, make, times=1)
    assert (
        matches(op.ReLU(X) - Y, lambda b: b.call("subtract", b.input("y", 2), b.call("nn.relu", b.input("x", 2)))) == 0
    )


def test_a_list_and_an_array_are_constants() -> None:
    def make(b: Builder) -> Node:
        return b.call("add", b.input("x", 2), b.const(tensor([1.0, 2.0])))

    assert matches(X + [1.0, 2.0], make) == 1
    assert matches(X + tensor([1.0, 2.0]), make) == 1
    assert matches(X + [1.0, 3.0], make) == 0
    assert matches(X + [1.0], make) == 0


# Leaves


def leaves(b: Builder) -> Node:
    return b.call("add", b.input("x", 2, 3), b.call("multiply", b.param("w", 3), b.const(full((3,), 1.0))))


@pytest.mark.parametrize(
    ("leaf", "count"),
    [
        (X & X, 5), (pat.Wildcard(shape=(3,)), 3), (pat.Wildcard(ndim=2), 2), (pat.Wildcard(dtype="float16"), 0),
        (pat.Variable(), 2), (pat.Variable(shape=(None,)), 1), (pat.Variable(shape=(2, None), dtype="float32"), 1),
        (pat.Input(), 1), (pat.Param(), 1), (pat.Const(), 1), (pat.Variable() | pat.Const(), 3), (pat.Const(1), 1),
        (pat.Const(1, dtype="float16"), 0), (~pat.Variable(), 3),
    ],
)  # fmt: skip
def test_leaves(leaf: pat.Pattern, count: int) -> None:
    """var_matches_input, const_weights: a Variable is an input or a weight; Param and Input are only the one."""
    assert matches(leaf, leaves) == count


@pytest.mark.parametrize(
    ("constant", "actual", "fires"),
    [
        (pat.Const(0.1), tensor(0.1), 1),
        (pat.Const(0.1), 0.1, 1),
        (pat.Const(0.1), full((2, 2), 0.1), 1),
        (pat.Const(0.1), tensor([0.1, 0.2]), 0),
        (pat.Const(0.1), tensor(0.1, "float16"), 1),
        (pat.Const(0.1, dtype="float32"), tensor(0.1), 1),
        (pat.Const(0.1, dtype="float16"), tensor(0.1), 0),
        (pat.Const(1), tensor(1), 1),
        (pat.Const(1), True, 0),
        (pat.Const(True), 1, 0),
        (pat.Const(True), True, 1),
        (pat.Const(0.5), tensor(0), 0),
        (pat.Const([1, 2]), tensor([1.0, 2.0]), 1),
        (pat.Const(X.shape[0]), 2, 1),
        (pat.Const(X.shape[0]), tensor(2.0), 1),
        (pat.Const(X.shape[0]), full((2,), 2.0), 1),
        (pat.Const(X.shape[0]), 3, 0),
        (pat.Const(), 3, 1),
    ],
)
def test_const_match(constant: pat.Const, actual: Any, fires: int) -> None:
    assert matches(op.Maximum(X, constant), lambda b: b.call("maximum", b.input("x", 2, 2), b.const(actual))) == fires


def test_a_new_constant_keeps_its_dtype() -> None:
    rule = Subst(op.ReLU(X), op.Maximum(X, pat.Const(0.0, dtype=X.dtype)))
    for dtype in ("float32", "float64", "float16"):
        new = fire(rule, lambda b, dtype=dtype: b.call("nn.relu", b.input("x", 2, dtype=dtype)), times=1, same=False)
        assert new.outputs[0].operands[1].dtype == dtype
    computed = Subst(op.ReLU(X), op.Maximum(X, X.shape[0] - 2))
    assert fire(computed, relu, times=1).outputs[0].operands[1].attrs["value"] == 0


def relu(b: Builder) -> Node:
    return b.call("nn.relu", b.input("x", 2))


# Operators and classes of them


@pytest.mark.torch
def test_a_native_function_is_an_operator() -> None:
    import torch

    rule = Subst(pat.Call(torch.sinc, X), op.Sin(X))
    new = fire(rule, lambda b: b.call(torch.sinc, b.input("x", 2)), times=1, same=False)
    assert ops(new) == ["sin"]


def test_an_operator_with_a_trait_is_the_same_in_source_and_target() -> None:
    unary = pat.OpWithTrait("activation")
    rule = Subst(pat.Call("transpose", pat.Call(unary, X), axes=(1, 0)),
                 pat.Call(unary, op.Transpose(X, axes=(1, 0))))  # fmt: skip
    make = lambda b: b.call("transpose", b.call("tanh", b.input("x", 2, 3)), axes=(1, 0))  # noqa: E731
    assert ops(fire(rule, make, times=1)) == ["transpose", "tanh"]
    pair = pat.Call(unary, X) + pat.Call(unary, Y)
    assert matches(pair, two_relus) == 2
    assert (
        matches(pair, lambda b: (lambda x: b.call("add", b.call("nn.relu", x), b.call("tanh", x)))(b.input("x", 2)))
        == 0
    )


def test_attr_missing_on_op() -> None:
    """An attribute that only some operators of a class have is no match for the others, and no error."""
    unary = pat.Call(pat.OneOf("nn.leaky_relu", "nn.relu"), X)
    assert matches(pat.Call(unary.op, X, alpha=0.1), relu) == 0
    assert matches(unary, relu, where=unary.alpha == 0.1) == 0
    assert matches(unary, lambda b: b.call("nn.leaky_relu", b.input("x", 2), alpha=0.1), where=unary.alpha == 0.1) == 1


def test_attr_typo_on_trait() -> None:
    with pytest.raises(PatternError, match=r"'alfa'.*'alpha'"):
        pat.Call(pat.OpWithTrait("activation"), X, alfa=0.1)


def test_an_alternative_of_operators_is_a_class() -> None:
    pool = pat.Call(pat.OneOf("nn.relu", "tanh"), X)
    assert [matches(pool, lambda b, f=f: b.call(f, b.input("x", 2))) for f in ("nn.relu", "tanh", "exp")] == [1, 1, 0]


def test_free_attributes_of_a_target_are_not_reset() -> None:
    """What source and target leave out may not change: padding stays, or the match is refused."""
    conv = op.Conv2D(X, Y, strides=(1, 1))
    with pytest.warns(UserWarning, match="'padding'"):
        rule = Subst(op.ReLU(conv), op.ReLU(op.Conv2D(X, Y, strides=(1, 1)) + 0.0))
    for padding, fires in [((0, 0, 0, 0), 1), ((1, 1, 1, 1), 0)]:
        fire(rule, lambda b, padding=padding: b.call("nn.relu", b.call("nn.conv2d", b.input("x", 1, 2, 4, 4),
             b.param("w", 3, 2, 3, 3), padding=padding)), times=fires)  # fmt: skip


def test_same_attr() -> None:
    first = op.Conv2D(X, Y)
    second = op.Conv2D(X, Z, **pat.same_attr(first, ["strides", "padding"]))
    for stride, count in [((1, 1), 2), ((2, 2), 0)]:

        def make(b: Builder, stride: tuple[int, int] = stride) -> list[Node]:
            x = b.input("x", 1, 2, 4, 4)
            strides = [(1, 1), stride]
            return [b.call("nn.conv2d", x, b.param("w", 3, 2, 1, 1), strides=s) for s in strides]

        assert matches([first, second], make) == count


# Tuples and fields


def halves(b: Builder) -> Node:
    split = b.call("split", b.input("x", 4), indices_or_sections=2, axis=0)
    return b.call("concatenate", b.tuple(b.get(split, 0), b.get(split, 1)), axis=0)


def test_tuples_and_fields() -> None:
    split = op.Split(X, indices_or_sections=2)
    assert matches(op.Concatenate([split[0], split[1]]), halves) == 1
    assert matches(op.Concatenate([split[1], split[0]]), halves) == 0
    assert matches(op.Concatenate([split[0], split[1], X]), halves) == 0
    field = pat.GetItem(split)
    assert matches(field, halves) == 2
    assert matches(field, halves, where=field.index == 1) == 1
    index = 1 - field.index
    assert matches([field, pat.GetItem(split, index)], halves) == 2


def test_index_source_call() -> None:
    """A field of a matched call, in the target."""
    split = op.Split(X, indices_or_sections=2, axis=0)
    rule = Subst(op.Concatenate([split[0], split[1]], axis=0), op.Concatenate([split[0], split[1]], axis=0) + 0.0)
    assert ops(fire(rule, halves, times=1)) == ["split", "concatenate", "add"]
    new = fire(
        Subst(op.Concatenate([split[0], split[1]], axis=0), split[1]), lambda b: b.call("nn.relu", halves(b)), times=0
    )
    assert ops(new) == ["split", "concatenate", "nn.relu"]
    swap = Subst(op.Concatenate([split[0], split[1]], axis=0), op.Concatenate([split[1], split[0]], axis=0))
    assert ops(fire(swap, halves, times=1, same=False)) == ["split", "concatenate"]


def test_a_field_of_a_new_call() -> None:
    old = op.Split(X, indices_or_sections=2, axis=0)
    new = op.Split(op.ReLU(X), indices_or_sections=2, axis=0)
    rule = Subst([op.ReLU(old[0]), op.ReLU(old[1])], [new[0], new[1]])

    def make(b: Builder) -> list[Node]:
        split = b.call("split", b.input("x", 4), indices_or_sections=2, axis=0)
        return [b.call("nn.relu", b.get(split, 0)), b.call("nn.relu", b.get(split, 1))]

    assert ops(fire(rule, make, times=1)) == ["nn.relu", "split"]


# Conditions and alternatives


def test_a_condition_chooses_the_target_or_leaves_the_source() -> None:
    mean = op.Mean(X, axis=0, exclude=False)
    rule = Subst(
        mean, pat.Cond(X.ndim == 1, op.Mean(op.Reshape(X, newshape=(2, 2)), axis=(0, 1), keepdims=False), mean)
    )
    for ndim, fires in [(1, 1), (2, 0)]:
        fire(rule, lambda b, ndim=ndim: b.call("mean", b.input("x", *[4] * ndim), axis=0), times=fires)


def test_an_alternative_backtracks() -> None:
    source = op.Tanh((X + Y) | (Y + X)) + op.Exp(X)
    make = lambda b: (lambda x, y: b.call("add", b.call("tanh", b.call("add", y, x)), b.call("exp", x)))(  # noqa: E731
        b.input("x", 2), b.input("y", 2))  # fmt: skip
    assert matches(source, make) >= 1

    def other(b: Builder) -> Node:
        x, y = b.input("x", 2), b.input("y", 2)
        return b.call("add", b.call("tanh", b.call("subtract", y, x)), b.call("exp", x))

    assert matches(op.Tanh((X - Y) | (Z - X)) + op.Exp(X), other) == 1


def test_alternatives_in_a_source_of_several_outputs() -> None:
    base = op.ReLU(X) | op.Tanh(X)
    assert matches([op.Exp(base), op.Sin(base)], lambda b: (lambda r: [b.call("exp", r), b.call("sin", r)])(
        b.call("tanh", b.input("x", 2)))) == 1  # fmt: skip


def test_alt_attr() -> None:
    """Attributes that all alternatives have can be read, others are an error of the rule."""
    either = op.Sum(X) | op.Mean(X)
    rule = Subst(
        op.ReLU(either), op.Reshape(op.ReLU(either), newshape=X.shape[: attr.Len(X.shape) - attr.Len(either.axis)])
    )
    fire(rule, lambda b: b.call("nn.relu", b.call("mean", b.input("x", 2, 3), axis=1)), times=1)
    with pytest.raises(PatternError, match="strides"):
        (op.Conv2D(X, Y) | op.ReLU(X)).strides


@pytest.mark.parametrize("index", [0, 1, 2])
def test_the_clause_of_the_alternative_that_matched(index: int) -> None:
    either = pat.Alt(op.Exp(X), op.Tanh(X), op.Sin(X))
    rule = Subst(
        op.ReLU(either), pat.Match(either, [op.ReLU(op.Exp(X)) + 0.0, op.Maximum(op.Tanh(X), 0.0), either * 0.0])
    )
    name = ("exp", "tanh", "sin")[index]
    new = fire(rule, lambda b: b.call("nn.relu", b.call(name, b.input("x", 2))), times=1, same=index < 2)
    assert ops(new) == [["exp", "nn.relu", "add"], ["tanh", "maximum"], ["sin", "multiply"]][index]


def test_nested_alt_rollback() -> None:
    """What an inner alternative bound is taken back when a later operand fails."""
    inner = op.ReLU(X) | op.Exp(X)
    source = (inner - op.Sin(X)) | (inner - op.Cos(X))
    make = lambda b: (lambda x: b.call("subtract", b.call("exp", x), b.call("cos", x)))(b.input("x", 2))  # noqa: E731
    assert matches(source, make) == 1


def test_lang_identity_zz() -> None:
    """x + 0 or x · 1, nested, with a later operand that fails."""
    identity = (X + 0.0) | (X * 1.0)
    rule = Subst(identity, X)
    for depth in (1, 2, 3):

        def make(b: Builder, depth: int = depth) -> Node:
            node = b.input("x", 2)
            for level in range(depth):
                node = b.call("add", node, 0.0) if level % 2 else b.call("multiply", 1.0, node)
            return b.call("nn.relu", node)

        assert ops(fire(rule, make, times=depth, iterative=True)) == ["nn.relu"]
    both = Subst(op.Tanh(identity) + op.Exp(X), X)

    def unrelated(b: Builder) -> Node:
        plus_zero = b.call("add", b.input("x", 2), 0.0)
        return b.call("add", b.call("tanh", plus_zero), b.call("exp", b.input("y", 2)))

    fire(both, unrelated, times=0)


def test_alternatives_that_fail_are_cheap() -> None:
    """Nested alternatives are rejected in time linear in their number, not exponential."""
    start = time.process_time()
    pattern: pat.Pattern = op.Sin(X)
    for _ in range(40):
        pattern = op.ReLU(pattern) | op.Tanh(pattern)

    def make(b: Builder) -> Node:
        node = b.call("cos", b.input("x", 2))
        for _ in range(40):
            node = b.call("nn.relu", node)
        return node

    assert matches(pattern, make) == 0
    assert time.process_time() - start < 3


# Variadics


def group_of(count: int) -> Callable[[Builder], Node]:
    def make(b: Builder) -> Node:
        x = b.input("x", 2)
        return b.call("concatenate", b.tuple(*[b.call("add", x, b.param("w", 2)) for _ in range(count)]), axis=0)

    return make


W = pat.Param()
FIELD = op.Add(X, W)
GROUP = pat.Variadic(FIELD, templates=[FIELD, W])
SOURCE = op.Concatenate(GROUP, axis=0)


def rebuilt(**options: Any) -> pat.Pattern:
    i = attr.Symbol()
    return op.Concatenate(pat.Variadic(op.Subtract(X, -GROUP(W, i)), index=i, **options), axis=0)


@pytest.mark.parametrize("count", [1, 2, 3, 20])
def test_a_variadic_inside_a_pattern(count: int) -> None:
    new = fire(Subst(SOURCE, rebuilt(length=GROUP.length)), group_of(count), times=1)
    assert ops(new).count("subtract") == count
    assert matches(SOURCE, group_of(count), where=GROUP.length == count) == 1


def test_templates_are_new_and_others_are_shared() -> None:
    def other(b: Builder) -> Node:
        adds = [b.call("add", b.input(f"x{i}", 2), b.param("w", 2)) for i in range(2)]
        return b.call("concatenate", b.tuple(*adds), axis=0)

    assert matches(SOURCE, other) == 0
    field = op.Add(X, W)
    assert matches(op.Concatenate(pat.Variadic(field, templates=[field, X, W]), axis=0), other) == 1


def test_first() -> None:
    """The first instance may be another pattern."""
    head, tail = op.ReLU(X), op.Tanh(X)
    group = pat.Variadic(tail, templates=[tail], first=[head])
    make = lambda names: lambda b: (lambda x: b.call("concatenate", b.tuple(*[b.call(n, x) for n in names]), axis=0))(  # noqa: E731
        b.input("x", 2))  # fmt: skip
    source = op.Concatenate(group, axis=0)
    assert [matches(source, make(names)) for names in (["nn.relu", "tanh", "tanh"], ["tanh", "tanh"], ["nn.relu"])] == [
        1,
        0,
        1,
    ]
    with pytest.raises(PatternError, match="can't contain the template"):
        pat.Variadic(tail, templates=[tail], first=[op.ReLU(tail)])


@pytest.mark.torch
def test_index_in_attributes_of_the_source() -> None:
    i = attr.Symbol()
    field = op.StridedSlice(X, begin=(i,), end=(i + 1,))
    source = op.Concatenate(pat.Variadic(field, templates=[field], index=i), axis=0)
    for starts, fires in [((0, 1, 2), 1), ((0, 2, 1), 0)]:

        def make(b: Builder, starts: tuple[int, ...] = starts) -> Node:
            x = b.input("x", 3)
            parts = [b.call("strided_slice", x, begin=(k,), end=(k + 1,)) for k in starts]
            return b.call("concatenate", b.tuple(*parts), axis=0)

        fire(Subst(source, X), make, times=fires)


def test_length_of_a_source_is_a_guard() -> None:
    field = op.Add(X, W)
    for length in (3, X.shape[0] + 1):
        source = op.Concatenate(pat.Variadic(field, templates=[field, W], length=length), axis=0)
        assert [matches(source, group_of(n)) for n in (2, 3, 4)] == [0, 1, 0]


def test_min_len_holds_inside_a_pattern_too() -> None:
    field = op.Add(X, W)
    source = op.Concatenate(pat.Variadic(field, templates=[field, W], min_len=3), axis=0)
    assert [matches(source, group_of(n)) for n in (2, 3, 4)] == [0, 1, 1]


def test_variadic_no_length() -> None:
    with pytest.raises(PatternError, match="needs length="):
        Subst(SOURCE, rebuilt())


@pytest.mark.torch
def test_getinst_op_attr() -> None:
    """Attributes of an instance are readable, those of its operator too."""
    field = op.Softmax(X)
    group = pat.Variadic(field, templates=[field])
    source = op.Concatenate(group, axis=0)
    i = attr.Symbol()
    target = op.Concatenate(
        pat.Variadic(op.Exp(op.LogSoftmax(X, axis=group(field, i).axis)), index=i, length=group.length), axis=0
    )
    make = lambda b: (lambda x: b.call("concatenate", b.tuple(b.call("nn.softmax", x, axis=0), b.call(  # noqa: E731
        "nn.softmax", x, axis=1)), axis=0))(b.input("x", 2, 2))  # fmt: skip
    fire(Subst(source, target), make, times=1)
    fire(Subst(source, target, where=group(field, 1).axis == group(field, 0).axis), make, times=0)
    fire(Subst(source, target, where=group(field, 0).shape == X.shape), make, times=1)


def test_every_instance_is_rebuilt_from_its_own() -> None:
    """What depends on the index only through the node that it is like, or whose type it reads."""
    field = op.Softmax(X)
    group = pat.Variadic(field, templates=[field])
    i = attr.Symbol()

    def make(b: Builder) -> Node:
        x = b.input("x", 2, 2)
        return b.call("concatenate", b.tuple(*[b.call("nn.softmax", x, axis=axis) for axis in (0, 1)]), axis=0)

    source = op.Concatenate(group, axis=0)
    parts = pat.Variadic(group(field, i).like(X), index=i, length=group.length)
    new = fire(Subst(source, op.Concatenate(parts, axis=0) + 0.0), make, times=1)
    assert [node.attrs["axis"] for node in new.nodes if node.op == "nn.softmax"] == [0, 1]
    sizes = attr.Variadic(lambda k: op.Exp(group(field, k)).shape[0] + k, 2)
    rule = Subst(source, op.Reshape(op.Concatenate([group(field, 0)] * 3, axis=0), newshape=sizes + (1,)))
    _, trace = rule.apply(graph(make))
    assert "found (2, 3, 1)" in str(trace)


def test_an_instance_stands_for_its_node() -> None:
    fire(Subst(op.ReLU(SOURCE), op.Concatenate([op.ReLU(GROUP(FIELD, 0)), op.ReLU(GROUP(FIELD, -1))], axis=0)),
         lambda b: b.call("nn.relu", group_of(2)(b)), times=1)  # fmt: skip


def test_variadic_single_twice() -> None:
    """A rule finds every occurrence, and can be used again."""
    rule = Subst(SOURCE, rebuilt(length=GROUP.length))

    def make(b: Builder) -> Node:
        x = b.input("x", 2)
        parts = [b.call("concatenate", b.tuple(*[b.call("add", x, b.param("w", 2)) for _ in range(n)]), axis=0)
                 for n in (3, 3)]  # fmt: skip
        return b.call("maximum", *parts)

    for _ in range(2):
        assert ops(fire(rule, make, times=2)).count("subtract") == 6


def test_dirty_after_exception() -> None:
    """A rule that failed once is as good as new."""
    fails = [True]

    def where(match: Any) -> bool:
        if fails.pop() if fails else False:
            raise RuntimeError("once")
        return True

    rule = Subst(SOURCE, rebuilt(length=GROUP.length), where=where)
    with pytest.raises(Exception, match="once"):
        rule(graph(group_of(2)))
    fire(rule, group_of(2), times=1)


def test_template_trait() -> None:
    """A call of a class of operators can be a template; all instances have the same operator."""
    unary = pat.Call(pat.OpWithTrait("activation"), X)
    source = op.Concatenate(pat.Variadic(unary, templates=[unary]), axis=0)
    make = lambda names: lambda b: (lambda x: b.call("concatenate", b.tuple(*[b.call(n, x) for n in names]), axis=0))(  # noqa: E731
        b.input("x", 2))  # fmt: skip
    assert matches(source, make(["tanh", "tanh"])) == 1
    assert matches(source, make(["tanh", "sigmoid"])) == 0
    target = op.Concatenate(pat.Variadic(pat.Call(unary.op, X), length=2), axis=0) + 0.0
    fire(Subst(source, target), make(["tanh", "tanh"]), times=1)


# Attributes of patterns, and what patterns are


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        (X, {"shape", "dtype", "ndim"}), (W, {"shape", "dtype", "ndim"}),
        (pat.Const(), {"shape", "dtype", "ndim", "value"}), (op.ReLU(X), {"shape", "dtype", "ndim"}),
        (op.Softmax(X), {"shape", "dtype", "ndim", "axis"}), (pat.GetItem(X), {"shape", "dtype", "ndim", "index"}),
        (GROUP, {"length"}), (GROUP(FIELD, 0), {"shape", "dtype", "ndim"}), (pat.Tuple(X), set()),
        (op.Softmax(X) | X, {"shape", "dtype", "ndim"}), (op.Softmax(X) & X, {"shape", "dtype", "ndim", "axis"}),
        (pat.Call(math.gcd, X), None), (pat.Call(pat.AnyOp(), X), None),
    ],
)  # fmt: skip
def test_attributes_that_can_be_read(pattern: pat.Pattern, names: set[str] | None) -> None:
    assert pattern.readable() == names


def test_walking_over_patterns() -> None:
    """Each part once, operands first; deep patterns and diamonds are no trouble."""
    conv = op.Conv2D(X, W)
    total = conv + conv
    assert list(pat.walk(total)) == [X, W, conv, total]


def test_copying_a_rule_s_patterns() -> None:
    import copy

    relu_pattern = op.ReLU(X)
    rule = Subst(copy.deepcopy(relu_pattern) + relu_pattern, X)
    assert len(rule.plan.patterns) == 3
