"""The colours of drawings. The colours that tell rules apart are of the palette of Okabe and Ito, made for all eyes.

No meaning hangs on a colour alone: whatever a rule has touched also carries its number.
"""

from __future__ import annotations

from collections.abc import Mapping

from gsl.draw.drawing import Mark, Style
from gsl.graph import CONST, GETITEM, INPUT, PARAM, TUPLE

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
    parts = (int(colour[place : place + 2], 16) for place in (1, 3, 5))
    return "#" + "".join(f"{round(255 - (255 - part) * share):02x}" for part in parts)


def rule_marks(rules: Mapping[str, object]) -> dict[str, Mark]:
    """A mark for each rule: its number, and its colour."""
    return {rule: Mark(str(number), PALETTE[(number - 1) % len(PALETTE)]) for number, rule in enumerate(rules, 1)}
