"""Export tables of a live TiDB as of one TSO, for --source without running Dumpling.

That is the option of `load` and of `run`.

It locks nothing and writes nothing at the source. While it runs, a transaction that stays open
keeps TiDB's garbage collection from the snapshot. The file ``metadata`` comes last, so an export
that was broken off is never taken for a whole one. Any export is opened here too, by its URI.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import chain
from queue import SimpleQueue

from storage_consumer.bucket.export import read_export, refuse_unsaid
from storage_consumer.bucket.export_names import (
    WrittenFile,
    data_file,
    database_file,
    metadata_file,
    table_file,
    view_file,
)
from storage_consumer.bucket.storage import Folder, Storage
from storage_consumer.bucket.stores import open_folder, open_storage
from storage_consumer.bucket.table_statements import is_temporary, read_create_table
from storage_consumer.clock import Pace, some_of
from storage_consumer.config.load import Loaded, below, export_origin, parse_export, refuse_inside
from storage_consumer.config.parsers import is_system
from storage_consumer.config.settings import Loading, Secrets, Server, Upstream
from storage_consumer.config.table_filter import table_rules
from storage_consumer.driver.open_copies import OpenCopy, copy_of, with_form
from storage_consumer.errors import Abandoned, ConfigError, SnapshotLost
from storage_consumer.model import TableName
from storage_consumer.rows.compared_layout import KeyRange
from storage_consumer.sql.parse import table_names
from storage_consumer.sql.tokens import qualified, tokens
from storage_consumer.target.existing_names import text_of
from storage_consumer.target.source_reading import ExportedTable, Reading
from storage_consumer.telemetry import Log


def opened_export(
    uri: str,
    bucket: Upstream,
    secrets: Secrets,
    *,
    is_taken: Callable[[TableName], bool] = lambda _: True,
) -> tuple[OpenCopy, Storage]:
    """Return the export at a URI as a copy, and its store, read with the bucket's `secrets`.

    `is_taken`: which tables are read. Raises `ConfigError` where the URI or the export cannot be
    used, and what storages raise.
    """
    origin = export_origin(uri, bucket)
    storage = open_storage(origin, secrets)
    export = read_export(storage, wanted=is_taken)
    origin = with_form(origin, export, bucket.time_zone)
    refuse_unsaid(storage, export, origin, said=parse_export(uri).parameters)
    return copy_of(export, origin), storage


_log = Log("export")
_KEYLESS = (
    "not exported, since TiCDC writes tables without a key only with force-replicate: {}. If the changefeed has that, say so by --config, in a first "
    "run; once it has written one of them, `storage-consumer load` loads it"
)
_NAMED = 5
"""Most tables that a message names."""
_TOLD_EVERY = 10.0
"""Seconds after which it is told again how far an export is."""
_KEPT_BY = 60.0
"""Seconds after which the connection that keeps the snapshot says something again."""
_FILE_BYTES = 16 << 20
"""About as many bytes of values as a file has."""
_TIME = "%Y-%m-%d %H:%M:%S"
_FEWEST_ROWS, _MOST_ROWS = 10, 100_000
_AHEAD = 2
"""Ranges per worker that are drawn ahead of their reading."""
_ATTEMPTS = 3
"""Snapshots that are tried. One is lost where TiDB's garbage collection passes it, which a
transaction holds back for a day by default.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """A finished export."""

    snapshot: int
    """The TSO as of which it is."""
    files: int
    rows: int
    lost: tuple[str, ...] = ()
    """Why earlier snapshots could be read no longer, after which the export began again with a
    newer one.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportWishes:
    """How the source is read."""

    workers: int = 2
    """Connections on which rows are read."""
    rows_per_second: float = 0.0
    """The most rows that all of them together read; 0 for any number."""


_TABLES = "SELECT table_schema, table_name, table_type FROM information_schema.tables ORDER BY 1, 2"
_KEYED = (
    "SELECT s.table_schema, s.table_name FROM information_schema.statistics s LEFT JOIN information_schema.columns c ON "
    "c.table_schema = s.table_schema AND c.table_name = s.table_name AND c.column_name = s.column_name WHERE s.non_unique = 0 "
    "GROUP BY s.table_schema, s.table_name, s.index_name "
    "HAVING SUM(c.is_nullable = 'NO' AND c.extra NOT LIKE '%VIRTUAL GENERATED%') = COUNT(*)"
)
"""Tables with a key by which TiCDC takes them: unique, over stored columns that are never NULL."""
Judge = Callable[[Sequence[TableName]], object]


def exported(
    source: Server,
    wanted: TableName | TablesOfFeed,
    folder: Folder,
    wishes: ExportWishes,
    heard: Callable[[int], object] = lambda _: None,
    judge: Judge = lambda _: None,
) -> Exported:
    """Export a table, or all tables and views that are wanted, into an empty folder.

    `heard` is called with the rows of each file that is written, and `judge` first, with the names
    of all tables: it may raise.

    Raises `ConfigError` where the source cannot be read as of a TSO, has no such table, or the
    folder holds anything; `SnapshotLost` where the source's garbage collection was faster, for one
    table again and again; and what storages and servers raise.
    """
    if (found := folder.any_object()) is not None:
        raise ConfigError(
            f"the folder for the export is not empty: it holds {found.path}. Give an empty one, or remove what an export that was "
            "broken off has left"
        )
    lost: list[str] = []
    writing = _Writing(folder)
    while True:
        counts: list[int] = []
        try:
            for rows in _written(source, wanted, writing, wishes, judge):
                counts.append(rows)
                heard(rows)
        except SnapshotLost as fault:
            lost.append(str(fault))
            # Of several, one that the newer snapshot lacks would leave its statement in the folder.
            if len(lost) == _ATTEMPTS or not isinstance(wanted, TableName):
                raise
            heard(-sum(counts))
            writing.begin_again()
        else:
            # An empty range, as behind the last row, has no file.
            files = sum(rows > 0 for rows in counts)
            return Exported(
                snapshot=writing.snapshot, files=files, rows=sum(counts), lost=tuple(lost)
            )


class TablesOfFeed:
    """A source's tables that a feed brings, by its filter, the changefeed's and TiCDC's keys."""

    def __init__(
        self, loading: Loading, is_taken: Callable[[TableName], bool], *, case: bool = False
    ) -> None:
        """Raise `ConfigError` for rules of the changefeed that cannot be read.

        `is_taken`: the filter of this program; `case`: names are case-sensitive.
        """
        try:
            self._rules = table_rules(loading.source_rules, case=case)
        except ValueError as fault:
            raise ConfigError(f"[filter] rules of the changefeed: {fault}") from None
        self._loading = loading
        self._is_taken = is_taken
        self.keyless: list[str] = []
        """Those that were left out for want of a key."""

    def __call__(self, name: TableName, *, is_keyed: bool) -> bool:
        """Return whether to export a table; `is_keyed`: it has a key by which TiCDC takes it."""
        if not self._is_taken(name):
            return False
        if self._loading.source_rules and not self._rules.matches(name.schema, name.table):
            return False
        if not (is_keyed or self._loading.source_keyless):
            self.keyless.append(str(name))
            return False
        return True


