"""A proxy before a real S3 server that spoils some of its answers."""

from __future__ import annotations

import re
import socketserver
import ssl
import threading
import time
from collections.abc import Collection, Mapping
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler
from types import MappingProxyType, TracebackType
from typing import Any, Self
from urllib.parse import unquote, urlsplit

ERRORS = {
    "503": (503, "SlowDown", "Please reduce your request rate."),
    "500": (500, "InternalError", "We encountered an internal error. Please try again."),
    "expired": (400, "ExpiredToken", "The provided token has expired."),
    "archived": (403, "InvalidObjectState", "The operation is not valid for the object's storage class"),
    "blob archived": (409, "BlobArchived", "This operation is not permitted on an archived blob."),
    "denied": (403, "AccessDenied", "Access Denied"),
    "moved": (301, "PermanentRedirect", "The bucket must be addressed by another endpoint."),
    "skewed": (
        403,
        "RequestTimeTooSkewed",
        "The difference between the request time and the current time is too large.",
    ),
}
"""Fault → status, code and text of the answer, as S3 gives them."""
_METADATA = r"/metadata$"
PLACES = {"metadata": _METADATA, "listing": r"list-type=2", "schema files": r"/schema_", "data files": r"/CDC"}
"""What is asked for → how such a request looks."""
_PAGE = b"<html><body>Please sign in.</body></html>"
_DROP, _BETWEEN = 200, 0.05
"""Bytes, and seconds."""
_ENTRY = re.compile(
    rb"<Contents>.*?<Key>(.*?)</Key>.*?</Contents>|<CommonPrefixes>.*?<Prefix>(.*?)</Prefix>.*?</CommonPrefixes>",
    re.DOTALL,
)


class FaultyProxy:
    """Passes requests on to `behind`; while `faults` is above 0 it spoils an answer and counts down.

    Faults beside those of `ERRORS`: ``cut``, an answer that breaks off in its middle; ``stall``, one that stops there and goes
    on no more; ``short``, its first rows as if they were all; ``page``, a page for people in its place; ``drip``, one that comes drop by
    drop; ``moved``, that the bucket is in another region; ``silent``, none; ``stale``, a listing that shows nothing but what is `known`, and ``metadata`` as it was then.
    """

    def __init__(self, behind: str, fault: str = "503", tls: ssl.SSLContext | None = None) -> None:
        """`behind`: the server's URL. `tls`: with a certificate, where the proxy is to be asked by https."""
        self.fault = fault
        self.faults = 0
        self.only = ""
        self.known: Mapping[str, bytes] = {}
        self.healed = threading.Event()
        self._lock = threading.Lock()
        handler = type("Handler", (_Handler,), {"proxy": self, "behind": urlsplit(behind).netloc})
        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.endpoint = f"http{'s' if tls else ''}://127.0.0.1:{self._server.server_address[1]}"

    def spoil(
        self, fault: str, only: str = "", faults: int = 1_000_000, known: Mapping[str, bytes] = MappingProxyType({})
    ) -> None:
        """Spoil so many answers to requests that look like `only`; `known`: the objects that a stale store has."""
        self.fault, self.only, self.known = fault, only, known
        self.healed.clear()
        self.faults = faults

    def heal(self) -> int:
        """Spoil no more; how many answers could still have been."""
        left, self.faults = self.faults, 0
        self.healed.set()
        return left

    def spoils(self, path: str) -> bool:
        """Whether the next answer is to be spoiled."""
        with self._lock:
            spoiled = self.faults > 0 and re.search(self.only, path) is not None
            self.faults -= spoiled
        return spoiled

    def __enter__(self) -> Self:
        """Serve."""
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Serve no more."""
        self.healed.set()
        self._server.shutdown()
        self._server.server_close()


def without_new(listing: bytes, known: Collection[str]) -> bytes:
    """A listing in which only known keys, and folders of known keys, are left."""

    def kept(entry: re.Match[bytes]) -> bytes:
        key, prefix = (unquote(one.decode()) for one in (entry[1] or b"", entry[2] or b""))
        there = key in known if key else any(one.startswith(prefix) for one in known)
        return entry[0] if there else b""

    return _ENTRY.sub(kept, listing)


class _Handler(BaseHTTPRequestHandler):
    """One connection."""

    proxy: FaultyProxy
    behind: str
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Pass on or spoil."""
        fault = self.proxy.fault if self.proxy.spoils(self.path) else ""
        if fault in ERRORS:
            status, code, text = ERRORS[fault]
            body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{text}</Message></Error>".encode()
            self._answer(status, [("Content-Type", "application/xml")], body)
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
        if fault == "silent":
            self._wait()
            return
        if fault in ("short", "page"):
            headers = [one for one in headers if not one[0].lower().startswith("x-amz-checksum")]
            body = body[: body.rfind(b"\n", 0, len(body) // 2) + 1] if fault == "short" else _PAGE
        if fault == "page":
            headers = [("Content-Type", "text/html")]
        if fault == "stale":
            known = self.proxy.known
            headers = [one for one in headers if not one[0].lower().startswith("x-amz-checksum")]
            body = known["metadata"] if re.search(_METADATA, self.path) else without_new(body, known)
        self._answer(answer.status, headers, body, fault=fault)

    def do_HEAD(self) -> None:
        """Likewise."""
        self.do_GET()

    def _answer(self, status: int, headers: list[tuple[str, str]], body: bytes, *, fault: str = "") -> None:
        self.send_response_only(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if fault in ("cut", "stall"):
            self.wfile.write(body[: len(body) // 2])
            if fault == "stall":
                self._wait()
            self.close_connection = True
        elif fault == "drip":
            for place in range(0, len(body), _DROP):
                self.wfile.write(body[place : place + _DROP])
                self.wfile.flush()
                time.sleep(_BETWEEN)
        elif self.command != "HEAD":
            self.wfile.write(body)

    def _wait(self) -> None:
        """Say nothing more until all is well again; then this connection ends."""
        self.wfile.flush()
        self.proxy.healed.wait()
        self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Say nothing."""
