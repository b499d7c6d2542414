"""Writing in Relax: what is written means what the operator means, and reads as it where Relax has the operator."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from tvm import relax, tirx

from gsl.front.relax.spellings import MISSING, WRITERS, read, read_field, write
from gsl.front.tree import Canon
from gsl.graph import TensorType, TupleType
from gsl.spec import FAMILIES, TABLE
from gsl.spec.meaning import evaluate, infer
from tests.front.relax.spelling_helpers import Functions, Variables, assert_close, dtype_name, leaves, tensors, var
from tests.helpers.corners import CORNERS
from tests.helpers.examples import EVERY_CALL, ExampleCall

# ---------------------------------------------------------------- writing

UNWRITTEN = {
    "power #7": "powers of floats only",
    "reshape(newshape=(3, 0))": "convertible from the old shape",
    "split(indices_or_sections=1)": "Relax gives it the type",
}
"""The corners that Relax can't say, with the reasons."""
UNDEFINED = {"take(axis=1) #3"}
"""Relax has no places from the end on: such an index is out of range."""
CALLS = [call for call in (*EVERY_CALL, *CORNERS) if call.op not in MISSING]
WRITTEN = [call for call in CALLS if call.label not in {*UNWRITTEN, *UNDEFINED}]


class Written:
    """An example as an expression over variables."""

    def __init__(self, call: ExampleCall) -> None:
        self.op, self.values, self.attrs = call.op, call.operands, call.attrs
        self.params: list[Any] = []
        self.scope = Variables()
        self.operands = tuple(map(self._operand, call.operands))
        self.expr = write(call.op, call.attrs, self.operands, self.scope)
        self.types = [value if isinstance(value, (bool, int, float)) else self._type(value) for value in self.operands]

    def _operand(self, value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(self._operand, value))
        if not isinstance(value, torch.Tensor):
            return value
        self.params.append(var(f"p{len(self.params)}", *value.shape, dtype=dtype_name(value)))
        return self.params[-1]

    def _type(self, value: Any) -> Any:
        return TupleType(tuple(map(self._type, value))) if isinstance(value, tuple) else self.scope.type_of(value)

    def canonical(self, attrs: Mapping[str, Any]) -> Mapping[str, Any]:
        types = tuple([None if isinstance(t, (bool, int, float)) else t for t in self.types])
        return TABLE[self.op].complete(attrs, types)

    def read(self) -> Canon | None:
        """The canonical call that the expression is, if it is one call of the parameters."""
        found = None
        if isinstance(self.expr, relax.Call):
            found = read(self.expr, self.scope)
        elif isinstance(self.expr, relax.TupleGetItem):
            found = read_field(self.expr.tuple_value, self.expr.index, self.scope)
        return found if found is not None and leaves(found) == self.params else None


LABELS = [call.label for call in WRITTEN]
EXAMPLES = {call.label for call in EVERY_CALL}
"""The examples of the declarations, which all front ends compute in ``tests/conformance``."""
EACH = [
    pytest.param(index, id=label, marks=[pytest.mark.long] * (label in EXAMPLES)) for index, label in enumerate(LABELS)
]
PART = 128
"""The number of functions that are compiled together: of more, each takes longer."""


@pytest.fixture(scope="module")
def written() -> list[Written]:
    return [Written(call) for call in WRITTEN]


@pytest.fixture(scope="module")
def run_written(written: list[Written], request: pytest.FixtureRequest) -> Callable[[int], Any]:
    """Runs what is written; of the functions whose tests run, those of a part are compiled together."""
    tests = [item for item in request.session.items if isinstance(item, pytest.Function)]
    wanted = [test.callspec.params["index"] for test in tests if "run_written" in test.fixturenames]

    @functools.cache
    def built(part: int) -> tuple[Callable[..., Any], dict[int, str]]:
        functions = Functions()
        rows = {index: written[index] for index in wanted[part * PART : (part + 1) * PART]}
        names = {index: functions.add(row.params, row.expr) for index, row in rows.items()}
        return functions.build(), names

    def run(index: int) -> Any:
        call, names = built(wanted.index(index) // PART)
        return call(names[index], *tensors(written[index].values))

    return run


@pytest.mark.sweep(10)
@pytest.mark.filterwarnings("ignore:var")
@pytest.mark.parametrize("index", EACH)
def test_what_is_written_means_what_the_operator_means(
    written: list[Written], run_written: Callable[[int], Any], index: int
) -> None:
    row = written[index]
    assert_close(run_written(index), evaluate(TABLE[row.op], row.values, row.attrs))


def test_what_is_written_has_the_type_of_the_operator(written: list[Written]) -> None:
    wrong = [
        label for label, row in zip(LABELS, written)
        if row.scope.type_of(row.expr) != infer(TABLE[row.op], row.types, row.attrs)
    ]  # fmt: skip
    assert not wrong


def test_wrong_numbers_are_noticed() -> None:
    with pytest.raises(AssertionError):
        assert_close(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.001]))
    with pytest.raises(AssertionError):
        assert_close(torch.tensor([1.0]), torch.tensor([1.0], dtype=torch.float64))


