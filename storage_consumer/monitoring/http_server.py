"""The HTTP server of a running program: answers GET and HEAD from a table of routes, in threads of its own.

It is meant for a scraper, for probes and for an operator's browser. Whoever connects can neither slow down nor stop the rounds: there is a
bound on connections, on the size of a request and on the seconds that a silent client is waited for.
"""

from __future__ import annotations

import gzip
import ipaddress
import socket
import threading
import urllib.parse
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from storage_consumer.errors import ConfigError
from storage_consumer.telemetry import Log, lines_escaped, redact

CONNECTIONS = 32
"""Connections that are served at a time. One more closes the oldest, so that clients that hang keep nobody out."""
PATIENCE = 5.0
"""Seconds for which a silent client is waited for."""
TEXT = "text/plain; charset=utf-8"
_LEAST_COMPRESSED = 1024
_GUARDS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_log = Log("monitoring")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a client asks for."""

    path: str
    """Decoded, without the query."""
    query: Mapping[str, str]
    """Parameters; of one that is given several times the last."""
    accept: str = ""
    """The header ``Accept``."""
    below: str = ""
    """What follows the route, if it takes all paths below it: ``shop.orders`` of ``/tables/shop.orders``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """What a client gets."""

    body: bytes
    content_type: str = TEXT
    status: HTTPStatus = HTTPStatus.OK
    headers: Mapping[str, str] = field(default_factory=dict)
    """More headers, or others than the server gives by itself."""


Handler = Callable[[Request], Response]
"""Answers a request. It is called from several threads; what it raises is logged and answered with 500."""


def said(text: str, status: HTTPStatus = HTTPStatus.OK) -> Response:
    """Return a text as a response, secrets blanked."""
    return Response(body=f"{lines_escaped(redact(text))}\n".encode(), status=status)


class HttpServer:
    """Answers until it is closed."""

    def __init__(self, listen: str, routes: Mapping[str, Handler]) -> None:
        """Listen at ``host:port``; port 0 takes a free one. Raise `ConfigError` if that cannot be had.

        A route is a path. One that ends with ``/`` also takes all paths below it, but for ``/`` itself.
        """
        host, port = split_address(listen)
        try:
            family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
            self._server = _Server(family, address, dict(routes))
        except OSError as fault:
            raise ConfigError(_refusal(listen, fault)) from fault
        self._thread = threading.Thread(
            # Looks every so many seconds whether it is to end.
            target=lambda: self._server.serve_forever(poll_interval=0.2),
            name="http-server",
            daemon=True,
        )
        self._thread.start()
        _log.info("listening", address=self.address, paths=sorted(routes))

    @property
    def address(self) -> str:
        """Where it listens, as ``host:port``."""
        host, port = self._server.server_address[:2]
        return joined_address(str(host), int(port))

    def close(self) -> None:
        """Stop listening. Answers that are under way are not waited for."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=PATIENCE)


def split_address(listen: str) -> tuple[str, int]:
    """Return host and port of ``host:port`` or ``[host]:port``."""
    host, _, port = listen.rpartition(":")
    return host.removeprefix("[").removesuffix("]"), int(port)


def joined_address(host: str, port: int) -> str:
    """Return ``host:port``, or ``[host]:port`` where the host is an address with colons."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _refusal(listen: str, fault: OSError) -> str:
    return (
        f"--metrics-listen {listen}: nothing can listen there: {fault.strerror or fault}. Give another address or port"
    )


class _Server(ThreadingHTTPServer):
    """The sockets."""

    daemon_threads = True
    # Else the end of the program would wait for each client.
    block_on_close = False
    # A second server on the port must be refused, and a port that was just left can be had again.
    allow_reuse_address = True
    allow_reuse_port = False
    # Of many that come at once the kernel would else turn most away, and let them try again a second later.
    request_queue_size = 128

    def __init__(self, family: int, address: Any, routes: dict[str, Handler]) -> None:
        self.address_family = family
        self.routes = routes
        self.failing: set[str] = set()
        """Routes whose last answer failed."""
        self._open: OrderedDict[int, socket.socket] = OrderedDict()
        self._lock = threading.Lock()
        super().__init__(address, _Answering)

    def server_bind(self) -> None:
        """Bind the socket. The standard one also looks up the host's name, which may take seconds and is of no use here."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()

    @property
    def is_private(self) -> bool:
        """Whether only this machine can connect."""
        return ipaddress.ip_address(str(self.server_address[0]).partition("%")[0]).is_loopback

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a new thread; close the oldest connection if there are too many."""
        with self._lock:
            self._open[id(request)] = request
            oldest = self._open.popitem(last=False)[1] if len(self._open) > CONNECTIONS else None
        if oldest is not None:
            # Its thread notices, and closes it.
            with suppress(OSError):
                oldest.shutdown(socket.SHUT_RDWR)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection."""
        with self._lock:
            self._open.pop(id(request), None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a client that went away; answers that fail are reported where they are made."""


