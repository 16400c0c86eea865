"""``storage-consumer serve`` as a process of its own, with canal's own clients, the examples of its page, signals and kills."""

from __future__ import annotations

import os
import random
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from signal import SIGKILL, SIGTERM

import pytest

from storage_consumer.subscribe.wire import MESSAGES, Kind
from tests.harness import canal_clients
from tests.harness.canal_wire import CanalClient
from tests.harness.program import ROOT, Program, program
from tests.harness.servers import free_port
from tests.harness.small_bucket import SmallBucket, row, ts

pytestmark = [pytest.mark.acceptance]
PAGE = (ROOT / "docs" / "guide" / "subscribe.md").read_text(encoding="utf-8")
THOROUGH = bool(os.environ.get("STORAGE_CONSUMER_THOROUGH"))


def _example(language: str) -> str:
    """Return the first example of the page in a language."""
    found = re.search(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    assert found
    return found[1]


@dataclass(frozen=True, kw_only=True)
class Serving:
    """A bucket, destinations `open` and `orders` (for reader with secret), and a file of positions."""

    bucket: SmallBucket
    folder: Path

    @contextmanager
    def __call__(self, port: int, *, active: bool = True) -> Iterator[Program]:
        """Run a server, `active` or standing by; it is killed at the end."""
        destinations = self.folder / "destinations"
        destinations.mkdir(exist_ok=True)
        (destinations / "open.toml").write_text("", encoding="utf-8")
        (destinations / "orders.toml").write_text('[users]\nreader = "secret"\n', encoding="utf-8")
        words = [
            *("--upstream-uri", self.bucket.uri, "--include-commit-ts", "--listen", f"127.0.0.1:{port}"),
            *("--meta-uri", f"sqlite:///{self.folder}/positions.db", "--destinations", str(destinations)),
            *("--flush-interval", "200ms"),
        ]
        log = self.folder / f"log-{len(list(self.folder.glob('log-*')))}"
        with program(words, log, verb="serve") as running:
            running.wait_for("serving")
            if active:
                running.wait_for("destination_served", destination="open")
                running.wait_for("destination_served", destination="orders")
            yield running


@pytest.fixture
def serving(tmp_path: Path) -> Serving:
    """Of a bucket with rows of shop.orders at ticks 2 to 9, one a commit."""
    bucket = SmallBucket(root=tmp_path / "bucket")
    bucket.create("shop.orders")
    bucket.rows("shop.orders", 1, *(row("shop.orders", tick, str(tick), f'"n{tick}"') for tick in range(2, 10)))
    bucket.metadata(ts(9))
    return Serving(bucket=bucket, folder=tmp_path)


def _rows(lines: list[str]) -> list[str]:
    """Return the values of the rows that the Java client printed."""
    return [line.strip() for line in lines if line.startswith("  +")]


def _all(get: Callable[[int], tuple[int, list[str]]], size: int) -> tuple[int, list[str]]:
    """Return the next batch that has something."""
    for _ in range(20):
        number, lines = get(size)
        if number != -1:
            return number, lines
    raise AssertionError("nothing came")


def test_the_examples_of_the_page(serving: Serving, tmp_path: Path) -> None:
    """Both print each row once, in order; started again they print what is new alone."""
    java, python = tmp_path / "Orders.java", tmp_path / "orders.py"
    java.write_text(_example("java"), encoding="utf-8")
    python.write_text(_example("python"), encoding="utf-8")
    port = free_port()
    for command in (canal_clients.java(java, str(port)), canal_clients.python(python, str(port))):
        with serving(port):
            first = canal_clients.output(command)
            assert re.findall(r"^INSERT orders .*?(n\d)", first, re.MULTILINE) == [f"n{tick}" for tick in range(2, 10)]
        with serving(port):
            assert "INSERT" not in canal_clients.output(command)
    serving.bucket.rows("shop.orders", 2, row("shop.orders", 11, "11", '"n11"'))
    serving.bucket.metadata(ts(12))
    with serving(port):
        for command in (canal_clients.java(java, str(port)), canal_clients.python(python, str(port))):
            assert re.findall(r"^INSERT orders .*?(n\d+)", canal_clients.output(command), re.MULTILINE) == ["n11"]


def test_the_java_client(serving: Serving) -> None:
    """A wrong password; three batches ahead; acks in order and out of it; a rollback; and where it continues after kills of both."""
    port = free_port()
    with canal_clients.java_client() as client:
        with serving(port) as server:
            assert client(f"connect orders reader wrong {port}") == []
            [refused] = client("subscribe")
            assert "auth failed for user:reader" in refused
            assert client(f"connect orders reader secret {port}") == client("subscribe shop\\..*") == []
            first, lines = _all(client.get, 5)
            assert lines[:2] == [
                f"ROWDATA {ts(0)} shop. QUERY CREATE DATABASE `shop`",
                f"ROWDATA {ts(1)} shop.orders CREATE CREATE TABLE `orders` (id INT PRIMARY KEY, name VARCHAR(20))",
            ]
            assert lines[2:5] == [
                f"TRANSACTIONBEGIN {ts(2)}",
                f"ROWDATA {ts(2)} shop.orders INSERT",
                "  +id!*='2' +name*='n2'",
            ]
            second, lines = client.get(5)
            third, _ = client.get(5)
            assert (second, third) == (first + 1, first + 2)
            assert client(f"ack {first}") == []
            assert client(f"ack {third}") == []
            [refused] = client("get 1")
            assert f"batchId:{third} is not the firstly:{second}" in refused
            client("disconnect")
            assert (
                client(f"connect orders reader secret {port}")
                == client("subscribe shop\\..*")
                == client("rollback")
                == []
            )
            again, repeated = client.get(5)
            assert (again > third, repeated) == (True, lines)
            assert client(f"ack {again}") == []
            client.get(1)  # its answer shows that the server took the ack
            server.signal(SIGKILL)
            server.end()
            acknowledged = len(_rows(lines))
        with serving(port):
            client("disconnect")
            assert client(f"connect orders reader secret {port}") == client("subscribe shop\\..*") == []
            number, rest = _all(client.get, 100)
            assert number > again
            assert _rows(rest)[-1] == "+id!*='9' +name*='n9'"
            assert len(_rows(rest)) in (8 - acknowledged, 8 - acknowledged - 1)
            assert client(f"ack {number}") == []
            assert client.get(1)[0] == -1
    with canal_clients.java_client() as client, serving(port):
        assert client(f"connect orders reader secret {port}") == client("subscribe") == []
        assert client.get(100) == (-1, [])
        assert client("unsubscribe") == []


def test_a_cluster_of_servers(serving: Serving) -> None:
    """A client with two addresses gets past a standby, and goes on at it when the other one is killed."""
    ports = free_port(), free_port()
    with (
        serving(ports[0]) as first,
        serving(ports[1], active=False) as second,
        canal_clients.java_client() as client,
    ):
        assert client(f"connect orders reader secret {ports[1]} {ports[0]}") == []
        assert client("subscribe") == []
        number, lines = _all(client.get, 8)
        assert client(f"ack {number}") == []
        client.get(1)  # its answer shows that the server took the ack
        first.signal(SIGKILL)
        first.end()
        second.wait_for("destination_served", destination="orders")
        deadline = time.monotonic() + 60
        found = list[str]()
        while len(_rows(lines)) + len(_rows(found)) < 8 and time.monotonic() < deadline:
            number, found = client.get(100)
        assert _rows(lines) + _rows(found) == [f"+id!*='{tick}' +name*='n{tick}'" for tick in range(2, 10)]


def test_the_end(serving: Serving) -> None:
    """SIGTERM ends it within two seconds with code 0, also while clients wait, and another server takes over at once."""
    port = free_port()
    with serving(port) as server, CanalClient(f"127.0.0.1:{port}") as idle, CanalClient(f"127.0.0.1:{port}") as waiting:
        idle.come_in()
        waiting.come_in()
        waiting.subscribe("open")
        waiting.say(Kind.GET, "Get", destination="open", client_id="1001", fetch_size=1000, timeout=0, unit=3)
        begin = time.monotonic()
        server.signal(SIGTERM)
        assert server.end() == 0
        assert time.monotonic() - begin < 2
        with serving(port) as second:
            second.wait_for("destination_served", destination="open")
    assert time.monotonic() - begin < 8


def _commits(entries: list[bytes]) -> list[tuple[int, int]]:
    """Return type and commit-ts of entries."""
    found = [MESSAGES["Entry"].FromString(each) for each in entries]
    return [(each.entryType, each.header.logfileOffset) for each in found]


def _acknowledged(client: CanalClient, size: int, last: list[int]) -> list[int]:
    """Get a batch and acknowledge it; return the commit-ts of what ends in it. `last`: one that was acknowledged before."""
    batch = client.get("open", fetch_size=size, timeout=20, unit=2)
    if batch.batch_id == -1:
        return []
    commits = _commits(list(batch.messages))
    assert all(not last or ts >= last[0] for _, ts in commits), "acknowledged before"
    client.say(Kind.CLIENTACK, "Decision", destination="open", client_id="1001", batch_id=batch.batch_id)
    # The next answer shows that the server took it.
    client.say(Kind.HEARTBEAT, "Pair", key="taken")
    assert client.hear("Pair").key == "taken"
    return [ts for kind, ts in commits if kind != 1]


def test_kills_of_the_server(serving: Serving) -> None:
    """Killed at any moment, it loses nothing: each commit comes until it was acknowledged, in order, and not after that."""
    draw = random.Random(7)  # noqa: S311 - moments
    port, done = free_port(), list[int]()
    for _ in range(20 if THOROUGH else 4):
        with serving(port) as server, CanalClient(f"127.0.0.1:{port}") as client:
            client.come_in()
            client.subscribe("open")
            end = time.monotonic() + draw.random()
            while time.monotonic() < end:
                done += _acknowledged(client, draw.randrange(1, 4), done[-1:])
            server.signal(SIGKILL)
            server.end()
    with serving(port), CanalClient(f"127.0.0.1:{port}") as client:
        client.come_in()
        client.subscribe("open")
        deadline = time.monotonic() + 30
        while ts(9) not in done and time.monotonic() < deadline:
            batch = client.get("open", fetch_size=100, timeout=1, unit=3)
            done += [ts for kind, ts in _commits(list(batch.messages)) if kind != 1]
    assert sorted(set(done)) == [ts(tick) for tick in range(10)]
