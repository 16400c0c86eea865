"""Large files in parts: where a row begins for certain, whatever stood before, so that several tasks read one file.

A *mark* is a row's end and what the next row begins with. A row belongs to the part in which its mark begins, the first one to the
first part; so each byte is read in one part, and no part need know of another.

* CSV with a quote: line end, quote, I, U or D, quote, delimiter. It cannot stand within a row. Behind a line end no field begins but
  a row's first, since a delimiter holds none; a closing quote stands before a delimiter or a line end, and neither is an I, U or D;
  and within a text each quote is two. NULL and numbers hold no quote.
* canal-json: the line end alone, which JSON text has as an escape.

Not in parts: CSV without a quote, where a text may be anything; with another terminator, which a text may hold or end in; with a header
line, which is said once and holds for all rows; with the handle key, which shows in the first rows; and with old values, where two
rows are one change.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from storage_consumer.config.settings import CsvOptions

LINE_ENDS = (b"\r\n", b"\n")
"""Terminators that no JSON text holds."""


class NotSplittable(Exception):
    """The file does not begin with a row, so it may hold a header line that nobody told of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowBoundary:
    """Where a row begins."""

    pattern: re.Pattern[bytes]
    size: int
    """Bytes of a mark."""
    ends: int
    """So many of them end the row before."""
    first: bytes
    """What the file's first row begins with."""


def csv_boundary(options: CsvOptions) -> RowBoundary | None:
    """The mark of CSV files under these options, which have passed `csv_options.check_options`; None: they have none."""
    stateful = options.output_field_header or options.output_handle_key or options.output_old_value
    unclear = not options.quote or {options.quote, options.delimiter} & set("IUD")
    terminator, quote, delimiter = (text.encode() for text in (options.terminator, options.quote, options.delimiter))
    if stateful or unclear or terminator not in LINE_ENDS:
        return None
    pattern = re.escape(terminator + quote) + b"[IUD]" + re.escape(quote + delimiter)
    size = len(terminator) + len(quote) + 1 + len(quote) + len(delimiter)
    return RowBoundary(pattern=re.compile(pattern), size=size, ends=len(terminator), first=quote)


def canal_boundary(terminator: bytes) -> RowBoundary | None:
    """The mark of canal-json files with this terminator; None: they have none."""
    return RowBoundary(pattern=re.compile(b"\n"), size=1, ends=1, first=b"") if terminator in LINE_ENDS else None


def split_of(blocks: Iterator[bytes], mark: RowBoundary, start: int, end: int | None) -> Iterator[bytes]:
    """The rows whose marks begin from byte `start` (inclusive) to `end` (exclusive; None: to the end of the file).

    `blocks`: the content of the file from byte `start` on; no more of it is read than is needed. Raises `NotSplittable`.
    """
    last = sys.maxsize if end is None else end
    inside, held, at = not start, b"", start
    for block in blocks:
        if not at and not held and not block.startswith(mark.first):
            raise NotSplittable
        held += block
        while found := mark.pattern.search(held, max(0, last - at) if inside else 0):
            row = found.start() + mark.ends
            if inside:
                yield held[:row]
            if inside or at + found.start() >= last:
                return
            inside, held, at = True, held[row:], at + row
        whole = max(0, len(held) - mark.size + 1)  # behind it a mark may begin whose end is still to come
        if inside and whole:
            yield held[:whole]
        held, at = held[whole:], at + whole
    if inside and held:
        yield held
