"""Types by runs on the device ``meta`` are those by runs on fake tensors: of all operators, and of calls gone wrong."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from sympy import Symbol

from gsl.graph import SymDim, TensorType, TupleType, Type
from gsl.spec import TABLE, OpSpec, meaning
from gsl.spec.examples import Sample

pytestmark = pytest.mark.torch
DTYPES = ("float64", "float16", "bfloat16", "int64", "bool", "complex64")
FOR_EACH = 2
"""The number of calls that are made of each example."""


def type_of(operand: Any) -> Any:
    if isinstance(operand, tuple):
        return TupleType(tuple(map(type_of, operand)))
    return TensorType(operand.shape, operand.dtype) if isinstance(operand, Sample) else operand


def changed(random: Random, operand: Any, dtype: str | None) -> Any:
    """An operand of another shape, now and then, and of the dtype that is given."""
    if isinstance(operand, TupleType):
        return TupleType(tuple([changed(random, field, dtype) for field in operand.fields]))
    if not isinstance(operand, TensorType):
        return operand
    shape, place = list(operand.shape), random.randrange(len(operand.shape) or 1)
    match random.randrange(8):
        case 0 if shape:
            shape[place] = random.choice([0, 1, 2, 3, 5, 8])
        case 1 if shape:
            del shape[place]
        case 2:
            shape.insert(place, random.choice([1, 2, 3]))
        case 3:
            random.shuffle(shape)
    return TensorType(tuple(shape), dtype or operand.dtype)


def other(random: Random, value: Any) -> Any:
    """Another value of an attribute."""
    if isinstance(value, tuple) and value:
        place = random.randrange(len(value))
        return (*value[:place], other(random, value[place]), *value[place + 1 :])
    if isinstance(value, bool):
        return not value
    return value + random.choice([-1, 1, 2]) if isinstance(value, int) else value


def calls(spec: OpSpec, random: Random) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    """Operands and attributes: of the examples, and of calls that may be ill-typed."""
    for example in spec.examples:
        operands, attrs = tuple(map(type_of, example.operands)), dict(example.attrs)
        for number in range(FOR_EACH):
            with suppress(ValueError):
                yield operands, meaning._own_attrs(spec, attrs, tuple(map(known, operands)))
            dtype = random.choice([None, None, None, *DTYPES])
            operands = tuple([changed(random, type_of(each), dtype) for each in example.operands])
            attrs = {name: other(random, v) if number and random.random() < 0.2 else v for name, v in attrs.items()}


def known(operand: Any) -> Type | None:
    return operand if isinstance(operand, (TensorType, TupleType)) else None


def on_fakes(spec: OpSpec, operands: tuple[Any, ...], attrs: dict[str, Any]) -> Type | None:
    try:
        return meaning._on_fakes(spec, operands, attrs)
    except ValueError:
        return None


def differing(spec: OpSpec) -> Iterator[str]:
    """The calls for which the device ``meta`` tells another type than fake tensors, or one where these refuse."""
    for operands, attrs in calls(spec, Random(spec.name)):
        if meaning._is_told_by_meta(spec, operands, attrs):
            found = meaning._on_meta(spec, operands, attrs)
            if found is not None and found != (expected := on_fakes(spec, operands, attrs)):
                yield f"{spec.name} of {operands} with {attrs}: {found}, not {expected}"


def test_all_operators() -> None:
    assert [text for spec in TABLE.values() for text in differing(spec)] == []


def test_types_of_element_wise_calls_do_not_depend_on_how_large_sizes_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are found for small sizes once, on data, and are those of runs on fakes with the sizes themselves."""
    alike = [spec for spec in TABLE.values() if meaning._only_compares_sizes(spec)]
    given = [(spec, operands, attrs) for spec in alike for operands, attrs in calls(spec, Random(spec.name))]
    assert any(on_fakes(*call) is None for call in given)
    for spec, operands, attrs in given:
        found = meaning._infer(meaning.CallKey(spec, operands, attrs))
        assert (None if isinstance(found, ValueError) else found) == on_fakes(spec, operands, attrs), (spec, operands)
    runs, run = [], meaning._type_by_run
    monkeypatch.setattr(meaning, "_type_by_run", lambda *call: runs.append(call) or run(*call))
    for n in (71, 73, 79):
        weight, scale = TensorType((n, 3, 5, 5), "float32"), TensorType((n, 1, 1, 1), "float32")
        assert meaning.infer(TABLE["multiply"], (weight, scale), {}) == weight
    assert len(runs) <= 1


