"""Every construct of a rule file: where it fires, and where it must not."""

from __future__ import annotations

import pytest

from gsl.graph.subgraph import Subgraph
from tests.rulefile.views import groups, pattern, rules, view

QKV = """\
gpt2_qkv:
  priority: 0
  heuristic: GPT2_QKV
  pattern:
    layer_norm: {op_type: layer_norm, child: lin1}
    lin1:       {op_type: linear, children: [relu0, optional_add]}
    optional_add: {op_type: add, required: false, child: relu1}
    relu0: {op_type: relu}
    relu1: {op_type: relu}
"""
CHAIN = pattern("a: {op_type: layer_norm, child: b}", "b: {op_type: linear, child: c}", "c: {op_type: relu}")
FORK = pattern("a: {op_type: exp, children: [b, c]}", "b: {op_type: tanh}", "c: {op_type: sigmoid}")
JOIN = pattern(
    "a: {op_type: exp, children: [b, c]}", "b: {op_type: tanh, child: d}", "c: {op_type: sigmoid, child: d}",
    "d: {op_type: mul}",
)  # fmt: skip
OPTION = pattern(
    "a: {op_type: linear, match_first_option: [b, c]}", "b: {op_type: silu, child: d}", "c: {op_type: relu, child: d}",
    "d: {op_type: exp}",
)  # fmt: skip
MORE = pattern(
    "a: {op_type: exp, child: b}", "b: {op_type: '.', match_multiple: true, child: c}", "c: {op_type: relu}"
)
RELUS = pattern(
    "a: {op_type: exp, child: b}", "b: {op_type: relu, match_multiple: true, child: c}", "c: {op_type: tanh}"
)
INVERTED = pattern(
    "a: {op_type: exp, child: b}", "b: {op_type: {inverted: True, options: [linear, relu]}, child: c}",
    "c: {op_type: tanh}",
)  # fmt: skip
OPTIONAL_END = pattern("a: {op_type: linear, child: b}", "b: {op_type: relu, required: false}")
TWO_OPTIONAL = pattern(
    "a: {op_type: exp, child: b}", "b: {op_type: relu, required: false, child: c}",
    "c: {op_type: tanh, required: false, child: d}", "d: {op_type: sigmoid}",
)  # fmt: skip
ACTIVATION = pattern(
    "lin: {op_type: linear, child: other_activation}", "other_activation: {match_first_option: [silu0, relu0]}",
    "silu0: {op_type: silu}", "relu0: {op_type: relu}",
)  # fmt: skip
CHAINS = pattern(
    "lin: {op_type: linear, child: act}", "act: {match_first_option: [b, c]}", "b: {op_type: sigmoid, child: d}",
    "d: {op_type: exp}", "c: {op_type: sigmoid, child: e}", "e: {op_type: tanh, child: f}", "f: {op_type: exp}",
)  # fmt: skip
CONTINUED = pattern(
    "lin: {op_type: linear, child: act}", "act: {match_first_option: [b, c], child: out}",
    "b: {op_type: silu, child: more}", "c: {op_type: relu}", "more: {op_type: tanh}", "out: {op_type: exp}",
)  # fmt: skip
NESTED = pattern(
    "inner: {match_first_option: [b, c], child: e}", "act: {match_first_option: [inner, d], child: f}",
    "a: {op_type: linear, child: act}", "b: {op_type: silu}", "c: {op_type: relu}", "d: {op_type: [relu, gelu]}",
    "e: {op_type: tanh}", "f: {op_type: exp}",
)  # fmt: skip
OPTIONAL_CHOICE = pattern(
    "a: {op_type: linear, child: act}", "act: {match_first_option: [b, c], required: false, child: d}",
    "b: {op_type: silu}", "c: {op_type: relu}", "d: {op_type: exp}",
)  # fmt: skip

