"""The choices of `gsl.optimize`, beside the best ones: it should never make a model slower, and miss little.

``python -m benchmarks.safe`` runs all parts, or those that it names, with one thread:

* ``subsets``: eight models of little depth and five sets of rules. All 32 subsets are applied and timed, and the
  program that `gsl.optimize` chooses of the five is compared with the best of them.
* ``decoding``: one token at a time, with a cache of 128 tokens of which the keys and values are inputs.
* ``transformers``, ``torchvision``, ``timm``: 45 small models of these libraries.

Programs run in turns, and medians count. Each optimisation has an empty cache of measurements, and is then run once
more with what was kept. Rows are printed as they come; they go to a file of lines in JSON, so that a run may be
continued, and with ``--page`` from there to a page.
"""

from __future__ import annotations

import argparse
import json
import logging
import operator
import os
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from torch import nn

import gsl
import gsl.rules as book
from benchmarks.parts.optimised import applied, frozen, made_by, stages
from benchmarks.section import table
from demo.models import GoogLeNet, Model, settle
from gsl import RuleSet, Workload, kernels
from gsl.cost import OptimizeReport
from gsl.cost.machine import machine
from gsl.graph.text import text
from gsl.rules import cpu
from gsl.rules.idioms import activations, attention, norms

LINES = Path(__file__).with_name("safe.jsonl")
Run = Callable[[], object]
Row = dict[str, Any]


# ---------------------------------------------------------------- timing


ROUNDS = (7, 101)
"""The least and the most rounds in which programs take turns."""
SAMPLE = 0.004
"""The least seconds of one sample: a program that is quicker is run several times for one."""


def in_turns(runs: Mapping[str, Run], seconds: float) -> dict[str, float]:
    """The median of the milliseconds that each program takes; they run there and back, for about so many seconds."""
    often, taken = dict.fromkeys(runs, 1), {name: list[float]() for name in runs}
    for name, run in runs.items():
        for _ in range(3):  # weights are packed at the second run
            run()
        often[name] = int(SAMPLE / _seconds(run, 1)) + 1
    start = time.perf_counter()
    for turn in range(ROUNDS[1]):
        if turn >= ROUNDS[0] and time.perf_counter() - start > seconds:
            break
        for name in list(runs)[:: -1 if turn % 2 else 1]:
            taken[name].append(_seconds(runs[name], often[name]) * 1e3)
    return {name: statistics.median(times) for name, times in taken.items()}


def _seconds(run: Run, often: int) -> float:
    start = time.perf_counter()
    for _ in range(often):
        run()
    return (time.perf_counter() - start) / often


def run_of(wl: Workload, inputs: tuple[Any, ...]) -> Run:
    """A run of a workload's program."""
    program = wl.exported.module()
    return lambda: program(*inputs)


def calls_of(wl: Workload) -> int:
    """The number of calls of a workload's program."""
    nodes = wl.exported.graph.nodes
    return sum(node.op == "call_function" and node.target is not operator.getitem for node in nodes)


@dataclass(frozen=True)
class Chosen:
    """The choice of `gsl.optimize` with an empty cache, and the time that it takes when it is asked again."""

    workload: Workload
    report: OptimizeReport
    again: float
    """The seconds of the second call."""

    def row(self) -> Row:
        """The columns that every part has."""
        return {"optimize": self.report.seconds, "again": self.again}


def chosen(
    wl: Workload, budget: float, rules: Sequence[RuleSet] | None = None, tolerance: float | None = None
) -> Chosen:
    """The choice of `gsl.optimize`, where nothing is known from earlier runs."""
    with _empty_cache():
        new, report = gsl.optimize(wl, rules=rules, budget=budget, tolerance=tolerance)
        start = time.perf_counter()
        gsl.optimize(wl, rules=rules, budget=budget, tolerance=tolerance)
        return Chosen(new, report, time.perf_counter() - start)


