"""Graphs of ``torch.compile``: traced modules whose weights are placeholders, fed again at every run.

The weights are known to be weights, but not by their values: what is stored in the view for one is the fake tensor
that stands for it. A rewrite computes with weights in the graph, so nothing of it goes stale when they change.
"""

from __future__ import annotations

import operator
import weakref
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from typing import Any, Final

import torch
from torch import fx
from torch._dynamo.source import ConstantSource
from torch._ops import HigherOrderOperator, OpOverload
from torch._subclasses.fake_tensor import FakeTensor
from torch.optim.optimizer import register_optimizer_step_post_hook

from gsl.errors import FrontEndError
from gsl.front.fx.decompose import Decompositions
from gsl.front.fx.handle import RULE, FxLeaf, FxLeaves, memory, native_of
from gsl.front.fx.infer import infer
from gsl.front.fx.load import FxLoader
from gsl.front.fx.mutations import pass_results
from gsl.front.fx.program import GraphModuleProgram
from gsl.front.fx.values import Values
from gsl.graph import INPUT, LEAVES, PARAM, Graph
from gsl.pause import uninterrupted
from gsl.rewrite.check import seen_through

_STATIC: Final = "_dynamo_static_input_type"
"""The entry by which dynamo marks what it feeds from a module or another place that outlives the call."""


class CompiledLeaves(FxLeaves):
    """The leaves of such a graph: its placeholders of these names are weights, next to the attributes of the module."""

    def __init__(self, root: torch.nn.Module, weights: Collection[str], values: Values) -> None:
        super().__init__(root)
        self.weights = weights
        self.values = values

    def kind(self, node: fx.Node) -> str | None:
        if node.op == "placeholder":
            return PARAM if node.name in self.weights else INPUT
        return super().kind(node)

    def leaf(self, node: fx.Node) -> FxLeaf:
        return FxLeaf(node.name, self.values.value(node)) if node.op == "placeholder" else super().leaf(node)

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

    @property
    def size_hints(self) -> dict[str, int]:
        """The numbers that symbolic sizes have in the inputs for which torch compiles the graph."""
        found: dict[str, int] = {}
        for node in self._module.graph.find_nodes(op="placeholder"):
            value = self._values.value(node)
            sizes = value.shape if isinstance(value, torch.Tensor) else (value,)
            nodes = [size.node for size in sizes if isinstance(size, torch.SymInt)]
            found.update({str(size.expr): size.hint for size in nodes if size.expr.is_Symbol and size.has_hint()})
        return found

    def settle(self) -> None:
        """Bring the module's own graph to the form in which calls in place are read: see ``pass_results``."""
        pass_results(list(self._module.graph.nodes), self._loader().reader)

    def _leaves(self) -> CompiledLeaves:
        return CompiledLeaves(self._module, self.weights, self._values)

    @property
    def _is_called_by_torch(self) -> bool:
        return True

    def _loader(self) -> FxLoader:
        graph = self._module.graph
        return FxLoader(graph, self._leaves(), self._values, infer, autocast=is_autocast(graph))

    def store(self, graph: Graph) -> CompiledProgram:
        """The program of a rewritten view of this one. FrontEndError if it can't be expressed."""
        new = super().store(graph)
        check_held(new.module)
        keep_sources(self._module, new.module)
        program = CompiledProgram(new.module, self._examples, new._values, weights=self.weights)
        program.is_of_scan = self.is_of_scan
        return program.with_operators(self.operators)

    @uninterrupted
    def update(self, graph: Graph, table: Decompositions | None = None) -> None:
        """Write a rewritten view of this program into its own module, in place."""
        super().update(graph, table)
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
        ways = (new.named_parameters, new.named_buffers)  # one tensor may have several names
        names = [name for way in ways for name, _ in way(remove_duplicate=False) if name not in known]
        vars(new)["_param_name_to_source"] = {**known, **{name: ConstantSource(f"gsl_{name}") for name in names}}


# ---------------------------------------------------------------- weights that are computed once


Compile = Callable[[fx.GraphModule, Sequence[Any]], Callable[..., Any]]


def hoisted(module: fx.GraphModule, example_inputs: Sequence[Any], compile: Compile) -> Callable[..., Any]:
    """A function that runs a graph. The graph's new weights are computed at the first run, and again when a weight
    changes that they depend on.

    ``compile`` is handed the graph without them, which takes them as further inputs behind its own.
    """
    found = _wanted(module)
    values = [_value(node) for node in found]
    if not found or any(value is None for value in values):
        return compile(module, example_inputs)
    needed = _needed(found)
    inputs = module.graph.find_nodes(op="placeholder")
    rest = _without(module, found)
    call = compile(rest, [*example_inputs, *values])
    places = [inputs.index(node) for node in needed if node.op == "placeholder"]
    return Hoisted(_computing(module, needed, found), places, call)