FIRES = {
    "qkv, all of it": (QKV, "n = layer_norm x; l = linear n; r = relu l; o = one l; s = relu o", ["l n o r s"]),
    "qkv, nothing optional": (QKV, "n = layer_norm x; l = linear n; r = relu l; s = relu l", ["l n r s"]),
    "qkv, one relu": (QKV, "n = layer_norm x; l = linear n; r = relu l", []),
    "qkv, an end without its relu": (QKV, "n = layer_norm x; l = linear n; r = relu l; o = one l", []),
    "chain": (CHAIN, "n = layer_norm x; l = linear n; r = relu l", ["l n r"]),
    "chain without a bias": (CHAIN, "n = layer_norm x; l = dense n; r = relu l", ["l n r"]),
    "chain, another operator": (CHAIN, "n = layer_norm x; l = linear n; r = tanh l", []),
    "chain, more between": (CHAIN, "n = layer_norm x; t = tanh n; l = linear t; r = relu l", []),
    "chain, twice": (
        CHAIN, "n = layer_norm x; l = linear n; r = relu l; m = layer_norm r; k = linear m; s = relu k",
        ["l n r", "k m s"],
    ),
    "an inner value is used outside": (CHAIN, "n = layer_norm x; l = linear n; r = relu l; t = tanh n", []),
    "an inner value is returned": (CHAIN, "n* = layer_norm x; l = linear n; r = relu l", []),
    "an output is used twice": (CHAIN, "n = layer_norm x; l = linear n; r = relu l; s = tanh r; t = exp r", ["l n r"]),
    "children": (FORK, "e = exp x; t = tanh e; s = sigmoid e", ["e s t"]),
    "children in the other order": (FORK, "e = exp x; s = sigmoid e; t = tanh e", ["e s t"]),
    "a child is missing": (FORK, "e = exp x; s = sigmoid e", []),
    "a third user": (FORK, "e = exp x; t = tanh e; s = sigmoid e; u = sin e", []),
    "two children meet": (JOIN, "e = exp x; t = tanh e; s = sigmoid e; m = multiply s t", ["e m s t"]),
    "two children do not meet": (JOIN, "e = exp x; t = tanh e; s = sigmoid e; m = multiply s x; n = multiply t x", []),
    "the first option": (OPTION, "l = linear x; s = silu l; e = exp s", ["e l s"]),
    "the second option": (OPTION, "l = linear x; s = nn.relu l; e = exp s", ["e l s"]),
    "no option": (OPTION, "l = linear x; s = tanh l; e = exp s", []),
    "a list of operators": (
        pattern("a: {op_type: [relu, gelu], child: b}", "b: {op_type: tanh}"),
        "a = gelu x; b = tanh a; c = relu y; d = tanh c; e = silu x; f = tanh e", ["a b", "c d"],
    ),
    "any operator": (pattern("a: {op_type: ., child: b}", "b: {op_type: tanh}"), "a = sin x; b = tanh a", ["a b"]),
    "any operator is a whole layer": (
        pattern("a: {op_type: exp, child: b}", "b: {op_type: ., child: c}", "c: {op_type: tanh}"),
        "a = exp x; b = linear a; c = tanh b", ["a b c"],
    ),
    "any operator is no input": (pattern("a: {op_type: ., child: b}", "b: {op_type: tanh}"), "b = tanh x", []),
    "another operator": (INVERTED, "a = exp x; b = sin a; c = tanh b", ["a b c"]),
    "not that operator": (INVERTED, "a = exp x; b = relu a; c = tanh b", []),
    "not that layer": (INVERTED, "a = exp x; b = linear a; c = tanh b", []),
    "any, one": (MORE, "a = exp x; b = sin a; c = relu b", ["a b c"]),
    "any, many": (MORE, "a = exp x; b = sin a; c = linear b; d = tanh c; e = relu d", ["a b c d e"]),
    "any, none": (MORE, "a = exp x; b = relu a", []),
    "any up to the first relu": (MORE, "a = exp x; b = sin a; c = relu b; d = relu c", ["a b c"]),
    "no relu in the sequence": (MORE, "a = exp x; b = relu a; c = sin b; d = relu c", []),
    "one or more, one": (RELUS, "a = exp x; b = relu a; c = tanh b", ["a b c"]),
    "one or more, many": (RELUS, "a = exp x; b = relu a; c = relu b; d = relu c; e = tanh d", ["a b c d e"]),
    "one or more, none": (RELUS, "a = exp x; c = tanh a", []),
    "one or more, another between": (RELUS, "a = exp x; b = relu a; s = sin b; d = relu s; e = tanh d", []),
    "one or more, used in between": (RELUS, "a = exp x; b = relu a; c = relu b; e = tanh c; o = sin b", []),
    "one or more, of other values too": (
        MORE, "a = exp x; o = sin y; b = tanh a; c = add b o; d = relu c", ["a b c d"],
    ),
    "one or more, of two sides": (
        MORE, "a = exp x; o = sin y; b = tanh a; c = add o b; d = relu c; e = sin d", ["a b c d"],
    ),
    "one or more, which meet themselves": (MORE, "a = exp x; b = tanh a; o = sin b; c = add b o; d = relu c", []),
    "one or more layers": (
        pattern("a: {op_type: exp, child: b}", "b: {op_type: linear, match_multiple: true, child: c}",
                "c: {op_type: tanh}"),
        "a = exp x; b = linear a; c = linear b; d = tanh c", ["a b c d"],
    ),
    "one is enough where all may follow": (
        pattern("a: {op_type: relu, match_multiple: true, child: b}", "b: {op_type: relu, child: c}",
                "c: {op_type: tanh}"),
        "a = relu x; b = relu a; c = relu b; d = tanh c", ["b c d"],
    ),
    "an optional end": (OPTIONAL_END, "a = linear x; b = relu a", ["a b"]),
    "an optional end is absent": (OPTIONAL_END, "a = linear x; b = tanh a", ["a"]),
    "an optional end is used beside": (OPTIONAL_END, "a = linear x; b = relu a; c = tanh a", ["a"]),
    "two optional, both": (TWO_OPTIONAL, "a = exp x; b = relu a; c = tanh b; d = sigmoid c", ["a b c d"]),
    "two optional, the first": (TWO_OPTIONAL, "a = exp x; b = relu a; d = sigmoid b", ["a b d"]),
    "two optional, the second": (TWO_OPTIONAL, "a = exp x; c = tanh a; d = sigmoid c", ["a c d"]),
    "two optional, none": (TWO_OPTIONAL, "a = exp x; d = sigmoid a", ["a d"]),
    "two optional, the other order": (TWO_OPTIONAL, "a = exp x; c = tanh a; b = relu c; d = sigmoid b", []),
    "options among children": (
        pattern("a: {op_type: exp, children: [b, {match_first_option: [c, d]}]}", "b: {op_type: tanh}",
                "c: {op_type: silu}", "d: {op_type: relu}"),
        "a = exp x; b = tanh a; d = relu a", ["a b d"],
    ),
    "options of child": (
        pattern("a: {op_type: exp, child: {match_first_option: [c, d]}}", "c: {op_type: silu}", "d: {op_type: relu}"),
        "a = exp x; d = relu a", ["a d"],
    ),
    "an entry that is its first option": (ACTIVATION, "l = linear x; s = silu l", ["l s"]),
    "an entry that is its second option": (ACTIVATION, "l = linear x; r = relu l", ["l r"]),
    "an entry that is none of its options": (ACTIVATION, "l = linear x; t = tanh l", []),
    "an entry that is one of its options only": (ACTIVATION, "l = linear x; s = silu l; r = relu l", []),
    "an entry with one option": (
        pattern("a: {op_type: exp, child: b}", "b: {match_first_option: [c]}", "c: {op_type: relu}"),
        "a = exp x; c = relu a", ["a c"],
    ),
    "options with children, the first": (CHAINS, "l = linear x; s = sigmoid l; e = exp s", ["e l s"]),
    "options with children, the second": (
        CHAINS, "l = linear x; s = sigmoid l; t = tanh s; e = exp t", ["e l s t"],
    ),
    "options with children, none": (CHAINS, "l = linear x; s = sigmoid l; t = tanh s; e = sin t", []),
    "the first option where more than one leads to a match": (
        pattern("a: {op_type: exp, child: b}", "b: {match_first_option: [c, d]}", "c: {op_type: relu}",
                "d: {op_type: relu, child: e}", "e: {op_type: tanh}"),
        "a = exp x; d = relu a; e = tanh d", ["a d"],
    ),
    "children of an entry use the option": (CONTINUED, "l = linear x; r = relu l; e = exp r", ["e l r"]),
    "children of an entry and of its option": (
        CONTINUED, "l = linear x; s = silu l; e = exp s; t = tanh s", ["e l s t"],
    ),
    "children of an entry come not behind those of its option": (
        CONTINUED, "l = linear x; s = silu l; t = tanh s; e = exp t", [],
    ),
    "an option inside an option": (NESTED, "l = linear x; r = relu l; t = tanh r; e = exp r", ["e l r t"]),
    "the option beside an option inside": (NESTED, "l = linear x; r = relu l; e = exp r", ["e l r"]),
    "an entry that is the child of two": (
        pattern("a: {op_type: exp, children: [b, c]}", "b: {op_type: tanh, child: d}", "c: {op_type: relu, child: d}",
                "d: {match_first_option: [m, n]}", "m: {op_type: mul}", "n: {op_type: sub}"),
        "a = exp x; b = tanh a; c = relu a; n = subtract b c", ["a b c n"],
    ),
    "the root is one of several": (
        pattern("a: {match_first_option: [b, c], child: d}", "b: {op_type: exp}", "c: {op_type: sin}",
                "d: {op_type: relu}"),
        "b = exp x; r = relu b; c = sin y; s = relu c", ["b r", "c s"],
    ),
    "an entry is absent": (OPTIONAL_CHOICE, "a = linear x; d = exp a", ["a d"]),
    "an entry that may be absent is there": (OPTIONAL_CHOICE, "a = linear x; c = relu a; d = exp c", ["a c d"]),
    "an entry that may be absent is its second option": (
        pattern("a: {op_type: linear, child: act}", "act: {match_first_option: [b, c], required: false}",
                "b: {op_type: silu}", "c: {op_type: relu}"),
        "a = linear x; c = relu a", ["a c"],
    ),
    "an entry as an option of a child": (
        pattern("a: {op_type: exp, match_first_option: [b, e]}", "b: {match_first_option: [c, d]}",
                "c: {op_type: silu}", "d: {op_type: relu}", "e: {op_type: tanh}"),
        "a = exp x; b = relu a; c = exp y; d = tanh c", ["a b", "c d"],
    ),
    "an entry whose option is a row": (
        pattern("a: {op_type: exp, child: b}", "b: {match_first_option: [c, d], child: e}",
                "c: {op_type: [relu, silu], match_multiple: true}", "d: {op_type: sin}", "e: {op_type: tanh}"),
        "a = exp x; b = relu a; c = silu b; e = tanh c", ["a b c e"],
    ),
    "a child of an entry that is not there": (
        pattern("a: {op_type: exp, match_first_option: [act, b]}", "act: {match_first_option: [c], child: d}",
                "b: {op_type: tanh, child: c}", "c: {op_type: relu}", "d: {op_type: sin}"),
        "a = exp x; b = tanh a; c = relu b; d = sin y", ["a b c"],
    ),
    "a list of operands": (
        pattern("a: {op_type: exp, child: c}", "c: {op_type: cat, child: d}", "d: {op_type: relu}"),
        "a = exp x; c = cat a y; d = relu c", ["a c d"],
    ),
    "any operator takes a list": (
        pattern("a: {op_type: exp, child: c}", "c: {op_type: ., child: d}", "d: {op_type: relu}"),
        "a = exp x; c = cat y a; d = relu c", ["a c d"],
    ),
    "fields": (
        pattern("a: {op_type: split, children: [b, c]}", "b: {op_type: tanh}", "c: {op_type: exp}"),
        "a = split x; f = field a 0; g = field a 1; b = exp f; c = tanh g", ["a b c f g"],
    ),
    "a field is used outside": (
        pattern("a: {op_type: split, child: b}", "b: {op_type: tanh}"),
        "a = split x; f = field a 0; g = field a 1; b = tanh f; c = exp g", [],
    ),
    "ends in fields": (
        pattern("a: {op_type: linear, child: b}", "b: {op_type: split}"),
        "a = linear x; b = split a; f = field b 0; g = field b 1; m = multiply f g", ["a b"],
    ),
    "a field by name": (
        pattern("a: {op_type: split, children: [f, g]}", "f: {op_type: getitem, child: m}",
                "g: {op_type: getitem, child: m}", "m: {op_type: mul}"),
        "a = split x; f = field a 0; g = field a 1; m = multiply f g", ["a f g m"],
    ),
    "a product and its addition": (
        pattern("a: {op_type: addmm, child: b}", "b: {op_type: relu}"), "a = addmm x; b = relu a", ["a b"],
    ),
    "a linear layer is an addmm": (
        pattern("a: {op_type: addmm, child: b}", "b: {op_type: relu}"), "a = linear x; b = relu a", ["a b"],
    ),
    "a product alone is no addmm": (
        pattern("a: {op_type: addmm, child: b}", "b: {op_type: relu}"), "a = matmul x y; b = relu a", [],
    ),
    "a product and an addition is one": (
        pattern("a: {op_type: addmm, child: b}", "b: {op_type: relu}"), "a = matmul x x; b = add a y; c = relu b",
        ["a b c"],
    ),
    "a layer is not left by its bias": (
        pattern("a: {op_type: exp, child: b}", "b: {op_type: linear}"), "a = exp x; b = linear a", ["a b"],
    ),
    "canonical names are one node": (
        pattern("a: {op_type: nn.dense, child: b}", "b: {op_type: nn.bias_add}"), "a = linear x", ["a"],
    ),
    "a canonical product does not take the bias": (
        pattern("a: {op_type: nn.dense, child: b}", "b: {op_type: nn.relu}"), "a = linear x; b = relu a", [],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("text", "graph", "expected"), FIRES.values(), ids=FIRES.keys())
def test_where_a_rule_fires(text: str, graph: str, expected: list[str]) -> None:
    assert sorted(groups(rules(text), view(graph))) == sorted(expected)


ALTERNATIVES = """\
r:
  pattern1: {a: {op_type: exp, child: b}, b: {op_type: relu}}
  pattern2: {a: {op_type: exp, child: b}, b: {op_type: relu, child: c}, c: {op_type: tanh}}
"""


def test_alternatives_and_the_larger_first() -> None:
    assert [rule.name for rule in rules(ALTERNATIVES)] == ["r pattern2", "r pattern1"]
    assert groups(rules(ALTERNATIVES), view("a = exp x; b = relu a; c = tanh b")) == ["a b c"]
    assert groups(rules(ALTERNATIVES), view("a = exp x; b = relu a; c = sin b")) == ["a b"]


def test_the_higher_priority_wins_where_rules_overlap() -> None:
    text = """\
    large: {priority: 1, pattern: {a: {op_type: exp, child: b}, b: {op_type: relu, child: c}, c: {op_type: tanh}}}
    small: {priority: %d, pattern: {b: {op_type: relu, child: c}, c: {op_type: tanh}}}
    """
    graph = view("a = exp x; b = relu a; c = tanh b")
    assert groups(rules(text % 0), graph) == ["a b c"]
    assert groups(rules(text % 2), graph) == ["b c"]
    assert groups(rules(text % 1), graph) == ["a b c"]  # among equals, the one that stands first


def test_a_group_carries_name_priority_and_heuristic() -> None:
    after, trace = rules(QKV).apply(view("n = layer_norm x; l = linear n; r = relu l; s = relu l"))
    (call,) = [node for node in after if isinstance(node.op, Subgraph)]
    assert (call.op.name, dict(call.attrs)) == ("gpt2_qkv", {"priority": 0, "heuristic": "GPT2_QKV"})
    assert trace.summary() == {"gpt2_qkv without optional_add": 1}
    after, _ = rules(CHAIN).apply(view("n = layer_norm x; l = linear n; r = relu l"))
    (call,) = [node for node in after if isinstance(node.op, Subgraph)]
    assert (call.op.name, dict(call.attrs)) == ("r", {"priority": 0})


def test_a_repetition_does_not_fuse_what_is_fused() -> None:
    text = pattern("a: {op_type: ., child: b}", "b: {op_type: .}")
    after, trace = rules(text).apply(view("a = exp x; b = relu a; c = tanh b; d = sin c"), iterative=True)
    assert trace.summary() == {"r": 2}
    assert all(isinstance(node.op, Subgraph) for node in after if node.operands)


def test_explain_names_the_line_of_the_file() -> None:
    explanation = str(rules(CHAIN).explain(view("n = layer_norm x; l = linear n; r = tanh l; s = relu n")))
    assert explanation.startswith("r (rules.yaml:1): no match")
    assert "(rules.yaml:5)" in explanation
    assert "found %r (tanh)" in explanation


def test_the_forms_of_a_rule_in_their_order() -> None:
    assert [rule.name for rule in rules(TWO_OPTIONAL)] == ["r", "r without c", "r without b", "r without b, c"]
    assert [rule.name for rule in rules(OPTION)] == ["r with b", "r with c"]
    assert [rule.name for rule in rules(ACTIVATION)] == ["r with silu0", "r with relu0"]
    assert [rule.name for rule in rules(NESTED)] == ["r with inner, b", "r with inner, c", "r with d"]
    assert [rule.name for rule in rules(OPTIONAL_CHOICE)] == ["r with b", "r with c", "r without act"]
