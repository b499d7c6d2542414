"""Modules of TVM in files: looked at before they are loaded, and by another process where TVM may crash."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Final

import numpy as np

from gsl.cli.command import UsageError, process_class
from gsl.pause import uninterrupted
from gsl.workload import Workload

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
    """True if TVM crashes when it saves anything, as with some versions of its package tvm-ffi."""
    return _crashes(_save)


@lru_cache(maxsize=4)
def cannot_load(text: str) -> bool:
    """True if TVM crashes when it loads a text, as it does of nodes that contain themselves."""
    return _crashes(_load, text)


def _save() -> None:
    import tvm

    tvm.ir.save_json(tvm.ir.PrimType("int64"))


def _load(text: str) -> None:
    import tvm

    tvm.ir.load_json(text)


def _crashes(work: Callable[..., None], *arguments: str) -> bool:
    """True if some work with TVM crashes; another process finds it out, a copy of this one, which has loaded TVM."""
    with suppress(ImportError):
        import tvm  # noqa: F401
    process = process_class()(target=_quietly, args=(work, *arguments))
    uninterrupted(process.start)()
    process.join()
    return process.exitcode != 0


def _quietly(work: Callable[..., None], *arguments: str) -> None:
    null = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(null, stream)
    with suppress(Exception):  # which is no crash
        work(*arguments)
