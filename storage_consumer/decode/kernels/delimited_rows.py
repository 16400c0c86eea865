"""Byte loops over CSV rows and exports (CSV, SQL): check form, find fields, write lines.

Rows in any other form than the usual one are left to the plain reader. Content must end with LF, so
that no loop runs past it; quotes, delimiters and separators are ASCII and not LF. Import late, see
`jit`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from storage_consumer.decode.kernels.arrays import (
    FLOAT_FIELD,
    YEAR_FIELD,
    Bytes,
    Flags,
    Offsets,
    Places,
)
from storage_consumer.decode.kernels.jit import compiled, inlined
from storage_consumer.decode.kernels.wide_words import (
    ESCAPE,
    HEX,
    LF,
    MINUS,
    TAB,
    WORD,
    ZERO,
    Extra,
    LineRoom,
    Text,
    all_bytes,
    begins,
    bits,
    copy,
    digits_end,
    first,
    matching,
    number_end,
    number_of,
    single_end,
    utf8_between,
    write_escaped,
)

(SINGLE_FIELD, TEXT_FIELD, PLAIN_FIELD, BYTES_FIELD, HEX_FIELD, BASE64_FIELD) = range(
    FLOAT_FIELD + 1, FLOAT_FIELD + 7
)
"""Forms of values besides those of numbers.

A FLOAT certain to be within range, any text, a text without a quote inside, and bytes in three
spellings.
"""
NO_DIGIT = 255
DIGITS = np.full(256, NO_DIGIT, np.uint8)
"""The value of each byte as a digit of base64."""
DIGITS[list(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")] = range(64)
_PAD, _CAPITAL_N = b"=N"
_MOST_PADS = 2
_TRUE, _FALSE = (np.frombuffer(text, np.uint8) for text in (b"true", b"false"))


_OPEN, _CLOSE, _COMMA, _END, _X, _CR, _SPACE, _NINE = b"(),;x\r 9"
_CONVERT, _USING = (np.frombuffer(text, np.uint8) for text in (b"CONVERT(", b" USING UTF8MB4)"))
_IS_HEX = np.zeros(256, np.bool_)
_IS_HEX[list(b"0123456789abcdefABCDEF")] = True
_IS_ESCAPED = np.zeros((2, 256), np.bool_)
_IS_ESCAPED[0, list(b"0nr\\")] = True
_IS_ESCAPED[1, list(b"0nrZ\\'\"")] = True
"""What dumpers write after a backslash, in CSV also the mark; all else means no escapes."""
_PERCENT, _UNDERLINE, _SMALL_A, _SMALL_F = b"%_af"
_TO_CAPITAL = 32
_SQL_MEANS = np.arange(256, dtype=np.uint8)
"""The byte that each letter after a backslash stands for, in SQL; in CSV there are fewer."""
_SQL_MEANS[list(b"0bnrtZ")] = list(b"\0\b\n\r\t\x1a")
_CSV_MEANS = np.arange(256, dtype=np.uint8)
_CSV_MEANS[list(b"0nr")] = list(b"\0\n\r")
NO_QUOTE = 256
"""Stands for the quote where there is none: no byte is equal to it."""


def _step(odd: int, quotes: int) -> int:
    """Return the byte after a closing quote in a word; -1 if it ends in an odd run, else -2.

    `quotes`: a bit for each byte that is a quote. `odd`: whether the word follows an odd run of
    quotes.
    """
    for place in range(WORD):
        is_quote = quotes >> place & 1
        # Each pair is one quote of the text: the last quote of an odd run closes it.
        if odd and not is_quote:
            return place
        odd ^= is_quote
    # Below 0, so never a place: -1 and -2 keep `odd` for the next word.
    return odd - 2


# All answers of `_step`, so that the loop over words needs one look-up for eight bytes.
_STEPS = np.array([[_step(odd, quotes) for quotes in range(256)] for odd in range(2)], np.int8)


class Marks(NamedTuple):
    """The bytes around values and rows."""

    quote: int
    """The byte around texts or `NO_QUOTE`: then values end at the next unescaped separator."""
    separator: int
    is_sql: bool
    """A row is in parentheses; else it ends with LF."""
    has_cr: bool
    """CR precedes the LF of each row."""
    escapes: bool
    """A backslash escapes the byte after it; else a quote inside a text is doubled."""
    has_bytes: bool
    """Some values are bytes, so the content is not UTF-8 throughout and each text is checked."""
    paired: bool = False
    """A field after the commit-ts of TiCDC's rows says whether the row is half of an update."""


