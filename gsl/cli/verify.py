"""``gsl list`` and ``gsl verify``: the rules of files, and whether they are true."""

from __future__ import annotations

import argparse
from collections import Counter
from typing import Any

from gsl.cli.command import RULES_ARE_CODE, Command, Exit, Terminal, UsageError, count, path_argument
from gsl.cli.files import check_place
from gsl.cli.rules import HELP, RuleSelection, selection
from gsl.rewrite import Subst
from gsl.verify import Proved, Refuted, Supported, Unchecked, Verdict, verdicts
from gsl.verify.many import may_keep

LIST_EXAMPLES = """\
gsl list rules                                                      # the rule book
gsl list rules:conv-batch-norm -v                                   # one rule in full
gsl list fusion.yaml mine.py --json                                 # the rules of two files"""
LIST_NOTES = f"""\
{RULES_ARE_CODE}
returns: 0; 2 for what can't be used"""


def _list_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("rules", nargs="+", metavar="RULES", help=HELP)
    parser.add_argument("-v", "--verbose", action="store_true", help="print the rules in full, not as a table")
    parser.add_argument("--json", action="store_true", help="print the rules as JSON, each with its text")


def run_list(options: argparse.Namespace, terminal: Terminal) -> Exit:
    """Print the rules."""
    chosen = selection(options.rules, terminal)
    if options.json:
        terminal.json(_listed(chosen))
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


def _listed(chosen: RuleSelection) -> dict[str, Any]:
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


LIST = Command(
    "list", "List the rules of files and modules.", _list_arguments, run_list, LIST_EXAMPLES, LIST_NOTES
)


# ---------------------------------------------------------------- verdicts


EXAMPLES = """\
gsl verify mine.py                                                  # all rules of a file
gsl verify mine.py:swish -v --mutate                                # one rule, with what the verdict is worth
gsl verify theirs.txt --fail-on unchecked --json                    # the rules of another system"""
NOTES = f"""\
{RULES_ARE_CODE}
returns: 0 if no rule is refuted; 1 if one is, or is not checked (--fail-on unchecked); 2 for what can't be used"""
WORDS: dict[type[Verdict], str] = {
    Proved: "proved", Supported: "supported", Refuted: "refuted", Unchecked: "unchecked",
}  # fmt: skip


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("rules", nargs="+", metavar="RULES", help=HELP)
    parser.add_argument(
        "--max-examples", type=count(), default=200, metavar="N", help="evaluate so many graphs of each rule (200)"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="equal seeds give equal verdicts (0)")
    parser.add_argument(
        "--mutate", action="store_true", help="also put small mistakes into the rules, and tell how many are found"
    )
    parser.add_argument("--jobs", type=count(), default=1, metavar="N", help="verify so many rules at once (1)")
    parser.add_argument(
        "--prove", action="store_true", help="also look for proofs: for all sizes, attributes and values"
    )
    parser.add_argument(
        "--keep", type=path_argument, metavar="FILE",
        help="take verdicts from this file, and verify only what has changed since",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print the verdicts as JSON")
    parser.add_argument(
        "--fail-on", choices=("refuted", "unchecked"), default="refuted",
        help="return 1 if a rule is refuted, or already if one is unchecked (refuted)",
    )  # fmt: skip
    parser.add_argument(
        "-v", "--verbose", action="store_true", help="also print the evidence, and programs that show counterexamples"
    )


def run(options: argparse.Namespace, terminal: Terminal) -> Exit:
    """Verify the rules and print the verdicts; 1 if a rule is wrong."""
    if options.keep is not None:
        check_place(options.keep)
        if not may_keep(options.keep):
            raise UsageError(f"--keep: {options.keep} is no file of verdicts; give another name")
    rules = selection(options.rules, terminal).rules
    found = verdicts(
        rules, max_examples=options.max_examples, seed=options.seed, mutate=options.mutate, prove=options.prove,
        jobs=options.jobs, keep=options.keep,
    )  # fmt: skip
    done = list(terminal.progress(found, len(rules), "verifying"))
    counts = Counter(WORDS[type(verdict)] for verdict in done)
    if options.json:
        terminal.json({
            "max_examples": options.max_examples, "seed": options.seed,
            **{word: counts[word] for word in WORDS.values()}, "rules": [_as_json(verdict) for verdict in done],
        })  # fmt: skip
    else:
        _print(done, counts, terminal, options.verbose)
    wrong = counts["refuted"] or (options.fail_on == "unchecked" and counts["unchecked"])
    return Exit.NEGATIVE if wrong else Exit.DONE


def _print(verdicts: list[Verdict], counts: Counter[str], terminal: Terminal, verbose: bool) -> None:
    terminal.table([_row(verdict) for verdict in verdicts])
    for verdict in verdicts:
        if isinstance(verdict, Refuted) or verbose:
            terminal.line(f"\n{verdict}")
        if isinstance(verdict, Refuted) and verbose:
            terminal.line(f"\n{verdict.counterexample.code}")
    terminal.line()
    total = f"{len(verdicts)} rule{'s' if len(verdicts) > 1 else ''}"
    terminal.line(f"{total}: " + ", ".join(f"{counts[word]} {word}" for word in WORDS.values() if counts[word]))


def _row(verdict: Verdict) -> tuple[str, ...]:
    word = WORDS[type(verdict)]
    more = "" if verdict.mutants is None else str(verdict.mutants).partition(" (")[0]
    return word, verdict.rule, verdict.title.removeprefix(word).strip(" :()"), more


def _as_json(verdict: Verdict) -> dict[str, Any]:
    found: dict[str, Any] = {
        "rule": verdict.rule, "verdict": WORDS[type(verdict)], "evaluated": verdict.evidence.evaluated,
        "distinct": verdict.evidence.distinct, "methods": {k: dict(v) for k, v in verdict.evidence.methods.items()},
        "not_generated": [*verdict.evidence.missing, *verdict.evidence.lacking],
    }  # fmt: skip
    if isinstance(verdict, Unchecked):
        found["reason"] = verdict.reason
    if isinstance(verdict, Proved):
        found["proof"] = str(verdict.proof)
    if verdict.unproved is not None:
        found["unproved"] = verdict.unproved.reason
    if isinstance(verdict, Refuted):
        example, suggestion = verdict.counterexample, verdict.suggestion
        found["counterexample"] = {
            "kind": example.kind, "before": str(example.before), "after": str(example.after), "code": example.code
        }  # fmt: skip
        found["suggestion"] = None if suggestion is None else {
            "where": suggestion.text, "names": dict(suggestion.names), "verdict": suggestion.verdict.title
        }  # fmt: skip
    if verdict.mutants is not None:
        mutants = verdict.mutants
        found["mutants"] = {
            "share": mutants.share, "refuted": list(mutants.refuted), "survived": list(mutants.survived),
            "unbuildable": list(mutants.unbuildable), "refused": list(mutants.refused),
            "equivalent": list(mutants.equivalent), "unneeded": list(mutants.unneeded),
        }  # fmt: skip
    return found


COMMAND = Command(
    "verify", "Look for small graphs on which the two sides of rules differ.", _arguments, run, EXAMPLES, NOTES
)
