"""What a comparison or export reads of a server: snapshots, sides of comparisons, whole tables.

Nothing here writes.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from decimal import Decimal
from typing import Any

from storage_consumer.clock import Pace
from storage_consumer.config.settings import Downstream
from storage_consumer.errors import ConfigError, SnapshotLost, TableError, TargetUnavailable
from storage_consumer.model import TableColumn, TableName, physical_ms
from storage_consumer.rows.compared_layout import (
    BEGINNING,
    FEW_BYTES,
    ColumnShape,
    Digest,
    Form,
    IndexShape,
    Key,
    KeyRange,
    Row,
    SideColumn,
    SideLayout,
    TableShape,
    layout_of,
    no_text,
)
from storage_consumer.sql.tokens import qualified, quote
from storage_consumer.target.connection import Connection, connect, read_only
from storage_consumer.target.existing_names import existing, text_of
from storage_consumer.target.mysql_errors import (
    DRIVER_FAULTS,
    described,
    is_conflict,
    is_connection_loss,
    is_denied,
    number_of,
    translated,
)
from storage_consumer.target.session_settings import fetched, kind_of
from storage_consumer.target.structure import ColumnFacts, columns_of, in_query, index_parts_of

_GONE = frozenset((1412, 8055, 9006, 8028))
"""The table's definition changed, TiDB's garbage collection passed, or its schema changed."""
_NO_SAFE_POINT = "tikv_gc_safe_point"


class Reading:
    """One connection; `whose` names the server in messages: ``target`` or ``source``."""

    def __init__(
        self, downstream: Downstream, password: str, whose: str, pace: Pace | None = None, doing: str = "comparing"
    ) -> None:
        """Take the settings without connecting; `doing` says in messages what for."""
        # TIMESTAMP values are compared in UTC.
        self._settings = replace(downstream, time_zone="UTC")
        self._password = password
        self._doing = doing
        self.whose = whose
        self.pace = pace or Pace()
        self._connection: Connection | None = None

    def close(self) -> None:
        """Close the connection; the next snapshot opens another one."""
        if self._connection is not None and self._connection.open:
            with suppress(*DRIVER_FAULTS):
                self._connection.close()
        self._connection = None

    def live(self) -> Connection:
        """Return the connection."""
        if self._connection is None or not self._connection.open:
            try:
                self._connection = connect(self._settings, self._password, prepare=read_only)
            except (ConfigError, TargetUnavailable) as fault:
                if self.whose == "target":
                    raise
                text = (
                    str(fault)
                    .replace("to the target", f"to the {self.whose}")
                    .replace("the downstream URI", "--source")
                )
                raise type(fault)(text) from fault
        return self._connection

    @property
    def kind(self) -> str:
        """What kind of server it is: ``mariadb``, ``mysql`` or ``tidb``."""
        return kind_of(str(self.live().get_server_info()))  # type: ignore[no-untyped-call] # of the driver

    # snapshots

    def begin(self) -> None:
        """Take a snapshot of now; the former one ends."""
        self.rows("ROLLBACK")
        self.rows("START TRANSACTION WITH CONSISTENT SNAPSHOT")

    def begin_at(self, ts: int) -> None:
        """Read as of a TSO from now on. Only TiDB can."""
        if self.kind != "tidb":
            raise ConfigError(
                f"the {self.whose} is no TiDB, so it cannot be read as of a commit-ts (--frozen compares one that nobody writes to)"
            )
        self.rows("ROLLBACK")
        try:
            # TiDB compares a TSO with its garbage collection only when the setting changes.
            self.rows("SET SESSION tidb_snapshot = ''")
            self.rows("SET SESSION tidb_snapshot = %s", (str(ts),))
        except TableError as fault:
            if _NO_SAFE_POINT in str(fault):
                raise ConfigError(
                    f"the {self.whose} cannot be read as of a commit-ts: {fault}. A TiDB without TiKV has no garbage collection; for a "
                    "test, insert the row tikv_gc_safe_point into mysql.tidb"
                ) from fault
            raise

    def end(self) -> None:
        """End the snapshot, and with it every lock that it holds."""
        if self._connection is not None and self._connection.open:
            try:
                self.rows("ROLLBACK")
            except (TargetUnavailable, SnapshotLost):
                self.close()

    def refuse_ignored(self, ts: int, table: str) -> None:
        """Raise `ConfigError` if the server took this TSO but did not read the table as of it."""
        self.rows(f"SELECT 1 FROM {table.replace('%', '%%')} LIMIT %s", (1,))
        ((text,),) = self.rows("SELECT @@tidb_last_query_info")
        read_at = int(json.loads(text)["start_ts"])
        if read_at != ts:
            raise ConfigError(
                f"the {self.whose} ignores tidb_snapshot: asked for {ts}, it read as of {read_at}. What is read would be worth nothing"
            )

    def moving(self, ts: int) -> str:
        """Return a statement that TiDB may show at a TSO though it ends later; "" for none.

        Only of those that give rows to another table: such rows must not be taken for its own.
        """
        # It lists the newest first.
        found = self.rows(
            "SELECT query FROM (SELECT * FROM information_schema.ddl_jobs LIMIT 100) AS jobs "
            "WHERE (job_type LIKE 'rename table%%' OR job_type LIKE 'exchange%%') "
            "AND state <> 'cancelled' AND state NOT LIKE 'rollback%%' AND (end_time IS NULL OR "
            # Older ones show whole seconds.
            "end_time + INTERVAL IF(MICROSECOND(end_time) = 0, 999999, 0) MICROSECOND "
            ">= FROM_UNIXTIME(%s / 1000))",
            (physical_ms(ts),),
        )
        return text_of(found[0][0]) if found else ""

    # queries

    def rows(self, sql: str, arguments: Collection[Any] = (), /) -> list[tuple[Any, ...]]:
        """Return all rows of a query."""
        with self._translating():
            return fetched(self.live(), sql, arguments or None)

    def raw(self, sql: str, arguments: Collection[Any] = ()) -> Iterator[tuple[bytes | None, ...]]:
        """Yield all rows as bytes, of a query for texts and bytes; then wait for the pace."""
        with self._translating(), self.live().undecoded() as connection:
            found = fetched(connection, sql, arguments or None)
        for row in found:
            yield tuple(v if v is None or isinstance(v, bytes) else str(v).encode() for v in row)
        self.pace.spend(len(found))

    @contextmanager
    def _translating(self) -> Iterator[None]:
        doing = f"{self._doing}, at the {self.whose} {self._settings.address}"
        try:
            yield
        except DRIVER_FAULTS as fault:
            if number_of(fault) in _GONE or is_conflict(fault):
                raise SnapshotLost(f"{doing}: {described(fault)}") from fault
            if is_connection_loss(fault):
                self.close()
            if is_denied(fault):
                raise ConfigError(
                    f"{doing}: {described(fault)} (this needs SELECT on the tables that are read)"
                ) from fault
            raise translated(fault, doing) from fault


_SUM = "BIT_XOR(CAST(CONV({}, 16, 10) AS UNSIGNED))"
_TOTAL = "SUM(CAST(CONV({}, 16, 10) AS UNSIGNED))"
_BYTES = frozenset(("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"))
_TEXTS = frozenset(("char", "varchar", "enum", "set", "tinytext", "text", "mediumtext", "longtext"))
_MOMENTS = frozenset(("year", "timestamp"))
_LITERAL = re.compile(r"x?'(?:[^'\\]|''|\\.)*'", re.DOTALL)


class ComparedTable:
    """A table read on one connection in its current snapshot; a `compared_layout.Side`."""

    def __init__(self, reading: Reading, name: TableName) -> None:
        """Read the table called `name`; the server may spell it in another case."""
        self._reading = reading
        self.name = name
        self.layout = SideLayout(columns=(), key=())
        """What is compared of it; to be set before rows are asked for."""

    def structure(self) -> TableShape | None:
        """Return what the table looks like; None if there is none."""
        rows = self._reading.rows
        found = existing(rows, [self.name]).get(self.name.folded())
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
            rows(f"SELECT 1 FROM {in_query(self.name)} LIMIT %s", (1,))
        kind = self._reading.kind
        shapes = tuple(_column_shape(kind, facts) for facts in columns_of(rows, [found]).get(found, ()))
        everywhere = {name for name, _ in self._of_tidb("is_global", where, names)}
        conditions = dict(self._of_tidb("predicate <> ''", where, names, "predicate"))
        # MariaDB has no indexes over expressions.
        indexes = index_parts_of(rows, [found], shows_expressions=kind != "mariadb").get(found, {})
        foreign = defaultdict[str, list[str]](list)
        for name, column in rows(
            f"SELECT constraint_name, column_name FROM information_schema.key_column_usage WHERE {where} "
            "AND referenced_table_name IS NOT NULL ORDER BY constraint_name, ordinal_position",
            names,
        ):
            foreign[text_of(name)].append(text_of(column))
        return TableShape(
            kind=kind,
            columns=shapes if is_view else _with_constants(self._reading, in_query(self.name), shapes),
            indexes=tuple(
                IndexShape(
                    name=name,
                    unique=parts[0].is_unique,
                    columns=tuple("" if part.is_expression else part.column for part in parts),
                    prefixes=tuple(part.prefix for part in parts),
                    method=parts[0].method,
                    is_global=name in everywhere,
                    condition=conditions.get(name, ""),
                )
                for name, parts in sorted(indexes.items())
            ),
            foreign_keys=tuple((name, *columns) for name, columns in foreign.items()),
            collation=text_of(collation) if collation else "",
            is_view=is_view,
        )

    def _of_tidb(
        self, which: str, where: str, names: tuple[str, str], shown: str = "key_name"
    ) -> Iterator[tuple[str, str]]:
        """Yield names of indexes of a kind that only TiDB has, each with another property."""
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
        ((rows,),) = self._reading.rows(f"SELECT COUNT(*) FROM {in_query(self.name)} WHERE %s", (1,))
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
        return self._fetched(*among(self._key(), keys))

    def keys_at(self, keys: Sequence[Key]) -> tuple[str, list[Any]]:
        """Return the query for the keys of these rows in hexadecimal digits, and its arguments."""
        shown = ", ".join(f"HEX({column.form.fetched.replace('{}', _name_of(column))})" for column in self._key())
        where, arguments = among(self._key(), keys)
        return f"SELECT {shown} FROM {in_query(self.name)} WHERE {where}", arguments

    def alike(self, keys: Sequence[Key]) -> set[Key]:
        """Return the keys of the rows whose keys this side finds equal to one of these."""
        return {from_hex(row) for row in self._reading.rows(*self.keys_at(keys))}

    def removal(self, keys: Sequence[Key]) -> tuple[str, list[Any]]:
        """Return the statement that deletes these rows, and its arguments."""
        where, arguments = among(self._key(), keys)
        return f"DELETE FROM {in_query(self.name)} WHERE {where}", arguments

    def boundary(self, keys: KeyRange, rows: int) -> Key | None:
        """Return the key of a range's row number `rows`, from 1; None if it has fewer."""
        return boundary(self._reading, self.name, self._key(), keys, rows)

    def buckets(self) -> dict[int, Digest]:
        """Return the digests of all rows by bucket, chosen by a hash of their content."""
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

    def _key(self) -> list[SideColumn]:
        return [self.layout.columns[place] for place in self.layout.key]

    def _hash(self) -> str:
        """Return a row's hash: of all columns with agreeing texts, joined without ambiguity."""
        parts = []
        for column in self.layout.columns:
            if not column.agrees:
                continue
            name, form = _name_of(column), column.form
            text = form.summed.replace("{}", name)
            # Each part shows where its text ends, and no text looks like NULL. A value that is
            # larger than the server computes with must not look like one either: it makes the whole
            # hash NULL.
            shown = f"SHA2({text}, 256)" if form.is_wide else f"CONCAT(LENGTH({text}), ':', {text})"
            parts.append(f"IFNULL({text}, 'N'), ';'" if form.is_plain else f"IF({name} IS NULL, 'N', {shown})")
        return f"SHA2(CONCAT({', '.join(parts)}), 256)" if parts else "SHA2('', 256)"

    def _hashed(self, where: str) -> str:
        # The limit keeps the server from merging this into the query around it, which would compute
        # each hash several times.
        return f"SELECT {self._hash()} AS h FROM {in_query(self.name)} WHERE {where} LIMIT 18446744073709551615"

    def _fetched(self, where: str, arguments: Sequence[Any]) -> Iterator[Row]:
        shown = []
        for column in self.layout.columns:
            form, name = column.form, _name_of(column)
            text = form.fetched.replace("{}", name)
            if form.is_wide:
                head = f"LEFT({(form.beginning or form.fetched).replace('{}', name)}, {BEGINNING})"
                long = f"CONCAT('#', {head}, '... ', LENGTH({text}), ' bytes, SHA-256 ', SHA2({text}, 256))"
                text = f"IF(LENGTH({text}) <= {FEW_BYTES}, CONCAT('=', {text}), {long})"
            shown.append(text)
        return self._reading.raw(f"SELECT {', '.join(shown)} FROM {in_query(self.name)} WHERE {where}", arguments)


