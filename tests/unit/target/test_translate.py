"""A DDL of the source as the statement for this target: what is put in, what is left out, and what is left alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pymysql.converters import escape_string as escape

from storage_consumer.errors import NotReplicable
from storage_consumer.model import TableColumn
from storage_consumer.target.ddl.column_rules import source_collation
from storage_consumer.target.ddl.translate import action_for, create_from_columns
from tests.unit.building import CREATE_DATABASE, definition

BIN = " DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"


def statement(
    query: str, *, server_type: str = "mysql", collation: str | None = "utf8mb4_bin", table_dir: str = "s/t"
) -> str:
    """What is run for the statement."""
    return action_for(definition(table_dir, 1, query), server_type, collation).statement


@pytest.mark.parametrize(
    "query",
    [
        "ALTER TABLE `t` ADD COLUMN `a` INT",
        "CREATE TABLE `t` (`id` INT PRIMARY KEY /*T![clustered_index] CLUSTERED */)",
        "CREATE TABLE `t` (`id` INT COMMENT 'CHARACTER SET utf8mb4')",
        "CREATE TABLE `t` LIKE `u`",
        "CREATE VIEW `v` AS SELECT 1 AS `charset`",
        "DROP TABLE `s`.`t`",
    ],
)
@pytest.mark.parametrize("server_type", ["mysql", "mariadb", "tidb"])
def test_left_alone(query: str, server_type: str) -> None:
    """A statement that means the same everywhere runs as it is, to the letter, in its own database."""
    action = action_for(definition("s/t", 1, f" {query} ; "), server_type, "utf8mb4_bin")
    assert (action.statement, action.schema, action.notes) == (query, "s", ())


@pytest.mark.parametrize("query", ["ALTER TABLE `t`", "ALTER TABLE `s`.`t`", "ALTER TABLE `t` ;"])
def test_bare_alter(query: str) -> None:
    """An ALTER TABLE from which TiCDC took everything is not run, and it is said why."""
    action = action_for(definition("s/t", 1, query), "mysql", None)
    assert action.statement == ""
    assert action.notes


def test_database() -> None:
    """A new database gets the source's defaults unless it names others; it runs in no database."""
    created = definition("s", 1, "CREATE DATABASE `s`", CREATE_DATABASE)
    action = action_for(created, "mysql", None)
    assert action.statement == "CREATE DATABASE `s` CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
    assert action.schema == ""
    assert action.notes == ("database defaults",)
    assert statement("CREATE DATABASE `s`", server_type="tidb", table_dir="s") == "CREATE DATABASE `s`"
    named = "CREATE DATABASE `s` COLLATE = utf8mb4_general_ci"
    assert statement(named, table_dir="s") == named


@pytest.mark.parametrize(
    ("collation", "added"),
    [(None, ""), ("utf8mb4_bin", ""), ("utf8mb4_0900_ai_ci", BIN), ("latin1_bin", BIN), ("utf8mb4_0900_bin", BIN)],
)
def test_table_in_a_database_with_other_defaults(collation: str | None, added: str) -> None:
    """A table that names no charset gets the source's where its database on the target has another one."""
    query = "CREATE TABLE `t` (`a` VARCHAR(5) DEFAULT ')') PARTITION BY HASH (`a`) PARTITIONS 2"
    expected = query.replace("')')", "')')" + added)
    assert statement(query, collation=collation) == expected


