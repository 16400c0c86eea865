"""The data source: a batch is a window of commit-ts, complete and the same at each reading.

A stream is one window after the other, each complete when it is given. An offset is a commit-ts, so
a row is given exactly once however often its file is listed, grows or is written anew. Beside it
the offset has what an earlier process found: the files that hold nothing beyond it. Each file is
looked through once, for the commit-ts that it has.
"""

from __future__ import annotations

import json
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib.util import find_spec
from itertools import zip_longest
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.types import StructType

from storage_consumer.bucket.metadata import Before
from storage_consumer.changes.alterations import Move, moves
from storage_consumer.changes.reading import Feed, FileSpan, Patience
from storage_consumer.changes.record_batches import arrow_type, holds
from storage_consumer.changes.window import (
    FeedFile,
    FeedStatement,
    Structure,
    Window,
    beyond,
    landmarks,
    may_hold,
)
from storage_consumer.clock import SystemClock
from storage_consumer.errors import ConfigError, FilesMissing, NotReplicable
from storage_consumer.model import DataFile, StoredObject, folded_name, folder_of
from storage_consumer.spark.source.opening import (
    Opened,
    SourceOptions,
    chosen,
    look_at,
    open_feed,
    own_fields,
    source_options,
    spark_schema,
    told,
)
from storage_consumer.spark.source.partitions import FilesPartition, Tasks

HAS_LIMITS = find_spec("pyspark.sql.streaming.datasource") is not None
"""Whether streams may have limits: Spark from 4.2 on."""
if HAS_LIMITS:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxFiles,
        SupportsTriggerAvailableNow,
    )


_AT_ONCE = 8
"""Files that are looked through at once: most of the time of a small one goes into waiting for the
store.
"""
_LOOK = 0.5
"""Seconds between two looks for a file that is missing."""
_NOT_WHOLE = 1 << 64
"""Last commit-ts of a file of which a part is still being written: beyond all others."""


class _Seen(NamedTuple):
    first: int
    """Lowest commit-ts that still counted when the file was looked through; 0: none did."""
    last: int


