"""Diagrams with frames, in the making: each box is put into its frames."""

from __future__ import annotations

from dataclasses import replace

from gsl.draw.drawing import Box, BoxKey, Diagram, Edge

Chain = tuple[BoxKey, ...]
"""The frames around a box from the outermost one, and the box."""


class Nest:
    """A diagram in the making."""

    def __init__(self) -> None:
        self.boxes: dict[BoxKey | None, list[Box]] = {None: []}
        self.edges: dict[Edge, None] = {}

    def box(self, frames: Chain, box: Box, *, is_frame: bool = False) -> None:
        """Put a box into frames that are there already. A frame has the others that follow inside."""
        self.boxes[frames[-1] if frames else None].append(box)
        if is_frame:
            self.boxes[box.key] = []

    def edge(self, above: Chain, below: Chain, look: Edge | None = None) -> None:
        """Draw an edge from one box to another. Equal edges are one."""
        self.edges.setdefault(replace(look or Edge("", ""), tail=above[-1], head=below[-1]))

    def diagram(self) -> Diagram:
        """The diagram. A frame with nothing in it is a box."""
        return Diagram(self._inside(None), tuple(self.edges))

    def _inside(self, frame: BoxKey | None) -> tuple[Box, ...]:
        return tuple([
            replace(box, inside=self._inside(box.key)) if box.key in self.boxes else box for box in self.boxes[frame]
        ])  # fmt: skip
