"""Values that the source tells apart and the target finds equal: no row goes without a word, and what the halt says is a way on."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from storage_consumer.cli.main import main
from storage_consumer.spark.pipeline import SparkPipeline
from tests.harness.servers import DatabaseServer
from tests.harness.small_bucket import CREATE_TABLE, SmallBucket, column, row, ts
from tests.harness.small_export import export
from tests.integration.rounds import content, of, once

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.usefixtures("spark")]

KEYS = {
    "primary": "PRIMARY KEY (`name`)",
    "unique": "PRIMARY KEY (`id`), UNIQUE KEY `u` (`name`)",
    "composite": "PRIMARY KEY (`id`), UNIQUE KEY `u` (`more`, `name`)",
    "prefix": "PRIMARY KEY (`id`), UNIQUE KEY `u` (`name`(5))",
    "generated": "`g` VARCHAR(20) COLLATE utf8mb4_general_ci GENERATED ALWAYS AS (CONCAT(`name`, 'x')) STORED, PRIMARY KEY (`id`), UNIQUE KEY `u` (`g`)",
}

_COPIED = "  `name` varchar(20) COLLATE utf8mb4_general_ci NOT NULL,\n  `id` int DEFAULT NULL,\n  PRIMARY KEY (`name`)"


def table(bucket: SmallBucket, key: str, collation: str = "utf8mb4_general_ci") -> None:
    """A database and d.t with an id, a name of a collation, and a number."""
    bucket.schema("d", ts(0), "CREATE DATABASE `d`", 1)
    is_text = key == "primary"
    columns = [
        column("id", "INT", key=not is_text),
        column("name", "VARCHAR", key=is_text, ColumnPrecision="20"),
        column("more", "INT"),
    ]
    if key == "generated":
        columns.append(column("g", "VARCHAR", ColumnPrecision="20"))
    body = f"`id` INT NOT NULL, `name` VARCHAR(20) COLLATE {collation} NOT NULL, `more` INT, {KEYS[key]}"
    bucket.schema("d.t", ts(1), f"CREATE TABLE `t` ({body})", CREATE_TABLE, columns)


def change(key: str, tick: int, number: int, name: str, operation: str = "I") -> str:
    """A row of that table."""
    computed = (f'"{name}x"',) if key == "generated" else ()
    return row("d.t", tick, str(number), f'"{name}"', "7", *computed, operation=operation)


def names(server: DatabaseServer) -> list[tuple[Any, ...]]:
    """Ids and names of that table."""
    return sorted(server.query("SELECT id, name FROM d.t"))


def follow(error: str, server: DatabaseServer) -> None:
    """Do what an error says, if nobody else wrote the row that is there."""
    steps = re.findall(
        r"(ALTER TABLE .*?|storage-consumer table .*?)(?: -- |\. | \(row)", error.partition(" -- else ")[2]
    )
    assert len(steps) == 2
    for step in steps:
        if step.startswith("ALTER"):
            server.query(step)
        else:
            assert main(step.split()[1:]) == 0


@pytest.mark.parametrize("how", ["insert", "update", "later"])
@pytest.mark.parametrize("key", KEYS)
def test_both_rows_are_named(server: DatabaseServer, key: str, how: str, bucket: SmallBucket) -> None:
    """By insert, by update, and in a later round: the row that is there stays, and the error names both, the key, both values and the collation."""
    table(bucket, key)
    rows = [change(key, 2, 1, "a"), change(key, 2, 2, "other")]
    if how == "update":
        old = [change(key, 4, 2, "other", "D")] if key == "primary" else []
        rows += [*old, change(key, 4, 2, "A", "I" if old else "U")]
    else:
        rows.append(change(key, 4, 3, "A"))
    cut = 2 if how == "later" else len(rows)
    bucket.rows("d.t", 1, *rows[:cut])
    bucket.metadata(ts(3 if how == "later" else 5))
    if how == "later":
        assert once(bucket, server).halted == ()
        bucket.rows("d.t", 2, *rows[cut:])
        bucket.metadata(ts(5))
    summary = once(bucket, server)
    error = of(summary, "d.t").error
    one, other = ("name = 'A'", "name = 'a'") if key == "primary" else ("id = [23]", "id = 1")
    assert re.search(f"the row with {one} was not written, for the target holds the row with {other}", error)
    assert f"its unique key {'PRIMARY' if key == 'primary' else 'u'} " in error
    if key != "generated":
        assert "name is 'A' in the one and 'a' in the other" in error
        assert "utf8mb4_general_ci" in error
    assert (1, "a") in names(server) or how != "later"
    again = once(bucket, server)
    assert of(again, "d.t").error == error


@pytest.mark.parametrize("key", ["primary", "unique"])
def test_the_way_on(server: DatabaseServer, key: str, bucket: SmallBucket) -> None:
    """What the error prints makes the table go on, with all rows; a TiDB's primary key alone has no statement."""
    table(bucket, key)
    bucket.rows("d.t", 1, *(change(key, 2, number, name) for number, name in enumerate(("a", "A", "a ", "b"))))
    bucket.metadata(ts(3))
    error = of(once(bucket, server), "d.t").error
    if (server.kind, key) == ("tidb", "primary"):
        assert "new_collations_enabled_on_first_bootstrap" in error
        return
    follow(error, server)
    assert once(bucket, server).halted == ()
    assert names(server) == [(0, "a"), (1, "A"), (2, "a "), (3, "b")]