class SeenFiles:
    """The files of a bucket by the commit-ts of their rows."""

    def __init__(self, feed: Feed, missing: Patience) -> None:
        """Begin with nothing seen."""
        self._feed, self.contents = feed, feed.contents
        self.missing = missing
        """How long a file has been missing."""
        self._seen: dict[StoredObject, _Seen] = {}
        self._begun = False
        self._is_same = False
        # The files that were seen of each sequence, by number.
        self._files: dict[str, dict[int, DataFile]] = {}
        # The numbers of each sequence that an earlier process saw with rows that were not due,
        # until all of them are there.
        self._awaited: dict[str, Sequence[int]] = {}

    def look(self, given: int = -1) -> int:
        """Poll the bucket; return its checkpoint; raise as `Contents.look`.

        `given`: see `Contents.given`.
        """
        self.contents.given = given
        self.contents.look()
        return self.contents.checkpoint

    def refuse_other(self, before: Before) -> None:
        """Raise `ConfigError` unless it is the same bucket, compared until it holds anything."""
        contents = self.contents
        if not self._is_same:
            said, _ = contents.reader.doubts_of(before)
            # Its files are others, and hold what those beyond the offset held.
            if said:
                contents.warnings.append(said)
                self._awaited.clear()
            self._is_same = bool(contents.definitions)

    def begin(self, finished: Mapping[str, Sequence[int]]) -> None:
        """Leave out files, once, that held nothing more for an earlier process: see `finished`.

        Changed ones stay.
        """
        if self._begun:
            return
        self._begun = True
        self.look()
        contents = self.contents
        self._note(contents.pending())
        for name, (upto, digest, *more) in finished.items():
            self._awaited[name] = more
            there = self._files.get(name, {})
            files = [file for number, file in there.items() if number <= upto]
            if sum(map(_digest, files)) == digest:
                contents.finish(files)
            elif there:
                # Others are looked through again; one that is gone held nothing more.
                contents.pass_over(next(iter(there.values())), upto)

    def spans(self, low: int, high: int) -> list[FileSpan]:
        """Return files with rows in ``(low, high]`` by commit-ts; forget those without above `low`.

        The lowest commit-ts come first.

        Raises what `Contents.window` does, and `UndecodableRow`.
        """
        window = self.contents.window(low, high, statements=(low, low))
        if self._awaited:
            self._note(self.contents.pending())
            for name, numbers in self._awaited.items():
                if gone := next(
                    (number for number in numbers if number not in self._files.get(name, {})), 0
                ):
                    raise FilesMissing(
                        f"file number {gone} in {folder_of(name)} is missing. It was there before, and held rows that were not due. Restore it from a copy of "
                        "the bucket"
                    )
            self._awaited.clear()
        # Those seen for the first time, and those of which some rows are in the past since then,
        # and others are not.
        new = [
            work
            for work in window.files
            if (found := self._seen.get(work.file.stored)) is None
            or (found.first <= low < found.last and found.first > 0)
        ]

        def look(work: FeedFile) -> _Seen:
            # One of its own for each file: a decoder remembers the last layout, and is not for
            # several threads.
            ordered = self._feed.ordered(window)
            tally = ordered.tally(work, work.floor)
            is_whole = work.file not in ordered.torn
            return _Seen(
                tally.next_ts, max(tally.max_ts, tally.next_ts) if is_whole else _NOT_WHOLE
            )

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            self._seen |= zip((work.file.stored for work in new), pool.map(look, new), strict=True)
        seen = {work: self._seen[work.file.stored] for work in window.files}
        self._note(work.file for work in seen)
        self.contents.finish(work.file for work, found in seen.items() if found.last <= low)
        kept = {work.file.stored for work, found in seen.items() if found.last > low}
        self._seen = {stored: found for stored, found in self._seen.items() if stored in kept}
        spans = [
            FileSpan(rank=rank, work=work, first=found.first, last=min(found.last, high))
            for rank, (work, found) in enumerate(seen.items())
            if low < found.first <= high
        ]
        return sorted(spans, key=lambda span: (span.first, span.rank))

    def spans_once_there(self, low: int, high: int) -> list[FileSpan]:
        """Return `spans`, awaiting missing files up to the patience; then raise `FilesMissing`."""
        while True:
            try:
                found = self.spans(low, high)
            except FilesMissing as fault:
                self.missing.bear(fault, _LOOK)
                self.look()
            else:
                self.missing.end()
                return found

    def finished(self, low: int, high: int) -> dict[str, list[int]]:
        """Return sequence → number up to which files end by `low`, their digest, those past `high`.

        The last are the files with more than `high`.

        Sequences whose date says that they hold nothing are left out.
        """
        pending = self.contents.pending()
        self._note(pending)
        self._files = {
            name: files
            for name, files in self._files.items()
            if may_hold(next(iter(files.values())), low)
        }
        more = defaultdict[str, list[int]](list)
        for file in pending:
            if (seen := self._seen.get(file.stored)) is None or seen.last > high:
                more[file.sequence].append(file.number)
        found = {}
        for name, files in self._files.items():
            upto = self.contents.finished_upto(next(iter(files.values())))
            digest = sum(_digest(file) for number, file in files.items() if number <= upto)
            if upto or more[name]:
                found[name] = [upto, digest, *more[name]]
        return found

    def _note(self, files: Iterable[DataFile]) -> None:
        for file in files:
            self._files.setdefault(file.sequence, {})[file.number] = file


def _digest(file: DataFile) -> int:
    """Return a number that changes whenever the file's content may have changed."""
    return zlib.crc32(f"{file.stored.path}\n{file.stored.size}\n{file.stored.tag}".encode())


def limited(spans: list[FileSpan], high: int, *, files: int, size: int) -> int:
    """Return the commit-ts up to which about so many files or bytes have rows; 0: no limit.

    `spans` are sorted by their first commit-ts. At least the changes of one commit-ts are given, so
    that a stream always goes on.
    """
    taken = total = 0
    for span in spans:
        taken, total = taken + 1, total + span.size
        is_too_much = (files and taken > files) or (size and total > size)
        if is_too_much and span.first > spans[0].first:
            return min(high, span.first - 1)
    return high