def test_each_operator_is_written_or_missing() -> None:
    todo = [
        f"gsl/front/relax/spellings/: {spec.name} in ROWS, or its decompose in gsl/spec/{family}.py"
        for family, specs in FAMILIES.items()
        for spec in specs
        if spec.name not in {*WRITERS, *MISSING} and spec.decompose is None
    ]
    assert not todo, "\n".join(["to be written:", *todo])
    assert not set(WRITERS) & set(MISSING)


# ---------------------------------------------------------------- reading what was written

ALWAYS_COMPOSED = frozenset((
    "all", "any", "copy", "elu", "expm1", "full_like", "log10", "log1p", "log2", "logsumexp",
    "matrix_set_diag", "mish", "nn.adaptive_max_pool1d", "nn.adaptive_max_pool2d", "nn.adaptive_max_pool3d",
    "nn.attention", "nn.batch_matmul", "nn.bias_add", "reshape_like",
))  # fmt: skip
"""The operators that Relax says by other ones, in words of its own."""

SOMETIMES_COMPOSED = frozenset((
    "acos", "add", "arange", "argmax", "argmin", "atan2", "cast", "ceil", "clip", "concatenate", "cumsum", "divide",
    "equal", "exp", "floor", "floor_divide", "floor_mod", "full", "greater", "greater_equal", "isfinite", "isnan",
    "less", "less_equal", "logical_and", "logical_not", "logical_or", "logical_xor", "max", "maximum", "mean", "min",
    "minimum", "mod", "multiply", "nn.adaptive_avg_pool1d", "nn.adaptive_avg_pool2d", "nn.adaptive_avg_pool3d",
    "nn.avg_pool1d", "nn.avg_pool2d", "nn.avg_pool3d", "nn.conv1d", "nn.conv1d_transpose", "nn.conv2d",
    "nn.conv2d_transpose", "nn.conv3d", "nn.conv3d_transpose", "nn.group_norm", "nn.instance_norm", "nn.layer_norm",
    "nn.max_pool2d", "nn.pad", "nn.prelu", "nn.relu6", "nn.rms_norm", "not_equal", "power", "prod", "reverse",
    "round", "scatter", "sigmoid", "sinh", "sqrt", "squeeze", "stack", "std", "strided_slice", "subtract", "sum",
    "take", "topk", "trunc", "variance", "where",
))  # fmt: skip
"""The operators that Relax has, but not for all attributes and dtypes."""


def is_read_again(row: Written) -> bool:
    found = row.read()
    return found is not None and found.op == row.op and row.canonical(found.attrs) == row.canonical(row.attrs)


def test_what_is_written_is_read_again(written: list[Written]) -> None:
    again = {row.op for row in written if is_read_again(row)}
    not_again = {row.op for row in written if not is_read_again(row)}
    assert again <= set(WRITERS)
    assert set(WRITERS) - again == ALWAYS_COMPOSED
    assert again & not_again == SOMETIMES_COMPOSED


# ---------------------------------------------------------------- sizes that are not known

