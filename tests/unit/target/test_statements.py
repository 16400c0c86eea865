"""Row changes as SQL text: each value in its form, nothing gets out of its literal."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pymysql.converters import escape_string as escape

from storage_consumer.decode.values import WireKind
from storage_consumer.model import CommitRange, TableName
from storage_consumer.rows.spec import Fold, KeyPart, Mode, TablePlan, WireColumn
from storage_consumer.sql.tokens import tokens
from storage_consumer.target.row_statements import (
    delete_images,
    delete_keys,
    key_literal,
    literal,
    load_data,
    without_error_members,
    write_rows,
)

JSON = "JSON_EQUALS({column}, {value})"


def wire(name: str, kind: str = "VARCHAR", how: WireKind = WireKind.TEXT) -> WireColumn:
    """A column that is written."""
    return WireColumn(name=name, kind=how, type=kind)


def work(*written: WireColumn, key: tuple[KeyPart, ...] = ()) -> TablePlan:
    """The table s`.t."""
    return TablePlan(
        index=0,
        table_key="`s`.`t`",
        name=TableName(schema="s`", table="t"),
        commit_range=CommitRange(low=0, high=1),
        mode=Mode.KEYED,
        has_other_unique_keys=False,
        written=written,
        key=key,
        versions={},
    )


ID, BLOB, BIT = wire("id", "INT"), wire("b", "BLOB", WireKind.HEX), wire("n", "BIT", WireKind.UNSIGNED)


def test_load_data() -> None:
    """Binary values and integers that would be taken for text go through variables; names are quoted."""
    assert load_data(work(ID, BLOB, BIT), "REPLACE") == (
        "LOAD DATA LOCAL INFILE 'rows' REPLACE INTO TABLE `s```.`t` CHARACTER SET utf8mb4 "
        "FIELDS TERMINATED BY '\\t' ESCAPED BY '\\\\' LINES TERMINATED BY '\\n' "
        "(`id`, @v1, @v2) SET `b` = UNHEX(@v1), `n` = CAST(@v2 AS UNSIGNED)"
    )
    assert load_data(work(ID), "INSERT").endswith("(`id`)")


def test_write_rows() -> None:
    """One statement for many rows, each value by its column's kind (P13)."""
    lines = [b"1\t0aFF\t7\tit's", b"-2\t\\N\t\\N\ta\\tb\\\\"]
    assert write_rows("REPLACE", work(ID, BLOB, BIT, wire("v")), lines, escape) == (
        "REPLACE INTO `s```.`t` (`id`, `b`, `n`, `v`) VALUES (1,x'0aFF',7,'it\\'s'),(-2,NULL,NULL,'a\tb\\\\')"
    )


def test_without_error_members() -> None:
    """Number 0 of an ENUM becomes its first member's; other numbers and columns stay, and so do members that are names."""
    rows = work(ID, wire("e", "ENUM", WireKind.UNSIGNED), wire("s", "SET", WireKind.UNSIGNED), wire("n", "ENUM"))
    assert without_error_members(rows, [b"0\t0\t0\t0", b"1\t2\t0\t", b"1\t\\N\t0\t0"]) == [
        b"0\t1\t0\t0",
        b"1\t2\t0\t",
        b"1\t\\N\t0\t0",
    ]


@pytest.mark.parametrize("text", ["'; DROP TABLE x; -- ", "\\", "\\'", '"', "\x00\x1a\r\n", "' OR 1=1", "\\N"])
def test_text_stays_text(text: str) -> None:
    """Whatever a text holds, its literal is one string token (S4)."""
    assert [token.kind for token in tokens(literal(text, wire("v"), escape))] == ["string"]


@pytest.mark.parametrize(
    ("column", "text"),
    [
        (ID, "1 OR 1=1"),
        (ID, "1;"),
        (ID, "٣"),
        (ID, "1\n"),
        (ID, ""),
        (wire("d", "DECIMAL"), "1e"),
        (wire("f", "DOUBLE"), "nan"),
        (wire("f", "DOUBLE"), "inf"),
        (BLOB, "0"),
        (BLOB, "zz"),
        (BLOB, "00'"),
        (BIT, "-1"),
        (BIT, "1.5"),
    ],
)
def test_unfit_text(column: WireColumn, text: str) -> None:
    """Text that is not of the column's kind is refused with the column's name, never put into SQL."""
    with pytest.raises(ValueError, match=f"column {column.name}"):
        literal(text, column, escape)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("INT", "-5"),
        ("BIGINT", "18446744073709551615"),
        ("DECIMAL", "-0.10"),
        ("DOUBLE", "1.5e+300"),
        ("FLOAT", "1e-07"),
    ],
)
def test_numbers(kind: str, text: str) -> None:
    """Numbers go in as they are."""
    assert literal(text, wire("n", kind), escape) == text