_Borders = tuple[int, int]
"""Commit-ts beyond which, and up to which (inclusive), something is wanted."""


class End(NamedTuple):
    """Up to where (inclusive) rows can be given, and why not beyond."""

    version: int
    why: str


_AGAIN = "startingVersion = {} and its old checkpointLocation"
_ANEW = "new checkpointLocation and startingVersion = {}"


def _batch_before(low: int, high: int) -> str:
    """Return how to read the rows that a query cannot give."""
    return f"the rows before that as a batch, with startingVersion = {low + 1} and endingVersion = {high}"


def _folded(names: tuple[str, ...] | list[str]) -> list[str]:
    return [folded_name(name) for name in names]


Offset = dict[str, Any]
_FORMAT = 1


class MicroBatches(Tasks, DataSourceStreamReader):
    """What a streaming query reads, one window after the other."""

    def __init__(self, options: SourceOptions, opened: Opened, schema: pa.Schema) -> None:
        """Give what Spark asks for; what is known of the bucket comes with the first look."""
        super().__init__(options, opened, schema)
        self._fields = {folded_name(field.name): field for field in own_fields(schema)}
        self._inventory: SeenFiles | None = None
        self.most: int | None = None
        """Commit-ts up to which a query reads that takes what is there when it begins; None for any
        other.
        """

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's own name
        """Return where a new query begins."""
        low = self.opened.checkpoint if self.options.from_latest else self.options.low
        return self._offset(low, low, {})

    def next_offset(self, start: Offset, files: int, size: int) -> Offset:
        """Return the next micro-batch's end, of about so many files or bytes (0: any).

        It is the start if there is nothing new.
        """
        low, statements = self._checked(start)["commit_ts"], start["statements"]
        inventory = self._looked(start)
        checkpoint = inventory.look(-1 if self.options.table is not None else statements)
        high = checkpoint if self.most is None else min(checkpoint, self.most)
        # A query that reads what is there now would end as if it had read that; any other one
        # waits.
        if self.most is not None:
            self._refuse_behind(low)
        if high <= low:
            return start
        try:
            # Spark takes an empty micro-batch for the end of a query that reads what is there now.
            spans = (
                inventory.spans(low, high)
                if self.most is None
                else inventory.spans_once_there(low, high)
            )
        except FilesMissing as fault:
            inventory.missing.bear(fault)
            return start
        inventory.missing.end()
        table, own = self.options.table, self.options.low
        if table is not None and not self.options.over_statements:
            # After these statements before the query's own startingVersion the table has other
            # rows. They are no ends, but no micro-batch spans one: what a query does at such a
            # statement, it does between two of them.
            passed = (
                move.version for move in moves(table, low, own, inventory.contents.definitions)
            )
            high = min(
                high, next((v for v in passed if any(span.first <= v for span in spans)), high)
            )
            spans = [span for span in spans if span.first <= high]
        end = self._first_end((low, high), (statements, min(high, checkpoint - 1)))
        if end is not None:
            high = min(high, end.version)
            spans = [span for span in spans if span.first <= high]
            if not spans:
                raise NotReplicable(end.why)
        high = limited(spans, high, files=files, size=size)
        # Only below the checkpoint all statements at a commit-ts are surely there, and one that
        # ends the query is not behind it.
        upto = max(statements, min(high, checkpoint - 1 if end is None else end.version - 1))
        if not spans and not self._statements(statements, upto):
            return start
        return self._offset(high, upto, inventory.finished(low, high))

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """Return the tasks of a micro-batch."""
        with told():
            low, high = self._checked(start)["commit_ts"], self._checked(end)["commit_ts"]
            inventory = self._looked(start)
            if low >= high and start["statements"] >= end["statements"]:
                self._refuse_behind(low)
                return []
            if inventory.contents.checkpoint < high:
                inventory.look()
                self._refuse_behind(high)
            spans = sorted(inventory.spans_once_there(low, high), key=lambda span: span.rank)
            window = Window(
                low=low,
                high=high,
                files=tuple(span.work for span in spans),
                statements=self._statements(start["statements"], end["statements"]),
            )
            return self.tasks(window)

    def _refuse_behind(self, ts: int) -> None:
        """Raise `ConfigError` if the bucket falls short of what was read; a begin may be beyond.

        Short means complete only to before a commit-ts to which the query has read.
        """
        checkpoint = self._looked().contents.checkpoint
        if checkpoint < ts != self.options.low:
            raise ConfigError(
                f"the query has read up to commit-ts {ts}, and the bucket is complete up to {checkpoint} only. If the changefeed "
                "was resumed from an older checkpoint, start the query again, as it is, once `metadata` has passed that: a new "
                "checkpointLocation would give all rows again. If this is another changefeed's bucket, or one that was restored from a "
                "backup, begin with a new checkpointLocation"
            )

    def _looked(self, start: Offset | None = None) -> SeenFiles:
        """Return what is known of the bucket; a new process begins with an earlier one's notes."""
        if self._inventory is None:
            feed, loaded = open_feed(self.options)
            self._inventory = SeenFiles(
                feed, Patience(SystemClock(), loaded.config.tuning.gap_timeout)
            )
        if start is not None:
            self._inventory.begin(start["finished"])
            # An offset of an earlier version does not tell the place, and knows the bucket by its
            # data files alone.
            feed = start.get("feed", {"place": "", "versions": []})
            before = Before(
                checkpoint=start["commit_ts"],
                sequences=start["finished"].keys(),
                schema_files=frozenset(
                    (table_dir, version) for table_dir, version in feed["versions"]
                ),
                place=feed["place"],
            )
            self._inventory.refuse_other(before)
        return self._inventory

    def _statements(self, low: int, high: int) -> tuple[FeedStatement, ...]:
        """Return the statements that the query is given; a single table's are not its rows."""
        return (
            ()
            if self.options.table is not None
            else tuple(self._looked().contents.statements(low, high))
        )

    def _offset(
        self, commit_ts: int, statements: int, finished: Mapping[str, Sequence[int]]
    ) -> Offset:
        """Return an offset: given rows' and statements' commit-ts (inclusive), tables, ended files.

        The bucket is told as well, by its place and by some of its schema files: a query that goes
        on elsewhere would lose rows without a word.
        """
        found = (
            self.opened.landmarks
            if self._inventory is None
            else landmarks(self._inventory.contents.definitions)
        )
        return {
            "format": _FORMAT,
            "of": list(self.opened.rules),
            "commit_ts": commit_ts,
            "statements": statements,
            "finished": dict(finished),
            "feed": {
                "place": self.opened.upstream.identity,
                "versions": [list(each) for each in found],
            },
        }

    def _checked(self, offset: Offset) -> Offset:
        """Return an offset of this query; raise `ConfigError` for any other."""
        if offset.get("format") != _FORMAT:
            raise ConfigError(
                f"the offset {str(offset)[:200]} is not one of this version: begin with a new checkpointLocation, and startingVersion"
            )
        of, own = offset["of"], list(self.opened.rules)
        if of != own:
            raise ConfigError(
                f"the checkpointLocation is one of {_tables(of)}, and the query reads {_tables(own)}: begin with a new checkpointLocation, and "
                f"startingVersion = {offset['commit_ts'] + 1} if the changes up to there are not wanted"
            )
        return offset

    # where a stream of one table ends: before rows that its columns cannot hold, and before what no
    # change of a row would show

    def _first_end(self, rows: _Borders, statements: _Borders) -> End | None:
        """Return the first end in windows of rows and statements; low borders are reached.

        That means an end up to the low border of rows.

        Statements before the query's own startingVersion do not count: whoever gives it knows of
        them.
        """
        if self.options.table is None:
            return None
        low, high = statements
        found = [*self._misfits(*rows), *self._moves(max(low, self.options.low), high)]
        return min(found, default=None)

    def _misfits(self, low: int, high: int) -> Iterator[End]:
        found = sorted(self._looked().contents.in_force(low, high), key=lambda each: each.version)
        # The rows of a structure end where the next one begins.
        for structure, later in zip_longest(found, found[1:]):
            if why := self._misfit(structure, low, 0 if later is None else later.version):
                yield End(
                    structure.version,
                    f"{structure.table}: since table version {structure.version} {why}",
                )

    def _misfit(self, structure: Structure, low: int, until: int) -> str:
        """Return why a structure misfits the query's columns, or empty.

        `until`: of the next structure, 0 for none.
        """
        own = self._fields
        again = f"begin it again with startingVersion = {structure.version + 1} and its old checkpointLocation"
        if structure.version <= low and until:
            again = f"read {_batch_before(low, until)}, and then begin it again with a {_ANEW.format(until + 1)}"
        # By table version, the primary key's columns when the query began.
        keys: list[tuple[int, list[str]]] = json.loads(self.opened.keys)
        if structure.version > self.opened.high and _folded(structure.key_names) != _folded(
            keys[-1][1]
        ):
            return f"the primary key is ({', '.join(structure.key_names)}): stop the query, and {again}"
        for column in structure.columns:
            name, kind = folded_name(column.name), arrow_type(column)
            if name in own and not holds(own[name].type, kind):
                return f"column {column.name} is {kind}, and the query began with {own[name].type}: stop the query, and {again}"
            if (
                name not in self.opened.known
                and self.options.evolution == "fail"
                and not self.options.columns
            ):
                return (
                    f"there is the new column {column.name}: begin the query again, with its old checkpointLocation, to have it; or set "
                    "schemaEvolution to ignore, or to rescue. What the statement gave to the rows that were there, such as the column's "
                    "default, no change of a row shows: do the same where the query's rows go"
                )
        return ""

    def _moves(self, low: int, high: int, start: int | None = None) -> Iterator[End]:
        """Yield an end for each statement in a window after which the table has other rows.

        `start`: where a micro-batch begins that goes over it; None: one can still end there.
        """
        if self.options.table is None or self.options.over_statements:
            return
        for move in moves(self.options.table, low, high, self._looked().contents.definitions):
            if start is None or start < move.version:
                yield End(move.version, self._moved(move, start))
            # All rows from before it were given: the query ends, unless it was begun again behind
            # it.
            elif move.version > self.options.low:
                yield End(move.version, self._moved(move, None))

    def _moved(self, move: Move, start: int | None) -> str:
        first = "" if start is None else f"Read {_batch_before(start, move.version)}. "
        place = (_AGAIN if start is None else f"a {_ANEW}").format(move.version + 1)
        return (
            f"{self.options.table}: {move.what}, and no change of a row shows that. {first}Do the same where the query's rows go. "
            f"Begin it again with {place}. Or set statements to ignore, and the query goes on over all such statements"
        )