@contextmanager
def _empty_cache() -> Iterator[None]:
    before = os.environ.get("GSL_CACHE")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["GSL_CACHE"] = folder
        try:
            yield
        finally:
            os.environ.pop("GSL_CACHE")
            if before is not None:
                os.environ["GSL_CACHE"] = before


def fresh(model: Model) -> tuple[Workload, tuple[Any, ...]]:
    """A model as a workload, and its inputs; nothing that was packed for another one is kept."""
    torch.manual_seed(0)
    kernels.clear()
    inputs = model.inputs()
    return Workload.from_torch(model.make(), inputs, name=model.name), inputs


# ---------------------------------------------------------------- all subsets


OF_TRANSFORMERS = {
    "normal form": book.NORMAL,
    "attention": book.NORMAL + RuleSet(attention.RULES),
    "norms and activations": book.NORMAL + RuleSet([*norms.RULES, *activations.RULES]),
    "parallel layers as one": book.PARALLEL,
    "packed layers": RuleSet(cpu.DENSE),
}
"""Five sets of rules, which are applied in this order."""
OF_CONVOLUTIONS = {
    "folded batch norms": RuleSet(book.FAMILIES["fold"]),
    "sums": RuleSet([*book.FAMILIES["merge"], *book.FAMILIES["sums"]]),
    "parallel layers as one": book.PARALLEL,
    "packed layers": RuleSet(cpu.DENSE),
    "packed convolutions": RuleSet(cpu.CONV),
}
BUDGET = 20.0
"""The seconds that `gsl.optimize` has for a model of little depth."""
SCREEN, FINAL, FINALISTS = 10.0, 5.0, 3
"""The seconds in which all subsets are timed, those of the end, and how many of the best are timed there again."""
_LLAMA = {
    "hidden_size": 768, "intermediate_size": 2048, "num_attention_heads": 12, "num_key_value_heads": 4,
    "vocab_size": 8000,
}  # fmt: skip
_TINY = {
    "hidden_size": 128, "intermediate_size": 512, "num_attention_heads": 2, "num_hidden_layers": 2, "vocab_size": 1000,
}  # fmt: skip


def _tokens(length: int) -> Callable[[], tuple[torch.Tensor, ...]]:
    return lambda: (torch.randint(0, 1000, (1, length)),)


def _image() -> tuple[torch.Tensor, ...]:
    return (torch.randn(1, 3, 224, 224),)


def _googlenet() -> nn.Module:
    """GoogLeNet of two blocks."""
    whole = GoogLeNet()
    head = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(480, 1000)
    return settle(nn.Sequential(whole.stem, *list(whole.blocks)[:2], *head))


TWO = {"num_hidden_layers": 2}
SHALLOW: dict[Model, Mapping[str, RuleSet]] = {
    Model("BERT-base, 2 layers, 128 tokens", made_by("Bert", **TWO), _tokens(128)): OF_TRANSFORMERS,
    Model("GPT-2, 2 layers, 128", made_by("GPT2", n_layer=2), _tokens(128)): OF_TRANSFORMERS,
    Model("ViT-base, 2 layers, 224", made_by("ViT", **TWO), _image): OF_TRANSFORMERS,
    Model("Llama-like, 2 layers of 768, 64", made_by("Llama", **_LLAMA, **TWO), _tokens(64)): OF_TRANSFORMERS,
    Model("T5-small encoder, 2 layers, 128", made_by("T5", d_model=512, num_layers=2), _tokens(128)): OF_TRANSFORMERS,
    Model("GoogLeNet, 2 blocks", _googlenet, _image): OF_CONVOLUTIONS,
    Model("ResNet-50, 4 blocks", made_by("ResNet", depths=[1, 1, 1, 1]), _image): OF_CONVOLUTIONS,
    Model("BERT, 2 layers of 128, 16 tokens", made_by("Bert", **_TINY), _tokens(16)): OF_TRANSFORMERS,
}
"""The models, each with the five sets of rules."""


