"""The table of Relay's spellings: what is written has the type and the value, and what is read is the same function."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import torch
import tvm
from tvm import relay

from gsl.front.relay.spellings import MISSING, READERS, ROWS, WRITERS, read, write
from gsl.front.relay.types import RelayTypes as SymbolicTypes
from gsl.front.tree import Canon, LiteralOperand
from gsl.graph import SymDim, TensorType
from gsl.spec import FAMILIES as DECLARED
from gsl.spec import TABLE
from gsl.spec.examples import I32, J32, Sample
from gsl.spec.meaning import evaluate
from tests.front.relay.native_calls import READ, UNREAD, VARS, V, nn
from tests.front.relay.spelled import TYPES, Written, canonical, compiled, converted, run, show, typed
from tests.helpers.corners import CORNERS
from tests.helpers.examples import EVERY_CALL, ExampleCall

UNSAID = {"power #7", "variance(axis=0, unbiased=True)"}
"""The corners that Relay can't say."""
OF_HALVES = ("add", "multiply", "nn.conv2d", "nn.dense")
"""The operators that are tried on halves: TVM compiles no kernels of halves for many others."""


def is_said(call: ExampleCall) -> bool:
    halves = any(isinstance(operand, torch.Tensor) and operand.dtype == torch.float16 for operand in call.operands)
    return call.op not in MISSING and call.label not in UNSAID and (not halves or call.op in OF_HALVES)


SAID = list(filter(is_said, CORNERS))
PARTS = [
    pytest.param(calls[first : first + 128], id=f"{number} {first}", marks=[pytest.mark.long] * number)
    for number, calls in enumerate((SAID[::8], [call for place, call in enumerate(SAID) if place % 8]))
    for first in range(0, len(calls), 128)
]
"""The calls that are compiled together: one in eight in ``make test-relay``, and neighbours, which have programs in
common. The examples of the declarations are computed in ``tests/conformance``."""


def rand(*shape: int) -> torch.Tensor:
    return Sample(shape).tensor()  # type: ignore[no-any-return]


def values(result: Any) -> list[Any]:
    return [value.numpy() for value in (result if isinstance(result, tuple) else (result,))]


def differences(label: str, found: Sequence[Any], expected: Sequence[Any], calls: int = 1) -> Iterator[str]:
    """What is wrong with some values that so many calls round: the dtype, the shape, or the numbers."""
    for one, other in zip(found, expected, strict=True):
        if (one.dtype, one.shape) != (other.dtype, other.shape):
            yield f"{label}: {one.dtype}{one.shape}, not {other.dtype}{other.shape}"
        # Torch computes with numbers beside halves in float32.
        relative = 1e-3 * calls if other.dtype == np.float16 else 1e-4
        if not np.allclose(one, other, relative, 1e-5, equal_nan=True):
            yield f"{label}: {one.flat[:8]}, not {other.flat[:8]}"


@pytest.mark.parametrize("part", PARTS)
def test_what_is_written_has_the_type_and_the_value_of_the_call(part: list[ExampleCall]) -> None:
    written = [Written(call.op, call.operands, call.attrs, f"c{i}_") for i, call in enumerate(part)]
    for call in written:
        assert converted(typed(call.expr, call.variables).checked_type) == call.inferred(), call.text()
    wrong = [
        difference
        for call, original, found in zip(written, part, run(written), strict=True)
        for difference in differences(call.text(), found, values(original.expected()), 1 + is_composed(call))
    ]
    assert not wrong, "\n".join(wrong)


# ---------------------------------------------------------------- read back

COMPOSED = {
    "atan2", "elu", "expm1", "floor_divide of floats", "floor_mod of floats", "gelu",
    "log1p", "logsumexp", "mish", "nn.attention", "nn.global_avg_pool1d", "nn.global_avg_pool3d",
    "nn.global_max_pool1d", "nn.global_max_pool3d", "nn.rms_norm", "round", "selu", "softplus",
}  # fmt: skip
"""The operators that Relay says by others, in words of its own."""

