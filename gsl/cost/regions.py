"""The regions of a program: the native calls that are timed together, because only together they cost what they do in
the program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from gsl.cost.work import ExampleSizes, is_free, is_loop, work
from gsl.front.base import ProgramStep
from gsl.graph import LEAVES, Graph, Node, is_call, op_name
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
    is_fused: bool = False
    """True if a compiler makes loops of its own of them; if not, they are called one after the other."""
    used: tuple[Node, ...] = ()
    """The nodes that others use, or that are outputs of the program, where it is fused."""

    @property
    def steps(self) -> tuple[ProgramStep, ...]:
        return tuple(step for unit in self.units for step in unit.steps)

    @property
    def key(self) -> str:
        own = " ; ".join(step.key for step in self.steps)
        return f"{own} ; fused {self._links()}" if self.is_fused else own

    def _links(self) -> list[list[int]]:
        """The operands of each unit, and, last, what others use: by the numbers of the units, and of what comes from
        outside the region. A chain, as other regions are, has no need of them."""
        numbers = {node: number for number, unit in enumerate(self.units) for node in unit.nodes}
        links = []
        for number, unit in enumerate(self.units):
            operands = [part for node in unit.nodes for part in node.operands if numbers.get(part) != number]
            links.append([numbers.setdefault(part, len(self.units) + len(numbers)) for part in operands])
        return [*links, [numbers[node] for node in self.used]]

    @property
    def weights(self) -> int:
        return sum(step.weights for step in self.steps)

    def moved(self, sizes: ExampleSizes) -> int:
        """The bytes that a region moves where it is fused: of what it takes, and of what others use of it."""
        inside = {node for unit in self.units for node in unit.nodes}
        taken = {part for node in inside for part in node.operands if part not in inside}
        return sum(sizes.bytes(node.type) for node in (*taken, *self.used))

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


def fused_regions(steps: Sequence[ProgramStep], graph: Graph) -> list[Region]:
    """The regions of a program that is compiled; ``graph`` is its view.

    A region is what the compiler makes loops of: calls that depend on each other and have no call of a library between
    them. Calls of libraries are regions of their own. Calls that the view does not show, as assertions, are left out:
    nothing is left of them when a program is compiled.
    """
    units = _units([step for step in steps if step.nodes])
    by_node = {node: unit for unit in units for node in unit.nodes}
    depth: dict[Unit, int] = {}  # the largest number of library calls on a way to a unit
    region_of: dict[Unit, list[Unit]] = {}
    for unit in units:
        before = _all_before(unit, by_node)
        depth[unit] = max([depth[other] + (not _is_open(other)) for other in before], default=0)
        own = region_of[unit] = [unit]
        if not _is_open(unit):
            continue
        for other in before:
            joined = region_of[other]
            if joined is not own and _is_open(other) and depth[other] == depth[unit]:
                joined += own
                region_of.update(dict.fromkeys(own, joined))
                own = joined
    place = {unit: number for number, unit in enumerate(units)}
    found = [sorted(own, key=place.__getitem__) for own in {id(own): own for own in region_of.values()}.values()]
    ends = graph.ends()
    return [_fused(tuple(own), ends) for own in sorted(found, key=lambda own: place[own[0]])]


def _fused(units: tuple[Unit, ...], ends: Set[Node]) -> Region:
    if not _is_open(units[0]):
        return Region(units)
    inside = {node: None for unit in units for node in unit.nodes}
    return Region(units, True, tuple([node for node in inside if node in ends or not inside.keys() >= {*node.users}]))


def _all_before(unit: Unit, by_node: Mapping[Node, Unit]) -> list[Unit]:
    """The units whose results this one takes."""
    taken = [by_node[part] for node in unit.nodes for part in (*node.operands, *node.deps) if part in by_node]
    return [other for other in dict.fromkeys(taken) if other is not unit]


def _is_open(unit: Unit) -> bool:
    """True if a compiler can make a loop of its own of all that a unit computes."""
    return bool(unit.nodes) and all(map(is_loop, unit.nodes))


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
