"""Functions that decide what a match becomes."""

from __future__ import annotations

from typing import Any

import pytest

from gsl import op, pat
from gsl.errors import RewriteError
from gsl.graph.subgraph import Subgraph
from gsl.rulefile import FusionMatch
from tests.rulefile.views import rules, view

TEXT = """\
fast:
  priority: 3
  heuristic: FAST
  pattern:
    lin: {op_type: linear, child: more}
    more: {op_type: '.', match_multiple: true, required: false, child: act}
    act: {op_type: relu}
"""
GRAPH = "l = linear x; t = tanh l; s = sin t; r = relu s"


def applied(decide: Any, graph: str = GRAPH) -> tuple[list[str], list[str]]:
    """The operators behind the layer after the rule was applied, and why matches were refused."""
    after, trace = rules(TEXT, FAST=decide).apply(view(graph))
    return [str(node.op) for node in after if node.operands], [str(refused) for refused in trace.refused]


def test_it_gets_the_match_by_the_names_of_the_file() -> None:
    seen: list[FusionMatch] = []
    applied(seen.append)
    (match,) = seen
    assert list(match) == ["lin", "more", "act"]
    assert [match[name].name for name in match] == ["l", "s", "r"]
    assert {name: [node.name for node in match.covered(name)] for name in match} == {
        "lin": ["dense", "l"], "more": ["t", "s"], "act": ["r"],
    }  # fmt: skip
    assert [node.name for node in match.outputs] == ["r"]
    assert {node.name for node in match.inner} == {"dense", "l", "t", "s", "r"}
    assert match.rule.entry.priority == 3
    assert "act" in match
    assert "other" not in match
    with pytest.raises(KeyError, match="did you mean 'lin'"):
        match["line"]
    assert repr(match) == "<fast at %r>"


def test_an_entry_is_the_option_that_it_stands_for() -> None:
    seen: list[FusionMatch] = []
    text = TEXT.replace("act: {op_type: relu}", "act: {match_first_option: [silu0, relu0]}") + (
        "    silu0: {op_type: silu}\n    relu0: {op_type: relu}\n"
    )
    rules(text, FAST=seen.append).apply(view(GRAPH))
    (match,) = seen
    assert match["act"] is match["relu0"] is match.outputs[0]
    assert match.covered("act") == match.outputs
    assert "silu0" not in match
    assert match.get("silu0") is None
    with pytest.raises(KeyError, match="has no operator 'sliu0': did you mean 'silu0'"):
        match.get("sliu0")


def test_an_operator_that_is_absent() -> None:
    seen: list[FusionMatch] = []
    applied(seen.append, "l = linear x; r = relu l")
    (match,) = seen
    assert list(match) == ["lin", "act"]
    assert match.get("more") is None
    assert match.get("act") is match["act"]


def test_none_leaves_the_group() -> None:
    assert applied(lambda match: None) == (["fast"], [])


def test_a_string_refuses() -> None:
    operators, refused = applied(lambda match: f"only {len(match.inner)} nodes")
    assert operators == ["nn.dense", "nn.bias_add", "tanh", "sin", "nn.relu"]
    assert "only 5 nodes" in refused[0]


def test_patterns_and_nodes_of_the_match() -> None:
    assert applied(lambda match: op.Sigmoid(match["lin"]))[0] == ["nn.dense", "nn.bias_add", "sigmoid"]
    assert applied(lambda match: [match["more"]])[0] == ["nn.dense", "nn.bias_add", "tanh", "sin"]


def test_a_group_of_its_own() -> None:
    after, _ = rules(TEXT, FAST=lambda match: pat.Fused("mine", sequence=len(match.covered("more")))).apply(view(GRAPH))
    (call,) = [node for node in after if isinstance(node.op, Subgraph)]
    assert (call.op.name, dict(call.attrs)) == ("mine", {"sequence": 2})


def test_without_a_function_the_name_is_carried() -> None:
    after, _ = rules(TEXT).apply(view(GRAPH))
    (call,) = [node for node in after if isinstance(node.op, Subgraph)]
    assert dict(call.attrs) == {"priority": 3, "heuristic": "FAST"}


def test_its_errors_are_told() -> None:
    with pytest.raises(RewriteError, match=r"fast \(rules.yaml:1\): no target for .* ZeroDivisionError"):
        applied(lambda match: 1 / 0)
