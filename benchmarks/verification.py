"""The verdicts on sets of rules: the book, TASO's and TENSAT's files, and rewrites of XLA's algebraic simplifier.

``python -m benchmarks.verification --data DIR --page benchmarks/VERIFICATION.md`` writes the page; ``--data`` is the
folder with ``taso/graph_subst.pb`` and ``tensat/*.txt``. Each set is verified in a process of its own.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.xla_rules import rules as xla_rules
from gsl import Subst, rules_from_taso, rules_from_tensat
from gsl.rules import RULES
from gsl.verify import Proved, Refuted, Supported, Unchecked, Verdict, verify

WORDS: dict[type[Verdict], str] = {
    Proved: "proved", Supported: "supported", Refuted: "refuted", Unchecked: "unchecked",
}  # fmt: skip


@dataclass(frozen=True)
class Judged:
    """The verdict on one rule, and the seconds that it took."""

    name: str
    word: str
    seconds: float
    why: str
    """The reason why there is no proof."""


def judged(rules: Iterable[Subst], examples: int) -> Iterator[Judged]:
    """The verdicts on rules."""
    for rule in rules:
        start = time.perf_counter()
        verdict = verify(rule, max_examples=examples, suggest=False, prove=True)
        why = "" if verdict.unproved is None else verdict.unproved.reason
        yield Judged(rule.name, WORDS[type(verdict)], time.perf_counter() - start, why)


def _taso(data: Path) -> list[Subst]:
    return list(rules_from_taso(data / "taso" / "graph_subst.pb"))


def _tensat(data: Path) -> list[Subst]:
    return [rule for path in sorted((data / "tensat").glob("*_output.txt")) for rule in rules_from_tensat(path)]


SETS: dict[str, Callable[[Path], list[Subst]]] = {
    "the book": lambda data: list(RULES.values()),
    "XLA's algebraic simplifier": lambda data: list(xla_rules().values()),
    "TASO": _taso,
    "TENSAT": _tensat,
}


def judged_set(name: str, data: Path, examples: int) -> list[Judged]:
    """The verdicts on one of the sets."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = []
        for rule in judged(SETS[name](data), examples):
            print(f"{name}: {rule.name}: {rule.word} ({rule.seconds:.1f} s)", flush=True)
            found.append(rule)
        return found


def page(found: dict[str, list[Judged]], examples: int) -> str:
    """The page."""
    lines = [
        "# Verdicts on sets of rules", "",
        "Written by `python -m benchmarks.verification --data DIR --page benchmarks/VERIFICATION.md`. A rule is",
        "*proved* for all sizes, attributes and values ([what is assumed](../docs/verification.md#proofs)), or",
        f"*supported* by {examples} instances, or refuted, or unchecked. Seconds are those of a",
        "search and a proof together, beside other work on the machine.", "",
        "| rules | number | " + " | ".join(WORDS.values()) + " | median seconds | most |",
        "| --- | ---: |" + " ---: |" * (len(WORDS) + 2),
    ]  # fmt: skip
    for name, rules in found.items():
        counts = [sum(rule.word == word for rule in rules) for word in WORDS.values()]
        seconds = [rule.seconds for rule in rules]
        lines.append(f"| {name} | {len(rules)} | " + " | ".join(map(str, counts))
                     + f" | {median(seconds):.1f} | {max(seconds):.0f} |")  # fmt: skip
    for name, rules in found.items():
        open_ = [rule for rule in rules if rule.word != "proved"]
        lines += ["", f"## Not proved: {name}", "", "| rule | verdict | no proof, because |", "| --- | --- | --- |"]
        lines += [f"| {rule.name} | {rule.word} | {_cell(rule.why)} |" for rule in open_]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    short = text if len(text) < 120 else text[:117] + "…"
    return short.replace("|", "\\|").replace("\n", " ")


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, default=Path("data"), help="the folder with the files of TASO and TENSAT")
    parser.add_argument("--page", type=Path, help="write the page to this file")
    parser.add_argument("--max-examples", type=int, default=60, help="instances of each rule that are evaluated (60)")
    parser.add_argument("--sets", nargs="+", choices=list(SETS), default=list(SETS), help="the sets (all)")
    options = parser.parse_args()
    with ProcessPoolExecutor() as pool:
        jobs = {name: pool.submit(judged_set, name, options.data, options.max_examples) for name in options.sets}
        text = page({name: job.result() for name, job in jobs.items()}, options.max_examples)
    print(text)
    if options.page is not None:
        options.page.write_text(text)


if __name__ == "__main__":
    main()
