"""The shape rules of the operators: from the wanted result to operands and attributes."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from gsl.programs.declared import Axis, DeclaredType
from gsl.spec import REQUIRED, TABLE, DeclaredSpec, OperatorName
from gsl.spec.examples import Sample
from gsl.verify.choices import Dead, pick
from gsl.verify.draft import Goal, NodeDraft, meet
from gsl.verify.kinds import NATIVE
from gsl.verify.shapes import axes, conv, elementwise, layout, linear
from gsl.verify.solve import DTYPES, FLOATS, INTEGERS, ShapeRule, Solver


def by_example(s: Solver, draft: NodeDraft, goal: Goal) -> None:
    """The shapes and the attributes of one of the operator's examples."""
    spec = TABLE[str(draft.op)]
    example = pick(s.choices, spec.examples, ("example", spec.name))
    for operand, sample in zip(draft.operands, example.operands):
        s.solve(operand, Goal(sample.shape if isinstance(sample, Sample) else (), goal.dtype))
    types = tuple([None if operand is None else operand.type for operand in draft.operands])
    for name, attribute in spec.own_attrs.items():
        s.attr(draft, name, [spec.normalise(name, example.attrs.get(name, attribute.default), types)])


_VALUES: Final[dict[type, tuple[Any, ...]]] = {
    float: (0.5, 0.125, 1.0, -1.5, 3.0), int: (1, 2, 0, 3, -1), bool: (False, True), tuple: ((1,), (0,)),
}  # fmt: skip
"""Values of attributes of which none is said, by the type of the default."""
_MOST: Final = 2
"""The largest number of axes that ``*b`` stands for."""


def by_declaration(s: Solver, draft: NodeDraft, goal: Goal) -> None:
    """Operands of the shapes that are said; others have one shape, that of the result where it is wanted."""
    spec = TABLE[str(draft.op)]
    assert isinstance(spec, DeclaredSpec)
    for name in spec.attrs:
        s.attr(draft, name, _values(spec, name))
    sizes: dict[str, Any] = {name: value for name, value in draft.attrs.items() if type(value) is int}
    for name, operand in zip(spec.operands, draft.operands):
        said = spec.shapes.get(name)
        shape = s.shape(operand)
        if said is not None and said.axes is not None and shape is not None:
            _unify(said.axes, shape, sizes)
    first = spec.shapes.get(spec.operands[0]) if spec.operands else None
    wanted: Any = goal.shape if goal.rank is None else tuple(goal.sizes(goal.rank))
    if wanted is not None and first is not None and first.axes is not None:
        _unify(first.axes, wanted, sizes)
    free = wanted if wanted is not None else s.shape(draft.operands[0]) if draft.operands else None
    for name, operand in zip(spec.operands, draft.operands):
        assert operand is not None
        said = spec.shapes.get(name) or DeclaredType()
        dtype = goal.dtype
        if said.dtypes and dtype not in said.dtypes:
            dtype = s.dtype if s.dtype in said.dtypes else pick(s.choices, said.dtypes)
        if said.axes is not None:
            s.solve(operand, Goal(_shape(s, said.axes, sizes), dtype))
        elif s.is_bound(operand):
            found = s.solve(operand, Goal(None, dtype))
            free = free or found.shape
        else:
            if free is None:
                free = tuple([s.size() for _ in range(s.rank(of=operand))])
            s.solve(operand, Goal(tuple(free), dtype))


def _values(spec: DeclaredSpec, name: str) -> list[Any]:
    said = spec.leaves.get(name)
    if isinstance(said, (list, tuple)):
        return list(said)
    default = spec.attrs[name].default
    if default is None or isinstance(default, str):
        return [default]
    usual = _VALUES[float] + _VALUES[int] if default is REQUIRED else (default, *_VALUES.get(type(default), ()))
    found = []
    for value in usual:
        try:
            found.append(spec.normalise(name, value, ()))
        except ValueError:
            continue
    return found


def _unify(axes: tuple[Axis, ...], shape: tuple[int | None, ...], sizes: dict[str, Any]) -> None:
    """Let named sizes be those of a shape, as far as they are decided. Dead where they contradict."""
    place = next((number for number, axis in enumerate(axes) if axis.variadic), None)
    more = len(shape) - len(axes) + (place is not None)
    if more < 0 or (place is None and more):
        raise Dead(f"a shape of {len(shape)} axes where {len(axes)} are said")
    for number, axis in enumerate(axes):
        if axis.variadic:
            found = tuple(shape[number : number + more])
            known = sizes.get(axis.names[0], (None,) * more)
            if len(known) != more:
                raise Dead(f"{more} axes where {axis.names[0]} is {len(known)}")
            sizes[axis.names[0]] = tuple(map(meet, known, found))
            continue
        size = shape[number if place is None or number < place else number + more - 1]
        if size is not None and axis.name is not None:
            sizes[axis.name] = meet(sizes.get(axis.name), size)


def _shape(s: Solver, axes: tuple[Axis, ...], sizes: dict[str, Any]) -> tuple[int | None, ...]:
    shape: list[int | None] = []
    for axis in axes:
        for name in axis.names:
            if name not in sizes:
                count = s.choices.index(_MOST + 1)
                sizes[name] = tuple([s.size() for _ in range(count)]) if axis.variadic else s.size()
        if axis.variadic:
            shape += sizes[axis.names[0]]
        else:
            shape.append(axis.factor * math.prod(sizes[name] for name in axis.names))
    if any(size < 0 for size in shape if size is not None):
        raise Dead(f"an attribute that is a size is negative: {shape}")
    return tuple(shape)


_FAMILIES: Final = (elementwise, conv, linear, layout, axes)

_RULES: Final[Mapping[str, ShapeRule]] = {
    **dict.fromkeys(TABLE, by_example),
    **{name: rule for family in _FAMILIES for name, rule in family.RULES.items()},
}


def rule_of(op: Any) -> ShapeRule | None:
    """The shape rule of an operator: without one of its own, its examples are what it is tried on."""
    return by_declaration if isinstance(op, OperatorName) else _RULES.get(op)


_FLOAT_ONLY: Final = frozenset(name for family in _FAMILIES for name in family.FLOAT_ONLY)


def dtypes_of(ops: Collection[Any]) -> Sequence[str]:
    """The dtypes of which leaves of calls of these operators may be, the simplest first."""
    if not _FLOAT_ONLY.isdisjoint(ops) or any(isinstance(op, OperatorName) for op in ops):
        return FLOATS
    return DTYPES if NATIVE.isdisjoint(ops) else INTEGERS


__all__ = ["dtypes_of", "rule_of"]
