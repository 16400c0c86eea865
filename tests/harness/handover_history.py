"""Buckets of histories: a real server runs what a source ran, and what its tables then hold is written as TiCDC writes it.

A history has every commit of a source with its commit-ts, in order. The exports beside it were made at chosen commits, most of them right
before, at and right after that of a statement. No TiCDC watched that source, so its bucket is made here: the changefeed begins right before
the first commit, with old values, so that tables without a key can be replayed.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pymysql.cursors
from pymysql.converters import encoders

from storage_consumer.bucket.schema_file import parse_schema_file
from storage_consumer.config.settings import CsvOptions
from storage_consumer.model import DdlKind, TableName
from tests.harness.comparing import STATE_SCHEMA
from tests.harness.corpora import Corpus
from tests.harness.dumps import Dump
from tests.harness.handovers import Handover, export_uri
from tests.harness.replay import Replay
from tests.harness.servers import DatabaseServer, quoted
from tests.harness.small_bucket import SmallBucket, column
from tests.harness.structure_check import StructureCheck
from tests.property.csv_encoding import Change, Source, Value

_CONFIG = (
    'force-replicate = true\n[sink]\nprotocol = "csv"\n[sink.csv]\ninclude-commit-ts = true\noutput-old-value = true\n'
)
_DATE = "2026-11-22"
_ROWS_IN_FILE = 16
"""So few that a sequence has several files."""
_WIDTHS = {"TINYINT": "4", "SMALLINT": "6", "MEDIUMINT": "9", "INT": "11", "BIGINT": "20"}
_TYPE = re.compile(r"(?P<name>\w+)(?:\((?P<inner>.*)\))?(?P<unsigned> unsigned)?")
_OF_DATABASES = (DdlKind.CREATE_SCHEMA, DdlKind.DROP_SCHEMA, DdlKind.ALTER_SCHEMA)
_EXCHANGED = re.compile(r"alter table `(\w+)`\.`(\w+)` exchange partition `\w+` with table `(\w+)`\.`(\w+)`")
_RENAMED = re.compile(r"rename table \S+ to `(\w+)`\.`(\w+)`")
_VIEW = "CREATE ALGORITHM = UNDEFINED DEFINER = CURRENT_USER SQL SECURITY DEFINER VIEW "
_QUALIFIED = re.compile(r"\b([a-z]\w*)\.(\w+)")

Row = tuple[Value, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """One commit of the source."""

    ts: int
    statements: tuple[str, ...]
    kind: int
    """TiDB's number of the kind of statement; 0 for a transaction with rows."""
    name: TableName
    """What a statement is about, as TiDB's job says it; a rename's is the old name."""


@dataclass(frozen=True)
class History:
    """What a source did."""

    folder: Path
    """With ``history.json``, ``history.ndjson`` and ``final/golden``; exports may lie beside them."""

    @property
    def workload(self) -> str:
        """Its name."""
        return self.folder.name

    @cached_property
    def facts(self) -> dict[str, Any]:
        """What was recorded of it as a whole."""
        found: dict[str, Any] = json.loads((self.folder / "history.json").read_text(encoding="utf-8"))
        return found

    @property
    def setup(self) -> tuple[str, ...]:
        """What the source did before its changefeed began."""
        return tuple(self.facts["setup"])

    @property
    def start_ts(self) -> int:
        """The TSO at which the changefeed begins: all commits are after it."""
        return int(self.facts["before_writes_tso"])

    @property
    def end_ts(self) -> int:
        """A TSO after all commits; the golden is of it."""
        return int(self.facts["end_tso"])

    @cached_property
    def commits(self) -> tuple[Commit, ...]:
        """All after the setup, in order."""
        jobs = {int(job["V"]): job for job in self.facts["ddl"]}
        lines = (self.folder / "history.ndjson").read_text(encoding="utf-8").splitlines()
        return tuple(_commit(json.loads(line), jobs) for line in lines)

    def first_visible(self, version: int) -> int:
        """From which snapshot on an export shows the effect of the statement with this version, at least in part."""
        return next(int(job["first_visible"]) for job in self.facts["ddl"] if int(job["V"]) == version)


