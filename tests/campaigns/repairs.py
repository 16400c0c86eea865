"""``python -m tests.campaigns repairs``: rows of the target are damaged and mended by ``verify --repair``, while both sides go on and are killed.

There is no TiCDC here: the campaign commits small transactions at a TiDB, and writes each with its commit-ts into a bucket, as the storage sink
does. Rows of each type under a key of text and bytes are among them; half-way the large table gets a column. Triggers tell which rows the
repairs touch. Exit code 1 when a table is not equal in the end, or a row was touched that nobody had damaged.
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
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pymysql
from pymysql.converters import encoders

from storage_consumer.bucket.table_statements import read_create_table
from storage_consumer.config.settings import CsvOptions
from storage_consumer.model import DdlKind, TableColumn, TableName
from tests.contract.test_verify_repair import TYPES, VALUES
from tests.harness.program import ROOT, Program, command, program
from tests.harness.servers import DatabaseServer, mariadb, tidb
from tests.harness.small_bucket import CREATE_TABLE, SmallBucket
from tests.property.csv_encoding import Source

_TABLES = ("big", "s1", "s2", "s3")
_FLUSH = 1.0
"""Seconds between two files of a table."""
_OF_A_TRANSACTION = 10
_CREATE = "CREATE TABLE {} (id BIGINT PRIMARY KEY, name VARCHAR(20))"
_NAMES = [f"c{number}" for number in range(len(TYPES))]
_KINDS = (
    "CREATE TABLE {} (a VARCHAR(20) COLLATE utf8mb4_general_ci, b VARBINARY(6), "
    + ", ".join(map(" ".join, zip(_NAMES, TYPES, strict=True)))
    + ", PRIMARY KEY (a, b))"
)
_INSERT = f"INSERT INTO d.kinds (a, b, {', '.join(_NAMES)}) VALUES (%s, %s{', %s' * len(TYPES)})"
# TiDB shows a larger FLOAT with six digits, unlike TiCDC.
_VALUES = tuple(1.5 if kind == "FLOAT" else value for kind, value in zip(TYPES, VALUES, strict=True))
_CHANGED = _NAMES[TYPES.index("VARCHAR(40)")]
_ADDED = "ADD COLUMN `note` VARCHAR(20) DEFAULT 'n'"
Key = int | tuple[str, bytes]
Event = tuple[str, str, Key, str]
"""Operation, table, key, the row's fields in a file."""


def _key(number: int) -> tuple[str, bytes]:
    """The key of a row of `kinds`, with letters of either case, and blanks at its end."""
    return f"{'Kk'[number % 2]}{number}{' ' * (number % 3)}", number.to_bytes(2) + b" "


def _is_respelt(a: str) -> bool:
    """Whether damage may give this row's key another spelling."""
    return int(a.strip()[1:]) % 4 == 0


