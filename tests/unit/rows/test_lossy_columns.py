"""What a target's column would change of a source's values without a word, and members by number."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage_consumer.config.settings import Protocol
from storage_consumer.decode.decoder import RowLayout
from storage_consumer.model import TableColumn, TableDefinition, TableName, TableVersion
from storage_consumer.rows.fitting import (
    TargetColumn,
    TargetTable,
    check,
    limits,
    narrowed,
    other_families,
    other_members,
)

NAME = TableName(schema="s", table="t")


def layout(kind: str, **facts: object) -> RowLayout:
    """Rows of one column."""
    return RowLayout(table=NAME, columns=(TableColumn(name="c", type=kind, **facts),))  # type: ignore[arg-type] # its fields


def there(kind: str, **facts: object) -> TargetTable:
    """The target's table of that column."""
    column = TargetColumn(name="C", data_type=kind, nullable=True, **facts)  # type: ignore[arg-type] # its fields
    return TargetTable(name=NAME, columns=(column,), unique_keys=())


SAME = [
    (layout("DECIMAL", precision=10, scale=2), there("decimal", digits=2)),
    (layout("DECIMAL", precision=10, scale=2), there("decimal", digits=4)),
    (layout("DECIMAL", precision=10, scale=2), there("varchar", length=20)),
    (layout("INT"), there("int", digits=0)),
    (layout("INT"), there("double")),
    (layout("FLOAT"), there("float")),
    (layout("FLOAT", scale=2), there("float", digits=2)),
    (layout("FLOAT"), there("double")),
    (layout("DOUBLE"), there("double")),
    (layout("DATETIME", scale=3), there("datetime", digits=3)),
    (layout("DATE"), there("date")),
    (layout("TIME"), there("time", digits=0)),
    (layout("BINARY", precision=5), there("binary", length=5)),
    (layout("CHAR", precision=5), there("char", length=5)),
    (layout("VARCHAR", precision=5), there("varchar", length=5)),
    (layout("VARCHAR", precision=5), there("text", length=65535)),
    (layout("TEXT", precision=65535), there("text", length=65535)),
    (layout("VARCHAR", precision=63), there("tinytext", length=255)),
    (layout("TINYTEXT"), there("varchar", length=255)),
    (layout("BLOB"), there("blob", length=65535)),
    (layout("JSON"), there("longtext", length=4294967295)),
]


@pytest.mark.parametrize(("rows", "target"), SAME)
def test_nothing_to_look_out_for(rows: RowLayout, target: TargetTable) -> None:
    """Columns of the source's own type, or of one that holds more, cost no check."""
    assert limits(rows, (0,), target) == ()


@pytest.mark.parametrize(
    ("rows", "target", "kept", "changed"),
    [
        (layout("DECIMAL", scale=4), there("decimal", digits=2), ["1.2300", "-1", "9.99"], ["1.2301", "0.001"]),
        (layout("DECIMAL", scale=4), there("int", digits=0), ["1.0000"], ["1.5"]),
        (layout("DOUBLE"), there("double", digits=2), ["0.12"], ["0.126"]),
        (layout("FLOAT", scale=3), there("float", digits=2), ["0.12"], ["0.126"]),
        (layout("DOUBLE"), there("float", digits=2), ["0.5"], ["0.126", "1234567.89"]),
        (layout("DOUBLE"), there("decimal", digits=2), ["1.25", "1e+20", "1.2e1"], ["1.255", "1e-07", "1.2345e1"]),
        (
            layout("DATETIME", scale=6),
            there("datetime", digits=3),
            ["2024-01-31 10:00:00.123000"],
            ["2024-01-31 10:00:00.123456"],
        ),
        (
            layout("TIMESTAMP", scale=1),
            there("datetime", digits=0),
            ["2024-01-31 10:00:00.0"],
            ["2024-01-31 10:00:00.6"],
        ),
        (layout("TIME", scale=2), there("time", digits=1), ["-10:00:00.10"], ["10:00:00.16"]),
        (layout("DATETIME"), there("date"), ["2024-01-31 00:00:00", "0000-00-00 00:00:00.00"], ["2024-01-31 10:00:00"]),
        (layout("DOUBLE"), there("float"), ["0.5", "16777216", "1e39"], ["0.1", "16777217", "1.5e-300"]),
        (layout("INT"), there("float"), ["16777216"], ["16777217"]),
        (layout("DECIMAL", scale=20), there("double"), ["0.5", "0.1"], ["0.10000000000000000001"]),
        (layout("BIGINT"), there("double"), ["9007199254740992"], ["9007199254740993"]),
        (layout("BIT"), there("double"), ["9007199254740992"], ["18446744073709551615"]),
        (layout("BINARY", precision=2), there("binary", length=3), ["616263"], ["6162"]),
        (layout("BLOB"), there("binary", length=1), ["61"], [""]),
        (layout("VARCHAR", precision=5), there("char", length=5), ["a b"], ["a "]),
        (layout("VARCHAR", precision=5), there("char", length=2), ["ab", "abc", "a\t"], ["ab\t", "a "]),
        (layout("CHAR", precision=5), there("char", length=2), ["ab", "abc"], ["ab\n"]),
        (layout("CHAR", precision=5), there("varchar", length=2), ["ab"], ["ab\t"]),
        (layout("VARCHAR", precision=5), there("varchar", length=2), ["ab", "abc", "a ", "ab c"], ["ab ", "ab\t \n"]),
        (layout("TEXT", precision=65535), there("varchar", length=2), ["ab", "abc", "a "], ["ab "]),
        (layout("VARCHAR", precision=64), there("tinytext", length=255), [" " * 255, "é" * 128], ["é" * 127 + "  "]),
        (layout("MEDIUMTEXT"), there("text", length=65535), [" " * 65535, "a" * 65536], ["a" * 65535 + " "]),
    ],
)
def test_changed_silently(rows: RowLayout, target: TargetTable, kept: list[str], changed: list[str]) -> None:
    """What the target keeps or refuses itself passes; what it would round, cut or pad is an error with column and value."""
    found = limits(rows, (0,), target)
    for text in (*kept, None):
        check((text,), found)
    for text in changed:
        with pytest.raises(ValueError, match=r"column c: .* does not keep"):
            check((text,), found)


