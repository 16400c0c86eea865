"""Known files against a listing: new, changed or gone; `known_files` says what to leave out.

Pure: it takes listings and remembers; it reads nothing. Each file is found once, however often a
listing is repeated or interrupted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace

from storage_consumer.bucket.known_files import Directory, KnownDirectories, NextListing
from storage_consumer.bucket.paths import (
    EMPTY,
    DataDirectory,
    DataName,
    Ignored,
    SchemaPath,
    folder_above,
    format_data_name,
    parse_data_name,
    parse_other,
)
from storage_consumer.config.settings import DateSeparator
from storage_consumer.model import DataFile, SchemaFile, StoredObject, TableVersion, sequence_name
from storage_consumer.plan.finished_files import FileVerdict, Finished, digest_of

_SHOWN = 10
"""Number of paths that a message names; the others are counted."""


@dataclass(slots=True)
class Findings:
    """What one listing showed: new and changed files, and what came up in processing it."""

    late: bool
    """Whether files may turn up that earlier listings left out; not at a start, which relists."""
    schema_files: tuple[SchemaFile, ...] = ()
    """New, or with other content under a known name."""
    data_files: tuple[DataFile, ...] = ()
    """New, or with other content under a known name."""
    vanished: tuple[DataFile, ...] = ()
    """Found before and gone in a full listing, shown with size 0 and an empty tag."""
    changed: int = 0
    """Number of `data_files` that had other content before."""
    overwritten: tuple[DataFile, ...] = ()
    """Those rewritten below a mark: the checkpoint may have passed their rows unseen."""
    ignored: Counter[str] = field(default_factory=Counter)
    """Reason → number of objects passed over; in the end as of the last full listing."""
    contradictions: list[str] = field(default_factory=list)
    """``path: reason`` for paths that contradict the settings."""
    roots: set[str] = field(default_factory=set)
    """Folders below the root that have a ``metadata``, as the root of a changefeed's files has."""
    moved: bool = False
    """Whether to list again: new schema files show that files may be missing or misplaced."""
    finished: int = 0
    """Number of new data files missing from `data_files` because an earlier run finished them."""
    unplaced: list[tuple[str, DataName, StoredObject]] = field(default_factory=list)
    schema_paths: set[str] = field(default_factory=set)
    schemas_gone: list[str] = field(default_factory=list)
    came_late: list[str] = field(default_factory=list)
    overflow: Counter[str] = field(default_factory=Counter)
    """Folder not known before → number of its files that were too many to be held."""
    overflown: bool = False
    """Whether data files are among them, so that the next listing has to show them again."""

    def ignore(self, path: str, why: Ignored, files: int = 1) -> None:
        """Count a path (or `files` in it) as passed over, or note that it contradicts settings."""
        if why.contradicts:
            self.contradictions.append(f"{path}: {why.reason}")
        else:
            self.ignored[why.reason] += files

    @property
    def warnings(self) -> tuple[str, ...]:
        """The warnings for an operator."""
        late = (
            f"{path} appeared where TiCDC had finished writing; rows in it at or below the checkpoint are "
            "treated as duplicates. If TiCDC did not just restart, compare the table with its source"
            for path in shortened(self.came_late)
        )
        gone = (
            f"schema file {path} is gone from the storage; what was read from it stays in force"
            for path in shortened(self.schemas_gone)
        )
        return (*late, *gone)


def shortened(paths: list[str]) -> tuple[str, ...]:
    """Return the first few paths, and the number of the others."""
    more = len(paths) - _SHOWN
    return (*paths[:_SHOWN], f"and {more} more") if more > 0 else tuple(paths)


