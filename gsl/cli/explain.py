"""``gsl explain`` and ``gsl unread``: why a rule does not fire, and which calls no canonical operator reads."""

from __future__ import annotations

import argparse
from typing import Any

from gsl.cli import models
from gsl.cli.command import MODELS_ARE_DATA, RULES_ARE_CODE, Command, Exit, Terminal, count
from gsl.cli.rules import HELP, one_rule
from gsl.rewrite.explain import Explanation

EXAMPLES = """\
gsl explain mine.py:conv-add model.pt2                              # the partial matches that came furthest
gsl explain mine.py:conv-add model.pt2 --nearest 10 --rule          # more of them, and the rule itself
gsl explain rules:two-conv-add module.json --params weights.npz     # a module of TVM"""
NOTES = f"""\
{RULES_ARE_CODE} {MODELS_ARE_DATA}
returns: 0 if the rule fires somewhere; 1 if it does not; 2 for what can't be used"""


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("rule", metavar="RULE", help=f"{HELP}. The name of one rule, unless there is only one")
    models.add_arguments(parser)
    parser.add_argument("--nearest", type=count(), default=3, metavar="N", help="show so many partial matches (3)")
    parser.add_argument("--rule", action="store_true", dest="show", help="also print the rule")
    parser.add_argument("--json", action="store_true", help="print the explanation as JSON")


def run(options: argparse.Namespace, terminal: Terminal) -> Exit:
    """Print the explanation; 1 if the rule does not fire."""
    rule = one_rule(options.rule, terminal)
    with terminal.during(f"reading {options.model}"):
        workload = models.given(options)
    with terminal.during("matching"):
        explanation = rule.explain(workload, nearest=options.nearest)
    if options.json:
        terminal.json(_as_json(explanation) | ({"text": str(rule)} if options.show else {}))
    else:
        if options.show:
            terminal.line(f"{rule}\n")
        terminal.line(str(explanation))
    return Exit.DONE if explanation else Exit.NEGATIVE


def _as_json(explanation: Explanation) -> dict[str, Any]:
    return {
        "rule": explanation.rule,
        "patterns": explanation.patterns,
        "matches": explanation.matches,
        "refused": [{"at": list(refusal.at), "reason": refusal.reason} for refusal in explanation.refused],
        "absent": list(explanation.absent),
        "hint": explanation.hint,
        "nearest": [
            {
                "matched": miss.bound,
                "pattern": None if miss.pattern is None else repr(miss.pattern),
                "written": None if miss.pattern is None else str(miss.pattern.location),
                "at": None if miss.node is None else miss.node.name,
                "reason": miss.reason,
            }
            for miss in explanation.nearest
        ],
        "inside": {name: _as_json(part) for name, part in explanation.inside.items()},
    }


COMMAND = Command("explain", "Tell why a rule does not fire in a model.", _arguments, run, EXAMPLES, NOTES)


# ---------------------------------------------------------------- calls that are not read


UNREAD_EXAMPLES = """\
gsl unread model.pt2                                                # which, how often, and why
gsl unread model.pt2 --json"""
UNREAD_NOTES = f"""\
Rules on canonical operators do not see these calls; they can be matched under their native names. {MODELS_ARE_DATA}
returns: 0 if all calls are read; 1 if some are not; 2 for what can't be used"""


def _unread_arguments(parser: argparse.ArgumentParser) -> None:
    models.add_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print the calls as JSON")


def run_unread(options: argparse.Namespace, terminal: Terminal) -> Exit:
    """Print the calls without a canonical reading; 1 if there are some."""
    with terminal.during(f"reading {options.model}"):
        found = models.given(options).unread()
    if options.json:
        calls = [{"op": each.op, "reason": each.reason, "names": list(each.names)} for each in found]
        terminal.json({"calls": found.total, "unread": calls})
    else:
        terminal.line(str(found))
    return Exit.NEGATIVE if len(found) else Exit.DONE


UNREAD = Command(
    "unread", "Tell which calls of a model are not read.", _unread_arguments, run_unread, UNREAD_EXAMPLES, UNREAD_NOTES
)