def _column_shape(kind: str, facts: ColumnFacts) -> ColumnShape:
    # MariaDB shows a nullable column as DEFAULT NULL; the text 'NULL' has quotation marks.
    has_none = facts.default is None or (kind == "mariadb" and text_of(facts.default) == "NULL")
    return ColumnShape(
        name=facts.name,
        data_type=facts.data_type.lower(),
        column_type=facts.column_type,
        nullable=facts.nullable == "YES",
        default=None if has_none else text_of(facts.default),
        extra=facts.extra,
        charset=facts.charset,
        collation=facts.collation,
        is_generated=bool(facts.generated),
    )


def range_of(key: Sequence[SideColumn], keys: KeyRange) -> tuple[str, list[Any]]:
    """Return the condition of a range and its arguments; `key`: the columns of the key."""
    parts, arguments = [], []
    for each, way in (*((each, ">") for each in keys.above), *((each, "<") for each in keys.upto)):
        condition, values = _beyond(list(zip(key, each, strict=True)), way, inclusive=way == "<")
        parts.append(condition)
        arguments += values
    # An argument in any case: the driver reads doubled percent signs only then.
    return " AND ".join([*parts, "%s"]), [*arguments, 1]


def among(key: Sequence[SideColumn], keys: Sequence[Key]) -> tuple[str, list[Any]]:
    """Return the condition for rows of some keys, as the server compares them, with arguments.

    `key`: the columns of the key.
    """
    conditions, arguments = [], list[Any]()
    for each in keys:
        parts = [_value_of(column, value, foreign="NULL") for column, value in zip(key, each, strict=True)]
        equal = (f"{_name_of(column)} = {value}" for column, (value, _) in zip(key, parts, strict=True))
        conditions.append(f"({' AND '.join(equal)})")
        arguments += [argument for _, some in parts for argument in some]
    # An argument in any case, see `range_of`.
    return f"({' OR '.join(conditions)}) AND %s", [*arguments, 1]


