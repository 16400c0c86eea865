"""``python -m tests.campaigns live``: a large table is loaded from a live TiDB while it and three small ones change, and is compared all the time.

There is no TiCDC here: the campaign commits small transactions at a TiDB, and writes each with its commit-ts into a bucket, as the storage sink
does. The small tables stream from the beginning. The large one is paused, exported with ``load --source`` and loaded, while changes go on; then
``verify`` compares all tables again and again. Exit code 1 when a comparison finds a difference, a checkpoint falls, or the end is not equal.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from storage_consumer.model import physical_ms
from tests.harness.program import Program, command, program
from tests.harness.servers import DatabaseServer, mariadb, tidb
from tests.harness.small_bucket import CREATE_TABLE, SmallBucket
from tests.harness.waiting import wait_until

_TABLES = ("big", "s1", "s2", "s3")
_FLUSH = 1.0
"""Seconds between two files of a table."""
_INTERVAL = 5.0
"""The ``flush-interval`` of the program, in seconds: its default."""
_OF_A_TRANSACTION = 10
_CREATE = "CREATE TABLE {} (id BIGINT PRIMARY KEY, name VARCHAR(20))"
Event = tuple[str, str, int, str]
"""Operation, table, id, name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeFiles(SmallBucket):
    """A bucket whose files show only when they are whole."""

    def write(self, path: str, content: str | bytes) -> Path:
        """Write a file under another name, and give it its own."""
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        part = self.root.with_name("unfinished")
        part.write_bytes(content.encode() if isinstance(content, str) else content)
        return part.replace(target)


@dataclass(slots=True, kw_only=True)
class Changefeed:
    """Changes a TiDB, and writes what it changed into a bucket."""

    source: DatabaseServer
    bucket: SmallBucket
    rate: int
    rows: int
    dice: random.Random
    began: int = 0
    committed: int = 0
    """The last commit-ts that is in the bucket, with all before it."""
    changes: Counter[str] = field(default_factory=Counter)
    fault: Exception | None = None
    stop: threading.Event = field(default_factory=threading.Event)
    _numbers: Counter[str] = field(default_factory=Counter)
    _pending: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    _next: int = 1 << 40

    def prepare(self) -> None:
        """Make the tables, the rows of the large one, and the schema files."""
        query = self.source.query
        self.source.allow_snapshots()
        query("CREATE DATABASE d CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")
        for table in _TABLES:
            query(_CREATE.format(f"d.{table}"))
        query("INSERT INTO d.big VALUES " + ", ".join(f"({number}, 'before')" for number in range(1000)))
        have = 1000
        while have < self.rows:
            more = min(have, self.rows - have, 50_000)
            query(f"INSERT INTO d.big SELECT id + {have}, name FROM d.big WHERE id < {more}")
            have += more
        self.began = self.committed = self.source.tso()
        self.bucket.schema("d", self.began - 2, "CREATE DATABASE `d`", 1)
        columns = [
            {"ColumnName": "id", "ColumnType": "BIGINT", "ColumnNullable": "false", "ColumnIsPk": "true"},
            {"ColumnName": "name", "ColumnType": "VARCHAR", "ColumnPrecision": "20"},
        ]
        for table in _TABLES:
            told = ("", 0) if table == "big" else (_CREATE.format(f"`{table}`"), CREATE_TABLE)
            self.bucket.schema(f"d.{table}", self.began, *told, columns)
        self.bucket.metadata(self.began)

    def run(self) -> None:
        """Go on until `stop`; then everything that was committed is in the bucket."""
        try:
            self._run()
        except Exception as fault:  # noqa: BLE001 - told at the end
            self.fault = fault

    def _run(self) -> None:
        began, done, flushed = time.monotonic(), 0, time.monotonic()
        with self.source.connect(autocommit=False) as connection, connection.cursor() as cursor:
            while not self.stop.is_set():
                done += self._transaction(cursor, connection)
                if time.monotonic() - flushed >= _FLUSH:
                    self._flush()
                    flushed = time.monotonic()
                self.stop.wait(max(0.0, began + done / self.rate - time.monotonic()))
        self._flush()

    def _transaction(self, cursor: Any, connection: Any) -> int:
        events: list[Event] = []
        for _ in range(_OF_A_TRANSACTION):
            events += self._change(cursor, self.dice.choice((*_TABLES, "big", "big")))
        connection.commit()
        cursor.execute("SELECT @@tidb_last_txn_info")
        ts = int(json.loads(cursor.fetchall()[0][0])["commit_ts"])
        connection.commit()
        for operation, table, key, name in _net(events):
            self._pending[table].append(f'"{operation}","{table}","d",{ts},{key},"{name}"')
            self.changes[operation] += 1
        self.committed = ts if events else self.committed
        return _OF_A_TRANSACTION

    def _change(self, cursor: Any, table: str) -> list[Event]:
        """Change one row; return the events of that, none where there was no such row."""
        self._next += 1
        name, new = f"v{self._next}", self._next
        old = (
            self.dice.randrange(self.rows)
            if table == "big" and self.dice.random() < 0.8
            else self._next - self.dice.randrange(1, 2000)
        )
        act = self.dice.random()
        if act < 0.35:
            cursor.execute(f"INSERT INTO d.{table} VALUES (%s, %s)", (new, name))
            return [("I", table, new, name)]
        if act < 0.8:
            found = cursor.execute(f"UPDATE d.{table} SET name = %s WHERE id = %s", (name, old))
            return [("U", table, old, name)] * found
        if act < 0.95:
            found = cursor.execute(f"DELETE FROM d.{table} WHERE id = %s", (old,))
            return [("D", table, old, "")] * found
        found = cursor.execute(f"UPDATE d.{table} SET id = %s, name = %s WHERE id = %s", (new, name, old))
        return [("D", table, old, ""), ("I", table, new, name)] if found else []

    def _flush(self) -> None:
        for table, lines in self._pending.items():
            if lines:
                self._numbers[table] += 1
                path = self.bucket.file(f"d.{table}", self._numbers[table], version=self.began)
                self.bucket.write(
                    path.relative_to(self.bucket.root).as_posix(), "".join(f"{line}\r\n" for line in lines)
                )
        self._pending.clear()
        self.bucket.metadata(self.committed)


