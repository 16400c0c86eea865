"""A subscription in Python: canal's get, ack and rollback, without a server between."""

from __future__ import annotations

import os
from collections.abc import Iterator
from types import TracebackType
from typing import NamedTuple, Self

from storage_consumer.subscribe.cursors import Cursors
from storage_consumer.subscribe.destinations import (
    LEASE,
    House,
    destination_settings,
)
from storage_consumer.subscribe.entries import Entry


class SubscribedBatch(NamedTuple):
    """Some entries, and the number by which they are acknowledged; -1 if there are none."""

    id: int
    entries: tuple[Entry, ...]


class Subscription:
    """Gives the changes of a bucket in commit order, again until they are acknowledged."""

    def __init__(
        self,
        upstream_uri: str | tuple[str, ...],
        meta_uri: str,
        destination: str,
        *,
        client_id: int = 1001,
        filter: str = "",  # noqa: A002 - as canal's clients call it
        wait: float = 2 * LEASE,
        **options: object,
    ) -> None:
        """Continue where the client of this number stopped, or begin with all changes there are.

        `meta_uri`: ``mysql://…`` or ``sqlite:///FILE`` for cursors. `filter`: canal's regular
        expressions for ``schema.table``. `wait`: seconds for another process to leave the
        destination. `options`: keys of a destination's file, and options of the bucket.

        Raises `ConfigError`, `LeaseHeld`, `StorageUnavailable` and `TargetUnavailable`.
        """
        settings = destination_settings(destination, {**options, "upstream_uri": upstream_uri}, {})
        self._cursors = Cursors(meta_uri, os.environ)
        wanted = {destination: settings}
        self._house = House(
            self._cursors, lambda: wanted, lambda: lambda entry: (entry, entry.size)
        )
        try:
            self._client = self._house.door(destination, wait).subscriber(client_id, filter)
        except BaseException:
            self.close()
            raise

    def get_without_ack(self, size: int = 1000, timeout: float | None = None) -> SubscribedBatch:
        """Return the next batch of at most `size` entries, to be acknowledged.

        `timeout`: None for what is there, 0 to wait until there are `size`, or seconds. Raises
        `LeaseLost` once another process has the destination, and what reading the bucket raises.
        """
        number, found = self._client.get(size, timeout)
        return SubscribedBatch(number, tuple(found))

    def get(self, size: int = 1000, timeout: float | None = None) -> SubscribedBatch:
        """Return the next batch, acknowledged; raise `BatchRefused` while another one is open."""
        number, found = self._client.get_acknowledged(size, timeout)
        return SubscribedBatch(number, tuple(found))

    def ack(self, batch_id: int) -> None:
        """Store that a batch is done, the first open one; raise `BatchRefused` for another."""
        self._client.ack(batch_id)

    def rollback(self, batch_id: int | None = None) -> None:
        """Have all open batches given again; raise `BatchRefused` for a number that is not open."""
        self._client.rollback(batch_id)

    def list_batches(self) -> tuple[int, ...]:
        """Return the numbers of the open batches, in order."""
        return self._client.list_batches()

    def unsubscribe(self) -> None:
        """Forget the client; it cannot be used any more."""
        self._client.unsubscribe()

    def __iter__(self) -> Iterator[SubscribedBatch]:
        """Yield batches without end; each is acknowledged when the next one is asked for."""
        while True:
            batch = self.get_without_ack(timeout=1.0)
            if batch.entries:
                yield batch
                self.ack(batch.id)

    def close(self) -> None:
        """Leave the destination to others."""
        self._house.close()
        self._cursors.close()

    def __enter__(self) -> Self:
        """Return the subscription."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close it."""
        self.close()
