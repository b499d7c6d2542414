"""Drawings: of a view, of a part of it with its neighbours, and of what rules did to it. Graphviz lays them out."""

from gsl.draw.change import before_after, painted
from gsl.draw.drawing import Drawing, page, pre, saved
from gsl.draw.figure import Box, Diagram, Edge, Figure, Mark, Paint, Panel, Style
from gsl.draw.labels import BESIDE, FAILED, PALETTE, clipped, hide_defaults, hide_nothing, tint, wrapped
from gsl.draw.view import Options, boxes, check_expanded, diagram, region

__all__ = [
    "BESIDE", "FAILED", "PALETTE", "Box", "Diagram", "Drawing", "Edge", "Figure", "Mark", "Options", "Paint", "Panel",
    "Style", "before_after", "boxes", "check_expanded", "clipped", "diagram", "hide_defaults", "hide_nothing", "page",
    "painted", "pre", "region", "saved", "tint", "wrapped",
]  # fmt: skip
