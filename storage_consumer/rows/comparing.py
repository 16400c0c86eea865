"""Compare one table: its structure, its chunks by checksum and by halves, the rest by row.

Why no difference is hidden: the ranges of both sides cover all keys, a checksum is over injective
forms, and rows are compared as a whole. Why none is invented: a row that only one side seems to
have is looked up on the other side by its key, so it does not matter whether both sort keys alike.

Of the structures a named equivalence (``docs/operations/verify.md`` has them) is no difference:
what a statement of TiDB loses on its way to MySQL or MariaDB on purpose (`target.ddl.catalogue`),
and what servers only show differently.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from decimal import Decimal, InvalidOperation
from itertools import islice
from typing import Literal, TypeVar

from storage_consumer.model import folded_name
from storage_consumer.rows.compared_layout import (
    ColumnShape,
    IndexShape,
    Key,
    KeyRange,
    Row,
    Side,
    TableLayout,
    TableShape,
    shown_value,
)
from storage_consumer.rows.comparison import KEPT_ROWS, RowDifference

_WIDTH = re.compile(r"^((?:tiny|small|medium|big)?int|year)\(\d+\)")
_NUMERIC = frozenset(
    ("tinyint", "smallint", "mediumint", "int", "bigint", "decimal", "float", "double", "year")
)
_MOMENTS = frozenset(("date", "datetime", "timestamp", "time"))
_DOCUMENTS = frozenset(
    (
        "tinytext",
        "text",
        "mediumtext",
        "longtext",
        "tinyblob",
        "blob",
        "mediumblob",
        "longblob",
        "json",
        "vector",
    )
)
_FILLED = {"char": " ", "binary": "\0"}
"""Type of a fixed length → what values are filled up with."""
_SYNONYMS = {
    "curdate": "current_date",
    "curtime": "current_time",
    "now": "current_timestamp",
    "ucase": "upper",
    "lcase": "lower",
}
_TOKEN = re.compile(r"(?:_\w+\s*)?('(?:[^'\\]|''|\\.)*')|([\w.$]+)|([^\s`])", re.DOTALL)
_LITERAL = re.compile(r"(?:_\w+\s*)?'((?:[^'\\]|''|\\.)*)'", re.DOTALL)
_ESCAPED = re.compile(r"\\(.)|''", re.DOTALL)
_ESCAPES = {"0": "\0", "n": "\n", "r": "\r", "t": "\t", "b": "\b", "Z": "\x1a"}
_RANDOM_BYTES = "uuid_to_bin ( uuid )"
_AS_IN_MARIADB = "unhex ( replace ( uuid , '- , ' ) )"
"""What the program writes there in its place, in the form of `_expression`."""
_NO_TEXT = re.compile("[\udc80-\udcff]")
"""Bytes that are no text, as Python holds them in one."""
_BEYOND = re.compile(r"[\U00010000-\U0010ffff]")
_NEWER = {
    "utf8mb4_0900_ai_ci": "utf8mb4_uca1400_nopad_ai_ci",
    "utf8mb4_0900_bin": "utf8mb4_nopad_bin",
}
_PLAIN_METHODS = frozenset(("BTREE", "HASH", "RTREE", ""))


@dataclass(slots=True)
class StructureFound:
    """What a comparison of two structures found."""

    differences: list[str] = field(default_factory=list)
    used: set[str] = field(default_factory=set)
    """Equivalences without which there were more differences."""

    def judge(self, where: str, source: object, target: object, equivalence: str = "") -> None:
        """Note a property that differs as shown; `equivalence`: the name of what covers that."""
        if source == target:
            return
        if equivalence:
            self.used.add(equivalence)
        else:
            self.differences.append(
                f"{where}: {_shown(target)} in the target, {_shown(source)} at the source"
            )


def _shown(value: object) -> str:
    match value:
        case None:
            return "none"
        case bool():
            return "yes" if value else "no"
    return str(value) or "none"


def compared(source: TableShape, target: TableShape) -> StructureFound:
    """Return what differs in the structures."""
    found = StructureFound()
    there = {folded_name(column.name): column for column in target.columns}
    names = [column.name for column in source.columns if folded_name(column.name) in there]
    ordered = [
        column.name
        for column in target.columns
        if folded_name(column.name) in {*map(folded_name, names)}
    ]
    if list(map(folded_name, names)) != list(map(folded_name, ordered)):
        found.judge("order of the columns", ", ".join(names), ", ".join(ordered))
    for column in source.columns:
        other = there.pop(folded_name(column.name), None)
        if other is None:
            found.differences.append(f"column {column.name}: the target lacks it")
        # In a view a column is what the server makes of it: its type, its length, its collation,
        # whether it may be NULL.
        elif not (source.is_view and target.is_view):
            led = {folded_name(index.columns[0]) for index in target.indexes}
            is_led = folded_name(column.name) in led
            _Column(found, column, other, source.kind, target.kind, is_led).compare()
    found.differences += [
        f"column {column.name}: the source does not have it" for column in there.values()
    ]
    found.judge(
        "collation of the table",
        source.collation,
        target.collation,
        _collation(source.collation, target.collation),
    )
    _Indexes(found, source, target).compare()
    return found


def _collation(source: str, target: str) -> str:
    if _NEWER.get(source) == target:
        return "newer collation"
    return (
        "name of the character set"
        if source.replace("utf8mb3_", "utf8_") == target.replace("utf8mb3_", "utf8_")
        else ""
    )


@dataclass(frozen=True, slots=True)
class _Column:
    """One column on both sides."""

    found: StructureFound
    source: ColumnShape
    target: ColumnShape
    of_source: str
    of_target: str
    is_led: bool
    """Whether an index of the target begins with it."""

    def compare(self) -> None:
        """Note each property that differs."""
        source, target = self.source, self.target
        is_relaxed = (
            self.of_target == "mariadb"
            and source.is_generated
            and target.is_generated
            and target.nullable
        )
        is_uncounted = _counts(source) and not self.is_led and self.of_target != "tidb"
        properties: list[tuple[str, object, object, str]] = [
            ("type", source.column_type, target.column_type, self._type()),
            ("NULL", source.nullable, target.nullable, "generated NOT NULL" if is_relaxed else ""),
            ("generated", _generated(source), _generated(target), ""),
            (
                "counts by itself",
                _counts(source),
                _counts(target),
                "counter without index" if is_uncounted else "",
            ),
            (
                "on update",
                "on update" in source.extra.lower(),
                "on update" in target.extra.lower(),
                "",
            ),
        ]
        # Where the target keeps the values in a column of text, that has a collation of its own.
        if source.data_type not in ("json", "vector") or target.data_type == source.data_type:
            collations = source.collation, target.collation
            properties.append(("collation", *collations, _collation(*collations)))
        for name, here, there, equivalence in properties:
            self.found.judge(f"column {source.name}: {name}", here, there, equivalence)
        # Servers may show one default in two ways, and two defaults in one.
        default, other = _default_of(source, self.of_source), _default_of(target, self.of_target)
        covers = (
            "timestamp default"
            if source.data_type == "timestamp" and source.constant
            else "default expression"
        )
        loses_bytes = False
        if default and other and (self.of_source == "tidb") != (self.of_target == "tidb"):
            # The bytes of both may be the same, of which TiDB shows one as a text.
            exact, shown = (other, default) if self.of_source == "tidb" else (default, other)
            loses_bytes = _NO_TEXT.sub("\ufffd", exact) == shown
        if default != other and not loses_bytes:
            covers = self._default(default)
        if covers:
            self.found.used |= (
                {covers} if default != other or source.default != target.default else set()
            )
        else:
            told = f"{_shown_default(target)} in the target, {_shown_default(source)} at the source"
            self.found.differences.append(f"column {source.name}: default: {told}")

    def _type(self) -> str:
        source, target = self.source.data_type, self.target.data_type
        shown = self.source.column_type, self.target.column_type
        # A boolean is a TINYINT(1). Of another width it is none, where a server shows that.
        are_booleans = {text[8:10] == "1)" for text in shown if text.startswith("tinyint(")}
        if are_booleans != {True, False} and len(set(map(_without_display, shown))) == 1:
            return "display width"
        if source == "json" and target == "longtext" and self.of_target == "mariadb":
            return "json"
        if (
            source == "vector"
            and target == "longtext"
            and self.of_source == "tidb" != self.of_target
        ):
            return "vector type"
        if source != target or source not in ("enum", "set"):
            return ""
        # Servers write members of ENUM and SET with other escapes; TiDB shows them as they are.
        here, there = (
            each.column_type if kind == "tidb" else each.column_type.replace("\\\\", "\\")
            for each, kind in ((self.source, self.of_source), (self.target, self.of_target))
        )
        if here == there:
            return "default expression"
        if (self.of_source == "tidb") != (self.of_target == "tidb"):
            exact, written = (here, there) if self.of_source == "tidb" else (there, here)
            return "member characters" if _BEYOND.sub("?", exact) == written else ""
        return ""

    def _default(self, source: str | None) -> str:
        """Return the equivalence under which the target may lack the source's default."""
        if self.target.default is not None or source is None:
            return ""
        if source.startswith("=nextval (") and self.of_target != "tidb":
            return "sequence default"
        is_forgotten = (
            source == "'" and self.source.data_type in _DOCUMENTS and self.of_source != "mysql"
        )
        return "text default" if is_forgotten and self.of_target == "mysql" else ""


