"""The search for an instance on which the two sides of a rule differ."""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from math import inf
from typing import Any

from gsl.errors import GSLError
from gsl.graph import LEAVES, Graph, TensorType
from gsl.pat import Pattern
from gsl.rewrite import Subst
from gsl.spec import spec_of
from gsl.verify.choices import ATTEMPTS, Coverage, Dead, Random
from gsl.verify.instance import generate
from gsl.verify.models import Comparison
from gsl.verify.shapes.conv import DRAWN
from gsl.verify.skeleton import describe
from gsl.verify.solve import OWN, free_leaves, others
from gsl.verify.verdict import MINIMUM, Evidence

# ---------------------------------------------------------------- one instance


@dataclass(frozen=True)
class Outcome:
    """An instance and its outcome."""

    status: str
    """``"unmatched"``, ``"refused"``, ``"fired"`` (nothing could be compared), ``"equal"`` or ``"different"``."""
    before: Graph
    after: Graph | None = None
    comparison: Any = None
    reason: str = ""
    """The reason why the rule was refused, or the error."""
    refusals: int = 0
    """The number of matches that were refused, those beside one that was rewritten too."""

    @property
    def is_evaluated(self) -> bool:
        return self.status in ("equal", "different")


def outcome(rule: Subst, before: Graph, compare: Any, seed: int) -> Outcome:
    """Apply the rule to an instance with the real engine, and compare."""
    try:
        after, trace = rule.apply(before)
    except GSLError as error:
        return Outcome("refused", before, reason=str(error))
    if not trace.firings:
        if trace.refused:
            return Outcome("refused", before, reason=trace.refused[0].reason, refusals=len(trace.refused))
        return Outcome("unmatched", before)
    refusals = len(trace.refused)
    try:
        comparison = compare(before, after, seed=seed)
    except ValueError as error:
        return Outcome("fired", before, after, reason=str(error), refusals=refusals)
    status = "fired" if not comparison.compared else "equal" if comparison.equal else "different"
    return Outcome(status, before, after, comparison, refusals=refusals)


# ---------------------------------------------------------------- the search


Compare = Callable[..., Comparison]
_NUMBERS = re.compile(r"\d+|[\[(][\d, ]*[\])]")
VALUES = 40
"""The largest number of different values of an attribute that are told."""


