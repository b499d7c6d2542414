"""Spellings of pooling."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any, Final

import torch
import torch.nn.functional as F

from gsl.front.fx.spellings.bind import BoundCall, flag, integers, per_axis, unread_unless
from gsl.front.fx.spellings.conv import batched, symmetric
from gsl.front.fx.spellings.table import (
    SPATIAL,
    FxLift,
    FxLower,
    FxRow,
    Native,
    Site,
    call,
    dtype_of,
    laid_out,
    options,
    padded,
    relaid,
)
from gsl.front.tree import Canon


def pool_attrs(rank: int, kernel: Any, stride: Any, padding: Any, ceil_mode: Any) -> dict[str, Any]:
    size = per_axis(kernel, rank)
    given = stride is not None and (not isinstance(stride, (list, tuple)) or len(stride) > 0)
    return {
        "pool_size": size,
        "strides": per_axis(stride, rank) if given else size,
        "padding": symmetric(per_axis(padding, rank)),
        "ceil_mode": flag(ceil_mode),
    }


def max_pool(rank: int) -> FxLift:
    def read(c: BoundCall) -> Canon:
        unread_unless(c.return_indices is False)
        attrs = pool_attrs(rank, c.kernel_size, c.stride, c.padding, c.ceil_mode)
        attrs["dilation"] = per_axis(c.dilation, rank)
        return Canon(f"nn.max_pool{rank}d", (batched(c, c.input, rank),), attrs)

    return read


def avg_pool(rank: int) -> FxLift:
    def read(c: BoundCall) -> Canon:
        unread_unless(c.divisor_override is None)
        attrs = pool_attrs(rank, c.kernel_size, c.stride, c.padding, c.ceil_mode)
        attrs["count_include_pad"] = flag(c.count_include_pad)
        return Canon(f"nn.avg_pool{rank}d", (batched(c, c.input, rank),), attrs)

    return read


def adaptive_pool(kind: str, rank: int) -> FxLift:
    def read(c: BoundCall) -> Canon:
        unread_unless(c.return_indices is False)
        x = batched(c, c.input, rank)
        size = c.output_size if isinstance(c.output_size, (list, tuple)) else (c.output_size,) * rank
        unread_unless(len(size) == rank)
        if any(s is None for s in size):
            size = [known if s is None else s for s, known in zip(size, c.typed(x).shape[2:], strict=True)]
        return Canon(f"nn.adaptive_{kind}_pool{rank}d", (x,), {"output_size": integers(tuple(size))})

    return read


# ---------------------------------------------------------------- writing


def _fits(s: Site, rank: int) -> bool:
    """True if torch's pooling takes the padding: the same on both sides, and half the window at most."""
    both = s["padding"][:rank]
    return bool(both == s["padding"][rank:] and all(2 * p <= k for p, k in zip(both, s["pool_size"], strict=True)))


def _pool(rank: int, write: Callable[[Site, Any, str], Native]) -> FxLower:
    """Writes a pool in torch's layout, of which ``write`` is told the operand in it."""
    plain = "NC" + SPATIAL[-rank:]
    return lambda s: laid_out(
        write(s, relaid(s.x, s["layout"], plain), plain), plain, s["out_layout"] or s["layout"]
    )


def _write_max_pool(rank: int) -> FxLower:
    target, zeros = getattr(F, f"max_pool{rank}d"), (0,) * rank

    def write(s: Site, x: Any, plain: str) -> Native:
        padding = s["padding"][:rank]
        if not _fits(s, rank):
            dtype = dtype_of(s.known().dtype)
            least = -math.inf if dtype.is_floating_point else torch.iinfo(dtype).min
            x, padding = padded(x, s["padding"], least), zeros
        kwargs = options(
            stride=(s["strides"], s["pool_size"]),
            padding=(padding, zeros),
            dilation=(s["dilation"], (1,) * rank),
            ceil_mode=(s["ceil_mode"], False),
        )
        return call(target, x, s["pool_size"], **kwargs)

    return _pool(rank, write)


