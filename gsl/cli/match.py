"""``gsl match``, ``gsl explain``, ``gsl unread`` and ``gsl pattern``: where rules match, why one does not fire, which
calls no canonical operator reads, and the pattern that would match a part of a model."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from itertools import chain, islice
from typing import Any

from gsl.cli import many, models
from gsl.cli.command import MODELS_ARE_DATA, RULES_ARE_CODE, Command, Exit, TableRow, Terminal, count
from gsl.cli.rules import HELP, one_rule, selection
from gsl.graph import Node
from gsl.graph.text import node_names
from gsl.match import Match
from gsl.rewrite import Subst
from gsl.rewrite.explain import Explanation
from gsl.workload import Workload

EXAMPLES = """\
gsl match rules:BOOK model.pt2                                      # where the rules of the rule book match
gsl match mine.py:swish model.pt2 --graph                           # and the model, with the names in it
gsl match rules:BOOK models model.onnx --jobs 4                     # in the models of a folder, and in another one
gsl match mine.py module.json --params weights.npz --json           # a module of TVM"""
NOTES = f"""\
Matches may overlap, and a match may still be refused when it is to be rewritten, as the result would be another \
graph: gsl explain tells why. {RULES_ARE_CODE} {MODELS_ARE_DATA}
returns: 0 if a rule matches; 1 if none does; 2 for what can't be used; of several models, the highest"""
SHOWN = 60
"""The number of characters that the names of the nodes of a match may have in the table."""


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("rules", metavar="RULES", help=HELP)
    models.add_arguments(parser, many=True)
    many.add_arguments(parser)
    parser.add_argument(
        "--limit", type=count(), default=100, metavar="N", help="look for so many matches of each rule at most (100)"
    )
    parser.add_argument("--graph", action="store_true", help="also print the model as text")
    parser.add_argument("--json", action="store_true", help="print the matches as JSON, with what each pattern matched")


def run(options: argparse.Namespace, terminal: Terminal) -> Exit:
    """Print the matches of the rules; 1 if there is none. Of several models, the highest status."""
    rules = selection([options.rules], terminal).rules
    show = partial(_print, terminal=terminal, limit=options.limit)
    return many.run(
        partial(_match, rules), options, terminal, "matching", show, partial(_print_many, terminal=terminal)
    )


def _match(rules: Sequence[Subst], terminal: Terminal, options: argparse.Namespace) -> tuple[Exit, many.JsonObject]:
    with terminal.during(f"reading {options.model}"):
        workload = models.given(options).with_operators(*[spec for rule in rules for spec in rule.operators])
    parts = {"": workload, **{f"{name}/": part for name, part in workload.inside.items()}}
    names = {node: f"{name}{own}" for name, part in parts.items() for node, own in node_names(part.graph).items()}
    searched = terminal.progress(rules, len(rules), "matching")
    found = {
        rule: list(islice(chain.from_iterable(map(rule.match, parts.values())), options.limit + 1)) for rule in searched
    }
    status = Exit.DONE if any(found.values()) else Exit.NEGATIVE
    return status, _as_json(found, workload, names, options)


def _print(found: many.JsonObject, terminal: Terminal, limit: int) -> None:
    """Print the matches in one model."""
    if "graph" in found:
        terminal.line(f"{found['graph']}\n")
    rows = []
    for rule in found["rules"]:
        rows += [(rule["rule"], _listed(match["replaces"]), _listed(match["covers"])) for match in rule["matches"]]
        if not rule["complete"]:
            rows.append((rule["rule"], "…", f"--limit shows more than {limit}"))
    if rows:
        terminal.table(rows, ("rule", "replaces", "covers"))
        terminal.line()
    matching, total = _counts(found)
    told = f"{total} match{'es' * (total > 1)} in all" if total else "no match"
    terminal.line(f"{matching} of {len(found['rules'])} rule{'s' * (len(found['rules']) > 1)} match, {told}")


def _counts(found: many.JsonObject) -> tuple[int, int]:
    """The number of rules that match, and of their matches."""
    counts = [len(rule["matches"]) for rule in found["rules"] if rule["matches"]]
    return len(counts), sum(counts)


