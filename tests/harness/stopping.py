"""Processes that end at any call to the outside, as by kill -9, and what the server has to say about it afterwards.

All of them run in this one Python process with one Spark session, so that ending one costs a second and not a JVM. A process
ends by `Crash`, which nothing catches; its connections are then ended by the server, so that no transaction is finished or taken
back politely, and its lease stays behind as that of a process that is gone.
"""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import pymysql.cursors
import pymysql.err

from storage_consumer.checkpoint.journal import StoredJournal
from storage_consumer.checkpoint.progress import StoredProgress
from storage_consumer.checkpoint.store import StateStore
from storage_consumer.checkpoint.transactions import StoredLease
from storage_consumer.plan.journal_entry import DdlAnswer
from storage_consumer.spark.pipeline import SparkPipeline
from storage_consumer.sql.parse import table_names
from storage_consumer.sql.tokens import tokens
from storage_consumer.summary import RoundSummary
from storage_consumer.target.database import TargetDatabase
from tests.harness.comparing import STATE_SCHEMA
from tests.harness.corpora import Cut
from tests.harness.replay import Replay
from tests.harness.servers import DatabaseServer, quoted

WATCHED: tuple[tuple[type, str], ...] = (
    (StateStore, "open"),
    (StoredLease, "acquire"),
    (StoredProgress, "load"),
    (StoredLease, "open_window"),
    (StoredProgress, "save"),
    (StoredJournal, "record"),
    (TargetDatabase, "execute_ddl"),
    (SparkPipeline, "run"),
)
"""Every call by which a step begins, takes effect, or is noted. A process can end before each, and so after the one before."""
PROGRESS = ("save", "record")
"""Calls that store how far the process is: the same other call after another one of these is another point."""
ONCE_EACH = ("open", "acquire", "load")
"""Calls of a process's start."""
MOST_PROCESSES = 5_000
PATIENCE = 30.0
DDL_THREAD = "ddl"
"""Name of the threads in which statements run."""
GONE = "99999999"
"""A number that no process has: it is beyond the kernel's largest."""
EXCHANGES = re.compile(r"\bEXCHANGE\s+PARTITION\b", re.IGNORECASE)
UNKNOWABLE = "EXCHANGE PARTITION with version"
"""Part of the error by which the program leaves it to the operator whether an interrupted statement took effect."""
CHANGES_STRUCTURE = re.compile(r"\s*(CREATE|ALTER|DROP|RENAME|TRUNCATE|RECOVER|FLASHBACK)\b", re.IGNORECASE)
OF_THE_STATE = re.compile(rf"CREATE (DATABASE|TABLE) IF NOT EXISTS `?{STATE_SCHEMA}\b")


class Crash(BaseException):
    """The end of a process."""


class NeverEnds(AssertionError):
    """Process after process was started and ended, and no round was finished."""


