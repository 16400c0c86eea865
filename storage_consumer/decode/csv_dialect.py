r"""TiCDC's CSV under given options: what they determine, row patterns, and diagnoses.

With a quote, texts are quoted and each quote inside is doubled; nothing else is changed. Numbers
and NULL are bare. Without a quote, a text has CR, LF and backslash as ``\r``, ``\n`` and ``\\``,
and a backslash before each character of a delimiter.

``output-field-header`` puts a header line at the beginning of each file. Its names are neither
quoted nor escaped, and the handle key has none. It may name columns that no row has: hidden and
virtual ones.
Only the header line says which columns the rows have and in which order, but it describes the
file's first row, whatever rows follow.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache

from storage_consumer.config.settings import CsvOptions, Upstream
from storage_consumer.decode.decoder import ABSENT, SELECTED, RowLayout, Values
from storage_consumer.decode.values import (
    FLOAT,
    Converter,
    CsvForm,
    WireKind,
    csv_form,
    grammar,
    wire_kind,
)
from storage_consumer.errors import ConfigError
from storage_consumer.model import TableColumn, TableName, folded_name

_IN_NUMBERS = frozenset("0123456789.eE+-")
_GOES_ON_A_NUMBER = re.compile(r"[0-9]|\.([0-9]|\Z)|[eE][-+]?([0-9]|\Z)")
"""The beginnings of a text that, after a number, may be read as more of it."""
_MAX_DELIMITER_BYTES = 3


def check_options(options: CsvOptions) -> None:
    """Raise `ConfigError`, naming TiCDC's option, if its rows would be ambiguous."""
    quote, delimiter, terminator, null = (
        options.quote,
        options.delimiter,
        options.terminator,
        options.null,
    )
    of_delimiter, of_terminator = (
        f"[sink.csv] delimiter = {delimiter!r}",
        f"[sink] terminator = {terminator!r}",
    )
    of_null = f"[sink.csv] null = {null!r}"
    unquoted, alike = f"{of_delimiter} with quote = ''", "cannot be distinguished from"
    runs_on = any(delimiter.startswith(delimiter[step:]) for step in range(1, len(delimiter)))
    for is_bad, problem in (
        (
            quote
            and (len(quote) != 1 or not quote.isascii() or quote in "\r\n" or quote in _IN_NUMBERS),
            f"[sink.csv] quote = {quote!r} is not supported: one character such as '\"', or none, is needed",
        ),
        (
            not 1 <= len(delimiter.encode()) <= _MAX_DELIMITER_BYTES
            or {"\r", "\n"} & set(delimiter),
            f"{of_delimiter} is not supported: TiCDC accepts 1 to 3 bytes without line ends",
        ),
        (quote and quote in delimiter, f"{of_delimiter} contains the quote {quote!r}"),
        (
            _GOES_ON_A_NUMBER.match(delimiter) or delimiter in ("+", "-"),
            f"{of_delimiter} {alike} a number",
        ),
        (
            not quote and not delimiter.isascii(),
            f"{unquoted}: TiCDC corrupts texts that hold such a delimiter; use an ASCII one",
        ),
        (
            not quote and set(delimiter) & set("\\rn"),
            f"{unquoted} {alike} the escapes \\\\, \\r and \\n",
        ),
        (_GOES_ON_A_NUMBER.match(terminator), f"{of_terminator} {alike} a number"),
        (
            delimiter == terminator or (quote and quote in terminator),
            f"{of_terminator} {alike} a delimiter or a quote",
        ),
        (not quote and "\\" in terminator, f"{of_terminator} with quote = '' {alike} an escape"),
        (
            not (terminator or quote) and options.output_handle_key,
            f"{of_terminator} with quote = '' and output-handle-key: which fields belong to a row cannot be determined",
        ),
        (
            not terminator and set(delimiter) & set("IUD"),
            f"{of_terminator} with delimiter = {delimiter!r}: where a row begins cannot be determined",
        ),
        (
            not (terminator or quote) and runs_on,
            f"{of_terminator} with delimiter = {delimiter!r} and quote = '': where a row begins cannot be determined",
        ),
        (re.fullmatch(FLOAT, null), f"{of_null} {alike} a number; use one such as '\\N'"),
        (quote and quote in null, f"{of_null} contains the quote"),
        (
            not quote and null.endswith("\\"),
            f"{of_null} with quote = '' {alike} the escape of what follows; use one such as '\\N'",
        ),
        *(
            (
                text and (null + text).find(text) != len(null),
                f"{of_null} followed by the {name} {text!r} can be read in two ways",
            )
            for name, text in (("delimiter", delimiter), ("terminator", terminator))
        ),
        (
            # Repeated until a terminator that spans several NULL fields must show.
            terminator and terminator in (delimiter + null) * (len(terminator) + 1),
            f"{of_null} between delimiters {delimiter!r}: the terminator {terminator!r} may occur in a row",
        ),
    ):
        if is_bad:
            raise ConfigError(problem)


