"""Batches: a window of commit-ts, complete and the same each time that it is read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from storage_consumer.errors import ConfigError
from storage_consumer.feed.window import beyond
from storage_consumer.spark.source.opening import Opened, open_feed, told
from storage_consumer.spark.source.options import SourceOptions
from storage_consumer.spark.source.partitions import FilesPartition, partitions_of
from storage_consumer.spark.source.reading import read_partition


class TicdcReader(DataSourceReader):
    """Reads a window."""

    def __init__(self, options: SourceOptions, opened: Opened, schema: pa.Schema) -> None:
        """Read what was complete when the bucket was `opened`."""
        self.options = options
        self.opened = opened
        self.schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        """Return the tasks of a window."""
        # Spark would make one of its own out of none.
        nothing = FilesPartition(low=0, high=0, files=(), statements=(), schema=self.schema)
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
            return partitions_of(window, self.schema, self.options.partition_bytes, self.options.cores) or [nothing]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a task's files."""
        assert isinstance(partition, FilesPartition)
        return read_partition(self.opened, self.options, partition)