def _without_display(column_type: str) -> str:
    """Return a type without what matters only for display; ZEROFILL means UNSIGNED."""
    plain, zerofill, _ = _WIDTH.sub(r"\1", column_type).partition(" zerofill")
    return f"{plain.removesuffix(' unsigned')} unsigned" if zerofill else plain


def _generated(column: ColumnShape) -> str:
    return (
        ""
        if not column.is_generated
        else "stored"
        if "stored" in column.extra.lower()
        else "virtual"
    )


def _counts(column: ColumnShape) -> bool:
    return "auto_increment" in column.extra.lower()


def _shown_default(column: ColumnShape) -> str:
    text = column.default if column.constant is None else shown_value(column.constant)
    return "''" if text == "" else _shown(text)


def _default_of(column: ColumnShape, kind: str) -> str | None:
    """Return a default in one form for all servers.

    A constant follows a quotation mark, an expression an equals sign.
    """
    text = column.default
    if text is None:
        return None
    if column.constant is not None:
        text = column.constant.decode("utf-8", "surrogateescape")
    elif _is_expression(column, kind):
        # MySQL shows it as it would stand in a literal.
        text = _expression(
            re.sub(r"\\(.)", r"\1", text, flags=re.DOTALL) if kind == "mysql" else text
        )
        if text.startswith("="):
            return text
        text = text[1:]
    elif quoted := _LITERAL.fullmatch(text) if kind == "mariadb" else None:
        text = _unescaped(quoted[1])
    if column.data_type in _NUMERIC or column.data_type == "bit":
        return f"'{_number(text)}"
    if column.data_type in _MOMENTS:
        # Fractions, and a time of midnight, may be left out.
        return "'" + re.sub(r" 00:00:00$", "", re.sub(r"\.0*$", "", text))
    # What fills the column up is not part of the value.
    return "'" + text.rstrip(_FILLED.get(column.data_type, ""))


