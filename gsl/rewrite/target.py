"""Targets: the patterns that replace the outputs of a source, checked against the source when the rule is built."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

from gsl.attr import Expr
from gsl.attr.ast import Ast, Each
from gsl.errors import PatternError, PatternTypeError, located
from gsl.graph import Graph, Node
from gsl.match import Match
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
    Seq,
    Variadic,
    Wildcard,
    to_pattern,
)
from gsl.pat import Match as MatchClause
from gsl.pat.reads import parts, references
from gsl.pat.use import check_unique
from gsl.rewrite.build import Builder, check_demands
from gsl.rewrite.recipe import Build, MakeBuilder, written
from gsl.spec import REQUIRED, OpSpec

BUILDS = 8
"""The number of times that a target is built before it pays to write a function for it."""


class Target:
    """The replacement for the outputs of a source: patterns, a variadic, or a callable that makes them from the match.

    Raises PatternError for a target that can't be built from the source.
    """

    def __init__(self, target: Any, source: Sequence[Pattern], known: Collection[Pattern]) -> None:
        self.source = tuple(source)
        self.known = frozenset(known)
        """All patterns of the source."""
        self.callable: Callable[[Match], Any] | None = None
        self.outputs: tuple[Pattern, ...] = ()
        self.left = 0 if callable(target) and not isinstance(target, Pattern) else BUILDS
        """The number of times that it is still built before a function is written that does it."""
        self._function: Build | None = None
        if callable(target) and not isinstance(target, Pattern):
            self.callable = target
        else:
            self.outputs = self._outputs(target)
            self._check()

    def _outputs(self, target: Any) -> tuple[Pattern, ...]:
        items = list(target) if isinstance(target, (list, tuple)) else [target]
        outputs: list[Pattern] = []
        for item in items:
            if not isinstance(item, Pattern):
                raise PatternError(f"a target is made of patterns, got {item!r} of type {type(item).__name__}")
            outputs.append(item)
        if isinstance(self.source[0], Variadic) and not _is_fused(outputs):
            if len(outputs) != 1 or not isinstance(outputs[0], Variadic):
                raise PatternError("a variadic source is replaced by a variadic: give one pat.Variadic(…) as target")
        elif len(outputs) != len(self.source) and not _is_fused(outputs):
            raise PatternError(
                f"the source has {len(self.source)} outputs, the target {len(outputs)}: each output needs what "
                "replaces it"
            )
        return tuple(outputs)

    def _check(self) -> None:
        bound = set(self.known)
        templates = {t for pattern in bound if isinstance(pattern, Variadic) for t in pattern.templates}
        for pattern in _unmatched(self.outputs, bound - templates):
            if pattern in templates:
                raise PatternError(
                    f"{pattern.location}: {pattern!r} is a template, of which there are many: the target must say "
                    "which, as variadic(pattern, index)"
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
            if isinstance(pattern, MatchClause) and pattern.alternative not in bound:
                raise PatternError(f"{pattern.location}: {pattern.alternative!r} is not part of the source")
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
                        f"{pattern.location}: {pattern!r} refers to {used!r}, a template, of which there are many: say "
                        "which, as variadic(pattern, index)"
                    )
                if isinstance(used, (Leaf, Alt)) and used not in bound:
                    raise PatternError(f"{pattern.location}: {pattern!r} refers to {used!r}, which the source lacks")
            if isinstance(pattern, Variadic) and pattern.count is None and pattern not in self.outputs:
                raise PatternError(f"{pattern.location}: a variadic inside a target needs length=…")

    def build(
        self, match: Match, graph: Graph, builder: MakeBuilder
    ) -> tuple[Sequence[Node], tuple[Node, ...] | None]:
        """The nodes that replace the outputs of a match, in order, and, if that is known, all nodes that were made.

        Raises Refusal, and whatever the callable raises.
        """
        function = self._function
        if function is None:
            by_reference = builder(match, graph)
            function = self._written(by_reference) if self.left else None
            if function is None:
                new, old = self.build_by_reference(by_reference), match.outputs
                return (new if len(new) != len(old) else list(map(by_reference.instead, old, new))), None
        return function(match, graph, builder)

    def _written(self, builder: Builder) -> Build | None:
        """The function that builds the target, if there is one, and it is worth it by now."""
        self.left -= 1
        if not self.left:
            plan = builder.match.plan
            rule, free = builder.origin.rule, builder.free
            self._function = written(self.outputs, plan.known, plan.sure, plan.scopes, rule, free)
        return self._function

    def build_by_reference(self, builder: Builder) -> list[Node]:
        """The nodes that the target is made of for a match, built pattern by pattern."""
        outputs: tuple[Pattern, ...] = self.outputs
        if self.callable is not None:
            made = self.callable(builder.match)
            outputs = tuple(_made(item) for item in (made if isinstance(made, (list, tuple)) else [made]))
        if _is_fused(outputs):
            return builder.fused(outputs[0])
        if len(outputs) == 1 and isinstance(outputs[0], Variadic) and isinstance(self.source[0], Variadic):
            return builder.instances(outputs[0], builder.match.length(self.source[0]))
        return [builder.build(pattern) for pattern in outputs]


def _made(item: Any) -> Pattern:
    """The pattern for the value that a callable target returned for one output."""
    if isinstance(item, (Pattern, Node)):
        return to_pattern(item)
    raise PatternTypeError(f"the target returned {item!r} of type {type(item).__name__}, expected patterns or nodes")


def _is_fused(outputs: Sequence[Pattern]) -> TypeGuard[tuple[Fused]]:
    return len(outputs) == 1 and isinstance(outputs[0], Fused)


def _unmatched(outputs: Sequence[Pattern], bound: set[Pattern]) -> list[Pattern]:
    """The patterns that a target builds anew."""
    found: dict[Pattern, None] = {}
    work = list(outputs)
    while work:
        pattern = work.pop()
        if pattern not in bound and pattern not in found:
            found[pattern] = None
            work.extend(pattern.children())
    return list(found)


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
            for name, spec in pattern.op.attrs.items()
            if spec.default is REQUIRED and spec.derive is None and name not in pattern.attrs
        ]
        if missing:
            raise PatternError(
                f"{pattern.location}: the new {pattern.op.name} in the target lacks the required "
                f"attribute{'s' * (len(missing) > 1)} {', '.join(map(repr, missing))}"
            )


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
                guards.append(condition.ast)
            elif isinstance(condition, Constraint):
                constraints[condition] = None
            elif isinstance(condition, (Seq, Group)):
                constraints.update(dict.fromkeys(condition.constraints))
            elif callable(condition) and not isinstance(condition, Pattern):
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
            raise PatternTypeError(
                located(f"a source is made of patterns, got {pattern!r} of type {type(pattern).__name__}")
            )
        if isinstance(pattern, (Fused, Like, Module)):
            raise PatternError(located(f"{pattern!r} belongs in a target"))
    if not outputs:
        raise PatternError(located("a source needs at least one pattern"))
    if len(set(outputs)) < len(outputs):
        raise PatternError(located("a pattern stands twice among the outputs of the source"))
