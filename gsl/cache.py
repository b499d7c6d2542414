"""Values that are kept from one process to the next, in the user's cache."""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import sys
from contextlib import suppress
from math import isfinite
from pathlib import Path
from typing import Any

_TABLE = "CREATE TABLE IF NOT EXISTS known (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID"
_WAIT = 5.0
"""The seconds that one process waits for another one that writes."""


def folder() -> Path:
    """The user's folder in which GSL keeps data that may be lost: ``GSL_CACHE``, or the system's place for such
    data."""
    own = os.environ.get("GSL_CACHE")
    if own:
        return Path(own)
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "gsl"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "gsl"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gsl"


class Store:
    """Values by keys, in one file of the user's cache; shared by processes.

    Lost values are measured again: where the folder can't be written, or the file is damaged, values are kept for as
    long as the store lives.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._recent: dict[str, Any] = {}
        self._path = folder() / "costs.sqlite" if path is None else path
        self._file = _opened(self._path)

    def get(self, *key: object) -> Any:
        """The value of a key, ``None`` if it is not known."""
        name = _digest(key)
        if name not in self._recent and self._file is not None:
            try:
                row = self._file.execute("SELECT value FROM known WHERE key = ?", (name,)).fetchone()
                self._recent[name] = None if row is None else json.loads(row[0])
            except (sqlite3.Error, ValueError) as error:
                self._give_up(error)
        return self._recent.get(name)

    def number(self, *key: object) -> float | None:
        """The value of a key, ``None`` if it is not known, or is no finite number."""
        found = self.get(*key)
        return float(found) if isinstance(found, (int, float)) and isfinite(found) else None

    def put(self, value: Any, *key: object) -> None:
        """Keep a value that JSON can express."""
        name = _digest(key)
        self._recent[name] = value
        if self._file is not None:
            try:
                with self._file:
                    self._file.execute("INSERT OR REPLACE INTO known VALUES (?, ?)", (name, json.dumps(value)))
            except sqlite3.Error as error:
                self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        """Go on without the file; a damaged one is begun anew by the next store."""
        self._file = None
        if type(error) is sqlite3.DatabaseError:
            with suppress(OSError):
                self._path.unlink()


def _opened(path: Path) -> sqlite3.Connection | None:
    """The file of a store; a damaged one is begun anew. ``None`` where there can be none."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            return _connected(path)
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError):
                raise
            path.unlink()
            return _connected(path)
    except (OSError, sqlite3.Error):
        return None


def _connected(path: Path) -> sqlite3.Connection:
    file = sqlite3.connect(path, timeout=_WAIT, check_same_thread=False)
    try:
        file.execute("PRAGMA synchronous = OFF")  # what a crash of the system loses is measured again
        with file:
            file.execute(_TABLE)
    except sqlite3.Error:
        file.close()
        raise
    return file


def _digest(key: tuple[object, ...]) -> str:
    return hashlib.sha256("\0".join(map(str, key)).encode()).hexdigest()
