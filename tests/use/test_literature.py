"""The graphs by which the literature explains use relations: each with a match, and with one that must not be."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gsl import RuleSet, Subst, attr_eq, dup, fork_to, is_op, op, pat, wildcard
from gsl.graph import Graph, Node
from tests.helpers.graphs import Builder, graph

Make = Callable[[Builder], "Node | list[Node]"]


def matches(rule: Subst, make: Make) -> int:
    """How many matches the rule has, by the nodes of their outputs."""
    return len({match.outputs for match in rule.match(graph(make))})


def finding(*source: object, **options: object) -> Subst:
    """A rule that only looks."""
    return Subst(list(source), lambda match: list(match.outputs), **options)  # type: ignore[arg-type]


def conv(b: Builder, x: Node, channels: int = 4, **attrs: object) -> Node:
    return b.call("nn.conv2d", x, b.param("w", channels, x.shape[1], 3, 3), **{"padding": (1, 1), **attrs})


# conv, relu, add: the convolution has one user, or a sigmoid uses it too.


def conv_relu_add(sigmoid: bool) -> Make:
    def make(b: Builder) -> Node | list[Node]:
        x = b.input("x", 1, 4, 8, 8)
        c = conv(b, x)
        y = b.call("add", b.call("nn.relu", c), x)
        return [y, b.call("sigmoid", c)] if sigmoid else y

    return make


def test_conv_relu_add_beside_a_sigmoid() -> None:
    only = finding((is_op("nn.conv2d") >> is_op("nn.relu")) >> is_op("add"))
    any_use = finding(is_op("nn.conv2d") ^ is_op("nn.relu") ^ is_op("add"))
    assert matches(only, conv_relu_add(False)) == 1
    assert matches(only, conv_relu_add(True)) == 0
    assert matches(any_use, conv_relu_add(True)) == 1


# Diamond and parallel.


def diamond(b: Builder) -> Node:
    c = conv(b, b.input("x", 1, 4, 8, 8))
    return b.call("add", b.call("nn.relu", c), b.call("sigmoid", c))


def parallel(b: Builder) -> Node:
    x = b.input("x", 1, 4, 8, 8)
    return b.call("add", b.call("nn.relu", conv(b, x)), b.call("sigmoid", conv(b, x)))


def test_diamond_against_parallel() -> None:
    c, relu, sigmoid, add = is_op("nn.conv2d"), is_op("nn.relu"), is_op("sigmoid"), is_op("add")
    shape = finding(add, where=[c.fork_to(relu, sigmoid), relu >> add, sigmoid >> add])
    assert matches(shape, diamond) == 1
    assert matches(shape, parallel) == 0


def test_parallel_against_diamond() -> None:
    add = is_op("add")
    left, right = is_op("nn.conv2d") >> is_op("nn.relu"), is_op("nn.conv2d") >> is_op("sigmoid")
    shape = finding(add, where=[left >> add, right >> add])
    one, other = is_op("nn.conv2d") ^ is_op("nn.relu"), is_op("nn.conv2d") ^ is_op("sigmoid")
    loose = finding(add, where=[one ^ add, other ^ add])
    assert matches(shape, parallel) == 1
    assert matches(shape, diamond) == 0
    assert matches(loose, diamond) == 0  # two convolution patterns are two convolutions


# A relu with a softmax beside it.


def softmax_beside(b: Builder) -> list[Node]:
    x = b.input("x", 1, 4, 8, 8)
    r = b.call("nn.relu", conv(b, x))
    return [b.call("add", r, x), b.call("nn.softmax", r)]


def test_relu_with_a_softmax_beside_it() -> None:
    assert matches(finding(is_op("nn.conv2d") >> is_op("nn.relu") > is_op("add")), softmax_beside) == 1
    assert matches(finding(is_op("nn.conv2d") >> is_op("nn.relu") >> is_op("add")), softmax_beside) == 0


# Three parallel branches with equal attributes.


def branches(strides: tuple[int, int, int]) -> Make:
    def make(b: Builder) -> list[Node]:
        x = b.input("x", 1, 4, 8, 8)
        return [
            b.call("nn.relu", b.call("nn.bias_add", conv(b, x, 4, strides=(s, s)), b.param("b", 4), axis=1))
            for s in strides
        ]

    return make


def three_branches(*, as_group: bool) -> Subst:
    cbr0 = is_op("nn.conv2d") >> is_op("nn.bias_add") >> is_op("nn.relu")
    cbr1, cbr2 = dup(cbr0), dup(cbr0)
    if as_group:
        return Subst(fork_to(attr_eq(cbr0, cbr1, cbr2)), lambda match: list(match.outputs))
    return finding(cbr0, cbr1, cbr2, where=[fork_to(cbr0, cbr1, cbr2), attr_eq(cbr0, cbr1, cbr2)])


@pytest.mark.parametrize("as_group", [True, False])
def test_three_parallel_branches(as_group: bool) -> None:
    rule = three_branches(as_group=as_group)
    assert matches(rule, branches((1, 1, 1))) == 6  # the three branches in any order
    assert matches(rule, branches((1, 2, 1))) == 0


# Self-attention.


def attention(shared: bool) -> Make:
    def make(b: Builder) -> list[Node]:
        x = b.input("x", 2, 6, 8)
        q, k, v = (b.call("nn.dense", x, b.param(n, 8, 8)) for n in "qkv")
        scores = b.call("nn.softmax", b.call("nn.batch_matmul", q, k))
        y = b.call("matmul", scores, v)
        return [y, b.call("nn.relu", k)] if shared else [y]

    return make


def test_self_attention_with_uniq() -> None:
    x = wildcard()
    q, k, v = (is_op("nn.dense")(x, pat.Param()) for _ in range(3))
    product, softmax, result = is_op("nn.batch_matmul"), is_op("nn.softmax"), is_op("matmul")
    relations = [
        q.uniq().used_by(product, 0), k.uniq().used_by(product, 1), product >> softmax,
        softmax.used_by(result, 0), v.uniq().used_by(result, 1),
    ]  # fmt: skip
    rule = finding(result, where=relations)
    assert matches(rule, attention(False)) == 1
    assert matches(rule, attention(True)) == 0


# Use from outside of the match.


def conv_bias(outside: bool) -> Make:
    def make(b: Builder) -> list[Node]:
        c = conv(b, b.input("x", 1, 4, 8, 8))
        y = b.call("nn.bias_add", c, b.param("b", 4), axis=1)
        return [y, c] if outside else [y]

    return make


@pytest.mark.parametrize("used", [True, False])
def test_conv_bias_with_external_use(used: bool) -> None:
    c, bias = is_op("nn.conv2d"), is_op("nn.bias_add")
    for rule in (
        finding(c.extern_use(used) > bias),
        finding(c > bias, where=[pat.NonLeafExternUse(used)]),
        finding(c > bias, extern_use=used),
    ):
        assert matches(rule, conv_bias(used)) == 1
        assert matches(rule, conv_bias(not used)) == 0


# Casts between the related nodes.


def gemm_cast_add(dtype: str) -> Make:
    def make(b: Builder) -> Node:
        x, y = b.input("x", 4, 8), b.input("y", 4, 4, dtype=dtype)
        product = b.call("nn.dense", x, b.param("w", 4, 8))
        return b.call("add", b.call("cast", product, dtype=dtype), y)

    return make


def test_gemm_add_with_a_cast_between() -> None:
    gemm, add = is_op("nn.dense"), is_op("add")
    assert matches(finding(gemm >> add), gemm_cast_add("float32")) == 0
    assert matches(finding(gemm >> add, fuzzy=("cast",)), gemm_cast_add("float32")) == 1
    x, w, y = pat.Wildcard(), pat.Param(), pat.Wildcard()
    product = op.Dense(x, w)
    fused = Subst(product + y, product.like(x, w) + y, fuzzy=("cast",))
    same = fused(graph(gemm_cast_add("float32")))
    assert [node.op for node in same if node.op in ("cast", "nn.dense", "add")] == ["nn.dense", "add"]


def test_a_cast_that_changes_the_output_is_not_skipped() -> None:
    x, w, y = pat.Wildcard(), pat.Param(), pat.Wildcard()
    product = op.Dense(x, w)
    rule = Subst(product + y, product.like(x, w) * 2.0, fuzzy=("cast",))
    old = graph(gemm_cast_add("float64"))
    assert str(rule(old)) == str(old)
    assert "float64[4, 4], but its replacement" in str(rule.explain(old))


# A relu whose user is anything but a cast.


def test_a_relu_whose_user_is_no_cast() -> None:
    relu = is_op("nn.relu")
    rule = finding(relu, where=[relu > ~is_op("cast")])

    def make(cast: bool) -> Make:
        def build(b: Builder) -> Node:
            r = b.call("nn.relu", b.input("x", 2))
            return b.call("cast", r, dtype="float64") if cast else b.call("exp", r)

        return build

    assert matches(rule, make(False)) == 1
    assert matches(rule, make(True)) == 0


# A chain of reshapes.


def reshapes(b: Builder) -> Node:
    x = b.input("x", 2, 3, 4)
    for shape in ((6, 4), (4, 6), (24,), (3, 8)):
        x = b.call("reshape", x, newshape=shape)
    return x


def reshape_count(view: Graph) -> int:
    return sum(node.op == "reshape" for node in view)


def test_a_chain_of_reshapes() -> None:
    x = pat.Wildcard()
    inner = op.Reshape(x)
    outer = op.Reshape(inner)
    pair = Subst(outer, outer.like(x))
    old = graph(reshapes)
    assert reshape_count(pair(old)) == 2  # one pass merges two pairs
    assert reshape_count(pair(old, iterative=True)) == 1

    chain = pat.Repeat(is_op("reshape"), min=2)
    y = wildcard()
    whole = Subst(y > chain, lambda match: op.Reshape(y, newshape=match[chain].attrs["newshape"]))
    assert {len(match.chain(chain)) for match in whole.match(old)} == {2, 3, 4}
    assert reshape_count(RuleSet([whole], strategy="largest")(old)) == 1


# A fork whose branches are written in the other order.


@pytest.mark.parametrize("swapped", [False, True])
def test_a_fork_in_either_order(swapped: bool) -> None:
    relu, tanh = is_op("nn.relu"), is_op("tanh")
    fork = fork_to(tanh, relu) if swapped else fork_to(relu, tanh)

    def make(b: Builder) -> list[Node]:
        x = b.call("exp", b.input("x", 2))
        return [b.call("nn.relu", x), b.call("tanh", x)]

    def apart(b: Builder) -> list[Node]:
        return [b.call("nn.relu", b.input("x", 2)), b.call("tanh", b.input("y", 2))]

    rule = Subst(fork, lambda match: list(match.outputs))
    assert matches(rule, make) == 1
    assert matches(rule, apart) == 0


# x * sigmoid(x) by use relations alone.


def test_swish_by_use_relations() -> None:
    x, sigmoid, mul = wildcard(), is_op("sigmoid"), is_op("multiply")
    rule = Subst(mul, op.SiLU(x), where=[x.fork_to(sigmoid, mul), sigmoid >> mul])

    def make(same: bool) -> Make:
        def build(b: Builder) -> Node:
            a, c = b.input("a", 3), b.input("c", 3)
            return b.call("multiply", a if same else c, b.call("sigmoid", a))

        return build

    assert [node.op for node in rule(graph(make(True)))] == ["input", "input", "silu"]
    old = graph(make(False))
    assert str(rule(old)) == str(old)


# Several outputs that share nodes.


def test_an_inner_node_is_also_an_output() -> None:
    x, w, y = wildcard(), pat.Param(), wildcard()
    c = is_op("nn.conv2d")(x, w)
    relu = is_op("nn.relu")(c)
    add = is_op("add")(relu, y)
    rule = Subst([relu, add], [op.Clip(c, a_min=0.0, a_max=None), op.Maximum(c, 0.0) + y])
    view = rule(graph(softmax_beside))
    assert [node.op for node in view if node.op not in ("input", "param", "const")] == [
        "nn.conv2d", "clip", "maximum", "add", "nn.softmax",
    ]  # fmt: skip
