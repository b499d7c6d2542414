"""Rules as passes over graphs of torch, also in inductor: one, and several with names."""

from __future__ import annotations

import copy
import hashlib
import re
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor

from gsl.cost.table import columns
from gsl.draw import pre
from gsl.errors import FrontEndError, PatternError, PatternTypeError, WorkloadError, checked, nearest
from gsl.front.fx.callers import is_compiled
from gsl.front.fx.compiled import CompiledProgram
from gsl.front.fx.decompose import Decompositions, decompositions_of
from gsl.front.fx.program import GraphModuleProgram
from gsl.front.fx.values import fake_only
from gsl.graph import Graph
from gsl.pause import paused_collector, uninterrupted
from gsl.rewrite import RuleSet, Subst, Trace
from gsl.rewrite.apply import apply
from gsl.rewrite.fingerprint import fingerprint
from gsl.rewrite.ruleset import Explanations
from gsl.rewrite.trace import Refused, names
from gsl.workload import Workload

try:
    from torch._inductor.custom_graph_pass import CustomInferenceAwareGraphPass as InductorPass
except ImportError:  # torch before 2.12
    from torch._inductor.custom_graph_pass import CustomGraphPass as InductorPass  # type: ignore[assignment]

Rules = Subst | RuleSet | Iterable[Subst]


class GraphExplanations(dict[int, Explanations]):
    """Explanations for each graph, by its number; prints one after the other."""

    def __str__(self) -> str:
        return "\n".join(
            f"graph {number}:\n{textwrap.indent(str(explanations), '  ')}" for number, explanations in self.items()
        )


class Pass(InductorPass):
    """Rules as a pass over a ``torch.fx`` graph, which is changed in place; also one for inductor's configuration.

    ``Pass(rules)(module)`` rewrites a traced module, and ``Pass(rules)(module.graph)`` does so, too, but leaves the
    call of ``recompile`` to its caller. As ``pre_grad_custom_pass``, ``joint_custom_pre_pass``,
    ``post_grad_custom_pre_pass`` or any other of these of ``torch._inductor.config``, it rewrites the graphs that
    inductor compiles. ``iterative`` and ``fold_params`` are those of a rule; nothing is folded in a graph for training,
    and not what torch feeds at every run.

    Rules that are ``inference_only`` are left out of graphs for training, see :func:`is_training`. ``traces`` has what
    was done, one for each graph. A pass that fails raises an error of GSL, and leaves the graph as it was.

    With ``keep_graphs``, a copy of each graph before the rules is kept in ``graphs``, and ``explain`` tells why a rule
    does not fire there.

    The calls that rules make in graphs of aten operators are decomposed by ``decompositions``, a table such as
    ``torch.export.default_decompositions()``. Without it, those of ``torch.compile`` are by inductor's table, and those
    of ``aot_module`` where they are composed of other calls.
    """

    @checked(PatternTypeError)
    def __init__(
        self,
        rules: Rules,
        *,
        iterative: bool = False,
        fold_params: bool = True,
        keep_graphs: bool = False,
        decompositions: Mapping[Any, Callable[..., Any]] | None = None,
    ) -> None:
        self.rules = rule_set(rules)
        self.iterative = iterative
        self.fold_params = fold_params
        self.keep_graphs = keep_graphs
        self.decompositions = None if decompositions is None else dict(decompositions)
        self.traces: list[Trace] = []
        self.graphs: list[Workload] = []

    def __call__(self, graph: fx.Graph | fx.GraphModule, is_inference: bool | None = None) -> None:
        """Rewrite a graph of a module, or all of a module. FrontEndError for a graph that belongs to none."""
        module = graph if isinstance(graph, fx.GraphModule) else getattr(graph, "owning_module", None)
        if not isinstance(module, fx.GraphModule):
            raise FrontEndError(
                f"a pass works on a GraphModule or the graph of one, but got {type(graph).__name__} without a module; "
                "make one with torch.fx.GraphModule(root, graph)"
            )
        training = is_training(module) if is_inference is None else not is_inference
        self._rewrite(module, training, recompiles=module is graph)

    @paused_collector  # once, and not for each of its steps
    def _rewrite(self, module: fx.GraphModule, training: bool, recompiles: bool) -> None:
        """Rewrite the graph of a module."""
        compiled = is_compiled(module)
        program = CompiledProgram(module) if compiled else GraphModuleProgram(module)
        if self.keep_graphs:
            self.graphs.append(kept(program))
        fold = self.fold_params and not training and not compiled
        new, trace = applied(self.rules, program, iterative=self.iterative, training=training, fold_params=fold)
        if trace.firings:
            table = decompositions_of(module) if self.decompositions is None else self.decompositions
            _write(program, new, table, recompiles)
        self.traces.append(trace)
        new.release()

    def explain(self, rule: Subst | RuleSet | None = None, *, nearest: int = 1) -> GraphExplanations:
        """The reasons, for each graph, why a rule or each rule of a set (of the pass, if none is given) does not fire.

        WorkloadError if no graph was kept.
        """
        if not self.keep_graphs:
            raise WorkloadError("the pass keeps no graphs: make it with gsl.fx.Pass(rules, keep_graphs=True)")
        return explained(self.graphs, self.rules if rule is None else rule_set(rule), nearest)

    def uuid(self) -> str | None:
        """A key for this pass in inductor's cache; ``None``, which turns the cache off, where there is no such key."""
        text = fingerprint(self.rules, self.decompositions)
        return None if text is None else f"{text}-{self.iterative:d}{self.fold_params:d}"


