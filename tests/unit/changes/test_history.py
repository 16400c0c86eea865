"""Tables and their columns, followed through the statements of a bucket."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest

from storage_consumer.changes.alterations import TableHistory, history_at, origins
from storage_consumer.errors import NotReplicable
from storage_consumer.model import DdlKind, TableColumn, TableDefinition, TableName, TableVersion
from storage_consumer.sql.statement import statement_of

ID = TableColumn(name="id", type="INT", is_pk=True, nullable=False)
NAME = TableColumn(name="name", type="VARCHAR", precision=20)
A, B = (TableName(schema="d", table=name) for name in "ab")


def step(
    version: int, query: str, kind: int, columns: Sequence[TableColumn] = (ID, NAME), name: TableName = A
) -> TableDefinition:
    """A schema file."""
    return TableDefinition(
        name=name,
        version=TableVersion(version),
        query=query,
        ddl_type=kind,
        columns=tuple(columns),
        path=f"{name}/meta/schema_{version}_1.json",
        checksum=1,
    )


CREATE = step(10, "CREATE TABLE `a` (id INT PRIMARY KEY, name VARCHAR(20))", DdlKind.CREATE_TABLE)


def at(*steps: TableDefinition, name: TableName = A, ts: int = 100) -> TableHistory:
    """A table's history, when it began as usual."""
    return history_at(name, ts, [CREATE, *steps])


def test_where_it_begins() -> None:
    """With its CREATE, with the last TRUNCATE, or with what came in the place of a table that was dropped; else nobody knows."""
    truncate = step(20, "TRUNCATE TABLE `a`", DdlKind.TRUNCATE_TABLE)
    drop = step(30, "DROP TABLE `d`.`a`", DdlKind.DROP_TABLE)
    again = step(40, "CREATE TABLE `a` LIKE `x`", DdlKind.CREATE_TABLE)
    assert [at(truncate, drop, again, ts=ts).begin for ts in (10, 19, 20, 29, 40, 50)] == [10, 10, 20, 20, 40, 40]
    assert history_at(A, 50, [step(20, "", 0)]).begin is None
    for ts in (9, 30, 39):
        with pytest.raises(NotReplicable, match=f"no such table at commit-ts {ts}"):
            at(truncate, drop, again, ts=ts)
    everything = step(35, "DROP DATABASE `d`", DdlKind.DROP_SCHEMA, (), TableName(schema="d", table=""))
    with pytest.raises(NotReplicable):
        at(truncate, everything, ts=36)


def test_under_other_names() -> None:
    """A table keeps its rows through renames, and another one that takes its name later is another one."""
    rename = step(20, "RENAME TABLE `d`.`a` TO `d`.`b`", DdlKind.RENAME_TABLE, name=B)
    other = step(30, "CREATE TABLE `a` (id INT PRIMARY KEY)", DdlKind.CREATE_TABLE, (ID,))
    found = at(rename, other, name=B)
    assert (found.begin, found.names) == (10, (A, B))
    assert [found.name_at(ts) for ts in (5, 10, 19, 20, 99)] == [A, A, A, B, B]
    assert (at(rename, other).begin, at(rename, other).names) == (30, (A,))
    later = history_at(B, 50, [rename])
    assert (later.begin, later.name_at(15)) == (None, A)


@pytest.mark.parametrize(
    ("query", "kind"),
    [
        ("ALTER TABLE `a` DROP PARTITION `p1`", DdlKind.DROP_PARTITION),
        ("ALTER TABLE `a` TRUNCATE PARTITION `p1`", DdlKind.TRUNCATE_PARTITION),
        ("ALTER TABLE `a` EXCHANGE PARTITION `p1` WITH TABLE `x`", DdlKind.EXCHANGE_PARTITION),
        ("ALTER TABLE `a` ADD INDEX i (name), TRUNCATE PARTITION `p1`", DdlKind.MULTI_SCHEMA_CHANGE),
        ("FLASHBACK TABLE `a`", DdlKind.RECOVER_TABLE),
        ("RECOVER TABLE `a`", DdlKind.RECOVER_TABLE),
    ],
)
def test_rows_that_no_file_shows(query: str, kind: int) -> None:
    """Statements that move rows in or out are named, until the table is emptied."""
    moved = step(20, query, kind)
    assert query in at(moved).broken
    assert at(moved).broken_at == 20
    assert not at(moved, step(30, "TRUNCATE TABLE `a`", DdlKind.TRUNCATE_TABLE)).broken
    assert not at(step(20, "ALTER TABLE `a` ADD PARTITION (PARTITION p2 VALUES IN (2))", DdlKind.ADD_PARTITION)).broken


