"""Structures of both sides: what is the same under a named equivalence, and what is not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from storage_consumer.verifying.side import ColumnShape, IndexShape, TableShape
from storage_consumer.verifying.structure import EQUIVALENCES, compared

INT = ColumnShape(name="a", data_type="int", column_type="int")
TEXT = ColumnShape(name="a", data_type="varchar", column_type="varchar(9)", collation="utf8mb4_bin")
JSON = ColumnShape(name="a", data_type="json", column_type="json")
LONG = ColumnShape(name="a", data_type="longtext", column_type="longtext", collation="utf8mb4_bin")
STAMP = ColumnShape(name="a", data_type="timestamp", column_type="timestamp(3)")


def shape(kind: str, column: ColumnShape, *indexes: IndexShape, collation: str = "utf8mb4_bin") -> TableShape:
    """A table of one column, and one that says nothing."""
    return TableShape(kind=kind, columns=(column, replace(INT, name="z")), indexes=indexes, collation=collation)


def index(
    *columns: str,
    name: str = "i",
    unique: bool = False,
    method: str = "BTREE",
    is_global: bool = False,
    is_partial: bool = False,
) -> IndexShape:
    """An index over whole columns."""
    return IndexShape(
        name=name,
        unique=unique,
        columns=columns,
        prefixes=(None,) * len(columns),
        method=method,
        is_global=is_global,
        condition="`z` > 1" if is_partial else "",
    )


@pytest.mark.parametrize(
    ("kind", "source", "target", "equivalence"),
    [
        ("mariadb", INT, replace(INT, column_type="int(11)"), "display width"),
        ("mysql", replace(INT, column_type="int(6) unsigned"), replace(INT, column_type="int(6) unsigned zerofill"), "display width"),
        ("mysql", replace(INT, column_type="int unsigned"), replace(INT, column_type="int(6) unsigned zerofill"), "display width"),
        ("mysql", replace(INT, column_type="int(6) unsigned"), replace(INT, column_type="int(6) zerofill"), "display width"),
        ("mysql", replace(INT, column_type="int(6) unsigned zerofill"), INT, ""),
        ("mysql", INT, replace(INT, column_type="int(6) unsigned zerofill"), ""),
        ("mysql", replace(INT, data_type="decimal", column_type="decimal(8,2) unsigned"), replace(INT, data_type="decimal", column_type="decimal(8,2) unsigned zerofill"), "display width"),
        ("mysql", replace(INT, data_type="decimal", column_type="decimal(8,2) unsigned zerofill"), replace(INT, data_type="decimal", column_type="decimal(8,2)"), ""),
        ("mysql", replace(INT, data_type="tinyint", column_type="tinyint(1)"), replace(INT, data_type="tinyint", column_type="tinyint"), "display width"),
        ("mysql", INT, replace(INT, column_type="int unsigned"), ""),
        ("mysql", INT, replace(INT, data_type="bigint", column_type="bigint"), ""),
        ("mariadb", JSON, LONG, "json"),
        ("mysql", replace(JSON, data_type="vector", column_type="vector(3)"), LONG, "vector type"),
        ("mysql", TEXT, LONG, ""),
        ("mariadb", replace(INT, nullable=False, is_generated=True), replace(INT, is_generated=True), "generated NOT NULL"),
        ("mysql", replace(INT, nullable=False), INT, ""),
        ("mysql", replace(INT, is_generated=True), INT, ""),
        ("mariadb", replace(TEXT, default="it's"), replace(TEXT, default="'it''s'"), "default expression"),
        ("mariadb", replace(TEXT, default="x"), replace(TEXT, default="'y'"), ""),
        ("mysql", replace(TEXT, default=""), TEXT, ""),
        ("mysql", replace(TEXT, default="😀"), replace(TEXT, default="?", constant="😀".encode()), "default expression"),
        ("mysql", replace(TEXT, default="?"), replace(TEXT, default="?", constant="😀".encode()), ""),
        ("mariadb", replace(TEXT, default="f(X)"), replace(TEXT, default="'f(x)'", constant=b"f(x)"), ""),
        ("mysql", replace(TEXT, default="0xff"), replace(TEXT, default="0xFF", constant=b"\xff"), ""),
        ("mysql", replace(LONG, default="x"), replace(LONG, default="'y'", constant=b"y"), ""),
        ("mysql", LONG, replace(LONG, default="_utf8mb4\\'x\\'", extra="DEFAULT_GENERATED"), ""),
        ("mariadb", replace(TEXT, data_type="date", default="CURRENT_DATE"), replace(TEXT, data_type="date", default="curdate()"), "default expression"),
        ("mysql", replace(TEXT, data_type="enum", column_type="enum('😀','?')"), replace(TEXT, data_type="enum", column_type="enum('?','?')"), "member characters"),
        ("mysql", replace(TEXT, data_type="enum", column_type="enum('表')"), replace(TEXT, data_type="enum", column_type="enum('?')"), ""),
        ("tidb", replace(TEXT, data_type="enum", column_type="enum('😀')"), replace(TEXT, data_type="enum", column_type="enum('?')"), ""),
        ("mysql", replace(INT, data_type="decimal", column_type="decimal(9,2)", default="0"), replace(INT, data_type="decimal", column_type="decimal(9,2)", default="0.00"), "default expression"),
        ("mysql", replace(STAMP, default="CURRENT_TIMESTAMP"), replace(STAMP, default="CURRENT_TIMESTAMP"), None),
        ("mariadb", replace(STAMP, default="CURRENT_TIMESTAMP"), replace(STAMP, default="current_timestamp()"), "default expression"),
        ("mysql", replace(STAMP, default="2024-01-01 00:00:00"), replace(STAMP, default="2024-01-01 08:00:00.000"), "timestamp default"),
        ("mysql", replace(STAMP, default="2024-01-01 00:00:00"), STAMP, ""),
        ("mysql", replace(INT, default="nextval(`s`)"), INT, "sequence default"),
        ("mysql", replace(LONG, default="x"), replace(LONG, default="_utf8mb4\\'x\\'", extra="DEFAULT_GENERATED"), "default expression"),
        ("mysql", replace(INT, extra="auto_increment"), INT, "counter without index"),
        ("tidb", replace(INT, extra="auto_increment"), INT, ""),
        ("mysql", replace(STAMP, extra="on update CURRENT_TIMESTAMP"), STAMP, ""),
        ("mariadb", replace(TEXT, collation="utf8mb4_0900_ai_ci"), replace(TEXT, collation="utf8mb4_uca1400_nopad_ai_ci"), "newer collation"),
        ("mysql", replace(TEXT, collation="utf8mb3_bin"), replace(TEXT, collation="utf8_bin"), "name of the character set"),
        ("mysql", TEXT, replace(TEXT, collation="utf8mb4_general_ci"), ""),
    ],
)  # fmt: skip
def test_one_column(kind: str, source: ColumnShape, target: ColumnShape, equivalence: str | None) -> None:
    """A property differs, or is the same by the one equivalence that covers it; None: it is shown alike."""
    found = compared(shape("tidb", source), shape(kind, target))
    assert found.used == ({equivalence} if equivalence else set())
    assert bool(found.differences) == (equivalence == "")
    assert found.used <= EQUIVALENCES.keys()


@pytest.mark.parametrize(
    ("kind", "source", "target", "equivalence"),
    [
        ("mysql", (index("a", name="x"),), (index("a", name="y"),), None),
        ("mysql", (index("a"),), (), ""),
        ("mysql", (), (index("a"),), ""),
        ("mysql", (index("a", unique=True, is_partial=True),), (index("a"),), "partial index"),
        ("mysql", (index("a", is_partial=True),), (index("a"),), "partial index"),
        ("mysql", (index("a", unique=True, is_partial=True),), (index("a", unique=True),), ""),
        ("mysql", (index("a", unique=True, is_partial=True),), (), ""),
        ("mysql", (index("a", unique=True, is_partial=True), index("a", name="j", unique=True)), (index("a"), index("a", name="j", unique=True)), "partial index"),
        ("mysql", (index("a", unique=True),), (index("a"),), ""),
        ("mysql", (index("a", unique=True),), (index("a", unique=True), index("a", name="j")), ""),
        ("tidb", (index("a", unique=True, is_partial=True),), (index("a"),), ""),
        ("tidb", (index("a", unique=True, is_partial=True),), (index("a", unique=True),), ""),
        ("tidb", (index("a", unique=True, is_partial=True),), (replace(index("a", unique=True), condition="`z` > 2"),), ""),
        ("tidb", (index("a", unique=True, is_partial=True),), (index("a", unique=True, is_partial=True),), None),
        ("mysql", (index("a"),), (index("a", unique=True),), ""),
        ("mysql", (index("a", unique=True),), (), ""),
        ("mysql", (index("a", unique=True, is_global=True),), (), "global index"),
        ("mysql", (index("a", method="FULLTEXT"),), (), "search index"),
        ("mariadb", (index(""),), (), "expression index"),
        ("tidb", (index("a", method="FULLTEXT"),), (), ""),
        ("mariadb", (index("a", name="PRIMARY", unique=True),), (index("a", name="primary_key", unique=True),), "generated primary key"),
        ("mysql", (index("a", name="PRIMARY", unique=True),), (index("a", unique=True),), ""),
        ("mysql", (index("a", "z"),), (index("a", "z"), index("a", name="fk")), "foreign key index"),
        ("mysql", (index("a", "z"),), (index("z", "a"),), ""),
    ],
)  # fmt: skip
def test_indexes(
    kind: str, source: tuple[IndexShape, ...], target: tuple[IndexShape, ...], equivalence: str | None
) -> None:
    """Indexes are told apart by what they are over, and by whether they keep rows unique."""
    found = compared(shape("tidb", INT, *source), shape(kind, INT, *target))
    assert found.used == ({equivalence} if equivalence else set())
    assert bool(found.differences) == (equivalence == "")


def test_columns_that_one_side_lacks() -> None:
    """They are named, and so is another order."""
    a, b, c = (replace(INT, name=name) for name in "abc")
    source, target = (TableShape(kind="tidb", columns=columns) for columns in ((a, b), (b, c)))
    assert compared(source, target).differences == [
        "column a: the target lacks it",
        "column c: the source does not have it",
    ]
    turned = compared(TableShape(kind="tidb", columns=(a, b)), TableShape(kind="tidb", columns=(b, a)))
    assert turned.differences == ["order of the columns: b, a in the target, a, b at the source"]


def test_collation_of_the_table() -> None:
    """New columns would take it."""
    found = compared(shape("tidb", INT), shape("mysql", INT, collation="latin1_bin"))
    assert found.differences == ["collation of the table: latin1_bin in the target, utf8mb4_bin at the source"]