def subset_programs(wl: Workload, five: Mapping[str, RuleSet]) -> dict[str, Workload]:
    """The programs that subsets make, by the names of the sets; of equal ones, that of the smallest subset."""
    programs: dict[str, Workload] = {}
    texts: set[str] = set()
    for wanted in sorted(product((False, True), repeat=len(five)), key=sum):
        names = [name for name, is_wanted in zip(five, wanted) if is_wanted]
        new = applied(wl, tuple(five[name] for name in names))
        if text(new.graph) not in texts:
            texts.add(text(new.graph))
            programs[", ".join(names) or "none"] = new
    return programs


def subsets(model: Model, five: Mapping[str, RuleSet]) -> Row:
    """The program that is chosen of five sets of rules, beside those of all their subsets.

    The least of many medians is partly chance, so the best ones are timed once more with the chosen one.
    """
    wl, inputs = fresh(model)
    programs = subset_programs(wl, five)
    all_runs = {name: run_of(program, inputs) for name, program in programs.items()}
    first = in_turns(all_runs, SCREEN)
    best = sorted(first, key=lambda name: first[name])[:FINALISTS]
    found = chosen(wl, BUDGET, list(five.values()))
    runs = {name: all_runs[name] for name in dict.fromkeys(["none", *best])}
    same = next((name for name in programs if text(programs[name].graph) == text(found.workload.graph)), None)
    own = "chosen" if same is None else same
    runs[own] = runs.get(own) or run_of(found.workload, inputs)
    last = in_turns(runs, FINAL)
    winner = min(best, key=lambda name: last[name])
    return {
        "model": model.name, "programs": len(programs), "export": last["none"], "best": last[winner], "by": winner,
        "chosen": last[own], "same": same, **found.row(),
    }  # fmt: skip


def subset_cells(row: Row) -> list[str]:
    """A line of the table."""
    return [
        row["model"], str(row["programs"]), f"{row['export']:.2f}", f"{row['best']:.2f}", f"{row['chosen']:.2f}",
        f"{row['chosen'] / row['best']:.3f}", row["by"], row["same"] or "other than every subset's", *_seconds_of(row),
    ]  # fmt: skip


# ---------------------------------------------------------------- decoding


LENGTH = 128
"""The number of tokens for which the cache has room."""
POSITION = 100


class Step(nn.Module):
    """One step of a decoder of transformers: a token at a position, with a cache that is an input and written in place.
    """

    def __init__(self, kind: str, **options: Any) -> None:
        import transformers

        super().__init__()
        config = getattr(transformers, f"{kind}Config")(**options)
        config._attn_implementation = "eager"
        self.model = getattr(transformers, f"{kind}Model")(config).eval()

    def forward(
        self, token: torch.Tensor, position: torch.Tensor, keys: list[torch.Tensor], values: list[torch.Tensor]
    ) -> torch.Tensor:
        from transformers import StaticCache

        cache = StaticCache(self.model.config, LENGTH)
        for layer, key, value in zip(cache.layers, keys, values):
            layer.lazy_initialization(key, value)
            layer.keys, layer.values, layer.cumulative_length = key, value, position.clone()
        result: torch.Tensor = self.model(token, past_key_values=cache, position_ids=position[None, None])[0]
        return result


def _cache(layers: int, heads: int) -> Callable[[], tuple[Any, ...]]:
    def make() -> tuple[Any, ...]:
        keys, values = ([torch.randn(1, heads, LENGTH, 64) for _ in range(layers)] for _ in range(2))
        return torch.tensor([[5]]), torch.tensor(POSITION), keys, values

    return make


DECODERS = (
    Model("GPT-2", lambda: Step("GPT2"), _cache(12, 12)),
    Model("Llama-like, 12 layers of 768", lambda: Step("Llama", num_hidden_layers=12, **_LLAMA), _cache(12, 4)),
)
DECODING_BUDGET, TOLERANCE = 60.0, 0.05


