"""The real values that are drawn for the leaves of graphs, so that their operators are defined on most of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final

import numpy as np
import torch

from gsl.graph import GETITEM, TUPLE, TensorType
from gsl.spec import TABLE
from gsl.spec.math import COMPARISONS
from gsl.spec.normalise import is_number
from gsl.verify.kinds import EQUALITIES, MOVES, ORDER
from gsl.verify.models.program import PRECISION, StraightLineProgram, StraightLineStep, is_floating
from gsl.verify.models.result import CornerNumbers
from gsl.walk import reached

Rng = np.random.Generator
Shape = Any
"""A tuple of sizes."""
DrawKind = Callable[[Rng, Shape], Any]
"""Makes float64 numbers of a shape."""


def _small(rng: Rng, shape: Shape) -> Any:
    """Small whole numbers: ties, zeros, both signs."""
    return rng.integers(-3, 4, shape).astype(np.float64)


def _ordinary(rng: Rng, shape: Shape) -> Any:
    """Numbers of both signs, with few enough digits to be read and to be exact in float32."""
    return np.round(rng.normal(0.0, 1.5, shape) * 64) / 64


def _positive(rng: Rng, shape: Shape) -> Any:
    """Numbers in (0, 4]."""
    return rng.integers(1, 257, shape) / 64


def _negative(rng: Rng, shape: Shape) -> Any:
    """Numbers in [-4, 0)."""
    return -_positive(rng, shape)


_SPECIAL: Final = np.array([0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, 3.0, -3.0, 6.0, 7.0, -20.0, 25.0, 1e-3, -1e-6])


def _special(rng: Rng, shape: Shape) -> Any:
    """Zeros, ones, halves, and numbers beyond the thresholds of operators."""
    return _SPECIAL[rng.integers(0, len(_SPECIAL), shape)]


def _wide(rng: Rng, shape: Shape) -> Any:
    """Numbers of many magnitudes with all their digits, up to 30, so that no exponential of a few overflows."""
    return rng.choice((-1.0, 1.0), shape) * np.exp(rng.uniform(-9.0, 3.4, shape))


def _not_finite(rng: Rng, shape: Shape) -> Any:
    """Infinite numbers and NaN among small ones."""
    return np.where(rng.integers(2, size=shape), _small(rng, shape), rng.choice(_NOT_FINITE, shape))


def _huge(rng: Rng, shape: Shape) -> Any:
    """Numbers near the largest one among small ones: a product of two overflows, as it does in float16 beyond 256."""
    return np.where(rng.integers(2, size=shape), _small(rng, shape), np.exp2(rng.uniform(900, 1020, shape)))


KINDS: Final[tuple[DrawKind, ...]] = (_small, _ordinary, _positive, _negative, _wide, _special)
"""The kinds of draws for floats, in the order in which they are made; a difference is shown on the first."""

CORNERS: Final[Mapping[CornerNumbers, DrawKind]] = {"small": _small, "not finite": _not_finite, "huge": _huge}
"""Draws on which no verdict depends."""

_DOMAINS: Final[Mapping[str, tuple[int, Callable[[Any], Any]]]] = {
    **dict.fromkeys(("sqrt", "rsqrt", "log", "log2", "log10"), (0, np.abs)),
    **dict.fromkeys(("asin", "acos", "atanh"), (0, lambda x: np.clip(x, -1, 1))),
    "acosh": (0, lambda x: 1 + np.abs(x)),
    "nn.batch_norm": (4, np.abs),
}
"""The operand of an operator that has no values elsewhere, and how a number becomes one of those it has values for."""

_STEPS: Final = (0.0, 2.0**-10, 2.0**-13, 2.0**-26)
"""The distances from a whole number that casts to bfloat16, float16 and float32 round off."""

_MOST: Final = 2**60
"""The largest whole number that is demanded of a leaf, so that twice the distance of two does not overflow."""
_SMALL_WHOLE: Final = 5
"""The size of the integers that are drawn mostly."""
_INDICES: Final = ("take", "gather", "scatter")
_SHIFTS: Final = ("left_shift", "right_shift")
_FINITE: Final = ("isfinite", "isinf", "isnan")
_NOT_FINITE: Final = np.array([np.inf, -np.inf, np.nan])
_FILLS: Final = {"full": 0, "full_like": 1, "cast": 0}
"""The operand of which all elements of the result are."""
_AROUND: Final = (1.0, 2.0, 0.5, 1.0 + 2.0**-6, 1.0 - 2.0**-6)
"""The multiples, of both signs, that are drawn of a number with which elements are compared."""
_DIVISIONS: Final = ("floor_divide", "floor_mod", "mod", "divide")


def _origins(slot: int, names: Mapping[int, str], makers: Mapping[int, StraightLineStep]) -> list[str]:
    """The leaves of which the elements of a slot are copies."""
    found, stack = [], [slot]
    while stack:
        slot = stack.pop()
        if slot in names:
            found.append(names[slot])
        elif slot in makers:
            step = makers[slot]
            if step.op in MOVES or step.op in ("cast", GETITEM):
                stack.append(step.operands[0])
            elif step.op in (TUPLE, "concatenate", "stack"):
                stack += step.operands
    return found


def _ends(program: StraightLineProgram) -> set[int]:
    """The first whole numbers that the dtypes do not have which integers are cast to or from, and the last ones that
    floats have."""
    types: dict[int, Any] = dict(program.leaves.values()) | {step.result: step.kind for step in program.steps}
    casts = [(types[step.operands[0]].dtype, types[step.result].dtype)
             for step in program.steps if step.op == "cast" and step.operands[0] in types]  # fmt: skip
    changed = {dtype for cast in casts if "int" in cast[0] and cast[0] != cast[1] for dtype in cast}
    wholes = {torch.iinfo(getattr(torch, dtype)).max + 1 for dtype in changed if "int" in dtype}
    rounded = {2 ** PRECISION[dtype][0] + more for dtype in changed if dtype in PRECISION for more in (0, 1)}
    return {times * end for end in wholes for times in (1, 2)} | rounded


def _widest(program: StraightLineProgram) -> int:
    """The bits of the widest integers of which the least and the largest may be drawn.

    Where floats take part, float64 has to hold them. A function of a user may divide, and to divide the least of 32
    bits by -1 ends the process.
    """
    if any(step.spec is not None and step.op not in TABLE for step in program.steps):
        return 16
    types = [*(kind for _, kind in program.leaves.values()), *(step.kind for step in program.steps)]
    floats = any(isinstance(kind, TensorType) and is_floating(kind.dtype) for kind in types)
    return 32 if floats or any(isinstance(value, float) for value in program.literals.values()) else 64


def _thresholds(program: StraightLineProgram) -> Iterator[float]:
    """The numbers other than 0 with which a program compares elements, without those that a condition gives."""
    for step in program.steps:
        if step.op in ORDER:
            bounds = map(step.attrs.get, ("a_min", "a_max"))
            literals = [program.literals.get(slot) for slot in step.operands if slot not in program.given]
            found: list[Any] = [*literals, *bounds]
            yield from (float(value) for value in found if is_number(value) and value and math.isfinite(value))


def _whole_near(thresholds: Iterable[float]) -> set[int]:
    """The whole numbers next to those among thresholds, beyond the small ones."""
    whole = [int(value) for value in thresholds if value.is_integer() and abs(value) > _SMALL_WHOLE]
    return {near for value in whole for near in range(value - 1, value + 2)}


def _asked(program: StraightLineProgram) -> set[str]:
    """The leaves of which a program asks whether they, or what is made of them, are finite: by an operator, by a
    comparison with an infinite number, or by one of elements with themselves."""
    makers = {step.result: step for step in program.steps}

    def asks(step: StraightLineStep) -> bool:
        itself = step.op in EQUALITIES and len(set(step.operands)) == 1
        return step.op in _FINITE or itself or (step.op in COMPARISONS and any(map(is_infinite, step.operands)))

    def is_infinite(slot: int) -> bool:
        while slot in makers and (makers[slot].op in MOVES or makers[slot].op in _FILLS):
            slot = makers[slot].operands[_FILLS.get(makers[slot].op, 0)]
        value = program.literals.get(slot)
        return value is not None and bool(np.isinf(np.asarray(value)).all())

    asked = [slot for step in program.steps if asks(step) for slot in step.operands]
    below = set(reached(asked, lambda slot: makers[slot].operands if slot in makers else ()))
    return {name for name, (slot, _) in program.leaves.items() if slot in below}


class DrawnLeaves:
    """The leaves of two programs, and the way to draw them: so that the first program is defined on them."""

    def __init__(self, before: StraightLineProgram, after: StraightLineProgram) -> None:
        self.types: dict[str, TensorType] = {}
        self.wanted = before.domains
        """The numbers that the rule demands of leaves."""
        self._domain: dict[str, Callable[[Any], Any]] = {}
        self._below: dict[str, int] = {}
        """The number of places on the axis from which a leaf of indices selects."""
        self._counted: set[str] = set()
        """The leaves of indices of which none is from the end."""
        self._divisors: set[str] = set()
        self._asked = _asked(before)
        """The leaves of which the source asks whether what is made of them is finite."""
        self._ends = sorted(_ends(before) | _ends(after))
        """Whole numbers that some dtype does not have, where casts of integers take part."""
        self._widest = min(_widest(before), _widest(after))
        thresholds = {*_thresholds(before), *_thresholds(after)}
        self._near = sorted(_whole_near(thresholds))
        """Whole numbers on both sides of those that elements are compared with."""
        self._around = sorted({times * value for value in thresholds for more in _AROUND for times in (more, -more)})
        """The thresholds, and other numbers around them."""
        self._rounds = any(step.rounding for program in (before, after) for step in program.steps)
        """True if a cast rounds: then the numbers that the dtype of a leaf has matter."""
        for program in (before, after):
            self.types.update({name: type for name, (_, type) in program.leaves.items() if name not in self.types})
        names = {slot: name for name, (slot, _) in before.leaves.items()}
        types: dict[int, Any] = dict(before.leaves.values())
        makers: dict[int, StraightLineStep] = {}
        for step in before.steps:
            types[step.result], makers[step.result] = step.kind, step
            self._restrict(step, types, partial(_origins, names=names, makers=makers))

    def _restrict(self, step: StraightLineStep, types: Mapping[int, Any], origins: Callable[[int], list[str]]) -> None:
        """Takes note of the demands on the leaves for an operator to be defined."""
        place, domain = _DOMAINS.get(step.op, (0, None))
        if domain is not None:
            for name in origins(step.operands[place]):
                self._domain.setdefault(name, domain)
        if step.op in _INDICES and step.operands[0] in types:
            shape, axis = types[step.operands[0]].shape, step.attrs["axis"]
            size = math.prod(shape) if axis is None else shape[axis] if shape else 1
            for name in origins(step.operands[1]):
                self._below[name] = min(max(size, 1), self._below.get(name, size))
                self._counted.update([name] if step.op != "take" or name in self.wanted else [])
        elif step.op in _SHIFTS:
            self._below.update(dict.fromkeys(origins(step.operands[1]), 4))
            self._counted.update(origins(step.operands[1]))
        elif step.op in _DIVISIONS:
            self._divisors.update(origins(step.operands[1]))

    def draw(self, rng: Rng, kind: DrawKind) -> dict[str, Any]:
        """Values for all leaves by name: float64 for floats, and the leaf's own dtype for all others."""
        found = {
            name: self._real(rng, name, type, kind)
            if is_floating(type.dtype)
            else self.whole(rng, name, type, kind)
            for name, type in self.types.items()
        }
        for name, domain in self.wanted.items():
            if is_floating(self.types[name].dtype):
                found[name] = domain.mapped(found[name])
        return found

    def _real(self, rng: Rng, name: str, type: TensorType, kind: DrawKind) -> Any:
        # Numbers that are demanded are finite.
        values = (kind if kind in KINDS or name not in self.wanted else _small)(rng, type.shape)
        # A leaf may have other uses, so that now and then its domain is left.
        if name in self._domain and rng.integers(4):
            values = self._domain[name](values)
        if self._rounds and kind is _special:
            shape: Any = type.shape
            values = values - rng.choice(_STEPS, shape)
        if self._around and kind is _special:
            largest = torch.finfo(getattr(torch, type.dtype)).max
            around = [number for number in self._around if abs(number) <= largest] or [0.0]
            values = np.where(rng.integers(2, size=np.shape(values)), values, rng.choice(around, np.shape(values)))
        if name in self._asked and name not in self.wanted and kind is _special:
            others = rng.choice(_NOT_FINITE, np.shape(values))
            values = np.where(rng.integers(2, size=np.shape(values)), values, others)
        found = torch.from_numpy(np.asarray(values))
        return found.to(getattr(torch, type.dtype)).double() if self._rounds else found

    def draw_rationals(self, rng: Rng, range: int, sides: bool) -> dict[str, tuple[Any, int]]:
        """Values for all leaves by name, with denominators: whole numbers of at most a range.

        With ``sides``, each leaf is of both signs or of one, and over 1, 2 or 4.
        """
        return {
            name: self._rational(rng, name, type.shape, range, sides)
            if is_floating(type.dtype)
            else (self.whole(rng, name, type), 1)
            for name, type in self.types.items()
        }

    def _rational(self, rng: Rng, name: str, shape: Shape, range: int, sides: bool) -> tuple[Any, int]:
        low, high, denominator = -range, range + 1, 1
        if sides:
            low, high = ((-range, range + 1), (-range, range + 1), (0, range + 1), (-range, 1))[rng.integers(4)]
            denominator = int(rng.choice((1, 2, 4)))
        found = torch.from_numpy(np.asarray(rng.integers(low, high, shape), dtype=np.float64))
        return found if name not in self.wanted else self.wanted[name].mapped(found), denominator

    def whole(self, rng: Rng, name: str, type: TensorType, kind: DrawKind = _small) -> Any:
        """A value for a leaf of integers or booleans: small numbers; of the draws of wide ones those up to the ends of
        dtypes that casts lead to or from, and all that 8 bits have; of huge ones all that the dtype has; of special
        ones those next to what they are compared with."""
        shape: Any = type.shape
        if type.dtype == "bool":
            return torch.from_numpy(np.asarray(rng.integers(0, 2, shape).astype(bool)))
        if "complex" in type.dtype:
            raise ValueError(f"complex numbers are not compared, found {name} of type {type}")
        low = 0 if name in self._below or type.dtype.startswith("uint") else -_SMALL_WHOLE
        high = self._below.get(name, _SMALL_WHOLE + 1)
        limits = torch.iinfo(getattr(torch, type.dtype))
        if kind is _special and name in self._below and name not in self._counted:
            low = max(limits.min, -high)
        chosen = [] if name in self._below else self._chosen(kind, limits)
        if chosen and kind is not _special:
            reach = int(1.25 * min([2**31, *self._ends]))
            low, high = max(limits.min, -reach), min(limits.max, reach) + 1
        elif rng.integers(3) == 0:
            # Numbers that are indices of almost anything, should they be computed with before they are used.
            low, high = 0, min(high, 2)
        values = np.asarray(rng.integers(low, high, shape))
        if chosen:
            values = np.where(rng.integers(2, size=shape), rng.choice(chosen, shape), values)
        if name in self._divisors:
            values = np.where(values == 0, 1, values)
        found = torch.from_numpy(values)
        if name in self.wanted:
            found = self.wanted[name].within(max(limits.min, -_MOST), min(limits.max, _MOST)).mapped(found)
        return found.to(getattr(torch, type.dtype))

    def _chosen(self, kind: DrawKind, limits: Any) -> list[int]:
        """The numbers of a dtype of which many elements are in a draw of a kind."""
        whole = kind is _huge or (kind is _wide and limits.bits == 8)
        own = (limits.min, limits.max) if whole and limits.bits <= self._widest else ()
        chosen = (*self._ends, *own) if kind is _wide else self._near if kind is _special else own
        return [number for number in chosen if limits.min <= number <= min(limits.max, 2**63 - 1)]
