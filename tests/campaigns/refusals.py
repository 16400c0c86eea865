"""``python -m tests.campaigns refusals``: random histories with rows that a real target refuses, held against a model.

Tables with different keys get inserts, updates, deletes, exchanges of unique values, TRUNCATE and ADD COLUMN. A CHECK in the target comes and
goes; while it is there, the target refuses some rows. Consumers come and go, with a quarantine, without one, and with a small limit; some
end between what they wrote and what they noted. Operators retry rows and give them up. After each round, target and quarantine together
must be what the source is: each key is either equal in the target, or in the quarantine in its newest state.

Exit code 0 if all histories were right. ``--plant`` plants a bug that has to be found: then exit code 1 is right.
"""

from __future__ import annotations

import argparse
import io
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

from storage_consumer import Consumer, RoundSummary
from storage_consumer.checkpoint import journal
from storage_consumer.checkpoint.operator import StateInspector
from storage_consumer.checkpoint.operator_quarantine import QuarantinedEntry
from storage_consumer.checkpoint.progress import StoredProgress
from storage_consumer.checkpoint.quarantine import StoredQuarantine
from storage_consumer.cli.main import main as command
from storage_consumer.config.settings import Downstream, Tuning
from storage_consumer.spark.session import open_session
from tests.harness.servers import SERVERS, DatabaseServer
from tests.harness.small_bucket import CONFIG, CREATE_TABLE, Row, SmallBucket, column, row, ts

Key = tuple[str, ...]
Values = tuple[str | None, str]
"""Of the columns `u` and `v`."""
_TRUNCATE, _ADD_COLUMN = 11, 5
_V = column("v", "VARCHAR", ColumnPrecision="20")
_BAD = "bad"
"""How values begin that the CHECK refuses."""
_USUAL = 100
_TRIES = 6


class Wrong(AssertionError):
    """Target and quarantine are not what the source is."""


class Crash(RuntimeError):
    """A planted end of a consumer."""


@dataclass(slots=True)
class Table:
    """A table of the source."""

    name: str
    body: str
    keys: tuple[str, ...]
    pool: Sequence[Key]
    """The keys that it may have."""
    columns: list[dict[str, Any]]
    version: int = ts(1)
    files: int = 0
    added: int = 0
    """Columns that were added; they hold NULL."""
    rows: dict[Key, Values] = field(default_factory=dict)
    given_up: set[Key] = field(default_factory=set)
    """Keys whose rows an operator gave up; the source has not changed them since."""
    is_narrow: bool = False
    """Whether the target refuses some rows."""

    def line(self, tick: int, operation: str, key: Key, values: Values) -> Row:
        """One row of a data file."""
        unique, text = values
        texts = [each if each.isdigit() else f'"{each}"' for each in key]
        texts += [r"\N" if unique is None else unique, f'"{text}"', *[r"\N"] * self.added]
        return row(f"d.{self.name}", tick, *texts, operation=operation)


def _tables() -> dict[str, Table]:
    unique = column("u", "INT")
    text = column("y", "VARCHAR", key=True, ColumnPrecision="10")
    decimal = column("k", "DECIMAL", key=True, ColumnPrecision="8", ColumnScale="2")
    found = (
        Table(
            name="a",
            body="id INT PRIMARY KEY, u INT UNIQUE, v VARCHAR(20)",
            keys=("id",),
            pool=[(str(n),) for n in range(6)],
            columns=[column("id", "INT", key=True), unique, _V],
        ),
        Table(
            name="b",
            body="x INT, y VARCHAR(10) COLLATE utf8mb4_bin, u INT UNIQUE, v VARCHAR(20), PRIMARY KEY (x, y)",
            keys=("x", "y"),
            pool=[(str(n % 2), y) for n in range(2) for y in ("a", "A", "a b")],
            columns=[column("x", "INT", key=True), text, unique, _V],
        ),
        Table(
            name="c",
            body="k DECIMAL(8,2) PRIMARY KEY, u INT, v VARCHAR(20)",
            keys=("k",),
            pool=[(f"{n}.50",) for n in range(6)],
            columns=[decimal, unique, _V],
        ),
    )
    return {table.name: table for table in found}


