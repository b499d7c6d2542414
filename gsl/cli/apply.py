"""``gsl apply``: a model in a file, rewritten by rules, in another file."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from gsl.cli import many, models
from gsl.cli.command import (
    MODELS_ARE_DATA,
    RULES_ARE_CODE,
    Command,
    Exit,
    TableRow,
    Terminal,
    UsageError,
    count,
    path_argument,
)  # fmt: skip
from gsl.cli.rules import HELP, selection
from gsl.rewrite import RuleSet
from gsl.rewrite.ruleset import STRATEGIES
from gsl.workload import Workload
from gsl.workload.compare import Report

EXAMPLES = """\
gsl apply rules:BOOK model.pt2 -o smaller.pt2 --iterative --check   # the rule book
gsl apply fusion.yaml model.pt2 -o fused.pt2                        # groups, by the rules of a file
gsl apply mine.py:swish,conv-add model.pt2 -o new.pt2 --json        # two rules of a file of Python
gsl apply rules:BOOK model.onnx -o new.onnx --check --sizes batch=1,length=8  # numbers for symbolic sizes
gsl apply rules:BOOK models -o smaller --jobs 4                     # all models of a folder, into another one
gsl apply mine.py module.json --params weights.npz -o new.json      # a module of TVM; writes new.npz too"""
NOTES = f"""\
{RULES_ARE_CODE} {MODELS_ARE_DATA}
returns: 0 if the result was written; 1 if it was not, as it differs from the model (--check) or nothing was changed \
(--must-fire); 2 for what can't be used; 3 if the rules fail on this model; of several models, the highest"""


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("rules", metavar="RULES", help=HELP)
    models.add_arguments(parser, f"{models.PARAMS_HELP}; those of the result are written beside it", many=True)
    parser.add_argument(
        "-o", "--output", type=path_argument, required=True, metavar="OUT",
        help="where the result is written, whole or not at all; may be the model itself; for several, a folder",
    )  # fmt: skip
    parser.add_argument("--iterative", action="store_true", help="apply the rules until none matches, not in one pass")
    parser.add_argument(
        "--max-steps", type=count(), metavar="N",
        help="with --iterative, fail after so many rewrites; the number of the rule set",
    )  # fmt: skip
    parser.add_argument(
        "--strategy", choices=STRATEGIES,
        help="which of overlapping matches is taken; that of the rule set, or priority",
    )  # fmt: skip
    parser.add_argument(
        "--check", action="store_true",
        help="run the model and the result on its example inputs and on random ones; if they differ, write nothing",
    )  # fmt: skip
    models.add_sizes(parser, "with which --check runs the model")
    many.add_arguments(parser)
    parser.add_argument("--must-fire", action="store_true", help="if no rule fires, write nothing and return 1")
    parser.add_argument("--json", action="store_true", help="print what was done as JSON")
    parser.add_argument(
        "-v", "--verbose", action="store_true", help="also print where rules fired, and what was refused"
    )


def run(options: argparse.Namespace, terminal: Terminal) -> Exit:
    """Apply the rules and write the result; 1 if it is not written, because it differs or nothing fired. Of several
    models, the highest status."""
    if options.sizes is not None and not options.check:
        raise UsageError("--sizes gives the numbers with which --check runs the model: give --check, too")
    if options.max_steps is not None and not options.iterative:
        raise UsageError("--max-steps bounds the rewrites of --iterative: give --iterative, too")
    rules = selection([options.rules], terminal).rule_set(options.strategy, options.max_steps)
    show_all = partial(_print_many, terminal=terminal, verbose=options.verbose)
    return many.run(partial(_apply, rules), options, terminal, "applying", partial(_print, terminal=terminal), show_all)


def _apply(rules: RuleSet, terminal: Terminal, options: argparse.Namespace) -> tuple[Exit, many.JsonObject]:
    models.check_writable(options.output, options.model)
    with terminal.during(f"reading {options.model}"):
        old = models.given(options)
    with terminal.during(f"applying {len(rules)} rules") as tell:
        new = rules(old, iterative=options.iterative, new_name=options.output.stem, progress=tell)
    report = None
    if options.check:
        with terminal.during("comparing"):
            report = old.compare(new, trace=new.trace, sizes=options.sizes)
    written: list[Path] = []
    if (report is None or report.passed) and (new.trace.count() or not options.must_fire):
        with terminal.during(f"writing {options.output}"):
            written = models.write(new, options.output, with_values=options.params is not None)
    found = _as_json(rules, old, new, report, written)
    if options.verbose:
        found["trace"] = new.trace.text()
    return Exit.DONE if written else Exit.NEGATIVE, found


