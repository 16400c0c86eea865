"""Columns that the target computes and rows carry: what the target got is held against what the source has, in the transaction of the rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial

import pytest

from storage_consumer.decode.values import WireKind
from storage_consumer.errors import RowRefused
from storage_consumer.model import TableName
from storage_consumer.rows.spec import Fold, KeyPart, TablePlan, WireColumn
from storage_consumer.target.apply_rows import RowStatements
from storage_consumer.target.transaction import FencedConnection
from tests.contract.test_writer import Rig, real_rig
from tests.harness.servers import KINDS, DatabaseServer
from tests.unit.halves import table

pytestmark = pytest.mark.server
ID = WireColumn(name="i", kind=WireKind.TEXT, type="INT")
TYPES: dict[str, tuple[str, WireKind, str, list[str], str]] = {
    "INT": ("INT", WireKind.TEXT, "`i` + 1", ["2", "3"], "4"),
    "DECIMAL": ("DECIMAL(20,6)", WireKind.TEXT, "`i` + 0.5", ["1.500000", "2.500000"], "2.500001"),
    "DOUBLE": ("DOUBLE", WireKind.TEXT, "`i` + 0.1e0", ["1.1", "2.1"], "2.1000000000000005"),
    "FLOAT": ("FLOAT", WireKind.TEXT, "`i` + 0.1e0", ["1.1", "2.1"], "2.1000001"),
    "VARCHAR": ("VARCHAR(20) COLLATE utf8mb4_general_ci", WireKind.TEXT, "CONCAT('a\\t', `i`)", ["a\\t1", "a\\t2"], "A\\t2"),
    "YEAR": ("YEAR", WireKind.TEXT, "IF(`i` = 1, 2001, NULL)", ["2001", "\\N"], "2002"),
    "DATETIME": ("DATETIME(3)", WireKind.TEXT, "IF(`i` = 1, TIMESTAMP'2024-01-31 00:00:00', TIMESTAMP'2024-01-31 10:00:00.5')", ["2024-01-31 00:00:00.000", "2024-01-31 10:00:00.500"], "\\N"),
    "VARBINARY": ("VARBINARY(20)", WireKind.HEX, "CONCAT('a', `i`)", ["6131", "6132"], "4132"),
    "BIT": ("BIT(9)", WireKind.UNSIGNED, "`i` + 5", ["6", "7"], "8"),
    "JSON": ("JSON", WireKind.TEXT, "JSON_OBJECT('a', `i`)", ['{"a": 1}', '{"a": 2}'], '{"a": 3}'),
}  # fmt: skip
"""Type → column, kind, expression, its values for 1 and 2, and what is none for 2."""


def work_of(kind: str) -> TablePlan:
    """The plan of ``shop.c``."""
    computed = WireColumn(name="g", kind=TYPES[kind][1], type=kind, is_computed=True)
    key = (KeyPart(column=ID, fold=Fold.EXACT),)
    return replace(table(), name=TableName(schema="shop", table="c"), written=(computed, ID), key=key)


def line(value: str, number: int) -> bytes:
    """A row as it travels."""
    return f"{value}\t{number}".encode()


@pytest.fixture(params=KINDS)
def rig(request: pytest.FixtureRequest) -> Iterator[tuple[Rig, DatabaseServer]]:
    """A target of each kind."""
    server: DatabaseServer = request.getfixturevalue(request.param)
    with closing(real_rig(server)) as made:
        yield made, server


@pytest.mark.parametrize("load_data", [True, False])
def test_values_are_compared(rig: tuple[Rig, DatabaseServer], *, load_data: bool) -> None:
    """Rows go in by any way where the values are equal; another one is named with both values and undoes its transaction."""
    made, server = rig
    for kind, (column, _, expression, values, other) in TYPES.items():
        server.query("DROP TABLE IF EXISTS shop.c")
        server.query(f"CREATE TABLE shop.c (i INT PRIMARY KEY, g {column} GENERATED ALWAYS AS ({expression}) STORED)")
        window = made.state.lease.open_window(1, 0)
        target = RowStatements(FencedConnection(replace(made.spec, load_data=load_data, window_id=window), "", 0))
        work = work_of(kind)
        rows = [line(value, number) for number, value in enumerate(values, 1)]
        with closing(target.fenced):
            for born, others in ((rows, ()), ((), rows), (rows[:1], rows[1:])):
                target.fenced.transaction(work, partial(target.put, work, born, others, is_settled=True))
            assert [int(i) for (i,) in server.query("SELECT i FROM shop.c ORDER BY i")] == [1, 2]
            with pytest.raises(
                RowRefused,
                match=r"row with i = 2 otherwise than the source: g is .* at the source and .* in the target",
            ) as refused:
                target.fenced.transaction(
                    work, partial(target.put, work, (), [rows[0], line(other, 2)], is_settled=True)
                )
        assert refused.value.line == line(other, 2)


@pytest.mark.parametrize("rig", ["mariadb", "mysql"], indirect=True)
def test_the_way_on(rig: tuple[Rig, DatabaseServer]) -> None:
    """Once the column is one that is written it holds what the source has; TiDB, which computes as the source does, needs no such way."""
    made, server = rig
    server.query("CREATE TABLE shop.c (i INT PRIMARY KEY, g DECIMAL(20,6) GENERATED ALWAYS AS (1 / `i`) STORED)")
    server.query("INSERT INTO shop.c (i) VALUES (1)")
    server.query("ALTER TABLE shop.c MODIFY COLUMN g DECIMAL(20,6)")
    server.query("REPLACE INTO shop.c (i, g) VALUES (3, 0.333333)")
    assert [str(g) for (g,) in server.query("SELECT g FROM shop.c ORDER BY i")] == ["1.000000", "0.333333"]
    assert made.rows() == {}