@dataclass(slots=True)
class Earlier:
    """The files that an earlier run finished.

    Of some it left no digest, as a state of an older version holds none. They are read again, for
    nothing shows whether they are unchanged.
    """

    finished: Mapping[str, Finished]
    """Sequence (see `DataFile.sequence`) → how far it was finished."""
    rereads: bool
    """Whether a file without a digest may be read again. It may not where rows carry no commit-ts:
    they would be applied again over later ones. Then the file counts as it is listed now.
    """

    def judge(self, sequence: str, number: int, stored: StoredObject) -> FileVerdict:
        """Judge a file listed for the first time; an `UNSURE` one counts as it is listed now."""
        known = self.finished.get(sequence)
        verdict = FileVerdict.NEW if known is None else known.judge(number, digest_of(stored))
        return FileVerdict.NEW if verdict is FileVerdict.UNSURE and self.rereads else verdict

    def was_unseen(self, sequence: str, number: int) -> bool:
        """Return whether a file may have been rewritten, unseen, while later rows were applied."""
        known = self.finished.get(sequence)
        return known is not None and known.was_unseen(number)


CONTRADICTS_PROTOCOL = "contradicts protocol"
MOST_UNPLACED = 100_000
"""Files in unknown directories that a listing holds; beyond that, only directory names."""


