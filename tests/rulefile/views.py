"""Small graph views from a line of text, and rules from YAML text, for tests of rule files."""

from __future__ import annotations

import textwrap
from typing import Any

from gsl import RuleSet
from gsl.graph import Graph, Node
from gsl.graph.subgraph import Subgraph, inline
from gsl.rulefile import read_text, rules_of
from tests.helpers.graphs import Builder
from tests.helpers.graphs import graph as graph_of


def rules(text: str, **heuristics: Any) -> RuleSet:
    """The rules of a text."""
    return RuleSet(rules_of(read_text(textwrap.dedent(text), "rules.yaml"), heuristics))


def pattern(*operators: str) -> str:
    """The text of a file with one rule, named ``r``, of these operators."""
    return "r:\n  pattern:\n" + "".join(f"    {operator}\n" for operator in operators)


def view(text: str) -> Graph:
    """The view of statements ``name = operator operands``, of tensors of four columns, which start from ``x``.

    What nothing uses is an output, and so is what is marked with ``*``. ``linear`` has a bias, ``dense`` has none.
    """

    marked = {word for word in text.split() if word.endswith("*")}

    def make(b: Builder) -> list[Node]:
        known: dict[str, Node] = {"x": b.input("x", 4, 4), "y": b.input("y", 4, 4)}
        outputs: dict[str, Node] = {}
        for statement in filter(None, map(str.strip, text.split(";"))):
            name, _, call = (part.strip() for part in statement.partition("="))
            op, *operands = call.split()
            for operand in operands:
                if f"{operand}*" not in marked:
                    outputs.pop(operand, None)
            node = made(b, op, [known.get(operand, operand) for operand in operands])
            node.name = name.rstrip("*")
            known[node.name] = node
            outputs[node.name] = node
        return list(outputs.values())

    return graph_of(make)


def made(b: Builder, op: str, operands: list[Any]) -> Node:
    """The node of one statement; a layer has its product before it."""
    match op:
        case "linear":
            product = b.call("nn.dense", *operands, b.param("weight", 4, 4))
            return b.call("nn.bias_add", product, b.param("bias", 4), axis=-1)
        case "dense":
            return b.call("nn.dense", *operands, b.param("weight", 4, 4))
        case "layer_norm":
            return b.call("nn.layer_norm", *operands, b.param("scale", 4), b.param("bias", 4), axis=(-1,))
        case "addmm":
            product = b.call("matmul", *operands, b.param("weight", 4, 4))
            return b.call("nn.bias_add", product, b.param("bias", 4), axis=-1)
        case "cat":
            return b.call("concatenate", b.tuple(*operands), axis=0)
        case "split":
            return b.call("split", *operands, indices_or_sections=2, axis=0)
        case "field":
            return b.get(operands[0], int(operands[1]))
        case "one":
            return b.call("add", *operands, 1.0)
    return b.call(op, *operands)


def groups(rules: RuleSet, before: Graph) -> list[str]:
    """The groups that rules make in a view: for each the names of the nodes in it, those of products left out."""
    after, _ = rules.apply(before)
    calls = [node for node in after if isinstance(node.op, Subgraph)]
    # What is put back is what was there.
    assert sorted(str(inline(after, calls)).splitlines()) == sorted(str(before).splitlines())
    found = [node.op.body for node in calls if isinstance(node.op, Subgraph)]
    hidden = ("dense", "matmul", "tuple", "const")
    return [
        " ".join(sorted(node.name for node in body if node.operands and not node.name.startswith(hidden)))
        for body in found
    ]
