"""The structures of both sides: what differs, and what is the same under a named equivalence.

What a statement of TiDB loses on its way to MySQL or MariaDB on purpose (`ddl.rules.catalogue`), and what servers only show differently,
is no difference.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from decimal import Decimal, InvalidOperation

from storage_consumer.model import folded_name
from storage_consumer.verifying.layout import shown_value
from storage_consumer.verifying.side import ColumnShape, IndexShape, TableShape

EQUIVALENCES = {
    "display width": "Some servers show no width of integers and years, and TiDB shows no ZEROFILL; neither means anything for values.",
    "json": "MariaDB's JSON is a LONGTEXT.",
    "vector type": "TiDB's VECTOR goes to a LONGTEXT column.",
    "generated NOT NULL": "MariaDB takes no NOT NULL on a generated column.",
    "generated primary key": "MariaDB takes no primary key on a generated column; a unique one stands in.",
    "default expression": "Servers write expressions in defaults, and dates and numbers, each in its own way.",
    "member characters": "MySQL and MariaDB show '?' for a character beyond U+FFFF in a member of an ENUM or SET.",
    "timestamp default": "A TIMESTAMP default is shown in the time zone of the session that made it, or that looks.",
    "text default": "MySQL takes the default of a TEXT, BLOB or JSON only as an expression, and forgets an empty one.",
    "sequence default": "Sequences are not replicated.",
    "newer collation": "MariaDB has no utf8mb4_0900_ai_ci and utf8mb4_0900_bin; its own collations replace them.",
    "search index": "FULLTEXT, VECTOR, HYBRID and COLUMNAR indexes of TiDB mean nothing for rows.",
    "expression index": "MariaDB has no indexes over expressions.",
    "global index": "Only TiDB has unique indexes over all partitions of a table.",
    "partial index": "MySQL and MariaDB have no WHERE for indexes; a unique one becomes one that is not unique.",
    "counter without index": "MySQL and MariaDB require an index for AUTO_INCREMENT, TiDB does not.",
    "foreign key index": "A server makes the index that a foreign key needs by itself, if it keeps the key at all.",
    "name of the character set": "utf8 and utf8mb3 are one character set.",
}
"""Name → what may differ, and why."""

_WIDTH = re.compile(r"^((?:tiny|small|medium|big)?int|year)\(\d+\)")
_NUMERIC = frozenset(("tinyint", "smallint", "mediumint", "int", "bigint", "decimal", "float", "double", "year"))
_MOMENTS = frozenset(("date", "datetime", "timestamp", "time"))
_DOCUMENTS = frozenset(
    ("tinytext", "text", "mediumtext", "longtext", "tinyblob", "blob", "mediumblob", "longblob", "json", "vector")
)
_FILLED = {"char": " ", "binary": "\0"}
"""Type of a fixed length → what values are filled up with."""
_SYNONYMS = {"curdate": "current_date", "curtime": "current_time", "now": "current_timestamp"}
_BEYOND = re.compile(r"[\U00010000-\U0010ffff]")
_QUOTED = re.compile(r"^(?:_\w+)?\\?'(.*?)\\?'$", re.DOTALL)
_NEWER = {"utf8mb4_0900_ai_ci": "utf8mb4_uca1400_nopad_ai_ci", "utf8mb4_0900_bin": "utf8mb4_nopad_bin"}
_FARTHEST, _STEP = timedelta(hours=26), timedelta(minutes=15)
"""How far two time zones are apart at most, and what their offsets are multiples of."""
_PLAIN_METHODS = frozenset(("BTREE", "HASH", "RTREE", ""))


@dataclass(slots=True)
class StructureFound:
    """What a comparison of two structures found."""

    differences: list[str] = field(default_factory=list)
    used: set[str] = field(default_factory=set)
    """Equivalences without which there were more differences."""

    def judge(self, where: str, source: object, target: object, equivalence: str = "") -> None:
        """Note a property that is not the same as it is shown; `equivalence`: the name of what covers that."""
        if source == target:
            return
        if equivalence:
            self.used.add(equivalence)
        else:
            self.differences.append(f"{where}: {_shown(target)} in the target, {_shown(source)} at the source")


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
    ordered = [column.name for column in target.columns if folded_name(column.name) in {*map(folded_name, names)}]
    if list(map(folded_name, names)) != list(map(folded_name, ordered)):
        found.judge("order of the columns", ", ".join(names), ", ".join(ordered))
    for column in source.columns:
        other = there.pop(folded_name(column.name), None)
        if other is None:
            found.differences.append(f"column {column.name}: the target lacks it")
        else:
            # In a view a column is what the server makes of it.
            seen = replace(column, nullable=other.nullable) if source.is_view and target.is_view else column
            _Column(found, seen, other, source.kind, target.kind).compare()
    found.differences += [f"column {column.name}: the source does not have it" for column in there.values()]
    found.judge(
        "collation of the table", source.collation, target.collation, _collation(source.collation, target.collation)
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

    def compare(self) -> None:
        """Note each property that differs."""
        source, target = self.source, self.target
        where = f"column {source.name}"
        self.found.judge(f"{where}: type", source.column_type, target.column_type, self._type())
        generated = "generated NOT NULL" if self.of_target == "mariadb" and source.is_generated else ""
        self.found.judge(f"{where}: NULL", source.nullable, target.nullable, generated)
        self.found.judge(f"{where}: generated", source.is_generated, target.is_generated)
        self._judge_default(f"{where}: default")
        self.found.judge(f"{where}: counts by itself", _counts(source), _counts(target), self._counter())
        self.found.judge(f"{where}: on update", _on_update(source), _on_update(target))
        if not self._is_other_type():
            self.found.judge(
                f"{where}: collation",
                source.collation,
                target.collation,
                _collation(source.collation, target.collation),
            )

    def _is_other_type(self) -> bool:
        """Whether the target keeps the values in a column of text, which has a collation of its own."""
        return self.source.data_type in ("json", "vector") and self.target.data_type != self.source.data_type

    def _type(self) -> str:
        source, target = self.source, self.target
        plain = [_without_display(each.column_type) for each in (source, target)]
        # A boolean is a TINYINT(1) on every server.
        if plain[0] == plain[1] and not source.column_type.startswith("tinyint(1)"):
            return "display width"
        if plain[0] == plain[1] and target.column_type in ("tinyint", source.column_type):
            return "display width"
        if target.data_type == "longtext" and source.data_type in ("json", "vector"):
            return "json" if source.data_type == "json" else "vector type"
        # Servers write members of ENUM and SET with other escapes.
        if source.data_type == target.data_type and source.data_type in ("enum", "set"):
            return self._members()
        return ""

    def _members(self) -> str:
        here, there = (each.column_type.replace("\\\\", "\\") for each in (self.source, self.target))
        if here == there:
            return "default expression"
        if (self.of_source == "tidb") != (self.of_target == "tidb"):
            # TiDB shows all characters.
            exact, shown = (here, there) if self.of_source == "tidb" else (there, here)
            return "member characters" if _BEYOND.sub("?", exact) == shown else ""
        return ""

    def _counter(self) -> str:
        return "counter without index" if self.of_target != "tidb" and _counts(self.source) else ""

    def _judge_default(self, where: str) -> None:
        """Note another default; servers may show one default in two ways, and two defaults in one."""
        source, target = self.source, self.target
        is_constant = source.constant is not None or target.constant is not None
        here, there = (
            _default_of(column, kind, is_constant=is_constant)
            for column, kind in ((source, self.of_source), (target, self.of_target))
        )
        name = "default expression" if here == there else self._default(here, there, is_constant=is_constant)
        if name:
            self.found.used |= {name} if here != there or source.default != target.default else set()
        else:
            told = f"{_shown_default(target)} in the target, {_shown_default(source)} at the source"
            self.found.differences.append(f"{where}: {told}")

    def _default(self, source: str | None, target: str | None, *, is_constant: bool) -> str:
        """Return the equivalence under which two defaults are the same."""
        kind, both = self.source.data_type, source is not None and target is not None and not is_constant
        is_dropped = source == "" and target is None
        # Of several names the first one that holds; TiDB keeps a default as it is.
        names = {
            "timestamp default": both and kind == "timestamp" and self._is_same_moment(source, target),
            "sequence default": self.of_target != "tidb" and (source or "").lower().startswith("nextval("),
            "text default": self.of_target != "tidb" and kind in _DOCUMENTS and (both or is_dropped),
            "default expression": self.of_target != "tidb"
            and both
            and _is_expression(source)
            and _is_expression(target),
        }
        return next((name for name, holds in names.items() if holds), "")

    def _is_same_moment(self, source: str | None, target: str | None) -> bool:
        """Return whether two defaults may be one moment in two time zones. TiDB keeps it in UTC, as it is read."""
        if self.of_source == self.of_target == "tidb":
            return False
        with suppress(ValueError):
            apart = datetime.fromisoformat(source or "") - datetime.fromisoformat(target or "")
            return abs(apart) <= _FARTHEST and not apart % _STEP
        return False


def _without_display(column_type: str) -> str:
    """Return a type without what only counts where its values are shown. ZEROFILL means UNSIGNED."""
    plain, zerofill, _ = _WIDTH.sub(r"\1", column_type).partition(" zerofill")
    return f"{plain.removesuffix(' unsigned')} unsigned" if zerofill else plain


def _counts(column: ColumnShape) -> bool:
    return "auto_increment" in column.extra.lower()


def _on_update(column: ColumnShape) -> bool:
    return "on update" in column.extra.lower()


def _shown_default(column: ColumnShape) -> str:
    text = column.default if column.constant is None else shown_value(column.constant)
    return "''" if text == "" else _shown(text)


def _default_of(column: ColumnShape, kind: str, *, is_constant: bool) -> str | None:
    """Return a default in one form for all servers, as far as there is one. `is_constant`: whether that of a side is known to be one."""
    text = column.default
    if text is None:
        return None
    if column.constant is not None:
        text = column.constant.decode("utf-8", "surrogateescape")
    elif (kind == "mariadb" or "DEFAULT_GENERATED" in column.extra) and (quoted := _QUOTED.match(text)):
        text = quoted[1].replace("''", "'").replace("\\\\", "\\").replace("\\'", "'").replace("\\0", "\0")
    if column.data_type in _NUMERIC or column.data_type == "bit":
        return _number(text)
    if column.data_type in _MOMENTS and text[:1].isdigit():
        # Fractions, and a time of midnight, may be left out.
        return re.sub(r" 00:00:00$", "", re.sub(r"\.0*$", "", text))
    # What fills the column up is not part of the value.
    text = text.rstrip(_FILLED.get(column.data_type, ""))
    return text if is_constant or not _is_expression(text) else _expression(text)


def _expression(text: str) -> str:
    plain = re.sub(r"\(\)$", "", text).lower()
    return _SYNONYMS.get(plain, plain)


def _number(text: str) -> str:
    if found := re.fullmatch(r"b'([01]+)'", text):
        return str(int(found[1], 2))
    try:
        return format(Decimal(text).normalize(), "f")
    except InvalidOperation:
        return text.lower()


def _is_expression(text: str | None) -> bool:
    text = text or ""
    return "(" in text or text.lower().startswith("current_")


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
            over = _over(self._kept(index))
            if over in there:
                there.remove(over)
                self.found.used.update({"partial index"} if over != _over(index) else ())
            elif equivalence := self._covered(index, there):
                self.found.used.add(equivalence)
            else:
                self.found.differences.append(f"{_named(index)}: the target lacks it")
        for index in self.target.indexes:
            over = _over(index)
            if over in there:
                there.remove(over)
                self._extra(index)

    def _kept(self, index: IndexShape) -> IndexShape:
        """Return what the target has in the place of an index: for a partial one an index of all rows, which keeps none unique."""
        is_other = index.condition and self.target.kind != "tidb"
        return replace(index, unique=False, condition="") if is_other else index

    def _covered(self, index: IndexShape, there: list[tuple[object, ...]]) -> str:
        """Return the equivalence under which the target may lack an index; one that stands for it is taken out of `there`."""
        if self.target.kind == "tidb":
            return ""
        for name, holds in (
            ("search index", index.method.upper() not in _PLAIN_METHODS),
            ("expression index", "" in index.columns and self.target.kind == "mariadb"),
            ("global index", index.is_global),
        ):
            if holds:
                return name
        unique = _over(IndexShape(name="", unique=True, columns=index.columns, prefixes=index.prefixes))
        if index.name == "PRIMARY" and self.target.kind == "mariadb" and unique in there:
            there.remove(unique)
            return "generated primary key"
        return "foreign key index" if not index.unique and self._is_prefix(index, self.target.indexes) else ""

    def _extra(self, index: IndexShape) -> None:
        """Judge an index that only the target has."""
        columns = {folded_name(column.name): column for column in self.source.columns}
        if not index.unique and self.target.kind != "tidb" and self._is_prefix(index, self.source.indexes):
            self.found.used.add("foreign key index")
        elif all(folded_name(name) in columns for name in index.columns if name):
            self.found.differences.append(f"{_named(index)}: the source does not have it")

    def _is_prefix(self, index: IndexShape, others: tuple[IndexShape, ...]) -> bool:
        """Return whether a longer index of the other side begins as this one does."""
        parts = [*zip(map(folded_name, index.columns), index.prefixes, strict=True)]
        longer = ([*zip(map(folded_name, other.columns), other.prefixes, strict=True)] for other in others)
        return any(len(other) > len(parts) and other[: len(parts)] == parts for other in longer)


def _over(index: IndexShape) -> tuple[object, ...]:
    """Return what an index is, but for its name: whether it is unique, the primary key, partial, and its columns with their prefixes."""
    is_primary = index.name == "PRIMARY"
    return (
        index.unique,
        is_primary,
        index.condition,
        *zip(map(folded_name, index.columns), index.prefixes, strict=True),
    )


def _named(index: IndexShape) -> str:
    kind = "primary key" if index.name == "PRIMARY" else f"{'unique ' if index.unique else ''}index {index.name}"
    return f"{kind} ({', '.join(_parts(index))})"


def _parts(index: IndexShape) -> Iterator[str]:
    for name, prefix in zip(index.columns, index.prefixes, strict=True):
        yield (name or "an expression") + ("" if prefix is None else f"({prefix})")
