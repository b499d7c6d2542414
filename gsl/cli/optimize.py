"""``gsl optimize``: a model in a file, rewritten by the rules that pay on this machine, in another file."""

from __future__ import annotations

import argparse
from pathlib import Path

from gsl.cli import files, models
from gsl.cli.command import (
    MODELS_ARE_DATA,
    RULES_ARE_CODE,
    Command,
    Exit,
    Terminal,
    UsageError,
    count,
    number,
    path_argument,
)  # fmt: skip
from gsl.cli.rules import HELP, selection
from gsl.cost.machine import MOST_THREADS
from gsl.cost.model import MODELS
from gsl.cost.optimization import SEARCHES, optimize
from gsl.cost.report import Optimized, OptimizeReport, page
from gsl.rewrite import RuleSet
from gsl.workload import Workload

EXAMPLES = """\
gsl optimize model.pt2 -o fast.pt2                                  # the rule book, for a minute at most
gsl optimize model.pt2 -o fast.pt2 --budget 20 --report report.html # with bars, and drawings before and after
gsl optimize model.onnx -o fast.onnx --sizes batch=1,length=8       # a model of ONNX, run by onnxruntime
gsl optimize model.pt2 -o fast.pt2 --tolerance 0.02                 # with rules that change numbers, so far
gsl optimize model.pt2 -o fast.pt2 --rules mine.py:swish --rules rules:BOOK --threads 1 --json"""
NOTES = f"""\
The model is run on its example inputs, or on random ones. {RULES_ARE_CODE} {MODELS_ARE_DATA}
returns: 0 if a faster model was written; 1 if none was found, and nothing written; 2 for what can't be used; 3 if the \
rules fail on this model"""

_SECONDS = number("a number of seconds, more than 0", lambda value: 0 < value < float("inf"))
_SHARE = number("a number between 0 and 1", lambda value: 0 < value < 1)


def _arguments(parser: argparse.ArgumentParser) -> None:
    models.add_arguments(parser, f"{models.PARAMS_HELP}; those of the result are written beside it")
    parser.add_argument(
        "-o", "--output", type=path_argument, required=True, metavar="OUT",
        help="where the faster model is written, whole or not at all; may be the model itself",
    )  # fmt: skip
    parser.add_argument(
        "--rules", action="append", metavar="RULES",
        help=f"the rules instead of those of the rule book; several are applied one after the other: {HELP}",
    )  # fmt: skip
    parser.add_argument(
        "--budget", type=_SECONDS, default=60.0, metavar="SECONDS", help="how long it may take, about (60)"
    )
    parser.add_argument(
        "--tolerance", type=_SHARE, metavar="ERROR",
        help="use approximate rules, too, up to this error of an output, relative to its largest magnitude",
    )  # fmt: skip
    parser.add_argument("--cost", choices=MODELS, default="measured", help="what decides what pays (measured)")
    parser.add_argument("--search", choices=SEARCHES, default="greedy", help="how the best program is found (greedy)")
    threads = count(MOST_THREADS)
    parser.add_argument("--threads", type=threads, metavar="N", help="the threads of torch; those that it has")
    models.add_sizes(parser)
    parser.add_argument("--report", type=path_argument, metavar="HTML", help="write a page with bars and drawings, too")
    parser.add_argument("--json", action="store_true", help="print what was done as JSON")
    parser.add_argument("-v", "--verbose", action="store_true", help="also print the cost by operator")


def run(options: argparse.Namespace, terminal: Terminal) -> Exit:
    """Optimise the model and write the result; 1 if it is not faster."""
    models.check_writable(options.output, options.model)
    if options.report is not None:
        if options.report.suffix not in (".html", ".htm"):
            raise UsageError(f"{options.report}: the name of a report ends in .html")
        files.check_place(options.report)
    rules = _rules(options, terminal)
    with terminal.during(f"reading {options.model}"):
        old = models.with_sizes(models.given(options), options.sizes)
    with terminal.during("optimising") as progress:
        new, report = result = optimize(
            old, rules=rules, cost=options.cost, budget=options.budget, tolerance=options.tolerance,
            search=options.search, threads=options.threads, progress=progress,
        )  # fmt: skip
    written: list[Path] = []
    if report.taken:
        with terminal.during(f"writing {options.output}"):
            written = models.write(new, options.output, with_values=options.params is not None)
    if options.report is not None:
        with terminal.during(f"writing {options.report}"):
            written += files.write(options.report, lambda place: [_written(place, result, old)])
    if options.json:
        more = {"costs": {"before": str(report.costs_before), "after": str(report.costs_after)}}
        terminal.json({
            **report.as_json(), **(more if options.verbose else {}), "written": [str(path) for path in written]
        })  # fmt: skip
    else:
        _print(report, written, terminal, options.verbose)
    return Exit.DONE if report.taken else Exit.NEGATIVE


def _rules(options: argparse.Namespace, terminal: Terminal) -> list[RuleSet] | None:
    """The rule sets that are named, one for each time that the option was given."""
    if options.rules is None:
        return None
    sets = [selection([source], terminal).rule_set(None) for source in options.rules]
    if options.tolerance is not None and not any(rule.approximate for held in sets for rule in held):
        raise UsageError("--tolerance allows approximate rules, and none of these is: leave it out, or give such rules")
    return sets


def _written(place: Path, result: Optimized, old: Workload) -> Path:
    place.write_text(page(result.report, old, result.workload), encoding="utf-8")
    return place


def _print(report: OptimizeReport, written: list[Path], terminal: Terminal, verbose: bool) -> None:
    rows = report.rows()
    if rows:
        terminal.table(rows, ("rule", "shape", "times", "gain", "verdict", "why"))
        terminal.line()
    if verbose:
        for side, costs in (("before", report.costs_before), ("after", report.costs_after)):
            terminal.line(f"{side}: {costs}\n")
    for name, text in report.measured():
        terminal.line(f"{name:6} {text}")
    terminal.line(report.decision)
    if written:
        terminal.line(f"wrote {' and '.join(map(str, written))}")


COMMAND = Command("optimize", "Rewrite a model in a file by the rules that pay here.", _arguments, run, EXAMPLES, NOTES)
