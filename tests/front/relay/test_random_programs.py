"""Random functions: they come back as they were, and rewritten ones compute the same."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
import tvm
from tvm import relay

from gsl import Workload
from gsl.front.relay import from_module
from tests.front.relay.helpers import module_of, var
from tests.helpers.matrices import RULES, SIZE, made_anew, values

SEEDS = 20


def program(seed: int) -> Any:
    """A function with shared values, tuples, functions, linear layers and several results."""
    chance = random.Random(seed)
    x, w = var("x", SIZE, SIZE), var("w", SIZE, SIZE)
    known = [x, w, relay.const(torch.arange(9.0).reshape(SIZE, SIZE).numpy())]

    def step() -> Any:
        a, b = chance.choice(known), chance.choice(known)
        match chance.randrange(10):
            case 0 | 1:
                return relay.add(a, b)
            case 2:
                return relay.multiply(a, relay.const(chance.choice([1.0, 2.0])))
            case 3 | 4:
                return relay.nn.relu(a)
            case 5:
                return relay.negative(a)
            case 6:
                return relay.nn.dense(a, b)
            case 7:
                return relay.nn.matmul(a, relay.transpose(b), transpose_b=chance.random() < 0.5)
            case 8:
                return relay.TupleGetItem(relay.Tuple([a, b]), chance.randrange(2))
            case _:
                parts = relay.split(a, [1], 0)
                return relay.concatenate([parts[0], parts[1]], 0)

    for _ in range(chance.randrange(2, 14)):
        known.append(step())
    results = [chance.choice(known) for _ in range(chance.randrange(1, 4))]
    return module_of(results[0] if len(results) == 1 else relay.Tuple(results), x, w)


@pytest.mark.sweep(3)
@pytest.mark.parametrize("iterative", [False, True])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_random_programs(seed: int, iterative: bool) -> None:
    module = program(seed)
    wl = Workload(module)
    assert wl.program.store(wl.program.load()).module["main"].same_as(module["main"])
    new = RULES(wl, iterative=iterative, max_steps=200)
    for old, found in zip(values(wl.program), values(new.program), strict=True):
        torch.testing.assert_close(found, old)
    again = new.program.store(new.program.load())
    assert tvm.ir.structural_equal(again.module, new.mod, map_free_vars=True)


@pytest.mark.sweep(3)
@pytest.mark.parametrize("share", [0.3, 1.0])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_parts_made_anew(seed: int, share: float) -> None:
    old = from_module(program(seed))
    new = old.store(made_anew(old.load(), random.Random(seed), share))
    for before, found in zip(values(old), values(new), strict=True):
        torch.testing.assert_close(found, before)
