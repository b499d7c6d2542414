"""The comparison of two programs: their outputs and side effects on the same inputs, the report of it, and the step
of a trace that made the difference."""

from __future__ import annotations

import dataclasses
import html
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gsl.errors import ReplayError, WorkloadError
from gsl.graph import dtype_name
from gsl.rewrite import Trace
from gsl.rewrite.trace import Firing
from gsl.workload.inputs import as_tensor

if TYPE_CHECKING:
    from gsl.workload.workload import Workload


@dataclass(frozen=True, slots=True)
class Tolerance:
    """The largest error of an element: ``atol + rtol * (|expected element| + scale of the output)``.

    An element that is a sum of terms that cancel has the rounding errors of the terms, which are as large as its
    neighbours: hence the scale. It is the largest magnitude of the output, but at most 16 times its median magnitude
    (of what is not zero), so that a few huge elements (a mask of -3e38) do not excuse errors in all others.
    """

    rtol: float
    atol: float


TOLERANCES: Mapping[str, Tolerance] = {
    "float64": Tolerance(1e-12, 1e-15),
    "complex128": Tolerance(1e-12, 1e-15),
    "float32": Tolerance(1e-5, 1e-7),
    "complex64": Tolerance(1e-5, 1e-7),
    "float16": Tolerance(2.5e-3, 1e-6),
    "bfloat16": Tolerance(1.5e-2, 1e-6),
}
"""The tolerance for outputs of each dtype; all other dtypes must be equal bit by bit.

Rewrites reorder sums, and each reordering adds some rounding errors, of random signs: on the convolutional networks
and transformers of the demo and the tests, 1e-6 of the scale at most. Ten times as much is allowed for float32 (80
units in the last place, of 1.2e-7), which still tells an epsilon of 1e-4 from one of 1e-5 in a layer norm. For float64
it is more in units, but little all the same; for float16 (unit 9.8e-4) and bfloat16 (7.8e-3), which are summed in
float32, some two or three units. ``atol`` is only there for outputs that are zero but for rounding.
"""

_SAMPLE = 1 << 20
"""The approximate number of elements of a larger output from which the median is computed."""
_ALL_NAN = "all NaN: nothing was compared"
_AFTERWARDS = object()
"""Begins the path of a leaf that a run has changed."""

OutputPath = tuple[Any, ...]
"""The path to a leaf of a result: the keys, positions and names of fields that lead to it."""


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
    """The result of a comparison. True in a condition if everything agreed."""

    first: str
    """The name of the workload that gave the expected values."""
    second: str
    outputs: tuple[Compared, ...]
    inputs: tuple[tuple[Any, ...], ...]
    """The inputs of each run."""
    labels: tuple[str, ...] = ()
    """The way in which the inputs of each run were made."""
    culprit: Culprit | None = None
    """The step of a trace that introduced the first difference, where a trace was given."""

    @property
    def passed(self) -> bool:
        """False also if there was nothing to compare."""
        return bool(self.outputs) and all(output.passed for output in self.outputs)

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
        made = [f"run {number}: {label}" for number, label in enumerate(self.labels)] if len(self.labels) > 2 else []
        return "\n".join([self._headline(), *table, *made])

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
            outputs = f"{len(self.outputs)} output" + ("s" if len(self.outputs) != 1 else "")
            return f"{self.first} and {self.second} agree on {outputs} of {runs}"
        if not self.outputs:
            return f"{self.first} and {self.second} were not compared: they have no outputs"
        failed = f"{len(self.failures)} of {len(self.outputs)} outputs of {runs}"
        cause = "" if self.culprit is None else f"; {self.culprit}"
        return f"{self.first} and {self.second} differ in {failed}{cause}"


_HEADER = ("run", "output", "type", "max abs", "max rel", "at", "result")


def _row(output: Compared) -> tuple[str, ...]:
    at = "" if output.index is None else "[" + ", ".join(map(str, output.index)) + "]"
    result = "ok" if output.passed else f"FAILED: {output.reason}"
    if output.note:
        result += f" ({output.note})"
    return (str(output.run), output.name, output.expected, f"{output.max_abs:.2e}", f"{output.max_rel:.2e}", at, result)


def flatten(value: Any) -> list[tuple[OutputPath, Any]]:
    """The leaves of a module's result with their paths, such as ``("cache", 0, 1)``.

    Tuples, lists, mappings, dataclasses and what is registered as a pytree are opened; ``None`` counts as a leaf.
    """
    leaves: list[tuple[OutputPath, Any]] = []
    stack: list[tuple[OutputPath, Any]] = [((), value)]
    while stack:
        path, item = stack.pop()
        children = _children(item)
        if children is None:
            leaves.append((path, item))
        else:
            stack.extend(((*path, key), child) for key, child in reversed(children))
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


def afterwards(kind: str, name: str) -> OutputPath:
    """The path of an input or a state tensor that a run has changed."""
    return (_AFTERWARDS, kind, name)