def _commit(line: Mapping[str, Any], jobs: Mapping[int, Mapping[str, Any]]) -> Commit:
    ts = int(line["ts"])
    job: Mapping[str, Any] = jobs[ts] if line["kind"] == "ddl" else {"type": 0, "schema": "", "table": ""}
    name = TableName(schema=job["schema"], table=job["table"])
    return Commit(ts=ts, statements=tuple(line["statements"]), kind=int(job["type"]), name=name)


def histories(dumps: Sequence[Dump]) -> list[History]:
    """The histories that lie beside exports."""
    folders = {dump.folder.parent for dump in dumps}
    return [History(folder) for folder in sorted(folders) if (folder / "history.ndjson").exists()]


def recorded(history: History, server: DatabaseServer, folder: Path) -> Corpus:
    """Run a history on a server, which is emptied, and write what TiCDC would have written, as a recording with one cut at its end."""
    tree = folder / "tree"
    server.drop_all()
    _Recorder(history=history, server=server, bucket=SmallBucket(root=tree)).run()
    server.drop_all()
    checkpoint = history.end_ts
    SmallBucket(root=tree).metadata(checkpoint)
    files = {path.relative_to(tree).as_posix(): path.stat().st_size for path in tree.rglob("*") if path.is_file()}
    facts = {
        "workload": history.workload,
        "variant": "csv",
        "arch": "new",
        "timezone": "UTC",
        "changefeed_toml": _CONFIG,
        "sink_uri": "file:///TREE?protocol=csv",
        "cuts": [{"checkpoint_ts": checkpoint, "files": files}],
    }
    (folder / "corpus.json").write_text(json.dumps(facts), encoding="utf-8")
    statements = [*history.setup, *(text for commit in history.commits for text in commit.statements)]
    (folder / "workload.sql").write_text("".join(f"{text};\n" for text in statements) + "-- cut\n", encoding="utf-8")
    (folder / "golden").symlink_to((history.folder / "final" / "golden").resolve(), target_is_directory=True)
    return Corpus(folder)


def of_history(
    history: History, dump: Dump, corpus: Corpus, server: DatabaseServer, folder: Path, check: StructureCheck | None
) -> Handover:
    """A handover from an export of the very run that the bucket was made of, in an empty folder."""
    replay = Replay(corpus=corpus, server=server, folder=folder, structures=check)
    uri = export_uri(dump.folder / "dump", dump)
    return Handover(replay, uri, len(corpus.cuts), start_ts=history.start_ts)


def journal_faults(history: History, dump: Dump, server: DatabaseServer, state_schema: str = STATE_SCHEMA) -> list[str]:
    """What the program's journal says at the end that may not be: each statement takes effect once, by the copy or by itself.

    A view that the export leaves out, as Dumpling does by default, is the one thing that a statement up to its TSO has to make.
    """
    faults, snapshot = [], dump.read().snapshot
    ran = Counter[int]()
    for version, state, statement, note in server.query(
        f"SELECT version, state, statement, note FROM {quoted(state_schema)}.ddl_journal"
        " WHERE table_dir NOT LIKE 'load/%' AND query <> ''"
    ):
        ran[version] += bool(statement)
        if state not in ("done", "skipped"):
            faults.append(f"the statement of {version} is {state}: {note}")
        if "holds its effect already" in note and not history.first_visible(version) <= snapshot < version:
            faults.append(
                f"the statement of {version} is taken for done, but the export of {snapshot} lacks its effect"
            )
    return faults + [
        f"the statement of {commit.ts} ran {ran[commit.ts]} times behind the export of {snapshot}"
        for commit in history.commits
        if commit.kind and ran[commit.ts] not in _may_run(history, commit, snapshot)
    ]


def _may_run(history: History, commit: Commit, snapshot: int) -> tuple[int, ...]:
    """How often a statement may run behind an export: once if it is younger, else never."""
    # The export has no views, and may show the effect of a statement that is still to come.
    is_early = history.first_visible(commit.ts) <= snapshot < commit.ts
    if is_early or (commit.kind == DdlKind.CREATE_VIEW and commit.ts <= snapshot):
        return (0, 1)
    return (int(commit.ts > snapshot),)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Table:
    """A table of the server at one moment."""

    columns: tuple[Mapping[str, Any], ...]
    """As a schema file lists them."""
    rows: Mapping[str, tuple[Row, ...]]
    """Partition → its rows; the partition of a table without any is ""."""

    @property
    def key(self) -> tuple[int, ...]:
        """Places of the columns of its primary key."""
        return tuple(place for place, one in enumerate(self.columns) if "ColumnIsPk" in one)