@dataclass(slots=True)
class Effects:
    """The statements that the program sent for the source's DDL, and whether any of them took effect twice.

    A statement *takes effect* when the server runs it without an error and the structure or the rows of any table are others
    afterwards. It took effect *twice* when the program had the same text of the same version run before without an error, and a
    later run changed anything again. So a TRUNCATE may be sent twice where the first answer was lost, but must then find the
    table empty: a row that was written in between would be a change.
    """

    server: DatabaseServer
    sent: Counter[str] = field(default_factory=Counter)
    """Text → how often it went to the server."""
    unanswered: Counter[str] = field(default_factory=Counter)
    """Text → how often the process ended before the server had answered; that may have been before it got the statement."""
    ran: Counter[tuple[str, int]] = field(default_factory=Counter)
    """Text and version → how often the server ran it without an error."""
    twice: list[str] = field(default_factory=list)
    before: dict[tuple[str, int], str] = field(default_factory=dict)
    """Text and version of an exchange → what its tables were like right before it went to the server."""

    def note(self, run: Callable[[], DdlAnswer], statement: str, version: int) -> DdlAnswer:
        """Have a statement run; the server's answer."""
        again = self.ran[statement, version] > 0
        before = self._image() if again else ""
        if EXCHANGES.search(statement):
            self.before[statement, version] = self._of_the_tables_in(statement)
        self.sent[statement] += 1
        self.unanswered[statement] += 1
        answer = run()
        self.unanswered[statement] -= 1
        if not answer.ignored:
            self.ran[statement, version] += 1
            if again and self._image() != before:
                self.twice.append(statement)
        return answer

    def took_effect(self, statement: str, version: int) -> bool:
        """Whether the rows of an exchange's tables are others than right before it, whatever became of its answer."""
        before = self.before.get((statement, version))
        return before is not None and self._of_the_tables_in(statement) != before

    def _of_the_tables_in(self, statement: str) -> str:
        """The rows of the tables that a statement names, which stand still until it is resolved."""
        named = [f"{quoted(name.schema)}.{quoted(name.table)}" for name in table_names(tokens(statement))]
        return repr([sorted(map(repr, self.server.query(f"SELECT * FROM {name}"))) for name in named])

    @property
    def repeated(self) -> int:
        """How many times a statement ran again without any effect."""
        return sum(times - 1 for times in self.ran.values()) - len(self.twice)

    def _image(self) -> str:
        """Tells two states of all tables apart, but for where AUTO_INCREMENT goes on."""
        image = sha256()
        for database in self.server.databases():
            tables = self.server.query(f"SHOW FULL TABLES FROM {quoted(database)}") if database != STATE_SCHEMA else ()
            for table, kind in tables:
                name = f"{quoted(database)}.{quoted(table)}"
                made = re.sub(r"AUTO_INCREMENT=\d+", "", str(self.server.query(f"SHOW CREATE TABLE {name}")))
                rows = self.server.query(f"SELECT * FROM {name}") if kind == "BASE TABLE" else ()
                image.update(repr((name, made, sorted(map(repr, rows)))).encode())
        return image.hexdigest()

    def differences_from(self, logged: Counter[str]) -> list[str]:
        """Where the server's general log does not bear out what is known here; `logged`: text → how often it came."""
        wrong = [f"took effect twice: {statement}" for statement in self.twice]
        came = {text for text in logged if CHANGES_STRUCTURE.match(text) and not OF_THE_STATE.match(text)}
        return wrong + [
            f"sent {self.sent[text]} times, came {logged[text]} times: {text}"
            for text in sorted(self.sent.keys() | came)
            if not self.sent[text] - self.unanswered[text] <= logged[text] <= self.sent[text]
        ]


@dataclass(slots=True)
class Points:
    """The points at which processes end.

    `alone`: number (from 1) of the one point at which the first process ends; 0: none does. Without it (None) each process ends
    at the first point at which none has ended so far, so that they come one step further each.
    """

    server: DatabaseServer
    effects: Effects
    alone: int | None = None
    passed: int = 0
    """Points that were passed so far, those of processes that ended there included."""
    ended_at: dict[str, int] = field(default_factory=dict)
    """Points where processes ended, in order."""
    key_drift: int = 0
    """Interrupted statements that the operator had to decide on."""
    _dead: bool = False
    _progress: str = ""

    def pass_by(self, call: str, what: str) -> None:
        """A process is before a call. Raises `Crash` where it ends, and from then on for whatever else of it goes on."""
        if self._dead:
            raise Crash
        self.passed += 1
        at = f"before {call}" if call in ONCE_EACH else f"before {call} {what}"
        if call == "open_window":
            at += self._progress
        ends = self.passed == self.alone if self.alone is not None else at not in self.ended_at
        if ends:
            self.ended_at[at] = self.passed
            self._dead = True
            raise Crash

    def came_through(self, call: str, what: str) -> None:
        """A call of a process was answered."""
        if call in PROGRESS:
            self._progress = f", {call} {what}"

    def bury(self) -> None:
        """End all connections of a process that is no more, and let its lease be that of one that is gone."""
        deadline = time.monotonic() + PATIENCE
        with self.server.connect() as connection, connection.cursor() as cursor:
            while self._kill_others(cursor) and time.monotonic() < deadline:
                time.sleep(0.01)
            with suppress(pymysql.err.MySQLError):  # the state may not be there yet
                cursor.execute(f"SELECT holder FROM {STATE_SCHEMA}.lease WHERE holder <> ''")
                for (holder,) in cursor.fetchall():
                    parts = str(holder).split("|")
                    gone = "|".join([*parts[:2], GONE, *parts[3:]])
                    cursor.execute(f"UPDATE {STATE_SCHEMA}.lease SET holder = %s", (gone,))
        for thread in threading.enumerate():
            if thread.name == DDL_THREAD:
                thread.join(PATIENCE)
        self._dead = False

    def _kill_others(self, cursor: pymysql.cursors.Cursor) -> bool:
        """End all connections but this one; whether there were any."""
        cursor.execute("SELECT id FROM information_schema.processlist WHERE id <> CONNECTION_ID() AND user = 'root'")
        ids = [number for (number,) in cursor.fetchall()]
        for number in ids:
            with suppress(pymysql.err.MySQLError):
                cursor.execute(f"KILL {'TIDB ' if self.server.kind == 'tidb' else ''}{number}")
        return bool(ids)

    def decide(self, summary: RoundSummary) -> bool:
        """Do what the program asks the operator for where a statement can neither be seen nor repeated; whether it did."""
        asked = [table for table in summary.halted if UNKNOWABLE in table.error]
        journal = f"{STATE_SCHEMA}.ddl_journal"
        for table in asked:
            for statement, version in self.server.query(
                f"SELECT statement, version FROM {journal} WHERE state = 'started'"
            ):
                state = "done" if self.effects.took_effect(statement, version) else "planned"
                with self.server.connect() as connection, connection.cursor() as cursor:
                    where = "WHERE state = 'started' AND version = %s AND statement = %s"
                    cursor.execute(f"UPDATE {journal} SET state = %s {where}", (state, version, statement))
                self.key_drift += 1 if table is asked[0] else 0
        return bool(asked)


