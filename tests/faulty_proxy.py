"""A proxy before a real HTTP server that spoils some of its answers."""

from __future__ import annotations

import socketserver
import threading
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

SLOW_DOWN = (
    b"<?xml version='1.0'?><Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"
)


class FaultyProxy:
    """Passes requests on to `behind`; while `faults` is above 0 it spoils an answer and counts down."""

    def __init__(self, behind: str, fault: str) -> None:
        """`behind`: the server's URL; `fault`: ``503``, or ``cut`` for an answer that breaks off in its middle."""
        self.faults = 0
        self._lock = threading.Lock()
        handler = type("Handler", (_Handler,), {"proxy": self, "behind": urlsplit(behind).netloc, "fault": fault})
        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self.endpoint = f"http://127.0.0.1:{self._server.server_address[1]}"

    def spoils(self) -> bool:
        """Whether the next answer is to be spoiled."""
        with self._lock:
            spoiled = self.faults > 0
            self.faults -= spoiled
        return spoiled

    def __enter__(self) -> Self:
        """Serve."""
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Serve no more."""
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    """One connection."""

    proxy: FaultyProxy
    behind: str
    fault: str
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Pass on or spoil."""
        spoiled = self.proxy.spoils()
        if spoiled and self.fault == "503":
            self._answer(503, [("Content-Type", "application/xml")], SLOW_DOWN)
            return
        upstream = HTTPConnection(self.behind, timeout=30)
        upstream.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            upstream.putheader(name, value)
        upstream.endheaders()
        answer = upstream.getresponse()
        body = answer.read()
        upstream.close()
        headers = [h for h in answer.getheaders() if h[0].lower() not in ("content-length", "transfer-encoding")]
        self._answer(answer.status, headers, body, cut=spoiled)

    def do_HEAD(self) -> None:
        """Likewise."""
        self.do_GET()

    def _answer(self, status: int, headers: list[tuple[str, str]], body: bytes, *, cut: bool = False) -> None:
        self.send_response_only(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if cut:
            self.wfile.write(body[: len(body) // 2])
            self.close_connection = True
        elif self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Say nothing."""
