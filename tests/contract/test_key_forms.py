"""One key in two spellings is one key: for every pair of key types and every target's type, held against the server's own ``=``."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Literal

import pymysql.err
import pytest

from storage_consumer.config.settings import CsvOptions, Downstream, Upstream
from storage_consumer.decode.decoder import RowLayout
from storage_consumer.decode.values import converter, grammar
from storage_consumer.decode.wire_format import encode_field
from storage_consumer.errors import NotReplicable
from storage_consumer.model import CommitRange, TableColumn, TableDefinition, TableName, TableVersion, VersionKey
from storage_consumer.plan.steps import RowStep
from storage_consumer.rows.fitting import TargetTable, UniqueKey, check
from storage_consumer.rows.match import table_work
from storage_consumer.rows.row_keys import bucket_function, image_function, key_function
from storage_consumer.rows.spec import Fold, TablePlan
from storage_consumer.target.connection import Connection, connect, escape
from storage_consumer.target.database import TargetDatabase
from storage_consumer.target.row_statements import delete_keys, literal
from tests.harness.servers import KINDS, DatabaseServer

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


def definition(version: int, source: Source) -> TableDefinition:
    """A directory's structure, which no statement led to."""
    return TableDefinition(
        name=NAME, version=TableVersion(version), query="", ddl_type=0, columns=(source.column,), path=f"meta/{version}", checksum=1
    )  # fmt: skip


def work_of(old: Source, new: Source, target: TargetTable, protocol: ProtocolName) -> TablePlan | None:
    """The work of a commit range over both directories; None where the table halts."""
    definitions: dict[VersionKey, TableDefinition] = {
        (version, "s/t"): definition(version, source) for version, source in ((OLD, old), (NEW, new))
    }
    step = RowStep(
        table_key="`s`.`t`", name=NAME, commit_range=CommitRange(low=OLD, high=HIGH), current=definitions[NEW, "s/t"], definitions=definitions, files=()
    )  # fmt: skip
    try:
        work = table_work(0, step, target, SETTINGS[protocol])
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
    """The target's table, asked what it finds equal."""

    def __init__(self, connection: Connection, name: TableName) -> None:
        """`name`: it has the columns ``n`` and ``k``."""
        self._connection = connection
        self._place = f"`{name.schema}`.`{name.table}`"

    def _rows(self, sql: str) -> list[tuple[Any, ...]]:
        with self._connection.cursor() as cursor:
            cursor.execute(sql)
            return list(cursor.fetchall())

    def fill(self, work: TablePlan, values: Sequence[Value]) -> list[int]:
        """Write the plain texts and, numbered behind them, the spelled ones; which values it took."""
        self._rows(f"DELETE FROM {self._place}")
        column, taken = work.written[0], []
        for number, value in enumerate(values):
            rows = ", ".join(
                f"({n}, {literal(text, column, escape)})" for n, text in ((number, value.plain), (~number, value.wire))
            )
            try:
                self._rows(f"INSERT INTO {self._place} (n, k) VALUES {rows}")
            except pymysql.err.MySQLError:
                continue
            taken.append(number)
        return taken

    def equal(self) -> set[tuple[int, int]]:
        """Numbers of each two rows that have one key."""
        return {
            (a, b) for a, b in self._rows(f"SELECT a.n, b.n FROM {self._place} a JOIN {self._place} b ON a.k = b.k")
        }

    def deleted(self, work: TablePlan, value: Value) -> set[int] | None:
        """Numbers of the plain rows that a delete of this value's key takes; None where the table halts."""
        try:
            sql = delete_keys(work, [encode_field(value.wire)], escape)
        except ValueError:
            return None
        found = self._rows(sql.replace("DELETE FROM `s`.`t`", f"SELECT n FROM {self._place}"))
        return {n for (n,) in found if n >= 0}


def held_together(table: Table, work: TablePlan, values: Sequence[Value]) -> list[str]:
    """Where our keys are not those of the target."""
    key, image = key_function(work.key, (0,)), image_function(work.key)
    bucket = bucket_function(work.key, 1_000, 0)
    # Texts that the source tells apart have keys of their own, in one bucket where the target finds them equal.
    taken, is_loose = table.fill(work, values), work.key[0].fold in (Fold.PAD, Fold.LOOSE)
    equal, keys = table.equal(), [key((value.wire,)) for value in values]
    wrong = [f"spelled {values[n].wire!r}: {values[n].where}" for n in taken if (n, ~n) not in equal]
    for one, other in product(taken, taken):
        is_one = (one, other) in equal
        ours = keys[one] == keys[other]
        right = image(keys[one]) == image(keys[other]) or not is_one if is_loose else ours is is_one
        if not right or (is_one and bucket(keys[one]) != bucket(keys[other])):
            wrong.append(
                f"equal there: {is_one}, keys {keys[one]!r}, {keys[other]!r}: {values[one].where}, {values[other].where}"
            )
    for one in taken:
        found = table.deleted(work, values[one])
        if found is not None and found != {other for other in taken if (one, other) in equal}:
            wrong.append(f"a delete of {values[one].where} takes {[values[n].where for n in found]}")
    return wrong


@pytest.fixture(params=KINDS)
def server(request: pytest.FixtureRequest) -> DatabaseServer:
    """Each server in turn."""
    found: DatabaseServer = request.getfixturevalue(request.param)
    return found


def described(server: DatabaseServer, database: TargetDatabase, number: int) -> tuple[TableName, TargetTable]:
    """A table with a column of one of `TARGETS`; its name, and how it would be described if that were its key."""
    name = TableName(schema="s", table=f"t{number}")
    kind = TARGETS[number].replace("0900", "nopad") if server.kind == "mariadb" else TARGETS[number]
    server.query(f"CREATE TABLE s.t{number} (n INT PRIMARY KEY, k {kind} NOT NULL)")
    found = database.describe([name])[name]
    column = next(column for column in found.columns if column.name == "k")
    key = UniqueKey(name="PRIMARY", columns=("k",), prefixes=(None,))
    return name, replace(found, name=NAME, columns=(column,), unique_keys=(key,))


def held_with_all(table: Table, target: TargetTable, protocol: ProtocolName) -> Iterator[list[str]]:
    """For each pair of source types that the target takes where our keys are not its own."""
    for old, new in product(SOURCES, SOURCES):
        if (work := work_of(old, new, target, protocol)) is None:
            continue
        values = [*values_of(work, old, OLD, protocol), *values_of(work, new, NEW, protocol)]
        sizes = [f"{one.kind}({one.scale or one.precision})" for one in (old, new)]
        yield [
            f"{' and '.join(sizes)} in {target.columns[0].column_type}: {fault}"
            for fault in held_together(table, work, values)
        ]


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["csv", "canal-json"])
def test_keys_are_those_of_the_target(server: DatabaseServer, protocol: ProtocolName) -> None:
    """Two values of two directories have one key exactly where the target's own column says so, or the table halts (C19).

    Such a key is in one bucket, is deleted by either spelling, and no spelling changes what is stored.
    """
    server.query("CREATE DATABASE s")
    downstream = Downstream(port=server.port)
    found: list[list[str]] = []
    with closing(TargetDatabase(downstream, "")) as database, closing(connect(downstream, "")) as connection:
        connection.autocommit(True)  # noqa: FBT003 - the driver's
        for number in range(len(TARGETS)):
            name, target = described(server, database, number)
            found += held_with_all(Table(connection, name), target, protocol)
    assert [fault for faults in found for fault in faults] == []
    assert len(found) > 300
