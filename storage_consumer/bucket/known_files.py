"""Files that listings have shown, as numbers by table and directory; and which may be skipped.

Leaving out a directory that still grows would lose rows: metadata's checkpoint would pass them
unseen. So a directory is closed only where TiCDC's own rules forbid another file:

* TiCDC puts rows into the directory of the newest schema file with the table's present checksum. A
  version is finished once a newer one has the same checksum and metadata's checkpoint has reached
  that newer version, read before the listing began: then all rows before it were stored, and so
  were listed. An older version with a checksum of its own stays open: a DDL that the changefeed
  filters out may bring its structure, and so its directory, back. The new architecture writes the
  schema file of one step of a rename cycle under the last name of its table: it is not a version of
  the table that has that name meanwhile.
* In the older layout (``schema.json``) each start of a changefeed opens a version, and one that is
  started from an earlier point opens a lower one: so a higher version finishes none. But all of
  them are finished once TiCDC was upgraded and the checkpoint has reached a version of the present
  layout.
* Date directories follow the clock of the writing node. All but the newest two of a version and
  partition are finished, if their date is well before the checkpoint's: TiCDC never flushes a row
  before it commits, so a directory of that day or later may grow whatever dates a wrong clock has
  left beside it. Directories of another date-separator are counted apart: 2024-12 may grow after
  2024-12-31. A year that may be a partition is read as one (see `paths`), and no partition is ever
  finished.
* A directory with a missing number stays open.

In a directory that stays open, files up to a *mark* may be left out where TiCDC only continues its
numbering. The older layout begins again at 1 where a changefeed is restarted before or at the
directory's version: there is no mark until the checkpoint has passed that version. And where a
changefeed has no partition directories, each partition of a table counts for itself, and a slow one
may rewrite a low number long after a quick one did: a directory without a partition has no mark if
that setting was given or once any file of the table has been rewritten.
"""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from storage_consumer.bucket.paths import (
    COPY,
    DataDirectory,
    DataName,
    Ignored,
    SchemaPath,
    folder_above,
    format_data_name,
    is_of_file_system,
    left_out,
    parse_data_name,
    place_directory,
    sequence_of,
    with_all_above,
)
from storage_consumer.config.settings import DateSeparator
from storage_consumer.model import SchemaFile, physical_ms, sequence_name
from storage_consumer.plan.finished_files import EVERYTHING

_LEAST_WIDTH = 6
_FULL_WIDTH = 20
"""TiCDC's largest ``file-index-digit``, and its default."""
_MAX_HOLE = 4096
"""A number this far beyond the highest is kept apart: an odd name must not take memory."""
_RELISTED = 8
"""Newest files to list each time: a restarted TiCDC may rewrite one under its old name."""


