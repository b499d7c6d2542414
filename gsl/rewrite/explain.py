"""The reasons why a rule does not match a graph, or is refused where it does, as text and as a drawing."""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gsl.draw import FAILED, PALETTE, Drawing, Figure, Mark, Paint, Panel, Style, page, region, saved, tint, wrapped
from gsl.draw.rule import drawn_names, source_panel
from gsl.graph import CONST, LEAVES, Graph, Node, op_name
from gsl.match import Match, MatchSearch, Miss
from gsl.pat import Alt, Call, Const, Leaf, OpClass, Pattern, Repeat, Seq
from gsl.rewrite.check import Refusal
from gsl.rewrite.cse import equal_to
from gsl.rewrite.passes import MAX_REFUSALS, RulePass
from gsl.rewrite.trace import Refused, Trace, rest
from gsl.spec import OpSpec
from gsl.spec.natives import argument_at, same_function

if TYPE_CHECKING:
    from gsl.match import Start
    from gsl.rewrite.subst import Subst


_FOUND = PALETTE[5]
_WIDTH = 70


@dataclass(frozen=True, slots=True, eq=False)
class Attempt:
    """The bindings at the end of an attempt, and the reason why it ended."""

    bound: Mapping[Any, Node]
    """The nodes by pattern; by pattern and number for a repeated pattern."""
    pattern: Pattern | None = None
    """The pattern that did not fit, where there is one."""
    node: Node | None = None
    """The node that did not fit."""
    failed: tuple[Node, ...] = ()
    """The nodes at which a whole match was refused."""
    reason: str = ""
    """The reason why it ended; empty for a match."""

    @property
    def patterns(self) -> set[Any]:
        """The patterns that were bound, each once."""
        return {key[0] if isinstance(key, tuple) else key for key in self.bound}


def attempt_drawing(rule: Subst, attempt: Attempt, absent: Sequence[str], notes: Sequence[str]) -> Drawing:
    """The drawing of an attempt: numbers tell which pattern is bound to which node, ``!`` marks the pattern that did
    not fit.

    Patterns of the operators that are ``absent`` from the graph are marked too.
    """
    numbers: dict[Pattern, str] = {}
    for key in attempt.bound:
        pattern = key[0] if isinstance(key, tuple) else key
        if not isinstance(pattern, Seq) and pattern not in numbers:
            numbers[pattern] = str(len(numbers) + 1)
    patterns = {pattern: _fits(number) for pattern, number in numbers.items()}
    missing = [p for p in rule.plan.patterns if isinstance(p, Call) and p.label in absent]
    for pattern in (*missing, *([] if attempt.pattern is None else [attempt.pattern])):
        patterns[pattern] = _fails(numbers.get(pattern))
    panels = [source_panel(rule, drawn_names(rule), patterns)]
    if attempt.bound or attempt.node is not None:
        panels.append(_graph_panel(attempt, numbers))
    legend = [(_swatch(_fits("1")), Mark("1", _FOUND), "a pattern, and the node that fits it")]
    if any(paint.stroke == FAILED for paint in patterns.values()) or attempt.reason:
        legend.append((_swatch(_fails(None)), Mark("!", FAILED), "what does not fit"))
    lines = tuple(line for note in notes for line in wrapped(note, 2 * _WIDTH))
    return Drawing(Figure(f"why {rule.name} does or does not match", tuple(panels), tuple(legend), lines))


def _graph_panel(attempt: Attempt, numbers: Mapping[Pattern, str]) -> Panel:
    """The part of the graph that was looked at."""
    texts: dict[Node, list[str]] = {}
    for key, node in attempt.bound.items():
        pattern = key[0] if isinstance(key, tuple) else key
        if pattern in numbers:
            texts.setdefault(node, []).append(numbers[pattern])
    paint = {node: _fits(",".join(text[:3])) for node, text in texts.items()}
    for node in (*attempt.failed, *([] if attempt.node is None else [attempt.node])):
        paint[node] = _fails(",".join(texts.get(node, [])[:3]) or None)
    covered = [node for node in paint if node.op not in LEAVES]
    return Panel("graph", region(paint, covered), tuple(wrapped(attempt.reason, _WIDTH)))


def _fits(number: str) -> Paint:
    return Paint(tint(_FOUND, 0.15), _FOUND, 1.5, Mark(number, _FOUND))


def _fails(number: str | None) -> Paint:
    return Paint(tint(FAILED), FAILED, 3.0, Mark("!" if number is None else f"{number} !", FAILED))


