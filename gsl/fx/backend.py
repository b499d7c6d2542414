"""Rules as a back end for ``torch.compile``."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any

import torch
from torch import fx

from gsl.cost.greedy import Greedy
from gsl.cost.model import WantedCost, model_of
from gsl.cost.optimization import default_rules, device_type, stages_of
from gsl.cost.space import Clock, Space, Trial
from gsl.errors import (
    EvaluationError,
    FixpointError,
    FrontEndError,
    GSLError,
    NotRewrittenWarning,
    PatternError,
    PatternTypeError,
    RewriteError,
    WorkloadError,
    check_number,
    checked,
    nearest,
)
from gsl.front.fx.compiled import CompiledProgram, hoisted, is_autocast
from gsl.front.fx.program import RegionProgram
from gsl.front.fx.regions import regions
from gsl.front.fx.values import Values
from gsl.fx.passes import GraphExplanations, Rules, applied, explained, is_training, kept, note_left_out, rule_set
from gsl.graph import LEAVES
from gsl.rewrite import RuleSet, Subst, Trace
from gsl.rewrite.check import seen_through
from gsl.workload import Workload

OnRewrite = Callable[[Trace, fx.GraphModule, fx.GraphModule], object]
_OF_RULES = (RewriteError, FixpointError, EvaluationError)
"""The errors of which a rule is the cause, and not a graph that can't be read or written."""


@checked(PatternTypeError)
def torch_backend(
    rules: Rules | Iterable[RuleSet] | None = None,
    then: str | Callable[..., Any] = "inductor",
    *,
    cost: WantedCost | None = None,
    budget: float = 60.0,
    iterative: bool = False,
    fold_params: bool = False,
    check: bool = False,
    strict: bool | None = None,
    on_rewrite: OnRewrite | None = None,
) -> Backend:
    """A back end for ``torch.compile`` that applies rules to each graph, and hands it to another back end.

    ``then`` is the name of a registered back end, or a callable as ``torch.compile`` takes it; ``mode=`` and
    ``options=`` of ``torch.compile`` go there. ``iterative`` is that of a rule.

    The weights of the model are params to the patterns, and what a rule computes of them is computed in the graph, at
    every run: the numbers are right when weights change, and gradients flow. With ``fold_params``, graphs for inference
    compute it once, and again when torch tells that one of the weights has changed; that is not told of changes
    through ``.data``, so don't make any.

    Rules that are ``inference_only`` are left out of graphs for training: those that are compiled with gradients
    enabled and have an input that requires one. An evaluation under ``torch.no_grad()`` is compiled for inference.

    The error of a rule is raised; a graph that GSL can't read or write goes on as it was, with a NotRewrittenWarning.
    ``strict=True`` raises in both cases, ``strict=False`` warns. With ``check``, the first run of
    each rewritten graph runs the original one too, on copies of the same inputs, and raises WorkloadError where the
    numbers differ, with the name of the rule. ``on_rewrite`` is called with the trace, the graph and what became of it;
    ``traces`` of the back end has all traces, ``graphs`` the graphs as workloads, as they were before the rules, and
    ``explain`` tells why a rule does not fire in them.

    With a ``cost``, as of ``Workload.cost``, those matches are rewritten that pay, as ``optimize`` finds them, in
    ``budget`` seconds for each graph; ``rules`` may then be several sets, which are applied one after the other until
    nothing matches, and are those of the rule book if they are left out. ``cost="compiled"`` prices what inductor makes
    of the calls, ``"measured"`` how torch makes them one by one. ``trials`` of the back end tells for each graph what
    was found.
    """
    return Backend(
        rules, then, cost=cost, budget=budget, iterative=iterative, fold_params=fold_params, check=check,
        strict=strict, on_rewrite=on_rewrite,
    )  # fmt: skip


def _check_name(then: str) -> None:
    """Raise PatternError for a name of a back end that torch does not know."""
    try:
        torch._dynamo.lookup_backend(then)
    except torch._dynamo.exc.InvalidBackend as error:
        known = torch._dynamo.list_backends(exclude_tags=())
        raise PatternError(f"then={then!r} is no back end of torch.compile: {nearest(then, known)}") from error


