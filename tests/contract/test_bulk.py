"""Bulk statements: what they leave behind is what LOAD DATA and literals do, and where they fail the others take over."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import pymysql.err
import pytest

from storage_consumer.config.settings import Downstream
from storage_consumer.errors import RowRefused
from storage_consumer.rows.spec import JobSpec, TablePlan, WireColumn
from storage_consumer.target import apply_rows as rows_module
from storage_consumer.target import connection as connections
from storage_consumer.target.apply_rows import RowStatements
from storage_consumer.target.bucket_writer import TargetWriter
from storage_consumer.target.connection import Connection, connect
from storage_consumer.target.transaction import FencedConnection
from tests.contract.test_keyless import COLUMNS, LINES
from tests.contract.test_writer import Rig, real_rig
from tests.harness.servers import DatabaseServer
from tests.unit.halves import as_runs, table

pytestmark = pytest.mark.server
_MORE = {
    "u": ("BIGINT", "BIGINT UNSIGNED", [b"0", b"18446744073709551615", b"\\N"]),
    "m": (
        "DECIMAL",
        "DECIMAL(65, 30)",
        [b"-0.000000000000000000000000000001", b"99999999999999999999999999999999999.5"],
    ),
    "g": ("DOUBLE", "DOUBLE", [b"1.7976931348623157e308", b"-5e-324", b"0.1"]),
    "y": ("YEAR", "YEAR", [b"0000", b"1901", b"2155"]),
    "w": ("TIMESTAMP", "TIMESTAMP(6) NULL", [b"1970-01-01 00:00:01.000000", b"2038-01-19 03:14:07.999999"]),
    "h": ("TIME", "TIME(2)", [b"-838:59:59.00", b"00:00:00.01"]),
    "k": ("LONGTEXT", "LONGTEXT", [b"\\\\N", b"\\N", b"\\n\\t\r\0'\"", b"", b"x" * 70_000, "日😀".encode()]),
    "s": ("SET", "SET('a', 'b', 'c')", [b"a,c", b"", b"b"]),
}
"""Column → type, type in SQL, values; all that `COLUMNS` leaves out."""


class Ways(RowStatements):
    """Counts the rows that went in by each way."""

    def __init__(self, spec: JobSpec) -> None:
        """Before any."""
        super().__init__(FencedConnection(spec, "", 0))
        self.came = {"bulk": 0, "load": 0, "literals": 0}

    def _bulk(self, verb: str, work: TablePlan, rows: Any) -> bool:
        taken = super()._bulk(verb, work, rows)
        self.came["bulk"] += len(rows) * taken
        return taken

    def _load(self, verb: str, work: TablePlan, rows: Any) -> bool:
        taken = super()._load(verb, work, rows)
        self.came["load"] += len(rows) * taken
        return taken

    def _write(self, work: TablePlan, rows: Any, statement: Any, *, key_only: bool = False) -> int:
        self.came["literals"] += len(rows)
        return super()._write(work, rows, statement, key_only=key_only)


@pytest.fixture
def rig(mariadb: DatabaseServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    """``shop.orders`` with a key, on a server that has them, for any number of rows."""
    monkeypatch.setattr(rows_module, "is_many", bool)
    with closing(real_rig(mariadb, "c0")) as made:
        yield made


def _written(spec: JobSpec, work: TablePlan, rows: list[bytes], verb: str = "replace") -> dict[str, int]:
    """How many rows went in by which way."""
    target = Ways(spec)
    kinds = ((), rows) if verb == "replace" else (rows, ())
    with closing(target.fenced):
        target.fenced.transaction(work, lambda: target.put(work, *kinds, is_settled=True))
        return {way: count for way, count in target.came.items() if count}


def test_who_has_them(server: DatabaseServer) -> None:
    """MariaDB has bulk statements, the others have not."""
    with closing(connect(Downstream(port=server.port), "")) as connection:
        assert connection.has_bulk == (server.kind == "mariadb")


@pytest.mark.parametrize("verb", ["insert", "replace"])
def test_every_type(rig: Rig, mariadb: DatabaseServer, monkeypatch: pytest.MonkeyPatch, verb: str) -> None:
    """A value of any type is the same by bulk statement, LOAD DATA, and literals."""
    longest = max(len(values) for _, _, values in _MORE.values())
    lines = [
        b"\t".join([LINES[number % len(LINES)], *(values[number % len(values)] for _, _, values in _MORE.values())])
        for number in range(len(LINES) * longest)
    ]
    columns = [
        *((name, sql) for name, (_, _, sql) in COLUMNS.items()),
        *((name, sql) for name, (_, sql, _) in _MORE.items()),
    ]
    written = (
        *(WireColumn(name=name, kind=kind, type=type_) for name, (type_, kind, _) in COLUMNS.items()),
        *(WireColumn(name=name, kind=table().written[0].kind, type=type_) for name, (type_, _, _) in _MORE.items()),
    )
    work = replace(table(), written=written)
    found = []
    never = 10**9
    ways = (("bulk", 0), ("load", never), ("literals", never))
    for way, least in ways:
        monkeypatch.setattr(rows_module, "is_many", least.__lt__)
        mariadb.query("DROP TABLE shop.orders")
        mariadb.query(
            f"CREATE TABLE shop.orders ({', '.join(f'`{name}` {sql}' for name, sql in columns)}, "
            "number INT AUTO_INCREMENT PRIMARY KEY)"
        )
        assert _written(replace(rig.spec, load_data=way == "load"), work, lines, verb) == {way: len(lines)}
        found.append(mariadb.query("SELECT * FROM shop.orders ORDER BY number"))
    assert len(found[0]) == len(lines)
    assert found == [found[0]] * len(ways)


@pytest.mark.parametrize("load_data", [True, False])
def test_refused(rig: Rig, mariadb: DatabaseServer, load_data: bool) -> None:  # noqa: FBT001 - pytest gives it by name
    """A value that the target would change, or refuses, is refused by its row's name, and no row is left."""
    mariadb.query("ALTER TABLE shop.orders MODIFY c1 VARCHAR(20) CHARACTER SET utf8mb3")
    for bad in (b"y" * 21, "😀".encode()):
        with pytest.raises(RowRefused, match=r"shop\.orders: the target refused the row with c0 = 'b'"):
            _written(replace(rig.spec, load_data=load_data), table(), [b"a\t1", b"b\t" + bad, b"c\t2"])
        assert not rig.rows()


