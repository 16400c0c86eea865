"""The HTTP server: routes, what it refuses, and that nobody who connects can keep others out."""

from __future__ import annotations

import gzip
import http.client
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest

from storage_consumer.errors import ConfigError
from storage_consumer.telemetry import forget_secrets, listen, register_secret
from storage_consumer.watch import http_server
from storage_consumer.watch.http_server import HttpServer, Request, Response, joined_address, said, split_address
from tests.harness.waiting import wait_until


def _tables(request: Request) -> Response:
    return said(f"below={request.below} q={request.query.get('q', '')} accept={request.accept}")


def _broken(_request: Request) -> Response:
    raise ZeroDivisionError


_ROUTES = {
    "/": lambda _request: said("root"),
    "/long": lambda _request: said("x" * 5000),
    "/tables/": _tables,
    "/broken": _broken,
}


@pytest.fixture
def server() -> Iterator[HttpServer]:
    """A server at a free port."""
    started = HttpServer("127.0.0.1:0", _ROUTES)
    yield started
    started.close()


@contextmanager
def _asked(
    server: HttpServer, path: str, *, method: str = "GET", headers: dict[str, str] | None = None
) -> Iterator[http.client.HTTPResponse]:
    host, port = split_address(server.address)
    connection = http.client.HTTPConnection(host, port, timeout=10)
    try:
        connection.request(method, path, headers=headers or {})
        yield connection.getresponse()
    finally:
        connection.close()


def _text(server: HttpServer, path: str, **more: dict[str, str]) -> tuple[int, str]:
    with _asked(server, path, **more) as response:  # type: ignore[arg-type]  # only headers are given
        return response.status, response.read().decode()


def test_a_route_is_a_path_or_everything_below_it(server: HttpServer) -> None:
    """`/` answers for itself alone, `/tables/` for all below it, decoded; the rest is 404 and names what there is."""
    assert _text(server, "/") == (200, "root\n")
    assert _text(server, "/tables/shop.a%20b?q=1", headers={"Accept": "text/html"}) == (
        200,
        "below=shop.a b q=1 accept=text/html\n",
    )
    status, text = _text(server, "/etc/passwd")
    assert status == 404
    assert "/broken, /long, /tables/" in text


def test_every_answer_says_that_it_is_not_to_be_kept_framed_or_guessed_at(server: HttpServer) -> None:
    """The headers that keep a browser from doing more than show the text are on answers and on refusals."""
    for method, path in (("GET", "/"), ("GET", "/none"), ("POST", "/")):
        with _asked(server, path, method=method) as response:
            assert response.headers["X-Content-Type-Options"] == "nosniff"
            assert response.headers["Cache-Control"] == "no-store"
            assert "default-src 'none'" in response.headers["Content-Security-Policy"]
            assert response.headers["Server"].strip() == "storage-consumer"
            assert response.headers["Content-Type"].startswith("text/plain")


def test_only_get_and_head_are_answered(server: HttpServer) -> None:
    """HEAD gets the headers of GET and no body; any other method gets 405 with the two names."""
    with _asked(server, "/long", method="HEAD") as response:
        assert (response.status, response.headers["Content-Length"], response.read()) == (200, "5001", b"")
    for method in ("POST", "PUT", "DELETE", "TRACE", "OPTIONS"):
        with _asked(server, "/", method=method) as response:
            assert (response.status, response.headers["Allow"]) == (405, "GET, HEAD")


def test_a_long_answer_is_compressed_for_who_can_read_that(server: HttpServer) -> None:
    """With `Accept-Encoding: gzip` it is; with `gzip;q=0`, or for a short answer, it is not."""
    with _asked(server, "/long", headers={"Accept-Encoding": "br, gzip"}) as response:
        assert response.headers["Content-Encoding"] == "gzip"
        assert gzip.decompress(response.read()) == b"x" * 5000 + b"\n"
    with _asked(server, "/long", headers={"Accept-Encoding": "gzip;q=0"}) as response:
        assert response.headers["Content-Encoding"] is None
    with _asked(server, "/", headers={"Accept-Encoding": "gzip"}) as response:
        assert response.headers["Content-Encoding"] is None


def test_a_page_that_fails_is_logged_once_and_answered_with_500(server: HttpServer) -> None:
    """The client learns nothing of the fault; the log gets it once, however often it is asked for."""
    heard: list[tuple[str, object]] = []
    stop = listen(lambda event, _level, fields: heard.append((event, fields.get("error"))))
    for _ in range(3):
        status, text = _text(server, "/broken")
        assert (status, "ZeroDivision" in text) == (500, False)
    stop()
    assert heard == [("page_failed", "ZeroDivisionError: ")]


def test_secrets_are_blanked_in_texts() -> None:
    """A registered secret does not leave by a page."""
    register_secret("hunter2secret")
    try:
        assert b"hunter2secret" not in said("it is hunter2secret").body
    finally:
        forget_secrets()


@pytest.mark.parametrize("host", ["evil.example.com", "evil.example.com:9464", "[::zz]:1"])
def test_a_foreign_name_for_this_machine_is_refused(server: HttpServer, host: str) -> None:
    """On loopback only names of the machine itself are answered, so that no site can have a browser read the pages for it."""
    assert _text(server, "/", headers={"Host": host})[0] == 421


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost:1234", "[::1]:9464", "10.0.0.7"])
def test_own_names_and_addresses_are_answered(server: HttpServer, host: str) -> None:
    """Addresses cannot be made to mean another machine, and localhost is always this one."""
    assert _text(server, "/", headers={"Host": host})[0] == 200


