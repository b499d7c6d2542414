"""What frameworks, and GSL itself, do slowly, and no test is about: each test process has it done faster.

* TVM compiles programs that run once, so LLVM need not optimise them. What builds with a target of its own, or by TVM
  itself, is left alone.
* Relay asks for the table of options with which TVM was built once for each axis of a result, and looks through all
  that is computed so far for what was tuned, once for each call; nothing is tuned here.
* torch writes into each node of an export where the model called it, with all places above: sixty of them in a test.
* ``torch.onnx.export`` parses the sources of all functions that it may write, in each call.
* ``run_decompositions`` of torch registers many functions for each of many operators, and computes annotations for
  each of them.
* ``run_decompositions`` of torch goes through all operators there are, many times in one call; it is enough to do so
  when there are new ones.
* ``torch.manual_seed`` writes down the whole stack for each kind of device that there is not.
* ``make_fx`` puts functions that do nothing more into the class of modules, for which Python goes through its thousand
  subclasses four times.
* ``torch.compile`` empties the processor's caches to find out how long the guards of each graph take.
* The rates of this machine are measured with tensors that are large enough for them to be the best that it reaches;
  tests measure them again in each folder of their own.
* TVM's script and torch's operators ask Python for the modules of frames.
* hypothesis has Python's collector go through all objects when it draws for the first time, and it reads the sources of
  all modules of this repository, of whose numbers and texts it would draw some: other ones after each change.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from functools import cache, partial
from types import ModuleType
from typing import Any, Final

from hypothesis.internal.conjecture import providers
from hypothesis.internal.entropy import deterministic_PRNG

QUICKLY: Final = {"kind": "llvm", "opt-level": 0}
"""The target of programs that run once."""


def hurry() -> None:
    """Make what is loaded by now faster."""
    for name, change in CHANGES.items():
        if name in sys.modules:
            change(sys.modules[name])


def find_modules() -> None:
    """Make the search for the module of a frame faster: it says itself which it is, and Python looks at the files of
    all modules. This is worth it while modules are loaded."""
    search = inspect.getmodule

    def getmodule(value: Any, file: str | None = None) -> ModuleType | None:
        known = sys.modules.get(value.f_globals.get("__name__", "")) if inspect.isframe(value) else None
        return known or search(value, file)

    inspect.getmodule = getmodule


def draw_once() -> None:
    """Have hypothesis draw while there are few objects, and nothing that depends on which modules are loaded."""
    providers._get_local_constants = lambda: providers._local_constants
    with deterministic_PRNG():
        pass


def _relax(module: Any) -> None:
    from gsl.front.relax.program import RelaxProgram

    RelaxProgram.build.__kwdefaults__["target"] = QUICKLY


def _relay(module: Any) -> None:
    from gsl.front.relay.run import compiled

    compiled.__kwdefaults__["target"] = QUICKLY


def _lowering(module: Any) -> None:
    module.libinfo = cache(module.libinfo)
    module.select_implementation = partial(module.select_implementation, use_autotvm=False)


def _decompositions(module: Any) -> None:
    from torch import library

    materialize, seen = module._materialize_cpp_cia_ops, set[tuple[int, int]]()

    def once() -> None:
        known = len(library._defs), len(library._impls)
        if known not in seen:
            materialize()
            seen.add(known)

    module._materialize_cpp_cia_ops = once


class _Annotation(type):
    """The type of what is told apart from ``collections.abc.Callable`` by its subscriptions alone, which are cheap."""

    def __instancecheck__(cls, value: object) -> bool:
        return callable(value)

    def __getitem__(cls, arguments: object) -> type:
        return cls


def _registrations(module: Any) -> None:
    module.Callable = _Annotation("Callable", (), {})


def _seeds(module: Any) -> None:
    seed_all = module.random._manual_seed_impl

    def seed(number: int) -> Any:
        has_devices = module.accelerator.is_available() or module.cuda.is_initialized()
        return seed_all(number) if has_devices else module.default_generator.manual_seed(int(number))

    module.random._manual_seed_impl = seed


def _guards(module: Any) -> None:
    module.profile_guard_manager = lambda manager, values, times: 0.0


def _tracers(module: Any) -> None:
    from torch.fx import _symbolic_trace as symbolic

    patch, plain = symbolic._Patcher.patch_method, (symbolic._orig_module_getattr, symbolic._orig_module_call)

    def patch_method(patcher: Any, cls: type, name: str, new: Any, deduplicate: bool = True) -> None:
        held = dict(zip(new.__code__.co_freevars, new.__closure__ or ()))
        idle = "self" in held and type(held["self"].cell_contents) is module.PythonKeyTracer
        if not idle or getattr(cls, name) not in plain:
            patch(patcher, cls, name, new, deduplicate)

    symbolic._Patcher.patch_method = patch_method


def _places(module: Any) -> None:
    module.do_not_emit_stack_traces = True


def _rates(module: Any) -> None:
    module._MEMORY, module._SIDE = 1 << 20, 128


def _onnx_functions(module: Any) -> None:
    read = module.TracedOnnxFunction.function_ir.fget
    module.TracedOnnxFunction.function_ir = property(cache(read))


CHANGES: Final[dict[str, Callable[[Any], None]]] = {
    "torch": _seeds,
    "torch._dynamo.guards": _guards,
    "torch.fx.experimental.proxy_tensor": _tracers,
    "tvm.tirx": _relax,
    "tvm.relay": _relay,
    "tvm.relay.backend.te_compiler": _lowering,
    "torch._export.utils": _decompositions,
    "torch._ops": _registrations,
    "torch.fx.config": _places,
    "gsl.cost.machine": _rates,
    "onnxscript._internal.values": _onnx_functions,
}
"""By the module that has to be loaded."""