class Inventory:
    """All files found so far."""

    def __init__(
        self,
        date_separator: DateSeparator | None,
        *,
        partition_separator: bool | None,
        extension: str,
    ) -> None:
        """Expect paths written with these settings; None for a setting that was not given.

        `extension` is that of the protocol, ``csv`` or ``json``.
        """
        self._extension = extension
        self._known = KnownDirectories(date_separator, partition_separator=partition_separator)
        self._next = NextListing(
            self._known, partition_separator=partition_separator, extension=extension
        )
        self._schema_tags: dict[str, tuple[str, int]] = {}
        # Full listings so far; what any other listing shows counts for the last full one.
        self._generation = 0
        self._ignored: Counter[str] = Counter()
        # Found but not handed out yet: a listing that breaks off leaves here what it had shown.
        self._found_schema: dict[str, SchemaFile] = {}
        self._found: dict[str, DataFile] = {}
        self._changed: set[str] = set()
        self._overwritten: set[str] = set()
        self.earlier: Earlier | None = None
        """Finished files of an earlier run: only one per sequence is found, and changed ones."""
        self.left_out = self._next.left_out
        """What listings leave out, sequence by sequence."""

    @property
    def closed(self) -> frozenset[str]:
        """Directories that are complete and no longer written: `Storage.listing` may skip them."""
        return self._next.closed

    @property
    def after(self) -> dict[str, str]:
        """Sequence → file name up to which (inclusive) a listing may skip files, all found."""
        return self._next.after

    def __len__(self) -> int:
        """Return the number of known schema and data files."""
        sequences = (
            sequence
            for directory in self._known.directories.values()
            for sequence in directory.sequences.values()
        )
        return len(self._schema_tags) + sum(sequence.count for sequence in sequences)

    def versions(self) -> set[tuple[str, int]]:
        """Return the table directories and versions that exist, as the listings show."""
        parsed = map(parse_other, self._schema_tags)
        placed = (directory.placed for directory in self._known.directories.values())
        found = {(path.table_dir, path.version) for path in parsed if isinstance(path, SchemaPath)}
        return found | {(each.table_dir, each.version) for each in placed}

    def observe(self, listing: Iterable[StoredObject], *, full: bool, checkpoint: int) -> Findings:
        """Process a listing that began after `checkpoint` was read; return what is new in it.

        `full`: nothing was left out of it, so what it lacks is gone. If `listing` raises, what it
        had shown is not lost: a later call returns it.
        """
        findings = Findings(late=full and self._generation > 0 and self.earlier is None)
        # Taken before the listing: `judge` below replaces both, and they have to say what this very
        # listing left out and shows again.
        after, lowered = {} if full else self.after, self.left_out.lowering()
        # A generation marks what a full listing shows, so that the sweep finds the rest.
        if full:
            self._generation += 1
        for stored in listing:
            folder, _, name = stored.path.rpartition("/")
            data = parse_data_name(name)
            if data is None:
                self._see_other(stored, findings)
            # Classic TiCDC uses the number of an empty file again after a restart: such a file is
            # only the beginning of one.
            elif not stored.size:
                findings.ignored[EMPTY] += 1
            elif directory := self._known.directories.get(folder):
                self._see_data(directory, folder, data, stored, findings)
            # Whose directory this is can depend on schema files that come later in the listing.
            elif len(findings.unplaced) < MOST_UNPLACED:
                findings.unplaced.append((folder, data, stored))
            else:
                findings.overflow[folder] += 1
        self._place(findings)
        # All schema files are known by now, so a directory that was placed by its path alone may
        # turn out to be another table's.
        for folder, directory in self._known.astray():
            self._forget(folder, directory)
            self._found = {
                path: file
                for path, file in self._found.items()
                if path.rpartition("/")[0] != folder
            }
            findings.moved = True
        findings.moved |= findings.overflown
        # Only a full listing proves that a file is gone; any other may just have left it out.
        if full:
            findings.vanished = self._sweep(findings)
            self._ignored = findings.ignored
        # Files that were too many to hold are still unknown: no directory is complete.
        if not findings.overflown:
            self._next.judge(checkpoint)
        self.left_out.listed(after, lowered)
        findings.ignored = self._ignored
        findings.schema_files, findings.data_files = (
            tuple(self._found_schema.values()),
            tuple(self._found.values()),
        )
        findings.changed = len(self._changed & self._found.keys())
        findings.overwritten = tuple(
            self._found[path] for path in sorted(self._overwritten & self._found.keys())
        )
        self._found_schema, self._found, self._changed, self._overwritten = {}, {}, set(), set()
        return findings

    def set_apart(self, file: SchemaFile) -> None:
        """Note a schema file in another table's place: no rows go by it, so it closes nothing."""
        self._next.set_apart(file)

    def forget(self, folders: AbstractSet[str]) -> bool:
        """Forget what was found below folders to leave out; return whether there was anything."""
        gone = self._known.forget_below(folders)
        for table_dir in gone:
            self._next.note_change(table_dir)
        for found in (self._schema_tags, self._found_schema, self._found):
            for path in [path for path in found if folder_above(path, folders)]:
                del found[path]
        return bool(gone)

    def tables(self) -> AbstractSet[str]:
        """Return the table directories of which schema files were found."""
        return self._known.versions.keys()

    def _see_other(self, stored: StoredObject, findings: Findings) -> None:
        if stored.path == "metadata":
            return
        parsed = parse_other(stored.path)
        if isinstance(parsed, SchemaPath):
            # The name alone shows that the version exists, so it counts here even while the file is
            # still empty. If a version of the older layout turns out to be one of the present
            # layout too, less may be left out.
            findings.moved |= self._known.add_schema_file(parsed)
            if not stored.size:
                findings.ignored[EMPTY] += 1
                return
            findings.schema_paths.add(stored.path)
            if self._schema_tags.get(stored.path) == (stored.tag, stored.size):
                return
            self._schema_tags[stored.path] = (stored.tag, stored.size)
            self._next.note_change(parsed.table_dir)
            self._found_schema[stored.path] = SchemaFile(
                stored=stored,
                table_dir=parsed.table_dir,
                version=TableVersion(parsed.version),
                checksum=parsed.checksum,
            )
        elif isinstance(parsed, Ignored):
            if stored.path.endswith("/metadata"):
                findings.roots.add(stored.path.removesuffix("/metadata"))
            findings.ignored[parsed.reason if stored.size else EMPTY] += 1

    def _see_data(
        self,
        directory: Directory,
        folder: str,
        data: DataName,
        stored: StoredObject,
        findings: Findings,
    ) -> None:
        if data.extension != self._extension:
            findings.contradictions.append(f"{stored.path}: {CONTRADICTS_PROTOCOL}")
            return
        width = directory.width(data)
        sequence = directory.sequence(data.dispatcher, width)
        # 0 means "no file" in a `ListedSequence`.
        tag = hash((stored.size, stored.tag)) & 0xFFFF_FFFF_FFFF_FFFF or 1
        before = sequence.put(data.number, tag, self._generation)
        # Almost every file of almost every listing ends here.
        if before == tag:
            return
        name = sequence_name(folder, data.dispatcher, width)
        # What a file listed for the first time was to an earlier run.
        first = (
            FileVerdict.NEW
            if self.earlier is None or before
            else self.earlier.judge(name, data.number, stored)
        )
        verdict = FileVerdict.REWRITTEN if before else first
        if verdict is FileVerdict.UNCHANGED and sequence.count > 1:
            # The first file of a sequence is handed on even if it is finished, so that the sequence
            # itself is known.
            findings.finished += 1
            return
        may_be_unseen = False
        if verdict is FileVerdict.REWRITTEN:
            self._changed.add(stored.path)
            # Partitions may count for themselves in one directory here, so it has no mark from now
            # on: see `known_files`.
            self._next.note_rewritten(directory.placed.table_dir)
            # It may have changed while listings left it out: those of this run, once one has shown
            # it, else those of an earlier run.
            if before:
                may_be_unseen = self.left_out.hid(stored.path)
            else:
                may_be_unseen = self.earlier is not None and self.earlier.was_unseen(
                    name, data.number
                )
        if may_be_unseen:
            self._overwritten.add(stored.path)
        # New or rewritten in a place that listings skipped, since TiCDC seemed done there.
        elif findings.late and self._next.could_hide(folder, stored.path):
            findings.came_late.append(stored.path)
        self._next.note_change(directory.placed.table_dir)
        file = _data_file(directory.placed, data.dispatcher, data.number, width, stored)
        finished = verdict in {FileVerdict.UNCHANGED, FileVerdict.UNSURE}
        self._found[stored.path] = replace(file, finished=True) if finished else file

    def _place(self, findings: Findings) -> None:
        """Place data files of unknown directories, once all schema files are known."""
        places: dict[str, DataDirectory | Ignored] = {}
        for folder, data, stored in findings.unplaced:
            placed = places.get(folder) or places.setdefault(folder, self._known.place(folder))
            if isinstance(placed, Ignored):
                findings.ignore(stored.path, placed)
            else:
                self._see_data(self._known.add(folder, placed), folder, data, stored, findings)
        for folder, files in findings.overflow.items():
            placed = self._known.place(folder)
            if isinstance(placed, Ignored):
                findings.ignore(folder, placed, files)
            else:
                findings.overflown = True
                self._known.add(folder, placed)
        findings.unplaced, findings.overflow = [], Counter()

    def _forget(self, folder: str, directory: Directory) -> None:
        self._known.forget(folder)
        self._next.note_change(directory.placed.table_dir)

    def _sweep(self, findings: Findings) -> tuple[DataFile, ...]:
        """Forget what a full listing lacks; return its data files not about to be handed out."""
        gone: list[DataFile] = []
        for folder, directory in list(self._known.directories.items()):
            for dispatcher, number, width in directory.sweep(self._generation):
                name = DataName(
                    dispatcher=dispatcher, number=number, width=width, extension=self._extension
                )
                # Only numbers are remembered, so the path is put together again from them.
                stored = StoredObject(path=f"{folder}/{format_data_name(name)}", size=0, tag="")
                self._next.note_change(directory.placed.table_dir)
                gone.append(_data_file(directory.placed, dispatcher, number, width, stored))
            # A directory that has no files may be one whose files were too many to hold: the next
            # listing is to show them.
            if not (directory.sequences or findings.overflown):
                self._forget(folder, directory)
        findings.schemas_gone.extend(
            path for path in self._schema_tags if path not in findings.schema_paths
        )
        for path in findings.schemas_gone:
            del self._schema_tags[path]
        # A found file not handed out yet stays: its reader will report that it is gone.
        return tuple(file for file in gone if file.stored.path not in self._found)


def _data_file(
    placed: DataDirectory, dispatcher: str, number: int, width: int, stored: StoredObject
) -> DataFile:
    return DataFile(
        stored=stored,
        table_dir=placed.table_dir,
        version=TableVersion(placed.version),
        partition=placed.partition,
        date=placed.date,
        dispatcher=dispatcher,
        number=number,
        width=width,
    )
