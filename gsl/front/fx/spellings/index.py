"""Spellings of slicing and lookup."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from gsl.front.fx.spellings.bind import Call, UnreadError, axis, integer, is_dim, is_int, unread_unless
from gsl.front.fx.spellings.elementwise import tensor
from gsl.front.fx.spellings.table import Reader, Row
from gsl.front.tree import Canon
from gsl.graph import TUPLE


def bound(value: Any) -> Any:
    unread_unless(value is None or is_dim(value))
    return value


def sliced(x: Any, axes: Sequence[int], slices: Sequence[tuple[Any, Any, Any]]) -> Canon:
    """One ``strided_slice`` over some axes; a slice is (start, stop, step)."""
    unread_unless(all(is_int(step) and step > 0 for _, _, step in slices))
    attrs = {
        "begin": tuple(s[0] for s in slices),
        "end": tuple(s[1] for s in slices),
        "strides": tuple(s[2] for s in slices),
        "axes": tuple(axes),
    }
    return Canon("strided_slice", (x,), attrs)


def _slice(c: Call) -> Canon:
    step = 1 if c.step is None else c.step
    return sliced(tensor(c, c.input), [integer(c.dim)], [(bound(c.start), bound(c.end), step)])


def _narrow(c: Call) -> Canon:
    start = integer(c.start)
    unread_unless(start >= 0)
    return sliced(tensor(c, c.input), [integer(c.dim)], [(start, start + integer(c.length), 1)])


def _select(c: Call) -> Canon:
    unread_unless(is_int(c.index))
    return Canon("take", (tensor(c, c.input), c.index), {"axis": integer(c.dim)})


def _unbind(c: Call) -> Canon:
    """The elements along an axis, one by one."""
    shape = c.typed(c.input).shape
    where = axis(c.dim, len(shape))
    count: Any = shape[where] if shape else None
    unread_unless(is_int(count))
    return Canon(TUPLE, tuple([Canon("take", (tensor(c, c.input), i), {"axis": where}) for i in range(count)]))


def _is_places(c: Call, item: Any) -> bool:
    """True for a tensor of indices; one of bools would be a mask."""
    found = c.tensor_type(item)
    return found is not None and found.dtype in ("int64", "int32") and found.ndim > 0


def _getitem(c: Call) -> Canon:
    """``x[...]`` with ints, slices, ``None`` and ``...``, or one tensor of indices: basic slices first."""
    ndim = c.ndim(c.input)
    items = list(c.index) if isinstance(c.index, tuple) else [c.index]
    lookups = [i for i, item in enumerate(items) if _is_places(c, item)]
    simple = [item is None or item is ... or is_int(item) or isinstance(item, slice) for item in items]
    unread_unless(all(ok or i in lookups for i, ok in enumerate(simple)))
    if lookups:
        # Torch moves the axes of an index away from where they would be if it stands among ints.
        unread_unless(len(lookups) == 1 and not any(is_int(item) for item in items))
    taken = sum(item is not None and item is not ... for item in items)
    places = [i for i, item in enumerate(items) if item is ...]
    unread_unless(taken <= ndim and len(places) <= 1)
    for place in places:
        items[place : place + 1] = [slice(None)] * (ndim - taken)
    return _composed(tensor(c, c.input), items)


def _composed(x: Any, items: Sequence[Any]) -> Canon:
    """One slice of all axes, then the axes that are looked up, last first, then the new axes."""
    own = [item for item in items if item is not None]
    parts = {place: s for place, s in enumerate(own) if isinstance(s, slice) and s != slice(None)}
    result: Any = x
    if parts:
        slices = [(bound(s.start), bound(s.stop), 1 if s.step is None else s.step) for s in parts.values()]
        result = sliced(result, list(parts), slices)
    for place in reversed(range(len(own))):
        if not isinstance(own[place], slice):
            result = Canon("take", (result, own[place]), {"axis": place})
    new = [i for i, item in enumerate(items) if item is None]
    # New axes count in the result, where integers have none.
    unread_unless(not new or all(item is None or is_int(item) or isinstance(item, slice) for item in items))
    for place in new:
        result = Canon("expand_dims", (result,), {"axis": place - sum(is_int(item) for item in items[:place])})
    if result is x:
        raise UnreadError
    assert isinstance(result, Canon)
    return result


def _index(c: Call) -> Canon:
    """``aten.index`` with a tensor of indices for one axis."""
    unread_unless(isinstance(c.indices, (list, tuple)))
    places = [place for place, item in enumerate(c.indices) if item is not None]
    unread_unless(len(places) == 1 and _is_places(c, c.indices[places[0]]))
    return Canon("take", (tensor(c, c.input), c.indices[places[0]]), {"axis": places[0]})


def _gather(c: Call) -> Canon:
    unread_unless(c.sparse_grad is False)
    return Canon("gather", (tensor(c, c.input), tensor(c, c.index)), {"axis": integer(c.dim)})


def _scatter(c: Call) -> Canon:
    return Canon("scatter", (tensor(c, c.input), tensor(c, c.index), tensor(c, c.src)), {"axis": integer(c.dim)})


def _diagonal_scatter(c: Call) -> Canon:
    """Of matrices in the last two axes."""
    ndim = c.ndim(c.input)
    unread_unless((axis(c.dim1, ndim), axis(c.dim2, ndim)) == (ndim - 2, ndim - 1))
    return Canon("matrix_set_diag", (tensor(c, c.input), tensor(c, c.src)), {"k": integer(c.offset)})


def _trilu(upper: bool) -> Reader:
    return lambda c: Canon("trilu", (tensor(c, c.input),), {"k": integer(c.diagonal), "upper": upper})


def _embedding(c: Call) -> Canon:
    """The padding index counts in the gradient only."""
    unread_unless(c.max_norm is None and c.scale_grad_by_freq is False and c.sparse is False)
    return Canon("take", (tensor(c, c.weight), tensor(c, c.input)), {"axis": 0})


def _aten_embedding(c: Call) -> Canon:
    unread_unless(c.scale_grad_by_freq is False and c.sparse is False)
    return Canon("take", (tensor(c, c.weight), tensor(c, c.indices)), {"axis": 0})


def _index_select(c: Call) -> Canon:
    unread_unless(c.ndim(c.index) == 1)
    return Canon("take", (tensor(c, c.input), tensor(c, c.index)), {"axis": integer(c.dim)})


ROWS: Final = (
    Row("operator.getitem .__getitem__", "input index", _getitem),
    Row("aten.index.Tensor", "input indices", _index),
    Row("torch.gather .gather aten.gather.default", "input dim index sparse_grad=False", _gather),
    Row("torch.scatter .scatter aten.scatter.src", "input dim index src", _scatter),
    Row(
        "torch.diagonal_scatter .diagonal_scatter aten.diagonal_scatter.default",
        "input src offset=0 dim1=0 dim2=1",
        _diagonal_scatter,
    ),
    Row("torch.triu .triu aten.triu.default", "input diagonal=0", _trilu(True), inplace=True),
    Row("torch.tril .tril aten.tril.default", "input diagonal=0", _trilu(False), inplace=True),
    Row("aten.slice.Tensor", "input dim=0 start=None end=None step=1", _slice),
    Row("torch.narrow .narrow aten.narrow.default", "input dim start length", _narrow),
    Row("torch.select .select aten.select.int", "input dim index", _select),
    Row("torch.index_select .index_select aten.index_select.default", "input dim index", _index_select),
    Row(
        "F.embedding",
        "input weight padding_idx=None max_norm=None norm_type=2.0 scale_grad_by_freq=False sparse=False",
        _embedding,
    ),
    Row(
        "torch.embedding aten.embedding.default",
        "weight indices padding_idx=-1 scale_grad_by_freq=False sparse=False",
        _aten_embedding,
    ),
)
FIELDS: Final = (Row("torch.unbind .unbind aten.unbind.int", "input dim=0", _unbind),)
"""Calls with several results, each of which is canonical."""
