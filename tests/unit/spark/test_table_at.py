"""Tables as of a commit-ts: whose rows they are, and what is refused rather than guessed."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from storage_consumer import ConfigError, read_changes
from storage_consumer.errors import FilesMissing, NotReplicable, UndecodableRow
from storage_consumer.spark.source.dataframes import find
from storage_consumer.spark.source.opening import open_feed, source_options
from tests.harness import small_export
from tests.harness.small_bucket import SmallBucket, column, row, ts
from tests.harness.tables_at import read_at

OLD = "[sink.csv]\ninclude-commit-ts = true\noutput-old-value = true\n"
PAIR = (column("a", "INT"), column("b", "INT"))


@pytest.fixture
def bucket(tmp_path: Path) -> SmallBucket:
    """An empty bucket that is complete up to tick 9."""
    found = SmallBucket(root=tmp_path)
    found.metadata(ts(9))
    (tmp_path / "old.toml").write_text(OLD)
    return found


def at(
    bucket: SmallBucket,
    table: str,
    version: int | None = None,
    columns: tuple[str, ...] = (),
    base: str = "",
    **options: str,
) -> Any:
    """The rows of a table, in no order."""
    asked = source_options({"path": bucket.uri, "table": table, "tz": "UTC", **options})
    assert asked.table is not None
    feed, loaded = open_feed(replace(asked, bucket={**asked.bucket, **({"start_ts": str(ts(0))} if base else {})}))
    rows = read_at(find(feed, loaded, asked.table, version, base, columns))
    return sorted((tuple(each.values()) for each in rows), key=str)


def test_a_rename_without_the_old_database(bucket: SmallBucket) -> None:
    """Classic TiCDC writes it as typed: the one table that can be meant goes along; where there are two, both are refused."""
    bucket.create("s1.x")
    bucket.rows("s1.x", 1, row("s1.x", 2, "1", '"old"'))
    bucket.schema("s2.x", ts(3), "RENAME TABLE `x` TO `s2`.`x`", 14)
    bucket.rows("s2.x", 1, row("s2.x", 4, "1", '"new"', operation="U"), version=ts(3))
    with pytest.raises(NotReplicable, match="no such table"):
        at(bucket, "s1.x")
    assert at(bucket, "s2.x") == [(1, "new")]
    bucket.create("s3.x")
    bucket.schema("s4.x", ts(6), "RENAME TABLE `x` TO `s4`.`x`", 14)
    for name in ("s2.x", "s3.x", "s4.x"):
        with pytest.raises(NotReplicable, match="does not say which database's table"):
            at(bucket, name)


def test_a_second_cut_over(bucket: SmallBucket) -> None:
    """A table keeps its rows where its name goes to a new one, each time that this is done."""
    bucket.create("d.orders", at=0)
    bucket.rows("d.orders", 1, row("d.orders", 1, "1", '"first"'), version=ts(0))
    for tick, name in ((3, '"second"'), (7, '"third"')):
        created = "CREATE TABLE `orders_new` (id INT PRIMARY KEY, name VARCHAR(20))"
        bucket.schema("d.orders_new", ts(tick - 1), created, 3)
        bucket.rows("d.orders_new", 1, row("d.orders_new", tick, str(tick), name), version=ts(tick - 1))
        bucket.schema("d.orders", ts(tick), "RENAME TABLE `d`.`orders_new` TO `d`.`orders`", 14)
        bucket.schema("d.orders_old", ts(tick), "RENAME TABLE `d`.`orders` TO `d`.`orders_old`", 14)
        if tick == 3:
            bucket.schema("d.orders_old", ts(5), "DROP TABLE `orders_old`", 4)
    assert at(bucket, "d.orders_old", ts(3)) == [(1, "first")]
    assert at(bucket, "d.orders", ts(3)) == at(bucket, "d.orders_old") == [(3, "second")]
    assert at(bucket, "d.orders") == [(7, "third")]


FILTERS = [
    ("matcher = ['d.*']\nignore-event = ['Delete', 'add column']", "ignore-event 'Delete'"),
    ("matcher = ['d.t']\nignore-event = ['truncate table']", "ignore-event 'truncate table'"),
    ("matcher = ['d.t']\nignore-update-new-value-expr = 'id > 7'", "ignore-update-new-value-expr"),
    ("matcher = ['d.was']\nignore-event = ['all dml']", "ignore-event 'all dml'"),
    ("matcher = ['/(/.t']\nignore-event = ['insert']", "ignore-event 'insert'"),
    ("matcher = ['d.u']\nignore-event = ['delete']", ""),
    ("matcher = ['d.t']\nignore-event = ['drop table', 'create index']\nignore-sql = ['^DROP']", ""),
]
"""Event filters of a changefeed, and which changes of d.t, which was d.was, are missing by them."""


@pytest.mark.parametrize(("text", "missing"), FILTERS)
def test_changes_that_ticdc_leaves_out(bucket: SmallBucket, text: str, missing: str) -> None:
    """A table is not its changes where the changefeed's filter leaves some out: it is refused with the setting."""
    bucket.create("d.was")
    bucket.rows("d.was", 1, row("d.was", 2, "1", '"x"'))
    bucket.schema("d.t", ts(3), "RENAME TABLE `d`.`was` TO `d`.`t`", 14)
    config = bucket.root / "filtered.toml"
    config.write_text(f"[sink.csv]\ninclude-commit-ts = true\n[[filter.event-filters]]\n{text}\n")
    if not missing:
        assert at(bucket, "d.t", config=str(config)) == [(1, "x")]
        return
    with pytest.raises(NotReplicable, match=f"d.t: TiCDC leaves out changes.*{missing} of .*filtered.toml"):
        at(bucket, "d.t", config=str(config))