OTHERWISE = {
    ("add(2, x1)", "add(2.0, x1)"),
    ("add(1, 2.5)", "add(const(float32, ()), const(float32, ()))"),
    ("multiply(x0, 0.5)", "multiply(cast(x0, dtype='float32'), 0.5)"),
    ("divide(x0, 2)", "divide(cast(x0, dtype='float32'), 2.0)"),
    ("power(x0, 3)", "power(x0, 3.0)"),
    ("maximum(x0, 2.5)", "maximum(cast(x0, dtype='float32'), 2.5)"),
    ("topk(x0, k=1, axis=1, sorted=False)", "topk(x0, k=1, axis=1)"),
    ("less(x0, 2.5)", "less(cast(x0, dtype='float32'), 2.5)"),
    ("where(x0, x1, 0.5)", "where(x0, cast(x1, dtype='float32'), 0.5)"),
    ("where(x0, 1.0, 0.0)", "where(x0, const(float32, ()), const(float32, ()))"),
    ("clip(x0, a_max=3)", "minimum(x0, 3)"),
    ("full(x0, shape=(2,), dtype='int8')", "full(reshape(cast(x0, dtype='int8'), newshape=()), shape=(2,))"),
    ("full_like(x0, 4.0)", "full_like(x0, 4)"),
    ("full_like(x0, x1)", "full_like(x0, cast(x1, dtype='float32'))"),
    ("reverse(x0, axis=(0, 2))", "reverse(reverse(x0, axis=(0,)), axis=(2,))"),
    ("repeat(x0, repeats=3)", "repeat(reshape(x0, newshape=(24,)), repeats=3, axis=0)"),
    ("strided_slice(x0, begin=(), end=(), strides=(), axes=())", "copy(x0)"),
    # Relay has all integers for places, and torch those from the end on.
    ("take(x0, x1, axis=1)", "take(x0, floor_mod(x1, 3), axis=1)"),
    ("take(x0, x1)", "take(x0, floor_mod(x1, 24))"),
    ("gather(x0, x1, axis=1)", "gather(strided_slice(x0, begin=(0,), end=(2,), strides=(1,), axes=(0,)), x1, axis=1)"),
    (
        "scatter(x0, x1, x2, axis=1)",
        "scatter(x0, x1, strided_slice(x2, begin=(0, 0), end=(2, 2), strides=(1, 1), axes=(0, 1)), axis=1)",
    ),
    ("sum(x0, axis=())", "sum(expand_dims(x0, axis=3), axis=(3,))"),
    ("sum(x0, axis=())", "sum(expand_dims(x0, axis=0), axis=(0,))"),
    ("sum(x0, axis=(0,))", "sum(cast(x0, dtype='int64'), axis=(0,))"),
    ("argmax(x0, axis=(1,))", "cast(cast(argmax(x0, axis=(1,)), dtype='int32'), dtype='int64')"),
    (
        "argmax(x0, axis=(0, 2), keepdims=True)",
        "cast(cast(argmax(x0, axis=(0, 2), keepdims=True), dtype='int32'), dtype='int64')",
    ),
    ("argmin(x0, axis=(0, 1, 2))", "cast(cast(argmin(x0, axis=(0, 1, 2)), dtype='int32'), dtype='int64')"),
    ("matmul(x0, x1)", "reshape(matmul(reshape(x0, newshape=(6, 4)), x1), newshape=(2, 3, 5))"),
    ("nn.dense(x0, x1)", "reshape(nn.dense(reshape(x0, newshape=(6, 4)), x1), newshape=(2, 3, 5))"),
    (
        "nn.dense(x0, x1, out_dtype='float32')",
        "reshape(nn.dense(reshape(x0, newshape=(6, 4)), x1, out_dtype='float32'), newshape=(2, 3, 5))",
    ),
    (
        "nn.conv2d(x0, x1, data_layout='NHWC', out_layout='NCHW')",
        "transpose(nn.conv2d(x0, transpose(x1, axes=(2, 3, 1, 0)), data_layout='NHWC', kernel_layout='HWIO'), "
        "axes=(0, 3, 1, 2))",
    ),
    (
        "nn.conv2d_transpose(x0, x1, data_layout='NHWC', kernel_layout='OIHW')",
        "transpose(nn.conv2d_transpose(transpose(x0, axes=(0, 3, 1, 2)), transpose(x1, axes=(1, 0, 2, 3))), "
        "axes=(0, 2, 3, 1))",
    ),
    (
        "nn.conv3d_transpose(x0, x1, dilation=(2, 2, 2))",
        "nn.conv3d(nn.pad(x0, pad_width=((0, 0), (0, 0), (2, 2), (2, 2), (2, 2))), "
        "reverse(reverse(reverse(transpose(x1, axes=(1, 0, 2, 3, 4)), axis=(2,)), axis=(3,)), axis=(4,)), "
        "dilation=(2, 2, 2))",
    ),
    ("nn.adaptive_max_pool2d(x0, output_size=(None, 2))", "nn.adaptive_max_pool2d(x0, output_size=(7, 2))"),
    ("nn.global_max_pool2d(x0, out_layout='NHWC')", "transpose(nn.global_max_pool2d(x0), axes=(0, 2, 3, 1))"),
    (
        "nn.group_norm(x0, num_groups=1, axis=3)",
        "transpose(nn.group_norm(transpose(x0, axes=(0, 3, 1, 2)), ones(shape=(4,)), ones(shape=(4,)), "
        "num_groups=1, center=False, scale=False), axes=(0, 2, 3, 1))",
    ),
    (
        "nn.instance_norm(x0, axis=3)",
        "nn.instance_norm(x0, ones(shape=(4,)), ones(shape=(4,)), axis=3, center=False, scale=False)",
    ),
    ("nn.prelu(x0, x1)", "where(greater(x0, 0.0), x0, multiply(reshape(x1, newshape=(1, 1, 1)), x0))"),
}  # fmt: skip
"""The calls that Relay says in other words, though it has the operator, with what they come back as."""

