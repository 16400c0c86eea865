"""One client of a destination: what is read ahead for it, its open batches, and its cursor."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Generic, NamedTuple, TypeVar

from storage_consumer.errors import BatchRefused, LeaseLost
from storage_consumer.subscribe.cursors import Cursor, Cursors
from storage_consumer.subscribe.entries import Entry, Placed
from storage_consumer.subscribe.marks import Marks, Position

T = TypeVar("T")
_NUMBERS = 1000
"""Numbers of batches that are stored ahead as given: a start after a kill leaves some out."""
_AT_ONCE = 200
"""Entries that come into the buffer together."""
_LOOK = 0.5
"""Seconds between looks at whether somebody still waits."""
_ENDING = 1.0
_IDLE = 5.0
"""Seconds between stored positions of a client for which nothing comes."""
Pack = Callable[[Entry], tuple[T, int]]
"""Returns an entry as clients get it, and its bytes."""


class _Item(NamedTuple, Generic[T]):
    packed: T
    size: int
    position: Position | None
    is_statement: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a client may hold."""

    entries: int
    memory: int
    """Bytes. One entry above it passes alone."""
    ddl_isolation: bool = False
    """Whether a statement is alone in its batch."""
    pause: float = 1.0
    """Seconds between looks at a bucket that has nothing new."""


