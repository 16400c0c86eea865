r"""TiCDC's CSV under given options: patterns that read rows, and diagnoses of text that is not a row.

With a quote, texts are quoted and each quote inside is doubled; nothing else is changed. Numbers and NULL are bare.
Without a quote, a text has CR, LF and backslash as ``\r``, ``\n`` and ``\\``, and a backslash before each character of
a delimiter.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from storage_consumer.config.settings import CsvOptions
from storage_consumer.model import TableName

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
    """One set of options. They must have passed `csv.options.check_options`."""

    def __init__(self, options: CsvOptions) -> None:
        """Prepare the patterns."""
        self.options = options
        self.quote = re.escape(options.quote)
        self.delimiter, self.terminator = re.escape(options.delimiter), re.escape(options.terminator)
        self.text = self._quoted("", "") if options.quote else _repeated(self._token())
        """The pattern of any text field, without groups."""
        self.doubled = options.quote * 2 or "\\"
        """What a text field contains if its content differs from what is written."""
        self.null_is_ambiguous = not options.quote and options.null != "\\N"
        r"""Whether a text that equals the null marker is written like NULL: without a quote, any marker but ``\N``, whose backslash is doubled."""
        self.overlap = None if options.quote else _overlap(options.delimiter)
        """Where the end of a text and the delimiter after it may be mistaken for one another; None if that cannot happen."""
        self.first_value = 3 + options.include_commit_ts + options.output_old_value
        """How many fields precede the handle key and the values."""
        commit_ts_pattern = f"{self.delimiter}([0-9]{{1,20}}+)" if options.include_commit_ts else "()"
        update = f"{self.delimiter}(?:true|false)" if options.output_old_value else ""
        head = self._row_start = f"{self.quote}[IUD]{self.quote}{self.delimiter}"
        self.row_start = re.compile(head)
        self.head = re.compile(
            f"{head}({self.text}{self.delimiter}{self.text}){commit_ts_pattern}{update}(?={self.delimiter}|{self.end()})"
        )
        """A row's fields before the handle key and the values. Groups: table and schema as written, commit-ts."""
        self._unread_some = re.compile(f"(?>(?:{self._unread()}){{0,{_AT_ONCE}}})") if options.terminator else None
        """As much of the rest of a row of any form as is matched in one go; None without a terminator."""
        self.next_row = re.compile(self.terminator + head) if options.terminator and options.quote else None
        """Where another row may begin; never inside a row, since quotes in texts are doubled."""
        bare = f"(?>(?:(?!{self._stop()}|{self.quote})(?s:.)){{0,{_LONGEST_BARE}}})"
        self._field = re.compile(f"{self.text}|{bare}" if options.quote else self.text)

    def _quoted(self, begin: str, end: str) -> str:
        """Return the pattern of a quoted text.

        A repetition that begins with two quotes fails before it consumes anything, so it may be possessive (see
        `_repeated`). An atomic group would keep 150 bytes for each repetition: gigabytes for a JSON value of 64 MB.
        """
        quote = self.quote
        doubled = f"(?:{quote}{quote}[^{quote}]*+)*+"
        return f"{quote}{begin}[^{quote}]*+{doubled}{end}{quote}"

    def _stop(self) -> str:
        return f"{self.delimiter}|{self.terminator}" if self.options.terminator else self.delimiter

    def _token(self) -> str:
        """Return the pattern of one or more characters of an unquoted text."""
        # Characters with which a delimiter or terminator may begin are matched one by one, after a look ahead.
        special = "".join({re.escape(text[0]) for text in (self.options.delimiter, self.options.terminator) if text})
        # TiCDC puts a backslash before each character of a delimiter, not before the delimiter as a whole.
        escaped = "".join(rf"\\{re.escape(character)}" for character in self.options.delimiter)
        return rf"[^\\\r\n{special}]++|\\[\\rn]|{escaped}|(?!{self._stop()})[^\\\r\n]"

    def _unread(self) -> str:
        """Return the pattern of one or more characters before a row's terminator."""
        first = re.escape(self.options.terminator[:1])
        if not self.options.quote:
            return rf"[^\\{first}]++|\\(?s:.)|(?!{self.terminator}){first}"
        # A quoted text as a whole: a doubled quote inside it is the end of one piece and the beginning of the next.
        skipped = f"[^{self.quote}{first}]++|{self.quote}[^{self.quote}]*+{self.quote}"
        # Here the delimiter must not match by itself: it may begin the terminator.
        if self.options.terminator.startswith(self.options.delimiter):
            return f"{skipped}|(?!{self.terminator}){first}"
        return f"{skipped}|{self.delimiter}|(?!{self.terminator}){first}"

    def end(self, *, final: bool = False) -> str:
        """Return the pattern of a row's end; without a terminator the next row's beginning, or if `final` the end of the text."""
        if self.options.terminator:
            return self.terminator
        # Without a terminator a row ends where the next begins: looked at, but not consumed.
        return rf"(?={self._row_start}|\Z)" if final else f"(?={self._row_start})"

    def row_end(self, text: str, start: int) -> int | None:
        """Return where a row of any form whose fields before `start` were read ends, terminator included; None if it does not end.

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
        """Return the pattern of a text that a user can type, with its content as a group. `follows`: the pattern of what comes next."""
        if self.options.quote and (self.options.terminator or follows == self.delimiter):
            return self._quoted("(", ")")
        quote = self.quote
        if quote:  # the last text of a row without a terminator: the next row's quote seems to double its own
            doubled = _repeated(f"{quote}(?!{follows}){quote}[^{quote}]*+")
            return f"{quote}([^{quote}]*+{doubled}){quote}(?={follows})"
        return f"({self.text})" if self.options.terminator or follows == self.delimiter else f"((?:{self._token()})*?)"

    def plain_text(self, follows: str) -> str:
        """Return the pattern of a text that TiCDC formats itself, with its content as a group."""
        return f"{self.quote}([^{self.quote}]*+){self.quote}" if self.options.quote else self.free_text(follows)

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
        """Return whether a field, as written, is a text and not a bare number or NULL; without a quote any field but NULL may be."""
        quote = self.options.quote
        return field.startswith(quote) if quote else field != self.options.null

    def names(self, fields: str) -> TableName:
        """Return the names in the head's two name fields, of which the table comes first."""
        first = self._field.match(fields)
        assert first is not None
        second = fields[first.end() + len(self.options.delimiter) :]
        return TableName(schema=self.content(second), table=self.content(first[0]))

    def commit_ts(self, text: str) -> int | None:
        """Return the commit-ts at the beginning of a row, or None if that much of it cannot be read."""
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
            unclosed = self.options.quote and not field[0] and text.startswith(self.options.quote, position)
            if unclosed or position == len(text):
                return Split(fields=tuple(fields), end=None)
            fields.append(field[0])
            ends = text.startswith(terminator, position)
            # If both fit here, one of them begins with the other, and the longer one is meant.
            more = text.startswith(delimiter, position) and not (ends and terminator.startswith(delimiter))
            if ends and not more:
                return Split(fields=tuple(fields), end=position + len(terminator))
            if not more or len(fields) > _MOST_FIELDS:
                problem = f"field {len(fields)} ({field[0][:40]!r}) is followed by neither delimiter nor terminator"
                problem = f"it has more than {_MOST_FIELDS} fields" if more else problem
                end = text.find(terminator, position)
                return Split(fields=tuple(fields), end=None if end < 0 else end + len(terminator), problem=problem)
            position += len(delimiter)

    def trouble(self, text: str, *, final: bool) -> str:
        """Return why the row that `text` begins with has no readable first fields; empty if only its end is missing.

        `final`: the file ends after `text`.
        """
        # Without a terminator rows cannot be split into fields, so only the beginning of the row is examined.
        if not self.options.terminator:
            waits = not final and len(text) < _LONGEST_HEAD
            return "" if waits or self.head.match(text) else f"no row begins here; {CHECK_OPTIONS}"
        split = self.split(text)
        if split.problem or split.end is None:
            return f"{split.problem}; {CHECK_OPTIONS}" if split.problem else ""
        # `split.fields` may be shorter: a row that stops early has its first fields checked all the same.
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
            *([("is-update", "true|false", "true or false")] if self.options.output_old_value else []),
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

    Not ``(?:…)*+``: Python 3.11.2, which Debian 12 has, does not backtrack to where a failed repetition began.
    """
    return f"(?>(?:{pattern})*)"


def _overlap(delimiter: str) -> re.Pattern[str] | None:
    steps = [step for step in range(1, len(delimiter)) if delimiter.startswith(delimiter[step:])]
    return re.compile("|".join(re.escape(delimiter[:step] + delimiter) for step in steps)) if steps else None
