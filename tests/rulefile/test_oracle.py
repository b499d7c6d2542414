"""All matches of random rules in random graphs, compared with those that trying everything finds."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gsl.graph import Graph, Node
from tests.rulefile.test_laws import patterns
from tests.rulefile.views import rules, view
from tests.tiers import examples

OPS = ("relu", "tanh", "exp", "add")
CANONICAL = {"nn.relu": "relu", "tanh": "tanh", "exp": "exp", "add": "add"}
OTHER = "other"
"""Stands for all operators that are in no graph here."""


def accepted(op_type: Any) -> frozenset[str]:
    """The operators that a node of the file may have."""
    if op_type == ".":
        return frozenset((*OPS, OTHER))
    if isinstance(op_type, dict):
        options = accepted(op_type["options"])
        return frozenset((*OPS, OTHER)) - options if op_type["inverted"] else options
    return frozenset([op_type] if isinstance(op_type, str) else op_type)


def groups(operator: dict[str, Any]) -> list[list[str]]:
    """The children, of each its options; of an entry without an operator, what it stands for is one of them."""
    given = list(operator.get("children", []))
    given += [operator["child"]] if "child" in operator else []
    given += [{"match_first_option": operator["match_first_option"]}] if "match_first_option" in operator else []
    return [child["match_first_option"] if isinstance(child, dict) else [child] for child in given]


def stands_for(operator: dict[str, Any]) -> set[str]:
    """The options of an entry without an operator; none for others."""
    return set() if "op_type" in operator else set(operator["match_first_option"])


def forms(pattern: dict[str, dict[str, Any]]) -> Iterator[dict[str, set[str]]]:
    """For each choice that is left open, the children of the operators that are there."""
    optional = [name for name, operator in pattern.items() if operator.get("required", True) is False]
    places = [(name, number) for name, operator in pattern.items() for number in range(len(groups(operator)))]
    everything = {child for operator in pattern.values() for options in groups(operator) for child in options}
    (root,) = set(pattern) - everything
    for taken in product(*(groups(pattern[name])[number] for name, number in places)):
        for present in product((True, False), repeat=len(optional)):
            absent = {name for name, there in zip(optional, present) if not there}

            def users(name: str, taken: Any = taken, absent: Any = absent) -> set[str]:
                found: set[str] = set()
                for (parent, _), child in zip(places, taken):
                    if parent == name:
                        found |= users(child) - stands_for(pattern[child]) if child in absent else {child}
                return found

            there: dict[str, set[str]] = {}
            work = [root]
            while work:
                name = work.pop()
                if name not in there:
                    there[name] = users(name)
                    work += there[name]
            yield without_entries(pattern, there)


def without_entries(pattern: dict[str, dict[str, Any]], form: dict[str, set[str]]) -> dict[str, set[str]]:
    """A form in which each entry without an operator has become one with the option that was taken."""
    entry = next((name for name in form if stands_for(pattern[name])), None)
    if entry is None:
        return form
    (option,) = form[entry] & stands_for(pattern[entry])
    merged: dict[str, set[str]] = {}
    for name, children in form.items():
        children = {option if child == entry else child for child in children if name != entry or child != option}
        merged.setdefault(option if name == entry else name, set()).update(children)
    return without_entries(pattern, merged)


def chains(first: Node, accepts: frozenset[str], outputs: set[Node]) -> Iterator[tuple[Node, ...]]:
    """The rows of accepted nodes that start at a node, each used by the next one only."""
    if CANONICAL[str(first.op)] in accepts:
        yield (first,)
        if len(first.users) == 1 and first not in outputs:
            (user,) = first.users
            yield from ((first, *rest) for rest in chains(user, accepts, outputs))


def covered(pattern: dict[str, dict[str, Any]], graph: Graph) -> set[frozenset[str]]:
    """The names of the nodes of every match, found by trying everything."""
    calls, outputs = [node for node in graph if node.operands], set(graph.outputs)
    found: set[frozenset[str]] = set()
    for form in forms(pattern):
        rows: dict[str, list[tuple[Node, ...]]] = {}
        for name, children in form.items():
            own = accepted(pattern[name]["op_type"])
            more = own.difference(*(accepted(pattern[child]["op_type"]) for child in children))
            if pattern[name].get("match_multiple") and more:
                rows[name] = [row for node in calls for row in chains(node, more, outputs)]
            else:
                rows[name] = [(node,) for node in calls if CANONICAL[str(node.op)] in own]
        found |= set(assignments(form, rows, outputs))
    return found


def assignments(
    form: dict[str, set[str]], rows: dict[str, list[tuple[Node, ...]]], outputs: set[Node]
) -> Iterator[frozenset[str]]:
    for choice in product(*(rows[name] for name in form)):
        taken = dict(zip(form, choice))
        nodes = [node for row in choice for node in row]
        inside = set(nodes)
        inner = inside - {taken[name][-1] for name, children in form.items() if not children}
        if (
            len(inside) == len(nodes)
            and all(taken[name][-1] in taken[child][0].operands for name in form for child in form[name])
            and not inner & outputs
            and all(user in inside for node in inner for user in node.users)
        ):
            yield frozenset(node.name for node in nodes)


@st.composite
def graphs(draw: st.DrawFn) -> str:
    """The text of a graph of a few calls."""
    names, statements = ["x"], []
    for number in range(draw(st.integers(2, 6))):
        op = draw(st.sampled_from(OPS))
        # Mostly the newest: long graphs match more often than wide ones.
        operands = [names[-1] if draw(st.integers(0, 2)) else draw(st.sampled_from(names))]
        operands += [draw(st.sampled_from(names))] if op == "add" else []
        mark = "*" if draw(st.integers(0, 5)) == 0 else ""
        statements.append(f"n{number}{mark} = {op} {' '.join(operands)}")
        names.append(f"n{number}")
    return "; ".join(statements)


def found(pattern: dict[str, Any], graph: Graph) -> set[frozenset[str]]:
    text = yaml.safe_dump({"r": {"pattern": pattern}}, sort_keys=False)
    return {frozenset(node.name for node in match.inner) for _, match in rules(text).match(graph)}


QUICK = settings(suppress_health_check=list(HealthCheck))
CASES = st.tuples(patterns(names=OPS, most=4), graphs())


@pytest.mark.law
def test_the_matches_are_those_that_trying_everything_finds() -> None:
    matching = chosen = 0

    @given(CASES)
    @settings(QUICK, max_examples=examples(300), database=None)
    def law(case: tuple[dict[str, Any], str]) -> None:
        nonlocal matching, chosen
        pattern, text = case
        graph = view(text)
        expected = covered(pattern, graph)
        assert found(pattern, graph) == expected
        matching += len(pattern) > 1 and bool(expected)
        chosen += any(map(stands_for, pattern.values())) and bool(expected)

    law()
    # The cases are worth looking at.
    assert matching > examples(30)
    assert chosen > examples(15)


def test_the_oracle_can_fail() -> None:
    pattern = {"a": {"op_type": "exp", "child": "b"}, "b": {"op_type": "relu"}}
    graph = view("n0 = exp x; n1 = relu n0; n2 = exp n1; n3 = relu n2; n4 = tanh n2")
    assert covered(pattern, graph) == found(pattern, graph) == {frozenset(("n0", "n1"))}
    assert covered({**pattern, "b": {"op_type": "tanh"}}, graph) != found(pattern, graph)
    entry = {**pattern, "a": {"op_type": "exp", "child": "e"}, "c": {"op_type": "tanh"}}
    entry["e"] = {"match_first_option": ["c", "b"]}
    assert covered(entry, graph) == found(entry, graph) == found(pattern, graph)
    assert covered({**entry, "e": {"match_first_option": ["b"], "child": "c"}}, graph) != found(entry, graph)
