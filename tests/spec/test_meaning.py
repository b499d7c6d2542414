"""The meaning of each operator against numpy, and its inferred type against that of its value, on its examples."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from gsl.graph import TensorType, TupleType, Type
from gsl.spec import FAMILIES, TABLE, find
from gsl.spec.examples import X, Y, rand
from gsl.spec.meaning import Operand, evaluate, infer
from tests.helpers import plain
from tests.helpers.corners import CORNERS
from tests.helpers.examples import EVERY_CALL, ExampleCall

EACH = pytest.mark.parametrize("call", [*EVERY_CALL, *CORNERS], ids=str)


def type_of(value: Any) -> Operand:
    if isinstance(value, tuple):
        return TupleType(tuple([type_of(field) for field in value]))  # type: ignore[misc]
    if isinstance(value, torch.Tensor):
        return TensorType(tuple(value.shape), str(value.dtype).removeprefix("torch."))
    return value  # type: ignore[no-any-return]


def known_types(call: ExampleCall) -> Any:
    return tuple([None if isinstance(t := type_of(x), (bool, int, float)) else t for x in call.operands])


def assert_equal(found: Any, expected: Any) -> None:
    if isinstance(expected, tuple):
        assert isinstance(found, tuple)
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_equal(one, other)
    else:
        tolerance = 2e-3 if expected.dtype == torch.float16 else 1e-5
        torch.testing.assert_close(found, expected, rtol=max(tolerance, 1e-4), atol=tolerance, equal_nan=True)


def to_numpy(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(to_numpy, value))
    return value.numpy() if isinstance(value, torch.Tensor) else value


def from_numpy(value: Any) -> Any:
    return tuple(map(from_numpy, value)) if isinstance(value, tuple) else torch.from_numpy(np.array(value))


def in_numpy(call: ExampleCall) -> Any:
    """The result of a call by numpy."""
    attrs = TABLE[call.op].complete(call.attrs, known_types(call))
    return from_numpy(plain.evaluate(call.op, to_numpy(call.operands), attrs))


def without_torch(call: ExampleCall) -> Type | None:
    """The type of a call by numpy."""
    attrs = TABLE[call.op].complete(call.attrs, known_types(call))
    return plain.infer(call.op, [type_of(operand) for operand in call.operands], attrs)


def test_every_operator_has_examples_and_is_known_to_numpy() -> None:
    todo = []
    for family, specs in FAMILIES.items():
        for spec in specs:
            if not spec.examples:
                todo.append(f"gsl/spec/{family}.py: give {spec.name} examples=(call(…),), a call of each kind")
            if spec.name not in plain.PLAIN:
                todo.append(f'tests/helpers/plain.py: write "{spec.name}" in numpy, in PLAIN')
    assert not todo, "\n".join(["to be written:", *todo])
    assert set(plain.PLAIN) <= set(TABLE)


@pytest.mark.sweep(3)
@EACH
def test_meaning_and_type(call: ExampleCall) -> None:
    spec = TABLE[call.op]
    found = evaluate(spec, call.operands, call.attrs)
    assert_equal(found, in_numpy(call))
    assert isinstance(found, tuple) == spec.fields
    inferred: Type | None = infer(spec, [type_of(operand) for operand in call.operands], call.attrs)
    assert inferred == type_of(found)
    assert without_torch(call) in (inferred, None)


def test_most_calls_have_a_type_without_torch() -> None:
    assert {call.op for call in EVERY_CALL if without_torch(call)} == set(TABLE)


@pytest.mark.sweep(4)
@EACH
def test_canonical_attributes_are_fixed(call: ExampleCall) -> None:
    """Completing completed attributes changes nothing, whether or not the types are known."""
    spec, known = TABLE[call.op], known_types(call)
    for types in (known, (None,) * len(known)):
        full = spec.complete(call.attrs, types)
        own = {key: value for key, value in full.items() if spec.attrs[key].derive is None}
        again = spec.complete(own, types)
        assert again == full
        assert repr(again) == repr(full)
    assert spec.complete(own, known) == spec.complete(call.attrs, known)
    assert_equal(evaluate(spec, call.operands, full), call.expected())


def test_a_commutative_operator_may_exchange_its_operands() -> None:
    checked = 0
    for call in EVERY_CALL:
        if TABLE[call.op].commutative:
            swapped = (call.operands[1], call.operands[0], *call.operands[2:])
            assert_equal(evaluate(TABLE[call.op], swapped, call.attrs), call.expected())
            checked += 1
    assert checked > 10


def test_an_optional_operand_may_be_left_out() -> None:
    spec = find("attention")
    assert spec is not None
    assert spec.arity == "3 to 4"
    query = rand(2, 4, 3, 8).tensor()
    mask = torch.zeros(3, 3)
    assert_equal(evaluate(spec, (query, query, query), {}), evaluate(spec, (query, query, query, mask), {}))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_attention_has_as_many_values_as_keys(dtype: torch.dtype) -> None:
    """Kernels of torch 2.14 compute something for others."""
    one, three = torch.ones(3, 1, 3, dtype=dtype), torch.ones(3, 3, 3, dtype=dtype)
    spec, types = TABLE["nn.attention"], [TensorType((3, n, 3), str(dtype).removeprefix("torch.")) for n in (3, 1, 3)]
    with pytest.raises((ValueError, RuntimeError)):
        evaluate(spec, (three, one, three), {})
    with pytest.raises(ValueError, match=r"nn\.attention"):
        infer(spec, types, {})


def test_the_comparison_can_fail() -> None:
    call = next(call for call in EVERY_CALL if call.op == "add")
    with pytest.raises(AssertionError):
        assert_equal(call.expected() + 1e-3, in_numpy(call))
    with pytest.raises(AssertionError):
        assert_equal(call.expected().double(), in_numpy(call))


def test_examples_have_numbers_of_their_ranges() -> None:
    assert not torch.equal(X.tensor(), Y.tensor())
    assert torch.equal(X.tensor(), rand(2, 3, 4).tensor())
    whole = rand(50, dtype="int32", low=1, high=4).tensor()
    assert set(whole.tolist()) == {1, 2, 3}
    assert whole.dtype == torch.int32
    assert rand(50, dtype="bool").tensor().float().mean() == pytest.approx(0.5, abs=0.3)


def test_what_is_not_known_has_no_type() -> None:
    assert plain.infer("nn.gelu", (TensorType((2,), "float32"),), {}) is None
    assert plain.infer("add", (TensorType((2,), "float32"), TensorType((3,), "float32")), {}) is None
