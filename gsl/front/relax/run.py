"""Running Relax: a module on the virtual machine, and single calls of a view ahead of time."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from math import prod
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import relax

from gsl.errors import FrontEndError
from gsl.front.base import ProgramStep
from gsl.front.core import infer as core
from gsl.front.core.handle import shown
from gsl.front.relax.function import RelaxFunction
from gsl.front.relax.groups import plain
from gsl.front.relax.opaque import Caller, attribute_names
from gsl.front.tvm.tensors import as_operand, python_value, to_numpy, to_tvm
from gsl.graph import Graph, Node, op_name

Parameters = Sequence[Any]
"""The variables of a function, in order."""


def reason_of(error: Exception) -> str:
    """The text of an error; its name where it has none, as a failed assertion of TVM."""
    return str(error) or type(error).__name__


def compiled(
    module: Any, function: str, params: Parameters, values: Mapping[str, Any], target: Any, options: Mapping[str, Any]
) -> Callable[..., Any]:
    """A callable that takes the inputs in order, and returns the function's results as numpy arrays.

    ``values`` are those of the parameters that are no inputs. FrontEndError if TVM can't compile the module.
    """
    try:
        executable = tvm.compile(module, target=tvm.target.Target(target), **options)
    except Exception as error:
        raise FrontEndError(f"TVM can't compile {function!r} for {target}: {reason_of(error)}") from error
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
    return core.evaluate(node, operands, partial(map, as_operand), partial(_run_opaque, caller))


def _run_opaque(caller: Caller, node: Node, operands: Sequence[Any]) -> Any:
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
    return as_operand(found)


# ---------------------------------------------------------------- single calls


_NAME = "gsl_alone"


class RelaxSteps:
    """The bindings of one function of a module, which compute; ``weights`` are the parameters whose values are known.
    """

    def __init__(self, module: Any, native: Any, weights: Collection[str]) -> None:
        self.module = module
        self.function = RelaxFunction(native)
        self.weights = frozenset(weights)

    def steps(self, view: Graph) -> list[ProgramStep]:
        """The bindings, with the nodes of a view that they stand for."""
        own, variables = self.function.own, self.function.vars
        found = shown(view, lambda reading: map(own, (reading.native, *map(variables.__getitem__, reading.through))))
        values = zip(self.function.vars, self.function.names, self.function.values)
        return [
            ProgramStep(name, tuple(found.get(var, ())), self._key(value), self._bytes(value), place)
            for place, (var, name, value) in enumerate(values)
            if isinstance(value, tvm.ir.Call)
        ]

    def alone(self, steps: Sequence[ProgramStep], copies: int) -> Callable[[], object]:
        """A function that runs some of the bindings on TVM's machine. FrontEndError where TVM can't."""
        places = [step.native for step in steps]
        params, module = self._region(places)
        sets = [[_made_up(var, number) for var in params] for number in range(copies)]
        try:
            executable = tvm.compile(plain(module), target=tvm.target.Target("llvm"))
        except Exception as error:
            raise FrontEndError(f"TVM can't compile {steps[-1].name} alone: {reason_of(error)}") from error
        call = relax.VirtualMachine(executable, tvm.cpu())[_NAME]
        if copies == 1:
            return partial(call, *sets[0])
        turns = itertools.cycle(sets)
        return lambda: call(*next(turns))

    def _region(self, places: Sequence[int]) -> tuple[list[Any], Any]:
        """The variables that bindings take from elsewhere, and a module with a function of these bindings."""
        inside = {self.function.vars[place] for place in places}
        used = [var for place in places for var in self.function.uses(place)]
        outer = [var for var in dict.fromkeys(used) if var not in inside]
        params = [relax.Var(f"x{number}", var.ty) for number, var in enumerate(outer)]
        instead: dict[Any, Any] = dict(zip(outer, params))
        ends = [place for place in places if not self._is_inner(place, set(places))]
        builder = relax.BlockBuilder(self.module)
        with builder.function(_NAME, params):
            with builder.dataflow():
                for place in places:
                    instead[self.function.vars[place]] = builder.emit(self.function.with_args(place, instead))
                outputs = [builder.emit_output(instead[self.function.vars[place]]) for place in ends]
            builder.emit_func_output(outputs[0] if len(outputs) == 1 else relax.Tuple(outputs))
        return params, builder.get()

    def _is_inner(self, place: int, inside: set[int]) -> bool:
        """True if only bindings among these use the value of a binding."""
        var = self.function.vars[place]
        users = self.function.users.get(var, ())
        return bool(users) and inside.issuperset(users) and var not in self.function.used_by_result

    def _key(self, value: Any) -> str:
        """The text of a call: its operator, and its arguments by their types."""
        args = [self._argument(arg) for arg in value.args]
        attrs = [f"{name}={python_value(getattr(value.attrs, name))}" for name in attribute_names(value.attrs)]
        op = value.op.name if isinstance(value.op, tvm.ir.Op) else self._argument(value.op)
        return f"{op}({', '.join([*args, *attrs])}){list(value.ty_args)}"

    def _argument(self, arg: Any) -> str:
        if isinstance(arg, relax.Var):
            return f"weight {arg.ty}" if str(arg.name) in self.weights else str(arg.ty)
        if isinstance(arg, tvm.ir.GlobalVar):
            return f"{arg.name_hint} {tvm_ffi.structural_hash(self.module[arg])}"
        if isinstance(arg, relax.Tuple):
            return f"({', '.join(map(self._argument, arg.fields))})"
        return str(getattr(arg, "ty", arg)) if isinstance(arg, tvm.ir.GenericConst) else str(arg)

    def _bytes(self, value: Any) -> int:
        """The number of bytes of weights that a call reads."""
        known = [arg for arg in value.args if isinstance(arg, relax.Var) and str(arg.name) in self.weights]
        return sum(prod(_shape(var)) * np.dtype(_dtype(var)).itemsize for var in known)


def _shape(var: Any) -> list[int]:
    """The shape of a variable. FrontEndError where it is not known."""
    shape = getattr(var.ty, "shape", None)
    sizes = list(getattr(shape, "values", None) or ())
    if shape is None or not all(isinstance(size, tvm.tirx.IntImm) for size in sizes):
        raise FrontEndError(f"{var.name}: an operand of type {var.ty} can't be made up")
    return [int(size) for size in sizes]


def _dtype(var: Any) -> str:
    return str(var.ty.dtype.dtype)


def _made_up(var: Any, seed: int) -> Any:
    """A tensor for a variable: floats at random, integers that are valid indices."""
    shape, dtype = _shape(var), _dtype(var)
    if dtype.startswith(("float", "bfloat")):
        values = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
        return tvm.runtime.tensor(values.astype(dtype))
    return tvm.runtime.tensor(np.full(shape, dtype == "bool", dtype))
