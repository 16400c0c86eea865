"""What paths show of a bucket: tables, versions, files, layouts; and a sample of data files.

Memory grows with the directories, not the files.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace

from storage_consumer.bucket.foreign import kind_of_path
from storage_consumer.bucket.paths import (
    COPY,
    EMPTY,
    UNKNOWN,
    DataDirectory,
    DataName,
    Ignored,
    SchemaPath,
    is_of_file_system,
    parse_data_name,
    parse_other,
    place_directory,
)
from storage_consumer.bucket.reader import DisplacedFolders
from storage_consumer.bucket.schema_file import read_definition
from storage_consumer.bucket.storage import Storage, read_up_to
from storage_consumer.bucket.table_statements import known_virtual
from storage_consumer.errors import FilesMissing, MalformedSchemaFile
from storage_consumer.model import SchemaFile, StoredObject, TableDefinition
from storage_consumer.sql.parse import parsed

_DATES = {0: "none", 4: "year", 7: "month", 10: "day"}
"""Letters of a date → the kind of date directory."""
_YEARS = range(1_000, 10_000)
_UNPLACED = "data file without a schema file"
_STRANGERS = 3


@dataclass(slots=True, kw_only=True)
class SurveyedFolder:
    """One directory of data files."""

    path: str
    files: int = 0
    size: int = 0
    first: StoredObject | None = None
    last: StoredObject | None = None
    largest: StoredObject | None = None
    extensions: Counter[str] = field(default_factory=Counter)
    widths: set[int] = field(default_factory=set)
    sequences: dict[tuple[str, int], list[int]] = field(default_factory=dict)
    """(dispatcher, width) → [lowest number, highest number, count]."""
    table_dir: str = ""
    """The table directory; empty: no schema file says whose it is."""
    version: int = 0
    partition: bool = False
    date: str = ""
    """``day``, ``month``, ``year``, ``none``; four digits alone, maybe a partition, count as a
    year.
    """

    def take(self, stored: StoredObject, name: DataName) -> None:
        """Count a file."""
        self.files += 1
        self.size += stored.size
        self.extensions[name.extension] += 1
        # As written, since leading zeros show the width that TiCDC pads to.
        digits = len(
            stored.path.rpartition("/")[2].rpartition(".")[0].removeprefix("CDC").rpartition("_")[2]
        )
        self.widths.add(digits)
        if self.first is None or stored.path < self.first.path:
            self.first = stored
        if self.last is None or stored.path > self.last.path:
            self.last = stored
        if self.largest is None or stored.size > self.largest.size:
            self.largest = stored
        span = self.sequences.setdefault(
            (name.dispatcher, name.width), [name.number, name.number, 0]
        )
        span[:] = [min(span[0], name.number), max(span[1], name.number), span[2] + 1]

    @property
    def missing(self) -> int:
        """The count of numbers missing between the lowest and the highest of each sequence."""
        # Counted from the lowest number that is there: what expired before it is not missing.
        return sum(high - low + 1 - count for low, high, count in self.sequences.values())


@dataclass(slots=True, kw_only=True)
class Survey:
    """A bucket's paths."""

    folders: dict[str, SurveyedFolder] = field(default_factory=dict)
    schemas: dict[str, dict[int, list[StoredObject]]] = field(default_factory=dict)
    """Table directory → version → its schema files."""
    old_schemas: dict[str, dict[int, list[StoredObject]]] = field(default_factory=dict)
    """The same for the layout before TiCDC 6.5.3 and 7.1."""
    ignored: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)
    """Reason → the first path skipped for it."""
    objects: int = 0
    size: int = 0
    roots: set[str] = field(default_factory=set)
    """Folders below the root that have a ``metadata`` of their own."""
    kinds: dict[str, str] = field(default_factory=dict)
    """Key of `foreign.KINDS` that paths show → the first such path."""
    strangers: list[str] = field(default_factory=list)
    """The first paths that are not TiCDC's and show no kind."""

    def placed(self) -> list[SurveyedFolder]:
        """Return the directories whose table a schema file names."""
        return [folder for folder in self.folders.values() if folder.table_dir]

    def versions(self, table_dir: str) -> dict[int, list[StoredObject]]:
        """Return version → schema files of one table directory, of either layout."""
        return {**self.old_schemas.get(table_dir, {}), **self.schemas.get(table_dir, {})}

    def without(self, copies: DisplacedFolders) -> None:
        """Leave out what is below folders that hold copies."""
        for found in (self.folders, self.schemas, self.old_schemas):
            for folder in [folder for folder in found if copies.holds(f"{folder}/")]:
                del found[folder]
        for folder in sorted(copies.folders):
            self.ignore(COPY, folder)

    def ignore(self, reason: str, path: str) -> None:
        """Count an object that is skipped."""
        self.ignored[reason] += 1
        self.examples.setdefault(reason, path)
        if reason == UNKNOWN and (kind := kind_of_path(path)):
            self.kinds.setdefault(kind, path)
        elif reason == UNKNOWN and len(self.strangers) < _STRANGERS:
            self.strangers.append(path)


