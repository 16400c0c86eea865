"""The options and columns of ``format("ticdc")``, and the bucket that they lead to.

On the driver with its files and inference, on workers with what came of that.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import StructField, StructType

from storage_consumer.bucket.storage import Storage
from storage_consumer.changes.alterations import moves
from storage_consumer.changes.reading import Feed
from storage_consumer.changes.record_batches import META, RESCUED, fields_of
from storage_consumer.changes.window import Structure, landmarks, refuse_none
from storage_consumer.clock import SystemClock
from storage_consumer.config.load import Loaded
from storage_consumer.config.parsers import did_you_mean
from storage_consumer.config.private_files import secrets_from
from storage_consumer.config.settings import Upstream
from storage_consumer.config.uris import is_secret, mask_uri, secrets_in
from storage_consumer.decode.kernels.arrays import DELETE
from storage_consumer.errors import ConfigError, StorageConsumerError, UndecodableRow
from storage_consumer.model import TableName, folded_name
from storage_consumer.plan.table_words import named
from storage_consumer.session import Session
from storage_consumer.spark.executors import at_executor, opened
from storage_consumer.sql.tokens import qualified
from storage_consumer.telemetry import redact
from storage_consumer.tso import parse_instant

Evolution = Literal["fail", "ignore", "rescue"]
"""What a stream does when its table gets another column: end, leave the column out, or give it in a
column of JSON.
"""
_OWN = (
    *(
        "path",
        "table",
        "startingVersion",
        "startingTimestamp",
        "endingVersion",
        "endingTimestamp",
        "columns",
    ),
    *(
        "updateImages",
        "schemaEvolution",
        "invalidDates",
        "maxFilesPerTrigger",
        "maxBytesPerTrigger",
    ),
    *("maxPartitionBytes", "minPartitions", "statements"),
)
_BUCKET = (
    *(
        "config",
        "filter",
        "protocol",
        "terminator",
        "delimiter",
        "quote",
        "null",
        "include_commit_ts",
        "tz",
    ),
    *("binary_encoding_method", "output_old_value", "output_handle_key", "output_field_header"),
    *(
        "headerless_selectors",
        "skip_commit_ts",
        "enable_tidb_extension",
        "date_separator",
        "enable_partition_separator",
        "file_index_width",
        "gap_timeout",
    ),
)
"""Options of `run` that say what was written to the bucket, by their keywords."""
_KNOWN = {name.replace("_", "").lower(): name for name in (*_OWN, *_BUCKET)}
_AS_THEY_ARE = ("terminator", "delimiter", "quote", "null")
"""Options whose white space is a part of the value."""
_ELSEWHERE = ("versionasof", "timestampasof", "base")
_UNITS = {"k": 10, "kb": 10, "m": 20, "mb": 20, "g": 30, "gb": 30, "b": 0, "": 0}
PARTITION_BYTES = 64 << 20
CORES = os.cpu_count() or 1
"""Of the driver's machine: a data source cannot ask its session for more."""
LATEST = "latest"
"""Begin a stream with what commits from now on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """What is asked of the source."""

    uri: str
    bucket: Mapping[str, str]
    """Keywords of `Consumer` that say what was written to the bucket."""
    table: TableName | None = None
    """None: all tables, their rows as JSON."""
    low: int = 0
    """Commit-ts from which on changes are wanted, exclusive."""
    high: int | None = None
    """Commit-ts up to which changes are wanted, inclusive; None: the bucket's checkpoint."""
    from_latest: bool = False
    """Whether a stream begins at the bucket's checkpoint."""
    columns: tuple[str, ...] = ()
    """The table's columns that are wanted; empty: all."""
    both_images: bool = False
    evolution: Evolution = "fail"
    over_statements: bool = False
    """Whether to go on over statements that move the table's rows without a change of any."""
    refuse_dates: bool = False
    max_files: int = 0
    """Most files of a micro-batch, about; 0: no limit."""
    max_bytes: int = 0
    """Most bytes of a micro-batch's files, about; 0: no limit."""
    partition_bytes: int = PARTITION_BYTES
    """Most bytes of files that one task reads, about."""
    cores: int = 1
    """Among how many tasks the files of a batch are shared, where they are enough."""