SYMBOLS = {f"{a}{n}": SymDim(Symbol(f"{a}{n}", positive=True, integer=True)) for a in "ab" for n in range(20)}


def with_symbols(random: Random, share: float, operand: Any) -> Any:
    """An operand with symbols for a share of its sizes."""
    if not isinstance(operand, TensorType):
        return operand
    shape: list[Any] = [*operand.shape]
    shape = [SYMBOLS[random.choice("aaab") + str(n)] if n > 1 and random.random() < share else n for n in shape]
    return TensorType(tuple(shape), operand.dtype)


def with_numbers(numbers: Mapping[Any, int], operand: Any) -> Any:
    """An operand, or a type, with numbers for its symbols."""
    if not isinstance(operand, TensorType):
        return operand
    return TensorType(tuple([numbers.get(size, size) for size in operand.shape]), operand.dtype)


def types_by_numbers(spec: OpSpec) -> Iterator[tuple[Type, Type | None]]:
    """The types of calls with symbolic sizes, each with numbers for these, and that of a run with those numbers."""
    random = Random(spec.name)
    for operands, attrs in calls(spec, random):
        for share in 4 * (0.1, 0.2, 0.5):
            symbolic = tuple([with_symbols(random, share, operand) for operand in operands])
            found = meaning._infer(meaning.CallKey(spec, symbolic, attrs))
            if meaning.has_symbols(symbolic) and isinstance(found, TensorType):
                numbers = {symbol: random.choice([1, 2, 3, 4, 7]) for symbol in SYMBOLS.values()}
                run = on_fakes(spec, tuple([with_numbers(numbers, operand) for operand in symbolic]), attrs)
                yield with_numbers(numbers, found), run


def test_types_found_without_a_run_on_symbols_are_right_for_all_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of element-wise calls, of calls that carry the sizes to their results, and of calls defined by others."""
    refused = ValueError("no run on symbols")
    monkeypatch.setattr(meaning, "_infer_symbolic", lambda *_: (_ for _ in ()).throw(refused))
    found = {name: list(types_by_numbers(spec)) for name, spec in TABLE.items()}
    assert [(name, *pair) for name, pairs in found.items() for pair in pairs if pair[0] != pair[1]] == []
    assert all(found[name] for name in ("add", "nn.bias_add", "nn.dense", "nn.conv2d", "packed.dense_add"))
    wrong = replace(TABLE["nn.conv2d"], carried=lambda attrs, rank: {0: 1})
    assert any(told != run for told, run in types_by_numbers(wrong))


def test_most_types_are_told_by_meta() -> None:
    given = [(spec, *next(calls(spec, Random(0)))) for spec in TABLE.values() if spec.examples]
    told = [spec.name for spec, operands, attrs in given if meaning._on_meta(spec, operands, attrs) is not None]
    assert len(told) > 0.9 * len(given)


def test_the_comparison_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meaning, "_CHECKED_BY_FAKES", re.compile("none"))
    monkeypatch.setattr(f"{__name__}.FOR_EACH", 60)
    assert list(differing(TABLE["nn.conv2d_transpose"]))


def test_a_convolution_of_groups_that_do_not_fit_is_refused() -> None:
    data, weight = TensorType((1, 4, 5, 5), "float32"), TensorType((3, 2, 1, 1), "float32")
    spec, attrs = TABLE["nn.conv2d"], {"groups": 2}
    assert meaning._on_meta(spec, (data, weight), meaning._own_attrs(spec, attrs, (data, weight))) is not None
    with pytest.raises(ValueError, match=r"^nn.conv2d: .*divisible"):
        meaning.infer(spec, (data, weight), attrs)


def test_attention_of_no_heads_is_an_error_and_does_not_end_the_process() -> None:
    query, none = TensorType((2, 4, 3, 8), "float32"), TensorType((2, 0, 3, 8), "float32")
    for key, value in ((none, query), (query, none), (none, none)):
        with pytest.raises(ValueError, match=r"^nn.attention: .*without heads"):
            meaning.infer(TABLE["nn.attention"], [query, key, value], {"enable_gqa": True})


def test_the_reason_is_that_of_fake_tensors() -> None:
    with pytest.raises(ValueError, match=r"^nn.dense: a and b must have same reduction dim"):
        meaning.infer(TABLE["nn.dense"], [TensorType((2, 3), "float32"), TensorType((4, 5), "float32")], {})
