"""Byte loops over canal-json messages: check their form, find their values, and write the lines.

The form is the one that TiCDC writes: its order of members, no white space, columns in the order of
the table. A message in any other form is left to the plain reader. Content must be UTF-8 and end
with LF:
every loop stops at a byte that cannot be in a message, so none runs past the end. Import late, see
`jit`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from storage_consumer.decode.kernels.arrays import (
    DELETE,
    FLOAT_FIELD,
    INSERT,
    UPDATE,
    YEAR_FIELD,
    Bytes,
    Offsets,
    Operations,
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
    copy,
    digits_end,
    first,
    matching,
    number_end,
    number_of,
    single_end,
    write_escaped,
)

QUOTE, _SMALL_U, _SPACE = b'"u '
_STANDS = np.array([byte >= _SPACE and byte not in b'"\\' for byte in range(256)])
"""Whether a byte of a JSON string stands for itself."""
_ODD = 255
_ESCAPED = np.full(256, _ODD, np.uint8)
"""The byte that each letter of an escape stands for."""
_ESCAPED[list(b'"\\/bfnrt')] = list(b'"\\/\b\f\n\r\t')
_HEX_DIGITS = np.full(256, _ODD, np.uint8)
_HEX_DIGITS[list(b"0123456789abcdef")] = range(16)
_HEX_DIGITS[list(b"ABCDEF")] = range(10, 16)
_ESCAPE_SIZE, _CODE_SIZE = 2, 6
_HIGH, _LOW, _BEHIND_LOW, _ASTRAL = 0xD800, 0xDC00, 0xE000, 0x10000
_TWO_BYTES, _THREE_BYTES = 0x80, 0x800
_LATIN, _BEHIND_LATIN = 0xC2, 0xC4
"""The first bytes of U+0080 to U+00FF: from the former (inclusive) to the latter (exclusive)."""


@inlined
def _unit(content: Bytes, at: int) -> int:
    r"""Return the UTF-16 unit of the ``\u`` escape at `at`; -1 if there is none."""
    if content[at] != ESCAPE or content[at + 1] != _SMALL_U:
        return -1
    unit = 0
    # LF is no hexadecimal digit, so this ends before the content does.
    for place in range(at + 2, at + _CODE_SIZE):
        digit = _HEX_DIGITS[content[place]]
        if digit == _ODD:
            return -1
        unit = unit << 4 | digit
    return unit


@inlined
def _escape(content: Bytes, at: int) -> tuple[int, int]:
    """Return the escape's code point and end; -1 twice if invalid or a lone surrogate."""
    if content[at + 1] != _SMALL_U:
        code = int(_ESCAPED[content[at + 1]])
        return (-1, -1) if code == _ODD else (code, at + _ESCAPE_SIZE)
    unit = _unit(content, at)
    at += _CODE_SIZE
    # A low surrogate comes second or not at all.
    if unit < 0 or _LOW <= unit < _BEHIND_LOW:
        return -1, -1
    if not _HIGH <= unit < _LOW:
        return unit, at
    # A high surrogate needs the low one after it; alone it has no UTF-8 form.
    low = _unit(content, at)
    if not _LOW <= low < _BEHIND_LOW:
        return -1, -1
    return _ASTRAL + ((unit - _HIGH) << 10) + (low - _LOW), at + _CODE_SIZE


@inlined
def string_end(content: Bytes, at: int) -> int:
    """Return a string's end after its first character at `at`, quote included; -1 for none."""
    while at >= 0:
        # Control characters do not stand for themselves, so LF ends this loop.
        while _STANDS[content[at]]:
            at += 1
        if content[at] == QUOTE:
            return at + 1
        if content[at] != ESCAPE:
            return -1
        # An invalid escape is -1, which ends the outer loop.
        at = _escape(content, at)[1]
    return -1


