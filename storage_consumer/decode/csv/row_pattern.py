"""The rows of a table in a dialect: the pattern that reads and checks a whole row, and the conversion of its fields."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache

from storage_consumer.config.settings import CsvOptions
from storage_consumer.decode.csv.dialect import CHECK_OPTIONS, Dialect, dialect_of, unescaped
from storage_consumer.decode.decoder import ABSENT, SELECTED, RowLayout, Values
from storage_consumer.decode.values import Converter, CsvForm, WireKind, converter, csv_form, grammar, wire_kind
from storage_consumer.model import TableColumn

Fields = tuple[str | None, ...]
"""The groups of a matched row: op, commit-ts, is-update, then one for each column; None is NULL."""
IS_UPDATE = 3
"""Number of the is-update group in a match."""
_FIRST_VALUE = 3
NOT_UTF8 = "it is not UTF-8"
_SURROGATE = re.compile("[\udc80-\udcff]")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileForm:
    """What all rows of one file have in common."""

    options: CsvOptions
    layout: RowLayout
    names: str
    """Table and schema as written, with the delimiter between them."""
    order: tuple[int, ...]
    """Indexes of the layout's columns that the file has, in its order."""
    handle_key: bool
    """Whether a field with the handle key precedes the values."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Shape:
    """A form, prepared for many rows; there is one of each, built by `shape`."""

    form: FileForm
    dialect: Dialect
    pattern: re.Pattern[str]
    """Pattern of one row of this form, or of nothing. Its groups are `Fields`; op is None if it matched nothing."""
    last: re.Pattern[str]
    """The same pattern for text after which the file ends."""
    columns: tuple[re.Pattern[str], ...]
    """Pattern of each field from the handle key on, NULL included, in the order of the file."""
    texts: tuple[int, ...]
    """Indexes, in the order of the file, of columns whose texts may hold a doubled quote or an escape."""
    conversions: tuple[tuple[int, Converter], ...]
    reorder: tuple[int, ...] | None
    """For each column of the layout, its index in the file, or in the case of a lacking one the number of columns; None if they are equal."""

    def checked_values(self, match: re.Match[str], fields: Fields) -> Values:
        """Return `values` of a row that may hold surrogates. Raise `ValueError` if it does."""
        if not all(text is None or is_utf8(text) for text in fields):
            raise ValueError(NOT_UTF8)
        return self.values(match, fields)

    def values(self, match: re.Match[str], fields: Fields) -> Values:
        """Return the wire texts of a row of this form; `fields` are its groups. Raise `ValueError`, naming the column, for a bad one."""
        dialect = self.dialect
        if dialect.overlap and dialect.overlap.search(match[0]) and self._readings(match[0]) != 1:
            raise ValueError(
                f"it can be read in more than one way: a text beside the delimiter {dialect.options.delimiter!r} looks like a "
                "part of it; set a quote under [sink.csv] of the changefeed"
            )
        values = list(fields[_FIRST_VALUE:])
        quote, mark = dialect.options.quote, dialect.doubled
        # Few texts hold a quote or an escape: a search is cheaper than a replacement.
        for index in self.texts:
            text = values[index]
            if text and mark in text:
                values[index] = text.replace(mark, quote) if quote else unescaped(text)
        index = 0
        try:
            for index, convert in self.conversions:
                text = values[index]
                if text is not None:
                    # `index` outlives the loop: it names the column whose conversion failed.
                    values[index] = convert(text)
        except ValueError as error:
            column = self.form.layout.columns[self.form.order[index]]
            raise ValueError(f"column {column.name}: {error}") from error
        if self.reorder:
            values.append(ABSENT)
            return tuple([values[index] for index in self.reorder])
        return tuple(values)

    def mismatch(self, row: str) -> str:
        """Return why a complete row does not have this form."""
        layout, dialect = self.form.layout, self.dialect
        expected = (
            f"{layout.table} should have {len(layout.columns)} ({', '.join(column.name for column in layout.columns)})"
        )
        if not dialect.options.terminator:
            return f"it does not have the form of a row: {expected}; {CHECK_OPTIONS}"
        split = dialect.split(row)
        if split.problem:
            return f"{split.problem}; {CHECK_OPTIONS}"
        texts = split.fields[dialect.first_value :]
        if len(texts) != len(self.columns):
            return (
                f"it has {len(texts)} values, but {expected}. Possible reasons: a column that is a virtual generated "
                f"column on one side only; {SELECTED}; or an option: {CHECK_OPTIONS}"
            )
        ordered = [layout.columns[index] for index in self.form.order]
        # From the end, since a handle key precedes the columns in `self.columns`.
        for column, form, text in zip(reversed(ordered), reversed(self.columns), reversed(texts), strict=False):
            if not form.fullmatch(text):
                return (
                    f"column {column.name} ({column.type}): {text[:40]!r} does not have the form of such a value; "
                    f"{CHECK_OPTIONS}"
                )
        return f"it does not have the form of a row; {CHECK_OPTIONS}"

    def _readings(self, row: str) -> int:
        """Return in how many ways the delimiters of a row without quotes can be read."""
        dialect = self.dialect
        text, delimiter = row.removesuffix(dialect.options.terminator), dialect.options.delimiter
        # Count the ways from left to right, merged by position: the ways may double with each field.
        starts = Counter({0: 1})
        fields = [*dialect.first_fields(), *self.columns]
        for field in fields[:-1]:
            following: Counter[int] = Counter()
            for start, ways in starts.items():
                # A field that ends in a part of a delimiter may end later than at the earliest, but by less than a
                # delimiter's length.
                first = dialect.field_end(text, start)
                ends = (end for end in range(first, first + len(delimiter)) if text.startswith(delimiter, end))
                following.update({end + len(delimiter): ways for end in ends if field.fullmatch(text[start:end])})
            starts = following
        return sum(ways for start, ways in starts.items() if fields[-1].fullmatch(text[start:]))


def is_utf8(text: str) -> bool:
    """Return whether no part of a text represents bytes that are not UTF-8."""
    return not _SURROGATE.search(text)


@lru_cache(maxsize=1024)
def shape(form: FileForm) -> Shape:
    """Return the shape of a form."""
    dialect = dialect_of(form.options)
    columns = [form.layout.columns[index] for index in form.order]
    converters = (
        converter(
            column,
            "csv",
            binary_encoding=form.options.binary_encoding,
            moved=form.layout.moving(place),
            spelling=form.layout.spelling(place),
        )
        for place, column in zip(form.order, columns, strict=True)
    )
    quote = form.options.quote
    forms = [csv_form(column, quote) for column in columns]
    texts = [index for index, kind in enumerate(forms) if kind is CsvForm.FREE or (kind is CsvForm.PLAIN and not quote)]
    # The pattern follows the file, the values follow the layout: `reorder` is between the two.
    every = range(len(form.layout.columns))
    moved = form.order != tuple(every)
    alone = [_pattern(dialect, column, r"\Z") for column in columns]
    return Shape(
        form=form,
        dialect=dialect,
        pattern=_row_pattern(dialect, form, columns, dialect.end()),
        last=_row_pattern(dialect, form, columns, dialect.end(final=True)),
        columns=tuple(re.compile(pattern) for pattern in [*([dialect.text] if form.handle_key else []), *alone]),
        texts=tuple(texts),
        conversions=tuple((index, convert) for index, convert in enumerate(converters) if convert is not None),
        reorder=tuple(form.order.index(i) if i in form.order else len(columns) for i in every) if moved else None,
    )


def _row_pattern(dialect: Dialect, form: FileForm, columns: list[TableColumn], end: str) -> re.Pattern[str]:
    quote, delimiter = dialect.quote, dialect.delimiter
    head = f"{quote}([IUD]){quote}{delimiter}{re.escape(form.names)}"
    commit_ts_pattern = f"{delimiter}([0-9]{{1,20}}+)" if form.options.include_commit_ts else "()"
    update = f"{delimiter}(true|false)" if form.options.output_old_value else "()"
    handle = f"{delimiter}{dialect.text}" if form.handle_key else ""
    follows = [delimiter] * (len(columns) - 1) + [end]
    values = "".join(
        delimiter + _pattern(dialect, column, behind) for column, behind in zip(columns, follows, strict=True)
    )
    # The empty alternative matches where no row does. So `finditer` stops there instead of searching on.
    return re.compile(f"{head}{commit_ts_pattern}{update}{handle}{values}{end}|")


def _pattern(dialect: Dialect, column: TableColumn, follows: str) -> str:
    """Return the pattern of a column's field, with its content as a group that does not participate if the field is NULL."""
    null = re.escape(dialect.options.null)
    kind = csv_form(column, dialect.options.quote)
    if kind is CsvForm.BARE:
        return f"(?:({grammar(column, 'csv')})|{null})"
    text = dialect.plain_text(follows) if kind is CsvForm.PLAIN else dialect.free_text(follows)
    if dialect.options.quote:
        return f"(?:{text}|{null})"
    # A text that a user can type, and bytes in base64 or hex, may equal the marker; where NULL is impossible they win.
    is_free = kind is CsvForm.FREE or wire_kind(column, "csv") is WireKind.HEX
    if is_free and not column.nullable and dialect.null_is_ambiguous:
        return text
    # NULL only if the field ends there: a text may begin with the marker.
    return f"(?:{null}(?={follows})|{text})"
