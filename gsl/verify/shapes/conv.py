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
from gsl.verify.shapes.letters import dtype_of_result
from gsl.verify.shapes.linear import wider
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


def windows(attrs: Mapping[str, Any], kernel: Sequence[int], transposed: bool = False) -> list[AxisWindow]:
    """The windows along the spatial axes, by the attributes of a call and the sizes of its kernel."""
    padding, extra = attrs["padding"], attrs.get("output_padding") or (0,) * len(kernel)
    pads = map(add, padding, padding[len(kernel) :])
    return list(map(AxisWindow, kernel, attrs["dilation"], attrs["strides"], pads, extra, repeat(transposed)))


Sizes = dict[str, "int | None"]
"""Sizes by the letters of a layout."""


def by_letter(shape: Sequence[int | None], layout: str) -> Sizes:
    """The sizes of a shape by the letters of a layout."""
    return dict(zip(layout, shape))


def known(s: Solver, draft: NodeDraft, layout: str) -> Sizes:
    """The known sizes of an operand, by letter. Dead where it has another rank."""
    goal = Goal(draft.dims) if draft.solved else s.wanted(draft, Goal(None, None, len(layout)))
    return by_letter(goal.sizes(len(layout)), layout)


def layout_of(s: Solver, draft: NodeDraft, name: str, plain: str, *others: str) -> str:
    """A layout: mostly the plain one, where that is allowed."""
    if s.choices.index(4, ("layout", name)) == 3:
        return str(s.attr(draft, name, (*others, plain)))
    try:
        return str(s.attr(draft, name, (plain,)))
    except Dead:
        return str(s.attr(draft, name, others))


def data_layouts(s: Solver, draft: NodeDraft, name: str, plain: str, channels_last: str) -> str:
    """The layout of the data. That of the result is decided, too."""
    layout = layout_of(s, draft, name, plain, channels_last)
    if layout_of(s, draft, "out_layout", "", plain, channels_last) == layout:
        draft.attrs["out_layout"] = ""
    return layout


