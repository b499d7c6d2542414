"""Writing use relations: what they are, how they print, what is refused, and copies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gsl import Subst, attr, attr_eq, dup, fork_to, is_op, is_tuple, is_tuple_get_item, is_var, make, op, pat, wildcard
from gsl.errors import PatternError
from gsl.pat import Pattern, Repeat, Seq, walk

conv, bias, relu, add = (is_op(name) for name in ("nn.conv2d", "nn.bias_add", "nn.relu", "add"))
x, y = wildcard(), wildcard()
either = op.Exp(x) | op.Negative(x)


def keep(match: Any) -> Any:
    return list(match.outputs)


@pytest.mark.parametrize(
    ("written", "text"),
    [
        (conv >> bias >> relu, "nn.conv2d >> nn.bias_add >> nn.relu"),
        (conv >> bias > relu, "nn.conv2d >> nn.bias_add > nn.relu"),
        ((conv > bias) > relu, "nn.conv2d > nn.bias_add > nn.relu"),
        (conv ^ bias ^ relu, "nn.conv2d > nn.bias_add > nn.relu"),
        (conv.only_used_by(bias.used_by(relu)), "nn.conv2d >> nn.bias_add > nn.relu"),
        (conv.used_by(add, 1) >> relu, "nn.conv2d.used_by(add, 1) >> nn.relu"),
        ((conv > relu).used_by(add, 0), "(nn.conv2d > nn.relu).used_by(add, 0)"),
        (conv.uniq() > add, "nn.conv2d.uniq() > add"),
        (conv > relu.extern_use(False), "nn.conv2d > nn.relu.extern_use(False)"),
        (conv > relu.uniq().is_output(), "nn.conv2d > nn.relu.uniq().is_output()"),
        (x > add, "Wildcard > add"),
        (2 ^ add, "Const(2) > add"),
        (2 >> add, "Const(2) >> add"),
        (conv > ~is_op("cast"), "nn.conv2d > ~cast(...)"),
        (y > pat.Repeat(is_op("reshape"), min=2), "Wildcard > Repeat(reshape(...), min=2)"),
        (op.ReLU(conv >> bias), "nn.relu(nn.conv2d >> nn.bias_add)"),
        (is_op("add")(x, 1), "add(Wildcard, Const(1))"),
        (conv.optional(is_op("nn.relu")), "(nn.relu(nn.conv2d(...)) | nn.conv2d(...))"),
        (is_tuple([x, y]), "Tuple(Wildcard, Wildcard)"),
        (is_tuple_get_item(x, 1), "Wildcard[1]"),
        (is_var(dtype="float32"), "Variable(dtype='float32')"),
    ],
)
def test_text(written: Pattern, text: str) -> None:
    assert repr(written) == text


def test_a_long_sequence_is_cut() -> None:
    whole: Pattern = is_op("tanh")
    for _ in range(500):
        whole = whole >> is_op("tanh")
    assert repr(whole) == " >> ".join(["tanh"] * 5 + ["…"] + ["tanh"] * 5)


@pytest.mark.parametrize("given", ["nn.relu", "relu", op.ReLU, pat.OneOf("relu", "tanh")])
def test_operators_in_any_form(given: Any) -> None:
    assert isinstance(is_op(given), pat.Call)


def q_twice() -> Any:
    q = relu.uniq()
    return Subst(op.Tanh(q) + op.Sigmoid(q), keep)


def q_in_a_group() -> Any:
    return relu.uniq().fork_to(is_op("tanh"), is_op("sigmoid"))


def q_in_where() -> Any:
    return Subst(add, keep, where=[relu.uniq() > add, relu > is_op("tanh")])


@pytest.mark.parametrize(
    ("write", "text"),
    [
        (lambda: bool(conv > relu), "write (a > b) > c or a ^ b ^ c"),
        (lambda: conv > bias > relu, "write (a > b) > c or a ^ b ^ c"),
        (lambda: conv < relu, "a < b is no use relation: write b > a"),
        (lambda: pat.Wildcard() < pat.Param(), "a < b is no use relation"),
        (lambda: pat.Param() < pat.Wildcard(), "a < b is no use relation"),
        (lambda: (conv | relu) < pat.Maybe(op.ReLU(x), on=x), "a < b is no use relation"),
        (lambda: 2 > add, "2 can't be related to add by < or >: write pat.Const(2) > …"),  # noqa: SIM300
        (lambda: add < 2, "2 can't be related to add by < or >"),
        (lambda: add > 2, "Const(2) has no operands, so it can't use add(...)"),
        (lambda: x > pat.Param(), "Param has no operands, so it can't use Wildcard"),
        (lambda: relu > relu, "nn.relu(...) can't be an operand of itself"),
        (lambda: conv.used_by(add, True), "index= takes the position of an operand, 0 or more, got True"),
        (lambda: conv.used_by(add, -1), "index= takes the position of an operand, 0 or more, got -1"),
        (lambda: conv.used_by(add, 2), "add has no operand 2: it takes 2"),
        (lambda: conv.extern_use(1), "extern_use takes True or False, got 1"),
        (lambda: fork_to(conv), "fork_to takes two patterns or more, got 1"),
        (lambda: attr_eq(conv, relu), "the operators of pattern 1 are nn.conv2d, and those of pattern 2 nn.relu"),
        (lambda: attr_eq(conv, dup(conv), names="stride"), "no attribute 'stride': did you mean 'strides'"),
        (lambda: conv.has_attr(stride=1), "nn.conv2d has no attribute 'stride'"),
        (lambda: pat.Maybe(op.ReLU(x), on=y), "pat.Maybe: nn.relu(Wildcard) is not built on Wildcard"),
        (lambda: pat.Maybe(x, on=x), "pat.Maybe: Wildcard is not built on Wildcard"),
        (lambda: pat.Repeat(relu, min=0), "min= takes a number of nodes, 1 or more, got 0"),
        (lambda: pat.Repeat(relu, 3, 2), "max=2 is less than min=3"),
        (lambda: dup(3), "dup copies a pattern or a group, got 3"),
        (lambda: make(-1, conv), "make takes the number of copies, got -1"),
        (lambda: make(2.0, conv), "make takes the number of copies, got 2.0"),  # type: ignore[arg-type]
        (q_twice, "to have one user, but is used by"),
        (q_in_a_group, "to have one user, but is used by"),
        (q_in_where, "to have one user, but is used by"),
        (lambda: Subst(add, keep, where=relu.uniq()), "is not part of the source"),
        (lambda: Subst(add, keep, where=attr_eq(relu, dup(relu))), "is not part of the source"),
        (lambda: Subst(add, keep, where=relu > is_op("tanh")), "is not connected with the others"),
        (lambda: Subst(~relu, keep, where=relu.uniq()), "is part of a negation only: say it there"),
        (lambda: Subst(y > pat.Repeat(relu), keep, where=relu.uniq()), "is a template, of which there are many"),
        (lambda: Subst(op.Tanh(pat.Repeat(relu)), op.Tanh(relu)), "is a template, of which there are many: refer to"),
        (lambda: Subst(pat.Repeat(either), pat.Match(either, [y, y])), "is a template, of which there are many: refer"),
        (lambda: Subst([op.ReLU(x) | op.Sigmoid(y), x + 1], keep), "the alternative sigmoid(Wildcard) of"),
    ],
)  # fmt: skip
def test_refused(write: Callable[[], Any], text: str) -> None:
    with pytest.raises(PatternError) as caught:
        write()
    message = str(caught.value)
    assert text in message
    assert "test_building.py:" in message


def test_relations_that_a_type_error_is_for() -> None:
    with pytest.raises(TypeError, match="no truth value"):
        _ = conv > bias > relu
    with pytest.raises(TypeError, match="write b > a"):
        _ = conv < relu


def test_no_class_of_patterns_is_asked_first() -> None:
    """Python asks the right side of ``a > b`` first where its class is a subclass of the left side's. A segment is no
    node, and stands in no such relation."""
    kinds = [getattr(pat, name) for name in pat.__all__]
    others = (Pattern, pat.Leaf, pat.Segment)
    kinds = [k for k in kinds if isinstance(k, type) and issubclass(k, Pattern) and k not in others]
    assert not [(a, b) for a in kinds for b in kinds if a is not b and issubclass(a, b)]
    alt, maybe = conv | relu, pat.Maybe(op.ReLU(x), on=x)
    for left, right in ((alt, maybe), (maybe, alt), (pat.Param(), x), (pat.Variable(), x)):
        relation = left > right
        assert (relation.head, relation.tail) == (left, right)


def test_a_user_of_uniq_in_an_alternative_does_not_count() -> None:
    q = relu.uniq()
    Subst(op.Tanh(q) | op.Sigmoid(q), keep)
    t = is_op("tanh")
    Subst(q > t, keep, where=[q > t, q >> t])  # the same user again
    Subst(op.Tanh(q) + op.Sigmoid(relu | add), keep)


# Copies


def test_a_copy_is_made_of_new_patterns_with_the_same_structure() -> None:
    shared = op.ReLU(x)
    whole = op.Conv2D(shared, pat.Param(), strides=(1, 1)) >> (is_op("add")(shared, x).uniq() > pat.Repeat(relu, min=2))
    copied = dup(whole)
    assert repr(copied) == repr(whole)
    before, after = list(walk(whole)), list(walk(copied))
    assert not set(before) & set(after)
    assert [type(p) for p in before] == [type(p) for p in after]
    assert [[before.index(c) for c in p.children()] for p in before] == [
        [after.index(c) for c in p.children()] for p in after
    ]
    assert [type(c) for c in copied.constraints] == [type(c) for c in whole.constraints]
    assert {p for c in copied.constraints for p in c.patterns()} <= set(after)


def test_expressions_of_a_copy_refer_to_the_copies_and_to_what_is_outside() -> None:
    outer = op.Conv2D(x, pat.Param())
    first = op.LeakyReLU(x)
    pair = op.LeakyReLU(first, alpha=first.alpha, shape=outer.shape)
    copied = dup(pair)
    (inner,) = (p for p in walk(copied) if isinstance(p, pat.Call) and p is not copied)
    read = {node.pattern for node in copied.expressions()}  # type: ignore[attr-defined]
    assert read == {inner, outer}
    with pytest.raises(TypeError):
        copied.attrs["alpha"] = None  # type: ignore[index]


def test_a_copy_of_a_group_has_its_constraints() -> None:
    group = x.fork_to(relu.uniq(), is_op("tanh"))
    copied = dup(group)
    assert len(copied) == 2
    assert len(copied.constraints) == len(group.constraints)
    assert not {p for c in copied.constraints for p in c.patterns()} & {x, relu, *group}
    assert len(make(3, group)) == 3
    assert make(0, group) == []


def test_members_without_constraints_are_copied_too() -> None:
    group = attr_eq(x[0], x[1])
    assert not group.constraints
    assert not set(dup(group)) & set(group)


def test_a_copy_has_the_symbols_of_what_is_copied() -> None:
    index = attr.Symbol()
    copied = dup(pat.Variadic(op.Mean(x, axis=index), index=index, length=2))
    assert copied.symbol is index.ast
    assert copied.field.axis.ast.symbols == copied.field.free_symbols == {index.ast}


def test_a_copy_of_a_deep_pattern() -> None:
    deep: Pattern = x
    for _ in range(5000):
        deep = op.ReLU(deep)
    assert sum(1 for _ in walk(dup(deep))) == 5001


def test_a_copy_refers_to_what_is_copied_after_it() -> None:
    copied = dup(op.Subtract(pat.Wildcard(shape=x.shape), x))
    first, second = copied.operands
    assert {node.pattern for node in first.expressions()} == {second}  # type: ignore[attr-defined]


def test_a_sequence_stands_for_its_tail_and_its_head() -> None:
    chain = conv >> relu
    assert (chain.head, chain.tail) == (conv, relu)
    both = chain > (bias > add)
    assert [(use.operand, use.user, use.only) for use in both.uses] == [
        (conv, relu, True), (relu, bias, False), (bias, add, False),
    ]  # fmt: skip
    assert isinstance(both, Seq)
    assert not any(isinstance(part, Seq) for part in both.spine)
    assert Repeat(relu).length is not None
