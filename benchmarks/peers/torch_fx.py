"""The systems that rewrite torch's graphs, GSL among them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch._inductor import pattern_matcher as inductor

from benchmarks.measure import Job, System
from benchmarks.peers import native
from benchmarks.peers.patterns import substs
from benchmarks.terms import Literal, Rule, Terms, require_same
from gsl import RuleSet, Workload
from gsl.graph import Graph

ByHand = Callable[[fx.Graph], None]
Rewrite = Callable[[fx.GraphModule], object]


class Subject:
    """A graph to be rewritten, with what the result must be."""

    def __init__(self, graph: fx.Graph, expected: Terms, inputs: Sequence[Any] | None, root: Any = None) -> None:
        self.graph = graph
        self.expected = expected
        self.root = root
        """The module of the graph, where it has weights or submodules."""
        self.inputs = inputs
        """The inputs on which it is run, unless it is too large for that."""
        self.values = None if inputs is None else native.run(graph, inputs, root)

    @classmethod
    def of(cls, terms: Terms, expected: Terms, tensors: native.Tensors, *, runs: bool = True) -> Subject:
        """The graph of terms."""
        inputs = [tensors[name] for name in terms.inputs] if runs else None
        return cls(native.graph_of(terms, tensors), expected, inputs)

    def copy(self) -> fx.GraphModule:
        """A module of its own."""
        return native.module_of(copy.deepcopy(self.graph), self.root)

    def check(self, graph: fx.Graph) -> None:
        """Raise Different unless a graph is what is expected, and computes what the original computes."""
        graph.lint()
        require_same(native.terms_of(graph), self.expected)
        if self.inputs is not None and self.values is not None:
            root = None if self.root is None else native.module_of(graph, self.root)
            native.require_equal(native.run(graph, self.inputs, root), self.values)


def copied(module: fx.GraphModule) -> fx.GraphModule:
    """A module with a graph of its own, and the same weights."""
    return native.module_of(copy.deepcopy(module.graph), module)


class GSL:
    """GSL on a subject."""

    def __init__(self, subject: Subject, rules: Sequence[Rule]) -> None:
        self.subject = subject
        self.rules = RuleSet(substs(rules))
        self.workload = Workload.from_fx(native.module_of(subject.graph, subject.root))

    def engine(self) -> Job:
        """Match, check and rewrite on a view that is loaded already."""
        view = self.workload.graph

        def check(rewritten: Graph) -> None:
            self.subject.check(self.workload.program.store(rewritten).module.graph)

        return Job(lambda: self.rules.apply(view)[0], check)

    def match(self) -> Job:
        """Match alone: all matches on a view that is loaded already."""
        view = self.workload.graph
        return Job(lambda: list(self.rules.match(view)))

    def new_module(self) -> Job:
        """From module to module, the old one unchanged."""
        module = native.module_of(self.subject.graph, self.subject.root)
        return Job(lambda: self.rules(Workload.from_fx(module)).mod.graph, self.subject.check)

    def in_place(self) -> Job:
        """The module itself is changed."""
        return on_copy(self.subject, in_place(self.rules))()


def in_place(rules: RuleSet) -> Rewrite:
    """GSL on a module that is changed itself."""
    from gsl.fx import Pass

    apply = Pass(rules)
    return lambda module: apply(module.graph)


def on_copy(subject: Subject, rewrite: Rewrite) -> System:
    """A rewrite of a copy in place."""

    def prepare() -> Job:
        module = subject.copy()

        def work() -> fx.Graph:
            rewrite(module)
            return module.graph

        return Job(work, subject.check)

    return prepare


def by_hand(subject: Subject, function: ByHand) -> System:
    """A pass written for just this rewrite, on a copy."""
    return on_copy(subject, lambda module: function(module.graph))


def replace_pattern(subject: Subject, rules: Sequence[Rule]) -> System:
    """``torch.fx.replace_pattern``, rule by rule, on a copy; its graphs of patterns are made before."""
    pairs = [(_module(rule, rule.source), _module(rule, (native.fused(rule), *rule.leaves))) for rule in rules]

    def rewrite(module: fx.GraphModule) -> None:
        for pattern, replacement in pairs:
            replace(module, pattern, replacement)

    return on_copy(subject, rewrite)


def replace(module: fx.GraphModule, pattern: fx.GraphModule, replacement: fx.GraphModule) -> None:
    """The rewriter of torch.fx, without the ``recompile`` at its end."""
    module.recompile = _no_code  # type: ignore[method-assign, assignment]
    fx.replace_pattern(module, pattern, replacement)


def _no_code() -> None:
    """Stands for ``recompile``, so that no system is charged for it."""


def _module(rule: Rule, tree: Any) -> fx.GraphModule:
    graph = fx.Graph()
    leaves = {leaf: graph.placeholder(leaf) for leaf in rule.leaves}
    graph.output(native.walked(tree, graph.call_function, leaves.__getitem__))
    return fx.GraphModule(torch.nn.Module(), graph)


def matcher(rules: Sequence[Rule]) -> inductor.PatternMatcherPass:
    """The rules as inductor writes those of its own passes: a pattern, and a function that puts the new call."""
    patterns = inductor.PatternMatcherPass()
    for rule in rules:
        pattern = _inductor_pattern(rule)
        inductor.register_graph_pattern(pattern, pass_dict=patterns)(_handler(rule))
    return patterns


def _inductor_pattern(rule: Rule) -> Any:
    uses: dict[int, int] = {}

    def count(tree: Any) -> None:
        if isinstance(tree, tuple):
            uses[id(tree)] = uses.get(id(tree), 0) + 1
            if uses[id(tree)] == 1:
                for operand in tree[1:]:
                    count(operand)

    count(rule.source)
    made: dict[int, Any] = {}

    def build(tree: Any) -> Any:
        if isinstance(tree, str):
            return inductor.KeywordArg(tree)
        if isinstance(tree, Literal):
            return tree.value
        if id(tree) not in made:
            target, arguments = native.spelled(tree[0], [build(operand) for operand in tree[1:]])
            made[id(tree)] = inductor.CallFunction(target, *arguments, _users=uses[id(tree)])
        return made[id(tree)]

    return build(rule.source)


def _handler(rule: Rule) -> Callable[..., None]:
    target, leaves = native.fused(rule), rule.leaves

    def handle(match: inductor.Match, **found: Any) -> None:
        node = match.output_node()
        with match.graph.inserting_before(node):
            new = match.graph.call_function(target, tuple([found[leaf] for leaf in leaves]))
        new.meta.update(node.meta)
        node.replace_all_uses_with(new)
        match.erase_nodes()

    return handle


def inductor_matcher(subject: Subject, rules: Sequence[Rule]) -> System:
    """The pattern matcher of inductor, on a copy; its patterns are registered before."""
    return on_copy(subject, matcher(rules).apply)


def floors(subject: Subject) -> dict[str, System | str]:
    """The systems that do no more than touch the graph."""

    def one_pass() -> int:
        found = 0
        for node in subject.graph.nodes:
            if node.op == "call_function" and node.target is native.aten.erf.default:
                found += 1
        return found

    def recompile() -> Job:
        module = native.module_of(subject.graph, subject.root)
        return Job(module.recompile)

    return {
        "one pass over `graph.nodes`": lambda: Job(one_pass),
        "`lint`": lambda: Job(subject.graph.lint),
        "`deepcopy(graph)`": lambda: Job(lambda: copy.deepcopy(subject.graph)),
        "`recompile`": recompile,
    }
