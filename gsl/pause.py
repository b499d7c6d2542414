"""The garbage collector, paused while graphs are built and rewritten."""

from __future__ import annotations

import gc
from contextlib import ContextDecorator


class paused_collector(ContextDecorator):
    """Collect no cyclic garbage meanwhile.

    A pass makes many objects and hardly any garbage, but by their number the collector would walk all objects of the
    process again and again. Nested uses, and those of several threads, end with a collector that works again.
    """

    def _recreate_cm(self) -> paused_collector:
        return paused_collector()  # each call of a decorated function has a state of its own

    def __enter__(self) -> None:
        self._enabled = gc.isenabled()
        gc.disable()

    def __exit__(self, *_: object) -> None:
        if self._enabled:
            gc.enable()
