"""The data source itself. A batch is a window of commit-ts, complete and the same each time that it is read."""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from dataclasses import replace
from importlib.util import find_spec

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from storage_consumer.changes.window import Window, beyond
from storage_consumer.errors import ConfigError
from storage_consumer.spark.source.opening import (
    Opened,
    chosen,
    look_at,
    open_feed,
    source_options,
    spark_schema,
    told,
)
from storage_consumer.spark.source.partitions import FilesPartition, Tasks
from storage_consumer.spark.source.stream import TicdcStreamReader


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
        if find_spec("pyspark.sql.streaming.datasource") is not None:
            from storage_consumer.spark.source.admitted import AdmittedStreamReader  # noqa: PLC0415 - from Spark 4.2 on

            return AdmittedStreamReader(asked, found, columns)
        if asked.max_files or asked.max_bytes:
            raise ConfigError("options maxFilesPerTrigger and maxBytesPerTrigger need Spark 4.2 or later")
        return TicdcStreamReader(asked, found, columns)

    def _found(self) -> Opened:
        # Spark takes this very object along to where it plans and reads, so that all of it is about one checkpoint.
        if self._opened is None:
            with told():
                self._opened = look_at(self._asked)
        return self._opened

    def _columns(self, schema: StructType) -> pa.Schema:
        with told():
            return chosen(self._found().schema, schema)