def test_transactions_that_ticdc_leaves_out(bucket: SmallBucket) -> None:
    """They may be of any table."""
    bucket.create("d.t")
    config = bucket.root / "filtered.toml"
    config.write_text("[sink.csv]\ninclude-commit-ts = true\n[filter]\nignore-txn-start-ts = [7]\n")
    with pytest.raises(NotReplicable, match="ignore-txn-start-ts of"):
        at(bucket, "d.t", config=str(config))


DAY = 86_400
EXPIRING = "[sink.csv]\ninclude-commit-ts = true\n[sink.cloud-storage-config]\nfile-expiration-days = 3\n"


def test_files_that_may_have_expired(tmp_path: Path) -> None:
    """Nothing shows which files TiCDC deleted: a table that began before what it keeps is refused, a younger one is read."""
    bucket = SmallBucket(root=tmp_path)
    bucket.metadata(ts(12 * DAY))
    bucket.create("d.old")
    bucket.create("d.new", at=10 * DAY)
    for table, day in (("d.old", 11), ("d.new", 11)):
        version = ts(1) if table == "d.old" else ts(10 * DAY)
        bucket.rows(table, 1, row(table, day * DAY, "1", '"x"'), version=version)
    config = tmp_path / "expiring.toml"
    config.write_text(EXPIRING)
    assert at(bucket, "d.new", config=str(config)) == [(1, "x")]
    with pytest.raises(NotReplicable, match=r"d.old: .*file-expiration-days = 3.*give a later export as base"):
        at(bucket, "d.old", config=str(config))
    assert at(bucket, "d.old", include_commit_ts="true") == [(1, "x")], "as far as anybody knows, nothing expires"
    for folder in tmp_path.glob("d/*/*/2026-11-21"):
        folder.rename(folder.with_name("2026-11"))
    assert at(bucket, "d.old", config=str(config)) == [(1, "x")], "only folders of days expire"


@pytest.fixture
def export(tmp_path: Path) -> str:
    """URI of an export of d.t as of tick 2, with a row and a TIMESTAMP column."""
    body = "  `id` int NOT NULL,\n  `at` timestamp NULL DEFAULT NULL,\n  PRIMARY KEY (`id`)"
    return small_export.export(tmp_path / "export", 2, {"t": ["(1,'2026-01-01 00:00:00')"]}, body=body).as_uri()


def test_a_base_whose_zone_nothing_tells(tmp_path: Path, export: str) -> None:
    """The message says how `base` takes it, and names no flag of the command line alone."""
    bucket = SmallBucket(root=tmp_path / "bucket")
    bucket.metadata(ts(9))
    bucket.schema("d", ts(0), "CREATE DATABASE `d`", 1)
    bucket.schema("d.t", ts(1), "", 0, (column("id", "INT", key=True), column("at", "TIMESTAMP")))
    config = tmp_path / "config.toml"
    config.write_text("[sink.csv]\ninclude-commit-ts = true\n")
    with pytest.raises(ConfigError, match=r"d.t.at: give it in the export's URI, \?time-zone=ZONE"):
        at(bucket, "d.t", base=export, config=str(config))
    with pytest.raises(ConfigError, match=r"base file:.*time-zone"):
        at(bucket, "d.t", base=f"{export}?time-zone=Nowhere/None", config=str(config))
    assert len(at(bucket, "d.t", base=f"{export}?time-zone=%2B08:00", config=str(config))) == 1


