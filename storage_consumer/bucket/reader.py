"""StorageReader: what TiCDC wrote since the last poll, and what of it may be handed out.

Folders that are not as a changefeed's should be: copies of its files, and those that all partitions
of a table write into.

Copies are what a filer shows of earlier hours, a backup, or the files of another changefeed.
Partitions of one folder overwrite one another's files, so that rows may be lost at the source.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from storage_consumer.bucket.inventory import Earlier, Findings, Inventory, shortened
from storage_consumer.bucket.metadata import (
    WAY_ON,
    Before,
    Metadata,
    ahead_of_clock,
    doubts,
    parse_metadata,
)
from storage_consumer.bucket.paths import COPY, folder_above, is_of_file_system
from storage_consumer.bucket.schema_file import directory_of, parse_schema_file
from storage_consumer.bucket.storage import METADATA_BYTES, Storage, read_schema_file, whole
from storage_consumer.clock import Clock
from storage_consumer.config.settings import Upstream
from storage_consumer.errors import ConfigError, FilesMissing, StorageUnavailable, TableError
from storage_consumer.model import (
    DataFile,
    DdlKind,
    SchemaFile,
    StoredObject,
    TableDefinition,
    TableName,
    TableVersion,
    is_ahead_of_clock,
)
from storage_consumer.plan.finished_files import Finished
from storage_consumer.sql.parse import parsed
from storage_consumer.sql.tokens import find_words, has_words, tokens


class DisplacedFolders:
    """Folders whose schema files say that TiCDC put them elsewhere.

    Names may hold slashes and dots, so a path alone shows nothing: a database can be called
    ``.snapshot``. But TiCDC puts a schema file where the names in it say.
    """

    def __init__(self) -> None:
        """Start without any."""
        self.folders: set[str] = set()
        self._own: set[str] = set()
        self._untold: dict[str, str] = {}

    def holds(self, path: str) -> bool:
        """Return whether a file is below one of them."""
        return bool(folder_above(path, self.folders))

    def is_one(
        self, file: SchemaFile, name: TableName, roots: Collection[str], tables: Container[str]
    ) -> bool:
        """Return whether a schema file that names `name` is a copy; so is all beside and below it.

        To be asked of files in folders of few levels first. `roots`: folders that have a
        ``metadata``, as the root of a changefeed's files has: such a copy counts as a whole.
        `tables`: the table directories that there are.
        """
        table_dir, own = file.table_dir, directory_of(name)
        # With table ids as paths, one of them is in its place below the root alone. TiCDC may spell
        # a database otherwise after a rename.
        if table_dir.lower() == own.lower() or table_dir.isdecimal():
            self._own.add(table_dir)
            return False
        below = own if table_dir.endswith(f"/{own}") else table_dir.rpartition("/")[2]
        is_below = "/" in table_dir and (below == own or below.isdecimal())
        # A folder that was only moved is read as what its files say.
        if not (is_below or own in tables or is_of_file_system(table_dir)):
            return False
        folder = table_dir.removesuffix(f"/{below}")
        # Never a folder with tables that are in their place: whoever copies into a database's
        # folder leaves these there.
        is_others = folder in roots and not any(each.startswith(f"{folder}/") for each in self._own)
        is_whole = is_below and bool(name.table) and is_others
        folder = folder if is_whole else table_dir
        self.folders.add(folder)
        self._untold[folder] = (
            f"{file.stored.path} is the schema file of {name}, whose folder is {own}"
        )
        return True

    def warnings(self) -> Iterator[str]:
        """Yield what an operator should know of the new ones, each once."""
        untold, self._untold = self._untold, {}
        for folder in shortened(list(untold)):
            yield (
                f"nothing below {folder} is read: {untold.get(folder, 'likewise')}. A filer's snapshot, a backup or another changefeed leaves "
                "such files. If they are files of this changefeed, put them where it writes them"
            )


_OF_PARTITIONS = frozenset(
    (
        DdlKind.ADD_PARTITION,
        DdlKind.DROP_PARTITION,
        DdlKind.TRUNCATE_PARTITION,
        DdlKind.REORGANIZE_PARTITION,
        DdlKind.ALTER_PARTITIONING,
    )
)
_NONE_FROM_HERE = frozenset(
    (DdlKind.REMOVE_PARTITIONING, DdlKind.RENAME_TABLE, DdlKind.RENAME_TABLES)
)
_NAMED = 5


def may_be_lost(names: Iterable[str]) -> str:
    """Return the warning about partitioned tables whose partitions share a folder."""
    tables = sorted(names)
    more = f" and {len(tables) - _NAMED:,} more" if len(tables) > _NAMED else ""
    return (
        f"the partitions of {', '.join(tables[:_NAMED])}{more} write into one folder (enable-partition-separator = false), where TiCDC "
        "lets them overwrite one another's files: rows may be lost at the source, and no file shows which. Set it to true in the "
        "changefeed, and load these tables anew (`storage-consumer load`); `storage-consumer verify` tells what is missing"
    )


def partitioning(definition: TableDefinition) -> bool | None:
    """Return whether a statement gives a table partitions; None if it does not say."""
    if definition.ddl_type in _OF_PARTITIONS:
        return True
    # A rename brings another table under the name; nothing here says whether that one has any, so
    # it is not warned of.
    if definition.ddl_type in _NONE_FROM_HERE:
        return False
    found = (
        tokens(definition.query)
        if definition.ddl_type in (DdlKind.CREATE_TABLE, DdlKind.CREATE_TABLES)
        else ()
    )
    if not found or has_words(found, "LIKE", depth=0):
        return None
    at = find_words(found, "PARTITION", "BY", depth=0)
    # TiDB makes a table without partitions of it.
    return at > 0 and not has_words(found[at + 2 : at + 3], "SYSTEM_TIME")


def is_partitioned(said: Mapping[TableVersion, bool], version: TableVersion) -> bool:
    """Return whether a table has partitions in a version; `said`: version → its statement's."""
    return said.get(max((each for each in said if each <= version), default=TableVersion(0)), False)


