"""Rules and explanations as drawings."""

from __future__ import annotations

import pytest

from gsl import Subst, attr_eq, dup, fork_to, is_op, op, pat, wildcard
from gsl.draw import clipped
from gsl.rules import MODULE_FUSION, RULES
from tests.helpers.drawings import texts, view

A, W, B = wildcard(), pat.Param(), pat.Param()
CONV = op.Conv2D(A, W)
TANH = is_op("tanh")
PAIR = is_op("nn.conv2d") >> is_op("nn.relu")
MORE: dict[str, tuple[Subst, tuple[str, ...]]] = {
    "fork": (Subst(fork_to(attr_eq(PAIR, dup(PAIR))), lambda m: list(m.outputs)),
             ("nn.conv2d(…)", "only", "output 1", "made by a function")),
    "chain": (Subst(A.used_by(pat.Repeat(is_op("reshape"), min=2)), A), ("chain of 2 or more", "reshape(…)")),
    "alternatives": (Subst(pat.Maybe(op.ReLU(CONV), on=CONV) + 1.0, CONV), ("one of", "1", "2", "as matched")),
    "leaves": (Subst(op.ReLU(op.Add(A, pat.Param() | pat.Const())), op.ReLU(A)), ("Param or Const",)),
    "negation": (Subst(op.ReLU(op.Add(A, ~pat.Const())), A), ("anything but", "Const")),
    "group": (Subst(op.ReLU(CONV), pat.Fused("mine", units=CONV.strides)), ("group 'mine'", "units=%0.strides")),
    "operand": (Subst(A.used_by(is_op("add"), index=1), A), ("[1]",)),
    "both": (Subst(op.ReLU(A).has_shape((None, 3)), A), ("both",)),
    "like": (Subst(CONV, CONV.like(A, op.Exp(W))), ("like %0", "exp")),
    "relations": (Subst(TANH, lambda m: list(m.outputs), where=[TANH.uniq(), TANH.is_output()]),
                  ("where %0.uniq()", "where %0.is_output()", "tanh(…)  %0")),
    "conditions": (Subst(CONV, A, where=CONV.strides[0] == 1, extern_use=False),
                   ("where %0.strides[0] == 1", "each inner node is not used elsewhere")),
}  # fmt: skip


@pytest.mark.parametrize("name", MORE)
def test_a_rule_is_drawn(name: str) -> None:
    rule, expected = MORE[name]
    shown = " ".join(texts(rule.visualize().svg))
    for text in ("source", "target", "output", *expected):
        assert text in shown


@pytest.mark.parametrize("name", RULES)
def test_every_rule_of_the_book_is_drawn(name: str) -> None:
    rule = RULES[name]
    svg = rule.visualize().svg
    shown = " ".join(texts(svg))
    for pattern in rule.plan.patterns:
        if isinstance(pattern, pat.Call):
            assert clipped(pattern.label, 46) in shown
    for guard in rule.source.guards:
        assert "where" in shown, guard


def test_rules_that_make_modules_are_drawn() -> None:
    for rule in MODULE_FUSION:
        assert "module by" in " ".join(texts(rule.visualize().svg))


def test_a_rule_written_by_attributes_says_so_in_a_line() -> None:
    v, w = pat.Param(), pat.Param()
    first = op.Conv2D(A, v)
    second = op.Conv2D(A, w, **pat.same_attr(first, ["strides", "padding"]))
    assert "strides, padding as in %0" in texts(Subst([first, second], [first, second]).visualize().svg)


EXPLAINED: dict[str, tuple[Subst, tuple[str, ...], tuple[str, ...]]] = {
    "a condition": (Subst(op.ReLU(op.Conv2D(A, pat.Param(shape=(8, None, None, None)))), A),
                    ("shape[0]: expected 8, found 4", "what does not fit"), ("!",)),
    "no such operator": (Subst(op.ReLU(op.Cos(A)), A), ("the graph has no call of cos",), ("!",)),
    "refused": (Subst(op.Exp(A), op.Sum(A, axis=1)), ("refused: %exp is",), ("1 !",)),
    "a match": (Subst(op.Exp(A), op.Tanh(A)), ("1 match",), ("1", "2")),
}  # fmt: skip


@pytest.mark.parametrize("case", EXPLAINED)
def test_an_explanation_is_drawn(case: str) -> None:
    rule, lines, tags = EXPLAINED[case]
    explanation = rule.explain(view())
    shown = texts(explanation.visualize().svg)
    for line in lines:
        assert line in " ".join(shown)
    for tag in tags:
        assert tag in shown
    html = explanation._repr_html_()
    assert html.startswith("<pre>")
    assert str(explanation.visualize()._repr_svg_()) in html


def test_a_match_that_fits_has_no_mark_of_failure() -> None:
    shown = texts(EXPLAINED["a match"][0].explain(view()).visualize().svg)
    assert "what does not fit" not in shown
    assert not [text for text in shown if text.endswith("!")]