class RowBytes(NamedTuple):
    """The fixed parts of rows of one table, in one dialect."""

    marks: Marks
    null: Bytes
    """What stands for NULL; it begins neither as a number nor with a quote."""
    values: Bytes
    """The form of each value."""
    nullable: Flags
    """Whether each value may be NULL; without quotes what looks like it is else a text."""
    names: Bytes
    """The bytes between the operation's letter and the commit-ts of TiCDC's rows."""


class RowsFound(NamedTuple):
    """Output arrays, one entry per row, for the largest possible number of rows."""

    borders: Offsets
    """Where each value begins and ends (exclusive), quotes included: two entries for each."""
    behind: Offsets
    """Where what follows the row begins."""
    ts: Offsets
    """The row's commit-ts; TiCDC's rows alone have one, and so the next two."""
    operations: Bytes
    """The operation's letter."""
    updates: Flags
    """Whether the row says that it is half of an update."""


@inlined
def _next(text: Text, at: int, byte: int) -> int:
    """Return the place of the next `byte` from `at` on, or the end of the text if there is none."""
    wanted = all_bytes(byte)
    while at < len(text.words):
        marked = matching(text.words[at], wanted)
        if marked:
            return at + first(marked)
        at += WORD
    while at < len(text.bytes) and text.bytes[at] != byte:
        at += 1
    return at


@inlined
def free_end(text: Text, at: int, quote: int) -> int:
    """Return a text's end after the quote before `at`, quote included; -1 for none.

    Two quotes in a row are one inside it.
    """
    wanted, odd = all_bytes(quote), 0
    while at < len(text.words):
        step: int = _STEPS[odd, bits(text.words[at], wanted)]
        if step >= 0:
            return at + step
        # No closing quote yet; the step carries over whether an odd run touches the next word.
        odd = step + 2
        at += WORD
    # The last seven places form no word: the same rule by bytes, up to an odd run's end.
    while at < len(text.bytes) and (text.bytes[at] == quote or not odd):
        odd ^= text.bytes[at] == quote
        at += 1
    return at if odd else -1


@inlined
def base64_end(content: Bytes, at: int, quote: int) -> int:
    """Return a base64 text's end, closing quote included; -1 if it is not base64."""
    start = at
    # LF is neither a digit nor a pad, so both loops end before the content does.
    while DIGITS[content[at]] != NO_DIGIT:
        at += 1
    digits_end = at
    while content[at] == _PAD:
        at += 1
    # TiCDC pads, so only whole groups of four are base64 here, the empty text included.
    whole = (at - start) % 4 == 0 and at - digits_end <= _MOST_PADS
    return at + 1 if whole and content[at] == quote else -1


@inlined
def _field_end(text: Text, at: int, quote: int, code: int) -> int:
    """Return the end of TiCDC's field at `at`; -1 if it is neither NULL nor of this form."""
    content = text.bytes
    if content[at] == ESCAPE:
        # Bulk needs ``\N`` as marker: texts are quoted, so a bare backslash begins only that.
        return at + 2 if content[at + 1] == _CAPITAL_N else -1
    if code <= FLOAT_FIELD:
        return number_end(content, at, code)
    if content[at] != quote:
        return -1
    if code == BASE64_FIELD:
        return base64_end(content, at + 1, quote)
    if code == TEXT_FIELD:
        return free_end(text, at + 1, quote)
    # TiCDC formats these texts (dates, decimals); bulk reads no rows whose quote may be in one.
    at = _next(text, at + 1, quote)
    return at + 1 if at < len(content) else -1