def test_the_other_table_of_an_exchange() -> None:
    """It has no file of the statement, and its rows are others all the same, in another database too."""
    other = TableName(schema="e", table="x")
    made = step(15, "CREATE TABLE `x` (id INT PRIMARY KEY)", DdlKind.CREATE_TABLE, (ID,), other)
    exchange = step(20, "ALTER TABLE `d`.`a` EXCHANGE PARTITION `p1` WITH TABLE `e`.`x`", DdlKind.EXCHANGE_PARTITION)
    assert "EXCHANGE" in at(made, exchange, name=other).broken


def test_a_structure_that_no_statement_explains() -> None:
    """After a pause longer than TiCDC keeps statements, say: nobody knows what happened to the rows."""
    assert "no statement shows how" in at(step(20, "", 0, (ID,))).broken
    assert not at(step(20, "", 0)).broken


def origin(query: str, columns: Sequence[TableColumn], name: str, kind: int = DdlKind.MODIFY_COLUMN) -> object:
    """Where a column comes from after one statement, in rows from before it: its former name, or what it was added with."""
    found = origins((ID, NAME), [step(20, query, kind, columns)], [name])[name]
    return found.name or ("added", found.default)


def test_columns_that_move() -> None:
    """Order, names and removals of others do not matter, under whichever names they had in between."""
    steps = [
        step(20, "ALTER TABLE `a` RENAME COLUMN `name` TO `n1`", 12, (ID, TableColumn(name="n1", type="VARCHAR"))),
        step(30, "ALTER TABLE `a` ADD COLUMN `name` INT FIRST", 5, (TableColumn(name="name", type="INT"), ID, NAME)),
    ]
    steps[1] = step(
        30,
        "ALTER TABLE `a` ADD COLUMN `name` INT FIRST",
        DdlKind.ADD_COLUMN,
        (TableColumn(name="name", type="INT"), ID, TableColumn(name="n1", type="VARCHAR")),
    )
    found = origins((ID, NAME), steps, ["id", "n1", "name"])
    assert [found[name].name for name in ("id", "n1", "name")] == ["id", "name", None]


def test_renamed_columns() -> None:
    """Both forms, several in one statement, names in any case; what only changes a column renames nothing."""
    query = "ALTER TABLE `t` CHANGE COLUMN `A` `b` INT, RENAME COLUMN c TO D, CHANGE e e BIGINT, RENAME INDEX x TO y"
    assert statement_of(query).renamed == {"b": "a", "d": "c"}


