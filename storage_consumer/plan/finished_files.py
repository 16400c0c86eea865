"""What is kept of finished files, to notice rewritten ones even while no program ran.

TiCDC rewrites data files under their old names. Which ones, by its source:

* Classic (tiflow, ``pkg/sink/cloudstorage/path.go``, ``generateDataFileName`` and
  ``getNextFileIdxFromIndexFile``): a sink counts in memory, per table, physical table id and
  version, and looks at no file before it writes. It begins with the number in the directory's index
  file, or after it if that file is there and not empty; at 1 if there is no index. A failure to
  write the index is only logged (``dml_worker.go``, ``flushMessages``), so the index may be behind
  by any number of files: all of them are rewritten, one after another, as rows come. Where the date
  changes it begins at 1 without a look at that directory. So it begins again at 1 if a clock goes
  back or a table comes back to a node.
* Classic, one directory for several counters: the partitions of a table with
  ``enable-partition-separator = false``, and two versions of one table whose structure is the same.
  Each counts for itself, and a slow one may rewrite number 1 at any time.
* The first releases of the older layout (tiflow v6.5.0,
  ``cdc/sinkv2/eventsink/cloudstorage/dml_worker.go``) have no index file: after a crash numbers
  begin at 1 again in the directory of the same version.
* The new architecture (ticdc, ``pkg/cloudstorage/generator.go``, ``GenerateDataFilePath``) takes
  the next name that does not exist. Only two writers of one directory that look at the same time
  overwrite one another.
* After ``file-index-digit`` was changed the numbers continue under other names: these are other
  files.

So no number in a directory is safe as long as TiCDC writes to the directory at all;
`bucket.known_files` says how long that is. A rewritten file holds rows above the checkpoint from
which TiCDC continued, and repeats. Hence a digest is kept of every finished file in the directories
that may still grow, and of none in the others.

The digest covers the size and the tag with which the file was listed when it was read, not those of
any later listing. Tags are the store's own: ETag on S3 and Azure, generation on GCS, time and size
on a file system. They are the same for every process on every machine. A copy of the bucket has
others, and is read again once the state is bound to it (see `operating.same_files`).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from hashlib import blake2b
from typing import NamedTuple

from storage_consumer.model import DataFile, StoredObject

CHUNK = 64
"""Consecutive numbers stored together: digests written for one file, and files per row."""
EVERYTHING = (1 << 64) - 1
"""As `Finished.left_out`: TiCDC writes no more to the directory."""
WIDTH = 8
"""Bytes of a digest."""
_SIZE_BYTES = 3
"""Bytes of it that stand for the size."""
_ABSENT, REWRITTEN, _PASSED = 0, 1, 4
"""In place of a digest: none is known; the file was rewritten since and has to be read again;
such a file is not waited for any more, and whatever comes under its number is read."""
_MARK = REWRITTEN.to_bytes(WIDTH, "little")


def digest_of(stored: StoredObject) -> int:
    """Return size and tag as a stable 64-bit digest, never 0 or 1; the low bits: the size."""
    # Not hash(): it differs between processes, and digests are stored.
    tag = int.from_bytes(
        blake2b(
            stored.tag.encode("utf-8", "surrogatepass"), digest_size=WIDTH - _SIZE_BYTES
        ).digest(),
        "little",
    )
    return tag << 8 * _SIZE_BYTES | _size_part(stored.size)


def is_mark(digest: int) -> bool:
    """Return whether what stands in a digest's place is none, so that it records no size."""
    return digest in (_ABSENT, REWRITTEN, _PASSED)


def has_size(digest: int, size: int) -> bool:
    """Return whether a digest belongs to a file of this size, whatever its tag."""
    return digest & ((1 << 8 * _SIZE_BYTES) - 1) == _size_part(size)


def _size_part(size: int) -> int:
    # Bit 1 is always set, so that no digest is `_ABSENT`, `REWRITTEN` or `_PASSED`.
    return int.from_bytes(blake2b(b"%d" % size, digest_size=_SIZE_BYTES).digest(), "little") | 2


class Rest(NamedTuple):
    """Rows of a file: the lowest and the highest commit-ts of them, and how many."""

    first: int
    last: int
    rows: int


