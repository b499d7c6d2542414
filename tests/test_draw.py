"""How matches, explanations and traces show themselves."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from gsl import Match, RuleSet, Subst, is_op, op, pat, wildcard
from gsl.graph import Graph
from tests.helpers.graphs import Builder, graph

pytest.importorskip("graphviz")

MATCHED, BESIDE = 'fillcolor="#fbd9a5"', 'fontcolor="#8a8a8a"'


def view() -> Graph:
    def make(b: Builder) -> list[object]:
        x = b.input("x", 1, 4, 8, 8)
        conv = b.call("nn.conv2d", x, b.param("w", 4, 4, 1, 1))
        relu = b.call("nn.relu", conv)
        return [b.call("add", relu, 2.0), b.call("sigmoid", conv), b.call("exp", x)]

    return graph(make)  # type: ignore[arg-type]


def found(rule: Subst) -> Match:
    return next(rule.match(view()))


def line(source: str, label: str) -> str:
    """The statement of the node whose label starts like that."""
    return next(part for part in source.split("\n\t") if f'[label="{label}' in part)


def test_what_matched_is_coloured_and_labelled_with_its_pattern() -> None:
    x = wildcard()
    source = found(Subst(op.ReLU(op.Conv2D(x, pat.Param())), x)).visualize().source
    assert MATCHED in line(source, "nn.conv2d")
    assert "‹nn.conv2d(Wildcard, Param)›" in line(source, "nn.conv2d")
    assert MATCHED in line(source, "nn.relu")
    assert "penwidth=2.5" in line(source, "nn.relu")
    assert MATCHED not in line(source, "x")
    assert "‹Wildcard›" in line(source, "x")
    for neighbour in ("add", "sigmoid"):
        assert BESIDE in line(source, neighbour)
    assert '[label="exp' not in source  # a user of a leaf is no neighbour


def test_use_relations_are_not_labels() -> None:
    source = found(Subst(is_op("nn.conv2d") ^ is_op("nn.relu"), lambda m: list(m.outputs))).visualize().source
    assert "‹nn.relu(...)›" in source
    assert "^" not in source
    assert " > " not in source


def test_long_patterns_are_cut() -> None:
    x = wildcard()
    rule = Subst(op.Add(op.ReLU(op.Conv2D(x, pat.Param(shape=(None, None, 1, 1)))), 2.0), x)
    assert "…›" in line(found(rule).visualize().source, "add")


def test_a_drawing_is_written(tmp_path: Path) -> None:
    match = found(Subst(is_op("exp"), lambda m: list(m.outputs)))
    match.visualize(tmp_path / "match.dot")
    assert "digraph" in (tmp_path / "match.dot").read_text()


def test_without_dot_a_match_is_shown_as_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    match = found(Subst(is_op("exp"), lambda m: list(m.outputs)))
    assert match._repr_html_() == "<pre>exp(...) = %exp</pre>"


def test_without_the_package_a_match_is_shown_as_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "graphviz", None)
    assert "= %exp" in found(Subst(is_op("exp"), lambda m: list(m.outputs)))._repr_html_()


@pytest.mark.skipif(shutil.which("dot") is None, reason="needs graphviz's dot")
def test_with_dot_a_match_is_drawn() -> None:
    assert found(Subst(is_op("exp"), lambda m: list(m.outputs)))._repr_html_().startswith("<svg")


def test_explanations_and_traces_keep_their_lines() -> None:
    x = wildcard()
    rule = Subst(op.ReLU(op.Sigmoid(x)), op.Sigmoid(x), name="a<b")
    html = rule.explain(view())._repr_html_()
    assert html.startswith("<pre>a&lt;b")
    assert "\n" in html
    _, trace = RuleSet([Subst(op.Exp(x), op.ReLU(x), name="r")]).apply(view())
    assert trace._repr_html_() == f"<pre>{trace}</pre>".replace("->", "-&gt;")
