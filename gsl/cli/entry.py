"""The parser of the command line, and the one line that a failure is reported in."""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Sequence

from gsl.cli import apply, verify
from gsl.cli.command import Command, Exit, UsageError
from gsl.cli.terminal import Terminal

COMMANDS: tuple[Command, ...] = (apply.COMMAND, verify.COMMAND)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; 0 if all is well, 1 if something was found, 2 for what can't be used."""
    options = _parser().parse_args(arguments)
    terminal = Terminal.of(sys.stdout, sys.stderr)
    try:
        return int(options.run(options, terminal))
    except KeyboardInterrupt:
        terminal.complain("interrupted")
        return int(Exit.INTERRUPTED)
    except Exception as error:
        if options.traceback:
            traceback.print_exception(error, file=sys.stderr)
        (first, *more) = str(error).splitlines() or [type(error).__name__]
        rest = " …" if more and not options.traceback else ""
        explained = options.traceback or (isinstance(error, UsageError) and error.__cause__ is None)
        hint = "" if explained else " (--traceback shows where)"
        terminal.complain(f"error: {first}{rest}{hint}")
        return int(Exit.USAGE)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="gsl", description="The Graph Substitution Language.")
    commands = parser.add_subparsers(title="commands", metavar="command", required=True)
    for command in COMMANDS:
        inner = commands.add_parser(command.name, help=command.summary, description=command.summary)
        command.arguments(inner)
        inner.add_argument("--traceback", action="store_true", help="show the traceback of an error")
        inner.set_defaults(run=command.run)
    return parser