class SharedFolders:
    """Finds the partitioned tables of which files lie in no partition's folder; tells each once."""

    def __init__(self, *, partition_separator: bool | None) -> None:
        """With False, each partitioned table is one."""
        self._separator = partition_separator
        self._names: dict[str, str] = {}
        self._said: dict[str, dict[TableVersion, bool]] = {}
        self._versions: dict[str, set[TableVersion]] = {}
        """Those with files outside of partitions' folders."""
        self._told: set[str] = set()

    def warnings(
        self, schema_files: Iterable[tuple[str, TableDefinition]], files: Iterable[DataFile]
    ) -> Iterator[str]:
        """Yield what is to be said of new files; `schema_files`: with their table directories."""
        touched = set[str]()
        for table_dir, definition in schema_files:
            touched.add(table_dir)
            if (said := partitioning(definition)) is not None:
                self._said.setdefault(table_dir, {})[definition.version] = said
                self._names[table_dir] = str(definition.name)
        for file in files:
            if file.partition is None:
                touched.add(file.table_dir)
                self._versions.setdefault(file.table_dir, set()).add(file.version)
        new = set[str]()
        for each in touched & self._names.keys() - self._told:
            said_of = self._said[each]
            versions = self._versions.get(each, ())
            partitioned = (is_partitioned(said_of, version) for version in versions)
            if any(said_of.values() if self._separator is False else partitioned):
                new.add(each)
        if new:
            self._told |= new
            yield may_be_lost({self._names[each] for each in new})


ODD_METADATA = "metadata without a checkpoint-ts that can be one"
_LISTINGS = 3
"""Most listings in one poll."""


