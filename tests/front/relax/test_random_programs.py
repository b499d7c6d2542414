"""Random functions: they come back as they were, and rewritten ones compute the same."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax

from gsl import Workload
from gsl.front.core.handle import handle_of
from gsl.front.relax import from_module
from gsl.front.relax.signatures import RelaxSignatures
from gsl.graph import Node
from tests.front.relax.relax_helpers import tensor
from tests.helpers.matrices import RULES, SIZE, made_anew, values


def program(seed: int) -> Any:
    """A function of some blocks with shared values, tuples, aliases, linear layers, branches and prints."""
    chance = random.Random(seed)
    builder = relax.BlockBuilder()
    x, w = tensor("x", SIZE, SIZE), tensor("w", SIZE, SIZE)
    known = [x, w, relax.const(torch.arange(9.0).reshape(SIZE, SIZE).numpy())]

    def emit(expr: Any) -> Any:
        known.append(builder.emit(expr))
        return known[-1]

    def step(inside: bool) -> None:
        a, b = chance.choice(known), chance.choice(known)
        match chance.randrange(10 if inside else 11):
            case 0 | 1:
                emit(relax.op.add(a, b))
            case 2:
                emit(relax.op.multiply(a, relax.const(chance.choice([1.0, 2.0]))))
            case 3 | 4:
                emit(relax.op.nn.relu(a))
            case 5:
                emit(relax.op.negative(a))
            case 6:
                turned = builder.emit(relax.op.permute_dims(b))
                emit(relax.op.matmul(chance.choice([a, turned]), turned))
            case 7:
                pair = builder.emit(relax.Tuple([a, b]))
                emit(relax.TupleGetItem(pair, chance.randrange(2)))
            case 8:
                alias = (relax.DataflowVar if inside else relax.Var)("alias", a.ty)
                builder.emit_normalized(relax.VarBinding(alias, a))
                known.append(alias)
            case 9:
                parts = builder.emit(relax.op.split(a, [1], 0))
                emit(relax.op.concat([relax.TupleGetItem(parts, n) for n in range(2)], 0))
            case 10:
                builder.emit(relax.op.print(a, format="{}"))

    with builder.function("main", [x, w], pure=False):
        for _ in range(chance.randrange(1, 4)):
            if chance.random() < 0.6:
                with builder.dataflow():
                    before = len(known)
                    for _ in range(chance.randrange(1, 8)):
                        step(True)
                    shown = [builder.emit_output(chance.choice(known)) for _ in range(chance.randrange(1, 3))]
                # What was bound within is not seen outside.
                known[before:] = shown
            else:
                for _ in range(chance.randrange(1, 5)):
                    step(False)
        results = [chance.choice(known) for _ in range(chance.randrange(1, 4))]
        result = results[0] if len(results) == 1 else relax.Tuple(results)
        builder.emit_func_output(builder.emit(result) if chance.random() < 0.5 else result)
    return builder.get()


@given(st.integers(0, 10_000), st.booleans())
@settings(max_examples=60)
def test_random_programs(seed: int, iterative: bool) -> None:
    module = program(seed)
    wl = Workload.from_relax(module)
    assert wl.program.store(wl.program.load()).module.same_as(module)
    new = RULES(wl, iterative=iterative, max_steps=200)
    relax.analysis.well_formed(new.mod)
    for old, found in zip(values(wl.program), values(new.program), strict=True):
        torch.testing.assert_close(found, old)
    if not new.trace.firings:
        assert new.mod.same_as(module)
    again = new.program.store(new.program.load())
    assert again.module.same_as(new.mod)


@given(st.integers(0, 10_000), st.sampled_from([0.3, 1.0]))
@settings(max_examples=60)
def test_parts_made_anew(seed: int, share: float) -> None:
    old = from_module(program(seed))
    new = old.store(made_anew(old.load(), random.Random(seed), share))
    relax.analysis.well_formed(new.module)
    for before, found in zip(values(old), values(new), strict=True):
        torch.testing.assert_close(found, before)


@given(st.integers(0, 10_000))
@settings(max_examples=60)
def test_calls_that_are_read_by_their_form_are_read_as_by_themselves(seed: int) -> None:
    source = from_module(program(seed))
    fast = source.load()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RelaxSignatures, "known", lambda *args: None)
        slow = source.load()
    assert str(fast) == str(slow)
    assert list(map(link, fast)) == list(map(link, slow))


def link(node: Node) -> Any:
    """What a node came from: the variable, its place in the reading, the calls that this covers, and its operands."""
    handle = handle_of(node)
    if handle is None:
        return getattr(node.native, "expr", None)
    sources = [getattr(source, "expr", source) for source in handle.sources]
    return handle.reading.native, handle.slot, handle.reading.through, sources
