"""Streams with limits, for Spark from 4.2 on."""

from __future__ import annotations

from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
)

from storage_consumer.spark.source.opening import told
from storage_consumer.spark.source.stream import MicroBatches, Offset


class AdmittedStreamReader(MicroBatches, SupportsTriggerAvailableNow):
    """Reads the bucket as it grows, no more at once than Spark says."""

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802 - Spark's own name, like those below
        """Return up to where the bucket is complete, within a limit; the start if there is nothing new."""
        files = limit.max_files if isinstance(limit, ReadMaxFiles) else 0
        with told():
            return self.next_offset(start, files, limit.max_bytes if isinstance(limit, ReadMaxBytes) else 0)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the limit of the options."""
        if self.options.max_files:
            return ReadMaxFiles(self.options.max_files)
        return ReadMaxBytes(self.options.max_bytes) if self.options.max_bytes else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Note what is there now as all that there is: a query with that trigger reads no further."""
        with told():
            self.most = self._looked().look()
