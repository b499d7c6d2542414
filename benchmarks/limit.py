"""A limit on the processor time that a part of a benchmark takes, which other work on the machine does not change."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Late(BaseException):
    """The time is over. No handler of errors takes it for one."""


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """A context that raises Late after so many seconds of this process at work; in the main thread only."""

    def stop(*_: Any) -> None:
        raise Late(f"takes longer than {seconds:g} s of a processor")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
