"""The parts of a path, by its text.

TiCDC writes, below the root of the sink::

    metadata
    {schema}/meta/schema_{version}_{checksum}.json
    {table directory}/meta/schema_{version}_{checksum}.json
    {table directory}/{version}[/{partition id}][/{date}]/CDC[_{dispatcher}_]{number}.csv|.json
    {table directory}/{version}[/{partition id}][/{date}]/meta/CDC[_{dispatcher}].index

where the table directory is ``{schema}/{table}``, or with ``use-table-id-as-path`` the table's id
alone. TiCDC 6.5.0 to 6.5.2, 6.6.0 and 7.0.0 write, with their own defaults for date and partition
directories::

    {schema}/{table}/{version}/schema.json
    {schema}/{table}/{version}[/{partition id}][/{date}]/CDC{number}.csv|.json
    {schema}/{table}/{version}[/{partition id}][/{date}]/CDC.index

Names appear in the path unescaped: they may hold slashes, dots and digits, or look like any of the
other segments. So a path is read from its right end. Where that leaves a choice, the listed schema
files decide.

Where the settings do not say which of the date and partition directories exist, the text of a
directory does, with one exception: four digits below the version, ``{version}/2024``, may be a year
or the id of a partition. They are read as a partition. Only what a listing may leave out depends on
this: old years are finished, partitions never are. So the reading that keeps the directory in the
listing loses no rows if it is wrong. Rows of one commit-ts are ordered by what they do, not by
their directory. Without commit-ts, years read as partition ids sort as the years do.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Literal

from storage_consumer.config.settings import DateSeparator

TMP = "unfinished upload (.tmp)"
UNKNOWN = "unknown path"
COPY = "copy of a changefeed's files"
EMPTY = "empty object"
CONTRADICTS_DATE = "contradicts date-separator"
CONTRADICTS_PARTITION = "contradicts enable-partition-separator"

_SCHEMA = re.compile(r"(?:(.+)/)?meta/schema_(0|[1-9][0-9]{0,19})_([0-9]{10})\.json", re.DOTALL)
_OLD_SCHEMA = re.compile(r"(.+)/(0|[1-9][0-9]{0,19})/schema\.json", re.DOTALL)
_NOT_OF_TICDC = re.compile(
    r"(?:^|/)(?:\.snapshots?|[~#]snapshot|\.zfs|[#@]recycle|@recently-snapshot|@eadir|\$recycle\.bin|system volume information|lost\+found"
    r"|\.trash(?:es|-[0-9]+)?|\.stversions|\.appledouble)(?:/|$)",
    re.IGNORECASE,
)
"""Folders with old or deleted files of file systems and managers; also valid database names."""
_INDEX = re.compile(r"CDC(?:_[0-9]+)?\.index")
# A dispatcher is two 64-bit numbers; more digits would not fit the state and end the program.
_DATA = re.compile(r"CDC(?:_([0-9]{1,40})_)?([0-9]{1,20})\.(csv|json)")
_TMP = re.compile(r".+\.tmp(?:\.[^/]*)?", re.DOTALL)
_NUMBER = re.compile(r"0|[1-9][0-9]{0,19}")
_DATES: Mapping[DateSeparator, re.Pattern[str]] = {
    "none": re.compile(""),
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

Tables = Mapping[str, Mapping[int, AbstractSet[int | None]]]
"""Table directory → version → checksums in schema files' names; None for ``schema.json``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaPath:
    """The parts of a schema file's path."""

    table_dir: str
    version: int
    checksum: int | None
    """None for the ``schema.json`` of the older layout, whose name has no checksum."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataDirectory:
    """The parts of a data file's directory."""

    table_dir: str
    version: int
    partition: int | None
    date: str
    known: bool = True
    """Whether a schema file of `table_dir` was listed; else that is the likeliest reading."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataName:
    """The parts of a data file's own name."""

    dispatcher: str
    number: int
    width: int
    """Digits to pad to; without leading zeros, the smallest that TiCDC allows."""
    extension: str
    """``csv`` or ``json``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ignored:
    """A path that does not belong to a file of TiCDC's, or not under these settings."""

    reason: str

    @property
    def contradicts(self) -> bool:
        """Whether the path shows that the settings differ from those that TiCDC wrote with."""
        return self.reason in {CONTRADICTS_DATE, CONTRADICTS_PARTITION}


def parse_other(path: str) -> SchemaPath | Ignored | Literal["index"]:
    """Return what a path is that belongs neither to ``metadata`` nor to a data file."""
    name = path.rpartition("/")[2]
    if _INDEX.fullmatch(name):
        return "index"
    # On file systems TiCDC renames a file so named when written; a crash leaves it for good.
    if _TMP.fullmatch(name):
        return Ignored(reason=TMP)
    if match := _SCHEMA.fullmatch(path):
        table_dir, version, checksum = match[1], int(match[2]), int(match[3])
    # That layout has no schema file of a database: a table's directory has two segments at least.
    elif (match := _OLD_SCHEMA.fullmatch(path)) and "/" in match[1]:
        table_dir, version, checksum = match[1], int(match[2]), None
    else:
        return Ignored(reason=UNKNOWN)
    if not table_dir or version > _MAX_UINT64 or (checksum or 0) > _MAX_CHECKSUM:
        return Ignored(reason=UNKNOWN)
    return SchemaPath(table_dir=table_dir, version=version, checksum=checksum)


def parse_data_name(name: str) -> DataName | None:
    """Return the parts of a data file's name, or None if it is not one."""
    # TiCDC numbers from 1, so a file with the number 0 is not one of its own.
    match = _DATA.fullmatch(name)
    if match is None or not 0 < (number := int(match[2])) <= _MAX_UINT64:
        return None
    digits = match[2]
    width = len(digits) if digits[0] == "0" else min(len(digits), _LEAST_WIDTH)
    return DataName(dispatcher=match[1] or "", number=number, width=width, extension=match[3])