@inlined
def binary_end(content: Bytes, at: int) -> int:
    """Return the end of a string of code points up to U+00FF, quote included; -1 for none."""
    while content[at] != QUOTE:
        if content[at] == ESCAPE:
            # TiCDC writes each byte as the code point of its number; an escape may spell it too.
            code, at = _escape(content, at)
            if not 0 <= code < 256:  # noqa: PLR2004 - the values of a byte
                return -1
        # UTF-8 was checked, so a byte below 0xC4 is ASCII or of a character up to U+00FF.
        elif content[at] < _SPACE or content[at] >= _BEHIND_LATIN:
            return -1
        else:
            at += 1
    return at + 1


@inlined
def write_utf8(code: int, out: Bytes, at: int) -> int:
    """Write the bytes of a code point; return where they end."""
    if code < _TWO_BYTES:
        out[at] = code
        return at + 1
    if code < _THREE_BYTES:
        out[at] = 0xC0 | code >> 6
    else:
        if code < _ASTRAL:
            out[at] = 0xE0 | code >> 12
        else:
            out[at], out[at + 1] = 0xF0 | code >> 18, 0x80 | code >> 12 & 63
            at += 1
        out[at + 1] = 0x80 | code >> 6 & 63
        at += 1
    out[at + 1] = 0x80 | code & 63
    return at + 2


@inlined
def code_at(content: Bytes, at: int) -> tuple[int, int]:
    """Return the code point of an escape, or of a character up to U+00FF, and where it ends."""
    code = int(content[at])
    if code == ESCAPE:
        return _escape(content, at)
    if code < _LATIN:
        return code, at + 1
    # C2 and C3 carry the upper two of eight bits, and the byte after them the other six.
    return (code & 3) << 6 | (content[at + 1] & 63), at + 2


@inlined
def write_text(text: Text, start: int, end: int, out: Text, at: int) -> int:
    """Write a text into a line; return its end. A word of room must follow, to be overwritten."""
    content, line, escapes = text.bytes, out.bytes, all_bytes(ESCAPE)
    while start < end:
        if start < len(text.words):
            word = text.words[start]
            marked = matching(word, escapes)
            count = min(first(marked) if marked else WORD, end - start)
            # Copy the whole word, advance only to the escape: the next write covers the rest.
            out.words[at] = word
            start += count
            at += count
        # The last seven places have no word: go by single bytes.
        elif content[start] != ESCAPE:
            line[at] = content[start]
            start += 1
            at += 1
        if start < end and content[start] == ESCAPE:
            code, start = _escape(content, start)
            # Only ASCII can need an escape in a line.
            at = write_escaped(code, line, at) if code < _TWO_BYTES else write_utf8(code, line, at)
    return at


@inlined
def write_binary(content: Bytes, start: int, end: int, out: Bytes, at: int) -> int:
    """Write code points up to U+00FF as the hexadecimal digits of bytes; return where they end."""
    while start < end:
        code, start = code_at(content, start)
        out[at], out[at + 1] = HEX[code >> 4], HEX[code & 15]
        at += 2
    return at


SINGLE_FIELD, TEXT_FIELD, BINARY_FIELD = range(FLOAT_FIELD + 1, FLOAT_FIELD + 4)
"""String forms: a FLOAT surely in range, any text, bytes as code points up to U+00FF."""
_COMMA, _COLON, _OPEN, _CLOSE, _SMALL_N, _NO_VALUE, _CR = b",:{}nN\r"
_DELETE, _INSERT, _UPDATE = (
    np.frombuffer(text, np.uint8) for text in (b"DELETE", b"INSERT", b"UPDATE")
)
_ES, _TS, _SQL_TYPE, _MYSQL_TYPE = (
    np.frombuffer(text, np.uint8)
    for text in (b'","es":', b',"ts":', b',"sql":"","sqlType":', b',"mysqlType":')
)
_OLD, _DATA, _COMMIT_TS, _ROW_KEY, _END = (
    np.frombuffer(text, np.uint8)
    for text in (b',"old":', b',"data":', b',"_tidb":{"commitTs":', b',"rowkey":"', b"}}")
)
_NULL, _BEGIN_IMAGE, _END_IMAGE = (
    np.frombuffer(text, np.uint8) for text in (b"null", b"[{", b"}]")
)


