"""A streaming query as Spark runs one, without Spark: it plans, logs, reads and commits micro-batches, and may be killed in between."""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit

from storage_consumer.spark.source.ticdc import AdmittedStreamReader, TicdcDataSource


@dataclass(slots=True)
class Query:
    """What of a query outlives its process: where it began, its log of offsets, and its sink."""

    options: Mapping[str, str]
    offsets: list[str] = field(default_factory=list)
    """Where each micro-batch ends; the first entry is where the query began."""
    sink: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    """The rows of each micro-batch: it is written again if it was not committed."""
    _process: AdmittedStreamReader | None = None

    def step(self, limit: ReadLimit | None = None, *, dies: bool = False) -> bool:
        """Run one micro-batch; return whether there was one. `dies`: the process is killed after it logged the plan."""
        reader = self.reader()
        if not self.offsets:
            self.offsets.append(json.dumps(reader.initialOffset()))
        end = json.dumps(reader.latestOffset(json.loads(self.offsets[-1]), limit or ReadAllAvailable()))
        if end == self.offsets[-1]:
            return False
        self.offsets.append(end)
        if dies:
            self.die()
        else:
            self._run()
        return True

    def die(self) -> None:
        """Lose the process, and all that it knew."""
        self._process = None

    @property
    def rows(self) -> list[dict[str, Any]]:
        """All rows of the sink."""
        return [row for batch in self.sink.values() for row in batch]

    def reader(self) -> AdmittedStreamReader:
        """What the query's process plans with; a new process first writes what was logged and not written."""
        if self._process is None:
            source = TicdcDataSource(dict(self.options))
            schema = source.schema()
            # As it travels from the process that makes it to the one that plans.
            found = pickle.loads(pickle.dumps(source)).streamReader(schema)  # noqa: S301 - our own
            assert isinstance(found, AdmittedStreamReader)
            self._process = found
            if len(self.sink) < len(self.offsets) - 1:
                self._run()
        return self._process

    def _run(self) -> None:
        reader = self.reader()
        number = len(self.offsets) - 1
        if number in self.sink or number < 1:
            return
        start, end = (json.loads(offset) for offset in self.offsets[-2:])
        batches: list[pa.RecordBatch] = []
        for partition in reader.partitions(start, end):
            batches += reader.read(pickle.loads(pickle.dumps(partition)))  # noqa: S301 - our own
        self.sink[number] = [row for batch in batches for row in batch.to_pylist()]
        reader.commit(end)