def _net(events: list[Event]) -> list[Event]:
    """Return what a transaction did to each row in the end, as TiCDC tells it: one event for each key."""
    by_key: defaultdict[tuple[str, int], list[Event]] = defaultdict(list)
    for event in events:
        by_key[event[1], event[2]].append(event)
    found = []
    for (table, key), some in by_key.items():
        is_new, (last, _, _, name) = some[0][0] == "I", some[-1]
        if last != "D":
            found.append(("I" if is_new else "U", table, key, name))
        elif not is_new:
            found.append(("D", table, key, ""))
    return found


_PLAIN_SECONDS, _ROUNDS = 60, 10
"""How long nothing but the stream goes on, and how many rounds of it count."""


@dataclass(slots=True, kw_only=True)
class Watcher:
    """Reads the published checkpoints twice a second."""

    target: DatabaseServer
    feed: Changefeed
    fell: list[str] = field(default_factory=list)
    longest: float = 0.0
    """Most seconds that the running tables were behind the bucket."""
    stop: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Go on until `stop`."""
        before = (0, 0)
        while not self.stop.wait(0.5):
            ((*now,),) = self.target.query("SELECT checkpoint, checkpoint_running FROM storage_consumer.feed")
            if now[0] < before[0] or now[1] < before[1]:
                self.fell.append(f"{before} -> {now}")
            before = (now[0], now[1])
            behind = (physical_ms(self.feed.committed) - physical_ms(now[1])) / 1000
            self.longest = max(self.longest, behind)

    def since(self) -> float:
        """Return the longest lag since the last call."""
        found, self.longest = self.longest, 0.0
        return found


def main() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000, help="of the large table")
    parser.add_argument("--changes", type=int, default=500, help="a second")
    parser.add_argument("--minutes", type=float, default=10.0, help="of comparisons")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, tidb() as source, mariadb() as target:
        return _story(Path(folder), source, target, asked)


def _story(folder: Path, source: DatabaseServer, target: DatabaseServer, asked: argparse.Namespace) -> int:
    bucket = WholeFiles(root=folder / "bucket")
    feed = Changefeed(source=source, bucket=bucket, rate=asked.changes, rows=asked.rows, dice=random.Random(asked.seed))  # noqa: S311 - not for secrets
    feed.prepare()
    (folder / "changefeed.toml").write_text("[sink.csv]\ninclude-commit-ts = true\n", encoding="utf-8")
    ends = ["--upstream-uri", bucket.uri, "--downstream-uri", target.uri]
    run = [*ends, "--config", str(folder / "changefeed.toml"), "--tz", "UTC", "--flush-interval", f"{_INTERVAL:g}s"]
    watcher = Watcher(target=target, feed=feed)
    changing = threading.Thread(target=feed.run, daemon=True)
    with program(run, folder / "log") as running:
        running.wait_for("round_finished", checkpoint=feed.began)
        watching = threading.Thread(target=watcher.run, daemon=True)
        _typed("table", "pause", "--table", "d.big", "--downstream-uri", target.uri)
        wait_until("big is paused", lambda: "paused" in _typed("table", "--downstream-uri", target.uri))
        changing.start()
        watching.start()
        time.sleep(15)
        print(f"streaming: at most {watcher.since():.1f} s behind the bucket", flush=True)
        _load(folder, source, ends, target)
        print(
            f"while one table is loaded: the others at most {watcher.since():.1f} s behind (flush-interval {_INTERVAL:g} s)",
            flush=True,
        )
        time.sleep(_PLAIN_SECONDS)
        plain = _cost(running)
        print(f"streaming: at most {watcher.since():.1f} s behind, {plain[1]}", flush=True)
        wrong = _compared(source, target, asked.minutes)
        print(
            f"while tables are compared: at most {watcher.since():.1f} s behind, {_cost(running, plain[0])[1]}",
            flush=True,
        )
        feed.stop.set()
        changing.join()
        wait_until(
            "all is applied",
            lambda: target.query("SELECT checkpoint FROM storage_consumer.feed") == ((feed.committed,),),
        )
        watcher.stop.set()
        watching.join()
        wrong += _compared(source, target, 0)
    print(
        f"{sum(feed.changes.values()):,} changes {dict(feed.changes)}, checkpoints that fell: {watcher.fell or 'none'}"
    )
    if feed.fault:
        print(f"the feed failed: {feed.fault!r}")
    return int(bool(wrong or watcher.fell or feed.fault))


def _cost(running: Program, known: int = 0) -> tuple[int, str]:
    """How many rounds there are by now, and what a row took in those after the `known` ones, or in the last dozen."""
    rounds = [each for each in running.events("round_finished") if each["rows"]]
    some = rounds[known or -_ROUNDS :]
    rows, seconds = sum(each["rows"] for each in some), sum(each["seconds"] for each in some)
    return len(rounds), f"{1000 * seconds / max(rows, 1):.3f} ms for each of {rows:,} rows"


def _load(folder: Path, source: DatabaseServer, ends: list[str], target: DatabaseServer) -> None:
    """Export the large table and load it, and wait until it has caught up."""
    began = time.monotonic()
    export = (folder / "export").as_uri()
    said = _typed("load", "--table", "d.big", "--replace", "--source", _uri(source), "--dump", export, *ends)
    print(f"{said.splitlines()[0]}, in {time.monotonic() - began:.1f} s", flush=True)
    began = time.monotonic()
    listed = ("load", "--all", "--downstream-uri", target.uri)
    wait_until(
        "big is written",
        lambda: "d.big  loading" not in (shown := _typed(*listed)) and "d.big  requested" not in shown,
        1800,
    )
    print(f"loaded in {time.monotonic() - began:.1f} s", flush=True)
    wait_until("big has caught up", lambda: "d.big  done" in _typed(*listed), 1800)
    print(f"caught up after {time.monotonic() - began:.1f} s", flush=True)


def _compared(source: DatabaseServer, target: DatabaseServer, minutes: float) -> int:
    """Compare once, and again for so many minutes; return how often something else than equal was found."""
    found: Counter[str] = Counter()
    rows, until = 0, time.monotonic() + 60 * minutes
    while not found or time.monotonic() < until:
        text = _typed("verify", "--source", _uri(source), "--downstream-uri", target.uri, "--json")
        for table in json.loads(text)["tables"]:
            found[f"{table['outcome']} {table['reason']}".strip()] += 1
            rows += table["rows"]
            if table["outcome"] == "different":
                print(json.dumps(table, indent=1), flush=True)
    print(f"compared: {dict(found)}, {rows:,} rows", flush=True)
    return sum(count for outcome, count in found.items() if outcome.startswith("different")) + (
        not minutes and len(found) > 1
    )


def _uri(source: DatabaseServer) -> str:
    return f"tidb://root@127.0.0.1:{source.port}/"


def _typed(*words: str) -> str:
    """Run a command to its end; return what it printed. An error of its own ends the campaign."""
    done = command(*words, seconds=3600)
    if done.stderr or done.returncode not in (0, 1, 4):
        raise SystemExit(f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
