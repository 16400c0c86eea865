"""Rounds over a small bucket, and questions about what they left behind."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from storage_consumer import Consumer
from storage_consumer.summary import RoundSummary, TableSummary
from tests.harness.servers import DatabaseServer
from tests.harness.small_bucket import CONFIG, SmallBucket


@contextmanager
def consumer(bucket: SmallBucket, server: DatabaseServer, **options: Any) -> Iterator[Consumer]:
    """The program on a small bucket."""
    given = {"upstream_uri": bucket.uri, "downstream_uri": server.uri, "config": CONFIG, **options}
    with Consumer(**given) as running:
        yield running


def once(bucket: SmallBucket, server: DatabaseServer, **options: Any) -> RoundSummary:
    """A new start, one round, the end."""
    with consumer(bucket, server, **options) as running:
        return running.run_once()


def of(summary: RoundSummary, table: str) -> TableSummary:
    """One table's share of a round."""
    return next(one for one in summary.tables if one.table == table)


def content(server: DatabaseServer, table: str) -> list[tuple[Any, ...]]:
    """All rows of a table, in order of the first column."""
    return sorted(server.query(f"SELECT * FROM {table}"))