_IDS_AS_PATH = (
    "the changefeed has use-table-id-as-path: TiCDC then writes no statement about databases, so a database that is "
    "dropped at the source stays in the target until someone drops it there"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadSchemaFile:
    """A schema file, and what reading it gave."""

    file: SchemaFile
    content: TableDefinition | TableError | StorageUnavailable
    """What it says; `FilesMissing` if it was gone before it was read, `MalformedSchemaFile` if it
    cannot be read as one.

    `StorageUnavailable` if the store does not answer, or gave fewer bytes than were listed: then
    nothing of the poll may be applied.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Poll:
    """What one poll saw."""

    checkpoint: int
    """Highest checkpoint-ts read from ``metadata`` so far; 0 while there is none."""
    checkpoint_is_new: bool
    """Whether it rose in this poll."""
    schema_files: tuple[ReadSchemaFile, ...]
    """New or changed ones."""
    data_files: tuple[DataFile, ...]
    """New ones, or ones whose content changed under a known name; each is exposed once."""
    vanished: tuple[DataFile, ...]
    """Listed before, no longer there (only known after a full listing)."""
    changed: int
    """Number of `data_files` that were known under another tag."""
    overwritten: tuple[DataFile, ...] = ()
    """Those of them whose new rows the checkpoint may have passed before they were seen."""
    ignored: dict[str, int]
    """Objects of no known kind, counted by reason, as of the last full listing."""
    warnings: tuple[str, ...] = ()
    continues_from: int = 0
    """TSO after which files that replace all former ones hold every row; 0: they do not."""
    full: bool = True
    """Whether everything was listed."""
    finished: int = 0
    """Number of data files that an earlier run finished, so `data_files` lacks them."""
    refused_checkpoint: int = 0
    """What ``metadata`` says if that lies too far ahead of the clock to be believed; else 0."""
    unreadable_metadata: int = 0
    """Number of times since the start that ``metadata`` existed but held no valid checkpoint-ts."""


class Holding:
    """Listed files to hand out later, never before one that TiCDC wrote earlier elsewhere.

    A listing is not a snapshot: at midnight it may show the new day's first file and lack the old
    day's last one, which was written in between. Where rows carry no commit-ts, applying the former
    before the latter lets older values win.

    TiCDC goes on to another directory of a table and partition once all files of the previous one
    are stored. So whatever existed before the first file of a directory is shown by any listing
    that begins after that file was seen. Files of a directory are held back until such a listing
    has ended; within a directory their numbers show what is missing. Listing again within one poll
    is enough: a file that only the second listing shows is newer than the checkpoint that was read
    before the first.
    """

    def __init__(self) -> None:
        """Start without any listed file."""
        # Folders that an earlier listing has shown.
        self._known: set[str] = set()
        self._held: dict[str, DataFile] = {}

    def __len__(self) -> int:
        """Return the number of files held back."""
        return len(self._held)

    def take(self, files: Iterable[DataFile], *, moved: bool) -> tuple[DataFile, ...]:
        """Return the files that may be handed out once a listing that showed `files` has ended.

        `moved`: the listing showed some files under the wrong table, and the next one corrects it;
        none is handed out before that.
        """
        # By path: a file rewritten while held is handed out once, in its newest state.
        self._held |= {file.stored.path: file for file in files}
        if moved:
            return ()
        folders = {path: path.rpartition("/")[0] for path in self._held}
        ready = tuple(file for path, file in self._held.items() if folders[path] in self._known)
        self._held = {
            path: file for path, file in self._held.items() if folders[path] not in self._known
        }
        # Last: a folder that this listing is the first to show has to wait for the next one.
        self._known.update(folders.values())
        return ready


class StorageReader:
    """Reads the storage, handing out each file once: TiDB's ReadFiles and ExposeNewFiles."""

    def __init__(
        self,
        storage: Storage,
        upstream: Upstream,
        clock: Clock,
        *,
        full_listing_interval: float = 600.0,
    ) -> None:
        """Expect `upstream`'s files in `storage`; `full_listing_interval`: `clock` seconds."""
        self._storage = storage
        self._upstream = upstream
        self._clock = clock
        self._interval = full_listing_interval
        self._metadata = Metadata()
        self._inventory = Inventory(
            upstream.date_separator,
            partition_separator=upstream.partition_separator,
            extension="csv" if upstream.protocol == "csv" else "json",
        )
        self._shared = SharedFolders(partition_separator=upstream.partition_separator)
        self._holding = None if upstream.tells_time else Holding()
        self._findings: list[Findings] = []
        self._last_full: float | None = None
        self._returned = 0
        self._warns_of_ids = True
        self._left_out = frozenset[str]()
        self._copies = DisplacedFolders()
        self._before: Before | None = None
        self._versions: set[tuple[str, int]] = set()
        # Version and path of the schema files of this run: the newest that is not after the
        # checkpoint, and all that are. While that one is there, so is the changefeed that was read.
        self._landmarks: list[tuple[int, str]] = []
        self.way_on = WAY_ON
        """What to do with a bucket that is another changefeed's: it ends the error."""

    def poll(self) -> Poll:
        """Return what is new since the last poll, with the content of the schema files.

        ``metadata`` is read first, then the storage is listed: so the checkpoint never covers a
        file that the listing lacks. Raises `StorageUnavailable`; then nothing is lost, and the next
        poll returns what this one had found. So it does if that is the content of a schema file,
        which is returned so that the poll's warnings are not lost with it. Raises `ConfigError` if
        paths contradict the settings, or if the files are another changefeed's (see `resume`): then
        nothing may be applied.
        """
        now = self._clock.now()
        warnings = self._metadata.update(self._read_metadata(), now)
        checkpoint = self._metadata.checkpoint
        judged, full = self._read_files(checkpoint)
        if self._is_suspect(full=full):
            # Only a listing that skips nothing shows whether anything is left of it.
            self._last_full = None
            judged, full = self._read_files(checkpoint)
            self._before = Before(
                checkpoint=self._returned, sequences=(), schema_files=self._versions
            )
        schema_files = tuple(self._read_schema_files())
        if self._inventory.forget(self._copies.folders):
            # Judged once more without them: what the paths of other files say means nothing here.
            again = self.poll()
            return replace(again, warnings=(*warnings, *again.warnings))
        said, begin = ("", 0) if self._before is None else self.doubts_of(self._before)
        self._refuse_contradictions(judged)
        findings, copies = self._findings, self._copies
        odd = self._metadata.unreadable
        others = judged.ignored.get(COPY, 0) + len(copies.folders)
        ignored = {**judged.ignored, ODD_METADATA: odd, COPY: others}
        files = (file for found in findings for file in found.data_files)
        data_files = tuple(file for file in files if not copies.holds(file.stored.path))
        contents = ((each.file.table_dir, each.content) for each in schema_files)
        read = [
            (table_dir, content)
            for table_dir, content in contents
            if isinstance(content, TableDefinition)
        ]
        poll = Poll(
            checkpoint=checkpoint,
            checkpoint_is_new=checkpoint > self._returned,
            schema_files=schema_files,
            data_files=data_files,
            vanished=tuple(file for found in findings for file in found.vanished),
            changed=sum(found.changed for found in findings),
            overwritten=tuple(file for found in findings for file in found.overwritten),
            ignored={reason: count for reason, count in ignored.items() if count},
            warnings=(
                *warnings,
                *filter(None, [said]),
                *copies.warnings(),
                *(text for found in findings for text in found.warnings),
                *self._too_new(now),
                *self._shared.warnings(read, data_files),
            ),
            continues_from=begin,
            full=full,
            finished=sum(found.finished for found in findings),
            unreadable_metadata=odd,
            refused_checkpoint=self._metadata.refused,
        )
        # The findings stay as they are: the next poll returns all of this again, with the schema
        # file that could not be read now.
        if any(isinstance(each.content, StorageUnavailable) for each in schema_files):
            return poll
        # Only now: whatever raised above is to find the same again in the next poll.
        self._findings = []
        # An empty prefix may still be given to another changefeed.
        if self._before and self._inventory.versions():
            self._before = None
        self._versions |= {(each.file.table_dir, each.file.version) for each in schema_files}
        fresh = {(each.file.version, each.file.stored.path) for each in schema_files}
        marks = sorted(fresh.union(self._landmarks))
        self._landmarks = marks[max(0, sum(version <= checkpoint for version, _ in marks) - 1) :]
        self._inventory.earlier = None
        self._returned = checkpoint
        return poll

    @property
    def may_be_another(self) -> bool:
        """Whether ``metadata`` once went back so far that another changefeed may own the bucket."""
        return self._metadata.went_back

    def checkpoint_now(self) -> int:
        """Return ``metadata``'s checkpoint-ts now, 0 if absent; the next poll reads it again."""
        content = self._read_metadata()
        return (parse_metadata(content) or 0) if content is not None else 0

    def look(self) -> Poll:
        """Return what a new reader's first poll gives, without effect on this one's polls."""
        return StorageReader(self._storage, self._upstream, self._clock).poll()

    def resume(
        self,
        checkpoint: int,
        finished: Mapping[str, Finished],
        kept: Collection[tuple[str, int]] = frozenset(),
        *,
        applied: int = 0,
    ) -> None:
        """Continue from an earlier run's checkpoint-ts and finished files, by sequence.

        The first poll counts those that are unchanged, and shows at least one file of each
        sequence. `kept`: table directory and version of the schema files that were read. `applied`:
        see `Before`. The first poll raises `ConfigError` if the files that are there now belong to
        another changefeed.
        """
        self._metadata.checkpoint = max(checkpoint, self._metadata.checkpoint)
        self._before = Before(
            checkpoint=checkpoint, applied=applied, sequences=finished.keys(), schema_files=kept
        )
        self._versions |= set(kept)
        self._inventory.earlier = Earlier(finished, rereads=self._upstream.tells_time)

    def _is_suspect(self, *, full: bool) -> bool:
        """Return whether new schema files may be another changefeed's that now owns the prefix."""
        if self._before is not None or not any(found.schema_files for found in self._findings):
            return False
        if not self._landmarks or self._landmarks[0][0] > self._returned:
            return False
        if full:
            return True
        try:
            self._storage.read(self._landmarks[0][1])
        except FileNotFoundError:
            return True
        return False

    def left_out(self) -> dict[str, int]:
        """Return sequence → number up to which listings skip, if changed; see `Finished.left_out`.

        Store it before the next poll: a later run has to know what this one may not have seen.
        """
        return self._inventory.left_out.take()

    def list_everything(self) -> None:
        """Skip nothing in the next poll's listing: listings so far are wrong somewhere."""
        self._last_full = None

    def leave_out(self, directories: frozenset[str]) -> None:
        """Stop listing these directories: nobody wants what is in them."""
        self._left_out = directories

    def set_apart(self, schema_file: SchemaFile) -> None:
        """Note a schema file in another table's place: that table's rows do not go by it.

        A poll does so for all that it could read.
        """
        self._inventory.set_apart(schema_file)

    def _read_schema_files(self) -> Iterator[ReadSchemaFile]:
        """Yield new schema files with their content, up to the first one without an answer."""
        # By path, since a file may have been replaced between two listings: then its former size
        # and tag no longer count.
        roots = frozenset[str]().union(*(found.roots for found in self._findings))
        newest = {
            file.stored.path: file for found in self._findings for file in found.schema_files
        }.values()
        # What lies deep may be a copy, which shows best beside what is in its place.
        for file in sorted(newest, key=lambda file: file.table_dir.count("/")):
            if self._copies.holds(file.stored.path):
                continue
            path = file.stored.path
            try:
                content = b"".join(whole([read_schema_file(self._storage, path)], file.stored))
                definition = parse_schema_file(
                    content, path, file.version, file.checksum, table_dir=file.table_dir
                )
            except FileNotFoundError:
                gone = FilesMissing(
                    f"schema file {path} was listed but is gone. Restore it from a copy of the bucket: without it the rows "
                    f"in {file.table_dir}/{file.version} can't be read"
                )
                yield ReadSchemaFile(file=file, content=gone)
                continue
            except TableError as fault:
                yield ReadSchemaFile(file=file, content=fault)
                continue
            except StorageUnavailable as fault:
                yield ReadSchemaFile(file=file, content=fault)
                return
            # A table directory of one segment: TiCDC writes it only if table ids are the paths.
            if self._warns_of_ids and definition.name.table and "/" not in file.table_dir:
                self._warns_of_ids = False
                definition = replace(
                    definition, warnings=(*definition.warnings, f"{path}: {_IDS_AS_PATH}")
                )
            if self._copies.is_one(file, definition.name, roots, self._inventory.tables()):
                continue
            if parsed(definition).is_astray:
                self.set_apart(file)
            yield ReadSchemaFile(file=file, content=definition)

    def doubts_of(self, before: Before) -> tuple[str, int]:
        """Warn, with the files' first TSO, if the bucket may not be that of `before`: `doubts`."""
        there, latest = self._inventory.versions(), self._metadata.latest
        return doubts(before, there, latest, self._upstream.identity, self.way_on)

    def _too_new(self, now: float) -> Iterator[str]:
        """Warn of versions that no source can have issued yet, unless the clock must be wrong."""
        # If `metadata` is ahead too, the clock is the likelier culprit, already reported.
        if self._metadata.refused:
            return
        files = (file for found in self._findings for file in found.schema_files)
        for file in (file for file in files if is_ahead_of_clock(file.version, now)):
            yield f"{file.stored.path} waits for the checkpoint to reach its version: {ahead_of_clock(file.version, now)}"

    def _read_metadata(self) -> bytes | None:
        try:
            return self._storage.read("metadata", METADATA_BYTES)
        except FileNotFoundError:
            return None

    def _read_files(self, checkpoint: int) -> tuple[Findings, bool]:
        """List until all files have a table and none held back may be covered by the checkpoint.

        One listing is enough unless a schema file moved files, or order matters in a new directory.
        Returns what the last listing by all rules showed, and whether it was full; `_findings`
        holds what all of them found.
        """
        began = self._clock.monotonic()
        full = self._last_full is None or began - self._last_full >= self._interval
        judged = self._list(checkpoint, full=full)
        for _ in range(_LISTINGS - 1):
            judged = self._list(checkpoint, full=full) if judged.moved else judged
        # The second listing releases what the first one held back.
        if self._holding:
            self._list(checkpoint, full=False)
        # Only now, so that a full listing that failed is made again. It counts from its beginning:
        # later files may be missing from it.
        if full:
            self._last_full = began
        return judged, full

    def _list(self, checkpoint: int, *, full: bool) -> Findings:
        """List once; the findings are kept until a poll succeeds."""
        inventory, holding = self._inventory, self._holding
        closed, after = (frozenset[str](), {}) if full else (inventory.closed, inventory.after)
        others = self._left_out.union(self._copies.folders)
        listing = self._storage.listing(closed | others if others else closed, after)
        shown = self._not_empty(listing, full=full)
        if self._copies.folders:  # a store may show more than it has to
            shown = (stored for stored in shown if not self._copies.holds(stored.path))
        found = inventory.observe(shown, full=full, checkpoint=checkpoint)
        if holding is not None:
            found.data_files = holding.take(found.data_files, moved=found.moved)
        self._findings.append(found)
        return found

    def _not_empty(self, listing: Iterator[StoredObject], *, full: bool) -> Iterator[StoredObject]:
        """Yield the listing; a storage that lost all its objects counts as absent, not emptied."""
        empty = True
        for stored in listing:
            empty = False
            yield stored
        # A file system that is not mounted raises nothing: its folder is just empty.
        if full and empty and len(self._inventory):
            raise StorageUnavailable(
                f"{self._upstream.identity} has no objects any more; there were {len(self._inventory)} schema and "
                "data files. Is the file system mounted, is the prefix still the same?"
            )

    def _refuse_contradictions(self, found: Findings) -> None:
        """Raise `ConfigError` if a path shows that TiCDC wrote with other settings."""
        upstream = self._upstream
        settings = [f"protocol={upstream.protocol}"]
        if upstream.date_separator is not None:
            settings.append(f"date-separator={upstream.date_separator}")
        if upstream.partition_separator is not None:
            settings.append(
                f"enable-partition-separator={str(upstream.partition_separator).lower()}"
            )
        if found.contradictions:
            raise ConfigError(
                f"the paths contradict the settings {', '.join(settings)}: "
                f"{'; '.join(shortened(found.contradictions))}. Give the values that the changefeed has"
            )
