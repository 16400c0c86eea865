"""The status page of a real state, served as the program serves it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from storage_consumer.clock import SystemClock
from storage_consumer.config.settings import Downstream
from storage_consumer.operating.state_questions import status_site
from storage_consumer.watch.http_server import HttpServer
from storage_consumer.watch.recorder import Recorder


@contextmanager
def served(port: int, recorder: Recorder | None = None) -> Iterator[str]:
    """The address of the status page of the state behind a port."""
    clock = SystemClock()
    recorder = recorder or Recorder(clock, "1")
    server = HttpServer("127.0.0.1:0", status_site(Downstream(port=port), "", recorder, clock).routes())
    try:
        yield f"http://{server.address}"
    finally:
        server.close()