def _print(found: many.JsonObject, terminal: Terminal) -> None:
    """Print what was done to one model."""
    rows = [(row["rule"], str(row["fired"]), str(len(row["refused"]))) for row in found["rules"]]
    rows = [row for row in rows if row[1:] != ("0", "0")]
    if rows:
        terminal.table(rows, ("rule", "fired", "refused"))
        terminal.line()
    if found["groups"]:
        terminal.table([(name, str(count)) for name, count in found["groups"].items()], ("group", "made"))
        terminal.line()
    if "trace" in found:
        terminal.line(f"{found['trace']}\n")
    elif any(row["refused"] for row in found["rules"]):
        terminal.line("-v tells why matches were refused\n")
    calls = found["calls"]
    terminal.line(f"{_told(found)}; {calls['before']} calls before, {calls['after']} after")
    if found["check"] is not None:
        told = str(found["check"]["report"])
        terminal.line(told.splitlines()[0] if found["check"]["passed"] else told)
    terminal.line(_outcome(found))


def _outcome(found: many.JsonObject) -> str:
    """The line about the files that were written, or the reason why there are none."""
    if found["written"]:
        return f"wrote {' and '.join(found['written'])}{'' if _fired(found) else ', the model as it was'}"
    if found["check"] is not None and not found["check"]["passed"]:
        return "nothing was written, because the result differs from the model"
    return "nothing was written, because no rule fired"


def _print_many(found: Sequence[many.Result], terminal: Terminal, verbose: bool) -> None:
    for result in found if verbose else ():
        if result.found is not None:
            terminal.line(f"{result.model}\n")
            _print(result.found, terminal)
            terminal.line()

    def cells(one: many.JsonObject) -> TableRow:
        counts = sum(_fired(one).values()), one["calls"]["before"], one["calls"]["after"]
        return (*map(str, counts), _outcome(one))

    header = ("model", "fired", "before", "after", "result")
    many.show_table(found, terminal, header, cells, "written", "not written")


def _fired(found: many.JsonObject) -> dict[str, int]:
    """The number of firings of each rule that fired."""
    return {row["rule"]: row["fired"] for row in found["rules"] if row["fired"]}


def _told(found: many.JsonObject) -> str:
    """The number of firings and of rules that fired, in words."""
    fired, rules = _fired(found), len(found["rules"])
    firings = sum(fired.values())
    if not firings:
        return f"no rule fired, of {rules}"
    return f"{len(fired)} of {rules} rule{'s' * (rules > 1)} fired, {firings} time{'s' * (firings > 1)} in all"


def _as_json(
    rules: RuleSet, old: Workload, new: Workload, report: Report | None, written: list[Path]
) -> dict[str, Any]:
    refused: dict[str, list[dict[str, Any]]] = {rule.name: [] for rule in rules}
    for refusal in new.trace.refused:
        refused[refusal.rule].append({"at": list(refusal.at), "reason": refusal.reason})
    return {
        "strategy": rules.strategy,
        "rules": [
            {"rule": rule.name, "fired": new.trace.count(rule.name), "refused": refused[rule.name]} for rule in rules
        ],
        "groups": dict(_groups(old, new)),
        "calls": {"before": _calls(old), "after": _calls(new)},
        "folded": new.trace.folded,
        "check": None if report is None else {"passed": report.passed, "report": str(report)},
        "written": [str(path) for path in written],
    }


def _groups(old: Workload, new: Workload) -> Counter[str]:
    """The number of groups of each name that were made."""
    return Counter(group.name for group in new.groups().values()) - Counter(
        group.name for group in old.groups().values()
    )


def _calls(workload: Workload) -> int:
    return sum(workload.op_counts().values())


COMMAND = Command("apply", "Rewrite a model in a file by rules.", _arguments, run, EXAMPLES, NOTES)
