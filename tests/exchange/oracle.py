"""What a rule means, computed on torch tensors straight from its terms, and instances of its left side.

Independent of the patterns that the rule becomes: an oracle for them, and a search for instances on which a rule does
not hold.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

from gsl.exchange.terms import ACTIVATIONS, FIELD, VARIABLE, RuleTerm, TermRule, walk

Values = Mapping[RuleTerm, torch.Tensor]
FUNCTIONS = {"": lambda x: x, "relu": torch.relu, "sigmoid": torch.sigmoid, "tanh": torch.tanh}


class Undefined(Exception):
    """An operator is not defined for its operands."""


@dataclass(frozen=True)
class Reading:
    """What operators of a source may do, as in ``gsl.exchange.Semantics``."""

    groups: bool = False
    broadcasting: bool = False


def need(condition: bool) -> None:
    if not condition:
        raise Undefined


def same_padding(k: int) -> tuple[int, int]:
    """Before and after, at stride 1."""
    return k // 2, (k - 1) // 2


class Evaluation:
    """The values of the terms of one side."""

    def __init__(self, values: Values, reading: Reading, *, one_group: bool) -> None:
        self.values = dict(values)
        self.reading = reading
        self.one_group = one_group
        self.cuts: dict[RuleTerm, dict[int, tuple[int, ...]]] = {}
        """Where a tensor was joined along an axis, carried along as the formats say."""

    def of(self, terms: Sequence[RuleTerm]) -> list[torch.Tensor]:
        for term in walk(*terms):
            if term not in self.values:
                try:
                    self.values[term] = getattr(self, term.op)(term, *[self.values[x] for x in term.operands])
                except (RuntimeError, IndexError, ZeroDivisionError):
                    raise Undefined from None
        return [self.values[term] for term in terms]

    def _carried(self, term: RuleTerm, axes: Mapping[int, tuple[RuleTerm, int]]) -> None:
        found = {axis: self.cuts[x][a] for axis, (x, a) in axes.items() if a in self.cuts.get(x, {})}
        self.cuts[term] = found

    def _element_wise(self, term: RuleTerm) -> None:
        self.cuts[term] = {}
        for operand in term.operands:
            self.cuts[term] |= self.cuts.get(operand, {})

    def relu(self, term: RuleTerm, x: torch.Tensor) -> torch.Tensor:
        self._element_wise(term)
        return FUNCTIONS[term.op](x)

    sigmoid = tanh = relu

    def ewadd(self, term: RuleTerm, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        need(self.reading.broadcasting or a.shape == b.shape)
        self._element_wise(term)
        return a + b if term.op == "ewadd" else a * b

    ewmul = ewadd

    def matmul(self, term: RuleTerm, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        need(a.dim() >= 2 and b.dim() >= 2)
        need(self.reading.broadcasting or a.shape[:-2] == b.shape[:-2])
        last = a.dim() - 1
        left, right = term.operands
        self._carried(term, {**{axis: (left, axis) for axis in range(last)}, last: (right, last)})
        return FUNCTIONS[ACTIVATIONS[term.params["act"]]](a @ b)

    def conv2d(self, term: RuleTerm, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        need(x.dim() == 4 and w.dim() == 4 and x.shape[1] % w.shape[1] == 0)
        groups = x.shape[1] // w.shape[1]
        need(groups == 1 or not self.one_group)
        need(term.params["pad"] == 0 and term.params["stride_h"] == term.params["stride_w"] == 1)
        (top, bottom), (left, right) = same_padding(w.shape[2]), same_padding(w.shape[3])
        data, kernel = term.operands
        self._carried(term, {0: (data, 0), 1: (kernel, 0)})
        result = F.conv2d(F.pad(x, (left, right, top, bottom)), w, groups=groups)
        return FUNCTIONS[ACTIVATIONS[term.params["act"]]](result)

    def concat(self, term: RuleTerm, *items: torch.Tensor) -> torch.Tensor:
        axis = term.params["axis"]
        need(all(item.dim() == term.params["ndim"] for item in items))
        self._carried(term, {a: (term.operands[0], a) for a in range(term.params["ndim"]) if a != axis})
        sizes = [item.shape[axis] for item in items]
        self.cuts[term][axis] = tuple(sizes)
        return torch.cat(items, axis)

    def split(self, term: RuleTerm, x: torch.Tensor) -> Any:
        axis = term.params["axis"]
        need(axis in self.cuts.get(term.operands[0], {}))
        return torch.split(x, self.cuts[term.operands[0]][axis], axis)

    def field(self, term: RuleTerm, whole: Any) -> torch.Tensor:
        part: torch.Tensor = whole[term.params["index"]]
        return part


assert FIELD == "field"


def variables(rule: TermRule) -> list[RuleTerm]:
    return [term for term in walk(*rule.source) if term.op == VARIABLE]


def instance(
    rule: TermRule, reading: Reading, rng: random.Random, tries: int = 400
) -> dict[RuleTerm, torch.Tensor] | None:
    """Tensors of small whole numbers for the variables, on which the source is defined; ``None`` if none is found."""
    for _ in range(tries):
        values = {v: torch.tensor(0) for v in variables(rule)}
        shapes = _shapes(rule, reading, rng)
        for variable, shape in shapes.items():
            count = 1
            for size in shape:
                count *= size
            numbers = [rng.choice((-2, -1, 1, 2, 3)) for _ in range(count)]
            values[variable] = torch.tensor(numbers, dtype=torch.float64).reshape(shape)
        try:
            Evaluation(values, reading, one_group=not reading.groups).of(rule.source)
        except Undefined:
            continue
        return values
    return None


def _shapes(rule: TermRule, reading: Reading, rng: random.Random) -> dict[RuleTerm, tuple[int, ...]]:
    """A random shape for every variable, of few sizes, so that they often fit."""
    terms = list(walk(*rule.source))
    kernels = {x for t in terms if t.op == "conv2d" for x in walk(t.operands[1])}
    images = {x for t in terms if t.op == "conv2d" for x in walk(t.operands[0])}
    ranks = {t.params["ndim"] for t in terms if t.op == "concat"} | {4 for t in terms if t.op == "conv2d"}
    lowest = 2 if any(t.op == "matmul" for t in terms) else 0
    rank = ranks.pop() if ranks else rng.choice([r for r in (2, 2, 1, 3, 0, 4) if r >= lowest])
    few = rng.choice((1, 2, 2, 3))
    sizes = rng.sample((1, 2, 3, 4), few)
    batch, space = rng.sample((1, 2, 3), rng.choice((1, 2))), rng.sample((1, 2, 3, 4), rng.choice((1, 1, 2)))
    window = rng.sample((1, 2, 3), rng.choice((1, 1, 2)))
    shapes = {}
    for variable in variables(rule):
        own = rank
        if reading.broadcasting and rng.random() < 0.2:
            own = rng.choice([r for r in (1, 2, 3, 4) if r >= lowest])
        shape = [rng.choice(sizes) for _ in range(own)]
        if kernels and own == 4:
            shape[2:] = [rng.choice(window if variable in kernels else space) for _ in range(2)]
            if variable in images and variable not in kernels:
                shape[0] = rng.choice(batch)
        if reading.broadcasting:
            shape = [1 if rng.random() < 0.2 else size for size in shape]
        shapes[variable] = tuple(shape)
    return shapes


def judge(rule: TermRule, values: Values, reading: Reading) -> str:
    """What the target is on an instance of the source: ``equal``, ``undefined``, or another ``shape`` or ``value``."""
    source = Evaluation(values, reading, one_group=not reading.groups).of(rule.source)
    try:
        target = Evaluation(values, reading, one_group=False).of(rule.target)
    except Undefined:
        return "undefined"
    if any(a.shape != b.shape for a, b in zip(source, target, strict=True)):
        return "shape"
    return "equal" if all(torch.equal(a, b) for a, b in zip(source, target, strict=True)) else "value"
