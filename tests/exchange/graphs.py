"""The left side of a rule as a graph view, for instances of its variables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from gsl import Subst
from gsl.exchange.terms import ACTIVATIONS, FIELD, VARIABLE, RuleTerm, TermRule, walk
from gsl.graph import Graph, Node
from tests.exchange.oracle import same_padding
from tests.helpers.graphs import Builder, graph, run

FUNCTIONS = {"relu": "nn.relu", "sigmoid": "sigmoid", "tanh": "tanh"}


def name_of(variable: RuleTerm) -> str:
    return str(variable.params["name"])


def left_side(rule: TermRule, values: Mapping[RuleTerm, torch.Tensor]) -> Graph:
    """The source of a rule on inputs of the shapes of some values."""

    def make(b: Builder) -> Sequence[Node]:
        nodes: dict[RuleTerm, Node] = {}
        for term in walk(*rule.source):
            if term.op == VARIABLE:
                value = values[term]
                nodes[term] = b.input(name_of(term), *value.shape, dtype=str(value.dtype).removeprefix("torch."))
            else:
                nodes[term] = _call(b, term, [nodes[operand] for operand in term.operands])
        return [nodes[term] for term in rule.source]

    return graph(make)


def _call(b: Builder, term: RuleTerm, operands: list[Node]) -> Node:
    params = term.params
    match term.op:
        case "conv2d":
            x, w = operands
            assert x.shape is not None
            assert w.shape is not None
            (top, bottom), (left, right) = (same_padding(k) for k in w.shape[2:])
            groups = x.shape[1] // w.shape[1]
            made = b.call("nn.conv2d", x, w, padding=(top, left, bottom, right), groups=groups)
        case "matmul":
            made = b.call("matmul", *operands)
        case "ewadd" | "ewmul":
            return b.call({"ewadd": "add", "ewmul": "multiply"}[term.op], *operands)
        case "concat":
            return b.call("concatenate", b.tuple(*operands), axis=params["axis"])
        case "relu" | "sigmoid" | "tanh":
            return b.call(FUNCTIONS[term.op], *operands)
        case _:
            raise AssertionError(f"no rule of the sets has {term.op} in its source ({FIELD})")
    act = ACTIVATIONS[params["act"]]
    return b.call(FUNCTIONS[act], made) if act else made


def applied(subst: Subst, rule: TermRule, values: Mapping[RuleTerm, torch.Tensor]) -> tuple[Graph, Any]:
    """The left side after the rule, and the trace."""
    return subst.apply(left_side(rule, values))


def results(view: Graph, values: Mapping[RuleTerm, torch.Tensor]) -> list[torch.Tensor]:
    """The outputs of a view on the values of the variables."""
    return run(view, {name_of(variable): value for variable, value in values.items()})