def decoding(model: Model) -> Row:
    """A step of a decoder: as exported, by all rules for a CPU, by the choices of `gsl.optimize`, and compiled."""
    wl, inputs = fresh(model)
    found, rough = chosen(wl, DECODING_BUDGET), chosen(wl, DECODING_BUDGET, tolerance=TOLERANCE)
    programs = {"export": wl, "cpu": applied(wl, stages()), "chosen": found.workload, "rough": rough.workload}
    runs = {name: run_of(program, inputs) for name, program in programs.items()}
    compiled = torch.compile(wl.exported.module())
    runs["frozen"] = frozen(lambda: compiled(*inputs))
    errors = [each.report.error or 0.0 for each in (found, rough)]
    return {"model": model.name, **in_turns(runs, 3 * FINAL), "errors": errors, **found.row()}


def decoding_cells(row: Row) -> list[str]:
    """A line of the table."""
    times = [f"{row[name]:.2f} ({row['export'] / row[name]:.2f} ×)" for name in ("cpu", "chosen", "rough", "frozen")]
    errors = [f"{error:.0e}" for error in row["errors"]]
    return [row["model"], f"{row['export']:.2f}", *times, *errors, *_seconds_of(row)]


# ---------------------------------------------------------------- libraries


LIBRARY_BUDGET = 8.0
LEAST = 0.98
"""The least factor by which the choice has to be as fast as the export."""


def library(name: str, make: Callable[[], tuple[nn.Module, torch.Tensor]]) -> Row:
    """A model of a library: as exported, by the rule book, and as `gsl.optimize` chooses."""
    torch.manual_seed(0)
    kernels.clear()
    model, example = make()
    wl = Workload.from_torch(model.eval(), (example,), name=name)
    found = chosen(wl, LIBRARY_BUDGET)
    programs = {"export": wl, "book": book.BOOK(wl, iterative=True), "chosen": found.workload}
    # What was not taken is the same program.
    runs = {name: run_of(programs[name], (example,)) for name in ("export", "book")}
    if found.report.taken:
        runs["chosen"] = run_of(found.workload, (example,))
    taken = in_turns(runs, 2.0)
    calls = {f"{name}_calls": calls_of(program) for name, program in programs.items()}
    return {"model": name, "chosen": taken["export"], **taken, **calls, "taken": found.report.taken, **found.row()}


def library_cells(row: Row) -> list[str]:
    """A line of the table."""
    by_book, own = row["export"] / row["book"], row["export"] / row["chosen"]
    larger = row["chosen_calls"] > row["export_calls"] and own <= 1
    return [
        row["model"], f"{row['export']:.3f}", str(row["export_calls"]), f"{by_book:.2f} ×", str(row["book_calls"]),
        f"{own:.2f} ×" if row["taken"] else "the export", str(row["chosen_calls"]),
        "**no**" if own < LEAST or larger else "yes", *_seconds_of(row),
    ]  # fmt: skip


def _seconds_of(row: Row) -> list[str]:
    return [f"{row['optimize']:.1f}", f"{row['again']:.2f}"]


# ---------------------------------------------------------------- parts


@dataclass(frozen=True)
class Part:
    """A table: what it tells, its head, what measures a row by the name of its model, and how a row is shown."""

    text: str
    head: Sequence[str]
    rows: Callable[[], Mapping[str, Callable[[], Row]]]
    cells: Callable[[Row], list[str]]


_SECONDS = "`optimize`, s", "again, s"
_LIBRARY = (
    "model", "export, ms", "calls", "`BOOK`", "calls", "`gsl.optimize`", "calls", "safe", *_SECONDS,
)  # fmt: skip


_seen: list[torch.library.Library] = []
"""The libraries of torchvision's operators, which are needed for as long as the process runs."""


def _library(name: str) -> Part:
    def rows() -> Mapping[str, Callable[[], Row]]:
        from tests.helpers import libraries

        if name != "transformers":
            _seen.append(libraries.see_vision())
        return {each: partial(library, each, make) for each, make in getattr(libraries, name)().items()}

    text = (
        f"Small models of {name}: how many times faster than the export they are by `BOOK`, and by `gsl.optimize`, and "
        f"how many calls they have. A model is safe if the result is at least {LEAST} × as fast, and has no more calls "
        "unless it is faster."
    )
    return Part(text, _LIBRARY, rows, library_cells)