class Hoisted:
    """A compiled graph with weights that are computed ahead of its runs."""

    def __init__(self, compute: Callable[..., Sequence[Any]], places: Sequence[int], call: Callable[..., Any]) -> None:
        self.compute = compute
        self.places = tuple(places)
        """The places, among the inputs, of the weights that they depend on."""
        self.call = call
        self._known: tuple[list[tuple[Any, ...]], Sequence[Any]] | None = None
        """The state of those weights, and the values that were computed from them."""
        self._forget_when_trained()

    def _forget_when_trained(self) -> None:
        """Forget the values at each step of an optimiser: fused ones change weights without counting that."""
        own = weakref.ref(self)

        def forget(*_: Any) -> None:
            if (hoisted := own()) is not None:
                hoisted._known = None

        weakref.finalize(self, register_optimizer_step_post_hook(forget).remove)

    def __call__(self, *inputs: Any) -> Any:
        weights = [inputs[place] for place in self.places]
        states = [_state(weight) for weight in weights]
        known = self._known
        if known is None or not all(map(_is_state, known[0], weights)):
            with torch.no_grad():
                known = ([state for state in states if state is not None], self.compute(*weights))
            # Of a weight without a version nothing is known at the next run.
            self._known = known if len(known[0]) == len(weights) else None
        return self.call(*inputs, *known[1])


def _state(weight: torch.Tensor) -> tuple[Any, ...] | None:
    """A key that changes with the value of a tensor, as torch tells it; ``None`` for a tensor of which torch does not
    tell."""
    if weight.is_inference():
        return None
    value = weight.detach().clone() if _may_be_statistic(weight) else None
    return weakref.ref(weight), weight._version, weight.data_ptr(), value


def _is_state(state: tuple[Any, ...], weight: torch.Tensor) -> bool:
    if state[0]() is not weight or state[1:3] != (weight._version, weight.data_ptr()):
        return False
    return state[3] is None or torch.equal(state[3], weight)


def _may_be_statistic(weight: torch.Tensor) -> bool:
    """True for a buffer that a batch norm in training may have changed, which torch does not count. On other devices
    than a CPU, it would take too long to look at the values."""
    is_buffer = not isinstance(weight, torch.nn.Parameter) and weight.device.type == "cpu"
    return is_buffer and weight.ndim == 1 and weight.is_floating_point()


def _wanted(module: fx.GraphModule) -> list[fx.Node]:
    """The calls of rules that depend on weights alone, and that something else uses."""
    # The view tells which weights nothing changes, and which calls have no effect.
    known: dict[fx.Node, bool] = {}  # whether they depend on a weight, and not on literal tensors alone
    graph = CompiledProgram(module).load()
    returned = {native_of(view) for view in seen_through(graph.outputs) if view.op not in LEAVES}  # may be changed
    for view in graph:
        native = native_of(view)
        if native is None or view.effect is not None or native in returned:
            continue
        if isinstance(view.native, FxLeaf):
            known.update(dict.fromkeys(view.native.reads, view.op == PARAM))
        elif RULE in native.meta and all(operand in known for operand in native.all_input_nodes):
            known[native] = any(known[operand] for operand in native.all_input_nodes)
    calls = [node for node in module.graph.nodes if known.get(node) and node.op not in ("placeholder", "get_attr")]
    return [node for node in calls if any(user not in known for user in node.users)]


def _value(node: fx.Node) -> Any:
    value = node.meta.get("example_value", node.meta.get("val"))
    return value if isinstance(value, torch.Tensor) else None


def _needed(found: Sequence[fx.Node]) -> list[fx.Node]:
    """The nodes from which calls are computed, and these, in the order of the graph."""
    needed = set(found)
    for node in reversed(found[0].graph.nodes):
        if node in needed:
            needed.update(node.all_input_nodes)
    return [node for node in found[0].graph.nodes if node in needed]


def _computing(module: fx.GraphModule, needed: Sequence[fx.Node], found: Sequence[fx.Node]) -> fx.GraphModule:
    """The module that computes calls from weights, which are its inputs, by the nodes that are needed for them."""
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    for node in needed:
        is_input = node.op == "placeholder"
        copies[node] = graph.placeholder(node.name) if is_input else graph.node_copy(node, copies.__getitem__)
    graph.output(tuple([copies[node] for node in found]))
    return fx.GraphModule(module, graph)


def _without(module: fx.GraphModule, found: Sequence[fx.Node]) -> fx.GraphModule:
    """The module with placeholders, behind its own, in the place of calls; what else they needed goes, too."""
    graph = fx.Graph(tracer_cls=module.graph._tracer_cls)
    copies: dict[fx.Node, fx.Node] = {}
    for node in module.graph.find_nodes(op="placeholder"):
        copies[node] = graph.node_copy(node, copies.__getitem__)
    for node in found:
        copies[node] = graph.placeholder(f"{node.name}_folded")
        copies[node].meta.update(example_value=_value(node), tensor_dict={})
    for node in module.graph.nodes:
        if node not in copies:
            copies[node] = graph.node_copy(node, copies.__getitem__)
    for node in reversed(list(graph.nodes)):
        if RULE in node.meta and not node.users and node.op != "placeholder":
            graph.erase_node(node)
    new = fx.GraphModule(module, graph)
    new.meta.update(module.meta)
    keep_sources(module, new)
    return new
