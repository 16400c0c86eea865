"""What a feed gives: the changes and statements of a window, in commit order, each once."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path

import pytest

from storage_consumer.changes import reading
from storage_consumer.changes.alterations import history_at
from storage_consumer.changes.render_sql import statements
from storage_consumer.changes.window import Change, FeedStatement
from storage_consumer.errors import (
    ConfigError,
    FilesMissing,
    NoMetadata,
    NotReplicable,
    StorageUnavailable,
    UndecodableRow,
)
from storage_consumer.model import TableName
from tests.harness.small_bucket import ID_NAME, SmallBucket, column, row, ts
from tests.harness.twins.storage import MemoryStorage
from tests.unit.changes.building import everything, feed_of, told, undone_of

ADD = "ALTER TABLE `a` ADD COLUMN `more` INT"


@pytest.fixture
def bucket(tmp_path: Path) -> SmallBucket:
    """d.a and d.b, created at tick 1, complete up to tick 20."""
    found = SmallBucket(root=tmp_path)
    found.create("d.a", "d.b")
    found.metadata(ts(20))
    return found


def of(table: str, *ticks: int, operation: str = "I") -> list[str]:
    """A row at each tick, whose key is the tick."""
    return [row(table, tick, str(tick), f'"{tick}"', operation=operation) for tick in ticks]


def test_tables_and_statements_in_one_order(bucket: SmallBucket) -> None:
    """By commit-ts over all tables; at the commit-ts of a statement rows come first, deletes before upserts."""
    bucket.rows("d.b", 1, *of("d.b", 3, 7))
    bucket.rows("d.a", 1, *of("d.a", 2, 5), row("d.a", 6, "9", '"new"'), row("d.a", 6, "2", '"2"', operation="D"))
    bucket.schema(
        "d.a", ts(6), ADD, 5, (column("id", "INT", key=True), column("name", "VARCHAR"), column("more", "INT"))
    )
    bucket.rows("d.a", 1, row("d.a", 8, "5", '"five"', "55", operation="U"), version=ts(6))
    assert everything(bucket) == [
        "0 CREATE DATABASE `d`",
        "1 CREATE TABLE `a`",
        "1 CREATE TABLE `b`",
        "2 I d.a 2,2",
        "3 I d.b 3,3",
        "5 I d.a 5,5",
        "6 D d.a 2,2",
        "6 I d.a 9,new",
        "6 ALTER TABLE `a`",
        "7 I d.b 7,7",
        "8 U d.a 5,five,55",
    ]


def test_windows_have_one_exclusive_and_one_inclusive_border(bucket: SmallBucket) -> None:
    """Windows that follow one another have each event once, whatever their borders; what is beyond the checkpoint is in none."""
    bucket.rows("d.a", 1, *of("d.a", 2, 3, 4, 5, 21))
    bucket.schema("d.a", ts(4), "TRUNCATE TABLE `a`", 11)
    bucket.rows("d.a", 1, *of("d.a", 6, 7), version=ts(4))
    assert told(feed_of(bucket).events(ts(3), ts(6))) == [
        "4 I d.a 4,4",
        "4 TRUNCATE TABLE `a`",
        "5 I d.a 5,5",
        "6 I d.a 6,6",
    ]
    borders = [0, ts(1), ts(2) + 1, ts(4) - 1, ts(4), ts(6), ts(20)]
    parts = [feed_of(bucket).events(low, high) for low, high in pairwise(borders)]
    assert [one for part in parts for one in told(part)] == everything(bucket)


def test_a_window_that_is_not_complete_is_refused(bucket: SmallBucket) -> None:
    """Beyond the checkpoint more may come; without ``metadata`` nothing is known to be complete."""
    with pytest.raises(ConfigError, match="complete up to its checkpoint"):
        list(feed_of(bucket).events(0, ts(21)))
    (bucket.root / "metadata").unlink()
    with pytest.raises(NoMetadata, match="no readable `metadata`"):
        list(feed_of(bucket).events(0))


def test_repeated_deliveries_come_once(bucket: SmallBucket) -> None:
    """A later file of the directory, and a statement's directory, may have rows again that were there before."""
    bucket.rows("d.a", 1, *of("d.a", 2, 3, 4))
    bucket.rows("d.a", 2, *of("d.a", 3, 4, 5))
    bucket.schema("d.a", ts(6), "TRUNCATE TABLE `a`", 11)
    bucket.rows("d.a", 1, *of("d.a", 5, 6, 7), version=ts(6))
    # That of tick 6 is of before the statement, and in no other file: it was written there, and TiCDC has replaced the file.
    assert everything(bucket, "d.a")[2:] == [
        "2 I d.a 2,2",
        "3 I d.a 3,3",
        "4 I d.a 4,4",
        "5 I d.a 5,5",
        "6 TRUNCATE TABLE `a`",
        "7 I d.a 7,7",
    ]