class MessageBytes(NamedTuple):
    """The fixed parts of messages of one table version."""

    head: Bytes
    """The bytes before the name of the type."""
    names: Bytes
    """The names of all columns, each in quotes and with its colon."""
    ends: Offsets
    """Where each name begins in `names`, and where the last one ends."""
    values: Bytes
    """The form of each column's values."""
    key: Offsets
    """The indexes of the key's columns."""


class MessagesFound(NamedTuple):
    """Output arrays, an entry per row, with room for two rows per message."""

    borders: Offsets
    """Begin and end (exclusive) of each column's value, quotes included: two entries each."""
    ts: Offsets
    """The row's commit-ts."""
    operations: Operations
    numbers: Offsets
    """The row's line number, from 0."""
    odd: Offsets
    """Start and line number of each line in another form: two entries for each."""


@inlined
def _past(content: Bytes, at: int, text: Bytes) -> int:
    """Return where `text` ends if it is at `at`; -1 if it is not, or if `at` is negative.

    Parsers chain on this: a failure passes through as a negative `at`.
    """
    return at + len(text) if at >= 0 and begins(content, at, text) else -1


@inlined
def _integer_end(content: Bytes, at: int) -> int:
    """Return the end of the integer of up to 63 bits; -1 for none or a negative `at`."""
    if at < 0:
        return -1
    end = digits_end(content, at)
    # No digits at all are no number either: `number_of` refuses them, and leading zeros.
    return end if number_of(content, at, end) >= 0 else -1


@inlined
def _value_end(content: Bytes, at: int, form: int) -> int:
    """Return where the value at `at` ends; -1 if it is neither null nor of this form."""
    # A name ends with a colon and the content with LF, so there is a byte at `at`.
    if content[at] == _SMALL_N:
        return _past(content, at, _NULL)
    if content[at] != QUOTE:
        return -1
    if form == TEXT_FIELD:
        return string_end(content, at + 1)
    if form == BINARY_FIELD:
        return binary_end(content, at + 1)
    # TiCDC writes numbers as strings too: the quote has to follow the last digit.
    end = single_end(content, at + 1) if form == SINGLE_FIELD else number_end(content, at + 1, form)
    return end + 1 if end >= 0 and content[end] == QUOTE else -1


@inlined
def _name_end(content: Bytes, at: int, form: MessageBytes, place: int) -> int:
    """Return the end of column `place`'s name at `at`, colon included; -1 if not there."""
    return _past(content, at, form.names[form.ends[place] : form.ends[place + 1]])


@inlined
def _data_end(content: Bytes, at: int, form: MessageBytes, borders: Offsets) -> int:
    """Find a full image's values; return its end, or -1 for another form or negative `at`."""
    # One step back onto "{", since each turn skips a comma. A failure is -2 here: `_name_end` still
    # sees a negative place.
    at = _past(content, at, _BEGIN_IMAGE) - 1
    last = len(form.values) - 1
    for place in range(last + 1):
        # A full image has all columns of the layout in its order; anything else is another form.
        start = _name_end(content, at + 1, form, place)
        at = _value_end(content, start, form.values[place]) if start >= 0 else -1
        if at < 0 or (place < last and content[at] != _COMMA):
            return -1
        borders[2 * place], borders[2 * place + 1] = start, at
    return _past(content, at, _END_IMAGE)


@inlined
def _old_end(content: Bytes, at: int, form: MessageBytes, borders: Offsets) -> int:
    """Find a partial image's values, -1 for absent columns; return its end, or -1."""
    # The array may still hold what a refused message left there.
    for border in range(len(borders)):
        borders[border] = -1
    at = _past(content, at, _BEGIN_IMAGE)
    if at < 0 or content[at] == _CLOSE:
        return _past(content, at, _END_IMAGE)
    at -= 1
    # Columns keep the table's order, so one pass in that order meets every column that is present.
    for place in range(len(form.values)):
        start = _name_end(content, at + 1, form, place)
        if start < 0:
            continue
        at = _value_end(content, start, form.values[place])
        if at < 0:
            return -1
        borders[2 * place], borders[2 * place + 1] = start, at
        # Without a comma the image ends here. With one, a column that is unknown or out of order
        # matches no later name, and then the closing braces are missing below.
        if content[at] != _COMMA:
            break
    return _past(content, at, _END_IMAGE)


