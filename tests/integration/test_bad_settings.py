"""A bucket that is away for a while, and one that contradicts its settings."""

from __future__ import annotations

import threading
import time

import pytest

from storage_consumer.errors import ConfigError, StorageUnavailable
from tests.harness.servers import DatabaseServer
from tests.harness.small_bucket import SmallBucket, row, ts
from tests.integration.rounds import consumer, content, of, once

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.usefixtures("spark")]


@pytest.fixture
def one_table(bucket: SmallBucket) -> SmallBucket:
    """Table d.t with one row."""
    bucket.create("d.t")
    bucket.rows("d.t", 1, row("d.t", 5, "1", '"one"'))
    bucket.metadata(ts(9))
    return bucket


def test_bucket_that_goes_away(one_table: SmallBucket, mariadb: DatabaseServer) -> None:
    """A folder that vanishes between two rounds is waited for; when it is back the next round goes on."""
    away = one_table.root.with_name("away")
    with consumer(one_table, mariadb, retry_limit="0.5s") as running:
        running.run_once()
        one_table.root.rename(away)
        with pytest.raises(StorageUnavailable):
            running.run_once()
        threading.Timer(0.2, away.rename, [one_table.root]).start()
        time.sleep(0.5)
        one_table.rows("d.t", 2, row("d.t", 12, "2", '"two"'))
        one_table.metadata(ts(20))
        running.run_once()
    assert content(mariadb, "d.t") == [(1, "one"), (2, "two")]


def test_settings_that_contradict_the_bucket(one_table: SmallBucket, mariadb: DatabaseServer) -> None:
    """Paths that show another date separator than the settings are refused before anything is applied."""
    with pytest.raises(ConfigError, match="date-separator"):
        once(one_table, mariadb, date_separator="none")
    assert mariadb.databases() == ("storage_consumer",)
    assert of(once(one_table, mariadb), "d.t").rows == 1
