"""One table of a server as a side of a comparison: its structure, and digests and rows of its key ranges by SQL."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from storage_consumer.downstream.identifier_case import existing
from storage_consumer.downstream.key_ranges import boundary, name_of, range_of, value_of
from storage_consumer.downstream.query import text_of
from storage_consumer.downstream.reading import Reading
from storage_consumer.downstream.shown_defaults import with_constants
from storage_consumer.errors import TableError
from storage_consumer.model import TableName
from storage_consumer.sql.tokens import qualified
from storage_consumer.verifying.forms import BEGINNING, FEW_BYTES
from storage_consumer.verifying.layout import SideColumn, SideLayout
from storage_consumer.verifying.side import ColumnShape, Digest, IndexShape, Key, KeyRange, Row, TableShape

_SUM = "BIT_XOR(CAST(CONV({}, 16, 10) AS UNSIGNED))"
_TOTAL = "SUM(CAST(CONV({}, 16, 10) AS UNSIGNED))"


class ComparedTable:
    """A table, read on one connection in whatever snapshot that has taken; a `verifying.side.Side`."""

    def __init__(self, reading: Reading, name: TableName) -> None:
        """Read the table called `name`; the server may spell it in another case."""
        self._reading = reading
        self.name = name
        self.layout = SideLayout(columns=(), key=())
        """What is compared of it; to be set before rows are asked for."""

    def structure(self) -> TableShape | None:
        """Return what the table looks like; None if there is none."""
        rows = self._reading.rows
        found = existing(lambda sql, arguments=(): rows(sql, arguments), [self.name]).get(self.name.folded())
        if found is None:
            return None
        self.name = found
        # The first look takes the table's lock, so that its structure stays from here on.
        where, names = "table_schema = %s AND table_name = %s", (found.schema, found.table)
        ((kind, collation),) = rows(
            f"SELECT table_type, table_collation FROM information_schema.tables WHERE {where}", names
        )
        is_view = "VIEW" in text_of(kind).upper()
        if not is_view:
            rows(f"SELECT 1 FROM {self._from()} LIMIT %s", (1,))
        columns = rows(
            "SELECT column_name, data_type, column_type, is_nullable, column_default, extra, character_set_name, collation_name, "
            f"generation_expression FROM information_schema.columns WHERE {where} ORDER BY ordinal_position",
            names,
        )
        shapes = tuple(_column(self._reading.kind, *row) for row in columns)
        return TableShape(
            kind=self._reading.kind,
            columns=shapes if is_view else with_constants(self._reading, self._from(), shapes),
            indexes=tuple(self._indexes(where, names)),
            foreign_keys=tuple(self._foreign_keys(where, names)),
            collation=text_of(collation) if collation else "",
            is_view=is_view,
        )

    def _indexes(self, where: str, names: tuple[str, str]) -> Iterator[IndexShape]:
        parts: dict[str, list[tuple[Any, ...]]] = {}
        # MariaDB has no indexes over expressions, and TiDB names the column of one NULL, as a text.
        column = "column_name" if self._reading.kind == "mariadb" else "IF(expression IS NULL, column_name, NULL)"
        for index, *part in self._reading.rows(
            f"SELECT index_name, non_unique, {column}, sub_part, index_type FROM information_schema.statistics "
            f"WHERE {where} ORDER BY index_name, seq_in_index",
            names,
        ):
            parts.setdefault(text_of(index), []).append(tuple(part))
        everywhere = {name for name, _ in self._of_tidb("is_global", where, names)}
        conditions = dict(self._of_tidb("predicate <> ''", where, names, "predicate"))
        for index, found in parts.items():
            yield IndexShape(
                name=index,
                unique=not int(found[0][0]),
                columns=tuple("" if column is None else text_of(column) for _, column, *_ in found),
                prefixes=tuple(None if prefix is None else int(prefix) for _, _, prefix, _ in found),
                method=text_of(found[0][3] or ""),
                is_global=index in everywhere,
                condition=conditions.get(index, ""),
            )

    def _foreign_keys(self, where: str, names: tuple[str, str]) -> Iterator[tuple[str, ...]]:
        found: dict[str, list[str]] = {}
        for name, column in self._reading.rows(
            f"SELECT constraint_name, column_name FROM information_schema.key_column_usage WHERE {where} "
            "AND referenced_table_name IS NOT NULL ORDER BY constraint_name, ordinal_position",
            names,
        ):
            found.setdefault(text_of(name), []).append(text_of(column))
        return ((name, *columns) for name, columns in found.items())

    def _of_tidb(
        self, which: str, where: str, names: tuple[str, str], shown: str = "key_name"
    ) -> Iterator[tuple[str, str]]:
        """Yield the names of indexes of a kind that only TiDB has, with another property of each."""
        if self._reading.kind != "tidb":
            return
        # An older TiDB has no such column, and no such indexes.
        with suppress(TableError):
            for name, value in self._reading.rows(
                f"SELECT key_name, {shown} FROM information_schema.tidb_indexes WHERE {where} AND {which}", names
            ):
                yield text_of(name), text_of(value)

    # what is compared

    def count(self) -> int:
        """Return the number of rows."""
        ((rows,),) = self._reading.rows(f"SELECT COUNT(*) FROM {self._from()} WHERE %s", (1,))
        self._reading.pace.spend(int(rows))
        return int(rows)

    def chunk(self, keys: KeyRange) -> Digest:
        """Return the digest of a range of keys."""
        where, arguments = range_of(self._key(), keys)
        sums = ", ".join(_SUM.format(part) for part in ("LEFT(h, 16)", "SUBSTRING(h, 17, 16)"))
        ((rows, hashed, *found),) = self._reading.rows(
            f"SELECT COUNT(*), COUNT(h), {sums} FROM ({self._hashed(where)}) AS hashed", arguments
        )
        self._reading.pace.spend(int(rows))
        return Digest(rows=int(rows), sums=tuple(map(int, found)), is_whole=rows == hashed)

    def rows(self, keys: KeyRange) -> Iterable[Row]:
        """Return the rows of a range of keys."""
        return self._fetched(*range_of(self._key(), keys))

    def rows_at(self, keys: Sequence[Key]) -> Iterable[Row]:
        """Return the rows whose keys this side finds equal to one of these."""
        columns = self._key()
        conditions, arguments = [], list[Any]()
        for key in keys:
            parts = [value_of(column, value, foreign="NULL") for column, value in zip(columns, key, strict=True)]
            equal = (f"{name_of(column)} = {value}" for column, (value, _) in zip(columns, parts, strict=True))
            conditions.append(f"({' AND '.join(equal)})")
            arguments += [argument for _, some in parts for argument in some]
        # An argument in any case, see `range_of`.
        return self._fetched(f"({' OR '.join(conditions)}) AND %s", [*arguments, 1])

    def boundary(self, keys: KeyRange, rows: int) -> Key | None:
        """Return the key of a range's row number `rows`, from 1; None if it has fewer."""
        return boundary(self._reading, self.name, self._key(), keys, rows)

    def buckets(self) -> dict[int, Digest]:
        """Return the digests of all rows, by the bucket into which a hash of their content puts them."""
        sums = ", ".join(_TOTAL.format(part) for part in ("LEFT(h, 15)", "SUBSTRING(h, 16, 15)"))
        bucket = "IFNULL(CAST(CONV(SUBSTRING(h, 31, 2), 16, 10) AS UNSIGNED), 256)"
        found = self._reading.rows(
            f"SELECT {bucket} AS b, COUNT(*), COUNT(h), {sums} FROM ({self._hashed('%s')}) AS hashed GROUP BY b", (1,)
        )
        self._reading.pace.spend(sum(int(row[1]) for row in found))
        return {
            int(number): Digest(rows=int(rows), sums=tuple(int(each or 0) for each in totals), is_whole=rows == hashed)
            for number, rows, hashed, *totals in found
        }

    def bucket(self, numbers: Sequence[int]) -> Iterable[Row]:
        """Return the rows of some buckets."""
        bucket = f"IFNULL(CAST(CONV(SUBSTRING({self._hash()}, 31, 2), 16, 10) AS UNSIGNED), 256)"
        return self._fetched(f"{bucket} IN ({', '.join(['%s'] * len(numbers))})", list(numbers))

    # SQL

    def _from(self) -> str:
        return qualified(self.name).replace("%", "%%")

    def _key(self) -> list[SideColumn]:
        return [self.layout.columns[place] for place in self.layout.key]

    def _hash(self) -> str:
        """Return the hash of a row: of all columns whose texts agree, so joined that no two rows look alike."""
        parts = [_part(column) for column in self.layout.columns if column.agrees]
        return f"SHA2(CONCAT({', '.join(parts)}), 256)" if parts else "SHA2('', 256)"

    def _hashed(self, where: str) -> str:
        # The limit keeps the server from merging this into the query around it, which would compute each hash several times.
        return f"SELECT {self._hash()} AS h FROM {self._from()} WHERE {where} LIMIT 18446744073709551615"

    def _fetched(self, where: str, arguments: Sequence[Any]) -> Iterator[Row]:
        shown = ", ".join(_shown(column) for column in self.layout.columns)
        rows = 0
        for row in self._reading.raw(f"SELECT {shown} FROM {self._from()} WHERE {where}", arguments):
            rows += 1
            yield row
        self._reading.pace.spend(rows)


