"""Writes docs/operators.md: the operators from their declarations, and how the frameworks spell them as recorded. Also
the lists at the end of docs/verification.md: the methods that cover them."""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

from gsl.op import Trait
from gsl.spec import REQUIRED, TABLE, OpSpec

HERE = Path(__file__).resolve().parent
RELAY = ".venv-relay/bin/relay-python"


def row(spec: OpSpec) -> str:
    """The line of one operator."""
    operands = list(spec.operands)
    for position in range(len(operands) - spec.optional, len(operands)):
        operands[position] += "?"
    attrs = []
    for name, attribute in spec.attrs.items():
        if attribute.derive is not None:
            attrs.append(f"*{name}*")
        else:
            attrs.append(name if attribute.default is REQUIRED else f"{name}={attribute.default!r}")
    traits = ", ".join(trait.name.lower() for trait in Trait if trait in spec.traits and trait.name)
    return f"| `op.{spec.cls}` | `{spec.name}` | {', '.join(operands)} | {', '.join(attrs)} | {traits} |"


def spelling(recorded: str | list[str]) -> str:
    """The calls by which a framework spells an operator, or the reason why it can't."""
    match recorded:
        case str():
            return f"missing: {recorded}"
        case []:
            return "the operand itself"
        case [name]:
            return f"`{name}`"
    return f"composed: {', '.join(f'`{name}`' for name in recorded)}"


def frameworks() -> str:
    """The table of operators against front ends."""
    recorded = json.loads((HERE / "spellings.json").read_text())
    head = (
        "\n## In the frameworks\n\n"
        "What is written for each operator, in its simplest form: a call of the framework, or several of which it is "
        "composed. Other spellings are read as the operator, too. The table is made of what the front ends do: "
        "`python -m tests.conformance.record` records it, and the conformance tests check that the record is true.\n\n"
        "| class | torch | Relax | Relay | ONNX |\n| --- | --- | --- | --- | --- |\n"
    )
    names = ("fx", "relax", "relay", "onnx")
    unrecorded = [f"{op} in {name}" for op in sorted(TABLE) for name in names if op not in recorded[name]]
    if unrecorded:
        sys.exit(
            f"docs/spellings.json has no record of {', '.join(unrecorded)}: run `python -m tests.conformance.record`, "
            f"for relay with the Python of {RELAY}"
        )
    rows = [
        f"| `op.{spec.cls}` | " + " | ".join(spelling(recorded[name][op]) for name in names) + " |"
        for op, spec in sorted(TABLE.items())
    ]
    return head + "\n".join(rows) + "\n"


def page() -> str:
    """The whole page."""
    head = (
        "# Operators\n\n"
        "The operators that have a canonical form, made from their declarations by `python docs/operators.py`. "
        "Operands with a `?` may be left out; attributes without a default are required in a target; those in italics "
        "follow from the operands.\n\n"
        "| class | name | operands | attributes | traits |\n| --- | --- | --- | --- | --- |\n"
    )
    return head + "\n".join(row(spec) for _, spec in sorted(TABLE.items())) + "\n" + frameworks()


def methods() -> Iterator[str]:
    """The paragraphs of the lists of operators that each method of verification covers."""
    from gsl.verify.kinds import NATIVE
    from gsl.verify.models.field import FIELD
    from gsl.verify.models.integers import INTEGERS

    for title, ops in (
        ("Exact over the integers and in the field:", INTEGERS & FIELD),
        ("Over the integers only:", INTEGERS - FIELD),
        ("In the field only:", FIELD - INTEGERS),
        ("Of integers and booleans only, computed as torch does by all methods:", NATIVE),
    ):
        names = ", ".join(f"`{op}`" for op in sorted(ops))
        yield f"{title}\n{textwrap.fill(names, 120, break_long_words=False, break_on_hyphens=False)}."


def with_methods(text: str) -> str:
    """The page on verification with its lists made anew."""
    head, mark, rest = text.partition("## Operators that each method covers\n\n")
    *_, last = rest.split("\n\n")
    return head + mark + "\n\n".join([*methods(), last])


if __name__ == "__main__":
    (HERE / "operators.md").write_text(page())
    verification = HERE / "verification.md"
    verification.write_text(with_methods(verification.read_text()))
