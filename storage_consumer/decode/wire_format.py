r"""Lines for ``LOAD DATA`` and back.

Their format is ``FIELDS TERMINATED BY '\t' ESCAPED BY '\\' LINES TERMINATED BY '\n'``.

Only backslash, TAB and LF are escaped: under these clauses MariaDB and TiDB read CR, NUL, quotes
and the word NULL literally.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from operator import itemgetter

from storage_consumer.decode.decoder import ABSENT, RowLayout, Values

NULL = b"\\N"
LACKING = b"\\D"
"""The field of an absent value; such lines go to no server (see `target.apply_rows`)."""
_CODING = ("utf-8", "surrogatepass")
"""Invalid text passes through: refusing it is up to the target."""
_ESCAPES = {b"\\\\": b"\\", b"\\t": b"\t", b"\\n": b"\n"}
_ESCAPE = re.compile(rb"\\[\\tn]")


class LineEncoder:
    """Encodes the lines of one table from decoded values.

    Escaping goes by content, not by column type, so no value can spill into the next column or row,
    whatever the file holds.
    """

    def __init__(self, layout: RowLayout, written: Sequence[int]) -> None:
        """Initialize; `written`: one or more indexes of the layout's columns, in line order."""
        if not written or not 0 <= min(written) <= max(written) < len(layout.columns):
            raise ValueError(
                f"{layout.table}: columns {list(written)} are not some of its {len(layout.columns)}"
            )
        # With one index `itemgetter` returns no tuple, with a slice it does.
        picked = written if len(written) > 1 else [slice(written[0], written[0] + 1)]
        self._pick: Callable[[Values], Values] = itemgetter(*picked)
        self._separators = len(written) - 1

    def encode_line(self, values: Values) -> bytes:
        """Return the line of one row, without its LF."""
        picked = self._pick(values)
        if None not in picked:
            # One check for the row: only separators are TABs, so no value needs an escape.
            line = "\t".join(picked)  # type: ignore[arg-type]  # no None in it
            if "\\" not in line and "\n" not in line and line.count("\t") == self._separators:
                return line.encode(*_CODING)
        return b"\t".join([encode_field(value) for value in picked])


def encode_field(value: str | None) -> bytes:
    """Return one field of a line."""
    if value is None:
        return NULL
    # First, or the backslashes of the other two escapes would be doubled.
    if "\\" in value:
        if value is ABSENT:
            return LACKING
        value = value.replace("\\", "\\\\")
    if "\t" in value:
        value = value.replace("\t", "\\t")
    if "\n" in value:
        value = value.replace("\n", "\\n")
    return value.encode(*_CODING)


def decode_line(line: bytes) -> list[str | None]:
    """Return the fields of a line that `LineEncoder.encode_line` wrote."""
    # A TAB in a value is escaped, so every raw one is a separator.
    return [decode_field(field) for field in line.split(b"\t")]


def split_lines(lines: Sequence[bytes]) -> list[tuple[bytes, ...]]:
    """Return the fields of some lines by column, still encoded; `decode_field` gives their values.

    Raises `ValueError` if one line has more fields than another.
    """
    return list(zip(*(line.split(b"\t") for line in lines), strict=True))


def decode_field(field: bytes) -> str | None:
    """Return the value of one field of a line."""
    if b"\\" in field:
        if field == NULL:
            return None
        # One pass from the left: an escaped backslash must not begin another escape.
        field = _ESCAPE.sub(lambda match: _ESCAPES[match[0]], field)
    return field.decode(*_CODING)