def path_text(path: OutputPath) -> str:
    """A path as it is printed: ``logits``, ``cache[0][1]``, ``input x afterwards``."""
    if path[:1] == (_AFTERWARDS,):
        return f"{path[1]} {path[2]} afterwards"
    keys = [f".{key}" if isinstance(key, str) and key.isidentifier() else f"[{key!r}]" for key in path]
    return "".join(keys).removeprefix(".") or "result"


Override = Callable[[Tolerance], Tolerance]
"""Makes of the standard tolerance of a dtype the one that is wanted."""


def compare_results(
    run: int,
    expected: Sequence[tuple[OutputPath, Any]],
    found: Sequence[tuple[OutputPath, Any]],
    override: Override | None,
    *,
    devices: bool = False,
) -> list[Compared]:
    """The leaves of two results compared, each with the one that has the same path.

    With ``devices``, tensors have to be on the same device, too.

    So the order of a mapping's keys does not matter, nor does it whether a container is a tuple or a list, or a
    mapping or a dataclass; the keys and the nesting have to be the same.
    """
    mine, others = dict(expected), dict(found)
    rows = []
    for path, a in expected:
        if path in others:
            rows.append(compare_leaf(run, path_text(path), a, others[path], override, devices=devices))
        else:
            reason = "the second workload has no such output"
            rows.append(Compared(run, path_text(path), describe(a), "", reason=reason))
    for path, b in found:
        if path not in mine:
            reason = f"only the second workload has this output: {describe(b)}"
            rows.append(Compared(run, path_text(path), "", describe(b), reason=reason))
    return rows


def by_position(
    expected: Sequence[tuple[OutputPath, Any]], found: Sequence[tuple[OutputPath, Any]]
) -> list[tuple[OutputPath, Any]]:
    """The leaves that were found under the paths of the expected ones, if there are as many.

    Frameworks differ in whether the only output is one of a tuple, and not all have names for outputs.
    """
    if len(expected) != len(found) or any(path[:1] == (_AFTERWARDS,) for path, _ in (*expected, *found)):
        return list(found)
    return [(path, leaf) for (path, _), (_, leaf) in zip(expected, found)]


def without_numbers(rows: Sequence[Compared]) -> tuple[Compared, ...]:
    """The rows, of which those fail that are about an output which was nothing but NaN in every run."""
    seen = {row.name for row in rows if row.note != _ALL_NAN}
    return tuple([
        row if row.name in seen or not row.passed else dataclasses.replace(row, reason=_ALL_NAN, note="")
        for row in rows
    ])  # fmt: skip


def describe(value: Any) -> str:
    """The type of a leaf in short."""
    tensor = plain_tensor(value)
    if tensor is None:
        return _dtype_and_shape(value) if hasattr(value, "dtype") else f"{value!r:.40}"
    return _dtype_and_shape(tensor)


def _dtype_and_shape(tensor: Any) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')}[{', '.join(map(str, tensor.shape))}]"


def plain_tensor(value: Any) -> Any:
    """A torch, numpy or other tensor as a plain torch tensor on the CPU; None for anything else.

    WorkloadError for a tensor without data.
    """
    tensor = as_tensor(value)
    if tensor is None:
        return None
    if tensor.device.type == "meta":
        raise WorkloadError("a result is on the device meta, so it has no values to compare; run on another device")
    if tensor.is_nested:
        raise WorkloadError("a result is a nested tensor, which is not compared; return its values() instead")
    tensor = tensor.detach().cpu()
    if tensor.is_quantized:
        tensor = tensor.dequantize()
    return tensor if str(tensor.layout) in ("torch.strided", "torch._mkldnn") else tensor.to_dense()


def compare_leaf(
    run: int, name: str, expected: Any, found: Any, override: Override | None, *, devices: bool = False
) -> Compared:
    """One leaf compared: device, type and shape first, then the values as the table of tolerances says."""
    are_tensors = _is_tensor(expected) and _is_tensor(found)
    if devices and are_tensors and expected.device != found.device:
        reason = f"device: expected {expected.device}, found {found.device}"
        return Compared(run, name, _dtype_and_shape(expected), _dtype_and_shape(found), reason=reason)
    a, b = plain_tensor(expected), plain_tensor(found)
    types = describe(expected), describe(found)
    if a is None or b is None:
        same = a is b and type(expected) is type(found) and _same_object(expected, found)
        reason = "" if same else f"expected {types[0]}, found {types[1]}"
        return Compared(run, name, *types, reason=reason)
    if a.dtype != b.dtype or a.shape != b.shape:
        what = "dtype" if a.dtype != b.dtype else "shape"
        return Compared(run, name, *types, reason=f"{what}: expected {types[0]}, found {types[1]}")
    tolerance = TOLERANCES.get(dtype_name(a.dtype))
    if tolerance is not None and override is not None:
        tolerance = override(tolerance)
    return _compare_values(run, name, types, a, b, tolerance)


def _is_tensor(value: Any) -> bool:
    import torch

    return isinstance(value, torch.Tensor)