def from_hex(row: Iterable[Any]) -> Key:
    """Return a key of `ComparedTable.keys_at`."""
    return tuple(bytes.fromhex(text_of(value)) for value in row)


def boundary(reading: Reading, name: TableName, key: Sequence[SideColumn], keys: KeyRange, rows: int) -> Key | None:
    """Return the key of a range's row number `rows`, from 1; None if it has fewer."""
    where, arguments = range_of(key, keys)
    shown = ", ".join(column.form.fetched.replace("{}", _name_of(column)) for column in key)
    order = ", ".join(map(_name_of, key))
    found = list(
        reading.raw(
            f"SELECT {shown} FROM {in_query(name)} WHERE {where} ORDER BY {order} LIMIT %s OFFSET %s",
            (*arguments, 1, rows - 1),
        )
    )
    return tuple(value or b"" for value in found[0]) if found else None


def _name_of(column: SideColumn) -> str:
    """Return a column's name, as a part of a query that takes arguments."""
    return quote(column.name).replace("%", "%%")


def _value_of(column: SideColumn, value: bytes, *, foreign: str) -> tuple[str, list[Any]]:
    """Return a key value's expression and arguments; `foreign`: for one this column cannot hold.

    A number is given as a number, since TiDB compares texts with numbers as floating-point ones.
    """
    match column.literal:
        case "bytes":
            return "%s", [value]
        case "number":
            return "%s", [int(value) if value.lstrip(b"-").isdigit() else Decimal(value.decode())]
    if (found := no_text(value)) is None:
        return "%s", [value.decode()]
    charset, content = found
    return f"_{charset} x'{content.hex()}'" if charset == column.form.charset else foreign, []