def export_of_feed(
    loaded: Loaded, is_taken: Callable[[TableName], bool], ended: Callable[[], bool], judge: Judge
) -> str:
    """Export the tables of `Loaded.source` to a new folder below `Loading.dump`.

    Return its URI. Only tables that the filters take are exported.

    `ended`: whether the run has been asked to end; `judge`: see `exported`. Raises what `exported`
    does, and `Abandoned` once it has.
    """
    config = loaded.config
    assert loaded.source is not None
    # A folder takes objects, but gives none up: what an export that was broken off has left lies in
    # another one.
    name = f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{uuid.uuid4().hex[:8]}"
    uri = below(config.loading.dump, name)
    folder = open_export_folder(uri, loaded)
    wanted = TablesOfFeed(config.loading, is_taken, case=config.upstream.case_sensitive)
    read, told_at = 0, time.monotonic()

    def heard(rows: int) -> None:
        nonlocal read, told_at
        read += rows
        if ended():
            raise Abandoned("the export was broken off")
        if time.monotonic() - told_at >= _TOLD_EVERY:
            told_at = time.monotonic()
            _log.info("export_goes_on", rows=read)

    _log.info("export_started", path=uri)
    done = exported(loaded.source, wanted, folder, ExportWishes(), heard, judge)
    if wanted.keyless:
        _log.warning("notice", text=_KEYLESS.format(some_of(wanted.keyless, _NAMED)))
    _log.info(
        "export_finished", path=uri, checkpoint=done.snapshot, rows=done.rows, files=done.files
    )
    return uri