def test_a_base_that_is_exchanged_before_it_is_read(tmp_path: Path, export: str) -> None:
    """The rows of another export are not taken for its own, though the file has the same name and size."""
    bucket = SmallBucket(root=tmp_path / "bucket")
    bucket.metadata(ts(9))
    bucket.schema("d.t", ts(1), "", 0, (column("id", "INT", key=True), column("at", "TIMESTAMP")))
    config = tmp_path / "config.toml"
    config.write_text("[sink.csv]\ninclude-commit-ts = true\n")
    asked = source_options({"path": bucket.uri, "table": "d.t", "tz": "UTC", "config": str(config)})
    assert asked.table is not None
    feed, loaded = open_feed(replace(asked, bucket={**asked.bucket, "start_ts": str(ts(0))}))
    found = find(feed, loaded, asked.table, None, f"{export}?time-zone=UTC", ())
    path = tmp_path / "export" / "d.t.000000000.sql"
    text = path.read_text()
    path.unlink()
    path.write_text(text.replace("(1,", "(2,"))
    with pytest.raises(FilesMissing, match=r"d\.t\.000000000\.sql was removed or exchanged"):
        read_at(found)


LISTED = (column("id", "INT", key=True), column("e", "ENUM"))
COPIES = [
    ("CREATE TABLE `b` LIKE `a`", True),
    ("CREATE TABLE IF NOT EXISTS `d`.`b` (LIKE `d`.`a`)", True),
    ("CREATE TABLE `d`.`b` LIKE `a`", True),  # no other database has an a
    ("CREATE TABLE `b` LIKE `z`", False),
]
"""Statements, and whether they say which table of d is copied: names without a database are of the session's."""


@pytest.mark.parametrize(("query", "is_told"), COPIES)
def test_members_of_a_copy(tmp_path: Path, query: str, *, is_told: bool) -> None:
    """Classic canal-json has numbers: a table that was made LIKE another one has its members, as of then, or is refused."""
    bucket = SmallBucket(root=tmp_path, protocol="canal-json")
    bucket.metadata(ts(9))
    bucket.schema("d", ts(0), "CREATE DATABASE `d`", 1)
    bucket.schema("d.a", ts(1), "CREATE TABLE `a` (id INT PRIMARY KEY, e ENUM('x','y'))", 3, LISTED)
    bucket.schema("d.b", ts(2), query, 3, LISTED)
    bucket.schema("d.a", ts(3), "ALTER TABLE `a` MODIFY e ENUM('p','q')", 12, LISTED)
    bucket.rows("d.b", 1, row("d.b", 4, "1", '"2"', names=("id", "e")), version=ts(2))
    if is_told:
        assert at(bucket, "d.b") == [(1, "y")]
        return
    with pytest.raises(NotReplicable, match=r"shows the members of its ENUM and SET columns.*with columns"):
        at(bucket, "d.b")
    assert at(bucket, "d.b", columns=("id",)) == [(1,)]


def test_generated_columns_of_a_copy(bucket: SmallBucket) -> None:
    """Rows lack the virtual columns that the copied table had."""
    columns = (column("id", "INT", key=True), column("v", "INT"), column("name", "VARCHAR"))
    query = "CREATE TABLE `a` (id INT PRIMARY KEY, v INT AS (id + 1), name VARCHAR(20))"
    bucket.schema("d.a", ts(1), query, 3, columns)
    bucket.schema("d.b", ts(2), "CREATE TABLE `b` LIKE `a`", 3, columns)
    bucket.rows("d.b", 1, row("d.b", 4, "1", '"x"'), version=ts(2))
    assert at(bucket, "d.b", include_commit_ts="true") == [(1, "x")]


@pytest.mark.parametrize("name", ["_row", "_ROW", "_file", "_change_type", "_sequence", "_rescued_data"])
def test_columns_with_names_of_added_ones(bucket: SmallBucket, name: str) -> None:
    """They are refused by name: the two could not be told apart; leaving them out helps where the table has a primary key."""
    bucket.schema("d", ts(0), "CREATE DATABASE `d`", 1)
    bucket.schema("d.t", ts(1), "CREATE TABLE `t` (id INT PRIMARY KEY)", 3, (*LISTED[:1], column(name, "VARCHAR")))
    bucket.rows("d.t", 1, row("d.t", 2, "1", '"x"'))
    with pytest.raises(ConfigError, match=f"d.t has a column {name}, which is also .*leave it out with columns"):
        at(bucket, "d.t")
    assert at(bucket, "d.t", columns=("id",)) == [(1,)]
    bucket.schema("d.k", ts(1), "CREATE TABLE `k` (a INT)", 3, (*PAIR[:1], column(name, "VARCHAR")))
    with pytest.raises(ConfigError, match=f"d.k has a column {name}, .*without a primary key"):
        at(bucket, "d.k", columns=("a",), config=str(bucket.root / "old.toml"))


