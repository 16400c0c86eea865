"""Known files compared with a listing: which are new, changed or gone, and what the next listing need not show.

Pure: it takes listings and remembers; it reads nothing. Each file is found once, however often a listing is repeated or
interrupted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from storage_consumer.config.settings import DateSeparator
from storage_consumer.model import DataFile, SchemaFile, StoredObject, TableVersion, stream_of
from storage_consumer.plan.finished_files import Verdict
from storage_consumer.poll.earlier_run import Earlier
from storage_consumer.poll.file_numbers import Directory
from storage_consumer.poll.findings import Findings, Look, shortened
from storage_consumer.poll.finished_folders import Closing, closing, oldest_open_date, own_versions
from storage_consumer.poll.left_out import LeftOut
from storage_consumer.storage.paths import (
    DataDirectory,
    DataName,
    Ignored,
    SchemaPath,
    format_data_name,
    left_out,
    parse_data_name,
    parse_other,
    place_directory,
    with_all_above,
)

EMPTY = "empty object"
CONTRADICTS_PROTOCOL = "contradicts protocol"
MOST_UNPLACED = 100_000
"""Number of files in unknown directories that one listing holds until it ends; beyond it the directories' names are enough."""


class Inventory:
    """All files found so far."""

    def __init__(
        self, date_separator: DateSeparator | None, *, partition_separator: bool | None, extension: str
    ) -> None:
        """Expect paths written with these settings; None for a setting that was not given.

        `extension` is that of the protocol, ``csv`` or ``json``.
        """
        self._date_separator = date_separator
        self._partition_separator = partition_separator
        self._extension = extension
        self._above: set[str] = set()
        self._tables: dict[str, dict[int, set[int | None]]] = {}
        self._folders: dict[str, set[str]] = {}
        self._directories: dict[str, Directory] = {}
        self._schema_tags: dict[str, tuple[str, int]] = {}
        self._generation = 0
        self._ignored: Counter[str] = Counter()
        self._new_tables: set[str] = set()
        self._found_schema: dict[str, SchemaFile] = {}
        self._found: dict[str, DataFile] = {}
        self._changed: set[str] = set()
        self._overwritten: set[str] = set()
        self._written_anew: set[str] = set()
        self._oldest_open_date = ""
        self._dirty: set[str] = set()
        self._closings: dict[str, Closing] = {}
        self._set_apart: dict[str, set[tuple[int, int | None]]] = {}
        self._checkpoint = 0
        self.earlier: Earlier | None = None
        """What an earlier run knew: of the files that it finished, only one per stream is found, and those that have changed."""
        self.closed: frozenset[str] = frozenset()
        """Directories in which TiCDC writes no more and all files were found: what `Storage.listing` may leave out."""
        self.left_out = LeftOut()
        self.after: dict[str, str] = {}
        """Sequence of files → file name up to which (inclusive) all were found and none can follow: may be left out likewise."""

    def __len__(self) -> int:
        """Return the number of known schema and data files."""
        streams = (stream for directory in self._directories.values() for stream in directory.streams.values())
        return len(self._schema_tags) + sum(stream.count for stream in streams)

    def observe(self, listing: Iterable[StoredObject], *, full: bool, checkpoint: int) -> Findings:
        """Process a listing that began after `checkpoint` was read; return what it shows that was not known.

        `full`: nothing was left out of it, so what it lacks is gone. If `listing` raises, what it had shown is not lost: a later
        call returns it.
        """
        look = Look(late=full and self._generation > 0 and self.earlier is None)
        after, lowered = {} if full else self.after, self.left_out.lowering()
        # A generation marks what a full listing shows, so that the sweep after it finds what it lacks.
        if full:
            self._generation += 1
        for stored in listing:
            self._see(stored, look)
        self._place(look)
        moved = self._move() or look.upgraded or look.overflown
        vanished = self._sweep(look) if full else ()
        if full:
            self._ignored = look.ignored
        # Files that were too many to hold are still unknown, so no directory can be judged complete.
        if not look.overflown:
            self._close(checkpoint)
            moved |= self._reopen(look)
        self.left_out.listed(after, lowered)
        return self._findings(look, vanished, moved=moved)

    def set_apart(self, file: SchemaFile) -> None:
        """Note that a schema file belongs to another table than the one it lies with: no rows go by it, so it closes nothing."""
        self._set_apart.setdefault(file.table_dir, set()).add((file.version, file.checksum))
        self._dirty.add(file.table_dir)
        self._close(self._checkpoint)

    def _see(self, stored: StoredObject, look: Look) -> None:
        folder, _, name = stored.path.rpartition("/")
        data = parse_data_name(name)
        if data is None:
            self._see_other(stored, look)
        elif not stored.size:
            look.ignored[EMPTY] += 1
        elif directory := self._directories.get(folder):
            self._see_data(directory, folder, data, stored, look)
        # Whose directory this is can depend on schema files that come later in the listing.
        elif len(look.unplaced) < MOST_UNPLACED:
            look.unplaced.append((folder, data, stored))
        else:
            look.overflow[folder] += 1

    def _see_other(self, stored: StoredObject, look: Look) -> None:
        if stored.path == "metadata":
            return
        parsed = parse_other(stored.path)
        if isinstance(parsed, SchemaPath):
            self._see_schema(parsed, stored, look)
        elif isinstance(parsed, Ignored) and parsed.contradicts:
            look.contradictions.append(f"{stored.path}: {parsed.reason}")
        elif isinstance(parsed, Ignored):
            look.ignored[parsed.reason if stored.size else EMPTY] += 1

    def _see_schema(self, parsed: SchemaPath, stored: StoredObject, look: Look) -> None:
        if parsed.table_dir not in self._tables:
            self._tables[parsed.table_dir] = {}
            self._new_tables.add(parsed.table_dir)
            self._above.update(with_all_above(parsed.table_dir))
        checksums = self._tables[parsed.table_dir].setdefault(parsed.version, set())
        look.upgraded |= checksums == {None} and parsed.checksum is not None
        checksums.add(parsed.checksum)
        if not stored.size:
            look.ignored[EMPTY] += 1
            return
        look.schema_paths.add(stored.path)
        if self._schema_tags.get(stored.path) == (stored.tag, stored.size):
            return
        self._schema_tags[stored.path] = (stored.tag, stored.size)
        self._dirty.add(parsed.table_dir)
        self._found_schema[stored.path] = SchemaFile(
            stored=stored,
            table_dir=parsed.table_dir,
            version=TableVersion(parsed.version),
            checksum=parsed.checksum,
        )

    def _see_data(self, directory: Directory, folder: str, data: DataName, stored: StoredObject, look: Look) -> None:
        if data.extension != self._extension:
            look.contradictions.append(f"{stored.path}: {CONTRADICTS_PROTOCOL}")
            return
        width = directory.width(data)
        stream = directory.stream(data.dispatcher, width)
        tag = _compact(stored)
        before = stream.put(data.number, tag, self._generation)
        if before == tag:
            return
        name = stream_of(folder, data.dispatcher, width)
        verdict = Verdict.ANEW if before else self._judge(name, data.number, stored)
        if verdict is Verdict.SETTLED and stream.count > 1:
            # The first file of a stream is handed on even if it is finished, so that the stream itself is known.
            look.finished += 1
            return
        if verdict is Verdict.ANEW:
            self._changed.add(stored.path)
            self._written_anew.add(directory.placed.table_dir)
        if verdict is Verdict.ANEW and self._was_unseen(stored.path, name, data.number, listed=bool(before)):
            self._overwritten.add(stored.path)
        elif look.late and self._hidden(folder, stored.path):
            look.came_late.append(stored.path)
        self._dirty.add(directory.placed.table_dir)
        file = _data_file(directory.placed, data.dispatcher, data.number, width, stored)
        settled = verdict in {Verdict.SETTLED, Verdict.UNSURE}
        self._found[stored.path] = replace(file, settled=True) if settled else file

    def _judge(self, stream: str, number: int, stored: StoredObject) -> Verdict:
        """Return what a file listed for the first time was to an earlier run."""
        return Verdict.NEW if self.earlier is None else self.earlier.judge(stream, number, stored)

    def _was_unseen(self, path: str, stream: str, number: int, *, listed: bool) -> bool:
        """Return whether a file may have changed while listings left it out; `listed`: a listing of this run has shown it before."""
        if listed:
            return self.left_out.hid(path)
        return self.earlier is not None and self.earlier.was_unseen(stream, number)

    def _hidden(self, folder: str, path: str) -> bool:
        """Return whether the latest listing that was not full could have left this file out."""
        return left_out(path, self.after) or not self.closed.isdisjoint(with_all_above(folder))

    def _place(self, look: Look) -> None:
        """Place data files of unknown directories, now that all schema files of the listing are known."""
        places: dict[str, DataDirectory | Ignored] = {}
        for folder, data, stored in look.unplaced:
            placed = places.get(folder) or places.setdefault(folder, self._read_folder(folder))
            if isinstance(placed, Ignored):
                look.ignore(stored.path, placed)
            else:
                self._see_data(self._directory(folder, placed), folder, data, stored, look)
        for folder, files in look.overflow.items():
            placed = self._read_folder(folder)
            if isinstance(placed, Ignored):
                look.ignore(folder, placed, files)
            else:
                look.overflown = True
                self._directory(folder, placed)

    def _directory(self, folder: str, placed: DataDirectory) -> Directory:
        """Return the directory in that folder, new or known."""
        if folder not in self._directories:
            self._directories[folder] = Directory(placed)
            self._folders.setdefault(placed.table_dir, set()).add(folder)
        return self._directories[folder]

    def _read_folder(self, folder: str) -> DataDirectory | Ignored:
        return place_directory(
            folder, self._tables, self._date_separator, partition_separator=self._partition_separator
        )

    def _move(self) -> bool:
        """Forget directories that belong to another table, now that its schema file was found; return whether there are any."""
        new, self._new_tables = self._new_tables, set()
        moved = False
        # A new table directory may explain a path better than a shorter one did: the longest wins.
        for folder, directory in list(self._directories.items()) if new else ():
            placed = directory.placed
            if placed.known and not any(folder.startswith(f"{table_dir}/") for table_dir in new):
                continue
            now = self._read_folder(folder)
            if isinstance(now, DataDirectory) and replace(now, known=placed.known) == placed:
                directory.placed = now
                continue
            self._forget(folder, placed.table_dir)
            self._found = {path: file for path, file in self._found.items() if path.rpartition("/")[0] != folder}
            moved = True
        return moved

    def _forget(self, folder: str, table_dir: str) -> None:
        del self._directories[folder]
        self._folders[table_dir].discard(folder)
        self._dirty.add(table_dir)

    def _sweep(self, look: Look) -> tuple[DataFile, ...]:
        """Forget what a full listing did not show; return its data files, except those about to be handed out."""
        gone: list[DataFile] = []
        for folder, directory in list(self._directories.items()):
            for dispatcher, number, width in directory.sweep(self._generation):
                name = DataName(dispatcher=dispatcher, number=number, width=width, extension=self._extension)
                stored = StoredObject(path=f"{folder}/{format_data_name(name)}", size=0, tag="")
                self._dirty.add(directory.placed.table_dir)
                gone.append(_data_file(directory.placed, dispatcher, number, width, stored))
            if not (directory.streams or look.overflown):
                self._forget(folder, directory.placed.table_dir)
        look.schemas_gone.extend(path for path in self._schema_tags if path not in look.schema_paths)
        for path in look.schemas_gone:
            del self._schema_tags[path]
        # A file that was found but not handed out yet stays: whoever reads it will report that it is gone.
        return tuple(file for file in gone if file.stored.path not in self._found)

    def _close(self, checkpoint: int) -> None:
        """Recompute `closed` and `after` for the tables in which something changed."""
        self._checkpoint = checkpoint
        dirty, self._dirty = self._dirty, set()
        # A new date may close directories of any table.
        if self._oldest_open_date != (date := oldest_open_date(checkpoint)):
            self._oldest_open_date, dirty = date, dirty | self._folders.keys()
        for table_dir in dirty:
            before, judged = self._closings.get(table_dir), self._closing(table_dir, checkpoint)
            self._closings[table_dir] = judged
            self.left_out.judged(before, judged, table_dir, self._within(table_dir))
            if judged.waiting:
                self._dirty.add(table_dir)
        if dirty:
            closed = frozenset[str]().union(*(judged.closed for judged in self._closings.values()))
            # A table called t/449 may lie below version 449 of a table t.
            self.closed = closed - self._above
            self.after = {name: mark for judged in self._closings.values() for name, mark in judged.after.items()}

    def _within(self, table_dir: str) -> dict[str, Directory]:
        """Return the directories of a table, by folder."""
        return {folder: self._directories[folder] for folder in self._folders.get(table_dir, ())}

    def _closing(self, table_dir: str, checkpoint: int) -> Closing:
        """Return what the next listing may leave out of a table if this is the checkpoint."""
        return closing(
            table_dir,
            own_versions(self._tables.get(table_dir, {}), self._set_apart.get(table_dir, ())),
            self._within(table_dir),
            checkpoint=checkpoint,
            extension=self._extension,
            shared=self._partition_separator is False or table_dir in self._written_anew,
        )

    def _reopen(self, look: Look) -> bool:
        """Have files without a digest listed again where TiCDC may have rewritten them; return whether there are any."""
        if self.earlier is None or not self.earlier.unsure:
            return False
        tables = {d.placed.table_dir for folder in self.earlier.unsure if (d := self._directories.get(folder))}
        closed = frozenset[str]().union(*(self._closing(table, self.earlier.checkpoint).closed for table in tables))
        reopened = self.earlier.reopened(closed)
        for folder, files in reopened.items():
            look.finished -= files
            if directory := self._directories.get(folder):
                # Forgotten, so that the next listing finds the files again.
                directory.streams.clear()
        return bool(reopened)

    def _findings(self, look: Look, vanished: tuple[DataFile, ...], *, moved: bool) -> Findings:
        findings = Findings(
            schema_files=tuple(self._found_schema.values()),
            data_files=tuple(self._found.values()),
            vanished=vanished,
            changed=len(self._changed & self._found.keys()),
            overwritten=tuple(self._found[path] for path in sorted(self._overwritten & self._found.keys())),
            ignored=dict(self._ignored),
            contradictions=shortened(look.contradictions),
            warnings=tuple(look.warnings()),
            moved=moved,
            finished=look.finished,
        )
        self._found_schema, self._found, self._changed, self._overwritten = {}, {}, set(), set()
        return findings


def _data_file(placed: DataDirectory, dispatcher: str, number: int, width: int, stored: StoredObject) -> DataFile:
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


def _compact(stored: StoredObject) -> int:
    """Return size and tag as 64 bits, never 0; valid in this process only, and quicker than `finished.digest_of`."""
    # 0 means "no file" in a `Stream`.
    return hash((stored.size, stored.tag)) & 0xFFFF_FFFF_FFFF_FFFF or 1
