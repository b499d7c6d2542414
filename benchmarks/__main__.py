"""Runs the benchmarks, and writes RESULTS.md and the curves."""

from __future__ import annotations

import argparse
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from benchmarks.curves import draw
from benchmarks.measure import Meter
from benchmarks.parts import LONG, PARTS, run_part
from benchmarks.report import page
from benchmarks.section import Section

RESULTS = Path(__file__).with_name("RESULTS.md")
CURVES = {
    "growth": ("growth.svg", "GSL's engine by the size of the graph"),
    "chain": ("chain.svg", "Convolution, batch norm, relu: all systems"),
    "relax": ("relax.svg", "Relax, module to module"),
}
"""For each part with curves: the file and its title."""


def main(arguments: list[str] | None = None) -> None:
    """Run the parts that the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--only", action="append", choices=list(PARTS), help="run this part; may be given again")
    parser.add_argument("--largest", type=int, default=100_000, help="leave out graphs of more operators")
    parser.add_argument("--rounds", type=int, default=9, help="how often each system runs on a graph at most")
    parser.add_argument("--output", type=Path, default=RESULTS, help="where to write the page; curves go beside it")
    options = parser.parse_args(arguments)
    start = time.perf_counter()
    meter, sections = Meter(rounds=options.rounds), list[Section]()
    for name in options.only or [name for name in PARTS if name not in LONG]:
        begun = time.perf_counter()
        # Each part begins with a fresh process, whatever ran before: what an earlier part leaves behind in memory and
        # in caches would slow down some systems more than others.
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
            section = process.submit(run_part, name, options.rounds, options.largest).result()
        section.seconds = time.perf_counter() - begun
        print(f"{name} took {section.seconds:.0f} s", flush=True)
        sections.append(section)
        if name in CURVES:
            file, title = CURVES[name]
            drawn = draw(section.rows, options.output.with_name(file), title)
            image = f"![{title}, logarithmic axes]({file})"
            section.blocks.append(image if drawn else "The curves are drawn where matplotlib is installed.")
        options.output.write_text(page(sections, meter, time.perf_counter() - start), encoding="utf-8")
    print(f"written: {options.output}")


if __name__ == "__main__":
    main()