def cut(bucket: SmallBucket, *files: list[tuple[int, int]]) -> str:
    """Rows of d.k, which has no key, all of one transaction; the options to read them."""
    bucket.create("d.a")
    bucket.schema("d.k", ts(1), "CREATE TABLE `k` (a INT, b INT)", 3, PAIR)
    for number, rows in enumerate(files, 1):
        bucket.rows("d.k", number, *(f'"I","k","d",{ts(2)},false,{a},{b}' for a, b in rows))
    return str(bucket.root / "old.toml")


def test_a_transaction_over_two_files(bucket: SmallBucket) -> None:
    """Equal rows in both are two rows: the second file goes on where the first one ends."""
    config = cut(bucket, [(1, 1), (2, 2)], [(1, 1), (4, 4)])
    assert at(bucket, "d.k", config=config) == [(1, 1), (1, 1), (2, 2), (4, 4)]
    found = read_changes(bucket.uri, "d.k", tz="UTC", config=config).read_all()
    assert sorted(found["a"].to_pylist()) == [1, 1, 2, 4]


def test_a_transaction_that_was_repeated(bucket: SmallBucket) -> None:
    """The same rows in another file are the same transaction again."""
    config = cut(bucket, [(1, 1), (2, 2)], [(1, 1), (2, 2)])
    assert at(bucket, "d.k", config=config) == [(1, 1), (2, 2)]


def test_columns_of_a_table_without_a_key(bucket: SmallBucket) -> None:
    """Rows that differ only in what is not asked for are not one."""
    config = cut(bucket, [(1, 1)], [(1, 2)])
    assert at(bucket, "d.k", columns=("a",), config=config) == [(1, 1), (1, 2)], "the query drops the others later"


def test_rows_that_differ_in_a_column_that_was_dropped(bucket: SmallBucket) -> None:
    """They are two rows, also of a table without a key."""
    config = cut(bucket, [(1, 1)], [(1, 2)])
    bucket.schema("d.k", ts(3), "ALTER TABLE `k` DROP COLUMN b", 6, PAIR[:1])
    assert at(bucket, "d.k", config=config) == [(1,), (1,)]


def test_rows_that_differ_in_a_date_that_no_calendar_has(bucket: SmallBucket) -> None:
    """They are two rows, also of a table without a key, though both dates are null as values."""
    bucket.schema("d", ts(0), "CREATE DATABASE `d`", 1)
    bucket.schema("d.k", ts(1), "CREATE TABLE `k` (day DATE)", 3, (column("day", "DATE"),))
    for number, day in enumerate(("0000-00-00", "2024-00-10", "2024-00-10"), 1):
        bucket.rows("d.k", number, f'"I","k","d",{ts(2)},false,"{day}"')
    assert at(bucket, "d.k", config=str(bucket.root / "old.toml")) == [(None,), (None,)]


def decimal(digits: int, scale: int) -> dict[str, Any]:
    """A column v of decimals."""
    return column("v", "DECIMAL", ColumnPrecision=str(digits), ColumnScale=str(scale), ColumnNullable="false")


@pytest.mark.parametrize("before", [(30, 10), (40, 2), (50, 12)])
def test_decimals_that_became_texts(bucket: SmallBucket, before: tuple[int, int]) -> None:
    """Decimals of more than 38 digits are texts with all digits of the scale that the column has in the end, also those that were numbers before."""
    numbers = ("0", "-1.5", "123456789012345678.25")
    bucket.schema("d", ts(0), "CREATE DATABASE `d`", 1)
    bucket.schema("d.t", ts(1), "CREATE TABLE `t` (id INT PRIMARY KEY, v DECIMAL)", 3, (LISTED[0], decimal(*before)))
    texts = [format(Decimal(number), f".{before[1]}f") for number in numbers]
    bucket.rows("d.t", 1, *(row("d.t", 2, str(n), f'"{text}"') for n, text in enumerate(texts)))
    columns = (LISTED[0], decimal(60, 12))
    bucket.schema("d.t", ts(3), "ALTER TABLE `t` MODIFY COLUMN `v` DECIMAL(60,12) NOT NULL", 12, columns)
    bucket.rows("d.t", 1, row("d.t", 4, "3", '"0.000000000001"'), version=ts(3))
    values = ("0.000000000000", "-1.500000000000", "123456789012345678.250000000000", "0.000000000001")
    assert at(bucket, "d.t") == list(enumerate(values))


