"""Spellings of reductions, scans and searches."""

from __future__ import annotations

from typing import Any, Final

from gsl.front.fx.spellings.activation import cast
from gsl.front.fx.spellings.bind import Call, UnreadError, flag, integer, integers, number, unread_unless
from gsl.front.fx.spellings.elementwise import dtype_name, tensor
from gsl.front.fx.spellings.table import Reader, Row
from gsl.front.tree import Canon


def axes(dim: Any) -> tuple[int, ...] | None:
    """Torch's axes of a reduction, where none at all is all of them."""
    if dim is None or (isinstance(dim, (list, tuple)) and not dim):
        return None
    return integers(dim)


def _reduction(op: str) -> Reader:
    def read(c: Call) -> Canon:
        x = tensor(c, c.input)
        if c.dtype is not None:
            x = cast(c, x, dtype_name(c.dtype))
        return Canon(op, (x,), {"axis": axes(c.dim), "keepdims": flag(c.keepdim)})

    return read


def _plain(op: str, *, empty: bool = False) -> Reader:
    """A reduction without a dtype of its own. Most of them don't take no axes for all of them."""

    def read(c: Call) -> Canon:
        axis = axes(c.dim)
        unread_unless(empty or axis is not None or c.dim is None)
        return Canon(op, (tensor(c, c.input),), {"axis": axis, "keepdims": flag(c.keepdim)})

    return read


def _whole(op: str) -> Reader:
    return lambda c: Canon(op, (tensor(c, c.input),), {"axis": None, "keepdims": False})


def _variance(op: str) -> Reader:
    """``var`` and ``std`` divide by ``n - correction``, of which only 0 and 1 are canonical."""

    def read(c: Call) -> Canon:
        correction = c.correction if c.correction is not None else int(flag(c.unbiased))
        unread_unless(correction in (0, 1) and (axes(c.dim) is not None or c.dim is None))
        attrs = {"axis": axes(c.dim), "keepdims": flag(c.keepdim), "unbiased": correction == 1}
        return Canon(op, (tensor(c, c.input),), attrs)

    return read


def _arg(op: str) -> Reader:
    """``argmax``, of which no axis is the whole tensor in one row."""

    def read(c: Call) -> Canon:
        axis = None if c.dim is None else integer(c.dim)
        found = c.tensor_type(c.input)
        unread_unless(axis is None or found is None or found.ndim > 0)
        return Canon(op, (tensor(c, c.input),), {"axis": axis, "keepdims": flag(c.keepdim)})

    return read


def _vector_norm(c: Call) -> Canon:
    """In a dtype in which sums of squares are no narrower than torch's own."""
    x = tensor(c, c.input)
    if c.dtype is not None:
        x = cast(c, x, dtype_name(c.dtype))
    unread_unless((dtype_name(c.dtype) if c.dtype is not None else c.dtype_of(x)) in ("float32", "float64"))
    found = axes(c.dim)
    unread_unless(found is not None or c.dim is None)
    attrs = {"axis": found, "keepdims": flag(c.keepdim)}
    match number(c.ord):
        case 2:
            return Canon("sqrt", (Canon("sum", (Canon("square", (x,)),), attrs),))
        case 1:
            return Canon("sum", (Canon("abs", (x,)),), attrs)
    raise UnreadError


def _cumsum(c: Call) -> Canon:
    dtype = "" if c.dtype is None else dtype_name(c.dtype)
    return Canon("cumsum", (tensor(c, c.input),), {"axis": integer(c.dim), "dtype": dtype})


def _extreme(op: str) -> Reader:
    return lambda c: Canon(op, (tensor(c, c.input),), {"axis": (integer(c.dim),), "keepdims": flag(c.keepdim)})


def _elementwise(op: str) -> Reader:
    return lambda c: Canon(op, (tensor(c, c.input), tensor(c, c.other)))


_SUM = "input dim=None keepdim=False dtype=None"

ROWS: Final = (
    Row("torch.sum .sum aten.sum.default aten.sum.dim_IntList", _SUM, _reduction("sum")),
    Row("torch.mean .mean aten.mean.default aten.mean.dim", _SUM, _reduction("mean")),
    Row("torch.prod .prod aten.prod.default aten.prod.dim_int", _SUM, _reduction("prod")),
    *(
        Row(f"torch.{name} .{name} aten.{name}.default", "input dim=None keepdim=False", _plain(op, empty=True))
        for name, op in (("amax", "max"), ("amin", "min"))
    ),
    *(Row(f"torch.{op} .{op} aten.{op}.default", "input", _whole(op)) for op in ("max", "min")),
    *(Row(f"torch.{op} .{op} aten.{op}.other", "input other", _elementwise(f"{op}imum")) for op in ("max", "min")),
    *(
        Row(
            f"torch.{op} .{op} aten.{op}.default aten.{op}.dim aten.{op}.dims",
            "input dim=None keepdim=False",
            _plain(op),
        )
        for op in ("all", "any")
    ),
    *(
        Row(f"torch.{op} .{op} aten.{op}.default", "input dim=None keepdim=False", _arg(op))
        for op in ("argmax", "argmin")
    ),
    *(
        row
        for name, op in (("var", "variance"), ("std", "std"))
        for row in (
            Row(f"torch.{name} .{name}", "input dim=None unbiased=True keepdim=False correction=None", _variance(op)),
            Row(f"aten.{name}.default", "input unbiased dim=None keepdim=False correction=None", _variance(op)),
            Row(f"aten.{name}.dim", "input dim unbiased keepdim=False correction=None", _variance(op)),
            Row(f"aten.{name}.correction", "input dim correction keepdim unbiased=True", _variance(op)),
        )
    ),
    Row(
        "torch.logsumexp .logsumexp special.logsumexp aten.logsumexp.default",
        "input dim keepdim=False",
        _plain("logsumexp"),
    ),
    Row("aten.linalg_vector_norm.default", "input ord=2 dim=None keepdim=False dtype=None", _vector_norm),
    Row("torch.cumsum .cumsum aten.cumsum.default", "input dim dtype=None", _cumsum),
)
FIELDS: Final = tuple(
    Row(f"torch.{op} .{op} aten.{op}.dim", "input dim keepdim=False", _extreme(op)) for op in ("max", "min")
)
"""``max(x, dim)`` returns the values and where they are."""
