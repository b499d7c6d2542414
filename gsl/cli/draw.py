"""``gsl draw``: a model as a drawing."""

from __future__ import annotations

import argparse
from itertools import islice
from typing import Final

from gsl.cli import files, models
from gsl.cli.command import MODELS_ARE_DATA, RULES_ARE_CODE, Command, Exit, Terminal, UsageError, path_argument
from gsl.cli.rules import HELP, RuleSelection, selection
from gsl.draw.drawing import FORMATS, engine
from gsl.errors import MissingPackageError
from gsl.match import Match
from gsl.workload import Workload

EXAMPLES = """\
gsl draw model.pt2 -o graph.svg                                     # the model, a large one by its modules
gsl draw model.pt2 -o graph.svg --rules rules:BOOK                  # what the rules match, in colour
gsl draw model.pt2 -o change.svg --rules rules:BOOK --after         # before and after, side by side
gsl draw model.pt2 -o graph.svg --depth 1 --expand '*.attention'    # modules, some of them open"""
NOTES = f"""\
Drawings need pygraphviz (pip install 'gsl[viz]'), other than .dot. {RULES_ARE_CODE} {MODELS_ARE_DATA}
returns: 0 if it was drawn; 1 if it was not, as no rule fires (--after); 2 for what can't be used; 3 if the rules fail \
on this model"""
KNOWN: Final = " or ".join(f".{name}" for name in FORMATS)
MATCHES: Final = 1000
"""The largest number of matches of a rule that are drawn."""


def _arguments(parser: argparse.ArgumentParser) -> None:
    models.add_arguments(parser)
    parser.add_argument(
        "-o", "--output", type=path_argument, required=True, metavar="OUT",
        help=f"where the drawing is written; its name ends in {KNOWN}",
    )  # fmt: skip
    parser.add_argument("--rules", metavar="RULES", help=f"colour what these rules match: {HELP}")
    parser.add_argument("--after", action="store_true", help="apply the rules, and draw the model before and after")
    parser.add_argument(
        "--iterative", action="store_true", help="with --after, apply the rules until none matches, not in one pass"
    )
    parser.add_argument(
        "--depth", type=_depth, default="auto", metavar="N",
        help="draw modules so deep: a number, all for every call, or auto for as much as can be read (auto)",
    )  # fmt: skip
    parser.add_argument(
        "--expand", action="append", default=[], metavar="MODULE",
        help="draw this module open, however deep it is; also with *; may be given several times",
    )  # fmt: skip
    parser.add_argument("--inside", metavar="NAME", help="draw this graph within a call, or this function")
    parser.add_argument("--no-weights", action="store_true", help="leave weights out")


def _depth(text: str) -> int | str:
    if text in ("auto", "all"):
        return text
    if text.isdecimal():
        return int(text)
    raise argparse.ArgumentTypeError(f"expected a number, auto or all, found {text!r}")


def run(options: argparse.Namespace, terminal: Terminal) -> Exit:
    """Draw the model; 1 if the change is to be drawn, and there is none."""
    _check(options)
    chosen = selection([options.rules], terminal) if options.rules else RuleSelection((), {})
    chosen.check_names()
    with terminal.during(f"reading {options.model}"):
        workload = models.given(options)
    if options.inside is not None:
        workload = _inside(workload, options.inside)
    shown = {"depth": options.depth, "expand": options.expand, "params": False if options.no_weights else None}
    if options.after:
        with terminal.during(f"applying {len(chosen.rules)} rules"):
            new = chosen.rule_set(None)(workload, iterative=options.iterative)
        counts = {name: f"fired {count}" for name, count in new.trace.summary().items()}
        if not counts:
            terminal.line("nothing was drawn, because no rule fired")
            return Exit.NEGATIVE
        drawing = workload.before_after(new, **shown)
    else:
        matches = _matches(workload, chosen, terminal)
        counts = {name: f"matches {len(found)}" for name, found in matches.items()}
        drawing = workload.visualize(matches=matches, **shown)
    with terminal.during(f"drawing {options.output}"):
        (written,) = files.write(options.output, lambda place: [drawing.save(place)])
    if counts:
        terminal.table([(name, *count.split(), "times") for name, count in counts.items()])
        terminal.line()
    terminal.line(f"wrote {written}")
    return Exit.DONE


def _inside(workload: Workload, name: str) -> Workload:
    """The graph of that name within a call. UsageError if there is none."""
    known = workload.inside
    if name not in known:
        raise UsageError(f"--inside: the model has no graph {name!r} within a call; those that it has: "
                         f"{', '.join(known) or 'none'}")  # fmt: skip
    return known[name]


def _check(options: argparse.Namespace) -> None:
    """UsageError if no drawing can be made or written there, or not in that format, or there are no rules to apply."""
    path = options.output
    suffix = path.suffix[1:].lower()
    if suffix not in FORMATS:
        raise UsageError(f"{path}: the name of a drawing ends in {KNOWN}")
    files.check_place(path)
    if options.rules is None and (options.after or options.iterative):
        raise UsageError("--after and --iterative tell what to do with rules: give some with --rules")
    if options.iterative and not options.after:
        raise UsageError("--iterative tells how the rules are applied, and they are only with --after: give that, too")
    if suffix != "dot":
        try:
            engine()
        except MissingPackageError as error:
            raise UsageError(str(error)) from None  # there is no more to see


def _matches(workload: Workload, chosen: RuleSelection, terminal: Terminal) -> dict[str, list[Match]]:
    """The matches of the rules that match, by their names."""
    rules = terminal.progress(chosen.rules, len(chosen.rules), "matching")
    found = {rule.name: list(islice(rule.match(workload), MATCHES)) for rule in rules}
    return {name: matches for name, matches in found.items() if matches}


COMMAND = Command("draw", "Draw a model, and what rules match or change in it.", _arguments, run, EXAMPLES, NOTES)
