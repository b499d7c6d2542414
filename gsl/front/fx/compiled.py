"""Graphs of ``torch.compile``: traced modules whose weights are placeholders, fed again at every run.

The weights are known to be weights, but not by their values: what is stored in the view for one is the fake tensor
that stands for it. A rewrite computes with weights in the graph, so nothing of it goes stale when they change.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from typing import Any, Final, cast

import torch
from torch import fx
from torch._dynamo.source import ConstantSource
from torch._ops import HigherOrderOperator, OpOverload
from torch._subclasses.fake_tensor import FakeTensor

from gsl.errors import FrontEndError
from gsl.front.fx.effects import pass_results
from gsl.front.fx.handle import Leaf
from gsl.front.fx.infer import infer
from gsl.front.fx.leaves import ModuleLeaves, memory
from gsl.front.fx.load import Loader, arguments
from gsl.front.fx.program import GraphModuleProgram
from gsl.front.fx.reader import opens_region
from gsl.front.fx.steps import Steps
from gsl.front.fx.values import Values, dim_of
from gsl.graph import INPUT, PARAM, Graph

_STATIC: Final = "_dynamo_static_input_type"
"""The entry by which dynamo marks what it feeds from a module or another place that outlives the call."""


class CompiledLeaves(ModuleLeaves):
    """The leaves of such a graph: its placeholders of these names are weights, next to the attributes of the module."""

    def __init__(self, root: torch.nn.Module, weights: Collection[str], values: Values) -> None:
        super().__init__(root)
        self.weights = weights
        self.values = values

    def kind(self, node: fx.Node) -> str | None:
        if node.op == "placeholder":
            return PARAM if node.name in self.weights else INPUT
        return super().kind(node)

    def leaf(self, node: fx.Node) -> Leaf:
        return Leaf(node.name, self.values.value(node)) if node.op == "placeholder" else super().leaf(node)

    def memory(self, node: fx.Node) -> Hashable:
        # Fakes of tensors that share memory do so too.
        value = self.values.value(node) if node.op == "placeholder" else None
        return memory(value) if isinstance(value, FakeTensor) else super().memory(node)


class CompiledProgram(GraphModuleProgram):
    """A graph that ``torch.compile`` hands to a back end, or to a pass of one."""

    def __init__(
        self,
        module: fx.GraphModule,
        example_inputs: Sequence[Any] | None = None,
        values: Values | None = None,
        *,
        weights: Iterable[str] | None = None,
    ) -> None:
        super().__init__(module, example_inputs, values)
        self.weights = frozenset(static_inputs(module.graph) if weights is None else weights)
        """The names of the placeholders that are weights."""

    def settle(self) -> None:
        """Bring the module's own graph to the form in which calls in place are read: see ``pass_results``."""
        pass_results(list(self._module.graph.nodes), self._loader().reader)

    def _loader(self) -> Loader:
        leaves = CompiledLeaves(self._module, self.weights, self._values)
        graph = self._module.graph
        return Loader(self._module, graph, leaves, self._values, infer, autocast=is_autocast(graph))

    def _steps(self) -> Steps:
        graph = self._module.graph
        return Steps(self._module, graph, CompiledLeaves(self._module, self.weights, self._values), self._values)

    def store(self, graph: Graph) -> CompiledProgram:
        """The program of a rewritten view of this one. FrontEndError if it can't be expressed."""
        new = super().store(graph)
        check_held(new.module)
        keep_sources(self._module, new.module)
        return CompiledProgram(new.module, self._examples, new._values, weights=self.weights)

    def update(self, graph: Graph) -> None:
        """Write a rewritten view of this program into its own module, in place."""
        super().update(graph)
        keep_sources(self._module, self._module)

    def _check_updated(self) -> None:
        check_held(self._module)


def is_autocast(graph: fx.Graph) -> bool:
    """True if a graph is compiled under the autocast of its caller. A graph of overloads already contains the casts."""
    return torch._C._is_any_autocast_enabled() and any(map(_is_of_dynamo, graph.nodes))


def _is_of_dynamo(node: fx.Node) -> bool:
    """True for a call that computes a tensor, and is none of an overload."""
    if node.op != "call_function":
        return node.op in ("call_method", "call_module")
    is_overload = isinstance(node.target, OpOverload | HigherOrderOperator) or node.target is operator.getitem
    return not is_overload and isinstance(Values().value(node), torch.Tensor)