class FileVerdict(Enum):
    """What a listed file is to an earlier run."""

    NEW = "new"
    """It was not finished."""
    UNCHANGED = "unchanged"
    """It was finished, and is unchanged."""
    REWRITTEN = "rewritten"
    """It was finished, and has changed."""
    UNSURE = "unsure"
    """It was finished, and nothing shows whether it has changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """How far one sequence is finished."""

    upto: int = 0
    """Highest number (inclusive) up to which all are finished, or were before a rewrite."""
    left_out: int = 0
    """Number (inclusive) up to which listings may skip, so that rewrites could go unseen."""
    digests: Mapping[int, bytes] = field(default_factory=dict)
    """Chunk → digests of its files. In what is to be stored: only the chunks that changed."""
    replaces: bool = False
    """In what is to be stored: whether all other digests of the sequence are to be deleted."""

    def digest(self, number: int) -> int:
        """Return the digest that is kept of a file, `REWRITTEN`, or 0."""
        return _in(self.digests, number)

    def judge(self, number: int, digest: int) -> FileVerdict:
        """Return what the file with this number is, given its present digest."""
        known = self.digest(number)
        # The marks `REWRITTEN` and `_PASSED` are no file's digest, so they end here too.
        if known not in (_ABSENT, digest):
            return FileVerdict.REWRITTEN
        if known:
            return FileVerdict.UNCHANGED
        if number > self.upto:
            return FileVerdict.NEW
        # No digest is kept where TiCDC had left the directory for good; anywhere else nothing shows
        # whether the file has changed.
        return FileVerdict.UNCHANGED if self.left_out == EVERYTHING else FileVerdict.UNSURE

    def was_unseen(self, number: int) -> bool:
        """Return whether a finished file may have changed while rows beyond it were applied."""
        return number <= self.left_out and self.digest(number) != REWRITTEN


class Digests:
    """Digests of one sequence's files, by number, in chunks that are stored one by one."""

    __slots__ = ("_chunks", "_moved", "_replaces")

    def __init__(self, chunks: Mapping[int, bytes]) -> None:
        """Begin with the stored chunks."""
        self._chunks = dict(chunks)
        self._moved: set[int] = set()
        self._replaces = False

    def __getitem__(self, number: int) -> int:
        """Return the digest of a file, `REWRITTEN`, or 0."""
        return _in(self._chunks, number)

    def __setitem__(self, number: int, digest: int) -> None:
        """Record the digest of a file."""
        chunk, place = divmod(number, CHUNK)
        # A chunk grows as needed; a place that was never set is zero, which is `_ABSENT`.
        content = self._chunks.get(chunk, b"").ljust((place + 1) * WIDTH, b"\0")
        start = place * WIDTH
        self._chunks[chunk] = (
            content[:start] + digest.to_bytes(WIDTH, "little") + content[start + WIDTH :]
        )
        self._moved.add(chunk)

    def finished_beyond(self, number: int) -> Iterator[int]:
        """Yield the numbers above this one with the digest of a finished file, in order."""
        for chunk in sorted(chunk for chunk in self._chunks if chunk >= number // CHUNK):
            # A chunk is only as long as the highest number in it needs.
            for place in range(len(self._chunks[chunk]) // WIDTH):
                found = chunk * CHUNK + place
                if found > number and self[found] not in (_ABSENT, REWRITTEN):
                    yield found

    def rewritten(self) -> Iterator[int]:
        """Yield the numbers of the files to read again."""
        for chunk, content in self._chunks.items():
            # Hardly any chunk has one, and this is asked of all files of a sequence.
            if _MARK in content:
                places = range(len(content) // WIDTH)
                yield from (n for place in places if self[n := chunk * CHUNK + place] == REWRITTEN)

    def pass_over(self, number: int) -> None:
        """Wait no more for a file to read again; another digest stays as it is."""
        if self[number] == REWRITTEN:
            self[number] = _PASSED

    def forget(self, read: int = 0, but: Collection[int] = ()) -> None:
        """Drop digests but of numbers `but` and marks to read again; `read` needs no mark now."""
        kept = {
            number: self[number]
            for chunk, content in self._chunks.items()
            for number in range(chunk * CHUNK, chunk * CHUNK + len(content) // WIDTH)
            if (self[number] == REWRITTEN and number != read) or number in but
        }
        # The chunks that are stored have to go as well.
        self._replaces = self._replaces or bool(self._chunks)
        self._chunks, self._moved = {}, set()
        for number, digest in kept.items():
            self[number] = digest

    def moved(self) -> tuple[Mapping[int, bytes], bool]:
        """Return chunks changed since the last call, and whether they replace all others."""
        moved, replaces = {chunk: self._chunks[chunk] for chunk in self._moved}, self._replaces
        self._moved, self._replaces = set(), False
        return moved, replaces


def _in(chunks: Mapping[int, bytes], number: int) -> int:
    chunk, place = divmod(number, CHUNK)
    content = chunks.get(chunk)
    return (
        int.from_bytes(content[place * WIDTH : (place + 1) * WIDTH], "little")
        if content
        else _ABSENT
    )


class FileSequence:
    """One numbered sequence of files: all of one directory, dispatcher and index width.

    Numbers start at 1 and grow by 1. Finished files are one number and, rarely, a few runs beyond a
    file that is still pending. A digest of each finished file lets a later run see whether it is
    still the same.
    """

    def __init__(
        self, finished: Finished | None = None, moved: Callable[[], None] = lambda: None
    ) -> None:
        """Begin with what an earlier run finished; call `moved` if there is more to store."""
        finished = finished or Finished()
        self.done_upto = finished.upto
        self.left_out = finished.left_out
        self.pending: dict[str, DataFile] = {}
        self.rewritten = False
        """Whether a finished file turned out to be rewritten and this is not stored yet."""
        self.let_go_of = False
        """Whether a file that was missed is missed no more and this is not stored yet."""
        self.same_size: set[int] = set()
        """Numbers of pending files that were finished before with the size they still have."""
        self._digests = Digests(finished.digests)
        self._moved = moved
        self._done: list[_GaplessRun] = []
        # A file to be read again is lost until it is listed.
        self._lost = set(self._digests.rewritten())
        self.rest: dict[str, Rest] = {}
        """Path → what is not applied, of files applied up to some commit-ts only."""
        # What was finished out of turn is not stored otherwise: its digests alone show it.
        for number in self._digests.finished_beyond(self.done_upto):
            _put_in(self._done, number, number)

    def offer(self, file: DataFile) -> bool:
        """Take a listed file; return False if it was finished in its present state.

        A file that was finished has changed its content or came late under an old number, so it is
        read again; rows that were already applied are recognized by their commit-ts.
        """
        if file.finished:
            # Without a digest it is recorded as it is listed now.
            if self.left_out != EVERYTHING and not self._digests[file.number]:
                self._digests[file.number] = digest_of(file.stored)
                self._moved()
            return False
        self._lost.discard(file.number)
        self._compare_size(file)
        self.pending[file.stored.path] = file
        # What was put off was about the former content.
        self.rest.pop(file.stored.path, None)
        if file.number <= self.done_upto or self._digests[file.number]:
            self._digests[file.number] = REWRITTEN  # so that a restart reads it again too
            self.rewritten = True
            self._moved()
        # At or below `done_upto` nothing is taken out: there the mark alone says that the file is
        # to be read again.
        if file.number > self.done_upto:
            _take_out(self._done, file.number)
        return True

    def _compare_size(self, file: DataFile) -> None:
        """Note whether a file about to be pending has the size with which it was finished."""
        known, before = self._digests[file.number], self.pending.get(file.stored.path)
        same = not is_mark(known) and has_size(known, file.stored.size)
        # The digest gave way to the mark when the file first changed; from then on the pending file
        # stands for its size.
        if before is not None and file.number in self.same_size:
            same = before.stored.size == file.stored.size
        (self.same_size.add if same else self.same_size.discard)(file.number)

    def readable(self, high: int) -> Iterator[DataFile]:
        """Yield pending files that may hold rows with commit-ts <= `high` (inclusive)."""
        for path, file in self.pending.items():
            if path not in self.rest or self.rest[path].first <= high:
                yield file

    def finish(self, file: DataFile) -> None:
        """Note that all rows of the file are applied."""
        current = self.pending.get(file.stored.path)
        if current is None or current.stored != file.stored:
            return  # it changed while it was read: the new content is read next
        del self.pending[file.stored.path]
        self.rest.pop(file.stored.path, None)
        self.same_size.discard(file.number)
        if self.left_out != EVERYTHING:
            self._digests[file.number] = digest_of(file.stored)
        # TiCDC writes no more here: only the mark of a file to read again is left to drop.
        elif self._digests[file.number]:
            self._digests.forget(file.number)
        if file.number > self.done_upto:
            _put_in(self._done, file.number, file.number)
        # A run that begins right after `done_upto` joins it.
        if self._done and self._done[0].first == self.done_upto + 1:
            self.done_upto = self._done.pop(0).last
        self._moved()

    def leave_out(self, upto: int) -> None:
        """Note that listings skip files up to this number (inclusive).

        `EVERYTHING`: TiCDC writes no more, and no digest is kept.
        """
        if upto == self.left_out:
            return
        self.left_out = upto
        # What can no longer change needs no digest; the marks of files to read again stay.
        if upto == EVERYTHING:
            self._digests.forget()
        self._moved()

    def defer(self, file: DataFile, rest: Rest) -> None:
        """Note what of a file is not applied."""
        self.rest[file.stored.path] = rest

    def forget(self, file: DataFile) -> bool:
        """Note that the file is no longer stored; return whether it is missed, being unfinished."""
        lost = self.pending.pop(file.stored.path, None) is not None
        if lost:
            self._lost.add(file.number)
            self.same_size.discard(file.number)
        return lost

    def let_go(self, upto: int) -> None:
        """Miss no file that is no longer stored, up to a number (inclusive)."""
        for number in [number for number in self._lost if number <= upto]:
            self._lost.discard(number)
            self._digests.pass_over(number)
            self.let_go_of = True
            self._moved()

    def pass_over(self, upto: int) -> None:
        """Count files never listed up to a number (inclusive) as finished: none is expected."""
        listed = sorted(span for span in self.known if span[0] <= upto)
        first = self.done_upto + 1
        # The holes before, between and after what is listed, up to `upto`.
        for begin, end in [*listed, (upto + 1, upto + 1)]:
            if first < begin:
                _put_in(self._done, first, begin - 1)
                self._moved()
            first = max(first, end + 1)
        if self._done and self._done[0].first == self.done_upto + 1:
            self.done_upto = self._done.pop(0).last

    @property
    def is_open(self) -> bool:
        """Whether anything is pending, finished out of turn, or lost."""
        return bool(self.pending or self._done or self._lost)

    @property
    def known(self) -> list[tuple[int, int]]:
        """First and last numbers of what is finished or listed above `done_upto`, in no order."""
        return [(run.first, run.last) for run in self._done] + [
            (f.number, f.number) for f in self.pending.values()
        ]

    def has(self, number: int) -> bool:
        """Return whether the file of a number is listed, or finished and not written anew since."""
        is_done = number <= self.done_upto or any(
            run.first <= number <= run.last for run in self._done
        )
        is_done = is_done and self._digests[number] != REWRITTEN
        return is_done or any(file.number == number for file in self.pending.values())

    @property
    def highest(self) -> int:
        """The highest finished number; 0 for none."""
        return self._done[-1].last if self._done else self.done_upto

    @property
    def lost(self) -> frozenset[int]:
        """Numbers that were listed, are no longer stored, and were not finished."""
        return frozenset(self._lost)

    def to_store(self) -> Finished:
        """Return how far it is finished, with the digests that changed since the last call."""
        self.rewritten = self.let_go_of = False
        digests, replaces = self._digests.moved()
        return Finished(
            upto=self.done_upto, left_out=self.left_out, digests=digests, replaces=replaces
        )


class FileSequences:
    """A bucket's sequences by name (`DataFile.sequence`), created with what was finished."""

    def __init__(self, finished: Mapping[str, Finished] | None = None) -> None:
        """Begin with sequence → how far an earlier run finished it."""
        self._finished = finished or {}
        self._sequences: dict[str, FileSequence] = {}
        self._discarded: set[str] = set()
        self._of_numbering: dict[str, list[str]] | None = None
        self._moved: dict[str, FileSequence] = {}

    def __getitem__(self, name: str) -> FileSequence:
        """Return the sequence with this name."""
        if name not in self._sequences:
            # The function is called only later, when `sequence` has its value.
            sequence = FileSequence(
                self._finished.get(name), lambda: self._moved.update({name: sequence})
            )
            self._sequences[name] = sequence
        return self._sequences[name]

    def numbering(self, name: str) -> list[FileSequence]:
        """Return the finished sequences of the directory and dispatcher, of any index width.

        Their numbers continue in one another.
        """
        if self._of_numbering is None:
            self._of_numbering = {}
            for each in self._finished:
                self._of_numbering.setdefault(numbering_of(each), []).append(each)
        return [self[each] for each in self._of_numbering.get(numbering_of(name), ())]

    def rest(self, file: DataFile) -> Rest | None:
        """Return what of a file is not applied; None for all of one that was not read."""
        sequence = self._sequences.get(file.sequence)
        return sequence.rest.get(file.stored.path) if sequence is not None else None

    def discard(self, name: str) -> None:
        """Note that files of a sequence are there which nobody reads."""
        self._discarded.add(name)

    def missed(self, name: str, number: int) -> int:
        """Return the highest number that is missed, 0 for none.

        Missed is what is lost, and `number` unless it is listed, or finished as it is.
        """
        if name in self._discarded:
            return 0
        sequence = self[name]
        return max((0 if sequence.has(number) else number, *sequence.lost))

    def leave_out(self, upto: Mapping[str, int]) -> None:
        """Apply sequence → number (inclusive) up to which listings skip; ignore untaken ones."""
        for name, number in upto.items():
            if name in self._sequences:
                self._sequences[name].leave_out(number)

    def rewound(self) -> dict[str, Finished]:
        """Return all that changed if there is anything to store before a file is read.

        That is a finished file that was rewritten, or one that was let go of, since the last call.
        """
        moved = self._moved.values()
        return self.to_store() if any(each.rewritten or each.let_go_of for each in moved) else {}

    def to_store(self) -> dict[str, Finished]:
        """Return what changed since the last call, in the form to store."""
        moved, self._moved = self._moved, {}
        return {name: sequence.to_store() for name, sequence in moved.items()}


class LateFiles:
    """Files that a listing shows only after later ones of their numbering.

    Their table may have passed rows of them while nothing showed that a file was missing, and these
    count as repeats. What TiCDC does repeat is not above all that the table's files had shown; so
    it is told apart where listings are only out of order, before the table halts at the gap.

    It lasts as long as the lease, since an operator's decision has all else read anew.
    """

    def __init__(self) -> None:
        """Begin without a listing: nothing that the first one shows is late."""
        self._missing: dict[str, Sequence[tuple[int, int]]] = {}
        # Path of an unread file → what the files of its table had shown before.
        self._late: dict[str, int] = {}
        self._began: dict[str, int] = {}
        self._shown: dict[tuple[str, int | None], int] = {}

    def begin(self, table_key: str, checkpoint: int) -> None:
        """Note how far a table is when it is first known."""
        self._began.setdefault(table_key, checkpoint)

    def look_at(self, table_key: str, file: DataFile) -> None:
        """Note a listed file, before `miss` is told that it is there."""
        spans = self._missing.get(numbering_of(file.sequence), ())
        place = bisect_right(spans, file.number, key=lambda span: span[0])
        if place and file.number <= spans[place - 1][1]:
            shown = self._shown.get((table_key, file.partition), 0)
            self._late[file.stored.path] = max(shown, self._began[table_key])

    def miss(self, sequence: str, spans: Sequence[tuple[int, int]]) -> None:
        """Note the missing numbers, first and last, of the numbering that a sequence belongs to."""
        self._missing[numbering_of(sequence)] = spans
        if not spans:
            del self._missing[numbering_of(sequence)]

    def give_up(self, table_key: str) -> None:
        """Note that a table's missing file is overdue: it was not only listed out of order."""
        self._began[table_key] = 0
        self._shown = {place: ts for place, ts in self._shown.items() if place[0] != table_key}

    def read(self, table_key: str, file: DataFile, max_ts: int) -> int:
        """Note that a file was read up to `max_ts`.

        Return the commit-ts above which its repeated rows were passed unseen; no row is above that
        of a file that was not late.
        """
        place = table_key, file.partition
        self._shown[place] = max(max_ts, self._shown.get(place, 0))
        return self._late.pop(file.stored.path, EVERYTHING)


def numbering_of(sequence: str) -> str:
    """Return directory and dispatcher of a sequence, see `DataFile.sequence`."""
    return sequence.rpartition("|")[0]


def holes(reached: int, spans: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield first and last of the numbers in no span, from after `reached` on."""
    for first, last in sorted(spans):
        if first > reached + 1:
            yield reached + 1, first - 1
        reached = max(reached, last)


@dataclass(slots=True)
class _GaplessRun:
    """A gapless run of finished files: first and last number, both inclusive."""

    first: int
    last: int


def _put_in(runs: list[_GaplessRun], first: int, last: int) -> None:
    """Add numbers that are in none of the runs; runs stay in order, and no two are adjacent."""
    place = bisect_left(runs, first, key=lambda run: run.first)
    if place and runs[place - 1].last == first - 1:
        place -= 1
        runs[place].last = last
    else:
        runs.insert(place, _GaplessRun(first, last))
    if place + 1 < len(runs) and runs[place + 1].first == last + 1:
        runs[place].last = runs.pop(place + 1).last


def _take_out(runs: list[_GaplessRun], number: int) -> None:
    """Remove a number if it is in a run, which may split the run."""
    place = bisect_right(runs, number, key=lambda run: run.first) - 1
    if place < 0 or runs[place].last < number:
        return
    run = runs.pop(place)
    if run.last > number:
        runs.insert(place, _GaplessRun(number + 1, run.last))
    if run.first < number:
        runs.insert(place, _GaplessRun(run.first, number - 1))
