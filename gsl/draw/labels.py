"""The text and the style of a node's box."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from textwrap import wrap
from typing import Any

from gsl.draw.figure import Box, Chain, Mark, Nest, Style
from gsl.graph import CONST, GETITEM, INPUT, PARAM, TUPLE, Node, op_name
from gsl.graph.text import attribute_texts, hide_none, is_scalar, value_text
from gsl.spec import spec_of

# ---------------------------------------------------------------- colours


PALETTE = ("#E69F00", "#56B4E9", "#009E73", "#CC79A7", "#D55E00", "#0072B2", "#F0E442")
FAILED = "#D55E00"

STYLES: Mapping[str, Style] = {
    INPUT: Style("#e3f1e6", "#7fa08a", rounded=True),
    PARAM: Style("#f4f4f4", "#bbbbbb", rounded=True, small=True),
    CONST: Style("#fbf6e2", "#bbbbbb", rounded=True, small=True),
    TUPLE: Style("#ffffff", "#ffffff", small=True),
    GETITEM: Style("#ffffff", "#ffffff", small=True),
    "call": Style("#eaf0f7", "#8899aa"),
    "opaque": Style("#fafafa", "#8899aa", dashed=True),
    "output": Style("#eee6f2", "#a393ad", rounded=True),
}
"""The style of a node's box, by the node's kind."""
BESIDE = Style("#fafafa", "#cfcfcf", text="#6d6d6d")
"""The style of a node beside the part that is shown."""
MODULE = Style("#dfe6ee", "#5f7388", width=1.5, rounded=True)
"""A part of the model that is one box."""
FRAMES = (Style("#f8fafc", "#8fa3b8", rounded=True), Style("#eff4f9", "#8fa3b8", rounded=True))
"""The frames around parts that are drawn open, by their depth."""
EFFECT = "#b03a2e"
"""The outline of what does more than compute its value."""


def tint(colour: str, share: float = 0.3) -> str:
    """A colour mixed with white, on which black text is read well."""
    return "#" + bytes(round(255 - (255 - part) * share) for part in bytes.fromhex(colour[1:])).hex()


def rule_marks(rules: Mapping[str, object]) -> dict[str, Mark]:
    """A mark for each rule: its number, and its colour."""
    return {rule: Mark(str(number), PALETTE[(number - 1) % len(PALETTE)]) for number, rule in enumerate(rules, 1)}


# ---------------------------------------------------------------- labels


MOST_LINES = 5
"""The largest number of attributes that a box shows; the others are in its hint."""
MOST_CHARACTERS = 44
"""The largest number of characters of a line in a box."""


def wrapped(text: str, most: int, lines: int = 8) -> list[str]:
    """A text in lines of at most so many characters, broken at spaces; further lines than so many are left out."""
    broken = [line for part in text.splitlines() for line in wrap(part, most, subsequent_indent="  ")]
    return broken if len(broken) <= lines else [*broken[: lines - 1], broken[lines - 1] + " …"]


def clipped(text: str, most: int) -> str:
    """A text of at most so many characters, with an ellipsis where some were left out."""
    return text if len(text) <= most else text[: most - 1] + "…"


def hide_defaults(node: Node, name: str, value: Any) -> bool:
    """True for an attribute that a reader can do without: derived, or equal to the operator's default."""
    spec = spec_of(node.op)
    if spec is None or name not in spec.attrs:
        return hide_none(node, name, value)
    attribute = spec.attrs[name]
    if attribute.derive is not None:
        return True
    try:
        default = spec.normalise(name, attribute.default, tuple(operand.type for operand in node.operands))
    except ValueError:
        return False
    return type(default) is type(value) and bool(default == value)


def hide_nothing(node: Node, name: str, value: Any) -> bool:
    """False: every attribute is shown."""
    return False


def style(node: Node) -> Style:
    """The style of a node's box."""
    found = STYLES.get("opaque" if node.opaque else str(node.op), STYLES["call"])
    return found if node.effect is None else replace(found, stroke=EFFECT)


def lines(node: Node, name: str) -> tuple[str, ...]:
    """The operator with scalar operands, its attributes, its type; for a leaf, its name and type."""
    if node.op == TUPLE:
        return ("tuple",)
    if node.op == GETITEM:
        return (f"[{value_text(node.attrs['index'])}]",)
    type = () if node.type is None else (clipped(str(node.type), MOST_CHARACTERS),)
    if node.op in (INPUT, PARAM, CONST):
        return (clipped(name, MOST_CHARACTERS), *type)
    attributes = [clipped(text, MOST_CHARACTERS) for text in attribute_texts(node, hide=hide_defaults)]
    if len(attributes) > MOST_LINES:
        attributes[MOST_LINES - 1 :] = [f"… and {len(attributes) - MOST_LINES + 1} more"]
    return (clipped(title(node), MOST_CHARACTERS), *attributes, *type)


def title(node: Node) -> str:
    """The operator of a call, with the operands that are numbers, and what it does besides."""
    written = op_name(node.op)
    if any(is_scalar(operand) for operand in node.operands):
        operands = [value_text(o.attrs["value"]) if is_scalar(o) else "·" for o in node.operands]
        written += f"({', '.join(operands)})"
    return written if node.effect is None else f"{written} !{node.effect.value}"


def draw_outputs(nest: Nest, outputs: Sequence[Chain | None]) -> None:
    """Draw a box for each output of a diagram, below the box that it is."""
    for number, output in enumerate(outputs):
        key = ("output", number)
        nest.box((), Box(key, ("output" if len(outputs) == 1 else f"output {number}",), STYLES["output"]))
        nest.edge(output, (key,))


def hint(node: Node, name: str) -> str:
    """The known facts about a node, for a place where its box has no room."""
    made = [] if node.origin is None else [f"made by the rule {node.origin.rule}"]
    attributes = [] if node.op in (INPUT, PARAM, CONST) else [clipped(t, 200) for t in attribute_texts(node)]
    type = [] if node.type is None else [str(node.type)]
    return "\n".join([f"%{name} = {op_name(node.op)}", *attributes, *type, *made])