@contextmanager
def watched(points: Points) -> Iterator[None]:
    """The program's calls to the outside pass by `points`."""
    with ExitStack() as stack:
        for owner, name in WATCHED:
            original = getattr(owner, name)
            setattr(owner, name, _passing(points, original, name))
            stack.callback(setattr, owner, name, original)
        yield


def _passing(points: Points, original: Callable[..., Any], name: str) -> Callable[..., Any]:
    def call(self: object, *args: Any, **kwargs: Any) -> Any:
        what = _described(name, args, kwargs)
        points.pass_by(name, what)
        if name == "execute_ddl":
            statement, _, version = args[:3]
            result = points.effects.note(lambda: original(self, *args, **kwargs), statement, version)
        else:
            result = original(self, *args, **kwargs)
        points.came_through(name, what)
        return result

    return call


def _described(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """The same text for the same call of another process."""
    if name == "run":
        return ", ".join(sorted(f"{work.table_key} {work.commit_range}" for work in args[0].tables))
    if name == "record":
        return f"{args[0].identity} {args[1]}"
    given = [list(value) if isinstance(value, Iterator) else value for value in (*args, *kwargs.values())]
    # When a file was listed is another moment in each process.
    return re.sub(r"listed_at=\d+", "listed_at", repr(given))


def finished(replay: Replay, points: Points) -> RoundSummary:
    """Start processes until one finishes its round; its summary. Raises `NeverEnds`."""
    for _ in range(MOST_PROCESSES):
        with replay.consumer() as consumer:
            try:
                summary: RoundSummary = consumer.run_once()
                points.pass_by("the end", str(summary.storage_checkpoint))
            except Crash:
                points.bury()
                continue
        if not points.decide(summary):
            return summary
    message = f"{replay.corpus}: {MOST_PROCESSES} processes did not finish a round; points: {[*points.ended_at][-3:]}"
    raise NeverEnds(message)


def round_to(replay: Replay, cut: Cut, points: Points) -> RoundSummary:
    """One round by as many processes as it takes, after which the target must be as the source was at `cut`."""
    replay.corpus.materialise(cut, replay.bucket)
    summary = finished(replay, points)
    replay.check(cut, summary)
    return summary


@contextmanager
def general_log(server: DatabaseServer) -> Iterator[None]:
    """The server notes every statement from now on; TiDB has no such table."""
    if server.kind == "tidb":
        yield
        return
    server.query("SET GLOBAL general_log = OFF")
    server.query("TRUNCATE TABLE mysql.general_log")
    server.query("SET GLOBAL log_output = 'TABLE'")
    server.query("SET GLOBAL general_log = ON")
    try:
        yield
    finally:
        server.query("SET GLOBAL general_log = OFF")


def logged(server: DatabaseServer) -> Counter[str]:
    """Text of a statement → how often the server got it."""
    rows = server.query("SELECT argument FROM mysql.general_log WHERE command_type = 'Query'")
    return Counter(text.decode() if isinstance(text, bytes) else str(text) for (text,) in rows)
