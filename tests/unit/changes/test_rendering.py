"""Events as texts: JSON, canal's FlatMessages, and SQL that repeats them or takes them back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from storage_consumer.changes.render_sql import statements
from storage_consumer.changes.rendering import debezium_envelopes, flat_messages, json_lines, number_of_member, reader
from storage_consumer.errors import NotReplicable
from storage_consumer.model import TableColumn
from tests.harness.small_bucket import SmallBucket, column, row, ts
from tests.unit.changes.building import feed_of, undone_of

COLUMNS = (
    column("id", "BIGINT UNSIGNED", key=True),
    column("d", "DECIMAL", ColumnPrecision="12", ColumnScale="2"),
    column("b", "VARBINARY", ColumnPrecision="9"),
    column("x", "DOUBLE"),
    column("t", "TEXT"),
)
QUERY = "CREATE TABLE `t` (id BIGINT UNSIGNED PRIMARY KEY, d DECIMAL(12,2), b VARBINARY(9), x DOUBLE, t TEXT)"
ONE = ("18446744073709551615", '"1.50"', '"AP8="', "1e300", '"it\'s \\\\ 日本"')
TWO = ("18446744073709551615", r"\N", r"\N", r"\N", '"b"')


@pytest.fixture
def bucket(tmp_path: Path) -> SmallBucket:
    """d.t with an insert and a delete."""
    found = SmallBucket(root=tmp_path)
    found.schema("d", ts(0), "CREATE DATABASE `d`", 1)
    found.schema("d.t", ts(1), QUERY, 3, COLUMNS)
    found.rows("d.t", 1, row("d.t", 2, *ONE), row("d.t", 3, *TWO, operation="D"))
    found.metadata(ts(9))
    return found


def test_json(bucket: SmallBucket) -> None:
    """Numbers are numbers, exact ones texts where JSON's would not be; bytes are base64; a statement has its text."""
    lines = [json.loads(line) for line in map(json_lines("csv"), feed_of(bucket).events(0))]
    assert [(line["type"], line["table"]) for line in lines] == [
        ("ddl", None),
        ("ddl", "t"),
        ("insert", "t"),
        ("delete", "t"),
    ]
    assert lines[1]["statement"] == QUERY
    image = {"id": 2**64 - 1, "d": "1.50", "b": "AP8=", "x": 1e300, "t": "it's \\\\ 日本"}
    assert (lines[2]["before"], lines[2]["after"]) == (None, image)
    assert lines[3]["before"] == {"id": 2**64 - 1, "d": None, "b": None, "x": None, "t": "b"}
    assert lines[3]["after"] is None
    assert (lines[2]["commit_ts"], lines[2]["row"], lines[2]["table_version"]) == (ts(2), 1, ts(1))
    assert (bucket.root / lines[2]["file"]).is_file()


def test_flat_messages(bucket: SmallBucket) -> None:
    """As TiCDC's canal-json has them: texts, binary as Latin-1, floats without an exponent, a code per value."""
    *_, insert, delete = map(flat_messages("csv", lambda: 12.5), feed_of(bucket).events(0))
    found = json.loads(insert)
    assert found["data"] == [
        {"id": "18446744073709551615", "d": "1.50", "b": "\x00\xff", "x": "1" + "0" * 300, "t": "it's \\\\ 日本"}
    ]
    assert found["sqlType"] == {"id": 3, "d": 3, "b": 2004, "x": 8, "t": 2005}
    assert found["mysqlType"] == {"id": "bigint unsigned", "d": "decimal", "b": "varbinary", "x": "double", "t": "text"}
    assert (found["pkNames"], found["isDdl"], found["old"], found["es"], found["ts"]) == (
        ["id"],
        False,
        None,
        ts(2) >> 18,
        12_500,
    )
    assert json.loads(delete)["type"] == "DELETE"
    statement = json.loads(flat_messages("csv", lambda: 0)(next(feed_of(bucket).events(0))))
    assert (statement["isDdl"], statement["type"], statement["sql"]) == (True, "CREATE", "CREATE DATABASE `d`")