def _is_expression(column: ColumnShape, kind: str) -> bool:
    """Return whether a default is computed, or is a constant that is shown as one which is."""
    text = column.default or ""
    if column.data_type in _MOMENTS:
        return text.lstrip("'-")[:1].isalpha() or text.startswith("(")
    if kind == "mariadb":
        return not (
            _LITERAL.fullmatch(text)
            or re.fullmatch(r"-?[\d.]+(e[-+]?\d+)?|b'[01]*'|x'[0-9a-f]*'", text, re.IGNORECASE)
        )
    return "DEFAULT_GENERATED" in column.extra


def _expression(text: str) -> str:
    """Return an expression as `_default_of` does, normalized; a single literal is a constant."""
    parts = []
    for literal, word, sign in _TOKEN.findall(text):
        lower = word.lower()
        parts.append(
            f"'{_unescaped(literal[1:-1])}" if literal else _SYNONYMS.get(lower, lower) or sign
        )
    while parts[:1] == ["("] and parts[-1:] == [")"] and "(" not in parts[1:-1]:
        parts = parts[1:-1]
    if len(parts) == 1 and parts[0].startswith("'"):
        return parts[0]
    if re.fullmatch(r"-?[\d.]+", number := "".join(parts)):
        return f"'{number}"
    # CURRENT_TIMESTAMP is a call too.
    return f"={' '.join(parts)}".replace(" ( )", "").replace(_RANDOM_BYTES, _AS_IN_MARIADB)


