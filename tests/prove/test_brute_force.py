"""Random small rules: none that is proved has a counterexample among many small tensors."""

from __future__ import annotations

import contextlib
import itertools
import math
import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from gsl import Subst, pat
from gsl.pat import Pattern
from gsl.prove import Proof, prove
from gsl.spec import LISTS, TABLE
from gsl.spec.meaning import evaluate
from tests.tiers import examples

AXES = [{"axis": axis} for axis in (0, 1, -1)]
ALONG = [{"axis": axis, "keepdims": kept} for axis in (None, (0,), (1,), (-1,), (0, -1)) for kept in (False, True)]
OPERATORS: dict[str, Sequence[dict[str, Any]]] = {
    **{name: [{}] for name in (
        "negative", "abs", "square", "nn.relu", "exp", "log", "reciprocal", "sqrt", "ones_like", "add", "subtract",
        "multiply", "divide", "maximum", "minimum", "matmul", "greater", "where")},
    **dict.fromkeys(("sum", "mean", "max", "prod"), ALONG),
    **dict.fromkeys(("nn.softmax", "concatenate", "stack", "expand_dims"), AXES),
    **{name: [{"axis": (0,)}, {"axis": (-1,)}] for name in ("squeeze", "reverse")},
    "transpose": [{"axes": (1, 0)}, {"axes": (0, 2, 1)}, {"axes": (2, 0, 1)}],
    "reshape": [{"newshape": shape} for shape in ((-1,), (-1, 1), (2, -1), (0, -1))],
    "strided_slice": [{"begin": (b,), "end": (e,), "strides": (1,), "axes": (a,)}
                      for b, e in ((0, 1), (1, 2), (0, 2)) for a in (0, -1)],
    "nn.pad": [{"pad_width": ((0, 0), width), "pad_value": value} for width in ((1, 0), (0, 2)) for value in (0, 0.5)],
    "einsum": [{"equation": e} for e in ("ij,jk->ik", "ij,kj->ik", "ij,ij->i", "ij,j->i")],
    "cast": [{"dtype": dtype} for dtype in ("float64", "float32", "int64")],
    "clip": [{"a_min": 0.0, "a_max": None}, {"a_min": -1.0, "a_max": 1.0}],
}  # fmt: skip
NUMBERS = (0.0, 0.5, 1.0, 2.0, -1.0)


DTYPES = ("float64", "float32", "int64")
SHAPES = [shape for ndim in range(4) for shape in itertools.product((1, 2, 3), repeat=ndim)]
UNDEFINED = (ValueError, RuntimeError, IndexError, TypeError)


@dataclass(frozen=True)
class Call:
    """A call of leaves, which are whole numbers, of numbers, and of other calls."""

    name: str
    operands: tuple[Any, ...]
    attrs: tuple[tuple[str, Any], ...]

    def value(self, leaves: Sequence[Any], *, finite: bool) -> Any:
        """What it is for some tensors; one of UNDEFINED where it is not defined, or not finite inside."""
        operands = self.made(leaves, lambda call: call.value(leaves, finite=finite))
        found = evaluate(TABLE[self.name], operands, dict(self.attrs))
        if finite and not torch.isfinite(found).all():
            raise ValueError("a number that is not finite")
        return found

    def pattern(self, leaves: Sequence[Pattern]) -> Pattern:
        operands = self.made(leaves, lambda call: call.pattern(leaves))
        defaults = {name: given.default for name, given in TABLE[self.name].attrs.items()}
        return pat.Call(self.name, *operands, **{**defaults, **dict(self.attrs)})

    def made(self, leaves: Sequence[Any], make: Callable[[Call], Any]) -> list[Any]:
        found = [make(of) if isinstance(of, Call) else leaves[of] if isinstance(of, int) else of
                 for of in self.operands]  # fmt: skip
        return [found] if self.name in LISTS else found

    def leaves(self) -> set[int]:
        return {o for o in self.operands if isinstance(o, int)}.union(
            *(o.leaves() for o in self.operands if isinstance(o, Call))
        )


