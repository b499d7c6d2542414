"""Files of a command: archives, looked at before they are loaded, and results, written whole or not at all."""

from __future__ import annotations

import os
import shutil
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import numpy as np

from gsl.cli.command import UsageError
from gsl.pause import uninterrupted
from gsl.place import shown, why_unwritable

MOST: Final = 1 << 24
RATIO: Final = 8
"""An archive that unpacks to more bytes than ``MOST`` may not be so many times smaller than they are. Neither torch nor
``numpy.savez`` compresses what it writes; numbers and their texts, compressed by somebody else, become a few times
smaller. The values of a text may take fifty times its bytes, so this bounds the memory that a small file costs, too."""


def checked_archive(path: Path, kind: str) -> zipfile.ZipFile:
    """An open archive that is complete, and whose unpacked contents fit its size. UsageError for another file."""
    try:
        opened = zipfile.ZipFile(path)
    except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
        raise UsageError(f"{path} is not {kind}, or only a part of one: {first_line(error)}") from error
    size, unpacked = path.stat().st_size, sum(record.file_size for record in opened.infolist())
    if unpacked > max(MOST, RATIO * size):
        opened.close()
        raise UsageError(f"{path} has {size} bytes, but would unpack to {unpacked}, which is too much to be {kind}")
    return opened


def arrays(path: Path) -> Mapping[str, Any]:
    """The arrays of a file of numpy by their names. UsageError for another file, and for pickled ones."""
    kind = "an archive of arrays that numpy.savez wrote"
    checked_archive(path, kind).close()
    try:
        with np.load(path, allow_pickle=False) as opened:
            return {name: opened[name] for name in opened.files}
    except Exception as error:
        raise UsageError(f"{path} is not {kind}: {first_line(error)}") from error


def first_line(error: Exception) -> str:
    """The first line of the message of an exception."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


# ---------------------------------------------------------------- results


def check_place(path: Path) -> None:
    """UsageError if no file can be written there."""
    reason = why_unwritable(path)
    if reason is not None:
        raise UsageError(reason)


def in_folder(folder: Path, files: Sequence[Path]) -> list[Path]:
    """Places in a folder, which is made if need be, under the names of files. UsageError for two of one name."""
    places: dict[str, Path] = {}
    for file in files:
        other = places.setdefault(file.name, file)
        if other is not file:
            raise UsageError(f"{other} and {file} would both be written as {folder / file.name}; rename one")
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise UsageError(f"{shown(folder)} can't be the folder of the results: {error.strerror}") from None
    return [folder / file.name for file in files]


def write(path: Path, make: Callable[[Path], list[Path]]) -> list[Path]:
    """Write files by a function, and put them in place when all are complete; their paths.

    ``make`` gets a path of the same name in a new folder, and returns what it wrote there, which may have other
    suffixes, in the order in which the files may take the place of old ones.
    """
    real = path.resolve()  # what a link leads to is replaced, not the link
    folder = real.parent / f".gsl-{uuid4().hex}"  # known before it is made: by then it is sure to be taken away
    try:
        folder.mkdir(mode=0o700)
        made = make(folder / real.name)
        for file in made:
            old = real.with_suffix(file.suffix)
            if old.exists():
                shutil.copymode(old, file)
            with open(file, "rb") as stream:
                os.fsync(stream.fileno())
        for file in made:
            os.replace(file, real.with_suffix(file.suffix))
    except OSError as error:
        raise UsageError(f"{path} can't be written: {error.strerror or error}") from error
    finally:
        uninterrupted(shutil.rmtree)(folder, ignore_errors=True)
    return [path.with_suffix(file.suffix) for file in made]
