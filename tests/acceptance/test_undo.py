"""``storage-consumer changes --format undo-sql`` run at real servers: rows are as they were, or nothing is changed and the reason is told."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.test_changes import piped, printed
from tests.harness.servers import KINDS, DatabaseServer
from tests.harness.small_bucket import SmallBucket, column, row, ts

pytestmark = [pytest.mark.acceptance, pytest.mark.server]
COLUMNS = (
    column("id", "INT", key=True),
    column("name", "VARCHAR", ColumnPrecision="20"),
    column("price", "DECIMAL", ColumnPrecision="9", ColumnScale="2"),
    column("at", "DATETIME", ColumnScale="3"),
)
NAMES = ("id", "name", "price", "at", "more")
BODY = "id INT PRIMARY KEY, name VARCHAR(20), price DECIMAL(9,2), at DATETIME(3)"
ROWS = (
    row("taken.t", 2, "1", '"it\'s; -- so"', "1.50", '"2026-01-02 03:04:05.678"', names=NAMES),
    row("taken.t", 2, "2", r"\N", r"\N", '"0000-00-00 00:00:00.000"', names=NAMES),
)
SHOWN = "SELECT id, name, price, CAST(at AS CHAR) FROM taken.t ORDER BY id"


@pytest.fixture
def bucket(tmp_path: Path) -> SmallBucket:
    """taken.t with two rows, of which at tick 5 one is changed and one removed, and a third comes; complete up to tick 20."""
    found = SmallBucket(root=tmp_path, protocol="canal-json")
    found.schema("taken", ts(0), "CREATE DATABASE `taken`", 1)
    found.schema("taken.t", ts(1), f"CREATE TABLE `t` ({BODY})", 3, COLUMNS)
    found.rows("taken.t", 1, *ROWS)
    old = ("1", '"it\'s; -- so"', "1.50", '"2026-01-02 03:04:05.678"')
    new = ("1", '"new"', r"\N", '"2026-01-02 03:04:05.678"')
    gone = ("2", r"\N", r"\N", '"0000-00-00 00:00:00.000"')
    found.rows(
        "taken.t",
        2,
        row("taken.t", 5, *new, operation="U", old=old, names=NAMES),
        row("taken.t", 5, *gone, operation="D", names=NAMES),
        row("taken.t", 5, "3", '"third"', "3.00", r"\N", names=NAMES),
    )
    found.metadata(ts(20))
    return found


@pytest.fixture(params=KINDS)
def server(request: pytest.FixtureRequest) -> Iterator[DatabaseServer]:
    """Each kind of server, without the database."""
    found: DatabaseServer = request.getfixturevalue(request.param)
    found.query("DROP DATABASE IF EXISTS taken")
    yield found
    found.query("DROP DATABASE IF EXISTS taken")


def undo_of(bucket: SmallBucket, low: int, high: int) -> tuple[int, str, str]:
    """What takes back a window of ticks, both inclusive: exit code, script, and what is said."""
    window = ["--from", str(ts(low)), "--to", str(ts(high)), "--format", "undo-sql"]
    ended = printed("--upstream-uri", bucket.uri, "--table", "taken.t", *window)
    return ended.returncode, ended.stdout, ended.stderr


def play(bucket: SmallBucket, server: DatabaseServer, *window: str) -> None:
    """Run what happened."""
    assert piped(server, printed("--upstream-uri", bucket.uri, "--format", "sql", *window).stdout) == ""


def test_rows_are_as_they_were(bucket: SmallBucket, server: DatabaseServer) -> None:
    """Also where a column and indexes were added in the window and since; later rows keep what they have."""
    more = (*COLUMNS, column("more", "INT", ColumnDefault="7"))
    bucket.schema("taken.t", ts(6), "ALTER TABLE `t` ADD COLUMN `more` INT DEFAULT 7", 5, more)
    last = row("taken.t", 7, "4", '"last"', r"\N", r"\N", "1", names=NAMES)
    bucket.rows("taken.t", 1, last, version=ts(6))
    bucket.schema(
        "taken.t", ts(8), "ALTER TABLE `t` ADD UNIQUE INDEX `u` (`id`, `name`) COMMENT 'it''s; -- x'", 7, more
    )
    bucket.schema("taken.t", ts(9), "CREATE INDEX `i` ON `t` (`name`)", 7, more)
    play(bucket, server, "--to", str(ts(3)))
    before = server.query(SHOWN)
    assert len(before) == 2
    play(bucket, server, "--from", str(ts(4)))
    assert [each[0] for each in server.query(SHOWN)] == [1, 3, 4]
    code, script, told = undo_of(bucket, 5, 6)
    assert (code, told, script.count("\n-- taken.t: 'ALTER TABLE")) == (0, "", 1)
    assert piped(server, script) == ""
    assert server.query(SHOWN)[:2] == before
    assert server.query("SELECT id, more FROM taken.t ORDER BY id") == ((1, 7), (2, 7), (4, 1))
    code, script, told = undo_of(bucket, 7, 8)
    assert (code, piped(server, script)) == (0, "")
    assert server.query(SHOWN) == before


def test_a_value_that_does_not_fit(bucket: SmallBucket, server: DatabaseServer) -> None:
    """It ends the script and nothing is changed, where the source would cut it: its table is another one than the bucket says."""
    play(bucket, server)
    server.query("ALTER TABLE taken.t MODIFY name VARCHAR(6)")
    held = server.query(SHOWN)
    code, script, _ = undo_of(bucket, 5, 5)
    assert code == 0
    assert "1406" in piped(server, script)
    assert server.query(SHOWN) == held


@pytest.mark.parametrize(
    ("query", "kind", "columns", "told"),
    [
        ("ALTER TABLE `t` DROP COLUMN `price`", 6, (*COLUMNS[:2], COLUMNS[3]), "dropped column price"),
        (
            "ALTER TABLE `t` CHANGE COLUMN `name` `title` VARCHAR(20)",
            12,
            (COLUMNS[0], column("title", "VARCHAR", ColumnPrecision="20"), *COLUMNS[2:]),
            "gave column name the name title",
        ),
        (
            "ALTER TABLE `t` ADD COLUMN `more` INT NOT NULL",
            5,
            (*COLUMNS, column("more", "INT", ColumnNullable="false")),
            "added column more, which is NOT NULL and has no default",
        ),
        (
            "ALTER TABLE `t` MODIFY COLUMN `name` VARCHAR(5)",
            12,
            (COLUMNS[0], column("name", "VARCHAR", ColumnPrecision="5"), *COLUMNS[2:]),
            "gave column name another type",
        ),
        ("RENAME TABLE `taken`.`t` TO `taken`.`u`", 14, COLUMNS, "gave the table the name taken.u"),
        ("TRUNCATE TABLE `t`", 11, COLUMNS, "took all rows away"),
        ("DROP TABLE `t`", 4, COLUMNS, "dropped the table"),
    ],
)
def test_a_table_that_is_another_one_now(
    bucket: SmallBucket, server: DatabaseServer, query: str, kind: int, columns: tuple[dict[str, str], ...], told: str
) -> None:
    """The command refuses with the table, version, text and next step, and prints nothing; the window before the statement stands alone."""
    bucket.schema("taken.u" if "RENAME" in query else "taken.t", ts(9), query, kind, columns)
    play(bucket, server)
    for high, step in ((5, "--format json"), (12, f"--from {ts(9) + 1}")):
        code, script, said = undo_of(bucket, 5, high)
        assert (code, script) == (1, "")
        assert all(part in said for part in ("taken.", told, f"version {ts(9)}", query[:60], step))
