"""Streams: one window of commit-ts after the other, each complete when it is given.

An offset is a commit-ts, so a row is given exactly once however often its file is listed, grows or is written anew. Beside it the offset has
what an earlier process found: the files that hold nothing beyond it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from storage_consumer.clock import SystemClock
from storage_consumer.errors import ConfigError, FilesMissing, NotReplicable
from storage_consumer.feed.patience import Patience
from storage_consumer.feed.records import Statement
from storage_consumer.feed.window import Window, landmarks
from storage_consumer.poll.same_feed import Before
from storage_consumer.spark.source.ends import Ends
from storage_consumer.spark.source.inventory import Inventory, limited
from storage_consumer.spark.source.opening import Opened, open_feed, told
from storage_consumer.spark.source.options import SourceOptions
from storage_consumer.spark.source.partitions import FilesPartition, partitions_of
from storage_consumer.spark.source.reading import read_partition

Offset = dict[str, Any]
_FORMAT = 1


class MicroBatches:
    """What a streaming query reads, one window after the other."""

    def __init__(self, options: SourceOptions, opened: Opened, schema: pa.Schema) -> None:
        """Give what Spark asks for; what is known of the bucket comes with the first look."""
        self.options = options
        self.opened = opened
        self.schema = schema
        self._ends = Ends(options, opened, schema)
        self._inventory: Inventory | None = None
        self._most: int | None = None

    def first_offset(self) -> Offset:
        """Return where a new query begins."""
        low = self.opened.checkpoint if self.options.from_latest else self.options.low
        return self._offset(low, low, {})

    def offset_now(self) -> Offset:
        """Return up to where the bucket is complete, whatever a query has read of it, but no end that came since it was loaded."""
        inventory, loaded = self._looked(), self.opened.high
        checkpoint = inventory.look()
        end = self._ends.first(inventory, (loaded, checkpoint), (loaded - 1, checkpoint - 1))
        high = checkpoint if end is None else min(checkpoint, max(loaded, end.version))
        return self._offset(high, high - 1, {})

    def refuse_crossed(self, start: Offset, end: Offset) -> None:
        """Raise `NotReplicable` for a micro-batch that goes beyond where the query has to end, as one does that was planned without its start."""
        low, high = self._checked(start)["commit_ts"], self._checked(end)["commit_ts"]
        found = self._ends.within(self._looked(start), low, start["statements"], high)
        if found is not None:
            raise NotReplicable(found.why)

    def next_offset(self, start: Offset, files: int, size: int) -> Offset:
        """Return the end of the next micro-batch, of about so many files or bytes (0: any); the start if there is nothing new."""
        low, statements = self._checked(start)["commit_ts"], start["statements"]
        inventory = self._looked(start)
        checkpoint = inventory.look(-1 if self.options.table is not None else statements)
        high = checkpoint if self._most is None else min(checkpoint, self._most)
        # A query that reads what is there now would end as if it had read that; any other one waits.
        if self._most is not None:
            self._refuse_behind(low)
        if high <= low:
            return start
        try:
            # Spark takes an empty micro-batch for the end of a query that reads what is there now.
            spans = inventory.spans(low, high) if self._most is None else inventory.spans_once_there(low, high)
        except FilesMissing as fault:
            inventory.missing.bear(fault)
            return start
        inventory.missing.end()
        if border := next((v for v in self._ends.between(inventory, low) if any(s.first <= v for s in spans)), 0):
            high = min(high, border)
            spans = [span for span in spans if span.first <= high]
        end = self._ends.first(inventory, (low, high), (statements, min(high, checkpoint - 1)))
        if end is not None:
            high = min(high, end.version)
            spans = [span for span in spans if span.first <= high]
            if not spans:
                raise NotReplicable(end.why)
        high = limited(spans, high, files=files, size=size)
        # Only below the checkpoint all statements at a commit-ts are surely there, and one that ends the query is not behind it.
        upto = max(statements, min(high, checkpoint - 1 if end is None else end.version - 1))
        if not spans and not self._statements(statements, upto):
            return start
        return self._offset(high, upto, inventory.finished(low, high))

    def read_no_further(self) -> None:
        """Note what is there now as all that there is."""
        self._most = self._looked().look()

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """Return the tasks of a micro-batch."""
        with told():
            low, high = self._checked(start)["commit_ts"], self._checked(end)["commit_ts"]
            inventory = self._looked(start)
            if low >= high and start["statements"] >= end["statements"]:
                self._refuse_behind(low)
                return []
            if inventory.checkpoint < high:
                inventory.look()
                self._refuse_behind(high)
            spans = sorted(inventory.spans_once_there(low, high), key=lambda span: span.rank)
            window = Window(
                low=low,
                high=high,
                files=tuple(span.work for span in spans),
                statements=self._statements(start["statements"], end["statements"]),
            )
            return partitions_of(window, self.schema, self.options.partition_bytes, self.options.cores)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a task's files."""
        assert isinstance(partition, FilesPartition)
        return read_partition(self.opened, self.options, partition)

    def _refuse_behind(self, ts: int) -> None:
        """Raise `ConfigError` if the bucket is complete only to before a commit-ts to which the query has read; one may begin beyond it."""
        checkpoint = self._looked().checkpoint
        if checkpoint < ts != self.options.low:
            raise ConfigError(
                f"the query has read up to commit-ts {ts}, and the bucket is complete up to {checkpoint} only. If the changefeed "
                "was resumed from an older checkpoint, start the query again, as it is, once `metadata` has passed that: a new "
                "checkpointLocation would give all rows again. If this is another changefeed's bucket, or one that was restored from a "
                "backup, begin with a new checkpointLocation"
            )

    def _looked(self, start: Offset | None = None) -> Inventory:
        """Return what is known of the bucket; a new process begins with what the one before it noted."""
        if self._inventory is None:
            feed, loaded = open_feed(self.options)
            self._inventory = Inventory(feed, Patience(SystemClock(), loaded.config.tuning.gap_timeout))
        if start is not None:
            self._inventory.begin(start["finished"])
            # An offset of an earlier version does not tell the place, and knows the bucket by its data files alone.
            feed = start.get("feed", {"place": "", "versions": []})
            before = Before(
                checkpoint=start["commit_ts"],
                sequences=start["finished"].keys(),
                schema_files=frozenset((table_dir, version) for table_dir, version in feed["versions"]),
                place=feed["place"],
            )
            self._inventory.refuse_other(before)
        return self._inventory

    def _statements(self, low: int, high: int) -> tuple[Statement, ...]:
        """Return the statements that the query is given; those of one table are none of its rows."""
        return () if self.options.table is not None else self._looked().statements(low, high)

    def _offset(self, commit_ts: int, statements: int, finished: Mapping[str, Sequence[int]]) -> Offset:
        """Return an offset: up to which commit-ts (inclusive) rows and statements of which tables were given, and which files hold nothing beyond.

        The bucket is told as well, by its place and by some of its schema files: a query that goes on elsewhere would lose rows without a word.
        """
        found = self.opened.landmarks if self._inventory is None else landmarks(self._inventory.definitions)
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


def _tables(rules: Sequence[str]) -> str:
    return ", ".join(rules) or "every table"


class TicdcStreamReader(DataSourceStreamReader):
    """Reads the bucket as it grows, for Spark before 4.2: a micro-batch is all that is there."""

    def __init__(self, batches: MicroBatches) -> None:
        """Read these."""
        self.batches = batches
        self._last: Offset | None = None

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's own name, like those below
        """Return where a new query begins."""
        return self.batches.first_offset()

    def latestOffset(self) -> Offset:  # type: ignore[override]  # noqa: N802
        """Return up to where the bucket is complete. Spark does not say from where on, so a new process begins with a look at nothing else."""
        with told():
            last = self._last
            self._last = self.batches.offset_now() if last is None else self.batches.next_offset(last, 0, 0)
            return self._last

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Return the tasks of a micro-batch."""
        with told():
            self.batches.refuse_crossed(start, end)
        return self.batches.partitions(start, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a task's files."""
        return self.batches.read(partition)

    def commit(self, end: Offset) -> None:
        """Do nothing: the bucket is never written to."""

    def stop(self) -> None:
        """Do nothing: nothing is left open."""
