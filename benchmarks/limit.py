"""A limit on the time that a part of a benchmark takes."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Late(BaseException):
    """The time is over. No handler of errors takes it for one."""


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """A context that raises Late after so many seconds; in the main thread only."""

    def stop(*_: Any) -> None:
        raise Late(f"takes longer than {seconds:g} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
