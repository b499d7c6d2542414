"""The examples of the declarations as calls with values, each with a name of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from gsl.spec import FAMILIES, TABLE
from gsl.spec.examples import Example
from gsl.spec.meaning import evaluate


@dataclass(frozen=True)
class ExampleCall:
    """A call of one operator: its operands are tensors, numbers, or tuples of tensors."""

    label: str
    """The operator and the attributes that are given, with a number where calls share those."""
    op: str
    operands: tuple[Any, ...]
    attrs: Mapping[str, Any]

    def __str__(self) -> str:
        return self.label

    @property
    def tolerance(self) -> float:
        """The largest error of a result by a kernel: in lower precision, where that is the fastest, some hundredths; of
        halves, their last bit."""
        if self.attrs.get("precision", "float32") != "float32":
            return 0.1
        dtypes = {str(getattr(operand, "dtype", None)) for operand in self.operands}
        return 2e-3 if "torch.float16" in dtypes and "out_dtype" not in self.attrs else 1e-5

    def expected(self) -> Any:
        """The result by the operator's meaning."""
        return evaluate(TABLE[self.op], self.operands, self.attrs)


LABELS: Final[Counter[str]] = Counter()
"""The number of calls of each label."""


def calls(examples: Iterable[tuple[str, Example]]) -> Iterator[ExampleCall]:
    """Examples with their operators as calls, whose names no others have."""
    for op, example in examples:
        label = example.label(op)
        LABELS[label] += 1
        numbered = f"{label} #{LABELS[label]}" if LABELS[label] > 1 else label
        yield ExampleCall(numbered, op, example.values(), example.attrs)


CALLS: Mapping[str, tuple[ExampleCall, ...]] = {
    family: tuple(calls((spec.name, example) for spec in specs for example in spec.examples))
    for family, specs in FAMILIES.items()
}
"""The examples by the module in which their operators are declared."""
EVERY_CALL = tuple(call for calls in CALLS.values() for call in calls)