PARTS = {
    "subsets": Part(
        "Five sets of rules, and all of their 32 subsets: the program that `gsl.optimize` chooses beside the best one.",
        ("model", "programs", "export, ms", "best subset", "chosen", "chosen / best", "the best subset",
         "the chosen program is that of", *_SECONDS),
        lambda: {model.name: partial(subsets, model, five) for model, five in SHALLOW.items()},
        subset_cells,
    ),
    "decoding": Part(
        "One token at a time, with keys and values of 128 tokens: how many times faster than the export.",
        ("one token", "export, ms", "rules for a CPU", "`gsl.optimize`", f"`gsl.optimize`, `tolerance={TOLERANCE}`",
         "`torch.compile`, frozen", "error", f"error, `tolerance={TOLERANCE}`", *_SECONDS),
        lambda: {model.name: partial(decoding, model) for model in DECODERS},
        decoding_cells,
    ),
    **{name: _library(name) for name in ("transformers", "torchvision", "timm")},
}  # fmt: skip


def run_alone(name: str, lines: Path, only: Sequence[str]) -> None:
    """Run a part in a process of its own."""
    warnings.simplefilter("ignore")
    logging.disable(logging.ERROR)
    torch.set_num_threads(1)
    run_part(name, lines, only)


def run_part(name: str, lines: Path, only: Sequence[str] = ()) -> None:
    """Measure the rows of a part that a file does not have, add them, and print all."""
    part = PARTS[name]
    known = read(lines, name)
    print(f"\n## {name}\n\n{table(part.head, [])}", flush=True)
    with torch.no_grad():
        for model, measure in part.rows().items():
            if only and model not in only:
                continue
            if model not in known:
                known[model] = measure()
                with lines.open("a", encoding="utf-8") as file:
                    file.write(json.dumps({"part": name, **known[model]}) + "\n")
            print(f"| {' | '.join(part.cells(known[model]))} |", flush=True)


def read(lines: Path, part: str) -> dict[str, Row]:
    """The rows of a part in a file, by model."""
    if not lines.exists():
        return {}
    rows = [json.loads(line) for line in lines.read_text(encoding="utf-8").splitlines()]
    return {row["model"]: row for row in rows if row["part"] == part}


PAGE = """# Is `gsl.optimize` safe?

Made by `python -m benchmarks.safe --page benchmarks/SAFE.md` on {machine}, with one thread. Programs run in turns; wall
time, medians. *`optimize`, s*: the seconds of a run with an empty cache; *again, s*: those of a second run, which finds
the decisions of the first.
"""


def page(lines: Path) -> str:
    """All tables of a file of results, as a page."""
    parts = [PAGE.format(machine=machine())]
    for name, part in PARTS.items():
        if rows := read(lines, name):
            parts.append(f"## {name}\n\n{part.text}\n\n{table(part.head, list(map(part.cells, rows.values())))}\n")
    return "\n".join(parts)


def main(arguments: list[str] | None = None) -> None:
    """Run the parts that the command line names, each in a process of its own."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.safe", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="part", help=f"of {', '.join(PARTS)}; all of them unless given")
    parser.add_argument("--model", action="append", default=[], help="this model only; may be given again")
    parser.add_argument("--lines", type=Path, default=LINES, help="the file of results, to which a run adds")
    parser.add_argument("--page", type=Path, help="where to write the page")
    options = parser.parse_args(arguments)
    if unknown := set(options.parts).difference(PARTS):
        parser.error(f"there is no part {', '.join(sorted(unknown))}: they are {', '.join(PARTS)}")
    for name in options.parts or PARTS:
        # Transformers can't be imported where torchvision is found.
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
            process.submit(run_alone, name, options.lines, options.model).result()
    if options.page is not None:
        options.page.write_text(page(options.lines), encoding="utf-8")


if __name__ == "__main__":
    main()
