"""Exports of a live TiDB, as far as no server is needed."""

from __future__ import annotations

import pytest

from storage_consumer.config.settings import Downstream
from storage_consumer.errors import StorageUnavailable
from storage_consumer.model import TableName
from storage_consumer.operating.exporting import ExportWishes, exported
from storage_consumer.operating.verification import Server
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