@pytest.mark.parametrize(
    ("statements", "collation"),
    [
        ((), "utf8mb4_bin"),
        (("CREATE DATABASE `s`",), "utf8mb4_bin"),
        (("CREATE DATABASE IF NOT EXISTS `s` CHARACTER SET = LATIN1",), "latin1_bin"),
        (("ALTER DATABASE `collate` COLLATE = 'UTF8MB4_GENERAL_CI'",), "utf8mb4_general_ci"),
        (("ALTER DATABASE CHARACTER SET = utf8mb4 COLLATE = utf8mb4_unicode_ci",), "utf8mb4_unicode_ci"),
        (("ALTER DATABASE `s` COLLATE utf8mb4_general_ci", "ALTER DATABASE `s` SET TIFLASH REPLICA 1"), "utf8mb4_general_ci"),
        (("ALTER DATABASE `s` COLLATE utf8mb4_general_ci", "CREATE DATABASE `s`"), "utf8mb4_bin"),
    ],
)  # fmt: skip
def test_source_collation(statements: tuple[str, ...], collation: str) -> None:
    """A new table has the defaults that its database had at the source, whatever the target's database has."""
    assert source_collation(statements, "mysql") == collation
    query = "CREATE TABLE `t` (`a` TEXT)"
    for server_type in ("mysql", "mariadb", "tidb"):
        made = {there: action_for(definition("s/t", 1, query), server_type, there, source_collation=collation) for there in
                (collation, "utf8mb4_0900_ai_ci")}  # fmt: skip
        assert made[collation].statement == query
        charset = collation.partition("_")[0]
        expected = f"{query} DEFAULT CHARACTER SET {charset} COLLATE {collation}"
        assert made["utf8mb4_0900_ai_ci"].statement == expected


def test_source_collation_that_mariadb_lacks() -> None:
    """Its stand-in there is the one that goes for it everywhere."""
    made = ["CREATE DATABASE `s` COLLATE utf8mb4_0900_ai_ci"]
    assert source_collation(made, "mariadb") == "utf8mb4_uca1400_nopad_ai_ci"
    assert source_collation(made, "mysql") == "utf8mb4_0900_ai_ci"


def test_table_with_a_charset_of_its_own() -> None:
    """What the statement names counts; what a column names does not count for the table."""
    query = "CREATE TABLE `t` (`a` TEXT) COLLATE utf8mb4_general_ci"
    assert statement(query, collation="utf8mb4_0900_ai_ci") == query
    column = "CREATE TABLE `t` (`a` TEXT COLLATE utf8mb4_general_ci)"
    assert statement(column, collation="utf8mb4_0900_ai_ci") == column + BIN


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("`a` TEXT CHARACTER SET utf8mb4", "`a` TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"),
        ("`a` TEXT CHARACTER SET gbk, `b` INT", "`a` TEXT CHARACTER SET gbk COLLATE gbk_chinese_ci, `b` INT"),
        ("`a` TEXT CHARACTER SET utf8mb3", "`a` TEXT CHARACTER SET utf8mb3 COLLATE utf8_bin"),
        ("`a` TEXT CHARACTER SET utf8mb3 BINARY", "`a` TEXT CHARACTER SET utf8mb3 COLLATE utf8_bin"),
        ("`a` TEXT CHARSET latin1 NOT NULL", "`a` TEXT CHARSET latin1 COLLATE latin1_bin NOT NULL"),
        ("`a` TEXT CHARACTER SET utf8 COLLATE utf8_general_ci", ""),
        ("`a` TEXT CHARACTER SET utf8 NOT NULL COLLATE utf8_general_ci", ""),
        ("`charset` TEXT", ""),
    ],
)
def test_column_charsets(query: str, expected: str) -> None:
    """A charset without a collation means the source's default one of that charset."""
    assert statement(f"CREATE TABLE `t` ({query})") == f"CREATE TABLE `t` ({expected or query})"


@pytest.mark.parametrize(
    "options",
    [
        "DEFAULT CHARACTER SET = UTF8MB4 DEFAULT COLLATE = UTF8MB4_GENERAL_CI",
        "DEFAULT COLLATE = UTF8MB4_GENERAL_CI DEFAULT CHARACTER SET = UTF8MB4",
    ],
)
def test_collation_on_either_side(options: str) -> None:
    """A collation that is named counts, whether it stands before or after the charset."""
    query = f"CREATE TABLE `t` (`a` VARCHAR(5)) {options}"
    assert statement(query) == query