def part(column: WireColumn, prefix: int | None = None) -> KeyPart:
    """A key column."""
    return KeyPart(column=column, fold=Fold.EXACT, prefix=prefix)


def test_delete_by_one_column() -> None:
    """Keys in one list."""
    assert delete_keys(work(ID, key=(part(ID),)), [b"1", b"2"], escape) == "DELETE FROM `s```.`t` WHERE `id` IN (1,2)"


def test_delete_by_several_columns() -> None:
    """Keys as rows; a prefix is cut on both sides, by the target itself."""
    keys = (part(ID), part(wire("v"), 3), part(BLOB, 2))
    assert delete_keys(work(ID, wire("v"), BLOB, key=keys), [b"1\tabcd\t0011"], escape) == (
        "DELETE FROM `s```.`t` WHERE (`id`, LEFT(`v`, 3), LEFT(`b`, 2)) IN ((1,LEFT('abcd', 3),LEFT(x'0011', 2)))"
    )


def test_delete_of_keys_to_the_last_byte() -> None:
    """Where the target may find another spelling equal, that stays; keys that are equal only where their bytes are need no second look."""
    name = replace(part(wire("v")), fold=Fold.LOOSE)
    same = "CAST(CONVERT(`v` USING utf8mb4) AS BINARY)"
    assert delete_keys(work(ID, wire("v"), key=(part(ID), name)), [b"1\ta"], escape, exact=True) == (
        f"DELETE FROM `s```.`t` WHERE (`id`, `v`) IN ((1,'a'),(1,CONCAT('~', 'a'))) AND {same} IN (CAST(CONVERT('a' USING utf8mb4) AS BINARY))"
    )
    assert "BINARY" not in delete_keys(work(ID, key=(part(ID),)), [b"1"], escape, exact=True)


@pytest.mark.parametrize(
    ("column", "text", "expected"),
    [
        (wire("y", "YEAR"), "0000", "0"),
        (wire("y", "YEAR"), "2024", "2024"),
        (wire("f", "FLOAT"), "0.1", "0.10000000149011612e0"),
        (wire("d", "DATETIME"), "2024-01-01 00:00:00", "'2024-01-01 00:00:00'"),
    ],
)
def test_key_literals(column: WireColumn, text: str, expected: str) -> None:
    """Keys are compared by the column's own type: YEAR as a number, FLOAT in single precision."""
    assert key_literal(text, part(column), escape) == expected


def test_null_key() -> None:
    """A NULL is no key."""
    with pytest.raises(ValueError, match="NULL in the key column id"):
        delete_keys(work(ID, key=(part(ID),)), [b"\\N"], escape)


def test_delete_images() -> None:
    """A row of a keyless table is found by all its columns, to the byte, one row at most."""
    columns = (ID, wire("v"), wire("j", "JSON"), wire("y", "YEAR"), wire("f", "FLOAT"), BLOB, wire("d", "DATE"))
    line = b'1\tA \t{"a": 1}\t0000\t0.5\tFF\t2024-01-01'
    assert delete_images(work(*columns), line, escape, json_equals=JSON, most=1) == (
        "DELETE FROM `s```.`t` WHERE `id` = 1 AND CAST(CONVERT(`v` USING utf8mb4) AS BINARY) = CAST('A ' AS BINARY) "
        "AND JSON_EQUALS(`j`, '{\\\"a\\\": 1}') AND `y` = 0 AND `f` = 0.5e0 AND `b` = x'FF' "
        "AND `d` = '2024-01-01' LIMIT 1"
    )


def test_delete_images_with_nulls() -> None:
    """NULL is equal to NULL."""
    assert delete_images(work(ID, wire("v")), b"\\N\t\\N", escape, json_equals=JSON, most=1) == (
        "DELETE FROM `s```.`t` WHERE `id` IS NULL AND `v` IS NULL LIMIT 1"
    )
