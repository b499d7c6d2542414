"""The page of results."""

from __future__ import annotations

import os
import platform
import textwrap
from collections.abc import Sequence
from datetime import date

from benchmarks.measure import Meter
from benchmarks.peers import versions
from benchmarks.section import Goal, Section, table

WIDTH = 120
MARKS = {True: "yes", False: "**no**", None: "not measured"}


def page(sections: Sequence[Section], meter: Meter, seconds: float) -> str:
    """The sections as one page, the goals first."""
    lines = [
        "# Results",
        "",
        _filled(
            """Written by `make bench`. All systems of a table ran in turn, on the same graphs, in one process in which
            no other part of the benchmarks had run, and the result of each was read back and compared: the same calls
            on the same operands in every framework, and, where the graph can be run, the same numbers."""
        ),
        "",
        _goals([goal for section in sections for goal in section.goals]),
        "",
        "A ratio is GSL's time divided by that of the system that is named.",
    ]
    sharper = [goal for section in sections for goal in section.sharper]
    if sharper:
        lines += ["", "The goals that were set when the first ones were met:", "", _goals(sharper)]
    for section in sections:
        lines += ["", f"## {section.title}"]
        for block in section.blocks:
            lines += ["", block if block.startswith(("|", "!")) else _filled(block)]
    return "\n".join([*lines, "", *_method(meter, sections, seconds), ""])


def _goals(goals: Sequence[Goal]) -> str:
    return table(["what", "goal", "measured", "met"], [[g.what, g.goal, g.measured, MARKS[g.met]] for g in goals])


def _method(meter: Meter, sections: Sequence[Section], seconds: float) -> list[str]:
    known = versions()
    installed = [f"{name} {version}" for name, version in known.items() if version != "not installed"]
    missing = [name for name, version in known.items() if version == "not installed"]
    texts = [
        f"""Each number is the least of up to {meter.rounds} rounds, because what else goes on in a machine only adds
        to a time, and more to some rounds than to others. The systems take turns, in every second round in the reverse
        order, so that none always runs behind the same other one. A system that has used {meter.patience:.0f} seconds
        on a graph runs no more on it, and one that is expected to take over {meter.limit:.0f} seconds, by how it grew
        before, is left out. Times are processor time, of inference and import wall time. Before each run, garbage is
        collected; the collector stays on. Each system gets a graph of its own, made before its time is taken, and its
        rules are made, registered and compiled before: one that takes less than {meter.warming} seconds has run twice,
        on other copies of the graph, so that the functions are there that GSL writes for rules, and what it keeps of
        the forms of calls.""",
        """GSL checks types, cycles, effects and attributes at every match, records a trace, and matches in either
        order of commutative operands; that is part of its time. The peers check the uses of inner nodes at most, and
        match operands as they stand.""",
        f"""Python {platform.python_version()}, {', '.join(installed)}; {_cores()} cores ({platform.machine()}).
        {f'Not installed, and left out: {", ".join(missing)}.' if missing else ''} The run of
        {date.today():%-d %B %Y} took {seconds / 60:.1f} minutes
        ({'; '.join(f"{section.title}: {section.seconds:.0f} s" for section in sections)}).""",
    ]
    return ["## How it was measured", "", "\n\n".join(map(_filled, texts))]


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _filled(text: str) -> str:
    return textwrap.fill(" ".join(text.split()), WIDTH, break_long_words=False, break_on_hyphens=False)
