"""The options that say how TiCDC wrote the files; most are the changefeed's own, read from its ``[sink]`` table."""

from __future__ import annotations

from storage_consumer.config import parsers
from storage_consumer.config.option import Option, switch
from storage_consumer.config.settings import CsvOptions

_CSV = CsvOptions()
INFERRED = "inferred from the bucket"
"""The shown default of settings that the program infers if they are not given."""


def _text(name: str, toml: str, default: str, help_text: str) -> Option:
    return Option(
        name,
        help_text,
        parse=parsers.raw_text,
        default=default,
        shown_default=INFERRED,
        toml=toml,
        escapes=name != "null",
    )


def _csv_switch(name: str, help_text: str) -> Option:
    return switch(name, help_text, toml=f"sink.csv.{name}", shown_default=INFERRED)


_CSV_OPTIONS = (
    _text("terminator", "sink.terminator", _CSV.terminator, r"What ends a row, such as '\r\n' or '\n'."),
    _text("delimiter", "sink.csv.delimiter", _CSV.delimiter, r"Separator of CSV fields, such as , or '\t'."),
    _text("quote", "sink.csv.quote", _CSV.quote, "Quote character of CSV strings; '' for none."),
    _text("null", "sink.csv.null", _CSV.null, "How NULL is written in CSV."),
    _csv_switch(
        "include-commit-ts",
        "Whether CSV rows carry their commit-ts. They should; this is the changefeed's `[sink.csv] include-commit-ts`.",
    ),
    Option(
        "binary-encoding-method",
        "How the bytes of binary columns are encoded in CSV.",
        parse=parsers.choice("base64", "hex"),
        default=_CSV.binary_encoding,
        shown_default=INFERRED,
        toml="sink.csv.binary-encoding-method",
        metavar="base64|hex",
    ),
    _csv_switch("output-old-value", "Whether CSV has two rows for an update: the old values and the new ones."),
    _csv_switch("output-handle-key", "Whether a field with the row's key precedes the values of a CSV row."),
    _csv_switch("output-field-header", "Whether each CSV file begins with a line of field names."),
)

PROTOCOL = Option(
    "protocol",
    "Format of the data files.",
    parse=parsers.choice("csv", "canal-json"),
    default="csv",
    toml="sink.protocol",
    uri=("upstream", "protocol"),
    metavar="csv|canal-json",
    shown_default=INFERRED,
)
EXTENSION = switch(
    "enable-tidb-extension",
    "Whether canal-json messages carry `_tidb` with their commit-ts. They should; TiCDC's sink URI parameter.",
    toml="sink.kafka-config.codec-config.enable-tidb-extension",
    uri=("upstream", "enable-tidb-extension"),
    shown_default=INFERRED,
)
CSV_OPTIONS: dict[str, str] = {
    "terminator": "terminator",
    "delimiter": "delimiter",
    "quote": "quote",
    "null": "null",
    "include_commit_ts": "include_commit_ts",
    "binary_encoding_method": "binary_encoding",
    "output_old_value": "output_old_value",
    "output_handle_key": "output_handle_key",
    "output_field_header": "output_field_header",
}
"""Keyword → field of `CsvOptions`. A changefeed file with a ``[sink]`` table gives them all: what it omits has TiCDC's default."""

FORMAT: tuple[Option, ...] = (
    PROTOCOL,
    *_CSV_OPTIONS,
    EXTENSION,
    switch(
        "allow-missing-commit-ts",
        "Accept files whose rows do not say when they committed, with a weaker promise: between rounds the target "
        "may run ahead "
        "of its checkpoint, and tables without a key halt.",
    ),
    Option(
        "headerless-selectors",
        "Vouch that all CSV rows without a header line that lack columns, and are still to be read, were written under the "
        "`[[sink.column-selectors]]` that are given. The error of a halted table has the name of these selectors; with others it no "
        "longer counts.",
        parse=parsers.raw_text,
        default="",
        shown_default="none: a row that lacks columns halts its table unless its file names them",
        metavar="NAME",
    ),
    Option(
        "date-separator",
        "Which date directories the bucket has.",
        parse=parsers.choice("none", "year", "month", "day"),
        default=None,
        shown_default=INFERRED,
        toml="sink.date-separator",
        uri=("upstream", "date-separator"),
        metavar="none|year|month|day",
    ),
    switch(
        "enable-partition-separator",
        "Whether each partition of a partitioned table has its own directory.",
        toml="sink.enable-partition-separator",
        uri=("upstream", "enable-partition-separator"),
        default=None,
        shown_default=INFERRED,
    ),
    Option(
        "file-index-width",
        "Accepted for compatibility with the reference consumer; file numbers of any width are read.",
        parse=parsers.integer(low=0, high=1000),
        default=0,
        shown_default="any",
        toml="sink.file-index-digit",
        uri=("upstream", "file-index-digit"),
        metavar="DIGITS",
    ),
    Option(
        "tz",
        "Time zone of the TiCDC servers, in which TIMESTAMP values are written: UTC, Asia/Shanghai, +08:00, or System "
        "for this host's zone. Nothing in the bucket shows it, and a wrong one shifts every TIMESTAMP.",
        parse=parsers.time_zone,
        shown_default="none: needed for TIMESTAMP columns",
        uri=("downstream", "time-zone"),
        metavar="ZONE",
    ),
)
