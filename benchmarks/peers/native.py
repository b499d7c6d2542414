"""Graphs of torch.fx made of terms, and read back; and the operators that rules put in place of others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import _pytree as pytree

from benchmarks.measure import Different
from benchmarks.terms import Literal, Rule, Terms, Tree, read

aten = torch.ops.aten
Tensors = Mapping[str, torch.Tensor]

TOLERANCE = 2e-3
"""The largest difference of an output of a model, relative to the largest number in it."""
SPELLINGS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "conv": (aten.conv2d.default, ()),
    "batch_norm": (aten.batch_norm.default, (False, 0.1, 1e-5, False)),
    "relu": (aten.relu.default, ()),
    "add": (aten.add.Tensor, ()),
    "exp": (aten.exp.default, ()),
    "log": (aten.log.default, ()),
    "sin": (aten.sin.default, ()),
    "abs": (aten.abs.default, ()),
    "sqrt": (aten.sqrt.default, ()),
    "neg": (aten.neg.default, ()),
    "tanh": (aten.tanh.default, ()),
    "erf": (aten.erf.default, ()),
    "floor": (aten.floor.default, ()),
    "ceil": (aten.ceil.default, ()),
    "sigmoid": (aten.sigmoid.default, ()),
}
"""For the operators of terms: torch's, and the arguments that follow the operands. Other operators are torch's own."""
_LABELS = {target: label for label, (target, _) in SPELLINGS.items()}


def spelled(operator: Any, operands: Sequence[Any]) -> tuple[Any, tuple[Any, ...]]:
    """The target and the arguments of a call."""
    target, more = SPELLINGS.get(operator, (operator, ())) if isinstance(operator, str) else (operator, ())
    return target, (*operands, *more)


@cache
def _library() -> torch.library.Library:
    return torch.library.Library("gsl_benchmarks", "DEF")  # type: ignore[no-untyped-call]


_FUSED: dict[str, tuple[Rule, Any]] = {}


def fused(rule: Rule) -> Any:
    """The operator that takes the place of a rule's source, and computes what that computes."""
    if rule.name not in _FUSED:
        library = _library()
        arguments = ", ".join(f"Tensor {leaf}" for leaf in rule.leaves)
        library.define(f"{rule.name}({arguments}) -> Tensor")  # type: ignore[no-untyped-call]
        kernel = partial(evaluate, rule)
        library.impl(rule.name, kernel, "CompositeExplicitAutograd")  # type: ignore[no-untyped-call]
        if rule.fake is not None:
            torch.library.register_fake(f"gsl_benchmarks::{rule.name}", rule.fake, lib=library)
        _FUSED[rule.name] = rule, getattr(torch.ops.gsl_benchmarks, rule.name).default
        _LABELS[_FUSED[rule.name][1]] = rule.name
    known, target = _FUSED[rule.name]
    if known != rule:
        raise ValueError(f"there is another rule of the name {rule.name}")
    return target


def walked(tree: Tree, call: Callable[[Any, tuple[Any, ...]], Any], leaf: Callable[[str], Any]) -> Any:
    """A pattern in another form, bottom up; one call that stands twice is one."""
    made: dict[int, Any] = {}

    def walk(part: Tree) -> Any:
        if isinstance(part, str):
            return leaf(part)
        if isinstance(part, Literal):
            return part.value
        if id(part) not in made:
            target, arguments = spelled(part[0], [walk(operand) for operand in part[1:]])
            made[id(part)] = call(target, arguments)
        return made[id(part)]

    return walk(tree)


def evaluate(rule: Rule, *values: torch.Tensor) -> Any:
    """The value of the source of a rule."""
    known = dict(zip(rule.leaves, values))
    return walked(rule.source, lambda target, arguments: target(*arguments), known.__getitem__)


def like_first(x: torch.Tensor, *others: torch.Tensor) -> torch.Tensor:
    """A result that is like the first operand."""
    return torch.empty_like(x)


def broadcast(*values: torch.Tensor) -> torch.Tensor:
    """A result of the shape to which all operands are broadcast."""
    return torch.empty_like(torch.broadcast_tensors(*values)[0])  # type: ignore[no-untyped-call]