def _rows(many: int) -> list[tuple[object, ...]]:
    """Rows of `kinds`, in turn of values and of NULLs."""
    return [(*_key(number), *(_VALUES if number % 2 else [None] * len(TYPES))) for number in range(many)]


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
    alter: threading.Event = field(default_factory=threading.Event)
    """Set: the large table gets a column."""
    stop: threading.Event = field(default_factory=threading.Event)
    _numbers: Counter[str] = field(default_factory=Counter)
    _pending: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    _next: int = 1 << 40
    _altered: int = 0
    """Version of the statement that gives the large table a column; 0 before."""
    _kinds: tuple[TableColumn, ...] = ()
    """Columns of the table of all types."""

    @property
    def many(self) -> int:
        """Rows of the table of all types."""
        return self.rows // 20

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
        query(_KINDS.format("d.kinds"))
        with self.source.connect() as connection, connection.cursor() as cursor:
            cursor.executemany(_INSERT, _rows(self.many))
        self._kinds = read_create_table(query("SHOW CREATE TABLE d.kinds")[0][1]).columns
        self.began = self.committed = self.source.tso()
        self.bucket.schema("d", self.began - 2, "CREATE DATABASE `d`", 1)
        columns = [
            {"ColumnName": "id", "ColumnType": "BIGINT", "ColumnNullable": "false", "ColumnIsPk": "true"},
            {"ColumnName": "name", "ColumnType": "VARCHAR", "ColumnPrecision": "20"},
        ]
        self.bucket.schema("d.kinds", self.began, "", 0, [_told_of(column) for column in self._kinds])
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
        with self.source.connect(autocommit=False, conv=encoders) as connection, connection.cursor() as cursor:
            while not self.stop.is_set():
                done += self._transaction(cursor, connection)
                if time.monotonic() - flushed >= _FLUSH:
                    self._flush()
                    flushed = time.monotonic()
                if self.alter.is_set() and not self._altered:
                    self._alter()
                self.stop.wait(max(0.0, began + done / self.rate - time.monotonic()))
        self._flush()

    def _transaction(self, cursor: Any, connection: Any) -> int:
        events: list[Event] = []
        for _ in range(_OF_A_TRANSACTION):
            table = self.dice.choice((*_TABLES, "big", "big", "kinds"))
            events += self._change_kinds(cursor) if table == "kinds" else self._change(cursor, table)
        connection.commit()
        cursor.execute("SELECT @@tidb_last_txn_info")
        ts = int(json.loads(cursor.fetchall()[0][0])["commit_ts"])
        connection.commit()
        for operation, table, _, fields in _net(events):
            self._pending[table].append(f'"{operation}","{table}","d",{ts},{fields}')
            self.changes[operation] += 1
        self.committed = ts if events else self.committed
        return _OF_A_TRANSACTION

    def _change(self, cursor: Any, table: str) -> list[Event]:
        """Change one row; return the events of that, none where there was no such row."""
        self._next += 1
        name, new = f"v{self._next}", self._next
        more = ',"n"' if table == "big" and self._altered else ""
        old = (
            self.dice.randrange(self.rows)
            if table == "big" and self.dice.random() < 0.8
            else self._next - self.dice.randrange(1, 2000)
        )
        act = self.dice.random()
        if act < 0.35:
            cursor.execute(f"INSERT INTO d.{table} (id, name) VALUES (%s, %s)", (new, name))
            return [("I", table, new, f'{new},"{name}"{more}')]
        if act < 0.8:
            found = cursor.execute(f"UPDATE d.{table} SET name = %s WHERE id = %s", (name, old))
            return [("U", table, old, f'{old},"{name}"{more}')] * found
        if act < 0.95:
            found = cursor.execute(f"DELETE FROM d.{table} WHERE id = %s", (old,))
            return [("D", table, old, f'{old},""{more}')] * found
        found = cursor.execute(f"UPDATE d.{table} SET id = %s, name = %s WHERE id = %s", (new, name, old))
        return [("D", table, old, f'{old},""{more}'), ("I", table, new, f'{new},"{name}"{more}')] * found

    def _change_kinds(self, cursor: Any) -> list[Event]:
        """Change a row of the table of all types, or make one again that was deleted."""
        self._next += 1
        number = self.dice.randrange(self.many)
        key = _key(number)
        before = self._fields(cursor, key)
        # One in another spelling would be in the way of a row that comes anew, and halt the table.
        if before and not _is_respelt(key[0]) and self.dice.random() < 0.2:
            cursor.execute("DELETE FROM d.kinds WHERE a = %s AND b = %s", key)
            return [("D", "kinds", key, before)]
        if before:
            changed = f"UPDATE d.kinds SET {_CHANGED} = %s WHERE a = %s AND b = %s"
            cursor.execute(changed, (f"v{self._next}", *key))
        else:
            cursor.execute(_INSERT, (*key, *_VALUES))
        return [("U" if before else "I", "kinds", key, self._fields(cursor, key))]

    def _fields(self, cursor: Any, key: Key) -> str:
        """A row of the table of all types as a file has it, empty if there is none."""
        columns = self._kinds
        names = ", ".join(f"{column.name} + 0" if column.type == "BIT" else column.name for column in columns)
        cursor.execute(f"SELECT {names} FROM d.kinds WHERE a = %s AND b = %s", key)
        source = Source(
            options=CsvOptions(include_commit_ts=True),
            handle_key=False,
            table=TableName(schema="d", table="kinds"),
            columns=columns,
            written=tuple(range(len(columns))),
        )
        return "".join(",".join(map(source.field, columns, row)) for row in cursor.fetchall())

    def _alter(self) -> None:
        """Give the large table a column, as a statement of the bucket, with the rows after it in its own version."""
        self._flush()
        self.source.query(f"ALTER TABLE d.big {_ADDED}")
        self._altered = self.committed = self.source.tso()
        columns = [
            {"ColumnName": "id", "ColumnType": "BIGINT", "ColumnNullable": "false", "ColumnIsPk": "true"},
            {"ColumnName": "name", "ColumnType": "VARCHAR", "ColumnPrecision": "20"},
            {"ColumnName": "note", "ColumnType": "VARCHAR", "ColumnPrecision": "20", "ColumnDefault": "n"},
        ]
        self.bucket.schema("d.big", self._altered, f"ALTER TABLE `d`.`big` {_ADDED}", DdlKind.ADD_COLUMN, columns)
        self._numbers["big"] = 0

    def _flush(self) -> None:
        for table, lines in self._pending.items():
            if lines:
                self._numbers[table] += 1
                version = (table == "big" and self._altered) or self.began
                path = self.bucket.file(f"d.{table}", self._numbers[table], version=version)
                self.bucket.write(
                    path.relative_to(self.bucket.root).as_posix(), "".join(f"{line}\r\n" for line in lines)
                )
        self._pending.clear()
        self.bucket.metadata(self.committed)


