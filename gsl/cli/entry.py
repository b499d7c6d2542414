"""The command line: its parser, and the one line that a failure is reported in."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import textwrap
import threading
import traceback
import warnings
from collections.abc import Sequence
from importlib import metadata

from gsl.cli import apply, completion, draw, match, optimize, verify
from gsl.cli.command import Command, Exit, Terminal, failure, terminated

COMMANDS: tuple[Command, ...] = (
    apply.COMMAND, optimize.COMMAND, match.COMMAND, match.EXPLAIN, verify.COMMAND, verify.LIST, draw.COMMAND,
    match.UNREAD, match.PATTERN, completion.COMMAND,
)  # fmt: skip
EPILOG = """\
returns: 0 done; 1 the answer is no (nothing matches, a rule is wrong, the result differs); 2 what was given can't be
used; 3 the work failed; 130 interrupted; 143 terminated. What was found goes to standard output, everything else to
standard error.

gsl COMMAND --help shows examples of each command."""
WIDTH = 118


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. Its return values are those of :class:`Exit`."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # a process may have been started without
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 (it is open as long as the process lives)
    terminal = Terminal.of(sys.stdout, sys.stderr)
    shown = False
    ends = signal.getsignal(signal.SIGTERM) == signal.SIG_DFL and threading.current_thread() is threading.main_thread()
    try:
        try:
            if ends:
                signal.signal(signal.SIGTERM, terminated)
            options = parser().parse_args(arguments)
            shown = options.traceback
            with warnings.catch_warnings():
                warnings.showwarning = lambda message, *_: terminal.warn(message)
                found = options.run(options, terminal)
        finally:
            if ends:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
            _flush()  # also what the parser prints before it exits
        return int(found)
    except KeyboardInterrupt:
        terminal.complain("interrupted")
        return int(Exit.INTERRUPTED)
    except BrokenPipeError:
        return int(Exit.CLOSED)
    except Exception as caught:
        if shown:
            traceback.print_exception(caught, file=sys.stderr)
        status, line = failure(caught, shown)
        terminal.complain(f"error: {line}")
        return int(status)


def _flush() -> None:
    """Write what is buffered. What can't be written is dropped: the interpreter would complain about it at its end."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise


def parser() -> argparse.ArgumentParser:
    """The parser of the whole command line."""
    top = argparse.ArgumentParser(
        prog="gsl", formatter_class=argparse.RawDescriptionHelpFormatter, epilog=EPILOG,
        description="The Graph Substitution Language: models in files, matched, rewritten and drawn by rules.",
    )  # fmt: skip
    top.add_argument("--version", action=_Version, nargs=0, help="print the versions of GSL and of the frameworks")
    commands = top.add_subparsers(title="commands", metavar="command", required=True)
    for command in COMMANDS:
        inner = commands.add_parser(
            command.name, help=command.summary, description=command.summary, epilog=_epilog(command),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )  # fmt: skip
        command.arguments(inner)
        inner.add_argument("--traceback", action="store_true", help="show the traceback of an error")
        inner.set_defaults(run=command.run, parser=parser)
    return top


def _epilog(command: Command) -> str:
    notes = ["\n".join(textwrap.wrap(note, WIDTH)) for note in command.notes.splitlines() if note]
    return "\n\n".join([f"examples:\n{textwrap.indent(command.examples.strip(), '  ')}", *notes])


class _Version(argparse.Action):
    """Prints the versions of the packages that matter, without loading them."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        for package in ("gsl", "torch", "apache-tvm", "onnx"):
            try:
                print(package, metadata.version(package))
            except metadata.PackageNotFoundError:
                print(package, "is not installed")
        parser.exit()
