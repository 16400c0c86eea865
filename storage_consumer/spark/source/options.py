"""The options of ``format("ticdc")``, checked before the bucket is touched."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, cast

from storage_consumer.config.parsers import did_you_mean
from storage_consumer.config.uris import is_secret, mask_uri, secrets_in
from storage_consumer.errors import ConfigError
from storage_consumer.instants import parse_instant
from storage_consumer.model import TableName
from storage_consumer.plan.table_words import parsed
from storage_consumer.sql.tokens import qualified

Evolution = Literal["fail", "ignore", "rescue"]
"""What a stream does when its table gets another column: end, leave the column out, or give it in a column of JSON."""
_OWN = (
    *("path", "table", "startingVersion", "startingTimestamp", "endingVersion", "endingTimestamp", "columns"),
    *("updateImages", "schemaEvolution", "invalidDates", "maxFilesPerTrigger", "maxBytesPerTrigger"),
    *("maxPartitionBytes", "minPartitions", "statements"),
)
_BUCKET = (
    *("config", "filter", "protocol", "terminator", "delimiter", "quote", "null", "include_commit_ts", "tz"),
    *("binary_encoding_method", "output_old_value", "output_handle_key", "output_field_header"),
    *(
        "headerless_selectors",
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

    @property
    def rules(self) -> tuple[str, ...]:
        """The rule of TiCDC's table filter for what is read; none for every table."""
        return () if self.table is None else (qualified(self.table),)


def source_options(options: Mapping[str, str]) -> SourceOptions:
    """Return the options of a data source; raise `ConfigError`, which names the option and what is expected."""
    known = {_known(name): value for name, value in options.items()}
    given = {name: value if name in _AS_THEY_ARE else value.strip() for name, value in known.items()}
    uri = given.get("path", "")
    if not uri:
        raise ConfigError("the bucket is missing: give its URI to load(), such as .load('s3://bucket/prefix')")
    _refuse_secrets(uri)
    if "table" not in given and "columns" in given:
        raise ConfigError("option columns: these are columns of one table, so give the option table too")
    if "maxFilesPerTrigger" in given and "maxBytesPerTrigger" in given:
        raise ConfigError("options maxFilesPerTrigger and maxBytesPerTrigger: give one of them")
    low, from_latest = _start(given)
    return SourceOptions(
        uri=uri,
        bucket={name: value for name, value in given.items() if name in _BUCKET},
        table=_table(given["table"]) if "table" in given else None,
        low=low,
        high=_instant(given, "endingVersion", "endingTimestamp"),
        from_latest=from_latest,
        columns=tuple(filter(None, (name.strip().strip("`") for name in given.get("columns", "").split(",")))),
        both_images=_one_of(given, "updateImages", ("after", "both")) == "both",
        evolution=cast("Evolution", _one_of(given, "schemaEvolution", ("fail", "ignore", "rescue"))),
        over_statements=_one_of(given, "statements", ("fail", "ignore")) == "ignore",
        refuse_dates=_one_of(given, "invalidDates", ("null", "error")) == "error",
        max_files=_size(given, "maxFilesPerTrigger", 0),
        max_bytes=_size(given, "maxBytesPerTrigger", 0),
        partition_bytes=_size(given, "maxPartitionBytes", PARTITION_BYTES),
        cores=max(1, _size(given, "minPartitions", CORES)),
    )


def _known(name: str) -> str:
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


def _refuse_secrets(uri: str) -> None:
    if secrets_in(uri):
        raise ConfigError(
            f"{mask_uri(uri)}: the path holds a secret, and paths stand in Spark's plans and on its pages. Give it in the environment of the "
            "driver and of the workers, or by the cloud's own way"
        )


def _table(text: str) -> TableName:
    name = parsed(text)
    if name is None or not name.table:
        raise ConfigError(
            f"option table: {text!r}: database.table is expected, and `database`.`table` where a name holds a dot"
        )
    return name


def _start(given: Mapping[str, str]) -> tuple[int, bool]:
    """Return the commit-ts after which changes are wanted, and whether only those from now on are."""
    if given.get("startingVersion", "").lower() == LATEST:
        return 0, True
    start = _instant(given, "startingVersion", "startingTimestamp")
    return max(0, (start or 1) - 1), False


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
        raise ConfigError(f"option {name}: {given[name]!r}: a positive number is expected, such as 1000 or 64m")
    return int(digits) << _UNITS[unit]
