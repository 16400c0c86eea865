"""Path text ⇄ its parts; parsing and formatting are inverses.

TiCDC writes, below the root of the sink::

    metadata
    {schema}/meta/schema_{version}_{checksum}.json
    {schema}/{table}/meta/schema_{version}_{checksum}.json
    {schema}/{table}/{version}[/{partition id}][/{date}]/CDC[_{dispatcher}_]{number}.csv|.json
    {schema}/{table}/{version}[/{partition id}][/{date}]/meta/CDC[_{dispatcher}].index

Names stand in the path as they are: they may hold slashes, dots and digits, or look like any of the other segments. So a path
is read from its right end, and where that leaves a choice the schema files that were listed decide.
"""

from __future__ import annotations

import re
from collections.abc import Container, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from storage_consumer.config.settings import DateSeparator

TMP = "unfinished upload (.tmp)"
UNKNOWN = "unknown path"
OLD_LAYOUT = "schema.json of the layout before TiCDC 6.5.3 and 7.1"
CONTRADICTS_DATE = "contradicts date-separator"
CONTRADICTS_PARTITION = "contradicts enable-partition-separator"

_SCHEMA = re.compile(r"(?:(.+)/)?meta/schema_(0|[1-9][0-9]{0,19})_([0-9]{10})\.json", re.DOTALL)
_INDEX = re.compile(r"(?:.+/)?meta/CDC(?:_[0-9]+)?\.index", re.DOTALL)
_DATA = re.compile(r"CDC(?:_([0-9]+)_)?([0-9]{1,20})\.(csv|json)")
_TMP = re.compile(r".+\.tmp(?:\.[^/]*)?", re.DOTALL)
_NUMBER = re.compile(r"0|[1-9][0-9]{0,19}")
_DATES: Mapping[str, re.Pattern[str]] = {
    "year": re.compile(r"[0-9]{4}"),
    "month": re.compile(r"[0-9]{4}-(?:0[1-9]|1[0-2])"),
    "day": re.compile(r"[0-9]{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12][0-9]|3[01])"),
}
_MAX_UINT64 = (1 << 64) - 1
_MAX_CHECKSUM = (1 << 32) - 1
_ID_LIMIT = 1 << 48
"""TiDB's table and partition ids stay below this; every TSO since 1970-01-13 lies above."""
_LEAST_WIDTH = 6
"""TiCDC's smallest ``file-index-digit``."""

Tables = Mapping[str, Container[int]]
"""Table directory → versions of its schema files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaPath:
    """Parts of a schema file's path."""

    table_dir: str
    version: int
    checksum: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DataDirectory:
    """Parts of the directory of a data file."""

    table_dir: str
    version: int
    partition: int | None
    date: str
    known: bool = True
    """Whether a schema file of `table_dir` was listed; else `table_dir` is the likeliest reading of the path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataName:
    """Parts of a data file's own name."""

    dispatcher: str
    number: int
    width: int
    """Digits to pad to. A number without leading zeros does not show it; then the smallest that TiCDC allows is meant."""
    extension: str
    """``csv`` or ``json``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataPath:
    """Parts of a data file's path."""

    directory: DataDirectory
    name: DataName


@dataclass(frozen=True, slots=True, kw_only=True)
class Ignored:
    """A path that is none of TiCDC's files, or not one for these settings."""

    reason: str

    @property
    def contradicts(self) -> bool:
        """Whether the path shows that the settings are not those TiCDC wrote with."""
        return self.reason in {CONTRADICTS_DATE, CONTRADICTS_PARTITION, OLD_LAYOUT}


ParsedPath = SchemaPath | DataPath | Ignored | Literal["index", "metadata"]


def parse_path(path: str, tables: Tables, date_separator: DateSeparator, *, partition_separator: bool) -> ParsedPath:
    """What `path`, relative to the root, is. `tables` tells which of several readings of a data path is meant."""
    if path == "metadata":
        return "metadata"
    folder, _, name = path.rpartition("/")
    if data := parse_data_name(name):
        placed = place_directory(folder, tables, date_separator, partition_separator=partition_separator)
        return placed if isinstance(placed, Ignored) else DataPath(directory=placed, name=data)
    return parse_other(path)


def parse_other(path: str) -> SchemaPath | Ignored | Literal["index"]:
    """What a path is that is neither ``metadata`` nor a data file."""
    if match := _SCHEMA.fullmatch(path):
        version, checksum = int(match[2]), int(match[3])
        if match[1] and version <= _MAX_UINT64 and checksum <= _MAX_CHECKSUM:
            return SchemaPath(table_dir=match[1], version=version, checksum=checksum)
        return Ignored(reason=UNKNOWN)
    if _INDEX.fullmatch(path):
        return "index"
    name = path.rpartition("/")[2]
    if _TMP.fullmatch(name):
        return Ignored(reason=TMP)
    return Ignored(reason=OLD_LAYOUT if name == "schema.json" else UNKNOWN)


