"""``python -m tests.campaigns load-kills``: kill -9 of the real command, JVM and workers included, while it loads an export.

The export has a table with a key, one without (with equal rows), one with a second unique key, and a wide one; the bucket has changes after it.
The command is killed at random instants and started again until so many kills are reached; then it ends, and the target must hold the export
and the changes: nothing lost, nothing doubled. A file that is finished is not read again: after each start the load's clock is where it was, or
later. Exit code 0 when every story ends equal, 1 when one does not.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pymysql.err

from tests.harness.class_archive import use_class_archive
from tests.harness.program import Program, program
from tests.harness.replay import NotEqual
from tests.harness.servers import SERVERS, DatabaseServer
from tests.harness.small_bucket import ID_NAME, SmallBucket, row, ts

KILLS = 10
"""Of each story."""
LONGEST = 5.0
"""Seconds after Spark's start within which a kill comes."""
WIDE = 60
_HEAD = "/*!40014 SET FOREIGN_KEY_CHECKS=0*/;\n/*!40101 SET NAMES binary*/;\n"
_COPY, _END = 5, 20
_PAIR = "  `id` int NOT NULL,\n  `name` varchar(20) DEFAULT NULL"
_WIDE = ",\n".join(f"  `c{number}` varchar(20) DEFAULT NULL" for number in range(WIDE))
TABLES: Mapping[str, str] = {
    "keyed": f"{_PAIR},\n  PRIMARY KEY (`id`)",
    "bag": _PAIR,
    "coded": f"{_PAIR},\n  PRIMARY KEY (`id`),\n  UNIQUE KEY `name` (`name`)",
    "wide": f"  `id` int NOT NULL,\n{_WIDE},\n  PRIMARY KEY (`id`)",
}
"""Table → its columns and keys."""


@dataclass(slots=True, kw_only=True)
class Story:
    """One export, the processes that load it, and their ends."""

    folder: Path
    server: DatabaseServer
    dice: random.Random
    rows: int
    """Of each table."""
    parts: int
    kills: int = 0
    loading: int = 0
    """Kills that came while something was being loaded."""
    clocks: dict[str, int] = field(default_factory=dict)

    def __call__(self) -> None:
        """From nothing to the end. Raises `NotEqual`."""
        bucket = self._bucket()
        for table in TABLES:
            self._export(table)
        while self.kills < KILLS:
            with self._program(bucket, "--flush-interval", "200ms") as running:
                running.wait_for("spark_started")
                time.sleep(self.dice.uniform(0.0, LONGEST))
                running.kill()
            self.kills += 1
            self._look_at_clocks()
        with self._program(bucket, "--once") as running:
            if running.end(300):
                raise NotEqual(running.text()[-3000:])
        self._check()

    def _bucket(self) -> SmallBucket:
        """Changes of two tables after the copy, and one before it, which the copy already has."""
        bucket = SmallBucket(root=self.folder / "bucket")
        for table in ("load.keyed", "load.coded"):
            bucket.schema(table, ts(1), "", 0, ID_NAME)
            early = row(table, 3, "1", '"early"', operation="U")
            late = row(table, 9, "1", '"late"', operation="U")
            bucket.rows(table, 1, early, late, row(table, 12, "-1", '"new"'))
        bucket.metadata(ts(_END))
        (self.folder / "changefeed.toml").write_text("[sink.csv]\ninclude-commit-ts = true\n", encoding="utf-8")
        return bucket

    def _export(self, table: str) -> None:
        folder = self.folder / "full"
        folder.mkdir(exist_ok=True)
        (folder / "load-schema-create.sql").write_text(f"{_HEAD}CREATE DATABASE `load`;\n", encoding="utf-8")
        create = f"{_HEAD}CREATE TABLE `{table}` (\n{TABLES[table]}\n) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;\n"
        (folder / f"load.{table}-schema.sql").write_text(create, encoding="utf-8")
        size = self.rows // self.parts
        for part in range(self.parts):
            values = ",\n".join(_values(table, number) for number in range(part * size + 1, (part + 1) * size + 1))
            text = f"{_HEAD}INSERT INTO `{table}` VALUES\n{values};\n"
            (folder / f"load.{table}.{part:09d}.sql").write_text(text, encoding="utf-8")
        text = f"Started dump at: 2026-11-22 20:40:44\nSHOW MASTER STATUS:\n\tLog: tidb-binlog\n\tPos: {ts(_COPY)}\n\tGTID:\n\n"
        (folder / "metadata").write_text(f"{text}Finished dump at: 2026-11-22 20:40:46\n", encoding="utf-8")

    def _program(self, bucket: SmallBucket, *more: str) -> AbstractContextManager[Program]:
        config = str(self.folder / "changefeed.toml")
        where = ["--upstream-uri", bucket.uri, "--config", config, "--downstream-uri", self.server.uri, "--tz", "UTC"]
        copy = ["--dump", (self.folder / "full").as_uri(), "--start-ts", str(ts(0))]
        log = self.folder / f"log-{self.kills}"
        return program([*where, *copy, *more], log)

    def _look_at_clocks(self) -> None:
        """Raise `NotEqual` if a load went back."""
        with suppress(pymysql.err.MySQLError):
            for table, done, phase in self.server.query(
                "SELECT table_name, done, phase FROM storage_consumer.table_load"
            ):
                self.loading += phase == "loading"
                if done < self.clocks.get(table, 0):
                    message = f"the load of {table} went back from {self.clocks[table]} to {done}"
                    raise NotEqual(message)
                self.clocks[table] = done

    def _check(self) -> None:
        """Raise `NotEqual` unless each table holds the copy and the changes, each row once."""
        for table in TABLES:
            columns = "id, name" if table != "wide" else "*"
            found = sorted(self.server.query(f"SELECT {columns} FROM `load`.`{table}`"))
            wanted = sorted(_expected(table, self.rows))
            if found != wanted:
                lost, more = len(set(wanted) - set(found)), len(set(found) - set(wanted))
                message = f"{table}: {len(found)} rows, not {len(wanted)}; {lost} lost, {more} others"
                raise NotEqual(message)


