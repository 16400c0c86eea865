"""Read the changes of a bucket: those of one window, or all of them as they come.

Read a window's files, and give their changes in one order: commit-ts, then table, deletes before
upserts, then file and row.

Files of one table follow one another in time, so few of them overlap at any commit-ts. A window
that is larger than what may be held is therefore cut into slices by commit-ts: each file is looked
through once for the commit-ts that it has, and read in the slices where it has any.
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain, groupby, islice

from storage_consumer.bucket.storage import Blocks, ReadAhead, Storage, whole
from storage_consumer.changes.window import Change, Contents, Event, FeedFile, Window
from storage_consumer.clock import Clock, counted
from storage_consumer.clock import span as shown_span
from storage_consumer.config.settings import Upstream
from storage_consumer.decode import decoder_for
from storage_consumer.decode.decoder import Decoder, FileRead, RowChange, Tally
from storage_consumer.decode.kernels.arrays import DELETE, INSERT, PARTIAL_DELETE, UPDATE
from storage_consumer.errors import ConfigError, FilesMissing, StorageUnavailable, UndecodableRow
from storage_consumer.model import CommitRange, DataFile, TableName
from storage_consumer.plan.selection import Filter
from storage_consumer.rows.row_keys import delivered_once, order_of
from storage_consumer.sql.tokens import qualified

PREIMAGE = UPDATE + 1
"""The operation of an update's old row."""
_DELETES = frozenset((DELETE, PARTIAL_DELETE))
Ranked = tuple[int, Change]
"""Rank of the file among those of its table, and the change."""


def once(changes: Sequence[Ranked]) -> list[Change]:
    """Return a table's changes of one commit-ts, each once: deletes, upserts, by file and row."""
    ordered = sorted(changes, key=_rank_of)
    if len({rank for rank, _ in ordered}) == 1:
        return [change for _, change in ordered]
    # A transaction leaves one row with a key, and may have removed another one before. After a
    # restart TiCDC may write an update as a delete and an insert: where any delivery has the
    # update, the others of that key are repeats of it. (An update to another key is in two parts.)
    by_key: dict[Hashable, dict[int, Ranked]] = defaultdict(dict)
    # Rows without a key come as often as one delivery of the transaction has them. (An update whose
    # old row is known is in two parts.)
    by_content: dict[Hashable, list[Ranked]] = defaultdict(list)
    orders: list[tuple[int, Hashable]] = []
    for rank, change in ordered:
        structure = change.structure
        if structure.key:
            key = tuple(change.values[place] for place in structure.key)
            by_key[key].setdefault(max(change.operation, DELETE), (rank, change))
        else:
            names = [column.name for column in structure.columns]
            content = change.operation, frozenset(zip(names, change.values, strict=True))
            by_content[content].append((rank, change))
            orders.append(
                (order_of(rank, change.row, upsert=change.operation not in _DELETES), content)
            )
    kinds_kept = (
        {UPDATE: kinds[UPDATE]} if UPDATE in kinds else kinds for kinds in by_key.values()
    )
    kept = list(chain.from_iterable(kinds.values() for kinds in kinds_kept))
    kept += [by_content[content].pop(0) for _, content in delivered_once(orders)]
    return [change for _, change in sorted(kept, key=_rank_of)]


def _rank_of(each: Ranked) -> tuple[bool, int, int]:
    rank, change = each
    return change.operation not in _DELETES, rank, change.row


HELD_BYTES = 64 << 20
"""Bytes of files whose changes are held at once. In memory they take several times as much."""
_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSpan:
    """A file, and the commit-ts between which all of its rows of the window are."""

    rank: int
    work: FeedFile
    first: int
    """Inclusive."""
    last: int
    """Inclusive."""

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return self.work.file.stored.size

    def within(self, low: int, high: int) -> float:
        """Return about how many of its bytes are a slice's, with rows spread evenly."""
        share = min(self.last, high) - max(self.first - 1, low)
        return self.size * max(0, share) / (self.last - self.first + 1)


