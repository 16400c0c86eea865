"""Exports of a live TiDB, as far as no server is needed."""

from __future__ import annotations

import pytest

from storage_consumer.config.settings import Downstream, Loading, Server
from storage_consumer.errors import ConfigError, StorageUnavailable
from storage_consumer.model import TableName
from storage_consumer.operating.exporting import ExportWishes, TablesOfFeed, exported
from tests.harness.twins.storage import MemoryStorage


def test_a_store_that_does_not_answer_is_not_taken_for_an_empty_folder() -> None:
    """The files of an export that was broken off would be loaded with the new ones: nothing is asked of the source, or written."""
    folder = MemoryStorage({"shop.t.000000009.sql": b"INSERT"})
    folder.available = False
    nobody = Server(settings=Downstream(port=1))
    with pytest.raises(StorageUnavailable):
        exported(nobody, TableName(schema="shop", table="t"), folder, ExportWishes())
    folder.available = True
    assert [stored.path for stored in folder.listing(frozenset(), {})] == ["shop.t.000000009.sql"]


@pytest.mark.parametrize(
    ("table", "is_keyed", "taken"),
    [
        ("app.orders", True, True),
        ("app.log", True, False),  # left out by the rules of the changefeed
        ("app.private", True, False),  # left out by the filter of this program
        ("app.keyless", False, False),
    ],
)
def test_tables_of_a_feed(table: str, *, is_keyed: bool, taken: bool) -> None:
    """An export takes the tables whose changes the feed brings: both filters count, and so does a key."""
    tables = TablesOfFeed(Loading(source_rules=("*.*", "!*.log")), lambda name: name.table != "private")
    schema, _, name = table.partition(".")
    assert tables(TableName(schema=schema, table=name), is_keyed=is_keyed) is taken
    assert tables.keyless == ([table] if not is_keyed else [])


def test_tables_of_a_feed_that_is_forced() -> None:
    """A changefeed with force-replicate brings tables without a key, so an export takes them."""
    tables = TablesOfFeed(Loading(source_keyless=True), lambda _: True)
    assert tables(TableName(schema="app", table="keyless"), is_keyed=False)
    assert tables.keyless == []


def test_rules_of_a_feed_that_cannot_be_read() -> None:
    """They stop the export before it begins, and the message names the place."""
    with pytest.raises(ConfigError, match=r"\[filter\] rules of the changefeed"):
        TablesOfFeed(Loading(source_rules=("nonsense",)), lambda _: True)
