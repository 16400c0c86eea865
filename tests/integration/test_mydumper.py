"""Exports that mydumper makes of servers at hand: they hold the rows that the server shows."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pymysql.constants import CLIENT

from storage_consumer.bucket.export import Export, ExportTable, read_export
from storage_consumer.bucket.stores.local import LocalStorage
from storage_consumer.config.settings import DumpOptions
from storage_consumer.decode.decoder import FileRead
from storage_consumer.decode.export_files import ExportDecoder
from storage_consumer.decode.values import BINARY_TYPES, FLOAT_TYPES
from storage_consumer.decode.wire_format import decode_line
from storage_consumer.errors import ExportRefused
from storage_consumer.model import CommitRange, TableColumn
from tests.harness.dumps import layout_of
from tests.harness.servers import DatabaseServer, tidb_program

pytestmark = [pytest.mark.server, pytest.mark.slow]
_KINDS = ["mariadb", "mysql", *(["tidb"] if tidb_program() else [])]
ON_SERVERS = pytest.mark.parametrize("kind", _KINDS)
SETUP = r"""
CREATE DATABASE my CHARACTER SET utf8mb4;
CREATE TABLE my.kinds (id INT PRIMARY KEY, v VARCHAR(50), b VARBINARY(20), bl BLOB, bi BIT(9), f FLOAT, d DOUBLE, de DECIMAL(10,3),
  e ENUM('a','it''s'), s SET('x','y'), j JSON, y YEAR, ts TIMESTAMP(3) NULL, dt DATETIME, t TIME(2), mu MEDIUMINT UNSIGNED,
  g INT GENERATED ALWAYS AS (id + 1) VIRTUAL);
