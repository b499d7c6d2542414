"""``gsl match``: where rules match in a model."""

from __future__ import annotations

import argparse
from itertools import islice
from typing import Any

from gsl.cli import models
from gsl.cli.command import MODELS_ARE_DATA, RULES_ARE_CODE, Command, Exit, UsageError
from gsl.cli.rules import HELP, selection
from gsl.cli.terminal import Terminal
from gsl.graph import Node
from gsl.graph.text import node_names
from gsl.match import Match
from gsl.rewrite import Subst
from gsl.workload import Workload

EXAMPLES = """\
gsl match rules:BOOK model.pt2                                      # where the rules of the rule book match
gsl match mine.py:swish model.pt2 --graph                           # and the model, with the names in it
gsl match mine.py module.json --params weights.npz --json           # a module of TVM"""
NOTES = f"""\
Matches may overlap, and a match may still be refused when it is to be rewritten, as the result would be another \
graph: gsl explain tells why. {RULES_ARE_CODE} {MODELS_ARE_DATA}
returns: 0 if a rule matches; 1 if none does; 2 for what can't be used"""
SHOWN = 60
"""The number of characters that the names of the nodes of a match may have in the table."""


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("rules", metavar="RULES", help=HELP)
    models.add_arguments(parser)
    parser.add_argument(
        "--limit", type=int, default=100, metavar="N", help="look for so many matches of each rule at most (100)"
    )
    parser.add_argument("--graph", action="store_true", help="also print the model as text")
    parser.add_argument("--json", action="store_true", help="print the matches as JSON, with what each pattern matched")


def run(options: argparse.Namespace, terminal: Terminal) -> Exit:
    """Print the matches of the rules; 1 if there is none."""
    if options.limit < 1:
        raise UsageError(f"--limit: expected a positive number, found {options.limit}")
    rules = selection([options.rules], terminal).rules
    with terminal.during(f"reading {options.model}"):
        workload = models.given(options)
    names = node_names(workload.graph)
    searched = terminal.progress(rules, len(rules), "matching")
    found = {rule: list(islice(rule.match(workload), options.limit + 1)) for rule in searched}
    if options.json:
        terminal.json(_as_json(found, workload, names, options))
    else:
        _print(found, workload, names, options, terminal)
    return Exit.DONE if any(found.values()) else Exit.NEGATIVE


def _print(
    found: dict[Subst, list[Match]], workload: Workload, names: dict[Node, str], options: argparse.Namespace,
    terminal: Terminal,
) -> None:  # fmt: skip
    if options.graph:
        terminal.line(f"{workload.text()}\n")
    rows = []
    for rule, matches in found.items():
        rows += [(rule.name, _listed(match.outputs, names), _listed(match.inner, names))
                 for match in matches[: options.limit]]  # fmt: skip
        if len(matches) > options.limit:
            rows.append((rule.name, "…", f"--limit shows more than {options.limit}"))
    if rows:
        terminal.table(rows, ("rule", "replaces", "covers"))
        terminal.line()
    counts = [min(len(matches), options.limit) for matches in found.values() if matches]
    total = f"{sum(counts)} match{'es' * (sum(counts) > 1)} in all" if counts else "no match"
    terminal.line(f"{len(counts)} of {len(found)} rule{'s' * (len(found) > 1)} match, {total}")


def _listed(nodes: tuple[Node, ...], names: dict[Node, str]) -> str:
    text = ", ".join(f"%{names[node]}" for node in nodes)
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 2].rpartition(',')[0]}, … ({len(nodes)})"


def _as_json(
    found: dict[Subst, list[Match]], workload: Workload, names: dict[Node, str], options: argparse.Namespace
) -> dict[str, Any]:
    rules = []
    for rule, matches in found.items():
        shown = [
            {
                "replaces": [names[node] for node in match.outputs],
                "covers": [names[node] for node in match.inner],
                "bound": [{"pattern": repr(pattern), "node": names[node]} for pattern, node in match.items()],
            }
            for match in matches[: options.limit]
        ]
        rules.append({"rule": rule.name, "matches": shown, "complete": len(matches) <= options.limit})
    return {"rules": rules, **({"graph": workload.text()} if options.graph else {})}


COMMAND = Command("match", "Tell where rules match in a model.", _arguments, run, EXAMPLES, NOTES)