def _print_many(found: Sequence[many.Result], terminal: Terminal) -> None:
    for result in found:
        if result.found is not None and "graph" in result.found:
            terminal.line(f"{result.model}\n\n{result.found['graph']}\n")

    def cells(one: many.JsonObject) -> TableRow:
        names = ", ".join(rule["rule"] for rule in one["rules"] if rule["matches"])
        return (*map(str, _counts(one)), names)

    header = ("model", "rules", "matches", "which rules")
    many.show_table(found, terminal, header, cells, "matched", "without a match")


def _listed(names: Sequence[str]) -> str:
    text = ", ".join(f"%{name}" for name in names)
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 2].rpartition(',')[0]}, … ({len(names)})"


def _as_json(
    found: dict[Subst, list[Match]], workload: Workload, names: dict[Node, str], options: argparse.Namespace
) -> many.JsonObject:
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


# ---------------------------------------------------------------- why a rule does not fire


EXPLAIN_EXAMPLES = """\
gsl explain mine.py:conv-add model.pt2                              # the partial matches that came furthest
gsl explain mine.py:conv-add model.pt2 --nearest 10 --rule          # more of them, and the rule itself
gsl explain rules:two-conv-add module.json --params weights.npz     # a module of TVM"""
EXPLAIN_NOTES = f"""\
{RULES_ARE_CODE} {MODELS_ARE_DATA}
returns: 0 if the rule fires somewhere; 1 if it does not; 2 for what can't be used"""


def _explain_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("rule", metavar="RULE", help=f"{HELP}. The name of one rule, unless there is only one")
    models.add_arguments(parser)
    parser.add_argument("--nearest", type=count(), default=3, metavar="N", help="show so many partial matches (3)")
    parser.add_argument("--rule", action="store_true", dest="show", help="also print the rule")
    parser.add_argument("--json", action="store_true", help="print the explanation as JSON")


def run_explain(options: argparse.Namespace, terminal: Terminal) -> Exit:
    """Print the explanation; 1 if the rule does not fire."""
    rule = one_rule(options.rule, terminal)
    with terminal.during(f"reading {options.model}"):
        workload = models.given(options)
    with terminal.during("matching"):
        explanation = rule.explain(workload, nearest=options.nearest)
    if options.json:
        terminal.json(_explained(explanation) | ({"text": str(rule)} if options.show else {}))
    else:
        if options.show:
            terminal.line(f"{rule}\n")
        terminal.line(str(explanation))
    return Exit.DONE if explanation else Exit.NEGATIVE


def _explained(explanation: Explanation) -> dict[str, Any]:
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
        "inside": {name: _explained(part) for name, part in explanation.inside.items()},
    }


EXPLAIN = Command(
    "explain", "Tell why a rule does not fire in a model.", _explain_arguments, run_explain, EXPLAIN_EXAMPLES,
    EXPLAIN_NOTES,
)  # fmt: skip


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


# ---------------------------------------------------------------- the pattern of a part


PATTERN_EXAMPLES = """\
gsl pattern model.pt2 mul                                           # all that leads to the node %mul
gsl pattern model.pt2 mul --inputs linear                           # as far as %linear, which may be any tensor"""
PATTERN_NOTES = f"""\
gsl match RULES MODEL --graph prints a model, with the names in it. {MODELS_ARE_DATA}
returns: 0 with the pattern; 2 for what can't be used"""


def _pattern_arguments(parser: argparse.ArgumentParser) -> None:
    models.add_arguments(parser)
    parser.add_argument("outputs", nargs="+", metavar="NODE", help="the nodes with which the pattern ends")
    parser.add_argument(
        "--inputs", nargs="+", default=[], metavar="NODE", help="the nodes with which it begins, for any tensors"
    )


def run_pattern(options: argparse.Namespace, terminal: Terminal) -> Exit:
    """Print the statements that build the pattern."""
    with terminal.during(f"reading {options.model}"):
        workload = models.given(options)
    terminal.line(str(workload.pattern(options.outputs, options.inputs)))
    return Exit.DONE


PATTERN = Command(
    "pattern", "Write the pattern of a part of a model, to make a rule of.", _pattern_arguments, run_pattern,
    PATTERN_EXAMPLES, PATTERN_NOTES,
)  # fmt: skip
