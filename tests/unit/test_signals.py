"""Signals: the first finishes, the second abandons, the third has its usual effect."""

from __future__ import annotations

import logging
import os
import signal
import threading

import pytest

from storage_consumer.clock import Stop

PATIENCE = 5.0


def _send(number: signal.Signals) -> None:
    os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_first_signal_requests_the_end(number: signal.Signals, caplog: pytest.LogCaptureFixture) -> None:
    """After one signal the end is requested, nothing is abandoned, and one line says so."""
    caplog.set_level(logging.INFO, logger="storage_consumer")
    with Stop() as stop:
        _send(number)
        assert stop.requested.wait(PATIENCE)
        assert not stop.abandoned.is_set()
    assert [record.getMessage() for record in caplog.records] == [f"stop_requested reason={number.name}"]


def test_the_second_signal_abandons() -> None:
    """After two signals the callbacks have been called, also one that comes too late and after one that fails."""
    called: list[str] = []
    done = threading.Event()

    def fail() -> None:
        raise RuntimeError

    with Stop() as stop:
        stop.on_abandon(fail)
        stop.on_abandon(lambda: called.append("early"))
        stop.on_abandon(done.set)
        _send(signal.SIGINT)
        assert stop.requested.wait(PATIENCE)
        _send(signal.SIGTERM)
        assert done.wait(PATIENCE)
        stop.on_abandon(lambda: called.append("late"))
    assert called == ["early", "late"]
    assert stop.abandoned.is_set()


def test_after_the_second_signal_the_third_has_its_usual_effect() -> None:
    """The handlers are out of the way for a third signal."""
    with Stop() as stop:
        _send(signal.SIGTERM)
        _send(signal.SIGTERM)
        assert stop.abandoned.wait(PATIENCE)
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_handlers_are_given_back() -> None:
    """After the end the process has the handlers it had before."""
    before = (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT))
    with Stop():
        assert signal.getsignal(signal.SIGINT) is not before[1]
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before


def test_handlers_can_be_taken_back() -> None:
    """A library that takes SIGINT for itself in between loses it to a second `install`, and `restore` knows the first."""
    before = signal.getsignal(signal.SIGINT)
    with Stop() as stop:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        stop.install()
        _send(signal.SIGINT)
        assert stop.requested.wait(PATIENCE)
    assert signal.getsignal(signal.SIGINT) == before


def test_a_program_can_stop_itself() -> None:
    """Without any signal, `request` and `abandon` do the same, any number of times."""
    stop = Stop()
    calls: list[int] = []
    stop.on_abandon(lambda: calls.append(1))
    stop.request()
    assert (stop.requested.is_set(), stop.abandoned.is_set()) == (True, False)
    stop.abandon()
    stop.abandon()
    assert calls == [1]


def test_a_signal_wakes_a_waiting_main_thread() -> None:
    """The main thread's wait for the next round ends with the signal, not with the interval."""
    with Stop() as stop:
        timer = threading.Timer(0.05, _send, (signal.SIGTERM,))
        timer.start()
        assert stop.requested.wait(60)
        timer.join()
