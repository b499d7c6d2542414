"""Targets: the patterns that replace the outputs of a source, checked against the source when the rule is built."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from typing import Any, TypeGuard

from gsl.attr import Expr
from gsl.attr.ast import Ast, Each, Literal
from gsl.attr.expr import to_condition
from gsl.errors import PatternError, PatternTypeError, located
from gsl.graph import INPUT, PARAM, TUPLE, Graph, Node, Origin
from gsl.graph.node import FEW
from gsl.graph.splice import created_for
from gsl.match import Match, Plan
from gsl.pat import (
    Alt,
    And,
    Call,
    Const,
    Constraint,
    Fused,
    GetItem,
    Group,
    Instance,
    Leaf,
    Like,
    Module,
    NonLeafExternUse,
    Not,
    OpClass,
    Pattern,
    Repeat,
    Seq,
    Variadic,
    Wildcard,
    to_pattern,
)
from gsl.pat import Match as MatchClause
from gsl.pat.call import instead, takes_match
from gsl.pat.use import check_unique
from gsl.pat.variadic import check_segments, parts, references
from gsl.rewrite.build import Builder, FreeAttrs, Steps, check_demands
from gsl.rewrite.emit import KnownCalls, TargetRecipe
from gsl.rewrite.new import NUMBERS
from gsl.spec import REQUIRED, TABLE, OpSpec
from gsl.walk import reached

BUILDS = 32
"""The number of times that a target is built before it pays to print its steps as a function."""


class Target:
    """The replacement for the outputs of a source: patterns, a variadic, or a callable that makes them from the match.

    Raises PatternError for a target that can't be built from the source.
    """

    def __init__(self, target: Any, plan: Plan) -> None:
        self.plan = plan
        self.callable: Callable[[Match], Any] | None = None
        self.outputs: tuple[Pattern, ...] = ()
        self.free = _free_attributes(plan.patterns)
        self.left = BUILDS
        """The number of times that it is still built before its steps are printed as a function."""
        self._steps = Steps(plan, self.free)
        self._known: KnownCalls | None = None
        if takes_match(target):
            self.callable = target
        else:
            self.outputs = self._outputs(target)
            self._check()

    def _outputs(self, target: Any) -> tuple[Pattern, ...]:
        items = list(target) if isinstance(target, (list, tuple)) else [target]
        outputs: list[Pattern] = []
        for item in items:
            if not isinstance(item, Pattern):
                raise PatternError(
                    f"a target is made of patterns, got {item!r} of type {type(item).__name__}{instead(item)}"
                )
            outputs.append(item)
        if self.plan.variadic is not None and not _is_fused(outputs):
            if len(outputs) != 1 or not isinstance(outputs[0], Variadic):
                raise PatternError("a variadic source is replaced by a variadic: give one pat.Variadic(…) as target")
        elif len(outputs) != len(self.plan.outputs) and not _is_fused(outputs):
            raise PatternError(
                f"the source has {len(self.plan.outputs)} outputs, the target {len(outputs)}: each output needs what "
                "replaces it"
            )
        return tuple(outputs)

    def _check(self) -> None:
        bound = set(self.plan.bindable)
        templates = {t for pattern in bound if isinstance(pattern, (Variadic, Repeat)) for t in pattern.templates}
        new = _unmatched(self.outputs, bound - templates)
        check_segments(new, self.outputs)
        for pattern in new:
            if pattern in templates:
                raise PatternError(
                    f"{pattern.location}: {pattern!r} is a template, of which there are many: {self._which(pattern)}"
                )
            if pattern in self.plan.known:
                raise PatternError(
                    f"{pattern.location}: the target uses {pattern!r}, which is part of a negation only, so there is "
                    "no node for it"
                )
            if isinstance(pattern, Leaf) and not (isinstance(pattern, Const) and pattern.literal is not None):
                raise PatternError(
                    f"{pattern.location}: the target uses {pattern!r}, which is not part of the source, so there is "
                    "no node for it"
                )
            if isinstance(pattern, Fused) and not _is_fused(self.outputs):
                raise PatternError(
                    f"{pattern.location}: {pattern!r} stands for all outputs of the rule, so it is the whole target"
                )
            check_demands(pattern)
            if isinstance(pattern, (Alt, And, Not)):
                raise PatternError(f"{pattern.location}: {pattern!r} can't be built in a target; use pat.Match or Cond")
            if isinstance(pattern, MatchClause):
                self._check_clause(pattern)
            if isinstance(pattern, Instance) and pattern.variadic not in bound:
                raise PatternError(f"{pattern.location}: {pattern.variadic!r} is not part of the source")
            if isinstance(pattern, GetItem) and pattern.number is None:
                raise PatternError(f"{pattern.location}: a new {pattern!r} in a target needs an index")
            if isinstance(pattern, Call):
                _check_call(pattern, bound)
            for node in pattern.expressions():
                _check_lengths(node, pattern)
            for used in (used for node in pattern.expressions() for used in references(node)):
                if used in templates:
                    raise PatternError(
                        f"{pattern.location}: {pattern!r} refers to {used!r}, a template, of which there are many: "
                        f"{self._which(used)}"
                    )
                if isinstance(used, (Leaf, Alt)) and used not in bound:
                    raise PatternError(f"{pattern.location}: {pattern!r} refers to {used!r}, which the source lacks")
            if isinstance(pattern, Variadic) and pattern.count is None and pattern not in self.outputs:
                raise PatternError(f"{pattern.location}: a variadic inside a target needs length=…")

    def _check_clause(self, clause: MatchClause) -> None:
        """Refuse a choice that the source does not make, or that each node of a chain makes for itself."""
        alternative = clause.alternative
        if alternative not in self.plan.known:
            raise PatternError(f"{clause.location}: {alternative!r} is not part of the source")
        if any(isinstance(scope, Repeat) for scope in self.plan.scopes.get(alternative, ())):
            raise PatternError(
                f"{clause.location}: {alternative!r} is a template, of which there are many: {self._which(alternative)}"
            )

    def _which(self, template: Pattern) -> str:
        """A hint at what a target can write instead of a template, which is the pattern of many nodes."""
        if any(isinstance(scope, Repeat) for scope in self.plan.scopes[template]):
            return (
                "refer to the pat.Repeat, which stands for the last node of the chain, or make the target by a "
                "function, of match.chain(repeat)"
            )
        return "the target must say which, as variadic(pattern, index)"

    def build(self, match: Match, graph: Graph, rule: str) -> tuple[Sequence[Node], tuple[Node, ...] | None]:
        """The nodes that replace the outputs of a match, in order, and, if that is known, all nodes that were made.

        Raises Refusal, and whatever the callable raises.
        """
        known = self._known
        if known is not None:
            made = known.again(match, graph)
            if made is not None:
                return made
        elif self.left:
            self.left -= 1
            if not self.left:
                self._known = self._known_calls(rule)
        return self._like_before(match, graph, rule)

    def _like_before(self, match: Match, graph: Graph, rule: str) -> tuple[Sequence[Node], tuple[Node, ...] | None]:
        """The same, by the recipe of a match whose nodes have the same attributes and types, where there was one."""
        found = None if self.callable is not None else self._bound(match)
        links = () if found is None or not self._is_fused else _links(match, found[1], graph)
        if found is None or links is None:
            return self._built(match, graph, rule), None
        place, bound = found
        if self._is_fixed_group:
            # Of an operand, nothing but its type counts, unless it is a number, which becomes part of the body.
            inner = match.inner if len(match.inner) <= FEW else {*match.inner}
            read: list[Any] = [
                (node.op, id(node.type), id(node.attrs)) if node in inner or node.op in NUMBERS else id(node.type)
                for node in bound
            ]
        else:
            # No expression reads the value of an input or a weight.
            leaves = (INPUT, PARAM)
            read = [part for node in bound for part in (node.op, id(node.type), node.op in leaves or id(node.attrs))]
        key = (self, *place, *read, links)
        recipe: TargetRecipe | None = graph.formed.get(key)
        if recipe is not None and len({*bound}) == len(bound):
            return recipe.again(bound, Origin(rule, match.inner))
        new = self._built(match, graph, rule)
        created = created_for(new)
        made = TargetRecipe.of(new, created, bound)
        if made is not None:
            graph.formed[key] = made
        return new, created

    def _bound(self, match: Match) -> tuple[tuple[Any, ...], tuple[Node, ...]] | None:
        """The way in which a match was found, and its nodes; ``None`` where it has instances or skipped nodes."""
        if match.schema is not None:
            return (match.schema,), match.bound
        bindings = match.bindings
        bound = tuple(filter(None, map(bindings.nodes.get, self.plan.patterns)))
        beyond = bindings.counts or bindings.heads or bindings.skipped or len(bound) < len(bindings.nodes)
        return None if beyond else (tuple(bindings.chosen.items()), bound)

    @cached_property
    def _is_fused(self) -> bool:
        return _is_fused(self.outputs)

    @cached_property
    def _is_fixed_group(self) -> bool:
        """True for a group whose attributes are written out."""
        return _is_fused(self.outputs) and all(isinstance(node, Literal) for node in self.outputs[0].attrs.values())

    def _known_calls(self, rule: str) -> KnownCalls | None:
        """The calls that need not be built step by step at every match, if the target has no others."""
        if self.callable is not None or self.plan.variadic is not None or _is_fused(self.outputs):
            return None
        return KnownCalls.of(self._steps, self.outputs, rule)

    def _built(self, match: Match, graph: Graph, rule: str) -> list[Node]:
        outputs, steps = self.outputs, self._steps
        if self.callable is not None:
            made = self.callable(match)
            outputs = tuple(_made(item) for item in (made if isinstance(made, (list, tuple)) else [made]))
            steps = Steps(self.plan, self.free)
        builder = Builder(steps, match, graph, rule)
        variadic, old = self.plan.variadic, match.outputs
        first = outputs[0] if len(outputs) == 1 else None
        if isinstance(first, Fused):
            new = builder.fused(first)
        elif isinstance(first, Variadic) and variadic is not None:
            new = builder.instances(first, match.length(variadic), {})
        else:
            new = [builder.node(pattern, {}) for pattern in outputs]
        if self._known is not None:
            self._known.remember(builder, graph)
        return new if len(new) != len(old) else list(map(builder.new.instead, old, new))


def _links(match: Match, bound: Sequence[Node], graph: Graph) -> tuple[tuple[int, ...], ...] | None:
    """The operands of the nodes that a group consists of, by their places among the bound nodes.

    ``None`` where the body of the group depends on more than the bound nodes.
    """
    if not graph.shares_bodies:
        return None
    inside: Sequence[Node] = match.inner
    if TUPLE in [node.op for node in bound]:
        inside = (*inside, *[node for node in bound if node.op == TUPLE])
    place = dict(zip(bound, count())).__getitem__
    links: list[tuple[int, ...]] = []
    for node in inside:
        if node.deps:
            return None
        try:
            links.append(tuple(map(place, node.operands)))
        except KeyError:
            return None
    return tuple(links)


def _made(item: Any) -> Pattern:
    """The pattern for the value that a callable target returned for one output."""
    if isinstance(item, (Pattern, Node)):
        return to_pattern(item)
    raise PatternTypeError(f"the target returned {item!r} of type {type(item).__name__}, expected patterns or nodes")


def _is_fused(outputs: Sequence[Pattern]) -> TypeGuard[tuple[Fused]]:
    return len(outputs) == 1 and isinstance(outputs[0], Fused)


def _unmatched(outputs: Sequence[Pattern], bound: set[Pattern]) -> list[Pattern]:
    """The patterns that a target builds anew."""

    def below(pattern: Pattern) -> Iterable[Pattern]:
        if pattern in bound:
            return ()
        return (*pattern.children(), pattern.of) if isinstance(pattern, Like) else pattern.children()

    return [pattern for pattern in reached(outputs, below) if pattern not in bound]


def _check_lengths(node: Ast, owner: Pattern) -> None:
    """Refuse tuples whose length is taken from the value that they are compared with: here nothing is compared."""
    for part in parts(node):
        if isinstance(part, Each) and part.length is None and part.over is None:
            raise PatternError(
                f"{owner.location}: in a target, {part!r} has no length, which a source takes from the matched "
                "attribute: write attr.Variadic(…, length)"
            )


def _check_call(pattern: Call, bound: set[Pattern]) -> None:
    if pattern.operands is None:
        raise PatternError(f"{pattern.location}: the new {pattern.label} in the target needs its operands")
    if isinstance(pattern.op, OpClass):
        if not any(isinstance(other, Call) and other.op is pattern.op for other in bound):
            raise PatternError(
                f"{pattern.location}: the target builds a call of {pattern.op!r}, but the source has no call of that "
                "class object, so there is no matched operator"
            )
        if not pattern.op.joint:
            raise PatternError(
                f"{pattern.location}: the target builds a call of {pattern.op!r}, of which each matched node has an "
                "operator of its own: say whose, as matched.like(…)"
            )
        return
    if isinstance(pattern.op, OpSpec):
        missing = [
            name
            for name, spec in pattern.op.own_attrs.items()
            if spec.default is REQUIRED and name not in pattern.attrs
        ]
        if missing:
            raise PatternError(
                f"{pattern.location}: the new {pattern.op.name} in the target lacks the required "
                f"attribute{'s' * (len(missing) > 1)} {', '.join(map(repr, missing))}"
            )


def _free_attributes(patterns: Sequence[Pattern]) -> FreeAttrs:
    """The calls of every operator that the source names, with each attribute that none of them mentions."""
    calls: dict[str, list[Call]] = {}
    for pattern in patterns:
        if isinstance(pattern, Call):
            op = pattern.op
            names = (op.name,) if isinstance(op, OpSpec) else op.canonical if isinstance(op, OpClass) else ()
            for name in names:
                calls.setdefault(name, []).append(pattern)
    free: dict[str, tuple[tuple[Call, str], ...]] = {}
    for name, group in calls.items():
        mentioned = {attr for call in group for attr in call.attrs}
        free[name] = tuple((call, attr) for call in group for attr in TABLE[name].own_attrs if attr not in mentioned)
    return free


# ---------------------------------------------------------------- sources


Predicate = Callable[[Match], "bool | str"]


@dataclass(frozen=True)
class RuleSource:
    """The outputs of a source, and the conditions by their kinds."""

    outputs: tuple[Pattern, ...]
    guards: tuple[Ast, ...]
    predicates: tuple[Predicate, ...]
    constraints: tuple[Constraint, ...]
    extern_use: bool | None

    @staticmethod
    def of(src: Any, where: Any, extern_use: bool | None) -> RuleSource:
        """Sort the arguments of a rule. Raises PatternTypeError or PatternError for an argument that has no place in
        one."""
        groups = [item for item in _items(src, Group) if isinstance(item, Group)]
        outputs = [p for item in _items(src, Group) for p in (item.members if isinstance(item, Group) else (item,))]
        _check_outputs(outputs)
        conditions = _items(where, (Group, Constraint, Expr))
        constraints: dict[Constraint, None] = {c: None for group in groups for c in group.constraints}
        guards: list[Ast] = []
        predicates: list[Predicate] = []
        for condition in conditions:
            if isinstance(condition, Expr):
                guards.append(to_condition(condition, "where="))
            elif isinstance(condition, Constraint):
                constraints[condition] = None
            elif isinstance(condition, (Seq, Group)):
                constraints.update(dict.fromkeys(condition.constraints))
            elif takes_match(condition):
                predicates.append(condition)
            else:
                raise PatternTypeError(
                    located(
                        "where= takes attribute expressions, use relations and functions of the match, got "
                        f"{condition!r} of type {type(condition).__name__}"
                    )
                )
        check_unique(*outputs, *constraints)
        for constraint in constraints:
            if isinstance(constraint, NonLeafExternUse):
                extern_use = constraint.used
        if not guards and not predicates and not constraints and _is_bare(outputs):
            raise PatternError(
                located(f"the source {outputs[0]!r} is any node at all: demand something of it, or give a condition, "
                        "as where=…")
            )  # fmt: skip
        kept = tuple(c for c in constraints if not isinstance(c, NonLeafExternUse))
        return RuleSource(tuple(outputs), tuple(guards), tuple(predicates), kept, extern_use)


def _items(value: Any, single: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) and not isinstance(value, single) else [value]


def _is_bare(outputs: Sequence[Pattern]) -> bool:
    """True if a source is a single wildcard without demands."""
    return len(outputs) == 1 and isinstance(outputs[0], Wildcard) and outputs[0].guard is None


def _check_outputs(outputs: Sequence[Any]) -> None:
    for pattern in outputs:
        if not isinstance(pattern, Pattern):
            raise PatternTypeError.here(
                f"a source is made of patterns, got {pattern!r} of type {type(pattern).__name__}{instead(pattern)}"
            )
        if isinstance(pattern, (Fused, Like, Module)):
            raise PatternError(located(f"{pattern!r} belongs in a target"))
    if not outputs:
        raise PatternError(located("a source needs at least one pattern"))
    if len(set(outputs)) < len(outputs):
        raise PatternError(located("a pattern stands twice among the outputs of the source"))
