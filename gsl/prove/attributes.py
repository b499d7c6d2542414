"""The attributes of calls: those that a source leaves free, and the canonical form of those that are given."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import combinations, permutations
from typing import Any

from gsl.graph.types import TensorType, TupleType, Type
from gsl.prove.meanings.layout import newshape
from gsl.prove.poly import Poly, Unproved, Whole, number, product
from gsl.prove.tensor import Calculation, DType, Family, Real, Tensor
from gsl.prove.terms import Element, alone
from gsl.spec import LISTS, REQUIRED, OpSpec
from gsl.spec.normalise import spatial

RANKS = (0, 1, 2, 3, 4)
"""The ranks for which a proof is done where a rule leaves them open."""
PARTS = (2, 3, 1, 4)
"""The numbers of parts of a split for which it is done."""
NEW_AXES = (1, 2)
"""The numbers of axes that are put in at one place for which it is done."""


def type_of(calc: Calculation, value: Any) -> Type:
    """The type of a tensor as declarations take it."""
    if isinstance(value, Family):
        return TupleType((type_of(calc, value.at(Poly())),))
    if isinstance(value, tuple):
        return TupleType(tuple(type_of(calc, item) for item in value))
    return TensorType(tuple(map(calc.whole, value.shape)), "?")


def is_open(value: Any) -> bool:
    """True if a number of which only an expression is known is part of a value."""
    return isinstance(value, (Whole, Real, Family)) or (isinstance(value, (tuple, list)) and any(map(is_open, value)))


def completed(calc: Calculation, spec: OpSpec, given: Mapping[str, Any], operands: tuple[Any, ...]) -> dict[str, Any]:
    """All attributes of a call in canonical form. Unproved where that is not known."""
    types = tuple(type_of(calc, operand) for operand in operands)
    full: dict[str, Any] = {}
    for name, attribute in spec.own_attrs.items():
        value = given.get(name, attribute.default)
        if value is REQUIRED:
            raise Unproved(f"{spec.name} lacks {name}")
        full[name] = _canonical(calc, spec, name, value, operands, types, given.get("axis", 0))
    full = jointly(calc, spec, full, types)
    return derived(calc, spec, full, types)


def jointly(calc: Calculation, spec: OpSpec, full: dict[str, Any], types: tuple[Type, ...]) -> dict[str, Any]:
    """Attributes of which some say what others mean, in the form in which equal calls have equal ones."""
    if spec.joint is None or spec.name == "split":  # its cuts are made beforehand
        return full
    try:
        return dict(spec.joint(full, types))
    except ValueError as error:
        calc.refuse(str(error))


def derived(calc: Calculation, spec: OpSpec, full: dict[str, Any], types: tuple[Type, ...]) -> dict[str, Any]:
    """All attributes, with those that follow from the operands."""
    for name, attribute in spec.attrs.items():
        if attribute.derive is not None:
            full[name] = attribute.derive(full, types)
    return full


def _canonical(
    calc: Calculation, spec: OpSpec, name: str, value: Any, operands: tuple[Any, ...], types: tuple[Type, ...],
    given_axis: Any,
) -> Any:  # fmt: skip
    if isinstance(value, list):
        value = tuple(value)
    if operands and not isinstance(operands[0], Tensor) and spec.name not in LISTS:
        raise Unproved(f"{spec.name} of what is no tensor")
    if isinstance(value, Family) and spec.name != "split":
        raise Unproved(f"{name} of {spec.name} is a tuple of any length")
    if spec.name == "reshape":
        return newshape(calc, operands[0], value)
    if spec.name == "broadcast_to":  # -1 leaves the size of an axis alone
        sizes, own = _axes(value), operands[0].shape
        new = len(sizes) - len(own)
        value = tuple(calc.whole(own[axis - new]) if isinstance(size, int) and size == -1 and axis >= new else size
                      for axis, size in enumerate(sizes))  # fmt: skip
    if spec.name == "split" and name != "axis" and isinstance(value, (int, Whole)):
        return _sections(calc, operands[0], value, given_axis)
    if spec.name == "squeeze" and value is None:
        raise Unproved("a squeeze of all axes of size 1")
    if spec.name == "squeeze" and not is_open(value):
        shape, ndim = operands[0].shape, operands[0].ndim
        if not all(-ndim <= axis < ndim for axis in _axes(value)):
            calc.refuse("a squeeze of an axis that its operand lacks")
        return tuple(axis % ndim for axis in _axes(value) if calc.whole(shape[axis]) == 1)  # others are left alone
    if is_open(value):
        if name == "padding" and isinstance(value, tuple) and len(value) == len(spec.attrs["padding"].default) // 2:
            return value * 2
        return value
    try:
        return spec.normalise(name, value, types)
    except ValueError as error:
        calc.refuse(str(error))


def demanded(
    calc: Calculation, spec: OpSpec, name: str, value: Any, operands: tuple[Any, ...], attrs: Mapping[str, Any]
) -> Any:
    """An attribute that a source demands, in canonical form, beside others. Impossible if there is no such call."""
    types = tuple(type_of(calc, operand) for operand in operands)
    return _canonical(calc, spec, name, value, operands, types, attrs.get("axis", 0))


def _sections(calc: Calculation, x: Tensor, count: int | Whole, axis: Any) -> tuple[Any, ...] | Family:
    """The places of the cuts into equal parts."""
    if not isinstance(axis, int):
        raise Unproved("a split along an axis that is not known")
    if not -x.ndim <= axis < x.ndim:
        calc.refuse("a split along an axis that its operand lacks")
    parts = number(count)
    each = calc.path.quotient(x.shape[axis], parts)
    calc.same(each * parts, x.shape[axis], "a split")
    if isinstance(count, Whole):
        return Family(parts - 1, lambda place: calc.whole(each * (place + 1)))
    return tuple(calc.whole(each * place) for place in range(1, count))


def _axes(value: Any) -> tuple[int, ...]:
    return value if isinstance(value, tuple) else (value,)


# ---------------------------------------------------------------- free attributes


def free(calc: Calculation, spec: OpSpec, name: str, operands: tuple[Any, ...]) -> Any:
    """An attribute of which a source demands nothing. Unproved where not all of its values are covered."""
    make = _FREE.get((spec.name, name)) or _FREE.get(name)
    if make is not None:
        return make(calc, spec, operands)
    default = spec.attrs[name].default
    if isinstance(default, bool):
        return calc.path.choose((False, True), f"{name} of {spec.cls}")
    if isinstance(default, float):
        return _any_number(calc, name)
    raise Unproved(f"{name} of {spec.name} is left free")


FreeRule = Callable[[Calculation, OpSpec, tuple[Any, ...]], Any]


def _count(spec: OpSpec) -> int:
    """The number of axes along which a window moves."""
    count = spec.name.removesuffix("_transpose")[-2]
    if not count.isdecimal():
        raise Unproved(f"{spec.name} has no window")
    return int(count)


def _numbers(name: str, least: int, times: int = 1) -> FreeRule:
    def make(calc: Calculation, spec: OpSpec, operands: tuple[Any, ...]) -> Any:
        return tuple(calc.path.variable(name, least) for _ in range(_count(spec) * times))

    return make


def _layout(*orders: str) -> FreeRule:
    """One of some layouts, in which X stands for the spatial axes."""

    def make(calc: Calculation, spec: OpSpec, operands: tuple[Any, ...]) -> Any:
        letters = spatial(_count(spec))
        return calc.path.choose([order.replace("X", letters) for order in orders], f"the layout of {spec.cls}")

    return make


def _rank(operands: tuple[Any, ...]) -> int:
    first = operands[0].at(Poly()) if isinstance(operands[0], Family) else operands[0]
    return first[0].ndim if isinstance(first, tuple) else first.ndim  # type: ignore[no-any-return]


def _axis(more: int = 0) -> FreeRule:
    def make(calc: Calculation, spec: OpSpec, operands: tuple[Any, ...]) -> Any:
        return calc.path.choose(range(max(_rank(operands) + more, 1)), f"axis of {spec.cls}")

    return make


def _some_axes(least: int) -> FreeRule:
    def make(calc: Calculation, spec: OpSpec, operands: tuple[Any, ...]) -> Any:
        ndim = _rank(operands)
        sets = [axes for count in range(least, ndim + 1) for axes in combinations(range(ndim), count)]
        return calc.path.choose(sets, f"axis of {spec.cls}")

    return make


def _permutation(calc: Calculation, spec: OpSpec, operands: tuple[Any, ...]) -> Any:
    return calc.path.choose(list(permutations(range(_rank(operands)))), f"axes of {spec.cls}")


def _newshape(calc: Calculation, spec: OpSpec, operands: tuple[Any, ...]) -> Any:
    ndim = calc.path.choose(RANKS, f"the rank of {spec.cls}")
    sizes = tuple(calc.path.variable("size") for _ in range(ndim))
    calc.path.assume(("==", product(map(number, sizes)) - product(operands[0].shape)))
    return tuple(calc.whole(number(size)) for size in sizes)


def _wide_shape(calc: Calculation, spec: OpSpec, operands: tuple[Any, ...]) -> Any:
    own = operands[0].shape if operands else ()
    ranks = [rank - len(own) for rank in RANKS if rank >= len(own)]
    more = calc.path.choose(ranks or [0], f"new axes of {spec.cls}")
    new = [calc.path.variable("size").poly for _ in range(more)]
    rest = [calc.path.broadcast([size, calc.path.variable("size").poly], given=True) for size in own]
    return tuple(map(calc.whole, (*new, *rest)))


def _cuts(calc: Calculation, spec: OpSpec, operands: tuple[Any, ...]) -> Any:
    parts = calc.path.choose(PARTS, "the number of parts of a split")
    places, last = [], Poly()
    for _ in range(parts - 1):
        last = last + calc.path.variable("part").poly
        places.append(calc.whole(last))
    return tuple(places)


def _dtype(calc: Calculation, spec: OpSpec, operands: tuple[Any, ...]) -> Any:
    return DType(calc.path.variable("dtype", 0).poly, calc.path)


def _pairs(calc: Calculation, spec: OpSpec, operands: tuple[Any, ...]) -> Any:
    return tuple((calc.path.variable("pad", None), calc.path.variable("pad", None)) for _ in range(_rank(operands)))


def _squeezed(calc: Calculation, spec: OpSpec, operands: tuple[Any, ...]) -> Any:
    chosen = _some_axes(0)(calc, spec, operands)
    for axis in chosen:
        calc.path.assume(("==", operands[0].shape[axis] - 1))
    return chosen


def _axis_or_none(calc: Calculation, spec: OpSpec, operands: tuple[Any, ...]) -> Any:
    return calc.path.choose((None, *range(_rank(operands))), f"axis of {spec.cls}")


_FREE: Mapping[Any, FreeRule] = {
    "strides": _numbers("stride", 1), "dilation": _numbers("dilation", 1), "padding": _numbers("padding", 0, 2),
    "output_padding": _numbers("output_padding", 0), "pool_size": _numbers("window", 1),
    **{name: lambda calc, spec, operands: calc.path.variable("groups") for name in ("groups", "num_groups")},
    **{(f"nn.avg_pool{n}d", "dilation"): lambda calc, spec, operands: (1,) * _count(spec) for n in (1, 2, 3)},
    "data_layout": _layout("NCX", "NXC"), "layout": _layout("NCX", "NXC"), "out_layout": _layout("", "NCX", "NXC"),
    "kernel_layout": lambda calc, spec, operands: _layout(*(
        ("IOX", "XIO") if "output_padding" in spec.attrs else ("OIX", "XIO")))(calc, spec, operands),
    "out_dtype": _dtype, "dtype": _dtype, "axis": _axis(), ("stack", "axis"): _axis(1),
    ("expand_dims", "axis"): _axis(1), ("transpose", "axes"): _permutation, "newshape": _newshape, "shape": _wide_shape,
    "indices_or_sections": _cuts, "pad_width": _pairs, ("squeeze", "axis"): _squeezed,
    ("reverse", "axis"): _some_axes(0),
    **{(name, "axis"): _some_axes(1) for name in ("nn.layer_norm", "nn.rms_norm")},
    **{(name, "axis"): _some_axes(0) for name in
       ("sum", "mean", "max", "min", "prod", "variance", "std", "logsumexp", "all", "any", "argmax", "argmin",
        "nn.l2_normalize")},
    ("repeat", "axis"): _axis_or_none, ("cumsum", "axis"): _axis_or_none,
    ("repeat", "repeats"): lambda calc, spec, operands: calc.path.variable("repeats"),
    ("trilu", "k"): lambda calc, spec, operands: calc.path.variable("k", None),
    "exclude": lambda calc, spec, operands: False,
    "num_newaxis": lambda calc, spec, operands: calc.path.choose(NEW_AXES, "new axes"),
    "approximate": lambda calc, spec, operands: calc.path.choose(("none", "tanh"), "approximate"),
    "a_min": lambda calc, spec, operands: _or_none(calc, "bound"),
    "a_max": lambda calc, spec, operands: _or_none(calc, "bound"),
    ("nn.attention", "scale"): lambda calc, spec, operands: _or_none(calc, "scale"),
}  # fmt: skip


def _or_none(calc: Calculation, name: str) -> Any:
    return _any_number(calc, name) if calc.path.choose((True, False), f"a {name} that is given") else None


def _any_number(calc: Calculation, name: str) -> Real:
    if calc.path.member is not None:
        raise Unproved(f"{name} is a number that is left free in each instance")
    return Real(alone(Element(calc.path.name(name))), calc.algebra)