class Backend:
    """A back end for ``torch.compile``, see :func:`torch_backend`."""

    def __init__(
        self,
        rules: Rules | Iterable[RuleSet] | None,
        then: str | Callable[..., Any],
        *,
        cost: WantedCost | None,
        budget: float,
        iterative: bool,
        fold_params: bool,
        check: bool,
        strict: bool | None,
        on_rewrite: OnRewrite | None,
    ) -> None:
        check_number("budget", budget, "a number of seconds", 0, whole=False)
        if strict not in (None, True, False):
            raise PatternError(f"strict= is None, True or False; got {strict!r}")
        if on_rewrite is not None and not callable(on_rewrite):
            raise PatternError(
                f"on_rewrite= is a function of the trace, the graph and the new graph; got {on_rewrite!r}"
            )
        self.pricing = None if cost is None else Pricing(rules, cost, budget, fold_params)
        self.rules = _plain(rules) if self.pricing is None else self.pricing.rules
        self.then = then
        if isinstance(then, str):
            _check_name(then)
        elif not callable(then):
            raise PatternError(f"then= is the name of a back end of torch.compile, or a function; got {then!r}")
        self.iterative = iterative
        self.fold_params = fold_params
        self.check = check
        self.strict = strict
        self.on_rewrite = on_rewrite
        self.traces: list[Trace] = []
        """The traces of the graphs, in the order of compilation; a graph within one comes after it."""
        self.trials: list[tuple[Trial, ...]] = []
        """The trials of each kind of match in each graph, with a cost."""
        self.graphs: list[Workload] = []
        """The graphs of the traces before the rules, to be printed, drawn, matched and explained; not to be run."""
        self.__name__ = f"gsl_{then if isinstance(then, str) else getattr(then, '__name__', 'then')}"

    def __repr__(self) -> str:
        return f"<gsl.torch_backend of {len(self.rules)} rules, then {self.then!r}>"

    def __call__(self, module: fx.GraphModule, example_inputs: Sequence[Any], **options: Any) -> Callable[..., Any]:
        """A function that runs a graph of dynamo with these (fake) inputs, after the rules."""
        training = is_training(module)
        try:
            new, traces = self._rewritten(module, training)
        except Exception as error:
            self._report(error)
            return self._next(module, example_inputs, options)
        self.traces += traces
        if self.on_rewrite is not None:
            for trace in traces:
                self.on_rewrite(trace, module, new)
        if new is module:
            return self._next(module, example_inputs, options)
        checked = _Check(module, new, traces[0]) if self.check else None
        if self.fold_params and not training:
            call = hoisted(new, example_inputs, lambda inner, inputs: self._next(inner, inputs, options))
        else:
            call = self._next(new, example_inputs, options)
        return call if checked is None else checked.before(call)

    def explain(self, rule: Subst | RuleSet | None = None, *, nearest: int = 1) -> GraphExplanations:
        """The reasons, for each graph, why a rule or each rule of a set (of the back end, if none is given) does not
        fire.

        WorkloadError before the first graph is compiled.
        """
        return explained(self.graphs, self.rules if rule is None else rule_set(rule), nearest)

    def _rewritten(self, module: fx.GraphModule, training: bool) -> tuple[fx.GraphModule, list[Trace]]:
        """The module after the rules, itself if none fired, and the traces of it and of the graphs within."""
        if is_autocast(module.graph):
            raise FrontEndError(
                "it runs under torch.autocast, where calls have other dtypes than their operators say; put autocast "
                "into the model, around a part of it, or apply the rules as post_grad_custom_pre_pass of inductor"
            )
        program = CompiledProgram(module)
        program.settle()
        self.graphs.append(kept(program))
        new, trace = self._changed(program, training)
        traces = [trace]
        for path, found in regions(module, Values(), program.weights).items():
            inner = CompiledProgram(found.module, values=found.values, weights=found.weights)
            inner.is_of_scan = found.is_of_scan
            inner.settle()
            self.graphs.append(kept(inner))
            region, trace = self._changed(inner, training)
            traces.append(trace)
            if region is None or not hasattr(module if new is None else new.module, path):
                continue
            if not inner.takes(region) or not _sharing(region) <= _sharing(inner):
                trace.refuse(RegionProgram.kept)
                continue
            new = program.store(program.load()) if new is None else new
            new.module._modules[path] = region.module
        return module if new is None else new.module, traces

    def _changed(self, program: CompiledProgram, training: bool) -> tuple[CompiledProgram | None, Trace]:
        """The program after the rules, ``None`` if none fired, and the traces."""
        if self.pricing is not None:
            new, trace, trials = self.pricing.changed(program, training)
            self.trials.append(trials)
            return new, trace
        graph, trace = applied(self.rules, program, iterative=self.iterative, training=training)
        return (program.store(graph) if trace.firings else None), trace

    def _next(
        self, module: fx.GraphModule, example_inputs: Sequence[Any], options: Mapping[str, Any]
    ) -> Callable[..., Any]:
        """The function that the next back end makes of a graph."""
        then: Any = torch._dynamo.lookup_backend(self.then)
        if self.then == "inductor":
            # As torch.compile does: inductor itself takes neither a mode nor options.
            wrapper: Any = torch._TorchCompileInductorWrapper
            then, options = wrapper(options.get("mode"), options.get("options"), None), {}
        call: Callable[..., Any] = then(module, example_inputs, **options)
        return call

    def _report(self, error: Exception) -> None:
        """Raise the error of a rewrite, or warn that the graph was not rewritten."""
        of_rule = isinstance(error, _OF_RULES)
        if of_rule if self.strict is None else self.strict:
            if isinstance(error, GSLError):
                raise type(error)(f"gsl.torch_backend: {error}") from error
            raise error
        kind = "" if isinstance(error, GSLError) else f"{type(error).__name__}: "
        warnings.warn(
            f"gsl.torch_backend: a graph is compiled without the rules: {kind}{error} (strict=True raises this error)",
            NotRewrittenWarning,
            stacklevel=2,
        )


