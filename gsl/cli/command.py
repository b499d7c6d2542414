"""The parts of a command: its arguments and errors, and the terminal that it writes to."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import IntEnum
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NoReturn, TextIO, TypeVar

from gsl.errors import GSLError, WorkloadError, missing_package

TrackedItem = TypeVar("TrackedItem")
TableRow = Sequence[str]
STYLES = {"supported": "green", "refuted": "bold red", "unchecked": "yellow"}
"""The colours of words that are alone in a cell."""


@dataclass(frozen=True)
class Terminal:
    """The two streams of a command; plain text goes to a stream that is no terminal, or where rich is missing."""

    out: TextIO
    err: TextIO
    rich_out: bool
    rich_err: bool

    @staticmethod
    def of(out: TextIO, err: TextIO) -> Terminal:
        """For two streams, as far as they are terminals."""
        terminals = out.isatty(), err.isatty()
        there = any(terminals) and _has_rich()
        return Terminal(out, err, there and terminals[0], there and terminals[1])

    def line(self, text: str = "") -> None:
        print(text, file=self.out)

    def complain(self, text: str) -> None:
        """A line of the command's own on the stream for errors."""
        print(f"gsl: {text}", file=self.err, flush=True)

    def warn(self, message: object) -> None:
        """A warning in one line on the stream for errors."""
        self.complain(f"warning: {' '.join(str(message).split())}")

    def json(self, value: Any) -> None:
        self.line(json.dumps(value, indent=2, ensure_ascii=False))

    def table(self, rows: Sequence[TableRow], header: TableRow = ()) -> None:
        """Rows of words, of which the columns stand below each other, with their names if there is a header."""
        if not self.rich_out:
            lines = [*([header] if header else []), *rows]
            widths = [max(map(len, column)) for column in zip(*lines)]
            for row in lines:
                self.line("  ".join(word.ljust(width) for word, width in zip(row, widths)).rstrip())
            return
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        table = Table(*header, show_header=bool(header), box=None, pad_edge=False, header_style="bold")
        for row in rows:
            table.add_row(*[Text(word, style=STYLES.get(word, "")) for word in row])
        Console(file=self.out).print(table)

    def progress(self, items: Iterable[TrackedItem], total: int, title: str) -> Iterator[TrackedItem]:
        """The items, with a bar on a terminal that tells how many of them are done."""
        if not self.rich_err:
            yield from items
            return
        from rich.console import Console
        from rich.progress import track

        yield from track(items, title, total=total, console=Console(file=self.err), transient=True)

    @contextmanager
    def during(self, title: str) -> Iterator[Callable[[str], None]]:
        """A context in which a terminal shows the current task; the function that it gives changes the text."""
        if not self.rich_err:
            yield lambda what: None
            return
        from rich.console import Console
        from rich.text import Text

        with Console(file=self.err).status(title) as status:
            yield lambda what: status.update(Text(f"{title}: {what}"))


def _has_rich() -> bool:
    try:
        import rich.progress
    except ImportError:
        return False
    return bool(rich.progress)


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
    TERMINATED = 143


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


def number(expected: str, fits: Callable[[Any], bool], kind: type = float) -> Callable[[str], Any]:
    """The type of an option: a number that fits."""

    def read(text: str) -> Any:
        with suppress(ValueError):
            if fits(value := kind(text)):
                return value
        raise argparse.ArgumentTypeError(f"expected {expected}, found {text!r}")

    return read


def path_argument(text: str) -> Path:
    """The type of an option: a path. An empty text, as of a variable of the shell that is not set, is none."""
    if not text:
        raise argparse.ArgumentTypeError("expected the name of a file or folder, found an empty text")
    return Path(text)


def count(most: int = 10**9) -> Callable[[str], Any]:
    """The type of an option: a positive whole number."""
    return number(f"a whole number from 1 to {most}", lambda value: 1 <= value <= most, int)


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
    """The status after an error, and the error in one line, which says how to see more unless a traceback was shown."""
    error = missing_package(caught) if isinstance(caught, ModuleNotFoundError) else caught
    usage = isinstance(error, (UsageError, WorkloadError)) or (
        isinstance(error, GSLError) and isinstance(error, ImportError)
    )
    (first, *more) = str(error).splitlines() or [type(error).__name__]
    rest = " …" if more and not shown else ""
    explained = shown or (usage and error.__cause__ is None)
    line = f"{first}{rest}{'' if explained else ' (--traceback shows where)'}"
    return Exit.USAGE if usage else Exit.FAILED, line


def terminated(number: int, frame: object) -> NoReturn:
    """The handler of SIGTERM: it ends the processes that this one started, and raises SystemExit, so that what is
    half-written is taken away, in which no second signal stops it."""
    signal.signal(number, signal.SIG_IGN)
    for process in multiprocessing.active_children():
        process.terminate()
    sys.exit(int(Exit.TERMINATED))


def process_class() -> type[BaseProcess]:
    """The class of processes that start as copies of this one, where the system has such."""
    return multiprocessing.get_context("fork" if "fork" in multiprocessing.get_all_start_methods() else None).Process