@pytest.mark.parametrize(
    ("text", "column", "value"),
    [
        ("`c` INT", TableColumn(name="c", type="INT"), None),
        ("`c` INT DEFAULT 7", TableColumn(name="c", type="INT", default="7"), "7"),
        ("`c` INT DEFAULT 7", TableColumn(name="c", type="INT"), "7"),
        ("`c` INT NOT NULL", TableColumn(name="c", type="INT", nullable=False), "0"),
        ("`c` VARCHAR(5) NOT NULL", TableColumn(name="c", type="VARCHAR", nullable=False), ""),
        ("`c` VARCHAR(5) NOT NULL DEFAULT _UTF8MB4'n/a'", TableColumn(name="c", type="VARCHAR"), "n/a"),
        ("(`x` INT, `c` VARCHAR(5) DEFAULT 'it''s', `y` INT)", TableColumn(name="c", type="VARCHAR"), "it's"),
        (
            "`c` DATETIME DEFAULT '2020-01-01'",
            TableColumn(name="c", type="DATETIME", default="2020-01-01"),
            "2020-01-01",
        ),
        ("`c` INT DEFAULT NULL", TableColumn(name="c", type="INT"), None),
        ("`c` INT DEFAULT (5)", TableColumn(name="c", type="INT"), "5"),
        ("`c` INT DEFAULT ((-5)) NOT NULL", TableColumn(name="c", type="INT", default="-5"), "-5"),
        ("`c` VARCHAR(5) DEFAULT ('a')", TableColumn(name="c", type="VARCHAR", default="a"), "a"),
        ("`c` VARCHAR(5) DEFAULT -5", TableColumn(name="c", type="VARCHAR"), "-5"),
        ("`c` TINYINT(1) DEFAULT TRUE", TableColumn(name="c", type="TINYINT", default="1"), "1"),
        ("`c` INT DEFAULT 0x10", TableColumn(name="c", type="INT", default="16"), "16"),
        ("`c` CHAR(5) DEFAULT 'a  '", TableColumn(name="c", type="CHAR", default="a  "), "a"),
        ("`c` VARCHAR(5) DEFAULT 'a  '", TableColumn(name="c", type="VARCHAR", default="a  "), "a  "),
        ("`c` FLOAT DEFAULT 1.239", TableColumn(name="c", type="FLOAT"), "1.239"),
        ("`c` FLOAT(7,2) DEFAULT 1.2", TableColumn(name="c", type="FLOAT", precision=7, scale=2), "1.2"),
        (
            "`c` DATETIME(3) DEFAULT '2026-01-01 00:00:00.7'",
            TableColumn(name="c", type="DATETIME", scale=3),
            "2026-01-01 00:00:00.7",
        ),
    ],
)
def test_added_columns(text: str, column: TableColumn, value: str | None) -> None:
    """Rows from before have the default: of the schema file, or of the statement where old TiCDC leaves it out."""
    assert origin(f"ALTER TABLE `a` ADD COLUMN {text}", (ID, NAME, column), "c", DdlKind.ADD_COLUMN) == ("added", value)


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("`c` DATETIME DEFAULT CURRENT_TIMESTAMP", TableColumn(name="c", type="DATETIME", default="CURRENT_TIMESTAMP")),
        ("`c` DATETIME DEFAULT CURRENT_TIMESTAMP", TableColumn(name="c", type="DATETIME")),
        ("`c` ENUM('a') NOT NULL", TableColumn(name="c", type="ENUM", nullable=False)),
        ("`c` BIT(3) DEFAULT 5", TableColumn(name="c", type="BIT", default="\x05")),
        ("`c` VARCHAR(9) DEFAULT (UUID())", TableColumn(name="c", type="VARCHAR")),
        ("`c` VARCHAR(9) DEFAULT (UPPER('a'))", TableColumn(name="c", type="VARCHAR", default="upper(_utf8mb4'a')")),
        ("`c` INT DEFAULT (1+1)", TableColumn(name="c", type="INT", default="1 + 1")),
        ("`c` VARCHAR(9) DEFAULT CURRENT_USER", TableColumn(name="c", type="VARCHAR", default="x")),
        ("`c` INT DEFAULT 0x10", TableColumn(name="c", type="INT")),
        ("`c` INT DEFAULT 1.5", TableColumn(name="c", type="INT")),
        ("`c` INT DEFAULT b'101'", TableColumn(name="c", type="INT")),
        ("`c` VARCHAR(9) DEFAULT 0x41", TableColumn(name="c", type="VARCHAR")),
        ("`c` VARCHAR(9) DEFAULT 1e3", TableColumn(name="c", type="VARCHAR")),
        ("`c` VARCHAR(9) DEFAULT 007", TableColumn(name="c", type="VARCHAR")),
        ("`c` VARCHAR(9) DEFAULT 'a' 'b'", TableColumn(name="c", type="VARCHAR")),
        ("`c` VARCHAR(9) DEFAULT _latin1'a'", TableColumn(name="c", type="VARCHAR")),
        ("`c` FLOAT(7,2) DEFAULT 1.239", TableColumn(name="c", type="FLOAT", precision=7, scale=2)),
        ("`c` DOUBLE(7,2) DEFAULT 1e-3", TableColumn(name="c", type="DOUBLE", precision=7, scale=2)),
        ("`c` DATETIME DEFAULT '2026-01-01 00:00:00.7'", TableColumn(name="c", type="DATETIME")),
        ("`c` ENUM('2','1') DEFAULT 2", TableColumn(name="c", type="ENUM", elements=("2", "1"))),
    ],
)
def test_added_with_what_nobody_knows(text: str, column: TableColumn) -> None:
    """A default that is no constant, or is not known to be one, is refused by name, and only where the column is wanted."""
    columns = (ID, NAME, column)
    with pytest.raises(NotReplicable, match=f"{re.escape(text)}.* at 20 gave the rows a value of column c"):
        origin(f"ALTER TABLE `a` ADD COLUMN {text}", columns, "c", DdlKind.ADD_COLUMN)
    assert origin(f"ALTER TABLE `a` ADD COLUMN {text}", columns, "name", DdlKind.ADD_COLUMN) == "name"


