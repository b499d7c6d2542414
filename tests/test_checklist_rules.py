"""The checklist of the first GSL, sections 5 and 6: substitutions, folding and workloads.

Tests are named after the trials that showed a fault there. What is refused when a rule is built is in
tests/pat/test_rules.py.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import pytest
import torch

from gsl import RuleSet, Subst, Workload, attr, op, pat
from gsl.errors import PatternError, RewriteError
from gsl.graph import Graph, Node
from gsl.rewrite.fold import fold
from gsl.spec import TABLE
from gsl.spec.meaning import evaluate
from tests.helpers.firing import fire, flat, inputs_of, ops
from tests.helpers.graphs import Builder, graph, run

X, Y, Z = pat.Wildcard(), pat.Wildcard(), pat.Wildcard()


# One output


def chain(*names: str) -> Any:
    def make(b: Builder) -> Node:
        node = b.input("x", 2)
        for name in names:
            node = b.call(name, node)
        return node

    return make


def test_one_pass_and_the_fixed_point() -> None:
    rule = Subst(op.ReLU(op.ReLU(X)), op.ReLU(X))
    assert ops(fire(rule, chain(*["nn.relu"] * 4), times=2)) == ["nn.relu"] * 2
    assert ops(fire(rule, chain(*["nn.relu"] * 4), times=3, iterative=True)) == ["nn.relu"]


def test_single_rematch_shared() -> None:
    """A shared node is rewritten once and stays shared; the result is not matched again in the same pass."""
    rule = Subst(op.ReLU(X), op.ReLU(X + 0.0))

    def make(b: Builder) -> list[Node]:
        shared = b.call("nn.relu", b.input("x", 2))
        return [b.call("exp", shared), b.call("tanh", shared), shared]

    assert ops(fire(rule, make, times=1)) == ["add", "nn.relu", "exp", "tanh"]


def test_new_node_type() -> None:
    """Nodes made in a pass have types, which rules of the next pass read."""
    first = Subst(op.ReLU(X), op.Reshape(op.Exp(op.Reshape(X, newshape=(-1,))), newshape=X.shape))
    inner = op.Exp(X)
    second = Subst(inner, op.Tanh(X), where=(X.ndim == 1) & (inner.shape[0] == 6) & (X.dtype == "float32"))
    view = graph(lambda b: b.call("nn.relu", b.input("x", 2, 3)))
    new, trace = RuleSet([first, second]).apply(view, iterative=True)
    assert trace.count() == 2
    assert ops(new) == ["reshape", "tanh", "reshape"]


def test_conv_mul_shared() -> None:
    """An inner node with other users stays alive, unless the rule forbids such matches."""

    def make(b: Builder) -> list[Node]:
        shared = b.call("exp", b.input("x", 2))
        return [b.call("nn.relu", shared), b.call("tanh", shared)]

    source, target = op.ReLU(op.Exp(X)), op.Exp(X) + 0.0
    assert ops(fire(Subst(source, target), make, times=1)) == ["exp", "exp", "add", "tanh"]
    fire(Subst(source, target, extern_use=False), make, times=0)
    fire(Subst(source, target, extern_use=False), lambda b: make(b)[0], times=0)
    fire(Subst(source, target, extern_use=False), chain("exp", "nn.relu"), times=1)


def test_target_sharing() -> None:
    """A node that the target uses twice, or for two outputs, is built once."""
    negative = -X
    new = fire(Subst([op.Exp(X), op.Sin(X)], [op.Exp(negative * -1.0), op.Sin(negative * -1.0)]),
               lambda b: (lambda x: [b.call("exp", x), b.call("sin", x)])(b.input("x", 2)), times=1)  # fmt: skip
    assert ops(new).count("negative") == 1


@pytest.mark.parametrize("where", ["fields", "call"])
def test_target_root_split(where: str) -> None:
    """A call with several results as the root of a target."""
    old = op.Split(X, indices_or_sections=2, axis=0)
    new = op.Split(X, indices_or_sections=2, axis=-1)
    rule = Subst(old, new, where=X.ndim == 1) if where == "call" else Subst([old[0], old[1]], [new[0], new[1]])

    def make(b: Builder) -> list[Node]:
        split = b.call("split", b.input("x", 4), indices_or_sections=2, axis=0)
        return [b.call("exp", b.get(split, 0)), b.call("exp", b.get(split, 1))]

    assert ops(fire(rule, make, times=1)) == ["split", "exp", "exp"]


# Several outputs


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
@pytest.mark.parametrize("graph_order", list(itertools.permutations(range(3))))
def test_order_swapped(order: Sequence[int], graph_order: Sequence[int]) -> None:
    """The order of the outputs of a rule need not be that of the graph."""
    a, c, d = op.Exp(X), op.Sin(X), op.Cos(X)
    source = [a - c, c - d, a / d]
    target = [a + -c, c + -d, a * op.Reciprocal(d)]
    rule = Subst([source[i] for i in order], [target[i] for i in order])

    def make(b: Builder) -> list[Node]:
        x = b.input("x", 2)
        e, s, k = b.call("exp", x), b.call("sin", x), b.call("cos", x)
        made = {}
        for i in graph_order:
            made[i] = b.call(*[("subtract", e, s), ("subtract", s, k), ("divide", e, k)][i])
        return [made[i] for i in range(3)]

    assert "divide" not in ops(fire(rule, make, times=1))


def test_first_candidate_only() -> None:
    """All users of an inner node are tried, not only the first that fits so far."""
    a = op.Exp(X)
    rule = Subst([op.ReLU(a), op.Tanh(op.Sin(a))], [op.ReLU(a) + 0.0, op.Tanh(op.Sin(a)) + 0.0])

    def make(b: Builder) -> list[Node]:
        e = b.call("exp", b.input("x", 2))
        return [b.call("nn.relu", e), b.call("cos", b.call("sin", e)), b.call("tanh", b.call("sin", e))]

    assert ops(fire(rule, make, times=1)).count("add") == 2


def test_interior_square() -> None:
    """A node that is used twice by one user has one user."""
    relu = op.ReLU(X)
    make = lambda b: (lambda r: b.call("exp", b.call("multiply", r, r)))(b.call("nn.relu", b.input("x", 2)))  # noqa: E731
    fire(Subst(op.Exp(relu * relu), op.Exp(relu * relu) + 0.0, extern_use=False), make, times=1)
    fire(Subst([op.Exp(relu * relu)], [op.Exp(op.Square(relu))]), make, times=1)


@pytest.mark.parametrize("swap", [False, True])
def test_an_output_may_use_another(swap: bool) -> None:
    """[y, f(y)] and [f(y), y] are the same rule."""
    inner = op.ReLU(X)
    outer = op.Exp(inner)
    source, target = [inner, outer], [op.Maximum(X, 0.0), op.Exp(op.Maximum(X, 0.0))]
    rule = Subst(source[::-1], target[::-1]) if swap else Subst(source, target)
    new = fire(
        rule, lambda b: (lambda r: [b.call("exp", r), b.call("sin", r)])(b.call("nn.relu", b.input("x", 2))), times=1
    )
    assert "nn.relu" not in ops(new)


def test_target_uses_output() -> None:
    """A target that wraps what it replaces, with one output and with several."""
    exp, sin = op.Exp(X), op.Sin(X)
    assert ops(fire(Subst(exp, exp + 0.0), chain("exp", "nn.relu"), times=1)) == ["exp", "add", "nn.relu"]

    def make(b: Builder) -> list[Node]:
        x = b.input("x", 2)
        return [b.call("nn.relu", b.call("exp", x)), b.call("sin", x)]

    new = fire(Subst([exp, sin], [exp + 0.0, sin + 0.0]), make, times=1)
    assert sorted(ops(new)) == ["add", "add", "exp", "nn.relu", "sin"]
    condition = Subst([exp, sin], [pat.Cond(X.ndim == 1, exp + 0.0, exp), sin])
    assert ops(fire(condition, make, times=1)).count("add") == 1


def test_dependent_outputs() -> None:
    """Matches of which one feeds the other are both rewritten, and the result is right."""
    a, c = op.Exp(X), op.Sin(X)
    rule = Subst([a, c], [op.Exp(X + 0.0), op.Sin(X + 0.0)])

    def make(b: Builder) -> list[Node]:
        x = b.input("x", 2)
        e, s = b.call("exp", x), b.call("sin", x)
        return [s, b.call("exp", e), b.call("sin", e)]

    fire(rule, make, times=2)


def test_a_cycle_is_refused() -> None:
    """Merging two nodes of which one is computed from the other would close a cycle."""
    rule = Subst([op.Exp(Y) + X, op.Exp(Z) - X], [op.Exp(Y) + X + Z * 0.0, op.Exp(Z) - X + Y * 0.0])

    def make(b: Builder) -> list[Node]:
        x, y = b.input("x", 2), b.input("y", 2)
        one = b.call("add", b.call("exp", y), x)
        return [one, b.call("subtract", b.call("exp", b.call("nn.relu", one)), x)]

    fire(rule, make, times=0)
    _, trace = rule.apply(graph(make))
    assert "would create a cycle" in str(trace)


def test_nested_groups() -> None:
    """Groups inside and beside each other are all rewritten, in passes."""
    rule = Subst([op.Exp(X), op.Sin(X)], [op.Cos(X), op.Tanh(X)])

    def make(b: Builder) -> list[Node]:
        x = b.input("x", 2)
        outer = [b.call("exp", x), b.call("sin", x)]
        return [b.call(name, node) for node in outer for name in ("exp", "sin")]

    new = fire(rule, make, times=3, same=False, iterative=True)
    assert sorted(ops(new)) == ["cos"] * 3 + ["tanh"] * 3


def test_connect_by_op() -> None:
    """To have an operator class in common does not connect outputs."""
    unary = pat.OpWithTrait("activation")
    with pytest.raises(PatternError, match="not connected"):
        Subst([pat.Call(unary, X), pat.Call(unary, Y)], [X, Y])


@pytest.mark.parametrize("count", [2, 3, 5])
def test_a_variadic_of_outputs(count: int) -> None:
    """All instances are taken, in graph order, in any number."""
    weight = pat.Param(shape=(None, None))
    matmul = op.Matmul(X, weight)
    group = pat.Variadic(matmul, templates=[matmul, weight], min_len=2)
    i, j = attr.Symbol(), attr.Symbol()
    weights = op.Concatenate(pat.Variadic(group(weight, j), index=j, length=group.length), axis=1)
    split = op.Split(group(matmul, 0).like(X, weights), indices_or_sections=group.length, axis=1)
    rule = Subst(group, pat.Variadic(split[i], index=i))

    def make(b: Builder) -> list[Node]:
        x = b.input("x", 2, 3)
        return [b.call("matmul", x, b.param("w", 3, 4)) for _ in range(count)]

    assert ops(fire(rule, make, times=1)) == ["concatenate", "matmul", "split"]
    fire(rule, lambda b: b.call("matmul", b.input("x", 2, 3), b.param("w", 3, 4)), times=0)


# Types


def test_split_concat_partial() -> None:
    """A rule that would change the type of an output is refused, and says so."""
    split = op.Split(X, indices_or_sections=3, axis=0)
    rule = Subst(op.Concatenate([split[0], split[1]], axis=0), X)

    def make(b: Builder) -> Node:
        parts = b.call("split", b.input("x", 6), indices_or_sections=3, axis=0)
        return b.call("concatenate", b.tuple(b.get(parts, 0), b.get(parts, 1)), axis=0)

    fire(rule, make, times=0)
    _, trace = rule.apply(graph(make))
    assert "[4]" in str(trace)
    assert "[6]" in str(trace)


def test_shortcut_broadcast() -> None:
    """x + zeros is not x where the sum broadcasts."""
    rule = Subst(X + op.ZerosLike(Y), X)
    for shape, fires in [((2, 3), 1), ((3,), 0)]:
        fire(rule, lambda b, shape=shape: b.call("add", b.input("x", *shape), b.call("zeros_like", b.input("y", 2, 3))),
             times=fires)  # fmt: skip


def test_bn_axis_neg() -> None:
    """Axes are canonical: a negative one in rule or graph is the same axis."""
    rule = Subst(op.Softmax(op.Exp(X), axis=-1), op.Softmax(op.Exp(X), axis=-1) + 0.0)
    fire(rule, lambda b: b.call("nn.softmax", b.call("exp", b.input("x", 2, 3)), axis=1), times=1)
    fire(rule, lambda b: b.call("nn.softmax", b.call("exp", b.input("x", 2, 3)), axis=0), times=0)


def test_an_ill_typed_target_is_refused_with_the_reason() -> None:
    rule = Subst(op.ReLU(X), op.Reshape(X, newshape=(7,)), name="bad shape")
    _, trace = rule.apply(graph(chain("nn.relu")))
    assert not trace.firings
    assert "bad shape refused at %relu" in str(trace)
    assert "reshape" in str(trace)


# Errors and use


def test_a_failing_function_names_the_rule_and_the_graph_stays() -> None:
    rule = Subst(op.ReLU(X), lambda match: match[Y], name="fails")
    view = graph(chain("nn.relu"))
    before = str(view)
    with pytest.raises(RewriteError, match="fails"):
        rule(view)
    assert str(view) == before


def test_failed_construct_poison() -> None:
    relu = op.ReLU(X)
    with pytest.raises(PatternError):
        Subst(relu, op.Exp(Y))
    fire(Subst(relu, op.ReLU(X) + 0.0), chain("nn.relu"), times=1)
    fire(Subst(op.Exp(relu), op.Exp(relu) + 0.0), chain("nn.relu", "exp"), times=1)


def test_unknown_getattr() -> None:
    with pytest.raises(PatternError, match="the source lacks"):
        Subst(op.ReLU(X), op.Reshape(X, newshape=Y.shape))


# Parameter folding


def folded(make: Any) -> tuple[Graph, int]:
    """The view in which a rule made all that a function makes, folded."""
    view = graph(lambda b: b.call("nn.relu", make(b)))
    new, _ = Subst(op.ReLU(X), op.Abs(op.ReLU(X))).apply(view)
    for node in new.nodes:
        if node.operands:
            node.origin = new.outputs[0].origin
    inputs = inputs_of(view)
    before = run(view, inputs)
    count = fold(new, lambda node, operands: evaluate(TABLE[str(node.op)], list(operands), node.attrs))
    for a, b in zip(flat(before), flat(run(new, inputs)), strict=True):
        assert a.dtype == b.dtype
        torch.testing.assert_close(a, b)
    return new, count


def whole(b: Builder, *values: int) -> Node:
    return b.const(torch.tensor(values))


FOLDS: dict[str, Any] = {
    "fold_pad_value": lambda b: b.call("nn.pad", b.param("w", 2, 2), pad_width=((1, 1), (0, 0)), pad_value=3.5),
    "fold_pad_mode": lambda b: b.call("nn.pad", b.param("w", 1, 4), pad_width=((0, 0), (1, 1)), pad_mode="reflect"),
    "fold_bmm": lambda b: b.call("nn.batch_matmul", b.param("v", 2, 3, 4), b.param("w", 2, 5, 4), transpose_b=True),
    "fold_int_div": lambda b: b.call("floor_divide", whole(b, 7, -7), whole(b, 2, 2)),
    "fold_concat_call": lambda b: b.call("concatenate", b.tuple(*[b.get(b.call("split", b.param("w", 4),
        indices_or_sections=2, axis=0), i) for i in (1, 0)]), axis=0),
    "fold_msd": lambda b: b.call("matrix_set_diag", b.param("w", 3, 3), b.param("d", 2), k=1),
    "fold_msd_batched": lambda b: b.call("matrix_set_diag", b.param("w", 2, 3, 3), b.param("d", 2, 3)),
    "fold_unsupported: relu": lambda b: b.call("nn.relu", b.param("w", 2, 3)),
    "fold_unsupported: sum": lambda b: b.call("sum", b.param("w", 2, 3), axis=1),
    "fold_unsupported: squeeze": lambda b: b.call("squeeze", b.param("w", 2, 1), axis=1),
    "fold_unsupported: layout": lambda b: b.call("layout_transform", b.param("w", 1, 2, 3, 4), src_layout="NCHW",
        dst_layout="NHWC"),
    "fold_unsupported: slice": lambda b: b.call("strided_slice", b.param("w", 4), begin=(1,), end=(3,)),
    "fold_unsupported: power": lambda b: b.call("power", b.call("abs", b.param("w", 4)), 0.5),
    "fold_unsupported: dense": lambda b: b.call("nn.dense", b.param("v", 2, 3), b.param("w", 4, 3)),
}  # fmt: skip


@pytest.mark.parametrize("make", FOLDS.values(), ids=FOLDS)
def test_what_depends_on_weights_is_folded_and_stays_the_same(make: Any) -> None:
    new, count = folded(make)
    assert count > 0
    assert ops(new) == []


# Workloads


class Embedding(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(10, 4)

    def forward(self, index: torch.Tensor) -> torch.Tensor:
        return torch.relu(torch.relu(self.table(index)))


def test_int_input() -> None:
    """Integer inputs stay integers."""
    index = torch.tensor([[1, 2], [3, 9]])
    model = Embedding()
    wl = Workload.from_torch(model, (index,))
    new = Subst(op.ReLU(op.ReLU(X)), op.ReLU(X))(wl)
    assert torch.equal(flat(new(index))[0], model(index))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_dtype_lost(dtype: torch.dtype) -> None:
    """The dtype of a workload is that of its graph, before and after a rewrite."""
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.ReLU()).to(dtype)
    x = torch.ones(2, 3, dtype=dtype)
    new = Subst(op.ReLU(op.ReLU(X)), op.ReLU(X))(Workload.from_torch(model, (x,)))
    assert flat(new(x))[0].dtype == dtype
    torch.testing.assert_close(flat(new(x))[0], model(x))


def test_tuple_output() -> None:
    class Two(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return torch.relu(torch.relu(x)), (x + 1, {"a": x * 2})

    x = torch.ones(2)
    new = Subst(op.ReLU(op.ReLU(X)), op.ReLU(X))(Workload.from_torch(Two(), (x,)))
    first, (second, third) = new(x)
    assert torch.equal(first, x)
    assert torch.equal(second, x + 1)
    assert torch.equal(third["a"], x * 2)
