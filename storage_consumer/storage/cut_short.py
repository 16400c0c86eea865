"""Content with fewer bytes than the listing reported: truncated in transit without an error, or just being replaced."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from storage_consumer.errors import StorageUnavailable
from storage_consumer.model import StoredObject


def whole(blocks: Iterable[bytes], stored: StoredObject, start: int = 0) -> Iterator[bytes]:
    """Yield the blocks of an object from byte `start` on; raise `StorageUnavailable` if they end before its listed size.

    Rows that such an answer lacks would be lost silently: it may end where a row ends, and the file would count as read.
    The next try lists again. More bytes than were listed belong to a file that was replaced, which the next listing shows.
    """
    place = start
    for block in blocks:
        place += len(block)
        yield block
    if place < stored.size:
        raise StorageUnavailable(
            f"{stored.path} ended after {place} bytes, but the listing says {stored.size}: the transfer was cut "
            "short, or the file is just being replaced"
        )