class Client(Generic[T]):
    """Gives batches of entries, and takes acknowledgements; its methods may be called by threads.

    A thread reads ahead from the position that was acknowledged last. What was given stays in
    memory until it is acknowledged, so that a rollback gives it again.
    """

    def __init__(
        self,
        who: tuple[str, int],
        cursors: Cursors,
        cursor: Cursor,
        read: Callable[[Position, Callable[[], bool]], Iterator[Placed]],
        pack: Pack[T],
        limits: Limits,
    ) -> None:
        """Continue `who` (destination and number) where `cursor` says, and store that it is there.

        `read`: yields entries behind a position; its second argument pauses, and returns whether to
        go on.
        """
        self._who, self._cursors, self._read = who, cursors, read
        self._pack, self._limits = pack, limits
        self._marks = Marks(cursor.next_batch)
        self._stored = cursor._replace(next_batch=cursor.next_batch + _NUMBERS)
        self._items = deque[_Item[T]]()
        self._given = 0
        """So many of the items are in open batches."""
        self._bytes = 0
        self._idle: Position | None = None
        """The border behind everything that was read, if the buffer is empty."""
        self._idle_at = time.monotonic()
        self._fault: Exception | None = None
        self._changed = threading.Condition()
        self._ends = threading.Event()
        cursors.save(*who, self._stored)
        self._thread = threading.Thread(
            target=self._read_ahead, name=f"subscribe-{who[0]}-{who[1]}", daemon=True
        )
        self._thread.start()

    @property
    def cursor(self) -> Cursor:
        """What is stored of the client."""
        return self._stored

    @property
    def is_alive(self) -> bool:
        """Whether it reads, or has something left to give."""
        return not self._ends.is_set() and self._fault is None

    def get(
        self, size: int, timeout: float | None = None, gone: Callable[[], bool] = lambda: False
    ) -> tuple[int, list[T]]:
        """Return number and entries of the next batch, which is open then; -1 for none.

        At most `size` entries. `timeout`: None for what is there, 0 until there are `size`, or
        seconds to wait for them. `gone`: whether nobody waits any more; it is asked now and then.

        Raises what reading raised, once all before was given, and `LeaseLost` once it is closed.
        """
        deadline = time.monotonic() + timeout if timeout else None
        with self._changed:
            while self._is_waiting(size, timeout, deadline):
                self._changed.wait(_LOOK)
                if gone():
                    return -1, []
            if self._ends.is_set():
                raise LeaseLost(f"destination {self._who[0]} is not served here any more")
            found = self._next(size)
            if not found:
                if self._fault is not None:
                    raise self._fault
                self._move_idle()
                return -1, []
            if self._marks.next_id >= self._stored.next_batch:
                self._store(next_batch=self._marks.next_id + _NUMBERS)
            positions = [item.position for item in found if item.position is not None]
            number = self._marks.mark(len(found), positions[-1] if positions else None)
            self._given += len(found)
            return number, [item.packed for item in found]

    def get_acknowledged(
        self, size: int, timeout: float | None = None, gone: Callable[[], bool] = lambda: False
    ) -> tuple[int, list[T]]:
        """Return a batch that is acknowledged already; raise `BatchRefused` while one is open."""
        if self._marks.ids:
            raise BatchRefused(
                f"batchId:{self._marks.ids[0]} is not acknowledged: a get that acknowledges by itself would pass over it"
            )
        number, found = self.get(size, timeout, gone)
        if found:
            self.ack(number)
        return number, found

    def ack(self, batch_id: int) -> None:
        """Take the first open batch as done; raise `BatchRefused` for any other one."""
        with self._changed:
            mark = self._marks.first(batch_id)
            if mark.position is not None:
                self._store(position=mark.position)
            self._marks.ack(batch_id)
            self._given -= mark.entries
            for _ in range(mark.entries):
                self._bytes -= self._items.popleft().size
            self._changed.notify_all()

    def rollback(self, batch_id: int | None = None) -> None:
        """Forget all open batches: their entries are given again."""
        with self._changed:
            self._marks.rollback(batch_id)
            self._given = 0
            self._changed.notify_all()

    def list_batches(self) -> tuple[int, ...]:
        """Return the numbers of the open batches, in order."""
        with self._changed:
            return self._marks.ids

    def unsubscribe(self) -> None:
        """Forget the client: it begins anew when it comes again."""
        self.close()
        self._cursors.forget(*self._who)

    def close(self) -> None:
        """Stop reading."""
        self._ends.set()
        with self._changed:
            self._changed.notify_all()
        # It may be amid a file that nobody wants anything of.
        self._thread.join(_ENDING)

    # below the lock

    def _is_waiting(self, size: int, timeout: float | None, deadline: float | None) -> bool:
        if timeout is None or self._fault is not None or self._ends.is_set():
            return False
        if len(self._items) - self._given >= size or self._is_full():
            return False
        return deadline is None or time.monotonic() < deadline

    def _is_full(self) -> bool:
        limits = self._limits
        return len(self._items) >= limits.entries or self._bytes >= limits.memory

    def _next(self, size: int) -> Sequence[_Item[T]]:
        found = list(islice(self._items, self._given, self._given + size))
        if self._limits.ddl_isolation:
            for place, item in enumerate(found):
                if item.is_statement:
                    return found[: max(place, 1)]
        return found

    def _move_idle(self) -> None:
        """Store a border behind what nobody wants, so that it is not read again."""
        now = time.monotonic()
        if self._items or self._idle is None or now - self._idle_at < _IDLE:
            return
        self._idle_at = now
        if self._stored.position is None or self._idle > self._stored.position:
            self._store(position=self._idle)

    def _store(self, **changed: Any) -> None:
        stored = self._stored._replace(**changed)
        self._cursors.save(*self._who, stored)
        self._stored = stored

    # the thread that reads ahead

    def _read_ahead(self) -> None:
        some = list[_Item[T]]()
        fault: Exception | None = None
        try:
            start = self._stored.position or Position(0, 0)
            for entry, position in self._read(
                start, lambda: not self._ends.wait(self._limits.pause)
            ):
                if entry is not None:
                    some.append(_Item(*self._pack(entry), position, entry.kind == "ddl"))
                if entry is None or len(some) >= _AT_ONCE:
                    self._put(some, position if entry is None else None)
                    some.clear()
                if self._ends.is_set():
                    return
        except Exception as found:  # noqa: BLE001 - whoever gets is told
            fault = found
        self._put(some, None, fault)

    def _put(
        self, items: Sequence[_Item[T]], idle: Position | None, fault: Exception | None = None
    ) -> None:
        with self._changed:
            for item in items:
                while self._is_full() and not self._ends.is_set():
                    self._changed.notify_all()
                    self._changed.wait()
                self._items.append(item)
                self._bytes += item.size
            if items or idle is not None:
                self._idle = idle
            self._fault = fault
            self._changed.notify_all()