def _part(column: SideColumn) -> str:
    """Return the expression of a column in a row's hash: it shows where its text ends, and no text looks like NULL."""
    text = column.form.summed.replace("{}", name_of(column))
    if column.form.is_plain:
        return f"IFNULL({text}, 'N'), ';'"
    # A value that is larger than the server computes with must not look like a NULL: it makes the whole hash NULL.
    shown = f"SHA2({text}, 256)" if column.form.is_wide else f"CONCAT(LENGTH({text}), ':', {text})"
    return f"IF({name_of(column)} IS NULL, 'N', {shown})"


def _shown(column: SideColumn) -> str:
    """Return the expression that shows a column in a row."""
    text = column.form.fetched.replace("{}", name_of(column))
    if not column.form.is_wide:
        return text
    beginning = (column.form.beginning or column.form.fetched).replace("{}", name_of(column))
    long = f"CONCAT('#', LEFT({beginning}, {BEGINNING}), '... ', LENGTH({text}), ' bytes, SHA-256 ', SHA2({text}, 256))"
    return f"IF(LENGTH({text}) <= {FEW_BYTES}, CONCAT('=', {text}), {long})"


def _column(kind: str, *row: Any) -> ColumnShape:
    name, data_type, column_type, nullable, default, extra, charset, collation, expression = row
    flags = text_of(extra or "")
    is_default = "DEFAULT_GENERATED" in flags
    # MariaDB shows what may be NULL as if it said DEFAULT NULL; the text 'NULL' has quotation marks there.
    has_none = default is None or (kind == "mariadb" and text_of(default) == "NULL")
    generated = any(word in flags.upper() for word in ("VIRTUAL", "STORED", "PERSISTENT"))
    return ColumnShape(
        name=text_of(name),
        data_type=text_of(data_type).lower(),
        column_type=text_of(column_type),
        nullable=text_of(nullable) == "YES",
        default=None if has_none else text_of(default),
        extra=flags,
        charset=text_of(charset) if charset else "",
        collation=text_of(collation) if collation else "",
        is_generated=generated or bool(expression and not is_default),
    )