class CounterexampleSearch:
    """The instances of one rule: their generation, and their outcomes."""

    def __init__(self, rule: Subst, compare: Compare, seed: int) -> None:
        self.rule = rule
        self.compare = compare
        self.seed = seed
        self.coverage = Coverage()
        self.attempts = 0
        self.counts: Counter[str] = Counter()
        self.drawn: Counter[str] = Counter()
        """The outcomes of those that repeat no decisions of an earlier one."""
        self.failed: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.refusals = 0
        """The number of matches that were refused."""
        self.without: Counter[str] = Counter()
        """The reasons why nothing could be compared on an instance on which the rule fired."""
        self.equal: list[Graph] = []
        self.different: list[tuple[Outcome, list[int]]] = []
        """The instances on which the sides differ, with the decisions that led to them."""
        self._kinds: dict[str, str] = {}
        """The first of the reasons that differ in numbers only."""
        self._texts: set[str] = set()
        self._methods: dict[str, Counter[str]] = {}
        self._attributes: dict[str, dict[Any, None]] = {}
        self._ranks: set[int] = set()
        self._sizes: set[int] = set()
        self._dtypes: set[str] = set()
        self._given: dict[float, None] = {}
        self._chance: float | None = None
        self.most_in_vain: float = inf
        """The search ends when so many times as many instances were made in vain as were evaluated."""

    @property
    def evaluated(self) -> int:
        return self.counts["equal"] + self.counts["different"]

    @property
    def in_vain(self) -> int:
        """The number of instances that were made, of no earlier one, and refused or not matched."""
        return self.drawn["refused"] + self.drawn["unmatched"]

    @property
    def is_vain(self) -> bool:
        """True if too many instances were made in vain, after a few."""
        return self.in_vain > self.most_in_vain * max(self.drawn["equal"] + self.drawn["different"], MINIMUM)

    def run(self, examples: int, *, until_different: bool, attempts: int = ATTEMPTS) -> None:
        """Evaluate so many more instances, or until one is found on which the sides differ.

        For each of them so many attempts are made at most.
        """
        wanted = self.evaluated + examples
        last = self.attempts + attempts * examples
        while self.attempts < last and self.evaluated < wanted and not (until_different and self.different):
            if self.is_vain:
                return
            self.step()

    def step(self) -> None:
        """Make one instance, and note its outcome."""
        choices = Random(f"{self.seed} {self.attempts}", self.coverage, small=self.attempts % 3 == 0)
        self.attempts += 1
        try:
            before = generate(self.rule, choices)
        except Dead as dead:
            self.failed[str(dead)] += 1
            choices.tried()
            return
        found = self.attempt(before)
        self.counts[found.status] += 1
        self.drawn[found.status] += not choices.parent
        self.refusals += found.refusals
        choices.tried(is_made=True)
        if found.status == "fired":
            self.without[found.reason or "the source has no finite values on what was tried"] += 1
        if found.status == "refused":
            self.refused[self._kinds.setdefault(_NUMBERS.sub("", found.reason), found.reason)] += 1
        if found.is_evaluated:
            choices.used()
            self._note(found)
            if found.status == "equal":
                self.equal.append(before)
            else:
                self.different.append((found, choices.tape))

    def attempt(self, before: Graph) -> Outcome:
        """The outcome of an instance."""
        return outcome(self.rule, before, self.compare, self.seed + self.attempts)

    def _note(self, found: Outcome) -> None:
        """Note the choices that an evaluated instance covers."""
        self._texts.add(str(found.before))
        for output in found.comparison.outputs:
            name = f"output {'.'.join(map(str, output.path))}"
            self._methods.setdefault(name, Counter())[output.method] += 1
            if output.chance < 1.0:
                self._chance = max(self._chance or 0.0, output.chance)
        for node in found.before.nodes:
            if node.op in LEAVES and isinstance(node.type, TensorType):
                self._ranks.add(node.type.ndim)
                self._sizes.update(size for size in node.type.shape if isinstance(size, int))
                self._dtypes.add(node.type.dtype)
            if "given" in node.attrs:
                self._given[node.attrs["value"]] = None
            spec = spec_of(node.op)
            for name in () if spec is None else spec.attrs:
                values = self._attributes.setdefault(f"{node.op}.{name}", {})
                if len(values) < VALUES:
                    values[node.attrs[name]] = None

    def evidence(self) -> Evidence:
        """The evidence so far."""
        covered, missing = self._covered()
        fired = self.evaluated + self.counts["fired"]
        return Evidence(
            seed=self.seed,
            generated=fired + self.counts["refused"],
            fired=fired,
            evaluated=self.evaluated,
            distinct=len(self._texts),
            methods={name: dict(counts.most_common()) for name, counts in sorted(self._methods.items())},
            ranks=tuple(sorted(self._ranks)),
            sizes=tuple(sorted(self._sizes)),
            dtypes=tuple(sorted(self._dtypes)),
            attributes={name: tuple(values) for name, values in self._attributes.items()},
            covered=tuple(covered),
            missing=tuple(missing),
            lacking=tuple(self._lacking()),
            undrawn=self._undrawn(),
            refused=dict(self.refused.most_common()),
            unmatched=self.counts["unmatched"],
            failed=dict(self.failed.most_common()),
            given=tuple(self._given),
            chance=self._chance,
        )

    def _undrawn(self) -> dict[str, tuple[str, ...]]:
        """The dtypes that a leaf never had on its own, for each leaf of which no dtype is demanded."""
        undrawn: dict[Pattern, dict[str, None]] = {leaf: dict.fromkeys(OWN) for leaf in free_leaves(self.rule.plan)}
        for label, option in (used for used, count in self.coverage.used.items() if count):
            match label:
                case ("dtype", Pattern() as leaf, str(dtype)):
                    undrawn[leaf].pop(others(dtype)[option], None)
        return {f"{leaf!r} ({leaf.location})": tuple(dtypes) for leaf, dtypes in undrawn.items() if dtypes}

    def _covered(self) -> tuple[list[str], list[str]]:
        covered: list[str] = []
        missing: list[str] = []
        for label, count in self.coverage.counts.items():
            for option in range(count):
                text = describe(label, option)
                if text is not None:
                    (covered if self.coverage.used[label, option] else missing).append(text)
        return list(dict.fromkeys(covered)), [text for text in dict.fromkeys(missing) if text not in covered]

    def _lacking(self) -> Iterator[str]:
        """The numbers in attributes of convolutions that no instance had, of those that are drawn."""
        for name, values in self._attributes.items():
            drawn = DRAWN.get(name.rpartition(".")[2])
            if drawn is not None and name.startswith("nn.conv") and len(values) > 1:
                had = {number for value in values for number in (value if isinstance(value, tuple) else (value,))}
                lacking = [str(number) for number in drawn if number not in had]
                if lacking:
                    yield f"{name} {', '.join(lacking)}"


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch use one thread: for tensors of a few elements, handing them out costs far more than it gains.

    It is one of the CPU, whatever the default device is, and the caller's autocast does not count. Nothing warns:
    instances have odd sizes and values.
    """
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch._C._DisableAutocast(), _on_cpu(torch), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        torch.set_num_threads(threads)


def _on_cpu(torch: Any) -> AbstractContextManager[Any]:
    """Makes new tensors lie on the CPU. It costs something at each call, so it is nothing where they do anyway."""
    return nullcontext() if torch.get_default_device().type == "cpu" else torch.device("cpu")
