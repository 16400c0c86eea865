"""That nothing lies between a copy and the changefeed is proven, or the copy is refused."""

from __future__ import annotations

import pytest

from storage_consumer.model import TableColumn, TableDefinition, TableName, TableVersion
from storage_consumer.plan.copies import gap_proof
from storage_consumer.plan.covered import of_another_time

COPY = 449660184420352001


@pytest.mark.parametrize(
    ("start_ts", "first_checkpoint"),
    [(COPY, 0), (COPY - 1, 0), (1, COPY + 1), (0, COPY), (0, COPY - 1), (0, 1), (COPY, COPY + 1)],
)
def test_a_changefeed_that_began_at_or_before_the_copy_is_proof(start_ts: int, first_checkpoint: int) -> None:
    """A start-ts that was given, or else the checkpoint that was seen first, at or before the copy leaves no gap."""
    assert gap_proof(COPY, start_ts, first_checkpoint) == ""


@pytest.mark.parametrize("first_checkpoint", [0, 1, COPY - 1, COPY, COPY + 1, COPY + 2])
def test_a_later_start_is_always_refused(first_checkpoint: int) -> None:
    """Whatever was seen of the bucket: a start-ts after the copy leaves a gap, and both ways to close it are named."""
    found = gap_proof(COPY, COPY + 1, first_checkpoint)
    assert f"start-ts {COPY + 1} (2024-05-10T" in found
    assert f"later than the copy {COPY} (2024-05-10T" in found
    assert "Either take a new copy" in found
    assert f"or make a new changefeed at the copy, `cdc cli changefeed create --start-ts={COPY}`" in found


@pytest.mark.parametrize(
    ("first_checkpoint", "seen"),
    [
        (0, "no checkpoint of it has been seen"),
        (COPY + 1, f"the first checkpoint that was seen of it is {COPY + 1} (2024-05-10T"),
    ],
)
def test_an_unknown_start_is_refused(first_checkpoint: int, seen: str) -> None:
    """Without a start-ts and without an early checkpoint nothing is proven; a bucket without `metadata` proves nothing either."""
    found = gap_proof(COPY, 0, first_checkpoint)
    assert seen in found
    assert (
        "Either give its start-ts: --start-ts TSO (start_ts=TSO in Python), or --config with what `cdc cli changefeed query` prints"
        in found
    )
    assert "or take a new copy" in found


@pytest.mark.parametrize("start_ts", range(4))
@pytest.mark.parametrize("first_checkpoint", range(4))
def test_no_gap_is_ever_proven_away(start_ts: int, first_checkpoint: int) -> None:
    """Of all small worlds, only those are proven in which the changefeed surely has what the copy at 2 lacks."""
    begins_at_most_at = start_ts or first_checkpoint
    assert (gap_proof(2, start_ts, first_checkpoint) == "") is (0 < begins_at_most_at <= 2)


def _defined(name: str, version: int, columns: str, query: str = "", kind: int = 0) -> TableDefinition:
    """What a schema file says; `columns`: their names."""
    schema, _, table = name.partition(".")
    return TableDefinition(
        name=TableName(schema=schema, table=table),
        version=TableVersion(version),
        query=query,
        ddl_type=kind,
        columns=tuple(TableColumn(name=each, type="INT") for each in columns.split()),
        path=f"{name}@{version}",
        checksum=0,
    )


_MADE = _defined("shop.t", 2, "id b", "CREATE TABLE t (id INT, b INT)", 3)
_COPIED = _defined(
    "Shop.T", 10, "ID b", "CREATE TABLE `T` (`ID` int, `b` int, `g` int GENERATED ALWAYS AS (`b`) VIRTUAL)", 3
)


@pytest.mark.parametrize(
    "shown",
    [
        [],
        [_defined("shop.other", 5, "id")],
        [_defined("shop.t", 11, "id b c")],
        [_defined("shop.t", 5, "id b")],
        [_defined("shop.t", 10, "B G _V$_i_0 id")],
        [_defined("shop.t", 5, "id"), _defined("shop.t", 10, "id b g")],
        [_defined("shop.t", 5, "id b c"), _defined("shop.t", 11, "id b", "ALTER TABLE t DROP COLUMN c", 6)],
        [_defined("shop.t", 5, "x"), _defined("shop.t", 12, "id b", "RENAME TABLE s TO t", 14)],
        [_defined("shop.t", 5, "x"), _defined("shop.t", 9, "id b", "RENAME TABLE s TO t", 14)],
        [_defined("shop.s", 8, "id b c"), _defined("shop.t", 4, "id b")],
        # A changefeed that leaves statements out.
        [_defined("shop.t", 5, "id b c", "CREATE TABLE t (id INT, b INT, c INT)", 3)],
        [_MADE, _defined("shop.t", 5, "id b c")],
        # Two statements right after the copy.
        [
            _defined("shop.t", 5, "id b c d", "CREATE TABLE t (id INT, b INT, c INT, d INT)", 3),
            _defined("shop.t", 11, "id b c", "ALTER TABLE t DROP COLUMN d", 6),
            _defined("shop.t", 12, "id b", "ALTER TABLE t DROP COLUMN c", 6),
        ],
    ],
)
def test_a_copy_as_of_its_time(shown: list[TableDefinition]) -> None:
    """Its columns are those of the newest schema file, whatever their case, or those of a statement that shows early."""
    assert of_another_time([_COPIED], 10, shown) == ""


@pytest.mark.parametrize(
    ("shown", "said"),
    [
        ([_MADE, _defined("shop.t", 5, "id b c", "ALTER TABLE t ADD c INT", 5)], "lacks c, unlike shop.t@5"),
        ([_MADE, _defined("shop.t", 10, "id c", "ALTER TABLE t …", 12)], "lacks c and has b, unlike shop.t@10"),
        (
            [
                _defined("shop.t", 5, "id", "CREATE TABLE t (id INT)", 3),
                _defined("shop.t", 11, "id b", "ALTER TABLE t ADD b INT", 5),
            ],
            "has b, unlike",
        ),
    ],
)
def test_a_copy_of_another_time(shown: list[TableDefinition], said: str) -> None:
    """What tells it is named, with the schema file."""
    assert said in of_another_time([_COPIED], 10, shown)
