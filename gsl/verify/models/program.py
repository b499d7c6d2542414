"""Graphs as straight-line programs, which the models evaluate."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from gsl.errors import GSLError
from gsl.graph import CONST, GETITEM, INPUT, PARAM, TUPLE, Graph, Node, TensorType, TupleType, Type
from gsl.graph.subgraph import with_bodies
from gsl.pat.typed import Domain
from gsl.spec import OperatorName, OpSpec, spec_of
from gsl.spec.math import COMPARISONS
from gsl.verify.kinds import MOVES
from gsl.walk import reached
from gsl.workload.inputs import as_tensor

# The digits of the significand, and the largest exponent, of the floating-point dtypes; the digits of the integers
# that are drawn.
PRECISION: Mapping[str, tuple[int, int]] = {
    "float64": (53, 1023), "float32": (24, 127), "bfloat16": (8, 127), "float16": (11, 15), "float8_e4m3fn": (4, 8),
    "float8_e4m3fnuz": (4, 7), "float8_e5m2": (3, 15), "float8_e5m2fnuz": (3, 15),
}  # fmt: skip
_INTEGERS: Mapping[str, tuple[int, int]] = {
    "uint8": (8, 8), "int8": (7, 7), "int16": (15, 15), "int32": (31, 31), "int64": (32, 32),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class StraightLineStep:
    """One call. ``operands`` and ``result`` are slots; an operand that is a tuple has a slot like any other."""

    op: str
    spec: OpSpec | None
    """None for a tuple and for the field of one."""
    operands: tuple[int, ...]
    result: int
    attrs: Mapping[str, Any]
    """Without those that follow from the operands; dtypes of floats are float64, for all models compute in it."""
    kind: Type
    """The declared type of the result."""
    rounding: str = ""
    """The dtype to which a cast rounds, if it loses digits."""

    @property
    def dtype(self) -> str | None:
        """The dtype of the result; ``None`` for a tuple."""
        return self.kind.dtype if isinstance(self.kind, TensorType) else None


@dataclass(frozen=True, slots=True)
class StraightLineProgram:
    """The calls that the outputs of a graph need, in order."""

    leaves: Mapping[str, tuple[int, TensorType]]
    """The slot and the type of each leaf whose value is drawn, by name, whether or not an output needs it."""
    literals: Mapping[int, Any]
    """The literals by slot: Python numbers and tensors."""
    given: frozenset[int]
    """The numbers among these that a condition of the rule gives: others are assumed to be far from them."""
    steps: tuple[StraightLineStep, ...]
    slots: int
    domains: Mapping[str, Domain]
    """The numbers that leaves are demanded to have, by name."""
    outputs: tuple[tuple[tuple[int, ...], int, TensorType], ...]
    """Path, slot and declared type of each output; the fields of a tuple are outputs of their own."""

    def with_exact_casts(self, products: Collection[str] = ()) -> StraightLineProgram:
        """The same, but for casts that keep all digits, as all other calls do: those of which nothing is made but
        outputs and products in their dtype (calls of these operators), be it after the elements have moved."""
        readers: dict[int, list[StraightLineStep]] = {}
        exact: dict[int, bool] = {}
        for step in reversed(self.steps):
            exact[step.result] = all(
                exact[reader.result] if reader.op in MOVES and reader.operands[0] == step.result
                else reader.op in products and reader.dtype == step.dtype
                for reader in readers.get(step.result, ())
            )  # fmt: skip
            for slot in step.operands:
                readers.setdefault(slot, []).append(step)
        steps = [replace(step, rounding="") if exact[step.result] else step for step in self.steps]
        return replace(self, steps=tuple(steps))

    def filled(self, leaves: Mapping[str, Any], literal: Callable[[Any], Any]) -> list[Any]:
        """The slots with values of the leaves, and what a function makes of the literals."""
        slots: list[Any] = [None] * self.slots
        for name, (slot, _) in self.leaves.items():
            slots[slot] = leaves[name]
        for slot, value in self.literals.items():
            slots[slot] = literal(value)
        return slots


def is_floating(dtype: str) -> bool:
    """True if a dtype is one of real floating-point numbers."""
    return "float" in dtype


def written_out(graph: Graph) -> Graph:
    """A graph in which calls of users' operators are replaced by their meanings, as far as these can be traced."""
    bodies: dict[Node, Graph] = {}
    for node in graph.nodes:
        if isinstance(node.op, OperatorName):
            try:
                bodies[node] = node.op.spec.body(tuple([operand.type for operand in node.operands]), node.attrs)
            except GSLError:
                continue  # its values are those of the function
    return with_bodies(graph, bodies) if bodies else graph


