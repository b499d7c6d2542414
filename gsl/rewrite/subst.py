"""Rules: a source, a target, and the conditions between them."""

from __future__ import annotations

import keyword
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, Final

from gsl.attr.ast import Ast
from gsl.draw import Drawing, saved
from gsl.draw.rule import rule_drawing
from gsl.errors import (
    DroppedAttributeWarning,
    PatternError,
    PatternTypeError,
    RewriteError,
    caller,
    check_number,
    checked,
    require,
)
from gsl.graph import Graph, Op, op_name
from gsl.match import Match, Plan
from gsl.pat import Call, Group, Pattern, walk
from gsl.pat.base import packed, unpacked
from gsl.pat.code import code
from gsl.pat.opclass import declared_operators, key
from gsl.pat.text import text
from gsl.rewrite.apply import apply, rewrite, view_of, why_kept
from gsl.rewrite.check import Refusal
from gsl.rewrite.explain import Explanation, explain
from gsl.rewrite.fingerprint import check
from gsl.rewrite.target import RuleSource, Target
from gsl.rewrite.trace import Subject, Trace
from gsl.spec import DeclaredSpec, OpSpec

if TYPE_CHECKING:
    from gsl.rewrite.ruleset import RuleSet
    from gsl.verify import Verdict


_BOOLS: Final = ("bool", "bool_")
"""The names of the types of True: Python's, and numpy's, which has had both."""


