"""What targets build."""

from __future__ import annotations

import math
from typing import Any

import pytest

from gsl import Subst, attr, is_op, op, pat
from gsl.errors import PatternError, UntypedWarning
from gsl.graph import CONST, Graph, Node, TensorType
from gsl.graph.subgraph import Subgraph
from gsl.graph.types import unknown_size
from tests.helpers.graphs import Builder, graph
from tests.helpers.tensors import full
from tests.rewrite.checks import ops, rewritten

x, y = pat.Wildcard(), pat.Wildcard()
leaky = op.LeakyReLU(x)
chosen = pat.Alt(op.ReLU(x), op.Abs(x))
unary = pat.OneOf("tanh", "sigmoid")


def unary_view(name: str, **attrs: Any) -> Graph:
    return graph(lambda b: b.call(name, b.input("x", 4), **attrs))


@pytest.mark.parametrize(
    ("rule", "view", "expected"),
    [
        pytest.param(Subst(op.ReLU(x), lambda m: op.Maximum(m[x], 0.0)), unary_view("nn.relu"),
                     ["maximum"], id="pattern"),
        pytest.param(Subst(op.ReLU(op.ReLU(x)), lambda m: m.outputs[0].args[0]),
                     graph(lambda b: b.call("nn.relu", b.call("nn.relu", b.input("x", 4)))), ["nn.relu"], id="a node"),
        pytest.param(Subst(op.ReLU(x), lambda m: [op.Maximum(x, 0.0)]), unary_view("nn.relu"),
                     ["maximum"], id="a list"),
        pytest.param(Subst(op.ReLU(op.ReLU(x)), op.ReLU(x)),
                     graph(lambda b: b.call("nn.relu", b.call("nn.relu", b.input("x", 4)))), ["nn.relu"], id="static"),
        pytest.param(Subst(leaky, pat.Cond(leaky.alpha < 0.5, op.Maximum(x, x * leaky.alpha), op.ReLU(x))),
                     unary_view("nn.leaky_relu", alpha=0.25), ["multiply", "maximum"], id="cond, true"),
        pytest.param(Subst(leaky, pat.Cond(leaky.alpha < 0.5, op.ReLU(x), op.Maximum(x, x * leaky.alpha))),
                     unary_view("nn.leaky_relu", alpha=0.5), ["multiply", "maximum"], id="cond, false"),
        pytest.param(Subst(chosen, pat.Match(chosen, [op.Maximum(x, 0.0), op.Maximum(x, -x)])),
                     unary_view("nn.relu"), ["maximum"], id="match, first"),
        pytest.param(Subst(chosen, pat.Match(chosen, [op.Maximum(x, 0.0), op.Maximum(x, -x)])),
                     unary_view("abs"), ["negative", "maximum"], id="match, second"),
        pytest.param(Subst(op.ReLU(x), op.Maximum(x, pat.Const(full((4,), 0.0)))), unary_view("nn.relu"),
                     ["maximum"], id="a tensor"),
        pytest.param(Subst(op.ReLU(x), op.Maximum(pat.Tuple(x, pat.Const(0.0))[0], pat.Tuple(x, pat.Const(0.0))[-1])),
                     unary_view("nn.relu"), ["maximum"], id="fields of a new tuple"),
        pytest.param(Subst(op.ReLU(leaky), leaky.like(op.ReLU(x))),
                     graph(lambda b: b.call("nn.relu", b.call("nn.leaky_relu", b.input("x", 4), alpha=0.5))),
                     ["nn.relu", "nn.leaky_relu"], id="like"),
        pytest.param(Subst(op.ReLU(leaky), leaky.like(x, alpha=leaky.alpha * 0)),
                     graph(lambda b: b.call("nn.relu", b.call("nn.leaky_relu", b.input("x", 4), alpha=0.5))),
                     ["nn.leaky_relu"], id="like, with another attribute"),
        pytest.param(Subst(-pat.Call(unary, -x), pat.Call(unary, x) * 1.0),
                     graph(lambda b: b.call("negative", b.call("tanh", b.call("negative", b.input("x", 4))))),
                     ["tanh", "multiply"], id="operator class"),
        pytest.param(Subst(op.ReLU(x), lambda m: op.Maximum(m.outputs[0], 0.0)), unary_view("nn.relu"),
                     ["nn.relu", "maximum"], id="wraps its own output"),
    ],
)  # fmt: skip
def test_targets(rule: Subst, view: Graph, expected: list[str]) -> None:
    new, trace = rewritten(rule, view)
    assert trace.count() == 1, trace
    assert [name for name in ops(new) if name != "const"] == expected


