"""The fuzzer by hand: ``python -m tests.fuzz --seconds 600 --seed 7 [target …]``."""

from __future__ import annotations

import argparse
import sys
import time
import traceback

from tests.fuzz import on_files, on_groups, on_patterns, on_programs, on_views  # noqa: F401  (they hold the targets)
from tests.fuzz.target import TARGETS

ROUND = 50
"""How many examples a target runs before it is the turn of the next one."""


def main() -> int:
    """Run the targets in turn until the time is over; 1 if something was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="target", help=f"of {', '.join(TARGETS)}; all if none is given")
    parser.add_argument("--seconds", type=float, default=60.0, help="when to stop (60)")
    parser.add_argument("--seed", type=int, default=0, help="the number that the examples follow from (0)")
    parser.add_argument("--examples", type=int, default=ROUND, help=f"examples in one turn of a target ({ROUND})")
    options = parser.parse_args()
    if unknown := set(options.targets) - set(TARGETS):
        parser.error(f"unknown target {', '.join(sorted(unknown))}: there are {', '.join(TARGETS)}")
    chosen = options.targets or list(TARGETS)
    counts, failed = dict.fromkeys(chosen, 0), set[str]()
    end, number = time.monotonic() + options.seconds, options.seed
    while time.monotonic() < end and len(failed) < len(chosen):
        for name in chosen:
            if name in failed or time.monotonic() >= end:
                continue
            try:
                TARGETS[name].run(number, options.examples)
            except Exception:
                failed.add(name)
                print(f"{name}, found with --seed {number} --examples {options.examples}:", file=sys.stderr)
                traceback.print_exc()
            counts[name] += options.examples
        number += 1
    print(", ".join(f"{name}: {count} examples" for name, count in counts.items()))
    print(f"found something in {', '.join(sorted(failed))}" if failed else f"found nothing; next seed {number}")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