def _swatch(paint: Paint) -> Style:
    return Style(paint.fill, paint.stroke, paint.width)


MAX_MATCHES = 1000
"""The number of matches from which on no more are looked at, if one is not refused; and of refusals that are printed.
"""

MAX_STARTS: Final = 10_000
"""The number of nodes from which a rule without a match is tried again from its other patterns."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """The results of the attempts to match a rule; made to be printed."""

    rule: str
    patterns: int
    """The number of patterns of the source."""
    matches: int
    """The number of matches in the graph itself, refused ones included."""
    refused: tuple[Refused, ...]
    absent: tuple[str, ...]
    """The operators of the source of which the graph has no call."""
    nearest: tuple[Miss, ...]
    """The places where the partial matches that came furthest failed, the furthest first; empty when the rule
    matches."""
    hint: str
    """A hint at the form in which the graph has the calls that the source may mean; empty where there is none."""
    subject: Subst = field(repr=False, compare=False)
    """The rule itself."""
    attempt: Attempt = field(default=Attempt({}), repr=False, compare=False)
    """The first match, or else the first one that was refused, or else the partial match that came furthest."""
    inside: Mapping[str, Explanation] = field(default_factory=dict)
    """The explanations of the graphs within calls, by their names."""

    def __bool__(self) -> bool:
        return self.matches > len(self.refused) or any(self.inside.values())

    def __str__(self) -> str:
        refused = ", each of them refused" if 0 < self.matches == len(self.refused) else ""
        lines = [f"{self.rule}: {_count(self.matches, 'match', 'matches')}{refused}"]
        shown = self.refused[:MAX_MATCHES]
        lines += [f"  refused at {', '.join('%' + name for name in r.at)}: {r.reason}" for r in shown]
        lines += [f"  {line}" for line in rest(len(self.refused) - MAX_MATCHES, "refused match", "es")]
        if self.absent:
            lines.append(f"  the graph has no call of {', '.join(self.absent)}")
        for number, miss in enumerate(self.nearest, 1):
            lines.append(f"  {number}. {miss.bound} of {_count(self.patterns, 'pattern', 'patterns')} matched, then")
            if miss.pattern is not None:
                lines.append(f"     {miss.pattern!r} ({miss.pattern.location})")
            if miss.node is not None:
                lines.append(f"     at %{miss.node.name}")
            lines.append(f"     {miss.reason}")
        if self.hint:
            lines.append(f"  hint: {self.hint}")
        for name, part in self.inside.items():
            if part.matches or part.nearest:
                lines += [f"in {name}", *(f"  {line}" for line in str(part).splitlines())]
        return "\n".join(lines)

    def visualize(self, path: str | Path | None = None) -> Drawing:
        """A drawing of the pattern beside the part of the graph that comes nearest to it, with the parts that do not
        fit.

        Also written to ``path`` (.svg, .png, .pdf or .dot).
        """
        notes = [str(self).splitlines()[0], *(f"the graph has no call of {op}" for op in self.absent)]
        return saved(attempt_drawing(self.subject, self.attempt, self.absent, notes), path)

    def _repr_html_(self) -> str:
        return page(self.visualize, str(self))


def _count(number: int, one: str, many: str) -> str:
    return f"{number or 'no'} {one if number == 1 or number == 0 else many}"


def explain(
    rule: Subst, graph: Graph, nearest: int, why_kept: Callable[[], str | None] = lambda: None,
    why_unread: Callable[[], Callable[[Node], str | None]] = lambda: lambda node: None,
) -> Explanation:  # fmt: skip
    """Look for matches, why they are refused, and where there is none, for the partial matches that came furthest.

    ``why_kept`` is asked where there are matches that are not refused: it tells why the program of the graph stays as
    it is all the same, if it does. ``why_unread`` is asked where an opaque call stands in
    the way, for a function that tells why such a call has no canonical reading.
    """
    by_op = graph.by_op()
    plan = rule.plan
    plan.check(graph)
    nodes = {anchor: plan.possible(anchor, by_op) for anchor in plan.anchors}
    absent = tuple(dict.fromkeys(label for p in plan.anchors if not nodes[p] and (label := _label(p))))
    present = [p for p in plan.anchors if nodes[p]]
    hint = BIAS if _adds_to_product(plan.patterns) and "nn.bias_add" in by_op else (
        _in_training(absent, graph) or _written(absent, graph) or _read(plan.natives, absent, graph)
        or _other_product(absent, by_op)
    )
    if not present:
        return Explanation(rule.title, len(plan.patterns), 0, (), absent, (), hint, rule)
    anchor, *others = sorted(present, key=lambda p: len(nodes[p]))
    found = _search(rule, graph, plan.start(anchor), nodes[anchor])
    if not found.matches:
        found.misses += _further(found.misses, rule, graph, {other: nodes[other] for other in others})
    if found.admitted and (reason := why_kept()):
        found.refuse_admitted(rule, reason)
    misses = [] if found.matches else _nearest(found.misses, nearest)
    attempt = found.whole or (misses[0][1] if misses else Attempt({}))
    told = tuple([replace(miss, bound=len(attempt.patterns)) for miss, attempt in misses])
    return Explanation(
        rule.title, len(plan.patterns), found.matches, tuple(found.refused), absent, told,
        "" if found.matches else (
            hint or _by_keyword(told) or _bias(told) or _unread(told, why_unread) or _between(told) or _twice(misses)
            or _another_form(told) or _one_step(told)
        ),
        rule, attempt,
    )  # fmt: skip


def _further(
    misses: Sequence[tuple[Miss, Attempt]], rule: Subst, graph: Graph, nodes: Mapping[Pattern, list[Node]]
) -> list[tuple[Miss, Attempt]]:
    """The attempts that start at other patterns, and come further than those known, by more than where they start."""
    best = max((miss.bound for miss, _ in misses), default=0)
    found: list[tuple[Miss, Attempt]] = []
    room = MAX_STARTS
    for anchor, starts in nodes.items():
        room -= len(starts)
        if room < 0:
            break
        found += _search(rule, graph, rule.plan.start(anchor), starts).misses
    return [pair for pair in found if pair[0].bound > best + 1]


def _nearest(misses: Iterable[tuple[Miss, Attempt]], count: int) -> list[tuple[Miss, Attempt]]:
    """The attempts that came furthest, of those that ended in the same way the first one."""
    told: dict[object, tuple[Miss, Attempt]] = {}
    for miss, attempt in sorted(misses, key=lambda pair: -pair[0].bound):
        if len(told) == count:
            break
        told.setdefault((miss.pattern, miss.node, miss.reason), (miss, attempt))
    return list(told.values())


def _label(pattern: Pattern) -> str:
    """The operator of a call, or those of alternatives; empty for other patterns."""
    if isinstance(pattern, Alt):
        labels = [_label(choice) for choice in pattern.choices]
        return " or ".join(dict.fromkeys(labels)) if all(labels) else ""
    if isinstance(pattern, Repeat):
        return _label(pattern.pattern)
    return pattern.label if isinstance(pattern, Call) else ""


BIAS: Final = (
    "a vector that is added along the last axis of a product is a bias, op.BiasAdd; nn.Linear is "
    "op.BiasAdd(op.Dense(x, w), b)"
)
_PRODUCTS: Final = ("nn.dense", "matmul")


def _adds_to_product(patterns: Iterable[Pattern]) -> bool:
    """True if some patterns add to a product of matrices."""
    calls = [pattern for pattern in patterns if isinstance(pattern, Call)]
    return any(
        call.label == "add" and any(isinstance(each, Call) and each.label in _PRODUCTS for each in call.operands or ())
        for call in calls
    )


def _bias(misses: Iterable[Miss]) -> str:
    """The hint that a sum is shown as a bias, where the source has what is added to as a leaf."""
    found = any(
        miss.what == "operator" and miss.node is not None and miss.node.op == "nn.bias_add"
        and miss.pattern is not None and _label(miss.pattern) == "add" for miss in misses
    )  # fmt: skip
    return f"{BIAS}; (x + b) | op.BiasAdd(x, b, axis=-1) is either" if found else ""


_TRAINED: Final = {"nn.batch_norm": "batchnorm", "nn.dropout": "dropout"}
"""The operators of layers that exist in evaluation only, with a part of the names of their calls in training."""


def _in_training(absent: Sequence[str], graph: Graph) -> str:
    """The hint that a layer is in training mode, where the source wants it as it is in evaluation."""
    for kind in filter(None, map(_TRAINED.get, absent)):
        for node in graph:
            is_kind = node.opaque and kind in op_name(node.op).replace("_", "").lower()
            if is_kind and (node.effect is not None or node.attrs.get("training")):
                return (
                    f"%{node.name} is a layer in training mode; put the model into evaluation mode by model.eval() "
                    "before it is exported, traced or compiled"
                )
    return ""


def _written(absent: Sequence[str], graph: Graph) -> str:
    """The hint that an operator of a library is called in the form that writes to its operands."""
    names = {name.partition(".")[0] for name in absent if "::" in name}
    for node in graph if names else ():
        schema = getattr(node.op, "_schema", None) if node.opaque else None
        if schema is not None and schema.name in names and schema.is_mutable:
            return (
                f"%{node.name} is a call of {schema.name} that writes to its operands: torch makes a function of it "
                "for joint_custom_pre_pass and later passes, and in run_decompositions() of an exported program"
            )
    return ""


def _read(natives: Iterable[Call], absent: Sequence[str], graph: Graph) -> str:
    """The hint that the graph shows a call of torch by a canonical operator."""
    wanted = {op: call for call in natives if call.label in absent for op in same_function(call.op)}
    if graph.targets is None or not wanted:
        return ""
    for node in graph:
        for target in () if node.opaque or node.op in LEAVES else graph.targets(node):
            if isinstance(target, Hashable) and target in wanted:
                return f"%{node.name} is a call of {wanted[target].label}, which the graph shows as one of {node.op}"
    return ""


_OTHER_PRODUCTS: Final = {
    "nn.dense": ("matmul", "a product with a second operand that is not transposed is op.Matmul(x, w)"),
    "matmul": ("nn.dense", "a product with a transposed second operand, as of nn.Linear, is op.Dense(x, w)"),
    "nn.batch_matmul": ("matmul", "torch.bmm is op.Matmul(x, y); op.BatchMatmul(x, y) is bmm(x, y.mT)"),
}
"""The products that models have in place of others, with what tells them apart."""


def _other_product(absent: Sequence[str], present: Container[Any]) -> str:
    """The hint that the graph has another product of matrices than the source."""
    found = [_OTHER_PRODUCTS[name] for name in absent if name in _OTHER_PRODUCTS]
    return next((hint for other, hint in found if other in present), "")


def _by_keyword(misses: Iterable[Miss]) -> str:
    """The hint that a number of a native call, given by its place, is an argument and no operand."""
    for miss in misses:
        call = miss.pattern
        if miss.what == "operands" and isinstance(call, Call) and not isinstance(call.op, (OpSpec, OpClass)):
            for place, part in enumerate(call.operands or ()):
                if isinstance(part, Const) and (name := argument_at(call.op, place)):
                    written = f"{name}={'…' if part.literal is None else repr(part.literal)}"
                    return f"arguments of {call.label} that are no tensors are given by keyword, as {written}"
    return ""


def _unread(misses: Iterable[Miss], why_unread: Callable[[], Callable[[Node], str | None]]) -> str:
    """The hint that a call of the graph is not read, where the source wants one of the vocabulary."""
    found: list[Node] = []
    for miss in misses:
        node, call = miss.node, miss.pattern
        is_native = isinstance(call, Call) and not isinstance(call.op, (OpSpec, OpClass))
        if miss.what == "operator" and node is not None and node.opaque and not is_native:
            found.append(node)
    reasons = zip(found, map(why_unread(), found)) if found else ()
    return next((f"%{node.name} has no canonical reading: {reason}" for node, reason in reasons if reason), "")


_MAY_CHANGE_NOTHING: Final = ("nn.dropout", "copy", "cast", "reshape", "broadcast_to")
"""The operators whose result is their operand where it has the type of it."""


def _between(misses: Iterable[Miss]) -> str:
    """The hint that a call that changes nothing stands between two nodes that would fit."""
    for miss in misses:
        alone = [miss.node] if miss.node is not None and miss.what in ("operator", "same node") else []
        tried: Sequence[Node] = miss.found if miss.what in ("operand", "user") else alone
        for node in tried:
            if node.op in _MAY_CHANGE_NOTHING and node.type == node.operands[0].type is not None:
                return f"%{node.name} ({node.op}) changes nothing; rules.NORMAL takes such calls away"
    return ""


_FORMS: Final = (("multiply", "square", "power"), ("divide", "reciprocal", "multiply"), ("negative", "multiply"))
"""The operators of which each may be written in place of another one of its row."""


def _another_form(misses: Iterable[Miss]) -> str:
    """The hint that the graph may have what is wanted by another operator, as ONNX has squares as products."""
    for miss in misses:
        wanted = "" if miss.pattern is None else _label(miss.pattern)
        alone = [miss.node] if miss.node is not None and miss.what == "operator" else []
        for node in miss.found if miss.what in ("operand", "user") else alone:
            if any(wanted in row and node.op in row and wanted != node.op for row in _FORMS):
                return (
                    f"%{node.name} may be the same by {node.op} in place of {wanted}: let the pattern be either, "
                    "p | q, or apply rules.NORMAL first"
                )
    return ""


def _one_step(misses: Iterable[Miss]) -> str:
    """The hint how a chain of steps of several nodes is written."""
    for miss in misses:
        step = miss.pattern.pattern if isinstance(miss.pattern, Repeat) else None
        if miss.what == "nodes of the chain" and isinstance(step, Call) and step.operands and not any(
            isinstance(operand, Leaf) or operand.operator in (None, step.operator) for operand in step.operands
        ):  # fmt: skip
            return (
                f"of a chain, each {step.label} is an operand of the next one itself: a step of several nodes is a "
                "sequence, first >> last"
            )
    return ""


def _twice(misses: Iterable[tuple[Miss, Attempt]]) -> str:
    """The hint that the graph computes a value twice, where a pattern wants one node to have several users."""
    for miss, attempt in misses:
        if miss.what == "same node" and miss.node is not None and miss.node.op == CONST:
            return "a literal may be a node for each use: give each a pattern, and write p.value == q.value in where="
        if miss.what in ("same node", "overlap", "instances"):
            for node in dict.fromkeys(attempt.bound.values()):
                if other := equal_to(node, {}):
                    return (
                        f"%{node.name} and %{other.name} are equal calls, and two nodes; a RuleSet with tidy=True lets "
                        "one stand for both"
                    )
    return ""


@dataclass(slots=True)
class _Found:
    """The results of a search for matches."""

    admitted: dict[tuple[Node, ...], Match] = field(default_factory=dict)
    """The first match of each of the outputs: a pass rewrites one of those that differ in the order of operands."""
    refused: dict[Refused, None] = field(default_factory=dict)
    misses: list[tuple[Miss, Attempt]] = field(default_factory=list)
    """The best attempt from each node without a match, and the miss that ended it."""
    whole: Attempt | None = None
    """The first match; a refused one only if there is no other."""

    @property
    def matches(self) -> int:
        """The number of matches, refused ones included."""
        return len(self.admitted) + len(self.refused)

    def admit(self, match: Match) -> None:
        """Note a match that is not refused."""
        if not self.admitted:
            self.whole = Attempt(match.bindings.nodes)
        self.admitted.setdefault(tuple(match.outputs), match)

    def refuse(self, rule: Subst, match: Match, reason: object) -> None:
        """Note a match that is refused."""
        self.refused[Refused.of(rule.name, match, reason)] = None
        if self.whole is None:
            self.whole = Attempt(match.bindings.nodes, failed=match.outputs, reason=f"refused: {reason}")

    def refuse_admitted(self, rule: Subst, reason: str) -> None:
        """Let the matches that were not refused be so, for one reason."""
        admitted, self.admitted, self.whole = self.admitted, {}, None
        for match in admitted.values():
            self.refuse(rule, match, reason)


def _search(rule: Subst, graph: Graph, start: Start, nodes: list[Node]) -> _Found:
    """The matches that a pass would try, and the best of the other attempts."""
    checks = RulePass(graph, [rule], "priority", Trace())
    found = _Found()
    grouped: set[Node] = set()
    """The members of groups, which start no smaller ones."""
    furthest: tuple[Miss, Attempt] | None = None

    def note(miss: Miss) -> None:
        nonlocal furthest
        if furthest is None or miss.bound > furthest[0].bound:
            furthest = miss, Attempt(dict(search.bindings.nodes), miss.pattern, miss.node, reason=miss.reason)

    search = MatchSearch(rule.plan, checks.splicer.outputs, (), checks.use_lists)
    search.on_miss = note
    for node in nodes:
        if node in grouped:
            continue
        furthest, before = None, found.matches
        for match in islice(start.matches(node, search), MAX_REFUSALS):
            grouped.update(match.outputs if rule.plan.variadic is not None else ())
            try:
                rule.admit(match)
                checks.prepare(rule, match)
            except Refusal as refusal:
                found.refuse(rule, match, refusal)
            else:
                found.admit(match)
            if found.admitted and found.matches >= MAX_MATCHES:
                return found
        if furthest is not None and found.matches == before:
            found.misses.append(furthest)
    return found
