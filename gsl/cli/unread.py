"""``gsl unread``: the calls of a model that no canonical operator reads."""

from __future__ import annotations

import argparse

from gsl.cli import models
from gsl.cli.command import MODELS_ARE_DATA, Command, Exit, Terminal

EXAMPLES = """\
gsl unread model.pt2                                                # which, how often, and why
gsl unread model.pt2 --json"""
NOTES = f"""\
Rules on canonical operators do not see these calls; they can be matched under their native names. {MODELS_ARE_DATA}
returns: 0 if all calls are read; 1 if some are not; 2 for what can't be used"""


def _arguments(parser: argparse.ArgumentParser) -> None:
    models.add_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print the calls as JSON")


def run(options: argparse.Namespace, terminal: Terminal) -> Exit:
    """Print the calls without a canonical reading; 1 if there are some."""
    with terminal.during(f"reading {options.model}"):
        found = models.given(options).unread()
    if options.json:
        calls = [{"op": each.op, "reason": each.reason, "names": list(each.names)} for each in found]
        terminal.json({"calls": found.total, "unread": calls})
    else:
        terminal.line(str(found))
    return Exit.NEGATIVE if len(found) else Exit.DONE


COMMAND = Command("unread", "Tell which calls of a model are not read.", _arguments, run, EXAMPLES, NOTES)
