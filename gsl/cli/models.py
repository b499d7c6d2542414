"""Files of models: the functions that read and write them."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Final

import numpy as np

from gsl.cli import exported, files
from gsl.cli.command import UsageError
from gsl.cli.rules import importable
from gsl.workload import Workload

HELP = """\
a program that torch.export.save wrote (.pt2), a module that tvm.ir.save_json did (.json), or a model of ONNX (.onnx)"""
PARAMS_HELP = """\
values of parameters of a module of TVM by name, as numpy.savez writes them (.npz)"""


@dataclass(frozen=True)
class Format:
    """A kind of file: the program that wrote it, the package that it needs, and the functions for it.

    ``read`` takes the path, and the values of parameters that are given beside it. ``write`` takes a workload, the
    path, and whether such values were given; it returns the paths that it wrote, in the order in which they may take
    the place of old files. ``check`` raises UsageError if nothing can be written here.
    """

    title: str
    package: str
    read: Callable[[Path, Mapping[str, Any] | None], Workload]
    write: Callable[[Workload, Path, bool], list[Path]]
    check: Callable[[], None] = lambda: None


def read_onnx(path: Path, values: Mapping[str, Any] | None) -> Workload:
    """The workload of a model of ONNX."""
    if values is not None:
        raise UsageError(f"{path} has its weights, so it takes no --params")
    return Workload.from_onnx(path, name=path.stem)


def write_onnx(workload: Workload, path: Path, with_values: bool) -> list[Path]:
    """Write a model of ONNX, and beside it weights that are large or lie in other files."""
    workload.save(path)
    return [file for file in (path.with_suffix(".data"), path) if file.exists()]


# ---------------------------------------------------------------- modules of TVM


SAVES: Final = "import tvm; tvm.ir.save_json(tvm.ir.PrimType('int64'))"
"""A program that shows whether TVM can save anything: with some versions of its package tvm-ffi, it crashes."""
LOADS: Final = "import sys, tvm; tvm.ir.load_json(sys.stdin.buffer.read().decode())"
"""A program that shows whether TVM can load a text: of nodes that contain themselves, it crashes."""
COMPILED: Final = ("ffi.Module", "runtime.Module")
"""The kinds of nodes that are compiled code."""


def read_module(path: Path, values: Mapping[str, Any] | None) -> Workload:
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


def write_module(workload: Workload, path: Path, with_values: bool) -> list[Path]:
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


# ---------------------------------------------------------------- files by their names


FORMATS: Mapping[str, Format] = {
    ".pt2": Format("torch.export.save", "torch", exported.read, exported.write),
    ".json": Format("tvm.ir.save_json", "apache-tvm", read_module, write_module, check_writer),
    ".onnx": Format("onnx.save", "onnx onnx-ir", read_onnx, write_onnx),
}
"""The formats by how the names of their files end."""


def add_arguments(parser: argparse.ArgumentParser, params_help: str = PARAMS_HELP, *, many: bool = False) -> None:
    """Add the arguments that name a model, or many, and those that are needed to read one."""
    if many:
        parser.add_argument(
            "models", metavar="MODEL", type=Path, nargs="+", help=f"{HELP}; several, or folders of them"
        )
    else:
        parser.add_argument("model", metavar="MODEL", type=Path, help=HELP)
    parser.add_argument("--params", type=Path, metavar="WEIGHTS", help=params_help)
    parser.add_argument(
        "--import", action="append", default=[], dest="imports", metavar="MODULE",
        help="import a module before the model is read, for operators and classes that it defines; it is run",
    )  # fmt: skip


def add_sizes(parser: argparse.ArgumentParser) -> None:
    """Add the argument that gives numbers for symbolic sizes."""
    parser.add_argument(
        "--sizes", type=_sizes, metavar="NAME=N,…",
        help="numbers for symbolic sizes of the inputs, by name (batch=2,length=16), when the model is run",
    )  # fmt: skip


def _sizes(text: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for part in text.split(","):
        name, _, number = part.partition("=")
        if not name.strip() or not number.strip().isdecimal():
            raise argparse.ArgumentTypeError(f"expected sizes by name, as batch=2,length=16, found {text!r}")
        found[name.strip()] = int(number)
    return found


def with_sizes(workload: Workload, sizes: Mapping[str, int] | None) -> Workload:
    """The workload with random example inputs of these sizes, where it has none. UsageError for a program whose example
    inputs are those with which it was made."""
    if sizes is None:
        return workload
    if not hasattr(workload.program, "with_example_inputs"):
        raise UsageError("--sizes: the model has example inputs, on which it is run")
    return workload.with_example_inputs(workload.random_inputs(sizes=sizes))


def of_paths(paths: Sequence[Path]) -> list[Path]:
    """The files of models that arguments name: those files, and the models of those folders, by name. UsageError for a
    folder without one."""
    found: dict[Path, None] = {}
    for path in paths:
        inside = [path]
        if os.path.isdir(path):
            inside = sorted(file for file in path.iterdir() if file.suffix in FORMATS and file.is_file())
        if not inside:
            raise UsageError(f"{path} has no model: the name of one ends in {_known()}")
        found.update(dict.fromkeys(inside))
    return list(found)


def given(options: argparse.Namespace) -> Workload:
    """The workload of the model that the arguments name. UsageError if it can't be read."""
    with importable(os.getcwd()):
        for name in options.imports:
            try:
                importlib.import_module(name)
            except Exception as error:
                raise UsageError(f"--import {name}: {type(error).__name__}: {files.first_line(error)}") from error
    return read(options.model, options.params)


def format_of(path: Path) -> Format:
    """The format of a file by its name. UsageError for another name."""
    found = FORMATS.get(path.suffix)
    if found is None:
        raise UsageError(f"{path}: the name of a model ends in {_known()}")
    return found


def _known() -> str:
    return " or ".join(f"{suffix} ({known.title})" for suffix, known in FORMATS.items())


def read(path: Path, params: Path | None = None) -> Workload:
    """The workload of a file, with values of its parameters from another one. UsageError if it can't be read."""
    for file in (path, params):
        if file is not None:
            _check_readable(file)
    found = format_of(path)
    values = None if params is None else files.arrays(params)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            workload = found.read(path, values)
            _ = workload.graph
        return workload
    except UsageError:
        raise
    except ModuleNotFoundError as error:
        raise UsageError(f"{path} needs {error.name}: pip install {found.package}") from error
    except Exception as error:
        reason = files.first_line(error).removeprefix(f"{path}: ")
        raise UsageError(f"{path} can't be read as a model of {found.title}: {reason}") from error


def _check_readable(path: Path) -> None:
    try:
        if path.is_dir():
            raise UsageError(f"{path} is a folder; give the name of a file in it")
        if not path.is_file():
            raise UsageError(f"there is no file {path}")
        with open(path, "rb") as stream:
            if not stream.read(1):
                raise UsageError(f"{path} is empty")
    except OSError as error:
        raise UsageError(f"{path} can't be read: {error.strerror}") from error


def check_writable(path: Path, model: Path) -> None:
    """UsageError if nothing can be written there, or not in the format of the model."""
    _check_readable(model)
    if format_of(path) is not format_of(model):
        raise UsageError(f"{path}: a model is written as it was read: give a name that ends in {model.suffix}")
    files.check_place(path)
    format_of(path).check()


def write(workload: Workload, path: Path, *, with_values: bool) -> list[Path]:
    """Write the files of a workload, whole or not at all; their paths."""
    return files.write(path, lambda place: format_of(path).write(workload, place, with_values))