def test_an_update_that_comes_again_in_two_parts_stays_an_update(bucket: SmallBucket) -> None:
    """After a restart TiCDC may write an update as a delete and an insert; a row that is replaced by another one is both, in any file."""
    bucket.rows("d.a", 1, row("d.a", 3, "1", '"new"', operation="U"), row("d.a", 4, "2", '"was"', operation="D"))
    bucket.rows("d.a", 2, row("d.a", 3, "1", '"old"', operation="D"), row("d.a", 3, "1", '"new"'))
    bucket.rows("d.a", 3, row("d.a", 4, "2", '"was"', operation="D"), row("d.a", 4, "2", '"is"'))
    assert everything(bucket, "d.a")[2:] == ["3 U d.a 1,new", "4 D d.a 2,was", "4 I d.a 2,is"]


def test_equal_rows_without_a_key_are_counted(bucket: SmallBucket) -> None:
    """Each as often as one delivery of its transaction has it, not as often as it is stored."""
    columns = (column("id", "INT"), column("name", "VARCHAR"))
    bucket.schema("d.bag", ts(1), "CREATE TABLE `bag` (id INT, name VARCHAR(20))", 3, columns)
    twice = [row("d.bag", 3, "1", '"x"'), row("d.bag", 3, "1", '"x"')]
    bucket.rows("d.bag", 1, *twice)
    bucket.rows("d.bag", 2, *twice, row("d.bag", 4, "1", '"x"', operation="D"))
    assert everything(bucket, "d.bag")[2:] == ["3 I d.bag 1,x", "3 I d.bag 1,x", "4 D d.bag 1,x"]


def test_an_update_without_a_key_that_comes_again_in_two_parts(bucket: SmallBucket) -> None:
    """It is a delete and an insert in any delivery, so it counts once, and is taken back once."""
    columns = (column("id", "INT"), column("name", "VARCHAR"))
    bucket.schema("d.bag", ts(1), "CREATE TABLE `bag` (id INT, name VARCHAR(20))", 3, columns)
    text = '"{}","bag","d",{},{},1,"{}"'
    update, parts = (
        [text.format("D", ts(3), word, "was"), text.format("I", ts(3), word, "is")] for word in ("true", "false")
    )
    bucket.rows("d.bag", 1, text.format("I", ts(2), "false", "was"), *update)
    bucket.rows("d.bag", 2, *parts)
    assert told(feed_of(bucket, "d.bag", old=True).events(ts(1))) == [
        "2 I d.bag 1,was",
        "3 D d.bag 1,was",
        "3 I d.bag 1,is",
    ]
    lines = undone_of(bucket, "d.bag", low=ts(2), old=True)
    assert [line.partition(" ")[0] for line in lines] == ["DELETE", "INSERT"]