@inlined
def _head_end(content: Bytes, at: int, form: RowBytes, found: RowsFound, row: int) -> int:
    """Read TiCDC's row up to its values; return the delimiter before them, or -1."""
    marks = form.marks
    if (
        at + 2 >= len(content)
        or content[at] != marks.quote
        or not begins(content, at + 2, form.names)
    ):
        return -1
    # Any byte is taken here: whoever calls cuts before the first that is no operation.
    found.operations[row] = content[at + 1]
    at += 2 + len(form.names)
    # The names end with a delimiter, which is not LF: there is a byte at `at`.
    end = digits_end(content, at)
    found.ts[row] = number_of(content, at, end)
    if found.ts[row] < 0 or content[end] != marks.separator:
        return -1
    if marks.paired:
        is_true = begins(content, end + 1, _TRUE)
        if not is_true and not begins(content, end + 1, _FALSE):
            return -1
        found.updates[row] = is_true
        # Past the delimiter and "true" or "false".
        end += 5 if is_true else 6
    return end if content[end] == marks.separator else -1


@inlined
def _row_end(content: Bytes, at: int, marks: Marks) -> int:
    """Return the end of a row whose last value ends at `at`; -1 if it does not end there."""
    if marks.is_sql:
        ends = content[at] == _CLOSE and at + 1 < len(content) and content[at + 1] in (_COMMA, _END)
        return at + 2 if ends else -1
    if marks.has_cr:
        if content[at] != _CR:
            return -1
        at += 1
    return at + 1 if at < len(content) and content[at] == LF else -1


@compiled
def find_changes(text: Text, form: RowBytes, found: RowsFound) -> int:
    """Find the rows of this form, of TiCDC, at the start of a text; return how many there are.

    There are at most as many as `found` has room for.
    """
    at, content, last = 0, text.bytes, len(form.values) - 1
    for row in range(len(found.ts)):
        at = _head_end(content, at, form, found, row)
        for value in range(last + 1):
            start = at + 1
            at = _field_end(text, start, form.marks.quote, form.values[value]) if at >= 0 else -1
            if at >= len(content):
                at = -1
            found.borders[row, 2 * value], found.borders[row, 2 * value + 1] = start, at
            if at >= 0 and value < last and content[at] != form.marks.separator:
                at = -1
        # Only the whole terminator ends a row: a text may hold CR and LF. Where the next row begins
        # is not known without reading this one, so nothing after it is looked at.
        at = _row_end(content, at, form.marks) if at >= 0 else -1
        if at < 0:
            return row
        found.behind[row] = at
    return len(found.ts)


@inlined
def write_doubled(text: Text, start: int, end: int, quote: int, out: Text, at: int) -> int:
    """Write a text into a line, escaped, quotes undoubled; return where it ends."""
    quotes, escapes, tabs, ends = all_bytes(quote), all_bytes(ESCAPE), all_bytes(TAB), all_bytes(LF)
    while start < end:
        # Eight bytes at once, up to the next one that needs a look.
        if start < len(text.words):
            word = text.words[start]
            marked = (
                matching(word, quotes)
                | matching(word, escapes)
                | matching(word, tabs)
                | matching(word, ends)
            )
            count = min(first(marked) if marked else WORD, end - start)
            # Copy the whole word but advance only past its plain bytes: the rest is overwritten by
            # what comes next.
            out.words[at] = word
            start += count
            at += count
            if not marked or start == end:
                continue
        byte = text.bytes[start]
        # Skip the first of two quotes, and write the second one.
        if byte == quote:
            start += 1
        # A backslash is an ordinary byte of CSV with a quote, but begins an escape in a line.
        at = write_escaped(byte, out.bytes, at)
        start += 1
    return at


@inlined
def write_base64(content: Bytes, start: int, end: int, out: Bytes, at: int) -> int:
    """Write base64 in groups of four as hexadecimal digits; return where they end."""
    for place in range(start, end, 4):
        held = 0
        for step in range(4):
            # A pad character counts as any six bits: what it adds is cut off at the end.
            held = held << 6 | (DIGITS[content[place + step]] & 63)
        # Four digits of six bits are three bytes, which are six hexadecimal digits.
        for step in range(6):
            out[at + step] = HEX[held >> 20 - 4 * step & 15]
        at += 6
    # Each pad stands for a byte that is not there: two hexadecimal digits less.
    pads = (content[end - 1] == _PAD) + (content[end - 2] == _PAD) if end > start else 0
    return at - 2 * pads


@inlined
def _is_escaped(byte: int, mark: int, marks: Marks) -> bool:
    """Return whether a byte may follow a backslash; `mark`: a CSV file's byte that needs it."""
    return bool(_IS_ESCAPED[int(marks.is_sql), byte]) or byte == mark