@checked(PatternTypeError)
class Subst:
    """A graph substitution: wherever ``src`` matches, ``tgt`` takes its place.

    ``src`` is a pattern, a sequence, a list of patterns that share nodes, a group, or a variadic. ``tgt`` gives for
    every output what replaces it: a pattern, a list, a variadic, or a function from the match to these. ``where`` is a
    condition or a list of them: attribute expressions, use relations, or functions ``match -> bool | str``, where a
    string is the reason for refusing. ``extern_use=False`` demands that no inner node is used elsewhere (otherwise
    such a node stays alive beside its replacement), ``True`` that each is. ``distinct`` demands that no two leaves are
    the same node. Calls of the operators in ``fuzzy`` may stand between two related nodes of the match. A rule that is
    ``inference_only`` is left out where ``torch.compile`` is at work on a graph whose gradients are wanted. One that is
    ``approximate`` changes numbers by more than rounding: ``gsl.optimize`` uses it only within a tolerance.

    Raises PatternError (with the place) for a rule that is not well-formed, and warns (DroppedAttributeWarning) when
    the target rebuilds an operator without an attribute that the source leaves free.
    """

    def __init__(
        self,
        src: Pattern | Group | Sequence[Any],
        tgt: Any,
        *,
        where: Any = (),
        name: str | None = None,
        priority: int = 0,
        extern_use: bool | None = None,
        distinct: bool = False,
        fuzzy: str | Sequence[Any] = (),
        inference_only: bool = False,
        approximate: bool = False,
        doc: str = "",
    ) -> None:
        self.location = caller()
        self._check_options(
            name=name, priority=priority, extern_use=extern_use, distinct=distinct, inference_only=inference_only,
            approximate=approximate, doc=doc,
        )  # fmt: skip
        self.leaves: Mapping[str, Any] = {}
        """The leaves and literals by the names of the parameters, for a rule that was made of programs."""
        self.name = name if name is not None else f"rule at {self.location}"
        self.priority = priority
        self.inference_only = inference_only
        self.approximate = approximate
        self.doc = doc
        try:
            self.source = RuleSource.of(src, where, extern_use)
            self._compile(tgt, distinct, _operators(fuzzy))
            _check_symbols((*self.source.outputs, *self.target.outputs), self.source.guards)
        except PatternError as error:
            told = str(error).removeprefix(f"{self.location}: ")
            raise type(error)(f"{self.title}: {told}") from None
        self._warn()

    def _check_options(self, **options: Any) -> None:
        for name, value in options.items():
            kinds, expected = _OPTIONS[name]
            if not isinstance(value, kinds):
                raise PatternTypeError(f"{self.location}: {name}= of a rule is {expected}, got {value!r}")
        if len((options["name"] or "rule").split("\n")) > 1 or options["name"] == "":
            raise PatternError(f"{self.location}: name= of a rule is a line of text, got {options['name']!r}")

    @classmethod
    def from_programs(
        cls,
        before: Any,
        after: Any,
        *,
        where: Any = (),
        name: str | None = None,
        priority: int = 0,
        extern_use: bool | None = None,
        distinct: bool = False,
        fuzzy: str | Sequence[Any] = (),
        inference_only: bool = False,
        approximate: bool = False,
        doc: str = "",
        beside: Subst | RuleSet | None = None,
        **leaves: Any,
    ) -> Subst:
        """The rule of two programs with the same parameters, which are its leaves: what ``before`` computes is replaced
        by what ``after`` computes.

        A program is a function of tensors, a module of torch (its weights are leaves, too), or anything that a workload
        is made of. Positional parameters are tensors, keyword-only ones are literals that may vary; other literals are
        as they are. ``leaves`` gives by parameter a shape of named sizes (``q="b h n d"``, ``mask="*b n m"``,
        ``ids="int64[b n]"``; annotations of jaxtyping say the same), a pattern, or, for a literal, a list of values to
        try. Equal names are equal sizes; what is not said is free. A function in ``where`` whose parameters are
        parameters of the programs makes a condition of their patterns. ``beside`` are rules that are applied before
        this one, or together with it: the source is in the form in which they leave ``before``. The other arguments are
        those of a rule, whose ``leaves`` are these patterns by name.

        Functions are traced with several sizes, ranks and literals; what differs becomes an expression. PatternError
        with the place where that is not possible. Needs the framework of the programs.
        """
        from gsl.programs import rule_from_programs

        options = {
            "name": name, "priority": priority, "extern_use": extern_use, "distinct": distinct, "fuzzy": fuzzy,
            "inference_only": inference_only, "approximate": approximate, "doc": doc,
        }  # fmt: skip
        rule, found = rule_from_programs(cls, before, after, where, beside, leaves, options)
        rule.leaves = found
        return rule

    def _compile(self, target: Any, distinct: bool, fuzzy: Iterable[Op]) -> None:
        source = self.source
        self.plan = Plan(
            source.outputs,
            source.guards,
            constraints=source.constraints,
            distinct=distinct,
            extern_use=source.extern_use,
            fuzzy=tuple(fuzzy),
        )
        self.target = Target(target, self.plan)
        named = walk(*self.plan.patterns, *self.target.outputs)
        self.operators: tuple[DeclaredSpec, ...] = declared_operators(named, self.plan.fuzzy)
        """The operators of users that the rule names, which it brings to the workloads to which it is applied."""

    def __deepcopy__(self, memo: Any) -> Subst:
        return self

    def __getstate__(self) -> dict[str, Any]:
        """The parts from which the rule was made; it is compiled anew where it is read. Operands come first, so nothing
        recurses."""
        check(self)
        compiled = ("plan", "target", "operators")
        return {
            "patterns": tuple(walk(*self.plan.patterns, *self.target.outputs)),
            "given": (self.target.callable or self.target.outputs, self.plan.distinct, packed(self.plan.fuzzy)),
            "fields": {name: value for name, value in vars(self).items() if name not in compiled},
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state["fields"])
        target, distinct, fuzzy = state["given"]
        self._compile(target, distinct, unpacked(fuzzy))

    def __repr__(self) -> str:
        return f"<Subst {self.name}>"

    def __str__(self) -> str:
        """The rule in full: name, algebra, source, conditions, target."""
        where = (*self.source.constraints, *self.source.guards, *self.source.predicates)
        name = f"{self.name} (approximate)" if self.approximate else self.name
        options = [f"{key}={value!r}" for key, value in (
            ("extern_use", self.source.extern_use), ("distinct", self.plan.distinct or None),
            ("fuzzy", tuple(sorted(map(op_name, self.plan.fuzzy))) or None),
        ) if value is not None]  # fmt: skip
        return text(name, self.doc, self.source.outputs, self.target.outputs, where, options)

    def to_python(self, name: str = "rule") -> str:
        """The statements that build the rule under this name, after ``from gsl import *``.

        They import the operators of users that a module has; others are to be declared before. PatternError where
        something of the rule has no such text: a function, a use relation, an array.
        """
        if not name.isidentifier() or keyword.iskeyword(name):
            raise PatternError(f"name= is the name of the variable that holds the rule, got {name!r}")
        source = self.source
        where = (*source.constraints, *source.guards, *source.predicates)
        given = {"priority": self.priority, "distinct": self.plan.distinct, "inference_only": self.inference_only,
                 "approximate": self.approximate, "doc": self.doc}  # fmt: skip
        arguments: dict[str, Any] = {key: value for key, value in given.items() if value}
        if source.extern_use is not None:
            arguments["extern_use"] = source.extern_use
        if f"rule at {self.location}" != self.name:
            arguments["name"] = self.name
        if self.target.callable is not None or self.plan.fuzzy:
            raise PatternError(f"{self.title} can't be written as Python: it has a function as its target, or fuzzy=")
        return code(name, source.outputs, self.target.outputs, where, self.leaves, arguments)

    def narrowed(self, condition: Callable[[Match], bool | str]) -> Subst:
        """This rule with one more condition, as those in ``where``: a function of the match."""
        rule = object.__new__(type(self))
        vars(rule).update(vars(self))
        rule.source = replace(self.source, predicates=(*self.source.predicates, condition))
        return rule

    def visualize(self, path: str | Path | None = None) -> Drawing:
        """A drawing of the rule, source and target side by side, also written to ``path`` (.svg, .png, .pdf, .dot)."""
        return saved(rule_drawing(self), path)

    def _repr_svg_(self) -> str | None:
        return self.visualize()._repr_svg_()

    @property
    def title(self) -> str:
        """The rule's name, and where it was written."""
        return self.name if str(self.location) in self.name else f"{self.name} ({self.location})"

    def __call__(
        self,
        subject: Subject,
        *,
        iterative: bool = False,
        max_steps: int | None = None,
        fold_params: bool = True,
        new_name: str | None = None,
    ) -> Subject:
        """A new workload (or graph view) in which the rule has been applied; the given one is unchanged.

        One pass over non-overlapping matches; ``iterative`` repeats it until nothing matches, and lets one call stand
        for those that a pass made equal. FixpointError after ``max_steps`` rewrites, or as soon as the graph is what
        it was before. ``fold_params`` computes what depends on weights only, after each pass.
        """
        return rewrite(
            [self], subject, iterative=iterative, max_steps=max_steps, fold_params=fold_params, new_name=new_name
        )

    def apply(self, graph: Graph, *, iterative: bool = False, max_steps: int | None = None) -> tuple[Graph, Trace]:
        """A rewritten copy of a graph view, and the trace of the rewrite. A workload keeps the latter as its
        ``trace``."""
        return apply([self], graph, iterative=iterative, max_steps=max_steps)

    def explain(self, subject: Any, *, nearest: int = 3) -> Explanation:
        """The reasons why the rule does not match a workload or graph view, or is refused where it does; to be
        printed. That of a workload has explanations of the graphs within its calls, too."""
        check_number("nearest", nearest, "a number of partial matches", 0)

        def explained(part: Any) -> Explanation:
            view = view_of(part, self.operators)
            if part is view:
                return explain(self, view, nearest)
            return explain(self, view, nearest, lambda: why_kept([self], part), part.why_unread)

        found = explained(subject)
        parts = {} if isinstance(subject, Graph) else subject.inside
        return replace(found, inside={name: explained(part) for name, part in parts.items()})

    def match(self, subject: Any) -> Iterator[Match]:
        """The matches in a workload or graph view, without rewriting. They may overlap."""
        for match in self.plan.matches(view_of(subject, self.operators)):
            if self.refused(match) is None:
                yield match

    def verify(
        self, *, max_examples: int = 200, seed: int = 0, mutate: bool = False, prove: bool = False
    ) -> Verdict:
        """Look for a small graph on which the two sides differ: Refuted, Supported or Unchecked, with the reason.

        ``max_examples`` graphs are made from the source, rewritten, and compared. ``mutate`` also breaks the rule in
        small ways, and tells how many of these mistakes are found. ``prove`` also looks for a proof: Proved where
        there is one. Equal seeds give equal verdicts. Needs torch, and z3 for a proof.
        """
        from gsl.verify import verify

        require("torch")
        return verify(self, max_examples=max_examples, seed=seed, mutate=mutate, prove=prove)

    def refused(self, match: Match) -> str | None:
        """The reason why the conditions of the rule refuse a match; ``None`` if they don't."""
        for predicate in self.source.predicates:
            try:
                verdict = predicate(match)
            except Exception as error:
                raise RewriteError(
                    f"{self.title}: a function in where= failed for {match!r}: {type(error).__name__}: {error}"
                ) from error
            if isinstance(verdict, str):
                return verdict
            if type(verdict).__name__ not in _BOOLS:
                raise RewriteError(
                    f"{self.title}: a function in where= returns True, False, or the reason for refusing as a string; "
                    f"got {verdict!r} of type {type(verdict).__name__}"
                )
            if not verdict:
                return f"{getattr(predicate, '__name__', predicate)} is false"
        return None

    def admit(self, match: Match) -> None:
        """Raise Refusal where the conditions of the rule refuse a match."""
        reason = self.refused(match)
        if reason is not None:
            raise Refusal(reason)

    def _warn(self) -> None:
        for pattern in walk(*self.target.outputs):
            if not isinstance(pattern, Call) or not isinstance(pattern.op, OpSpec) or pattern in self.plan.known:
                continue
            names = {attr for _, attr in self.target.free.get(pattern.op.name, ()) if attr not in pattern.attrs}
            if names:
                listed = ", ".join(repr(attr) for attr in pattern.op.attrs if attr in names)
                warnings.warn(
                    f"{self.name} ({pattern.location}): the source leaves {listed} of {pattern.op.name} free, and the "
                    f"target rebuilds it without; matches where that would change a value are refused. "
                    f"Build it from the matched call, as {pattern.op.cls.lower()}.like(…), or give the attributes",
                    DroppedAttributeWarning,
                    stacklevel=4,
                )


_OPTIONS: Mapping[str, tuple[Any, str]] = {
    "name": ((str, NoneType), "a string"),
    "priority": ((int, float), "a number"),
    "extern_use": ((bool, NoneType), "True, False or None"),
    **dict.fromkeys(("distinct", "inference_only", "approximate"), (bool, "True or False")),
    "doc": (str, "a string"),
}
"""The types of the options of a rule, and how they are named."""


def _operators(ops: str | Sequence[Any]) -> tuple[Op, ...]:
    return tuple(key(op) for op in ([ops] if isinstance(ops, str) or not isinstance(ops, Sequence) else ops))


def _check_symbols(outputs: Sequence[Pattern], guards: Sequence[Ast]) -> None:
    free = [(symbol, f"{pattern.location}: {pattern!r}") for pattern in outputs for symbol in pattern.free_symbols]
    free += [(symbol, f"where=: {guard!r}") for guard in guards for symbol in guard.symbols]
    for symbol, place in free:
        raise PatternError(f"{place}: the symbol {symbol!r} is not bound: give it as index= of a variadic around it")