def test_a_decimal_that_was_added_to_rows_without_a_key(bucket: SmallBucket) -> None:
    """What it was added with is the same value as that of the rows which have it."""
    bucket.schema("d", ts(0), "CREATE DATABASE `d`", 1)
    bucket.schema("d.k", ts(1), "CREATE TABLE `k` (a INT)", 3, PAIR[:1])
    bucket.rows("d.k", 1, *(f'"I","k","d",{ts(2)},false,{n}' for n in (1, 2)))
    query = "ALTER TABLE `k` ADD COLUMN `v` DECIMAL(40,2) NOT NULL"
    bucket.schema("d.k", ts(3), query, 5, (*PAIR[:1], decimal(40, 2)))
    bucket.rows("d.k", 1, f'"D","k","d",{ts(4)},false,1,"0.00"', version=ts(3))
    assert at(bucket, "d.k", config=str(bucket.root / "old.toml")) == [(2, "0.00")]


def test_rows_under_a_later_structure(bucket: SmallBucket) -> None:
    """A directory that TiCDC began later may hold rows from before it: nobody knows their structure, unless it is the one that is known."""
    bucket.create("d.a")
    bucket.rows("d.a", 1, row("d.a", 2, "1", '"x"'))
    bucket.schema("d.a", ts(6), "", 0)
    bucket.rows("d.a", 1, row("d.a", 4, "2", '"y"'), version=ts(6))
    assert at(bucket, "d.a", ts(5)) == at(bucket, "d.a") == [(1, "x"), (2, "y")]
    columns = (column("id", "INT", key=True), column("name", "VARCHAR"), column("more", "INT"))
    bucket.schema("d.a", ts(7), "", 0, columns)
    bucket.rows("d.a", 1, row("d.a", 4, "3", '"z"', "7"), version=ts(7))
    with pytest.raises(NotReplicable, match=f"ask for {ts(7)} or later"):
        at(bucket, "d.a", ts(5))


def test_statements_before_the_beginning(bucket: SmallBucket) -> None:
    """What a table was before it was emptied does not matter."""
    bucket.create("d.a")
    bucket.rows("d.a", 1, row("d.a", 2, "1", '"x"'))
    columns = (column("id", "INT", key=True), column("name", "INT"))
    bucket.schema("d.a", ts(3), "ALTER TABLE `a` MODIFY COLUMN `name` INT", 12, columns)
    bucket.schema("d.a", ts(4), "TRUNCATE TABLE `a`", 11, columns)
    bucket.rows("d.a", 1, row("d.a", 5, "2", "7"), version=ts(4))
    assert at(bucket, "d.a") == [(2, 7)]


def test_windows_around_a_change_of_type(bucket: SmallBucket) -> None:
    """Before it and after it changes can be read, across it they are refused."""
    bucket.create("d.a")
    bucket.rows("d.a", 1, row("d.a", 2, "1", '"x"'))
    columns = (column("id", "INT", key=True), column("name", "DATE"))
    bucket.schema("d.a", ts(3), "ALTER TABLE `a` MODIFY COLUMN `name` DATE", 12, columns)
    bucket.rows("d.a", 1, row("d.a", 5, "2", '"2026-01-02"'), version=ts(3))
    assert read_changes(bucket.uri, "d.a", tz="UTC", end=ts(3)).read_all().num_rows == 1
    assert read_changes(bucket.uri, "d.a", tz="UTC", start=ts(3) + 1).read_all().num_rows == 1
    with pytest.raises(ConfigError, match="in two windows"):
        read_changes(bucket.uri, "d.a", tz="UTC")


@pytest.mark.parametrize(
    ("kind", "text"),
    [("DATE", '"hello"'), ("DATETIME", '"2026-01-01 25:61:00"'), ("TINYINT", "99999"), ("BIT", "999")],
)
def test_values_that_are_none(bucket: SmallBucket, kind: str, text: str) -> None:
    """They are errors that name file, row and column: only a date that no calendar has is null."""
    bucket.create("d.a")
    columns = (column("id", "INT", key=True), column("v", kind, ColumnPrecision="3"))
    bucket.schema("d.t", ts(1), "CREATE TABLE `t` (id INT PRIMARY KEY)", 3, columns)
    bucket.rows("d.t", 1, row("d.t", 2, "1", text))
    with pytest.raises(UndecodableRow, match=r"d/t/\d+/.*csv: row 1.*column v"):
        read_changes(bucket.uri, "d.t", tz="UTC", config={"sink": {"csv": {"include-commit-ts": True}}}).read_all()