@pytest.mark.parametrize(
    ("index", "field"),
    [(0, "%split[0]"), (1, "%split[1]"), (-1, "%split[1]"), (-2, "%split[0]"), (x.ndim, "%split[1]")],
)
def test_a_field_of_a_new_call(index: Any, field: str) -> None:
    halves = op.Split(x, indices_or_sections=2, axis=0)
    new, _ = rewritten(Subst(op.ReLU(x), op.Tile(halves[index], reps=(2,))), unary_view("nn.relu"), numbers=False)
    assert f"tile({field}, " in str(new)


@pytest.mark.parametrize(
    ("field", "reason"),
    [
        (op.Split(x, indices_or_sections=2, axis=0)[2], "<split: split> has no field 2: it has 2"),
        (op.Split(x, indices_or_sections=2, axis=0)[-3], "<split: split> has no field -3: it has 2"),
        (op.Split(x, indices_or_sections=2, axis=0)[x.dtype], "<split: split> has no field 'float32': it has 2"),
        (pat.Call(math.gcd, x)[x.dtype], "<gcd: math.gcd> has no field 'float32': it has ?"),
    ],
)
def test_a_field_that_a_new_call_has_not(field: pat.Pattern, reason: str) -> None:
    _, trace = rewritten(Subst(op.ReLU(x), op.Tile(field, reps=(2,))), unary_view("nn.relu"))
    assert [refused.reason for refused in trace.refused] == [reason]


def test_a_field_of_a_new_call_of_no_known_type() -> None:
    with pytest.warns(UntypedWarning, match="the type of getitem does not follow from its operands"):
        new, _ = rewritten(Subst(op.ReLU(x), pat.Call(math.gcd, x)[-1]), unary_view("nn.relu"), numbers=False)
    assert "return %gcd[-1]" in str(new)


def test_an_output_that_is_also_inside() -> None:
    inner = op.ReLU(x)
    rule = Subst([inner, op.Tanh(inner)], [op.Maximum(x, 0.0), op.Tanh(op.Maximum(x, 0.0))], name="r")
    view = graph(lambda b: [n := b.call("nn.relu", b.input("x", 4)), b.call("exp", n), b.call("tanh", n)])
    new, trace = rewritten(rule, view)
    assert trace.count() == 1
    assert "nn.relu" not in ops(new)


def test_a_replacement_that_uses_the_other_outputs_user() -> None:
    """A function that answers with a user of what it replaces would close a cycle."""
    view = graph(lambda b: b.call("tanh", b.call("nn.relu", b.input("x", 4))))
    _, trace = rewritten(Subst(op.ReLU(x), lambda m: next(iter(m.outputs[0].users)), name="up"), view)
    assert trace.count() == 0
    assert "would create a cycle" in trace.refused[0].reason
    wrap = Subst(op.ReLU(x), lambda m: pat.to_pattern(m.outputs[0]) + next(iter(m.outputs[0].users)), name="wrap")
    _, trace = rewritten(wrap, view)
    assert "would create a cycle" in trace.refused[0].reason


@pytest.mark.parametrize(
    ("operator", "dtype", "number", "found"),
    [
        (op.Negative, "int32", 2, None), (op.Negative, "int32", 2.0, "float32"), (op.Negative, "float16", 2.0, None),
        (op.LogicalNot, "bool", True, None), (op.LogicalNot, "bool", 1, "int64"),
    ],
)  # fmt: skip
def test_a_number_has_the_type_that_python_gives_it(operator: Any, dtype: str, number: Any, found: str | None) -> None:
    view = graph(lambda b: b.call(operator.spec.name, b.input("x", 4, dtype=dtype)))
    new, trace = rewritten(Subst(operator(x), x * number, name="r"), view, numbers=False)
    kinds = [str(node.type) for node in new if node.op == CONST]
    if found is None:
        assert kinds == [{bool: "bool[]", int: "int64[]", float: "float32[]"}[type(number)]]
    else:
        assert trace.refused[0].reason.endswith(f"is {found}[4]")


