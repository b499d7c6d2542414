"""The systems that are compared. Each prepares its own copy of a graph; what it then does to it is timed."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import fx
from torch._inductor import pattern_matcher as inductor

from benchmarks.cases import Case
from gsl import Workload


@dataclass(frozen=True)
class Job:
    """One rewrite: what is timed, and how its result becomes a module afterwards."""

    work: Callable[[], Any]
    module: Callable[[Any], fx.GraphModule] = lambda result: result


System = Callable[[Case, fx.GraphModule], Job]


def gsl(case: Case, module: fx.GraphModule) -> Job:
    """The whole way: load, match, check, rewrite, store. The module itself stays unchanged."""
    return Job(lambda: case.rule(Workload.from_fx(module)).mod)


def gsl_engine(case: Case, module: fx.GraphModule) -> Job:
    """Match, check and rewrite on a view that is loaded already; storing is not timed."""
    workload = Workload.from_fx(module)
    view = workload.graph
    return Job(lambda: case.rule.apply(view)[0], lambda rewritten: workload.replace(rewritten).mod)


def replace_pattern(case: Case, module: fx.GraphModule) -> Job:
    """``torch.fx.replace_pattern``, on a copy that was made before."""
    changed = copy.deepcopy(module)

    def work() -> fx.GraphModule:
        fx.replace_pattern(changed, case.pattern, case.replacement)
        return changed

    return Job(work)


def inductor_matcher(case: Case, module: fx.GraphModule) -> Job:
    """The pattern matcher of inductor, on a copy that was made before; its rule is registered before, too."""
    changed = copy.deepcopy(module)
    patterns = inductor.PatternMatcherPass()

    def trace(function, arguments, **_):  # type: ignore[no-untyped-def]
        return inductor.fwd_only(function, arguments, run_functional_passes=False, get_decomp_fn=dict)

    inductor.register_replacement(
        case.pattern, case.replacement, list(case.arguments), trace, patterns, get_decomp_fn=dict
    )

    def work() -> fx.GraphModule:
        patterns.apply(changed.graph)
        changed.graph.lint()
        changed.recompile()
        return changed

    return Job(work)


def by_hand(case: Case, module: fx.GraphModule) -> Job:
    """A pass written for this one pattern, with the usual ``lint`` and ``recompile``, on a copy."""
    changed = copy.deepcopy(module)

    def work() -> fx.GraphModule:
        case.by_hand(changed)
        changed.graph.lint()
        changed.recompile()
        return changed

    return Job(work)


SYSTEMS: dict[str, System] = {
    "GSL": gsl,
    "GSL, engine only": gsl_engine,
    "FX replace_pattern": replace_pattern,
    "inductor's matcher": inductor_matcher,
    "FX by hand": by_hand,
}