def _tables(rules: Sequence[str]) -> str:
    return ", ".join(rules) or "every table"


class TicdcStreamReader(MicroBatches):
    """Reads the bucket as it grows, for Spark before 4.2: a micro-batch is all that is there."""

    _last: Offset | None = None

    def latestOffset(self) -> Offset:  # type: ignore[override]  # noqa: N802 - Spark's own name
        """Return up to where the bucket is complete.

        Spark does not say from where on, so a new process reads nothing else first.
        """
        with told():
            if self._last is not None:
                self._last = self.next_offset(self._last, 0, 0)
                return self._last
            # Whatever a query has read of it, but no end that came since it was loaded.
            inventory, loaded = self._looked(), self.opened.high
            checkpoint = inventory.look()
            end = self._first_end((loaded, checkpoint), (loaded - 1, checkpoint - 1))
            high = checkpoint if end is None else min(checkpoint, max(loaded, end.version))
            self._last = self._offset(high, high - 1, {})
            return self._last

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """Return a micro-batch's tasks; raise `NotReplicable` beyond the query's end.

        Such a one was planned without its start.
        """
        with told():
            low, high = self._checked(start)["commit_ts"], self._checked(end)["commit_ts"]
            self._looked(start)
            if self.options.table is not None:
                ends = [*self._misfits(low, high), *self._moves(start["statements"], high - 1, low)]
                # An end after a later start was planned with columns that the start is beyond.
                if passed := [end for end in ends if end.version < high or high < low]:
                    raise NotReplicable(min(passed).why)
        return super().partitions(start, end)


