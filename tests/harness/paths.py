"""Whole paths ⇄ their parts: what the product asks of names and directories one by one. Parsing and formatting are inverses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from storage_consumer.bucket.paths import (
    DataDirectory,
    DataName,
    Ignored,
    SchemaPath,
    Tables,
    format_data_name,
    parse_data_name,
    parse_other,
    place_directory,
)
from storage_consumer.config.settings import DateSeparator


@dataclass(frozen=True, slots=True, kw_only=True)
class DataPath:
    """The parts of a data file's path."""

    directory: DataDirectory
    name: DataName


ParsedPath = SchemaPath | DataPath | Ignored | Literal["index", "metadata"]


def parse_path(
    path: str, tables: Tables, date_separator: DateSeparator | None, *, partition_separator: bool | None
) -> ParsedPath:
    """Return what `path`, relative to the root, is. `tables` decides between several readings of a data path.

    A separator that is None was not given.
    """
    # Only at the root: a schema or table of that name has a folder, and its files lie deeper.
    if path == "metadata":
        return "metadata"
    folder, _, name = path.rpartition("/")
    if data := parse_data_name(name):
        placed = place_directory(folder, tables, date_separator, partition_separator=partition_separator)
        return placed if isinstance(placed, Ignored) else DataPath(directory=placed, name=data)
    return parse_other(path)


def format_schema_path(path: SchemaPath) -> str:
    """Return the text that `parse_path` reads."""
    if path.checksum is None:
        return f"{path.table_dir}/{path.version}/schema.json"
    return f"{path.table_dir}/meta/schema_{path.version}_{path.checksum:010d}.json"


def format_directory(directory: DataDirectory) -> str:
    """Return the text that `place_directory` reads."""
    partition = "" if directory.partition is None else f"/{directory.partition}"
    date = f"/{directory.date}" if directory.date else ""
    return f"{directory.table_dir}/{directory.version}{partition}{date}"


def format_data_path(path: DataPath) -> str:
    """Return the text that `parse_path` reads."""
    return f"{format_directory(path.directory)}/{format_data_name(path.name)}"
