"""Decide whether a row that was read without a handle key may have one as its first value, or the other way round.

TiCDC's classic architecture writes the handle key under ``output-handle-key``, the new one ignores the setting. The
number of fields tells them apart only if the virtual generated columns are certain: a column that is virtual at the
source and not in the target makes up for a handle key, and one that is virtual in the target alone looks like one.

A handle key is an integer, or the values of a key in braces: ``{1024, 3}``.
"""

from __future__ import annotations

import re

from storage_consumer.decode.csv.dialect import Dialect
from storage_consumer.decode.csv.row_pattern import Shape
from storage_consumer.decode.decoder import RowLayout
from storage_consumer.decode.row_layouts import is_hidden
from storage_consumer.model import folded_name

AMBIGUOUS = (
    "it can be read both with and without the handle key of output-handle-key, if a column is a virtual generated "
    "column only at the source or only in the target. If TiCDC's new architecture, which ignores that option, wrote "
    "this file, give --output-handle-key false; if the classic one did, make the target's virtual generated columns "
    "the same as the source's and start again"
)
_INTEGER = re.compile(r"-?[0-9]{1,20}")
_IN_BRACES = re.compile(r"(?s:\{.*\})")
_NEW_NAME = re.compile(r"(?:.*/)?CDC_[0-9]+_[0-9]+[^/]*")


def never_written(layout: RowLayout, source: str) -> bool:
    """Return whether the new architecture wrote a file: only it names dispatchers in file names, and members of ENUM and SET."""
    return bool(_NEW_NAME.fullmatch(source)) or any(column.elements for column in layout.columns)


def is_ambiguous(shape: Shape, row: str) -> bool:
    """Return whether the row also parses with the handle-key setting reversed."""
    texts = _values(shape.dialect, row)
    # A handle key is written as a text, so a bare first value is none.
    first = texts[0]
    if not shape.dialect.is_text(first):
        return False
    return _hides_column(shape, texts) if shape.form.handle_key else _hides_handle_key(shape, texts)


def _hides_handle_key(shape: Shape, texts: list[str]) -> bool:
    """Return whether the first value may be a handle key, and some column may be missing; columns of the primary key never are.

    All columns after the missing one are in place anyway, so the first one that may be missing decides.
    """
    columns = [shape.form.layout.columns[index] for index in shape.form.order]
    # A virtual generated column cannot be part of a primary key.
    may_lack = next((place for place, column in enumerate(columns) if not column.is_pk), None)
    if may_lack is None or not _in_place(shape.columns, texts[1:], may_lack):
        return False
    handle = shape.dialect.content(texts[0])
    keys = [place for place, column in enumerate(columns) if column.is_pk]
    if _INTEGER.fullmatch(handle) or _IN_BRACES.fullmatch(handle):
        return True
    # The handle key of a one-column key may be that column's value without braces, whatever it looks like.
    return keys == [0] and may_lack > 0 and shape.dialect.content(texts[1]) == handle


def _hides_column(shape: Shape, texts: list[str]) -> bool:
    """Return whether the supposed handle key may be a value, and a column that the target has as a virtual one is in the row."""
    form = shape.form
    carried = {folded_name(column.name) for column in form.layout.columns}
    known = [name for name in form.layout.listed if not is_hidden(name)]
    # The columns before the first one that the layout leaves out are in place either way.
    extra = next((place for place, name in enumerate(known) if folded_name(name) not in carried), None)
    if extra is None or not _in_place(shape.columns[1:], texts, extra):
        return False
    columns = [form.layout.columns[index] for index in form.order]
    handle = shape.dialect.content(texts[0])
    keys = [
        shape.dialect.content(text) if shape.dialect.is_text(text) else text
        for column, text in zip(columns, texts[1:], strict=True)
        if column.is_pk
    ]
    # It repeats the values of the primary key, so it is the handle key.
    if keys and handle in ({keys[0], f"{{{keys[0]}}}"} if len(keys) == 1 else {f"{{{', '.join(keys)}}}"}):
        return False
    return not _IN_BRACES.fullmatch(handle) or extra == 0 or columns[0].type == "JSON"


def _in_place(forms: tuple[re.Pattern[str], ...], texts: list[str], count: int) -> bool:
    """Return whether each of the first `count` texts has the form of its column."""
    return all(form.fullmatch(text) for form, text in zip(forms[:count], texts[:count], strict=True))


def _values(dialect: Dialect, row: str) -> list[str]:
    """Return a row's fields as written, from the handle key on."""
    text, null, delimiter = (
        row.removesuffix(dialect.options.terminator),
        dialect.options.null,
        dialect.options.delimiter,
    )
    texts: list[str] = []
    start = 0
    while True:
        end = start + len(null)
        # NULL first: without a quote its marker, such as ``\N``, need not have the form of a text.
        if not text.startswith(null, start) or not (end == len(text) or text.startswith(delimiter, end)):
            end = dialect.field_end(text, start)
        texts.append(text[start:end])
        if not text.startswith(delimiter, end):
            return texts[dialect.first_value :]
        start = end + len(delimiter)