@dataclass(slots=True)
class History:
    """One history: the source, the target, consumers and operators."""

    chance: random.Random
    server: DatabaseServer
    bucket: SmallBucket
    tables: dict[str, Table] = field(default_factory=_tables)
    tick: int = 2
    said: list[str] = field(default_factory=list)
    """What happened, for people."""
    counts: dict[str, int] = field(default_factory=dict)
    limit: int = _USUAL
    """Of the running consumer; 0: it has no quarantine."""
    consumer: Consumer | None = None

    def play(self, rounds: int) -> None:
        """Play it; raise `Wrong` as soon as something is."""
        self._begin()
        for _ in range(rounds):
            self._turn()
            self._round(crashes=self.chance.random() < 0.2)
            self._judge()
        self._end()

    def _say(self, *words: object) -> None:
        self.said.append(" ".join(map(str, words)))

    def _count(self, name: str, more: int = 1) -> None:
        self.counts[name] = self.counts.get(name, 0) + more

    def _is(self, share: float) -> bool:
        return self.chance.random() < share

    def _begin(self) -> None:
        self.bucket.schema("d", ts(0), "CREATE DATABASE `d`", 1)
        for each in self.tables.values():
            self.bucket.schema(
                f"d.{each.name}", ts(1), f"CREATE TABLE `{each.name}` ({each.body})", CREATE_TABLE, each.columns
            )
        self.bucket.metadata(ts(self.tick))
        self._open(_USUAL)
        self._judge()
        for each in self.tables.values():
            self._narrow(each)

    def _turn(self) -> None:
        """What happens between two rounds."""
        some = list(self.tables.values())
        if self._is(0.25):
            self._open(self.chance.choice([0, 1, 2, _USUAL, _USUAL]))
        if self._is(0.3):
            self._widen(self.chance.choice(some))
        if self._is(0.4):
            self._narrow(self.chance.choice(some))
        self._operate()
        if self._is(0.9):
            self._feed()

    def _end(self) -> None:
        """Widen all tables, and retry all rows: then nothing is left but rows of earlier table versions."""
        for each in self.tables.values():
            self._widen(each)
        self._open(_USUAL)
        with self._desk() as desk:
            desk.quarantine.retry(desk.quarantine.all(), "operator")
        self._judge()
        for entry in self._entries():
            if entry.version == self.tables[entry.table.table].version:
                raise Wrong(f"{entry.table} {entry.key} stays in the quarantine: {entry.reason}; {entry.retry_answer}")

    # the source

    def _feed(self) -> None:
        for _ in range(self.chance.randint(1, 3)):
            lines: dict[str, list[Row]] = {name: [] for name in self.tables}
            for _ in range(self.chance.randint(1, 4)):
                self._transaction(lines)
            for name, found in lines.items():
                # At least once: what a file holds may stand in it twice.
                self._file(self.tables[name], found * (2 if self._is(0.15) else 1))
        if self._is(0.2):
            self._statement(self.chance.choice(list(self.tables.values())))
        self.tick += 1
        self.bucket.metadata(ts(self.tick))

    def _file(self, table: Table, lines: Sequence[Row]) -> None:
        if lines:
            table.files += 1
            self.bucket.rows(f"d.{table.name}", table.files, *lines, version=table.version)

    def _statement(self, table: Table) -> None:
        """TRUNCATE or ADD COLUMN."""
        self.tick += 1
        table.version, table.files = ts(self.tick), 0
        if self._is(0.5):
            table.rows.clear()
            table.given_up.clear()
            query, kind = f"TRUNCATE TABLE `{table.name}`", _TRUNCATE
        else:
            table.added += 1
            table.columns.append(column(f"w{table.added}", "INT"))
            query, kind = f"ALTER TABLE `{table.name}` ADD COLUMN `w{table.added}` INT", _ADD_COLUMN
        self._say("tick", self.tick, query)
        self._count("statements")
        self.bucket.schema(f"d.{table.name}", table.version, query, kind, table.columns)

    def _transaction(self, lines: dict[str, list[Row]]) -> None:
        """Change some keys, each at most once, as TiCDC writes them."""
        self.tick += 1
        touched: set[tuple[str, Key]] = set()
        for _ in range(self.chance.randint(1, 4)):
            table = self.chance.choice(list(self.tables.values()))
            for operation, key, values in self._change(table):
                if (table.name, key) in touched:
                    break
                touched.add((table.name, key))
                if operation == "D":
                    del table.rows[key]
                else:
                    table.rows[key] = values
                table.given_up.discard(key)
                self._say("tick", self.tick, table.name, operation, key, values)
                lines[table.name].append(table.line(self.tick, operation, key, values))

    def _change(self, table: Table) -> list[tuple[str, Key, Values]]:
        """One change; two of them where keys exchange their unique values."""
        key = self.chance.choice(table.pool)
        old = table.rows.get(key)
        if old is None:
            return [("I", key, (self._free(table), self._text()))]
        if self._is(0.25):
            return [("D", key, old)]
        return [("U", key, (self._free(table) if self._is(0.5) else old[0], self._text()))]

    def _free(self, table: Table) -> str | None:
        used = {unique for unique, _ in table.rows.values()}
        free = [str(n) for n in range(10) if str(n) not in used]
        return self.chance.choice(free) if self._is(0.8) else None

    def _text(self) -> str:
        return f"{_BAD if self._is(0.35) else 'ok'}{self.chance.randrange(100)}"

    # the target

    def _narrow(self, table: Table) -> None:
        """Have the target refuse some rows, unless it holds one of them."""
        query = f"SELECT COUNT(*) FROM d.{table.name} WHERE v LIKE '{_BAD}%'"
        if not table.is_narrow and self.server.query(query)[0][0] == 0:
            self.server.query(f"ALTER TABLE d.{table.name} ADD CONSTRAINT fits CHECK (v NOT LIKE '{_BAD}%')")
            table.is_narrow = True
            self._say("narrow", table.name)

    def _widen(self, table: Table) -> None:
        if table.is_narrow:
            self.server.query(f"ALTER TABLE d.{table.name} DROP CONSTRAINT fits")
            table.is_narrow = False
            self._say("widen", table.name)

    # consumers

    def _open(self, limit: int) -> None:
        """Start another consumer."""
        self.close()
        self.limit = limit
        self._say("consumer, limit", limit)
        quarantine = ["d.*"] if limit else None
        self.consumer = Consumer(
            upstream_uri=self.bucket.uri,
            downstream_uri=self.server.uri,
            config=CONFIG,
            quarantine=quarantine,
            quarantine_limit=limit or _USUAL,
        )

    def close(self) -> None:
        """End the consumer."""
        if self.consumer is not None:
            self.consumer.close()
        self.consumer = None

    def _run(self) -> RoundSummary:
        assert self.consumer is not None
        return self.consumer.run_once()

    def _round(self, *, crashes: bool) -> None:
        """One round; `crashes`: it may end when its rows are written and nothing is noted of them."""
        left, real = self.chance.randint(0, 2) if crashes else -1, StoredProgress.save

        def save(this: StoredProgress, *words: Any, **named: Any) -> Any:
            nonlocal left
            left -= 1
            if left == -1:
                raise Crash
            return real(this, *words, **named)

        try:
            with patch.object(StoredProgress, "save", save):
                self._run()
        except Crash:
            self._say("crash")
            self._count("crashes")
            self._open(self.limit)

    def _finished(self) -> None:
        """Have all of the bucket applied; halted tables are cured as their messages say."""
        for _ in range(_TRIES):
            summary = self._run()
            if not summary.halted and summary.checkpoint == ts(self.tick):
                return
            for halted in summary.halted:
                self._cure(halted.table, halted.error)
        raise Wrong(f"the checkpoint is {summary.checkpoint}, not {ts(self.tick)}; halted: {summary.halted}")

    def _cure(self, table: str, error: str) -> None:
        self._say("halted", table, error[:200])
        self._count("halts")
        if "the target refused" not in error:
            raise Wrong(f"{table} halted: {error}")
        if self.limit != _USUAL:
            self._open(_USUAL)
        with redirect_stdout(io.StringIO()):
            code = command(["table", "resume", "--table", table, "--downstream-uri", self.server.uri])
        if code:
            raise Wrong(f"table resume ends with {code}")

    # operators

    def _operate(self) -> None:
        """Retry some rows, and give one up."""
        with self._desk() as desk:
            entries = desk.quarantine.all()
            if entries and self._is(0.5):
                chosen = [entry for entry in entries if self._is(0.6)]
                desk.quarantine.retry(chosen, "operator")
                self._say("retry", [(entry.table.table, entry.key) for entry in chosen])
                self._count("retried", len(chosen))
            if entries and self._is(0.1):
                entry = self.chance.choice(entries)
                desk.quarantine.drop([entry])
                table = self.tables[entry.table.table]
                table.given_up.add(_key(table, entry))
                self._say("drop", entry.table.table, entry.key)
                self._count("given up")

    @contextmanager
    def _desk(self) -> Iterator[StateInspector]:
        with closing(StateInspector(Downstream(port=self.server.port), "")) as desk:
            yield desk

    def _entries(self) -> list[QuarantinedEntry]:
        with self._desk() as desk:
            return desk.quarantine.all()

    # the judge

    def _judge(self) -> None:
        """Hold target and quarantine against the source, once all of the bucket is applied."""
        self._finished()
        self._count("judged")
        entries = self._entries()
        self._count("in the quarantine", len(entries))
        for table in self.tables.values():
            self._judge_table(table, [entry for entry in entries if entry.table.table == table.name])

    def _judge_table(self, table: Table, entries: Sequence[QuarantinedEntry]) -> None:
        kept = {_key(table, entry): (entry.image["u"], entry.image["v"]) for entry in entries}
        if len(kept) != len(entries):
            raise Wrong(f"{table.name}: two entries of one key among {[entry.key for entry in entries]}")
        there = self._there(table)
        for key in sorted({*kept, *there, *table.rows} - table.given_up):
            wanted, found = table.rows.get(key), there.get(key)
            if key in kept and kept[key] != wanted:
                raise Wrong(f"{table.name} {key}: the entry is {kept[key]}, the source has {wanted}")
            if (key in kept) == (found == wanted):
                raise Wrong(f"{table.name} {key}: the target has {found}, the source {wanted}, an entry: {key in kept}")

    def _there(self, table: Table) -> dict[Key, Values]:
        rows = self.server.query(f"SELECT {', '.join(table.keys)}, u, v FROM d.{table.name}")
        return {tuple(map(str, key)): (None if u is None else str(u), str(v)) for *key, u, v in rows}


