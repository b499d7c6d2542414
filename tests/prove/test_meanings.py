"""Each meaning as an expression of indices is the meaning in torch, on the examples of the declarations."""

from __future__ import annotations

import contextlib
import itertools
import random
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from gsl import Subst, op, pat
from gsl.graph import LEAVES, Node
from gsl.graph.types import TensorType, TupleType
from gsl.prove.attributes import completed
from gsl.prove.meanings import MEANINGS, call
from gsl.prove.normal import TermAlgebra
from gsl.prove.path import Path
from gsl.prove.poly import DTYPES, Poly, Unproved
from gsl.prove.tensor import Calculation, Tensor
from gsl.spec import TABLE
from gsl.spec.examples import Example, exactly, rand
from gsl.spec.examples import call as call_of
from gsl.verify.choices import Coverage, Dead, Random
from gsl.verify.instance import generate
from tests.prove.numbers import FUNCTIONS, Numbers

OPEN = (
    "argmax", "argmin", "cumsum", "nn.max_pool2d", "nn.pad", "power", "full", "matrix_set_diag", "squeeze",
    "strided_slice",
)  # fmt: skip
"""The operators of which some examples are not covered: modes, several axes, dtypes of sums, more than a matrix."""
PLACES = 6
"""So many elements of each result are compared."""
OTHERS = ("sigmoid", "sin", "less", "where", "nn.leaky_relu", "expm1", "clip")
"""Element-wise operators of which nothing is known but their operands."""
SLOW = ("nn.group_norm", "nn.instance_norm")
"""Normalisations of so many elements that their squares take long; smaller ones are below."""
CASTS = [f"to {dtype}{of}" for dtype in DTYPES for of in ("", " of float32", " of float64")]
CASES = [
    pytest.param(name, number, id=f"{example.label(name)} {number}")
    for name in sorted({*MEANINGS, *OTHERS} - {*SLOW}) for number, example in enumerate(TABLE[name].examples)
]  # fmt: skip


def calculation() -> Calculation:
    path = Path([], {}, float("inf"))
    return Calculation(path, TermAlgebra(path), given=False)


def symbolic(calc: Calculation, value: Any, leaves: dict[str, Any]) -> Any:
    """An operand whose elements are those of a leaf."""
    if isinstance(value, tuple):
        return tuple(symbolic(calc, item, leaves) for item in value)
    tensor = value if isinstance(value, torch.Tensor) else torch.tensor(value)
    name = f"leaf{len(leaves)}"
    leaves[name] = tensor.double().numpy()
    dtype = Poly.of(DTYPES.index(str(tensor.dtype).removeprefix("torch.")))
    return Tensor(tuple(map(Poly.of, tensor.shape)), dtype, lambda index: calc.algebra.element(name, index))


