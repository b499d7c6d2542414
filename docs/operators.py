"""Writes docs/operators.md, the table of operators, from their declarations."""

from __future__ import annotations

from pathlib import Path

from gsl.op import Trait
from gsl.spec import REQUIRED, TABLE, OpSpec


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


def page() -> str:
    """The whole page."""
    head = (
        "# Operators\n\n"
        "The operators that have a canonical form, made from their declarations by `python docs/operators.py`. "
        "Operands with a `?` may be left out; attributes without a default are required in a target; those in italics "
        "follow from the operands.\n\n"
        "| class | name | operands | attributes | traits |\n| --- | --- | --- | --- | --- |\n"
    )
    return head + "\n".join(row(spec) for _, spec in sorted(TABLE.items())) + "\n"


if __name__ == "__main__":
    (Path(__file__).parent / "operators.md").write_text(page())