def _beyond(key: list[tuple[SideColumn, bytes]], way: str, *, inclusive: bool) -> tuple[str, list[Any]]:
    """Return the condition that a row's key lies beyond a key, in one way."""
    (column, value), *rest = key
    # Any border does for a side that cannot hold the value, if each row is on one side of it.
    name, (border, arguments) = _name_of(column), _value_of(column, value, foreign="''")
    if not rest:
        return f"{name} {way}{'=' if inclusive else ''} {border}", arguments
    inner, values = _beyond(rest, way, inclusive=inclusive)
    # The first part lets the server use an index; the second decides about the border itself.
    return f"{name} {way}= {border} AND ({name} {way} {border} OR ({inner}))", [*arguments, *arguments, *values]


def _with_constants(reading: Reading, table: str, columns: Sequence[ColumnShape]) -> tuple[ColumnShape, ...]:
    """Return a table's columns with constant defaults, read as values. `table`: its quoted name.

    What servers show of a default is not exact: MySQL and MariaDB show '?' for a character beyond
    U+FFFF, MySQL shows bytes in hexadecimal digits and ends them at a NUL, MariaDB escapes some
    characters or shows bytes in hexadecimal digits, and TiDB shows a year as it was written. A
    TIMESTAMP is one moment; MySQL shows it in the time zone of the session that made it, the others
    in that of the session that looks.
    """
    asked = [column for column in columns if _is_asked(reading.kind, column)]
    found: dict[str, bytes | None] = {}
    # What cannot be asked is compared as it is shown.
    with suppress(TableError):
        if asked:
            shown = ", ".join(f"HEX({_default_of(column)})" for column in asked)
            # A table without rows has defaults too.
            query = f"SELECT {shown} FROM (SELECT 1 AS one) AS one LEFT JOIN {table} AS t ON %s = 0"
            (values,) = reading.rows(query, (1,))
            found = {
                column.name: None if value is None else bytes.fromhex(str(value))
                for column, value in zip(asked, values, strict=True)
            }
    return tuple(replace(column, constant=found.get(column.name)) for column in columns)


