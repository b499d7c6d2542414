"""Rule files: what is read applies and is written back the same; what is refused tells the place."""

from __future__ import annotations

import re
from typing import Any

import yaml
from hypothesis import event
from hypothesis import strategies as st

from gsl import RuleSet
from gsl.errors import RuleFileError
from gsl.graph import Graph
from gsl.rewrite.apply import apply
from gsl.rulefile import read_text, rules_of
from tests.fuzz.target import target
from tests.match.random_cases import graphs
from tests.rewrite.checks import faults
from tests.rulefile.test_laws import files

WORDS = (
    "relu", "tanh", "add", ".", "linear", "nonsense", "", "pattern", "pattern1", "pattern2", "op_type", "child",
    "children", "match_first_option", "match_multiple", "required", "inverted", "options", "priority", "heuristic",
    "n0", "n1", "n2",
)  # fmt: skip
SCALARS: tuple[Any, ...] = (*WORDS, None, True, False, 0, -1, 3, 1.5, 10**30, "0x10", [], {})
CHARACTERS = "abr:{}[],-&*!|>'\"\n #.?%@`\t0~é\x00"


def changed(data: st.DataObject, value: Any) -> Any:
    """A tree of YAML with one place changed."""

    def of(*choices: Any) -> Any:
        return data.draw(st.sampled_from(choices))

    inside = isinstance(value, (dict, list)) and len(value) > 0
    if not inside or of(False, False, False, False, True):
        return of(*SCALARS, [value], {"pattern": value}, {of(*WORDS): value})
    copy = value.copy()
    key = of(*copy) if isinstance(copy, dict) else of(*range(len(copy)))
    match of("inside", "inside", "inside", "drop", "add", "rename"):
        case "inside":
            copy[key] = changed(data, copy[key])
        case "drop":
            del copy[key]
        case "add" if isinstance(copy, dict):
            copy[of(*WORDS)] = of(copy[key], *SCALARS)
        case "rename" if isinstance(copy, dict):
            copy = {of(*WORDS) if name == key else name: item for name, item in copy.items()}
        case _ if isinstance(copy, list):
            copy.append(copy[key])
    return copy


def text_of(data: st.DataObject) -> str:
    """The text of a file: a good one, one of which some values are changed, or some characters, or any text."""
    kind = data.draw(st.sampled_from(["good", "values", "values", "values", "characters", "text"]))
    if kind == "text":
        return data.draw(st.text(max_size=40))
    text = data.draw(files())
    if kind == "values":
        tree = yaml.safe_load(text)
        for _ in range(data.draw(st.integers(1, 3))):
            tree = changed(data, tree)
        text = yaml.safe_dump(tree, sort_keys=False)
    for _ in range(data.draw(st.integers(1, 3)) if kind == "characters" else 0):
        place = data.draw(st.integers(0, len(text)))
        end = place + data.draw(st.integers(0, 3))
        text = text[:place] + data.draw(st.text(alphabet=CHARACTERS, max_size=3)) + text[end:]
    return text


def loaded(text: str) -> RuleSet | None:
    """The rules of a text; ``None`` for one that was refused with the place."""
    try:
        entries = read_text(text, "f.yaml")
        names = {entry.heuristic for entry in entries if entry.heuristic is not None}
        return RuleSet(rules_of(entries, {name: lambda match: None for name in names}))
    except RuleFileError as error:
        if re.match(r"f\.yaml:\d+:\d+: \S", str(error)) is None:
            raise
        return None


@target("rule-files", examples=60)
def check_file(data: st.DataObject) -> None:
    rules = loaded(text_of(data))
    event("refused" if rules is None else "read")
    if rules is None:
        return
    written = rules.to_yaml()
    again = loaded(written)
    assert again is not None
    assert again.to_yaml() == written
    view: Graph = data.draw(graphs(most=10))
    before = str(view)
    for iterative in (False, True):
        new, _ = rewritten(rules, view, iterative)
        other, _ = rewritten(again, view, iterative)
        assert str(new) == str(other)
        assert faults(new) == []
    assert str(view) == before


def rewritten(rules: RuleSet, view: Graph, iterative: bool) -> Any:
    return apply(list(rules), view, strategy=rules.strategy, iterative=iterative)