def call(draw: random.Random, depth: int) -> Call:
    """A random call."""

    def operand(*numbers: float) -> Any:
        return draw.choice([0, 0, 1, *numbers] if depth == 1 or draw.random() < 0.3 else [call(draw, depth - 1)])

    name = draw.choice(sorted(OPERATORS))
    attrs = tuple(draw.choice(OPERATORS[name]).items())
    operands = [operand(), *(operand(*NUMBERS) for _ in range(1, 2 if name in LISTS else len(TABLE[name].operands)))]
    if name == "where":
        operands[0] = Call("greater", (operand(), 0.5), ())
    return Call(name, tuple(operands), attrs)


def tensor(draw: random.Random, shape: tuple[int, ...], dtype: str) -> Any:
    """Halves, or whole numbers."""
    numbers = [draw.randint(-4, 6) / 2 for _ in range(math.prod(shape))]
    return torch.tensor(numbers, dtype=torch.float64).reshape(shape).to(getattr(torch, dtype))


def pairs(draw: random.Random, leaves: Sequence[Any]) -> Iterator[tuple[Call, Call]]:
    """Calls of one value for some tensors: if these have much in common, some pairs are equal always, others not."""
    equal: dict[Any, list[Call]] = defaultdict(list)
    for each in {call(draw, draw.choice((1, 2, 2, 3))): None for _ in range(300)}:
        with contextlib.suppress(*UNDEFINED):
            value = each.value(leaves, finite=True)
            equal[value.shape, tuple(value.double().mul(1e6).round().flatten().tolist())].append(each)
    for group in equal.values():
        for _ in group[1:]:
            source, target = draw.sample(group, 2)
            if target.leaves() <= source.leaves():
                yield source, target


@dataclass(frozen=True)
class Case:
    """Two calls as a rule, of leaves of some ranks and dtypes, or of equal shapes."""

    source: Call
    target: Call
    guards: tuple[dict[str, Any], ...]
    equal: bool

    def rule(self) -> Subst:
        leaves = [pat.Wildcard(**guard) for guard in self.guards]
        where = [leaves[0].shape == leaves[1].shape] if self.equal else []
        return Subst(self.source.pattern(leaves), self.target.pattern(leaves), where=where)

    def counterexample(self, draw: random.Random) -> Any:
        """Tensors for which the calls differ; ``None`` if none of those that are tried are such."""
        for _ in range(60):
            shapes = [draw.choice([s for s in SHAPES if len(s) == guard["ndim"]]) for guard in self.guards]
            if self.equal:
                shapes[1] = shapes[0]
            leaves = [tensor(draw, shape, guard.get("dtype", draw.choice(DTYPES)))
                      for shape, guard in zip(shapes, self.guards)]  # fmt: skip
            with contextlib.suppress(*UNDEFINED):  # of the target: the engine refuses it, as it does another type
                before, after = self.source.value(leaves, finite=True), self.target.value(leaves, finite=False)
                same_type = (before.shape, before.dtype) == (after.shape, after.dtype)
                if same_type and not torch.allclose(before.double(), after.double(), rtol=1e-4, atol=1e-4):
                    return leaves
        return None


def cases(draw: random.Random) -> Iterator[Case]:
    """Random rules."""
    alike = [torch.full((2, 2), 1.5, dtype=torch.float64)] * 2
    for leaves in (alike, [tensor(draw, (2, 2), "float64") for _ in range(2)]):
        for source, target in itertools.islice(pairs(draw, leaves), 20):
            equal = source.leaves() == {0, 1} and draw.random() < 0.5
            ndim = draw.choice((1, 2, 2, 2, 3))
            guards = [{"ndim": ndim if equal else draw.choice((ndim, 2)), **draw.choice(({}, {"dtype": dtype}))}
                      for dtype in draw.choices(DTYPES, k=2)]  # fmt: skip
            yield Case(source, target, tuple(guards), equal)


@pytest.mark.law
def test_no_proof_has_a_counterexample() -> None:
    proved = 0
    for seed in range(examples(18)):
        draw = random.Random(seed)
        for case in cases(draw):
            if isinstance(prove(case.rule(), seconds=2.0), Proof):
                proved += 1
                assert case.counterexample(draw) is None, case
    assert proved > examples(60)


def test_the_oracle_can_fail() -> None:
    draw = random.Random(0)
    assert sum(case.counterexample(draw) is not None for case in cases(draw)) > 5