if HAS_LIMITS:

    class AdmittedStreamReader(MicroBatches, SupportsTriggerAvailableNow):
        """Reads the bucket as it grows, no more at once than Spark says."""

        def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802 - Spark's own name, like those below
            """Return up to where the bucket is complete, limited; the start if there is no more."""
            files = limit.max_files if isinstance(limit, ReadMaxFiles) else 0
            with told():
                return self.next_offset(
                    start, files, limit.max_bytes if isinstance(limit, ReadMaxBytes) else 0
                )

        def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
            """Return the limit of the options."""
            if self.options.max_files:
                return ReadMaxFiles(self.options.max_files)
            return (
                ReadMaxBytes(self.options.max_bytes)
                if self.options.max_bytes
                else ReadAllAvailable()
            )

        def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
            """Note all that is there now: a query with that trigger reads no further."""
            with told():
                self.most = self._looked().look()


class TicdcReader(Tasks, DataSourceReader):
    """Reads a window."""

    def partitions(self) -> Sequence[InputPartition]:
        """Return the tasks of a window."""
        # Spark would make one of its own out of none.
        nothing = FilesPartition(Window(low=0, high=0, files=(), statements=()), self.schema)
        low, high = self.options.low, min(self.options.high or self.opened.high, self.opened.high)
        if low > self.opened.checkpoint:
            raise ConfigError(beyond(low, self.opened.checkpoint))
        if low >= high:
            return [nothing]
        with told():
            feed, _ = open_feed(self.options)
            window = feed.window(low, high)
            if self.options.table is not None:
                window = replace(window, statements=())
            return self.tasks(window) or [nothing]


