"""``gsl list``: the rules of files and modules."""

from __future__ import annotations

import argparse
from typing import Any

from gsl.cli.command import RULES_ARE_CODE, Command, Exit, Terminal
from gsl.cli.rules import HELP, RuleSelection, selection
from gsl.rewrite import Subst

EXAMPLES = """\
gsl list rules                                                      # the rule book
gsl list rules:conv-batch-norm -v                                   # one rule in full
gsl list fusion.yaml mine.py --json                                 # the rules of two files"""
NOTES = f"""\
{RULES_ARE_CODE}
returns: 0; 2 for what can't be used"""


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("rules", nargs="+", metavar="RULES", help=HELP)
    parser.add_argument("-v", "--verbose", action="store_true", help="print the rules in full, not as a table")
    parser.add_argument("--json", action="store_true", help="print the rules as JSON, each with its text")


def run(options: argparse.Namespace, terminal: Terminal) -> Exit:
    """Print the rules."""
    chosen = selection(options.rules, terminal)
    if options.json:
        terminal.json(_as_json(chosen))
    elif options.verbose:
        terminal.line("\n\n".join(_in_full(rule) for rule in chosen.rules))
    else:
        rows = [(rule.name, str(rule.priority), _summary(rule)) for rule in chosen.rules]
        terminal.table(rows, ("rule", "priority", "what it does"))
        terminal.line()
        if chosen.sets:
            sets = [(name, str(len(held)), held.strategy) for name, held in chosen.sets.items()]
            terminal.table(sets, ("rule set", "rules", "strategy"))
            terminal.line()
        terminal.line(f"{len(chosen.rules)} rule{'s' * (len(chosen.rules) > 1)}")
    return Exit.DONE


def _summary(rule: Subst) -> str:
    """The first line of a rule's description, or the operators of its source."""
    first = rule.doc.strip().partition("\n")[0]
    return first or f"at {rule.location}"


def _in_full(rule: Subst) -> str:
    (title, *lines) = str(rule).splitlines()
    return "\n".join([f"{title} ({rule.location}, priority {rule.priority})", *lines])


def _as_json(chosen: RuleSelection) -> dict[str, Any]:
    return {
        "rules": [
            {
                "rule": rule.name, "priority": rule.priority, "doc": rule.doc, "text": str(rule),
                "written": str(rule.location),
            }
            for rule in chosen.rules
        ],
        "sets": [
            {"name": name, "strategy": held.strategy, "rules": [rule.name for rule in held]}
            for name, held in chosen.sets.items()
        ],
    }  # fmt: skip


COMMAND = Command("list", "List the rules of files and modules.", _arguments, run, EXAMPLES, NOTES)
