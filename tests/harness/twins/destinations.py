"""Twins of destinations: they give out batches that a test names, or the same one for ever."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from storage_consumer.errors import StorageConsumerError


class NamedBatch(NamedTuple):
    """A batch, with its entries serialized."""

    id: int
    entries: Sequence[bytes]


_NOTHING = NamedBatch(-1, ())


@dataclass
class NamedPlace:
    """Gives out batches one after another, whatever becomes of them."""

    batches: list[NamedBatch]
    open: list[int] = field(default_factory=list)
    """Batches that are neither acknowledged nor rolled back."""
    endless: bool = False

    def get(self, size: int, timeout: float | None, gone: Callable[[], bool]) -> NamedBatch:  # noqa: ARG002 - the contract's
        """Return the next batch."""
        if not self.batches:
            end = time.monotonic() + (timeout or 0.0)
            while time.monotonic() < end and not gone():
                time.sleep(0.01)
            return _NOTHING
        found = self.batches[0] if self.endless else self.batches.pop(0)
        if found.id != _NOTHING.id:
            self.open.append(found.id)
        return found

    def ack(self, batch_id: int) -> None:
        """Take the oldest open batch as done."""
        if batch_id not in self.open:
            raise StorageConsumerError(f"ack error, batchId:{batch_id} is not exist, please check")
        self.open.remove(batch_id)

    def rollback(self, batch_id: int | None = None) -> None:  # noqa: ARG002 - the contract's
        """Forget the open batches."""
        self.open.clear()

    def unsubscribe(self) -> None:
        """Forget them."""
        self.open.clear()


@dataclass
class NamedDoor:
    """A destination with one place."""

    place: Callable[[], NamedPlace]
    users: Mapping[str, str] = field(default_factory=dict)

    def subscriber(self, client_id: int, filter_text: str) -> NamedPlace:  # noqa: ARG002 - the contract's
        """Return the place."""
        return self.place()


@dataclass
class NamedHouse:
    """Some destinations."""

    named: Mapping[str, NamedDoor]
    elsewhere: str = ""

    def doors(self) -> Mapping[str, NamedDoor]:
        """Return them."""
        return self.named

    def standby(self) -> str:
        """Return where they are served."""
        return self.elsewhere
