"""``gsl match``, ``gsl explain``, ``gsl list`` and ``gsl draw``: what they print, write and return."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.cli.conftest import Run

TABLE = """\
rule     replaces  covers
to silu  %mul      %mul, %sigmoid
refused  %relu     %relu
wrong    %relu     %relu
grows    %relu     %relu

4 of 7 rules match, 4 matches in all
"""


def test_match(here: Path, gsl: Run) -> None:
    assert gsl("match", "mine.py", "model.pt2") == (0, TABLE, "")
    assert gsl("match", "mine.py:idle", "model.pt2") == (1, "0 of 1 rule match, no match\n", "")


def test_match_shows_the_names(here: Path, gsl: Run) -> None:
    code, out, _ = gsl("match", "mine.py:swish", "model.pt2", "--graph")
    assert code == 0
    assert "%mul: float32[2, 8] = multiply(%linear" in out.partition("\n\nrule")[0]


def test_match_as_json(here: Path, gsl: Run) -> None:
    code, out, _ = gsl("match", "mine.py:swish,idle", "model.pt2", "--json")
    silu, idle = json.loads(out)["rules"]
    assert code == 0
    assert (silu["rule"], silu["complete"], idle["matches"]) == ("to silu", True, [])
    (match,) = silu["matches"]
    assert (match["replaces"], match["covers"]) == (["mul"], ["mul", "sigmoid"])
    assert {bound["pattern"]: bound["node"] for bound in match["bound"]}["Wildcard"].startswith("linear")


def test_match_has_a_limit(here: Path, gsl: Run) -> None:
    (here / "all.py").write_text(
        "from gsl import *\nx, w = pat.Wildcard(), pat.Wildcard()\nd = op.Dense(x, w)\n"
        "rule = Subst(d, d.like(x, w), name='dense')\n"
    )
    code, out, _ = gsl("match", "all.py", "model.pt2", "--limit", "1")
    assert code == 0
    assert out.splitlines()[2].split() == ["dense", "…", "--limit", "shows", "more", "than", "1"]
    assert out.endswith("1 of 1 rule match, 1 match in all\n")


def test_explain(here: Path, gsl: Run) -> None:
    code, out, err = gsl("explain", "mine.py:near", "model.pt2", "--rule")
    assert (code, err) == (1, "")
    assert out == """\
near
  source %1
    x0 = Wildcard
    %0 = tanh(x0)
    %1 = multiply(x0, %0)
  target x0

near (mine.py:8): no match
  the graph has no call of tanh
  1. 2 of 3 patterns matched, then
     tanh(Wildcard) (mine.py:8)
     at %sigmoid
     operator: expected tanh, found sigmoid
"""
    assert gsl("explain", "mine.py:swish", "model.pt2") == (0, "to silu (mine.py:4): 1 match\n", "")


def test_pattern(here: Path, gsl: Run) -> None:
    """What is printed is a file of rules, but for the rule."""
    code, out, err = gsl("pattern", "model.pt2", "mul", "--inputs", "linear")
    assert (code, out, err) == (0, """\
linear = pat.Wildcard()
sigmoid = op.Sigmoid(linear)
mul = linear * sigmoid
""", "")
    (here / "new.py").write_text(f"from gsl import *\n\n{out}rule = Subst(mul, op.SiLU(linear))\n")
    assert gsl("explain", "new.py", "model.pt2")[0] == 0
    code, out, err = gsl("pattern", "model.pt2", "nothing")
    assert (code, out) == (2, "")
    assert "has no node 'nothing'" in err
    code, out, _ = gsl("explain", "mine.py:refused", "model.pt2")
    assert (code, "each of them refused" in out) == (1, True)


def test_explain_as_json(here: Path, gsl: Run) -> None:
    code, out, _ = gsl("explain", "mine.py:near", "model.pt2", "--json", "--nearest", "1")
    found = json.loads(out)
    assert (code, found["matches"], found["absent"]) == (1, 0, ["tanh"])
    (miss,) = found["nearest"]
    assert (miss["matched"], miss["at"], miss["written"]) == (2, "sigmoid", "mine.py:8")
    assert miss["reason"] == "operator: expected tanh, found sigmoid"


def test_explain_is_about_one_rule(here: Path, gsl: Run) -> None:
    code, out, err = gsl("explain", "mine.py", "model.pt2")
    assert (code, out) == (2, "")
    assert err == "gsl: error: mine.py has 7 rules; name the one that is meant, as in 'mine.py:to silu'\n"
    _, _, err = gsl("explain", "rules:BOOK", "model.pt2")
    assert err == "gsl: error: rules:BOOK has 21 rules; name the one that is meant, as in rules:transpose-transpose\n"
    assert gsl("explain", "theirs.txt", "model.pt2")[0] == 1


def test_rules_of_one_name(here: Path, gsl: Run) -> None:
    (here / "two.py").write_text(
        "from gsl import *\nx = pat.Wildcard()\none = Subst(op.ReLU(x), x, name='a::b')\n"
        "other = Subst(op.Sigmoid(x), x, name='a::b')\n"
    )
    told = "two rules are named 'a::b', at two.py:3 and at two.py:4: rename one, or choose one by its variable"
    for command in ("apply two.py model.pt2 -o new.pt2", "draw model.pt2 -o new.dot --rules two.py"):
        assert gsl(*command.split()) == (2, "", f"gsl: error: {told}\n")
    code, _, err = gsl("explain", "two.py:a::b", "model.pt2")
    assert (code, err) == (
        2, "gsl: error: two.py:a::b has 2 rules of one name; name the variable of the one that is meant\n"
    )  # fmt: skip
    assert gsl("explain", "two.py:other", "model.pt2")[0] == 0


def test_list(here: Path, gsl: Run) -> None:
    code, out, err = gsl("list", "mine.py:swish,right", "fusion.yaml")
    assert (code, err) == (0, "")
    assert out == """\