class ListedSequence:
    """One numbered sequence of files: number → 8-byte tag; tag 0 means no such file."""

    __slots__ = ("_apart", "_generation", "_run", "_seen", "_tags", "count", "highest")

    def __init__(self) -> None:
        """Start without files."""
        # Index 0 belongs to no file: numbers begin at 1.
        self._tags = array("Q", [0])
        self._apart: dict[int, tuple[int, int]] = {}
        # One mark for each tag, from the first file that a new generation shows to the next sweep;
        # otherwise empty.
        self._seen = bytearray()
        self._generation = 0
        self._run = 0
        self.count = 0
        self.highest = 0

    @property
    def complete(self) -> bool:
        """Whether no number from 1 to the highest one is missing."""
        return self.run() == self.highest

    def put(self, number: int, tag: int, generation: int) -> int:
        """Note a file with `tag` in full listing `generation` or later; return its old tag or 0."""
        # The marks of what a full listing shows are kept for that listing only.
        if generation != self._generation:
            self._generation, self._seen = generation, bytearray(len(self._tags))
        # What was once kept apart stays there, however far the array grows since.
        if number in self._apart or number >= len(self._tags) + _MAX_HOLE:
            before, _ = self._apart.get(number, (0, 0))
            self._apart[number] = (tag, self._generation)
        else:
            missing = number + 1 - len(self._tags)
            if missing > 0:
                self._tags.extend([0] * missing)
                if self._seen:
                    self._seen.extend(bytes(missing))
            before, self._tags[number] = self._tags[number], tag
            if self._seen:
                self._seen[number] = 1
        if not before:
            self.count += 1
            self.highest = max(self.highest, number)
        return before

    def sweep(self, generation: int) -> list[int]:
        """Forget files that the full listing `generation` lacked; return their numbers."""
        # Without a file in this listing, the marks are still those of an older one.
        everything = generation != self._generation
        gone = [
            number
            for number, tag in enumerate(self._tags)
            if tag and (everything or not self._seen[number])
        ]
        gone += [number for number, (_, shown) in self._apart.items() if shown != generation]
        for number in gone:
            if self._apart.pop(number, None) is None:
                self._tags[number] = 0
                self._run = min(self._run, number - 1)
        self.count -= len(gone)
        if self.highest in gone:
            self.highest = max(self.numbers(), default=0)
        self._generation, self._seen = generation, bytearray()
        return gone

    def numbers(self) -> Iterator[int]:
        """Yield all numbers for which there is a file."""
        yield from (number for number, tag in enumerate(self._tags) if tag)
        yield from self._apart

    def run(self) -> int:
        """Return the highest number up to which none, from 1 on, is missing."""
        # Resumes where the last call stopped: together they pass each number once.
        tags = self._tags
        # A number that is kept apart never joins the run, not even when all numbers before it have
        # come: its directory just stays open.
        while self._run + 1 < len(tags) and tags[self._run + 1]:
            self._run += 1
        return self._run


class Directory:
    """The data files of one directory, all with one extension."""

    __slots__ = ("placed", "sequences")

    def __init__(self, placed: DataDirectory) -> None:
        """Start without files."""
        self.placed = placed
        self.sequences: dict[tuple[str, int], ListedSequence] = {}

    @property
    def complete(self) -> bool:
        """Whether no number is missing in any of its sequences."""
        return all(sequence.complete for sequence in self.sequences.values())

    def sequence(self, dispatcher: str, width: int) -> ListedSequence:
        """Return the sequence of a dispatcher (or of none) and an index width."""
        key = (dispatcher, width)
        if key not in self.sequences:
            self.sequences[key] = ListedSequence()
        return self.sequences[key]

    def width(self, name: DataName) -> int:
        """Return the width of the sequence that `name` continues.

        A number with more digits than TiCDC pads to, such as 1000000 after 999999, does not show
        its sequence's width. It belongs to the widest sequence there that has grown to that many
        digits, else to the one of the smallest width.
        """
        digits = len(str(name.number))
        if name.width != _LEAST_WIDTH or digits <= _LEAST_WIDTH:
            return name.width
        # A sequence of more digits would have written this number with a zero in front.
        wider = (
            width
            for dispatcher, width in self.sequences
            if dispatcher == name.dispatcher and width <= digits
        )
        return max(wider, default=name.width)

    def marks(self, extension: str, *, fixed_width: bool) -> Iterator[str]:
        """Yield the name per sequence up to which (inclusive) the next listing may skip files.

        There is one only where no file that TiCDC may still write can sort at or below it. So it
        never lies beyond a missing number, nor where numbers have lost their leading zero. Nor does
        it exist where numbers are padded to fewer digits than the maximum (after a change of
        ``file-index-digit`` a wider number sorts lower), unless TiCDC had a `fixed_width` then.
        """
        width = _LEAST_WIDTH if fixed_width else _FULL_WIDTH
        widths = Counter(dispatcher for dispatcher, _ in self.sequences)
        for (dispatcher, known), sequence in self.sequences.items():
            # Beyond the second bound numbers have no leading zero.
            number = min(sequence.run() - _RELISTED, 10 ** (width - 1) - 1)
            # A mark is compared with every name of its directory and dispatcher, so all of these
            # have to have one width.
            if known == width and widths[dispatcher] == 1 and number > 0:
                yield format_data_name(
                    DataName(dispatcher=dispatcher, number=number, width=width, extension=extension)
                )

    def sweep(self, generation: int) -> Iterator[tuple[str, int, int]]:
        """Forget files that full listing `generation` lacked; yield dispatcher, number, width."""
        for (dispatcher, width), sequence in list(self.sequences.items()):
            yield from ((dispatcher, number, width) for number in sequence.sweep(generation))
            if not sequence.count:
                del self.sequences[dispatcher, width]