def _unescaped(text: str) -> str:
    """Return what a literal stands for, of which `text` is what its quotation marks hold."""
    return _ESCAPED.sub(lambda found: _ESCAPES.get(found[1], found[1]) if found[1] else "'", text)


def _number(text: str) -> str:
    if found := re.fullmatch(r"b'([01]+)'", text):
        return str(int(found[1], 2))
    try:
        return format(Decimal(text).normalize(), "f")
    except InvalidOperation:
        return text.lower()


@dataclass(frozen=True, slots=True)
class _Indexes:
    """The indexes of both sides, told apart by what they are over and not by their names."""

    found: StructureFound
    source: TableShape
    target: TableShape

    def compare(self) -> None:
        """Note indexes that only one side has."""
        there = [_over(each) for each in self.target.indexes]
        for index in self.source.indexes:
            # For a partial index the target has one over all rows, which keeps none unique.
            is_other = index.condition and self.target.kind != "tidb"
            over = _over(replace(index, unique=False, condition="") if is_other else index)
            if over in there:
                there.remove(over)
                self.found.used.update({"partial index"} if over != _over(index) else ())
            elif equivalence := self._covered(index, there):
                self.found.used.add(equivalence)
            else:
                self.found.differences.append(f"{_named(index)}: the target lacks it")
        columns = {folded_name(column.name) for column in self.source.columns}
        for index in self.target.indexes:
            over = _over(index)
            if over in there:
                there.remove(over)
                if self._is_own(index):
                    self.found.used.add("foreign key index")
                elif {folded_name(name) for name in index.columns if name} <= columns:
                    self.found.differences.append(f"{_named(index)}: the source does not have it")

    def _covered(self, index: IndexShape, there: list[tuple[object, ...]]) -> str:
        """Return the equivalence that covers a missing index; remove its stand-in from `there`."""
        if self.target.kind == "tidb":
            return ""
        is_search = (
            index.method.upper() not in _PLAIN_METHODS
            and self.source.kind == "tidb"
            and not index.unique
        )
        for name, holds in (
            ("search index", is_search),
            ("expression index", "" in index.columns and self.target.kind == "mariadb"),
            ("global index", index.is_global),
        ):
            if holds:
                return name
        unique = _over(
            IndexShape(name="", unique=True, columns=index.columns, prefixes=index.prefixes)
        )
        generated = {
            folded_name(column.name) for column in self.source.columns if column.is_generated
        }
        is_over_generated = not generated.isdisjoint(map(folded_name, index.columns))
        if (
            index.name == "PRIMARY"
            and is_over_generated
            and self.target.kind == "mariadb"
            and unique in there
        ):
            there.remove(unique)
            return "generated primary key"
        return "foreign key index" if self._is_own(index) else ""

    def _is_own(self, index: IndexShape) -> bool:
        """Return whether a server made an index for a foreign key, by its columns and name."""
        if index.unique or any(prefix is not None for prefix in index.prefixes):
            return False
        columns = [*map(folded_name, index.columns)]
        keys = (
            [*map(folded_name, key)] for key in self.source.foreign_keys + self.target.foreign_keys
        )
        return any(key[1:] == columns and folded_name(index.name) in key[:2] for key in keys)


def _over(index: IndexShape) -> tuple[object, ...]:
    """Return an index but for its name: unique, primary, partial, and columns with prefixes."""
    is_primary = index.name == "PRIMARY"
    return (
        index.unique,
        is_primary,
        index.condition,
        *zip(map(folded_name, index.columns), index.prefixes, strict=True),
    )


def _named(index: IndexShape) -> str:
    kind = (
        "primary key"
        if index.name == "PRIMARY"
        else f"{'unique ' if index.unique else ''}index {index.name}"
    )
    pairs = zip(index.columns, index.prefixes, strict=True)
    parts = (
        (name or "an expression") + ("" if prefix is None else f"({prefix})")
        for name, prefix in pairs
    )
    return f"{kind} ({', '.join(parts)})"


FEW_ROWS = 1_000
"""Rows that are compared one by one where their checksums differ."""
_FALSE_ALARMS = 3
"""Chunks with other checksums but equal rows, after which a table goes without checksums."""
_LOOKUP = 200
_BUCKETS_AT_A_TIME = 16
T = TypeVar("T")