def survey(listing: Iterable[StoredObject]) -> Survey:
    """Return what one full listing shows."""
    seen = Survey()
    for stored in listing:
        seen.objects += 1
        seen.size += stored.size
        if stored.path == "metadata":
            continue
        parent, _, name = stored.path.rpartition("/")
        # Data files first, by name alone: all schema files are needed to show whose they are.
        data = parse_data_name(name)
        parsed = None if data else parse_other(stored.path)
        if name == "metadata":
            seen.roots.add(parent)
        if parsed == "index":
            continue
        if not stored.size:
            seen.ignore(EMPTY, stored.path)
        elif data:
            seen.folders.setdefault(parent, SurveyedFolder(path=parent)).take(stored, data)
        elif isinstance(parsed, SchemaPath):
            found = seen.old_schemas if parsed.checksum is None else seen.schemas
            found.setdefault(parsed.table_dir, {}).setdefault(parsed.version, []).append(stored)
        elif isinstance(parsed, Ignored):
            seen.ignore(parsed.reason, stored.path)
    # Placing needs all schema files; a listing shows data directories (digits) before meta/.
    nothing = frozenset[int | None]()
    tables = {
        each: dict.fromkeys(seen.versions(each), nothing)
        for each in {*seen.schemas, *seen.old_schemas}
    }
    for folder in seen.folders.values():
        placed = place_directory(folder.path, tables, None, partition_separator=None)
        if isinstance(placed, DataDirectory) and placed.version in tables.get(placed.table_dir, ()):
            folder.table_dir, folder.version = placed.table_dir, placed.version
            is_year = placed.partition in _YEARS and not placed.date
            folder.partition = placed.partition is not None and not is_year
            folder.date = "year" if is_year else _DATES[len(placed.date)]
    return seen


def ignore_unplaced(seen: Survey) -> None:
    """Count the data files of which no schema file says whose they are."""
    for folder in seen.folders.values():
        if not folder.table_dir:
            reason = COPY if is_of_file_system(folder.path) else _UNPLACED
            seen.ignored[reason] += folder.files
            seen.examples.setdefault(reason, folder.path)


MOST_FILES = 40
"""Upper limit of sampled data files, spread over as many tables as there are."""
HEAD = 64 * 1024
"""Bytes to read of each data file."""
MOST_SCHEMA_FILES = 400
PER_TABLE = 24
"""Upper limits of the schema files to read in all, and of one table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The beginning of one data file."""

    path: str
    content: bytes
    complete: bool
    """Whether `content` is the whole finished file; else it starts with a row and may end in one.
    """
    definition: TableDefinition
    virtual: frozenset[str] | None
    """Folded names of the table's virtual generated columns; None if uncertain."""

    @property
    def extension(self) -> str:
        """``csv`` or ``json``."""
        return self.path.rpartition(".")[2]


@dataclass(slots=True)
class Samples:
    """What was read of a bucket."""

    storage: Storage
    seen: Survey
    files: list[Sample] = field(default_factory=list)
    definitions: dict[str, list[TableDefinition]] = field(default_factory=dict)
    """Table directory → content of its schema files, as far as they were read."""
    warnings: list[str] = field(default_factory=list)
    schema_files: int = 0

    def take(self) -> None:
        """Read a sample of the bucket; skip gone or unreadable files with a warning."""
        newest = set[str]()
        for folder, stored in _chosen(self.seen):
            definitions = self._definitions_of(folder.table_dir, folder.version)
            current = [each for each in definitions if each.version == folder.version]
            # No readable one, or several of one version: whose rows these are is uncertain.
            if len(current) != 1:
                continue
            try:
                content = read_up_to(self.storage, stored.path, HEAD)
            except FileNotFoundError:
                self.warnings.append(f"{stored.path} was listed but is gone")
                continue
            except FilesMissing as error:
                self.warnings.append(str(error))
                continue
            # From the last rename on: before it the directory was another table's.
            upto = sorted(
                (each for each in definitions if each.version <= folder.version),
                key=lambda each: each.version,
            )
            renames = [
                place
                for place, each in enumerate(upto)
                if (pair := parsed(each).renamed) and pair[0] != pair[1]
            ]
            newest |= {stored.path} if stored == folder.last else set()
            self.files.append(
                Sample(
                    path=stored.path,
                    content=content,
                    complete=len(content) >= stored.size,
                    definition=current[0],
                    virtual=known_virtual(current[0], upto[max(renames, default=0) :]),
                )
            )
        self.files = _as_far_as_written(self.files, newest)
        # Of each table without a sample the newest schema file, up to the limit.
        for table_dir in sorted(
            {*self.seen.schemas, *self.seen.old_schemas} - self.definitions.keys()
        ):
            if self.schema_files < MOST_SCHEMA_FILES and (
                versions := self.seen.versions(table_dir)
            ):
                self.definitions[table_dir] = list(self.read([versions[max(versions)]]))

    def _definitions_of(self, table_dir: str, version: int) -> list[TableDefinition]:
        """Return schema files of a table: all, or the newest and `version`'s if there are many."""
        versions = self.seen.versions(table_dir)
        if table_dir not in self.definitions:
            # The newest: virtual columns need a history without gaps up to a version.
            wanted = [versions[each] for each in sorted(versions)[-PER_TABLE:]]
            self.definitions[table_dir] = list(self.read(wanted))
        known = self.definitions[table_dir]
        if all(each.version != version for each in known):
            known.extend(self.read([versions[version]]))
        return known

    def read(self, wanted: Iterable[Iterable[StoredObject]]) -> Iterator[TableDefinition]:
        """Yield the content of schema files, up to the limit; tell what is odd about them."""
        for stored in (stored for files in wanted for stored in files):
            if self.schema_files >= MOST_SCHEMA_FILES:
                return
            self.schema_files += 1
            try:
                definition = read_definition(self.storage, stored.path)
            except (FileNotFoundError, FilesMissing, MalformedSchemaFile) as error:
                self.warnings.append(str(error))
                continue
            self.warnings += [f"{stored.path}: {warning}" for warning in definition.warnings]
            yield definition


