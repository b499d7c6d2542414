"""Modules of TVM in files: looked at before they are loaded, and by another process where TVM may crash."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Final

import numpy as np

from gsl.cli.command import UsageError
from gsl.workload import Workload

SAVES: Final = "import tvm; tvm.ir.save_json(tvm.ir.PrimType('int64'))"
"""A program that shows whether TVM can save anything: with some versions of its package tvm-ffi, it crashes."""
LOADS: Final = "import sys, tvm; tvm.ir.load_json(sys.stdin.buffer.read().decode())"
"""A program that shows whether TVM can load a text: of nodes that contain themselves, it crashes."""
COMPILED: Final = ("ffi.Module", "runtime.Module")
"""The kinds of nodes that are compiled code."""


def read(path: Path, values: Mapping[str, Any] | None) -> Workload:
    """The workload of a module in a file. UsageError if TVM crashes when it is loaded, or it has compiled code."""
    text = path.read_text(encoding="utf-8")
    _check_module(path, json.loads(text))
    if cannot_load(text):
        raise UsageError(f"{path} can't be read as a module of TVM: TVM crashes when it loads it")
    import tvm

    module = tvm.ir.load_json(text)
    if not isinstance(module, tvm.ir.IRModule):
        raise UsageError(f"{path} has a {type(module).__name__} in it; expected an IRModule")
    return Workload(module, values, name=path.stem)


def _check_module(path: Path, parsed: Any) -> None:
    """UsageError for a file that is not a graph of nodes, or has compiled code in it."""
    nodes = parsed.get("nodes") if isinstance(parsed, dict) else None
    if not isinstance(nodes, list) or not all(isinstance(node, dict) for node in nodes):
        raise UsageError(f"{path} can't be read as a module of TVM: it has no list of nodes")
    kinds = {node.get("type", node.get("type_key")) for node in nodes}
    if kinds.intersection(COMPILED):
        raise UsageError(f"{path} has compiled code in it, which is not loaded, because it may be run")


def write(workload: Workload, path: Path, with_values: bool) -> list[Path]:
    """Write the module of a workload, and beside it the values of its parameters."""
    import tvm

    path.write_text(tvm.ir.save_json(workload.native), encoding="utf-8")
    if not with_values:
        return [path]
    function = workload.native[getattr(workload.program, "function", "main")]
    # A variable of Relax has a name, one of Relay a name_hint.
    names = [str(param.name if hasattr(param, "name") else param.name_hint) for param in function.params]
    values = path.with_suffix(".npz")
    np.savez(values, **{name: workload.params[name].numpy() for name in names if name not in workload.inputs})
    return [values, path]


def check_writer() -> None:
    """UsageError if TVM crashes when it saves a module."""
    if cannot_save():
        raise UsageError(
            "the installed TVM crashes when it saves a module, so the result could not be written; install another "
            "version of apache-tvm-ffi (0.1.14.post1 works with TVM 0.27)"
        )


@cache
def cannot_save() -> bool:
    """True if TVM crashes when it saves a module; another process finds it out, once."""
    with _started(SAVES) as probe:
        return _crashed(probe)


@lru_cache(maxsize=4)
def cannot_load(text: str) -> bool:
    """True if TVM crashes when it loads a text; another process finds it out, once, while this one loads TVM."""
    with _started(LOADS) as probe:
        import tvm  # noqa: F401

        return _crashed(probe, text)


def _started(program: str) -> subprocess.Popen[bytes]:
    quiet = subprocess.DEVNULL
    return subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=quiet, stderr=quiet)


def _crashed(probe: subprocess.Popen[bytes], text: str = "") -> bool:
    probe.communicate(text.encode())
    return probe.returncode not in (0, 1)  # an exception is no crash
