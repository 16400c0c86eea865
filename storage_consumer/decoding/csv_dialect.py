"""The form of TiCDC's CSV under given options: patterns to read rows by, and what is wrong with text that is no row."""

from __future__ import annotations

import re
from dataclasses import dataclass

from storage_consumer.config.settings import CsvOptions
from storage_consumer.decoding.values import FLOAT
from storage_consumer.errors import ConfigError
from storage_consumer.model import TableName

CHECK_OPTIONS = (
    "are delimiter, quote, null and include-commit-ts of [sink.csv] and terminator of [sink] the ones given to TiCDC?"
)
_NUMBER_CHARACTERS = frozenset("0123456789+-.eE")
_MAX_DELIMITER_BYTES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """The fields of one row, found without regard to its table."""

    fields: tuple[str, ...]
    """As written, quotes included; those before the problem if there is one."""
    end: int | None
    """Where the row ends, behind its terminator; None when it does not."""
    problem: str = ""
    """What cannot be read; `end` is then the next terminator, in quotes or not."""


class Dialect:
    """One set of options. `options` are expected to have passed `check_options`."""

    def __init__(self, options: CsvOptions) -> None:
        """Prepare the patterns."""
        self.options = options
        self.doubled = options.quote * 2
        quote, delimiter = re.escape(options.quote), re.escape(options.delimiter)
        terminator, first = re.escape(options.terminator), re.escape(options.terminator[0])
        text = self.quoted("", "")
        self.head = f"{quote}([IUD]){quote}{delimiter}({text}{delimiter}{text}){delimiter}([0-9]{{1,20}}+)"
        """A row's first four fields. Groups: op, table and schema as written, commit ts."""
        self.unread = f"(?:[^{quote}{first}]++|{quote}[^{quote}]*+{quote}|(?!{terminator}){first})*+"
        """Everything up to the row's terminator."""
        self._head = re.compile(self.head)
        self._field = re.compile(f"{text}|(?s:(?!{delimiter}|{terminator}|{quote}).)*+")
        self._first_fields = (
            ("op", f"{quote}[IUD]{quote}", "I, U or D in quotes"),
            ("table", text, "a name in quotes"),
            ("schema", text, "a name in quotes"),
            ("commit-ts", "[0-9]{1,20}", "a number"),
        )

    def quoted(self, begin: str, end: str) -> str:
        """The pattern of a quoted text, with `begin` and `end` (a group's brackets, or nothing) around its content."""
        quote = re.escape(self.options.quote)
        return f"{quote}{begin}[^{quote}]*+(?:{quote}{quote}[^{quote}]*+)*+{end}{quote}"

    def content(self, text: str) -> str:
        """What a quoted field says."""
        return text[1:-1].replace(self.doubled, self.options.quote)

    def names(self, fields: str) -> TableName:
        """What the head's two name fields say; the table stands first."""
        first = self._field.match(fields)
        assert first is not None
        second = fields[first.end() + len(self.options.delimiter) :]
        return TableName(schema=self.content(second), table=self.content(first[0]))

    def commit_ts(self, text: str) -> int | None:
        """The commit ts at the beginning of a row, where that much of it can be read."""
        match = self._head.match(text)
        return int(match[3]) if match else None

    def split(self, text: str) -> Split:
        """Split the row that `text` begins with."""
        fields: list[str] = []
        delimiter, terminator = self.options.delimiter, self.options.terminator
        position = 0
        while True:
            field = self._field.match(text, position)
            assert field is not None
            position = field.end()
            unclosed = not field[0] and text.startswith(self.options.quote, position)
            if unclosed or position == len(text):
                return Split(fields=tuple(fields), end=None)
            fields.append(field[0])
            if text.startswith(terminator, position):
                return Split(fields=tuple(fields), end=position + len(terminator))
            if not text.startswith(delimiter, position):
                problem = f"field {len(fields)} ({field[0][:40]!r}) is followed by neither delimiter nor terminator"
                end = text.find(terminator, position)
                return Split(fields=tuple(fields), end=None if end < 0 else end + len(terminator), problem=problem)
            position += len(delimiter)

    def trouble(self, text: str) -> str:
        """Why the row that `text` begins with has no readable first four fields; empty when only its end is missing."""
        split = self.split(text)
        if split.problem or split.end is None:
            return split.problem
        if split.fields[0] == "ticdc-meta$operation":
            return "the file has a header line: set output-field-header = false under [sink.csv] of the changefeed"
        for (name, form, meaning), found in zip(self._first_fields, split.fields, strict=False):
            if not re.fullmatch(form, found):
                return f"the {name} field is {found[:40]!r}, not {meaning}"
        return f"it has {len(split.fields)} fields, and a row begins with op, table, schema and commit-ts"


def check_options(options: CsvOptions) -> None:
    """Raise `ConfigError` for options under which rows cannot be read for certain, naming TiCDC's option."""
    if not options.include_commit_ts:
        raise ConfigError("CSV without commit ts cannot be put in order: set include-commit-ts = true under [sink.csv]")
    quote, delimiter, terminator = options.quote, options.delimiter, options.terminator
    if len(quote) != 1 or not quote.isascii() or quote in "\r\n" or quote in _NUMBER_CHARACTERS:
        raise ConfigError(f"[sink.csv] quote = {quote!r} is not supported: one character such as '\"' is needed")
    if not 1 <= len(delimiter) <= _MAX_DELIMITER_BYTES or not delimiter.isascii() or {"\r", "\n"} & set(delimiter):
        raise ConfigError(
            f"[sink.csv] delimiter = {delimiter!r} is not supported: 1 to 3 ASCII characters, no line ends"
        )
    if quote in delimiter or _NUMBER_CHARACTERS & set(delimiter):
        raise ConfigError(f"[sink.csv] delimiter = {delimiter!r} cannot be told from a quote or a number")
    if not terminator or not terminator.isascii():
        raise ConfigError(f"[sink] terminator = {terminator!r} is not supported: rows would run together")
    if quote in terminator or delimiter in terminator or _NUMBER_CHARACTERS & set(terminator):
        raise ConfigError(f"[sink] terminator = {terminator!r} cannot be told from a delimiter, a quote or a number")
    _check_null(options)


def _check_null(options: CsvOptions) -> None:
    if re.fullmatch(FLOAT, options.null):
        raise ConfigError(f"[sink.csv] null = {options.null!r} cannot be told from a number; take one such as '\\N'")
    if any(special in options.null for special in (options.quote, options.delimiter, options.terminator)):
        raise ConfigError(f"[sink.csv] null = {options.null!r} contains the quote, delimiter or terminator")