rule               priority  what it does
to silu            2         x sigmoid(x) = silu(x)
idle               0         at mine.py:7
tail               0         at fusion.yaml:1
tail without skip  0         at fusion.yaml:1

rule set       rules  strategy
mine.py:right  2      priority

4 rules
"""


def test_list_in_full(here: Path, gsl: Run) -> None:
    code, out, _ = gsl("list", "mine.py:swish", "-v")
    assert code == 0
    assert out == """\
to silu (mine.py:4, priority 2)
  x sigmoid(x) = silu(x)
  source %1
    x0 = Wildcard
    %0 = sigmoid(x0)
    %1 = multiply(x0, %0)
  target %2
    %2 = silu(x0)
"""


def test_list_as_json(here: Path, gsl: Run) -> None:
    code, out, _ = gsl("list", "rules:BOOK", "--json")
    found = json.loads(out)
    assert code == 0
    assert all(rule["doc"] and rule["text"].startswith(rule["rule"]) for rule in found["rules"])
    (book,) = found["sets"]
    assert (book["name"], book["rules"]) == ("rules:BOOK", [rule["rule"] for rule in found["rules"]])


def test_list_of_a_set_that_needs_torch(here: Path, gsl: Run) -> None:
    code, out, _ = gsl("list", "rules:QUANTISED,reshape-identity")
    assert code == 0
    assert "\nrules:QUANTISED  " in out
    assert "reshape-identity" in out


# Drawings


def test_draw(here: Path, gsl: Run) -> None:
    assert gsl("draw", "model.pt2", "-o", "graph.svg") == (0, "wrote graph.svg\n", "")
    text = "".join(ElementTree.parse(here / "graph.svg").getroot().itertext())
    assert "sigmoid" in text
    assert "up.weight" in text
    gsl("draw", "model.pt2", "-o", "graph.svg", "--no-weights")
    assert "up.weight" not in (here / "graph.svg").read_text()
    assert gsl("draw", "model.pt2", "-o", "graph.dot")[0] == 0
    assert (here / "graph.dot").read_text().startswith("digraph")


def test_draw_what_rules_match(here: Path, gsl: Run) -> None:
    code, out, err = gsl("draw", "model.pt2", "-o", "graph.svg", "--rules", "mine.py:swish,idle", "--depth", "all")
    assert (code, out, err) == (0, "to silu  matches  1  times\n\nwrote graph.svg\n", "")
    assert "to silu" in (here / "graph.svg").read_text()


def test_draw_before_and_after(here: Path, gsl: Run) -> None:
    code, out, err = gsl("draw", "model.pt2", "-o", "change.svg", "--rules", "mine.py:swish", "--after")
    assert (code, out, err) == (0, "to silu  fired  1  times\n\nwrote change.svg\n", "")
    text = (here / "change.svg").read_text()
    assert "before" in text
    assert "after" in text
    before = {path.name for path in here.iterdir()} - {"__pycache__"}
    code, out, _ = gsl("draw", "model.pt2", "-o", "none.svg", "--rules", "mine.py:idle", "--after")
    assert (code, out) == (1, "nothing was drawn, because no rule fired\n")
    assert {path.name for path in here.iterdir()} - {"__pycache__"} == before


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["-o", "graph.gif"], "graph.gif: the name of a drawing ends in .svg or .png or .pdf or .dot"),
        (["-o", "no/graph.svg"], "there is no folder no"),
        (["-o", "graph.png"], "drawings need pygraphviz, which is not installed: pip install 'gsl[viz]'"),
        (["-o", "graph.svg", "--after"], "--after and --iterative tell what to do with rules: give some with --rules"),
    ],
)
def test_what_cannot_be_drawn(
    arguments: list[str], text: str, here: Path, gsl: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pygraphviz", None)
    assert gsl("draw", "model.pt2", *arguments) == (2, "", f"gsl: error: {text}\n")
