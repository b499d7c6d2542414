"""Programs as they are run: exported ones with each tensor at hand, and kernels that are called directly; all of them
in float64, too."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload
from torch.utils import _pytree as pytree

from gsl.errors import WorkloadError
from gsl.front.core.wide import wide
from gsl.front.fx.handle import attribute
from gsl.front.fx.parameters import clone

Run = Callable[..., Any]


def structured(call: Run, spec: pytree.TreeSpec) -> Run:
    """A callable that takes the leaves of the arguments in order. WorkloadError where guards of an export fail."""
    return _structured(lambda leaves: call, spec)


def runnable(module: fx.GraphModule, spec: pytree.TreeSpec) -> Run:
    """The same of a module, by modules of the same tensors that take less time around its calls."""
    own = _with_own_tensors(module)
    direct = _with_direct_calls(own)
    if direct is None:
        return _structured(lambda leaves: own, spec)
    from gsl.kernels.operator import is_plain

    return _structured(lambda leaves: direct if is_plain(leaves) else own, spec)


def _structured(choose: Callable[[Sequence[Any]], Run], spec: pytree.TreeSpec) -> Run:
    def flat(*leaves: Any) -> Any:
        call = choose(leaves)
        if len(leaves) != spec.num_leaves:
            return call(*leaves)
        arguments = pytree.tree_unflatten(list(leaves), spec)
        if isinstance(arguments, tuple) and len(arguments) == 2 and isinstance(arguments[1], dict):
            return call(*arguments[0], **arguments[1])
        return call(*arguments)

    def guarded(*leaves: Any) -> Any:
        try:
            return flat(*leaves)
        except AssertionError as error:
            if not str(error).startswith("Guard failed"):
                raise
            raise WorkloadError(f"the model was not exported for such inputs: {error}; give others, or export it with "
                                "other dynamic_shapes") from error  # fmt: skip

    return guarded


def in_float64(module: fx.GraphModule) -> Run:
    """A callable that takes the leaves of the arguments in order, and computes with wide tensors what the module
    computes, call by call."""

    def run(*leaves: Any) -> Any:
        result = _InFloat64(module).run(*leaves, enable_io_processing=False)
        return module.graph.process_outputs(result)

    return run


class _InFloat64(fx.Interpreter):
    """Runs a graph with wide tensors: a dtype among the arguments of a call is the wide one, too."""

    def run_node(self, n: fx.Node) -> Any:
        return pytree.tree_map(wide, super().run_node(n))

    def fetch_args_kwargs_from_env(self, n: fx.Node) -> tuple[tuple[Any, ...], dict[str, Any]]:
        args, kwargs = super().fetch_args_kwargs_from_env(n)
        return pytree.tree_map(wide, args), pytree.tree_map(wide, kwargs)

    def call_method(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return super().call_method("double" if target in ("half", "bfloat16", "float") else target, args, kwargs)

    def call_module(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        module = self.fetch_attr(target)
        state = {name: wide(value) for name, value in (*module.named_parameters(), *module.named_buffers())}
        return torch.func.functional_call(module, state, args, kwargs)


def _with_own_tensors(module: fx.GraphModule) -> fx.GraphModule:
    """A module of the same tensors that has each as a plain attribute.

    Modules look up parameters by a function in Python, one module after the other, which takes some microseconds for
    each tensor in a model whose products leave nothing of Python in the cache.
    """
    graph, new = _copied(module.graph), clone(module)
    for index, node in enumerate(graph.find_nodes(op="get_attr")):
        value = attribute(module, node.target)
        if isinstance(value, torch.Tensor):
            node.target = f"_tensor_{index}"
            vars(new)[node.target] = value
    new.graph = graph
    return new


def _with_direct_calls(module: fx.GraphModule) -> fx.GraphModule | None:
    """A module that calls kernels for the CPU past torch's dispatcher, which takes 5 to 20 microseconds a call.

    It is for inputs with which the dispatcher would come to the kernels, too. An operand that a kernel made may be
    overwritten by the last call that reads it, if all others are of kernels: their results are no views of it. ``None``
    for a module without such calls.
    """
    graph = _copied(module.graph)
    ours = [node for node in graph.nodes if isinstance(node.target, OpOverload) and node.target.namespace == "gsl"]
    if not ours:
        return None
    from gsl.kernels.operator import kernel_on_cpu, overwritable_place

    calls = {node: kernel for node in ours if (kernel := kernel_on_cpu(node.target)) and _is_on_cpu(node)}
    if not calls:  # as on a GPU
        return None
    order = {node: number for number, node in enumerate(graph.nodes)}
    for node, kernel in calls.items():
        args, kwargs = _as_dispatched(node)
        place = overwritable_place(node.target)
        operand = None if place is None else args[place]
        if isinstance(operand, fx.Node) and args.count(operand) == 1 and calls.keys() >= {operand, *operand.users}:
            kwargs["overwrites"] = node is max(operand.users, key=order.__getitem__)
        node.args, node.kwargs, node.target = args, kwargs, kernel
    new = clone(module)
    new.graph = graph
    return new


def _is_on_cpu(node: fx.Node) -> bool:
    tensors = [each.meta.get("val") for each in (node, *node.all_input_nodes)]
    return all(isinstance(tensor, torch.Tensor) and tensor.device.type == "cpu" for tensor in tensors)


def _as_dispatched(node: fx.Node) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments as the dispatcher gives them to a kernel: by position what may stand there, and in full."""
    args, kwargs = list(node.args), dict(node.kwargs)
    for argument in node.target._schema.arguments[len(args):]:  # type: ignore[union-attr]
        if not argument.kwarg_only:
            args.append(kwargs.pop(argument.name, argument.default_value))
    return tuple(args), kwargs


def _copied(graph: fx.Graph) -> fx.Graph:
    new = fx.Graph()
    new.output(new.graph_copy(graph, {}))
    new._codegen = copy.copy(graph._codegen)
    return new