@uninterrupted
def _write(program: GraphModuleProgram, graph: Graph, table: Decompositions | None, recompiles: bool) -> None:
    """Write a rewritten view into the module of its program, with its code where that is wanted."""
    program.update(graph, table)
    if recompiles:
        program.native.recompile()


def is_training(module: fx.GraphModule) -> bool:
    """True if the gradients of a graph are wanted.

    That of a module in training mode (as torch.compile's are always) is, if gradients are enabled and something
    requires one; that of autograd is, if autograd has made it for training.
    """
    placeholders = module.graph.find_nodes(op="placeholder", sort=False)
    if [node for node in placeholders if node.name.startswith(("primals_", "tangents_"))]:
        return True
    if not module.training or not torch.is_grad_enabled():
        return False
    fed = [node.meta.get("example_value", node.meta.get("val")) for node in placeholders]
    with fake_only():
        if any(value.requires_grad for value in fed if isinstance(value, FakeTensor)):
            return True
    others = (*[value for value in fed if not isinstance(value, FakeTensor)], *module.parameters())
    return any(value.requires_grad for value in others if isinstance(value, torch.Tensor))


def kept(program: GraphModuleProgram) -> Workload:
    """A workload of a copy of a graph, so that later changes of the graph make no difference."""
    module = fx.GraphModule(program.native, copy.deepcopy(program.native.graph))
    if isinstance(program, CompiledProgram):
        return Workload(CompiledProgram(module, weights=program.weights))
    return Workload(GraphModuleProgram(module))


def explained(graphs: Sequence[Workload], rules: RuleSet, nearest: int) -> GraphExplanations:
    if not graphs:
        raise WorkloadError("no graph has been compiled yet: run the model first")
    return GraphExplanations({number: rules.explain(graph, nearest=nearest) for number, graph in enumerate(graphs)})


def rule_set(rules: Rules) -> RuleSet:
    return rules if isinstance(rules, RuleSet) else RuleSet([rules] if isinstance(rules, Subst) else rules)


def applied(
    rules: RuleSet, program: GraphModuleProgram, *, iterative: bool, training: bool, fold_params: bool = False
) -> tuple[Graph, Trace]:
    """The rewritten view of a program, and the trace; rules for inference that match in training are refused."""
    graph = program.with_operators({spec.name: spec for spec in rules.operators}).load()
    left_out = [rule for rule in rules if training and rule.inference_only]
    new, trace = apply(
        [rule for rule in rules if rule not in left_out],
        graph,
        strategy=rules.strategy,
        tidy=rules.tidy,
        iterative=iterative,
        max_steps=rules.max_steps,
        evaluate=program.evaluate if fold_params else None,
        own=not left_out,
    )
    note_left_out(trace, left_out, graph)
    return new, trace


def note_left_out(trace: Trace, rules: Iterable[Subst], graph: Graph) -> None:
    """Note that rules for inference match in a graph for training, and are left out."""
    for rule in rules:
        for match in rule.match(graph):
            reason = "the rule is for inference only, and the graph for training: compile it under torch.no_grad()"
            trace.refused.append(Refused.of(rule.name, match, reason))
            break