def source_options(options: Mapping[str, str]) -> SourceOptions:
    """Return a data source's options; raise `ConfigError` with the option and its form."""
    known = {_option(name): value for name, value in options.items()}
    given = {
        name: value if name in _AS_THEY_ARE else value.strip() for name, value in known.items()
    }
    uri = given.get("path", "")
    if not uri:
        raise ConfigError(
            "the bucket is missing: give its URI to load(), such as .load('s3://bucket/prefix')"
        )
    if secrets_in(uri):
        raise ConfigError(
            f"{mask_uri(uri)}: the path holds a secret, and paths stand in Spark's plans and on its pages. Give it in the environment of the "
            "driver and of the workers, or by the cloud's own way"
        )
    if "table" not in given and "columns" in given:
        raise ConfigError(
            "option columns: these are columns of one table, so give the option table too"
        )
    if "maxFilesPerTrigger" in given and "maxBytesPerTrigger" in given:
        raise ConfigError("options maxFilesPerTrigger and maxBytesPerTrigger: give one of them")
    from_latest = given.get("startingVersion", "").lower() == LATEST
    start = None if from_latest else _instant(given, "startingVersion", "startingTimestamp")
    return SourceOptions(
        uri=uri,
        bucket={name: value for name, value in given.items() if name in _BUCKET},
        table=named("option table:", given["table"], whole=True) if "table" in given else None,
        low=max(0, (start or 1) - 1),
        high=_instant(given, "endingVersion", "endingTimestamp"),
        from_latest=from_latest,
        columns=tuple(
            filter(None, (name.strip().strip("`") for name in given.get("columns", "").split(",")))
        ),
        both_images=_one_of(given, "updateImages", ("after", "both")) == "both",
        evolution=cast(
            "Evolution", _one_of(given, "schemaEvolution", ("fail", "ignore", "rescue"))
        ),
        over_statements=_one_of(given, "statements", ("fail", "ignore")) == "ignore",
        refuse_dates=_one_of(given, "invalidDates", ("null", "error")) == "error",
        max_files=_size(given, "maxFilesPerTrigger", 0),
        max_bytes=_size(given, "maxBytesPerTrigger", 0),
        partition_bytes=_size(given, "maxPartitionBytes", PARTITION_BYTES),
        cores=max(1, _size(given, "minPartitions", CORES)),
    )


def _option(name: str) -> str:
    plain = name.replace("_", "").replace("-", "").lower()
    if plain in _ELSEWHERE:
        raise ConfigError(
            f"option {name}: a data source gives changes, and a table as of a commit-ts takes a shuffle. Use "
            "storage_consumer.spark.table_at(spark, uri, table, version, base=...)"
        )
    if plain == "pushfilters":
        raise ConfigError(
            f"option {name}: Spark shares what one query's filters leave among all queries of one load, which would lack rows. Narrow the window "
            "with startingVersion and endingVersion"
        )
    if (found := _KNOWN.get(plain)) is not None:
        return found
    if is_secret(name):
        raise ConfigError(
            f"option {name}: options stand in Spark's plans and on its pages, so they must not hold secrets. Give it in the environment of the "
            "driver and of the workers, as docs/cluster.md says, or by the cloud's own way"
        )
    raise ConfigError(f"option {name} is not known{did_you_mean(name, (*_OWN, *_BUCKET))}")


def _instant(given: Mapping[str, str], version: str, timestamp: str) -> int | None:
    """Return the TSO of whichever of two options is given."""
    if version in given and timestamp in given:
        raise ConfigError(f"options {version} and {timestamp} mean the same: give one of them")
    name = version if version in given else timestamp
    if name not in given:
        return None
    try:
        return parse_instant(given[name], is_end=version == "endingVersion")
    except ValueError as fault:
        raise ConfigError(f"option {name}: {fault}") from None


def _one_of(given: Mapping[str, str], name: str, words: tuple[str, ...]) -> str:
    value = given.get(name, words[0]).lower()
    if value not in words:
        raise ConfigError(f"option {name}: {given[name]!r}: one of {', '.join(words)} is expected")
    return value