@inlined
def _types_end(content: Bytes, at: int) -> int:
    """Return the end of a flat object or null at `at`; -1 for another form or negative `at`."""
    if at < 0 or content[at] == _SMALL_N:
        return _past(content, at, _NULL)
    if content[at] != _OPEN:
        return -1
    while at >= 0 and content[at] != _CLOSE:
        # `at` is on the opening brace or on a comma: a member's name follows both.
        at = string_end(content, at + 2) if content[at + 1] == QUOTE else -1
        if at < 0 or content[at] != _COLON:
            return -1
        at += 1
        # `mysqlType` has texts in random order, `sqlType` integers that vary with the value.
        # Neither is needed: the schema file says the types, and here only the end counts.
        is_text = content[at] == QUOTE
        at = (
            string_end(content, at + 1)
            if is_text
            else _integer_end(content, at + (content[at] == MINUS))
        )
        if at >= 0 and content[at] != _COMMA and content[at] != _CLOSE:
            return -1
    return at + 1 if at >= 0 else -1


@inlined
def _head_end(content: Bytes, at: int, form: MessageBytes, found: MessagesFound, row: int) -> int:
    """Read a message up to its images; return where they begin, or -1 for another form."""
    at = _past(content, at, form.head)
    operation = -1
    if _past(content, at, _INSERT) >= 0:
        operation = INSERT
    elif _past(content, at, _UPDATE) >= 0:
        operation = UPDATE
    elif _past(content, at, _DELETE) >= 0:
        operation = DELETE
    if operation < 0:
        return -1
    # Written even if the rest is refused: the next message overwrites it.
    found.operations[row] = operation
    # DELETE, INSERT and UPDATE are equally long.
    at = _integer_end(content, _past(content, at + len(_INSERT), _ES))
    at = _integer_end(content, _past(content, at, _TS))
    at = _types_end(content, _past(content, at, _SQL_TYPE))
    return _past(content, _types_end(content, _past(content, at, _MYSQL_TYPE)), _OLD)


@inlined
def _tail_end(content: Bytes, at: int, found: MessagesFound, row: int) -> int:
    """Read a message after its images; return its LF, or -1 for another form or negative `at`."""
    at = _past(content, at, _COMMIT_TS)
    if at < 0:
        return -1
    end = digits_end(content, at)
    found.ts[row] = number_of(content, at, end)
    if found.ts[row] <= 0:
        return -1
    # `output-row-key` of the new architecture adds the key after the commit-ts.
    if content[end] == _COMMA:
        end = string_end(content, _past(content, end, _ROW_KEY))
    at = _past(content, end, _END)
    # CRLF is TiCDC's default terminator. Rows whose terminator is no line end were joined by LF.
    if at >= 0 and content[at] == _CR:
        at += 1
    return at if at >= 0 and content[at] == LF else -1


@inlined
def _moves(content: Bytes, form: MessageBytes, old: Offsets, new: Offsets) -> int:
    """Return 1 if an update becomes a delete and an insert, 0 if not, -1 if undecided.

    Without a key every update has to. Absent values of `old` are filled in from `new`.
    """
    for place in range(len(old)):
        # With `only-output-updated-columns` an old image holds the changed columns only.
        if old[place] < 0:
            old[place] = new[place]
    found = 0 if len(form.key) else 1
    for place in form.key:
        # NULL is written without quotes, so its bytes are those of no text.
        start, size = old[2 * place], old[2 * place + 1] - old[2 * place]
        is_escaped = False
        is_same = size == new[2 * place + 1] - new[2 * place]
        for at in range(start, start + size):
            is_escaped |= content[at] == ESCAPE
            is_same = is_same and content[at] == content[new[2 * place] + at - start]
        for at in range(new[2 * place], new[2 * place + 1]):
            is_escaped |= content[at] == ESCAPE
        # Unequal bytes with an escape may still be one text: \u0041 and A.
        differs = 0 if is_same else -1 if is_escaped else 1
        if differs < 0:
            return -1
        found |= differs
    return found


