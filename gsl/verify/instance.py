"""An instance of a rule's source: a small graph with all that the source demands."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping
from math import prod
from typing import Any

from gsl.graph import CONST, GETITEM, INPUT, PARAM, TUPLE, Graph, Node, TensorType
from gsl.graph.node import short_name
from gsl.pat.typed import Domain
from gsl.rewrite import Subst
from gsl.spec import TABLE
from gsl.verify.choices import Choices, Dead
from gsl.verify.demands import Demands
from gsl.verify.draft import MOST_ELEMENTS, NodeDraft, infer
from gsl.verify.shapes import dtypes_of, rule_of
from gsl.verify.skeleton import Skeleton
from gsl.verify.solve import Solver
from gsl.walk import postorder


def generate(rule: Subst, choices: Choices) -> Graph:
    """A graph that the source of the rule matches, as far as its constraints could be solved. Dead if there is none."""
    try:
        skeleton = Skeleton(rule.plan, choices)
        demands = Demands(skeleton, rule.plan.where, choices)
        dtypes = dtypes_of({draft.op for draft in skeleton.drafts})
        Solver(skeleton, demands, choices, rule_of, dtypes).run()
        return _graph(skeleton, choices, _values(rule, skeleton))
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        # An attribute that a shape rule can't work with: an axis that is a tuple.
        raise Dead(f"{type(error).__name__}: {error}") from error


GivenValue = Callable[[tuple[int, ...]], Any]
"""The value of a leaf as an array, for its shape."""


def _values(rule: Subst, skeleton: Skeleton) -> dict[NodeDraft, GivenValue]:
    """The values of leaves with which the conditions hold that are functions with ``values``, by pattern."""
    given = [item for predicate in rule.source.predicates for item in getattr(predicate, "values", {}).items()]
    drafts = ((skeleton.bindings.get(leaf, ()), value) for leaf, value in given)
    return {draft.same_as or draft: value for draft, value in drafts if isinstance(draft, NodeDraft)}


def _graph(skeleton: Skeleton, choices: Choices, values: Mapping[NodeDraft, GivenValue]) -> Graph:
    nodes: dict[NodeDraft, Node] = {}
    names: dict[str, int] = {}
    domains = _domains(skeleton)
    roots = skeleton.outputs + [draft for draft in skeleton.drafts if not draft.is_leaf]
    for draft in _ordered(roots):
        own = draft.same_as or draft
        if own not in nodes:
            operands = tuple([nodes[o.same_as or o] for o in own.operands if o is not None])
            nodes[own] = _node(own, operands, names, domains.get(own), values.get(own))
        nodes[draft] = nodes[own]
    fuzzy = sorted(skeleton.plan.fuzzy, key=str)
    outputs = [nodes[draft] for draft in dict.fromkeys(skeleton.outputs)]
    extra = [nodes[draft] for draft in nodes if draft.extern and isinstance(draft.type, TensorType)]
    order = list(dict.fromkeys(nodes.values()))
    if fuzzy:
        order = _interleave(order, fuzzy, choices)
    return Graph(order, list(dict.fromkeys([*outputs, *extra])), infer)


def _domains(skeleton: Skeleton) -> dict[NodeDraft, Domain]:
    """The numbers that are demanded of leaves. Dead where two demands meet, or where a call has to have the numbers."""
    found: dict[NodeDraft, Domain] = {}
    for draft in skeleton.drafts if skeleton.plan.domains else ():
        for pattern, _ in draft.patterns:
            domain = skeleton.plan.domains.get(pattern)
            if domain is not None:
                if not draft.is_leaf:
                    raise Dead(f"the values of a call can't be chosen, and {pattern!r} demands some")
                if draft.dtype == "bool":
                    raise Dead(f"{pattern!r} is to have numbers, not bools")
                if found.setdefault(draft.same_as or draft, domain) != domain:
                    raise Dead(f"one tensor is to be {domain.words}, and {found[draft.same_as or draft].words}")
    return found


def _ordered(roots: list[NodeDraft]) -> Iterator[NodeDraft]:
    """The drafts, operands first."""

    def below(draft: NodeDraft) -> list[NodeDraft]:
        return [each for each in ([draft.same_as] if draft.same_as is not None else draft.operands) if each is not None]

    return postorder(roots, below)


def _node(
    draft: NodeDraft, operands: tuple[Node, ...], names: dict[str, int], domain: Domain | None, given: GivenValue | None
) -> Node:
    op: Any = CONST if given is not None and draft.op == PARAM else draft.op  # a literal keeps its value
    kind = draft.type
    if isinstance(kind, TensorType) and prod(kind.shape) > MOST_ELEMENTS:  # type: ignore[operator]
        raise Dead(f"{kind} is too large")
    attrs: dict[str, Any] = {}
    base = {INPUT: "x", PARAM: "w", CONST: "c"}.get(op) or short_name(op)
    number = names[base] = names.get(base, -1) + 1
    name = base if number == 0 else f"{base}_{number}"
    if op in (PARAM, CONST):
        value = draft.attrs.get("value")
        if given is None:
            attrs = {"value": _tensor(kind, name, draft.positive, domain) if value is None else value}
        elif value is None:
            attrs = {"value": _given(kind, given)}
        else:
            attrs = {"value": given(()).item(), "given": True}
        if op == CONST and domain is not None and domain.outside(attrs["value"]) is not None:
            raise Dead(f"{attrs['value']} is not {domain.words}")
    elif op == GETITEM:
        attrs = {"index": draft.attrs["index"]}
    elif op not in (INPUT, TUPLE):
        attrs = {key: draft.attrs[key] for key in TABLE[op].attrs}
    if op in (INPUT, PARAM) and domain is not None:
        attrs["values"] = domain
    return Node(op, operands, attrs, kind, name=name)


def _tensor(kind: Any, name: str, positive: bool, domain: Domain | None) -> Any:
    """The value of a weight or a literal tensor: small numbers that depend on its name and type only."""
    import torch

    generator = torch.Generator().manual_seed(zlib.crc32(f"{name} {kind}".encode()))
    drawn = torch.randint(-4, 5, kind.shape, generator=generator)
    if kind.dtype == "bool":
        return drawn > 0
    if positive:
        drawn = drawn.abs() + 1
    if "int" in kind.dtype:
        drawn = drawn.abs() if kind.dtype.startswith("u") else drawn
    else:
        drawn = drawn / 4 + 0.125
    return (drawn if domain is None else domain.mapped(drawn)).to(getattr(torch, kind.dtype))


def _given(kind: Any, value: GivenValue) -> Any:
    """The given value as a tensor, whose floats are not rounded to the dtype: values are compared in float64."""
    import torch

    return torch.tensor(value(kind.shape), dtype=torch.float64 if "float" in kind.dtype else getattr(torch, kind.dtype))


def _interleave(order: list[Node], fuzzy: list[Any], choices: Choices) -> list[Node]:
    """Put calls that may be skipped between computed nodes, now and then."""
    found: list[Node] = []
    for node in order:
        if node.op in TABLE:
            operands = []
            for operand in node.operands:
                if operand.op in TABLE and choices.index(2):
                    operand = _skipped(operand, fuzzy[choices.index(len(fuzzy))], len(found))
                    if operand not in found:
                        found.append(operand)
                operands.append(operand)
            node.operands = tuple(operands)
        found.append(node)
    return found


def _skipped(operand: Node, op: str, number: int) -> Node:
    """A call that leaves its operand as it is, apart from the effect for which the operator exists."""
    kind = operand.type
    spec = TABLE[op]
    if not isinstance(kind, TensorType) or len(spec.operands) != 1:
        return operand
    own = {"dtype": kind.dtype, "shape": kind.shape, "newshape": kind.shape, "axes": tuple(range(kind.ndim))}
    try:
        attrs = spec.complete({name: value for name, value in own.items() if name in spec.attrs}, (kind,))
        result = infer(op, (operand,), attrs)
    except (ValueError, KeyError):
        return operand
    return Node(op, (operand,), attrs, result, name=f"skipped_{number}") if result == kind else operand
