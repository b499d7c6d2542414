"""Generation: for every operator and every construct of the language, graphs are made that the rule really matches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gsl import Subst, attr, attr_eq, fork_to, is_op, op, pat
from gsl.graph import Graph, Node, TensorType
from gsl.rules import IDIOMS, RULES
from gsl.spec import TABLE
from gsl.verify.choices import Coverage, Dead, Drawn, Random
from gsl.verify.draft import type_of_call
from gsl.verify.instance import generate
from gsl.verify.solve import OWN

TRIED = 40
LISTS = ("concatenate", "stack", "einsum")


def same(match: Any) -> list[Node]:
    return list(match.outputs)


def instances(rule: Subst, tried: int = TRIED) -> list[Graph]:
    """The graphs that come of so many attempts, each of which the rule matches."""
    coverage, found = Coverage(), []
    for number in range(tried):
        choices = Random(f"0 {number}", coverage)
        try:
            graph = generate(rule, choices)
        except Dead:
            choices.tried()
            continue
        choices.tried(is_made=True)
        if next(rule.match(graph), None) is not None:
            choices.used()
            found.append(graph)
    return found


def test_rare_instances_are_looked_for_beside_those_that_are_known() -> None:
    """One attempt in 25 leads to an instance of this rule; with those beside instances, one in twelve does."""
    found = instances(next(rule for rule in IDIOMS if rule.name == "group-norm-affine"), 600)
    assert len(found) > 40
    assert len(set(map(str, found))) > 20


def call(name: str) -> pat.Pattern:
    spec = TABLE[name]
    field = pat.Wildcard()
    operands: list[Any] = [pat.Wildcard() for _ in spec.operands]
    if name in LISTS:
        operands = [pat.Variadic(field, templates=[field], min_len=1)]
    return pat.Call(name, *operands)


@pytest.mark.parametrize(("make", "both"), [
    (op.Add, {(False, True)}), (lambda a, b: op.Matmul(a, b, out_dtype=""), set()),
], ids=["add", "matmul"])  # fmt: skip
def test_each_operand_may_be_broadcast(make: Callable[[Any, Any], pat.Pattern], both: set[Any]) -> None:
    """To axes that it lacks, and along axes of size 1: the first operand, the second one, or each."""
    x, y = pat.Wildcard(dtype="float32"), pat.Wildcard(dtype="float32")
    found: set[Any] = set()
    for graph in instances(Subst(make(x, y), make(y, x)), 400):
        one, other = (operand.shape[:-2] if graph.outputs[0].op == "matmul" else operand.shape
                      for operand in graph.outputs[0].operands)  # fmt: skip
        if len(one) != len(other):
            found.add(len(one) < len(other))
        elif one != other:
            found.add(tuple(sorted({size < wide for size, wide in zip(one, other) if size != wide})))
    assert found >= {True, False, (True,), (False,)} | both


@pytest.mark.parametrize("make", [
    lambda a, b, c: op.Add(a, b), lambda a, b, c: op.Where(a, b, c), lambda a, b, c: op.Matmul(a, b),
    lambda a, b, c: op.Matmul(op.Concatenate(pat.Tuple(a, b), axis=1), c),
    lambda a, b, c: op.Matmul(op.Softmax(op.Matmul(a, b), axis=-1), c),
], ids=["add", "where", "matmul", "of a concatenation", "of a product"])  # fmt: skip
def test_tensors_of_one_rank_have_shapes_that_go_together(make: Callable[..., pat.Pattern]) -> None:
    """Sizes are drawn for the axes of one tensor, and those beside it have these sizes, or 1."""
    source = make(*(pat.Wildcard(ndim=4) for _ in range(3)))
    found = instances(Subst(source, op.Tanh(source)), 100)
    assert len(found) > 70
    assert len(set(map(str, found))) > 60


def test_what_follows_from_operands_need_not_be_what_is_wished_for() -> None:
    """The greatest elements of a sum lack an axis of it, whatever shape the difference of the two is to have."""
    scores = pat.Wildcard() + pat.Wildcard()
    shifted = scores - op.Max(scores, axis=(scores.ndim - 1,), keepdims=True)
    assert len(instances(Subst(op.Softmax(shifted, axis=-1), op.Softmax(scores, axis=-1)), 60)) > 55


@pytest.mark.parametrize("more", [False, True])
def test_a_reshape_keeps_the_axes_that_a_condition_names(more: bool) -> None:
    """Its other axes are those with which it has as many elements as its operand."""
    x, y, z = pat.Wildcard(), pat.Wildcard(), pat.Wildcard()
    product = op.Matmul(x, y)
    taken = op.Reshape(product)
    source = op.Softmax(taken + z if more else taken, axis=-1)
    found = instances(Subst(source, op.Tanh(source), where=taken.shape[-2:] == product.shape[-2:]), 60)
    assert len(found) > 45
    shapes = [(node.operands[0].shape, node.shape) for graph in found for node in graph.nodes if node.op == "reshape"]
    assert len({(len(old), len(new)) for old, new in shapes}) > 4


def _per_channel(w: pat.Pattern, x: pat.Pattern) -> attr.Expr:
    ones = attr.Map(x.shape[2:], lambda _: 1)
    return attr.In(w.shape, (attr.Tuple(x.shape[1]) + ones, attr.Tuple(1, x.shape[1]) + ones))


def _of_the_shape(x: pat.Pattern, y: pat.Pattern) -> tuple[pat.Pattern, attr.Expr]:
    chosen = op.Where(x, x, y)
    return chosen, chosen.shape == y.shape


def _into_groups(x: pat.Pattern, y: pat.Pattern) -> tuple[pat.Pattern, attr.Expr]:
    groups = op.Reshape(x)
    return groups + y, (x.ndim > 1) & (x.shape[1] % groups.shape[1] == 0)


@pytest.mark.parametrize(("make", "least"), [
    (lambda x, y: (x * y, _per_channel(y, x)), 30), (lambda x, y: (x / op.Sqrt(y + 1.0), _per_channel(y, x)), 40),
    (_of_the_shape, 45), (lambda x, y: (op.Matmul(x, y), (x.ndim > 2) & ~(x.ndim == y.ndim)), 45), (_into_groups, 40),
], ids=["one of two shapes", "within a call", "the shape of the result", "of another rank", "into groups"])  # fmt: skip
def test_a_condition_on_shapes_counts_when_they_are_drawn(make: Callable[..., Any], least: int) -> None:
    source, where = make(pat.Wildcard(), pat.Wildcard())
    assert len(instances(Subst(source, op.Tanh(source), where=where), 60)) > least


def test_each_of_two_tensors_of_a_rank_may_be_broadcast() -> None:
    x, y = pat.Wildcard(ndim=2), pat.Wildcard(ndim=2)
    found: set[Any] = set()
    for graph in instances(Subst(x + y, y + x), 200):
        one, other = (operand.shape for operand in graph.outputs[0].operands)
        found.add(tuple(sorted({size < wide for size, wide in zip(one, other) if size != wide})))
    assert found >= {(), (True,), (False,)}


@pytest.mark.parametrize("ndim", [0, 1])
def test_a_tensor_beside_one_of_a_rank_may_have_more_axes(ndim: int) -> None:
    x, y = pat.Wildcard(), pat.Wildcard()
    found = instances(Subst(x + y, y + x, where=y.ndim == ndim), 120)
    assert {node.ndim for graph in found for node in graph.nodes} >= set(range(ndim, ndim + 4))


def test_one_leaf_alone_has_another_dtype() -> None:
    """Each leaf is, now and then, of a dtype that no other one has; what is demanded is kept."""
    x, y, z = pat.Wildcard(), pat.Wildcard(), pat.Wildcard(dtype="float32")
    found: dict[str, set[str]] = {"x": set(), "x_1": set(), "x_2": set()}
    for graph in instances(Subst(op.Add(op.Add(x, y), z), same), 1500):
        leaves = {node.name: node.dtype for node in graph.nodes if node.op == "input" and node.dtype is not None}
        if len(leaves) == 3:
            for name, dtype in leaves.items():
                if [*leaves.values()].count(dtype) == 1 and len(set(leaves.values())) == 2:
                    found[name].add(dtype)
    assert found["x"] >= set(OWN) - {"float32"}
    assert found["x_1"] >= set(OWN) - {"float32"}
    assert found["x_2"] <= {"float32"}


def test_dtypes_of_calls_that_are_to_differ_are_parted_by_an_operand() -> None:
    """Of many leaves, one that makes the difference has a dtype of its own."""
    x: pat.Pattern = pat.Wildcard()
    for _ in range(12):
        x = op.Where(pat.Wildcard(dtype="bool"), x, pat.Wildcard(shape=x.shape))
    inner = op.Tanh(x)
    step = inner * pat.Wildcard(ndim=2)
    assert len(instances(Subst(step, step, where=~(step.dtype == inner.dtype)))) >= 4


def test_evidence_names_the_dtypes_that_a_leaf_did_not_have_alone() -> None:
    x, y = pat.Wildcard(), pat.Wildcard(dtype="float32")
    soft = op.Softmax(x)
    verdict = Subst(soft + y, y + soft.like(x)).verify()
    (leaf, undrawn), = verdict.evidence.undrawn.items()
    assert leaf == f"Wildcard ({x.location})"
    assert {"bool", "int64"} <= set(undrawn)
    assert f"not generated: {leaf} with a dtype of its own: {', '.join(undrawn)}" in str(verdict)


FIXED = {"exclude"}
"""Attributes that are the same in all instances: ``exclude`` is false in canonical form."""
FIXED_OF = {"nn.attention": {"is_causal"}} | {f"nn.avg_pool{n}d": {"dilation"} for n in (1, 2, 3)}
"""Those of some operators: attention with a mask is not causal, and average pooling has no dilation."""


@pytest.mark.sweep(4)
@pytest.mark.parametrize("name", TABLE)
def test_every_operator_has_instances_with_different_attributes(name: str) -> None:
    whole = call(name)
    found = instances(Subst(whole[0] if TABLE[name].fields else whole, same))
    assert len(found) >= TRIED // 2
    values = {each: {next(node for node in graph.nodes if node.op == name).attrs[each] for graph in found}
              for each in TABLE[name].attrs}  # fmt: skip
    alike = {each for each, tried in values.items() if len(tried) == 1}
    assert alike == values.keys() & (FIXED | FIXED_OF.get(name, set()))


@pytest.mark.sweep(4)
@pytest.mark.parametrize("name", [name for name, spec in TABLE.items() if not spec.fields])
def test_every_operator_has_instances_of_a_wanted_type(name: str) -> None:
    v = pat.Param()
    rule = Subst(op.Maximum(v, call(name)), same)
    assert len(instances(rule)) >= TRIED // 4


x, y, w, v = pat.Wildcard(), pat.Wildcard(), pat.Param(), pat.Param()
conv, relu, add, sigmoid = is_op("nn.conv2d"), is_op("nn.relu"), is_op("add"), is_op("sigmoid")
i = attr.Symbol()


def sources() -> dict[str, Callable[[], Subst]]:
    def variadic(least: int = 0) -> pat.Variadic:
        return pat.Variadic(x, templates=[x], min_len=least)

    image = pat.Wildcard(ndim=4)
    matrix, number, whole_number = pat.Wildcard(ndim=2, dtype="float32"), pat.Const(), pat.Wildcard(dtype="int64")

    def piece(whole: pat.Pattern, **attrs: Any) -> pat.Pattern:
        return op.StridedSlice(whole, strides=(1,), axes=(0,), **attrs)

    split, f, inner = op.Split(x), pat.OneOf("exp", "tanh"), op.Exp(x)
    three = [is_op("nn.dense") >> is_op("nn.bias_add") for _ in range(3)]
    field = pat.GetItem(split, i)
    whole = pat.Variadic(field, templates=[field], index=i, min_len=1)
    products = [op.Dense(x, w), op.Dense(x, v)]
    scores = op.ReLU(op.Matmul(x, y))
    visible = op.Any(op.Exp(scores), axis=((soft := op.Softmax(scores)).ndim - 1,), keepdims=True)
    shown = op.Where(visible, op.FullLike(soft, 0), soft)
    return {
        "a diamond": lambda: Subst(inner + inner, same),
        "an alternative": lambda: Subst(op.ReLU(op.Exp(x) | op.Tanh(y)), same),
        "a choice of leaves": lambda: Subst(op.ReLU(pat.Param() | pat.Const()), same),
        "what may be absent": lambda: Subst(op.ReLU(pat.Maybe(inner * 2.0, on=inner)), same),
        "a chain": lambda: Subst(op.ReLU(pat.Repeat(is_op("exp"), min=2)), same),
        "a chain of sums": lambda: Subst(pat.Repeat(add, min=2, max=3) > sigmoid, same),
        "a tuple of any length": lambda: Subst(op.Concatenate(variadic(1), axis=-1), same),
        "one field": lambda: Subst(op.Concatenate([x]), same),
        "a field of a tuple": lambda: Subst(pat.Tuple(x, y, w)[1], same),
        "fields of a split": lambda: Subst(op.Concatenate([split[0], split[2]], axis=split.axis), same),
        "all fields of a split": lambda: Subst(op.Concatenate(whole, axis=split.axis), same),
        "a class of operators": lambda: Subst(pat.Call(f, x) + pat.Call(f, y), same),
        "any operator": lambda: Subst(op.ReLU(pat.Call(pat.AnyOp(), x)), same),
        "both": lambda: Subst(op.Exp(x).has_shape((None, 3)) & pat.Wildcard(dtype="float64"), same),
        "not": lambda: Subst(op.ReLU(~op.Exp(x)), same),
        "a literal": lambda: Subst(x * 0.5 + 1.0, same),
        "a literal of any value": lambda: Subst(op.Maximum(x, pat.Const()), same),
        "a sequence": lambda: Subst(conv >> relu >> add, same),
        "a sequence of which a part is used elsewhere": lambda: Subst(conv.extern_use(True) > relu, same),
        "a fork": lambda: Subst(fork_to(attr_eq(*three)), same),
        "a fork of a known node": lambda: Subst(add, same, where=[x.fork_to(sigmoid, add), sigmoid >> add]),
        "a node with one user": lambda: Subst(conv.uniq() > relu, same),
        "nodes that may be skipped": lambda: Subst(op.ReLU(op.Exp(x)), same, fuzzy=("cast", "transpose")),
        "several outputs": lambda: Subst(products, same),
        "distinct leaves": lambda: Subst(x + y, same, distinct=True),
        "equal shapes": lambda: Subst(op.Exp(x) + y, same, where=x.shape == y.shape),
        "a shape in terms of another": lambda: Subst(x + pat.Wildcard(shape=(x.shape[0], 1)), same, where=x.ndim == 2),
        "one of some dtypes": lambda: Subst(op.Exp(x), same, where=attr.In(x.dtype, ("float16", "float64"))),
        "one or the other": lambda: Subst(op.ReLU(x), same, where=(x.ndim == 4) | (x.dtype == "int8")),
        "a square matrix": lambda: Subst(op.Dense(x, w), same, where=w.shape[0] == w.shape[1]),
        "a shape with equal ends": lambda: Subst(op.Exp(x), same, where=(x.ndim == 3) & (x.shape[2] == x.shape[0])),
        "a multiple of 8": lambda: Subst(op.Exp(x), same, where=x.shape[1] % 8 == 0),
        "a size of 16 or more": lambda: Subst(op.Dense(x, w), same, where=(w.shape[0] >= 16) & (w.shape[1] > 6)),
        "one of some sizes": lambda: Subst(op.Exp(x), same, where=attr.In(x.shape[1], (8, 16))),
        "many elements": lambda: Subst(op.Exp(x), same, where=attr.prod(x.shape) >= 64),
        "a product of sizes": lambda: Subst(op.Exp(x), same, where=(attr.prod(x.shape) == 24) & (x.ndim == 3)),
        "a multiple of 3 and 4": lambda: Subst(op.Exp(x), same, where=(x.shape[0] % 3 == 0) & (x.shape[0] % 4 == 0)),
        "a result with a multiple of 8": lambda: Subst(c := op.Conv2D(x, w), same, where=c.shape[1] % 8 == 0),
        "many groups": lambda: Subst(c := op.Conv2D(x, w), same, where=c.groups % 4 == 0),
        "a group for each channel": lambda: Subst(
            c := op.Conv2D(x, w), same, where=(c.groups == x.shape[1]) & (c.groups > 1)
        ),
        "long strides": lambda: Subst(c := op.Conv2D(x, w), same, where=attr.min(c.strides) >= 4),
        "a positive literal beside a matrix": lambda: Subst(matrix * number, same, where=number.value > 0),
        "a large literal": lambda: Subst(x * number, same, where=number.value >= 10),
        "one of some literals": lambda: Subst(x * number, same, where=attr.In(number.value, (7, 9))),
        "a scaled kernel": lambda: Subst(op.Conv2D(x, w * pat.Wildcard(shape=())), same),
        "slices side by side": lambda: Subst(
            op.Concatenate([a := piece(matrix), b := piece(matrix)], axis=0), same, where=a.end == b.begin
        ),
        "slices side by side, by an attribute": lambda: Subst(
            op.Concatenate([a := piece(matrix), piece(matrix, begin=a.end)], axis=0), same
        ),
        "a slice of a slice": lambda: Subst(piece(piece(matrix)), same),
        "a pixel shuffle": lambda: Subst(
            op.Reshape(op.Transpose(apart := op.Reshape(x), axes=(0, 1, 4, 2, 5, 3))), same, where=apart.ndim == 6
        ),
        "a pixel shuffle, by its attribute": lambda: Subst(
            apart := op.Reshape(image), same,
            where=[
                attr.Len(apart.newshape) == 6, apart.newshape[0] == image.shape[0],
                image.shape[1] == apart.newshape[1] * apart.newshape[2] * apart.newshape[2],
                apart.newshape[3] == apart.newshape[2], apart.newshape[4:] == image.shape[2:],
            ],
        ),
        "an integer quotient": lambda: Subst(op.FloorDivide(whole_number, op.FloorMod(x, whole_number)), same),
        "a size of an axis that an attribute tells": lambda: Subst(
            cat := op.Concatenate([x, y]), same, where=x.shape[cat.axis] == 0
        ),
        "a sum of sizes": lambda: Subst(op.Dense(x, w), same, where=w.shape[0] == w.shape[1] + 2),
        "attributes of another": lambda: Subst(
            [a := op.Conv2D(x, w), op.Conv2D(x, v, **pat.same_attr(a, ["strides", "padding", "groups"]))], same
        ),
        "an axis counted from the end": lambda: Subst(op.Softmax(x, axis=-2), same),
        "a matrix product of a concatenation": lambda: Subst(op.Matmul(op.Concatenate([x, y], axis=1), w), same),
        "a sum of convolutions": lambda: Subst(op.Conv2D(x, w) + op.Conv2D(y, v), same),
        "a normalised sum": lambda: Subst(op.LayerNorm(x + y, w, v), same),
        "attention": lambda: Subst(op.Matmul(op.Softmax(op.Matmul(x, y)), w), same),
        "attention with rows of which nothing is visible": lambda: Subst(op.Matmul(shown, w), same),
    }  # fmt: skip


SOURCES = sources()


@pytest.mark.sweep(3)
@pytest.mark.parametrize("name", SOURCES)
def test_every_construct_has_instances(name: str) -> None:
    assert len(instances(SOURCES[name]())) >= TRIED // 3


@pytest.mark.parametrize("axis", [(0,), (-1,), (0, 1)])
@pytest.mark.parametrize("name", ["sum", "variance", "argmax"])
def test_a_reduction_along_all_axes_but_some(name: str, axis: tuple[int, ...]) -> None:
    x = pat.Wildcard(ndim=3)
    total = pat.Call(name, x, axis=axis, exclude=True, keepdims=False)
    graphs = instances(Subst(total, op.Copy(total)))
    assert len(graphs) > TRIED / 2
    assert {graph.outputs[0].ndim for graph in graphs} == {len(axis)}


@pytest.mark.parametrize("field", [0, 1])
@pytest.mark.parametrize("ndim", [1, 2, 4])
def test_the_largest_elements_of_a_tensor_of_any_rank(ndim: int, field: int) -> None:
    found = op.TopK(pat.Wildcard(ndim=ndim), axis=-1)[field]
    graphs = instances(Subst(op.Maximum(found, pat.Wildcard(ndim=ndim)), same))
    assert len(graphs) > TRIED / 2
    calls = [node for graph in graphs for node in graph.nodes if node.op == "topk"]
    assert {node.operands[0].ndim for node in calls} == {ndim}
    assert {node.attrs["k"] for node in calls} >= {1, 2}
    assert any(node.operands[0].shape[-1] > node.attrs["k"] for node in calls)


def test_attributes_of_a_call_below_that_are_literals() -> None:
    from gsl.operators.quantised import dequantise, quantise

    data = dequantise(pat.Wildcard(dtype="int8"), quant_min=-128, quant_max=127, dtype="int8")
    again = quantise(data, **pat.same_attr(data, ["scale", "zero_point", "quant_min", "quant_max", "dtype"]))
    assert len(instances(Subst(again, same))) >= TRIED // 3


@pytest.mark.parametrize("name", RULES)
def test_the_simplest_decisions_give_the_smallest_graph(name: str) -> None:
    """What shrinking ends in: where no decision is made, there is a graph, or a reason why there is none."""
    try:
        graph = generate(RULES[name], Drawn(lambda most: 0))
    except Dead:
        return
    assert all(size <= 3 for node in graph.nodes for size in node.shape or ())


def test_decisions_can_be_repeated() -> None:
    rule = RULES["parallel-conv-variadic"]
    for number in range(10):
        choices = Random(number, Coverage())
        try:
            graph = generate(rule, choices)
        except Dead:
            continue
        tape = list(reversed(choices.tape))
        assert str(generate(rule, Drawn(lambda most, tape=tape: tape.pop()))) == str(graph)  # type: ignore[misc]
        assert not tape


def test_the_type_of_a_convolution_in_float16_that_onednn_does_not_survive() -> None:
    spec, operands = TABLE["nn.conv3d"], (TensorType((1,) * 5, "float16"), TensorType((2, 1, 1, 1, 1), "float16"))
    given = {"strides": (1, 1, 3), "padding": (1, 2, 2, 1, 2, 2), "dilation": (3, 2, 3)}
    assert type_of_call(spec.name, operands, spec.complete(given, operands)) == TensorType((1, 2, 3, 5, 2), "float16")
