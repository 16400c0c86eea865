"""Faults of the target: gone, restarted, read-only, full of connections, locked by others. Each is real: a second connection, a signal."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial

import pymysql
import pymysql.cursors
import pymysql.err

from tests.campaigns.faults.trial import USER, Fault, World
from tests.campaigns.faults.wire import Verdict
from tests.harness.servers import DatabaseServer

AT_ROWS = r"LOAD DATA|REPLACE INTO `d`"
AT_DDL = r"ALTER TABLE `t`"
PLACES = {"before rows are written": AT_ROWS, "before a DDL": AT_DDL}
"""Where → like which command of the second round."""
OPTIONS = {
    "mariadb": ("--innodb-flush-log-at-trx-commit=1",),
    "mysql": ("--innodb-flush-log-at-trx-commit=1", "--tls-version="),
    "tidb": (),
}
"""Of the servers: what is committed outlives a kill -9, and commands can be read on their way."""
A_WHILE = 3.0
"""Seconds."""
LIMIT = "3s"
"""``--retry-limit`` where the fault lasts longer."""
_HELD = 14
"""Connections that the test holds, and more than may be; MariaDB takes no limit below 10."""

Trouble = Callable[[World], Callable[[], None]]
"""Begins a trouble, and returns what ends it."""


@dataclass(slots=True)
class When:
    """A watch that does something once, right before a command of the second round."""

    world: World
    pattern: str
    act: Callable[[], None]
    fired: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, command: str) -> Verdict:
        """Hold the command until the act is done."""
        with self._lock:
            if not self.fired.is_set() and self.world.cut == 1 and re.match(self.pattern, command):
                self.fired.set()
                self.act()
        return Verdict.PASS


@contextmanager
def at(world: World, pattern: str, trouble: Trouble, *, seconds: float = 0) -> Iterator[None]:
    """`trouble` right before a command, for so many seconds, or to the block's end where that is 0."""
    with ExitStack() as undo:
        waiting = list[threading.Timer]()

        def begin() -> None:
            ended = threading.Lock()
            end = trouble(world)

            def once() -> None:
                if ended.acquire(blocking=False):
                    end()

            undo.callback(once)
            if seconds:
                waiting.append(threading.Timer(seconds, once))
                waiting[-1].start()

        watch = When(world, pattern, begin)
        world.wire.watch = watch
        yield
        for timer in waiting:
            timer.join()
    if not watch.fired.is_set():
        message = f"no command was like {pattern}"
        raise AssertionError(message)


def patiently(server: DatabaseServer, *statements: str) -> None:
    """Run statements that may wait for what the program has open; they are waited for only for a moment."""

    def run() -> None:
        for sql in statements:
            server.query(sql)

    running = threading.Thread(target=run, daemon=True)
    running.start()
    running.join(1.0)


# troubles


def restarted(world: World) -> Callable[[], None]:
    """Killed by -9 and started again at once."""
    world.server.child.kill()
    world.server.child.start()
    return lambda: None


def gone(world: World) -> Callable[[], None]:
    """Killed by -9."""
    world.server.child.kill()
    return world.server.child.start


_READ_ONLY = {"mariadb": "read_only", "mysql": "super_read_only", "tidb": "tidb_super_read_only"}


def read_only(world: World) -> Callable[[], None]:
    """Writes of all are refused; on MariaDB those of all but administrators, which the program is not."""
    name, server = _READ_ONLY[world.server.kind], world.server
    patiently(server, f"SET GLOBAL {name} = 1")
    off = [f"SET GLOBAL {name} = 0", *(["SET GLOBAL read_only = 0"] if server.kind == "mysql" else [])]
    if server.kind == "tidb":
        off.append("SET GLOBAL tidb_restricted_read_only = 0")

    def end() -> None:
        for sql in off:
            server.query(sql)

    return end


def full_of_connections(world: World) -> Callable[[], None]:
    """Others hold all connections that may be; those of the program are ended, so that it needs new ones."""
    server = world.server
    before = server.query("SELECT @@GLOBAL.max_connections")[0][0]
    held = [server.connect() for _ in range(_HELD)]
    with held[0].cursor() as cursor:
        cursor.execute("SET GLOBAL max_connections = 10")
        _end_all_of_the_program(server, cursor)

    def end() -> None:
        with held[0].cursor() as cursor:
            cursor.execute(f"SET GLOBAL max_connections = {before}")
        for one in held:
            one.close()

    return end


