"""The garbage collector, paused while graphs are built and rewritten."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def paused_collector() -> Iterator[None]:
    """Collect no cyclic garbage meanwhile.

    A pass makes many objects and hardly any garbage, but by their number the collector would walk all objects of the
    process again and again. Nested uses, and those of several threads, end with a collector that works again.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
