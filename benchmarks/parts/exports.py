"""Real exports and a rule book of twenty rules: whole way in place."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping

import torch
from torch import fx

from benchmarks.measure import Job, Meter, Row, Sample, System, duration, in_process
from benchmarks.models import MODELS, Model, book, exported
from benchmarks.peers import native, torch_fx
from benchmarks.peers.patterns import substs
from benchmarks.section import Goal, Section, goal_of_ratios
from benchmarks.terms import Rule
from gsl import RuleSet, Workload
from gsl.rules import BOOK

GSL, ENGINE, INDUCTOR, REPLACE = "GSL, in place", "GSL, engine", "inductor's matcher", "torch.fx `replace_pattern`"
MAKERS: Mapping[str, Callable[[list[Rule]], torch_fx.Rewrite]] = {
    GSL: lambda rules: torch_fx.in_place(RuleSet(substs(rules))),
    INDUCTOR: lambda rules: torch_fx.matcher(rules).apply,
}
"""The systems of which first runs are measured, each with what makes its rules."""
BOOK_RUN, BOOK_SECONDS, BOOK_FIRST = "GSL, the book", 0.05, 0.08
BOOK_MODULE = "its GraphModule"
TIMES = 3
"""The number of first runs of each system on a model."""


def rewritten(module: fx.GraphModule, rules: list[Rule]) -> fx.GraphModule:
    """The module as inductor rewrites it, with which the others are compared."""
    changed = torch_fx.copied(module)
    torch_fx.matcher(rules).apply(changed)
    return changed


def fired(module: fx.GraphModule, rules: list[Rule]) -> dict[str, int]:
    """The number of firings of each rule in a rewritten module."""
    targets = {native.fused(rule): rule.name.removeprefix("book_") for rule in rules}
    names = [targets[node.target] for node in module.graph.nodes if node.target in targets]
    return {name: names.count(name) for name in targets.values() if name in names}


def first_run(name: str, number: int) -> float:
    """The seconds of a system on the model of that number, in a process in which no rules were at work before."""
    rules, module = book(), torch_fx.copied(exported(MODELS[number]).module)
    rewrite = MAKERS[name](rules)
    gc.collect()
    gc.freeze()
    start = time.process_time()
    rewrite(module)
    return time.process_time() - start


def first_runs(number: int) -> dict[str, float]:
    """The least seconds of first runs of each system, a process for each; the systems take turns."""
    rounds = [{name: in_process(first_run, name, number) for name in MAKERS} for _ in range(TIMES)]
    return {name: min(each[name] for each in rounds) for name in MAKERS}


def measured(model: Model, rules: list[Rule], meter: Meter) -> tuple[Row, dict[str, int]]:
    """The row of a model, and the number of firings of each rule."""
    export = exported(model)
    reference = rewritten(export.module, rules)
    subject = torch_fx.Subject(export.module.graph, native.terms_of(reference.graph), export.inputs, export.module)
    gsl = torch_fx.GSL(subject, rules)
    systems: dict[str, System | str] = {
        GSL: gsl.in_place,
        ENGINE: gsl.engine,
        INDUCTOR: torch_fx.inductor_matcher(subject, rules),
        REPLACE: torch_fx.replace_pattern(subject, rules),
    }
    size = sum(node.op == "call_function" for node in export.module.graph.nodes)
    return meter.measure(model.name, size, systems), fired(reference, rules)


def run(meter: Meter, largest: int) -> Section:
    """All models."""
    rules = book()
    rows = []
    lines = []
    starts: list[tuple[str, float | None, float]] = []
    for number, model in enumerate(MODELS):
        row, counts = measured(model, rules, meter)
        told = ", ".join(f"{name} {n}" for name, n in counts.items())
        firsts = first_runs(number)
        lines.append([model.name, str(sum(counts.values())), told, *map(duration, firsts.values())])
        starts.append((f"inductor's matcher ({model.name})", firsts[GSL] / firsts[INDUCTOR], 1.2))
        rows.append(row)
    section = Section("Real exports and a rule book of twenty rules")
    section.add(
        """Graphs of `torch.export`, narrow but of full depth, and twenty rules that inductor's matcher can express,
        of which some fire in each model. Each makes one call of an operator that computes what its source computes.
        Every result has the same calls as inductor's, and the numbers of the original."""
    )
    section.systems(rows, GSL)
    section.table(["model", "rewrites", "by rule", *(f"first run of {name}" for name in MAKERS)], lines)
    section.add(
        f"""Each of the *first runs* is in a process of its own, in which the rules were made, and none was at work
        before; the least of {TIMES}."""
    )
    bounds = [
        (f"{name} ({row.label})", row.ratio(GSL, name), 1.0) for row in rows for name in (INDUCTOR, REPLACE)
    ]
    section.goals.append(
        goal_of_ratios(
            "whole way on real exports, twenty rules", "faster than every peer that can express the rules", bounds
        )
    )
    section.sharper.append(
        goal_of_ratios("first run of twenty rules in a process", "at most 1.2 × inductor", starts[:1])
    )
    return section


def run_book(meter: Meter, largest: int) -> Section:
    """The book on the first model, with its weights: to the fixpoint, folded and stored."""
    torch.manual_seed(0)
    model = MODELS[0]
    program = torch.export.export(model.make(), model.inputs())

    def rewriting() -> Job:
        workload = Workload.from_exported(program)
        return Job(lambda: BOOK(workload, iterative=True))

    def unlifting() -> Job:
        stored = BOOK(Workload.from_exported(program), iterative=True)
        return Job(lambda: stored.mod.graph)

    size = sum(node.op == "call_function" for node in program.graph.nodes)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the time of threads that wait for the next small weight is processor time, too
    try:
        row = meter.measure(f"the book on {model.name}", size, {BOOK_RUN: rewriting, BOOK_MODULE: unlifting})
    finally:
        torch.set_num_threads(threads)
    found, module = row.cells[BOOK_RUN], row.cells[BOOK_MODULE]
    section = Section(f"The whole book on {model.name}")
    section.add(
        f"""`BOOK` until nothing matches, on the export of {model.name} with its weights ({size} calls), loaded, folded
        and stored as an exported program, by one thread. *First*: nothing else was rewritten in the process before.
        The `GraphModule` of the result, `new.mod`, is made when it is asked for, by torch's
        `ExportedProgram.module()`."""
    )
    if isinstance(found, Sample) and isinstance(module, Sample):
        shown = f"{duration(found.least)}, first time {duration(found.first)}"
        more = f"{duration(module.least)}, first time {duration(module.first)}"
        section.add(f"It takes {shown}; the `GraphModule`, where it is asked for, {more}.")
        reached = found.least <= BOOK_SECONDS and found.first <= BOOK_FIRST
        section.sharper.append(
            Goal(f"the book to its fixpoint, folded and stored, {model.name}",
                 f"{duration(BOOK_SECONDS)}, first time {duration(BOOK_FIRST)}",
                 f"{shown}, and {more} for the `GraphModule` where it is asked for", reached)
        )  # fmt: skip
    return section