def test_charset_of_a_table_with_column_collations() -> None:
    """A column's collation says nothing about the table's charset, and the other way round."""
    query = "CREATE TABLE `t` (`a` TEXT COLLATE utf8mb4_general_ci) CHARACTER SET = utf8mb4"
    assert statement(query) == query + " COLLATE utf8mb4_bin"


@pytest.mark.parametrize("server_type", ["mysql", "mariadb"])
@pytest.mark.parametrize(
    ("query", "table_dir"),
    [
        ("CREATE TABLE `😀` (`id` INT)", "s/😀"),
        ("CREATE TABLE `t` (`😀` INT)", "s/t"),
        ("CREATE DATABASE `😀`", "😀"),
        ("RENAME TABLE `t` TO `a😀b`", "s/a😀b"),
    ],
)
def test_names_beyond_the_basic_plane(query: str, table_dir: str, server_type: str) -> None:
    """A name that MySQL would turn into question marks stops its table before the statement; TiDB takes it."""
    with pytest.raises(NotReplicable, match=r"beyond U\+FFFF"):
        statement(query, server_type=server_type, table_dir=table_dir)
    assert statement(query, server_type="tidb", table_dir=table_dir) == query


def test_texts_beyond_the_basic_plane() -> None:
    """In strings such characters are allowed everywhere."""
    query = "CREATE TABLE `t` (`e` ENUM('😀') DEFAULT '😀' COMMENT '😀')"
    assert statement(query) == query


@pytest.mark.parametrize("query", ["RECOVER TABLE `t`", "FLASHBACK TABLE `t` TO `u`"])
def test_recovery(query: str) -> None:
    """What brings back rows that are in no file runs on TiDB only; elsewhere the message says what to do (D14)."""
    assert statement(query, server_type="tidb") == query
    with pytest.raises(NotReplicable, match=r"s\.t.*Reload what it names"):
        statement(query)


# a table from its columns


def test_create_from_columns() -> None:
    """Types, lengths, signs, nulls and the primary key are as the schema file has them; hidden columns stay out (T14)."""
    columns = (
        TableColumn(name="i`d", type="BIGINT", unsigned=True, precision=20, nullable=False, is_pk=True),
        TableColumn(name="v", type="VARCHAR", precision=30),
        TableColumn(name="d", type="DECIMAL", precision=12, scale=3, nullable=False),
        TableColumn(name="t", type="TIMESTAMP", scale=6),
        TableColumn(name="e", type="ENUM", elements=("it's", "b\\")),
        TableColumn(name="b", type="BIT", precision=5, unsigned=True),
        TableColumn(name="_V$_i_0", type="BIGINT"),
    )
    assert create_from_columns(replace(definition("s/t", 1), columns=columns), escape) == (
        "CREATE TABLE `t` (`i``d` BIGINT UNSIGNED NOT NULL, `v` VARCHAR(30) NULL, `d` DECIMAL(12,3) NOT NULL, "
        "`t` TIMESTAMP(6) NULL, `e` ENUM('it\\'s','b\\\\') NULL, `b` BIT(5) NULL, PRIMARY KEY (`i``d`))" + BIN
    )


@pytest.mark.parametrize("kind", ["ENUM", "SET"])
def test_members_unknown(kind: str) -> None:
    """A structure that does not list the members of a column cannot be made; the column and the file are named."""
    columns = (TableColumn(name="e", type=kind),)
    with pytest.raises(NotReplicable, match=r"s\.t\.e: s/t/meta/schema_1_1\.json"):
        create_from_columns(replace(definition("s/t", 1), columns=columns), escape)


@pytest.mark.parametrize("kind", ["INT) AS SELECT 1 -- ", "GEOMETRY", "INT, `x` INT", "", "INT /*!50000 , `x` INT */"])
def test_type_that_is_none_of_tidbs(kind: str) -> None:
    """The type of a schema file becomes part of a statement, so only TiDB's types are taken."""
    columns = (TableColumn(name="x", type=kind),)
    with pytest.raises(NotReplicable, match="which TiDB does not have"):
        create_from_columns(replace(definition("s/t", 1), columns=columns), escape)
