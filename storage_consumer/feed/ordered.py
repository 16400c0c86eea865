"""Read a window's files, and give their changes in one order: commit-ts, then table, deletes before upserts, then file and row.

Files of one table follow one another in time, so few of them overlap at any commit-ts. A window that is larger than what may be held is
therefore cut into slices by commit-ts: each file is looked through once for the commit-ts that it has, and read in the slices where it
has any.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain, groupby

from storage_consumer.decode.decoder import Decoder, FileRead, Tally
from storage_consumer.errors import FilesMissing, UndecodableRow
from storage_consumer.feed.records import Change, Event
from storage_consumer.feed.window import FeedFile, Window
from storage_consumer.kernels.arrays import DELETE, INSERT, PARTIAL_DELETE, UPDATE
from storage_consumer.model import CommitRange, DataFile
from storage_consumer.order.keys import delivered_once, order_of
from storage_consumer.storage.base import Blocks, whole

_DELETES = frozenset((DELETE, PARTIAL_DELETE))
Ranked = tuple[int, Change]
"""Rank of the file among those of its table, and the change."""


def once(changes: Sequence[Ranked]) -> list[Change]:
    """Return the changes of one table at one commit-ts, deletes before upserts, then by file and row; repeated ones once."""
    ordered = sorted(changes, key=_rank_of)
    if len({rank for rank, _ in ordered}) == 1:
        return [change for _, change in ordered]
    keyed = [each for each in ordered if _key_of(each[1]) is not None]
    others = [each for each in ordered if _key_of(each[1]) is None]
    return [change for _, change in sorted([*_by_key(keyed), *_by_count(others)], key=_rank_of)]


def _rank_of(each: Ranked) -> tuple[bool, int, int]:
    rank, change = each
    return change.operation not in _DELETES, rank, change.row


def _key_of(change: Change) -> Hashable:
    """Return the primary key of the row that is changed; None if the table has none."""
    structure = change.structure
    if not structure.key:
        return None
    return tuple(change.values[place] for place in structure.key)


def _by_key(ordered: Sequence[Ranked]) -> list[Ranked]:
    """Return each key's changes once.

    A transaction leaves one row with a key, and may have removed another one before. After a restart TiCDC may write an update as a delete
    and an insert: where any delivery has the update, the others of that key are repeats of it. (An update to another key is in two parts.)
    """
    found: dict[Hashable, dict[int, Ranked]] = defaultdict(dict)
    for each in ordered:
        found[_key_of(each[1])].setdefault(max(each[1].operation, DELETE), each)
    kept = ({UPDATE: kinds[UPDATE]} if UPDATE in kinds else kinds for kinds in found.values())
    return list(chain.from_iterable(kinds.values() for kinds in kept))


def _by_count(ordered: Sequence[Ranked]) -> list[Ranked]:
    """Return rows without a key as often as one delivery of the transaction has them. (An update whose old row is known is in two parts.)"""
    by_content: dict[Hashable, list[Ranked]] = defaultdict(list)
    orders: list[tuple[int, Hashable]] = []
    for rank, change in ordered:
        names = [column.name for column in change.structure.columns]
        content = change.operation, frozenset(zip(names, change.values, strict=True))
        by_content[content].append((rank, change))
        orders.append((order_of(rank, change.row, upsert=change.operation not in _DELETES), content))
    return [by_content[content].pop(0) for _, content in delivered_once(orders)]


HELD_BYTES = 64 << 20
"""Bytes of files whose changes are held at once. In memory they take several times as much."""
_BLOCK = 1 << 20
_Taken = tuple[int, int, Change]
"""Number of its table in the order of tables, rank of its file, and the change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
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
        """Return about how many of its bytes belong to a slice, as if its rows were spread evenly."""
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
    """Files that turned out to hold rows beyond the window, or whose last row is still being written."""
    torn: set[DataFile] = field(default_factory=set)
    """Those whose last row is still being written."""

    def events(self) -> Iterator[Event]:
        """Yield all of them in order. Raises `UndecodableRow`, which names file and row, and what the storage raises."""
        statements = list(self.window.statements)
        for low, high, spans in self.parts():
            found = self._changes(spans, low, high)
            found.sort(key=lambda each: (each[2].commit_ts, each[0]))
            for (ts, _), group in groupby(found, key=lambda each: (each[2].commit_ts, each[0])):
                # Rows at the commit-ts of a statement come before it.
                while statements and statements[0].commit_ts < ts:
                    yield statements.pop(0)
                yield from once([(rank, change) for _, rank, change in group])
            while statements and statements[0].commit_ts <= high:
                yield statements.pop(0)
        yield from statements

    def parts(self) -> Iterator[tuple[int, int, list[Span]]]:
        """Yield the window in slices: their borders (exclusive, inclusive), and the files that have rows there."""
        everything = [
            Span(rank=rank, work=work, first=self.window.low + 1, last=self.window.high)
            for rank, work in enumerate(sorted(self.window.files, key=_written))
        ]
        if sum(span.size for span in everything) > self.held_bytes:
            everything = [span for each in everything if (span := self._looked_through(each)) is not None]
        for low, high in slices(everything, self.window.low, self.window.high, self.held_bytes):
            yield low, high, [span for span in everything if span.first <= high and span.last > low]

    def _looked_through(self, span: Span) -> Span | None:
        """Return the file with the span of its rows, as far as they belong to the window; None if it has none of them."""
        tally = self.tally(span.work, span.work.floor)
        if not tally.next_ts or tally.next_ts > self.window.high:
            return None
        return Span(rank=span.rank, work=span.work, first=tally.next_ts, last=min(tally.max_ts, self.window.high))

    def tally(self, work: FeedFile, border: int) -> Tally:
        """Return the counts of a file's rows at or below a commit-ts, and beyond."""
        tally = Tally()
        with self.whole_rows(work, tally):
            for _ in self.decoder.changes(self.read(work, CommitRange(low=border, high=border), tally)):
                pass
        return tally

    def _changes(self, spans: Sequence[Span], low: int, high: int) -> list[_Taken]:
        """Return the changes of a slice, in any order."""
        names = {span.work.structure.table.folded() for span in spans}
        tables = {name: place for place, name in enumerate(sorted(names))}
        found: list[_Taken] = []
        for span in spans:
            table, rank = tables[span.work.structure.table.folded()], span.rank
            changes = self.changes_of(span.work, span.work.between(low, high))
            found += [(table, rank, each) for each in changes if self.wanted(each)]
        return found

    def changes_of(self, work: FeedFile, commit_range: CommitRange) -> Iterator[Change]:
        """Yield the changes of a file, as it has them; an update is a delete and an insert where it moves its row to another key, or the table has none."""
        tally = Tally()
        with self.whole_rows(work, tally):
            for row, ts, operation, values, old in self.decoder.rows(self.read(work, commit_range, tally)):
                change = Change(ts, operation, values, old, work.structure, work.file.stored.path, row)
                for each in _in_parts(change):
                    yield each.without_absent() if work.structure.layout.may_lack else each

    @contextmanager
    def whole_rows(self, work: FeedFile, tally: Tally) -> Iterator[None]:
        """Pass over a last row that is still being written, beyond the window.

        Raises `FilesMissing` for one that may belong to the window: TiCDC stores what `metadata` covers whole, so the file was cut.
        """
        try:
            yield
        except UndecodableRow as fault:
            # A whole row that cannot be read is another fault, wherever it stands.
            if not (fault.at_end and work.newest and self._is_cut(work.file)):
                raise
            # The rows of a file are about in the order of their commit-ts, so one that cannot be read is not below those before it.
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
        """Raise `FilesMissing` if a file of the window was cut, before any of its changes is given."""
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
        blocks = self.storage.blocks(stored.path, _BLOCK, tag=stored.tag if work.exact else "")
        return FileRead(
            blocks=_there(whole(blocks, stored), stored.path),
            source=stored.path,
            layout=work.structure.layout,
            commit_range=commit_range,
            key=work.structure.key,
            tally=tally,
        )


