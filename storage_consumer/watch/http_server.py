"""The HTTP server: answers GET and HEAD by a table of routes, as WSGI served by waitress.

It is meant for a scraper, for probes and for an operator's browser. Whoever connects can neither
slow down nor stop the rounds: waitress bounds threads, connections, the size of a request, and the
seconds that a silent client is waited for.
"""

from __future__ import annotations

import gzip
import ipaddress
import logging
import math
import socket
import threading
import urllib.parse
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from waitress import wasyncore
from waitress.server import create_server

from storage_consumer.errors import ConfigError
from storage_consumer.telemetry import Log, lines_escaped, redact

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIEnvironment

CONNECTIONS = 500
"""Connections that are open at a time; one more has to wait. They cost no thread while nothing is
asked.
"""
THREADS = 32
"""Answers at a time. A page may wait some seconds for the target, and a probe must not wait for
viewers of such pages.
"""
PATIENCE = 5
"""Seconds for which a silent client is waited for."""
_LAST_WAIT = 1.0
"""Seconds for which the end waits for answers."""
TEXT = "text/plain; charset=utf-8"
_LEAST_COMPRESSED = 1024
_GUARDS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "Vary": "Accept, Accept-Encoding",
    "X-Content-Type-Options": "nosniff",
}
_log = Log("monitoring")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a client asks for."""

    query: Mapping[str, str]
    """Parameters; of one that is given several times the last."""
    accept: str = ""
    """The header ``Accept``."""
    below: str = ""
    """What follows the route, if it takes all paths below it: ``shop.orders`` of
    ``/tables/shop.orders``.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """What a client gets."""

    body: bytes
    content_type: str = TEXT
    status: HTTPStatus = HTTPStatus.OK
    headers: Mapping[str, str] = field(default_factory=dict)
    """More headers, or others than the server gives by itself."""


Handler = Callable[[Request], Response]
"""Answers a request. It is called from several threads; what it raises is logged and answered with
500.
"""


def said(text: str, status: HTTPStatus = HTTPStatus.OK) -> Response:
    """Return a text as a response, secrets blanked."""
    return Response(body=f"{lines_escaped(redact(text))}\n".encode(), status=status)