class ConvolutionDraft:
    """A convolution in the making: what is decided of its sizes, by the letters of its axes.

    The kernel is (O, I / groups, …), of a transposed convolution (I, O / groups, …).
    """

    def __init__(self, s: Solver, draft: NodeDraft, count: int, transposed: bool) -> None:
        self.s = s
        self.draft = draft
        self.letters = spatial(count)
        self.transposed = transposed
        self.data: Sizes = {}
        self.weight: Sizes = {}
        self.result: Sizes = {}

    def decide(self, goal: Goal) -> None:
        """Decide the attributes and the operands."""
        s, draft, letters = self.s, self.draft, self.letters
        x, w = draft.operand(0), draft.operand(1)
        layout, order = self._layouts()
        self.result = by_letter(goal.sizes(len(layout)), draft.attrs["out_layout"] or layout)
        if not x.is_leaf:
            s.solve(x, Goal(tuple([self.result["N"] if letter == "N" else None for letter in layout])))
        if not w.is_leaf:
            s.solve(w, Goal(None, None, len(order)))
        self.data = known(s, x, layout)
        self.weight = known(s, w, order)
        self.data["N"] = meet(self.data["N"], self.result["N"])
        dtype = x.dtype if x.solved else w.dtype if w.solved else goal.dtype
        if s.demands.equate(draft, x, "shape") and not draft.attrs["out_layout"]:
            for letter in layout:
                size = s.alike(draft, letter, meet(self.data.get(letter), self.result.get(letter)))
                self.data[letter] = self.result[letter] = size
        self._channels()
        self.weight.update(zip(letters, self._kernel()))
        if not w.solved:
            w.sizes = [self.weight[letter] for letter in order]  # padding may depend on them
        self._window()
        self.data = {letter: s.alike(draft, letter, self.data.get(letter)) for letter in layout}
        s.solve(x, Goal(tuple([self.data[letter] for letter in layout]), dtype))
        s.solve(w, Goal(tuple([self.weight[letter] for letter in order]), x.dtype))
        dtype_of_result(s, draft, "out_dtype", wider, goal)

    def _layouts(self) -> tuple[str, str]:
        """The layouts of the data and of the kernel."""
        data, channels_last = "NC" + self.letters, "N" + self.letters + "C"
        kernel, others = "OI" + self.letters, ["O" + self.letters + "I", self.letters + "IO"]
        if self.transposed:
            kernel, others = "IO" + self.letters, [kernel]
        layout = data_layouts(self.s, self.draft, "data_layout", data, channels_last)
        return layout, layout_of(self.s, self.draft, "kernel_layout", kernel, *others)

    def _windows(self, kernel: Sequence[int], **attrs: Any) -> list[AxisWindow]:
        """The windows of a kernel, by the attributes that are decided and by others."""
        return windows({**self.draft.attrs, **attrs}, kernel, self.transposed)

    def _fit(self, windows: Iterable[AxisWindow]) -> bool:
        """True if the sizes of the operand give those of the result, as far as they are decided."""
        return all(w.fits(self.data.get(c), self.result.get(c)) for c, w in zip(self.letters, windows))

    def _kernel(self) -> tuple[int, ...]:
        """The sizes of the kernel: those that are known, and others that give the result, as far as that can be
        told."""
        s, draft, count = self.s, self.draft, len(self.letters)
        is_given, given = s.given_attr(draft, "kernel_size")
        sizes = given if is_given and isinstance(given, tuple) and len(given) == count else (None,) * count
        kernel = [meet(self.weight.get(c), size) for c, size in zip(self.letters, sizes)]
        options = [
            tuple(k if k is not None else v for k, v in zip(kernel, free)) for free in per_axis(KERNELS, count)
        ]
        window = {name: s.given_attr(draft, name)[1] for name in ("strides", "dilation", "padding")}

        def fits(sizes: tuple[int, ...]) -> bool:
            if any(not isinstance(value, tuple) for value in window.values()):
                return all((self.data.get(c) or 9) + 4 >= k for c, k in zip(self.letters, sizes))
            return self._fit(self._windows(sizes, **window))

        fit = [sizes for sizes in options if self.transposed or fits(sizes)]
        found: tuple[int, ...] = s.attr(draft, "kernel_size", dict.fromkeys(fit))
        return found

    def _channels(self) -> None:
        """Groups and channels."""
        s, draft, weight = self.s, self.draft, self.weight
        inner, outer = ("O", "I") if self.transposed else ("I", "O")  # of a group, and of all
        of_inner, of_outer = (self.result, self.data) if self.transposed else (self.data, self.result)
        is_given, channels = s.given_attr(draft, "channels")
        if is_given:
            self.result["C"] = meet(self.result.get("C"), channels)

        def fits(groups: int) -> bool:
            total, whole = of_inner.get("C"), meet(of_outer.get("C"), weight.get(outer))
            each = weight.get(inner)
            if total is not None and (total % groups or (each is not None and each * groups != total)):
                return False
            return whole is None or whole % groups == 0

        groups = s.attr(draft, "groups", GROUPS, fits)
        x = draft.operand(0)
        if not x.solved:  # its channels may follow from the groups
            self.data["C"] = meet(self.data["C"], known(s, x, draft.attrs["data_layout"])["C"])
        whole = meet(of_outer.get("C"), weight.get(outer))
        if whole is None:
            whole = groups * (s.choices.size() if groups in GROUPS[:3] else 1 + s.choices.index(2))
            if not self.transposed and s.demands.reads(draft, "shape"):
                whole = self._allowed_channels(groups, whole)
        total = of_inner.get("C")
        each = weight.get(inner) if total is None else total // groups
        if each is None:  # a group for each channel, now and then
            each = 1 if groups > 1 and s.choices.index(3) == 1 else s.choices.size()
        if (total is not None and total != each * groups) or whole % groups:
            raise Dead("the channels do not fit the groups")
        weight[inner], weight[outer] = meet(weight.get(inner), each), whole
        of_inner["C"], of_outer["C"] = each * groups, whole
        draft.attrs["channels"] = self.result["C"]

    def _allowed_channels(self, groups: int, wish: int) -> int:
        """A number of channels of the result that the conditions on its shape allow, if there is one."""
        s, draft = self.s, self.draft
        layout, before = draft.attrs["out_layout"] or draft.attrs["data_layout"], draft.sizes
        named = (size for size in s.demands.sizes if size % groups == 0)
        for channels in (wish, *(groups * size for size in range(1, SIZES + 1)), *named):
            draft.sizes = [channels if letter == "C" else None for letter in layout]
            if s.demands.holds(draft):
                wish = channels
                break
        draft.sizes = before
        return wish

    def _window(self) -> None:
        """Dilation, strides and padding, and the sizes of the operand that give the result that is wanted."""
        s, draft, count = self.s, self.draft, len(self.letters)
        kernel = draft.attrs["kernel_size"]
        dilation = s.attr(draft, "dilation", self._dilations(kernel))
        strides = s.attr(draft, "strides", self._strides(kernel))
        if self.transposed:
            s.attr(draft, "output_padding", per_axis((0, 1), count), _below(strides, dilation))
        follows = (draft, "padding") in s.demands.sources and not s.given_attr(draft, "padding")[0]
        if follows and not self.transposed and not draft.operand(0).solved:
            self._sizes_before_padding(kernel)
        s.attr(draft, "padding", paddings(count), lambda padding: self._fit(self._windows(kernel, padding=padding)))
        for letter, window in zip(self.letters, self._windows(kernel)):
            if self.data.get(letter) is None:
                wanted, before = self.result.get(letter), s.before(draft, letter)
                is_again = before is not None and s.choices.again() and window.fits(before, wanted)
                self.data[letter] = before if is_again else window.size(s, wanted)

    def _sizes_before_padding(self, kernel: Sequence[int]) -> None:
        """Decide the sizes of the operand where the padding follows from them, so that the result is as it is
        wanted."""
        s, draft, data = self.s, self.draft, self.data
        x, layout = draft.operand(0), draft.attrs["data_layout"]
        for i, letter in enumerate(self.letters):
            if data.get(letter) is not None:
                continue
            first = s.alike(draft, letter)
            for more in range(_LARGEST):
                size = (first - 1 + more) % _LARGEST + 1
                x.sizes = [{**data, letter: size}.get(c) or (1 if c in self.letters else None) for c in layout]
                is_given, padding = s.given_attr(draft, "padding")
                if not is_given or self._windows(kernel, padding=padding)[i].fits(size, self.result.get(letter)):
                    data[letter] = size
                    break
        x.sizes = [data.get(c) for c in layout]

    def _dilations(self, kernel: Sequence[int]) -> list[tuple[int, ...]]:
        """Dilations; beside an earlier convolution of the same operand those, if there are any, that read other
        elements than it does, and give a result of its size."""
        options = per_axis(DILATIONS, len(kernel))
        other = self._beside()
        given = {name: self.s.given_attr(self.draft, name)[1] for name in ("strides", "padding")}
        if other is None or self.transposed or None in given.values():
            return options
        before = other.attrs["dilation"]

        def differs(dilation: tuple[int, ...]) -> bool:
            return any(k > 1 and d != b for k, d, b in zip(kernel, dilation, before))

        alike = [d for d in options if self._gives_same(other, self._windows(kernel, dilation=d, **given))]
        return list(filter(differs, alike)) or options

    def _strides(self, kernel: Sequence[int]) -> list[tuple[int, ...]]:
        """Strides; now and then only those that give results of the size of an earlier convolution of the same
        operand."""
        options = per_axis(STRIDES, len(kernel))
        other = self._beside()
        is_given, padding = self.s.given_attr(self.draft, "padding")
        if other is None or not is_given or self.s.choices.again():
            return options
        before = other.attrs["strides"]
        alike = [st for st in options if self._gives_same(other, self._windows(kernel, strides=st, padding=padding))]
        return [strides for strides in alike if strides != before] or options

    def _beside(self) -> NodeDraft | None:
        """An earlier convolution of the same operand, if its data have the same layout."""
        draft = self.draft
        earlier = (d for d in self.s.skeleton.drafts if d.solved and d.op == draft.op)
        other = next((d for d in earlier if d.operands[0] is draft.operands[0]), None)
        is_alike = other is not None and other.attrs["data_layout"] == draft.attrs["data_layout"]
        return other if is_alike else None

    def _gives_same(self, other: NodeDraft, windows: Iterable[AxisWindow]) -> bool:
        """True if the sizes of the operand give those of the result of another convolution."""
        result = by_letter(other.dims, other.attrs["out_layout"] or other.attrs["data_layout"])
        return all(window.result(self.data[c] or 1) == result[c] for c, window in zip(self.letters, windows))