@inlined
def _escaped_end(text: Text, at: int, marks: Marks) -> int:
    """Return an escaped text's end, closing quote included; -1 if it has no end."""
    quotes, escapes = all_bytes(marks.quote), all_bytes(ESCAPE)
    while at < len(text.bytes):
        if at < len(text.words):
            word = text.words[at]
            marked = matching(word, quotes) | matching(word, escapes)
            if not marked:
                at += WORD
                continue
            at += first(marked)
        byte = text.bytes[at]
        if byte == marks.quote:
            return at + 1
        at += 1
        if byte == ESCAPE:
            if at == len(text.bytes) or not _is_escaped(text.bytes[at], marks.quote, marks):
                return -1
            at += 1
    return -1


@inlined
def _hex_end(content: Bytes, at: int, quote: int) -> int:
    """Return the end of pairs of hexadecimal digits, closing quote included; -1 for none."""
    start = at
    # LF is no digit, so this ends before the content does.
    while _IS_HEX[content[at]]:
        at += 1
    return at + 1 if content[at] == quote and (at - start) % 2 == 0 else -1


@inlined
def _bare_end(text: Text, at: int, marks: Marks) -> int:
    """Return where the value at `at` ends that nothing is around; -1 if it has no end."""
    content = text.bytes
    while at < len(content):
        byte = content[at]
        if byte == marks.separator:
            return at
        if marks.has_cr and byte == _CR and at + 1 < len(content) and content[at + 1] == LF:
            return at
        if not marks.has_cr and byte == LF:
            return at
        at += 1
        if marks.escapes and byte == ESCAPE:
            if at == len(content) or not _is_escaped(content[at], marks.separator, marks):
                return -1
            at += 1
    return -1


@inlined
def is_null(content: Bytes, start: int, end: int, form: RowBytes, value: int) -> bool:
    """Return whether a value that nothing is around is NULL."""
    return (
        bool(form.nullable[value])
        and end - start == len(form.null)
        and begins(content, start, form.null)
    )


@inlined
def _unquoted_end(text: Text, at: int, value: int, form: RowBytes) -> int:
    """Return the end of an unquoted text or bytes; -1 if they are not of this form."""
    # What stands for NULL may begin with a backslash, and is no escape.
    behind = at + len(form.null)
    if is_null(text.bytes, at, behind, form, value) and behind < len(text.bytes):
        byte = text.bytes[behind]
        if byte in (form.marks.separator, _CR if form.marks.has_cr else LF):
            return behind
    end = _bare_end(text, at, form.marks)
    # Numbers are looked at before: what comes here instead of one is NULL or wrong.
    if end < 0 or (
        form.values[value] <= SINGLE_FIELD and not is_null(text.bytes, at, end, form, value)
    ):
        return -1
    if (
        form.values[value] == TEXT_FIELD
        and form.marks.has_bytes
        and not utf8_between(text, at, end)
    ):
        return -1
    return end


@inlined
def _value_end(text: Text, at: int, value: int, form: RowBytes) -> int:
    """Return a value's end; -1 if it is neither NULL nor of this index's form."""
    content, marks, code = text.bytes, form.marks, form.values[value]
    is_quoted = content[at] == marks.quote
    if code <= SINGLE_FIELD and (is_quoted or content[at] == MINUS or ZERO <= content[at] <= _NINE):
        begin = at + is_quoted
        end = (
            single_end(content, begin) if code == SINGLE_FIELD else number_end(content, begin, code)
        )
        if not is_quoted or end < 0:
            return end
        return end + 1 if content[end] == marks.quote else -1
    if is_quoted:
        if code == HEX_FIELD:
            return _hex_end(content, at + 1, marks.quote)
        if code == BASE64_FIELD:
            return base64_end(content, at + 1, marks.quote)
        end = (
            _escaped_end(text, at + 1, marks)
            if marks.escapes
            else free_end(text, at + 1, marks.quote)
        )
        if (
            code == TEXT_FIELD
            and marks.has_bytes
            and end >= 0
            and not utf8_between(text, at + 1, end - 1)
        ):
            return -1
        return end
    if marks.quote == NO_QUOTE:
        return _unquoted_end(text, at, value, form)
    if (
        marks.is_sql
        and code == BYTES_FIELD
        and content[at] == _X
        and content[at + 1] == marks.quote
    ):
        return _hex_end(content, at + 2, marks.quote)
    return at + len(form.null) if begins(content, at, form.null) else -1