def test_types_and_values_that_canal_writes_otherwise(tmp_path: Path) -> None:
    """Schema files call BIT and YEAR unsigned, and canal does not. Year zero is one digit, and the largest FLOAT its shortest text."""
    found = SmallBucket(root=tmp_path)
    kinds = {"id": "INT UNSIGNED", "b": "BIT UNSIGNED", "y": "YEAR UNSIGNED", "f": "FLOAT", "g": "FLOAT UNSIGNED"}
    columns = [column(name, kind, key=name == "id") for name, kind in kinds.items()]
    found.schema("d.t", ts(1), "CREATE TABLE `t` (id INT UNSIGNED PRIMARY KEY)", 3, columns)
    found.rows(
        "d.t", 1, row("d.t", 2, "1", "5", "0", "-3.4028235e+38", "1.5"), row("d.t", 3, "2", "0", "2024", "0", "1e7")
    )
    found.metadata(ts(9))
    *_, zero, other = [json.loads(line) for line in map(flat_messages("csv", lambda: 0), feed_of(found).events(0))]
    kinds = {"id": "int unsigned", "b": "bit", "y": "year", "f": "float", "g": "float unsigned"}
    assert zero["mysqlType"] == kinds
    assert zero["data"] == [{"id": "1", "b": "5", "y": "0", "f": "-34028235" + "0" * 31, "g": "1.5"}]
    assert other["data"] == [{"id": "2", "b": "0", "y": "2024", "f": "0", "g": "10000000"}]


def test_debezium(tmp_path: Path) -> None:
    """As its connector for MySQL has them: days, milliseconds or microseconds since 1970, times of UTC, bits from the lowest, exact decimals."""
    found = SmallBucket(root=tmp_path)
    columns = (
        column("id", "INT", key=True),
        column("d", "DECIMAL", ColumnPrecision="12", ColumnScale="2"),
        column("b", "VARBINARY", ColumnPrecision="9"),
        column("flag", "BIT", ColumnPrecision="1"),
        column("bits", "BIT", ColumnPrecision="10"),
        column("day", "DATE"),
        column("at", "DATETIME", ColumnScale="3"),
        column("exact", "DATETIME", ColumnScale="6"),
        column("moment", "TIMESTAMP"),
        column("span", "TIME", ColumnScale="1"),
    )
    found.schema("d.t", ts(1), "CREATE TABLE `t` (id INT PRIMARY KEY)", 3, columns)
    values = ("1", '"1.50"', '"AP8="', "1", "513", '"1970-01-03"', '"1970-01-01 00:00:01.500"')
    last = ('"1969-12-31 23:59:59.000001"', '"2026-01-02 03:04:05"', '"-01:00:00.5"')
    zeroes = ("2", r"\N", r"\N", "0", "0", '"0000-00-00"', '"2024-00-10 00:00:00"', r"\N", r"\N", '"00:00:00.0"')
    found.rows("d.t", 1, row("d.t", 2, *values, *last), row("d.t", 3, *zeroes), row("d.t", 4, *zeroes, operation="D"))
    found.metadata(ts(9))
    lines = [json.loads(line) for line in map(debezium_envelopes("csv", lambda: 12.5), feed_of(found).events(0))]
    statement, insert, second, delete = lines
    assert insert["after"] == {
        "id": 1,
        "d": "1.50",
        "b": "AP8=",
        "flag": True,
        "bits": "AQI=",
        "day": 2,
        "at": 1_500,
        "exact": -999_999,
        "moment": "2026-01-02T03:04:05Z",
        "span": -3_600_500_000,
    }
    assert (insert["op"], insert["before"], insert["ts_ms"], insert["transaction"]) == ("c", None, 12_500, None)
    source = {name: insert["source"][name] for name in ("connector", "db", "table", "ts_ms", "commit_ts", "row")}
    assert source == {
        "connector": "TiCDC",
        "db": "d",
        "table": "t",
        "ts_ms": ts(2) >> 18,
        "commit_ts": ts(2),
        "row": 1,
    }
    assert (second["after"]["day"], second["after"]["at"], second["after"]["bits"]) == (None, None, "AAA=")
    assert (delete["op"], delete["before"]["id"], delete["after"]) == ("d", 2, None)
    assert (statement["databaseName"], statement["ddl"][:12]) == ("d", "CREATE TABLE")


