"""All hooks of a run: what they hear of, and the wait for them at the end."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from time import monotonic

from storage_consumer.alerts.delivery import Delivery
from storage_consumer.alerts.document import About, Document, about_program
from storage_consumer.alerts.halt_watch import HaltWatch
from storage_consumer.clock import Clock
from storage_consumer.config.hooks import Hook
from storage_consumer.config.settings import Config
from storage_consumer.summary import Progress
from storage_consumer.telemetry import listen

LAST_WAIT = 5.0
"""Seconds for which the end of the program waits for deliveries."""
_TEST_WAIT = 120.0
"""Seconds for which a test waits: longer than all attempts of a command."""


@contextmanager
def watched(hooks: Sequence[Hook], about: About, inner: Progress, clock: Clock) -> Iterator[HaltWatch]:
    """Send documents to all hooks inside the block; yield what has to be told of rounds, and to tick."""
    with _open(hooks, clock, LAST_WAIT) as (send, _):
        watch = HaltWatch(inner, send, about, clock)
        # What happens without a hook is not worth listening to.
        remove = listen(watch.heard) if hooks else None
        try:
            yield watch
        finally:
            if remove is not None:
                remove()
            watch.flush()


def tested(hooks: Sequence[Hook], about: About, clock: Clock) -> bool:
    """Send a document to each hook; return whether all of them took it."""
    with _open(hooks, clock, _TEST_WAIT) as (send, deliveries):
        text = "this is a test; nothing happened"
        send(about_program("test", text, about, clock.now(), {}))
    return not any(each.failed for each in deliveries)


@contextmanager
def _open(
    hooks: Sequence[Hook], clock: Clock, last_wait: float
) -> Iterator[tuple[Callable[[Document], None], Sequence[Delivery]]]:
    deliveries = [Delivery(hook, clock) for hook in hooks]

    def send(document: Document) -> None:
        for each in deliveries:
            each.send(document)

    try:
        yield send, deliveries
    finally:
        until = monotonic() + last_wait
        for each in deliveries:
            each.close(until)


def about_this(config: Config, version: str) -> About:
    """Return what documents say of this program."""
    return About(
        version=version,
        host=socket.gethostname(),
        pid=os.getpid(),
        upstream=config.upstream.identity,
        downstream=config.downstream.address,
        state_schema=config.downstream.state_schema,
    )