def test_an_attribute_that_a_class_of_operators_drops() -> None:
    """The target calls the matched operator again, without the attribute that the matched call has."""
    either = pat.OneOf("nn.leaky_relu", "nn.elu")
    rule = Subst(op.ReLU(pat.Call(either, x)), pat.Call(either, op.ReLU(x)), name="r")
    for alpha, count in ((0.5, 0), (0.01, 1)):
        view = graph(lambda b: b.call("nn.relu", b.call("nn.leaky_relu", b.input("x", 4), alpha=alpha)))  # noqa: B023
        assert rewritten(rule, view, numbers=False)[1].count() == count


def test_shared_target_patterns_are_built_once() -> None:
    shared = op.Exp(x)
    rule = Subst(op.ReLU(x), shared + shared * shared, name="r")
    new, _ = rewritten(rule, unary_view("nn.relu"), numbers=False)
    assert ops(new) == ["exp", "multiply", "add"]


def dense_heads(*sizes: int) -> Graph:
    def make(b: Builder) -> list[Node]:
        data = b.input("x", 2, 4)
        return [b.call("nn.dense", data, b.param(f"w{i}", size, 4)) for i, size in enumerate(sizes)]

    return graph(make)


def fuse_heads() -> Subst:
    data, weight, i = pat.Wildcard(), pat.Wildcard(), attr.Symbol()
    dense = op.Dense(data, weight)
    heads = pat.Variadic(dense, templates=[dense, weight], min_len=2)
    weights = pat.Variadic(heads(weight, i), index=i, length=heads.length)
    parts = op.Split(op.Dense(data, op.Concatenate(weights, axis=0)), indices_or_sections=heads.length, axis=-1)
    j = attr.Symbol()
    return Subst(heads, pat.Variadic(parts[j], templates=[], index=j), name="heads")


@pytest.mark.parametrize("number", [3, 150])
def test_a_target_that_uses_what_one_choice_binds(number: int) -> None:
    """However many matches there are: from a hundred nodes on they are found, and built, by printed functions."""

    def view(b: Builder) -> list[Node]:
        return [b.call("nn.relu", b.call(("exp", "tanh")[i % 2], b.input(f"x{i}", 4))) for i in range(number)]

    rule = Subst(op.ReLU(pat.Alt(op.Exp(x), op.Tanh(y))), op.Abs(x), name="r")
    new, trace = rule.apply(graph(view))
    assert trace.count() == (number + 1) // 2
    assert [node.operands[0].name for node in new if node.op == "abs"] == [f"x{i}" for i in range(0, number, 2)]
    assert len(trace.refused) == number // 2
    assert {refused.reason for refused in trace.refused} == {"Wildcard is part of an alternative that was not matched"}


def test_a_variadic_target_with_instances() -> None:
    new, trace = rewritten(fuse_heads(), dense_heads(3, 3, 3))
    assert ops(new) == ["tuple", "concatenate", "nn.dense", "split", "getitem", "getitem", "getitem"]
    assert trace.firings[0].replaced == ("dense", "dense_1", "dense_2")


def test_a_refused_group_is_tried_once() -> None:
    _, trace = rewritten(fuse_heads(), dense_heads(3, 2, 2, 2, 3))
    assert len(trace.refused) == 1


def test_a_callable_target_for_a_group() -> None:
    data, weight = pat.Wildcard(), pat.Wildcard()
    dense = op.Dense(data, weight)
    heads = pat.Variadic(dense, templates=[dense, weight])

    def build(match: Any) -> list[Any]:
        return [op.Matmul(data, op.Transpose(pat.to_pattern(node))) for node in match.instances(heads, weight)]

    new, trace = rewritten(Subst(heads, build, name="all"), dense_heads(3, 2))
    assert trace.count() == 1
    assert "nn.dense" not in ops(new)


def fields_of_a_tuple(**options: Any) -> Subst:
    """Whatever is taken out of a tuple is what was put in: a group of fields, over a tuple of any length."""
    item, i = pat.Wildcard(), attr.Symbol()
    whole = pat.Variadic(item, templates=[item])
    field = pat.GetItem(whole)
    group = pat.Variadic(field, templates=[field], **options)
    return Subst(group, pat.Variadic(whole(item, group(field, i).index), index=i), name="fields")


