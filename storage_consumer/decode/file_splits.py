"""Split large files: find where a row certainly begins, whatever precedes it, so that several tasks can read one file.

A *mark* is the end of a row and the beginning of the next. A row belongs to the split in which its mark begins; the
first row belongs to the first split. So each byte is read in one split, and no split needs to know another.

* CSV with a quote: line end, quote, I, U or D, quote, delimiter. This cannot occur inside a row. After a line end only
  the first field of a row begins, since a delimiter holds no line end; a closing quote is followed by a delimiter or a
  line end, and neither is an I, U or D; and within a text each quote is doubled. NULL and numbers hold no quote.
* canal-json: the line end alone, which JSON text holds as an escape only.

Not split: CSV without a quote, where a text may be anything; with another terminator, which a text may hold or end in;
with a header line, which occurs once and holds for all rows; with the handle key, which shows in the first rows; and
with old values, where two rows are one change.
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
    """The file does not begin with a row, so it may hold a header line that the options do not announce."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowBoundary:
    """How a row begins."""

    pattern: re.Pattern[bytes]
    size: int
    """Bytes of a mark."""
    ends: int
    """How many of these bytes end the row before."""
    first: bytes
    """What the file's first row begins with."""


def csv_boundary(options: CsvOptions) -> RowBoundary | None:
    """Return the mark of CSV files under these options, which have passed `csv.options.check_options`; None if they have none."""
    stateful = options.output_field_header or options.output_handle_key or options.output_old_value
    unclear = not options.quote or {options.quote, options.delimiter} & set("IUD")
    terminator, quote, delimiter = (text.encode() for text in (options.terminator, options.quote, options.delimiter))
    if stateful or unclear or terminator not in LINE_ENDS:
        return None
    pattern = re.escape(terminator + quote) + b"[IUD]" + re.escape(quote + delimiter)
    size = len(terminator) + len(quote) + 1 + len(quote) + len(delimiter)
    return RowBoundary(pattern=re.compile(pattern), size=size, ends=len(terminator), first=quote)


def canal_boundary(terminator: bytes) -> RowBoundary | None:
    """Return the mark of canal-json files with this terminator; None if they have none."""
    return RowBoundary(pattern=re.compile(b"\n"), size=1, ends=1, first=b"") if terminator in LINE_ENDS else None


def split_of(blocks: Iterator[bytes], mark: RowBoundary, start: int, end: int | None) -> Iterator[bytes]:
    """Yield the rows whose marks begin from byte `start` (inclusive) to `end` (exclusive; None: to the end of the file).

    `blocks`: the content of the file from byte `start` on; no more of it is read than needed. Raises `NotSplittable`.
    """
    last = sys.maxsize if end is None else end
    inside, held, at = not start, b"", start
    for block in blocks:
        # Byte 0 is in the first split only; no mark precedes the file's first row, so its beginning is checked instead.
        if not at and not held and not block.startswith(mark.first):
            raise NotSplittable
        # Up to this split's first mark search everything; after it only a mark at or after `last` matters.
        held += block
        while found := mark.pattern.search(held, max(0, last - at) if inside else 0):
            # A mark begins with a line end, which belongs to the row before.
            row = found.start() + mark.ends
            if inside:
                yield held[:row]
            # Either the split has ended, or no row begins in it: its bytes then belong to a row of an earlier split.
            if inside or at + found.start() >= last:
                return
            inside, held, at = True, held[row:], at + row
        whole = max(0, len(held) - mark.size + 1)  # a mark may begin in the rest whose end is still to come
        if inside and whole:
            yield held[:whole]
        held, at = held[whole:], at + whole
    if inside and held:
        yield held
