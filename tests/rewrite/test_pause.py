"""The collector and interrupts, paused: they work again whatever happens, and whenever an interrupt comes."""

from __future__ import annotations

import gc
import signal
import threading
from typing import Any

import pytest

from gsl import pause
from gsl.pause import paused_collector, uninterrupted
from tests.helpers.interrupts import default_handler, interrupted  # noqa: F401

pytestmark = pytest.mark.usefixtures("default_handler")


def test_the_collector_works_again_whatever_happens() -> None:
    @paused_collector
    def nothing() -> None:
        assert not gc.isenabled()

    @paused_collector
    def fail() -> None:
        nothing()
        assert not gc.isenabled()
        raise KeyError

    assert gc.isenabled()
    with pytest.raises(KeyError):
        fail()
    assert gc.isenabled()
    gc.disable()
    try:
        nothing()
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_an_interrupt_may_come_anywhere() -> None:
    @uninterrupted
    @paused_collector
    def nothing() -> None:
        pass

    place = 1
    while len(interrupted(nothing, pause.__file__, place, ("call", "line", "return"))) >= place:
        assert gc.isenabled()
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        place += 1
    assert place > 10


def test_an_interrupt_waits_for_the_end_and_a_second_one_does_not() -> None:
    done: list[int] = []

    @uninterrupted
    def work(interrupts: int) -> None:
        uninterrupted(signal.raise_signal)(signal.SIGINT)
        done.append(1)
        if interrupts == 2:
            signal.raise_signal(signal.SIGINT)
        done.append(2)

    with pytest.raises(KeyboardInterrupt):
        work(1)
    assert done == [1, 2]
    with pytest.raises(KeyboardInterrupt):
        work(2)
    assert done == [1, 2, 1]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_signal_that_ends_the_process_waits_where_it_is_handled() -> None:
    done: list[int] = []

    def end(*_: Any) -> None:
        raise SystemExit(143)

    @uninterrupted
    def work() -> None:
        signal.raise_signal(signal.SIGTERM)
        done.append(1)

    before = signal.signal(signal.SIGTERM, end)
    try:
        with pytest.raises(SystemExit):
            work()
        assert (done, signal.getsignal(signal.SIGTERM)) == ([1], end)
    finally:
        signal.signal(signal.SIGTERM, before)


def test_other_threads_and_other_handlers_are_left_alone() -> None:
    handlers: list[Any] = []
    ask = uninterrupted(lambda: handlers.append(signal.getsignal(signal.SIGINT)))
    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ask()
    assert handlers == [signal.default_int_handler, signal.SIG_IGN]
