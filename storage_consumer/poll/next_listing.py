"""What the next listing may leave out, judged again for each table in which something changed; `finished_folders` has the rules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from storage_consumer.model import SchemaFile, sequence_name
from storage_consumer.plan.finished_files import EVERYTHING
from storage_consumer.poll.file_numbers import Directory
from storage_consumer.poll.finished_folders import Closing, closing, oldest_open_date, own_versions
from storage_consumer.poll.known_directories import KnownDirectories
from storage_consumer.storage.paths import left_out, parse_data_name, with_all_above


class NextListing:
    """What `Storage.listing` may leave out of a bucket."""

    def __init__(self, known: KnownDirectories, *, partition_separator: bool | None, extension: str) -> None:
        """Judge the directories in `known`, which were written with these settings; see `Inventory`."""
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
        """Sequence of files → file name up to which (inclusive) all were found and none can follow."""
        self.left_out = LeftOut()

    def note_change(self, table_dir: str) -> None:
        """Note that something of a table is new, moved or gone."""
        self._changed.add(table_dir)

    def note_rewritten(self, table_dir: str) -> None:
        """Note that a file of a table has been rewritten."""
        self._rewritten.add(table_dir)

    def set_apart(self, file: SchemaFile) -> None:
        """Note that a schema file belongs to another table than the one it lies with: no rows go by it, so it closes nothing."""
        self._set_apart.setdefault(file.table_dir, set()).add((file.version, file.checksum))
        self.note_change(file.table_dir)
        self.judge(self._checkpoint)

    def judge(self, checkpoint: int) -> None:
        """Recompute `closed` and `after`; `checkpoint` was read before the latest listing began."""
        self._checkpoint = checkpoint
        changed, self._changed = self._changed, set()
        # A new date may close directories of any table.
        if self._oldest_open_date != (date := oldest_open_date(checkpoint)):
            self._oldest_open_date, changed = date, changed | self._known.tables()
        for table_dir in changed:
            before, judged = self._closings.get(table_dir), self._closing(table_dir, checkpoint)
            self._closings[table_dir] = judged
            self.left_out.judged(before, judged, table_dir, self._known.of_table(table_dir))
            # Judged again next time though nothing of it has changed: the checkpoint may have risen by then.
            if judged.waiting:
                self._changed.add(table_dir)
        if changed:
            closed = frozenset[str]().union(*(judged.closed for judged in self._closings.values()))
            # A table called t/449 may lie below version 449 of a table t.
            self.closed = closed - self._known.above_tables()
            self.after = {name: mark for judged in self._closings.values() for name, mark in judged.after.items()}

    def closed_at(self, checkpoint: int, tables: Iterable[str]) -> frozenset[str]:
        """Return the directories of these tables that would be closed if this were the checkpoint."""
        return frozenset[str]().union(*(self._closing(table_dir, checkpoint).closed for table_dir in tables))

    def could_hide(self, folder: str, path: str) -> bool:
        """Return whether the latest listing that was not full could have left this file out."""
        return left_out(path, self.after) or not self.closed.isdisjoint(with_all_above(folder))

    def _closing(self, table_dir: str, checkpoint: int) -> Closing:
        """Return what the next listing may leave out of a table if this is the checkpoint."""
        return closing(
            table_dir,
            own_versions(self._known.versions(table_dir), self._set_apart.get(table_dir, ())),
            self._known.of_table(table_dir),
            checkpoint=checkpoint,
            extension=self._extension,
            shared=self._partition_separator is False or table_dir in self._rewritten,
        )


class LeftOut:
    """What listings leave out, sequence by sequence, so that a rewritten file shows since when this could go unseen.

    It holds the marks of the latest listing, and how those of the next one differ from those already reported.
    """

    def __init__(self) -> None:
        """Start with nothing left out."""
        # Marks of the last listing. The others are about the next one: what it leaves out that is not reported yet, and what it shows
        # again, which is reported only when it has been shown: until then a rewritten file would still go unseen.
        self._latest: Mapping[str, str] = {}
        self._to_report: dict[str, int] = {}
        self._lowered: dict[str, int] = {}

    def hid(self, path: str) -> bool:
        """Return whether the latest listing left a file out."""
        return left_out(path, self._latest)

    def judged(
        self, before: Closing | None, now: Closing, table_dir: str, directories: Mapping[str, Directory]
    ) -> None:
        """Note what the next listing may leave out of a table, and what it was `before`.

        What the next listing shows again counts as left out until it has been shown.
        """
        marks = {} if before is None else before.after
        raised = {
            _sequence_name(name, mark): _number_of(mark) for name, mark in now.after.items() if marks.get(name) != mark
        }
        shown = {_sequence_name(name, mark): 0 for name, mark in marks.items() if name not in now.after}
        # Both ways: directories that are newly closed, and those that are open again.
        changed = now.closed ^ (frozenset() if before is None else before.closed)
        for folder, directory in directories.items() if changed else ():
            # A folder is closed by itself or with its whole version.
            above = {folder, f"{table_dir}/{directory.placed.version}"}
            if above & changed:
                names = [sequence_name(folder, dispatcher, width) for dispatcher, width in directory.sequences]
                # Closed: TiCDC is done there for good. Open again: up to the mark, if there is one.
                raised |= {name: EVERYTHING if above & now.closed else raised.get(name, 0) for name in names}
        # What is raised now is not shown again after all.
        self._lowered = {name: 0 for name in self._lowered | shown if name not in raised}
        self._to_report |= raised

    def listed(self, after: Mapping[str, str], lowered: Mapping[str, int]) -> None:
        """Note that a listing with the marks `after` has ended; `lowered`: what `lowering` returned when it began."""
        self._latest = after
        # Raised marks win: they were judged after the listing that lowered these began.
        self._to_report = {**lowered, **self._to_report}

    def lowering(self) -> Mapping[str, int]:
        """Note that a listing begins; return the sequences that it shows again."""
        lowered, self._lowered = self._lowered, {}
        return lowered

    def take(self) -> dict[str, int]:
        """Return sequence → number up to which the latest or the next listing leaves files out, where that changed since the last call.

        `EVERYTHING`: TiCDC writes no more to the directory.
        """
        reported, self._to_report = self._to_report, {}
        return reported


def _sequence_name(numbering: str, mark: str) -> str:
    """Return the sequence that a mark belongs to."""
    data = parse_data_name(mark)
    assert data is not None, mark
    return sequence_name(numbering.rpartition("/")[0] if data.dispatcher else numbering, data.dispatcher, data.width)


def _number_of(mark: str) -> int:
    data = parse_data_name(mark)
    assert data is not None, mark
    return data.number