def program_of(graph: Graph, *, rounds_all: bool = False) -> StraightLineProgram:
    """The program of a graph. With ``rounds_all``, all casts of integers to floats round. ValueError for opaque calls
    and unknown types."""
    graph = written_out(graph)
    slots: dict[Node, int] = {}
    leaves: dict[str, tuple[int, TensorType]] = {}
    literals: dict[int, Any] = {}
    steps: list[StraightLineStep] = []
    for node in _needed(graph):
        slot = slots[node] = len(slots)
        if node.op == CONST:
            value = node.attrs["value"]
            literals[slot] = as_tensor(value) if hasattr(value, "shape") else value
        elif node.op in (INPUT, PARAM):
            leaves[node.name] = (slot, _concrete(node))
        else:
            steps.append(_step(node, tuple([slots[operand] for operand in node.operands]), slot, rounds_all))
    extra: list[StraightLineStep] = []
    outputs = _outputs(graph, slots, extra)
    given = frozenset([slot for node, slot in slots.items() if node.op == CONST and "given" in node.attrs])
    count, domains = len(slots) + len(extra), domains_of(graph)
    return StraightLineProgram(leaves, literals, given, (*steps, *extra), count, domains, outputs)


def domains_of(graph: Graph) -> dict[str, Domain]:
    """The numbers that the leaves of an instance are demanded to have, by name."""
    leaves = (node for node in graph.nodes if node.op in (INPUT, PARAM))
    return {leaf.name: leaf.attrs["values"] for leaf in leaves if "values" in leaf.attrs}


def _needed(graph: Graph) -> list[Node]:
    """The nodes that the outputs need, and all leaves, in the order of the graph."""
    needed = set(reached(graph.outputs, lambda node: node.operands))
    return [node for node in graph.nodes if node in needed or node.op in (INPUT, PARAM)]


def _concrete(node: Node) -> TensorType:
    kind = node.type
    if not isinstance(kind, TensorType) or not all(isinstance(size, int) for size in kind.shape):
        raise ValueError(f"values need tensors of known sizes, found {node!r} of type {kind}")
    return kind


def _step(node: Node, operands: tuple[int, ...], slot: int, rounds_all: bool) -> StraightLineStep:
    if node.type is None:
        raise ValueError(f"values need known types, found {node!r} without one")
    if node.op in (TUPLE, GETITEM):
        return StraightLineStep(str(node.op), None, operands, slot, node.attrs, node.type)
    spec = spec_of(node.op)
    if spec is None:
        raise ValueError(f"values need canonical operators, found {node!r}")
    attrs = {name: _wide(value) for name, value in spec.own(node.attrs).items()}
    return StraightLineStep(spec.name, spec, operands, slot, attrs, node.type, _rounding(node, rounds_all))


def _wide(value: Any) -> Any:
    """The value of an attribute, float64 for any other dtype of floats."""
    return "float64" if isinstance(value, str) and value in PRECISION else value


def _rounding(node: Node, rounds_all: bool) -> str:
    """The dtype of floats to which a cast rounds; empty if it keeps all digits.

    One of integers rounds where its result is cast again or compared, be it after its elements have moved, or all do.
    """
    if node.op != "cast":
        return ""
    target, source = node.attrs["dtype"], node.operands[0].dtype or ""
    moved = reached([node], lambda each: [user for user in each.users if user.op in MOVES])
    rounds = rounds_all or any(user.op == "cast" or user.op in COMPARISONS for each in moved for user in each.users)
    known = {**PRECISION, **_INTEGERS} if rounds else PRECISION
    if target not in PRECISION or source not in known:
        return ""
    loses = any(after < before for before, after in zip(known[source], PRECISION[target], strict=True))
    return str(target) if loses else ""


def _outputs(
    graph: Graph, slots: Mapping[Node, int], extra: list[StraightLineStep]
) -> tuple[tuple[tuple[int, ...], int, TensorType], ...]:
    """The outputs, with the steps that take tuples among them apart."""
    found: list[tuple[tuple[int, ...], int, TensorType]] = []
    for number, node in enumerate(graph.outputs):
        if isinstance(node.type, TupleType):
            for index, kind in enumerate(node.type.fields):
                if not isinstance(kind, TensorType):
                    raise ValueError(f"values need known types, found {node!r} of type {node.type}")
                slot = len(slots) + len(extra)
                extra.append(StraightLineStep(GETITEM, None, (slots[node],), slot, {"index": index}, kind))
                found.append(((number, index), slot, kind))
        else:
            found.append(((number,), slots[node], _concrete(node)))
    return tuple(found)


def rational(value: bool | int | float) -> Fraction:
    """A literal as the rational number of its shortest decimal. ValueError for NaN and the infinities."""
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{value} is not a rational number")
    return Fraction(repr(value)) if isinstance(value, float) else Fraction(int(value))


def literal_tensor(value: Any) -> Any:
    """A literal tensor in float64 if it is of floats, each the shortest decimal that its dtype tells from others."""
    import torch

    if not value.dtype.is_floating_point or value.dtype == torch.float64:
        return value.detach().cpu()
    if value.dtype == torch.float32:
        flat = [float(str(item)) for item in value.detach().cpu().reshape(-1).numpy()]
        return torch.tensor(flat, dtype=torch.float64).reshape(value.shape)
    return value.detach().cpu().double()