def open_export_folder(uri: str, loaded: Loaded) -> Folder:
    """Return an export's folder with the bucket's credentials; raise `ConfigError` if inside it."""
    origin = export_origin(uri, loaded.config.upstream)
    refuse_inside(origin, loaded.config.upstream)
    return open_folder(origin, loaded.secrets)


_Workers = tuple[ThreadPoolExecutor, SimpleQueue[Reading]]
"""Threads, and a connection for each of them."""


def _written(
    source: Server,
    wanted: TableName | TablesOfFeed,
    writing: _Writing,
    wishes: ExportWishes,
    judge: Judge,
) -> Iterator[int]:
    """Write all files as of one snapshot; yield the rows of each."""
    pace = Pace(wishes.rows_per_second)
    started = time.strftime(_TIME)
    with (
        closing(_reading(source, pace)) as keeper,
        closing(_reading(source, pace)) as reading,
        _workers(source, pace, wishes.workers) as workers,
    ):
        if keeper.kind != "tidb":
            raise ConfigError("--source is no TiDB, so it cannot be read as of a commit-ts")
        # The snapshot stays readable while this connection is open.
        keeper.begin()
        writing.snapshot = int(keeper.rows("SELECT @@tidb_current_ts")[0][0])
        names, views = (
            ([wanted], {})
            if isinstance(wanted, TableName)
            else _all_of(reading, writing.snapshot, wanted)
        )
        judge(names)
        # First, since another right is needed for them.
        for name, statement in views.items():
            writing.put(view_file(name, statement))
        asked = time.monotonic()
        tables = (
            _table(reading, name, writing, workers, wishes.workers * _AHEAD) for name in names
        )
        for rows in chain.from_iterable(tables):
            yield rows
            # A server closes a connection that is silent for hours.
            if time.monotonic() - asked > _KEPT_BY:
                keeper.rows("SELECT 1")
                asked = time.monotonic()
        writing.put(metadata_file(writing.snapshot, started, time.strftime(_TIME)))


@contextmanager
def _workers(source: Server, pace: Pace, number: int) -> Iterator[_Workers]:
    """Give threads with their connections, which end with the block."""
    free: SimpleQueue[Reading] = SimpleQueue()
    for _ in range(number):
        free.put(_reading(source, pace))
    with ThreadPoolExecutor(max_workers=number, thread_name_prefix="export") as pool:
        try:
            yield pool, free
        finally:
            pool.shutdown(cancel_futures=True)
            while not free.empty():
                free.get().close()