@dataclass(slots=True, kw_only=True)
class _Recorder:
    """Runs a history and writes its bucket."""

    history: History
    server: DatabaseServer
    bucket: SmallBucket
    versions: dict[TableName, int] = field(default_factory=dict)
    """Table → version of its last schema file."""
    lines: dict[str, list[str]] = field(default_factory=dict)
    """Directory of the bucket → the rows in it."""

    def run(self) -> None:
        with self.server.connect(conv=encoders) as connection, connection.cursor() as cursor:
            cursor.execute("SET time_zone = '+00:00'")
            for statement in self.history.setup:
                cursor.execute(statement)
            before = self._tables(cursor)
            for commit in self.history.commits:
                if not commit.kind:
                    connection.begin()
                for statement in commit.statements:
                    cursor.execute(statement)
                connection.commit()
                after = self._tables(cursor)
                if commit.kind:
                    self._statement(commit, before, after)
                else:
                    self._rows(commit.ts, before, after)
                before = after
        self._write()

    def _tables(self, cursor: pymysql.cursors.Cursor) -> dict[TableName, _Table]:
        """All tables and views with their rows."""
        found = {}
        for schema in self.server.databases():
            cursor.execute(f"SHOW FULL TABLES FROM {quoted(schema)}")
            for table, kind in cursor.fetchall():
                name = TableName(schema=schema, table=table)
                found[name] = _view(cursor, name) if kind == "VIEW" else _table(cursor, name)
        return found

    def _statement(self, commit: Commit, before: Mapping[TableName, _Table], after: Mapping[TableName, _Table]) -> None:
        """Write the schema files of a statement."""
        query, name = _restored(*commit.statements), commit.name
        if commit.kind in _OF_DATABASES:
            self.bucket.schema(name.schema, commit.ts, query, commit.kind, ())
            return
        if renamed := _RENAMED.match(query):
            name = TableName(schema=renamed[1], table=renamed[2])
        if exchanged := _EXCHANGED.match(query):
            # TiDB's job is about the table without partitions, TiCDC's statement about the other one.
            name = TableName(schema=exchanged[1], table=exchanged[2])
            partner = TableName(schema=exchanged[3], table=exchanged[4])
            self._schema(partner, commit.ts, after[partner], "", 0)
        # The file of a DROP lists the columns that the table had.
        self._schema(name, commit.ts, after.get(name) or before[name], query, commit.kind)

    def _schema(self, name: TableName, version: int, table: _Table, query: str, kind: int) -> None:
        self.versions[name] = version
        self.bucket.schema(str(name), version, query, kind, table.columns)

    def _rows(self, ts: int, before: Mapping[TableName, _Table], after: Mapping[TableName, _Table]) -> None:
        """Keep the rows of a transaction."""
        for name, table in after.items():
            for place, (partition, rows) in enumerate(table.rows.items()):
                changes = list(_changes(ts, table.key, before[name].rows[partition], rows))
                if not changes:
                    continue
                # A table that the changefeed found when it began has no statement, only its structure.
                if name not in self.versions:
                    self._schema(name, self.history.start_ts, table, "", 0)
                middle = f"/{100 + place}" if partition else ""
                folder = f"{name.schema}/{name.table}/{self.versions[name]}{middle}/{_DATE}"
                source = _source(name, table)
                self.lines.setdefault(folder, []).append("".join(text for one in changes for text in source.rows(one)))

    def _write(self) -> None:
        """Write the data files, and what names the last one of each directory."""
        for folder, transactions in self.lines.items():
            for number, first in enumerate(range(0, len(transactions), _ROWS_IN_FILE), 1):
                last = f"CDC{number:020d}.csv"
                self.bucket.write(f"{folder}/{last}", "".join(transactions[first : first + _ROWS_IN_FILE]))
            self.bucket.write(f"{folder}/meta/CDC.index", f"{last}\n")


