"""The verdicts on sets of rules: the book, TASO's and TENSAT's files, and rewrites of XLA's algebraic simplifier.

``python -m benchmarks.verification --data DIR --page benchmarks/VERIFICATION.md`` writes the page; ``--data`` is the
folder with ``taso/graph_subst.pb`` and ``tensat/*.txt``. Rules are verified ``--jobs`` at a time; one that takes longer
than ``--seconds`` of a processor is counted as unchecked. ``--mutants`` is the number of instances of
each mutant of the rules of the sets that ``--mutated`` names.
"""

from __future__ import annotations

import argparse
import os
import re
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from pathlib import Path
from statistics import median

from benchmarks.limit import Late, limited
from benchmarks.xla_rules import rules as xla_rules
from gsl import Subst, rules_from_taso, rules_from_tensat
from gsl.rules import CPU, GPU, IDIOMS, NORMAL, QUANTISED, RULES
from gsl.verify import Mutants, Proved, Refuted, Supported, Unchecked, Verdict, verify
from gsl.verify.judge import MORE_OFTEN

WORDS: dict[type[Verdict], str] = {
    Proved: "proved", Supported: "supported", Refuted: "refuted", Unchecked: "unchecked",
}  # fmt: skip
BOOK = "the book"
COINCIDENCE = "needed where a size happens to be the number of channels; no instance was that"
REASONS = (
    ("attention.*< inf", "with an infinite factor the source has no finite number"),
    ("concat-concat.*dtype", "precision: what is joined with floats of fewer bits is rounded in between"),
    ("conv-multiply, without.*kernel_layout", COINCIDENCE),
    ("conv-bias-multiply, without.*(data|out)_layout", COINCIDENCE),
    ("without dtype in ones", "the same kernel for float32 and float64; beside fewer bits the match is refused"),
    ("kernel_layout", "joined along another axis, kernels fit neither data nor results: the match is refused"),
    ("data_layout", "the kernel that leaves pixels as they are does so in each layout"),
    ("out_layout", "both results have the same layout, whatever it is"),
    ("strides", "where the window leaves out pixels and the shape stays, there is one pixel"),
    ("groups > 1", "with one group it is parallel-conv-variadic, which makes fewer calls"),
    ("kernel_size !=", "kernels of one size are those of parallel-two-conv, which makes fewer calls"),
    ("float32", "precision: fewer bits are equal for real numbers only"),
    (r"scale [<>] 1e-?30", "precision: with such a scale numbers overflow in float32, or are lost"),
    (r"quantised-.*padding\[", "where the shape stays, the windows do, too; else the match is refused"),
    (r"quantised-.*-sum.*shape ==", "it pays: a tensor of another shape is added behind the kernel"),
    (r"dtype ==|batch-norm, without the condition all", "both sides promote alike, or the match is refused"),
)
"""The reasons why a mistake survives, or a condition stays that is not needed: by rule and mistake, the first that
fits."""


@dataclass(frozen=True)
class Judged:
    """The verdict on one rule, and the seconds that it took."""

    name: str
    word: str
    seconds: float
    why: str
    """The reason why there is no proof."""


def _taso(data: Path) -> list[Subst]:
    return list(rules_from_taso(data / "taso" / "graph_subst.pb"))


def _tensat(data: Path) -> list[Subst]:
    return [rule for path in sorted((data / "tensat").glob("*_output.txt")) for rule in rules_from_tensat(path)]


SETS: dict[str, Callable[[Path], list[Subst]]] = {
    BOOK: lambda data: list(RULES.values()),
    "XLA's algebraic simplifier": lambda data: list(xla_rules().values()),
    "TASO": _taso,
    "TENSAT": _tensat,
    "IDIOMS": lambda data: list(IDIOMS),
    "NORMAL": lambda data: list(NORMAL),
    "CPU": lambda data: list(CPU),
    "GPU": lambda data: list(GPU),
    "QUANTISED": lambda data: list(QUANTISED),
}
PAGE = list(SETS)[:4]
"""The sets of which the page has the verdicts."""