def parse_data_name(name: str) -> DataName | None:
    """The parts of a data file's name, or None where it is none."""
    match = _DATA.fullmatch(name)
    if match is None or not 0 < (number := int(match[2])) <= _MAX_UINT64:
        return None
    digits = match[2]
    width = len(digits) if digits[0] == "0" else min(len(digits), _LEAST_WIDTH)
    return DataName(dispatcher=match[1] or "", number=number, width=width, extension=match[3])


def place_directory(
    folder: str, tables: Tables, date_separator: DateSeparator, *, partition_separator: bool
) -> DataDirectory | Ignored:
    """Which table, version, partition and date the directory of a data file stands for.

    In order: the longest table directory that has a schema file of this very version; the longest one that has any; and
    where no schema file was listed, the likeliest reading from the right.
    """
    segments = folder.split("/")
    # The longest table directory leaves the shortest rest: version alone, then with one and with two more segments.
    splits = [
        ("/".join(segments[:-length]), tuple(segments[-length:])) for length in (1, 2, 3) if length < len(segments)
    ]
    fitting = [
        placed
        for table_dir, rest in splits
        if (placed := _fit(table_dir, rest, date_separator, partition_separator=partition_separator))
    ]
    for placed in fitting:
        if placed.version in tables.get(placed.table_dir, ()):
            return placed
    for placed in fitting:
        if placed.table_dir in tables:
            return placed
    return (
        _misfit(splits, tables, date_separator)
        or _likeliest([placed for placed in fitting if placed.version >= _ID_LIMIT])
        or _misfit(splits, None, date_separator)
        or _likeliest(fitting)
        or Ignored(reason=UNKNOWN)
    )


def format_schema_path(path: SchemaPath) -> str:
    """The text that `parse_path` reads."""
    return f"{path.table_dir}/meta/schema_{path.version}_{path.checksum:010d}.json"


def format_directory(directory: DataDirectory) -> str:
    """The text that `place_directory` reads."""
    partition = "" if directory.partition is None else f"/{directory.partition}"
    date = f"/{directory.date}" if directory.date else ""
    return f"{directory.table_dir}/{directory.version}{partition}{date}"


def format_data_name(name: DataName) -> str:
    """The text that `parse_data_name` reads."""
    dispatcher = f"_{name.dispatcher}_" if name.dispatcher else ""
    return f"CDC{dispatcher}{name.number:0{name.width}d}.{name.extension}"


def format_data_path(path: DataPath) -> str:
    """The text that `parse_path` reads."""
    return f"{format_directory(path.directory)}/{format_data_name(path.name)}"


def _number(text: str, limit: int) -> int | None:
    """The number that `text` is in its shortest form, None where it is none or exceeds `limit`."""
    if _NUMBER.fullmatch(text) and (number := int(text)) <= limit:
        return number
    return None


def _fit(
    table_dir: str, rest: tuple[str, ...], date_separator: DateSeparator, *, partition_separator: bool
) -> DataDirectory | None:
    """`rest` read as version[/partition][/date] under the settings; None where it does not fit."""
    version = _number(rest[0], _MAX_UINT64)
    middle, date = rest[1:], ""
    if date_separator != "none":
        if not middle or not _DATES[date_separator].fullmatch(middle[-1]):
            return None
        middle, date = middle[:-1], middle[-1]
    partition = _number(middle[0], _ID_LIMIT) if middle else None
    if version is None or len(middle) > partition_separator or (middle and partition is None):
        return None
    return DataDirectory(table_dir=table_dir, version=version, partition=partition, date=date)


def _misfit(
    splits: list[tuple[str, tuple[str, ...]]], tables: Tables | None, date_separator: DateSeparator
) -> Ignored | None:
    """The setting that the directory contradicts, if it would be one of TiCDC's under other settings.

    With `tables`, only directories of these tables and their versions count; without, only versions that look like a TSO.
    """
    for table_dir, rest in splits:
        version = _number(rest[0], _MAX_UINT64)
        if version is None or (version not in tables.get(table_dir, ()) if tables is not None else version < _ID_LIMIT):
            continue
        dated = len(rest) > 1 and any(pattern.fullmatch(rest[-1]) for pattern in _DATES.values())
        others = rest[1:-1] if dated else rest[1:]
        if len(others) > 1 or any(_number(text, _ID_LIMIT) is None for text in others):
            continue
        with_partition = _fit(table_dir, rest, date_separator, partition_separator=True)
        return Ignored(reason=CONTRADICTS_PARTITION if with_partition else CONTRADICTS_DATE)
    return None


def _likeliest(fitting: list[DataDirectory]) -> DataDirectory | None:
    """Of several readings the one with a partition."""
    if not fitting:
        return None
    return replace(max(fitting, key=lambda placed: placed.partition is not None), known=False)