def _same_object(a: Any, b: Any) -> bool:
    if hasattr(a, "dtype"):  # an array that torch does not have
        return bool(a.dtype == b.dtype and a.shape == b.shape and (a == b).all())
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
        allowed = tolerance.atol + tolerance.rtol * (magnitude + _scale(magnitude))
        bad &= ~(comparable & (error <= allowed))
    count = int(bad.sum())
    relative = torch.where(magnitude > 0, error / magnitude, torch.where(error > 0, torch.inf, 0.0))
    # A place where only one is finite comes first, then the largest excess, then the largest error.
    excess = torch.where(comparable, error if tolerance is None else error / allowed, torch.inf)
    flat = int(torch.where(bad, excess, -1.0).argmax()) if count else int(error.argmax())
    index = None
    if count or float(error.max()) > 0:
        index = tuple(int(i) for i in torch.unravel_index(torch.tensor(flat, device=a.device), a.shape))
    reason = ""
    if count:
        x, y = a.reshape(-1)[flat].item(), b.reshape(-1)[flat].item()
        reason = f"{count} of {a.numel()} elements differ; expected {_number(x)}, found {_number(y)}"
    return Compared(
        run,
        name,
        *types,
        max_abs=float(error.max()),
        max_rel=float(relative.max()),
        index=index,
        mismatched=count,
        elements=a.numel(),
        tolerance=tolerance,
        reason=reason,
        note=_note(exact_a) or ("" if reason else _small_part(error, magnitude)),
    )


def is_beyond(row: Compared) -> bool:
    """True for floats of which some differ by more than their tolerance."""
    return row.tolerance is not None and row.mismatched > 0


def by_rounding(row: Compared, results: Sequence[Any], exact: Sequence[Any]) -> Compared:
    """The row of an output beyond its tolerance; one that passed if nothing but rounding tells the two results apart,
    and no more of it than was there before.

    ``exact`` are the results of both workloads in float64, which have to agree as those in float32 do. They tell the
    rounding errors of the first workload, which grow with the number of its layers. The largest error of the second
    one, and the root mean square of its errors, may be twice as large: so torch's benchmarks of compilers compare, too
    (``same`` in ``torch/_dynamo/utils.py``). If they are larger, the row says that it is by rounding.
    """
    import torch

    a, b, c, d = [plain_tensor(value) for value in (*results, *exact)]
    if c.shape != a.shape or c.dtype == a.dtype or c.dtype not in (torch.float64, torch.complex128):
        return row  # of float64 itself, a run in float64 tells nothing
    if not compare_leaf(row.run, row.name, c, d, lambda _: TOLERANCES["float32"]).passed:
        return row
    comparable = a.isfinite() & b.isfinite() & c.isfinite()
    if not bool((comparable | (a == b) | (a.isnan() & b.isnan())).all()):
        return row
    first, second = [torch.where(comparable, (each.to(c.dtype) - c).abs(), 0.0) for each in (a, b)]
    largest = float(first.max()), float(second.max())
    how = f"by rounding: {largest[1]:.1e} from the result in float64, from which the first is {largest[0]:.1e}"
    if largest[1] > 2 * largest[0] or float(second.norm()) > 2 * float(first.norm()):
        return dataclasses.replace(row, reason=f"{row.reason}; {how}")
    return dataclasses.replace(row, reason="", note=how)


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
    return _ALL_NAN if number == expected.numel() else f"{number} NaN"


def _small_part(error: Any, magnitude: Any) -> str:
    """A note if a slice of the output (a channel, a row) is so small that an error of its own size is within tolerance.

    A slice has to have some elements, so that one that happens to be nearly zero does not count.
    """
    for axis, size in enumerate(error.shape):
        if size > 1 and error.numel() // size >= 8:
            errors, sizes = (value.movedim(axis, 0).reshape(size, -1).amax(1) for value in (error, magnitude))
            place = int((errors / sizes.clamp(min=1e-300)).argmax())
            if float(errors[place]) > 0.01 * float(sizes[place]):
                where = ", ".join([":"] * axis + [str(place)] + [":"] * (error.ndim - axis - 1))
                return f"but [{where}] is off by {float(errors[place]):.1e}, and is {float(sizes[place]):.1e} at most"
    return ""


@dataclass(frozen=True, slots=True)
class Culprit:
    """The first step of a trace after which a workload differs. Steps count from 1."""

    step: int
    steps: int
    firing: Firing

    def __str__(self) -> str:
        return f"introduced by step {self.step} of {self.steps}: {self.firing}"


def culprit(first: Workload, trace: Trace, differs: Callable[[Workload], bool]) -> Culprit | None:
    """The step of the trace behind which the workload differs, and before which it does not; ``None`` if the whole
    trace makes no difference.

    Replays about log2(steps) beginnings of the trace. Raises WorkloadError for a trace of another workload.
    """

    def after(steps: int) -> bool:
        try:
            return differs(trace.replay(first, steps=steps))
        except ReplayError as error:
            raise WorkloadError(f"the trace was not made on {first.name}: {error}") from error

    good, bad = 0, len(trace.firings)
    if bad == 0 or not after(bad):
        return None
    while bad - good > 1:
        middle = (good + bad) // 2
        good, bad = (good, middle) if after(middle) else (middle, bad)
    return Culprit(bad, len(trace.firings), trace.firings[bad - 1])