OPEN_DATES = 2
"""Newest date directories that may grow: a node's clock or zone may be a day late."""
_SLACK = timedelta(days=2)
"""How far a directory's date may precede its rows' UTC date: time zones span over a day."""

Versions = Mapping[int, AbstractSet[int | None]]
"""Version → checksums in its schema files' names; None for an older ``schema.json``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Closing:
    """What the next listing may leave out of one table."""

    closed: frozenset[str]
    """Directories, with everything below them."""
    after: dict[str, str]
    """Sequence of files → the file name up to which (inclusive) they may be left out."""
    waiting: bool
    """Whether more can be left out once metadata's checkpoint has risen."""


def closing(
    table_dir: str,
    versions: Versions,
    directories: Mapping[str, Directory],
    *,
    checkpoint: int,
    extension: str,
    shared: bool = False,
) -> Closing:
    """Judge one table by the `versions` and the data `directories` that were found of it.

    `shared`: several partitions may count for themselves in a directory without a partition.
    """
    done = _superseded(versions, checkpoint)
    # Versions that only the older layout wrote; one that was upgraded has a checksum as well.
    old = {version for version, checksums in versions.items() if checksums == {None}}
    floor = oldest_open_date(checkpoint)
    folders_of: dict[int, list[str]] = defaultdict(list)
    dates: dict[tuple[int, int | None, int], set[str]] = defaultdict(set)
    for folder, directory in directories.items():
        folders_of[directory.placed.version].append(folder)
        dates[_sequence(directory)].add(directory.placed.date)
    # The dates that may still grow, for each sequence of date directories: those of one length sort
    # as texts in the order of time.
    newest = {sequence: set(sorted(found)[-OPEN_DATES:]) for sequence, found in dates.items()}
    closed: set[str] = set()
    after: dict[str, str] = {}
    for version, folders in folders_of.items():
        # Closed as a whole: below a finished version no partition or date can appear.
        if version in done and all(directories[folder].complete for folder in folders):
            closed.add(f"{table_dir}/{version}")
            continue
        for folder in folders:
            directory = directories[folder]
            date = directory.placed.date
            # A date is compared at its own precision: for directory 2024 only the year counts.
            grows = version not in done and (
                date >= floor[: len(date)] or date in newest[_sequence(directory)]
            )
            if not grows and directory.complete:
                closed.add(folder)
            # No mark where TiCDC may write low numbers again: see the end of the module's
            # docstring.
            elif not (version in old and version >= checkpoint) and not (
                shared and directory.placed.partition is None
            ):
                marks = directory.marks(extension, fixed_width=version in old)
                after |= {sequence_of(f"{folder}/{mark}"): mark for mark in marks}
    # What the checkpoint alone still holds open: versions that are replaced above it, and marks of
    # the older layout.
    waiting = (
        _superseded(versions, max(versions, default=0)) != done
        or max(old, default=-1) >= checkpoint
    )
    return Closing(closed=frozenset(closed), after=after, waiting=waiting)


def oldest_open_date(checkpoint: int) -> str:
    """Return the first date (inclusive) for rows that commit after `checkpoint`."""
    return (datetime.fromtimestamp(physical_ms(checkpoint) / 1000, UTC) - _SLACK).date().isoformat()