SEVERAL_AXES = (
    "nn.layer_norm(x0, x1, axis=(1, 2))", "nn.layer_norm(x0, axis=(0, 2))", "nn.layer_norm(x0, x1, x2, axis=(0, 2))",
)  # fmt: skip
"""Relay normalises a layer along one axis."""


def is_composed(call: Written) -> bool:
    is_float = any(isinstance(t, TensorType) and t.dtype == "float32" for t in call.types)
    return (
        call.op in COMPOSED
        or call.op not in WRITERS
        or (f"{call.op} of floats" in COMPOSED and is_float)
        or call.text() in SEVERAL_AXES
    )


def test_what_is_written_is_read_as_the_same_call() -> None:
    """With the same attributes, for every operator that Relay has."""
    wrong, seen = [], set()
    for example in EVERY_CALL:
        if example.op in MISSING:
            continue
        call = Written(example.op, example.operands, example.attrs)
        text, found = call.text(), call.read_back()
        seen.add(text)
        if is_composed(call):
            assert found != text
        elif found != text and (text, found) not in OTHERWISE:
            wrong.append(f"{text}\n    {found}")
    assert not wrong, "\n".join(wrong)
    assert seen >= {text for text, _ in OTHERWISE}


def test_every_operator_has_a_row_or_a_reason() -> None:
    todo = [
        f"gsl/front/relay/spellings/: {spec.name} in ROWS, or its decompose in gsl/spec/{family}.py"
        for family, specs in DECLARED.items()
        for spec in specs
        if spec.name not in {*WRITERS, *MISSING} and spec.decompose is None
    ]
    assert not todo, "\n".join(["to be written:", *todo])
    assert not set(WRITERS) & set(MISSING)
    assert {row.op for row in ROWS if row.read or row.fields} == set(WRITERS) - COMPOSED


