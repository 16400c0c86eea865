"""A web server on loopback that takes documents, as a chat or a pager would, and the command that posts them there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any


@dataclass(slots=True)
class HookServer:
    """What it got, and what it answers."""

    port: int = 0
    got: list[dict[str, Any]] = field(default_factory=list)
    """The documents of all requests, those that it refused included."""
    answers: list[int] = field(default_factory=list)
    """Codes of the next answers; 204 after them."""

    def command(self, path: str = "/hook") -> str:
        """What ``--on-halt`` takes: the line of docs/operations/monitoring.md."""
        return f"curl -fsS -m 20 -H 'Content-Type: application/json' -d @- http://127.0.0.1:{self.port}{path}"


@contextmanager
def hook_server() -> Iterator[HookServer]:
    """The server, while the context is open."""
    state = HookServer()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.headers["Content-Type"] == "application/json"
            state.got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(state.answers.pop(0) if state.answers else 204)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the interface
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.port = server.server_port
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