def caveat(upstream: Upstream) -> str:
    r"""Return a warning on what the bucket's CSV options leave open, or "".

    Without a quote, TiCDC writes a text that equals the null marker as it writes NULL, unless the
    marker is ``\N``.
    """
    options = upstream.csv
    if upstream.protocol != "csv" or options.quote or options.null == "\\N":
        return ""
    return (
        f"[sink.csv] quote is empty and null = {options.null!r}: TiCDC writes NULL and the text {options.null!r} "
        "alike, so such a text in a column that can be NULL is read as NULL. Set a quote, or null = '\\N', to tell "
        "them apart"
    )


def shown(text: str) -> str:
    r"""Return a field as a message shows it: bytes that are no UTF-8 as ``\xNN``."""
    readable = text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return repr(text) if readable == text else f"'{readable}'"


CHECK_OPTIONS = (
    "are delimiter, quote, null, include-commit-ts, output-old-value and output-handle-key of [sink.csv] and terminator of "
    "[sink] the ones given to TiCDC?"
)
_MOST_FIELDS = 10_000
"""A limit on fields in a row; TiDB's tables have at most 4,096 columns."""
_LONGEST_BARE = 4096
"""More characters than a number ever has."""
_LONGEST_HEAD = 4096
"""More characters than the fields before a row's values ever have."""
_AT_ONCE = 10_000
"""Most pieces of a row of any form that are matched in one go.

Each takes 150 bytes for that time, and an unclosed quote may turn all that follows into pieces.
"""
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPED = {"r": "\r", "n": "\n"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """The fields of one row, found without regard to its table."""

    fields: tuple[str, ...]
    """The fields as written, quotes included; up to the problem if there is one."""
    end: int | None
    """Where the row ends, terminator included; None if it does not end."""
    problem: str = ""
    """What cannot be read; `end` is then after the next terminator, quoted or not."""


class Dialect:
    """One set of options. They must have passed `check_options`."""

    def __init__(self, options: CsvOptions) -> None:
        """Prepare the patterns."""
        self.options = options
        self.quote = re.escape(options.quote)
        self.delimiter, self.terminator = (
            re.escape(options.delimiter),
            re.escape(options.terminator),
        )
        self.text = self._quoted("", "") if options.quote else _repeated(self._token())
        """The pattern of any text field, without groups."""
        self.doubled = options.quote * 2 or "\\"
        """What a text field contains if its content differs from what is written."""
        self.null_is_ambiguous = not options.quote and options.null != "\\N"
        r"""Whether NULL and the text that equals its marker look alike: only unquoted, and not
        ``\N``.
        """
        delimiter = "" if options.quote else options.delimiter
        steps = [
            step for step in range(1, len(delimiter)) if delimiter.startswith(delimiter[step:])
        ]
        overlaps = "|".join(re.escape(delimiter[:step] + delimiter) for step in steps)
        self.overlap = re.compile(overlaps) if steps else None
        """How a text's end and the delimiter may be confused; None if that cannot happen."""
        self.first_value = 3 + options.include_commit_ts + options.output_old_value
        """How many fields precede the handle key and the values."""
        commit_ts_pattern = (
            f"{self.delimiter}([0-9]{{1,20}}+)" if options.include_commit_ts else "()"
        )
        update = f"{self.delimiter}(?:true|false)" if options.output_old_value else ""
        head = self._row_start = f"{self.quote}[IUD]{self.quote}{self.delimiter}"
        self.row_start = re.compile(head)
        self.head = re.compile(
            f"{head}({self.text}{self.delimiter}{self.text}){commit_ts_pattern}{update}(?={self.delimiter}|{self.end()})"
        )
        """Fields before handle key and values. Groups: table and schema as written, commit-ts."""
        self._unread_some = (
            re.compile(f"(?>(?:{self._unread()}){{0,{_AT_ONCE}}})") if options.terminator else None
        )
        """The rest of any row, as far as one match goes; None without a terminator."""
        self.next_row = (
            re.compile(self.terminator + head) if options.terminator and options.quote else None
        )
        """Where another row may begin; never inside a row, since quotes in texts are doubled."""
        bare = f"(?>(?:(?!{self._stop()}|{self.quote})(?s:.)){{0,{_LONGEST_BARE}}})"
        self._field = re.compile(f"{self.text}|{bare}" if options.quote else self.text)

    def _quoted(self, begin: str, end: str) -> str:
        """Return the pattern of a quoted text.

        A repetition that begins with two quotes fails before it consumes anything, so it may be
        possessive (see `_repeated`). An atomic group would keep 150 bytes for each repetition:
        gigabytes for a JSON value of 64 MB.
        """
        quote = self.quote
        doubled = f"(?:{quote}{quote}[^{quote}]*+)*+"
        return f"{quote}{begin}[^{quote}]*+{doubled}{end}{quote}"

    def _stop(self) -> str:
        return f"{self.delimiter}|{self.terminator}" if self.options.terminator else self.delimiter

    def _token(self) -> str:
        """Return the pattern of one or more characters of an unquoted text."""
        # Characters that may begin a delimiter or terminator match singly, after a lookahead.
        special = "".join(
            {
                re.escape(text[0])
                for text in (self.options.delimiter, self.options.terminator)
                if text
            }
        )
        # TiCDC puts a backslash before each character of a delimiter, not before the whole.
        escaped = "".join(rf"\\{re.escape(character)}" for character in self.options.delimiter)
        return rf"[^\\\r\n{special}]++|\\[\\rn]|{escaped}|(?!{self._stop()})[^\\\r\n]"

    def _unread(self) -> str:
        """Return the pattern of one or more characters before a row's terminator."""
        first = re.escape(self.options.terminator[:1])
        if not self.options.quote:
            return rf"[^\\{first}]++|\\(?s:.)|(?!{self.terminator}){first}"
        # A quoted text as a whole: a doubled quote inside it is the end of one piece and the
        # beginning of the next.
        skipped = f"[^{self.quote}{first}]++|{self.quote}[^{self.quote}]*+{self.quote}"
        # Here the delimiter must not match by itself: it may begin the terminator.
        if self.options.terminator.startswith(self.options.delimiter):
            return f"{skipped}|(?!{self.terminator}){first}"
        return f"{skipped}|{self.delimiter}|(?!{self.terminator}){first}"

    def end(self, *, final: bool = False) -> str:
        """Return the pattern of a row's end: a terminator, a next row or, if `final`, the end."""
        if self.options.terminator:
            return self.terminator
        # Without a terminator a row ends where the next begins: looked at, but not consumed.
        return rf"(?={self._row_start}|\Z)" if final else f"(?={self._row_start})"

    def row_end(self, text: str, start: int) -> int | None:
        """Return where a row read up to `start` ends, with its terminator; None if it does not.

        Without a terminator only a row's own form shows where it ends.
        """
        if self._unread_some is None:
            return None
        before = -1
        # In portions, since each piece takes memory while it is matched (see `_AT_ONCE`).
        while start > before and (found := self._unread_some.match(text, start)):
            before, start = start, found.end()
        terminator = self.options.terminator
        return start + len(terminator) if text.startswith(terminator, start) else None

    def free_text(self, follows: str) -> str:
        """Return a user text's pattern, with its content as a group; `follows`: what comes next."""
        if self.options.quote and (self.options.terminator or follows == self.delimiter):
            return self._quoted("(", ")")
        quote = self.quote
        # the last text of a row without a terminator: the next row's quote seems to double its own
        if quote:
            doubled = _repeated(f"{quote}(?!{follows}){quote}[^{quote}]*+")
            return f"{quote}([^{quote}]*+{doubled}){quote}(?={follows})"
        return (
            f"({self.text})"
            if self.options.terminator or follows == self.delimiter
            else f"((?:{self._token()})*?)"
        )

    def plain_text(self, follows: str) -> str:
        """Return the pattern of a text that TiCDC formats itself, with its content as a group."""
        return (
            f"{self.quote}([^{self.quote}]*+){self.quote}"
            if self.options.quote
            else self.free_text(follows)
        )

    def encode(self, text: str) -> str:
        """Return a text as TiCDC writes it."""
        quote, delimiter = self.options.quote, self.options.delimiter
        if quote:
            return f"{quote}{text.replace(quote, quote * 2)}{quote}"
        escaped = text.replace("\\", "\\\\").replace("\r", "\\r").replace("\n", "\\n")
        return escaped.replace(delimiter, "".join(f"\\{character}" for character in delimiter))

    def content(self, text: str) -> str:
        """Return the content of a text field as written, with its quotes if there are any."""
        quote = self.options.quote
        # With a quote a backslash is an ordinary character.
        return text[1:-1].replace(quote * 2, quote) if quote else unescaped(text)

    def is_text(self, field: str) -> bool:
        """Return whether a field is a text; without a quote any field but NULL may be."""
        quote = self.options.quote
        return field.startswith(quote) if quote else field != self.options.null

    def names(self, fields: str) -> TableName:
        """Return the names in the head's two name fields, of which the table comes first."""
        first = self._field.match(fields)
        assert first is not None
        second = fields[first.end() + len(self.options.delimiter) :]
        return TableName(schema=self.content(second), table=self.content(first[0]))

    def commit_ts(self, text: str) -> int | None:
        """Return the commit-ts that begins a row, or None if that much cannot be read."""
        match = self.head.match(text)
        return int(match[2]) if match and match[2] else None

    def split(self, text: str) -> Split:
        """Split the row that `text` begins with; needs a terminator."""
        fields: list[str] = []
        delimiter, terminator = self.options.delimiter, self.options.terminator
        position = 0
        while True:
            field = self._field.match(text, position)
            assert field is not None
            position = field.end()
            # An empty match right before a quote: a quoted field whose end is missing.
            unclosed = (
                self.options.quote
                and not field[0]
                and text.startswith(self.options.quote, position)
            )
            if unclosed or position == len(text):
                return Split(fields=tuple(fields), end=None)
            fields.append(field[0])
            ends = text.startswith(terminator, position)
            # If both fit here, one of them begins with the other, and the longer one is meant.
            more = text.startswith(delimiter, position) and not (
                ends and terminator.startswith(delimiter)
            )
            if ends and not more:
                return Split(fields=tuple(fields), end=position + len(terminator))
            if not more or len(fields) > _MOST_FIELDS:
                problem = f"field {len(fields)} ({field[0][:40]!r}) is followed by neither delimiter nor terminator"
                problem = f"it has more than {_MOST_FIELDS} fields" if more else problem
                end = text.find(terminator, position)
                return Split(
                    fields=tuple(fields),
                    end=None if end < 0 else end + len(terminator),
                    problem=problem,
                )
            position += len(delimiter)

    def trouble(self, text: str, *, final: bool) -> str:
        """Return why the row that begins `text` is unreadable; "" if only its end is missing.

        `final`: the file ends after `text`.
        """
        # Without a terminator rows cannot be split, so only the row's beginning is examined.
        if not self.options.terminator:
            waits = not final and len(text) < _LONGEST_HEAD
            return "" if waits or self.head.match(text) else f"no row begins here; {CHECK_OPTIONS}"
        split = self.split(text)
        if split.problem or split.end is None:
            return f"{split.problem}; {CHECK_OPTIONS}" if split.problem else ""
        # `split.fields` may be shorter: a row that stops early has its first fields checked.
        for (name, form, meaning), found in zip(self._first_fields(), split.fields, strict=False):
            if not re.fullmatch(form, found):
                return f"the {name} field is {found[:40]!r}, not {meaning}; {CHECK_OPTIONS}"
        names = ", ".join(name for name, _, _ in self._first_fields())
        return f"it has {len(split.fields)} fields, and a row begins with {names}; {CHECK_OPTIONS}"

    def field_end(self, text: str, start: int) -> int:
        """Return where the field that begins at `start` ends at the earliest."""
        match = self._field.match(text, start)
        assert match is not None
        return match.end()

    def first_fields(self) -> list[re.Pattern[str]]:
        """Return the patterns of the fields before the handle key and the values."""
        return [re.compile(form) for _, form, _ in self._first_fields()]

    def _first_fields(self) -> list[tuple[str, str, str]]:
        """Return name, pattern and meaning of the fields before the values."""
        quoted = " in quotes" if self.options.quote else ""
        return [
            ("op", f"{self.quote}[IUD]{self.quote}", f"I, U or D{quoted}"),
            ("table", self.text, f"a name{quoted}"),
            ("schema", self.text, f"a name{quoted}"),
            *([("commit-ts", "[0-9]{1,20}", "a number")] if self.options.include_commit_ts else []),
            *(
                [("is-update", "true|false", "true or false")]
                if self.options.output_old_value
                else []
            ),
        ]


@lru_cache(maxsize=64)
def dialect_of(options: CsvOptions) -> Dialect:
    """Return the dialect of a set of options."""
    return Dialect(options)


def unescaped(text: str) -> str:
    """Return the content of a text that was written without a quote."""
    return _ESCAPE.sub(lambda match: _ESCAPED.get(match[1], match[1]), text)


def _repeated(pattern: str) -> str:
    """Return the pattern repeated as often as it fits and never less often, without groups.

    Not ``(?:…)*+``: Python 3.11.2, which Debian 12 has, does not backtrack to where a failed
    repetition began.
    """
    return f"(?>(?:{pattern})*)"


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
    """Return the header that begins a file's `text`; None if it takes more text to decide.

    `final`: the file ends after `text`. A row cannot begin like a header, so a header is found
    whether or not the option was set.
    """
    delimiter, terminator = dialect.options.delimiter, dialect.options.terminator
    natural = tuple(range(len(layout.columns)))
    mark = delimiter.join(_ALWAYS) + delimiter
    if not text.startswith(mark):
        waits = not final and mark.startswith(text)
        return None if waits else Header(length=0, order=natural)
    # Names are not escaped and may hold the delimiter: compare lines before splitting.
    for names in ([column.name for column in layout.columns], layout.listed):
        expected = delimiter.join([*_meta(dialect), *names]) + terminator
        if text.startswith(expected):
            behind = (
                len(expected)
                if terminator
                else _begin_of_row(text, len(expected), dialect, final=final)
            )
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
    """Return `position` where a row begins or the file ends, else 0; None if undecided."""
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
            return (
                (),
                f"the header line {has} {name}: is {option} of [sink.csv] the one given to TiCDC?",
            )
    # Splitting such a line would cut a name, and perhaps make two columns of it.
    if any(set(name) & set(dialect.options.delimiter) for name in names):
        return (
            (),
            "the header line does not name the columns in their order, and a name contains the delimiter",
        )
    if fields[: len(meta)] != meta:
        return (), f"the header line does not begin with {', '.join(meta)}"
    places = layout.places
    # Columns that only the schema file lists may be in the header and are in no row.
    lacked = {folded_name(name) for name in layout.listed} - places.keys()
    given = [name for name in fields[len(meta) :] if folded_name(name) not in lacked]
    found = [folded_name(name) for name in given]
    unknown = [name for name in given if folded_name(name) not in places]
    lacking = [name for name in names if folded_name(name) not in layout.may_lack.union(found)]
    twice = [name for name, count in Counter(found).items() if count > 1]
    for what, which in (
        ("names the unknown column", unknown),
        ("lacks the column", lacking),
        ("names twice", twice),
    ):
        if which:
            return (), (
                f"the header line {what} {', '.join(which)}; {layout.table} should have {', '.join(names)}. Possible "
                f"reasons: a column that is a virtual generated column on one side only; {SELECTED}; or a delimiter that "
                "is not the one given to TiCDC"
            )
    return tuple(places[name] for name in found), ""


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

    @property
    def columns(self) -> list[TableColumn]:
        """The file's columns, in its order."""
        return [self.layout.columns[index] for index in self.order]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Shape:
    """A form, prepared for many rows; there is one of each, built by `shape`."""

    form: FileForm
    dialect: Dialect
    pattern: re.Pattern[str]
    """Pattern of one row or nothing. Its groups are `Fields`; op is None if it matched nothing."""
    last: re.Pattern[str]
    """The same pattern for text after which the file ends."""
    columns: tuple[re.Pattern[str], ...]
    """Pattern of each field from the handle key on, NULL included, in the order of the file."""
    texts: tuple[int, ...]
    """Indexes, in the file's order, of columns whose texts may hold doubled quotes or escapes."""
    conversions: tuple[tuple[int, Converter], ...]
    reorder: tuple[int, ...] | None
    """Each layout column's index in the file, absent: the number of columns; None if all equal."""

    def checked_values(self, match: re.Match[str], fields: Fields) -> Values:
        """Return `values` of a row that may hold surrogates. Raise `ValueError` if it does."""
        if not all(text is None or is_utf8(text) for text in fields):
            raise ValueError(NOT_UTF8)
        return self.values(match, fields)

    def values(self, match: re.Match[str], fields: Fields) -> Values:
        """Return a row's wire texts from its `fields`; raise `ValueError`, naming the column."""
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
            raise ValueError(f"column {self.form.columns[index].name}: {error}") from error
        if self.reorder:
            values.append(ABSENT)
            return tuple([values[index] for index in self.reorder])
        return tuple(values)

    def mismatch(self, row: str) -> str:
        """Return why a complete row does not have this form."""
        layout, dialect = self.form.layout, self.dialect
        expected = f"{layout.table} should have {len(layout.columns)} ({', '.join(column.name for column in layout.columns)})"
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
        # From the end, since a handle key precedes the columns in `self.columns`.
        for column, form, text in zip(
            reversed(self.form.columns), reversed(self.columns), reversed(texts), strict=False
        ):
            if not form.fullmatch(text):
                return (
                    f"column {column.name} ({column.type}): {shown(text[:40])} does not have the form of such a value; "
                    f"{CHECK_OPTIONS}"
                )
        return f"it does not have the form of a row; {CHECK_OPTIONS}"

    def _readings(self, row: str) -> int:
        """Return in how many ways the delimiters of a row without quotes can be read."""
        dialect = self.dialect
        text, delimiter = row.removesuffix(dialect.options.terminator), dialect.options.delimiter
        # Count the ways from left to right, merged by position: each field may double them.
        starts = Counter({0: 1})
        fields = [*dialect.first_fields(), *self.columns]
        for field in fields[:-1]:
            following: Counter[int] = Counter()
            for start, ways in starts.items():
                # A field that ends in a part of a delimiter may end later than at the earliest, but
                # by less than a delimiter's length.
                first = dialect.field_end(text, start)
                ends = (
                    end
                    for end in range(first, first + len(delimiter))
                    if text.startswith(delimiter, end)
                )
                following.update(
                    {end + len(delimiter): ways for end in ends if field.fullmatch(text[start:end])}
                )
            starts = following
        return sum(ways for start, ways in starts.items() if fields[-1].fullmatch(text[start:]))


def is_utf8(text: str) -> bool:
    """Return whether no part of a text represents bytes that are not UTF-8."""
    return not _SURROGATE.search(text)


@lru_cache(maxsize=1024)
def shape(form: FileForm) -> Shape:
    """Return the shape of a form."""
    dialect = dialect_of(form.options)
    columns = form.columns
    converters = (
        form.layout.converter(place, "csv", form.options.binary_encoding_method)
        for place in form.order
    )
    quote = form.options.quote
    forms = [csv_form(column, quote) for column in columns]
    texts = [
        index
        for index, kind in enumerate(forms)
        if kind is CsvForm.FREE or (kind is CsvForm.PLAIN and not quote)
    ]
    # The pattern follows the file, the values follow the layout: `reorder` is between the two.
    every = range(len(form.layout.columns))
    moved = form.order != tuple(every)
    alone = [_pattern(dialect, column, r"\Z") for column in columns]
    return Shape(
        form=form,
        dialect=dialect,
        pattern=_row_pattern(dialect, form, columns, dialect.end()),
        last=_row_pattern(dialect, form, columns, dialect.end(final=True)),
        columns=tuple(
            re.compile(pattern)
            for pattern in [*([dialect.text] if form.handle_key else []), *alone]
        ),
        texts=tuple(texts),
        conversions=tuple(
            (index, convert) for index, convert in enumerate(converters) if convert is not None
        ),
        reorder=tuple(form.order.index(i) if i in form.order else len(columns) for i in every)
        if moved
        else None,
    )


def _row_pattern(
    dialect: Dialect, form: FileForm, columns: list[TableColumn], end: str
) -> re.Pattern[str]:
    quote, delimiter = dialect.quote, dialect.delimiter
    head = f"{quote}([IUD]){quote}{delimiter}{re.escape(form.names)}"
    commit_ts_pattern = f"{delimiter}([0-9]{{1,20}}+)" if form.options.include_commit_ts else "()"
    update = f"{delimiter}(true|false)" if form.options.output_old_value else "()"
    handle = f"{delimiter}{dialect.text}" if form.handle_key else ""
    follows = [delimiter] * (len(columns) - 1) + [end]
    values = "".join(
        delimiter + _pattern(dialect, column, behind)
        for column, behind in zip(columns, follows, strict=True)
    )
    # The empty alternative matches where no row does, so `finditer` stops there.
    return re.compile(f"{head}{commit_ts_pattern}{update}{handle}{values}{end}|")


def _pattern(dialect: Dialect, column: TableColumn, follows: str) -> str:
    """Return a field's pattern, whose group of the content does not participate for NULL."""
    null = re.escape(dialect.options.null)
    kind = csv_form(column, dialect.options.quote)
    if kind is CsvForm.BARE:
        return f"(?:({grammar(column, 'csv')})|{null})"
    text = dialect.plain_text(follows) if kind is CsvForm.PLAIN else dialect.free_text(follows)
    if dialect.options.quote:
        return f"(?:{text}|{null})"
    # A text that a user can type, and bytes in base64 or hex, may equal the marker; where NULL is
    # impossible they win.
    is_free = kind is CsvForm.FREE or wire_kind(column, "csv") is WireKind.HEX
    if is_free and not column.nullable and dialect.null_is_ambiguous:
        return text
    # NULL only if the field ends there: a text may begin with the marker.
    return f"(?:{null}(?={follows})|{text})"