CREATE TABLE my.empty (id INT PRIMARY KEY);
CREATE TABLE my.`some names` (`a b` INT, `c``d` TEXT);
CREATE TABLE my.many (id INT PRIMARY KEY, v VARCHAR(200), n INT);
INSERT INTO my.kinds (id, v, b, bl, bi, f, d, de, e, s, j, y, ts, dt, t, mu) VALUES
  (1, 'it''s "q" \\ \n\t\0\Z 日本😀', x'00ff27225c0a1a', x'ff00', b'100000001', 1.5, 1e300, -1.5, 'it''s', 'x,y', '{"a": "q\\"x"}', 0,
   '2024-01-01 00:00:00.5', '2024-01-01 01:02:03', '-12:00:00.25', 16777215),
  (2, '', '', '', b'0', 0, 0, 0, 'a', '', '[]', 2024, '2038-01-19 03:14:07.999', '9999-12-31 23:59:59', '838:59:59', 0),
  (3, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO my.`some names` VALUES (1, 'x'), (1, 'x'), (NULL, NULL);
"""
FORMS = [
    pytest.param([], id="default"),
    pytest.param(["--rows", "3000", "--compress", "--complete-insert"], id="chunks"),
    pytest.param(["--chunk-filesize", "1", "--insert-ignore"], id="files"),
    pytest.param(["--statement-size", "3000"], id="statements"),
]


@pytest.fixture
def server(kind: str, request: pytest.FixtureRequest) -> DatabaseServer:
    """A server with tables to export."""
    found: DatabaseServer = request.getfixturevalue(kind)
    if kind == "tidb":
        found.allow_snapshots()
    with found.connect(client_flag=CLIENT.MULTI_STATEMENTS) as connection, connection.cursor() as cursor:
        cursor.execute("SET sql_mode = ''")
        cursor.execute(SETUP)
        while cursor.nextset():
            pass
        cursor.executemany(
            "INSERT INTO my.many VALUES (%s, %s, %s)",
            [(i, f"row {i} of 'many'\n" + "x" * 90, i * 7) for i in range(12_000)],
        )
    return found


def dumped(server: DatabaseServer, folder: Path, options: Sequence[str] = ()) -> Path:
    """The folder that mydumper wrote."""
    where = ["--host", "127.0.0.1", "--port", str(server.port), "--user", "root", "--database", "my"]
    subprocess.run(["mydumper", *where, "--outputdir", str(folder), *options], check=True, capture_output=True)
    return folder


def rows_of(folder: Path, export: Export, table: ExportTable) -> list[tuple[str | None, ...]]:
    """The rows of a table, read in bulk where possible."""
    options = DumpOptions(compression=export.compression, time_zone=export.time_zone)
    layout = layout_of(table, "")
    rows: list[tuple[str | None, ...]] = []
    for part in table.parts:
        blocks = LocalStorage(str(folder)).blocks(part.path, 1 << 20)
        file = FileRead(blocks=blocks, source=part.path, layout=layout, commit_range=CommitRange(low=0, high=2**62))
        for some in ExportDecoder(options).changes(file):
            if isinstance(some, tuple):
                rows.append(some[3])
            else:
                lines = some.lines(range(len(layout.columns)), np.arange(len(some.numbers)))
                rows += [tuple(decode_line(line)) for line in lines]
    return rows


def shown(server: DatabaseServer, table: ExportTable) -> list[tuple[str | None, ...]]:
    """What the server shows of the same columns, in the forms in which the target takes it."""
    columns = layout_of(table, "").columns
    listed = ", ".join(map(_asked, columns))
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SET time_zone = '+00:00'")
        cursor.execute(f"SELECT {listed} FROM my.`{table.name.table}`")
        return [tuple(row) for row in cursor.fetchall()]


def _asked(column: TableColumn) -> str:
    name = "`" + column.name.replace("`", "``") + "`"
    if column.type in BINARY_TYPES:
        return f"HEX({name})"
    if column.type == "BIT":
        return f"CAST({name} + 0 AS CHAR)"
    if column.type == "YEAR":
        return f"LPAD({name}, 4, '0')"
    return f"CONVERT({name}, CHAR)"


def _same(column: TableColumn, value: str | None) -> Any:
    if value is not None and column.type in FLOAT_TYPES:
        return float(value)
    return value


@ON_SERVERS
@pytest.mark.parametrize("options", FORMS)
def test_rows(server: DatabaseServer, tmp_path: Path, options: list[str]) -> None:
    """In every form the export has the tables of the server, and their rows value for value."""
    folder = dumped(server, tmp_path / "export", options)
    export = read_export(LocalStorage(str(folder)))
    assert [table.name.table for table in export.tables] == ["empty", "kinds", "many", "some names"]
    assert (export.time_zone, export.file_format) == ("+00:00", "sql")
    for table in export.tables:
        columns = layout_of(table, "").columns
        found, wanted = (
            Counter(tuple(map(_same, columns, row)) for row in rows)
            for rows in (rows_of(folder, export, table), shown(server, table))
        )
        assert found == wanted


@pytest.mark.parametrize("kind", ["mariadb"])
def test_views(server: DatabaseServer, tmp_path: Path) -> None:
    """A view is read from its own file, and the file that holds its place among the tables is none."""
    server.query("CREATE VIEW my.v AS SELECT id FROM my.kinds")
    export = read_export(LocalStorage(str(dumped(server, tmp_path / "export"))))
    assert [view.name.table for view in export.views] == ["v"]
    assert "DEFINER=CURRENT_USER" in export.views[0].query
    assert "v" not in [table.name.table for table in export.tables]


@pytest.mark.parametrize("kind", ["mariadb"])
def test_snapshot_has_to_be_given(server: DatabaseServer, tmp_path: Path) -> None:
    """An export of another server than TiDB names no TSO, and says so."""
    export = read_export(LocalStorage(str(dumped(server, tmp_path / "export"))))
    assert export.snapshot == 0
    assert export.snapshot_hint


@pytest.mark.parametrize("kind", ["mariadb"])
def test_killed(server: DatabaseServer, tmp_path: Path) -> None:
    """While mydumper has not finished, its metadata has another name: such an export is refused."""
    folder = dumped(server, tmp_path / "export")
    (folder / "metadata").rename(folder / "metadata.partial")
    with pytest.raises(ExportRefused, match="still running, or it failed"):
        read_export(LocalStorage(str(folder)))
