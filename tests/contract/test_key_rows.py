"""Rows of two directories that spell a key in two ways, from their bytes to the target's table: what is left is what the source has.

For every pair of key types and every target's type this goes the way of a round: files, decoders in bulk and row by row, buckets that are
written in any order. The truth is the same server's, given the values as they are written, one change after another; of texts, which the
source tells apart by each byte, those that are left at the end, and a halt where the server finds two of them equal.
"""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations_with_replacement
from typing import Any, Literal

import pymysql.err
import pytest

from storage_consumer.config.settings import CsvOptions, Downstream, Upstream
from storage_consumer.decode import decoder_for
from storage_consumer.decode.decoder import RowLayout
from storage_consumer.decode.values import CsvForm, converter, csv_form, grammar
from storage_consumer.errors import NotReplicable
from storage_consumer.model import CommitRange, TableColumn, TableDefinition, TableName, TableVersion, VersionKey
from storage_consumer.plan.steps import RowStep
from storage_consumer.rows.fitting import TargetTable, check
from storage_consumer.rows.halves import read_files, write_bucket
from storage_consumer.rows.match import table_work
from storage_consumer.rows.spec import Fold, JobFile, TablePlan
from storage_consumer.target.bucket_writer import TargetWriter
from storage_consumer.target.connection import Connection, connect, escape
from storage_consumer.target.database import TargetDatabase
from storage_consumer.target.row_statements import key_literal, literal
from tests.contract.test_writer import Rig, real_rig
from tests.harness.servers import DatabaseServer
from tests.unit.building import data_file