@pytest.mark.parametrize("packet", [1 << 12, 1 << 14])
def test_more_than_a_packet(rig: Rig, packet: int) -> None:
    """Rows that the server does not take in one packet go in by LOAD DATA."""
    rows = [b"%d\t%s" % (number, b"y" * 20) for number in range(300)]
    way = "load" if packet < 300 * 25 else "bulk"
    assert _written(replace(rig.spec, load_data=True, max_packet=packet), table(), rows) == {way: 300}
    assert rig.rows().total() == 300


def test_no_prepared_statements(rig: Rig, mariadb: DatabaseServer) -> None:
    """Where the server may prepare no statement, rows go in by LOAD DATA."""
    ((before,),) = mariadb.query("SELECT @@GLOBAL.max_prepared_stmt_count")
    mariadb.query("SET GLOBAL max_prepared_stmt_count = 0")
    try:
        assert _written(replace(rig.spec, load_data=True), table(), [b"a\t1"]) == {"load": 1}
    finally:
        mariadb.query(f"SET GLOBAL max_prepared_stmt_count = {before}")


def test_statements_are_given_back(rig: Rig, mariadb: DatabaseServer) -> None:
    """The server keeps no statement of ours, whether it took the rows or refused them."""
    target = Ways(rig.spec)
    with closing(target.fenced):
        for row in (b"a\t1", b"b\t" + b"y" * 21) * 3:
            try:
                target.fenced.transaction(table(), lambda row=row: target.put(table(), (), [row], is_settled=True))  # type: ignore[misc] # a default
            except RowRefused:
                assert len(row) > 20
        assert mariadb.query("SHOW GLOBAL STATUS LIKE 'Prepared_stmt_count'") == (("Prepared_stmt_count", "0"),)
        assert target.came["bulk"] == 3


@pytest.mark.parametrize("number", [1, 2, 3])
def test_cut(rig: Rig, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """A connection that ends at the statement's preparation, at its values or at its end: the rows are there once all the same."""
    commands = {1: 0x16, 2: 0xFA, 3: 0x19}
    cut: list[int] = []

    class Cut(Connection):
        def _execute_command(self, command: int, sql: Any) -> None:
            if command == commands[number] and not cut:
                cut.append(command)
                self._force_close()  # type: ignore[attr-defined] # not in the stubs
                raise pymysql.err.OperationalError(2013, "cut")
            super()._execute_command(command, sql)  # type: ignore[misc] # likewise

    monkeypatch.setattr(connections, "Connection", Cut)
    writer = rig.writer()
    assert isinstance(writer, TargetWriter)
    writer.write_runs(table(), as_runs([], [b"a\t1", b"b\t2"]))
    assert (cut, rig.rows()) == ([commands[number]], {("a", "1"): 1, ("b", "2"): 1})