def type_of(value: Any) -> Any:
    if isinstance(value, tuple):
        return TupleType(tuple(map(type_of, value)))
    tensor = value if isinstance(value, torch.Tensor) else torch.tensor(value)
    return TensorType(tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."))


def differing(name: str, example: Example) -> float | None:
    """The largest difference between the two meanings, ``None`` where the example is not covered."""
    spec, values, calc, leaves = TABLE[name], example.values(), calculation(), {}
    operands = tuple(symbolic(calc, value, leaves) for value in values)
    attrs = spec.complete(example.attrs, tuple(map(type_of, values)))
    own = {key: value for key, value in attrs.items() if spec.attrs[key].derive is None}
    wanted = spec.meaning(torch, *values, **own)
    if not all(torch.isfinite(result).all() for result in (wanted if isinstance(wanted, tuple) else (wanted,))):
        raise Unproved("a result that is not finite")

    def alone(*numbers: float) -> float:
        return float(spec.meaning(torch, *[torch.tensor(n, dtype=torch.float64) for n in numbers], **own))

    functions = {**FUNCTIONS, **dict.fromkeys((name, "gelu tanh", *CASTS), alone)}
    functions |= {"max": max, "sigmoid": lambda x: float(torch.sigmoid(torch.tensor(x, dtype=torch.float64)))}
    if name == "where":
        functions["where"] = lambda c, x, y: x if c else y
    if name in ("nn.leaky_relu",):
        functions[name] = lambda x, alpha: max(x, 0) + alpha * min(x, 0)
    found = call(calc, name, operands, completed(calc, spec, example.attrs, operands))
    numbers = Numbers(leaves, functions)
    pairs = zip(found, wanted, strict=True) if isinstance(found, tuple) else [(found, wanted)]
    return max(difference(calc, numbers, tensor, result) for tensor, result in pairs)


def difference(calc: Calculation, numbers: Numbers, tensor: Tensor, wanted: Any) -> float:
    assert tuple(calc.path.reduce(size).number for size in tensor.shape) == tuple(wanted.shape)
    axes = tuple(calc.path.index(Poly.of(size), "i") for size in wanted.shape)
    value = calc.algebra.renewed(tensor.at(tuple(map(Poly.of, axes))))
    places = list(itertools.product(*map(range, wanted.shape)))
    some = {places[0], places[-1], *random.Random(0).sample(places, min(len(places), PLACES))} if places else ()
    return max(abs(numbers.sum(value, dict(zip(axes, index))) - float(wanted[index])) for index in some)


@pytest.mark.sweep(3)
@pytest.mark.parametrize(("name", "number"), CASES)
def test_it_is_the_meaning_in_torch(name: str, number: int) -> None:
    if name in OPEN:
        with contextlib.suppress(Unproved):
            assert differing(name, TABLE[name].examples[number]) < 2e-3
    else:
        assert differing(name, TABLE[name].examples[number]) < 2e-3


@pytest.mark.parametrize(("name", "example"), [
    ("matrix_set_diag", call_of(rand(3, 3), rand(3, seed=1))),
    ("squeeze", call_of(rand(2, 1, 3), axis=(1,))),
    ("full", call_of(2.5, shape=(2, 3))),
    ("nn.pad", call_of(rand(2, 3), pad_width=((0, 1), (2, 0)))),
    ("nn.conv2d", call_of(rand(2, 4, 3, 3), rand(4, 2, 2, 2), groups=2, strides=2, padding=(0, 1, 1, 0))),
    ("nn.group_norm", call_of(rand(1, 4, 2), rand(4, seed=1), rand(4, seed=2), num_groups=2, epsilon=0.1)),
    ("nn.instance_norm", call_of(rand(1, 2, 3), rand(2, seed=1), rand(2, seed=2), epsilon=0.1)),
    ("strided_slice", call_of(rand(3, 7), begin=(1, 2), end=(3, 7), strides=(1, 2), axes=(0, 1))),
    ("einsum", call_of((rand(2, 3), rand(3, 2, seed=1), rand(2, seed=2)), equation="ij,jk,k->ki")),
    ("einsum", call_of((rand(2, 1), rand(3, 2, seed=1)), equation="ij,jk->ik")),
    ("nn.attention", call_of(*[rand(1, 2, 3, 2, seed=n) for n in range(3)], exactly([[1, 0, 1]], "bool"))),
])  # fmt: skip
def test_plainer_calls(name: str, example: Example) -> None:
    assert differing(name, example) < 1e-4


INSTANCES, TRIED = 4, 60
"""The number of random instances of each operator that are compared, and of those that are tried at most."""


def instances(name: str) -> Iterator[Example]:
    """Calls with random shapes and attributes, of tensors of floats."""
    spec, coverage = TABLE[name], Coverage()
    leaves = [pat.Tuple(pat.Wildcard(), pat.Wildcard()) if name in ("concatenate", "stack") else pat.Wildcard()
              for _ in spec.operands]  # fmt: skip
    rule = Subst(call_pattern := pat.Call(spec, *leaves), op.Copy(call_pattern))
    for seed in range(TRIED):
        with contextlib.suppress(Dead):
            graph = generate(rule, Random(f"{name} {seed}", coverage, small=True))
            node = next(node for node in graph.nodes if node.op == name)
            if all(leaf.dtype in ("float32", "float64") for leaf in graph.nodes if leaf.op in LEAVES):
                operands = (sample(operand, place) for place, operand in enumerate(node.operands))
                own = {key: value for key, value in node.attrs.items() if spec.attrs[key].derive is None}
                yield call_of(*operands, **own)


def sample(node: Node, seed: int) -> Any:
    if isinstance(node.type, TupleType):
        return tuple(sample(operand, 10 * seed + place) for place, operand in enumerate(node.operands))
    assert isinstance(node.type, TensorType)
    return rand(*node.type.shape, dtype="float64", low=0.1, seed=seed)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", sorted({*MEANINGS, *OTHERS} - {*SLOW, "einsum"}))
def test_it_is_the_meaning_in_torch_on_random_instances(name: str) -> None:
    covered = 0
    for example in instances(name):
        with contextlib.suppress(Unproved):
            assert differing(name, example) < 1e-6, example
            covered += 1
        if covered == INSTANCES:
            break
    assert covered or name in ("power", "where"), "no instance was made"


def test_factors_that_become_one_keep_their_powers() -> None:
    """(x[r] - mean(x))² where there is one r only, so that the mean is x[0]."""
    assert differing("variance", call_of(rand(1, 3), axis=(0,))) < 1e-6


def test_a_number_that_its_dtype_does_not_have() -> None:
    assert differing("full", call_of(2.5, shape=(), dtype="int64")) == 0


def test_a_wrong_meaning_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    example = call_of(rand(3, 3), axes=(1, 0))
    assert differing("transpose", example) == 0
    monkeypatch.setitem(MEANINGS, "transpose", lambda calc, x, axes: x)
    assert differing("transpose", example) > 0.1