@compiled
def find_messages(text: Text, form: MessageBytes, found: MessagesFound) -> tuple[int, int, int]:
    """Read the lines of a text; return the number of rows, of lines in another form, and of lines.

    The number of lines is -1 if `found` has no room for all.
    """
    content = text.bytes
    at = row = odd = line = 0
    while at < len(content):
        # A message needs room for two rows and one odd line, whatever it turns out to be.
        if row + 2 > len(found.ts) or odd == len(found.odd):
            return row, odd, -1
        start = at
        at = _head_end(content, at, form, found, row)
        has_old = at >= 0 and content[at] != _SMALL_N
        at = (
            _old_end(content, at, form, found.borders[row])
            if has_old
            else _past(content, at, _NULL)
        )
        # Each step passes failures on as a negative place: one test at the end is enough.
        at = _data_end(content, _past(content, at, _DATA), form, found.borders[row + has_old])
        at = _tail_end(content, at, found, row)
        # After a failure `at` is negative: the next message overwrites these rows.
        rows = 1 if at >= 0 else 0
        # With an old image, that was read as this row, and the data as the next one.
        if rows > 0 and has_old:
            old, new = found.borders[row], found.borders[row + 1]
            # Only an update may have an old image: another operation with one is left to the plain
            # reader (-1 + 1 = 0).
            moves = _moves(content, form, old, new) if found.operations[row] == UPDATE else -1
            # The key stays: one upsert of the new image is enough, in the old one's place in
            # `found`.
            for place in range(len(old) if moves == 0 else 0):
                old[place] = new[place]
            if moves > 0:
                found.operations[row], found.operations[row + 1] = DELETE, INSERT
                found.ts[row + 1] = found.ts[row]
            rows = moves + 1
        found.numbers[row : row + rows] = line
        row += rows
        if rows == 0:
            found.odd[odd, 0], found.odd[odd, 1] = start, line
            odd += 1
            at = start
            # JSON text holds no raw LF, so the next one ends this line whatever its form.
            while content[at] != LF:
                at += 1
        at += 1
        line += 1
    return row, odd, line


@inlined
def _write_value(text: Text, start: int, end: int, form: int, out: Text, at: int) -> int:
    """Write a value as a line has it; return where it ends."""
    line = out.bytes
    if text.bytes[start] != QUOTE:
        line[at], line[at + 1] = ESCAPE, _NO_VALUE
        return at + 2
    start, end = start + 1, end - 1
    if form == TEXT_FIELD:
        return write_text(text, start, end, out, at)
    if form == BINARY_FIELD:
        return write_binary(text.bytes, start, end, line, at)
    # Year zero: as the string ``0`` it would become 2000 (see `values.year`).
    if form == YEAR_FIELD and end - start == 1 and text.bytes[start] == ZERO:
        for _ in range(3):
            line[at] = ZERO
            at += 1
    return copy(text, start, end, out, at)


@compiled
def write_lines(  # noqa: PLR0913, PLR0917 - Numba takes no records that hold all
    text: Text,
    form: MessageBytes,
    borders: Offsets,
    rows: Places,
    fields: Offsets,
    extra: Extra,
    lines: LineRoom,
) -> int:
    """Write the lines of these rows, each followed by LF; return their size in bytes.

    `borders`: see `MessagesFound`. `fields`: for each column of a line, the index of its value in
    the row, or -1 minus its index in `extra`.
    """
    at, out, line, others = 0, lines.text, lines.text.bytes, extra.text
    for number in range(len(rows)):
        row = rows[number]
        for field in fields:
            if field < 0:
                start, end = (
                    extra.borders[-1 - field, number],
                    extra.borders[-1 - field, number + 1],
                )
                at = copy(others, start, end, out, at)
            else:
                start, end = borders[row, 2 * field], borders[row, 2 * field + 1]
                at = _write_value(text, start, end, form.values[field], out, at)
            line[at] = TAB
            at += 1
        # The TAB after the last field becomes the end of the line.
        line[at - 1] = LF
        lines.ends[number] = at - 1
    return at