def _restored(query: str) -> str:
    """A statement in the words that matter of those in which TiCDC writes it: names in backquotes, a view with all of its properties."""
    quoted_names = _QUALIFIED.sub(r"`\1`.`\2`", re.sub("^create view ", _VIEW, query))
    return re.sub(r"\bpartition (\w+)", r"partition `\1`", quoted_names)


def _changes(ts: int, key: Sequence[int], before: Sequence[Row], after: Sequence[Row]) -> Iterator[Change]:
    """What changed between two contents of a table or partition: an update where the key stayed."""
    gone, new = Counter(before) - Counter(after), Counter(after) - Counter(before)
    if not key:
        yield from (Change(ts=ts, old=row, new=None, split=False) for row in gone.elements())
        yield from (Change(ts=ts, old=None, new=row, split=False) for row in new.elements())
        return
    old_rows = {tuple(row[place] for place in key): row for row in gone}
    for row in new:
        old = old_rows.pop(tuple(row[place] for place in key), None)
        yield Change(ts=ts, old=old, new=row, split=False)
    yield from (Change(ts=ts, old=row, new=None, split=False) for row in old_rows.values())


def _source(name: TableName, table: _Table) -> Source:
    """Who writes the rows of a table."""
    bucket = {"Schema": name.schema, "Table": name.table, "Version": 1, "TableVersion": 1, "Query": "", "Type": 0}
    document = {**bucket, "TableColumns": list(table.columns), "TableColumnsTotal": len(table.columns)}
    columns = parse_schema_file(json.dumps(document).encode(), "", 1, None, "").columns
    return Source(
        options=CsvOptions(include_commit_ts=True, output_old_value=True),
        handle_key=False,
        table=name,
        columns=columns,
        written=tuple(range(len(columns))),
    )


def _view(cursor: pymysql.cursors.Cursor, name: TableName) -> _Table:
    """TiDB keeps no types of a view's columns."""
    cursor.execute(f"SHOW COLUMNS FROM {_qualified(name)}")
    return _Table(columns=tuple(column(str(row[0]), "UNSPECIFIED") for row in cursor.fetchall()), rows={})


def _table(cursor: pymysql.cursors.Cursor, name: TableName) -> _Table:
    cursor.execute(f"SHOW COLUMNS FROM {_qualified(name)}")
    columns = tuple(_column(*(None if each is None else str(each) for each in row[:5])) for row in cursor.fetchall())
    cursor.execute(
        "SELECT PARTITION_NAME FROM information_schema.PARTITIONS WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s"
        " ORDER BY PARTITION_ORDINAL_POSITION",
        (name.schema, name.table),
    )
    rows = {}
    for (partition,) in cursor.fetchall():
        part = f" PARTITION ({quoted(partition)})" if partition else ""
        cursor.execute(f"SELECT * FROM {_qualified(name)}{part}")
        rows[partition or ""] = tuple(cursor.fetchall())
    return _Table(columns=columns, rows=rows)


def _qualified(name: TableName) -> str:
    return f"{quoted(name.schema)}.{quoted(name.table)}"


def _column(
    name: str | None, kind: str | None, nullable: str | None, key: str | None, default: str | None
) -> dict[str, Any]:
    """A column as a schema file lists it, from what SHOW COLUMNS says of it."""
    found = _TYPE.fullmatch(kind or "")
    assert found is not None, f"{name}: {kind}"
    upper, inner, attributes = found["name"].upper(), found["inner"], {}
    if default is not None:
        attributes["ColumnDefault"] = default
    if upper in _WIDTHS:
        attributes["ColumnPrecision"] = inner or _WIDTHS[upper]
    elif upper == "VARCHAR":
        attributes["ColumnPrecision"] = inner
    elif upper in ("DATETIME", "TIMESTAMP", "TIME"):
        attributes |= {"ColumnScale": inner} if inner else {}
    elif upper != "ENUM":
        raise AssertionError(f"{name}: {kind} is not among the types of the histories")
    if nullable == "NO":
        attributes["ColumnNullable"] = "false"
    if key == "PRI":
        attributes["ColumnIsPk"] = "true"
    elements = {"ColumnElems": re.findall(r"'([^']*)'", inner)} if upper == "ENUM" else {}
    return {**column(str(name), upper + (" UNSIGNED" if found["unsigned"] else "")), **attributes, **elements}