def _as_far_as_written(samples: list[Sample], newest: Collection[str]) -> list[Sample]:
    """Return samples, `newest` files as incomplete unless they end as most do.

    A store of files shows one while it is written.
    """
    whole = [sample.content for sample in samples if sample.complete and sample.content]
    # Files that others follow are whole.
    surely = [
        sample.content
        for sample in samples
        if sample.complete and sample.content and sample.path not in newest
    ]
    ends = Counter(content[-1] for content in surely or whole)
    usual = max(ends, key=lambda end: ends[end], default=None)
    begins = {content[0] for content in whole if content[-1] == usual}

    def is_cut(sample: Sample) -> bool:
        content = sample.content
        # What does not even begin like the others is damaged.
        return (
            sample.path in newest
            and bool(content)
            and content[-1] != usual
            and content[0] in begins
        )

    return [replace(sample, complete=False) if is_cut(sample) else sample for sample in samples]


def leave_out_copies(storage: Storage, seen: Survey) -> None:
    """Leave copies of a changefeed's files out of a survey; see `DisplacedFolders`.

    A table's directory has one slash. Only those with more, or with the name of a filer's folder,
    are read.
    """
    copies, tables = DisplacedFolders(), {*seen.schemas, *seen.old_schemas}
    flat = [table_dir for table_dir in tables if table_dir.count("/") == 1]
    # A folder in which a database's tables may lie is not left out as a whole.
    roots = {root for root in seen.roots if not any(each.startswith(f"{root}/") for each in flat)}
    for table_dir in sorted(tables, key=lambda each: (each.count("/"), each)):
        if (table_dir.count("/") > 1 or is_of_file_system(table_dir)) and not copies.holds(
            f"{table_dir}/"
        ):
            versions = seen.versions(table_dir)
            stored = versions[max(versions)][0]
            # Its oddities are reported where it is read for the table.
            for found in Samples(storage, seen).read([[stored]]):
                file = SchemaFile(
                    stored=stored,
                    table_dir=table_dir,
                    version=found.version,
                    checksum=found.checksum,
                )
                copies.is_one(file, found.name, roots, tables)
    seen.without(copies)


def _chosen(seen: Survey) -> list[tuple[SurveyedFolder, StoredObject]]:
    """Return files of all tables in turn: the newest directory's largest, its last, then older."""
    by_table: dict[str, list[tuple[SurveyedFolder, StoredObject]]] = {}
    for folder in sorted(seen.placed(), key=lambda each: (each.version, each.path), reverse=True):
        files = {
            file.path: file
            for file in (folder.largest, folder.last, folder.first)
            if file is not None
        }
        by_table.setdefault(folder.table_dir, []).extend((folder, file) for file in files.values())
    # Tables in turn, the largest first: one table with many files must not use up the limit.
    turns = sorted(by_table.values(), key=lambda files: -sum(file.size for _, file in files))
    chosen: list[tuple[SurveyedFolder, StoredObject]] = []
    rank = 0
    while len(chosen) < MOST_FILES and any(len(files) > rank for files in turns):
        chosen += [files[rank] for files in turns if len(files) > rank]
        rank += 1
    return chosen[:MOST_FILES]