def linear_layer(x: torch.Tensor, weight: torch.Tensor, *others: torch.Tensor) -> torch.Tensor:
    """The result of a linear layer, with what follows it."""
    return x.new_empty((*x.shape[:-1], weight.shape[0]))


def convolution(x: torch.Tensor, weight: torch.Tensor, *others: torch.Tensor) -> torch.Tensor:
    """The result of a convolution without stride and padding, with what follows it."""
    sizes = [size - kernel + 1 for size, kernel in zip(x.shape[2:], weight.shape[2:])]
    return x.new_empty((x.shape[0], weight.shape[0], *sizes))


def graph_of(terms: Terms, tensors: Tensors) -> fx.Graph:
    """The graph, with fake values as torch.compile has them; calls have the shape of the first input."""
    graph = fx.Graph()
    mode = FakeTensorMode()
    nodes: list[fx.Node] = []
    for name in terms.inputs:
        nodes.append(graph.placeholder(name))
        nodes[-1].meta["val"] = mode.from_tensor(tensors[name])
    value = nodes[0].meta["val"]
    for operator, operands in terms.calls:
        target, arguments = spelled(operator, [nodes[operand] for operand in operands])
        node = graph.call_function(target, arguments)
        node.meta["val"] = value
        nodes.append(node)
    outputs = tuple(nodes[output] for output in terms.outputs)
    graph.output(outputs)
    return graph


def module_of(graph: fx.Graph, root: torch.nn.Module | None = None) -> fx.GraphModule:
    """A module of a graph. Without a root it is not compiled, because ``recompile`` is no part of a rewrite."""
    if root is not None:
        return fx.GraphModule(root, graph)
    module = fx.GraphModule(torch.nn.Module(), fx.Graph())
    module._graph = graph
    graph.owning_module = module
    return module


def terms_of(graph: fx.Graph) -> Terms:
    """The terms of a graph. Arguments that are no nodes belong to the operator."""
    inputs = [(str(node.target), node) for node in graph.nodes if node.op in ("placeholder", "get_attr")]
    calls = [(node, _operator(node), node.all_input_nodes) for node in graph.nodes if node.op == "call_function"]
    return read(inputs, calls, graph.output_node().all_input_nodes)


def _operator(node: fx.Node) -> Any:
    """The operator of terms that a call is; of others, the target with what each argument is, nodes by place."""
    label = _LABELS.get(node.target)
    if label is not None:
        expected = SPELLINGS[label][1] if label in SPELLINGS else ()
        given = tuple(argument for argument in node.args if not isinstance(argument, fx.Node))
        if given == expected and not node.kwargs:
            return label
    return f"{node.target}{_shown(node.args)}{_shown(node.kwargs)}"


def _shown(argument: Any) -> str:
    return str(pytree.tree_map(lambda part: "%" if isinstance(part, fx.Node) else repr(part), argument))


def run(graph: fx.Graph, inputs: Sequence[Any], root: torch.nn.Module | None = None) -> list[Any]:
    """The results of a graph."""
    module = module_of(graph) if root is None else root
    with torch.no_grad():
        result = fx.Interpreter(module, graph=graph).run(*inputs)
    return pytree.tree_leaves(result)


def require_equal(found: Sequence[Any], expected: Sequence[Any]) -> None:
    """Raise Different unless the values are equal up to rounding."""
    for new, old in zip(found, expected, strict=True):
        if not torch.allclose(new, old, rtol=1e-4, atol=1e-5, equal_nan=True):
            raise Different(f"the results differ by {(new - old).abs().max():.1e}")


def require_close(name: str, found: Sequence[torch.Tensor], expected: Sequence[torch.Tensor]) -> None:
    """Raise Different unless the outputs of a model are close."""
    for new, old in zip(found, expected, strict=True):
        bound = TOLERANCE * float(old.abs().max()) + 1e-6
        if float((new - old).abs().max()) > bound:
            raise Different(f"{name}: the outputs differ by {(new - old).abs().max():.1e}, allowed are {bound:.1e}")
