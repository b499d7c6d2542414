"""Archives in zip files, looked at before they are loaded: models of torch, and arrays of numpy."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from gsl.cli.command import UsageError

MOST: Final = 1 << 24
RATIO: Final = 8
"""An archive that unpacks to more bytes than ``MOST`` may not be so many times smaller than they are. Neither torch nor
``numpy.savez`` compresses what it writes; numbers and their texts, compressed by somebody else, become a few times
smaller. The values of a text may take fifty times its bytes, so this bounds the memory that a small file costs, too."""


def check(path: Path, kind: str) -> zipfile.ZipFile:
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
    check(path, kind).close()
    try:
        with np.load(path, allow_pickle=False) as opened:
            return {name: opened[name] for name in opened.files}
    except Exception as error:
        raise UsageError(f"{path} is not {kind}: {first_line(error)}") from error


def first_line(error: Exception) -> str:
    """The first line of the message of an exception."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