def _name(table: str, number: int) -> str:
    # Of each ten rows without a key two are equal to others.
    return f"n{number}" if table == "coded" else f"n{number % 100}"


def _values(table: str, number: int) -> str:
    if table == "wide":
        return f"({number}" + f",'v{number % 7}'" * WIDE + ")"
    shown = number // 5 if table == "bag" else number
    return f"({shown},'{_name(table, shown)}')"


def _expected(table: str, rows: int) -> Iterator[tuple[object, ...]]:
    for number in range(1, rows + 1):
        if table == "wide":
            yield (number, *(f"v{number % 7}" for _ in range(WIDE)))
        elif table == "bag":
            yield number // 5, _name(table, number // 5)
        else:
            yield number, "late" if number == 1 else _name(table, number)
    if table in ("keyed", "coded"):
        yield -1, "new"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns load-kills", description=__doc__)
    parser.add_argument("--kills", type=int, default=200, help="at least; a story is brought to its end")
    parser.add_argument("--rows", type=int, default=500_000, help="of each of the four tables")
    parser.add_argument("--parts", type=int, default=10, help="files of each table")
    parser.add_argument("--seed", type=int, default=0, help="of the first story; each next one has the next")
    parser.add_argument("--server", choices=SERVERS, default="mariadb")
    asked = parser.parse_args(arguments)
    kills, loading, failed, seed, began = 0, 0, list[int](), asked.seed, time.monotonic()
    with tempfile.TemporaryDirectory(prefix="load-kills-") as name, SERVERS[asked.server]() as server:
        use_class_archive()
        while kills < asked.kills:
            folder = Path(name) / "story"
            folder.mkdir()
            server.drop_all()
            dice = random.Random(seed)  # noqa: S311 - not for secrets
            story = Story(folder=folder, server=server, dice=dice, rows=asked.rows, parts=asked.parts)
            try:
                story()
            except Exception as error:  # noqa: BLE001 - one that fails must not hide the others
                failed.append(seed)
                print(f"seed {seed}: {type(error).__name__}: {error}", flush=True)
            kills, loading = kills + story.kills, loading + story.loading
            print(
                f"seed {seed}, {time.monotonic() - began:.0f} s: {kills} kills, {loading} open loads under them",
                flush=True,
            )
            shutil.rmtree(folder)
            seed += 1
    print(f"{kills} kills, {loading} open loads under them; {len(failed)} stories that differ {failed or ''}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