def _default_of(column: ColumnShape) -> str:
    default = f"DEFAULT(t.{quote(column.name)})".replace("%", "%%")
    if column.data_type in _MOMENTS:
        return f"CONCAT({default})"
    return default if column.data_type in _BYTES else f"CONVERT({default} USING utf8mb4)"


def _is_asked(kind: str, column: ColumnShape) -> bool:
    """Return whether a default is a constant that servers show differently; run no expression."""
    # TiDB calls each default generated whose column follows the clock.
    if column.default is None or column.extra == "DEFAULT_GENERATED":
        return False
    if column.data_type in _MOMENTS:
        return column.default.lstrip("'")[:1].isdigit()
    if column.data_type not in _BYTES | _TEXTS or kind == "tidb":
        return False
    return kind == "mysql" or _LITERAL.fullmatch(column.default) is not None


_LOOKED_AT = 200
"""Rows from which the size of a row is estimated."""
_ROW_ID = SideColumn(name="_tidb_rowid", form=Form(summed="{}", fetched="{}"), literal="number")
"""TiDB's own key of the rows of a table that is not stored by its primary key."""


class ExportedTable:
    """A table, read on one connection in whatever snapshot that has taken."""

    def __init__(self, reading: Reading, name: TableName, key: Sequence[SideColumn] = ()) -> None:
        """Read the table called `name`; `key`: what its ranges go by, see `find_key`."""
        self._reading = reading
        self.name = name
        self.key = tuple(key)

    def statements(self) -> tuple[str, str]:
        """Return CREATE DATABASE and CREATE TABLE; raise `ConfigError` without such a table."""
        looked = ComparedTable(self._reading, self.name)
        shape = looked.structure()
        if shape is None or shape.is_view:
            raise ConfigError(f"the source has no table {self.name}, or it is a view")
        self.name = looked.name
        database = self._shown(f"SHOW CREATE DATABASE {quote(self.name.schema)}")
        return database, self._shown(f"SHOW CREATE TABLE {qualified(self.name)}")

    def view(self) -> str:
        """Return the CREATE VIEW of a view."""
        return self._shown(f"SHOW CREATE VIEW {qualified(self.name)}")

    def find_key(self) -> None:
        """Find the columns for ranges in storage order; a table without them is read in one."""
        try:
            self._reading.rows(f"SELECT {quote(_ROW_ID.name)} FROM {in_query(self.name)} LIMIT %s", (1,))
        except TableError:
            shape = ComparedTable(self._reading, self.name).structure()
            layout = layout_of(shape, shape).sides[0] if shape is not None else None
            self.key = tuple(layout.columns[place] for place in layout.key) if layout is not None else ()
        else:
            self.key = (_ROW_ID,)

    def row_bytes(self, columns: Sequence[TableColumn]) -> float:
        """Return about how many bytes a row has; at least 1."""
        found = list(self._read(columns, "%s LIMIT %s", (1, _LOOKED_AT)))
        return max(1.0, sum(len(value or b"") for row in found for value in row) / max(1, len(found)))

    def ranges(self, rows: int) -> Iterator[KeyRange]:
        """Yield ranges of about so many rows, which together hold all rows, each once."""
        keys = KeyRange()
        while self.key and (end := boundary(self._reading, self.name, self.key, keys, rows)) is not None:
            yield keys.before(end)
            keys = KeyRange(above=(end,))
        yield keys

    def rows(self, columns: Sequence[TableColumn], keys: KeyRange) -> Iterator[Row]:
        """Return the values of these columns, as the server sends them, of the rows in a range."""
        return self._read(columns, *range_of(self.key, keys))

    def rows_at(self, columns: Sequence[TableColumn], keys: Sequence[Key]) -> Iterator[Row]:
        """Return the same of the rows whose keys the server finds equal to one of these."""
        return self._read(columns, *among(self.key, keys))

    def _read(self, columns: Sequence[TableColumn], where: str, arguments: Sequence[object]) -> Iterator[Row]:
        # Of a large FLOAT by itself TiDB shows six digits, of one as a DOUBLE all.
        exact = (f"{quote(each.name)} + 0e0" if each.type == "FLOAT" else quote(each.name) for each in columns)
        shown = ", ".join(exact).replace("%", "%%")
        return self._reading.raw(f"SELECT {shown} FROM {in_query(self.name)} WHERE {where}", arguments)

    def _shown(self, sql: str) -> str:
        ((_, statement, *_),) = list(self._reading.raw(sql))
        try:
            return (statement or b"").decode()
        except UnicodeDecodeError:
            raise ConfigError(
                f"the statement of {self.name} is not UTF-8, as with the default of a binary column: export the table with Dumpling"
            ) from None
