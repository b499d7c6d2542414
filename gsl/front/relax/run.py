"""Running Relax: a module on the virtual machine, and single calls of a view ahead of time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tvm
from tvm import relax

from gsl.errors import FrontEndError
from gsl.front.relax.opaque import Caller
from gsl.front.tvm.tensors import to_numpy, to_torch, to_tvm
from gsl.graph import GETITEM, INPUT, LEAVES, TUPLE, Node, op_name
from gsl.graph.subgraph import Subgraph
from gsl.spec import TABLE, meaning

Parameters = Sequence[Any]
"""The variables of a function, in order."""


def compiled(
    module: Any, function: str, params: Parameters, values: Mapping[str, Any], target: Any, options: Mapping[str, Any]
) -> Callable[..., Any]:
    """A callable that takes the inputs in order, and returns the function's results as numpy arrays.

    ``values`` are those of the parameters that are no inputs. FrontEndError if TVM can't compile the module.
    """
    try:
        executable = tvm.compile(module, target=tvm.target.Target(target), **options)
    except Exception as error:
        raise FrontEndError(f"TVM can't compile {function!r} for {target}: {error}") from error
    machine = relax.VirtualMachine(executable, tvm.cpu())
    known = {name: to_tvm(value) for name, value in values.items()}

    def call(*inputs: Any) -> Any:
        given = iter(inputs)
        arguments = [known[var.name] if var.name in known else _argument(next(given)) for var in params]
        return to_numpy(machine[function](*arguments))

    return call


def _argument(value: Any) -> Any:
    """An input as the machine takes it."""
    if isinstance(value, (tuple, list)):
        if all(isinstance(item, int) for item in value):
            return tvm.runtime.ShapeTuple(list(value))
        return [_argument(item) for item in value]
    return to_tvm(value) if hasattr(value, "shape") else value


def evaluate(node: Node, operands: Sequence[Any], caller: Caller) -> Any:
    """The value of a node on torch tensors and Python numbers."""
    import torch

    if node.op == TUPLE:
        return tuple(operands)
    if node.op == GETITEM:
        return operands[0][node.attrs["index"]]
    if node.op in LEAVES:
        return node.attrs["value"]
    if isinstance(node.op, Subgraph):
        return _run_group(node.op, operands, caller)
    operands = [to_torch(operand) if hasattr(operand, "shape") else operand for operand in operands]
    if isinstance(node.op, str):
        with torch.no_grad():
            return meaning.evaluate(TABLE[node.op], operands, node.attrs)
    if node.effect is not None:
        raise FrontEndError(f"{node.name}: {op_name(node.op)} has effects, and is not computed ahead of time")
    return _run_opaque(node, operands, caller)


def _run_group(group: Subgraph, operands: Sequence[Any], caller: Caller) -> Any:
    """The value of a call of an outlined group, node by node."""
    body = group.body
    values = dict(zip([node for node in body.nodes if node.op == INPUT], operands))
    for node in body.nodes:
        if node not in values:
            values[node] = evaluate(node, [values[operand] for operand in node.operands], caller)
    outputs = tuple([values[output] for output in body.outputs])
    return outputs[0] if len(outputs) == 1 else outputs


def _run_opaque(node: Node, operands: Sequence[Any], caller: Caller) -> Any:
    """The value of an opaque call, by a module of nothing else."""
    tensors = [to_tvm(operand) if hasattr(operand, "shape") else operand for operand in operands]
    if any(isinstance(tensor, (tuple, list)) for tensor in tensors):
        raise FrontEndError(f"{node.name}: {op_name(node.op)} of tuples is not computed ahead of time")
    variables = [
        relax.Var(f"x{number}", relax.TensorType([int(s) for s in tensor.shape], str(tensor.dtype)))
        if hasattr(tensor, "shape") else relax.const(tensor)
        for number, tensor in enumerate(tensors)
    ]  # fmt: skip
    params = [var for var in variables if isinstance(var, relax.Var)]
    builder = relax.BlockBuilder(caller.module)
    caller = Caller(caller.module, caller.dims, lambda function: builder.add_func(function, "gsl_function"))
    with builder.function("gsl_evaluate", params):
        builder.emit_func_output(builder.emit(caller.call(node.op, variables, node.attrs)))
    values = [tensor for tensor in tensors if hasattr(tensor, "shape")]
    found = compiled(builder.get(), "gsl_evaluate", params, {}, "llvm", {})(*values)
    return tuple(map(to_torch, found)) if isinstance(found, tuple) else to_torch(found)
