"""Two processes on one target: one writes, and one that was paused or cut off never writes again."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.harness import servers
from tests.harness.program import Program, program
from tests.harness.servers import DatabaseServer
from tests.harness.small_bucket import CREATE_TABLE, SmallBucket, column, row, ts
from tests.harness.waiting import wait_until

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.acceptance]
_HOST, _GUEST = "10.213.77.1", "10.213.77.2"
"""Addresses at the two ends of a cable between two network namespaces of this machine."""
_CABLE = "consumer0"
Everything = dict[str, tuple[tuple[object, ...], ...]]


@pytest.fixture
def bucket(tmp_path: Path) -> SmallBucket:
    """A table with a key and one without, a row in each, up to tick 9."""
    made = SmallBucket(root=tmp_path / "bucket")
    made.create("d.t")
    columns = (column("id", "INT"), column("name", "VARCHAR", ColumnPrecision="20"))
    made.schema("d.keyless", ts(1), "CREATE TABLE `keyless` (id INT, name VARCHAR(20))", CREATE_TABLE, columns)
    (tmp_path / "changefeed.toml").write_text("[sink.csv]\ninclude-commit-ts = true\n", encoding="utf-8")
    add(made, 1, 5)
    return made


def add(bucket: SmallBucket, number: int, tick: int) -> None:
    """File `number` of both tables: row 1 anew and row `number`, committed at `tick`; the checkpoint moves beyond."""
    text = f'"at {tick}"'
    bucket.rows("d.t", number, row("d.t", tick, "1", text, operation="U"), row("d.t", tick, str(number * 10), text))
    bucket.rows("d.keyless", number, row("d.keyless", tick, str(number), text))
    bucket.metadata(ts(tick + 4))


def of_both(server: DatabaseServer) -> Everything:
    """All rows of both tables, and what the state knows."""
    return {
        table: tuple(sorted(server.query(f"SELECT * FROM {table}")))
        for table in ("d.t", "d.keyless", *(f"storage_consumer.{name}" for name in ("lease", "feed", "table_progress")))
    }


def expected(*ticks: int) -> Everything:
    """The rows after files 1, 2, … that were committed at these ticks."""
    last, texts = f"at {ticks[-1]}", [f"at {tick}" for tick in ticks]
    keyed = ((1, last), *((number * 10, text) for number, text in enumerate(texts, 1)))
    return {"d.t": keyed, "d.keyless": tuple(enumerate(texts, 1))}


def consuming(
    bucket: SmallBucket, uri: str, name: str, *more: str, within: Sequence[str] = ()
) -> AbstractContextManager[Program]:
    """The continuous program with a short lease; `within`: a command that starts it."""
    config = bucket.root.with_name("changefeed.toml")
    arguments = ["--upstream-uri", bucket.uri, "--downstream-uri", uri, "--config", str(config), "--lease-ttl", "3s"]
    return program([*arguments, "--flush-interval", "200ms", *more], bucket.root.with_name(name), within=within)


def roles(one: Program, two: Program) -> tuple[Program, Program]:
    """The one that writes, which has applied the first rows, and the one that stands by."""
    wait_until("the first rows", lambda: one.events("round_finished") or two.events("round_finished"))
    writer, other = (one, two) if one.events("round_finished") else (two, one)
    writer.wait_for("round_finished", checkpoint=ts(9))
    other.wait_for("lease_waiting")
    return writer, other


@contextmanager
def waiting_in_a_transaction(bucket: SmallBucket, server: DatabaseServer) -> Iterator[None]:
    """Inside the block a task of the running program stands in the middle of its transaction; afterwards it could go on."""
    with server.connect(autocommit=False) as holder, holder.cursor() as cursor:
        cursor.execute("SELECT * FROM d.t WHERE id = 1 FOR UPDATE")
        add(bucket, 2, 12)
        waits = "SELECT id FROM information_schema.processlist WHERE db = 'storage_consumer' AND info LIKE '%`d`.`t`%'"
        wait_until("a task that waits for row 1", lambda: server.query(waits))
        yield
        holder.rollback()


def test_double_start(bucket: SmallBucket, mariadb: DatabaseServer) -> None:
    """Of two that start at once one writes and the other waits; it takes over as soon as the first one ends, and nothing is doubled."""
    with consuming(bucket, mariadb.uri, "one") as one, consuming(bucket, mariadb.uri, "two") as two:
        writer, other = roles(one, two)
        assert not other.events("lease_acquired")
        add(bucket, 2, 12)
        writer.wait_for("round_finished", checkpoint=ts(16))
        writer.signal(signal.SIGTERM)
        other.wait_for("lease_acquired")
        add(bucket, 3, 22)
        other.wait_for("round_finished", checkpoint=ts(26))
        assert writer.end() == 0
        other.signal(signal.SIGTERM)
        assert other.end() == 0
    assert of_both(mariadb).items() >= expected(5, 12, 22).items()


@pytest.mark.parametrize("when", ["between two rounds", "in a transaction"])
def test_paused_process(when: str, bucket: SmallBucket, mariadb: DatabaseServer) -> None:
    """A process that was stopped until another one has taken over ends with code 3 when it goes on, and has written nothing more."""
    with consuming(bucket, mariadb.uri, "one") as one, consuming(bucket, mariadb.uri, "two") as two:
        writer, other = roles(one, two)
        if when == "in a transaction":
            with waiting_in_a_transaction(bucket, mariadb):
                writer.signal_all(signal.SIGSTOP)
        else:
            writer.signal_all(signal.SIGSTOP)
            add(bucket, 2, 12)
        add(bucket, 3, 22)
        other.wait_for("round_finished", checkpoint=ts(26))
        assert bool(other.events("connections_ended")) == (when == "in a transaction")
        other.signal(signal.SIGTERM)
        assert other.end() == 0
        before = of_both(mariadb)
        writer.signal_all(signal.SIGCONT)
        assert writer.end() == 3
    assert of_both(mariadb) == before
    assert before.items() >= expected(5, 12, 22).items()


@contextmanager
def cable() -> Iterator[list[str]]:
    """A network of two hosts: this machine and one behind a cable; a command that runs another one there."""
    with subprocess.Popen(["unshare", "--net", "sleep", "infinity"]) as there:
        inside = ["nsenter", "--net", f"--target={there.pid}"]
        try:
            for command in (
                f"ip link add {_CABLE} type veth peer name {_CABLE} netns {there.pid}",
                f"ip address add {_HOST}/30 dev {_CABLE}",
                f"ip link set {_CABLE} up",
            ):
                subprocess.run(command.split(), check=True)
            for command in (
                "ip link set lo up",
                f"ip address add {_GUEST}/30 dev {_CABLE}",
                f"ip link set {_CABLE} up",
            ):
                subprocess.run([*inside, *command.split()], check=True)
            yield inside
        finally:
            there.kill()  # its end of the cable goes with it, and so the whole


def test_network_cut(bucket: SmallBucket) -> None:
    """A process whose packets no longer reach the target is followed, in the middle of its transaction too.

    When the network is back it ends with code 3 and has written nothing more.
    """
    with cable() as behind, servers.mariadb(innodb=(f"--bind-address=127.0.0.1,{_HOST}",)) as server:
        server.query(f"CREATE USER root@'{_GUEST}'")
        server.query(f"GRANT ALL ON *.* TO root@'{_GUEST}'")
        uri = server.uri.replace("127.0.0.1", _HOST)
        with ExitStack() as running:
            cut = running.enter_context(consuming(bucket, uri, "cut", within=behind))
            cut.wait_for("round_finished", checkpoint=ts(9))
            other = running.enter_context(consuming(bucket, server.uri, "other"))
            other.wait_for("lease_waiting")
            with waiting_in_a_transaction(bucket, server):
                subprocess.run(["ip", "link", "set", _CABLE, "down"], check=True)
            add(bucket, 3, 22)
            other.wait_for("round_finished", checkpoint=ts(26))
            assert other.events("connections_ended")
            other.signal(signal.SIGTERM)
            assert other.end() == 0
            before = of_both(server)
            subprocess.run(["ip", "link", "set", _CABLE, "up"], check=True)
            assert cut.end() == 3
        assert of_both(server) == before
        assert before.items() >= expected(5, 12, 22).items()