def _end_all_of_the_program(server: DatabaseServer, cursor: pymysql.cursors.Cursor) -> None:
    cursor.execute(f"SELECT id FROM information_schema.processlist WHERE user = '{USER}'")
    for (number,) in cursor.fetchall():
        with suppress(pymysql.err.MySQLError):
            cursor.execute(f"KILL {'TIDB ' if server.kind == 'tidb' else ''}{number}")


def row_locked(world: World) -> Callable[[], None]:
    """Another transaction holds a row that is to be written."""
    return _locked(world, "SELECT * FROM d.t WHERE id = 1 FOR UPDATE")


def table_in_use(world: World) -> Callable[[], None]:
    """Another transaction has read the table that a statement is to change."""
    return _locked(world, "SELECT * FROM d.t LIMIT 1")


def _locked(world: World, sql: str) -> Callable[[], None]:
    holder = world.server.connect(autocommit=False)
    with holder.cursor() as cursor:
        cursor.execute(sql)

    def end() -> None:
        holder.rollback()
        holder.close()

    return end


def deadlock(world: World) -> Callable[[], None]:
    """Another transaction, with more to take back, holds a row that is to be written and waits for the program's slot."""
    server = world.server
    for sql in ("CREATE DATABASE IF NOT EXISTS other", "CREATE TABLE IF NOT EXISTS other.o (v INT)"):
        server.query(sql)
    holder = server.connect(autocommit=False)

    def hold() -> None:
        with holder.cursor() as cursor, suppress(pymysql.err.MySQLError):
            cursor.execute("SELECT * FROM storage_consumer.slots FOR UPDATE")
        holder.rollback()

    with holder.cursor() as cursor:
        cursor.execute("INSERT INTO other.o VALUES " + ", ".join(["(1)"] * 2_000))
        cursor.execute("SELECT * FROM d.t WHERE id = 1 FOR UPDATE")
    waiting = threading.Thread(target=hold, daemon=True)
    waiting.start()
    waiting.join(0.5)

    def end() -> None:
        waiting.join(30)
        holder.close()

    return end


# the faults


@contextmanager
def impatient(world: World, pattern: str, trouble: Trouble, *, seconds: float = 0) -> Iterator[None]:
    """As `at`, on a server that waits one second for a row; a TiDB and a DDL have settings of their own."""
    (before,) = world.server.query("SELECT @@GLOBAL.innodb_lock_wait_timeout")[0]
    world.server.query("SET GLOBAL innodb_lock_wait_timeout = 1")
    try:
        with at(world, pattern, trouble, seconds=seconds):
            yield
    finally:
        world.server.query(f"SET GLOBAL innodb_lock_wait_timeout = {before}")


def faults() -> Iterable[Fault]:
    """All of this module."""
    for where, pattern in PLACES.items():
        yield Fault(
            name="server killed and started again", where=where, around=partial(at, pattern=pattern, trouble=restarted)
        )
        for name, trouble, says in (
            ("server gone", gone, r"[Cc]onnect|2003|2013"),
            ("server read-only", read_only, r"read-only"),
            ("too many connections", full_of_connections, r"1040|[Tt]oo many connections"),
        ):
            yield Fault(
                name=f"{name} for a while",
                where=where,
                around=partial(at, pattern=pattern, trouble=trouble, seconds=A_WHILE),
            )
            yield Fault(
                name=f"{name} for longer than --retry-limit",
                where=where,
                around=partial(at, pattern=pattern, trouble=trouble),
                ends=says,
                options={"retry_limit": LIMIT},
            )
    yield from _locks()


def _locks() -> Iterable[Fault]:
    rows = "a row of another transaction"
    yield Fault(
        name="lock wait that ends",
        where=rows,
        around=partial(impatient, pattern=AT_ROWS, trouble=row_locked, seconds=5.0),
    )
    yield Fault(
        name="lock wait for longer than --retry-limit",
        where=rows,
        around=partial(impatient, pattern=AT_ROWS, trouble=row_locked),
        ends=r"[Ll]ock",
        options={"retry_limit": LIMIT},
    )
    yield Fault(
        name="deadlock",
        where="between two statements of a transaction",
        around=partial(at, pattern=AT_ROWS, trouble=deadlock),
    )
    yield Fault(
        name="table in use",
        where="before a DDL",
        around=partial(at, pattern=AT_DDL, trouble=table_in_use, seconds=5.0),
        options={"ddl_lock_wait": "1s"},
    )
