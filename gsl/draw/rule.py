"""A rule as a drawing: its source, its target, and the conditions between them."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gsl import pat
from gsl.draw.drawing import Drawing
from gsl.draw.figure import Box, Chain, Diagram, Edge, Figure, Nest, Paint, Panel, Style
from gsl.draw.labels import FRAMES, STYLES, clipped, draw_outputs, wrapped
from gsl.graph import CONST, INPUT, PARAM, TUPLE
from gsl.pat import Pattern
from gsl.pat.text import condition_text, pattern_names, written
from gsl.pat.typed import KeywordText
from gsl.pat.variadic import references
from gsl.walk import reached

if TYPE_CHECKING:
    from gsl.rewrite.subst import Subst

WIDTH = 46
"""The largest number of characters of a line of text in a drawing."""
_CHOICE = Style("#fff8e6", "#b59b5b", rounded=True, dashed=True)
_KNOWN = Style("#f2f2f2", "#9a9a9a", rounded=True)
_NEW = Style("#e3f1e6", "#5f8f6b")
_LEAVES: Mapping[str, Style] = {
    "Input": STYLES[INPUT], "Param": replace(STYLES[PARAM], small=False), "Const": replace(STYLES[CONST], small=False),
    "Wildcard": STYLES[INPUT], "Variable": STYLES[INPUT],
}  # fmt: skip


def rule_drawing(rule: Subst) -> Drawing:
    """The drawing of a rule: source and target side by side, conditions below the source."""
    target = rule.target.outputs
    names = drawn_names(rule)
    if target:
        right = RuleSide(names, _told(rule), target, known=frozenset(rule.plan.patterns)).diagram()
    else:
        function = getattr(rule.target.callable, "__name__", "<lambda>")
        text = "made by a function" if function == "<lambda>" else f"made by {function}"
        right = Diagram((Box("function", (text,), _CHOICE),))
    return Drawing(Figure(rule.name, (source_panel(rule, names), Panel("target", right))))


def drawn_names(rule: Subst) -> Mapping[Pattern, str]:
    """A name for every pattern of a rule, those included that only conditions speak of."""
    related = [pattern for constraint in rule.source.constraints for pattern in constraint.patterns()]
    return pattern_names((*rule.source.outputs, *related), rule.target.outputs)


def _told(rule: Subst) -> frozenset[Pattern]:
    """The patterns whose names are written somewhere else in the drawing, so that their boxes have to tell them."""
    told: set[Pattern] = {p for c in rule.source.constraints if not isinstance(c, pat.Use) for p in c.patterns()}
    told.update(pattern for guard in rule.source.guards for pattern in references(guard))
    known = frozenset(rule.plan.patterns)
    for pattern in pat.walk(*known, *rule.target.outputs):
        told.update(used for expression in pattern.expressions() for used in references(expression))
        match pattern:
            case pat.Like():
                told.add(pattern.of)
            case pat.Instance():
                told.update((pattern.template, pattern.variadic))
            case pat.Match():
                told.add(pattern.alternative)
        if pattern not in known:
            told.update(child for child in pattern.children() if child in known)
    return frozenset((*told, *(output for output in rule.target.outputs if output in known)))


def source_panel(rule: Subst, names: Mapping[Pattern, str], paint: Mapping[Pattern, Paint] | None = None) -> Panel:
    """The source of a rule as a diagram, with its conditions below; ``paint`` marks some patterns."""
    source = rule.source
    uses = [constraint for constraint in source.constraints if isinstance(constraint, pat.Use)]
    diagram = RuleSide(names, _told(rule), source.outputs, uses, paint=paint).diagram()
    others = [*(c for c in source.constraints if not isinstance(c, pat.Use)), *source.guards, *source.predicates]
    lines = [line for one in others for line in wrapped(f"where {_condition(one, names)}", 2 * WIDTH)]
    if source.extern_use is not None:
        lines.append(f"each inner node is{'' if source.extern_use else ' not'} used elsewhere")
    return Panel("source", diagram, tuple(lines))


def _condition(condition: Any, names: Mapping[Pattern, str]) -> str:
    """The text of a condition, in which patterns have the names of their boxes."""
    match condition:
        case pat.Unique():
            return f"{names[condition.pattern]}.uniq()"
        case pat.ExternUse():
            return f"{names[condition.pattern]}.extern_use({condition.used})"
        case pat.IsOutput():
            return f"{names[condition.pattern]}.is_output()"
        case pat.AttrEqual():
            which = "" if condition.names is None else f", {list(condition.names)}"
            return f"attr_eq({names[condition.left]}, {names[condition.right]}{which})"
    return condition_text(condition, names)


class RuleSide:
    """One side of a rule, as a diagram.

    Boxes of the patterns that are ``told`` have their names. ``known`` are the patterns of the other side, whose boxes
    say no more than that; ``paint`` marks some patterns.
    """

    def __init__(
        self, names: Mapping[Pattern, str], told: Container[Pattern], outputs: Sequence[Pattern],
        uses: Sequence[pat.Use] = (), *, known: frozenset[Pattern] = frozenset(),
        paint: Mapping[Pattern, Paint] | None = None,
    ) -> None:  # fmt: skip
        self.names = names
        self.told = told
        self.outputs = tuple(outputs)
        self.uses = uses
        self.known = known
        self.paint = paint or {}
        self.nest = Nest()
        self.chains: dict[Pattern, Chain] = {}
        related = [pattern for use in self.uses for pattern in use.patterns()]
        self.patterns = self._shown([*self.outputs, *related])

    def _shown(self, roots: Sequence[Pattern]) -> list[Pattern]:
        """The patterns that are drawn, operands first; patterns below a known pattern of the other side are not
        drawn."""
        found = set(reached(roots, lambda p: () if p in self.known or _is_leaf(p) else p.children()))
        return [pattern for pattern in pat.walk(*roots) if pattern in found]

    def diagram(self) -> Diagram:
        """The diagram: a box for each pattern, frames around the repeated patterns of a variadic."""
        self._boxes()
        for pattern in self.patterns:
            if pattern not in self.known and not _is_leaf(pattern):
                self._edges(pattern)
        for use in self.uses:
            self._use(use)
        draw_outputs(self.nest, [self._chain(output) for output in self.outputs])
        return self.nest.diagram()

    def _boxes(self) -> None:
        """Frames for repeated patterns, the outer ones first, and boxes for all other patterns."""
        around: dict[Pattern, Pattern] = {}
        for pattern in self.patterns:
            if self._is_frame(pattern):
                for inner in (*pattern.templates, _inner(pattern)):
                    around.setdefault(inner, pattern)
        for pattern in reversed(self.patterns):
            if self._is_frame(pattern):
                self.nest.box(_frames(pattern, around), self._box(pattern), is_frame=True)
        for pattern in self.patterns:
            if not (self._is_frame(pattern) or (isinstance(pattern, pat.Seq) and pattern not in self.known)):
                frames = _frames(pattern, around)
                self.chains[pattern] = (*frames, pattern)
                self.nest.box(frames, self._box(pattern))

    def _is_frame(self, pattern: Pattern) -> bool:
        return isinstance(pattern, (pat.Variadic, pat.Repeat)) and pattern not in self.known

    def _chain(self, pattern: Pattern, *, head: bool = False) -> Chain | None:
        """The frames around the box that stands for a pattern where it is used (or uses something), and the box."""
        while pattern not in self.chains:
            if isinstance(pattern, pat.Seq):
                pattern = pattern.head if head else pattern.tail
            elif isinstance(pattern, (pat.Variadic, pat.Repeat)):
                pattern = _inner(pattern)
            else:
                return None
        return self.chains[pattern]

    def _edge(self, operand: Pattern, user: Pattern, look: Edge | None = None) -> None:
        self.nest.edge(self._chain(operand), self._chain(user, head=True), look)

    def _edges(self, pattern: Pattern) -> None:
        match pattern:
            case pat.Seq():
                for use in pattern.uses:
                    self._use(use)
            case pat.Repeat():
                pass
            case pat.Variadic():
                for number, template in enumerate(pattern.first):
                    self._edge(template, pattern.templates[number], Edge("", "", dashed=True, label="first"))
            case pat.Alt() | pat.Match():
                for number, choice in enumerate(pattern.children(), 1):
                    self._edge(choice, pattern, Edge("", "", dashed=True, label=str(number)))
            case pat.Instance():
                self._edge(pattern.template, pattern, Edge("", "", dashed=True))
            case _:
                for child in pattern.children():
                    self._edge(child, pattern)

    def _use(self, use: pat.Use) -> None:
        label = [*(["only"] if use.only else []), *([] if use.index is None else [f"[{use.index}]"])]
        self._edge(use.operand, use.user, Edge("", "", label=" ".join(label)))

    def _box(self, pattern: Pattern) -> Box:
        box = Box(pattern, self._lines(pattern), self._style(pattern), f"{pattern!r}\n{pattern.location}")
        return self.paint[pattern].on(box) if pattern in self.paint else box

    def _style(self, pattern: Pattern) -> Style:
        if pattern in self.known:
            return _LEAVES.get(type(pattern).__name__, _KNOWN)
        match pattern:
            case pat.Leaf():
                return _LEAVES.get(type(pattern).__name__, STYLES["call"])
            case pat.Alt() if _is_leaf(pattern):
                return _LEAVES["Param"]
            case pat.Variadic() | pat.Repeat():
                return FRAMES[0]
            case pat.Alt() | pat.And() | pat.Not() | pat.Match() | pat.Cond():
                return _CHOICE
            case pat.Tuple() | pat.GetItem():
                return STYLES[TUPLE]
            case pat.Call() | pat.Like() | pat.Fused() | pat.Module():
                return _NEW if self.known else STYLES["call"]
        return _KNOWN

    def _lines(self, pattern: Pattern) -> tuple[str, ...]:
        name = self.names.get(pattern)
        guards = self._guards(pattern)
        title = clipped(self._title(pattern), WIDTH)
        if _is_leaf(pattern):
            return (name or title, *([] if title == "Wildcard" else [title]), *guards)
        if pattern in self.known:
            return (f"{title}  {name}" if name else title, "as matched")
        return (f"{title}  {name}" if name and pattern in self.told else title, *guards)

    def _guards(self, pattern: Pattern) -> list[str]:
        """The demands on attributes and on the type; those that are as in another pattern are in one line."""
        lines = [f"like {self.names[pattern.of]}"] if isinstance(pattern, pat.Like) and pattern.of in self.names else []
        same: dict[str, list[str]] = {}
        for item in pattern.arguments():
            if isinstance(item, KeywordText):
                text = written(item.value, self.names)
                of, _, attribute = text.rpartition(".")
                if attribute == item.name and of in self.names.values():
                    same.setdefault(of, []).append(item.name)
                else:
                    lines += wrapped(f"{item.name}={text}", WIDTH, 3)
        for of, equal in same.items():
            text = f"{equal[0]}={of}.{equal[0]}" if len(equal) == 1 else f"{', '.join(equal)} as in {of}"
            lines += wrapped(text, WIDTH, 5)
        return lines

    def _title(self, pattern: Pattern) -> str:
        match pattern:
            case pat.Const():
                return "Const" if pattern.literal is None else written(pattern, self.names)
            case pat.Like():
                return pattern.of.label
            case pat.GetItem():
                return f"[{'' if pattern.number is None else written(pattern.number, self.names)}]"
            case pat.Tuple():
                return "tuple"
            case pat.Variadic():
                least = f"{pattern.min_len} or more" if pattern.min_len else "any number"
                least += "" if pattern.max_len is None else f", at most {pattern.max_len}"
                return least if pattern.symbol is None else f"{least}, numbered {written(pattern.symbol, self.names)}"
            case pat.Instance():
                return f"instance {written(pattern.number, self.names)} of {self.names.get(pattern.template, '')}"
            case pat.Repeat():
                return f"chain of {pattern.min}{' or more' if pattern.max is None else f' to {pattern.max}'}"
            case pat.Alt() if _is_leaf(pattern):
                return " or ".join(dict.fromkeys(self._title(choice) for choice in pattern.choices))
            case pat.Alt():
                return "one of"
            case pat.And():
                return "both"
            case pat.Not():
                return "anything but"
            case pat.Cond():
                return f"if {written(pattern.predicate, self.names)}"
            case pat.Match():
                return f"as {self.names.get(pattern.alternative, 'the alternative')} was"
            case pat.Fused():
                return f"group {pattern.name!r}"
            case pat.Module():
                return f"module by {getattr(pattern.factory, '__name__', 'a function')}"
            case pat.Call() if pattern.operands is None:
                return f"{pattern.label}(…)"
        return pattern.label


def _is_leaf(pattern: Pattern) -> bool:
    """True for a pattern that matches a node without regard to its computation: leaves, and the choice between some."""
    return isinstance(pattern, pat.Leaf) or (
        isinstance(pattern, pat.Alt) and all(isinstance(choice, pat.Leaf) for choice in pattern.choices)
    )


def _inner(pattern: Pattern) -> Pattern:
    """The pattern that stands for a repeated pattern inside of its frame."""
    return next(pattern.children())


def _frames(pattern: Pattern, around: Mapping[Pattern, Pattern]) -> Chain:
    """The frames around a pattern, the outermost first."""
    frames: list[Pattern] = []
    while pattern in around and around[pattern] not in frames:
        pattern = around[pattern]
        frames.append(pattern)
    return tuple(reversed(frames))