def own_versions(versions: Versions, apart: Collection[tuple[int, int | None]]) -> Versions:
    """Return `versions` without schema files that show nothing of where the table's rows go."""
    if not apart:
        return versions
    own = {
        version: {c for c in checksums if (version, c) not in apart}
        for version, checksums in versions.items()
    }
    return {version: checksums for version, checksums in own.items() if checksums}


def _superseded(versions: Versions, checkpoint: int) -> set[int]:
    """Return versions with each checksum replaced by a newer one up to `checkpoint`, inclusive."""
    newest: dict[int | None, int] = {}
    # In ascending order, so that the newest version of each checksum is the one that stays.
    for version in sorted(versions):
        if version <= checkpoint:
            newest.update(dict.fromkeys(versions[version] - {None}, version))
    # A version of the older layout has no checksum: any newer version of the present layout
    # replaces it.
    newest[None] = max(newest.values(), default=0)
    return {
        version
        for version, checksums in versions.items()
        # All of them: a version with two schema files is finished only when both of its structures
        # went on elsewhere.
        if all(newest.get(checksum, 0) > version for checksum in checksums)
    }


def _sequence(directory: Directory) -> tuple[int, int | None, int]:
    """Return version, partition and date length, which consecutive date directories share."""
    placed = directory.placed
    return placed.version, placed.partition, len(placed.date)


class KnownDirectories:
    """Table directories by their schema files, and the data directories below them."""

    def __init__(
        self, date_separator: DateSeparator | None, *, partition_separator: bool | None
    ) -> None:
        """Expect paths written with these settings; None for a setting that was not given."""
        self._date_separator = date_separator
        self._partition_separator = partition_separator
        self.versions: dict[str, dict[int, set[int | None]]] = {}
        """By table directory, the versions of which it has schema files."""
        self.above: set[str] = set()
        """Table directories and everything above them: none of these may be left out as a whole,
        since tables lie below.
        """
        # Found since `astray` was called last.
        self._new_tables: set[str] = set()
        self.directories: dict[str, Directory] = {}
        """The data directories by folder."""
        self.folders: dict[str, set[str]] = {}
        """By table directory, the folders of the data directories that it has, or had."""

    def add_schema_file(self, parsed: SchemaPath) -> bool:
        """Note a schema file; return whether it moves an older-layout version to the new layout."""
        if parsed.table_dir not in self.versions:
            self.versions[parsed.table_dir] = {}
            self._new_tables.add(parsed.table_dir)
            self.above.update(with_all_above(parsed.table_dir))
        checksums = self.versions[parsed.table_dir].setdefault(parsed.version, set())
        upgraded = checksums == {None} and parsed.checksum is not None
        checksums.add(parsed.checksum)
        return upgraded

    def place(self, folder: str) -> DataDirectory | Ignored:
        """Return what a folder is, as far as the schema files found so far tell."""
        placed = self._place(folder)
        if isinstance(placed, Ignored) or placed.known:
            return placed
        # No schema file says that there is such a table. What is below some folder may have the
        # path of a table that there is.
        below = (self._place(folder[at + 1 :]) for at, letter in enumerate(folder) if letter == "/")
        is_copy = any(
            isinstance(each, DataDirectory)
            and each.version in self.versions.get(each.table_dir, ())
            for each in below
        )
        return Ignored(reason=COPY) if is_copy or is_of_file_system(folder) else placed

    def _place(self, folder: str) -> DataDirectory | Ignored:
        return place_directory(
            folder,
            self.versions,
            self._date_separator,
            partition_separator=self._partition_separator,
        )

    def add(self, folder: str, placed: DataDirectory) -> Directory:
        """Return the data directory in that folder, new or known."""
        if folder not in self.directories:
            self.directories[folder] = Directory(placed)
            self.folders.setdefault(placed.table_dir, set()).add(folder)
        return self.directories[folder]

    def forget(self, folder: str) -> None:
        """Forget a data directory with all its files."""
        self.folders[self.directories.pop(folder).placed.table_dir].discard(folder)

    def forget_below(self, folders: AbstractSet[str]) -> set[str]:
        """Forget tables and data directories below folders; return those table directories."""
        gone = {table_dir for table_dir in self.versions if folder_above(f"{table_dir}/", folders)}
        for table_dir in gone:
            del self.versions[table_dir]
        self._new_tables -= gone
        for folder in [
            folder for folder in self.directories if folder_above(f"{folder}/", folders)
        ]:
            gone.add(self.directories[folder].placed.table_dir)
            self.forget(folder)
        return gone

    def of_table(self, table_dir: str) -> dict[str, Directory]:
        """Return the data directories of a table, by folder."""
        return {folder: self.directories[folder] for folder in self.folders.get(table_dir, ())}

    def astray(self) -> Iterator[tuple[str, Directory]]:
        """Yield directories that new schema files show to belong to another table."""
        new, self._new_tables = self._new_tables, set()
        # A new table directory may explain a path better than a shorter one did: the longest wins.
        for folder, directory in list(self.directories.items()) if new else ():
            placed = directory.placed
            # Only a new table directory above the folder can change a reading with a schema file.
            if placed.known and not any(folder.startswith(f"{table_dir}/") for table_dir in new):
                continue
            now = self.place(folder)
            # The same reading, supported by a schema file now: the files stay where they are.
            if isinstance(now, DataDirectory) and replace(now, known=placed.known) == placed:
                directory.placed = now
            else:
                yield folder, directory


