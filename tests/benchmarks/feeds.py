"""The lines that read changes as data: Spark's own readers of the same files beside ``format("ticdc")``, and `read_changes` without a JVM."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.csv
import pyarrow.json
from pyspark.sql import DataFrame, SparkSession

from storage_consumer import read_changes
from storage_consumer.spark import changes, register
from tests.benchmarks.bucket import Bucket
from tests.benchmarks.limit import WrongResult
from tests.benchmarks.measuring import Asked, Bench
from tests.benchmarks.results import Goal, Result, Run
from tests.benchmarks.shapes import DATABASE, Column
from tests.benchmarks.watching import watched

_GOALS = {"csv": 300_000.0, "canal-json": 200_000.0}
"""Rows a second of `read_changes`."""
_SLOWEST = 1 / 1.5
"""How fast ``format("ticdc")`` has to be beside Spark's own reader, which neither orders rows nor knows what TiCDC wrote twice."""
_CHANGES = 60_000.0
"""Rows a second of `changes`."""
_TYPES = {"BIGINT": "BIGINT", "DECIMAL": "DECIMAL(12,2)", "DATETIME": "TIMESTAMP_NTZ", "DOUBLE": "DOUBLE"}
"""What a user would write in a schema for Spark's CSV reader; all other types are read as texts."""
_HEAD = "op STRING, tbl STRING, db STRING, ts BIGINT"
_MESSAGE = (
    "database STRING, `table` STRING, type STRING, pkNames ARRAY<STRING>, isDdl BOOLEAN, ts BIGINT, _tidb STRUCT<commitTs: BIGINT>, "
    "data ARRAY<STRUCT<{0}>>, old ARRAY<STRUCT<{0}>>"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reading:
    """One way to read a bucket, and what it is measured against."""

    name: str
    against: str
    run: Callable[[], int]
    """Returns how many rows there were; 0 if they were not counted."""
    reference: Callable[[], object]
    goal: Goal


def measure_feeds(name: str, bench: Bench, asked: Asked) -> Sequence[Result]:
    """Both protocols: a batch of ``format("ticdc")`` beside Spark's own reader, and `changes` beside the batch."""
    session = bench.session
    register(session)
    found = []
    for protocol in _GOALS:
        bucket = bench.bucket(asked.order(protocol, "mixed"))
        batch, plain = _batch(session, bucket), _plain(session, bucket)
        _check(batch.count(), bucket)
        _check(plain.count(), bucket)
        exact = changes(batch)
        _check(exact.count(), bucket)
        own = {"csv": "spark.read.csv", "canal-json": "spark.read.json"}[protocol]
        readings = (
            _Reading(
                name=f"{name}: {protocol}",
                against=own,
                run=partial(_noop, batch),
                reference=partial(_noop, plain),
                goal=Goal(value=round(_SLOWEST, 2)),
            ),
            _Reading(
                name=f"{name}: changes, {protocol}",
                against="the batch",
                run=partial(_noop, exact),
                reference=partial(_noop, batch),
                goal=Goal(value=_CHANGES, ratio=False),
            ),
        )
        found += [_measured(reading, bucket, asked) for reading in readings]
    return found


def measure_read_changes(name: str, bench: Bench, asked: Asked) -> Sequence[Result]:
    """Both protocols in this process, beside what Arrow itself makes of the same bytes on all cores."""
    found = []
    for protocol, goal in _GOALS.items():
        bucket = bench.bucket(asked.order(protocol, "mixed"))
        reading = _Reading(
            name=f"{name}: {protocol}",
            against=f"pyarrow.{'csv' if protocol == 'csv' else 'json'}",
            run=partial(_arrow, bucket),
            reference=partial(_plain_arrow, bucket),
            goal=Goal(value=goal, ratio=False),
        )
        reading.run()  # compiles
        found.append(_measured(reading, bucket, asked))
    return found


def _measured(reading: _Reading, bucket: Bucket, asked: Asked) -> Result:
    runs = []
    for _ in range(asked.runs):
        reference = bucket.events / _seconds(reading.reference)
        with watched() as usage:
            began = time.monotonic()
            rows = reading.run()
            seconds = time.monotonic() - began
        if rows:
            _check(rows, bucket)
        runs.append(Run(figure=bucket.events / seconds, reference=reference, usage=usage, more={"seconds": seconds}))
    order = {**asdict(bucket.order), "files": bucket.files, "bytes": bucket.size}
    return Result(name=reading.name, unit="rows/s", against=reading.against, goal=reading.goal, runs=runs, order=order)


def _seconds(work: Callable[[], object]) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began


def _check(rows: int, bucket: Bucket) -> None:
    if rows != bucket.events:
        message = f"{rows} rows were read of {bucket.events} changes"
        raise WrongResult(message)


def _noop(frame: DataFrame) -> int:
    """Have every value of a DataFrame made."""
    frame.write.format("noop").mode("overwrite").save()
    return 0


def _options(bucket: Bucket) -> Mapping[str, Any]:
    if bucket.order.protocol == "csv":
        return {"protocol": "csv", "config": bucket.config, "tz": "UTC"}
    return {"protocol": "canal-json", "enable_tidb_extension": True, "tz": "UTC"}


def _batch(session: SparkSession, bucket: Bucket) -> DataFrame:
    reader = session.read.format("ticdc").option("table", f"{DATABASE}.t0001").option("tz", "UTC")
    if bucket.order.protocol == "csv":
        settings = bucket.root.parent / "changefeed.toml"
        settings.write_text("[sink.csv]\ninclude-commit-ts = true\n", encoding="utf-8")
        reader = reader.option("config", str(settings))
    return reader.load(bucket.uri)


def _plain(session: SparkSession, bucket: Bucket) -> DataFrame:
    """What a user writes who has nothing but Spark: the columns of one table, in any order and with whatever was written twice."""
    columns, files = bucket.order.shape.columns, [str(path) for path in _files(bucket)]
    if bucket.order.protocol == "csv":
        schema = f"{_HEAD}, {', '.join(map(_column, columns))}"
        return session.read.csv(files, schema=schema, quote='"', escape='"', nullValue="\\N", multiLine=True)
    texts = ", ".join(f"{column.name}: STRING" for column in columns)
    return session.read.json([*files], schema=_MESSAGE.format(texts))


def _column(column: Column) -> str:
    return f"{column.name} {_TYPES.get(dict(column.schema)['ColumnType'], 'STRING')}"


def _files(bucket: Bucket) -> Iterable[Path]:
    return sorted(path for path in bucket.root.rglob("CDC*") if path.suffix in (".csv", ".json"))


def _arrow(bucket: Bucket) -> int:
    batches = read_changes(bucket.uri, f"{DATABASE}.t0001", **_options(bucket))
    return sum(batch.num_rows for batch in batches)


def _plain_arrow(bucket: Bucket) -> None:
    for path in _files(bucket):
        if bucket.order.protocol == "csv":
            pyarrow.csv.read_csv(
                path,
                read_options=pyarrow.csv.ReadOptions(autogenerate_column_names=True),
                parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True),
                convert_options=pyarrow.csv.ConvertOptions(null_values=["\\N"]),
            )
        else:
            pyarrow.json.read_json(path)
