"""Shape rules of convolutions and poolings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import product, repeat
from operator import add
from typing import Any, Final, NamedTuple

from gsl.spec import TABLE
from gsl.spec.normalise import spatial
from gsl.verify.choices import SIZES, Dead
from gsl.verify.draft import Goal, NodeDraft, meet
from gsl.verify.solve import ShapeRule, Solver

KERNELS = (1, 3, 2, 4, 5, 7)
GROUPS = (1, 2, 3, 4, 6, 8)
STRIDES = (1, 2, 3)
DILATIONS = (1, 2, 3)
DRAWN: Final[Mapping[str, Sequence[int]]] = {
    "kernel_size": KERNELS, "groups": GROUPS, "strides": STRIDES, "dilation": DILATIONS,
}  # fmt: skip
"""The numbers in the attributes of convolutions that are drawn where nothing is demanded."""
MIXED = 4
"""So many of the values of an attribute are mixed among the axes."""
_LARGEST = 12
"""The largest size of an operand on which the padding depends."""
SLACK = (0, 1, 2, 3)
"""The number of elements by which an input is larger than the smallest that gives the result."""


@cache
def per_axis(values: tuple[int, ...], count: int) -> list[tuple[int, ...]]:
    """Tuples of values, those with equal ones first."""
    same = [(value,) * count for value in values]
    mixed = [found for found in product(values[:MIXED], repeat=count) if len(set(found)) > 1]
    return same + mixed


@cache
def paddings(count: int, most: int = 2) -> list[tuple[int, ...]]:
    """Padding before each axis and then after each: none, equal, and then asymmetric ones."""
    same = [(width,) * (2 * count) for width in range(most + 1)]
    sides = [(*before, *before) for before in per_axis(tuple(range(most + 1)), count) if len(set(before)) > 1]
    mixed: list[tuple[int, ...]]
    if count == 3:  # all of them would be too many
        mixed = [(0, 0, 0, 1, 1, 1), (1, 1, 1, 0, 0, 0), (0, 1, 2, 2, 1, 0), (1, 0, 0, 0, 0, 2), (0, 0, 1, 2, 2, 1)]
        mixed += [(0, 0, 0, 2, 2, 2), (2, 2, 2, 0, 0, 0), (0, 0, 0, 1, 0, 0), (0, 0, 0, 0, 2, 0), (0, 0, 0, 1, 2, 1)]
    else:
        mixed = [p for p in product(range(most + 1), repeat=2 * count) if p[:count] != p[count:]]
    return same + sides + mixed


class AxisWindow(NamedTuple):
    """A window that moves along one axis."""

    kernel: int
    dilation: int
    stride: int
    pads: int
    """The number of elements of padding, before and after the axis together."""
    extra: int = 0
    transposed: bool = False

    def result(self, size: int) -> int:
        """The size of the axis in the result; not positive where there is none."""
        reach = self.dilation * (self.kernel - 1) + 1
        if self.transposed:
            return (size - 1) * self.stride - self.pads + reach + self.extra
        return (size + self.pads - reach) // self.stride + 1 if size + self.pads >= reach else 0

    def fits(self, size: int | None, wanted: int | None) -> bool:
        """True if an axis gives the wanted result, as far as both are decided."""
        if size is not None:
            found = self.result(size)
            return found > 0 and (wanted is None or found == wanted)
        return wanted is None or any(True for _ in self.sizes(wanted))

    def sizes(self, wanted: int) -> Iterator[int]:
        """The sizes of the axis that give a result."""
        return (size for size in range(1, 40) if self.result(size) == wanted)

    def size(self, s: Solver, wanted: int | None) -> int:
        """A size of the axis that gives a result, the one that is wanted if there is one."""
        if wanted is not None:
            sizes = list(self.sizes(wanted))
            if not sizes:
                raise Dead("no size of the operand gives the result")
            return sizes[s.choices.index(len(sizes))]
        least = next(size for size in range(1, 99) if self.result(size) > 0)
        return least + SLACK[s.choices.index(len(SLACK))] + self.stride * (s.choices.size() // 3)


def windows(
    kernel: Sequence[int], dilation: Sequence[int], strides: Sequence[int], padding: Sequence[int],
    extra: Sequence[int] | None = None, transposed: bool = False,
) -> Iterator[AxisWindow]:  # fmt: skip
    """The windows along the spatial axes, by the attributes of a call."""
    pads = map(add, padding, padding[len(kernel) :])
    return map(AxisWindow, kernel, dilation, strides, pads, extra or repeat(0), repeat(transposed))


def _given_sizes(s: Solver, draft: NodeDraft, name: str, count: int) -> list[int | None]:
    is_given, value = s.given_attr(draft, name)
    return list(value) if is_given and isinstance(value, tuple) and len(value) == count else [None] * count


def _layout(s: Solver, draft: NodeDraft, name: str, plain: str, more: Sequence[str]) -> str:
    """A layout: mostly the plain one, where that is allowed."""
    if s.choices.rare():
        return str(s.attr(draft, name, (*more, plain)))
    try:
        return str(s.attr(draft, name, (plain,)))
    except Dead:
        return str(s.attr(draft, name, more))


def _orders(count: int) -> tuple[str, Sequence[str], str, Sequence[str], str, Sequence[str]]:
    letters = spatial(count)
    data, kernel, transposed = "NC" + letters, "OI" + letters, "IO" + letters
    return data, ("N" + letters + "C",), kernel, ("O" + letters + "I", letters + "IO"), transposed, ("OI" + letters,)


def convolution(count: int, transposed: bool) -> ShapeRule:
    """The rule of a convolution with so many spatial axes."""
    plain, others, kernel_plain, kernel_others, transposed_plain, transposed_others = _orders(count)
    if transposed:
        kernel_plain, kernel_others = transposed_plain, transposed_others

    def rule(s: Solver, draft: NodeDraft, goal: Goal) -> None:
        x, w = draft.operand(0), draft.operand(1)
        layout = _layout(s, draft, "data_layout", plain, others)
        order = _layout(s, draft, "kernel_layout", kernel_plain, kernel_others)
        _layout(s, draft, "out_layout", "", (plain, *others))
        s.attr(draft, "out_dtype")
        if draft.attrs["out_layout"] == layout:
            draft.attrs["out_layout"] = ""
        result = by_letter(goal.sizes(count + 2), draft.attrs["out_layout"] or layout)
        if not x.is_leaf:
            s.solve(x, Goal(tuple([result["N"] if letter == "N" else None for letter in layout])))
        if not w.is_leaf:
            s.solve(w, Goal(None, None, len(order)))
        data = known(s, x, layout)
        weight = known(s, w, order)
        data["N"] = meet(data["N"], result["N"])
        dtype = x.dtype if x.solved else w.dtype if w.solved else goal.dtype
        if s.demands.equate(draft, x, "shape") and not draft.attrs["out_layout"]:
            for letter in layout:
                data[letter] = result[letter] = s.alike(draft, letter, meet(data.get(letter), result.get(letter)))
        _channels(s, draft, data, weight, result, transposed)
        letters = spatial(count)
        kernel = [meet(weight.get(c), k) for c, k in zip(letters, _given_sizes(s, draft, "kernel_size", count))]
        draft.attrs["kernel_size"] = _kernel(s, draft, kernel, data, result, letters)
        for letter, size in zip(letters, draft.attrs["kernel_size"]):
            weight[letter] = size
        if not w.solved:
            w.sizes = [weight[letter] for letter in order]  # padding may depend on them
        _window(s, draft, data, result, letters, transposed)
        data = {letter: s.alike(draft, letter, data.get(letter)) for letter in layout}
        s.solve(x, Goal(tuple([data[letter] for letter in layout]), dtype))
        s.solve(w, Goal(tuple([weight[letter] for letter in order]), x.dtype))

    return rule


def by_letter(shape: Sequence[int | None], layout: str) -> dict[str, int | None]:
    """The sizes of a shape by the letters of a layout."""
    return dict(zip(layout, shape))


def known(s: Solver, draft: NodeDraft, layout: str) -> dict[str, int | None]:
    """The known sizes of an operand, by letter. Dead where it has another rank."""
    if draft.solved:
        return by_letter(Goal(draft.dims).sizes(len(layout)), layout)
    wanted = s.wanted(draft, Goal(None, None, len(layout)))
    return by_letter(wanted.sizes(len(layout)), layout)


def _kernel(
    s: Solver,
    draft: NodeDraft,
    kernel: Sequence[int | None],
    data: dict[str, Any],
    result: dict[str, Any],
    letters: str,
) -> tuple[int, ...]:
    """The sizes of the kernel: those that are known, and others that give the result, as far as that can be told."""
    free = per_axis(KERNELS, len(letters))
    options = [tuple(k if k is not None else v for k, v in zip(kernel, sizes)) for sizes in free]
    window = [s.given_attr(draft, name)[1] for name in ("strides", "dilation", "padding")]

    def fits(sizes: tuple[int, ...]) -> bool:
        if any(not isinstance(given, tuple) for given in window):
            return all((data.get(c) or 9) + 4 >= k for c, k in zip(letters, sizes))
        strides, dilation, padding = window
        return _all_fit(data, result, letters, windows(sizes, dilation, strides, padding))

    fit = [sizes for sizes in options if draft.op in _TRANSPOSED or fits(sizes)]
    found: tuple[int, ...] = s.attr(draft, "kernel_size", dict.fromkeys(fit))
    return found


def _channels(
    s: Solver, draft: NodeDraft, data: dict[str, Any], weight: dict[str, Any], result: dict[str, Any], transposed: bool
) -> None:
    """Groups and channels. The kernel is (O, I / groups, …), of a transposed convolution (I, O / groups, …)."""
    inner, outer = ("O", "I") if transposed else ("I", "O")  # of a group, and of all
    of_inner, of_outer = (result, data) if transposed else (data, result)
    is_given, channels = s.given_attr(draft, "channels")
    if is_given:
        result["C"] = meet(result.get("C"), channels)

    def fits(groups: int) -> bool:
        total, whole = of_inner.get("C"), meet(of_outer.get("C"), weight.get(outer))
        each = weight.get(inner)
        if total is not None and (total % groups or (each is not None and each * groups != total)):
            return False
        return whole is None or whole % groups == 0

    groups = s.attr(draft, "groups", GROUPS, fits)
    x = draft.operand(0)
    if not x.solved:  # its channels may follow from the groups
        data["C"] = meet(data["C"], known(s, x, draft.attrs["data_layout"])["C"])
    whole = meet(of_outer.get("C"), weight.get(outer))
    if whole is None:
        whole = groups * (s.choices.size() if groups in GROUPS[:3] else 1 + s.choices.index(2))
        if not transposed and s.demands.reads(draft, "shape"):
            whole = _allowed_channels(s, draft, groups, whole)
    total = of_inner.get("C")
    each = weight.get(inner) if total is None else total // groups
    if each is None:  # a group for each channel, now and then
        each = 1 if groups > 1 and s.choices.index(3) == 1 else s.choices.size()
    if (total is not None and total != each * groups) or whole % groups:
        raise Dead("the channels do not fit the groups")
    weight[inner], weight[outer] = meet(weight.get(inner), each), whole
    of_inner["C"], of_outer["C"] = each * groups, whole
    draft.attrs["channels"] = result["C"]


def _allowed_channels(s: Solver, draft: NodeDraft, groups: int, wish: int) -> int:
    """A number of channels of the result that the conditions on its shape allow, if there is one."""
    layout, before = draft.attrs["out_layout"] or draft.attrs["data_layout"], draft.sizes
    named = (size for size in s.demands.sizes if size % groups == 0)
    for channels in (wish, *(groups * size for size in range(1, SIZES + 1)), *named):
        draft.sizes = [channels if letter == "C" else None for letter in layout]
        if s.demands.holds(draft):
            wish = channels
            break
    draft.sizes = before
    return wish


def _window(
    s: Solver, draft: NodeDraft, data: dict[str, Any], result: dict[str, Any], letters: str, transposed: bool
) -> None:
    """Dilation, strides and padding, and the sizes of the operand that give the result that is wanted."""
    count = len(letters)
    kernel = draft.attrs["kernel_size"]
    dilation = s.attr(draft, "dilation", _dilations(s, draft, data, letters, transposed))
    strides = s.attr(draft, "strides", _strides(s, draft, data, dilation, letters))
    extra = s.attr(draft, "output_padding", per_axis((0, 1), count), _below(strides, dilation)) if transposed else None

    def fits(padding: tuple[int, ...]) -> bool:
        return _all_fit(data, result, letters, windows(kernel, dilation, strides, padding, extra, transposed))

    follows = (draft, "padding") in s.demands.sources and not s.given_attr(draft, "padding")[0]
    if follows and not transposed and not draft.operand(0).solved:
        _sizes_before_padding(s, draft, data, result, letters)
    padding = s.attr(draft, "padding", paddings(count), fits)
    for letter, window in zip(letters, windows(kernel, dilation, strides, padding, extra, transposed)):
        if data.get(letter) is None:
            before = s.before(draft, letter)
            if before is not None and s.choices.again() and window.fits(before, result.get(letter)):
                data[letter] = before
            else:
                data[letter] = window.size(s, result.get(letter))


def _all_fit(data: dict[str, Any], result: dict[str, Any], letters: str, windows: Iterable[AxisWindow]) -> bool:
    """True if the sizes of the operand give those of the result, as far as they are decided."""
    return all(window.fits(data.get(c), result.get(c)) for c, window in zip(letters, windows))


def _sizes_before_padding(
    s: Solver, draft: NodeDraft, data: dict[str, Any], result: dict[str, Any], letters: str
) -> None:
    """Decide the sizes of the operand where the padding follows from them, so that the result is as it is wanted."""
    x, layout = draft.operand(0), draft.attrs["data_layout"]
    kernel, dilation, strides = (draft.attrs[name] for name in ("kernel_size", "dilation", "strides"))
    for i, letter in enumerate(letters):
        if data.get(letter) is not None:
            continue
        first = s.alike(draft, letter)
        for more in range(_LARGEST):
            size = (first - 1 + more) % _LARGEST + 1
            x.sizes = [{**data, letter: size}.get(c) or (1 if c in letters else None) for c in layout]
            is_given, padding = s.given_attr(draft, "padding")
            if not is_given or list(windows(kernel, dilation, strides, padding))[i].fits(size, result.get(letter)):
                data[letter] = size
                break
    x.sizes = [data.get(c) for c in layout]


def _dilations(
    s: Solver, draft: NodeDraft, data: dict[str, Any], letters: str, transposed: bool
) -> list[tuple[int, ...]]:
    """Dilations; beside an earlier convolution of the same operand those, if there are any, that read other elements
    than it does, and give a result of its size."""
    options = per_axis(DILATIONS, len(letters))
    other = _beside(s, draft)
    strides, padding = (s.given_attr(draft, name)[1] for name in ("strides", "padding"))
    if other is None or transposed or strides is None or padding is None:
        return options
    kernel, before = draft.attrs["kernel_size"], other.attrs["dilation"]

    def differs(dilation: tuple[int, ...]) -> bool:
        return any(k > 1 and d != b for k, d, b in zip(kernel, dilation, before))

    alike = [d for d in options if _gives_same(other, data, letters, windows(kernel, d, strides, padding))]
    return list(filter(differs, alike)) or options


def _strides(
    s: Solver, draft: NodeDraft, data: dict[str, Any], dilation: tuple[int, ...], letters: str
) -> list[tuple[int, ...]]:
    """Strides; now and then only those that give results of the size of an earlier convolution of the same operand."""
    options = per_axis(STRIDES, len(letters))
    other = _beside(s, draft)
    is_given, padding = s.given_attr(draft, "padding")
    if other is None or not is_given or s.choices.again():
        return options
    kernel, before = draft.attrs["kernel_size"], other.attrs["strides"]
    alike = [st for st in options if _gives_same(other, data, letters, windows(kernel, dilation, st, padding))]
    return [strides for strides in alike if strides != before] or options


def _beside(s: Solver, draft: NodeDraft) -> NodeDraft | None:
    """An earlier convolution of the same operand, if its data have the same layout."""
    same = (d for d in s.skeleton.drafts if d.solved and d.op == draft.op and d.operands[0] is draft.operands[0])
    other = next(same, None)
    is_alike = other is not None and other.attrs["data_layout"] == draft.attrs["data_layout"]
    return other if is_alike else None


def _gives_same(other: NodeDraft, data: dict[str, Any], letters: str, windows: Iterable[AxisWindow]) -> bool:
    """True if the sizes of the operand give those of the result of another convolution."""
    result = by_letter(other.dims, other.attrs["out_layout"] or other.attrs["data_layout"])
    return all(window.result(data[c] or 1) == result[c] for c, window in zip(letters, windows))


def _below(strides: tuple[int, ...], dilation: tuple[int, ...]) -> Any:
    return lambda extra: all(e < max(s, d) for e, s, d in zip(extra, strides, dilation))


RULES: dict[str, ShapeRule] = {
    f"nn.conv{count}d" + "_transpose" * transposed: convolution(count, transposed)
    for count in (1, 2, 3)
    for transposed in (False, True)
}


def packed_conv2d(s: Solver, draft: NodeDraft, goal: Goal) -> None:
    """As a plain convolution, of which the other operands follow."""
    s.attr(draft, "activation")
    s.attr(draft, "precision")
    x, w, *others = draft.operands
    plain = NodeDraft(draft.number)
    plain.op, plain.operands, plain.patterns = "nn.conv2d", [x, w], draft.patterns
    RULES["nn.conv2d"](s, plain, goal)
    if any(plain.attrs[name] != default for name, default in _PLAIN.items()):
        raise Dead("a packed convolution has the plain layouts")
    draft.attrs.update({name: plain.attrs[name] for name in ("strides", "padding", "dilation", "groups")})
    data, weight = draft.operand(0).dims, draft.operand(1).dims
    dilation, strides, padding = (draft.attrs[name] for name in ("dilation", "strides", "padding"))
    spatial_axes = zip(data[2:], windows(weight[2:], dilation, strides, padding))
    sizes = [window.result(size) for size, window in spatial_axes]
    for name, operand in zip(TABLE[str(draft.op)].operands[2:], others):
        shape = (weight[0],) if name == "bias" else (data[0], weight[0], *sizes)
        s.solve(operand, Goal(shape, draft.operand(0).dtype))


_PLAIN = {"data_layout": "NCHW", "kernel_layout": "OIHW", "out_layout": ""}
_TRANSPOSED = frozenset(name for name in RULES if name.endswith("_transpose"))
RULES.update(dict.fromkeys(("packed.conv2d", "packed.conv2d_add"), packed_conv2d))


# ---------------------------------------------------------------- poolings


def _data(s: Solver, draft: NodeDraft, goal: Goal, count: int) -> tuple[dict[str, int | None], str]:
    """The wanted sizes of the result, by letter, and the layout."""
    plain = "NC" + spatial(count)
    layout = s.attr(draft, "layout", ("N" + spatial(count) + "C", plain) if s.choices.rare() else (plain,))
    s.attr(draft, "out_layout")
    return by_letter(goal.sizes(count + 2), layout), layout


def pooling(count: int) -> ShapeRule:
    """The rule of a pooling by windows."""
    letters = spatial(count)

    def rule(s: Solver, draft: NodeDraft, goal: Goal) -> None:
        result, layout = _data(s, draft, goal, count)
        x = draft.operand(0)
        size = s.attr(draft, "pool_size", per_axis((2, 3, 1), count))
        strides = s.attr(draft, "strides", per_axis((1, 2, 3), count))
        average = "avg" in str(draft.op)
        dilation = s.attr(draft, "dilation", [(1,) * count] if average else per_axis((1, 2), count))
        s.attr(draft, "ceil_mode", None if s.choices.rare() else (False,))
        if average:
            s.attr(draft, "count_include_pad")
        padding = s.attr(draft, "padding", paddings(count, 1))
        if x.solved:
            return
        moves = dict(zip(letters, windows(size, dilation, strides, padding)))
        shape = []
        for letter in layout:
            wanted = result[letter]
            if letter in moves:
                least = next((n for n in range(1, 40) if moves[letter].fits(n, wanted)), 1)
                wanted = least if wanted else least + s.choices.index(3)
            shape.append(s.size(wanted))
        s.solve(x, Goal(tuple(shape), goal.dtype))

    return rule


def whole(count: int) -> ShapeRule:
    """The rule of a pooling over all of the spatial axes, or to a given size."""

    def rule(s: Solver, draft: NodeDraft, goal: Goal) -> None:
        result, layout = _data(s, draft, goal, count)
        letters = spatial(count)
        if "output_size" in TABLE[str(draft.op)].attrs:
            options = [tuple(result[c] or v for c, v in zip(letters, o)) for o in per_axis((1, 2, 3), count)]
            s.attr(draft, "output_size", dict.fromkeys(options))
        shape = [s.choices.size() if letter in letters else s.size(result[letter]) for letter in layout]
        s.solve(draft.operands[0], Goal(tuple(shape), goal.dtype))

    return rule


_MAKERS: dict[str, Callable[[int], ShapeRule]] = {"nn.": pooling, "nn.adaptive_": whole, "nn.global_": whole}
RULES |= {
    f"{prefix}{kind}_pool{count}d": make(count)
    for prefix, make in _MAKERS.items()
    for kind in ("max", "avg")
    for count in (1, 2, 3)
}
FLOAT_ONLY = frozenset(RULES)
