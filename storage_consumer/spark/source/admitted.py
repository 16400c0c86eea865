"""Streams with limits, for Spark from 4.2 on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
)

from storage_consumer.spark.source.opening import told
from storage_consumer.spark.source.stream import MicroBatches, Offset


class AdmittedStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the bucket as it grows, no more at once than Spark says."""

    def __init__(self, batches: MicroBatches) -> None:
        """Read these."""
        self.batches = batches

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's own name, like those below
        """Return where a new query begins."""
        return self.batches.first_offset()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        """Return up to where the bucket is complete, within a limit; the start if there is nothing new."""
        files = limit.max_files if isinstance(limit, ReadMaxFiles) else 0
        with told():
            return self.batches.next_offset(start, files, limit.max_bytes if isinstance(limit, ReadMaxBytes) else 0)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the limit of the options."""
        options = self.batches.options
        if options.max_files:
            return ReadMaxFiles(options.max_files)
        return ReadMaxBytes(options.max_bytes) if options.max_bytes else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Note what is there now: a query with that trigger reads no further."""
        with told():
            self.batches.read_no_further()

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Return the tasks of a micro-batch."""
        return self.batches.partitions(start, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a task's files."""
        return self.batches.read(partition)

    def commit(self, end: Offset) -> None:
        """Do nothing: the bucket is never written to."""

    def stop(self) -> None:
        """Do nothing: nothing is left open."""
