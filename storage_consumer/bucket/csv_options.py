"""Infer how CSV was written: try all sets of options that the files allow, and strike out misfits.

Rows are found without knowing the options: by the table's name and schema near the beginning of
each row.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import product
from typing import NamedTuple

from storage_consumer.bucket.survey import Sample
from storage_consumer.config.settings import CsvOptions, Upstream
from storage_consumer.config.table_filter import unselected
from storage_consumer.decode import decoder_for
from storage_consumer.decode.decoder import FileRead, is_hidden, row_layout
from storage_consumer.decode.values import (
    BINARY_TYPES,
    INTEGER_TYPES,
    BinaryEncoding,
    CsvForm,
    csv_form,
)
from storage_consumer.errors import ConfigError, NotReplicable, UndecodableRow
from storage_consumer.model import TSO_PHYSICAL_SHIFT, CommitRange, TableColumn, folded_name

_HEADER, _HEADER_TABLE = b"ticdc-meta$operation", b"ticdc-meta$table"
_LONGEST_DELIMITER = 3
_LONGEST_TERMINATOR = 16
_LINE_END = re.compile(rb"[\r\n]")
_EARLIEST_TS = 1_420_070_400_000 << TSO_PHYSICAL_SHIFT
"""2015-01-01: nothing committed before TiDB existed."""
_NUMBER = re.compile(rb"-?[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
_DIGITS = re.compile(rb"[0-9]{1,20}")
_TEMPORAL = re.compile(rb"-?[0-9:. -]+")
_DATES = frozenset({"DATE", "DATETIME", "TIMESTAMP", "TIME"})
_FEW = 4
"""One sample in this many may be damaged."""
_WITNESSES = 2
"""Fields that must show a NULL marker that is not TiCDC's default: one may be a broken row."""
_EVERYTHING = (1 << 64) - 1


class _Frame(NamedTuple):
    """What the first fields of a row show for certain."""

    quote: bytes
    delimiter: bytes
    header: bool


class _FieldText(NamedTuple):
    """One field of a row, as written."""

    text: bytes
    quoted: bool


_Row = tuple[_FieldText, ...]
"""The fields after a row's schema name."""


class _SampleRows(NamedTuple):
    """The rows of a sample under a frame."""

    rows: tuple[bytes, ...]
    """Each is the text after its schema name, up to the next row or the end."""
    whole: bytes
    """The sample up to the end of its last whole row, header included."""


class _Hypothesis(NamedTuple):
    """Options that rows may have been written with; the last three: fields before the values."""

    frame: _Frame
    terminator: bytes
    commit_ts: bool
    old_value: bool
    handle_key: bool

    @property
    def skip(self) -> int:
        """Number of fields between schema name and values."""
        return self.commit_ts + self.old_value + self.handle_key


