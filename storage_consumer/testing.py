"""Twins of the outside world that live in memory, for tests of this program and of programs around it."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping

from storage_consumer.errors import StorageUnavailable
from storage_consumer.model import StoredObject


class FakeClock:
    """A clock that stands still until it is told otherwise; waiting moves it on at once."""

    def __init__(self, now: float = 1_700_000_000.0) -> None:
        """At `now` seconds since 1970-01-01 UTC."""
        self._now = now
        self._passed = 0.0

    def monotonic(self) -> float:
        """Seconds that were let pass."""
        return self._passed

    def now(self) -> float:
        """Seconds since 1970-01-01 UTC."""
        return self._now + self._passed

    def wait(self, event: threading.Event, seconds: float) -> bool:
        """Let `seconds` pass unless `event` is set; whether it is set."""
        if not event.is_set():
            self.advance(seconds)
        return event.is_set()

    def advance(self, seconds: float) -> None:
        """Let `seconds` pass."""
        self._passed += seconds


class MemoryStorage:
    """A `Storage` in memory. It leaves out of a listing all that may be left out, and nothing else."""

    def __init__(self, objects: Mapping[str, bytes] | None = None) -> None:
        """With these objects: path → content."""
        self._objects: dict[str, tuple[bytes, str]] = {}
        self._puts = 0
        self.requests = 0
        """Listings and reads so far."""
        self.available = True
        """Set to False to have every call raise `StorageUnavailable`."""
        for path, content in (objects or {}).items():
            self.put(path, content)

    def put(self, path: str, content: bytes) -> None:
        """Write an object; even the same content gets a new tag."""
        self._puts += 1
        self._objects[path] = (content, str(self._puts))

    def delete(self, path: str) -> None:
        """Remove an object, which must exist."""
        del self._objects[path]

    def check(self) -> None:
        """Memory is always there."""
        self._answer()

    def listing(self, closed: frozenset[str], after: Mapping[str, str]) -> Iterator[StoredObject]:
        """All objects in path order, except below `closed` and up to the names in `after`."""
        self._answer()
        for path, (content, tag) in sorted(self._objects.items()):
            folder, _, name = path.rpartition("/")
            if name > after.get(folder, "") and not any(path.startswith(f"{directory}/") for directory in closed):
                yield StoredObject(path=path, size=len(content), tag=tag)

    def read(self, path: str) -> bytes:
        """The content of an object."""
        self._answer()
        if path not in self._objects:
            raise FileNotFoundError(f"{path} does not exist")
        return self._objects[path][0]

    def blocks(self, path: str, size: int) -> Iterator[bytes]:
        """The content of an object in pieces of `size` bytes."""
        content = self.read(path)
        for start in range(0, len(content), size):
            yield content[start : start + size]

    def _answer(self) -> None:
        self.requests += 1
        if not self.available:
            raise StorageUnavailable("the storage was made unavailable")