def _key(table: Table, entry: QuarantinedEntry) -> Key:
    return tuple(str(entry.image[name]) for name in table.keys)


PLANTS = {
    "not-superseded": (StoredQuarantine, "entries", lambda _: {}),
    "truncated-and-kept": (journal, "close_entries", lambda *_: None),
}
"""Bugs: the place of a function, and what stands there instead."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.campaigns refusals", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--histories", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0, help="of the first history; the others follow")
    parser.add_argument("--seconds", type=float, default=3600.0, help="begin no history after so long")
    parser.add_argument("--server", choices=sorted(SERVERS), default="mariadb")
    parser.add_argument("--plant", choices=sorted(PLANTS))
    asked = parser.parse_args(arguments)
    wrong, counts, until = 0, dict[str, int](), time.monotonic() + asked.seconds
    with SERVERS[asked.server]() as server, ExitStack() as stack:
        # One session for all consumers, which would else start one each.
        session, _ = open_session(Tuning())
        stack.callback(session.stop)
        if asked.plant:
            stack.enter_context(patch.object(*PLANTS[asked.plant]))
        for seed in range(asked.seed, asked.seed + asked.histories):
            if time.monotonic() < until:
                counts["histories"] = counts.get("histories", 0) + 1
                wrong += not played(seed, server, asked.rounds, counts)
    print(", ".join(f"{number:,} {name}" for name, number in counts.items()), f"; {wrong} wrong", sep="")
    return 1 if wrong else 0


def played(seed: int, server: DatabaseServer, rounds: int, counts: dict[str, int]) -> bool:
    """Play one history; return whether it was right, else print what happened."""
    server.drop_all()
    with tempfile.TemporaryDirectory(prefix="refusals-") as folder:
        chance = random.Random(seed)  # noqa: S311 - repeatable, not secret
        history = History(chance, server, SmallBucket(root=Path(folder) / "bucket"))
        try:
            history.play(rounds)
        except Wrong as error:
            print(f"seed {seed}: {error}", *history.said[-40:], sep="\n  ", file=sys.stderr, flush=True)
            return False
        finally:
            history.close()
            for name, number in history.counts.items():
                counts[name] = counts.get(name, 0) + number
    return True


if __name__ == "__main__":
    sys.exit(main())
