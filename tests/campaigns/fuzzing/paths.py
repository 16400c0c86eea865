"""Paths: any text is one of the kinds of path, and what was read can be written back."""

from __future__ import annotations

from collections.abc import Sequence

from storage_consumer.bucket.paths import Ignored, SchemaPath, Tables
from storage_consumer.config.settings import DateSeparator
from tests.campaigns.fuzzing.engine import Target
from tests.campaigns.fuzzing.seeds import corpus_paths
from tests.harness.paths import DataPath, format_data_path, format_schema_path, parse_path

PIECES = (
    b"/",
    b"meta/",
    b"/2024",
    b"/2024-01-01",
    b"CDC_1_",
    b".csv",
    b".tmp",
    b"schema_1_0000000001.json",
    b"/113",
    b"\n",
)
TABLES: Tables = {"shop/t": {449000000000000001: {1}, 449000000000000002: {None}}}
DATES: tuple[DateSeparator | None, ...] = (None, "none", "year", "month", "day")


def check(data: bytes) -> str:
    """Read `data` as a path, under all settings."""
    text = data.decode("utf-8", "surrogateescape")
    kinds = []
    for date in DATES:
        parsed = parse_path(text, TABLES, date, partition_separator=None)
        if isinstance(parsed, SchemaPath):
            assert format_schema_path(parsed) == text
        elif isinstance(parsed, DataPath):
            assert format_data_path(parsed) == text
        kinds.append(parsed.reason if isinstance(parsed, Ignored) else type(parsed).__name__)
    return ", ".join(kinds)


def seeds() -> Sequence[bytes]:
    """Paths of the recorded buckets."""
    return [path.encode("utf-8", "surrogateescape") for path in corpus_paths()]


TARGET = Target(name="paths", seeds=seeds, check=check, pieces=PIECES)
