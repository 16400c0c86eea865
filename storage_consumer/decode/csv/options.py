"""Decide which options of TiCDC's CSV determine for certain what a row means."""

from __future__ import annotations

import re

from storage_consumer.config.settings import CsvOptions, Upstream
from storage_consumer.decode.values import FLOAT
from storage_consumer.errors import ConfigError

_IN_NUMBERS = frozenset("0123456789.eE+-")
_GOES_ON_A_NUMBER = re.compile(r"[0-9]|\.([0-9]|\Z)|[eE][-+]?([0-9]|\Z)")
"""The beginnings of a text that, after a number, may be read as more of it."""
_MAX_DELIMITER_BYTES = 3


def check_options(options: CsvOptions) -> None:
    """Raise `ConfigError`, naming TiCDC's option, for options under which rows cannot be read for certain."""
    _check_quote(options.quote)
    _check_delimiter(options)
    _check_terminator(options)
    _check_null(options)


def caveat(upstream: Upstream) -> str:
    r"""Return what the options of the bucket's CSV leave open, as a warning; empty if they leave nothing open.

    Without a quote, TiCDC writes a text that equals the null marker as it writes NULL, unless the marker is ``\N``.
    """
    options = upstream.csv
    if upstream.protocol != "csv" or options.quote or options.null == "\\N":
        return ""
    return (
        f"[sink.csv] quote is empty and null = {options.null!r}: TiCDC writes NULL and the text {options.null!r} "
        "alike, so such a text in a column that can be NULL is read as NULL. Set a quote, or null = '\\N', to tell "
        "them apart"
    )


def _check_quote(quote: str) -> None:
    if quote and (len(quote) != 1 or not quote.isascii() or quote in "\r\n" or quote in _IN_NUMBERS):
        raise ConfigError(
            f"[sink.csv] quote = {quote!r} is not supported: one character such as '\"', or none, is needed"
        )


def _check_delimiter(options: CsvOptions) -> None:
    quote, delimiter = options.quote, options.delimiter
    given = f"[sink.csv] delimiter = {delimiter!r}"
    if not 1 <= len(delimiter.encode()) <= _MAX_DELIMITER_BYTES or {"\r", "\n"} & set(delimiter):
        raise ConfigError(f"{given} is not supported: TiCDC accepts 1 to 3 bytes without line ends")
    if quote and quote in delimiter:
        raise ConfigError(f"{given} contains the quote {quote!r}")
    if _GOES_ON_A_NUMBER.match(delimiter) or delimiter in ("+", "-"):
        raise ConfigError(f"{given} cannot be distinguished from a number")
    if not quote and not delimiter.isascii():
        raise ConfigError(f"{given} with quote = '': TiCDC corrupts texts that hold such a delimiter; use an ASCII one")
    if not quote and set(delimiter) & set("\\rn"):
        raise ConfigError(f"{given} with quote = '' cannot be distinguished from the escapes \\\\, \\r and \\n")


def _check_terminator(options: CsvOptions) -> None:
    quote, delimiter, terminator = options.quote, options.delimiter, options.terminator
    given = f"[sink] terminator = {terminator!r}"
    if _GOES_ON_A_NUMBER.match(terminator):
        raise ConfigError(f"{given} cannot be distinguished from a number")
    if delimiter == terminator or (quote and quote in terminator):
        raise ConfigError(f"{given} cannot be distinguished from a delimiter or a quote")
    if not quote and "\\" in terminator:
        raise ConfigError(f"{given} with quote = '' cannot be distinguished from an escape")
    if not (terminator or quote) and options.output_handle_key:
        raise ConfigError(
            f"{given} with quote = '' and output-handle-key: which fields belong to a row cannot be determined"
        )
    if not terminator and set(delimiter) & set("IUD"):
        raise ConfigError(f"{given} with delimiter = {delimiter!r}: where a row begins cannot be determined")
    if not (terminator or quote) and any(delimiter.startswith(delimiter[step:]) for step in range(1, len(delimiter))):
        raise ConfigError(
            f"{given} with delimiter = {delimiter!r} and quote = '': where a row begins cannot be determined"
        )


def _check_null(options: CsvOptions) -> None:
    null = options.null
    given = f"[sink.csv] null = {null!r}"
    if re.fullmatch(FLOAT, null):
        raise ConfigError(f"{given} cannot be distinguished from a number; use one such as '\\N'")
    if options.quote and options.quote in null:
        raise ConfigError(f"{given} contains the quote")
    if not options.quote and null.endswith("\\"):
        raise ConfigError(
            f"{given} with quote = '' cannot be distinguished from the escape of what follows; use one such as '\\N'"
        )
    for name, text in (("delimiter", options.delimiter), ("terminator", options.terminator)):
        if text and (null + text).find(text) != len(null):
            raise ConfigError(f"{given} followed by the {name} {text!r} can be read in two ways")
    terminator, nulls = options.terminator, options.delimiter + null
    # Repeated until a terminator that spans several NULL fields must show.
    if terminator and terminator in nulls * (len(terminator) + 1):
        raise ConfigError(
            f"{given} between delimiters {options.delimiter!r}: the terminator {terminator!r} may occur in a row"
        )
