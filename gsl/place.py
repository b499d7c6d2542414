"""The places where files are to be written, looked at before anything is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

SHOWN: Final = 120
"""The number of characters of a path that are shown."""


def why_unwritable(path: Path) -> str | None:
    """Why no file can be written there, nor take the place of an old one; ``None`` if it can, as far as is known."""
    try:
        os.stat(path)
    except FileNotFoundError:
        pass
    except OSError as error:
        return f"{shown(path)} can't be written: {error.strerror}"
    folder = path.resolve().parent
    if not folder.is_dir():
        return f"there is no folder {path.parent}"
    if path.is_dir():
        return f"{path} is a folder; give the name of a file in it"
    if path.exists() and not path.is_file():
        return f"{path} is a device or a pipe; give the name of a file"
    if not os.access(folder, os.W_OK, effective_ids=os.access in os.supports_effective_ids):
        return f"{path.parent}: no permission to write there"
    return None


def shown(path: Path) -> str:
    """A path as messages show it, which may be too long to be one."""
    text = str(path)
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"