@pytest.mark.parametrize("writers", [1, 5])
@pytest.mark.parametrize("rounds", [1, 4])
def test_keys_that_are_spelled_anew(server: DatabaseServer, rounds: int, writers: int, bucket: SmallBucket) -> None:
    """Where the source finds the spellings equal too: split updates, plain ones that do not show the old key, repeats, and a key that comes again."""
    table(bucket, "primary")
    rows = [
        [change("primary", 2, n, name) for n, name in enumerate(("a", "b", "c", "d1", "e"))],
        [change("primary", 4, 0, "a", "D"), change("primary", 4, 0, "A"), change("primary", 4, 1, "B", "U")],
        [change("primary", 6, 2, "c", "D"), change("primary", 7, 2, "C"), change("primary", 7, 3, "D1", "U")],
        [
            *(change("primary", 8, 0, "A", "D"), change("primary", 8, 0, "a")),
            *(change("primary", 8, 4, "e", "D"), change("primary", 9, 4, "E"), change("primary", 10, 4, "E", "D")),
            *(change("primary", 10, 4, "e"), change("primary", 8, 3, "D1", "D")),
        ],
    ]
    for number, some in enumerate(rows):
        again = rows[number - 1] if number else []
        bucket.rows("d.t", 2 * number + 1, *some)
        bucket.rows("d.t", 2 * number + 2, *again, *some)
        bucket.metadata(ts(3 + 2 * number if number < 3 else 11))
        if rounds == 4 or number == 3:
            assert once(bucket, server, partitions=writers).halted == ()
    assert names(server) == [(0, "a"), (1, "B"), (2, "C"), (4, "e")]


def test_a_delete_takes_no_other_spelling(server: DatabaseServer, bucket: SmallBucket) -> None:
    """A key that came and went within a window leaves the row of another spelling alone."""
    table(bucket, "primary")
    bucket.rows("d.t", 1, change("primary", 2, 1, "a"))
    bucket.metadata(ts(3))
    once(bucket, server)
    bucket.rows("d.t", 2, change("primary", 4, 2, "A"), change("primary", 5, 2, "A", "D"))
    bucket.metadata(ts(6))
    assert once(bucket, server).halted == ()
    assert names(server) == [(1, "a")]


def test_a_copy_with_keys_that_the_target_finds_equal(
    server: DatabaseServer, bucket: SmallBucket, tmp_path: Path
) -> None:
    """A load halts, and names both rows; where the target can tell them apart, the load goes on after what the error says."""
    folder = export(tmp_path / "export", 20, {"t": ["('a',1),\n('b',2)", "('A',3)"]}, body=_COPIED)
    bucket.metadata(ts(30))
    error = of(once(bucket, server, dump=folder.as_uri(), start_ts=1), "d.t").error
    assert "the row with name = 'A' was not written, for the target holds the row with name = 'a'" in error
    if server.kind != "tidb":
        follow(error, server)
        assert once(bucket, server, dump=folder.as_uri(), start_ts=1).halted == ()
        assert sorted(server.query("SELECT id FROM d.t")) == [(1,), (2,), (3,)]


def moving(bucket: SmallBucket) -> list[tuple[Any, ...]]:
    """Unique names that rotate among many rows; what is there in the end."""
    table(bucket, "unique")
    many, apart = 400, 3_001
    bucket.rows("d.t", 1, *(change("unique", 2, apart * n, f"n{n}") for n in range(many)))
    bucket.rows("d.t", 2, *(change("unique", 4, apart * n, f"n{(n + 7) % many}", "U") for n in range(many)))
    return [(apart * n, f"n{(n + 7) % many}") for n in range(many)]


def test_killed_between_the_two_jobs(
    server: DatabaseServer, bucket: SmallBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that wait for others to make way are written by a second job, or by the next start if the first job was the last of its process."""
    expected = moving(bucket)
    bucket.metadata(ts(3))
    once(bucket, server, partitions=7)
    bucket.metadata(ts(5))
    run: Callable[..., Any] = SparkPipeline.run
    jobs: list[int] = []

    def broken(self: SparkPipeline, *given: Any) -> Any:
        jobs.append(len(jobs))
        if len(jobs) == 2:
            raise RuntimeError("killed")
        return run(self, *given)

    monkeypatch.setattr(SparkPipeline, "run", broken)
    with pytest.raises(RuntimeError, match="killed"):
        once(bucket, server, partitions=7)
    assert len(jobs) == 2
    assert len(content(server, "d.t")) < len(expected)
    assert once(bucket, server, partitions=7).halted == ()
    assert len(jobs) > 2
    assert names(server) == expected
