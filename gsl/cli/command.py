"""What a command is, and how it says that it was called wrongly."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

from gsl.cli.terminal import Terminal
from gsl.errors import GSLError


class UsageError(GSLError):
    """The command was called with something that does not exist or can't be used; the message is one line."""


class Exit(IntEnum):
    """What the process returns."""

    FINE = 0
    FOUND = 1
    """What was looked for was found: a rule is wrong."""
    USAGE = 2
    INTERRUPTED = 130


@dataclass(frozen=True)
class Command:
    """A command: its name, what it does in a line, its arguments, and what runs it."""

    name: str
    summary: str
    arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace, Terminal], Exit]