class HttpServer:
    """Answers until it is closed."""

    def __init__(self, listen: str, routes: Mapping[str, Handler]) -> None:
        """Listen at ``host:port``, port 0 on a free one; raise `ConfigError` if it cannot be had.

        A route is a path. One that ends with ``/`` also takes all paths below it, but for ``/``
        itself.
        """
        # Whoever connects could else have it write lines: of requests that wait for a thread, and
        # of addresses that are none.
        logging.getLogger("waitress").setLevel(logging.CRITICAL)
        host, port = split_address(listen)
        try:
            family, *_, address = socket.getaddrinfo(
                host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            listener = socket.create_server(address, family=family)
        except OSError as fault:
            why = str(fault.strerror or fault).partition(" (while")[0]
            raise ConfigError(
                f"--metrics-listen {listen}: nothing can listen there: {why}. Give an address "
                "and port of this machine that are free: each process, also one that stands by, needs its own"
            ) from fault
        host, port = listener.getsockname()[:2]
        self.address = joined_address(host, port)
        """Where it listens, as ``host:port``."""
        self._routes = dict(routes)
        self._failing: set[str] = set()
        """Routes whose last answer failed."""
        # Only this machine can connect.
        self._is_private = ipaddress.ip_address(host.partition("%")[0]).is_loopback
        self._sockets: dict[int, Any] = {}
        self._server = create_server(
            self._application,
            map=self._sockets,
            sockets=[listener],
            threads=THREADS,
            connection_limit=CONNECTIONS,
            channel_timeout=PATIENCE,
            cleanup_interval=1,
            max_request_header_size=65_536,
            max_request_body_size=65_536,
            asyncore_use_poll=True,
            ident="storage-consumer",
        )
        self._thread = threading.Thread(target=self._server.run, name="http-server", daemon=True)
        self._thread.start()
        _log.info("listening", address=self.address, paths=sorted(routes))

    def close(self) -> None:
        """Stop listening. Answers that take long are not waited for."""
        left = list[Any]()

        def end() -> None:
            left.extend(self._sockets.values())
            self._sockets.clear()

        # The thread that serves ends once it has no sockets, and only then another one may touch
        # them.
        self._server.trigger.pull_trigger(end)
        self._thread.join(timeout=PATIENCE)
        self._server.task_dispatcher.shutdown(timeout=_LAST_WAIT)
        for each in left:
            if each not in (self._server, self._server.trigger):
                each.handle_close()
        wasyncore.dispatcher.close(self._server)
        # Whoever still answers writes to the trigger in the end, and its number might be another
        # file's by then.
        if self._server.task_dispatcher.threads:
            threading.Thread(
                target=self._close_trigger, name="http-server-end", daemon=True
            ).start()
        else:
            self._close_trigger()

    def _close_trigger(self) -> None:
        self._server.task_dispatcher.shutdown(timeout=math.inf)
        self._server.trigger.close()

    def _application(
        self, environ: WSGIEnvironment, start_response: StartResponse
    ) -> Iterable[bytes]:
        method, headers = environ["REQUEST_METHOD"], dict(_GUARDS)
        if method in {"GET", "HEAD"}:
            response = self._response(environ)
        else:
            response, headers["Allow"] = (
                said("Method Not Allowed", HTTPStatus.METHOD_NOT_ALLOWED),
                "GET, HEAD",
            )
        body = response.body
        if len(body) >= _LEAST_COMPRESSED and _takes_gzip(environ.get("HTTP_ACCEPT_ENCODING", "")):
            # The fastest level: what is sent here repeats itself, so the others gain little.
            body, headers["Content-Encoding"] = gzip.compress(body, compresslevel=1), "gzip"
        headers |= {
            "Content-Type": response.content_type,
            "Content-Length": str(len(body)),
            **response.headers,
        }
        start_response(f"{response.status} {response.status.phrase}", list(headers.items()))
        return [body] if method == "GET" else [b""]

    def _response(self, environ: WSGIEnvironment) -> Response:
        if self._is_private and not _is_local(environ.get("HTTP_HOST", "")):
            # A page of another site whose name was made to mean this machine could read everything
            # here.
            return said(
                "this address answers only to names of the machine itself, such as 127.0.0.1 and localhost: "
                "have the proxy send one of them as Host",
                HTTPStatus.MISDIRECTED_REQUEST,
            )
        # WSGI gives the bytes of a path as Latin-1.
        path = environ["PATH_INFO"].encode("latin-1").decode(errors="replace")
        fitting = (
            each
            for each in self._routes
            if len(each) > 1 and each.endswith("/") and path.startswith(each)
        )
        route = path if path in self._routes else max(fitting, key=len, default="")
        if not route:
            return said(
                f"there is nothing here; see {', '.join(sorted(self._routes))}",
                HTTPStatus.NOT_FOUND,
            )
        query = dict(urllib.parse.parse_qsl(environ["QUERY_STRING"], keep_blank_values=True))
        request = Request(
            query=query, accept=environ.get("HTTP_ACCEPT", ""), below=path.removeprefix(route)
        )
        try:
            response = self._routes[route](request)
        except Exception as fault:  # noqa: BLE001 - a fault of a page is none of the program
            # Once, since a scraper asks again in a few seconds.
            if route not in self._failing:
                _log.warning("page_failed", path=route, error=f"{type(fault).__name__}: {fault}")
            self._failing.add(route)
            return said(
                "this could not be answered; see page_failed in the log",
                HTTPStatus.INTERNAL_SERVER_ERROR,
            )
        self._failing.discard(route)
        return response


def split_address(listen: str) -> tuple[str, int]:
    """Return host and port of ``host:port`` or ``[host]:port``."""
    host, _, port = listen.rpartition(":")
    return host.removeprefix("[").removesuffix("]"), int(port)


def joined_address(host: str, port: int) -> str:
    """Return ``host:port``, or ``[host]:port`` where the host is an address with colons."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _takes_gzip(accepted: str) -> bool:
    """Return whether the header ``Accept-Encoding`` names gzip, and not to refuse it."""
    for each in accepted.lower().split(","):
        name, _, quality = each.replace(" ", "").partition(";q=")
        if name == "gzip":
            return quality not in ("0", "0.0", "0.00", "0.000")
    return False


def _is_local(host: str) -> bool:
    """Return whether header ``Host`` is an address, or every machine's name for itself."""
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
    if name in ("", "localhost") or name.endswith(".localhost"):
        return True
    try:
        # Only a name can be made to mean another machine than its owner's.
        ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True