def result(tree: Any, fed: Mapping[str, torch.Tensor]) -> Any:
    """The value of a reading by the meaning of its operators."""
    match tree:
        case LiteralOperand():
            return tree.value
        case Canon(op="tuple"):
            return tuple([result(part, fed) for part in tree.operands])
        case Canon():
            own = {name: v for name, v in tree.attrs.items() if TABLE[tree.op].attrs[name].derive is None}
            return evaluate(TABLE[tree.op], [result(part, fed) for part in tree.operands], own)
        case relay.Constant():
            return torch.from_numpy(np.array(tree.data.numpy()))
    return fed[tree.name_hint]


PLACES_IN_BYTES = "take(axis=1) #2"
"""The corner that is written and not read: the size of an axis, by which Relay takes places, may be no byte."""


@pytest.mark.long
def test_what_is_written_is_read_as_calls_of_the_same_value() -> None:
    """Also where the operators are others: every reading on the way is exact."""
    wrong, unread = [], set()
    for original in (*[call for call in EVERY_CALL if call.op not in MISSING], *SAID):
        call = Written(original.op, original.operands, original.attrs)
        tree = canonical(typed(call.expr, call.variables))
        if "?" in show(tree):
            unread.add(original.label if original.label == PLACES_IN_BYTES else call.op)
            continue
        fed = {x.name_hint: torch.from_numpy(value) for x, value in zip(call.variables, call.values)}
        found = values(result(tree, fed))
        wrong += list(differences(call.text(), found, values(original.expected()), 1 + is_composed(call)))
    assert not wrong, "\n".join(wrong)
    # By way of nn.dilate, which is no canonical operator.
    assert unread == {"nn.conv1d_transpose", "nn.conv2d_transpose", "nn.conv3d_transpose", PLACES_IN_BYTES}


# ---------------------------------------------------------------- native calls


def test_native_calls_read_as() -> None:
    wrong = []
    for make, expected in READ:
        found = show(canonical(typed(make())))
        if found != expected:
            wrong.append(f"{expected}\n    {found}")
    assert not wrong, "\n".join(wrong)


def test_native_calls_have_the_value_of_their_reading() -> None:
    body = relay.Tuple([make() for make, _ in READ])
    variables = list(V.all.values())
    found = iter(compiled(body, variables, [value.contiguous().numpy() for value in VARS.values()]))
    wrong = []
    for (_, text), field in zip(READ, typed(body, variables).fields, strict=True):
        expected = values(result(canonical(field), VARS))
        wrong += list(differences(text, [next(found) for _ in expected], expected))
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("name", UNREAD)
def test_is_not_read(name: str) -> None:
    expr = typed(UNREAD[name]())
    assert read(expr, TYPES) is None


# ---------------------------------------------------------------- other types, other words


class Symbolic:
    """Types with symbols for the sizes that Relay does not know."""

    def __init__(self) -> None:
        self.types = SymbolicTypes()
        self.seen: dict[Any, Any] = {}

    def type_of(self, expr: Any) -> Any:
        if expr not in self.seen:
            self.seen[expr] = self.types.of(expr.checked_type)
        return self.seen[expr]


