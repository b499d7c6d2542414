"""The meaning of the operators of the formats: the pattern of each, as a source and as a target.

In a source, everything that the operator demands is a guard: attributes of the call, or a condition of the rule. In a
target the attributes are computed, and what the operator demands of the rule's variables is a condition too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gsl import attr, op
from gsl.exchange.constants import average_kernel, identity, identity_kernel, identity_matrix, ones
from gsl.exchange.patterns import Inexpressible, MakePattern, PatternSide, SourceValue, applied
from gsl.exchange.shapes import kernel, origins, rank, same_shape
from gsl.exchange.terms import VARIABLE, RuleTerm, walk
from gsl.pat import Pattern

SAME, VALID = 0, 1
"""The kinds of padding."""


def _matmul(side: PatternSide, term: RuleTerm, a: Pattern, b: Pattern) -> Pattern:
    made: Pattern = op.Matmul(a, b, out_dtype="")
    sides, (first, second) = side.sides, term.operands
    fits = (a.ndim >= 2) & (b.ndim >= 2)
    if not side.semantics.broadcasting:
        fits = (a.ndim >= 2) & (b.ndim == a.ndim) & (a.shape[:-2] == b.shape[:-2])
    if side.is_source:
        side.demand(fits)
        sides.products += (first, second)
    else:
        found = {sides.batches.find(first), sides.batches.find(second)}
        known = {sides.batches.find(product) for product in sides.products}
        if not found <= known or (len(found) > 1 and not side.semantics.broadcasting):
            made = side.provided(fits, made, "operands of matmul that do not fit")
    if side.semantics.broadcasting:
        sides.products.append(term)
    else:
        sides.batches.join(first, second)
        sides.batches.join(term, first)
    return made


def _element_wise(make: Any) -> MakePattern:
    def build(side: PatternSide, term: RuleTerm, a: Pattern, b: Pattern) -> Pattern:
        made: Pattern = make(a, b)
        if side.is_source:
            side.demand(a.dtype == b.dtype)
        if side.semantics.broadcasting:
            return made
        alike, leaves = side.sides.alike, side.sides.leaves
        first, second = (alike.find(operand) for operand in term.operands)
        if first is not second:
            if side.is_source:
                side.demand(a.shape == b.shape)
            elif first in leaves and second in leaves:
                side.demand(leaves[first].shape == leaves[second].shape)
            else:
                made = side.provided(a.shape == b.shape, made, f"operands of {term.op} of different shapes")
        side.join(first, second)
        side.join(term, first)
        return made

    return build


def _smul(side: PatternSide, term: RuleTerm, x: Pattern, scalar: Pattern) -> Pattern:
    side.join(term, term.operands[0])
    made = op.Multiply(x, scalar)
    if side.is_source:
        side.demand(made.dtype == x.dtype)
        if term.operands[1].op != VARIABLE:
            side.demand(scalar.ndim == 0)
    return made


def _activation(act: int) -> MakePattern:
    def build(side: PatternSide, term: RuleTerm, x: Pattern) -> Pattern:
        side.join(term, term.operands[0])
        return applied(act, x)

    return build


def _transpose(side: PatternSide, term: RuleTerm, x: Pattern) -> Pattern:
    if len(term.params["axes"]) == 2:
        for matrix in (term, term.operands[0]):
            side.sides.batches.join(matrix, side.sides.matrix)
    return op.Transpose(x, axes=term.params["axes"])


# Joining and taking apart


def _concat(side: PatternSide, term: RuleTerm, *items: Pattern) -> Pattern:
    ndim = side.value(term, "ndim")
    if side.is_source:
        for item in items[1:]:
            side.demand(item.dtype == items[0].dtype)
        made = side.call(op.Concatenate, term, [list(items)], {"axis": "axis", "ndim": "ndim"})
    else:
        made = op.Concatenate(list(items), axis=side.value(term, "axis"))
    for operand in term.operands:
        _take_rank(side, operand, ndim)
    if isinstance(ndim, int) and ndim == 2:
        side.sides.batches.join(term, side.sides.matrix)
    return made


def _take_rank(side: PatternSide, term: RuleTerm, ndim: SourceValue | None) -> None:
    """Note that a tensor has so many dimensions; in a target, demand it of the variables that it is made of."""
    known = rank(term)
    settled = side.sides.ranks
    if not isinstance(known, int):
        found = next((settled[variable] for variable in known if variable in settled), None)
        one = len(known) == 1 or not side.semantics.broadcasting  # otherwise only the largest rank is known
        if found is None and known and ndim is not None:
            if not side.is_source:
                ranks = [side.patterns[variable].ndim for variable in known]
                side.demand((ranks[0] if one else attr.max(*ranks)) == ndim)
            settled.update(dict.fromkeys(known, ndim) if one else {})
            for variable in known if one and isinstance(ndim, int) and ndim == 2 else ():
                side.sides.batches.join(variable, side.sides.matrix)
        if found is None or not one:
            return
        known = found
    if isinstance(known, int) and isinstance(ndim, int) and known != ndim:
        raise Inexpressible(f"{term.place}: a tensor of {known} dimensions is taken for one of {ndim}")


def _split(side: PatternSide, term: RuleTerm, x: Pattern) -> Pattern:
    found = origins(term.operands[0], term.params["axis"])
    if not found:
        return _free_split(side, term, x)
    _settle_products(side, term.operands[0])
    cuts, *others = (_cuts(side, term, joined, along) for joined, along in found)
    for (joined, _), other in zip(found[1:], others):
        if not side.is_source and not all(item in side.sides.leaves for item in (*found[0][0], *joined)):
            raise Inexpressible(f"{term.place}: it is open where the split cuts: tensors were concatenated differently")
        if joined != found[0][0]:
            side.demand(cuts == other)
    return side.call(op.Split, term, [x], {"axis": "axis"}, indices_or_sections=cuts)


def _settle_products(side: PatternSide, term: RuleTerm) -> None:
    """Demand that products have the rank by which it was told which axis is whose, where they may broadcast."""
    for product in walk(term) if side.semantics.broadcasting else ():
        ranks = [known for known in map(rank, product.operands) if isinstance(known, int)]
        if product.op == "matmul" and ranks:
            for operand in product.operands:
                if side.is_source:
                    side.demand(side.patterns[operand].ndim == ranks[0])
                else:
                    _take_rank(side, operand, ranks[0])


def _cuts(side: PatternSide, term: RuleTerm, joined: Sequence[RuleTerm], axis: Any) -> attr.Expr:
    """The places between tensors that were concatenated."""
    if len(joined) != term.params["parts"]:
        raise Inexpressible(
            f"{term.place}: it has {term.params['parts']} results, but {len(joined)} tensors were concatenated"
        )
    along = side.sides.bound[axis] if isinstance(axis, str) else axis
    sizes = [side.patterns[item].shape[along] for item in joined]
    cuts = [sizes[0]]
    for size in sizes[1:-1]:
        cuts.append(cuts[-1] + size)
    return attr.Tuple(*cuts)


def _free_split(side: PatternSide, term: RuleTerm, x: Pattern) -> Pattern:
    """A split of a tensor that the rule did not concatenate: at any place in a source, at the same one in a target."""
    count = term.params["parts"]
    if side.is_source:
        made = side.call(op.Split, term, [x], {"axis": "axis"})
        side.demand(attr.Len(made.indices_or_sections) == count - 1)
        side.sides.splits.setdefault((term.operands[0], term.params["axis"]), made)
        return made
    cut = ((below, term.params["axis"]) for below in same_shape(term.operands[0]))
    known = next((side.sides.splits[key] for key in cut if key in side.sides.splits), None)
    if known is None:
        raise Inexpressible(
            f"{term.place}: it is open where the split cuts: no concatenation made the tensor, and the source does not "
            "split it"
        )
    return known.like(x)


# Convolutions and pooling


def padding_of(side: PatternSide, data: Pattern, size: Sequence[SourceValue], strides: Sequence[SourceValue]) -> Any:
    """*Same* padding as (top, left, bottom, right), for a window of that size."""
    before, after = [], []
    for axis, (k, s) in enumerate(zip(size, strides), 2):
        if isinstance(s, int) and s == 1:
            small, large = (k - 1) // 2, k // 2
        else:
            # What the windows reach beyond the n elements, (ceil(n / s) - 1) s + k - n, if they do.
            total = attr.max(k - s + -data.shape[axis] % s, 0)
            small, large = total // 2, (total + 1) // 2
        low = side.semantics.odd_padding == "low"
        before.append(large if low else small)
        after.append(small if low else large)
    return (*before, *after)


def _by_mode(mode: SourceValue, same: Any) -> Any:
    """The padding of a mode, of which the number is known or is an expression."""
    if not isinstance(mode, int):
        return attr.Cond(mode == SAME, attr.Tuple(*same), _NONE)
    return same if mode == SAME else _NONE


_NONE = (0, 0, 0, 0)
"""*Valid* padding."""


def _window(
    side: PatternSide, term: RuleTerm, make: Any, operands: Sequence[Pattern], size: Sequence[SourceValue] | None,
    names: dict[str, Any], **fixed: Any,
) -> Pattern:  # fmt: skip
    """A call that moves a window over images, with strides and padding; of size ``pool_size`` where none is given."""
    for operand in term.operands:
        _take_rank(side, operand, 4)
    strides = [side.value(term, name) for name in ("stride_h", "stride_w")]
    sizes = [side.value(term, name) for name in names.get("pool_size", ())] if size is None else size
    names = {**names, "strides": ("stride_h", "stride_w")}
    known = isinstance(term.params["pad"], int) and all(value is not None for value in (*strides, *sizes))
    mode, rank = side.value(term, "pad"), {"ndim": 4} if side.is_source else {}
    if known or not side.is_source:
        padding = _by_mode(mode, padding_of(side, operands[0], sizes, strides))
        return side.call(make, term, operands, names, padding=padding, **rank, **fixed)
    made = side.call(make, term, operands, names, **rank, **fixed)
    strides = [made.strides[axis] if value is None else value for axis, value in enumerate(strides)]
    sizes = [made.pool_size[axis] if value is None else value for axis, value in enumerate(sizes)]
    same = padding_of(side, operands[0], sizes, strides)
    if mode is None:
        side.demand((made.padding == same) | (made.padding == _NONE))
        side.sides.bound[term.params["pad"]] = attr.Cond(made.padding == same, SAME, VALID)
    else:
        side.demand(made.padding == attr.Cond(mode == SAME, attr.Tuple(*same), _NONE))
    return made


def _conv2d(side: PatternSide, term: RuleTerm, x: Pattern, w: Pattern) -> Pattern:
    groups = x.shape[1] // w.shape[1]
    count = groups if side.semantics.groups or not side.is_source else 1
    layouts = {"data_layout": "NCHW", "kernel_layout": "OIHW", "out_layout": "", "out_dtype": ""}
    size = w.shape[2], w.shape[3]
    made = _window(side, term, op.Conv2D, [x, w], size, {}, dilation=(1, 1), groups=count, **layouts)
    stored = term.params.get("KERNEL_H"), term.params.get("KERNEL_W")
    if side.is_source and side.semantics.kernels == "stored" and all(size is not None for size in stored):
        side.demand(w.shape[2:] == stored)
    return made


def _pool(make: Any, kind: str) -> MakePattern:
    def build(side: PatternSide, term: RuleTerm, x: Pattern) -> Pattern:
        counted = {"count_include_pad": side.semantics.count_include_pad} if kind == "avg" else {}
        fixed = {"dilation": (1, 1), "ceil_mode": False, "layout": "NCHW", "out_layout": ""}
        return _window(side, term, make, [x], None, {"pool_size": ("kernel_h", "kernel_w")}, **counted, **fixed)

    return build


# Kernels


def _enlarged(side: PatternSide, term: RuleTerm, w: Pattern, size: Sequence[SourceValue]) -> Pattern:
    """A kernel in the middle of zeros."""
    smaller = side.sides.leaves.get(kernel(term.operands[0])) if not side.is_source else w
    if smaller is None:
        raise Inexpressible(f"{term.place}: it can't be told that the kernel is not larger than what it is enlarged to")
    widths = []
    for axis, large in enumerate(size, 2):
        small = w.shape[axis]
        side.demand(smaller.shape[axis] <= large)
        before = {
            "centre": large // 2 - small // 2 if side.semantics.odd_padding == "low" else (
                (large - 1) // 2 - (small - 1) // 2),
            "low": (large - small + 1) // 2,
            "high": (large - small) // 2,
        }[side.semantics.enlarge]  # fmt: skip
        widths.append((before, large - small - before))
    fixed = {"ndim": 4} if side.is_source else {}
    return op.Pad(w, pad_width=((0, 0), (0, 0), *widths), pad_value=0.0, pad_mode="constant", **fixed)


def _enlarge(side: PatternSide, term: RuleTerm, w: Pattern) -> Pattern:
    sizes = [side.value(term, name) for name in ("kernel_h", "kernel_w")]
    if any(size is None for size in sizes):
        raise Inexpressible(f"{term.place}: a variable size of an enlarged kernel can't be a demand of a source")
    return _enlarged(side, term, w, sizes)


def _enlarge_like(side: PatternSide, term: RuleTerm, w: Pattern, other: Pattern) -> Pattern:
    return _enlarged(side, term, w, (other.shape[2], other.shape[3]))


def _merge_gconv(side: PatternSide, term: RuleTerm, w: Pattern) -> Pattern:
    """The kernel of a convolution with ``count`` times fewer groups: each group's filters, and zeros beside them."""
    count = side.value(term, "count")
    user, position = side.sides.users.get(term, (None, 0))
    if side.is_source:
        raise Inexpressible(f"{term.place}: a kernel whose groups were merged can't be told from others in a source")
    if user is None or user.op != "conv2d" or position != 1 or not isinstance(count, int):
        raise Inexpressible(f"{term.place}: merge_gconv needs a number, and a convolution whose kernel it makes")
    if not side.semantics.groups:
        raise Inexpressible(f"{term.place}: merge_gconv is about several groups: choose groups=True")
    data, kernel_leaf = (side.sides.leaves.get(each) for each in (user.operands[0], term.operands[0]))
    if data is None or kernel_leaf is None:
        raise Inexpressible(f"{term.place}: the number of groups that are merged can't be told")
    groups = data.shape[1] // w.shape[1]
    side.demand(groups % count == 0)
    # (groups / count, count, filters of a group, 1, channels, …) times the identity over the two axes of count.
    outer = op.Reshape(
        w, newshape=attr.Tuple(groups // count, count, w.shape[0] // groups, 1, w.shape[1]) + w.shape[2:]
    )
    eye = op.Reshape(identity_matrix(count, w.dtype), newshape=(1, count, 1, count, 1, 1, 1))
    return op.Reshape(outer * eye, newshape=attr.Tuple(w.shape[0], count * w.shape[1]) + w.shape[2:])


OPERATORS: dict[str, MakePattern] = {
    "matmul": _matmul,
    "conv2d": _conv2d,
    "ewadd": _element_wise(op.Add),
    "ewmul": _element_wise(op.Multiply),
    "smul": _smul,
    "sigmoid": _activation(1),
    "relu": _activation(2),
    "tanh": _activation(3),
    "transpose": _transpose,
    "concat": _concat,
    "split": _split,
    "enlarge": _enlarge,
    "enlarge_like": _enlarge_like,
    "poolavg": _pool(op.AvgPool2D, "avg"),
    "poolmax": _pool(op.MaxPool2D, "max"),
    "merge_gconv": _merge_gconv,
    "Iconv": identity_kernel,
    "Imatmul": identity,
    "Iewmul": ones,
    "Cpool": average_kernel,
}
"""The function that makes the pattern of each operator."""
