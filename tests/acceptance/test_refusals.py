"""What must be refused, and what must not, on programs of torch; each with equal numbers."""

from __future__ import annotations

import sys
import time
import warnings
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from gsl import RuleSet, Subst, Workload, attr, op, pat
from gsl.errors import DroppedAttributeWarning, UntypedWarning
from tests.acceptance.harness import agree, net, workload

EXPORTED_AND_TRACED = pytest.mark.parametrize("form", ["exported", "decomposed", "traced"])
ALL_FORMS = pytest.mark.parametrize("form", ["exported", "decomposed", "traced", "untyped", "compiled"])
MATRIX = (torch.randn(4, 4), torch.randn(4, 4), torch.randn(4, 4))

x, y, z = pat.Wildcard(), pat.Wildcard(), pat.Wildcard()


def quietly(rule: Any, old: Workload, **options: Any) -> Workload:
    """Apply a rule; a graph without types can't be checked for them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UntypedWarning)
        return rule(old, **options)  # type: ignore[no-any-return]


@ALL_FORMS
def test_nested_concatenations(form: str) -> None:
    """1. A variadic list rule rewrites cat(cat(a, b), c) at both places."""
    field, i = pat.Wildcard(), attr.Symbol()
    fields = pat.Variadic(field, templates=[field], min_len=2)
    joined = op.Concatenate(fields)
    negated = joined.like(pat.Variadic(-fields(field, i), index=i, length=fields.length))
    rule = Subst(joined, -negated, name="negated")
    old = workload(net(lambda net, a, b, c: torch.cat([torch.cat([a, b]), c]), 3), MATRIX, form)
    new = quietly(rule, old)
    assert new.trace.count("negated") == 2
    assert new.op_counts() == {"negative": 6, "concatenate": 2}
    agree(old, new, MATRIX)


@ALL_FORMS
def test_outputs_whose_order_changes(form: str) -> None:
    """2. The outputs of a match stand in another order than what is between them needs."""
    i1, i2 = pat.Wildcard(), pat.Wildcard()
    first = op.ReLU(i1)
    rule = Subst([first, i2 + first], [op.ReLU(i1), i2 + op.ReLU(i1)], name="both")

    def forward(net: Any, i1: torch.Tensor, i2: torch.Tensor) -> torch.Tensor:
        o1 = torch.relu(i1)
        u = torch.sqrt(o1)
        m = i2 * 2
        return u @ (m + o1)

    old = workload(net(forward, 2), MATRIX[:2], form)
    new = quietly(rule, old)
    assert new.trace.count("both") == 1
    agree(old, new, MATRIX[:2])


@ALL_FORMS
def test_weight_that_depends_on_the_other_layer(form: str) -> None:
    """3. Two linear layers of which the second one's weight depends on the first one's result."""
    w1, w2 = pat.Wildcard(), pat.Wildcard()
    first, second = (op.Matmul(x, w) if form == "decomposed" else op.Dense(x, w) for w in (w1, w2))
    if form == "decomposed":
        both = first.like(x, op.Concatenate([w1, w2], axis=1))
    else:
        both = first.like(x, op.Concatenate([w1, w2], axis=0))
    parts = op.Split(both, indices_or_sections=2, axis=-1)
    rule = Subst([first, second], [parts[0], parts[1]], name="pair")
    old = workload(net(lambda net, a, w: F.linear(a, torch.tanh(F.linear(a, w))), 2), MATRIX[:2], form)
    new = quietly(rule, old)
    assert new.trace.count() == 0
    assert all("would create a cycle" in refused.reason for refused in new.trace.refused)
    assert form == "decomposed" or new.trace.refused
    agree(old, new, MATRIX[:2])


@ALL_FORMS
def test_swish_in_either_order(form: str) -> None:
    """4. Both orders of a product match."""
    rule = Subst(x * op.Sigmoid(x), op.SiLU(x))
    for function in (lambda net, a: a.sigmoid() * a, lambda net, a: a * a.sigmoid()):
        old = workload(net(function), MATRIX[:1], form)
        new = quietly(rule, old)
        assert new.op_counts() == {"silu": 1}
        agree(old, new, MATRIX[:1])


NEG_RELU = Subst(-op.ReLU(x), op.Clip(-x, a_min=-1e30, a_max=0.0), name="neg-relu")


@pytest.mark.parametrize("form", ["exported", "traced", "untyped", "compiled"])
def test_change_in_place_between(form: str) -> None:
    """5. What a match would read later must not have changed by then."""

    def forward(net: Any, a: torch.Tensor) -> Any:
        y = a * 2
        r = torch.relu(y)
        y.add_(1)
        return -r + y

    old = workload(net(forward), MATRIX[:1], form)
    new = quietly(NEG_RELU, old)
    # In an exported program nobody reads the old y: later uses are those of the result of add_.
    assert new.trace.count() == (form == "exported")
    agree(old, new, MATRIX[:1])


@pytest.mark.parametrize("form", ["exported", "decomposed", "traced", "untyped"])
def test_input_changed_in_place_between(form: str) -> None:
    def forward(net: Any, a: torch.Tensor) -> Any:
        r = torch.relu(a)
        a.add_(1)
        return -r

    inputs = (torch.randn(4, 4),)
    old = workload(net(forward), inputs, form)
    new = quietly(NEG_RELU, old)
    agree(old, new, inputs)
    # A decomposed program changes its inputs at its end only.
    assert new.trace.count() == (form == "decomposed")


@EXPORTED_AND_TRACED
def test_assertions_are_in_nobodys_way(form: str) -> None:
    """Between the casts of an exported program stand assertions, which read metadata only."""
    rule = Subst(op.Cast(op.Cast(x, dtype="float64"), dtype="float32"), x, where=x.dtype == "float32")
    old = workload(net(lambda net, a: a.sin().double().float().cos()), MATRIX[:1], form)
    new = rule(old)
    assert new.op_counts() == {"sin": 1, "cos": 1}
    agree(old, new)


@pytest.mark.parametrize("form", ["exported", "traced"])
def test_random_operators_are_neither_duplicated_nor_dropped(form: str) -> None:
    double = Subst(op.ReLU(x), op.ReLU(x) + op.ReLU(x) * 0.0, name="double")
    drop = Subst(op.ReLU(x) * 0.0, op.ZerosLike(x), name="drop")
    anything = pat.Call(pat.AnyOp(), x)
    away = Subst(anything, x, name="away", where=lambda match: match[anything].effect is not None)

    class Training(nn.Module):
        def forward(self, a: torch.Tensor) -> torch.Tensor:
            return torch.relu(F.dropout(a, 0.5, True)) * 0.0 + torch.rand_like(a)

    model = Training()
    old = workload(model, MATRIX[:1], form)
    random = [node.name for node in old.graph if node.effect is not None]
    assert len(random) == 2
    for rule in (double, drop, away):
        new = rule(old)
        assert [node.name for node in new.graph if node.effect is not None] == random
        agree(old, new)
    assert away(old).trace.count() == 0


@ALL_FORMS
def test_maximum_in_either_order(form: str) -> None:
    """6. maximum(y, relu(x)) matches maximum(relu(a), b)."""
    rule = Subst(op.Maximum(op.ReLU(x), y), op.Maximum(op.Maximum(x, y), y * 0.0), name="max")
    old = workload(net(lambda net, a, b: torch.maximum(b, torch.relu(a)), 2), MATRIX[:2], form)
    new = quietly(rule, old)
    assert new.trace.count() == 1
    agree(old, new, MATRIX[:2])


@EXPORTED_AND_TRACED
def test_five_outputs_of_twelve(form: str) -> None:
    """7. The first match of many equal parts is found at once."""
    relus = [op.ReLU(x) for _ in range(5)]
    rule = Subst(relus, [op.ReLU(x) for _ in range(5)])
    old = workload(net(lambda net, a: [torch.relu(a) for _ in range(12)]), MATRIX[:1], form)
    assert len(old.graph.nodes) == 13
    start = time.process_time()
    match = next(iter(rule.match(old)))
    assert time.process_time() - start < 1
    assert len(set(match.outputs)) == 5


@ALL_FORMS
def test_alternative_whose_guard_fails(form: str) -> None:
    """8. An alternative whose guard fails does not match, although its operators do."""
    soft = op.Softmax(x, axis=0)
    alternative = soft | op.Sigmoid(x)
    rule = Subst(-alternative, pat.Match(alternative, [op.Softmax(-x, axis=0), op.Sigmoid(x) * -1.0]), name="alt")
    other = workload(net(lambda net, a: -torch.softmax(a, 1)), MATRIX[:1], form)
    assert quietly(rule, other).trace.count() == 0
    matching = workload(net(lambda net, a: -torch.sigmoid(a)), MATRIX[:1], form)
    new = quietly(rule, matching)
    assert new.trace.count() == 1
    agree(matching, new, MATRIX[:1])


@pytest.mark.parametrize("form", ["exported", "decomposed", "traced", "compiled"])
def test_shape_that_a_rule_produced(form: str) -> None:
    """9. The second rule of a pipeline needs a shape that the first one made."""
    widen = Subst(op.Tanh(x), op.Sum(op.Stack([op.Tanh(x), op.Tanh(-x) * -1.0], axis=0), axis=0) * 0.5, name="widen")
    stacked = op.Stack([x, y], axis=0)
    pair = Subst(
        op.Sum(stacked, axis=0), x + y, where=(stacked.shape[0] == 2) & (stacked.ndim == 3), name="pair",
    )  # fmt: skip
    old = workload(net(lambda net, a: torch.tanh(a)), MATRIX[:1], form)
    middle = widen(old)
    assert all(node.type is not None for node in middle.graph)
    new = pair(middle)
    assert new.trace.count("pair") == 1
    agree(old, new, MATRIX[:1])
    together = RuleSet([widen], max_steps=1)(old)
    agree(old, pair(together), MATRIX[:1])


@ALL_FORMS
def test_leaves_may_coincide_and_calls_may_not(form: str) -> None:
    """10. a + a matches x + y; c0 + c1 never matches c + c."""
    old = workload(net(lambda net, a: a + a), MATRIX[:1], form)
    assert len(list(Subst(x + y, y + x).match(old))) == 1
    assert not list(Subst(x + y, y + x, distinct=True).match(old))
    new = quietly(Subst(x + y, x * 1.0 + y), old)
    assert new.trace.count() == 1
    agree(old, new, MATRIX[:1])

    def diamond(net: Any, a: torch.Tensor) -> torch.Tensor:
        c = torch.relu(a)
        return c + c

    old = workload(net(diamond), MATRIX[:1], form)
    assert not list(Subst(op.ReLU(x) + op.ReLU(y), x + y).match(old))
    same = op.ReLU(x)
    assert len(list(Subst(same + same, same * 2.0).match(old))) == 1


@pytest.mark.parametrize("half", [1_000, pytest.param(5_000, marks=pytest.mark.long)])
@pytest.mark.parametrize("form", ["traced", "untyped"])
def test_a_chain_ten_thousand_nodes_deep(form: str, half: int, own_recursion_limit: None) -> None:
    """11. Depth costs no recursion."""
    graph = torch.fx.Graph()
    value = graph.placeholder("x")
    for position in range(2 * half):
        value = graph.call_function((torch.relu, torch.neg)[position % 2], (value,))
    graph.output(value)
    module = torch.fx.GraphModule(nn.Module(), graph)
    inputs = (torch.randn(3),)
    assert sys.getrecursionlimit() < 2 * half
    old = Workload.from_fx(module, inputs if form == "traced" else None)
    rule = Subst(-op.ReLU(x), op.Minimum(-x, 0.0 * x), name="step")
    assert sum(1 for _ in rule.match(old)) == half
    new = quietly(rule, old)
    assert new.trace.count("step") == half
    assert new.op_counts() == {"minimum": half, "multiply": half, "negative": half}
    assert str(new)
    agree(old, new, inputs)


def test_dropped_attribute_is_reported() -> None:
    """12. A padding that is never mentioned, and its mend."""
    w = pat.Variable()
    conv = op.Conv2D(x, w, strides=(1, 1), dilation=(1, 1), groups=1)
    with pytest.warns(DroppedAttributeWarning, match=r"leaves 'padding'.* of nn\.conv2d free.*conv2d\.like"):
        rule = Subst(-conv, op.Conv2D(x, -w))
    image = (torch.randn(1, 2, 6, 6),)
    for padding, fires in ((0, 1), (1, 0)):
        layer = nn.Conv2d(2, 3, 3, padding=padding, bias=False)
        old = workload(net(lambda net, a: -net.conv(a), conv=layer), image)
        new = rule(old)
        assert new.trace.count() == fires
        agree(old, new)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mended = Subst(-conv, conv.like(x, -w))
    assert mended(old).trace.count() == 1
    agree(old, mended(old))