def test_zero_dates_as_debezium_has_them(tmp_path: Path) -> None:
    """They are null where the column may be null, and the beginning of 1970 where it may not."""
    found = SmallBucket(root=tmp_path)
    kinds = ("DATE", "DATETIME", "TIMESTAMP")
    columns = [
        column("id", "INT", key=True),
        *(column(f"{kind}_{may}", kind, ColumnNullable=may) for kind in kinds for may in ("true", "false")),
    ]
    found.schema("d.t", ts(1), "CREATE TABLE `t` (id INT PRIMARY KEY)", 3, columns)
    zeroes = [f'"{text}"' for text in ("0000-00-00", "0000-00-00 00:00:00", "0000-00-00 00:00:00") for _ in range(2)]
    found.rows("d.t", 1, row("d.t", 2, "1", *zeroes))
    found.metadata(ts(9))
    *_, line = map(debezium_envelopes("csv", lambda: 12.5), feed_of(found).events(0))
    image = json.loads(line)["after"]
    assert [image[f"{kind}_true"] for kind in kinds] == [None, None, None]
    assert [image[f"{kind}_false"] for kind in kinds] == [0, 0, "1970-01-01T00:00:00Z"]


def test_sql(bucket: SmallBucket) -> None:
    """Statements that repeat the changes, each in a line with its commit-ts; CURRENT_TIMESTAMP is that of the statement."""
    lines = list(map(statements("csv"), feed_of(bucket).events(0)))
    assert lines[0].startswith("SET timestamp = 1790000000.000; CREATE DATABASE `d`; SET timestamp = DEFAULT; -- ")
    assert lines[1].startswith("USE `d`; SET timestamp = 1790000001.000; CREATE TABLE `t`")
    values = "18446744073709551615, 1.50, x'00FF', 1e300, 'it\\'s \\\\\\\\ 日本'"
    assert lines[2].startswith(f"INSERT INTO `d`.`t` (`id`, `d`, `b`, `x`, `t`) VALUES ({values}); -- {ts(2)} ")
    assert lines[3].startswith("DELETE FROM `d`.`t` WHERE `id` = 18446744073709551615 LIMIT 1; -- ")


def test_ddl_in_sql_runs_in_the_zone_that_it_was_written_in(bucket: SmallBucket) -> None:
    """By the offset at its version; rows are in UTC."""
    lines = list(map(statements("csv", "Asia/Shanghai"), feed_of(bucket).events(0)))
    there, back = "SET time_zone = '+08:00';", "SET time_zone = '+00:00';"
    assert f"SET timestamp = 1790000001.000; {there} CREATE TABLE `t`" in lines[1]
    assert f"; {back} SET timestamp = DEFAULT; -- " in lines[1]
    assert not any("time_zone" in line for line in lines[2:])


@pytest.fixture
def old(tmp_path: Path) -> SmallBucket:
    """d.a whose files have old values: an insert, an update, a delete, and one of a row without its key."""
    found = SmallBucket(root=tmp_path)
    found.create("d.a")
    text = '"{}","a","d",{},{},{},"{}"\r\n'
    rows = [("I", 2, False, 1, "a"), ("D", 3, True, 1, "a"), ("I", 3, True, 1, "b"), ("D", 4, False, 1, "b")]
    content = "".join(text.format(op, ts(tick), str(update).lower(), key, name) for op, tick, update, key, name in rows)
    found.write(f"d/a/{ts(1)}/2026-11-21/CDC00000000000000000001.csv", content)
    found.metadata(ts(9))
    return found


