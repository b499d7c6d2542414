"""The results of a search: matches, with the nodes to which the patterns of a source are bound, and misses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from gsl import draw
from gsl.errors import EvaluationError
from gsl.graph import Node, Op, op_name
from gsl.graph.text import is_scalar, value_text
from gsl.match.bindings import Bindings, BoundNodes, LateBindings
from gsl.match.source import CheckedSource
from gsl.pat import Call, GetItem, OpClass, Pattern, Repeat, Seq, Tuple, Variadic
from gsl.pat.typed import TypeGuard
from gsl.spec import OpSpec

SHOWN = 40
"""The largest number of characters of a pattern in a drawing."""
COVERED, BOUND = ("#fbd9a5", "#b46a00"), ("#ffffff", "#b46a00")
"""The fill and the outline of the nodes that a match covers, and of the other nodes that it binds."""
LEGEND = (
    (draw.Style(*COVERED, 3.0), None, "replaced"), (draw.Style(*COVERED, 1.5), None, "covered"),
    (draw.Style(*BOUND, 1.5), None, "bound by ‹a pattern›"), (draw.BESIDE, None, "beside the match"),
)  # fmt: skip


class Match:
    """The nodes that the patterns of a rule matched; ``match[p]`` is the node of ``p``.

    Of a template, ``match[variadic(p, i)]`` is the node of an instance, and ``match.instances(variadic, p)`` are all.
    """

    schema: MatchSchema | None = None
    """The place of a printed function that found the match, where all is known that the match does not tell itself."""
    bound: tuple[Node, ...]
    """The nodes of the patterns of that place."""

    def __init__(self, plan: CheckedSource, bindings: Bindings[Node], operators: Mapping[OpClass, Op]) -> None:
        self.plan = plan
        self.bindings = bindings
        self.operators = operators

    def __getitem__(self, pattern: Pattern) -> Node:
        try:
            return self.bindings.node(pattern, ())
        except EvaluationError as error:
            raise KeyError(f"{pattern!r} is not bound by this match: {error}") from None

    def __contains__(self, pattern: Pattern) -> bool:
        return self.bindings.get(pattern, ()) is not None

    def get(self, pattern: Pattern, default: Any = None) -> Any:
        """The node of a pattern, or a default where the match does not bind it."""
        found = self.bindings.get(pattern, ())
        return default if found is None else found

    def keys(self) -> tuple[Pattern, ...]:
        """The patterns that are bound to one node each; of templates, see :meth:`instances`."""
        return tuple(key for key in self.bindings.nodes if isinstance(key, Pattern))

    def values(self) -> tuple[Node, ...]:
        """Their nodes."""
        return tuple(self.bindings.nodes[key] for key in self.keys())

    def items(self) -> tuple[tuple[Pattern, Node], ...]:
        """The patterns with their nodes."""
        return tuple(zip(self.keys(), self.values()))

    def __iter__(self) -> Iterator[Pattern]:
        return iter(self.keys())

    def __len__(self) -> int:
        return len(self.keys())

    def instances(self, variadic: Variadic | Repeat, template: Pattern) -> tuple[Node, ...]:
        """The nodes of all instances of a template, in order; along a chain, first to last."""
        numbers = self._along(variadic) if isinstance(variadic, Repeat) else range(self.length(variadic))
        found = (self.bindings.instance(variadic, template, i, ()) for i in numbers)
        return tuple(node for node in found if node is not None)

    def chain(self, repeat: Repeat) -> tuple[Node, ...]:
        """The nodes of a repeated pattern, first to last."""
        return tuple([self.bindings.nodes[repeat.pattern, (i,)] for i in self._along(repeat)])

    def _along(self, repeat: Repeat) -> range:
        """The numbers of the nodes of a chain, first to last: the search may have found the last one first."""
        numbers = range(self.bindings.count(repeat, ()))
        return numbers if self.bindings.nodes[repeat.pattern, (numbers[-1],)] is self[repeat] else numbers[::-1]

    def length(self, variadic: Variadic | Repeat) -> int:
        """The number of instances of a variadic, or of the nodes of a chain."""
        return self.bindings.count(variadic, ())

    @cached_property
    def outputs(self) -> tuple[Node, ...]:
        """The nodes that the rule replaces."""
        variadic = self.plan.variadic
        if variadic is not None:
            return self.instances(variadic, variadic.field)
        return tuple(self[pattern] for pattern in self.plan.outputs)

    @cached_property
    def inner(self) -> tuple[Node, ...]:
        """The nodes matched by operators, tuples and fields, or skipped: all nodes that the rule covers, outputs
        included."""
        nodes: dict[Node, None] = dict.fromkeys(self.bindings.skipped)
        for key, node in self.bindings.nodes.items():
            if isinstance(key[0] if isinstance(key, tuple) else key, (Call, Tuple, GetItem, Variadic)):
                nodes[node] = None
        return tuple(nodes)

    def __repr__(self) -> str:
        return f"<match of {len(self.bindings.nodes)} nodes at {', '.join('%' + node.name for node in self.outputs)}>"

    def __str__(self) -> str:
        lines = []
        for key, node in self.bindings.nodes.items():
            pattern, number = key if isinstance(key, tuple) else (key, ())
            lines.append(f"{pattern!r}{''.join(f' #{i}' for i in number)} = %{node.name}")
        return "\n".join(lines)

    def visualize(self, path: str | Path | None = None) -> draw.Drawing:
        """A drawing of the matched nodes with their neighbours, also written to ``path`` (.svg, .png, .pdf or .dot)."""
        paint = bound_paint(self.bindings.nodes, self.inner, self.outputs)
        panel = draw.Panel("", draw.region(paint, self.inner))
        return draw.saved(draw.Drawing(draw.Figure("match", (panel,), LEGEND)), path)

    def _repr_svg_(self) -> str | None:
        return self.visualize()._repr_svg_()


@dataclass(frozen=True, slots=True, eq=False)
class MatchSchema:
    """A place of a printed function where a match without instances is given: what is the same for all of these."""

    plan: CheckedSource
    keys: tuple[Any, ...]
    """The keys of the bound nodes."""
    chosen: Mapping[Any, int]
    operators: Mapping[OpClass, int]
    """The places of the nodes whose operators classes stand for."""
    outputs: tuple[int, ...]
    """The places of the nodes that the rule replaces."""
    inner: tuple[int, ...]
    """The places of the nodes that the rule covers; a node may stand at several."""


class FoundMatch(Match):
    """A match that was found at a place of a printed function; its tables are made when something asks for them."""

    def __init__(
        self, schema: MatchSchema, bound: tuple[Node, ...], outputs: tuple[Node, ...], inner: tuple[Node, ...]
    ) -> None:
        self.schema = schema
        self.plan = schema.plan
        self.bound = bound
        self.outputs = outputs  # what the cached properties would find
        self.inner = inner

    @cached_property
    def bindings(self) -> Bindings[Node]:  # type: ignore[override]
        assert self.schema is not None
        return Bindings(self.plan.scopes, dict(zip(self.schema.keys, self.bound)), dict(self.schema.chosen))

    @cached_property
    def operators(self) -> Mapping[OpClass, Op]:  # type: ignore[override]
        assert self.schema is not None
        return {op: self.bound[place].op for op, place in self.schema.operators.items()}


def found_instances(
    plan: CheckedSource, parts: Sequence[BoundNodes], chosen: dict[Any, int], operators: Mapping[OpClass, Op],
    outputs: tuple[Node, ...], inner: tuple[Node, ...], counts: dict[Any, int], heads: dict[Any, Node],
) -> Match:  # fmt: skip
    """A match of which all is known, also how many instances there are and where chains begin."""
    match = Match(plan, LateBindings(plan.scopes, parts, chosen, counts, heads), operators)
    match.outputs, match.inner = outputs, inner
    return match


def bound_paint(bound: Mapping[Any, Node], inner: Sequence[Node], outputs: Sequence[Node]) -> dict[Node, draw.Paint]:
    """The paint of the nodes that patterns are bound to: each with its pattern, filled if the match covers it."""
    covered, ends = set(inner), set(outputs)
    texts: dict[Node, tuple[str, ...]] = dict.fromkeys(inner, ())
    for key, node in bound.items():
        pattern, number = key if isinstance(key, tuple) else (key, ())
        if not isinstance(pattern, Seq) and not texts.get(node):
            texts[node] = (f"‹{_short(pattern)}›" + "".join(f" #{i}" for i in number),)
    return {
        node: draw.Paint(*(COVERED if node in covered else BOUND), 3.0 if node in ends else 1.5, lines=lines)
        for node, lines in texts.items()
    }


def _short(pattern: Pattern) -> str:
    shown = repr(pattern)
    return shown if len(shown) <= SHOWN else shown[: SHOWN - 1] + "…"


@dataclass(frozen=True, slots=True)
class Miss:
    """The reason why a partial match went no further: a pattern, the node tried for it, the expected and the found
    value."""

    pattern: Pattern | None
    node: Node | None
    what: str
    expected: Any
    found: Any
    bound: int
    """The number of patterns that were bound by then."""

    def __str__(self) -> str:
        place = "" if self.pattern is None else f"{self.pattern!r} ({self.pattern.location})"
        at = "" if self.node is None else f" at {_shown(self.node)}"
        return f"{place}{at}: {self.reason}".lstrip(": ")

    @property
    def reason(self) -> str:
        """The expected and the found value, in words."""
        found = op_name(self.found) if self.what == "operator" else _shown(self.found)
        return f"{self.what}: expected {_shown(self.expected)}, found {found}"


def _shown(value: Any) -> str:
    match value:
        case Node():
            return f"%{value.name} ({value_text(value.attrs['value']) if is_scalar(value) else op_name(value.op)})"
        case OpSpec():
            return value.name
        case Pattern() | OpClass() | TypeGuard():
            return repr(value)
        case BaseException():
            return str(value) or type(value).__name__
        case frozenset():
            return " or ".join(sorted(map(op_name, value)))
        case list():
            return ", ".join(map(_shown, value)) or "nothing"
        case str():
            return value
    return value_text(value)