def _size(given: Mapping[str, str], name: str, default: int) -> int:
    """Return a positive number, which may have a unit of bytes; 0 only where it is the default."""
    text = given.get(name, "").lower()
    if not text:
        return default
    digits = text.rstrip("bgkm ")
    unit = text[len(digits) :].strip()
    if not (digits.isascii() and digits.isdecimal() and int(digits)) or unit not in _UNITS:
        raise ConfigError(
            f"option {name}: {given[name]!r}: a positive number is expected, such as 1000 or 64m"
        )
    return int(digits) << _UNITS[unit]


SEQUENCE = pa.field(
    "_sequence",
    pa.struct(
        [
            pa.field(name, kind, nullable=False)
            for name, kind in (
                ("version", pa.int64()),
                ("kind", pa.int8()),
                ("place", pa.string()),
                ("row", pa.int64()),
            )
        ]
    ),
    nullable=False,
)
"""Position of a change among all of its table: by commit-ts, deletes before upserts before
statements, then by file and row.
"""
KEYS = "ticdc.keys"
"""Where the metadata of column ``_table_version`` has the columns of the primary key: JSON pairs of
the first table version and their names.
"""
COLUMNS = "ticdc.columns"
"""Where it has the names of all of the table's columns, as JSON."""
DOCUMENTS = tuple(
    pa.field(name, pa.string()) for name in ("database", "table", "before", "after", "statement")
)
"""The columns of a feed of all tables."""
RESERVED = frozenset((*(field.name for field in META), SEQUENCE.name, RESCUED))
"""Names of the columns that the source adds, or may add."""


def spark_schema(schema: pa.Schema, keys: str = "", columns: Iterable[str] = ()) -> StructType:
    """Return Spark's schema; `keys`, `columns`: metadata at `KEYS` and, as JSON, at `COLUMNS`."""
    noted = {"_table_version": {KEYS: keys, COLUMNS: json.dumps(sorted(columns))}} if keys else {}
    return StructType(
        [
            StructField(
                field.name,
                from_arrow_type(field.type, prefer_timestamp_ntz=True),
                field.nullable,
                noted.get(field.name),
            )
            for field in schema
        ]
    )


def chosen(schema: pa.Schema, asked: StructType) -> pa.Schema:
    """Return the columns that Spark asks for, in order; raise `ConfigError` for other types."""
    fields = []
    for wanted in asked.fields:
        place = schema.get_field_index(wanted.name)
        if place < 0:
            raise ConfigError(
                f"the schema names column {wanted.name}, but there are: {', '.join(schema.names)}"
            )
        field = schema.field(place)
        kind = from_arrow_type(field.type, prefer_timestamp_ntz=True)
        if kind != wanted.dataType:
            raise ConfigError(
                f"the schema has column {wanted.name} as {wanted.dataType.simpleString()}, and its values are "
                f"{kind.simpleString()}: ask for that, and cast it"
            )
        # Whoever gives a schema may leave the nulls open.
        fields.append(field.with_nullable(wanted.nullable))
    return pa.schema(fields)


def own_fields(schema: pa.Schema) -> tuple[pa.Field, ...]:
    """Return those columns of a schema that are the table's own."""
    own = own_columns(schema.names)
    return tuple(field for field in schema if field.name in own)


def own_columns(names: Iterable[str]) -> list[str]:
    """Return those names that are the table's own columns."""
    return [name for name in names if name not in RESERVED]


