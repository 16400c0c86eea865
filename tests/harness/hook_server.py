"""A web server on loopback that takes documents, as a chat or a pager would."""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import Any

from tests.harness.certificates import Signed


@dataclass(slots=True)
class HookServer:
    """What it got, and what it answers."""

    port: int = 0
    scheme: str = "http"
    got: list[dict[str, Any]] = field(default_factory=list)
    """The documents of all requests, those that it refused included."""
    paths: list[str] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    answers: list[int] = field(default_factory=list)
    """Codes of the next answers; 204 after them."""
    silent: Event | None = None
    """If given, no answer comes before it is set."""

    def address(self, path: str = "/hook", userinfo: str = "") -> str:
        """Where it is."""
        return f"{self.scheme}://{userinfo}127.0.0.1:{self.port}{path}"


@contextmanager
def hook_server(signed: Signed | None = None) -> Iterator[HookServer]:
    """The server, while the context is open; with a certificate it speaks TLS."""
    state = HookServer()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers["Content-Length"]))
            state.got.append(json.loads(content))
            state.paths.append(self.path)
            state.headers.append(dict(self.headers))
            if state.silent is not None:
                state.silent.wait(60)
            code = state.answers.pop(0) if state.answers else 204
            self.send_response(code)
            if 300 <= code < 400:
                self.send_header("Location", f"http://127.0.0.1:{state.port}/elsewhere")
            text = b"" if code == 204 else b"no such\n channel"
            if text:
                self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def do_GET(self) -> None:
            state.paths.append(f"GET {self.path}")
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the interface
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.port = server.server_port
    if signed is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(signed.certificate, signed.key)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        state.scheme = "https"
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield state
    finally:
        if state.silent is not None:
            state.silent.set()
        server.shutdown()
        server.server_close()
        thread.join()