def packed(*fields: int) -> Graph:
    """A tuple of three tensors, of which some fields are used."""

    def make(b: Builder) -> list[Node]:
        whole = b.tuple(b.input("x", 4), b.call("exp", b.nodes[0]), b.call("tanh", b.nodes[0]))
        return [b.call("nn.relu", b.get(whole, index)) for index in fields]

    return graph(make)


def test_a_target_reads_how_long_a_chain_is() -> None:
    chain = pat.Repeat(op.ReLU(pat.Wildcard()), min=2)
    rule = Subst(op.Exp(chain), op.LeakyReLU(chain, alpha=chain.length * 0.5))
    view = graph(lambda b: b.call("exp", b.call("nn.relu", b.call("nn.relu", b.call("nn.relu", b.input("x", 4))))))
    after, _ = rewritten(rule, view, numbers=False)
    (new,) = after.outputs
    assert (new.op, new.attrs["alpha"]) == ("nn.leaky_relu", 1.5)


def test_a_variadic_over_a_variadic() -> None:
    new, trace = rewritten(fields_of_a_tuple(), packed(2, 0, 2))
    assert trace.count() == 1
    assert trace.firings[0].replaced == ("get", "get_1", "get_2")
    assert ops(new) == ["tanh", "nn.relu", "nn.relu", "nn.relu"]
    assert rewritten(fields_of_a_tuple(min_len=3), packed(2, 0))[1].count() == 0


def test_a_template_is_no_variadic() -> None:
    """Of which each instance would have any number of parts."""
    item = pat.Wildcard()
    parts = pat.Variadic(item, templates=[item])
    joined = op.Concatenate(parts, axis=0)
    with pytest.raises(PatternError, match=r"a template can't be a Variadic: .* give it to a pattern that all share"):
        pat.Variadic(joined, templates=[joined, parts])


def test_a_target_is_checked_when_the_rule_is_built() -> None:
    for target, text in (
        (op.ReLU(y), "not part of the source"),
        ([x, x], "the source has 1 outputs, the target 2"),
        (op.ReLU(x) | x, "can't be built in a target"),
        (pat.is_op("nn.relu"), "needs its operands"),
    ):
        with pytest.raises(PatternError, match=text):
            Subst(op.Tanh(x), target)


def test_a_deep_target() -> None:
    deep = x
    for _ in range(3000):
        deep = op.ReLU(deep)
    view = graph(lambda b: b.call("tanh", b.input("x", 4)))
    new, _ = rewritten(Subst(op.Tanh(x), deep, name="deep"), view, numbers=False)
    assert len(ops(new)) == 3000


KIND = TensorType((4,), "float32")
ALPHAS = (0.125, 0.25, 0.125, 0.5)


def leakies(*above: str) -> Graph:
    """Calls of leaky_relu that differ in an attribute alone, with others above: their types are one object."""

    def make(b: Builder) -> list[Node]:
        outputs = []
        for number, alpha in enumerate(ALPHAS):
            outputs.append(b.call("nn.leaky_relu", b.input(f"x{number}", 4), alpha=alpha))
            for name in above:
                outputs[-1] = b.call(name, outputs[-1])
        return outputs

    view = graph(make)
    view.shares_bodies = True
    for node in view:
        node.type = KIND
    return view


def test_what_a_target_became_is_made_again_only_for_equal_attributes() -> None:
    rule = Subst(leaky, op.LeakyReLU(x, alpha=leaky.alpha * 2.0), name="twice")
    new, _ = rewritten(rule, leakies(), numbers=False)
    assert [node.attrs["alpha"] for node in new.outputs] == [2 * alpha for alpha in ALPHAS]


def test_a_group_is_made_again_only_for_equal_attributes() -> None:
    new, _ = rewritten(Subst(op.Tanh(leaky), pat.Fused("both"), name="group"), leakies("tanh"), numbers=False)
    bodies = [node.op.body.nodes for node in new.outputs if isinstance(node.op, Subgraph)]
    assert [[node.attrs["alpha"] for node in body if node.op == "nn.leaky_relu"] for body in bodies] == [
        [alpha] for alpha in ALPHAS
    ]