class _Answering(BaseHTTPRequestHandler):
    """One connection: one request, one answer."""

    server: _Server
    timeout = PATIENCE
    protocol_version = "HTTP/1.1"
    server_version = "storage-consumer"
    sys_version = ""

    def do_GET(self) -> None:
        """Answer a GET."""
        self._answer(self._response())

    def do_HEAD(self) -> None:
        """Answer a HEAD: the headers of the same answer."""
        self._answer(self._response())

    def _response(self) -> Response:
        if self.server.is_private and not _is_local(self.headers.get("Host", "")):
            # A page of another site whose name was made to mean this machine could read everything here.
            return said(
                "this address answers only to names of the machine itself, such as 127.0.0.1 and localhost: "
                "have the proxy send one of them as Host",
                HTTPStatus.MISDIRECTED_REQUEST,
            )
        try:
            address = urllib.parse.urlsplit(self.path)
        except ValueError:
            return said(HTTPStatus.BAD_REQUEST.phrase, HTTPStatus.BAD_REQUEST)
        path = urllib.parse.unquote(address.path)
        route, below = _found(self.server.routes, path)
        if not route:
            return said(f"there is nothing here; see {', '.join(sorted(self.server.routes))}", HTTPStatus.NOT_FOUND)
        request = Request(
            path=path,
            query=dict(urllib.parse.parse_qsl(address.query, keep_blank_values=True)),
            accept=self.headers.get("Accept", ""),
            below=below,
        )
        try:
            response = self.server.routes[route](request)
        except Exception as fault:  # noqa: BLE001 - a fault of a page is none of the program
            # Once, since a scraper asks again in a few seconds.
            if route not in self.server.failing:
                _log.warning("page_failed", path=route, error=f"{type(fault).__name__}: {fault}")
            self.server.failing.add(route)
            return said("this could not be answered; see page_failed in the log", HTTPStatus.INTERNAL_SERVER_ERROR)
        self.server.failing.discard(route)
        return response

    def _answer(self, response: Response) -> None:
        body, headers = response.body, {**_GUARDS, "Content-Type": response.content_type, **response.headers}
        if len(body) >= _LEAST_COMPRESSED and _takes_gzip(self.headers.get("Accept-Encoding", "")):
            # The fastest level: what is sent here repeats itself, so the others gain little.
            body, headers["Content-Encoding"] = gzip.compress(body, compresslevel=1), "gzip"
        # One request for a connection: nobody keeps a thread by doing nothing.
        headers |= {"Content-Length": str(len(body)), "Vary": "Accept, Accept-Encoding", "Connection": "close"}
        self.send_response(response.status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:  # noqa: ARG002
        """Answer a request that is none, or of another method, as a text."""
        self.close_connection = True
        status = HTTPStatus(code)
        if status == HTTPStatus.NOT_IMPLEMENTED:
            status = HTTPStatus.METHOD_NOT_ALLOWED
        # What the client sent is not repeated: it may be anything.
        response = said(status.phrase, status)
        self.send_response(response.status)
        for name, value in {**_GUARDS, "Content-Type": TEXT, "Content-Length": str(len(response.body))}.items():
            self.send_header(name, value)
        if status == HTTPStatus.METHOD_NOT_ALLOWED:
            self.send_header("Allow", "GET, HEAD")
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(response.body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name of the base class
        """Log no request: a scraper sends one every few seconds."""


def _found(routes: Mapping[str, Handler], path: str) -> tuple[str, str]:
    """Return the route for a path, the longest that fits, and what follows it; empty texts if there is none."""
    if path in routes:
        return path, ""
    fitting = [route for route in routes if len(route) > 1 and route.endswith("/") and path.startswith(route)]
    route = max(fitting, key=len, default="")
    return route, path.removeprefix(route) if route else ""


def _is_local(host: str) -> bool:
    """Return whether the header ``Host`` is an address, or the name that every machine has for itself."""
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
    if name in ("", "localhost") or name.endswith(".localhost"):
        return True
    try:
        # Only a name can be made to mean another machine than its owner's.
        ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True


def _takes_gzip(accepted: str) -> bool:
    """Return whether the header ``Accept-Encoding`` names gzip, and not to refuse it."""
    for each in accepted.lower().split(","):
        name, _, quality = each.replace(" ", "").partition(";q=")
        if name == "gzip":
            return quality not in ("0", "0.0", "0.00", "0.000")
    return False