def _write_avg_pool(rank: int) -> FxLower:
    target, zeros = getattr(F, f"avg_pool{rank}d"), (0,) * rank

    def write(s: Site, x: Any, plain: str) -> Native:
        common = options(stride=(s["strides"], s["pool_size"]), ceil_mode=(s["ceil_mode"], False))
        if _fits(s, rank):
            kwargs = options(padding=(s["padding"][:rank], zeros), count_include_pad=(s["count_include_pad"], True))
            if s["padding"] == zeros * 2 and not s["ceil_mode"]:
                # Without padding it does not matter whether it counts.
                kwargs = {}
            return call(target, x, s["pool_size"], **common, **kwargs)
        result = call(target, padded(x, s["padding"]), s["pool_size"], **common)
        if s["count_include_pad"]:
            return result
        # The share of each window that is not padding.
        inside = padded(call(torch.ones_like, x), s["padding"])
        return call(operator.truediv, result, call(target, inside, s["pool_size"], **common))

    return _pool(rank, write)


def _write_adaptive(kind: str, rank: int) -> FxLower:
    target = getattr(F, f"adaptive_{kind}_pool{rank}d")

    def write(s: Site, x: Any, plain: str) -> Native:
        size = s["output_size"]
        if None in size:
            spatial = [s.known().shape[s["layout"].index(letter)] for letter in plain[2:]]
            size = tuple(own if wanted is None else wanted for own, wanted in zip(spatial, size, strict=True))
        return call(target, x, size[0] if len(set(size)) == 1 else size)

    return _pool(rank, write)


def _write_global(kind: str, rank: int) -> FxLower:
    target, axes = torch.amax if kind == "max" else torch.mean, tuple(range(2, 2 + rank))
    return _pool(rank, lambda s, x, _: call(target, x, dim=axes if rank > 1 else 2, keepdim=True))


_MAX_POOL = "input kernel_size stride=None padding=0 dilation=1 ceil_mode=False return_indices=False"
_AVG_POOL = "input kernel_size stride=None padding=0 ceil_mode=False count_include_pad=True divisor_override=None"


def _rows(rank: int) -> list[FxRow]:
    n = f"{rank}d"
    return [
        FxRow(f"torch.max_pool{n} F.max_pool{n} aten.max_pool{n}.default", _MAX_POOL, max_pool(rank)),
        FxRow(f"torch.avg_pool{n} F.avg_pool{n} aten.avg_pool{n}.default", _AVG_POOL, avg_pool(rank)),
        FxRow(
            f"torch.adaptive_avg_pool{n} F.adaptive_avg_pool{n} aten.adaptive_avg_pool{n}.default "
            f"aten._adaptive_avg_pool{n}.default",
            "input output_size return_indices=False",
            adaptive_pool("avg", rank),
        ),
        FxRow(f"F.adaptive_max_pool{n}", "input output_size return_indices=False", adaptive_pool("max", rank)),
    ]


ROWS: Final = tuple(itertools.chain.from_iterable(_rows(rank) for rank in (1, 2, 3)))

FIELDS: Final = (
    *(
        FxRow(f"aten.max_pool{n}d_with_indices.default F.max_pool{n}d_with_indices", _MAX_POOL, max_pool(n))
        for n in (1, 2, 3)
    ),
    *(
        FxRow(
            f"F.adaptive_max_pool{n}d_with_indices torch.adaptive_max_pool{n}d aten.adaptive_max_pool{n}d.default",
            "input output_size return_indices=False",
            adaptive_pool("max", n),
        )
        for n in (1, 2, 3)
    ),
)
"""Calls with several results, of which the first one is canonical."""

WRITERS: Final[Mapping[str, FxLower]] = {
    **{f"nn.max_pool{n}d": _write_max_pool(n) for n in (1, 2, 3)},
    **{f"nn.avg_pool{n}d": _write_avg_pool(n) for n in (1, 2, 3)},
    **{f"nn.adaptive_{kind}_pool{n}d": _write_adaptive(kind, n) for n in (1, 2, 3) for kind in ("avg", "max")},
    **{f"nn.global_{kind}_pool{n}d": _write_global(kind, n) for n in (1, 2, 3) for kind in ("avg", "max")},
}
