"""Read the changes of a bucket: those of one window, or all of them as they come."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

from storage_consumer.clock import Clock, span
from storage_consumer.config.settings import Upstream
from storage_consumer.decode import decoder_for
from storage_consumer.errors import ConfigError, FilesMissing, StorageUnavailable
from storage_consumer.feed.ordered import Ordered
from storage_consumer.feed.records import Change, Event
from storage_consumer.feed.window import Contents, Window
from storage_consumer.model import TableName
from storage_consumer.sql.tokens import qualified
from storage_consumer.storage.base import Storage


class Patience:
    """How long something has been missing."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        """Wait for so many seconds each time that something is missing."""
        self.seconds = seconds
        self._clock = clock
        self._since: float | None = None

    @property
    def is_tried(self) -> bool:
        """Whether something is missing now."""
        return self._since is not None

    def bear(self, fault: FilesMissing | StorageUnavailable, pause: float = 0.0) -> None:
        """Return if there is time left to wait, after a pause in seconds; else raise what is missing."""
        now = self._clock.monotonic()
        self._since = now if self._since is None else self._since
        if now - self._since >= self.seconds:
            raise fault
        if pause:
            self._clock.wait(threading.Event(), pause)

    def end(self) -> None:
        """Note that nothing is missing now."""
        self._since = None


Wanted = Callable[[Change], bool]


class Feed:
    """The changes of a bucket, in commit order, each once."""

    def __init__(self, storage: Storage, upstream: Upstream, clock: Clock, rules: Sequence[str] = ()) -> None:
        """Take what `upstream` says was written to `storage`. `rules`: of TiCDC's table filter; none for every table.

        Raises `ConfigError` for rows without commit-ts, which can neither be put in order nor told from repeats.
        """
        if not upstream.has_commit_ts:
            raise ConfigError(
                "rows without commit-ts can neither be put in order nor told from repeated deliveries: set include-commit-ts = true under "
                "[sink.csv] in the changefeed, or enable-tidb-extension=true in its sink URI for canal-json, for changes from then on"
            )
        self._storage, self._upstream, self._clock = storage, upstream, clock
        self.protocol = upstream.protocol
        """That of the data files."""
        self.contents = Contents(storage, upstream, clock, rules)

    def events(self, low: int, high: int | None = None, wanted: Wanted = lambda _: True) -> Iterator[Event]:
        """Yield what committed after `low` (exclusive) up to `high` (inclusive; None: the bucket's checkpoint).

        The same window gives the same events at any later time, while TiCDC keeps the files; only a statement at exactly the checkpoint
        may still be missing. Raises `ConfigError` for a window beyond the checkpoint, `NoMetadata`, `StorageUnavailable`, `FilesMissing`,
        `NotReplicable` and `UndecodableRow`.
        """
        yield from self._of(self.window(low, high), wanted)

    def of_tables(self, names: Iterable[TableName]) -> Feed:
        """Return the feed of some tables of the same bucket."""
        rules = [qualified(name) for name in names]
        return Feed(self._storage, self._upstream, self._clock, rules)

    def window(self, low: int, high: int | None = None) -> Window:
        """Look at the bucket, and return what a window is read from; see `events`."""
        return self.contents.window(low, self.upto(high))

    def upto(self, high: int | None = None) -> int:
        """Look at the bucket, and return up to which commit-ts (inclusive) a window to `high` is read, by default to the checkpoint.

        Raises `ConfigError` for a window beyond the checkpoint, and what `Contents.look` does.
        """
        self.contents.look()
        checkpoint = self.contents.checkpoint
        if high is not None and high > checkpoint:
            raise ConfigError(
                f"the bucket is complete up to its checkpoint {checkpoint} only: a window to {high} would lack changes that are still "
                "to come. Ask for less, or later"
            )
        return checkpoint if high is None else high

    def ordered(self, window: Window, wanted: Wanted = lambda _: True) -> Ordered:
        """Return what puts the changes of a window in order."""
        return ordered_in(window, self._storage, self._upstream, wanted)

    def following(
        self,
        low: int,
        wait: Callable[[], bool],
        wanted: Wanted = lambda _: True,
        *,
        patience: float = 0.0,
        retry_limit: float = 0.0,
    ) -> Iterator[Event | None]:
        """Yield what committed after `low` (exclusive) as it becomes complete, and None whenever there is nothing more for now.

        `wait` is called then, and returns whether to go on. `patience`: seconds to wait for a file that is missing. `retry_limit`: seconds
        to try again while a storage does not answer that did so before; a warning of `contents` tells of it. Raises what `events` does, and
        `NotReplicable` for a statement that comes after what followed it was given.
        """
        rows = statements = low
        missing, silent = Patience(self._clock, patience), Patience(self._clock, retry_limit)
        while True:
            window = self._next(rows, statements, missing, silent)
            for event in self._persistently(window, wanted, silent) if window is not None else ():
                yield event
                if event is None and not wait():
                    return
            if window is not None:
                rows, statements = window.high, max(statements, self.contents.checkpoint - 1)
                self.contents.given = statements
            yield None
            if not wait():
                return

    def _next(self, rows: int, statements: int, missing: Patience, silent: Patience) -> Window | None:
        """Look at the bucket, and return what is new in it; None if there is nothing, or while it cannot be read."""
        window = None
        try:
            self.contents.look()
            checkpoint = self.contents.checkpoint
            # Only beyond them the bucket surely has all statements at a commit-ts.
            before = checkpoint - 1
            if checkpoint > rows or before > statements:
                window = self._complete(rows, max(rows, checkpoint), (statements, max(statements, before)), missing)
        except StorageUnavailable as fault:
            self._bear(fault, silent)
            return None
        silent.end()
        return window

    def _persistently(self, window: Window, wanted: Wanted, silent: Patience) -> Iterator[Event | None]:
        """Yield the events of a window, each once, and None whenever the storage does not answer; then it is read again."""
        given = 0
        while True:
            try:
                # Read again, a window gives the same events.
                for event in islice(self._of(window, wanted), given, None):
                    given += 1
                    silent.end()
                    yield event
            except StorageUnavailable as fault:
                self._bear(fault, silent)
                yield None
            else:
                return

    def _bear(self, fault: StorageUnavailable, silent: Patience) -> None:
        """Return if the storage is to be tried again, and warn where that begins; else raise the fault.

        One that never answered has a wrong address rather than an outage, and one that may be another changefeed's is not read on.
        """
        if not self.contents.checkpoint or self.contents.reader.may_be_another:
            raise fault
        is_new = not silent.is_tried
        silent.bear(fault)
        if is_new:
            self.contents.warnings.append(
                f"the storage does not answer, and is tried again for {span(silent.seconds)} (--retry-limit): {fault}"
            )

    def _complete(self, low: int, high: int, statements: tuple[int, int], missing: Patience) -> Window | None:
        """Return a window, or None while a file of it may still come."""
        try:
            window = self.contents.window(low, high, statements=statements)
            self.ordered(window).refuse_cut()
        except FilesMissing as fault:
            missing.bear(fault)
            return None
        missing.end()
        return window

    def _of(self, window: Window, wanted: Wanted) -> Iterator[Event]:
        ordered = self.ordered(window, wanted)
        yield from ordered.events()
        self.contents.finish(each.file for each in window.files if each.file not in ordered.beyond)


def ordered_in(window: Window, storage: Storage, upstream: Upstream, wanted: Wanted = lambda _: True) -> Ordered:
    """Return what puts the changes of a window in order. `upstream`: how its files are written."""
    terminator = upstream.csv.terminator.encode()
    return Ordered(window=window, storage=storage, decoder=decoder_for(upstream), terminator=terminator, wanted=wanted)