class NextListing:
    """What `Storage.listing` may leave out of a bucket."""

    def __init__(
        self, known: KnownDirectories, *, partition_separator: bool | None, extension: str
    ) -> None:
        """Judge the directories in `known`, written with these settings; see `Inventory`."""
        self._known = known
        self._partition_separator = partition_separator
        self._extension = extension
        self._checkpoint = 0
        self._oldest_open_date = ""
        self._changed: set[str] = set()
        self._rewritten: set[str] = set()
        self._set_apart: dict[str, set[tuple[int, int | None]]] = {}
        self._closings: dict[str, Closing] = {}
        self.closed: frozenset[str] = frozenset()
        """Directories in which TiCDC writes no more and all files were found."""
        self.after: dict[str, str] = {}
        """Sequence → file name up to which (inclusive) all were found and none can follow."""
        self.left_out = LeftOutFiles()

    def note_change(self, table_dir: str) -> None:
        """Note that something of a table is new, moved or gone."""
        self._changed.add(table_dir)

    def note_rewritten(self, table_dir: str) -> None:
        """Note that a file of a table has been rewritten."""
        self._rewritten.add(table_dir)

    def set_apart(self, file: SchemaFile) -> None:
        """Note a schema file in another table's place: no rows go by it, so it closes nothing."""
        self._set_apart.setdefault(file.table_dir, set()).add((file.version, file.checksum))
        self.note_change(file.table_dir)
        self.judge(self._checkpoint)

    def judge(self, checkpoint: int) -> None:
        """Recompute `closed` and `after`; `checkpoint` was read before the latest listing began."""
        self._checkpoint = checkpoint
        changed, self._changed = self._changed, set()
        # A new date may close directories of any table.
        if self._oldest_open_date != (date := oldest_open_date(checkpoint)):
            self._oldest_open_date, changed = date, changed | self._known.folders.keys()
        for table_dir in changed:
            before, judged = (
                self._closings.get(table_dir),
                (
                    closing(
                        table_dir,
                        own_versions(
                            self._known.versions.get(table_dir, {}),
                            self._set_apart.get(table_dir, ()),
                        ),
                        self._known.of_table(table_dir),
                        checkpoint=checkpoint,
                        extension=self._extension,
                        shared=self._partition_separator is False or table_dir in self._rewritten,
                    )
                ),
            )
            self._closings[table_dir] = judged
            self.left_out.judged(before, judged, table_dir, self._known.of_table(table_dir))
            # Judged again next time even if unchanged: the checkpoint may have risen.
            if judged.waiting:
                self._changed.add(table_dir)
        if changed:
            closed = frozenset[str]().union(*(judged.closed for judged in self._closings.values()))
            # A table called t/449 may lie below version 449 of a table t.
            self.closed = closed - self._known.above
            self.after = {
                name: mark
                for judged in self._closings.values()
                for name, mark in judged.after.items()
            }

    def could_hide(self, folder: str, path: str) -> bool:
        """Return whether the latest listing that was not full could have left this file out."""
        return left_out(path, self.after) or not self.closed.isdisjoint(with_all_above(folder))