@inlined
def _values_end(text: Text, at: int, form: RowBytes, borders: Offsets) -> int:
    """Find the values of the row at `at`; return the last one's end, or -1 for another form."""
    size, last = len(text.bytes), len(form.values) - 1
    for value in range(last + 1):
        if at >= size:
            return -1
        begin = at + len(_CONVERT)
        # LF ends the content, so there is a byte after what `begins` has found.
        is_converted = (
            form.values[value] == TEXT_FIELD
            and form.marks.is_sql
            and begins(text.bytes, at, _CONVERT)
        )
        start = begin if is_converted and text.bytes[begin] == form.marks.quote else at
        end = _value_end(text, start, value, form)
        borders[2 * value], borders[2 * value + 1] = start, end
        if end >= 0 and start > at:
            end = end + len(_USING) if begins(text.bytes, end, _USING) else -1
        if end < 0 or end >= size or (value < last and text.bytes[end] != form.marks.separator):
            return -1
        at = end + 1
    return at - 1


@compiled
def find_rows(text: Text, form: RowBytes, found: RowsFound) -> int:
    """Count and find an export's rows of this form at a text's start, to a statement's end.

    There are at most as many as `found` has room for.
    """
    at = 0
    for row in range(len(found.behind)):
        content, begin = text.bytes, at
        if form.marks.is_sql:
            # The first value of a row in parentheses, past white space.
            while at < len(content) and (
                content[at] == LF or content[at] == _SPACE or content[at] == _CR
            ):
                at += 1
            begin = at + 1 if at < len(content) and content[at] == _OPEN else -1
        end = _values_end(text, begin, form, found.borders[row]) if begin >= 0 else -1
        at = _row_end(text.bytes, end, form.marks) if end >= 0 else -1
        # Where the next row begins is not known without reading this one.
        if at < 0:
            return row
        found.behind[row] = at
        if form.marks.is_sql and text.bytes[at - 1] == _END:
            return row + 1
    return len(found.behind)


@inlined
def _meaning(byte: int, marks: Marks) -> int:
    """Return the byte that one after a backslash stands for."""
    meaning: int = _SQL_MEANS[byte] if marks.is_sql else _CSV_MEANS[byte]
    return meaning


@inlined
def _write_unescaped(text: Text, start: int, end: int, marks: Marks, out: Text, at: int) -> int:
    """Write a text with escapes into a line; return its end. A word of room must follow."""
    escapes, tabs, ends = all_bytes(ESCAPE), all_bytes(TAB), all_bytes(LF)
    while start < end:
        # Eight bytes at once, up to the next one that needs a look.
        if start < len(text.words):
            word = text.words[start]
            marked = matching(word, escapes) | matching(word, tabs) | matching(word, ends)
            count = min(first(marked) if marked else WORD, end - start)
            # Copy the whole word but advance only past its plain bytes: the rest is overwritten by
            # what comes next.
            out.words[at] = word
            start += count
            at += count
            if not marked or start == end:
                continue
        byte = text.bytes[start]
        if byte == ESCAPE:
            start += 1
            byte = text.bytes[start]
            # These two keep their backslash: they are wildcards where texts are compared.
            if marks.is_sql and byte in (_PERCENT, _UNDERLINE):
                at = write_escaped(ESCAPE, out.bytes, at)
            byte = _meaning(byte, marks)
        at = write_escaped(byte, out.bytes, at)
        start += 1
    return at


@inlined
def _write_bytes(content: Bytes, start: int, end: int, marks: Marks, out: Bytes, at: int) -> int:
    """Write bytes with escapes or doubled quotes as hexadecimal digits; return their end."""
    while start < end:
        byte = content[start]
        if marks.escapes and byte == ESCAPE:
            start += 1
            byte = content[start]
            if marks.is_sql and byte in (_PERCENT, _UNDERLINE):
                out[at], out[at + 1] = HEX[ESCAPE >> 4], HEX[ESCAPE & 15]
                at += 2
            byte = _meaning(byte, marks)
        elif byte == marks.quote:
            # Only a doubled quote is inside.
            start += 1
        out[at], out[at + 1] = HEX[byte >> 4], HEX[byte & 15]
        at += 2
        start += 1
    return at