@pytest.mark.parametrize("seed", range(20))
def test_slices_change_nothing(bucket: SmallBucket, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read in slices of a few bytes, a bucket with repeats in random files gives what it gives at once."""
    dice = random.Random(seed)  # noqa: S311 - not for secrets
    for table in ("d.a", "d.b"):
        begin = 2
        for number in range(1, dice.randint(3, 8)):
            ticks = sorted(dice.choices(range(begin, 22), k=dice.randint(1, 12)))
            bucket.rows(table, number, *of(table, *dict.fromkeys(ticks)))
            begin = max(2, min(20, ticks[-1] - dice.randint(0, 3)))
    whole = everything(bucket)
    assert len(set(whole)) == len(whole)
    monkeypatch.setattr(reading.Ordered, "__init__", _small(reading.Ordered.__init__))
    assert everything(bucket) == whole
    low, high = ts(5), ts(13)
    window = told(feed_of(bucket).events(low, high))
    assert window == [one for one in whole if 5 < float(one.split()[0]) <= 13]


def _small(whole: object) -> object:
    """As the class is made, with little to hold."""

    def made(self: reading.Ordered, **fields: object) -> None:
        whole(self, **fields, held_bytes=100)  # type: ignore[operator]

    return made


def test_a_missing_file_is_named(bucket: SmallBucket) -> None:
    """Changes would be missing without a word; other tables are read with a rule that leaves that one out."""
    bucket.rows("d.a", 1, *of("d.a", 2))
    bucket.rows("d.a", 3, *of("d.a", 4))
    bucket.rows("d.b", 1, *of("d.b", 3))
    with pytest.raises(FilesMissing, match=r"d\.a: file number 2 in d/a/.* is missing"):
        everything(bucket)
    assert everything(bucket, "*.*", "!d.a")[-1] == "3 I d.b 3,3"


@pytest.mark.parametrize(("query", "kind"), [("ALTER TABLE `a` ADD COLUMN more INT", 5), ("", 0)])
def test_a_missing_file_beyond_the_window(bucket: SmallBucket, query: str, kind: int) -> None:
    """It says nothing of the window where a statement began its directory; one that only records a structure may hold older rows."""
    columns = (*ID_NAME, column("more", "INT"))
    bucket.schema("d.a", ts(5), query, kind, columns)
    bucket.rows("d.a", 1, *of("d.a", 2))
    bucket.rows("d.a", 2, row("d.a", 7, "7", '"7"', "7"), version=ts(5))
    if query:
        assert told(feed_of(bucket, "d.a").events(ts(1), ts(5)))[0] == "2 I d.a 2,2"
    with pytest.raises(FilesMissing, match=r"file number 1 in d/a/.* is missing"):
        list(feed_of(bucket, "d.a").events(ts(1), ts(6) if query else ts(4)))


def test_rows_without_a_structure_are_refused(bucket: SmallBucket) -> None:
    """Without its schema file nobody knows the columns of a directory's rows."""
    bucket.rows("d.c", 1, *of("d.c", 2))
    with pytest.raises(FilesMissing, match="has data files and no schema file"):
        everything(bucket)


def test_rows_that_cannot_be_read_name_file_and_row(bucket: SmallBucket) -> None:
    """But the last row of the newest file may still be being written, beyond the checkpoint."""
    bucket.rows("d.a", 1, *of("d.a", 2))
    path = bucket.rows("d.a", 2, *of("d.a", 3, 21))
    path.write_bytes(path.read_bytes() + b'"I","a","d",')
    assert everything(bucket, "d.a")[-1] == "3 I d.a 3,3"
    bucket.rows("d.a", 3, *of("d.a", 4))
    with pytest.raises(UndecodableRow, match=r"CDC0*2\.csv.*row 3"):
        everything(bucket, "d.a")


@pytest.mark.parametrize("rest", [b'"I","a","d",', f'"I","a","d",{ts(4)},"4'.encode(), b'"'])
def test_a_file_that_was_cut_below_the_checkpoint(bucket: SmallBucket, rest: bytes) -> None:
    """TiCDC stores what the checkpoint covers whole, so a copy of the bucket is not whole yet: changes that it lacks are not passed over."""
    path = bucket.rows("d.a", 1, *of("d.a", 2, 3))
    whole = path.read_bytes()
    path.write_bytes(whole + rest)
    with pytest.raises(FilesMissing, match=r"CDC0*1\.csv.*ends inside row 3"):
        everything(bucket, "d.a")
    waits: list[int] = []

    def wait() -> bool:
        waits.append(1)
        path.write_bytes("".join(f"{each}\r\n" for each in of("d.a", 2, 3, 4)).encode())
        return len(waits) < 2

    found = list(feed_of(bucket, "d.a").following(ts(1), wait, patience=60.0))
    assert told(found) == ["2 I d.a 2,2", "3 I d.a 3,3", "4 I d.a 4,4"]


def test_a_row_beyond_the_window_that_is_being_written(bucket: SmallBucket) -> None:
    """Its commit-ts, or that of the row before it, says so."""
    path = bucket.rows("d.a", 1, *of("d.a", 2))
    whole = path.read_bytes()
    path.write_bytes(whole + f'"I","a","d",{ts(21)},"2'.encode())
    assert everything(bucket, "d.a")[-1] == "2 I d.a 2,2"
    bucket.rows("d.a", 1, *of("d.a", 2, 21))
    path.write_bytes(path.read_bytes() + b'"I","a"')
    assert everything(bucket, "d.a")[-1] == "2 I d.a 2,2"


def test_files_from_before_the_window_are_not_read(bucket: SmallBucket) -> None:
    """A file in a date directory that ended more than a day before the window holds nothing of it, so it may be damaged, or gone."""
    day = 86_400
    bucket.metadata(ts(20 * day))
    folder = bucket.rows("d.a", 1, "no row at all").parent
    assert folder.name == "2026-11-21"
    # Tick 0 is in September 2026: the window begins after the directory's day and another one.
    begin = 64 * day
    bucket.metadata(ts(begin + 20))
    new = bucket.root / "d" / "a" / str(ts(1)) / "2026-11-25" / "CDC00000000000000000001.csv"
    new.parent.mkdir()
    tick = begin + 5
    new.write_text(row("d.a", tick, "1", '"late"') + "\r\n", encoding="utf-8")
    assert told(feed_of(bucket, "d.a").events(ts(begin)))[-1].endswith("I d.a 1,late")
    with pytest.raises(UndecodableRow):
        list(feed_of(bucket, "d.a").events(ts(begin - 20 * day)))


def test_generated_columns_that_rows_lack(bucket: SmallBucket) -> None:
    """Virtual ones are known by the statements that led to the table, under its former name too."""
    columns = (column("id", "INT", key=True), column("v", "INT"), column("name", "VARCHAR"))
    query = "CREATE TABLE `was` (id INT PRIMARY KEY, v INT AS (id + 1), name VARCHAR(20))"
    bucket.schema("d.was", ts(1), query, 3, columns)
    bucket.rows("d.was", 1, *of("d.was", 2))
    bucket.schema("d.is", ts(3), "RENAME TABLE `d`.`was` TO `d`.`is`", 14, columns)
    bucket.rows("d.is", 1, *of("d.is", 4), version=ts(3))
    assert [one for one in everything(bucket) if " I " in one] == ["2 I d.was 2,2", "4 I d.is 4,4"]


def test_stored_columns_that_sql_does_not_write(bucket: SmallBucket) -> None:
    """A stored generated column is given no value under any name that it gets; once it is an ordinary one, it is."""
    columns = (column("id", "INT", key=True), column("g", "INT"), column("name", "VARCHAR"))
    query = "CREATE TABLE `s` (id INT PRIMARY KEY, g INT AS (id + 1) STORED, name VARCHAR(20))"
    renamed = (columns[0], column("h", "INT"), columns[2])
    bucket.schema("d.s", ts(1), query, 3, columns)
    bucket.schema("d.s", ts(3), "ALTER TABLE `s` RENAME COLUMN `g` TO `h`", 12, renamed)
    bucket.schema("d.u", ts(5), "RENAME TABLE `d`.`s` TO `d`.`u`", 14, renamed)
    bucket.schema("d.u", ts(7), "ALTER TABLE `u` MODIFY COLUMN `h` INT", 12, renamed)
    for name, tick in (("d.s", 1), ("d.s", 3), ("d.u", 5), ("d.u", 7)):
        bucket.rows(name, 1, row(name, tick + 1, "1", "2", '"x"'), version=ts(tick))
    bucket.metadata(ts(9))
    changes = [each for each in feed_of(bucket).events(0) if isinstance(each, Change)]
    written = [statements("csv")(each).partition(" VALUES")[0] for each in changes]
    assert written == [
        "INSERT INTO `d`.`s` (`id`, `name`)",
        "INSERT INTO `d`.`s` (`id`, `name`)",
        "INSERT INTO `d`.`u` (`id`, `name`)",
        "INSERT INTO `d`.`u` (`id`, `h`, `name`)",
    ]


def test_what_becomes_complete_is_followed(bucket: SmallBucket) -> None:
    """Each event once, in order over the looks; a statement at the checkpoint comes when the bucket is beyond it."""
    bucket.rows("d.a", 1, *of("d.a", 2, 3))
    bucket.metadata(ts(3))
    looks: list[int] = []

    def wait() -> bool:
        looks.append(len(looks))
        if looks[-1] == 0:
            bucket.schema("d.a", ts(5), "TRUNCATE TABLE `a`", 11)
            bucket.rows("d.a", 2, *of("d.a", 3, 4, 5, 6))
            bucket.metadata(ts(5))
        elif looks[-1] == 1:
            bucket.rows("d.a", 1, *of("d.a", 7), version=ts(5))
            bucket.metadata(ts(8))
        return looks[-1] < 3

    found = list(feed_of(bucket, "d.a").following(0, wait))
    places = [place for place, event in enumerate(found) if event is None]
    assert told(found[: places[0]])[2:] == ["2 I d.a 2,2", "3 I d.a 3,3"]
    assert told(found[places[0] : places[1]]) == ["4 I d.a 4,4", "5 I d.a 5,5"]
    assert told(found[places[1] : places[2]]) == ["5 TRUNCATE TABLE `a`", "6 I d.a 6,6", "7 I d.a 7,7"]
    assert found[places[2] :] == [None, None]


def test_a_swap_of_names_in_an_order_that_can_run(bucket: SmallBucket) -> None:
    """The steps of one statement lie in the folders of their last names; the first is the one whose new name is free."""
    bucket.schema("d.c", ts(5), "RENAME TABLE `d`.`b` TO `d`.`z`", 14)
    bucket.schema("d.b", ts(5), "RENAME TABLE `d`.`a` TO `d`.`b`", 14)
    bucket.schema("d.a", ts(5), "RENAME TABLE `d`.`z` TO `d`.`a`", 14)
    found = [event for event in feed_of(bucket).events(ts(2)) if isinstance(event, FeedStatement)]
    assert [event.definition.query.replace("`", "").replace("d.", "")[13:] for event in found] == [
        "b TO z",
        "a TO b",
        "z TO a",
    ]


CUT_OVER = (("d.orders", "orders_new", "orders"), ("d.orders_old", "orders", "orders_old"))
"""Folder, old name and new name of each step."""


def cut_over(bucket: SmallBucket, tick: int) -> None:
    """A new table comes in the place of the old one, which is kept."""
    bucket.schema("d.orders_new", ts(tick - 1), "CREATE TABLE `orders_new` (id INT PRIMARY KEY, name VARCHAR(20))", 3)
    for folder, old, new in CUT_OVER:
        bucket.schema(folder, ts(tick), f"RENAME TABLE `d`.`{old}` TO `d`.`{new}`", 14)


@pytest.mark.parametrize("is_known", [True, False])
def test_a_second_cut_over(bucket: SmallBucket, *, is_known: bool) -> None:
    """Names of the first are those of other tables at the second, also where the bucket does not show that the oldest table was dropped."""
    bucket.schema("d.orders", ts(2), "CREATE TABLE `orders` (id INT PRIMARY KEY, name VARCHAR(20))", 3)
    for tick in (5, 10):
        cut_over(bucket, tick)
        if is_known:
            bucket.schema("d.orders_old", ts(tick + 2), "DROP TABLE `orders_old`", 4)
    found = [event for event in feed_of(bucket).events(ts(2)) if isinstance(event, FeedStatement)]
    renames = [event.definition.query[13:].replace("`d`.", "") for event in found if "RENAME" in event.definition.query]
    assert renames == ["`orders` TO `orders_old`", "`orders_new` TO `orders`"] * 2


def test_what_is_known_of_columns_behind_a_second_cut_over(bucket: SmallBucket) -> None:
    """It is that of the table that has the name then, not of one that had it before."""
    columns = (column("id", "INT", key=True), column("v", "INT"), column("name", "VARCHAR"))
    bucket.schema("d.orders", ts(2), "CREATE TABLE `orders` (id INT PRIMARY KEY)", 3)
    for tick, virtual in ((5, "v"), (10, "name")):
        query = f"CREATE TABLE `orders_new` (id INT PRIMARY KEY, v INT, name VARCHAR(20), {virtual} INT AS (id + 1))"
        bucket.schema("d.orders_new", ts(tick - 1), query, 3, columns)
        for folder, old, new in CUT_OVER:
            bucket.schema(folder, ts(tick), f"RENAME TABLE `d`.`{old}` TO `d`.`{new}`", 14, columns)
        bucket.schema("d.orders_old", ts(tick + 2), "DROP TABLE `orders_old`", 4, columns)
    bucket.rows("d.orders", 1, row("d.orders", 11, "1", "7"), version=ts(10))
    assert everything(bucket, "d.orders")[-1] == "11 I d.orders 1,7"


def test_a_file_that_is_not_there_yet(bucket: SmallBucket) -> None:
    """Whoever follows waits for it, as long as was said; then it is named."""
    bucket.rows("d.a", 1, *of("d.a", 2))
    bucket.rows("d.a", 3, *of("d.a", 4))
    waits: list[int] = []

    def wait() -> bool:
        waits.append(1)
        if len(waits) == 3:
            bucket.rows("d.a", 2, *of("d.a", 3))
        return len(waits) < 4

    found = list(feed_of(bucket, "d.a").following(ts(1), wait, patience=60.0))
    assert found[:3] == [None, None, None]
    assert told(found) == ["2 I d.a 2,2", "3 I d.a 3,3", "4 I d.a 4,4"]
    bucket.rows("d.a", 5, *of("d.a", 6))
    with pytest.raises(FilesMissing, match="file number 4"):
        list(feed_of(bucket, "d.a").following(ts(1), lambda: True))


def test_a_statement_that_comes_late(bucket: SmallBucket) -> None:
    """It belongs before what was given: whoever follows ends with its name, and where to begin again."""
    feed = feed_of(bucket)

    def wait() -> bool:
        bucket.schema("d.a", ts(3), "ALTER TABLE `a` COMMENT = 'x'", 17)
        return True

    with pytest.raises(NotReplicable, match=rf"d/a/meta/schema_{ts(3)}_\d+\.json came when .* begin again at {ts(3)}"):
        list(feed.following(0, wait))


def test_metadata_that_is_gone_for_a_while(bucket: SmallBucket) -> None:
    """Whoever follows tries again, as long as was said, and one warning tells of it; then the error is raised."""
    bucket.rows("d.a", 1, *of("d.a", 2))
    feed = feed_of(bucket, "d.a")
    waits: list[int] = []

    def wait() -> bool:
        waits.append(len(waits))
        if waits[-1] == 0:
            (bucket.root / "metadata").unlink()
        elif waits[-1] == 2:
            bucket.rows("d.a", 2, *of("d.a", 22))
            bucket.metadata(ts(23))
        return waits[-1] < 3

    found = list(feed.following(ts(1), wait, retry_limit=60.0))
    assert told(found) == ["2 I d.a 2,2", "22 I d.a 22,22"]
    (warning,) = feed.contents.warnings
    assert warning.startswith(
        "the storage does not answer, and is tried again for 1m00s (--retry-limit): metadata is gone"
    )
    (bucket.root / "metadata").unlink()
    with pytest.raises(StorageUnavailable, match="metadata is gone"):
        list(feed.following(ts(23), wait))


def test_a_storage_that_does_not_answer_within_a_window(bucket: SmallBucket, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was given of the window is not given again."""
    monkeypatch.setattr(reading.Ordered, "__init__", _small(reading.Ordered.__init__))
    for number, ticks in enumerate(((2, 3, 4), (5, 6, 7), (8, 9, 10)), 1):
        bucket.rows("d.a", number, *of("d.a", *ticks))
    paths = (path for path in bucket.root.rglob("*") if path.is_file())
    storage = MemoryStorage({path.relative_to(bucket.root).as_posix(): path.read_bytes() for path in paths})

    def wait() -> bool:
        was, storage.available = storage.available, True
        return not was

    found = []
    for event in feed_of(bucket, "d.a", storage=storage).following(ts(1), wait, retry_limit=60.0):
        found.append(event)
        if event is not None:
            storage.available = event.commit_ts not in (ts(3), ts(8))
    assert found.count(None) == 3
    assert told(found) == [f"{tick} I d.a {tick},{tick}" for tick in range(2, 11)]


def test_a_storage_that_is_not_tried_again(bucket: SmallBucket) -> None:
    """One that has not answered yet, and a bucket that may be another changefeed's since its checkpoint went far back."""
    storage = MemoryStorage()
    storage.available = False
    with pytest.raises(StorageUnavailable, match="unavailable"):
        next(feed_of(bucket, storage=storage).following(0, lambda: True, retry_limit=60.0))
    bucket.metadata(ts(2000))

    def wait() -> bool:
        bucket.metadata(ts(20))
        return True

    with pytest.raises(StorageUnavailable, match="metadata went back"):
        list(feed_of(bucket).following(0, wait, retry_limit=60.0))


VIEW = "CREATE ALGORITHM = UNDEFINED DEFINER = CURRENT_USER SQL SECURITY DEFINER VIEW `d`.`v` AS SELECT {} FROM `t`"
WIDER = (*ID_NAME, column("more", "INT"))


@pytest.mark.parametrize(
    ("statement", "kind", "table", "columns", "means"),
    [
        (VIEW.format("`more`"), 21, "d.v", ("more",), "`e`.`t`"),
        (VIEW.format("*"), 21, "d.v", ("id", "name"), "`d`.`t`"),
        (VIEW.format("`id`"), 21, "d.v", ("id",), ""),
        ("CREATE TABLE `d`.`v` LIKE `t`", 3, "d.v", ("id", "name", "more"), "`e`.`t`"),
        ("CREATE VIEW `v` AS SELECT `more` FROM `t`", 21, "d.v", ("more",), "`t`"),
        ("RENAME TABLE `t` TO `d`.`v`", 14, "d.v", ("id", "name", "more"), "`e`.`t`"),
        ("RENAME TABLE `t` TO `d`.`v`", 14, "d.v", ("id", "name"), "`d`.`t`"),
    ],
)
def test_names_of_another_database(
    bucket: SmallBucket, statement: str, kind: int, table: str, columns: tuple[str, ...], means: str
) -> None:
    """SQL names the database that a statement was typed in, by what the tables of that name have; where it could be several, it ends."""
    bucket.schema("d.t", ts(2), "CREATE TABLE `t` (id INT PRIMARY KEY, name VARCHAR(20))", 3)
    bucket.schema("e.t", ts(2), "CREATE TABLE `t` (id INT PRIMARY KEY, name VARCHAR(20), more INT)", 3, WIDER)
    kinds = {each["ColumnName"]: each for each in WIDER}
    bucket.schema(table, ts(5), statement, kind, tuple(kinds[name] for name in columns))
    (event,) = (each for each in feed_of(bucket).events(ts(4)) if isinstance(each, FeedStatement))
    if means:
        wanted = statement.replace("`t`", means)
        assert f"; SET timestamp = 1790000005.000; {wanted};" in statements("csv")(event).replace("USE `d`", "")
    else:
        with pytest.raises(NotReplicable, match=r"all of these can be meant: d\.t, e\.t"):
            statements("csv")(event)


def test_changes_of_a_table_from_another_database(bucket: SmallBucket) -> None:
    """A table that a rename took from the database it was typed in has its former rows, and a copy of one its structure."""
    columns = (column("id", "INT", key=True), column("g", "INT"), column("name", "VARCHAR"))
    bucket.schema("e.t", ts(2), "CREATE TABLE `t` (id INT PRIMARY KEY, g INT AS (id + 1), name TEXT)", 3, columns)
    bucket.rows("e.t", 1, *of("e.t", 3), version=ts(2))
    bucket.schema("d.like", ts(4), "CREATE TABLE `d`.`like` LIKE `t`", 3, columns)
    bucket.rows("d.like", 1, *of("d.like", 5), version=ts(4))
    bucket.schema("d.was", ts(6), "RENAME TABLE `t` TO `d`.`was`", 14, columns)
    bucket.rows("d.was", 1, *of("d.was", 7), version=ts(6))
    found = everything(bucket)
    assert [one for one in found if " I " in one] == ["3 I e.t 3,3", "5 I d.like 5,5", "7 I d.was 7,7"]
    feed = feed_of(bucket)
    feed.upto()
    history = history_at(TableName(schema="d", table="was"), ts(9), feed.contents.definitions)
    assert (history.broken, [str(name) for name in history.names]) == ("", ["e.t", "d.was"])
