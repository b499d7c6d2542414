"""The parts of a command, and the error for a wrong call of it."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

from gsl.cli.terminal import Terminal
from gsl.errors import GSLError, missing_package


class UsageError(GSLError):
    """The command was called with something that does not exist or can't be used; the message is one line."""


class Exit(IntEnum):
    """The status that the process returns."""

    DONE = 0
    """The task was done, or the wanted thing was found."""
    NEGATIVE = 1
    """The answer is no: nothing matches, a rule is wrong, the result differs."""
    USAGE = 2
    """An option, a file, a name or a package can't be used, or is missing."""
    FAILED = 3
    """The input could be used, but the work itself failed."""
    INTERRUPTED = 130
    CLOSED = 141
    """The reader of the output is gone, as of ``gsl list rules | head -1``."""


@dataclass(frozen=True)
class Command:
    """A command: its name, its task in a line, its arguments, and the function that runs it."""

    name: str
    summary: str
    arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace, Terminal], Exit]
    examples: str
    """Lines of the shell, which the help shows and the tests run."""
    notes: str = ""
    """The rest of the help: the files that can be given, and the exit status."""


RULES_ARE_CODE = (
    "A file or module of Python rules is code, and is run, with your permissions: read what others wrote before you "
    "use it."
)
MODELS_ARE_DATA = (
    "Models are read as data: what is pickled in them is not run, nor are expressions that are more than arithmetic on "
    "sizes."
)
"""The help's statements about the code that is run."""


def failure(caught: Exception, shown: bool) -> tuple[Exit, str]:
    """What the process returns after an error, and the error in one line. It says how to see more, unless a traceback
    was shown."""
    error = missing_package(caught) if isinstance(caught, ModuleNotFoundError) else caught
    usage = isinstance(error, UsageError) or (isinstance(error, GSLError) and isinstance(error, ImportError))
    (first, *more) = str(error).splitlines() or [type(error).__name__]
    rest = " …" if more and not shown else ""
    explained = shown or (usage and error.__cause__ is None)
    line = f"{first}{rest}{'' if explained else ' (--traceback shows where)'}"
    return Exit.USAGE if usage else Exit.FAILED, line