@inlined
def _write_hex(content: Bytes, start: int, end: int, out: Bytes, at: int) -> int:
    """Write hexadecimal digits in upper case; return where they end."""
    for place in range(start, end):
        byte = content[place]
        out[at] = byte - _TO_CAPITAL if _SMALL_A <= byte <= _SMALL_F else byte
        at += 1
    return at


@inlined
def _write_number(text: Text, start: int, end: int, code: int, out: Text, at: int) -> int:
    """Write a number; return where it ends."""
    # Year zero: as the string ``0`` it would become 2000 (see `values.year`).
    if code == YEAR_FIELD and end - start == 1 and text.bytes[start] == ZERO:
        for _ in range(3):
            out.bytes[at] = ZERO
            at += 1
    return copy(text, start, end, out, at)


@inlined
def _write_quoted(  # noqa: PLR0913, PLR0917 - as below
    text: Text, marks: Marks, start: int, end: int, code: int, out: Text, at: int
) -> int:
    """Write quoted or unquoted content into a line; return where it ends."""
    if code == TEXT_FIELD and marks.escapes:
        return _write_unescaped(text, start, end, marks, out, at)
    if code in (TEXT_FIELD, PLAIN_FIELD):
        return write_doubled(text, start, end, marks.quote, out, at)
    if code == BYTES_FIELD:
        return _write_bytes(text.bytes, start, end, marks, out.bytes, at)
    if code == HEX_FIELD:
        return _write_hex(text.bytes, start, end, out.bytes, at)
    if code == BASE64_FIELD:
        return write_base64(text.bytes, start, end, out.bytes, at)
    return _write_number(text, start, end, code, out, at)


@inlined
def _write_value(  # noqa: PLR0913, PLR0917 - as below
    text: Text, form: RowBytes, start: int, end: int, value: int, out: Text, at: int
) -> int:
    """Write the value at this index of a row as a line has it; return where it ends."""
    content, marks, code = text.bytes, form.marks, form.values[value]
    # NULL may be written as nothing.
    if start < end and content[start] == marks.quote:
        return _write_quoted(text, marks, start + 1, end - 1, code, out, at)
    if (
        code < TEXT_FIELD
        and start < end
        and (content[start] == MINUS or ZERO <= content[start] <= _NINE)
    ):
        return _write_number(text, start, end, code, out, at)
    if marks.quote == NO_QUOTE and not is_null(content, start, end, form, value):
        return _write_quoted(text, marks, start, end, code, out, at)
    # Besides NULL, only a literal ``x'…'`` has no quote at its beginning and one at its end.
    if code == BYTES_FIELD and start < end and marks.is_sql and content[end - 1] == marks.quote:
        return _write_hex(content, start + 2, end - 1, out.bytes, at)
    out.bytes[at], out.bytes[at + 1] = ESCAPE, _CAPITAL_N
    return at + 2


@compiled
def write_lines(  # noqa: PLR0913, PLR0917 - Numba takes no records that hold all
    text: Text,
    form: RowBytes,
    borders: Offsets,
    rows: Places,
    fields: Offsets,
    extra: Extra,
    lines: LineRoom,
) -> int:
    """Write the lines of these rows, each followed by LF; return their size in bytes.

    `borders`: see `RowsFound`. `fields`: for each column of a line, the index of its value in the
    row, or -1 minus its index in `extra`.
    """
    out, at = lines.text, 0
    for number in range(len(rows)):
        row = borders[rows[number]]
        for field in fields:
            if field < 0:
                ends = extra.borders[-1 - field]
                at = copy(extra.text, ends[number], ends[number + 1], out, at)
            else:
                start, end = row[2 * field], row[2 * field + 1]
                at = _write_value(text, form, start, end, field, out, at)
            out.bytes[at] = TAB
            at += 1
        # The TAB after the last field becomes the end of the line.
        out.bytes[at - 1] = LF
        lines.ends[number] = at - 1
    return at
