"""``python -m tests.campaigns repairs``: rows of the target are damaged and mended by ``verify --repair``, while both sides go on and are killed.

There is no TiCDC here: the campaign commits small transactions at a TiDB, and writes each with its commit-ts into a bucket, as the storage sink
does. Exit code 1 when a table is not equal in the end.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.harness.program import ROOT, Program, command, program
from tests.harness.servers import DatabaseServer, mariadb, tidb
from tests.harness.small_bucket import CREATE_TABLE, SmallBucket

_TABLES = ("big", "s1", "s2", "s3")
_FLUSH = 1.0
"""Seconds between two files of a table."""
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


def main() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=20_000, help="of the large table")
    parser.add_argument("--changes", type=int, default=500, help="a second")
    parser.add_argument("--rounds", type=int, default=30, help="of damage")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, tidb() as source, mariadb() as target:
        return repaired(Path(folder), source, target, asked)


_DAMAGE = 40
"""Rows that each round of damage makes differ."""


def repaired(folder: Path, source: DatabaseServer, target: DatabaseServer, asked: argparse.Namespace) -> int:
    """Damage rows of the target again and again, and mend them while both sides go on; kill the program or `verify` at random moments."""
    dice = random.Random(asked.seed)  # noqa: S311 - not for secrets
    bucket = WholeFiles(root=folder / "bucket")
    feed = Changefeed(source=source, bucket=bucket, rate=asked.changes, rows=asked.rows, dice=random.Random(asked.seed))  # noqa: S311 - not for secrets
    feed.prepare()
    (folder / "changefeed.toml").write_text("[sink.csv]\ninclude-commit-ts = true\n", encoding="utf-8")
    ends = ["--upstream-uri", bucket.uri, "--downstream-uri", target.uri]
    run = [*ends, "--config", str(folder / "changefeed.toml"), "--tz", "UTC", "--flush-interval", "1s"]
    changing = threading.Thread(target=feed.run, daemon=True)
    repair = [
        *["verify", "--repair", "--json", "--table", "d.big", "--source"],
        _uri(source),
        "--downstream-uri",
        target.uri,
    ]
    found: Counter[str] = Counter()
    rounds, run = 0, [*run, "--start-ts", str(feed.began)]
    while rounds < asked.rounds:
        with program(run, folder / "log") as running:
            if not rounds:
                begin(running, feed, target)
                changing.start()
            for _ in range(dice.randrange(1, 12)):
                rounds += 1
                _damage(target, dice, asked.rows)
                found += _mended(repair, dice)
            running.kill()
    feed.stop.set()
    changing.join()
    with program(run, folder / "log") as running:
        running.wait_for("round_finished", checkpoint=feed.committed)
        print(f"{rounds} rounds of {_DAMAGE} rows: {dict(found)}", flush=True)
        last = [command(*repair, seconds=600), command(*(word for word in repair if word != "--repair"), seconds=600)]
    print(*(each.stdout for each in last))
    return int(bool(feed.fault) or any(each.returncode for each in last))


def _mended(repair: list[str], dice: random.Random) -> Counter[str]:
    """Run one comparison that mends, or two at once, and kill one of them half of the time; return what they said."""
    found: Counter[str] = Counter()
    some = [
        subprocess.Popen(
            [sys.executable, "-m", "storage_consumer", *repair], cwd=ROOT, stdout=subprocess.PIPE, text=True
        )
        for _ in range(dice.choice((1, 1, 2)))
    ]
    if dice.random() < 0.5:
        time.sleep(dice.uniform(0.5, 14))
        dice.choice(some).kill()
    for each in some:
        said = each.communicate()[0]
        found[_told(said) if said else f"code {each.returncode}"] += 1
    return found


def begin(running: Program, feed: Changefeed, target: DatabaseServer) -> None:
    """Give the target the rows of the large table, as the program expects with --start-ts, before anything changes."""
    running.wait_for("round_finished", checkpoint=feed.began)
    target.query(_CREATE.format("d.big"))
    with target.connect() as connection, connection.cursor() as cursor:
        cursor.executemany("INSERT INTO d.big VALUES (%s, %s)", feed.source.query("SELECT id, name FROM d.big"))


def _told(said: str) -> str:
    """What became of a table, without its numbers."""
    (table,) = json.loads(said)["tables"]
    notes = " ".join(re.sub(r"[0-9,]+", "N", note) for note in table["notes"])
    return f"{table['outcome']} {notes} {table['reason']}".strip()


def _damage(target: DatabaseServer, dice: random.Random, rows: int) -> None:
    """Make rows of the large table differ: other values, rows that are missing, and rows that nobody wrote."""
    keys = [dice.randrange(rows) for _ in range(_DAMAGE)]
    third = _DAMAGE // 3
    target.query(f"UPDATE d.big SET name = 'damaged' WHERE id IN ({', '.join(map(str, keys[:third]))})")
    target.query(f"DELETE FROM d.big WHERE id IN ({', '.join(map(str, keys[third : 2 * third]))})")
    target.query(
        "INSERT IGNORE INTO d.big VALUES " + ", ".join(f"({-1 - key}, 'surplus')" for key in keys[2 * third :])
    )


def _uri(source: DatabaseServer) -> str:
    return f"tidb://root@127.0.0.1:{source.port}/"


if __name__ == "__main__":
    sys.exit(main())
