"""Files of models: the functions that read and write them."""

from __future__ import annotations

import argparse
import importlib
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gsl.cli import exported, files, ir_modules
from gsl.cli.command import UsageError, path_argument
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


FORMATS: Mapping[str, Format] = {
    ".pt2": Format("torch.export.save", "torch", exported.read, exported.write),
    ".json": Format("tvm.ir.save_json", "apache-tvm", ir_modules.read, ir_modules.write, ir_modules.check_writer),
    ".onnx": Format("onnx.save", "onnx onnx-ir", read_onnx, write_onnx),
}
"""The formats by how the names of their files end."""


def add_arguments(parser: argparse.ArgumentParser, params_help: str = PARAMS_HELP, *, many: bool = False) -> None:
    """Add the arguments that name a model, or many, and those that are needed to read one."""
    if many:
        parser.add_argument(
            "models", metavar="MODEL", type=path_argument, nargs="+", help=f"{HELP}; several, or folders of them"
        )
    else:
        parser.add_argument("model", metavar="MODEL", type=path_argument, help=HELP)
    parser.add_argument("--params", type=path_argument, metavar="WEIGHTS", help=params_help)
    parser.add_argument(
        "--import", action="append", default=[], dest="imports", metavar="MODULE",
        help="import a module before the model is read, for operators and classes that it defines; it is run",
    )  # fmt: skip


def add_sizes(parser: argparse.ArgumentParser, when: str = "when the model is run") -> None:
    """Add the argument that gives numbers for symbolic sizes."""
    parser.add_argument(
        "--sizes", type=_sizes, metavar="NAME=N,…",
        help=f"numbers for symbolic sizes of the inputs, by name (batch=2,length=16), {when}",
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
            try:
                inside = sorted(file for file in path.iterdir() if file.suffix in FORMATS and file.is_file())
            except OSError as error:
                raise UsageError(f"{path} can't be read: {error.strerror}") from None
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
