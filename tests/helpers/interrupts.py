"""Interrupts (Ctrl-C) at chosen places."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from types import FrameType
from typing import Any

import pytest

Place = tuple[str, int]
"""A line of a file."""


@pytest.fixture
def default_handler() -> Iterator[None]:
    """Interrupts raise KeyboardInterrupt, also where the tests run in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupted(
    work: Callable[[], object], path: str, number: int | None = None, events: Collection[str] = ("line",)
) -> list[Place]:
    """Run something, which is interrupted at the place of that number among those it passes in files whose paths begin
    so; these places."""
    passed: list[Place] = []

    def trace(frame: FrameType, event: str, arg: object) -> Any:
        if not frame.f_code.co_filename.startswith(path):
            return None
        if event in events:
            passed.append((frame.f_code.co_filename, frame.f_lineno))
            if len(passed) == number:
                signal.raise_signal(signal.SIGINT)
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        with suppress(KeyboardInterrupt):
            work()
    finally:
        sys.settrace(before)
    return passed