MOVED = "ticdc.moved"
"""Where the metadata of column ``_table_version`` has what stands in `Opened.moved`."""


class TicdcDataSource(DataSource):
    """The changes of a bucket, of one table with its columns or of all of them as JSON."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        """Check the options; raise `ConfigError`."""
        super().__init__(options)
        with told():
            self._asked = source_options(options)
        self._opened: Opened | None = None

    @classmethod
    def name(cls) -> str:
        """Return what ``format()`` takes."""
        return "ticdc"

    def schema(self) -> StructType:
        """Return the columns; the bucket is looked at for them. Raises what `Feed.window` does."""
        found = self._found()
        schema = spark_schema(found.schema, found.keys, found.known)
        if found.moved:
            schema["_table_version"].metadata[MOVED] = found.moved
        return schema

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return what reads a batch."""
        if self._asked.from_latest:
            raise ConfigError(
                "option startingVersion: only a stream begins with `latest`, what commits from now on; a batch takes a commit-ts"
            )
        return TicdcReader(self._asked, self._found(), self._columns(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's own name
        """Return what reads a stream."""
        asked = self._asked
        if asked.high is not None:
            raise ConfigError(
                "options endingVersion and endingTimestamp: a stream has no end; read a batch, or stop the query"
            )
        found, columns = self._found(), self._columns(schema)
        if HAS_LIMITS:
            return AdmittedStreamReader(asked, found, columns)
        if asked.max_files or asked.max_bytes:
            raise ConfigError(
                "options maxFilesPerTrigger and maxBytesPerTrigger need Spark 4.2 or later"
            )
        return TicdcStreamReader(asked, found, columns)

    def _found(self) -> Opened:
        # Spark takes this very object along to where it plans and reads, so that all of it is about
        # one checkpoint.
        if self._opened is None:
            with told():
                self._opened = look_at(self._asked)
        return self._opened

    def _columns(self, schema: StructType) -> pa.Schema:
        with told():
            return chosen(self._found().schema, schema)