def _below(strides: tuple[int, ...], dilation: tuple[int, ...]) -> Any:
    return lambda extra: all(e < max(s, d) for e, s, d in zip(extra, strides, dilation))


def convolution(count: int, transposed: bool) -> ShapeRule:
    """The rule of a convolution with so many spatial axes."""
    return lambda s, draft, goal: ConvolutionDraft(s, draft, count, transposed).decide(goal)


RULES: dict[str, ShapeRule] = {
    f"nn.conv{count}d" + "_transpose" * transposed: convolution(count, transposed)
    for count in (1, 2, 3)
    for transposed in (False, True)
}
_PLAIN = {"data_layout": "NCHW", "kernel_layout": "OIHW", "out_layout": ""}


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
    sizes = [window.result(size) for size, window in zip(data[2:], windows(draft.attrs, weight[2:]))]
    for name, operand in zip(TABLE[str(draft.op)].operands[2:], others):
        shape = (weight[0],) if name == "bias" else (data[0], weight[0], *sizes)
        s.solve(operand, Goal(shape, draft.operand(0).dtype))


RULES.update(dict.fromkeys(("packed.conv2d", "packed.conv2d_add"), packed_conv2d))


# ---------------------------------------------------------------- poolings


def _data(s: Solver, draft: NodeDraft, goal: Goal, count: int) -> tuple[Sizes, str]:
    """The wanted sizes of the result, by letter, and the layout."""
    layout = data_layouts(s, draft, "layout", "NC" + spatial(count), "N" + spatial(count) + "C")
    return by_letter(goal.sizes(count + 2), draft.attrs["out_layout"] or layout), layout


def pooling(count: int) -> ShapeRule:
    """The rule of a pooling by windows."""
    letters = spatial(count)

    def rule(s: Solver, draft: NodeDraft, goal: Goal) -> None:
        result, layout = _data(s, draft, goal, count)
        x = draft.operand(0)
        size = s.attr(draft, "pool_size", per_axis((2, 3, 1), count))
        s.attr(draft, "strides", per_axis((1, 2, 3), count))
        average = "avg" in str(draft.op)
        s.attr(draft, "dilation", [(1,) * count] if average else per_axis((1, 2), count))
        s.attr(draft, "ceil_mode")
        if average:
            s.attr(draft, "count_include_pad")
        s.attr(draft, "padding", paddings(count, 1))
        if x.solved:
            return
        moves = dict(zip(letters, windows(draft.attrs, size)))
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