@dataclass(slots=True)
class Ordered:
    """The changes and statements of one window."""

    window: Window
    storage: Blocks
    decoder: Decoder
    terminator: bytes
    """What ends each row."""
    held_bytes: int = HELD_BYTES
    wanted: Callable[[Change], bool] = lambda _: True
    """Which changes are given; the others cost no memory."""
    beyond: set[DataFile] = field(default_factory=set)
    """Files that turned out to hold rows beyond the window, or whose last row is still being
    written.
    """
    skipped: Counter[int] = field(default_factory=Counter)
    """Commit-ts → changes that were left out."""
    torn: set[DataFile] = field(default_factory=set)
    """Those whose last row is still being written."""
    is_far: bool = False
    """Whether the storage takes its time for each object."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What was left out, in words."""
        found = sorted(self.skipped.items())
        return tuple(f"--skip-commit-ts {ts}: {counted(n, 'change')} left out" for ts, n in found)

    def events(self) -> Iterator[Event]:
        """Yield all events in order; raise `UndecodableRow`, or as the storage does."""
        statements = list(self.window.statements)
        for low, high, spans in self.parts():
            names = {span.work.structure.table.folded() for span in spans}
            tables = {name: place for place, name in enumerate(sorted(names))}
            # Number of the table in the order of tables, rank of the file, and the change.
            found: list[tuple[int, int, Change]] = []
            for span, _ in zip(spans, self.early([span.work for span in spans]), strict=True):
                table, rank = tables[span.work.structure.table.folded()], span.rank
                changes = self.changes_of(span.work, span.work.between(low, high))
                found += [(table, rank, each) for each in changes if self.wanted(each)]
            found.sort(key=lambda each: (each[2].commit_ts, each[0]))
            for (ts, _), group in groupby(found, key=lambda each: (each[2].commit_ts, each[0])):
                # Rows at the commit-ts of a statement come before it.
                while statements and statements[0].commit_ts < ts:
                    yield statements.pop(0)
                yield from once([(rank, change) for _, rank, change in group])
            while statements and statements[0].commit_ts <= high:
                yield statements.pop(0)
        yield from statements

    def parts(self) -> Iterator[tuple[int, int, list[FileSpan]]]:
        """Yield the window's slices: borders (exclusive, inclusive), and files with rows there."""
        files = sorted(
            self.window.files,
            key=lambda work: (work.file.version, work.file.table_dir, work.file.order),
        )
        everything = [
            FileSpan(rank=rank, work=work, first=self.window.low + 1, last=self.window.high)
            for rank, work in enumerate(files)
        ]
        if sum(span.size for span in everything) > self.held_bytes:
            read = [
                (span, self.tally(work, work.floor))
                for span, work in zip(everything, self.early(files), strict=True)
            ]
            everything = [
                replace(span, first=tally.next_ts, last=min(tally.max_ts, self.window.high))
                for span, tally in read
                if 0 < tally.next_ts <= self.window.high
            ]
        for low, high in slices(everything, self.window.low, self.window.high, self.held_bytes):
            yield low, high, [span for span in everything if span.first <= high and span.last > low]

    def early(self, files: Sequence[FeedFile]) -> Iterator[FeedFile]:
        """Yield files, each to be read before the next one; read small ones before their turn."""
        if not self.is_far:
            yield from files
            return
        storage = self.storage
        order = [(work.file.stored, _tag(work)) for work in files]
        try:
            with closing(ReadAhead(storage, order)) as self.storage:
                yield from files
        finally:
            self.storage = storage

    def tally(self, work: FeedFile, border: int) -> Tally:
        """Return the counts of a file's rows at or below a commit-ts, and beyond."""
        tally = Tally()
        with self.whole_rows(work, tally):
            for _ in self.decoder.changes(
                self.read(work, CommitRange(low=border, high=border), tally)
            ):
                pass
        return tally

    def changes_of(self, work: FeedFile, commit_range: CommitRange) -> Iterator[Change]:
        """Yield a file's changes; some updates become a delete and an insert.

        That is where the row moves to another key, or the table has none.
        """
        tally = Tally()
        with self.whole_rows(work, tally):
            for row in self.decoder.rows(self.read(work, commit_range, tally)):
                for number, ts, operation, values, old in in_parts(row, work.structure.key):
                    change = Change(
                        ts, operation, values, old, work.structure, work.file.stored.path, number
                    )
                    yield change.without_absent() if work.structure.layout.may_lack else change
        self.skipped.update(tally.skipped)

    @contextmanager
    def whole_rows(self, work: FeedFile, tally: Tally) -> Iterator[None]:
        """Pass over a last row that is still being written, beyond the window.

        Raises `FilesMissing` for one that may belong to the window: TiCDC stores what `metadata`
        covers whole, so the file was cut.
        """
        try:
            yield
        except UndecodableRow as fault:
            # A whole row that cannot be read is another fault, wherever it stands.
            if not (fault.at_end and work.newest and self._is_cut(work.file)):
                raise
            # The rows of a file are about in the order of their commit-ts, so one that cannot be
            # read is not below those before it.
            if max(fault.commit_ts or 0, tally.max_ts) <= self.window.high:
                raise FilesMissing(
                    f"{work.file.stored.path} ends inside row {tally.rows}, and the bucket's checkpoint may cover that: it is still being copied or "
                    "written, or it was cut. Look again later, or copy it again"
                ) from fault
            self.beyond.add(work.file)
            self.torn.add(work.file)
        if tally.max_ts > self.window.high:
            self.beyond.add(work.file)

    def refuse_cut(self) -> None:
        """Raise `FilesMissing` if a file of the window was cut, before any of its changes."""
        for work in self.window.files:
            if work.newest and self._is_cut(work.file):
                self.tally(work, work.floor)

    def _is_cut(self, file: DataFile) -> bool:
        """Return whether a file does not end where a row does."""
        stored, size = file.stored, len(self.terminator)
        end = b"".join(self.storage.blocks(stored.path, _BLOCK, start=max(0, stored.size - size)))
        return end[-size:] != self.terminator if size else False

    def read(self, work: FeedFile, commit_range: CommitRange, tally: Tally) -> FileRead:
        """Return a file as a decoder takes it."""
        stored = work.file.stored
        blocks = self.storage.blocks(stored.path, _BLOCK, tag=_tag(work))
        return FileRead(
            blocks=_there(whole(blocks, stored), stored.path),
            source=stored.path,
            layout=work.structure.layout,
            commit_range=commit_range,
            key=work.structure.key,
            tally=tally,
        )


