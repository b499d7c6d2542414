"""Models of ONNX: rewriting beside onnxscript's rewriter and onnxruntime's optimiser, and what it gains."""

from __future__ import annotations

import logging
import statistics
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from benchmarks.measure import Meter, Row, exponent, in_turns
from benchmarks.parts.many_rules import fused, rules, terms
from benchmarks.peers import absent
from benchmarks.peers.native import require_close
from benchmarks.section import Goal, Section, goal_of_ratios
from demo.models import MODELS, Model
from gsl import Workload
from gsl.rules import BOOK

SIZES = (300, 3_000, 30_000)
COUNTS = (1, 150)
RUNS = 9
NEW, IN_PLACE = "GSL, a new model", "GSL, in place"
SCRIPT, OFFLINE = "onnxscript's rewriter, in place", "onnxruntime's optimiser, its own rules"
LEVELS = {"none": "ORT_DISABLE_ALL", "basic": "ORT_ENABLE_BASIC", "all": "ORT_ENABLE_ALL"}
"""onnxruntime's levels of optimisation."""


def run(meter: Meter, largest: int) -> Section:
    """Rewriting on chains of all sizes, and inference."""
    section = Section("Models of ONNX")
    missing = absent("onnxscript")
    if missing is not None:
        section.add(missing)
        return section
    _rewriting(section, meter, [size for size in SIZES if size <= largest])
    _inference(section)
    return section


def _rewriting(section: Section, meter: Meter, sizes: list[int]) -> None:
    from benchmarks.peers import onnx_script as peer

    section.add(
        """The chains of the part on 1 to 150 rules, as models of `onnx_ir`. All start from a model in memory; GSL and
        onnxscript make the same rewrites, which is checked. onnxruntime takes no rules of users: its row is what it
        takes to read such a model, apply its own rules, and write it."""
    )
    for count in COUNTS:
        rows: list[Row] = []
        for size in sizes:
            before, after, chosen = terms(size), fused(size), rules(count)
            new, in_place = peer.gsl_systems(before, chosen, after)
            systems = {
                NEW: new, IN_PLACE: in_place, SCRIPT: peer.rewriter(before, chosen, after),
                OFFLINE: peer.offline(before),
            }  # fmt: skip
            rows.append(meter.measure(f"{count} rule{'s' * (count > 1)}", len(before.calls), systems))
        section.systems(rows, IN_PLACE)
        bound = {1: 1 / 4, 150: 1 / 50}[count]
        ratios = [(f"at {row.size:,} nodes", row.ratio(IN_PLACE, SCRIPT), bound) for row in rows]
        what = f"models of ONNX, {count} rule{'s' * (count > 1)}"
        section.goals.append(goal_of_ratios(what, f"at most 1/{round(1 / bound)} of onnxscript's rewriter", ratios))
        section.goals.append(_growth(what, rows))


def _growth(what: str, rows: list[Row]) -> Goal:
    """The exponent of growth between the smallest and the largest size, of a new model and in place."""
    ends = [rows[0], rows[-1]] if len(rows) > 1 else []
    found = [slope for name in (NEW, IN_PLACE) if (slope := exponent(ends, name)) is not None]
    shown = ", ".join(f"{slope:.2f}" for slope in found) or "not measured"
    return Goal(f"{what}: growth", "exponent at most 1.1", shown, max(found) <= 1.1 if found else None)


# ---------------------------------------------------------------- inference


def _inference(section: Section) -> None:
    heads = [f"{kind}, {level}" for level in LEVELS for kind in ("exported", "by `BOOK`")]
    lines = []
    for model in MODELS:
        found = measure(model)
        print(f"{model.name}: {found}", flush=True)
        lines.append([model.name, *([found] + [""] * (len(heads) - 1) if isinstance(found, str) else found)])
    section.table(["milliseconds", *heads], lines)
    section.add(
        f"""Inference by onnxruntime of the models of the demo, exported by `torch.onnx.export`, before and after
        `BOOK`, with onnxruntime's levels of optimisation: none, basic, all (wall time, median of {RUNS}, in turns, one
        thread). All outputs were compared."""
    )


def measure(model: Model) -> list[str] | str:
    """The milliseconds of the forms of a model as text, or why there is none."""
    try:
        old = exported(model)
    except Exception as error:
        return f"can't be exported ({type(error).__name__})"
    calls = _calls(old, BOOK(old, iterative=True))
    inputs = old.random_inputs()
    expected = _tensors(calls[0](*inputs))
    for call in calls:
        require_close(model.name, _tensors(call(*inputs)), expected)
    taken = in_turns({number: partial(call, *inputs) for number, call in enumerate(calls)}, RUNS)
    return [f"{statistics.median(times):.1f}" for times in taken.values()]


def exported(model: Model) -> Workload:
    """The model as torch's exporter writes it for ONNX."""
    torch.manual_seed(0)
    logging.disable(logging.CRITICAL)
    args = model.inputs()
    made = torch.onnx.export(model.make().eval(), tuple(args), dynamo=True, verbose=False)
    assert made is not None
    return Workload.from_onnx(made.model, name=model.name)


def _calls(old: Workload, new: Workload) -> list[Callable[..., Any]]:
    import onnxruntime

    return [
        workload.program.build(
            runtime="onnxruntime", intra_op_num_threads=1,
            graph_optimization_level=getattr(onnxruntime.GraphOptimizationLevel, level),
        )
        for level in LEVELS.values() for workload in (old, new)
    ]  # fmt: skip


def _tensors(result: Any) -> list[torch.Tensor]:
    return [torch.from_numpy(value) for value in (result if isinstance(result, tuple) else (result,))]