def place_directory(
    folder: str,
    tables: Tables,
    date_separator: DateSeparator | None,
    *,
    partition_separator: bool | None,
) -> DataDirectory | Ignored:
    """Return the table, version, partition and date that the directory of a data file stands for.

    Preferred in this order: the longest table directory that has a schema file of this very
    version; the longest one that has any; without any listed schema file, the likeliest reading
    from the right. A version of the older layout is not judged by the settings: a changefeed that
    was upgraded had other ones then.
    """
    segments = folder.split("/")
    # The longest table directory leaves the shortest rest: version alone, then with one and with
    # two more segments.
    splits = [
        ("/".join(segments[:-length]), tuple(segments[-length:]))
        for length in (1, 2, 3)
        if length < len(segments)
    ]
    fitting = []
    for table_dir, rest in splits:
        version = _number(rest[0], _MAX_UINT64)
        # A version of the older layout: the changefeed may have had other settings.
        is_old = version is not None and None in tables.get(table_dir, {}).get(version, ())
        middles = () if version is None else _middles(rest[1:], None if is_old else date_separator)
        for partition, date in middles:
            if version is not None and (
                partition is None or is_old or partition_separator is not False
            ):
                placed = DataDirectory(
                    table_dir=table_dir, version=version, partition=partition, date=date
                )
                fitting.append(placed)
                break
    for placed in fitting:
        if placed.version in tables.get(placed.table_dir, ()):
            return placed
    for placed in fitting:
        if placed.table_dir in tables:
            return placed
    # Contradicting the settings outranks a guess, if the version looks like a TSO.
    return (
        _misfit(splits, tables, date_separator)
        or _likeliest([placed for placed in fitting if placed.version >= _ID_LIMIT])
        or _misfit(splits, None, date_separator)
        or _likeliest(fitting)
        or Ignored(reason=UNKNOWN)
    )


def is_of_file_system(folder: str) -> bool:
    """Return whether a folder or its parent is named as file systems and managers name theirs."""
    return _NOT_OF_TICDC.search(folder) is not None


def folder_above(path: str, folders: AbstractSet[str]) -> str:
    """Return the outermost of these folders that contains `path`, or the empty text."""
    end = path.find("/") if folders else -1
    while end >= 0:
        if path[:end] in folders:
            return path[:end]
        end = path.find("/", end + 1)
    return ""


def sequence_of(path: str) -> str:
    """Return the scope of a data file's number: its directory, and its dispatcher if named.

    That is all of `path` up to the last underscore of the name, else the directory alone. For any
    other file the result matches no data file, unless that file lies beside data files.
    """
    folder, _, name = path.rpartition("/")
    dispatcher, underscore, _ = name.rpartition("_")
    return f"{folder}/{dispatcher}{underscore}" if underscore else folder


def left_out(path: str, after: Mapping[str, str]) -> bool:
    """Return whether a listing may leave `path` out, given `after` as in `Storage.listing`."""
    # By text, which is the order of numbers only where all have one width: no mark is ever given
    # where they do not.
    mark = after.get(sequence_of(path))
    return mark is not None and path.rpartition("/")[2] <= mark


def format_data_name(name: DataName) -> str:
    """Return the text that `parse_data_name` reads."""
    dispatcher = f"_{name.dispatcher}_" if name.dispatcher else ""
    return f"CDC{dispatcher}{name.number:0{name.width}d}.{name.extension}"


def _number(text: str, limit: int) -> int | None:
    """Return the number in its shortest form `text`; None if there is none up to `limit`."""
    if _NUMBER.fullmatch(text) and (number := int(text)) <= limit:
        return number
    return None


def _middles(
    middle: tuple[str, ...], date_separator: DateSeparator | None
) -> Iterator[tuple[int | None, str]]:
    """Yield readings of the middle segments as partition and date, the preferred one first."""
    for separator in _DATES if date_separator is None else (date_separator,):
        others, date = (middle, "") if separator == "none" else (middle[:-1], "".join(middle[-1:]))
        # Between version and date there is at most a partition.
        if len(others) > 1 or not _DATES[separator].fullmatch(date):
            continue
        partition = _number(others[0], _ID_LIMIT) if others else None
        if partition is not None or not others:
            yield partition, date


def _misfit(
    splits: list[tuple[str, tuple[str, ...]]],
    tables: Tables | None,
    date_separator: DateSeparator | None,
) -> Ignored | None:
    """Return the setting under which the contradicting directory would be TiCDC's.

    With `tables`, only directories of these tables and their versions count; without, only versions
    that look like a TSO.
    """
    for table_dir, rest in splits:
        version = _number(rest[0], _MAX_UINT64)
        if version is None or (
            version not in tables.get(table_dir, ()) if tables is not None else version < _ID_LIMIT
        ):
            continue
        # It fits the given date, so what does not fit is the partition.
        if any(_middles(rest[1:], date_separator)):
            return Ignored(reason=CONTRADICTS_PARTITION)
        if any(_middles(rest[1:], None)):
            return Ignored(reason=CONTRADICTS_DATE)
    return None


def _likeliest(fitting: list[DataDirectory]) -> DataDirectory | None:
    """Return the reading that has a partition, or else the first of several."""
    if not fitting:
        return None
    # Reading a partition keeps the directory listed, so an error loses nothing.
    return replace(max(fitting, key=lambda placed: placed.partition is not None), known=False)


def with_all_above(folder: str) -> Iterator[str]:
    """Yield a directory and all directories that contain it, the outermost first."""
    parts = folder.split("/")
    return ("/".join(parts[:length]) for length in range(1, len(parts) + 1))
