"""Try a set of options: the program's own decoder reads a sample, or refuses a row."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from storage_consumer.config.settings import CsvOptions, Upstream
from storage_consumer.decode import decoder_for
from storage_consumer.decode.decoder import Tally
from storage_consumer.decode.layout import row_layout
from storage_consumer.errors import ConfigError, NotReplicable, UndecodableRow
from storage_consumer.inspection.csv_fields import row_columns
from storage_consumer.inspection.csv_rows import Found, Token, fields
from storage_consumer.inspection.samples import Sample
from storage_consumer.model import Window

_EVERYTHING = (1 << 64) - 1


def decoded_rows(sample: Sample, found: Found | None, options: CsvOptions, upstream: Upstream) -> int | None:
    """Return the number of rows that the decoder reads; None if it refuses one."""
    if found is None:
        return None
    columns = row_columns(sample.definition, sample.virtual)
    rows = len(found.rows)
    if sample.virtual is None and any(len(fields_of) < len(columns) for fields_of in _value_fields(found, options)):
        return rows
    try:
        layout = row_layout(sample.definition, sample.virtual or frozenset(), upstream)
    except NotReplicable:
        return rows
    low = sample.definition.version if options.include_commit_ts and sample.definition.is_ddl else -1
    try:
        decoder = decoder_for(replace(upstream, protocol="csv", terminator=options.terminator, csv=options))
        changes = decoder.rows([found.whole], layout, Window(low=low, high=_EVERYTHING), Tally(), sample.path)
        return sum(1 for _ in changes)
    except (UndecodableRow, ConfigError):
        return None


def _value_fields(found: Found, options: CsvOptions) -> Iterator[tuple[Token, ...]]:
    skip = options.include_commit_ts + options.output_old_value + options.output_handle_key
    size = len(options.terminator.encode())
    for row in found.rows:
        yield (fields(row[: len(row) - size], found.frame) or ())[skip:]