def test_what_happened_is_taken_back(old: SmallBucket) -> None:
    """The last change first: a deleted row comes back, an update has its old values again, an inserted row goes."""
    lines = undone_of(old, low=ts(1), old=True)
    assert [line.partition("; --")[0] for line in lines] == [
        "INSERT INTO `d`.`a` (`id`, `name`) VALUES (1, 'b')",
        "UPDATE `d`.`a` SET `name` = 'a' WHERE `id` = 1 LIMIT 1",
        "DELETE FROM `d`.`a` WHERE `id` = 1 LIMIT 1",
    ]
    again = [line.partition("; --")[0] for line in map(statements("csv"), feed_of(old, old=True).events(ts(1)))]
    assert again[1] == "UPDATE `d`.`a` SET `name` = 'b' WHERE `id` = 1 LIMIT 1"


def test_times_that_a_server_would_set_itself(tmp_path: Path) -> None:
    """An update sets each DATETIME and TIMESTAMP, changed or not: ON UPDATE CURRENT_TIMESTAMP gives others the time of the statement."""
    found = SmallBucket(root=tmp_path)
    columns = (column("id", "INT", key=True), column("a", "INT"), column("upd", "TIMESTAMP"), column("at", "DATETIME"))
    found.schema("d.t", ts(1), "CREATE TABLE `t` (id INT PRIMARY KEY)", 3, columns)
    text = '"{}","t","d",{},true,1,{},"2026-09-21 14:13:22",\\N\r\n'
    content = text.format("D", ts(3), 1) + text.format("I", ts(3), 2)
    found.write(f"d/t/{ts(1)}/2026-11-21/CDC00000000000000000001.csv", content)
    found.metadata(ts(9))
    (line,) = undone_of(found, low=ts(1), old=True)
    kept = "`upd` = '2026-09-21 14:13:22', `at` = NULL WHERE `id` = 1 LIMIT 1"
    assert line.partition("; --")[0] == f"UPDATE `d`.`t` SET `a` = 1, {kept}"
    (line,) = map(statements("csv"), feed_of(found, old=True).events(ts(1)))
    assert line.partition("; --")[0] == f"UPDATE `d`.`t` SET `a` = 2, {kept}"


def test_what_cannot_be_taken_back_is_named(tmp_path: Path) -> None:
    """A statement, and an update whose old values no file has: nothing is printed that would leave out a part."""
    found = SmallBucket(root=tmp_path)
    found.create("d.a")
    found.rows("d.a", 1, row("d.a", 3, "1", '"new"', operation="U"))
    found.metadata(ts(9))
    with pytest.raises(NotReplicable, match="annot be taken back"):
        undone_of(found, low=0)
    with pytest.raises(NotReplicable, match=r"row 1, commit ts \d+: .* output-old-value"):
        undone_of(found, low=ts(1))


@pytest.mark.parametrize(
    ("kind", "text", "name"),
    [
        ("ENUM", "2", "b,c"),
        ("ENUM", "4", "1"),
        ("ENUM", "0", ""),
        ("SET", "5", "a,d"),
        ("SET", "8", "1"),
        ("SET", "0", ""),
    ],
)
def test_members_by_number_and_by_name(kind: str, text: str, name: str) -> None:
    """Canal-json has numbers, CSV has names; where the members are known, either is turned into the other."""
    elements = ("a", "b,c", "d", "1") if kind == "ENUM" else ("a", "b", "d", "1")
    known = TableColumn(name="e", type=kind, elements=elements)
    assert reader(known, "canal-json")(text) == name
    assert number_of_member(known, name) == text
    unknown = TableColumn(name="e", type=kind)
    assert reader(unknown, "canal-json")(text) == int(text)
    assert number_of_member(unknown, "x") == "x"