def test_silent_clients_keep_nobody_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """With more connections open that say nothing than there may be, the next request is answered once these are closed, after a few seconds."""
    monkeypatch.setattr(http_server, "CONNECTIONS", 20)
    monkeypatch.setattr(http_server, "PATIENCE", 1)
    server = HttpServer("127.0.0.1:0", _ROUTES)
    silent = [socket.create_connection(split_address(server.address), timeout=10) for _ in range(30)]
    try:
        silent[0].sendall(b"GET / HTTP/1.1\r\nHost: loc")
        assert _text(server, "/")[0] == 200
        assert silent[0].recv(100) == b""
    finally:
        for each in silent:
            each.close()
        server.close()


def test_silent_clients_cost_no_thread(server: HttpServer) -> None:
    """Many connections that say nothing slow nobody down, and the next request is answered at once."""
    silent = [socket.create_connection(split_address(server.address)) for _ in range(100)]
    began = time.monotonic()
    try:
        assert _text(server, "/")[0] == 200
        assert time.monotonic() - began < http_server.PATIENCE
    finally:
        for each in silent:
            each.close()


def test_pages_that_wait_keep_no_probe_waiting() -> None:
    """A page may wait for seconds while the target does not answer; viewers of such pages do not end the pod by that."""
    go_on = threading.Event()

    def waiting(_request: Request) -> Response:
        go_on.wait(10)
        return said("late")

    server = HttpServer("127.0.0.1:0", {**_ROUTES, "/waiting": waiting})
    viewers = [socket.create_connection(split_address(server.address), timeout=10) for _ in range(20)]
    try:
        for each in viewers:
            each.sendall(b"GET /waiting HTTP/1.1\r\nHost: localhost\r\n\r\n")
        time.sleep(0.2)
        began = time.monotonic()
        assert _text(server, "/")[0] == 200
        assert time.monotonic() - began < 2
    finally:
        go_on.set()
        for each in viewers:
            each.close()
        server.close()


@pytest.mark.parametrize(
    "line", [b"nonsense\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n"]
)
def test_what_is_no_request_gets_a_short_refusal(server: HttpServer, line: bytes) -> None:
    """Neither is it repeated, nor does it end anything."""
    with socket.create_connection(split_address(server.address), timeout=10) as client:
        client.sendall(line)
        answer = client.recv(2000)
    assert b"aaaa" not in answer
    assert b"nonsense" not in answer
    assert _text(server, "/")[0] == 200


def test_an_address_that_cannot_be_read_is_refused(server: HttpServer) -> None:
    """A target in the form for proxies may be no address at all: the connection is closed, and others are answered."""
    with socket.create_connection(split_address(server.address), timeout=10) as client:
        client.sendall(b"GET http://[::1 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert client.recv(2000) == b""
    assert _text(server, "/")[0] == 200


def test_many_who_come_at_once_are_let_in(server: HttpServer) -> None:
    """Nobody is turned away while the server has not come round to those before, as a probe beside a burst of scrapers would be."""
    clients = [socket.socket() for _ in range(100)]
    for client in clients:
        client.settimeout(0)
        client.connect_ex(split_address(server.address))
    # The kernel tries again after a second.
    time.sleep(0.5)
    errors = [client.getpeername() for client in clients]
    for client in clients:
        client.close()
    assert len(errors) == len(clients)


def test_a_port_that_is_taken_is_refused(server: HttpServer) -> None:
    """The message names the option, the address and what the system says."""
    with pytest.raises(
        ConfigError, match=rf"--metrics-listen {server.address}: .*Address already in use\. Give an address"
    ):
        HttpServer(server.address, {})


def test_an_address_of_no_machine_is_refused(server: HttpServer) -> None:
    """The message names what was given and what the system says, and nobody who has that port at another address."""
    port = split_address(server.address)[1]
    with pytest.raises(ConfigError, match=rf"--metrics-listen 192\.0\.2\.1:{port}: nothing can listen there"):
        HttpServer(f"192.0.2.1:{port}", {})


def test_a_port_can_be_taken_again_at_once() -> None:
    """After `close` the next server gets the same port, although connections to the former one were open."""
    first = HttpServer("127.0.0.1:0", _ROUTES)
    address = first.address
    assert _text(first, "/")[0] == 200
    first.close()
    second = HttpServer(address, _ROUTES)
    assert _text(second, "/")[0] == 200
    second.close()


def test_what_is_written_to_wake_the_server_goes_nowhere_else() -> None:
    """Nobody writes to a pipe that is closed already, and whose number another file or connection may have by then.

    A thread that has answered wakes the server; that may end it while `close`, or another thread, is about to do the same.
    """
    server = HttpServer("127.0.0.1:0", _ROUTES)
    trigger, odd = server._server.trigger, list[OSError]()
    pull = trigger._physical_pull

    def late() -> None:
        pull()
        time.sleep(0.3)
        try:
            pull()
        except OSError as fault:
            odd.append(fault)
            raise

    trigger._physical_pull = late
    server.close()
    assert odd == []


def test_close_waits_for_an_answer_that_is_nearly_there() -> None:
    """And not for one that takes long."""
    told = threading.Event()

    def slow(request: Request) -> Response:
        told.set()
        time.sleep(float(request.query["seconds"]))
        return said("there")

    for seconds in (0.2, 4.0):
        server = HttpServer("127.0.0.1:0", {"/": slow})
        with socket.create_connection(split_address(server.address), timeout=10) as client:
            client.sendall(f"GET /?seconds={seconds} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            assert told.wait(5)
            told.clear()
            began = time.monotonic()
            server.close()
            assert time.monotonic() - began < 3
        wait_until("the end of the answer", partial(getattr, server._server.trigger, "_closed"))


def test_addresses_with_colons_stand_in_brackets() -> None:
    """`split_address` and `joined_address` are inverse to each other."""
    for address in ("127.0.0.1:9464", "[::1]:9464"):
        assert joined_address(*split_address(address)) == address