def _tag(work: FeedFile) -> str:
    """Return the tag that a file has to have, or empty."""
    return work.file.stored.tag if work.exact else ""


def _there(blocks: Iterator[bytes], path: str) -> Iterator[bytes]:
    """Yield a file's blocks; raise `FilesMissing` if it is not there as it was listed."""
    try:
        yield from blocks
    except FileNotFoundError as fault:
        raise FilesMissing(
            f"{path} was removed or exchanged while it was read: look again"
        ) from fault


def in_parts(change: RowChange, key: Sequence[int], *, both: bool = False) -> list[RowChange]:
    """Return an update of the key, or without key, as a delete and an insert.

    TiCDC itself writes it so unless told otherwise. Two rows that swap their keys could not be put
    in an order otherwise. Without a key, nothing tells that a delete and an insert of another
    delivery are the same update.

    `both`: any other update with its old row before it, where that is known.
    """
    number, ts, _, values, old = change
    # Updates alone have old values.
    if old is None:
        return [change]
    if key and all(old[place] == values[place] for place in key):
        return [(number, ts, PREIMAGE, old, None), change] if both else [change]
    return [(number, ts, DELETE, old, None), (number, ts, INSERT, values, None)]


def slices(spans: Sequence[FileSpan], low: int, high: int, most: int) -> Iterator[tuple[int, int]]:
    """Yield slices (exclusive, inclusive) of ``(low, high]``, of up to about `most` bytes each."""
    inside = [span for span in spans if span.first <= high and span.last > low]
    if sum(span.within(low, high) for span in inside) <= most or high - low <= 1:
        yield low, high
        return
    # The commit-ts, below `high`, up to which about half of the bytes are.
    half = sum(span.within(low, high) for span in inside) / 2
    begin, end = low, high
    while end - begin > 1:
        middle = (begin + end) // 2
        if sum(span.within(low, middle) for span in inside) < half:
            begin = middle
        else:
            end = middle
    middle = min(end, high - 1)
    yield from slices(inside, low, middle, most)
    yield from slices(inside, middle, high, most)


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
        """Pause and return while there is time to wait; else raise what is missing."""
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

    def __init__(
        self,
        storage: Storage,
        upstream: Upstream,
        clock: Clock,
        rules: Sequence[str] = (),
        only: TableName | None = None,
    ) -> None:
        """Take what `upstream` says was written to `storage`.

        `rules`: of TiCDC's table filter; none for every table. `only`: of the tables that they
        take, one, or those of one database.

        Raises `ConfigError` for rows without commit-ts, which can neither be put in order nor told
        from repeats.
        """
        if not upstream.has_commit_ts:
            raise ConfigError(
                "rows without commit-ts can neither be put in order nor told from repeated deliveries: set include-commit-ts = true under "
                "[sink.csv] in the changefeed, or enable-tidb-extension=true in its sink URI for canal-json, for changes from then on"
            )
        self._storage, self._upstream, self._clock = storage, upstream, clock
        self.protocol = upstream.protocol
        """That of the data files."""
        self.contents = Contents(storage, upstream, clock, Filter(rules, only=only))
        self.reached = (0, 0)
        """The commit-ts up to which `following` has given all rows, and all statements."""

    def events(
        self, low: int, high: int | None = None, wanted: Wanted = lambda _: True
    ) -> Iterator[Event]:
        """Yield what committed after `low` (exclusive) to `high` (inclusive; None: checkpoint).

        The checkpoint is the bucket's.

        The same window gives the same events at any later time, while TiCDC keeps the files; only a
        statement at exactly the checkpoint may still be missing. Raises `ConfigError` for a window
        beyond the checkpoint, `NoMetadata`, `StorageUnavailable`, `FilesMissing`, `NotReplicable`
        and `UndecodableRow`.
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
        """Poll the bucket; return the commit-ts (inclusive) to which a window to `high` is read.

        By default that is the checkpoint.

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
        statements: int | None = None,
        patience: float = 0.0,
        retry_limit: float = 0.0,
    ) -> Iterator[Event | None]:
        """Yield what committed after `low` (exclusive) once complete, and None if nothing is new.

        `wait` is called then, and returns whether to go on. `statements`: the same as `low` for
        statements, where they were given up to another commit-ts; see `reached`. `patience`: seconds to wait for a file
        that is missing. `retry_limit`: seconds to try again while a storage does not answer that
        did so before; a warning of `contents` tells of it. Raises what `events` does, and
        `NotReplicable` for a statement that comes after what followed it was given.
        """
        rows = low
        statements = low if statements is None else statements
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
                self.reached = rows, statements
            yield None
            if not wait():
                return

    def _next(
        self, rows: int, statements: int, missing: Patience, silent: Patience
    ) -> Window | None:
        """Poll the bucket and return what is new; None if nothing is, or it cannot be read."""
        window = None
        try:
            self.contents.look()
            checkpoint = self.contents.checkpoint
            # Only beyond them the bucket surely has all statements at a commit-ts.
            before = checkpoint - 1
            if checkpoint > rows or before > statements:
                borders = statements, max(statements, before)
                try:
                    window = self.contents.window(rows, max(rows, checkpoint), statements=borders)
                    self.ordered(window).refuse_cut()
                    missing.end()
                except FilesMissing as fault:
                    # The file may still come.
                    missing.bear(fault)
                    window = None
        except StorageUnavailable as fault:
            self._bear(fault, silent)
            return None
        silent.end()
        return window

    def _persistently(
        self, window: Window, wanted: Wanted, silent: Patience
    ) -> Iterator[Event | None]:
        """Yield a window's events, each once, and None while the storage is silent; then retry."""
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
        """Return if the storage is to be tried again, with one warning; else raise the fault.

        One that never answered has a wrong address rather than an outage, and one that may be
        another changefeed's is not read on.
        """
        if not self.contents.checkpoint or self.contents.reader.may_be_another:
            raise fault
        is_new = not silent.is_tried
        silent.bear(fault)
        if is_new:
            self.contents.warnings.append(
                f"the storage does not answer, and is tried again for {shown_span(silent.seconds)} (--retry-limit): {fault}"
            )

    def _of(self, window: Window, wanted: Wanted) -> Iterator[Event]:
        ordered = self.ordered(window, wanted)
        yield from ordered.events()
        self.contents.finish(each.file for each in window.files if each.file not in ordered.beyond)


def ordered_in(
    window: Window, storage: Storage, upstream: Upstream, wanted: Wanted = lambda _: True
) -> Ordered:
    """Return what puts the changes of a window in order. `upstream`: how its files are written."""
    terminator = upstream.csv.terminator.encode()
    return Ordered(
        window=window,
        storage=storage,
        decoder=decoder_for(upstream),
        terminator=terminator,
        wanted=wanted,
        is_far=upstream.scheme != "file",
    )