class LeftOutFiles:
    """What listings skip, by sequence, to date how long a rewritten file may have gone unseen.

    It holds the marks of the latest listing, and how those of the next one differ from those
    already reported.
    """

    def __init__(self) -> None:
        """Start with nothing left out."""
        # Marks of the last listing. The others are about the next one: what it leaves out that is
        # not reported yet, and what it shows again, which is reported only when it has been shown:
        # until then a rewritten file would still go unseen.
        self._latest: Mapping[str, str] = {}
        self._to_report: dict[str, int] = {}
        self._lowered: dict[str, int] = {}

    def hid(self, path: str) -> bool:
        """Return whether the latest listing left a file out."""
        return left_out(path, self._latest)

    def judged(
        self,
        before: Closing | None,
        now: Closing,
        table_dir: str,
        directories: Mapping[str, Directory],
    ) -> None:
        """Note what the next listing may leave out of a table, and what it was `before`.

        What the next listing shows again counts as left out until it has been shown.
        """
        marks = {} if before is None else before.after
        raised = dict(
            _marked(name, mark) for name, mark in now.after.items() if marks.get(name) != mark
        )
        shown = {_marked(name, mark)[0]: 0 for name, mark in marks.items() if name not in now.after}
        # Both ways: directories that are newly closed, and those that are open again.
        changed = now.closed ^ (frozenset() if before is None else before.closed)
        for folder, directory in directories.items() if changed else ():
            # A folder is closed by itself or with its whole version.
            above = {folder, f"{table_dir}/{directory.placed.version}"}
            if above & changed:
                names = [
                    sequence_name(folder, dispatcher, width)
                    for dispatcher, width in directory.sequences
                ]
                # Closed: TiCDC is done there for good. Open again: up to the mark, if there is one.
                raised |= {
                    name: EVERYTHING if above & now.closed else raised.get(name, 0)
                    for name in names
                }
        # What is raised now is not shown again after all.
        self._lowered = {name: 0 for name in self._lowered | shown if name not in raised}
        self._to_report |= raised

    def listed(self, after: Mapping[str, str], lowered: Mapping[str, int]) -> None:
        """Note the end of a listing with marks `after`; `lowered`: `lowering` at its start."""
        self._latest = after
        # Raised marks win: they were judged after the listing that lowered these began.
        self._to_report = {**lowered, **self._to_report}

    def lowering(self) -> Mapping[str, int]:
        """Note that a listing begins; return the sequences that it shows again."""
        lowered, self._lowered = self._lowered, {}
        return lowered

    def take(self) -> dict[str, int]:
        """Return sequence → number up to which listings skip files, if changed since last time.

        `EVERYTHING`: TiCDC writes no more to the directory.
        """
        reported, self._to_report = self._to_report, {}
        return reported


def _marked(numbering: str, mark: str) -> tuple[str, int]:
    """Return the sequence that a mark belongs to, and its number."""
    data = parse_data_name(mark)
    assert data is not None, mark
    folder = numbering.rpartition("/")[0] if data.dispatcher else numbering
    return sequence_name(folder, data.dispatcher, data.width), data.number
