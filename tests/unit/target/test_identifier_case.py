"""Looking for names as the target spells them, by what is asked of the server."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from storage_consumer.model import TableName
from storage_consumer.target.existing_names import existing


def test_no_listing_of_a_large_database() -> None:
    """A name that is there is asked for as it is, one that is not once more without case; never all names of a database."""
    there = [f"t{number}" for number in range(10_000)]
    fetched: list[int] = []

    def query(sql: str, arguments: Collection[Any] = ()) -> list[tuple[Any, ...]]:
        if "schemata" in sql:
            return [("big",)]
        wanted = [str(name) for name in [*arguments][1:]] if len(arguments) > 1 else there
        names = [name for name in there if name in wanted]
        fetched.append(len(names))
        return [(name,) for name in names]

    big = [TableName(schema="big", table=table) for table in ("t5", "absent")]
    assert existing(query, big[:1]) == {big[0]: big[0]}
    assert fetched == [1]
    assert existing(query, big) == {big[0]: big[0]}
    assert sum(fetched) == 2
