"""The garbage collector and interrupts, paused while graphs are built and written."""

from __future__ import annotations

import functools
import gc
import os
import signal
import threading
from collections.abc import Callable
from typing import Any, Final, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

# Both are decorators, and no contexts: an interrupt may come within ``__enter__`` or ``__exit__``, and then what was
# paused would stay so.


def paused_collector(function: Callable[P, T]) -> Callable[P, T]:
    """The function, while which no cyclic garbage is collected.

    A pass makes many objects and hardly any garbage, but by their number the collector would walk all objects of the
    process again and again. Nested uses, and those of several threads, end with a collector that works again.
    """

    @functools.wraps(function)
    def paused(*args: P.args, **kwargs: P.kwargs) -> T:
        is_enabled = gc.isenabled()
        try:
            gc.disable()
            return function(*args, **kwargs)
        finally:
            if is_enabled:
                gc.enable()

    return paused


ENDING: Final = (signal.SIGINT, signal.SIGTERM)
"""The signals that end a process."""


def uninterrupted(function: Callable[P, T]) -> Callable[P, T]:
    """The function, by whose end an interrupt (Ctrl-C) waits, and SIGTERM where something handles it: for what must not
    be left half-way, and for what starts processes, as Python ignores what a handler raises while it copies a process.
    A second signal does not wait, nor does one that comes to such a process.

    Signals reach the main thread only.
    """
    for number in reversed(ENDING):
        function = _waits(number, function)
    return function


def starting(function: Callable[P, T]) -> Callable[P, T]:
    """The function, which starts processes: uninterrupted, and what is to end such a process waits until that calls
    :func:`let_end`, as Python forgets a signal that comes to a copy of a process before it runs."""

    @functools.wraps(function)
    def blocked(*args: P.args, **kwargs: P.kwargs) -> T:
        before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
        try:
            return function(*args, **kwargs)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    return uninterrupted(blocked if hasattr(signal, "pthread_sigmask") else function)


def let_end() -> None:
    """Let signals end this process, which a function that is :func:`starting` has started."""
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)


def _waits(number: signal.Signals, function: Callable[P, T]) -> Callable[P, T]:
    """The function, by whose end a signal waits."""

    @functools.wraps(function)
    def whole(*args: P.args, **kwargs: P.kwargs) -> T:
        handler = signal.getsignal(number)
        if threading.current_thread() is not threading.main_thread() or not callable(handler):
            return function(*args, **kwargs)
        waiting: list[tuple[Any, ...]] = []
        process = os.getpid()

        def wait(*call: Any) -> None:
            if waiting or os.getpid() != process:
                handler(*call)
            waiting.append(call)

        try:
            signal.signal(number, wait)
            return function(*args, **kwargs)
        finally:
            signal.signal(number, handler)
            if waiting:
                handler(*waiting[0])

    return whole


__all__ = ["let_end", "paused_collector", "starting", "uninterrupted"]
