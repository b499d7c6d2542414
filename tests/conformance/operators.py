"""Every operator of the vocabulary as views of one call: the rows by which its meaning is tested."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from gsl.graph import Graph, Node, TupleType
from gsl.spec import TABLE
from gsl.spec.meaning import evaluate
from tests.helpers.graphs import infer_type
from tests.rules.harness import Build
from tests.spec import test_meaning as meaning


@dataclass(frozen=True)
class Row:
    """A call of one operator: its operands are tensors, numbers, or tuples of tensors."""

    label: str
    """The operator and the attributes that are given, with a number where rows share those."""
    op: str
    operands: tuple[Any, ...]
    attrs: Mapping[str, Any]

    def call(self, b: Build, prefix: str) -> tuple[list[Node], list[torch.Tensor]]:
        """The results of the call in a view, and the values of the inputs that it added to it."""
        fed: list[torch.Tensor] = []
        operands = [self._operand(b, value, f"{prefix}{i}", fed) for i, value in enumerate(self.operands)]
        call = b.call(self.op, *operands, **self.attrs)
        if isinstance(call.type, TupleType):
            return [b.get(call, i) for i in range(len(call.type.fields))], fed
        return [call], fed

    def _operand(self, b: Build, value: Any, name: str, fed: list[torch.Tensor]) -> Any:
        if isinstance(value, tuple):
            return b.tuple(*[self._operand(b, item, f"{name}_{i}", fed) for i, item in enumerate(value)])
        if isinstance(value, torch.Tensor):
            fed.append(value.contiguous())
            return b.input(name, *value.shape, dtype=str(value.dtype).removeprefix("torch."))
        return value

    def expected(self) -> list[torch.Tensor]:
        """The results by the operator's meaning."""
        found = evaluate(TABLE[self.op], self.operands, self.attrs)
        return list(found) if isinstance(found, tuple) else [found]


def _rows(rows: Sequence[tuple[Any, ...]], seen: Counter[str]) -> Iterator[Row]:
    for op, operands, attrs, *_ in rows:
        given = ", ".join(f"{name}={str(value).removeprefix('torch.')}" for name, value in attrs.items())
        label = f"{op}({given})" if given else op
        seen[label] += 1
        yield Row(f"{label} #{seen[label]}" if seen[label] > 1 else label, op, operands, attrs)


_NAMES = (
    "UNARY", "BINARY", "OTHERS", "CREATE", "SHAPE", "INDEX", "REDUCE", "LINEAR", "CONV", "POOL", "NORM", "ACTIVATION",
)  # fmt: skip
_X, _IMAGE, _IMAGE3, _MATRIX = meaning.X, meaning.IMAGE, meaning.IMAGE3, meaning.MATRIX
_SIMPLE = (
    ("less", (_X, meaning.Y), {}),
    ("gather", (_MATRIX[:2], meaning.INDICES), {"axis": 1}),
    ("scatter", (_MATRIX[:2], torch.tensor([[2, 0], [1, 3]]), -_MATRIX[:2, :2]), {"axis": 1}),
    ("matmul", (_MATRIX, _MATRIX.T), {}),
    ("nn.dense", (_MATRIX, _MATRIX[:2]), {}),
    ("nn.conv3d", (_IMAGE3, meaning.rand(2, 4, 3, 3, 2)), {}),
    ("nn.adaptive_avg_pool2d", (_IMAGE,), {"output_size": 1}),
    ("nn.global_avg_pool2d", (_IMAGE,), {}),
    ("nn.global_max_pool2d", (_IMAGE,), {}),
)
"""The simplest calls of operators that have no such row."""

_SEEN: Counter[str] = Counter()
FAMILIES: Mapping[str, tuple[Row, ...]] = {
    **{name.lower(): tuple(_rows(getattr(meaning, name), _SEEN)) for name in _NAMES},
    "simple": tuple(_rows(_SIMPLE, _SEEN)),
}
ROWS = tuple(row for family in FAMILIES.values() for row in family)


def view(rows: Sequence[Row]) -> tuple[Graph, list[torch.Tensor]]:
    """The view whose outputs are the results of these rows in turn, and the values of its inputs."""
    b = Build()
    outputs: list[Node] = []
    fed: list[torch.Tensor] = []
    for number, row in enumerate(rows):
        results, values = row.call(b, f"r{number}x" if len(rows) > 1 else "x")
        outputs += results
        fed += values
    return Graph(b.nodes, outputs, infer_type), fed