class Pricing:
    """The way in which a back end chooses the rules that pay."""

    def __init__(self, rules: Rules | Iterable[RuleSet] | None, cost: WantedCost, budget: float, hoists: bool) -> None:
        self.is_default = rules is None
        self.stages = default_rules("cpu") if rules is None else stages_of(rules)
        self.rules = RuleSet(dict.fromkeys(rule for stage in self.stages for rule in stage))
        self.model = model_of(cost)
        self.budget = budget
        self.hoists = hoists
        """True if values that depend on weights only are computed once, and not at every run."""

    def changed(
        self, program: CompiledProgram, training: bool
    ) -> tuple[CompiledProgram | None, Trace, tuple[Trial, ...]]:
        """The program after the rules that pay, ``None`` if none does, the traces, and the trials of each kind."""
        workload = Workload(program)
        is_elsewhere = self.is_default and device_type(workload) != "cpu"
        # Elsewhere, kernels that the next back end makes are better than those that it only calls.
        stages = [_for(stage, training) for stage in (default_rules("") if is_elsewhere else self.stages)]
        space = Space(workload, stages, self.model, fold=False, hoists=self.hoists and not training)
        found = Greedy().run(space, Clock(self.budget), lambda what: None)
        new: Any = None if found.best.workload is space.workload else found.best.workload
        trace = Trace(rules=space.rules) if new is None else new.trace
        note_left_out(trace, [rule for rule in self.rules if training and rule.inference_only], space.workload.graph)
        return (None if new is None else new.program), trace, found.trials


def _plain(rules: Any) -> RuleSet:
    """The rules of a back end that applies all of them. WorkloadError where they are left out, or are several sets."""
    several = isinstance(rules, (list, tuple)) and any(isinstance(item, RuleSet) for item in rules)
    if rules is None or several:
        raise WorkloadError(
            "torch_backend takes a rule, a RuleSet or a list of rules; the rules may be left out, or be several sets, "
            "with a cost by which they are chosen, as cost='measured'"
        )
    return rule_set(rules)


def _for(stage: RuleSet, training: bool) -> RuleSet:
    """The rules of a set that may be applied."""
    if not training:
        return stage
    rules = [rule for rule in stage if not rule.inference_only]
    return RuleSet(rules, strategy=stage.strategy, max_steps=stage.max_steps, tidy=stage.tidy)


def _sharing(program: CompiledProgram) -> set[tuple[int, str | int]]:
    """Each output of a graph by its place, with the input or the other output whose memory it may share."""
    seen = [seen_through((output,)) for output in program.load().outputs]
    leaves = [{node.name for node in nodes if node.op in LEAVES} for nodes in seen]
    pairs = [(n, m) for n, m in combinations(range(len(seen)), 2) if seen[n].keys() & seen[m].keys()]
    return {*pairs, *((n, name) for n, names in enumerate(leaves) for name in names)}


class _Check:
    """Compares a rewritten graph with the original on the inputs of the first run."""

    def __init__(self, old: fx.GraphModule, new: fx.GraphModule, trace: Trace) -> None:
        # What compiles the graphs may change them.
        self.old, self.new = (fx.GraphModule(module, copy.deepcopy(module.graph)) for module in (old, new))
        self.trace = trace

    def before(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """The callable, of which the first call compares."""
        pending = [self]

        def checked(*inputs: Any) -> Any:
            while pending:
                pending.pop().compare(inputs)
            return call(*inputs)

        return checked

    def compare(self, inputs: Sequence[Any]) -> None:
        """Raise WorkloadError where the numbers differ for these inputs."""
        old, new = Workload.from_fx(self.old, name="the graph"), Workload.from_fx(self.new, name="the rewritten graph")
        old.compare(new, inputs, trace=self.trace).check()
