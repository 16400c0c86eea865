"""The header line that TiCDC writes at the beginning of each CSV file with ``output-field-header``.

Its names are neither quoted nor escaped, and the handle key has none. It may name columns that no row has: hidden and
virtual ones. Only the header line says which columns the rows have and in which order, but it describes the file's
first row, whatever rows follow.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from storage_consumer.decode.csv.dialect import Dialect
from storage_consumer.decode.decoder import SELECTED, RowLayout
from storage_consumer.model import folded_name

_ALWAYS = ("ticdc-meta$operation", "ticdc-meta$table", "ticdc-meta$schema")
_COMMIT_TS, _IS_UPDATE = "ticdc-meta$commit-ts", "ticdc-meta$is-update"


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """The content of a file's first line."""

    length: int
    """Length in characters, terminator included; 0 if there is no such line."""
    order: tuple[int, ...]
    """Indexes of the layout's columns that the file has, in its order."""
    problem: str = ""
    """Why rows cannot be read by this header."""


def read_header(text: str, dialect: Dialect, layout: RowLayout, *, final: bool) -> Header | None:
    """Return the header at the beginning of a file's `text`; None if more of the text is needed to decide.

    `final`: the file ends after `text`. A row cannot begin like a header, so a header is found whether or not the
    option was set.
    """
    delimiter, terminator = dialect.options.delimiter, dialect.options.terminator
    natural = tuple(range(len(layout.columns)))
    mark = delimiter.join(_ALWAYS) + delimiter
    if not text.startswith(mark):
        waits = not final and mark.startswith(text)
        return None if waits else Header(length=0, order=natural)
    # Names are not escaped, so one may hold the delimiter: compare whole lines before splitting any.
    for names in ([column.name for column in layout.columns], layout.listed):
        expected = delimiter.join([*_meta(dialect), *names]) + terminator
        if text.startswith(expected):
            behind = len(expected) if terminator else _begin_of_row(text, len(expected), dialect, final=final)
        else:
            # The text may end within the line.
            behind = None if not final and expected.startswith(text) else 0
        if behind != 0:
            return None if behind is None else Header(length=behind, order=natural)
    end = text.find(terminator) if terminator else -1
    if end < 0:
        unclear = "the header line does not name the table's columns in their order, and its end cannot be determined"
        return Header(length=0, order=natural, problem=unclear) if final or not terminator else None
    order, problem = _by_name(text[:end].split(delimiter), dialect, layout)
    return Header(length=end + len(terminator), order=order or natural, problem=problem)


def _begin_of_row(text: str, position: int, dialect: Dialect, *, final: bool) -> int | None:
    """Return `position` if a row begins there or the file ends, else 0; None if more of the text is needed to decide."""
    if dialect.row_start.match(text, position) or (final and position == len(text)):
        return position
    # As long as the beginning of a row can be: quote, letter, quote, delimiter.
    longest = 2 * len(dialect.options.quote) + 1 + len(dialect.options.delimiter)
    return 0 if final or len(text) - position >= longest else None


def _meta(dialect: Dialect) -> list[str]:
    options = dialect.options
    commit_ts_name = [_COMMIT_TS] if options.include_commit_ts else []
    return [*_ALWAYS, *commit_ts_name, *([_IS_UPDATE] if options.output_old_value else [])]


def _by_name(fields: list[str], dialect: Dialect, layout: RowLayout) -> tuple[tuple[int, ...], str]:
    """Return the order of the columns, or what is wrong."""
    names = [column.name for column in layout.columns]
    meta = _meta(dialect)
    for name, option in ((_COMMIT_TS, "include-commit-ts"), (_IS_UPDATE, "output-old-value")):
        if (name in fields) != (name in meta) and name not in names:
            has = "has" if name in fields else "lacks"
            return (), f"the header line {has} {name}: is {option} of [sink.csv] the one given to TiCDC?"
    # Splitting such a line would cut a name, and perhaps make two columns of it.
    if any(set(name) & set(dialect.options.delimiter) for name in names):
        return (), "the header line does not name the columns in their order, and a name contains the delimiter"
    if fields[: len(meta)] != meta:
        return (), f"the header line does not begin with {', '.join(meta)}"
    places = {folded_name(name): index for index, name in enumerate(names)}
    # Columns that only the schema file lists may be in the header and are in no row.
    lacked = {folded_name(name) for name in layout.listed} - places.keys()
    given = [name for name in fields[len(meta) :] if folded_name(name) not in lacked]
    found = [folded_name(name) for name in given]
    unknown = [name for name in given if folded_name(name) not in places]
    lacking = [name for name in names if folded_name(name) not in layout.may_lack.union(found)]
    twice = [name for name, count in Counter(found).items() if count > 1]
    for what, which in (("names the unknown column", unknown), ("lacks the column", lacking), ("names twice", twice)):
        if which:
            return (), (
                f"the header line {what} {', '.join(which)}; {layout.table} should have {', '.join(names)}. Possible "
                f"reasons: a column that is a virtual generated column on one side only; {SELECTED}; or a delimiter that "
                "is not the one given to TiCDC"
            )
    return tuple(places[name] for name in found), ""
