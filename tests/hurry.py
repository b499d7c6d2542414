"""What frameworks do slowly, and no test is about: each test process has it done faster.

* TVM compiles programs that run once, so LLVM need not optimise them. What builds with a target of its own, or by TVM
  itself, is left alone.
* ``run_decompositions`` of torch goes through all operators there are, many times in one call; it is enough to do so
  when there are new ones.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Final

QUICKLY: Final = {"kind": "llvm", "opt-level": 0}
"""The target of programs that run once."""


def hurry() -> None:
    """Make what is loaded by now faster."""
    for name, change in CHANGES.items():
        if name in sys.modules:
            change(sys.modules[name])


def _relax(module: Any) -> None:
    from gsl.front.relax.program import RelaxProgram

    RelaxProgram.build.__kwdefaults__["target"] = QUICKLY


def _relay(module: Any) -> None:
    from gsl.front.relay.run import compiled

    compiled.__kwdefaults__["target"] = QUICKLY


def _decompositions(module: Any) -> None:
    from torch import library

    materialize, seen = module._materialize_cpp_cia_ops, set[tuple[int, int]]()

    def once() -> None:
        known = len(library._defs), len(library._impls)
        if known not in seen:
            materialize()
            seen.add(known)

    module._materialize_cpp_cia_ops = once


CHANGES: Final[dict[str, Callable[[Any], None]]] = {
    "tvm.tirx": _relax,
    "tvm.relay": _relay,
    "torch._export.utils": _decompositions,
}
"""By the module that has to be loaded."""