@dataclass(frozen=True, slots=True)
class PassRecord:
    """The record of one pass of a list on one graph."""

    graph: int
    """The number of the graph among those that the list got."""
    name: str
    seconds: float
    trace: Trace

    def rows(self) -> Iterator[tuple[str, str, str, str, str, str]]:
        """Lines of a table: graph, pass, milliseconds, rule, number of firings, and where; or where it was refused, and
        why."""
        head = (str(self.graph), self.name, f"{1e3 * self.seconds:.1f}")
        told = [
            (rule, str(count), names([each for f in self.trace.firings if f.rule == rule for each in f.replaced]))
            for rule, count in self.trace.summary().items()
        ]
        told += [(each.rule, "refused", f"{names(each.at)}: {each.reason}") for each in self.trace.refused]
        for line in told or [("", "0", "no rule fired")]:
            yield (*head, *line)
            head = ("", "", "")


class PassRecords(list[PassRecord]):
    """The records of a list of passes, in order; prints as a table."""

    def __str__(self) -> str:
        rows = [row for record in self for row in record.rows()]
        return columns([("graph", "pass", "ms", "rule", "count", "at"), *rows], left=(1, 3, 5))

    def _repr_html_(self) -> str:
        return pre(str(self))


def _folder(path: Path) -> Path:
    """A folder for graphs, which is made. PatternError where it can't be."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise PatternError(f"dump={str(path)!r} can't be the folder of the graphs: {error.strerror}") from error
    return path


class PassList(InductorPass):
    """Passes with names, which are made one after the other: one pass for inductor's configuration.

    ``passes`` gives rules, or a ``Pass``, by name. ``records`` has what each pass did with each graph, and prints as a
    table: the rules that fired, how often and where, matches that were refused and why, and the time. With
    ``keep_graphs``, passes that are made of rules keep the graphs that they get, and ``passes["name"].explain(rule)``
    tells why a rule does not fire there. With ``dump``, a folder, the text of each graph is written there, as it was at
    first and after each pass that changed it.

    An error of a pass is raised; the graph is then as this pass got it.
    """

    @checked(PatternTypeError)
    def __init__(
        self, passes: Mapping[str, Pass | Rules], *, keep_graphs: bool = False, dump: str | Path | None = None
    ) -> None:
        if not isinstance(passes, Mapping):
            raise PatternError(f"a PassList takes passes by name, as {{'normal': NORMAL}}, got {passes!r}")
        for name in passes:
            if not isinstance(name, str):
                raise PatternError(f"a PassList takes passes by name, as {{'normal': NORMAL}}, and {name!r} is no text")
        self._passes = {
            name: each if isinstance(each, Pass) else Pass(each, keep_graphs=keep_graphs)
            for name, each in passes.items()
        }
        self.dump = None if dump is None else _folder(Path(dump))
        self.records = PassRecords()
        self._graphs = 0

    def __getitem__(self, name: str) -> Pass:
        try:
            return self._passes[name]
        except KeyError:
            raise KeyError(f"no pass is named {name!r}: {nearest(name, self._passes)}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._passes)

    def __call__(self, graph: fx.Graph | fx.GraphModule, is_inference: bool | None = None) -> None:
        """Make all passes on a graph, as each of them does by itself."""
        number, self._graphs = self._graphs, self._graphs + 1
        self._write(number, "0_before", graph)
        for place, (name, each) in enumerate(self._passes.items(), 1):
            start = time.perf_counter()
            each(graph, is_inference)
            record = PassRecord(number, name, time.perf_counter() - start, each.traces[-1])
            self.records.append(record)
            if record.trace.firings:
                self._write(number, f"{place}_" + re.sub(r"[^\w-]", "_", name), graph)

    def _write(self, number: int, name: str, graph: fx.Graph | fx.GraphModule) -> None:
        if self.dump is None:
            return
        module = graph if isinstance(graph, fx.GraphModule) else graph.owning_module
        text = str(graph) if module is None else module.print_readable(print_output=False)
        folder = self.dump / f"graph_{number}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.py").write_text(text)

    def uuid(self) -> str | None:
        """A key for these passes in inductor's cache; ``None``, which turns the cache off, where one has no key."""
        keys = [(name, each.uuid()) for name, each in self._passes.items()]
        return None if any(key is None for _, key in keys) else hashlib.sha256(repr(keys).encode()).hexdigest()