def sequence(arrays: Sequence[pa.Array], operations: NDArray[np.int8]) -> pa.Array:
    """Return `SEQUENCE` of changes. `arrays`: those of `META`; `operations`: of each change."""
    kinds = pa.array((operations > DELETE).astype(np.int8))
    _, versions, _, _, files, numbers = arrays
    return pa.StructArray.from_arrays(
        [versions, kinds, files, numbers],
        fields=[SEQUENCE.type.field(n) for n in range(SEQUENCE.type.num_fields)],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """A bucket as it was when the source was loaded. It holds no secret."""

    upstream: Upstream
    held: tuple[str, ...]
    """Names of the secrets that the driver has for the bucket."""
    checkpoint: int
    """Commit-ts up to which (inclusive) the bucket was complete."""
    high: int
    """Commit-ts up to which (inclusive) a batch reads."""
    schema: pa.Schema
    """All columns that there are."""
    known: frozenset[str]
    """Folded names of the columns that the table has had."""
    keys: str
    """See `KEYS`; empty for all tables."""
    moved: str
    """The last statement that moved the table's rows without a change of any, as JSON: its version,
    and what it did; empty: there is none.
    """
    landmarks: tuple[tuple[str, int], ...]
    """See `window.landmarks`."""
    rules: tuple[str, ...]
    """What is read, as rules of TiCDC's table filter: the one table that was named, else the
    filter's; none for every table.
    """


def open_feed(options: SourceOptions) -> tuple[Feed, Loaded]:
    """Return a source's feed and settings; raise `ConfigError` or `StorageUnavailable`."""
    given = {"upstream_uri": options.uri, **options.bucket}
    loaded, storage = Session(given, os.environ).open_bucket()
    return Feed(
        storage, loaded.config.upstream, SystemClock(), loaded.config.selecting.rules, options.table
    ), loaded


def look_at(options: SourceOptions) -> Opened:
    """Poll the bucket; raise as `Feed.window` does, and `ConfigError` for unknown columns."""
    feed, loaded = open_feed(options)
    # Whether all files of the window are there is asked where it is read: a stream goes on behind
    # what is gone.
    high = feed.upto(options.high)
    # What a stream begins with that gives what commits from now on is what the table has now.
    low = feed.contents.checkpoint if options.from_latest else options.low
    own, known, keys, moved = tuple[pa.Field, ...](DOCUMENTS), frozenset[str](), "", ""
    # Without a table's name, tables of the filter may come while a stream runs.
    if options.table is not None:
        refuse_none(feed.contents, options.table, loaded.config.selecting.rules)
    if options.table is not None:
        structures = list(feed.contents.in_force(low, max(low, high)))
        every, keys = fields_of(structures), _keys(structures)
        if not options.over_statements:
            found = list(moves(options.table, low, high, feed.contents.definitions))
            moved = json.dumps(found[-1]) if found else ""
        by_name = {folded_name(field.name): field for field in every}
        for name in options.columns:
            if folded_name(name) not in by_name:
                raise ConfigError(
                    f"option columns: the table has no column {name}; it has: {', '.join(by_name)}"
                )
        known = frozenset(by_name)
        own = tuple(by_name[folded_name(name)] for name in options.columns) or every
        if reserved := next(
            (field.name for field in own if folded_name(field.name) in RESERVED), ""
        ):
            raise ConfigError(
                f"the table has a column {reserved}, which is also the name of a column that the source adds: leave it out with the option columns"
            )
        if options.evolution == "rescue":
            own = (*own, pa.field(RESCUED, pa.string()))
    return Opened(
        upstream=loaded.config.upstream,
        held=held_for_bucket(loaded),
        checkpoint=feed.contents.checkpoint,
        high=high,
        schema=pa.schema([*own, *META, SEQUENCE]),
        known=known,
        keys=keys,
        moved=moved,
        landmarks=landmarks(feed.contents.definitions),
        rules=loaded.config.selecting.rules
        if options.table is None
        else (qualified(options.table),),
    )


def _keys(structures: Iterable[Structure]) -> str:
    """Return the primary key's names, from each table version that changes them."""
    found: list[tuple[int, list[str]]] = []
    for structure in sorted(structures, key=lambda each: each.version):
        names = list(structure.key_names)
        if not found or list(map(folded_name, found[-1][1])) != list(map(folded_name, names)):
            found.append((structure.version, names))
        # In the newest spelling, as the columns are.
        found[-1] = found[-1][0], names
    return json.dumps(found)


def held_for_bucket(loaded: Loaded) -> tuple[str, ...]:
    """Return the names of the secrets that the driver has for the bucket."""
    return tuple(name for name in loaded.secrets.names if name != "password")


@contextmanager
def at_worker(upstream: Upstream, held: Sequence[str]) -> Iterator[Storage]:
    """Yield a storage on this worker, with its environment's secrets; `held`: the driver's."""
    with at_executor("", held):
        yield opened(upstream, secrets_from(""))


@contextmanager
def told() -> Iterator[None]:
    """Hide secrets in errors on their way to Spark, which shows and logs them."""
    try:
        yield
    except UndecodableRow as fault:
        raise UndecodableRow(
            redact(str(fault)), at_end=fault.at_end, commit_ts=fault.commit_ts
        ) from None
    except StorageConsumerError as fault:
        raise type(fault)(redact(str(fault))) from None