def test_a_call_of_a_class_has_the_operator_of_its_own_match() -> None:
    """Calls of one size are made often enough to be remembered, and then those of another size come."""
    names, sizes = ["tanh", "sigmoid", "sigmoid"] * 20, [4] * 57 + [5] * 3
    calls = list(enumerate(zip(names, sizes)))
    view = graph(lambda b: [b.call("nn.relu", b.call(each, b.input(f"x{n}", size))) for n, (each, size) in calls])
    types = {node.type: node.type for node in view}
    for node in view:
        node.type = types[node.type]
    new, trace = rewritten(Subst(op.ReLU(pat.Call(unary, x)), pat.Call(unary, op.ReLU(x)), name="r"), view)
    assert trace.count() == len(names)
    assert [node.op for node in new.outputs] == names


@pytest.mark.parametrize("target", [
    op.LeakyReLU(x, alpha=leaky.alpha * 2.0), leaky.like(x, alpha=leaky.alpha * 2.0),
])  # fmt: skip
def test_a_call_that_is_remembered_has_the_attributes_of_its_own_match(target: Any) -> None:
    calls = [(f"x{number}", 4, 0.25) for number in range(57)] + [("y0", 5, 0.125), ("y1", 5, 0.5)]
    view = graph(lambda b: [b.call("nn.leaky_relu", b.input(name, size), alpha=alpha) for name, size, alpha in calls])
    types, known = {node.type: node.type for node in view}, dict[Any, Any]()
    for node in view:
        node.type = types[node.type]
        node.attrs = known.setdefault(str(node.attrs), node.attrs)
    new, _ = rewritten(Subst(leaky, target, name="r"), view, numbers=False)
    assert [node.attrs["alpha"] for node in new.outputs] == [2 * alpha for _, _, alpha in calls]


def test_what_a_target_became_for_one_node_twice_is_not_made_again_for_two() -> None:
    low = op.LeakyReLU(y)
    rule = Subst(x - low, op.LeakyReLU(x, alpha=low.alpha * 2.0) + y, name="r")

    def make(b: Builder) -> list[Node]:
        a, c = b.input("a", 4), b.input("c", 4)
        pairs = ((a, a), (a, c), (c, a))
        return [b.call("subtract", left, b.call("nn.leaky_relu", right, alpha=0.25)) for left, right in pairs]

    view, known = graph(make), dict[Any, Any]()
    for node in view:  # alike calls have one mapping, as those of front ends
        node.type, node.attrs = KIND, known.setdefault(node.op, node.attrs)
    new, trace = rewritten(rule, view, numbers=False)
    assert trace.count() == 3
    assert [(node.operands[0].operands[0].name, node.operands[1].name) for node in new.outputs] == [
        ("a", "a"), ("a", "c"), ("c", "a"),
    ]  # fmt: skip


@pytest.mark.parametrize("sized", ["deps", "attrs"])
def test_what_depends_on_sizes_at_run_time_is_no_part_of_a_group(sized: str) -> None:
    def make(b: Builder) -> Node:
        size = b.call("abs", b.input("n", 4))
        low = b.call("nn.leaky_relu", b.input("x", 4), alpha=0.25)
        if sized == "deps":
            low.deps = (size,)
            size.add_user(low)
        else:
            low.attrs = {"alpha": unknown_size()}
        return b.call("tanh", low)

    new, trace = rewritten(Subst(op.Tanh(leaky), pat.Fused("both"), name="group"), graph(make), numbers=False)
    assert [refused.reason for refused in trace.refused] == [
        "%leaky_relu depends on sizes that are known at run time only, so it can't be outlined"
    ]
    assert new.outputs[0].op == "tanh"


@pytest.mark.parametrize("above", [False, True])
def test_the_instances_of_a_chain_are_in_its_order(above: bool) -> None:
    """Found from the last node down, or from the first one up."""
    weight = pat.Param()
    chain = pat.Repeat(op.Dense(pat.Wildcard(), weight) >> is_op("nn.relu"), min=2)
    source = op.Tanh(pat.Wildcard()) > chain if above else chain

    def make(b: Builder) -> Any:
        value = b.call("tanh", b.input("x", 2, 4))
        for number in range(3):
            value = b.call("nn.relu", b.call("nn.dense", value, b.param(f"w{number}", 4, 4)))
        return value

    matches = [*Subst(source, lambda match: list(match.outputs)).match(graph(make))]
    assert len(matches) == (2 if above else 3)
    for match in matches:
        names = [node.args[0].args[1].name for node in match.chain(chain)]
        assert names == sorted(names)
        assert [node.name for node in match.instances(chain, weight)] == names
        assert match.length(chain) == len(names)