def _net(events: list[Event]) -> list[Event]:
    """Return what a transaction did to each row in the end, as TiCDC tells it: one event for each key."""
    by_key: defaultdict[tuple[str, Key], list[Event]] = defaultdict(list)
    for event in events:
        by_key[event[1], event[2]].append(event)
    found = []
    for (table, key), some in by_key.items():
        is_new, (last, _, _, fields) = some[0][0] == "I", some[-1]
        if last != "D":
            found.append(("I" if is_new else "U", table, key, fields))
        elif not is_new:
            found.append(("D", table, key, fields))
    return found


def _told_of(column: TableColumn) -> dict[str, Any]:
    """A column as a schema file lists it."""
    sizes = {"ColumnPrecision": column.precision, "ColumnScale": column.scale}
    return {
        "ColumnName": column.name,
        "ColumnType": column.type + " UNSIGNED" * column.unsigned,
        **{name: str(size) for name, size in sizes.items() if size is not None},
        **({} if column.nullable else {"ColumnNullable": "false"}),
        **({"ColumnIsPk": "true"} if column.is_pk else {}),
        **({"ColumnElems": column.elements} if column.elements else {}),
    }


def main() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=20_000, help="of the large table")
    parser.add_argument("--changes", type=int, default=500, help="a second")
    parser.add_argument("--kills", type=int, default=100, help="of the program or of a repair")
    parser.add_argument("--minutes", type=int, default=90, help="after which nothing is killed any more")
    parser.add_argument("--planted", type=int, default=1_000, help="differences at first")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, tidb() as source, mariadb() as target:
        return repaired(Path(folder), source, target, asked)


_DAMAGE = 40
"""Rows that each later round of damage makes differ."""


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
    verify = ["verify", "--json", "--table", "d.*", "--source", _uri(source)]
    repair = [*verify, "--repair", "--repair-limit", "5000", "--downstream-uri", target.uri.replace("root", _MENDER)]
    found: Counter[str] = Counter()
    planted: set[str] = set()
    until = time.monotonic() + asked.minutes * 60
    kills, rounds, run = 0, 0, [*run, "--start-ts", str(feed.began)]
    while kills < asked.kills and time.monotonic() < until:
        with program(run, folder / "log") as running:
            if not rounds:
                begin(running, feed, target)
                _watch(target)
                changing.start()
            if kills >= asked.kills // 2 or time.monotonic() > until - asked.minutes * 30:
                feed.alter.set()
            # Until the program is killed.
            while running.process.poll() is None and kills < asked.kills and time.monotonic() < until:
                rounds += 1
                planted |= _damage(target, dice, asked.rows, _DAMAGE if rounds > 1 else asked.planted)
                killed, said = _mended(repair, dice, running)
                kills, found = kills + killed, found + said
    feed.stop.set()
    changing.join()
    with program(run, folder / "log") as running:
        running.wait_for("round_finished", checkpoint=feed.committed)
        last = [command(*repair, seconds=600), command(*verify, server=target, seconds=600)]
    touched = {key for (key,) in target.query("SELECT DISTINCT k FROM touched.log")}
    others = sorted(touched - planted)
    print(
        f"{kills} kills in {rounds} rounds; {sum(feed.changes.values())} rows changed at the source, up to {feed.committed}; "
        f"{len(planted)} rows damaged, {len(touched)} mended, {len(others)} others touched {others[:5]}; {feed.fault or 'no fault'}",
        *(f"at the end: {', '.join(_told(each.stdout)) or each.stderr}" for each in last),
        *sorted(f"{many} {what}" for what, many in found.items()),
        sep="\n",
        flush=True,
    )
    return int(bool(feed.fault or others) or any(each.returncode for each in last))


_MENDER = "mender"
"""The account of the repairs."""


def _watch(target: DatabaseServer) -> None:
    """Keep the keys of the rows that repairs delete, insert or update."""
    for statement in (
        "CREATE DATABASE touched",
        "CREATE TABLE touched.log (k VARCHAR(200))",
        f"CREATE USER {_MENDER}@'%'",
        f"GRANT ALL ON *.* TO {_MENDER}@'%'",
    ):
        target.query(statement)
    for table, key in (("big", "{0}.id"), ("kinds", "CONCAT(HEX({0}.a), ':', HEX({0}.b))")):
        for action, row in (("INSERT", "NEW"), ("UPDATE", "OLD"), ("DELETE", "OLD")):
            target.query(
                f"CREATE TRIGGER d.{table}_{action} AFTER {action} ON d.{table} FOR EACH ROW "
                f"INSERT INTO touched.log SELECT {key.format(row)} FROM DUAL WHERE USER() LIKE '{_MENDER}@%'"
            )


