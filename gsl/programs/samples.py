"""Samples: types and values with which two programs are traced, so that what differs tells what depends on what."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from gsl.errors import FrontEndError, MissingPackageError, PatternError
from gsl.graph import TensorType
from gsl.programs.declared import Axis
from gsl.programs.parameters import FREE, RuleLiteral, RuleTensor, shape_words
from gsl.programs.source import InputSample, ProgramTrace, RuleProgram
from gsl.spec import Types

_SMALL: Final = (11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73, 79, 83, 89, 97, 101, 103, 107, 109,
                 113, 127, 131, 137, 139, 149, 151, 157, 163, 167, 173, 179, 181, 191, 193)  # fmt: skip
_LARGE: Final = (401, 409, 419, 421, 431, 433, 439, 443, 449, 457, 461, 463, 467, 479, 487, 491, 499, 503, 509, 521,
                 523, 541, 547, 557, 563, 569, 571, 577, 587, 593, 599, 601, 607, 613, 617, 619, 631, 641, 643,
                 647)  # fmt: skip
"""Primes, so that a product of sizes tells which they were; all are larger than any rank."""
_SETS: Final = 3
"""The number of traces with sizes of their own of which a rule is made; one more is for a check."""
_ONES: Final = 1
"""The number of the trace in which all sizes that may be 1 are 1."""
_MULTIPLES: Final = (2, 12, 64)
"""The numbers of which sizes are multiples where the programs divide them by numbers."""
_MODES: Final = ("other", "square", "aligned")
"""Sizes of the axes that ``*b`` stands for: other ones than all else; the same, of which the last two are equal; or
those of the axes of another leaf that stand above them, and then also 1."""
_LENGTHS: Final = (2, 3, 4, 1, 0)
"""The numbers of axes that are tried at first for ``*b``."""
_MOST: Final = 3
"""A number of axes with which a program goes on to work with more, if it works with this one and a smaller one."""


@dataclass(frozen=True, slots=True)
class _Choice:
    """The choices by which a sample is made."""

    lengths: Mapping[str, int]
    mode: str = "other"
    primes: int = 0
    """The sizes that the names get."""
    descending: bool = False
    """True if names get the smaller sizes that come later."""
    steep: bool = False
    """True if each name gets about three times the size of the next one, as an image beside a dilated kernel."""
    multiple: int = 1
    """The number of which all sizes are multiples; 0 for the product of the literals."""
    kinds: tuple[int, ...] = ()
    """The number of the list of examples that each literal takes."""
    other_dtype: bool = False
    """True if tensors of which the dtype is not said have another one."""


@dataclass(slots=True)
class Traced:
    """Two programs traced with samples, of which the graphs have one form."""

    samples: list[InputSample] = field(default_factory=list)
    before: list[ProgramTrace] = field(default_factory=list)
    after: list[ProgramTrace] = field(default_factory=list)
    lengths: dict[str, tuple[int, int | None]] = field(default_factory=dict)
    """The smallest and the largest number of axes for each ``*b``; ``None`` for no largest one."""
    single: bool = False
    """True if the programs compute something else in another dtype than the first one."""

    def add(self, sample: InputSample, before: ProgramTrace, after: ProgramTrace) -> None:
        """Take one more sample."""
        self.samples.append(sample)
        self.before.append(before)
        self.after.append(after)

    def restricted(self) -> Iterator[Traced]:
        """These traces; those of the first dtype; and those without the largest, or the smallest, number of axes for a
        ``*b``, where the programs can be a rule for the others only."""
        yield self
        if _dtypes(self.samples[-1]) != _dtypes(self.samples[0]):  # the last one has another dtype
            whole = slice(len(self.samples) - 1)
            yield Traced(self.samples[whole], self.before[whole], self.after[whole], self.lengths, single=True)
        for name in self.lengths:
            usual, *counts = [len(sample.sizes[name]) for sample in self.samples]
            low, high = min(counts), max(counts)
            if high > usual and name != FREE:
                yield self._only(name, range(low, high), (low, high - 1))
            if low < usual:
                yield self._only(name, range(low + 1, high + 1), (low + 1, self.lengths[name][1]))

    def _only(self, name: str, counts: range, lengths: tuple[int, int | None]) -> Traced:
        some = Traced(lengths={**self.lengths, name: lengths}, single=self.single)
        for sample, before, after in zip(self.samples, self.before, self.after):
            if len(sample.sizes[name]) in counts:
                some.add(sample, before, after)
        return some


class Sampler:
    """Makes samples and traces the programs with them."""

    def __init__(
        self, before: RuleProgram, after: RuleProgram, tensors: Sequence[RuleTensor], literals: Sequence[RuleLiteral]
    ) -> None:
        self.programs = (before, after)
        self.tensors = tensors
        self.literals = literals
        axes = [axis for tensor in tensors for axis in tensor.axes]
        self.variadic = list(dict.fromkeys(axis.names[0] for axis in axes if axis.variadic))
        named = {literal.name for literal in literals}
        self.names = [name for name in dict.fromkeys(n for axis in axes if not axis.variadic for n in axis.names)
                      if name not in named]  # fmt: skip
        self.finished = before.finished or after.finished
        self.undecided = not self.finished and any(len(tensor.dtypes) > 1 for tensor in tensors)

    def traced(self) -> tuple[Traced, Traced]:
        """The traces of which a rule is made, and one with which it is checked. PatternError where there are none."""
        base, pairs = self._base()
        found, check = Traced(), Traced()
        for pair in pairs:
            found.add(*pair)
        last = replace(base, primes=_SETS)
        check.add(*(self._attempt(replace(last, descending=not base.descending)) or self._attempt(last) or pairs[-1]))
        for name in self.variadic:
            found.lengths[name] = self._lengths(base, name, found)
        if self.undecided:
            other = self._attempt(replace(base, other_dtype=True))
            found.single = other is None or not _alike(pairs[0], other)
            if other is not None and not found.single:
                found.add(*other)
        return found, check

    def first(self) -> tuple[InputSample, Types]:
        """The first sample with which the programs can be traced, and what the first one returns. PatternError where
        there is none."""
        sample, before, _ = self._base(1)[1][0]
        return sample, tuple(before.types())

    def _lengths(self, base: _Choice, name: str, found: Traced) -> tuple[int, int | None]:
        """The numbers of axes with which the graphs keep their form; their traces go into those that were found."""
        first = found.samples[0], found.before[0], found.after[0]
        start = base.lengths[name]
        most = max(_MOST, start + 1)
        ends: list[int] = []
        for numbers in (range(start - 1, -1, -1), range(start + 1, most + 1)):
            end = start
            for length in numbers:
                pair = self._attempt(replace(base, lengths={**base.lengths, name: length}, primes=1))
                if pair is None or not _alike(first, pair):
                    break
                found.add(*pair)
                end = length
            ends.append(end)
        if name == FREE and ends[1] != most:
            free = [tensor.name for tensor in self.tensors if tensor.type.axes is None]
            raise PatternError(
                f"nothing is said of the shape of {', '.join(free)}, and {self.programs[0].title} can't be a rule for "
                f"any number of axes: with {start} it is one, with {ends[1] + 1} it is not; give the shapes, such as "
                f"{free[0]}={' '.join('abcdefgh'[:start])!r}"
            )
        return ends[0], None if ends[1] == most else ends[1]

    def _base(self, sets: int = _SETS) -> tuple[_Choice, list[_Pair]]:
        """The first choice with which both programs can be traced with so many sets of sizes, and these traces."""
        errors: list[tuple[int, FrontEndError, _Choice]] = []
        for choice in self._choices():
            pairs: list[_Pair] = []
            try:
                for primes in range(sets):
                    mode = "one" if choice.mode == "aligned" and primes == _SETS - 1 else choice.mode
                    tried = replace(choice, primes=primes, mode=mode)
                    pairs.append(self._trace(tried))
            except MissingPackageError:
                raise
            except FrontEndError as error:
                errors.append((len(pairs), error, tried))
                continue
            self._check_outputs(*pairs[0])
            return choice, pairs
        _, furthest, tried = max(errors, key=lambda each: each[0])
        raise PatternError(self._refusal(furthest, tried)) from furthest

    def _choices(self) -> Iterator[_Choice]:
        """The ways to make a sample, the likelier ones first."""
        kinds = list(itertools.product(*(range(len(literal.examples)) for literal in self.literals)))
        modes = _MODES if self.variadic else _MODES[:1]
        lengths = [dict.fromkeys(self.variadic, length) for length in (_LENGTHS if self.variadic else (0,))]
        usual = lengths[0]
        for chosen in kinds:
            for multiple, mode in itertools.product((1, 0) if self.literals else (1,), modes):
                yield _Choice(usual, mode, multiple=multiple, kinds=chosen)
        yield _Choice(usual, descending=True, kinds=kinds[0])
        yield _Choice(usual, steep=True, kinds=kinds[0])
        for chosen, other, mode in itertools.product(kinds, lengths[1:], modes):
            yield _Choice(other, mode, kinds=chosen)
        for chosen, multiple in itertools.product(kinds, _MULTIPLES):
            yield _Choice(usual, multiple=multiple, kinds=chosen)

    def _attempt(self, choice: _Choice) -> _Pair | None:
        try:
            return self._trace(choice)
        except FrontEndError:
            return None

    def _trace(self, choice: _Choice) -> _Pair:
        sample = self.sample(choice)
        first, second = self.programs
        before = first.trace(sample)
        return sample, before, before if second is first else second.trace(sample)

    def sample(self, choice: _Choice) -> InputSample:
        """The sample of a choice."""
        step = 1 if choice.primes < _SETS else 2  # the check has values together that no other sample has
        values = {
            literal.name: literal.examples[kind][(choice.primes + number // step) % len(literal.examples[kind])]
            for number, (literal, kind) in enumerate(zip(self.literals, choice.kinds))
        }
        whole = [value for value in values.values() if type(value) is int and value > 0]
        multiple = choice.multiple or math.prod(whole)
        primes = _primes(choice, len(self.names) + len(self.variadic) * _LENGTHS[2])
        sizes: dict[str, Any] = {name: next(primes) * multiple for name in self.names}
        sizes |= {name: value for name, value in values.items() if type(value) is int}
        for name in self.variadic:
            other = tuple(next(primes) * multiple for _ in range(choice.lengths[name]))
            sizes[name] = self._variadic(name, other, choice.mode, sizes)
        types = {
            tensor.name: TensorType(
                _shape(tensor.axes, sizes, ones=choice.primes == _ONES), tensor.dtypes[-1 if choice.other_dtype else 0]
            )
            for tensor in self.tensors
        }
        return InputSample(types, values, sizes)

    def _variadic(self, name: str, other: tuple[int, ...], mode: str, sizes: Mapping[str, Any]) -> tuple[int, ...]:
        if mode == "one":
            return (1,) * len(other)
        if mode == "square":
            return (*other[:-1], other[-2]) if len(other) > 1 else other
        if mode == "aligned":
            tail = min(len(tensor.axes) - 1 - (tensor.type.variadic or 0) for tensor in self.tensors
                       if any(axis.names == (name,) for axis in tensor.axes))  # fmt: skip
            shapes = [_shape(tensor.axes, sizes) for tensor in self.tensors
                      if not any(axis.variadic for axis in tensor.axes)]  # fmt: skip
            above = max((shape[: len(shape) - tail] for shape in shapes), key=len, default=())
            if not above:
                raise FrontEndError(f"there is no other leaf whose axes {name} may be")
            return (*(1,) * (len(other) - len(above)), *above[max(len(above) - len(other), 0) :])
        return other

    def _check_outputs(self, sample: InputSample, before: ProgramTrace, after: ProgramTrace) -> None:
        """Raise PatternError where the two programs return other numbers or other types of tensors."""
        old, new = before.types(), after.types()
        first, second = (program.title for program in self.programs)
        if len(old) != len(new):
            raise PatternError(
                f"each output of the first program is replaced by that of the second one, but {first} returns "
                f"{len(old)} and {second} returns {len(new)}"
            )
        for number, (left, right) in enumerate(zip(old, new)):
            if left != right:
                raise PatternError(
                    f"output {number} is {left} of {first}, and {right} of {second}, for {sample}; both need the same "
                    "shape and dtype"
                )

    def _refusal(self, error: FrontEndError, choice: _Choice) -> str:
        """The message for programs that can't be traced, with the sample of this choice for one."""
        first = str(error)
        free = [tensor.name for tensor in self.tensors if tensor.type.axes is None]
        sample = self.sample(choice)
        if ": TypeError: " in first:
            mend = (
                "each parameter before * is a tensor: a number, or a list of them, stands after it, as in f(x, *, axes)"
            )
        elif free:
            mend = (
                f"nothing is said of the shape of {', '.join(free)}, and none that was tried fits: give it, such as "
                f"{free[0]}='b n d'"
            )
        else:
            mend = "sizes of different names are different, and those of equal names are equal"
        more = "".join(f", values of {literal.name} as {literal.name}=[3, 5]" for literal in self.literals[:1])
        said = f"a dtype is said as 'int64[b n]'{more}"
        return f"{first}; traced with {sample} ({shape_words(self.tensors)}); {mend}; {said}"


_Pair = tuple[InputSample, ProgramTrace, ProgramTrace]


def _alike(one: _Pair, other: _Pair) -> bool:
    return one[1].form() == other[1].form() and one[2].form() == other[2].form()


def _dtypes(sample: InputSample) -> list[str]:
    return [type.dtype for type in sample.types.values()]


def _primes(choice: _Choice, count: int) -> Iterator[int]:
    """Different primes, other ones for each number."""
    if choice.steep:
        from sympy import nextprime

        least = (11, 13, 17, 19)[choice.primes]
        return (nextprime(least * 3**power) for power in reversed(range(count)))
    start = (0, 9, 0, 4)[choice.primes]
    primes = (_LARGE if choice.primes == 2 else _SMALL)[start : start + max(count, 8)]
    return iter(primes[::-1] if choice.descending else primes)


def _shape(axes: Sequence[Axis], sizes: Mapping[str, Any], *, ones: bool = False) -> tuple[int, ...]:
    shape: list[int] = []
    for axis in axes:
        if axis.variadic:
            shape += sizes[axis.names[0]]
        elif axis.broadcast and ones:
            shape.append(1)
        else:
            shape.append(axis.factor * math.prod(sizes[name] for name in axis.names))
    return tuple(shape)