@pytest.mark.parametrize("exponent", ["999999999", "99999999999999999999", "9" * 5000, "0" * 5000 + "1"])
def test_large_exponents(exponent: str) -> None:
    """An exponent of any size costs nothing: what is too large for the column the server refuses, what is too small is an error."""
    found = limits(layout("DOUBLE"), (0,), there("decimal", digits=2))
    for text in (f"1e{exponent}", f"-12.5e+{exponent}", f"0e-{exponent}", f"-0.00E-{exponent}"):
        check((text,), found)
    with pytest.raises(ValueError, match=r"column c: .* does not keep"):
        check((f"1.25e-{exponent}",), found)


@given(
    whole=st.from_regex(r"-?[0-9]{1,5}", fullmatch=True),
    fraction=st.from_regex(r"(\.[0-9]{1,5})?", fullmatch=True),
    exponent=st.from_regex(r"([eE][-+]?0?[0-9]{1,2})?", fullmatch=True),
)
def test_digits_of_numbers(whole: str, fraction: str, exponent: str) -> None:
    """A column keeps a number if it has no more digits than that when it is written out without an exponent."""
    text = f"{whole}{fraction}{exponent}"
    digits = len(f"{Decimal(text):f}".partition(".")[2].rstrip("0"))
    check((text,), limits(layout("DOUBLE"), (0,), there("decimal", digits=digits)))
    if digits:
        with pytest.raises(ValueError, match=f"more than {digits - 1} digits after the point"):
            check((text,), limits(layout("DOUBLE"), (0,), there("decimal", digits=digits - 1)))


def test_columns_not_written_need_no_limit() -> None:
    """Generated columns of the target are not written, so nothing of them is lost."""
    assert limits(layout("DECIMAL", scale=4), (), there("decimal", digits=2)) == ()


@pytest.mark.parametrize(
    ("elements", "column_type", "other"),
    [
        (("a", "b"), "enum('a','b')", False),
        (("a", "b"), "ENUM('a','b','c')", False),
        (("it's", "b,c "), "enum('it''s','b,c')", False),
        (("a", "b"), "enum('b','a')", True),
        (("a", "b"), "set('a')", True),
        (("A",), "enum('a')", True),
        ((), "enum('b','a')", False),
        (("a", "b"), r"enum('b','\\')", False),
        (("a", "b"), "longtext", False),
    ],
)
def test_members_by_number(elements: tuple[str, ...], column_type: str, other: object) -> None:
    """Numbers must mean the same members; what is not known of them is taken for the same, and names need no such check (T15)."""
    rows, target = layout("ENUM", elements=elements), there("enum", column_type=column_type)
    assert bool(other_members(rows, target, "canal-json")) is other
    assert other_members(rows, target, "csv") == ""


