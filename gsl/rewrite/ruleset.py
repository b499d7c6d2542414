"""Sets of rules that are applied together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gsl.errors import PatternError, PatternTypeError, checked, located, nearest, require
from gsl.graph import Graph
from gsl.match import Match, candidates
from gsl.rewrite.apply import RewriteRun, apply, check_steps, everywhere, limit_of, on_subject, rewrite, view_of
from gsl.rewrite.explain import Explanation
from gsl.rewrite.fold import Evaluate
from gsl.rewrite.passes import Progress, silent
from gsl.rewrite.subst import Subst
from gsl.rewrite.termination import Watch
from gsl.rewrite.trace import Subject, Trace
from gsl.spec import DeclaredSpec

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from gsl.rulefile import Heuristic
    from gsl.verify import Verdict


STRATEGIES = ("priority", "largest", "first", "last")


class Explanations(dict[str, Explanation]):
    """The explanations of the rules of a set; prints one after the other."""

    def __str__(self) -> str:
        return "\n".join(map(str, self.values()))


@checked(PatternTypeError)
class RuleSet:
    """Rules that are applied in one go, each with a name of its own.

    Where matches overlap, ``strategy`` decides: ``"priority"`` takes rules of higher priority first; ``"largest"``
    the match that covers most nodes; ``"first"`` the one whose first output comes first in the graph; ``"last"`` the
    one whose first output comes last, and of these the largest, as a walk that starts at the outputs of the graph
    meets them. Among equals, the higher priority counts, then, for ``"priority"``, the order of the rules before the
    order of the graph, and otherwise the order of the graph before that of the rules.

    With ``tidy``, equal calls are computed once, those of the program too, and calls that nothing uses go: before the
    first pass and after each. Without it, only what rewriting made equal is shared, between the passes.
    """

    def __init__(
        self,
        rules: Iterable[Subst],
        *,
        strategy: str = "priority",
        max_steps: int | None = None,
        tidy: bool = False,
    ) -> None:
        if not isinstance(rules, Iterable) or isinstance(rules, str):
            raise PatternError.here(f"a RuleSet is made of a list of rules, as RuleSet([rule]), got {rules!r}")
        if isinstance(rules, (set, frozenset)):
            raise PatternError.here("the rules of a RuleSet are in an order, and a set has none: give a list")
        self.rules = tuple(rules)
        self._by_name: dict[str, Subst] = {}
        for rule in self.rules:
            if not isinstance(rule, Subst):
                more = "; its rules are written [*rules]" if isinstance(rule, (RuleSet, list, tuple)) else ""
                raise PatternError.here(f"a RuleSet is made of Subst, got {rule!r} of type {type(rule).__name__}{more}")
            other = self._by_name.setdefault(rule.name, rule)
            if other is not rule:
                raise PatternError.here(
                    f"two rules are named {rule.name!r}: {other.title} and {rule.title}; rename one"
                )
        if len(self._by_name) < len(self.rules):
            twice = next(rule for rule in self.rules if self.rules.count(rule) > 1)
            raise PatternError.here(
                f"the rule {twice.title} stands twice in the RuleSet; sets that share rules are joined as a + b"
            )
        if strategy not in STRATEGIES:
            raise PatternError.here(f"unknown strategy {strategy!r}: {nearest(strategy, STRATEGIES)}")
        check_steps(max_steps)
        if not isinstance(tidy, bool):
            raise PatternTypeError.here(f"tidy= is True or False, got {tidy!r}")
        self.strategy = strategy
        self.max_steps = max_steps
        self.tidy = tidy

    @classmethod
    def from_yaml(cls, path: str | Path, *, heuristics: Mapping[str, Heuristic] | None = None) -> RuleSet:
        """The operator fusion rules of a YAML file, see docs/fusion.md: matches become groups of the rule's name.

        A function in ``heuristics`` decides for the rules that name it what a match becomes: it gets the match, by the
        names of the file, and returns patterns or nodes as of a target, ``None`` for the group, or as a string why the
        match is refused. Raises RuleFileError, with line and column, for a file that is ill-formed. Needs PyYAML.
        """
        from gsl.rulefile import read_file, rules_of

        return cls(rules_of(read_file(path), heuristics))

    def to_yaml(self) -> str:
        """The text of a file with these rules. RuleFileError for rules that were not read from one."""
        from gsl.rulefile import to_yaml

        return to_yaml(self)

    @property
    def operators(self) -> tuple[DeclaredSpec, ...]:
        """The operators of users that the rules name."""
        return tuple({spec.name: spec for rule in self.rules for spec in rule.operators}.values())

    def __repr__(self) -> str:
        return f"<RuleSet of {len(self.rules)} rules, {self.strategy}>"

    def __len__(self) -> int:
        return len(self.rules)

    def __iter__(self) -> Iterator[Subst]:
        return iter(self.rules)

    def __contains__(self, rule: object) -> bool:
        return rule in self.rules or (isinstance(rule, str) and rule in self._by_name)

    def __getitem__(self, name: str) -> Subst:
        try:
            return self._by_name[name]
        except KeyError:
            raise KeyError(f"no rule is named {name!r}: {nearest(name, self._by_name)}") from None

    def __add__(self, other: RuleSet) -> RuleSet:
        """The rules of both, with the strategy and max_steps of the first, tidy if one is; a rule of both stands once.
        """
        if isinstance(other, (Subst, list, tuple)):
            example = "[rule]" if isinstance(other, Subst) else "[…]"
            raise PatternTypeError(located(f"a RuleSet is joined with another one: a + RuleSet({example})"))
        if not isinstance(other, RuleSet):
            return NotImplemented
        rules, tidy = dict.fromkeys((*self, *other)), self.tidy or other.tidy
        return RuleSet(rules, strategy=self.strategy, max_steps=self.max_steps, tidy=tidy)

    __radd__ = __add__  # reached by what is no RuleSet only

    def match(self, subject: Any) -> Iterator[tuple[Subst, Match]]:
        """All matches of all rules in a workload or graph view, without rewriting. They may overlap."""
        graph = view_of(subject, self.operators)
        for rule, where in zip(self.rules, candidates([rule.plan for rule in self.rules], graph.by_op())):
            for match in rule.plan.matches(graph, where=where):
                if rule.refused(match) is None:
                    yield rule, match

    def explain(self, subject: Any, *, nearest: int = 1) -> Explanations:
        """The reasons, for each rule by name, why it does not match, or is refused where it does; to be printed."""
        return Explanations({rule.name: rule.explain(subject, nearest=nearest) for rule in self.rules})

    def verify(
        self, *, max_examples: int = 200, seed: int = 0, mutate: bool = False, prove: bool = False, jobs: int = 1,
        executor: Executor | None = None, keep: str | Path | None = None,
    ) -> dict[str, Verdict]:  # fmt: skip
        """The verdict on each rule by name: a small graph on which its two sides differ, or none, see Subst.verify.

        With ``jobs``, so many processes work on them; or an ``executor`` as those of :mod:`concurrent.futures` does.
        With ``keep``, a file, only rules are verified that have changed since their verdicts were written there.
        """
        from gsl.verify import verify_all

        require("torch")
        return verify_all(
            self, max_examples=max_examples, seed=seed, mutate=mutate, prove=prove, jobs=jobs, executor=executor,
            keep=keep,
        )  # fmt: skip

    def __call__(
        self,
        subject: Subject,
        *,
        iterative: bool = False,
        max_steps: int | None = None,
        fold_params: bool = True,
        new_name: str | None = None,
        progress: Progress = silent,
    ) -> Subject:
        """A new workload in which the rules have been applied: one pass, or until nothing matches.

        As ``Subst`` does with one rule; ``max_steps`` goes before that of the set. ``progress`` is a function that is
        told in a line what is being done, for graphs that take long: ``rules(wl, progress=print)``.
        """
        return rewrite(
            self.rules,
            subject,
            strategy=self.strategy,
            tidy=self.tidy,
            iterative=iterative,
            max_steps=self.max_steps if max_steps is None else max_steps,
            fold_params=fold_params,
            new_name=new_name,
            progress=progress,
        )

    def apply(self, graph: Graph, *, iterative: bool = False, max_steps: int | None = None) -> tuple[Graph, Trace]:
        """A rewritten copy of a graph view, and the trace of the rewrite. A workload keeps the latter as its
        ``trace``."""
        return apply(
            self.rules,
            graph,
            strategy=self.strategy,
            tidy=self.tidy,
            iterative=iterative,
            max_steps=self.max_steps if max_steps is None else max_steps,
        )


# ---------------------------------------------------------------- sets that take turns


@checked(PatternTypeError)
def alternate(
    turns: Iterable[Subst | RuleSet],
    subject: Subject,
    *,
    max_steps: int | None = None,
    fold_params: bool = True,
    new_name: str | None = None,
) -> Subject:
    """A new workload (or graph view) in which rules took turns; the given one is unchanged.

    In every step each of the ``turns``, a rule or a set of rules, makes one pass, in order and with its own strategy.
    It ends when nothing fires in a whole step, or after ``max_steps`` steps; without that number, FixpointError where
    there is no end. All that happened is one trace, with a round for each pass.
    """
    if not isinstance(turns, Iterable):
        raise PatternError(f"alternate takes a list of rules and sets, and then a workload; got {turns!r} as the list")
    sets = [turn if isinstance(turn, RuleSet) else RuleSet([turn]) for turn in turns]
    rules = _by_name(sets)
    check_steps(max_steps, "steps")

    def work(graph: Graph, evaluate: Evaluate | None, own: bool) -> tuple[Graph, Trace]:
        for rule in rules.values():
            rule.plan.check(graph)
        trace = Trace(rules=rules, iterative=True, tidy=any(turn.tidy for turn in sets))
        run = RewriteRun(graph, trace, evaluate if fold_params else None)
        run.start()
        limit = limit_of(graph) if max_steps is None else None
        watch: Watch | None = None
        steps = 0
        while max_steps is None or steps < max_steps:
            steps += 1
            if not _step(run, sets, limit):
                break
            if max_steps is None:
                watch = watch or Watch(graph)
                watch.check(run.graph, run.trace)
        return run.done()

    named = [spec for rule in rules.values() for spec in rule.operators]
    return on_subject(subject, work, new_name, named, everywhere(work))


def _step(run: RewriteRun, sets: Iterable[RuleSet], limit: int | None) -> bool:
    """Let each of the sets make a pass; whether any rule fired."""
    run.trace.refused.clear()  # what is refused in the end is what counts
    fired = [run.round(rules.strategy, limit, rules) for rules in sets]
    return any(fired)


def _by_name(sets: Iterable[RuleSet]) -> dict[str, Subst]:
    """The rules of all sets; PatternError where two have one name, or there is none."""
    rules: dict[str, Subst] = {}
    for rule in chain.from_iterable(sets):
        other = rules.setdefault(rule.name, rule)
        if other is not rule:
            raise PatternError(
                located(f"two rules are named {rule.name!r}: {other.title} and {rule.title}; rename one")
            )
    if not rules:
        raise PatternError(located("alternate: expected rules that take turns, got none"))
    return rules
