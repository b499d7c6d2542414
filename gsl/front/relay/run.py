"""Compiled programs of Relay: with the graph executor, on the virtual machine, or by the interpreter; the values of
single calls of a view."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, TypeVar

import tvm
from tvm import autotvm, relay
from tvm.contrib import graph_executor
from tvm.ir import Op
from tvm.runtime import vm

from gsl.errors import FrontEndError
from gsl.front.core import infer as core
from gsl.front.relay import opaque
from gsl.front.relay.opaque import plain
from gsl.front.relay.spellings.table import names_of
from gsl.front.relay.types import checked_type, is_static, native_type
from gsl.front.tvm.tensors import as_operand, to_numpy, to_tvm
from gsl.graph import Node, op_name

_NAMED: Final = re.compile(r"\w+Error: ")
EXECUTORS: Final = ("graph", "vm", "debug")
STACK: Final = 1 << 29
"""Bytes of stack for TVM's passes, which recurse over a program; memory is taken only as it is used."""

RunResult = TypeVar("RunResult")


def compiled(
    module: Any,
    params: Mapping[str, Any],
    inputs: Sequence[str],
    *,
    target: Any = "llvm",
    opt_level: int | None = None,
    executor: str | None = None,
    device: Any = None,
    **config: Any,
) -> Callable[..., Any]:
    """The function ``@main`` as a callable that takes the inputs in order and returns numpy arrays.

    ``opt_level`` and ``config`` are those of a ``PassContext``; without them, the current one counts. The executor is
    ``"graph"`` unless the program needs another: ``"vm"`` for sizes that are not known and control flow, ``"debug"``
    (the interpreter) for references.
    """
    if executor is not None and executor not in EXECUTORS:
        raise FrontEndError(f"executor={executor!r}: there are {', '.join(map(repr, EXECUTORS))}")
    context = tvm.transform.PassContext.current()
    try:
        if opt_level is not None or config:
            context = tvm.transform.PassContext(
                opt_level=context.opt_level if opt_level is None else opt_level, config=config or None
            )
        device = tvm.device(str(tvm.target.Target(target).kind), 0) if device is None else device
    except (tvm.TVMError, AttributeError, TypeError, ValueError) as error:
        raise FrontEndError(f"TVM does not take what build was given: {_reason(error)}") from error
    module = with_room(lambda: plain(module))
    if executor is None:
        body = module["main"].body
        executor = "graph" if _is_plain(body) else "debug" if opaque.is_impure(module, body) else "vm"
    build = {"graph": _graph, "vm": _vm, "debug": _interpreter}[executor]
    with _quiet():
        try:
            return with_room(lambda: build(module, params, inputs, target, device, context))
        except tvm.TVMError as error:
            raise FrontEndError(f"TVM can't compile the program for {target}: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    """The line of an error of TVM that tells the reason: a program may be printed behind it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    return next(filter(_NAMED.match, lines), lines[-1])


def _graph(module: Any, params: Any, inputs: Any, target: Any, device: Any, context: Any) -> Callable[..., Any]:
    with context:
        library = relay.build(module, target=target, params=dict(params))
    executor = graph_executor.GraphModule(library["default"](device))
    structure = checked_type(module["main"].body)
    lock = threading.Lock()

    def call(*values: Any) -> Any:
        with lock:  # the executor keeps inputs and outputs in one place
            for name, value in zip(inputs, values):
                # An input that nothing uses is none to the executor.
                if executor.get_input_index(name) >= 0:
                    executor.set_input(name, to_tvm(value))
            executor.run()
            outputs = iter([to_numpy(executor.get_output(n)).copy() for n in range(executor.get_num_outputs())])
        return _structured(structure, outputs)

    return call


def _vm(module: Any, params: Any, inputs: Any, target: Any, device: Any, context: Any) -> Callable[..., Any]:
    with context:
        executable = relay.vm.compile(module, target=target)
    machine = vm.VirtualMachine(executable, device)
    return _by_position(module, params, inputs, lambda *values: machine.invoke("main", *values))


def _interpreter(module: Any, params: Any, inputs: Any, target: Any, device: Any, context: Any) -> Callable[..., Any]:
    with context:
        function = relay.create_executor("debug", mod=module, device=device, target=target).evaluate()
    return _by_position(module, params, inputs, function)


def _by_position(module: Any, params: Any, inputs: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    """A callable that takes the inputs of one that takes all variables."""
    names = [str(var.name_hint) for var in module["main"].params]

    def call(*values: Any) -> Any:
        given = {**params, **dict(zip(inputs, map(to_tvm, values)))}
        return to_numpy(function(*[given[name] for name in names]))

    return call


def _structured(type: Any, outputs: Iterator[Any]) -> Any:
    """The outputs of the executor, which are flat, in the tuples of a type."""
    if isinstance(type, relay.TupleType):
        return tuple([_structured(field, outputs) for field in type.fields])
    return next(outputs)


def _is_plain(body: Any) -> bool:
    """True if a program suits the graph executor: it consists of calls of operators, with known sizes throughout."""
    plain = True

    def visit(expr: Any) -> None:
        nonlocal plain
        match expr:
            case relay.Function():
                plain = plain and expr.attrs is not None and not _LOWERED.isdisjoint(names_of(expr.attrs))
            case relay.Call() | relay.Var():
                plain = plain and is_static(checked_type(expr))
            case relay.Constant() | relay.Tuple() | relay.TupleGetItem() | Op():
                pass
            case _:
                plain = False

    relay.analysis.post_order_visit(body, visit)
    return plain


_LOWERED: Final = frozenset(("Primitive", "Compiler"))
"""The attributes of functions that become one kernel."""


def with_room(work: Callable[[], RunResult]) -> RunResult:
    """The result of some work of TVM's on a stack that is large enough for deep programs."""
    results: list[RunResult] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:
            errors.append(error)

    with _STACKS:
        before = threading.stack_size(STACK)
        try:
            thread = threading.Thread(target=run)
            thread.start()
        finally:
            threading.stack_size(before)
    thread.join()
    if errors:
        raise errors[0]
    return results[0]


_STACKS: Final = threading.Lock()
"""The lock for setting the stack size of new threads, which is one for all."""


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence while TVM compiles: it advises to tune operators."""
    loggers = [logging.getLogger(name) for name in ("te_compiler", "autotvm", "strategy")]
    levels = [logger.level for logger in loggers]
    silent = autotvm.GLOBAL_SCOPE.silent
    autotvm.GLOBAL_SCOPE.silent = True
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        autotvm.GLOBAL_SCOPE.silent = silent
        for logger, level in zip(loggers, levels):
            logger.setLevel(level)


# ---------------------------------------------------------------- single calls


def evaluate(module: Any, node: Node, operands: Sequence[Any]) -> Any:
    """The value of a call on torch tensors and Python numbers."""
    return core.evaluate(node, operands, partial(map, as_operand), partial(_run, module))


def _run(module: Any, node: Node, values: Sequence[Any]) -> Any:
    """The value of an opaque call, by TVM."""
    types = [native_type(operand.type) for operand in node.operands]
    if any(not isinstance(type, relay.TensorType) for type in types):
        raise FrontEndError(f"{node.name}: Relay computes {op_name(node.op)} for operands of known types only")
    variables = [relay.Var(f"x{number}", type) for number, type in enumerate(types)]
    function = relay.Function(variables, opaque.call(module, node.op, variables, node.attrs))
    functions = {var: body for var, body in module.functions.items() if var.name_hint != "main"}
    whole = relay.transform.InferType()(tvm.IRModule({**functions, relay.GlobalVar("main"): function}))
    return as_operand(compiled(whole, {}, [str(var.name_hint) for var in variables])(*values))