class Known:
    """The types of some expressions."""

    def __init__(self, shapes: Mapping[Any, Sequence[Any]]) -> None:
        self.shapes = shapes

    def type_of(self, expr: Any) -> TensorType:
        return TensorType(tuple(self.shapes[expr]), "float32")


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda x: nn.relu(x), "nn.relu"),
        (lambda x: nn.softmax(x), "nn.softmax"),
        (lambda x: x * relay.const(2.0), "multiply"),
        (lambda x: relay.sum(x, -1), "sum"),
        (lambda x: nn.dense(x, relay.const(np.ones((5, 4), "float32"))), "nn.dense"),
        (lambda x: relay.reshape(x, (-1, 2)), "reshape"),
        # Whether there are such places depends on the size.
        (lambda x: relay.take(x, relay.const(1), 0), None),
    ],
)
def test_unknown_sizes(make: Callable[[Any], Any], expected: str | None) -> None:
    x = relay.var("x", shape=(relay.Any(), 4))
    found = read(typed(make(x)), Symbolic())
    assert (found.op if found else None) == expected


def test_a_symbolic_size_is_written_where_relay_infers_it() -> None:
    import sympy

    n = SymDim(sympy.Symbol("n", integer=True, positive=True))
    x = relay.var("x", shape=(relay.Any(), 4))

    found = write("reshape", {"newshape": (n, 2, 2)}, [x], Known({x: (n, 4)}))
    assert list(map(int, found.attrs.newshape)) == [-1, 2, 2]
    weight = relay.const(np.ones((5, 4), "float32"))
    cube = relay.var("x", shape=(relay.Any(), 3, 4))
    found = write("nn.dense", {}, [cube, weight], Known({cube: (n, 3, 4), weight: (5, 4)}))
    assert list(map(int, found.attrs.newshape)) == [-1, 3, 5]
    with pytest.raises(ValueError, match="sizes that are known"):
        write("broadcast_to", {"shape": (n, 4)}, [x], Known({x: (n, 4)}))


UNWRITABLE: list[tuple[str, dict[str, Any], tuple[Any, ...], str]] = [
    ("power", {}, (I32.tensor(), J32.tensor()), "power: Relay has no powers of integers"),
    ("einsum", {"equation": "ii->i"}, ((rand(3, 3),),), "einsum: equation: in Relay, expected one like"),
    ("arange", {"stop": 2.5, "dtype": "int32"}, (), "arange: in Relay, integers count from and by integers"),
    ("nn.pad", {"pad_width": ((-1, 1),), "pad_mode": "edge"}, (rand(3),), "nn.pad: pad_width: .* can't crop"),
    ("nn.relu", {"alpha": 1.0}, (rand(3),), "nn.relu has no attribute 'alpha'"),
    ("add", {}, (torch.zeros(2, dtype=torch.uint8), 300), "300 is no constant of uint8"),
]


@pytest.mark.parametrize(("op", "attrs", "operands", "message"), UNWRITABLE, ids=[row[0] for row in UNWRITABLE])
def test_what_relay_cannot_say(op: str, attrs: Any, operands: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Written(op, operands, attrs)


def test_a_call_is_written_as_relay_prints_its_defaults() -> None:
    found = Written("nn.conv2d", (rand(2, 4, 7, 6), rand(6, 4, 3, 3)), {"channels": 6, "kernel_size": (3, 3)})
    assert "nn.conv2d(%x0, %x1, padding=[0, 0, 0, 0])" in str(relay.Function(found.variables, found.expr))
    found = Written("nn.softmax", (rand(2, 3),), {"axis": 1})
    assert "nn.softmax(%x0)" in str(relay.Function(found.variables, found.expr))


def test_a_name_is_read_by_one_row() -> None:
    assert len(READERS) == sum(len(row.read) for row in ROWS)
    assert all(name in tvm.ir.Op.list_op_names() for name in READERS)


def test_the_comparisons_can_fail() -> None:
    one, other = np.ones(3, "float32"), np.ones(3, "float32")
    assert not list(differences("", [one], [other]))
    assert list(differences("", [one], [other + np.float32(1e-3)]))
    assert list(differences("", [one], [other.astype("float64")]))
    assert list(differences("", [one], [other[None]]))
    wrong = Written("subtract", (rand(3), rand(3)), {})
    wrong.op = "add"
    assert wrong.read_back() != wrong.text()