def _mended(repair: list[str], dice: random.Random, running: Program) -> tuple[int, Counter[str]]:
    """Run one comparison that mends, or two at once; kill one of them or the program most times. Return how many were killed, and what they said."""
    found: Counter[str] = Counter()
    some = [
        subprocess.Popen(
            [sys.executable, "-m", "storage_consumer", *repair], cwd=ROOT, stdout=subprocess.PIPE, text=True
        )
        for _ in range(dice.choice((1, 1, 2)))
    ]
    killed = dice.random() < 0.8
    if killed:
        time.sleep(dice.uniform(0.5, 10))
        if dice.random() < 0.5:
            running.kill()
        # Without the program a repair would wait for it to come back.
        for each in some if running.process.poll() is not None else [dice.choice(some)]:
            each.kill()
    for each in some:
        said = each.communicate()[0]
        found.update(_told(said) if said else [f"code {each.returncode}"])
    return int(killed), found


def begin(running: Program, feed: Changefeed, target: DatabaseServer) -> None:
    """Give the target the rows of the large table, as the program expects with --start-ts, before anything changes."""
    running.wait_for("round_finished", checkpoint=feed.began)
    target.query(_CREATE.format("d.big"))
    target.query(_KINDS.format("d.kinds"))
    with target.connect() as connection, connection.cursor() as cursor:
        cursor.executemany(_INSERT, _rows(feed.many))
        cursor.executemany("INSERT INTO d.big VALUES (%s, %s)", feed.source.query("SELECT id, name FROM d.big"))


def _told(said: str) -> list[str]:
    """What became of the tables, without their numbers."""
    return [
        " ".join(
            [table["outcome"], *(re.sub(r"[0-9,]+", "N", note) for note in table["notes"]), table["reason"]]
        ).strip()
        for table in json.loads(said)["tables"]
    ]


def _damage(target: DatabaseServer, dice: random.Random, rows: int, many: int) -> set[str]:
    """Make rows differ: other values, rows that are missing, and rows that nobody wrote. Return their keys."""
    keys = [dice.randrange(rows) for _ in range(many // 2)]
    third = len(keys) // 3
    target.query(f"UPDATE d.big SET name = 'damaged' WHERE id IN ({', '.join(map(str, keys[:third]))})")
    target.query(f"DELETE FROM d.big WHERE id IN ({', '.join(map(str, keys[third : 2 * third]))})")
    surplus = [-1 - key for key in keys[2 * third :]]
    target.query("INSERT IGNORE INTO d.big (id, name) VALUES " + ", ".join(f"({key}, 'surplus')" for key in surplus))
    return {str(key) for key in (*keys[: 2 * third], *surplus)} | _damage_kinds(target, dice, many // 2)


def _damage_kinds(target: DatabaseServer, dice: random.Random, many: int) -> set[str]:
    """The same of rows of all types: one column after another, and keys in another spelling."""
    there = target.query("SELECT a, b FROM d.kinds")
    planted: set[str] = set()
    does: tuple[str, tuple[object, ...]]
    with target.connect() as connection, connection.cursor() as cursor:
        for number, (a, b) in enumerate(dice.sample(there, min(many, len(there)))):
            place, keys = number // 4 % len(TYPES), [(a, b)]
            where = "WHERE a = %s AND b = %s"
            if number % 4 == 0:
                name = _NAMES[place]
                does = f"UPDATE d.kinds SET {name} = IF({name} IS NULL, %s, NULL) {where}", (_VALUES[place], a, b)
            elif number % 4 == 1:
                does = f"DELETE FROM d.kinds {where}", (a, b)
            elif number % 4 == 2 and _is_respelt(a):
                keys.append((a.swapcase(), b))
                does = f"UPDATE d.kinds SET a = %s {where}", (a.swapcase(), a, b)
            else:
                keys = [(f"S{dice.randrange(1 << 30)} ", b)]
                does = _INSERT, (*keys[0], *_VALUES)
            # The program writes there as well.
            with suppress(pymysql.OperationalError):
                cursor.execute(*does)
                planted.update(f"{a.encode().hex().upper()}:{b.hex().upper()}" for a, b in keys)
    return planted


def _uri(source: DatabaseServer) -> str:
    return f"tidb://root@127.0.0.1:{source.port}/"


if __name__ == "__main__":
    sys.exit(main())