def _there(blocks: Iterator[bytes], path: str) -> Iterator[bytes]:
    """Yield a file's blocks; raise `FilesMissing` if it is not there, or no longer as it was listed."""
    try:
        yield from blocks
    except FileNotFoundError as fault:
        raise FilesMissing(f"{path} was removed or exchanged while it was read: look again") from fault


def _in_parts(change: Change) -> tuple[Change, ...]:
    """Return an update that moves its row to another key, or one of a row without a key, as a delete and an insert.

    TiCDC itself writes it so unless told otherwise. Two rows that swap their keys could not be put in an order otherwise. Without a key,
    nothing tells that a delete and an insert of another delivery are the same update.
    """
    old, key = change.old, change.structure.key
    if old is None or (key and all(old[place] == change.values[place] for place in key)):
        return (change,)
    return change._replace(operation=DELETE, values=old, old=None), change._replace(operation=INSERT, old=None)


def _written(work: FeedFile) -> tuple[object, ...]:
    return work.file.version, work.file.table_dir, work.file.order


def slices(spans: Sequence[Span], low: int, high: int, most: int) -> Iterator[tuple[int, int]]:
    """Yield borders (exclusive, inclusive) of slices that cover ``(low, high]`` and of which each holds about `most` bytes or fewer."""
    inside = [span for span in spans if span.first <= high and span.last > low]
    if sum(span.within(low, high) for span in inside) <= most or high - low <= 1:
        yield low, high
        return
    middle = _middle(inside, low, high)
    yield from slices(inside, low, middle, most)
    yield from slices(inside, middle, high, most)


def _middle(spans: Sequence[Span], low: int, high: int) -> int:
    """Return the commit-ts, below `high`, up to which about half of a slice's bytes are."""
    half = sum(span.within(low, high) for span in spans) / 2
    begin, end = low, high
    while end - begin > 1:
        middle = (begin + end) // 2
        if sum(span.within(low, middle) for span in spans) < half:
            begin = middle
        else:
            end = middle
    return min(end, high - 1)