@pytest.mark.parametrize(
    ("elements", "column_type", "other"),
    [
        (("a", "2"), "enum('a','2')", False),
        (("a", "2"), "enum('2','a')", False),
        (("a", "b"), "enum('b')", False),
        (("a", "2"), "enum('a','b')", True),
        (("a", "+2 "), "set('a','b')", True),
        (("a", "0"), "set('a','b')", True),
        (("a", "0", "3", "-1", "2024"), "enum('a','b')", False),
        (("X", "é"), "enum('x','e')", True),
        (("f", "x "), "enum('x','e')", False),
        (("a", "2"), "varchar(9)", False),
    ],
)
@pytest.mark.parametrize("protocol", ["csv", "dump-sql"])
def test_a_name_that_passes_for_another(
    elements: tuple[str, ...], column_type: str, other: object, protocol: Protocol
) -> None:
    """A column takes the name of a member that it lacks for another one, if it is that one's number or equal by collation; others the server refuses."""
    kind = column_type.partition("(")[0]
    found = other_members(
        layout("SET" if kind == "set" else "ENUM", elements=elements),
        there(kind, column_type=column_type, binary_collation=False),
        protocol,
    )
    assert ("c (" in found) is other
    if elements[0] == "X":
        assert other_members(layout("ENUM", elements=elements), there(kind, column_type=column_type), protocol) == ""


@pytest.mark.parametrize(
    ("kind", "target", "taken"),
    [
        ("VARCHAR", "inet6", False),
        ("CHAR", "uuid", False),
        ("VECTOR", "bit", False),
        ("VECTOR", "longtext", True),
        ("VECTOR", "vector", True),
        ("TEXT", "vector", False),
        ("BIT", "bit", True),
        ("TEXT", "", True),
    ],
)
def test_types_of_another_sort(kind: str, target: str, taken: object) -> None:
    """A target's type of another sort, or of one that nobody knows here, may change values without a word: INET6 writes addresses anew."""
    assert (other_families(layout(kind), there(target)) == "") is taken


@pytest.mark.parametrize(
    ("former", "newer", "zone", "kept", "changed"),
    [
        (layout("FLOAT"), TableColumn(name="c", type="DOUBLE"), "", "0.5", "0.1"),
        (layout("FLOAT"), TableColumn(name="c", type="DECIMAL", precision=20, scale=12), "", "0.5", "0.1"),
        (layout("FLOAT"), TableColumn(name="c", type="DECIMAL", precision=20, scale=0), "", "2", "0.5"),
        (
            layout("TIMESTAMP"),
            TableColumn(name="c", type="DATETIME"),
            "Asia/Tokyo",
            "0000-00-00 00:00:00",
            "2024-01-31 10:00:00",
        ),
        (layout("DATETIME"), TableColumn(name="c", type="TIMESTAMP"), "Asia/Tokyo", None, "2024-01-31 10:00:00"),
        (layout("TIMESTAMP"), TableColumn(name="c", type="DATETIME"), "", "2024-01-31 10:00:00", None),
        (layout("VARCHAR", precision=9), TableColumn(name="c", type="VARCHAR", precision=2), "", "a ", "ab  "),
        (layout("TEXT"), TableColumn(name="c", type="TINYTEXT"), "", " " * 255, " " * 256),
    ],
)
def test_a_type_that_changed_without_a_statement(
    former: RowLayout, newer: TableColumn, zone: str, kept: str | None, changed: str | None
) -> None:
    """What the source made of a value when it changed the column is another one than in a file of before: an error with the time of the change."""
    later = TableDefinition(
        name=NAME, version=TableVersion(20), query="", ddl_type=0, columns=(newer,), path="p", checksum=1
    )
    found = narrowed(replace(former, zone=zone), [later])
    check((kept,), found, 10)
    check((changed,), found, 20)
    if changed is not None:
        with pytest.raises(ValueError, match=r"column c: .* no longer since its type changed at 20"):
            check((changed,), found, 10)


@pytest.mark.parametrize("kind", ["varchar", "json", "text"])
def test_a_number_of_a_member_is_no_text(kind: str) -> None:
    """A target's column of texts would keep the number that canal-json has for a member; CSV has its name, and one that is not there keeps nothing."""
    rows, target = layout("SET", elements=("a", "b")), there(kind)
    assert "by their numbers" in other_members(rows, target, "canal-json")
    assert other_members(rows, there(""), "canal-json") == ""
    assert other_members(rows, target, "csv") == ""