N, M = tirx.Var("n", "int64"), tirx.Var("m", "int64")
DATA, ROWS_OF, IMAGES, CHANNELS = var("x", N, 3, M), var("y", N, 3, M), var("im", N, 4, 8, 8), var("c", 4)
SYMBOLIC: list[tuple[str, tuple[Any, ...], dict[str, Any], str]] = [
    ("add", (DATA, ROWS_OF), {}, "float32[n, 3, m]"),
    ("add", (DATA, 2), {}, "float32[n, 3, m]"),
    ("hardswish", (DATA,), {}, "float32[n, 3, m]"),
    ("expm1", (DATA,), {}, "float32[n, 3, m]"),
    ("isfinite", (var("i", N, dtype="int32"),), {}, "bool[n]"),
    ("full_like", (DATA, 1.5), {}, "float32[n, 3, m]"),
    ("sum", (DATA,), {"axis": (0, 2)}, "float32[3]"),
    ("logsumexp", (DATA,), {"axis": 2}, "float32[n, 3]"),
    ("argmax", (DATA,), {"axis": -1}, "int64[n, 3]"),
    ("nn.softmax", (DATA,), {}, "float32[n, 3, m]"),
    ("transpose", (DATA,), {}, "float32[m, 3, n]"),
    ("concatenate", ((DATA, DATA),), {"axis": 1}, "float32[n, 6, m]"),
    ("concatenate", ((DATA, DATA),), {"axis": 0}, "float32[2*n, 3, m]"),
    ("split", (DATA,), {"indices_or_sections": 3, "axis": 1}, "(float32[n, 1, m], float32[n, 1, m], float32[n, 1, m])"),
    ("nn.dense", (DATA, var("w", 5, M)), {}, "float32[n, 3, 5]"),
    ("nn.bias_add", (DATA, var("b", 3)), {}, "float32[n, 3, m]"),
    ("nn.conv2d", (IMAGES, var("k", 6, 4, 3, 3)), {"padding": 1}, "float32[n, 6, 8, 8]"),
    ("nn.batch_norm", (IMAGES, CHANNELS, CHANNELS, CHANNELS, CHANNELS), {}, "float32[n, 4, 8, 8]"),
    ("nn.layer_norm", (DATA,), {}, "float32[n, 3, m]"),
    ("nn.group_norm", (IMAGES, CHANNELS, CHANNELS), {"num_groups": 2}, "float32[n, 4, 8, 8]"),
    ("nn.max_pool2d", (IMAGES,), {"pool_size": 2, "strides": 2}, "float32[n, 4, 4, 4]"),
    ("nn.adaptive_avg_pool2d", (IMAGES,), {"output_size": 1}, "float32[n, 4, 1, 1]"),
    ("nn.global_avg_pool2d", (IMAGES,), {}, "float32[n, 4, 1, 1]"),
    ("nn.attention", (var("q", N, 2, M, 8),) * 3, {"is_causal": True}, "float32[n, 2, m, 8]"),
    ("strided_slice", (DATA,), {"begin": (1,), "end": (3,), "axes": (1,)}, "float32[n, 2, m]"),
]


@pytest.mark.parametrize(("op", "operands", "attrs", "expected"), SYMBOLIC, ids=[row[0] for row in SYMBOLIC])
def test_symbolic_sizes(op: str, operands: tuple[Any, ...], attrs: dict[str, Any], expected: str) -> None:
    scope = Variables()
    assert str(scope.type_of(write(op, attrs, operands, scope))) == expected


def test_symbolic_sizes_in_attributes() -> None:
    scope = Variables()
    found = scope.type_of(DATA)
    assert isinstance(found, TensorType)
    n, _, m = found.shape
    for op, operands, attrs in [
        ("reshape", (DATA,), {"newshape": (n, m * 3)}),
        ("broadcast_to", (var("row", M),), {"shape": (n, m)}),
        ("full", (1.5,), {"shape": (n + 1, m), "dtype": ""}),
        ("arange", (), {"start": 0, "stop": n, "step": 1, "dtype": "int64"}),
        ("strided_slice", (DATA,), {"begin": (1,), "end": (m,), "strides": (1,), "axes": (2,)}),
    ]:
        again = read(write(op, attrs, operands, scope), scope)
        assert again is not None
        assert (again.op, again.attrs) == (op, attrs)


# ---------------------------------------------------------------- what Relax can't say

REFUSED: list[tuple[str, tuple[Any, ...], dict[str, Any], str]] = [
    ("abs", (var("b", 2, dtype="bool"),), {}, "abs: Relax doesn't compute with bools"),
    ("power", (var("i", 2, dtype="int32"), var("j", 2, dtype="int32")), {}, "power: Relax has powers of floats only"),
    ("add", (var("u", 2, dtype="int8"), 1000), {}, "add: 1000 is not a number of int8"),
    ("squeeze", (var("x", N, 3),), {"axis": 0}, "squeeze: "),
    ("nn.dense", (var("x", 2, 3), var("w", 4, 5)), {}, "nn.dense: "),
    ("nn.max_pool2d", (var("x", 1, 1, M, 8),), {"pool_size": 2, "strides": 2, "ceil_mode": True}, "nn.max_pool2d: "),
    ("argmax", (DATA,), {"axis": (0, 2)}, "argmax: the sizes have to be known"),
    ("sum", (relax.Var("x", relax.TensorType(dtype="float32", ndim=2)),), {}, "sum: the types of the operands"),
    ("nn.pad", (var("x", 4),), {"pad_width": ((-1, 2),), "pad_mode": "edge"}, "nn.pad: "),
]


@pytest.mark.parametrize("call", [call for call in CALLS if call.label in UNWRITTEN], ids=str)
def test_corners_that_are_refused(call: ExampleCall) -> None:
    with pytest.raises(ValueError, match=UNWRITTEN[call.label]):
        Written(call)


@pytest.mark.parametrize(("op", "operands", "attrs", "reason"), REFUSED, ids=[row[0] for row in REFUSED])
def test_what_is_refused(op: str, operands: tuple[Any, ...], attrs: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        write(op, attrs, operands, Variables())
