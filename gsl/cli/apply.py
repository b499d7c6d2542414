"""``gsl apply``: a model in a file, rewritten by rules, in another file."""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path
from typing import Any

from gsl.cli import models
from gsl.cli.command import MODELS_ARE_DATA, RULES_ARE_CODE, Command, Exit, UsageError
from gsl.cli.rules import HELP, selection
from gsl.cli.terminal import Terminal
from gsl.rewrite import RuleSet
from gsl.rewrite.ruleset import STRATEGIES
from gsl.workload import Workload
from gsl.workload.compare import Report

EXAMPLES = """\
gsl apply rules:BOOK model.pt2 -o smaller.pt2 --iterative --check   # the rule book
gsl apply fusion.yaml model.pt2 -o fused.pt2                        # groups, by the rules of a file
gsl apply mine.py:swish,conv-add model.pt2 -o new.pt2 --json        # two rules of a file of Python
gsl apply rules:BOOK model.onnx -o new.onnx --check --sizes batch=1,length=8  # numbers for symbolic sizes
gsl apply mine.py module.json --params weights.npz -o new.json      # a module of TVM; writes new.npz too"""
NOTES = f"""\
{RULES_ARE_CODE} {MODELS_ARE_DATA}
returns: 0 if the result was written; 1 if it was not, as it differs from the model (--check) or nothing was changed \
(--must-fire); 2 for what can't be used; 3 if the rules fail on this model"""


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("rules", metavar="RULES", help=HELP)
    models.add_arguments(parser, f"{models.PARAMS_HELP}; those of the result are written beside it")
    parser.add_argument(
        "-o", "--output", type=Path, required=True, metavar="OUT",
        help="where the result is written, whole or not at all; may be the model itself",
    )  # fmt: skip
    parser.add_argument("--iterative", action="store_true", help="apply the rules until none matches, not in one pass")
    parser.add_argument(
        "--max-steps", type=int, metavar="N", help="fail after so many rewrites; the number of the rule set"
    )
    parser.add_argument(
        "--strategy", choices=STRATEGIES,
        help="which of overlapping matches is taken; that of the rule set, or priority",
    )  # fmt: skip
    parser.add_argument(
        "--check", action="store_true",
        help="run the model and the result on its example inputs and on random ones; if they differ, write nothing",
    )  # fmt: skip
    models.add_sizes(parser)
    parser.add_argument("--must-fire", action="store_true", help="if no rule fires, write nothing and return 1")
    parser.add_argument("--json", action="store_true", help="print what was done as JSON")
    parser.add_argument(
        "-v", "--verbose", action="store_true", help="also print where rules fired, and what was refused"
    )


def run(options: argparse.Namespace, terminal: Terminal) -> Exit:
    """Apply the rules and write the result; 1 if it is not written, because it differs or nothing fired."""
    models.check_writable(options.output, options.model)
    if options.max_steps is not None and options.max_steps < 1:
        raise UsageError(f"--max-steps: expected a positive number, found {options.max_steps}")
    rules = selection([options.rules], terminal).rule_set(options.strategy, options.max_steps)
    with terminal.during(f"reading {options.model}"):
        old = models.given(options)
    with terminal.during(f"applying {len(rules)} rules"):
        new = rules(old, iterative=options.iterative, new_name=options.output.stem)
    report = None
    if options.check:
        with terminal.during("comparing"):
            report = old.compare(new, trace=new.trace, sizes=options.sizes)
    written: list[Path] = []
    if (report is None or report.passed) and (new.trace.count() or not options.must_fire):
        with terminal.during(f"writing {options.output}"):
            written = models.write(new, options.output, with_values=options.params is not None)
    if options.json:
        terminal.json(_as_json(rules, old, new, report, written))
    else:
        _print(rules, old, new, report, written, terminal, options.verbose)
    return Exit.DONE if written else Exit.NEGATIVE


def _print(
    rules: RuleSet, old: Workload, new: Workload, report: Report | None, written: list[Path], terminal: Terminal,
    verbose: bool,
) -> None:  # fmt: skip
    trace = new.trace
    refused = Counter(refusal.rule for refusal in trace.refused)
    rows = [(rule.name, str(trace.count(rule.name)), str(refused[rule.name])) for rule in rules]
    rows = [row for row in rows if row[1:] != ("0", "0")]
    if rows:
        terminal.table(rows, ("rule", "fired", "refused"))
        terminal.line()
    groups = _groups(old, new)
    if groups:
        terminal.table([(name, str(count)) for name, count in groups.items()], ("group", "made"))
        terminal.line()
    if verbose:
        terminal.line(f"{trace.text()}\n")
    before, after = _calls(old), _calls(new)
    terminal.line(f"{_told(trace.count(), len(trace.summary()), len(rules))}; {before} calls before, {after} after")
    if report is not None:
        terminal.line(str(report).splitlines()[0] if report.passed else str(report))
    if written:
        terminal.line(f"wrote {' and '.join(map(str, written))}{'' if trace.count() else ', the model as it was'}")
    elif report is not None and not report.passed:
        terminal.line("nothing was written, because the result differs from the model")
    else:
        terminal.line("nothing was written, because no rule fired")


def _told(firings: int, fired: int, rules: int) -> str:
    """The number of firings and of rules that fired, in words."""
    if not firings:
        return f"no rule fired, of {rules}"
    return f"{fired} of {rules} rule{'s' * (rules > 1)} fired, {firings} time{'s' * (firings > 1)} in all"


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
