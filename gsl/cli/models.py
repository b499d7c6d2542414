"""Files of models: what reads and writes them."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gsl.cli.command import UsageError
from gsl.workload import Workload

PROBE = "import tvm; tvm.ir.save_json(tvm.ir.PrimType('int64'))"
"""A program that shows whether TVM can save anything: with some versions of its package tvm-ffi, it crashes."""


@dataclass(frozen=True)
class Format:
    """A kind of file: what wrote it, the package that it needs, and the functions for it.

    ``read`` takes the path, and the values of parameters that are given beside it. ``write`` takes a workload, the
    path, and whether such values were given; it returns the paths that it wrote, in the order in which they may take
    the place of old files. ``check`` raises UsageError if nothing can be written here.
    """

    title: str
    package: str
    read: Callable[[Path, Mapping[str, Any] | None], Workload]
    write: Callable[[Workload, Path, bool], list[Path]]
    check: Callable[[], None] = lambda: None


def format_of(path: Path) -> Format:
    """The format of a file by its name. UsageError for another name."""
    found = FORMATS.get(path.suffix)
    if found is None:
        known = " or ".join(f"{suffix} ({known.title})" for suffix, known in FORMATS.items())
        raise UsageError(f"{path}: the name of a model ends in {known}")
    return found


def read(path: Path, params: Path | None) -> Workload:
    """The workload of a file, with values of its parameters from another one. UsageError if it can't be read."""
    found = format_of(path)
    for file in (path, params):
        if file is not None and not file.is_file():
            raise UsageError(f"there is no file {file}")
    values = None if params is None else _values(params)
    try:
        return found.read(path, values)
    except UsageError:
        raise
    except ModuleNotFoundError as error:
        raise UsageError(f"{path} needs {error.name}: pip install {found.package}") from error
    except Exception as error:
        raise UsageError(f"{path} can't be read as a model of {found.title}: {_first(error)}") from error


def check_writable(path: Path, model: Path) -> None:
    """UsageError if nothing can be written there, or not in the format of the model."""
    if format_of(path) is not format_of(model):
        raise UsageError(f"{path}: a model is written as it was read: give a name that ends in {model.suffix}")
    folder = path.resolve().parent
    if not folder.is_dir():
        raise UsageError(f"there is no folder {path.parent}")
    if path.is_dir():
        raise UsageError(f"{path} is a folder")
    if not os.access(folder, os.W_OK):
        raise UsageError(f"{path.parent}: no permission to write there")
    format_of(path).check()


def write(workload: Workload, path: Path, *, with_values: bool) -> list[Path]:
    """Write the files of a workload, whole or not at all; their paths."""
    real = path.resolve()  # what a link leads to is replaced, not the link
    folder = Path(tempfile.mkdtemp(prefix=".gsl-", dir=real.parent))
    try:
        made = format_of(path).write(workload, folder / f"model{path.suffix}", with_values)
        for file in made:
            old = real.with_suffix(file.suffix)
            if old.exists():
                shutil.copymode(old, file)
            with open(file, "rb") as stream:
                os.fsync(stream.fileno())
        for file in made:
            os.replace(file, real.with_suffix(file.suffix))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return [path.with_suffix(file.suffix) for file in made]


# torch


def _read_exported(path: Path, values: Mapping[str, Any] | None) -> Workload:
    import torch

    if values is not None:
        raise UsageError(f"{path} has its weights, so it takes no --params")
    with zipfile.ZipFile(path) as archive:
        pickled = [name for name in archive.namelist() if "constants/opaque_obj_" in name]
    if pickled:
        raise UsageError(f"{path} has pickled objects ({pickled[0]}), which are not loaded, because they may run code")
    with _tensors_only():
        return Workload.from_exported(torch.export.load(path), name=path.stem)


@contextmanager
def _tensors_only() -> Iterator[None]:
    """While it lasts, torch loads no pickles but those of tensors, and reports a failure by its exception alone."""
    name = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"
    before, level = os.environ.get(name), logging.root.manager.disable
    os.environ[name] = "1"
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(level)
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def _write_exported(workload: Workload, path: Path, with_values: bool) -> list[Path]:
    import torch

    torch.export.save(workload.exported, path)
    return [path]


# TVM


def _read_module(path: Path, values: Mapping[str, Any] | None) -> Workload:
    import tvm

    return Workload(tvm.ir.load_json(path.read_text(encoding="utf-8")), values, name=path.stem)


def _write_module(workload: Workload, path: Path, with_values: bool) -> list[Path]:
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


def tvm_crashes() -> bool:
    """Whether TVM crashes when it saves a module; another process finds it out."""
    code = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, check=False).returncode
    return code not in (0, 1)  # an exception is no crash


def _check_tvm() -> None:
    if tvm_crashes():
        raise UsageError(
            "the installed TVM crashes when it saves a module, so the result could not be written; install another "
            "version of apache-tvm-ffi (0.1.14.post1 works with TVM 0.27)"
        )


def _values(path: Path) -> Mapping[str, Any]:
    """Arrays by name."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except Exception as error:
        raise UsageError(f"{path} can't be read as arrays that numpy.savez wrote: {_first(error)}") from error


def _first(error: Exception) -> str:
    """The first line of what an exception says."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


FORMATS: Mapping[str, Format] = {
    ".pt2": Format("torch.export.save", "torch", _read_exported, _write_exported),
    ".json": Format("tvm.ir.save_json", "apache-tvm", _read_module, _write_module, _check_tvm),
}
"""The formats by how the names of their files end."""