def static_inputs(graph: fx.Graph) -> frozenset[str]:
    """The names of the placeholders that are weights: as dynamo marks them, or as tracing for autograd knows them."""
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    marked = {node.name for node in placeholders if _STATIC in (node.meta.get("tensor_dict") or {})}
    context = torch._guards.TracingContext.try_get()
    metadata = None if context is None else context.fw_metadata
    if marked or metadata is None:
        return frozenset(marked)
    # In graphs made for autograd, placeholders of the forward pass are those of the graph from which they were made.
    static = {name for index in metadata.static_input_indices for name in (f"primals_{index + 1}", f"arg{index}_1")}
    return frozenset(node.name for node in placeholders if node.name in static)


def check_held(module: fx.GraphModule) -> None:
    """Raise FrontEndError if a rewritten module holds tensors without data, which can't be run."""
    for name, value in (*module.named_parameters(), *module.named_buffers()):
        if isinstance(value, FakeTensor):
            raise FrontEndError(
                f"{name}: a rule has made a weight of its own out of those of a graph of torch.compile, of which only "
                "shapes are known; compute it by operators in the target, or rewrite the module before it is compiled"
            )


def keep_sources(old: fx.GraphModule, new: fx.GraphModule) -> None:
    """Tell torch where each placeholder and attribute of a rewritten graph comes from, as dynamo told of the old."""
    sources = {node.name: node._dynamo_source for node in old.graph.nodes if hasattr(node, "_dynamo_source")}
    for node in new.graph.nodes:
        if node.op == "placeholder" and sources and not hasattr(node, "_dynamo_source"):
            node._dynamo_source = sources.get(node.name)
    known = getattr(old, "_param_name_to_source", None)
    if known is not None:
        names = [name for name, _ in (*new.named_parameters(), *new.named_buffers()) if name not in known]
        vars(new)["_param_name_to_source"] = {**known, **{name: ConstantSource(f"gsl_{name}") for name in names}}


def is_compiled(module: fx.GraphModule) -> bool:
    """True if a graph belongs to ``torch.compile``: made by dynamo, or traced from such a graph for autograd and
    inductor."""
    if torch._guards.TracingContext.try_get() is not None:
        return True
    return any("grapharg" in node.meta for node in module.graph.find_nodes(op="placeholder"))


def regions(module: fx.GraphModule, weights: Collection[str]) -> dict[str, set[str]]:
    """The paths of the graphs that higher-order operators run on some operands, with the names of the placeholders that
    are always fed with weights. ``weights`` are those of the graph itself."""
    found: dict[str, set[str]] = {}
    barred: set[str] = set()
    autocast = 0
    for node in module.graph.nodes:
        autocast += opens_region(node)
        reads = _REGIONS.get(str(node.target)) if isinstance(node.target, HigherOrderOperator) else None
        if reads is None:
            continue
        bodies, operands = reads(node.args)
        for body in bodies:
            inner = getattr(module, str(body.target), None) if isinstance(body, fx.Node) else None
            if isinstance(inner, fx.GraphModule):
                names = [p.name for p in inner.graph.nodes if p.op == "placeholder"]
                fed = {name for name, item in zip(names, operands) if getattr(item, "name", None) in weights}
                path = str(body.target)
                if autocast:  # calls have other types there than their operators say
                    barred.add(path)
                found[path] = found.get(path, fed) & fed if len(names) == len(operands) else set()
    return {path: fed for path, fed in found.items() if path not in barred}


def alike(old: fx.GraphModule, new: fx.GraphModule) -> bool:
    """True if the outputs of a rewritten graph are known to have the memory layout that they had: the caller may rely
    on it."""
    before, after = ([_layout(node) for node in arguments(_output(module.graph))] for module in (old, new))
    return None not in before and before == after


def _output(graph: fx.Graph) -> fx.Node:
    (output,) = graph.find_nodes(op="output")
    return cast("fx.Node", output)


def _layout(node: fx.Node) -> tuple[Any, ...] | None:
    value = Values().value(node)
    if not isinstance(value, torch.Tensor) or value.layout != torch.strided:
        return (value,) if isinstance(value, (int, torch.SymInt)) else None
    sizes = tuple([tuple(map(dim_of, part)) for part in (value.shape, value.stride())])
    return value.dtype, value.requires_grad, *sizes


_REGIONS: Final[Mapping[str, Callable[[Sequence[Any]], tuple[Sequence[Any], Sequence[Any]]]]] = {
    "cond": lambda args: (args[1:3], args[3]),
    "invoke_subgraph": lambda args: (args[:1], args[2:]),
    "tag_activation_checkpoint": lambda args: (args[:1], args[1:]),
    "wrap": lambda args: (args[:1], args[1:]),
}
"""The graphs among the arguments of each higher-order operator, and the values that it feeds to them."""