@lru_cache
def rules_of(name: str, data: Path) -> list[Subst]:
    """The rules of one of the sets."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return SETS[name](data)


def judged(name: str, place: int, data: Path, examples: int, seconds: float) -> Judged:
    """The verdict on one rule of a set."""
    rule, start = rules_of(name, data)[place], time.process_time()
    warnings.simplefilter("ignore")
    try:
        with limited(seconds):
            verdict = verify(rule, max_examples=examples, suggest=False, prove=True)
    except Late as late:
        return Judged(rule.name, "unchecked", time.process_time() - start, f"it {late}")
    why = "" if verdict.unproved is None else verdict.unproved.reason
    return Judged(rule.name, WORDS[type(verdict)], time.process_time() - start, why)


def mutated(name: str, place: int, data: Path, examples: int, seconds: float) -> Mutants | None:
    """The mutants of one rule of a set; ``None`` if they take too long."""
    warnings.simplefilter("ignore")
    try:
        with limited(seconds):
            rule = rules_of(name, data)[place]
            return verify(rule, max_examples=examples, suggest=False, mutate=True).mutants
    except Late:
        return None


# ---------------------------------------------------------------- the page


def page(
    found: Mapping[str, list[Judged]], mutants: Mapping[str, Mapping[str, Mutants | None]], examples: int, few: int
) -> str:
    """The page; the mutants are those of each rule of some sets."""
    lines = [
        "# Verdicts on sets of rules", "",
        "Written by `python -m benchmarks.verification --data DIR --page benchmarks/VERIFICATION.md`. A rule is",
        "*proved* for all sizes, attributes and values ([what is assumed](../docs/verification.md#proofs)), or",
        f"*supported* by {examples} instances, or refuted, or unchecked. Seconds are those of a search and a proof",
        "together, of a processor.", "",
        "| rules | number | " + " | ".join(WORDS.values()) + " | median seconds | most |",
        "| --- | ---: |" + " ---: |" * (len(WORDS) + 2),
    ]  # fmt: skip
    for name, rules in found.items():
        counts = [sum(rule.word == word for rule in rules) for word in WORDS.values()]
        seconds = [rule.seconds for rule in rules]
        lines.append(f"| {name} | {len(rules)} | " + " | ".join(map(str, counts))
                     + f" | {median(seconds):.1f} | {max(seconds):.0f} |")  # fmt: skip
    for name, own in mutants.items():
        lines += _mutation(name, own, few)
    for name, rules in found.items():
        open_ = [rule for rule in rules if rule.word != "proved"]
        lines += ["", f"## Not proved: {name}", "", "| rule | verdict | no proof, because |", "| --- | --- | --- |"]
        lines += [f"| {rule.name} | {rule.word} | {_cell(rule.why)} |" for rule in open_]
    return "\n".join(lines) + "\n"


def _mutation(name: str, mutants: Mapping[str, Mutants | None], few: int) -> Iterator[str]:
    """The section on the mutants of a set."""
    mutants = {rule: found and _judged_again(rule, found) for rule, found in mutants.items()}
    known = [found for found in mutants.values() if found is not None]
    counts = {kind.name: sum(len(getattr(found, kind.name)) for found in known) for kind in fields(Mutants)}
    share = counts["refuted"] / max(1, counts["refuted"] + counts["survived"])
    yield from (
        "", f"## Mutants of {name}", "",
        f"Small mistakes in its rules, each tried on {few} instances ({MORE_OFTEN * few} without a condition):",
        f"{counts['refuted']} of {counts['refuted'] + counts['survived']} are refuted, {share:.1%}. Counted apart are",
        f"{counts['equivalent']} that change nothing, {counts['unneeded']} conditions without which the rule is",
        f"supported, too, {counts['refused']} that the engine refuses where they matter, and {counts['unbuildable']}",
        "that give no rule or never fire ([how they are counted](../docs/verification.md#generation-of-instances)).",
    )  # fmt: skip
    for kind, what in (("survived", "mistake that survives"), ("unneeded", "condition that is not needed")):
        rows = [(rule, name) for rule, found in mutants.items() if found for name in getattr(found, kind)]
        if rows:
            yield from ("", f"| rule | {what} | why it does, or stays |", "| --- | --- | --- |")
            yield from (f"| {rule} | {_cell(name)} | {_reason(rule, name)} |" for rule, name in rows)
    late = [rule for rule, found in mutants.items() if found is None]
    if late:
        yield from ("", f"Not measured, as they take too long: {', '.join(late)}.")


def _reason(rule: str, name: str) -> str:
    return next((reason for part, reason in REASONS if re.search(part, f"{rule}, {name}")), "not known")


def _judged_again(rule: str, found: Mutants) -> Mutants:
    """The mutants, with those conditions among the survivors of which only no instance shows that they are needed."""
    kept = tuple(name for name in found.unneeded if _reason(rule, name) != COINCIDENCE)
    more = tuple(name for name in found.unneeded if name not in kept)
    return replace(found, unneeded=kept, survived=(*found.survived, *more))


def _cell(text: str) -> str:
    short = text if len(text) < 120 else text[:117] + "…"
    return short.replace("|", "\\|").replace("\n", " ")


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, default=Path("data"), help="the folder with the files of TASO and TENSAT")
    parser.add_argument("--page", type=Path, help="write the page to this file")
    parser.add_argument("--max-examples", type=int, default=60, help="instances of each rule that are evaluated (60)")
    parser.add_argument("--mutants", type=int, default=200, help="instances of each mutant (200)")
    parser.add_argument(
        "--mutated", nargs="*", choices=list(SETS), default=[BOOK], help="the sets whose mutants are tried (the book)"
    )
    parser.add_argument("--seconds", type=float, default=180, help="the most processor time for one rule (180)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="rules that are verified at once (all cores)")
    parser.add_argument("--sets", nargs="*", choices=list(SETS), default=PAGE, help="the sets (those of the page)")
    options = parser.parse_args()
    with ProcessPoolExecutor(options.jobs) as pool:
        jobs = {
            name: [pool.submit(judged, name, place, options.data, options.max_examples, options.seconds)
                   for place in range(len(rules_of(name, options.data)))]
            for name in options.sets
        }  # fmt: skip
        tries = {
            name: {rule.name: pool.submit(mutated, name, place, options.data, options.mutants, 2 * options.seconds)
                   for place, rule in enumerate(rules_of(name, options.data))}
            for name in options.mutated
        }  # fmt: skip
        found: dict[str, list[Judged]] = {}
        for name, waiting in jobs.items():
            found[name] = []
            for job in waiting:
                rule = job.result()
                found[name].append(rule)
                print(f"{name}: {rule.name}: {rule.word} ({rule.seconds:.1f} s)", flush=True)
        mutants = {name: {rule: job.result() for rule, job in own.items()} for name, own in tries.items()}
        text = page(found, mutants, options.max_examples, options.mutants)
    print(text)
    if options.page is not None:
        options.page.write_text(text)


if __name__ == "__main__":
    main()