pytestmark = pytest.mark.server
ProtocolName = Literal["csv", "canal-json"]
OLD, NEW, HIGH = 100, 150, 200
NAME = TableName(schema="s", table="t")
NUMBERS = ("INT", "BIGINT UNSIGNED", "DECIMAL(10,1)", "DECIMAL(30,10)", "DOUBLE", "FLOAT")
MOMENTS = ("DATE", "DATETIME", "DATETIME(3)", "TIMESTAMP(6)")
TARGETS = (
    *(*NUMBERS, *MOMENTS, "TIME", "TIME(3)", "YEAR", "BIT(20)"),
    *("CHAR(30) COLLATE utf8mb4_bin", "VARCHAR(40) COLLATE utf8mb4_bin", "VARCHAR(40) COLLATE utf8mb4_general_ci"),
    "VARCHAR(40) COLLATE utf8mb4_0900_bin",
    *("ENUM('x','y','1') COLLATE utf8mb4_bin", "SET('x','y') COLLATE utf8mb4_bin", "SET('x1','y2') COLLATE utf8mb4_general_ci"),
    *("BINARY(4)", "BINARY(8)", "VARBINARY(8)"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Source:
    """A column of the source, and texts of its values in a CSV file; in a canal-json file where they differ there."""

    kind: str
    texts: tuple[str, ...]
    canal: tuple[str, ...] = ()
    scale: int | None = None
    precision: int | None = None
    elements: tuple[str, ...] = ()

    def written(self, protocol: ProtocolName) -> tuple[str, ...]:
        """The texts as they stand in a file."""
        if self.kind in ("BINARY", "VARBINARY"):
            content = [
                text.encode().ljust((self.precision or 0) if self.kind == "BINARY" else 0, b"\0") for text in self.texts
            ]
            return tuple(
                base64.b64encode(one).decode() if protocol == "csv" else one.decode("latin-1") for one in content
            )
        return self.canal if protocol == "canal-json" and self.canal else self.texts

    @property
    def column(self) -> TableColumn:
        """As the schema file has it."""
        return TableColumn(
            name="k", type=self.kind, scale=self.scale, precision=self.precision, elements=self.elements,
            nullable=False, is_pk=True,
        )  # fmt: skip


def moments(kind: str, fraction: int, *texts: str) -> Source:
    """Of a type with so many digits of a second, each as the texts have them or zeros."""
    padded = (text + ("." if fraction and "." not in text else "") for text in texts)
    return Source(
        kind, tuple(t.ljust(t.find(".") + 1 + fraction, "0") if fraction else t for t in padded), scale=fraction or None
    )


DAYS = ("2024-01-31 00:00:00", "2024-01-31 10:00:00", "1999-12-31 23:59:59")
TIMES = ("00:00:00", "10:00:00", "-10:00:00", "-00:30:00", "838:59:59")
SOURCES = (
    Source("TINYINT", ("0", "5", "-7")),
    Source("INT", ("0", "5", "-7", "35", "2024", "16777217", "1000000")),
    Source("DECIMAL", ("0.0", "5.0", "3.5", "-7.0", "2024.0", "-0.5"), scale=1),
    Source("DECIMAL", ("0.000", "5.000", "3.500", "3.550", "-7.000", "2024.000", "1000000.000"), scale=3),
    Source("FLOAT", ("0", "-0", "5", "3.5", "0.1", "1e+06", "1.6777216e+07"), ("0", "-0", "5", "3.5", "0.1", "1000000")),
    Source("DOUBLE", ("-0", "5", "3.5", "0.1", "0.10000000149011612", "1e+06", "1e+20"), ("0", "-7", "3.55", "1000000")),
    Source("YEAR", ("0", "2024", "1999")),
    Source("BIT", ("0", "5", "35"), precision=20),
    Source("DATE", ("0000-00-00", "2024-01-31", "1999-12-31")),
    moments("DATETIME", 0, "0000-00-00 00:00:00", *DAYS),
    moments("DATETIME", 3, "0000-00-00 00:00:00", *DAYS, "2024-01-31 10:00:00.5", "2024-01-31 00:00:00.5"),
    moments("DATETIME", 6, *DAYS, "2024-01-31 10:00:00.500001", "2024-01-31 10:00:00.5"),
    moments("TIMESTAMP", 0, *DAYS),
    moments("TIMESTAMP", 3, *DAYS, "2024-01-31 10:00:00.5"),
    moments("TIME", 0, *TIMES),
    moments("TIME", 3, *TIMES, "10:00:00.5"),
    moments("TIME", 6, *TIMES, "10:00:00.500001"),
    Source("CHAR", ("", "a", "A", "x", "5")),
    Source("VARCHAR", ("", "a", "A", "a ", "5", "05", "5 ", "3.5", "2024-01-31", "2024-01-31 00:00:00", "10:00:00", "x", "X,Y", "1", "0")),
    Source("TEXT", ("a", "á", "5", "0000")),
    Source("ENUM", ("x", "y"), ("1", "2"), elements=("x", "y")),
    Source("ENUM", ("x", "y"), ("1", "2"), elements=("y", "x")),
    Source("SET", ("", "x", "x,y"), ("0", "1", "3"), elements=("x", "y")),
    Source("SET", ("", "x", "y,x"), ("0", "1", "3"), elements=("y", "x")),
    Source("SET", ("x1", "x1,y2"), ("1", "3"), elements=("x1", "y2")),
    Source("SET", ("X1", "y2,X1"), ("2", "3")),
    Source("BINARY", ("ab", "abc"), precision=4),
    Source("BINARY", ("ab", "abc", "abcdef"), precision=8),
    Source("VARBINARY", ("ab", "abcd", "ab\0\0", "ab\0\0\0\0\0\0"), precision=8),
)  # fmt: skip
SETTINGS: Mapping[ProtocolName, Upstream] = {
    "csv": Upstream(scheme="file", root="/b", protocol="csv", time_zone="UTC", csv=CsvOptions(include_commit_ts=True)),
    "canal-json": Upstream(
        scheme="file", root="/b", protocol="canal-json", time_zone="UTC", enable_tidb_extension=True
    ),
}


@dataclass(frozen=True, slots=True)
class Value:
    """One value of a directory, as it travels."""

    where: str
    plain: str
    """Its wire text as it was before anything was spelled."""
    wire: str


VALUE = TableColumn(name="w", type="INT")
BUCKETS = 7
SEED = 33
WAYS: Mapping[str, Upstream] = {
    "csv": SETTINGS["csv"],
    "csv without commit ts": replace(SETTINGS["csv"], csv=replace(SETTINGS["csv"].csv, include_commit_ts=False), allow_missing_commit_ts=True),
    "canal-json": SETTINGS["canal-json"],
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One change of a key's row."""

    version: int
    ts: int
    upsert: bool
    text: str
    """The key as its file has it."""
    value: Value
    number: int
    """What its row holds beside the key."""


def work_of(sources: tuple[Source, Source], target: TargetTable, upstream: Upstream) -> TablePlan | None:
    """The work of a commit range over both directories; None where the table halts."""
    definitions: dict[VersionKey, TableDefinition] = {
        (version, "s/t"): TableDefinition(
            name=NAME, version=TableVersion(version), query="", ddl_type=0, columns=(source.column, VALUE), path=f"meta/{version}", checksum=1
        )
        for version, source in zip((OLD, NEW), sources, strict=True)
    }  # fmt: skip
    step = RowStep(
        table_key="`s`.`t`", name=NAME, commit_range=CommitRange(low=OLD, high=10 * HIGH), current=definitions[NEW, "s/t"], definitions=definitions, files=()
    )  # fmt: skip
    try:
        work = table_work(0, step, target, upstream)
    except NotReplicable:
        return None
    return None if any(version.misfit for version in work.versions.values()) else work


def values_of(work: TablePlan, source: Source, version: int, protocol: ProtocolName) -> Iterator[Value]:
    """What the directory's values become; those that are refused are left out."""
    of = work.versions[version, "s/t"]
    layout: RowLayout = of.layout
    spelled = converter(source.column, protocol, spelling=layout.spelling(0)) or str
    plain = converter(source.column, protocol) or str
    assert not grammar(source.column, protocol) or all(source.written(protocol))
    for text in source.written(protocol):
        try:
            wire = spelled(text)
            check((wire,), of.limits)
        except ValueError:
            continue
        yield Value(f"{version}: {text!r}", plain(text), wire)


class Table:
    """The target's table, and ways to fill it."""

    def __init__(self, connection: Connection, rig: Rig) -> None:
        """`rig`: its writers go through buckets."""
        self._connection = connection
        self._writer = TargetWriter(rig.spec, "", 0)
        self._rig = rig

    def query(self, sql: str) -> None:
        """Run a statement."""
        self._connection.query(sql)

    @contextmanager
    def undone(self) -> Iterator[None]:
        """One transaction, whose changes are given up."""
        self.query("BEGIN")
        try:
            yield
        finally:
            self.query("ROLLBACK")

    def rows(self) -> list[tuple[Any, ...]]:
        """All rows."""
        with self._connection.cursor() as cursor:
            cursor.execute("SELECT * FROM s.t")
            # -0.0 and 0.0 are one key, of which either may be there.
            return sorted(cursor.fetchall(), key=lambda row: repr(row).replace("(-0.0,", "(0.0,"))

    def takes(self, work: TablePlan, value: Value) -> bool:
        """Whether the server takes a value as it is written, and a delete of it."""
        with suppress(pymysql.err.MySQLError, ValueError):
            key_literal(value.plain, work.key[0], escape)
            self.query(f"REPLACE INTO s.t VALUES ({literal(value.plain, work.written[0], escape)}, 0)")
            return True
        return False

    def truth(self, work: TablePlan, target: TargetTable, changes: Sequence[Change]) -> list[tuple[Any, ...]] | None:
        """What one change after another leaves; None where the table halts."""
        self.query("DELETE FROM s.t")
        # The values of an ENUM or SET are elements, however they are spelled.
        is_text = not target.columns[0].column_type.startswith(("enum", "set"))
        if is_text and work.key[0].fold in (Fold.PAD, Fold.LOOSE):
            return self._truth_of_texts(work, changes)
        for change in changes:
            if change.upsert:
                self.query(
                    f"REPLACE INTO s.t VALUES ({literal(change.value.plain, work.written[0], escape)}, {change.number})"
                )
            else:
                # What the column makes of the value decides which row is meant, whatever a literal of it is equal to.
                self.query(f"REPLACE INTO s.one VALUES ({literal(change.value.plain, work.written[0], escape)}, 0)")
                self.query("DELETE s.t, s.one FROM s.one LEFT JOIN s.t ON s.t.k = s.one.k")
        return self.rows()

    def _truth_of_texts(self, work: TablePlan, changes: Sequence[Change]) -> list[tuple[Any, ...]] | None:
        left: dict[str, int] = {}
        for change in changes:
            left.pop(change.value.plain, None)
            if change.upsert:
                left[change.value.plain] = change.number
        try:
            for text, number in left.items():
                self.query(f"INSERT INTO s.t VALUES ({literal(text, work.written[0], escape)}, {number})")
        except pymysql.err.IntegrityError:
            return None
        return self.rows()

    def written(
        self, work: TablePlan, items: list[tuple[Any, Any]], order: random.Random
    ) -> list[tuple[Any, ...]] | None:
        """What the buckets leave, written in any order; None where the table halts."""
        self.query("DELETE FROM s.t")
        buckets = list(range(BUCKETS))
        order.shuffle(buckets)
        for bucket in buckets:
            found = sorted((item for item in items if item[0][0] == bucket), key=lambda item: item[0])
            errors = [report.error for report in write_bucket(iter(found), {0: work}, self._writer) if report.error]
            if errors:
                assert all("The source tells them apart" in error for error in errors), errors
                return None
        return self.rows()

    def close(self) -> None:
        """Close the writer."""
        self._writer.close()


def files_of(changes: Sequence[Change], upstream: Upstream, sources: tuple[Source, Source]) -> dict[int, bytes]:
    """The content of each directory's file."""
    by_version = dict(zip((OLD, NEW), sources, strict=True))
    found = {OLD: b"", NEW: b""}
    for change in changes:
        kind = by_version[change.version].column
        found[change.version] += (
            _csv(change, upstream, kind) if upstream.protocol == "csv" else _canal(change)
        ).encode()
    return found


def _csv(change: Change, upstream: Upstream, column: TableColumn) -> str:
    quoted = change.text.replace('"', '""')
    text = change.text if csv_form(column) is CsvForm.BARE else f'"{quoted}"'
    ts = f"{change.ts}," if upstream.csv.include_commit_ts else ""
    return f'"{"I" if change.upsert else "D"}","t","s",{ts}{text},{change.number}\r\n'


def _canal(change: Change) -> str:
    message = {
        "id": 0, "database": "s", "table": "t", "pkNames": ["k"], "isDdl": False, "type": "INSERT" if change.upsert else "DELETE",
        "es": 0, "ts": 0, "sql": "", "sqlType": {}, "mysqlType": {}, "old": None,
        "data": [{"k": change.text, "w": str(change.number)}], "_tidb": {"commitTs": change.ts},
    }  # fmt: skip
    return json.dumps(message, ensure_ascii=False, separators=(",", ":")) + "\r\n"


def _opened(content: bytes, _: JobFile) -> Iterator[bytes]:
    return iter([content])


def blocks_of(contents: dict[int, bytes], work: TablePlan, upstream: Upstream) -> list[tuple[Any, Any]]:
    """What the first half of a job makes of both files, each in a task of its own."""
    items: list[tuple[Any, Any]] = []
    for rank, (version, content) in enumerate(contents.items()):
        file = data_file("s/t", version, 1)
        file = replace(file, stored=replace(file.stored, size=len(content)))
        split = JobFile(table=0, file=file, rank=rank, newest=False)
        items += read_files([split], {0: work}, BUCKETS, partial(_opened, content), decoder_for(upstream))
    return items


def changes_of(
    table: Table, work: TablePlan, sources: tuple[Source, Source], upstream: Upstream, order: random.Random
) -> list[Change]:
    """Changes of all values that the target takes, in any order; without commit ts those of the older directory come first."""
    protocol: ProtocolName = "csv" if upstream.protocol == "csv" else "canal-json"
    texts: list[tuple[int, str, Value]] = []
    for source, version in zip(sources, (OLD, NEW), strict=True):
        taken = {value.where: value for value in values_of(work, source, version, protocol) if table.takes(work, value)}
        texts += [
            (version, text, taken[where])
            for text in source.written(protocol)
            if (where := f"{version}: {text!r}") in taken
        ]
    changes = [(*text, upsert) for text in texts for upsert in (True, False)]
    order.shuffle(changes)
    if not work.has_commit_ts:
        changes.sort(key=lambda change: change[0])
    return [
        Change(version=version, ts=NEW + place + 1, upsert=upsert, text=text, value=value, number=place)
        for place, (version, text, value, upsert) in enumerate(changes)
    ]


def differing(table: Table, target: TargetTable, upstream: Upstream, order: random.Random) -> Iterator[str]:
    """For each pair of source types that does not halt, an empty text, or what differs; either is the older one."""
    for pair in combinations_with_replacement(SOURCES, 2):
        sources = pair if order.random() < 0.5 else pair[::-1]
        if (work := work_of(sources, target, upstream)) is None:
            continue
        with table.undone():
            changes = changes_of(table, work, sources, upstream, order)
        items = blocks_of(files_of(changes, upstream, sources), work, upstream)
        assert not [item.error for _, item in items if not isinstance(item, bytes) and item.error]
        left, truth = table.written(work, items, order), table.truth(work, target, changes)
        sizes = [f"{one.kind}({one.scale or one.precision})" for one in sources]
        yield "" if left == truth else f"{' and '.join(sizes)} in {target.columns[0].column_type}: {left}, not {truth}"


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_rows_are_those_of_the_source(server: DatabaseServer, way: str) -> None:
    """Whatever the types of two directories and of the target: what buckets leave is what the changes leave in their order, or the table halts (C19)."""
    order, found = random.Random(SEED), []  # noqa: S311 - not for secrets
    with closing(real_rig(server)) as rig, closing(TargetDatabase(rig.downstream, "")) as database:
        server.query("CREATE DATABASE s")
        with closing(connect(Downstream(port=server.port), "")) as connection, closing(Table(connection, rig)) as table:
            connection.autocommit(True)  # noqa: FBT003 - the driver's
            for written in TARGETS:
                kind = written.replace("0900", "nopad") if server.kind == "mariadb" else written
                server.query("DROP TABLE IF EXISTS s.t")
                server.query(f"CREATE TABLE s.t (k {kind} NOT NULL PRIMARY KEY, w INT)")
                server.query("DROP TABLE IF EXISTS s.one")
                server.query("CREATE TABLE s.one LIKE s.t")
                target = database.describe([NAME])[NAME]
                found += list(differing(table, target, WAYS[way], order))
    assert [fault for fault in found if fault] == []
    assert len(found) > 150
