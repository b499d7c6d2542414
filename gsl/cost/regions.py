"""The regions of a program: the native calls that are timed together, because only together they cost what they do in
the program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gsl.cost.work import ExampleSizes, is_free, work
from gsl.front.base import ProgramStep
from gsl.graph import LEAVES, Node, is_call, op_name
from gsl.spec import Trait, spec_of


@dataclass(frozen=True, slots=True, eq=False)
class Unit:
    """The native calls that a view shows as one: mostly one, sometimes also one that prepares a weight for it."""

    steps: tuple[ProgramStep, ...]

    @property
    def name(self) -> str:
        return self.steps[-1].name

    @property
    def nodes(self) -> tuple[Node, ...]:
        return self.steps[-1].nodes

    @property
    def op(self) -> str:
        """The operator after which it is called: the first that it computes which is no view."""
        called = list(filter(is_call, self.nodes))
        working = [node for node in called if not is_free(node)] or called
        return op_name(working[0].op) if working else self.steps[-1].key.partition("(")[0]


@dataclass(frozen=True, slots=True, eq=False)
class Region:
    """The units that are timed together."""

    units: tuple[Unit, ...]

    @property
    def steps(self) -> tuple[ProgramStep, ...]:
        return tuple(step for unit in self.units for step in unit.steps)

    @property
    def key(self) -> str:
        return " ; ".join(step.key for step in self.steps)

    @property
    def weights(self) -> int:
        return sum(step.weights for step in self.steps)

    def shares(self, sizes: ExampleSizes) -> list[float]:
        """The share of each unit in the whole, by the bytes that it moves."""
        if len(self.units) == 1:
            return [1.0]
        moved = [sum(work(node, sizes).moved for node in unit.nodes) for unit in self.units]
        whole = sum(moved)
        return [part / whole if whole else 1 / len(moved) for part in moved]


def regions(steps: Sequence[ProgramStep], *, fuses: bool) -> list[Region]:
    """The regions of a program: chains of element-wise calls with the views between them, and all other calls alone.

    Where what runs the program ``fuses``, a chain belongs to the call before it.
    """
    units = _units(steps)
    by_node = {node: unit for unit in units for node in unit.nodes}
    region_of: dict[Unit, list[Unit]] = {}
    for unit in units:
        before = _before(unit, by_node)
        if before is not None and _is_light(unit) and (fuses or _is_light(before)):
            own = region_of[before]
            if own[-1] is before:
                own.append(unit)
                region_of[unit] = own
                continue
        region_of[unit] = [unit]
    return [Region(tuple(own)) for unit, own in region_of.items() if own[0] is unit]


def _units(steps: Sequence[ProgramStep]) -> list[Unit]:
    groups: dict[object, list[ProgramStep]] = {}
    for step in steps:
        groups.setdefault(step.nodes or step, []).append(step)
    return [Unit(tuple(group)) for group in groups.values()]


def _before(unit: Unit, by_node: dict[Node, Unit]) -> Unit | None:
    """The only unit whose result this one takes, if this one is the only one that takes it."""
    inner = set(unit.nodes)
    taken = dict.fromkeys(
        operand for node in unit.nodes for operand in node.operands if operand not in inner and operand.op not in LEAVES
    )
    if len(taken) != 1:
        return None
    (node,) = taken
    return by_node.get(node) if len(node.users) == 1 else None


def _is_light(unit: Unit) -> bool:
    """True if everything that a unit computes is element-wise, or a view."""
    return bool(unit.nodes) and all(map(_is_light_node, unit.nodes))


def _is_light_node(node: Node) -> bool:
    spec = spec_of(node.op)
    element_wise = Trait.ELEMENT_WISE | Trait.BROADCASTING
    light = node.op == "nn.bias_add" or (spec is not None and bool(spec.traits & element_wise))
    return node.effect is None and (is_free(node) or light)
