"""Records in docs/spellings.json how each framework spells the operators: ``python -m tests.conformance.record``.

The entries of the front ends that are available are made anew; the others stay. docs/operators.py makes a table of it.
"""

from __future__ import annotations

import json
from pathlib import Path

from gsl.spec import TABLE
from tests.conformance.front_ends import AVAILABLE, FrontEnd
from tests.conformance.operators import view
from tests.conformance.programs import program_of
from tests.helpers.examples import EVERY_CALL

FILE = Path(__file__).resolve().parents[2] / "docs" / "spellings.json"
FIELDS = ("operator.getitem",)
"""Calls that only take the fields of a result."""
RECORDED = ("fx", "relax", "relay", "onnx")


def spellings(front_end: FrontEnd) -> dict[str, str | list[str]]:
    """For each operator the native calls that are written for it, or the reason why there are none.

    Of the calls by which its meaning is tested it is the one that takes the fewest; each native call is named once.
    """
    found: dict[str, str | list[str]] = {}
    for op in sorted(TABLE):
        if op in front_end.missing:
            found[op] = front_end.missing[op]
            continue
        rows = [call for call in EVERY_CALL if call.op == op and not front_end.refuses(op, call.label)]
        written = [front_end.calls(program_of(view([call])[0], front_end).native) for call in rows]
        # A call that is computed ahead of time, and so has none at all, is no example.
        calls = min(written, key=lambda calls: (not calls, len(calls)))
        found[op] = [name for name in dict.fromkeys(calls) if name not in FIELDS or calls == [name]]
    return found


def recorded() -> dict[str, dict[str, str | list[str]]]:
    """What the file says, by front end."""
    known: dict[str, dict[str, str | list[str]]] = json.loads(FILE.read_text()) if FILE.exists() else {}
    return known


def main() -> None:
    known = recorded()
    known.update({f.name: spellings(f) for f in AVAILABLE if f.name in RECORDED})
    lines = []
    for name in sorted(known):
        rows = [f"    {json.dumps(op)}: {json.dumps(value)}" for op, value in known[name].items()]
        lines.append(f"  {json.dumps(name)}: {{\n" + ",\n".join(rows) + "\n  }")
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
