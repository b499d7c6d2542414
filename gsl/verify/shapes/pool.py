"""Shape rules of pooling."""

from __future__ import annotations

from collections.abc import Callable

from gsl.spec.normalise import spatial
from gsl.verify.draft import Goal, NodeDraft
from gsl.verify.shapes.conv import by_letter, output_size, paddings, per_axis
from gsl.verify.solve import ShapeRule, Solver


def _data(s: Solver, draft: NodeDraft, goal: Goal, count: int) -> tuple[dict[str, int | None], str]:
    """The wanted sizes of the result, by letter, and the layout."""
    plain = "NC" + spatial(count)
    layout = s.attr(draft, "layout", ("N" + spatial(count) + "C", plain) if s.choices.rare() else (plain,))
    s.attr(draft, "out_layout")
    return by_letter(goal.sizes(count + 2), layout), layout


def window(count: int) -> ShapeRule:
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
        if not x.solved:
            shape = []
            for letter in layout:
                wanted = result[letter]
                if letter in letters:
                    i = letters.index(letter)
                    pads = padding[i] + padding[count + i]

                    def out(n: int, i: int = i, pads: int = pads) -> int:
                        return output_size(n, size[i], dilation[i], strides[i], pads, 0, False)

                    least = next((n for n in range(1, 40) if (out(n) == wanted if wanted else out(n) > 0)), 1)
                    wanted = least if wanted else least + s.choices.index(3)
                shape.append(s.size(wanted))
            s.solve(x, Goal(tuple(shape), goal.dtype))

    return rule


def adaptive(count: int) -> ShapeRule:
    """The rule of a pooling to a given size."""

    def rule(s: Solver, draft: NodeDraft, goal: Goal) -> None:
        result, layout = _data(s, draft, goal, count)
        wanted = [result[letter] for letter in spatial(count)]
        options = [tuple(w or v for w, v in zip(wanted, o)) for o in per_axis((1, 2, 3), count)]
        s.attr(draft, "output_size", dict.fromkeys(options))
        shape = [s.choices.size() if letter in spatial(count) else s.size(result[letter]) for letter in layout]
        s.solve(draft.operands[0], Goal(tuple(shape), goal.dtype))

    return rule


def whole(count: int) -> ShapeRule:
    """The rule of a pooling over all of the spatial axes."""

    def rule(s: Solver, draft: NodeDraft, goal: Goal) -> None:
        result, layout = _data(s, draft, goal, count)
        shape = [s.choices.size() if letter in spatial(count) else s.size(result[letter]) for letter in layout]
        s.solve(draft.operands[0], Goal(tuple(shape), goal.dtype))

    return rule


_MAKERS: dict[str, Callable[[int], ShapeRule]] = {"nn.": window, "nn.adaptive_": adaptive, "nn.global_": whole}
RULES: dict[str, ShapeRule] = {
    f"{prefix}{kind}_pool{count}d": make(count)
    for prefix, make in _MAKERS.items()
    for kind in ("max", "avg")
    for count in (1, 2, 3)
}
FLOAT_ONLY = frozenset(RULES)