@dataclass(slots=True)
class Found:
    """The differing rows of one table: the first ones, and how many."""

    counts: Counter[str] = field(default_factory=Counter)
    kept: list[RowDifference] = field(default_factory=list)
    keys: list[Key] = field(default_factory=list)
    """The keys of these rows, for as many as `most_keys`."""
    most_keys: int = 0

    def add(self, difference: RowDifference, key: Key) -> None:
        """Count a difference, and keep it if there is room."""
        self.counts[difference.kind] += difference.count
        if len(self.kept) < KEPT_ROWS:
            self.kept.append(difference)
        if len(self.keys) < self.most_keys:
            self.keys.append(key)


class Comparison:
    """Compares the two sides of one table."""

    def __init__(
        self, sides: tuple[Side, Side], layout: TableLayout, found: Found, executor: Executor
    ) -> None:
        """Compare source and target, in this order; `executor` queries both at a time."""
        self._source, self._target = sides
        self._layout = layout
        self._found = found
        self._executor = executor
        self._sums = layout.sums_agree
        self._false_alarms = 0
        self._extra: set[Key] = set()
        """Keys of the target alone; its other sort order may show one in several chunks."""

    def run(self, chunk_rows: int, after: Key | None = None) -> Iterator[tuple[int, Key | None]]:
        """Compare the rows after a key; yield each chunk's source rows and last key (end: None)."""
        if not self._layout.is_ranged:
            yield self._as_bag(), None
            return
        low = after
        while True:
            rest = KeyRange(above=() if low is None else (low,))
            high = self._source.boundary(rest, chunk_rows)
            chunk = rest if high is None else rest.before(high)
            before = self._found.counts.total()
            rows, equal = self._halved(chunk) if self._sums else (self._row_by_row(chunk), True)
            if not equal and self._found.counts.total() == before:
                self._false_alarms += 1
                # Equal values have other texts on the two servers, so checksums only cost time.
                self._sums = self._false_alarms < _FALSE_ALARMS
            yield rows, high
            if high is None:
                return
            low = high

    def counts(self) -> tuple[int, int]:
        """Return the numbers of rows of source and target."""
        return self._both(lambda side: side.count())

    # chunks

    def _halved(self, keys: KeyRange) -> tuple[int, bool]:
        """Compare a range by checksums, by halves if they differ.

        Return the source's rows, and whether all sums were equal.
        """
        source, target = self._both(lambda side: side.chunk(keys))
        if source == target and source.is_whole:
            return source.rows, True
        larger, most = (
            (self._source, source.rows)
            if source.rows >= target.rows
            else (self._target, target.rows)
        )
        middle = larger.boundary(keys, most // 2) if most > FEW_ROWS else None
        if middle is None or middle in keys.upto:
            self._row_by_row(keys)
            return source.rows, False
        self._halved(keys.before(middle))
        self._halved(keys.behind(middle))
        return source.rows, False

    # rows

    def _row_by_row(self, keys: KeyRange) -> int:
        """Compare the rows of a range; return how many the source has."""
        source, target = self._both(lambda side: self._by_key(side.rows(keys)))
        only_source: list[tuple[Key, Row]] = []
        for key, rows in source.items():
            others = target.pop(key, [])
            for row, other in zip(rows, others, strict=False):
                self._pair(row, other)
            only_source += [(key, row) for row in rows[len(others) :]]
            # More than one row of a key: the target does not keep them unique.
            self._only(others[len(rows) :], "extra")
        only_target = [(key, row) for key, rows in target.items() for row in rows]
        # A side that seems to lack rows may sort them elsewhere or spell the key differently.
        settled: set[Key] = set()
        for some in _batches(only_source):
            there = self._by_key(self._target.rows_at([key for key, _ in some]))
            for key, row in some:
                partner = self._partner(key, there, self._target)
                if partner is None:
                    self._only([row], "missing")
                else:
                    settled.add(self._layout.key_of(partner))
                    self._pair(row, partner)
        for some in _batches([each for each in only_target if each[0] not in settled]):
            there = self._by_key(self._source.rows_at([key for key, _ in some]))
            # A row that the source has is compared in the range in which the source has it.
            alone = [
                (key, row) for key, row in some if self._partner(key, there, self._source) is None
            ]
            self._only([row for key, row in alone if key not in self._extra], "extra")
            self._extra.update(key for key, _ in alone)
        return sum(map(len, source.values()))

    def _by_key(self, rows: Iterable[Row]) -> dict[Key, list[Row]]:
        found: dict[Key, list[Row]] = {}
        for row in rows:
            found.setdefault(self._layout.key_of(row), []).append(row)
        return found

    def _partner(self, key: Key, there: Mapping[Key, list[Row]], side: Side) -> Row | None:
        """Return a side's row with this key or one that the side finds equal, or None."""
        if key in there:
            return there[key][0]
        # Which of the rows belongs to this key, only the side itself can say.
        return next(iter(side.rows_at([key])), None) if there else None

    def _pair(self, row: Row, other: Row) -> None:
        """Compare two rows of one key."""
        if row == other:
            return
        layout = self._layout
        values = zip(layout.names, layout.normal(row), layout.normal(other), strict=True)
        differ = [name for name, one, two in values if one != two]
        if differ:
            source, target = layout.shown(row), layout.shown(other)
            self._found.add(
                RowDifference(
                    kind="differs",
                    key=layout.shown_key(layout.key_of(row)),
                    source={name: source[name] for name in differ},
                    target={name: target[name] for name in differ},
                ),
                layout.key_of(row),
            )

    def _only(self, rows: Iterable[Row], kind: Literal["missing", "extra"], count: int = 1) -> None:
        """Note rows that one side lacks."""
        layout = self._layout
        for row in rows:
            key = layout.shown_key(layout.key_of(row)) if layout.key else {}
            shown = layout.shown(row)
            source, target = (shown, None) if kind == "missing" else (None, shown)
            difference = RowDifference(
                kind=kind, key=key, source=source, target=target, count=count
            )
            self._found.add(difference, layout.key_of(row))

    # tables whose rows cannot be found by ranges of a key

    def _as_bag(self) -> int:
        """Compare a table as a bag of rows, by hash buckets; return the source's number of rows."""
        source, target = self._both(lambda side: side.buckets())
        if self._sums:
            same = [
                n
                for n in source.keys() & target.keys()
                if source[n] == target[n] and source[n].is_whole
            ]
            differing = sorted((source.keys() | target.keys()) - set(same))
            for first in range(0, len(differing), _BUCKETS_AT_A_TIME):
                self._compare_bags(differing[first : first + _BUCKETS_AT_A_TIME])
        else:
            # Equal rows may be in different buckets, so all of them are compared at once.
            self._compare_bags(sorted(source.keys() | target.keys()))
        return sum(each.rows for each in source.values())

    def _compare_bags(self, numbers: Sequence[int]) -> None:
        """Compare the rows of some buckets as bags."""
        (here, source), (there, target) = self._both(lambda side: self._bag(side.bucket(numbers)))
        missing, extra = source - target, target - source
        if self._layout.key:
            others = self._by_key(extra.elements())
            for row in [*missing.elements()]:
                if rows := others.get(self._layout.key_of(row)):
                    self._pair(here[row], there[rows[-1]])
                    missing[row] -= 1
                    extra[rows.pop()] -= 1
        for row, count in (+missing).items():
            self._only([here[row]], "missing", count)
        for row, count in (+extra).items():
            self._only([there[row]], "extra", count)

    def _bag(self, rows: Iterable[Row]) -> tuple[dict[Row, Row], Counter[Row]]:
        """Return rows in the compared form → as they were fetched, and how often each is there."""
        fetched, counts = dict[Row, Row](), Counter[Row]()
        for row in rows:
            normal = self._layout.normal(row)
            fetched[normal] = row
            counts[normal] += 1
        return fetched, counts

    def _both(self, ask: Callable[[Side], T]) -> tuple[T, T]:
        """Ask both sides at a time."""
        other = self._executor.submit(ask, self._target)
        try:
            mine = ask(self._source)
        except BaseException:
            # The connection of the other side is free only once its answer is there.
            other.exception()
            raise
        return mine, other.result()


def _batches(items: Sequence[T]) -> Iterator[list[T]]:
    remaining = iter(items)
    while some := list(islice(remaining, _LOOKUP)):
        yield some
