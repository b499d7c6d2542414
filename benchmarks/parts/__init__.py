"""The parts of the benchmarks, by the names with which they are chosen."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable

from benchmarks.measure import Meter
from benchmarks.parts import (
    chain,
    exports,
    footprint,
    growth,
    many_rules,
    onnx,
    optimised,
    relax,
    relay,
    scale,
    worst,
)
from benchmarks.section import Section

PARTS: dict[str, Callable[[Meter, int], Section]] = {
    "chain": chain.run,
    "rules": many_rules.run,
    "absent": many_rules.run_absent,
    "exports": exports.run,
    "book": exports.run_book,
    "relax": relax.run,
    "groups": relax.run_groups,
    "relay": relay.run,
    "growth": growth.run,
    "worst": worst.run,
    "footprint": footprint.run,
    "scale": scale.run,
    "onnx": onnx.run,
    "optimised": optimised.run,
    "whole": optimised.run_whole,
}
"""Each takes the meter and the largest number of operators."""
LONG = ("whole",)
"""The parts that take too long to run where they are not named."""


def run_part(name: str, rounds: int, largest: int) -> Section:
    """Run one part on graphs of at most so many operators."""
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    print(f"== {name}", flush=True)
    return PARTS[name](Meter(rounds=rounds), largest)