def _all_of(
    reading: Reading, snapshot: int, wanted: TablesOfFeed
) -> tuple[list[TableName], dict[TableName, str]]:
    """Return the wanted tables and statements of their views; raise `ConfigError` without any."""
    reading.begin_at(snapshot)
    keyed = {(text_of(schema), text_of(table)) for schema, table in reading.rows(_KEYED)}
    kinds: dict[str, list[TableName]] = {"BASE TABLE": [], "VIEW": []}
    for schema, table, kind in reading.rows(_TABLES):
        name = TableName(schema=text_of(schema), table=text_of(table))
        # Sequences and temporary tables are no tables with rows of their own.
        found = kinds.get(text_of(kind))
        if found is not None and not is_system(name.schema):
            is_keyed = found is kinds["VIEW"] or (name.schema, name.table) in keyed
            found += [name] if wanted(name, is_keyed=is_keyed) else []
    tables, views = kinds.values()
    if not tables:
        raise ConfigError(
            "--source has no table that the filter takes, as far as its account may see them: give it SELECT on them"
        )
    statements = {name: ExportedTable(reading, name).view() for name in views}
    # Of the views those that read nothing but these tables, and one another: any other could not be
    # created.
    there, kept = {name.folded() for name in tables}, dict[TableName, str]()
    reads = {
        name: {
            each.within(name.schema).folded()
            for each in table_names(tokens(statement))
            if each.reads and not each.qualifies
        }
        for name, statement in statements.items()
    }
    while more := {
        name: statements[name] for name in statements if name not in kept and reads[name] <= there
    }:
        kept |= more
        there |= {name.folded() for name in more}
    if left := [str(name) for name in statements if name not in kept]:
        _log.warning(
            "notice",
            text=f"not exported, since they read what is not: the views {some_of(left, _NAMED)}",
        )
    return tables, kept


def _reading(source: Server, pace: Pace) -> Reading:
    return Reading(source.settings, source.password, "source", pace, doing="exporting")


class _Writing:
    """The folder, and what this export has written there."""

    def __init__(self, folder: Folder) -> None:
        """Take a folder that is empty."""
        self._folder = folder
        self._written: set[str] = set()
        self._stale: set[str] = set()
        self.snapshot = 0
        """The TSO as of which the files are."""

    def put(self, file: WrittenFile) -> None:
        """Write a file."""
        self._written.add(file.path)
        self._folder.put(file.path, file.content)

    def begin_again(self) -> None:
        """All that was written is of a snapshot that is given up."""
        self._stale |= self._written
        self._written = set()

    def empty_stale(self, name: TableName) -> None:
        """Empty the files of abandoned snapshots that were not written again."""
        # The newer snapshot may need fewer files; a folder takes objects, but gives none up.
        for path in self._stale - self._written:
            self.put(WrittenFile(path=path, content=data_file(name, 1, (), ()).content))


def _table(
    reading: Reading, name: TableName, writing: _Writing, workers: _Workers, most: int
) -> Iterator[int]:
    """Write the files of a table, at most so many at once; yield the rows of each data file.

    A temporary table has none: its rows are those of one session.
    """
    snapshot = writing.snapshot
    reading.begin_at(snapshot)
    table = ExportedTable(reading, name)
    database, statement = table.statements()
    if is_temporary(statement):
        return
    reading.refuse_ignored(snapshot, qualified(table.name))
    table.find_key()
    try:
        columns = read_create_table(statement).carried
    except ValueError as fault:
        raise ConfigError(
            f"the statement of {name} cannot be read: {fault}. Leave it out with --filter, or export with Dumpling"
        ) from fault
    writing.put(database_file(table.name.schema, database))
    writing.put(table_file(table.name, statement))
    pool, free = workers

    def written(number: int, keys: KeyRange) -> int:
        reading = free.get()
        try:
            reading.begin_at(snapshot)
            rows = list(ExportedTable(reading, name, table.key).rows(columns, keys))
            if rows:
                writing.put(data_file(name, number, columns, rows))
            return len(rows)
        finally:
            free.put(reading)

    rows = int(_FILE_BYTES / table.row_bytes(columns))
    ranges = enumerate(table.ranges(min(max(rows, _FEWEST_ROWS), _MOST_ROWS)))
    yield from _results((pool.submit(written, *each) for each in ranges), most)
    writing.empty_stale(name)


def _results(running: Iterable[Future[int]], most: int) -> Iterator[int]:
    """Yield results as they come; begin another while fewer than `most` have none yet."""
    waiting: set[Future[int]] = set()
    for each in running:
        waiting.add(each)
        if len(waiting) >= most:
            done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            yield from (one.result() for one in done)
    yield from (each.result() for each in waiting)
