"""What changed between two structures, in words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from storage_consumer.cli.history_command import changes
from storage_consumer.model import TableColumn, TableDefinition, TableName, TableVersion

ID = TableColumn(name="id", type="BIGINT", unsigned=True, nullable=False, is_pk=True)
NAME = TableColumn(name="name", type="VARCHAR", precision=20)
PRICE = TableColumn(name="price", type="DECIMAL", precision=10, scale=2, default="0")


def table(*columns: TableColumn, query: str = "ALTER TABLE t FORCE") -> TableDefinition:
    """A structure with these columns."""
    return TableDefinition(
        name=TableName(schema="s", table="t"),
        version=TableVersion(1),
        query=query,
        ddl_type=5,
        columns=columns,
        path="",
        checksum=1,
    )


@pytest.mark.parametrize(
    ("before", "after", "query", "words"),
    [
        ((ID, NAME), (ID, NAME), "", []),
        ((ID,), (ID, PRICE), "", ["added price DECIMAL(10,2) default '0' after id"]),
        ((ID, NAME), (ID,), "", ["removed name VARCHAR(20)"]),
        ((ID, NAME, PRICE), (PRICE, ID, NAME), "", ["moved price at the front"]),
        ((ID, NAME, PRICE), (ID, PRICE, NAME), "", ["moved price after id"]),
        (
            (ID, NAME),
            (ID, TableColumn(name="name", type="VARCHAR", precision=40, nullable=False, default="x")),
            "",
            ["changed name: VARCHAR(20) is VARCHAR(40), not null, default 'x'"],
        ),
        (
            (ID, NAME),
            (ID, TableColumn(name="label", type="VARCHAR", precision=20)),
            "ALTER TABLE t RENAME COLUMN name TO label",
            ["renamed name to label"],
        ),
        (
            (ID, NAME),
            (ID, TableColumn(name="label", type="VARCHAR", precision=20)),
            "ALTER TABLE t DROP COLUMN name, ADD COLUMN label VARCHAR(20)",
            ["removed name VARCHAR(20)", "added label VARCHAR(20) after id"],
        ),
        ((ID, NAME), (ID, NAME, TableColumn(name="_V$_i_0", type="BIGINT")), "", []),
    ],
)
def test_words(before: tuple[TableColumn, ...], after: tuple[TableColumn, ...], query: str, words: list[str]) -> None:
    """Each kind of change has its words; columns that TiDB hides are no change."""
    assert changes(table(*before), table(*after, query=query)) == words


def test_first_version() -> None:
    """A table that was not there before has all its columns added."""
    assert changes(None, table(ID, NAME)) == ["added id BIGINT UNSIGNED not null primary key", "added name VARCHAR(20)"]


@given(some.permutations(range(7)))
def test_what_is_not_moved_stays_in_order(order: list[int]) -> None:
    """What is said to stay is in the same order on both sides."""
    before = [TableColumn(name=f"c{number}", type="INT") for number in range(7)]
    lines = changes(table(*before), table(*(before[number] for number in order)))
    moved = {line.split()[1] for line in lines}
    staying = [number for number in order if f"c{number}" not in moved]
    assert all(line.startswith("moved ") for line in lines)
    assert staying == sorted(staying)
