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

    DONE = 0
    """What was asked for was done, or found."""
    NEGATIVE = 1
    """The answer is no: nothing matches, a rule is wrong, the result differs."""
    USAGE = 2
    """What was given can't be used: an option, a file, a name, a package that is missing."""
    FAILED = 3
    """What was given could be used, but the work itself failed."""
    INTERRUPTED = 130
    CLOSED = 141
    """Nobody reads the output any more, as of ``gsl list rules | head -1``."""


@dataclass(frozen=True)
class Command:
    """A command: its name, what it does in a line, its arguments, and what runs it."""

    name: str
    summary: str
    arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace, Terminal], Exit]
    examples: str
    """Lines of the shell, which the help shows and the tests run."""
    notes: str = ""
    """What else the help says: what the files are, what is returned."""


RULES_ARE_CODE = (
    "A file or module of Python rules is code, and is run, with your permissions: read what others wrote before you "
    "use it."
)
MODELS_ARE_DATA = (
    "Models are read as data: what is pickled in them is not run, nor are expressions that are more than arithmetic on "
    "sizes."
)
"""What the help says about what is run."""
