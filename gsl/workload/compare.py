"""The comparison of two programs: their outputs and side effects on the same inputs, and the report of it."""

from __future__ import annotations

import dataclasses
import html
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gsl.errors import WorkloadError


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How far an element may be off: ``atol + rtol * max(|expected element|, scale of the output)``.

    The scale is the largest magnitude of the output, but at most 16 times its median magnitude (of what is not
    zero), so that a few huge elements (a mask of -3e38) do not excuse errors in all others.
    """

    rtol: float
    atol: float


TOLERANCES: Mapping[str, Tolerance] = {
    "float64": Tolerance(1e-9, 1e-14),
    "complex128": Tolerance(1e-9, 1e-14),
    "float32": Tolerance(1e-4, 1e-7),
    "complex64": Tolerance(1e-4, 1e-7),
    "float16": Tolerance(5e-3, 1e-6),
    "bfloat16": Tolerance(3e-2, 1e-6),
}
"""The tolerance for outputs of each dtype; all other dtypes must be equal bit by bit.

Rewrites reorder sums, so a rounding error grows with the length of a sum: some hundred units in the last place are
allowed for float32 (1.2e-7 each), some four to five for float16 (9.8e-4) and bfloat16 (7.8e-3), which are summed in
float32. ``atol`` is only there for outputs that are zero but for rounding.
"""

_SAMPLE = 1 << 20
"""Of larger outputs, about so many elements make up the median."""


@dataclass(frozen=True, slots=True)
class Compared:
    """One output (or changed input or state) of one run, compared.

    ``run`` counts the sets of inputs. ``max_abs`` and ``max_rel`` are the largest absolute and relative error among
    the finite elements; ``index`` is where the element is that is furthest beyond its tolerance, or the largest error
    if all are within; ``reason`` says why it failed, and is empty if it passed.
    """

    run: int
    name: str
    expected: str
    found: str
    max_abs: float = 0.0
    max_rel: float = 0.0
    index: tuple[int, ...] | None = None
    mismatched: int = 0
    elements: int = 0
    tolerance: Tolerance | None = None
    reason: str = ""
    note: str = ""

    @property
    def passed(self) -> bool:
        return not self.reason


@dataclass(frozen=True, slots=True, eq=False)
class Report:
    """What a comparison found. True in a condition if everything agreed."""

    first: str
    """The name of the workload that gave the expected values."""
    second: str
    outputs: tuple[Compared, ...]
    inputs: tuple[tuple[Any, ...], ...]
    """The inputs of each run."""

    @property
    def passed(self) -> bool:
        return all(output.passed for output in self.outputs)

    @property
    def failures(self) -> tuple[Compared, ...]:
        """The outputs that differ."""
        return tuple(output for output in self.outputs if not output.passed)

    def __bool__(self) -> bool:
        return self.passed

    def check(self) -> Report:
        """This report, if everything agreed; otherwise a WorkloadError that carries it as text."""
        if not self.passed:
            raise WorkloadError(str(self))
        return self

    def __str__(self) -> str:
        rows = [_HEADER, *map(_row, self.outputs)]
        widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADER))]
        table = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
        return "\n".join([self._headline(), *table])

    def __repr__(self) -> str:
        return f"<Report: {self._headline()}>"

    def _repr_html_(self) -> str:
        def line(cells: Iterable[str], tag: str, style: str = "") -> str:
            body = "".join(f"<{tag} style='text-align: left'>{html.escape(cell)}</{tag}>" for cell in cells)
            return f"<tr{style}>{body}</tr>"

        body = [line(_row(o), "td", "" if o.passed else " style='background: #fbe3e0'") for o in self.outputs]
        return f"<p>{html.escape(self._headline())}</p><table>{line(_HEADER, 'th')}{''.join(body)}</table>"

    def _headline(self) -> str:
        runs = f"{len(self.inputs)} run" + ("s" if len(self.inputs) != 1 else "")
        if self.passed:
            return f"{self.first} and {self.second} agree on {len(self.outputs)} outputs of {runs}"
        return (
            f"{self.first} and {self.second} differ in {len(self.failures)} of {len(self.outputs)} outputs of {runs}"
        )


_HEADER = ("run", "output", "type", "max abs", "max rel", "at", "result")


def _row(output: Compared) -> tuple[str, ...]:
    at = "" if output.index is None else "[" + ", ".join(map(str, output.index)) + "]"
    result = "ok" if output.passed else f"FAILED: {output.reason}"
    if output.note:
        result += f" ({output.note})"
    return (
        str(output.run), output.name, output.expected, f"{output.max_abs:.2e}", f"{output.max_rel:.2e}", at, result
    )


def flatten(value: Any) -> list[tuple[str, Any]]:
    """The leaves of a module's result with their paths, such as ``logits`` or ``cache[0][1]``.

    Tuples, lists, mappings, dataclasses and what is registered as a pytree are opened; ``None`` counts as a leaf.
    """
    leaves: list[tuple[str, Any]] = []
    stack: list[tuple[str, Any]] = [("", value)]
    while stack:
        path, item = stack.pop()
        children = _children(item)
        if children is None:
            leaves.append((path or "result", item))
        else:
            stack.extend((_join(path, key), child) for key, child in reversed(children))
    return leaves


def _children(item: Any) -> list[tuple[Any, Any]] | None:
    """The parts of a container with their keys (a number for a position), or None for a leaf."""
    if isinstance(item, Mapping):
        return list(item.items())
    if isinstance(item, (tuple, list)):
        names = getattr(item, "_fields", range(len(item)))
        return list(zip(names, item))
    if dataclasses.is_dataclass(item) and not isinstance(item, type):
        return [(field.name, getattr(item, field.name)) for field in dataclasses.fields(item)]
    import torch.utils._pytree as pytree

    if type(item) in pytree.SUPPORTED_NODES:
        children, _ = pytree.SUPPORTED_NODES[type(item)].flatten_fn(item)
        return list(enumerate(children))
    return None


def _join(path: str, key: Any) -> str:
    return f"{path}[{key}]" if not isinstance(key, str) else f"{path}.{key}" if path else key


Override = Callable[[Tolerance], Tolerance]


def compare_results(
    run: int, expected: Sequence[tuple[str, Any]], found: Sequence[tuple[str, Any]], override: Override
) -> list[Compared]:
    """The leaves of two results compared: by path where both have the same paths, otherwise in order."""
    if {path for path, _ in expected} == {path for path, _ in found}:
        by_path = dict(found)
        found = [(path, by_path[path]) for path, _ in expected]
    rows = [compare_leaf(run, path, a, b, override) for (path, a), (_, b) in zip(expected, found)]
    rows += [
        Compared(run, path, describe(a), "", reason="the second workload has no such output")
        for path, a in expected[len(found):]
    ]
    rows += [
        Compared(run, path, "", describe(b), reason=f"only the second workload has this output: {describe(b)}")
        for path, b in found[len(expected):]
    ]
    return rows


def describe(value: Any) -> str:
    """The type of a leaf in short."""
    tensor = as_tensor(value)
    if tensor is None:
        return f"{value!r:.40}"
    return f"{str(tensor.dtype).removeprefix('torch.')}[{', '.join(map(str, tensor.shape))}]"


def as_tensor(value: Any) -> Any:
    """A torch, numpy or other tensor as a torch tensor on the CPU; None for anything else."""
    import numpy as np
    import torch

    if isinstance(value, torch.Tensor):
        return value.detach().cpu()
    if not isinstance(value, (np.ndarray, np.generic)) and hasattr(value, "numpy"):
        value = value.numpy()
    return torch.from_numpy(np.array(value)) if isinstance(value, (np.ndarray, np.generic)) else None


def compare_leaf(run: int, name: str, expected: Any, found: Any, override: Override) -> Compared:
    """One leaf compared: type and shape first, then the values as the table of tolerances says."""
    a, b = as_tensor(expected), as_tensor(found)
    types = describe(expected), describe(found)
    if a is None or b is None:
        same = a is b and type(expected) is type(found) and _same_object(expected, found)
        reason = "" if same else f"expected {types[0]}, found {types[1]}"
        return Compared(run, name, *types, reason=reason)
    if a.dtype != b.dtype or a.shape != b.shape:
        what = "dtype" if a.dtype != b.dtype else "shape"
        return Compared(run, name, *types, reason=f"{what}: expected {types[0]}, found {types[1]}")
    dtype = str(a.dtype).removeprefix("torch.")
    tolerance = override(TOLERANCES[dtype]) if dtype in TOLERANCES else None
    return _compare_values(run, name, types, a, b, tolerance)


def _same_object(a: Any, b: Any) -> bool:
    return a is b or bool(a == b) or (a != a and b != b)


def _compare_values(
    run: int, name: str, types: tuple[str, str], a: Any, b: Any, tolerance: Tolerance | None
) -> Compared:
    import torch

    if a.numel() == 0:
        return Compared(run, name, *types, tolerance=tolerance, note="empty")
    if tolerance is None and not a.dtype.is_floating_point:
        wide, wrong = torch.float64, a != b
    else:
        wide, wrong = torch.complex128 if a.dtype.is_complex else torch.float64, None
    exact_a, exact_b = a.to(wide), b.to(wide)
    if wrong is None:
        same = (exact_a == exact_b) | (exact_a.isnan() & exact_b.isnan())
        comparable = exact_a.isfinite() & exact_b.isfinite()
    else:
        same, comparable = ~wrong, torch.ones_like(wrong)
    error = torch.where(comparable & ~same, (exact_a - exact_b).abs(), 0.0)
    magnitude = torch.where(comparable, exact_a.abs(), 0.0)
    bad = ~same
    if tolerance is not None:
        allowed = tolerance.atol + tolerance.rtol * magnitude.clamp(min=_scale(magnitude))
        bad &= ~(comparable & (error <= allowed))
    count = int(bad.sum())
    relative = torch.where(magnitude > 0, error / magnitude, torch.where(error > 0, torch.inf, 0.0))
    # A place where only one is finite comes first, then the largest excess, then the largest error.
    excess = torch.where(comparable, error if tolerance is None else error / allowed, torch.inf)
    flat = int(torch.where(bad, excess, -1.0).argmax()) if count else int(error.argmax())
    index = None
    if count or float(error.max()) > 0:
        index = tuple(int(i) for i in torch.unravel_index(torch.tensor(flat), a.shape))
    reason = ""
    if count:
        x, y = a.reshape(-1)[flat].item(), b.reshape(-1)[flat].item()
        reason = f"{count} of {a.numel()} elements differ; expected {_number(x)}, found {_number(y)}"
    return Compared(
        run, name, *types, max_abs=float(error.max()), max_rel=float(relative.max()), index=index, mismatched=count,
        elements=a.numel(), tolerance=tolerance, reason=reason, note=_note(exact_a),
    )


def _scale(magnitude: Any) -> float:
    """The magnitude against which errors are measured; see :class:`Tolerance`."""
    flat = magnitude.reshape(-1)
    sample = flat[:: max(1, flat.numel() // _SAMPLE)]
    sample = sample[sample > 0]
    largest = float(flat.max())
    return min(largest, 16 * float(sample.median())) if sample.numel() else largest


def _number(value: Any) -> str:
    return f"{value:.8g}" if isinstance(value, (float, complex)) else str(value)


def _note(expected: Any) -> str:
    number = int(expected.isnan().sum())
    if number == 0:
        return ""
    return "all NaN: nothing was compared" if number == expected.numel() else f"{number} NaN"