def _frames(sample: Sample) -> Iterator[_Frame]:
    """Yield the frames in which the sample begins with a row, or with a header line and a row."""
    text = sample.content
    header = text.startswith(_HEADER)
    if header:
        end = text.find(_HEADER_TABLE)
        delimiter = text[len(_HEADER) : end]
        if end < 0 or not 1 <= len(delimiter) <= _LONGEST_DELIMITER:
            return
        # The header is not quoted, so any byte may be the quote; only the rows can show which.
        quotes = [b"", *(bytes([byte]) for byte in sorted(set(text) - set(b"\r\n")))]
        candidates = [(quote, delimiter) for quote in quotes]
    else:
        # Without a header the first byte is the quote, or the letter of the operation.
        candidates = []
        for quote, size in ((b"", 1), (text[:1], 3)):
            # A quote is the same byte before and after the letter.
            is_quote = text[:1] == text[2:3] and text[:1] not in {b"", b"\r", b"\n"}
            if (size == 1 or is_quote) and text[size // 2 : size // 2 + 1] in {b"I", b"U", b"D"}:
                candidates += [
                    (quote, text[size : size + longest])
                    for longest in range(1, _LONGEST_DELIMITER + 1)
                ]
    for quote, delimiter in candidates:
        frame = _Frame(quote, delimiter, header)
        if quote and quote in delimiter:
            continue
        # The table's names are known: delimiter and quote are right if a row begins with both.
        begin = _row_start(frame, sample)
        if begin.search(text) if header else begin.match(text):
            yield frame


@lru_cache(maxsize=256)
def _row_start(frame: _Frame, sample: Sample) -> re.Pattern[bytes]:
    name = sample.definition.name
    quote, delimiter = re.escape(frame.quote), re.escape(frame.delimiter)
    pattern = quote + b"[IUD]" + quote + delimiter
    for text in (name.table, name.schema):
        raw = text.encode()
        if frame.quote:
            raw = raw.replace(frame.quote, frame.quote * 2)
        else:
            escaped = b"".join(b"\\" + bytes([byte]) for byte in frame.delimiter)
            raw = raw.replace(b"\\", b"\\\\").replace(b"\r", b"\\r").replace(b"\n", b"\\n")
            raw = raw.replace(frame.delimiter, escaped)
        # TiDB ignores case in names, and classic TiCDC lowercases a database after a rename.
        pattern += quote + b"(?i:" + re.escape(raw) + b")" + quote + delimiter
    return re.compile(pattern, re.DOTALL)


def _terminators(frame: _Frame, rows: Iterable[bytes]) -> list[bytes]:
    """Return the endings that all rows share; with quoted texts, none that consists of letters."""
    shared, *tails = dict.fromkeys(row[-_LONGEST_TERMINATOR:] for row in rows)
    for tail in tails:
        while not tail.endswith(shared):
            shared = shared[1:]
    # Every end of the common end is possible, the empty one too.
    ends = [shared[at:] for at in range(len(shared) + 1)]
    if frame.quote:
        # With a quote, each row may end in a bare number: letters and digits are then part of it.
        ends = [
            end
            for end in ends
            if frame.quote not in end and not re.search(rb"[0-9A-Za-z\x80-\xff]", end)
        ]
    return [end for end in ends if frame.delimiter not in end]


@lru_cache(maxsize=64)
def _field(frame: _Frame) -> re.Pattern[bytes]:
    quote, delimiter = re.escape(frame.quote), re.escape(frame.delimiter)
    if frame.quote:
        # Atomic groups keep the match linear: a damaged row would backtrack through all splits.
        quoted = quote + b"(?>(?:[^" + quote + b"]|" + quote + quote + b")*)" + quote
        bare = b"(?>(?:(?!" + delimiter + b")[^" + quote + b"])*)"
        return re.compile(b"(" + quoted + b"|" + bare + b")(" + delimiter + b"|\\Z)", re.DOTALL)
    return re.compile(
        b"((?>(?:\\\\.|(?!" + delimiter + b").)*))(" + delimiter + b"|\\Z)", re.DOTALL
    )


def _fields(row: bytes, frame: _Frame) -> _Row | None:
    """Return the fields of a row after its schema name, without its terminator.

    None if it cannot be split so, or has a line end that is neither quoted nor escaped: a row's end
    that the frame did not see.
    """
    found: list[_FieldText] = []
    position, pattern = 0, _field(frame)
    while match := pattern.match(row, position):
        quoted = bool(frame.quote) and match[1].startswith(frame.quote)
        if not quoted and _LINE_END.search(match[1]):
            return None
        found.append(_FieldText(match[1], quoted))
        position = match.end()
        # A delimiter at the very end is followed by one more field, an empty one.
        if position == len(row) and not match[2]:
            return tuple(found)
    return None


def _columns(sample: Sample) -> list[TableColumn]:
    """Return the columns that rows have, neither hidden nor virtual.

    If the virtual ones are unknown: all that may be present.
    """
    gone = sample.virtual or frozenset()
    return [
        c
        for c in sample.definition.columns
        if not is_hidden(c.name) and folded_name(c.name) not in gone
    ]


def _is_null(token: _FieldText, column: TableColumn, *, quoting: bool) -> bool:
    """Return whether a field of this column can only be NULL."""
    # With a quote only numbers and NULL are bare, so what is bare and no number is NULL.
    if quoting:
        return not token.quoted and (
            csv_form(column) is not CsvForm.BARE or not _NUMBER.fullmatch(token.text)
        )
    # Without a quote only types with a form of their own show it; a text may be anything.
    if csv_form(column) is CsvForm.BARE or column.type == "DECIMAL":
        return not _NUMBER.fullmatch(token.text)
    return column.type in _DATES and not _TEMPORAL.fullmatch(token.text)


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvVerdict:
    """What the samples leave of all the options that they might have been written with."""

    survivors: tuple[CsvOptions, ...] = ()
    """Sets of options that read every sample, except those set aside."""
    undecided: frozenset[str] = frozenset()
    """Fields of `CsvOptions` that the samples leave open although their values depend on them."""
    unseen: frozenset[str] = frozenset()
    """Fields of `CsvOptions` that no row shows, and that therefore have TiCDC's default."""
    evidence: Mapping[str, str] = field(default_factory=dict)
    """Field of `CsvOptions` → the file and row that proves it."""
    set_aside: tuple[str, ...] = ()
    """Paths of samples that no options can read."""
    reason: str = ""
    """Why nothing survived."""
    commit_ts: tuple[int, ...] = ()
    """Lowest and highest commit-ts of the sampled rows (both inclusive), if they carry one."""
    unnamed: str = ""
    """Why rows without known columns halt their table under these options; empty: no such rows."""


def infer_csv(
    samples: list[Sample], upstream: Upstream, given: frozenset[str], newest: int
) -> CsvVerdict:
    """Return the options of CSV files.

    `given`: fields of `CsvOptions` whose values in ``upstream.csv`` were given. `newest`: the
    highest commit-ts that a row may have.
    """
    # Any zone will do: only the layout of a table with TIMESTAMP asks for one.
    return _Trial(replace(upstream, time_zone=upstream.time_zone or "UTC"), given, newest).verdict(
        samples
    )


class _Trial:
    """One inference."""

    def __init__(self, upstream: Upstream, given: frozenset[str], newest: int) -> None:
        self.upstream = upstream
        self.given = given
        self.newest = newest
        self.unnamed = ""
        # Many hypotheses share a frame, and finding and splitting rows is what costs time.
        self._rows: dict[tuple[str, _Frame], _SampleRows | None] = {}
        self._split: dict[tuple[str, _Frame, bytes], list[_Row] | None] = {}

    def rows(self, sample: Sample, frame: _Frame) -> _SampleRows | None:
        """Return the sample's whole rows under a frame; None if not one is whole."""
        key = (sample.path, frame)
        if key not in self._rows:
            matches = list(_row_start(frame, sample).finditer(sample.content))
            # A row ends where the next begins, so an incomplete sample's last row is dropped.
            borders = [match.start() for match in matches] + [len(sample.content)] * sample.complete
            found = None
            if len(borders) > 1:
                ends = zip(matches, borders[1:], strict=False)
                rows = tuple(sample.content[match.end() : end] for match, end in ends)
                found = _SampleRows(rows, sample.content[: borders[-1]])
            self._rows[key] = found
        return self._rows[key]

    def tokens(self, hypothesis: _Hypothesis, sample: Sample) -> list[_Row] | None:
        """Split the sample's rows into fields; return None if the hypothesis does not fit them."""
        frame, end = hypothesis.frame, hypothesis.terminator
        key = (sample.path, frame, end)
        if key not in self._split:
            split: list[_Row] | None = None
            if found := self.rows(sample, frame):
                rows = [
                    _fields(row.removesuffix(end), frame) if row.endswith(end) else None
                    for row in found.rows
                ]
                split = None if None in rows else [row for row in rows if row is not None]
            self._split[key] = split
        return self._split[key]

    def hypotheses(self, samples: list[Sample]) -> Iterator[_Hypothesis]:
        """Yield everything that the beginnings and ends of rows, and the given options, allow."""
        framed: dict[_Frame, list[bytes]] = {}
        for sample in samples:
            for frame in _frames(sample):
                if found := self.rows(sample, frame):
                    framed.setdefault(frame, []).extend(found.rows)
        # These two show in values, which are judged later.
        judged = self.given - {"null", "binary_encoding_method"}
        for frame, rows in framed.items():
            # All rows end alike, so their common end holds the terminator, and perhaps the end of a
            # value before it.
            known = self.upstream.csv.terminator.encode()
            ends = [known] if "terminator" in self.given else _terminators(frame, rows)
            for end, prefix in product(ends, product((True, False), repeat=3)):
                hypothesis = _Hypothesis(frame, end, *prefix)
                options = self.options(hypothesis, None)
                if all(
                    getattr(options, name) == getattr(self.upstream.csv, name) for name in judged
                ):
                    yield hypothesis

    def options(self, hypothesis: _Hypothesis, null: bytes | None) -> CsvOptions:
        """Return the options of a hypothesis; `null` None: TiCDC's default."""
        frame = hypothesis.frame
        marker = CsvOptions().null if null is None else null.decode("utf-8", "replace")
        return replace(
            self.upstream.csv,
            delimiter=frame.delimiter.decode("utf-8", "replace"),
            quote=frame.quote.decode("utf-8", "replace"),
            null=self.upstream.csv.null if "null" in self.given else marker,
            terminator=hypothesis.terminator.decode("utf-8", "replace"),
            include_commit_ts=hypothesis.commit_ts,
            output_old_value=hypothesis.old_value,
            output_handle_key=hypothesis.handle_key,
            output_field_header=frame.header,
        )

    def verdict(self, samples: list[Sample]) -> CsvVerdict:
        """Strike out hypotheses and return the rest; a sample inside its first row shows none."""
        alive = hypotheses = list(self.hypotheses(samples))
        aside = list[Sample]()
        samples = [
            sample
            for sample in samples
            if sample.complete or any(self.rows(sample, f) for f in _frames(sample))
        ]
        for sample in samples:
            # A sample that fits no survivor is set aside, not decisive: it may be damaged.
            if fitting := [each for each in alive if self.fits(each, sample)]:
                alive = fitting
            else:
                aside.append(sample)
        if not alive or len(aside) == len(samples):
            return CsvVerdict(reason="no set of options fits the rows")
        # What was set aside fits some hypothesis, so it is not damaged: the options changed.
        contradicting = next((s for s in aside if any(self.fits(h, s) for h in hypotheses)), None)
        if contradicting is not None:
            return CsvVerdict(
                reason=f"{contradicting.path} was written with other options than other files"
            )
        used = [sample for sample in samples if sample not in aside]
        return self._judged(used, alive, {sample.path for sample in aside})

    def _judged(self, used: list[Sample], alive: list[_Hypothesis], aside: set[str]) -> CsvVerdict:
        undecided, unseen = set[str](), set[str]()
        evidence: dict[str, str] = {}
        survivors: list[tuple[_Hypothesis, CsvOptions]] = []
        for hypothesis in alive:
            nulls = self.nulls(used, hypothesis)
            # Two different texts cannot both mean NULL, so the hypothesis splits the rows wrongly.
            if len(nulls) > 1:
                continue
            # With a quote the decoder refuses a NULL whose marker is not the assumed one, unless it
            # looks like a number. Without a quote it would be read as a text.
            if not nulls and "null" not in self.given:
                (unseen if hypothesis.frame.quote else undecided).add("null")
            for text, places in nulls.items():
                evidence["null"] = places[0]
                # TiCDC's default needs no second witness: a broken row does not hold it by chance.
                if len(places) < _WITNESSES and text != CsvOptions().null.encode():
                    undecided.add("null")
            options = self.options(hypothesis, next(iter(nulls), None))
            encodings, damaged = self.encodings(used, hypothesis, options)
            # Without a binary value both encodings read everything, so leave the encoding open.
            if len(encodings) > 1 and not self.has_binary(used, hypothesis, options):
                encodings = [""]
            survivors += [
                (hypothesis, replace(options, binary_encoding_method=encoding))
                for encoding in encodings
            ]
            # Without an encoding the hypothesis is out, and blames no sample.
            aside |= damaged if encodings else set()
        if not survivors:
            return CsvVerdict(reason="no set of options fits the values")
        for hypothesis, _ in survivors:
            # Its rows are read without a commit-ts though each begins with a possible one.
            rows = (row for sample in used for row in self.tokens(hypothesis, sample) or ())
            if not hypothesis.commit_ts and all(row and self._is_like_ts(row[0]) for row in rows):
                undecided.add("include_commit_ts")
        left = tuple(options for _, options in survivors)
        undecided |= {
            name for name in CsvOptions.__slots__ if len({getattr(each, name) for each in left}) > 1
        }
        first = survivors[0][0]
        seen = (
            [int(row[0].text) for s in used for row in self.tokens(first, s) or ()]
            if first.commit_ts
            else []
        )
        return CsvVerdict(
            survivors=left,
            undecided=frozenset(undecided - self.given),
            unseen=frozenset(unseen),
            evidence={**dict.fromkeys(CsvOptions.__slots__, f"{used[0].path} row 1"), **evidence},
            set_aside=tuple(sorted(aside)),
            commit_ts=(min(seen), max(seen)) if seen else (),
            unnamed=self.unnamed,
        )

    def fits(self, hypothesis: _Hypothesis, sample: Sample) -> bool:
        """Return whether the rows have the hypothesis' form; values are judged later, together."""
        rows = self.tokens(hypothesis, sample)
        if rows is None:
            return False
        size, skip = len(_columns(sample)), hypothesis.skip
        # Rows lack virtual columns, so they are as long as the layout only if these are known, and
        # no selector leaves out others.
        name, names = sample.definition.name, [column.name for column in sample.definition.columns]
        selectors, table = self.upstream.column_selectors, (name.schema, name.table)
        is_selected = bool(unselected(selectors, table, names, case=self.upstream.case_sensitive))
        exact = sample.virtual is not None and not is_selected
        counts = {len(row) - skip for row in rows}
        # The sample may hold rows of an older structure, with another number of columns: they
        # committed no later than its DDL.
        has_ts = hypothesis.commit_ts and all(
            row and _DIGITS.fullmatch(row[0].text) for row in rows
        )
        if has_ts and sample.definition.is_ddl:
            counts = {
                len(row) - skip for row in rows if int(row[0].text) > sample.definition.version
            }
        # With uncertain virtual columns a row may be shorter than the schema file, never longer.
        if any(count > size or count < 0 or (exact and count != size) for count in counts):
            return False
        if not all(len(row) >= skip and self._begins(row, hypothesis) for row in rows):
            return False
        # The supposed handle keys may be commit-ts: each could be one, and is not the table's key.
        if not hypothesis.handle_key or hypothesis.commit_ts:
            return True
        columns = _columns(sample)
        keys = [place for place, column in enumerate(columns) if column.is_pk]
        # The handle key of any other table cannot be compared with one of its columns.
        if sample.virtual is None or len(keys) != 1 or columns[keys[0]].type not in INTEGER_TYPES:
            return True
        at, key = int(hypothesis.old_value), keys[0] + skip
        return not all(self._is_like_ts(row[at]) for row in rows) or all(
            row[at].text == row[key].text for row in rows
        )

    def _begins(self, row: _Row, hypothesis: _Hypothesis) -> bool:
        """Return whether the fields before the values have the form of the hypothesis."""
        tokens = iter(row)
        if hypothesis.commit_ts and not self._is_like_ts(next(tokens)):
            return False
        if hypothesis.old_value and next(tokens) not in (
            _FieldText(b"true", False),  # noqa: FBT003 - a record
            _FieldText(b"false", False),  # noqa: FBT003 - a record
        ):
            return False
        # TiCDC writes a handle key as a text, whatever the type of the key.
        return not (hypothesis.handle_key and hypothesis.frame.quote) or next(tokens).quoted

    def _is_like_ts(self, token: _FieldText) -> bool:
        """Return whether a field can be a commit-ts: a bare number from 2015 to the newest."""
        # A column of large numbers may look like one: more is asked for before that is decided.
        digits = not token.quoted and _DIGITS.fullmatch(token.text)
        return bool(digits) and _EARLIEST_TS <= int(token.text) <= self.newest

    def nulls(self, used: list[Sample], hypothesis: _Hypothesis) -> dict[bytes, list[str]]:
        """Map NULL markers to the places where they are unquoted and no value of their column."""
        seen: dict[bytes, list[str]] = {}
        quoting = bool(hypothesis.frame.quote)
        for sample in used:
            columns, version = _columns(sample), sample.definition.version
            may_be_older = hypothesis.commit_ts and sample.definition.is_ddl
            for number, row in enumerate(self.tokens(hypothesis, sample) or (), start=1):
                values = row[hypothesis.skip :]
                # Fields can be assigned to columns only where all of them are there.
                if len(values) != len(columns) or (may_be_older and int(row[0].text) <= version):
                    continue
                pairs = zip(values, columns, strict=True)
                for text in [
                    token.text
                    for token, column in pairs
                    if _is_null(token, column, quoting=quoting)
                ]:
                    seen.setdefault(text, []).append(f"{sample.path} row {number}")
        # Other texts that fit no value are then left to the decoder, which refuses them.
        if "null" in self.given:
            return {
                text: places
                for text, places in seen.items()
                if text == self.upstream.csv.null.encode()
            }
        return seen

    def encodings(
        self, used: list[Sample], hypothesis: _Hypothesis, options: CsvOptions
    ) -> tuple[list[BinaryEncoding], set[str]]:
        """Return the binary encodings that decode the samples, and the samples without any.

        A few of the latter count as damaged; with more, the options are wrong.
        """
        choices: list[BinaryEncoding] = ["base64", "hex"]
        if "binary_encoding_method" in self.given:
            choices = [options.binary_encoding_method]
        read = {
            choice: {
                s.path
                for s in used
                if self._reads(s, hypothesis, replace(options, binary_encoding_method=choice))
            }
            for choice in choices
        }
        readable = set[str]().union(*read.values())
        damaged = {sample.path for sample in used} - readable
        if len(damaged) > len(used) // _FEW:
            return [], damaged
        # An encoding that reads fewer samples than another one reads some of them wrongly.
        return [choice for choice in choices if read[choice] == readable], damaged

    def _reads(self, sample: Sample, hypothesis: _Hypothesis, options: CsvOptions) -> bool:
        """Return whether the decoder reads a sample's whole rows, or its columns are uncertain."""
        found, rows = self.rows(sample, hypothesis.frame), self.tokens(hypothesis, sample)
        if found is None or rows is None:
            return False
        # Some column is virtual, and nobody knows which: values cannot be judged by type.
        size = hypothesis.skip + len(_columns(sample))
        if sample.virtual is None and any(len(row) < size for row in rows):
            return True
        try:
            layout = row_layout(sample.definition, sample.virtual or frozenset(), self.upstream)
        # A table that cannot be replicated says nothing about the options.
        except NotReplicable:
            return True
        # Rows at or below the version may have an older structure: the decoder only counts them.
        low = sample.definition.version if hypothesis.commit_ts and sample.definition.is_ddl else -1
        try:
            decoder = decoder_for(replace(self.upstream, protocol="csv", csv=options))
            commit_range = CommitRange(low=low, high=_EVERYTHING)
            file = FileRead(
                blocks=[found.whole], source=sample.path, layout=layout, commit_range=commit_range
            )
            for _ in decoder.rows(file):
                pass
        except (UndecodableRow, ConfigError):
            return False
        except NotReplicable as fault:
            self.unnamed = self.unnamed or str(fault)
        return True

    def has_binary(self, used: list[Sample], hypothesis: _Hypothesis, options: CsvOptions) -> bool:
        """Return whether a sample has a binary value that is neither NULL nor empty."""
        nothing = {(options.quote * 2).encode(), options.null.encode(), b""}
        for sample in used:
            columns = _columns(sample)
            kinds = [place for place, column in enumerate(columns) if column.type in BINARY_TYPES]
            for row in self.tokens(hypothesis, sample) or ():
                values = row[hypothesis.skip :]
                # Which field is the binary one is not known: take it for used.
                if len(values) != len(columns) and kinds:
                    return True
                if any(values[place].text not in nothing for place in kinds):
                    return True
        return False