CHANGES = [
    (TableColumn(name="c", type="INT"), TableColumn(name="c", type="BIGINT"), True),
    (TableColumn(name="c", type="BIGINT"), TableColumn(name="c", type="INT"), False),
    (TableColumn(name="c", type="INT", unsigned=True), TableColumn(name="c", type="BIGINT", unsigned=True), True),
    # TiDB itself makes other numbers of those beyond the signed ones.
    (TableColumn(name="c", type="INT", unsigned=True), TableColumn(name="c", type="BIGINT"), False),
    (TableColumn(name="c", type="VARCHAR", precision=9), TableColumn(name="c", type="VARCHAR", precision=10), True),
    (TableColumn(name="c", type="VARCHAR", precision=9), TableColumn(name="c", type="VARCHAR", precision=8), False),
    (TableColumn(name="c", type="VARCHAR", precision=9), TableColumn(name="c", type="TEXT", precision=65535), True),
    (TableColumn(name="c", type="INT"), TableColumn(name="c", type="VARCHAR", precision=20), False),
    (
        TableColumn(name="c", type="DECIMAL", precision=10, scale=2),
        TableColumn(name="c", type="DECIMAL", precision=12, scale=4),
        True,
    ),
    (
        TableColumn(name="c", type="DECIMAL", precision=10, scale=2),
        TableColumn(name="c", type="DECIMAL", precision=10, scale=4),
        False,
    ),
    (TableColumn(name="c", type="DATETIME", scale=3), TableColumn(name="c", type="DATETIME"), False),
    (TableColumn(name="c", type="DATETIME"), TableColumn(name="c", type="TIMESTAMP"), False),
    (
        TableColumn(name="c", type="ENUM", elements=("a",)),
        TableColumn(name="c", type="ENUM", elements=("a", "b")),
        True,
    ),
    (
        TableColumn(name="c", type="ENUM", elements=("a", "b")),
        TableColumn(name="c", type="ENUM", elements=("b", "a")),
        False,
    ),
    (TableColumn(name="c", type="ENUM"), TableColumn(name="c", type="ENUM"), False),
    (TableColumn(name="c", type="BINARY", precision=2), TableColumn(name="c", type="BINARY", precision=3), False),
]


@pytest.mark.parametrize(("before", "after", "kept"), CHANGES)
def test_columns_of_another_type(before: TableColumn, after: TableColumn, kept: bool) -> None:  # noqa: FBT001 - pytest
    """Where every value stays what it is, rows from before have it; else the statement is refused by name."""
    query = f"ALTER TABLE `a` MODIFY COLUMN `c` {after.type}"
    steps = [step(20, query, DdlKind.MODIFY_COLUMN, (ID, after))]
    if kept:
        assert origins((ID, before), steps, ["c"])["c"].name == "c"
        return
    with pytest.raises(NotReplicable, match="may have rewritten the values of column c"):
        origins((ID, before), steps, ["c"])
    assert origins((ID, before), steps, ["id"])["id"].name == "id"


@pytest.mark.parametrize(
    "query", ["ALTER TABLE `a` RENAME COLUMN `old` TO `name`", "ALTER TABLE `a` CHANGE `old` `name` VARCHAR(20)"]
)
def test_a_rename_that_rows_show_already(query: str) -> None:
    """An export may have a column under the name that a statement gives it only after the snapshot."""
    assert origin(query, (ID, NAME), "name") == "name"
    swap = "ALTER TABLE `a` RENAME COLUMN `id` TO `name`, RENAME COLUMN `name` TO `id`"
    assert origin(swap, (ID, NAME), "name") == "id"


def test_statements_that_rewrite_nothing() -> None:
    """Whatever a schema file says of a column, only MODIFY and CHANGE rewrite its values."""
    other = TableColumn(name="name", type="VARCHAR", precision=5)
    assert origin("ALTER TABLE `a` ADD INDEX i (name)", (ID, other), "name", DdlKind.ADD_INDEX) == "name"
