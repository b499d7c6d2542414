"""Laws of rule files: well-formed ones load, and what is written back is the same rules."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gsl import RuleSet
from gsl.errors import RuleFileError
from gsl.graph import Graph
from gsl.graph.subgraph import Subgraph, inline
from gsl.rulefile import read_text
from tests.rulefile.test_constructs import FIRES, QKV
from tests.rulefile.views import rules, view
from tests.tiers import examples

NAMES = ("relu", "tanh", "exp", "add", "linear", "nn.relu")


def op_types(names: Sequence[str]) -> st.SearchStrategy[Any]:
    """What may stand as op_type."""
    some = st.lists(st.sampled_from(names), min_size=1, max_size=2, unique=True)
    inverted = st.fixed_dictionaries({"inverted": st.booleans(), "options": some})
    return st.one_of(st.sampled_from(names), st.just("."), some, inverted)


@st.composite
def patterns(draw: st.DrawFn, names: Sequence[str] = NAMES, most: int = 5) -> dict[str, Any]:
    """A well-formed pattern: every operator but the first is a child of an earlier one."""
    types = op_types(names)
    names = [f"n{i}" for i in range(draw(st.integers(1, most)))]
    operators: dict[str, dict[str, Any]] = {name: {"op_type": draw(types)} for name in names}
    users: dict[str, list[Any]] = {name: [] for name in names}
    required = set(names)
    for number, name in enumerate(names[1:], 1):
        parents = draw(st.lists(st.sampled_from(names[:number]), min_size=1, max_size=2, unique=True))
        optional = draw(st.booleans())
        for parent in parents:
            free = [each for each in users[parent] if isinstance(each, str) and each in required]
            if free and not optional and draw(st.booleans()):
                users[parent].remove(free[0])
                users[parent].append({"match_first_option": [free[0], name]})
            else:
                users[parent].append(name)
        if optional:
            operators[name]["required"] = False
            required.discard(name)
    if draw(st.booleans()):
        operators["either"] = draw(_choice(users, required))
        operators["other"] = {"op_type": draw(types)}
    for name, children in users.items():
        if len(children) == 1 and draw(st.booleans()):
            own = isinstance(children[0], dict) and name != "either"
            operators[name] |= children[0] if own else {"child": children[0]}
        elif children:
            operators[name]["children"] = children
        if name == "either":
            continue
        if draw(st.booleans()) and (operators[name]["op_type"] != "." or required.intersection(_names(children))):
            operators[name]["match_multiple"] = True
    keys = draw(st.permutations(list(operators)))
    return {key: operators[key] for key in keys}


@st.composite
def _choice(draw: st.DrawFn, users: dict[str, list[Any]], required: set[str]) -> dict[str, Any]:
    """An entry ``either`` in place of a required operator, for which it may stand, as for a new one, ``other``."""
    name = draw(st.sampled_from(sorted(required)))
    later = list(users)[list(users).index(name) + 1 :]
    for children in users.values():
        for child in children:
            if isinstance(child, dict):
                child["match_first_option"] = [_either(each, name) for each in child["match_first_option"]]
        children[:] = [_either(child, name) for child in children]
    entry = {"match_first_option": list(draw(st.permutations([name, "other"])))}
    if any("either" in children for children in users.values()) and draw(st.integers(0, 2)) == 0:
        entry["required"] = False
    users["other"] = [draw(st.sampled_from(later))] if later and draw(st.booleans()) else []
    users["either"] = []
    if draw(st.booleans()):
        users["either"], users[name] = users[name], []
    return entry


def _either(child: Any, name: str) -> Any:
    return "either" if child == name else child


def _names(children: Iterable[Any]) -> list[str]:
    return [child for child in children if isinstance(child, str)]


@st.composite
def files(draw: st.DrawFn) -> str:
    data: dict[str, Any] = {}
    for number in range(draw(st.integers(1, 2))):
        entry: dict[str, Any] = draw(
            st.fixed_dictionaries(
                {}, optional={"priority": st.integers(-3, 3), "heuristic": st.sampled_from(["A", "é"])}
            )
        )
        several = draw(st.integers(1, 2))
        for n in range(several):
            entry["pattern" if several == 1 else f"pattern{n + 1}"] = draw(patterns())
        data[f"rule {number}"] = entry
    return str(yaml.safe_dump(data, sort_keys=False, default_flow_style=draw(st.sampled_from([None, False, True]))))


VIEWS = [
    view(text)
    for text in (
        "a = relu x; b = tanh a; c = relu b; d = exp c; e = add d b",
        "a = linear x; b = relu a; c = exp a; d = add b c; e = linear d; f = dense e",
        "a = exp x; b = exp a; c = exp b; d = linear c; e = relu d; f = relu d; g = add e f; h = sin g",
    )
]


def matches(rules: RuleSet, graph: Graph) -> list[tuple[str, list[str]]]:
    found = [(rule.name, sorted(node.name for node in match.inner)) for rule, match in rules.match(graph)]
    return sorted(found)


@pytest.mark.law
@given(files())
@settings(max_examples=examples(60), suppress_health_check=list(HealthCheck))
def test_what_is_written_back_is_the_same(text: str) -> None:
    first = rules(text)
    written = first.to_yaml()
    second = rules(written)
    assert second.to_yaml() == written
    assert [(rule.name, rule.priority) for rule in second] == [(rule.name, rule.priority) for rule in first]
    for graph in VIEWS:
        assert matches(second, graph) == matches(first, graph)
        after, _ = first.apply(graph)
        calls = [node for node in after if isinstance(node.op, Subgraph)]
        assert sorted(str(inline(after, calls)).splitlines()) == sorted(str(graph).splitlines())


@pytest.mark.parametrize("text", [QKV, *dict.fromkeys(text for text, _, _ in FIRES.values())])
def test_examples_are_written_back(text: str) -> None:
    assert read_text(rules(text).to_yaml(), "again.yaml") == read_text(text, "rules.yaml")


def test_the_comparison_can_fail() -> None:
    text = "r: {pattern: {a: {op_type: %s}}}"
    assert matches(rules(text % "relu"), VIEWS[0]) != matches(rules(text % "exp"), VIEWS[0])
    assert read_text(text % "relu", "f") != read_text(text % "exp", "f")


@pytest.mark.law
@given(st.text(alphabet=st.sampled_from("abr:{}[],-&*!|>'\"\n #.?%@`\t0~"), max_size=60))
@settings(max_examples=examples(150))
def test_any_text_loads_or_is_refused(text: str) -> None:
    with pytest.raises(RuleFileError, match=r"^f\.yaml:\d+:\d+: "):
        read_text(text, "f.yaml")
